/* LayerNorm, RMSNorm and GroupNorm. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"
#include "graph/shape.h"

/* The chain that follows the norm begins with its gamma and beta. */
static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    lowering_t *lo = e->lo;
    const node_t *n = emit_heavy(e, cl);
    const bool groups = n->kind == sinter_op_group_norm;
    const int channel = groups ? shape_channel_dim(n, &lo->probe[n->in[0]]) : 0;
    norm_params_t *p = &step->p.norm;
    p->x = n->out[0];
    p->mean = n->n_out > 1 ? n->out[1] : -1;
    p->variance = n->n_out > 2 ? n->out[2] : -1;
    p->begin_axis = (int)node_s64(n, sinter_op_attr_begin_norm_axis, -1);
    p->channel = channel;
    p->groups = node_s64(n, sinter_op_attr_groups, 1);
    p->centered = n->kind != sinter_op_rms_norm;
    p->epsilon = node_f32(n, sinter_op_attr_epsilon, 1e-5f);
    int y = 0;
    for (int i = 1; i < n->n_in && y >= 0; i++) {
        const node_t op = {.kind = i == 1 ? sinter_op_multiply : sinter_op_add, .n_in = 2};
        int8_t map[SINTER_MAX_NDIMS];
        for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
            map[d] = (int8_t)(d == channel ? 0 : -1);
        }
        emit_note_type(e, n->in[i]);
        const int param = groups ? chain_load_mapped(&e->b, n->in[i], map)
                                 : chain_load(&e->b, n->in[i], lo->probe[n->in[i]].ndims);
        y = param < 0 ? -1 : chain_op(&e->b, &op, (int[]){y, param}, 2);
    }
    return emit_result(e, n->out[0], y);
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    see(to, step->p.norm.mean, STEP_WRITES);
    see(to, step->p.norm.variance, STEP_WRITES);
}

static double work(estimate_t *e, const problem_t *p)
{
    const double n = estimate_elements(p, p->step->p.norm.x);
    estimate_ops(e, n, 3);
    estimate_chain(e, p, p->step->pre, n);
    return n;
}

/* Rows of groups of channels that share the last dim of the result must hold whole groups. */
static const char *refuse_tail(const tail_groups_t *t)
{
    const int last = t->data->ndims - 1;
    const bool parts =
        t->heavy->kind == sinter_op_group_norm && shape_channel_dim(t->heavy, t->data) == last;
    const int64_t n = parts ? node_s64(t->heavy, sinter_op_attr_groups, 1) : 1;
    if (n > 1 &&
        (t->data->dims[last] == SINTER_UNKNOWN_DIM || t->data->dims[last] / n % t->columns != 0)) {
        return "groups of columns reach over rows of the step";
    }
    return refuse_tail_of_rows(t);
}

const step_ops_t step_norm = {.classes = OP_NORM,
                              .takes_chain = true,
                              .chains_once = true,
                              .emit = emit,
                              .visit = visit,
                              .work = work,
                              .refuse_tail = refuse_tail};
