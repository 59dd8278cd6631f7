/* TopK. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    const node_t *n = emit_heavy(e, cl);
    step->p.top_k = (top_k_params_t){.in = n->in[0],
                                     .values = n->out[0],
                                     .indices = n->out[1],
                                     .axis = (int)node_s64(n, sinter_op_attr_axis, -1),
                                     .largest = node_bool(n, sinter_op_attr_largest, true)};
    return sinter_success;
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    see(to, step->p.top_k.in, STEP_READS);
    see(to, step->p.top_k.values, STEP_WRITES);
    see(to, step->p.top_k.indices, STEP_WRITES);
}

static double work(estimate_t *e, const problem_t *p)
{
    estimate_ops(e, estimate_elements(p, p->step->p.top_k.in), 5);
    estimate_ops(e, estimate_elements(p, p->step->p.top_k.values), 100); /* many are sorted */
    return 0;
}

const step_ops_t step_topk = {
    .classes = OP_TOP_K, .to_memory = true, .emit = emit, .visit = visit, .work = work};
