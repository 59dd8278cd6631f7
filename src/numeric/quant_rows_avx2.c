/* Computed quantisation with AVX2. */
#include "numeric/quant_rows.h"

#if defined(__x86_64__)

#include "numeric/simd_avx2.h"

typedef __m256i vi;

/* clang-format off: a table of one-liners */
OP vi vi_load(const int32_t *p)
{
    return _mm256_loadu_si256((const __m256i *)(const void *)p);
}
OP void vi_store(int32_t *p, vi x)
{
    _mm256_storeu_si256((__m256i *)(void *)p, x);
}
OP vi vi_of(vf x)
{
    return _mm256_castps_si256(x);
}
OP vi vi_set1(int32_t x)
{
    return _mm256_set1_epi32(x);
}
OP vi vi_and(vi a, vi b)
{
    return _mm256_and_si256(a, b);
}
OP vi vi_xor(vi a, vi b)
{
    return _mm256_xor_si256(a, b);
}
OP vi vi_max(vi a, vi b)
{
    return _mm256_max_epi32(a, b);
}
OP vf vf_div(vf a, vf b)
{
    return _mm256_div_ps(a, b);
}
OP vf vf_max(vf a, vf b)
{
    return _mm256_max_ps(a, b);
}
OP vf vf_round(vf x)
{
    return _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#define LOADS_16
OP vf vf_load_f16(const uint16_t *p)
{
    return _mm256_cvtph_ps(_mm_loadu_si128((const __m128i *)(const void *)p));
}
OP vf vf_load_bf16(const uint16_t *p)
{
    return _mm256_castsi256_ps(_mm256_slli_epi32(
        _mm256_cvtepu16_epi32(_mm_loadu_si128((const __m128i *)(const void *)p)), 16));
}
/* clang-format on */

/* A tree: each level folds two vectors into one that holds half as many lanes of each. */
OP vi vi_max_each(const vi *v)
{
    vi a[4];
    for (int i = 0; i < 4; i++) { /* 128-bit lanes of v[i], v[i + 4] */
        a[i] = vi_max(_mm256_permute2x128_si256(v[i], v[i + 4], 0x20),
                      _mm256_permute2x128_si256(v[i], v[i + 4], 0x31));
    }
    const vi even = vi_max(_mm256_unpacklo_epi32(a[0], a[1]), _mm256_unpackhi_epi32(a[0], a[1]));
    const vi odd = vi_max(_mm256_unpacklo_epi32(a[2], a[3]), _mm256_unpackhi_epi32(a[2], a[3]));
    return vi_max(_mm256_unpacklo_epi64(even, odd), _mm256_unpackhi_epi64(even, odd));
}

OP void stream_line(unsigned char *to, const unsigned char *from)
{
    const __m256i *p = (const __m256i *)(const void *)from;
    __m256i *q = (__m256i *)(void *)to;
    _mm256_stream_si256(q, _mm256_loadu_si256(p));
    _mm256_stream_si256(q + 1, _mm256_loadu_si256(p + 1));
}
static void stream_end(void)
{
    _mm_sfence();
}

#define QUANT_ROWS quant_rows_avx2
#include "numeric/quant_rows.inc"

#endif
