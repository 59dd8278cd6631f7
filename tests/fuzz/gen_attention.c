/* Attention in the spellings that graphs of the field use. Dims in order: batch dims, then
 * heads, then what the layout says. */
#include "fuzz.h"

#include <string.h>

typedef enum layout { ROWS_3D, HEADS_4D, MULTI_QUERY_4D, GROUPS_5D, RESHAPED_5D } layout_t;

typedef struct attention {
    layout_t layout;
    int ndims;          /* of the scores */
    int64_t lead[3];    /* the scores' dims before the last two */
    int64_t kv_lead[3]; /* those of K and V */
    int64_t b, heads, groups, s, t, d, dv;
    bool mixed; /* operands have some of these dims, and perhaps one row or column, and broadcast */
    int missing;             /* mixed: leading dims that Q and K do not have */
    sinter_data_type_t type; /* that most tensors have */
    bool turned;             /* scores have T rows and S columns; the softmax runs over the rows */
} attention_t;

static sinter_data_type_t type_near(fz_t *f, const attention_t *a)
{
    return fz_chance(f, 80) ? a->type : fz_float(f);
}

static void choose_sizes(fz_t *f, attention_t *a)
{
    a->layout = (layout_t)fz_pick(f, 5);
    a->mixed = a->layout != RESHAPED_5D && fz_chance(f, f->dynamic ? 60 : 15);
    a->type = fz_float(f);
    a->b = fz_dim(f, fz_range(f, 1, 2), 1);
    a->groups = fz_range(f, 1, 4);
    a->heads = fz_range(f, 1, 3);
    a->s = fz_dim(f, FZ_ONE_OF(f, 1, 1, 2, 5, 17, 33, 64), 1);
    a->t = FZ_ONE_OF(f, 1, 7, 31, 32, 33, 65, 130);
    if (fz_chance(f, 4)) {
        a->t = 0;
    }
    if (f->dynamic && f->n_symbols < FZ_SOME_SYMBOLS && fz_chance(f, 80)) {
        a->t = fz_symbol(f, a->t, fz_chance(f, 10) ? 0 : fz_range(f, 1, 70),
                         FZ_ONE_OF(f, 32, 33, 64, 96));
    }
    a->d = fz_chance(f, 5) ? FZ_ONE_OF(f, 192, 320, 576) : FZ_ONE_OF(f, 8, 16, 40, 64, 80, 96, 128);
    a->dv = fz_chance(f, 60) ? a->d : FZ_ONE_OF(f, 8, 16, 24, 40, 64, 80, 96, 128);
}

static void choose_layout(fz_t *f, attention_t *a)
{
    const int64_t all = a->heads * a->groups,
                  three[3][3] = {{a->b, 0, 0}, {a->b, all, 0}, {a->b, a->heads, a->groups}};
    const int n = a->layout == ROWS_3D ? 1 : a->layout <= MULTI_QUERY_4D ? 2 : 3;

    a->ndims = n + 2;
    memcpy(a->lead, three[n - 1], sizeof a->lead);
    memcpy(a->kv_lead, three[n - 1], sizeof a->kv_lead);
    if (a->layout >= MULTI_QUERY_4D) {
        a->kv_lead[n - 1] = 1;
    }
    a->missing = a->mixed && fz_chance(f, 15);
}

static int with_lead(const int64_t *lead, int ndims, int64_t rows, int64_t cols, int64_t *dims)
{
    memcpy(dims, lead, (size_t)(ndims - 2) * sizeof *dims);
    dims[ndims - 2] = rows;
    dims[ndims - 1] = cols;
    return ndims;
}

/* The dims of Q, K or V, with those that it has in a mixed case. */
static int operand_dims(fz_t *f, const attention_t *a, const int64_t *lead, int missing,
                        int64_t rows, int64_t cols, int64_t *dims)
{
    int64_t own[3];

    memcpy(own, lead, sizeof own);
    for (int d = 0; d < a->ndims - 2 && a->mixed; d++) {
        own[d] = fz_part(f, own[d], 50);
    }
    return with_lead(own + missing, a->ndims - missing, rows, cols, dims);
}

/* Now and then one row of Q, or one token of K, stands for all; in dynamic cases compile may not
 * know. */
static int64_t some_of(fz_t *f, const attention_t *a, int64_t dim)
{
    return a->mixed && fz_chance(f, 20) ? fz_part(f, dim, 50) : dim;
}

static int multiply(fz_t *f, sinter_data_type_t type, int x, bool turn_x, int y, bool turn_y)
{
    const fz_tensor_t tx = f->tensors[x], ty = f->tensors[y];
    int64_t dims[FZ_MAX_RANK];
    const int n = fz_joined_dims(f, tx.ndims - 2, tx.dims, ty.ndims - 2, ty.dims, dims) + 2;

    dims[n - 2] = tx.dims[tx.ndims - (turn_x ? 1 : 2)];
    dims[n - 1] = ty.dims[ty.ndims - (turn_y ? 2 : 1)];
    return FZ_OP(f, matmul, type, n, dims, x, y);
}

static int scaled(fz_t *f, const attention_t *a, int x)
{
    const int divide = fz_chance(f, 50), s = fz_scalar(f, type_near(f, a), f->tensors[x].ndims);

    return fz_binary(f, divide ? sinter_op_divide : sinter_op_multiply, type_near(f, a), x, s);
}

/* ---- operands -------------------------------------------------------------------------------- */

static int query(fz_t *f, const attention_t *a)
{
    int64_t dims[FZ_MAX_RANK], flat[4] = {a->b, a->heads * a->groups, a->s, a->d};
    int n = operand_dims(f, a, a->lead, a->missing, some_of(f, a, a->s), a->d, dims), q;

    if (a->layout == RESHAPED_5D) {
        q = fz_reshape(f, fz_input(f, type_near(f, a), 4, flat), n, dims);
        if (q >= 0) {
            return q;
        }
    }
    if (fz_chance(f, 12)) {
        return fz_dequantized(f, type_near(f, a), n, dims, -1);
    }
    q = fz_input(f, type_near(f, a), n, dims);
    f->tensors[q].vast = fz_chance(f, 10);
    return q;
}

/* K or V: plain, compressed, stored without the dim of size 1, or stored as the transpose. missing:
 * leading dims that it does not have. */
static int keys(fz_t *f, const attention_t *a, int missing, int64_t rows, int64_t cols)
{
    int64_t dims[FZ_MAX_RANK], stored[FZ_MAX_RANK], order[FZ_MAX_RANK];
    int n = operand_dims(f, a, a->kv_lead, missing, rows, cols, dims), turn = fz_chance(f, 8), x;

    if (a->layout == RESHAPED_5D && fz_chance(f, 70)) {
        const int64_t flat[4] = {a->b, a->heads, rows, cols};
        int y;

        x = fz_chance(f, 60) ? fz_dequantized(f, type_near(f, a), 4, flat, -1)
                             : fz_input(f, type_near(f, a), 4, flat);
        y = fz_reshape(f, x, n, dims);
        if (y >= 0) {
            return y;
        }
    }
    for (int d = 0; d < n; d++) {
        order[d] = turn && d >= n - 2 ? 2 * n - 3 - d : d;
        stored[d] = dims[order[d]];
    }
    x = fz_chance(f, 60) ? fz_dequantized(f, type_near(f, a), n, stored, -1)
                         : fz_input(f, type_near(f, a), n, stored);
    if (turn) {
        x = fz_transpose(f, x, order);
    }
    return fz_chance(f, 10) ? fz_cast(f, type_near(f, a), x) : x;
}

/* Values that are a part of each token of the keys, as in latent attention; by_token: a token is a
 * row of them. */
static int part_of_keys(fz_t *f, const attention_t *a, int k, bool by_token)
{
    const fz_tensor_t t = f->tensors[k];
    const int64_t axis = t.ndims - (by_token ? 1 : 2),
                  start = fz_chance(f, 70) ? 0 : fz_pick(f, (int)(a->d - a->dv) + 1),
                  end = start + a->dv;
    int64_t dims[FZ_MAX_RANK];

    memcpy(dims, t.dims, sizeof dims);
    dims[axis] = a->dv;
    k = FZ_OP(f, slice, t.type, t.ndims, dims, k);
    fz_s64(f, sinter_op_attr_starts, 1, &start);
    fz_s64(f, sinter_op_attr_ends, 1, &end);
    fz_s64(f, sinter_op_attr_axes, 1, &axis);
    return k;
}

/* ---- scores ---------------------------------------------------------------------------------- */

/* Dims that broadcast to the scores; the row dim may be one row for all. */
static int mask_dims(fz_t *f, const attention_t *a, int64_t *dims)
{
    const int64_t rows = a->turned ? a->t : a->s, cols = a->turned ? a->s : a->t;
    int n = with_lead(a->lead, a->ndims, fz_chance(f, 70) ? rows : 1, fz_chance(f, 95) ? cols : 1,
                      dims),
        drop = fz_chance(f, 25) ? fz_pick(f, n - 1) : 0;

    for (int d = 0; d < n - 2; d++) {
        if (a->mixed) {
            dims[d] = fz_part(f, dims[d], 50);
        } else if (fz_chance(f, 50)) {
            dims[d] = 1;
        }
    }
    memmove(dims, dims + drop, (size_t)(n - drop) * sizeof *dims);
    return n - drop;
}

static int add_mask(fz_t *f, const attention_t *a, int x)
{
    int64_t dims[FZ_MAX_RANK];
    int n = mask_dims(f, a, dims), mask = fz_input(f, type_near(f, a), n, dims),
        first = fz_chance(f, 80);

    if (fz_chance(f, 10)) {
        mask = fz_cast(f, fz_float(f), mask);
    }
    return fz_binary(f, sinter_op_add, type_near(f, a), first ? x : mask, first ? mask : x);
}

/* cap * tanh(x / cap) */
static int soft_cap(fz_t *f, const attention_t *a, int x)
{
    x = fz_unary(f, sinter_op_tanh, type_near(f, a), scaled(f, a, x));
    return scaled(f, a, x);
}

static int choose(fz_t *f, const attention_t *a, int keep, int x)
{
    const fz_tensor_t t = f->tensors[x], k = f->tensors[keep];
    int64_t dims[FZ_MAX_RANK];
    int fill = fz_scalar(f, type_near(f, a), t.ndims), inverted = fz_chance(f, 20),
        n = fz_joined_dims(f, k.ndims, k.dims, t.ndims, t.dims, dims);

    return FZ_OP(f, select, type_near(f, a), n, dims, keep, inverted ? fill : x,
                 inverted ? x : fill);
}

static int select_mask(fz_t *f, const attention_t *a, int x)
{
    int64_t dims[FZ_MAX_RANK];
    int n = mask_dims(f, a, dims);

    return choose(f, a, fz_input(f, sinter_boolean, n, dims), x);
}

static int index_along(fz_t *f, int x, int axis)
{
    const int n = f->tensors[x].ndims;
    int index = fz_unary(f, sinter_op_gen_index, sinter_s32, x);

    fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 50) ? axis : n + axis});
    return index;
}

/* A window of columns that ends at the row. Scalars give its length and a shift. Its two
 * conditions are two masks, or are multiplied. */
static int window(fz_t *f, const attention_t *a, int x)
{
    const int n = f->tensors[x].ndims;
    int row = index_along(f, x, -2), column = index_along(f, x, -1), first, late, near;

    if (fz_chance(f, 60)) {
        row = fz_binary(f, sinter_op_add, sinter_s32, row, fz_scalar(f, sinter_s32, n));
    }
    if (fz_chance(f, 50)) {
        first = fz_binary(f, sinter_op_subtract, sinter_s32, row, fz_scalar(f, sinter_s32, n));
        near = fz_binary(f, sinter_op_greater_equal, sinter_boolean, column, first);
    } else {
        first = fz_binary(f, sinter_op_add, sinter_s32, column, fz_scalar(f, sinter_s32, n));
        near = fz_binary(f, sinter_op_greater_equal, sinter_boolean, first, row);
    }
    late = fz_binary(f, sinter_op_greater_equal, sinter_boolean, row, column);
    if (fz_chance(f, 60)) {
        return choose(f, a, late, choose(f, a, near, x));
    }
    late = fz_binary(f, sinter_op_multiply, sinter_f32, fz_cast(f, sinter_f32, late),
                     fz_cast(f, sinter_f32, near));
    return choose(f, a, fz_cast(f, sinter_boolean, late), x);
}

/* Top-left, shifted by scalars (bottom-right for T - S), or a window behind the diagonal. */
static int causal(fz_t *f, const attention_t *a, int x)
{
    int row = index_along(f, x, -2), column = index_along(f, x, -1), keep;

    for (int i = fz_chance(f, 40) ? fz_range(f, 1, 2) : 0; i > 0; i--) {
        int shift = fz_scalar(f, sinter_s32, f->tensors[x].ndims);

        row = fz_binary(f, fz_chance(f, 60) ? sinter_op_add : sinter_op_subtract, sinter_s32, row,
                        shift);
    }
    keep = fz_chance(f, 80) ? fz_binary(f, sinter_op_greater_equal, sinter_boolean, row, column)
                            : fz_binary(f, sinter_op_greater_equal, sinter_boolean, column, row);
    return choose(f, a, keep, x);
}

/* An s32 input with values for some batch dims, of as many dims as the scores or fewer. */
static int by_sequence(fz_t *f, const attention_t *a)
{
    int64_t dims[FZ_MAX_RANK];
    int n = with_lead(a->lead, a->ndims, 1, 1, dims), drop = fz_chance(f, 15) ? fz_pick(f, n) : 0;

    for (int d = 0; d < n - 2; d++) {
        if (a->mixed) {
            dims[d] = fz_part(f, dims[d], 50);
        } else if (fz_chance(f, d == 0 ? 20 : 70)) {
            dims[d] = 1;
        }
    }
    memmove(dims, dims + drop, (size_t)(n - drop) * sizeof *dims);
    return fz_input(f, sinter_s32, n - drop, dims);
}

/* Columns up to the length of each sequence, or of a window behind it; the rows may be its last
 * tokens. */
static int lengths(fz_t *f, const attention_t *a, int x)
{
    int end = by_sequence(f, a), column = index_along(f, x, -1), near;

    if (fz_chance(f, 60)) { /* inputs are small numbers */
        end = fz_binary(f, sinter_op_add, sinter_s32, end, fz_scalar(f, sinter_s32, 1));
    }
    if (fz_chance(f, 50)) {
        end = fz_binary(f, sinter_op_add, sinter_s32, index_along(f, x, -2), end);
    }
    if (fz_chance(f, 30)) {
        near = fz_binary(f, sinter_op_subtract, sinter_s32, end, by_sequence(f, a));
        near = fz_binary(f, sinter_op_greater_equal, sinter_boolean, column, near);
        x = choose(f, a, near, x);
    }
    near = fz_chance(f, 50) ? fz_binary(f, sinter_op_greater_equal, sinter_boolean, end, column)
                            : fz_binary(f, sinter_op_greater_equal, sinter_boolean, column, end);
    return choose(f, a, near, x);
}

static int score(fz_t *f, const attention_t *a, int x)
{
    if (fz_chance(f, 15)) {
        x = fz_cast(f, fz_float(f), x);
    }
    if (fz_chance(f, 75)) {
        x = scaled(f, a, x);
    }
    if (fz_chance(f, 15)) {
        x = soft_cap(f, a, x);
    }
    if (fz_chance(f, 45)) {
        x = add_mask(f, a, x);
    }
    if (fz_chance(f, 12)) {
        x = select_mask(f, a, x);
    }
    if (fz_chance(f, 25)) {
        x = causal(f, a, x);
    }
    if (fz_chance(f, 15)) {
        x = window(f, a, x);
    }
    if (fz_chance(f, 15)) {
        x = lengths(f, a, x);
    }
    if (fz_chance(f, 8)) {
        x = add_mask(f, a, x);
    }
    return x;
}

static int probabilities(fz_t *f, const attention_t *a, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int axis = t.ndims - (a->turned ? 2 : 1), safe = fz_chance(f, 50);
    int64_t stats[FZ_MAX_RANK];
    int p;

    if (fz_chance(f, 25)) {
        for (int d = 0; d < t.ndims; d++) {
            stats[d] = d != axis ? fz_part(f, t.dims[d], 50) : 1;
        }
        p = FZ_OP(f, softmax, type_near(f, a), t.ndims, t.dims, x,
                  fz_input(f, type_near(f, a), t.ndims, stats));
    } else {
        p = fz_unary(f, sinter_op_softmax, type_near(f, a), x);
    }

    fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 50) ? axis - t.ndims : axis});
    if (safe || fz_chance(f, 30)) {
        fz_str(f, sinter_op_attr_mode, safe ? "inf_as_zero" : "none");
    }
    if (fz_chance(f, 15)) {
        memcpy(stats, t.dims, sizeof stats);
        stats[axis] = 1;
        fz_more_output(f, sinter_f32, t.ndims, stats);
    }
    if (fz_chance(f, 12)) {
        p = fz_cast(f, fz_float(f), p);
    }
    if (fz_chance(f, 10)) {
        const float scale = 1.0f / 128;
        const sinter_data_type_t code =
            (sinter_data_type_t)FZ_ONE_OF(f, sinter_u8, sinter_u8, sinter_s8, sinter_f8_e4m3);

        p = fz_unary(f, sinter_op_quantize, code, p);
        fz_f32(f, sinter_op_attr_scales, 1, &scale);
        p = fz_unary(f, sinter_op_dequantize, type_near(f, a), p);
        fz_f32(f, sinter_op_attr_scales, 1, &scale);
    }
    return p;
}

/* ---- behind ---------------------------------------------------------------------------------- */

static int tail(fz_t *f, const attention_t *a, int x)
{
    static const int64_t swap_heads[4] = {0, 2, 1, 3};
    const int64_t flat[4] = {a->b, a->heads * a->groups, a->s, a->dv},
                  rows[3] = {a->b, a->s, a->heads * a->groups * a->dv};
    int y;

    if (a->layout == RESHAPED_5D) {
        y = fz_reshape(f, x, 4, flat);
        x = y < 0 ? x : y;
    }
    if (f->tensors[x].ndims == 4 && fz_chance(f, 35)) {
        x = fz_transpose(f, x, swap_heads);
        if (!a->mixed && fz_chance(f, 50)) {
            y = fz_reshape(f, x, 3, rows);
            x = y < 0 ? x : y;
        } else if (fz_chance(f, 50)) {
            x = fz_unary(f, sinter_op_reorder, f->tensors[x].type, x);
        }
    }
    if (fz_chance(f, 12)) {
        x = fz_cast(f, fz_float(f), x);
    }
    if (fz_chance(f, 10)) {
        x = fz_post_op(f, x);
    }
    return fz_chance(f, 10) ? fz_quantized(f, x) : x;
}

/* K or V in tiles, now and then; not drawn: seeds name the same cases as before. Compile does not
 * choose them: it does for attention as one step, and for ops alone it chooses others. */
static void perhaps_in_tiles(fz_t *f, int x, int turned, int is_v)
{
    if (random_mix(f->seed ^ (uint64_t)(x + 1) << 20) % 100 < 25) {
        fz_cache_in_tiles(f, x, turned, is_v, 0);
    }
}

void fz_gen_attention(fz_t *f)
{
    attention_t a = {0};
    int64_t t;
    int q, k, v, x, turned, stored, by_token;

    choose_sizes(f, &a);
    choose_layout(f, &a);
    q = query(f, &a);
    if (fz_chance(f, 10)) {
        q = scaled(f, &a, q);
    }
    turned = by_token = fz_chance(f, 50);
    t = some_of(f, &a, a.t);
    k = stored = turned ? keys(f, &a, a.missing, t, a.d) : keys(f, &a, a.missing, a.d, t);
    perhaps_in_tiles(f, k, turned, 0);
    if (fz_chance(f, 5)) {
        k = scaled(f, &a, k);
    }
    x = multiply(f, type_near(f, &a), q, false, k, turned);
    if (turned) {
        fz_bool(f, sinter_op_attr_transpose_b, 1);
    }
    x = probabilities(f, &a, score(f, &a, x));
    turned = fz_chance(f, 15);
    t = f->tensors[x].dims[f->tensors[x].ndims - 1];
    if (!a.missing && a.dv <= a.d && fz_chance(f, 15) &&
        f->tensors[stored].dims[f->tensors[stored].ndims - (by_token ? 2 : 1)] == t) {
        turned = !by_token;
        v = part_of_keys(f, &a, stored, by_token);
    } else {
        v = turned ? keys(f, &a, 0, a.dv, t) : keys(f, &a, 0, t, a.dv);
        perhaps_in_tiles(f, v, turned, 1);
    }
    x = multiply(f, type_near(f, &a), x, false, v, turned);
    if (turned) {
        fz_bool(f, sinter_op_attr_transpose_b, 1);
    }
    tail(f, &a, x);
}

static int swap_matrix(fz_t *f, int x)
{
    const int n = f->tensors[x].ndims;
    int64_t order[FZ_MAX_RANK];

    for (int d = 0; d < n; d++) {
        order[d] = d < n - 2 ? d : 2 * n - 3 - d;
    }
    return fz_transpose(f, x, order);
}

/* MatMul(K, Q) with one row of scores for each key, or the usual scores behind a transpose. */
static int turned_scores(fz_t *f, const attention_t *a)
{
    const int usual = fz_chance(f, 25), flip_k = fz_chance(f, 40), q = query(f, a);
    const int64_t t = some_of(f, a, a->t);
    const int k = flip_k ? keys(f, a, a->missing, a->d, t) : keys(f, a, a->missing, t, a->d);
    int x;

    if (usual) {
        x = multiply(f, type_near(f, a), q, false, k, !flip_k);
        fz_bool(f, sinter_op_attr_transpose_b, !flip_k);
        return swap_matrix(f, x);
    }
    x = multiply(f, type_near(f, a), k, flip_k, q, true);
    fz_bool(f, sinter_op_attr_transpose_a, flip_k);
    fz_bool(f, sinter_op_attr_transpose_b, 1);
    return x;
}

/* Attention with the scores transposed. V stands on the left of the probabilities, which makes the
 * output transposed too, or they are transposed back by an attribute or an op. */
void fz_gen_turned_attention(fz_t *f)
{
    attention_t a = {.turned = true};
    int64_t t;
    int v, x, left, flip_v;

    choose_sizes(f, &a);
    choose_layout(f, &a);
    x = probabilities(f, &a, score(f, &a, turned_scores(f, &a)));
    left = fz_chance(f, 50);
    flip_v = fz_chance(f, 40);
    t = f->tensors[x].dims[f->tensors[x].ndims - 2];
    v = flip_v ? keys(f, &a, 0, a.dv, t) : keys(f, &a, 0, t, a.dv);
    if (left) {
        x = multiply(f, type_near(f, &a), v, !flip_v, x, false);
        fz_bool(f, sinter_op_attr_transpose_a, !flip_v);
    } else {
        const int by_op = fz_chance(f, 50);

        x = by_op ? swap_matrix(f, x) : x;
        x = multiply(f, type_near(f, &a), x, !by_op, v, flip_v);
        fz_bool(f, sinter_op_attr_transpose_a, !by_op);
        fz_bool(f, sinter_op_attr_transpose_b, flip_v);
    }
    if (left && fz_chance(f, 50)) {
        swap_matrix(f, x);
    } else if (!left) {
        tail(f, &a, x);
    }
}

/* ---- caches in pages ------------------------------------------------------------------------- */

/* Blocks of tokens, and a table that names those of each sequence. */
typedef struct pages {
    int64_t blocks, of_table, page;
    int table;        /* the tensor: blocks of each sequence, or of the sequence of each token */
    int tokens_first; /* in a block: before the heads */
    int single;       /* a block is one token, without a dim of its own */
} pages_t;

/* A dim that is `by` times another one. */
static int64_t times(fz_t *f, int64_t dim, int64_t by)
{
    return fz_is_symbol(dim) ? fz_symbol(f, fz_size(f, dim, 0) * by, fz_size(f, dim, 1) * by,
                                         fz_size(f, dim, 2) * by)
                             : dim * by;
}

/* Of a ragged batch each row names its sequence. */
static void choose_pages(fz_t *f, attention_t *a, pages_t *p)
{
    const int ragged = fz_chance(f, 40);
    const int64_t sequences = ragged ? fz_dim(f, fz_range(f, 1, 3), 1) : a->b;
    a->layout = fz_chance(f, 50) ? GROUPS_5D : HEADS_4D;
    if (a->layout == HEADS_4D) { /* the queries of a head are its rows */
        a->s = a->groups;
        a->groups = 1;
    }
    if (ragged && a->layout == GROUPS_5D) {
        a->s = 1;
    }
    a->mixed = false;
    choose_layout(f, a);
    p->single = fz_chance(f, 20);
    p->page = p->single ? 1 : FZ_ONE_OF(f, 1, 8, 16, 16, 32, 5);
    p->tokens_first = fz_chance(f, 40);
    p->of_table = fz_dim(f, FZ_ONE_OF(f, 1, 2, 3, 5), 1);
    p->blocks = fz_dim(f, FZ_ONE_OF(f, 1, 4, 9), 1);
    a->t = p->page == 1 ? p->of_table : times(f, p->of_table, p->page);
    p->table = fz_indices(f, 2, (int64_t[]){sequences, p->of_table}, p->blocks);
    f->tensors[p->table].from_end = fz_chance(f, 40);
    if (ragged) {
        const sinter_data_type_t type = f->tensors[p->table].type;
        p->table = FZ_OP(f, gather, type, 2, ((int64_t[]){a->b, p->of_table}), p->table,
                         fz_indices(f, 1, &a->b, sequences));
    }
}

/* What the table takes of codes, scales or zero points of so many elements for a token: tokens of
 * all items, [b, heads, (1,) T, width]. */
static int taken(fz_t *f, const attention_t *a, const pages_t *p, sinter_data_type_t type,
                 int64_t width)
{
    const int64_t single[3] = {p->blocks, a->heads, width},
                  blocks[4] = {p->blocks, p->tokens_first ? p->page : a->heads,
                               p->tokens_first ? a->heads : p->page, width},
                  orders[3][5] = {{0, 2, 1, 3, 4}, {0, 3, 1, 2, 4}, {0, 2, 1, 3}};
    const int64_t *dims = p->single ? single : blocks;
    int64_t out[FZ_MAX_RANK], shape[FZ_MAX_RANK];
    const int n = p->single ? 3 : 4, ndims = a->ndims;
    int x = fz_input(f, type, n, dims);

    if (gr_dtype(type)->bits % 8 != 0) {
        fz_no_gaps(f, x);
    }
    out[0] = a->b;
    out[1] = p->of_table;
    memcpy(out + 2, dims + 1, (size_t)(n - 1) * sizeof *out);
    x = fz_transpose(f, FZ_OP(f, gather, type, n + 1, out, x, p->table),
                     orders[p->single ? 2 : p->tokens_first]);
    with_lead(a->kv_lead, ndims, a->t, width, out);
    memcpy(shape, out, sizeof shape);
    shape[0] = 0;
    shape[ndims - 2] = -1;
    x = FZ_OP(f, static_reshape, type, ndims, out, x);
    fz_s64(f, sinter_op_attr_shape, (size_t)ndims, shape);
    fz_bool(f, sinter_op_attr_special_zero, 1);
    return x;
}

static int paged_keys(fz_t *f, const attention_t *a, const pages_t *p, int64_t width)
{
    const sinter_data_type_t types[] = {sinter_f32, sinter_f16,     sinter_bf16, sinter_s8,
                                        sinter_u8,  sinter_f4_e2m1, sinter_s4,   sinter_u4},
                             scales[] = {sinter_f16, sinter_f32, sinter_bf16},
                             type = types[fz_pick(f, 8)],
                             zp = (sinter_data_type_t)FZ_ONE_OF(f, sinter_u8, sinter_s8);
    const int64_t group = width % 32 == 0 && fz_chance(f, 60) ? 32 : width,
                  sizes[5] = {1, 1, 1, 1, group};
    const int whole = gr_dtype(type)->class_ == GR_INT, n = whole && fz_chance(f, 40) ? 3 : 2;
    int in[3] = {taken(f, a, p, type, width), -1, -1};
    int64_t dims[FZ_MAX_RANK];

    with_lead(a->kv_lead, a->ndims, a->t, width, dims);
    if (!whole && type != sinter_f4_e2m1) {
        return in[0];
    }
    in[1] = taken(f, a, p, whole ? scales[fz_pick(f, 3)] : sinter_e8m0, width / group);
    in[2] = n == 3 ? taken(f, a, p, zp, width / group) : -1;
    const int x = fz_op(f, sinter_op_dynamic_dequantize, type_near(f, a), a->ndims, dims, n, in);
    fz_str(f, sinter_op_attr_qtype, "per_group");
    fz_s64(f, sinter_op_attr_group_shape, (size_t)a->ndims, sizes + 5 - a->ndims);
    return x;
}

/* Attention over caches in pages, of sequences or of a ragged batch of tokens. */
void fz_gen_paged_attention(fz_t *f)
{
    attention_t a = {0};
    pages_t p = {0};

    choose_sizes(f, &a);
    choose_pages(f, &a, &p);
    const int q = query(f, &a), k = paged_keys(f, &a, &p, a.d);
    int x = multiply(f, type_near(f, &a), q, false, k, true);
    fz_bool(f, sinter_op_attr_transpose_b, 1);
    x = probabilities(f, &a, score(f, &a, fz_chance(f, 50) ? lengths(f, &a, x) : x));
    x = multiply(f, type_near(f, &a), x, false, paged_keys(f, &a, &p, a.dv), false);
    tail(f, &a, x);
}
