/* Choice of the elementwise table, and the ops in double. */
#include "backend_xsmm/ukernels/eltwise.h"

#include <math.h>
#include <stdbool.h>
#include <stddef.h>

#include "numeric/dtype.h"

const eltwise_table_t *eltwise_table(features_t features)
{
#if defined(__x86_64__)
    if (has_features(features, NEEDS_AVX512)) {
        return &eltwise_table_avx512;
    }
    if (has_features(features, NEEDS_AVX2)) {
        return &eltwise_table_avx2;
    }
#endif
    (void)features;
    return &eltwise_table_generic;
}

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

static double softplus_f64(double x)
{
    return x > 0 ? x + log1p(exp(-x)) : log1p(exp(x));
}
static double sigmoid_f64(double x)
{
    const double e = exp(-fabs(x));
    return (x < 0 ? e : 1) / (1 + e);
}
static double unit_clamp(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}
static double gelu_f64(double x, bool by_tanh)
{
    return by_tanh ? x * sigmoid_f64(1.59576912160573071176 * x * (1 + 0.044715 * x * x))
                   : 0.5 * x * erfc(-x * 0.70710678118654752440);
}

/* x, y, z: the operands; p: attributes. */
#define OP_F64(name, expr)                                                                       \
    static void name##_op(double *dst, const double *a, const double *b, const double *c, int n, \
                          const double *p)                                                       \
    {                                                                                            \
        (void)a, (void)b, (void)c, (void)p;                                                      \
        for (int i = 0; i < n; i++) {                                                            \
            dst[i] = (expr);                                                                     \
        }                                                                                        \
    }
#define x a[i]
#define y b[i]
#define z c[i]

OP_F64(abs, fabs(x))
OP_F64(exp, exp(x))
OP_F64(log, log(x))
OP_F64(sqrt, sqrt(x))
OP_F64(square, x *x)
OP_F64(reciprocal, 1 / x)
OP_F64(relu, x < 0 ? 0 : x)
OP_F64(round, rint(x))
OP_F64(tanh, tanh(x))
OP_F64(sigmoid, sigmoid_f64(x))
OP_F64(mish, x *tanh(softplus_f64(x)))
OP_F64(gelu, gelu_f64(x, p[0] != 0))
OP_F64(hard_swish, x *unit_clamp(x / 6 + 0.5))
OP_F64(hard_sigmoid, unit_clamp(p[0] * x + p[1]))
OP_F64(leaky_relu, x < 0 ? p[0] * x : x)
OP_F64(elu, x < 0 ? p[0] * expm1(x) : x)
OP_F64(softplus, softplus_f64(p[0] * x) / p[0])
OP_F64(clamp, x<p[0] ? p[0] : x> p[1] ? p[1] : x)
OP_F64(pow, pow(x, p[0]))
OP_F64(add, x + y)
OP_F64(subtract, x - y)
OP_F64(multiply, x *y)
OP_F64(divide, x / y)
OP_F64(squared_difference, (x - y) * (x - y))
OP_F64(prelu, x < 0 ? x * y : x)
OP_F64(greater_equal, x >= y)
OP_F64(maximum, x > y || isnan(x) ? x : y)
OP_F64(minimum, x < y || isnan(x) ? x : y)
OP_F64(select, x != 0 ? y : z)

#undef x
#undef y
#undef z

const eltwise_f64_fn_t eltwise_f64[ELTWISE_KINDS] = {
#define ROW(name) [sinter_op_##name] = name##_op
    ROW(abs),        ROW(add),           ROW(clamp),
    ROW(divide),     ROW(elu),           ROW(exp),
    ROW(gelu),       ROW(greater_equal), ROW(hard_sigmoid),
    ROW(hard_swish), ROW(leaky_relu),    ROW(log),
    ROW(maximum),    ROW(minimum),       ROW(mish),
    ROW(multiply),   ROW(pow),           ROW(prelu),
    ROW(reciprocal), ROW(relu),          ROW(round),
    ROW(select),     ROW(sigmoid),       ROW(softplus),
    ROW(sqrt),       ROW(square),        ROW(squared_difference),
    ROW(subtract),   ROW(tanh),          [sinter_op_bias_add] = add_op,
#undef ROW
};
