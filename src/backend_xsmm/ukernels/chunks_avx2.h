/* Chunks of codes, one AVX2 register of bytes, as vectors of floats in whatever order of
 * elements is cheapest. For x86-64 files of this ISA only. */
#ifndef SINTER_SRC_KERNELS_CHUNKS_AVX2_H
#define SINTER_SRC_KERNELS_CHUNKS_AVX2_H

#include "numeric/simd_avx2.h"
#include "numeric/unroll.h"

typedef enum form {
    NIBBLES_S4,
    NIBBLES_U4,
    NIBBLES_E2M1,
    BYTES_S8,
    BYTES_U8,
    BYTES_E5M2,
    BYTES_E4M3,
    HALVES,
    BRAINS,
    WORDS
} form_t;

/* What the vectors of a chunk are made from. */
typedef struct chunk {
    const unsigned char *p;
    int left; /* elements that are there: whole vectors */
    __m256i a,
        /* nibbles: the chunk; eight-bit floats: f16 of the lower and the upper halves of each
         * 128 bits */
        b;
} chunk_t;

/* f8_e4m3 in the upper byte of each word: one bit lower it is an f16 of 2^-8 of the value, but
 * for NaN. */
OP __m256i halves_of_e4m3(__m256i x)
{
    const __m256i magnitude = _mm256_set1_epi16(0x7f00),
                  nan = _mm256_cmpeq_epi16(_mm256_and_si256(x, magnitude), magnitude);
    const __m256i half =
        _mm256_and_si256(_mm256_srai_epi16(x, 1), _mm256_set1_epi16((short)0xbfff));
    return _mm256_or_si256(half, _mm256_and_si256(nan, _mm256_set1_epi16(0x7e00)));
}

OP chunk_t chunk_load(form_t form, const unsigned char *p, int left, vf values)
{
    chunk_t c = {.p = p, .left = left};
    (void)values;
    if (form <= NIBBLES_E2M1) {
        c.a = left == 64
                  ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                  : _mm256_maskload_epi32((const int *)(const void *)p, lanes_below(left / 8));
    } else if (form == BYTES_E5M2 || form == BYTES_E4M3) {
        const __m256i there =
            _mm256_cmpgt_epi64(_mm256_set1_epi64x(left), _mm256_setr_epi64x(0, 8, 16, 24));
        const __m256i x = left == 32
                              ? _mm256_loadu_si256((const __m256i *)(const void *)p)
                              : _mm256_maskload_epi64((const long long *)(const void *)p, there);
        c.a = _mm256_unpacklo_epi8(_mm256_setzero_si256(), x);
        c.b = _mm256_unpackhi_epi8(_mm256_setzero_si256(), x);
        if (form == BYTES_E4M3) {
            c.a = halves_of_e4m3(c.a);
            c.b = halves_of_e4m3(c.b);
        }
    }
    return c;
}

/* Vector v of a chunk of nibbles: nibble v of each dword. */
OP vf nibbles(form_t form, __m256i x, int v)
{
    const __m256i top = _mm256_slli_epi32(x, 28 - 4 * v);
    if (form == NIBBLES_S4) {
        return _mm256_cvtepi32_ps(_mm256_srai_epi32(top, 28));
    }
    if (form == NIBBLES_U4) {
        return _mm256_cvtepi32_ps(_mm256_srli_epi32(top, 28));
    }
    const vf magnitudes =
        _mm256_setr_ps(0, 0.5f, 1, 1.5f, 2, 3, 4, 6); /* f4_e2m1, the sign is its top bit */
    const vf sign = _mm256_and_ps(_mm256_castsi256_ps(top), _mm256_set1_ps(-0.0f));
    return _mm256_xor_ps(_mm256_permutevar8x32_ps(magnitudes, _mm256_srli_epi32(x, 4 * v)), sign);
}

OP vf chunk_vector(form_t form, const chunk_t *c, int v)
{
    if (form <= NIBBLES_E2M1) {
        return nibbles(form, c->a, v);
    }
    if (form != BYTES_E5M2 && form != BYTES_E4M3 && 8 * v >= c->left) {
        return _mm256_setzero_ps();
    }
    if (form == BYTES_S8) {
        return vf_load_s8(c->p + 8 * v);
    }
    if (form == BYTES_U8) {
        return vf_load_u8(c->p + 8 * v);
    }
    if (form == BYTES_E5M2 || form == BYTES_E4M3) {
        const __m256i x = v % 2 ? c->b : c->a;
        const vf y =
            _mm256_cvtph_ps(v < 2 ? _mm256_castsi256_si128(x) : _mm256_extracti128_si256(x, 1));
        return form == BYTES_E4M3 ? _mm256_mul_ps(y, _mm256_set1_ps(256)) : y;
    }
    if (form == HALVES) {
        return vf_load_f16(c->p + 16 * v);
    }
    if (form == BRAINS) {
        return vf_load_bf16(c->p + 16 * v);
    }
    return _mm256_loadu_ps((const float *)(const void *)c->p);
}

/* The element of a chunk in a lane of a vector. */

/* Dword i of a chunk holds elements 8i to 8i + 7. */
static int nibble_at(int v, int lane)
{
    return 8 * lane + v;
}
static int in_order(int v, int lane)
{
    return 8 * v + lane;
}

#endif
