#include "graph/graph.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "base/idmap.h"
#include "base/status.h"
#include "graph/layout.h"
#include "graph/quant.h"
#include "graph/schema.h"

void graph_init(graph_t *g, sinter_engine_t *engine)
{
    memset(g, 0, sizeof *g);
    g->engine = engine;
    arena_init(&g->arena, engine);
}

void graph_free(graph_t *g)
{
    arena_free(&g->arena);
    graph_init(g, g->engine);
}

int graph_find_value(const graph_t *g, uint64_t id)
{
    return idmap_get(g->ids, id);
}

/* ---- merging tensors of one id --------------------------------------------------------------- */

static void forget_rank(lt_t *lt)
{
    lt->ndims = SINTER_UNKNOWN_NDIMS;
    lt->layout_type =
        lt->layout_type == sinter_layout_type_strided ? sinter_layout_type_any : lt->layout_type;
}

/* One unknown dim may stand for an unknown number of dims: it does where the other side has
 * another rank or the tensor is produced by an op, whose inputs will tell. What is left with one
 * unknown dim really is a vector. */
static sinter_status_t merge_lt(const char *label, lt_t *into, const lt_t *from, bool produced)
{
    lt_t add = *from;
    const char *what;
    if (lt_is_any_rank(&add) && (produced || into->ndims != 1)) {
        forget_rank(&add);
    }
    if (lt_is_any_rank(into) && (produced || add.ndims != 1)) {
        forget_rank(into);
    }
    if (lt_merge(into, &add, &what)) {
        return sinter_success;
    }
    bool is_type = into->data_type != add.data_type;
    return sg_fail(is_type ? sinter_invalid_data_type : sinter_invalid_shape,
                   "%s: tensor %" PRIu64 " was given before with different %s", label, from->id,
                   what);
}

/* ---- adding ---------------------------------------------------------------------------------- */

/* What adding an op will do to one value, prepared so that the graph changes only when nothing
 * can fail any more. */
typedef struct change {
    int value; /* index; n_values and up: new */
    lt_t lt;
} change_t;

/* The change for id among those prepared, or a new one. */
static change_t *find_change(const graph_t *g, change_t *changes, int *n, int *n_new,
                             const lt_t *lt)
{
    int value = graph_find_value(g, lt->id);
    for (int i = 0; i < *n; i++) {
        if (changes[i].lt.id == lt->id) {
            return &changes[i];
        }
    }
    change_t *c = &changes[(*n)++];
    c->value = value >= 0 ? value : g->n_values + (*n_new)++;
    c->lt = value >= 0 ? g->values[value].lt : *lt;
    return c;
}

static bool is_produced(const graph_t *g, int value)
{
    return value < g->n_values && g->values[value].producer >= 0;
}

static sinter_status_t check_producer(const graph_t *g, const struct sinter_op *op,
                                      const char *label, int port)
{
    uint64_t id = op->out[port].id;
    int value = graph_find_value(g, id);
    if (value >= 0 && g->values[value].producer >= 0) {
        return sg_fail(sinter_invalid_graph, "%s: tensor %" PRIu64 " is already produced by %s",
                       label, id, node_label(&g->nodes[g->values[value].producer]));
    }
    for (int i = 0; i < port; i++) {
        if (op->out[i].id == id) {
            return sg_fail(sinter_invalid_graph, "%s: tensor %" PRIu64 " is given as two outputs",
                           label, id);
        }
    }
    return sinter_success;
}

static sinter_status_t prepare(const graph_t *g, const struct sinter_op *op, const char *label,
                               change_t *changes, int *n, int *n_new, int *ports)
{
    for (int i = 0; i < op->n_in + op->n_out; i++) {
        bool is_out = i >= op->n_in;
        const lt_t *lt = is_out ? &op->out[i - op->n_in] : &op->in[i];
        if (is_out) {
            SG_TRY(check_producer(g, op, label, i - op->n_in));
        }
        change_t *c = find_change(g, changes, n, n_new, lt);
        SG_TRY(merge_lt(label, &c->lt, lt, is_out || is_produced(g, c->value)));
        SG_TRY(lt_verify(&c->lt, is_out, label));
        ports[i] = c->value;
    }
    return sinter_success;
}

/* Room for one more node and n_new more values, in arrays and maps. */
static bool reserve(graph_t *g, int n_new)
{
    if (g->ids == NULL && (g->ids = idmap_new(&g->arena)) == NULL) {
        return false;
    }
    if (g->op_ids == NULL && (g->op_ids = idmap_new(&g->arena)) == NULL) {
        return false;
    }
    for (int i = 0; i < n_new; i++) {
        if (!arena_grow(&g->arena, (void **)&g->values, &g->cap_values, g->n_values + i,
                        sizeof *g->values)) {
            return false;
        }
    }
    return arena_grow(&g->arena, (void **)&g->nodes, &g->cap_nodes, g->n_nodes, sizeof *g->nodes) &&
           idmap_grow(g->op_ids, 1) && idmap_grow(g->ids, (size_t)n_new);
}

/* quant: NULL if the op neither quantises nor dequantises. */
static bool copy_node(arena_t *arena, const struct sinter_op *op, const quant_t *quant,
                      const int *ports, node_t *node)
{
    int n = op->n_in + op->n_out;
    int *in = ARENA_NEW(arena, int, n);
    attr_t *attrs = ARENA_NEW(arena, attr_t, op->n_attrs);
    char *name = arena_strdup(arena, op->name != NULL ? op->name : "");
    quant_t *descriptor = quant != NULL ? quant_copy(arena, quant) : NULL;
    bool ok = in != NULL && attrs != NULL && name != NULL && (quant == NULL || descriptor != NULL);
    for (int i = 0; ok && i < op->n_attrs; i++) {
        ok = attr_copy(arena, &op->attrs[i], &attrs[i]);
    }
    if (ok) {
        memcpy(in, ports, sizeof *in * (size_t)n);
        *node = (node_t){.id = op->id,
                         .name = name,
                         .kind = op->kind,
                         .n_in = op->n_in,
                         .n_out = op->n_out,
                         .n_attrs = op->n_attrs,
                         .in = in,
                         .out = in + op->n_in,
                         .attrs = attrs,
                         .quant = descriptor};
    }
    return ok;
}

/* Nothing in here can fail: reserve has made the room. */
static void commit(graph_t *g, const node_t *node, const change_t *changes, int n)
{
    int index = g->n_nodes++;
    g->nodes[index] = *node;
    idmap_put(g->op_ids, node->id, index);
    for (int i = 0; i < n; i++) {
        int v = changes[i].value;
        if (v >= g->n_values) {
            g->values[v] = (value_t){.producer = -1};
            g->n_values = v + 1;
            idmap_put(g->ids, changes[i].lt.id, v);
        }
        g->values[v].lt = changes[i].lt;
    }
    for (int i = 0; i < node->n_in; i++) {
        g->values[node->in[i]].n_uses++;
    }
    for (int i = 0; i < node->n_out; i++) {
        g->values[node->out[i]].producer = index;
        g->values[node->out[i]].producer_port = i;
    }
}

sinter_status_t graph_add_node(graph_t *g, const struct sinter_op *op)
{
    change_t changes[2 * OP_MAX_PORTS];
    int ports[2 * OP_MAX_PORTS], n = 0, n_new = 0;
    node_t node = {.id = op->id, .kind = op->kind};
    const char *label = node_label(&node);
    quant_t quant;
    SG_TRY(op_verify(op, &quant));
    const bool quantised = (op_flags(op->kind) & (OP_QUANT | OP_DEQUANT)) != 0;
    if (idmap_get(g->op_ids, op->id) >= 0) {
        return sg_fail(sinter_invalid_graph_op, "%s: an op with this id is already in the graph",
                       label);
    }
    SG_TRY(prepare(g, op, label, changes, &n, &n_new, ports));
    if (!reserve(g, n_new) || !copy_node(&g->arena, op, quantised ? &quant : NULL, ports, &node)) {
        return sinter_out_of_memory;
    }
    commit(g, &node, changes, n);
    return sinter_success;
}

int graph_add_value(graph_t *g, const lt_t *lt)
{
    uint64_t id = (UINT64_C(1) << 63) + (uint64_t)g->n_values;
    while (graph_find_value(g, id) >= 0) {
        id++;
    }
    if ((g->ids == NULL && (g->ids = idmap_new(&g->arena)) == NULL) ||
        !arena_grow(&g->arena, (void **)&g->values, &g->cap_values, g->n_values,
                    sizeof *g->values) ||
        !idmap_put(g->ids, id, g->n_values)) {
        return -1;
    }
    const int like = graph_find_value(g, lt->id);
    g->values[g->n_values] = (value_t){.lt = *lt, .producer = -1, .stands_for = like + 1};
    g->values[g->n_values].lt.id = id;
    return g->n_values++;
}

bool graph_repacks(const graph_t *g, const node_t *node)
{
    return node->kind == sinter_op_reorder &&
           (lt_is_opaque(&g->values[node->in[0]].lt) || lt_is_opaque(&g->values[node->out[0]].lt));
}

uint64_t graph_message_id(const graph_t *g, int value)
{
    while (g->values[value].stands_for > 0) {
        value = g->values[value].stands_for - 1;
    }
    return g->values[value].lt.id;
}
