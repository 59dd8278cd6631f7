/* What the library does not execute of the ops that it executes: the limits that the cards name. */
#include "graph/graph.h"
#include "graph/op_rules.h"
#include "graph/op_schema.h"
#include "graph/shape.h"
#include "numeric/dtype.h"

static bool needs_f64(const graph_t *g, int value)
{
    return dtype_needs_f64(g->values[value].lt.data_type);
}

/* Norms, rotary embeddings, reductions and windows. */
const char *limit_rows(const graph_t *g, const node_t *n)
{
    return (op_class(n->kind) & OP_REDUCE) != 0 && n->n_in > 1 ? "its axes are a tensor"
           : n->kind == sinter_op_interpolate && n->n_in > 1   ? "its sizes are a tensor"
           : needs_f64(g, n->in[0]) || needs_f64(g, n->out[0])
               ? "it computes in f32, but its input or output is f64"
               : NULL;
}

/* MatMul and the forms of softmax. */
const char *limit_products(const graph_t *g, const node_t *n)
{
    const bool matmul = (op_class(n->kind) & OP_MATMUL) != 0;
    for (int i = 0; i < n->n_in && i < 2; i++) {
        if (needs_f64(g, n->in[i])) {
            return "it computes in f32, but an input is f64";
        }
    }
    return matmul && n->n_in > 2 && g->values[n->in[1]].lt.ndims == 1
               ? "a bias over a product with a vector"
               : NULL;
}

const char *limit_convolution(const graph_t *g, const node_t *n)
{
    const lt_t *weights = &g->values[n->in[1]].lt;
    for (int i = 0; i < n->n_in; i++) {
        if (needs_f64(g, n->in[i])) {
            return "it computes in f32, but an input is f64";
        }
    }
    return g->values[n->in[0]].lt.ndims < 0 || !lt_dims_known(weights)
               ? "dims of its weights, or the rank of its image, are not known"
               : NULL;
}

const char *limit_slice(const graph_t *g, const node_t *n)
{
    return slice_goes_back(n) && dtype_is_packed(g->values[n->in[0]].lt.data_type)
               ? "a step is negative, and elements share bytes"
               : NULL;
}

const char *limit_dropout(const graph_t *g, const node_t *n)
{
    return n->n_out > 1 ? "it has a mask output, which training alone needs"
           : g->values[n->in[3]].producer >= 0
               ? "its probability is computed, but must be known before its partition begins"
               : NULL;
}
