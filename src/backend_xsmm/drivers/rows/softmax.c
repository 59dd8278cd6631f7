/* SoftMax and LogSoftmax steps. With m the maximum and s the sum of e^(x - m) along the axis,
 *
 *   y = e^(x - m) / s    or    y = x - stats,    stats = m + log s
 *
 * with a row's sink as one more x, which gives no y. Up to 16 exponentials are added in f32 before
 * they are added in double. y goes through the post chain in runs along the last dim. Rows (the
 * axis is last): read from memory once if they fit the row buffer, three times if not. Otherwise
 * columns: up to CHAIN_BLOCK neighbours along the last dim at once, three walks along the axis.
 * Memory per thread does not depend on dims. */
#include <math.h>
#include <string.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/kernel.h"
#include "backend_xsmm/ukernels/eltwise.h"
#include "base/fetch.h"
#include "base/status.h"
#include "numeric/quant_rows.h"

enum { ROW = 4096, SHORT = 16 };
/* Where a step reads more bytes, the next row is fetched while one is processed. */
enum { AHEAD_FROM = 1 << 20 };

/* The tensors of a step besides its results in `post`. */
enum { IN, SINK, STATS, TENSORS };

typedef struct softmax_state {
    chain_bound_t post;
    const eltwise_table_t *fn;
    const bound_t *of[TENSORS]; /* NULL: none */
    int in_bits;                /* of an element */
    int way, ndims, axis;
    int64_t dims[SINTER_MAX_NDIMS];
    int64_t stride[TENSORS][SINTER_MAX_NDIMS]; /* along dims; 0 where there is no tensor */
    int64_t extent[SINTER_MAX_NDIMS], n_items; /* the last dim in blocks, the axis once */
    bool inf_as_zero, log;
    bool floats; /* rows are consecutive floats */
    /* Where results go if the post chain does nothing but store them, along the rows; else NULL. */
    const chain_ref_t *out;
    bool streams; /* some result goes past the caches */
    bool ahead;   /* rows are consecutive elements, and the next one is to be fetched */
} softmax_state_t;

typedef struct buffers {
    float row[ROW];
    float max[CHAIN_BLOCK], factor[CHAIN_BLOCK], spare[CHAIN_BLOCK];
    double sum[CHAIN_BLOCK];
    void *chain;
} buffers_t;

/* ---- prepare --------------------------------------------------------------------------------- */

static void swap_i64(int64_t *v, int i, int j)
{
    const int64_t t = v[i];
    v[i] = v[j];
    v[j] = t;
}

static bool goes_on(const softmax_state_t *st, int d)
{
    bool all = true;
    for (int t = 0; t < TENSORS && st->dims[d] != 1 && st->dims[d + 1] != 1; t++) {
        all = all && st->stride[t][d] == st->dims[d + 1] * st->stride[t][d + 1];
    }
    return all;
}

/* Neighbouring dims become one where neither is the axis and nothing tells them apart: longer
 * columns, fewer items. */
static void merge_dims(softmax_state_t *st)
{
    for (int d = st->ndims - 2; d >= 0; d--) {
        if (d == st->axis || d + 1 == st->axis || !goes_on(st, d) || !chain_merge(&st->post, d)) {
            continue;
        }
        const size_t moved = sizeof(int64_t) * (size_t)(st->ndims - d - 2);
        for (int t = 0; t < TENSORS; t++) {
            int64_t *at = st->stride[t] + d;
            at[0] = at[st->dims[d + 1] == 1 ? 0 : 1];
            memmove(at + 1, at + 2, moved);
        }
        st->dims[d] *= st->dims[d + 1];
        memmove(st->dims + d + 1, st->dims + d + 2, moved);
        st->ndims--;
        st->axis -= d < st->axis;
    }
}

/* The axis becomes the last dim: it is contiguous in memory, or what is last is short. */
static void make_rows(softmax_state_t *st)
{
    const int last = st->ndims - 1;
    int to[SINTER_MAX_NDIMS];
    for (int d = 0; d <= last; d++) {
        to[d] = d == st->axis ? last : d == last ? st->axis : d;
    }
    swap_i64(st->dims, st->axis, last);
    for (int t = 0; t < TENSORS; t++) {
        swap_i64(st->stride[t], st->axis, last);
    }
    chain_permute(&st->post, to);
    st->axis = last;
}

static sinter_status_t bind_sink(const bound_t *sink, softmax_state_t *st)
{
    const int shift = st->ndims - sink->ndims;
    for (int d = 0; d < sink->ndims; d++) {
        if (shift < 0 || (sink->dims[d] != 1 &&
                          (sink->dims[d] != st->dims[d + shift] || d + shift == st->axis))) {
            return sg_fail(sinter_invalid_shape,
                           "softmax: sinks do not broadcast to one value for each row");
        }
        st->stride[SINK][d + shift] = sink->dims[d] == 1 ? 0 : sink->strides[d];
    }
    return sinter_success;
}

static double in_bytes(const softmax_state_t *st)
{
    double n = st->in_bits / 8.0;
    for (int d = 0; d < st->ndims; d++) {
        n *= (double)st->dims[d];
    }
    return n;
}

enum { WHOLE_ROWS, LONG_ROWS, COLUMNS };

static const char *refuse_rows(int way, const void *config, void *state)
{
    const softmax_state_t *st = state;
    (void)config;
    if (st->axis != st->ndims - 1) {
        return "the axis is not contiguous";
    }
    return way == WHOLE_ROWS && st->dims[st->axis] > ROW ? "rows of more than 4096 elements" : NULL;
}

const way_row_t ways_softmax_rows[] = {{"rows in cache", refuse_rows, WHOLE_ROWS},
                                       {"rows in three passes", refuse_rows, LONG_ROWS},
                                       {"columns", NULL, COLUMNS}};

/* The operand that whole rows are stored to as they are, one element after the other; NULL: there
 * is none. */
static const chain_ref_t *plain_store(const softmax_state_t *st)
{
    int at;
    if (st->way != WHOLE_ROWS || st->log || st->post.chain->f64 ||
        !chain_is_store(st->post.chain, &at)) {
        return NULL;
    }
    const chain_ref_t *out = &st->post.refs[at];
    return out->stride[st->ndims - 1] == 1 && out->traits->block_elems == 1 ? out : NULL;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *problem, const void *config,
                              void *state, choice_t *choice)
{
    const frame_t *frame = problem->frame;
    const softmax_params_t *p = &problem->step->p.softmax;
    const bound_t *in = &frame->v[p->in], *sink = p->sink >= 0 ? &frame->v[p->sink] : NULL,
                  *stats = p->stats >= 0 ? &frame->v[p->stats] : NULL;
    softmax_state_t *st = state;
    (void)config;
    SG_TRY(chain_bind(problem->step->post, frame, self->needs, &st->post));
    st->fn = eltwise_table(self->needs);
    st->of[IN] = in;
    st->of[SINK] = sink;
    st->of[STATS] = stats;
    st->in_bits = dtype_traits(in->dtype)->bits;
    st->ndims = in->ndims;
    st->axis = axis_from_front(p->axis, in->ndims);
    if (st->ndims != st->post.ndims || st->axis < 0 || st->axis >= st->ndims) {
        return sg_fail(sinter_invalid_shape, "softmax over axis %d of a tensor with %d dims",
                       p->axis, in->ndims);
    }
    st->inf_as_zero = p->inf_as_zero;
    st->log = p->log;
    for (int d = 0; d < st->ndims; d++) {
        st->dims[d] = in->dims[d];
        st->stride[IN][d] = in->strides[d];
        st->stride[STATS][d] = stats != NULL && d != st->axis ? stats->strides[d] : 0;
        st->stride[SINK][d] = 0;
    }
    if (sink != NULL) {
        SG_TRY(bind_sink(sink, st));
    }
    merge_dims(st);
    const int last = st->ndims - 1;
    if (st->axis != last && (st->stride[IN][st->axis] == 1 || st->dims[last] < SHORT)) {
        make_rows(st);
    }
    choice->shares_bytes = chain_shares_bytes(&st->post);
    st->n_items = 1;
    for (int d = 0; d <= last; d++) {
        st->extent[d] = d == last ? (st->dims[d] + CHAIN_BLOCK - 1) / CHAIN_BLOCK : st->dims[d];
        if (d == st->axis) { /* an empty axis leaves nothing to do but the statistics */
            st->extent[d] = st->dims[d] != 0 || stats != NULL;
        }
        st->n_items *= st->extent[d];
    }
    st->way = take_way(ways_softmax_rows, NULL, NULL, st, choice);
    st->streams = st->way != COLUMNS && !st->post.chain->f64 &&
                  chain_choose_stores(&st->post, 1, at_most(st->dims[last], CHAIN_BLOCK),
                                      in_bytes(st), problem->plan->cache_bytes);
    st->out = plain_store(st);
    st->floats = in->dtype == sinter_f32 && st->stride[IN][last] == 1 &&
                 (uintptr_t)in->data % sizeof(float) == 0;
    st->ahead = st->stride[IN][last] == 1 && in_bytes(st) > AHEAD_FROM;
    return sinter_success;
}

/* ---- rows ------------------------------------------------------------------------------------ */

static int64_t offset(const softmax_state_t *st, int tensor, const int64_t *idx)
{
    return walk_place(st->ndims, idx, st->stride[tensor]);
}

/* n elements of the input along the last dim. */
static void load(const softmax_state_t *st, int64_t first, int n, float *x)
{
    eltwise_load(st->fn, st->of[IN]->dtype, st->of[IN]->data, first, st->stride[IN][st->ndims - 1],
                 n, x);
}

/* n sinks along the last dim, -inf where there are none. */
static void load_sinks(const softmax_state_t *st, const int64_t *idx, int n, float *x)
{
    const bound_t *sink = st->of[SINK];
    if (sink != NULL) {
        eltwise_load(st->fn, sink->dtype, sink->data, offset(st, SINK, idx),
                     st->stride[SINK][st->ndims - 1], n, x);
    }
    for (int i = 0; sink == NULL && i < n; i++) {
        x[i] = -INFINITY;
    }
}

/* A row that is -inf throughout has exponentials of 0 instead of NaN this way, which tells it
 * from a row with a NaN. */
static float shift_of(float max)
{
    return max == -INFINITY ? 0 : max;
}

static float factor_of(const softmax_state_t *st, double sum)
{
    return sum == 0 && st->inf_as_zero ? 0 : (float)(1 / sum);
}

static double stats_of(float shift, double sum)
{
    return (double)shift + log(sum);
}

/* x becomes the result. e: x is e^(x - m) already. */
static void finish(const softmax_state_t *st, float *x, int n, float shift, double sum, bool e)
{
    if (st->log) {
        const double stats = stats_of(shift, sum);
        for (int i = 0; i < n; i++) {
            x[i] = (float)((double)x[i] - stats);
        }
        return;
    }
    if (!e) {
        st->fn->exp_sub_sum(x, x, n, shift);
    }
    st->fn->scale_row(x, n, factor_of(st, sum));
}

static void put_stats(const softmax_state_t *st, const int64_t *idx, double stats)
{
    const bound_t *to = st->of[STATS];
    if (to != NULL) {
        dtype_traits(to->dtype)->codec.store_f64(to->data, offset(st, STATS, idx), 0, 1, &stats);
    }
}

static const unsigned char *element(const softmax_state_t *st, int64_t at)
{
    return st->of[IN]->data + at * st->in_bits / 8;
}

/* Where the exponentials of a row go: to the results, if these are floats that stay in the caches,
 * else into the buffer. */
static float *exponentials_at(const softmax_state_t *st, unsigned char *row, float *buffer)
{
    const bool floats = st->out->dtype == sinter_f32 && (uintptr_t)row % sizeof(float) == 0;
    return floats && !st->out->stream ? (float *)(void *)row : buffer;
}

/* A row of results, f times its exponentials x. */
static void store_row(const softmax_state_t *st, unsigned char *row, int n, float *x, float f,
                      buffers_t *b)
{
    const chain_ref_t *out = st->out;
    if (out->dtype == sinter_f32 && out->stream) {
        st->fn->scale_past(row, x, n, f);
        return;
    }
    st->fn->scale_row(x, n, f);
    if (!out->stream) {
        if (x == b->row) {
            eltwise_store(st->fn, out->dtype, row, 0, 1, n, x);
        }
        return;
    }
    for (int i = 0; i < n; i += CHAIN_BLOCK) {
        const int k = (int)at_most(n - i, CHAIN_BLOCK);
        const size_t bytes = (size_t)out->traits->block_bytes;
        eltwise_store(st->fn, out->dtype, (unsigned char *)b->spare, 0, 1, k, x + i);
        st->post.quant->stream(row + (size_t)i * bytes, (const unsigned char *)b->spare,
                               (size_t)k * bytes);
    }
}

/* The exponentials take the time in which the next row, at element `next`, comes from memory; -1:
 * there is none. */
static void short_row(const softmax_state_t *st, int64_t *idx, int64_t next, buffers_t *b)
{
    const int last = st->ndims - 1, n = (int)st->dims[last];
    const int64_t first = offset(st, IN, idx);
    const float *from = b->row;
    float *x = b->row, sink;
    load_sinks(st, idx, 1, &sink);
    if (st->floats) {
        from = (const float *)(const void *)element(st, first);
    } else {
        load(st, first, n, x);
    }
    unsigned char *row = NULL;
    if (st->out != NULL) {
        row = st->out->data +
              walk_place(st->ndims, idx, st->out->stride) * st->out->traits->block_bytes;
        x = exponentials_at(st, row, x);
    }
    const float max = st->fn->row_max(from, n), shift = shift_of(max > sink ? max : sink);
    double sum = st->log ? 0 : st->fn->exp_sub_sum(&sink, &sink, 1, shift);
    for (int i = 0; i < n; i += CHAIN_BLOCK) {
        const int k = (int)at_most(n - i, CHAIN_BLOCK);
        if (next >= 0) {
            fetch_lines(element(st, next + i), (int64_t)k * st->in_bits / 8);
        }
        sum += st->fn->exp_sub_sum(st->log ? b->spare : x + i, from + i, k, shift);
    }
    put_stats(st, idx, stats_of(shift, sum));
    if (st->out != NULL) {
        store_row(st, row, n, x, factor_of(st, sum), b);
        return;
    }
    for (int i = 0; i < n; i += CHAIN_BLOCK) {
        const int k = (int)at_most(n - i, CHAIN_BLOCK);
        if (st->log && from != x) {
            memcpy(x + i, from + i, (size_t)k * sizeof *x);
        }
        finish(st, x + i, k, shift, sum, true);
        idx[last] = i;
        chain_run(&st->post, idx, k, x + i, b->chain);
    }
}

static void long_row(const softmax_state_t *st, int64_t *idx, buffers_t *b)
{
    const int last = st->ndims - 1;
    const int64_t n = st->dims[last], step = st->stride[IN][last], first = offset(st, IN, idx);
    float *x = b->row, sink, max;
    load_sinks(st, idx, 1, &sink);
    max = sink;
    for (int64_t i = 0; i < n; i += ROW) {
        const int k = (int)at_most(n - i, ROW);
        load(st, first + i * step, k, x);
        const float m = st->fn->row_max(x, k);
        max = m > max ? m : max;
    }
    const float shift = shift_of(max);
    double sum = st->fn->exp_sub_sum(&sink, &sink, 1, shift);
    for (int64_t i = 0; i < n; i += CHAIN_BLOCK) {
        const int k = (int)at_most(n - i, CHAIN_BLOCK);
        load(st, first + i * step, k, x);
        sum += st->fn->exp_sub_sum(x, x, k, shift);
    }
    put_stats(st, idx, stats_of(shift, sum));
    for (int64_t i = 0; i < n; i += CHAIN_BLOCK) {
        const int k = (int)at_most(n - i, CHAIN_BLOCK);
        load(st, first + i * step, k, x);
        finish(st, x, k, shift, sum, false);
        idx[last] = i;
        chain_run(&st->post, idx, k, x, b->chain);
    }
}

/* ---- columns --------------------------------------------------------------------------------- */

/* n columns from idx on: elements idx[last] .. + n - 1 of the last dim, each with its own row
 * along the axis. */
static void columns(const softmax_state_t *st, int64_t *idx, int n, buffers_t *b)
{
    const int last = st->ndims - 1;
    const int64_t rows = st->dims[st->axis], down = st->stride[IN][st->axis],
                  first = offset(st, IN, idx);
    float *x = b->row;
    const float *const row[1] = {x};
    load_sinks(st, idx, n, b->spare);
    memcpy(b->max, b->spare, sizeof(float) * (size_t)n);
    for (int64_t r = 0; r < rows; r++) {
        load(st, first + r * down, n, x);
        st->fn->max_row(b->max, x, n);
    }
    for (int i = 0; i < n; i++) {
        b->max[i] = shift_of(b->max[i]);
    }
    st->fn->op[sinter_op_subtract](b->spare, b->spare, b->max, NULL, n, NULL);
    st->fn->op[sinter_op_exp](b->spare, b->spare, NULL, NULL, n, NULL);
    for (int i = 0; i < n; i++) {
        b->sum[i] = (double)b->spare[i];
    }
    for (int64_t r = 0; r < rows; r++) {
        load(st, first + r * down, n, x);
        st->fn->op[sinter_op_subtract](x, x, b->max, NULL, n, NULL);
        st->fn->op[sinter_op_exp](x, x, NULL, NULL, n, NULL);
        st->fn->fold_columns[OP_SLOT(sinter_op_reduce_sum)](b->sum, row, 1, n);
    }
    for (int i = 0; i < n; i++) {
        b->factor[i] = factor_of(st, b->sum[i]);
        b->sum[i] = st->log || st->of[STATS] != NULL ? stats_of(b->max[i], b->sum[i]) : 0;
        idx[last] += i;
        put_stats(st, idx, b->sum[i]);
        idx[last] -= i;
    }
    for (int64_t r = 0; r < rows; r++) {
        load(st, first + r * down, n, x);
        if (st->log) {
            for (int i = 0; i < n; i++) {
                x[i] = (float)((double)x[i] - b->sum[i]);
            }
        } else {
            st->fn->op[sinter_op_subtract](x, x, b->max, NULL, n, NULL);
            st->fn->op[sinter_op_exp](x, x, NULL, NULL, n, NULL);
            st->fn->op[sinter_op_multiply](x, x, b->factor, NULL, n, NULL);
        }
        idx[st->axis] = r;
        chain_run(&st->post, idx, n, x, b->chain);
    }
}

/* The first element of the row after that at at[]. */
static int64_t next_row(const softmax_state_t *st, const int64_t *at)
{
    int64_t idx[SINTER_MAX_NDIMS];
    memcpy(idx, at, sizeof idx);
    walk_next(st->ndims, st->extent, idx);
    return offset(st, IN, idx);
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const softmax_state_t *st = state;
    buffers_t *b = w->scratch;
    const int last = st->ndims - 1;
    int64_t begin, end, at[SINTER_MAX_NDIMS], idx[SINTER_MAX_NDIMS];
    (void)self, (void)p, (void)config;
    share(st->n_items, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    b->chain = (unsigned char *)w->scratch + scratch_round(sizeof(buffers_t));
    walk_seek(st->ndims, st->extent, begin, at);
    for (int64_t i = begin; i < end; i++, walk_next(st->ndims, st->extent, at)) {
        for (int d = 0; d <= last; d++) {
            idx[d] = d == last && d != st->axis ? at[d] * CHAIN_BLOCK : at[d];
        }
        if (st->way == COLUMNS) {
            columns(st, idx, (int)at_most(st->dims[last] - idx[last], CHAIN_BLOCK), b);
        } else if (st->way == WHOLE_ROWS) {
            short_row(st, idx, st->ahead && i + 1 < end ? next_row(st, at) : -1, b);
        } else {
            long_row(st, idx, b);
        }
    }
    if (st->streams) {
        st->post.quant->stream_end();
    }
}

/* ---- the kernels ----------------------------------------------------------------------------- */

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    (void)self, (void)arena;
    out->state_bytes = sizeof(softmax_state_t);
    out->share_bytes = scratch_round(sizeof(buffers_t)) + chain_scratch_bytes(p->step->post);
    out->note = "rows of up to 4096 in cache, longer ones in three passes";
    return sinter_success;
}

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    (void)self;
    return dtype_needs_f64(problem_type(p, p->step->p.softmax.in))
               ? "the input needs double precision"
               : NULL;
}

const driver_t driver_softmax_rows = {.step = STEP_SOFTMAX,
                                      .arithmetic = IN_F32,
                                      .phases = 1,
                                      .refuse = refuse,
                                      .setup = setup,
                                      .choose = choose,
                                      .work = work};
