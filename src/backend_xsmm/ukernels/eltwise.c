/* Choice of the elementwise table, and the ops in double. */
#include "backend_xsmm/ukernels/eltwise.h"

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "numeric/dtype.h"

#define INLINE static inline __attribute__((always_inline))

void eltwise_load(const eltwise_table_t *fn, sinter_data_type_t type, const unsigned char *base,
                  int64_t first, int64_t stride, int n, float *dst)
{
    if (stride == 1) {
        dtype_bulk(type, fn->needs)->load(base, first, n, dst);
    } else {
        dtype_traits(type)->codec.load_f32(base, first, stride, n, dst);
    }
}

void eltwise_store(const eltwise_table_t *fn, sinter_data_type_t type, unsigned char *base,
                   int64_t first, int64_t stride, int n, const float *src)
{
    if (stride == 1) {
        dtype_bulk(type, fn->needs)->store(base, first, n, src);
    } else {
        dtype_traits(type)->codec.store_f32(base, first, stride, n, src);
    }
}

/* ---- double ---------------------------------------------------------------------------------- */

static double softplus(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}

static double sigmoid(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}

static double unit_clamp(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}

/* As in eltwise.inc. */
static double not_inf_below(double x)
{
    return x < -DBL_MAX ? -DBL_MAX : x;
}

static double gelu(double x, bool by_tanh)
{
    const double v = by_tanh ? sigmoid(1.59576912160573071176 * x * (1 + 0.044715 * x * x))
                             : 0.5 * erfc(-x * 0.70710678118654752440);
    return not_inf_below(x) * v;
}

/* As in eltwise.inc, in double. */
#define ELTWISE(name, operands, attributes, f32, f64)                          \
    INLINE double name##_f64(double x, double y, double z, double u, double v) \
    {                                                                          \
        (void)x, (void)y, (void)z, (void)u, (void)v;                           \
        return f64;                                                            \
    }
#include "backend_xsmm/ukernels/eltwise.def"

INLINE void each(double (*f)(double, double, double, double, double), int operands, double *dst,
                 const double *a, const double *b, const double *c, int n, const double *p)
{
    const double u = p[0], v = p[1];
    for (int i = 0; i < n; i++) {
        dst[i] = f(a[i], operands > 1 ? b[i] : 0, operands > 2 ? c[i] : 0, u, v);
    }
}

static const double no_attributes[2];

#define ELTWISE(name, operands, attributes, f32, f64)                                            \
    static void name##_op(double *dst, const double *a, const double *b, const double *c, int n, \
                          const double *p)                                                       \
    {                                                                                            \
        each(name##_f64, operands, dst, a, b, c, n, (attributes) > 0 ? p : no_attributes);       \
    }
#include "backend_xsmm/ukernels/eltwise.def"

const eltwise_f64_fn_t eltwise_f64[ELTWISE_KINDS] = {
#define ELTWISE(name, ...) [OP_SLOT(sinter_op_##name)] = name##_op,
#include "backend_xsmm/ukernels/eltwise.def"
};
