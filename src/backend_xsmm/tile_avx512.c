/* Tile functions with AVX-512 F, BW, DQ and VL. */
#include "tile_isa.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define OP TARGET static inline __attribute__((always_inline))
enum { LANES = 16, GEMM_NV = 4 };
#define LEVEL sinter_isa_avx512
typedef __m512 vf;

/* clang-format off: a table of one-liners */
OP vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}
OP void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
OP vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
OP vf vf_sub(vf a, vf b)
{
    return _mm512_sub_ps(a, b);
}
OP vf vf_mul(vf a, vf b)
{
    return _mm512_mul_ps(a, b);
}
OP vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}
OP __mmask16 lanes_below(int n)
{
    return (__mmask16)((1u << n) - 1);
}
OP vf vf_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(lanes_below(n), p);
}
OP void vf_store_n(float *p, vf x, int n)
{
    _mm512_mask_storeu_ps(p, lanes_below(n), x);
}

OP __m128i load8(const unsigned char *p)
{
    return _mm_loadl_epi64((const __m128i *)(const void *)p);
}
OP __m128i load16(const unsigned char *p)
{
    return _mm_loadu_si128((const __m128i *)(const void *)p);
}
OP __m256i load32(const unsigned char *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
OP vf cvt_s8(const unsigned char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(load16(p)));
}
OP vf cvt_u8(const unsigned char *p)
{
    return _mm512_cvtepi32_ps(_mm512_cvtepu8_epi32(load16(p)));
}
OP vf cvt_f16(const unsigned char *p)
{
    return _mm512_cvtph_ps(load32(p));
}
OP vf cvt_bf16(const unsigned char *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(load32(p)), 16));
}
/* f8_e5m2 is the upper half of an f16. */
OP vf cvt_f8_e5m2(const unsigned char *p)
{
    return _mm512_cvtph_ps(_mm256_slli_epi16(_mm256_cvtepu8_epi16(load16(p)), 8));
}
/* f8_e4m3 one bit lower in an f16 is 2^-8 of its value; 0x7f there is made the f16 NaN. */
OP vf cvt_f8_e4m3(const unsigned char *p)
{
    const __m256i x = _mm256_cvtepu8_epi16(load16(p)), magnitude = _mm256_and_si256(x, _mm256_set1_epi16(0x7f));
    const __m256i nan = _mm256_and_si256(_mm256_cmpeq_epi16(magnitude, _mm256_set1_epi16(0x7f)), _mm256_set1_epi16(0x7e00));
    const __m256i sign = _mm256_slli_epi16(_mm256_and_si256(x, _mm256_set1_epi16(0x80)), 8);
    return _mm512_mul_ps(_mm512_cvtph_ps(_mm256_or_si256(_mm256_or_si256(_mm256_slli_epi16(magnitude, 7), nan), sign)),
                         _mm512_set1_ps(256));
}
/* clang-format on */
/* Bytes become byte pairs (low nibble, high nibble), then dwords, of which the permute sees the low four bits. */
OP vf cvt_nibbles(const unsigned char *p, const float *lut)
{
    const __m128i x = _mm_cvtepu8_epi16(load8(p));
    return _mm512_permutexvar_ps(_mm512_cvtepu8_epi32(_mm_or_si128(x, _mm_slli_epi16(x, 4))), _mm512_loadu_ps(lut));
}

OP void transpose16(const float *src, int64_t lds, float *dst, int64_t ldd)
{
    __m512 r[16], t[16];
    for (int i = 0; i < 16; i++) {
        r[i] = _mm512_loadu_ps(src + i * lds);
    }
    for (int i = 0; i < 16; i += 2) {
        t[i] = _mm512_unpacklo_ps(r[i], r[i + 1]);
        t[i + 1] = _mm512_unpackhi_ps(r[i], r[i + 1]);
    }
    for (int i = 0; i < 16; i += 4) { /* r[4q + j]: column 4b + j of rows 4q..4q+3, in 128-bit lane b */
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

TARGET static void transpose(const float *src, int64_t lds, int rows, int cols, float *dst, int64_t ldd)
{
    const int whole = cols & ~15;
    int r = 0;
    for (; r + 16 <= rows; r += 16) {
        for (int c = 0; c < whole; c += 16) {
            transpose16(src + r * lds + c, lds, dst + c * ldd + r, ldd);
        }
    }
    tile_transpose_c(src + whole, lds, r, cols - whole, dst + whole * ldd, ldd);
    tile_transpose_c(src + r * lds, lds, rows - r, cols, dst + r, ldd);
}

/* bf16 of each lane in its upper half; the lower half is left over. */
OP __m512i round_bf16(__m512 x)
{
    const __m512i u = _mm512_castps_si512(x), odd = _mm512_and_si512(_mm512_srli_epi32(u, 16), _mm512_set1_epi32(1));
    const __m512i rounded = _mm512_add_epi32(u, _mm512_add_epi32(odd, _mm512_set1_epi32(0x7fff)));
    return _mm512_mask_or_epi32(rounded, _mm512_cmp_ps_mask(x, x, _CMP_UNORD_Q), u, _mm512_set1_epi32(0x400000));
}

TARGET static void bf16_rows(const float *src, int64_t ld, int rows, int cols, uint16_t *dst, int64_t ldd)
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

TARGET static void bf16_pairs(const float *src, int64_t ld, int rows, int cols, uint16_t *dst, int64_t ldd)
{
    const int whole = cols & ~15;
    for (int r = 0; r < rows; r += 2) {
        const float *even = src + r * ld, *odd = even + ld;
        for (int c = 0; c < whole; c += 16) {
            const __m512i low = _mm512_srli_epi32(round_bf16(_mm512_loadu_ps(even + c)), 16), high = round_bf16(_mm512_loadu_ps(odd + c));
            const __m512i pair = _mm512_or_si512(low, _mm512_and_si512(high, _mm512_set1_epi32((int)0xffff0000u)));
            _mm512_storeu_si512(dst + r / 2 * ldd * 2 + c * 2, pair);
        }
    }
    tile_bf16_pairs_c(src + whole, ld, rows, cols - whole, dst + whole * 2, ldd);
}

#include "tile_simd.inc"

const tile_table_t tile_table_avx512 = {load, gemm, bf16_rows, bf16_pairs, transpose};

#endif
