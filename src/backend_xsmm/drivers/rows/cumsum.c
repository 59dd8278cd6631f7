/* CumSum: sums of all elements up to each one along an axis, added in double.
 *
 * An item is a row, where the axis is the last dim, else up to CHAIN_BLOCK neighbours along the
 * last dim, whose sums are carried from one element of the axis to the next. */
#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/status.h"

typedef struct cumsum_state {
    chain_bound_t post;
    const eltwise_table_t *fn;
    const bound_t *x;
    int axis;
    bool exclusive, reverse;
    int64_t extent[SINTER_MAX_NDIMS], n_items; /* the last dim in blocks, the axis once */
} cumsum_state_t;

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    (void)self, (void)arena;
    out->state_bytes = sizeof(cumsum_state_t);
    out->share_bytes = chain_scratch_bytes(p->step->post);
    out->note = "one pass along the axis";
    return sinter_success;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    const cumsum_params_t *params = &p->step->p.cumsum;
    cumsum_state_t *st = state;
    (void)config, (void)choice;
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &st->post));
    st->fn = eltwise_table(self->needs);
    st->x = &p->frame->v[params->x];
    st->axis = axis_from_front(params->axis, st->x->ndims);
    st->exclusive = params->exclusive;
    st->reverse = params->reverse;
    st->n_items = st->x->dims[st->axis] > 0;
    for (int d = 0; d < st->x->ndims; d++) {
        const int64_t size = st->x->dims[d];
        st->extent[d] = d == st->axis          ? 1
                        : d < st->x->ndims - 1 ? size
                                               : (size + CHAIN_BLOCK - 1) / CHAIN_BLOCK;
        st->n_items *= st->extent[d];
    }
    return sinter_success;
}

/* y = the sums of n elements of a row, of which *sum are those before them; the order is that of x,
 * or the other way round. Four elements are added by themselves first: one of them does not wait
 * for the sum of all before it. */
static inline __attribute__((always_inline)) void add_up(const float *x, int n, bool exclusive,
                                                         bool reverse, double *sum, float *y)
{
    const int first = reverse ? n - 1 : 0, step = reverse ? -1 : 1;
    double before = *sum;
    int i = 0;
    for (; i + 4 <= n; i += 4) {
        const int at = first + i * step;
        const double a = x[at], b = a + x[at + step], c = b + x[at + 2 * step],
                     d = c + x[at + 3 * step];
        y[at] = (float)(exclusive ? before : before + a);
        y[at + step] = (float)(before + (exclusive ? a : b));
        y[at + 2 * step] = (float)(before + (exclusive ? b : c));
        y[at + 3 * step] = (float)(before + (exclusive ? c : d));
        before += d;
    }
    for (; i < n; i++) {
        const int at = first + i * step;
        const double with = before + x[at];
        y[at] = (float)(exclusive ? before : with);
        before = with;
    }
    *sum = before;
}

static void add_run(const cumsum_state_t *st, const float *x, int n, double *sum, float *y)
{
    if (st->reverse) {
        add_up(x, n, st->exclusive, true, sum, y);
    } else {
        add_up(x, n, st->exclusive, false, sum, y);
    }
}

/* The row at idx, whose last element is 0. */
static void one_row(const cumsum_state_t *st, int64_t *idx, void *scratch)
{
    const bound_t *x = st->x;
    const int64_t n = x->dims[st->axis], step = x->strides[st->axis],
                  at = walk_place(x->ndims, idx, x->strides);
    const int64_t blocks = (n + CHAIN_BLOCK - 1) / CHAIN_BLOCK;
    float from[CHAIN_BLOCK], y[CHAIN_BLOCK];
    double sum = 0;
    for (int64_t i = 0; i < blocks; i++) {
        const int64_t begin = (st->reverse ? blocks - 1 - i : i) * CHAIN_BLOCK;
        const int m = (int)at_most(n - begin, CHAIN_BLOCK);
        eltwise_load(st->fn, x->dtype, x->data, at + begin * step, step, m, from);
        add_run(st, from, m, &sum, y);
        idx[st->axis] = begin;
        chain_run(&st->post, idx, m, y, scratch);
    }
}

/* The neighbours at idx, whose element of the axis is 0 and whose last one is the number of a
 * block. */
static void one_block(const cumsum_state_t *st, int64_t *idx, void *scratch)
{
    const bound_t *x = st->x;
    const int last = x->ndims - 1;
    const int64_t n = x->dims[st->axis];
    float from[CHAIN_BLOCK], y[CHAIN_BLOCK];
    double sum[CHAIN_BLOCK] = {0};
    idx[last] *= CHAIN_BLOCK;
    const int m = (int)at_most(x->dims[last] - idx[last], CHAIN_BLOCK);
    for (int64_t i = 0; i < n; i++) {
        idx[st->axis] = st->reverse ? n - 1 - i : i;
        eltwise_load(st->fn, x->dtype, x->data, walk_place(x->ndims, idx, x->strides),
                     x->strides[last], m, from);
        for (int e = 0; e < m; e++) {
            const double with = sum[e] + from[e];
            y[e] = (float)(st->exclusive ? sum[e] : with);
            sum[e] = with;
        }
        chain_run(&st->post, idx, m, y, scratch);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const cumsum_state_t *st = state;
    const int ndims = st->x->ndims;
    int64_t begin, end, at[SINTER_MAX_NDIMS], idx[SINTER_MAX_NDIMS];
    (void)self, (void)p, (void)config;
    share(st->n_items, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    walk_seek(ndims, st->extent, begin, at);
    for (int64_t i = begin; i < end; i++, walk_next(ndims, st->extent, at)) {
        memcpy(idx, at, sizeof idx);
        if (st->axis == ndims - 1) {
            one_row(st, idx, w->scratch);
        } else {
            one_block(st, idx, w->scratch);
        }
    }
}

const driver_t driver_cumsum_rows = {.step = STEP_CUMSUM,
                                     .arithmetic = IN_F32,
                                     .phases = 1,
                                     .setup = setup,
                                     .choose = choose,
                                     .work = work};
