/* Tiles of a matrix operand as f32: decoding, dequantising, transposing, packing. The one way
 * from compressed memory to arithmetic. */
#ifndef SINTER_SRC_TILE_H
#define SINTER_SRC_TILE_H

#include "backend_xsmm/plan.h"

/* A matrix operand bound at one batch index: element (r, c) is at data element r*rs + c*cs.
 * Scales and zero points likewise with r / scale_gr and c / scale_gc. */
typedef struct tile_src {
    const unsigned char *data, *scale, *zp; /* bases; scale, zp NULL: none */
    const unsigned char *
        /* split codes: data has the low bits of each, this the high ones; NULL: data has all */
        high;
    sinter_data_type_t split; /* the type of split codes */
    const dtype_traits_t *type, *scale_type, *zp_type;
    sinter_data_type_t dtype, scale_dtype,
        zp_dtype; /* of data, scales, zero points: pick the decoders */
    int64_t first, scale_first, zp_first, high_first; /* element offsets of (0, 0) at this batch */
    int64_t rs, cs, scale_rs, scale_cs, zp_rs, zp_cs, high_rs, high_cs;
    int64_t scale_gr, scale_gc, zp_gr, zp_gc; /* group sizes, >= 1 */
} tile_src_t;

/* An operand bound to a frame for all batches. dims: batch dims, then rows, then columns (after
 * trans). */
typedef struct tile_operand {
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS];
    int64_t stride[SINTER_MAX_NDIMS], scale_stride[SINTER_MAX_NDIMS], zp_stride[SINTER_MAX_NDIMS];
    int64_t high_stride[SINTER_MAX_NDIMS];
    int64_t scale_group[SINTER_MAX_NDIMS], zp_group[SINTER_MAX_NDIMS];
    tile_src_t base; /* types, pointers and the row/column strides */
} tile_operand_t;

/* sinter_invalid_shape with a message if groups do not divide dims. */
sinter_status_t tile_bind(const operand_t *op, bool trans, const frame_t *frame,
                          tile_operand_t *out);
/* The matrix at batch index idx[] (in the broadcast batch space of nb dims, right-aligned;
 * size-1 dims broadcast). */
tile_src_t tile_at(const tile_operand_t *op, const int64_t *idx, int nb);

/* The scales or the zero points of src alone, by groups. */
tile_src_t tile_coefs(const tile_src_t *src, bool zps);

/* Functions for one ISA. They touch nothing beyond the operands' elements, with any alignment. */
typedef struct tile_table {
    /* dst[r * ld + c] = value(r0 + r, c0 + c) for r < nr, c < nc; columns nc..pad_nc-1 and rows
     * nr..pad_nr-1 are set to zero. */
    void (*load)(const tile_src_t *src, int64_t r0, int nr, int64_t c0, int nc, float *dst,
                 int64_t ld, int pad_nr, int pad_nc);
    /* C[m][n] = A[m][k] B[k][n], added to C if beta; row-major. For where libxsmm has no kernel:
     * m, n, k >= 0. */
    void (*gemm)(int m, int n, int k, const float *a, int64_t lda, const float *b, int64_t ldb,
                 float *c, int64_t ldc, bool beta);
    /* f32 to bf16, nearest even: rows as they are, or pairs of rows interleaved, dst[(r / 2) *
     * ldd * 2 + c * 2 + r % 2] (rows even), as XS_BF16F32 wants A and B. */
    void (*bf16_rows)(const float *src, int64_t ld, int rows, int cols, uint16_t *dst, int64_t ldd);
    void (*bf16_pairs)(const float *src, int64_t ld, int rows, int cols, uint16_t *dst,
                       int64_t ldd);
    /* dst[c * ldd + r] = src[r * lds + c]. */
    void (*transpose)(const float *src, int64_t lds, int rows, int cols, float *dst, int64_t ldd);
} tile_table_t;
/* isa: the plan's; the best table at or below it that was built for this machine. */
const tile_table_t *tile_table(features_t features);

#endif
