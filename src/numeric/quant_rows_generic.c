/* Computed quantisation in portable C, and the choice of the table: vectors are small arrays,
 * which the compiler may put into registers. */
#include "numeric/quant_rows.h"

#include <math.h>
#include <string.h>

#define TARGET
#define OP static inline __attribute__((always_inline))
enum { LANES = 4 };
typedef struct vf {
    float f[LANES];
} vf;
typedef struct vi {
    int32_t i[LANES];
} vi;

#define LANE for (int k = 0; k < LANES; k++)
#define OP_2(type, name, field, expr) \
    OP type name(type a, type b)      \
    {                                 \
        type r;                       \
        LANE                          \
        {                             \
            r.field[k] = (expr);      \
        }                             \
        return r;                     \
    }
OP_2(vi, vi_and, i, a.i[k] & b.i[k])
OP_2(vi, vi_xor, i, a.i[k] ^ b.i[k])
OP_2(vi, vi_max, i, a.i[k] > b.i[k] ? a.i[k] : b.i[k])
OP_2(vf, vf_add, f, a.f[k] + b.f[k])
OP_2(vf, vf_sub, f, a.f[k] - b.f[k])
OP_2(vf, vf_mul, f, a.f[k] * b.f[k])
OP_2(vf, vf_div, f, a.f[k] / b.f[k])
OP_2(vf, vf_max, f, a.f[k] > b.f[k] ? a.f[k] : b.f[k])

OP vf vf_load_n(const float *p, int n)
{
    vf x = {{0}};
    memcpy(&x, p, (size_t)n * sizeof *p);
    return x;
}
OP void vf_store_n(float *p, vf x, int n)
{
    memcpy(p, &x, (size_t)n * sizeof *p);
}
OP vf vf_load(const float *p)
{
    return vf_load_n(p, LANES);
}
OP void vf_store(float *p, vf x)
{
    vf_store_n(p, x, LANES);
}
OP vi vi_load(const int32_t *p)
{
    vi x;
    memcpy(&x, p, sizeof x);
    return x;
}
OP void vi_store(int32_t *p, vi x)
{
    memcpy(p, &x, sizeof x);
}
OP vi vi_of(vf x)
{
    vi y;
    memcpy(&y, &x, sizeof y);
    return y;
}
OP vi vi_set1(int32_t x)
{
    return (vi){{x, x, x, x}};
}
OP vf vf_set1(float x)
{
    return (vf){{x, x, x, x}};
}
OP vf vf_round(vf x)
{
    LANE
    {
        x.f[k] = rintf(x.f[k]);
    }
    return x;
}
OP vi vi_max_each(const vi *v)
{
    vi r = vi_set1(INT32_MIN);
    for (int j = 0; j < LANES; j++) {
        LANE
        {
            r.i[k] = v[k].i[j] > r.i[k] ? v[k].i[j] : r.i[k];
        }
    }
    return r;
}
OP void stream_line(unsigned char *to, const unsigned char *from)
{
    memcpy(to, from, 64);
}
static void stream_end(void)
{
}

#define QUANT_ROWS quant_rows_generic
#include "numeric/quant_loops.h"

const quant_rows_t *quant_rows(features_t features)
{
#if defined(__x86_64__)
    if (has_features(features, NEEDS_AVX512)) {
        return &quant_rows_avx512;
    }
    if (has_features(features, NEEDS_AVX2)) {
        return &quant_rows_avx2;
    }
#endif
    (void)features;
    return &quant_rows_generic;
}
