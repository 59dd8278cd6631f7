/* Matmul with few rows: a weight is read once, straight from its code, and the memory it comes from
 * is what bounds the time.
 *
 * Weights lie one after the other along K: a column of B, called a line here, is a row in memory.
 * Four lines are worked off together along the whole of K, in chunks of 64 bytes. A chunk is four
 * quads of 16 bytes; scales and zero points change from chunk to chunk or from quad to quad.
 *
 * In integers, each quad of a row of A becomes `limbs` signed bytes q = x / scale = 256 * high +
 * low, or high, and
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

/* Coefficients of four lines, by units: chunk c has those from (c >> shift) * step on. In
 * integers [unit][line]: 4 for all of a chunk (steps 0, 4), 4 for each half (8) or 4 for each
 * quad (16). In floats [line][ld], 16 more may be read: one for all of a chunk (steps 0, 1), or
 * those that pick[class][lane] names. */
typedef struct rows_coefs {
    const float *at; /* NULL: none */
    int step, shift;
    int64_t ld;
    const int32_t *pick;
} rows_coefs_t;

/* Four lines; those beyond the last one stand on it. */
typedef struct rows_four {
    const unsigned char *line[ROWS_LINES];
    int64_t bytes, n; /* of a line; n: elements */
    int64_t ahead;
    rows_coefs_t scale, zp; /* in integers, zp is s32 and has the offset of codes */
    /* In integers: the type of the codes, and its table of bytes. */
    const struct codes_type *type;
    const unsigned char *table;
    const float *values; /* in floats: of the 16 codes of a 4-bit type */
} rows_four_t;

/* One data type of weights in floats. Reads nothing beyond the elements of a line. */
typedef struct rows_floats {
    int elems; /* of a chunk, which is one vector register of bytes; 0: no such type */
    int vectors,
        /* vectors of floats that a chunk becomes; those whose lanes have coefficients in common
         * are a class */
        classes;
    /* a group of scales or zero points is a multiple of so many elements; 0: there are none */
    int unit;
    int multiple; /* so is K */
    int (*element)(int vector, int lane);
    /* The elements of a chunk as so many vectors, `step` floats apart. Gives the bits of the one
     * of largest magnitude, without its sign. */
    int32_t (*place)(const float *x, int vectors, float *to, int64_t step);
    /* out[row][line] for all lines of w; q: [chunk][vector][row][lane] for each batch of rows,
     * ldq floats for each row. */
    void (*run)(const rows_four_t *w, int rows, const float *q, int64_t ldq, float *out,
                int64_t ldo);
} rows_floats_t;

typedef struct rows_floats_table {
    int lanes, n_ops;
    const rows_floats_t *ops; /* by data type */
} rows_floats_table_t;

/* NULL: this ISA has none. */
const rows_floats_table_t *rows_floats_table(features_t features);
extern const rows_floats_table_t rows_floats_avx2, rows_floats_avx512;

#endif
