/* Hyper-connections: a token has several streams instead of one residual. What a layer reads is a
 * weighted sum of the streams, and what it gives is added to each of them, which are mixed.
 *
 *     DSV4_HC_PRE    y[t] = scale * sum over streams h of x[t, h] * weights[t, h]
 *     DSV4_HC_POST   y[t, h] = x[t] * post[t, h] + sum over streams s of comb[t, s, h] * res[t, s]
 *     DSV4_HC_COMB   the weights of that mixture: numbers above 0 whose rows and columns sum up to
 *                    nearly 1 (Sinkhorn) */
#include "special.h"

/* The streams of x, [tokens, streams, elements], become [tokens, elements]: their sum. */
static bool sum_streams(gs_builder_t *b, const lt_t *x, const lt_t *y)
{
    return gs_add(b, sinter_op_reduce_sum, sinter_in(x), sinter_out(y),
                  sinter_attr_s64(sinter_op_attr_axes, 1));
}

static const char *refuse(const tensor_t *t)
{
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        const char *why = t->src[i] ? gs_unreadable_floats(t->src[i]) : NULL;
        if (why) {
            return why;
        }
    }
    return t->type == GGML_TYPE_F32 ? NULL : "a result that is not f32";
}

/* ---- DSV4_HC_PRE ----------------------------------------------------------------------------- */

/* *w = the weights as [tokens, streams, 1], or, where each element has its own, as many as those,
 * which are sigmoids. */
static bool use_stream_weights(gs_builder_t *b, const tensor_t *t, lt_t *w)
{
    const tensor_t *weights = t->src[1];
    const bool gated = t->op_params[1] != 0;
    lt_t x;
    if (gated) {
        *w = gs_inner(b, sinter_f32);
        return gs_use_plain(b, weights, 3, &x) &&
               gs_add(b, sinter_op_sigmoid, sinter_in(&x), sinter_out(w));
    }
    const sinter_dim_t from[2] = {gs_dim(b, weights, 1), weights->ne[0]},
                       to[3] = {from[0], from[1], 1};
    return gs_use_plain(b, weights, 2, &x) && gs_reshape(b, &x, from, 2, to, 3, w);
}

static bool translate_pre(gs_builder_t *b, const tensor_t *t)
{
    const float scale = gs_param(t, 0);
    lt_t x, w, products, factor;
    if (!gs_use_plain(b, t->src[0], 3, &x) || !use_stream_weights(b, t, &w) ||
        !gs_binary(b, sinter_op_multiply, &x, &w, &products)) {
        return false;
    }
    const lt_t sum = gs_inner(b, sinter_f32), y = gs_result(b, 2, gs_plain_order(2));
    return (scale == 1 ? sum_streams(b, &products, &y)
                       : sum_streams(b, &products, &sum) && gs_scalar(b, scale, &factor) &&
                             gs_add(b, sinter_op_multiply, sinter_in(&sum), sinter_in(&factor),
                                    sinter_out(&y))) &&
           gs_done(b, &y, 2, gs_plain_order(2));
}

const gs_special_t gs_hyper_pre = {.translate = translate_pre, .refuse = refuse};

/* ---- DSV4_HC_POST ---------------------------------------------------------------------------- */

/* Without comb each stream goes on by itself. */
static bool translate_post(gs_builder_t *b, const tensor_t *t)
{
    const tensor_t *layer = t->src[0], *post = t->src[2], *comb = t->src[3];
    const sinter_dim_t tokens = gs_dim(b, t, 2), streams = t->ne[1];
    const sinter_dim_t row[2] = {tokens, layer->ne[0]}, rows[3] = {tokens, 1, layer->ne[0]},
                       weight[2] = {tokens, streams}, weights[3] = {tokens, streams, 1};
    lt_t flat, x, w, added, mixed, c;
    if (!gs_use_plain(b, layer, 2, &flat) || !gs_reshape(b, &flat, row, 2, rows, 3, &x) ||
        !gs_use_plain(b, post, 2, &flat) || !gs_reshape(b, &flat, weight, 2, weights, 3, &w) ||
        !gs_binary(b, sinter_op_multiply, &x, &w, &added) ||
        !gs_use_plain(b, t->src[1], 3, &mixed)) {
        return false;
    }
    if (comb) {
        const lt_t residual = mixed;
        mixed = gs_inner(b, sinter_f32);
        if (!gs_use_plain(b, comb, 3, &c) ||
            !gs_add(b, sinter_op_matmul, sinter_in(&c), sinter_in(&residual), sinter_out(&mixed),
                    sinter_attr_bool(sinter_op_attr_transpose_a, 1)) ||
            !gs_keep_exact(b)) {
            return false;
        }
    }
    const lt_t y = gs_result(b, 3, gs_plain_order(3));
    return gs_add(b, sinter_op_add, sinter_in(&mixed), sinter_in(&added), sinter_out(&y)) &&
           gs_done(b, &y, 3, gs_plain_order(3));
}

const gs_special_t gs_hyper_post = {.translate = translate_post, .refuse = refuse};

/* ---- DSV4_HC_COMB ---------------------------------------------------------------------------- */

enum { OF_COMB = 2, MOST_ROUNDS = 64 };

static const char *refuse_comb(const tensor_t *t)
{
    return t->op_params[1] > MOST_ROUNDS ? "too many rounds" : refuse(t);
}

/* *x = x / (its sums along an axis + a small number) */
static bool divide_by_sums(gs_builder_t *b, int axis, const lt_t *small, lt_t *x)
{
    const lt_t sum = gs_inner(b, sinter_f32);
    lt_t more, y;
    if (!gs_add(b, sinter_op_reduce_sum, sinter_in(x), sinter_out(&sum),
                sinter_attr_s64(sinter_op_attr_axes, axis),
                sinter_attr_bool(sinter_op_attr_keep_dims, 1)) ||
        !gs_binary(b, sinter_op_add, &sum, small, &more) ||
        !gs_binary(b, sinter_op_divide, x, &more, &y)) {
        return false;
    }
    *x = y;
    return true;
}

/* The last streams * streams numbers of the mixes and of base, scaled: a softmax over where a
 * stream goes, then the sums over both dims in turn. */
static bool translate_comb(gs_builder_t *b, const tensor_t *t)
{
    enum { FROM = 1, TO = 2 }; /* axes */
    const int64_t streams = t->ne[0], count = streams * streams, first = 2 * streams;
    const sinter_dim_t flat[2] = {gs_dim(b, t, 2), count}, square[3] = {flat[0], streams, streams};
    lt_t mixes, scales, base, x, scale, offset, small;
    if (!gs_use_plain(b, t->src[0], 2, &mixes) || !gs_slice(b, &mixes, 1, first, count, &x) ||
        !gs_use_plain(b, t->src[1], 1, &scales) || !gs_slice(b, &scales, 0, OF_COMB, 1, &scale) ||
        !gs_use_plain(b, t->src[2], 1, &base) || !gs_slice(b, &base, 0, first, count, &offset) ||
        !gs_binary(b, sinter_op_multiply, &x, &scale, &mixes) ||
        !gs_binary(b, sinter_op_add, &mixes, &offset, &x) ||
        !gs_reshape(b, &x, flat, 2, square, 3, &mixes) || !gs_scalar(b, gs_param(t, 0), &small)) {
        return false;
    }
    const lt_t parts = gs_inner(b, sinter_f32);
    if (!gs_add(b, sinter_op_softmax, sinter_in(&mixes), sinter_out(&parts),
                sinter_attr_s64(sinter_op_attr_axis, TO)) ||
        !gs_binary(b, sinter_op_add, &parts, &small, &x) || !divide_by_sums(b, FROM, &small, &x)) {
        return false;
    }
    for (int round = 1; round < t->op_params[1]; round++) {
        if (!divide_by_sums(b, TO, &small, &x) || !divide_by_sums(b, FROM, &small, &x)) {
            return false;
        }
    }
    return gs_done(b, &x, 3, gs_plain_order(3));
}

const gs_special_t gs_hyper_comb = {.translate = translate_comb, .refuse = refuse_comb};
