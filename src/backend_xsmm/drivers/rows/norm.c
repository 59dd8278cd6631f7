/* LayerNorm, RMSNorm and GroupNorm, a row at a time (rows.h). Sums of blocks are added in double,
 * so that long rows lose nothing. */
#include <math.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/rows/rows.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/status.h"

/* One value for each row. */
typedef struct statistic {
    unsigned char *data; /* NULL: nobody asks for it */
    sinter_data_type_t type;
    int64_t stride[SINTER_MAX_NDIMS]; /* from one row to the next along a dim of x */
} statistic_t;

typedef struct norm_state {
    rows_t rows;
    const eltwise_table_t *fn;
    statistic_t mean, variance;
    double
        least; /* sums of squares below it are made in double: squares may not be normal floats */
} norm_state_t;

/* How much of a dim a row has. A group of channels is a part of theirs. */
static int64_t block_of(const norm_params_t *p, int ndims, int d, int64_t n)
{
    if (p->channel > 0) {
        return d == 0 ? 1 : d == p->channel ? n / p->groups : n;
    }
    return d < axis_from_front(p->begin_axis, ndims) ? 1 : n;
}

static void bind_statistic(const frame_t *frame, int value, const norm_params_t *p, int ndims,
                           statistic_t *out)
{
    out->data = NULL;
    if (value < 0) {
        return;
    }
    const bound_t *b = &frame->v[value];
    out->data = b->data;
    out->type = b->dtype;
    for (int d = 0, k = 0; d < ndims; d++) {
        const bool counts = p->channel > 0 ? d == 0 || d == p->channel : k < b->ndims;
        out->stride[d] = counts ? b->strides[k++] : 0;
    }
}

enum { SCALED_AND_STORED, SCALED, BY_CHAIN };

static const char *refuse_end(int way, const void *config, void *state)
{
    const rows_t *rows = &((norm_state_t *)state)->rows;
    (void)config;
    return !rows->affine || rows->most > rows->row ||
                   (way == SCALED_AND_STORED && !chain_affine_stores(&rows->post))
               ? ""
               : NULL;
}

/* How much is done to a row in the pass that normalises it: gamma and beta, and the store. */
const way_row_t ways_norm_ends[] = {
    {"one pass that scales and stores", refuse_end, SCALED_AND_STORED},
    {"one pass that scales", refuse_end, SCALED},
    {"passes of the chain", NULL, BY_CHAIN}};

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const norm_params_t *p = &problem->step->p.norm;
    const bound_t *x = &problem->frame->v[p->x];
    norm_state_t *st = state;
    int64_t block[SINTER_MAX_NDIMS];
    (void)config;
    for (int d = 0; d < x->ndims; d++) {
        block[d] = block_of(p, x->ndims, d, x->dims[d]);
    }
    st->fn = eltwise_table(self->needs);
    bind_statistic(problem->frame, p->mean, p, x->ndims, &st->mean);
    bind_statistic(problem->frame, p->variance, p, x->ndims, &st->variance);
    SG_TRY(rows_bind(problem, self->needs, block, &st->rows, choice));
    /* Where epsilon is so much larger that they do not count, rows of zeros take no longer. */
    st->least = p->epsilon < 0x1p-80 || st->variance.data != NULL ? 0x1p-100 : 0;
    take_way(ways_norm_ends, NULL, NULL, st, choice);
    return sinter_success;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void put_statistic(const norm_state_t *st, const statistic_t *s, const int64_t *row,
                          double value)
{
    if (s->data != NULL) {
        const int64_t at = walk_place(st->rows.ndims, row, s->stride);
        dtype_traits(s->type)->codec.store_f64(s->data, at, 0, 1, &value);
    }
}

/* The mean of a run, and the squares of differences from it. */
typedef struct moments {
    double mean, squares;
} moments_t;

/* Of a run whose squares do not fit floats, such as one of 3e38 and -3e38 or of 1e-30, or in which
 * a NaN or an infinity is. */
static moments_t moments_in_double(const float *x, int n)
{
    double sum = 0, squares = 0;
    for (int i = 0; i < n; i++) {
        sum += x[i];
    }
    for (int i = 0; i < n; i++) {
        squares += (x[i] - sum / n) * (x[i] - sum / n);
    }
    return (moments_t){sum / n, squares};
}

/* Of n <= CHAIN_LONG elements, in one pass where `near` lies near their mean. Differences from
 * `near` have squares of which those from the mean are at least half then; else one pass more finds
 * differences from the mean itself. */
static moments_t moments_of(const norm_state_t *st, const float *x, int n, float near)
{
    double sum, squares = st->fn->row_moments(x, n, near, &sum);
    if (sum * sum > squares * n / 2) {
        near = (float)(near + sum / n);
        squares = st->fn->row_moments(x, n, near, &sum);
    }
    const double less = squares - sum * sum / n;
    if (!isfinite(squares) || !isfinite(sum) || squares < st->least) {
        return moments_in_double(x, n);
    }
    return (moments_t){near + sum / n, less > 0 ? less : 0};
}

/* Means and squares of differences from them, run by run, are merged as if the row had been passed
 * over twice (Chan, Golub and LeVeque). The mean so far is near the mean of the next run. A mean
 * that is infinite stays so, unless one of the other sign follows; then there is no variance. */
static void see_centred(const void *state, row_t *row, const float *run, int n)
{
    enum { FIRST = 32 };
    const norm_state_t *st = state;
    for (int i = 0, m; i < n; i += m) {
        m = (int)at_most(n - i, CHAIN_LONG);
        const int few = (int)at_most(m, FIRST);
        const double near =
            row->count > 0 ? row->mean : (double)(st->fn->row_sum(run + i, few) / (float)few);
        const moments_t part = moments_of(st, run + i, m, (float)near);
        const double all = row->count + m, apart = part.mean - row->mean;
        row->squares += part.squares + apart * apart * row->count * m / all;
        row->mean = isfinite(part.mean) && isfinite(row->mean) ? row->mean + apart * m / all
                                                               : row->mean + part.mean;
        row->count = all;
    }
}

static void see_plain(const void *state, row_t *row, const float *run, int n)
{
    const norm_state_t *st = state;
    for (int i = 0; i < n; i += CHAIN_LONG) {
        const int m = (int)at_most(n - i, CHAIN_LONG);
        const double squares = st->fn->row_squares(run + i, m);
        row->squares += isfinite(squares) && squares >= st->least
                            ? squares
                            : st->fn->fold_row[OP_SLOT(sinter_op_reduce_l2)](run + i, m, 0);
    }
    row->count += n;
}

static void take_statistics(const void *state, const problem_t *problem, row_t *row)
{
    const norm_state_t *st = state;
    const double variance = row->squares / row->count;
    put_statistic(st, &st->mean, row->index, row->mean);
    put_statistic(st, &st->variance, row->index, variance);
    row->factor = 1 / sqrt(variance + problem->step->p.norm.epsilon);
}

/* With smaller factors, differences from the mean may not fit floats; larger ones do not fit
 * themselves. */
static const double least_factor = 0x1p-99, largest_factor = 0x1p126;

/* The mean is the float `shift` and the rest, which joins after the multiplication. */
static bool normalise_affine(const row_t *row, const row_run_t *run)
{
    const norm_state_t *st = run->state;
    const float shift = (float)row->mean;
    const eltwise_norm_t how = {.shift = shift,
                                .factor = (float)row->factor,
                                .offset = (float)(-(row->mean - (double)shift) * row->factor),
                                .gamma = run->affine->gamma,
                                .beta = run->affine->beta,
                                .each = run->affine->each,
                                .nontemporal = run->affine->nontemporal,
                                .ahead = *run->ahead};
    if (row->factor < least_factor || row->factor > largest_factor) {
        return false;
    }
    st->fn->norm_row(run->to, run->from, run->n, &how);
    return true;
}

static void normalise(const void *state, const row_t *row, const float *from, float *to, int n)
{
    static const chain_affine_run_t no_affine;
    static const ahead_t nothing;
    const row_run_t run = {state, from, to, n, &no_affine, &nothing};
    if (!normalise_affine(row, &run)) {
        for (int i = 0; i < n; i++) {
            to[i] = (float)((from[i] - row->mean) * row->factor);
        }
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    static const row_ops_t centred = {see_centred, take_statistics, normalise, normalise_affine},
                           plain = {see_plain, take_statistics, normalise, normalise_affine};
    const norm_state_t *st = state;
    (void)self, (void)config;
    rows_work(&st->rows, p, w, w->shared, p->step->p.norm.centered ? &centred : &plain, st);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

/* The elements of a row; 0 where only execute knows. */
static int64_t row_of(const problem_t *p)
{
    const norm_params_t *norm = &p->step->p.norm;
    const int ndims = problem_ndims(p, norm->x);
    int64_t row = ndims < 0 ? 0 : 1;
    for (int d = 0; d < ndims; d++) {
        const int64_t n = problem_dim(p, norm->x, ndims - d);
        row = n < 0 || row == 0 ? 0 : row * block_of(norm, ndims, d, n);
    }
    return row;
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    (void)self, (void)arena;
    out->state_bytes = sizeof(norm_state_t);
    out->share_bytes = rows_scratch(p->step);
    out->reserve_bytes = rows_row_bytes(row_of(p));
    out->note = "a row at a time, which stays in cache";
    return sinter_success;
}

const driver_t driver_norm_rows = {.step = STEP_NORM,
                                   .arithmetic = IN_F32,
                                   .phases = 1,
                                   .setup = setup,
                                   .choose = choose,
                                   .start = rows_start,
                                   .work = work};
