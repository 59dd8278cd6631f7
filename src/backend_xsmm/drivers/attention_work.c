/* The work of the attention kernels, from passes over T to results: see attention.h for the
 * algorithm. */
#include "backend_xsmm/drivers/attention_task.h"

#include <math.h>
#include <string.h>

/* ---- results --------------------------------------------------------------------------------- */

static void store_stats(const task_t *t, const int64_t *idx, float m, float l)
{
    const bound_t *out = &t->frame->v[t->p->stats];
    const int skip = t->st->d.nb + 2 - out->ndims;
    int64_t at = 0;
    for (int d = 0; d < out->ndims - 1; d++) {
        at += (out->dims[d] == 1 ? 0 : idx[d + skip]) * out->strides[d];
    }
    const float x = l == 0 && (t->p->inf_as_zero || t->st->d.T == 0) ? -INFINITY
                    : l == 0                                         ? NAN
                                                                     : m + logf(l);
    dtype_traits(out->dtype)->codec.store_f32(out->data, at, 1, 1, &x);
}

/* Row r of the block, whose sums are m, l and acc, to the outputs. */
static void finish_row(task_t *t, int r, float m, float l, float *acc)
{
    const int nb = t->st->d.nb;
    if (t->p->stats >= 0 && t->dv0 == 0) {
        store_stats(t, t->idx[r], m, l);
    }
    if (!t->p->prob) {
        /* l = 0: no column, or -inf in all of them. acc is then 0, or NaN where V has something
         * that 0 times is NaN. */
        const bool zero = l == 0 && (t->p->inf_as_zero || t->st->d.T == 0);
        t->c->fn->scale_row(acc, t->dv, zero ? 1 : l == 0 ? NAN : 1 / l);
    }
    for (int i = 0; i < t->dv; i += CHAIN_BLOCK) {
        t->idx[r][nb + 1] = t->dv0 + i;
        chain_run(&t->st->post, t->idx[r], t->dv - i < CHAIN_BLOCK ? t->dv - i : CHAIN_BLOCK,
                  acc + i, t->b.chain);
    }
    if (t->tail && t->dv > 0) {
        t->idx[r][nb + 1] = t->dv0;
        quant_tail_run(&t->st->tail, t->idx[r], t->dv, acc, 0, t->b.tail);
    }
    t->idx[r][nb + 1] = 0;
}

static void finish_rows(task_t *t, int r0, int n)
{
    for (int r = r0; r < r0 + n; r++) {
        finish_row(t, r, t->b.m[r], t->b.l[r], t->b.acc + (int64_t)r * t->c->ld_v);
    }
}

/* ---- passes over T --------------------------------------------------------------------------- */

static float sink_of(const task_t *t, int r)
{
    const bound_t *sink = &t->frame->v[t->p->sink];
    int64_t at = 0;
    float x;
    for (int d = 0; d <= t->st->d.nb; d++) {
        at += t->idx[r][d] * t->st->sink_stride[d];
    }
    dtype_traits(sink->dtype)->codec.load_f32(sink->data, at, 0, 1, &x);
    return x;
}

/* n rows from r0 on; with_sink: in one part of T only. */
static void clear(task_t *t, int r0, int n, bool with_sink)
{
    for (int r = r0; r < r0 + n; r++) {
        const float sink = with_sink && t->p->sink >= 0 ? sink_of(t, r) : -INFINITY;
        t->b.m[r] = sink;
        t->b.l[r] = sink == -INFINITY ? 0 : sink - sink + 1; /* e^0, NaN for +inf and NaN */
    }
    memset(t->b.acc + (int64_t)r0 * t->c->ld_v, 0, (size_t)n * (size_t)t->c->ld_v * sizeof(float));
}

/* The strip at row r0, before its first tile. */
static void begin_strip(task_t *t, const strip_t *strip, bool with_sink)
{
    clear(t, strip->r0, strip->n, with_sink);
    if (!t->st->k_side.ops) {
        attention_queries(t, strip->r0, strip->n);
        if (t->st->ints.on) {
            ints_queries(t, strip);
        }
        attention_fetch_queries(t, strip->r0 + strip->n);
    }
}

static void score_tile(task_t *t, const strip_t *strip, int64_t t0, int at, int nt)
{
    attention_scores(t, strip, t0, at, nt);
    if (t->st->scored) {
        attention_chain(t, &t->st->score, strip, t0, at, nt);
    }
}

/* Scores of what a strip sees of the tile at t0, columns at..at+nt-1; gives nt, which may be 0. */
static int score_visible(task_t *t, const strip_t *strip, int64_t t0, int64_t end, int *at)
{
    *at = (int)(at_most(at_least(strip->columns.begin, t0), end) - t0);
    const int nt = (int)(at_most(strip->columns.end, end) - t0) - *at;
    if (nt > 0) {
        score_tile(t, strip, t0, *at, nt);
    }
    return nt > 0 ? nt : 0;
}

static void online_step(task_t *t, const strip_t *strip, int64_t t0, int64_t end)
{
    int at;
    const int nt = score_visible(t, strip, t0, end, &at);
    if (nt == 0) {
        return;
    }
    attention_update(t, strip, t0, at, nt, !t->p->prob);
    if (!t->p->prob) {
        attention_accumulate(t, strip, t0, at, nt);
    }
}

/* m and l, and acc unless a probability chain wants a second pass. finish: results as soon as a
 * strip has them, while they are in L1. */
static void online_pass(task_t *t, span_t span, bool with_sink, bool finish)
{
    const int tk = t->c->tk;
    for (int64_t t0 = span.begin; t0 < span.end; t0 += tk) {
        const int64_t end = at_most(span.end, t0 + tk);
        attention_load(t, t0, (int)(end - t0), !t->p->prob);
        for (int r = 0; r < t->rows; r += t->c->strip) {
            const strip_t strip = attention_strip(t, r);
            if (t0 == span.begin) {
                begin_strip(t, &strip, with_sink);
            }
            if (end < span.end) {
                attention_fetch_tiles(t, r, end, span.end);
            } else {
                attention_fetch_results(t, &strip);
            }
            online_step(t, &strip, t0, end);
            if (finish && end == span.end) {
                finish_rows(t, strip.r0, strip.n);
            }
        }
    }
}

/* acc = chain(p) V. Not limited to the columns that a mask leaves: the chain need not map 0 to
 * 0. */
static void prob_pass(task_t *t)
{
    const int tk = t->c->tk;
    const int64_t T = t->st->d.T;
    for (int64_t t0 = 0; t0 < T; t0 += tk) {
        const int nt = (int)at_most(T - t0, tk);
        attention_load(t, t0, nt, true);
        for (int r = 0; r < t->rows; r += t->c->strip) {
            const strip_t strip = attention_strip(t, r);
            int at;
            const int seen = score_visible(t, &strip, t0, t0 + nt, &at);
            attention_normalise(t, &strip, t0, at, seen, nt);
            attention_chain(t, &t->st->prob, &strip, t0, 0, nt);
            for (int i = 0; i < strip.n; i++) {
                zero_columns(t->b.s + i * t->c->ld_s, nt,
                             t->st->v_side.ops ? t->c->ld_s : round_grain(nt));
            }
            attention_accumulate(t, &strip, t0, 0, nt);
        }
    }
}

/* The sums of an item, or of its part. */
static void passes(task_t *t, span_t span, bool with_sink, bool finish)
{
    if (span.begin >= span.end) {
        clear(t, 0, t->rows, with_sink);
    }
    online_pass(t, span, with_sink, finish);
    if (t->p->prob) {
        prob_pass(t);
    }
    if (t->st->v_side.ops) {
        decode_restore(&t->st->v_side, &t->b.decode, t->rows, t->b.acc, t->c->ld_v);
    }
}

/* ---- splits of T ----------------------------------------------------------------------------- */

/* The part of one split of one item in shared memory: m[rows], l[rows], acc[rows][dv]. */
static float *part(const attention_config_t *c, const attention_dims_t *d, void *shared,
                   int64_t item, int64_t split)
{
    float *base = (float *)(void *)((unsigned char *)shared + (64 - (uintptr_t)shared % 64) % 64);
    return base + (item * d->splits + split) * c->rows * (c->ld_v + 2);
}

static void save_part(const task_t *t, float *to)
{
    const size_t rows = (size_t)t->c->rows;
    memcpy(to, t->b.m, rows * sizeof(float));
    memcpy(to + rows, t->b.l, rows * sizeof(float));
    memcpy(to + 2 * rows, t->b.acc, (size_t)t->rows * (size_t)t->c->ld_v * sizeof(float));
}

/* Exact: each part is rescaled from its own maximum to the row's. */
static void merge_row(task_t *t, void *shared, int64_t item, int r)
{
    const attention_config_t *c = t->c;
    const attention_dims_t *d = &t->st->d;
    float m = -INFINITY, l = 0, *acc = t->b.acc;
    for (int64_t i = 0; i < d->splits; i++) {
        const float part_m = part(c, d, shared, item, i)[r];
        m = part_m > m ? part_m : m;
    }
    memset(acc, 0, (size_t)c->dv * sizeof(float));
    for (int64_t i = 0; i < d->splits; i++) {
        float *from = part(c, d, shared, item, i),
              *part_acc = from + 2 * c->rows + (int64_t)r * c->ld_v, scale = 0;
        if (from[r] > -INFINITY) {
            c->fn->exp_sub_sum(&scale, &from[r], 1, m);
        }
        l += from[c->rows + r] * (from[r] > -INFINITY ? scale : 1);
        c->fn->scale_row(part_acc, c->dv, scale);
        c->fn->add_row(acc, part_acc, c->dv);
    }
    finish_row(t, r, m, l, acc);
}

/* ---- phases ---------------------------------------------------------------------------------- */

static void whole_item(task_t *t, int64_t item)
{
    attention_start(t, item);
    const span_t span = attention_columns(t, 0, t->rows);
    const bool finish = span.begin < span.end && !t->p->prob && !t->st->v_side.ops;
    passes(t, span, true, finish);
    if (!finish) {
        finish_rows(t, 0, t->rows);
    }
}

/* A part of the tiles of a span; the last parts may be empty. */
static span_t part_of(span_t all, int64_t tk, int64_t i, int64_t n)
{
    const int64_t tiles = (all.end - all.begin + tk - 1) / tk, step = (tiles + n - 1) / n * tk;
    return (span_t){at_most(all.begin + i * step, all.end),
                    at_most(all.begin + (i + 1) * step, all.end)};
}

static void split_item(task_t *t, int64_t item, int64_t split, void *shared)
{
    const attention_dims_t *d = &t->st->d;
    attention_start(t, item);
    passes(t, part_of(attention_columns(t, 0, t->rows), t->c->tk, split, d->splits), split == 0,
           false);
    save_part(t, part(t->c, d, shared, item, split));
}

void attention_work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                    const worker_t *w)
{
    const attention_state_t *st = state;
    const attention_dims_t *d = &st->d;
    const int tid = w->tid, nth = w->nth;
    task_t t;
    (void)self;
    t.c = config;
    t.p = &p->step->p.attention;
    t.st = st;
    t.frame = p->frame;
    t.worker = w;
    t.tail = p->step->tail != NULL;
    attention_buffers(t.c, p->step, w->scratch, &t.b);
    if (w->phase == 0 && d->splits > 1) {
        for (int64_t u = tid; u < d->items * d->splits; u += nth) {
            split_item(&t, u / d->splits, u % d->splits, w->shared);
        }
        return;
    }
    if ((st->serial && tid > 0) || (w->phase == 1 && d->splits < 2)) {
        return;
    }
    if (w->phase == 0) {
        const int stride = st->serial ? 1 : nth;
        for (int64_t i = 0; i < d->items;
             i += stride) { /* there and back: later blocks of a causal mask are longer */
            const int64_t item = i + (i / stride % 2 ? stride - 1 - tid : tid);
            if (item < d->items) {
                whole_item(&t, item);
            }
        }
        return;
    }
    for (int64_t u = tid, item = -1; u < d->items * d->block;
         u += st->serial ? 1 : nth) { /* over rows, of which a last block has fewer */
        if (u / d->block != item) {
            item = u / d->block;
            attention_start(&t, item);
        }
        if (u % d->block < t.rows) {
            merge_row(&t, w->shared, item, (int)(u % d->block));
        }
    }
}
