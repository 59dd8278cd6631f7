/* Rows of activations times a strip of weights that lie in tiles (numeric/tiles.h).
 *
 * A dword of a line belongs to one column, so an element of the activation is the same for a whole
 * vector: a broadcast from memory. Nothing is summed across lanes, and the scales of 16 columns are
 * one load. A thread reads codes in order of addresses.
 *
 * The products read coefficients as floats only. A driver has them made for a piece of a strip at a
 * time, by `values` where they lie in tiles. */
#ifndef SINTER_SRC_UKERNELS_TILES_H
#define SINTER_SRC_UKERNELS_TILES_H

#include <stdbool.h>
#include <stdint.h>

#include "backend_xsmm/ukernels/codes.h"
#include "numeric/tiles.h"

enum {
    TILES_ROWS = 16, /* most rows at once */
    /* The most tiles whose coefficients are converted to floats at a time. Their codes then stay in
     * the second-level cache for further rows, and the coefficients in the first-level cache. */
    TILES_PIECE = 64,
    /* Floats from a row of `multiply` to the next one: a constant, or each row of a micro-kernel
     * takes a register for its address. */
    TILES_LDX = 272
};

/* How scales or offsets are stored. Integers have scales of their own. The last two, plus n: n bits
 * of each are kept. */
typedef enum tiles_values {
    TILES_F32,
    TILES_F16,
    TILES_BF16,
    TILES_E8M0,
    TILES_E4M3,
    TILES_S8,
    TILES_U8,
    TILES_KEPT_S8 = 8,
    TILES_KEPT_U8 = 16
} tiles_values_t;

/* Scales, offsets or zero points of a strip as they are stored: lines of TILES_COLUMNS, one for
 * each group. */
typedef struct tiles_plane {
    const unsigned char *data; /* NULL: there are none */
    tiles_values_t type;
    /* What they are multiplied with, and how many lines share one line of that; NULL: nothing. */
    const unsigned char *by;
    tiles_values_t by_type;
    int64_t by_lines;
    int64_t columns; /* that share a value */
    int value;       /* the place in a line of the value of the strip's first column */
} tiles_plane_t;

/* Tiles of a strip, TILES_COLUMNS columns of the weights, one after the other. Coefficients are
 * floats, wherever they come from: a line of TILES_COLUMNS for each group. */
typedef struct tiles_strip {
    const unsigned char *codes;
    /* Floats of 6 bits whose planes of 2 bits lie in tiles of their own; NULL: they do not. */
    const unsigned char *high;
    int kept; /* of codes of 8 bits, as tiles_kept says; 0: all bits */
    int zero; /* what stands for a code of 0 then, else 0 */
    int tiles;
    const float *scale;
    const float *zp, *offset; /* NULL: there are none; never both */
    /* Of `floats`, of each element of K: what is taken off its codes, instead of zero points, in
     * groups without halves. whole: of codes of 4 bits, these are zero points that are whole
     * numbers, plus `tiles_less`; else zero points as they are. */
    const float *less;
    bool whole;
    int64_t group, left;       /* tiles that share a scale; how many the first group still has */
    int64_t zp_group, zp_left; /* the same of zero points or offsets */
    /* The first and the last 16 elements of a tile have scales, or offsets, of their own: two
     * lines. */
    bool halves, offset_halves;
    /* Of `ints`: strips that follow this one. Their codes and their coefficients lie that many
     * bytes and floats behind its own, and their columns behind its own. */
    int more;
    int64_t codes_apart, coefs_apart;
} tiles_strip_t;

/* How codes of a type become numbers; NULL: tiles of codes are not read. Floats of 6 and 8 bits
 * have no products of integers. */
static inline const codes_type_t *tiles_type(sinter_data_type_t type)
{
    static const codes_type_t floats[] = {[sinter_f8_e5m2] = {.form = CODES_E5M2},
                                          [sinter_f8_e4m3] = {.form = CODES_E4M3},
                                          [sinter_f6_e3m2] = {.form = CODES_E3M2},
                                          [sinter_f6_e2m3] = {.form = CODES_E2M3}};
    const bool is_float =
        (size_t)type < sizeof floats / sizeof *floats && floats[type].form > CODES_FORMS;
    return is_float ? &floats[type] : codes_type(type);
}

/* Rows that there is room for. */
static inline int tiles_rows(int rows)
{
    return rows <= 2 ? rows : rows <= 4 ? 4 : rows <= 8 ? 8 : TILES_ROWS;
}

/* out[row * ldo + column] += the product of any number of rows of floats, TILES_LDX apart, with
 * tiles of a strip as `load` has unpacked them. It is one chain, which starts at 0. Meanwhile
 * `bytes` from `next` on come into the second-level cache. */
typedef struct tiles_product {
    const float *b;
    int k, rows; /* elements of K: whole tiles */
    const float *x;
    float *out;
    int64_t ldo;
    const unsigned char *next;
    int bytes;
} tiles_product_t;

/* Where an element of K of a line that is copied comes from: its line, in bytes, and the first bit
 * in a dword; and the first bit that it goes to. */
typedef struct tiles_move {
    int64_t line;
    int down, up;
} tiles_move_t;

/* What probabilities of tokens become before they meet tiles of V, whose K is the tokens: weights.
 * All have a value for each token. Where a probability is 0, the others may be anything. */
typedef struct tiles_weights {
    const float *p; /* rows ldp floats apart */
    int64_t ldp;
    const float *scale; /* NULL: none */
    const float *less;  /* what is taken off the codes, where weights become integers; NULL: none */
    bool whole;         /* these are integers, for all tokens */
    const float *plus;  /* what a probability is multiplied with besides; NULL: none */
    int tiles;          /* of tokens */
    bool checks_tiny;   /* scales below 2^-60 are refused */
} tiles_weights_t;

/* The micro-kernels of one instruction set. Rows as integers are [tile][tiles_rows(rows)], of 32
 * bytes of each limb, a scale, a sum, and the sum of the first half. */
typedef struct tiles_table {
    /* Quantises one tile of K of each row, in rows ldx floats apart; to: of this tile. False: a row
     * has a NaN or an infinity, or its largest element is too small or too large. NULL: there are
     * no products in integers. */
    bool (*quantise)(const float *x, int64_t ldx, int rows, int limbs, const limb_rows_t *to);
    /* The same of codes less their zero points, with one scale and one zero point for each row. It
     * is exact if these differences fit `limbs` bytes. NULL where quantise is. */
    void (*encode)(const codes_raw_t *a, int rows, int limbs, const limb_rows_t *to);
    /* Probabilities times scales, as integers `to` or with limbs 0 as floats x, which `ints` and
     * `floats` read. add[row]: the sum of the rounded weights times -less, or that of probabilities
     * times plus. Gives why there are no such weights; NULL: there are. */
    const char *(*weigh)(const tiles_weights_t *from, int rows, int limbs, const limb_rows_t *to,
                         float *x, float *add);
    /* to[line][TILES_COLUMNS]: some lines of a plane from line `first` on, as floats, times `unit`.
     * Prefetches the same number of lines that follow them. */
    void (*values)(const tiles_plane_t *from, int64_t first, int lines, float unit, float *to);
    /* out[row * ldo + column] += the product. Scales are times the unit of the type. table: the
     * byte of each code of 4 bits that is no integer. */
    void (*ints)(const tiles_strip_t *b, const codes_type_t *type, const unsigned char *table,
                 const limb_rows_t *a, int rows, int limbs, float *out, int64_t ldo);
    /* The same of floats x, [tile][tiles_rows(rows)][32], in the precision of floats. values: by
     * codes of 4 bits as they lie in tiles; sums: of the first and of the last half of each tile of
     * a row, [tile][...][2]. each: for one row of any magnitude, whose codes are dequantised before
     * they are multiplied; sums are not read. */
    void (*floats)(const tiles_strip_t *b, const codes_type_t *type, const float *values,
                   const float *x, const float *sums, int rows, bool each, float *out, int64_t ldo);
    /* to[k][TILES_COLUMNS]: the values of all tiles. NULL: `floats` takes `each` only. */
    void (*load)(const tiles_strip_t *b, const codes_type_t *type, const float *values, float *to);
    /* The product with b, a strip of plain floats (f32, f16 or bf16) that has `tiles` tiles. Unlike
     * `floats`, it overwrites `out` and takes rows of any magnitude. NULL where `load` is. */
    void (*plain)(const unsigned char *b, sinter_data_type_t type, int64_t tiles, const float *x,
                  int rows, float *out, int64_t ldo);
    /* As `load`, for `tiles` tiles of b from tile `first` on. */
    void (*load_plain)(const unsigned char *b, sinter_data_type_t type, int64_t first, int tiles,
                       float *to);
    /* NULL where `load` is. */
    void (*multiply)(const tiles_product_t *product);
    /* to[token]: what tokens of some strips have for one of their groups,
     * from[strip][groups][token], plus one of TILES_K numbers by its place in a tile. NULL where
     * `load` is. */
    void (*of_group)(const float *from, int groups, int strips, const float *plus, float *to);
    int raised_rows; /* most rows for which `floats` takes nibbles as raised */
    /* to: one strip of the n <= 16 columns `column`, in order, of a matrix whose strips have so
     * many lines of dwords. Prefetches as many lines from `next` on. NULL where `load` is. */
    void (*copy_columns)(const unsigned char *from, int64_t lines, const int64_t *column, int n,
                         unsigned char *to, const unsigned char *next);
    /* to: in each of some strips, `strip` bytes apart, all lines of a plane of a tile, of 2, 4, 8,
     * 16 or 32 bits. moves: 32 of them, line by line. Prefetches as many lines from `next` on. NULL
     * where `load` is. */
    void (*copy_elements)(const unsigned char *from, int bits, const tiles_move_t *moves,
                          int strips, int64_t strip, unsigned char *to, const unsigned char *next);
} tiles_table_t;

/* What is subtracted from a code of 4 bits, besides its zero point, by its place k in a tile: the
 * code that stands for 0, and if the code is raised, which means that it lies in the fraction of a
 * float whose exponent is constant, that float. */
static inline float tiles_less(bool raised, float zero, int k)
{
    const int nibble = k % 4 * 2 + k / 16;
    return (raised ? (float)(1 << (23 - nibble % 4 * 4)) : 0) + zero;
}

/* The best one for a set of features; NULL: there is none. */
const tiles_table_t *tiles_table(features_t features);

#endif
