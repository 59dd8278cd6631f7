#include "backend_xsmm/drivers/rows.h"

#include <string.h>

#include "backend_xsmm/drivers/chain_walk.h"
#include "base/status.h"

typedef struct buffers {
    void *chain, *tail;
} buffers_t;

static size_t buffers(const step_t *step, const chain_t *pre, unsigned char *scratch,
                      buffers_t *out)
{
    size_t at = 0;
    const size_t before = chain_long_scratch_bytes(pre),
                 after = chain_long_scratch_bytes(step->post);
    out->chain = carve(scratch, &at, before > after ? before : after, 1);
    out->tail = step->tail == NULL ? NULL : carve(scratch, &at, quant_tail_scratch(), 1);
    return at;
}

size_t rows_scratch(const step_t *step, const chain_t *pre)
{
    buffers_t b;
    return buffers(step, pre, NULL, &b);
}

size_t rows_row_bytes(int64_t elements)
{
    return ((size_t)elements * sizeof(float) + 63) / 64 * 64;
}

/* Where a step reads more bytes, the next row is fetched while one is finished: arithmetic and
 * memory then work at the same time. */
enum { AHEAD_FROM = 1 << 20 };

/* ---- binding --------------------------------------------------------------------------------- */

/* Dims that a row has whole become one: longer runs. */
static void merge_dims(rows_t *r)
{
    for (int k = r->n_chain - 2; k >= 0; k--) {
        const bool whole = r->extent[r->chain_dim[k]] == 1 && r->extent[r->chain_dim[k + 1]] == 1;
        if (!whole || !chain_merges(&r->pre, k) || !chain_merges(&r->post, k)) {
            continue;
        }
        chain_merge(&r->pre, k);
        chain_merge(&r->post, k);
        r->chain_block[k] *= r->chain_block[k + 1];
        r->n_chain--;
        for (int e = k + 1; e < r->n_chain; e++) {
            r->chain_block[e] = r->chain_block[e + 1];
            r->chain_dim[e] = r->chain_dim[e + 1];
        }
    }
}

sinter_status_t rows_bind(const problem_t *p, const chain_t *pre, features_t features,
                          const int64_t *block, rows_t *r, choice_t *choice)
{
    const frame_t *frame = p->frame;
    const step_t *step = p->step;
    SG_TRY(chain_bind(pre, frame, features, &r->pre));
    SG_TRY(chain_bind(step->post, frame, features, &r->post));
    r->ndims = r->n_chain = r->post.ndims;
    r->pre.inner_scalar_only = r->post.inner_scalar_only = false;
    r->row = r->n_rows = 1;
    for (int d = 0; d < r->ndims; d++) {
        const int64_t n = r->post.dims[d];
        r->chain_dim[d] = d;
        r->block[d] = r->chain_block[d] = block[d];
        r->extent[d] = block[d] > 0 ? n / block[d] : 0;
        r->row *= block[d];
        r->n_rows *= r->extent[d];
    }
    r->run = CHAIN_LONG;
    r->serial = chain_shares_bytes(&r->pre) || chain_shares_bytes(&r->post);
    if (step->tail != NULL) {
        SG_TRY(quant_tail_bind(step->tail, frame, features, &r->tail));
        r->run = CHAIN_BLOCK / r->tail.cols * r->tail.cols;
        r->serial = r->serial || quant_tail_shares_bytes(&r->tail, r->run);
    } else {
        merge_dims(r);
    }
    const double before = chain_touched_bytes(&r->pre), after = chain_touched_bytes(&r->post);
    const int64_t run = at_most(r->chain_block[r->n_chain - 1], r->run);
    r->ahead = before > AHEAD_FROM;
    const bool sums = chain_choose_stores(&r->pre, 1, run, after, p->plan->cache_bytes);
    r->streams = chain_choose_stores(&r->post, 1, run, before, p->plan->cache_bytes) || sums;
    choice->shared_bytes += rows_row_bytes(r->row) * (size_t)frame->shares;
    add_serial_way(choice, r->serial);
    return sinter_success;
}

void rows_start(const problem_t *p, rows_t *r)
{
    if (p->step->tail != NULL) {
        quant_tail_start(p->step->tail, p->frame, &r->tail);
    }
}

/* ---- runs ------------------------------------------------------------------------------------ */

/* A walk over the runs of a row. */
typedef struct run {
    int64_t first[SINTER_MAX_NDIMS], within[SINTER_MAX_NDIMS], idx[SINTER_MAX_NDIMS];
    int64_t done; /* elements of the row */
    int n;
} run_t;

static void place_run(const rows_t *r, run_t *run)
{
    const int last = r->n_chain - 1;
    for (int k = 0; k <= last; k++) {
        run->idx[k] = run->first[k] + run->within[k];
    }
    run->n = (int)at_most(r->chain_block[last] - run->within[last], r->run);
}

static void first_run(const rows_t *r, const int64_t *row, run_t *run)
{
    for (int k = 0; k < r->n_chain; k++) {
        run->first[k] = row[r->chain_dim[k]] * r->chain_block[k];
        run->within[k] = 0;
    }
    run->done = 0;
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

void rows_work(const rows_t *r, const problem_t *p, const worker_t *w, unsigned char *memory,
               const row_ops_t *ops, const void *state)
{
    float *x = (float *)(void *)(memory + rows_row_bytes(r->row) * (size_t)w->tid);
    int64_t begin, end, row[SINTER_MAX_NDIMS], next[SINTER_MAX_NDIMS];
    buffers_t b;
    run_t run, ahead;
    share(r->n_rows, r->serial ? 0 : w->tid, r->serial ? 1 : w->nth, &begin, &end);
    if (begin >= end || (r->serial && w->tid > 0)) {
        return;
    }
    buffers(p->step, r->pre.chain, w->scratch, &b);
    walk_seek(r->ndims, r->extent, begin, row);
    for (int64_t i = begin; i < end; i++, walk_next(r->ndims, r->extent, row)) {
        row_t now = {.index = row, .x = x, .factor = 1};
        for (first_run(r, row, &run); run.done < r->row; next_run(r, &run)) {
            chain_run_long(&r->pre, run.idx, run.n, x + run.done, b.chain);
            if (ops->seen != NULL) {
                ops->seen(state, &now, x + run.done, run.n);
            }
        }
        ops->change(state, p, &now);
        memcpy(next, row, sizeof next);
        walk_next(r->ndims, r->extent, next);
        first_run(r, next, &ahead);
        for (first_run(r, row, &run); run.done < r->row; next_run(r, &run)) {
            if (r->ahead && i + 1 < end) {
                chain_fetch(&r->pre, ahead.idx, ahead.n);
                next_run(r, &ahead);
            }
            if (ops->finish != NULL) {
                ops->finish(state, &now, x + run.done, run.n);
            }
            chain_run_long(&r->post, run.idx, run.n, x + run.done, b.chain);
            if (b.tail != NULL) {
                quant_tail_run(&r->tail, run.idx, run.n, x + run.done, r->run, b.tail);
            }
        }
    }
    if (r->streams) {
        r->post.quant->stream_end();
    }
}
