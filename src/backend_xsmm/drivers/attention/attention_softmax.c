/* Scores of attention to probabilities, tile by tile: see attention.h. */
#include "backend_xsmm/drivers/attention/attention_task.h"

#include <math.h>

enum { NEAR_MAXIMUM = 4 }; /* what scores may exceed the maximum in use by: weights up to e^4 */

void attention_chain(task_t *t, const chain_bound_t *chain, const strip_t *strip, int64_t t0,
                     int at, int nt)
{
    const int nb = t->st->d.nb;
    for (int r = 0; r < strip->n; r++) {
        int64_t *idx = t->idx[strip->r0 + r];
        idx[nb + 1] = t0 + at;
        chain_run(chain, idx + t->st->skip, nt, t->b.s + r * t->c->ld_s + at, t->b.chain);
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
    if (!t->st->masked || t->st->cells.on) { /* lists have only what rows see */
        return (span_t){at, at + nt};
    }
    const span_t sees = t->sees[r];
    const int64_t from = at_most(at_least(sees.begin - t0, at), at + nt);
    return (span_t){from, at_most(at_least(sees.end - t0, from), at + nt)};
}

/* n scores become weights exp(scale x - max); returns their sum. */
static float weigh(const task_t *t, float *x, int n, float max)
{
    if (max == -INFINITY) {
        return weigh_empty(x, n);
    }
    if (max < INFINITY) {
        return t->c->fn->exp_mul_sub_sum(x, x, n, t->scale, max);
    }
    t->c->fn->scale_row(x, n, t->scale);
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
    if (with_acc && old > -INFINITY) { /* else acc has nothing yet */
        t->c->fn->scale_row(t->b.acc + (int64_t)r * t->c->ld_v, t->c->dv, scale);
    }
}

/* First all maxima, whose latency would otherwise hold up each row's exponentials. */
void attention_update(task_t *t, const strip_t *strip, int64_t t0, int at, int nt, bool with_acc)
{
    const int ld = t->c->ld_s, end = is_decoded(&t->st->v_side)
                                         ? ld
                                         : at + round_grain(nt); /* decoders read beyond a grain */
    /* The number that is subtracted from a row's scores need not be their maximum: weights a little
     * above 1 are as exact, and rescaling acc costs time. Decoders quantise weights and expect none
     * above 1. */
    const float near = is_decoded(&t->st->v_side) ? 0 : NEAR_MAXIMUM;
    span_t see[ATT_STRIP];
    float max[ATT_STRIP];
    for (int i = 0; i < strip->n; i++) {
        see[i] = visible(t, strip->r0 + i, t0, at, nt);
        max[i] =
            t->c->fn->row_max(t->b.s + i * ld + see[i].begin, (int)(see[i].end - see[i].begin)) *
            t->scale;
    }
    for (int i = 0; i < strip->n; i++) {
        const int r = strip->r0 + i, n = (int)(see[i].end - see[i].begin);
        float *x = t->b.s + i * ld;
        zero_columns(x, at, see[i].begin);
        zero_columns(x, see[i].end, end);
        if (n > 0) {
            const float m = max[i] - t->b.m[r] > near ? max[i] : t->b.m[r];
            move_on(t, r, m, weigh(t, x + see[i].begin, n, m), with_acc);
        }
    }
}

void attention_normalise(task_t *t, const strip_t *strip, int64_t t0, int at, int nt, int end)
{
    for (int i = 0; i < strip->n; i++) {
        const int r = strip->r0 + i;
        const span_t see = visible(t, r, t0, at, nt);
        float *x = t->b.s + i * t->c->ld_s;
        zero_columns(x, 0, see.begin);
        zero_columns(x, see.end, end);
        weigh(t, x + see.begin, (int)(see.end - see.begin), t->b.m[r]);
        const float l =
            t->b.m[r] == -INFINITY && t->p->inf_as_zero && !isnan(t->b.l[r]) ? 1 : t->b.l[r];
        for (int k = 0; k < end; k++) { /* 0 / 0 where there is nothing */
            x[k] /= l;
        }
    }
}
