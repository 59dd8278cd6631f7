/* Flash attention, what setup (compile), choose (execute, all dims known) and work (threads) of
 * its kernels share.
 *
 * A work item is one batch of K and V, a block of query rows and a chunk of Dv. Query rows are the
 * S rows of all query heads that share this K and V, row r = s * G + g, so that a block holds
 * neighbouring positions of all heads of the group. Tiles of TK columns t of K and rows t of V are
 * dequantised once for a block; over each, strips of its rows do, as far as masks let them see its
 * columns,
 *
 *   s[rows][TK] = q[rows][D] k[D][TK];  score chain;  m' = max(m, row max);  p = exp(s - m');  l
 *   = l exp(m - m') + sum p;
 *   acc[rows][Dv] = acc exp(m - m') + p v[TK][Dv]
 *
 * so that q, acc, k and v of a block live in L2 and s of a strip in L1.
 *
 * Where a mask in memory leaves rows other columns than a range, phase 0 makes lists of these
 * (attention_cells.h). Then groups of rows go over their own columns instead (attention_groups.c).
 *
 * A row starts with m = -inf and l = 0, or with m = sink and l = 1 where it has a sink. At the end
 * the output is acc / l, which goes through the post chain and the quantising tail, if any.
 *
 * An item is cut into parts at fixed columns, multiples of a length that depends on its operands
 * alone. Each part has sums (m, l, acc) of its own, which are added to those of the parts before it
 * in order. So the number of threads does not change any bit. A share is a range of the weight of
 * all parts, item by item. Where an item is divided among shares, the first of them adds up its own
 * parts, the others leave the sums of each part in shared memory, and phase 1 adds these.
 *
 * Where a token of the cache has its heads side by side, a pass over one head skips most of each
 * row, which a processor fetches slowly. So decoding takes pieces of parts there, and all heads of
 * a piece in turn; meanwhile it prefetches the next piece from end to end. A share first reads its
 * first piece from end to end. It is a range of parts times items, and each part of each item
 * leaves its sums in shared memory.
 *
 * A deterministic engine that decodes over a strided cache takes blocks of the rows of one token,
 * and parts and tiles with as many cells as others have columns. So the sums of a token depend
 * neither on other tokens nor on where its cells lie among those of other sequences. Tiles of a
 * cache in tiles stay where they are.
 *
 * Row groups go over the columns of a part, tile by tile from its first one on. Which rows make a
 * group depends on the block, so blocks have their full size where there are lists.
 *
 * Where K and V lie in pages (pages_t), a tile's tokens are found through the table. They are read
 * where they lie if they follow one another, or if a page has whole blocks of a decoder's sums;
 * else they are copied, which keeps the bits of tokens that follow one another. Each token may name
 * its sequence: then tokens are batches of K and V, and those of one sequence that follow one
 * another, a run, are rows of one item. Two steps share the runs: those with few rows are decoded,
 * the others go through tiles. */
#ifndef SINTER_SRC_KERNELS_ATTENTION_H
#define SINTER_SRC_KERNELS_ATTENTION_H

#include "backend_xsmm/drivers/attention/attention_cache.h"
#include "backend_xsmm/drivers/attention/attention_cells.h"
#include "backend_xsmm/drivers/attention/attention_decode.h"
#include "backend_xsmm/drivers/common/quant_tail.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "backend_xsmm/ukernels/matmul_blocks.h"
#include "backend_xsmm/ukernels/tile.h"
#include "backend_xsmm/ukernels/xsmm.h"
#include "numeric/quant_rows.h"

enum {
    ATT_ROWS = 480,                     /* most query rows in a block, whole strips */
    ATT_STRIP = 24,                     /* most rows in a strip; own products go by 6 rows */
    ATT_TK = 256,                       /* most columns in a K tile; a chain's block */
    ATT_GRAIN = 16,                     /* strips see whole grains of columns */
    ATT_PIECE_ITEMS = 64,               /* attention with more items takes no pieces */
    ATT_PART = 1024,                    /* least columns of a part, whole tiles */
    ATT_PARTS = 16,                     /* most parts of an item */
    ATT_DECODE_PART = 512,              /* the same for decoding, */
    ATT_DECODE_PARTS = 64,              /* whose sums are small */
    ATT_LIST_TOKENS = 4,                /* up to as many times as long for tokens with lists */
    ATT_WIDE_ROWS = 144,                /* the same of heads of more than 256 elements */
    ATT_HEAD = 576,                     /* D beyond this is processed in chunks of ATT_CHUNK, */
    ATT_CHUNK = TAIL_ATTENTION_COLUMNS, /* and Dv beyond this, too */
    ATT_LADDER = 8,                     /* strip heights that get JIT kernels */
    ATT_HEIGHT = 12,                    /* the least one of AVX-512 where rows are several strips */
    ATT_ITEMS = 4, /* blocks are made smaller until each thread has this many items, */
    ATT_LONG = 8   /* unless there are this many times as many tokens as rows in a block */
};

/* JIT kernels for strips of `rows` rows. */
typedef struct attention_jit {
    int rows;
    xs_kernel_t qk, qk_step; /* qk_columns and ATT_GRAIN columns */
    xs_kernel_t pv;          /* pv_columns, batches of ATT_GRAIN rows of V */
} attention_jit_t;

/* What is known at compile; limits hold for every execute. */
typedef struct attention_config {
    const tile_table_t *tile;
    const eltwise_table_t *fn;
    const quant_rows_t *quant;
    bool decode;                        /* else K and V go through tiles */
    bool cache;                         /* K and V lie in tiles that rows are multiplied with */
    bool deterministic;                 /* as the engine */
    cache_sizes_t unpacks_k, unpacks_v; /* of what lies in tiles and is unpacked first */
    features_t all;                     /* of the machine */
    features_t needs;
    integers_t kind;           /* cache only: NO_INTEGERS if all products are of floats */
    decode_how_t k_how, v_how; /* decode only */
    bool bf16;
    const blocks_table_t *blocks; /* products of integers; NULL: none */
    int rows, strip, tk, dk, dv;  /* of the buffers: dk, dv are multiples of 16 */
    /* Leading dimensions, padded so that rows do not fall into one cache set. */
    int ld_q, ld_k, ld_v, ld_s;
    bool lists;                 /* a mask may become lists of cells */
    bool pages;                 /* K and V lie in pages */
    int cell_bytes[2];          /* of a token of K and of V that is gathered; 0: none is */
    int copy_bits[2];           /* of an element that is copied out of tiles */
    int n_jit;                  /* 0: tile->gemm does the products */
    int least_height;           /* of a strip that is not the only one */
    int qk_columns, pv_columns; /* of one call; pv_columns divides dv */
    /* Tiles of K and V lie call by call: each piece of qk_columns or pv_columns columns is
     * contiguous. With 256-bit vectors libxsmm is faster so. */
    bool by_call;
    bool totals; /* items may have several parts */
    attention_jit_t jit[ATT_LADDER];
} attention_config_t;

/* Products of integers in one execute (attention_blocks.c). */
typedef struct attention_ints {
    bool on;
    int block; /* elements of a block of D, inside which no scale of K changes */
    /* Elements of a part of D, whole blocks of at most BLOCKS_K elements together, and the number
     * of parts. */
    int part, parts;
    /* K's codes become bytes directly, those of 4 bits by the table; else they become floats
     * first. */
    bool direct;
    int8_t table[16];
    bool shifted, nibbles; /* of bytes of K, as in blocks_b_t: w = code - offset */
    float offset;
    bool v_nibbles;
    bool k_floats, v_floats; /* there are offsets, or zero points that are floats */
    float k_unit, v_unit;    /* codes are multiples of it: w = code / unit, with scale * unit */
    const uint8_t *order;    /* of the elements of Q, as in blocks_form_t */
    int group, groups;       /* columns of V that share scales; the number of such groups */
} attention_ints_t;

/* The geometry of one execute. */
typedef struct attention_dims {
    int nb; /* batch dims */
    int64_t batch[SINTER_MAX_NDIMS];
    bool grouped[SINTER_MAX_NDIMS]; /* dims that K and V do not have: extra rows */
    int64_t S, T, D, Dv;
    int64_t group, rows;                     /* G; S * G */
    int64_t n_kv, n_blocks, n_chunks, items; /* items = n_kv * n_blocks * n_chunks */
    int block;                               /* rows in a block */
    int most_rows;                           /* of an item */
    /* The dim of an index that rows of a head are along: S, or the batch dim of tokens where each
     * of these names its sequence. Then the tokens of a sequence make a run. An item has as many of
     * one as fit a block, from its own token on; the items of the other tokens have no rows. */
    int row_dim;
    bool has_runs;       /* the tokens of a sequence do follow one another, in all of them */
    int64_t apart;       /* rows from one row of a head to the next: G, or all of a token */
    int64_t run_rows[2]; /* of the runs that the step has: from the least to the most */
    int64_t part;        /* columns of a part */
    int parts;           /* most parts of an item */
    bool weighs;         /* shares are ranges of the weight of all items: there are several */
    bool divides;    /* shares may have some parts of an item only, else they have whole items */
    int64_t piece;   /* columns of a piece; 0: items are not processed in pieces */
    bool prefetches; /* pieces prefetch the next ones */
} attention_dims_t;

typedef struct span {
    int64_t begin, end;
} span_t;

/* A column limit (column_limit_t) that is not the same for all batches. */
typedef struct attention_term {
    const unsigned char *data; /* s32 */
    int sign;
    int64_t stride[SINTER_MAX_NDIMS]; /* by batch dim */
} attention_term_t;

typedef struct attention_limit {
    bool lower, moves;
    int64_t at; /* the shift and all scalars */
    int n_terms;
    attention_term_t term[LIMIT_TERMS];
} attention_limit_t;

typedef struct attention_state {
    attention_dims_t d;
    matrices_t q, k, v;
    attention_ints_t ints;
    int64_t sink_stride[SINTER_MAX_NDIMS]; /* by batch dim and row */
    decode_side_t k_side, v_side;
    cache_side_t k_cache, v_cache;
    /* V is the first elements of each token of K, as in latent attention: tiles of K are made from
     * those of V. */
    bool of_keys;
    chain_bound_t score, prob, post;
    int skip; /* batch dims that the output has before those of score and prob */
    /* There is a score chain to run; it leaves masking by the limits to the kernel. */
    bool scored, masked;
    /* Where results go if the post chain does nothing but store them, along Dv; else NULL. */
    const chain_ref_t *out;
    float scale;       /* of scores where no chain is to run */
    quant_tail_t tail; /* if the step has one */
    /* Columns that masks leave to row s: max(first_all, s + first_row) <= t < min(end_all, s +
     * end_row), and what `limits` leaves of those in the row's batch. Tiles outside are skipped. */
    int64_t first_all, first_row, end_all, end_row;
    attention_limit_t limits[MASK_LIMITS];
    int n_limits;
    cells_t cells;        /* what a mask in memory leaves of these columns */
    bool scans;           /* phase 0 makes its lists; the others follow */
    int64_t weight;       /* of all items, where there are several shares */
    unsigned char *lists; /* of cells, by which a share weighs items; NULL: by limits alone */
    int64_t same_limits;  /* how many batches of K and V in sequence have the same limits */
    /* The probability chain has the same result for every zero. */
    bool prob_steady;
} attention_state_t;

enum { ATT_SPAN = BLOCKS_LONGEST }; /* tokens whose weights share a scale */

/* One share's buffers for products of integers. */
typedef struct attention_int_buffers {
    limb_rows_t q, p;  /* [part][row of a block], [row of a strip] */
    bool *usable;      /* [strip]: its rows of Q are finite */
    int8_t *k, *v;     /* [strip of 64 tokens, of columns][..], as in blocks_b_t */
    int32_t *k_start;  /* [strip of tokens][part][block][token] */
    int32_t *k_z;      /* the same: zero points less the offset, or the bits of such floats */
    float *k_zp;       /* [block][token], of a strip and a part */
    float *k_scale;    /* the same */
    float *v_scale;    /* [group][token] */
    float *v_zp;       /* the same, of floats */
    float *zp_offset;  /* [row of a strip]: what these take off the results */
    int32_t *no_start; /* zeros for the products with V, */
    float *no_scale;   /* and ones */
} attention_int_buffers_t;

/* Sums of the rows of a block. */
typedef struct attention_sums {
    float *m, *l, *acc; /* [row], [row], [row][ld_v] */
} attention_sums_t;

/* One thread's buffers inside its scratch; bf16 ones only for the bf16 kernel. */
typedef struct attention_buffers {
    float *q, *k, *v, *s, *acc, *m, *l;
    attention_sums_t total; /* of several parts of an item */
    float *part;            /* of a strip: P V of one tile, which is added to acc as a whole */
    uint16_t *q16, *k16, *v16, *p16;
    decode_buffers_t decode;
    cache_buffers_t cache;
    cache_unpacked_t k_unpacked, v_unpacked;
    cache_copy_t copies[2]; /* of tokens of K and of V that are gathered out of tiles */
    attention_int_buffers_t ints;
    int32_t *cell;           /* of the tokens of a tile that are gathered; */
    int32_t *place;          /* where these lie, in pages; */
    unsigned char *cells[2]; /* K and V of these; */
    void *mask;              /* and what the mask has there: its elements, */
    float *terms;            /* and as f32 */
    void *chain, *tail;
} attention_buffers_t;

/* Whether some of the tokens lie in tiles. Then no tile of K or V reaches over the end of a block
 * of tokens. */
static inline bool attention_in_tiles(const attention_config_t *c)
{
    return c->cache || c->unpacks_k.bits > 0 || c->unpacks_v.bits > 0;
}

/* Whether a few query rows are multiplied with K and V where these lie. */
static inline bool attention_few_rows(const attention_config_t *c)
{
    return c->decode || c->cache;
}

/* How many query rows are decoded together. */
static inline int attention_most_rows(const attention_config_t *c)
{
    return c->cache ? TILES_ROWS : DECODE_ROWS;
}

/* The height that n rows of a strip are computed at, of `rows` in all. With AVX-512, libxsmm adds
 * in another order where there are few rows: the last strip of a prompt would have other bits than
 * the same rows within a longer prompt. */
static inline int attention_height(const attention_config_t *c, int64_t rows, int n)
{
    return rows > ATT_STRIP && n < c->least_height ? c->least_height : n;
}

/* Carves scratch (NULL: only counts); returns the bytes. */
size_t attention_buffers(const attention_config_t *c, const step_t *step, unsigned char *scratch,
                         attention_buffers_t *out);

/* ---- attention_limits.c ---------------------------------------------------------------------- */

/* Whether some mask has limits of its own for some batches; asks for dims only. */
bool limits_vary(const attention_params_t *p, const frame_t *frame);
/* Reads what limits are made of. True if the limits are the masks. */
bool limits_bind(const attention_params_t *p, const frame_t *frame, attention_state_t *st);
/* The columns of the row at index idx, [batch.., s]; begin is 0 where there is none. */
span_t limits_columns(const attention_state_t *st, const int64_t *idx);
/* Tokens between the first and the last one that rows see, in all batches of K together. */
int64_t limits_tokens(const attention_state_t *st);

/* Items in their order, each with a weight: about the time that it takes. */
typedef struct item {
    int64_t item, weight, begin; /* begin: the weight of all items before it */
    int64_t column;              /* the first one that is weighed, by lists of cells; else 0 */
    int64_t equal;               /* how many items from this one on have its weight */
} item_t;
/* Weighs all items. */
void division_bind(attention_state_t *st);
item_t division_first(const attention_state_t *st);
/* Goes n items on; n <= at->equal. */
void division_skip(const attention_state_t *st, item_t *at, int64_t n);

/* Of attention_blocks.c: why an execute cannot have products of integers; else it binds them. */
const char *ints_refuse(int kind, const void *config, void *state);
/* Carves from base (NULL: only counts) on. */
void ints_buffers(const attention_config_t *c, unsigned char *base, size_t *at,
                  attention_int_buffers_t *out);

/* ---- attention_pages.c ----------------------------------------------------------------------- */

/* As in driver_t: K and V in pages. */
int attention_checked(const step_t *step, int i);
sinter_status_t attention_check(const problem_t *problem, const void *state);
/* Whether tokens lie in the order of their sequences. */
bool attention_has_runs(const attention_state_t *st);

/* ---- attention_work.c ------------------------------------------------------------------------ */

void attention_work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                    const worker_t *w);

#endif
