/* An operand of a step bound to a frame: one matrix for each batch index. */
#ifndef SINTER_SRC_MATRICES_H
#define SINTER_SRC_MATRICES_H

#include "backend_xsmm/drivers/common/box.h"
#include "backend_xsmm/plan.h"
#include "numeric/groups.h"

/* What a matrix is made of, in the order of matrix_t. */
enum { IN_CODES, IN_HIGH, IN_SCALE, IN_ZP, MATRIX_PARTS };

/* Where tokens of K or V lie that come in pages (graph/pages.h). Token t of a batch index is number
 * table[t / page] * cells + t % page of the tokens of each part, as if all of these were one row
 * with the stride of the part's axis of tokens. */
typedef struct pages {
    int64_t page; /* tokens of one; 0: no pages, tokens follow one another in memory */
    const unsigned char *table;       /* data of a value; NULL until tensors are bound */
    bool wide;                        /* s64, else s32 */
    int64_t stride[SINTER_MAX_NDIMS]; /* of the table, by dim of the operand; 0: it has no such */
    int64_t step;                     /* of the table: from one page of a sequence to the next */
    int64_t cells;  /* tokens from one page to the next, the same for all parts of an operand */
    int64_t blocks; /* the number of pages */
    int id_value;   /* plan value of the table, for messages; -1: no pages */
    /* Where each index along dim `by` names its row of the table, a sequence: data of the value
     * that has the names, NULL until tensors are bound. by is -1 where there is only one index. */
    bool named;
    const unsigned char *rows;
    bool rows_wide;
    int64_t name_stride, row_stride; /* of the names; of the table */
    int64_t sequences;
    int by, rows_value; /* rows_value: of the plan, for messages */
} pages_t;

typedef struct matrices {
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS]; /* batch dims, then rows, then columns, trans applied */
    axis_t axis[SINTER_MAX_NDIMS][MATRIX_PARTS];
    matrix_t base; /* at batch index 0; where there are pages, of page 0 */
    pages_t pages; /* of an operand with rows or columns of tokens */
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

/* The sequence that index i along dim `by` names: negative ones count from the end. */
static inline int64_t pages_sequence(const pages_t *p, int64_t i)
{
    const int64_t sequence = load_index(p->rows, i * p->name_stride, p->rows_wide);
    return sequence < 0 ? sequence + p->sequences : sequence;
}

/* The element of the table that has the first page of batch index idx[], as in matrix_at. */
static inline int64_t pages_row(const matrices_t *op, const int64_t *idx, int nb)
{
    const pages_t *p = &op->pages;
    const int own = op->ndims - 2;
    int64_t at = 0, name = 0;
    for (int d = 0; d < own; d++) {
        const int from = nb - own + d;
        const int64_t i = from < 0 || op->dims[d] == 1 ? 0 : idx[from];
        name = d == p->by ? i : name;
        at += i * p->stride[d];
    }
    return p->named ? at + pages_sequence(p, name) * p->row_stride : at;
}

/* The page that an element of the table names: negative ones count from the end. Out of range where
 * the table is wrong. */
static inline int64_t pages_block(const pages_t *p, int64_t at)
{
    const int64_t page = load_index(p->table, at, p->wide);
    return page < 0 ? page + p->blocks : page;
}

/* Whether every row of codes (or every column), in every matrix, begins with a whole byte. */
bool matrices_on_bytes(const matrices_t *op, bool rows);

#endif
