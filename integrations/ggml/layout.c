/* Quantised tensors as planes: codes, scales, offsets, and the scales of scales and offsets. */
#include "layout.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "engine.h"

/* Unpacking is most of the work of loading a model, so nibbles go by vectors of 16 bytes. */
#define INLINE static inline __attribute__((always_inline))
typedef uint16_t words_t __attribute__((vector_size(16)));
typedef uint8_t bytes_t __attribute__((vector_size(16)));

/* The lower bytes of the words of x, then those of y. */
INLINE bytes_t lower_bytes(words_t x, words_t y)
{
    return __builtin_shufflevector((bytes_t)x, (bytes_t)y, 0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20,
                                   22, 24, 26, 28, 30);
}

/* ggml has elements i and i + half, which is 16 or 32, in one byte, Sinter neighbours. A word has
 * two bytes: its lower nibbles become one byte, its upper ones another. */
INLINE void nibbles_to_pairs(const uint8_t *from, uint8_t *to, int half, uint8_t flip)
{
    words_t x[2], lower[2], upper[2];
    bytes_t pairs[2];
    const int n = half / 16;
    memcpy(x, from, (size_t)half);
    for (int i = 0; i < n; i++) {
        lower[i] = (x[i] & 15) | (x[i] >> 4 & 0xF0);
        upper[i] = (x[i] >> 4 & 15) | (x[i] >> 8 & 0xF0);
    }
    pairs[0] = lower_bytes(lower[0], n == 1 ? upper[0] : lower[1]) ^ flip;
    pairs[1] = n == 1 ? pairs[0] : lower_bytes(upper[0], upper[1]) ^ flip;
    memcpy(to, pairs, (size_t)half);
}

static void pairs_to_nibbles(uint8_t *to, const uint8_t *from, int half, uint8_t flip)
{
    for (int i = 0; i < half / 2; i++) {
        const uint8_t low = from[i] ^ flip, high = from[half / 2 + i] ^ flip;
        to[2 * i] = (uint8_t)((low & 15) | (high & 15) << 4);
        to[2 * i + 1] = (uint8_t)(low >> 4 | (high & 0xF0));
    }
}

/* Q8_0: f16 scale, 32 codes. */
static void unpack_q8_0(const uint8_t *block, uint8_t *const *planes)
{
    memcpy(planes[GS_SCALES], block, 2);
    memcpy(planes[GS_CODES], block + 2, 32);
}

static void pack_q8_0(uint8_t *block, uint8_t *const *planes)
{
    memcpy(block, planes[GS_SCALES], 2);
    memcpy(block + 2, planes[GS_CODES], 32);
}

/* Q4_0: f16 scale, 32 codes less 8; as s4 their highest bit is flipped. */
static void unpack_q4_0(const uint8_t *block, uint8_t *const *planes)
{
    memcpy(planes[GS_SCALES], block, 2);
    nibbles_to_pairs(block + 2, planes[GS_CODES], 16, 0x88);
}

static void pack_q4_0(uint8_t *block, uint8_t *const *planes)
{
    memcpy(block, planes[GS_SCALES], 2);
    pairs_to_nibbles(block + 2, planes[GS_CODES], 16, 0x88);
}

/* Q4_1: f16 scale, f16 offset, 32 codes. */
static void unpack_q4_1(const uint8_t *block, uint8_t *const *planes)
{
    memcpy(planes[GS_SCALES], block, 2);
    memcpy(planes[GS_OFFSETS], block + 2, 2);
    nibbles_to_pairs(block + 4, planes[GS_CODES], 16, 0);
}

static void pack_q4_1(uint8_t *block, uint8_t *const *planes)
{
    memcpy(block, planes[GS_SCALES], 2);
    memcpy(block + 2, planes[GS_OFFSETS], 2);
    pairs_to_nibbles(block + 4, planes[GS_CODES], 16, 0);
}

/* Codes of five bits, from `least` on: the fifth bits, then the others. */
static void unpack_fives(const uint8_t *from, uint8_t *codes, int least)
{
    for (int i = 0; i < 32; i++) {
        const int low = i < 16 ? from[4 + i] & 15 : from[4 + i - 16] >> 4;
        const int high = from[i / 8] >> (i % 8) & 1;
        codes[i] = (uint8_t)((low | high << 4) + least);
    }
}

static void pack_fives(uint8_t *to, const uint8_t *codes, int least)
{
    memset(to, 0, 20);
    for (int i = 0; i < 32; i++) {
        const int code = codes[i] - least;
        to[i / 8] |= (uint8_t)((code >> 4 & 1) << (i % 8));
        to[4 + i % 16] |= (uint8_t)((code & 15) << (i < 16 ? 0 : 4));
    }
}

/* Q5_0: f16 scale, the fifth bits, 32 codes less 16. */
static void unpack_q5_0(const uint8_t *block, uint8_t *const *planes)
{
    memcpy(planes[GS_SCALES], block, 2);
    unpack_fives(block + 2, planes[GS_CODES], -16);
}

static void pack_q5_0(uint8_t *block, uint8_t *const *planes)
{
    memcpy(block, planes[GS_SCALES], 2);
    pack_fives(block + 2, planes[GS_CODES], -16);
}

/* Q5_1: f16 scale, f16 offset, the fifth bits, 32 codes. */
static void unpack_q5_1(const uint8_t *block, uint8_t *const *planes)
{
    memcpy(planes[GS_SCALES], block, 2);
    memcpy(planes[GS_OFFSETS], block + 2, 2);
    unpack_fives(block + 4, planes[GS_CODES], 0);
}

static void pack_q5_1(uint8_t *block, uint8_t *const *planes)
{
    memcpy(block, planes[GS_SCALES], 2);
    memcpy(block + 2, planes[GS_OFFSETS], 2);
    pack_fives(block + 4, planes[GS_CODES], 0);
}

/* The f16 that scales and minima are multiplied with. Offsets are less than zero: the sign of the
 * second one is flipped. */
static void unpack_factors(const uint8_t *from, uint8_t *const *planes)
{
    memcpy(planes[GS_SCALE_SCALES], from, 2);
    memcpy(planes[GS_OFFSET_SCALES], from + 2, 2);
    planes[GS_OFFSET_SCALES][1] ^= 0x80;
}

static void pack_factors(uint8_t *to, uint8_t *const *planes)
{
    memcpy(to, planes[GS_SCALE_SCALES], 2);
    memcpy(to + 2, planes[GS_OFFSET_SCALES], 2);
    to[3] ^= 0x80;
}

/* Scales and minima of 8 groups, of 6 bits each. */
static void unpack_sixes(const uint8_t *s, uint8_t *const *planes)
{
    for (int g = 0; g < 8; g++) {
        planes[GS_SCALES][g] =
            (uint8_t)(g < 4 ? s[g] & 63 : (s[g + 4] & 15) | (s[g - 4] >> 6) << 4);
        planes[GS_OFFSETS][g] = (uint8_t)(g < 4 ? s[g + 4] & 63 : s[g + 4] >> 4 | (s[g] >> 6) << 4);
    }
}

static void pack_sixes(uint8_t *to, uint8_t *const *planes)
{
    const uint8_t *scales = planes[GS_SCALES], *least = planes[GS_OFFSETS];
    for (int g = 0; g < 4; g++) {
        to[g] = (uint8_t)(scales[g] | scales[g + 4] >> 4 << 6);
        to[4 + g] = (uint8_t)(least[g] | least[g + 4] >> 4 << 6);
        to[8 + g] = (uint8_t)((scales[g + 4] & 15) | least[g + 4] << 4);
    }
}

/* Codes of two bits: byte i of each half has those of elements i, 32 + i, 64 + i and 96 + i. */
static void unpack_twos(const uint8_t *from, uint8_t *codes)
{
    for (int i = 0; i < 256; i++) {
        codes[i] = from[i / 128 * 32 + i % 32] >> i % 128 / 32 * 2 & 3;
    }
}

/* The lowest two bits of each code. */
static void pack_twos(uint8_t *to, const uint8_t *codes)
{
    memset(to, 0, 64);
    for (int i = 0; i < 256; i++) {
        to[i / 128 * 32 + i % 32] |= (uint8_t)((codes[i] & 3) << i % 128 / 32 * 2);
    }
}

/* Q2_K: scale and minimum of 16 groups, of 4 bits each, 256 codes, f16 scale and minimum. */
static void unpack_q2_k(const uint8_t *block, uint8_t *const *planes)
{
    for (int g = 0; g < 16; g++) {
        planes[GS_SCALES][g] = block[g] & 15;
        planes[GS_OFFSETS][g] = block[g] >> 4;
    }
    unpack_twos(block + 16, planes[GS_CODES]);
    unpack_factors(block + 80, planes);
}

static void pack_q2_k(uint8_t *block, uint8_t *const *planes)
{
    for (int g = 0; g < 16; g++) {
        block[g] = (uint8_t)(planes[GS_SCALES][g] | planes[GS_OFFSETS][g] << 4);
    }
    pack_twos(block + 16, planes[GS_CODES]);
    pack_factors(block + 80, planes);
}

/* Q3_K: the third bits of 256 codes less 4, bit g of byte i that of element i of group g of 32; the
 * others; low four and high two bits of 16 scales less 32; an f16 for all. */
static void unpack_q3_k(const uint8_t *block, uint8_t *const *planes)
{
    const uint8_t *s = block + 96;
    unpack_twos(block + 32, planes[GS_CODES]);
    for (int i = 0; i < 256; i++) {
        uint8_t *code = &planes[GS_CODES][i];
        *code = (uint8_t)((*code | (block[i % 32] >> i / 32 & 1) << 2) - 4);
    }
    for (int g = 0; g < 16; g++) {
        const int low = s[g % 8] >> g / 8 * 4 & 15, high = s[8 + g % 4] >> g / 4 * 2 & 3;
        planes[GS_SCALES][g] = (uint8_t)((low | high << 4) - 32);
    }
    memcpy(planes[GS_SCALE_SCALES], block + 108, 2);
}

static void pack_q3_k(uint8_t *block, uint8_t *const *planes)
{
    uint8_t *s = block + 96;
    pack_twos(block + 32, planes[GS_CODES]); /* 4 has no part in the lowest two bits */
    memset(block, 0, 32);
    for (int i = 0; i < 256; i++) {
        const int code = (int8_t)planes[GS_CODES][i] + 4;
        block[i % 32] |= (uint8_t)(code >> 2 << i / 32);
    }
    memset(s, 0, 12);
    for (int g = 0; g < 16; g++) {
        const int scale = (int8_t)planes[GS_SCALES][g] + 32;
        s[g % 8] |= (uint8_t)((scale & 15) << g / 8 * 4);
        s[8 + g % 4] |= (uint8_t)(scale >> 4 << g / 4 * 2);
    }
    memcpy(block + 108, planes[GS_SCALE_SCALES], 2);
}

/* Q4_K: f16 scale and minimum, scales and minima of 8 groups, 256 codes. */
static void unpack_q4_k(const uint8_t *block, uint8_t *const *planes)
{
    unpack_factors(block, planes);
    unpack_sixes(block + 4, planes);
    for (int i = 0; i < 4; i++) {
        nibbles_to_pairs(block + 16 + 32 * i, planes[GS_CODES] + 32 * i, 32, 0);
    }
}

static void pack_q4_k(uint8_t *block, uint8_t *const *planes)
{
    pack_factors(block, planes);
    pack_sixes(block + 4, planes);
    for (int i = 0; i < 4; i++) {
        pairs_to_nibbles(block + 16 + 32 * i, planes[GS_CODES] + 32 * i, 32, 0);
    }
}

/* Q5_K: as Q4_K, with the fifth bits before the others: bit g of byte i is that of element i of
 * group g. */
static void unpack_q5_k(const uint8_t *block, uint8_t *const *planes)
{
    unpack_factors(block, planes);
    unpack_sixes(block + 4, planes);
    for (int i = 0; i < 256; i++) {
        const int g = i / 32, low = block[48 + i / 64 * 32 + i % 32] >> g % 2 * 4 & 15;
        planes[GS_CODES][i] = (uint8_t)(low | (block[16 + i % 32] >> g & 1) << 4);
    }
}

static void pack_q5_k(uint8_t *block, uint8_t *const *planes)
{
    pack_factors(block, planes);
    pack_sixes(block + 4, planes);
    memset(block + 16, 0, 32 + 128);
    for (int i = 0; i < 256; i++) {
        const int g = i / 32, code = planes[GS_CODES][i];
        block[48 + i / 64 * 32 + i % 32] |= (uint8_t)((code & 15) << g % 2 * 4);
        block[16 + i % 32] |= (uint8_t)(code >> 4 << g);
    }
}

/* Q6_K: low and high bits of 256 codes less 32, 16 scales of 8 bits, and an f16 for all. */
static void unpack_q6_k(const uint8_t *block, uint8_t *const *planes)
{
    memcpy(planes[GS_SCALES], block + 192, 16);
    memcpy(planes[GS_SCALE_SCALES], block + 208, 2);
    for (int part = 0; part < 2; part++) {
        const uint8_t *low = block + 64 * part, *high = block + 128 + 32 * part;
        uint8_t *codes = planes[GS_CODES] + 128 * part;
        for (int j = 0; j < 32; j++) {
            codes[j] = (uint8_t)(((low[j] & 15) | (high[j] & 3) << 4) - 32);
            codes[32 + j] = (uint8_t)(((low[32 + j] & 15) | (high[j] & 12) << 2) - 32);
            codes[64 + j] = (uint8_t)((low[j] >> 4 | (high[j] & 48)) - 32);
            codes[96 + j] = (uint8_t)((low[32 + j] >> 4 | (high[j] & 192) >> 2) - 32);
        }
    }
}

static void pack_q6_k(uint8_t *block, uint8_t *const *planes)
{
    memcpy(block + 192, planes[GS_SCALES], 16);
    memcpy(block + 208, planes[GS_SCALE_SCALES], 2);
    for (int part = 0; part < 2; part++) {
        uint8_t *low = block + 64 * part, *high = block + 128 + 32 * part;
        const uint8_t *codes = planes[GS_CODES] + 128 * part;
        for (int j = 0; j < 32; j++) {
            const uint8_t a = (uint8_t)(codes[j] + 32), b = (uint8_t)(codes[32 + j] + 32),
                          c = (uint8_t)(codes[64 + j] + 32), d = (uint8_t)(codes[96 + j] + 32);
            low[j] = (uint8_t)((a & 15) | (c & 15) << 4);
            low[32 + j] = (uint8_t)((b & 15) | (d & 15) << 4);
            high[j] = (uint8_t)(a >> 4 | b >> 4 << 2 | c >> 4 << 4 | d >> 4 << 6);
        }
    }
}

/* Codes of four bits, the places of numbers, in the order of Q4_0. */
static const int8_t iq4_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                       1,    13,   25,  38,  53,  69,  89,  113};

static void unpack_numbers(const uint8_t *from, uint8_t *codes)
{
    for (int i = 0; i < 16; i++) {
        codes[i] = (uint8_t)iq4_numbers[from[i] & 15];
        codes[16 + i] = (uint8_t)iq4_numbers[from[i] >> 4];
    }
}

static int place_of(uint8_t code)
{
    int at = 0;
    while (at < 15 && (uint8_t)iq4_numbers[at] != code) {
        at++;
    }
    return at;
}

static void pack_numbers(uint8_t *to, const uint8_t *codes)
{
    for (int i = 0; i < 16; i++) {
        to[i] = (uint8_t)(place_of(codes[i]) | place_of(codes[16 + i]) << 4);
    }
}

/* IQ4_NL: f16 scale, 32 codes. */
static void unpack_iq4_nl(const uint8_t *block, uint8_t *const *planes)
{
    memcpy(planes[GS_SCALES], block, 2);
    unpack_numbers(block + 2, planes[GS_CODES]);
}

static void pack_iq4_nl(uint8_t *block, uint8_t *const *planes)
{
    memcpy(block, planes[GS_SCALES], 2);
    pack_numbers(block + 2, planes[GS_CODES]);
}

/* IQ4_XS: an f16 for all, high two and low four bits of 8 scales less 32, 256 codes. */
static void unpack_iq4_xs(const uint8_t *block, uint8_t *const *planes)
{
    memcpy(planes[GS_SCALE_SCALES], block, 2);
    for (int g = 0; g < 8; g++) {
        const int low = block[4 + g / 2] >> g % 2 * 4 & 15,
                  high = block[2 + g / 4] >> g % 4 * 2 & 3;
        planes[GS_SCALES][g] = (uint8_t)((low | high << 4) - 32);
        unpack_numbers(block + 8 + 16 * g, planes[GS_CODES] + 32 * g);
    }
}

static void pack_iq4_xs(uint8_t *block, uint8_t *const *planes)
{
    memcpy(block, planes[GS_SCALE_SCALES], 2);
    memset(block + 2, 0, 6);
    for (int g = 0; g < 8; g++) {
        const int scale = (int8_t)planes[GS_SCALES][g] + 32;
        block[4 + g / 2] |= (uint8_t)((scale & 15) << g % 2 * 4);
        block[2 + g / 4] |= (uint8_t)(scale >> 4 << g % 4 * 2);
        pack_numbers(block + 8 + 16 * g, planes[GS_CODES] + 32 * g);
    }
}

/* MXFP4: e8m0 scale, 32 codes. */
static void unpack_mxfp4(const uint8_t *block, uint8_t *const *planes)
{
    planes[GS_SCALES][0] = block[0];
    nibbles_to_pairs(block + 1, planes[GS_CODES], 16, 0);
}

static void pack_mxfp4(uint8_t *block, uint8_t *const *planes)
{
    block[0] = planes[GS_SCALES][0];
    pairs_to_nibbles(block + 1, planes[GS_CODES], 16, 0);
}

/* One row for each type: elements and bytes of a block, elements with one scale, and its planes:
 * the data type, the bytes that a block has there, and the bits of each integer of 8 that are
 * enough. */
#define LAYOUT(type, name, elements, bytes, group, ...)                                     \
    {                                                                                       \
        GGML_TYPE_##type, elements, bytes, group, {__VA_ARGS__}, unpack_##name, pack_##name \
    }
#define PLANE(part, type, bytes, kept) [GS_##part] = {sinter_##type, bytes, kept}
#define CODES(type, bytes, kept) PLANE(CODES, type, bytes, kept)
#define SCALES(type, bytes, kept) PLANE(SCALES, type, bytes, kept)
#define OFFSETS(type, bytes, kept) PLANE(OFFSETS, type, bytes, kept)
#define SCALE_SCALES PLANE(SCALE_SCALES, f16, 2, 0)
#define OFFSET_SCALES PLANE(OFFSET_SCALES, f16, 2, 0)

static const gs_layout_t layouts[] = {
    LAYOUT(Q8_0, q8_0, 32, 34, 32, CODES(s8, 32, 0), SCALES(f16, 2, 0)),
    LAYOUT(Q4_0, q4_0, 32, 18, 32, CODES(s4, 16, 0), SCALES(f16, 2, 0)),
    LAYOUT(Q4_1, q4_1, 32, 20, 32, CODES(u4, 16, 0), SCALES(f16, 2, 0), OFFSETS(f16, 2, 0)),
    LAYOUT(Q5_0, q5_0, 32, 22, 32, CODES(s8, 32, 5), SCALES(f16, 2, 0)),
    LAYOUT(Q5_1, q5_1, 32, 24, 32, CODES(u8, 32, 5), SCALES(f16, 2, 0), OFFSETS(f16, 2, 0)),
    LAYOUT(Q2_K, q2_k, 256, 84, 16, CODES(u8, 256, 2), SCALES(u8, 16, 4), OFFSETS(u8, 16, 4),
           SCALE_SCALES, OFFSET_SCALES),
    LAYOUT(Q3_K, q3_k, 256, 110, 16, CODES(s8, 256, 3), SCALES(s8, 16, 6), SCALE_SCALES),
    LAYOUT(Q4_K, q4_k, 256, 144, 32, CODES(u4, 128, 0), SCALES(u8, 8, 0), OFFSETS(u8, 8, 0),
           SCALE_SCALES, OFFSET_SCALES),
    LAYOUT(Q5_K, q5_k, 256, 176, 32, CODES(u8, 256, 5), SCALES(u8, 8, 0), OFFSETS(u8, 8, 0),
           SCALE_SCALES, OFFSET_SCALES),
    LAYOUT(Q6_K, q6_k, 256, 210, 16, CODES(s8, 256, 6), SCALES(s8, 16, 0), SCALE_SCALES),
    LAYOUT(IQ4_NL, iq4_nl, 32, 18, 32, CODES(s8, 32, GS_NUMBERS), SCALES(f16, 2, 0)),
    LAYOUT(IQ4_XS, iq4_xs, 256, 136, 32, CODES(s8, 256, GS_NUMBERS), SCALES(s8, 8, 0),
           SCALE_SCALES),
    LAYOUT(MXFP4, mxfp4, 32, 17, 32, CODES(f4_e2m1, 16, 0), SCALES(e8m0, 1, 0)),
};

/* Bytes that a block has in a plane of tiles. */
static int bytes_in_tiles(const gs_plane_t *plane)
{
    const int bits = plane->kept == GS_NUMBERS ? 4 : plane->kept;
    return bits > 0 ? plane->bytes * bits / 8 : plane->bytes;
}

bool gs_tile_plane(const gs_layout_t *layout, int plane, sinter_logical_tensor_t *lt)
{
    const int kept = layout->planes[plane].kept;
    const sinter_weights_part_t part = plane != GS_CODES    ? sinter_weights_values
                                       : kept == GS_NUMBERS ? sinter_weights_codes_iq4_nl
                                                            : sinter_weights_codes;
    return sinter_logical_tensor_set_weights_layout(lt, part, kept == GS_NUMBERS ? 0 : kept, 1) ==
           sinter_success;
}

int gs_plane_group(const gs_layout_t *layout, int plane)
{
    return plane == GS_CODES ? 1 : plane < GS_SCALE_SCALES ? layout->group : layout->elements;
}

const gs_layout_t *gs_layout_of(enum ggml_type type)
{
    for (size_t i = 0; i < sizeof(layouts) / sizeof(layouts[0]); i++) {
        if (layouts[i].type == type) {
            return &layouts[i];
        }
    }
    return NULL;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

enum { TILE_ROWS = 16, TILE_ELEMENTS = 32 };

/* Whether the shape of a tensor suits tiles: a matrix, or several (experts), which lie in tiles as
 * one with the rows of all of them, so that each must have whole strips. */
static bool may_tile(const struct ggml_tensor *root)
{
    const gs_layout_t *layout = gs_layout_of(root->type);
    return layout && root->ne[0] % TILE_ELEMENTS == 0 && !root->view_src &&
           ggml_is_contiguous(root) && root->ne[1] > 1 && root->ne[3] == 1 &&
           (root->ne[2] == 1 || root->ne[1] % TILE_ROWS == 0);
}

/* Whether a tensor of such a shape lies in tiles whatever its buffer is for: in planes it would
 * take several times the bytes of its blocks, and types with blocks of 256 elements are those of
 * weights alone. */
static bool must_tile(const struct ggml_tensor *root)
{
    const gs_layout_t *layout = gs_layout_of(root->type);
    return may_tile(root) && layout->elements == 256 && layout->planes[GS_CODES].kept > 0;
}

/* What `extra` of a tensor in tiles points to. */
static int tiles_mark;

void gs_use_tiles(struct ggml_tensor *root)
{
    if (may_tile(root)) {
        root->extra = &tiles_mark;
    }
}

bool gs_in_tiles(const struct ggml_tensor *root)
{
    return root->extra == &tiles_mark || must_tile(root);
}

/* ---- places ---------------------------------------------------------------------------------- */

static size_t blocks_of_row(const struct ggml_tensor *root)
{
    return (size_t)root->ne[0] / (size_t)gs_layout_of(root->type)->elements;
}

/* Blocks that there is room for. */
static size_t room_of(const struct ggml_tensor *root)
{
    const size_t blocks = (size_t)ggml_nelements(root) / (size_t)gs_layout_of(root->type)->elements;
    const size_t rows = ((size_t)ggml_nrows(root) + TILE_ROWS - 1) / TILE_ROWS * TILE_ROWS;
    return may_tile(root) ? rows * blocks_of_row(root) : blocks;
}

size_t gs_plane_offset(const struct ggml_tensor *root, int plane)
{
    const gs_layout_t *layout = gs_layout_of(root->type);
    const size_t blocks = room_of(root);
    const bool tiles = must_tile(root);
    size_t offset = 0;
    for (int i = 0; i < plane; i++) {
        const gs_plane_t *p = &layout->planes[i];
        const size_t bytes = blocks * (size_t)(tiles ? bytes_in_tiles(p) : p->bytes);
        offset += (bytes + GS_ALIGNMENT - 1) / GS_ALIGNMENT * GS_ALIGNMENT;
    }
    return offset;
}

size_t gs_tensor_bytes(const struct ggml_tensor *tensor)
{
    const size_t bytes = ggml_nbytes(tensor);
    const size_t planes = gs_layout_of(tensor->type) ? gs_plane_offset(tensor, GS_PLANES) : 0;
    return planes > bytes ? planes : bytes;
}

/* Where a block begins in each plane. In all planes block follows block, whatever the rows are. */
static void begin_of_block(const struct ggml_tensor *root, size_t block, uint8_t **planes)
{
    const gs_layout_t *layout = gs_layout_of(root->type);
    for (int i = 0; i < GS_PLANES; i++) {
        planes[i] = (uint8_t *)root->data + gs_plane_offset(root, i) +
                    block * (size_t)layout->planes[i].bytes;
    }
}

static void convert(const gs_layout_t *layout, bool pack, size_t count, uint8_t *blocks,
                    uint8_t *const *from)
{
    enum { AHEAD = 2048 }; /* bytes; prefetching past the end is harmless */
    uint8_t *planes[GS_PLANES];
    for (size_t i = 0; i < count; i++) {
        for (int p = 0; p < GS_PLANES; p++) {
            planes[p] = from[p] + i * (size_t)layout->planes[p].bytes;
        }
        if (pack) {
            layout->pack(blocks + i * (size_t)layout->bytes, planes);
        } else {
            const uint8_t *block = blocks + i * (size_t)layout->bytes;
            __builtin_prefetch((const void *)((uintptr_t)block + AHEAD));
            layout->unpack(block, planes);
        }
    }
}

/* ---- caches in tiles ------------------------------------------------------------------------- */

enum { BLOCK_TOKENS = 256 };

/* Caches in tiles by their memory: a host that works for others (rpc-server) has new tensors in
 * each graph. */
typedef struct cache {
    const void *data;
    enum ggml_type type;
    int64_t ne[2];
    gs_heads_t heads;
    bool waits;
} cache_t;

static struct {
    pthread_mutex_t lock;
    cache_t *list;
    int count, capacity;
    uint64_t changes;
} caches = {.lock = PTHREAD_MUTEX_INITIALIZER};

/* Whether the shape and the type of a tensor suit that. */
static bool may_be_cache(const struct ggml_tensor *root)
{
    return may_tile(root) && !must_tile(root) && root->ne[2] == 1;
}

/* The place of a cache in the list, which is locked; -1: it is not there. */
static int find_cache(const struct ggml_tensor *root)
{
    int at = caches.count - 1;
    while (at >= 0 &&
           (caches.list[at].data != root->data || caches.list[at].type != root->type ||
            caches.list[at].ne[0] != root->ne[0] || caches.list[at].ne[1] != root->ne[1])) {
        at--;
    }
    return at;
}

gs_heads_t gs_heads_of(const struct ggml_tensor *root)
{
    gs_heads_t heads = {false, 0};
    if (may_be_cache(root)) {
        pthread_mutex_lock(&caches.lock);
        const int at = find_cache(root);
        heads = at >= 0 ? caches.list[at].heads : heads;
        pthread_mutex_unlock(&caches.lock);
    }
    return heads;
}

bool gs_heads_wait(const struct ggml_tensor *root, bool refused)
{
    pthread_mutex_lock(&caches.lock);
    const int at = find_cache(root);
    const bool waits = at >= 0 && caches.list[at].waits;
    if (at >= 0) {
        caches.list[at].waits = refused;
    }
    pthread_mutex_unlock(&caches.lock);
    return waits;
}

uint64_t gs_heads_changes(void)
{
    pthread_mutex_lock(&caches.lock);
    const uint64_t changes = caches.changes;
    pthread_mutex_unlock(&caches.lock);
    return changes;
}

void gs_forget_heads(const void *memory, size_t size)
{
    const uintptr_t begin = (uintptr_t)memory, end = begin + size;
    pthread_mutex_lock(&caches.lock);
    for (int i = caches.count - 1; i >= 0; i--) {
        if ((uintptr_t)caches.list[i].data >= begin && (uintptr_t)caches.list[i].data < end) {
            caches.list[i] = caches.list[--caches.count];
        }
    }
    pthread_mutex_unlock(&caches.lock);
}

const char *gs_refuses_heads(const struct ggml_tensor *root, gs_heads_t heads)
{
    return !may_be_cache(root) ? "it is no matrix of a quantised type"
           : heads.head % TILE_ELEMENTS != 0 || root->ne[0] % heads.head != 0
               ? "its heads are no multiples of 32 elements"
           : root->ne[1] % (root->ne[1] > BLOCK_TOKENS ? BLOCK_TOKENS : TILE_ELEMENTS) != 0
               ? "it has room for tokens that are no multiple of 256"
               : NULL;
}

bool gs_heads_plane(gs_heads_t heads, int plane, sinter_logical_tensor_t *lt)
{
    return sinter_logical_tensor_set_weights_layout(lt,
                                                    plane != GS_CODES ? sinter_weights_heads_values
                                                    : heads.is_v      ? sinter_weights_heads_v
                                                                      : sinter_weights_heads_k,
                                                    0, 0) == sinter_success;
}

/* Notes how a cache lies. false: out of memory. */
static bool note_heads(const struct ggml_tensor *root, gs_heads_t heads)
{
    pthread_mutex_lock(&caches.lock);
    int at = find_cache(root);
    if (at < 0 && caches.count == caches.capacity) {
        const int more = caches.capacity > 0 ? 2 * caches.capacity : 64;
        cache_t *list = realloc(caches.list, (size_t)more * sizeof(*list));
        caches.list = list ? list : caches.list;
        caches.capacity = list ? more : caches.capacity;
    }
    at = at < 0 && caches.count < caches.capacity ? caches.count++ : at;
    if (at >= 0) {
        const bool waits = heads.head == 0;
        caches.list[at] =
            (cache_t){root->data, root->type, {root->ne[0], root->ne[1]}, heads, waits};
        caches.changes++;
    }
    pthread_mutex_unlock(&caches.lock);
    return at >= 0;
}

bool gs_set_heads(const struct ggml_tensor *root, gs_heads_t heads)
{
    const gs_heads_t before = gs_heads_of(root);
    const size_t count = (size_t)ggml_nrows(root) * blocks_of_row(root);
    uint8_t *blocks = malloc(ggml_nbytes(root));
    bool ok = blocks && gs_pack_blocks(root, 0, count, blocks) && note_heads(root, heads);
    if (ok && !gs_unpack_blocks(root, 0, count, blocks)) { /* it may be there in part */
        ok = false;
        note_heads(root, before);
        gs_unpack_blocks(root, 0, count, blocks);
    }
    free(blocks);
    return ok;
}

/* ---- rows of tiles --------------------------------------------------------------------------- */

/* Some rows of a tensor in tiles whose tiles are together: 16 of a matrix, or 256 tokens of a
 * cache. Their planes, row by row. */
typedef struct strip {
    int64_t rows;
    gs_heads_t heads;
    uint8_t *memory, *planes[GS_PLANES];
} strip_t;

static bool strip_open(const struct ggml_tensor *root, strip_t *s)
{
    const gs_layout_t *layout = gs_layout_of(root->type);
    s->heads = gs_heads_of(root);
    s->rows = s->heads.head == 0           ? TILE_ROWS
              : root->ne[1] < BLOCK_TOKENS ? root->ne[1]
                                           : BLOCK_TOKENS;
    const size_t blocks = (size_t)s->rows * blocks_of_row(root);
    size_t bytes = 0, at[GS_PLANES];
    for (int p = 0; p < GS_PLANES; p++) {
        at[p] = bytes;
        bytes += blocks * (size_t)layout->planes[p].bytes;
    }
    s->memory = calloc(bytes, 1);
    for (int p = 0; p < GS_PLANES && s->memory; p++) {
        s->planes[p] = s->memory + at[p];
    }
    return s->memory != NULL;
}

/* One plane of rows row.. of the tensor between its tiles and the strip. */
static bool move_plane(const struct ggml_tensor *root, const strip_t *s, int plane, int64_t row,
                       bool to_tiles)
{
    const gs_layout_t *layout = gs_layout_of(root->type);
    const bool cache = s->heads.head > 0;
    const int64_t left = ggml_nrows(root) - row, rows = left < s->rows ? left : s->rows,
                  group = gs_plane_group(layout, plane);
    const size_t blocks = (size_t)row * blocks_of_row(root);
    const int bytes = cache ? layout->planes[plane].bytes : bytes_in_tiles(&layout->planes[plane]);
    uint8_t *tiles = (uint8_t *)root->data + gs_plane_offset(root, plane) + blocks * (size_t)bytes;
    const sinter_dim_t matrix[2] = {rows, root->ne[0] / group},
                       of_heads[3] = {rows, cache ? root->ne[0] / s->heads.head : 0,
                                      s->heads.head / group};
    sinter_logical_tensor_t lines, strips;
    sinter_tensor_t *a = NULL, *b = NULL;
    if (layout->planes[plane].type == sinter_data_type_undef) {
        return true;
    }
    bool ok = sinter_logical_tensor_init(&lines, 0, layout->planes[plane].type, cache ? 3 : 2,
                                         cache ? of_heads : matrix,
                                         sinter_tensor_property_undef) == sinter_success;
    strips = lines;
    ok = ok &&
         (cache ? gs_heads_plane(s->heads, plane, &strips)
                : gs_tile_plane(layout, plane, &strips)) &&
         sinter_tensor_create(&a, gs_engine(), &lines, s->planes[plane], SINTER_BYTES_TRUSTED) ==
             sinter_success &&
         sinter_tensor_create(&b, gs_engine(), &strips, tiles, SINTER_BYTES_TRUSTED) ==
             sinter_success &&
         sinter_reorder(to_tiles ? a : b, to_tiles ? b : a) == sinter_success;
    sinter_tensor_destroy(&a);
    sinter_tensor_destroy(&b);
    return ok;
}

static bool move_strip(const struct ggml_tensor *root, const strip_t *s, int64_t row, bool to_tiles)
{
    bool ok = true;
    for (int p = 0; p < GS_PLANES && ok; p++) {
        ok = move_plane(root, s, p, row, to_tiles);
    }
    return ok;
}

/* Blocks to tiles or back, strip by strip. What is not all of a strip is changed within it. */
static bool convert_tiles(const struct ggml_tensor *root, bool pack, size_t first, size_t count,
                          uint8_t *blocks)
{
    static pthread_mutex_t parts = PTHREAD_MUTEX_INITIALIZER; /* two may be of one strip */
    const gs_layout_t *layout = gs_layout_of(root->type);
    strip_t s;
    bool ok = strip_open(root, &s);
    const size_t row = blocks_of_row(root), whole = (size_t)s.rows * row,
                 all = (size_t)ggml_nrows(root) * row;
    for (size_t done = 0, n; ok && done < count; done += n) {
        const size_t strip = (first + done) / whole * whole, skip = first + done - strip,
                     room = (all - strip < whole ? all - strip : whole) - skip;
        n = count - done < room ? count - done : room;
        uint8_t *planes[GS_PLANES];
        for (int p = 0; p < GS_PLANES; p++) {
            planes[p] = s.planes[p] + skip * (size_t)layout->planes[p].bytes;
        }
        const bool part = skip > 0 || n < room;
        if (!pack && part) {
            pthread_mutex_lock(&parts);
        }
        if (pack || part) {
            ok = move_strip(root, &s, (int64_t)(strip / row), false);
        }
        convert(layout, pack, n, blocks + done * (size_t)layout->bytes, planes);
        if (!pack) {
            ok = ok && move_strip(root, &s, (int64_t)(strip / row), true);
        }
        if (!pack && part) {
            pthread_mutex_unlock(&parts);
        }
    }
    free(s.memory);
    return ok;
}

/* ---- blocks ---------------------------------------------------------------------------------- */

bool gs_unpack_blocks(const struct ggml_tensor *root, size_t first, size_t count,
                      const uint8_t *blocks)
{
    const gs_layout_t *layout = gs_layout_of(root->type);
    uint8_t *planes[GS_PLANES], *from = (uint8_t *)(uintptr_t)blocks;
    if (gs_in_tiles(root) || gs_heads_of(root).head > 0) {
        return convert_tiles(root, false, first, count, from);
    }
    begin_of_block(root, first, planes);
    convert(layout, false, count, from, planes);
    return true;
}

bool gs_pack_blocks(const struct ggml_tensor *root, size_t first, size_t count, uint8_t *blocks)
{
    uint8_t *planes[GS_PLANES];
    if (gs_in_tiles(root) || gs_heads_of(root).head > 0) {
        return convert_tiles(root, true, first, count, blocks);
    }
    begin_of_block(root, first, planes);
    convert(gs_layout_of(root->type), true, count, blocks, planes);
    return true;
}
