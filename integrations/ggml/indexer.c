/* LIGHTNING_INDEXER: how much each token of a cache matters to a query, summed over the heads of an
 * indexer that share the keys.
 *
 *     y[t, c] = sum over heads h of weights[t, h] * max(q[t, h] . k[c], 0) + mask[t, c] */
#include "special.h"

/* The scores of all heads are in memory at once. Where they would take more, the host, which has
 * those of one token and head at a time, is left to it. */
enum { MOST_SCORES = 1 << 24 };

static const char *refuse(const tensor_t *t)
{
    const tensor_t *q = t->src[0], *k = t->src[1], *weights = t->src[2], *mask = t->src[3];
    if (q->ne[1] * t->ne[0] > MOST_SCORES / (t->ne[1] * t->ne[3])) {
        return "scores of too many tokens";
    }
    if (!gs_is_float(q) || !gs_is_float(weights) || !gs_is_float(mask)) {
        return "queries, weights or a mask that are not f32, f16 or bf16";
    }
    if (mask->ne[3] != 1 && mask->ne[3] != t->ne[3]) {
        return "a mask that is repeated";
    }
    const char *why = gs_unreadable(q);
    why = why ? why : gs_unreadable(k);
    why = why ? why : gs_unreadable(weights);
    return why ? why : gs_unreadable(mask);
}

static bool translate(gs_builder_t *b, const tensor_t *t)
{
    static const int by_token[3] = {3, 1, 0};
    const sinter_dim_t tokens = gs_dim(b, t, 1), cached = gs_dim(b, t, 0), heads = t->src[0]->ne[1];
    const sinter_dim_t each[3] = {t->ne[3], tokens, heads}, row[4] = {t->ne[3], tokens, 1, heads},
                       sums[4] = {t->ne[3], tokens, 1, cached},
                       result[4] = {t->ne[3], 1, tokens, cached};
    lt_t q, k, w, weights, mask, products, all, y;
    if (!gs_use_plain(b, t->src[0], 4, &q) || !gs_use(b, t->src[1], 4, gs_heads_first, &k) ||
        !gs_use(b, t->src[2], 3, by_token, &w) || !gs_reshape(b, &w, each, 3, row, 4, &weights) ||
        !gs_use_plain(b, t->src[3], 4, &mask)) {
        return false;
    }
    products = gs_inner(b, sinter_f32);
    const lt_t scores = gs_inner(b, sinter_f32);
    if (!gs_add(b, sinter_op_matmul, sinter_in(&q), sinter_in(&k), sinter_out(&products),
                sinter_attr_bool(sinter_op_attr_transpose_b, 1)) ||
        !gs_keep_exact(b) ||
        !gs_add(b, sinter_op_relu, sinter_in(&products), sinter_out(&scores)) ||
        !gs_binary(b, sinter_op_matmul, &weights, &scores, &all) || !gs_keep_exact(b) ||
        !gs_reshape(b, &all, sums, 4, result, 4, &y)) {
        return false;
    }
    const lt_t masked = gs_result(b, 4, gs_plain_order(4));
    return gs_add(b, sinter_op_add, sinter_in(&y), sinter_in(&mask), sinter_out(&masked)) &&
           gs_done(b, &masked, 4, gs_plain_order(4));
}

const gs_special_t gs_indexer = {.translate = translate, .refuse = refuse};
