/* Making a compiled partition from a partition. */
#ifndef SINTER_SRC_COMPILE_H
#define SINTER_SRC_COMPILE_H

#include "backend_xsmm/exec/compiled.h"

/* First half: the partition's subgraph in a new object, with what the caller knows about ports.
 * The passes run over (*cp)->plan.sub in between. */
sinter_status_t compile_open(const sinter_partition_t *part, sinter_engine_t *engine, size_t n_in,
                             const sinter_logical_tensor_t *in, size_t n_out,
                             const sinter_logical_tensor_t *out, sinter_compiled_partition_t **cp);
/* Second half: lowering, kernels, report. On failure the caller passes the object to
 * compiled_unref. */
sinter_status_t compile_finish(sinter_compiled_partition_t *cp, const sinter_partition_t *part);
/* Gives up a reference; the last one frees it. */
void compiled_unref(sinter_compiled_partition_t *cp);

#endif
