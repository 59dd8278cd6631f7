/* Attention: softmax(score(Q K)) V, over float, static 8-bit and compressed operands alike. */
#include "patterns/predicates.h"
#include "patterns/tables.h"

#define OPERAND (PAT_CAST | PAT_VIEW | PAT_DEQUANT | PAT_SCALE)
/* K or V may be a part of a cache. Of latent attention, V is the first elements of K. */
#define CACHE (OPERAND | PAT_SLICE)
/* The same in blocks. */
#define PAGES (CACHE | OP_GATHER)
#define PROB (PAT_CAST | PAT_QUANT | PAT_DEQUANT)

/* The score and probability programs run on registers for each tile, hence the limits. */
enum { MAX_SCORE = 32, MAX_PROB = 8 };

/* clang-format off */
#define SCORE(of_node)                                                                            \
    {.role = "score", .ops = PAT_ELTWISE | PAT_CAST, .edge = PAT_REGION, .of = (of_node),         \
     .max = MAX_SCORE, .side = PAT_SIDE}
#define SOFTMAX(of_node)                                                                          \
    {.role = "softmax", .ops = OP_SOFTMAX, .edge = PAT_BELOW, .of = (of_node), .port = 0,         \
     .min = 1, .max = 1, .side = PAT_SIDE}
/* at: the place of the first of these rows in the table */
#define TAIL(of_node, at)                                                                         \
    PAT_POST_AS("tail", of_node, 0), PAT_TAIL(at), PAT_QUANTISE_BELOW((at) + 1)
/* The rows of the plain form, whose K and V come through `caches`. */
#define PLAIN(caches)                                                                             \
    {.role = "qk", .ops = OP_MATMUL, .edge = PAT_ANCHOR},                                         \
    SCORE(0), SOFTMAX(1),                                                                         \
    {.role = "p_post", .ops = PROB, .edge = PAT_BELOW, .of = 2, .port = 0, .max = MAX_PROB},      \
    {.role = "pv", .ops = OP_MATMUL, .edge = PAT_BELOW, .of = 3, .port = 0, .min = 1, .max = 1},  \
    PAT_PRE("q_pre", OPERAND, 0, 0), PAT_PRE("k_pre", caches, 0, 1), PAT_PRE("v_pre", caches, 4, 1)
/* clang-format on */

/* K and V are taken from blocks by a table, and read where they lie (graph/pages.h). */
static const pat_node_t sdpa_paged[] = {
    PLAIN(PAGES),
    PAT_PRE("rows", OP_GATHER, 7, 1), /* of the table */
    TAIL(4, 9),
};
static const pat_check_t paged_checks[] = {
    pat_reads_pages,       pat_within_limits, pat_plain_matmuls, pat_plain_probabilities,
    pat_softmax_over_keys, pat_values_batch,  pat_key_geometry,  NULL};
const pattern_t pattern_sdpa_paged =
    PAT_ROW("sdpa-paged", FAMILY_ATTENTION, sdpa_paged, paged_checks);

static const pat_node_t sdpa[] = {
    PLAIN(CACHE),
    TAIL(4, 8),
};
static const pat_check_t sdpa_checks[] = {pat_within_limits,
                                          pat_plain_matmuls,
                                          pat_plain_probabilities,
                                          pat_softmax_over_keys,
                                          pat_values_batch,
                                          pat_key_geometry,
                                          NULL};
const pattern_t pattern_sdpa = PAT_ROW("sdpa", FAMILY_ATTENTION, sdpa, sdpa_checks);

/* The same with scores or probabilities as [keys, queries] somewhere, and with V on either side of
 * the second matmul:
 *   MatMul(V, StaticTranspose(SoftMax(MatMul(Q, K))))
 *   MatMul(V, SoftMax over the rows of MatMul(K, Q))
 * The pass plain_attention makes the plain form of it. */
static const pat_node_t sdpa_transposed[] = {
    {.role = "qk", .ops = OP_MATMUL, .edge = PAT_ANCHOR},
    {.role = "score_views", .ops = PAT_VIEW, .edge = PAT_BELOW, .of = 0, .max = PAT_MANY},
    SCORE(1),
    {.role = "score_views", .ops = PAT_VIEW, .edge = PAT_BELOW, .of = 2, .max = PAT_MANY},
    SCORE(3),
    SOFTMAX(4),
    {.role = "p_post",
     .ops = PROB | PAT_VIEW,
     .edge = PAT_BELOW,
     .of = 5,
     .port = 0,
     .max = MAX_PROB},
    {.role = "turned_pv",
     .ops = OP_MATMUL,
     .edge = PAT_BELOW,
     .of = 6,
     .port = -1,
     .min = 1,
     .max = 1},
    PAT_PRE("q_pre", OPERAND, 0, 0),
    PAT_PRE("k_pre", CACHE, 0, 1),
    PAT_PRE("v_pre", CACHE, 7, -1),
    TAIL(7, 11),
};
static const pat_check_t transposed_checks[] = {pat_within_limits,  pat_plain_matmuls,
                                                pat_turns_to_plain, pat_values_batch,
                                                pat_key_geometry,   NULL};
const pattern_t pattern_sdpa_transposed =
    PAT_ROW("sdpa-transposed", FAMILY_ATTENTION, sdpa_transposed, transposed_checks);

/* Multi-query attention with the heads folded into the columns of one big product, and V on the
 * left:
 *   MatMul(V, reshape(transpose(SoftMax(score(transpose(reshape(MatMul(Q, K)))))))) */
static const pat_node_t sdpa_mqa[] = {
    {.role = "qk", .ops = OP_MATMUL, .edge = PAT_ANCHOR},
    {.role = "score_views", .ops = PAT_VIEW, .edge = PAT_BELOW, .of = 0, .min = 1, .max = PAT_MANY},
    SCORE(1),
    SOFTMAX(2),
    {.role = "p_post",
     .ops = PROB | PAT_VIEW,
     .edge = PAT_BELOW,
     .of = 3,
     .port = 0,
     .min = 1,
     .max = PAT_MANY},
    {.role = "pv", .ops = OP_MATMUL, .edge = PAT_BELOW, .of = 4, .port = 1, .min = 1, .max = 1},
    PAT_PRE("q_pre", OPERAND, 0, 0),
    PAT_PRE("k_pre", CACHE, 0, 1),
    PAT_PRE("v_pre", CACHE, 5, 0),
    TAIL(5, 9),
};
static const pat_check_t mqa_checks[] = {pat_within_limits, NULL};
const pattern_t pattern_sdpa_mqa = PAT_ROW("sdpa-mqa", FAMILY_GENERAL, sdpa_mqa, mqa_checks);
