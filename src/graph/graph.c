/* Building and reading the graph IR. */
#include "graph.h"

#include <stdio.h>
#include <string.h>

#include "attr.h"
#include "idmap.h"
#include "op_schema.h"
#include "schema.h"
#include "status.h"

/* Tensors that passes add have ids from here up; users cannot name them. */
#define INNER_ID ((uint64_t)1 << 63)

void graph_init(graph_t *g, sinter_engine_t *engine)
{
    memset(g, 0, sizeof(*g));
    g->engine = engine;
    arena_init(&g->arena, engine);
}

void graph_free(graph_t *g)
{
    arena_free(&g->arena);
    memset(g, 0, sizeof(*g));
}

const char *node_label(const node_t *node)
{
    static _Thread_local char ring[4][96];
    static _Thread_local unsigned turn;
    char *text = ring[turn++ % 4];
    const char *kind = op_name(node->kind);

    snprintf(text, sizeof(ring[0]), "op %llu (%s)", (unsigned long long)node->id, kind ? kind : "unknown kind");
    return text;
}

/* An add that failed half-way leaves entries behind that point past the end or at another id. */
int graph_find_value(const graph_t *g, uint64_t id)
{
    const int v = idmap_get(g->ids, id);

    return v >= 0 && v < g->n_values && g->values[v].lt.id == id ? v : -1;
}

static int new_value(graph_t *g, const lt_t *lt)
{
    if (!arena_grow(&g->arena, (void **)&g->values, &g->cap_values, g->n_values, sizeof(value_t)))
        return -1;
    if (g->ids == NULL)
        g->ids = idmap_new(&g->arena);
    if (g->ids == NULL || !idmap_put(g->ids, lt->id, g->n_values))
        return -1;
    g->values[g->n_values] = (value_t){.lt = *lt, .producer = -1};
    return g->n_values++;
}

int graph_add_value(graph_t *g, const lt_t *lt)
{
    lt_t inner = *lt;

    inner.id = INNER_ID + (uint64_t)g->n_values;
    return new_value(g, &inner);
}

/* ---- adding nodes --------------------------------------------------------------------------------------------------------------- */

/* JSON writes a tensor of unknown rank as one unknown dim. */
static bool rank_is_open(const lt_t *lt)
{
    return lt->ndims < 0 || (lt->ndims == 1 && lt->dims[0] == SINTER_UNKNOWN_DIM);
}

static sinter_status_t merge(const node_t *node, lt_t *into, const lt_t *from)
{
    const char *what = "";
    lt_t open = *from;

    if (rank_is_open(into) && into->ndims != from->ndims && into->data_type == from->data_type) {
        open.property = into->property != sinter_tensor_property_undef ? into->property : from->property;
        *into = open;
        return sinter_success;
    }
    if (rank_is_open(from) && into->ndims != from->ndims) {
        open.ndims = SINTER_UNKNOWN_NDIMS;
        open.layout_type = sinter_layout_type_any;
    }
    if (!lt_merge(into, &open, &what))
        return sg_fail(sinter_invalid_graph, "%s: tensor %llu: its %s differs from what another op says", node_label(node),
                       (unsigned long long)from->id, what);
    return sinter_success;
}

/* The tensors of one op, by distinct id, as they will be once the op is in the graph. */
typedef struct ports {
    lt_t *lt;
    int *value; /* -1: new */
    int n;
} ports_t;

static sinter_status_t collect(const graph_t *g, const node_t *node, const lt_t *lts, int n, ports_t *ports, int *slot)
{
    for (int i = 0; i < n; i++) {
        int k = 0;
        while (k < ports->n && ports->lt[k].id != lts[i].id)
            k++;
        if (k == ports->n) {
            const int v = graph_find_value(g, lts[i].id);
            ports->value[ports->n] = v;
            ports->lt[ports->n++] = v >= 0 ? g->values[v].lt : lts[i];
        }
        SG_TRY(merge(node, &ports->lt[k], &lts[i]));
        slot[i] = k;
    }
    return sinter_success;
}

static sinter_status_t check_producers(const graph_t *g, const struct sinter_op *op, const node_t *node)
{
    for (int o = 0; o < op->n_out; o++) {
        const int v = graph_find_value(g, op->out[o].id);
        bool twice = v >= 0 && g->values[v].producer >= 0;
        for (int k = 0; k < o; k++)
            twice = twice || op->out[k].id == op->out[o].id;
        if (twice)
            return sg_fail(sinter_invalid_graph, "%s: tensor %llu is already produced by another op", node_label(node),
                           (unsigned long long)op->out[o].id);
        for (int i = 0; i < op->n_in; i++)
            if (op->in[i].id == op->out[o].id)
                return sg_fail(sinter_invalid_graph, "%s: tensor %llu is input and output of the op, a cycle", node_label(node),
                               (unsigned long long)op->out[o].id);
    }
    return sinter_success;
}

static sinter_status_t copy_attrs(graph_t *g, const attr_t *attrs, int n, node_t *node)
{
    node->attrs = ARENA_NEW(&g->arena, attr_t, n + 1);
    if (node->attrs == NULL)
        return sinter_out_of_memory;
    for (int i = 0; i < n; i++)
        if (!attr_copy(&g->arena, &attrs[i], &node->attrs[i]))
            return sinter_out_of_memory;
    node->n_attrs = n;
    return sinter_success;
}

static sinter_status_t commit_values(graph_t *g, const ports_t *ports)
{
    const int before = g->n_values;

    for (int k = 0; k < ports->n; k++) {
        if (ports->value[k] >= 0)
            continue;
        ports->value[k] = new_value(g, &ports->lt[k]);
        if (ports->value[k] < 0) {
            g->n_values = before;
            return sinter_out_of_memory;
        }
    }
    for (int k = 0; k < ports->n; k++)
        g->values[ports->value[k]].lt = ports->lt[k];
    return sinter_success;
}

/* Everything that can fail without touching what is in the graph already. */
static sinter_status_t prepare(graph_t *g, const struct sinter_op *op, node_t *node, ports_t *ports, int **slot)
{
    const int n = op->n_in + op->n_out, other = idmap_get(g->op_ids, op->id);

    *node = (node_t){.id = op->id, .kind = op->kind, .n_in = op->n_in, .n_out = op->n_out};
    if (other >= 0 && other < g->n_nodes && g->nodes[other].id == op->id)
        return sg_fail(sinter_invalid_graph, "%s: another op has this id", node_label(node));
    SG_TRY(check_producers(g, op, node));
    *slot = ARENA_NEW(&g->arena, int, n + 1);
    ports->lt = ARENA_NEW(&g->arena, lt_t, n + 1);
    ports->value = ARENA_NEW(&g->arena, int, n + 1);
    node->name = arena_strdup(&g->arena, op->name ? op->name : "");
    if (!*slot || !ports->lt || !ports->value || !node->name)
        return sinter_out_of_memory;
    SG_TRY(copy_attrs(g, op->attrs, op->n_attrs, node));
    SG_TRY(collect(g, node, op->in, op->n_in, ports, *slot));
    return collect(g, node, op->out, op->n_out, ports, *slot + op->n_in);
}

sinter_status_t graph_add_node(graph_t *g, const struct sinter_op *op)
{
    node_t node;
    ports_t ports = {0};
    int *slot;

    SG_TRY(prepare(g, op, &node, &ports, &slot));
    if (!arena_grow(&g->arena, (void **)&g->nodes, &g->cap_nodes, g->n_nodes, sizeof(node_t)))
        return sinter_out_of_memory;
    if (g->op_ids == NULL)
        g->op_ids = idmap_new(&g->arena);
    if (g->op_ids == NULL || !idmap_put(g->op_ids, op->id, g->n_nodes))
        return sinter_out_of_memory;
    SG_TRY(commit_values(g, &ports));
    for (int i = 0; i < op->n_in + op->n_out; i++)
        slot[i] = ports.value[slot[i]];
    node.in = slot;
    node.out = slot + op->n_in;
    for (int o = 0; o < op->n_out; o++) {
        g->values[node.out[o]].producer = g->n_nodes;
        g->values[node.out[o]].producer_port = o;
    }
    g->nodes[g->n_nodes++] = node;
    return sinter_success;
}

/* ---- extracting ------------------------------------------------------------------------------------------------------------------ */

/* The copy's index of a value, made when first met; -1: out of memory. */
static int copy_value(const graph_t *g, int v, graph_t *out)
{
    const int known = graph_find_value(out, g->values[v].lt.id);

    return known >= 0 ? known : new_value(out, &g->values[v].lt);
}

static sinter_status_t copy_node(const graph_t *g, const node_t *from, graph_t *out)
{
    node_t node = *from;

    if (!arena_grow(&out->arena, (void **)&out->nodes, &out->cap_nodes, out->n_nodes, sizeof(node_t)))
        return sinter_out_of_memory;
    node.in = ARENA_NEW(&out->arena, int, from->n_in + from->n_out + 1);
    node.name = arena_strdup(&out->arena, from->name ? from->name : "");
    if (node.in == NULL || node.name == NULL)
        return sinter_out_of_memory;
    node.out = node.in + from->n_in;
    node.in_dequant = NULL;
    SG_TRY(copy_attrs(out, from->attrs, from->n_attrs, &node));
    for (int i = 0; i < from->n_in; i++) {
        node.in[i] = copy_value(g, from->in[i], out);
        if (node.in[i] < 0)
            return sinter_out_of_memory;
    }
    for (int o = 0; o < from->n_out; o++) {
        node.out[o] = copy_value(g, from->out[o], out);
        if (node.out[o] < 0)
            return sinter_out_of_memory;
        out->values[node.out[o]].producer = out->n_nodes;
        out->values[node.out[o]].producer_port = o;
    }
    out->nodes[out->n_nodes++] = node;
    return sinter_success;
}

/* A value is an output of the part if anything outside of it reads it. */
static void mark_outputs(const graph_t *g, graph_t *out, const int *nodes, int n_nodes)
{
    for (int k = 0; k < n_nodes; k++)
        for (int o = 0; o < g->nodes[nodes[k]].n_out; o++) {
            const value_t *from = &g->values[g->nodes[nodes[k]].out[o]];
            value_t *to = &out->values[out->nodes[k].out[o]];
            to->is_output = from->is_output || from->n_uses > to->n_uses;
        }
}

sinter_status_t graph_extract(const graph_t *g, const int *nodes, int n_nodes, graph_t *out)
{
    out->mode = g->mode;
    out->apply_to_int = g->apply_to_int;
    for (int k = 0; k < n_nodes; k++)
        SG_TRY(copy_node(g, &g->nodes[nodes[k]], out));
    SG_TRY(graph_sort(out));
    mark_outputs(g, out, nodes, n_nodes);
    return sinter_success;
}

/* ---- shapes and invariants ---------------------------------------------------------------------------------------------------------- */

enum { LOCAL_PORTS = 8 };

static sinter_status_t infer_node(graph_t *g, const node_t *n, lt_t *in, lt_t *out)
{
    for (int i = 0; i < n->n_in; i++)
        in[i] = g->values[n->in[i]].lt;
    for (int o = 0; o < n->n_out; o++) {
        out[o] = g->values[n->out[o]].lt;
        if (rank_is_open(&out[o])) {
            out[o].ndims = SINTER_UNKNOWN_NDIMS;
            out[o].layout_type = sinter_layout_type_any;
        }
    }
    SG_TRY(op_infer_shapes(n, in, out));
    for (int o = 0; o < n->n_out; o++)
        g->values[n->out[o]].lt = out[o];
    return sinter_success;
}

sinter_status_t graph_infer_shapes(graph_t *g)
{
    int most = LOCAL_PORTS;

    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        most = n->n_in > most ? n->n_in : most;
        most = n->n_out > most ? n->n_out : most;
    }
    lt_t *in = ARENA_NEW(&g->arena, lt_t, most), *out = ARENA_NEW(&g->arena, lt_t, most);
    if (in == NULL || out == NULL)
        return sinter_out_of_memory;
    for (int t = 0; t < graph_n_live(g); t++)
        SG_TRY(infer_node(g, &g->nodes[g->topo[t]], in, out));
    return sinter_success;
}

static sinter_status_t verify_node(const graph_t *g, int index, const char *where)
{
    const node_t *n = &g->nodes[index];
    const op_card_t *card = op_card(n->kind);

    if (card == NULL)
        return sg_fail(sinter_invalid_graph, "%s: op %llu is of no known kind", where, (unsigned long long)n->id);
    for (int i = 0; i < n->n_in; i++)
        if (n->in[i] < 0 || n->in[i] >= g->n_values)
            return sg_fail(sinter_invalid_graph, "%s: %s: input %d is no value", where, node_label(n), i);
    for (int o = 0; o < n->n_out; o++) {
        if (n->out[o] < 0 || n->out[o] >= g->n_values)
            return sg_fail(sinter_invalid_graph, "%s: %s: output %d is no value", where, node_label(n), o);
        const value_t *v = &g->values[n->out[o]];
        if (v->producer != index)
            return sg_fail(sinter_invalid_graph, "%s: %s: tensor %llu is produced by another op too", where, node_label(n),
                           (unsigned long long)v->lt.id);
    }
    return sinter_success;
}

sinter_status_t graph_verify(const graph_t *g, const char *where)
{
    for (int i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead)
            SG_TRY(verify_node(g, i, where));
    for (int v = 0; v < g->n_values; v++) {
        const int p = g->values[v].producer;
        if (p >= g->n_nodes || (p >= 0 && g->nodes[p].dead))
            return sg_fail(sinter_invalid_graph, "%s: tensor %llu is produced by an op that is gone", where,
                           (unsigned long long)g->values[v].lt.id);
        if (g->values[v].is_output && p < 0)
            return sg_fail(sinter_invalid_graph, "%s: output tensor %llu is produced by no op", where,
                           (unsigned long long)g->values[v].lt.id);
    }
    return sinter_success;
}
