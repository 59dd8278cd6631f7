/* {q, s} = quantise(view(x)) = {view(q'), view(s')}, {q', s'} = quantise(x), where quantise
 * computes its scales
 *
 *   MatMul -> StaticTranspose -> StaticReshape -> DynamicQuantize -> codes, scales
 *     becomes
 *   MatMul -> DynamicQuantize -> StaticTranspose -> StaticReshape -> codes
 *                             -> StaticTranspose -> StaticReshape -> scales
 *
 * so that the product is quantised in the kernel that makes it, and the views are only a matter
 * of where codes and scales are stored. A view moves if any tensor can be stored through it,
 * whatever its strides, in runs along the last dim: transpositions of the others, reshapes that
 * merge dims. */
#include <string.h>

#include "base/status.h"
#include "graph/quant.h"
#include "graph/schema.h"
#include "passes/passes.h"

/* Group sizes at the view's input, from those at its output. False: the groups cannot be said
 * there. */
static bool sizes_through_transpose(const node_t *view, int ndims, const int64_t *below,
                                    int64_t *above)
{
    const attr_t *order = node_attr(view, sinter_op_attr_order);
    int64_t from = -1;
    for (int d = 0; d < ndims; d++) {
        from = order->s64[d] < 0 ? order->s64[d] + ndims : order->s64[d];
        above[from] = below[d];
    }
    return from == ndims - 1;
}

/* The dims [begin, end) are one dim below, in groups of `group` neighbours. */
static bool split_group(const lt_t *in, int begin, int end, int64_t group, int64_t *above)
{
    for (int d = end - 1; d >= begin; d--) {
        const int64_t n = in->dims[d];
        if (n % group != 0 && group % n != 0) {
            return false;
        }
        above[d] = n % group == 0 ? group : n;
        group /= above[d];
    }
    return group == 1;
}

static bool sizes_through_merge(const lt_t *in, const lt_t *out, const int64_t *below,
                                int64_t *above)
{
    int i = 0;
    for (int j = 0; j < out->ndims; j++) {
        const int begin = i;
        if (i < in->ndims && in->dims[i] == out->dims[j]) { /* known or not */
            above[i++] = below[j];
            continue;
        }
        int64_t n = 1;
        while (i < in->ndims && n != out->dims[j] && in->dims[i] > 0 &&
               mul_i64(n, in->dims[i], &n)) {
            i++;
        }
        if (n != out->dims[j] || !split_group(in, begin, i, below[j], above)) {
            return false;
        }
    }
    return i == in->ndims;
}

static bool sizes_above(const graph_t *g, const node_t *view, const quant_geom_t *geom,
                        int64_t *above)
{
    const lt_t *in = &g->values[view->in[0]].lt, *out = &g->values[view->out[0]].lt;
    int64_t below[SINTER_MAX_NDIMS];
    for (int d = 0; d < out->ndims; d++) {
        below[d] = out->dims[d] == 1 ? 1 : geom->scale_group[d];
        if (below[d] < 1 ||
            out->dims[d] == 0) { /* not known; groups of no elements have scales, too */
            return false;
        }
    }
    return view->kind == sinter_op_static_transpose
               ? sizes_through_transpose(view, in->ndims, below, above)
               : sizes_through_merge(in, out, below, above);
}

/* The view of scales whose dims were divided by group sizes: dims that are not known must be
 * where they were. */
static bool scales_can_follow(const graph_t *g, const node_t *view, int scales)
{
    const lt_t *to = &g->values[scales].lt;
    int n_unknown = 0;
    for (int d = 0; d < to->ndims; d++) {
        n_unknown += to->dims[d] == SINTER_UNKNOWN_DIM;
    }
    return to->ndims == g->values[view->out[0]].lt.ndims &&
           (view->kind == sinter_op_static_transpose || n_unknown <= 1);
}

static sinter_status_t add_view(graph_t *g, const node_t *view, int from, int to, bool data)
{
    if (data || view->kind == sinter_op_static_transpose) {
        return pass_add_unary(g, view->kind, from, to, view->attrs, view->n_attrs);
    }
    return pass_add_reshape(g, from, to);
}

/* Lets the quantising node read what the view reads, and hangs views of its new outputs before
 * the old ones. */
static sinter_status_t swap(graph_t *g, int view_node, int quantise, const int64_t *size)
{
    const node_t view = g->nodes[view_node];
    const lt_t in = g->values[view.in[0]].lt;
    int64_t groups[SINTER_MAX_NDIMS];
    for (int d = 0; d < in.ndims; d++) {
        groups[d] = in.dims[d] == SINTER_UNKNOWN_DIM ? SINTER_UNKNOWN_DIM
                                                     : quant_n_groups(in.dims[d], size[d]);
    }
    g->nodes[view_node].dead = true;
    g->values[view.out[0]].producer = -1;
    g->nodes[quantise].in[0] = view.in[0];
    for (int o = 0; o < g->nodes[quantise].n_out; o++) {
        const bool data = o == 0 || o == g->nodes[quantise].quant->high_port;
        const int old = g->nodes[quantise].out[o],
                  made = pass_value_like(g, old, in.ndims, data ? in.dims : groups);
        if (made < 0) {
            return sinter_out_of_memory;
        }
        SG_TRY(add_view(g, &view, made, old, data));
        g->nodes[quantise].out[o] = made;
        g->values[made].producer = quantise;
        g->values[made].producer_port = o;
    }
    SG_TRY(quant_regroup(&g->arena, &g->nodes[quantise], QUANT_PER_GROUP, (s64_list_t){0, NULL},
                         (s64_list_t){(size_t)in.ndims, size}));
    SG_TRY(graph_find_groups(g, &g->nodes[quantise]));
    return graph_sort(g);
}

/* The view of a result that only this node looks through; -1: none. */
static int view_above(const graph_t *g, const node_t *n)
{
    const int p = g->values[n->in[0]].producer;
    if (p < 0 || g->values[n->in[0]].n_uses != 1 || g->values[n->in[0]].is_output) {
        return -1;
    }
    const node_t *view = &g->nodes[p];
    const bool moves =
        view->kind == sinter_op_static_transpose || view->kind == sinter_op_static_reshape;
    int above = moves ? g->values[view->in[0]].producer : -1;
    while (above >= 0 && (op_flags(g->nodes[above].kind) & OP_VIEW) != 0) {
        above = g->values[g->nodes[above].in[0]].producer;
    }
    return above >= 0 ? p : -1;
}

static sinter_status_t sink_one(graph_t *g, int node, bool *done)
{
    const node_t *n = &g->nodes[node];
    const int view = view_above(g, n);
    int64_t size[SINTER_MAX_NDIMS];
    *done = false;
    bool fits = view >= 0 && n->quant->kind != QUANT_STATIC && g->values[n->in[0]].lt.ndims >= 0 &&
                g->values[g->nodes[view].in[0]].lt.ndims >= 0;
    for (int o = 1; o < n->n_out && fits; o++) {
        fits = o == n->quant->high_port || scales_can_follow(g, &g->nodes[view], n->out[o]);
    }
    if (fits && sizes_above(g, &g->nodes[view], &n->quant->geom, size)) {
        *done = true;
        return swap(g, view, node, size);
    }
    return sinter_success;
}

sinter_status_t pass_sink_quantise(graph_t *g)
{
    for (int node = 0, n = g->n_nodes; node < n; node++) {
        bool again = g->nodes[node].kind == sinter_op_dynamic_quantize && !g->nodes[node].dead;
        while (again) {
            SG_TRY(sink_one(g, node, &again));
        }
    }
    return sinter_success;
}
