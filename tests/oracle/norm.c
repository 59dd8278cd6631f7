/* LayerNorm, GroupNorm and RMSNorm.
 *
 *   LayerNorm, GroupNorm  y = (x - m) / sqrt(v + epsilon) * gamma + beta, with m the mean of a row
 *                         and v the mean of (x - m)^2
 *   RMSNorm               the same with m = 0, and without beta
 *
 * A row is what is normalised together: the dims from begin_norm_axis on, or the channels of a
 * group with all other dims but the batch. gamma and beta broadcast to a row of LayerNorm and
 * RMSNorm; GroupNorm has one for each channel.
 *
 * Errors, with e the errors of x: that of m is the mean of e and what sums lose; that of v follows
 * from (c + e)^2 - c^2 = 2 c e + e^2 for c = x - m, to which an error d of m adds d^2, because the
 * sum of all c is 0. 1 / sqrt(v + epsilon) lies between its values at the ends of v.
 *
 * Sums are as good as in double: they lose SUM_UNITS of their terms' magnitudes, whatever their
 * number, and their terms are differences from a value near m, of which m and v are made in double.
 * So no error grows with |m|, but for that of m itself in f32 times one rounding more. */
#include "internal.h"

typedef struct norm_row {
    int64_t n;
    double *x, *xb; /* errors 0 where the input is exact */
    bool inexact;   /* some are not 0 */
    double mean, mean_bound, variance, variance_bound;
    double factor, factor_bound;
} norm_row_t;

#define SUM_UNITS (16 * ORC_U)
/* What variances may lose against variance + epsilon where squares lie below the normal floats. */
#define SQUARES_LOST 0x1p-40

static void find_mean(norm_row_t *r)
{
    double sum = 0, sizes = 0, errors = 0;
    for (int64_t i = 0; i < r->n; i++) {
        sum += r->x[i];
        errors += r->xb[i];
    }
    r->mean = sum / (double)r->n;
    r->mean_bound = errors / (double)r->n;
    r->inexact = errors > 0;
    if (!isfinite(r->mean)) {
        return;
    }
    for (int64_t i = 0; i < r->n; i++) {
        sizes += fabs(r->x[i] - r->mean);
    }
    r->mean_bound += SUM_UNITS * sizes / (double)r->n + 2 * ORC_U * ORC_U * fabs(r->mean);
}

/* x becomes x - mean; its errors do not yet have that of the mean. */
static void find_variance(norm_row_t *r, double epsilon)
{
    double sum = 0, first = 0, second = 0;
    for (int64_t i = 0; i < r->n; i++) {
        const double c = r->x[i] -= r->mean, e = r->xb[i] += ORC_U * fabs(c);
        sum += c * c;
        first += 2 * fabs(c) * e;
        second += (e + r->mean_bound) * (e + r->mean_bound);
    }
    r->variance = sum / (double)r->n;
    r->variance_bound = (first + second) / (double)r->n + SUM_UNITS * r->variance +
                        SQUARES_LOST * (r->variance + epsilon);

    const double low = r->variance - r->variance_bound;
    r->factor = 1 / sqrt(r->variance + epsilon);
    r->factor_bound = 1 / sqrt((low > 0 ? low : 0) + epsilon) - r->factor + 2 * ORC_U * r->factor;
    /* What is equal here alone is divided by a deviation that nobody knows. */
    if (r->inexact && r->variance + epsilon == 0) {
        r->factor = 0;
        r->factor_bound = INFINITY;
    }
}

/* The result without gamma and beta. */
static double normalised(const norm_row_t *r, int64_t i, double *bound)
{
    const double c = r->x[i], y = c * r->factor,
                 e = r->xb[i] + r->mean_bound + 4 * ORC_U * ORC_U * fabs(r->mean);
    *bound = isinf(r->factor_bound) /* not times an error of 0 */
                 ? INFINITY
                 : e * (r->factor + r->factor_bound) + fabs(c) * r->factor_bound +
                       4 * ORC_U * fabs(y) + ORC_UNDERFLOW;
    return y;
}

static double value_at(const orc_value_t *t, size_t i, double *bound)
{
    *bound = t->b != NULL ? t->b[i] : 0;
    return t->v[i];
}

/* Where gamma or beta has what belongs to element i of a row, if it broadcasts to the last dims. */
static size_t broadcast_at(const orc_ctx_t *c, int port, size_t i)
{
    const sinter_logical_tensor_t *x = &c->in[0]->lt, *p = &c->in[port]->lt;
    size_t at = 0, stride = 1;
    for (int d = 1; d <= p->ndims; d++) {
        const size_t n = (size_t)p->dims[p->ndims - d], all = (size_t)x->dims[x->ndims - d];
        at += n == 1 ? 0 : i % all * stride;
        i /= all;
        stride *= n;
    }
    return at;
}

/* y * gamma + beta, gamma and beta being inputs 1 and 2 where they exist. */
static double affine(const orc_ctx_t *c, const size_t *at, double y, double *bound)
{
    double g, gb, b, bb;
    if (c->n_in > 1) {
        g = value_at(c->in[1], at[0], &gb);
        *bound = *bound * (fabs(g) + gb) + fabs(y) * gb;
        y *= g;
        *bound += ORC_U * fabs(y) + ORC_UNDERFLOW;
    }
    if (c->n_in > 2) {
        b = value_at(c->in[2], at[1], &bb);
        y += b;
        *bound += bb + ORC_U * (fabs(y) + fabs(b)) + ORC_UNDERFLOW;
    }
    return y;
}

/* The elements of a row: `outer` runs of n elements, `step` apart. gamma and beta have one value
 * for each run, for each element of a run, or for each element of the row. */
typedef enum params { PER_RUN, PER_ELEMENT_OF_RUN, BROADCAST } params_t;
typedef struct layout {
    size_t outer, n, step;
    params_t params;
    size_t param0; /* of the row's first run or element */
} layout_t;

static void run_row(orc_ctx_t *c, const layout_t *at, size_t first, size_t row, bool centered,
                    double epsilon, double *scratch)
{
    const orc_value_t *in = c->in[0];
    orc_value_t *out = c->out[0];
    const size_t n = at->outer * at->n;
    norm_row_t r = {.n = (int64_t)n, .x = scratch, .xb = scratch + n};
    for (size_t i = 0; i < n; i++) {
        r.x[i] = value_at(in, first + i / at->n * at->step + i % at->n, &r.xb[i]);
    }
    if (centered) {
        find_mean(&r);
    }
    find_variance(&r, epsilon);
    for (size_t i = 0; i < n; i++) {
        const size_t o = i / at->n, e = i % at->n, to = first + o * at->step + e,
                     param = at->param0 + (at->params == PER_RUN ? o : e);
        size_t params[2] = {param, param};
        for (int k = 1; k < (int)c->n_in && at->params == BROADCAST; k++) {
            params[k - 1] = broadcast_at(c, k, i);
        }
        double bound, y = normalised(&r, (int64_t)i, &bound);
        out->v[to] = affine(c, params, y, &bound);
        out->b[to] = bound;
    }
    if (c->n_out > 1) {
        c->out[1]->v[row] = r.mean;
        c->out[1]->b[row] = r.mean_bound;
        c->out[2]->v[row] = r.variance;
        c->out[2]->b[row] = r.variance_bound;
    }
}

static int alloc_all(orc_ctx_t *c, int stats_ndims, const int64_t *stats_dims)
{
    if (orc_shape_like(c, 0, c->in[0]) || orc_alloc(c, c->out[0], true)) {
        return -1;
    }
    for (size_t i = 1; i < c->n_out; i++) {
        if (orc_shape(c, i, stats_ndims, stats_dims) || orc_alloc(c, c->out[i], true)) {
            return -1;
        }
    }
    return 0;
}

static int check_params(orc_ctx_t *c, size_t n)
{
    for (size_t i = 1; i < c->n_in; i++) {
        if (c->in[i]->n != n) {
            return orc_fail(c, "gamma or beta has %zu elements, not %zu", c->in[i]->n, n);
        }
    }
    return 0;
}

static int check_broadcast(orc_ctx_t *c, int axis)
{
    const sinter_logical_tensor_t *x = &c->in[0]->lt;
    for (size_t i = 1; i < c->n_in; i++) {
        const sinter_logical_tensor_t *p = &c->in[i]->lt;
        for (int d = 1; d <= p->ndims; d++) {
            const int64_t n = p->dims[p->ndims - d];
            if (d > x->ndims - axis || (n != 1 && n != x->dims[x->ndims - d])) {
                return orc_fail(c, "input %zu does not broadcast to a row", i);
            }
        }
    }
    return 0;
}

static int over_last_dims(orc_ctx_t *c, bool centered)
{
    const orc_value_t *in = c->in[0];
    const double epsilon = orc_attr_f32(c, sinter_op_attr_epsilon, 1e-5f);
    int64_t axis = orc_attr_s64(c, sinter_op_attr_begin_norm_axis, -1);
    axis += axis < 0 ? in->lt.ndims : 0;
    if (axis < 0 || axis >= in->lt.ndims) {
        return orc_fail(c, "begin_norm_axis is outside the dims");
    }
    const size_t rows = orc_count(in->lt.dims, (int)axis),
                 n = orc_count(in->lt.dims + axis, in->lt.ndims - (int)axis);
    const layout_t at = {.outer = 1, .n = n, .params = BROADCAST};
    if (check_broadcast(c, (int)axis) || alloc_all(c, (int)axis, in->lt.dims)) {
        return -1;
    }
    double *scratch = orc_doubles(2 * n + 1);
    if (scratch == NULL) {
        return orc_fail(c, "out of memory");
    }
    for (size_t row = 0; row < rows; row++) {
        run_row(c, &at, row * n, row, centered, epsilon, scratch);
    }
    free(scratch);
    return 0;
}

int oracle_layer_norm(orc_ctx_t *c)
{
    return over_last_dims(c, true);
}

int oracle_rms_norm(orc_ctx_t *c)
{
    return over_last_dims(c, false);
}

int oracle_group_norm(orc_ctx_t *c)
{
    const orc_value_t *in = c->in[0];
    const double epsilon = orc_attr_f32(c, sinter_op_attr_epsilon, 1e-5f);
    const bool last = strcmp(orc_attr_str(c, sinter_op_attr_data_format, "NXC"), "NXC") == 0;
    const int64_t groups = orc_attr_s64(c, sinter_op_attr_groups, 1);
    const int ndims = in->lt.ndims, channel = last ? ndims - 1 : 1;
    if (ndims < 2 || groups < 1 || in->lt.dims[channel] % groups != 0) {
        return orc_fail(c, "the groups do not divide the channels");
    }
    const size_t channels = (size_t)in->lt.dims[channel], per = channels / (size_t)groups,
                 batch = (size_t)in->lt.dims[0], each = batch != 0 ? in->n / batch : 0,
                 space = channels != 0 ? each / channels : 0;
    if (check_params(c, channels) || alloc_all(c, 2, (int64_t[]){in->lt.dims[0], groups})) {
        return -1;
    }
    double *scratch = orc_doubles(2 * per * space + 1);
    if (scratch == NULL) {
        return orc_fail(c, "out of memory");
    }
    for (size_t row = 0; row < batch * (size_t)groups; row++) {
        const size_t b = row / (size_t)groups, g = row % (size_t)groups;
        const layout_t at = last ? (layout_t){space, per, channels, PER_ELEMENT_OF_RUN, g * per}
                                 : (layout_t){per, space, space, PER_RUN, g * per};
        run_row(c, &at, b * each + g * per * (last ? 1 : space), row, true, epsilon, scratch);
    }
    free(scratch);
    return 0;
}

/* (x - mean) * (gamma / sqrt(variance + epsilon)) + beta, where each step is rounded to f32.
 * Nothing can be demanded where the difference or the quotient does not fit it. */
int oracle_batch_norm_inference(orc_ctx_t *c)
{
    const orc_value_t *x = c->in[0];
    const double epsilon = orc_attr_f32(c, sinter_op_attr_epsilon, 0);
    const bool last = strcmp(orc_attr_str(c, sinter_op_attr_data_format, "NXC"), "NXC") == 0;
    const int ndims = x->lt.ndims, channel = last || ndims < 2 ? ndims - 1 : 1;
    if (channel < 0 || check_params(c, (size_t)x->lt.dims[channel]) || orc_shape_like(c, 0, x) ||
        orc_alloc(c, c->out[0], true)) {
        return -1;
    }
    const size_t n = (size_t)x->lt.dims[channel],
                 inner = orc_count(x->lt.dims + channel + 1, ndims - channel - 1);
    for (size_t i = 0; i < x->n; i++) {
        const size_t at[2] = {i / inner % n, i / inner % n};
        double mb, vb, xb;
        const double m = value_at(c->in[3], at[0], &mb), v = value_at(c->in[4], at[0], &vb),
                     value = value_at(x, i, &xb), low = v - vb + epsilon;
        norm_row_t r = {.x = (double[]){value - m}, .xb = (double[]){xb}, .mean_bound = mb};
        r.xb[0] += ORC_U * fabs(r.x[0]);
        r.factor = 1 / sqrt(v + epsilon);
        r.factor_bound = vb > 0 ? fabs(1 / sqrt(low > 0 ? low : 0) - r.factor) : 0;
        r.factor_bound += 4 * ORC_U * r.factor;
        double bound, gb, y = normalised(&r, 0, &bound);
        const double g = value_at(c->in[1], at[0], &gb), most = 0x1.FFFFFFp127,
                     apart = fabs(r.x[0]) + r.xb[0] + mb,
                     factor = (fabs(g) + gb) * (r.factor + r.factor_bound);
        c->out[0]->v[i] = affine(c, at, y, &bound);
        c->out[0]->b[i] =
            apart >= most || factor >= most ? INFINITY : bound + ORC_UNDERFLOW * apart;
    }
    return 0;
}
