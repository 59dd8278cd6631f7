/* Computed quantisation with AVX-512 F, BW, DQ and VL. */
#include "numeric/quant_rows.h"

#if defined(__x86_64__)

#include "numeric/simd_avx512.h"

#include "numeric/max_each_avx512.h"

typedef __m512i vi;

/* clang-format off: a table of one-liners */
OP vi vi_load(const int32_t *p)
{
    return _mm512_loadu_si512(p);
}
OP void vi_store(int32_t *p, vi x)
{
    _mm512_storeu_si512(p, x);
}
OP vi vi_of(vf x)
{
    return _mm512_castps_si512(x);
}
OP vi vi_set1(int32_t x)
{
    return _mm512_set1_epi32(x);
}
OP vi vi_and(vi a, vi b)
{
    return _mm512_and_si512(a, b);
}
OP vi vi_xor(vi a, vi b)
{
    return _mm512_xor_si512(a, b);
}
OP vi vi_max(vi a, vi b)
{
    return _mm512_max_epi32(a, b);
}
OP vf vf_div(vf a, vf b)
{
    return _mm512_div_ps(a, b);
}
OP vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}
OP vf vf_round(vf x)
{
    return _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
}
#define LOADS_16
OP vf vf_load_f16(const uint16_t *p)
{
    return _mm512_cvtph_ps(_mm256_loadu_si256((const __m256i *)(const void *)p));
}
OP vf vf_load_bf16(const uint16_t *p)
{
    return _mm512_castsi512_ps(_mm512_slli_epi32(
        _mm512_cvtepu16_epi32(_mm256_loadu_si256((const __m256i *)(const void *)p)), 16));
}
/* clang-format on */

#define vi_max_each max_each_epi32

OP void stream_line(unsigned char *to, const unsigned char *from)
{
    _mm512_stream_si512((__m512i *)(void *)to, _mm512_loadu_si512(from));
}
static void stream_end(void)
{
    _mm_sfence();
}

#define QUANT_ROWS quant_rows_avx512
#include "numeric/quant_rows.inc"

#endif
