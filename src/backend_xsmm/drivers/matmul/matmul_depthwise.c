/* Depthwise convolution: a filter for each channel, so there is nothing to multiply matrices of.
 *
 *   result[.., channels] = sum over taps of image[where the tap meets it][channels] *
 *                          weights[tap][channels]
 *
 * Before the results, the weights become floats, tap by tap; so does the image, with channels last,
 * if it has another type or another order. An item is a stretch of results along the last spatial
 * dim. Its inner results meet all taps of that dim, and go together; those at the edges go one by
 * one. */
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/matmul/matmul.h"
#include "base/status.h"

enum {
    ITEM = 32,         /* most results of an item */
    SUMS = CHAIN_TILE, /* elements of the results that go together */
    MOST_TAPS = 64,    /* that are added at a time */
    LOADED = 64        /* places of the image that are loaded at a time */
};

typedef struct depthwise_state {
    matmul_state_t m;
    const tile_table_t *tile;
    bool direct; /* the image is floats, with contiguous channels, and is read where it lies */
    int64_t channels, places;        /* places of the image: all of it but the channels */
    int64_t pixel[SINTER_MAX_NDIMS]; /* elements of the image as it is read, by dim */
    int64_t in[SINTER_MAX_NDIMS];   /* extents of the image without channels: batch, then spatial */
    int64_t inner_begin, inner_end; /* results along the last dim that meet all of its taps */
    int64_t out[SINTER_MAX_NDIMS], n_items; /* extents in items */
    size_t image_at;                        /* bytes: where the image is in shared memory */
} depthwise_state_t;

typedef struct depthwise_task {
    const depthwise_state_t *st;
    const float *image, *weights;
    float *sums;
    void *chain;
} depthwise_task_t;

static size_t buffers(const step_t *step, unsigned char *scratch, depthwise_task_t *t)
{
    size_t at = 0;
    t->chain = carve(scratch, &at, chain_tile_scratch_bytes(step->post), 1);
    t->sums = carve(scratch, &at, SUMS, sizeof *t->sums);
    return at;
}

/* ---- choosing -------------------------------------------------------------------------------- */

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    const matmul_params_t *m = &p->step->p.matmul;
    (void)self;
    if (m->conv == NULL) {
        return "not a convolution";
    }
    if (m->conv->groups < 2 || m->conv->transposed) {
        return "a convolution of one group, or transposed";
    }
    if (p->step->tail != NULL) {
        return "results are quantised with computed scales";
    }
    return problem_dim(p, m->b.data, 1) != 1 || problem_dim(p, m->b.data, 2) != 1
               ? "groups have more than one channel"
               : NULL;
}

/* Elements between neighbours of the image as it is read. */
static void bind_places(depthwise_state_t *st, const bound_t *x)
{
    const patches_t *p = &st->m.patches;
    int64_t stride = st->channels;
    for (int i = p->n; i >= 0; i--) {
        const int d = i == 0 ? 0 : p->first + i - 1;
        st->in[i] = x->dims[d];
        st->pixel[i] = st->direct ? x->strides[d] : stride;
        stride *= x->dims[d];
    }
}

static bool is_direct(const matmul_params_t *m, const bound_t *x, int channel)
{
    return x->dtype == sinter_f32 && m->a.scale < 0 && m->a.zp < 0 && m->a.high < 0 &&
           (x->strides[channel] == 1 || x->dims[channel] == 1);
}

/* The results along the last dim all of whose taps lie inside. */
static void bind_inner(depthwise_state_t *st)
{
    const patches_t *p = &st->m.patches;
    const patch_dim_t *d = &p->dim[p->n - 1];
    const int64_t last = d->in - 1 - (d->kernel - 1) * d->step - d->base;
    st->inner_begin = d->base < 0 ? (-d->base + d->times - 1) / d->times : 0;
    st->inner_end = at_most(last < 0 ? 0 : last / d->times + 1, st->m.M);
}

/* Memory for the weights, and for the image where it is not read directly. */
static sinter_status_t bind_shared(depthwise_state_t *st, size_t *bytes)
{
    int64_t weights, image = 0;
    bool fits = mul_i64(st->m.patches.taps, st->channels, &weights) &&
                mul_i64(weights, (int64_t)sizeof(float), &weights);
    st->places = 1;
    for (int i = 0; i <= st->m.patches.n; i++) {
        fits = fits && mul_i64(st->places, st->in[i], &st->places);
    }
    fits = fits && (st->direct || (mul_i64(st->places, st->channels, &image) &&
                                   mul_i64(image, (int64_t)sizeof(float), &image)));
    if (!fits || !add_size((size_t)weights, SCRATCH_ALIGN + (size_t)image, bytes)) {
        return sg_fail(sinter_invalid_shape, "convolution: the image as floats overflows");
    }
    st->image_at = scratch_round((size_t)weights);
    *bytes = st->image_at + (size_t)image;
    return sinter_success;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    const matmul_params_t *m = &p->step->p.matmul;
    const bound_t *x = &p->frame->v[m->a.data];
    depthwise_state_t *st = state;
    (void)config;
    SG_TRY(matrices_bind(&m->b, m->trans_b, p->frame, &st->m.b));
    SG_TRY(patches_bind(p, &st->m));
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &st->m.post));
    patches_turn(m->conv, &st->m.post);
    st->tile = tile_table(self->needs);
    st->channels = st->m.mats;
    st->direct = is_direct(m, x, m->conv->channel);
    bind_places(st, x);
    bind_inner(st);
    SG_TRY(bind_shared(st, &choice->shared_bytes));
    st->n_items = st->channels > 0 ? 1 : 0;
    for (int i = 0; i < st->m.n_row; i++) {
        const int64_t n = st->m.row_extent[i];
        st->out[i] = i + 1 < st->m.n_row ? n : (n + ITEM - 1) / ITEM;
        st->n_items *= st->out[i]; /* at most the rows, which patches_bind has counted */
    }
    choice->shares_bytes = chain_shares_bytes(&st->m.post);
    return sinter_success;
}

/* ---- operands as floats ---------------------------------------------------------------------- */

/* One tap of the weights is a row, with the channels as its columns. */
static void load_weights(const depthwise_state_t *st, float *to, int tid, int nth)
{
    int64_t begin, end;
    share(st->m.patches.taps, tid, nth, &begin, &end);
    for (int64_t tap = begin; tap < end; tap++) {
        matrix_t w = patches_weights(&st->m, 0, tap);
        groups_t *const parts[MATRIX_PARTS] = {&w.codes, &w.high, &w.scale, &w.zp};
        for (int i = 0; i < MATRIX_PARTS; i++) {
            parts[i]->row = (axis_t){.stride = 0, .group = 1};
            parts[i]->column = st->m.b.axis[0][i];
        }
        for (int64_t c = 0; c < st->channels; c += SUMS) {
            const int n = (int)at_most(st->channels - c, SUMS);
            st->tile->load(&w, (rect_t){0, 1, c, n}, to + tap * st->channels + c, n, 1, n);
        }
    }
}

/* Places first.. of the image that differ in the last dim alone: their channels in rows. */
static void load_places(const depthwise_state_t *st, int64_t first, int n, float *to)
{
    const patches_t *p = &st->m.patches;
    const matrices_t *a = &st->m.a;
    matrix_t m = a->base;
    groups_t *const planes[] = {&m.codes, &m.high};
    int64_t at[SINTER_MAX_NDIMS];
    walk_seek(p->n + 1, st->in, first, at);
    for (int k = 0; k < 2; k++) {
        for (int i = 0; i <= p->n; i++) {
            planes[k]->first += at[i] * a->axis[i == 0 ? 0 : p->first + i - 1][k].stride;
        }
        planes[k]->row = (axis_t){a->axis[p->first + p->n - 1][k].stride, 1};
    }
    for (int64_t c = 0; c < st->channels; c += SUMS) {
        const int some = (int)at_most(st->channels - c, SUMS);
        st->tile->load(&m, (rect_t){0, n, c, some}, to + first * st->channels + c, st->channels, n,
                       some);
    }
}

static void load_image(const depthwise_state_t *st, float *to, int tid, int nth)
{
    const int64_t last = st->in[st->m.patches.n];
    int64_t begin, end;
    share(st->places, tid, nth, &begin, &end);
    for (int64_t i = begin, n; i < end; i += n) {
        n = at_most(at_most(last - i % last, LOADED), end - i);
        load_places(st, i, (int)n, to);
    }
}

/* ---- results --------------------------------------------------------------------------------- */

/* The element of the image that a tap of a result meets, without channels; -1: it lies in the
 * padding. */
static int64_t meet_tap(const depthwise_state_t *st, const int64_t *result, const int64_t *tap)
{
    const patches_t *p = &st->m.patches;
    int64_t from = result[0] * st->pixel[0];
    for (int i = 0; i < p->n; i++) {
        const patch_dim_t *d = &p->dim[i];
        const int64_t at = result[1 + i] * d->times + tap[i] * d->step + d->base;
        if (at < 0 || at >= d->in) {
            return -1;
        }
        from += at * st->pixel[1 + i];
    }
    return from;
}

/* n results from `result` on, which meet the same taps: channels c.. of them into sums. */
static void add_taps(const depthwise_task_t *t, const int64_t *result, int n, int64_t c,
                     int channels)
{
    const depthwise_state_t *st = t->st;
    const patches_t *p = &st->m.patches;
    const float *x[MOST_TAPS], *w[MOST_TAPS];
    tile_taps_t taps = {.x = x,
                        .w = w,
                        .results = n,
                        .channels = channels,
                        .apart = p->dim[p->n - 1].times * st->pixel[p->n],
                        .to = t->sums,
                        .ld = channels};
    int64_t tap[SINTER_MAX_NDIMS] = {0};
    for (int64_t i = 0; i < p->taps; i++, walk_next(p->n, p->kernel, tap)) {
        const int64_t from = meet_tap(st, result, tap);
        if (from >= 0) {
            x[taps.n] = t->image + from + c;
            w[taps.n++] = t->weights + i * st->channels + c;
        }
        if (taps.n == MOST_TAPS) {
            st->tile->add_taps(&taps);
            taps.n = 0;
            taps.add = true;
        }
    }
    if (taps.n > 0 || !taps.add) {
        st->tile->add_taps(&taps);
    }
}

/* n results that meet the same taps. */
static void results(const depthwise_task_t *t, const int64_t *result, int n)
{
    const depthwise_state_t *st = t->st;
    const int dims = st->m.n_row;
    int64_t idx[SINTER_MAX_NDIMS];
    for (int64_t c = 0; c < st->channels; c += CHAIN_LONG) {
        const int channels = (int)at_most(st->channels - c, CHAIN_LONG);
        add_taps(t, result, n, c, channels);
        for (int d = 0; d < dims; d++) {
            idx[d] = result[d];
        }
        idx[dims] = c;
        chain_run_rows(&st->m.post, idx, n, channels, t->sums, t->chain);
    }
}

static void item(const depthwise_task_t *t, int64_t *result)
{
    const depthwise_state_t *st = t->st;
    int64_t *at = &result[st->m.n_row - 1];
    const int64_t end = at_most((*at + 1) * ITEM, st->m.M),
                  most = at_least(SUMS / at_most(st->channels, CHAIN_LONG), 1);
    int64_t n;
    for (*at *= ITEM; *at < end; *at += n) {
        const bool inner = *at >= st->inner_begin && *at < st->inner_end;
        n = inner ? at_most(at_most(st->inner_end, end) - *at, most) : 1;
        results(t, result, (int)n);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const depthwise_state_t *st = state;
    float *const weights = w->shared, *const copy = (float *)(void *)((unsigned char *)w->shared +
                                                                      st->image_at);
    int64_t begin, end, at[SINTER_MAX_NDIMS];
    depthwise_task_t t = {.st = st, .weights = weights, .image = copy};
    (void)self, (void)config;
    if (w->phase == 0) {
        load_weights(st, weights, w->tid, w->nth);
        if (!st->direct) {
            load_image(st, copy, w->tid, w->nth);
        }
        return;
    }
    if (st->direct) {
        t.image = (const float *)(const void *)st->m.a.base.codes.data;
    }
    buffers(p->step, w->scratch, &t);
    share(st->n_items, w->tid, w->nth, &begin, &end);
    for (int64_t i = begin; i < end; i++) {
        walk_seek(st->m.n_row, st->out, i, at);
        item(&t, at);
    }
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    depthwise_task_t t;
    (void)self, (void)arena;
    out->state_bytes = sizeof(depthwise_state_t);
    out->share_bytes = buffers(p->step, NULL, &t);
    out->note = "a filter for each channel, over runs of channels";
    return sinter_success;
}

const driver_t driver_matmul_depthwise = {.step = STEP_MATMUL,
                                          .arithmetic = IN_F32,
                                          .phases = 2,
                                          .takes = "a filter for each channel",
                                          .refuse = refuse,
                                          .setup = setup,
                                          .choose = choose,
                                          .work = work};
