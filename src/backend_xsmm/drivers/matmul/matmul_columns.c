/* The matmul kernels for few rows and weights along N: selection, geometry, and the work around
 * the micro-kernels. What they cannot do goes by panels. */
#include <math.h>
#include <string.h>

#include "backend_xsmm/drivers/common/products.h"
#include "backend_xsmm/drivers/matmul/matmul.h"
#include "backend_xsmm/ukernels/matmul_columns.h"
#include "base/status.h"
#include "graph/tensor.h"

typedef struct columns_config {
    matmul_config_t panel; /* first: see matmul.h */
    const columns_floats_t *floats;
    features_t features;
} columns_config_t;

/* Offsets of B, [group of K][column]: a matrix of its own, which is multiplied with the sums of A's
 * rows over the groups. */
typedef struct columns_offsets {
    const columns_floats_t *floats; /* decodes them; NULL: B has no offsets */
    bool copied;                    /* they are copied as f32 first, one group at a time */
    int64_t group;                  /* rows of B that share them */
} columns_offsets_t;

typedef struct columns_state {
    matmul_state_t panel; /* first: see matmul.h; its panels are ranges of columns here */
    bool sweeps;          /* else by panels */
    applied_t by;
    groups_t zp; /* zero points of B: none if it has offsets */
    columns_offsets_t plus;
    /* columns that have one coefficient: 1 where they are by column, all of a chunk where they
     * are by chunk */
    int unit;
    int part;                    /* columns of a range that end in outputs together */
    float values[16];            /* of the codes of a 4-bit type */
    int16_t order[WIDEST_CHUNK]; /* the element of a chunk at each place */
    int16_t place[WIDEST_CHUNK]; /* the place of each element */
    int32_t pick[WIDEST_CHUNK];  /* by lane: [class][lane] */
} columns_state_t;

/* ---- selection ------------------------------------------------------------------------------- */

static const columns_floats_t *floats_of(const kernel_t *self, const problem_t *p)
{
    return columns_floats(self->needs, problem_type(p, p->step->p.matmul.b.data));
}

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    const columns_floats_t *floats = floats_of(self, p);
    const char *why = matmul_refuse_rows(p, COLUMNS_MOST);
    why = why == NULL ? matmul_refuse_b(p, floats != NULL, floats && floats->unit > 0) : why;
    if (why != NULL) {
        return why;
    }
    if (m->b.zp >= 0 && !m->b.offsets && floats->run[IN_SUMS_SHIFTED][0] == NULL) {
        return "no decoder for zero points of the data type of B";
    }
    if (matmul_stride_of_b(p, 1) > 1 || p->plan->values[m->b.data].shows == IN_BLOCKS) {
        return "B is not contiguous along N";
    }
    const int64_t N = problem_dim(p, m->out_dims, 1), along_k = matmul_stride_of_b(p, 2);
    if (N >= 0 && N < floats->layout.elems) {
        return "B has fewer columns than a vector register has codes";
    }
    return along_k > 0 && along_k * dtype_traits(problem_type(p, m->b.data))->bits % 8 != 0
               ? "rows of B begin within bytes"
               : NULL;
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* Columns that ranges are multiples of: whole chunks and whole groups of the tail. */
static int64_t range_unit(const columns_config_t *c, const matmul_state_t *m)
{
    return c->floats->layout.elems / common_divisor(c->floats->layout.elems, m->tail.cols) *
           m->tail.cols;
}

/* Columns of the widest range. */
static int64_t widest(const columns_config_t *c, const matmul_state_t *m)
{
    const int64_t unit = range_unit(c, m), most = COLUMNS_SUMS / m->rows / unit * unit;
    return most > unit ? most : unit;
}

/* One thread's. */
typedef struct columns_buffers {
    float *acc;              /* for each batch of rows [chunk][vector][row][lane] */
    float *a;                /* for each batch of rows [k][row] */
    float *scale, *zp;       /* coefficients as the micro-kernels read them */
    float *natural, *groups; /* of one row of B: by column, by group */
    float *sums;             /* of A: for each batch of rows [group][row] */
    float *plus;             /* a copy of the offsets of a group, by column */
    float *more;             /* what offsets add, as acc */
} columns_buffers_t;

/* Groups of offsets that a block of K may meet, and one that is not complete. */
enum { COLUMNS_GROUPS = MM_K + 1 };

/* Ranges are widest with one row of A, and sums are most with one chunk and all rows. */
static size_t columns_buffers(const columns_config_t *c, const matmul_state_t *m, bool offsets,
                              unsigned char *base, columns_buffers_t *out)
{
    matmul_state_t one = *m;
    one.rows = 1;
    const int64_t elems = c->floats->layout.elems, unit = range_unit(c, m),
                  all = (m->N + elems - 1) / elems * elems, most = widest(c, &one);
    const int64_t cols = at_most(all, most), few = at_most(all, unit) * COLUMNS_MOST;
    const size_t coefs = (size_t)(cols * COLUMNS_GRAIN / 8) + WIDEST_CHUNK,
                 sums = (size_t)(few > COLUMNS_SUMS ? few : COLUMNS_SUMS);
    size_t at = 0;
    out->acc = carve(base, &at, sums, sizeof(float));
    out->a = carve(base, &at, COLUMNS_MOST * MM_K, sizeof(float));
    out->scale = carve(base, &at, coefs, sizeof(float));
    out->zp = carve(base, &at, coefs, sizeof(float));
    out->natural = carve(base, &at, coefs, sizeof(float));
    out->groups = carve(base, &at, coefs, sizeof(float));
    out->sums = carve(base, &at, offsets ? COLUMNS_GROUPS * COLUMNS_MOST : 0, sizeof(float));
    out->plus = carve(base, &at, offsets ? coefs : 0, sizeof(float));
    out->more = carve(base, &at, offsets ? sums : 0, sizeof(float));
    return at;
}

/* ---- setup ----------------------------------------------------------------------------------- */

/* The bytes for any number of rows. This kernel also runs when the constant cache has no room for
 * tiles of B. */
static size_t reserve_bytes(const columns_config_t *c, const problem_t *p)
{
    const int64_t N = problem_dim(p, p->step->p.matmul.out_dims, 1);
    const matmul_state_t st = {.N = N, .tail = {.cols = 1}};
    columns_buffers_t b;
    return N > 0 && (matmul_rows_of(p) < 0 || p->step->p.matmul.tiled)
               ? columns_buffers(c, &st, p->step->p.matmul.b.offsets, NULL, &b)
               : 0;
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    columns_config_t *c = ARENA_NEW(arena, columns_config_t, 1);
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    textbuf_t note;
    const char *why = matmul_configure_best(self, p, COLUMNS_MOST, &c->panel);
    c->floats = floats_of(self, p);
    c->features = self->needs;
    text_init(&note, arena);
    text_add(&note, "up to %d rows of A where B is contiguous along N: " DECODED_FMA, COLUMNS_MOST);
    if (c->floats->unit > 0) {
        text_add(&note,
                 " if groups along K are of at least %d rows, or those along N are multiples of %d",
                 COLUMNS_GROUP, c->floats->unit);
    }
    text_add(&note, "; all else: ");
    matmul_note(&note, self, &c->panel, why);
    *out = (candidate_t){.config = c,
                         .state_bytes = sizeof(columns_state_t),
                         .share_bytes = matmul_share_bytes(p, &c->panel),
                         .reserve_bytes = reserve_bytes(c, p),
                         .note = note.text};
    return note.oom ? sinter_out_of_memory : sinter_success;
}

/* ---- geometry -------------------------------------------------------------------------------- */

static bool is_long(const groups_t *g, int64_t K)
{
    return g->type == NULL || g->row.group >= COLUMNS_GROUP || g->row.group >= K;
}

/* Columns that have one coefficient in a chunk. */
static int64_t quantum_of(const columns_floats_t *f, const columns_state_t *st)
{
    const groups_t *scale = &st->panel.b.base.scale, *zp = &st->zp;
    const int64_t N = st->panel.N;
    int64_t unit = f->layout.elems;
    /* The last chunk ends with N, which is within a group where the last one is short. */
    if (scale->column.group < N) {
        unit = common_divisor(N, common_divisor(scale->column.group, unit));
    }
    if (zp->type != NULL && zp->column.group < N) {
        unit = common_divisor(N, common_divisor(zp->column.group, unit));
    }
    return unit;
}

/* How scales and zero points reach lanes. */
enum { NO_SCALES, ON_SUMS, ON_CHUNKS, ON_LANES };

static const char *refuse_scales(int way, const void *config, void *state)
{
    const columns_config_t *c = config;
    const columns_state_t *st = state;
    const groups_t *scale = &st->panel.b.base.scale, *zp = &st->zp;
    const int64_t K = st->panel.K;
    if (way == NO_SCALES) {
        return scale->type == NULL ? NULL : "";
    }
    if (way == ON_SUMS && c->floats->bias != NULL && zp->type != NULL &&
        zp->type->cls != DTYPE_INT) {
        return "zero points are no integers"; /* a bias would round them */
    }
    if (way == ON_SUMS) {
        return is_long(scale, K) && is_long(zp, K) ? NULL : "groups along K are short";
    }
    return quantum_of(c->floats, st) == c->floats->layout.elems
               ? NULL
               : "groups along K are short and those along N are no whole chunks";
}

const way_row_t ways_matmul_scales[] = {{"nothing", refuse_scales, NO_SCALES},
                                        {"sums of rows", refuse_scales, ON_SUMS},
                                        {"chunks of codes", refuse_scales, ON_CHUNKS},
                                        {"lanes of codes", NULL, ON_LANES}};

static void choose_scales(const columns_config_t *c, columns_state_t *st, choice_t *choice)
{
    static const applied_t by[] = {
        [NO_SCALES] = NOWHERE, [ON_SUMS] = IN_SUMS, [ON_CHUNKS] = BY_CHUNK, [ON_LANES] = BY_LANE};
    const int way = take_way(ways_matmul_scales, "scales", c, st, choice);
    st->by = way == ON_SUMS && (st->zp.type != NULL || c->floats->bias != NULL) ? IN_SUMS_SHIFTED
                                                                                : by[way];
    st->unit = way >= ON_CHUNKS ? (int)quantum_of(c->floats, st) : 1;
}

static void fill_order(const columns_config_t *c, columns_state_t *st)
{
    const columns_floats_t *f = c->floats;
    const int lanes = f->layout.lanes;
    for (int i = 0; i < f->layout.elems; i++) {
        st->order[i] = (int16_t)f->layout.element(i / lanes, i % lanes);
        st->place[st->order[i]] = (int16_t)i;
    }
    for (int i = 0; i < f->layout.classes * lanes; i++) {
        st->pick[i] =
            f->layout.element(i / lanes * (f->layout.vectors / f->layout.classes), i % lanes) /
            st->unit;
    }
}

static const char *refuse_sweeps(int kind, const void *config, void *state)
{
    const columns_config_t *c = config;
    const columns_state_t *st = state;
    const matmul_state_t *m = &st->panel;
    (void)kind;
    if (m->rows < 1 || m->K < 1) {
        return "there is nothing to multiply";
    }
    if (m->rows > COLUMNS_MOST) {
        return "more than 16 rows share one B";
    }
    if (m->N < c->floats->layout.elems) {
        return "B has fewer columns than a vector register has codes";
    }
    if (m->b.base.codes.column.stride != 1) {
        return "B is not contiguous along N";
    }
    if (!matrices_on_bytes(&m->b, true)) {
        return "rows of B begin within bytes";
    }
    const bool on_lanes = m->b.base.scale.type == NULL ||
                          refuse_scales(ON_SUMS, c, state) == NULL ||
                          quantum_of(c->floats, st) % c->floats->unit == 0;
    return on_lanes ? NULL : "groups along K are short and groups along N do not fall on lanes";
}

enum { SWEEPS, PANELS };
const way_row_t ways_matmul_columns[] = {
    [SWEEPS] = {DECODED_FMA, refuse_sweeps, 0}, [PANELS] = {"panels", NULL, 0}};

/* As many ranges for each share, about equal. */
static void choose_ranges(const columns_config_t *c, int shares, columns_state_t *st)
{
    matmul_state_t *m = &st->panel;
    const int64_t unit = range_unit(c, m), most = widest(c, m), units = (m->N + unit - 1) / unit;
    const int64_t rounds = (units * unit + most * shares - 1) / (most * shares),
                  ranges = rounds * shares;
    m->panel = (int)((units + ranges - 1) / ranges * unit);
    m->n_panels = (m->N + m->panel - 1) / m->panel;
    m->block = COLUMNS_MOST;
    m->n_blocks = 1;
    st->part = m->tail.cols < MM_PANEL ? MM_PANEL / m->tail.cols * m->tail.cols : MM_PANEL;
}

static void bind_offsets(const columns_config_t *c, columns_state_t *st)
{
    const matrix_t *b = &st->panel.b.base;
    st->plus = (columns_offsets_t){.floats = NULL};
    st->zp = b->zp;
    if (!b->offsets) {
        return;
    }
    const groups_t *o = &b->zp;
    st->zp = (groups_t){.type = NULL};
    st->plus.copied = o->column.stride != 1 || o->column.group != 1;
    st->plus.floats = columns_floats(c->features, st->plus.copied ? sinter_f32 : o->dtype);
    st->plus.group = o->row.stride == 0 ? st->panel.K : o->row.group;
}

/* ---- choose ---------------------------------------------------------------------------------- */

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    const columns_config_t *c = config;
    columns_state_t *st = state;
    columns_buffers_t b;
    SG_TRY(matmul_bind(self, p, &c->panel, &st->panel));
    bind_offsets(c, st);
    const size_t panel = matmul_shared(&c->panel, &st->panel),
                 own = columns_buffers(c, &st->panel, st->plus.floats != NULL, NULL, &b) *
                       (size_t)p->frame->shares;
    choice->shared_bytes = own > panel ? own : panel;
    st->sweeps = take_way(ways_matmul_columns, NULL, c, st, choice) == SWEEPS;
    if (!st->sweeps) {
        matmul_add_ways(&c->panel, &st->panel, choice);
        choice->first = matmul_first_phase(&st->panel);
        return sinter_success;
    }
    choose_scales(c, st, choice);
    memset(st->values, 0, sizeof st->values);
    const dtype_traits_t *type = st->panel.b.base.codes.type;
    if (type->bits == 4) {
        dtype_nibble_values(&type->codec, st->values);
    }
    fill_order(c, st);
    /* Where sums of A or offsets are not finite, ranges go by panels of floats. */
    st->panel.blocks = (blocks_state_t){0};
    choose_ranges(c, p->frame->shares, st);
    SG_TRY(matmul_count(p->step, &st->panel));
    choice->shares_bytes = st->panel.shares_bytes;
    choice->first = 1;
    return sinter_success;
}

/* ---- work ------------------------------------------------------------------------------------ */

typedef struct columns_task {
    matmul_task_t t; /* of the range */
    const columns_config_t *c;
    const columns_state_t *st;
    columns_buffers_t buf;
    int chunks;
    int64_t last;  /* column of the range where the last chunk begins; it may be before the range */
    int64_t first; /* the first column that is decoded: that of the range or that one */
    int64_t scale_line, zp_line; /* by column: the groups along K that are there, -1: none */
    const char *why;             /* why the range goes by panels; NULL: it does not */
} columns_task_t;

/* The detours of a range whose sums may leave the range of floats before they are scaled. */
static const char odd_rows[] = "some by panels (rows of A are not finite, too small or too large)",
                  odd_scales[] = "some by panels (scales are not finite)",
                  odd_offsets[] = "some by panels (offsets are not finite or too large)";

/* The zero points of the range: none if these are offsets. */
static const groups_t *zps_of(const columns_task_t *w)
{
    return w->t.b.offsets ? &w->st->zp : &w->t.b.zp;
}

static int64_t chunk_begin(const columns_task_t *w, int c)
{
    return c + 1 < w->chunks ? (int64_t)c * w->c->floats->layout.elems : w->last;
}

/* The last chunk ends with the byte that the range ends in. */
static void seek_range(columns_task_t *w)
{
    const int elems = w->c->floats->layout.elems, per = w->t.b.codes.type->bits == 4 ? 2 : 1;
    w->chunks = (w->t.cols + elems - 1) / elems;
    w->last = (w->t.cols + per - 1) / per * per - elems;
    w->first = w->last < 0 ? w->last : 0;
    w->scale_line = w->zp_line = -1;
}

/* to[i] is the value of column n0 + i * unit of row k, i < n; groups are no smaller than units. */
static void load_units(const columns_task_t *w, const groups_t *g, int64_t k, int64_t n0, int unit,
                       int n, float *to)
{
    const int64_t group = g->column.group, stride = g->column.stride, g0 = n0 / group,
                  groups = (n0 + (int64_t)(n - 1) * unit) / group - g0 + 1;
    float *values = group == unit ? to : w->buf.groups;
    groups_load(g, w->c->features, groups_at(g, k, n0), stride, groups, values);
    for (int64_t i = 0, at = 0, column = n0; values != to && at < groups; at++) {
        for (; i < n && column < (g0 + at + 1) * group; i++, column += unit) {
            to[i] = values[at];
        }
    }
}

/* Whether sums of products with n elements from element `at` of the block on of each row may be
 * scaled. */
static bool rows_in_product_range(const columns_task_t *w, int at, int n)
{
    bool in_product_range = true;
    for (int r = 0; r < w->t.rows; r++) {
        int32_t bits[COLUMNS_GRAIN], most = 0;
        memcpy(bits, w->t.buf.a + (size_t)r * MM_LDA + at, (size_t)n * sizeof *bits);
        for (int i = 0; i < n; i++) {
            const int32_t size = bits[i] & INT32_MAX;
            most = size > most ? size : most;
        }
        in_product_range = in_product_range && is_in_product_range(most);
    }
    return in_product_range;
}

/* The values of row k for all columns; half of the codes of the step, from `codes` on in rows of
 * `stride` bytes, are fetched meanwhile. False: some are not finite. */
static bool load_columns(const columns_task_t *w, const groups_t *g, int64_t k, const float *bias,
                         const unsigned char *codes, int64_t stride, float *to)
{
    const int n = (int)(w->t.cols - w->first), elems = w->c->floats->layout.elems;
    const int64_t bytes = elems * w->t.b.codes.type->bits / 8;
    float *x = w->buf.natural;
    bool finite = true;
    if (g->type != NULL) {
        load_units(w, g, k, w->t.n0 + w->first, 1, n, x);
        x[n] = 0; /* a neighbour that is decoded */
    } else {
        memset(x, 0, (size_t)(n + 1) * sizeof *x);
    }
    for (int c = 0; c < w->chunks; c++) {
        for (int row = 0; row < COLUMNS_GRAIN / 2; row++) {
            __builtin_prefetch(codes + row * stride + c * bytes);
        }
        finite = w->c->floats->arrange(x + chunk_begin(w, c) - w->first, bias,
                                       to + (size_t)c * (size_t)elems) &&
                 finite;
    }
    return finite;
}

static void load_scales(columns_task_t *w, int64_t k, const columns_sweep_t *next)
{
    const groups_t *g = &w->t.b.scale;
    const int64_t line = k / g->row.group;
    if (line != w->scale_line) {
        const bool fit =
            load_columns(w, g, k, NULL, next->codes.data, next->codes.stride, w->buf.scale);
        w->why = fit ? w->why : odd_scales;
        w->scale_line = line;
    }
}

static void load_zps(columns_task_t *w, int64_t k, const columns_sweep_t *next)
{
    const groups_t *g = zps_of(w);
    const int64_t line = g->type != NULL ? k / g->row.group : 0;
    if (line != w->zp_line) {
        const code_rows_t *codes = &next->codes;
        load_columns(w, g, k, w->c->floats->bias, codes->data + COLUMNS_GRAIN / 2 * codes->stride,
                     codes->stride, w->buf.zp);
        w->zp_line = line;
    }
}

/* Rows from k on, at most n, that have the same value. */
static int rows_left(const groups_t *g, int64_t k, int n)
{
    return g->type != NULL ? (int)at_most(g->row.group - k % g->row.group, n) : n;
}

/* Rows k to k + n of B: those of each chunk, next to each other. */
static void load_rows(const columns_task_t *w, const groups_t *g, int64_t k, int n, int64_t ld,
                      float *to)
{
    const int unit = w->st->unit, step = w->c->floats->layout.elems / unit,
              units = (int)((w->t.cols - w->first + unit - 1) / unit);
    for (int i = 0; i < n; i++, to += ld) {
        if (g->type == NULL) {
            memset(to, 0, (size_t)ld * sizeof *to);
            continue;
        }
        if (i > 0 && (k + i) % g->row.group != 0) {
            memcpy(to, to - ld, (size_t)ld * sizeof *to);
            continue;
        }
        load_units(w, g, k + i, w->t.n0 + w->first, unit, units, to);
        const int64_t last = (w->last - w->first) / unit, place = (int64_t)(w->chunks - 1) * step;
        if (last != place) {
            memmove(to + place, to + last, (size_t)step * sizeof *to);
        }
    }
}

/* Coefficients from row k of B on; gives how many of n rows they are for. */
static int load_coefs(columns_task_t *w, int64_t k, int n, const columns_sweep_t *sweep)
{
    const groups_t *scale = &w->t.b.scale, *zp = zps_of(w);
    if (w->st->by == BY_CHUNK || w->st->by == BY_LANE) {
        load_rows(w, scale, k, n, sweep->codes.scale.ld, w->buf.scale);
        load_rows(w, zp, k, n, sweep->codes.zp.ld, w->buf.zp);
    } else if (w->st->by != NOWHERE) {
        load_scales(w, k, sweep);
        load_zps(w, k, sweep);
        n = rows_left(zp, k, rows_left(scale, k, n));
    }
    return n;
}

/* Elements k to k + kn of all rows of A, to where the micro-kernels want them. */
static void load_a(columns_task_t *w, int64_t k, int kn)
{
    matmul_load_a(&w->t, k, kn);
    for (int r = 0, n; r < w->t.rows; r += n) {
        float *to = w->buf.a + (size_t)r * MM_K;
        n = rows_batch(w->t.rows - r);
        for (int i = 0; i < n; i++) {
            for (int e = 0; e < kn; e++) {
                to[e * n + i] = w->t.buf.a[(size_t)(r + i) * MM_LDA + e];
            }
        }
    }
}

/* The coefficients of a step: those of each chunk of a row lie next to each other. */
static code_coefs_t coefs_at(const columns_task_t *w, const float *at)
{
    const int step = w->c->floats->layout.elems / w->st->unit;
    return (code_coefs_t){
        .at = at, .step = step, .ld = (int64_t)w->chunks * step, .pick = w->st->pick};
}

/* The product of kn elements of K from k on is added to the sums, unless the range goes by
 * panels. */
static void add(columns_task_t *w, int64_t k, int kn)
{
    const groups_t *b = &w->t.b.codes;
    const int bits = b->type->bits;
    const int64_t stride = b->row.stride * bits / 8;
    const columns_floats_t *f = w->c->floats;
    const applied_t by = w->st->by;
    const size_t sums = (size_t)w->chunks * (size_t)f->layout.elems;
    const int distance = COLUMNS_AHEAD / (f->layout.elems * bits / 8);
    columns_sweep_t sweep = {.codes = {.stride = stride,
                                       .scale = coefs_at(w, w->buf.scale),
                                       .zp = coefs_at(w, w->buf.zp),
                                       .floats.values = w->st->values},
                             .chunks = w->chunks,
                             .last = w->last * bits / 8,
                             .distance = distance < w->chunks ? distance : w->chunks,
                             .next = stride * COLUMNS_GRAIN};
    for (int e = 0; e < kn; e += sweep.codes.rows) {
        const int left = (int)at_most(kn - e, COLUMNS_GRAIN);
        sweep.codes.data = groups_byte(b, codes_at(b, k + e, w->t.n0));
        sweep.codes.rows = load_coefs(w, k + e, left, &sweep);
        if ((by == IN_SUMS || by == IN_SUMS_SHIFTED) &&
            !rows_in_product_range(w, e, sweep.codes.rows)) {
            w->why = odd_rows;
        }
        if (w->why != NULL) {
            return;
        }
        for (int r = 0, n; r < w->t.rows; r += n) {
            n = rows_batch(w->t.rows - r);
            f->run[by][n / 2](&sweep, w->buf.a + (size_t)r * MM_K + (size_t)(e * n),
                              w->buf.acc + (size_t)r * sums);
        }
    }
}

/* Sums of columns from c on, in their order, to where the post chain wants them. */
static void collect(columns_task_t *w, int c, int cols)
{
    const columns_floats_t *f = w->c->floats;
    const size_t sums = (size_t)w->chunks * (size_t)f->layout.elems;
    const int lanes = f->layout.lanes;
    for (int r = 0, n; r < w->t.rows; r += n) {
        const float *acc = w->buf.acc + (size_t)r * sums;
        n = rows_batch(w->t.rows - r);
        for (int i = 0; i < cols; i++) {
            const int chunk = (c + i) / f->layout.elems < w->chunks - 1 ? (c + i) / f->layout.elems
                                                                        : w->chunks - 1;
            const int place = w->st->place[c + i - chunk_begin(w, chunk)];
            const float *from =
                acc +
                ((size_t)chunk * (size_t)f->layout.elems + (size_t)(place / lanes * lanes)) *
                    (size_t)n +
                place % lanes;
            for (int k = 0; k < n; k++) {
                w->t.buf.acc[(size_t)(r + k) * MM_PANEL + i] = from[k * lanes];
            }
        }
    }
}

/* ---- offsets --------------------------------------------------------------------------------- */

/* Adds elements k to k + kn of all rows of A to the sums, of which the first is that of group g. */
static void add_sums(columns_task_t *w, int64_t k, int kn, int64_t g)
{
    const int64_t group = w->st->plus.group;
    for (int r = 0, n; r < w->t.rows; r += n) {
        n = rows_batch(w->t.rows - r);
        for (int i = 0; i < n; i++) {
            const float *x = w->t.buf.a + (size_t)(r + i) * MM_LDA;
            float *sums = w->buf.sums + (size_t)r * COLUMNS_GROUPS + i, size = 0;
            for (int64_t e = 0, len; e < kn; e += len) {
                float sum = 0;
                len = at_most(kn - e, group - (k + e) % group);
                for (int64_t j = e; j < e + len; j++) {
                    sum += x[j];
                    size += fabsf(x[j]);
                }
                sums[((k + e) / group - g) * n] += sum;
            }
            w->why = size < 0x1p100f ? w->why : odd_rows;
        }
    }
}

/* more += the sums of n groups from g on times their offsets; `first` is the group of the first
 * sum. Offsets that lie along N are read where they are. */
static void add_offsets(const columns_task_t *w, int64_t first, int64_t g, int n)
{
    const columns_offsets_t *plus = &w->st->plus;
    const groups_t *o = &w->t.b.zp;
    const int elems = plus->floats->layout.elems, chunks = (w->t.cols + elems - 1) / elems;
    const int64_t bytes = plus->copied ? (int64_t)sizeof(float) : o->type->bits / 8,
                  last = plus->copied ? (int64_t)(chunks - 1) * elems : w->t.cols - elems,
                  distance = COLUMNS_AHEAD / (elems * bytes);
    columns_sweep_t sweep = {.codes = {.data = (const unsigned char *)w->buf.plus,
                                       .stride = o->row.stride * bytes,
                                       .rows = n},
                             .chunks = chunks,
                             .last = last * bytes,
                             .distance = (int)at_most(distance, chunks),
                             .next = o->row.stride * bytes * n};
    if (!plus->copied) {
        sweep.codes.data = groups_byte(o, groups_at(o, g * plus->group, w->t.n0));
    } else {
        load_units(w, o, g * plus->group, w->t.n0, 1, w->t.cols, w->buf.plus);
        memset(w->buf.plus + w->t.cols, 0, (size_t)(chunks * elems - w->t.cols) * sizeof(float));
    }
    for (int r = 0, m; r < w->t.rows; r += m) {
        m = rows_batch(w->t.rows - r);
        plus->floats->run[NOWHERE][m / 2](
            &sweep, w->buf.sums + (size_t)r * COLUMNS_GROUPS + (size_t)((g - first) * m),
            w->buf.more + (size_t)r * (size_t)(chunks * elems));
    }
}

/* Of elements k to k + kn of K. first: the group of the first sum; gives that of the first that is
 * not complete, which is then the first. */
static int64_t add_block(columns_task_t *w, int64_t k, int kn, int64_t first)
{
    const columns_offsets_t *plus = &w->st->plus;
    const int64_t end = k + kn,
                  to = end == w->st->panel.K ? (end - 1) / plus->group + 1 : end / plus->group;
    add_sums(w, k, kn, first);
    for (int64_t g = first, n; g < to; g += n) {
        n = at_most(to - g, plus->copied ? 1 : COLUMNS_GRAIN);
        add_offsets(w, first, g, (int)n);
    }
    for (int r = 0, n; r < w->t.rows; r += n) {
        n = rows_batch(w->t.rows - r);
        float *sums = w->buf.sums + (size_t)r * COLUMNS_GROUPS;
        const size_t size = (size_t)n * sizeof *sums;
        if (to > first) {
            memcpy(sums, sums + (to - first) * n, size);
            memset(sums + n, 0, size * (COLUMNS_GROUPS - 1));
        }
    }
    return to;
}

/* The panel's sums, of columns from c of the range on, += what offsets add. False: the one or the
 * other is not finite, though their total may be. */
static bool collect_offsets(const columns_task_t *w, int c, int cols)
{
    const columns_offsets_t *plus = &w->st->plus;
    const int lanes = plus->floats->layout.lanes, elems = plus->floats->layout.elems,
              chunks = (w->t.cols + elems - 1) / elems,
              /* columns that the last chunk begins before its place */
        back = plus->copied ? 0 : chunks * elems - w->t.cols;
    float none = 0;
    for (int r = 0, n; r < w->t.rows; r += n) {
        const float *more = w->buf.more + (size_t)r * (size_t)(chunks * elems);
        n = rows_batch(w->t.rows - r);
        for (int i = 0; i < cols; i++) {
            const int at = c + i + (c + i >= (chunks - 1) * elems ? back : 0);
            for (int k = 0; k < n; k++) {
                const float x =
                    more[(size_t)(at / lanes * n + k) * (size_t)lanes + (size_t)(at % lanes)];
                float *sum = &w->t.buf.acc[(size_t)(r + k) * MM_PANEL + i];
                *sum += x;
                none += *sum * 0;
            }
        }
    }
    return none == 0;
}

/* ---- ranges ---------------------------------------------------------------------------------- */

static void range(columns_task_t *w)
{
    const int64_t K = w->st->panel.K, n0 = w->t.n0;
    const int cols = w->t.cols;
    seek_range(w);
    memset(w->buf.acc, 0,
           (size_t)w->chunks * (size_t)w->c->floats->layout.elems * (size_t)w->t.rows *
               sizeof(float));
    int64_t first = 0;
    w->why = NULL;
    if (w->st->plus.floats != NULL) {
        const size_t elems = (size_t)w->st->plus.floats->layout.elems;
        memset(w->buf.sums, 0, (size_t)(COLUMNS_GROUPS * COLUMNS_MOST) * sizeof(float));
        memset(w->buf.more, 0,
               ((size_t)cols + elems - 1) / elems * elems * (size_t)w->t.rows * sizeof(float));
    }
    for (int64_t k = 0; k < K && w->why == NULL; k += MM_K) {
        const int kn = (int)at_most(K - k, MM_K);
        load_a(w, k, kn);
        add(w, k, kn);
        if (w->st->plus.floats != NULL && w->why == NULL) {
            first = add_block(w, k, kn, first);
        }
    }
    for (int c = 0; c < cols; c += w->st->part) {
        const int n = (int)at_most(cols - c, w->st->part);
        collect(w, c, n);
        const char *why = w->why != NULL                                            ? w->why
                          : w->st->plus.floats != NULL && !collect_offsets(w, c, n) ? odd_offsets
                                                                                    : NULL;
        w->t.n0 = n0 + c;
        w->t.cols = n;
        if (why != NULL) {
            report_detour(w->t.worker, why);
            matmul_panel(&w->t);
        }
        matmul_finish(&w->t);
        w->t.n0 = n0;
        w->t.cols = cols;
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const columns_state_t *st = state;
    const columns_config_t *c = config;
    const matmul_state_t *m = &st->panel;
    if (!st->sweeps) {
        matmul_work(self, p, config, state, w);
        return;
    }
    if (w->phase == 0) {
        return;
    }
    columns_task_t t = {.t = {.c = &c->panel, .st = m, .worker = w, .tail = p->step->tail != NULL},
                        .c = c,
                        .st = st};
    int64_t begin, end;
    share(m->items, w->tid, w->nth, &begin, &end);
    matmul_buffers(&c->panel, p->step, w->scratch, &t.t.buf);
    const size_t own = columns_buffers(c, m, st->plus.floats != NULL, NULL, &t.buf);
    columns_buffers(c, m, st->plus.floats != NULL,
                    (unsigned char *)w->shared + own * (size_t)w->tid, &t.buf);
    for (int64_t i = begin; i < end; i++) {
        matmul_seek(&t.t, i);
        range(&t);
    }
}

const driver_t driver_matmul_columns = {.step = STEP_MATMUL,
                                        .arithmetic = IN_F32,
                                        .phases = 2,
                                        .takes = "up to 16 rows that share one B",
                                        .refuse = refuse,
                                        .setup = setup,
                                        .choose = choose,
                                        .start = matmul_start,
                                        .work = work};
