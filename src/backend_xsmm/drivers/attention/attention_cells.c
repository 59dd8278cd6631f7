/* Lists of cells from masks, walks over them, and the tokens that they name: see
 * attention_cells.h. */
#include "backend_xsmm/drivers/attention/attention_cells.h"

#include <string.h>

#include "base/fetch.h"

enum {
    WORD = 64,        /* columns that are looked at together */
    FEW_LISTS = 16,   /* as many may be ragged: of runs of 8 columns, */
    RAGGED = 8,       /* on average; */
    EVEN = 32,        /* others, of runs of 32, */
    LEAST_RUNS = 16,  /* but all have room for so many, */
    MOST_RUNS = 4096, /* and none for more than so many */
    LONG_RUN = 64     /* cells that are worth a step of their own, which copies nothing */
};

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
    const int64_t even = number <= FEW_LISTS ? RAGGED : EVEN;
    out->lists = number;
    out->most_runs = at_most(out->columns / even + LEAST_RUNS, MOST_RUNS);
    if (out->columns == 0 || number == 0 || out->columns > INT32_MAX ||
        number > (int64_t)INT32_MAX / MOST_RUNS) {
        return "the mask has no elements, or too many";
    }
    out->on = true;
    return NULL;
}

size_t cells_bytes(const cells_t *c, int shares)
{
    return CELLS_ALIGN + scratch_round((size_t)c->lists * sizeof(cell_list_t)) +
           scratch_round((size_t)(c->lists * c->most_runs) * sizeof(cell_run_t)) +
           (size_t)shares * scratch_round((size_t)c->columns / 8 + 8);
}

/* ---- scanning -------------------------------------------------------------------------------- */

/* A list while it is made. */
typedef struct builder {
    cell_run_t *runs;
    int32_t most;
    cell_run_t open; /* the run that may grow; n 0: none */
    cell_list_t list;
} builder_t;

static void close_run(builder_t *b)
{
    if (b->open.n == 0) {
        return;
    }
    if (b->list.runs == b->most) {
        cell_run_t *last = &b->runs[b->most - 1];
        last->step = 1;
        last->n = b->open.begin + (b->open.n - 1) * b->open.step + 1 - last->begin;
        b->list.loose = true;
        return;
    }
    b->runs[b->list.runs++] = b->open;
}

/* Adds n columns that follow each other, behind those of the list. */
static void push(builder_t *b, int32_t column, int32_t n)
{
    cell_run_t *open = &b->open;
    const int32_t next = open->begin + open->n * open->step;
    if (open->n == 1 && n == 1) {
        open->step = column - open->begin;
        open->n = 2;
    } else if (open->n > 0 && column == next && (n == 1 || open->step == 1)) {
        open->n += n;
    } else {
        close_run(b);
        *open = (cell_run_t){column, 1, n};
    }
    b->list.cells += n;
    b->list.end = column + n;
}

/* Bit i is byte i, of 64 bytes of 0 or 1. */
static uint64_t bits_of(const uint8_t *is)
{
    uint64_t bits = 0;
    for (int i = 0; i < WORD / 8; i++) {
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
    uint16_t x[WORD];
    uint8_t is[WORD];
    unsigned other = 0;
    memcpy(x, from, sizeof x);
    for (int i = 0; i < WORD; i++) {
        is[i] = x[i] != minus_inf;
        other |= x[i] != minus_inf ? x[i] & 0x7fffu : 0;
    }
    return (word_t){bits_of(is), other != 0};
}

static inline word_t look_32(const unsigned char *from)
{
    enum { MINUS_INF_TOP = 0xff80 };
    uint32_t x[WORD], other = 0;
    uint8_t is[WORD];
    memcpy(x, from, sizeof x);
    for (int i = 0; i < WORD; i++) {
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
    unsigned char some[WORD * sizeof(float)];
    if (n < WORD) {
        memset(some, 0, sizeof some);
        memcpy(some, from, (size_t)n * bytes);
        from = some;
    }
    word_t w = bytes == 4                   ? look_32(from)
               : mask->dtype == sinter_bf16 ? look_16(from, 0xff80)
                                            : look_16(from, 0xfc00);
    w.seen &= n < WORD ? ((uint64_t)1 << n) - 1 : UINT64_MAX;
    return w;
}

static void scan_row(const cells_t *c, const unsigned char *row, builder_t *b)
{
    const int64_t bytes = c->mask.type->bits / 8;
    for (int64_t i = 0; i < c->columns; i += WORD) {
        const word_t w = look(&c->mask, row + i * bytes, (int)at_most(c->columns - i, WORD));
        b->list.terms = b->list.terms || w.terms;
        for (uint64_t left = w.seen; left != 0;) {
            const int at = __builtin_ctzll(left);
            const uint64_t behind = ~(left >> at);
            const int n = behind == 0 ? WORD : __builtin_ctzll(behind);
            push(b, (int32_t)i + at, n);
            left = at + n == WORD ? 0 : left & (UINT64_MAX << (at + n));
        }
    }
    close_run(b);
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
        builder_t b = {.runs = cells_runs(c, shared, i), .most = (int32_t)c->most_runs};
        scan_row(c, c->mask.data + row_of_list(c, i) * c->mask.type->bits / 8, &b);
        b.list.begin = b.list.runs > 0 ? b.runs[0].begin : 0;
        *cells_list(c, shared, i) = b.list;
    }
}

/* ---- sets ------------------------------------------------------------------------------------ */

bool cells_equal(const cells_t *c, unsigned char *shared, int64_t i, int64_t k)
{
    const cell_list_t *x = cells_list(c, shared, i), *y = cells_list(c, shared, k);
    return i == k || (!x->loose && !x->terms && !y->loose && !y->terms && x->runs == y->runs &&
                      x->cells == y->cells &&
                      memcmp(cells_runs(c, shared, i), cells_runs(c, shared, k),
                             (size_t)x->runs * sizeof(cell_run_t)) == 0);
}

/* The bits of n columns from `column` on that are in its word. */
static uint64_t bits_at(int64_t column, int64_t n)
{
    const int from = (int)(column % WORD);
    const uint64_t bits = n >= WORD ? UINT64_MAX : ((uint64_t)1 << n) - 1;
    return bits << from;
}

/* The first run of a list that does not end before a column. */
static int first_run(const cell_list_t *list, const cell_run_t *runs, int64_t column)
{
    int low = 0, high = list->runs;
    while (low < high) {
        const int middle = (low + high) / 2;
        if (runs[middle].begin + (int64_t)(runs[middle].n - 1) * runs[middle].step < column) {
            low = middle + 1;
        } else {
            high = middle;
        }
    }
    return low;
}

/* Puts the cells of a list in columns begin..end-1 into the set `to`, if there is one; gives how
 * many of them are in the set `of`, NULL: of all. */
static inline __attribute__((always_inline)) int64_t over_cells(const cells_t *c,
                                                                unsigned char *shared, int64_t i,
                                                                int64_t begin, int64_t end,
                                                                const uint64_t *of, uint64_t *to)
{
    const cell_list_t *list = cells_list(c, shared, i);
    const cell_run_t *runs = cells_runs(c, shared, i);
    int64_t cells = 0;
    for (int k = first_run(list, runs, begin); k < list->runs && runs[k].begin < end; k++) {
        const int64_t first = runs[k].begin, step = runs[k].step,
                      skip = at_least(begin - first + step - 1, 0) / step,
                      before = at_most(first + runs[k].n * step, end);
        for (int64_t at = first + skip * step, n; at < before; at += n) {
            n = step == 1 ? at_most(before - at, WORD - at % WORD) : step;
            const uint64_t bits = bits_at(at, step == 1 ? n : 1);
            cells += __builtin_popcountll(of != NULL ? of[at / WORD] & bits : bits);
            if (to != NULL) {
                to[at / WORD] |= bits;
            }
        }
    }
    return cells;
}

void cells_add(const cells_t *c, unsigned char *shared, int64_t i, int64_t begin, int64_t end,
               uint64_t *set)
{
    over_cells(c, shared, i, begin, end, NULL, set);
}

int64_t cells_count(const cells_t *c, unsigned char *shared, int64_t i, int64_t begin, int64_t end)
{
    return over_cells(c, shared, i, begin, end, NULL, NULL);
}

int64_t cells_common(const cells_t *c, unsigned char *shared, int64_t i, int64_t begin, int64_t end,
                     const uint64_t *set)
{
    return over_cells(c, shared, i, begin, end, set, NULL);
}

/* ---- walks ----------------------------------------------------------------------------------- */

cell_walk_t cells_walk(const cells_t *c, unsigned char *shared, const int64_t *idx, int nd,
                       int64_t begin, int64_t end)
{
    const int64_t i = cells_number(c, idx, nd);
    cell_walk_t w = {.c = c,
                     .list = cells_list(c, shared, i),
                     .runs = cells_runs(c, shared, i),
                     .mask = c->mask.data + row_of_list(c, i) * c->mask.type->bits / 8,
                     .end = end};
    w.run = first_run(w.list, w.runs, begin);
    if (w.run < w.list->runs && w.runs[w.run].begin < begin) {
        const cell_run_t *run = &w.runs[w.run];
        w.at = (int32_t)((begin - run->begin + run->step - 1) / run->step);
    }
    return w;
}

cell_walk_t cells_walk_set(const cells_t *c, const uint64_t *set, int64_t begin, int64_t end)
{
    return (cell_walk_t){.c = c, .set = set, .next = begin, .end = end};
}

static int next_of_set(cell_walk_t *w, int most, int32_t *cell)
{
    int n = 0;
    while (w->next < w->end && n < most) {
        uint64_t word = w->set[w->next / WORD] & (UINT64_MAX << (w->next % WORD));
        const int64_t base = w->next / WORD * WORD;
        w->next = base + WORD;
        for (; word != 0; word &= word - 1) {
            const int64_t column = base + __builtin_ctzll(word);
            if (column >= w->end) {
                w->next = w->end;
                break;
            }
            if (n == most) {
                w->next = column;
                break;
            }
            cell[n++] = (int32_t)column;
        }
    }
    return n;
}

/* Whether the mask leaves a column of a loose run to the row. */
static bool is_seen(const cell_walk_t *w, int64_t column)
{
    return (look(&w->c->mask, w->mask + column * w->c->mask.type->bits / 8, 1).seen & 1) != 0;
}

int cells_next(cell_walk_t *w, int most, int32_t *cell, int64_t *step)
{
    int n = 0;
    *step = 0;
    if (w->set != NULL) {
        n = next_of_set(w, most, cell);
        *step = n > 0 && cell[n - 1] - cell[0] == n - 1 ? 1 : 0;
        return n;
    }
    while (w->run < w->list->runs && n < most) {
        const cell_run_t *run = &w->runs[w->run];
        const bool loose = w->list->loose && w->run == w->list->runs - 1;
        const int64_t first = run->begin + (int64_t)w->at * run->step,
                      before = (at_least(w->end - first, 0) + run->step - 1) / run->step;
        const int left = (int)at_most(run->n - w->at, before),
                  take = left < most - n ? left : most - n;
        if (take == 0 || (n > 0 && left >= LONG_RUN)) {
            break;
        }
        *step = n == 0 && !loose ? run->step : 0;
        for (int i = 0; i < take; i++) {
            const int64_t column = first + i * run->step;
            cell[n] = (int32_t)column;
            n += !loose || is_seen(w, column);
        }
        w->at += take;
        if (w->at == run->n) {
            w->at = 0;
            w->run++;
        }
        if (n >= LONG_RUN && *step > 0) {
            break;
        }
    }
    return n;
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
    matrix_t of = *m;
    space(&of.codes, first, step);
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
    matrix_t of = *m;
    size_t at = scratch_round((size_t)n * (size_t)(head * m->codes.type->bits / 8));
    gather(&of.codes, head, cell, n, buffer);
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
