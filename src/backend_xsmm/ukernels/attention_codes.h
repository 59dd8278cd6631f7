/* Decoding attention in integers, for the fpmath modes that allow it: products of codes with
 * activations of 8 or 16 bits are exact, and so are their sums.
 *
 * A row of K or V (one token's head, or the short heads of two tokens: `fold`) is cut into chunks
 * of 64 bytes and these into quads of 16 bytes, inside which a group of scales and zero points does
 * not change. Codes become bytes u = code + offset >= 0. Four rows are worked off together; a
 * vector of "corners" has lane 4 * quad + row. Of a query, each quad is quantised by its own
 * largest element, to `limbs` signed bytes q = scale * (256 * high + low), or scale * high:
 *
 *   q.k  = sum over quads of  scale_k * scale_q * (sum over the quad of q (u - zp - offset))
 *
 * and of p * scale_v each quad, by the largest of a block of tokens:
 *
 *   out += scale_w * (sum over the tokens of w (u - zp - offset)) */
#ifndef SINTER_SRC_KERNELS_ATTENTION_CODES_H
#define SINTER_SRC_KERNELS_ATTENTION_CODES_H

#include <stdbool.h>
#include <stdint.h>

#include <sinter/sinter_types.h>

#include "base/features.h"

enum {
    CODES_CHUNK = 64,  /* bytes */
    CODES_CHUNKS = 4,  /* most in a row: a head of 256 bytes */
    CODES_ROWS = 4,    /* rows of K or V at a time */
    CODES_BLOCK = 128, /* rows of V whose weights share a scale */
    CODES_QUERIES = 4, /* most queries that V is read for at a time */
    CODES_MOST_QUERIES = 8
};

/* Rows of K or V. */
typedef struct codes_rows {
    const unsigned char *data;
    int64_t stride;  /* bytes from row to row */
    int rows, bytes; /* of a row */
    int fold;        /* tokens in a row, 1 or 2 */
    int groups;      /* of a token */
    /* [token][groups] floats; zeros for the tokens that the last four rows lack, then 16 that
     * may be read. zp NULL: none. */
    const float *scale, *zp;
    const int32_t
        *corner; /* [chunk][16]: where scale and zp have a corner, from the first of four rows on */
    bool near;   /* these are all below 16 */
    int flip;    /* u = code ^ flip, by byte */
    const unsigned char *table; /* or u = table[code]; NULL */
    int offset;
} codes_rows_t;

/* Queries as bytes. */
typedef struct codes_query {
    int8_t byte[CODES_CHUNKS][8][2][2]
               [CODES_CHUNK];         /* [chunk][query][high, low][even, odd codes of 4 bits] */
    float scale[CODES_CHUNKS][8][16]; /* by corner */
    int32_t sum[CODES_CHUNKS][8][16]; /* of the quad */
    bool usable;                      /* all are numbers, of a size that this arithmetic is for */
} codes_query_t;

/* Weights of a block of V as bytes. */
typedef struct codes_weights {
    int8_t byte[CODES_CHUNKS][CODES_BLOCK / CODES_ROWS][CODES_QUERIES][2][CODES_CHUNK];
    float scale[CODES_CHUNKS][CODES_QUERIES][16];
    int32_t shift[CODES_CHUNKS][CODES_QUERIES][16]; /* the sum of w (zp + offset) */
} codes_weights_t;

/* One data type. */
typedef struct codes_ops {
    int elems; /* of a chunk; 0: no such type */
    int quad;  /* elements of one */
    int flip, offset;
    bool table; /* codes are values of `unit` times an integer */
    float unit;
    int (*element)(int at); /* of a chunk, at a place of acc */
    /* One query's elements of one chunk (zeros beyond the head). False: not numbers, or too
     * small. */
    bool (*quantise)(const float *x, int limbs, int query, int chunk, codes_query_t *q);
    /* s[q][token]; lds at least the tokens rounded up to 32, all of which are written. */
    void (*qk)(const codes_rows_t *k, int nq, int limbs, const codes_query_t *q, float *s,
               int64_t lds);
    /* acc[q][..] += p V, at most CODES_BLOCK rows and CODES_QUERIES queries. False, and nothing
     * done: some weight is no number. */
    bool (*pv)(const codes_rows_t *v, int nq, int limbs, const float *p, int64_t ldp,
               codes_weights_t *w, float *acc, int64_t ldacc);
} codes_ops_t;

typedef struct codes_table {
    int n_ops;
    const codes_ops_t *ops; /* by data type */
} codes_table_t;

/* NULL: this ISA has none. */
const codes_table_t *codes_table(features_t features);
extern const codes_table_t codes_table_avx512_vnni;

#endif
