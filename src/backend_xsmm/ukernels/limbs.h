/* Activations as integers: the layouts. limbs.inc quantises for all of them.
 *
 * Elements that share a scale are quantised by the largest of them, to one or two signed bytes
 * (limbs):
 *
 *   x = scale * q,  q = high, |q| <= 127, or
 *                   q = 256 * high + low, |q| <= 127 * 256 + 127, low being from -128 to 127
 *
 * There are two layouts, because micro-kernels read activations in two ways:
 *
 *   limbs_t      A row meets a chunk of codes that follow one another along K (codes.h). Vectors of
 *                its bytes are multiplied with vectors of codes, and a lane needs the scale of its
 *                quad. Codes of 4 bits become two vectors, of the even and of the odd ones, and the
 *                bytes of the row lie apart likewise.
 *   limb_rows_t  Rows meet vectors of columns (matmul_blocks.h, tiles.h). Four bytes or two words
 *                of a row are broadcast, so elements keep the order of K, and each block of a row
 *                has one scale. The micro-kernels address rows by constants: `blocks` has the whole
 *                rows one after the other, tiles have the rows of each block of 32 elements.
 *
 * In P V the weights of tokens stand in for activations (codes_weights_t). Those that share a scale
 * belong to one quad of many rows of V, which is one lane of many vectors: codes_axpy.inc finds
 * scales lane by lane, and has only the bytes stored as here. */
#ifndef SINTER_SRC_UKERNELS_LIMBS_H
#define SINTER_SRC_UKERNELS_LIMBS_H

#include <stddef.h>
#include <stdint.h>

/* Rows of activations over some blocks of K. */
typedef struct limb_rows {
    uint8_t *byte[2]; /* high or only limbs, or words; low limbs */
    float *scale;     /* of each block of each row, */
    int32_t *sum;     /* its sum of q, */
    float *offset;    /* and of codes what is subtracted from bytes; NULL: there are none */
    int32_t *first;   /* of tiles: the sum of q of the first half of the block */
} limb_rows_t;

/* The same, some bytes and blocks further on. */
static inline limb_rows_t limb_rows_from(const limb_rows_t *a, int64_t bytes, int64_t blocks)
{
    return (limb_rows_t){{a->byte[0] + bytes, a->byte[1] + bytes},
                         a->scale + blocks,
                         a->sum + blocks,
                         a->offset != NULL ? a->offset + blocks : NULL,
                         a->first != NULL ? a->first + blocks : NULL};
}

#endif
