/* f(view(x)) = view(f(x)) for elementwise f of one tensor
 *
 *   MatMul -> StaticTranspose -> TypeCast -> Quantize     becomes     MatMul -> TypeCast ->
 *   Quantize -> StaticTranspose
 *
 * so that the elementwise tail of a product runs on its registers and the view is only a matter
 * of where the result is stored. */
#include "base/status.h"
#include "graph/layout.h"
#include "graph/quant.h"
#include "graph/schema.h"
#include "passes/passes.h"

static bool is_view(const node_t *n)
{
    return n->kind == sinter_op_static_reshape || n->kind == sinter_op_static_transpose;
}

static bool is_scalar(const graph_t *g, int v)
{
    return lt_elems(&g->values[v].lt) == 1;
}

/* The op computes each element from one element of in[0], whatever its index. ndims: the lowest
 * rank of in[0]; a scalar of a higher rank would raise it. */
static bool ignores_index(const graph_t *g, const node_t *f, int ndims)
{
    const unsigned flags = op_flags(f->kind);
    if (f->kind == sinter_op_reorder) {
        return !lt_is_opaque(&g->values[f->out[0]].lt);
    }
    if (f->kind == sinter_op_type_cast || (flags & OP_UNARY)) {
        return f->kind != sinter_op_gen_index;
    }
    if (f->kind == sinter_op_quantize || f->kind == sinter_op_dequantize) {
        return f->n_in == 1 && f->quant->type == QUANT_PER_TENSOR;
    }
    return (flags & OP_BINARY) && f->n_in == 2 && is_scalar(g, f->in[1]) &&
           !is_scalar(g, f->in[0]) && g->values[f->in[1]].lt.ndims <= ndims;
}

static bool only_used_here(const graph_t *g, int v)
{
    return g->values[v].n_uses == 1 && !g->values[v].is_output;
}

/* By node: a view that shows the result of an op, not a tensor from outside. NULL: out of
 * memory. */
static bool *views_of_results(graph_t *g)
{
    bool *over = ARENA_NEW(&g->arena, bool, g->n_nodes + 1);
    for (int t = 0; t < graph_n_live(g) && over != NULL; t++) {
        const int node = g->topo[t], p = g->values[g->nodes[node].in[0]].producer;
        over[node] = is_view(&g->nodes[node]) && p >= 0 && (!is_view(&g->nodes[p]) || over[p]);
    }
    return over;
}

/* The op below view that can change places with it, -1 if none. */
static int op_below(const graph_t *g, const node_t *view)
{
    const int v = view->out[0];
    if (!only_used_here(g, v) || !only_used_here(g, view->in[0])) {
        return -1;
    }
    const int f = g->uses[g->uses_begin[v]], above = g->values[view->in[0]].lt.ndims,
              below = g->values[v].lt.ndims;
    return g->nodes[f].in[0] == v && ignores_index(g, &g->nodes[f], above < below ? above : below)
               ? f
               : -1;
}

/* Swaps a view and the op below it. uses[] stays right for op_below: the uses of the result stay
 * its uses. */
static sinter_status_t swap(graph_t *g, int view, int f)
{
    lt_t lt = g->values[g->nodes[view].in[0]].lt;
    lt.data_type = g->values[g->nodes[f].out[0]].lt.data_type;
    lt_set_dense(&lt);
    const int t = graph_add_value(g, &lt);
    if (t < 0) {
        return sinter_out_of_memory;
    }
    const int old = g->nodes[f].in[0], result = g->nodes[f].out[0];
    g->nodes[f].in[0] = g->nodes[view].in[0];
    g->nodes[f].out[0] = t;
    g->nodes[view].in[0] = t;
    g->nodes[view].out[0] = result;
    g->values[t].producer = f;
    g->values[t].n_uses = 1;
    g->values[result].producer = view;
    g->values[old].producer = -1;
    g->values[old].n_uses = 0;
    return sinter_success;
}

sinter_status_t pass_sink_views(graph_t *g)
{
    const bool *over = views_of_results(g);
    if (over == NULL) {
        return sinter_out_of_memory;
    }
    for (int t = graph_n_live(g) - 1; t >= 0; t--) {
        const int view = g->topo[t];
        for (int f; over[view] && (f = op_below(g, &g->nodes[view])) >= 0;) {
            SG_TRY(swap(g, view, f));
        }
    }
    return sinter_success;
}
