/* One matmul with everything that rides on it: [eltwise, dequantise] -> MatMul -> bias, activations, residuals -> [quantise, with given or with
 * computed scales]. */
#include "predicates.h"
#include "tables.h"

#define OPERAND (PAT_CAST | PAT_VIEW | PAT_DEQUANT)
#define SIDE (PAT_ELTWISE | PAT_CAST | PAT_VIEW | PAT_DEQUANT)

/* No Dequantize below: after a Quantize it belongs to whoever consumes the codes. */
static const pat_node_t matmul[] = {
    {.role = "matmul", .ops = PAT_MATMUL, .edge = PAT_ANCHOR},
    {.role = "post", .ops = PAT_ELTWISE | PAT_CAST | PAT_QUANT, .edge = PAT_REGION, .of = 0, .max = PAT_MANY, .side = SIDE, .keep = true},
    {.role = "tail", .ops = PAT_VIEW | PAT_CAST | PAT_QUANT | PAT_ELTWISE, .edge = PAT_BELOW, .of = 1, .port = -1, .max = PAT_MANY, .side = SIDE},
    PAT_QUANTISE_BELOW(2),
    {.role = "a_pre", .ops = OPERAND | PAT_ELTWISE, .edge = PAT_ABOVE, .of = 0, .port = 0, .max = PAT_MANY},
    {.role = "b_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 0, .port = 1, .max = PAT_MANY},
    {.role = "bias_pre", .ops = PAT_CAST | PAT_DEQUANT, .edge = PAT_ABOVE, .of = 0, .port = 2, .max = PAT_MANY},
};
static const pat_check_t checks[] = {pat_within_limits, NULL};
const pattern_t pattern_matmul = PAT_ROW("matmul", FAMILY_GENERAL, matmul, checks);
