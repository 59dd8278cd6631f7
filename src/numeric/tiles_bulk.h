/* Weights into tiles at the speed of memory. Bit for bit, tiles.c is the specification. */
#ifndef SINTER_SRC_NUMERIC_TILES_BULK_H
#define SINTER_SRC_NUMERIC_TILES_BULK_H

#include "base/features.h"
#include "numeric/tiles.h"

/* As tiles_pack_codes, tiles_pack_values and tiles_unpack_codes. Where the features have AVX2,
 * whole strips and tiles go by vectors if their elements follow one another along K or N and begin
 * a byte; all others go through the functions of numeric/tiles.h. So does unpacking codes of 6 bits
 * or of which some bits are kept, or codes of up to 8 bits that follow one another along N. */
bool tiles_bulk_pack_codes(features_t features, const groups_t *from, tiled_t as, int64_t K,
                           int64_t N, unsigned char *to);
bool tiles_bulk_pack_values(features_t features, const groups_t *from, tiled_t as, int64_t groups,
                            int64_t N, unsigned char *to);
void tiles_bulk_unpack_codes(features_t features, const unsigned char *from, tiled_t as, int64_t K,
                             int64_t N, const groups_t *to);

/* The functions of an instruction set. Sources are the first bytes of 16 columns or of some rows,
 * `apart` bytes from each other. What is flipped is flipped in every byte. */
typedef struct tiles_vectors {
    /* A strip of tiles of 4 bits, from columns of 16 bytes for each tile. */
    void (*nibbles_along_k)(const unsigned char *from, int64_t apart, int64_t tiles, uint8_t flip,
                            unsigned char *to);
    /* 8 elements of each column, n times, become 8 runs of 16 elements, n times. With dwords, these
     * are tiles of 8 bits, half a tile of 16 bits, or a quarter of one of 32. */
    void (*dwords_along_k)(const unsigned char *from, int64_t apart, int64_t n, unsigned char *to);
    void (*words_along_k)(const unsigned char *from, int64_t apart, int64_t n, unsigned char *to);
    void (*bytes_along_k)(const unsigned char *from, int64_t apart, int64_t n, uint8_t flip,
                          unsigned char *to);
    /* One tile of each of some strips from 32 rows; the tiles are `next` bytes apart. Strips of
     * bytes are a multiple of TILES_PAIR, of 4 bits of two pairs. Words are elements of 16 bits. */
    void (*nibbles_along_n)(const unsigned char *from, int64_t apart, int64_t strips, uint8_t flip,
                            unsigned char *to, int64_t next);
    void (*bytes_along_n)(const unsigned char *from, int64_t apart, int64_t strips,
                          unsigned char *to, int64_t next);
    void (*words_along_n)(const unsigned char *from, int64_t apart, int64_t strips,
                          unsigned char *to, int64_t next);
    void (*floats_along_n)(const unsigned char *from, int64_t apart, int64_t strips,
                           unsigned char *to, int64_t next);
    /* The planes of a tile of codes of n bits, from 1 to 6, made from a tile of 8 bits: `zero` is
     * added to each code. False: some do not fit. */
    bool (*keep)(const unsigned char *tile, int n, uint8_t zero, unsigned char *to);
    /* Some columns or rows of 32 codes of 6 bits as bytes, 32 of each. */
    void (*widen_6)(const unsigned char *from, int64_t apart, int n, unsigned char *to);
    /* The other way round: columns of 16 and of 32 bytes, of which a tile of 16 bits has two and
     * one of 32 bits four. */
    void (*to_nibbles_along_k)(const unsigned char *from, int64_t tiles, uint8_t flip,
                               unsigned char *to, int64_t apart);
    void (*to_bytes_along_k)(const unsigned char *from, int64_t tiles, unsigned char *to,
                             int64_t apart);
    /* 32 rows from one tile of each of some strips, which are `next` bytes apart. */
    void (*to_words_along_n)(const unsigned char *from, int64_t next, int64_t strips,
                             unsigned char *to, int64_t apart);
    void (*to_floats_along_n)(const unsigned char *from, int64_t next, int64_t strips,
                              unsigned char *to, int64_t apart);
} tiles_vectors_t;
enum { TILES_PAIR = 2 };

extern const tiles_vectors_t tiles_avx2;

#endif
