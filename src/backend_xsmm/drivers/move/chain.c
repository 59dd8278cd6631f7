/* Elementwise steps: one pass over memory. The iteration space is collapsed, cut into tiles of
 * its last two dims, and the tiles are shared out among the threads. A tile is one run along the
 * last dim; or several, where the runs are short or share scales; or about square, where an
 * operand is contiguous along the dim before (a transposition): each side of it then reads and
 * writes whole cache lines. Chains that only convert a transposed tensor have larger tiles, because
 * memory is slow where short runs lie far apart. */
#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/kernel.h"
#include "base/cpu.h"
#include "base/status.h"
#include "numeric/quant_rows.h"

enum { RUN = 2048, SQUARE = 64, GROUP_ROWS = 4, STREAM_ROWS = 32 };
enum { MANY_TRANSPOSED = 8 << 20 }; /* bytes: larger tensors are transposed in large tiles */

typedef struct chain_state {
    chain_bound_t b;
    bool streams;                              /* some store goes past the caches */
    dtype_stream_t *stream;                    /* not NULL: does it all */
    chain_run_t *run;                          /* else */
    int64_t rows, cols;                        /* of a tile */
    int64_t extent[SINTER_MAX_NDIMS], n_tiles; /* in tiles */
} chain_state_t;

static bool strided_along(const chain_bound_t *b, int d)
{
    for (int i = 0; i < b->chain->n_operands; i++) {
        const int64_t s = b->refs[i].stride[d];
        if (s != 0 && s != 1) {
            return true;
        }
    }
    return false;
}

static bool grouped_along(const chain_bound_t *b, int d)
{
    for (int i = 0; i < b->chain->n_operands; i++) {
        if (b->refs[i].group[d] > 1) {
            return true;
        }
    }
    return false;
}

/* Tiles that are transposed. Where there are few of them, smaller ones are for more threads. */
static void shape_transposed(chain_state_t *st)
{
    const chain_bound_t *b = &st->b;
    const int last = b->ndims - 1, bytes = b->transposed_bytes;
    const int64_t part = b->dims[last] * b->dims[last - 1] * bytes < MANY_TRANSPOSED ? 4 : 1;
    st->cols = at_most(b->dims[last], CHAIN_TRANSPOSE_RUN / part / bytes);
    st->rows = at_most(b->dims[last - 1], CHAIN_TRANSPOSE_ROWS / part);
}

/* Registers hold doubles: tiles are runs. */
static bool in_doubles(const chain_bound_t *b)
{
    return b->chain->f64 && chain_runner(b) != chain_convert_tile;
}

static void shape_tiles(chain_state_t *st)
{
    const chain_bound_t *b = &st->b;
    const int last = b->ndims - 1;
    if (b->transposed_bytes > 0) {
        shape_transposed(st);
        return;
    }
    st->rows = 1;
    const bool doubles = in_doubles(b);
    st->cols = last < 0 ? 1 : at_most(b->dims[last], doubles ? CHAIN_LONG : RUN);
    if (doubles || b->ndims < 2 || st->cols == 0) {
        return;
    }
    if (strided_along(b, last)) {
        st->cols = at_most(b->dims[last], SQUARE);
        st->rows = at_most(b->dims[last - 1], (st->cols < SQUARE ? RUN : CHAIN_TILE) / st->cols);
    } else if (st->cols < RUN / 2) {
        st->rows = at_most(b->dims[last - 1], RUN / st->cols);
    } else if (grouped_along(b, last - 1)) {
        st->rows = at_most(b->dims[last - 1], at_most(CHAIN_TILE / st->cols, GROUP_ROWS));
    }
}

enum {
    CONVERTED_PAST_CACHES,
    TRANSPOSED,
    IN_ONE_LOOP,
    PAST_CACHES,
    IN_SQUARES,
    ONE_BY_ONE,
    IN_RUNS
};

static const char *refuse_tiles(int way, const void *config, void *state)
{
    const chain_state_t *st = state;
    const bool strided = st->b.ndims > 1 && strided_along(&st->b, st->b.ndims - 1);
    (void)config;
    const bool takes[] = {
        [CONVERTED_PAST_CACHES] = st->stream != NULL,  [TRANSPOSED] = st->b.transposed_bytes > 0,
        [IN_ONE_LOOP] = st->run == chain_convert_tile, [PAST_CACHES] = st->streams,
        [IN_SQUARES] = strided && !in_doubles(&st->b), [ONE_BY_ONE] = strided};
    return takes[way]                     ? NULL
           : way == PAST_CACHES           ? "what is written may stay in the caches"
           : way == IN_SQUARES && strided ? "registers hold doubles"
                                          : "";
}

const way_row_t ways_chain_tiles[] = {
    {"conversion past the caches", refuse_tiles, CONVERTED_PAST_CACHES},
    {"transposed tiles", refuse_tiles, TRANSPOSED},
    {"conversion in one loop", refuse_tiles, IN_ONE_LOOP},
    {"tiles past the caches", refuse_tiles, PAST_CACHES},
    {"square tiles", refuse_tiles, IN_SQUARES},
    {"elements one by one", refuse_tiles, ONE_BY_ONE},
    {"runs", NULL, IN_RUNS}};

/* Tiles that are larger than registers, whose scales are loaded once for all rows. */
static void choose_direct(chain_state_t *st, features_t features)
{
    const chain_bound_t *b = &st->b;
    const bool native_bf16 = has_features(features, NEEDS_AVX512_BF16);
    st->run = b->transposed_bytes > 0 ? chain_transpose_tile : chain_runner(b);
    st->stream = st->streams && !b->chain->f64 ? chain_stream(b, native_bf16) : NULL;
    if (st->stream != NULL) {
        st->cols = at_most(b->dims[b->ndims - 1], CHAIN_TILE);
        st->rows = b->ndims > 1 ? at_most(b->dims[b->ndims - 2], STREAM_ROWS) : 1;
    }
}

static sinter_status_t choose(const kernel_t *self, const problem_t *p, const void *config,
                              void *state, choice_t *choice)
{
    chain_state_t *st = state;
    (void)config;
    SG_TRY(chain_bind(p->step->post, p->frame, self->needs, &st->b));
    chain_collapse(&st->b);
    choice->shares_bytes = chain_shares_bytes(&st->b);
    chain_find_transposition(&st->b);
    shape_tiles(st);
    st->streams = chain_choose_stores(&st->b, st->rows, st->cols, 0, p->plan->cache_bytes);
    choose_direct(st, p->plan->features);
    st->n_tiles = 1;
    for (int d = 0; d < st->b.ndims; d++) {
        const int64_t tile = d == st->b.ndims - 1 ? st->cols : d == st->b.ndims - 2 ? st->rows : 1;
        st->extent[d] = tile == 0 ? 0 : (st->b.dims[d] + tile - 1) / tile;
        st->n_tiles *= st->extent[d];
    }
    take_way(ways_chain_tiles, NULL, NULL, st, choice);
    return sinter_success;
}

static void work(const kernel_t *self, const problem_t *p, const void *config, const void *state,
                 const worker_t *w)
{
    const chain_state_t *st = state;
    const int n = st->b.ndims;
    int64_t begin, end, at[SINTER_MAX_NDIMS] = {0}, idx[SINTER_MAX_NDIMS] = {0};
    (void)self, (void)p, (void)config;
    share(st->n_tiles, w->tid, w->nth, &begin, &end);
    if (begin >= end) {
        return;
    }
    walk_seek(n, st->extent, begin, at);
    for (int64_t tile = begin; tile < end; tile++, walk_next(n, st->extent, at)) {
        int64_t rows = 1, cols = 1;
        for (int d = 0; d < n; d++) {
            idx[d] = at[d] * (d == n - 1 ? st->cols : d == n - 2 ? st->rows : 1);
        }
        if (n > 0) {
            cols = at_most(st->b.dims[n - 1] - idx[n - 1], st->cols);
        }
        if (n > 1) {
            rows = at_most(st->b.dims[n - 2] - idx[n - 2], st->rows);
        }
        if (st->stream != NULL) {
            chain_stream_tile(&st->b, st->stream, idx, (int)rows, (int)cols, w->scratch);
        } else {
            st->run(&st->b, idx, (int)rows, (int)cols, w->scratch);
        }
    }
    if (st->streams) {
        st->b.quant->stream_end();
    }
}

/* Names a function that the C library computes for each element. */
static const char *note_of_doubles(const kernel_t *self, const chain_t *chain, arena_t *arena)
{
    const char *by_element = NULL;
    for (int i = 0; i < chain->n_instrs && by_element == NULL; i++) {
        const chain_instr_t *in = &chain->instrs[i];
        if (in->op < CHAIN_LOAD) {
            by_element =
                eltwise_f64_by_element(eltwise_f64(self->needs), op_of_slot(in->op), in->pd[0]);
        }
    }
    textbuf_t note;
    text_init(&note, arena);
    text_add(&note, "elementwise in f64, runs of 1024");
    if (by_element != NULL) {
        text_add(&note, ", %s by the C library, element by element", by_element);
    }
    return note.oom ? NULL : note.text;
}

static sinter_status_t setup(const kernel_t *self, const problem_t *p, arena_t *arena,
                             candidate_t *out)
{
    out->state_bytes = sizeof(chain_state_t);
    out->share_bytes = chain_tile_scratch_bytes(p->step->post);
    if (out->share_bytes < chain_transpose_scratch_bytes() && chain_converts(p->step->post)) {
        out->share_bytes = chain_transpose_scratch_bytes();
    }
    out->note = p->step->post->words  ? "elementwise in s32, tiles of up to 4096"
                : !p->step->post->f64 ? "elementwise in f32, tiles of up to 4096"
                                      : note_of_doubles(self, p->step->post, arena);
    return out->note != NULL ? sinter_success : sinter_out_of_memory;
}

static const char *refuse(const kernel_t *self, const problem_t *p)
{
    const bool f64 = self->driver->arithmetic == IN_F64;
    if (p->step->tail != NULL) {
        return "the step quantises its results";
    }
    return p->step->post->f64 == f64 ? NULL
           : f64                     ? "no tensor of the chain needs double precision"
                                     : "a tensor of the chain needs double precision";
}

#define CHAIN_RUNS                                                                       \
    .step = STEP_CHAIN, .phases = 1, .refuse = refuse, .setup = setup, .choose = choose, \
    .work = work
const driver_t driver_chain_runs = {CHAIN_RUNS, .arithmetic = IN_F32};
const driver_t driver_chain_runs_f64 = {CHAIN_RUNS, .arithmetic = IN_F64};
