/* Tile functions with AVX2, FMA and F16C. */
#include "backend_xsmm/ukernels/tile_isa.h"

#if defined(__x86_64__)

#include <string.h>

#include "numeric/simd_avx2.h"

enum { GEMM_NV = 2 };
#define TILE_NEEDS NEEDS_AVX2

OP void transpose_lanes(const float *src, int64_t lds, float *dst, int64_t ldd)
{
    __m256 r[8], t[8];
    for (int i = 0; i < 8; i++) {
        r[i] = _mm256_loadu_ps(src + i * lds);
    }
    for (int i = 0; i < 8; i += 2) {
        t[i] = _mm256_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm256_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 8; i += 4) {
        r[i] = _mm256_shuffle_ps(t[i], t[i + 2], 0x44);
        r[i + 1] = _mm256_shuffle_ps(t[i], t[i + 2], 0xee);
        r[i + 2] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0x44);
        r[i + 3] = _mm256_shuffle_ps(t[i + 1], t[i + 3], 0xee);
    }
    for (int i = 0; i < 4; i++) {
        _mm256_storeu_ps(dst + i * ldd, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
        _mm256_storeu_ps(dst + (i + 4) * ldd, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
    }
}

#include "backend_xsmm/ukernels/tile_simd.inc"

const tile_table_t tile_table_avx2 = {
    load, gemm, tile_bf16_rows_c, tile_bf16_pairs_c, transpose, transpose_bytes, add_taps};

#endif
