/* A compiled partition: the plan, its ports, and scratch memory between executes. */
#ifndef SINTER_SRC_COMPILED_H
#define SINTER_SRC_COMPILED_H

#include <pthread.h>
#include <stdatomic.h>

#include "backend_xsmm/exec/frame.h"

/* A scratch block of the library's own, kept between executes. */
typedef struct scratch_block {
    struct scratch_block *next;
    void *memory;
    size_t bytes;
} scratch_block_t;

struct sinter_compiled_partition {
    atomic_int refs;         /* sequences hold it */
    sinter_engine_t *engine; /* held */
    size_t id;               /* of the partition */
    const char *pattern;     /* static text */
    plan_t plan;
    /* Runs where dims are not those that `plan` assumes; NULL: it assumes nothing. Its subgraph is
     * that of `plan`, and so are its ports. */
    plan_t *fallback;
    int n_inputs, n_outputs;
    int *inputs, *outputs; /* graph values of plan.sub; in one array, the inputs first */
    sinter_inplace_pair_t *inplace;
    size_t n_inplace;
    const char *report;
    pthread_mutex_t lock;
    scratch_block_t *idle; /* guarded by lock */
};

/* At least `bytes` of 64-byte aligned memory from the idle blocks, or newly allocated; NULL: out
 * of memory. */
scratch_block_t *scratch_take(sinter_compiled_partition_t *cp, size_t bytes);
/* Makes a taken block larger; its contents are lost. False: out of memory. */
bool scratch_grow(sinter_compiled_partition_t *cp, scratch_block_t *block, size_t bytes);
void scratch_give(sinter_compiled_partition_t *cp, scratch_block_t *block);

#endif
