#include "numeric/tiles_bulk.h"

#include <string.h>

#include "numeric/quant_rows.h"

/* NULL: the functions of numeric/tiles.h are all that there is. */
static const tiles_vectors_t *vectors(features_t features)
{
#if defined(__x86_64__)
    if (has_features(features, NEEDS_AVX2)) {
        return &tiles_avx2;
    }
#endif
    (void)features;
    return NULL;
}

/* The same matrix from this row and column on. */
static groups_t groups_from(const groups_t *g, int64_t row, int64_t column)
{
    groups_t at = *g;
    at.first = codes_at(g, row, column);
    return at;
}

/* ---- codes ----------------------------------------------------------------------------------- */

static uint8_t flip_of(sinter_data_type_t type)
{
    return (uint8_t)(tiles_flip(type) * 0x11);
}

/* Whether codes whose columns, or rows, are so far apart all begin a byte there. */
static bool begin_bytes(const groups_t *codes, int64_t stride)
{
    const int elems = codes->type->block_elems;
    return codes->first % elems == 0 && stride % elems == 0;
}

/* How codes become tiles. */
typedef struct form {
    const tiles_vectors_t *v;
    int bits, planes; /* of a code of the source; of it in planes of a tile, 0: no planes */
    uint8_t flip, zero;
} form_t;

/* Tiles are made in a buffer that stays in the cache, and go past the caches from there. Tiles of
 * planes are made from tiles of 8 bits, a cache line of each column or row at a time. */
enum { BUFFER = 4096, FLOATS_BUFFER = 16384, WHOLE = TILES_COLUMNS * TILES_K };

/* One or TILES_PAIR tiles of 8 bits from codes of 6 or 8 bits: of a strip, along K, or one of each
 * of TILES_PAIR strips. */
static void wide_tiles(const form_t *f, bool along_k, const unsigned char *from, int64_t apart,
                       int tiles, unsigned char *to)
{
    unsigned char bytes[TILES_PAIR * WHOLE];
    if (f->bits == 8) {
        if (along_k) {
            f->v->dwords_along_k(from, apart, tiles, to);
        } else {
            f->v->bytes_along_n(from, apart, TILES_PAIR, to, WHOLE);
        }
        return;
    }
    if (!along_k) {
        f->v->widen_6(from, apart, TILES_K, bytes);
        f->v->bytes_along_n(bytes, TILES_PAIR * TILES_COLUMNS, TILES_PAIR, to, WHOLE);
        return;
    }
    for (int i = 0; i < tiles; i++) {
        f->v->widen_6(from + i * TILES_K * 6 / 8, apart, TILES_COLUMNS, bytes);
        f->v->dwords_along_k(bytes, TILES_K, 1, to + i * WHOLE);
    }
}

/* n tiles of planes, one behind the other: of a strip, along K, or one of each of n strips. False:
 * some codes do not fit their bits. */
static bool tiles_of_planes(const form_t *f, bool along_k, const unsigned char *from, int64_t apart,
                            int64_t n, unsigned char *to)
{
    unsigned char pair[TILES_PAIR * WHOLE];
    bool fit = true;
    for (int64_t i = 0; i < n; i++, to += tiles_bytes(f->planes)) {
        const int64_t which = i % TILES_PAIR, codes = i * (along_k ? TILES_K : TILES_COLUMNS);
        if (which == 0) {
            wide_tiles(f, along_k, from + codes * f->bits / 8, apart, n - i > 1 ? TILES_PAIR : 1,
                       pair);
        }
        fit = f->v->keep(pair + which * WHOLE, f->planes, f->zero, to) && fit;
    }
    return fit;
}

/* n tiles of a strip. False: as of tiles_of_planes. */
static bool tiles_along_k(const form_t *f, const unsigned char *from, int64_t apart, int64_t n,
                          unsigned char *to)
{
    if (f->planes > 0) {
        return tiles_of_planes(f, true, from, apart, n, to);
    }
    if (f->bits == 4) {
        f->v->nibbles_along_k(from, apart, n, f->flip, to);
    } else {
        f->v->dwords_along_k(from, apart, n * f->bits / 8, to);
    }
    return true;
}

/* One tile of each of some strips, one behind the other. The same. */
static bool tiles_along_n(const form_t *f, const unsigned char *from, int64_t apart, int64_t strips,
                          unsigned char *to)
{
    if (f->planes > 0) {
        return tiles_of_planes(f, false, from, apart, strips, to);
    }
    if (f->bits == 4) {
        f->v->nibbles_along_n(from, apart, strips, f->flip, to, tiles_bytes(4));
    } else if (f->bits == 32) {
        f->v->floats_along_n(from, apart, strips, to, tiles_bytes(32));
    } else if (f->bits == 16) {
        f->v->words_along_n(from, apart, strips, to, tiles_bytes(16));
    } else {
        f->v->bytes_along_n(from, apart, strips, to, tiles_bytes(8));
    }
    return true;
}

bool tiles_bulk_pack_codes(features_t features, const groups_t *from, tiled_t as, int64_t K,
                           int64_t N, unsigned char *to)
{
    const form_t f = {.v = vectors(features),
                      .bits = from->type->bits,
                      .planes = from->type->bits == 6 ? 6 : tiles_kept(as),
                      .flip = flip_of(from->dtype),
                      .zero = (uint8_t)tiles_zero(tiles_kept(as), from->dtype)};
    const quant_rows_t *rows = quant_rows(features);
    const int bytes = tiles_bytes(tiles_bits(as, from->dtype));
    const int64_t tiles = K / TILES_K, strip = tiles_along(K) * bytes;
    const bool along_k = from->row.stride == 1 && begin_bytes(from, from->column.stride),
               along_n =
                   !along_k && from->column.stride == 1 && begin_bytes(from, from->row.stride);
    const int64_t group = along_k || f.bits > 8 ? 1
                          : f.bits == 4         ? 2 * TILES_PAIR
                                                : TILES_PAIR,
                  strips = N / TILES_COLUMNS / group * group;
    if (f.v == NULL || f.bits < 4 || f.planes == TILES_NUMBER || (!along_k && !along_n) ||
        strips == 0 || tiles == 0) {
        return tiles_pack_codes(from, as, K, N, to);
    }
    const int64_t apart = (along_k ? from->column.stride : from->row.stride) * f.bits / 8,
                  most = (f.bits > 8 ? FLOATS_BUFFER : BUFFER) / bytes / group * group;
    _Alignas(64) unsigned char buffer[FLOATS_BUFFER];
    bool fit = true;
    for (int64_t s = 0; along_k && s < strips; s++) {
        const unsigned char *columns = groups_byte(from, codes_at(from, 0, s * TILES_COLUMNS));
        for (int64_t t = 0; t < tiles; t += most) {
            const int64_t n = tiles - t < most ? tiles - t : most;
            fit = tiles_along_k(&f, columns + t * TILES_K * f.bits / 8, apart, n, buffer) && fit;
            rows->stream(to + s * strip + t * bytes, buffer, (size_t)(n * bytes));
        }
    }
    for (int64_t t = 0; along_n && t < tiles; t++) {
        const unsigned char *line = groups_byte(from, codes_at(from, t * TILES_K, 0));
        for (int64_t s = 0; s < strips; s += most) {
            const int64_t n = strips - s < most ? strips - s : most;
            fit = tiles_along_n(&f, line + s * TILES_COLUMNS * f.bits / 8, apart, n, buffer) && fit;
            for (int64_t i = 0; i < n; i++) {
                rows->stream(to + (s + i) * strip + t * bytes, buffer + i * bytes, (size_t)bytes);
            }
        }
    }
    rows->stream_end();
    for (int64_t s = 0; K % TILES_K != 0 && s < strips; s++) {
        const groups_t rest = groups_from(from, tiles * TILES_K, s * TILES_COLUMNS);
        fit = tiles_pack_codes(&rest, as, K % TILES_K, TILES_COLUMNS,
                               to + s * strip + tiles * bytes) &&
              fit;
    }
    const groups_t rest = groups_from(from, 0, strips * TILES_COLUMNS);
    fit = tiles_pack_codes(&rest, as, K, N - strips * TILES_COLUMNS, to + strips * strip) && fit;
    return fit;
}

void tiles_bulk_unpack_codes(features_t features, const unsigned char *from, tiled_t as, int64_t K,
                             int64_t N, const groups_t *to)
{
    enum { SOME = 16 }; /* strips whose rows are written together */
    const tiles_vectors_t *v = vectors(features);
    const int bits = to->type->bits, bytes = tiles_bytes(tiles_bits(as, to->dtype));
    const bool along_k = to->row.stride == 1 && begin_bytes(to, to->column.stride),
               along_n = !along_k && to->column.stride == 1 && bits > 8;
    const int64_t tiles = K / TILES_K, strips = N / TILES_COLUMNS, strip = tiles_along(K) * bytes,
                  apart = (along_k ? to->column.stride : to->row.stride) * bits / 8;
    if (v == NULL || (bits < 8 && bits != 4) || tiles_kept(as) != 0 || (!along_k && !along_n)) {
        tiles_unpack_codes(from, as, K, N, to);
        return;
    }
    for (int64_t t = 0; along_n && t < tiles; t++) {
        for (int64_t s = 0; s < strips; s += SOME) {
            unsigned char *first = groups_output(to, codes_at(to, t * TILES_K, s * TILES_COLUMNS));
            const unsigned char *tile = from + s * strip + t * bytes;
            const int64_t some = strips - s < SOME ? strips - s : SOME;
            if (bits == 16) {
                v->to_words_along_n(tile, strip, some, first, apart);
            } else {
                v->to_floats_along_n(tile, strip, some, first, apart);
            }
        }
    }
    for (int64_t s = 0; s < strips; s++, from += strip) {
        unsigned char *first = groups_output(to, codes_at(to, 0, s * TILES_COLUMNS));
        if (bits == 4) {
            v->to_nibbles_along_k(from, tiles, flip_of(to->dtype), first, apart);
        } else if (along_k) {
            v->to_bytes_along_k(from, tiles * bits / 8, first, apart);
        }
        const groups_t rest = groups_from(to, tiles * TILES_K, s * TILES_COLUMNS);
        tiles_unpack_codes(from + tiles * bytes, as, K % TILES_K, TILES_COLUMNS, &rest);
    }
    const groups_t rest = groups_from(to, 0, strips * TILES_COLUMNS);
    tiles_unpack_codes(from, as, K, N - strips * TILES_COLUMNS, &rest);
}

/* ---- values ---------------------------------------------------------------------------------- */

/* 16 values of so many bytes. The sizes are constants, so that each copy is a few vectors. */
static inline void copy_line(const unsigned char *from, int bytes, uint8_t flip, unsigned char *to)
{
    if (bytes == 4) {
        memcpy(to, from, 4 * TILES_COLUMNS);
    } else if (bytes == 2) {
        memcpy(to, from, 2 * TILES_COLUMNS);
    } else {
        for (int c = 0; c < TILES_COLUMNS; c++) {
            to[c] = from[c] ^ flip;
        }
    }
}

/* So many groups go by vectors at once. */
enum { GROUPS = 8 };

/* Some groups of some strips, whose values follow one another along N, in the buffer strip behind
 * strip. */
static void lines_along_n(const unsigned char *from, int64_t apart, int64_t groups, int64_t strips,
                          int bytes, uint8_t flip, unsigned char *to)
{
    const int line = TILES_COLUMNS * bytes;
    for (int64_t s = 0; s < strips; s++) {
        for (int64_t g = 0; g < groups; g++, to += line) {
            copy_line(from + g * apart + s * line, bytes, flip, to);
        }
    }
}

/* n times GROUPS groups of a strip, whose values follow one another along K. */
static void lines_along_k(const tiles_vectors_t *v, const unsigned char *from, int64_t apart,
                          int64_t n, int bytes, uint8_t flip, unsigned char *to)
{
    if (bytes == 4) {
        v->dwords_along_k(from, apart, n, to);
    } else if (bytes == 2) {
        v->words_along_k(from, apart, n, to);
    } else {
        v->bytes_along_k(from, apart, n, flip, to);
    }
}

bool tiles_bulk_pack_values(features_t features, const groups_t *from, tiled_t as, int64_t groups,
                            int64_t N, unsigned char *to)
{
    const tiles_vectors_t *v = vectors(features);
    const quant_rows_t *rows = quant_rows(features);
    const int bytes = from->type->bits / 8, line = TILES_COLUMNS * bytes;
    /* What is less 128 in a signed byte has the upper bit flipped. */
    const uint8_t flip = from->dtype == sinter_u8 ? 0x80 : 0;
    const int64_t strips = N / TILES_COLUMNS;
    const bool along_n = from->column.stride == 1, along_k = !along_n && from->row.stride == 1;
    if (v == NULL || bytes == 0 || tiles_kept(as) != 0 || (!along_k && !along_n)) {
        return tiles_pack_values(from, as, groups, N, to);
    }
    const int64_t apart = (along_k ? from->column.stride : from->row.stride) * bytes,
                  most = BUFFER / (GROUPS * line), whole = groups / GROUPS;
    _Alignas(64) unsigned char buffer[BUFFER];
    for (int64_t g = 0; along_n && g < groups; g += GROUPS) {
        const unsigned char *first = groups_byte(from, codes_at(from, g, 0));
        const int64_t some = groups - g < GROUPS ? groups - g : GROUPS;
        for (int64_t s = 0; s < strips; s += most) {
            const int64_t n = strips - s < most ? strips - s : most;
            lines_along_n(first + s * line, apart, some, n, bytes, flip, buffer);
            for (int64_t i = 0; i < n; i++) {
                rows->stream(to + ((s + i) * groups + g) * line, buffer + i * some * line,
                             (size_t)(some * line));
            }
        }
    }
    for (int64_t s = 0; along_k && s < strips; s++) {
        const unsigned char *first = groups_byte(from, codes_at(from, 0, s * TILES_COLUMNS));
        unsigned char *strip = to + s * groups * line;
        for (int64_t g = 0; g < whole; g += most) {
            const int64_t n = whole - g < most ? whole - g : most;
            lines_along_k(v, first + g * GROUPS * bytes, apart, n, bytes, flip, buffer);
            rows->stream(strip + g * GROUPS * line, buffer, (size_t)(n * GROUPS * line));
        }
        const groups_t rest = groups_from(from, whole * GROUPS, s * TILES_COLUMNS);
        (void)tiles_pack_values(&rest, as, groups % GROUPS, TILES_COLUMNS,
                                strip + whole * GROUPS * line);
    }
    rows->stream_end();
    const groups_t rest = groups_from(from, 0, strips * TILES_COLUMNS);
    return tiles_pack_values(&rest, as, groups, N - strips * TILES_COLUMNS,
                             to + strips * groups * line);
}
