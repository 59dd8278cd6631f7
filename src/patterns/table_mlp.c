/* Gated MLP: (act(x Wg) * x Wu) Wd. Which of the two products is the gate is the graph's affair:
 * the first in order anchors. */
#include "patterns/predicates.h"
#include "patterns/tables.h"

#define OPERAND (PAT_CAST | PAT_VIEW | PAT_DEQUANT)
#define INPUT (OPERAND | PAT_QUANT | PAT_DYNQUANT) /* may be quantised on the fly */
#define SIDE (PAT_ELTWISE | PAT_CAST | PAT_DEQUANT)
#define MID (PAT_CAST | PAT_VIEW | PAT_QUANT | PAT_DYNQUANT | PAT_DEQUANT)

enum { MAX_ACT = 32, MAX_MID = 8 };

/* clang-format off */
#define X_PRE(of_node)                                                                            \
    {.role = "x_pre", .ops = INPUT, .edge = PAT_ABOVE, .of = (of_node), .port = 0,                \
     .max = PAT_MANY, .leave = true}
#define TAIL(of_node)                                                                             \
    {.role = "tail", .ops = PAT_VIEW | PAT_CAST | PAT_QUANT | PAT_ELTWISE, .edge = PAT_BELOW,     \
     .of = (of_node), .port = -1, .max = PAT_MANY, .side = SIDE}
/* clang-format on */

static const pat_check_t checks[] = {pat_within_limits, pat_same_input, pat_joined_by_multiply,
                                     NULL};

static const pat_node_t gated_mlp[] = {
    {.role = "gate", .ops = OP_MATMUL, .edge = PAT_ANCHOR},
    {.role = "act",
     .ops = PAT_ELTWISE | PAT_CAST,
     .edge = PAT_REGION,
     .of = 0,
     .min = 1,
     .max = MAX_ACT,
     .side = SIDE},
    {.role = "up", .ops = OP_MATMUL, .edge = PAT_ABOVE, .of = 1, .port = -1, .min = 1, .max = 1},
    {.role = "mid", .ops = MID, .edge = PAT_BELOW, .of = 1, .port = 0, .max = MAX_MID},
    {.role = "down", .ops = OP_MATMUL, .edge = PAT_BELOW, .of = 3, .port = 0, .min = 1, .max = 1},
    X_PRE(0),
    PAT_PRE("gate_pre", OPERAND, 0, 1),
    X_PRE(2),
    PAT_PRE("up_pre", OPERAND, 2, 1),
    PAT_PRE("down_pre", OPERAND, 4, 1),
    {.role = "post",
     .ops = PAT_ELTWISE | PAT_CAST | PAT_QUANT,
     .edge = PAT_REGION,
     .of = 4,
     .max = PAT_MANY,
     .side = SIDE,
     .keep = true},
    TAIL(10),
    PAT_QUANTISE_BELOW(11),
};
const pattern_t pattern_gated_mlp = PAT_ROW("gated-mlp", FAMILY_GENERAL, gated_mlp, checks);

/* Without the down projection. */
static const pat_node_t gated_mlp_up[] = {
    {.role = "gate", .ops = OP_MATMUL, .edge = PAT_ANCHOR},
    {.role = "act",
     .ops = PAT_ELTWISE | PAT_CAST | PAT_QUANT,
     .edge = PAT_REGION,
     .of = 0,
     .min = 1,
     .max = MAX_ACT,
     .side = SIDE,
     .keep = true},
    {.role = "up", .ops = OP_MATMUL, .edge = PAT_ABOVE, .of = 1, .port = -1, .min = 1, .max = 1},
    X_PRE(0),
    PAT_PRE("gate_pre", OPERAND, 0, 1),
    X_PRE(2),
    PAT_PRE("up_pre", OPERAND, 2, 1),
    TAIL(1),
    PAT_QUANTISE_BELOW(7),
};
const pattern_t pattern_gated_mlp_up =
    PAT_ROW("gated-mlp-up", FAMILY_GENERAL, gated_mlp_up, checks);
