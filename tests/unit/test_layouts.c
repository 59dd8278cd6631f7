/* Opaque layouts of weights: where sinter_reorder puts every code and value, and takes it from
 * again, by the definition in docs/layouts.md; what is refused, with which words; and products of
 * weights that are given in tiles, against the oracle. */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e2e.h"
#include "ops_text.h"
#include "random.h"

enum { GUARD = 64, GUARD_BYTE = 0xA5 };

static uint64_t seeds = 1;

static int draw(int n)
{
    return random_below(&seeds, n);
}

static void *take(size_t bytes)
{
    void *p = malloc(bytes > 0 ? bytes : 1);
    if (p == NULL) {
        abort();
    }
    return p;
}

static void fill_randomly(unsigned char *data, size_t bytes)
{
    for (size_t i = 0; i < bytes; i++) {
        data[i] = (unsigned char)draw(256);
    }
}

static void check_status(int line, sinter_status_t got, sinter_status_t want, const char *words)
{
    const char *message = sinter_last_error_message();
    check_at(got == want && (words == NULL || strstr(message, words) != NULL), line,
             "%s, not %s: \"%s\" has no \"%s\"", sinter_status_name(got), sinter_status_name(want),
             message, words != NULL ? words : "");
}
#define FAILS(call, status, words) check_status(__LINE__, call, sinter_##status, words)

static size_t bytes_of(const sinter_logical_tensor_t *lt)
{
    size_t bytes = 0;
    CHECK_THAT(sinter_logical_tensor_get_bytes(lt, &bytes) == sinter_success);
    return bytes;
}

/* ---- the definition -------------------------------------------------------------------------- */

/* A matrix of weights, or of the values of groups of them: K rows and N columns. */
typedef struct matrix {
    sinter_data_type_t type;
    sinter_weights_part_t part;
    int kept;                  /* bits of integers of 8 bits; 0: all */
    int transposed;            /* the dims are N and K */
    int64_t K, N, row, column; /* strides in elements */
    int64_t first;             /* element */
} matrix_t;

static int bits_of(sinter_data_type_t type)
{
    return gr_dtype(type)->bits;
}

/* The bits of an element of packed bytes. */
static uint32_t element(sinter_data_type_t type, const unsigned char *data, int64_t at)
{
    const int bits = bits_of(type);
    uint32_t x = 0;
    for (int64_t i = 0; i < bits && bits < 8; i++) {
        const int64_t bit = at * bits + i;
        x |= (uint32_t)(data[bit / 8] >> bit % 8 & 1) << i;
    }
    if (bits >= 8) {
        memcpy(&x, data + at * (bits / 8), (size_t)bits / 8);
    }
    return x;
}

static void put_element(sinter_data_type_t type, unsigned char *data, int64_t at, uint32_t x)
{
    const int bits = bits_of(type);
    for (int64_t i = 0; i < bits && bits < 8; i++) {
        const int64_t bit = at * bits + i;
        unsigned char *byte = &data[bit / 8];
        *byte = (unsigned char)((*byte & ~(1 << bit % 8)) | (int)(x >> i & 1) << bit % 8);
    }
    if (bits >= 8) {
        memcpy(data + at * (bits / 8), &x, (size_t)bits / 8);
    }
}

/* Bytes of an element in a plane of values: zero points take one each. */
static int value_bytes(sinter_data_type_t type)
{
    return gr_dtype(type)->class_ == GR_INT ? 1 : bits_of(type) / 8;
}

static size_t plane_bytes(const matrix_t *m)
{
    const size_t strips = (size_t)(m->N + 15) / 16,
                 bits = (size_t)(m->kept > 0 ? m->kept : bits_of(m->type));
    return m->part == sinter_weights_codes ? strips * (size_t)((m->K + 31) / 32) * 512 * bits / 8
           : m->kept > 0                   ? strips * (size_t)m->K * 2 * bits
                         : strips * (size_t)m->K * 16 * (size_t)value_bytes(m->type);
}

/* A zero point as a plane has it: a signed byte, those of u8 less 128. */
static unsigned char zero_point(sinter_data_type_t type, uint32_t x)
{
    const int value = type == sinter_u8            ? (int)x - 128
                      : type == sinter_s4 && x > 7 ? (int)x - 16
                                                   : (int)x;
    return (unsigned char)value;
}

/* The least integer of which the kept bits are enough. */
static int least_code(const matrix_t *m)
{
    return m->kept > 0 && m->type == sinter_s8 ? -(1 << (m->kept - 1)) : 0;
}

/* A value of which some bits are kept, from 0 on: all planes of its line. */
static void define_kept_value(const matrix_t *m, int64_t n, uint32_t value, unsigned char *line)
{
    for (int bits = 4; bits > 0; bits /= 2) {
        if (m->kept & bits) {
            const int ones = (1 << bits) - 1, shift = (int)(n % 16 / (2 * bits)) * bits;
            unsigned char *byte = &line[n % (2 * bits)];
            *byte = (unsigned char)((*byte & ~(ones << shift)) | ((int)value & ones) << shift);
            value >>= bits;
            line += 2 * bits;
        }
    }
}

/* A code of so many bits, from 0 on: all planes of its tile. */
static void define_planes(int of, int64_t at, uint32_t code, unsigned char *tile)
{
    /* By the bits of a plane: the line of a code there, and the first of its bits. */
    const int64_t lines[] = {[1] = 0, [2] = at / 16, [4] = at % 16 / 4},
                  shifts[] = {[1] = at / 4, [2] = at % 16 / 4 * 2, [4] = at / 16 * 4};
    for (int bits = 4; bits > 0; bits /= 2) {
        if (of & bits) {
            const int ones = (1 << bits) - 1, shift = (int)shifts[bits];
            unsigned char *byte = &tile[lines[bits] * 64];
            *byte = (unsigned char)((*byte & ~(ones << shift)) | ((int)code & ones) << shift);
            code >>= bits;
            tile += bits * 64;
        }
    }
}

static void define_code(const matrix_t *m, int64_t k, int64_t n, uint32_t code, unsigned char *to)
{
    const int64_t tiles = (m->K + 31) / 32, at = k % 32, column = 4 * (n % 16);
    const int planes = m->kept > 0 ? m->kept : bits_of(m->type) == 6 ? 6 : 0;
    if (planes > 0) {
        define_planes(planes, at, (code - (uint32_t)least_code(m)) & 0xff,
                      &to[(n / 16 * tiles + k / 32) * 64 * planes + column + at % 4]);
        return;
    }
    if (bits_of(m->type) >= 8) {
        const int bits = bits_of(m->type), in_dword = 32 / bits;
        memcpy(to + (n / 16 * tiles + k / 32) * 64 * bits + at / in_dword * 64 + column +
                   at % in_dword * bits / 8,
               &code, (size_t)bits / 8);
        return;
    }
    unsigned char *byte = &to[(n / 16 * tiles + k / 32) * 256 + at % 16 / 4 * 64 + column + at % 4];
    code ^= m->type == sinter_s4 ? 8 : 0;
    *byte = (unsigned char)(at < 16 ? (*byte & 0xf0) | code : (*byte & 15) | code << 4);
}

/* The plane that a strided matrix becomes, docs/layouts.md. */
static void define(const matrix_t *m, const unsigned char *data, unsigned char *to)
{
    memset(to, 0, plane_bytes(m));
    for (int64_t n = 0; n < (m->N + 15) / 16 * 16; n++) {
        const int64_t rows = m->part == sinter_weights_codes ? (m->K + 31) / 32 * 32 : m->K;
        for (int64_t k = 0; k < rows; k++) {
            const bool there = k < m->K && n < m->N;
            const uint32_t x =
                there ? element(m->type, data, m->first + k * m->row + n * m->column) : 0;
            const size_t each = (size_t)value_bytes(m->type);
            unsigned char *value = to + ((size_t)(n / 16 * m->K + k) * 16 + (size_t)n % 16) * each;
            if (m->part == sinter_weights_codes) {
                define_code(m, k, n, x, to);
            } else if (m->kept > 0) {
                define_kept_value(m, n, (x - (uint32_t)least_code(m)) & 0xff,
                                  to + (n / 16 * m->K + k) * 2 * m->kept);
            } else if (gr_dtype(m->type)->class_ != GR_INT) {
                memcpy(value, &x, each);
            } else {
                *value = there ? zero_point(m->type, x) : 0;
            }
        }
    }
}

/* ---- packing and unpacking ------------------------------------------------------------------- */

/* As a tensor with `ones` dims of 1 before the matrix. */
static sinter_logical_tensor_t describe(const matrix_t *m, int ones)
{
    sinter_logical_tensor_t lt = {.id = 7,
                                  .ndims = ones + 2,
                                  .data_type = m->type,
                                  .layout_type = sinter_layout_type_strided};
    for (int d = 0; d < ones; d++) {
        lt.dims[d] = 1;
        lt.strides[d] = 12345;
    }
    lt.dims[ones] = m->transposed ? m->N : m->K;
    lt.strides[ones] = m->transposed ? m->column : m->row;
    lt.dims[ones + 1] = m->transposed ? m->K : m->N;
    lt.strides[ones + 1] = m->transposed ? m->row : m->column;
    return lt;
}

static sinter_logical_tensor_t in_tiles(const matrix_t *m, int ones)
{
    sinter_logical_tensor_t lt = describe(m, ones);
    CHECK_THAT(sinter_logical_tensor_set_weights_layout(&lt, m->part, m->kept, m->transposed) ==
               sinter_success);
    CHECK_THAT(lt.layout_type == sinter_layout_type_opaque && lt.layout_id != 0);
    return lt;
}

/* bytes: of the buffers, exactly as many as the tensors need. */
static bool reorder(const sinter_logical_tensor_t *from, void *data,
                    const sinter_logical_tensor_t *to, void *to_data)
{
    sinter_tensor_t *a = NULL, *b = NULL;
    const bool ok =
        CHECK_THAT(sinter_tensor_create(&a, NULL, from, data, bytes_of(from)) == sinter_success) &&
        CHECK_THAT(sinter_tensor_create(&b, NULL, to, to_data, bytes_of(to)) == sinter_success) &&
        CHECK_THAT(sinter_reorder(a, b) == sinter_success);
    sinter_tensor_destroy(&a);
    sinter_tensor_destroy(&b);
    return ok;
}

/* Columns n .. n + some of a matrix, as a matrix of its own. 16 columns from a multiple of 16 on
 * begin with a whole byte, in both layouts. */
static void reorder_columns(const matrix_t *m, int64_t n, int64_t some, unsigned char *data,
                            unsigned char *plane, bool pack)
{
    matrix_t part = *m, strip = *m;
    part.N = some;
    strip.N = 16;
    const sinter_logical_tensor_t strided = describe(&part, 0), tiles = in_tiles(&part, 0);
    unsigned char *columns = data + n * m->column * bits_of(m->type) / 8,
                  *at = plane + (size_t)(n / 16) * plane_bytes(&strip);
    if (pack) {
        reorder(&strided, columns, &tiles, at);
    } else {
        reorder(&tiles, at, &strided, columns);
    }
}

static void reorder_ranges(const matrix_t *m, unsigned char *data, unsigned char *plane, bool pack)
{
    for (int64_t n = 0, some; n < m->N; n += some) {
        some = 16 * (1 + draw(2));
        some = some < m->N - n ? some : m->N - n;
        reorder_columns(m, n, some, data, plane, pack);
    }
}

static const char *text_of(const matrix_t *m)
{
    static char text[160];
    snprintf(text, sizeof text, "%s %s, %d bits kept, K %lld, N %lld, strides %lld and %lld%s",
             m->part == sinter_weights_codes ? "codes" : "values", gr_dtype(m->type)->name, m->kept,
             (long long)m->K, (long long)m->N, (long long)m->row, (long long)m->column,
             m->transposed ? ", transposed" : "");
    return text;
}

/* Elements go back to where they were, and nothing else changes. */
static void check_back(const matrix_t *m, int ones, const unsigned char *data, unsigned char *plane)
{
    const sinter_logical_tensor_t strided = describe(m, ones), tiles = in_tiles(m, ones);
    const size_t bytes = bytes_of(&strided);
    unsigned char *want = take(bytes), *got = take(bytes), *ranges = take(bytes);
    fill_randomly(want, bytes);
    memcpy(got, want, bytes);
    memcpy(ranges, want, bytes);
    for (int64_t i = 0; i < m->K * m->N; i++) {
        const int64_t at = i / m->N * m->row + i % m->N * m->column;
        put_element(m->type, want, at, element(m->type, data, at));
    }
    if (reorder(&tiles, plane, &strided, got)) {
        CHECK(memcmp(got, want, bytes) == 0, "%s: not the same again", text_of(m));
    }
    reorder_ranges(m, ranges, plane, false);
    CHECK(memcmp(ranges, want, bytes) == 0, "%s: not the same again by ranges", text_of(m));
    free(want);
    free(got);
    free(ranges);
}

static void check_matrix(const matrix_t *m)
{
    const int ones = draw(3);
    const sinter_logical_tensor_t strided = describe(m, ones), tiles = in_tiles(m, ones);
    const size_t bytes = bytes_of(&strided), room = plane_bytes(m);
    unsigned char *data = take(bytes), *want = take(room + GUARD), *got = take(room + GUARD),
                  *ranges = take(room + GUARD);
    fill_randomly(data, bytes);
    for (size_t i = 0; i < bytes && m->kept > 0; i++) {
        data[i] = (unsigned char)(data[i] % (1 << m->kept) + least_code(m));
    }
    memset(want, GUARD_BYTE, room + GUARD);
    memset(got, GUARD_BYTE, room + GUARD);
    memset(ranges, GUARD_BYTE, room + GUARD);
    define(m, data, want);
    CHECK(bytes_of(&tiles) == room, "%s: %zu bytes, not %zu", text_of(m), bytes_of(&tiles), room);
    if (reorder(&strided, data, &tiles, got)) {
        CHECK(memcmp(got, want, room + GUARD) == 0, "%s: other bytes", text_of(m));
    }
    reorder_ranges(m, data, ranges, true);
    CHECK(memcmp(ranges, want, room + GUARD) == 0, "%s: other bytes by ranges", text_of(m));
    if (m->row > 0 && m->column > 0) {
        check_back(m, ones, data, got);
    }
    free(data);
    free(want);
    free(got);
    free(ranges);
}

/* The strides of a form; a packed type needs one of 1. 16 columns take whole bytes in each. */
static void choose_strides(matrix_t *m, int form)
{
    const bool packed = bits_of(m->type) < 8;
    switch (form) {
    case 0: /* dense, as the dims follow one another */
        m->row = m->transposed ? 1 : m->N;
        m->column = m->transposed ? m->K : 1;
        break;
    case 1: /* dense the other way round */
        m->row = m->transposed ? m->N : 1;
        m->column = m->transposed ? 1 : m->K;
        break;
    case 2: /* columns of a larger matrix: lines of 4 bits begin within a byte */
        m->row = 1;
        m->column = m->K + 1 + 2 * draw(4);
        break;
    case 3: /* rows of one */
        m->row = m->N + 1 + 2 * draw(4);
        m->column = 1;
        break;
    case 4: /* every third element */
        m->row = packed ? 1 : 3;
        m->column = 3 * m->K + 2;
        break;
    default: /* one value for all rows, or for all columns */
        m->row = draw(2);
        m->column = 1 - m->row;
        break;
    }
}

static void check_type(sinter_data_type_t type, sinter_weights_part_t part, int kept)
{
    static const int64_t K[] = {1, 31, 32, 33, 63, 64, 100, 161}, N[] = {1, 7, 15, 16, 17, 33, 48};
    for (int i = 0; i < 8 * 7; i++) {
        for (int form = 0; form < 6; form++) {
            for (int transposed = 0; transposed < 2; transposed++) {
                matrix_t m = {.type = type,
                              .part = part,
                              .kept = kept,
                              .transposed = transposed,
                              .K = K[i % 8],
                              .N = N[i / 8]};
                choose_strides(&m, form);
                check_matrix(&m);
            }
        }
    }
}

static const sinter_data_type_t code_types[] = {
    sinter_s4,  sinter_u4,   sinter_f4_e2m1, sinter_s8,      sinter_u8,      sinter_f32,
    sinter_f16, sinter_bf16, sinter_f8_e5m2, sinter_f8_e4m3, sinter_f6_e3m2, sinter_f6_e2m3};
static const sinter_data_type_t value_types[] = {
    sinter_f32, sinter_f16, sinter_bf16, sinter_e8m0, sinter_s8,
    sinter_u8,  sinter_s4,  sinter_u4,   sinter_u2,   sinter_f8_e4m3};
enum {
    CODE_TYPES = sizeof code_types / sizeof *code_types,
    VALUE_TYPES = sizeof value_types / sizeof *value_types
};

static void test_packing(void)
{
    for (int t = 0; t < CODE_TYPES; t++) {
        check_type(code_types[t], sinter_weights_codes, 0);
        for (int kept = 1;
             kept <= 6 && bits_of(code_types[t]) == 8 && gr_dtype(code_types[t])->class_ == GR_INT;
             kept++) {
            check_type(code_types[t], sinter_weights_codes, kept);
        }
    }
    for (int t = 0; t < VALUE_TYPES; t++) {
        check_type(value_types[t], sinter_weights_values, 0);
        for (int kept = 1; kept <= 6 && bits_of(value_types[t]) == 8 &&
                           gr_dtype(value_types[t])->class_ == GR_INT;
             kept++) {
            check_type(value_types[t], sinter_weights_values, kept);
        }
    }
}

/* Values of one dim are those of columns, whatever transpose_b is. */
static void test_one_dim(void)
{
    for (int i = 0; i < VALUE_TYPES * 2; i++) {
        const matrix_t m = {.type = value_types[i / 2],
                            .part = sinter_weights_values,
                            .K = 1,
                            .N = 19,
                            .row = 0,
                            .column = 1};
        sinter_logical_tensor_t strided = {.id = 3,
                                           .ndims = 1,
                                           .dims = {19},
                                           .strides = {1},
                                           .data_type = m.type,
                                           .layout_type = sinter_layout_type_strided},
                                tiles = strided;
        CHECK_THAT(sinter_logical_tensor_set_weights_layout(&tiles, sinter_weights_values, 0,
                                                            i % 2) == sinter_success);
        unsigned char data[19 * 4], want[32 * 4], got[32 * 4], back[19 * 4];
        fill_randomly(data, sizeof data);
        memcpy(back, data, sizeof data);
        define(&m, data, want);
        CHECK_THAT(bytes_of(&tiles) == plane_bytes(&m));
        reorder(&strided, data, &tiles, got);
        CHECK_THAT(memcmp(got, want, plane_bytes(&m)) == 0);
        memset(back, 0, bytes_of(&strided));
        reorder(&tiles, got, &strided, back);
        bool same = true;
        for (int n = 0; n < 19; n++) {
            same = same && element(m.type, back, n) == element(m.type, data, n);
        }
        CHECK(same, "%s of one dim: not the same again", gr_dtype(m.type)->name);
    }
}

/* A tensor without elements has no bytes, and needs no memory. */
static void test_empty(void)
{
    for (int i = 0; i < 4; i++) {
        matrix_t m = {.type = i % 2 ? sinter_f16 : sinter_s4,
                      .part = i % 2 ? sinter_weights_values : sinter_weights_codes,
                      .K = i / 2 ? 0 : 40,
                      .N = i / 2 ? 40 : 0,
                      .row = 1,
                      .column = 40};
        const sinter_logical_tensor_t strided = describe(&m, 0), tiles = in_tiles(&m, 0);
        CHECK_THAT(bytes_of(&tiles) == 0);
        reorder(&strided, NULL, &tiles, NULL);
        reorder(&tiles, NULL, &strided, NULL);
    }
}

/* ---- what has no such layout ----------------------------------------------------------------- */

static sinter_logical_tensor_t dense(uint64_t id, sinter_data_type_t type, int ndims,
                                     const int64_t *dims)
{
    sinter_logical_tensor_t lt = {.id = id, .ndims = ndims, .data_type = type};
    if (ndims > 0) {
        memcpy(lt.dims, dims, (size_t)ndims * sizeof *dims);
    }
    gr_set_dense(&lt, NULL);
    lt.layout_type = sinter_layout_type_strided;
    return lt;
}
#define DENSE(id, type, ...)                                                            \
    dense(id, sinter_##type, (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), \
          (int64_t[]){__VA_ARGS__})

static sinter_logical_tensor_t tiled(sinter_logical_tensor_t lt, sinter_weights_part_t part,
                                     int transpose_b)
{
    CHECK_THAT(sinter_logical_tensor_set_weights_layout(&lt, part, 0, transpose_b) ==
               sinter_success);
    return lt;
}

static sinter_status_t set_layout(sinter_logical_tensor_t lt, sinter_weights_part_t part)
{
    const sinter_logical_tensor_t before = lt;
    const sinter_status_t status = sinter_logical_tensor_set_weights_layout(&lt, part, 0, draw(2));
    CHECK(memcmp(&lt, &before, sizeof lt) == 0, "a call that fails changes the tensor");
    return status;
}

/* Several matrices lie in tiles as each does alone, one after the other, from any strides. */
static void test_matrices(void)
{
    enum { BYTES = (6 * (48 * 36 + 8) + 48) * 4 };
    static unsigned char data[BYTES], tiles[2 * BYTES], alone[2 * BYTES], back[BYTES];
    static const struct {
        sinter_data_type_t type;
        sinter_weights_part_t part;
    } rows[] = {{sinter_s4, sinter_weights_codes},   {sinter_u8, sinter_weights_codes},
                {sinter_f16, sinter_weights_codes},  {sinter_f32, sinter_weights_codes},
                {sinter_f16, sinter_weights_values}, {sinter_u8, sinter_weights_values}};
    for (size_t i = 0; i < 4 * sizeof rows / sizeof *rows; i++) {
        const int turned = i % 2, apart = i / 2 % 2; /* other strides between matrices */
        const sinter_data_type_t type = rows[i / 4].type;
        const int64_t bits = gr_dtype(type)->bits, rows_of = turned ? 48 : 36,
                      columns = turned ? 36 : 48, matrix = rows_of * columns + (apart ? 8 : 0);
        sinter_logical_tensor_t all = dense(5, type, 4, (int64_t[]){3, 2, rows_of, columns}),
                                one = dense(6, type, 2, (int64_t[]){rows_of, columns});
        all.strides[1] = matrix;
        all.strides[0] = 2 * matrix + (apart ? 16 : 0);
        sinter_logical_tensor_t all_tiled = all, one_tiled = one;
        CHECK_THAT(sinter_logical_tensor_set_weights_layout(&all_tiled, rows[i / 4].part, 0,
                                                            turned) == sinter_success);
        CHECK_THAT(sinter_logical_tensor_set_weights_layout(&one_tiled, rows[i / 4].part, 0,
                                                            turned) == sinter_success);
        const size_t each = bytes_of(&one_tiled);
        CHECK_THAT(bytes_of(&all_tiled) == 6 * each && 6 * each <= sizeof tiles);
        fill_randomly(data, sizeof data);
        memcpy(back, data, sizeof back);
        reorder(&all, data, &all_tiled, tiles);
        for (int m = 0; m < 6; m++) {
            const int64_t first = m / 2 * all.strides[0] + m % 2 * matrix;
            reorder(&one, data + first * bits / 8, &one_tiled, alone + (size_t)m * each);
            memset(back + first * bits / 8, 0, (size_t)(rows_of * columns * bits / 8));
        }
        CHECK(memcmp(tiles, alone, 6 * each) == 0, "%s, %d, %d: matrices lie elsewhere",
              gr_dtype(type)->name, turned, apart);
        reorder(&all_tiled, tiles, &all, back);
        CHECK(memcmp(back, data, sizeof back) == 0, "%s, %d, %d: not the same again",
              gr_dtype(type)->name, turned, apart);
    }
}

/* Codes in blocks: each 256 elements of K are a matrix of their own, and so is each matrix of a
 * tensor. Strides are those of dense dims, of tokens side by side, of either turned, and with room
 * between rows. */
static void check_blocks(sinter_data_type_t type, int64_t heads, int64_t K, int64_t N, int form,
                         int turned)
{
    const bool packed = bits_of(type) < 8;
    const int64_t apart = form == 3 ? 6 : 0, block = K > 256 ? 256 : K, blocks = K / block;
    sinter_logical_tensor_t lt =
        dense(5, type, 3, (int64_t[]){heads, turned ? N : K, turned ? K : N});
    const int k_dim = turned ? 2 : 1, n_dim = turned ? 1 : 2;
    if (form == 0 || form == 3) { /* dense, or nearly */
        lt.strides[1] = lt.dims[2] + apart;
        lt.strides[0] = lt.dims[1] * lt.strides[1] + apart;
    } else if (form == 1) { /* the heads of a token side by side */
        lt.strides[k_dim] = heads * N;
        lt.strides[n_dim] = 1;
        lt.strides[0] = N;
    } else { /* the other way round */
        lt.strides[1] = 1;
        lt.strides[2] = lt.dims[1];
        lt.strides[0] = K * N;
    }
    if (form == 4 && !packed) {
        for (int d = 0; d < 3; d++) {
            lt.strides[d] *= 3;
        }
    }
    const sinter_logical_tensor_t tiles = tiled(lt, sinter_weights_codes_blocks, turned);
    const size_t bytes = bytes_of(&lt), room = bytes_of(&tiles);
    unsigned char *data = take(bytes), *want = take(room + GUARD), *got = take(room + GUARD),
                  *back = take(bytes);
    fill_randomly(data, bytes);
    memset(want, GUARD_BYTE, room + GUARD);
    memset(got, GUARD_BYTE, room + GUARD);
    size_t at = 0;
    for (int64_t h = 0; h < heads; h++) {
        for (int64_t b = 0; b < blocks; b++) {
            const matrix_t m = {.type = type,
                                .part = sinter_weights_codes,
                                .K = block,
                                .N = N,
                                .first = h * lt.strides[0] + b * block * lt.strides[k_dim],
                                .row = lt.strides[k_dim],
                                .column = lt.strides[n_dim]};
            define(&m, data, want + at);
            at += plane_bytes(&m);
        }
    }
    CHECK(at == room, "%s: %zu bytes in blocks, not %zu", gr_dtype(type)->name, room, at);
    reorder(&lt, data, &tiles, got);
    CHECK(memcmp(got, want, room + GUARD) == 0,
          "%s, %lld heads, K %lld, N %lld, form %d, turned %d: blocks have other bytes",
          gr_dtype(type)->name, (long long)heads, (long long)K, (long long)N, form, turned);
    memcpy(back, data, bytes);
    for (int64_t i = 0; i < heads * K * N; i++) { /* what is there is written, and nothing else */
        put_element(type, back,
                    i / (K * N) * lt.strides[0] + i / N % K * lt.strides[k_dim] +
                        i % N * lt.strides[n_dim],
                    (uint32_t)draw(256));
    }
    reorder(&tiles, got, &lt, back);
    CHECK(memcmp(back, data, bytes) == 0,
          "%s, %lld heads, K %lld, N %lld, form %d, turned %d: not the same again",
          gr_dtype(type)->name, (long long)heads, (long long)K, (long long)N, form, turned);
    free(data);
    free(want);
    free(got);
    free(back);
}

/* A cache [tokens, heads, head]: 256 tokens have a matrix for each head, then come the next. */
static void check_heads(sinter_data_type_t type, sinter_weights_part_t part, int64_t T,
                        int64_t heads, int64_t width, int form)
{
    const int64_t n = T > 256 ? 256 : T;
    const bool values = part == sinter_weights_heads_values, v = part == sinter_weights_heads_v;
    sinter_logical_tensor_t lt = dense(5, type, 3, (int64_t[]){T, heads, width});
    if (form == 1) { /* heads apart from one another */
        lt.strides[0] = width;
        lt.strides[1] = T * width;
    } else if (form == 2) {
        lt.strides[0] = heads * width + 8;
    }
    const sinter_logical_tensor_t tiles = tiled(lt, part, form % 2);
    const size_t bytes = bytes_of(&lt), room = bytes_of(&tiles);
    unsigned char *data = take(bytes), *want = take(room + GUARD), *got = take(room + GUARD),
                  *back = take(bytes);
    fill_randomly(data, bytes);
    memset(want, GUARD_BYTE, room + GUARD);
    memset(got, GUARD_BYTE, room + GUARD);
    size_t at = 0;
    for (int64_t t = 0; t < T; t += n) {
        for (int64_t h = 0; h < heads; h++) {
            const matrix_t m = {.type = type,
                                .part = values ? sinter_weights_values : sinter_weights_codes,
                                .K = v ? n : width,
                                .N = v ? width : n,
                                .first = t * lt.strides[0] + h * lt.strides[1],
                                .row = v ? lt.strides[0] : 1,
                                .column = v ? 1 : lt.strides[0]};
            define(&m, data, want + at);
            at += plane_bytes(&m);
        }
    }
    CHECK(at == room, "%s: %zu bytes of heads, not %zu", gr_dtype(type)->name, room, at);
    reorder(&lt, data, &tiles, got);
    CHECK(memcmp(got, want, room + GUARD) == 0,
          "%s, part %d, %lld tokens, %lld heads of %lld, form %d: other bytes",
          gr_dtype(type)->name, (int)part, (long long)T, (long long)heads, (long long)width, form);
    memcpy(back, data, bytes);
    for (int64_t i = 0; i < T * heads * width; i++) {
        put_element(type, back,
                    i / (heads * width) * lt.strides[0] + i / width % heads * lt.strides[1] +
                        i % width,
                    (uint32_t)draw(256));
    }
    reorder(&tiles, got, &lt, back);
    CHECK(memcmp(back, data, bytes) == 0,
          "%s, part %d, %lld tokens, %lld heads of %lld, form %d: not the same again",
          gr_dtype(type)->name, (int)part, (long long)T, (long long)heads, (long long)width, form);
    free(data);
    free(want);
    free(got);
    free(back);
}

static void test_heads(void)
{
    static const int64_t T[] = {1, 16, 100, 256, 512, 768}, width[] = {32, 64, 20, 7};
    for (int i = 0; i < 48; i++) {
        for (int t = 0; t < CODE_TYPES; t++) {
            check_heads(code_types[t], i % 2 ? sinter_weights_heads_v : sinter_weights_heads_k,
                        T[i / 2 % 6], 1 + (i + t) % 3, width[(i / 3 + t) % 4], (i + t) % 3);
        }
        for (int t = 0; t < VALUE_TYPES; t++) {
            check_heads(value_types[t], sinter_weights_heads_values, T[i % 6], 1 + (i + t) % 3,
                        1 + (i / 2 + t) % 4, (i + t) % 3);
        }
    }
    sinter_logical_tensor_t lt = DENSE(5, s8, 512, 2, 64);
    lt.layout_type = sinter_layout_type_any;
    lt.dims[0] = SINTER_UNKNOWN_DIM;
    CHECK_THAT(!sinter_logical_tensor_set_weights_layout(&lt, sinter_weights_heads_k, 0, 0));
    size_t bytes;
    FAILS(sinter_logical_tensor_get_bytes(&lt, &bytes), invalid_shape, "dimensions are not known");
    static const char dims[] =
        "tensor 5: an opaque layout of codes of heads takes tokens, heads, and the elements of "
        "one; the last two are known";
    lt = DENSE(5, s8, 512, 2, 64);
    lt.layout_type = sinter_layout_type_any;
    lt.dims[1] = SINTER_UNKNOWN_DIM;
    FAILS(set_layout(lt, sinter_weights_heads_k), invalid_shape, dims);
    FAILS(set_layout(DENSE(5, s8, 512, 64), sinter_weights_heads_v), invalid_shape, dims);
    FAILS(set_layout(DENSE(5, s8, 2, 512, 2, 64), sinter_weights_heads_v), invalid_shape, dims);
    FAILS(set_layout(DENSE(5, s8, 300, 2, 64), sinter_weights_heads_k), invalid_shape,
          "tensor 5: an opaque layout of codes of heads takes up to 256 tokens or a multiple of "
          "them");
    FAILS(set_layout(DENSE(5, e8m0, 32, 2, 16), sinter_weights_heads_k), invalid_data_type,
          "tensor 5: an opaque layout of codes does not take e8m0");
    lt = DENSE(5, s8, 32, 2, 16);
    FAILS(sinter_logical_tensor_set_weights_layout(&lt, sinter_weights_heads_v, 4, 0),
          invalid_arguments, "tensor 5: an opaque layout does not keep 4 bits");
    static const struct {
        sinter_weights_part_t part;
        uint64_t id;
    } ids[] = {{sinter_weights_heads_k, 33},
               {sinter_weights_heads_v, 36},
               {sinter_weights_heads_values, 37}};
    for (int i = 0; i < 6; i++) {
        lt = DENSE(5, s8, 32, 2, 16);
        CHECK_THAT(!sinter_logical_tensor_set_weights_layout(&lt, ids[i / 2].part, 0, i % 2) &&
                   lt.layout_id == ids[i / 2].id);
    }
}

static void test_blocks(void)
{
    static const int64_t K[] = {1, 16, 17, 31, 32, 33, 255, 256, 512, 768};
    for (int i = 0; i < CODE_TYPES * 10 * 5; i++) {
        const sinter_data_type_t type = code_types[i / 50];
        const int64_t k = K[i / 5 % 10];
        check_blocks(type, 1, k, k > 256 ? 48 : 40, i % 5, i % 2);
        check_blocks(type, 3, k, 16 << i % 2, i % 5, i / 2 % 2);
    }
    static const char words[] =
        "tensor 5: an opaque layout of codes in blocks takes up to 256 tokens or a multiple of "
        "them, and heads of a multiple of 16 elements";
    FAILS(set_layout(DENSE(5, s8, 257, 257), sinter_weights_codes_blocks), invalid_shape, words);
    FAILS(set_layout(DENSE(5, f16, 512, 520), sinter_weights_codes_blocks), invalid_shape, words);
    FAILS(set_layout(DENSE(5, s4, 2, 30, 20), sinter_weights_codes_blocks), invalid_shape,
          "takes one matrix of known dims, or several with a multiple of 16 columns each");
    FAILS(set_layout(DENSE(5, e8m0, 32, 16), sinter_weights_codes_blocks), invalid_data_type,
          "tensor 5: an opaque layout of codes does not take e8m0");
}

static void test_types(void)
{
    static const sinter_data_type_t all_types[] = {
#define SINTER_DTYPE(value, name, ...) sinter_##name,
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    };
    for (size_t t = 0; t < sizeof all_types / sizeof *all_types; t++) {
        const sinter_data_type_t type = all_types[t];
        bool codes = false, values = false;
        char words[160];
        for (int i = 0; i < CODE_TYPES; i++) {
            codes = codes || code_types[i] == type;
        }
        for (int i = 0; i < VALUE_TYPES; i++) {
            values = values || value_types[i] == type;
        }
        const sinter_logical_tensor_t lt = dense(5, type, 2, (int64_t[]){32, 16});
        if (!codes) {
            snprintf(words, sizeof words, "tensor 5: an opaque layout of codes does not take %s",
                     gr_dtype(type)->name);
            FAILS(set_layout(lt, sinter_weights_codes), invalid_data_type, words);
        }
        if (!values) {
            snprintf(words, sizeof words,
                     "tensor 5: an opaque layout of scales or zero points does not take %s",
                     gr_dtype(type)->name);
            FAILS(set_layout(lt, sinter_weights_values), invalid_data_type, words);
        }
    }
}

static void test_shapes(void)
{
    static const char codes[] =
        "tensor 5: an opaque layout of codes takes one matrix of known dims",
                      values[] = "tensor 5: an opaque layout of scales or zero points takes one "
                                 "matrix of known dims";
    sinter_logical_tensor_t lt = DENSE(5, s8, 32);
    FAILS(set_layout(lt, sinter_weights_codes), invalid_shape, codes);
    FAILS(set_layout(dense(5, sinter_f16, 0, NULL), sinter_weights_values), invalid_shape, values);
    FAILS(set_layout(DENSE(5, s4, 2, 30, 20), sinter_weights_codes), invalid_shape, codes);
    FAILS(set_layout(DENSE(5, f16, 1, 3, 1, 4, 20), sinter_weights_values), invalid_shape, values);
    FAILS(set_layout(DENSE(5, s4, 0, 32, 16), sinter_weights_codes), invalid_shape, codes);
    lt = DENSE(5, s8, 32, 16);
    lt.layout_type = sinter_layout_type_any;
    lt.dims[0] = SINTER_UNKNOWN_DIM;
    FAILS(set_layout(lt, sinter_weights_codes), invalid_shape, codes);
    lt.dims[0] = -1;
    FAILS(set_layout(lt, sinter_weights_codes), invalid_shape, NULL);
    lt.ndims = SINTER_UNKNOWN_NDIMS;
    FAILS(set_layout(lt, sinter_weights_codes), invalid_shape, codes);
    FAILS(set_layout(lt, sinter_weights_values), invalid_shape, values);
}

/* Ids are in files: they stay what they are. */
static void test_ids(void)
{
    static const struct {
        sinter_weights_part_t part;
        int bits;
        uint64_t turned; /* the id with transpose_b; without it, it is the next one */
    } ids[] = {{sinter_weights_codes, 0, 1},         {sinter_weights_values, 0, 3},
               {sinter_weights_codes, 6, 5},         {sinter_weights_codes, 1, 7},
               {sinter_weights_codes, 2, 9},         {sinter_weights_codes, 3, 11},
               {sinter_weights_codes, 4, 13},        {sinter_weights_codes, 5, 15},
               {sinter_weights_values, 1, 17},       {sinter_weights_values, 2, 19},
               {sinter_weights_values, 3, 21},       {sinter_weights_values, 4, 23},
               {sinter_weights_values, 5, 25},       {sinter_weights_values, 6, 27},
               {sinter_weights_codes_iq4_nl, 0, 29}, {sinter_weights_codes_blocks, 0, 31}};
    for (size_t i = 0; i < sizeof ids / sizeof *ids; i++) {
        for (int turned = 0; turned < 2; turned++) {
            sinter_logical_tensor_t lt = DENSE(5, s8, 32, 16);
            CHECK_THAT(
                !sinter_logical_tensor_set_weights_layout(&lt, ids[i].part, ids[i].bits, turned));
            CHECK(lt.layout_id == ids[i].turned + !turned, "id %llu",
                  (unsigned long long)lt.layout_id);
        }
    }
}

/* A code that does not fit, and types of which all bits are kept. */
static void test_kept(void)
{
    static const sinter_data_type_t types[] = {sinter_s4,      sinter_u4,      sinter_f4_e2m1,
                                               sinter_f8_e4m3, sinter_f6_e2m3, sinter_f16};
    for (size_t i = 0; i < sizeof types / sizeof *types; i++) {
        sinter_logical_tensor_t lt = dense(5, types[i], 2, (int64_t[]){32, 16});
        char words[120];
        snprintf(words, sizeof words, "an opaque layout of codes of 3 bits does not take %s",
                 gr_dtype(types[i])->name);
        FAILS(sinter_logical_tensor_set_weights_layout(&lt, sinter_weights_codes, 3, 0),
              invalid_data_type, words);
    }
    unsigned char data[32 * 16] = {0}, plane[192];
    const sinter_logical_tensor_t from = DENSE(5, s8, 32, 16);
    sinter_logical_tensor_t to = from;
    sinter_tensor_t *a = NULL, *b = NULL;
    CHECK_THAT(!sinter_logical_tensor_set_weights_layout(&to, sinter_weights_codes, 3, 0));
    CHECK_THAT(!sinter_tensor_create(&a, NULL, &from, data, sizeof data));
    CHECK_THAT(!sinter_tensor_create(&b, NULL, &to, plane, sizeof plane));
    data[100] = 4;
    FAILS(sinter_reorder(a, b), invalid_arguments,
          "tensor 5 has integers that do not fit the 3 bits of the layout of tensor 5");
    data[100] = (unsigned char)-4;
    CHECK_THAT(!sinter_reorder(a, b));
    sinter_tensor_destroy(&a);
    sinter_tensor_destroy(&b);
}

/* Numbers of IQ4_NL take half the bytes and come back; others, and other types, are refused. */
static void test_numbers(void)
{
    static const signed char numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                            1,    13,   25,  38,  53,  69,  89,  113};
    signed char data[40 * 20], back[40 * 20] = {0};
    const sinter_logical_tensor_t from = DENSE(5, s8, 40, 20);
    sinter_logical_tensor_t to = from, other = DENSE(5, u8, 40, 20);
    sinter_tensor_t *a = NULL, *b = NULL, *c = NULL;
    FAILS(sinter_logical_tensor_set_weights_layout(&other, sinter_weights_codes_iq4_nl, 0, 0),
          invalid_data_type, "an opaque layout of numbers of IQ4_NL does not take u8");
    for (int i = 0; i < 40 * 20; i++) {
        data[i] = numbers[draw(16)];
    }
    CHECK_THAT(!sinter_logical_tensor_set_weights_layout(&to, sinter_weights_codes_iq4_nl, 0, 0));
    const size_t bytes = bytes_of(&to);
    CHECK_THAT(bytes == 2 * 2 * 256);
    unsigned char *plane = take(bytes);
    CHECK_THAT(!sinter_tensor_create(&a, NULL, &from, data, sizeof data));
    CHECK_THAT(!sinter_tensor_create(&b, NULL, &to, plane, bytes));
    CHECK_THAT(!sinter_tensor_create(&c, NULL, &from, back, sizeof back));
    CHECK_THAT(!sinter_reorder(a, b) && !sinter_reorder(b, c));
    CHECK_THAT(memcmp(data, back, sizeof data) == 0);
    for (int at = 0; at < 16; at++) { /* k = 17, column 3: line 0, the upper half of byte 1 */
        data[17 * 20 + 3] = numbers[at];
        CHECK_THAT(!sinter_reorder(a, b) && plane[4 * 3 + 1] >> 4 == at);
    }
    data[5] = 0;
    FAILS(sinter_reorder(a, b), invalid_arguments,
          "tensor 5 has integers that do not fit the numbers of the layout of tensor 5");
    sinter_tensor_destroy(&a);
    sinter_tensor_destroy(&b);
    sinter_tensor_destroy(&c);
    free(plane);
}

/* Padding may overflow where the elements themselves do not. */
static void test_sizes(void)
{
    static const char words[] = "tensor 5: the bytes of the opaque layout overflow";
    FAILS(set_layout(DENSE(5, s8, INT64_C(1) << 62, 1), sinter_weights_codes), invalid_shape,
          words);
    FAILS(set_layout(DENSE(5, s8, 1, INT64_C(1) << 59), sinter_weights_codes), invalid_shape,
          words);
    sinter_logical_tensor_t lt = DENSE(5, f32, INT64_C(1) << 60, 1);
    FAILS(sinter_logical_tensor_set_weights_layout(&lt, sinter_weights_values, 0, 0), invalid_shape,
          words);
    CHECK_THAT(!sinter_logical_tensor_set_weights_layout(&lt, sinter_weights_values, 0, 1));
    lt = DENSE(5, e8m0, 1, INT64_C(1) << 60);
    FAILS(sinter_logical_tensor_set_weights_layout(&lt, sinter_weights_values, 0, 1), invalid_shape,
          words);
}

static void test_arguments(void)
{
    sinter_logical_tensor_t lt = DENSE(5, s8, 32, 16);
    FAILS(sinter_logical_tensor_set_weights_layout(NULL, sinter_weights_codes, 0, 0),
          invalid_arguments, NULL);
    FAILS(set_layout(lt, (sinter_weights_part_t)7), invalid_arguments, NULL);
    FAILS(set_layout(lt, (sinter_weights_part_t)-1), invalid_arguments, NULL);
    FAILS(sinter_logical_tensor_set_weights_layout(&lt, sinter_weights_codes_iq4_nl, 4, 1),
          invalid_arguments, "tensor 5: an opaque layout does not keep 4 bits");
    FAILS(sinter_logical_tensor_set_weights_layout(&lt, sinter_weights_codes_blocks, 4, 0),
          invalid_arguments, "tensor 5: an opaque layout does not keep 4 bits");
    for (int bits = -1; bits < 9; bits += 8) {
        char words[100];
        snprintf(words, sizeof words, "tensor 5: an opaque layout does not keep %d bits", bits);
        FAILS(sinter_logical_tensor_set_weights_layout(&lt, sinter_weights_codes, bits, 1),
              invalid_arguments, words);
    }
    lt.layout_type = sinter_layout_type_opaque;
    size_t bytes;
    sinter_tensor_t *tensor = NULL;
    const uint64_t ids[] = {0, 39, 34, UINT64_MAX, UINT64_C(1) << 63};
    for (int i = 0; i < 5; i++) {
        char words[100];
        snprintf(words, sizeof words, "tensor 5: %llu is no id of an opaque layout",
                 (unsigned long long)ids[i]);
        lt.layout_id = ids[i];
        FAILS(sinter_logical_tensor_get_bytes(&lt, &bytes), invalid_arguments, words);
        FAILS(sinter_tensor_create(&tensor, NULL, &lt, NULL, 0), invalid_arguments, words);
    }
    CHECK_THAT(tensor == NULL);
    /* A scalar that is handed over as a value has no room for a strip. */
    lt = DENSE(5, f32, 1, 1);
    lt.property = sinter_tensor_property_host_scalar;
    FAILS(set_layout(lt, sinter_weights_values), invalid_arguments,
          "tensor 5: a host scalar has no opaque layout");
}

/* ---- tensors --------------------------------------------------------------------------------- */

static void test_equal(void)
{
    const sinter_logical_tensor_t strided = DENSE(5, s8, 32, 16),
                                  codes = tiled(strided, sinter_weights_codes, 0);
    sinter_logical_tensor_t other = tiled(strided, sinter_weights_codes, 1);
    int equal = -1;
    CHECK_THAT(!sinter_logical_tensor_is_equal(&codes, &other, &equal) && equal == 0);
    CHECK_THAT(!sinter_logical_tensor_is_equal(&codes, &strided, &equal) && equal == 0);
    other = tiled(strided, sinter_weights_values, 0);
    CHECK_THAT(!sinter_logical_tensor_is_equal(&codes, &other, &equal) && equal == 0);
    other = codes;
    for (int d = 1; d < SINTER_MAX_NDIMS; d++) {
        other.strides[d] = 1000 + d; /* mean nothing */
    }
    CHECK_THAT(!sinter_logical_tensor_is_equal(&codes, &other, &equal) && equal == 1);
}

static void test_tensors(void)
{
    const sinter_logical_tensor_t strided = DENSE(5, s8, 40, 20),
                                  codes = tiled(strided, sinter_weights_codes, 0);
    sinter_logical_tensor_t got;
    unsigned char data[2 * 2 * 512];
    sinter_tensor_t *tensor = NULL;
    int equal = 0;
    FAILS(sinter_tensor_create(&tensor, NULL, &codes, data, sizeof data - 1), invalid_arguments,
          "tensor 5: 2047 bytes given, 2048 needed");
    if (!CHECK_THAT(!sinter_tensor_create(&tensor, NULL, &codes, data, sizeof data))) {
        return;
    }
    CHECK_THAT(!sinter_tensor_get_logical_tensor(tensor, &got) &&
               !sinter_logical_tensor_is_equal(&got, &codes, &equal) && equal == 1);
    FAILS(sinter_tensor_set_data(tensor, data, 40 * 20), invalid_arguments,
          "tensor 5: 800 bytes given, 2048 needed");
    FAILS(sinter_tensor_set_dims(tensor, 2, strided.dims, strided.strides), invalid_arguments,
          "tensor 5 has an opaque layout, which is of its dims alone");
    FAILS(sinter_tensor_set_dims(tensor, 1, strided.dims, NULL), invalid_arguments,
          "tensor 5 has 2 dims, not 1");
    sinter_tensor_destroy(&tensor);
    /* One element is a strip all the same. */
    const sinter_logical_tensor_t one = tiled(DENSE(6, f32, 1, 1), sinter_weights_values, 0);
    const float value = 1;
    FAILS(sinter_tensor_create_scalar(&tensor, NULL, &one, &value), invalid_arguments, "tensor 6");
    CHECK_THAT(!sinter_tensor_create(&tensor, NULL, &one, data, 64));
    FAILS(sinter_tensor_set_scalar(tensor, &value), invalid_arguments, "tensor 6");
    sinter_tensor_destroy(&tensor);
}

static void test_reorder_errors(void)
{
    static const char other[] = "reorder: tensors 5 and 6 have other data types or dims",
                      layouts[] = "reorder: one of tensors 5 and 6 has an opaque layout, the other "
                                  "one strides";
    const sinter_logical_tensor_t a = DENSE(5, s8, 32, 16);
    sinter_logical_tensor_t b[] = {
        DENSE(6, u8, 32, 16), DENSE(6, s8, 16, 32), DENSE(6, s8, 1, 32, 16),
        DENSE(6, s8, 32, 16), DENSE(6, s8, 32, 16),
    };
    const char *words[] = {other, other, other, layouts, layouts};
    static unsigned char x[1024], y[1024];
    sinter_tensor_t *from = NULL, *to = NULL;
    for (int i = 0; i < 3; i++) {
        b[i] = tiled(b[i], sinter_weights_codes, 0);
    }
    for (int i = 0; i < 5; i++) {
        const sinter_logical_tensor_t given = i == 4 ? tiled(a, sinter_weights_codes, 0) : a,
                                      wanted = i == 4 ? tiled(b[i], sinter_weights_codes, 1) : b[i];
        CHECK_THAT(!sinter_tensor_create(&from, NULL, &given, x, sizeof x) &&
                   !sinter_tensor_create(&to, NULL, &wanted, y, sizeof y));
        FAILS(sinter_reorder(from, to), invalid_arguments, words[i]);
        sinter_tensor_destroy(&from);
        sinter_tensor_destroy(&to);
    }
    const sinter_logical_tensor_t tiles = tiled(b[3], sinter_weights_codes, 0);
    CHECK_THAT(!sinter_tensor_create(&from, NULL, &a, NULL, 0) &&
               !sinter_tensor_create(&to, NULL, &tiles, y, sizeof y));
    FAILS(sinter_reorder(from, to), invalid_arguments, "reorder: tensor 5 has no data");
    FAILS(sinter_reorder(to, from), invalid_arguments, "reorder: tensor 5 has no data");
    CHECK_THAT(!sinter_tensor_set_data(to, NULL, 0) && !sinter_tensor_set_data(from, x, sizeof x));
    FAILS(sinter_reorder(from, to), invalid_arguments, "reorder: tensor 6 has no data");
    FAILS(sinter_reorder(NULL, to), invalid_arguments, NULL);
    FAILS(sinter_reorder(from, NULL), invalid_arguments, NULL);
    /* An output's elements must not overlap. */
    CHECK_THAT(!sinter_tensor_set_data(to, y, sizeof y) &&
               !sinter_tensor_set_dims(from, 2, a.dims, (int64_t[]){1, 1}));
    CHECK_THAT(sinter_reorder(from, to) == sinter_success);
    FAILS(sinter_reorder(to, from), invalid_shape, "let elements overlap");
    sinter_tensor_destroy(&from);
    sinter_tensor_destroy(&to);
}

/* ---- graphs ---------------------------------------------------------------------------------- */

enum { CODES = 0, SCALES = 1, ZPS = 2, WEIGHTS = 3, A = 4, OUT = 5, MOST_TEXT = 4096 };

/* A product with weights in groups. zp undef: none; scale undef: the weights are plain floats. */
typedef struct product {
    sinter_data_type_t codes, scale, zp, a;
    int transposed, offsets, ones;            /* ones: dims of 1 before the weights' */
    int64_t m, n, k, group, zp_group, across; /* across: columns that share values */
    const char *mode;
} product_t;

/* "[1, 160, 38]": dims along K and N as they follow one another. */
static const char *dims_text(const product_t *p, int64_t k, int64_t n)
{
    static char texts[8][80];
    static int next;
    char *text = texts[next++ % 8];
    snprintf(text, sizeof texts[0], "[%s%lld, %lld]",
             p->ones == 0   ? ""
             : p->ones == 1 ? "1, "
                            : "1, 1, ",
             (long long)(p->transposed ? n : k), (long long)(p->transposed ? k : n));
    return text;
}

static int64_t groups_of(int64_t n, int64_t group)
{
    return (n + group - 1) / group;
}

static const char *name(sinter_data_type_t type)
{
    return type == sinter_data_type_undef ? "none" : gr_dtype(type)->name;
}

/* Strided. rows unknown: for a graph that is compiled once. */
static void load(const product_t *p, int64_t rows, model_t *model)
{
    char text[MOST_TEXT], dequant[MOST_TEXT / 2] = "", zps[300] = "", kind[120] = "";
    const int64_t columns = groups_of(p->n, p->across);
    const char *batch = p->ones == 0 ? "" : p->ones == 1 ? "1, " : "1, 1, ";
    gr_error_t err = {{0}, 0};
    if (p->zp != sinter_data_type_undef) {
        snprintf(zps, sizeof zps, ", {\"id\": 2, \"dtype\": \"%s\", \"shape\": %s}", name(p->zp),
                 dims_text(p, groups_of(p->k, p->zp_group), columns));
    }
    if (p->offsets) {
        snprintf(kind, sizeof kind,
                 ", \"zps_kind\": {\"type\": \"string\", \"value\": \"offsets\"}");
    }
    const bool plain = p->scale == sinter_data_type_undef;
    if (!plain) {
        snprintf(dequant, sizeof dequant,
                 "{\"id\": 0, \"kind\": \"DynamicDequantize\", \"attrs\": {\"qtype\": "
                 "{\"type\": \"string\", \"value\": \"per_group\"}%s}, \"inputs\": [{\"id\": 0, "
                 "\"dtype\": \"%s\", \"shape\": %s}, {\"id\": 1, \"dtype\": \"%s\", \"shape\": "
                 "%s}%s], \"outputs\": [{\"id\": 3, \"dtype\": \"f32\", \"shape\": %s}]}, ",
                 kind, name(p->codes), dims_text(p, p->k, p->n), name(p->scale),
                 dims_text(p, groups_of(p->k, p->group), columns), zps, dims_text(p, p->k, p->n));
    }
    const int n = snprintf(
        text, sizeof text,
        "{\"engine_kind\": \"cpu\", \"fpmath_mode\": \"%s\", \"fpmath_mode_apply_to_int\": "
        "\"true\", \"graph\": [%s{\"id\": 1, \"kind\": \"MatMul\", "
        "\"attrs\": {\"transpose_b\": {\"type\": \"bool\", \"value\": %d}}, \"inputs\": [{\"id\": "
        "4, \"dtype\": \"%s\", \"shape\": [%lld, %lld]}, {\"id\": %d, \"dtype\": \"%s\", "
        "\"shape\": %s}], \"outputs\": [{\"id\": 5, \"dtype\": \"f32\", \"shape\": [%s%lld, "
        "%lld]}]}]}",
        p->mode, dequant, p->transposed, name(p->a), (long long)rows, (long long)p->k,
        plain ? CODES : WEIGHTS, plain ? name(p->codes) : "f32", dims_text(p, p->k, p->n), batch,
        (long long)rows, (long long)p->n);
    if (model_load_text(model, "a product", text, (size_t)n, &err)) {
        fprintf(stderr, "%s\n%s\n", err.text, text);
        exit(1);
    }
}

/* Gives inputs of the first op opaque layouts: a bit of `which` for each. */
static void tile_model(model_t *model, int transposed, unsigned which)
{
    for (size_t i = 0; i < model->ops[0].n_inputs; i++) {
        sinter_logical_tensor_t *lt = &model->ops[0].inputs[i];
        if (which >> lt->id & 1) {
            *lt = tiled(*lt, lt->id == CODES ? sinter_weights_codes : sinter_weights_values,
                        transposed);
        }
    }
}

/* The inputs of ports as a graph with opaque layouts takes them. */
typedef struct packed {
    sinter_tensor_t *in[E2E_MAX_PORTS];
    unsigned char *data[E2E_MAX_PORTS];
} packed_t;

static void pack_ports(const e2e_ports_t *ports, int transposed, packed_t *packed)
{
    memset(packed, 0, sizeof *packed);
    for (size_t i = 0; i < ports->n_in; i++) {
        const sinter_logical_tensor_t *lt = &ports->in_lt[i];
        packed->in[i] = ports->in[i];
        if (lt->id == A) {
            continue;
        }
        const sinter_logical_tensor_t tiles =
            tiled(*lt, lt->id == CODES ? sinter_weights_codes : sinter_weights_values, transposed);
        const size_t bytes = bytes_of(&tiles);
        packed->data[i] = take(bytes);
        CHECK_THAT(!sinter_tensor_create(&packed->in[i], NULL, &tiles, packed->data[i], bytes) &&
                   !sinter_reorder(ports->in[i], packed->in[i]));
    }
}

static void free_packed(const e2e_ports_t *ports, packed_t *packed)
{
    for (size_t i = 0; i < ports->n_in; i++) {
        if (packed->data[i] != NULL) {
            sinter_tensor_destroy(&packed->in[i]);
            free(packed->data[i]);
        }
    }
}

static void poison(e2e_ports_t *ports)
{
    for (size_t i = 0; i < ports->n_out; i++) {
        memset(ports->out_data[i], 0xFF, bytes_of(&ports->out_lt[i]));
    }
}

static sinter_stream_t *stream;

static sinter_status_t run_whole(sinter_compiled_graph_t *whole, const e2e_ports_t *ports,
                                 const packed_t *packed)
{
    sinter_status_t status = sinter_success;
    for (size_t i = 0; i < ports->n_in + ports->n_out && !status; i++) {
        const size_t at = i < ports->n_in ? i : i - ports->n_in;
        const sinter_tensor_t *tensor = i < ports->n_in ? packed->in[at] : ports->out[at];
        sinter_logical_tensor_t lt;
        void *data = NULL;
        CHECK_THAT(!sinter_tensor_get_logical_tensor(tensor, &lt) &&
                   !sinter_tensor_get_data(tensor, &data));
        status =
            sinter_compiled_graph_bind(whole, lt.id, i < ports->n_in ? lt.ndims : 0,
                                       i < ports->n_in ? lt.dims : NULL, NULL, data, bytes_of(&lt));
    }
    return status ? status : sinter_compiled_graph_execute(whole, stream);
}

static void check_ports(const sinter_compiled_partition_t *compiled, const e2e_ports_t *ports,
                        const packed_t *packed)
{
    for (size_t i = 0; i < ports->n_in; i++) {
        sinter_logical_tensor_t want, got;
        sinter_tensor_t *made = NULL;
        void *data = NULL;
        int equal = 0;
        if (ports->in_lt[i].id == A) {
            continue;
        }
        CHECK_THAT(!sinter_tensor_get_logical_tensor(packed->in[i], &want) &&
                   !sinter_compiled_partition_query_logical_tensor(compiled, want.id, &got));
        CHECK_THAT(got.layout_type == sinter_layout_type_opaque &&
                   got.layout_id == want.layout_id && bytes_of(&got) == bytes_of(&want));
        CHECK_THAT(!sinter_tensor_get_data(packed->in[i], &data) &&
                   !sinter_compiled_partition_create_tensor(compiled, want.id, 0, NULL, data,
                                                            bytes_of(&want), &made) &&
                   !sinter_tensor_get_logical_tensor(made, &got));
        got.property = want.property;
        CHECK_THAT(!sinter_logical_tensor_is_equal(&got, &want, &equal) && equal == 1);
        sinter_tensor_destroy(&made);
    }
}

typedef struct programs {
    sinter_compiled_partition_t *part;
    sinter_compiled_graph_t *whole;
} programs_t;

static void open_programs(const product_t *p, int64_t rows, programs_t *programs)
{
    model_t model;
    gr_error_t err = {{0}, 0};
    sinter_graph_t *graph = NULL;
    load(p, rows, &model);
    tile_model(&model, p->transposed, 7);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &programs->part) == 0,
          "compile");
    sinter_partition_destroy(&partition);
    CHECK(model_build(&model, NULL, &graph, &err) == 0, "%s", err.text);
    CHECK(sinter_graph_compile(graph, NULL, 0, NULL, &programs->whole) == 0, "compile as a whole");
    sinter_graph_destroy(&graph);
    model_free(&model);
}

static void close_programs(programs_t *programs)
{
    sinter_compiled_graph_destroy(&programs->whole);
    sinter_compiled_partition_destroy(&programs->part);
}

/* The product of the same weights, strided for the oracle and in tiles for the library. */
static void check_product(const product_t *p, const programs_t *programs, int64_t rows)
{
    model_t model;
    e2e_ports_t ports;
    packed_t packed;
    load(p, rows, &model);
    e2e_ports_make(&ports, &model, NULL, (uint64_t)rows, 0);
    pack_ports(&ports, p->transposed, &packed);
    sinter_fpmath_mode_t mode = sinter_fpmath_mode_strict;
    CHECK_THAT(sinter_fpmath_mode_parse(p->mode, &mode));
    for (int whole = 0; whole < 2; whole++) {
        poison(&ports);
        const sinter_status_t status =
            whole ? run_whole(programs->whole, &ports, &packed)
                  : sinter_compiled_partition_execute(programs->part, stream, ports.n_in,
                                                      (const sinter_tensor_t *const *)packed.in,
                                                      ports.n_out, ports.out, NULL, 0);
        CHECK(status == sinter_success && e2e_compare(&model, &ports, mode, 1) == 0,
              "%s with %s and %s, %s, %lld x %lld x %lld%s%s", name(p->codes), name(p->scale),
              p->zp == sinter_data_type_undef ? "no zero points" : name(p->zp), p->mode,
              (long long)rows, (long long)p->n, (long long)p->k,
              p->transposed ? ", transposed" : "", whole ? ", as a whole" : "");
    }
    check_ports(programs->part, &ports, &packed);
    free_packed(&ports, &packed);
    e2e_ports_free(&ports);
    model_free(&model);
}

static void check_rows(const product_t *p)
{
    static const int64_t rows[] = {1,  2,  3,  4,  5,  6,  7,  8,  9,  10,
                                   11, 12, 13, 14, 15, 16, 17, 40, 100};
    enum { N = sizeof rows / sizeof *rows };
    programs_t open = {NULL, NULL};
    open_programs(p, SINTER_UNKNOWN_DIM, &open);
    for (int i = 0; i < N; i++) {
        programs_t known = {NULL, NULL};
        check_product(p, &open, rows[i]);
        open_programs(p, rows[i], &known);
        check_product(p, &known, rows[i]);
        close_programs(&known);
    }
    close_programs(&open);
}

/* The report says that no copy is made. */
static void check_report(const product_t *p)
{
    programs_t programs = {NULL, NULL};
    const char *text = "";
    open_programs(p, 1, &programs);
    CHECK_THAT(!sinter_compiled_partition_report(programs.part, &text));
    CHECK(strstr(text, "reads tensor 0 in tiles, as it was given") != NULL, "%s", text);
    close_programs(&programs);
}

static void test_products(void)
{
    static const product_t products[] = {
        {sinter_s4, sinter_f16, sinter_data_type_undef, sinter_f32, 1, 0, 0, 0, 33, 128, 32, 32, 1,
         "any"},
        {sinter_u4, sinter_f16, sinter_u4, sinter_f32, 0, 0, 0, 0, 40, 96, 32, 96, 1, "int8"},
        {sinter_s8, sinter_f32, sinter_s8, sinter_bf16, 1, 0, 1, 0, 17, 100, 50, 25, 1, "strict"},
        {sinter_u8, sinter_bf16, sinter_u8, sinter_f16, 0, 0, 2, 0, 48, 64, 64, 32, 1, "bf16"},
        {sinter_u4, sinter_f32, sinter_f32, sinter_f32, 1, 1, 0, 0, 20, 64, 32, 32, 1, "any"},
        {sinter_s4, sinter_bf16, sinter_s4, sinter_f32, 0, 0, 0, 0, 64, 160, 16, 16, 1, "int8"},
        {sinter_f4_e2m1, sinter_e8m0, sinter_data_type_undef, sinter_bf16, 1, 0, 0, 0, 31, 96, 32,
         32, 1, "f16"},
        {sinter_f4_e2m1, sinter_f8_e4m3, sinter_data_type_undef, sinter_f32, 1, 0, 0, 0, 40, 96, 16,
         16, 1, "int8"},
        {sinter_u8, sinter_f16, sinter_u8, sinter_f32, 1, 0, 0, 0, 64, 66, 66, 66, 16, "tf32"},
        {sinter_s8, sinter_f32, sinter_data_type_undef, sinter_f32, 0, 0, 0, 0, 33, 33, 33, 33, 33,
         "int8"},
        {sinter_u4, sinter_f16, sinter_u4, sinter_f32, 1, 0, 0, 0, 24, 64, 32, 64, 4, "int8"},
        {sinter_s8, sinter_f32, sinter_data_type_undef, sinter_f32, 1, 0, 0, 0, 320, 128, 64, 64,
         64, "strict"},
        {sinter_s8, sinter_f32, sinter_s8, sinter_f32, 0, 0, 0, 0, 320, 96, 32, 96, 16, "int8"},
        {sinter_s4, sinter_e8m0, sinter_data_type_undef, sinter_bf16, 1, 0, 1, 0, 96, 96, 32, 32,
         32, "any"},
        {sinter_u4, sinter_bf16, sinter_bf16, sinter_f32, 0, 1, 0, 0, 48, 64, 16, 16, 2, "strict"},
        {sinter_u4, sinter_f16, sinter_u4, sinter_f32, 1, 0, 0, 0, 40, 64, 32, 64, 40, "int8"},
        {sinter_u8, sinter_f16, sinter_u8, sinter_f32, 1, 0, 0, 0, 40, 64, 64, 32, 20, "strict"},
        {sinter_f8_e4m3, sinter_e8m0, sinter_data_type_undef, sinter_f32, 1, 0, 0, 0, 40, 96, 32,
         32, 1, "strict"},
        {sinter_f8_e4m3, sinter_f32, sinter_data_type_undef, sinter_f16, 0, 0, 1, 0, 64, 64, 64, 64,
         32, "int8"},
        {sinter_f8_e5m2, sinter_f16, sinter_data_type_undef, sinter_bf16, 1, 0, 0, 0, 33, 96, 16,
         16, 1, "bf16"},
        {sinter_f8_e5m2, sinter_f32, sinter_data_type_undef, sinter_f32, 0, 0, 0, 0, 24, 100, 100,
         100, 1, "any"},
        {sinter_f6_e2m3, sinter_e8m0, sinter_data_type_undef, sinter_f32, 1, 0, 0, 0, 40, 96, 32,
         32, 1, "strict"},
        {sinter_f6_e3m2, sinter_f16, sinter_data_type_undef, sinter_bf16, 0, 0, 1, 0, 33, 96, 16,
         16, 1, "int8"},
        {sinter_f6_e3m2, sinter_f32, sinter_data_type_undef, sinter_f16, 0, 0, 0, 0, 24, 100, 100,
         100, 1, "any"},
        {sinter_f32, sinter_data_type_undef, sinter_data_type_undef, sinter_f32, 1, 0, 0, 0, 33,
         100, 100, 100, 1, "strict"},
        {sinter_f16, sinter_data_type_undef, sinter_data_type_undef, sinter_f32, 0, 0, 1, 0, 48, 64,
         64, 64, 1, "strict"},
        {sinter_bf16, sinter_data_type_undef, sinter_data_type_undef, sinter_bf16, 1, 0, 2, 0, 17,
         33, 33, 33, 1, "any"},
        {sinter_f16, sinter_data_type_undef, sinter_data_type_undef, sinter_f16, 1, 0, 0, 0, 7,
         1500, 1500, 1500, 1, "int8"},
    };
    for (size_t i = 0; i < sizeof products / sizeof *products; i++) {
        check_rows(&products[i]);
        check_report(&products[i]);
    }
}

/* ---- other graphs ---------------------------------------------------------------------------- */

static const product_t usual = {sinter_s4, sinter_f16, sinter_s4, sinter_f32, 1,  0, 0,
                                0,         32,         64,        32,         32, 1, "any"};

/* Scales of one dim, and an operand without elements. */
static void test_other_shapes(void)
{
    static const struct {
        const char *ops;
        int transposed;
    } graphs[] = {
        {OP(1, DynamicDequantize,
            ATTR("qtype", "string", "\"per_channel\"") ", " ATTR("axis", "s64", "0"),
            T(0, s8, "19, 40") ", " T(1, f32, "19"),
            T(3, f32, "19, 40")) ", " OP(2, MatMul, ATTR("transpose_b", "bool", "1"),
                                         T(4, f32, "3, 40") ", " T(3, f32, "19, 40"),
                                         T(5, f32, "3, 19")),
         1},
        {OP(1, DynamicDequantize,
            ATTR("qtype", "string", "\"per_channel\"") ", " ATTR("axis", "s64", "1"),
            T(0, u8, "64, 19") ", " T(1, f16, "19") ", " T(2, u8, "19"),
            T(3, f32, "64, 19")) ", " OP(2, MatMul, "", T(4, f32, "3, 64") ", " T(3, f32, "64, 19"),
                                         T(5, f32, "3, 19")),
         0},
        {OP(1, DynamicDequantize, ATTR("qtype", "string", "\"per_tensor\""),
            T(0, s4, "64, 20") ", " T(1, bf16, "1"),
            T(3, f32, "64, 20")) ", " OP(2, MatMul, "", T(4, f32, "2, 64") ", " T(3, f32, "64, 20"),
                                         T(5, f32, "2, 20")),
         0},
        {OP(1, DynamicDequantize, ATTR("qtype", "string", "\"per_group\""),
            T(0, s4, "64, 0") ", " T(1, bf16, "2, 0"),
            T(3, f32, "64, 0")) ", " OP(2, MatMul, "", T(4, f32, "2, 64") ", " T(3, f32, "64, 0"),
                                        T(5, f32, "2, 0")),
         0},
    };
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        model_t model, given;
        e2e_ports_t ports;
        packed_t packed;
        sinter_compiled_partition_t *compiled = NULL;
        load_text(&model, graphs[i].ops);
        load_text(&given, graphs[i].ops);
        tile_model(&given, graphs[i].transposed, 7);
        sinter_partition_t *partition = e2e_partition(&given, NULL);
        e2e_ports_make(&ports, &model, NULL, 1, 0);
        pack_ports(&ports, graphs[i].transposed, &packed);
        const sinter_status_t status =
            sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled);
        if (CHECK(status == sinter_success, "graph %zu: compile", i)) {
            CHECK_THAT(!sinter_compiled_partition_execute(compiled, stream, ports.n_in,
                                                          (const sinter_tensor_t *const *)packed.in,
                                                          ports.n_out, ports.out, NULL, 0) &&
                       e2e_compare(&model, &ports, sinter_fpmath_mode_strict, 0) == 0);
        }
        sinter_compiled_partition_destroy(&compiled);
        sinter_partition_destroy(&partition);
        free_packed(&ports, &packed);
        e2e_ports_free(&ports);
        model_free(&model);
        model_free(&given);
    }
}

/* Only a Reorder makes such a layout: no other op does, as an output or between ops. */
static void test_outputs(void)
{
    static const char *const graphs[] = {
        OP(1, ReLU, "", T(1, f32, "32, 16"), T(0, f32, "32, 16")),
        OP(1, ReLU, "", T(1, f32, "32, 16"),
           T(0, f32, "32, 16")) ", " OP(2, Square, "", T(0, f32, "32, 16"), T(2, f32, "32, 16")),
        OP(1, DynamicDequantize, ATTR("qtype", "string", "\"per_group\""),
           T(1, s8, "32, 16") ", " T(2, f32, "1, 16"),
           T(0, f32, "32, 16")) ", " OP(2, MatMul, "", T(3, f32, "8, 32") ", " T(0, f32, "32, 16"),
                                        T(4, f32, "8, 16")),
        OP(1, DynamicQuantize, "", T(1, f32, "32, 16") ", " T(2, f32, "1"), T(0, s8, "32, 16")),
        OP(1, MatMul, "", T(3, f32, "8, 32") ", " T(1, f32, "32, 16"), T(0, f32, "8, 16")),
    };
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        for (int both = 0; both < 2; both++) {
            model_t model;
            sinter_graph_t *graph = NULL;
            gr_error_t err = {{0}, 0};
            load_text(&model, graphs[i]);
            for (size_t u = 0; u < model.n_uses; u++) {
                sinter_logical_tensor_t *lt = model_at(&model, &model.uses[u]);
                if (lt->id == 0 && model.uses[u].output) {
                    *lt = tiled(*lt, sinter_weights_values, 0);
                } else if (lt->id == 0 && both) {
                    *lt = tiled(*lt, sinter_weights_values, 0);
                }
            }
            const int failed = model_build(&model, NULL, &graph, &err);
            CHECK(failed && strstr(err.text, "only a Reorder makes an opaque layout") != NULL,
                  "graph %zu: %s", i, failed ? err.text : "is taken");
            sinter_graph_destroy(&graph);
            model_free(&model);
        }
    }
}

/* The producer says nothing of the layout, a reader does. */
static void test_between(void)
{
    static const char text[] = OP(1, ReLU, "", T(1, f32, "32, 16"), T(0, f32, "32, 16")) ", " OP(
        2, Square, "", T(0, f32, "32, 16"), T(2, f32, "32, 16"));
    model_t model;
    for (int strided = 0; strided < 2; strided++) {
        sinter_graph_t *graph = NULL;
        gr_error_t err = {{0}, 0};
        load_text(&model, text);
        model.ops[0].outputs[0].layout_type =
            strided ? sinter_layout_type_strided : sinter_layout_type_any;
        model.ops[1].inputs[0] = tiled(model.ops[1].inputs[0], sinter_weights_values, 0);
        const char *words = strided ? "tensor 0 was given before with different layout"
                                    : "tensor 0: only a Reorder makes an opaque layout";
        const int failed = model_build(&model, NULL, &graph, &err);
        CHECK(failed && strstr(err.text, words) != NULL, "%s", failed ? err.text : "is taken");
        sinter_graph_destroy(&graph);
        model_free(&model);
    }
}

/* A layout that only compile gives, and what compile does not take. */
static void test_compile(void)
{
    model_t model;
    load(&usual, 4, &model);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    sinter_compiled_partition_t *compiled = NULL;
    sinter_logical_tensor_t in[3];
    for (int i = 0; i < 3; i++) {
        in[i] =
            tiled(model.ops[0].inputs[i], i == 0 ? sinter_weights_codes : sinter_weights_values, 1);
    }
    CHECK_THAT(!sinter_partition_compile(partition, NULL, 3, in, 0, NULL, &compiled));
    sinter_compiled_partition_destroy(&compiled);
    const sinter_logical_tensor_t out = tiled(model.ops[1].outputs[0], sinter_weights_values, 0);
    FAILS(sinter_partition_compile(partition, NULL, 3, in, 1, &out, &compiled), unimplemented,
          "only a Reorder makes an opaque layout");
    in[0].layout_id = 77;
    FAILS(sinter_partition_compile(partition, NULL, 3, in, 0, NULL, &compiled), invalid_arguments,
          "77 is no id of an opaque layout");
    CHECK_THAT(compiled == NULL);
    sinter_partition_destroy(&partition);
    model_free(&model);
}

/* ---- what is bound --------------------------------------------------------------------------- */

static void expect_execute(const programs_t *programs, e2e_ports_t *ports, const packed_t *packed,
                           size_t at, sinter_tensor_t *instead, const char *words)
{
    sinter_tensor_t *in[E2E_MAX_PORTS];
    memcpy(in, packed->in, sizeof in);
    in[at] = instead;
    FAILS(sinter_compiled_partition_execute(programs->part, stream, ports->n_in,
                                            (const sinter_tensor_t *const *)in, ports->n_out,
                                            ports->out, NULL, 0),
          invalid_arguments, words);
}

static void test_binding(void)
{
    static const char strides[] = "has another layout than it was compiled for: strides",
                      opaque[] = "has another layout than it was compiled for: an opaque one";
    model_t model;
    e2e_ports_t ports;
    packed_t packed, strided;
    programs_t tiles = {NULL, NULL}, plain = {NULL, NULL};
    gr_error_t err = {{0}, 0};
    sinter_graph_t *graph = NULL;
    sinter_tensor_t *other = NULL;
    product_t bytes = usual;
    bytes.codes = sinter_s8;
    bytes.zp = sinter_s8;
    open_programs(&bytes, 4, &tiles);
    load(&bytes, 4, &model);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    CHECK_THAT(!sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &plain.part) &&
               !model_build(&model, NULL, &graph, &err) &&
               !sinter_graph_compile(graph, NULL, 0, NULL, &plain.whole));
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    e2e_ports_make(&ports, &model, NULL, 1, 0);
    pack_ports(&ports, bytes.transposed, &packed);
    memset(&strided, 0, sizeof strided);
    memcpy(strided.in, ports.in, sizeof ports.in);
    for (size_t i = 0; i < ports.n_in; i++) {
        if (ports.in_lt[i].id == A) {
            continue;
        }
        expect_execute(&tiles, &ports, &packed, i, ports.in[i], opaque);
        expect_execute(&plain, &ports, &strided, i, packed.in[i], strides);
        sinter_logical_tensor_t lt = ports.in_lt[i];
        lt = tiled(lt, lt.id == CODES ? sinter_weights_codes : sinter_weights_values, 0);
        void *room = take(bytes_of(&lt));
        CHECK_THAT(!sinter_tensor_create(&other, NULL, &lt, room, bytes_of(&lt)));
        expect_execute(&tiles, &ports, &packed, i, other, opaque);
        sinter_tensor_destroy(&other);
        free(room);
    }
    /* A whole graph takes data, whose layout it cannot see, but asks for all of its bytes. */
    void *data = NULL;
    sinter_logical_tensor_t codes;
    CHECK_THAT(ports.in_lt[0].id == CODES && !sinter_tensor_get_data(packed.in[0], &data) &&
               !sinter_tensor_get_logical_tensor(packed.in[0], &codes));
    FAILS(sinter_compiled_graph_bind(tiles.whole, CODES, 0, NULL, NULL, data, bytes_of(&codes) - 1),
          invalid_arguments, "2047 bytes given, 2048 needed");
    FAILS(sinter_compiled_graph_bind(tiles.whole, CODES, 2, (int64_t[]){64, 32}, NULL, data,
                                     bytes_of(&codes)),
          invalid_arguments, "tensor 0: dim 0 is 64, compiled for 32");
    CHECK_THAT(!sinter_compiled_graph_query_logical_tensor(tiles.whole, CODES, &codes) &&
               codes.layout_type == sinter_layout_type_opaque && bytes_of(&codes) == 2048);
    free_packed(&ports, &packed);
    e2e_ports_free(&ports);
    model_free(&model);
    close_programs(&tiles);
    close_programs(&plain);
}

/* A scale for all weights is a tensor of one element, and a strip in tiles. */
static void test_one_scale(void)
{
    product_t p = usual;
    programs_t programs = {NULL, NULL};
    const uint16_t one = 0x3c00;
    p.zp = sinter_data_type_undef;
    p.group = p.k;
    p.across = p.n;
    check_rows(&p);
    open_programs(&p, 4, &programs);
    FAILS(sinter_compiled_graph_bind_scalar(programs.whole, SCALES, &one), invalid_arguments,
          "tensor 1");
    close_programs(&programs);
}

/* An output must not lie in the padding of weights. */
static void test_overlap(void)
{
    product_t p = usual;
    programs_t programs = {NULL, NULL};
    model_t model;
    e2e_ports_t ports;
    packed_t packed;
    p.codes = sinter_s8;
    p.zp = sinter_data_type_undef;
    p.n = 17;
    p.k = 33;
    p.group = 33;
    open_programs(&p, 1, &programs);
    load(&p, 1, &model);
    e2e_ports_make(&ports, &model, NULL, 1, 0);
    pack_ports(&ports, p.transposed, &packed);
    sinter_logical_tensor_t codes;
    CHECK_THAT(ports.in_lt[0].id == CODES &&
               !sinter_tensor_get_logical_tensor(packed.in[0], &codes));
    const size_t out_bytes = bytes_of(&ports.out_lt[0]);
    CHECK_THAT(!sinter_tensor_set_data(ports.out[0], packed.data[0] + bytes_of(&codes) - out_bytes,
                                       out_bytes));
    FAILS(sinter_compiled_partition_execute(programs.part, stream, ports.n_in,
                                            (const sinter_tensor_t *const *)packed.in, ports.n_out,
                                            ports.out, NULL, 0),
          invalid_arguments, "output tensor 5 overlaps input tensor 0");
    CHECK_THAT(!sinter_tensor_set_data(ports.out[0], ports.out_data[0], out_bytes));
    for (size_t i = 0; i < ports.n_in; i++) {
        void *data = NULL;
        sinter_logical_tensor_t lt;
        CHECK_THAT(
            !sinter_tensor_get_data(packed.in[i], &data) &&
            !sinter_tensor_get_logical_tensor(packed.in[i], &lt) &&
            !sinter_compiled_graph_bind(programs.whole, lt.id, 0, NULL, NULL, data, bytes_of(&lt)));
    }
    CHECK_THAT(!sinter_compiled_graph_bind(programs.whole, OUT, 0, NULL, NULL,
                                           packed.data[0] + bytes_of(&codes) - out_bytes,
                                           out_bytes));
    FAILS(sinter_compiled_graph_execute(programs.whole, stream), invalid_arguments, "overlap");
    free_packed(&ports, &packed);
    e2e_ports_free(&ports);
    model_free(&model);
    close_programs(&programs);
}

int main(void)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = 2, .all_threads = 1};
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    test_packing();
    test_one_dim();
    test_matrices();
    test_blocks();
    test_heads();
    test_empty();
    test_types();
    test_shapes();
    test_ids();
    test_kept();
    test_numbers();
    test_sizes();
    test_arguments();
    test_equal();
    test_tensors();
    test_reorder_errors();
    test_products();
    test_other_shapes();
    test_outputs();
    test_between();
    test_compile();
    test_binding();
    test_one_scale();
    test_overlap();
    sinter_stream_destroy(&stream);
    return check_finish();
}
