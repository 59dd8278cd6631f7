/* The two walks of a DynamicQuantize step over a slab: extremes of groups, then codes. Between them
 * stand the scales. */
#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/move/dynquant.h"

enum {
    CACHE_LINE = 64,
    STREAM_RUN = 512,     /* columns */
    FETCH_COLUMNS = 4096, /* how far ahead of short rows memory is fetched */
};

size_t dynquant_carve(unsigned char *base, const quantiser_t *q, dynquant_scratch_t *m)
{
    size_t at = 0;
    m->x = carve(base, &at, QUANT_COLUMNS, sizeof *m->x);
    m->y = carve(base, &at, QUANT_COLUMNS, sizeof *m->y);
    m->row = NULL;
    return at + group_values_carve(base != NULL ? base + at : NULL, QUANT_COLUMNS, q, &m->m);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A piece of a row of a slab is a span of n columns. */
typedef struct cursor {
    int64_t at[SINTER_MAX_NDIMS], chunk; /* row, piece of it */
} cursor_t;

static void seek_piece(const quant_space_t *s, int64_t i, cursor_t *c)
{
    c->chunk = i % s->pieces;
    i /= s->pieces;
    walk_seek(s->n_row, s->row_n, i, c->at);
}

static void next_piece(const quant_space_t *s, cursor_t *c)
{
    if (++c->chunk < s->pieces) {
        return;
    }
    c->chunk = 0;
    walk_next(s->n_row, s->row_n, c->at);
}

static quant_span_t piece_at(const quant_space_t *s, const quant_span_t *slab, const cursor_t *c)
{
    const int64_t first = c->chunk * QUANT_COLUMNS, rest = slab->n * s->column.n - first;
    quant_span_t p = *slab;
    p.n = rest < QUANT_COLUMNS ? rest : QUANT_COLUMNS;
    span_move(&p, &s->column, first);
    for (int a = 0; a < s->n_row; a++) {
        span_move(&p, &s->row[a], c->at[a]);
    }
    return p;
}

/* Rows after this one, it included, that lie at equal distances. */
static int64_t rows_in_line(const quant_space_t *s, const cursor_t *c, int64_t most)
{
    const int64_t n =
        s->n_row == 0 || s->pieces > 1 ? 1 : s->row_n[s->n_row - 1] - c->at[s->n_row - 1];
    return n < most ? n : most;
}

static void skip_rows(const quant_space_t *s, cursor_t *c, int64_t n)
{
    if (n > 1) {
        c->at[s->n_row - 1] += n - 1;
    }
    next_piece(s, c);
}

static int64_t row_stride(const quant_space_t *s)
{
    return s->n_row > 0 ? s->row[s->n_row - 1].in : 0;
}

static const float *read_row(const dynquant_state_t *st, const quant_span_t *p, float *x)
{
    const quant_space_t *s = &st->s;
    if (dynquant_are_floats(s)) {
        return (const float *)(const void *)s->in.data + p->in;
    }
    if (s->column.in == 1) {
        st->in->load(s->in.data, p->in, p->n, x);
    } else {
        dtype_traits(s->in.dtype)->codec.load_f32(s->in.data, p->in, s->column.in, p->n, x);
    }
    return x;
}

static const dtype_traits_t *code_type(const dynquant_state_t *st)
{
    return st->q.out.base.codes.type;
}

static bool passes_caches(const dynquant_state_t *st, const quant_span_t *p)
{
    const int64_t block = code_type(st)->block_elems;
    return st->s.stream && p->to[IN_CODES] % block == 0 && p->n % block == 0;
}

/* Bytes of n codes. */
static int64_t code_bytes(const dynquant_state_t *st, int64_t n)
{
    return n / code_type(st)->block_elems * code_type(st)->block_bytes;
}

static unsigned char *codes_at_element(const dynquant_state_t *st, int64_t element)
{
    return groups_output(&st->q.out.base.codes, 0) + code_bytes(st, element);
}

static void write_row(const dynquant_state_t *st, const quant_span_t *p, const float *y,
                      unsigned char *codes)
{
    if (quantiser_splits(&st->q) || st->s.column.to[IN_CODES] != 1 || !passes_caches(st, p)) {
        quantiser_put_codes(&st->q, p, &st->s.column, y, codes);
        return;
    }
    st->q.codes->store_sat(codes, 0, p->n, y);
    st->q.fn->stream(codes_at_element(st, p->to[IN_CODES]), codes, (size_t)code_bytes(st, p->n));
}

/* ---- the first walk -------------------------------------------------------------------------- */

/* Groups of a row as the loops take them: a piece of a long group is one group, and a column is
 * one where groups have few columns. */
typedef struct shape {
    int size, n;
} shape_t;

static shape_t shape_of(const dynquant_state_t *st, const quant_span_t *p)
{
    const int size = st->column_groups ? 1 : st->s.pieces > 1 ? (int)p->n : (int)st->s.column.n;
    return (shape_t){size, (int)p->n / size};
}

int64_t dynquant_extremes(const dynquant_state_t *st, const quant_span_t *at)
{
    return st->column_groups ? at->n * st->s.column.n : at->n;
}

/* Elements from a row of n columns to one that is read soon, where neither the hardware nor the
 * encoding loop foresees it: rows of a slab, which are short and far apart. */
static int64_t rows_ahead(const quant_space_t *s, int64_t n)
{
    return (FETCH_COLUMNS / (s->exceeds_l2 ? 1 : 4) + n - 1) / n * row_stride(s);
}

/* Such a row, or, where rows are converted first, one of the next slab. */
static void fetch_row(const dynquant_state_t *st, const quant_span_t *p)
{
    const quant_space_t *s = &st->s;
    const int bytes = dtype_traits(s->in.dtype)->block_bytes;
    const int64_t ahead = s->n_row > 0 ? rows_ahead(s, p->n)
                          : s->in.dtype == sinter_f32 || st->measure_16 != NULL ? 0
                                                                                : st->ahead;
    if (ahead != 0 && s->column.in == 1) {
        const unsigned char *data = s->in.data + (p->in + ahead) * bytes;
        for (int64_t i = 0; i < p->n * bytes; i += CACHE_LINE) {
            __builtin_prefetch(data + i);
        }
    }
}

void dynquant_measure(const dynquant_state_t *st, const quant_span_t *at, int64_t begin,
                      int64_t end, dynquant_scratch_t *m)
{
    cursor_t c;
    group_values_clear(&m->m, dynquant_extremes(st, at));
    if (begin >= end) {
        return;
    }
    seek_piece(&st->s, begin, &c);
    for (int64_t i = begin, rows = 1; i < end; i += rows, skip_rows(&st->s, &c, rows)) {
        const quant_span_t p = piece_at(&st->s, at, &c);
        const shape_t shape = shape_of(st, &p);
        if (shape.size == 1 && dynquant_are_floats(&st->s) && !quantiser_is_open(&st->q)) {
            rows = rows_in_line(&st->s, &c, end - i);
            m->row = read_row(st, &p, m->x);
            st->q.fn->widen_rows(m->row, row_stride(&st->s), rows, shape.n, rows_ahead(&st->s, p.n),
                                 m->m.top, m->m.bottom);
            continue;
        }
        fetch_row(st, &p);
        if (st->measure_16 != NULL) {
            st->measure_16((const uint16_t *)(const void *)st->s.in.data + p.in, shape.size,
                           shape.n, m->m.top, m->m.bottom);
            continue;
        }
        m->row = read_row(st, &p, m->x);
        quantiser_widen(&st->q, m->row, shape.size, shape.n, &m->m);
    }
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* Merges the extremes of columns into those of the groups that the columns belong to. */
static void merge_columns(const dynquant_state_t *st, int64_t groups, int32_t *extremes)
{
    int64_t size = st->s.column.n;
    for (; size % 2 == 0; size /= 2) {
        st->q.fn->halve(extremes, (int)(groups * size / 2));
    }
    for (int64_t g = 0; size > 1 && g < groups; g++) {
        int32_t most = extremes[g * size];
        for (int64_t i = 1; i < size; i++) {
            most = extremes[g * size + i] > most ? extremes[g * size + i] : most;
        }
        extremes[g] = most;
    }
}

/* Values of groups to their columns. */
static void spread(const dynquant_state_t *st, int n, float *x, float *tmp)
{
    memcpy(tmp, x, (size_t)n * sizeof *x);
    st->q.fn->spread(tmp, n * (int)st->s.column.n, st->s.column.n, 0, x);
}

void dynquant_derive(const dynquant_state_t *st, const quant_span_t *at, bool store,
                     dynquant_scratch_t *m)
{
    const int n = (int)at->n;
    const bool zps = st->q.zp != NULL;
    if (st->column_groups) {
        merge_columns(st, n, m->m.top);
        if (m->m.bottom != NULL) {
            merge_columns(st, n, m->m.bottom);
        }
    }
    quantiser_derive(&st->q, n, &m->m);
    if (store && !quantiser_refits(&st->q)) {
        quantiser_put_groups(&st->q, at, &st->s.group, n, &m->m);
    }
    if (st->column_groups && st->s.column.n > 1) {
        spread(st, n, m->m.inverse_scale, m->y);
        if (zps) {
            spread(st, n, m->m.zp, m->y);
        }
    }
    if (quantiser_refits(&st->q)) { /* those of columns, if these are groups for now */
        group_values_clear_sums(&m->m, dynquant_extremes(st, at));
    }
}

void dynquant_refit(const dynquant_state_t *st, const quant_span_t *at, dynquant_scratch_t *m)
{
    const int n = (int)at->n, each = st->column_groups ? (int)st->s.column.n : 1;
    if (!quantiser_refits(&st->q)) {
        return;
    }
    for (int g = 0; each > 1 && g < n; g++) {
        float num = 0, den = 0;
        for (int i = g * each; i < (g + 1) * each; i++) {
            num += m->m.num[i];
            den += m->m.den[i];
        }
        m->m.num[g] = num;
        m->m.den[g] = den;
    }
    quantiser_refit(&st->q, n, &m->m);
    quantiser_put_groups(&st->q, at, &st->s.group, n, &m->m);
}

/* ---- the second walk ------------------------------------------------------------------------- */

/* Columns of a row that go from numbers to codes in registers. */
static int64_t fused_columns(const dynquant_state_t *st, const quant_span_t *p,
                             const shape_t *shape, const dynquant_scratch_t *m)
{
    if (!st->registers || m->m.any_special || p->to[IN_CODES] % code_type(st)->block_elems != 0) {
        return 0;
    }
    return shape->size == 1 ? p->n / 16 * 16 : shape->size % 16 == 0 ? p->n : 0;
}

/* Codes of p->n columns of `rows` rows. x NULL: the elements are quantised where they lie. Codes
 * that go past the caches do so in short runs, so that memory writes one run while the next is
 * computed. */
static void encode(const dynquant_state_t *st, const quant_span_t *p, const float *x,
                   const shape_t *shape, int64_t rows, const dynquant_scratch_t *m)
{
    const quant_space_t *s = &st->s;
    const bool nontemporal = passes_caches(st, p);
    const int64_t run = nontemporal && (STREAM_RUN % shape->size == 0 || shape->size > STREAM_RUN)
                            ? STREAM_RUN
                            : p->n;
    dtype_scaled_t how = {.zp_each = true,
                          .way = st->q.zp != NULL                      ? DTYPE_SHIFTED
                                 : quant_by_powers(st->q.formula.kind) ? DTYPE_MULTIPLIED
                                                                       : DTYPE_DIVIDED,
                          .from = x != NULL ? sinter_f32 : s->in.dtype};
    const int bytes = dtype_traits(how.from)->block_bytes;
    const unsigned char *src = x != NULL ? (const unsigned char *)x : s->in.data + p->in * bytes;
    const int64_t step = row_stride(s) * bytes,
                  to_step = code_bytes(st, rows > 1 ? s->row[s->n_row - 1].to[IN_CODES] : 0);
    how.ahead = x == m->x ? 0 : st->ahead * bytes;
    for (int64_t i = 0; i < p->n; i += run) {
        const int64_t n = p->n - i < run ? p->n - i : run;
        unsigned char *to = codes_at_element(st, p->to[IN_CODES] + i);
        how.scale = m->m.inverse_scale + i / shape->size;
        how.zp = m->m.zp + i / shape->size;
        how.group = shape->size < n ? shape->size : n;
        for (int64_t r = 0; r < rows; r++, to += to_step) {
            unsigned char *codes = nontemporal ? m->m.codes : to;
            st->q.codes->store_scaled(codes, 0, n, src + i * bytes + r * step, &how);
            if (nontemporal) {
                st->q.fn->stream(to, codes, (size_t)code_bytes(st, n));
            }
        }
    }
}

/* Rows that are encoded at once: those in line that begin with whole bytes, where no row is so
 * long that runs of it are better. */
static int64_t rows_encoded(const dynquant_state_t *st, const quant_span_t *p,
                            const dynquant_scratch_t *m, int64_t rows)
{
    const quant_space_t *s = &st->s;
    const shape_t shape = shape_of(st, p);
    const bool same = rows > 1 && p->n <= STREAM_RUN &&
                      s->row[s->n_row - 1].to[IN_CODES] % code_type(st)->block_elems == 0;
    return same && dynquant_are_floats(s) && fused_columns(st, p, &shape, m) == p->n ? rows : 1;
}

/* x NULL: the row is quantised where it lies. More than one row: rows_encoded allows it. */
static void quantise_rows(const dynquant_state_t *st, const quant_span_t *p, const float *x,
                          int64_t rows, dynquant_scratch_t *m)
{
    const shape_t shape = shape_of(st, p);
    const int64_t fused = fused_columns(st, p, &shape, m),
                  group = st->s.pieces > 1 ? p->n : st->s.column.n;
    quant_span_t part = *p;
    part.n = fused;
    if (fused > 0) {
        encode(st, &part, x, &shape, rows, m);
    }
    if (fused < p->n) { /* whole rows, or single columns at the end */
        x = x == NULL ? read_row(st, p, m->x) : x;
        span_move(&part, &st->s.column, fused);
        part.n = p->n - fused;
        quantiser_quantise(&st->q, x + fused, shape.size, (int)(part.n / shape.size), (int)fused,
                           &m->m, m->y);
        quantiser_clear_specials(&m->m, group, part.n / group, m->y);
        write_row(st, &part, m->y, m->m.codes);
    }
}

void dynquant_encode(const dynquant_state_t *st, const quant_span_t *at, int64_t begin, int64_t end,
                     dynquant_scratch_t *m)
{
    cursor_t c;
    if (begin >= end) {
        return;
    }
    seek_piece(&st->s, begin, &c);
    for (int64_t i = begin, rows = 1; i < end; i += rows, skip_rows(&st->s, &c, rows)) {
        const quant_span_t p = piece_at(&st->s, at, &c);
        const float *x = NULL;
        rows = rows_encoded(st, &p, m, rows_in_line(&st->s, &c, end - i));
        if (st->s.exceeds_l2 && !st->s.by_pieces && rows == 1) {
            fetch_row(st, &p);
        }
        if (st->measure_16 == NULL) {
            const bool again = m->row == NULL || st->s.rows * st->s.pieces > 1;
            x = again ? read_row(st, &p, m->x) : m->row;
        }
        quantise_rows(st, &p, x, rows, m);
    }
}
