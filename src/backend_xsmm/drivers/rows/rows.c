#include "backend_xsmm/drivers/rows/rows.h"

#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "base/status.h"

typedef struct buffers {
    void *chain, *tail;
} buffers_t;

static size_t buffers(const step_t *step, unsigned char *scratch, buffers_t *out)
{
    size_t at = 0;
    const size_t before = chain_long_scratch_bytes(step->pre),
                 after = chain_long_scratch_bytes(step->post);
    out->chain = carve(scratch, &at, before > after ? before : after, 1);
    out->tail = step->tail == NULL ? NULL : carve(scratch, &at, quant_tail_scratch(), 1);
    return at;
}

size_t rows_scratch(const step_t *step)
{
    buffers_t b;
    return buffers(step, NULL, &b);
}

size_t rows_row_bytes(int64_t elements)
{
    return scratch_round((size_t)elements * sizeof(float));
}

/* Where a step reads more bytes, the next batch may be fetched while one is finished: arithmetic
 * and memory then work at the same time. */
enum { AHEAD_FROM = 1 << 20 };

/* ---- binding --------------------------------------------------------------------------------- */

/* Short rows that lie side by side make a batch: as many as leave some batches for each share, but
 * two at least, so that the number of threads does not say whether there are batches. Dims of which
 * a row has more than one element lie inside of those that a batch has. */
static void choose_batches(rows_t *r, int shares)
{
    enum { BATCH = 4096, BATCHES_OF_SHARE = 4 };
    bool fits = true;
    int outer = 0;
    r->n_batches = 1;
    for (int d = 0; d < r->ndims; d++) {
        r->n_batches *= r->extent[d];
        outer += outer == d && r->block[d] == 1;
    }
    r->most = r->row;
    for (int d = r->ndims - 1; d >= 0; d--) {
        const int64_t n = r->extent[d], others = n > 0 ? r->n_batches / n : 0;
        int64_t k = at_most(n, r->row > 0 ? BATCH / r->most : 1);
        while (k > 3 && others * (n / k) < (int64_t)BATCHES_OF_SHARE * shares && shares > 1) {
            k /= 2;
        }
        r->batch[d] = fits && d < outer && k > 1 ? k : 1;
        r->batches[d] = (n + r->batch[d] - 1) / r->batch[d];
        r->n_batches = others * r->batches[d];
        r->most *= r->batch[d];
        fits = fits && r->batches[d] == 1;
    }
}

/* Dims that a batch has whole become one with the dim before: longer runs. */
static void merge_dims(rows_t *r, bool tail)
{
    for (int k = r->n_chain - 2; k >= 0; k--) {
        if (r->chain_block[k + 1] != r->post.dims[k + 1] || !chain_merges(&r->pre, k) ||
            !chain_merges(&r->post, k) || (tail && !quant_tail_merges(&r->tail, k))) {
            continue;
        }
        chain_merge(&r->pre, k);
        chain_merge(&r->post, k);
        if (tail) {
            quant_tail_merge(&r->tail, k);
        }
        r->chain_unit[k] *= r->chain_block[k + 1];
        r->chain_block[k] *= r->chain_block[k + 1];
        r->n_chain--;
        for (int e = k + 1; e < r->n_chain; e++) {
            r->chain_block[e] = r->chain_block[e + 1];
            r->chain_unit[e] = r->chain_unit[e + 1];
            r->chain_dim[e] = r->chain_dim[e + 1];
        }
    }
}

/* Batches that have a part of the last dim may begin within a byte. */
static bool shares_bytes(const rows_t *r, const chain_bound_t *chain)
{
    enum { BLOCK_OF_ALL_TYPES = 4 };
    const int last = r->n_chain - 1;
    return chain_shares_bytes(chain) ||
           (last >= 0 && r->batches[last] > 1 && r->chain_block[last] % BLOCK_OF_ALL_TYPES != 0 &&
            chain_stores_packed(chain));
}

/* Whether batches have several rows; the last one may have a single one. */
static bool in_batches(const rows_t *r)
{
    return r->most > r->row;
}

enum { PAST_CACHES, IN_BATCHES, ONE_BY_ONE };

static const char *refuse_way(int way, const void *config, void *state)
{
    const rows_t *r = state;
    (void)config;
    return way == PAST_CACHES ? (r->streams ? NULL : "") : in_batches(r) ? NULL : "";
}

const way_row_t ways_rows[] = {{"rows past the caches", refuse_way, PAST_CACHES},
                               {"rows in batches", refuse_way, IN_BATCHES},
                               {"rows one by one", NULL, ONE_BY_ONE}};

sinter_status_t rows_bind(const problem_t *p, features_t features, const int64_t *block, rows_t *r,
                          choice_t *choice)
{
    const frame_t *frame = p->frame;
    const step_t *step = p->step;
    SG_TRY(chain_bind(step->pre, frame, features, &r->pre));
    SG_TRY(chain_bind(step->post, frame, features, &r->post));
    r->ndims = r->n_chain = r->post.ndims;
    r->row = 1;
    for (int d = 0; d < r->ndims; d++) {
        r->block[d] = block[d];
        r->extent[d] = block[d] > 0 ? r->post.dims[d] / block[d] : 0;
        r->row *= block[d];
    }
    choose_batches(r, frame->shares);
    for (int d = 0; d < r->ndims; d++) {
        r->chain_dim[d] = d;
        r->chain_unit[d] = block[d];
        r->chain_block[d] = r->batch[d] * block[d];
    }
    r->run = CHAIN_LONG;
    choice->shares_bytes = shares_bytes(r, &r->pre) || shares_bytes(r, &r->post);
    r->long_groups = false;
    if (step->tail != NULL) {
        SG_TRY(quant_tail_bind(step->tail, frame, features, &r->tail));
        const int64_t last = r->chain_block[r->n_chain - 1];
        r->long_groups = r->tail.cols > TAIL_COLUMNS;
        r->run = r->long_groups ? CHAIN_LONG : TAIL_COLUMNS / r->tail.cols * r->tail.cols;
        choice->shares_bytes =
            choice->shares_bytes ||
            quant_tail_shares_bytes(&r->tail, r->long_groups ? last : at_most(last, r->run));
    }
    merge_dims(r, step->tail != NULL);
    const double before = chain_touched_bytes(&r->pre), after = chain_touched_bytes(&r->post);
    const int64_t run = at_most(r->chain_block[r->n_chain - 1], r->run);
    /* Long rows of floats that are added come faster without prefetches: the hardware follows
     * them. */
    r->affine = !r->post.chain->f64;
    r->by_lines = r->affine && !in_batches(r) && chain_is_load(&r->pre);
    r->ahead =
        before > AHEAD_FROM && (in_batches(r) || r->by_lines || chain_converts_operands(&r->pre));
    const bool sums = chain_choose_stores(&r->pre, 1, run, after, p->plan->cache_bytes);
    r->streams = chain_choose_stores(&r->post, 1, run, before, p->plan->cache_bytes) || sums;
    choice->shared_bytes += rows_row_bytes(r->most) * (size_t)frame->shares;
    take_way(ways_rows, NULL, NULL, r, choice);
    return sinter_success;
}

sinter_status_t rows_start(const kernel_t *self, const problem_t *p, const void *config,
                           void *state)
{
    rows_t *r = state;
    (void)self, (void)config;
    if (p->step->tail != NULL) {
        quant_tail_start(p->step->tail, p->frame, &r->tail);
    }
    return sinter_success;
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* Rows begin[] to begin[] + rows[] by dim, and a walk over the runs of their elements. */
typedef struct run {
    int64_t begin[SINTER_MAX_NDIMS], rows[SINTER_MAX_NDIMS], n_rows;
    int64_t first[SINTER_MAX_NDIMS], within[SINTER_MAX_NDIMS], idx[SINTER_MAX_NDIMS];
    int64_t done, all; /* elements */
    int most, n;       /* that a run may have, that this one has */
} run_t;

static void place_run(const rows_t *r, run_t *run)
{
    const int last = r->n_chain - 1;
    for (int k = 0; k <= last; k++) {
        run->idx[k] = run->first[k] + run->within[k];
    }
    run->n = (int)at_most(r->chain_block[last] - run->within[last],
                          at_most(run->all - run->done, run->most));
}

/* most: elements of a run. */
static void first_run(const rows_t *r, const int64_t *batch, int most, run_t *run)
{
    run->most = most;
    run->n_rows = 1;
    for (int d = 0; d < r->ndims; d++) {
        run->begin[d] = batch[d] * r->batch[d];
        run->rows[d] = at_most(r->extent[d] - run->begin[d], r->batch[d]);
        run->n_rows *= run->rows[d];
    }
    for (int k = 0; k < r->n_chain; k++) {
        run->first[k] = run->begin[r->chain_dim[k]] * r->chain_unit[k];
        run->within[k] = 0;
    }
    run->done = 0;
    run->all = run->n_rows * r->row;
    place_run(r, run);
}

static void next_run(const rows_t *r, run_t *run)
{
    const int last = r->n_chain - 1;
    run->done += run->n;
    run->within[last] += run->n;
    if (run->within[last] == r->chain_block[last]) {
        run->within[last] = 0;
        walk_next(last, r->chain_block, run->within);
    }
    place_run(r, run);
}

/* Where the first runs of a row are, which need not be moved to x before they are finished. */
enum { MOST_RUNS = 16 };
typedef struct sources {
    const float *run[MOST_RUNS];
} sources_t;

typedef struct rows_job {
    const rows_t *r;
    const problem_t *p;
    const row_ops_t *ops;
    const void *state;
    float *x;
    buffers_t b;
} rows_job_t;

/* The chain before a batch. One row is looked at meanwhile. */
static void take_batch(const rows_job_t *j, const int64_t *batch, row_t *row, sources_t *from)
{
    run_t run;
    int k = 0;
    for (first_run(j->r, batch, j->r->run, &run); run.done < run.all; next_run(j->r, &run), k++) {
        float *const x = j->x + run.done;
        const float *at = chain_run_long(&j->r->pre, run.idx, run.n, x, j->b.chain);
        const bool stays = !in_batches(j->r) && j->ops->finish != NULL && k < MOST_RUNS;
        if (at != x && !stays) {
            memcpy(x, at, (size_t)run.n * sizeof *x);
        }
        if (stays) {
            from->run[k] = at;
        }
        if (!in_batches(j->r) && j->ops->seen != NULL) {
            j->ops->seen(j->state, row, at, run.n);
        }
    }
}

/* The rows of a batch of several, one by one. */
static void change_rows(const rows_job_t *j, const run_t *batch)
{
    const row_ops_t *ops = j->ops;
    int64_t index[SINTER_MAX_NDIMS], at[SINTER_MAX_NDIMS] = {0};
    for (int64_t i = 0; i < batch->n_rows; i++, walk_next(j->r->ndims, batch->rows, at)) {
        row_t row = {.index = index, .x = j->x + i * j->r->row, .factor = 1};
        for (int d = 0; d < j->r->ndims; d++) {
            index[d] = batch->begin[d] + at[d];
        }
        for (int64_t k = 0; ops->seen != NULL && k < j->r->row; k += j->r->run) {
            ops->seen(j->state, &row, row.x + k, (int)at_most(j->r->row - k, j->r->run));
        }
        ops->change(j->state, j->p, &row);
        if (ops->finish != NULL) {
            ops->finish(j->state, &row, row.x, row.x, (int)j->r->row);
        }
    }
}

/* Finishes a run of one row, from `from`, and runs the chain behind it. Returns the chain's
 * result, as chain_run_long does. */
static const float *finish_run(const rows_job_t *j, const run_t *run, const row_t *row,
                               const float *from, float *x, const ahead_t *ahead)
{
    const row_ops_t *ops = j->ops;
    const chain_bound_t *post = &j->r->post;
    if (j->r->affine && ops->finish_affine != NULL) {
        const chain_affine_run_t affine = chain_affine_run(post, run->idx, run->n, j->b.chain);
        const row_run_t part = {.state = j->state,
                                .from = from,
                                .to = affine.to != NULL ? affine.to : x,
                                .n = run->n,
                                .affine = &affine,
                                .ahead = ahead};
        if (ops->finish_affine(row, &part)) {
            return affine.to != NULL ? x : chain_run_behind(post, run->idx, run->n, x, j->b.chain);
        }
    }
    ops->finish(j->state, row, from, x, run->n);
    return chain_run_long(post, run->idx, run->n, x, j->b.chain);
}

/* The chain behind a batch, while the batch at `next` is fetched (NULL: none). */
static void put_batch(const rows_job_t *j, const int64_t *batch, const int64_t *next,
                      const row_t *row, const sources_t *from)
{
    const rows_t *r = j->r;
    run_t run, ahead;
    int k = 0;
    if (next != NULL) {
        first_run(r, next, r->run, &ahead);
    }
    for (first_run(r, batch, r->run, &run); run.done < run.all; next_run(r, &run), k++) {
        float *const x = j->x + run.done;
        ahead_t lines = {NULL, 0};
        if (next != NULL && ahead.done < ahead.all) {
            if (r->by_lines && j->ops->finish_affine != NULL) {
                lines = chain_ahead(&r->pre, ahead.idx);
            } else {
                chain_fetch(&r->pre, ahead.idx, ahead.n);
            }
            next_run(r, &ahead);
        }
        const float *result =
            !in_batches(r) && j->ops->finish != NULL
                ? finish_run(j, &run, row, k < MOST_RUNS ? from->run[k] : x, x, &lines)
                : chain_run_long(&r->post, run.idx, run.n, x, j->b.chain);
        if (j->b.tail != NULL) {
            if (result != x) {
                memcpy(x, result, (size_t)run.n * sizeof *x);
            }
            if (!r->long_groups) {
                quant_tail_run(&r->tail, run.idx, 1, run.n, x, r->run, j->b.tail);
            }
        }
    }
    if (j->b.tail != NULL && r->long_groups) {
        for (first_run(r, batch, r->tail.cols, &run); run.done < run.all; next_run(r, &run)) {
            quant_tail_long_group(&r->tail, run.idx, run.n, j->x + run.done, j->b.tail);
        }
    }
}

void rows_work(const rows_t *r, const problem_t *p, const worker_t *w, unsigned char *memory,
               const row_ops_t *ops, const void *state)
{
    int64_t begin, end, batch[SINTER_MAX_NDIMS], next[SINTER_MAX_NDIMS];
    rows_job_t j = {.r = r, .p = p, .ops = ops, .state = state};
    j.x = (float *)(void *)(memory + rows_row_bytes(r->most) * (size_t)w->tid);
    share(r->n_batches, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    buffers(p->step, w->scratch, &j.b);
    walk_seek(r->ndims, r->batches, begin, batch);
    for (int64_t i = begin; i < end; i++) {
        int64_t index[SINTER_MAX_NDIMS];
        row_t row = {.index = index, .x = j.x, .factor = 1};
        sources_t from;
        run_t run;
        first_run(r, batch, r->run, &run);
        memcpy(index, run.begin, sizeof index);
        take_batch(&j, batch, &row, &from);
        if (!in_batches(r)) {
            ops->change(state, p, &row);
        } else {
            change_rows(&j, &run);
        }
        memcpy(next, batch, sizeof next);
        walk_next(r->ndims, r->batches, next);
        put_batch(&j, batch, r->ahead && i + 1 < end ? next : NULL, &row, &from);
        memcpy(batch, next, sizeof batch);
    }
    if (r->streams) {
        r->post.quant->stream_end();
    }
}
