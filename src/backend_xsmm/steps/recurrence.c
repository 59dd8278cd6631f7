/* LinearAttention. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"
#include "graph/linear_attention.h"

static int input(const node_t *n, int port)
{
    return port >= 0 ? n->in[port] : -1;
}

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    const node_t *n = emit_heavy(e, cl);
    const linear_ports_t p = linear_ports(n);
    step->p.linear = (linear_attention_params_t){
        .q = n->in[0],
        .k = n->in[1],
        .v = n->in[2],
        .state = n->in[3],
        .decay = input(n, p.decay),
        .beta = input(n, p.beta),
        .bonus = input(n, p.bonus),
        .a = input(n, p.a),
        .b = input(n, p.b),
        .from = input(n, p.from),
        .to = input(n, p.to),
        .out = n->out[0],
        .next = n->out[1],
        .interleaved = node_bool(n, sinter_op_attr_interleaved, true),
        .log_decay = node_bool(n, sinter_op_attr_log_decay, true),
        .scale = node_f32(n, sinter_op_attr_scale, 1),
    };
    return sinter_success;
}

/* A share does the same heads and columns of all states, in an order in which none is written that
 * is still to be read. */
static void visit(const step_t *step, step_see_t see, void *to)
{
    const linear_attention_params_t *p = &step->p.linear;
    see(to, p->q, STEP_READS);
    see(to, p->k, STEP_READS);
    see(to, p->v, STEP_READS);
    see(to, p->state, STEP_READS | STEP_IN_PLACE);
    see(to, p->decay, STEP_READS);
    see(to, p->beta, STEP_READS);
    see(to, p->bonus, STEP_READS);
    see(to, p->a, STEP_READS);
    see(to, p->b, STEP_READS);
    see(to, p->from, STEP_READS);
    see(to, p->to, STEP_READS);
    see(to, p->out, STEP_WRITES);
    see(to, p->next, STEP_WRITES | STEP_IN_PLACE);
}

/* Each token has four operations with each element of its states, or six with a and b; each state
 * is read and written once. */
static double work(estimate_t *e, const problem_t *p)
{
    const linear_attention_params_t *l = &p->step->p.linear;
    const int64_t keys = problem_dim(p, l->q, 1);
    const double values = estimate_elements(p, l->v),
                 states = problem_dim(p, l->v, 4) < 0 || problem_dim(p, l->v, 2) < 0 || keys < 0 ||
                                  problem_dim(p, l->v, 1) < 0
                              ? -1
                              : 1e-3 * (double)problem_dim(p, l->v, 4) *
                                    (double)problem_dim(p, l->v, 2) * (double)keys *
                                    (double)problem_dim(p, l->v, 1);
    const double bytes = dtype_traits(problem_type(p, l->state))->bits / 8.0;
    estimate_ops(e, states < 0 ? -1 : 2 * states * bytes, 1);
    estimate_products(e, values, keys < 0 ? -1 : (l->b < 0 ? 4.0 : 6.0) * (double)keys,
                      (estimate_t){0});
    return 0;
}

const step_ops_t step_recurrence = {
    .classes = OP_LINEAR_ATTENTION, .to_memory = true, .emit = emit, .visit = visit, .work = work};
