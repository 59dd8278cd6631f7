/* Matmul with few rows: a weight is read once, straight from its code, and the memory it comes from
 * is what bounds the time.
 *
 * Weights lie one after the other along K: a column of B, called a line here, is a row in memory.
 * Four lines are processed together along the whole of K, in chunks of 64 bytes. A chunk is four
 * quads of 16 bytes; scales and zero points change from chunk to chunk or from quad to quad.
 *
 * In integers, each quad of a row of A becomes q = x / scale (limbs.h), and
 *
 *   c = sum over quads of  scale * scale_b * (sum over the quad of q (u - zp - offset)),   u =
 *   code + offset >= 0
 *
 * In floats, a chunk (of one vector register) is decoded into vectors, in whatever order is
 * cheapest, which A is brought into instead, once:
 *
 *   c = sum over classes of vectors of  scale_b * (sum over the vectors of x (code - zp)) */
#ifndef SINTER_SRC_KERNELS_MATMUL_ROWS_H
#define SINTER_SRC_KERNELS_MATMUL_ROWS_H

#include <sinter/sinter_types.h>

#include "backend_xsmm/ukernels/few_rows.h"
#include "base/features.h"

enum {
    ROWS_MOST = 16, /* rows of A */
    ROWS_LINES = 4
};

/* The products of four lines with 1, 2 or 4 dense rows, [chunk][vector][row][lane]:
 * out[row * ldo + line]. Where there are fewer lines, the last one stands in for the others. */
typedef void (*rows_lines_t)(const code_rows_t *w, const float *q, float *out, int64_t ldo);
enum { ROWS_PLAIN, ROWS_SCALED, ROWS_SHIFTED, ROWS_KINDS };

/* One data type of weights in floats. Reads nothing beyond the elements of a line. */
typedef struct rows_floats {
    code_layout_t layout;
    /* Groups of scales and zero points are multiples of this many elements; 0: there are none. */
    int unit;
    /* Stores the elements of a chunk as `vectors` vectors, `step` floats apart. Returns the bits of
     * the element of largest magnitude, without its sign. */
    int32_t (*place)(const float *x, int vectors, float *to, int64_t step);
    /* By coefficients; whether they are fine; 1, 2 or 4 rows. NULL: no such coefficients. */
    rows_lines_t run[ROWS_KINDS][2][3];
} rows_floats_t;

/* By data type; NULL: this ISA has no decoder for it. */
const rows_floats_t *rows_floats(features_t features, sinter_data_type_t type);

#endif
