#include "graph/experts.h"

#include "graph/layout.h"
#include "graph/quant.h"
#include "graph/schema.h"

enum { TABLE_DIMS = 3 };

/* The Gather from a table of matrices that comes from outside, of which `value` is the result.
 * NULL: there is none, or others read the result. */
static const node_t *gather_of(const graph_t *g, int value)
{
    const int p = g->values[value].producer;
    const node_t *n = p < 0 ? NULL : &g->nodes[p];
    if (n == NULL || n->kind != sinter_op_gather || g->values[value].n_uses != 1 ||
        g->values[value].is_output) {
        return NULL;
    }
    const value_t *table = &g->values[n->in[0]];
    const int64_t axis = node_s64(n, sinter_op_attr_axis, 0);
    return table->lt.ndims == TABLE_DIMS && table->producer < 0 &&
                   (axis == 0 || axis == -TABLE_DIMS)
               ? n
               : NULL;
}

/* The dequantisation of what a port of a node reads, which rides on that port or alone stands
 * before it; NULL: there is none. */
static const node_t *dequant_of(const graph_t *g, const node_t *n, int port)
{
    const int v = n->in[port], p = g->values[v].producer;
    if (n->in_dequant != NULL && n->in_dequant[port] != NULL) {
        return n->in_dequant[port];
    }
    return p >= 0 && g->nodes[p].kind == sinter_op_dynamic_dequantize && g->values[v].n_uses == 1 &&
                   !g->values[v].is_output
               ? &g->nodes[p]
               : NULL;
}

static bool is_taken_by(const graph_t *g, int value, int indices)
{
    const node_t *n = gather_of(g, value);
    return n != NULL && n->in[1] == indices;
}

/* Scales, zero points or offsets come from tables by the same indices. Those that are codes
 * themselves do so in tiles only, as do what these are multiplied with. */
static bool values_are_taken_by(const graph_t *g, const node_t *dq, int port, int indices)
{
    const node_t *inner = dequant_of(g, dq, port);
    if (inner == NULL) {
        return is_taken_by(g, dq->in[port], indices);
    }
    bool both = inner->n_in == 2;
    for (int i = 0; i < 2 && both; i++) {
        both = is_taken_by(g, inner->in[i], indices) &&
               lt_is_opaque(&g->values[graph_table_of_experts(g, inner->in[i])].lt);
    }
    return both;
}

int graph_experts(const graph_t *g, const node_t *matmul)
{
    if (matmul->kind != sinter_op_matmul) {
        return -1;
    }
    const node_t *dq = dequant_of(g, matmul, 1),
                 *codes = gather_of(g, dq != NULL ? dq->in[0] : matmul->in[1]);
    const lt_t *x = &g->values[matmul->in[0]].lt, *y = &g->values[matmul->out[0]].lt;
    if (codes == NULL || x->ndims < 2 || x->dims[x->ndims - 2] != 1 ||
        node_bool(matmul, sinter_op_attr_transpose_a, false)) {
        return -1;
    }
    const int indices = codes->in[1], ndims = g->values[indices].lt.ndims;
    bool same = ndims >= 1 && y->ndims == ndims + 2 &&
                (dq == NULL || quant_split_of(dq) == sinter_data_type_undef);
    for (int i = 1; dq != NULL && i < dq->n_in && same; i++) {
        same = values_are_taken_by(g, dq, i, indices);
    }
    return same ? indices : -1;
}

int graph_table_of_experts(const graph_t *g, int value)
{
    return g->nodes[g->values[value].producer].in[0];
}

const node_t *graph_product_of_experts(const graph_t *g, const node_t *gather)
{
    const int v = gather->out[0];
    if (gather->kind != sinter_op_gather || g->values[v].n_uses != 1) {
        return NULL;
    }
    const node_t *user = &g->nodes[g->uses[g->uses_begin[v]]];
    while (user->kind == sinter_op_dynamic_dequantize && g->values[user->out[0]].n_uses == 1) {
        user = &g->nodes[g->uses[g->uses_begin[user->out[0]]]];
    }
    return graph_experts(g, user) >= 0 ? user : NULL;
}

/* Counted from the front; -1: the rank is not known. */
static int axis_of(const node_t *n, int64_t otherwise, const lt_t *lt)
{
    const int64_t axis = node_s64(n, sinter_op_attr_axis, otherwise);
    return lt->ndims < 0 ? -1 : (int)(axis < 0 ? axis + lt->ndims : axis);
}

bool graph_indices_fit(const graph_t *g, const node_t *node)
{
    enum { MOST_VIEWS = 8 };
    const int port = op_index_port(node);
    if (port < 0 || (op_class(node->kind) & (OP_GATHER | OP_SCATTER)) == 0) {
        return false;
    }
    int v = node->in[port], p = g->values[v].producer;
    for (int i = 0; i < MOST_VIEWS && p >= 0; i++) {
        const node_t *n = &g->nodes[p];
        if (op_class(n->kind) == OP_TOP_K) {
            const lt_t *searched = &g->values[n->in[0]].lt, *data = &g->values[node->in[0]].lt;
            const int from = axis_of(n, -1, searched), of = axis_of(node, 0, data);
            return v == n->out[1] && from >= 0 && of >= 0 && searched->dims[from] >= 0 &&
                   searched->dims[from] == data->dims[of];
        }
        if ((op_flags(n->kind) & OP_VIEW) == 0 && n->kind != sinter_op_slice) {
            return false;
        }
        v = n->in[0];
        p = g->values[v].producer;
    }
    return false;
}
