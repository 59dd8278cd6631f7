/* Compiled partitions: the object behind sinter_compiled_partition_t. */
#ifndef SINTER_SRC_COMPILE_H
#define SINTER_SRC_COMPILE_H

#include <pthread.h>

#include "backend_xsmm/exec/frame.h"

/* A scratch block of the library's own, kept between executes. */
typedef struct scratch_block {
    struct scratch_block *next;
    void *memory;
    size_t bytes;
} scratch_block_t;

struct sinter_compiled_partition {
    sinter_engine_t *engine; /* held */
    size_t id;               /* of the partition */
    const char *pattern;     /* static text */
    plan_t plan;
    int n_inputs, n_outputs;
    int *inputs, *outputs; /* graph values of plan.sub */
    sinter_inplace_pair_t *inplace;
    size_t n_inplace;
    const char *report;
    size_t frame_bytes;
    pthread_mutex_t lock;
    scratch_block_t *idle; /* guarded by lock */
};

/* First half: the partition's subgraph in a new object, with what the caller knows about ports.
 * The passes run over (*cp)->plan.sub in between. */
sinter_status_t compile_open(const sinter_partition_t *part, sinter_engine_t *engine, size_t n_in,
                             const sinter_logical_tensor_t *in, size_t n_out,
                             const sinter_logical_tensor_t *out, sinter_compiled_partition_t **cp);
/* Second half: lowering, kernels, report. On failure the object is for compiled_free. */
sinter_status_t compile_finish(sinter_compiled_partition_t *cp, const sinter_partition_t *part);
void compiled_free(sinter_compiled_partition_t *cp);

/* At least `bytes` of 64-byte aligned memory from the idle blocks, or newly allocated; NULL: out
 * of memory. */
scratch_block_t *scratch_take(sinter_compiled_partition_t *cp, size_t bytes);
/* More room in a taken block; its contents are lost. False: out of memory. */
bool scratch_grow(sinter_compiled_partition_t *cp, scratch_block_t *block, size_t bytes);
void scratch_give(sinter_compiled_partition_t *cp, scratch_block_t *block);

#endif
