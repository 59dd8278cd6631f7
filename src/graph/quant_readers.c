/* What reads dequantised numbers: a ConvTranspose in groups counts the output channels of one group
 * in the dims of its weights, while scales for each output channel are as many as in all groups.
 * Neither the scales nor the codes say how many groups there are. */
#include "base/status.h"
#include "graph/attr.h"
#include "graph/graph.h"
#include "graph/quant.h"
#include "graph/schema.h"

static weights_reader_t read_reader(const node_t *conv)
{
    const char *format = node_str(conv, sinter_op_attr_weights_format, "XOI");
    const bool ahead = format[0] == 'X'; /* the window comes first: XOI, else IOX */
    return (weights_reader_t){.op = conv->id,
                              .groups = node_s64(conv, sinter_op_attr_groups, 1),
                              .in_axis = ahead ? -1 : 0,
                              .out_axis = ahead ? -2 : 1};
}

/* False: it reads in the same way as one that is there already. */
static bool add_reader(quant_t *q, const weights_reader_t *reader)
{
    for (int i = 0; i < q->n_readers; i++) {
        const weights_reader_t *other = &q->readers[i];
        if (other->groups == reader->groups && other->in_axis == reader->in_axis) {
            return false;
        }
    }
    if (q->n_readers < 2) {
        q->readers[q->n_readers++] = *reader;
    }
    return true;
}

static bool has_static_scales(const node_t *n)
{
    return n->quant != NULL && n->quant->scales != NULL;
}

/* Goes up from the weights over ops that keep each element in its place. What is above a node that
 * has such a reader has it, too. */
static void tell_producers(graph_t *g, const node_t *conv)
{
    const weights_reader_t reader = read_reader(conv);
    bool goes_on = true;
    for (int p = g->values[conv->in[1]].producer; p >= 0 && goes_on;
         p = g->values[g->nodes[p].in[0]].producer) {
        node_t *n = &g->nodes[p];
        goes_on = has_static_scales(n)
                      ? add_reader(n->quant, &reader)
                      : n->kind == sinter_op_type_cast || n->kind == sinter_op_reorder;
    }
}

sinter_status_t graph_find_weights_readers(graph_t *g)
{
    for (int i = 0; i < g->n_nodes; i++) {
        if (has_static_scales(&g->nodes[i])) {
            g->nodes[i].quant->n_readers = 0;
        }
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (!g->nodes[i].dead && g->nodes[i].kind == sinter_op_conv_transpose) {
            tell_producers(g, &g->nodes[i]);
        }
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const node_t *n = &g->nodes[i];
        if (!n->dead && has_static_scales(n)) {
            SG_TRY(graph_find_groups(g, n));
        }
    }
    return sinter_success;
}
