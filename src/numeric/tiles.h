/* How weights lie as kernels read them: in tiles.
 *
 * A strip is 16 columns of the weights with all of K. It consists of tiles of 32 elements of K,
 * one after the other. A tile consists of lines of 64 bytes: a dword for each column.
 *
 * - Codes of 4 bits have four lines; byte b of a dword of line j has the code of k = 4 j + b in its
 *   lower half and that of k = 16 + 4 j + b in its upper half. Of s4 the sign bit is flipped, so
 *   that codes count from zero.
 * - Codes of 8 bits have eight lines; byte b has that of k = 4 j + b.
 * - Codes of 6 bits, and of 2 bits, lie in planes, one after the other, of four bits, two bits and
 *   one bit, as the number of their bits is the sum of these; a plane of so many bits has as many
 *   lines. The first plane has the lowest bits of a code. Four bits lie as codes of 4 bits do. Of
 *   two bits, byte b of a dword of line j has those of k = 16 j + 4 i + b in its bits 2 i and
 *   2 i + 1; of one bit, byte b has that of k = 4 i + b in its bit i.
 * - Codes of 8 bits that fit n, from 1 to 6, are counted from zero, and lie in planes of n bits: of
 *   s8, the first one is -2^(n-1).
 * - Codes of s8 that are numbers of tiles_numbers lie as codes of 4 bits: the place of each.
 * - Plain floats, of weights without scales: of f32, line k has element k. Of f16 and bf16, line j
 *   has elements 2 j and 2 j + 1, in the lower and in the upper half of each dword.
 *
 * Scales, offsets and zero points have planes of their own: for each strip and each group of K,
 * those of 16 columns follow one another, integers as signed bytes, less 128 where their type is
 * u8. Integers of 8 bits that fit n, from 1 to 6, are counted from zero, as codes are, and also lie
 * in planes of four bits, two bits and one bit: of b bits, there are 2 b bytes, and byte c has the
 * value of column 2 b i + c in its bits from b i on. Columns and elements of K that the weights
 * lack are 0, and have scales and offsets of 0.
 *
 * Codes of caches may lie in blocks of 256 elements of K, each of which is a matrix of its own:
 * where tokens are elements of K, those of a block lie together. */
#ifndef SINTER_SRC_NUMERIC_TILES_H
#define SINTER_SRC_NUMERIC_TILES_H

#include "numeric/groups.h"

enum {
    TILES_COLUMNS = 16,
    TILES_K = 32,
    TILES_LINE = 4 * TILES_COLUMNS, /* bytes */
    TILES_BLOCK = 256               /* elements of K */
};

static inline int64_t tiles_strips(int64_t N)
{
    return N / TILES_COLUMNS + (N % TILES_COLUMNS != 0);
}

/* Tiles of a strip. */
static inline int64_t tiles_along(int64_t K)
{
    return K / TILES_K + (K % TILES_K != 0);
}

/* The bits that are flipped in a code of 4 bits when it is put into a tile. */
static inline int tiles_flip(sinter_data_type_t type)
{
    return type == sinter_s4 ? 8 : 0;
}

/* Types of floats that lie in tiles: of weights without scales, and of scales and offsets. */
static inline bool tiles_take_floats(sinter_data_type_t type)
{
    return type == sinter_f32 || type == sinter_f16 || type == sinter_bf16;
}

static inline bool tiles_are_values(tiled_t as)
{
    return as / TILED_CODES == TILED_VALUES / TILED_CODES;
}

/* The numbers of IQ4_NL of llama.cpp. */
extern const int8_t tiles_numbers[16];
enum { TILES_NUMBER = 7 }; /* in place of bits that are kept: the place of a number */

/* How many bits are kept, or TILES_NUMBER; 0: all. */
static inline int tiles_kept(tiled_t as)
{
    return (int)as % TILED_CODES;
}

/* Bits of a code in a tile, by what is kept of those of its type, and bytes of a tile. */
static inline int tiles_bits_kept(int kept, int bits)
{
    return kept == TILES_NUMBER ? 4 : kept > 0 ? kept : bits;
}

static inline int tiles_bits(tiled_t as, sinter_data_type_t type)
{
    return tiles_bits_kept(tiles_kept(as), dtype_traits(type)->bits);
}

static inline int tiles_bytes(int bits)
{
    return TILES_COLUMNS * TILES_K * bits / 8;
}

/* The byte of a tile that an element of 8, 16 or 32 bits begins at, all of whose bits are kept. */
static inline int tiles_place(int bits, int k, int column)
{
    const int in_dword = 32 / bits;
    return k / in_dword * TILES_LINE + column * 4 + k % in_dword * (bits / 8);
}

/* What is added to codes so that they count from zero in the bits that are kept. */
static inline int tiles_zero(int kept, sinter_data_type_t type)
{
    return kept == TILES_NUMBER ? 128 : kept > 0 && type == sinter_s8 ? 1 << (kept - 1) : 0;
}

/* Bytes of N columns: codes or floats of K elements, of so many bits in a tile, or values of so
 * many groups of K. False: too many. */
bool tiles_of_codes(int bits, int64_t K, int64_t N, int64_t *bytes);
bool tiles_of_values(tiled_t as, sinter_data_type_t type, int64_t groups, int64_t N,
                     int64_t *bytes);

/* Fills a plane: of codes or floats, or of values. Rows of `from` run along K; it is a matrix of
 * single elements. False: some integers do not fit the bits that are kept. */
bool tiles_pack_codes(const groups_t *from, tiled_t as, int64_t K, int64_t N, unsigned char *to);
bool tiles_pack_values(const groups_t *from, tiled_t as, int64_t groups, int64_t N,
                       unsigned char *to);

/* The other way round. `to` describes an output, as groups_output says. */
void tiles_unpack_codes(const unsigned char *from, tiled_t as, int64_t K, int64_t N,
                        const groups_t *to);
void tiles_unpack_values(const unsigned char *from, tiled_t as, int64_t groups, int64_t N,
                         const groups_t *to);

/* Take one column, or one element of K of all columns, from tiles: it becomes column 0 of `to`, or
 * row 0. Of codes of which some bits are kept, and of values, only a column. */
void tiles_take_column(const unsigned char *from, tiled_t as, int64_t K, int64_t column,
                       const groups_t *to);
void tiles_take_row(const unsigned char *from, int64_t K, int64_t N, int64_t row,
                    const groups_t *to);

/* Put one column, or one element of K of all columns, into tiles that are there: column `at` of
 * `from`, or row `at`. All bits of codes are kept. Of values, only a column. Others that share
 * bytes with them stay as they are. */
void tiles_put_column(const groups_t *from, int64_t at, tiled_t as, int64_t K, int64_t column,
                      unsigned char *to);
void tiles_put_row(const groups_t *from, int64_t at, int64_t K, int64_t N, int64_t row,
                   unsigned char *to);

/* The codes of a tile, of up to 8 bits, as bytes, [k][column], the sign bit of s4 as it was. */
void tiles_codes(const unsigned char *tile, tiled_t as, sinter_data_type_t type,
                 uint8_t (*to)[TILES_COLUMNS]);
/* Sixteen values of which so many bits are kept, as they count from zero. */
void tiles_kept_values(const unsigned char *from, int kept, uint8_t *to);

#endif
