/* Constant weights in the layout that kernels want: a copy of the engine's constant cache
 * instead of the tensor. */
#include <stdatomic.h>
#include <string.h>

#include "backend_xsmm/exec/frame.h"
#include "backend_xsmm/ukernels/tile.h"
#include "base/status.h"
#include "graph/layout.h"
#include "numeric/tiles_bulk.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* True if a packed value is a copy; else it is its base. */
static bool wants_copy(const plan_t *plan, const frame_mem_t *fm, int i)
{
    const bound_t *base = &fm->v[plan->values[i].base];
    const int along = plan->values[i].along;
    bool some =
        plan->values[i].tiled != NOT_TILED || (base->strides[along] != 1 && base->dims[along] > 1);
    for (int d = 0; d < base->ndims; d++) {
        some = some && base->dims[d] > 0;
    }
    return some;
}

static sinter_status_t too_large(const plan_t *plan, int i)
{
    return sg_fail(sinter_invalid_shape, "tensor %llu: size of the packed weights overflows",
                   (unsigned long long)plan->values[plan->values[i].base].lt.id);
}

/* Strides of all dims but one, the innermost *stride, which becomes the elements of all; false on
 * overflow. */
static bool dense_but(bound_t *b, int dim, int64_t *stride)
{
    for (int d = b->ndims - 1; d >= 0; d--) {
        if (d != dim) {
            b->strides[d] = *stride;
            if (!mul_i64(*stride, b->dims[d], stride)) {
                return false;
            }
        }
    }
    return true;
}

/* Elements of K of a matrix in tiles. False: too many. */
static bool rows_of(int along, bool window, const int64_t *dims, int64_t *K)
{
    *K = 1;
    for (int d = window ? 1 : at_least(along, 0); d <= along; d++) {
        if (!mul_i64(*K, dims[d], K)) {
            return false;
        }
    }
    return true;
}

/* Groups of a convolution, or experts: their matrices follow one another. False: too many. */
static bool matrices_of(int ndims, const int64_t *dims, int across, int along, bool window,
                        int64_t *n)
{
    bool fits = true;
    *n = window ? dims[0] : 1;
    for (int d = 0; d < ndims && !window; d++) {
        fits = fits && (d == across || d == along || mul_i64(*n, dims[d], n));
    }
    return fits;
}

/* Bytes of the tiles of all matrices. False: too many. */
static bool tiles_of(const plan_value_t *v, const bound_t *base, int64_t *bytes)
{
    const int64_t N = v->across < 0 ? 1 : base->dims[v->across];
    int64_t K, matrices;
    return rows_of(v->along, v->window, base->dims, &K) &&
           matrices_of(base->ndims, base->dims, v->across, v->along, v->window, &matrices) &&
           (tiles_are_values(v->tiled)
                ? tiles_of_values(v->tiled, base->dtype, K, N, bytes)
                : tiles_of_codes(tiles_bits(v->tiled, base->dtype), K, N, bytes)) &&
           mul_i64(*bytes, matrices, bytes);
}

/* The other dims keep their order. */
static sinter_status_t resolve_packed(const plan_t *plan, frame_mem_t *fm, int i)
{
    const int along = plan->values[i].along, line = plan->values[i].line;
    bound_t *b = &fm->v[i];
    *b = fm->v[plan->values[i].base];
    if (!wants_copy(plan, fm, i)) {
        return sinter_success;
    }
    b->tiled = plan->values[i].tiled;
    if (b->tiled != NOT_TILED) {
        return sinter_success;
    }
    int64_t stride = (b->dims[along] + line - 1) / line * line;
    b->strides[along] = 1;
    return dense_but(b, along, &stride) ? sinter_success : too_large(plan, i);
}

sinter_status_t frame_packed_shapes(const plan_t *plan, frame_mem_t *fm)
{
    for (int i = plan->n_values - plan->n_packed; i < plan->n_values; i++) {
        SG_TRY(resolve_packed(plan, fm, i));
    }
    return sinter_success;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* The matrix of the last two dims at one batch index; rows are the dim that becomes contiguous. */
static void pack_matrix(const constant_key_t *key, int along, int64_t from, int64_t to,
                        const tile_table_t *tile, const dtype_bulk_t *bulk, void *memory)
{
    enum { LINES = 16, ALONG = 256 };
    const int across = key->ndims - 1 - (along == key->ndims - 1);
    const matrix_t src = {.codes = {.data = key->data,
                                    .type = dtype_traits((sinter_data_type_t)key->type),
                                    .dtype = (sinter_data_type_t)key->type,
                                    .first = from,
                                    .row = {key->strides[across], 1},
                                    .column = {key->strides[along], 1}}};
    float x[LINES * ALONG];
    for (int64_t r = 0; r < key->dims[across]; r += LINES) {
        const int rows = (int)at_most(key->dims[across] - r, LINES);
        for (int64_t c = 0; c < key->dims[along]; c += ALONG) {
            const int n = (int)at_most(key->dims[along] - c, ALONG);
            tile->load(&src, (rect_t){r, rows, c, n}, x, ALONG, rows, n);
            for (int i = 0; i < rows; i++) {
                bulk->store(memory, to + (r + i) * key->packed[across] + c, n, x + i * ALONG);
            }
        }
    }
}

enum { PACK_PARTS = 64 };

/* Weights that become tiles, by ranges of columns, which threads take until none is left. A thread
 * begins with those that the same thread will multiply, if all are there: on machines with several
 * memory nodes a page belongs to the node of the thread that writes it first. */
typedef struct tiles_task {
    groups_t from;
    features_t features;
    tiled_t as;
    int64_t K, N, some; /* columns of a range: whole strips */
    unsigned char *to;
    int64_t strip; /* bytes */
    /* NULL, or of a window whose elements of K are not evenly apart: the tensor. */
    const constant_key_t *window;
    int threads, parts;
    _Atomic int64_t next[PACK_PARTS]; /* by part: the next range that nobody has taken */
} tiles_task_t;

/* Element k of a window that has all dims of a group up to `along`: where it lies in the data.
 * *run: so many follow it along the last of these dims. */
static int64_t seek_window(const constant_key_t *key, int64_t k, int64_t *run)
{
    const int64_t last = key->dims[key->along];
    int64_t at = 0;
    *run = last - k % last;
    for (int d = key->along; d > 0; d--) {
        at += k % key->dims[d] * key->strides[d];
        k /= key->dims[d];
    }
    return at;
}

/* A strip, tile by tile, by way of floats. */
static void pack_window(const tiles_task_t *t, int64_t n, unsigned char *to)
{
    const constant_key_t *key = t->window;
    const int columns = (int)at_most(t->N - n, TILES_COLUMNS);
    const dtype_bulk_t *bulk = dtype_bulk(t->from.dtype, t->features);
    matrix_t src = {.codes = t->from};
    groups_t dense = t->from;
    float x[TILES_K * TILES_COLUMNS];
    unsigned char elements[sizeof x];
    dense.data = elements;
    dense.first = 0;
    dense.row.stride = TILES_COLUMNS;
    dense.column.stride = 1;
    for (int64_t k = 0; k < t->K; k += TILES_K, to += tiles_bytes(tiles_bits(t->as, dense.dtype))) {
        const int rows = (int)at_most(t->K - k, TILES_K);
        int64_t run;
        for (int r = 0, some; r < rows; r += some) {
            src.codes.first = codes_at(&t->from, 0, n) + seek_window(key, k + r, &run);
            some = (int)at_most(rows - r, run);
            tile_table(t->features)
                ->load(&src, (rect_t){0, some, 0, columns}, x + r * TILES_COLUMNS, TILES_COLUMNS,
                       some, TILES_COLUMNS);
        }
        bulk->store(elements, 0, (int64_t)rows * TILES_COLUMNS, x);
        (void)tiles_bulk_pack_codes(t->features, &dense, t->as, rows, columns, to);
    }
}

/* The columns of the ranges of one part. */
static void pack_part(tiles_task_t *t, int part)
{
    const int64_t ranges = (t->N + t->some - 1) / t->some;
    int64_t begin, end;
    share(ranges, part, t->parts, &begin, &end);
    for (int64_t i; (i = begin + atomic_fetch_add(&t->next[part], 1)) < end;) {
        const int64_t n = i * t->some, columns = at_most(t->N - n, t->some);
        unsigned char *to = t->to + n / TILES_COLUMNS * t->strip;
        groups_t from = t->from;
        for (int64_t c = 0; t->window != NULL && c < columns; c += TILES_COLUMNS) {
            pack_window(t, n + c, to + c / TILES_COLUMNS * t->strip);
        }
        if (t->window != NULL) {
            continue;
        }
        from.first = codes_at(&t->from, 0, n);
        if (!tiles_are_values(t->as)) {
            (void)tiles_bulk_pack_codes(t->features, &from, t->as, t->K, columns, to);
        } else {
            (void)tiles_bulk_pack_values(t->features, &from, t->as, t->K, columns, to);
        }
    }
}

static void pack_ranges(void *data, int worker)
{
    tiles_task_t *t = data;
    const int own = (int)((int64_t)worker * t->parts / t->threads);
    for (int i = 0; i < t->parts; i++) {
        pack_part(t, (own + i) % t->parts);
    }
}

/* What copies of constants are made with. */
typedef struct packing {
    const plan_t *plan;
    threads_t threads;
} packing_t;

/* Whether the columns of all matrices are as far apart as those of one; of several there is one dim
 * more. */
static bool lies_as_one(const constant_key_t *key)
{
    const int last = key->ndims - 1, across = key->across;
    return last < 2 || key->dims[last - 2] == 1 || across < 0 ||
           key->strides[last - 2] == key->dims[across] * key->strides[across];
}

/* The threads of a caller's own pool are left alone: they may be waiting for this copy. */
static void pack_tiles(const packing_t *p, const constant_key_t *key, void *memory)
{
    enum { SHARED_BYTES = 1 << 20, LEAST_COLUMNS = 256 };
    const int along = key->along, across = key->across, last = key->ndims - 1;
    const int64_t N = across < 0 ? 1 : key->dims[across];
    const sinter_data_type_t type = (sinter_data_type_t)key->type;
    const tiled_t as = (tiled_t)key->tiled;
    int64_t K, matrices, bytes = 0; /* frame_pack has found that they do not overflow */
    int64_t next = along < 0 ? 0 : key->strides[along] * key->dims[along];
    bool even = true;
    (void)rows_of(along, key->window, key->dims, &K);
    (void)matrices_of(key->ndims, key->dims, across, along, key->window, &matrices);
    for (int d = along - 1; key->window && d > 0; d--) {
        even = even && (key->dims[d] == 1 || key->strides[d] == next);
        next *= key->dims[d];
    }
    (void)(tiles_are_values(as) ? tiles_of_values(as, type, K, N, &bytes)
                                : tiles_of_codes(tiles_bits(as, type), K, N, &bytes));
    const bool shared = bytes >= SHARED_BYTES / matrices && p->threads.parallel_for == NULL &&
                        p->threads.most > 1 && team_usable(&p->threads) > 1;
    tiles_task_t task = {.from = {.data = key->data,
                                  .type = dtype_traits(type),
                                  .dtype = type,
                                  .row = {along < 0 ? 0 : key->strides[along], 1},
                                  .column = {across < 0 ? 0 : key->strides[across], 1}},
                         .features = p->plan->features,
                         .as = as,
                         .K = K,
                         .N = N,
                         .some = N,
                         .to = memory,
                         .strip = bytes / tiles_strips(N),
                         .window = even ? NULL : key,
                         .threads = 1,
                         .parts = 1};
    const bool as_one = matrices == 1 || (!key->window && lies_as_one(key));
    for (int64_t m = 0; m < matrices && !as_one; m++, task.to += bytes) {
        task.from.first = m * key->strides[key->window ? 0 : last - 2];
        atomic_store(&task.next[0], 0);
        pack_ranges(&task, 0);
    }
    if (as_one) {
        task.N = task.some = N * matrices;
    }
    if (as_one && shared) {
        /* Some ranges for each thread: the threads may not all be there at once. */
        const int64_t some = task.N / (4 * p->threads.most) / LEAST_COLUMNS * LEAST_COLUMNS;
        task.some = some > LEAST_COLUMNS ? some : LEAST_COLUMNS;
        task.threads = p->threads.most;
        task.parts = (int)at_most(task.threads, PACK_PARTS);
        team_run(&p->threads, pack_ranges, &task);
    } else if (as_one) {
        pack_ranges(&task, 0);
    }
}

static void unpack_tiles(const plan_t *plan, const constant_key_t *key, void *memory)
{
    lt_t tiles = {.ndims = key->ndims,
                  .data_type = (sinter_data_type_t)key->type,
                  .layout_type = sinter_layout_type_opaque,
                  .layout_id = (uint64_t)key->unpacks};
    memcpy(tiles.dims, key->dims, sizeof(int64_t) * (size_t)key->ndims);
    lt_t strided = tiles;
    lt_set_dims(&strided, key->dims, key->packed);
    layout_unpack(plan->features, &tiles, key->data, &strided, memory);
}

static void pack(const constant_key_t *key, void *memory, const void *user)
{
    const packing_t *packing = user;
    const plan_t *plan = packing->plan;
    if (key->unpacks) {
        unpack_tiles(plan, key, memory);
        return;
    }
    if (key->tiled != NOT_TILED) {
        pack_tiles(packing, key, memory);
        return;
    }
    const int batch = key->ndims - 2, along = key->packed[batch] == 1 ? batch : batch + 1;
    const sinter_data_type_t type = (sinter_data_type_t)key->type;
    int64_t idx[SINTER_MAX_NDIMS] = {0};
    for (int d = 0; d >= 0;) {
        int64_t from = 0, to = 0;
        for (int k = 0; k < batch; k++) {
            from += idx[k] * key->strides[k];
            to += idx[k] * key->packed[k];
        }
        pack_matrix(key, along, from, to, tile_table(plan->features),
                    dtype_bulk(type, plan->features), memory);
        for (d = batch - 1; d >= 0 && ++idx[d] == key->dims[d]; d--) {
            idx[d] = 0;
        }
    }
}

/* value: the one of both that lies in tiles, or the packed one. */
static bool key_of(const bound_t *base, const bound_t *packed, const plan_value_t *value,
                   constant_key_t *key, size_t *bytes)
{
    int64_t elems = 1, span = 1, n;
    memset(key, 0, sizeof(*key));
    key->data = base->data;
    key->type = (int32_t)base->dtype;
    key->ndims = base->ndims;
    for (int d = 0; d < base->ndims; d++) {
        key->dims[d] = base->dims[d];
        key->strides[d] = base->strides[d];
        key->packed[d] = packed->strides[d];
        int64_t to, from;
        if (!mul_i64(base->dims[d] - 1, packed->strides[d], &to) || !add_i64(elems, to, &elems) ||
            !mul_i64(base->dims[d] - 1, base->strides[d], &from) || !add_i64(span, from, &span)) {
            return false;
        }
    }
    if (packed->tiled != NOT_TILED) {
        key->tiled = packed->tiled;
        key->across = value->across;
        key->along = value->along;
        key->window = value->window;
        if (!dtype_bytes(base->dtype, span, &n) || !tiles_of(value, base, &elems)) {
            return false;
        }
        key->extent = (size_t)n;
        *bytes = (size_t)elems;
        return true;
    }
    if (base->tiled != NOT_TILED) {
        key->tiled = base->tiled;
        key->unpacks = (int32_t)value->lt.layout_id;
    }
    if (key->unpacks ? !tiles_of(value, base, &n) : !dtype_bytes(base->dtype, span, &n)) {
        return false;
    }
    key->extent = (size_t)n;
    if (!dtype_bytes(base->dtype, elems, &n) || !add_size((size_t)n, SCRATCH_ALIGN, bytes)) {
        return false;
    }
    *bytes = *bytes / SCRATCH_ALIGN * SCRATCH_ALIGN;
    return true;
}

/* What a step copies, dense and with the dims of the tensor. */
static sinter_status_t take_copy(const plan_t *plan, frame_mem_t *fm, const step_t *step,
                                 const void *owner, const packing_t *packing)
{
    const bound_t *from = &fm->v[step->copied];
    constant_t **copy = &fm->constants[plan->n_packed + step->copy_at];
    bound_t dense = *from;
    dense.tiled = NOT_TILED;
    constant_key_t key;
    int64_t stride = 1;
    size_t bytes;
    const bool fits = dense_but(&dense, -1, &stride);
    if (fits && stride == 0) {
        return sinter_success; /* there is nothing to copy */
    }
    if (!fits || !key_of(from, &dense, &plan->values[step->copied], &key, &bytes)) {
        return sg_fail(sinter_invalid_shape, "tensor %llu: size of its copy overflows",
                       (unsigned long long)plan->values[step->copied].lt.id);
    }
    SG_TRY(
        constants_take(&plan->engine->constants, &key, bytes, false, owner, pack, packing, copy));
    if (*copy != NULL) {
        fm->v[step->copy].data = constant_memory(*copy);
    }
    fm->refused = fm->refused || *copy == NULL;
    return sinter_success;
}

/* Parts of one operand lie in tiles, or none does: where there was no room for one of them, the
 * others are not used. k: of packed values. */
static void keep_whole_set(const plan_t *plan, frame_mem_t *fm, int k)
{
    const int first = plan->n_values - plan->n_packed, i = first + k, set = plan->values[i].set;
    bool whole = true;
    if (plan->values[i].tiled == NOT_TILED || set != i) {
        return;
    }
    for (int n = k; n < plan->n_packed && plan->values[first + n].set == set; n++) {
        whole = whole && fm->constants[n] != NULL;
    }
    for (int n = k; n < plan->n_packed && plan->values[first + n].set == set && !whole; n++) {
        constants_give(&plan->engine->constants, fm->constants[n]);
        fm->constants[n] = NULL;
        fm->v[first + n] = fm->v[plan->values[first + n].base];
    }
}

sinter_status_t frame_pack(const plan_t *plan, frame_mem_t *fm, const void *owner,
                           threads_t threads)
{
    const packing_t packing = {plan, threads};
    const size_t n = (size_t)plan->n_packed + (size_t)plan->n_copies;
    memset(fm->constants, 0, n * sizeof *fm->constants);
    fm->held = true;
    fm->refused = false;
    fm->drops = n > 0 ? constants_drops(&plan->engine->constants) : 0;
    for (int k = 0; k < plan->n_packed; k++) {
        const int i = plan->n_values - plan->n_packed + k;
        constant_key_t key;
        size_t bytes;
        if (!wants_copy(plan, fm, i)) {
            continue;
        }
        const bound_t *base = &fm->v[plan->values[i].base];
        if (!key_of(base, &fm->v[i], &plan->values[i], &key, &bytes)) {
            return too_large(plan, i);
        }
        SG_TRY(constants_take(&plan->engine->constants, &key, bytes, plan->deterministic, owner,
                              pack, &packing, &fm->constants[k]));
        if (fm->constants[k] != NULL) {
            fm->v[i].data = constant_memory(fm->constants[k]);
        } else {
            fm->v[i] = *base;
            fm->refused = true;
        }
    }
    for (int k = 0; k < plan->n_packed; k++) {
        keep_whole_set(plan, fm, k);
    }
    bool moved = false;
    for (int s = 0; s < plan->n_steps; s++) {
        const step_t *step = &plan->steps[s];
        if (step->copy_at >= 0) {
            SG_TRY(take_copy(plan, fm, step, owner, &packing));
            moved = moved || frame_has_copy(plan, fm, step);
        }
    }
    if (moved) {
        frame_views(plan, fm);
    }
    return sinter_success;
}

void frame_unpack(const plan_t *plan, frame_mem_t *fm)
{
    for (int k = 0; k < plan->n_packed + plan->n_copies && fm->held; k++) {
        constants_give(&plan->engine->constants, fm->constants[k]);
    }
    fm->held = false;
}

bool frame_hold(const plan_t *plan, frame_mem_t *fm)
{
    const int n = plan->n_packed + plan->n_copies;
    if (!fm->held && !fm->refused) {
        fm->held = n == 0 || constants_hold(&plan->engine->constants, fm->constants, n, fm->drops);
    }
    return fm->held;
}
