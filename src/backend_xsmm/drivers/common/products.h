/* What the kernels with matrix products share at compile. */
#ifndef SINTER_SRC_KERNELS_PRODUCTS_H
#define SINTER_SRC_KERNELS_PRODUCTS_H

#include <sinter/sinter_graph.h>

#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/limbs.h"
#include "backend_xsmm/ukernels/xsmm.h"

/* Of zero points that are floats: products with sums of bytes stay far from the end of floats. */
#define ZP_FLOAT_MOST 0x1p60f

/* Bytes of an activation. */
static inline int limbs_of(integers_t kind)
{
    return kind == TWO_LIMBS ? 2 : 1;
}

/* Memory for rows of activations: bytes of high limbs or words and of low limbs, blocks, and of
 * these the ones that have an offset. */
static inline limb_rows_t carve_limbs(unsigned char *base, size_t *at, size_t high, size_t low,
                                      size_t blocks, size_t offsets)
{
    limb_rows_t a = {.first = NULL};
    a.byte[0] = carve(base, at, high, 1);
    a.byte[1] = carve(base, at, low, 1);
    a.scale = carve(base, at, blocks, sizeof(float));
    a.sum = carve(base, at, blocks, sizeof(int32_t));
    a.offset = offsets > 0 ? carve(base, at, offsets, sizeof(float)) : NULL;
    return a;
}

#define ONE_LIMB_NAME "8-bit integers"
#define TWO_LIMBS_NAME "16-bit integers (two 8-bit limbs)"
#define EXACT_CODES_NAME "exact products of codes"
#define DECODED_FMA "f32 FMA on decoded registers"

static inline const char *integers_name(integers_t kind)
{
    return kind == EXACT_CODES ? EXACT_CODES_NAME
           : kind == TWO_LIMBS ? TWO_LIMBS_NAME
                               : ONE_LIMB_NAME;
}

/* Rows for integers in a table of ways: compile has prepared one of them, or none. */
#define LIMB_WAYS(refuse)                \
    {TWO_LIMBS_NAME, refuse, TWO_LIMBS}, \
    {                                    \
        ONE_LIMB_NAME, refuse, ONE_LIMB  \
    }
#define INTEGER_WAYS(refuse) {EXACT_CODES_NAME, refuse, EXACT_CODES}, LIMB_WAYS(refuse)

#define MODE_HAS_NO_INTEGERS                                                   \
    "the fpmath mode does not allow products of integers with floats, or rows" \
    " are of codes, not floats"
#define A_HAS_NO_INTEGERS \
    "A is not made of integers of 8 bits or fewer, or its zero points are no integers"
#define BYTES_NEED_VNNI "without VNNI, codes of 8 bits are faster in floats"

static inline const char *refuse_bf16_products(const problem_t *p)
{
    return p->step->permit.bf16 ? xs_refuse(XS_BF16F32, p->plan->features)
                                : "the fpmath mode does not allow bf16 products";
}

/* What libxsmm's kernels may use. Those of bf16 need more than the features that the kernel's row
 * names: what the CPUs with bf16 products have besides. */
static inline features_t products_features(const kernel_t *self, const problem_t *p, bool bf16)
{
    return bf16 ? p->plan->features : self->needs;
}

/* Columns of one call of libxsmm. Its AVX2 code walks wider ones in an order that costs up to a
 * quarter of the speed on some processors. */
static inline int product_columns(features_t features)
{
    return has_features(features, NEEDS_AVX512) ? 64 : 32;
}

/* For the report; why: why there is no JIT kernel, NULL if there is. */
static inline void note_products(textbuf_t *note, bool bf16, const kernel_t *kernel,
                                 const char *why)
{
    if (why != NULL) {
        text_add(note, "own %s f32 gemm (no brgemm: %s)",
                 sinter_cpu_isa_name(level_of_features(kernel->needs)), why);
    } else {
        text_add(note, "%s brgemm libxsmm %s", bf16 ? "bf16" : "f32", xs_version());
    }
}

#endif
