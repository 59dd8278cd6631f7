/* ReduceSum and the like. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    const node_t *n = emit_heavy(e, cl);
    const attr_t *axes = node_attr(n, sinter_op_attr_axes);
    if (n->n_in > 1) {
        return sg_fail(sinter_unimplemented, "%s: its axes are a tensor", node_label(n));
    }
    reduce_params_t *p = &step->p.reduce;
    p->x = n->in[0];
    p->kind = axes->n > 0 ? n->kind : sinter_op_reduce_sum; /* without axes: the identity */
    p->axes = axes->s64;
    p->n_axes = (int)axes->n;
    p->keep_dims = node_bool(n, sinter_op_attr_keep_dims, false);
    return emit_result(e, n->out[0], 0);
}

static double work(estimate_t *e, const problem_t *p)
{
    const double n = estimate_elements(p, p->step->p.reduce.x);
    estimate_ops(e, n, 1);
    estimate_chain(e, p, p->step->pre, n);
    return estimate_elements(p, p->step->post->dims_value);
}

const step_ops_t step_reduce = {
    .classes = OP_REDUCE, .takes_chain = true, .emit = emit, .work = work};
