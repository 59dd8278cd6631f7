#include "limits.h"

#include "base.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { PASSES = 5, PIECE = 32 << 10, AHEAD = 4096 };
static const size_t read_bytes = (size_t)512 << 20, copy_bytes = (size_t)128 << 20,
                    meter_bytes = (size_t)256 << 20;
static const long op_rounds = 2000000;

/* One for each instruction set. read sums the 64-bit words of whole 512-byte blocks; copy writes
 * past the caches, whole blocks of 512 bytes at addresses aligned to 64; mixed reads
 * `read` and writes `written` lines of 64 bytes, evenly spread, and writes past the caches where
 * the instruction set can; fma and dot run `rounds` rounds of independent FMAs, or of dot products
 * of 8-bit integers (NULL: no such instruction), and return the operations done. */
typedef struct probe {
    const char *isa;
    unsigned long long (*read)(const void *data, size_t bytes);
    void (*copy)(void *to, const void *from, size_t bytes);
    void (*mixed)(void *to, const void *from, size_t read, size_t written);
    double (*fma)(long rounds, float *sink);
    double (*dot)(long rounds, float *sink);
} probe_t;

static unsigned long long read_generic(const void *data, size_t bytes)
{
    const unsigned long long *p = data;
    unsigned long long sum[8] = {0}, all = 0;

    for (size_t i = 0; i + 8 <= bytes / 8; i += 8) {
        for (int k = 0; k < 8; k++) {
            sum[k] += p[i + (size_t)k];
        }
    }
    for (int k = 0; k < 8; k++) {
        all += sum[k];
    }
    return all;
}

/* In pieces so short that the C library does not write past the caches. */
static void copy_plain(void *to, const void *from, size_t bytes)
{
    for (size_t at = 0; at < bytes; at += PIECE) {
        memcpy((char *)to + at, (const char *)from + at, bytes - at < PIECE ? bytes - at : PIECE);
    }
}

/* Lines are written whenever enough were read; what they hold depends on all that were, so that
 * none can be dropped, and is not zero: some machines write zeros faster than anything else. */
static void mixed_generic(void *to, const void *from, size_t read, size_t written)
{
    const unsigned long long *p = from;
    unsigned long long *q = to, sum[8] = {0};
    size_t due = 0;

    for (size_t i = 0; i < read; i++, p += 8) {
        __builtin_prefetch((const char *)p + AHEAD);
        for (int k = 0; k < 8; k++) {
            sum[k] += p[k];
        }
        for (due += written; due >= read; due -= read) {
            memcpy(q, sum, sizeof sum);
            q += 8;
        }
    }
}

static double fma_generic(long rounds, float *sink)
{
    float acc[64];

    for (int k = 0; k < 64; k++) {
        acc[k] = (float)k;
    }
    for (long i = 0; i < rounds; i++) {
        for (int k = 0; k < 64; k++) {
            acc[k] = acc[k] * 0.999f + 0.5f;
        }
    }
    for (int k = 0; k < 64; k++) {
        *sink += acc[k];
    }
    return (double)rounds * 64 * 2;
}

static const probe_t generic = {"generic",     read_generic, copy_plain,
                                mixed_generic, fma_generic,  NULL};

#if defined(__x86_64__)
__attribute__((target("avx2,fma"))) static unsigned long long read_avx2(const void *data,
                                                                        size_t bytes)
{
    const __m256i *p = data;
    __m256i s[8];
    unsigned long long out[4], all = 0;

    for (int k = 0; k < 8; k++) {
        s[k] = _mm256_setzero_si256();
    }
    for (size_t i = 0; i + 8 <= bytes / 32; i += 8) {
        for (int k = 0; k < 8; k++) {
            s[k] = _mm256_add_epi64(s[k], _mm256_loadu_si256(p + i + (size_t)k));
        }
    }
    for (int k = 1; k < 8; k++) {
        s[0] = _mm256_add_epi64(s[0], s[k]);
    }
    _mm256_storeu_si256((__m256i *)out, s[0]);
    for (int k = 0; k < 4; k++) {
        all += out[k];
    }
    return all;
}

__attribute__((target("avx2"))) static void copy_avx2(void *to, const void *from, size_t bytes)
{
    const __m256i *p = from;
    __m256i *q = to;

    for (size_t i = 0; i < bytes / 32; i += 4) {
        const __m256i a = _mm256_loadu_si256(p + i), b = _mm256_loadu_si256(p + i + 1),
                      c = _mm256_loadu_si256(p + i + 2);
        const __m256i d = _mm256_loadu_si256(p + i + 3);

        _mm256_stream_si256(q + i, a);
        _mm256_stream_si256(q + i + 1, b);
        _mm256_stream_si256(q + i + 2, c);
        _mm256_stream_si256(q + i + 3, d);
    }
    _mm_sfence();
}

__attribute__((target("avx2"))) static void mixed_avx2(void *to, const void *from, size_t read,
                                                       size_t written)
{
    const __m256i *p = from;
    __m256i *q = to, a = _mm256_setzero_si256(), b = a;
    size_t due = 0;

    for (size_t i = 0; i < read; i++, p += 2) {
        __builtin_prefetch((const char *)p + AHEAD);
        a = _mm256_add_epi64(a, _mm256_loadu_si256(p));
        b = _mm256_add_epi64(b, _mm256_loadu_si256(p + 1));
        for (due += written; due >= read; due -= read) {
            _mm256_stream_si256(q, a);
            _mm256_stream_si256(q + 1, b);
            q += 2;
        }
    }
    _mm_sfence();
}

__attribute__((target("avx2,fma"))) static double fma_avx2(long rounds, float *sink)
{
    const __m256 a = _mm256_set1_ps(0.999f), b = _mm256_set1_ps(0.5f);
    __m256 acc[12];
    float out[8];

    for (int k = 0; k < 12; k++) {
        acc[k] = _mm256_set1_ps((float)k);
    }
    for (long i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++) {
            acc[k] = _mm256_fmadd_ps(acc[k], a, b);
        }
    }
    for (int k = 0; k < 12; k++) {
        _mm256_storeu_ps(out, acc[k]);
        *sink += out[0];
    }
    return (double)rounds * 12 * 8 * 2;
}

__attribute__((target("avx512f"))) static unsigned long long read_avx512(const void *data,
                                                                         size_t bytes)
{
    const char *p = data;
    __m512i s[8];

    for (int k = 0; k < 8; k++) {
        s[k] = _mm512_setzero_si512();
    }
    for (size_t i = 0; i + 512 <= bytes; i += 512) {
        for (size_t k = 0; k < 8; k++) {
            s[k] = _mm512_add_epi64(s[k], _mm512_loadu_si512(p + i + 64 * k));
        }
    }
    for (int k = 1; k < 8; k++) {
        s[0] = _mm512_add_epi64(s[0], s[k]);
    }
    return (unsigned long long)_mm512_reduce_add_epi64(s[0]);
}

__attribute__((target("avx512f"))) static void copy_avx512(void *to, const void *from, size_t bytes)
{
    const char *p = from;
    char *q = to;

    for (size_t i = 0; i < bytes; i += 256) {
        const __m512i a = _mm512_loadu_si512(p + i), b = _mm512_loadu_si512(p + i + 64),
                      c = _mm512_loadu_si512(p + i + 128);
        const __m512i d = _mm512_loadu_si512(p + i + 192);

        _mm512_stream_si512((__m512i *)(void *)(q + i), a);
        _mm512_stream_si512((__m512i *)(void *)(q + i + 64), b);
        _mm512_stream_si512((__m512i *)(void *)(q + i + 128), c);
        _mm512_stream_si512((__m512i *)(void *)(q + i + 192), d);
    }
    _mm_sfence();
}

__attribute__((target("avx512f"))) static void mixed_avx512(void *to, const void *from, size_t read,
                                                            size_t written)
{
    const char *p = from;
    char *q = to;
    __m512i all = _mm512_setzero_si512();
    size_t due = 0;

    for (size_t i = 0; i < read; i++, p += 64) {
        __builtin_prefetch((const char *)p + AHEAD);
        all = _mm512_add_epi64(all, _mm512_loadu_si512(p));
        for (due += written; due >= read; due -= read) {
            _mm512_stream_si512((__m512i *)(void *)q, all);
            q += 64;
        }
    }
    _mm_sfence();
}

__attribute__((target("avx512f"))) static double fma_avx512(long rounds, float *sink)
{
    const __m512 a = _mm512_set1_ps(0.999f), b = _mm512_set1_ps(0.5f);
    __m512 acc[16];

    for (int k = 0; k < 16; k++) {
        acc[k] = _mm512_set1_ps((float)k);
    }
    for (long i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
            acc[k] = _mm512_fmadd_ps(acc[k], a, b);
        }
    }
    for (int k = 0; k < 16; k++) {
        *sink += _mm512_reduce_add_ps(acc[k]);
    }
    return (double)rounds * 16 * 16 * 2;
}

__attribute__((target("avx512f,avx512vnni"))) static double dot_vnni(long rounds, float *sink)
{
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-2);
    __m512i acc[16];

    for (int k = 0; k < 16; k++) {
        acc[k] = _mm512_set1_epi32(k);
    }
    for (long i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
            acc[k] = _mm512_dpbusd_epi32(acc[k], a, b);
        }
    }
    for (int k = 0; k < 16; k++) {
        *sink += (float)_mm512_reduce_add_epi32(acc[k]);
    }
    return (double)rounds * 16 * 64 * 2;
}

static const probe_t avx2 = {"avx2", read_avx2, copy_avx2, mixed_avx2, fma_avx2, NULL};
static const probe_t avx512 = {"avx512", read_avx512, copy_avx512, mixed_avx512, fma_avx512, NULL};
static const probe_t avx512_vnni = {"avx512_vnni", read_avx512, copy_avx512,
                                    mixed_avx512,  fma_avx512,  dot_vnni};
#endif

static const probe_t *best_probe(void)
{
#if defined(__x86_64__)
    if (__builtin_cpu_supports("avx512f")) {
        return __builtin_cpu_supports("avx512vnni") ? &avx512_vnni : &avx512;
    }
    if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
        return &avx2;
    }
#endif
    return &generic;
}

unsigned long long gr_read_all(const void *data, size_t bytes, int threads)
{
    const probe_t *probe = best_probe();
    const size_t piece = (bytes / (size_t)threads + 511) / 512 * 512;
    unsigned long long sum = 0;

#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : sum)
    for (int t = 0; t < threads; t++) {
        size_t from = (size_t)t * piece;

        if (from < bytes) {
            sum +=
                probe->read((const char *)data + from, bytes - from < piece ? bytes - from : piece);
        }
    }
    return sum;
}

static double measure_read(int threads)
{
    char *data = gr_malloc(read_bytes);
    volatile unsigned long long sink;
    double best = 0;

    if (!data) {
        return 0;
    }
#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < 512; t++) {
        memset(data + read_bytes / 512 * (size_t)t, t, read_bytes / 512);
    }
    for (int pass = 0; pass < PASSES; pass++) {
        double start = gr_seconds(), rate;

        sink = gr_read_all(data, read_bytes, threads);
        rate = (double)read_bytes / (gr_seconds() - start);
        best = rate > best ? rate : best;
    }
    (void)sink;
    gr_free(data);
    return best;
}

static double time_copy(void (*copy)(void *to, const void *from, size_t bytes), char *to,
                        const char *from, size_t bytes, int threads)
{
    const size_t piece = (bytes / (size_t)threads + 511) / 512 * 512;
    double start = gr_seconds();

#pragma omp parallel for num_threads(threads) schedule(static)
    for (int t = 0; t < threads; t++) {
        size_t at = (size_t)t * piece;

        if (at < bytes) {
            copy(to + at, from + at, bytes - at < piece ? bytes - at : piece);
        }
    }
    return 2 * (double)bytes / (gr_seconds() - start);
}

/* The better of a copy through the caches and one past them. */
static double measure_copy(int threads)
{
    const probe_t *probe = best_probe();
    char *from = gr_malloc(copy_bytes), *to = gr_malloc(copy_bytes + 64);
    double best = 0;

    for (size_t t = 0; from && to && t < copy_bytes; t += 4096) {
        from[t] = to[t] = (char)t;
    }
    for (int pass = 0; from && to && pass < PASSES; pass++) {
        char *aligned = to + (64 - (uintptr_t)to % 64) % 64;
        double plain = time_copy(copy_plain, aligned, from, copy_bytes, threads),
               past = time_copy(probe->copy, aligned, from, copy_bytes, threads);

        best = plain > best ? plain : best;
        best = past > best ? past : best;
    }
    gr_free(from);
    gr_free(to);
    return best;
}

/* op: fma or dot of the probe. */
static double measure_ops(double (*op)(long rounds, float *sink), int threads)
{
    volatile float sink;
    double best = 0;

    for (int pass = 0; op && pass < PASSES; pass++) {
        double start = gr_seconds(), done = 0, rate;
        float all = 0;

#pragma omp parallel for num_threads(threads) schedule(static) reduction(+ : done, all)
        for (int t = 0; t < threads; t++) {
            done += op(op_rounds, &all);
        }
        rate = done / (gr_seconds() - start);
        best = rate > best ? rate : best;
        sink = all;
    }
    (void)sink;
    return best;
}

static gr_limits_t limits;
static int measured_threads;

static void keep_best(double *best, double rate)
{
    *best = rate > *best ? rate : *best;
}

const gr_limits_t *gr_limits(int threads)
{
    const probe_t *probe = best_probe();

    if (measured_threads != threads) {
        gr_progress("measuring bandwidth and peak of %d threads", threads);
        limits = (gr_limits_t){.read_bytes = measure_read(threads),
                               .copy_bytes = measure_copy(threads),
                               .isa = probe->isa};
        measured_threads = threads;
    }
    keep_best(&limits.fma_flops, measure_ops(probe->fma, threads));
    keep_best(&limits.dot_ops, measure_ops(probe->dot, threads));
    return &limits;
}

int gr_meter_open(gr_meter_t *m, int copies, int threads)
{
    const size_t least = 8 * gr_last_level_cache(),
                 bytes = least > meter_bytes ? least : meter_bytes;

    *m = (gr_meter_t){gr_malloc(bytes), copies ? gr_malloc(bytes + 64) : NULL, bytes, threads};
    if (!m->from || (copies && !m->to)) {
        gr_meter_close(m);
        return -1;
    }
    memset(m->from, 1, bytes);
    if (copies) {
        memset(m->to, 2, bytes + 64);
    }
    return 0;
}

static char *aligned_to(const gr_meter_t *m)
{
    return m->to + (64 - (uintptr_t)m->to % 64) % 64;
}

double gr_meter_mixed(const gr_meter_t *m, double read, double written)
{
    const probe_t *probe = best_probe();
    const double lines = (double)(m->bytes / 64 / (size_t)m->threads),
                 most = read > written ? read : written;
    const size_t reads = most > 0 ? (size_t)(lines * read / most) : 0,
                 writes = most > 0 ? (size_t)(lines * written / most) : 0;
    double start = gr_seconds();

    if (!m->to || reads == 0) {
        return 0;
    }
#pragma omp parallel for num_threads(m->threads) schedule(static)
    for (int t = 0; t < m->threads; t++) {
        probe->mixed(aligned_to(m) + (size_t)t * writes * 64, m->from + (size_t)t * reads * 64,
                     reads, writes);
    }
    return 64.0 * (double)(reads + writes) * m->threads / (gr_seconds() - start);
}

double gr_meter_rate(const gr_meter_t *m)
{
    volatile unsigned long long sink;
    double start = gr_seconds();

    if (m->to) {
        return time_copy(best_probe()->copy, aligned_to(m), m->from, m->bytes, m->threads);
    }
    sink = gr_read_all(m->from, m->bytes, m->threads);
    (void)sink;
    return (double)m->bytes / (gr_seconds() - start);
}

void gr_meter_close(gr_meter_t *m)
{
    gr_free(m->from);
    gr_free(m->to);
    *m = (gr_meter_t){0};
}

/* Linux's own answer first: sysconf computes a wrong one on some CPUs under a hypervisor. */
size_t gr_last_level_cache(void)
{
    FILE *f = fopen("/sys/devices/system/cpu/cpu0/cache/index3/size", "r");
    long bytes = 0;

    if (f) {
        if (fscanf(f, "%ldK", &bytes) == 1) {
            bytes *= 1024;
        }
        fclose(f);
    }
    if (bytes <= 0) {
        bytes = sysconf(_SC_LEVEL3_CACHE_SIZE);
    }
    if (bytes <= 0) {
        bytes = sysconf(_SC_LEVEL2_CACHE_SIZE);
    }
    return bytes > 0 ? (size_t)bytes : (size_t)32 << 20;
}
