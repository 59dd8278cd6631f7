/* Matrices of codes whose elements share scales and zero points by groups.
 *
 *   value(r, c) = (code(r, c) - zp(r / group rows, c / group columns)) * scale(likewise)
 *
 * or, with offsets in place of zero points, code(r, c) * scale + offset.
 *
 * Codes, scales and zero points are all described in the same way, by groups_t: codes are groups
 * of a single element. Whoever needs to know where a scale lies or how many elements share it
 * reads it here; nobody else keeps strides or sizes of groups. */
#ifndef SINTER_SRC_GROUPS_H
#define SINTER_SRC_GROUPS_H

#include "numeric/dtype.h"
#include "numeric/quant_formula.h"

/* Along one dim of a matrix: data elements from the value of one group to that of the next (0:
 * all groups have the same value), and matrix elements in a group (at least 1). The last group may
 * have fewer. */
typedef struct axis {
    int64_t stride, group;
} axis_t;

/* What lies in tiles (numeric/tiles.h): codes, values for groups of them, codes that are numbers of
 * a table, or codes in blocks along K. The first two plus n, from 1 to 6: n bits of each integer of
 * 8 bits are kept. */
typedef enum tiled {
    NOT_TILED = 0,
    TILED_CODES = 8,
    TILED_NUMBERS = TILED_CODES + 7,
    TILED_VALUES = 16,
    TILED_BLOCKS = 24
} tiled_t;

/* One value for each group of rows and columns of a matrix. */
typedef struct groups {
    const unsigned char *data;  /* NULL until tensors are bound */
    const dtype_traits_t *type; /* NULL: there are no such values */
    sinter_data_type_t dtype;
    int64_t first; /* the data element of the group that element (0, 0) is in */
    axis_t row, column;
    /* Codes that lie in blocks along the axis with stride 1: so many elements, and elements from
     * one block to the next. All functions but codes_of_block know the first block only. 0: none.
     */
    int64_t block, block_stride;
    /* Where it lies in tiles, whose K are the rows, strides are not used but that 0 still says that
     * all groups have one value. */
    tiled_t tiled;
    int64_t strip; /* bytes of a strip of tiles */
    int64_t heads; /* that a block of tokens in tiles has, each as a matrix; 0: there are no such
                      blocks, and matrices have all tokens */
} groups_t;

/* A matrix at one batch index. */
typedef struct matrix {
    groups_t codes;
    /* Split codes: `codes` has the low bits of each code, `high` the high bits, and `split` is the
     * type of the whole. high.type is NULL where the codes are whole. */
    groups_t high;
    sinter_data_type_t split;
    groups_t scale, zp;
    bool offsets; /* zp has offsets, in the groups of the scales */
    /* What scales and offsets are multiplied with; type NULL: nothing. Only of tiles. */
    groups_t scale_scale, zp_scale;
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

/* A matrix that has the codes of block i where they lie. Elements of other blocks are not in it. */
static inline matrix_t codes_of_block(const matrix_t *m, int64_t i)
{
    matrix_t of = *m;
    of.codes.first += i * (m->codes.block_stride - m->codes.block);
    of.codes.block = 0;
    return of;
}

/* The byte that a data element begins in. */
static inline const unsigned char *groups_byte(const groups_t *g, int64_t element)
{
    return g->data + element * g->type->bits / 8;
}

/* The same of an output: those are described as inputs are, by a pointer to data that is only
 * read. */
static inline unsigned char *groups_output(const groups_t *g, int64_t element)
{
    return (unsigned char *)(uintptr_t)groups_byte(g, element);
}

/* How many values there are along an axis of n elements. */
static inline int64_t axis_groups(const axis_t *axis, int64_t n)
{
    return axis->stride == 0 || n == 0 ? 1 : (n - 1) / axis->group + 1;
}

/* Whether one value serves all n elements along an axis, or there are no values. */
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
                      .zp = groups_transposed(&m->zp),
                      .offsets = m->offsets};
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

/* Consecutive elements that become codes with computed scales, in chunks of whole groups. */
struct dtype_blocks {
    const quant_formula_t *formula; /* of any kind but QUANT_STATIC */
    sinter_data_type_t from;        /* the type of the source: f32, f16 or bf16 */
    int64_t size;                   /* elements of a group: 16, 32, 64 or a multiple of 128 */
    const unsigned char *x;
    /* Codes and scales, and zero points of dynamic_asymmetric, from element `first` of each plane
     * on. Those of a chunk fill whole bytes. */
    matrix_t to;
    /* Codes begin a cache line and go past the caches: a fence must follow before other threads
     * may look. */
    bool nontemporal;
    int64_t chunk; /* elements: dtype_chunk, or a half, a quarter ...; at least DTYPE_BLOCK and a
                      group */
    int64_t n;     /* chunks */
};
enum { DTYPE_BLOCK = 128, DTYPE_CHUNK_BYTES = 2048 };

/* Elements of the largest chunk, in whole blocks: DTYPE_CHUNK_BYTES of the source, or one group
 * that is longer than a block. */
static inline int64_t dtype_chunk(int64_t size, sinter_data_type_t from)
{
    return size > DTYPE_BLOCK ? size : DTYPE_CHUNK_BYTES / (from == sinter_f32 ? 4 : 2);
}

/* to[i] = data element first + i * stride of g, for i < n. */
void groups_load(const groups_t *g, features_t features, int64_t first, int64_t stride, int64_t n,
                 float *to);

#endif
