/* Rows of codes times activations in integers, for the fpmath modes that allow it: products of
 * codes with activations of 8 or 16 bits are exact, and so are their sums.
 *
 * A row of codes is a token's head of K or V (or the short heads of two tokens), or a
 * column of a weight matrix that lies along K. It is read in chunks of 64 bytes, and a chunk
 * consists of four quads of 16 bytes, inside which scales and zero points do not change. A code
 * becomes a byte u = code + offset >= 0. Four rows are read together: a vector of "corners" holds
 * one number for each quad of each of them, in lane 4 * quad + row.
 *
 * Activations are quantised quad by quad, x = scale_x * q (limbs.h). Then
 *
 *   x . row  = sum over quads of  scale * scale_x * (sum over the quad of q (u - zp - offset))
 *
 * For P V the weights p * scale of a block of tokens take the part of the activations; they are
 * quantised for each quad of the row by the largest of the block:
 *
 *   out += scale_w * (sum over the tokens of w (u - zp - offset))
 *
 * Zero points of V that are floats are multiplied with the same w, so that an error of w meets the
 * value and not the code. K has none here: the driver adds them to the scores. */
#ifndef SINTER_SRC_UKERNELS_CODES_H
#define SINTER_SRC_UKERNELS_CODES_H

#include <stdbool.h>
#include <stdint.h>

#include <sinter/sinter_types.h>

#include "backend_xsmm/ukernels/few_rows.h"
#include "backend_xsmm/ukernels/limbs.h"
#include "base/features.h"

enum {
    CODES_CHUNK = 64,  /* bytes */
    CODES_QUADS = 4,   /* in a chunk */
    CODES_ROWS = 4,    /* rows of codes that are read together */
    CODES_CHUNKS = 4,  /* most in a row of K or V: a head of 256 bytes */
    CODES_SPAN = 128,  /* rows of V whose weights share a scale */
    CODES_QUERIES = 8, /* most queries */
    CODES_BATCH = 4,   /* most queries that V is read for at a time */
    CODES_BLOCKS = 8   /* of rows of V whose products are summed in words, most */
};

/* How codes become bytes. Those behind CODES_FORMS do not, and are floats of 6 or 8 bits: they lie
 * in tiles (tiles.h). */
typedef enum codes_form {
    CODES_NIBBLES,
    CODES_TABLE,
    CODES_BYTES,
    CODES_FORMS,
    CODES_E5M2,
    CODES_E4M3,
    CODES_E3M2,
    CODES_E2M3
} codes_form_t;

/* A data type of codes. */
typedef struct codes_type {
    codes_form_t form;
    int elems; /* of a chunk; 0: no such type */
    int flip;  /* nibbles and bytes: u = code ^ flip; a table: u = table[code] */
    int offset;
    float unit;             /* a code's value is unit * (u - offset) */
    int (*element)(int at); /* the element of a chunk at a place of the sums of P V */
} codes_type_t;

/* NULL: products in integers do not take this type. */
const codes_type_t *codes_type(sinter_data_type_t type);

/* What one row of activations is where one chunk of codes meets it (limbs.h). */
typedef struct limbs {
    int8_t byte[2][2][CODES_CHUNK]; /* [high, low][even, odd codes of 4 bits] */
    float scale[16];                /* by corner */
    int32_t sum[16];                /* by corner: of the quad */
} limbs_t;

/* A chunk, or a tile, of rows of codes as activations, of which n elements are there: their values
 * times `factor` are integers. Element e of row r is x[r * ldx + e]; its quad i has scale[r * ld +
 * i] and zp[r * ld + i]. In a tile, all elements have the scale and the zero point of quad 0. */
typedef struct codes_raw {
    const float *x, *scale, *zp;
    int64_t ldx, ld;
    int n;
    float factor;
} codes_raw_t;

/* All queries. */
typedef struct codes_query {
    limbs_t chunk[CODES_CHUNKS][CODES_QUERIES];
} codes_query_t;

/* The weights of a block of V for one chunk of its rows. */
typedef struct codes_weights {
    int8_t byte[CODES_SPAN / CODES_ROWS][CODES_BATCH][2][16]; /* ..., [row][quad] of four rows */
    float scale[CODES_BATCH][16];                             /* of the quad of each corner */
    int32_t shift[CODES_BATCH][16];                           /* the sum of w (zp + offset) */
    float zp_offset[CODES_BATCH][16]; /* floating zero points: the sum of w zp; shift has none */
    /* Without VNNI: what sums of words begin with, for each block of rows, limb and quad. */
    int32_t start[CODES_BLOCKS][2 * CODES_BATCH][4];
} codes_weights_t;

/* Coefficients of four lines: n values of each, which follow one another. Fewer than a vector of
 * them are f32, with numbers behind up to a vector. */
typedef struct codes_units {
    sinter_data_type_t type; /* f32, f16 or bf16 */
    const unsigned char *line[CODES_ROWS];
    int n;
} codes_units_t;

/* s[query][token] = q . k; lds at least the tokens rounded up to 32, all of which are written. Rows
 * of K or V have scales and, of integers, zero points [token][groups], zeros for the tokens that
 * the last four rows lack, and `pick` of the scales says for [chunk][corner] where both are, from
 * the first of four rows on. */
typedef void (*codes_qk_t)(const code_rows_t *k, int queries, const codes_query_t *q, float *s,
                           int64_t lds);
/* One chunk of acc[query][..] += p V, for at most CODES_SPAN rows and CODES_BATCH queries. w: the
 * weights that `weigh` made for this chunk, or for the first one where a row has one scale. */
typedef void (*codes_pv_t)(const code_rows_t *v, int chunk, const codes_weights_t *w, float *acc,
                           int64_t ldacc);

/* The inner loops, in order of preference; what rows each takes, attention_decode.c of the driver
 * says. Across: several queries share four tokens that are transposed. Pairs and words: sums of
 * products stay in 16 bits, for several queries and for one. Whole: of a whole number of chunks. */
enum { CODES_QK_ACROSS, CODES_QK_ONE_CHUNK, CODES_QK_TWO_CHUNKS, CODES_QK_ANY, CODES_QK_LOOPS };
enum {
    CODES_PV_WHOLE_PAIRS,
    CODES_PV_PAIRS,
    CODES_PV_WHOLE_WORDS,
    CODES_PV_WORDS,
    CODES_PV_WHOLE,
    CODES_PV_ANY,
    CODES_PV_LOOPS
};

/* The micro-kernels of one instruction set. */
typedef struct codes_table {
    /* Quantises one chunk of each of `rows` rows, which begin ldx floats apart and have zeros
     * behind their ends. False: a quad has a NaN or an infinity, or its largest element is too
     * small or too large. */
    bool (*quantise)(const codes_type_t *type, const float *x, int64_t ldx, int rows, int limbs,
                     limbs_t *to);
    /* The same of codes less their zero points. It is exact if these differences fit `limbs`
     * bytes. */
    void (*encode)(const codes_type_t *type, const codes_raw_t *a, int rows, int limbs,
                   limbs_t *to);
    /* By limbs - 1; whether there are zero points. NULL: there is none, or another one is better
     * for all such rows. */
    codes_qk_t qk[CODES_QK_LOOPS][CODES_FORMS][2][2];
    codes_pv_t pv[CODES_PV_LOOPS][CODES_FORMS][2][CODES_BATCH]; /* by limbs and by queries - 1 */
    /* The weights for at most CODES_SPAN rows and CODES_BATCH queries, one for each chunk of a row.
     * False: some weight is no finite number. */
    bool (*weigh)(int queries, int limbs, const code_rows_t *v, const float *p, int64_t ldp,
                  codes_weights_t *w);
    /* out[row][line] for the four lines of w; q: [chunk][rows]. Chunk c has the coefficients of the
     * four lines from at[(c >> shift) * step] on: for all of it (steps 0, 4), for each half (8) or
     * for each quad (16), [unit][line]. Zero points are s32 and have the offset of codes, or are
     * floats without it. */
    void (*lines)(const code_rows_t *w, int rows, int limbs, const limbs_t *q, float *out,
                  int64_t ldo);
    /* Coefficients of four lines as [unit][line], with zeros up to a multiple of 4 units; and the
     * same rounded to integers with `shift` added. */
    void (*by_unit)(const codes_units_t *x, float *out);
    void (*by_unit_s32)(const codes_units_t *x, int32_t shift, int32_t *out);
    /* Adds offsets of four lines times sums of activations, [row][unit] with rows lds apart and
     * zeros behind up to a vector, to out[row][line]. */
    void (*add_units)(const codes_units_t *x, const float *sums, int64_t lds, int rows, float *out,
                      int64_t ldo);
    int lanes; /* floats of a vector */
    /* One instruction sums products of bytes. Without it, products of 8-bit codes with floats are
     * faster in floats than in limbs: there are no loops for K and V of such codes then. */
    bool sums_bytes;
} codes_table_t;

/* The best one for a set of features; NULL: there is none. */
const codes_table_t *codes_table(features_t features);

#endif
