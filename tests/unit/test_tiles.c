/* Weights in tiles: where packing puts every code and value, from any strides, and the products of
 * all micro-kernels that the machine has, against sums in double of the same codes. */
#define _POSIX_C_SOURCE 200809L

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "base/cpu.h"
#include "check.h"

#include "backend_xsmm/ukernels/tiles.h"
#include "numeric/tiles_bulk.h"

enum { MOST_K = 256, MOST_N = 40, PLANE = 1 << 16, ROOM = TILES_ROWS };

static uint64_t state = 1;

static uint32_t draw(uint32_t n)
{
    state = state * UINT64_C(6364136223846793005) + 1442695040888963407;
    return (uint32_t)(state >> 33) % n;
}

/* Plain floats, without scales. */
static const sinter_data_type_t plain_types[] = {sinter_f32, sinter_f16, sinter_bf16};
enum { PLAIN_TYPES = sizeof plain_types / sizeof *plain_types };

/* Codes in tiles: a type with all of its bits, codes of 8 bits of which 1 to 6 are kept, codes of
 * s8 that are numbers of a table, or floats of 8 or 6 bits, which products of integers do not take.
 */
enum {
    WHOLE = 5,
    NUMBERS = WHOLE + 2 * 6,
    FLOATS_8 = NUMBERS + 1,
    FLOATS_6 = FLOATS_8 + 2,
    KINDS = FLOATS_6 + 2,
    IN_TABLE = 7
};

/* The table of IQ4_NL. */
static const signed char numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                        1,    13,   25,  38,  53,  69,  89,  113};

static sinter_data_type_t type_of(int kind)
{
    static const sinter_data_type_t types[WHOLE] = {sinter_s4, sinter_u4, sinter_f4_e2m1, sinter_s8,
                                                    sinter_u8},
                                    floats[] = {sinter_f8_e5m2, sinter_f8_e4m3, sinter_f6_e3m2,
                                                sinter_f6_e2m3};
    return kind >= FLOATS_8 ? floats[kind - FLOATS_8]
           : kind < WHOLE   ? types[kind]
                            : types[kind == NUMBERS ? 3 : 3 + kind % 2];
}

static int kept_of(int kind)
{
    return kind < WHOLE || kind >= FLOATS_8 ? 0
           : kind == NUMBERS                ? IN_TABLE
                                            : (kind - WHOLE) / 2 + 1;
}

/* ---- packing --------------------------------------------------------------------------------- */

/* Bit by bit. */
static int code_of(const unsigned char *data, int bits, int64_t at)
{
    int code = 0;
    for (int i = 0; i < bits; i++) {
        code |= (data[(at * bits + i) / 8] >> (at * bits + i) % 8 & 1) << i;
    }
    return code;
}

static void flip_code(unsigned char *data, int bits, int64_t at)
{
    for (int64_t i = at * bits; i < (at + 1) * bits; i++) {
        data[i / 8] ^= (unsigned char)(1 << i % 8);
    }
}

/* The code of a plane of tiles, by the definition in numeric/tiles.h. kept: as kept_of says. */
static int tiled_code(const unsigned char *plane, sinter_data_type_t type, int kept, int64_t tiles,
                      int64_t k, int64_t n)
{
    const int bits = kept == IN_TABLE ? 4
                     : kept > 0       ? kept
                                      : dtype_traits(type)->bits,
              flip = type == sinter_s4 ? 8 : 0;
    const unsigned char *tile = plane + (n / 16 * tiles + k / 32) * 512 * bits / 8;
    const int at = (int)(k % 32), byte = (int)(n % 16) * 4 + at % 4;
    if (bits == 8) {
        return tile[at / 4 * 64 + byte];
    }
    int code = 0, line = 0, done = 0;
    if (bits & 4) {
        code = tile[at % 16 / 4 * 64 + byte] >> at / 16 * 4 & 15;
        line = done = 4;
    }
    if (bits & 2) {
        code |= (tile[(line + at / 16) * 64 + byte] >> at % 16 / 4 * 2 & 3) << done;
        line = done = done + 2;
    }
    if (bits & 1) {
        code |= (tile[line * 64 + byte] >> at / 4 & 1) << done;
    }
    return kept == IN_TABLE ? (unsigned char)numbers[code]
           : kept > 0       ? (unsigned char)(code - (type == sinter_s8 ? 1 << (kept - 1) : 0))
                            : code ^ flip;
}

/* What packs and unpacks: these features. */
static features_t has;

static void check_codes(sinter_data_type_t type, int kept, int64_t K, int64_t N, int64_t first,
                        int64_t row, int64_t column)
{
    static unsigned char data[PLANE], plane[PLANE + 1], back[PLANE];
    const bool table = kept == IN_TABLE;
    const int bits = dtype_traits(type)->bits,
              in_tile = table      ? 4
                        : kept > 0 ? kept
                                   : bits,
              least = type == sinter_s8 && kept > 0 ? -(1 << (kept - 1)) : 0;
    const tiled_t as = (tiled_t)(TILED_CODES + kept);
    const int64_t tiles = (K + 31) / 32, strips = (N + 15) / 16;
    const groups_t from = {.data = data,
                           .type = dtype_traits(type),
                           .dtype = type,
                           .first = first,
                           .row = {row, 1},
                           .column = {column, 1}};
    int64_t bytes = 0;
    for (int i = 0; i < PLANE; i++) {
        data[i] = (unsigned char)(table ? numbers[draw(16)]
                                        : (int)draw(kept > 0 ? 1u << kept : 256) + least);
    }
    CHECK_THAT(tiles_of_codes(in_tile, K, N, &bytes) &&
               bytes == strips * tiles * 512 * in_tile / 8);
    memset(plane, 0xa5, sizeof plane);
    CHECK_THAT(tiles_bulk_pack_codes(has, &from, as, K, N, plane));
    int64_t wrong = 0;
    for (int64_t k = 0; k < tiles * 32; k++) {
        for (int64_t n = 0; n < strips * 16; n++) {
            const bool there = k < K && n < N;
            const int lacking = table ? (unsigned char)numbers[0] : 0,
                      want = there ? code_of(data, bits, first + k * row + n * column) : lacking;
            wrong += tiled_code(plane, type, kept, tiles, k, n) != want;
        }
    }
    CHECK(wrong == 0 && plane[bytes] == 0xa5,
          "features %x, %s, %d bits kept, K %lld, N %lld, from %lld, strides %lld and %lld: %lld "
          "codes are elsewhere",
          has.bits, sinter_data_type_name(type), kept, (long long)K, (long long)N, (long long)first,
          (long long)row, (long long)column, (long long)wrong);
    groups_t to = from;
    to.data = back;
    memcpy(back, data, sizeof back);
    for (int64_t k = 0; k < K; k++) {
        for (int64_t n = 0; n < N; n++) {
            flip_code(back, bits, first + k * row + n * column);
        }
    }
    tiles_bulk_unpack_codes(has, plane, as, K, N, &to);
    CHECK_THAT(memcmp(back, data, sizeof back) == 0);
    const int others[] = {table ? 0 : least - 1, table ? -128 : least + (1 << kept)};
    for (int i = 0; i < 2 && kept > 0; i++) { /* no other code is taken */
        const int64_t k = draw((uint32_t)K), n = draw((uint32_t)N);
        data[first + k * row + n * column] = (unsigned char)others[i];
        CHECK_THAT(!tiles_bulk_pack_codes(has, &from, as, K, N, plane));
    }
}

/* The value of column c of a line of which some bits are kept, counted from zero. */
static int kept_value(const unsigned char *line, int kept, int c)
{
    int value = 0, done = 0;
    if (kept & 4) {
        value = line[c % 8] >> c / 8 * 4 & 15;
        line += 8;
        done = 4;
    }
    if (kept & 2) {
        value |= (line[c % 4] >> c / 4 * 2 & 3) << done;
        line += 4;
        done += 2;
    }
    return kept & 1 ? value | (line[c % 2] >> c / 2 & 1) << done : value;
}

/* Values of s8 or u8 of which some bits are kept. */
static void check_kept_values(sinter_data_type_t type, int kept, int64_t groups, int64_t N)
{
    static unsigned char data[PLANE], plane[PLANE + 1], back[PLANE];
    const int least = type == sinter_s8 ? -(1 << (kept - 1)) : 0;
    const tiled_t as = (tiled_t)(TILED_VALUES + kept);
    groups_t from = {.data = data,
                     .type = dtype_traits(type),
                     .dtype = type,
                     .row = {1, 1},
                     .column = {groups, 1}};
    int64_t bytes = 0, wrong = 0;
    for (int i = 0; i < PLANE; i++) {
        data[i] = (unsigned char)((int)draw(1u << kept) + least);
    }
    CHECK_THAT(tiles_of_values(as, type, groups, N, &bytes) &&
               bytes == (N + 15) / 16 * groups * 2 * kept);
    memset(plane, 0xa5, sizeof plane);
    CHECK_THAT(tiles_pack_values(&from, as, groups, N, plane));
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t n = 0; n < (N + 15) / 16 * 16; n++) {
            const unsigned char *line = plane + (n / 16 * groups + g) * 2 * kept;
            const unsigned char got = (unsigned char)(kept_value(line, kept, n % 16) + least);
            wrong += got != (n < N ? data[n * groups + g] : 0);
        }
    }
    CHECK(wrong == 0 && plane[bytes] == 0xa5, "%s, %d bits kept, %lld groups: %lld are elsewhere",
          sinter_data_type_name(type), kept, (long long)groups, (long long)wrong);
    groups_t to = from;
    to.data = back;
    memcpy(back, data, sizeof back);
    memset(back, 0xa5, (size_t)(groups * N));
    tiles_unpack_values(plane, as, groups, N, &to);
    CHECK_THAT(memcmp(back, data, sizeof back) == 0);
    data[groups * N - 1] = (unsigned char)(least + (1 << kept));
    CHECK_THAT(!tiles_pack_values(&from, as, groups, N, plane));
}

static void check_values(sinter_data_type_t type, int64_t groups, int64_t N, int64_t row,
                         int64_t column)
{
    static unsigned char data[PLANE], plane[PLANE + 1];
    const int bits = dtype_traits(type)->bits, is_int = dtype_traits(type)->cls == DTYPE_INT,
              each = is_int ? 1 : bits / 8, less = type == sinter_u8 ? 128 : 0;
    const groups_t from = {.data = data,
                           .type = dtype_traits(type),
                           .dtype = type,
                           .first = 1,
                           .row = {row, 1},
                           .column = {column, 1}};
    int64_t bytes = 0, wrong = 0;
    for (int i = 0; i < PLANE; i++) {
        data[i] = (unsigned char)draw(256);
    }
    CHECK_THAT(tiles_of_values(TILED_VALUES, type, groups, N, &bytes) &&
               bytes == (N + 15) / 16 * groups * 16 * each);
    memset(plane, 0xa5, sizeof plane);
    CHECK_THAT(tiles_bulk_pack_values(has, &from, TILED_VALUES, groups, N, plane));
    for (int64_t g = 0; g < groups; g++) {
        for (int64_t n = 0; n < (N + 15) / 16 * 16; n++) {
            const unsigned char *at = plane + ((n / 16 * groups + g) * 16 + n % 16) * each;
            const int64_t element = 1 + g * row + n * column;
            if (n >= N) {
                wrong += at[0] != 0;
            } else if (is_int) {
                float zp;
                dtype_traits(type)->codec.load_f32(data, element, 1, 1, &zp);
                wrong += (signed char)at[0] != (int)zp - less;
            } else {
                wrong += memcmp(at, data + element * each, (size_t)each) != 0;
            }
        }
    }
    CHECK(wrong == 0 && plane[bytes] == 0xa5,
          "features %x, %s, %lld groups, N %lld, strides %lld and %lld: %lld values are elsewhere",
          has.bits, sinter_data_type_name(type), (long long)groups, (long long)N, (long long)row,
          (long long)column, (long long)wrong);
}

/* Where a plane of tiles has a float, by the definition in numeric/tiles.h. */
static int64_t place_of_float(int bits, int64_t tiles, int64_t k, int64_t n)
{
    const int64_t tile = (n / 16 * tiles + k / 32) * 64 * bits, at = k % 32, column = n % 16 * 4;
    return bits == 32 ? tile + at * 64 + column : tile + at / 2 * 64 + column + at % 2 * 2;
}

static void check_plain(sinter_data_type_t type, int64_t K, int64_t N, int64_t row, int64_t column)
{
    enum { BYTES = 1 << 19 };
    static unsigned char data[BYTES], plane[BYTES + 1], back[BYTES];
    const int bits = dtype_traits(type)->bits;
    const size_t each = (size_t)bits / 8;
    const int64_t tiles = (K + 31) / 32, strips = (N + 15) / 16;
    const groups_t from = {.data = data,
                           .type = dtype_traits(type),
                           .dtype = type,
                           .first = 3,
                           .row = {row, 1},
                           .column = {column, 1}};
    int64_t bytes = 0, wrong = 0;
    for (size_t i = 0; i < sizeof data; i += 8) {
        const uint64_t x = draw(UINT32_MAX) * UINT64_C(0x9e3779b97f4a7c15);
        memcpy(data + i, &x, sizeof x);
    }
    CHECK_THAT(tiles_of_codes(bits, K, N, &bytes) && bytes == strips * tiles * 64 * bits);
    memset(plane, 0xa5, sizeof plane);
    CHECK_THAT(tiles_bulk_pack_codes(has, &from, TILED_CODES, K, N, plane));
    for (int64_t k = 0; k < tiles * 32; k++) {
        for (int64_t n = 0; n < strips * 16; n++) {
            static const unsigned char zero[4];
            const unsigned char *want =
                k < K && n < N ? data + (size_t)(3 + k * row + n * column) * each : zero;
            wrong += memcmp(plane + place_of_float(bits, tiles, k, n), want, each) != 0;
        }
    }
    CHECK(wrong == 0 && plane[bytes] == 0xa5,
          "features %x, %s, K %lld, N %lld, strides %lld and %lld: %lld floats are elsewhere",
          has.bits, sinter_data_type_name(type), (long long)K, (long long)N, (long long)row,
          (long long)column, (long long)wrong);
    groups_t to = from;
    to.data = back;
    memcpy(back, data, sizeof back);
    for (int64_t i = 0; i < K * N; i++) {
        back[(size_t)(3 + i / N * row + i % N * column) * each] ^= 0xff;
    }
    tiles_bulk_unpack_codes(has, plane, TILED_CODES, K, N, &to);
    CHECK(memcmp(back, data, sizeof back) == 0,
          "features %x, %s, K %lld, N %lld, strides %lld and %lld: not the same again", has.bits,
          sinter_data_type_name(type), (long long)K, (long long)N, (long long)row,
          (long long)column);
}

static void test_packing_floats(void)
{
    static const int64_t K[] = {1, 31, 32, 33, 64, 100, 256}, N[] = {1, 15, 16, 17, 40, 250};
    for (int i = 0; i < PLAIN_TYPES * 7 * 6; i++) {
        const sinter_data_type_t type = plain_types[i % PLAIN_TYPES];
        const int64_t k = K[i / PLAIN_TYPES % 7], n = N[i / PLAIN_TYPES / 7];
        check_plain(type, k, n, 1, k); /* along K */
        check_plain(type, k, n, 1, k + 5);
        check_plain(type, k, n, n, 1); /* along N */
        check_plain(type, k, n, n + 3, 1);
        check_plain(type, k, n < 100 ? n : 40, 3, 3 * k + 2);
        check_plain(type, k, n, 0, 1); /* the same row again and again */
    }
}

static void test_packing(void)
{
    static const sinter_data_type_t values[] = {sinter_f32,     sinter_f16, sinter_bf16,
                                                sinter_e8m0,    sinter_s4,  sinter_u4,
                                                sinter_f8_e4m3, sinter_s8,  sinter_u8};
    static const int64_t K[] = {1, 31, 32, 33, 64, 100, 256}, N[] = {1, 15, 16, 17, 40, 250};
    for (int t = 0; t < KINDS; t++) {
        const sinter_data_type_t type = type_of(t);
        const int kept = kept_of(t);
        for (int i = 0; i < 7 * 6; i++) {
            const int64_t k = K[i % 7], n = N[i / 7];
            check_codes(type, kept, k, n, 4, 1, k); /* along K */
            check_codes(type, kept, k, n, 3, 1, k);
            check_codes(type, kept, k, n, 4, 1, k + 1 + k % 2);
            check_codes(type, kept, k, n, 4, n, 1); /* along N */
            check_codes(type, kept, k, n, 4, n + 6, 1);
            check_codes(type, kept, k, n, 3, n, 1);
            check_codes(type, kept, k, n, 3, n < 100 ? 3 : k, n < 100 ? 3 * k + 2 : 1);
            check_codes(type, kept, k, n, 4, 0, 1); /* the same row again and again */
        }
    }
    for (size_t t = 0; t < sizeof values / sizeof *values; t++) {
        for (int i = 0; i < 7 * 6; i++) {
            const int64_t groups = K[i % 7], n = N[i / 7];
            if (n < 100 || groups < 64) {
                check_values(values[t], groups, n, 1, groups);
                check_values(values[t], groups, n, n + 1, 1);
                check_values(values[t], groups, n, 2, groups);
                check_values(values[t], groups, n, 0, 1);
            }
        }
    }
    for (int kept = 1; kept <= 6; kept++) {
        for (int i = 0; i < 7 * 5; i++) {
            check_kept_values(i % 2 ? sinter_s8 : sinter_u8, kept, K[i % 7], N[i / 7]);
            check_kept_values(i % 2 ? sinter_u8 : sinter_s8, kept, K[i % 7], N[i / 7]);
        }
    }
}

/* ---- one token at a time --------------------------------------------------------------------- */

/* A column, or an element of K, that is put among random others is where packing has it, and all
 * other bits stay. K and N: of the tiles; the source has five tokens in its own order. */
static void check_put(sinter_data_type_t type, tiled_t as, int64_t K, int64_t N, bool row,
                      int64_t at, int along)
{
    enum { TOKENS = 5, ROOM_OF_PLANE = 1 << 17 };
    static unsigned char plane[ROOM_OF_PLANE], want[ROOM_OF_PLANE], source[PLANE], all[2 * PLANE];
    const int bits = dtype_traits(type)->bits;
    const int64_t width = row ? N : K, token = draw(TOKENS), apart = along != 0 ? TOKENS : 1,
                  next = along != 0 ? 1 : width + 2;
    const axis_t tokens = {next, 1}, elements = {apart, 1};
    const groups_t from = {.data = source,
                           .type = dtype_traits(type),
                           .dtype = type,
                           .first = 3,
                           .row = row ? tokens : elements,
                           .column = row ? elements : tokens};
    const groups_t whole = {
        .data = all, .type = dtype_traits(type), .dtype = type, .row = {N, 1}, .column = {1, 1}};
    const bool values = tiles_are_values(as);
    int64_t bytes = 0;
    CHECK_THAT(values ? tiles_of_values(as, type, K, N, &bytes)
                      : tiles_of_codes(bits, K, N, &bytes));
    CHECK_THAT(bytes < ROOM_OF_PLANE && K * N * bits / 8 <= (int64_t)sizeof all);
    for (int i = 0; i < PLANE; i++) {
        source[i] = (unsigned char)draw(256);
        all[i] = (unsigned char)draw(256);
        all[PLANE + i] = (unsigned char)draw(256);
    }
    memset(plane, 0xa5, sizeof plane);
    CHECK_THAT(values ? tiles_pack_values(&whole, as, K, N, plane)
                      : tiles_pack_codes(&whole, as, K, N, plane));
    if (row) {
        tiles_put_row(&from, token, K, N, at, plane);
    } else {
        tiles_put_column(&from, token, as, K, at, plane);
    }
    for (int64_t i = 0; i < width; i++) {
        const int64_t to = row ? at * N + i : i * N + at, of = 3 + token * next + i * apart;
        for (int b = 0; b < bits; b++) {
            const int64_t x = to * bits + b, y = of * bits + b;
            all[x / 8] = (unsigned char)((all[x / 8] & ~(1 << x % 8)) | (source[y / 8] >> y % 8 & 1)
                                                                            << x % 8);
        }
    }
    memset(want, 0xa5, sizeof want);
    CHECK_THAT(values ? tiles_pack_values(&whole, as, K, N, want)
                      : tiles_pack_codes(&whole, as, K, N, want));
    CHECK(memcmp(plane, want, sizeof plane) == 0, "%s %s: %s %lld of %lld by %lld lies elsewhere",
          values ? "values" : "codes", dtype_traits(type)->name, row ? "row" : "column",
          (long long)at, (long long)K, (long long)N);
}

static void test_put(void)
{
    static const sinter_data_type_t codes[] = {sinter_s4,      sinter_u4,      sinter_f4_e2m1,
                                               sinter_f6_e3m2, sinter_f6_e2m3, sinter_s8,
                                               sinter_u8,      sinter_f8_e4m3, sinter_f16,
                                               sinter_bf16,    sinter_f32},
                                    values[] = {sinter_f32, sinter_f16, sinter_bf16, sinter_e8m0,
                                                sinter_s4,  sinter_u4,  sinter_u2,   sinter_f8_e4m3,
                                                sinter_s8,  sinter_u8};
    static const int64_t K[] = {16, 32, 40, 64, 100}, N[] = {16, 48, 17, 33, 64};
    for (size_t t = 0; t < sizeof codes / sizeof *codes; t++) {
        for (int i = 0; i < 5 * 64; i++) { /* every place of a tile, in the first and other ones */
            const int64_t k = K[i % 5], n = N[(i / 5 + i) % 5];
            check_put(codes[t], TILED_CODES, k, n, true, i / 5 % k, i / 3 % 2);
            check_put(codes[t], TILED_CODES, k, n, false, i / 5 % n, i / 3 % 2);
        }
    }
    for (size_t t = 0; t < sizeof values / sizeof *values; t++) {
        for (int i = 0; i < 3 * 48; i++) {
            const int64_t groups = (int64_t[]){1, 2, 5}[i % 3], n = N[i % 5];
            check_put(values[t], TILED_VALUES, groups, n, false, i / 3 % n, i / 2 % 2);
        }
    }
}

static void test_sizes(void)
{
    int64_t bytes;
    CHECK_THAT(!tiles_of_codes(8, INT64_MAX, 16, &bytes));
    CHECK_THAT(!tiles_of_codes(4, INT64_MAX / 2, INT64_MAX / 2, &bytes));
    CHECK_THAT(!tiles_of_values(TILED_VALUES, sinter_f32, INT64_MAX / 32, 17, &bytes));
}

/* ---- products -------------------------------------------------------------------------------- */

#if defined(__x86_64__)
typedef enum zero { NO_ZERO, ZPS, OFFSETS } zero_t;

typedef struct weights {
    sinter_data_type_t type;
    int bits, group, zp_group; /* tiles */
    tiles_plane_t scales, zps;
    tiles_strip_t strip; /* all tiles; without coefficients */
    bool has_zps, has_offsets;
    int zp_bias;
    bool split; /* planes of 2 bits lie in `high` */
    unsigned char codes[MOST_K * 16], high[MOST_K * 4], scale[MOST_K / 16 * 64],
        zp[MOST_K / 16 * 64], scale_scale[MOST_K / 16 * 64], zp_scale[MOST_K / 16 * 64];
    double value[MOST_K][16], size[MOST_K][16]; /* |code| and |zero point| times the scale, added */
} weights_t;

static double value_of_scale(sinter_data_type_t type, const unsigned char *p, int i)
{
    float x;
    dtype_traits(type)->codec.load_f32(p, i, 1, 1, &x);
    return (double)x;
}

static void fill_scales(sinter_data_type_t type, unsigned char *to, int n)
{
    for (int i = 0; i < n; i++) {
        const float x = (float)ldexp(1 + draw(64) / 64.0, -3);
        if (type == sinter_e8m0) {
            to[i] = (unsigned char)(120 + draw(8));
        } else {
            dtype_traits(type)->codec.store_f32(to, i, 1, 1, &x);
        }
    }
}

/* Columns of some planes share values. */
static void share_columns(tiles_plane_t *plane)
{
    const int columns = 1 << draw(6), values = columns < 16 ? 16 / columns : 1;
    plane->columns = columns;
    plane->value = columns > 1 ? (int)draw(16 / (uint32_t)values) * values : 0;
}

/* Which value of a line column n has. */
static int value_at(const tiles_plane_t *plane, int n)
{
    return plane->value + n / (int)plane->columns;
}

/* The scale, or the offset, of an element: codes are small integers with a scale of their own. */
static double coefficient(sinter_data_type_t type, const tiles_plane_t *plane, int group,
                          bool halves, int k, int column)
{
    const int t = k / 32, line = halves ? t / group * 2 + k / 16 % 2 : t / group,
              n = value_at(plane, column), at = line * 16 + n, codes = (int)plane->type,
              kept = codes % 8;
    const unsigned char *p = plane->data;
    if (plane->by == NULL) {
        return value_of_scale(type, p, at);
    }
    const int code = codes == TILES_S8   ? (signed char)p[at]
                     : codes == TILES_U8 ? (signed char)p[at] + 128
                                         : kept_value(p + line * 2 * kept, kept, n) -
                                               (codes < TILES_KEPT_U8 ? 1 << (kept - 1) : 0);
    return code * value_of_scale(type, plane->by, line / (int)plane->by_lines * 16 + n);
}

static void fill(weights_t *w, int kind, sinter_data_type_t scale, zero_t zero, int tiles)
{
    const sinter_data_type_t type = type_of(kind);
    const int bits = dtype_traits(type)->bits, kept = kept_of(kind);
    const tiles_values_t values = scale == sinter_f16       ? TILES_F16
                                  : scale == sinter_bf16    ? TILES_BF16
                                  : scale == sinter_e8m0    ? TILES_E8M0
                                  : scale == sinter_f8_e4m3 ? TILES_E4M3
                                                            : TILES_F32;
    memset(w, 0, sizeof *w);
    w->type = type;
    w->bits = bits;
    w->group = 1 + (int)draw(3);
    w->zp_group = 1 + (int)draw(3);
    w->has_zps = zero == ZPS;
    w->has_offsets = zero == OFFSETS;
    w->zp_bias = zero == ZPS && type == sinter_u8 ? 128 : 0;
    w->scales = (tiles_plane_t){.data = w->scale, .type = values, .by_lines = 1};
    w->zps = (tiles_plane_t){.data = w->zp,
                             .type = zero == OFFSETS     ? values
                                     : type == sinter_u8 ? TILES_U8
                                                         : TILES_S8,
                             .by_lines = 1};
    share_columns(&w->scales);
    share_columns(&w->zps);
    w->strip = (tiles_strip_t){.codes = w->codes,
                               .kept = kept,
                               .zero = kind == NUMBERS                 ? 128
                                       : type == sinter_s8 && kept > 0 ? 1 << (kept - 1)
                                                                       : 0,
                               .tiles = tiles,
                               .group = w->group,
                               .zp_group = w->zp_group};
    for (size_t i = 0; i < sizeof w->codes; i++) {
        w->codes[i] = (unsigned char)draw(256);
        const int last = type == sinter_f8_e5m2 ? 0x7c : 0x7f; /* neither infinite nor NaN */
        w->codes[i] ^=
            kind >= FLOATS_8 && kind < FLOATS_6 && (w->codes[i] & last) == last ? 0x40 : 0;
    }
    fill_scales(scale, w->scale, MOST_K / 16 * 16);
    fill_scales(scale, w->zp, MOST_K / 16 * 16);
    fill_scales(scale, w->scale_scale, MOST_K / 16 * 16);
    fill_scales(scale, w->zp_scale, MOST_K / 16 * 16);
    if (draw(2) == 0) {
        w->group = w->strip.group = 1;
        w->strip.halves = true;
    }
    if (zero == OFFSETS && draw(2) == 0) {
        w->zp_group = w->strip.zp_group = 1;
        w->strip.offset_halves = true;
    }
    const bool coded = draw(2) == 0, signed_codes = draw(2) == 0;
    for (size_t i = 0; i < sizeof w->scale && coded; i++) {
        w->scale[i] = (unsigned char)(draw(64) + (signed_codes ? 0 : 128));
        w->zp[i] = zero == OFFSETS ? (unsigned char)(draw(64) + (signed_codes ? 0 : 128)) : 0;
    }
    if (coded) {
        w->scales.by = w->scale_scale;
        w->scales.by_type = values;
        const int kept_scale = (int)draw(7), kept_offset = (int)draw(7);
        const tiles_values_t all = signed_codes ? TILES_S8 : TILES_U8,
                             some = signed_codes ? TILES_KEPT_S8 : TILES_KEPT_U8;
        w->scales.type = kept_scale > 0 ? (tiles_values_t)((int)some + kept_scale) : all;
        w->scales.by_lines = 1 + (int)draw(3);
        if (zero == OFFSETS) {
            w->zps.type = kept_offset > 0 ? (tiles_values_t)((int)some + kept_offset) : all;
            w->zps.by = w->zp_scale;
            w->zps.by_type = values;
            w->zps.by_lines = 1 + (int)draw(3);
        }
    }
    for (int i = 0; i < MOST_K / 32 * 16 && zero == ZPS; i++) {
        w->zp[i] = (unsigned char)(bits == 4 ? draw(16) : draw(256));
    }
    for (int k = 0; k < tiles * 32; k++) {
        for (int n = 0; n < 16; n++) {
            const unsigned char code = (unsigned char)tiled_code(w->codes, type, kept, tiles, k, n);
            const tiles_strip_t *b = &w->strip;
            const int z = k / 32 / w->zp_group * 16 + value_at(&w->zps, n);
            float x;
            dtype_traits(type)->codec.load_f32(&code, 0, 1, 1, &x);
            const double s = coefficient(scale, &w->scales, w->group, b->halves, k, n),
                         zp = zero == ZPS ? (signed char)w->zp[z] + w->zp_bias : 0,
                         offset = zero == OFFSETS ? coefficient(scale, &w->zps, w->zp_group,
                                                                b->offset_halves, k, n)
                                                  : 0;
            w->value[k][n] = ((double)x - zp) * s + offset;
            w->size[k][n] = (fabs((double)x) + fabs(zp)) * fabs(s) + fabs(offset);
        }
    }
}

/* The planes of tiles of six bits, apart. */
static void split_planes(weights_t *w)
{
    w->split = true;
    for (int t = 0; t < w->strip.tiles; t++) {
        memcpy(w->high + t * 128, w->codes + t * 384 + 256, 128);
        memmove(w->codes + t * 256, w->codes + t * 384, 256);
    }
}

/* Tiles t to t + n - 1, with coefficients in `to`. */
static tiles_strip_t piece_of(const tiles_table_t *table, const weights_t *w, int t, int n,
                              float unit, float (*to)[MOST_K])
{
    tiles_strip_t b = w->strip;
    const int line = t / w->group << b.halves, zp_line = t / w->zp_group << b.offset_halves;
    table->values(&w->scales, line, (((t + n - 1) / w->group + 1) << b.halves) - line, unit, to[0]);
    if (w->has_zps || w->has_offsets) {
        table->values(&w->zps, zp_line,
                      (((t + n - 1) / w->zp_group + 1) << b.offset_halves) - zp_line, 1, to[1]);
    }
    b.codes += t * 16 * (b.kept == IN_TABLE || w->split ? 4 : b.kept > 0 ? b.kept : w->bits) * 4;
    b.high = w->split ? w->high + t * 128 : NULL;
    b.tiles = n;
    b.scale = to[0];
    b.zp = w->has_zps ? to[1] : NULL;
    b.offset = w->has_offsets ? to[1] : NULL;
    b.left = w->group - t % w->group;
    b.zp_left = w->zp_group - t % w->zp_group;
    return b;
}

typedef struct rows {
    float x[ROOM][MOST_K];
    float placed[ROOM * MOST_K], sums[ROOM * MOST_K / 16];
    uint8_t high[ROOM * MOST_K], low[ROOM * MOST_K];
    float scale[ROOM * MOST_K / 32];
    int32_t sum[ROOM * MOST_K / 32], first[ROOM * MOST_K / 32];
    float out[ROOM][24];
} rows_t;

/* parts: of the largest element of 32 that rounding a row to limbs is off, 0: none. */
static void check_out(const weights_t *w, const rows_t *a, int rows, double parts, const char *what)
{
    double worst = 0;
    for (int r = 0; r < rows; r++) {
        for (int n = 0; n < 16; n++) {
            double want = 0, bound = 0;
            for (int k = 0; k < w->strip.tiles * 32; k++) {
                double most = 0;
                for (int i = k / 32 * 32; i < k / 32 * 32 + 32; i++) {
                    most = fmax(most, fabs((double)a->x[r][i]));
                }
                want += (double)a->x[r][k] * w->value[k][n];
                bound += w->size[k][n] * (fabs((double)a->x[r][k]) * 0x1p-20 + most * parts);
            }
            worst = fmax(worst, fabs((double)a->out[r][n] - want) / bound);
        }
    }
    CHECK(worst <= 1, "%s, %s, %d rows: %g of the bound", sinter_data_type_name(w->type), what,
          rows, worst);
    bool kept = true;
    for (int r = 0; r < ROOM; r++) {
        for (int n = r < rows ? 16 : 0; n < 24; n++) {
            kept = kept && a->out[r][n] == -7;
        }
    }
    CHECK(kept, "%s, %s, %d rows: wrote beyond the results", sinter_data_type_name(w->type), what,
          rows);
}

/* Products are added to zeros. */
static void clear_out(rows_t *a, int rows)
{
    for (int i = 0; i < ROOM * 24; i++) {
        a->out[i / 24][i % 24] = i / 24 < rows && i % 24 < 16 ? 0 : -7;
    }
}

static void fill_rows(rows_t *a, int tiles, int rows)
{
    const int room = tiles_rows(rows);
    memset(a, 0, sizeof *a);
    for (int r = 0; r < rows; r++) {
        for (int k = 0; k < tiles * 32; k++) {
            const int at = (k / 32 * room + r) * 32 + k % 32;
            a->x[r][k] = (float)((int)draw(2001) - 1000) / 300;
            a->placed[at] = a->x[r][k];
            a->sums[at / 16] += a->x[r][k];
        }
    }
}

static void check_integers(const tiles_table_t *table, const weights_t *w, rows_t *a, int rows,
                           int limbs)
{
    const codes_type_t *type = codes_type(w->type);
    unsigned char bytes[16];
    float values[16] = {0};
    const int room = tiles_rows(rows), tiles = (int)w->strip.tiles;
    if (w->bits == 4) {
        dtype_nibble_values(&dtype_traits(w->type)->codec, values);
    }
    for (int i = 0; i < 16; i++) {
        bytes[i] = (unsigned char)(values[i] / type->unit + (float)type->offset);
    }
    const limb_rows_t ints = {{a->high, a->low}, a->scale, a->sum, NULL, a->first};
    bool usable = true;
    for (int t = 0; t < tiles; t++) {
        const limb_rows_t to = limb_rows_from(&ints, t * room * 32, t * room);
        usable = table->quantise(&a->x[0][t * 32], MOST_K, rows, limbs, &to) && usable;
    }
    CHECK_THAT(usable);
    clear_out(a, rows);
    for (int t = 0, n; t < tiles; t += n) {
        float coefs[2][MOST_K];
        n = 1 + (int)draw((uint32_t)(tiles - t));
        const tiles_strip_t b = piece_of(table, w, t, n, type->unit, coefs);
        const limb_rows_t from = limb_rows_from(&ints, t * room * 32, t * room);
        table->ints(&b, type, bytes, &from, rows, limbs, a->out[0], 24);
    }
    check_out(w, a, rows, limbs == 2 ? 0x1p-15 : 0x1p-7, limbs == 2 ? "two limbs" : "one limb");
}

/* The values themselves, from some tile on. */
static void check_values_of(const tiles_table_t *table, const weights_t *w, const float *in_tiles)
{
    static float to[MOST_K][16];
    const int tiles = (int)w->strip.tiles, first = (int)draw((uint32_t)tiles);
    int wrong = 0;
    for (int i = 0; i < MOST_K * 16; i++) {
        to[i / 16][i % 16] = -7;
    }
    float coefs[2][MOST_K];
    const tiles_strip_t b = piece_of(table, w, first, tiles - first, 1, coefs);
    table->load(&b, tiles_type(w->type), in_tiles, to[0]);
    for (int k = 0; k < MOST_K; k++) {
        for (int n = 0; n < 16; n++) {
            const int at = first * 32 + k;
            const bool in = at < tiles * 32;
            const double want = in ? w->value[at][n] : -7,
                         bound = in ? w->size[at][n] * 0x1p-22 : 0;
            wrong += !(fabs((double)to[k][n] - want) <= bound);
        }
    }
    CHECK(wrong == 0, "%s: %d values are loaded wrong", sinter_data_type_name(w->type), wrong);
}

static void check_floats(const tiles_table_t *table, const weights_t *w, rows_t *a, int rows,
                         bool each)
{
    float values[16] = {0}, in_tiles[16] = {0};
    if (w->bits == 4) {
        dtype_nibble_values(&dtype_traits(w->type)->codec, values);
    }
    for (int i = 0; i < 16; i++) {
        in_tiles[i] = values[w->type == sinter_s4 ? i ^ 8 : i];
    }
    if (table->load != NULL && rows == 1) {
        check_values_of(table, w, in_tiles);
    }
    clear_out(a, rows);
    for (int t = 0, n; t < w->strip.tiles; t += n) {
        float coefs[2][MOST_K];
        n = 1 + (int)draw((uint32_t)(w->strip.tiles - t));
        const tiles_strip_t b = piece_of(table, w, t, n, 1, coefs);
        const int at = t * tiles_rows(rows);
        table->floats(&b, tiles_type(w->type), in_tiles, a->placed + at * 32, a->sums + 2 * at,
                      rows, each, a->out[0], 24);
    }
    check_out(w, a, rows, 0, each ? "floats, each dequantised" : "floats");
}

static bool takes_zps(int kind)
{
    return type_of(kind) != sinter_f4_e2m1 && kind < FLOATS_8;
}

static void test_products(const tiles_table_t *table)
{
    enum { SCALES = 5 };
    static const sinter_data_type_t scales[SCALES] = {sinter_f32, sinter_f16, sinter_bf16,
                                                      sinter_e8m0, sinter_f8_e4m3};
    static weights_t w;
    static rows_t a;
    for (int i = 0; i < KINDS * SCALES * 3; i++) {
        const int kind = i % KINDS;
        if (kind >= WHOLE && kind < FLOATS_8 && i / KINDS % SCALES != kind % SCALES) {
            continue; /* kinds that differ in their codes alone have one type of scales each */
        }
        for (int rows = 1; rows <= TILES_ROWS; rows++) {
            const int tiles = 1 + (int)draw(MOST_K / 32);
            const zero_t given = (zero_t)(i / KINDS / SCALES),
                         zero = given == ZPS && !takes_zps(kind) ? NO_ZERO : given;
            fill(&w, kind, scales[i / KINDS % SCALES], zero, tiles);
            fill_rows(&a, tiles, rows);
            if (kind >= FLOATS_6 && draw(2) == 0) {
                split_planes(&w);
            }
            for (int limbs = 1; limbs <= 2 && table->ints != NULL && kind < FLOATS_8; limbs++) {
                check_integers(table, &w, &a, rows, limbs);
            }
            if (table->load != NULL) {
                check_floats(table, &w, &a, rows, false);
            }
            if (rows == 1 && (table->load != NULL || kind < FLOATS_8)) {
                check_floats(table, &w, &a, rows, true);
            }
        }
    }
}

/* A result that has met a code, with a scale that may be 0. */
static bool is_wrong(float got, float code)
{
    return isnan(code) ? !isnan(got) : isfinite(got) != isfinite(code);
}

/* A code that is NaN or infinite, of each sign, is so in all results of its column, and in no
 * others, whatever it meets. */
static void test_not_finite(const tiles_table_t *table)
{
    static const unsigned char bad[] = {0x7f, 0xff, 0x7c, 0xfc, 0x7d, 0xfe};
    static weights_t w;
    static rows_t a;
    static float to[MOST_K][16];
    const float values[16] = {0};
    for (int i = 0; i < 6 * TILES_ROWS * 4 && table->load != NULL; i++) {
        const unsigned char code = bad[i % 6];
        const int kind = FLOATS_8 + i / 6 % 2, rows = 1 + i / 12 % TILES_ROWS,
                  tiles = 1 + (int)draw(MOST_K / 32), k = (int)draw((uint32_t)tiles * 32),
                  column = (int)draw(16);
        const bool each = rows == 1 && draw(2) == 0;
        const sinter_data_type_t type = type_of(kind);
        float coefs[2][MOST_K], x;
        int wrong = 0;
        fill(&w, kind, sinter_f32, draw(2) ? OFFSETS : NO_ZERO, tiles);
        fill_rows(&a, tiles, rows);
        w.codes[k / 32 * 512 + k % 32 / 4 * 64 + column * 4 + k % 4] = code;
        dtype_traits(type)->codec.load_f32(&code, 0, 1, 1, &x);
        for (int r = 0; r < rows; r++) {
            a.placed[(k / 32 * tiles_rows(rows) + r) * 32 + k % 32] = 1;
        }
        clear_out(&a, rows);
        const tiles_strip_t b = piece_of(table, &w, 0, tiles, 1, coefs);
        table->floats(&b, tiles_type(type), values, a.placed, a.sums, rows, each, a.out[0], 24);
        table->load(&b, tiles_type(type), values, to[0]);
        for (int n = 0; n < 16; n++) {
            for (int r = 0; r < rows; r++) {
                wrong += is_wrong(a.out[r][n], n == column ? x : 0);
            }
            for (int e = 0; e < tiles * 32; e++) {
                wrong += is_wrong(to[e][n], n == column && e == k ? x : 0);
            }
        }
        CHECK(wrong == 0, "%s, %d rows, code %02x: %d results are wrong",
              sinter_data_type_name(type), rows, code, wrong);
    }
}

/* Sums are exact where all codes and activations are as large as they can be. */
static void test_extremes(const tiles_table_t *table)
{
    static const int largest[WHOLE] = {0, 0xff, 0x77, 0x80, 0xff};
    static weights_t w;
    static rows_t a;
    for (int i = 0; i < FLOATS_8 && table->ints != NULL; i++) {
        const sinter_data_type_t type = type_of(i);
        const int all = (1 << kept_of(i)) - 1, ones = i == NUMBERS        ? numbers[15]
                                                      : type == sinter_s8 ? all / 2
                                                                          : all;
        for (int rows = 1; rows <= TILES_ROWS; rows++) {
            do {
                fill(&w, i, sinter_f32, NO_ZERO, 2);
            } while (w.strip.halves || w.scales.by != NULL);
            memset(w.codes, i < WHOLE ? largest[i] : 0xff, sizeof w.codes);
            for (int k = 0; k < 64; k++) {
                for (int n = 0; n < 16; n++) {
                    const unsigned char code = (unsigned char)(i >= WHOLE          ? ones
                                                               : type == sinter_s4 ? 8
                                                                                   : largest[i]);
                    float x;
                    dtype_traits(type)->codec.load_f32(&code, 0, 1, 1, &x);
                    w.value[k][n] =
                        (double)x * coefficient(sinter_f32, &w.scales, w.group, false, k, n);
                    w.size[k][n] = fabs(w.value[k][n]);
                }
            }
            fill_rows(&a, 2, rows);
            for (int r = 0; r < rows; r++) {
                for (int k = 0; k < 64; k++) {
                    a.x[r][k] = r % 2 ? -127 : 127;
                }
            }
            for (int limbs = 1; limbs <= 2; limbs++) {
                check_integers(table, &w, &a, rows, limbs);
                double worst = 0;
                for (int r = 0; r < rows; r++) {
                    for (int n = 0; n < 16; n++) {
                        double want = 0;
                        for (int k = 0; k < 64; k++) {
                            want += (double)a.x[r][k] * w.value[k][n];
                        }
                        const double off = fabs((double)a.out[r][n] - want);
                        worst = fmax(worst, want == 0 ? off : off / fabs(want));
                    }
                }
                CHECK(worst < 0x1p-20, "%s: largest codes, %d limbs: off by %g",
                      sinter_data_type_name(type), limbs, worst);
            }
        }
    }
}

/* Codes less their zero points are at most this: those of u8 less zero points of s8 up to 383.
 * Of A, codes of f4_e2m1 are up to 6 in halves, and zero points of s32 up to 255. */
enum { MOST_OF_A = 2 * (255 + 6), MOST_OF_B = 255 + 128, EXACT_TILES = 2 };
_Static_assert(EXACT_TILES * 32 * MOST_OF_A * MOST_OF_B < 1 << 24, "floats have all digits");

typedef struct codes_of_a {
    int limbs;
    float by;               /* 1 / the step of codes */
    float code[2], zero[2]; /* extremes: codes, and their zero points */
} codes_of_a_t;

/* Weights whose scales are 1, whose codes and zero points are all `byte`, or drawn where that is
 * negative. */
static void fill_extremes(weights_t *w, int kind, zero_t zero, int byte)
{
    const sinter_data_type_t type = type_of(kind);
    const float one = 1, offset = -3;
    do {
        fill(w, kind, sinter_f32, zero, EXACT_TILES);
    } while (w->scales.by != NULL);
    for (size_t i = 0; i < sizeof w->codes; i++) {
        w->codes[i] = (unsigned char)(byte < 0 ? (int)draw(256) : byte);
    }
    for (size_t i = 0; i + sizeof one <= sizeof w->scale; i += sizeof one) {
        memcpy(w->scale + i, &one, sizeof one);
    }
    for (size_t i = 0; i + sizeof one <= sizeof w->zp; i += sizeof one) {
        memcpy(w->zp + i, &offset, sizeof offset);
    }
    for (int i = 0; i < MOST_K / 32 * 16 && zero == ZPS; i++) {
        const int zp = byte < 0 ? (int)draw(256) : 255 - byte;
        w->zp[i] = (unsigned char)(w->bits == 4 ? zp & 15 : zp);
    }
    for (int k = 0; k < EXACT_TILES * 32; k++) {
        for (int n = 0; n < 16; n++) {
            const unsigned char code =
                (unsigned char)tiled_code(w->codes, type, w->strip.kept, EXACT_TILES, k, n);
            float x;
            dtype_traits(type)->codec.load_f32(&code, 0, 1, 1, &x);
            w->value[k][n] =
                (double)x + (zero == OFFSETS ? -3 : 0) -
                (zero == ZPS
                     ? (signed char)w->zp[k / 32 / w->zp_group * 16 + value_at(&w->zps, n)] +
                           w->zp_bias
                     : 0);
        }
    }
}

/* Rows of codes, of which the last tile lacks some elements: as bytes and sums, and their
 * products. */
static void check_codes_of_a(const tiles_table_t *table, const weights_t *w,
                             const codes_of_a_t *codes, int rows, bool mixed)
{
    static rows_t a;
    static float x[ROOM][EXACT_TILES * 32 + 7];
    const codes_type_t *type = codes_type(w->type);
    const int room = tiles_rows(rows), there = EXACT_TILES * 32 - (int)draw(32);
    const limb_rows_t ints = {{a.high, a.low}, a.scale, a.sum, NULL, a.first};
    float scale[ROOM][EXACT_TILES], zp[ROOM][EXACT_TILES], values[16] = {0};
    unsigned char bytes[16];
    int wrong = 0;
    memset(&a, 0, sizeof a);
    clear_out(&a, rows);
    if (w->bits == 4) {
        dtype_nibble_values(&dtype_traits(w->type)->codec, values);
    }
    for (int i = 0; i < 16; i++) {
        bytes[i] = (unsigned char)(values[i] / type->unit + (float)type->offset);
    }
    for (int r = 0; r < rows; r++) {
        for (int t = 0; t < EXACT_TILES; t++) {
            const uint32_t end = mixed ? draw(2) : (uint32_t)r % 2;
            scale[r][t] = r % 3 == 0 ? 0.5f : 2;
            zp[r][t] = codes->zero[end];
            for (int k = t * 32; k < t * 32 + 32; k++) {
                const float least = codes->code[0], most = codes->code[1];
                x[r][k] = k >= there ? NAN : mixed && draw(2) ? 0 : end ? most : least;
            }
        }
    }
    for (int t = 0; t < EXACT_TILES; t++) {
        const limb_rows_t to = limb_rows_from(&ints, t * room * 32, t * room);
        const int n = there - t * 32 < 32 ? there - t * 32 : 32;
        const codes_raw_t raw = {.x = &x[0][t * 32],
                                 .scale = &scale[0][t],
                                 .zp = &zp[0][t],
                                 .ldx = EXACT_TILES * 32 + 7,
                                 .ld = EXACT_TILES,
                                 .n = n,
                                 .factor = codes->by};
        table->encode(&raw, rows, codes->limbs, &to);
        for (int r = 0; r < rows; r++) {
            int sum = 0, first = 0;
            for (int i = 0; i < 32; i++) {
                const int at = r * 32 + i, high = (int8_t)to.byte[0][at],
                          got = codes->limbs == 2 ? 256 * high + (int8_t)to.byte[1][at] : high,
                          want = i < n ? (int)((x[r][t * 32 + i] - zp[r][t]) * codes->by) : 0;
                wrong += got != want;
                sum += want;
                first += i < 16 ? want : 0;
            }
            wrong +=
                to.sum[r] != sum || to.first[r] != first || to.scale[r] * codes->by != scale[r][t];
        }
    }
    CHECK(wrong == 0, "%d rows of codes, %d limbs: %d numbers are wrong", rows, codes->limbs,
          wrong);
    float coefs[2][MOST_K];
    const tiles_strip_t b = piece_of(table, w, 0, EXACT_TILES, type->unit, coefs);
    table->ints(&b, type, bytes, &ints, rows, codes->limbs, a.out[0], 24);
    for (int r = 0; r < rows; r++) {
        for (int n = 0; n < 16; n++) {
            double want = 0;
            for (int k = 0; k < there; k++) {
                want += ((double)x[r][k] - (double)zp[r][k / 32]) * (double)scale[r][k / 32] *
                        w->value[k][n];
            }
            wrong += (double)a.out[r][n] != want;
        }
    }
    CHECK(wrong == 0, "%s times %d rows of codes, %d limbs: %d sums are not exact",
          sinter_data_type_name(w->type), rows, codes->limbs, wrong);
}

/* Products of codes are exact, whatever codes and zero points of both sides are. */
static void test_exact(const tiles_table_t *table)
{
    static const codes_of_a_t of_a[] = {
        {1, 1, {-128, 127}, {0, 0}},      /* s8 */
        {1, 1, {0, 255}, {128, 128}},     /* u8: what one limb holds */
        {1, 2, {-6, 6}, {7, -8}},         /* f4_e2m1 and zero points of s4 */
        {2, 1, {0, 255}, {255, 0}},       /* u8 and zero points of u8 */
        {2, 1, {-128, 255}, {255, -128}}, /* the ends of 8 bits */
        {2, 2, {-6, 6}, {255, -255}},     /* f4_e2m1 and zero points of s32 */
    };
    static const int ends[] = {0, 255, 127, 128, -1};
    static weights_t w;
    for (int i = 0; i < FLOATS_8 * 3 * 5 && table->ints != NULL; i++) {
        const int kind = i % FLOATS_8, byte = ends[i / FLOATS_8 % 5];
        const zero_t given = (zero_t)(i / FLOATS_8 / 5),
                     zero = given == ZPS && type_of(kind) == sinter_f4_e2m1 ? NO_ZERO : given;
        fill_extremes(&w, kind, zero, byte);
        for (size_t j = 0; j < sizeof of_a / sizeof *of_a; j++) {
            const int rows = 1 + (int)draw(TILES_ROWS);
            check_codes_of_a(table, &w, &of_a[j], rows, false);
            check_codes_of_a(table, &w, &of_a[j], rows, true);
        }
    }
    for (int rows = 1; rows <= TILES_ROWS && table->ints != NULL; rows++) {
        fill_extremes(&w, 0, NO_ZERO, -1);
        check_codes_of_a(table, &w, &of_a[0], rows, true);
        check_codes_of_a(table, &w, &of_a[4], rows, true);
    }
}

/* ---- products of plain floats ---------------------------------------------------------------- */

enum { PLAIN_K = 80 * 32 }; /* several chains */

typedef struct plain {
    unsigned char tiles[PLAIN_K * 16 * 4];
    float w[PLAIN_K][16], x[ROOM][PLAIN_K], placed[ROOM * PLAIN_K], out[ROOM][24];
} plain_t;

/* Floats of a type as tiles of K rows; of f16, some are subnormal. */
static void fill_plain(plain_t *p, sinter_data_type_t type, int tiles)
{
    const int bits = dtype_traits(type)->bits;
    for (int k = 0; k < tiles * 32; k++) {
        for (int n = 0; n < 16; n++) {
            const float x = ldexpf((float)draw(4096) - 2048, draw(20) == 0 ? -32 : -14);
            unsigned char *at = p->tiles + place_of_float(bits, tiles, k, n);
            dtype_traits(type)->codec.store_f32(at, 0, 1, 1, &x);
            dtype_traits(type)->codec.load_f32(at, 0, 1, 1, &p->w[k][n]);
        }
    }
}

static void fill_plain_rows(plain_t *p, int tiles, int rows)
{
    const int room = tiles_rows(rows);
    memset(p->placed, 0, sizeof p->placed);
    for (int r = 0; r < rows; r++) {
        for (int k = 0; k < tiles * 32; k++) {
            p->x[r][k] = (float)((int)draw(2001) - 1000) / 300;
            p->placed[(k / 32 * room + r) * 32 + k % 32] = p->x[r][k];
        }
    }
    for (int i = 0; i < ROOM * 24; i++) {
        p->out[i / 24][i % 24] = -7;
    }
}

/* The bound of docs/numerics.md for products and sums in f32. */
static void check_plain_products(const tiles_table_t *table, plain_t *p, sinter_data_type_t type,
                                 int tiles, int rows)
{
    const int K = tiles * 32;
    double worst = 0;
    bool kept = true;
    fill_plain_rows(p, tiles, rows);
    table->plain(p->tiles, type, tiles, p->placed, rows, p->out[0], 24);
    for (int r = 0; r < ROOM; r++) {
        for (int n = 0; n < 16 && r < rows; n++) {
            double want = 0, a = 0, b = 0;
            for (int k = 0; k < K; k++) {
                const double x = (double)p->x[r][k], w = (double)p->w[k][n];
                want += x * w;
                a += x * x;
                b += w * w;
            }
            const double bound = fmin(K, 2 * sqrt(K) + 2) * 0x1p-24 * sqrt(a) * sqrt(b);
            worst = fmax(worst, fabs((double)p->out[r][n] - want) / bound);
        }
        for (int n = r < rows ? 16 : 0; n < 24; n++) {
            kept = kept && p->out[r][n] == -7;
        }
    }
    CHECK(worst <= 1 && kept, "%s, %d tiles, %d rows: %g of the bound%s",
          sinter_data_type_name(type), tiles, rows, worst,
          kept ? "" : ", and wrote beyond the results");
}

/* Sums of any number of rows and an unpacked strip are added to what is there, and nothing else is
 * written. */
static void test_unpacked(const tiles_table_t *table)
{
    enum { ROWS = 40, K = 256, LD = 24 };
    static float x[ROWS][TILES_LDX], out[ROWS][LD];
    static _Alignas(TILES_LINE) float b[K][TILES_COLUMNS];
    for (int rows = 1; table->multiply != NULL && rows <= ROWS; rows++) {
        const int n = 32 * (1 + (int)draw(K / 32));
        double worst = 0;
        bool kept = true;
        for (int k = 0; k < K; k++) {
            for (int c = 0; c < TILES_COLUMNS; c++) {
                b[k][c] = k < n ? (float)((int)draw(2001) - 1000) / 300 : NAN;
            }
        }
        for (int r = 0; r < ROWS; r++) {
            for (int k = 0; k < TILES_LDX; k++) {
                x[r][k] = k < n ? (float)((int)draw(2001) - 1000) / 300 : NAN;
            }
            for (int c = 0; c < LD; c++) {
                out[r][c] = 3;
            }
        }
        table->multiply(&(tiles_product_t){.b = b[0],
                                           .k = n,
                                           .rows = rows,
                                           .x = x[0],
                                           .out = out[0],
                                           .ldo = LD,
                                           .next = (const unsigned char *)b,
                                           .bytes = (int)draw(sizeof b)});
        for (int r = 0; r < ROWS; r++) {
            for (int c = 0; c < LD; c++) {
                if (r >= rows || c >= TILES_COLUMNS) {
                    kept = kept && out[r][c] == 3;
                    continue;
                }
                double sum = 3, size = 3;
                for (int k = 0; k < n; k++) {
                    sum += (double)x[r][k] * (double)b[k][c];
                    size += fabs((double)x[r][k] * (double)b[k][c]);
                }
                const double error = fabs((double)out[r][c] - sum) / (size * n * 0x1p-24);
                worst = error <= worst ? worst : error; /* NaN counts, too */
            }
        }
        CHECK(worst <= 1 && kept, "%d rows, %d elements of K: %g of the bound%s", rows, n, worst,
              kept ? "" : ", and wrote beyond the results");
    }
}

/* The values themselves are unpacked exactly. Where a row has one element that is not 0, results
 * are one product each, of any magnitude, and an infinity is that of its row alone. */
static void check_plain_values(const tiles_table_t *table, plain_t *p, sinter_data_type_t type,
                               int tiles, int rows)
{
    static float to[PLAIN_K][16];
    const int first = (int)draw((uint32_t)tiles), room = tiles_rows(rows);
    int wrong = 0;
    for (int i = 0; i < PLAIN_K * 16; i++) {
        to[i / 16][i % 16] = -7;
    }
    table->load_plain(p->tiles, type, first, tiles - first, to[0]);
    for (int k = 0; k < PLAIN_K; k++) {
        for (int n = 0; n < 16; n++) {
            const int at = first * 32 + k;
            wrong += to[k][n] != (at < tiles * 32 ? p->w[at][n] : -7);
        }
    }
    CHECK(wrong == 0, "%s: %d values are loaded wrong", sinter_data_type_name(type), wrong);
    fill_plain_rows(p, tiles, rows);
    const int bad = (int)draw((uint32_t)rows), k = (int)draw((uint32_t)tiles * 32);
    memset(p->placed, 0, sizeof p->placed);
    for (int r = 0; r < rows; r++) { /* one element of K, not the same for all rows */
        const int at = (k + 7 * r) % (tiles * 32);
        p->placed[(at / 32 * room + r) * 32 + at % 32] = r == bad ? INFINITY : 0x1p100f;
    }
    table->plain(p->tiles, type, tiles, p->placed, rows, p->out[0], 24);
    for (int r = 0; r < rows; r++) {
        for (int n = 0; n < 16; n++) {
            const float w = p->w[(k + 7 * r) % (tiles * 32)][n], x = p->out[r][n];
            wrong += r == bad ? isfinite(x) : x != 0x1p100f * w;
        }
    }
    CHECK(wrong == 0, "%s, %d rows: %d results of one product each are wrong",
          sinter_data_type_name(type), rows, wrong);
}

static void test_plain(const tiles_table_t *table)
{
    static const int tiles[] = {1, 2, 3, 4, 5, 31, 32, 33, 80};
    static plain_t p;
    for (int i = 0; i < PLAIN_TYPES * 9 && table->plain != NULL; i++) {
        const sinter_data_type_t type = plain_types[i % PLAIN_TYPES];
        fill_plain(&p, type, tiles[i / PLAIN_TYPES]);
        for (int rows = 1; rows <= TILES_ROWS; rows++) {
            check_plain_products(table, &p, type, tiles[i / PLAIN_TYPES], rows);
            check_plain_values(table, &p, type, tiles[i / PLAIN_TYPES], rows);
        }
    }
}

/* Every scale of 8 bits, with the subnormals and NaNs among them. */
static void test_scales_of_8_bits(const tiles_table_t *table)
{
    static const struct {
        sinter_data_type_t type;
        tiles_values_t values;
    } types[] = {{sinter_e8m0, TILES_E8M0}, {sinter_f8_e4m3, TILES_E4M3}};
    unsigned char scales[256];
    _Alignas(TILES_LINE) float got[256];
    for (int i = 0; i < 256; i++) {
        scales[i] = (unsigned char)i;
    }
    for (int t = 0; t < 2; t++) {
        const tiles_plane_t plane = {.data = scales, .type = types[t].values, .by_lines = 1};
        table->values(&plane, 0, 256 / TILES_COLUMNS, 1, got);
        for (int i = 0; i < 256; i++) {
            const double want = value_of_scale(types[t].type, scales, i);
            CHECK(isnan(want) ? isnan(got[i]) : got[i] == want, "%s, code %d: %g, expected %g",
                  dtype_traits(types[t].type)->name, i, (double)got[i], want);
        }
    }
}

static void test_unusable(const tiles_table_t *table)
{
    static rows_t a;
    const limb_rows_t to = {{a.high, a.low}, a.scale, a.sum, NULL, a.first};
    static const float bad[] = {NAN, INFINITY, -INFINITY, 0x1p-101f, 0x1p101f};
    for (int i = 0; i < 5 && table->quantise != NULL; i++) {
        memset(&a, 0, sizeof a);
        CHECK_THAT(table->quantise(a.x[0], MOST_K, 2, 1, &to));
        a.x[1][7] = bad[i];
        CHECK(!table->quantise(a.x[0], MOST_K, 2, 1, &to), "took %g", (double)bad[i]);
    }
}
#endif

int main(void)
{
    test_packing();
    test_packing_floats();
    has = cpu_features();
    test_packing();
    test_packing_floats();
    test_sizes();
    test_put();
#if defined(__x86_64__)
    for (int level = sinter_isa_generic; level < LEVELS; level++) {
        const char *name = sinter_cpu_isa_name((sinter_cpu_isa_t)level);
        const tiles_table_t *table = tiles_table(features_of_level((sinter_cpu_isa_t)level));
        if (table == NULL) {
            continue;
        }
        if (level_of_features(features_up_to((sinter_cpu_isa_t)level)) != (sinter_cpu_isa_t)level) {
            check_skip("%s: this machine has no such instructions", name);
            continue;
        }
        test_products(table);
        test_plain(table);
        test_unpacked(table);
        test_not_finite(table);
        test_extremes(table);
        test_exact(table);
        test_unusable(table);
        test_scales_of_8_bits(table);
    }
#endif
    return check_finish();
}
