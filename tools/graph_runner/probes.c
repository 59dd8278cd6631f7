#include "probes.h"

#include <string.h>
#if defined(__x86_64__)
#include <immintrin.h>
#endif

enum { PIECE = 32 << 10, AHEAD = 4096 };

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
void gr_copy_plain(void *to, const void *from, size_t bytes)
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

/* The sums of four products of bytes each by vpmaddubsw, vpmaddwd and vpaddd. The empty statement
 * hides that every chain multiplies the same bytes, which would be done once. */
__attribute__((target("avx2"))) static double bytes_avx2(long rounds, float *sink)
{
    const __m256i b = _mm256_set1_epi8(-2), ones = _mm256_set1_epi16(1);
    __m256i a = _mm256_set1_epi8(3), acc[8];
    int out[8];

    for (int k = 0; k < 8; k++) {
        acc[k] = _mm256_set1_epi32(k);
    }
    for (long i = 0; i < rounds; i++) {
#pragma GCC unroll 8
        for (int k = 0; k < 8; k++) {
            __asm__("" : "+x"(a));
            acc[k] = _mm256_add_epi32(acc[k], _mm256_madd_epi16(_mm256_maddubs_epi16(a, b), ones));
        }
    }
    for (int k = 0; k < 8; k++) {
        _mm256_storeu_si256((__m256i *)out, acc[k]);
        *sink += (float)out[0];
    }
    return (double)rounds * 8 * 32 * 2;
}

__attribute__((target("avx2,avxvnni"))) static double bytes_avxvnni(long rounds, float *sink)
{
    const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-2);
    __m256i acc[12];
    int out[8];

    for (int k = 0; k < 12; k++) {
        acc[k] = _mm256_set1_epi32(k);
    }
    for (long i = 0; i < rounds; i++) {
#pragma GCC unroll 12
        for (int k = 0; k < 12; k++) {
            acc[k] = _mm256_dpbusd_avx_epi32(acc[k], a, b);
        }
    }
    for (int k = 0; k < 12; k++) {
        _mm256_storeu_si256((__m256i *)out, acc[k]);
        *sink += (float)out[0];
    }
    return (double)rounds * 12 * 32 * 2;
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

/* As bytes_avx2. */
__attribute__((target("avx512f,avx512bw"))) static double bytes_avx512(long rounds, float *sink)
{
    const __m512i b = _mm512_set1_epi8(-2), ones = _mm512_set1_epi16(1);
    __m512i a = _mm512_set1_epi8(3), acc[16];

    for (int k = 0; k < 16; k++) {
        acc[k] = _mm512_set1_epi32(k);
    }
    for (long i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
            __asm__("" : "+v"(a));
            acc[k] = _mm512_add_epi32(acc[k], _mm512_madd_epi16(_mm512_maddubs_epi16(a, b), ones));
        }
    }
    for (int k = 0; k < 16; k++) {
        *sink += (float)_mm512_reduce_add_epi32(acc[k]);
    }
    return (double)rounds * 16 * 64 * 2;
}

__attribute__((target("avx512f,avx512vnni"))) static double bytes_vnni(long rounds, float *sink)
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

__attribute__((target("avx512f,avx512bf16"))) static double bf16_avx512(long rounds, float *sink)
{
    const __m512bh a = _mm512_cvtne2ps_pbh(_mm512_set1_ps(0.5f), _mm512_set1_ps(0.25f));
    __m512 acc[16];

    for (int k = 0; k < 16; k++) {
        acc[k] = _mm512_set1_ps((float)k);
    }
    for (long i = 0; i < rounds; i++) {
#pragma GCC unroll 16
        for (int k = 0; k < 16; k++) {
            acc[k] = _mm512_dpbf16_ps(acc[k], a, a);
        }
    }
    for (int k = 0; k < 16; k++) {
        *sink += _mm512_reduce_add_ps(acc[k]);
    }
    return (double)rounds * 16 * 32 * 2;
}
#endif

/* A set has all that the ones before it in a row of a public level have. */
static const gr_probe_t probes[] = {
    [sinter_isa_generic] = {"generic", read_generic, gr_copy_plain, mixed_generic, fma_generic,
                            NULL, NULL, NULL},
#if defined(__x86_64__)
    [sinter_isa_avx2] = {"avx2", read_avx2, copy_avx2, mixed_avx2, fma_avx2, bytes_avx2,
                         "vpmaddubsw", NULL},
    [sinter_isa_avx2_vnni] = {"avx2_vnni", read_avx2, copy_avx2, mixed_avx2, fma_avx2,
                              bytes_avxvnni, "AVX-VNNI", NULL},
    [sinter_isa_avx512] = {"avx512", read_avx512, copy_avx512, mixed_avx512, fma_avx512,
                           bytes_avx512, "vpmaddubsw", NULL},
    [sinter_isa_avx512_vnni] = {"avx512_vnni", read_avx512, copy_avx512, mixed_avx512, fma_avx512,
                                bytes_vnni, "VNNI", bf16_avx512},
#endif
};

gr_probe_t gr_probe_of(sinter_cpu_isa_t isa)
{
    const size_t n = sizeof probes / sizeof *probes;
    gr_probe_t probe = probes[(size_t)isa < n && probes[isa].isa ? isa : sinter_isa_generic];

#if defined(__x86_64__)
    if (probe.bf16 && !__builtin_cpu_supports("avx512bf16")) {
        probe.bf16 = NULL;
    }
#endif
    return probe;
}
