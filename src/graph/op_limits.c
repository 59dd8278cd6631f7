/* What the library does not execute of the ops that it executes: the limits that the cards name. */
#include "graph/graph.h"
#include "graph/op_rules.h"
#include "graph/op_schema.h"
#include "graph/shape.h"
#include "numeric/dtype.h"

/* Reductions and Interpolate. */
const char *limit_tensor_attrs(const graph_t *g, const node_t *n)
{
    (void)g;
    return n->n_in == 1                           ? NULL
           : (op_class(n->kind) & OP_REDUCE) != 0 ? "its axes are a tensor"
                                                  : "its sizes are a tensor";
}

/* MatMul. */
const char *limit_products(const graph_t *g, const node_t *n)
{
    return n->n_in > 2 && g->values[n->in[1]].lt.ndims == 1 ? "a bias over a product with a vector"
                                                            : NULL;
}

const char *limit_convolution(const graph_t *g, const node_t *n)
{
    return g->values[n->in[0]].lt.ndims < 0 || !lt_dims_known(&g->values[n->in[1]].lt)
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
