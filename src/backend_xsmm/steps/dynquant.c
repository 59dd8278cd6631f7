/* DynamicQuantize that computes its scales, as a step of its own. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    return emit_dynquant(e->lo, cl->heavy, &step->p.dynquant);
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    see_dynquant(&step->p.dynquant, see, to);
}

static double work(estimate_t *e, const problem_t *p)
{
    const dynquant_params_t *q = &p->step->p.dynquant;
    const double n = estimate_elements(p, q->in);
    estimate_dynquant(e, p, q, n);
    estimate_bytes(e, p, q->in);
    return n;
}

const step_ops_t step_dynquant = {.to_memory = true, .emit = emit, .visit = visit, .work = work};
