/* Attention with few query rows: K and V are read once, element by element, straight from their
 * codes, by the micro-kernels of ukernels/attention_decode.h or, in integers, of codes.h. */
#ifndef SINTER_SRC_KERNELS_ATTENTION_DECODE_H
#define SINTER_SRC_KERNELS_ATTENTION_DECODE_H

#include "backend_xsmm/drivers/common/matrices.h"
#include "backend_xsmm/drivers/common/products.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/attention_decode.h"
#include "backend_xsmm/ukernels/codes.h"
#include "backend_xsmm/ukernels/tile.h"

enum {
    DECODE_ROWS = 8,     /* most query rows */
    DECODE_TOKENS = 256, /* tokens in a tile */
    DECODE_LANES = 16,   /* of the widest ISA */
    DECODE_CLASSES = 32, /* in a row: a head of 256 floats in vectors of 8 */
    DECODE_SLOW = 16     /* tokens at a time where values go through floats */
};

/* Decoding order: the places that micro-kernels have for the elements of a row. Where a row is two
 * tokens, the second one's elements are numbered from `head` on. */
typedef struct decode_order {
    int padded;                    /* places: elements rounded up to chunks */
    bool in_place;                 /* all elements are at their own places */
    int16_t element[DECODE_ORDER]; /* at each place; -1: padding */
    int16_t source[DECODE_ORDER];  /* the query's element there, which both tokens share */
    int16_t place[DECODE_HEAD];    /* of each element */
} decode_order_t;

/* K or V of one execute. */
typedef struct decode_side {
    const decode_ops_t *ops;   /* NULL: through tiles of floats */
    const codes_type_t *codes; /* in integers; NULL: in floats */
    const codes_table_t *ints;
    features_t features;
    int limbs;
    bool may_be_tiny; /* scales: the type of all of them has values that any_tiny looks for */
    int lanes;
    int head, padded; /* elements; rounded up to chunks */
    int classes;      /* of a row */
    int fold;         /* tokens in a row: 2 where two short heads fill a chunk */
    /* Along the head: the finer ones of scales and zero points, and the elements of each. The last
     * one may have fewer. */
    int groups, size;
    /* Scales change from token to token, or there are zero points; otherwise scales are folded into
     * the query or the result, stretch by stretch. */
    bool by_lane;
    bool quantised;
    bool any_weight;  /* V: weights need not be probabilities, which are at most 1 */
    float values[16]; /* of the codes of a 4-bit type */
    /* Micro-kernels take zero points off. One zero point for all of the operand is in the values
     * instead, or in the offset of `moved`, which `codes` then points to. */
    bool shifted, one_zp;
    codes_type_t moved;
    /* Offsets, and zero points that are floats, are added on their own; only those of V in integers
     * become zero points that micro-kernels take off: they must meet the same rounded weights as
     * the codes. */
    bool plus, zps_are_floats;
    int16_t plus_at[DECODE_ORDER]; /* the group of each place, DECODE_GROUPS where it has none */
    /* Of decode_order_t. */
    const int16_t *order, *source, *place;
    bool in_place;
    /* A group of coefficients is 2^group_shift chunks; -1: coefficients change within chunks, or
     * the micro-kernels take none by chunk. */
    int group_shift;
    int32_t group_at[DECODE_CLASSES * DECODE_LANES], group_row[DECODE_LANES * DECODE_LANES];
    bool places_zps; /* floats: a chunk has one zero point, and micro-kernels want its place */
    code_less_zp_t less_zp;
    /* codes only: see codes_table_t */
    int32_t corner[CODES_CHUNKS * 16];
    bool picks_fit_one_vector;
    unsigned char table[16];
} decode_side_t;

/* How one operand is multiplied, as far as that is known at compile. */
typedef struct decode_how {
    const decode_ops_t *ops;   /* NULL: through tiles of floats */
    const codes_type_t *codes; /* NULL: in floats */
    const codes_table_t *ints;
    features_t features;
    integers_t kind;
    bool early_zp;   /* zero points are known before the work: start may read one */
    const char *why; /* why not in integers, of a kernel that can; else NULL */
    /* In floats and in integers, for one and for two tokens in a row. */
    decode_order_t order[2][2];
} decode_how_t;

/* Fills in the orders for a size of heads. */
void decode_orders(decode_how_t *how, int64_t head);

/* Binds one operand whose token dim is rows or columns of the tile; ops stay NULL where it must go
 * through tiles. of: its name. */
void decode_bind(const decode_how_t *how, const matrices_t *op, bool tokens_are_rows,
                 const char *of, decode_side_t *side, choice_t *choice);

/* Reads a zero point that all of the operand has. */
void decode_start(const matrices_t *op, decode_side_t *side);

/* One thread's buffers. */
typedef struct decode_buffers {
    float *q;            /* [rows][padded] */
    float *scale, *zp;   /* [tokens][groups]; zp may have what offsets add */
    float *folded, *run; /* [rows][head]; [rows][padded] */
    float *coef;         /* [head], the scales of a stretch */
    float *sums;         /* [rows][DECODE_GROUPS]: of the query, by group of K's offsets */
    float *tile;         /* [DECODE_SLOW][head] floats */
    bool *
        in_product_range; /* queries are of a size that codes may be multiplied with (few_rows.h) */
    codes_query_t *codes; /* NULL where neither K nor V is processed in integers */
    codes_weights_t *weights;
} decode_buffers_t;

size_t decode_buffers(int rows, bool codes, unsigned char *scratch, decode_buffers_t *out);

/* q: [rows][ld] floats of the item. */
void decode_query(const decode_side_t *k, const decode_buffers_t *b, int rows, const float *q,
                  int64_t ld);
/* Some tokens of K or V against all query rows. */
typedef struct decode_task {
    const tile_table_t *tile;
    const decode_side_t *side;
    const decode_buffers_t *buffers;
    const worker_t *worker;
    matrix_t m; /* K or V as bound for the item: tokens are rows, the head is columns */
    /* Memory to prefetch meanwhile: as many bytes as these tokens have. NULL: the next tokens. */
    const unsigned char *next;
    int64_t token;    /* the first one */
    int tokens, rows; /* rows: of queries */
    const float *x;   /* K: the queries as for decode_query; V: a weight for each row and token */
    int64_t ldx;
    /* K: a score for each row and token; numbers behind the last one, up to a multiple of twice the
     * lanes, are overwritten. V: sums for each row. */
    float *out;
    int64_t ldo;
} decode_task_t;

/* The scores of the tokens. */
void decode_scores(const decode_task_t *task);
/* out += weights times V; it is in decoding order where scales go by lanes. */
void decode_accumulate(const decode_task_t *task);
/* Brings rows of acc from decoding order into that of the head. */
void decode_restore(const decode_side_t *v, const decode_buffers_t *b, int rows, float *acc,
                    int64_t ldacc);

#endif
