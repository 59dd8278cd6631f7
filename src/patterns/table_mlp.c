/* Gated MLP: (act(x Wg) * x Wu) Wd. Which of the two products is the gate is the graph's affair:
 * the first in order anchors. */
#include "patterns/predicates.h"
#include "patterns/tables.h"

#define OPERAND (PAT_CAST | PAT_VIEW | PAT_DEQUANT)
#define INPUT (OPERAND | PAT_QUANT | PAT_DYNQUANT) /* may be quantised on the fly */
#define SIDE (PAT_ELTWISE | PAT_CAST | PAT_DEQUANT)
#define MID (PAT_CAST | PAT_VIEW | PAT_QUANT | PAT_DYNQUANT | PAT_DEQUANT)
#define TAIL (PAT_VIEW | PAT_CAST | PAT_QUANT | PAT_ELTWISE)

enum { MAX_ACT = 32, MAX_MID = 8 };

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
    {.role = "x_pre",
     .ops = INPUT,
     .edge = PAT_ABOVE,
     .of = 0,
     .port = 0,
     .max = PAT_MANY,
     .leave = true},
    {.role = "gate_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 0, .port = 1, .max = PAT_MANY},
    {.role = "x_pre",
     .ops = INPUT,
     .edge = PAT_ABOVE,
     .of = 2,
     .port = 0,
     .max = PAT_MANY,
     .leave = true},
    {.role = "up_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 2, .port = 1, .max = PAT_MANY},
    {.role = "down_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 4, .port = 1, .max = PAT_MANY},
    {.role = "post",
     .ops = PAT_ELTWISE | PAT_CAST | PAT_QUANT,
     .edge = PAT_REGION,
     .of = 4,
     .max = PAT_MANY,
     .side = SIDE,
     .keep = true},
    {.role = "tail",
     .ops = TAIL,
     .edge = PAT_BELOW,
     .of = 10,
     .port = -1,
     .max = PAT_MANY,
     .side = SIDE},
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
    {.role = "x_pre",
     .ops = INPUT,
     .edge = PAT_ABOVE,
     .of = 0,
     .port = 0,
     .max = PAT_MANY,
     .leave = true},
    {.role = "gate_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 0, .port = 1, .max = PAT_MANY},
    {.role = "x_pre",
     .ops = INPUT,
     .edge = PAT_ABOVE,
     .of = 2,
     .port = 0,
     .max = PAT_MANY,
     .leave = true},
    {.role = "up_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 2, .port = 1, .max = PAT_MANY},
    {.role = "tail",
     .ops = TAIL,
     .edge = PAT_BELOW,
     .of = 1,
     .port = -1,
     .max = PAT_MANY,
     .side = SIDE},
    PAT_QUANTISE_BELOW(7),
};
const pattern_t pattern_gated_mlp_up =
    PAT_ROW("gated-mlp-up", FAMILY_GENERAL, gated_mlp_up, checks);
