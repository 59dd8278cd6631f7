/* Steps that take their input row by row: a chain computes a row into the thread's memory, the step
 * changes it there, and a chain, perhaps with a quantising tail, takes it from there. So memory is
 * passed over once, whatever is fused. Norms and the rotary embedding are such steps.
 *
 * A row is a box of the space: `block` elements along each dim. */
#ifndef SINTER_SRC_KERNELS_ROWS_H
#define SINTER_SRC_KERNELS_ROWS_H

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/drivers/quant_tail.h"
#include "backend_xsmm/kernel.h"

typedef struct rows {
    chain_bound_t pre, post;
    quant_tail_t tail;
    int ndims;
    int64_t block[SINTER_MAX_NDIMS], extent[SINTER_MAX_NDIMS]; /* of the space; in rows */
    int64_t n_rows, row;                                       /* row: its elements */
    /* The dims that the chains have: dims that a row has whole may be one for them. */
    int n_chain, chain_dim[SINTER_MAX_NDIMS];
    int64_t chain_block[SINTER_MAX_NDIMS];
    int run; /* the most elements of a run of the chains */
    bool serial;
} rows_t;

/* pre: over the space, with a result. block: by dim. Adds to choice the memory of the rows, which
 * begins at *shared_bytes, and the way. */
sinter_status_t rows_bind(const problem_t *p, const chain_t *pre, features_t features,
                          const int64_t *block, rows_t *out, choice_t *choice);
void rows_start(const problem_t *p, rows_t *rows);
/* Scratch of a share, and the memory that a row of so many elements takes of what is shared. */
size_t rows_scratch(const step_t *step, const chain_t *pre);
size_t rows_row_bytes(int64_t elements);

/* Changes a row of st->row elements in place; row: its index by dim. */
typedef void rows_change_t(const void *state, const problem_t *p, const int64_t *row, float *x);
/* One share of the work. memory: where the rows' shared memory begins. */
void rows_work(const rows_t *rows, const problem_t *p, const worker_t *w, unsigned char *memory,
               rows_change_t *change, const void *state);

#endif
