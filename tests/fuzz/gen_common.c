/* Pieces that several generators use: types, side inputs, what stands behind a matmul or
 * softmax. */
#include "fuzz.h"

#include <stdbool.h>
#include <string.h>

#include "graph/op_schema.h"

sinter_data_type_t fz_float(fz_t *f)
{
    return (sinter_data_type_t)FZ_ONE_OF(f, sinter_f32, sinter_f32, sinter_f16, sinter_bf16);
}

int fz_side_dims(fz_t *f, int x, int64_t *dims)
{
    const fz_tensor_t *t = &f->tensors[x];
    int drop = t->ndims && fz_chance(f, 30) ? fz_pick(f, t->ndims + 1) : 0;

    for (int d = drop; d < t->ndims; d++) {
        dims[d - drop] = fz_part(f, t->dims[d], 30);
    }
    return t->ndims - drop;
}

int fz_other_dims(fz_t *f, int x, int64_t *dims)
{
    const fz_tensor_t t = f->tensors[x];
    const int n = fz_side_dims(f, x, dims);

    for (int d = 0; d < n; d++) {
        const int64_t dim = t.dims[t.ndims - n + d];
        int64_t sizes[FZ_VARIANTS], most = 1;
        int single = 1; /* no size but 1 and the largest one */

        if (f->one_space || !fz_is_symbol(dim) || f->n_symbols >= FZ_SOME_SYMBOLS ||
            !fz_chance(f, 30)) {
            continue;
        }
        for (int v = 0; v < FZ_VARIANTS; v++) {
            const int64_t size = fz_size(f, dim, v);

            single = single && (size == 1 || most == 1 || size == most);
            most = size > most ? size : most;
        }
        if (single && fz_chance(f, 50)) { /* known */
            dims[d] = most > 1 ? most : 3;
            continue;
        }
        for (int v = 0; v < FZ_VARIANTS; v++) {
            sizes[v] = fz_size(f, dim, v) == 1 ? FZ_ONE_OF(f, 1, 2, 3) : fz_size(f, dims[d], v);
        }
        dims[d] = fz_symbol(f, sizes[0], sizes[1], sizes[2]);
    }
    return n;
}

/* ---- elementwise ----------------------------------------------------------------------------- */

static void one_f32(fz_t *f, sinter_op_attr_t attr, double value)
{
    const float v = (float)value;

    fz_f32(f, attr, 1, &v);
}

static void unary_attrs(fz_t *f, sinter_op_kind_t kind)
{
    switch (kind) {
    case sinter_op_clamp:
        one_f32(f, sinter_op_attr_min, fz_range(f, -4, 0) * 0.5);
        one_f32(f, sinter_op_attr_max, fz_range(f, 0, 4) * 0.5);
        break;
    case sinter_op_elu:
    case sinter_op_leaky_relu:
        one_f32(f, sinter_op_attr_alpha, fz_range(f, 0, 4) * 0.25);
        break;
    case sinter_op_hard_sigmoid:
        one_f32(f, sinter_op_attr_alpha, fz_range(f, 1, 4) * 0.125);
        one_f32(f, sinter_op_attr_beta, fz_range(f, 0, 4) * 0.25);
        break;
    case sinter_op_pow:
        one_f32(f, sinter_op_attr_beta, FZ_ONE_OF(f, -2, -1, 0, 1, 2, 3, 5, 6) * 0.5);
        break;
    case sinter_op_softplus:
        if (fz_chance(f, 60)) {
            one_f32(f, sinter_op_attr_beta, FZ_ONE_OF(f, -2, 1, 2, 4) * 0.5);
        }
        break;
    case sinter_op_gelu:
        if (fz_chance(f, 70)) {
            fz_str(f, sinter_op_attr_mode, fz_chance(f, 50) ? "gelu_erf" : "gelu_tanh");
        }
        break;
    default:
        break;
    }
}

/* All elementwise ops of one input. One that needs attributes gets them from unary_attrs. */
static bool is_unary(sinter_op_kind_t kind)
{
    return op_flags(kind) == (OP_ELTWISE | OP_UNARY) && kind != sinter_op_type_cast;
}

int fz_random_unary(fz_t *f, int x, sinter_data_type_t type)
{
    sinter_op_kind_t kinds[sinter_op_last_symbol];
    int n = 0;
    for (int kind = 0; kind < sinter_op_last_symbol; kind++) {
        if (is_unary((sinter_op_kind_t)kind)) {
            kinds[n++] = (sinter_op_kind_t)kind;
        }
    }
    const sinter_op_kind_t kind = kinds[fz_pick(f, n)];
    x = fz_unary(f, kind, type, x);
    unary_attrs(f, kind);
    return x;
}

static int bias_add(fz_t *f, int x, sinter_data_type_t type)
{
    const fz_tensor_t t = f->tensors[x];
    int ncx = t.ndims > 1 && fz_chance(f, 30);
    int bias = fz_input(f, fz_float(f), 1, &t.dims[ncx ? 1 : t.ndims - 1]);

    x = FZ_OP(f, bias_add, type, t.ndims, t.dims, x, bias);
    if (ncx || fz_chance(f, 30)) {
        fz_str(f, sinter_op_attr_data_format, ncx ? "NCX" : "NXC");
    }
    return x;
}

/* One slope for each channel, or a slope that broadcasts like any other operand. */
static int prelu(fz_t *f, int x, sinter_data_type_t type)
{
    const fz_tensor_t t = f->tensors[x];
    int channels = fz_chance(f, 60), ncx = t.ndims > 1 && fz_chance(f, 30);
    int64_t dims[FZ_MAX_RANK] = {t.dims[ncx ? 1 : t.ndims - 1]};
    int n = channels ? 1 : fz_side_dims(f, x, dims), slope = fz_input(f, fz_float(f), n, dims);

    x = FZ_OP(f, prelu, type, t.ndims, t.dims, x, slope);
    if (ncx) {
        fz_str(f, sinter_op_attr_data_format, "NCX");
    }
    if (!channels) {
        fz_bool(f, sinter_op_attr_per_channel_broadcast, 0);
    }
    return x;
}

/* For inference: with probability 0. */
static int dropout(fz_t *f, int x)
{
    static const double zeros[FZ_VARIANTS] = {0};
    const fz_tensor_t t = f->tensors[x];
    const sinter_data_type_t integer = fz_chance(f, 50) ? sinter_s64 : sinter_s32;
    const int seed = fz_scalar(f, integer, 1), offset = fz_scalar(f, integer, 1),
              probability = fz_scalar(f, fz_float(f), 1);
    f->tensors[probability].value = zeros;
    return FZ_OP(f, dropout, t.type, t.ndims, t.dims, x, seed, offset, probability);
}

sinter_op_kind_t fz_binary_kind(fz_t *f)
{
    return (sinter_op_kind_t)FZ_ONE_OF(
        f, sinter_op_add, sinter_op_add, sinter_op_multiply, sinter_op_multiply, sinter_op_subtract,
        sinter_op_divide, sinter_op_maximum, sinter_op_minimum, sinter_op_squared_difference);
}

int fz_post_op(fz_t *f, int x)
{
    sinter_data_type_t type = fz_chance(f, 70) ? f->tensors[x].type : fz_float(f);
    int64_t dims[FZ_MAX_RANK];
    int side, n, first, what = fz_pick(f, 12);

    if (what < 4) {
        return fz_random_unary(f, x, type);
    }
    if (what == 4) {
        return fz_cast(f, fz_float(f), x);
    }
    if (what == 5 && f->tensors[x].ndims) {
        return bias_add(f, x, type);
    }
    if (what == 6 && f->tensors[x].ndims) {
        return prelu(f, x, type);
    }
    if (what == 7 && gr_dtype(f->tensors[x].type)->bits > 8 && fz_chance(f, 30)) {
        return dropout(f, x);
    }
    if (fz_chance(f, 20)) {
        side = fz_scalar(f, fz_float(f), f->tensors[x].ndims);
    } else {
        n = fz_other_dims(f, x, dims);
        side = fz_input(f, fz_float(f), n, dims);
    }
    first = fz_chance(f, 75);
    return fz_binary(f, fz_binary_kind(f), type, first ? x : side, first ? side : x);
}

/* ---- rows ------------------------------------------------------------------------------------ */

int fz_indices(fz_t *f, int ndims, const int64_t *dims, int64_t index_of)
{
    const int t = fz_input(f, fz_chance(f, 70) ? sinter_s32 : sinter_s64, ndims, dims);
    f->tensors[t].index_of = index_of;
    return t;
}

int fz_some_dims(fz_t *f, int least, int most, int64_t room, int64_t *dims)
{
    const int ndims = fz_range(f, least, most);
    for (int d = ndims - 1; d >= 0; d--) {
        int64_t size = FZ_ONE_OF(f, 1, 2, 3, 4, 5, 8, 15, 16, 32, 64, 100, 257, 300);
        while (size > room) {
            size /= 2;
        }
        room /= size;
        dims[d] = fz_dim(f, size, 1);
    }
    return ndims;
}

int fz_rows(fz_t *f, int ndims, const int64_t *dims)
{
    int64_t other[FZ_MAX_RANK];
    const int one_space = f->one_space;
    int x = fz_chance(f, 15) ? fz_dequantized(f, fz_float(f), ndims, dims, -1)
                             : fz_input(f, fz_float(f), ndims, dims);
    if (fz_chance(f, 8)) {
        f->tensors[x].specials = f->tensors[x].produced ? 0 : fz_range(f, 1, 4);
    }
    if (fz_chance(f, 40)) {
        const int side = f->dynamic ? fz_side_dims(f, x, other) : ndims;
        const int y = fz_input(f, fz_float(f), side, f->dynamic ? other : dims);
        const int first = fz_chance(f, 80);
        x = fz_binary(f, sinter_op_add, fz_float(f), first ? x : y, first ? y : x);
        f->tensors[x].keep = fz_chance(f, 50);
    }
    f->one_space = 1;
    if (fz_chance(f, 20)) {
        x = fz_post_op(f, x);
    }
    f->one_space = one_space;
    return fz_chance(f, 15) ? fz_cast(f, fz_float(f), x) : x;
}
