/* SoftMax and LogSoftmax along one axis.
 *
 * Errors: exponents may be off by the inputs' bounds and by f32 evaluation (x scaled by log2 e,
 * the maximum subtracted, an exp of a few units, rescaling when a running maximum moves). With y
 * the result and d the exponent errors, the denominator lies between S (1 - sum y (1 - e^-d))
 * and S (1 + sum y (e^d - 1)), and y' between the quotients of the extremes. A row's sink is one
 * more exponent. */
#include "internal.h"

typedef struct row {
    int64_t n;
    const double *x, *xb; /* xb NULL: exact */
    double *y, *yb;
    double sink, sink_bound; /* -inf, 0 if there is none */
    double stats, stats_bound;
    double max, sum, log_sum;    /* of the exponentials */
    double less, more, rounding; /* relative errors of the denominator */
} row_t;

static double error_of(const row_t *r, double x, double bound)
{
    return isinf(x) ? bound : bound + ORC_U * (8 + 2 * fabs(x) + fabs(x - r->max));
}

static double exponent_error(const row_t *r, int64_t i)
{
    return error_of(r, r->x[i], r->xb ? r->xb[i] : 0);
}

/* The share y of a term in the denominator, whose exponent x may be off by d. */
static void add_error(row_t *r, double x, double y, double d)
{
    /* e^d - 1 <= d + d^2 up to d = 1; beyond, y may have underflowed while y e^d has not. */
    r->more += d <= 1 ? y * (d + d * d) : exp(x - r->max + d) / r->sum;
    r->less += y * (d < 1 ? d : 1);
}

/* y = e^(x - max) / sum, and the denominator's errors. False for a row that is -inf throughout. */
static bool exponentials(row_t *r)
{
    bool has_nan = false;
    double terms;

    r->max = r->sink;
    r->sum = r->less = r->more = 0;
    for (int64_t i = 0; i < r->n; i++) {
        r->max = r->x[i] > r->max ? r->x[i] : r->max;
        has_nan = has_nan || isnan(r->x[i]);
    }
    for (int64_t i = 0; i < r->n; i++) {
        r->sum += r->y[i] = exp(r->x[i] - r->max);
    }
    if (r->max == -INFINITY && r->n && !has_nan) {
        return false;
    }
    r->sum += r->sink == -INFINITY ? 0 : exp(r->sink - r->max);
    r->log_sum = log(r->sum);
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] /= r->sum;
        add_error(r, r->x[i], r->y[i], exponent_error(r, i));
    }
    if (r->sink != -INFINITY) {
        add_error(r, r->sink, exp(r->sink - r->max) / r->sum, error_of(r, r->sink, r->sink_bound));
    }
    /* Equal terms, as constant masks make them, round the same way again and again: more than a
     * random walk. */
    terms = (double)r->n + (r->sink != -INFINITY);
    r->rounding = (terms < 6 * sqrt(terms) ? terms : 6 * sqrt(terms)) * ORC_U + 4 * ORC_U;
    return true;
}

static double softmax_bound(const row_t *r, int64_t i)
{
    double y = r->y[i], d = exponent_error(r, i), high = 1, low;
    if (r->less < 1) {
        high = (d <= 1 ? y * (1 + d + d * d) : exp(r->x[i] - r->max + d) / r->sum) / (1 - r->less) *
               (1 + r->rounding);
    }
    if (!(high < 1) && y <= 1) {
        high = 1 + 2 * ORC_U;
    }
    low = y * (d < 1 ? 1 - d : 0) / (1 + r->more) * (1 - r->rounding);
    return (high - y > y - low ? high - y : y - low) + ORC_TINY;
}

/* Error of log(denominator), apart from that of its evaluation. */
static double log_sum_error(const row_t *r)
{
    double up = log1p(r->more), down = r->less < 1 ? -log1p(-r->less) : INFINITY;
    return (up > down ? up : down) + r->rounding;
}

static void masked_row(row_t *r, bool zeros)
{
    for (int64_t i = 0; i < r->n; i++) {
        r->y[i] = zeros ? 0 : NAN;
        r->yb[i] = 0;
    }
    r->stats = -INFINITY;
    r->stats_bound = 0;
}

static void softmax_row(row_t *r, bool inf_as_zero)
{
    if (!exponentials(r)) {
        masked_row(r, inf_as_zero);
        return;
    }
    for (int64_t i = 0; i < r->n; i++) {
        r->yb[i] = softmax_bound(r, i);
    }
    r->stats = r->max + r->log_sum;
    r->stats_bound = log_sum_error(r) + ORC_U * (2 * fabs(r->max) + 4 * r->log_sum + 2);
}

static void log_softmax_row(row_t *r, bool inf_as_zero)
{
    (void)inf_as_zero;
    if (!exponentials(r)) {
        masked_row(r, false);
        return;
    }
    for (int64_t i = 0; i < r->n; i++) {
        double x = r->x[i], y = x - r->max - r->log_sum;
        r->y[i] = y;
        r->yb[i] =
            isinf(x) ? 0
                     : (r->xb ? r->xb[i] : 0) + log_sum_error(r) +
                           ORC_U * (2 * fabs(r->max) + fabs(x) + 4 * r->log_sum + 2 * fabs(y) + 2);
    }
}

/* One exponent of which nothing is known leaves nothing known of the row. */
static void loosen_row(row_t *r)
{
    bool loose = r->sink_bound == INFINITY;

    for (int64_t i = 0; r->xb && i < r->n; i++) {
        loose = loose || r->xb[i] == INFINITY;
    }
    for (int64_t i = 0; loose && i < r->n; i++) {
        r->yb[i] = INFINITY;
    }
    if (loose) {
        r->stats_bound = INFINITY;
    }
}

/* dims: those of one value for each row. */
static void sink_of(row_t *r, const orc_view_t *sink, int ndims, const int64_t *dims, size_t row)
{
    int64_t at = 0, rest = (int64_t)row;

    for (int d = ndims - 1; d >= 0; d--) {
        at += rest % dims[d] / sink->div[d] * sink->stride[d];
        rest /= dims[d];
    }
    r->sink = sink->src->v[at];
    r->sink_bound = sink->src->b ? sink->src->b[at] : 0;
}

typedef void row_fn_t(row_t *r, bool inf_as_zero);

/* Gathers each row along the axis into scratch, so that rows of any stride look alike. */
static void run_row(const orc_value_t *in, const orc_view_t *sink, const int64_t *row_dims,
                    orc_value_t *out, orc_value_t *stats, size_t row, int64_t n, size_t inner,
                    double *scratch, row_fn_t *fn, bool inf_as_zero)
{
    size_t at = row / inner * (size_t)n * inner + row % inner, length = (size_t)n;
    double *x = scratch, *xb = x + length, *y = xb + length, *yb = y + length;
    row_t r = {.n = n, .x = x, .xb = in->b ? xb : NULL, .y = y, .yb = yb, .sink = -INFINITY};

    if (sink->src) {
        sink_of(&r, sink, in->lt.ndims, row_dims, row);
    }
    for (size_t i = 0; i < length; i++) {
        x[i] = in->v[at + i * inner];
        if (in->b) {
            xb[i] = in->b[at + i * inner];
        }
    }
    fn(&r, inf_as_zero);
    loosen_row(&r);
    for (size_t i = 0; i < length; i++) {
        out->v[at + i * inner] = y[i];
        out->b[at + i * inner] = yb[i];
    }
    if (stats) {
        stats->v[row] = r.stats;
        stats->b[row] = r.stats_bound;
    }
}

static int run(orc_ctx_t *c, row_fn_t *fn, int64_t default_axis)
{
    orc_value_t *in = c->in[0], *stats = c->n_out > 1 ? c->out[1] : NULL;
    bool inf_as_zero = strcmp(orc_attr_str(c, sinter_op_attr_mode, "none"), "inf_as_zero") == 0;
    int axis = orc_axis(c, default_axis, in->lt.ndims), failed = 0;
    int64_t dims[SINTER_MAX_NDIMS], n;
    orc_view_t sink = {0};
    size_t inner, rows;

    if (axis < 0 || orc_shape_like(c, 0, in) || orc_alloc(c, c->out[0], true)) {
        return -1;
    }
    n = in->lt.dims[axis];
    inner = orc_count(in->lt.dims + axis + 1, in->lt.ndims - axis - 1);
    rows = orc_count(in->lt.dims, axis) * inner;
    memcpy(dims, in->lt.dims, sizeof dims);
    dims[axis] = 1;
    if (c->n_in > 1 && !orc_view_broadcast(&sink, c->in[1], in->lt.ndims, dims)) {
        return orc_fail(c, "sinks do not broadcast to one value for each row");
    }
    if (stats && (orc_shape(c, 1, in->lt.ndims, dims) || orc_alloc(c, stats, true))) {
        return -1;
    }
#pragma omp parallel
    {
        double *scratch = malloc((4 * (size_t)n + 1) * sizeof(double));
        if (!scratch) {
#pragma omp atomic write
            failed = 1;
        }
#pragma omp for
        for (size_t row = 0; row < rows; row++) {
            if (scratch) {
                run_row(in, &sink, dims, c->out[0], stats, row, n, inner, scratch, fn, inf_as_zero);
            }
        }
        free(scratch);
    }
    return failed ? orc_fail(c, "out of memory for rows of %lld", (long long)n) : 0;
}

int oracle_softmax(orc_ctx_t *c)
{
    c->out[0]->probabilities = true;
    return run(c, softmax_row, 1);
}

int oracle_log_softmax(orc_ctx_t *c)
{
    return run(c, log_softmax_row, -1);
}
