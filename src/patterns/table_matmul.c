/* One matmul with everything that rides on it: [eltwise, quantise, dequantise] -> MatMul ->
 * bias, activations, residuals -> [quantise, with given or with computed scales]. */
#include "patterns/predicates.h"
#include "patterns/tables.h"

/* Activations may be quantised on the fly: [Quantize, DynamicQuantize] -> [Dequantize,
 * DynamicDequantize]. */
#define OPERAND (PAT_CAST | PAT_VIEW | PAT_DEQUANT | PAT_QUANT | PAT_DYNQUANT)

/* No Dequantize below: after a Quantize it belongs to whoever consumes the codes. */
static const pat_node_t matmul[] = {
    {.role = "matmul", .ops = OP_MATMUL, .edge = PAT_ANCHOR},
    PAT_POST(0, 0),
    PAT_TAIL(1),
    PAT_QUANTISE_BELOW(2),
    {.role = "a_pre",
     .ops = OPERAND | PAT_ELTWISE,
     .edge = PAT_ABOVE,
     .of = 0,
     .port = 0,
     .max = PAT_MANY},
    {.role = "b_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 0, .port = 1, .max = PAT_MANY},
    {.role = "bias_pre",
     .ops = PAT_CAST | PAT_DEQUANT,
     .edge = PAT_ABOVE,
     .of = 0,
     .port = 2,
     .max = PAT_MANY},
};
static const pat_check_t checks[] = {pat_within_limits, NULL};
const pattern_t pattern_matmul = PAT_ROW("matmul", FAMILY_GENERAL, matmul, checks);

/* A convolution with what rides on it, in the same way. */
static const pat_node_t convolution[] = {
    {.role = "convolution", .ops = OP_CONVOLUTION, .edge = PAT_ANCHOR},
    PAT_POST(0, 0),
    PAT_TAIL(1),
    PAT_QUANTISE_BELOW(2),
    {.role = "image_pre",
     .ops = OPERAND | PAT_ELTWISE,
     .edge = PAT_ABOVE,
     .of = 0,
     .port = 0,
     .max = PAT_MANY},
    {.role = "weights_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 0, .port = 1, .max = PAT_MANY},
    {.role = "bias_pre",
     .ops = PAT_CAST | PAT_DEQUANT,
     .edge = PAT_ABOVE,
     .of = 0,
     .port = 2,
     .max = PAT_MANY},
};
const pattern_t pattern_convolution = PAT_ROW("convolution", FAMILY_GENERAL, convolution, checks);

/* The zero points of B's codes apart from the codes, with sums over A's rows that the caller has
 * anyway:
 *   MatMul(a, scale * codes) - MatMul(sums of a over groups of k, scale * zero points) */
static const pat_node_t matmul_sums[] = {
    {.role = "matmul", .ops = OP_MATMUL, .edge = PAT_ANCHOR},
    PAT_POST(0, 1),
    {.role = "sums", .ops = OP_MATMUL, .edge = PAT_ABOVE, .of = 1, .port = -1, .min = 1, .max = 1},
    PAT_TAIL(1),
    PAT_QUANTISE_BELOW(3),
    {.role = "a_pre",
     .ops = OPERAND | PAT_ELTWISE,
     .edge = PAT_ABOVE,
     .of = 0,
     .port = 0,
     .max = PAT_MANY},
    {.role = "b_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 0, .port = 1, .max = PAT_MANY},
    {.role = "bias_pre",
     .ops = PAT_CAST | PAT_DEQUANT,
     .edge = PAT_ABOVE,
     .of = 0,
     .port = 2,
     .max = PAT_MANY},
    {.role = "sums_pre",
     .ops = OPERAND | PAT_ELTWISE,
     .edge = PAT_ABOVE,
     .of = 2,
     .port = 0,
     .max = PAT_MANY},
    {.role = "zps_pre", .ops = OPERAND, .edge = PAT_ABOVE, .of = 2, .port = 1, .max = PAT_MANY},
};
static const pat_check_t sums_checks[] = {pat_within_limits, pat_sums_of_groups, pat_subtracts_sums,
                                          NULL};
const pattern_t pattern_matmul_sums =
    PAT_ROW("matmul-sums", FAMILY_GENERAL, matmul_sums, sums_checks);
