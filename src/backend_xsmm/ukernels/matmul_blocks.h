/* Matmul of many rows in integers. Products of codes with activations of 8 or 16 bits are exact,
 * and so are their sums over a block of K, inside which no scale and no zero point changes. Where A
 * holds floats, the fpmath mode must allow this; where A holds codes, nothing is lost in any mode.
 *
 * Each row of floats is quantised block by block, by the largest element of the block, to one or
 * two signed bytes (limbs): x = scale * (256 * high + low), or x = scale * high. The bytes are
 * stored with 128 added, because one factor of a VNNI product must not be negative. The bytes w of
 * B are signed. With z = w - (the code's value in units of its scale):
 *
 *   c += scale_a * scale_b * (sum over the block of (a + 128) w  -  128 * sum of w  -  z * sum
 *   of a)
 *
 * The second term depends on B alone, so the sums start from it.
 *
 * Codes of A become bytes a' of value scale_a * (a' - o), where o is the zero point plus what
 * made the byte unsigned. Where all of A has the same o, the sums start from -o * (sum of w);
 * otherwise o * (sum of w) is subtracted from the sums of each row at their end. */
#ifndef SINTER_SRC_UKERNELS_MATMUL_BLOCKS_H
#define SINTER_SRC_UKERNELS_MATMUL_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    BLOCKS_K = 256,    /* most elements of K worked off together */
    BLOCKS_STRIP = 64, /* columns of B */
    BLOCKS_LEAST = 16, /* elements of a block, but for the last one, */
    BLOCKS_LONGEST = 128,
    BLOCKS_MOST = BLOCKS_K / BLOCKS_LEAST
};

/* Rows of A over at most BLOCKS_K elements. */
typedef struct blocks_a {
    uint8_t *byte; /* [row][high, low][BLOCKS_K] */
    float *scale;  /* [row][BLOCKS_MOST] */
    int32_t *sum;  /* [row][BLOCKS_MOST] */
    float *offset; /* [row][BLOCKS_MOST]: o of codes; NULL: 128 */
} blocks_a_t;

/* A strip of B over as many. */
typedef struct blocks_b {
    int8_t *byte;   /* [k / 4][column][4] */
    int32_t *start; /* [block][column]: what sums start from, or the sum of w */
    float *scale;   /* [block][column] */
    int32_t *zp;    /* [block][column]: z */
    bool shifted;   /* there is a z */
    bool own;       /* rows of A have each their o */
} blocks_b_t;

/* Codes of 4 bits in columns that are contiguous along K; n, block: multiples of 8. */
typedef struct blocks_codes {
    const unsigned char *data; /* of the first column */
    int64_t stride;            /* bytes from column to column */
    int columns, n, block;     /* elements of a column and of a block of it */
    const int8_t *table;       /* by code */
    const float *zp;           /* [block][column] */
    int32_t times;             /* start = times * (sum of w) */
} blocks_codes_t;

/* A product of n elements of K, in blocks. */
typedef struct blocks_product {
    int rows, n, block, limbs;
    const blocks_a_t *a;
    const blocks_b_t *b;
    float *c; /* [row][ldc] */
    int64_t ldc;
} blocks_product_t;

typedef struct blocks_table {
    /* Quantises n elements of each of `rows` rows, which begin ldx floats apart. False: some are
     * NaN or infinite, or too small. */
    bool (*quantise)(const float *x, int64_t ldx, int rows, int n, int block, int limbs,
                     const blocks_a_t *to);
    /* n codes of each of `rows` rows: a' = code * by + bias. The caller has set scale and offset of
     * `to`. */
    void (*encode)(const float *x, int64_t ldx, int rows, int n, int block, float by, float bias,
                   const blocks_a_t *to);
    /* byte and start = times * (sum of w) of one block, from rows of BLOCKS_STRIP values: w =
     * value * by - offset, 0 up to a multiple of 4 rows. */
    void (*pack)(const float *x, int n, float by, float offset, int32_t times, int8_t *byte,
                 int32_t *start);
    /* The same of codes: w = table[code] - zp; start is [block][column]. */
    void (*pack_codes)(const blocks_codes_t *codes, int8_t *byte, int32_t *start);
    /* c[row][column] += the products. */
    void (*product)(const blocks_product_t *p);
} blocks_table_t;

extern const blocks_table_t blocks_table_avx512_vnni;

#endif
