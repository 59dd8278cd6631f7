/* Matrices of codes whose elements share scales and zero points by groups.
 *
 *   value(r, c) = (code(r, c) - zp(r / group rows, c / group columns)) * scale(likewise)
 *
 * Codes, scales and zero points are all described in the same way, by groups_t: codes are groups
 * of a single element. Whoever needs to know where a scale lies or how many elements share it
 * reads it here; nobody else keeps strides or sizes of groups. */
#ifndef SINTER_SRC_GROUPS_H
#define SINTER_SRC_GROUPS_H

#include "numeric/dtype.h"

/* Along one dim of a matrix: data elements from the value of one group to that of the next (0:
 * all groups have the same value), and matrix elements in a group (at least 1). */
typedef struct axis {
    int64_t stride, group;
} axis_t;

/* One value for each group of rows and columns of a matrix. */
typedef struct groups {
    const unsigned char *data;  /* NULL until tensors are bound */
    const dtype_traits_t *type; /* NULL: there are no such values */
    sinter_data_type_t dtype;
    int64_t first; /* the data element of the group that element (0, 0) is in */
    axis_t row, column;
} groups_t;

/* A matrix at one batch index. */
typedef struct matrix {
    groups_t codes;
    /* Split codes, which are of type `split`: codes has the low bits of each and this the high
     * ones. high.type is NULL where codes has all bits. */
    groups_t high;
    sinter_data_type_t split;
    groups_t scale, zp;
} matrix_t;

/* Some rows and columns of a matrix. */
typedef struct rect {
    int64_t row;
    int rows;
    int64_t column;
    int columns;
} rect_t;

/* The data element that holds the value at (row, column). */
static inline int64_t groups_at(const groups_t *g, int64_t row, int64_t column)
{
    return g->first + row / g->row.group * g->row.stride +
           column / g->column.group * g->column.stride;
}

/* The same of codes, which are groups of a single element: without the divisions. */
static inline int64_t codes_at(const groups_t *codes, int64_t row, int64_t column)
{
    return codes->first + row * codes->row.stride + column * codes->column.stride;
}

/* The byte that a data element begins in. */
static inline const unsigned char *groups_byte(const groups_t *g, int64_t element)
{
    return g->data + element * g->type->bits / 8;
}

/* How many values there are along an axis of n elements. */
static inline int64_t axis_groups(const axis_t *axis, int64_t n)
{
    return axis->stride == 0 || n == 0 ? 1 : n / axis->group;
}

/* Whether the value is the same for all n elements along an axis; groups that are not there are. */
static inline bool groups_are_one(const groups_t *g, const axis_t *axis, int64_t n)
{
    return g->type == NULL || axis->stride == 0 || axis->group >= n;
}

static inline groups_t groups_transposed(const groups_t *g)
{
    groups_t t = *g;
    t.row = g->column;
    t.column = g->row;
    return t;
}

static inline matrix_t matrix_transposed(const matrix_t *m)
{
    return (matrix_t){.codes = groups_transposed(&m->codes),
                      .high = groups_transposed(&m->high),
                      .split = m->split,
                      .scale = groups_transposed(&m->scale),
                      .zp = groups_transposed(&m->zp)};
}

/* The matrix that has one element for each group: its row i is the i-th group of rows. */
static inline matrix_t matrix_of_groups(const groups_t *g)
{
    matrix_t m = {.codes = *g};
    m.codes.row.group = m.codes.column.group = 1;
    return m;
}

/* The codes of a matrix as they are, without scales and zero points. */
static inline matrix_t matrix_of_codes(const matrix_t *m)
{
    return (matrix_t){.codes = m->codes, .high = m->high, .split = m->split};
}

/* to[i] = data element first + i * stride of g, for i < n. */
void groups_load(const groups_t *g, features_t features, int64_t first, int64_t stride, int64_t n,
                 float *to);

#endif
