/* Vectors of floats with AVX2, FMA and F16C: what the .inc files of this room are written in.
 * For x86-64 files of this ISA only. */
#ifndef SINTER_SRC_SIMD_AVX2_H
#define SINTER_SRC_SIMD_AVX2_H

#include <immintrin.h>

#define TARGET __attribute__((target("avx2,fma,f16c")))
#define OP TARGET static inline __attribute__((always_inline))
enum { LANES = 8 };
typedef __m256 vf;

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
OP vf vf_add(vf a, vf b)
{
    return _mm256_add_ps(a, b);
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

#endif
