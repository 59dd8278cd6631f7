/* Tile functions with AVX-512 F, BW, DQ and VL. */
#include "backend_xsmm/ukernels/tile_isa.h"

#if defined(__x86_64__)

#include <string.h>

#include "numeric/simd_avx512.h"

enum { GEMM_NV = 4 };
#define TILE_NEEDS NEEDS_AVX512

OP void transpose_lanes(const float *src, int64_t lds, float *dst, int64_t ldd)
{
    __m512 r[16], t[16];
    for (int i = 0; i < 16; i++) {
        r[i] = _mm512_loadu_ps(src + i * lds);
    }
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16;
         i += 4) { /* r[4q + j]: column 4b + j of rows 4q..4q+3, in 128-bit lane b */
        r[i] = _mm512_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm512_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm512_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int j = 0; j < 4; j++) {
        t[j] = _mm512_shuffle_f32x4(r[j], r[4 + j], 0x88);
        t[4 + j] = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0x88);
        t[8 + j] = _mm512_shuffle_f32x4(r[j], r[4 + j], 0xdd);
        t[12 + j] = _mm512_shuffle_f32x4(r[8 + j], r[12 + j], 0xdd);
    }
    for (int j = 0; j < 4; j++) {
        _mm512_storeu_ps(dst + j * ldd, _mm512_shuffle_f32x4(t[j], t[4 + j], 0x88));
        _mm512_storeu_ps(dst + (4 + j) * ldd, _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0x88));
        _mm512_storeu_ps(dst + (8 + j) * ldd, _mm512_shuffle_f32x4(t[j], t[4 + j], 0xdd));
        _mm512_storeu_ps(dst + (12 + j) * ldd, _mm512_shuffle_f32x4(t[8 + j], t[12 + j], 0xdd));
    }
}

/* bf16 of each lane in its upper half; the lower half is left over. */
OP __m512i round_bf16(__m512 x)
{
    const __m512i u = _mm512_castps_si512(x),
                  odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u,
                                _mm512_set1_epi32(0x400000));
}

TARGET static void bf16_rows(const float *src, int64_t ld, int rows, int cols, uint16_t *dst,
                             int64_t ldd)
{
    const int whole = cols & ~15;
    for (int r = 0; r < rows; r++) {
        for (int c = 0; c < whole; c += 16) {
            const __m512i x = _mm512_srli_epi32(round_bf16(_mm512_loadu_ps(src + r * ld + c)), 16);
            _mm256_storeu_si256((__m256i *)(void *)(dst + r * ldd + c), _mm512_cvtepi32_epi16(x));
        }
    }
    tile_bf16_rows_c(src + whole, ld, rows, cols - whole, dst + whole, ldd);
}

TARGET static void bf16_pairs(const float *src, int64_t ld, int rows, int cols, uint16_t *dst,
                              int64_t ldd)
{
    const int whole = cols & ~15;
    for (int r = 0; r < rows; r += 2) {
        const float *even = src + r * ld, *odd = even + ld;
        for (int c = 0; c < whole; c += 16) {
            const __m512i low = _mm512_srli_epi32(round_bf16(_mm512_loadu_ps(even + c)), 16),
                          high = round_bf16(_mm512_loadu_ps(odd + c));
            const __m512i pair =
                _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi32((int)0xffff0000u)));
            _mm512_storeu_si512(dst + r / 2 * ldd * 2 + c * 2, pair);
        }
    }
    tile_bf16_pairs_c(src + whole, ld, rows, cols - whole, dst + whole * 2, ldd);
}

#include "backend_xsmm/ukernels/tile_simd.inc"

const tile_table_t tile_table_avx512 = {
    load, gemm, bf16_rows, bf16_pairs, transpose, transpose_bytes, add_taps};

#endif
