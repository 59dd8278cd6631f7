/* One thread at one work item of attention, what tiles (attention_tiles.c), the online softmax
 * (attention_softmax.c) and the passes over them (attention_work.c) share. See attention.h for
 * the algorithm. */
#ifndef SINTER_SRC_KERNELS_ATTENTION_TASK_H
#define SINTER_SRC_KERNELS_ATTENTION_TASK_H

#include <string.h>

#include "backend_xsmm/drivers/attention/attention.h"

/* Rows r0..r0+n-1 of a block. */
typedef struct strip {
    int r0, n;
    span_t columns;
    const attention_jit_t *jit; /* for this height; NULL: own GEMM */
} strip_t;

/* Memory that is prefetched during a piece of K or V: while token `from` + i is read, the `bytes`
 * bytes from at + i * bytes on. at NULL: each row prefetches the rows behind it instead. */
typedef struct next_piece {
    const unsigned char *at;
    int64_t from, bytes;
} next_piece_t;

/* Columns of an item between two boundaries of parts: one part, or the first ones together. */
typedef struct part {
    span_t span;
    bool first; /* the item's first one is among them */
} part_t;

/* What becomes of the sums of a part. */
typedef enum sums_end {
    TO_RESULTS,       /* the item has no other part */
    TO_TOTAL,         /* they are added to those of the parts before it, */
    TOTAL_TO_RESULTS, /* and it is the last one */
    STAY              /* in b.m, b.l and b.acc */
} sums_end_t;

/* One thread at one work item. */
typedef struct task {
    const attention_config_t *c;
    const attention_params_t *p;
    const attention_state_t *st;
    const frame_t *frame;
    const worker_t *worker;
    attention_buffers_t b;
    matrix_t k, v;
    int64_t k_first, v_first; /* codes of the item, where they are unpacked from tiles */
    /* The same where K and V lie in pages: k and v are then some tokens of these, by the entries of
     * the table from element `pages` on. Column `first` is the first one of the first page that
     * rows see; no entry before is read. */
    matrix_t k_pages, v_pages;
    int64_t pages, first;
    /* The codes of the tile's tokens are read where they lie, which t->b.place has from token
     * place0 on; after: where the token behind the tile lies. */
    bool in_pages;
    int64_t place0;
    int32_t after;
    bool tail;
    /* For the current tile: K's, V's coefficients fit products of integers; K, V is loaded as
     * floats. */
    bool k_ints, v_ints, k_floats, v_floats;
    next_piece_t k_next, v_next;
    int64_t piece; /* columns of a piece of the item, if it has any */
    part_t part;
    sums_end_t sums_end;
    float scale;      /* of scores where no chain is to run */
    bool has_queries; /* Q is loaded */
    bool resumes;     /* m, l and acc hold the sums of earlier columns of the part */
    int64_t until;    /* columns up to this one follow in the same item */
    int tile;         /* tokens in it */
    /* Caches in tiles: the columns that some row sees, where that is not all of the tile. NULL: it
     * is. */
    const uint64_t *seen;
    bool careful;                   /* a row is computed again, whose sums were NaN */
    cache_piece_t k_piece, v_piece; /* what is prefetched while tokens are copied out of tiles */
    bool gathered; /* the tokens of the tile are copied out of the tiles of the cache */
    int rows;      /* in this block */
    int64_t row0, dv0;
    int64_t all_rows;                        /* of all blocks with this K and V */
    int dv;                                  /* columns of this chunk of Dv */
    int64_t idx[ATT_ROWS][SINTER_MAX_NDIMS]; /* [batch.., s, -] of each row */
    span_t sees[ATT_ROWS];                   /* columns that masks leave to each row */
} task_t;

static inline int round_grain(int n)
{
    return (n + ATT_GRAIN - 1) / ATT_GRAIN * ATT_GRAIN;
}

static inline void zero_columns(float *x, int64_t begin, int64_t end)
{
    if (begin < end) {
        memset(x + begin, 0, (size_t)(end - begin) * sizeof(float));
    }
}

/* Where the tile that column t0 is in ends. */
static inline int64_t attention_tile_end(const task_t *t, int64_t t0, int64_t end)
{
    return at_most((t0 / t->c->tk + 1) * t->c->tk, end);
}

/* ---- attention_work.c ------------------------------------------------------------------------ */

/* The sums of n rows from r0 on over no columns. The sink of a row counts in the part that the row
 * begins in. */
void attention_clear(task_t *t, int r0, int n);

/* ---- attention_tiles.c ----------------------------------------------------------------------- */

/* The rows of an item. */
int64_t attention_rows(const attention_state_t *st, int64_t item);
/* The index of a row of a batch of K and V, [batch.., s, -]. */
void attention_index(const attention_dims_t *d, int64_t kv, int64_t row, int64_t *idx);
/* Takes up an item: rows, their indices and columns. */
void attention_take(task_t *t, int64_t item);
/* The same, and loads the queries where the item is decoded. */
void attention_start(task_t *t, int64_t item);
/* Prepares n rows of Q from r0 on, which are loaded, for products with caches in tiles. */
void attention_cache_queries(task_t *t, int r0, int n);
/* Brings tiles of K and V into the cache from end to end; the next ones are prefetched while tokens
 * of these are copied. */
void attention_read(task_t *t, span_t span);
/* Copies the n tokens that t->b.cell has out of the tiles of K and V. */
void attention_gather(task_t *t, int n);
/* Loads n rows of Q from r0 on, unless D is so long that products load it chunk by chunk. */
void attention_queries(task_t *t, int r0, int n);
/* Columns from the first to the last one that n rows from r0 on see, from a whole grain on. */
span_t attention_columns(const task_t *t, int r0, int n);
/* The strip that begins with row r0, of at most n rows; and of all rows of the block. */
strip_t attention_strip_of(const task_t *t, int r0, int n);
strip_t attention_strip(const task_t *t, int r0);

/* What all strips of a block share: K, unless in chunks, and V, unless they are decoded from
 * where they are. */
void attention_load(task_t *t, int64_t t0, int nt, bool with_v);
/* s = Q K for a strip and the columns at..at+nt-1 of the tile at t0; whole grains are written. */
void attention_scores(task_t *t, const strip_t *strip, int64_t t0, int at, int nt);
/* acc += P V over rows at..at+nt-1 of a tile of V; P is zero beyond them up to a whole grain. */
void attention_accumulate(task_t *t, const strip_t *strip, int64_t t0, int at, int nt);

/* Loads what a tile needs in floats, where integers do not serve. */
void attention_load_k(task_t *t, int64_t t0);
void attention_load_v(task_t *t, int64_t t0);

/* Prefetches strip r0's share of the tiles of K and V that follow t0: the products leave the
 * memory idle otherwise. */
void attention_fetch_tiles(const task_t *t, int r0, int64_t t0, int64_t end);
/* The rows of Q of the strip at r0, which may be beyond the last one. */
void attention_fetch_queries(const task_t *t, int r0);
/* And where a strip's results go. */
void attention_fetch_results(const task_t *t, const strip_t *strip);

/* ---- attention_pages.c ----------------------------------------------------------------------- */

/* Where the n tokens lie that t->b.cell has, in rising order: in pages, numbers of tokens as in
 * pages_t go to t->b.place. Gives from each one to the next; 0: they are not evenly spaced. */
int64_t attention_places(task_t *t, const pages_t *p, int n);
/* Takes n tokens from t0 on out of the pages of the item: t->k and t->v become matrices that have
 * these there. */
void attention_load_pages(task_t *t, int64_t t0, int n, bool with_v);

/* ---- attention_blocks.c: the same in products of integers --------------------------------- */

/* Quantises a strip's rows of Q. */
void ints_queries(task_t *t, const strip_t *strip);
void ints_load(task_t *t, int64_t t0, int nt);
/* False if nothing was done, because the products must be in floats. */
bool ints_scores(task_t *t, const strip_t *strip, int at, int nt);
void ints_accumulate(task_t *t, const strip_t *strip, int64_t t0, int at, int nt);

/* ---- attention_groups.c ---------------------------------------------------------------------- */

/* Whether groups of rows go over the columns that they see by themselves: there are lists of cells,
 * or more rows than decoders take at a time. */
static inline bool attention_by_groups(const task_t *t)
{
    const attention_state_t *st = t->st;
    const bool decodes = is_decoded(&st->k_side) || is_decoded(&st->v_side);
    return st->cells.on || (decodes && st->d.most_rows > attention_most_rows(t->c));
}

/* The sums of n rows from r0 on over the columns of a span, added to those of earlier columns where
 * t->resumes. True if some of them were computed together with tokens that they do not see: where V
 * has infinities or NaN there, their sums are NaN. */
bool attention_groups(task_t *t, int r0, int n, span_t span);
/* The columns of a span that some row of the scores sees, where there are lists of cells: a set. */
const uint64_t *attention_seen(task_t *t, span_t span);
/* Whether all rows have one list of cells, which has few of the columns. */
bool attention_sees_few(const task_t *t);

/* ---- attention_softmax.c --------------------------------------------------------------------- */

/* Runs a chain over columns at..at+nt-1 of a strip's scores. */
void attention_chain(task_t *t, const chain_bound_t *chain, const strip_t *strip, int64_t t0,
                     int at, int nt);
/* One update of the online softmax: columns at..at+nt-1 of s become p, zeros up to a whole grain, m
 * and l move on, acc is rescaled to the new maximum. */
void attention_update(task_t *t, const strip_t *strip, int64_t t0, int at, int nt, bool with_acc);
/* Normalised probabilities of columns at..at+nt-1 with m and l final, zeros beside them, up to
 * `end`; what a row of nothing but -inf gives is the caller's choice. */
void attention_normalise(task_t *t, const strip_t *strip, int64_t t0, int at, int nt, int end);

#endif
