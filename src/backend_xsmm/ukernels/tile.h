/* Tiles of a matrix operand as f32: decoding, dequantising, transposing, packing. The one way
 * from compressed memory to arithmetic. */
#ifndef SINTER_SRC_TILE_H
#define SINTER_SRC_TILE_H

#include "numeric/groups.h"

/* C[m][n] = A[m][k] B[k][n], or C += that if add; row-major; m, n, k >= 0. */
typedef struct gemm {
    int m, n, k;
    const float *a;
    int64_t lda;
    const float *b;
    int64_t ldb;
    float *c;
    int64_t ldc;
    bool add;
} gemm_t;

/* to[r][c] = sum over taps i of x[i][r * apart + c] * w[i][c], added in the order of taps; where
 * add, to what `to` holds. Rows of `to` are ld apart. */
typedef struct tile_taps {
    int n, results, channels;
    const float *const *x, *const *w;
    int64_t apart, ld;
    float *to;
    bool add;
} tile_taps_t;

/* A transposition of elements of 1, 2 or 4 bytes: `lines` lines, a multiple of
 * TILE_TRANSPOSE_LINES, of a multiple of TILE_TRANSPOSE_ELEMENTS elements. Distances are in
 * elements. */
enum { TILE_TRANSPOSE_LINES = 32, TILE_TRANSPOSE_ELEMENTS = 16 };
typedef struct tile_transpose {
    int bytes, elements, lines;
    int64_t lds, ldd;
} tile_transpose_t;

/* Functions for one ISA. They touch nothing beyond the operands' elements, with any alignment. */
typedef struct tile_table {
    /* dst[r * ld + c] = value(at.row + r, at.column + c) for all rows and columns of `at`; the
     * columns behind these up to pad_columns, and the rows up to pad_rows, are set to zero. */
    void (*load)(const matrix_t *m, rect_t at, float *dst, int64_t ld, int pad_rows,
                 int pad_columns);
    /* For where libxsmm has no kernel. */
    void (*gemm)(const gemm_t *product);
    /* f32 to bf16, nearest even: rows as they are, or pairs of rows interleaved, dst[(r / 2) *
     * ldd * 2 + c * 2 + r % 2] (rows even), as XS_BF16F32 wants A and B. */
    void (*bf16_rows)(const float *src, int64_t ld, int rows, int cols, uint16_t *dst, int64_t ldd);
    void (*bf16_pairs)(const float *src, int64_t ld, int rows, int cols, uint16_t *dst,
                       int64_t ldd);
    /* dst[c * ldd + r] = src[r * lds + c]. */
    void (*transpose)(const float *src, int64_t lds, int rows, int cols, float *dst, int64_t ldd);
    /* dst[e * ldd + l] = src[l * lds + e] */
    void (*transpose_bytes)(const tile_transpose_t *how, const unsigned char *src,
                            unsigned char *dst);
    /* Filters of a depthwise convolution. */
    void (*add_taps)(const tile_taps_t *taps);
} tile_table_t;
/* The best table for a set of features. */
const tile_table_t *tile_table(features_t features);

#endif
