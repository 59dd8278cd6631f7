/* The space of a DynamicQuantize step, cut into units of work.
 *
 * A unit is a whole number of groups: `rows` rows of consecutive columns, each row being `tile`
 * groups (fewer at the end) of `size` columns.
 *
 *   groups of 32 along the last dim         one row, groups side by side
 *   groups of 32 along another dim          32 rows, every column a group
 *   tiles of 4 x 4                          4 rows, groups of 4 columns side by side
 *   one scale for a long row                one row, one group, read in pieces */
#ifndef SINTER_SRC_KERNELS_DYNQUANT_H
#define SINTER_SRC_KERNELS_DYNQUANT_H

#include "backend_xsmm/kernel.h"

/* Columns of a unit, or of a piece of one group that is longer. */
enum { QUANT_COLUMNS = 2048 };

/* Elements from one index to the next in each tensor. */
typedef struct quant_axis {
    int64_t n, in, out, scale, zp, high;
} quant_axis_t;

typedef struct quant_space {
    bound_t in, out, scale, zp, high; /* high: split codes, whose low bits are in out */
    bool has_zp, split;
    quant_axis_t column; /* of a group */
    quant_axis_t group;  /* of a row of a unit; n: of the whole row */
    quant_axis_t row[SINTER_MAX_NDIMS];
    int64_t row_n[SINTER_MAX_NDIMS]; /* row[].n */
    quant_axis_t unit[SINTER_MAX_NDIMS +
                      1]; /* where units lie; the last axis goes over the tiles of a row */
    int n_row, n_unit;
    int64_t rows, tile, pieces; /* of a unit; pieces: of a row */
    /* Threads share items: boxes of units, cut so that no two touch one byte of a packed output. */
    int64_t item[SINTER_MAX_NDIMS + 1], n_items;
    bool
        /* units too few for the threads or too tall for a cache: all threads on each, on
         * extremes, then on elements */
        by_pieces;
    bool tall;   /* units outgrow the second-level cache: the second walk fetches them again */
    bool stream; /* the output is too large to be kept in a cache */
} quant_space_t;

sinter_status_t quant_space_bind(const dynquant_params_t *p, const frame_t *frame,
                                 quant_space_t *out);

static inline int64_t quant_columns(const quant_space_t *s)
{
    return s->pieces > 1 ? QUANT_COLUMNS : s->tile * s->column.n;
}
static inline int64_t quant_units(const quant_space_t *s)
{
    int64_t n = 1;
    for (int a = 0; a < s->n_unit; a++) {
        n *= s->unit[a].n;
    }
    return n;
}

#endif
