/* What tile_load is built from on one ISA. Only tile*.c include this. */
#ifndef SINTER_SRC_TILE_ISA_H
#define SINTER_SRC_TILE_ISA_H

#include "backend_xsmm/ukernels/tile.h"

/* Elements decoded at a time along a line; lines transposed at a time; from which group size on
 * coefficients are not spread over elements. */
enum { TILE_LINE = 256, TILE_LANES = 16, TILE_WIDE_GROUP = 16 };

typedef struct tile_isa {
    features_t needs; /* picks the conversions */
    /* x = (x - zp) * scale; zp NULL: none. */
    void (*dequant)(float *x, const float *zp, const float *scale, int n);
    /* The same with one zero point and one scale. */
    void (*dequant_group)(float *x, float zp, float scale, int n);
    /* x = x * scale + offset. */
    void (*restore)(float *x, const float *offset, const float *scale, int n);
    void (*restore_group)(float *x, float offset, float scale, int n);
    void (*fill)(float *x, float value, int n);
    /* dst[r * ldd + c] = src[r * lds + c], floats at any address. */
    void (*copy)(const unsigned char *src, int64_t lds, int rows, int cols, float *dst,
                 int64_t ldd);
    /* dst[c * ldd + r] = src[r * lds + c] for r < rows <= TILE_LANES, c < cols. */
    void (*transpose)(const float *src, int64_t lds, int rows, int cols, float *dst, int64_t ldd);
} tile_isa_t;

/* load of tile_table_t. */
void tile_load(const tile_isa_t *isa, const matrix_t *m, rect_t at, float *dst, int64_t ld,
               int pad_rows, int pad_columns);
/* Portable forms, which the SIMD versions use for what does not fill a vector. */
void tile_transpose_c(const float *src, int64_t lds, int rows, int cols, float *dst, int64_t ldd);
void tile_bf16_rows_c(const float *src, int64_t ld, int rows, int cols, uint16_t *dst, int64_t ldd);
void tile_bf16_pairs_c(const float *src, int64_t ld, int rows, int cols, uint16_t *dst,
                       int64_t ldd);

#endif
