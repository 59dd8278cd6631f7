/* Lists of cells: which columns of the scores, that is which tokens of a cache, rows see, where
 * that is more than one range. A list is made of runs, in the order of columns. Rows that have the
 * same list make a group, whose tokens are read together; tokens that are in no list are not read
 * at all.
 *
 * Lists are made from a mask in memory, once for each execute of a step, before its products: a
 * column is in the list of a row unless the mask is -inf there. */
#ifndef SINTER_SRC_KERNELS_ATTENTION_CELLS_H
#define SINTER_SRC_KERNELS_ATTENTION_CELLS_H

#include "backend_xsmm/drivers/common/matrices.h"
#include "backend_xsmm/kernel.h"

/* Columns begin, begin + step .. of a list, n of them. */
typedef struct cell_run {
    int32_t begin, step, n;
} cell_run_t;

typedef struct cell_list {
    int32_t runs;
    int32_t cells;      /* at least as many as there are */
    int32_t begin, end; /* the first one, and behind the last one */
    bool terms;         /* the mask has other numbers than 0 for some */
    /* There was no room for more runs: columns of the last one that the mask makes -inf are not in
     * the list. */
    bool loose;
} cell_list_t;

enum { CELLS_ALIGN = 64 }; /* bytes */

/* The lists of one execute, in shared memory. */
typedef struct cells {
    bool on;
    groups_t mask;
    /* By batch dim and row: elements of the mask, and numbers of lists. */
    int64_t stride[SINTER_MAX_NDIMS], list[SINTER_MAX_NDIMS];
    int64_t lists, columns, most_runs;
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

static inline cell_run_t *cells_runs(const cells_t *c, unsigned char *shared, int64_t i)
{
    const size_t lists = scratch_round((size_t)c->lists * sizeof(cell_list_t));
    return (cell_run_t *)(void *)(cells_begin(c, shared) + lists) + i * c->most_runs;
}

/* A share's set of columns, one bit for each. */
static inline uint64_t *cells_set(const cells_t *c, unsigned char *shared, int share)
{
    const size_t runs = scratch_round((size_t)(c->lists * c->most_runs) * sizeof(cell_run_t)),
                 set = scratch_round((size_t)c->columns / 8 + 8);
    return (uint64_t *)(void *)((unsigned char *)cells_runs(c, shared, 0) + runs +
                                (size_t)share * set);
}

bool cells_equal(const cells_t *c, unsigned char *shared, int64_t i, int64_t k);
/* Puts the cells of a list in columns begin..end-1 into a set; and how many there are. */
void cells_add(const cells_t *c, unsigned char *shared, int64_t i, int64_t begin, int64_t end,
               uint64_t *set);
int64_t cells_count(const cells_t *c, unsigned char *shared, int64_t i, int64_t begin, int64_t end);
/* How many of them are in a set. */
int64_t cells_common(const cells_t *c, unsigned char *shared, int64_t i, int64_t begin, int64_t end,
                     const uint64_t *set);

/* A walk over the columns of a list, or of a set, from `next` on and before `end`. */
typedef struct cell_walk {
    const cells_t *c;
    const cell_list_t *list;
    const cell_run_t *runs;
    const unsigned char *mask; /* of the list: its row of the mask */
    const uint64_t *set;       /* NULL: of a list */
    int64_t next, end;
    int run;    /* the list's next run, */
    int32_t at; /* and its next cell */
} cell_walk_t;

cell_walk_t cells_walk(const cells_t *c, unsigned char *shared, const int64_t *idx, int nd,
                       int64_t begin, int64_t end);
cell_walk_t cells_walk_set(const cells_t *c, const uint64_t *set, int64_t begin, int64_t end);
/* The next cells of a walk, at most so many; gives their number, 0 at the end. *step: from each
 * one to the next; 0: they are not evenly spaced. */
int cells_next(cell_walk_t *w, int most, int32_t *cell, int64_t *step);

/* The mask at n cells of the row at idx. raw: memory for as many of its elements. */
void cells_terms(const cells_t *c, const int64_t *idx, int nd, const int32_t *cell, int n,
                 int64_t step, void *raw, float *to);

/* The tokens `cell` of a matrix, whose rows are tokens, as one of n rows: where they lie, if they
 * are evenly spaced. */
matrix_t cells_spaced(const matrix_t *m, int32_t first, int64_t step);
/* And gathered in `buffer`. head: the columns of m; bytes: of a token in the buffer. */
matrix_t cells_gathered(const matrix_t *m, int64_t head, const int32_t *cell, int n,
                        unsigned char *buffer);
/* Scales, or zero points, of a token that is gathered have room for so many bytes; and what a token
 * needs at most besides its codes. */
enum { CELL_COEFS = 64, CELL_BYTES_BESIDES = 2 * CELL_COEFS + 1 };
/* Why tokens of a matrix cannot be gathered; NULL: they can. */
const char *cells_refuse_tokens(const matrices_t *op, bool is_v, int64_t tokens, int64_t head);

#endif
