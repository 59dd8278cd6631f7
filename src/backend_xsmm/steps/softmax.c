/* SoftMax and LogSoftmax. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    lowering_t *lo = e->lo;
    const node_t *n = emit_heavy(e, cl);
    const int ndims = lo->probe[n->in[0]].ndims;
    int64_t axis = node_s64(n, sinter_op_attr_axis, n->kind == sinter_op_log_softmax ? -1 : 1);
    axis = axis < 0 ? axis + ndims : axis;
    if (axis < 0 || axis >= ndims) {
        return sg_fail(sinter_invalid_shape, "%s: axis is outside the tensor's %d dims",
                       node_label(n), ndims);
    }
    step->p.softmax = (softmax_params_t){.in = n->in[0],
                                         .stats = n->n_out > 1 ? n->out[1] : -1,
                                         .sink = softmax_sink(n),
                                         .axis = (int)axis,
                                         .inf_as_zero = softmax_inf_as_zero(n),
                                         .log = n->kind == sinter_op_log_softmax};
    emit_set_reg(e, n->out[0], 0);
    return sinter_success;
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    const softmax_params_t *p = &step->p.softmax;
    /* A row, or a block of columns, is read in the thread that writes it: the last time just before
     * it is written. */
    see(to, p->in, STEP_READS | STEP_IN_PLACE);
    see(to, p->stats, STEP_WRITES);
    see(to, p->sink, STEP_READS);
}

static double work(estimate_t *e, const problem_t *p)
{
    const int in = p->step->p.softmax.in;
    const double n = estimate_elements(p, in);
    estimate_exps(e, n);
    estimate_bytes(e, p, in);
    return n;
}

const step_ops_t step_softmax = {.classes = OP_SOFTMAX | OP_LOG_SOFTMAX,
                                 .chains_once = true,
                                 .emit = emit,
                                 .visit = visit,
                                 .work = work};
