/* What the micro-kernels that decode codes straight from memory have in common, for every
 * instruction set.
 *
 * A row of codes is cut into chunks of one vector register of bytes. A chunk decodes into
 * `vectors` vectors of floats, in whatever order of elements is cheapest: the other operand (and
 * the result) is brought into that order instead, once. Vectors whose lanes belong to the same
 * groups make a class, which has one vector of coefficients. */
#ifndef SINTER_SRC_UKERNELS_DECODED_H
#define SINTER_SRC_UKERNELS_DECODED_H

#include <stdbool.h>
#include <stdint.h>

/* How the chunks of one data type are laid out. */
typedef struct code_layout {
    int vectors, classes; /* of a chunk */
    int elems;            /* of a chunk; 0: no such type */
    int multiple;         /* a row has a multiple of this many elements */
    int (*element)(int vector, int lane);
} code_layout_t;

/* Where scales and zero points of rows go that are multiplied with weights and summed. */
typedef enum applied {
    NOWHERE,    /* there are none */
    IN_WEIGHTS, /* weights have the scales, one for each group of a row */
    IN_WEIGHTS_SHIFTED,
    /* Codes are scaled, after zero points have been subtracted: by chunk of a row, or fine. */
    BY_CHUNK,
    BY_LANE,
    /* Coefficients [chunk][vector][lane], the same for all rows. Sums are scaled, without or with
     * zero points, or each code is. */
    IN_SUMS,
    IN_SUMS_SHIFTED,
    BY_ELEMENT,
    APPLIED_KINDS
} applied_t;

/* Scales or zero points as floats. Chunk c of row r has the one at
 *
 *   at[r * ld + (c >> shift) * step]
 *
 * for all of its elements. Fine coefficients change within chunks and have one vector for each
 * class: lane i has pick[c * pick_step + class * lanes + i] from there on. A vector is loaded
 * from there, so that up to 16 floats more may be read. */
typedef struct code_coefs {
    const float *at; /* NULL: there are none */
    int step, shift;
    int64_t ld;
    const int32_t *pick;
    int pick_step;
} code_coefs_t;

#endif
