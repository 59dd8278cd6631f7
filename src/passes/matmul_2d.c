/* MatMul(a[K], b) = reshape(MatMul(reshape(a, [1, K]), b)), and likewise for b[K] as [K, 1]:
 * vectors become matrices, so that kernels know matrices only. */
#include <string.h>

#include "base/status.h"
#include "passes/passes.h"

/* node may move: indices only. */
static sinter_status_t widen(graph_t *g, int node, int port)
{
    const int narrow = g->nodes[node].in[port];
    int64_t dims[2] = {1, 1};
    dims[1 - port] = g->values[narrow].lt.dims[0];
    const int wide = pass_value_like(g, narrow, 2, dims);
    if (wide < 0) {
        return sinter_out_of_memory;
    }
    SG_TRY(pass_add_reshape(g, narrow, wide));
    g->nodes[node].in[port] = wide;
    /* A vector has nothing to transpose. */
    return pass_set_bool(
        g, node, port == 0 ? sinter_op_attr_transpose_a : sinter_op_attr_transpose_b, false);
}

/* The product gets the dims that the vectors lacked; a reshape takes them away again. */
static sinter_status_t narrow_result(graph_t *g, int node, bool row, bool column)
{
    const int result = g->nodes[node].out[0];
    const lt_t *to = &g->values[result].lt;
    int64_t dims[SINTER_MAX_NDIMS + 2];
    int n = 0;
    const int batch = to->ndims - (row ? 0 : 1) - (column ? 0 : 1);
    int64_t *shape = ARENA_NEW(&g->arena, int64_t, to->ndims + 1);
    if (shape == NULL) {
        return sinter_out_of_memory;
    }
    for (int d = 0; d < to->ndims;
         /* a dim that stays at its place is copied, the columns behind a missing row are what is
         * left */
         d++) {
        shape[d] = to->dims[d] > 0 ? to->dims[d] : d < batch || column ? 0 : -1;
    }
    for (; n < batch; n++) {
        dims[n] = to->dims[n];
    }
    dims[n++] = row ? 1 : to->dims[batch];
    dims[n++] = column ? 1 : to->dims[to->ndims - 1];
    const int wide = pass_value_like(g, result, n, dims);
    if (wide < 0) {
        return sinter_out_of_memory;
    }
    g->nodes[node].out[0] = wide;
    g->values[wide].producer = node;
    return pass_add_reshape_by(g, wide, result, shape, true);
}

sinter_status_t pass_matmul_2d(graph_t *g)
{
    for (int t = 0; t < graph_n_live(g); t++) {
        const int node = g->topo[t];
        const node_t *n = &g->nodes[node];
        if (n->kind != sinter_op_matmul) {
            continue;
        }
        const bool row = g->values[n->in[0]].lt.ndims == 1,
                   column = g->values[n->in[1]].lt.ndims == 1;
        if (column && n->n_in > 2) {
            return sg_fail(sinter_unimplemented, "%s: a bias over a product with a vector",
                           node_label(n));
        }
        for (int port = 0; port < 2; port++) {
            if (port == 0 ? row : column) {
                SG_TRY(widen(g, node, port));
            }
        }
        if (row || column) {
            SG_TRY(narrow_result(g, node, row, column));
        }
    }
    return sinter_success;
}
