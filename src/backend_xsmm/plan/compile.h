/* Making a compiled partition from a partition. */
#ifndef SINTER_SRC_COMPILE_H
#define SINTER_SRC_COMPILE_H

#include "backend_xsmm/exec/compiled.h"

/* Inputs of layout any that stay strided, by tensor id, and why. A compile that finds one adds it,
 * and must be made again. */
typedef struct strided_input {
    uint64_t id;
    const char *why;
    struct strided_input *next;
} strided_input_t;

typedef struct strided_inputs {
    arena_t *arena;
    strided_input_t *first;
} strided_inputs_t;

/* False: out of memory. why is copied. */
bool strided_inputs_add(strided_inputs_t *list, uint64_t id, const char *why);

/* First half: the partition's subgraph in a new object, with what the caller knows about ports.
 * The passes run over (*cp)->plan.sub in between. */
sinter_status_t compile_open(const sinter_partition_t *part, sinter_engine_t *engine, size_t n_in,
                             const sinter_logical_tensor_t *in, size_t n_out,
                             const sinter_logical_tensor_t *out, const strided_inputs_t *strided,
                             sinter_compiled_partition_t **cp);
/* Second half: lowering, kernels, report. On failure, and where *again is true because some layout
 * that was chosen is not what the kernels want, the caller passes the object to compiled_unref. */
sinter_status_t compile_finish(sinter_compiled_partition_t *cp, const sinter_partition_t *part,
                               strided_inputs_t *strided, bool *again);
/* Gives up a reference; the last one frees it. */
void compiled_unref(sinter_compiled_partition_t *cp);

#endif
