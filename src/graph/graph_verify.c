/* Shape inference over a graph, and the invariants that finalize promises and every pass keeps. */
#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "graph/attr.h"
#include "graph/graph.h"
#include "graph/quant.h"
#include "graph/schema.h"

static void gather(const graph_t *g, const int *ports, int n, lt_t *lts)
{
    for (int i = 0; i < n; i++) {
        lts[i] = g->values[ports[i]].lt;
    }
}

/* ---- shapes ---------------------------------------------------------------------------------- */

static sinter_status_t infer_node(graph_t *g, const node_t *node)
{
    lt_t in[OP_MAX_PORTS], out[OP_MAX_PORTS];
    gather(g, node->in, node->n_in, in);
    gather(g, node->out, node->n_out, out);
    SG_TRY(op_infer_shapes(node, in, out));
    SG_TRY(op_check(node, in, out));
    for (int i = 0; i < node->n_out; i++) {
        lt_t *lt = &g->values[node->out[i]].lt;
        if (!lt_same_dims(lt, &out[i])) {
            SG_TRY(lt_verify(&out[i], true, node_label(node)));
            *lt = out[i];
        }
    }
    return sinter_success;
}

sinter_status_t graph_infer_shapes(graph_t *g)
{
    for (int i = 0; i < g->n_topo; i++) {
        SG_TRY(infer_node(g, &g->nodes[g->topo[i]]));
    }
    return sinter_success;
}

sinter_status_t graph_find_groups(const graph_t *g, const node_t *node)
{
    lt_t in[OP_MAX_PORTS], out[OP_MAX_PORTS];
    gather(g, node->in, node->n_in, in);
    gather(g, node->out, node->n_out, out);
    return quant_geometry(node, in, out, &node->quant->geom);
}

/* ---- invariants ------------------------------------------------------------------------------ */

static sinter_status_t check_indices(const graph_t *g, const node_t *node, const char *where)
{
    if (node->n_in < 0 || node->n_in > OP_MAX_PORTS || node->n_out < 0 ||
        node->n_out > OP_MAX_PORTS) {
        return sg_fail(sinter_invalid_graph, "%s: %s has %d inputs and %d outputs", where,
                       node_label(node), node->n_in, node->n_out);
    }
    for (int i = 0; i < node->n_in + node->n_out; i++) {
        int v = i < node->n_in ? node->in[i] : node->out[i - node->n_in];
        if (v < 0 || v >= g->n_values) {
            return sg_fail(sinter_invalid_graph, "%s: %s refers to value %d of %d", where,
                           node_label(node), v, g->n_values);
        }
    }
    return sinter_success;
}

static sinter_status_t check_producers(const graph_t *g, int index, const char *where)
{
    const node_t *node = &g->nodes[index];
    for (int i = 0; i < node->n_out; i++) {
        const value_t *v = &g->values[node->out[i]];
        if (v->producer != index || v->producer_port != i) {
            return sg_fail(sinter_invalid_graph,
                           "%s: tensor %" PRIu64 " of %s has another producer", where, v->lt.id,
                           node_label(node));
        }
    }
    return sinter_success;
}

/* Uses counted anew, and producers before their users: place[i] is 1 + the position of node i in
 * topo. */
static sinter_status_t check_order(const graph_t *g, int *place, int *uses, const char *where)
{
    for (int t = 0; t < g->n_topo; t++) {
        const node_t *node = &g->nodes[g->topo[t]];
        if (node->dead || place[g->topo[t]] != 0) {
            return sg_fail(sinter_invalid_graph, "%s: %s is dead or twice in the execution order",
                           where, node_label(node));
        }
        place[g->topo[t]] = t + 1;
        for (int k = 0, v; (v = node_read(node, k)) >= 0; k++) {
            int producer = g->values[v].producer;
            uses[v]++;
            if (producer >= 0 && place[producer] == 0) {
                return sg_fail(sinter_invalid_graph,
                               "%s: %s comes before the producer of its input tensor %" PRIu64,
                               where, node_label(node), g->values[v].lt.id);
            }
        }
    }
    for (int v = 0; v < g->n_values; v++) {
        if (g->values[v].n_uses != uses[v]) {
            return sg_fail(sinter_invalid_graph,
                           "%s: tensor %" PRIu64 " has %d uses, not the %d it was sorted with",
                           where, g->values[v].lt.id, uses[v], g->values[v].n_uses);
        }
    }
    return sinter_success;
}

static sinter_status_t check_sorted(const graph_t *g, const char *where)
{
    int *place = sg_alloc(g->engine, sizeof(int) * ((size_t)g->n_nodes + (size_t)g->n_values + 1),
                          sizeof(int));
    if (place == NULL) {
        return sinter_out_of_memory;
    }
    memset(place, 0, sizeof(int) * ((size_t)g->n_nodes + (size_t)g->n_values));
    sinter_status_t status = check_order(g, place, place + g->n_nodes, where);
    sg_free(g->engine, place);
    return status;
}

static sinter_status_t check_node(const graph_t *g, int index, const char *where)
{
    lt_t in[OP_MAX_PORTS], out[OP_MAX_PORTS];
    const node_t *node = &g->nodes[index];
    SG_TRY(check_indices(g, node, where));
    SG_TRY(check_producers(g, index, where));
    gather(g, node->in, node->n_in, in);
    gather(g, node->out, node->n_out, out);
    return op_check(node, in, out);
}

sinter_status_t graph_verify(const graph_t *g, const char *where)
{
    int n_live = 0, n_produced = 0, n_out = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        if (!g->nodes[i].dead) {
            n_live++;
            n_out += g->nodes[i].n_out;
            SG_TRY(check_node(g, i, where));
        }
    }
    for (int v = 0; v < g->n_values; v++) {
        n_produced += g->values[v].producer >= 0;
        SG_TRY(lt_verify(&g->values[v].lt, g->values[v].is_output, where));
    }
    if (n_live != g->n_topo || n_produced != n_out) {
        return sg_fail(sinter_invalid_graph, "%s: the graph was changed and not sorted again",
                       where);
    }
    return check_sorted(g, where);
}
