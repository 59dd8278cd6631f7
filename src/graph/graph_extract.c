/* Copies of parts of a graph. Time and memory follow the part, not the whole. */
#include <string.h>

#include "base/idmap.h"
#include "base/status.h"
#include "graph/graph.h"
#include "graph/quant.h"

/* The value of the copy for value v of g; -1: out of memory. */
static int take_value(const graph_t *g, int v, graph_t *out)
{
    const value_t *from = &g->values[v];
    int at = idmap_get(out->ids, from->lt.id);
    if (at >= 0) {
        return at;
    }
    if (!idmap_put(out->ids, from->lt.id, out->n_values)) {
        return -1;
    }
    out->values[out->n_values] = (value_t){.lt = from->lt, .producer = -1};
    return out->n_values++;
}

static sinter_status_t copy_ports(const graph_t *g, const int *from, int n, graph_t *out, int *to)
{
    for (int i = 0; i < n; i++) {
        to[i] = take_value(g, from[i], out);
        if (to[i] < 0) {
            return sinter_out_of_memory;
        }
    }
    return sinter_success;
}

static sinter_status_t copy_node(const graph_t *g, const node_t *from, graph_t *out, node_t *to)
{
    *to = *from;
    to->in_dequant = NULL;
    to->in = ARENA_NEW(&out->arena, int, from->n_in + from->n_out);
    to->out = to->in != NULL ? to->in + from->n_in : NULL;
    to->name = arena_strdup(&out->arena, from->name);
    to->attrs = ARENA_NEW(&out->arena, attr_t, from->n_attrs);
    if (to->in == NULL || to->name == NULL || to->attrs == NULL) {
        return sinter_out_of_memory;
    }
    for (int i = 0; i < from->n_attrs; i++) {
        if (!attr_copy(&out->arena, &from->attrs[i], &to->attrs[i])) {
            return sinter_out_of_memory;
        }
    }
    if (from->quant != NULL && (to->quant = quant_copy(&out->arena, from->quant)) == NULL) {
        return sinter_out_of_memory;
    }
    if (from->role != NULL && (to->role = arena_strdup(&out->arena, from->role)) == NULL) {
        return sinter_out_of_memory;
    }
    SG_TRY(copy_ports(g, from->in, from->n_in, out, to->in));
    return copy_ports(g, from->out, from->n_out, out, to->out);
}

static bool reserve(const graph_t *g, const int *nodes, int n_nodes, graph_t *out)
{
    size_t n_ports = 0;
    for (int i = 0; i < n_nodes; i++) {
        n_ports += (size_t)g->nodes[nodes[i]].n_in + (size_t)g->nodes[nodes[i]].n_out;
    }
    if (n_ports > INT32_MAX) {
        return false;
    }
    out->nodes = ARENA_NEW(&out->arena, node_t, n_nodes);
    out->values = ARENA_NEW(&out->arena, value_t, n_ports);
    out->ids = idmap_new(&out->arena);
    out->cap_nodes = n_nodes;
    out->cap_values = (int)n_ports;
    return out->nodes != NULL && out->values != NULL && out->ids != NULL;
}

sinter_status_t graph_extract(const graph_t *g, const int *nodes, int n_nodes, graph_t *out)
{
    if (!reserve(g, nodes, n_nodes, out)) {
        return sinter_out_of_memory;
    }
    for (int i = 0; i < n_nodes; i++) {
        SG_TRY(copy_node(g, &g->nodes[nodes[i]], out, &out->nodes[i]));
        out->n_nodes++;
    }
    SG_TRY(graph_sort(out));
    for (int v = 0; v < out->n_values; v++) {
        value_t *value = &out->values[v];
        const value_t *from = &g->values[graph_find_value(g, value->lt.id)];
        value->is_output =
            value->producer >= 0 && (from->is_output || from->n_uses > value->n_uses);
        value->made_before = value->producer < 0 && (from->producer >= 0 || from->made_before);
    }
    return sinter_success;
}
