/* Reductions over axes.
 *
 * Errors: a sum has those of its terms and its rounding; a product (1 + e_i / |x_i|) for each
 * factor, and a rounding for each; an extreme lies between those of the ends of all intervals.
 *
 * Factors are multiplied in double, in whatever order. Where some of them, without the others, have
 * a product that double cannot hold, the result is open. */
#include <float.h>

#include "internal.h"

typedef struct fold {
    double v, low,
        high; /* low, high: extremes of the ends; of a product, its least and largest size */
    double sizes, errors, relative;
    double n;
    double up, down; /* of a product: log2 of its factors above 1, of those below 1 */
} fold_t;

static double sum_error(double n)
{
    return (n < 6 * sqrt(n) ? n : 6 * sqrt(n)) * ORC_U + 4 * ORC_U;
}

static void add_term(sinter_op_kind_t kind, fold_t *f, double x, double e)
{
    const double larger = kind == sinter_op_reduce_max ? 1 : -1;
    f->n++;
    switch (kind) {
    case sinter_op_reduce_max:
    case sinter_op_reduce_min:
        f->v = isnan(x) || larger * x > larger * f->v ? x : f->v;
        f->low = isnan(x) || larger * (x - e) > larger * f->low ? x - e : f->low;
        f->high = isnan(x) || larger * (x + e) > larger * f->high ? x + e : f->high;
        break;
    case sinter_op_reduce_prod:
        f->v *= x;
        f->high *= fabs(x) + e;
        f->relative += ORC_U;
        if (x != 0 && isfinite(x)) {
            f->up += fmax(log2(fabs(x) + e), 0);
            f->down += fmin(log2(fmax(fabs(x) - e, 0x1p-1074)), 0);
        }
        break;
    case sinter_op_reduce_l2:
        f->v += x * x;
        f->errors += 2 * fabs(x) * e + e * e + ORC_U * x * x;
        f->sizes += x * x;
        break;
    default:
        f->v += kind == sinter_op_reduce_l1 ? fabs(x) : x;
        f->errors += e;
        f->sizes += fabs(x);
    }
}

static double result(sinter_op_kind_t kind, const fold_t *f, double *bound)
{
    double sum = f->errors + sum_error(f->n) * f->sizes;
    switch (kind) {
    case sinter_op_reduce_max:
    case sinter_op_reduce_min:
        *bound = orc_reach(f->v, f->low, f->high);
        return f->v;
    case sinter_op_reduce_prod:
        *bound = f->up > DBL_MAX_EXP - 1 || f->down < DBL_MIN_EXP - 1
                     ? INFINITY
                     : (f->high - fabs(f->v)) + f->high * f->relative * 2 + ORC_UNDERFLOW * f->n;
        return f->v;
    case sinter_op_reduce_l2: {
        const double y = sqrt(f->v), low = f->v - sum;
        *bound =
            fmax(y - sqrt(low > 0 ? low : 0), sqrt(f->v + sum) - y) + 4 * ORC_U * y + ORC_UNDERFLOW;
        return y;
    }
    case sinter_op_reduce_mean:
        *bound = sum / f->n + ORC_U * fabs(f->v / f->n) + ORC_UNDERFLOW;
        return f->v / f->n;
    default:
        *bound = sum;
        return f->v;
    }
}

static int reduce(orc_ctx_t *c, sinter_op_kind_t kind)
{
    const orc_value_t *in = c->in[0];
    const orc_attr_t *axes = orc_attr(c, sinter_op_attr_axes);
    const bool keep = orc_attr_bool(c, sinter_op_attr_keep_dims, false);
    const int ndims = in->lt.ndims;
    bool gone[SINTER_MAX_NDIMS] = {false};
    int64_t dims[SINTER_MAX_NDIMS], to[SINTER_MAX_NDIMS], stride = 1;
    int n = 0;

    if (c->n_in > 1 || !axes) {
        return orc_fail(c, "axes are a tensor");
    }
    for (size_t i = 0; i < axes->n; i++) {
        const int64_t axis = axes->s64[i] < 0 ? axes->s64[i] + ndims : axes->s64[i];
        if (axis < 0 || axis >= ndims) {
            return orc_fail(c, "axis out of range");
        }
        gone[axis] = true;
    }
    for (int d = 0; d < ndims; d++) {
        if (keep || !gone[d]) {
            dims[n++] = gone[d] ? 1 : in->lt.dims[d];
        }
    }
    if (orc_shape(c, 0, n, dims) || orc_alloc(c, c->out[0], true)) {
        return -1;
    }
    if (axes->n == 0) { /* the identity */
        for (size_t i = 0; i < in->n; i++) {
            c->out[0]->v[i] = in->v[i];
            c->out[0]->b[i] = in->b ? in->b[i] : 0;
        }
        return 0;
    }
    for (int d = ndims - 1; d >= 0; d--) {
        to[d] = gone[d] ? 0 : stride;
        stride *= gone[d] ? 1 : in->lt.dims[d];
    }
    const double start = kind == sinter_op_reduce_max    ? -INFINITY
                         : kind == sinter_op_reduce_min  ? INFINITY
                         : kind == sinter_op_reduce_prod ? 1
                                                         : 0;
    fold_t *folds = calloc(c->out[0]->n + 1, sizeof *folds);
    if (!folds) {
        return orc_fail(c, "out of memory");
    }
    for (size_t i = 0; i < c->out[0]->n; i++) {
        folds[i].v = folds[i].low = folds[i].high = start;
    }
    for (size_t i = 0; i < in->n; i++) {
        size_t rest = i;
        int64_t at = 0;
        for (int d = ndims - 1; d >= 0; d--) {
            at += (int64_t)(rest % (size_t)in->lt.dims[d]) * to[d];
            rest /= (size_t)in->lt.dims[d];
        }
        add_term(kind, &folds[at], in->v[i], in->b ? in->b[i] : 0);
    }
    for (size_t i = 0; i < c->out[0]->n; i++) {
        c->out[0]->v[i] = result(kind, &folds[i], &c->out[0]->b[i]);
    }
    free(folds);
    return 0;
}

/* Sums up to each element along an axis, added in double, in whatever order. */
int oracle_cumsum(orc_ctx_t *c)
{
    const orc_value_t *in = c->in[0];
    orc_value_t *out = c->out[0];
    const bool exclusive = orc_attr_bool(c, sinter_op_attr_exclusive, false),
               reverse = orc_attr_bool(c, sinter_op_attr_reverse, false);
    const int axis = orc_axis(c, -1, in->lt.ndims);
    if (axis < 0 || orc_shape_like(c, 0, in) || orc_alloc(c, out, true)) {
        return -1;
    }
    const size_t n = (size_t)in->lt.dims[axis];
    size_t inner = 1;
    for (int d = axis + 1; d < in->lt.ndims; d++) {
        inner *= (size_t)in->lt.dims[d];
    }
    for (size_t row = 0; n > 0 && row < in->n / n; row++) {
        const size_t first = row / inner * n * inner + row % inner;
        double sum = 0, sizes = 0, errors = 0;
        for (size_t i = 0; i < n; i++) {
            const size_t at = first + (reverse ? n - 1 - i : i) * inner;
            const double before = sum, sizes_before = sizes, errors_before = errors;
            sum += in->v[at];
            sizes += fabs(in->v[at]);
            errors += in->b != NULL ? in->b[at] : 0;
            out->v[at] = exclusive ? before : sum;
            out->b[at] = (exclusive ? errors_before : errors) + ORC_U * fabs(out->v[at]) +
                         0x1p-52 * (double)(i + 1) * (exclusive ? sizes_before : sizes) +
                         ORC_UNDERFLOW;
        }
    }
    return 0;
}

#define REDUCTION(name)                            \
    int oracle_reduce_##name(orc_ctx_t *c)         \
    {                                              \
        return reduce(c, sinter_op_reduce_##name); \
    }
REDUCTION(l1)
REDUCTION(l2)
REDUCTION(max)
REDUCTION(mean)
REDUCTION(min)
REDUCTION(prod)
REDUCTION(sum)
