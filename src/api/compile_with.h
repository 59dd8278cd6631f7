/* Compiling one partition, by itself or as a part of a graph. */
#ifndef SINTER_SRC_COMPILE_WITH_H
#define SINTER_SRC_COMPILE_WITH_H

#include "backend_xsmm/plan/compile.h"

/* What the caller knows about ports. */
typedef struct compile_ports {
    size_t n_in, n_out;
    const lt_t *in, *out;
} compile_ports_t;

/* Compiles until all layouts that it has chosen are what the kernels want. The inputs for which it
 * has found that they are not are added to `strided`. */
sinter_status_t compile_with(sinter_partition_t *partition, sinter_engine_t *engine,
                             const compile_ports_t *ports, strided_inputs_t *strided,
                             sinter_compiled_partition_t **compiled);

#endif
