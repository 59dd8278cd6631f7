/* Convolution: a product whose rows of A are patches of an image, gathered where they are loaded.
 *
 * A row is a result: batch, then spatial dims. An element k of a row is a tap, one place of the
 * window, and a channel of the group: k = tap * channels + channel. B has the matrix [channels of
 * the group, results' channels] for each group and tap. A run of k within one tap, over rows that
 * differ in the last spatial dim only, is a matrix of the image; what lies in the padding is 0. */
#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/matmul/matmul.h"
#include "base/status.h"

/* ---- binding --------------------------------------------------------------------------------- */

/* How results and taps find elements along spatial dim i. */
static patch_dim_t bind_dim(const conv_params_t *c, int i, int64_t image, int64_t result)
{
    const window_t *w = &c->dim[i];
    return c->transposed ? (patch_dim_t){.in = image,
                                         .kernel = w->kernel,
                                         .times = 1,
                                         .over = w->stride,
                                         .step = -w->dilation,
                                         .base = window_begin(w, result, image)}
                         : (patch_dim_t){.in = image,
                                         .kernel = w->kernel,
                                         .times = w->stride,
                                         .over = 1,
                                         .step = w->dilation,
                                         .base = -window_begin(w, image, result)};
}

/* Scales and zero points of the image depend on the channel at most: pass sink_dequant sees to
 * that. */
static void bind_image(patches_t *p, matrices_t *a)
{
    groups_t *const parts[MATRIX_PARTS] = {&a->base.codes, &a->base.high, &a->base.scale,
                                           &a->base.zp};
    for (int i = 0; i < MATRIX_PARTS; i++) {
        parts[i]->row = (axis_t){.stride = 0, .group = 1};
        parts[i]->column = a->axis[p->channel][i];
    }
}

/* Products of integers ask for coefficients by elements of K, of which the channels are a part. In
 * tiles, K is all of a patch. */
static void bind_weights(int64_t K, matrices_t *b)
{
    groups_t *codes = &b->base.codes;
    groups_t *const parts[] = {&b->base.scale, &b->base.zp};
    for (int i = 0; i < 2; i++) {
        if (parts[i]->row.group >= b->dims[b->ndims - 2]) {
            parts[i]->row.stride = 0;
        }
    }
    if (codes->tiled != NOT_TILED) {
        tiles_of_codes(tiles_bits(codes->tiled, codes->dtype), K, TILES_COLUMNS, &codes->strip);
    }
}

sinter_status_t patches_bind(const problem_t *problem, matmul_state_t *st)
{
    const matmul_params_t *m = &problem->step->p.matmul;
    const conv_params_t *c = m->conv;
    const bound_t *out = &problem->frame->v[m->out_dims], *x = &problem->frame->v[m->a.data];
    patches_t *p = &st->patches;
    *p = (patches_t){.on = true, .n = x->ndims - 2, .channel = c->channel};
    p->first = c->channel == 1 ? 2 : 1;
    SG_TRY(operand_bind(&m->a, problem->frame, &st->a));
    bind_image(p, &st->a);
    p->channels = x->dims[p->channel] / c->groups;
    p->taps = 1;
    st->nb = out->ndims - 2;
    st->mats = c->groups;
    st->n_mat = 0;
    st->n_row = 1 + p->n;
    st->row_dim[0] = 0;
    st->row_extent[0] = out->dims[0];
    st->rows = out->dims[0];
    for (int i = 0; i < p->n; i++) {
        p->dim[i] = bind_dim(c, i, x->dims[p->first + i], out->dims[p->first + i]);
        p->kernel[i] = p->dim[i].kernel;
        p->taps *= p->dim[i].kernel;
        st->row_dim[1 + i] = 1 + i; /* of the chain, which has channels last */
        st->row_extent[1 + i] = out->dims[p->first + i];
        if (!mul_i64(st->rows, out->dims[p->first + i], &st->rows)) {
            return sg_fail(sinter_invalid_shape, "convolution: results overflow");
        }
    }
    st->M = st->row_extent[p->n];
    st->N = st->b.dims[st->b.ndims - 1];
    if (!mul_i64(p->taps, p->channels, &st->K)) {
        return sg_fail(sinter_invalid_shape, "convolution: elements of a patch overflow");
    }
    bind_weights(st->K, &st->b);
    return sinter_success;
}

void patches_turn(const conv_params_t *c, chain_bound_t *chain)
{
    int to[SINTER_MAX_NDIMS];
    for (int d = 0; d < chain->ndims; d++) {
        to[d] = d == c->channel ? chain->ndims - 1 : d > c->channel ? d - 1 : d;
    }
    chain_permute(chain, to);
}

/* ---- A --------------------------------------------------------------------------------------- */

/* The rows of a stretch that a tap meets inside of the image: every `apart`-th one from `row` on,
 * n of them; the first one meets element `from` of the last spatial dim, the next one from +
 * step. */
typedef struct met {
    int row, apart, n;
    int64_t from, step;
} met_t;

static met_t meet(const patch_dim_t *d, int64_t tap, int64_t first, int rows)
{
    const int64_t base = tap * d->step + d->base;
    int64_t begin = first, end = first + rows; /* results */
    met_t met = {.apart = (int)d->over, .step = d->times};
    if (d->over == 1) {
        const int64_t least = base < 0 ? (-base + d->times - 1) / d->times : 0,
                      most = base < d->in ? (d->in - 1 - base) / d->times + 1 : 0;
        begin = at_least(begin, least);
        end = at_most(end, most);
    } else {
        begin = at_least(begin, -base);
        begin += (d->over - (begin + base) % d->over) % d->over;
        end = at_most(end, (d->in - 1) * d->over - base + 1);
    }
    met.row = (int)(begin - first);
    met.n = begin < end ? (int)((end - begin + d->over - 1) / d->over) : 0;
    met.from = (begin * d->times + base) / d->over;
    return met;
}

/* The element of a spatial dim that a tap of a result meets; -1: it lies in the padding. */
static int64_t element(const patch_dim_t *d, int64_t result, int64_t tap)
{
    const int64_t at = result * d->times + tap * d->step + d->base;
    return at >= 0 && at % d->over == 0 && at / d->over < d->in ? at / d->over : -1;
}

static void clear(float *to, int rows, int columns)
{
    for (int r = 0; r < rows; r++, to += MM_LDA) {
        memset(to, 0, (size_t)columns * sizeof *to);
    }
}

/* Makes element `from` of the image the first one of one plane of codes; its rows go on along the
 * last spatial dim, in steps. */
static void place(const matmul_state_t *st, const int64_t *from, int part, int64_t step,
                  groups_t *codes)
{
    const patches_t *p = &st->patches;
    for (int d = 0; d < st->a.ndims; d++) {
        codes->first += d == p->channel ? 0 : from[d] * st->a.axis[d][part].stride;
    }
    codes->row = (axis_t){st->a.axis[p->first + p->n - 1][part].stride * step, 1};
}

/* A rectangle of A within one tap and one stretch of rows: the task's index is that of the first
 * row. */
static void load_tap(const matmul_task_t *t, int rows, int64_t tap, int64_t channel, int channels,
                     float *to)
{
    const matmul_state_t *st = t->st;
    const patches_t *p = &st->patches;
    const int last = p->n - 1;
    int64_t at[SINTER_MAX_NDIMS];
    matrix_t a = st->a.base;
    bool inside = true;
    walk_seek(p->n, p->kernel, tap, at);
    const met_t met = meet(&p->dim[last], at[last], t->idx[1 + last], rows);
    int64_t from[SINTER_MAX_NDIMS] = {[0] = t->idx[0]}; /* of the image, by its dims */
    for (int i = 0; i < last; i++) {
        const int64_t e = element(&p->dim[i], t->idx[1 + i], at[i]);
        inside = inside && e >= 0;
        from[p->first + i] = e;
    }
    from[p->first + last] = met.from;
    const int n = inside ? met.n : 0;
    if (n == 0 || met.apart > 1) {
        clear(to, n < rows ? rows : 0, channels);
    } else {
        clear(to, met.row, channels);
        clear(to + (size_t)(met.row + n) * MM_LDA, rows - met.row - n, channels);
    }
    if (n > 0) {
        place(st, from, IN_CODES, met.step, &a.codes);
        place(st, from, IN_HIGH, met.step, &a.high);
        t->c->tile->load(&a, (rect_t){0, n, t->mat * p->channels + channel, channels},
                         to + (size_t)met.row * MM_LDA, (int64_t)met.apart * MM_LDA, n, channels);
    }
}

void patches_load(matmul_task_t *t, int first, int n, int64_t k, int kn)
{
    const patches_t *p = &t->st->patches;
    for (int r = 0, rows; r < n; r += rows) {
        rows = (int)at_most(matmul_seek_row(t, first + r), n - r);
        for (int64_t at = k, some; at < k + kn; at += some) {
            const int64_t tap = at / p->channels, channel = at % p->channels;
            some = at_most(p->channels - channel, k + kn - at);
            load_tap(t, rows, tap, channel, (int)some, t->buf.a + (size_t)r * MM_LDA + (at - k));
        }
    }
}

/* ---- B --------------------------------------------------------------------------------------- */

matrix_t patches_weights(const matmul_state_t *st, int64_t group, int64_t tap)
{
    int64_t idx[SINTER_MAX_NDIMS];
    idx[0] = group;
    walk_seek(st->patches.n, st->patches.kernel, tap, idx + 1);
    matrix_t m = matrix_at(&st->b, idx, st->b.ndims - 2);
    if (m.codes.tiled != NOT_TILED) { /* all taps are one matrix */
        m.codes.data += group * tiles_strips(st->N) * m.codes.strip;
    }
    return m;
}

static matrix_t part_of(const matrix_t *w, patches_load_t what)
{
    matrix_t m = what == PATCHES_VALUES ? *w : matrix_of_codes(w);
    m.zp = what == PATCHES_CODES ? m.zp : w->zp;
    return m;
}

/* at: of all elements of K and the columns of the group. */
void patches_load_b(const matmul_task_t *t, patches_load_t what, rect_t at, float *to, int64_t ld,
                    int pad_rows, int pad_columns)
{
    const patches_t *p = &t->st->patches;
    int done = 0;
    if (t->b.codes.tiled != NOT_TILED) { /* one matrix */
        const matrix_t m = part_of(&t->b, what);
        t->c->tile->load(&m, at, to, ld, pad_rows, pad_columns);
        return;
    }
    for (int some; done < at.rows; done += some) {
        const int64_t tap = (at.row + done) / p->channels, channel = (at.row + done) % p->channels;
        const matrix_t w = patches_weights(t->st, t->mat, tap);
        const matrix_t m = part_of(&w, what);
        some = (int)at_most(p->channels - channel, at.rows - done);
        t->c->tile->load(&m, (rect_t){channel, some, at.column, at.columns}, to + done * ld, ld,
                         some, pad_columns);
    }
    for (; done < pad_rows; done++) {
        memset(to + done * ld, 0, (size_t)pad_columns * sizeof *to);
    }
}

/* ---- tiles ----------------------------------------------------------------------------------- */

const char *patches_refuse_tiles(const plan_t *plan, const step_t *step)
{
    const operand_t *b = &step->p.matmul.b;
    const lt_t *lt = &plan->values[b->data].lt;
    const int values[] = {b->scale, b->zp};
    const int8_t *dims_of[] = {b->scale_dim, b->zp_dim};
    if (lt->dims[lt->ndims - 1] == 1 && lt->dims[lt->ndims - 2] == 1) {
        return "B is filters of single channels";
    }
    if (matmul_b_is_plain(step) ? !tiles_take_floats(lt->data_type)
                                : tiles_type(lt->data_type) == NULL || b->scale < 0 ||
                                      b->split != sinter_data_type_undef) {
        return "no tiles for the data types of B";
    }
    for (int i = 0; i < 2; i++) {
        for (int d = 1; d < lt->ndims - 1 && values[i] >= 0; d++) {
            const int own = dims_of[i][d];
            if (own >= 0 && plan->values[values[i]].lt.dims[own] != 1) {
                return "scales or zero points of the weights differ within a patch";
            }
        }
    }
    return NULL;
}

/* ---- integers -------------------------------------------------------------------------------- */

/* No stride along any of the first n dims. */
static bool is_one(const matrices_t *m, int part, int n)
{
    bool one = true;
    for (int d = 0; d < n; d++) {
        one = one && (m->dims[d] == 1 || m->axis[d][part].stride == 0 ||
                      m->axis[d][part].group >= m->dims[d]);
    }
    return one;
}

const char *patches_refuse_integers(const matmul_state_t *st)
{
    const matrices_t *a = &st->a, *b = &st->b;
    const bool image = is_one(a, IN_SCALE, a->ndims) && is_one(a, IN_ZP, a->ndims);
    bool weights = true;
    for (int d = 1; d < b->ndims - 1; d++) { /* the window, channels of the image */
        for (int part = IN_SCALE; part <= IN_ZP; part++) {
            weights = weights && (b->dims[d] == 1 || b->axis[d][part].stride == 0 ||
                                  b->axis[d][part].group >= b->dims[d]);
        }
    }
    return !image     ? "the image has more than one scale or zero point"
           : !weights ? "scales or zero points of the weights differ within a patch"
                      : NULL;
}
