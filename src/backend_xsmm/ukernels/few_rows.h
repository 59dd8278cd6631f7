/* What all kernels share that read codes straight from memory, for few rows of the other operand:
 * how rows of codes and their coefficients are described, and how codes lie in registers.
 *
 * A row of codes is a token's head of K or V, a column of weights that lies along K, or a row of
 * weights that lies along N. It is read in chunks: of one vector register of bytes where codes
 * become floats (decoded.inc), of 64 bytes where they stay integers (codes.h). */
#ifndef SINTER_SRC_UKERNELS_FEW_ROWS_H
#define SINTER_SRC_UKERNELS_FEW_ROWS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include "base/fetch.h"

/* ---- rows of codes --------------------------------------------------------------------------- */

/* Scales or zero points as floats. Chunk c of row r has the one at
 *
 *   at[r * ld + (c >> shift) * step]
 *
 * for all of its elements. Fine coefficients change within chunks and have one vector for each
 * class: lane i has pick[c * pick_stride + class * lanes + i] from there on. A vector is loaded
 * from there, so that up to 16 floats more may be read; of K, the coefficients of rows up to the
 * next multiple of 32. */
typedef struct code_coefs {
    const float *at; /* NULL: there are none */
    int step, shift;
    int64_t ld;
    const int32_t *pick;
    int pick_stride;
    /* Matmul in integers: the values in memory that the next rows need, and how many of their bytes
     * are fetched with each chunk, at most a cache line. NULL: none are. */
    const unsigned char *next;
    int64_t next_step;
} code_coefs_t;

/* Integers of 4 bits less zero points, as AVX2 decodes them where a chunk has one zero point: bytes
 * of floats that bf16 holds exactly, low and high ones, so that the 16 bytes for one zero point are
 * next to each other. In place of a zero point coefficients then have where these begin. */
enum {
    ZP_LEAST = -240, /* what is taken off codes that count from zero */
    ZP_MOST = 256,
    ZP_PLACE = ZP_MOST /* of zero point 0 */
};
typedef struct code_less_zp {
    unsigned char low[ZP_PLACE + 256], high[ZP_PLACE + 256];
} code_less_zp_t;

/* Turns n zero points into such places. flip: as in float_codes_t; codes that are flipped count
 * from zero. False: some are not between ZP_LEAST and ZP_MOST then. */
typedef bool (*place_zps_t)(float *zp, int64_t n, int flip);

static inline void fill_less_zp(code_less_zp_t *to)
{
    for (int i = -ZP_MOST; i < 16 - ZP_LEAST; i++) {
        const float x = (float)i;
        uint32_t bits;
        memcpy(&bits, &x, sizeof(bits));
        to->low[ZP_PLACE + i] = (unsigned char)(bits >> 16);
        to->high[ZP_PLACE + i] = (unsigned char)(bits >> 24);
    }
}

/* What products with decoded floats need besides. */
typedef struct float_codes {
    const float *values; /* of the 16 codes of a 4-bit type */
    const code_less_zp_t *less_zp;
    /* P V: [scales of a row][lanes], the row of each of as many scales in turn. */
    const int32_t *row_of_scale;
    int64_t group_bytes; /* attention: of a group of coefficients but the last of a token */
    int flip;            /* 8 where codes of 4 bits are signed */
} float_codes_t;

/* What products of integers need besides. */
typedef struct int_codes {
    const struct codes_type *type;
    const unsigned char *table; /* of bytes, one for each code */
    int64_t half_stride;        /* attention: from the first half of a chunk to the second */
    bool picks_fit_one_vector;  /* all picks are below 16 */
    /* Zero points are applied after rounding P, so that codes and zero points meet the same
     * weights. */
    bool zps_are_floats;
    bool in_order; /* matmul: rows are fetched one after the other */
} int_codes_t;

/* Rows of codes with their coefficients. A micro-kernel reads `floats` or `ints`. */
typedef struct code_rows {
    const unsigned char *data;  /* of the first row */
    int64_t stride, bytes;      /* from row to row; of a row */
    int64_t ahead;              /* prefetch distance in bytes, of the first row */
    int64_t ahead_less_per_row; /* bytes that it shrinks by from row to row */
    bool jumps;                 /* it leads elsewhere, though it does not shrink */
    int rows;
    int tokens; /* attention: 2 where a row is two short heads, which fill a chunk together */
    code_coefs_t scale, zp;
    float_codes_t floats;
    int_codes_t ints;
} code_rows_t;

/* Whether something else than the rows that follow is prefetched. */
static inline bool goes_elsewhere(const code_rows_t *rows)
{
    return rows->ahead_less_per_row != 0 || rows->jumps;
}

/* ---- codes in registers ---------------------------------------------------------------------- */

/* How a chunk of one data type decodes into vectors of floats, in whatever order of elements is
 * cheapest: the other operand (and the result) is brought into that order instead, once. Vectors
 * whose lanes belong to the same groups make a class, which has one vector of coefficients. */
typedef struct code_layout {
    int lanes;            /* of a vector */
    int vectors, classes; /* of a chunk */
    int elems;            /* of a chunk; 0: no such type */
    int multiple;         /* a row has a multiple of this many elements */
    int (*element)(int vector, int lane);
} code_layout_t;

enum {
    WIDEST_CHUNK = 128, /* elements of a vector register of codes, at most */
    CODE_TYPES = 72     /* data types are below this */
};

/* Where scales and zero points of rows go that are multiplied with weights and summed. */
typedef enum applied {
    NOWHERE,    /* there are none */
    IN_WEIGHTS, /* weights have the scales, one for each group of a row */
    IN_WEIGHTS_SHIFTED,
    /* Codes are scaled, after zero points have been subtracted: by chunk of a row, or fine. */
    BY_CHUNK,
    BY_LANE,
    /* Coefficients [chunk][vector][lane], the same for all rows. Sums are scaled, without or with
     * zero points. */
    IN_SUMS,
    IN_SUMS_SHIFTED,
    APPLIED_KINDS
} applied_t;

/* ---- numbers --------------------------------------------------------------------------------- */

/* Bits of 2^-100 and of 2^100: between them, products with codes and their sums stay floats,
 * whatever they are scaled with later. */
enum { PRODUCT_RANGE_LEAST = 0x0d800000, PRODUCT_RANGE_BEYOND = 0x71800000 };

/* Of the bits of a magnitude. Where it is the largest one of a row, the other elements of the row
 * may be anything below it. */
static inline bool is_in_product_range(int32_t bits)
{
    return (bits == 0) |
           ((uint32_t)bits - PRODUCT_RANGE_LEAST < PRODUCT_RANGE_BEYOND - PRODUCT_RANGE_LEAST);
}

/* ---- prefetching ----------------------------------------------------------------------------- */

/* Prefetch distance in bytes for rows of codes: far enough ahead to hide the latency of memory, and
 * across the end of a page, where the hardware prefetcher stops. */
enum { READ_AHEAD = 6144 };

/* How far ahead the cursor of a product of a few rows at a time is. */
enum { NEAR_AHEAD = 2048 };

/* A prefetch cursor: it walks rows ahead of the computation line after line, in order of addresses.
 * Where lines are prefetched in the order of computing instead, several rows side by side or a
 * block column by column, a Zen 3 loses 20 to 45 % of its bandwidth. */
typedef struct fetch_cursor {
    uintptr_t at, end;   /* the next address, which may lie outside of memory; where its row ends */
    int64_t bytes, skip; /* of a row; between rows */
} fetch_cursor_t;

/* A cursor that begins `ahead` bytes after p, for rows of `bytes` bytes that lie `stride` bytes
 * apart. Rows without gaps are one long row. */
static inline fetch_cursor_t cursor_at(const unsigned char *p, int64_t ahead, int64_t bytes,
                                       int64_t stride)
{
    const uintptr_t at = (uintptr_t)p + (uintptr_t)ahead;
    return (fetch_cursor_t){.at = at,
                            .end = stride == bytes ? UINTPTR_MAX : at + (uintptr_t)bytes,
                            .bytes = bytes,
                            .skip = stride - bytes};
}

/* Prefetches the line at the cursor, and moves the cursor by `bytes`, which is at most a line. */
static inline void fetch_next(fetch_cursor_t *c, int bytes)
{
    fetch_line((const void *)c->at);
    c->at += (uintptr_t)bytes;
    if (__builtin_expect(c->at >= c->end, false)) {
        c->at = c->end + (uintptr_t)c->skip;
        c->end = c->at + (uintptr_t)c->bytes;
    }
}

/* Of n rows that are left, how many the next call of a micro-kernel takes. */
static inline int rows_batch(int n)
{
    return n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

/* The same where there are micro-kernels for three rows, too: attention with three query heads for
 * each head of the cache is common. */
static inline int queries_batch(int n)
{
    return n < 4 ? n : 4;
}

/* How many sums of each row there may be, of `most` in all: three rows take as few as four do, so
 * that these divide a chunk evenly. */
static inline int sums_of_row(int most, int rows)
{
    return most / (rows == 3 ? 4 : rows);
}

/* Each of n values becomes `times` of them. */
static inline void repeat_each(float *x, int64_t n, int64_t times)
{
    for (int64_t i = times > 1 ? n - 1 : -1; i >= 0; i--) {
        const float value = x[i];
        for (int64_t k = 0; k < times; k++) {
            x[i * times + k] = value;
        }
    }
}

#endif
