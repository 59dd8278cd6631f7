/* Ops that compute rows, with what follows them:
 *
 *   RMSNorm or LayerNorm -> [Multiply, Add] -> [TypeCast] -> [Quantize, or DynamicQuantize]
 *   RotaryEmbedding or HadamardTransform -> the same
 *   elementwise ops -> ReduceMean -> elementwise ops
 *   [Dequantize] -> MaxPool, AvgPool or Interpolate -> views, elementwise ops -> [Quantize]
 *
 * The sum that a norm takes joins its partition later (joins.def), because it often is the residual
 * of the next block and has other readers. */
#include "patterns/tables.h"

#define ROWS(class, name_of_role)                                                 \
    {.role = (name_of_role), .ops = (class), .edge = PAT_ANCHOR}, PAT_POST(0, 0), \
        PAT_QUANTISE_BELOW(1)

static const pat_node_t norm[] = {ROWS(OP_NORM, "norm")};
const pattern_t pattern_norm = PAT_ROW("norm", FAMILY_GENERAL, norm, NULL);

static const pat_node_t rotary[] = {ROWS(OP_ROTARY, "rotary")};
const pattern_t pattern_rotary = PAT_ROW("rotary", FAMILY_GENERAL, rotary, NULL);

static const pat_node_t reduction[] = {
    {.role = "reduction", .ops = OP_REDUCE, .edge = PAT_ANCHOR},
    PAT_PRE("pre", PAT_ELTWISE | PAT_CAST | PAT_DEQUANT, 0, 0),
    PAT_POST(0, 0),
};
const pattern_t pattern_reduction = PAT_ROW("reduction", FAMILY_GENERAL, reduction, NULL);

static const pat_node_t pooling[] = {
    {.role = "pooling", .ops = OP_WINDOW, .edge = PAT_ANCHOR},
    PAT_PRE("pre", PAT_ELTWISE | PAT_CAST | PAT_DEQUANT, 0, 0),
    PAT_POST(0, 0),
    PAT_TAIL(2),
};
const pattern_t pattern_pooling = PAT_ROW("pooling", FAMILY_GENERAL, pooling, NULL);
