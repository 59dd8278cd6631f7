/* TopK: the k largest (or smallest) elements of each row, and where they are. A row is passed over
 * once; elements that are not among the best so far cost a comparison, of blocks of floats. */
#include <math.h>

#include "backend_xsmm/drivers/box.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/status.h"

enum { RUN = 256, BLOCK = 64 };

typedef struct top_k_state {
    const bound_t *in, *values, *indices;
    int axis;
    int64_t k, rows, extent[SINTER_MAX_NDIMS];
    bool largest;
    int way;
    const eltwise_table_t *fn;
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

enum { AT_ONCE, BY_BLOCKS, BY_ELEMENTS };

static const char *refuse_blocks(int way, const void *config, void *state)
{
    const top_k_state_t *st = state;
    const int64_t n = st->in->dims[st->axis];
    (void)config;
    return dtype_needs_f64(st->in->dtype) ? "the elements need double precision"
           : n > INT32_MAX                ? "a row has 2^31 elements or more"
           : way == AT_ONCE && (st->k > TOP_MOST || n > TOP_ROW || st->k > n) ? ""
                                                                              : NULL;
}

const way_row_t ways_top_k_rows[] = {{"short rows at once", refuse_blocks, AT_ONCE},
                                     {"blocks of floats", refuse_blocks, BY_BLOCKS},
                                     {"elements one by one", NULL, BY_ELEMENTS}};

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
    st->axis = axis_from_front(p->axis, st->in->ndims);
    st->k = st->values->dims[st->axis];
    st->largest = p->largest;
    st->rows = 1;
    for (int d = 0; d < st->in->ndims; d++) {
        st->extent[d] = d == st->axis ? 1 : st->in->dims[d];
        st->rows *= st->extent[d];
    }
    st->fn = eltwise_table(problem->plan->features);
    st->way = take_way(ways_top_k_rows, NULL, NULL, st, choice);
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

/* The best of a row of any type, from element `first` on. */
static void find_by_elements(const top_k_state_t *st, int64_t first, best_t *best)
{
    const bound_t *in = st->in;
    const dtype_traits_t *type = dtype_traits(in->dtype);
    const int64_t step = in->strides[st->axis], length = in->dims[st->axis];
    int64_t n = 0;
    double x[RUN];
    for (int64_t i = 0; i < length; i += RUN) {
        const int64_t m = at_most(length - i, RUN);
        type->codec.load_f64(in->data, first + i * step, step, m, x);
        for (int64_t e = 0; e < m; e++) {
            const int64_t whole =
                in->dtype == sinter_s64 ? index_at(in, first + (i + e) * step) : 0;
            take(best, &n, st->k, (best_t){rank_of(st, x[e], whole), i + e});
        }
    }
}

/* Puts a number where it belongs among best[0..k), which falls; the last one drops out. */
static void insert(int64_t *best, int64_t k, int64_t new)
{
    for (int64_t i = 0; i < k; i++) {
        const int64_t old = best[i], more = new > old ? new : old;
        new = new > old ? old : new;
        best[i] = more;
    }
}

/* An element as one number, its key above the bits of its inverted index: among equal elements the
 * first one is larger. */
static int64_t rank_at(int32_t key, int64_t i)
{
    return (int64_t)key * (INT64_C(1) << 32) + (UINT32_MAX - i);
}

/* Where the best are, of their ranks. best[i] begins at or behind found[i]. */
static void put_places(best_t *best, const int64_t *found, int64_t k)
{
    for (int64_t i = k - 1; i >= 0; i--) {
        best[i].at = UINT32_MAX - (found[i] & UINT32_MAX);
    }
}

/* The same for a row of TOP_ROW elements at most. False: it has too many equal ones. */
static bool find_at_once(const top_k_state_t *st, int64_t first, best_t *best)
{
    const bound_t *in = st->in;
    const int64_t step = in->strides[st->axis], n = in->dims[st->axis];
    int32_t key[TOP_ROW];
    int64_t found[TOP_MOST];
    float x[TOP_ROW];
    const bool floats = in->dtype == sinter_f32 && step == 1 && (uintptr_t)in->data % 4 == 0;
    const float *from = (const float *)(const void *)(in->data + first * 4);
    if (!floats) {
        eltwise_load(st->fn, in->dtype, in->data, first, step, (int)n, x);
        from = x;
    }
    (void)st->fn->rank_row(key, from, (int)n, !st->largest);
    if (!st->fn->top_row(found, key, (int)n, (int)st->k)) {
        return false;
    }
    put_places(best, found, st->k);
    return true;
}

/* The same for rows of floats. */
static void find_by_blocks(const top_k_state_t *st, int64_t first, best_t *best)
{
    const bound_t *in = st->in;
    const int64_t step = in->strides[st->axis], length = in->dims[st->axis], k = st->k;
    int64_t *const found = (int64_t *)(void *)best;
    int32_t key[BLOCK];
    float x[BLOCK];
    const bool floats = in->dtype == sinter_f32 && step == 1 && (uintptr_t)in->data % 4 == 0;
    for (int64_t i = 0; i < k; i++) {
        found[i] = INT64_MIN;
    }
    for (int64_t i = 0, m; k > 0 && i < length; i += m) {
        m = at_most(length - i, BLOCK);
        const float *from = (const float *)(const void *)(in->data + (first + i) * 4);
        if (!floats) {
            eltwise_load(st->fn, in->dtype, in->data, first + i * step, step, (int)m, x);
            from = x;
        }
        const int32_t most = st->fn->rank_row(key, from, (int)m, !st->largest);
        if (rank_at(most, i) <= found[k - 1]) {
            continue;
        }
        for (int64_t e = 0; e < m; e++) {
            const int64_t rank = rank_at(key[e], i + e);
            if (rank > found[k - 1]) {
                insert(found, k, rank);
            }
        }
    }
    put_places(best, found, k);
}

/* The best values of a row of floats, to element `to` on. */
static void put_floats(const top_k_state_t *st, int64_t first, int64_t to, const best_t *best)
{
    const int64_t step = st->in->strides[st->axis], to_step = st->values->strides[st->axis];
    for (int64_t i = 0; i < st->k; i++) {
        memcpy(st->values->data + (to + i * to_step) * 4,
               st->in->data + (first + best[i].at * step) * 4, 4);
    }
}

static void one_row(const top_k_state_t *st, const int64_t *row, best_t *best)
{
    const bound_t *in = st->in;
    const int64_t step = in->strides[st->axis];
    int64_t first = 0, values = 0, indices = 0;
    for (int d = 0; d < in->ndims; d++) {
        first += row[d] * in->strides[d];
        values += row[d] * st->values->strides[d];
        indices += row[d] * st->indices->strides[d];
    }
    if (st->way == BY_ELEMENTS) {
        find_by_elements(st, first, best);
    } else if (st->way != AT_ONCE || !find_at_once(st, first, best)) {
        find_by_blocks(st, first, best);
    }
    box_t one = {.ndims = 0};
    box_prepare(in->dtype, 0, &one);
    if (in->dtype == sinter_f32) {
        put_floats(st, first, values, best);
    }
    for (int64_t i = 0; i < st->k; i++) {
        const int32_t at = (int32_t)best[i].at;
        if (in->dtype != sinter_f32) {
            box_move(&one, in->data, first + at * step, st->values->data,
                     values + i * st->values->strides[st->axis]);
        }
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
