/* The work of the matmul kernels for few rows around the micro-kernels: rows of A and
 * coefficients of four lines are brought into the forms that those want. Rows of A with a NaN or an
 * infinity take the panel path. */
#include "backend_xsmm/drivers/matmul/matmul_rows_task.h"

#include <float.h>
#include <string.h>

#include "base/fetch.h"

typedef struct rows_task {
    matmul_task_t t; /* of the panel */
    const rows_config_t *c;
    const rows_state_t *st;
    rows_buffers_t buf;
    code_rows_t four; /* columns of B */
} rows_task_t;

/* ---- A --------------------------------------------------------------------------------------- */

/* Chunk c of each row from src to its places in decoding order, among those of its batch. False:
 * numbers of a size at which products with codes or their sums may leave the range of floats
 * before they are scaled. */
static bool place_chunk(const rows_task_t *w, int64_t c, const float *src)
{
    const rows_floats_t *f = w->c->floats;
    const int rows = w->t.rows, lanes = f->layout.lanes;
    bool usable = true;
    for (int r = 0, n; r < rows; r += n) {
        n = rows_batch(rows - r);
        float *to = w->buf.q + (r * w->st->chunks + c * n) * f->layout.elems;
        for (int i = 0; i < n; i++) {
            const int32_t most = f->place(src + (size_t)(r + i) * MM_LDA, f->layout.vectors,
                                          to + i * lanes, n * lanes);
            usable = usable && is_in_product_range(most);
        }
    }
    return usable || f->unit == 0;
}

/* All of A as integers. False: its scales or zero points are not for them. */
static bool load_codes(rows_task_t *w)
{
    const codes_type_t *type = w->c->type;
    const int64_t K = w->st->panel.K;
    const int rows = w->t.rows, quad = type->elems / CODES_QUADS;
    float scale[ROWS_MOST * ROWS_COEFS], zp[ROWS_MOST * ROWS_COEFS];
    for (int64_t k = 0; k < K; k += MM_K) {
        const int kn = (int)at_most(K - k, MM_K);
        if (!matmul_load_codes(&w->t, k, kn, quad, scale, zp, ROWS_COEFS)) {
            return false;
        }
        for (int e = 0; e < kn; e += type->elems) {
            const codes_raw_t raw = {w->t.buf.a + e,
                                     scale + e / quad,
                                     zp + e / quad,
                                     MM_LDA,
                                     ROWS_COEFS,
                                     kn - e,
                                     blocks_steps(w->st->panel.a.base.codes.dtype)};
            w->c->ints->encode(type, &raw, rows, w->c->limbs,
                               w->buf.codes + (k + e) / type->elems * rows);
        }
    }
    return true;
}

static bool load_chunk(rows_task_t *w, int64_t c, const float *src)
{
    const int rows = w->t.rows;
    if (in_integers(w->st->way)) {
        return w->c->ints->quantise(w->c->type, src, MM_LDA, rows, w->c->limbs,
                                    w->buf.codes + c * rows);
    }
    return place_chunk(w, c, src);
}

/* Adds elements k .. k + n - 1 of all rows, which lie in the panel's buffer. */
static void add_sums(const rows_task_t *w, int64_t k, int64_t n)
{
    const int64_t group = w->st->plus.group;
    for (int r = 0; r < w->t.rows; r++) {
        const float *x = w->t.buf.a + (size_t)r * MM_LDA;
        float *sums = w->buf.sums + r * w->st->units;
        for (int64_t i = 0, len; i < n; i += len) {
            len = at_most(n - i, group - (k + i) % group);
            sums[(k + i) / group] += w->c->panel.fn->row_sum(x + i, (int)len);
        }
    }
}

/* Sums of A as integers, which the products of codes are made with. */
static void add_limbs(const rows_task_t *w)
{
    const int rows = w->t.rows;
    const int64_t quad = w->st->elems / CODES_QUADS, group = w->st->plus.group;
    for (int64_t k = 0; k < w->st->panel.K; k += quad) {
        const limbs_t *q = w->buf.codes + k / w->st->elems * rows;
        const int corner = (int)(k / quad % CODES_QUADS) * CODES_ROWS;
        for (int r = 0; r < rows; r++) {
            w->buf.sums[r * w->st->units + k / group] +=
                q[r].scale[corner] * (float)q[r].sum[corner];
        }
    }
}

static void clear_sums(const rows_task_t *w)
{
    memset(w->buf.sums, 0, (size_t)(w->t.rows * w->st->units) * sizeof(float));
}

/* Sums of all rows from their places to those that the decoder of offsets wants. */
static void place_sums(const rows_task_t *w)
{
    const rows_offsets_t *plus = &w->st->plus;
    const code_layout_t *f = &plus->floats->layout;
    for (int64_t c = 0; c < plus->chunks; c++) {
        for (int r = 0, n; r < w->t.rows; r += n) {
            n = rows_batch(w->t.rows - r);
            float *to = w->buf.q_sums + (r * plus->chunks + c * n) * f->elems;
            for (int i = 0; i < n; i++) {
                plus->floats->place(w->buf.sums + (r + i) * w->st->units + c * f->elems, f->vectors,
                                    to + i * f->lanes, n * f->lanes);
            }
        }
    }
}

/* All of A as the micro-kernels want it. False: not all rows are for them. */
static bool load_rows(rows_task_t *w)
{
    const int64_t K = w->st->panel.K;
    bool usable = true;
    if (w->st->way == IN_EXACT) {
        return load_codes(w);
    }
    for (int64_t k = 0; k < K; k += MM_K) {
        const int kn = (int)(K - k < MM_K ? K - k : MM_K);
        matmul_load_a(&w->t, k, kn);
        if (w->st->plus.groups > 0 && !in_integers(w->st->way)) {
            add_sums(w, k, kn);
        }
        for (int r = 0; r < w->t.rows && kn < MM_K; r++) {
            memset(w->t.buf.a + (size_t)r * MM_LDA + kn, 0, (size_t)(MM_K - kn) * sizeof(float));
        }
        for (int e = 0; e < kn; e += w->st->elems) {
            usable = load_chunk(w, (k + e) / w->st->elems, w->t.buf.a + e) && usable;
        }
    }
    return usable;
}

/* The step before has loaded the same rows, for this share. */
static bool has_left(const rows_state_t *st, int share_at)
{
    int64_t begin = 0, end = 0;
    if (share_at < st->left_shares) {
        share(st->left_items, share_at, st->left_shares, &begin, &end);
    }
    return begin < end;
}

/* ---- coefficients of B ----------------------------------------------------------------------- */

/* The data element of the first value of a line, mostly without a division. */
static int64_t line_at(const groups_t *g, int64_t line)
{
    return g->column.group == 1 ? codes_at(g, 0, line) : groups_at(g, 0, line);
}

/* The values of n lines from `line` on are on their way into the cache when they are wanted. */
static void fetch_groups(const groups_t *g, int64_t groups, int64_t line, int n)
{
    for (int i = 0; i < n && g->row.stride == 1; i++) {
        const unsigned char *p = groups_byte(g, line_at(g, line + i));
        for (int64_t at = 0; at < (groups * g->type->bits + 7) / 8; at += 64) {
            fetch_line(p + at);
        }
    }
}

/* The same for four lines. Where their values are one run, the products in integers fetch them
 * chunk by chunk instead: the CPU drops prefetches that come in a burst beside those of codes. */
static void fetch_coefs(const groups_t *g, const rows_units_t *u, int64_t line, code_coefs_t *to)
{
    to->next = NULL;
    if (u->next_step > 0) {
        to->next = groups_byte(g, line_at(g, line));
        to->next_step = u->next_step;
    } else {
        fetch_groups(g, u->groups, line, ROWS_LINES);
    }
}

/* Units that the last chunk of a line lacks are those of the next line where lines follow one
 * another: they meet zeros of A, and numbers will do. */
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
static int64_t load_coefs(const rows_task_t *w, const groups_t *g, const rows_units_t *u,
                          int64_t line, int n, float *raw)
{
    const int64_t units = u->units, chunks = w->st->chunks, ld = w->st->units;
    const int64_t need = in_integers(w->st->way) ? at_least(units, w->c->ints->lanes)
                         : u->step > 0           ? ((chunks - 1) >> u->shift) * u->step + u->step
                                                 : units;
    const bool run = g->column.group == 1 && g->row.stride == 1 && g->column.stride == u->groups;
    if (n == ROWS_LINES && u->times == 1 && run) {
        groups_load(g, w->c->features, line_at(g, line), 1, ROWS_LINES * u->groups, raw);
        for (int64_t k = units; k < need; k++) {
            raw[(ROWS_LINES - 1) * units + k] = 0;
        }
        if (lines_may_follow(raw, units, need)) {
            return units;
        }
    }
    for (int i = 0; i < ROWS_LINES; i++) {
        float *to = raw + i * ld;
        groups_load(g, w->c->features, line_at(g, line + (i < n ? i : n - 1)), g->row.stride,
                    u->groups, to);
        const float last = to[u->groups - 1];
        repeat_each(to, u->groups - 1, u->times);
        for (int64_t k = (u->groups - 1) * u->times; k < units; k++) {
            to[k] = last;
        }
        for (int64_t k = units; k < need; k++) {
            to[k] = 0;
        }
    }
    return ld;
}

/* Coefficients of n lines from `line` on for products in integers. Copied to raw if need be. */
static void find_units(const rows_task_t *w, const groups_t *g, const rows_units_t *u, int64_t line,
                       int n, float *raw, codes_units_t *to)
{
    to->type = u->in_place ? g->dtype : sinter_f32;
    to->n = (int)u->units;
    const int64_t ld = u->in_place ? 0 : load_coefs(w, g, u, line, n, raw);
    for (int i = 0; i < ROWS_LINES; i++) {
        to->line[i] = u->in_place ? groups_byte(g, codes_at(g, 0, line + (i < n ? i : n - 1)))
                                  : (const unsigned char *)(raw + i * ld);
    }
}

/* What coefficients of all fours have in common. */
static code_coefs_t coefs_of(const rows_task_t *w, const groups_t *g, const rows_units_t *u,
                             const float *raw, const void *by_unit)
{
    const float *at = w->st->way == IN_FLOATS ? raw : by_unit;
    return g->type != NULL
               ? (code_coefs_t){.at = at, .step = u->step, .shift = u->shift, .pick = u->pick}
               : (code_coefs_t){.at = NULL};
}

static void begin_fours(rows_task_t *w)
{
    const rows_state_t *st = w->st;
    const matrix_t *b = &st->panel.b.base;
    const groups_t none = {.type = NULL}, *zp = b->offsets ? &none : &b->zp;
    w->four =
        (code_rows_t){.stride = st->gathered > 0 ? st->gathered
                                                 : b->codes.column.stride * b->codes.type->bits / 8,
                      .bytes = st->bytes,
                      .ahead = st->ahead,
                      .scale = coefs_of(w, &b->scale, &st->scale, w->buf.raw, w->buf.scale),
                      .zp = coefs_of(w, zp, &st->zp, w->buf.raw_zp, w->buf.zp),
                      .floats.values = st->values,
                      .ints = {.type = w->c->type,
                               .table = st->table,
                               .zps_are_floats = in_integers(st->way) && zp->type != NULL &&
                                                 zp->type->cls != DTYPE_INT,
                               .in_order = st->in_order}};
}

/* n lines from `line` on, copied from their blocks into the first cache. */
static const unsigned char *gather_lines(const rows_task_t *w, int64_t line, int n)
{
    enum { OFTEN = 32 };
    const groups_t *codes = &w->t.b.codes;
    const int64_t bytes = codes->type->bits / 8, block = codes->block * bytes,
                  apart = codes->block_stride * bytes, blocks = w->st->panel.K / codes->block;
    for (int i = 0; i < n; i++) {
        const unsigned char *from = groups_byte(codes, codes_at(codes, 0, line + i));
        unsigned char *to = w->buf.lines + i * w->st->gathered;
        for (int64_t b = 0; b < blocks; b++, from += apart, to += block) {
            if (block == OFTEN) {
                memcpy(to, from, OFTEN);
            } else {
                memcpy(to, from, (size_t)block);
            }
        }
    }
    return w->buf.lines;
}

/* Four lines from column n of B on, of which `there` exist. */
static void next_four(rows_task_t *w, int64_t n, int there)
{
    const rows_state_t *st = w->st;
    const groups_t *codes = &w->t.b.codes, *scale = &w->t.b.scale, *zp = &w->t.b.zp;
    const codes_table_t *table = w->c->ints;
    w->four.data =
        st->gathered > 0 ? gather_lines(w, n, there) : groups_byte(codes, codes_at(codes, 0, n));
    w->four.rows = there;
    if (scale->type != NULL) {
        fetch_coefs(scale, &st->scale, n + st->ahead_lines, &w->four.scale);
    }
    if (zp->type != NULL) {
        fetch_coefs(zp, &st->zp, n + st->ahead_lines, &w->four.zp);
    }
    if (!in_integers(st->way)) {
        if (scale->type != NULL) {
            w->four.scale.ld = load_coefs(w, scale, &st->scale, n, there, w->buf.raw);
        }
        if (zp->type != NULL && !w->t.b.offsets) {
            w->four.zp.ld = load_coefs(w, zp, &st->zp, n, there, w->buf.raw_zp);
        }
        return;
    }
    codes_units_t units;
    if (scale->type != NULL) {
        find_units(w, scale, &st->scale, n, there, w->buf.raw, &units);
        table->by_unit(&units, w->buf.scale);
    }
    if (w->four.ints.zps_are_floats) {
        find_units(w, zp, &st->zp, n, there, w->buf.raw_zp, &units);
        table->by_unit(&units, (float *)(void *)w->buf.zp);
    } else if (w->four.zp.at != NULL) {
        find_units(w, zp, &st->zp, n, there, w->buf.raw_zp, &units);
        table->by_unit_s32(&units, w->c->type->offset, w->buf.zp);
    }
}

/* ---- panels ---------------------------------------------------------------------------------- */

static void run_floats(const rows_task_t *w, float *out)
{
    const code_rows_t *four = &w->four;
    const bool fine = four->scale.step > 1 || (four->zp.at && four->zp.step > 1);
    const int kind = four->zp.at ? ROWS_SHIFTED : four->scale.at ? ROWS_SCALED : ROWS_PLAIN;
    for (int r = 0, n; r < w->t.rows; r += n) {
        n = rows_batch(w->t.rows - r);
        w->c->floats->run[kind][fine][n / 2](four, w->buf.q + r * w->st->chunks * w->st->elems,
                                             out + (size_t)r * MM_PANEL, MM_PANEL);
    }
}

/* The offsets of n lines from `line` on. */
static code_rows_t offsets_of(const rows_task_t *w, int64_t line, int n)
{
    const rows_offsets_t *plus = &w->st->plus;
    const groups_t *o = &w->t.b.zp;
    if (!plus->copied) {
        return (code_rows_t){.data = groups_byte(o, line_at(o, line)),
                             .stride = o->column.stride * o->type->bits / 8,
                             .bytes = plus->groups * o->type->bits / 8,
                             .rows = n};
    }
    const int64_t ld = plus->chunks * plus->floats->layout.elems;
    for (int i = 0; i < n; i++) {
        float *to = w->buf.raw_zp + i * ld;
        groups_load(o, w->c->features, line_at(o, line + i), o->row.stride, plus->groups, to);
        memset(to + plus->groups, 0, (size_t)(ld - plus->groups) * sizeof(float));
    }
    return (code_rows_t){.data = (const unsigned char *)w->buf.raw_zp,
                         .stride = ld * (int64_t)sizeof(float),
                         .bytes = ld * (int64_t)sizeof(float),
                         .rows = n};
}

/* out[row * MM_PANEL + line] += the sum over the groups of offset * sum of A, for n lines from
 * `line` on. */
static void add_offsets(const rows_task_t *w, int64_t line, int n, float *out)
{
    const rows_offsets_t *plus = &w->st->plus;
    if (in_integers(w->st->way)) {
        codes_units_t units;
        find_units(w, &w->t.b.zp, &w->st->zp, line, n, w->buf.raw_zp, &units);
        w->c->ints->add_units(&units, w->buf.sums, w->st->units, w->t.rows, out, MM_PANEL);
        return;
    }
    const code_rows_t o = offsets_of(w, line, n);
    float part[ROWS_MOST * ROWS_LINES];
    for (int r = 0, m; r < w->t.rows; r += m) {
        m = rows_batch(w->t.rows - r);
        plus->floats->run[ROWS_PLAIN][0][m / 2](
            &o, w->buf.q_sums + r * plus->chunks * plus->floats->layout.elems,
            part + (size_t)r * ROWS_LINES, ROWS_LINES);
    }
    for (int r = 0; r < w->t.rows; r++) {
        for (int i = 0; i < ROWS_LINES; i++) {
            out[(size_t)r * MM_PANEL + i] += part[r * ROWS_LINES + i];
        }
    }
}

/* False: sums are not finite. These are of codes, and meet scales, zero points that are floats and
 * offsets later, so that the numbers themselves may add up to something that is. */
static bool multiply(rows_task_t *w)
{
    const groups_t *zp = &w->t.b.zp;
    const bool apart = in_integers(w->st->way) ||
                       (zp->type != NULL && (w->t.b.offsets || zp->type->cls != DTYPE_INT));
    for (int c = 0; c < w->t.cols; c += ROWS_LINES) {
        const int there = w->t.cols - c < ROWS_LINES ? w->t.cols - c : ROWS_LINES;
        next_four(w, w->t.n0 + c, there);
        if (in_integers(w->st->way)) {
            w->c->ints->lines(&w->four, w->t.rows, w->c->limbs, w->buf.codes, w->t.buf.acc + c,
                              MM_PANEL);
        } else {
            run_floats(w, w->t.buf.acc + c);
        }
        if (w->st->plus.groups > 0) {
            add_offsets(w, w->t.n0 + c, there, w->t.buf.acc + c);
        }
    }
    return !apart || matmul_sums_fit(&w->t);
}

/* Loads all of A, unless the step before has. */
static bool take_rows(rows_task_t *w, int share_at)
{
    if (w->st->plus.groups > 0) {
        clear_sums(w);
    }
    const bool usable = has_left(w->st, share_at) ? *w->buf.usable : load_rows(w);
    if (w->st->plus.groups > 0 && usable && in_integers(w->st->way)) {
        add_limbs(w);
    } else if (w->st->plus.groups > 0 && usable) {
        place_sums(w);
    }
    return usable;
}

/* One panel. Where sums are not finite, those of the same row and 16 columns are taken from panels:
 * how columns are divided into panels must not matter. */
static void run_panel(rows_task_t *w, bool usable)
{
    const char *why = !usable && w->st->way == IN_EXACT
                          ? "some by panels (scales or zero points of A do not suit integers)"
                      : !usable     ? "some by panels (rows of A are not finite, too small or too "
                                      "large)"
                      : multiply(w) ? NULL
                                    : "some by panels (scales, zero points or offsets of B are not "
                                      "finite or too large)";
    float sums[ROWS_MOST * MM_PANEL];
    if (why == NULL) {
        return;
    }
    report_detour(w->t.worker, why);
    memcpy(sums, w->t.buf.acc, (size_t)w->t.rows * MM_PANEL * sizeof *sums);
    matmul_panel(&w->t);
    for (int i = 0; i < w->t.rows * MM_PANEL && usable; i += TILES_COLUMNS) {
        const int n = (int)at_most(w->t.cols - i % MM_PANEL, TILES_COLUMNS);
        if (n > 0 && matmul_within(sums + i, n, FLT_MAX)) {
            memcpy(w->t.buf.acc + i, sums + i, (size_t)n * sizeof *sums);
        }
    }
}

void matmul_rows_work(const kernel_t *self, const problem_t *p, const void *config,
                      const void *state, const worker_t *w)
{
    const rows_state_t *st = state;
    const rows_config_t *c = config;
    const matmul_state_t *m = &st->panel;
    if (st->way == BY_PANELS) {
        matmul_work(self, p, config, state, w);
        return;
    }
    if (w->phase == 0) {
        return;
    }
    rows_task_t t = {.t = {.c = &c->panel, .st = m, .worker = w, .tail = p->step->tail != NULL},
                     .c = c,
                     .st = st};
    int64_t begin, end, mat = -1;
    bool usable = false;
    share(m->items, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    matmul_buffers(&c->panel, p->step, w->scratch, &t.t.buf);
    const size_t own = rows_buffers(st, NULL, &t.buf);
    rows_buffers(st, (unsigned char *)w->shared + own * (size_t)w->tid, &t.buf);
    begin_fours(&t);
    for (int64_t i = begin; i < end; i++) {
        matmul_seek(&t.t, i);
        if (i / m->n_panels != mat) {
            mat = i / m->n_panels;
            usable = take_rows(&t, w->tid);
            *t.buf.usable = usable;
        }
        run_panel(&t, usable);
        matmul_finish(&t.t);
    }
}
