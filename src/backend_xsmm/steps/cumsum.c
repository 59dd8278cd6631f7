/* CumSum. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    const node_t *n = emit_heavy(e, cl);
    step->p.cumsum = (cumsum_params_t){.x = n->in[0],
                                       .axis = (int)node_s64(n, sinter_op_attr_axis, -1),
                                       .exclusive = node_bool(n, sinter_op_attr_exclusive, false),
                                       .reverse = node_bool(n, sinter_op_attr_reverse, false)};
    return emit_result(e, n->out[0], 0);
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    see(to, step->p.cumsum.x, STEP_READS);
}

static double work(estimate_t *e, const problem_t *p)
{
    const double n = estimate_elements(p, p->step->p.cumsum.x);
    estimate_ops(e, n, 3);
    return n;
}

const step_ops_t step_cumsum = {
    .classes = OP_CUMSUM, .chains_once = true, .emit = emit, .visit = visit, .work = work};
