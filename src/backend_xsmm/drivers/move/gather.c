/* Gather and ScatterRows: elements move as they are. Indices are checked before anything is
 * written. */
#include "backend_xsmm/drivers/common/box.h"
#include "backend_xsmm/kernel.h"
#include "base/fetch.h"
#include "base/status.h"
#include "graph/layout.h"
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

/* ---- rows of a few bytes --------------------------------------------------------------------- */

enum { ELEMENT = 16 }; /* the most bytes of a row that moves by one load and one store */

static bool is_short(const box_t *row)
{
    return (double)row->n * row->type->bits <= 8 * ELEMENT;
}

/* Rows of more bytes are worth the calls that move them. */
static const char *refuse_elements(const box_t *row)
{
    const int64_t bytes = row->n * row->type->block_bytes;
    const bool dense = row->ndims == 0 || (row->ndims == 1 && row->from[0] == 1 && row->to[0] == 1);
    return !is_short(row)                             ? ""
           : row->type->block_elems > 1               ? "elements share bytes"
           : !dense                                   ? "elements of a row lie apart"
           : bytes == 0 || (bytes & (bytes - 1)) != 0 ? "rows are not of 1, 2, 4, 8 or 16 bytes"
                                                      : NULL;
}

/* ---- gather ---------------------------------------------------------------------------------- */

typedef struct gather_state {
    box_t inner; /* what one index takes of one outer index */
    const bound_t *data, *indices, *out;
    int axis, batch; /* the first dims, of which each index has indices of its own */
    int64_t rows, n; /* of outer and index positions; of dim `axis` */
    bool streams;
    int way;
    const lt_t *tiles; /* NULL: the data does not lie in tiles */
    layout_t layout;
    int64_t of_matrix;              /* bytes in tiles of an outer index */
    int64_t from[SINTER_MAX_NDIMS]; /* steps of outer indices: elements of the data, or matrices */
} gather_state_t;

/* The first dims of the output say where a row goes: those before the axis, and those of the
 * indices. */
static int positions_of(const gather_state_t *st)
{
    return st->axis + st->indices->ndims - st->batch;
}

static double row_bytes(const gather_state_t *st)
{
    return (double)st->inner.n * st->inner.type->bits / 8;
}

enum { OF_TILES, AS_ELEMENTS, PAST_CACHES, IN_CACHES };

static const char *refuse_gather(int way, const void *config, void *state)
{
    const gather_state_t *st = state;
    (void)config;
    return way == OF_TILES        ? st->tiles != NULL ? NULL : ""
           : way == AS_ELEMENTS   ? refuse_elements(&st->inner)
           : st->streams          ? NULL
           : is_short(&st->inner) ? ""
                                  : "what is written may stay in the caches";
}

const way_row_t ways_gather_rows[] = {{"rows of tiles", refuse_gather, OF_TILES},
                                      {"elements", refuse_gather, AS_ELEMENTS},
                                      {"rows past the caches", refuse_gather, PAST_CACHES},
                                      {"rows", NULL, IN_CACHES}};

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
    st->batch = p->batch;
    st->n = st->data->dims[st->axis];
    st->tiles = st->data->tiled != NOT_TILED ? &problem->plan->values[p->data].lt : NULL;
    int64_t matrices = 1;
    for (int d = st->axis - 1; d >= 0; d--) {
        st->from[d] = st->tiles != NULL ? matrices : st->data->strides[d];
        matrices *= st->data->dims[d];
    }
    if (st->tiles != NULL) {
        st->layout = layout_of(st->tiles);
        layout_bytes(st->tiles, &st->of_matrix);
        st->of_matrix = matrices > 0 ? st->of_matrix / matrices : 0;
    }
    const int inner = st->data->ndims - st->axis - 1;
    for (int d = 0; d < inner; d++) {
        const int from = st->axis + 1 + d;
        st->inner.dims[d] = st->data->dims[from];
        st->inner.from[d] = st->data->strides[from];
        st->inner.to[d] = st->out->strides[from + st->indices->ndims - st->batch - 1];
    }
    box_prepare(st->data->dtype, inner, &st->inner);
    st->rows = 1;
    const int per = st->inner.type->block_elems;
    choice->shares_bytes = st->inner.shares_byte;
    for (int d = 0; d < positions_of(st); d++) {
        st->rows *= st->out->dims[d];
        choice->shares_bytes =
            choice->shares_bytes || (st->out->dims[d] > 1 && st->out->strides[d] % per != 0);
    }
    st->streams = row_bytes(st) >= SHORTEST &&
                  (double)st->rows * row_bytes(st) > 0.5 * (double)problem->plan->cache_bytes &&
                  problem->plan->cache_bytes > 0;
    st->inner.past_caches = st->streams ? quant_rows(problem->plan->features) : NULL;
    st->way = take_way(ways_gather_rows, NULL, NULL, st, choice);
    return sinter_success;
}

static bool is_inside(const gather_state_t *st, int64_t index)
{
    return index >= -st->n && index < st->n;
}

/* The index at a position of the indices, counted from 0 on. */
static int64_t gather_index(const gather_state_t *st, int64_t at)
{
    const int64_t i = index_at(st->indices, at);
    return i < 0 ? i + st->n : i;
}

static int indices_of(const step_t *step, int i)
{
    const index_params_t *p = &step->p.index;
    return i == 0 ? p->indices : i == 1 ? p->table : i == 2 ? p->rows : -1;
}

/* An earlier step of the plan computes the indices, which cannot be wrong (graph_indices_fit). They
 * are not there yet when others are checked. */
static bool are_computed(const problem_t *p)
{
    const graph_t *g = &p->plan->sub;
    const int v = p->step->p.index.indices;
    return v < g->n_values && g->values[v].producer >= 0;
}

/* The first of n indices that is out of range; n: there is none. wide is a constant where this is
 * inlined; the loop without an exit is one that compilers vectorise. */
static inline __attribute__((always_inline)) int64_t first_outside(const gather_state_t *st,
                                                                   const bound_t *indices,
                                                                   int64_t place, int64_t step,
                                                                   int64_t n, bool wide)
{
    const unsigned char *at = indices->data + place * (wide ? 8 : 4);
    int64_t least = 0, most = -1;
    for (int64_t i = 0; i < n; i++) {
        const int64_t index = load_index(at, i * step, wide);
        least = index < least ? index : least;
        most = index > most ? index : most;
    }
    if (least >= -st->n && most < st->n) {
        return n;
    }
    int64_t i = 0;
    while (is_inside(st, load_index(at, i * step, wide))) {
        i++;
    }
    return i;
}

/* A line of n indices of a value, from a place on; l: its number. */
static sinter_status_t check_line(const problem_t *p, const gather_state_t *st, int value,
                                  int64_t place, int64_t l)
{
    const bound_t *indices = &p->frame->v[value];
    const int last = indices->ndims - 1;
    const int64_t n = last < 0 ? 1 : indices->dims[last],
                  step = last < 0 ? 0 : indices->strides[last],
                  i = indices->dtype == sinter_s64
                          ? first_outside(st, indices, place, step, n, true)
                      : step == 1 ? first_outside(st, indices, place, 1, n, false)
                                  : first_outside(st, indices, place, step, n, false);
    return i == n ? sinter_success
                  : sg_fail(sinter_invalid_arguments,
                            "Gather: tensor %llu: index %lld at position %lld is outside a "
                            "dimension of %lld",
                            problem_id(p, value), (long long)index_at(indices, place + i * step),
                            (long long)(l * n + i), (long long)st->n);
}

static sinter_status_t gather_check(const problem_t *p, const void *state)
{
    const gather_state_t *st = state;
    const index_params_t *params = &p->step->p.index;
    const bound_t *indices = st->indices;
    const int last = indices->ndims - 1;
    int64_t at[SINTER_MAX_NDIMS] = {0}, lines = are_computed(p) ? 0 : 1;
    for (int d = 0; d < last; d++) {
        lines *= indices->dims[d];
    }
    for (int64_t l = 0; l < lines; l++, walk_next(last, indices->dims, at)) {
        SG_TRY(check_line(p, st, params->indices, walk_place(last, at, indices->strides), l));
    }
    /* Which rows there are has been checked by the step that takes them. */
    const bound_t *table = params->table < 0 ? NULL : &p->frame->v[params->table],
                  *rows = params->rows < 0 ? NULL : &p->frame->v[params->rows];
    for (int64_t i = 0; table != NULL && i < rows->dims[0]; i++) {
        const int64_t row = index_at(rows, i * rows->strides[0]),
                      from_0 = row < 0 ? row + table->dims[0] : row;
        SG_TRY(check_line(p, st, params->table, from_0 * table->strides[0], from_0));
    }
    return sinter_success;
}

/* Rows that follow one another along the last of the positions: the first row's place in the
 * output, the place of its index, where index 0 is in the data, and the steps to the next row. */
typedef struct line {
    int64_t n, to, index, from, to_step, index_step, from_step;
} line_t;

static line_t line_at(const gather_state_t *st, int ndims, const int64_t *at, int64_t n)
{
    const bound_t *indices = st->indices;
    const int last = ndims - 1, own = indices->ndims - st->batch;
    const bool by_index = own > 0 || last + 1 == st->batch;
    return (line_t){.n = n,
                    .to = walk_place(ndims, at, st->out->strides),
                    .index = walk_place(st->batch, at, indices->strides) +
                             walk_place(own, at + st->axis, indices->strides + st->batch),
                    .from = walk_place(st->axis, at, st->from),
                    .to_step = last < 0 ? 0 : st->out->strides[last],
                    .index_step =
                        by_index && indices->ndims > 0 ? indices->strides[indices->ndims - 1] : 0,
                    .from_step = own > 0 || last < 0 ? 0 : st->from[last]};
}

/* Where row i of a line begins in the data. */
static int64_t gather_place(const gather_state_t *st, const line_t *l, int64_t i)
{
    const int64_t index = gather_index(st, l->index + i * l->index_step);
    return l->from + i * l->from_step + index * st->data->strides[st->axis];
}

/* The rows of a line, of so many bytes. bytes, wide (indices of 64 bits) and dense (what is read
 * and written goes on without gaps) are constants where this is inlined. */
static inline __attribute__((always_inline)) void
gather_elements(const gather_state_t *st, const line_t *l, int64_t bytes, bool wide, bool dense)
{
    const int64_t unit = st->inner.type->block_bytes, rows = l->n, n = st->n,
                  step = dense ? bytes : st->data->strides[st->axis] * unit,
                  to_step = dense ? bytes : l->to_step * unit, at_step = dense ? 1 : l->index_step,
                  from_step = dense ? 0 : l->from_step * unit;
    const unsigned char *restrict from = st->data->data + l->from * unit, *restrict at =
                                                                              st->indices->data +
                                                                              l->index *
                                                                                  (wide ? 8 : 4);
    unsigned char *restrict to = st->out->data + l->to * unit;
    for (int64_t i = 0; i < rows; i++) {
        const int64_t index = load_index(at, i * at_step, wide), below = index >> 63;
        memcpy(to + i * to_step, from + i * from_step + (index + (n & below)) * step,
               (size_t)bytes);
    }
}

/* All instances of a size. */
static inline __attribute__((always_inline)) void gather_sized(const gather_state_t *st,
                                                               const line_t *l, int64_t bytes)
{
    const int64_t unit = st->inner.type->block_bytes;
    const bool wide = st->indices->dtype == sinter_s64,
               dense = st->data->strides[st->axis] * unit == bytes && l->to_step * unit == bytes &&
                       l->index_step == 1 && l->from_step == 0;
    if (dense && wide) {
        gather_elements(st, l, bytes, true, true);
    } else if (dense) {
        gather_elements(st, l, bytes, false, true);
    } else if (wide) {
        gather_elements(st, l, bytes, true, false);
    } else {
        gather_elements(st, l, bytes, false, false);
    }
}

static void gather_line_of_elements(const gather_state_t *st, const line_t *l)
{
    BY_SIZE(gather_sized, st->inner.n * st->inner.type->block_bytes, st, l);
}

/* Prefetches the beginning of the row that is moved next. The hardware finds the rest. */
static void fetch_row(const gather_state_t *st, int64_t from)
{
    fetch_lines(st->data->data + from * st->inner.type->bits / 8,
                at_most((int64_t)row_bytes(st), FETCHED));
}

static void gather_line_of_rows(const gather_state_t *st, const line_t *l)
{
    int64_t from = gather_place(st, l, 0);
    for (int64_t i = 0; i < l->n; i++) {
        const int64_t row = from;
        if (i + 1 < l->n) {
            from = gather_place(st, l, i + 1);
            fetch_row(st, from);
        }
        box_move(&st->inner, st->data->data, row, st->out->data, l->to + i * l->to_step);
    }
}

/* Rows of tiles are their columns, or elements of K: tokens of a cache, rows of a table. */
static void gather_line_of_tiles(const gather_state_t *st, const line_t *l)
{
    const layout_t *of = &st->layout;
    const axis_t inner = {st->out->strides[positions_of(st)], 1};
    groups_t to = {.data = st->out->data,
                   .type = st->inner.type,
                   .dtype = st->data->dtype,
                   .row = inner,
                   .column = inner};
    for (int64_t i = 0; i < l->n; i++) {
        const int64_t row = gather_index(st, l->index + i * l->index_step);
        const unsigned char *from = st->data->data + (l->from + i * l->from_step) * st->of_matrix;
        to.first = l->to + i * l->to_step;
        if (of->across == st->axis) {
            tiles_take_column(from, of->what, of->K, row, &to);
        } else { /* of one block */
            tiles_take_row(from + row / of->K * (st->of_matrix / of->blocks), of->K, of->N,
                           row % of->K, &to);
        }
    }
}

static void gather_work(const kernel_t *self, const problem_t *p, const void *config,
                        const void *state, const worker_t *w)
{
    const gather_state_t *st = state;
    const int ndims = positions_of(st);
    const int64_t length = ndims > 0 ? st->out->dims[ndims - 1] : 1;
    int64_t begin, end, at[SINTER_MAX_NDIMS];
    (void)self, (void)p, (void)config;
    share(st->rows, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    walk_seek(ndims, st->out->dims, begin, at);
    for (int64_t i = begin, n = at_most(end - i, length - i % length); i < end;
         i += n, n = at_most(end - i, length)) {
        const line_t line = line_at(st, ndims, at, n);
        if (st->way == OF_TILES) {
            gather_line_of_tiles(st, &line);
        } else if (st->way == AS_ELEMENTS) {
            gather_line_of_elements(st, &line);
        } else {
            gather_line_of_rows(st, &line);
        }
        if (ndims > 0) {
            at[ndims - 1] = 0;
            walk_next(ndims - 1, st->out->dims, at);
        }
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
    int axis, batch, way; /* batch: the first dims, of which each index has slots of its own */
    int64_t outer, rows;
    const lt_t *tiles; /* NULL: the data does not lie in tiles */
    layout_t layout;
    int64_t bytes, of_matrix; /* all of the data in tiles, and what an outer index has of it */
} scatter_state_t;

enum { TOKENS_OF_TILES, SLOTS_OF_ELEMENTS, SLOTS_OF_ROWS };

static const char *refuse_scatter(int way, const void *config, void *state)
{
    const scatter_state_t *st = state;
    (void)config;
    return way == TOKENS_OF_TILES ? st->tiles != NULL ? NULL : "" : refuse_elements(&st->inner);
}

const way_row_t ways_scatter_rows[] = {{"tokens of tiles", refuse_scatter, TOKENS_OF_TILES},
                                       {"elements", refuse_scatter, SLOTS_OF_ELEMENTS},
                                       {"rows", NULL, SLOTS_OF_ROWS}};

static bool is_in_place(const scatter_state_t *st)
{
    return st->out->data == st->data->data || st->all.n == 0;
}

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
    st->batch = p->batch;
    st->rows = st->slots->dims[st->batch];
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
    choice->shares_bytes = st->all.shares_byte || st->inner.shares_byte;
    for (int d = 0; d <= st->axis; d++) {
        choice->shares_bytes =
            choice->shares_bytes || st->out->strides[d] % st->inner.type->block_elems != 0;
    }
    st->tiles = st->data->tiled != NOT_TILED ? &problem->plan->values[p->data].lt : NULL;
    if (st->tiles != NULL) { /* tokens whose codes share bytes go to one share */
        lt_t lt = *st->tiles;
        memcpy(lt.dims, st->data->dims, sizeof lt.dims);
        st->layout = layout_of(&lt);
        layout_bytes(&lt, &st->bytes);
        st->of_matrix = st->outer > 0 ? st->bytes / st->outer : 0;
        choice->shares_bytes = false;
    }
    st->way = take_way(ways_scatter_rows, NULL, NULL, st, choice);
    choice->first = is_in_place(st) ? 1 : 0;
    return sinter_success;
}

/* first: the place of the slot of row 0. */
static int64_t slot_of(const scatter_state_t *st, int64_t first, int64_t row)
{
    return index_at(st->slots, first + row * st->slots->strides[st->batch]);
}

static sinter_status_t scatter_check(const problem_t *p, const void *state)
{
    const scatter_state_t *st = state;
    const int64_t n = st->data->dims[st->axis];
    int64_t at[SINTER_MAX_NDIMS] = {0}, lists = are_computed(p) ? 0 : 1;
    for (int d = 0; d < st->batch; d++) {
        lists *= st->slots->dims[d];
    }
    for (int64_t l = 0; l < lists; l++, walk_next(st->batch, st->slots->dims, at)) {
        const int64_t first = walk_place(st->batch, at, st->slots->strides);
        for (int64_t i = 0; i < st->rows; i++) {
            const int64_t slot = slot_of(st, first, i);
            if (slot < -1 || slot >= n) {
                return sg_fail(sinter_invalid_arguments,
                               "ScatterRows: tensor %llu: slot %lld of row %lld is outside a "
                               "dimension of %lld",
                               problem_id(p, p->step->p.index.indices), (long long)slot,
                               (long long)(l * st->rows + i), (long long)n);
            }
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
    if (is_in_place(st)) {
        return;
    }
    if (st->tiles != NULL) {
        share(st->bytes, tid, nth, &begin, &end);
        memcpy(st->out->data + begin, st->data->data + begin, (size_t)(end - begin));
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

/* What one outer index takes: where its slots, its updates and its slot 0 begin, and which slots
 * belong to this share: those that leave `tid` when they are divided by `nth`. */
typedef struct slots {
    int64_t first, from, to;
    int tid, nth;
} slots_t;

/* Prefetches where a row is written soon, which only the slots tell. Of a longer row, the hardware
 * finds the lines behind the first ones. */
static void fetch_slot(const scatter_state_t *st, const slots_t *s, int64_t row)
{
    enum { LONGEST = 1024 };
    const int64_t bits = st->inner.type->bits, bytes = st->inner.n * bits / 8,
                  slot = row < st->rows ? slot_of(st, s->first, row) : -1;
    if (slot >= 0 && bytes <= LONGEST) {
        const int64_t to = s->to + slot * st->out->strides[st->axis];
        fetch_lines_to_write(st->out->data + to * bits / 8, bytes);
    }
}

static bool is_ours(const slots_t *s, int64_t slot)
{
    return slot >= 0 && (s->nth == 1 || slot % s->nth == s->tid);
}

/* Rows of updates are tokens, which become columns of the tiles of outer index `outer`, or elements
 * of their K. */
static void scatter_line_of_tiles(const scatter_state_t *st, const slots_t *s, int64_t outer)
{
    const layout_t *l = &st->layout;
    const bool columns = l->across == st->axis;
    const int64_t heads = l->heads > 0 ? l->heads : 1, matrix = st->of_matrix / (l->blocks * heads),
                  block = columns ? l->N : l->K; /* tokens */
    const axis_t tokens = {st->updates->strides[st->axis], 1},
                 head = {st->updates->strides[st->updates->ndims - 1], 1};
    groups_t from = {.data = st->updates->data,
                     .type = dtype_traits(st->updates->dtype),
                     .dtype = st->updates->dtype,
                     .row = columns ? head : tokens,
                     .column = columns ? tokens : head};
    unsigned char *to = st->out->data + outer * st->of_matrix;
    for (int64_t i = 0; i < st->rows; i++) {
        const int64_t slot = slot_of(st, s->first, i);
        if (slot < 0 || !is_ours(s, slot / TILES_K)) {
            continue;
        }
        unsigned char *at = to + slot / block * heads * matrix;
        for (int64_t h = 0; h < heads; h++, at += matrix) {
            from.first = s->from + h * st->updates->strides[st->updates->ndims - 2];
            if (columns) {
                tiles_put_column(&from, i, l->what, l->K, slot % block, at);
            } else {
                tiles_put_row(&from, i, l->K, l->N, slot % block, at);
            }
        }
    }
}

static void scatter_line_of_rows(const scatter_state_t *st, const slots_t *s)
{
    enum { AHEAD = 16 }; /* rows */
    for (int64_t i = 0; i < st->rows; i++) {
        const int64_t slot = slot_of(st, s->first, i);
        fetch_slot(st, s, i + AHEAD);
        if (is_ours(s, slot)) {
            box_move(&st->inner, st->updates->data, s->from + i * st->updates->strides[st->axis],
                     st->out->data, s->to + slot * st->out->strides[st->axis]);
        }
    }
}

/* bytes is a constant where this is inlined. */
static inline __attribute__((always_inline)) void scatter_elements(const scatter_state_t *st,
                                                                   const slots_t *s, size_t bytes)
{
    const int64_t unit = st->inner.type->block_bytes, step = st->out->strides[st->axis] * unit,
                  from_step = st->updates->strides[st->axis] * unit;
    const unsigned char *from = st->updates->data + s->from * unit;
    unsigned char *to = st->out->data + s->to * unit;
    for (int64_t i = 0; i < st->rows; i++, from += from_step) {
        const int64_t slot = slot_of(st, s->first, i);
        if (is_ours(s, slot)) {
            memcpy(to + slot * step, from, bytes);
        }
    }
}

static void scatter_line_of_elements(const scatter_state_t *st, const slots_t *s)
{
    BY_SIZE(scatter_elements, st->inner.n * st->inner.type->block_bytes, st, s);
}

static void scatter_work(const kernel_t *self, const problem_t *p, const void *config,
                         const void *state, const worker_t *w)
{
    const scatter_state_t *st = state;
    const int tid = w->tid, nth = w->nth;
    (void)self, (void)p, (void)config;
    if (w->phase == 0) {
        copy_data(st, tid, nth);
        return;
    }
    /* A slot belongs to one share, which takes its rows in their order: the last one stays. */
    const bool by_outer = st->outer >= nth;
    int64_t begin, end, at[SINTER_MAX_NDIMS];
    share(st->outer, by_outer ? tid : 0, by_outer ? nth : 1, &begin, &end);
    if (begin >= end) {
        return;
    }
    walk_seek(st->axis, st->data->dims, begin, at);
    for (int64_t o = begin; o < end; o++, walk_next(st->axis, st->data->dims, at)) {
        const slots_t slots = {.first = walk_place(st->batch, at, st->slots->strides),
                               .from = walk_place(st->axis, at, st->updates->strides),
                               .to = walk_place(st->axis, at, st->out->strides),
                               .tid = by_outer ? 0 : tid,
                               .nth = by_outer ? 1 : nth};
        if (st->way == TOKENS_OF_TILES) {
            scatter_line_of_tiles(st, &slots, o);
        } else if (st->way == SLOTS_OF_ELEMENTS) {
            scatter_line_of_elements(st, &slots);
        } else {
            scatter_line_of_rows(st, &slots);
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
    const bool gathers = p->step->kind == STEP_GATHER;
    out->state_bytes = gathers ? sizeof(gather_state_t) : sizeof(scatter_state_t);
    out->note = "rows are copied";
    return sinter_success;
}
