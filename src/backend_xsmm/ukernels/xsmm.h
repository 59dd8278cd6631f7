/* libxsmm, the only file that includes its header is xsmm.c. Row-major: C[M][N] = beta C + sum
 * over r < count of A_r[M][K] B_r[K][N]. */
#ifndef SINTER_SRC_XSMM_H
#define SINTER_SRC_XSMM_H

#include <stdbool.h>
#include <stdint.h>

#include <sinter/sinter_types.h>

#include "base/features.h"

typedef enum xs_kind {
    XS_F32, /* A f32, B f32, C f32 */
    /* A bf16 [M][lda] (K, lda even), B bf16 [K/2][ldb][2], C f32; only where the CPU multiplies
     * bf16 natively */
    XS_BF16F32
} xs_kind_t;

typedef struct xs_shape {
    xs_kind_t kind;
    int m, n, k, lda, ldb, ldc; /* elements */
    int64_t stride_a, stride_b; /* elements between A_r, A_r+1 */
    bool beta;                  /* true: C is added to */
} xs_shape_t;

typedef struct xs_kernel {
    void (*fn)(void); /* NULL: none */
    bool two;         /* libxsmm 2.x calling convention */
} xs_kernel_t;

/* Starts libxsmm, once for the process, and finds out whether it can generate code. The other
 * functions call it themselves. Changes the environment for a moment and restores it. Thread-safe,
 * except against threads that use the environment meanwhile. */
void xs_start(void);
/* Compile time only. NULL fn with *why (static text) if there is no correct JIT kernel: the
 * caller then uses its own code and reports why. cap: the plan's ISA; libxsmm's own target is
 * global to the process and emits up to its level, so a plan capped below that level gets no JIT
 * kernel. */
xs_kernel_t xs_dispatch(const xs_shape_t *shape, features_t features, const char **why);
/* count 0 does nothing: C is then left as it is, with beta and without. Thread-safe. */
void xs_call(xs_kernel_t kernel, const void *a, const void *b, void *c, uint64_t count);
/* NULL if libxsmm can make kernels of this kind under this cap on this machine, else why not
 * (static text). */
const char *xs_refuse(xs_kind_t kind, features_t features);
/* "1.17 clx" for reports. */
const char *xs_version(void);

#endif
