/* Reductions. The chain before the reduction computes runs of its input, which are folded into
 * sums (or extremes, or products) in double; the chain after it takes the results.
 *
 * An item is a run of results along the last dim that is kept. If the last dim of all is reduced,
 * each result folds runs of that dim; otherwise a run of elements is folded into a run of results.
 * The runs that an item folds are its steps. Parts of so many steps are folded by themselves and
 * then merged in order, so that the number of threads changes no bit. Where there are fewer items
 * than shares, shares fold parts, and a second phase merges them. */
#include <math.h>
#include <string.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/status.h"

/* Elements of a run, and the most results of an item: so many that memory is read in order. */
enum { RUN = CHAIN_LONG, MOST_RESULTS = 4 * RUN };
enum { FOLDED = 8 }; /* rows that are folded into results at once */

typedef struct reduce_state {
    chain_bound_t pre, post;
    const eltwise_table_t *fn;
    int ndims, along; /* along: the last dim that is kept; -1: none is */
    bool reduced[SINTER_MAX_NDIMS], by_rows;
    int8_t post_dim[SINTER_MAX_NDIMS]; /* of a dim of the input that is kept; -1: none */
    int64_t dims[SINTER_MAX_NDIMS];
    int64_t items[SINTER_MAX_NDIMS], n_items; /* extents in items; 1 along dims that are reduced */
    int64_t steps[SINTER_MAX_NDIMS], n_steps; /* extents in steps; 1 along dims that are kept */
    int64_t run;                              /* results of an item */
    double count;                             /* elements of a result */
    int64_t part, parts;                      /* steps of a part, parts of an item */
    bool divides;                             /* items are divided among shares */
    /* Rows that follow are prefetched. Rows of floats come faster without: the hardware follows
     * them, several at a time. */
    bool ahead;
} reduce_state_t;

typedef struct buffers {
    void *chain;
    float *x;
    double *sums, *more; /* of an item, of a part of it */
} buffers_t;

static size_t buffers(const step_t *step, unsigned char *scratch, buffers_t *out)
{
    size_t at = 0;
    const size_t pre = chain_long_scratch_bytes(step->pre),
                 post = chain_long_scratch_bytes(step->post);
    out->chain = carve(scratch, &at, pre > post ? pre : post, 1);
    out->x = carve(scratch, &at, FOLDED * RUN, sizeof *out->x);
    out->sums = carve(scratch, &at, MOST_RESULTS, sizeof *out->sums);
    out->more = carve(scratch, &at, MOST_RESULTS, sizeof *out->more);
    return at;
}

/* ---- prepare --------------------------------------------------------------------------------- */

static sinter_status_t find_dims(const reduce_params_t *p, reduce_state_t *st)
{
    for (int d = 0; d < st->ndims; d++) {
        st->reduced[d] = false;
    }
    for (int i = 0; i < p->n_axes; i++) {
        const int axis = axis_from_front((int)p->axes[i], st->ndims);
        if (axis < 0 || axis >= st->ndims) {
            return sg_fail(sinter_invalid_shape, "reduction over axis %d of a tensor with %d dims",
                           (int)p->axes[i], st->ndims);
        }
        st->reduced[axis] = true;
    }
    int8_t kept = 0;
    st->along = -1;
    for (int d = 0; d < st->ndims; d++) {
        st->post_dim[d] = p->keep_dims ? (int8_t)d : st->reduced[d] ? -1 : kept;
        kept += !st->reduced[d];
        st->along = st->reduced[d] ? st->along : d;
    }
    return sinter_success;
}

/* Results of an item: few enough that each share has several items, and whole bytes of packed
 * ones. */
static int64_t run_of_item(const reduce_state_t *st, int shares)
{
    enum { ITEMS_OF_SHARE = 4, SHORTEST = 16 };
    int64_t run = MOST_RESULTS, others = 1;
    for (int d = 0; d < st->ndims; d++) {
        others *= st->reduced[d] || d == st->along ? 1 : st->dims[d];
    }
    while (run > SHORTEST && others * (st->dims[st->along] / run) < ITEMS_OF_SHARE * shares) {
        run /= 2;
    }
    return run;
}

/* Parts are so long that merging them costs little. Items that are divided have few results. */
static void choose_parts(reduce_state_t *st, int shares, choice_t *choice)
{
    enum { MOST_PARTS = 64, LEAST_RUNS = 16, LEAST_ROWS = 256 };
    st->part = at_least((st->n_steps + MOST_PARTS - 1) / MOST_PARTS,
                        st->by_rows ? LEAST_RUNS : LEAST_ROWS);
    st->parts = at_least((st->n_steps + st->part - 1) / st->part, 1);
    st->divides = !choice->shares_bytes && st->parts > 1 && st->n_items > 0 && st->n_items < shares;
    choice->shared_bytes =
        st->divides ? (size_t)(st->n_items * st->parts * st->run) * sizeof(double) : 0;
    choice->phases = st->divides ? 2 : 1;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const frame_t *frame = problem->frame;
    const reduce_params_t *p = &problem->step->p.reduce;
    reduce_state_t *st = state;
    (void)config;
    SG_TRY(chain_bind(problem->step->pre, frame, self->needs, &st->pre));
    SG_TRY(chain_bind(problem->step->post, frame, self->needs, &st->post));
    st->fn = eltwise_table(self->needs);
    st->ndims = st->pre.ndims;
    SG_TRY(find_dims(p, st));
    for (int d = 0; d < st->ndims; d++) {
        st->dims[d] = st->pre.dims[d];
    }
    const int last = st->ndims - 1;
    st->by_rows = last >= 0 && st->reduced[last];
    st->run = st->along < 0 ? 1 : run_of_item(st, frame->shares);
    st->n_items = st->n_steps = 1;
    st->count = 1;
    for (int d = 0; d <= last; d++) {
        const int64_t n = st->dims[d];
        st->items[d] = st->reduced[d] ? 1 : d == st->along ? (n + st->run - 1) / st->run : n;
        st->steps[d] = !st->reduced[d] ? 1 : d == last ? (n + RUN - 1) / RUN : n;
        st->n_items *= st->items[d];
        st->n_steps *= st->steps[d];
        st->count *= st->reduced[d] ? (double)n : 1;
    }
    st->ahead = chain_converts_operands(&st->pre);
    choice->shares_bytes = chain_shares_bytes(&st->pre) || chain_shares_bytes(&st->post);
    choose_parts(st, frame->shares, choice);
    return sinter_success;
}

/* ---- folding --------------------------------------------------------------------------------- */

/* Without axes a reduction is the identity, a sum that begins with -0: -0 + x is x, -0 included. */
static double start_of(const reduce_params_t *p)
{
    return p->kind == sinter_op_reduce_max    ? -INFINITY
           : p->kind == sinter_op_reduce_min  ? INFINITY
           : p->kind == sinter_op_reduce_prod ? 1
           : p->n_axes == 0                   ? -0.0
                                              : 0;
}

/* Two folded values. */
static double merge_values(sinter_op_kind_t kind, double a, double b)
{
    switch (kind) {
    case sinter_op_reduce_max: /* NaN stays NaN */
        return b > a || b != b ? b : a;
    case sinter_op_reduce_min:
        return b < a || b != b ? b : a;
    case sinter_op_reduce_prod:
        return a * b;
    default: /* all others add */
        return a + b;
    }
}

static void merge(sinter_op_kind_t kind, double *sums, const double *more, int n)
{
    for (int i = 0; i < n; i++) {
        sums[i] = merge_values(kind, sums[i], more[i]);
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

static int64_t first_of(const reduce_state_t *st, const int64_t *item, int d)
{
    return d == st->along ? item[d] * st->run : item[d];
}

static int results_of(const reduce_state_t *st, const int64_t *item)
{
    return st->along < 0 ? 1
                         : (int)at_most(st->dims[st->along] - item[st->along] * st->run, st->run);
}

static void place_step(const reduce_state_t *st, const int64_t *at, int64_t *idx)
{
    for (int d = 0; d < st->ndims; d++) {
        if (st->reduced[d]) {
            idx[d] = d == st->ndims - 1 ? at[d] * RUN : at[d];
        }
    }
}

/* Folds steps begin..end - 1 of one result at idx, which are runs of a row. */
static void fold_row(const reduce_state_t *st, sinter_op_kind_t kind, int64_t *idx, int64_t begin,
                     int64_t end, double *sum, const buffers_t *b)
{
    const int last = st->ndims - 1;
    int64_t at[SINTER_MAX_NDIMS];
    walk_seek(st->ndims, st->steps, begin, at);
    for (int64_t i = begin; i < end; i++, walk_next(st->ndims, st->steps, at)) {
        place_step(st, at, idx);
        const int m = (int)at_most(st->dims[last] - idx[last], RUN);
        const float *x = chain_run_long(&st->pre, idx, m, b->x, b->chain);
        *sum = st->fn->fold_row[OP_SLOT(kind)](x, m, *sum);
    }
}

/* Folds steps begin..end - 1 of n results from idx on, which are rows of n elements. While some are
 * folded, as many that follow are fetched where `ahead` says so. */
static void fold_columns(const reduce_state_t *st, sinter_op_kind_t kind, int64_t *idx, int n,
                         int64_t begin, int64_t end, double *sums, const buffers_t *b)
{
    const int last = st->ndims - 1;
    const int64_t first = last >= 0 ? idx[last] : 0;
    int64_t at[2 * FOLDED][SINTER_MAX_NDIMS], next[SINTER_MAX_NDIMS];
    walk_seek(st->ndims, st->steps, begin, next);
    for (int64_t i = begin, rows; i < end; i += rows) {
        const int known = (int)at_most(end - i, st->ahead ? 2 * FOLDED : FOLDED);
        rows = at_most(known, FOLDED);
        for (int s = i == begin || !st->ahead ? 0 : FOLDED; s < known; s++) {
            memcpy(at[s], next, sizeof next);
            walk_next(st->ndims, st->steps, next);
        }
        for (int k = 0, m; k < n; k += m) {
            const float *x[FOLDED];
            m = (int)at_most(n - k, RUN);
            for (int s = 0; s < known; s++) {
                place_step(st, at[s], idx);
                if (last >= 0) {
                    idx[last] = first + k;
                }
                if (s < rows) {
                    x[s] = chain_run_long(&st->pre, idx, m, b->x + s * RUN, b->chain);
                } else {
                    chain_fetch(&st->pre, idx, m);
                }
            }
            st->fn->fold_columns[OP_SLOT(kind)](sums + k, x, (int)rows, m);
        }
        if (st->ahead) {
            memcpy(at[0], at[FOLDED], FOLDED * sizeof at[0]);
        }
    }
    if (last >= 0) {
        idx[last] = first;
    }
}

/* Folds a part of an item. */
static void fold_part(const reduce_state_t *st, const reduce_params_t *p, const int64_t *item,
                      int64_t part, double *sums, const buffers_t *b)
{
    const int n = results_of(st, item);
    const int64_t begin = part * st->part, end = at_most(begin + st->part, st->n_steps);
    int64_t idx[SINTER_MAX_NDIMS] = {0};
    for (int d = 0; d < st->ndims; d++) {
        idx[d] = first_of(st, item, d);
    }
    for (int i = 0; i < n; i++) {
        sums[i] = start_of(p);
    }
    if (begin >= end) { /* nothing is reduced */
        return;
    }
    if (!st->by_rows) {
        fold_columns(st, p->kind, idx, n, begin, end, sums, b);
        return;
    }
    for (int i = 0; i < n; i++) {
        fold_row(st, p->kind, idx, begin, end, &sums[i], b);
        if (st->along >= 0) {
            idx[st->along]++;
        }
    }
}

static void put_results(const reduce_state_t *st, sinter_op_kind_t kind, const int64_t *item,
                        const double *sums, const buffers_t *b)
{
    const int n = results_of(st, item);
    int64_t idx[SINTER_MAX_NDIMS] = {0};
    for (int d = 0; d < st->ndims; d++) {
        if (st->post_dim[d] >= 0) {
            idx[st->post_dim[d]] = first_of(st, item, d);
        }
    }
    /* Where the results end in dims of size 1 that were reduced, a run of results is not a run of
     * the chain. */
    const int step = st->along < 0 || st->post_dim[st->along] == st->post.ndims - 1 ? RUN : 1;
    for (int i = 0, m; i < n; i += m) {
        m = (int)at_most(n - i, step);
        for (int k = 0; k < m; k++) {
            const double sum = sums[i + k];
            b->x[k] = (float)(kind == sinter_op_reduce_mean ? sum / st->count
                              : kind == sinter_op_reduce_l2 ? sqrt(sum)
                                                            : sum);
        }
        (void)chain_run_long(&st->post, idx, m, b->x, b->chain);
        if (st->along >= 0) {
            idx[st->post_dim[st->along]] += m;
        }
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const reduce_state_t *st = state;
    const sinter_op_kind_t kind = p->step->p.reduce.kind;
    const reduce_params_t *params = &p->step->p.reduce;
    const int64_t jobs = st->n_items * (st->divides && w->phase == 0 ? st->parts : 1);
    int64_t begin, end, item[SINTER_MAX_NDIMS];
    buffers_t b;
    (void)self, (void)config;
    share(jobs, w->tid, w->nth, &begin, &end);
    if (begin >= end || (w->phase == 1 && !st->divides)) {
        return;
    }
    buffers(p->step, w->scratch, &b);
    for (int64_t job = begin; job < end; job++) {
        const bool one = st->divides && w->phase == 0;
        const int64_t i = one ? job / st->parts : job;
        double *folded = (double *)w->shared + i * st->parts * st->run;
        walk_seek(st->ndims, st->items, i, item);
        if (one) {
            const int64_t part = job % st->parts;
            fold_part(st, params, item, part, folded + part * st->run, &b);
            continue;
        }
        double *sums = st->divides ? folded : b.sums;
        if (!st->divides) {
            fold_part(st, params, item, 0, sums, &b);
        }
        for (int64_t k = 1; k < st->parts; k++) {
            double *more = st->divides ? folded + k * st->run : b.more;
            if (!st->divides) {
                fold_part(st, params, item, k, more, &b);
            }
            merge(kind, sums, more, results_of(st, item));
        }
        put_results(st, kind, item, sums, &b);
    }
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    buffers_t b;
    (void)self, (void)arena;
    out->state_bytes = sizeof(reduce_state_t);
    out->share_bytes = buffers(p->step, NULL, &b);
    out->note = "runs of 256, folded in f64";
    return sinter_success;
}

const driver_t driver_reduce_runs = {.step = STEP_REDUCE,
                                     .arithmetic = IN_F32,
                                     .phases = 2,
                                     .setup = setup,
                                     .choose = choose,
                                     .work = work};
