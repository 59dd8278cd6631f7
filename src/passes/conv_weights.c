/* Convolution(x, w) = Convolution(x, view(w)): weights of every format become
 * [groups, window, I, O], with the channels of one group each.
 *
 *   XIO [window, I, groups * O]   StaticReshape [window, I, groups, O]   -> StaticTranspose
 *   OIX [groups * O, I, window]   StaticReshape [groups, O, I, window]   -> StaticTranspose
 *
 * and likewise XOI and IOX of ConvTranspose, where the groups divide I. Strides can express these
 * views, whatever the tensor's own strides are. */
#include <string.h>

#include "base/status.h"
#include "graph/schema.h"
#include "passes/passes.h"

/* The weights with the groups as a dim of their own, and where each dim of the result is from. */
typedef struct layout {
    int ndims;
    int64_t split[SINTER_MAX_NDIMS], dims[SINTER_MAX_NDIMS], order[SINTER_MAX_NDIMS];
} layout_t;

static layout_t layout_of(const node_t *node, const lt_t *w)
{
    const bool transposed = node->kind == sinter_op_conv_transpose;
    const char *format = node_str(node, sinter_op_attr_weights_format, transposed ? "XOI" : "XIO");
    const int64_t groups = node_s64(node, sinter_op_attr_groups, 1);
    const char divided = transposed ? 'I' : 'O';
    layout_t l = {.ndims = w->ndims + 1};
    int at = 0, group = 0, in = 0, out = 0, window = 0, d = 0;
    for (const char *c = format; *c != '\0'; c++) {
        if (*c == 'X') {
            window = at;
            for (int i = 0; i < w->ndims - 2; i++) {
                l.split[at++] = w->dims[d++];
            }
            continue;
        }
        if (*c == divided) {
            group = at;
            l.split[at++] = groups;
        }
        *(*c == 'I' ? &in : &out) = at;
        l.split[at++] = *c == divided ? w->dims[d] / groups : w->dims[d];
        d++;
    }
    l.order[0] = group;
    for (int i = 0; i < w->ndims - 2; i++) {
        l.order[1 + i] = window + i;
    }
    l.order[l.ndims - 2] = in;
    l.order[l.ndims - 1] = out;
    for (int i = 0; i < l.ndims; i++) {
        l.dims[i] = l.split[l.order[i]];
    }
    return l;
}

/* node may move: indices only. */
static sinter_status_t turn_weights(graph_t *g, int node)
{
    const layout_t l = layout_of(&g->nodes[node], &g->values[g->nodes[node].in[1]].lt);
    int64_t *places = ARENA_NEW(&g->arena, int64_t, SINTER_MAX_NDIMS);
    attr_t *order = ARENA_NEW(&g->arena, attr_t, 1);
    if (places == NULL || order == NULL) {
        return sinter_out_of_memory;
    }
    memcpy(places, l.order, sizeof l.order);
    *order = (attr_t){.id = sinter_op_attr_order, .n = (size_t)l.ndims, .s64 = places};
    const int from = g->nodes[node].in[1], split = pass_value_like(g, from, l.ndims, l.split),
              turned = split < 0 ? -1 : pass_value_like(g, split, l.ndims, l.dims);
    if (turned < 0) {
        return sinter_out_of_memory;
    }
    SG_TRY(pass_add_reshape(g, from, split));
    SG_TRY(pass_add_unary(g, sinter_op_static_transpose, split, turned, order, 1));
    g->nodes[node].in[1] = turned;
    g->nodes[node].grouped_weights = true;
    return sinter_success;
}

sinter_status_t pass_conv_weights(graph_t *g)
{
    for (int i = 0, n = g->n_nodes; i < n; i++) {
        if (op_class(g->nodes[i].kind) == OP_CONVOLUTION && !g->nodes[i].dead) {
            SG_TRY(turn_weights(g, i));
        }
    }
    return sinter_success;
}
