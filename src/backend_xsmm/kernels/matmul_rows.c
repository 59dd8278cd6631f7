/* The matmul kernels for few rows: selection, geometry, and the work around the micro-kernels. More rows than that, other layouts, and rows of A
 * that are no numbers go by panels. */
#include "matmul_rows.h"

#include <string.h>

#include "../../graph/status.h"
#include "../../graph/tensor.h"
#include "products.h"

const rows_table_t *rows_table(sinter_cpu_isa_t isa)
{
#if defined(__x86_64__)
    if (isa >= sinter_isa_avx512_vnni) {
        return &rows_table_avx512_vnni;
    }
#endif
    (void)isa;
    return NULL;
}

const rows_floats_table_t *rows_floats_table(sinter_cpu_isa_t isa)
{
#if defined(__x86_64__)
    if (isa >= sinter_isa_avx512) {
        return &rows_floats_avx512;
    }
    if (isa >= sinter_isa_avx2) {
        return &rows_floats_avx2;
    }
#endif
    (void)isa;
    return NULL;
}

enum { WIDEST_CHUNK = 128 }; /* elements */

typedef struct rows_config {
    matmul_config_t panel; /* first: see matmul.h */
    const rows_table_t *table;
    const rows_ops_t *ops; /* in integers, NULL: not */
    int limbs;
    bool codes;                  /* A is codes */
    const rows_floats_t *floats; /* NULL: not */
    int lanes;
} rows_config_t;

/* How one execute is done. */
typedef enum rows_way { BY_PANELS, IN_INTEGERS, IN_FLOATS } rows_way_t;

/* Scales or zero points of one execute. */
typedef struct rows_groups {
    const dtype_bulk_t *bulk; /* NULL: there are none */
    const dtype_codec_t *codec;
    const unsigned char *base;
    int64_t stride, line_stride, line_group; /* from group to group; from line group to line group; lines in one */
    int64_t groups, times;                   /* of a line; units that each becomes */
    int bits;                                /* of each */
    int step, shift;                         /* as in rows_coefs_t */
    int32_t pick[WIDEST_CHUNK];              /* in floats: [class][lane] */
} rows_groups_t;

typedef struct rows_state {
    matmul_state_t panel; /* first: see matmul.h */
    rows_way_t way;
    int elems;                  /* of a chunk */
    int64_t chunks, bytes;      /* of a line */
    int64_t units;              /* room for the units of a line */
    int64_t ahead, ahead_lines; /* bytes, and lines that they are */
    rows_groups_t scale, zp;
    unsigned char table[16]; /* of 4-bit types: bytes of codes */
    float values[16];        /* and what they stand for */
} rows_state_t;

/* ---- selection ------------------------------------------------------------------------------------------------------------------ */

static const rows_ops_t *ops_of(const plan_t *plan, int value)
{
    const rows_table_t *table = rows_table(plan->isa);
    const sinter_data_type_t type = plan->values[value].lt.data_type;
    return table && (int)type < table->n_ops && table->ops[type].elems > 0 ? &table->ops[type] : NULL;
}

static const rows_floats_t *floats_of(sinter_cpu_isa_t isa, const plan_t *plan, int value)
{
    const rows_floats_table_t *table = rows_floats_table(isa);
    const sinter_data_type_t type = plan->values[value].lt.data_type;
    return table && (int)type < table->n_ops && table->ops[type].elems > 0 ? &table->ops[type] : NULL;
}

static const char *refuse_floats(const plan_t *plan, const step_t *step)
{
    const operand_t *b = &step->p.matmul.b;
    const rows_floats_t *floats = floats_of(plan->isa, plan, b->data);
    if (matmul_known_rows(plan, step) > ROWS_MOST) {
        return "more than 16 rows share one B";
    }
    const char *why = matmul_refuse_b(plan, b, floats != NULL, floats && floats->unit > 0);
    if (why != NULL) {
        return why;
    }
    return matmul_stride_of_b(plan, step, 2) > 1 ? "B is not contiguous along K" : NULL;
}

static const char *refuse_codes(const plan_t *plan, const step_t *step)
{
    const operand_t *a = &step->p.matmul.a;
    const bool codes = blocks_of_codes(plan, step);
    if (!codes && limbs_of(step->mode) == 0) {
        return "the fpmath mode does not allow products of integers with floats";
    }
    if (!ops_of(plan, step->p.matmul.b.data)) {
        return "no decoder for the data type of B";
    }
    if (!codes && (a->scale >= 0 || dtype_traits(plan->values[a->data].lt.data_type)->bits < 16)) {
        return "codes of A are no small integers, or their zero points none";
    }
    return refuse_floats(plan, step);
}

/* What codes less their zero points are within. */
typedef struct range {
    int least, most;
} range_t;

static range_t range_of(sinter_data_type_t type, int steps)
{
    const dtype_traits_t *t = dtype_traits(type);
    const bool is_signed = t->digits < t->bits;
    if (t->cls != DTYPE_INT) {
        return (range_t){-6 * steps, 6 * steps}; /* f4_e2m1 */
    }
    return t->bits > 8 ? (range_t){-MATMUL_ZP_MOST * steps, MATMUL_ZP_MOST * steps}
           : is_signed ? (range_t){-(steps << (t->bits - 1)), steps * ((1 << (t->bits - 1)) - 1)}
                       : (range_t){0, steps * ((1 << t->bits) - 1)};
}

/* Bytes of a code of A less its zero point. */
static int code_limbs(const plan_t *plan, const step_t *step)
{
    const operand_t *a = &step->p.matmul.a;
    const sinter_data_type_t type = plan->values[a->data].lt.data_type;
    const int steps = (int)blocks_steps(type);
    const range_t code = range_of(type, steps), none = {0, 0}, zp = a->zp < 0 ? none : range_of(plan->values[a->zp].lt.data_type, steps);
    return code.least - zp.most >= -128 && code.most - zp.least <= 127 ? 1 : 2;
}

static sinter_status_t setup(plan_t *plan, step_t *step)
{
    rows_config_t *c = ARENA_NEW(&plan->arena, rows_config_t, 1);
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    textbuf_t note;
    const char *why = matmul_configure_best(plan, step, &c->panel);
    if (step->kernel->refuse == refuse_codes) {
        c->table = rows_table(plan->isa);
        c->ops = ops_of(plan, step->p.matmul.b.data);
        c->codes = blocks_of_codes(plan, step);
        c->limbs = c->codes ? code_limbs(plan, step) : limbs_of(step->mode);
    }
    c->floats = floats_of(step->kernel->isa, plan, step->p.matmul.b.data);
    c->lanes = rows_floats_table(step->kernel->isa)->lanes;
    text_init(&note, &plan->arena);
    text_add(&note, "up to %d rows of A where B is contiguous along K: ", ROWS_MOST);
    if (c->ops) {
        text_add(&note, "%s if groups along K are multiples of %d, else ",
                 c->codes ? "exact products of codes (VNNI)" : limbs_name(c->limbs), c->ops->elems / ROWS_QUADS);
    }
    text_add(&note, "f32 FMA on decoded registers");
    if (c->floats->unit > 1) {
        text_add(&note, " if they are multiples of %d", c->floats->unit);
    }
    text_add(&note, "; all else: ");
    matmul_note(&note, step, &c->panel, why);
    step->jit = c;
    step->state_bytes = sizeof(rows_state_t);
    step->note = note.text;
    return note.oom ? sinter_out_of_memory : sinter_success;
}

/* ---- geometry ------------------------------------------------------------------------------------------------------------------- */

/* Scales or zero points by units, which are multiples of `least`; times 0: they are not. per: floats of a unit. */
static rows_groups_t groups_of(const tile_src_t *b, bool zps, int elems, int least, int per, sinter_cpu_isa_t isa, int64_t K)
{
    const int64_t group = zps ? b->zp_gr : b->scale_gr;
    rows_groups_t g = {.base = zps ? b->zp : b->scale, .stride = zps ? b->zp_rs : b->scale_rs, .times = 1};
    if (zps ? b->zp_type == NULL : b->scale_type == NULL) {
        return g;
    }
    g.bulk = dtype_bulk(zps ? b->zp_dtype : b->scale_dtype, isa);
    g.codec = &(zps ? b->zp_type : b->scale_type)->codec;
    g.bits = (zps ? b->zp_type : b->scale_type)->bits;
    g.line_stride = zps ? b->zp_cs : b->scale_cs;
    g.line_group = zps ? b->zp_gc : b->scale_gc;
    g.groups = g.stride == 0 ? 1 : K / group;
    if (g.groups == 1) {
        return g;
    }
    const int64_t unit = common_divisor(group, elems), units = group / unit;
    const bool shifts = unit == elems && (units & (units - 1)) == 0;
    g.times = unit % least != 0 ? 0 : shifts ? 1 : units;
    g.step = (int)(per * elems / unit);
    g.shift = shifts ? __builtin_ctzll((unsigned long long)units) : 0;
    return g;
}

/* Whether scales and zero points of A change between quads only. */
static bool codes_by_quads(const tile_src_t *a, int quad, int64_t K)
{
    const bool scale = a->scale_cs == 0 || a->scale_gc >= K || a->scale_gc % quad == 0;
    return scale && (a->zp_type == NULL || a->zp_cs == 0 || a->zp_gc >= K || a->zp_gc % quad == 0);
}

static bool bind_integers(const rows_config_t *c, sinter_cpu_isa_t isa, rows_state_t *st)
{
    const tile_src_t *b = &st->panel.b.base;
    const int elems = c->ops ? c->ops->elems : 0, quad = elems / ROWS_QUADS;
    if (!c->ops) {
        return false;
    }
    st->elems = elems;
    st->scale = groups_of(b, false, elems, quad, ROWS_LINES, isa, st->panel.K);
    st->zp = groups_of(b, true, elems, quad, ROWS_LINES, isa, st->panel.K);
    return st->scale.times > 0 && st->zp.times > 0 && (!c->codes || codes_by_quads(&st->panel.a.base, quad, st->panel.K));
}

/* The unit in its chunk that lanes of a class get their coefficient from. */
static void fill_pick(const rows_config_t *c, rows_groups_t *g)
{
    const rows_floats_t *f = c->floats;
    const int unit = f->elems / (g->step > 1 ? g->step : 1);
    for (int i = 0; i < f->classes * c->lanes; i++) {
        g->pick[i] = f->element(i / c->lanes * (f->vectors / f->classes), i % c->lanes) / unit;
    }
}

static bool bind_floats(const rows_config_t *c, sinter_cpu_isa_t isa, rows_state_t *st)
{
    const rows_floats_t *f = c->floats;
    const tile_src_t *b = &st->panel.b.base;
    if (st->panel.K % f->multiple != 0) {
        return false;
    }
    st->elems = f->elems;
    st->scale = groups_of(b, false, f->elems, f->unit, 1, isa, st->panel.K);
    st->zp = groups_of(b, true, f->elems, f->unit, 1, isa, st->panel.K);
    fill_pick(c, &st->scale);
    fill_pick(c, &st->zp);
    return st->scale.times > 0 && st->zp.times > 0;
}

/* How the micro-kernels can do this execute, if they can. */
static void bind_rows(const rows_config_t *c, sinter_cpu_isa_t isa, rows_state_t *st)
{
    const tile_operand_t *b = &st->panel.b;
    const int64_t K = st->panel.K, four = ROWS_LINES * (b->base.cs * b->base.type->bits / 8);
    st->way = BY_PANELS;
    if (st->panel.rows < 1 || st->panel.rows > ROWS_MOST || K < 1 || b->base.rs != 1 || !matmul_on_bytes(b, b->base.cs, b->dims[b->ndims - 1])) {
        return;
    }
    st->way = bind_integers(c, isa, st) ? IN_INTEGERS : bind_floats(c, isa, st) ? IN_FLOATS : BY_PANELS;
    if (st->way == BY_PANELS) {
        return;
    }
    st->chunks = (K + st->elems - 1) / st->elems;
    st->bytes = (K * b->base.type->bits + 7) / 8;
    st->units = (st->chunks * 16 + 31) / 16 * 16;
    st->ahead = four > 0 ? (ROWS_AHEAD + four - 1) / four * four : ROWS_AHEAD;
    st->ahead_lines = four > 0 ? st->ahead / four * ROWS_LINES : 0;
}

/* Columns of the thread that has most of them. */
static int64_t most_columns(const matmul_state_t *m, int64_t panel, int threads)
{
    const int64_t all = (m->N + panel - 1) / panel * m->mats;
    return (all + threads - 1) / threads * panel;
}

/* Panels of whole fours and whole groups of the tail, large enough for what each costs, of which threads have the same number. */
static void choose_panel(rows_state_t *st, int threads)
{
    matmul_state_t *m = &st->panel;
    int unit = 16;
    while (unit % m->tail.cols != 0 && unit < MM_PANEL) {
        unit += 16;
    }
    const int64_t most = unit < MM_PANEL ? MM_PANEL / unit * unit : MM_PANEL;
    const int64_t least = (((int64_t)1 << 16) / (st->bytes > 0 ? st->bytes : 1) + unit - 1) / unit * unit;
    m->panel = (int)most;
    for (int64_t panel = most - unit; panel >= least && panel >= unit; panel -= unit) {
        if (most_columns(m, panel, threads) < most_columns(m, m->panel, threads)) {
            m->panel = (int)panel;
        }
    }
    m->n_panels = (m->N + m->panel - 1) / m->panel;
    m->block = ROWS_MOST;
    m->n_blocks = 1;
}

static void fill_table(const rows_ops_t *ops, rows_state_t *st)
{
    if (st->panel.b.base.type->bits == 4) {
        dtype_nibble_values(&st->panel.b.base.type->codec, st->values);
    }
    for (int i = 0; i < 16 && ops && ops->table; i++) {
        st->table[i] = (unsigned char)(st->values[i] / ops->unit + (float)ops->offset);
    }
}

static sinter_status_t prepare(const plan_t *plan, const step_t *step, const frame_t *frame, void *state)
{
    const rows_config_t *c = step->jit;
    rows_state_t *st = state;
    SG_TRY(matmul_prepare(plan, step, frame, &st->panel));
    bind_rows(c, step->kernel->isa, st);
    if (st->way == BY_PANELS) {
        return sinter_success;
    }
    st->panel.blocks = (blocks_state_t){0}; /* rows that are not for integers here are not for them there */
    memset(st->values, 0, sizeof st->values);
    fill_table(c->ops, st);
    choose_panel(st, frame->threads);
    return matmul_count(step, &st->panel);
}

/* ---- memory --------------------------------------------------------------------------------------------------------------------- */

/* One thread's: A as the micro-kernels want it, and coefficients of four lines. */
typedef struct rows_buffers {
    rows_codes_t *codes; /* [chunk][row] */
    float *q;            /* see rows_floats_t */
    float *raw, *raw_zp; /* [line][units] */
    float *scale;        /* [unit][line] */
    int32_t *zp;
} rows_buffers_t;

static size_t rows_buffers(const rows_state_t *st, unsigned char *base, rows_buffers_t *out)
{
    const size_t units = (size_t)st->units * ROWS_LINES, chunks = (size_t)st->chunks * (size_t)st->panel.rows;
    const bool integers = st->way == IN_INTEGERS;
    size_t at = 0;
    out->codes = carve(base, &at, integers ? chunks : 0, sizeof(rows_codes_t));
    out->scale = carve(base, &at, integers ? units : 0, sizeof(float));
    out->zp = carve(base, &at, integers ? units : 0, sizeof(int32_t));
    out->q = carve(base, &at, integers ? 0 : chunks * (size_t)st->elems, sizeof(float));
    out->raw = carve(base, &at, units, sizeof(float));
    out->raw_zp = carve(base, &at, units, sizeof(float));
    return at;
}

/* Where M is not known at compile, as much as the most rows need, however many there are now: engines that call with a few rows and then with
 * more allocate once. */
static size_t shared_bytes(const plan_t *plan, const step_t *step, const frame_t *frame)
{
    rows_state_t st;
    rows_buffers_t b;
    if (matmul_bind(step, frame, &st.panel) != sinter_success) {
        return 0; /* prepare says what is wrong */
    }
    const rows_config_t *c = step->jit;
    const size_t panel = matmul_shared_of(&c->panel, &st.panel);
    st.panel.rows = matmul_known_rows(plan, step) < 0 ? ROWS_MOST : st.panel.rows;
    bind_rows(c, step->kernel->isa, &st);
    const size_t own = st.way == BY_PANELS ? 0 : rows_buffers(&st, NULL, &b) * (size_t)frame->threads;
    return own > panel ? own : panel;
}

/* ---- work ----------------------------------------------------------------------------------------------------------------------- */

typedef struct rows_task {
    matmul_task_t t; /* of the panel */
    const rows_config_t *c;
    const rows_state_t *st;
    rows_buffers_t buf;
    rows_four_t four;
} rows_task_t;

/* Chunk c of each row from src to its places in decoding order, among those of its batch. False: numbers of a size at which products with codes
 * or their sums may leave the range of floats before they are scaled. */
static bool place_chunk(const rows_task_t *w, int64_t c, const float *src)
{
    const rows_floats_t *f = w->c->floats;
    const int rows = w->t.rows, lanes = w->c->lanes;
    bool usable = true;
    for (int r = 0, n; r < rows; r += n) {
        n = rows_batch(rows - r);
        float *to = w->buf.q + (r * w->st->chunks + c * n) * f->elems;
        for (int i = 0; i < n; i++) {
            const int32_t most = f->place(src + (size_t)(r + i) * MM_LDA, f->vectors, to + i * lanes, n * lanes);
            usable = usable && (most == 0 || (most > TAME_LEAST && most < TAME_BEYOND));
        }
    }
    return usable || f->unit == 0;
}

/* All of A as integers. False: its scales or zero points are not for them. */
static bool load_codes(rows_task_t *w)
{
    const rows_ops_t *ops = w->c->ops;
    const int64_t K = w->st->panel.K;
    const int rows = w->t.rows, quad = ops->elems / ROWS_QUADS;
    float scale[ROWS_MOST * ROWS_COEFS], zp[ROWS_MOST * ROWS_COEFS];
    for (int64_t k = 0; k < K; k += MM_K) {
        const int kn = (int)at_most(K - k, MM_K);
        if (!matmul_load_codes(&w->t, k, kn, quad, scale, zp, ROWS_COEFS)) {
            return false;
        }
        for (int e = 0; e < kn; e += ops->elems) {
            const rows_raw_t raw = {w->t.buf.a + e, scale + e / quad, zp + e / quad, kn - e, blocks_steps(w->st->panel.a.base.dtype)};
            ops->encode(&raw, rows, w->c->limbs, w->buf.codes + (k + e) / ops->elems * rows);
        }
    }
    return true;
}

static bool load_chunk(rows_task_t *w, int64_t c, const float *src)
{
    const int rows = w->t.rows;
    if (w->st->way == IN_INTEGERS) {
        return w->c->ops->quantise(src, MM_LDA, rows, w->c->limbs, w->buf.codes + c * rows);
    }
    return place_chunk(w, c, src);
}

/* All of A as the micro-kernels want it. False: not all rows are for them. */
static bool load_rows(rows_task_t *w)
{
    const int64_t K = w->st->panel.K;
    bool usable = true;
    if (w->st->way == IN_INTEGERS && w->c->codes) {
        return load_codes(w);
    }
    for (int64_t k = 0; k < K; k += MM_K) {
        const int kn = (int)(K - k < MM_K ? K - k : MM_K);
        matmul_load_a(&w->t, k, kn);
        for (int r = 0; r < w->t.rows && kn < MM_K; r++) {
            memset(w->t.buf.a + (size_t)r * MM_LDA + kn, 0, (size_t)(MM_K - kn) * sizeof(float));
        }
        for (int e = 0; e < kn; e += w->st->elems) {
            usable = load_chunk(w, (k + e) / w->st->elems, w->t.buf.a + e) && usable;
        }
    }
    return usable;
}

/* Those of n lines from `line` on are on their way into the cache when they are wanted. */
static void fetch_groups(const rows_groups_t *g, int64_t first, int64_t line, int n)
{
    for (int i = 0; i < n && g->stride == 1; i++) {
        const unsigned char *p = g->base + (first + (line + i) / g->line_group * g->line_stride) * g->bits / 8;
        for (int64_t at = 0; at < (g->groups * g->bits + 7) / 8; at += 64) {
            __builtin_prefetch(p + at);
        }
    }
}

static void load_groups(const rows_groups_t *g, int64_t first, int64_t line, float *to)
{
    first += line / g->line_group * g->line_stride;
    if (g->stride == 1 || g->groups == 1) {
        g->bulk->load(g->base, first, g->groups, to);
    } else {
        g->codec->load_f32(g->base, first, g->stride, g->groups, to);
    }
}

/* Units that the last chunk of a line lacks are those of the next line where lines follow one another: they meet zeros of A, and numbers
 * will do. */
static bool lines_may_follow(const float *raw, int64_t units, int64_t need)
{
    bool numbers = true;
    for (int i = 1; i < ROWS_LINES; i++) {
        for (int64_t k = 0; k < need - units; k++) {
            numbers = numbers && raw[i * units + k] - raw[i * units + k] == 0;
        }
    }
    return numbers;
}

/* [line][ld], n lines from `line` on; the last one stands for those that are missing. Gives ld. */
static int64_t load_coefs(const rows_task_t *w, const rows_groups_t *g, int64_t first, int64_t line, int n, float *raw)
{
    const int64_t units = g->groups * g->times, chunks = w->st->chunks, ld = w->st->units;
    const int64_t need = w->st->way == IN_FLOATS && g->step > 0 ? ((chunks - 1) >> g->shift) * g->step + g->step : units;
    if (n == ROWS_LINES && g->line_group == 1 && g->stride == 1 && g->line_stride == g->groups && g->times == 1) {
        g->bulk->load(g->base, first + line * g->line_stride, ROWS_LINES * g->groups, raw); /* one run */
        for (int64_t k = units; k < need; k++) {
            raw[(ROWS_LINES - 1) * units + k] = 0;
        }
        if (lines_may_follow(raw, units, need)) {
            return units;
        }
    }
    for (int i = 0; i < ROWS_LINES; i++) {
        float *to = raw + i * ld;
        load_groups(g, first, line + (i < n ? i : n - 1), to);
        repeat_each(to, g->groups, g->times);
        for (int64_t k = units; k < need; k++) {
            to[k] = 0;
        }
    }
    return ld;
}

/* What coefficients of all fours have in common. */
static rows_coefs_t coefs_of(const rows_task_t *w, const rows_groups_t *g, const float *raw, const void *by_unit)
{
    const float *at = w->st->way == IN_FLOATS ? raw : by_unit;
    return g->bulk ? (rows_coefs_t){at, g->step, g->shift, 0, g->pick} : (rows_coefs_t){NULL, 0, 0, 0, NULL};
}

static void begin_fours(rows_task_t *w)
{
    const rows_state_t *st = w->st;
    w->four = (rows_four_t){.bytes = st->bytes, .n = st->panel.K, .ahead = st->ahead, .table = st->table, .values = st->values};
    if (st->way == IN_INTEGERS) {
        w->four.flip = w->c->ops->flip;
        w->four.offset = w->c->ops->offset;
    }
    w->four.scale = coefs_of(w, &st->scale, w->buf.raw, w->buf.scale);
    w->four.zp = coefs_of(w, &st->zp, w->buf.raw_zp, w->buf.zp);
}

/* Four lines from column n of B on, of which `there` exist. */
static void next_four(rows_task_t *w, int64_t n, int there)
{
    const rows_state_t *st = w->st;
    const tile_src_t *b = &w->t.b;
    const rows_groups_t *scale = &st->scale, *zp = &st->zp;
    for (int i = 0; i < ROWS_LINES; i++) {
        w->four.line[i] = b->data + (b->first + (n + (i < there ? i : there - 1)) * b->cs) * b->type->bits / 8;
    }
    if (scale->bulk) {
        fetch_groups(scale, b->scale_first, n + st->ahead_lines, ROWS_LINES);
        w->four.scale.ld = load_coefs(w, scale, b->scale_first, n, there, w->buf.raw);
    }
    if (zp->bulk) {
        fetch_groups(zp, b->zp_first, n + st->ahead_lines, ROWS_LINES);
        w->four.zp.ld = load_coefs(w, zp, b->zp_first, n, there, w->buf.raw_zp);
    }
    if (scale->bulk && st->way == IN_INTEGERS) {
        w->c->table->by_unit(w->buf.raw, w->four.scale.ld, (int)(scale->groups * scale->times), w->buf.scale);
    }
    if (zp->bulk && st->way == IN_INTEGERS) {
        w->c->table->by_unit_s32(w->buf.raw_zp, w->four.zp.ld, (int)(zp->groups * zp->times), w->four.offset, w->buf.zp);
    }
}

/* The first lines are on their way into the cache while A is loaded. */
static void fetch_first(const rows_task_t *w)
{
    const rows_state_t *st = w->st;
    const tile_src_t *b = &w->t.b;
    const int64_t n = at_most(w->t.cols, st->ahead_lines);
    for (int64_t i = 0; i < n; i++) {
        const unsigned char *p = b->data + (b->first + (w->t.n0 + i) * b->cs) * b->type->bits / 8;
        for (int64_t at = 0; at < st->bytes; at += ROWS_CHUNK) {
            __builtin_prefetch(p + at);
        }
    }
    if (st->scale.bulk) {
        fetch_groups(&st->scale, b->scale_first, w->t.n0, (int)n);
    }
    if (st->zp.bulk) {
        fetch_groups(&st->zp, b->zp_first, w->t.n0, (int)n);
    }
}

static void multiply(rows_task_t *w)
{
    for (int c = 0; c < w->t.cols; c += ROWS_LINES) {
        const int there = w->t.cols - c < ROWS_LINES ? w->t.cols - c : ROWS_LINES;
        next_four(w, w->t.n0 + c, there);
        if (w->st->way == IN_INTEGERS) {
            w->c->ops->run(&w->four, w->t.rows, w->c->limbs, w->buf.codes, w->t.buf.acc + c, MM_PANEL);
        } else {
            w->c->floats->run(&w->four, w->t.rows, w->buf.q, w->st->chunks * w->st->elems, w->t.buf.acc + c, MM_PANEL);
        }
    }
}

static void work(const plan_t *plan, const step_t *step, const frame_t *frame, const void *state, int phase, int tid, int nth,
                 void *scratch, void *shared)
{
    const rows_state_t *st = state;
    const matmul_state_t *m = &st->panel;
    if (st->way == BY_PANELS) {
        matmul_work(plan, step, frame, state, phase, tid, nth, scratch, shared);
        return;
    }
    if (phase == 0) {
        return;
    }
    rows_task_t w = {.t = {.c = step->jit, .st = m, .tail = step->tail != NULL}, .c = step->jit, .st = st};
    int64_t begin, end, mat = -1;
    bool usable = false;
    share(m->items, m->serial ? 0 : tid, m->serial ? 1 : nth, &begin, &end);
    if (begin >= end || (m->serial && tid > 0)) {
        return;
    }
    matmul_buffers(&w.c->panel, step, scratch, &w.t.buf);
    rows_buffers(st, (unsigned char *)shared + rows_buffers(st, NULL, &w.buf) * (size_t)tid, &w.buf);
    begin_fours(&w);
    for (int64_t i = begin; i < end; i++) {
        matmul_seek(&w.t, i);
        if (i / m->n_panels != mat) {
            mat = i / m->n_panels;
            fetch_first(&w);
            usable = load_rows(&w);
        }
        if (usable) {
            multiply(&w);
        } else {
            matmul_panel(&w.t);
        }
        matmul_finish(&w.t);
    }
}

/* ---- the kernels ---------------------------------------------------------------------------------------------------------------- */

#define ROWS                                                                                                                               \
    .step = STEP_MATMUL, .setup = setup, .thread_bytes = matmul_thread_bytes, .shared_bytes = shared_bytes, .prepare = prepare,            \
    .work = work, .phases = 2
KERNEL(matmul_rows_int8_vnni, ROWS, .isa = sinter_isa_avx512_vnni, .cost = 50, .refuse = refuse_codes)
KERNEL(matmul_rows_f32_avx512, ROWS, .isa = sinter_isa_avx512, .cost = 60, .refuse = refuse_floats)
KERNEL(matmul_rows_f32_avx2, ROWS, .isa = sinter_isa_avx2, .cost = 70, .refuse = refuse_floats)
