/* MUL_MAT, products and sums with experts, FLASH_ATTN_EXT and SOFT_MAX. */
#include <math.h>

#include "layout.h"
#include "special.h"
#include "twins.h"

/* ---- groups of matrices ---------------------------------------------------------------------- */

/* Dim 2 of t in groups, each of which has one matrix of the other operand:
 * [b3, groups, b2 / groups, rows, columns]. */
static bool use_grouped(gs_builder_t *b, const tensor_t *t, int64_t groups, lt_t *lt)
{
    const sinter_dim_t from[4] = {gs_dim(b, t, 3), t->ne[2], gs_dim(b, t, 1), gs_dim(b, t, 0)};
    const sinter_dim_t to[5] = {from[0], groups, t->ne[2] / groups, from[2], from[3]};
    lt_t x;
    return gs_use_plain(b, t, 4, &x) && gs_reshape(b, &x, from, 4, to, 5, lt);
}

/* The value of the present node is y, with dim 1 of the order in groups. */
static bool done_grouped(gs_builder_t *b, const lt_t *y, int64_t groups, const int *order)
{
    gs_done(b, y, 4, order);
    gs_value_t *v = &b->values[b->node];
    const sinter_dim_t dims[5] = {v->dims[0], groups,
                                  b->tensors->list[b->node]->ne[order[1]] / groups, v->dims[2],
                                  v->dims[3]};
    memcpy(v->dims, dims, sizeof(dims));
    v->rank = 5;
    return true;
}

/* ---- MUL_MAT --------------------------------------------------------------------------------- */

/* NULL, or why Sinter cannot read the weights of a node. A view of a cache in a buffer of the host
 * is copied as attention's caches are. */
static const char *refuse_weights(const tensor_t *t)
{
    const tensor_t *weights = t->src[0];
    if (gs_needs_twin(t)) {
        return gs_refuses_twin(t);
    }
    if (weights->view_src) {
        return gs_unreadable_cache(weights);
    }
    return !gs_has_blocks(weights) && gs_in_tiles(weights) ? NULL : gs_unreadable(weights);
}

/* The weights of the present node, or their twin. */
static const tensor_t *weights_of(const gs_builder_t *b, const tensor_t *t)
{
    const int twin = b->tensors->twin[b->node];
    return twin < 0 ? t->src[0] : b->tensors->list[twin];
}

static const char *refuse_mul_mat(const tensor_t *t)
{
    const tensor_t *weights = t->src[0], *x = t->src[1];
    const char *why = refuse_weights(t);
    if (why) {
        return why;
    }
    if (gs_unreadable_floats(x) || t->type != GGML_TYPE_F32) {
        return "the activation's type";
    }
    return weights->ne[3] == x->ne[3] || weights->ne[3] == 1 ? NULL
                                                             : "weights that are repeated in dim 3";
}

/* Whether a hint asks for more than activations of 8 bits: for sums in f32, as for all of the
 * product in earlier versions of ggml, or for activations that keep more bits. */
static bool wants_exact(const tensor_t *t)
{
    enum { OF_SUMS = 0, OF_ACTIVATION = 3, EIGHT_BITS = 30 /* GGML_PREC_Q8, where there is one */ };
    const int activation = t->op_params[OF_ACTIVATION];
    return t->op_params[OF_SUMS] == GGML_PREC_F32 ||
           (activation != GGML_PREC_DEFAULT && activation < EIGHT_BITS);
}

/* A part of a cache, or what a node has made: keys or values of attention, whose scores have four
 * dims, so that no view stands between them and the softmax. */
static bool is_cache(const gs_builder_t *b, const tensor_t *t)
{
    const ggml_backend_buffer_t buffer = gs_root(t)->buffer;
    return gs_in_graph(b, t) || gs_version_of(b, t) ||
           (gs_is_view(t) && buffer && buffer->usage != GGML_BACKEND_BUFFER_USAGE_WEIGHTS);
}

/* Whether the host says that the weights are the orthonormal Hadamard matrix, by which llama.cpp
 * rotates queries, keys and values of quantised caches. */
static bool is_hadamard(const tensor_t *t)
{
    enum { HINT = 1, SRC0_IS_HADAMARD = 1 };
    const int64_t size = t->src[0]->ne[0];
    return t->op_params[HINT] == SRC0_IS_HADAMARD && ggml_nelements(t->src[0]) == size * size &&
           (size & (size - 1)) == 0;
}

static bool translate_hadamard(gs_builder_t *b, const tensor_t *t)
{
    const int rank = gs_rank(t);
    lt_t x;
    if (!gs_use_plain(b, t->src[1], rank, &x)) {
        return false;
    }
    const lt_t y = gs_result(b, rank, gs_plain_order(rank));
    return gs_add(b, sinter_op_hadamard_transform, sinter_in(&x), sinter_out(&y)) &&
           gs_done(b, &y, rank, gs_plain_order(rank));
}

static bool translate_mul_mat(gs_builder_t *b, const tensor_t *t)
{
    if (is_hadamard(t)) {
        return translate_hadamard(b, t);
    }
    const tensor_t *weights = weights_of(b, t), *activation = t->src[1];
    const int64_t groups = weights->ne[2];
    const bool shared = groups == 1 && weights->ne[3] == 1 && !is_cache(b, weights),
               grouped = groups > 1 && activation->ne[2] > groups;
    const int rank = shared ? gs_rank(t) : 4;
    lt_t x, w, y;
    if (grouped ? !use_grouped(b, activation, groups, &x) || !use_grouped(b, weights, groups, &w)
                : !gs_use_plain(b, activation, rank, &x) ||
                      !gs_use_plain(b, weights, shared ? 2 : 4, &w)) {
        return false;
    }
    y = grouped ? gs_inner(b, sinter_f32) : gs_result(b, rank, gs_plain_order(rank));
    return gs_add(b, sinter_op_matmul, sinter_in(&x), sinter_in(&w), sinter_out(&y),
                  sinter_attr_bool(sinter_op_attr_transpose_b, 1)) &&
           (!wants_exact(t) || gs_keep_exact(b)) &&
           (grouped ? done_grouped(b, &y, groups, gs_plain_order(4))
                    : gs_done(b, &y, rank, gs_plain_order(rank)));
}

const gs_special_t gs_mul_mat = {.translate = translate_mul_mat, .refuse = refuse_mul_mat};

/* ---- MUL_MAT_ID, ADD_ID ---------------------------------------------------------------------- */

/* ids says for each token which matrices of the weights it uses. The rows of a token are one for
 * each of these, or one for all of them. */
static const char *refuse_mul_mat_id(const tensor_t *t)
{
    const tensor_t *x = t->src[1], *ids = t->src[2];
    const char *why = refuse_weights(t);
    if (why) {
        return why;
    }
    if (gs_unreadable_floats(x) || t->type != GGML_TYPE_F32) {
        return "the activation's type";
    }
    return x->ne[1] == 1 || x->ne[1] == ids->ne[0] ? NULL : "rows that are repeated";
}

/* The value of the present node is y of [tokens, used, 1, elements]. */
static bool done_with_rows(gs_builder_t *b, const lt_t *y)
{
    gs_done(b, y, 3, gs_plain_order(3));
    gs_value_t *v = &b->values[b->node];
    v->dims[3] = v->dims[2];
    v->dims[2] = 1;
    v->rank = 4;
    return true;
}

/* [tokens, used, 1, elements] = rows times the gathered matrices. */
static bool translate_mul_mat_id(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *weights = weights_of(b, t), *activation = t->src[1];
    const sinter_dim_t from[3] = {gs_dim(b, activation, 2), gs_dim(b, activation, 1),
                                  activation->ne[0]};
    const sinter_dim_t to[4] = {from[0], from[1], 1, from[2]};
    lt_t ids, x, rows, w;
    if (!gs_use_plain(b, t->src[2], 2, &ids) || !gs_use_gathered(b, weights, 3, &ids, 2, &w) ||
        !gs_use_plain(b, activation, 3, &x) || !gs_reshape(b, &x, from, 3, to, 4, &rows)) {
        return false;
    }
    const lt_t y = gs_inner(b, sinter_f32);
    return gs_add(b, sinter_op_matmul, sinter_in(&rows), sinter_in(&w), sinter_out(&y),
                  sinter_attr_bool(sinter_op_attr_transpose_b, 1)) &&
           (!wants_exact(t) || gs_keep_exact(b)) && done_with_rows(b, &y);
}

const gs_special_t gs_mul_mat_id = {.translate = translate_mul_mat_id, .refuse = refuse_mul_mat_id};

static const char *refuse_add_id(const tensor_t *t)
{
    const char *why = gs_unreadable_floats(t->src[0]);
    return why                        ? why
           : t->type != GGML_TYPE_F32 ? "a result that is not f32"
           : gs_is_float(t->src[1])   ? gs_unreadable(t->src[1])
                                      : "a source that is not f32, f16 or bf16";
}

/* Each row of a token plus the vector of its expert. */
static bool translate_add_id(gs_builder_t *b, const tensor_t *t)
{
    lt_t x, ids, vectors;
    if (!gs_use_plain(b, t->src[0], 3, &x) || !gs_use_plain(b, t->src[2], 2, &ids) ||
        !gs_use_gathered(b, t->src[1], 2, &ids, 2, &vectors)) {
        return false;
    }
    const lt_t y = gs_result(b, 3, gs_plain_order(3));
    return gs_add(b, sinter_op_add, sinter_in(&x), sinter_in(&vectors), sinter_out(&y)) &&
           gs_done(b, &y, 3, gs_plain_order(3));
}

const gs_special_t gs_add_id = {.translate = translate_add_id, .refuse = refuse_add_id};

/* ---- masks, sinks, softmax ------------------------------------------------------------------- */

enum { MOST_HEADS = 1024 }; /* of ALiBi */

/* Why the scores of node t, as many columns for each row of `rows`, cannot have this mask and these
 * sinks; NULL: they can. */
static const char *refuse_scores(const tensor_t *t, const tensor_t *rows, int64_t columns,
                                 const tensor_t *mask, const tensor_t *sinks)
{
    if (gs_param(t, 1) != 0.0f && (!mask || rows->ne[2] > MOST_HEADS)) {
        return "ALiBi without a mask, or of too many heads";
    }
    if (sinks && sinks->type != GGML_TYPE_F32) {
        return "sinks that are not f32";
    }
    if (!mask) {
        return NULL;
    }
    if (!gs_is_float(mask) || mask->ne[0] != columns || mask->ne[1] < rows->ne[1]) {
        return "the mask's type or dims";
    }
    for (int i = 2; i < GGML_MAX_DIMS; i++) {
        if (mask->ne[i] != 1 && mask->ne[i] != rows->ne[i]) {
            return "a mask that is repeated";
        }
    }
    return gs_unreadable(mask);
}

/* *m becomes the mask times a slope for each head (ALiBi). The slopes have the dims `to`. */
static bool slope_mask(gs_builder_t *b, float most, int heads, const sinter_dim_t *to, int rank,
                       lt_t *m)
{
    float slopes[MOST_HEADS];
    int power = 1;
    while (2 * power <= heads) {
        power *= 2;
    }
    for (int i = 0; i < heads; i++) {
        slopes[i] = i < power ? powf(exp2f(-most / (float)power), (float)(i + 1))
                              : powf(exp2f(-most / 2 / (float)power), (float)(2 * (i - power) + 1));
    }
    const sinter_dim_t from[1] = {heads};
    lt_t all, each, sloped;
    if (!gs_constants(b, slopes, heads, &all) || !gs_reshape(b, &all, from, 1, to, rank, &each) ||
        !gs_binary(b, sinter_op_multiply, m, &each, &sloped)) {
        return false;
    }
    *m = sloped;
    return true;
}

/* y = x plus a mask: a value, or memory, of which the first rows count, as many as `rows` has.
 * groups: into how many groups x divides the heads; 0: it has them in one dim. */
static bool add_mask(gs_builder_t *b, const lt_t *x, const tensor_t *mask, const tensor_t *rows,
                     int64_t groups, lt_t *y)
{
    static const int with_gap[5] = {3, 2, -1, 1, 0};
    const bool gap = groups > 0 && mask->ne[2] == 1;
    const int rank = gap ? 5 : 4;
    const bool computed = gs_in_graph(b, mask);
    lt_t m, z;
    if (computed && mask->ne[1] != rows->ne[1]) {
        return gs_fail(b, "a mask of more rows that is computed");
    }
    if (!computed && gs_version_of(b, mask)) {
        return gs_fail(b, "a mask in memory that is written");
    }
    gs_input_t in = gs_input_in_order(b, mask, -1, rank, gap ? with_gap : gs_plain_order(4));
    in.size_of[rank - 2] = gs_tensors_find(b->tensors, rows);
    if (computed ? !gs_use_plain(b, mask, 4, &m) : !gs_add_input(b, in, &m)) {
        return false;
    }
    if (groups > 0 && (computed || !gap)) {
        const sinter_dim_t from[4] = {gs_dim(b, mask, 3), mask->ne[2], gs_dim(b, rows, 1),
                                      gs_dim(b, mask, 0)};
        const sinter_dim_t to[5] = {from[0], gap ? 1 : groups, gap ? 1 : from[1] / groups, from[2],
                                    from[3]};
        if (!gs_reshape(b, &m, from, 4, to, 5, &z)) {
            return false;
        }
        m = z;
    }
    const float most = gs_param(b->tensors->list[b->node], 1);
    const sinter_dim_t heads = rows->ne[2],
                       dims[5] = {1, groups, heads / (groups ? groups : 1), 1, 1},
                       plain[4] = {1, heads, 1, 1};
    if (most != 0 &&
        !slope_mask(b, most, (int)heads, groups > 0 ? dims : plain, groups > 0 ? 5 : 4, &m)) {
        return false;
    }
    return gs_binary(b, sinter_op_add, x, &m, y);
}

/* y = softmax of the rows of x, which has rank 5 and the heads in groups, or rank 4 and as many
 * heads as `groups` says. Sinks, if there are any, are one number for each head. */
static bool softmax_to(gs_builder_t *b, const lt_t *x, const tensor_t *sinks, int rank,
                       int64_t groups, const lt_t *y)
{
    lt_t vector, s;
    sinter_op_part_t parts[5];
    int n = 0;
    parts[n++] = sinter_in(x);
    if (sinks) {
        const sinter_dim_t from[1] = {sinks->ne[0]};
        const sinter_dim_t to[5] = {1, groups, from[0] / groups, 1, 1};
        if (!gs_use_plain(b, sinks, 1, &vector) || !gs_reshape(b, &vector, from, 1, to, rank, &s)) {
            return false;
        }
        parts[n++] = sinter_in(&s);
    }
    parts[n++] = sinter_out(y);
    parts[n++] = sinter_attr_s64(sinter_op_attr_axis, -1);
    parts[n++] = sinter_attr_str(sinter_op_attr_mode, "inf_as_zero");
    return gs_add_parts(b, sinter_op_softmax, n, parts);
}

/* ---- SOFT_MAX -------------------------------------------------------------------------------- */

static const char *refuse_soft_max(const tensor_t *t)
{
    const tensor_t *x = t->src[0];
    const char *why = gs_unreadable_floats(x);
    return why ? why : refuse_scores(t, x, x->ne[0], t->src[1], t->src[2]);
}

static bool translate_soft_max(gs_builder_t *b, const tensor_t *t)
{
    const float scale = gs_param(t, 0);
    lt_t x, z;
    if (!gs_use_plain(b, t->src[0], 4, &x)) {
        return false;
    }
    if (scale != 1.0f) {
        if (!gs_times(b, &x, scale, &z)) {
            return false;
        }
        x = z;
    }
    if (t->src[1]) {
        if (!add_mask(b, &x, t->src[1], t->src[0], 0, &z)) {
            return false;
        }
        x = z;
    }
    const lt_t y = gs_result(b, 4, gs_plain_order(4));
    return softmax_to(b, &x, t->src[2], 4, t->ne[2], &y) && gs_done(b, &y, 4, gs_plain_order(4));
}

const gs_special_t gs_soft_max = {.translate = translate_soft_max, .refuse = refuse_soft_max};

/* ---- FLASH_ATTN_EXT -------------------------------------------------------------------------- */

static const char *refuse_attention(const tensor_t *t)
{
    const tensor_t *q = t->src[0], *k = t->src[1], *v = t->src[2];
    if (gs_unreadable_floats(q)) {
        return "the queries' type";
    }
    if (gs_unreadable_cache(k) || gs_unreadable_cache(v)) {
        return gs_unreadable_cache(k) ? gs_unreadable_cache(k) : gs_unreadable_cache(v);
    }
    if (q->ne[2] % k->ne[2] || k->ne[2] != v->ne[2] || k->ne[3] != q->ne[3]) {
        return "heads of the cache that do not divide those of the queries";
    }
    return refuse_scores(t, q, k->ne[1], t->src[3], t->src[4]);
}

static bool translate_attention(gs_builder_t *b, const tensor_t *t)
{
    const int64_t groups = t->src[1]->ne[2];
    const float cap = gs_param(t, 2), scale = gs_param(t, 0);
    lt_t q, k, v, x, y;
    if (!use_grouped(b, t->src[0], groups, &q) || !use_grouped(b, t->src[1], groups, &k) ||
        !use_grouped(b, t->src[2], groups, &v)) {
        return false;
    }
    x = gs_inner(b, sinter_f32);
    if (!gs_add(b, sinter_op_matmul, sinter_in(&q), sinter_in(&k), sinter_out(&x),
                sinter_attr_bool(sinter_op_attr_transpose_b, 1)) ||
        !gs_times(b, &x, cap ? scale / cap : scale, &y)) {
        return false;
    }
    if (cap) {
        x = gs_inner(b, sinter_f32);
        if (!gs_add(b, sinter_op_tanh, sinter_in(&y), sinter_out(&x)) ||
            !gs_times(b, &x, cap, &y)) {
            return false;
        }
    }
    if (t->src[3]) {
        if (!add_mask(b, &y, t->src[3], t->src[0], groups, &x)) {
            return false;
        }
        y = x;
    }
    x = gs_inner(b, sinter_f32);
    return softmax_to(b, &y, t->src[4], 5, groups, &x) &&
           gs_binary(b, sinter_op_matmul, &x, &v, &y) &&
           done_grouped(b, &y, groups, gs_heads_first);
}

const gs_special_t gs_attention = {.translate = translate_attention, .refuse = refuse_attention};
