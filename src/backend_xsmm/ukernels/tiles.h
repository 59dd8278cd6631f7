/* Rows of activations times a strip of weights that lie in tiles (numeric/tiles.h).
 *
 * A dword of a line belongs to one column, so an element of the activation is the same for a whole
 * vector: a broadcast from memory. Nothing is summed across lanes, and the scales of 16 columns are
 * one load. A thread reads codes in order of addresses. */
#ifndef SINTER_SRC_UKERNELS_TILES_H
#define SINTER_SRC_UKERNELS_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "backend_xsmm/ukernels/codes.h"
#include "numeric/tiles.h"

enum { TILES_ROWS = 16 }; /* most rows at once */

/* How scales or offsets are stored. Integers have scales of their own. The last two, plus n: n bits
 * of each are kept. */
typedef enum tiles_values {
    TILES_F32,
    TILES_F16,
    TILES_BF16,
    TILES_E8M0,
    TILES_S8,
    TILES_U8,
    TILES_KEPT_S8 = 8,
    TILES_KEPT_U8 = 16
} tiles_values_t;

/* A strip: TILES_COLUMNS columns of the weights. */
typedef struct tiles_strip {
    const unsigned char *codes, *scale;
    const unsigned char *zp, *offset; /* NULL: there are none; never both */
    int kept;                         /* of codes of 8 bits, as tiles_kept says; 0: all bits */
    int zero;                         /* what stands for a code of 0 then, else 0 */
    int64_t tiles;                    /* along K */
    int64_t group;                    /* tiles that share a scale, */
    int64_t zp_group;                 /* and those that share a zero point or an offset */
    /* The first and the last 16 elements of a tile have scales, or offsets, of their own. */
    bool halves, offset_halves;
    int zp_bias; /* added to zero points */
    tiles_values_t scale_type, offset_type;
    /* What scales and offsets are multiplied with, and tiles that share it, whole groups of them;
     * NULL: nothing. */
    const unsigned char *scale_scale, *offset_scale;
    int64_t scale_span, offset_span;
    tiles_values_t scale_scale_type, offset_scale_type;
} tiles_strip_t;

/* Rows that there is room for. */
static inline int tiles_rows(int rows)
{
    return rows <= 2 ? rows : rows <= 4 ? 4 : rows <= 8 ? 8 : TILES_ROWS;
}

/* The micro-kernels of one instruction set. Rows as integers are [tile][tiles_rows(rows)], of 32
 * bytes of each limb, a scale, a sum, and the sum of the first half. */
typedef struct tiles_table {
    /* Quantises one tile of K of each row, in rows ldx floats apart; to: of this tile. False: a row
     * has a NaN or an infinity, or its largest element is too small or too large. NULL: there are
     * no products in integers. */
    bool (*quantise)(const float *x, int64_t ldx, int rows, int limbs, const limb_rows_t *to);
    /* out[row * ldo + column] = the product. table: the byte of each code of 4 bits that is no
     * integer. */
    void (*ints)(const tiles_strip_t *b, const codes_type_t *type, const unsigned char *table,
                 const limb_rows_t *a, int rows, int limbs, float *out, int64_t ldo);
    /* The same of floats x, [tile][tiles_rows(rows)][32], in the precision of floats. values: by
     * codes of 4 bits as they lie in tiles; sums: of x, [tile][...]. each: for one row of any
     * magnitude, whose codes are dequantised before they are multiplied. */
    void (*floats)(const tiles_strip_t *b, const codes_type_t *type, const float *values,
                   const float *x, const float *sums, int rows, bool each, float *out, int64_t ldo);
    /* Rows of floats for which this is faster than multiplying what `load` unpacks. */
    int most_rows;
    /* to[k * ld + column]: the values of some tiles of a strip, from tile `first` on, whose first k
     * is 0. NULL: `floats` takes `each` only. */
    void (*load)(const tiles_strip_t *b, const codes_type_t *type, const float *values,
                 int64_t first, int tiles, float *to, int64_t ld);
} tiles_table_t;

/* The best one for a set of features; NULL: there is none. */
const tiles_table_t *tiles_table(features_t features);

#endif
