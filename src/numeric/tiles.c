#include "numeric/tiles.h"

#include <string.h>

#include "base/alloc.h"
#include "numeric/packed.h"

const int8_t tiles_numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                  1,    13,   25,  38,  53,  69,  89,  113};

static bool is_zero_point(sinter_data_type_t type)
{
    return dtype_traits(type)->cls == DTYPE_INT;
}

bool tiles_of_codes(int bits, int64_t K, int64_t N, int64_t *bytes)
{
    return mul_i64(tiles_strips(N), tiles_along(K), bytes) &&
           mul_i64(*bytes, tiles_bytes(bits), bytes);
}

/* Bytes of the values of a group of a strip. */
static int bytes_of_values(tiled_t as, sinter_data_type_t type)
{
    const int bits = tiles_kept(as) > 0    ? tiles_kept(as)
                     : is_zero_point(type) ? 8
                                           : dtype_traits(type)->bits;
    return TILES_COLUMNS * bits / 8;
}

bool tiles_of_values(tiled_t as, sinter_data_type_t type, int64_t groups, int64_t N, int64_t *bytes)
{
    return mul_i64(tiles_strips(N), groups, bytes) &&
           mul_i64(*bytes, bytes_of_values(as, type), bytes);
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
        code[i] = (uint8_t)packed_get(from->type->bits, from->data, first + i * stride);
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
    const uint32_t bytes = 0x01010101;
    uint32_t x[DWORDS];
    memcpy(x, code, TILES_K);
    for (int i = 0; i < DWORDS && bits == 8; i++) {
        memcpy(tile + i * TILES_LINE, &x[i], 4);
    }
    /* Planes of `some` bits, of which the codes have `done` in planes before. */
    for (int some = 4, done = 0; some > 0 && bits < 8; some /= 2) {
        if ((bits & some) == 0) {
            continue;
        }
        const uint32_t mask = bytes * ((1u << some) - 1);
        for (int j = 0; j < some; j++, tile += TILES_LINE) {
            uint32_t line = 0;
            for (int i = 0; i < 8 / some; i++) {
                /* Lines of four bits have every fourth dword, those of fewer bits neighbours. */
                const int at = some == 4 ? 4 * i + j : 8 / some * j + i;
                line |= (x[at] >> done & mask) << some * i;
            }
            line ^= flip * bytes;
            memcpy(tile, &line, 4);
        }
        done += some;
    }
}

/* The first n codes of a column become their places in the table; those behind them, 0. False: some
 * are not in the table. */
static bool find_numbers(int n, uint8_t *code)
{
    bool found = true;
    for (int i = 0; i < n; i++) {
        uint8_t at = 0;
        while (at < 16 && (uint8_t)tiles_numbers[at] != code[i]) {
            at++;
        }
        found = found && at < 16;
        code[i] = at & 15;
    }
    return found;
}

/* Codes as they count from zero in the bits that are kept. False: some do not fit. */
static bool count_from_zero(int kept, sinter_data_type_t type, uint8_t *code)
{
    uint8_t all = 0;
    for (int i = 0; i < TILES_K; i++) {
        code[i] = (uint8_t)(code[i] + tiles_zero(kept, type));
        all |= code[i];
    }
    return all >> kept == 0;
}

/* Fills a tile with codes of 0, for the columns that the weights lack. */
static void clear_tile(int bits, int kept, sinter_data_type_t type, unsigned char *tile)
{
    uint8_t code[TILES_K];
    memset(code, kept == TILES_NUMBER ? 0 : tiles_zero(kept, type), sizeof code);
    for (int c = 0; c < TILES_COLUMNS; c++) {
        put_codes(bits, code, flip_of(type), tile + 4 * c);
    }
}

/* Elements k.. and columns n.. of floats as a tile, zeros where there are none. */
static void put_floats(const groups_t *from, int64_t k, int rows, int64_t n, int columns,
                       unsigned char *tile)
{
    const int bits = from->type->bits, bytes = bits / 8;
    memset(tile, 0, (size_t)tiles_bytes(bits));
    for (int c = 0; c < columns; c++) {
        for (int i = 0; i < rows; i++) {
            memcpy(tile + tiles_place(bits, i, c), groups_byte(from, codes_at(from, k + i, n + c)),
                   (size_t)bytes);
        }
    }
}

bool tiles_pack_codes(const groups_t *from, tiled_t as, int64_t K, int64_t N, unsigned char *to)
{
    const int bits = tiles_bits(as, from->dtype), kept = tiles_kept(as), bytes = tiles_bytes(bits);
    const bool by_bytes = kept == 0 && from->row.stride == 1;
    const uint8_t flip = flip_of(from->dtype);
    uint8_t code[TILES_K];
    bool fit = true;
    for (int64_t n = 0; n < N; n += TILES_COLUMNS) {
        for (int64_t k = 0; k < K; k += TILES_K, to += bytes) {
            const int whole = K - k < TILES_K ? (int)(K - k) : TILES_K,
                      there = N - n < TILES_COLUMNS ? (int)(N - n) : TILES_COLUMNS;
            if (bits > 8) {
                put_floats(from, k, whole, n, there, to);
                continue;
            }
            if (there < TILES_COLUMNS) {
                clear_tile(bits, kept, from->dtype, to);
            }
            for (int c = 0; c < there; c++) {
                const int64_t at = codes_at(from, k, n + c);
                if (bits == 4 && by_bytes && at % 2 == 0 && whole == TILES_K) {
                    put_nibbles(from->data + at / 2, flip, to + 4 * c);
                    continue;
                }
                load_codes(from, k, n + c, whole, code);
                fit = (kept == 0              ? true
                       : kept == TILES_NUMBER ? find_numbers(whole, code)
                                              : count_from_zero(kept, from->dtype, code)) &&
                      fit;
                put_codes(bits, code, flip, to + 4 * c);
            }
        }
    }
    return fit;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* Puts sixteen values, as they count from zero, into planes. */
static void put_kept_values(const uint8_t *value, int kept, unsigned char *to)
{
    memset(to, 0, (size_t)(TILES_COLUMNS * kept / 8));
    for (int some = 4, done = 0; some > 0; some /= 2) {
        for (int c = 0; c < TILES_COLUMNS && (kept & some) != 0; c++) {
            const int bits = value[c] >> done & ((1 << some) - 1);
            to[c % (2 * some)] |= (unsigned char)(bits << c / (2 * some) * some);
        }
        to += kept & some ? 2 * some : 0;
        done += kept & some;
    }
}

void tiles_kept_values(const unsigned char *from, int kept, uint8_t *to)
{
    memset(to, 0, TILES_COLUMNS);
    for (int some = 4, done = 0; some > 0; some /= 2) {
        for (int c = 0; c < TILES_COLUMNS && (kept & some) != 0; c++) {
            const int bits = from[c % (2 * some)] >> c / (2 * some) * some & ((1 << some) - 1);
            to[c] |= (uint8_t)(bits << done);
        }
        from += kept & some ? 2 * some : 0;
        done += kept & some;
    }
}

/* The values of a group. False: some do not fit the bits that are kept. */
static bool keep_values(const groups_t *from, int kept, int64_t group, int64_t column, int columns,
                        unsigned char *to)
{
    const int zero = tiles_zero(kept, from->dtype);
    uint8_t value[TILES_COLUMNS];
    bool fit = true;
    memset(value, zero, sizeof value);
    for (int c = 0; c < columns; c++) {
        value[c] = (uint8_t)(from->data[codes_at(from, group, column + c)] + zero);
        fit = fit && value[c] >> kept == 0;
    }
    put_kept_values(value, kept, to);
    return fit;
}

static void put_value(const groups_t *from, int64_t at, int c, unsigned char *line)
{
    if (is_zero_point(from->dtype)) {
        float zp;
        from->type->codec.load_f32(from->data, at, 1, 1, &zp);
        line[c] = (unsigned char)(int8_t)(zp - (from->dtype == sinter_u8 ? 128 : 0));
    } else {
        const int bytes = from->type->bits / 8;
        memcpy(line + c * bytes, from->data + at * bytes, (size_t)bytes);
    }
}

bool tiles_pack_values(const groups_t *from, tiled_t as, int64_t groups, int64_t N,
                       unsigned char *to)
{
    const int kept = tiles_kept(as), line = bytes_of_values(as, from->dtype);
    bool fit = true;
    for (int64_t n = 0; n < N; n += TILES_COLUMNS) {
        const int columns = N - n < TILES_COLUMNS ? (int)(N - n) : TILES_COLUMNS;
        for (int64_t g = 0; g < groups; g++, to += line) {
            if (kept > 0) {
                fit = keep_values(from, kept, g, n, columns, to) && fit;
                continue;
            }
            memset(to, 0, (size_t)line);
            for (int c = 0; c < columns; c++) {
                const int64_t at = codes_at(from, g, n + c);
                put_value(from, at, c, to);
            }
        }
    }
    return fit;
}

/* ---- one token of a cache -------------------------------------------------------------------- */

void tiles_put_column(const groups_t *from, int64_t at, tiled_t as, int64_t K, int64_t column,
                      unsigned char *to)
{
    const int c = (int)(column % TILES_COLUMNS), bits = from->type->bits;
    uint8_t code[TILES_K];
    if (tiles_are_values(as)) {
        const int line = bytes_of_values(as, from->dtype);
        to += column / TILES_COLUMNS * K * line;
        for (int64_t g = 0; g < K; g++, to += line) {
            put_value(from, codes_at(from, g, at), c, to);
        }
        return;
    }
    to += column / TILES_COLUMNS * tiles_along(K) * tiles_bytes(bits);
    for (int64_t k = 0; k < K; k += TILES_K, to += tiles_bytes(bits)) {
        const int n = K - k < TILES_K ? (int)(K - k) : TILES_K;
        const int64_t first = codes_at(from, k, at);
        const bool whole = n == TILES_K && from->row.stride == 1;
        if (whole && bits > 8) { /* each dword of the tile is one of the source */
            const unsigned char *x = groups_byte(from, first);
            for (int i = 0; i < bits; i++) {
                memcpy(to + i * TILES_LINE + 4 * c, x + 4 * i, 4);
            }
        } else if (whole && bits == 4 && first % 2 == 0) {
            put_nibbles(from->data + first / 2, flip_of(from->dtype), to + 4 * c);
        } else if (bits > 8) {
            for (int i = 0; i < n; i++) {
                memcpy(to + tiles_place(bits, i, c), groups_byte(from, codes_at(from, k + i, at)),
                       (size_t)bits / 8);
            }
        } else {
            load_codes(from, k, at, n, code);
            put_codes(bits, code, flip_of(from->dtype), to + 4 * c);
        }
    }
}

/* A code of less than 8 bits, at element k of a column whose first dword is at `to`. */
static void put_code(int bits, unsigned code, int k, unsigned char *to)
{
    for (int some = 4; some > 0; some /= 2) {
        if ((bits & some) == 0) {
            continue;
        }
        /* Lines of four bits have every fourth dword, those of fewer bits neighbours. */
        const int dword = k / 4, each = 8 / some, line = some == 4 ? dword % 4 : dword / each,
                  shift = some * (some == 4 ? dword / 4 : dword % each), mask = (1 << some) - 1;
        unsigned char *byte = to + line * TILES_LINE + k % 4;
        *byte = (unsigned char)((*byte & ~(mask << shift)) | ((int)code & mask) << shift);
        code >>= some;
        to += some * TILES_LINE;
    }
}

/* Columns of a row of a tile whose elements have so many bytes, a constant, and lie `step` bytes
 * apart. */
static inline void put_elements(const unsigned char *from, int64_t step, int bytes, int columns,
                                unsigned char *to)
{
    for (int c = 0; c < columns; c++) {
        memcpy(to + 4 * c, from + c * step, (size_t)bytes);
    }
}

/* The same of codes of 4 bits, of which `flip` is flipped, from element e on. */
static void put_nibbles_of_row(const unsigned char *from, int64_t e, int64_t step, int flip,
                               int columns, int k, unsigned char *to)
{
    const int shift = k / 16 * 4, keep = 0xf0 >> shift;
    to += k / 4 % 4 * TILES_LINE + k % 4;
    for (int c = 0; c < columns; c++, e += step) {
        const int code = (from[e / 2] >> e % 2 * 4 & 15) ^ flip;
        to[4 * c] = (unsigned char)((to[4 * c] & keep) | code << shift);
    }
}

void tiles_put_row(const groups_t *from, int64_t at, int64_t K, int64_t N, int64_t row,
                   unsigned char *to)
{
    const int bits = from->type->bits, k = (int)(row % TILES_K);
    const int64_t strip = tiles_along(K) * tiles_bytes(bits), first = codes_at(from, at, 0),
                  step = from->column.stride;
    to += row / TILES_K * tiles_bytes(bits);
    for (int64_t n = 0; n < N; n += TILES_COLUMNS, to += strip) {
        const int columns = N - n < TILES_COLUMNS ? (int)(N - n) : TILES_COLUMNS;
        const int64_t e = first + n * step;
        switch (bits) {
        case 4:
            put_nibbles_of_row(from->data, e, step, tiles_flip(from->dtype), columns, k, to);
            break;
        case 8:
            put_elements(from->data + e, step, 1, columns, to + tiles_place(8, k, 0));
            break;
        case 16:
            put_elements(from->data + 2 * e, 2 * step, 2, columns, to + tiles_place(16, k, 0));
            break;
        case 32:
            put_elements(from->data + 4 * e, 4 * step, 4, columns, to + tiles_place(32, k, 0));
            break;
        default:
            for (int c = 0; c < columns; c++) {
                put_code(bits, packed_get(bits, from->data, e + c * step), k, to + 4 * c);
            }
        }
    }
}

/* ---- back ------------------------------------------------------------------------------------ */

void tiles_codes(const unsigned char *tile, tiled_t as, sinter_data_type_t type,
                 uint8_t (*to)[TILES_COLUMNS])
{
    const int bits = tiles_bits(as, type), zero = tiles_zero(tiles_kept(as), type);
    const bool numbers = tiles_kept(as) == TILES_NUMBER;
    const uint8_t flip = flip_of(type);
    for (int k = 0; k < TILES_K; k += 4) {
        uint8_t code[TILES_LINE] = {0};
        const unsigned char *plane = tile;
        for (int some = bits == 8 ? 8 : 4, done = 0; some > 0; some /= 2) {
            if ((bits & some) == 0) {
                continue;
            }
            const int i = k / 4, each = 8 / some, line = some == 4 ? i % 4 : i / each,
                      shift = some * (some == 4 ? i / 4 : i % each), mask = (1 << some) - 1;
            const unsigned char *from = plane + line * TILES_LINE;
            for (int c = 0; c < TILES_LINE; c++) {
                code[c] |= (uint8_t)(((from[c] ^ flip) >> shift & mask) << done);
            }
            plane += some * TILES_LINE;
            done += some;
        }
        for (int c = 0; c < TILES_LINE; c++) {
            to[k + c % 4][c / 4] = (uint8_t)(numbers ? tiles_numbers[code[c]] : code[c] - zero);
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
            if (bits <= 8) {
                tiles_codes(from, as, to->dtype, code);
            }
            for (int c = 0; c < TILES_COLUMNS && n + c < N; c++) {
                for (int i = 0; i < TILES_K && k + i < K; i++) {
                    const int64_t at = codes_at(to, k + i, n + c);
                    if (bits > 8) {
                        memcpy(groups_output(to, at), from + tiles_place(bits, i, c),
                               (size_t)bits / 8);
                    } else {
                        packed_put(bits, groups_output(to, 0), at, code[i][c]);
                    }
                }
            }
        }
    }
}

/* Value c of a group. kept_values: all of its values, where some bits are kept. */
static void store_value(const unsigned char *line, const uint8_t *kept_values, int kept, int c,
                        const groups_t *to, int64_t at)
{
    if (kept > 0) {
        *groups_output(to, at) = (uint8_t)(kept_values[c] - tiles_zero(kept, to->dtype));
    } else if (is_zero_point(to->dtype)) {
        const float zp = (float)(int8_t)line[c] + (to->dtype == sinter_u8 ? 128 : 0);
        to->type->codec.store_f32(groups_output(to, 0), at, 1, 1, &zp);
    } else {
        const int bytes = to->type->bits / 8;
        memcpy(groups_output(to, at), line + c * bytes, (size_t)bytes);
    }
}

void tiles_unpack_values(const unsigned char *from, tiled_t as, int64_t groups, int64_t N,
                         const groups_t *to)
{
    const int kept = tiles_kept(as), line = bytes_of_values(as, to->dtype);
    uint8_t value[TILES_COLUMNS];
    for (int64_t n = 0; n < N; n += TILES_COLUMNS) {
        for (int64_t g = 0; g < groups; g++, from += line) {
            if (kept > 0) {
                tiles_kept_values(from, kept, value);
            }
            for (int c = 0; c < TILES_COLUMNS && n + c < N; c++) {
                store_value(from, value, kept, c, to, codes_at(to, g, n + c));
            }
        }
    }
}

/* ---- one token of a cache, or one row of a table, back --------------------------------------- */

/* The codes of a column of a tile, the sign bit of s4 as it was. */
static void take_codes(int bits, const unsigned char *tile, uint8_t flip, uint8_t *code)
{
    enum { DWORDS = TILES_K / 4 };
    const uint32_t bytes = 0x01010101;
    uint32_t x[DWORDS] = {0};
    for (int i = 0; i < DWORDS && bits == 8; i++) {
        memcpy(&x[i], tile + i * TILES_LINE, 4);
    }
    for (int some = 4, done = 0; some > 0 && bits < 8; some /= 2) {
        if ((bits & some) == 0) {
            continue;
        }
        const uint32_t mask = bytes * ((1u << some) - 1);
        for (int j = 0; j < some; j++, tile += TILES_LINE) {
            uint32_t line;
            memcpy(&line, tile, 4);
            line ^= flip * bytes;
            for (int i = 0; i < 8 / some; i++) { /* as put_codes */
                const int at = some == 4 ? 4 * i + j : 8 / some * j + i;
                x[at] |= (line >> some * i & mask) << done;
            }
        }
        done += some;
    }
    memcpy(code, x, TILES_K);
}

/* n codes of column 0 from element k on. */
static void store_codes(const groups_t *to, int64_t k, int n, const uint8_t *code)
{
    const int64_t first = codes_at(to, k, 0), stride = to->row.stride;
    const int bits = to->type->bits;
    unsigned char *byte = groups_output(to, 0);
    if (stride == 1 && bits == 8) {
        memcpy(byte + first, code, (size_t)n);
    } else if (stride == 1 && bits == 4 && first % 2 == 0 && n % 2 == 0) {
        for (int i = 0; i < n / 2; i++) {
            byte[first / 2 + i] = (unsigned char)(code[2 * i] | code[2 * i + 1] << 4);
        }
    } else {
        for (int i = 0; i < n; i++) {
            packed_put(bits, byte, first + i * stride, code[i]);
        }
    }
}

void tiles_take_column(const unsigned char *from, tiled_t as, int64_t K, int64_t column,
                       const groups_t *to)
{
    const int c = (int)(column % TILES_COLUMNS), bits = tiles_bits(as, to->dtype),
              kept = tiles_kept(as);
    if (tiles_are_values(as)) {
        const int line = bytes_of_values(as, to->dtype);
        uint8_t value[TILES_COLUMNS];
        from += column / TILES_COLUMNS * K * line;
        for (int64_t g = 0; g < K; g++, from += line) {
            if (kept > 0) {
                tiles_kept_values(from, kept, value);
            }
            store_value(from, value, kept, c, to, codes_at(to, g, 0));
        }
        return;
    }
    from += column / TILES_COLUMNS * tiles_along(K) * tiles_bytes(bits);
    for (int64_t k = 0; k < K; k += TILES_K, from += tiles_bytes(bits)) {
        const int n = K - k < TILES_K ? (int)(K - k) : TILES_K;
        uint8_t code[TILES_K];
        for (int i = 0; i < n && bits > 8; i++) {
            memcpy(groups_output(to, codes_at(to, k + i, 0)), from + tiles_place(bits, i, c),
                   (size_t)bits / 8);
        }
        if (bits <= 8) {
            take_codes(bits, from + 4 * c, flip_of(to->dtype), code);
            for (int i = 0; i < TILES_K && kept > 0; i++) {
                code[i] = kept == TILES_NUMBER ? (uint8_t)tiles_numbers[code[i]]
                                               : (uint8_t)(code[i] - tiles_zero(kept, to->dtype));
            }
            store_codes(to, k, n, code);
        }
    }
}

/* The code of less than 8 bits at element k of a column whose first dword is at `from`. */
static unsigned take_code(int bits, int k, const unsigned char *from)
{
    unsigned code = 0;
    for (int some = 4, done = 0; some > 0; some /= 2) {
        if ((bits & some) == 0) {
            continue;
        }
        const int dword = k / 4, each = 8 / some, line = some == 4 ? dword % 4 : dword / each,
                  shift = some * (some == 4 ? dword / 4 : dword % each), mask = (1 << some) - 1;
        code |= (unsigned)(from[line * TILES_LINE + k % 4] >> shift & mask) << done;
        from += some * TILES_LINE;
        done += some;
    }
    return code;
}

void tiles_take_row(const unsigned char *from, int64_t K, int64_t N, int64_t row,
                    const groups_t *to)
{
    const int bits = to->type->bits, k = (int)(row % TILES_K);
    const int64_t strip = tiles_along(K) * tiles_bytes(bits);
    from += row / TILES_K * tiles_bytes(bits);
    for (int64_t n = 0; n < N; n += TILES_COLUMNS, from += strip) {
        const int columns = N - n < TILES_COLUMNS ? (int)(N - n) : TILES_COLUMNS;
        for (int c = 0; c < columns; c++) {
            const int64_t at = codes_at(to, 0, n + c);
            if (bits >= 8) {
                memcpy(groups_output(to, at), from + tiles_place(bits, k, c), (size_t)bits / 8);
            } else {
                packed_put(bits, groups_output(to, 0), at,
                           take_code(bits, k, from + 4 * c) ^ (unsigned)tiles_flip(to->dtype));
            }
        }
    }
}
