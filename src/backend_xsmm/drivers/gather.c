/* Gather and ScatterRows: elements move as they are. Indices are checked before anything is
 * written. */
#include "backend_xsmm/drivers/box.h"
#include "backend_xsmm/kernel.h"
#include "base/fetch.h"
#include "base/status.h"
#include "numeric/quant_rows.h"

/* SHORTEST: bytes of the shortest row that goes past the caches. FETCHED: the most bytes of a row
 * that are prefetched. */
enum { SHORTEST = 256, FETCHED = 8192 };

static sinter_status_t no_chain(const problem_t *p)
{
    return p->step->post->n_instrs == 0
               ? sinter_success
               : sg_fail(sinter_unimplemented, "nothing can follow rows that move by index");
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out);

/* ---- gather ---------------------------------------------------------------------------------- */

typedef struct gather_state {
    box_t inner; /* what one index takes of one outer index */
    const bound_t *data, *indices, *out;
    int axis;
    int64_t rows, n; /* of outer and index positions; of dim `axis` */
    bool serial, streams;
} gather_state_t;

enum { PAST_CACHES, IN_CACHES };

static const char *refuse_moves(int way, const void *config, void *state)
{
    const gather_state_t *st = state;
    (void)way, (void)config;
    return st->streams ? NULL : "what is written may stay in the caches";
}

const way_row_t ways_gather_rows[] = {{"rows past the caches", refuse_moves, PAST_CACHES},
                                      {"rows", NULL, IN_CACHES}};

static double row_bytes(const gather_state_t *st)
{
    return (double)st->inner.n * st->inner.type->bits / 8;
}

static sinter_status_t gather_choose(const kernel_t *self, const problem_t *problem,
                                     const void *config, void *state, choice_t *choice)
{
    const index_params_t *p = &problem->step->p.index;
    gather_state_t *st = state;
    (void)self, (void)config;
    SG_TRY(no_chain(problem));
    st->data = &problem->frame->v[p->data];
    st->indices = &problem->frame->v[p->indices];
    st->out = &problem->frame->v[p->out];
    st->axis = axis_from_front(p->axis, st->data->ndims);
    st->n = st->data->dims[st->axis];
    const int inner = st->data->ndims - st->axis - 1;
    for (int d = 0; d < inner; d++) {
        const int from = st->axis + 1 + d;
        st->inner.dims[d] = st->data->dims[from];
        st->inner.from[d] = st->data->strides[from];
        st->inner.to[d] = st->out->strides[from + st->indices->ndims - 1];
    }
    box_prepare(st->data->dtype, inner, &st->inner);
    st->rows = 1;
    const int per = st->inner.type->block_elems;
    st->serial = st->inner.shares_byte;
    for (int d = 0; d < st->axis + st->indices->ndims; d++) {
        st->rows *= st->out->dims[d];
        st->serial = st->serial || (st->out->dims[d] > 1 && st->out->strides[d] % per != 0);
    }
    st->streams = row_bytes(st) >= SHORTEST &&
                  (double)st->rows * row_bytes(st) > 0.5 * (double)problem->plan->cache_bytes &&
                  problem->plan->cache_bytes > 0;
    st->inner.past_caches = st->streams ? quant_rows(problem->plan->features) : NULL;
    take_way(ways_gather_rows, NULL, NULL, st, choice);
    add_serial_way(choice, st->serial);
    return sinter_success;
}

/* The index at a position of the indices, counted from 0 on; -1: it is out of range. */
static int64_t gather_index(const gather_state_t *st, int64_t at)
{
    const int64_t i = index_at(st->indices, at), from_0 = i < 0 ? i + st->n : i;
    return from_0 < 0 || from_0 >= st->n ? -1 : from_0;
}

static int64_t place_of(int ndims, const int64_t *at, const int64_t *strides)
{
    int64_t place = 0;
    for (int d = 0; d < ndims; d++) {
        place += at[d] * strides[d];
    }
    return place;
}

static int indices_of(const step_t *step)
{
    return step->p.index.indices;
}

static sinter_status_t gather_check(const problem_t *p, const void *state)
{
    const gather_state_t *st = state;
    const bound_t *indices = st->indices;
    int64_t at[SINTER_MAX_NDIMS] = {0}, n = 1;
    for (int d = 0; d < indices->ndims; d++) {
        n *= indices->dims[d];
    }
    for (int64_t i = 0; i < n; i++, walk_next(indices->ndims, indices->dims, at)) {
        const int64_t place = place_of(indices->ndims, at, indices->strides);
        if (gather_index(st, place) < 0) {
            return sg_fail(sinter_invalid_arguments,
                           "Gather: tensor %llu: index %lld at position %lld is outside a "
                           "dimension of %lld",
                           problem_id(p, p->step->p.index.indices),
                           (long long)index_at(indices, place), (long long)i, (long long)st->n);
        }
    }
    return sinter_success;
}

/* Where the row for a position of the output begins in the data. */
static int64_t gather_place(const gather_state_t *st, const int64_t *at)
{
    const int64_t index =
        gather_index(st, place_of(st->indices->ndims, at + st->axis, st->indices->strides));
    return place_of(st->axis, at, st->data->strides) + index * st->data->strides[st->axis];
}

/* Prefetches the beginning of the row that is moved next. The hardware finds the rest. */
static void fetch_row(const gather_state_t *st, int64_t from)
{
    fetch_lines(st->data->data + from * st->inner.type->bits / 8,
                at_most((int64_t)row_bytes(st), FETCHED));
}

static void gather_work(const kernel_t *self, const problem_t *p, const void *config,
                        const void *state, const worker_t *w)
{
    const gather_state_t *st = state;
    const int outer = st->axis, n = outer + st->indices->ndims;
    int64_t begin, end, at[SINTER_MAX_NDIMS];
    (void)self, (void)p, (void)config;
    share(st->rows, st->serial ? 0 : w->tid, st->serial ? 1 : w->nth, &begin, &end);
    if (begin >= end || (st->serial && w->tid > 0)) {
        return;
    }
    walk_seek(n, st->out->dims, begin, at);
    int64_t from = gather_place(st, at);
    for (int64_t i = begin; i < end; i++) {
        const int64_t row = from, to = place_of(n, at, st->out->strides);
        walk_next(n, st->out->dims, at);
        if (i + 1 < end) {
            from = gather_place(st, at);
            fetch_row(st, from);
        }
        box_move(&st->inner, st->data->data, row, st->out->data, to);
    }
    if (st->streams) {
        st->inner.past_caches->stream_end();
    }
}

const driver_t driver_gather_rows = {.step = STEP_GATHER,
                                     .arithmetic = IN_ANY,
                                     .phases = 1,
                                     .setup = setup,
                                     .choose = gather_choose,
                                     .check = gather_check,
                                     .checked = indices_of,
                                     .work = gather_work};

/* ---- scatter --------------------------------------------------------------------------------- */

typedef struct scatter_state {
    box_t all;   /* the data that is copied, where the output is not the data */
    box_t inner; /* a row of updates for one outer index */
    const bound_t *data, *slots, *updates, *out;
    int axis;
    int64_t outer, rows;
    bool serial;
} scatter_state_t;

static sinter_status_t scatter_choose(const kernel_t *self, const problem_t *problem,
                                      const void *config, void *state, choice_t *choice)
{
    const index_params_t *p = &problem->step->p.index;
    scatter_state_t *st = state;
    (void)self, (void)config;
    SG_TRY(no_chain(problem));
    st->data = &problem->frame->v[p->data];
    st->slots = &problem->frame->v[p->indices];
    st->updates = &problem->frame->v[p->updates];
    st->out = &problem->frame->v[p->out];
    const int ndims = st->data->ndims;
    st->axis = axis_from_front(p->axis, ndims);
    st->rows = st->slots->dims[0];
    st->outer = 1;
    for (int d = 0; d < ndims; d++) {
        st->all.dims[d] = st->data->dims[d];
        st->all.from[d] = st->data->strides[d];
        st->all.to[d] = st->out->strides[d];
        st->outer *= d < st->axis ? st->data->dims[d] : 1;
    }
    for (int d = st->axis + 1; d < ndims; d++) {
        const int k = d - st->axis - 1;
        st->inner.dims[k] = st->data->dims[d];
        st->inner.from[k] = st->updates->strides[d];
        st->inner.to[k] = st->out->strides[d];
    }
    box_prepare(st->data->dtype, ndims, &st->all);
    box_prepare(st->data->dtype, ndims - st->axis - 1, &st->inner);
    st->serial = st->all.shares_byte || st->inner.shares_byte;
    for (int d = 0; d <= st->axis; d++) {
        st->serial = st->serial || st->out->strides[d] % st->inner.type->block_elems != 0;
    }
    add_serial_way(choice, st->serial);
    return sinter_success;
}

static int64_t slot_of(const scatter_state_t *st, int64_t row)
{
    return index_at(st->slots, row * st->slots->strides[0]);
}

static sinter_status_t scatter_check(const problem_t *p, const void *state)
{
    const scatter_state_t *st = state;
    const int64_t n = st->data->dims[st->axis];
    for (int64_t i = 0; i < st->rows; i++) {
        const int64_t slot = slot_of(st, i);
        if (slot < -1 || slot >= n) {
            return sg_fail(sinter_invalid_arguments,
                           "ScatterRows: tensor %llu: slot %lld of row %lld is outside a "
                           "dimension of %lld",
                           problem_id(p, p->step->p.index.indices), (long long)slot, (long long)i,
                           (long long)n);
        }
    }
    return sinter_success;
}

/* A copy of the data, in shares of its first dim: in whole bytes, where that is a run of elements
 * of less than a byte. */
static void copy_data(const scatter_state_t *st, int tid, int nth)
{
    box_t part = st->all;
    int64_t begin, end;
    if (st->out->data == st->data->data || part.n == 0) {
        return;
    }
    const int64_t n = part.ndims > 0 ? part.dims[0] : 1,
                  per = part.ndims == 1 ? part.type->block_elems : 1;
    share((n + per - 1) / per, tid, nth, &begin, &end);
    begin *= per;
    end = at_most(end * per, n);
    if (begin >= end) {
        return;
    }
    const int64_t from = part.ndims > 0 ? begin * part.from[0] : 0,
                  to = part.ndims > 0 ? begin * part.to[0] : 0;
    if (part.ndims > 0) {
        part.dims[0] = end - begin;
    }
    box_move(&part, st->data->data, from, st->out->data, to);
}

/* Prefetches where a row is written soon, which only the slots tell. Of a longer row, the hardware
 * finds the lines behind the first ones. to: where slot 0 begins. */
static void fetch_slot(const scatter_state_t *st, int64_t row, int64_t to)
{
    enum { LONGEST = 1024 };
    const int64_t bits = st->inner.type->bits, bytes = st->inner.n * bits / 8,
                  slot = row < st->rows ? slot_of(st, row) : -1;
    if (slot >= 0 && bytes <= LONGEST) {
        to += slot * st->out->strides[st->axis];
        fetch_lines_to_write(st->out->data + to * bits / 8, bytes);
    }
}

static void scatter_work(const kernel_t *self, const problem_t *p, const void *config,
                         const void *state, const worker_t *w)
{
    const scatter_state_t *st = state;
    const int tid = st->serial ? 0 : w->tid, nth = st->serial ? 1 : w->nth;
    (void)self, (void)p, (void)config;
    if (st->serial && w->tid > 0) {
        return;
    }
    if (w->phase == 0) {
        copy_data(st, tid, nth);
        return;
    }
    enum { AHEAD = 16 }; /* rows */
    /* A slot belongs to one share, which takes its rows in their order: the last one stays. */
    const bool by_outer = st->outer >= nth;
    int64_t begin, end, at[SINTER_MAX_NDIMS];
    share(st->outer, by_outer ? tid : 0, by_outer ? nth : 1, &begin, &end);
    if (begin >= end) {
        return;
    }
    walk_seek(st->axis, st->data->dims, begin, at);
    for (int64_t o = begin; o < end; o++, walk_next(st->axis, st->data->dims, at)) {
        const int64_t from = place_of(st->axis, at, st->updates->strides),
                      to = place_of(st->axis, at, st->out->strides);
        for (int64_t i = 0; i < st->rows; i++) {
            const int64_t slot = slot_of(st, i);
            fetch_slot(st, i + AHEAD, to);
            if (slot >= 0 && (by_outer || slot % nth == tid)) {
                box_move(&st->inner, st->updates->data, from + i * st->updates->strides[st->axis],
                         st->out->data, to + slot * st->out->strides[st->axis]);
            }
        }
    }
}

const driver_t driver_scatter_rows = {.step = STEP_SCATTER,
                                      .arithmetic = IN_ANY,
                                      .phases = 2,
                                      .setup = setup,
                                      .choose = scatter_choose,
                                      .check = scatter_check,
                                      .checked = indices_of,
                                      .work = scatter_work};

/* ---------------------------------------------------------------------------------------------- */

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    (void)self, (void)arena;
    out->state_bytes =
        p->step->kind == STEP_GATHER ? sizeof(gather_state_t) : sizeof(scatter_state_t);
    out->note = "rows are copied";
    return sinter_success;
}
