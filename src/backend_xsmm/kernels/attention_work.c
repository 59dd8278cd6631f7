/* The work of the attention kernels: see attention.h for the algorithm. */
#include "attention.h"

#include <math.h>
#include <string.h>

/* One thread at one work item. */
typedef struct task {
    const attention_config_t *c;
    const attention_params_t *p;
    const attention_state_t *st;
    const frame_t *frame;
    attention_buffers_t b;
    const attention_jit_t *jit; /* for this block's height; NULL: own GEMM */
    tile_src_t k, v;
    bool tail;
    int rows; /* in this block */
    int64_t row0, dv0;
    int dv;                                  /* columns of this chunk of Dv */
    int64_t idx[ATT_ROWS][SINTER_MAX_NDIMS]; /* [batch.., s, -] of each row */
} task_t;

/* ---- setting up an item ------------------------------------------------------------------------------------------------------ */

/* Spreads a linear index over the batch dims that are (not) grouped. */
static void spread(const attention_dims_t *d, bool grouped, int64_t i, int64_t *idx)
{
    for (int n = d->nb - 1; n >= 0; n--) {
        if (d->grouped[n] == grouped) {
            idx[n] = i % d->batch[n];
            i /= d->batch[n];
        }
    }
}

/* Q rows as f32 [rows][dk], columns d0..d0+n-1. */
static void load_q(task_t *t, int64_t d0, int n)
{
    const attention_dims_t *d = &t->st->d;
    const int ld = t->c->dk, pad = n + n % 2;
    if (d->group == 1) { /* the rows are consecutive in Q */
        const tile_src_t q = tile_at(&t->st->q, t->idx[0], d->nb);
        t->c->tile->load(&q, t->idx[0][d->nb], t->rows, d0, n, t->b.q, ld, t->rows, pad);
    } else {
        for (int r = 0; r < t->rows; r++) {
            const tile_src_t q = tile_at(&t->st->q, t->idx[r], d->nb);
            t->c->tile->load(&q, t->idx[r][d->nb], 1, d0, n, t->b.q + r * ld, ld, 1, pad);
        }
    }
    if (t->c->bf16) {
        t->c->tile->bf16_rows(t->b.q, ld, t->rows, pad, t->b.q16, ld);
    }
}

static void start(task_t *t, int64_t item)
{
    const attention_dims_t *d = &t->st->d;
    const int64_t chunk = item % d->n_chunks, block = item / d->n_chunks % d->n_blocks, kv = item / d->n_chunks / d->n_blocks;
    t->dv0 = chunk * t->c->dv;
    t->dv = (int)(d->Dv - t->dv0 < t->c->dv ? d->Dv - t->dv0 : t->c->dv);
    t->row0 = block * d->block;
    t->rows = (int)(d->rows - t->row0 < d->block ? d->rows - t->row0 : d->block);
    for (int r = 0; r < t->rows; r++) {
        const int64_t row = t->row0 + r;
        spread(d, false, kv, t->idx[r]);
        spread(d, true, row % d->group, t->idx[r]);
        t->idx[r][d->nb] = row / d->group;
        t->idx[r][d->nb + 1] = 0;
    }
    t->k = tile_at(&t->st->k, t->idx[0], d->nb);
    t->v = tile_at(&t->st->v, t->idx[0], d->nb);
    t->jit = NULL;
    for (int i = t->c->n_jit - 1; i >= 0 && t->c->jit[i].rows >= t->rows; i--) {
        t->jit = &t->c->jit[i];
    }
    if (d->D <= t->c->dk) {
        load_q(t, 0, (int)d->D);
    }
    if (t->st->k_side.ops) {
        decode_query(&t->st->k_side, &t->b.decode, t->rows, t->b.q, t->c->dk);
    }
}

typedef struct span {
    int64_t begin, end;
} span_t;

static int64_t least(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t most(int64_t a, int64_t b)
{
    return a > b ? a : b;
}

/* Columns to go through: whole tiles, of each of which some row sees something. Inside a tile 0 * NaN stays NaN. */
static span_t columns(const task_t *t)
{
    const attention_state_t *st = t->st;
    const int64_t T = st->d.T, tk = t->c->tk, first_row = t->idx[0][st->d.nb], last_row = t->idx[t->rows - 1][st->d.nb];
    int64_t begin = most(most(st->first_all, first_row + st->first_row), 0), end = least(least(st->end_all, last_row + st->end_row), T);
    if (begin >= end) {
        return (span_t){0, 0};
    }
    begin = begin / ATT_FIRST * ATT_FIRST;
    end = begin + (end - begin + tk - 1) / tk * tk;
    return (span_t){begin, least(end, T)};
}

/* A part of the tiles of a span; the last parts may be empty. */
static span_t part_of(span_t all, int64_t tk, int64_t i, int64_t n)
{
    const int64_t tiles = (all.end - all.begin + tk - 1) / tk, step = (tiles + n - 1) / n * tk;
    return (span_t){least(all.begin + i * step, all.end), least(all.begin + (i + 1) * step, all.end)};
}

/* ---- the two products -------------------------------------------------------------------------------------------------------- */

/* s[rows][tk] = Q K over columns t0..t0+nt-1; columns beyond are Q times zero. */
static void scores(task_t *t, int64_t t0, int nt)
{
    const attention_config_t *c = t->c;
    const attention_dims_t *d = &t->st->d;
    const attention_buffers_t *b = &t->b;
    int64_t d0 = 0;
    if (t->st->k_side.ops) {
        decode_scores(c->tile, &t->st->k_side, &t->k, &b->decode, t->rows, b->q, c->dk, t0, nt, b->s, c->tk);
        return;
    }
    do { /* also once for D = 0, which gives zeros */
        const int n = (int)(d->D - d0 < c->dk ? d->D - d0 : c->dk), pad = n + n % 2;
        if (d->D > c->dk) {
            load_q(t, d0, n);
        }
        c->tile->load(&t->k, d0, n, t0, nt, b->k, c->tk, pad, c->tk);
        if (c->bf16) {
            c->tile->bf16_pairs(b->k, c->tk, pad, c->tk, b->k16, c->tk);
            xs_call(t->jit->qk, b->q16, b->k16, b->s, 1);
        } else if (t->jit) {
            xs_call(t->jit->qk, b->q, b->k, b->s, 1);
        } else {
            c->tile->gemm(t->rows, c->tk, n, b->q, c->dk, b->k, c->tk, b->s, c->tk, d0 > 0);
        }
        d0 += n;
    } while (d0 < d->D);
}

/* acc += P V over rows t0..t0+nt-1 of V; P is zero beyond them. */
static void accumulate(task_t *t, int64_t t0, int nt)
{
    const attention_config_t *c = t->c;
    const attention_buffers_t *b = &t->b;
    if (t->dv == 0) {
        return;
    }
    if (t->st->v_side.ops) {
        decode_accumulate(c->tile, &t->st->v_side, &t->v, &b->decode, t->rows, b->s, c->tk, t0, nt, b->acc, c->dv);
        return;
    }
    c->tile->load(&t->v, t0, nt, t->dv0, t->dv, b->v, c->dv, c->tk, c->dv);
    if (c->bf16) {
        c->tile->bf16_pairs(b->v, c->dv, c->tk, c->dv, b->v16, c->dv);
        c->tile->bf16_rows(b->s, c->tk, t->rows, c->tk, b->p16, c->tk);
        xs_call(t->jit->pv, b->p16, b->v16, b->acc, 1);
    } else if (t->jit) {
        xs_call(t->jit->pv, b->s, b->v, b->acc, 1);
    } else {
        c->tile->gemm(t->rows, c->dv, c->tk, b->s, c->tk, b->v, c->dv, b->acc, c->dv, true);
    }
}

/* ---- scores to probabilities --------------------------------------------------------------------------------------------------- */

/* Runs the score or probability chain over the tile; columns from nt on hold anything afterwards. */
static void run_chain(task_t *t, const chain_bound_t *chain, bool flat, int64_t t0, int nt)
{
    const int tk = t->c->tk, nb = t->st->d.nb;
    if (flat) {
        const int all = t->rows * tk;
        for (int i = 0; i < all; i += CHAIN_BLOCK) {
            chain_run(chain, t->idx[0], all - i < CHAIN_BLOCK ? all - i : CHAIN_BLOCK, t->b.s + i, t->b.chain);
        }
        return;
    }
    for (int r = 0; r < t->rows; r++) {
        t->idx[r][nb + 1] = t0;
        chain_run(chain, t->idx[r], nt, t->b.s + r * tk, t->b.chain);
        t->idx[r][nb + 1] = 0;
    }
}

/* exp(x - max) for a row whose maximum is -inf: zero weight, but NaN stays. */
static float weigh_empty(float *x, int n)
{
    float sum = 0;
    for (int i = 0; i < n; i++) {
        x[i] = isnan(x[i]) ? x[i] : 0;
        sum += x[i];
    }
    return sum;
}

/* One online-softmax step: s becomes p, m and l move on, acc is rescaled to the new maximum. */
static void update(task_t *t, int nt, bool with_acc)
{
    const int tk = t->c->tk, dv = t->c->dv;
    for (int r = 0; r < t->rows; r++) {
        float *x = t->b.s + r * tk, old = t->b.m[r], max = t->c->fn->row_max(x, nt), sum, scale = 0;
        max = max > old ? max : old;
        sum = max == -INFINITY ? weigh_empty(x, nt) : t->c->fn->exp_sub_sum(x, x, nt, max);
        memset(x + nt, 0, (size_t)(tk - nt) * sizeof(float));
        if (max == old && max > -INFINITY && max < INFINITY) {
            t->b.l[r] += sum;
            continue;
        }
        if (old > -INFINITY) {
            t->c->fn->exp_sub_sum(&scale, &old, 1, max);
        }
        t->b.m[r] = max;
        t->b.l[r] = t->b.l[r] * scale + sum;
        if (with_acc) {
            t->c->fn->scale_row(t->b.acc + r * dv, dv, scale);
        }
    }
}

/* Normalised probabilities with m and l final; what a row of nothing but -inf gives is the caller's choice. */
static void normalise(task_t *t, int nt)
{
    const int tk = t->c->tk;
    for (int r = 0; r < t->rows; r++) {
        float *x = t->b.s + r * tk;
        if (t->b.m[r] == -INFINITY) {
            weigh_empty(x, nt);
        } else {
            t->c->fn->exp_sub_sum(x, x, nt, t->b.m[r]);
        }
        const float l = t->b.m[r] == -INFINITY && t->p->inf_as_zero && !isnan(t->b.l[r]) ? 1 : t->b.l[r];
        for (int i = 0; i < nt; i++) {
            x[i] /= l;
        }
    }
}

/* ---- passes over T ------------------------------------------------------------------------------------------------------------ */

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

/* with_sink: in one part of T only. */
static void clear(task_t *t, bool with_sink)
{
    for (int r = 0; r < t->rows; r++) {
        const float sink = with_sink && t->p->sink >= 0 ? sink_of(t, r) : -INFINITY;
        t->b.m[r] = sink;
        t->b.l[r] = sink == -INFINITY ? 0 : sink - sink + 1; /* e^0, NaN for +inf and NaN */
    }
    memset(t->b.acc, 0, (size_t)t->c->rows * (size_t)t->c->dv * sizeof(float));
}

/* -inf outside of what the masks leave. */
static void mask(task_t *t, int64_t t0, int nt)
{
    const attention_state_t *st = t->st;
    for (int r = 0; r < t->rows; r++) {
        const int64_t s = t->idx[r][st->d.nb], first = most(st->first_all, s + st->first_row), end = least(st->end_all, s + st->end_row);
        const int from = (int)least(most(first - t0, 0), nt), to = (int)least(most(end - t0, from), nt);
        float *x = t->b.s + r * t->c->tk;
        for (int i = 0; i < from; i++) {
            x[i] = -INFINITY;
        }
        for (int i = to; i < nt; i++) {
            x[i] = -INFINITY;
        }
    }
}

static void score_tile(task_t *t, int64_t t0, int nt)
{
    scores(t, t0, nt);
    if (t->st->scored) {
        run_chain(t, &t->st->score, t->st->score_flat, t0, nt);
    }
    if (t->st->masked) {
        mask(t, t0, nt);
    }
}

/* m and l, and acc unless a probability chain wants a second pass. */
static void online_pass(task_t *t, span_t span)
{
    const int tk = t->c->tk;
    for (int64_t t0 = span.begin; t0 < span.end; t0 += tk) {
        const int nt = (int)least(span.end - t0, tk);
        score_tile(t, t0, nt);
        update(t, nt, !t->p->prob);
        if (!t->p->prob) {
            accumulate(t, t0, nt);
        }
    }
}

/* acc = chain(p) V. Not limited to the columns that a mask leaves: the chain need not map 0 to 0. */
static void prob_pass(task_t *t)
{
    const int tk = t->c->tk;
    const int64_t T = t->st->d.T;
    for (int64_t t0 = 0; t0 < T; t0 += tk) {
        const int nt = (int)(T - t0 < tk ? T - t0 : tk);
        score_tile(t, t0, nt);
        normalise(t, nt);
        run_chain(t, &t->st->prob, t->st->prob_flat, t0, nt);
        for (int r = 0; r < t->rows; r++) {
            memset(t->b.s + r * tk + nt, 0, (size_t)(tk - nt) * sizeof(float));
        }
        accumulate(t, t0, nt);
    }
}

/* The complete sums of an item, or of its part. */
static void passes(task_t *t, span_t span, bool with_sink)
{
    clear(t, with_sink);
    online_pass(t, span);
    if (t->p->prob) {
        prob_pass(t);
    }
    if (t->st->v_side.ops) {
        decode_restore(&t->st->v_side, &t->b.decode, t->rows, t->b.acc, t->c->dv);
    }
}

/* ---- results ------------------------------------------------------------------------------------------------------------------ */

static void store_stats(const task_t *t, const int64_t *idx, float m, float l)
{
    const bound_t *out = &t->frame->v[t->p->stats];
    const int skip = t->st->d.nb + 2 - out->ndims;
    int64_t at = 0;
    for (int d = 0; d < out->ndims - 1; d++) {
        at += (out->dims[d] == 1 ? 0 : idx[d + skip]) * out->strides[d];
    }
    const float x = l == 0 && (t->p->inf_as_zero || t->st->d.T == 0) ? -INFINITY : l == 0 ? NAN : m + logf(l);
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
        /* l = 0: no column, or -inf in all of them. acc is then 0, or NaN where V has something that 0 times is NaN. */
        const bool zero = l == 0 && (t->p->inf_as_zero || t->st->d.T == 0);
        t->c->fn->scale_row(acc, t->dv, zero ? 1 : l == 0 ? NAN : 1 / l);
    }
    for (int i = 0; i < t->dv; i += CHAIN_BLOCK) {
        t->idx[r][nb + 1] = t->dv0 + i;
        chain_run(&t->st->post, t->idx[r], t->dv - i < CHAIN_BLOCK ? t->dv - i : CHAIN_BLOCK, acc + i, t->b.chain);
    }
    if (t->tail && t->dv > 0) {
        t->idx[r][nb + 1] = t->dv0;
        quant_tail_run(&t->st->tail, t->idx[r], t->dv, acc, 0, t->b.tail);
    }
    t->idx[r][nb + 1] = 0;
}

/* ---- splits of T -------------------------------------------------------------------------------------------------------------- */

/* The part of one split of one item in shared memory: m[rows], l[rows], acc[rows][dv]. */
static float *part(const attention_config_t *c, const attention_dims_t *d, void *shared, int64_t item, int64_t split)
{
    float *base = (float *)(void *)((unsigned char *)shared + (64 - (uintptr_t)shared % 64) % 64);
    return base + (item * d->splits + split) * c->rows * (c->dv + 2);
}

static void save_part(const task_t *t, float *to)
{
    const size_t rows = (size_t)t->c->rows;
    memcpy(to, t->b.m, rows * sizeof(float));
    memcpy(to + rows, t->b.l, rows * sizeof(float));
    memcpy(to + 2 * rows, t->b.acc, rows * (size_t)t->c->dv * sizeof(float));
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
        float *from = part(c, d, shared, item, i), *part_acc = from + 2 * c->rows + (int64_t)r * c->dv, scale = 0;
        if (from[r] > -INFINITY) {
            c->fn->exp_sub_sum(&scale, &from[r], 1, m);
        }
        l += from[c->rows + r] * (from[r] > -INFINITY ? scale : 1);
        c->fn->scale_row(part_acc, c->dv, scale);
        c->fn->add_row(acc, part_acc, c->dv);
    }
    finish_row(t, r, m, l, acc);
}

/* ---- phases ------------------------------------------------------------------------------------------------------------------- */

static void whole_item(task_t *t, int64_t item)
{
    start(t, item);
    passes(t, columns(t), true);
    for (int r = 0; r < t->rows; r++) {
        finish_row(t, r, t->b.m[r], t->b.l[r], t->b.acc + (int64_t)r * t->c->dv);
    }
}

static void split_item(task_t *t, int64_t item, int64_t split, void *shared)
{
    const attention_dims_t *d = &t->st->d;
    start(t, item);
    passes(t, part_of(columns(t), t->c->tk, split, d->splits), split == 0);
    save_part(t, part(t->c, d, shared, item, split));
}

void attention_work(const plan_t *plan, const step_t *step, const frame_t *frame, const void *state, int phase, int tid, int nth,
                    void *scratch, void *shared)
{
    const attention_state_t *st = state;
    const attention_dims_t *d = &st->d;
    task_t t;
    (void)plan;
    t.c = step->jit;
    t.p = &step->p.attention;
    t.st = st;
    t.frame = frame;
    t.tail = step->tail != NULL;
    attention_buffers(t.c, step, scratch, &t.b);
    if (phase == 0 && d->splits > 1) {
        for (int64_t u = tid; u < d->items * d->splits; u += nth) {
            split_item(&t, u / d->splits, u % d->splits, shared);
        }
        return;
    }
    if ((st->serial && tid > 0) || (phase == 1 && d->splits < 2)) {
        return;
    }
    if (phase == 0) {
        for (int64_t i = tid; i < d->items; i += st->serial ? 1 : nth) {
            whole_item(&t, i);
        }
        return;
    }
    for (int64_t u = tid, item = -1; u < d->items * d->block; u += st->serial ? 1 : nth) { /* over rows, of which a last block has fewer */
        if (u / d->block != item) {
            item = u / d->block;
            start(&t, item);
        }
        if (u % d->block < t.rows) {
            merge_row(&t, shared, item, (int)(u % d->block));
        }
    }
}
