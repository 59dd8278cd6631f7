/* An operand of a step bound to a frame: one matrix for each batch index. */
#ifndef SINTER_SRC_MATRICES_H
#define SINTER_SRC_MATRICES_H

#include "backend_xsmm/plan.h"
#include "numeric/groups.h"

/* What a matrix is made of, in the order of matrix_t. */
enum { IN_CODES, IN_HIGH, IN_SCALE, IN_ZP, MATRIX_PARTS };

typedef struct matrices {
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS]; /* batch dims, then rows, then columns, trans applied */
    axis_t axis[SINTER_MAX_NDIMS][MATRIX_PARTS];
    matrix_t base; /* at batch index 0 */
} matrices_t;

/* All but the rows and columns of base, for operands of any number of dims. */
sinter_status_t operand_bind(const operand_t *op, const frame_t *frame, matrices_t *out);

/* trans: rows and columns are swapped. sinter_invalid_shape with a message if groups do not
 * divide dims. */
sinter_status_t matrices_bind(const operand_t *op, bool trans, const frame_t *frame,
                              matrices_t *out);

/* A matrix with one row (or one column) is read as if it had as many equal ones as one likes. */
void matrices_repeat(matrices_t *op, bool rows);

/* The matrix at batch index idx[], in the broadcast batch space of nb dims: aligned to the right,
 * and dims of size 1 broadcast. */
matrix_t matrix_at(const matrices_t *op, const int64_t *idx, int nb);

/* Whether every row of codes (or every column), in every matrix, begins with a whole byte. */
bool matrices_on_bytes(const matrices_t *op, bool rows);

#endif
