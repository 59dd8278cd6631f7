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

/* Sums of products of bytes. Compilers do not see the instructions: they would do once what all
 * sums have in common, and gcc 12 copies sums from register to register, which takes half of the
 * speed. */

__attribute__((target("avx2"))) static inline __m256i words_avx2(__m256i sum, __m256i a, __m256i b)
{
    const __m256i ones = _mm256_set1_epi16(1);
    __m256i words;

    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
                     : "+x"(sum), "=&x"(words)
                     : "x"(a), "x"(b), "x"(ones));
    return sum;
}

__attribute__((target("avx2"))) static double bytes_avx2(long rounds, float *sink)
{
    const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-2);
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0,
            s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0;

    for (long i = 0; i < rounds; i++) {
        s0 = words_avx2(s0, a, b);
        s1 = words_avx2(s1, a, b);
        s2 = words_avx2(s2, a, b);
        s3 = words_avx2(s3, a, b);
        s4 = words_avx2(s4, a, b);
        s5 = words_avx2(s5, a, b);
        s6 = words_avx2(s6, a, b);
        s7 = words_avx2(s7, a, b);
        s8 = words_avx2(s8, a, b);
        s9 = words_avx2(s9, a, b);
        s10 = words_avx2(s10, a, b);
        s11 = words_avx2(s11, a, b);
    }
    s0 = _mm256_add_epi32(s0, s1);
    s0 = _mm256_add_epi32(s0, s2);
    s0 = _mm256_add_epi32(s0, s3);
    s0 = _mm256_add_epi32(s0, s4);
    s0 = _mm256_add_epi32(s0, s5);
    s0 = _mm256_add_epi32(s0, s6);
    s0 = _mm256_add_epi32(s0, s7);
    s0 = _mm256_add_epi32(s0, s8);
    s0 = _mm256_add_epi32(s0, s9);
    s0 = _mm256_add_epi32(s0, s10);
    s0 = _mm256_add_epi32(s0, s11);
    *sink += (float)_mm256_extract_epi32(s0, 0);
    return (double)rounds * 12 * 32 * 2;
}

__attribute__((target("avx2,avxvnni"))) static inline __m256i dot_avxvnni(__m256i sum, __m256i a,
                                                                          __m256i b)
{
    __asm__ volatile("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
}

__attribute__((target("avx2,avxvnni"))) static double bytes_avxvnni(long rounds, float *sink)
{
    const __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-2);
    __m256i s0 = _mm256_setzero_si256(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0,
            s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0;

    for (long i = 0; i < rounds; i++) {
        s0 = dot_avxvnni(s0, a, b);
        s1 = dot_avxvnni(s1, a, b);
        s2 = dot_avxvnni(s2, a, b);
        s3 = dot_avxvnni(s3, a, b);
        s4 = dot_avxvnni(s4, a, b);
        s5 = dot_avxvnni(s5, a, b);
        s6 = dot_avxvnni(s6, a, b);
        s7 = dot_avxvnni(s7, a, b);
        s8 = dot_avxvnni(s8, a, b);
        s9 = dot_avxvnni(s9, a, b);
        s10 = dot_avxvnni(s10, a, b);
        s11 = dot_avxvnni(s11, a, b);
    }
    s0 = _mm256_add_epi32(s0, s1);
    s0 = _mm256_add_epi32(s0, s2);
    s0 = _mm256_add_epi32(s0, s3);
    s0 = _mm256_add_epi32(s0, s4);
    s0 = _mm256_add_epi32(s0, s5);
    s0 = _mm256_add_epi32(s0, s6);
    s0 = _mm256_add_epi32(s0, s7);
    s0 = _mm256_add_epi32(s0, s8);
    s0 = _mm256_add_epi32(s0, s9);
    s0 = _mm256_add_epi32(s0, s10);
    s0 = _mm256_add_epi32(s0, s11);
    *sink += (float)_mm256_extract_epi32(s0, 0);
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
    return (unsigned long long)_mm_cvtsi128_si64(_mm512_castsi512_si128(s[0]));
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

__attribute__((target("avx512f,avx512bw"))) static inline __m512i words_avx512(__m512i sum,
                                                                               __m512i a, __m512i b)
{
    const __m512i ones = _mm512_set1_epi16(1);
    __m512i words;

    __asm__ volatile("vpmaddubsw %3, %2, %1\n\tvpmaddwd %4, %1, %1\n\tvpaddd %1, %0, %0"
                     : "+v"(sum), "=&v"(words)
                     : "v"(a), "v"(b), "v"(ones));
    return sum;
}

__attribute__((target("avx512f,avx512bw"))) static double bytes_avx512(long rounds, float *sink)
{
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-2);
    __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0,
            s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0;

    for (long i = 0; i < rounds; i++) {
        s0 = words_avx512(s0, a, b);
        s1 = words_avx512(s1, a, b);
        s2 = words_avx512(s2, a, b);
        s3 = words_avx512(s3, a, b);
        s4 = words_avx512(s4, a, b);
        s5 = words_avx512(s5, a, b);
        s6 = words_avx512(s6, a, b);
        s7 = words_avx512(s7, a, b);
        s8 = words_avx512(s8, a, b);
        s9 = words_avx512(s9, a, b);
        s10 = words_avx512(s10, a, b);
        s11 = words_avx512(s11, a, b);
    }
    s0 = _mm512_add_epi32(s0, s1);
    s0 = _mm512_add_epi32(s0, s2);
    s0 = _mm512_add_epi32(s0, s3);
    s0 = _mm512_add_epi32(s0, s4);
    s0 = _mm512_add_epi32(s0, s5);
    s0 = _mm512_add_epi32(s0, s6);
    s0 = _mm512_add_epi32(s0, s7);
    s0 = _mm512_add_epi32(s0, s8);
    s0 = _mm512_add_epi32(s0, s9);
    s0 = _mm512_add_epi32(s0, s10);
    s0 = _mm512_add_epi32(s0, s11);
    *sink += (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(s0));
    return (double)rounds * 12 * 64 * 2;
}

__attribute__((target("avx512f,avx512vnni"))) static inline __m512i dot_vnni(__m512i sum, __m512i a,
                                                                             __m512i b)
{
    __asm__ volatile("vpdpbusd %2, %1, %0" : "+v"(sum) : "v"(a), "v"(b));
    return sum;
}

__attribute__((target("avx512f,avx512vnni"))) static double bytes_vnni(long rounds, float *sink)
{
    const __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-2);
    __m512i s0 = _mm512_setzero_si512(), s1 = s0, s2 = s0, s3 = s0, s4 = s0, s5 = s0, s6 = s0,
            s7 = s0, s8 = s0, s9 = s0, s10 = s0, s11 = s0;

    for (long i = 0; i < rounds; i++) {
        s0 = dot_vnni(s0, a, b);
        s1 = dot_vnni(s1, a, b);
        s2 = dot_vnni(s2, a, b);
        s3 = dot_vnni(s3, a, b);
        s4 = dot_vnni(s4, a, b);
        s5 = dot_vnni(s5, a, b);
        s6 = dot_vnni(s6, a, b);
        s7 = dot_vnni(s7, a, b);
        s8 = dot_vnni(s8, a, b);
        s9 = dot_vnni(s9, a, b);
        s10 = dot_vnni(s10, a, b);
        s11 = dot_vnni(s11, a, b);
    }
    s0 = _mm512_add_epi32(s0, s1);
    s0 = _mm512_add_epi32(s0, s2);
    s0 = _mm512_add_epi32(s0, s3);
    s0 = _mm512_add_epi32(s0, s4);
    s0 = _mm512_add_epi32(s0, s5);
    s0 = _mm512_add_epi32(s0, s6);
    s0 = _mm512_add_epi32(s0, s7);
    s0 = _mm512_add_epi32(s0, s8);
    s0 = _mm512_add_epi32(s0, s9);
    s0 = _mm512_add_epi32(s0, s10);
    s0 = _mm512_add_epi32(s0, s11);
    *sink += (float)_mm_cvtsi128_si32(_mm512_castsi512_si128(s0));
    return (double)rounds * 12 * 64 * 2;
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
