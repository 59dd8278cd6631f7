/* TopK: the k largest (or smallest) elements of each row, and where they are. A row is passed over
 * once; elements that are not among the best so far cost a comparison, of blocks of floats. A few
 * best are kept in order. Many are collected first, then sorted: a new one in its place would move
 * all that it beats. */
#include "backend_xsmm/drivers/common/box.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/status.h"

enum { BLOCK = 64 };
/* FEW: the most best elements that are kept in order. COLLECTED: the least number that are
 * collected before they are sorted, as far as a row has so many. */
enum { FEW = 32, COLLECTED = 2048 };

typedef struct top_k_state {
    const bound_t *in, *values, *indices;
    int axis;
    int64_t k, rows, extent[SINTER_MAX_NDIMS];
    int64_t room; /* entries that are collected before they are sorted */
    bool largest, wide;
    int way;
    const eltwise_table_t *fn;
} top_k_state_t;

/* A number with the order of the elements, and where the element is. The larger number is better,
 * and of equal ones the first. */
typedef struct best {
    int64_t key, at;
} best_t;

enum { AT_ONCE, BY_SORTING, BY_BLOCKS, BY_ELEMENTS };

static const char *refuse_rows(int way, const void *config, void *state)
{
    const top_k_state_t *st = state;
    const int64_t n = st->in->dims[st->axis];
    (void)config;
    if (way == BY_SORTING) {
        return st->k > FEW ? NULL : "";
    }
    return st->wide        ? "the elements need double precision"
           : n > INT32_MAX ? "a row has 2^31 elements or more"
           : way == AT_ONCE && (st->k > TOP_MOST || n > TOP_ROW || st->k > n) ? ""
                                                                              : NULL;
}

const way_row_t ways_top_k_rows[] = {{"short rows at once", refuse_rows, AT_ONCE},
                                     {"sorting what is collected", refuse_rows, BY_SORTING},
                                     {"blocks of floats", refuse_rows, BY_BLOCKS},
                                     {"elements one by one", NULL, BY_ELEMENTS}};

/* Entries that a share needs: the best, or all that it collects, twice. */
static int64_t entries_of(const top_k_state_t *st)
{
    return st->way == BY_SORTING ? 2 * st->room : st->k + 1;
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
    st->axis = axis_from_front(p->axis, st->in->ndims);
    st->k = st->values->dims[st->axis];
    st->largest = p->largest;
    st->rows = 1;
    for (int d = 0; d < st->in->ndims; d++) {
        st->extent[d] = d == st->axis ? 1 : st->in->dims[d];
        st->rows *= st->extent[d];
    }
    st->wide = dtype_needs_f64(st->in->dtype);
    st->fn = eltwise_table(problem->plan->features);
    st->way = take_way(ways_top_k_rows, NULL, NULL, st, choice);
    st->room = at_most(st->in->dims[st->axis], at_least(2 * st->k, COLLECTED));
    choice->shared_bytes = (size_t)problem->frame->shares * (size_t)entries_of(st) * sizeof(best_t);
    return sinter_success;
}

/* ---- elements that need double precision ----------------------------------------------------- */

/* The order of doubles as that of integers: zeros of both signs are equal, a NaN is above
 * infinity. */
static int64_t key_of(double x)
{
    int64_t bits;
    x += 0.0; /* -0 + 0 is 0 */
    memcpy(&bits, &x, sizeof bits);
    return x != x ? INT64_MAX : bits ^ (int64_t)((uint64_t)(bits >> 63) >> 1);
}

/* The keys of m <= BLOCK elements of s64, s32 or f64. */
static void wide_keys(const top_k_state_t *st, int64_t first, int64_t m, int64_t *key)
{
    const bound_t *in = st->in;
    const int64_t step = in->strides[st->axis], flip = st->largest ? 0 : -1;
    double x[BLOCK];
    if (in->dtype == sinter_f64) {
        dtype_traits(in->dtype)->codec.load_f64(in->data, first, step, m, x);
    }
    for (int64_t e = 0; e < m; e++) {
        key[e] = (in->dtype == sinter_f64 ? key_of(x[e]) : index_at(in, first + e * step)) ^ flip;
    }
}

/* Keeps best[0..n) in order. */
static void take(best_t *best, int64_t *n, int64_t k, best_t new)
{
    if (*n == k && (k == 0 || new.key <= best[k - 1].key)) {
        return;
    }
    int64_t i = *n < k ? (*n)++ : k - 1;
    for (; i > 0 && new.key > best[i - 1].key; i--) {
        best[i] = best[i - 1];
    }
    best[i] = new;
}

/* The best of a row, from element `first` on. */
static void find_by_elements(const top_k_state_t *st, int64_t first, best_t *best)
{
    const int64_t step = st->in->strides[st->axis], length = st->in->dims[st->axis];
    int64_t n = 0, key[BLOCK];
    for (int64_t i = 0, m; i < length; i += m) {
        m = at_most(length - i, BLOCK);
        wide_keys(st, first + i * step, m, key);
        for (int64_t e = 0; e < m; e++) {
            take(best, &n, st->k, (best_t){key[e], i + e});
        }
    }
}

/* ---- floats ---------------------------------------------------------------------------------- */

/* The keys of m <= TOP_ROW elements that f32 holds. Returns the largest. */
static int32_t float_keys(const top_k_state_t *st, int64_t first, int64_t m, int32_t *key)
{
    const bound_t *in = st->in;
    const int64_t step = in->strides[st->axis];
    const bool floats = in->dtype == sinter_f32 && step == 1 && (uintptr_t)in->data % 4 == 0;
    const float *from = (const float *)(const void *)(in->data + first * 4);
    float x[TOP_ROW];
    if (!floats) {
        eltwise_load(st->fn, in->dtype, in->data, first, step, (int)m, x);
        from = x;
    }
    return st->fn->rank_row(key, from, (int)m, !st->largest);
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
    const int64_t n = st->in->dims[st->axis];
    int32_t key[TOP_ROW];
    int64_t found[TOP_MOST];
    (void)float_keys(st, first, n, key);
    if (!st->fn->top_row(found, key, (int)n, (int)st->k)) {
        return false;
    }
    put_places(best, found, st->k);
    return true;
}

/* The same for a row of any length. */
static void find_by_blocks(const top_k_state_t *st, int64_t first, best_t *best)
{
    const int64_t step = st->in->strides[st->axis], length = st->in->dims[st->axis], k = st->k;
    int64_t *const found = (int64_t *)(void *)best;
    int32_t key[BLOCK];
    for (int64_t i = 0; i < k; i++) {
        found[i] = INT64_MIN;
    }
    for (int64_t i = 0, m; k > 0 && i < length; i += m) {
        m = at_most(length - i, BLOCK);
        const int32_t most = float_keys(st, first + i * step, m, key);
        if (top_rank(most, i) <= found[k - 1]) {
            continue;
        }
        for (int64_t e = 0; e < m; e++) {
            const int64_t rank = top_rank(key[e], i + e);
            if (rank > found[k - 1]) {
                insert(found, k, rank);
            }
        }
    }
    put_places(best, found, k);
}

/* ---- many of any type ------------------------------------------------------------------------ */

enum { DIGITS = 256 };

/* One pass of a radix sort: moves n entries to where byte `byte` of their keys puts them, the
 * largest first, in the order in which they are. Returns where they are then: all in `from`, if
 * they have the same byte. */
static best_t *sort_by_byte(best_t *from, best_t *to, int64_t n, int byte)
{
    int64_t place[DIGITS] = {0};
    const int shift = 8 * byte, flip = byte == 7 ? DIGITS / 2 : 0; /* of the sign */
    for (int64_t i = 0; i < n; i++) {
        place[(from[i].key >> shift & (DIGITS - 1)) ^ flip]++;
    }
    if (place[(from[0].key >> shift & (DIGITS - 1)) ^ flip] == n) {
        return from;
    }
    for (int64_t d = DIGITS - 1, before = 0; d >= 0; d--) {
        const int64_t count = place[d];
        place[d] = before;
        before += count;
    }
    for (int64_t i = 0; i < n; i++) {
        to[place[(from[i].key >> shift & (DIGITS - 1)) ^ flip]++] = from[i];
    }
    return to;
}

/* Sorts n entries by keys of so many bytes, the best first; `other` has room for as many. */
static void sort_entries(best_t *entries, best_t *other, int64_t n, int bytes)
{
    best_t *at = entries, *spare = other;
    for (int byte = 0; byte < bytes && n > 0; byte++) {
        best_t *const sorted = sort_by_byte(at, spare, n, byte);
        spare = sorted == at ? spare : at;
        at = sorted;
    }
    if (at != entries) {
        memcpy(entries, at, (size_t)n * sizeof *entries);
    }
}

/* Collects elements that may be among the best, sorts them when there is no more room, and goes on
 * with the best of them: an element costs as much as in a sort of the whole row, at most. */
static void find_by_sorting(const top_k_state_t *st, int64_t first, best_t *best)
{
    const int64_t step = st->in->strides[st->axis], length = st->in->dims[st->axis], k = st->k;
    best_t *const other = best + st->room;
    const int bytes = st->wide ? 8 : 4;
    int64_t n = 0, key[BLOCK];
    bool full = false; /* there are k elements, and best[k - 1] is the least of them */
    for (int64_t i = 0, m; i < length; i += m) {
        m = at_most(length - i, BLOCK);
        if (st->wide) {
            wide_keys(st, first + i * step, m, key);
        } else {
            int32_t narrow[BLOCK];
            const int64_t most = float_keys(st, first + i * step, m, narrow);
            if (full && most - INT32_MIN <= best[k - 1].key) {
                continue;
            }
            for (int64_t e = 0; e < m; e++) { /* 0 and more, so that four bytes have it all */
                key[e] = (int64_t)narrow[e] - INT32_MIN;
            }
        }
        if (n + m > st->room) {
            sort_entries(best, other, n, bytes);
            n = at_most(n, k);
            full = n == k;
        }
        const int64_t least = full ? best[k - 1].key : 0;
        for (int64_t e = 0; e < m; e++) {
            if (!full || key[e] > least) {
                best[n++] = (best_t){key[e], i + e};
            }
        }
    }
    sort_entries(best, other, n, bytes);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* The best elements of a row, of so many bytes each, to element `to` on. bytes is a constant where
 * this is inlined. */
static inline __attribute__((always_inline)) void
put_elements(const top_k_state_t *st, int64_t first, int64_t to, const best_t *best, int64_t bytes)
{
    const int64_t step = st->in->strides[st->axis], to_step = st->values->strides[st->axis];
    for (int64_t i = 0; i < st->k; i++) {
        memcpy(st->values->data + (to + i * to_step) * bytes,
               st->in->data + (first + best[i].at * step) * bytes, (size_t)bytes);
    }
}

static void put_values(const top_k_state_t *st, int64_t first, int64_t to, const best_t *best)
{
    BY_SIZE(put_elements, dtype_traits(st->in->dtype)->bits / 8, st, first, to, best);
}

static void one_row(const top_k_state_t *st, const int64_t *row, best_t *best)
{
    const bound_t *in = st->in;
    const int64_t first = walk_place(in->ndims, row, in->strides),
                  values = walk_place(in->ndims, row, st->values->strides),
                  indices = walk_place(in->ndims, row, st->indices->strides);
    if (st->way == BY_SORTING) {
        find_by_sorting(st, first, best);
    } else if (st->way == BY_ELEMENTS) {
        find_by_elements(st, first, best);
    } else if (st->way != AT_ONCE || !find_at_once(st, first, best)) {
        find_by_blocks(st, first, best);
    }
    put_values(st, first, values, best);
    for (int64_t i = 0; i < st->k; i++) {
        const int32_t at = (int32_t)best[i].at;
        memcpy(st->indices->data + (indices + i * st->indices->strides[st->axis]) * 4, &at, 4);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const top_k_state_t *st = state;
    best_t *best = (best_t *)w->shared + entries_of(st) * w->tid;
    int64_t begin, end, row[SINTER_MAX_NDIMS];
    (void)self, (void)p, (void)config;
    share(st->rows, w->tid, w->nth, &begin, &end);
    if (begin >= end || st->k == 0) {
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
