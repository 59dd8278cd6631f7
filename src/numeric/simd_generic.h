/* The part of the vocabulary of simd_avx512.h that loops in portable C need, in vectors that GCC
 * and clang make from what the machine has. */
#ifndef SINTER_SRC_NUMERIC_SIMD_GENERIC_H
#define SINTER_SRC_NUMERIC_SIMD_GENERIC_H

#include <math.h>
#include <stdint.h>
#include <string.h>

#include "numeric/unroll.h"

#define TARGET
#define OP static inline __attribute__((always_inline))
enum { LANES = 4 };
typedef float vf __attribute__((vector_size(16)));
typedef int32_t vi __attribute__((vector_size(16)));
typedef uint32_t vu __attribute__((vector_size(16)));
typedef double vd __attribute__((vector_size(16)));
typedef vi vm;

OP vf vf_load_n(const void *p, int64_t n)
{
    vf x = {0};
    memcpy(&x, p, (size_t)n * sizeof(float));
    return x;
}
OP void vf_store_n(void *p, vf x, int64_t n)
{
    memcpy(p, &x, (size_t)n * sizeof(float));
}
OP vf vf_load(const void *p)
{
    return vf_load_n(p, LANES);
}
OP void vf_store(void *p, vf x)
{
    vf_store_n(p, x, LANES);
}
OP vi vi_load(const void *p)
{
    return (vi)vf_load(p);
}
OP void vi_store(void *p, vi x)
{
    vf_store(p, (vf)x);
}
OP void stream_line(void *to, const void *from)
{
    memcpy(to, from, 64);
}
OP void stream_end(void)
{
}

OP vf vf_set1(float x)
{
    return (vf){x, x, x, x};
}
OP vi vi_set1(int32_t x)
{
    return (vi){x, x, x, x};
}
OP vu vu_set1(uint32_t x)
{
    return (vu){x, x, x, x};
}
OP vi vi_of(vf x)
{
    return (vi)x;
}
OP vm vu_gt(vu a, vu b)
{
    return (vi)a > (vi)b;
}
OP vm vu_eq(vu a, vu b)
{
    return a == b;
}
OP vu vu_select(vm m, vu a, vu b)
{
    return (a & (vu)m) | (b & ~(vu)m);
}
OP vu vu_max(vu a, vu b)
{
    return vu_select(a > b, a, b);
}
OP vi vi_max(vi a, vi b)
{
    return (vi)vu_select(a > b, (vu)a, (vu)b);
}
OP vf vf_max(vf a, vf b)
{
    return (vf)vu_select(a > b, (vu)a, (vu)b);
}
OP vf vf_min(vf a, vf b)
{
    return (vf)vu_select(a < b, (vu)a, (vu)b);
}
OP vf vf_round(vf x)
{
    return (vf){rintf(x[0]), rintf(x[1]), rintf(x[2]), rintf(x[3])};
}
OP vf vf_quotient(vf x, vf by, vf inverse)
{
    (void)inverse;
    return x / by;
}

OP vd vd_set1(double x)
{
    return (vd){x, x};
}
OP vd vd_of(vf x, int h)
{
    return (vd){(double)x[2 * h], (double)x[2 * h + 1]};
}
OP vf vf_of_vd(vd low, vd high)
{
    return (vf){(float)low[0], (float)low[1], (float)high[0], (float)high[1]};
}
/* A product of floats is exact in double, and what f32 cannot hold of it may still cancel. */
OP vf vf_fma(vf a, vf b, vf c)
{
    return vf_of_vd(vd_of(a, 0) * vd_of(b, 0) + vd_of(c, 0),
                    vd_of(a, 1) * vd_of(b, 1) + vd_of(c, 1));
}
OP vd vd_min(vd a, vd b)
{
    return (vd){a[0] < b[0] ? a[0] : b[0], a[1] < b[1] ? a[1] : b[1]};
}
OP vd vd_quotient(vd x, vd by, vd inverse)
{
    (void)inverse;
    return x / by;
}

OP vi vi_max_each(const vi *v)
{
    const vi a = {v[0][0], v[1][0], v[2][0], v[3][0]}, b = {v[0][1], v[1][1], v[2][1], v[3][1]};
    const vi c = {v[0][2], v[1][2], v[2][2], v[3][2]}, d = {v[0][3], v[1][3], v[2][3], v[3][3]};
    return vi_max(vi_max(a, b), vi_max(c, d));
}

#endif
