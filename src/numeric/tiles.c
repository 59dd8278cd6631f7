#include "numeric/tiles.h"

#include <string.h>

#include "base/alloc.h"

static bool is_zero_point(sinter_data_type_t type)
{
    return dtype_traits(type)->cls == DTYPE_INT;
}

bool tiles_of_codes(int bits, int64_t K, int64_t N, int64_t *bytes)
{
    return mul_i64(tiles_strips(N), tiles_along(K), bytes) &&
           mul_i64(*bytes, tiles_bytes(bits), bytes);
}

bool tiles_of_values(sinter_data_type_t type, int64_t groups, int64_t N, int64_t *bytes)
{
    const int each = is_zero_point(type) ? 1 : dtype_traits(type)->bits / 8;
    return mul_i64(tiles_strips(N), groups, bytes) && mul_i64(*bytes, TILES_COLUMNS * each, bytes);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* n codes of a column from element k on, as 32 bytes, zeros behind them. */
static void load_codes(const groups_t *from, int64_t k, int64_t column, int n, uint8_t *code)
{
    const int64_t first = codes_at(from, k, column), stride = from->row.stride;
    if (stride == 1 && n == TILES_K && from->type->bits == 8) {
        memcpy(code, from->data + first, TILES_K);
        return;
    }
    memset(code, 0, TILES_K);
    for (int i = 0; i < n; i++) {
        const int64_t at = first + i * stride;
        code[i] = from->type->bits == 8 ? from->data[at] : from->data[at / 2] >> at % 2 * 4 & 15;
    }
}

/* What is flipped in each byte of codes of 4 bits. */
static uint8_t flip_of(sinter_data_type_t type)
{
    return (uint8_t)(tiles_flip(type) * 0x11);
}

/* A whole column of a tile of codes of 4 bits from 16 bytes along K. */
static inline void put_nibbles(const uint8_t *bytes, uint8_t flip, unsigned char *tile)
{
    typedef uint8_t v16 __attribute__((vector_size(16)));
    v16 x, even, odd, last;
    memcpy(&x, bytes, sizeof x);
    x ^= flip;
    last =
        __builtin_shufflevector(x, x, 8, 9, 10, 11, 12, 13, 14, 15, 8, 9, 10, 11, 12, 13, 14, 15);
    even = (x & 15) | last << 4;
    odd = x >> 4 | (last & 0xf0);
    x = __builtin_shufflevector(even, odd, 0, 16, 1, 17, 2, 18, 3, 19, 4, 20, 5, 21, 6, 22, 7, 23);
    for (int j = 0; j < 4; j++) {
        memcpy(tile + j * TILES_LINE, (const uint8_t *)&x + 4 * j, 4);
    }
}

/* Puts a column into a tile. The arithmetic is on dwords of four codes; no bit leaves its byte. */
static void put_codes(int bits, const uint8_t *code, uint8_t flip, unsigned char *tile)
{
    enum { DWORDS = TILES_K / 4 };
    const uint32_t low = 0x0f0f0f0f, two = 0x03030303, flips = flip * UINT32_C(0x01010101);
    uint32_t x[DWORDS];
    memcpy(x, code, TILES_K);
    if (bits == 8) {
        for (int i = 0; i < DWORDS; i++) {
            memcpy(tile + i * TILES_LINE, &x[i], 4);
        }
        return;
    }
    for (int j = 0; j < DWORDS / 2; j++) {
        const uint32_t line = ((x[j] & low) | (x[DWORDS / 2 + j] & low) << 4) ^ flips;
        memcpy(tile + j * TILES_LINE, &line, 4);
    }
    for (int h = 0; bits == 6 && h < 2; h++) {
        const uint32_t *y = x + 4 * h;
        const uint32_t line = (y[0] >> 4 & two) | (y[1] >> 4 & two) << 2 | (y[2] >> 4 & two) << 4 |
                              (y[3] >> 4 & two) << 6;
        memcpy(tile + (4 + h) * TILES_LINE, &line, 4);
    }
}

/* Codes as they count from zero in six bits. False: some do not fit. */
static bool to_six(uint8_t *code, sinter_data_type_t type)
{
    uint8_t all = 0;
    for (int i = 0; i < TILES_K; i++) {
        code[i] = (uint8_t)(code[i] + tiles_zero_of_six(type));
        all |= code[i];
    }
    return all < 64;
}

/* Fills a tile with codes of 0, for the columns that the weights lack. */
static void clear_tile(int bits, sinter_data_type_t type, unsigned char *tile)
{
    uint8_t code[TILES_K];
    memset(code, bits == 6 ? tiles_zero_of_six(type) : 0, sizeof code);
    for (int c = 0; c < TILES_COLUMNS; c++) {
        put_codes(bits, code, flip_of(type), tile + 4 * c);
    }
}

bool tiles_pack_codes(const groups_t *from, tiled_t as, int64_t K, int64_t N, unsigned char *to)
{
    const int bits = tiles_bits(as, from->dtype), bytes = tiles_bytes(bits);
    const bool by_bytes = from->row.stride == 1;
    const uint8_t flip = flip_of(from->dtype);
    uint8_t code[TILES_K];
    bool fit = true;
    for (int64_t n = 0; n < N; n += TILES_COLUMNS) {
        for (int64_t k = 0; k < K; k += TILES_K, to += bytes) {
            const int whole = K - k < TILES_K ? (int)(K - k) : TILES_K,
                      there = N - n < TILES_COLUMNS ? (int)(N - n) : TILES_COLUMNS;
            if (there < TILES_COLUMNS) {
                clear_tile(bits, from->dtype, to);
            }
            for (int c = 0; c < there; c++) {
                const int64_t at = codes_at(from, k, n + c);
                if (bits == 4 && by_bytes && at % 2 == 0 && whole == TILES_K) {
                    put_nibbles(from->data + at / 2, flip, to + 4 * c);
                    continue;
                }
                load_codes(from, k, n + c, whole, code);
                fit = (bits != 6 || to_six(code, from->dtype)) && fit;
                put_codes(bits, code, flip, to + 4 * c);
            }
        }
    }
    return fit;
}

/* ---- values ---------------------------------------------------------------------------------- */

void tiles_pack_values(const groups_t *from, int64_t groups, int64_t N, unsigned char *to)
{
    const bool zps = is_zero_point(from->dtype);
    const int bytes = zps ? 1 : from->type->bits / 8;
    const float less = from->dtype == sinter_u8 ? 128 : 0;
    for (int64_t n = 0; n < N; n += TILES_COLUMNS) {
        for (int64_t g = 0; g < groups; g++, to += TILES_COLUMNS * bytes) {
            memset(to, 0, (size_t)(TILES_COLUMNS * bytes));
            for (int c = 0; c < TILES_COLUMNS && n + c < N; c++) {
                const int64_t at = codes_at(from, g, n + c);
                if (zps) {
                    float zp;
                    from->type->codec.load_f32(from->data, at, 1, 1, &zp);
                    to[c] = (unsigned char)(int8_t)(zp - less);
                } else {
                    memcpy(to + c * bytes, from->data + at * bytes, (size_t)bytes);
                }
            }
        }
    }
}

/* ---- back ------------------------------------------------------------------------------------ */

void tiles_codes(const unsigned char *tile, tiled_t as, sinter_data_type_t type,
                 uint8_t (*to)[TILES_COLUMNS])
{
    const int bits = tiles_bits(as, type);
    const uint8_t flip = flip_of(type);
    for (int k = 0; k < TILES_K; k += 4) {
        const unsigned char *line = tile + (bits == 8 ? k : k % 16) / 4 * TILES_LINE,
                            *upper = tile + (4 + k / 16) * TILES_LINE;
        for (int c = 0; c < TILES_COLUMNS; c++) {
            for (int b = 0; b < 4; b++) {
                const uint8_t byte = line[4 * c + b] ^ flip;
                to[k + b][c] = bits == 8 ? byte : k < 16 ? byte & 15 : byte >> 4;
                if (bits == 6) {
                    const int two = upper[4 * c + b] >> k % 16 / 4 * 2 & 3;
                    to[k + b][c] = (uint8_t)((to[k + b][c] | two << 4) - tiles_zero_of_six(type));
                }
            }
        }
    }
}

void tiles_unpack_codes(const unsigned char *from, tiled_t as, int64_t K, int64_t N,
                        const groups_t *to)
{
    const int bits = to->type->bits, bytes = tiles_bytes(tiles_bits(as, to->dtype));
    uint8_t code[TILES_K][TILES_COLUMNS];
    for (int64_t n = 0; n < N; n += TILES_COLUMNS) {
        for (int64_t k = 0; k < K; k += TILES_K, from += bytes) {
            tiles_codes(from, as, to->dtype, code);
            for (int c = 0; c < TILES_COLUMNS && n + c < N; c++) {
                for (int i = 0; i < TILES_K && k + i < K; i++) {
                    const int64_t at = codes_at(to, k + i, n + c);
                    unsigned char *byte = groups_output(to, at);
                    const int shift = bits == 4 ? (int)(at % 2) * 4 : 0;
                    *byte = bits == 8
                                ? code[i][c]
                                : (unsigned char)((*byte & (0xf0 >> shift)) | code[i][c] << shift);
                }
            }
        }
    }
}

void tiles_unpack_values(const unsigned char *from, int64_t groups, int64_t N, const groups_t *to)
{
    const bool zps = is_zero_point(to->dtype);
    const int bytes = zps ? 1 : to->type->bits / 8;
    const float more = to->dtype == sinter_u8 ? 128 : 0;
    for (int64_t n = 0; n < N; n += TILES_COLUMNS) {
        for (int64_t g = 0; g < groups; g++, from += TILES_COLUMNS * bytes) {
            for (int c = 0; c < TILES_COLUMNS && n + c < N; c++) {
                const int64_t at = codes_at(to, g, n + c);
                if (zps) {
                    const float zp = (float)(int8_t)from[c] + more;
                    to->type->codec.store_f32(groups_output(to, 0), at, 1, 1, &zp);
                } else {
                    memcpy(groups_output(to, at), from + c * bytes, (size_t)bytes);
                }
            }
        }
    }
}
