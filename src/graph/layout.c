#include "graph/layout.h"

#include <inttypes.h>
#include <stdio.h>

#include "base/alloc.h"
#include "base/status.h"
#include "numeric/tiles_bulk.h"

enum { OF_HEADS = 0x80 }; /* tokens are the dim before the last two */

/* Each has two ids, in this order from 1 on: with transpose_b, and without. Those of heads have one
 * of them: tokens are the columns, but of codes of V. */
static const uint8_t parts[] = {
    TILED_CODES,
    TILED_VALUES,
    TILED_CODES + 6,
    TILED_CODES + 1,
    TILED_CODES + 2,
    TILED_CODES + 3,
    TILED_CODES + 4,
    TILED_CODES + 5,
    TILED_VALUES + 1,
    TILED_VALUES + 2,
    TILED_VALUES + 3,
    TILED_VALUES + 4,
    TILED_VALUES + 5,
    TILED_VALUES + 6,
    TILED_NUMBERS,
    TILED_BLOCKS,
    OF_HEADS | TILED_CODES,
    OF_HEADS | TILED_BLOCKS,
    OF_HEADS | TILED_VALUES,
};
enum { PARTS = sizeof parts / sizeof *parts };

static tiled_t part_of(uint64_t id)
{
    return (tiled_t)(parts[(id - 1) / 2] & ~OF_HEADS);
}

static bool is_of_heads(uint64_t id)
{
    return (parts[(id - 1) / 2] & OF_HEADS) != 0;
}

static bool is_transposed(uint64_t id)
{
    return id % 2 == 1;
}

static uint64_t id_of(int part, bool transposed)
{
    uint64_t i = 0;
    while (parts[i] != part) {
        i++;
    }
    return 2 * i + (transposed ? 1 : 2);
}

uint64_t layout_id(tiled_t what, bool transposed)
{
    return id_of((int)what, transposed);
}

uint64_t layout_id_of_heads(tiled_t what)
{
    return id_of(OF_HEADS | (int)what, what != TILED_BLOCKS);
}

layout_t layout_of(const sinter_logical_tensor_t *lt)
{
    const bool transposed = is_transposed(lt->layout_id), heads = is_of_heads(lt->layout_id);
    const int last = lt->ndims - 1, before = heads ? last - 2 : last - 1;
    layout_t l = {.what = part_of(lt->layout_id),
                  .across = transposed && last > 0 ? before : last,
                  .along = last < 1     ? -1
                           : transposed ? last
                                        : before};
    l.N = lt->dims[l.across];
    l.K = l.along < 0 ? 1 : lt->dims[l.along];
    int64_t *tokens = heads && transposed ? &l.N : &l.K;
    l.blocks =
        (heads || l.what == TILED_BLOCKS) && *tokens > TILES_BLOCK ? *tokens / TILES_BLOCK : 1;
    *tokens /= l.blocks;
    l.matrices = l.blocks;
    l.heads = heads ? lt->dims[last - 1] : 0;
    for (int d = 0; d < (heads ? last : last - 1); d++) { /* too many: layout_bytes says so */
        const int64_t n = heads && d == before ? 1 : lt->dims[d];
        l.matrices = mul_i64(l.matrices, n, &l.matrices) ? l.matrices : INT64_MAX;
    }
    return l;
}

int64_t layout_matrix(const sinter_logical_tensor_t *lt, const layout_t *l, int64_t m)
{
    if (l->heads > 0) {
        const int last = lt->ndims - 1;
        return m / l->heads * TILES_BLOCK * lt->strides[last - 2] +
               m % l->heads * lt->strides[last - 1];
    }
    int64_t at = l->blocks > 1 ? m % l->blocks * l->K * lt->strides[l->along] : 0;
    m /= l->blocks;
    for (int d = lt->ndims - 3; d >= 0 && l->matrices > l->blocks; d--) {
        at += m % lt->dims[d] * lt->strides[d];
        m /= lt->dims[d];
    }
    return at;
}

/* Of one matrix. */
static bool bytes_of(const layout_t *l, sinter_data_type_t type, int64_t *bytes)
{
    return tiles_are_values(l->what) ? tiles_of_values(l->what, type, l->K, l->N, bytes)
                                     : tiles_of_codes(tiles_bits(l->what, type), l->K, l->N, bytes);
}

bool layout_bytes(const sinter_logical_tensor_t *lt, int64_t *bytes)
{
    const layout_t l = layout_of(lt);
    return bytes_of(&l, lt->data_type, bytes) && mul_i64(*bytes, l.matrices, bytes);
}

bool layout_may_not_fit(const sinter_logical_tensor_t *lt)
{
    return tiles_kept(layout_of(lt).what) != 0;
}

static bool suits(tiled_t what, sinter_data_type_t type)
{
    const dtype_traits_t *t = dtype_traits(type);
    const bool number = t->cls == DTYPE_INT && t->bits <= 8;
    return what == TILED_NUMBERS     ? type == sinter_s8
           : tiles_kept(what) > 0    ? number && t->bits == 8
           : tiles_take_floats(type) ? true
           : tiles_are_values(what)
               ? number || type == sinter_e8m0 || type == sinter_f8_e4m3
               : (number && t->bits >= 4) || type == sinter_f4_e2m1 || type == sinter_f6_e3m2 ||
                     type == sinter_f6_e2m3 || type == sinter_f8_e5m2 || type == sinter_f8_e4m3;
}

/* [.., tokens, heads, head], of which the tokens may be unknown. */
static sinter_status_t verify_heads(const sinter_logical_tensor_t *lt, const char *where,
                                    const char *part)
{
    const int tokens = lt->ndims - 3;
    int64_t bytes;
    bool one = lt->ndims >= 3;
    for (int d = 0; one && d < lt->ndims; d++) {
        one = d < tokens ? lt->dims[d] == 1 : d == tokens || lt->dims[d] > 0;
    }
    if (!one) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": an opaque layout of %s of heads takes tokens, "
                       "heads, and the elements of one; the last two are known",
                       where, lt->id, part);
    }
    const int64_t n = lt->dims[tokens];
    if (n != SINTER_UNKNOWN_DIM && n > TILES_BLOCK && n % TILES_BLOCK != 0) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": an opaque layout of %s of heads takes up to %d "
                       "tokens or a multiple of them",
                       where, lt->id, part, TILES_BLOCK);
    }
    if (n != SINTER_UNKNOWN_DIM && !layout_bytes(lt, &bytes)) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": the bytes of the opaque layout overflow", where,
                       lt->id);
    }
    return sinter_success;
}

sinter_status_t layout_verify(const sinter_logical_tensor_t *lt, const char *where)
{
    int64_t bytes;
    if (lt->layout_id < 1 || lt->layout_id > 2 * PARTS ||
        (is_of_heads(lt->layout_id) &&
         lt->layout_id != layout_id_of_heads(part_of(lt->layout_id)))) {
        return sg_fail(sinter_invalid_arguments,
                       "%s: tensor %" PRIu64 ": %" PRIu64 " is no id of an opaque layout", where,
                       lt->id, lt->layout_id);
    }
    if (lt->property == sinter_tensor_property_host_scalar) {
        return sg_fail(sinter_invalid_arguments,
                       "%s: tensor %" PRIu64 ": a host scalar has no opaque layout", where, lt->id);
    }
    const tiled_t what = part_of(lt->layout_id);
    const char *part = what == TILED_NUMBERS    ? "numbers of IQ4_NL"
                       : tiles_are_values(what) ? "scales or zero points"
                                                : "codes";
    if (!suits(what, lt->data_type)) {
        char bits[32] = "";
        if (tiles_kept(what) > 0 && what != TILED_NUMBERS) {
            snprintf(bits, sizeof bits, " of %d bits", tiles_kept(what));
        }
        return sg_fail(sinter_invalid_data_type,
                       "%s: tensor %" PRIu64 ": an opaque layout of %s%s does not take %s", where,
                       lt->id, part, bits, dtype_traits(lt->data_type)->name);
    }
    if (is_of_heads(lt->layout_id)) {
        return verify_heads(lt, where, part);
    }
    bool one = lt->ndims >= (tiles_are_values(what) ? 1 : 2);
    const bool whole = lt->ndims > 2 && lt->dims[layout_of(lt).across] % TILES_COLUMNS == 0;
    const layout_t l = lt->ndims > 1 ? layout_of(lt) : (layout_t){.blocks = 1};
    for (int d = 0; one && d < lt->ndims; d++) {
        one = lt->dims[d] != SINTER_UNKNOWN_DIM &&
              (d >= lt->ndims - 2 || lt->dims[d] == 1 || (whole && lt->dims[d] > 0));
    }
    if (!one) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": an opaque layout of %s takes one matrix of known "
                       "dims, or several with a multiple of 16 columns each",
                       where, lt->id, part);
    }
    if (what == TILED_BLOCKS && lt->dims[l.along] > TILES_BLOCK &&
        (lt->dims[l.along] % TILES_BLOCK != 0 || lt->dims[l.across] % TILES_COLUMNS != 0)) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": an opaque layout of codes in blocks takes up to %d "
                       "tokens or a multiple of them, and heads of a multiple of %d elements",
                       where, lt->id, TILES_BLOCK, TILES_COLUMNS);
    }
    if (!layout_bytes(lt, &bytes)) {
        return sg_fail(sinter_invalid_shape,
                       "%s: tensor %" PRIu64 ": the bytes of the opaque layout overflow", where,
                       lt->id);
    }
    return sinter_success;
}

/* A strided tensor as a matrix of K by N. */
static groups_t matrix_of(const layout_t *l, const sinter_logical_tensor_t *lt, const void *data)
{
    return (groups_t){.data = data,
                      .type = dtype_traits(lt->data_type),
                      .dtype = lt->data_type,
                      .row = {l->along < 0 ? 0 : lt->strides[l->along], 1},
                      .column = {lt->strides[l->across], 1}};
}

int layout_tokens(const layout_t *l)
{
    return l->what == TILED_BLOCKS ? l->along : l->across;
}

/* Columns of the strip that begins with column c. */
static int64_t columns_from(const layout_t *l, int64_t c)
{
    return l->N - c < TILES_COLUMNS ? l->N - c : TILES_COLUMNS;
}

/* The first n columns or, in a block, elements of K. Whole strips, or whole tiles of each strip,
 * are packed as they are; the rest shares them with others, and is put there one by one. */
static void pack_first(features_t features, const groups_t *matrix, const layout_t *l, int64_t n,
                       int64_t bytes, unsigned char *to)
{
    const bool in_block = l->what == TILED_BLOCKS;
    const int64_t whole = n - n % (in_block ? TILES_K : TILES_COLUMNS),
                  strip = bytes / tiles_strips(l->N);
    groups_t columns = *matrix;
    if (tiles_are_values(l->what)) {
        (void)tiles_bulk_pack_values(features, matrix, l->what, l->K, whole, to);
    } else if (!in_block) {
        (void)tiles_bulk_pack_codes(features, matrix, l->what, l->K, whole, to);
    }
    for (int64_t c = 0; in_block && c < l->N; c += TILES_COLUMNS) {
        columns.first = codes_at(matrix, 0, c);
        (void)tiles_bulk_pack_codes(features, &columns, l->what, whole, columns_from(l, c),
                                    to + c / TILES_COLUMNS * strip);
    }
    for (int64_t t = whole; t < n; t++) {
        if (in_block) {
            tiles_put_row(matrix, t, l->K, l->N, t, to);
        } else {
            tiles_put_column(matrix, t, l->what, l->K, t, to);
        }
    }
}

/* The first n elements of K of a block: of each strip. */
static void unpack_of_block(features_t features, const unsigned char *place, const layout_t *l,
                            int64_t n, int64_t bytes, const groups_t *matrix)
{
    const int64_t strip = bytes / tiles_strips(l->N);
    groups_t columns = *matrix;
    for (int64_t c = 0; c < l->N; c += TILES_COLUMNS, place += strip) {
        columns.first = codes_at(matrix, 0, c);
        tiles_bulk_unpack_codes(features, place, l->what, n, columns_from(l, c), &columns);
    }
}

/* Tokens of a matrix. */
static int64_t most_tokens(const layout_t *l)
{
    return l->what == TILED_BLOCKS ? l->K : l->N;
}

/* How many of the tokens of matrix m the strided tensor has. */
static int64_t tokens_of(const layout_t *l, const sinter_logical_tensor_t *strided, int64_t m)
{
    const int64_t block = l->heads > 0 ? m / l->heads : m % l->blocks,
                  n = strided->dims[layout_tokens(l)] - block * most_tokens(l);
    return n < 0 ? 0 : n < most_tokens(l) ? n : most_tokens(l);
}

bool layout_pack(features_t features, const sinter_logical_tensor_t *from, const void *data,
                 const sinter_logical_tensor_t *to, void *to_data)
{
    const layout_t l = layout_of(to);
    groups_t matrix = matrix_of(&l, from, data);
    unsigned char *place = to_data;
    int64_t bytes = 0; /* layout_verify has checked that they do not overflow */
    bool fit = true;
    (void)bytes_of(&l, to->data_type, &bytes);
    for (int64_t m = 0; m < l.matrices; m++, place += bytes) {
        const int64_t n = tokens_of(&l, from, m);
        matrix.first = layout_matrix(from, &l, m);
        if (n < most_tokens(&l)) {
            pack_first(features, &matrix, &l, n, bytes, place);
            continue;
        }
        fit = (tiles_are_values(l.what)
                   ? tiles_bulk_pack_values(features, &matrix, l.what, l.K, l.N, place)
                   : tiles_bulk_pack_codes(features, &matrix, l.what, l.K, l.N, place)) &&
              fit;
    }
    return fit;
}

void layout_unpack(features_t features, const sinter_logical_tensor_t *from, const void *data,
                   const sinter_logical_tensor_t *to, void *to_data)
{
    const layout_t l = layout_of(from);
    groups_t matrix = matrix_of(&l, to, to_data);
    const unsigned char *place = data;
    int64_t bytes = 0;
    (void)bytes_of(&l, from->data_type, &bytes);
    for (int64_t m = 0; m < l.matrices; m++, place += bytes) {
        const int64_t n = tokens_of(&l, to, m);
        matrix.first = layout_matrix(to, &l, m);
        if (l.what == TILED_BLOCKS && n < l.K) {
            unpack_of_block(features, place, &l, n, bytes, &matrix);
        } else if (!tiles_are_values(l.what)) {
            tiles_bulk_unpack_codes(features, place, l.what, l.K, l.what == TILED_BLOCKS ? l.N : n,
                                    &matrix);
        } else {
            tiles_unpack_values(place, l.what, l.K, n, &matrix);
        }
    }
}
