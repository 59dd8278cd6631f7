/* Attention with few query rows over caches that lie in tiles (docs/layouts.md), where all products
 * are those of rows with tiles (ukernels/tiles.h):
 *
 *   scores   Q times tiles of K, whose columns are tokens and whose K is the head
 *   results  probabilities times tiles of V, whose columns are elements of the head and whose K is
 *            the tokens. A token of V has a scale for each group of the head: the probabilities are
 *            multiplied with these first, group by group.
 *
 * Scales, zero points and offsets of both have tokens as columns. */
#ifndef SINTER_SRC_KERNELS_ATTENTION_CACHE_H
#define SINTER_SRC_KERNELS_ATTENTION_CACHE_H

#include "backend_xsmm/drivers/attention/attention_cells.h"
#include "backend_xsmm/drivers/common/matrices.h"
#include "backend_xsmm/drivers/common/products.h"
#include "backend_xsmm/drivers/common/tiled.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "numeric/quant_rows.h"

enum {
    CACHE_TOKENS = TILES_BLOCK, /* in a tile of scores, */
    CACHE_TILES = CACHE_TOKENS / TILES_K,
    CACHE_HEAD = 576 /* longest head */
};

/* Scales, zero points or offsets of tokens. */
typedef struct cache_plane {
    tiles_plane_t first;   /* of the first matrix; data NULL: there are none */
    int64_t matrix, block; /* bytes from a matrix, and a block of tokens, to the next one */
    int size;              /* bytes of a value */
} cache_plane_t;

/* K or V of one execute. */
typedef struct cache_side {
    tiled_b_t b;            /* its codes; of K, how its coefficients belong to tiles */
    bool ints;              /* products are of integers */
    int64_t matrix, block;  /* bytes of codes from a matrix, and a block of tokens, to the next */
    int64_t heads;          /* matrices of a block of tokens, which lie side by side */
    int64_t of_matrix;      /* elements of the tensor from a matrix to the next one */
    int head, groups, size; /* elements; groups of coefficients along it, and elements of each */
    bool checks_tiny;       /* scales may be so small that weights lose bits to them */
    bool may_be_odd;        /* codes may be infinite or NaN */
    float unit[TILES_COLUMNS]; /* of codes in integers; 1 in floats */
    bool whole;                /* zero points are integers, */
    bool raises;            /* and those of V become `less` of tiles_strip_t that is whole, with */
    float less[2][TILES_K]; /* tiles_less of codes that are not raised, or of raised ones */
    const tiles_table_t *floats; /* that loads */
    const quant_rows_t *quant;
    const eltwise_table_t *fn;
    cache_plane_t scale, zp;
} cache_side_t;

/* One thread's buffers. */
typedef struct cache_buffers {
    limb_rows_t q, p; /* [tile][row] */
    float *q_floats, *q_sums;
    float *p_floats;
    float *scale, *zp;     /* [strip of tokens][group][token] */
    float *by_group[2];    /* of V, scales and zero points: [group][token] */
    float *add, *part;     /* [row]: what zero points or offsets add; [row][element] */
    unsigned char *ragged; /* a tile without the tokens that must not be read */
    bool *usable;          /* [row]: the query suits the products */
} cache_buffers_t;

/* Tokens that are copied out of tiles, as tiles of their own: codes as a matrix of them lies, and
 * coefficients, [strip of tokens][group][token]. */
typedef struct cache_copy {
    unsigned char *codes, *scale, *zp;
} cache_copy_t;

/* Memory of tiles. */
typedef struct cache_piece {
    const unsigned char *at, *end;
} cache_piece_t;

/* Some tokens of K or V against all query rows. */
typedef struct cache_task {
    const cache_side_t *side;
    const cache_buffers_t *buffers;
    const worker_t *worker;
    matrix_t m; /* of the item */
    int limbs;
    int64_t token; /* the first one: of K a multiple of 16, of V of 32 */
    int tokens, rows;
    const float *x; /* K: the queries; V: a weight for each row and token, */
    int64_t ldx;
    /* V: the first tokens that must not be read. Their weights are 0, as are those behind the last
     * token up to a multiple of 32. */
    int skip;
    /* A bit for each token of the cache: others must not be read, and have weights of 0. NULL: all
     * are seen. */
    const uint64_t *seen;
    bool careful; /* codes of tokens that are not seen may be infinite or NaN, and are cleared */
    const cache_copy_t *copy; /* where the tokens lie, from token 0 on; NULL: in the cache */
    float *out;               /* K: a score for each row and token; V: sums for each row */
    int64_t ldo;
} cache_task_t;

/* Where tokens of K or V go that kernels do not read in tiles: K as [token][head], V and
 * coefficients as [head or group][token of CACHE_TOKENS]. */
typedef struct cache_unpacked {
    unsigned char *codes, *scale, *zp;
} cache_unpacked_t;

/* Of a side that is unpacked: bits of an element, elements of a head, most groups of coefficients.
 * No bits: it is not unpacked. */
typedef struct cache_sizes {
    int bits;
    int64_t head, groups;
} cache_sizes_t;

size_t cache_unpacked(const cache_sizes_t *of, unsigned char *scratch, cache_unpacked_t *out);
/* Makes the strides of a bound operand those of its unpacked tokens. */
void cache_will_unpack(matrices_t *op, bool is_v);
/* Unpacks n tokens from `token` on, which do not reach over the end of a block of tokens, of the
 * matrix m that matrix_at has given. m then has these tokens at their places. Those that are not in
 * the set `seen`, if there is one, become zeros. */
void cache_unpack(features_t features, const matrices_t *op, bool is_v, int64_t token, int n,
                  const uint64_t *seen, const cache_unpacked_t *to, matrix_t *m);

/* Carves room for copies of CACHE_TOKENS tokens of a side; gives the bytes. */
size_t cache_copies(int bits, int64_t head, unsigned char *scratch, cache_copy_t *out);
/* Where the codes of the task's tokens begin and end in tiles; whole blocks of V. */
cache_piece_t cache_piece(const cache_task_t *task, bool is_v);
/* Copies n tokens `cell` of the task's matrix. Meanwhile it prefetches about as much of *next. */
void cache_gather(const cache_task_t *task, bool is_v, const int32_t *cell, int n,
                  const cache_copy_t *to, cache_piece_t *next);
/* Carves buffers for heads of K and V of up to so many elements; gives the bytes. */
size_t cache_buffers(int rows, int64_t head, unsigned char *scratch, cache_buffers_t *out);
/* is_v: tokens are rows of V, and columns of K. */
void cache_bind(features_t features, const matrices_t *op, bool is_v, bool ints, cache_side_t *to);
/* Prefetches what the block of 256 tokens that begins with `token` begins with. */
void cache_fetch(const cache_side_t *side, const matrix_t *m, int64_t token);
/* The queries of an item, task->x, as the products want them. */
void cache_queries(const cache_task_t *task);
void cache_scores(const cache_task_t *task);
/* out += weights times V. */
void cache_accumulate(const cache_task_t *task);

#endif
