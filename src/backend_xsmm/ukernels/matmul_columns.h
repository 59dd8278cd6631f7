/* Matmul with few rows where weights lie one after the other along N: lanes are columns. A thread
 * owns a range of columns and walks K in steps of a few rows of B, each of them a sequential
 * stream:
 *
 *   for each step of K:  for each chunk of the columns:  acc[chunk] += sum over the rows of the
 *   step of  a * ((code - zp) * scale)
 *
 * A chunk is one vector register of bytes. It is decoded into vectors of floats in whatever
 * order of columns is cheapest, in which sums stay until they are complete. Weights are the
 * floats that dequantising gives; where a step has one scale for each column, sums over the step
 * are scaled instead. (Where A or the scales could leave the range of floats by it, the driver does
 * not come here.) */
#ifndef SINTER_SRC_UKERNELS_MATMUL_COLUMNS_H
#define SINTER_SRC_UKERNELS_MATMUL_COLUMNS_H

#include <sinter/sinter_types.h>

#include "backend_xsmm/ukernels/few_rows.h"
#include "base/features.h"

enum {
    COLUMNS_MOST = 16,   /* rows of A */
    COLUMNS_GRAIN = 16,  /* rows of B that are swept at a time, at most */
    COLUMNS_AHEAD = 768, /* bytes of each of these that are prefetched: memory is that far away */
    /* Sums of a range of columns for all rows of A: they stay in the nearest cache. */
    COLUMNS_SUMS = 8192,
    /* The least group along K whose coefficients are spread over columns once for all its rows. */
    COLUMNS_GROUP = 16
};

/* Some rows of B over a range of columns. */
typedef struct columns_sweep {
    code_rows_t codes; /* of their scales and zero points `at` alone where all rows have the same */
    int chunks;
    int64_t last; /* byte of a row where the last chunk begins: it may overlap the one before */
    int distance; /* chunks that are prefetched ahead of their use, at most all of them; */
    int64_t next; /* bytes from a row to the one that those of the next step follow in */
} columns_sweep_t;

/* acc[chunk][vector][row][lane] += for 1, 2 or 4 rows of A; a: [row of B][row]. */
typedef void (*columns_run_t)(const columns_sweep_t *w, const float *a, float *acc);

/* One data type of weights. */
typedef struct columns_floats {
    code_layout_t layout;
    /* Where groups along K are short, groups along N are multiples of this many columns; 0: there
     * are no coefficients. */
    int unit;
    /* Of each vector, to be added to zero points by column, which there must be; NULL: none. */
    const float *bias;
    /* x of the columns of a chunk, to[vector][lane] = x + bias of the vector. False: some are
     * not finite. */
    bool (*arrange)(const float *x, const float *bias, float *to);
    columns_run_t run[APPLIED_KINDS][3]; /* NULL: no such coefficients */
} columns_floats_t;

/* By data type; NULL: this ISA has no decoder for it. */
const columns_floats_t *columns_floats(features_t features, sinter_data_type_t type);

#endif
