/* Steps that take their input row by row: a chain computes a row into the thread's memory, the step
 * changes it there, and a chain, perhaps with a quantising tail, takes it from there. So memory is
 * passed over once, whatever is fused. Norms and the rotary embedding are such steps.
 *
 * A row is a box of the space: `block` elements along each dim. The chains take several short rows
 * that lie side by side at once: a batch. */
#ifndef SINTER_SRC_KERNELS_ROWS_H
#define SINTER_SRC_KERNELS_ROWS_H

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/drivers/common/quant_tail.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"

typedef struct rows {
    chain_bound_t pre, post;
    quant_tail_t tail;
    int ndims;
    int64_t block[SINTER_MAX_NDIMS], extent[SINTER_MAX_NDIMS];  /* of the space; in rows */
    int64_t batch[SINTER_MAX_NDIMS], batches[SINTER_MAX_NDIMS]; /* rows of one; how many */
    int64_t n_batches, row, most;                               /* elements of a row, of a batch */
    /* The dims that the chains have: dims that a batch has whole may be one for them. chain_unit:
     * elements for each row along dim chain_dim; chain_block: those of a batch. */
    int n_chain, chain_dim[SINTER_MAX_NDIMS];
    int64_t chain_unit[SINTER_MAX_NDIMS], chain_block[SINTER_MAX_NDIMS];
    int run;      /* the most elements of a run of the chains */
    bool streams; /* some store goes past the caches */
    bool ahead;   /* the next row is fetched while one is finished */
    bool affine;  /* the step may do what the chain behind it begins with */
    /* A row is fetched line by line while the one before it is finished, since its chain only loads
     * it. */
    bool by_lines;
    bool long_groups; /* of the tail, longer than a run: they are quantised after the runs */
} rows_t;

/* step->pre is over the space, with a result. block: by dim. Adds to choice the memory of the rows,
 * which begins at *shared_bytes, and the way. */
sinter_status_t rows_bind(const problem_t *p, features_t features, const int64_t *block,
                          rows_t *out, choice_t *choice);
/* start of a driver whose state begins with its rows. */
sinter_status_t rows_start(const kernel_t *self, const problem_t *p, const void *config,
                           void *state);
/* Scratch of a share, and the shared memory that a row of this many elements takes. */
size_t rows_scratch(const step_t *step);
size_t rows_row_bytes(int64_t elements);

/* What is done with a row x of rows->row elements, whose index by dim is `index`. */
typedef struct row {
    const int64_t *index;
    float *x;
    double count, mean, squares; /* at first 0 */
    double factor;               /* at first 1 */
} row_t;
/* A run of a row, what the chain behind it begins with, and what is prefetched meanwhile. */
typedef struct row_run {
    const void *state;
    const float *from;
    float *to;
    int n;
    const chain_affine_run_t *affine;
    const ahead_t *ahead;
} row_run_t;
typedef struct row_ops {
    /* Looks at a run of the row after the chain before it. NULL: nothing. */
    void (*seen)(const void *state, row_t *row, const float *run, int n);
    /* All of the row, after its runs. Where there is no `finish`, it changes x; else x may be
     * elsewhere, and only runs count. */
    void (*change)(const void *state, const problem_t *p, row_t *row);
    /* Changes a run, from `from` to `to`, before the chain behind it. */
    void (*finish)(const void *state, const row_t *row, const float *from, float *to, int n);
    /* Does this and what `affine` says in one pass, to affine->to if that is given. False: nothing
     * is done yet, since this row needs more care. NULL: it does so for no row. */
    bool (*finish_affine)(const row_t *row, const row_run_t *run);
} row_ops_t;
/* One share of the work. memory: where the rows' shared memory begins. */
void rows_work(const rows_t *rows, const problem_t *p, const worker_t *w, unsigned char *memory,
               const row_ops_t *ops, const void *state);

#endif
