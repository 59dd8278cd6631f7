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

typedef struct rows_config {
    matmul_config_t panel; /* first: see matmul.h */
    const rows_table_t *table;
    const rows_ops_t *ops;
    int limbs;
} rows_config_t;

/* Scales or zero points of one execute. */
typedef struct rows_groups {
    const dtype_bulk_t *bulk; /* NULL: there are none */
    const dtype_codec_t *codec;
    const unsigned char *base;
    int64_t stride, line_stride, line_group; /* from group to group; from line group to line group; lines in one */
    int64_t groups, times;                   /* of a line; units that each becomes */
    int step, shift;                         /* as in rows_coefs_t */
} rows_groups_t;

typedef struct rows_state {
    matmul_state_t panel;  /* first: see matmul.h */
    bool few;              /* this execute is one for the micro-kernels */
    int64_t chunks, bytes; /* of a line */
    int64_t units;         /* room for the units of a line */
    int64_t ahead;
    rows_groups_t scale, zp;
    unsigned char table[16]; /* of 4-bit types: bytes of codes */
} rows_state_t;

/* ---- selection ------------------------------------------------------------------------------------------------------------------ */

static bool has_small_codes(sinter_data_type_t type)
{
    return dtype_traits(type)->bits < 16;
}

static const rows_ops_t *ops_of(const plan_t *plan, int value)
{
    const rows_table_t *table = rows_table(plan->isa);
    const sinter_data_type_t type = plan->values[value].lt.data_type;
    return table && (int)type < table->n_ops && table->ops[type].elems > 0 ? &table->ops[type] : NULL;
}

/* The stride of B along K, -1 if it is not known. */
static int64_t stride_along_k(const plan_t *plan, const matmul_params_t *p)
{
    const plan_value_t *v = &plan->values[p->b.data];
    const bool known = v->kind != PV_VIEW && v->lt.ndims >= 2 && lt_strides_known(&v->lt);
    return known ? v->lt.strides[v->lt.ndims - (p->trans_b ? 1 : 2)] : -1;
}

static const char *refuse_codes(const plan_t *plan, const step_t *step)
{
    const matmul_params_t *p = &step->p.matmul;
    if (limbs_of(step->mode) == 0) {
        return "the fpmath mode does not allow products of integers";
    }
    if (matmul_known_rows(plan, step) > ROWS_MOST) {
        return "more than 16 rows share one B";
    }
    if (!ops_of(plan, p->b.data) || p->b.split != sinter_data_type_undef) {
        return "no decoder for the data type of B";
    }
    if (p->b.scale < 0 || (p->b.zp >= 0 && (dtype_traits(plan->values[p->b.zp].lt.data_type)->cls != DTYPE_INT ||
                                            dtype_traits(plan->values[p->b.zp].lt.data_type)->bits > 8))) {
        return "B has no scales, or zero points of more than 8 bits";
    }
    if (p->a.scale >= 0 || has_small_codes(plan->values[p->a.data].lt.data_type)) {
        return "A is codes";
    }
    return stride_along_k(plan, p) > 1 ? "B is not contiguous along K" : NULL;
}

static sinter_status_t setup(plan_t *plan, step_t *step)
{
    rows_config_t *c = ARENA_NEW(&plan->arena, rows_config_t, 1);
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    textbuf_t note;
    const bool bf16 = refuse_bf16_products(plan, step) == NULL;
    const char *why = matmul_configure(plan, step, bf16, blocks_refuse(plan, step) == NULL, &c->panel);
    if (bf16 && why != NULL) {
        why = matmul_configure(plan, step, false, blocks_refuse(plan, step) == NULL, &c->panel);
    }
    c->table = rows_table(plan->isa);
    c->ops = ops_of(plan, step->p.matmul.b.data);
    c->limbs = limbs_of(step->mode);
    text_init(&note, &plan->arena);
    text_add(&note, "up to %d rows of A, where K is contiguous in B and groups along it are whole quads of %d: %s; else ", ROWS_MOST,
             c->ops->elems / ROWS_QUADS, limbs_name(c->limbs));
    matmul_note(&note, step, &c->panel, why);
    step->jit = c;
    step->state_bytes = sizeof(rows_state_t);
    step->note = note.text;
    return note.oom ? sinter_out_of_memory : sinter_success;
}

/* ---- geometry ------------------------------------------------------------------------------------------------------------------- */

/* Every line starts at a whole byte. */
static bool lines_on_bytes(const tile_operand_t *b)
{
    const int bits = b->base.type->bits;
    bool ok = b->base.cs * bits % 8 == 0 || b->dims[b->ndims - 1] == 1;
    for (int d = 0; d + 2 < b->ndims; d++) {
        ok = ok && (b->dims[d] == 1 || b->stride[d] * bits % 8 == 0);
    }
    return ok;
}

static rows_groups_t groups_of(const tile_src_t *b, bool zps, const rows_ops_t *ops, sinter_cpu_isa_t isa, int64_t K)
{
    const unsigned char *base = zps ? b->zp : b->scale;
    const int64_t group = zps ? b->zp_gr : b->scale_gr, quad = ops->elems / ROWS_QUADS;
    rows_groups_t g = {.base = base, .stride = zps ? b->zp_rs : b->scale_rs};
    if (zps ? b->zp_type == NULL : b->scale_type == NULL) {
        return g;
    }
    g.bulk = dtype_bulk(zps ? b->zp_dtype : b->scale_dtype, isa);
    g.codec = &(zps ? b->zp_type : b->scale_type)->codec;
    g.line_stride = zps ? b->zp_cs : b->scale_cs;
    g.line_group = zps ? b->zp_gc : b->scale_gc;
    g.groups = g.stride == 0 ? 1 : K / group;
    if (g.groups == 1) {
        g.times = 1;
        return g;
    }
    const int64_t unit = group % ops->elems == 0 ? ops->elems : group % (2 * quad) == 0 ? 2 * quad : quad, units = group / unit;
    const bool shifts = unit == ops->elems && (units & (units - 1)) == 0;
    g.times = group % unit != 0 ? 0 : shifts ? 1 : units;
    g.step = (int)(ROWS_LINES * ops->elems / unit);
    g.shift = shifts ? __builtin_ctzll((unsigned long long)units) : 0;
    return g;
}

/* Whether the micro-kernels can do this execute. */
static bool bind_rows(const rows_config_t *c, sinter_cpu_isa_t isa, rows_state_t *st)
{
    const tile_operand_t *b = &st->panel.b;
    const int64_t K = st->panel.K;
    if (st->panel.rows < 1 || st->panel.rows > ROWS_MOST || K < 1 || b->base.rs != 1 || !lines_on_bytes(b)) {
        return false;
    }
    st->scale = groups_of(&b->base, false, c->ops, isa, K);
    st->zp = groups_of(&b->base, true, c->ops, isa, K);
    if (st->scale.times == 0 || (st->zp.bulk && st->zp.times == 0)) {
        return false;
    }
    const int64_t four = ROWS_LINES * (b->base.cs * b->base.type->bits / 8);
    st->chunks = (K + c->ops->elems - 1) / c->ops->elems;
    st->bytes = (K * b->base.type->bits + 7) / 8;
    st->units = (st->chunks * ROWS_QUADS + 15) / 16 * 16;
    st->ahead = four > 0 ? (ROWS_AHEAD + four - 1) / four * four : ROWS_AHEAD;
    return true;
}

/* Panels of whole fours and whole groups of the tail, small enough for threads to end together, large enough for what each costs. */
static void choose_panel(rows_state_t *st, int threads)
{
    matmul_state_t *m = &st->panel;
    int unit = 16;
    while (unit % m->tail.cols != 0 && unit < MM_PANEL) {
        unit += 16;
    }
    const int64_t most = unit < MM_PANEL ? MM_PANEL / unit * unit : MM_PANEL, share = m->N / (8 * (int64_t)threads) / unit * unit;
    const int64_t least = (((int64_t)1 << 16) / (st->bytes > 0 ? st->bytes : 1) + unit - 1) / unit * unit;
    const int64_t wish = share > least ? share : least;
    m->panel = (int)(wish < unit ? (unit < most ? unit : most) : wish < most ? wish : most);
    m->n_panels = (m->N + m->panel - 1) / m->panel;
    m->block = ROWS_MOST;
    m->n_blocks = 1;
}

static void fill_table(const rows_ops_t *ops, const dtype_traits_t *type, unsigned char *table)
{
    static const unsigned char codes[8] = {0x10, 0x32, 0x54, 0x76, 0x98, 0xba, 0xdc, 0xfe};
    float x[16];
    if (ops->table) {
        type->codec.load_f32(codes, 0, 1, 16, x);
        for (int i = 0; i < 16; i++) {
            table[i] = (unsigned char)(x[i] / ops->unit + (float)ops->offset);
        }
    }
}

static sinter_status_t prepare(const plan_t *plan, const step_t *step, const frame_t *frame, void *state)
{
    const rows_config_t *c = step->jit;
    rows_state_t *st = state;
    SG_TRY(matmul_prepare(plan, step, frame, &st->panel));
    st->few = bind_rows(c, step->kernel->isa, st);
    if (!st->few) {
        return sinter_success;
    }
    st->panel.blocks = (blocks_state_t){0}; /* rows that are not for integers here are not for them there */
    fill_table(c->ops, st->panel.b.base.type, st->table);
    choose_panel(st, frame->threads);
    return matmul_count(step, &st->panel);
}

/* ---- memory --------------------------------------------------------------------------------------------------------------------- */

/* One thread's: A in integers, and coefficients of four lines as they are stored and as the micro-kernels want them. */
typedef struct rows_buffers {
    rows_codes_t *codes; /* [chunk][row] */
    float *raw;          /* [line][units] */
    float *scale;        /* [unit][line] */
    int32_t *zp;
} rows_buffers_t;

static size_t rows_buffers(const rows_state_t *st, unsigned char *base, rows_buffers_t *out)
{
    const size_t units = (size_t)st->units * ROWS_LINES;
    size_t at = 0;
    out->codes = carve(base, &at, (size_t)st->chunks * (size_t)st->panel.rows, sizeof(rows_codes_t));
    out->raw = carve(base, &at, units, sizeof(float));
    out->scale = carve(base, &at, units, sizeof(float));
    out->zp = carve(base, &at, units, sizeof(int32_t));
    return at;
}

static size_t thread_bytes(const plan_t *plan, const step_t *step)
{
    matmul_buffers_t b;
    (void)plan;
    return matmul_buffers(step->jit, step, NULL, &b);
}

static size_t shared_bytes(const plan_t *plan, const step_t *step, const frame_t *frame)
{
    rows_state_t st;
    rows_buffers_t b;
    (void)plan;
    if (matmul_bind(step, frame, &st.panel) != sinter_success || !bind_rows(step->jit, step->kernel->isa, &st)) {
        return matmul_shared_bytes(plan, step, frame);
    }
    return rows_buffers(&st, NULL, &b) * (size_t)frame->threads;
}

/* ---- work ----------------------------------------------------------------------------------------------------------------------- */

typedef struct rows_task {
    matmul_task_t t; /* of the panel */
    const rows_config_t *c;
    const rows_state_t *st;
    rows_buffers_t buf;
} rows_task_t;

/* All of A as integers. False: not all rows are for them. */
static bool load_rows(rows_task_t *w)
{
    const rows_ops_t *ops = w->c->ops;
    const int rows = w->t.rows;
    const int64_t K = w->st->panel.K;
    bool usable = true;
    for (int64_t k = 0; k < K; k += MM_K) {
        const int kn = (int)(K - k < MM_K ? K - k : MM_K);
        matmul_load_a(&w->t, k, kn);
        for (int r = 0; r < rows && kn < MM_K; r++) {
            memset(w->t.buf.a + (size_t)r * MM_LDA + kn, 0, (size_t)(MM_K - kn) * sizeof(float));
        }
        for (int e = 0; e < kn; e += ops->elems) {
            usable = ops->quantise(w->t.buf.a + e, MM_LDA, rows, w->c->limbs, w->buf.codes + (k + e) / ops->elems * rows) && usable;
        }
    }
    return usable;
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

/* Each of n groups becomes `times` units. */
static void refine(float *x, int64_t n, int64_t times)
{
    for (int64_t i = times > 1 ? n - 1 : -1; i >= 0; i--) {
        const float value = x[i];
        for (int64_t k = 0; k < times; k++) {
            x[i * times + k] = value;
        }
    }
}

/* [line][*ld], n lines from `line` on; the last one stands for those that are missing. */
static void load_coefs(const rows_task_t *w, const rows_groups_t *g, int64_t first, int64_t line, int n, int64_t *ld)
{
    const bool one_run = n == ROWS_LINES && g->line_group == 1 && g->stride == 1 && g->line_stride == g->groups && g->times == 1;
    *ld = one_run ? g->groups : w->st->units;
    if (one_run) {
        g->bulk->load(g->base, first + line * g->line_stride, ROWS_LINES * g->groups, w->buf.raw);
        return;
    }
    for (int i = 0; i < ROWS_LINES; i++) {
        float *to = w->buf.raw + i * *ld;
        load_groups(g, first, line + (i < n ? i : n - 1), to);
        refine(to, g->groups, g->times);
    }
}

/* Four lines from column n of B on, of which `there` exist. */
static rows_four_t four_at(const rows_task_t *w, int64_t n, int there)
{
    const rows_state_t *st = w->st;
    const tile_src_t *b = &w->t.b;
    const int bits = b->type->bits;
    int64_t ld;
    rows_four_t f = {.bytes = st->bytes, .ahead = st->ahead, .flip = w->c->ops->flip, .offset = w->c->ops->offset, .table = st->table};
    for (int i = 0; i < ROWS_LINES; i++) {
        f.line[i] = b->data + (b->first + (n + (i < there ? i : there - 1)) * b->cs) * bits / 8;
    }
    load_coefs(w, &st->scale, b->scale_first, n, there, &ld);
    w->c->table->by_unit(w->buf.raw, ld, (int)(st->scale.groups * st->scale.times), w->buf.scale);
    f.scale = (rows_coefs_t){w->buf.scale, st->scale.step, st->scale.shift};
    if (st->zp.bulk) {
        load_coefs(w, &st->zp, b->zp_first, n, there, &ld);
        w->c->table->by_unit_s32(w->buf.raw, ld, (int)(st->zp.groups * st->zp.times), f.offset, w->buf.zp);
        f.zp = (rows_coefs_t){(const float *)(const void *)w->buf.zp, st->zp.step, st->zp.shift};
    }
    return f;
}

static void multiply(rows_task_t *w)
{
    for (int c = 0; c < w->t.cols; c += ROWS_LINES) {
        const int there = w->t.cols - c < ROWS_LINES ? w->t.cols - c : ROWS_LINES;
        const rows_four_t four = four_at(w, w->t.n0 + c, there);
        w->c->ops->run(&four, w->t.rows, w->c->limbs, w->buf.codes, w->t.buf.acc + c, MM_PANEL);
    }
}

static void work(const plan_t *plan, const step_t *step, const frame_t *frame, const void *state, int phase, int tid, int nth,
                 void *scratch, void *shared)
{
    const rows_state_t *st = state;
    const matmul_state_t *m = &st->panel;
    if (!st->few) {
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
    for (int64_t i = begin; i < end; i++) {
        matmul_seek(&w.t, i);
        if (i / m->n_panels != mat) {
            mat = i / m->n_panels;
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
    .step = STEP_MATMUL, .setup = setup, .thread_bytes = thread_bytes, .shared_bytes = shared_bytes, .prepare = prepare, .work = work,     \
    .phases = 2
KERNEL(matmul_rows_int8_vnni, ROWS, .isa = sinter_isa_avx512_vnni, .cost = 50, .refuse = refuse_codes)
