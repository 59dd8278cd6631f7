/* The quantising tail of a step: a DynamicQuantize that computes its scales, run on blocks of
 * results while they are in the caches. Groups are a number of rows and columns of the last two
 * dims; a block holds whole groups, of which the last ones of the data may be shorter. What does
 * not fit is a step of its own (lower_cluster.c). */
#ifndef SINTER_SRC_QUANT_TAIL_H
#define SINTER_SRC_QUANT_TAIL_H

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/drivers/common/quantiser.h"
#include "graph/quant.h"

/* The largest blocks of results that kernels hand to their tail. The kernels take their own limits
 * from here, and the refuse_tail of each kind of step checks groups against them. */
enum {
    TAIL_MATMUL_ROWS = 128,       /* a block has a divisor of these, whole groups, or all rows */
    TAIL_MATMUL_STRIP = 64,       /* panels are multiples of at most this many columns */
    TAIL_MATMUL_COLUMNS = 256,    /* or the next smaller number of whole groups */
    TAIL_ATTENTION_COLUMNS = 512, /* of single rows */
    TAIL_CHAIN_ROWS = 64,
    TAIL_CHAIN_COLUMNS = CHAIN_BLOCK,
    TAIL_ROW_COLUMNS = 1 << 20, /* of steps that have whole rows in memory (rows.h) */
    TAIL_COLUMNS = 512          /* the most of all */
};

typedef struct quant_tail {
    quantiser_t q;
    int rows, cols; /* of a group, along the last two dims; rows 1 if there is one dim */
} quant_tail_t;

/* Binds all but the scale of the tensor, which quant_tail_start reads. */
sinter_status_t quant_tail_bind(const dynquant_params_t *p, const frame_t *frame,
                                features_t features, quant_tail_t *out);
void quant_tail_start(const dynquant_params_t *p, const frame_t *frame, quant_tail_t *t);
/* Whether neighbouring blocks of block_cols columns, or rows of groups, share a byte of an output:
 * only one thread may then store. */
bool quant_tail_shares_bytes(const quant_tail_t *t, int64_t block_cols);

/* Whether dims d and d + 1 are one dim: codes, scales and zero points go on in the next row as they
 * do in a row. quant_tail_merge makes them one. */
bool quant_tail_merges(const quant_tail_t *t, int d);
void quant_tail_merge(quant_tail_t *t, int d);

size_t quant_tail_scratch(void);
/* Codes, scales and zero points of rows <= t->rows rows, ld apart, of cols columns (at most
 * TAIL_COLUMNS) from index idx on, where groups begin. x is overwritten. scratch is 64-byte
 * aligned. */
void quant_tail_run(const quant_tail_t *t, const int64_t *idx, int rows, int cols, float *x,
                    int64_t ld, void *scratch);
/* The same for one group of n columns, however many they are, from index idx on. */
void quant_tail_long_group(const quant_tail_t *t, const int64_t *idx, int64_t n, float *x,
                           void *scratch);

#endif
