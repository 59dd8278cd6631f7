/* The table of ops. A row says that an op of ggml is taken and what it becomes; an op without a row
 * stays with the host. A row without `special` is a plain op: one op of Sinter, whose inputs are
 * the sources of the node. It is refused unless they and the result are floats, and all sources
 * broadcast to the first. */
#include "ops.h"

#include <stdlib.h>

enum { MOST_ATTRS = 3 };

/* An attribute of kind f32 that is parameter number s64 of the node. */
#define PARAMETER ((sinter_op_part_kind_t)0)

typedef struct op_row {
    gs_op_t op;
    sinter_op_kind_t kind;
    sinter_op_part_t attrs[MOST_ATTRS];
    float operand;               /* a constant second input; 0: none */
    float swish;                 /* instead of kind: x * sigmoid(swish * x); 0: not */
    const gs_special_t *special; /* NULL: a plain op */
} op_row_t;

static const op_row_t *row_of(const tensor_t *t);
static bool repeat(gs_builder_t *b, int axis, int64_t each, int64_t count, lt_t *x);

/* ---- plain ops ------------------------------------------------------------------------------- */

/* Whether b broadcasts to a: each dim of b is equal to that of a, or 1. */
static bool broadcasts(const tensor_t *a, const tensor_t *b)
{
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (b->ne[i] != a->ne[i] && b->ne[i] != 1) {
            return false;
        }
    }
    return true;
}

static const char *refuse_plain(const tensor_t *t)
{
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        const char *why = t->src[i] ? gs_unreadable_floats(t->src[i]) : NULL;
        if (why) {
            return why;
        }
        if (t->src[i] && !broadcasts(t->src[0], t->src[i]) &&
            !ggml_can_repeat(t->src[i], t->src[0])) {
            return "a source that does not broadcast";
        }
    }
    return gs_is_float(t) ? NULL : "a result that is not f32, f16 or bf16";
}

/* y = x * sigmoid(factor * x) */
static bool swish(gs_builder_t *b, float factor, const lt_t *x, const lt_t *y)
{
    lt_t scaled = *x, s = gs_inner(b, sinter_f32);
    return (factor == 1 || gs_times(b, x, factor, &scaled)) &&
           gs_add(b, sinter_op_sigmoid, sinter_in(&scaled), sinter_out(&s)) &&
           gs_add(b, sinter_op_multiply, sinter_in(x), sinter_in(&s), sinter_out(y));
}

/* y = what the row makes of the inputs; t has its parameters. */
static bool apply(gs_builder_t *b, const op_row_t *row, const tensor_t *t, int n_inputs,
                  const lt_t *inputs, const lt_t *y)
{
    sinter_op_part_t parts[GGML_MAX_SRC + 2 + MOST_ATTRS];
    lt_t operand;
    int n = 0;
    if (row->swish != 0) {
        return swish(b, row->swish, inputs, y);
    }
    while (n < n_inputs) {
        parts[n] = sinter_in(&inputs[n]);
        n++;
    }
    if (row->operand != 0) {
        if (!gs_scalar(b, row->operand, &operand)) {
            return false;
        }
        parts[n++] = sinter_in(&operand);
    }
    parts[n++] = sinter_out(y);
    for (int i = 0; i < MOST_ATTRS && row->attrs[i].attr != sinter_op_attr_undef; i++) {
        parts[n] = row->attrs[i];
        if (parts[n].kind == PARAMETER) {
            parts[n] = sinter_attr_f32(parts[n].attr, gs_param(t, (int)parts[n].s64));
        }
        n++;
    }
    return gs_add_parts(b, row->kind, n, parts);
}

/* Source number i of a node, repeated where a broadcast does not do it. */
static bool use_source(gs_builder_t *b, const tensor_t *t, int i, int rank, lt_t *x)
{
    const tensor_t *src = t->src[i];
    if (broadcasts(t->src[0], src)) {
        const bool vector = i > 0 && ggml_nrows(src) == 1 && ggml_nrows(t) > 1;
        return gs_use_plain(b, src, vector ? 1 : rank, x);
    }
    bool ok = gs_use_plain(b, src, rank, x);
    for (int d = 0; d < rank && ok; d++) {
        if (gs_dim(b, t, d) < 0 || gs_dim(b, src, d) < 0) {
            return gs_fail(b, "repeats whose number changes");
        }
        ok = src->ne[d] == 1 || src->ne[d] == t->ne[d] ||
             repeat(b, rank - 1 - d, src->ne[d], t->ne[d], x);
    }
    return ok;
}

static bool translate_plain(gs_builder_t *b, const tensor_t *t)
{
    const int rank = gs_rank(t);
    lt_t inputs[GGML_MAX_SRC];
    int n = 0;
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (t->src[i] && !use_source(b, t, i, rank, &inputs[n++])) {
            return false;
        }
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    return apply(b, row_of(t), t, n, inputs, &y) && gs_done(b, &y, rank, gs_plain_order(rank));
}

/* ---- ADD ------------------------------------------------------------------------------------- */

/* Number i of the parts of a value along dim 1, each without that dim. */
static bool is_part(const tensor_t *t, const tensor_t *value, int64_t i)
{
    int dim;
    int64_t start, count;
    return gs_op(t) == GS_OP_VIEW && t->src[0] == value && t->ne[0] == value->ne[0] &&
           t->ne[1] == value->ne[2] && gs_part_of(t, &dim, &start, &count) == GS_PART_OF_DIM &&
           dim == 1 && start == i && count == 1;
}

/* The value of three dims of which t is the sum over dim 1, as ((part 0 + part 1) + part 2) ...:
 * what the experts of a token give. NULL: t is something else. */
static const tensor_t *summed_by(const gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *value = gs_op(t->src[1]) == GS_OP_VIEW ? t->src[1]->src[0] : NULL;
    if (!value || !gs_in_graph(b, value) || value->ne[1] < 2 || value->ne[3] != 1) {
        return NULL;
    }
    for (int64_t i = value->ne[1] - 1; i > 0; i--) {
        if (gs_op(t) != GS_OP_ADD || t->type != GGML_TYPE_F32 || !is_part(t->src[1], value, i)) {
            return NULL;
        }
        t = t->src[0];
    }
    return is_part(t, value, 0) ? value : NULL;
}

/* The sums before the last one are dropped where nobody else reads them. */
static bool translate_add(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *value = summed_by(b, t);
    lt_t x;
    if (!value) {
        return translate_plain(b, t);
    }
    if (!gs_use_plain(b, value, 3, &x)) {
        return false;
    }
    const lt_t y = gs_result(b, 2, gs_plain_order(2));
    return gs_add(b, sinter_op_reduce_sum, sinter_in(&x), sinter_out(&y),
                  sinter_attr_s64(sinter_op_attr_axes, 1)) &&
           gs_done(b, &y, 2, gs_plain_order(2));
}

static const gs_special_t add = {.translate = translate_add};

/* ---- MUL, SCALE ------------------------------------------------------------------------------ */

/* RMS_NORM times a vector is one op. The norm without it is dropped where nobody else reads it. */
static bool translate_mul(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *norm = t->src[0], *gamma = t->src[1];
    const int rank = gs_rank(t);
    lt_t x, g;
    if (gs_op(norm) != GS_OP_RMS_NORM || !gs_in_graph(b, norm) || ggml_nrows(gamma) != 1 ||
        gamma->ne[0] != t->ne[0] || rank != gs_rank(norm)) {
        return translate_plain(b, t);
    }
    if (!gs_use_plain(b, gamma, 1, &g) || !gs_use_plain(b, norm->src[0], rank, &x)) {
        return false;
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    return gs_add(b, sinter_op_rms_norm, sinter_in(&x), sinter_in(&g), sinter_out(&y),
                  sinter_attr_f32(sinter_op_attr_epsilon, gs_param(norm, 0)),
                  sinter_attr_bool(sinter_op_attr_use_affine, 1)) &&
           gs_done(b, &y, rank, gs_plain_order(rank));
}

static const gs_special_t mul = {.translate = translate_mul};

static bool translate_scale(gs_builder_t *b, const tensor_t *t)
{
    const float offset = gs_param(t, 1);
    const int rank = gs_rank(t);
    lt_t x, factor, o;
    if (!gs_use_plain(b, t->src[0], rank, &x) || !gs_scalar(b, gs_param(t, 0), &factor) ||
        (offset != 0 && !gs_scalar(b, offset, &o))) {
        return false;
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    const lt_t z = offset != 0 ? gs_inner(b, sinter_f32) : y;
    return gs_add(b, sinter_op_multiply, sinter_in(&x), sinter_in(&factor), sinter_out(&z)) &&
           (offset == 0 ||
            gs_add(b, sinter_op_add, sinter_in(&z), sinter_in(&o), sinter_out(&y))) &&
           gs_done(b, &y, rank, gs_plain_order(rank));
}

static const gs_special_t scale = {.translate = translate_scale};

/* ---- CONCAT, REPEAT, FILL -------------------------------------------------------------------- */

static const char *refuse_concat(const tensor_t *t)
{
    for (int i = 0; i < 2; i++) {
        const char *why = gs_unreadable_plain(t->src[i]);
        if (why) {
            return why;
        }
    }
    return NULL;
}

static bool translate_concat(gs_builder_t *b, const tensor_t *t)
{
    const int dim = t->op_params[0], rank = gs_rank(t) > dim ? gs_rank(t) : dim + 1;
    lt_t first, second;
    if (gs_joins_tokens(t)) {
        return gs_join_tokens(b, t);
    }
    if (!gs_use_plain(b, t->src[0], rank, &first) || !gs_use_plain(b, t->src[1], rank, &second)) {
        return false;
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    return gs_add(b, sinter_op_concat, sinter_in(&first), sinter_in(&second), sinter_out(&y),
                  sinter_attr_s64(sinter_op_attr_axis, rank - 1 - dim)) &&
           gs_done(b, &y, rank, gs_plain_order(rank));
}

static const gs_special_t concat = {.translate = translate_concat, .refuse = refuse_concat};

static const char *refuse_repeat(const tensor_t *t)
{
    return gs_unreadable_plain(t->src[0]);
}

/* The sizes of all dims that are repeated. */
static int64_t repeated_dims(const tensor_t *t)
{
    uint64_t hash = 0;
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        hash = t->ne[d] != t->src[0]->ne[d] ? gs_mix(hash, (uint64_t)t->ne[d]) : hash;
    }
    return (int64_t)hash;
}

/* *x becomes `count` elements along an axis, which are the first `each`, and these again. */
static bool repeat(gs_builder_t *b, int axis, int64_t each, int64_t count, lt_t *x)
{
    int32_t *from = malloc((size_t)count * sizeof(*from));
    lt_t indices, y = gs_inner(b, x->data_type);
    for (int64_t i = 0; i < count && from; i++) {
        from[i] = (int32_t)(i % each);
    }
    const bool ok = from ? gs_integers(b, from, (int)count, &indices) : gs_fail(b, "out of memory");
    free(from);
    if (!ok || !gs_add(b, sinter_op_gather, sinter_in(x), sinter_in(&indices), sinter_out(&y),
                       sinter_attr_s64(sinter_op_attr_axis, axis))) {
        return false;
    }
    *x = y;
    return true;
}

static bool translate_repeat(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *from = t->src[0];
    const int rank = gs_rank(t);
    lt_t x;
    if (!gs_use_plain(b, from, rank, &x)) {
        return false;
    }
    for (int d = 0; d < rank; d++) {
        if (t->ne[d] == from->ne[d]) {
            continue;
        }
        if (gs_dim(b, t, d) < 0 || t->ne[d] > INT32_MAX) {
            return gs_fail(b, "repeats whose number changes");
        }
        if (!repeat(b, rank - 1 - d, from->ne[d], t->ne[d], &x)) {
            return false;
        }
    }
    if (ggml_are_same_shape(t, from)) {
        const lt_t y = gs_result(b, rank, gs_plain_order(rank));
        return gs_convert(b, &x, &y) && gs_done(b, &y, rank, gs_plain_order(rank));
    }
    return gs_done(b, &x, rank, gs_plain_order(rank));
}

static const gs_special_t repeated = {
    .translate = translate_repeat, .refuse = refuse_repeat, .fixed = repeated_dims};

/* The result may lie where the source does, if that is memory. A loop fills what no op has made. */
static bool fill_takes_loop(const tensor_t *t)
{
    return t->view_src || gs_op(gs_root(t->src[0])) == GS_OP_NONE;
}

static bool loop_fill(const tensor_t *t)
{
    const float value = gs_param(t, 0);
    const int64_t count = ggml_nelements(t);
    for (int64_t i = 0; i < count; i++) {
        if (t->type == GGML_TYPE_F32) {
            ((float *)t->data)[i] = value;
        } else {
            ((ggml_fp16_t *)t->data)[i] = ggml_fp32_to_fp16(value);
        }
    }
    return true;
}

static const char *refuse_fill(const tensor_t *t)
{
    return (t->type == GGML_TYPE_F32 || t->type == GGML_TYPE_F16) && ggml_is_contiguous(t)
               ? NULL
               : "a result that is not f32 or f16, or has gaps";
}

/* The source is memory, which must not be an input. */
static bool fill_all(gs_builder_t *b, const tensor_t *t)
{
    static const sinter_dim_t ones[GGML_MAX_DIMS] = {1, 1, 1, 1};
    const int rank = gs_rank(t);
    lt_t value, x;
    if (gs_has_open(b, t)) {
        return gs_fail(b, "a result in memory whose dims change");
    }
    if (!gs_scalar(b, gs_param(t, 0), &value) || !gs_reshape(b, &value, ones, 1, ones, rank, &x)) {
        return false;
    }
    for (int d = 0; d < rank; d++) {
        if (!repeat(b, rank - 1 - d, 1, t->ne[d], &x)) {
            return false;
        }
    }
    return gs_done(b, &x, rank, gs_plain_order(rank));
}

/* y = 0 * index + value: elements of the source, of which some may be NaN, are not read. */
static bool translate_fill(gs_builder_t *b, const tensor_t *t)
{
    const int rank = gs_rank(t);
    lt_t x, value, zero;
    if (!gs_in_graph(b, t->src[0])) {
        return fill_all(b, t);
    }
    if (!gs_use_plain(b, t->src[0], rank, &x) || !gs_scalar(b, gs_param(t, 0), &value)) {
        return false;
    }
    const lt_t index = gs_inner(b, sinter_s32), number = gs_inner(b, sinter_f32);
    if (!gs_add(b, sinter_op_gen_index, sinter_in(&x), sinter_out(&index),
                sinter_attr_s64(sinter_op_attr_axis, rank - 1)) ||
        !gs_convert(b, &index, &number) || !gs_times(b, &number, 0, &zero)) {
        return false;
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    return gs_add(b, sinter_op_add, sinter_in(&zero), sinter_in(&value), sinter_out(&y)) &&
           gs_done(b, &y, rank, gs_plain_order(rank));
}

static const gs_special_t fill = {.translate = translate_fill,
                                  .refuse = refuse_fill,
                                  .takes_loop = fill_takes_loop,
                                  .loop = loop_fill};

/* ---- GLU ------------------------------------------------------------------------------------- */

/* SWIGLU_OAI:   g * sigmoid(alpha * g) * (u + 1)
 * SWIGLU_CLAMP: g * sigmoid(g) * u
 * with g = min(gate, limit) and u = clamp(up, -limit, limit) */
static bool swiglu_with_limit(gs_builder_t *b, const tensor_t *t, const lt_t *gate, const lt_t *up,
                              const lt_t *y)
{
    const bool oai = gs_op(t) == GS_GLU_SWIGLU_OAI;
    const float limit = gs_param(t, 3), alpha = oai ? gs_param(t, 2) : 1;
    const lt_t a = gs_inner(b, sinter_f32), u = gs_inner(b, sinter_f32);
    lt_t most, one, g, more = u;
    return gs_scalar(b, limit, &most) && gs_binary(b, sinter_op_minimum, gate, &most, &g) &&
           swish(b, alpha, &g, &a) &&
           gs_add(b, sinter_op_clamp, sinter_in(up), sinter_out(&u),
                  sinter_attr_f32(sinter_op_attr_min, -limit),
                  sinter_attr_f32(sinter_op_attr_max, limit)) &&
           (!oai || (gs_scalar(b, 1.0f, &one) && gs_binary(b, sinter_op_add, &u, &one, &more))) &&
           gs_add(b, sinter_op_multiply, sinter_in(&a), sinter_in(&more), sinter_out(y));
}

/* The row is the activation of the gate. */
static bool translate_glu(gs_builder_t *b, const tensor_t *t)
{
    const int rank = gs_rank(t);
    lt_t gate, up, both;
    if (t->src[1]) {
        if (!gs_use_plain(b, t->src[0], rank, &gate) || !gs_use_plain(b, t->src[1], rank, &up)) {
            return false;
        }
    } else {
        const bool swapped = t->op_params[1];
        if (!gs_use_plain(b, t->src[0], rank, &both) ||
            !gs_slice(b, &both, rank - 1, swapped ? t->ne[0] : 0, t->ne[0], &gate) ||
            !gs_slice(b, &both, rank - 1, swapped ? 0 : t->ne[0], t->ne[0], &up)) {
            return false;
        }
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    if (gs_op(t) == GS_GLU_SWIGLU_OAI || gs_op(t) == GS_GLU_SWIGLU_CLAMP) {
        if (!swiglu_with_limit(b, t, &gate, &up, &y)) {
            return false;
        }
    } else {
        const lt_t a = gs_inner(b, sinter_f32);
        if (!apply(b, row_of(t), t, 1, &gate, &a) ||
            !gs_add(b, sinter_op_multiply, sinter_in(&a), sinter_in(&up), sinter_out(&y))) {
            return false;
        }
    }
    return gs_done(b, &y, rank, gs_plain_order(rank));
}

static const gs_special_t glu = {.translate = translate_glu};

/* ---- the table ------------------------------------------------------------------------------- */

#define OP(name, kind_) .op = GS_OP_##name, .kind = sinter_op_##kind_
#define UNARY(name, kind_) .op = GS_UNARY_##name, .kind = sinter_op_##kind_
#define GLU(name, kind_) .op = GS_GLU_##name, .kind = sinter_op_##kind_, .special = &glu
#define ATTR(name, kind_, field, value)                                                           \
    {                                                                                             \
        .kind = sinter_op_part_##kind_, .attr = sinter_op_attr_##name, .field = value, .count = 1 \
    }
#define F32(name, value) ATTR(name, f32, f32, value)
#define S64(name, value) ATTR(name, s64, s64, value)
#define FLAG(name, value) ATTR(name, bool, s64, value)
#define WORD(name, value) ATTR(name, str, text, value)
#define PARAM(name, index)                                             \
    {                                                                  \
        .kind = PARAMETER, .attr = sinter_op_attr_##name, .s64 = index \
    }

/* Those that a model has most of come first. */
static const op_row_t rows[] = {
    {.op = GS_OP_MUL_MAT, .special = &gs_mul_mat},
    {OP(ADD, add), .special = &add},
    {OP(MUL, multiply), .special = &mul},
    {OP(RMS_NORM, rms_norm), .attrs = {PARAM(epsilon, 0), FLAG(use_affine, 0)}},
    {.op = GS_OP_ROPE, .special = &gs_rope},
    {.op = GS_OP_ROPE_BACK, .special = &gs_rope},
    {.op = GS_OP_SET_ROWS, .special = &gs_set_rows},
    {.op = GS_OP_FLASH_ATTN_EXT, .special = &gs_attention},
    {.op = GS_OP_SOFT_MAX, .special = &gs_soft_max},
    {.op = GS_OP_GET_ROWS, .special = &gs_get_rows},
    {.op = GS_OP_MUL_MAT_ID, .special = &gs_mul_mat_id},
    {.op = GS_OP_ADD_ID, .special = &gs_add_id},
    {.op = GS_OP_ARGSORT, .special = &gs_argsort},
    {.op = GS_OP_TOP_K, .special = &gs_top_k},
    {.op = GS_OP_CPY, .special = &gs_copy},
    {.op = GS_OP_CONT, .special = &gs_copy},
    {.op = GS_OP_DUP, .special = &gs_copy},
    {OP(NORM, layer_norm), .attrs = {PARAM(epsilon, 0), FLAG(use_affine, 0), FLAG(keep_stats, 0)}},
    {OP(SUB, subtract)},
    {OP(DIV, divide)},
    {OP(SCALE, multiply), .special = &scale},
    {OP(CLAMP, clamp), .attrs = {PARAM(min, 0), PARAM(max, 1)}},
    {OP(SQR, square)},
    {OP(SQRT, sqrt)},
    {OP(LOG, log)},
    {OP(LEAKY_RELU, leaky_relu), .attrs = {PARAM(alpha, 0)}},
    {OP(SUM_ROWS, reduce_sum), .attrs = {S64(axes, -1), FLAG(keep_dims, 1)}},
    {OP(MEAN, reduce_mean), .attrs = {S64(axes, -1), FLAG(keep_dims, 1)}},
    {OP(CUMSUM, cumsum)},
    {OP(CONCAT, concat), .special = &concat},
    {.op = GS_OP_REPEAT, .special = &repeated},
    {.op = GS_OP_FILL, .special = &fill},
    {.op = GS_OP_GATED_DELTA_NET, .special = &gs_gated_delta_net},
    {.op = GS_OP_SSM_CONV, .special = &gs_ssm_conv},
    {.op = GS_OP_SSM_SCAN, .special = &gs_ssm_scan},
    {.op = GS_OP_RWKV_WKV6, .special = &gs_state_rows},
    {.op = GS_OP_RWKV_WKV7, .special = &gs_state_rows},
    {.op = GS_OP_GATED_LINEAR_ATTN, .special = &gs_state_rows},
    {.op = GS_OP_L2_NORM, .special = &gs_l2_norm},
    {.op = GS_OP_ARANGE, .special = &gs_arange},
    {.op = GS_OP_PAD, .special = &gs_pad},
    {.op = GS_OP_GROUP_NORM, .special = &gs_group_norm},
    {.op = GS_OP_POOL_1D, .special = &gs_pool},
    {.op = GS_OP_POOL_2D, .special = &gs_pool},
    {.op = GS_OP_CONV_2D, .special = &gs_conv},
    {.op = GS_OP_CONV_2D_DW, .special = &gs_conv},
    {.op = GS_OP_IM2COL, .special = &gs_im2col},
    {.op = GS_OP_UPSCALE, .special = &gs_upscale},
    {.op = GS_OP_LIGHTNING_INDEXER, .special = &gs_indexer},
    {.op = GS_OP_DSV4_HC_PRE, .special = &gs_hyper_pre},
    {.op = GS_OP_DSV4_HC_POST, .special = &gs_hyper_post},
    {.op = GS_OP_DSV4_HC_COMB, .special = &gs_hyper_comb},
    {UNARY(ABS, abs)},
    {UNARY(NEG, multiply), .operand = -1},
    {UNARY(TANH, tanh)},
    {UNARY(ELU, elu), .attrs = {F32(alpha, 1)}},
    {UNARY(RELU, relu)},
    {UNARY(SIGMOID, sigmoid)},
    {UNARY(GELU, gelu), .attrs = {WORD(mode, "gelu_tanh")}},
    {UNARY(GELU_ERF, gelu), .attrs = {WORD(mode, "gelu_erf")}},
    {UNARY(GELU_QUICK, sigmoid), .swish = 1.702f},
    {UNARY(SILU, sigmoid), .swish = 1},
    {UNARY(HARDSWISH, hard_swish)},
    {UNARY(HARDSIGMOID, hard_sigmoid), .attrs = {F32(alpha, 1.0f / 6), F32(beta, 0.5f)}},
    {UNARY(EXP, exp)},
    {UNARY(SOFTPLUS, softplus)},
    {.op = GS_UNARY_SGN, .special = &gs_unary},
    {.op = GS_UNARY_STEP, .special = &gs_unary},
    {.op = GS_UNARY_FLOOR, .special = &gs_unary},
    {.op = GS_UNARY_CEIL, .special = &gs_unary},
    {.op = GS_UNARY_TRUNC, .special = &gs_unary},
    {.op = GS_UNARY_ROUND, .special = &gs_unary},
    {.op = GS_UNARY_EXPM1, .special = &gs_unary},
    {.op = GS_UNARY_XIELU, .special = &gs_unary},
    {GLU(REGLU, relu)},
    {GLU(GEGLU, gelu), .attrs = {WORD(mode, "gelu_tanh")}},
    {GLU(GEGLU_ERF, gelu), .attrs = {WORD(mode, "gelu_erf")}},
    {GLU(GEGLU_QUICK, sigmoid), .swish = 1.702f},
    {GLU(SWIGLU, sigmoid), .swish = 1},
    {GLU(SWIGLU_OAI, sigmoid)},
    {GLU(SWIGLU_CLAMP, sigmoid)},
};

static const op_row_t *row_of(const tensor_t *t)
{
    const gs_op_t op = gs_op(t);
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].op == op) {
            return &rows[i];
        }
    }
    return NULL;
}

const char *gs_refuses(const tensor_t *op)
{
    if (gs_is_noop(op)) {
        return NULL;
    }
    const op_row_t *row = row_of(op);
    if (!row) {
        return "no such op here";
    }
    return row->special && row->special->refuse ? row->special->refuse(op) : refuse_plain(op);
}

bool gs_translate(gs_builder_t *b, int node)
{
    const tensor_t *t = b->tensors->list[node];
    b->node = node;
    if (gs_is_noop(t)) {
        return true;
    }
    const op_row_t *row = row_of(t);
    if (!row) {
        return gs_fail(b, "no such op here");
    }
    if (!(row->special ? row->special->translate(b, t) : translate_plain(b, t)) ||
        !gs_copy_to_output(b)) {
        return false;
    }
    /* A result in memory that existed before: whoever reads that from now on needs a new graph. */
    const int root = gs_tensors_find(b->tensors, gs_root(t));
    if (t->view_src && gs_op(t) != GS_OP_SET_ROWS && root >= 0 && !gs_in_graph(b, t->view_src)) {
        b->versions[root] = (gs_value_t){.known = true};
    }
    return true;
}

gs_loop_t gs_loop_of(const tensor_t *node)
{
    const op_row_t *row = gs_is_noop(node) ? NULL : row_of(node);
    const gs_special_t *special = row ? row->special : NULL;
    return special && special->takes_loop && special->takes_loop(node) ? special->loop : NULL;
}

int64_t gs_fixed_dim(const tensor_t *node)
{
    const op_row_t *row = gs_is_noop(node) ? NULL : row_of(node);
    return row && row->special && row->special->fixed ? row->special->fixed(node) : 0;
}
