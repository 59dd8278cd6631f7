/* Pooling and interpolation. Along each spatial dim, a result takes some elements of the image: its
 * taps. The chain before the step computes runs of the image, which are folded into sums (or
 * extremes) in double; the chain behind it takes the results.
 *
 * Where channels are the last dim, an item is a run of channels of one result: it folds as many
 * runs as there are taps. Otherwise an item is a row of results along the last dim: the taps of the
 * other spatial dims fold rows of the image into one row, from which each result takes its taps
 * along the last dim. */
#include <math.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/status.h"

enum { RUN = CHAIN_LONG };
enum { FOLDED = 4 }; /* runs that are folded at once */

/* n elements of a dim, `step` apart. weight: of interpolation, which has at most two. */
typedef struct taps {
    int64_t first, step, n;
    double weight[2];
} taps_t;

typedef struct window_state {
    chain_bound_t pre, post;
    const eltwise_table_t *fn;
    int ndims, first, n; /* spatial dims first .. first + n - 1 */
    int64_t in[SINTER_MAX_NDIMS], out[SINTER_MAX_NDIMS];
    int64_t pad[SINTER_MAX_NDIMS];            /* before the first element, by spatial dim */
    int64_t items[SINTER_MAX_NDIMS], n_items; /* extents in items */
    bool weighted;
    sinter_op_kind_t fold; /* the reduction that folds what is not weighted */
} window_state_t;

typedef struct buffers {
    void *chain;
    float *x;     /* FOLDED runs */
    double *sums; /* a run */
    double *row;  /* of the image; in shared memory, because only execute knows its length */
} buffers_t;

static size_t buffers(const step_t *step, unsigned char *scratch, buffers_t *out)
{
    size_t at = 0;
    const size_t pre = chain_long_scratch_bytes(step->pre),
                 post = chain_long_scratch_bytes(step->post);
    out->chain = carve(scratch, &at, pre > post ? pre : post, 1);
    out->x = carve(scratch, &at, FOLDED * RUN, sizeof *out->x);
    out->sums = carve(scratch, &at, RUN, sizeof *out->sums);
    return at;
}

/* ---- geometry -------------------------------------------------------------------------------- */

static bool by_channels(const window_state_t *st)
{
    return st->first + st->n < st->ndims;
}

/* What a share has of shared memory: a row of the image. */
static size_t row_bytes(const window_state_t *st)
{
    return by_channels(st) ? 0 : scratch_round((size_t)st->in[st->ndims - 1] * sizeof(double));
}

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const frame_t *frame = problem->frame;
    const window_params_t *p = &problem->step->p.window;
    window_state_t *st = state;
    (void)config;
    SG_TRY(chain_bind(problem->step->pre, frame, self->needs, &st->pre));
    SG_TRY(chain_bind(problem->step->post, frame, self->needs, &st->post));
    st->fn = eltwise_table(self->needs);
    st->ndims = st->post.ndims;
    st->first = p->channel == 1 ? 2 : 1;
    st->n = st->ndims - 2;
    st->weighted = p->kind == sinter_op_interpolate;
    st->fold = p->kind == sinter_op_max_pool ? sinter_op_reduce_max : sinter_op_reduce_sum;
    st->n_items = 1;
    const int last = st->ndims - 1;
    for (int d = 0; d <= last; d++) {
        st->in[d] = st->pre.dims[d];
        st->out[d] = st->post.dims[d];
        st->items[d] = d < last ? st->out[d] : !by_channels(st) ? 1 : (st->out[d] + RUN - 1) / RUN;
        st->n_items = st->out[d] == 0 ? 0 : st->n_items * st->items[d];
    }
    for (int i = 0; i < st->n; i++) {
        st->pad[i] = window_begin(&p->dim[i], st->in[st->first + i], st->out[st->first + i]);
    }
    choice->shares_bytes = chain_shares_bytes(&st->pre) || chain_shares_bytes(&st->post);
    choice->shared_bytes = row_bytes(st) * (size_t)frame->shares;
    return sinter_success;
}

/* The taps of result o along spatial dim i that lie inside of the image. */
static taps_t window_taps(const window_state_t *st, const window_t *w, int i, int64_t o)
{
    const int64_t size = st->in[st->first + i], begin = o * w->stride - st->pad[i];
    const int64_t skip = begin < 0 ? (w->dilation - 1 - begin) / w->dilation : 0,
                  end = begin < size ? (size - 1 - begin) / w->dilation + 1 : 0,
                  n = at_most(w->kernel, end) - skip;
    return (taps_t){.first = begin + skip * w->dilation, .step = w->dilation, .n = n > 0 ? n : 0};
}

/* The coordinate of result o in the image is (a / b - 1) / 2, where dims give integers a and b. */
static taps_t interpolate_taps(const window_params_t *p, int64_t size, int64_t results, int64_t o)
{
    const int64_t b = !p->corners   ? results
                      : results > 1 ? results - 1
                                    : 1,
                  a = !p->corners ? (2 * o + 1) * size : 2 * o * (results > 1 ? size - 1 : 0) + b;
    if (p->nearest) {
        return (taps_t){.first = at_most(a / (2 * b), size - 1), .n = 1, .weight = {1, 0}};
    }
    const int64_t above = at_least(a - b, 0), left = at_most(above / (2 * b), size - 1);
    const double part = (double)(above - left * 2 * b) / (double)(2 * b);
    const bool two = part > 0 && left + 1 < size;
    return (taps_t){
        .first = left, .step = 1, .n = two ? 2 : 1, .weight = {two ? 1 - part : 1, two ? part : 0}};
}

static taps_t taps_of(const window_state_t *st, const window_params_t *p, int i, int64_t o)
{
    const int d = st->first + i;
    return st->weighted ? interpolate_taps(p, st->in[d], st->out[d], o)
                        : window_taps(st, &p->dim[i], i, o);
}

/* What a sum is divided by, of an average: the taps of the first n spatial dims. */
static double divisor(const window_params_t *p, int n, const taps_t *taps)
{
    double count = 1;
    for (int i = 0; i < n && p->kind == sinter_op_avg_pool; i++) {
        count *= (double)(p->exclude_pad ? taps[i].n : p->dim[i].kernel);
    }
    return count;
}

/* ---- folding --------------------------------------------------------------------------------- */

static void start_sums(const window_state_t *st, double *sums, int64_t n)
{
    const double start = st->fold == sinter_op_reduce_max ? -INFINITY : 0;
    for (int64_t i = 0; i < n; i++) {
        sums[i] = start;
    }
}

/* Puts the index and the weight of one combination of taps of the first n spatial dims. */
static double place_taps(const window_state_t *st, int n, const taps_t *taps, const int64_t *at,
                         int64_t *idx)
{
    double weight = 1;
    for (int i = 0; i < n; i++) {
        idx[st->first + i] = taps[i].first + at[i] * taps[i].step;
        weight *= st->weighted ? taps[i].weight[at[i]] : 1;
    }
    return weight;
}

/* Folds what the taps of the first n spatial dims have of a run of m elements at idx. */
static void fold_taps(const window_state_t *st, int n, const taps_t *taps, int64_t *idx, int m,
                      double *sums, const buffers_t *b)
{
    int64_t at[SINTER_MAX_NDIMS] = {0}, extent[SINTER_MAX_NDIMS], all = 1;
    for (int i = 0; i < n; i++) {
        extent[i] = taps[i].n;
        all *= taps[i].n;
    }
    for (int64_t i = 0, some; i < all; i += some) {
        const float *x[FOLDED];
        some = st->weighted ? 1 : at_most(all - i, FOLDED);
        double weight = 1;
        for (int s = 0; s < some; s++, walk_next(n, extent, at)) {
            weight = place_taps(st, n, taps, at, idx);
            x[s] = chain_run_long(&st->pre, idx, m, b->x + s * RUN, b->chain);
        }
        if (!st->weighted) {
            st->fn->fold_columns[OP_SLOT(st->fold)](sums, x, (int)some, m);
            continue;
        }
        for (int k = 0; k < m; k++) {
            sums[k] += weight * x[0][k];
        }
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

/* A run of channels. */
static void channels_item(const window_state_t *st, const window_params_t *p, const int64_t *item,
                          const buffers_t *b)
{
    const int last = st->ndims - 1;
    int64_t from[SINTER_MAX_NDIMS] = {0}, to[SINTER_MAX_NDIMS];
    taps_t taps[SINTER_MAX_NDIMS];
    for (int d = 0; d <= last; d++) {
        to[d] = d == last ? item[d] * RUN : item[d];
    }
    from[0] = to[0];
    from[last] = to[last];
    for (int i = 0; i < st->n; i++) {
        taps[i] = taps_of(st, p, i, to[st->first + i]);
    }
    const int m = (int)at_most(st->out[last] - to[last], RUN);
    const double count = divisor(p, st->n, taps);
    start_sums(st, b->sums, m);
    fold_taps(st, st->n, taps, from, m, b->sums, b);
    for (int k = 0; k < m; k++) {
        b->x[k] = (float)(count > 0 ? b->sums[k] / count : 0);
    }
    (void)chain_run_long(&st->post, to, m, b->x, b->chain);
}

/* One result of a row from the row of the image that the other taps were folded into. */
static float take_taps(const window_state_t *st, const taps_t *t, const double *row, double count)
{
    const double *x = row + t->first;
    double sum = st->fold == sinter_op_reduce_max ? -INFINITY : 0;
    for (int64_t k = 0; k < t->n; k++) {
        const double now = x[k * t->step];
        if (st->weighted) {
            sum += t->weight[k] * now;
        } else if (st->fold == sinter_op_reduce_max) {
            sum = now > sum || now != now ? now : sum;
        } else {
            sum += now;
        }
    }
    return (float)(count > 0 ? sum / count : 0);
}

static void row_item(const window_state_t *st, const window_params_t *p, const int64_t *item,
                     const buffers_t *b)
{
    const int last = st->ndims - 1, others = st->n - 1;
    int64_t from[SINTER_MAX_NDIMS] = {0}, to[SINTER_MAX_NDIMS];
    taps_t taps[SINTER_MAX_NDIMS];
    for (int d = 0; d <= last; d++) {
        to[d] = from[d] = d == last ? 0 : item[d];
    }
    for (int i = 0; i < others; i++) {
        taps[i] = taps_of(st, p, i, to[st->first + i]);
    }
    start_sums(st, b->row, st->in[last]);
    for (int64_t x = 0; x < st->in[last]; x += RUN) {
        from[last] = x;
        fold_taps(st, others, taps, from, (int)at_most(st->in[last] - x, RUN), b->row + x, b);
    }
    for (int64_t x = 0; x < st->out[last]; x += RUN) {
        const int m = (int)at_most(st->out[last] - x, RUN);
        for (int k = 0; k < m; k++) {
            taps[others] = taps_of(st, p, others, x + k);
            b->x[k] = take_taps(st, &taps[others], b->row, divisor(p, st->n, taps));
        }
        to[last] = x;
        (void)chain_run_long(&st->post, to, m, b->x, b->chain);
    }
}

static void work(const kernel_t *self, const problem_t *problem, const void *config,
                 const void *state, const worker_t *w)
{
    const window_state_t *st = state;
    const window_params_t *p = &problem->step->p.window;
    int64_t begin, end, item[SINTER_MAX_NDIMS];
    buffers_t b;
    (void)self, (void)config;
    share(st->n_items, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    buffers(problem->step, w->scratch, &b);
    b.row = (double *)(void *)((unsigned char *)w->shared + row_bytes(st) * (size_t)w->tid);
    walk_seek(st->ndims, st->items, begin, item);
    for (int64_t i = begin; i < end; i++, walk_next(st->ndims, st->items, item)) {
        (by_channels(st) ? channels_item : row_item)(st, p, item, &b);
    }
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    buffers_t b;
    (void)self, (void)arena;
    out->state_bytes = sizeof(window_state_t);
    out->share_bytes = buffers(p->step, NULL, &b);
    out->note = p->step->p.window.channel == 1 ? "a row of results at a time, folded in f64"
                                               : "a run of channels at a time, folded in f64";
    return sinter_success;
}

const driver_t driver_window_runs = {.step = STEP_WINDOW,
                                     .arithmetic = IN_F32,
                                     .phases = 1,
                                     .setup = setup,
                                     .choose = choose,
                                     .work = work};
