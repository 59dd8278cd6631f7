/* Binary ops, Select, BiasAdd, PReLU. Sums and products are rounded once, which rounding.c
 * accounts for; here bounds only travel. */
#include "internal.h"

static double larger(double a, double b)
{
    return a >= b ? a : b;
}

static void add_chunk(const orc_chunk_t *k)
{
    const double *a = k->v[0], *b = k->v[1];
    if (k->ob) {
        for (size_t i = 0; i < k->n; i++) {
            k->ob[i] = k->b[0][i] + k->b[1][i];
        }
    }
    for (size_t i = 0; i < k->n; i++) {
        k->ov[i] = a[i] + b[i];
    }
}

static void subtract_chunk(const orc_chunk_t *k)
{
    const double *a = k->v[0], *b = k->v[1];
    if (k->ob) {
        for (size_t i = 0; i < k->n; i++) {
            k->ob[i] = k->b[0][i] + k->b[1][i];
        }
    }
    for (size_t i = 0; i < k->n; i++) {
        k->ov[i] = a[i] - b[i];
    }
}

/* 0 if the error is 0, even where the factor is infinite. */
static double scaled(double error, double factor)
{
    return error == 0 ? 0 : error * fabs(factor);
}

/* An infinite factor, and another one that is certainly on one side of 0. */
static bool is_certain_infinity(double factor, double other, double bound)
{
    return isinf(factor) && fabs(other) > bound;
}

static void multiply_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double a = k->v[0][i], b = k->v[1][i], ab = k->b[0][i], bb = k->b[1][i];
        if (k->ob) {
            k->ob[i] = is_certain_infinity(a, b, bb) || is_certain_infinity(b, a, ab)
                           ? 0
                           : scaled(ab, b) + scaled(bb, a) + scaled(ab, bb);
        }
        k->ov[i] = a * b;
    }
}

/* a / b may be computed as a * (1 / b). */
static void divide_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double a = k->v[0][i], b = k->v[1][i], ab = k->b[0][i], bb = k->b[1][i], v = a / b;
        if (k->ob) {
            k->ob[i] = orc_is_pow2(b) || !isfinite(v) ? 0 : 2 * ORC_U * fabs(v);
            if ((ab > 0 || bb > 0) && !isnan(a) && !isnan(b) && !is_certain_infinity(a, b, bb)) {
                k->ob[i] += fabs(b) > bb ? (ab + scaled(bb, v)) / (fabs(b) - bb) : INFINITY;
            }
        }
        k->ov[i] = v;
    }
}

/* Integers: towards zero. Where the operands are not certain, the quotient lies between those of
 * their ends, if the divisor cannot be 0. */
static void divide_integers_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double a = k->v[0][i], b = k->v[1][i], ab = k->b[0][i], bb = k->b[1][i], v = trunc(a / b);
        if (k->ob) {
            double off = ab > 0 || bb > 0 ? INFINITY : 0;
            if (fabs(b) > bb) {
                off = larger(larger(orc_distance(trunc((a - ab) / (b - bb)), v),
                                    orc_distance(trunc((a - ab) / (b + bb)), v)),
                             larger(orc_distance(trunc((a + ab) / (b - bb)), v),
                                    orc_distance(trunc((a + ab) / (b + bb)), v)));
            }
            k->ob[i] = off;
        }
        k->ov[i] = v;
    }
}

/* NaN in either operand gives NaN. */
static void maximum_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double a = k->v[0][i], b = k->v[1][i], ab = k->b[0][i], bb = k->b[1][i];
        if (k->ob) {
            k->ob[i] = a - ab > b + bb ? ab : b - bb > a + ab ? bb : larger(ab, bb);
        }
        k->ov[i] = a > b || isnan(a) ? a : b;
    }
}

static void minimum_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double a = k->v[0][i], b = k->v[1][i], ab = k->b[0][i], bb = k->b[1][i];
        if (k->ob) {
            k->ob[i] = a + ab < b - bb ? ab : b + bb < a - ab ? bb : larger(ab, bb);
        }
        k->ov[i] = a < b || isnan(a) ? a : b;
    }
}

/* The difference is rounded before it is squared. */
static void squared_difference_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double d = k->v[0][i] - k->v[1][i];
        if (k->ob) {
            double db = k->b[0][i] + k->b[1][i];
            db += orc_f32_error(d, db);
            k->ob[i] = isinf(d) ? 0 : scaled(db, 2 * d) + db * db;
        }
        k->ov[i] = d * d;
    }
}

static void greater_equal_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double a = k->v[0][i], b = k->v[1][i], off = k->b[0][i] + k->b[1][i];
        if (k->ob) {
            k->ob[i] = off > 0 && orc_distance(a, b) <= off;
        }
        k->ov[i] = a >= b;
    }
}

static int binary(orc_ctx_t *c, orc_chunk_fn *fn, bool inexact)
{
    orc_view_t views[2];
    const sinter_logical_tensor_t *out = &c->out[0]->lt;

    if (orc_broadcast_shape(c, 0, 2)) {
        return -1;
    }
    for (size_t i = 0; i < 2; i++) {
        if (!orc_view_broadcast(&views[i], c->in[i], out->ndims, out->dims)) {
            return orc_fail(c, "input %zu does not broadcast", i);
        }
    }
    return orc_map(c, c->out[0], 2, views, fn, NULL, inexact);
}

int oracle_add(orc_ctx_t *c)
{
    return binary(c, add_chunk, false);
}
int oracle_subtract(orc_ctx_t *c)
{
    return binary(c, subtract_chunk, false);
}
int oracle_multiply(orc_ctx_t *c)
{
    return binary(c, multiply_chunk, false);
}
int oracle_divide(orc_ctx_t *c)
{
    return orc_class(c->out[0]->lt.data_type) == ORC_INT ? binary(c, divide_integers_chunk, false)
                                                         : binary(c, divide_chunk, true);
}
int oracle_maximum(orc_ctx_t *c)
{
    return binary(c, maximum_chunk, false);
}
int oracle_minimum(orc_ctx_t *c)
{
    return binary(c, minimum_chunk, false);
}
int oracle_squared_difference(orc_ctx_t *c)
{
    return binary(c, squared_difference_chunk, true);
}
int oracle_greater_equal(orc_ctx_t *c)
{
    return binary(c, greater_equal_chunk, false);
}

static void select_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        bool cond = k->v[0][i] != 0;
        double v = k->v[cond ? 1 : 2][i], other = k->v[cond ? 2 : 1][i];
        if (k->ob) {
            double bound = k->b[cond ? 1 : 2][i];
            if (k->b[0][i] > 0) { /* either branch may be taken */
                bound = larger(bound, orc_distance(v, other) + k->b[cond ? 2 : 1][i]);
            }
            k->ob[i] = isnan(bound) ? INFINITY : bound;
        }
        k->ov[i] = v;
    }
}

int oracle_select(orc_ctx_t *c)
{
    orc_view_t views[3];
    const sinter_logical_tensor_t *out = &c->out[0]->lt;

    if (orc_broadcast_shape(c, 0, 3)) {
        return -1;
    }
    for (size_t i = 0; i < 3; i++) {
        if (!orc_view_broadcast(&views[i], c->in[i], out->ndims, out->dims)) {
            return orc_fail(c, "input %zu does not broadcast", i);
        }
    }
    return orc_map(c, c->out[0], 3, views, select_chunk, NULL, false);
}

/* Channels are the last dim, or dim 1 where data_format says NCX. */
static int channel_dim(const orc_ctx_t *c)
{
    int ndims = c->in[0]->lt.ndims;
    return strcmp(orc_attr_str(c, sinter_op_attr_data_format, "NXC"), "NCX") == 0 && ndims > 1
               ? 1
               : ndims - 1;
}

int oracle_bias_add(orc_ctx_t *c)
{
    orc_view_t views[2];
    const orc_value_t *x = c->in[0], *bias = c->in[1];
    int dim = channel_dim(c);

    if (orc_shape_like(c, 0, x)) {
        return -1;
    }
    if (dim < 0 || bias->lt.ndims != 1 || bias->lt.dims[0] != x->lt.dims[dim]) {
        return orc_fail(c, "bias does not have one value for each channel");
    }
    orc_view_broadcast(&views[0], x, x->lt.ndims, x->lt.dims);
    orc_view_channel(&views[1], bias, dim);
    return orc_map(c, c->out[0], 2, views, add_chunk, NULL, false);
}

static double prelu(double x, double slope)
{
    return x < 0 ? x * slope : x;
}

static void prelu_chunk(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double x = k->v[0][i], s = k->v[1][i], v = prelu(x, s);
        if (k->ob) {
            double xb = k->b[0][i], sb = k->b[1][i];
            double up = orc_distance(prelu(x + xb, s), v), down = orc_distance(prelu(x - xb, s), v);
            k->ob[i] = larger(up, down) + (x - xb < 0 ? scaled(sb, fabs(x) + xb) : 0);
        }
        k->ov[i] = v;
    }
}

int oracle_prelu(orc_ctx_t *c)
{
    orc_view_t views[2];
    const orc_value_t *x = c->in[0], *slope = c->in[1];
    int dim = channel_dim(c);

    if (orc_shape_like(c, 0, x)) {
        return -1;
    }
    orc_view_broadcast(&views[0], x, x->lt.ndims, x->lt.dims);
    if (orc_attr_bool(c, sinter_op_attr_per_channel_broadcast, true) && slope->lt.ndims == 1 &&
        dim >= 0 && slope->n != 1) {
        if (slope->lt.dims[0] != x->lt.dims[dim]) {
            return orc_fail(c, "slope does not have one value for each channel");
        }
        orc_view_channel(&views[1], slope, dim);
    } else if (!orc_view_broadcast(&views[1], slope, x->lt.ndims, x->lt.dims)) {
        return orc_fail(c, "slope does not broadcast");
    }
    return orc_map(c, c->out[0], 2, views, prelu_chunk, NULL, false);
}
