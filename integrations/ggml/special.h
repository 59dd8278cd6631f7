/* Ops that need code of their own, beside the plain ones of ops.c. */
#ifndef SINTER_GGML_SPECIAL_H
#define SINTER_GGML_SPECIAL_H

#include "values.h"

/* Computes a node without Sinter; false where it cannot. */
typedef bool (*gs_loop_t)(const tensor_t *node);

typedef struct gs_special {
    bool (*translate)(gs_builder_t *b, const tensor_t *node);
    const char *(*refuse)(const tensor_t *node); /* as of a plain op where this is NULL */
    /* Nodes that the loop computes instead. NULL: there is none. */
    bool (*takes_loop)(const tensor_t *node);
    gs_loop_t loop;
    /* A dim that the translation needs to know, so that plans for other sizes are others. NULL:
     * there is none. */
    int64_t (*fixed)(const tensor_t *node);
} gs_special_t;

/* products.c */
extern const gs_special_t gs_mul_mat, gs_mul_mat_id, gs_add_id, gs_attention, gs_soft_max;
/* rope.c */
extern const gs_special_t gs_rope;
/* unary.c */
/* y = x without what is behind the point, in f32. */
bool gs_truncate(gs_builder_t *b, const lt_t *x, const lt_t *y);
extern const gs_special_t gs_unary;
/* images.c */
extern const gs_special_t gs_arange, gs_pad, gs_group_norm, gs_pool, gs_conv, gs_im2col, gs_upscale;
/* indexer.c */
extern const gs_special_t gs_indexer;
/* hyper.c */
extern const gs_special_t gs_hyper_pre, gs_hyper_post, gs_hyper_comb;
/* rows.c */
extern const gs_special_t gs_get_rows, gs_set_rows, gs_copy, gs_argsort, gs_top_k;
/* recurrent.c */
/* CONCAT of the tokens that a convolution has kept with new ones, which lie the other way round:
 * [tokens, channels, sequences]. */
bool gs_joins_tokens(const tensor_t *node);
bool gs_join_tokens(gs_builder_t *b, const tensor_t *node);
extern const gs_special_t gs_gated_delta_net, gs_ssm_conv, gs_ssm_scan, gs_state_rows, gs_l2_norm;

#endif
