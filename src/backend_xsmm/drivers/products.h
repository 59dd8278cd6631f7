/* What the kernels with matrix products share at compile. */
#ifndef SINTER_SRC_KERNELS_PRODUCTS_H
#define SINTER_SRC_KERNELS_PRODUCTS_H

#include <sinter/sinter_graph.h>

#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/xsmm.h"

/* Bytes of an activation in integers: 2 where the mode rounds floats to 8 or 11 bits, 1 in mode
 * int8. 0: the mode does not allow them. */
static inline int limbs_of(sinter_fpmath_mode_t mode)
{
    static const int limbs[] = {[sinter_fpmath_mode_tf32] = 2,
                                [sinter_fpmath_mode_f16] = 2,
                                [sinter_fpmath_mode_bf16] = 2,
                                [sinter_fpmath_mode_any] = 2,
                                [sinter_fpmath_mode_int8] = 1};
    return (size_t)mode < sizeof limbs / sizeof *limbs ? limbs[mode] : 0;
}

static inline const char *limbs_name(int limbs)
{
    return limbs == 2 ? "16-bit integers (two 8-bit limbs, VNNI)" : "8-bit integers (VNNI)";
}

#define DECODED_FMA "f32 FMA on decoded registers"

/* Products of integers; codes: A is codes too. */
static inline const char *integers_name(bool codes, int limbs)
{
    return codes ? "exact products of codes (VNNI)" : limbs_name(limbs);
}

static inline const char *refuse_bf16_products(const problem_t *p)
{
    const sinter_fpmath_mode_t mode = p->step->mode;
    if (mode != sinter_fpmath_mode_bf16 && mode != sinter_fpmath_mode_any) {
        return "the fpmath mode does not allow bf16 products";
    }
    return xs_refuse(XS_BF16F32, p->plan->features);
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
