/* Elementwise steps: one pass over memory. The iteration space is collapsed, cut into runs of CHAIN_BLOCK elements along
 * its last dim, and the runs are shared out among the threads.
 *
 * Where an operand is not contiguous along the last dim (a transposition), the dim before it moves faster than the
 * blocks: a block of cache lines that one run touches is then used up by the next runs. */
#include "../chain.h"
#include "../../graph/status.h"
#include "../kernel.h"
#include "chain_walk.h"

enum { MAX_WALK = SINTER_MAX_NDIMS + 1 };

typedef struct chain_state {
    chain_bound_t b;
    bool serial;                      /* stores share bytes: one thread does it all */
    int n_walk, walk[MAX_WALK];       /* dims in the order in which they move, the last one fastest */
    int64_t extent[MAX_WALK], n_runs; /* by walk; the last dim counts in blocks */
} chain_state_t;

static bool strided_inside(const chain_bound_t *b)
{
    for (int i = 0; i < b->chain->n_operands; i++) {
        const int64_t s = b->refs[i].stride[b->ndims - 1];
        if (s != 0 && s != 1) {
            return true;
        }
    }
    return false;
}

static void plan_walk(chain_state_t *st)
{
    const chain_bound_t *b = &st->b;
    st->n_runs = 1;
    st->n_walk = b->ndims;
    for (int d = 0; d < b->ndims; d++) {
        st->walk[d] = d;
    }
    if (b->ndims > 1 && strided_inside(b)) {
        st->walk[b->ndims - 1] = b->ndims - 2;
        st->walk[b->ndims - 2] = b->ndims - 1;
    }
    for (int k = 0; k < st->n_walk; k++) {
        const int64_t n = b->dims[st->walk[k]];
        st->extent[k] = st->walk[k] == b->ndims - 1 ? (n + CHAIN_BLOCK - 1) / CHAIN_BLOCK : n;
        st->n_runs *= st->extent[k];
    }
}

static sinter_status_t prepare(const plan_t *plan, const step_t *step, const frame_t *frame, void *state)
{
    chain_state_t *st = state;
    (void)plan;
    SG_TRY(chain_bind(step->post, frame, step->kernel->isa, &st->b));
    chain_collapse(&st->b);
    st->serial = chain_shares_bytes(&st->b);
    plan_walk(st);
    return sinter_success;
}

static void work(const plan_t *plan, const step_t *step, const frame_t *frame, const void *state, int phase, int tid, int nth,
                 void *scratch, void *shared)
{
    const chain_state_t *st = state;
    const int inner = st->b.ndims - 1;
    int64_t begin, end, at[MAX_WALK], idx[MAX_WALK] = {0};
    (void)plan, (void)step, (void)frame, (void)phase, (void)shared;
    share(st->n_runs, st->serial ? 0 : tid, st->serial ? 1 : nth, &begin, &end);
    if (begin >= end || (st->serial && tid > 0)) {
        return;
    }
    walk_seek(st->n_walk, st->extent, begin, at);
    for (int64_t run = begin; run < end; run++, walk_next(st->n_walk, st->extent, at)) {
        int n = 1;
        for (int k = 0; k < st->n_walk; k++) {
            idx[st->walk[k]] = st->walk[k] == inner ? at[k] * CHAIN_BLOCK : at[k];
        }
        if (inner >= 0) {
            const int64_t rest = st->b.dims[inner] - idx[inner];
            n = rest < CHAIN_BLOCK ? (int)rest : CHAIN_BLOCK;
        }
        chain_run(&st->b, idx, n, NULL, scratch);
    }
}

static size_t thread_bytes(const plan_t *plan, const step_t *step)
{
    (void)plan;
    return chain_scratch_bytes(step->post);
}

static sinter_status_t setup(plan_t *plan, step_t *step)
{
    (void)plan;
    step->state_bytes = sizeof(chain_state_t);
    step->note = step->post->f64 ? "elementwise in f64, runs of 256" : "elementwise in f32, runs of 256";
    return sinter_success;
}

static const char *refuse_f64(const plan_t *plan, const step_t *step)
{
    (void)plan;
    return step->post->f64 ? "a tensor of the chain needs double precision" : NULL;
}

static const char *refuse_f32(const plan_t *plan, const step_t *step)
{
    (void)plan;
    return step->post->f64 ? NULL : "no tensor of the chain needs double precision";
}

#define CHAIN .step = STEP_CHAIN, .setup = setup, .thread_bytes = thread_bytes, .prepare = prepare, .work = work, .phases = 1
KERNEL(chain_runs_f32_avx512, CHAIN, .isa = sinter_isa_avx512, .cost = 200, .refuse = refuse_f64)
KERNEL(chain_runs_f32_avx2, CHAIN, .isa = sinter_isa_avx2, .cost = 300, .refuse = refuse_f64)
KERNEL(chain_runs_f32_generic, CHAIN, .isa = sinter_isa_generic, .cost = 400, .refuse = refuse_f64)
KERNEL(chain_runs_f64_generic, CHAIN, .isa = sinter_isa_generic, .cost = 400, .refuse = refuse_f32)
