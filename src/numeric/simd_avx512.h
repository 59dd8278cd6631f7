/* Vectors of floats with AVX-512 F, BW, DQ and VL: what the .inc files of this room are written
 * in. For x86-64 files of this ISA only. */
#ifndef SINTER_SRC_SIMD_AVX512_H
#define SINTER_SRC_SIMD_AVX512_H

#include <immintrin.h>

#define TARGET __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx2,fma,f16c")))
#define OP TARGET static inline __attribute__((always_inline))
enum { LANES = 16 };
typedef __m512 vf;

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
OP vf vf_add(vf a, vf b)
{
    return _mm512_add_ps(a, b);
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
    return (__mmask16)(n >= 16 ? 0xffff : n <= 0 ? 0 : (1u << n) - 1);
}
OP vf vf_load_n(const float *p, int n)
{
    return _mm512_maskz_loadu_ps(lanes_below(n), p);
}
OP void vf_store_n(float *p, vf x, int n)
{
    _mm512_mask_storeu_ps(p, lanes_below(n), x);
}

#endif
