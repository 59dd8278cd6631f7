/* ScatterRows. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/steps/indexed.h"

static void visit(const step_t *step, step_see_t see, void *to)
{
    see(to, step->p.index.data, STEP_READS | STEP_IN_PLACE);
    see(to, step->p.index.indices, STEP_READS);
    see(to, step->p.index.updates, STEP_READS);
    see(to, step->p.index.out, STEP_WRITES | STEP_IN_PLACE);
}

/* Each row is read and written. That is so where the data is the output, as it should be. */
static double work(estimate_t *e, const problem_t *p)
{
    estimate_bytes(e, p, p->step->p.index.updates);
    estimate_bytes(e, p, p->step->p.index.updates);
    return 0;
}

const step_ops_t step_scatter = {
    .classes = OP_SCATTER, .to_memory = true, .emit = indexed_emit, .visit = visit, .work = work};
