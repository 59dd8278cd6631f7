/* Lists of cells from masks, walks over them, and the tokens that they name: see
 * attention_cells.h. */
#include "backend_xsmm/drivers/attention/attention_cells.h"

#include <string.h>

#include "base/fetch.h"

enum { LONG_RUN = 64 }; /* cells that are worth a step of their own, which copies nothing */

/* ---- binding --------------------------------------------------------------------------------- */

const char *cells_bind(const bound_t *mask, const int64_t *dims, int nd, features_t features,
                       cells_t *out)
{
    const int shift = nd - mask->ndims;
    int64_t number = 1;
    *out = (cells_t){.columns = dims[nd - 1], .features = features};
    out->mask = (groups_t){.data = mask->data,
                           .type = dtype_traits(mask->dtype),
                           .dtype = mask->dtype,
                           .row = {.group = 1},
                           .column = {.group = 1}};
    if (shift < 0 || mask->ndims < 1 || mask->dims[mask->ndims - 1] != dims[nd - 1] ||
        (mask->strides[mask->ndims - 1] != 1 && dims[nd - 1] > 1)) {
        return "the mask has one column, or its columns are not contiguous";
    }
    for (int d = mask->ndims - 2; d >= 0; d--) {
        const int at = d + shift;
        if (mask->dims[d] == 1) {
            continue;
        }
        if (mask->dims[d] != dims[at]) {
            return "the mask has other dims than the scores";
        }
        out->stride[at] = mask->strides[d];
        out->list[at] = number;
        if (!mul_i64(number, mask->dims[d], &number)) {
            return "the mask has too many rows";
        }
    }
    out->lists = number;
    out->words = (out->columns + CELLS_WORD - 1) / CELLS_WORD;
    if (out->columns == 0 || number == 0 || out->columns > INT32_MAX - CELLS_WORD ||
        number > INT32_MAX) {
        return "the mask has no elements, or too many";
    }
    out->on = true;
    return NULL;
}

size_t cells_bytes(const cells_t *c, int shares)
{
    return CELLS_ALIGN + scratch_round((size_t)c->lists * sizeof(cell_list_t)) +
           (size_t)(c->lists + shares) * (size_t)c->words * sizeof(uint64_t);
}

/* ---- scanning -------------------------------------------------------------------------------- */

/* Bit i is byte i, of 64 bytes of 0 or 1. */
static uint64_t bits_of(const uint8_t *is)
{
    uint64_t bits = 0;
    for (int i = 0; i < CELLS_WORD / 8; i++) {
        uint64_t x = 0;
        for (int k = 0; k < 8; k++) {
            x |= (uint64_t)is[i * 8 + k] << (8 * k);
        }
        bits |= (x * 0x0102040810204080u >> 56) << (8 * i);
    }
    return bits;
}

/* What a word of columns has. */
typedef struct word {
    uint64_t seen;
    bool terms;
} word_t;

/* Of types of 16 bits. */
static inline word_t look_16(const unsigned char *from, uint16_t minus_inf)
{
    uint16_t x[CELLS_WORD];
    uint8_t is[CELLS_WORD];
    unsigned other = 0;
    memcpy(x, from, sizeof x);
    for (int i = 0; i < CELLS_WORD; i++) {
        is[i] = x[i] != minus_inf;
        other |= x[i] != minus_inf ? x[i] & 0x7fffu : 0;
    }
    return (word_t){bits_of(is), other != 0};
}

static inline word_t look_32(const unsigned char *from)
{
    enum { MINUS_INF_TOP = 0xff80 };
    uint32_t x[CELLS_WORD], other = 0;
    uint8_t is[CELLS_WORD];
    memcpy(x, from, sizeof x);
    for (int i = 0; i < CELLS_WORD; i++) {
        const bool seen = x[i] != (uint32_t)MINUS_INF_TOP << 16;
        is[i] = seen;
        other |= seen ? x[i] & INT32_MAX : 0;
    }
    return (word_t){bits_of(is), other != 0};
}

/* The word of n <= 64 columns at `from`. */
static word_t look(const groups_t *mask, const unsigned char *from, int n)
{
    const size_t bytes = (size_t)mask->type->bits / 8;
    unsigned char some[CELLS_WORD * sizeof(float)];
    if (n < CELLS_WORD) {
        memset(some, 0, sizeof some);
        memcpy(some, from, (size_t)n * bytes);
        from = some;
    }
    word_t w = bytes == 4                   ? look_32(from)
               : mask->dtype == sinter_bf16 ? look_16(from, 0xff80)
                                            : look_16(from, 0xfc00);
    w.seen &= n < CELLS_WORD ? ((uint64_t)1 << n) - 1 : UINT64_MAX;
    return w;
}

static cell_list_t scan_row(const cells_t *c, const unsigned char *row, uint64_t *set)
{
    const int64_t bytes = c->mask.type->bits / 8;
    cell_list_t list = {.begin = (int32_t)c->columns};
    for (int64_t i = 0; i < c->words; i++) {
        const int64_t column = i * CELLS_WORD;
        const word_t w =
            look(&c->mask, row + column * bytes, (int)at_most(c->columns - column, CELLS_WORD));
        set[i] = w.seen;
        list.terms = list.terms || w.terms;
        if (w.seen != 0) {
            list.begin = list.cells == 0 ? (int32_t)column + __builtin_ctzll(w.seen) : list.begin;
            list.end = (int32_t)column + CELLS_WORD - __builtin_clzll(w.seen);
            list.cells += __builtin_popcountll(w.seen);
        }
    }
    list.begin = list.cells == 0 ? 0 : list.begin;
    return list;
}

/* Where the row of the mask that list i belongs to begins. */
static int64_t row_of_list(const cells_t *c, int64_t i)
{
    int64_t at = 0;
    for (;;) {
        int most = -1;
        for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
            if (c->list[d] > 0 && c->list[d] <= i && (most < 0 || c->list[d] > c->list[most])) {
                most = d;
            }
        }
        if (most < 0) {
            return at;
        }
        at += i / c->list[most] * c->stride[most];
        i %= c->list[most];
    }
}

void cells_scan(const cells_t *c, unsigned char *shared, int tid, int nth)
{
    for (int64_t i = tid; i < c->lists; i += nth) {
        const unsigned char *row = c->mask.data + row_of_list(c, i) * c->mask.type->bits / 8;
        *cells_list(c, shared, i) = scan_row(c, row, cells_set(c, shared, i));
    }
}

/* ---- sets ------------------------------------------------------------------------------------ */

bool cells_equal(const cells_t *c, unsigned char *shared, int64_t i, int64_t k)
{
    const cell_list_t *x = cells_list(c, shared, i), *y = cells_list(c, shared, k);
    return i == k || (!x->terms && !y->terms && x->cells == y->cells && x->begin == y->begin &&
                      x->end == y->end &&
                      memcmp(cells_set(c, shared, i), cells_set(c, shared, k),
                             (size_t)c->words * sizeof(uint64_t)) == 0);
}

/* The bits of columns begin..end-1 that are in word i. */
static inline uint64_t bits_between(int64_t i, int64_t begin, int64_t end)
{
    const int64_t from = at_least(begin - i * CELLS_WORD, 0), to = end - i * CELLS_WORD;
    return (UINT64_MAX << from) & (to < CELLS_WORD ? ((uint64_t)1 << to) - 1 : UINT64_MAX);
}

int64_t cells_count(const uint64_t *x, const uint64_t *y, int64_t begin, int64_t end, bool in_tiles)
{
    enum { TILE = CELLS_WORD / 2 };
    int64_t n = 0;
    for (int64_t i = begin / CELLS_WORD; i * CELLS_WORD < end; i++) {
        const uint64_t some = (x[i] | y[i]) & bits_between(i, begin, end);
        n += in_tiles ? ((some << TILE != 0) + (some >> TILE != 0)) * TILE
                      : __builtin_popcountll(some);
    }
    return n;
}

void cells_join(uint64_t *to, const uint64_t *set, int64_t begin, int64_t end)
{
    for (int64_t i = begin / CELLS_WORD; i * CELLS_WORD < end; i++) {
        to[i] |= set[i] & bits_between(i, begin, end);
    }
}

/* ---- walks ----------------------------------------------------------------------------------- */

/* The first column of a walk from `column` on; its end, if there is none. */
static int64_t next_column(const cell_walk_t *w, int64_t column)
{
    if (column >= w->end) {
        return w->end;
    }
    int64_t i = column / CELLS_WORD;
    uint64_t word = w->set[i] & (UINT64_MAX << column % CELLS_WORD);
    while (word == 0 && (i + 1) * CELLS_WORD < w->end) {
        word = w->set[++i];
    }
    return word == 0 ? w->end : at_most(i * CELLS_WORD + __builtin_ctzll(word), w->end);
}

/* How many cells from w->next on are `step` columns apart from each other, up to `most`: words are
 * compared with what they then have. */
static int evenly_spaced(const cell_walk_t *w, int64_t step, int most)
{
    uint64_t spaced = 1; /* the bits of a word that begins with a cell */
    int64_t at = w->next;
    int n = 0;
    for (int64_t i = step; i < CELLS_WORD; i += step) {
        spaced |= (uint64_t)1 << i;
    }
    while (n < most && at < w->end) {
        const int64_t i = at / CELLS_WORD;
        const uint64_t behind = bits_between(i, at, w->end), has = w->set[i] & behind,
                       expected = (spaced << at % CELLS_WORD) & behind, other = has ^ expected;
        if (other != 0) {
            const uint64_t before = ((uint64_t)1 << __builtin_ctzll(other)) - 1;
            n += __builtin_popcountll(expected & before);
            return n < most ? n : most;
        }
        n += __builtin_popcountll(expected);
        at += __builtin_popcountll(expected) * step;
        if (next_column(w, (i + 1) * CELLS_WORD) < at) { /* another one before the next cell */
            break;
        }
    }
    return n < most ? n : most;
}

int cells_next(cell_walk_t *w, int most, int32_t *cell, int64_t *step)
{
    w->next = next_column(w, w->next);
    if (w->next >= w->end) {
        return 0;
    }
    const int64_t first = w->next, second = next_column(w, first + 1);
    int n = 1;
    *step = 1;
    if (second < w->end) {
        *step = second - first;
        n = evenly_spaced(w, *step, most);
    }
    const int64_t behind = first + (n - 1) * *step + 1;
    if (n == most || (n >= LONG_RUN && !w->by_place) || next_column(w, behind) == w->end) {
        for (int i = 0; i < n; i++) {
            cell[i] = (int32_t)(first + i * *step);
        }
        w->next = behind;
        return n;
    }
    *step = 0;
    n = 0;
    for (int64_t i = first / CELLS_WORD; i * CELLS_WORD < w->end && n < most; i++) {
        uint64_t word = w->set[i] & bits_between(i, w->next, w->end);
        if (word == UINT64_MAX && n > 0 && !w->by_place) {
            break; /* a long run */
        }
        for (; word != 0 && n < most; word &= word - 1) {
            cell[n++] = (int32_t)(i * CELLS_WORD) + __builtin_ctzll(word);
        }
    }
    w->next = cell[n - 1] + 1;
    return n;
}

int cells_next_tiles(cell_walk_t *w, int most, int64_t *column)
{
    enum { TILE = CELLS_WORD / 2 };
    const int64_t first = next_column(w, w->next) / TILE * TILE,
                  end = at_most((first / most + 1) * most, w->end);
    if (next_column(w, w->next) >= w->end) {
        return 0;
    }
    w->next = first + TILE;
    while (w->next < end && cells_of_tile(w->set, w->next) != 0) {
        w->next += TILE;
    }
    w->next = at_most(w->next, end);
    *column = first;
    return (int)(w->next - first);
}

int64_t cells_place(const uint64_t *set, int64_t begin, int64_t end, int64_t n)
{
    for (int64_t i = begin / CELLS_WORD; i * CELLS_WORD < end; i++) {
        uint64_t word = set[i] & bits_between(i, begin, end);
        const int some = __builtin_popcountll(word);
        for (; n < some; n--, word &= word - 1) {
            if (n == 0) {
                return i * CELLS_WORD + __builtin_ctzll(word);
            }
        }
        n -= some;
    }
    return end;
}

/* ---- what masks add -------------------------------------------------------------------------- */

void cells_terms(const cells_t *c, const int64_t *idx, int nd, const int32_t *cell, int n,
                 int64_t step, void *raw, float *to)
{
    const int64_t row = row_of_list(c, cells_number(c, idx, nd));
    const size_t bytes = (size_t)c->mask.type->bits / 8;
    groups_t mask = c->mask;
    if (step > 0) {
        groups_load(&mask, c->features, row + cell[0], step, n, to);
        return;
    }
    const unsigned char *from = c->mask.data + row * (int64_t)bytes;
    for (int i = 0; i < n; i++) {
        memcpy((unsigned char *)raw + (size_t)i * bytes, from + (size_t)cell[i] * bytes, bytes);
    }
    mask.data = raw;
    groups_load(&mask, c->features, 0, 1, n, to);
}

/* ---- tokens ---------------------------------------------------------------------------------- */

/* Values of a matrix whose rows are tokens: codes, scales, zero points. */
static bool is_shared(const groups_t *g)
{
    return g->type == NULL || g->row.stride == 0 || g->row.group > 1;
}

static void space(groups_t *g, int32_t first, int64_t step)
{
    if (!is_shared(g)) {
        g->first += first * g->row.stride;
        g->row.stride *= step;
    }
}

matrix_t cells_spaced(const matrix_t *m, int32_t first, int64_t step)
{
    matrix_t of = cells_spaced_coefs(m, first, step);
    space(&of.codes, first, step);
    return of;
}

matrix_t cells_spaced_coefs(const matrix_t *m, int32_t first, int64_t step)
{
    matrix_t of = *m;
    space(&of.scale, first, step);
    space(&of.zp, first, step);
    return of;
}

/* Copies so many bytes for each token; usual sizes are constants. A CPU does not look far enough
 * ahead by itself to keep memory busy. */
static inline __attribute__((always_inline)) void copy_tokens(const unsigned char *from,
                                                              int64_t stride, const int32_t *cell,
                                                              int n, size_t bytes,
                                                              unsigned char *to)
{
    enum { AHEAD = 24, LINE = 64 };
    for (int i = 0; i < n; i++) {
        const unsigned char *next = from + cell[i + AHEAD < n ? i + AHEAD : n - 1] * stride;
        for (size_t at = 0; at < bytes; at += LINE) {
            fetch_line(next + at);
        }
        memcpy(to + (size_t)i * bytes, from + cell[i] * stride, bytes);
    }
}

/* Values of tokens, so many of each, gathered at `to`. */
static void gather(groups_t *g, int64_t values, const int32_t *cell, int n, unsigned char *to)
{
    if (is_shared(g)) {
        return;
    }
    const int64_t bits = g->type->bits, stride = g->row.stride * bits / 8;
    const size_t bytes = (size_t)(values * bits / 8), one = (size_t)bits / 8;
    const unsigned char *from = groups_byte(g, g->first);
    if (values > 1 && g->column.stride != 1) {
        for (int i = 0; i < n; i++) {
            for (int64_t e = 0; e < values; e++) {
                memcpy(to + (size_t)i * bytes + (size_t)e * one,
                       from + cell[i] * stride + e * g->column.stride * (int64_t)one, one);
            }
        }
    } else if (bytes == 2) {
        copy_tokens(from, stride, cell, n, 2, to);
    } else if (bytes == 4) {
        copy_tokens(from, stride, cell, n, 4, to);
    } else if (bytes == 8) {
        copy_tokens(from, stride, cell, n, 8, to);
    } else if (bytes == 64) {
        copy_tokens(from, stride, cell, n, 64, to);
    } else if (bytes == 128) {
        copy_tokens(from, stride, cell, n, 128, to);
    } else if (bytes == 256) {
        copy_tokens(from, stride, cell, n, 256, to);
    } else {
        copy_tokens(from, stride, cell, n, bytes, to);
    }
    g->data = to;
    g->first = 0;
    g->row.stride = values;
    g->column.stride = values > 1 ? 1 : g->column.stride;
}

matrix_t cells_gathered(const matrix_t *m, int64_t head, const int32_t *cell, int n,
                        unsigned char *buffer)
{
    const size_t at = scratch_round((size_t)n * (size_t)(head * m->codes.type->bits / 8));
    matrix_t of = cells_with_coefs(m, head, cell, n, buffer + at);
    gather(&of.codes, head, cell, n, buffer);
    return of;
}

matrix_t cells_with_coefs(const matrix_t *m, int64_t head, const int32_t *cell, int n,
                          unsigned char *buffer)
{
    matrix_t of = *m;
    size_t at = 0;
    if (of.scale.type != NULL) {
        gather(&of.scale, axis_groups(&of.scale.column, head), cell, n, buffer + at);
        at += scratch_round((size_t)n * CELL_COEFS);
    }
    if (of.zp.type != NULL) {
        gather(&of.zp, axis_groups(&of.zp.column, head), cell, n, buffer + at);
    }
    return of;
}

/* Why so many values of a token, of which the axes are those of part `at`, cannot be gathered. */
static const char *refuse_values(const matrices_t *op, const groups_t *g, int at, bool is_v,
                                 int64_t tokens, int64_t head)
{
    const int token = op->ndims - (is_v ? 2 : 1), along = op->ndims - (is_v ? 1 : 2);
    const axis_t *axis = &op->axis[token][at];
    if (g->type == NULL || axis->stride == 0 || axis->group >= tokens) {
        return NULL;
    }
    const int64_t values = axis_groups(&op->axis[along][at], head), bits = g->type->bits;
    if (axis->group > 1) {
        return "tokens share scales of K or V";
    }
    if (values * bits % 8 != 0 ||
        (bits % 8 != 0 && values > 1 && op->axis[along][at].stride != 1)) {
        return "tokens of K or V are not whole bytes";
    }
    for (int d = 0; d < op->ndims && bits % 8 != 0; d++) {
        if (d != along && op->dims[d] != 1 && op->axis[d][at].stride * bits % 8 != 0) {
            return "tokens of K or V do not start at whole bytes";
        }
    }
    return at != IN_CODES && values * bits / 8 > CELL_COEFS
               ? "tokens of K or V have too many scales"
               : NULL;
}

const char *cells_refuse_tokens(const matrices_t *op, bool is_v, int64_t tokens, int64_t head)
{
    if (op->base.split != sinter_data_type_undef) {
        return "K or V is in two planes";
    }
    const char *why = refuse_values(op, &op->base.codes, IN_CODES, is_v, tokens, head);
    why = why != NULL ? why : refuse_values(op, &op->base.scale, IN_SCALE, is_v, tokens, head);
    return why != NULL ? why : refuse_values(op, &op->base.zp, IN_ZP, is_v, tokens, head);
}
