/* Elementwise steps with a quantising tail: one pass over memory. A tile is as many rows as a
 * group of the tail has, and at most CHAIN_BLOCK columns, whole groups; its results are
 * quantised before the next tile is computed. */
#include "backend_xsmm/drivers/chain_walk.h"
#include "backend_xsmm/drivers/quant_tail.h"
#include "backend_xsmm/kernel.h"
#include "base/status.h"

enum { MOST_ROWS = TAIL_CHAIN_ROWS };

typedef struct chain_quantise_state {
    chain_bound_t b;
    quant_tail_t tail;
    bool serial;                               /* stores share bytes: one thread does it all */
    int ndims, block;                          /* columns of a tile */
    int64_t extent[SINTER_MAX_NDIMS], n_tiles; /* in tiles */
} chain_quantise_state_t;

typedef struct buffers {
    void *chain, *tail;
    float *rows;
} buffers_t;

static size_t buffers(const step_t *step, unsigned char *scratch, buffers_t *out)
{
    size_t at = 0;
    out->chain = carve(scratch, &at, chain_scratch_bytes(step->post), 1);
    out->tail = carve(scratch, &at, quant_tail_scratch(), 1);
    out->rows = carve(scratch, &at, MOST_ROWS * CHAIN_BLOCK, sizeof(float));
    return at;
}

static size_t thread_bytes(const plan_t *plan, const step_t *step)
{
    buffers_t b;
    (void)plan;
    return buffers(step, NULL, &b);
}

/* Rows that follow one another in all tensors become one long row. */
static void merge_rows(chain_quantise_state_t *st)
{
    for (int d = st->b.ndims - 2; d >= 0 && st->tail.rows == 1; d--) {
        if (quant_tail_merges(&st->tail, d) && chain_merge(&st->b, d)) {
            quant_tail_merge(&st->tail, d);
        }
    }
}

static int64_t tile_size(const chain_quantise_state_t *st, int d)
{
    return d == st->ndims - 1 ? st->block : d == st->ndims - 2 ? st->tail.rows : 1;
}

static sinter_status_t prepare(const plan_t *plan, const step_t *step, const frame_t *frame,
                               void *state)
{
    chain_quantise_state_t *st = state;
    (void)plan;
    SG_TRY(chain_bind(step->post, frame, step->kernel->needs, &st->b));
    SG_TRY(quant_tail_bind(step->tail, frame, step->kernel->needs, &st->tail));
    merge_rows(st);
    st->b.inner_scalar_only = false;
    st->ndims = st->b.ndims;
    st->block = CHAIN_BLOCK / st->tail.cols * st->tail.cols;
    st->serial = chain_shares_bytes(&st->b) || quant_tail_shares_bytes(&st->tail, st->block);
    st->n_tiles = 1;
    for (int d = 0; d < st->ndims; d++) {
        const int64_t tile = tile_size(st, d);
        st->extent[d] = (st->b.dims[d] + tile - 1) / tile;
        st->n_tiles *= st->extent[d];
    }
    return sinter_success;
}

static int ways(const step_t *step, const void *state, way_t *out)
{
    (void)step;
    return serial_way(((const chain_quantise_state_t *)state)->serial, out);
}

static void one_tile(const chain_quantise_state_t *st, const int64_t *at, const buffers_t *b)
{
    const int last = st->ndims - 1;
    int64_t first[SINTER_MAX_NDIMS] = {0}, idx[SINTER_MAX_NDIMS];
    for (int d = 0; d < st->ndims; d++) {
        first[d] = idx[d] = at[d] * tile_size(st, d);
    }
    const int64_t rest = st->b.dims[last] - first[last];
    const int n = rest < st->block ? (int)rest : st->block;
    for (int r = 0; r < st->tail.rows; r++) {
        if (last > 0) {
            idx[last - 1] = first[last - 1] + r;
        }
        chain_run(&st->b, idx, n, b->rows + r * CHAIN_BLOCK, b->chain);
    }
    quant_tail_run(&st->tail, first, n, b->rows, CHAIN_BLOCK, b->tail);
}

static void work(const plan_t *plan, const step_t *step, const frame_t *frame, const void *state,
                 int phase, int tid, int nth, void *scratch, void *shared)
{
    const chain_quantise_state_t *st = state;
    int64_t begin, end, at[SINTER_MAX_NDIMS];
    buffers_t b;
    (void)plan, (void)frame, (void)phase, (void)shared;
    share(st->n_tiles, st->serial ? 0 : tid, st->serial ? 1 : nth, &begin, &end);
    if (begin >= end || (st->serial && tid > 0)) {
        return;
    }
    buffers(step, scratch, &b);
    walk_seek(st->ndims, st->extent, begin, at);
    for (int64_t tile = begin; tile < end; tile++, walk_next(st->ndims, st->extent, at)) {
        one_tile(st, at, &b);
    }
}

static sinter_status_t setup(plan_t *plan, step_t *step)
{
    (void)plan;
    step->state_bytes = sizeof(chain_quantise_state_t);
    step->note =
        step->post->f64 ? "elementwise in f64, whole groups" : "elementwise in f32, whole groups";
    return sinter_success;
}

static const char *refuse(const plan_t *plan, const step_t *step)
{
    (void)plan;
    return step->tail == NULL ? "the step quantises nothing" : NULL;
}

#define CHAIN_QUANTISE                                                                  \
    .step = STEP_CHAIN, .refuse = refuse, .setup = setup, .thread_bytes = thread_bytes, \
    .prepare = prepare, .work = work, .ways = ways, .phases = 1
KERNEL(chain_quantise_f32_avx512, CHAIN_QUANTISE, .needs = {NEEDS_AVX512}, .cost = 200)
KERNEL(chain_quantise_f32_avx2, CHAIN_QUANTISE, .needs = {NEEDS_AVX2}, .cost = 300)
KERNEL(chain_quantise_f32_generic, CHAIN_QUANTISE, .needs = {NEEDS_NOTHING}, .cost = 400)
