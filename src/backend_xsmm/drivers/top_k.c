/* TopK: the k largest (or smallest) elements of each row, and where they are. A row is passed over
 * once; elements that are not among the best so far cost a comparison. */
#include <math.h>

#include "backend_xsmm/drivers/box.h"
#include "backend_xsmm/kernel.h"
#include "base/status.h"

enum { RUN = 256 };

typedef struct top_k_state {
    const bound_t *in, *values, *indices;
    int axis;
    int64_t k, rows, extent[SINTER_MAX_NDIMS];
    bool largest, serial;
} top_k_state_t;

/* Larger is better: by x, then by i. i holds what a double cannot: s64, and that a NaN counts as
 * more than infinity. */
typedef struct rank {
    double x;
    int64_t i;
} rank_t;
typedef struct best {
    rank_t rank;
    int64_t at;
} best_t;

static bool beats(rank_t a, rank_t b)
{
    return a.x > b.x || (a.x == b.x && a.i > b.i);
}

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const top_k_params_t *p = &problem->step->p.top_k;
    top_k_state_t *st = state;
    (void)self, (void)config;
    if (problem->step->post->n_instrs > 0) {
        return sg_fail(sinter_unimplemented, "nothing can follow TopK in its step");
    }
    st->in = &problem->frame->v[p->in];
    st->values = &problem->frame->v[p->values];
    st->indices = &problem->frame->v[p->indices];
    st->axis = p->axis < 0 ? p->axis + st->in->ndims : p->axis;
    st->k = st->values->dims[st->axis];
    st->largest = p->largest;
    st->rows = 1;
    for (int d = 0; d < st->in->ndims; d++) {
        st->extent[d] = d == st->axis ? 1 : st->in->dims[d];
        st->rows *= st->extent[d];
    }
    choice->shared_bytes = (size_t)problem->frame->shares * (size_t)(st->k + 1) * sizeof(best_t);
    return sinter_success;
}

static rank_t rank_of(const top_k_state_t *st, double x, int64_t i)
{
    rank_t r = {x, st->in->dtype == sinter_s64 ? i : 0};
    if (x != x) {
        r = (rank_t){INFINITY, 1};
    } else if (st->in->dtype == sinter_s64) {
        r.x = 0;
    }
    return st->largest ? r : (rank_t){-r.x, ~r.i};
}

/* Keeps best[0..n) in order. Of equal elements the first one stays in front. */
static void take(best_t *best, int64_t *n, int64_t k, best_t new)
{
    if (*n == k && (k == 0 || !beats(new.rank, best[k - 1].rank))) {
        return;
    }
    int64_t i = *n < k ? (*n)++ : k - 1;
    for (; i > 0 && beats(new.rank, best[i - 1].rank); i--) {
        best[i] = best[i - 1];
    }
    best[i] = new;
}

static void one_row(const top_k_state_t *st, const int64_t *row, best_t *best)
{
    const bound_t *in = st->in;
    const dtype_traits_t *type = dtype_traits(in->dtype);
    const int64_t step = in->strides[st->axis], length = in->dims[st->axis];
    int64_t first = 0, values = 0, indices = 0, n = 0;
    double x[RUN];
    for (int d = 0; d < in->ndims; d++) {
        first += row[d] * in->strides[d];
        values += row[d] * st->values->strides[d];
        indices += row[d] * st->indices->strides[d];
    }
    for (int64_t i = 0; i < length; i += RUN) {
        const int64_t m = at_most(length - i, RUN);
        type->codec.load_f64(in->data, first + i * step, step, m, x);
        for (int64_t e = 0; e < m; e++) {
            const int64_t whole =
                in->dtype == sinter_s64 ? index_at(in, first + (i + e) * step) : 0;
            take(best, &n, st->k, (best_t){rank_of(st, x[e], whole), i + e});
        }
    }
    box_t one = {.ndims = 0};
    box_prepare(in->dtype, 0, &one);
    for (int64_t i = 0; i < st->k; i++) {
        const int32_t at = (int32_t)best[i].at;
        box_move(&one, in->data, first + at * step, st->values->data,
                 values + i * st->values->strides[st->axis]);
        memcpy(st->indices->data + (indices + i * st->indices->strides[st->axis]) * 4, &at, 4);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const top_k_state_t *st = state;
    best_t *best = (best_t *)w->shared + (st->k + 1) * w->tid;
    int64_t begin, end, row[SINTER_MAX_NDIMS];
    (void)self, (void)p, (void)config;
    share(st->rows, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    walk_seek(st->in->ndims, st->extent, begin, row);
    for (int64_t i = begin; i < end; i++, walk_next(st->in->ndims, st->extent, row)) {
        one_row(st, row, best);
    }
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    (void)self, (void)p, (void)arena;
    out->state_bytes = sizeof(top_k_state_t);
    out->note = "one pass over each row";
    return sinter_success;
}

const driver_t driver_topk_rows = {.step = STEP_TOP_K,
                                   .arithmetic = IN_F64,
                                   .phases = 1,
                                   .setup = setup,
                                   .choose = choose,
                                   .work = work};
