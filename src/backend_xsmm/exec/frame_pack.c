/* Constant weights in the layout that kernels want: a copy of the engine's constant cache
 * instead of the tensor. */
#include <stdatomic.h>
#include <string.h>

#include "backend_xsmm/exec/frame.h"
#include "backend_xsmm/ukernels/tile.h"
#include "base/status.h"
#include "numeric/tiles_bulk.h"

/* ---- shapes ---------------------------------------------------------------------------------- */

/* True if a packed value is a copy; else it is its base. */
static bool wants_copy(const plan_t *plan, const frame_mem_t *fm, int i)
{
    const bound_t *base = &fm->v[plan->values[i].base];
    const int along = plan->values[i].along;
    bool some = plan->values[i].strip > 0 || plan->values[i].tiled != NOT_TILED ||
                (base->strides[along] != 1 && base->dims[along] > 1);
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

/* Elements from a strip to the next one. */
static int64_t strip_stride(int64_t first_stride, int64_t columns, int64_t strip)
{
    return first_stride / ((columns + strip - 1) / strip);
}

/* Strips of codes, which have a form of their own. */
static sinter_status_t resolve_taps(const plan_t *plan, int i, bound_t *b)
{
    b->strip = plan->values[i].strip;
    memset(b->strides, 0, sizeof b->strides);
    return matmul_taps_bytes(plan->features, b, &b->strides[0]) ? sinter_success
                                                                : too_large(plan, i);
}

static sinter_status_t resolve_strips(const plan_t *plan, int i, bound_t *b)
{
    const int last = b->ndims - 1;
    int64_t stride = plan->values[i].strip, rows = 1;
    b->strip = plan->values[i].strip;
    b->strides[last] = 1;
    for (int d = last - 1; d > 0; d--) {
        b->strides[d] = stride;
        if (!mul_i64(rows, b->dims[d], &rows) || !mul_i64(rows, b->strip, &stride)) {
            return too_large(plan, i);
        }
    }
    if (!add_i64(rows, PACKED_ROWS - 1, &rows) ||
        !mul_i64(rows / PACKED_ROWS * PACKED_ROWS, b->strip, &stride) ||
        !mul_i64(stride, (b->dims[last] - 1) / b->strip + 1, &b->strides[0])) {
        return too_large(plan, i);
    }
    return sinter_success;
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

/* The columns of all matrices that lie in tiles. Several follow one another as one does: each has a
 * multiple of 16 columns. */
static bool columns_of(int ndims, const int64_t *dims, int across, int along, int64_t *N)
{
    bool fits = true;
    *N = across < 0 ? 1 : dims[across];
    for (int d = 0; d < ndims; d++) {
        fits = fits && (d == across || d == along || mul_i64(*N, dims[d], N));
    }
    return fits;
}

/* Bytes of the tiles of matrices. False: too many. */
static bool tiles_of(const plan_value_t *v, const bound_t *base, int64_t *bytes)
{
    const int64_t K = v->along < 0 ? 1 : base->dims[v->along];
    int64_t N;
    return !columns_of(base->ndims, base->dims, v->across, v->along, &N) ? false
           : tiles_are_values(v->tiled)
               ? tiles_of_values(v->tiled, base->dtype, K, N, bytes)
               : tiles_of_codes(tiles_bits(v->tiled, base->dtype), K, N, bytes);
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
    if (plan->values[i].taps) {
        return resolve_taps(plan, i, b);
    }
    if (plan->values[i].strip > 0) {
        return resolve_strips(plan, i, b);
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

/* The same, of floats, in strips. The rest of the last strip is zeros. */
static void pack_strips(const constant_key_t *key, int64_t from, float *to,
                        const tile_table_t *tile)
{
    const int columns = key->ndims - 1, rows = columns - 1;
    const int64_t apart = strip_stride(key->packed[0], key->dims[columns], key->strip);
    const matrix_t src = {.codes = {.data = key->data,
                                    .type = dtype_traits(sinter_f32),
                                    .dtype = sinter_f32,
                                    .first = from,
                                    .row = {key->strides[rows], 1},
                                    .column = {key->strides[columns], 1}}};
    for (int64_t c = 0; c < key->dims[columns]; c += key->strip, to += apart) {
        const int n = (int)at_most(key->dims[columns] - c, key->strip);
        for (int64_t r = 0, some; r < key->dims[rows]; r += some) {
            some = at_most(key->dims[rows] - r, 256);
            tile->load(&src, (rect_t){r, (int)some, c, n}, to + r * key->strip, key->strip,
                       (int)some, (int)key->strip);
        }
    }
}

/* Weights that become tiles, by ranges of columns, which threads take until none is left. */
typedef struct tiles_task {
    groups_t from;
    features_t features;
    tiled_t as;
    int64_t K, N, some; /* columns of a range: whole strips */
    unsigned char *to;
    int64_t strip; /* bytes */
    _Atomic int64_t next;
} tiles_task_t;

static void pack_ranges(void *data, int worker)
{
    tiles_task_t *t = data;
    (void)worker;
    for (int64_t n; (n = atomic_fetch_add(&t->next, t->some)) < t->N;) {
        const int64_t columns = at_most(t->N - n, t->some);
        unsigned char *to = t->to + n / TILES_COLUMNS * t->strip;
        groups_t from = t->from;
        from.first = codes_at(&t->from, 0, n);
        if (!tiles_are_values(t->as)) {
            (void)tiles_bulk_pack_codes(t->features, &from, t->as, t->K, columns, to);
        } else {
            (void)tiles_bulk_pack_values(t->features, &from, t->as, t->K, columns, to);
        }
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
    const int64_t K = along < 0 ? 1 : key->dims[along];
    const sinter_data_type_t type = (sinter_data_type_t)key->type;
    const tiled_t as = (tiled_t)key->tiled;
    int64_t bytes = 0, N = 1; /* frame_pack has found that they do not overflow */
    (void)columns_of(key->ndims, key->dims, across, along, &N);
    (void)(tiles_are_values(as) ? tiles_of_values(as, type, K, N, &bytes)
                                : tiles_of_codes(tiles_bits(as, type), K, N, &bytes));
    const bool shared = bytes >= SHARED_BYTES && p->threads.parallel_for == NULL &&
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
                         .strip = bytes / tiles_strips(N)};
    if (!lies_as_one(key)) {
        task.N = task.some = across < 0 ? 1 : key->dims[across];
        for (int64_t m = 0; m < N / task.N; m++, task.to += tiles_strips(task.N) * task.strip) {
            task.from.first = m * key->strides[last - 2];
            atomic_store(&task.next, 0);
            pack_ranges(&task, 0);
        }
    } else if (shared) {
        /* Some ranges for each thread: the threads may not all be there at once. */
        const int64_t some = N / (4 * p->threads.most) / LEAST_COLUMNS * LEAST_COLUMNS;
        task.some = some > LEAST_COLUMNS ? some : LEAST_COLUMNS;
        team_run(&p->threads, pack_ranges, &task);
    } else {
        pack_ranges(&task, 0);
    }
}

static void unpack_tiles(const constant_key_t *key, void *memory)
{
    const int along = key->along, last = key->ndims - 1;
    const tiled_t as = (tiled_t)key->tiled;
    const sinter_data_type_t type = (sinter_data_type_t)key->type;
    groups_t to = {.data = memory,
                   .type = dtype_traits(type),
                   .dtype = type,
                   .row = {along < 0 ? 0 : key->packed[along], 1},
                   .column = {key->packed[key->across], 1}};
    const int64_t K = along < 0 ? 1 : key->dims[along], N = key->dims[key->across];
    const unsigned char *from = key->data;
    int64_t matrices = 1, bytes = 0;
    (void)columns_of(key->ndims, key->dims, key->across, along, &matrices);
    (void)(tiles_are_values(as) ? tiles_of_values(as, type, K, N, &bytes)
                                : tiles_of_codes(tiles_bits(as, type), K, N, &bytes));
    for (int64_t m = 0; m < matrices / N; m++, from += bytes) {
        to.first = m > 0 ? m * key->packed[last - 2] : 0;
        if (tiles_are_values(as)) {
            tiles_unpack_values(from, as, K, N, &to);
        } else {
            tiles_unpack_codes(from, as, K, N, &to);
        }
    }
}

static void pack(const constant_key_t *key, void *memory, const void *user)
{
    const packing_t *packing = user;
    const plan_t *plan = packing->plan;
    if (key->unpacks) {
        unpack_tiles(key, memory);
        return;
    }
    if (key->tiled != NOT_TILED) {
        pack_tiles(packing, key, memory);
        return;
    }
    const int batch = key->ndims - 2, along = key->packed[batch] == 1 ? batch : batch + 1;
    const sinter_data_type_t type = (sinter_data_type_t)key->type;
    if (key->strip > 0 && type != sinter_f32) {
        matmul_pack_taps(plan->features, key, memory);
        return;
    }
    if (key->strip > 0) {
        memset(memory, 0, (size_t)(key->dims[0] * key->packed[0]) * sizeof(float));
    }
    int64_t idx[SINTER_MAX_NDIMS] = {0};
    for (int d = 0; d >= 0;) {
        int64_t from = 0, to = 0;
        for (int k = 0; k < batch; k++) {
            from += idx[k] * key->strides[k];
            to += idx[k] * key->packed[k];
        }
        if (key->strip > 0) {
            pack_strips(key, from, (float *)memory + to, tile_table(plan->features));
        } else {
            pack_matrix(key, along, from, to, tile_table(plan->features),
                        dtype_bulk(type, plan->features), memory);
        }
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
    key->strip = packed->strip;
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
        if (!dtype_bytes(base->dtype, span, &n) || !tiles_of(value, base, &elems)) {
            return false;
        }
        key->extent = (size_t)n;
        *bytes = (size_t)elems;
        return true;
    }
    if (packed->strip > 0 && !mul_i64(packed->dims[0], packed->strides[0], &elems)) {
        return false;
    }
    if (base->tiled != NOT_TILED) {
        key->tiled = base->tiled;
        key->across = value->across;
        key->along = value->along;
        key->unpacks = true;
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
    SG_TRY(constants_take(&plan->engine->constants, &key, bytes, owner, pack, packing, copy));
    if (*copy != NULL) {
        fm->v[step->copy].data = constant_memory(*copy);
    }
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
        SG_TRY(constants_take(&plan->engine->constants, &key, bytes, owner, pack, &packing,
                              &fm->constants[k]));
        if (fm->constants[k] != NULL) {
            fm->v[i].data = constant_memory(fm->constants[k]);
        } else {
            fm->v[i] = *base;
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
    for (int k = 0; k < plan->n_packed + plan->n_copies; k++) {
        constants_give(&plan->engine->constants, fm->constants[k]);
        fm->constants[k] = NULL;
    }
}
