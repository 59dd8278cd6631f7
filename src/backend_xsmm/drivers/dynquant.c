/* DynamicQuantize steps that compute scales (and zero points) from the data. A unit (dynquant.h) is
 * walked twice: once for the extremes of its groups, once to quantise its elements with the stored
 * scales; units are of a size that the second walk finds in the caches. Groups side by side in one
 * row go by chunks where the codes' type has a function for that, which does all of it. Formulas:
 *
 *   mx          S = 2^(floor(log2 amax) - emax), from the bits of amax           q = elem(x / S)
 *   mx_rceil    S = amax / max rounded up to a power of two                      q = elem(x / S)
 *   symmetric   S = amax / qmax                                                  q = elem(x / S)
 *   asymmetric  S = (hi - lo) / (qmax - qmin), zp = sat(round(qmin - lo / S))    q = sat(round(x
 *   / S) + zp)
 *   nv          S = e4m3(clamp(amax / 6 / t, 2^-9, 448))                         q = elem(x / (S
 *               t))
 *
 * Elements saturate, those of mx and mx_rceil to the largest number with either sign (s8: -127).
 * S saturates at the largest number of its type and is 1 where that type would store 0, which
 * e8m0 never does. A NaN or an infinity in the group makes S NaN, the elements 0 and the zero
 * point that of an all-zero group. A tensor's scale t of 0 or NaN makes S NaN and the elements
 * 0. */
#include "backend_xsmm/drivers/dynquant.h"

#include <math.h>
#include <string.h>

#include "backend_xsmm/drivers/chain_walk.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/status.h"
#include "graph/quant.h"
#include "numeric/quant_rows.h"

enum {
    NARROW = 16, /* groups of fewer columns are taken column by column */
    CACHE_LINE = 64,
    CODE_BYTES = 8,       /* of the widest code */
    STREAM_RUN = 512,     /* columns */
    FETCH_COLUMNS = 4096, /* how far ahead of short units memory is fetched */
    TALL_AHEAD = 8,       /* and the last-level cache in rows of tall ones */
};

typedef struct dynquant_state {
    quant_space_t s;
    const quant_rows_t *fn;
    const dtype_bulk_t *in, *out, *scale, *zp;
    quant_formula_t formula;
    bool narrow;
    quant_widen16_t *
        /* measures elements of 16 bits where they do not become a row of floats first; else NULL */
        straight;
    bool by_chunks; /* units are runs of groups that out->quantise takes */
    int64_t ahead;  /* from a column of a unit to that of the next one */
} dynquant_state_t;

/* A thread's memory: a row of elements, what they become, and per group or column what they are
 * made with. */
typedef struct scratch {
    float *x, *q, *by, *zp, *scale;
    int32_t *top, *bottom, *special; /* bottom NULL: not needed */
    unsigned char *codes;
    const float *row; /* the last one that was measured */
    bool any_special;
} scratch_t;

/* Where a unit starts in each tensor. */
typedef struct place {
    int64_t in, out, high, scale, zp, groups;
} place_t;

static size_t carve_scratch(unsigned char *base, bool bottom, scratch_t *m)
{
    size_t at = 0;
    m->x = carve(base, &at, QUANT_COLUMNS, sizeof *m->x);
    m->q = carve(base, &at, QUANT_COLUMNS, sizeof *m->q);
    m->by = carve(base, &at, QUANT_COLUMNS, sizeof *m->by);
    m->zp = carve(base, &at, QUANT_COLUMNS, sizeof *m->zp);
    m->scale = carve(base, &at, QUANT_COLUMNS, sizeof *m->scale);
    m->top = carve(base, &at, QUANT_COLUMNS, sizeof *m->top);
    m->bottom = carve(base, &at, QUANT_COLUMNS, sizeof *m->bottom);
    m->special = carve(base, &at, QUANT_COLUMNS, sizeof *m->special);
    m->codes = carve(base, &at, QUANT_COLUMNS, CODE_BYTES);
    m->bottom = bottom ? m->bottom : NULL;
    m->row = NULL;
    return at;
}

/* Columns from what is being encoded to what is fetched meanwhile: the next row where rows are
 * read once more, else the next unit, or one further on if units are short. */
static int64_t fetch_ahead(const quant_space_t *s)
{
    const int64_t columns = s->tile * s->column.n;
    if (s->by_pieces && s->n_row > 0) {
        return s->row[s->n_row - 1].in;
    }
    if (s->tall) {
        return s->n_row > 0 ? TALL_AHEAD * s->row[s->n_row - 1].in : 0;
    }
    return s->rows == 1 && columns > 0 ? (FETCH_COLUMNS + columns - 1) / columns * columns
                                       : columns;
}

static quant_widen16_t *goes_straight(const dynquant_state_t *st)
{
    const quant_space_t *s = &st->s;
    const bool dense =
        s->column.in == 1 && s->column.out == 1 && (uintptr_t)s->in.data % sizeof(uint16_t) == 0;
    if (st->out->store_scaled == NULL || s->split || s->column.n % QUANT_GROUP != 0 || !dense) {
        return NULL;
    }
    return quant_widen16(st->fn, s->in.dtype);
}

static dtype_blocks_t as_blocks(const dynquant_state_t *st)
{
    const quant_space_t *s = &st->s;
    const dtype_traits_t *elem = dtype_traits(s->out.dtype),
                         *zp = s->has_zp ? dtype_traits(s->zp.dtype) : elem;
    return (dtype_blocks_t){.formula = &st->formula,
                            .from = s->in.dtype,
                            .size = s->column.n,
                            .scale_type = s->scale.dtype,
                            .zp_type = s->has_zp ? s->zp.dtype : sinter_data_type_undef,
                            .scale_bytes = dtype_traits(s->scale.dtype)->block_bytes,
                            .zp_bits = s->has_zp ? zp->bits : 8,
                            .zp_min = (float)(elem->min > zp->min ? elem->min : zp->min),
                            .zp_max = (float)(elem->max < zp->max ? elem->max : zp->max)};
}

/* Whole blocks of whole groups, whose zero points are whole bytes. */
static bool is_chunk(const dtype_blocks_t *b, int64_t elements)
{
    return elements >= DTYPE_BLOCK && elements >= b->size &&
           elements / b->size * b->zp_bits % 8 == 0;
}

/* NULL if units are runs of groups in all tensors, each of which a thread may have for itself, and
 * there is a function that takes them; else the reason. */
static const char *refuse_chunks(const dynquant_state_t *st)
{
    const quant_space_t *s = &st->s;
    const int64_t size = s->column.n;
    const sinter_data_type_t in = s->in.dtype;
    const bool dense = s->column.in == 1 && s->column.out == 1 && s->group.in == size &&
                       s->group.out == size && s->group.scale == 1;
    const dtype_blocks_t b = as_blocks(st);
    bool alone = !s->by_pieces;
    for (int a = 0; a < s->n_unit; a++) {
        alone = alone && s->item[a] == 1;
    }
    if (in != sinter_f32 && in != sinter_f16 && in != sinter_bf16) {
        return "elements are not f32, f16 or bf16";
    }
    if (s->split) {
        return "split codes";
    }
    if (!dense || s->rows != 1 || !alone || (s->has_zp && s->group.zp != 1)) {
        return "groups do not lie one after the other in all tensors";
    }
    if (size != 16 && size != 32 && size != 64 && (size <= 0 || size % DTYPE_BLOCK != 0)) {
        return "groups are not of 16, 32, 64 or a multiple of 128 elements";
    }
    if (!is_chunk(&b, dtype_chunk(size, in))) {
        return "zero points of a chunk are not whole bytes";
    }
    return st->out->quantise == NULL || st->out->quantise(&b) != 0 ? "no function for these types"
                                                                   : NULL;
}

/* ---- choose ---------------------------------------------------------------------------------- */

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const dynquant_params_t *p = &problem->step->p.dynquant;
    const features_t features = self->needs;
    dynquant_state_t *st = state;
    (void)config;
    SG_TRY(quant_space_bind(p, problem->frame, &st->s));
    const sinter_data_type_t codes = st->s.split ? p->out.split : st->s.out.dtype;
    const dtype_traits_t *elem = dtype_traits(codes);
    st->fn = quant_rows(features);
    st->in = dtype_bulk(st->s.in.dtype, features);
    st->out = dtype_bulk(codes, features);
    st->scale = dtype_bulk(st->s.scale.dtype, features);
    st->zp = st->s.has_zp ? dtype_bulk(st->s.zp.dtype, features) : NULL;
    st->narrow = st->s.column.n < NARROW;
    st->straight = goes_straight(st);
    st->ahead = fetch_ahead(&st->s);
    st->formula = (quant_formula_t){.kind = (quant_kind_t)p->kind,
                                    .elem_max = (float)elem->max,
                                    .elem_min = (float)elem->min,
                                    .scale_max = dtype_traits(st->s.scale.dtype)->max,
                                    .tensor_scale = 1};
    const char *why = refuse_chunks(st);
    st->by_chunks = why == NULL;
    add_way(choice, NULL, st->by_chunks ? "chunks of groups" : "rows of groups", why);
    if (st->s.by_pieces) {
        choice->shared_bytes = (size_t)quant_units(&st->s) * (size_t)problem->frame->threads * 2 *
                               QUANT_COLUMNS * sizeof(int32_t);
    }
    return sinter_success;
}

static sinter_status_t start(const kernel_t *self, const problem_t *problem, const void *config,
                             void *state)
{
    const dynquant_params_t *p = &problem->step->p.dynquant;
    dynquant_state_t *st = state;
    (void)config;
    if (p->tensor_scale >= 0) {
        const bound_t *t = &problem->frame->v[p->tensor_scale];
        dtype_bulk(t->dtype, self->needs)->load(t->data, 0, 1, &st->formula.tensor_scale);
        st->formula.tensor_scale = quant_tensor_scale(st->formula.tensor_scale);
    }
    return sinter_success;
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* A piece of a row of a unit: elements at `in`, `out` and `high`, n columns. */
typedef struct piece {
    int64_t in, out, high, n;
} piece_t;

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

static piece_t piece_at(const quant_space_t *s, const place_t *u, const cursor_t *c)
{
    const int64_t first = c->chunk * QUANT_COLUMNS, rest = u->groups * s->column.n - first;
    piece_t p = {u->in + first * s->column.in, u->out + first * s->column.out,
                 u->high + first * s->column.high, rest < QUANT_COLUMNS ? rest : QUANT_COLUMNS};
    for (int a = 0; a < s->n_row; a++) {
        p.in += c->at[a] * s->row[a].in;
        p.out += c->at[a] * s->row[a].out;
        p.high += c->at[a] * s->row[a].high;
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

/* Rows that are floats in memory. */
static bool are_floats(const quant_space_t *s)
{
    return s->in.dtype == sinter_f32 && s->column.in == 1 &&
           (uintptr_t)s->in.data % sizeof(float) == 0;
}

static const float *read_row(const dynquant_state_t *st, const piece_t *p, float *x)
{
    const quant_space_t *s = &st->s;
    if (are_floats(s)) {
        return (const float *)(const void *)s->in.data + p->in;
    }
    if (s->column.in == 1) {
        st->in->load(s->in.data, p->in, p->n, x);
    } else {
        dtype_traits(s->in.dtype)->codec.load_f32(s->in.data, p->in, s->column.in, p->n, x);
    }
    return x;
}

static bool passes_caches(const quant_space_t *s, const piece_t *p)
{
    const int64_t block = dtype_traits(s->out.dtype)->block_elems;
    return s->stream && p->out % block == 0 && p->n % block == 0;
}

/* Of so many codes. */
static int64_t code_bytes(const quant_space_t *s, int64_t n)
{
    const dtype_traits_t *t = dtype_traits(s->out.dtype);
    return n / t->block_elems * t->block_bytes;
}

static void write_row(const dynquant_state_t *st, const piece_t *p, const float *q,
                      unsigned char *codes)
{
    const quant_space_t *s = &st->s;
    if (s->split) {
        st->out->store_sat(codes, 0, p->n, q);
        dtype_part(codes, p->n, s->out.data, p->out, s->column.out, s->high.data, p->high,
                   s->column.high);
    } else if (s->column.out != 1) {
        dtype_traits(s->out.dtype)->codec.store_sat(s->out.data, p->out, s->column.out, p->n, q);
    } else if (passes_caches(s, p)) {
        st->out->store_sat(codes, 0, p->n, q);
        st->fn->stream(s->out.data + code_bytes(s, p->out), codes, (size_t)code_bytes(s, p->n));
    } else {
        st->out->store_sat(s->out.data, p->out, p->n, q);
    }
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* Groups of a row as the loops take them: a piece of a long group is one group, and a column is
 * one where groups are narrow. */
typedef struct shape {
    int size, n;
} shape_t;

static shape_t shape_of(const dynquant_state_t *st, const piece_t *p)
{
    const int size = st->narrow ? 1 : st->s.pieces > 1 ? (int)p->n : (int)st->s.column.n;
    return (shape_t){size, (int)p->n / size};
}

static int64_t n_extremes(const dynquant_state_t *st, const place_t *u)
{
    return st->narrow ? u->groups * st->s.column.n : u->groups;
}

static void clear_extremes(const dynquant_state_t *st, const place_t *u, scratch_t *m)
{
    const size_t bytes = (size_t)n_extremes(st, u) * sizeof *m->top;
    memset(m->top, 0, bytes);
    if (m->bottom != NULL) {
        memset(m->bottom, 0, bytes);
    }
}

/* Elements from a row of n columns to one that is read soon, where neither the hardware nor the
 * encoding loop foresees it: rows of a unit, which are short and far apart. */
static int64_t rows_ahead(const quant_space_t *s, int64_t n)
{
    return (FETCH_COLUMNS / (s->tall ? 1 : 4) + n - 1) / n * row_stride(s);
}

/* Such a row, or, where rows are converted first, one of the next unit. */
static void fetch_row(const dynquant_state_t *st, const piece_t *p)
{
    const quant_space_t *s = &st->s;
    const int bytes = dtype_traits(s->in.dtype)->block_bytes;
    const int64_t ahead = s->n_row > 0                                        ? rows_ahead(s, p->n)
                          : s->in.dtype == sinter_f32 || st->straight != NULL ? 0
                                                                              : st->ahead;
    if (ahead != 0 && s->column.in == 1) {
        const unsigned char *data = s->in.data + (p->in + ahead) * bytes;
        for (int64_t i = 0; i < p->n * bytes; i += CACHE_LINE) {
            __builtin_prefetch(data + i);
        }
    }
}

/* First walk, over pieces begin..end - 1. */
static void measure(const dynquant_state_t *st, const place_t *u, int64_t begin, int64_t end,
                    scratch_t *m)
{
    cursor_t c;
    clear_extremes(st, u, m);
    if (begin >= end) {
        return;
    }
    seek_piece(&st->s, begin, &c);
    for (int64_t i = begin, rows = 1; i < end; i += rows, skip_rows(&st->s, &c, rows)) {
        const piece_t p = piece_at(&st->s, u, &c);
        const shape_t shape = shape_of(st, &p);
        if (shape.size == 1 && are_floats(&st->s)) {
            rows = rows_in_line(&st->s, &c, end - i);
            m->row = read_row(st, &p, m->x);
            st->fn->widen_rows(m->row, row_stride(&st->s), rows, shape.n, rows_ahead(&st->s, p.n),
                               m->top, m->bottom);
            continue;
        }
        fetch_row(st, &p);
        if (st->straight != NULL) {
            st->straight((const uint16_t *)(const void *)st->s.in.data + p.in, shape.size, shape.n,
                         m->top, m->bottom);
            continue;
        }
        m->row = read_row(st, &p, m->x);
        st->fn->widen(m->row, shape.size, shape.n, m->top, m->bottom);
    }
}

/* Extremes of columns to those of groups of them. */
static void fold(const dynquant_state_t *st, int64_t groups, int32_t *extremes)
{
    int64_t size = st->s.column.n;
    for (; size % 2 == 0; size /= 2) {
        st->fn->halve(extremes, (int)(groups * size / 2));
    }
    for (int64_t g = 0; size > 1 && g < groups; g++) {
        int32_t most = extremes[g * size];
        for (int64_t i = 1; i < size; i++) {
            most = extremes[g * size + i] > most ? extremes[g * size + i] : most;
        }
        extremes[g] = most;
    }
}

/* x as its type stores it. */
static void round_trip(const dtype_bulk_t *type, int64_t n, float *x, unsigned char *codes)
{
    type->store(codes, 0, n, x);
    type->load(codes, 0, n, x);
}

static void put(const bound_t *to, const dtype_bulk_t *type, int64_t first, int64_t stride,
                int64_t n, const float *x)
{
    if (stride == 1) {
        type->store(to->data, first, n, x);
    } else {
        dtype_traits(to->dtype)->codec.store_f32(to->data, first, stride, n, x);
    }
}

/* Values of groups to their columns. */
static void spread(const dynquant_state_t *st, int n, float *x, float *tmp)
{
    memcpy(tmp, x, (size_t)n * sizeof *x);
    st->fn->spread(tmp, n * (int)st->s.column.n, st->s.column.n, 0, x);
}

/* Scales and zero points from the extremes, and what elements are made with. */
static void derive(const dynquant_state_t *st, const place_t *u, bool store, scratch_t *m)
{
    const quant_space_t *s = &st->s;
    const int n = (int)u->groups;
    if (st->narrow) {
        fold(st, n, m->top);
        if (m->bottom != NULL) {
            fold(st, n, m->bottom);
        }
    }
    st->fn->scales(&st->formula, n, m->top, m->bottom, m->scale, m->special);
    round_trip(st->scale, n, m->scale, m->codes);
    m->any_special = st->fn->factors(&st->formula, n, m->scale, m->by, m->special) != 0;
    if (s->has_zp) {
        st->fn->zero_points(&st->formula, n, m->bottom, m->scale, m->zp);
        round_trip(st->out, n, m->zp, m->codes);
        round_trip(st->zp, n, m->zp, m->codes);
    }
    for (int g = 0; m->any_special && g < n; g++) {
        m->scale[g] = m->special[g] ? NAN : m->scale[g];
    }
    if (store) {
        put(&s->scale, st->scale, u->scale, s->group.scale, n, m->scale);
        if (s->has_zp) {
            put(&s->zp, st->zp, u->zp, s->group.zp, n, m->zp);
        }
    }
    if (st->narrow && s->column.n > 1) {
        spread(st, n, m->by, m->q);
        if (s->has_zp) {
            spread(st, n, m->zp, m->q);
        }
    }
}

/* ---- elements -------------------------------------------------------------------------------- */

static void clear_specials(const dynquant_state_t *st, const piece_t *p, const scratch_t *m)
{
    const int64_t size = st->s.pieces > 1 ? p->n : st->s.column.n;
    for (int64_t g = 0; g * size < p->n; g++) {
        if (m->special[g]) {
            memset(m->q + g * size, 0, (size_t)size * sizeof *m->q);
        }
    }
}

/* Columns of a row that take the fast way: in registers from floats to codes. */
static int64_t fused_columns(const dynquant_state_t *st, const piece_t *p, const shape_t *shape,
                             const scratch_t *m)
{
    const bool plain =
        st->out->store_scaled != NULL && st->s.column.out == 1 && !st->s.split && !m->any_special;
    if (!plain || p->out % dtype_traits(st->s.out.dtype)->block_elems != 0) {
        return 0;
    }
    return shape->size == 1 ? p->n / 16 * 16 : shape->size % 16 == 0 ? p->n : 0;
}

/* Codes of n columns of rows, x NULL: of elements that go straight. Those that go past the
 * caches do so in short runs, so that memory writes one run while the next is computed. */
static void encode(const dynquant_state_t *st, const piece_t *p, const float *x,
                   const shape_t *shape, int64_t n, int64_t rows, const scratch_t *m)
{
    const quant_space_t *s = &st->s;
    const float *zp = s->has_zp ? m->zp : NULL;
    const sinter_data_type_t from = x != NULL ? sinter_f32 : s->in.dtype;
    const int bytes = dtype_traits(from)->block_bytes;
    const unsigned char *src = x != NULL ? (const unsigned char *)x : s->in.data + p->in * bytes;
    const bool past = passes_caches(s, &(piece_t){p->in, p->out, p->high, n});
    const int64_t run = past && STREAM_RUN % shape->size == 0 ? STREAM_RUN
                        : past && shape->size > STREAM_RUN    ? STREAM_RUN
                                                              : n;
    const int64_t step = row_stride(s) * bytes, out_step = rows > 1 ? s->row[s->n_row - 1].out : 0;
    for (int64_t i = 0; i < n; i += run) {
        const int64_t k = n - i < run ? n - i : run, group = i / shape->size,
                      k_bytes = code_bytes(s, k);
        const dtype_scaled_t how = {.way = zp != NULL                          ? DTYPE_SHIFTED
                                           : quant_by_powers(st->formula.kind) ? DTYPE_MULTIPLIED
                                                                               : DTYPE_DIVIDED,
                                    .size = shape->size < k ? shape->size : (int)k,
                                    .n_groups = shape->size < k ? (int)(k / shape->size) : 1,
                                    .by = m->by + group,
                                    .zp = zp != NULL ? zp + group : NULL,
                                    .from = from,
                                    .ahead = x == m->x ? 0 : st->ahead * bytes};
        unsigned char *to = s->out.data + code_bytes(s, p->out + i);
        const int64_t to_step = code_bytes(s, out_step);
        for (int64_t r = 0; r < rows; r++, to += to_step) {
            unsigned char *codes = past ? m->codes : to;
            st->out->store_scaled(codes, 0, src + i * bytes + r * step, &how);
            if (past) {
                st->fn->stream(to, codes, (size_t)k_bytes);
            }
        }
    }
}

/* Rows that are encoded at once: those in line that begin with whole bytes, where no row is so
 * long that runs of it are better. */
static int64_t rows_encoded(const dynquant_state_t *st, const piece_t *p, const scratch_t *m,
                            int64_t rows)
{
    const quant_space_t *s = &st->s;
    const shape_t shape = shape_of(st, p);
    const bool same = rows > 1 && p->n <= STREAM_RUN &&
                      s->row[s->n_row - 1].out % dtype_traits(s->out.dtype)->block_elems == 0;
    return same && are_floats(s) && fused_columns(st, p, &shape, m) == p->n ? rows : 1;
}

/* x NULL: of a row that goes straight. More than one: rows_encoded. */
static void quantise_rows(const dynquant_state_t *st, const piece_t *p, const float *x,
                          int64_t rows, scratch_t *m)
{
    const quant_space_t *s = &st->s;
    const shape_t shape = shape_of(st, p);
    const float *zp = s->has_zp ? m->zp : NULL;
    const int64_t fused = fused_columns(st, p, &shape, m);
    if (fused > 0) {
        encode(st, p, x, &shape, fused, rows, m);
    }
    x = x == NULL && fused < p->n ? read_row(st, p, m->x) : x;
    if (fused < p->n) { /* whole rows, or single columns at the end */
        const piece_t rest = {p->in, p->out + fused * s->column.out,
                              p->high + fused * s->column.high, p->n - fused};
        st->fn->quantise(&st->formula, x + fused, shape.size, (int)(rest.n / shape.size),
                         m->by + fused, zp != NULL ? zp + fused : NULL, m->q);
        if (m->any_special) {
            clear_specials(st, &rest, m);
        }
        write_row(st, &rest, m->q, m->codes);
    }
}

/* Second walk. */
static void quantise(const dynquant_state_t *st, const place_t *u, int64_t begin, int64_t end,
                     scratch_t *m)
{
    cursor_t c;
    if (begin >= end) {
        return;
    }
    seek_piece(&st->s, begin, &c);
    for (int64_t i = begin, rows = 1; i < end; i += rows, skip_rows(&st->s, &c, rows)) {
        const piece_t p = piece_at(&st->s, u, &c);
        rows = rows_encoded(st, &p, m, rows_in_line(&st->s, &c, end - i));
        if (st->s.tall && !st->s.by_pieces && rows == 1) {
            fetch_row(st, &p);
        }
        const bool again = m->row == NULL || st->s.rows * st->s.pieces > 1;
        quantise_rows(st, &p,
                      st->straight != NULL ? NULL
                      : again              ? read_row(st, &p, m->x)
                                           : m->row,
                      rows, m);
    }
}

/* ---- work ------------------------------------------------------------------------------------ */

static place_t place_of(const quant_space_t *s, const int64_t *at)
{
    place_t u = {0};
    for (int a = 0; a < s->n_unit; a++) {
        u.in += at[a] * s->unit[a].in;
        u.out += at[a] * s->unit[a].out;
        u.high += at[a] * s->unit[a].high;
        u.scale += at[a] * s->unit[a].scale;
        u.zp += at[a] * s->unit[a].zp;
    }
    const int64_t rest = s->group.n - at[s->n_unit - 1] * s->tile;
    u.groups = rest < s->tile ? rest : s->tile;
    return u;
}

static void one_unit(const dynquant_state_t *st, const place_t *u, scratch_t *m)
{
    measure(st, u, 0, st->s.rows * st->s.pieces, m);
    derive(st, u, true, m);
    quantise(st, u, 0, st->s.rows * st->s.pieces, m);
}

static place_t groups_of(const quant_space_t *s, const place_t *u, int64_t from, int64_t n)
{
    return (place_t){.in = u->in + from * s->group.in,
                     .out = u->out + from * s->group.out,
                     .scale = u->scale + from * s->group.scale,
                     .zp = u->zp + from * s->group.zp,
                     .groups = n};
}

/* A run of groups by chunks. Those that hold what is no number, and what does not fill one, go
 * the usual way. */
static void run_by_chunks(const dynquant_state_t *st, const place_t *u, scratch_t *m)
{
    const quant_space_t *s = &st->s;
    dtype_blocks_t b = as_blocks(st);
    const bool whole =
        u->out % dtype_traits(s->out.dtype)->block_elems == 0 && u->zp * b.zp_bits % 8 == 0;
    int64_t done = 0;
    for (b.chunk = dtype_chunk(b.size, b.from); whole && is_chunk(&b, b.chunk); b.chunk /= 2) {
        const int64_t each = b.chunk / b.size;
        while ((b.n = (u->groups - done) / each) > 0) {
            const place_t at = groups_of(s, u, done, each);
            b.codes = s->out.data + code_bytes(s, at.out);
            b.past = s->stream && (uintptr_t)b.codes % CACHE_LINE == 0;
            b.x = s->in.data + at.in * dtype_traits(s->in.dtype)->block_bytes;
            b.scale = s->scale.data + at.scale * b.scale_bytes;
            b.zp = s->has_zp ? s->zp.data + at.zp * b.zp_bits / 8 : NULL;
            const int64_t n = st->out->quantise(&b);
            done += n * each;
            if (n < b.n) {
                const place_t special = groups_of(s, u, done, each);
                one_unit(st, &special, m);
                done += each;
            }
        }
    }
    for (int64_t g = done; g < u->groups; g += s->tile) {
        const place_t rest = groups_of(s, u, g, u->groups - g < s->tile ? u->groups - g : s->tile);
        one_unit(st, &rest, m);
    }
}

/* A box of units. */
static void one_item(const dynquant_state_t *st, const int64_t *item, scratch_t *m)
{
    const quant_space_t *s = &st->s;
    int64_t extent[SINTER_MAX_NDIMS + 1], at[SINTER_MAX_NDIMS + 1],
        within[SINTER_MAX_NDIMS + 1] = {0}, n = 1;
    for (int a = 0; a < s->n_unit; a++) {
        const int64_t rest = s->unit[a].n - item[a] * s->item[a];
        extent[a] = rest < s->item[a] ? rest : s->item[a];
        n *= extent[a];
    }
    for (int64_t i = 0; i < n; i++, walk_next(s->n_unit, extent, within)) {
        for (int a = 0; a < s->n_unit; a++) {
            at[a] = item[a] * s->item[a] + within[a];
        }
        const place_t u = place_of(s, at);
        one_unit(st, &u, m);
    }
}

/* Units begin..end - 1, those that are neighbours as one run. */
static void runs_by_chunks(const dynquant_state_t *st, int64_t begin, int64_t end, scratch_t *m)
{
    const quant_space_t *s = &st->s;
    const int last = s->n_unit - 1;
    int64_t n[SINTER_MAX_NDIMS + 1], at[SINTER_MAX_NDIMS + 1], units;
    for (int a = 0; a < s->n_unit; a++) {
        n[a] = s->unit[a].n;
    }
    for (int64_t i = begin; i < end; i += units) {
        walk_seek(s->n_unit, n, i, at);
        place_t u = place_of(s, at);
        const int64_t groups = s->group.n - at[last] * s->tile;
        units = n[last] - at[last] < end - i ? n[last] - at[last] : end - i;
        u.groups = units * s->tile < groups ? units * s->tile : groups;
        run_by_chunks(st, &u, m);
    }
}

static void work_items(const dynquant_state_t *st, int tid, int nth, scratch_t *m)
{
    const quant_space_t *s = &st->s;
    int64_t begin, end, n[SINTER_MAX_NDIMS + 1], item[SINTER_MAX_NDIMS + 1];
    share(s->n_items, tid, nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    if (st->by_chunks) {
        runs_by_chunks(st, begin, end, m);
        return;
    }
    for (int a = 0; a < s->n_unit; a++) {
        n[a] = (s->unit[a].n + s->item[a] - 1) / s->item[a];
    }
    walk_seek(s->n_unit, n, begin, item);
    for (int64_t i = begin; i < end; i++, walk_next(s->n_unit, n, item)) {
        one_item(st, item, m);
    }
}

/* All threads on every unit: each leaves the extremes of its pieces in shared memory, then
 * merges what all have left. */
static void work_pieces(const dynquant_state_t *st, int phase, int tid, int nth, scratch_t *m,
                        int32_t *shared)
{
    const quant_space_t *s = &st->s;
    const int64_t n_units = quant_units(s), slot = 2 * QUANT_COLUMNS;
    int64_t begin, end, extent[SINTER_MAX_NDIMS + 1], at[SINTER_MAX_NDIMS + 1] = {0};
    share(s->rows * s->pieces, tid, nth, &begin, &end);
    for (int a = 0; a < s->n_unit; a++) {
        extent[a] = s->unit[a].n;
    }
    for (int64_t i = 0; i < n_units; i++, walk_next(s->n_unit, extent, at)) {
        const place_t u = place_of(s, at);
        const int n = (int)n_extremes(st, &u);
        if (phase == 0) {
            int32_t *mine = shared + (i * nth + tid) * slot;
            measure(st, &u, begin, end, m);
            memcpy(mine, m->top, (size_t)n * sizeof *mine);
            if (m->bottom != NULL) {
                memcpy(mine + QUANT_COLUMNS, m->bottom, (size_t)n * sizeof *mine);
            }
            continue;
        }
        clear_extremes(st, &u, m);
        for (int t = 0; t < nth; t++) {
            const int32_t *theirs = shared + (i * nth + t) * slot;
            st->fn->merge(m->top, theirs, n);
            if (m->bottom != NULL) {
                st->fn->merge(m->bottom, theirs + QUANT_COLUMNS, n);
            }
        }
        derive(st, &u, tid == 0, m);
        quantise(st, &u, begin, end, m);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const dynquant_state_t *st = state;
    scratch_t m;
    (void)self, (void)p, (void)config;
    if (quant_units(&st->s) == 0) {
        return;
    }
    carve_scratch(w->scratch, st->formula.kind == QUANT_DYNAMIC_ASYMMETRIC, &m);
    if (st->s.by_pieces) {
        work_pieces(st, w->phase, w->tid, w->nth, &m, w->shared);
    } else if (w->phase == 0) {
        work_items(st, w->tid, w->nth, &m);
    }
    if (st->s.stream) {
        st->fn->stream_end();
    }
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    scratch_t m;
    (void)self, (void)p, (void)arena;
    out->state_bytes = sizeof(dynquant_state_t);
    out->thread_bytes = carve_scratch(NULL, true, &m);
    out->note = "units that stay in a cache, walked twice";
    return sinter_success;
}

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    (void)self;
    return dtype_needs_f64(problem_type(p, p->step->p.dynquant.in))
               ? "the input needs double precision"
               : NULL;
}

const driver_t driver_dynquant_groups = {.step = STEP_DYNQUANT,
                                         .arithmetic = IN_F32,
                                         .phases = 2,
                                         .refuse = refuse,
                                         .setup = setup,
                                         .choose = choose,
                                         .start = start,
                                         .work = work};
