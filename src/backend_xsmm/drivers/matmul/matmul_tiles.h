/* What the kernels share that multiply few rows of A with weights in tiles. */
#ifndef SINTER_SRC_KERNELS_MATMUL_TILES_H
#define SINTER_SRC_KERNELS_MATMUL_TILES_H

#include "backend_xsmm/drivers/matmul/matmul.h"

typedef struct tiles_config {
    matmul_config_t panel; /* first: see matmul.h */
    integers_t kind;       /* NO_INTEGERS: products are of floats */
    int limbs;             /* of integers */
} tiles_config_t;

/* The buffers of one share: A in the form that the micro-kernels want. */
typedef struct tiles_buffers {
    limb_rows_t ints;
    float *x, *sums; /* floats, [tile][row]..., and the sums of both halves of each tile */
} tiles_buffers_t;

typedef struct tiles_task {
    matmul_task_t t; /* of the panel */
    const tiles_config_t *c;
    const matmul_state_t *st;
    tiles_buffers_t buf;
} tiles_task_t;

/* Why products cannot read B from tiles, or, if they are to be of integers, cannot be that. */
const char *tiles_refuse(const kernel_t *self, const problem_t *p, bool integers);
/* For up to TILES_ROWS rows at once. */
void tiles_configure(const kernel_t *self, const problem_t *p, tiles_config_t *c);
/* The buffers of `rows` rows with K elements. Where products are of integers, there is room for one
 * row of floats. Carves them from memory at base (NULL: only counts); returns the bytes. */
size_t tiles_buffers(const tiles_config_t *c, int64_t K, int rows, unsigned char *base,
                     tiles_buffers_t *out);
/* Rows of A that go to several experts become integers once, if there is room for all of them. */
void tiles_reserve_rows(const tiles_config_t *c, matmul_state_t *st, choice_t *choice);
/* Makes a share of them. */
void tiles_make_rows(tiles_task_t *w, int tid, int nth);
/* Where shared memory has a row of A as integers, and whether it is for integers. */
limb_rows_t tiles_row_of_a(const tiles_task_t *w, int64_t row, bool **usable);
/* The task's rows of A into the task's buffers. False: some rows are not for these products. */
bool tiles_load_rows(tiles_task_t *w);
/* The product of the task's rows and its panel. False: A must be loaded again, as single rows were
 * in its place. */
bool tiles_run_panel(tiles_task_t *w, bool usable);

#endif
