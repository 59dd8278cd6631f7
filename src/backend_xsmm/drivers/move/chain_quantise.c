/* Elementwise steps with a quantising tail: one pass over memory. A tile is as many rows as a
 * group of the tail has, and at most CHAIN_BLOCK columns, whole groups; its results are
 * quantised before the next tile is computed. */
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/drivers/common/quant_tail.h"
#include "backend_xsmm/kernel.h"
#include "base/status.h"

enum { MOST_ROWS = TAIL_CHAIN_ROWS };

typedef struct chain_quantise_state {
    chain_bound_t b;
    quant_tail_t tail;
    int block;                                 /* columns of a tile */
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
    return d == st->b.ndims - 1 ? st->block : d == st->b.ndims - 2 ? st->tail.rows : 1;
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    chain_quantise_state_t *st = state;
    (void)config;
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &st->b));
    SG_TRY(quant_tail_bind(p->step->tail, p->frame, self->needs, &st->tail));
    merge_rows(st);
    st->block = CHAIN_BLOCK / st->tail.cols * st->tail.cols;
    choice->shares_bytes =
        chain_shares_bytes(&st->b) || quant_tail_shares_bytes(&st->tail, st->block);
    st->n_tiles = 1;
    for (int d = 0; d < st->b.ndims; d++) {
        const int64_t tile = tile_size(st, d);
        st->extent[d] = (st->b.dims[d] + tile - 1) / tile;
        st->n_tiles *= st->extent[d];
    }
    return sinter_success;
}

static sinter_status_t start(const kernel_t *self, const problem_t *p, const void *config,
                             void *state)
{
    chain_quantise_state_t *st = state;
    (void)self, (void)config;
    quant_tail_start(p->step->tail, p->frame, &st->tail);
    return sinter_success;
}

static void one_tile(const chain_quantise_state_t *st, const int64_t *at, const buffers_t *b)
{
    const int last = st->b.ndims - 1;
    int64_t first[SINTER_MAX_NDIMS] = {0}, idx[SINTER_MAX_NDIMS];
    for (int d = 0; d < st->b.ndims; d++) {
        first[d] = idx[d] = at[d] * tile_size(st, d);
    }
    const int64_t rest = st->b.dims[last] - first[last];
    const int n = rest < st->block ? (int)rest : st->block;
    const int rows =
        last > 0 ? (int)at_most(st->b.dims[last - 1] - first[last - 1], st->tail.rows) : 1;
    for (int r = 0; r < rows; r++) {
        if (last > 0) {
            idx[last - 1] = first[last - 1] + r;
        }
        chain_run(&st->b, idx, n, b->rows + r * CHAIN_BLOCK, b->chain);
    }
    quant_tail_run(&st->tail, first, rows, n, b->rows, CHAIN_BLOCK, b->tail);
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const chain_quantise_state_t *st = state;
    int64_t begin, end, at[SINTER_MAX_NDIMS];
    buffers_t b;
    (void)self, (void)config;
    share(st->n_tiles, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    buffers(p->step, w->scratch, &b);
    walk_seek(st->b.ndims, st->extent, begin, at);
    for (int64_t tile = begin; tile < end; tile++, walk_next(st->b.ndims, st->extent, at)) {
        one_tile(st, at, &b);
    }
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    buffers_t b;
    (void)self, (void)arena;
    out->state_bytes = sizeof(chain_quantise_state_t);
    out->share_bytes = buffers(p->step, NULL, &b);
    out->note = p->step->post->f64 ? "elementwise in f64, whole groups"
                                   : "elementwise in f32, whole groups";
    return sinter_success;
}

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    (void)self;
    return p->step->tail == NULL ? "the step quantises nothing" : NULL;
}

const driver_t driver_chain_quantise = {.step = STEP_CHAIN,
                                        .arithmetic = IN_F32,
                                        .phases = 1,
                                        .refuse = refuse,
                                        .setup = setup,
                                        .choose = choose,
                                        .start = start,
                                        .work = work};
