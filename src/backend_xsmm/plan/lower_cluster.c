/* Clustering. Nodes are taken in topological order. An elementwise node joins the latest cluster
 * among its producers if it has that cluster's dims, so that it can run on the registers. A small
 * program over tensors from outside (the dequantisation of a residual, a mask) floats: every
 * cluster that needs it computes it. */
#include <string.h>

#include "backend_xsmm/plan/lower.h"
#include "backend_xsmm/step.h"
#include "base/status.h"
#include "graph/schema.h"
#include "graph/shape.h"

bool lower_is_eltwise(sinter_op_kind_t kind)
{
    return (op_flags(kind) & (OP_ELTWISE | OP_QUANT | OP_DEQUANT)) != 0 ||
           kind == sinter_op_type_cast || kind == sinter_op_reorder;
}

bool lower_is_view(const node_t *n)
{
    return n->kind == sinter_op_static_reshape || n->kind == sinter_op_static_transpose ||
           n->kind == sinter_op_slice;
}

static bool computes_scales(const node_t *n)
{
    return n->quant != NULL && n->quant->kind != QUANT_STATIC;
}

int lower_new_cluster(lowering_t *lo, step_kind_t kind, int heavy, int dims_value, int pos)
{
    if (!arena_grow(&lo->plan->arena, (void **)&lo->clusters, &lo->cap_clusters, lo->n_clusters,
                    sizeof(cluster_t))) {
        return -1;
    }
    lo->clusters[lo->n_clusters] = (cluster_t){
        .kind = kind, .heavy = heavy, .dims_value = dims_value, .tail = -1, .turn = -1, .pos = pos};
    return lo->n_clusters++;
}

static bool in_cluster(const cluster_t *cl, int node)
{
    for (int i = 0; i < cl->n_nodes; i++) {
        if (cl->nodes[i] == node) {
            return true;
        }
    }
    return false;
}

static sinter_status_t append(lowering_t *lo, cluster_t *cl, int node)
{
    if (!arena_grow(&lo->plan->arena, (void **)&cl->nodes, &cl->cap_nodes, cl->n_nodes,
                    sizeof(int))) {
        return sinter_out_of_memory;
    }
    cl->nodes[cl->n_nodes++] = node;
    return sinter_success;
}

/* Vectors beside the data (scales, zero points, biases) have dims of their own, so they are read
 * from memory and not from a register. Both planes of split codes are, too. */
static bool from_memory(const node_t *n, int port)
{
    const unsigned quant = op_flags(n->kind) & (OP_QUANT | OP_DEQUANT);
    const bool plane = (quant & OP_DEQUANT) != 0 && quant_split_of(n) != sinter_data_type_undef;
    return plane || (port > 0 && (quant != 0 || op_by_channels(n->kind)));
}

/* The floating node that makes an input in a register, -1 if none does. */
static int floating_producer(const lowering_t *lo, const node_t *n, int port)
{
    const int p = from_memory(n, port) ? -1 : lo->g->values[n->in[port]].producer;
    return p >= 0 && lo->floating[p] ? p : -1;
}

/* The number of instructions that a node adds: its own, its loads, and the arithmetic of scales and
 * zero points. */
static int node_cost(const node_t *n)
{
    return 1 + n->n_in +
           ((op_flags(n->kind) & (OP_QUANT | OP_DEQUANT)) ? 4
            : n->kind == sinter_op_batch_norm_inference   ? 6
                                                          : 0);
}

/* The cost of a node with the floating producers that it would pull into a cluster. Floating nodes
 * are cheap, so the walk is short. */
static int pull_cost(const lowering_t *lo, const cluster_t *cl, int node)
{
    const node_t *n = &lo->g->nodes[node];
    int cost = node_cost(n);
    for (int i = 0; i < n->n_in; i++) {
        const int p = floating_producer(lo, n, i);
        cost += p >= 0 && !in_cluster(cl, p) ? pull_cost(lo, cl, p) : 0;
    }
    return cost;
}

/* Adds a node to a cluster, its floating producers first. */
static sinter_status_t pull(lowering_t *lo, cluster_t *cl, int node)
{
    const node_t *n = &lo->g->nodes[node];
    for (int i = 0; i < n->n_in; i++) {
        const int p = floating_producer(lo, n, i);
        if (p >= 0 && !in_cluster(cl, p)) {
            SG_TRY(pull(lo, cl, p));
        }
    }
    cl->cost += node_cost(n);
    return append(lo, cl, node);
}

/* A node may be evaluated in the dims of value `space`, which its own dims broadcast to; but not if
 * its result depends on the index along a dim, and that dim would become another one or a longer
 * one. */
static sinter_status_t may_broadcast(lowering_t *lo, const node_t *n, int space, bool *may)
{
    const lt_t *own = &lo->probe[n->out[0]], *dims = &lo->probe[space];
    *may = own->ndims == dims->ndims || !op_by_channels(n->kind);
    if (n->kind != sinter_op_gen_index) {
        return sinter_success;
    }
    const int64_t axis = node_s64(n, sinter_op_attr_axis, 0),
                  d = axis < 0 ? axis + own->ndims : axis;
    const bool known = lo->g->values[n->out[0]].lt.ndims == own->ndims &&
                       lo->g->values[n->out[0]].lt.dims[d] != SINTER_UNKNOWN_DIM;
    *may = own->ndims == dims->ndims && own->dims[d] == dims->dims[d];
    return *may && !known ? lower_same_space(lo, n->out[0], space, may) : sinter_success;
}

/* The floating producers of a node may be evaluated in the dims of value `space`. */
static sinter_status_t floats_broadcast(lowering_t *lo, int node, int space, bool *may)
{
    const node_t *n = &lo->g->nodes[node];
    *may = true;
    for (int i = 0; i < n->n_in && *may; i++) {
        const int p = floating_producer(lo, n, i);
        if (p >= 0) {
            SG_TRY(may_broadcast(lo, &lo->g->nodes[p], space, may));
        }
        if (p >= 0 && *may) {
            SG_TRY(floats_broadcast(lo, p, space, may));
        }
    }
    return sinter_success;
}

static sinter_status_t place(lowering_t *lo, int node, bool force);

/* Some reader needs the value in memory, not in a register. */
static sinter_status_t need_memory(lowering_t *lo, int value)
{
    const int p = lo->g->values[value].producer;
    if (p >= 0 && lo->floating[p]) {
        SG_TRY(place(lo, p, true));
    }
    lo->stored[value] = true;
    return sinter_success;
}

/* Puts into memory all inputs of the cluster's nodes from `first` on that cluster ci does not have
 * in registers. ci -1: a part of attention, whose registers are the spine. */
static sinter_status_t need_inputs(lowering_t *lo, const cluster_t *cl, int first, int ci)
{
    for (int k = first; k < cl->n_nodes; k++) {
        const node_t *n = &lo->g->nodes[cl->nodes[k]];
        for (int i = 0; i < n->n_in && n->kind != sinter_op_gen_index; i++) {
            const int v = n->in[i];
            const bool in_register = floating_producer(lo, n, i) >= 0 ||
                                     (ci >= 0 ? lo->home[v] == ci : lo->spine[v] != 0);
            if (!in_register) {
                SG_TRY(need_memory(lo, v));
            }
        }
    }
    return sinter_success;
}

/* Puts into memory the operands of a step that is more than a chain, with their scales and zero
 * points. */
static sinter_status_t need_operands(lowering_t *lo, const node_t *n)
{
    for (int k = 0; node_read(n, k) >= 0; k++) {
        SG_TRY(need_memory(lo, node_read(n, k)));
    }
    return sinter_success;
}

/* The latest cluster among the producers of a node and of its floating producers; *in_registers:
 * all inputs from that cluster are in its registers. */
static int latest_cluster(const lowering_t *lo, int node, bool *in_registers)
{
    const node_t *n = &lo->g->nodes[node];
    int latest = -1;
    *in_registers = true;
    for (int i = 0; i < n->n_in; i++) {
        const int v = n->in[i], p = floating_producer(lo, n, i);
        bool regs = lo->home[v] == lo->ready[v] && !from_memory(n, i);
        const int r = p >= 0 ? latest_cluster(lo, p, &regs) : lo->ready[v];
        if (r >= latest && r >= 0) {
            *in_registers = regs && (r > latest || *in_registers);
            latest = r;
        }
    }
    return latest;
}

/* Inputs that are read from memory are placed first, so that their cluster runs first. */
static sinter_status_t need_vectors(lowering_t *lo, const node_t *n)
{
    for (int i = 0; i < n->n_in; i++) {
        if (from_memory(n, i)) {
            SG_TRY(need_memory(lo, n->in[i]));
        }
    }
    return sinter_success;
}

/* Opens a chain for a node. If its floating producers are too many, or have dims that do not
 * broadcast to those of the chain, they become chains before it. */
static sinter_status_t open_chain(lowering_t *lo, int node, int *ci)
{
    static const cluster_t none;
    const node_t *n = &lo->g->nodes[node];
    bool fits = pull_cost(lo, &none, node) <= lo->max_cost;
    if (fits) {
        SG_TRY(floats_broadcast(lo, node, n->out[0], &fits));
    }
    for (int i = 0; i < n->n_in && !fits; i++) {
        SG_TRY(need_memory(lo, n->in[i]));
    }
    *ci = lower_new_cluster(lo, STEP_CHAIN, -1, n->out[0], lo->n_clusters);
    return *ci < 0 ? sinter_out_of_memory : sinter_success;
}

/* A floating node may be computed several times, so it costs at most this fraction of a cluster. */
enum { FLOAT_SHARE = 4 };

/* Lets an elementwise node float, join a cluster, or open a chain. force: it must not float. */
static sinter_status_t place(lowering_t *lo, int node, bool force)
{
    static const cluster_t none;
    const node_t *n = &lo->g->nodes[node];
    bool in_registers;
    SG_TRY(need_vectors(lo, n));
    int ci = latest_cluster(lo, node, &in_registers);
    if (ci < 0 && !force && pull_cost(lo, &none, node) <= lo->max_cost / FLOAT_SHARE) {
        lo->floating[node] = true;
        return sinter_success;
    }
    const cluster_t *cl = ci >= 0 ? &lo->clusters[ci] : NULL;
    bool join = cl != NULL && in_registers && cl->cost + pull_cost(lo, cl, node) <= lo->max_cost;
    if (join) {
        SG_TRY(lower_same_space(lo, n->out[0], cl->dims_value, &join));
    }
    if (join) {
        SG_TRY(floats_broadcast(lo, node, cl->dims_value, &join));
    }
    lo->floating[node] = false;
    if (!join) {
        SG_TRY(open_chain(lo, node, &ci));
    }
    const int before = lo->clusters[ci].n_nodes;
    SG_TRY(pull(lo, &lo->clusters[ci], node));
    lo->home[n->out[0]] = lo->ready[n->out[0]] = ci;
    return need_inputs(lo, &lo->clusters[ci], before, ci);
}

/* ---- attention ------------------------------------------------------------------------------- */

enum { SPINE_SCORE = 1, SPINE_PROB = 2 };

/* The parts of the spine that a node reads: SPINE_SCORE, SPINE_PROB or both. */
static int spine_of(const lowering_t *lo, const node_t *n)
{
    int s = 0;
    for (int k = 0; node_read(n, k) >= 0; k++) {
        s |= lo->spine[node_read(n, k)];
    }
    return s;
}

static sinter_status_t give_up(lowering_t *lo, const char *why)
{
    lo->why_not = why;
    return sinter_unimplemented;
}

static sinter_status_t score_matmul(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    if (n->n_in > 2) {
        return give_up(lo, "the score matmul has a bias");
    }
    if (lo->att.qk >= 0) {
        return give_up(lo, "more than one score matmul");
    }
    SG_TRY(need_operands(lo, n));
    lo->att.qk = node;
    lo->spine[n->out[0]] = SPINE_SCORE;
    return sinter_success;
}

static sinter_status_t score_softmax(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const int64_t axis = node_s64(n, sinter_op_attr_axis, 1);
    if (axis != -1 && axis != lo->probe[n->in[0]].ndims - 1) {
        return give_up(lo, "softmax is not over the last axis");
    }
    if (n->n_in > 1) {
        if (lo->spine[n->in[1]] != 0) {
            return give_up(lo, "the softmax's sinks depend on the scores");
        }
        SG_TRY(need_memory(lo, n->in[1]));
    }
    if (n->n_out > 1) {
        if (lo->g->values[n->out[1]].n_uses > 0) {
            return give_up(lo, "the softmax statistics are used inside");
        }
        lo->stored[n->out[1]] = true;
    }
    lo->att.softmax = node;
    lo->spine[n->out[0]] = SPINE_PROB;
    return sinter_success;
}

static sinter_status_t value_matmul(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    if (lo->att.pv >= 0 || n->n_in > 2 || lo->spine[n->in[0]] != SPINE_PROB ||
        lo->spine[n->in[1]] != 0 || node_bool(n, sinter_op_attr_transpose_a, false)) {
        return give_up(
            lo,
            "the probabilities do not go as they are, on the left, into one matmul without bias");
    }
    SG_TRY(need_operands(lo, n));
    const int ci = lower_new_cluster(lo, STEP_ATTENTION, node, n->out[0], lo->n_clusters);
    if (ci < 0) {
        return sinter_out_of_memory;
    }
    lo->att.pv = node;
    lo->home[n->out[0]] = lo->ready[n->out[0]] = ci;
    return sinter_success;
}

/* Elementwise work on tiles of scores or probabilities. */
static sinter_status_t spine_eltwise(lowering_t *lo, int node, int spine)
{
    const node_t *n = &lo->g->nodes[node];
    const int scores = lo->g->nodes[lo->att.qk].out[0];
    bool fits;
    cluster_t *part = spine == SPINE_SCORE ? &lo->att.score : &lo->att.prob;
    const int before = part->n_nodes;
    SG_TRY(need_vectors(lo, n));
    SG_TRY(lower_same_space(lo, n->out[0], scores, &fits));
    if (fits) {
        SG_TRY(floats_broadcast(lo, node, scores, &fits));
    }
    if (!fits) {
        return give_up(lo, "an op between the two matmuls changes dims");
    }
    SG_TRY(pull(lo, part, node));
    if (part->cost > lo->max_cost) {
        return give_up(lo, "too many elementwise ops between the two matmuls");
    }
    lo->spine[n->out[0]] = (char)spine;
    return need_inputs(lo, part, before, -1);
}

/* Places the score MatMul, or a node that reads a score or a probability. */
static sinter_status_t attention_node(lowering_t *lo, int node, int spine)
{
    const node_t *n = &lo->g->nodes[node];
    for (int i = 0; i < n->n_in; i++) {
        if (from_memory(n, i) && lo->spine[n->in[i]] != 0) {
            return give_up(lo,
                           "scores are used as a vector beside other data, or as a plane of codes");
        }
    }
    if (spine == (SPINE_SCORE | SPINE_PROB)) {
        return give_up(lo, "scores are used beside the probabilities");
    }
    if (n->kind == sinter_op_matmul) {
        return spine == 0 ? score_matmul(lo, node) : value_matmul(lo, node);
    }
    if (n->kind == sinter_op_softmax && spine == SPINE_SCORE && lo->att.softmax < 0) {
        return score_softmax(lo, node);
    }
    return lower_is_eltwise(n->kind)
               ? spine_eltwise(lo, node, spine)
               : give_up(lo,
                         "an op between the two matmuls is neither elementwise nor the softmax");
}

/* A GenIndex over the scores that only views read. It needs no score, only their dims, so it is a
 * chain of its own. */
static bool index_apart(const lowering_t *lo, const node_t *n)
{
    const graph_t *g = lo->g;
    const int v = n->out[0];
    bool apart = n->kind == sinter_op_gen_index;
    for (int u = g->uses_begin[v]; u < g->uses_begin[v + 1]; u++) {
        apart = apart && lower_is_view(&g->nodes[g->uses[u]]);
    }
    return apart;
}

/* Refuses attention whose scores or probabilities are needed as a whole: they exist in tiles
 * only. */
static sinter_status_t check_spine(lowering_t *lo)
{
    if (lo->att.pv < 0) {
        return give_up(lo, "no second matmul over the softmax");
    }
    for (int v = 0; v < lo->g->n_values; v++) {
        if (lo->spine[v] != 0 && lo->g->values[v].is_output) {
            return give_up(lo, "scores or probabilities are an output");
        }
    }
    return sinter_success;
}

/* ---- all ------------------------------------------------------------------------------------- */

/* Why the kernels of a cluster cannot quantise groups of a value that it has in registers; NULL:
 * they can for all dims that execute may bring. */
static const char *refuse_tail(const lowering_t *lo, const cluster_t *cl, const lt_t *data,
                               const quant_geom_t *geom)
{
    const int last = data->ndims - 1;
    tail_groups_t t = {.g = lo->g,
                       .heavy = cl->heavy >= 0 ? &lo->g->nodes[cl->heavy] : NULL,
                       .data = data,
                       .geom = geom,
                       .rows = 1,
                       .columns = 1};
    if (last < 0) {
        return "the data is a scalar";
    }
    for (int d = 0; d <= last; d++) {
        const int64_t group = data->dims[d] == 1 ? 1 : geom->scale_group[d];
        if (data->dims[d] == 0) {
            return "groups of no elements have scales, too";
        }
        if (group == SINTER_UNKNOWN_DIM || group < 1) {
            return "the size of the groups is not known at compile";
        }
        if (d < last - 1 && group > 1) {
            return "groups lie across other dims than the last two";
        }
        t.rows = d == last - 1 ? group : t.rows;
        t.columns = d == last ? group : t.columns;
    }
    return sinter_steps[cl->kind]->refuse_tail != NULL
               ? sinter_steps[cl->kind]->refuse_tail(&t)
               : "steps of its kind have no quantising tail";
}

/* The cluster that has the data of a DynamicQuantize in registers and can quantise it there. -1:
 * none can, for the reason *why; NULL: no cluster has the data. */
static sinter_status_t tail_cluster(lowering_t *lo, const node_t *n, int *cluster, const char **why)
{
    const int p = lo->g->values[n->in[0]].producer;
    quant_geom_t geom;
    *cluster = -1;
    *why = NULL;
    /* the tensor scale, which must be in memory before the step begins */
    for (int i = 1; i < n->n_in; i++) {
        if (lo->g->values[n->in[i]].producer >= 0) {
            return sg_fail(sinter_unimplemented,
                           "%s: its tensor scale is computed in the same partition", node_label(n));
        }
        SG_TRY(need_memory(lo, n->in[i]));
    }
    if (p >= 0 && lo->floating[p]) {
        SG_TRY(place(lo, p, true));
    }
    const int ci = lo->home[n->in[0]];
    if (p < 0 || ci < 0) {
        *why = p >= 0 && lower_is_view(&lo->g->nodes[p]) ? "its data is a view" : NULL;
        return sinter_success;
    }
    SG_TRY(lower_quant_geometry(lo, n, &geom));
    *why = refuse_tail(lo, &lo->clusters[ci], &lo->g->values[n->in[0]].lt, &geom);
    if (*why == NULL && lo->clusters[ci].tail >= 0) {
        *why = "its data is quantised once already";
    }
    *cluster = *why == NULL ? ci : -1;
    return sinter_success;
}

static sinter_status_t quantise_node(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const char *why;
    int ci;
    SG_TRY(tail_cluster(lo, n, &ci, &why));
    if (ci >= 0) {
        lo->clusters[ci].tail = node;
    } else {
        SG_TRY(need_operands(lo, n));
        ci = lower_new_cluster(lo, STEP_DYNQUANT, node, n->out[0], lo->n_clusters);
        if (ci < 0) {
            return sinter_out_of_memory;
        }
        lo->clusters[ci].why_separate = why;
    }
    for (int o = 0; o < n->n_out; o++) {
        lo->ready[n->out[o]] = ci;
        lo->stored[n->out[o]] = true;
    }
    return sinter_success;
}

/* What a norm, a rotary embedding, a reduction or a window reads. A floating node that computes
 * its data becomes a part of the step, which then passes over memory once; later readers find
 * its result in memory. */
static sinter_status_t inputs_of_rows(lowering_t *lo, const node_t *n, int ci, cluster_t *pre)
{
    const int x = n->in[0], p = floating_producer(lo, n, 0);
    bool fits = p >= 0;
    for (int i = 1; i < n->n_in; i++) {
        SG_TRY(need_memory(lo, n->in[i]));
    }
    if (fits) {
        SG_TRY(floats_broadcast(lo, p, x, &fits));
    }
    if (!fits) {
        return need_memory(lo, x);
    }
    SG_TRY(pull(lo, pre, p));
    SG_TRY(need_inputs(lo, pre, 0, -1));
    lo->floating[p] = false;
    lo->ready[x] = ci;
    return sinter_success;
}

/* The kind of step that a node makes by its class; STEP_KINDS: none. */
static int kind_of(const node_t *n)
{
    int kind = 0;
    while (kind < STEP_KINDS && (sinter_steps[kind]->classes & op_class(n->kind)) == 0) {
        kind++;
    }
    return kind;
}

/* Makes the step of a node that is not elementwise. */
static sinter_status_t heavy_node(lowering_t *lo, int node, step_kind_t kind)
{
    const node_t *n = &lo->g->nodes[node];
    const step_ops_t *ops = sinter_steps[kind];
    const int indices = op_index_port(n);
    cluster_t *pre = NULL;
    if (indices >= 0 && lo->g->values[n->in[indices]].producer >= 0) {
        return sg_fail(sinter_unimplemented, "%s: its indices are computed in the same partition",
                       node_label(n));
    }
    if (ops->joins != NULL && ops->joins(lo, node)) {
        return sinter_success;
    }
    if (ops->takes_chain) {
        pre = ARENA_NEW(&lo->plan->arena, cluster_t, 1);
        SG_TRY(pre != NULL ? inputs_of_rows(lo, n, lo->n_clusters, pre) : sinter_out_of_memory);
    } else {
        SG_TRY(need_operands(lo, n));
    }
    const int ci = lower_new_cluster(lo, kind, node, n->out[0], lo->n_clusters);
    if (ci < 0) {
        return sinter_out_of_memory;
    }
    lo->clusters[ci].pre = pre;
    for (int o = 0; o < n->n_out; o++) {
        lo->ready[n->out[o]] = ci;
        lo->stored[n->out[o]] = ops->to_memory || o > 0;
    }
    lo->home[n->out[0]] = ops->to_memory ? -1 : ci;
    return sinter_success;
}

/* Copies bring the inputs of a Concat to their places (lower_memory.c). They run after the cluster
 * that makes the last one. */
static sinter_status_t concat_node(lowering_t *lo, const node_t *n)
{
    const int out = n->out[0];
    for (int i = 0; i < n->n_in; i++) {
        SG_TRY(need_memory(lo, n->in[i]));
        lo->ready[out] =
            lo->ready[n->in[i]] > lo->ready[out] ? lo->ready[n->in[i]] : lo->ready[out];
    }
    lo->stored[out] = true;
    return sinter_success;
}

sinter_status_t lower_cluster(lowering_t *lo)
{
    const graph_t *g = lo->g;
    for (int t = 0; t < graph_n_live(g); t++) {
        const int node = g->topo[t];
        const node_t *n = &g->nodes[node];
        const int spine = lo->attention && !index_apart(lo, n) ? spine_of(lo, n) : 0;
        const bool qk = lo->attention && n->kind == sinter_op_matmul && n->role != NULL &&
                        strcmp(n->role, "qk") == 0;
        if (n->kind == sinter_op_end) {
            continue; /* there is nothing to do */
        }
        if (qk || spine != 0) {
            SG_TRY(attention_node(lo, node, spine));
        } else if (lower_is_view(n)) {
            SG_TRY(need_memory(lo, n->in[0]));
            lo->ready[n->out[0]] = lo->ready[n->in[0]];
        } else if (kind_of(n) < STEP_KINDS) {
            SG_TRY(heavy_node(lo, node, (step_kind_t)kind_of(n)));
        } else if (n->kind == sinter_op_concat) {
            SG_TRY(concat_node(lo, n));
        } else if (computes_scales(n)) {
            SG_TRY(quantise_node(lo, node));
        } else if (lower_is_eltwise(n->kind)) {
            SG_TRY(place(lo, node, false));
        } else {
            return sg_fail(sinter_unimplemented, "%s: this op kind is not executed", node_label(n));
        }
    }
    if (lo->attention) {
        SG_TRY(check_spine(lo));
    }
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        for (int o = 0; o < n->n_out; o++) {
            if (g->values[n->out[o]].is_output) {
                SG_TRY(need_memory(lo, n->out[o]));
            }
        }
    }
    return sinter_success;
}
