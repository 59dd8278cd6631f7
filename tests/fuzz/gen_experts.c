/* Products with experts: a Gather takes matrices of a table by index, with scales and zero points
 * or offsets of their own, and rows of an activation meet them. What stands in the way of fusing
 * now and then is drawn too: other readers, other indices for scales, several rows of A. And the
 * MLP of experts: one or two such products, an activation, another product, a sum over the experts
 * of each token. */
#include "fuzz.h"

#include <string.h>

typedef struct experts {
    int64_t n, N, K, group, tokens, each; /* group 0: all of K */
    sinter_data_type_t codes, scale, zp;  /* undef: none */
    int turned, offsets, constant, tiled, any, ids, n_ids;
    int nested; /* scales and offsets in tiles are codes themselves, SHARED of them with a factor */
    int whole;  /* scales are f8_e4m3, and each expert has a factor, as in NVFP4 */
} experts_t;

enum { SHARED = 8 };

static int is_plain(sinter_data_type_t type)
{
    return type == sinter_f32 || type == sinter_f16 || type == sinter_bf16;
}

static void choose(fz_t *f, experts_t *e)
{
    e->n = FZ_ONE_OF(f, 1, 2, 3, 5, 8, 33);
    e->N = FZ_ONE_OF(f, 16, 16, 32, 48, 144, 272, 304, 7, 20);
    e->group = FZ_ONE_OF(f, 0, 16, 32, 32, 32, 64, 128);
    e->K = e->group ? e->group * FZ_ONE_OF(f, 1, 2, 3, 5) : FZ_ONE_OF(f, 8, 31, 64, 100, 320);
    e->tokens = fz_dim(f, FZ_ONE_OF(f, 1, 1, 2, 3, 7, 17, 40), 1);
    e->each = FZ_ONE_OF(f, 1, 2, 2, 4);
    e->codes = (sinter_data_type_t)FZ_ONE_OF(f, sinter_s4, sinter_s4, sinter_u4, sinter_u4,
                                             sinter_s8, sinter_u8, sinter_f4_e2m1, sinter_f8_e4m3,
                                             sinter_f16, sinter_bf16, sinter_f32);
    e->scale = (sinter_data_type_t)FZ_ONE_OF(f, sinter_f16, sinter_f16, sinter_f32, sinter_bf16);
    e->zp = sinter_data_type_undef;
    e->offsets = fz_chance(f, 50);
    if (gr_dtype(e->codes)->class_ == GR_INT && fz_chance(f, 50)) {
        e->zp = e->offsets ? (sinter_data_type_t)FZ_ONE_OF(f, sinter_f16, sinter_f32)
                           : (sinter_data_type_t)FZ_ONE_OF(f, sinter_s8, sinter_u8, sinter_u4);
    }
    e->turned = fz_chance(f, 70);
    e->constant = fz_chance(f, 50);
    e->tiled = !e->constant && fz_chance(f, 50) && e->N % 16 == 0;
    e->n_ids = fz_chance(f, 80) ? 2 : 1;
    e->any = e->tiled && fz_chance(f, 50);
    e->nested = e->tiled && (!e->zp || e->offsets) && fz_chance(f, 40);
    if (e->nested) {
        e->scale = sinter_f32;
        e->zp = e->zp ? sinter_f32 : e->zp;
        e->group = 32;
        e->K = e->group * SHARED * FZ_ONE_OF(f, 1, 2);
    }
    e->whole = !e->nested && e->codes == sinter_f4_e2m1 && fz_chance(f, 60);
    if (e->whole) {
        e->scale = sinter_f8_e4m3;
        e->group = FZ_ONE_OF(f, 16, 16, 16, 32);
        e->K = e->group * FZ_ONE_OF(f, 1, 2, 4, 8, 20);
    }
}

/* What the indices take of a table of so many groups along K. part: 1 codes, 2 values, as fz_tensor
 * says. */
static int taken(fz_t *f, const experts_t *e, sinter_data_type_t type, int64_t along, int part)
{
    const int64_t dims[3] = {e->n, e->turned ? e->N : along, e->turned ? along : e->N};
    const int64_t out[4] = {e->tokens, e->each, dims[1], dims[2]};
    const int table = fz_input(f, type, 3, dims), packed = gr_dtype(type)->bits % 8 != 0;
    fz_tensor_t *t = &f->tensors[table];
    if (packed || e->tiled || fz_chance(f, 60)) {
        fz_no_gaps(f, table);
    }
    if (e->constant) {
        t->property = sinter_tensor_property_constant;
    }
    t->tiles = e->tiled ? part : 0;
    t->turned = e->turned;
    t->any = e->any && !e->nested;
    const int x =
        FZ_OP(f, gather, type, 2 + e->n_ids, e->n_ids == 2 ? out : out + 1, table, e->ids);
    if (fz_chance(f, 50)) {
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 50) ? 0 : -3});
    }
    return x;
}

/* A factor for each expert. */
static int factors(fz_t *f, const experts_t *e, sinter_data_type_t type)
{
    const int64_t table[3] = {e->n, 1, 1}, of_each[4] = {e->tokens, e->each, 1, 1};
    const int all = fz_input(f, type, 3, table);
    if (e->constant) {
        f->tensors[all].property = sinter_tensor_property_constant;
    }
    return FZ_OP(f, gather, type, 2 + e->n_ids, of_each + 2 - e->n_ids, all, e->ids);
}

/* Codes of scales times the factor of the expert. */
static int times_whole(fz_t *f, const experts_t *e, int codes, int64_t groups)
{
    const int64_t sizes[4] = {1, 1, e->turned ? e->N : groups, e->turned ? groups : e->N};
    const fz_tensor_t t = f->tensors[codes];
    const int from = 2 - e->n_ids, x = FZ_OP(f, dynamic_dequantize, sinter_f32, t.ndims, t.dims,
                                             codes, factors(f, e, sinter_f32));
    fz_str(f, sinter_op_attr_qtype, "per_group");
    fz_s64(f, sinter_op_attr_group_shape, (size_t)(2 + e->n_ids), sizes + from);
    return x;
}

/* Scales or offsets. */
static int values(fz_t *f, const experts_t *e, sinter_data_type_t type, int64_t groups)
{
    const int64_t dims[4] = {e->tokens, e->each, e->turned ? e->N : groups,
                             e->turned ? groups : e->N},
                  sizes[4] = {1, 1, e->turned ? 1 : SHARED, e->turned ? SHARED : 1};
    const int from = 2 - e->n_ids;
    if (!e->nested) {
        const int own = taken(f, e, type, groups, 2);
        return e->whole && fz_chance(f, 15) ? times_whole(f, e, own, groups) : own;
    }
    const int codes =
                  taken(f, e, (sinter_data_type_t)FZ_ONE_OF(f, sinter_s8, sinter_u8), groups, 2),
              factors = taken(f, e, sinter_f16, groups / SHARED, 2);
    const int x = FZ_OP(f, dynamic_dequantize, type, 2 + e->n_ids, dims + from, codes, factors);
    fz_str(f, sinter_op_attr_qtype, "per_group");
    fz_s64(f, sinter_op_attr_group_shape, (size_t)(2 + e->n_ids), sizes + from);
    return x;
}

/* The experts as floats. */
static int weights(fz_t *f, const experts_t *e, sinter_data_type_t type)
{
    const int64_t groups = e->group ? e->K / e->group : 1, K = e->group ? e->group : e->K;
    const int64_t dims[4] = {e->tokens, e->each, e->turned ? e->N : e->K, e->turned ? e->K : e->N},
                  sizes[4] = {1, 1, e->turned ? 1 : K, e->turned ? K : 1};
    const int from = 2 - e->n_ids;
    int in[3] = {taken(f, e, e->codes, e->K, 1)};
    if (is_plain(e->codes)) {
        return e->codes == type ? in[0] : fz_cast(f, type, in[0]);
    }
    in[1] = values(f, e, e->scale, groups);
    in[2] = e->zp ? values(f, e, e->zp, groups) : -1;
    const int x =
        fz_op(f, sinter_op_dynamic_dequantize, type, 2 + e->n_ids, dims + from, e->zp ? 3 : 2, in);
    fz_str(f, sinter_op_attr_qtype, "per_group");
    fz_s64(f, sinter_op_attr_group_shape, (size_t)(2 + e->n_ids), sizes + from);
    if (e->zp && e->offsets) {
        fz_str(f, sinter_op_attr_zps_kind, "offsets");
    }
    return x;
}

void fz_gen_experts(fz_t *f)
{
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_int8,
                                                 sinter_fpmath_mode_f16, sinter_fpmath_mode_any};
    experts_t e;
    f->lacks_ranks = 0; /* of tables in tiles the dims are known */
    choose(f, &e);
    f->mode = modes[fz_pick(f, 4)];
    f->apply_to_int = fz_chance(f, 90);
    const int64_t ids[2] = {e.tokens, e.each};
    e.ids = fz_indices(f, e.n_ids, ids + 2 - e.n_ids, e.n);
    f->tensors[e.ids].from_end = fz_chance(f, 20);
    const int64_t shared = e.n_ids == 2 && fz_chance(f, 50) ? 1 : e.each,
                  rows = fz_chance(f, 10) ? 2 : 1;
    const int64_t a_dims[4] = {e.tokens, shared, rows, e.K}, out[4] = {e.tokens, e.each, rows, e.N};
    const int from = 2 - e.n_ids;
    const sinter_data_type_t type = fz_float(f);
    const int a = fz_input(f, type, 2 + e.n_ids, a_dims + from), b = weights(f, &e, type);
    f->tensors[b].keep = fz_chance(f, 5);
    if (fz_chance(f, 10)) {
        f->tensors[a].nonfinite = 2;
    }
    int x = FZ_OP(f, matmul, type, 2 + e.n_ids, out + from, a, b);
    if (e.turned) {
        fz_bool(f, sinter_op_attr_transpose_b, 1);
    }
    if (e.whole && fz_chance(f, 70)) {
        x = fz_binary(f, sinter_op_multiply, type, x, factors(f, &e, type));
    }
    for (int i = fz_pick(f, 3); i > 0; i--) {
        x = fz_post_op(f, x);
    }
}

/* ---- the MLP --------------------------------------------------------------------------------- */

/* Rows [tokens, each or 1, 1, K] times experts, perhaps plus a bias of each. flat: the results are
 * seen without the dim of 1. */
static int dense(fz_t *f, const experts_t *e, sinter_data_type_t type, int x, int flat)
{
    const int64_t out[4] = {e->tokens, e->each, 1, e->N}, table[3] = {e->n, 1, e->N},
                  flat_out[3] = {e->tokens, e->each, e->N}, flat_table[2] = {e->n, e->N};
    const int from = 2 - e->n_ids, w = weights(f, e, type);
    int y = FZ_OP(f, matmul, type, 2 + e->n_ids, out + from, x, w);
    if (e->turned) {
        fz_bool(f, sinter_op_attr_transpose_b, 1);
    }
    if (e->whole && fz_chance(f, 70)) {
        y = fz_binary(f, sinter_op_multiply, type, y, factors(f, e, type));
    }
    if (flat) {
        y = fz_reshape(f, y, 1 + e->n_ids, flat_out + from);
    }
    if (fz_chance(f, 30)) {
        const sinter_data_type_t of_bias = fz_chance(f, 80) ? type : fz_float(f);
        const int rows =
                      flat ? fz_input(f, of_bias, 2, flat_table) : fz_input(f, of_bias, 3, table),
                  bias = FZ_OP(f, gather, of_bias, (flat ? 1 : 2) + e->n_ids,
                               (flat ? flat_out : out) + from, rows, e->ids);
        y = fz_binary(f, sinter_op_add, type, y, bias);
    }
    return y;
}

/* Swish, GELU, the clamped swish of gpt-oss, or relu(x)^2. */
static int activated(fz_t *f, sinter_data_type_t type, int x)
{
    const int which = fz_pick(f, 4);
    if (which == 0) {
        return fz_unary(f, sinter_op_gelu, type, x);
    }
    if (which == 1) {
        return fz_unary(f, sinter_op_square, type, fz_unary(f, sinter_op_relu, type, x));
    }
    if (which == 2) {
        x = fz_binary(f, sinter_op_minimum, type, x, fz_scalar(f, type, 2));
    }
    const int y = which == 2 ? fz_binary(f, sinter_op_multiply, type, x, fz_scalar(f, type, 2)) : x;
    return fz_binary(f, sinter_op_multiply, type, x, fz_unary(f, sinter_op_sigmoid, type, y));
}

/* x * sigmoid(x) of results that are seen twice without their dim of 1, with it again. */
static int activated_flat(fz_t *f, const experts_t *e, sinter_data_type_t type, int x)
{
    const int64_t flat[3] = {e->tokens, e->each, e->N}, rows[4] = {e->tokens, e->each, 1, e->N};
    const int from = 2 - e->n_ids, once = fz_reshape(f, x, 1 + e->n_ids, flat + from),
              again = fz_reshape(f, x, 1 + e->n_ids, flat + from),
              y = fz_binary(f, sinter_op_multiply, type, once,
                            fz_unary(f, sinter_op_sigmoid, type, again));
    return fz_reshape(f, y, 2 + e->n_ids, rows + from);
}

/* The first or the last half of the columns, or the even or the odd ones. */
static int half(fz_t *f, int x, int last, int in_turn)
{
    const fz_tensor_t t = f->tensors[x];
    int64_t dims[FZ_MAX_RANK];
    memcpy(dims, t.dims, sizeof dims);
    const int64_t n = dims[t.ndims - 1] /= 2;
    const int y = FZ_OP(f, slice, t.type, t.ndims, dims, x);
    fz_s64(f, sinter_op_attr_starts, 1, &(int64_t){!last ? 0 : in_turn ? 1 : n});
    fz_s64(f, sinter_op_attr_ends, 1, &(int64_t){last || in_turn ? 2 * n : n});
    fz_s64(f, sinter_op_attr_axes, 1, &(int64_t){-1});
    if (in_turn) {
        fz_s64(f, sinter_op_attr_steps, 1, &(int64_t){2});
    }
    return y;
}

void fz_gen_experts_mlp(fz_t *f)
{
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_int8,
                                                 sinter_fpmath_mode_f16, sinter_fpmath_mode_any};
    experts_t e;
    choose(f, &e);
    experts_t down = e;
    down.K = e.N;
    down.N = FZ_ONE_OF(f, 16, 32, 48, 144, 272);
    if (down.group > 0 && down.K % down.group != 0) {
        down.group = 0;
        down.scale = down.whole ? sinter_f32 : down.scale;
        down.whole = 0;
    }
    if (down.nested && down.K % (SHARED * 32) != 0) { /* scales of their own instead */
        down.nested = 0;
    }
    f->mode = modes[fz_pick(f, 4)];
    f->apply_to_int = fz_chance(f, 95);
    const int64_t ids[2] = {e.tokens, e.each};
    const int from = 2 - e.n_ids, near_miss = fz_chance(f, 15) ? 1 + fz_pick(f, 4) : 0;
    e.ids = fz_indices(f, e.n_ids, ids + from, e.n);
    f->tensors[e.ids].from_end = fz_chance(f, 20);
    down.ids = near_miss == 1 ? fz_indices(f, e.n_ids, ids + from, e.n) : e.ids;
    const int64_t shared = e.n_ids == 2 && fz_chance(f, 70) ? 1 : e.each,
                  x_dims[4] = {e.tokens, shared, 1, e.K}, of_each[4] = {e.tokens, e.each, 1, 1};
    const sinter_data_type_t type = fz_float(f);
    const int x = fz_input(f, type, 2 + e.n_ids, x_dims + from);
    if (fz_chance(f, 10)) {
        f->tensors[x].nonfinite = 2;
    }
    /* A reshape can say one unknown dim, and dims of 1 that are known. */
    const int flat = fz_chance(f, 40);
    const int64_t rows[4] = {e.tokens, e.each, 1, e.N};
    const int in_turn = fz_chance(f, 50), merged = (in_turn || e.N % 16 == 0) && fz_chance(f, 30);
    experts_t both = e;
    both.N = 2 * e.N;
    int gate = dense(f, merged ? &both : &e, type, x, flat), up = -1;
    if (merged) {
        const int all = gate, swap = fz_chance(f, 50);
        gate = half(f, all, swap, in_turn);
        up = half(f, all, !swap, fz_chance(f, 90) ? in_turn : !in_turn); /* or others */
    } else if (fz_chance(f, 70)) {
        up = dense(f, &e, type, x, flat);
    }
    int y =
        !flat && fz_chance(f, 20) ? activated_flat(f, &e, type, gate) : activated(f, type, gate);
    y = up < 0 ? y : fz_binary(f, sinter_op_multiply, type, y, up);
    f->tensors[y].keep = near_miss == 2;
    y = flat ? fz_reshape(f, y, 2 + e.n_ids, rows + from) : y;
    y = dense(f, &down, type, y, flat);
    if (fz_chance(f, 80)) {
        y = fz_binary(f, sinter_op_multiply, type, y,
                      fz_input(f, type, 2 + e.n_ids - flat, of_each + from));
    }
    if (near_miss != 3) {
        const int axis = near_miss == 4 ? e.n_ids : e.n_ids - 1, keep = fz_chance(f, 40);
        const int ndims = 2 + e.n_ids - flat;
        const int64_t dims[4] = {e.tokens, e.each, flat ? down.N : 1, down.N};
        int64_t out[4];
        int n = 0;
        for (int d = 0; d < ndims; d++) {
            if (d != axis || keep) {
                out[n++] = d == axis ? 1 : dims[d + from];
            }
        }
        y = FZ_OP(f, reduce_sum, type, n, out, y);
        fz_s64(f, sinter_op_attr_axes, 1, &(int64_t){fz_chance(f, 50) ? axis : axis - ndims});
        fz_bool(f, sinter_op_attr_keep_dims, keep);
    }
    if (fz_chance(f, 40)) {
        (void)fz_post_op(f, y);
    }
}
