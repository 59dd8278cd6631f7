/* What needs no matmul: softmax with its post-ops, chains that move elements, elementwise
 * regions. */
#include "patterns/predicates.h"
#include "patterns/tables.h"

#define MOVE (PAT_VIEW | PAT_CAST | PAT_QUANT | PAT_DEQUANT)
#define POINTWISE (PAT_ELTWISE | PAT_CAST | PAT_QUANT | PAT_DEQUANT)

static const pat_node_t softmax[] = {
    {.role = "softmax", .ops = OP_SOFTMAX | OP_LOG_SOFTMAX, .edge = PAT_ANCHOR},
    PAT_POST(0, 0),
    {.role = "tail",
     .ops = PAT_VIEW | PAT_CAST | PAT_QUANT,
     .edge = PAT_BELOW,
     .of = 1,
     .port = 0,
     .max = PAT_MANY},
    PAT_QUANTISE_BELOW(2),
};
static const pat_check_t softmax_checks[] = {pat_within_limits, NULL};
const pattern_t pattern_softmax = PAT_ROW("softmax", FAMILY_GENERAL, softmax, softmax_checks);

/* What an op alone, or a chain of views, hands to a DynamicQuantize that computes its scales:
 * TypeCast -> StaticReshape -> DynamicQuantize. */
static const pat_node_t dynamic_quantize[] = {
    {.role = "quantise", .ops = PAT_DYNQUANT, .edge = PAT_ANCHOR},
    {.role = "pre",
     .ops = PAT_ELTWISE | MOVE,
     .edge = PAT_ABOVE,
     .of = 0,
     .port = 0,
     .min = 1,
     .max = PAT_MANY},
};
const pattern_t pattern_dynamic_quantize =
    PAT_ROW("dynamic-quantize", FAMILY_GENERAL, dynamic_quantize, NULL);

/* Dequantize -> Reorder -> Quantize, reshape -> transpose -> reshape (shuffle) and the like. */
static const pat_node_t reorder[] = {
    {.role = "move", .ops = MOVE, .edge = PAT_ANCHOR},
    {.role = "move", .ops = MOVE, .edge = PAT_BELOW, .of = 0, .port = 0, .min = 1, .max = PAT_MANY},
};
static const pat_check_t reorder_checks[] = {pat_moves_elements, NULL};
const pattern_t pattern_reorder = PAT_ROW("reorder", FAMILY_GENERAL, reorder, reorder_checks);

static const pat_node_t eltwise[] = {
    {.role = "eltwise", .ops = POINTWISE, .edge = PAT_ANCHOR, .side = PAT_SIDE},
    {.role = "eltwise",
     .ops = POINTWISE,
     .edge = PAT_REGION,
     .of = 0,
     .max = PAT_MANY,
     .side = PAT_SIDE,
     .keep = true},
    PAT_QUANTISE_BELOW(1),
};
const pattern_t pattern_eltwise = PAT_ROW("eltwise", FAMILY_GENERAL, eltwise, NULL);
