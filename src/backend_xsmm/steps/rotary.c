/* RotaryEmbedding, HadamardTransform, and the second behind the first. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    const graph_t *g = e->lo->g;
    const node_t *last = &g->nodes[cl->heavy], *n = cl->turn >= 0 ? &g->nodes[cl->turn] : last;
    rotary_params_t *p = &step->p.rotary;
    *p = (rotary_params_t){.x = last->out[0],
                           .cosines = -1,
                           .sines = -1,
                           .positions = -1,
                           .hadamard = last->kind == sinter_op_hadamard_transform,
                           .block = node_s64(last, sinter_op_attr_block_size, 0)};
    if (n->kind == sinter_op_hadamard_transform) {
        return emit_result(e, last->out[0], 0);
    }
    const bool frequencies = !dtype_is_float(g->values[n->in[2]].lt.data_type);
    p->cosines = n->in[1];
    p->sines = frequencies ? -1 : n->in[2];
    p->positions = frequencies ? n->in[2] : n->n_in > 3 ? n->in[3] : -1;
    p->dim = (int)node_s64(n, sinter_op_attr_rotary_embedding_dim, 0);
    p->heads = (int)node_s64(n, sinter_op_attr_num_heads, 0);
    p->interleaved = node_bool(n, sinter_op_attr_interleaved, false);
    p->scale = node_f32(n, sinter_op_attr_scale, 1);
    if (p->positions >= 0 && g->values[p->positions].producer >= 0) {
        return sg_fail(sinter_unimplemented, "%s: its positions are computed in the same partition",
                       node_label(n));
    }
    return emit_result(e, last->out[0], 0);
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    see(to, step->p.rotary.cosines, STEP_READS);
    see(to, step->p.rotary.sines, STEP_READS);
    see(to, step->p.rotary.positions, STEP_READS);
}

static double work(estimate_t *e, const problem_t *p)
{
    const double n = estimate_elements(p, p->step->p.rotary.x);
    estimate_ops(e, n, p->step->p.rotary.hadamard ? 6 : 3);
    estimate_chain(e, p, p->step->pre, n);
    return n;
}

/* A rotary embedding transforms the rows that it has turned, if nobody else reads them. */
static bool joins(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const value_t *x = &lo->g->values[n->in[0]];
    const int ci = n->kind == sinter_op_hadamard_transform ? lo->home[n->in[0]] : -1;
    cluster_t *cl = ci >= 0 ? &lo->clusters[ci] : NULL;
    if (cl == NULL || cl->heavy < 0 || cl->heavy != x->producer ||
        lo->g->nodes[cl->heavy].kind != sinter_op_rotary_embedding || cl->n_nodes > 0 ||
        x->n_uses != 1 || x->is_output) {
        return false;
    }
    cl->turn = cl->heavy;
    cl->heavy = node;
    cl->dims_value = n->out[0];
    lo->home[n->in[0]] = -1;
    lo->home[n->out[0]] = lo->ready[n->out[0]] = ci;
    return true;
}

static sinter_status_t gather(lowering_t *lo, int node)
{
    return joins(lo, node) ? sinter_success : lower_heavy(lo, node, STEP_ROTARY);
}

const step_ops_t step_rotary = {.classes = OP_ROTARY,
                                .takes_chain = true,
                                .chains_once = true,
                                .gather = gather,
                                .emit = emit,
                                .visit = visit,
                                .work = work,
                                .refuse_tail = refuse_tail_of_rows};
