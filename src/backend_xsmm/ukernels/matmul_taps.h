/* Convolution in integers: the micro-kernels for one instruction set.
 *
 * The codes of an image become words less their zero points, or unsigned bytes, once; a padded
 * pixel is zeros, or the byte of the zero point. A product reads them where they lie: K is cut into
 * pieces, each the channels of one tap, and each row of A has an address for each piece.
 *
 *   words  c = scale_a * scale_b * (sum of a w)                    a, w less their zero points
 *   bytes  c = scale_a * scale_b * (sum of a' w  -  o * sum of w)  a' - o = a less its zero point
 *
 * Elements are processed by dwords: two words, or four bytes. What a piece lacks of its last dword
 * is zeros in B, and may be anything in A. */
#ifndef SINTER_SRC_UKERNELS_MATMUL_TAPS_H
#define SINTER_SRC_UKERNELS_MATMUL_TAPS_H

#include <stdbool.h>
#include <stdint.h>

enum {
    TAPS_DWORDS = 192, /* most dwords of a row that are processed together, */
    TAPS_PIECES = 32,  /* and most pieces */
    TAPS_ROWS = 64,    /* most rows of a call */
    TAPS_GRAIN = 12,   /* rows up to a multiple of this have addresses, and memory in C */
    TAPS_CODES = 64    /* most columns that are packed together */
};

/* Rows of K by columns of codes of one byte, which are contiguous along the columns. */
typedef struct taps_codes {
    const unsigned char *data;
    int64_t stride; /* bytes from row to row */
    int rows, columns;
    uint8_t flip;      /* w = (code ^ flip) as a signed byte */
    const int32_t *zp; /* of words: by column, less from w; as many as are packed together */
} taps_codes_t;

typedef struct taps_product {
    int rows, columns, pieces;
    bool words;
    const uint8_t *const *a; /* [piece][row], pieces TAPS_ROWS + TAPS_GRAIN apart */
    const int *dwords;       /* of each piece */
    const int8_t *b;         /* [strip][dword][column of the strip][4] */
    int64_t apart;           /* bytes from strip to strip */
    const int32_t *sum;      /* bytes: of w, by column */
    int32_t times;           /* what these are multiplied with to be what sums start from */
    float scale_a;
    const float *scale; /* by column */
    bool add;           /* to c */
    float *c;           /* [row][ldc] */
    int64_t ldc;
} taps_product_t;

/* Codes of results: to[i] = saturate(round(f(x[i] + bias[i]) / scale) + zp); 0 for NaN. */
typedef struct taps_codes_of {
    const float *bias; /* NULL: none */
    bool relu;         /* f; else nothing */
    bool is_signed;
    float scale, zp;
} taps_codes_of_t;

typedef struct taps_table {
    int strip, codes; /* columns of a strip, and those that are packed together: two strips */
    /* n codes as words (code ^ flip) - zp, or as bytes code ^ flip. */
    void (*encode)(bool words, const unsigned char *code, int64_t n, uint8_t flip, int32_t zp,
                   uint8_t *to);
    /* Two strips of B, `apart` bytes apart; of bytes, the sums of w are added to `sum`. */
    void (*pack)(bool words, const taps_codes_t *codes, int8_t *to, int64_t apart, int32_t *sum);
    void (*product)(const taps_product_t *p);
    /* n results; up to a multiple of TAPS_CODES may be read. */
    void (*store)(const taps_codes_of_t *how, const float *x, int n, unsigned char *to);
} taps_table_t;

/* NULL: this ISA has none. */
const taps_table_t *taps_table(features_t features);

#endif
