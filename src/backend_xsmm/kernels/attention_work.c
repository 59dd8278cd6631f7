/* The work of the attention kernels: see attention.h for the algorithm. */
#include "attention.h"

#include <math.h>
#include <string.h>

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

/* Rows r0..r0+n-1 of a block. */
typedef struct strip {
    int r0, n;
    span_t columns;
    const attention_jit_t *jit; /* for this height; NULL: own GEMM */
} strip_t;

/* One thread at one work item. */
typedef struct task {
    const attention_config_t *c;
    const attention_params_t *p;
    const attention_state_t *st;
    const frame_t *frame;
    attention_buffers_t b;
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

/* Q rows as f32, columns d0..d0+n-1. Rows of one head are consecutive in Q and group rows apart here. */
static void load_q(task_t *t, int64_t d0, int n)
{
    const attention_dims_t *d = &t->st->d;
    const int ld = t->c->ld_q, pad = n + n % 2, heads = (int)least(d->group, t->rows);
    for (int h = 0; h < heads; h++) {
        const int rows = (t->rows - h + heads - 1) / heads;
        const tile_src_t q = tile_at(&t->st->q, t->idx[h], d->nb);
        t->c->tile->load(&q, t->idx[h][d->nb], rows, d0, n, t->b.q + h * ld, (int64_t)heads * ld, rows, pad);
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
        if (r >= d->group) { /* the next position of the same head */
            memcpy(t->idx[r], t->idx[r - d->group], sizeof(t->idx[r]));
            t->idx[r][d->nb]++;
            continue;
        }
        spread(d, false, kv, t->idx[r]);
        spread(d, true, row % d->group, t->idx[r]);
        t->idx[r][d->nb] = row / d->group;
        t->idx[r][d->nb + 1] = 0;
    }
    t->k = tile_at(&t->st->k, t->idx[0], d->nb);
    t->v = tile_at(&t->st->v, t->idx[0], d->nb);
    if (d->D <= t->c->dk) {
        load_q(t, 0, (int)d->D);
    }
    if (t->st->k_side.ops) {
        decode_query(&t->st->k_side, &t->b.decode, t->rows, t->b.q, t->c->ld_q);
    }
}

/* Columns that some of n rows from r0 on see, from a whole step on. */
static span_t columns(const task_t *t, int r0, int n)
{
    const attention_state_t *st = t->st;
    const int64_t first_row = t->idx[r0][st->d.nb], last_row = t->idx[r0 + n - 1][st->d.nb];
    const int64_t begin = most(most(st->first_all, first_row + st->first_row), 0);
    const int64_t end = least(least(st->end_all, last_row + st->end_row), st->d.T);
    return begin < end ? (span_t){begin / ATT_STEP * ATT_STEP, end} : (span_t){0, 0};
}

static strip_t strip_at(const task_t *t, int r0)
{
    strip_t s = {.r0 = r0, .n = (int)least(t->rows - r0, t->c->strip)};
    for (int i = t->c->n_jit - 1; i >= 0 && t->c->jit[i].rows >= s.n; i--) {
        s.jit = &t->c->jit[i];
    }
    s.columns = columns(t, r0, s.n);
    return s;
}

/* A part of the tiles of a span; the last parts may be empty. */
static span_t part_of(span_t all, int64_t tk, int64_t i, int64_t n)
{
    const int64_t tiles = (all.end - all.begin + tk - 1) / tk, step = (tiles + n - 1) / n * tk;
    return (span_t){least(all.begin + i * step, all.end), least(all.begin + (i + 1) * step, all.end)};
}

/* ---- the two products -------------------------------------------------------------------------------------------------------- */

static int round_step(int n)
{
    return (n + ATT_STEP - 1) / ATT_STEP * ATT_STEP;
}

/* Elements d0..d0+n-1 of columns t0..t0+nt-1 of K; zeros up to a whole step. */
static void load_k(task_t *t, int64_t t0, int nt, int64_t d0, int n)
{
    const attention_config_t *c = t->c;
    const int pad = n + n % 2, columns = round_step(nt);
    c->tile->load(&t->k, d0, n, t0, nt, t->b.k, c->ld_k, pad, columns);
    if (c->bf16) {
        c->tile->bf16_pairs(t->b.k, c->ld_k, pad, columns, t->b.k16, c->ld_k);
    }
}

/* Rows t0..t0+nt-1 of V; zeros up to a whole step. */
static void load_v(task_t *t, int64_t t0, int nt)
{
    const attention_config_t *c = t->c;
    const int rows = round_step(nt);
    c->tile->load(&t->v, t0, nt, t->dv0, t->dv, t->b.v, c->ld_v, rows, c->dv);
    if (c->bf16) {
        c->tile->bf16_pairs(t->b.v, c->ld_v, rows, c->dv, t->b.v16, c->ld_v);
    }
}

static bool in_chunks(const task_t *t)
{
    return t->st->d.D > t->c->dk;
}

/* What all strips of a block share: K, unless in chunks, and V, unless they are decoded from where they are. */
static void load_tiles(task_t *t, int64_t t0, int nt, bool with_v)
{
    if (!t->st->k_side.ops && !in_chunks(t)) {
        load_k(t, t0, nt, 0, (int)t->st->d.D);
    }
    if (!t->st->v_side.ops && with_v && t->dv > 0) {
        load_v(t, t0, nt);
    }
}

/* Q times n elements of K for a strip and the columns at..at+nt-1 of a tile. */
static void multiply_k(task_t *t, const strip_t *strip, int at, int nt, int n, bool add)
{
    const attention_config_t *c = t->c;
    const attention_buffers_t *b = &t->b;
    const int64_t q = (int64_t)strip->r0 * c->ld_q;
    if (!strip->jit) {
        c->tile->gemm(strip->n, nt, n, b->q + q, c->ld_q, b->k + at, c->ld_k, b->s + at, c->ld_s, add);
        return;
    }
    const bool wide = c->tk >= ATT_QK;
    for (int i = at, step; i < at + nt; i += step) {
        step = wide && at + nt - i >= ATT_QK ? ATT_QK : ATT_STEP;
        const xs_kernel_t kernel = step == ATT_QK ? strip->jit->qk : strip->jit->qk_step;
        xs_call(kernel, c->bf16 ? (void *)(b->q16 + q) : b->q + q, c->bf16 ? (void *)(b->k16 + 2 * i) : b->k + i, b->s + i, 1);
    }
}

/* s = Q K for a strip and the columns at..at+nt-1 of the tile at t0; whole steps are written. */
static void scores(task_t *t, const strip_t *strip, int64_t t0, int at, int nt)
{
    const attention_config_t *c = t->c;
    const int64_t D = t->st->d.D;
    if (t->st->k_side.ops) {
        decode_scores(c->tile, &t->st->k_side, &t->k, &t->b.decode, t->rows, t->b.q, c->ld_q, t0 + at, nt, t->b.s + at, c->ld_s);
        return;
    }
    if (!in_chunks(t)) {
        multiply_k(t, strip, at, round_step(nt), (int)D, false);
        return;
    }
    for (int64_t d0 = 0; d0 < D; d0 += c->dk) {
        const int n = (int)least(D - d0, c->dk);
        load_q(t, d0, n);
        load_k(t, t0, at + nt, d0, n);
        multiply_k(t, strip, at, round_step(nt), n, d0 > 0);
    }
}

/* acc += P V over rows at..at+nt-1 of a tile of V; P is zero beyond them up to a whole step. */
static void accumulate(task_t *t, const strip_t *strip, int64_t t0, int at, int nt)
{
    const attention_config_t *c = t->c;
    const attention_buffers_t *b = &t->b;
    const int columns = round_step(nt);
    float *acc = b->acc + (int64_t)strip->r0 * c->ld_v;
    if (t->dv == 0) {
        return;
    }
    if (t->st->v_side.ops) {
        decode_accumulate(c->tile, &t->st->v_side, &t->v, &b->decode, t->rows, b->s + at, c->ld_s, t0 + at, nt, b->acc, c->ld_v);
    } else if (c->bf16) {
        c->tile->bf16_rows(b->s + at, c->ld_s, strip->n, columns, b->p16 + at, c->ld_s);
        xs_call(strip->jit->pv, b->p16 + at, b->v16 + (int64_t)at * c->ld_v, acc, (uint64_t)(columns / ATT_STEP));
    } else if (strip->jit) {
        xs_call(strip->jit->pv, b->s + at, b->v + (int64_t)at * c->ld_v, acc, (uint64_t)(columns / ATT_STEP));
    } else {
        c->tile->gemm(strip->n, c->dv, columns, b->s + at, c->ld_s, b->v + (int64_t)at * c->ld_v, c->ld_v, acc, c->ld_v, true);
    }
}

/* ---- scores to probabilities --------------------------------------------------------------------------------------------------- */

/* Runs a chain over columns at..at+nt-1 of a strip's scores. */
static void run_chain(task_t *t, const chain_bound_t *chain, const strip_t *strip, int64_t t0, int at, int nt)
{
    const int nb = t->st->d.nb;
    for (int r = 0; r < strip->n; r++) {
        int64_t *idx = t->idx[strip->r0 + r];
        idx[nb + 1] = t0 + at;
        chain_run(chain, idx, nt, t->b.s + r * t->c->ld_s + at, t->b.chain);
        idx[nb + 1] = 0;
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

/* Which of the columns at..at+nt-1 of the tile at t0 masks leave to row r. */
static span_t visible(const task_t *t, int r, int64_t t0, int at, int nt)
{
    const attention_state_t *st = t->st;
    if (!st->masked) {
        return (span_t){at, at + nt};
    }
    const int64_t s = t->idx[r][st->d.nb], first = most(st->first_all, s + st->first_row), end = least(st->end_all, s + st->end_row);
    const int64_t from = least(most(first - t0, at), at + nt);
    return (span_t){from, least(most(end - t0, from), at + nt)};
}

static void zero(float *x, int64_t begin, int64_t end)
{
    if (begin < end) {
        memset(x + begin, 0, (size_t)(end - begin) * sizeof(float));
    }
}

/* n scores become weights exp(scale x - max); returns their sum. */
static float weigh(const task_t *t, float *x, int n, float max)
{
    if (max == -INFINITY) {
        return weigh_empty(x, n);
    }
    if (max < INFINITY) {
        return t->c->fn->exp_mul_sub_sum(x, x, n, t->st->scale, max);
    }
    t->c->fn->scale_row(x, n, t->st->scale);
    return t->c->fn->exp_sub_sum(x, x, n, max);
}

/* Row r's m and l move on to max with sum more, and acc with them if it is given. */
static void move_on(task_t *t, int r, float max, float sum, bool with_acc)
{
    const float old = t->b.m[r];
    float scale = 0;
    if (max == old && max > -INFINITY && max < INFINITY) {
        t->b.l[r] += sum;
        return;
    }
    if (old > -INFINITY) {
        t->c->fn->exp_sub_sum(&scale, &old, 1, max);
    }
    t->b.m[r] = max;
    t->b.l[r] = t->b.l[r] * scale + sum;
    if (with_acc) {
        t->c->fn->scale_row(t->b.acc + (int64_t)r * t->c->ld_v, t->c->dv, scale);
    }
}

/* One online-softmax step: columns at..at+nt-1 of s become p, zeros up to a whole step, m and l move on, acc is rescaled to the new
 * maximum. First all maxima, whose latency would otherwise hold up each row's exponentials. */
static void update(task_t *t, const strip_t *strip, int64_t t0, int at, int nt, bool with_acc)
{
    const int ld = t->c->ld_s, end = t->st->v_side.ops ? ld : at + round_step(nt); /* decoders read beyond a step */
    span_t see[ATT_STRIP];
    float max[ATT_STRIP];
    for (int i = 0; i < strip->n; i++) {
        see[i] = visible(t, strip->r0 + i, t0, at, nt);
        max[i] = t->c->fn->row_max(t->b.s + i * ld + see[i].begin, (int)(see[i].end - see[i].begin)) * t->st->scale;
    }
    for (int i = 0; i < strip->n; i++) {
        const int r = strip->r0 + i, n = (int)(see[i].end - see[i].begin);
        float *x = t->b.s + i * ld;
        zero(x, at, see[i].begin);
        zero(x, see[i].end, end);
        if (n > 0) {
            const float m = max[i] > t->b.m[r] ? max[i] : t->b.m[r];
            move_on(t, r, m, weigh(t, x + see[i].begin, n, m), with_acc);
        }
    }
}

/* Normalised probabilities with m and l final; what a row of nothing but -inf gives is the caller's choice. */
static void normalise(task_t *t, const strip_t *strip, int64_t t0, int nt)
{
    for (int i = 0; i < strip->n; i++) {
        const int r = strip->r0 + i;
        const span_t see = visible(t, r, t0, 0, nt);
        float *x = t->b.s + i * t->c->ld_s;
        zero(x, 0, see.begin);
        zero(x, see.end, nt);
        weigh(t, x + see.begin, (int)(see.end - see.begin), t->b.m[r]);
        const float l = t->b.m[r] == -INFINITY && t->p->inf_as_zero && !isnan(t->b.l[r]) ? 1 : t->b.l[r];
        for (int k = 0; k < nt; k++) {
            x[k] /= l;
        }
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

static void finish_rows(task_t *t, int r0, int n)
{
    for (int r = r0; r < r0 + n; r++) {
        finish_row(t, r, t->b.m[r], t->b.l[r], t->b.acc + (int64_t)r * t->c->ld_v);
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
    memset(t->b.acc, 0, (size_t)t->rows * (size_t)t->c->ld_v * sizeof(float));
}

static void score_tile(task_t *t, const strip_t *strip, int64_t t0, int at, int nt)
{
    scores(t, strip, t0, at, nt);
    if (t->st->scored) {
        run_chain(t, &t->st->score, strip, t0, at, nt);
    }
}

/* ---- prefetching --------------------------------------------------------------------------------------------------------------- */

static void fetch_bytes(const unsigned char *begin, const unsigned char *end)
{
    for (const unsigned char *p = begin; p < end; p += 64) {
        __builtin_prefetch(p);
    }
}

/* Columns c0..c1-1 of rows r0..r1-1, whose columns are consecutive. */
static void fetch_rows(const tile_src_t *s, int64_t r0, int64_t r1, int64_t c0, int64_t c1)
{
    for (int64_t r = r0; r < r1; r++) {
        const int64_t first = s->first + r * s->rs;
        fetch_bytes(s->data + (first + c0) * s->type->bits / 8, s->data + (first + c1) * s->type->bits / 8);
    }
}

/* Strip r0's share of the tiles of K and V that follow t0: the products leave the memory idle otherwise. */
static void fetch_tiles(const task_t *t, int r0, int64_t t0, int64_t end)
{
    const int64_t n = least(end - t0, t->c->tk), from = t0 + n * r0 / t->rows, to = t0 + n * least(r0 + t->c->strip, t->rows) / t->rows;
    if (!t->st->k_side.ops && t->k.rs == 1) {
        tile_src_t k = t->k;
        k.rs = t->k.cs;
        fetch_rows(&k, from, to, 0, t->st->d.D);
    }
    if (!t->st->v_side.ops && t->v.cs == 1) {
        fetch_rows(&t->v, from, to, t->dv0, t->dv0 + t->dv);
    }
}

/* Where a strip's results go. */
static void fetch_results(const task_t *t, const strip_t *strip)
{
    const chain_ref_t *out = t->st->out;
    for (int r = strip->r0; out && r < strip->r0 + strip->n; r++) {
        int64_t at = t->dv0;
        for (int d = 0; d <= t->st->d.nb; d++) {
            at += t->idx[r][d] * out->stride[d];
        }
        fetch_bytes(out->data + at * out->traits->bits / 8, out->data + (at + t->dv) * out->traits->bits / 8);
    }
}

/* A strip's step over the tile at t0, of which it may see nothing. */
static void online_step(task_t *t, const strip_t *strip, int64_t t0, int64_t end)
{
    const int at = (int)(most(strip->columns.begin, t0) - t0), nt = (int)(least(strip->columns.end, end) - t0) - at;
    if (nt <= 0) {
        return;
    }
    score_tile(t, strip, t0, at, nt);
    update(t, strip, t0, at, nt, !t->p->prob);
    if (!t->p->prob) {
        accumulate(t, strip, t0, at, nt);
    }
}

/* m and l, and acc unless a probability chain wants a second pass. finish: results as soon as a strip has them, while they are in L1. */
static void online_pass(task_t *t, span_t span, bool finish)
{
    const int tk = t->c->tk;
    for (int64_t t0 = span.begin; t0 < span.end; t0 += tk) {
        const int64_t end = least(span.end, t0 + tk);
        load_tiles(t, t0, (int)(end - t0), !t->p->prob);
        for (int r = 0; r < t->rows; r += t->c->strip) {
            const strip_t strip = strip_at(t, r);
            if (end < span.end) {
                fetch_tiles(t, r, end, span.end);
            } else {
                fetch_results(t, &strip);
            }
            online_step(t, &strip, t0, end);
            if (finish && end == span.end) {
                finish_rows(t, strip.r0, strip.n);
            }
        }
    }
}

/* acc = chain(p) V. Not limited to the columns that a mask leaves: the chain need not map 0 to 0. */
static void prob_pass(task_t *t)
{
    const int tk = t->c->tk;
    const int64_t T = t->st->d.T;
    for (int64_t t0 = 0; t0 < T; t0 += tk) {
        const int nt = (int)least(T - t0, tk);
        load_tiles(t, t0, nt, true);
        for (int r = 0; r < t->rows; r += t->c->strip) {
            const strip_t strip = strip_at(t, r);
            score_tile(t, &strip, t0, 0, nt);
            normalise(t, &strip, t0, nt);
            run_chain(t, &t->st->prob, &strip, t0, 0, nt);
            for (int i = 0; i < strip.n; i++) {
                zero(t->b.s + i * t->c->ld_s, nt, t->st->v_side.ops ? t->c->ld_s : round_step(nt));
            }
            accumulate(t, &strip, t0, 0, nt);
        }
    }
}

/* The sums of an item, or of its part. */
static void passes(task_t *t, span_t span, bool with_sink, bool finish)
{
    clear(t, with_sink);
    online_pass(t, span, finish);
    if (t->p->prob) {
        prob_pass(t);
    }
    if (t->st->v_side.ops) {
        decode_restore(&t->st->v_side, &t->b.decode, t->rows, t->b.acc, t->c->ld_v);
    }
}

/* ---- splits of T -------------------------------------------------------------------------------------------------------------- */

/* The part of one split of one item in shared memory: m[rows], l[rows], acc[rows][dv]. */
static float *part(const attention_config_t *c, const attention_dims_t *d, void *shared, int64_t item, int64_t split)
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
        float *from = part(c, d, shared, item, i), *part_acc = from + 2 * c->rows + (int64_t)r * c->ld_v, scale = 0;
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
    const span_t span = columns(t, 0, t->rows);
    const bool finish = span.begin < span.end && !t->p->prob && !t->st->v_side.ops;
    passes(t, span, true, finish);
    if (!finish) {
        finish_rows(t, 0, t->rows);
    }
}

static void split_item(task_t *t, int64_t item, int64_t split, void *shared)
{
    const attention_dims_t *d = &t->st->d;
    start(t, item);
    passes(t, part_of(columns(t, 0, t->rows), t->c->tk, split, d->splits), split == 0, false);
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
        const int stride = st->serial ? 1 : nth;
        for (int64_t i = 0; i < d->items; i += stride) { /* there and back: later blocks of a causal mask are longer */
            const int64_t item = i + (i / stride % 2 ? stride - 1 - tid : tid);
            if (item < d->items) {
                whole_item(&t, item);
            }
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
