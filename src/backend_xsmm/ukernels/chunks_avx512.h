/* Chunks of codes, one AVX-512 register of bytes, as vectors of floats in whatever order of
 * elements is cheapest. For x86-64 files of this ISA only. */
#ifndef SINTER_SRC_KERNELS_CHUNKS_AVX512_H
#define SINTER_SRC_KERNELS_CHUNKS_AVX512_H

#include "numeric/simd_avx512.h"
#include "numeric/unroll.h"

typedef enum form {
    NIBBLES,
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
    int left;  /* elements that are there */
    vf values; /* nibbles: by code */
    __m512i a,
        /* nibbles: the chunk; eight-bit floats: f16 of the lower and the upper halves of each
         * 128 bits */
        b;
} chunk_t;

/* f8_e4m3 in the upper byte of each word: one bit lower it is an f16 of 2^-8 of the value; NaN
 * is rare. */
OP __m512i halves_of_e4m3(__m512i x)
{
    const __m512i magnitude = _mm512_set1_epi16(0x7f00);
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(_mm512_and_si512(x, magnitude), magnitude);
    const __m512i half =
        _mm512_and_si512(_mm512_srai_epi16(x, 1), _mm512_set1_epi16((short)0xbfff));
    return _mm512_mask_mov_epi16(half, nan, _mm512_set1_epi16(0x7e00));
}

OP chunk_t chunk_load(form_t form, const unsigned char *p, int left, vf values)
{
    chunk_t c = {.p = p, .left = left, .values = values};
    if (form == NIBBLES) {
        c.a = left == 128 ? _mm512_loadu_si512(p)
                          : _mm512_maskz_loadu_epi32(lanes_below(left / 8), p);
    } else if (form == BYTES_E5M2 || form == BYTES_E4M3) {
        const __m512i x =
            left == 64 ? _mm512_loadu_si512(p) : _mm512_maskz_loadu_epi8((1ull << left) - 1, p);
        c.a = _mm512_unpacklo_epi8(_mm512_setzero_si512(), x);
        c.b = _mm512_unpackhi_epi8(_mm512_setzero_si512(), x);
        if (form == BYTES_E4M3) {
            c.a = halves_of_e4m3(c.a);
            c.b = halves_of_e4m3(c.b);
        }
    }
    return c;
}

OP vf chunk_vector(form_t form, const chunk_t *c, int v)
{
    const __mmask16 m = lanes_below(c->left - 16 * v);
    if (form == NIBBLES) {
        return _mm512_permutexvar_ps(_mm512_srli_epi32(c->a, (unsigned)(4 * v)), c->values);
    }
    if (form == BYTES_S8) {
        return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_maskz_loadu_epi8(m, c->p + 16 * v)));
    }
    if (form == BYTES_U8) {
        return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(_mm_maskz_loadu_epi8(m, c->p + 16 * v)));
    }
    if (form == BYTES_E5M2 || form == BYTES_E4M3) {
        const __m512i x = v % 2 ? c->b : c->a;
        const vf y =
            _mm512_cvtph_ps(v < 2 ? _mm512_castsi512_si256(x) : _mm512_extracti64x4_epi64(x, 1));
        return form == BYTES_E4M3 ? _mm512_mul_ps(y, _mm512_set1_ps(256)) : y;
    }
    if (form == HALVES) {
        return _mm512_cvtph_ps(_mm256_maskz_loadu_epi16(m, c->p + 32 * v));
    }
    if (form == BRAINS) {
        return _mm512_castsi512_ps(_mm512_slli_epi32(
            _mm512_cvtepu16_epi32(_mm256_maskz_loadu_epi16(m, c->p + 32 * v)), 16));
    }
    return _mm512_maskz_loadu_ps(m, c->p + 64 * v);
}

/* The element of a chunk in a lane of a vector. */

/* Dword i of a chunk holds elements 8i to 8i + 7. */
static int nibble_at(int v, int lane)
{
    return 8 * lane + v;
}
static int in_order(int v, int lane)
{
    return 16 * v + lane;
}
/* Unpacking works within 128 bits. */
static int unpacked_at(int v, int lane)
{
    return 16 * (lane / 8 + 2 * (v / 2)) + 8 * (v % 2) + lane % 8;
}

#endif
