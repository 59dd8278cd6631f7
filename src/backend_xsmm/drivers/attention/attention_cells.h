/* Lists of cells: which columns of the scores, that is which tokens of a cache, rows see, where
 * that is more than one range. A list is a set of columns, one bit for each. Rows that have the
 * same list make a group, whose tokens are read together; tokens that are in no list are not read
 * at all. Caches in tiles are read by whole tiles of 32 tokens, of which some are in a list.
 *
 * Lists are made from a mask in memory, once for each execute of a step, before its products: a
 * column is in the list of a row unless the mask is -inf there. */
#ifndef SINTER_SRC_KERNELS_ATTENTION_CELLS_H
#define SINTER_SRC_KERNELS_ATTENTION_CELLS_H

#include "backend_xsmm/drivers/common/matrices.h"
#include "backend_xsmm/kernel.h"

enum { CELLS_WORD = 64 }; /* columns of a word of a set */

typedef struct cell_list {
    int32_t cells;      /* as many as there are */
    int32_t begin, end; /* the first one, and behind the last one */
    bool terms;         /* the mask has other numbers than 0 for some */
} cell_list_t;

enum { CELLS_ALIGN = 64 }; /* bytes */

/* The lists of one execute, in shared memory. */
typedef struct cells {
    bool on;
    bool by_place; /* parts and tiles have as many cells as there is room for, wherever runs end */
    groups_t mask;
    /* By batch dim and row: elements of the mask, and numbers of lists. */
    int64_t stride[SINTER_MAX_NDIMS], list[SINTER_MAX_NDIMS];
    int64_t lists, columns, words; /* words: of a set */
    features_t features;
    size_t at; /* of the lists in shared memory */
} cells_t;

/* Binds lists to a mask whose dims broadcast to those of the scores, nd of them. Gives why there
 * are none; NULL: there are. */
const char *cells_bind(const bound_t *mask, const int64_t *dims, int nd, features_t features,
                       cells_t *out);
/* Bytes of shared memory, for so many shares. */
size_t cells_bytes(const cells_t *c, int shares);

/* All of a share's part of the work of making lists; shared: the step's shared memory. */
void cells_scan(const cells_t *c, unsigned char *shared, int tid, int nth);

/* The number of the list of the row at idx, [batch.., s]. */
static inline int64_t cells_number(const cells_t *c, const int64_t *idx, int nd)
{
    int64_t i = 0;
    for (int d = 0; d < nd - 1; d++) {
        i += idx[d] * c->list[d];
    }
    return i;
}

/* Where the lists begin: scratch memory has any alignment. */
static inline unsigned char *cells_begin(const cells_t *c, unsigned char *shared)
{
    unsigned char *at = shared + c->at;
    return at + (CELLS_ALIGN - (uintptr_t)at % CELLS_ALIGN) % CELLS_ALIGN;
}

static inline cell_list_t *cells_list(const cells_t *c, unsigned char *shared, int64_t i)
{
    return (cell_list_t *)(void *)cells_begin(c, shared) + i;
}

/* The columns of list i; behind all of these, sets of shares have the numbers from c->lists on. */
static inline uint64_t *cells_set(const cells_t *c, unsigned char *shared, int64_t i)
{
    const size_t lists = scratch_round((size_t)c->lists * sizeof(cell_list_t));
    return (uint64_t *)(void *)(cells_begin(c, shared) + lists) + i * c->words;
}

bool cells_equal(const cells_t *c, unsigned char *shared, int64_t i, int64_t k);

/* How many of the columns begin..end-1 are in one of two sets; in_tiles: or lie in a tile with one
 * that is. */
int64_t cells_count(const uint64_t *x, const uint64_t *y, int64_t begin, int64_t end,
                    bool in_tiles);
/* Puts those columns of a set into another one. */
void cells_join(uint64_t *to, const uint64_t *set, int64_t begin, int64_t end);
/* The bits of 32 columns from `column` on, a multiple of 32. */
static inline uint32_t cells_of_tile(const uint64_t *set, int64_t column)
{
    return (uint32_t)(set[column / CELLS_WORD] >> column % CELLS_WORD);
}

/* A walk over the columns of a set from `next` on and before `end`. */
typedef struct cell_walk {
    const uint64_t *set;
    int64_t next, end;
    bool by_place; /* as of the lists */
} cell_walk_t;

/* The next cells of a walk, at most so many; gives their number, 0 at the end. *step: from each
 * one to the next; 0: they are not evenly spaced. */
int cells_next(cell_walk_t *w, int most, int32_t *cell, int64_t *step);
/* The same by whole tiles of 32 columns that are a multiple of 32 and have some cells, as many as
 * follow each other before a multiple of `most` columns. Gives their number of columns, the last
 * of them before the end of the walk, and *column, the first one. */
int cells_next_tiles(cell_walk_t *w, int most, int64_t *column);

/* The column of cell number n, from 0 on, of those of a set in columns begin..end-1; `end`: there
 * are not so many. */
int64_t cells_place(const uint64_t *set, int64_t begin, int64_t end, int64_t n);

/* The mask at n cells of the row at idx. raw: memory for as many of its elements. */
void cells_terms(const cells_t *c, const int64_t *idx, int nd, const int32_t *cell, int n,
                 int64_t step, void *raw, float *to);

/* The tokens `cell` of a matrix, whose rows are tokens, as one of n rows: where they lie, if they
 * are evenly spaced. */
matrix_t cells_spaced(const matrix_t *m, int32_t first, int64_t step);
/* The same for scales and zero points alone. */
matrix_t cells_spaced_coefs(const matrix_t *m, int32_t first, int64_t step);
/* And gathered in `buffer`. head: the columns of m; bytes: of a token in the buffer. */
matrix_t cells_gathered(const matrix_t *m, int64_t head, const int32_t *cell, int n,
                        unsigned char *buffer);
/* The same of scales and zero points alone. */
matrix_t cells_with_coefs(const matrix_t *m, int64_t head, const int32_t *cell, int n,
                          unsigned char *buffer);
/* Scales, or zero points, of a token that is gathered have room for so many bytes; and what a token
 * needs at most besides its codes. */
enum { CELL_COEFS = 64, CELL_BYTES_BESIDES = 2 * CELL_COEFS + 1 };
/* Why tokens of a matrix cannot be gathered; NULL: they can. */
const char *cells_refuse_tokens(const matrices_t *op, bool is_v, int64_t tokens, int64_t head);

#endif
