/* RotaryEmbedding and HadamardTransform, a row at a time (rows.h): a row is a head, or all heads of
 * a token that lie side by side. Angles are found once for all heads: a first phase writes the
 * cosines and sines of each token, scaled, into shared memory as floats. Behind them it writes the
 * largest magnitude of them for each token: where that is above 1, products may overflow. */
#include <float.h>
#include <math.h>

#include "backend_xsmm/drivers/common/box.h"
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/rows/rows.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/status.h"
#include "numeric/dtype_bits.h"

typedef struct rotary_state {
    rows_t rows;
    const eltwise_table_t *fn;
    const bound_t *cosines, *sines, *positions; /* NULL: none */
    int sequence;                               /* the dim of tokens */
    /* heads: of a row, 0 where nothing is turned; block: of the transform, 0 where there is none */
    int64_t tokens, batch, half, head, heads, block;
} rotary_state_t;

static const bound_t *bound_or_none(const frame_t *frame, int value)
{
    return value >= 0 ? &frame->v[value] : NULL;
}

static size_t angle_bytes(const rotary_state_t *st)
{
    return scratch_round((size_t)(st->batch * st->tokens * (2 * st->half + 1)) * sizeof(float));
}

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const rotary_params_t *p = &problem->step->p.rotary;
    const bound_t *x = &problem->frame->v[p->x];
    rotary_state_t *st = state;
    const int last = x->ndims - 1;
    int64_t block[SINTER_MAX_NDIMS];
    (void)config;
    for (int d = 0; d < x->ndims; d++) {
        block[d] = d == last ? x->dims[d] : 1;
    }
    st->fn = eltwise_table(self->needs);
    st->cosines = bound_or_none(problem->frame, p->cosines);
    st->sines = bound_or_none(problem->frame, p->sines);
    st->positions = bound_or_none(problem->frame, p->positions);
    st->block = !p->hadamard ? 0 : p->block > 0 ? p->block : x->dims[last];
    st->tokens = st->batch = st->half = st->heads = 0;
    if (st->cosines != NULL) {
        st->sequence = x->ndims - 2;
        st->batch = x->dims[0];
        st->tokens = x->dims[st->sequence];
        st->heads = x->ndims == 3 ? p->heads : 1;
        st->head = x->dims[last] / st->heads;
        st->half = (p->dim > 0 ? p->dim : st->head) / 2;
    }
    choice->shared_bytes = angle_bytes(st);
    choice->first = st->cosines != NULL ? 0 : 1;
    return rows_bind(problem, self->needs, block, &st->rows, choice);
}

/* ---- angles ---------------------------------------------------------------------------------- */

static int64_t position_at(const bound_t *t, int64_t b, int64_t s)
{
    return index_at(t, b * t->strides[0] + s * t->strides[1]);
}

/* Positions are rows of the tables, if there are tables. */
static int positions_of(const step_t *step, int i)
{
    return i == 0 && step->p.rotary.sines >= 0 ? step->p.rotary.positions : -1;
}

static sinter_status_t check(const problem_t *problem, const void *state)
{
    const rotary_state_t *st = state;
    for (int64_t i = 0; st->sines != NULL && st->positions != NULL && i < st->batch * st->tokens;
         i++) {
        const int64_t at = position_at(st->positions, i / st->tokens, i % st->tokens),
                      most = st->cosines->dims[0] < st->sines->dims[0] ? st->cosines->dims[0]
                                                                       : st->sines->dims[0];
        if (at < 0 || at >= most) {
            return sg_fail(sinter_invalid_arguments,
                           "RotaryEmbedding: tensor %llu: position %lld of token %lld is outside "
                           "the tables, which have %lld rows",
                           problem_id(problem, problem->step->p.rotary.positions), (long long)at,
                           (long long)i, (long long)most);
        }
    }
    return sinter_success;
}

static void load_angles(const rotary_state_t *st, const bound_t *t, int64_t b, int64_t s, float *to)
{
    const int64_t row = st->sines == NULL       ? 0 /* frequencies */
                        : st->positions != NULL ? position_at(st->positions, b, s) * t->strides[0]
                                                : b * t->strides[0] + s * t->strides[1];
    eltwise_load(st->fn, t->dtype, t->data, row, t->strides[t->ndims - 1], (int)st->half, to);
}

/* Cosines and sines of one token. */
static void find_angles(const rotary_state_t *st, double scale, int64_t b, int64_t s, float *cosine)
{
    float *sine = cosine + st->half;
    load_angles(st, st->cosines, b, s, cosine);
    if (st->sines != NULL) {
        load_angles(st, st->sines, b, s, sine);
    }
    if (st->sines != NULL && scale == 1) {
        return;
    }
    const double position = st->sines == NULL ? (double)position_at(st->positions, b, s) : 0;
    for (int64_t i = 0; i < st->half; i++) {
        const double angle = position * cosine[i];
        sine[i] = (float)(scale * (st->sines != NULL ? sine[i] : sin(angle)));
        cosine[i] = (float)(scale * (st->sines != NULL ? cosine[i] : cos(angle)));
    }
}

/* Magnitudes have the order of their bits, which compilers compare in vectors; NaN is above all. */
static float largest_magnitude(const float *x, int64_t n)
{
    int32_t most = 0;
    for (int64_t i = 0; i < n; i++) {
        const int32_t magnitude = (int32_t)(bits_of_f32(x[i]) & INT32_MAX);
        most = magnitude > most ? magnitude : most;
    }
    return f32_of_bits((uint32_t)most);
}

/* ---- rows ------------------------------------------------------------------------------------ */

/* What rows_work hands on: the state, and the angles that the first phase found. */
typedef struct rotation {
    const rotary_state_t *st;
    const float *angles, *most;
} rotation_t;

/* Whether one of n products with numbers up to `most` may be beyond f32, or is NaN. */
static bool products_overflow(const float *x, int64_t n, float most)
{
    const float limit = FLT_MAX / 2 / most;
    int above = 0;
    for (int64_t i = 0; i < n; i++) {
        above |= !(fabsf(x[i]) <= limit);
    }
    return above;
}

/* x * cosine or x * sine may be beyond f32, and yet their sum may fit. */
static void turn_in_double(float *x, const float *cosine, const float *sine, int64_t half,
                           bool pairs)
{
    const int64_t step = pairs ? 2 : 1, other = pairs ? 1 : half;
    for (int64_t i = 0; i < half; i++) {
        float *at = x + i * step;
        const double a = at[0], b = at[other];
        at[0] = (float)(a * cosine[i] - b * sine[i]);
        at[other] = (float)(b * cosine[i] + a * sine[i]);
    }
}

static void rotate(const void *state, const problem_t *p, row_t *now)
{
    const rotation_t *r = state;
    const rotary_state_t *st = r->st;
    const int64_t *row = now->index;
    float *x = now->x;
    for (int64_t h = 0; h < st->heads; h++) {
        const int64_t token = row[0] * st->tokens + row[st->sequence];
        const float *cosine = r->angles + token * 2 * st->half, *sine = cosine + st->half,
                    most = r->most[token];
        float *head = x + h * st->head;
        if (!(most <= 1) && products_overflow(head, 2 * st->half, most)) {
            turn_in_double(head, cosine, sine, st->half, p->step->p.rotary.interleaved);
        } else if (p->step->p.rotary.interleaved) {
            st->fn->turn_pairs(head, cosine, sine, (int)st->half);
        } else {
            st->fn->turn_halves(head, cosine, sine, (int)st->half);
        }
    }
    for (int64_t at = 0; st->block > 0 && at < st->rows.row; at += st->block) {
        st->fn->hadamard(x + at, st->block);
    }
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const rotary_state_t *st = state;
    float *angles = w->shared, *most = angles + st->batch * st->tokens * 2 * st->half;
    (void)self, (void)config;
    if (w->phase == 0) {
        int64_t begin, end;
        share(st->batch * st->tokens, w->tid, w->nth, &begin, &end);
        for (int64_t i = begin; i < end; i++) {
            find_angles(st, p->step->p.rotary.scale, i / st->tokens, i % st->tokens,
                        angles + i * 2 * st->half);
            most[i] = largest_magnitude(angles + i * 2 * st->half, 2 * st->half);
        }
        return;
    }
    static const row_ops_t turn = {.change = rotate};
    const rotation_t r = {st, angles, most};
    rows_work(&st->rows, p, w, (unsigned char *)w->shared + angle_bytes(st), &turn, &r);
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    const int64_t row = problem_dim(p, p->step->p.rotary.x, 1);
    (void)self, (void)arena;
    out->state_bytes = sizeof(rotary_state_t);
    out->share_bytes = rows_scratch(p->step);
    out->reserve_bytes = rows_row_bytes(row > 0 ? row : 0);
    out->note = p->step->p.rotary.hadamard ? "a head at a time, with a Hadamard transform"
                                           : "a head at a time";
    return sinter_success;
}

const driver_t driver_rotary_rows = {.step = STEP_ROTARY,
                                     .arithmetic = IN_F32,
                                     .phases = 2,
                                     .setup = setup,
                                     .choose = choose,
                                     .check = check,
                                     .checked = positions_of,
                                     .start = rows_start,
                                     .work = work};
