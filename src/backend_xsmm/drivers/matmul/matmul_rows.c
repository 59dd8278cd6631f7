/* The matmul kernels for few rows: selection and geometry. More rows than that and other layouts
 * go by panels. The work is in matmul_rows_work.c. */
#include "backend_xsmm/drivers/matmul/matmul_rows_task.h"

#include <string.h>

#include "backend_xsmm/drivers/common/products.h"
#include "base/status.h"
#include "graph/tensor.h"

/* ---- selection ------------------------------------------------------------------------------- */

static const rows_floats_t *floats_of(const kernel_t *self, const problem_t *p)
{
    return rows_floats(self->needs, problem_type(p, p->step->p.matmul.b.data));
}

static const char *refuse_floats(const kernel_t *self, const problem_t *p)
{
    const rows_floats_t *floats = floats_of(self, p);
    const char *why = matmul_refuse_rows(p, ROWS_MOST);
    why = why == NULL ? matmul_refuse_b(p, floats != NULL, floats && floats->unit > 0) : why;
    if (why != NULL) {
        return why;
    }
    if (p->step->p.matmul.b.zp >= 0 && floats->run[ROWS_SHIFTED][0][0] == NULL) {
        return "no decoder for zero points of the data type of B";
    }
    return matmul_stride_of_b(p, 2) > 1 ? "B is not contiguous along K" : NULL;
}

static const char *refuse_codes(const kernel_t *self, const problem_t *p)
{
    const operand_t *a = &p->step->p.matmul.a, *b = &p->step->p.matmul.b;
    const bool codes = p->step->permit.integers == EXACT_CODES;
    const codes_table_t *table = codes_table(self->needs);
    const codes_type_t *type = codes_type(problem_type(p, p->step->p.matmul.b.data));
    const char *layout = matmul_refuse_layout(p);
    if (layout != NULL) {
        return layout;
    }
    if (table == NULL || type == NULL) {
        return "no decoder for the data type of B";
    }
    if (p->step->permit.integers == NO_INTEGERS) {
        return MODE_HAS_NO_INTEGERS;
    }
    if (!codes && type->form == CODES_BYTES && !table->sums_bytes) {
        return BYTES_NEED_VNNI;
    }
    if (!codes && (a->scale >= 0 || dtype_traits(problem_type(p, a->data))->bits < 16)) {
        return A_HAS_NO_INTEGERS;
    }
    if (codes && b->zp >= 0 && !b->offsets &&
        dtype_traits(problem_type(p, b->zp))->cls != DTYPE_INT) {
        return "zero points of B are no integers, so that products of codes would not be exact";
    }
    return refuse_floats(self, p);
}

/* ---- memory ---------------------------------------------------------------------------------- */

/* The chunks of a line of K elements, and room for its units. */
static void size_line(rows_state_t *st, int64_t K)
{
    st->chunks = (K + st->elems - 1) / st->elems;
    st->units = (st->chunks * 16 + 31) / 16 * 16;
}

size_t rows_buffers(const rows_state_t *st, unsigned char *base, rows_buffers_t *out)
{
    const size_t units = (size_t)st->units * ROWS_LINES,
                 chunks = (size_t)st->chunks * (size_t)st->panel.rows;
    const bool integers = in_integers(st->way);
    size_t at = 0;
    out->codes = carve(base, &at, integers ? chunks : 0, sizeof(limbs_t));
    out->scale = carve(base, &at, integers ? units : 0, sizeof(float));
    out->zp = carve(base, &at, integers ? units : 0, sizeof(int32_t));
    out->q = carve(base, &at, integers ? 0 : chunks * (size_t)st->elems, sizeof(float));
    out->raw = carve(base, &at, units, sizeof(float));
    out->raw_zp = carve(base, &at, units, sizeof(float));
    out->lines = carve(base, &at, (size_t)st->gathered * ROWS_LINES, 1);
    out->usable = carve(base, &at, 1, sizeof(bool));
    /* Always, so that steps that leave their rows to one another have them in the same places. */
    out->sums = carve(base, &at, (size_t)(st->units * st->panel.rows), sizeof(float));
    out->q_sums = carve(base, &at, (size_t)(st->units * st->panel.rows), sizeof(float));
    return at;
}

/* ---- setup ----------------------------------------------------------------------------------- */

static int64_t gathered_bytes(int64_t K, int bits)
{
    return (K * bits / 8 + CODES_CHUNK - 1) / CODES_CHUNK * CODES_CHUNK;
}

/* The bytes that 16 rows need on the way that needs most. This kernel also runs when the constant
 * cache has no room for tiles of B. */
static size_t reserve_bytes(const rows_config_t *c, const problem_t *p)
{
    const operand_t *b = &p->step->p.matmul.b;
    const int64_t K = problem_dim(p, b->data, p->step->p.matmul.trans_b ? 1 : 2);
    size_t most = 0;
    for (int way = IN_ONE_LIMB;
         way <= IN_FLOATS && (matmul_rows_of(p) < 0 || p->step->p.matmul.tiled) && K > 0; way++) {
        const int elems = way == IN_FLOATS  ? c->floats->layout.elems
                          : c->type != NULL ? c->type->elems
                                            : 0;
        rows_state_t st = {.way = (rows_way_t)way, .elems = elems, .panel = {.rows = ROWS_MOST}};
        rows_buffers_t buffers;
        if (elems > 0) {
            size_line(&st, K);
            st.gathered = p->plan->values[b->data].shows == IN_BLOCKS
                              ? gathered_bytes(K, dtype_traits(problem_type(p, b->data))->bits)
                              : 0;
            const size_t bytes = rows_buffers(&st, NULL, &buffers);
            most = bytes > most ? bytes : most;
        }
    }
    return most;
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    rows_config_t *c = ARENA_NEW(arena, rows_config_t, 1);
    if (c == NULL) {
        return sinter_out_of_memory;
    }
    textbuf_t note;
    const char *why = matmul_configure_best(self, p, ROWS_MOST, &c->panel);
    if (self->driver->arithmetic == IN_INT8) {
        c->ints = codes_table(self->needs);
        c->type = codes_type(problem_type(p, p->step->p.matmul.b.data));
        c->kind = p->step->permit.integers;
        c->limbs = c->kind == EXACT_CODES ? matmul_code_limbs(p) : limbs_of(c->kind);
    }
    c->floats = floats_of(self, p);
    c->features = self->needs;
    text_init(&note, arena);
    text_add(&note, "up to %d rows of A where B is contiguous along K: ", ROWS_MOST);
    if (c->type) {
        text_add(&note, "%s if groups along K are multiples of %d, else ", integers_name(c->kind),
                 c->type->elems / CODES_QUADS);
    }
    text_add(&note, DECODED_FMA);
    if (c->floats->unit > 1) {
        text_add(&note, " if groups along K are multiples of %d", c->floats->unit);
    }
    text_add(&note, "; all else: ");
    matmul_note(&note, self, &c->panel, why);
    *out = (candidate_t){.config = c,
                         .state_bytes = sizeof(rows_state_t),
                         .share_bytes = matmul_share_bytes(p, &c->panel),
                         .reserve_bytes = reserve_bytes(c, p),
                         .note = note.text};
    return note.oom ? sinter_out_of_memory : sinter_success;
}

/* ---- geometry -------------------------------------------------------------------------------- */

/* How values along K become units of whole multiples of `least` elements; times 0: in no way.
 * per: floats of a unit. */
static rows_units_t units_of(const groups_t *g, int elems, int least, int per, int64_t K)
{
    rows_units_t u = {.groups = 1, .times = 1, .units = 1};
    if (g->type == NULL || axis_groups(&g->row, K) == 1) {
        return u;
    }
    const int64_t unit = common_divisor(g->row.group, elems), units = g->row.group / unit;
    const bool shifts = unit == elems && (units & (units - 1)) == 0;
    u.groups = axis_groups(&g->row, K);
    u.times = unit % least != 0 ? 0 : shifts ? 1 : units;
    u.units = u.times == 1 ? u.groups : at_most(u.groups * u.times, (K + unit - 1) / unit);
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

static const char *refuse_integers(int kind, const void *config, void *state)
{
    const rows_config_t *c = config;
    rows_state_t *st = state;
    const matrix_t *b = &st->panel.b.base;
    const char *why = refuse_lines(&st->panel);
    if (c->kind != (integers_t)kind || why != NULL) {
        return c->kind != (integers_t)kind ? "" : why;
    }
    const int elems = c->type->elems, quad = elems / CODES_QUADS;
    st->elems = elems;
    st->scale = units_of(&b->scale, elems, quad, ROWS_LINES, st->panel.K);
    st->zp = units_of(&b->zp, elems, quad, ROWS_LINES, st->panel.K);
    if (st->scale.times == 0 || st->zp.times == 0) {
        return "groups of B along K are not whole runs of 16 bytes";
    }
    return kind == EXACT_CODES && !codes_by_quads(&st->panel.a.base, quad, st->panel.K)
               ? "groups of A are not whole runs of the codes that 16 bytes of B are multiplied "
                 "with"
               : NULL;
}

/* The unit in its chunk that lanes of a class get their coefficient from. */
static void fill_pick(const rows_config_t *c, rows_units_t *u)
{
    const code_layout_t *f = &c->floats->layout;
    const int unit = f->elems / (u->step > 1 ? u->step : 1);
    for (int i = 0; i < f->classes * f->lanes; i++) {
        u->pick[i] = f->element(i / f->lanes * (f->vectors / f->classes), i % f->lanes) / unit;
    }
}

static const char *refuse_decoding(int kind, const void *config, void *state)
{
    const rows_config_t *c = config;
    rows_state_t *st = state;
    const rows_floats_t *f = c->floats;
    const matrix_t *b = &st->panel.b.base;
    const char *why = refuse_lines(&st->panel);
    (void)kind;
    if (why != NULL) {
        return why;
    }
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

/* In the order of rows_way_t. */
const way_row_t ways_matmul_rows[] = {
    INTEGER_WAYS(refuse_integers), {DECODED_FMA, refuse_decoding, 0}, {"panels", NULL, 0}};

/* To fetch four lines one after the other, it must begin with all of them before the first is read.
 * Further ahead than this, lines would leave L1 again before they are read. */
enum { IN_ORDER_MOST = 16384 };

/* Of the lines of B, for the micro-kernels. */
static void bind_lines(rows_state_t *st)
{
    const groups_t *codes = &st->panel.b.base.codes;
    const int bits = codes->type->bits;
    const int64_t K = st->panel.K, four = ROWS_LINES * (codes->column.stride * bits / 8);
    size_line(st, K);
    st->bytes = (K * bits + 7) / 8;
    st->ahead = four > 0 ? (READ_AHEAD + four - 1) / four * four : READ_AHEAD;
    st->ahead_lines = four > 0 ? st->ahead / four * ROWS_LINES : 0;
    st->in_order = four == ROWS_LINES * st->bytes && st->ahead <= IN_ORDER_MOST;
    st->gathered = 0;
    if (codes->block > 0) {
        st->gathered = gathered_bytes(K, bits);
        st->ahead = 0; /* gathering reads lines from end to end, which needs no prefetches */
        st->in_order = false;
    }
}

/* Offsets that lie along K are read as they are; others are copied for four lines at a time. */
static void bind_offsets(const rows_config_t *c, rows_state_t *st)
{
    const matrix_t *b = &st->panel.b.base;
    const groups_t *o = &b->zp;
    st->plus = (rows_offsets_t){.groups = 0};
    if (!b->offsets) {
        return;
    }
    const rows_floats_t *as_they_are = rows_floats(c->features, o->dtype);
    rows_offsets_t plus = {.groups = axis_groups(&o->row, st->panel.K),
                           .group = o->row.stride == 0 ? st->panel.K : o->row.group,
                           .floats = as_they_are};
    if (in_integers(st->way)) {
        st->plus = plus;
        st->zp = (rows_units_t){.groups = plus.groups, .times = 1, .units = plus.groups};
        return;
    }
    plus.copied = o->row.stride != 1 || o->column.group != 1 ||
                  plus.groups % as_they_are->layout.multiple != 0;
    if (plus.copied) {
        plus.floats = rows_floats(c->features, sinter_f32);
    }
    const int elems = plus.floats->layout.elems;
    plus.chunks = (plus.groups + elems - 1) / elems;
    st->plus = plus;
}

/* How scales, zero points or offsets are read by products in integers. */
static void bind_units(const rows_config_t *c, const rows_state_t *st, const groups_t *g,
                       rows_units_t *u)
{
    const bool floats = g->dtype == sinter_f32 || g->dtype == sinter_f16 || g->dtype == sinter_bf16;
    if (g->type == NULL) {
        return;
    }
    const bool lines = g->column.group == 1 && g->row.stride == 1;
    u->in_place = lines && floats && u->times == 1 && u->groups >= c->ints->lanes;
    if (lines && g->column.stride == u->groups) {
        const int64_t bytes = ROWS_LINES * u->groups * g->type->bits / 8;
        u->next_step = (bytes + st->chunks - 1) / st->chunks;
    }
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

/* ---- choose ---------------------------------------------------------------------------------- */

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    const rows_config_t *c = config;
    rows_state_t *st = state;
    rows_buffers_t buffers;
    SG_TRY(matmul_bind(self, p, &c->panel, &st->panel));
    choice->shared_bytes = matmul_shared(&c->panel, &st->panel);
    st->way = (rows_way_t)take_way(ways_matmul_rows, NULL, c, st, choice);
    st->left_shares = 0;
    if (st->way == BY_PANELS) {
        matmul_add_ways(&c->panel, &st->panel, choice);
        choice->first = matmul_first_phase(&st->panel);
        return sinter_success;
    }
    bind_lines(st);
    bind_offsets(c, st);
    if (in_integers(st->way)) {
        bind_units(c, st, &st->panel.b.base.scale, &st->scale);
        bind_units(c, st, &st->panel.b.base.zp, &st->zp);
    }
    const size_t own = rows_buffers(st, NULL, &buffers) * (size_t)p->frame->shares;
    choice->shared_bytes = own > choice->shared_bytes ? own : choice->shared_bytes;
    /* Rows of A with a NaN or an infinity take the panel path, in floats. */
    st->panel.blocks = (blocks_state_t){0};
    memset(st->values, 0, sizeof st->values);
    fill_table(c->type, st);
    matmul_choose_panel(&st->panel, p->frame->shares);
    SG_TRY(matmul_count(p->step, &st->panel));
    choice->shares_bytes = st->panel.shares_bytes;
    choice->first = 1;
    return sinter_success;
}

static void follow(const problem_t *p, const before_t *before, const void *config, void *state,
                   choice_t *choice)
{
    const rows_config_t *c = config, *last_c = before->config;
    const rows_state_t *last = before->state;
    rows_state_t *st = state;
    if (st->way == BY_PANELS && last->way == BY_PANELS) {
        matmul_follow(p, before, config, state, choice);
    } else if (in_integers(st->way) && last->way == st->way && last_c->type == c->type &&
               last_c->limbs == c->limbs && last->units == st->units &&
               matmul_same_rows(p, before, &st->panel)) {
        st->left_shares = before->shares;
        st->left_items = last->panel.items;
        add_way(choice, "A", ways_matmul_activation, NULL);
    }
}

/* ---- the drivers ----------------------------------------------------------------------------- */

#define ROWS                                                                                     \
    .step = STEP_MATMUL, .phases = 2, .takes = "up to 16 rows that share one B", .setup = setup, \
    .choose = choose, .start = matmul_start, .follow = follow, .work = matmul_rows_work
const driver_t driver_matmul_rows = {ROWS, .arithmetic = IN_F32, .refuse = refuse_floats};
const driver_t driver_matmul_rows_int8 = {ROWS, .arithmetic = IN_INT8, .refuse = refuse_codes};
