/* One matmul with everything that rides on it: [eltwise, quantise, dequantise] -> MatMul ->
 * bias, activations, residuals -> [quantise, with given or with computed scales]. */
#include "patterns/predicates.h"
#include "patterns/tables.h"

/* Activations may be quantised on the fly: [Quantize, DynamicQuantize] -> [Dequantize,
 * DynamicDequantize]. */
#define OPERAND (PAT_CAST | PAT_VIEW | PAT_DEQUANT | PAT_QUANT | PAT_DYNQUANT)

/* No Dequantize below: after a Quantize it belongs to whoever consumes the codes. */
#define PRODUCT(class, product, a, b)                                                              \
    {.role = (product), .ops = (class), .edge = PAT_ANCHOR}, PAT_POST(0, 0), PAT_TAIL(1),          \
        PAT_QUANTISE_BELOW(2), PAT_PRE(a, OPERAND | PAT_ELTWISE, 0, 0), PAT_PRE(b, OPERAND, 0, 1), \
        PAT_PRE("bias_pre", PAT_CAST | PAT_DEQUANT, 0, 2)

static const pat_node_t matmul[] = {PRODUCT(OP_MATMUL, "matmul", "a_pre", "b_pre")};
static const pat_check_t checks[] = {pat_within_limits, NULL};
const pattern_t pattern_matmul = PAT_ROW("matmul", FAMILY_GENERAL, matmul, checks);

/* A convolution with what rides on it, in the same way. */
static const pat_node_t convolution[] = {
    PRODUCT(OP_CONVOLUTION, "convolution", "image_pre", "weights_pre")};
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
    PAT_PRE("a_pre", OPERAND | PAT_ELTWISE, 0, 0),
    PAT_PRE("b_pre", OPERAND, 0, 1),
    PAT_PRE("bias_pre", PAT_CAST | PAT_DEQUANT, 0, 2),
    PAT_PRE("sums_pre", OPERAND | PAT_ELTWISE, 2, 0),
    PAT_PRE("zps_pre", OPERAND, 2, 1),
};
static const pat_check_t sums_checks[] = {pat_within_limits, pat_sums_of_groups, pat_subtracts_sums,
                                          NULL};
const pattern_t pattern_matmul_sums =
    PAT_ROW("matmul-sums", FAMILY_GENERAL, matmul_sums, sums_checks);
