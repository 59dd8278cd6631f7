/* Bulk conversions with AVX-512 F, BW, DQ and VL. */
#include "numeric/dtype_bulk.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define OP TARGET static inline __attribute__((always_inline))
enum { LANES = 16 };
typedef __m512 vf;
typedef uint32_t vu __attribute__((vector_size(64)));
typedef __mmask16 vm;

OP __mmask16 below(int64_t n)
{
    return (__mmask16)((1u << n) - 1);
}
OP vf vf_load(const void *p)
{
    return _mm512_loadu_ps(p);
}
OP void vf_store(void *p, vf x)
{
    _mm512_storeu_ps(p, x);
}
OP void vf_stream(void *p, vf x)
{
    _mm512_stream_ps(p, x);
}
OP vf vf_load_n(const void *p, int64_t n)
{
    return _mm512_maskz_loadu_ps(below(n), p);
}
/* Half h of a vector that has two. */
OP __m256 vf_half(vf x, int h)
{
    return h == 0 ? _mm512_castps512_ps256(x) : _mm512_extractf32x8_ps(x, 1);
}
OP __m128i bytes_load_n(const unsigned char *p, int64_t n)
{
    return _mm_maskz_loadu_epi8(below(n), p);
}
OP void bytes_store_n(unsigned char *p, __m128i x, int64_t n)
{
    _mm_mask_storeu_epi8(p, below(n), x);
}
OP __m256i words_load_n(const unsigned char *p, int64_t n)
{
    return _mm256_maskz_loadu_epi16(below(n), p);
}
OP void words_store_n(unsigned char *p, __m256i x, int64_t n)
{
    _mm256_mask_storeu_epi16(p, below(n), x);
}

OP vf vf_set1(float x)
{
    return _mm512_set1_ps(x);
}
OP vf vf_clamp(vf x, float low, float high)
{
    return _mm512_min_ps(_mm512_max_ps(x, _mm512_set1_ps(low)), _mm512_set1_ps(high));
}
/* min(|x|, high) */
OP vf vf_magnitude(vf x, float high)
{
    return _mm512_range_ps(x, _mm512_set1_ps(high), 0xA);
}
OP vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
OP vm vf_ordered(vf x)
{
    return _mm512_cmp_ps_mask(x, x, _CMP_ORD_Q);
}
OP vm vf_ge(vf a, vf b)
{
    return _mm512_cmp_ps_mask(a, b, _CMP_GE_OQ);
}
OP vm vu_gt(vu a, vu b)
{
    return _mm512_cmpgt_epi32_mask((__m512i)a, (__m512i)b);
}
OP vm vu_eq(vu a, vu b)
{
    return _mm512_cmpeq_epi32_mask((__m512i)a, (__m512i)b);
}
OP vu vu_select(vm m, vu a, vu b)
{
    return (vu)_mm512_mask_mov_epi32((__m512i)b, m, (__m512i)a);
}
/* Bits of a where mask has ones, else of b. */
OP vu vu_merge(uint32_t mask, vu a, vu b)
{
    return (vu)_mm512_ternarylogic_epi32((__m512i)a, (__m512i)b, _mm512_set1_epi32((int)mask),
                                         0xE4);
}
OP vu vu_max(vu a, vu b)
{
    return (vu)_mm512_max_epu32((__m512i)a, (__m512i)b);
}
OP vu vu_min(vu a, vu b)
{
    return (vu)_mm512_min_epu32((__m512i)a, (__m512i)b);
}
OP vf vf_of_int(vu x)
{
    return _mm512_cvtepi32_ps((__m512i)x);
}
OP vu vf_to_int(vf x)
{
    return (vu)_mm512_cvtps_epi32(x);
}
OP vf lut16(vu index, const float *values)
{
    return _mm512_permutexvar_ps((__m512i)index, _mm512_loadu_ps(values));
}
/* Vector h of a block. */
OP vu widen_8(__m128i codes, int h)
{
    (void)h;
    return (vu)_mm512_cvtepu8_epi32(codes);
}
OP vu widen_s8(__m128i codes, int h)
{
    (void)h;
    return (vu)_mm512_cvtepi8_epi32(codes);
}
/* To the upper halves. */
OP vu widen_high(__m256i codes, int h)
{
    (void)h;
    const __m512i low = _mm512_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15);
    return (vu)_mm512_maskz_permutexvar_epi16(0xAAAAAAAA, _mm512_slli_epi32(low, 16),
                                              _mm512_castsi256_si512(codes));
}
OP vf vf_of_f16(__m256i codes, int h)
{
    (void)h;
    return _mm512_cvtph_ps(codes);
}

/* All vectors of a block, of codes without bits above the low 8 or 16. */
OP __m128i narrow_8(const vu *x)
{
    return _mm512_cvtepi32_epi8((__m512i)x[0]);
}
OP __m256i narrow_16(const vu *x)
{
    return _mm512_cvtepi32_epi16((__m512i)x[0]);
}
/* The upper 16 bits of each. */
OP __m256i narrow_high(const vu *x)
{
    const __m256i odd =
        _mm256_setr_epi16(1, 3, 5, 7, 9, 11, 13, 15, 17, 19, 21, 23, 25, 27, 29, 31);
    return _mm512_castsi512_si256(
        _mm512_permutexvar_epi16(_mm512_castsi256_si512(odd), (__m512i)x[0]));
}
OP __m256i f16_of_vf(const vf *x)
{
    return _mm512_cvtps_ph(x[0], _MM_FROUND_TO_NEAREST_INT);
}

/* Codes of six bits by their magnitudes. */
#define SIXES
static const float magnitudes_f6_e3m2[32] = {
    0.0f,   0.0625f, 0.125f, 0.1875f, 0.25f, 0.3125f, 0.375f, 0.4375f, 0.5f,  0.625f, 0.75f,
    0.875f, 1.0f,    1.25f,  1.5f,    1.75f, 2.0f,    2.5f,   3.0f,    3.5f,  4.0f,   5.0f,
    6.0f,   7.0f,    8.0f,   10.0f,   12.0f, 14.0f,   16.0f,  20.0f,   24.0f, 28.0f};
static const float magnitudes_f6_e2m3[32] = {
    0.0f,   0.125f, 0.25f,  0.375f, 0.5f,   0.625f, 0.75f, 0.875f, 1.0f,  1.125f, 1.25f,
    1.375f, 1.5f,   1.625f, 1.75f,  1.875f, 2.0f,   2.25f, 2.5f,   2.75f, 3.0f,   3.25f,
    3.5f,   3.75f,  4.0f,   4.5f,   5.0f,   5.5f,   6.0f,  6.5f,   7.0f,  7.5f};
OP vf six_to_vf(vu code, const float *magnitudes)
{
    const __m512 magnitude = _mm512_permutex2var_ps(_mm512_loadu_ps(magnitudes), (__m512i)code,
                                                    _mm512_loadu_ps(magnitudes + 16));
    return (vf)((vu)magnitude | (code << 26 & 0x80000000));
}

#define PAIRS
#define BLOCKS
#define BULK_TABLE dtype_bulk_avx512
#include "numeric/dtype_bulk_simd.inc"

#endif
