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

/* The rows of ways_attention_operands. */
enum { BY_TWO_LIMBS, BY_ONE_LIMB, BY_DECODING, BY_TILES, IN_CACHE /* no row: attention_cache.h */ };

/* How scales meet codes. */
typedef enum decode_scales {
    NO_SCALES,
    FOLDED, /* into the query or the result, stretch by stretch of tokens that share them */
    OF_ROWS /* each token has its own, or the micro-kernels take zero points off; all integers do */
} decode_scales_t;

/* How zero points, or offsets, meet codes. */
typedef enum decode_zps {
    NO_ZPS,
    IN_VALUES, /* all of the operand has one, which is in the values of codes, or in their offset */
    /* Offsets, and zero points that are floats, are added on their own; only those of V in integers
     * become zero points that micro-kernels take off: they must meet the same rounded weights as
     * the codes. */
    ADDED,
    TAKEN_OFF,
    TAKEN_OFF_WEIGHED, /* these floats of V */
    AS_PLACES          /* floats: a chunk has one, of which micro-kernels want the place */
} decode_zps_t;

/* K or V where products are of decoded floats. */
typedef struct decode_floats {
    const decode_loops_t *loops;
    float values[16]; /* of the codes of a 4-bit type */
    int32_t group_at[DECODE_CLASSES * DECODE_LANES], group_row[DECODE_LANES * DECODE_LANES];
    code_less_zp_t less_zp;
} decode_floats_t;

/* K or V where products are of integers. */
typedef struct decode_ints {
    codes_type_t type;                 /* its offset has a zero point that all codes have */
    int32_t corner[CODES_CHUNKS * 16]; /* see codes_qk_t */
    unsigned char table[16];
} decode_ints_t;

/* K or V of one execute. */
typedef struct decode_side {
    int way; /* the row of ways_attention_operands */
    /* The rows of the tables of inner loops, for fours of queries and for the rest, by queries - 1.
     */
    int loop[DECODE_ROWS][2];
    const decode_how_t *how;
    const decode_order_t *order;
    code_rows_t like; /* any rows of it; coefficients are not at their place yet */
    int head;         /* elements */
    /* Along the head: the finer ones of scales and zero points, and the elements of each. The last
     * one may have fewer. */
    int groups, size;
    decode_scales_t scales;
    decode_zps_t zps;
    /* V: sizes of weights are checked, which need not be probabilities, that are at most 1. */
    bool any_weight;
    int16_t plus_at[DECODE_ORDER]; /* the group of each place, DECODE_GROUPS where it has none */
    union {
        decode_floats_t floats; /* BY_DECODING */
        decode_ints_t ints;     /* BY_TWO_LIMBS, BY_ONE_LIMB */
    };
} decode_side_t;

/* Offsets, or zero points that are floats. */
static inline bool has_offsets(const matrix_t *m)
{
    return m->zp.type != NULL && (m->offsets || m->zp.type->cls != DTYPE_INT);
}

/* K and V that are not decoded go through tiles of floats. */
static inline bool is_decoded(const decode_side_t *side)
{
    return side->way != BY_TILES;
}

/* Fills in the orders for a size of heads. */
void decode_orders(decode_how_t *how, int64_t head);

/* One operand in an execute. */
typedef struct decode_operand {
    const decode_how_t *how;
    const matrices_t *op;
    bool is_v;       /* tokens are rows of V, and columns of K */
    bool any_weight; /* weights of V need not be probabilities */
    int queries;
    bool any_queries; /* work may take fewer or more of them at a time, up to DECODE_ROWS */
} decode_operand_t;
void decode_bind(const decode_operand_t *of, decode_side_t *side, choice_t *choice);
/* Chooses the inner loops of an operand that is bound. */
void decode_loops(const decode_operand_t *of, decode_side_t *side, choice_t *choice);

/* Reads a zero point that all of the operand has. */
void decode_start(const matrices_t *op, decode_side_t *side);

/* One thread's buffers. */
typedef struct decode_buffers {
    float *q;             /* [rows][padded] */
    float *scale, *zp;    /* [tokens][groups]; zp may have what offsets add */
    float *folded, *run;  /* [rows][head]; [rows][padded] */
    float *coef;          /* [head], the scales of a stretch */
    float *sums;          /* [rows][DECODE_GROUPS]: of the query, by group of K's offsets */
    float *tile;          /* [DECODE_SLOW][head] floats */
    bool *usable;         /* queries are of a size that codes may be multiplied with (few_rows.h) */
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
    /* Memory to prefetch meanwhile: as many bytes as these tokens have, next_bytes from those of
     * one to those of the next. NULL: the next tokens. */
    const unsigned char *next;
    int64_t next_bytes;
    int64_t token; /* the first one */
    bool spaced;   /* tokens of m lie otherwise than those of K or V */
    /* In pages: the number that each token has among those of m, whose codes lie there; tokens of a
     * page, `page` of them, follow one another; after: of the token behind. NULL: all do. */
    const int32_t *place;
    int page;
    int32_t after;
    int tokens, rows; /* rows: of queries */
    const float *x;   /* K: the queries as for decode_query; V: a weight for each row and token */
    int64_t ldx;
    /* K: a score for each row and token; numbers behind the last one, up to a multiple of twice the
     * lanes, are overwritten. V: sums for each row. */
    float *out;
    int64_t ldo;
} decode_task_t;

/* The tokens after which sums of V begin anew: pages of a multiple of these change no bit. */
int decode_block(const decode_side_t *side);
/* The scores of the tokens. */
void decode_scores(const decode_task_t *task);
/* out += weights times V; it is in decoding order where scales go by lanes. */
void decode_accumulate(const decode_task_t *task);
/* Brings rows of acc from decoding order into that of the head. */
void decode_restore(const decode_side_t *v, const decode_buffers_t *b, int rows, float *acc,
                    int64_t ldacc);

#endif
