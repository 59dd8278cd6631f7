/* Attention: Q K^T, a chain, SoftMax, a chain, times V. */
#include "backend_xsmm/drivers/common/quant_tail.h"
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

static sinter_status_t emit_inner(emitter_t *e, step_t *step)
{
    lowering_t *lo = e->lo;
    const node_t *qk = &lo->g->nodes[lo->att.qk], *sm = &lo->g->nodes[lo->att.softmax],
                 *pv = &lo->g->nodes[lo->att.pv];
    attention_params_t *p = &step->p.attention;
    SG_TRY(emit_operand(lo, qk, 0, &p->q));
    SG_TRY(emit_operand(lo, qk, 1, &p->k));
    SG_TRY(emit_operand(lo, pv, 1, &p->v));
    p->trans_q = node_bool(qk, sinter_op_attr_transpose_a, false);
    p->trans_k = node_bool(qk, sinter_op_attr_transpose_b, false);
    p->trans_v = node_bool(pv, sinter_op_attr_transpose_b, false);
    SG_TRY(emit_part(e, &lo->att.score, qk->out[0], sm->in[0], &p->score));
    SG_TRY(emit_part(e, &lo->att.prob, sm->out[0], pv->in[0], &p->prob));
    p->score_dims = sm->in[0];
    p->out_dims = pv->out[0];
    p->stats = sm->n_out > 1 ? sm->out[1] : -1;
    p->sink = softmax_sink(sm);
    p->inf_as_zero = softmax_inf_as_zero(sm);
    const int bare = lower_mask_limits(lo, p);
    if (bare >= 0) {
        SG_TRY(emit_part(e, &lo->att.score, qk->out[0], bare, &p->bare));
    }
    const sinter_fpmath_mode_t k_mode = emit_mode(lo, qk), v_mode = emit_mode(lo, pv);
    step->mode = k_mode == v_mode ? k_mode : sinter_fpmath_mode_strict;
    return sinter_success;
}

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    (void)step;
    return emit_result(e, emit_heavy(e, cl)->out[0], 0);
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    const attention_params_t *p = &step->p.attention;
    see_operand(&p->q, STEP_READS, see, to);
    see_operand(&p->k, STEP_READS, see, to);
    see_operand(&p->v, STEP_READS, see, to);
    see_chain(p->score, see, to);
    see_chain(p->prob, see, to);
    see(to, p->stats, STEP_WRITES);
    see(to, p->sink, STEP_READS);
}

static double work(estimate_t *e, const problem_t *p)
{
    const attention_params_t *a = &p->step->p.attention;
    const double scores = estimate_elements(p, a->score_dims);
    const int64_t d = problem_dim(p, a->q.data, a->trans_q ? 2 : 1),
                  dv = problem_dim(p, a->out_dims, 1);
    estimate_t operands = {0};
    estimate_operand(&operands, p, &a->q);
    estimate_operand(&operands, p, &a->k);
    estimate_operand(&operands, p, &a->v);
    estimate_products(e, scores, d < 0 || dv < 0 ? -1 : (double)(d + dv), operands);
    estimate_exps(e, scores);
    estimate_chain(e, p, a->score, scores);
    estimate_chain(e, p, a->prob, scores);
    return estimate_elements(p, a->out_dims);
}

static const char *refuse_tail(const tail_groups_t *t)
{
    const int64_t chunk = TAIL_ATTENTION_COLUMNS, n = t->data->dims[t->data->ndims - 1];
    return t->rows > 1 ? "rows of attention are computed in an order of their own"
           : (n >= 0 && n <= chunk) || chunk % t->columns == 0
               ? NULL
               : "groups of columns reach over chunks of the head";
}

const step_ops_t step_attention = {.chains_once = true,
                                   .products = true,
                                   .emit = emit,
                                   .emit_inner = emit_inner,
                                   .visit = visit,
                                   .work = work,
                                   .refuse_tail = refuse_tail};
