/* Tile functions with AVX2, FMA and F16C. */
#include "tile_isa.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define OP TARGET static inline __attribute__((always_inline))
enum { LANES = 8, GEMM_NV = 2 };
#define LEVEL sinter_isa_avx2
typedef __m256 vf;

/* clang-format off: a table of one-liners */
OP vf vf_load(const float *p)
{
    return _mm256_loadu_ps(p);
}
OP void vf_store(float *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
OP vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
OP vf vf_sub(vf a, vf b)
{
    return _mm256_sub_ps(a, b);
}
OP vf vf_mul(vf a, vf b)
{
    return _mm256_mul_ps(a, b);
}
OP vf vf_fma(vf a, vf b, vf c)
{
    return _mm256_fmadd_ps(a, b, c);
}
OP __m256i lanes_below(int n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
OP vf vf_load_n(const float *p, int n)
{
    return _mm256_maskload_ps(p, lanes_below(n));
}
OP void vf_store_n(float *p, vf x, int n)
{
    _mm256_maskstore_ps(p, lanes_below(n), x);
}

OP __m128i load8(const unsigned char *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}
OP __m128i load16(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
OP vf cvt_s8(const unsigned char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(load8(p)));
}
OP vf cvt_u8(const unsigned char *p)
{
    return _mm256_cvtepi32_ps(_mm256_cvtepu8_epi32(load8(p)));
}
OP vf cvt_f16(const unsigned char *p)
{
    return _mm256_cvtph_ps(load16(p));
}
OP vf cvt_bf16(const unsigned char *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(load16(p)), 16));
}
/* f8_e5m2 is the upper half of an f16. */
OP vf cvt_f8_e5m2(const unsigned char *p)
{
    return _mm256_cvtph_ps(_mm_slli_epi16(_mm_cvtepu8_epi16(load8(p)), 8));
}
/* f8_e4m3 one bit lower in an f16 is 2^-8 of its value; 0x7f there is made the f16 NaN. */
OP vf cvt_f8_e4m3(const unsigned char *p)
{
    const __m128i x = _mm_cvtepu8_epi16(load8(p)), magnitude = _mm_and_si128(x, _mm_set1_epi16(0x7f));
    const __m128i nan = _mm_and_si128(_mm_cmpeq_epi16(magnitude, _mm_set1_epi16(0x7f)), _mm_set1_epi16(0x7e00));
    const __m128i sign = _mm_slli_epi16(_mm_and_si128(x, _mm_set1_epi16(0x80)), 8);
    return _mm256_mul_ps(_mm256_cvtph_ps(_mm_or_si128(_mm_or_si128(_mm_slli_epi16(magnitude, 7), nan), sign)), _mm256_set1_ps(256));
}
/* clang-format on */
/* Bytes become byte pairs (low nibble, high nibble), then dwords; permutes see the low three bits of those, bit 3 picks the table half. */
OP vf cvt_nibbles(const unsigned char *p, const float *lut)
{
    int four;
    memcpy(&four, p, sizeof four);
    const __m128i x = _mm_cvtepu8_epi16(_mm_cvtsi32_si128(four));
    const __m256i code = _mm256_cvtepu8_epi32(_mm_or_si128(x, _mm_slli_epi16(x, 4)));
    const vf low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(lut), code), high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(lut + 8), code);
    return _mm256_blendv_ps(low, high, _mm256_castsi256_ps(_mm256_slli_epi32(code, 28)));
}

OP void transpose8(const float *src, int64_t lds, float *dst, int64_t ldd)
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

TARGET static void transpose(const float *src, int64_t lds, int rows, int cols, float *dst, int64_t ldd)
{
    const int whole = cols & ~7;
    int r = 0;
    for (; r + 8 <= rows; r += 8) {
        for (int c = 0; c < whole; c += 8) {
            transpose8(src + r * lds + c, lds, dst + c * ldd + r, ldd);
        }
    }
    tile_transpose_c(src + whole, lds, r, cols - whole, dst + whole * ldd, ldd);
    tile_transpose_c(src + r * lds, lds, rows - r, cols, dst + r, ldd);
}

#include "tile_simd.inc"

const tile_table_t tile_table_avx2 = {load, gemm, tile_bf16_rows_c, tile_bf16_pairs_c, transpose};

#endif
