/* MatMul(v, transpose(softmax(s))) = transpose(MatMul(softmax(s), transpose(v))),
 * f(transpose(s)) = transpose(f(s))
 *
 *   MatMul(K, Q) -> scale, mask -> SoftMax over the rows -> MatMul(V, .)
 *     becomes
 *   MatMul(Q, K) -> scale, turned mask -> SoftMax over the columns -> MatMul(., V) -> transpose
 *
 * so that kernels know one form of attention: rows of queries, columns of keys. Transposes of the
 * scores or probabilities cancel, those of the operands become flags of the matmuls. The pattern
 * sdpa-transposed has checked that this leads to the plain form. */
#include <string.h>

#include "base/status.h"
#include "graph/quant.h"
#include "graph/schema.h"
#include "passes/passes.h"

typedef struct turner {
    graph_t *g;
    int *turned; /* by value: its transpose plus one; 0: not made yet */
    int cap;
} turner_t;

static sinter_status_t note(turner_t *t, int v, int transpose)
{
    while (t->cap <= v) {
        if (!arena_grow(&t->g->arena, (void **)&t->turned, &t->cap, t->cap, sizeof(int))) {
            return sinter_out_of_memory;
        }
    }
    t->turned[v] = transpose + 1;
    return sinter_success;
}

static int known(const turner_t *t, int v)
{
    return v < t->cap ? t->turned[v] - 1 : -1;
}

/* A vector of columns becomes one of rows. */
static int turned_dims(const lt_t *lt, int64_t *dims)
{
    memcpy(dims, lt->dims, sizeof(int64_t) * (size_t)lt->ndims);
    if (lt->ndims == 1) {
        dims[1] = 1;
        return 2;
    }
    dims[lt->ndims - 1] = lt->dims[lt->ndims - 2];
    dims[lt->ndims - 2] = lt->dims[lt->ndims - 1];
    return lt->ndims;
}

/* out = transpose(in), as an op. */
static sinter_status_t add_transpose(graph_t *g, int in, int out)
{
    const int ndims = g->values[in].lt.ndims;
    if (ndims == 1) {
        return pass_add_reshape(g, in, out);
    }
    int64_t *numbers = ARENA_NEW(&g->arena, int64_t, ndims + 1);
    attr_t *attr = ARENA_NEW(&g->arena, attr_t, 1);
    if (numbers == NULL || attr == NULL) {
        return sinter_out_of_memory;
    }
    for (int d = 0; d < ndims; d++) {
        numbers[d] = d < ndims - 2 ? d : 2 * ndims - 3 - d;
    }
    *attr = (attr_t){.id = sinter_op_attr_order, .n = (size_t)ndims, .s64 = numbers};
    return pass_add_unary(g, sinter_op_static_transpose, in, out, attr, 1);
}

/* The op fulfils op(transpose(x), ...) = transpose(op(x, ...)), with another axis or other flags if
 * it has any. */
static bool turns(const node_t *n)
{
    if (n->kind == sinter_op_matmul) {
        return node_has_role(n, "qk");
    }
    if (n->kind == sinter_op_quantize || n->kind == sinter_op_dequantize) {
        return n->n_in == 1 && n->quant->type == QUANT_PER_TENSOR;
    }
    return (n->kind == sinter_op_softmax && n->n_out == 1) || n->kind == sinter_op_type_cast ||
           n->kind == sinter_op_reorder ||
           ((op_flags(n->kind) & OP_ELTWISE) != 0 && !op_by_channels(n->kind));
}

static sinter_status_t turn(turner_t *t, int v, int *out);

/* Changes the flags and the axis of a new op. ndims: the rank of the old op's output. */
static sinter_status_t turn_attrs(graph_t *g, int node, int ndims)
{
    const node_t n = g->nodes[node];
    if (n.kind == sinter_op_matmul) {
        const bool a = node_bool(&n, sinter_op_attr_transpose_a, false),
                   b = node_bool(&n, sinter_op_attr_transpose_b, false);
        SG_TRY(pass_set_bool(g, node, sinter_op_attr_transpose_a, !b));
        return pass_set_bool(g, node, sinter_op_attr_transpose_b, !a);
    }
    if (n.kind == sinter_op_softmax || n.kind == sinter_op_gen_index) {
        const int64_t axis = node_s64(&n, sinter_op_attr_axis, n.kind == sinter_op_softmax ? 1 : 0);
        const int64_t d = axis < 0 ? axis + ndims : axis;
        return pass_set_s64(g, node, sinter_op_attr_axis,
                            d < ndims - 2 || ndims == 1 ? d : 2 * ndims - 3 - d);
    }
    return sinter_success;
}

/* Adds the op that computes out = transpose(v) from the transposes of the inputs of v's op. */
static sinter_status_t turn_op(turner_t *t, int v, int out)
{
    graph_t *g = t->g;
    node_t n = g->nodes[g->values[v].producer];
    const int ndims = g->values[v].lt.ndims;
    int *ports = ARENA_NEW(&g->arena, int, n.n_in + 1);
    if (ports == NULL) {
        return sinter_out_of_memory;
    }
    for (int i = 0; i < n.n_in; i++) {
        const bool swaps = n.kind == sinter_op_matmul;
        ports[i] = swaps ? n.in[1 - i] : n.in[i];
        if (!swaps) {
            SG_TRY(turn(t, n.in[i], &ports[i]));
        }
    }
    SG_TRY(pass_add_unary(g, n.kind, ports[0], out, n.attrs, n.n_attrs));
    const int node = g->n_nodes - 1;
    ports[n.n_in] = out;
    g->nodes[node].n_in = n.n_in;
    g->nodes[node].in = ports;
    g->nodes[node].out = ports + n.n_in;
    g->nodes[node].role = n.role;
    g->nodes[node].quant = n.quant; /* one group for the whole tensor: it has no dims */
    return turn_attrs(g, node, ndims);
}

/* *out: the value that is transpose(v). */
static sinter_status_t turn(turner_t *t, int v, int *out)
{
    graph_t *g = t->g;
    const lt_t *lt = &g->values[v].lt;
    const int p = g->values[v].producer;
    const node_t *n = p >= 0 ? &g->nodes[p] : NULL;
    int64_t dims[SINTER_MAX_NDIMS + 1];
    *out = known(t, v);
    if (*out >= 0) {
        return sinter_success;
    }
    if (lt->ndims == 0 ||
        (lt_elems(lt) == 1 && (n == NULL || lt->ndims == 1))) { /* the same for each element */
        *out = v;
        return note(t, v, v);
    }
    const int swaps =
        n != NULL && n->kind == sinter_op_static_transpose ? node_swaps_matrix(n, lt->ndims) : -1;
    if (swaps >= 0) {
        *out = n->in[0];
        if (swaps == 0) {
            SG_TRY(turn(t, n->in[0], out));
        }
        return note(t, v, *out);
    }
    *out = pass_value_like(g, v, turned_dims(lt, dims), dims);
    if (*out < 0) {
        return sinter_out_of_memory;
    }
    SG_TRY(note(t, v, *out));
    SG_TRY(note(t, *out, v));
    return n != NULL && turns(n) ? turn_op(t, v, *out) : add_transpose(g, v, *out);
}

/* ---- the second matmul ----------------------------------------------------------------------- */

/* The port at which the probabilities arrive, -1 if neither or both. */
static int probability_port(const graph_t *g, int pv)
{
    for (int port = 0; port < 2; port++) {
        for (int p = g->values[g->nodes[pv].in[port]].producer; p >= 0;
             p = g->values[g->nodes[p].in[0]].producer) {
            if (g->nodes[p].kind == sinter_op_softmax) {
                return port;
            }
        }
    }
    return -1;
}

/* Rewrites the second matmul so that the probabilities stand on its left, not transposed. */
static sinter_status_t turn_second(turner_t *t, int pv)
{
    graph_t *g = t->g;
    const int port = probability_port(g, pv);
    const bool flags[2] = {node_bool(&g->nodes[pv], sinter_op_attr_transpose_a, false),
                           node_bool(&g->nodes[pv], sinter_op_attr_transpose_b, false)};
    int p = port >= 0 ? g->nodes[pv].in[port] : -1;
    if (port < 0) {
        return sinter_success;
    }
    if (flags[port] == (port == 0)) {
        SG_TRY(turn(t, p, &p));
    }
    SG_TRY(pass_set_bool(g, pv, sinter_op_attr_transpose_a, false));
    if (port == 1) {
        const int result = g->nodes[pv].out[0];
        int64_t dims[SINTER_MAX_NDIMS + 1];
        const int ndims = turned_dims(&g->values[result].lt, dims),
                  out = pass_value_like(g, result, ndims, dims);
        if (out < 0) {
            return sinter_out_of_memory;
        }
        SG_TRY(pass_set_bool(g, pv, sinter_op_attr_transpose_b, !flags[0]));
        g->nodes[pv].in[1] = g->nodes[pv].in[0];
        g->nodes[pv].out[0] = out;
        g->values[out].producer = pv;
        SG_TRY(add_transpose(g, out, result));
    }
    g->nodes[pv].in[0] = p;
    g->nodes[pv].role = "pv";
    return sinter_success;
}

/* Moves the transposes that are left among the scores or probabilities up into the first matmul. */
static sinter_status_t cancel_transposes(turner_t *t)
{
    graph_t *g = t->g;
    for (int i = 0; i < graph_n_live(g); i++) {
        const node_t *n = &g->nodes[g->topo[i]];
        const int v = n->out[0];
        int turned;
        if (n->kind != sinter_op_static_transpose ||
            !(node_has_role(n, "score_views") || node_has_role(n, "p_post")) ||
            node_swaps_matrix(n, g->values[v].lt.ndims) != 1) {
            continue;
        }
        SG_TRY(turn(t, n->in[0], &turned));
        for (int u = g->uses_begin[v]; u < g->uses_begin[v + 1]; u++) {
            const node_t *user = &g->nodes[g->uses[u]];
            for (int k = 0; k < user->n_in; k++) {
                user->in[k] = user->in[k] == v ? turned : user->in[k];
            }
        }
    }
    return sinter_success;
}

/* Turns each index that no op reads, so that it no longer needs the scores as they were. */
static sinter_status_t turn_indices(turner_t *t)
{
    graph_t *g = t->g;
    for (int i = 0; i < graph_n_live(g); i++) {
        const int node = g->topo[i], v = g->nodes[node].out[0];
        int turned;
        if (g->nodes[node].kind == sinter_op_gen_index && g->values[v].n_uses == 0 &&
            known(t, g->nodes[node].in[0]) >= 0) {
            SG_TRY(turn(t, v, &turned));
            SG_TRY(add_transpose(g, turned, v));
            g->nodes[node].dead = true;
        }
    }
    return sinter_success;
}

/* MatMul(v, transpose(softmax(s))) = transpose(MatMul(softmax(s), transpose(v))), f(transpose(s)) =
 * transpose(f(s)) */
sinter_status_t pass_plain_attention(graph_t *sub)
{
    turner_t t = {.g = sub};
    int pv = -1;
    for (int i = 0; i < sub->n_nodes; i++) {
        pv = !sub->nodes[i].dead && node_has_role(&sub->nodes[i], "turned_pv") ? i : pv;
    }
    if (pv < 0 || sub->values[sub->nodes[pv].out[0]].lt.ndims < 2) {
        return sinter_success;
    }
    SG_TRY(turn_second(&t, pv));
    SG_TRY(turn_indices(&t));
    SG_TRY(graph_sort(sub));
    SG_TRY(graph_prune(sub));
    SG_TRY(graph_sort(sub));
    SG_TRY(cancel_transposes(&t));
    SG_TRY(graph_sort(sub));
    SG_TRY(turn_indices(&t));
    SG_TRY(graph_sort(sub));
    return graph_prune(sub);
}
