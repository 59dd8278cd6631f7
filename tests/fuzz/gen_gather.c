/* Ops that move elements, from one to the next: Gather, ScatterRows, Slice, Concat and TopK, with
 * other work between them. Parts of packed tensors must begin with whole bytes, which compile
 * refuses otherwise; with unknown dims only execute could, so that no such graph is made. */
#include "fuzz.h"

#include <string.h>

static int is_packed(const fz_t *f, int x)
{
    return gr_dtype(f->tensors[x].type)->bits % 8 != 0;
}

static int is_float(const fz_t *f, int x)
{
    const sinter_data_type_t type = f->tensors[x].type;
    return type == sinter_f32 || type == sinter_f16 || type == sinter_bf16;
}

static int is_wide(const fz_t *f, int x)
{
    const sinter_data_type_t type = f->tensors[x].type;
    return type == sinter_s32 || type == sinter_f64;
}

static int any_axis(fz_t *f, int x, int ndims)
{
    return fz_pick(f, is_packed(f, x) ? ndims - 1 : ndims);
}

static void axis_attr(fz_t *f, int axis, int ndims)
{
    fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 40) ? axis - ndims : axis});
}

/* Rows of packed elements stay whole bytes. */
static int moved(fz_t *f, int x)
{
    if (is_packed(f, x)) {
        fz_no_gaps(f, x);
    }
    return x;
}

/* From outside, or computed: what another Gather takes of a table. */
static int indices_of(fz_t *f, int ndims, const int64_t *dims, int64_t index_of)
{
    const int64_t length = FZ_ONE_OF(f, 1, 3, 9);
    if (fz_chance(f, 75)) {
        const int t = fz_indices(f, ndims, dims, index_of);
        f->tensors[t].from_end = fz_chance(f, 40);
        return t;
    }
    const int table = fz_indices(f, 1, &length, index_of);
    return FZ_OP(f, gather, f->tensors[table].type, ndims, dims, table,
                 fz_indices(f, ndims, dims, length));
}

/* The first dims of x, of which each index has indices of its own. */
static int any_batch(fz_t *f, int axis)
{
    return fz_chance(f, 40) ? fz_pick(f, axis + 1) : 0;
}

static void batch_attr(fz_t *f, int batch)
{
    if (batch > 0 || fz_chance(f, 10)) {
        fz_s64(f, sinter_op_attr_batch_dims, 1, &(int64_t){batch});
    }
}

static int gather(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int axis = any_axis(f, x, t.ndims), batch = any_batch(f, axis);
    int64_t at[FZ_MAX_RANK], dims[FZ_MAX_RANK];
    const int n_at = batch + (t.ndims < 5 ? fz_pick(f, 3) : fz_pick(f, 2));
    int ndims = 0;
    for (int d = 0; d < n_at; d++) {
        at[d] = d < batch ? t.dims[d] : fz_dim(f, FZ_ONE_OF(f, 1, 2, 3, 7), 1);
    }
    for (int d = 0; d < t.ndims; d++) {
        for (int i = batch; d == axis && i < n_at; i++) {
            dims[ndims++] = at[i];
        }
        if (d != axis) {
            dims[ndims++] = t.dims[d];
        }
    }
    /* Tokens of K or V in tiles; not drawn: seeds name the same cases as before. */
    const int h = (int)(random_mix(f->seed ^ (uint64_t)(x + 1) << 24) % 100);
    if (axis == t.ndims - 2 && h < 50 && !t.produced) {
        fz_cache_in_tiles(f, x, h % 2, h % 2 == 0, 0);
    }
    const int indices = indices_of(f, n_at, at, t.dims[axis]);
    x = FZ_OP(f, gather, t.type, ndims, dims, x, indices);
    if (axis > 0 || fz_chance(f, 50)) {
        axis_attr(f, axis, t.ndims);
    }
    batch_attr(f, batch);
    return moved(f, x);
}

static int scatter(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int axis = any_axis(f, x, t.ndims), batch = any_batch(f, axis),
              updates = fz_chance(f, 50);
    int64_t dims[FZ_MAX_RANK], at[FZ_MAX_RANK];
    memcpy(dims, t.dims, sizeof dims);
    memcpy(at, t.dims, sizeof at);
    dims[axis] = fz_dim(f, FZ_ONE_OF(f, 1, 2, 5, 9), 1);
    at[batch] = updates ? t.dims[axis] : dims[axis];
    const int other = moved(f, fz_input(f, t.type, t.ndims, dims)),
              slots = fz_indices(f, batch + 1, at, updates ? dims[axis] : t.dims[axis]);
    f->tensors[slots].skip = fz_chance(f, 50);
    x = FZ_OP(f, scatter_rows, t.type, t.ndims, updates ? dims : t.dims, updates ? other : x, slots,
              updates ? x : other);
    if (axis > 0 || fz_chance(f, 50)) {
        axis_attr(f, axis, t.ndims);
    }
    batch_attr(f, batch);
    return moved(f, x);
}

static int slice(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    int64_t starts[FZ_MAX_RANK], ends[FZ_MAX_RANK], axes[FZ_MAX_RANK], steps[FZ_MAX_RANK],
        dims[FZ_MAX_RANK];
    int n = 0, stepped = 0;
    if (is_packed(f, x) && f->n_symbols > 0) {
        return x;
    }
    memcpy(dims, t.dims, sizeof dims);
    for (int d = 0; d < t.ndims; d++) {
        if (fz_is_symbol(t.dims[d]) || t.dims[d] == 0 || (is_packed(f, x) && d == t.ndims - 1) ||
            fz_chance(f, 50)) {
            continue;
        }
        const int64_t size = t.dims[d], from = fz_pick(f, (int)size),
                      to = from + 1 + fz_pick(f, (int)(size - from));
        const int back = !is_packed(f, x) && fz_chance(f, 25);
        const int64_t begin = back ? to - 1 : from, end = back ? from - 1 : to;
        steps[n] = fz_chance(f, 30) ? fz_range(f, 2, 4) : 1;
        dims[d] = (to - from + steps[n] - 1) / steps[n];
        steps[n] = back ? -steps[n] : steps[n];
        stepped |= steps[n] != 1;
        starts[n] = fz_chance(f, 30) ? begin - size : begin;
        ends[n] = end < 0                ? -size - fz_range(f, 1, 5)
                  : !back && end == size ? size + (fz_chance(f, 50) ? 5 : 0)
                  : fz_chance(f, 30)     ? end - size
                                         : end;
        axes[n] = fz_chance(f, 30) ? d - t.ndims : d;
        n++;
    }
    x = FZ_OP(f, slice, t.type, t.ndims, dims, x);
    fz_s64(f, sinter_op_attr_starts, (size_t)n, starts);
    fz_s64(f, sinter_op_attr_ends, (size_t)n, ends);
    fz_s64(f, sinter_op_attr_axes, (size_t)n, axes);
    if (stepped || fz_chance(f, 30)) {
        fz_s64(f, sinter_op_attr_steps, (size_t)n, steps);
    }
    return moved(f, x);
}

static int concat(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    int axis = any_axis(f, x, t.ndims), in[3], at = 0;
    int64_t dims[FZ_MAX_RANK], sum = t.dims[axis];
    if (fz_is_symbol(sum) || (is_packed(f, x) && f->n_symbols > 0)) {
        return x;
    }
    const int n = fz_range(f, 1, 3), own = fz_pick(f, n);
    memcpy(dims, t.dims, sizeof dims);
    for (int i = 0; i < n; i++) {
        dims[axis] = FZ_ONE_OF(f, 1, 2, 5);
        in[at++] = i == own ? x : moved(f, fz_input(f, t.type, t.ndims, dims));
        sum += i == own ? 0 : dims[axis];
    }
    dims[axis] = sum;
    x = fz_op(f, sinter_op_concat, t.type, t.ndims, dims, n, in);
    axis_attr(f, axis, t.ndims);
    return moved(f, x);
}

static int top_k(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int axis = fz_chance(f, 60) ? t.ndims - 1 : fz_pick(f, t.ndims);
    int64_t dims[FZ_MAX_RANK], least = fz_size(f, t.dims[axis], 0);
    for (int v = 1; v < FZ_VARIANTS; v++) {
        const int64_t size = fz_size(f, t.dims[axis], v);
        least = size < least ? size : least;
    }
    memcpy(dims, t.dims, sizeof dims);
    dims[axis] = fz_pick(f, (int)(least < 6 || fz_chance(f, 30) ? least : 6) + 1);
    x = FZ_OP(f, top_k, t.type, t.ndims, dims, x);
    fz_s64(f, sinter_op_attr_k, 1, &dims[axis]);
    if (axis != t.ndims - 1 || fz_chance(f, 30)) {
        axis_attr(f, axis, t.ndims);
    }
    if (fz_chance(f, 30)) {
        fz_bool(f, sinter_op_attr_largest, 0);
    }
    f->tensors[fz_more_output(f, sinter_s32, t.ndims, dims)].keep = 1;
    return x;
}

static int work(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    if (is_float(f, x)) {
        return fz_chance(f, 25) ? fz_quantized(f, x) : fz_post_op(f, x);
    }
    if (is_wide(f, x)) {
        return gather(f, x);
    }
    return fz_dequantized(f, fz_float(f), t.ndims, t.dims, x);
}

/* TopK with k = 0 leaves nothing to take. */
static int has_elements(const fz_t *f, int x)
{
    for (int d = 0; d < f->tensors[x].ndims; d++) {
        if (f->tensors[x].dims[d] == 0) {
            return 0;
        }
    }
    return 1;
}

void fz_gen_gather(fz_t *f)
{
    int64_t dims[FZ_MAX_RANK];
    const int ndims = fz_some_dims(f, 2, 4, 3000, dims), what = fz_pick(f, 100);
    const sinter_data_type_t type = what < 40   ? fz_code_type(f)
                                    : what < 50 ? (what < 45 ? sinter_s32 : sinter_f64)
                                                : fz_float(f);
    if (gr_dtype(type)->bits % 8 != 0) {
        dims[ndims - 1] = FZ_ONE_OF(f, 4, 8, 12, 32); /* whole bytes of each type */
    }
    int x = moved(f, fz_input(f, type, ndims, dims));
    for (int i = fz_range(f, 1, 4); i > 0 && f->tensors[x].ndims > 1 && has_elements(f, x); i--) {
        const int next = fz_pick(f, 8);
        f->tensors[x].keep = f->tensors[x].produced && fz_chance(f, 10);
        x = next < 2                                         ? gather(f, x)
            : next < 4                                       ? scatter(f, x)
            : next == 4                                      ? slice(f, x)
            : next == 5                                      ? concat(f, x)
            : next == 6 && (is_float(f, x) || is_wide(f, x)) ? top_k(f, x)
                                                             : work(f, x);
    }
    if (f->n_ops == 0) {
        gather(f, x);
    }
}
