/* Bulk conversions with AVX2 and F16C. */
#include "numeric/dtype_bulk.h"

#if defined(__x86_64__)

#include <immintrin.h>
#include <string.h>

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define OP TARGET static inline __attribute__((always_inline))
enum { LANES = 8 };
typedef __m256 vf;
typedef uint32_t vu __attribute__((vector_size(32)));
typedef __m256i vm;

/* n below 0 counts as 0, above 8 as 8. */
OP __m256i below(int64_t n)
{
    return _mm256_cmpgt_epi32(_mm256_set1_epi32((int)n), _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7));
}
OP vf vf_load(const void *p)
{
    return _mm256_loadu_ps(p);
}
OP void vf_store(void *p, vf x)
{
    _mm256_storeu_ps(p, x);
}
OP void vf_stream(void *p, vf x)
{
    _mm256_stream_ps(p, x);
}
OP vf vf_load_n(const void *p, int64_t n)
{
    return _mm256_maskload_ps(p, below(n));
}
OP __m256 vf_half(vf x, int h)
{
    (void)h;
    return x;
}
/* n <= 8 bytes, in loads of at most three: a copy in memory could not be loaded as a vector at
 * once. */
static inline uint64_t short_load(const unsigned char *p, int64_t n)
{
    uint64_t all = 0;
    uint32_t low, high;
    if (n == 8) {
        memcpy(&all, p, sizeof all);
    } else if (n >= 4) { /* two that overlap */
        memcpy(&low, p, sizeof low);
        memcpy(&high, p + n - 4, sizeof high);
        all = low | (uint64_t)high << 8 * (n - 4);
    } else if (n > 0) {
        all = p[0] | (uint64_t)p[n / 2] << 8 * (n / 2) | (uint64_t)p[n - 1] << 8 * (n - 1);
    }
    return all;
}
OP __m128i bytes_load_n(const unsigned char *p, int64_t n)
{
    const int64_t low = n < 8 ? n : 8;
    return _mm_set_epi64x((long long)short_load(p + low, n - low), (long long)short_load(p, low));
}
OP void bytes_store_n(unsigned char *p, __m128i x, int64_t n)
{
    memcpy(p, &x, (size_t)n);
}
OP __m256i words_load_n(const unsigned char *p, int64_t n)
{
    const int64_t low = n < 8 ? n : 8;
    return _mm256_set_m128i(bytes_load_n(p + 2 * low, 2 * (n - low)), bytes_load_n(p, 2 * low));
}
OP void words_store_n(unsigned char *p, __m256i x, int64_t n)
{
    memcpy(p, &x, (size_t)n * 2);
}

OP vf vf_set1(float x)
{
    return _mm256_set1_ps(x);
}
OP vf vf_clamp(vf x, float low, float high)
{
    return _mm256_min_ps(_mm256_max_ps(x, _mm256_set1_ps(low)), _mm256_set1_ps(high));
}
/* min(|x|, high) */
OP vf vf_magnitude(vf x, float high)
{
    return _mm256_min_ps(_mm256_andnot_ps(_mm256_set1_ps(-0.0f), x), _mm256_set1_ps(high));
}
OP vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
OP vm vf_ordered(vf x)
{
    return _mm256_castps_si256(_mm256_cmp_ps(x, x, _CMP_ORD_Q));
}
OP vm vf_ge(vf a, vf b)
{
    return _mm256_castps_si256(_mm256_cmp_ps(a, b, _CMP_GE_OQ));
}
OP vm vu_gt(vu a, vu b)
{
    return _mm256_cmpgt_epi32((__m256i)a, (__m256i)b);
}
OP vm vu_eq(vu a, vu b)
{
    return _mm256_cmpeq_epi32((__m256i)a, (__m256i)b);
}
OP vu vu_select(vm m, vu a, vu b)
{
    return (vu)_mm256_blendv_epi8((__m256i)b, (__m256i)a, m);
}
/* Bits of a where mask has ones, else of b. */
OP vu vu_merge(uint32_t mask, vu a, vu b)
{
    return (a & mask) | (b & ~mask);
}
OP vu vu_max(vu a, vu b)
{
    return (vu)_mm256_max_epu32((__m256i)a, (__m256i)b);
}
OP vu vu_min(vu a, vu b)
{
    return (vu)_mm256_min_epu32((__m256i)a, (__m256i)b);
}
OP vf vf_of_int(vu x)
{
    return _mm256_cvtepi32_ps((__m256i)x);
}
OP vu vf_to_int(vf x)
{
    return (vu)_mm256_cvtps_epi32(x);
}
/* The permutes see the low three bits of the index, the blend bit 3. */
OP vf lut16(vu index, const float *values)
{
    const vf low = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values), (__m256i)index);
    const vf high = _mm256_permutevar8x32_ps(_mm256_loadu_ps(values + 8), (__m256i)index);
    return _mm256_blendv_ps(low, high, (vf)(index << 28));
}

/* Vector h of a block. */
OP vu widen_8(__m128i codes, int h)
{
    return (vu)_mm256_cvtepu8_epi32(h == 0 ? codes : _mm_unpackhi_epi64(codes, codes));
}
OP vu widen_s8(__m128i codes, int h)
{
    return (vu)_mm256_cvtepi8_epi32(h == 0 ? codes : _mm_unpackhi_epi64(codes, codes));
}
OP __m128i half_of(__m256i x, int h)
{
    return h == 0 ? _mm256_castsi256_si128(x) : _mm256_extracti128_si256(x, 1);
}
/* To the upper halves. */
OP vu widen_high(__m256i codes, int h)
{
    return (vu)_mm256_cvtepu16_epi32(half_of(codes, h)) << 16;
}
OP vf vf_of_f16(__m256i codes, int h)
{
    return _mm256_cvtph_ps(half_of(codes, h));
}

/* All vectors of a block, of codes without bits above the low 8 or 16. */
OP __m256i narrow_16(const vu *x)
{
    return _mm256_permute4x64_epi64(_mm256_packus_epi32((__m256i)x[0], (__m256i)x[1]), 0xD8);
}
OP __m128i narrow_8(const vu *x)
{
    const __m256i words = narrow_16(x);
    return _mm_packus_epi16(half_of(words, 0), half_of(words, 1));
}
/* The upper 16 bits of each. */
OP __m256i narrow_high(const vu *x)
{
    const vu high[2] = {x[0] >> 16, x[1] >> 16};
    return narrow_16(high);
}
OP __m256i f16_of_vf(const vf *x)
{
    return _mm256_set_m128i(_mm256_cvtps_ph(x[1], _MM_FROUND_TO_NEAREST_INT),
                            _mm256_cvtps_ph(x[0], _MM_FROUND_TO_NEAREST_INT));
}

#define BULK_TABLE dtype_bulk_avx2
#include "numeric/dtype_bulk_simd.inc"

#endif
