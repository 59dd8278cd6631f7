/* Matmul of many rows in integers. Products of codes with activations of 8 or 16 bits are exact,
 * and so are their sums over a block of K, inside which no scale and no zero point changes. Where A
 * holds floats, the fpmath mode must allow this; where A holds codes, nothing is lost in any mode.
 *
 * Each row of floats is quantised block by block, by the largest element of the block, to signed
 * integers a of 8 or of 16 bits: x = scale * a.
 *
 * **Words.** Both factors are words of 16 bits. Those of B are less their zero points, and so are
 * those of A where A holds codes:
 *
 *   c += scale_a * scale_b * (sum over the block of a w)
 *
 * **Bytes.** Of A they are unsigned, 128 being added, because one factor of a product of bytes must
 * not be negative. The bytes w of B are signed. With z = w - (the code's value in units of its
 * scale):
 *
 *   c += scale_a * scale_b * (sum over the block of (a + 128) w  -  128 * sum of w  -  z * sum
 *   of a)
 *
 * The second term depends on B alone, so the sums start from it. Codes of A become bytes a' of
 * value scale_a * (a' - o), where o is the zero point plus what made the byte unsigned. Where all
 * of A has the same o, the sums start from -o * (sum of w); otherwise o * (sum of w) is subtracted
 * from the sums of each row at their end.
 *
 * Where no instruction sums products of bytes, four pairs of products are added in 16 bits before
 * they are widened. They stay below 2^15 if |w| <= 16: 4 * 2 * 255 * 16 = 32640. If |w| <= 8, as in
 * integers of 4 bits less 8, eight pairs are added: 8 * 2 * 255 * 8 = 32640. If |w| <= 32, as where
 * tiles keep six bits, two are. Wider codes are words there. */
#ifndef SINTER_SRC_UKERNELS_MATMUL_BLOCKS_H
#define SINTER_SRC_UKERNELS_MATMUL_BLOCKS_H

#include <stdbool.h>
#include <stdint.h>

#include "backend_xsmm/ukernels/limbs.h"
#include "base/features.h"

enum {
    BLOCKS_K = 256,    /* most elements of K processed together */
    BLOCKS_STRIP = 64, /* columns of B */
    BLOCKS_LEAST = 16, /* elements of a block, but for the last one, */
    BLOCKS_LONGEST = 128,
    BLOCKS_MOST = BLOCKS_K / BLOCKS_LEAST,
    BLOCKS_LONG = 1152, /* bytes from one long row of A to the next */
    BLOCKS_NARROW = 16, /* the largest |w| of sums of four pairs in 16 bits, */
    BLOCKS_NIBBLE = 8,  /* of sums of eight, */
    BLOCKS_SIX = 32,    /* of sums of two */
    BLOCKS_ROWS = 4,    /* there is memory for rows of A and C up to a multiple of this */
    BLOCKS_FETCHES = 3, /* operands that are fetched: codes, scales, zero points */
    BLOCKS_ORDER = 16,  /* bytes that are brought into another order together */
    BLOCKS_VECTOR = 64  /* bytes behind the last one that gather may touch */
};

/* How elements are stored. */
typedef struct blocks_form {
    bool words;
    /* In each BLOCKS_ORDER bytes of a row of A, byte i is byte order[i] of the row: the order that
     * pack_codes finds cheapest. NULL: as they are. */
    const uint8_t *order;
    float factor, bias; /* of codes of A: a' = code * factor + bias */
} blocks_form_t;

/* A strip of B over at most BLOCKS_K elements. Rows of A over as many are a limb_rows_t of
 * [row][BLOCKS_K] bytes or words and [row][BLOCKS_MOST] scales, sums of bytes, and o of codes. Long
 * rows of A have up to BLOCKS_LONG bytes and one scale for all. A strip of B for them has lines of
 * 16 columns, so that tiles of s8 are such a strip. */
typedef struct blocks_b {
    int8_t *byte;   /* bytes: [k / 4][column][4]; words: [k / 2][column][2] */
    int64_t apart;  /* of long rows: bytes from TILES_COLUMNS columns to the next ones */
    float *scale;   /* [block][column] */
    int32_t *start; /* bytes, [block][column]: initial value of each accumulator: -zp_a * sum(w) */
    int32_t *zp;    /* bytes, [block][column]: z, as a float where these are no integers */
    bool shifted;   /* there is a z */
    bool floats;    /* z is a float */
    bool own;       /* rows of A have each their o */
    bool nibbles;   /* |w| <= BLOCKS_NIBBLE */
    bool six;       /* |w| > BLOCKS_NARROW, but not more than BLOCKS_SIX */
} blocks_b_t;

/* Codes of 4 or 8 bits in columns that are contiguous along K; n, block: multiples of the codes in
 * a dword. Or in tiles (numeric/tiles.h), from the first column of a strip on; n, block, skip:
 * multiples of 4. */
typedef struct blocks_codes {
    const unsigned char *data; /* of the first column, or of a tile of the first strip */
    int64_t stride;            /* bytes from column to column, or from strip to strip */
    int skip;                  /* elements of a tile that are not wanted */
    int64_t apart;             /* of tiles, for long rows: as in blocks_b_t; else 0 */
    int columns, n, block;     /* elements of a column and of a block of it */
    int bits;                  /* 4 or 8 */
    int kept;                  /* of 8 bits, in tiles, as tiles_kept says; 0: all */
    const int8_t *table;       /* of 4 bits: by code */
    uint8_t flip;              /* of 8 bits: w = ((code - less) ^ flip) as a signed byte */
    int less;                  /* 0 where all bits are kept */
    const float *zp;           /* [block][column]: what is subtracted from w; NULL: nothing */
    float zp_less;             /* zero points are less by this */
    int32_t factor;            /* start = factor * (sum of w) */
} blocks_codes_t;

/* Lines of memory that are wanted next. Products fetch them into the second-level cache, a few at
 * a time: a CPU drops prefetches beyond those that it can have under way. */
typedef struct blocks_fetch {
    const unsigned char *data; /* of the first line */
    int64_t stride;            /* bytes from line to line */
    int lines, bytes;          /* how many; of a line */
} blocks_fetch_t;

/* A product of n elements of K, in blocks. */
typedef struct blocks_product {
    int rows, n, block;
    int columns; /* of B; more may be computed, up to a multiple of 32, or of `together` */
    bool words;
    bool long_rows; /* of A: B has one block and no zero points */
    bool first;     /* of long rows: c = the products, not += */
    const limb_rows_t *a;
    const blocks_b_t *b;
    float *c; /* [row][ldc] */
    int64_t ldc;
    blocks_fetch_t next[BLOCKS_FETCHES];
} blocks_product_t;

/* The products x[i] * factor[i] of n elements, a multiple of 16, of each of `rows` rows. */
typedef struct blocks_weights {
    const float *x;
    int64_t ldx;
    const float *factor, *zps; /* zps: NULL if B has none that are floats */
    int rows, n, block;
    float *zp_offset; /* with zps, [row]: the sum of the products, rounded as they are, times zps */
} blocks_weights_t;

/* Rows that are copied from bytes: row r, up to n elements, is the runs at from[r] + run[i], one
 * after the other. */
typedef struct blocks_gather {
    const uint8_t *const *from;
    const int64_t *run;
    const int *length; /* of each run */
    int rows, runs, n, block;
    int apart;            /* bytes between rows of A */
    bool words;           /* they become words less `zero`; both are signed bytes */
    const uint8_t *order; /* as in blocks_form_t */
    uint8_t zero;         /* the byte of 0, which also follows the last element */
    bool sums;            /* they are wanted */
} blocks_gather_t;

/* Codes of results: to[i] = saturate(round(f(x[i] + bias[i]) / scale) + zp); 0 for NaN. */
typedef struct blocks_codes_of {
    const float *bias; /* NULL: none */
    bool relu;         /* f; else nothing */
    bool is_signed;
    float scale, zp;
} blocks_codes_of_t;

typedef struct blocks_table {
    int together;    /* columns that long rows meet at a time */
    bool sums_bytes; /* one instruction sums products of bytes, of whatever w */
    /* Quantises n elements of each of `rows` rows, which begin ldx floats apart. False: some are
     * NaN or infinite, or too small. */
    bool (*quantise)(const blocks_form_t *form, const float *x, int64_t ldx, int rows, int n,
                     int block, const limb_rows_t *to);
    /* n codes of each of `rows` rows. The caller has set scale and offset of `to`. */
    void (*encode)(const blocks_form_t *form, const float *x, int64_t ldx, int rows, int n,
                   int block, const limb_rows_t *to);
    /* Products as unsigned bytes, of which nothing is to be subtracted: none is negative. False as
     * of quantise. */
    bool (*weigh)(const blocks_weights_t *weights, const limb_rows_t *to);
    /* One block of B from rows of BLOCKS_STRIP values: w = value * by - offset, 0 up to a multiple
     * of 4 rows; of bytes, start = factor * (sum of w). */
    void (*pack)(const float *x, int n, float by, float offset, int32_t factor, int8_t *byte,
                 int32_t *start);
    void (*pack_words)(const float *x, int n, float by, int8_t *byte);
    /* The same of codes, all blocks, in the order that stands in blocks_order; of bytes, start is
     * [block][column]. */
    void (*pack_codes)(const blocks_codes_t *codes, bool words, int8_t *byte, int32_t *start);
    /* The same of tiles. Bytes stay in order; words are in that of codes of 8 bits. */
    void (*pack_tiles)(const blocks_codes_t *codes, bool words, int8_t *byte, int32_t *start);
    /* Of tiles of s8, for long rows: what pack_tiles leaves in start. */
    void (*sum_tiles)(const blocks_codes_t *codes, int32_t *start);
    /* c[row][column] += the products. Rows up to a multiple of BLOCKS_ROWS may be anything, and
     * become anything. */
    void (*product)(const blocks_product_t *p);
    /* BLOCKS_VECTOR bytes behind each run may be read, and behind the last row be written. */
    void (*gather)(const blocks_gather_t *how, const limb_rows_t *to);
    /* n results; up to a multiple of BLOCKS_STRIP may be read. */
    void (*store)(const blocks_codes_of_t *how, const float *x, int n, unsigned char *to);
} blocks_table_t;

/* NULL: this ISA has none. */
const blocks_table_t *blocks_table(features_t features);

/* Rows of A from `row` on. */
static inline limb_rows_t blocks_from(const limb_rows_t *a, bool words, int64_t row)
{
    return limb_rows_from(a, row * (words ? 2 : 1) * BLOCKS_K, row * BLOCKS_MOST);
}

/* Rows that there must be memory for. */
static inline size_t blocks_rows(int rows)
{
    return ((size_t)rows + BLOCKS_ROWS - 1) / BLOCKS_ROWS * BLOCKS_ROWS;
}

/* The order of elements that pack_codes makes, for blocks_form: of codes of `bits` bits in bytes or
 * in words; NULL: as they are in memory. */
static inline const uint8_t *blocks_order(int bits, bool words)
{
    /* Elements 0, 2, 4, 6, 1, 3, 5, 7: the lower and the upper halves of four bytes. */
    static const uint8_t nibbles[BLOCKS_ORDER] = {0, 2,  4,  6,  1, 3,  5,  7,
                                                  8, 10, 12, 14, 9, 11, 13, 15};
    /* Elements 0, 4, 2, 6, 1, 5, 3, 7: of those, the lower and the upper bytes of two words. */
    static const uint8_t nibble_words[BLOCKS_ORDER] = {0, 1, 8,  9,  4, 5, 12, 13,
                                                       2, 3, 10, 11, 6, 7, 14, 15};
    /* Elements 0, 2, 1, 3. */
    static const uint8_t byte_words[BLOCKS_ORDER] = {0, 1, 4,  5,  2,  3,  6,  7,
                                                     8, 9, 12, 13, 10, 11, 14, 15};
    return bits == 4 ? (words ? nibble_words : nibbles) : words ? byte_words : NULL;
}

#endif
