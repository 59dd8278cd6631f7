/* The matmul kernels for few rows: selection and geometry. More rows than that and other layouts
 * go by panels. The work is in matmul_rows_work.c. */
#include "backend_xsmm/drivers/matmul_rows_task.h"

#include <string.h>

#include "backend_xsmm/drivers/products.h"
#include "base/status.h"
#include "graph/tensor.h"

const rows_floats_table_t *rows_floats_table(features_t features)
{
#if defined(__x86_64__)
    if (has_features(features, NEEDS_AVX512)) {
        return &rows_floats_avx512;
    }
    if (has_features(features, NEEDS_AVX2)) {
        return &rows_floats_avx2;
    }
#endif
    (void)features;
    return NULL;
}

/* ---- selection ------------------------------------------------------------------------------- */

static const rows_floats_t *floats_of(features_t features, const plan_t *plan, int value)
{
    const rows_floats_table_t *table = rows_floats_table(features);
    const sinter_data_type_t type = plan->values[value].lt.data_type;
    return table && (int)type < table->n_ops && table->ops[type].layout.elems > 0
               ? &table->ops[type]
               : NULL;
}

static const char *refuse_floats(const plan_t *plan, const step_t *step)
{
    const operand_t *b = &step->p.matmul.b;
    const rows_floats_t *floats = floats_of(plan->features, plan, b->data);
    if (matmul_known_rows(plan, step) > ROWS_MOST) {
        return "more than 16 rows share one B";
    }
    const char *why = matmul_refuse_b(plan, b, floats != NULL, floats && floats->unit > 0);
    if (why != NULL) {
        return why;
    }
    if (b->zp >= 0 && floats->run[ROWS_SHIFTED][0][0] == NULL) {
        return "no decoder for zero points of the data type of B";
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
    if (!codes_table(plan->features) ||
        !codes_type(plan->values[step->p.matmul.b.data].lt.data_type)) {
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
    const range_t code = range_of(type, steps), none = {0, 0},
                  zp = a->zp < 0 ? none : range_of(plan->values[a->zp].lt.data_type, steps);
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
        c->ints = codes_table(plan->features);
        c->type = codes_type(plan->values[step->p.matmul.b.data].lt.data_type);
        c->codes = blocks_of_codes(plan, step);
        c->limbs = c->codes ? code_limbs(plan, step) : limbs_of(step->mode);
    }
    c->floats = floats_of(step->kernel->needs, plan, step->p.matmul.b.data);
    c->lanes = rows_floats_table(step->kernel->needs)->lanes;
    c->features = step->kernel->needs;
    text_init(&note, &plan->arena);
    text_add(&note, "up to %d rows of A where B is contiguous along K: ", ROWS_MOST);
    if (c->type) {
        text_add(&note, "%s if groups along K are multiples of %d, else ",
                 integers_name(c->codes, c->limbs), c->type->elems / CODES_QUADS);
    }
    text_add(&note, DECODED_FMA);
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

/* ---- geometry -------------------------------------------------------------------------------- */

/* How values along K become units of whole multiples of `least` elements; times 0: in no way.
 * per: floats of a unit. */
static rows_units_t units_of(const groups_t *g, int elems, int least, int per, int64_t K)
{
    rows_units_t u = {.groups = 1, .times = 1};
    if (g->type == NULL || axis_groups(&g->row, K) == 1) {
        return u;
    }
    const int64_t unit = common_divisor(g->row.group, elems), units = g->row.group / unit;
    const bool shifts = unit == elems && (units & (units - 1)) == 0;
    u.groups = axis_groups(&g->row, K);
    u.times = unit % least != 0 ? 0 : shifts ? 1 : units;
    u.step = (int)(per * elems / unit);
    u.shift = shifts ? __builtin_ctzll((unsigned long long)units) : 0;
    return u;
}

/* Whether scales and zero points of A change between quads only. */
static bool codes_by_quads(const matrix_t *a, int quad, int64_t K)
{
    const groups_t *scale = &a->scale, *zp = &a->zp;
    return (groups_are_one(scale, &scale->column, K) || scale->column.group % quad == 0) &&
           (groups_are_one(zp, &zp->column, K) || zp->column.group % quad == 0);
}

/* NULL, or why products of integers cannot do this execute. */
static const char *bind_integers(const rows_config_t *c, rows_state_t *st)
{
    const matrix_t *b = &st->panel.b.base;
    const int elems = c->type->elems, quad = elems / CODES_QUADS;
    st->elems = elems;
    st->scale = units_of(&b->scale, elems, quad, ROWS_LINES, st->panel.K);
    st->zp = units_of(&b->zp, elems, quad, ROWS_LINES, st->panel.K);
    if (st->scale.times == 0 || st->zp.times == 0) {
        return "groups of B along K are not whole runs of 16 bytes";
    }
    return c->codes && !codes_by_quads(&st->panel.a.base, quad, st->panel.K)
               ? "groups of A are not whole runs of the codes that 16 bytes of B are multiplied "
                 "with"
               : NULL;
}

/* The unit in its chunk that lanes of a class get their coefficient from. */
static void fill_pick(const rows_config_t *c, rows_units_t *u)
{
    const code_layout_t *f = &c->floats->layout;
    const int unit = f->elems / (u->step > 1 ? u->step : 1);
    for (int i = 0; i < f->classes * c->lanes; i++) {
        u->pick[i] = f->element(i / c->lanes * (f->vectors / f->classes), i % c->lanes) / unit;
    }
}

/* NULL, or why the decoders cannot do this execute. */
static const char *bind_floats(const rows_config_t *c, rows_state_t *st)
{
    const rows_floats_t *f = c->floats;
    const matrix_t *b = &st->panel.b.base;
    if (st->panel.K % f->layout.multiple != 0) {
        return "K is not a whole number of what the decoder takes at once";
    }
    st->elems = f->layout.elems;
    st->scale = units_of(&b->scale, f->layout.elems, f->unit, 1, st->panel.K);
    st->zp = units_of(&b->zp, f->layout.elems, f->unit, 1, st->panel.K);
    fill_pick(c, &st->scale);
    fill_pick(c, &st->zp);
    return st->scale.times > 0 && st->zp.times > 0
               ? NULL
               : "groups of B along K are too short for the decoder";
}

/* NULL, or why no micro-kernel can read B. */
static const char *refuse_lines(const matmul_state_t *m)
{
    if (m->rows < 1 || m->K < 1) {
        return "there is nothing to multiply";
    }
    if (m->rows > ROWS_MOST) {
        return "more than 16 rows share one B";
    }
    if (m->b.base.codes.row.stride != 1) {
        return "B is not contiguous along K";
    }
    return matrices_on_bytes(&m->b, false) ? NULL : "columns of B begin within bytes";
}

/* How the micro-kernels can do this execute, if they can. */
static void bind_rows(const rows_config_t *c, rows_state_t *st)
{
    const groups_t *codes = &st->panel.b.base.codes;
    const int bits = codes->type->bits;
    const int64_t K = st->panel.K, four = ROWS_LINES * (codes->column.stride * bits / 8);
    st->way = BY_PANELS;
    st->why = refuse_lines(&st->panel);
    if (st->why != NULL) {
        return;
    }
    st->why = c->type != NULL ? bind_integers(c, st) : NULL;
    st->way = c->type != NULL && st->why == NULL ? IN_INTEGERS : IN_FLOATS;
    if (st->way == IN_FLOATS) {
        const char *why = bind_floats(c, st);
        if (why != NULL) {
            st->way = BY_PANELS;
            st->why = why;
            return;
        }
    }
    st->chunks = (K + st->elems - 1) / st->elems;
    st->bytes = (K * bits + 7) / 8;
    st->units = (st->chunks * 16 + 31) / 16 * 16;
    st->ahead = four > 0 ? (READ_AHEAD + four - 1) / four * four : READ_AHEAD;
    st->ahead_lines = four > 0 ? st->ahead / four * ROWS_LINES : 0;
}

/* Columns of the thread that has most of them. */
static int64_t most_columns(const matmul_state_t *m, int64_t panel, int threads)
{
    const int64_t all = (m->N + panel - 1) / panel * m->mats;
    return (all + threads - 1) / threads * panel;
}

/* Panels of whole fours and whole groups of the tail, large enough for what each costs, of which
 * threads have the same number. */
static void choose_panel(rows_state_t *st, int threads)
{
    matmul_state_t *m = &st->panel;
    int unit = 16;
    while (unit % m->tail.cols != 0 && unit < MM_PANEL) {
        unit += 16;
    }
    const int64_t most = unit < MM_PANEL ? MM_PANEL / unit * unit : MM_PANEL;
    const int64_t least =
        (((int64_t)1 << 16) / (st->bytes > 0 ? st->bytes : 1) + unit - 1) / unit * unit;
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

static void fill_table(const codes_type_t *codes, rows_state_t *st)
{
    const dtype_traits_t *type = st->panel.b.base.codes.type;
    if (type->bits == 4) {
        dtype_nibble_values(&type->codec, st->values);
    }
    for (int i = 0; i < 16 && codes && codes->form == CODES_TABLE; i++) {
        st->table[i] = (unsigned char)(st->values[i] / codes->unit + (float)codes->offset);
    }
}

static sinter_status_t prepare(const plan_t *plan, const step_t *step, const frame_t *frame,
                               void *state)
{
    const rows_config_t *c = step->jit;
    rows_state_t *st = state;
    SG_TRY(matmul_prepare(plan, step, frame, &st->panel));
    bind_rows(c, st);
    if (st->way == BY_PANELS) {
        return sinter_success;
    }
    st->panel.blocks =
        (blocks_state_t){0}; /* rows that are not for integers here are not for them there */
    memset(st->values, 0, sizeof st->values);
    fill_table(c->type, st);
    choose_panel(st, frame->threads);
    return matmul_count(step, &st->panel);
}

static int ways(const step_t *step, const void *state, way_t *out)
{
    const rows_config_t *c = step->jit;
    const rows_state_t *st = state;
    const char *const names[] = {[BY_PANELS] = "panels",
                                 [IN_INTEGERS] = integers_name(c->codes, c->limbs),
                                 [IN_FLOATS] = DECODED_FMA};
    out[0] = (way_t){.name = names[st->way], .why = st->why};
    return 1 + matmul_ways(step, state, out + 1);
}

/* ---- memory ---------------------------------------------------------------------------------- */

size_t rows_buffers(const rows_state_t *st, unsigned char *base, rows_buffers_t *out)
{
    const size_t units = (size_t)st->units * ROWS_LINES,
                 chunks = (size_t)st->chunks * (size_t)st->panel.rows;
    const bool integers = st->way == IN_INTEGERS;
    size_t at = 0;
    out->codes = carve(base, &at, integers ? chunks : 0, sizeof(limbs_t));
    out->scale = carve(base, &at, integers ? units : 0, sizeof(float));
    out->zp = carve(base, &at, integers ? units : 0, sizeof(int32_t));
    out->q = carve(base, &at, integers ? 0 : chunks * (size_t)st->elems, sizeof(float));
    out->raw = carve(base, &at, units, sizeof(float));
    out->raw_zp = carve(base, &at, units, sizeof(float));
    return at;
}

/* Where M is not known at compile, as much as the most rows need, however many there are now:
 * engines that call with a few rows and then with more allocate once. */
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
    bind_rows(c, &st);
    const size_t own =
        st.way == BY_PANELS ? 0 : rows_buffers(&st, NULL, &b) * (size_t)frame->threads;
    return own > panel ? own : panel;
}

/* ---- the kernels ----------------------------------------------------------------------------- */

#define ROWS                                                                                  \
    .step = STEP_MATMUL, .setup = setup, .thread_bytes = matmul_thread_bytes,                 \
    .shared_bytes = shared_bytes, .prepare = prepare, .work = matmul_rows_work, .ways = ways, \
    .phases = 2
KERNEL(matmul_rows_int8_vnni, ROWS, .needs = {NEEDS_AVX512_VNNI}, .cost = 50,
       .refuse = refuse_codes)
KERNEL(matmul_rows_f32_avx512, ROWS, .needs = {NEEDS_AVX512}, .cost = 60, .refuse = refuse_floats)
KERNEL(matmul_rows_f32_avx2, ROWS, .needs = {NEEDS_AVX2}, .cost = 70, .refuse = refuse_floats)
