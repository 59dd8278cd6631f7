/* Clustering. Nodes are taken in topological order. An elementwise node joins the latest cluster
 * among its producers if it has that cluster's dims, so that it can run on the registers. A small
 * program over tensors from outside (the dequantisation of a residual, a mask) floats: every
 * cluster that needs it computes it. */
#include "backend_xsmm/plan/lower.h"
#include "backend_xsmm/step.h"
#include "base/status.h"
#include "graph/cache.h"
#include "graph/experts.h"
#include "graph/schema.h"
#include "graph/shape.h"

bool lower_is_eltwise(sinter_op_kind_t kind)
{
    return (op_flags(kind) & (OP_ELTWISE | OP_QUANT | OP_DEQUANT)) != 0 ||
           kind == sinter_op_type_cast || kind == sinter_op_reorder;
}

bool lower_reads_itself(const lowering_t *lo, const node_t *n)
{
    if (lo->passed[n - lo->g->nodes] ||
        (lo->family == FAMILY_ATTENTION && graph_unpacks_cache(lo->g, n))) {
        return true;
    }
    return n->kind == sinter_op_gather && lo->g->values[n->in[1]].producer < 0 &&
           graph_product_of_experts(lo->g, n) != NULL;
}

bool lower_is_view(const node_t *n)
{
    return n->kind == sinter_op_static_reshape || n->kind == sinter_op_static_transpose ||
           n->kind == sinter_op_slice;
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

static sinter_status_t append(lowering_t *lo, cluster_t *cl, int node)
{
    if (!arena_grow(&lo->plan->arena, (void **)&cl->nodes, &cl->cap_nodes, cl->n_nodes,
                    sizeof(int))) {
        return sinter_out_of_memory;
    }
    cl->nodes[cl->n_nodes++] = node;
    return sinter_success;
}

bool lower_from_memory(const node_t *n, int port)
{
    const unsigned quant = op_flags(n->kind) & (OP_QUANT | OP_DEQUANT);
    const bool plane = (quant & OP_DEQUANT) != 0 && quant_split_of(n) != sinter_data_type_undef;
    return plane || (port > 0 && (quant != 0 || op_by_channels(n->kind)));
}

/* The floating node that makes an input in a register, -1 if none does. */
static int floating_producer(const lowering_t *lo, const node_t *n, int port)
{
    const int p = lower_from_memory(n, port) ? -1 : lo->g->values[n->in[port]].producer;
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
        cost += p >= 0 && !cluster_has(cl, p) ? pull_cost(lo, cl, p) : 0;
    }
    return cost;
}

/* Adds a node to a cluster, its floating producers first. */
static sinter_status_t pull(lowering_t *lo, cluster_t *cl, int node)
{
    const node_t *n = &lo->g->nodes[node];
    for (int i = 0; i < n->n_in; i++) {
        const int p = floating_producer(lo, n, i);
        if (p >= 0 && !cluster_has(cl, p)) {
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

sinter_status_t lower_fits(lowering_t *lo, int node, int space, bool *fits)
{
    SG_TRY(lower_same_space(lo, lo->g->nodes[node].out[0], space, fits));
    return *fits ? floats_broadcast(lo, node, space, fits) : sinter_success;
}

sinter_status_t lower_need_memory(lowering_t *lo, int value)
{
    const int p = lo->g->values[value].producer;
    if (p >= 0 && lo->floating[p]) {
        SG_TRY(lower_place(lo, p, true));
    }
    lo->stored[value] = true;
    return sinter_success;
}

sinter_status_t lower_join(lowering_t *lo, cluster_t *cl, int ci, int node)
{
    const int first = cl->n_nodes;
    SG_TRY(pull(lo, cl, node));
    for (int k = first; k < cl->n_nodes; k++) {
        const node_t *n = &lo->g->nodes[cl->nodes[k]];
        for (int i = 0; i < n->n_in && n->kind != sinter_op_gen_index; i++) {
            const int v = n->in[i];
            const bool in_register = floating_producer(lo, n, i) >= 0 ||
                                     (ci >= 0 ? lo->home[v] == ci : lo->spine[v] != 0);
            if (!in_register) {
                SG_TRY(lower_need_memory(lo, v));
            }
        }
    }
    return sinter_success;
}

sinter_status_t lower_need_operands(lowering_t *lo, const node_t *n)
{
    for (int k = 0; node_read(n, k) >= 0; k++) {
        SG_TRY(lower_need_memory(lo, node_read(n, k)));
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
        bool regs = lo->home[v] == lo->ready[v] && !lower_from_memory(n, i);
        const int r = p >= 0 ? latest_cluster(lo, p, &regs) : lo->ready[v];
        if (r >= latest && r >= 0) {
            *in_registers = regs && (r > latest || *in_registers);
            latest = r;
        }
    }
    return latest;
}

sinter_status_t lower_need_vectors(lowering_t *lo, const node_t *n)
{
    for (int i = 0; i < n->n_in; i++) {
        if (lower_from_memory(n, i)) {
            SG_TRY(lower_need_memory(lo, n->in[i]));
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
        SG_TRY(lower_fits(lo, node, n->out[0], &fits));
    }
    for (int i = 0; i < n->n_in && !fits; i++) {
        SG_TRY(lower_need_memory(lo, n->in[i]));
    }
    *ci = lower_new_chain(lo, n->out[0], lo->n_clusters);
    return *ci < 0 ? sinter_out_of_memory : sinter_success;
}

/* A floating node may be computed several times, so it costs at most this fraction of a cluster. */
enum { FLOAT_SHARE = 4 };

sinter_status_t lower_place(lowering_t *lo, int node, bool force)
{
    static const cluster_t none;
    const node_t *n = &lo->g->nodes[node];
    bool in_registers;
    SG_TRY(lower_need_vectors(lo, n));
    int ci = latest_cluster(lo, node, &in_registers);
    if (ci < 0 && !force && pull_cost(lo, &none, node) <= lo->max_cost / FLOAT_SHARE) {
        lo->floating[node] = true;
        return sinter_success;
    }
    const cluster_t *cl = ci >= 0 ? &lo->clusters[ci] : NULL;
    bool join = cl != NULL && in_registers && cl->cost + pull_cost(lo, cl, node) <= lo->max_cost;
    if (join) {
        SG_TRY(lower_fits(lo, node, cl->dims_value, &join));
    }
    lo->floating[node] = false;
    if (!join) {
        SG_TRY(open_chain(lo, node, &ci));
    }
    lo->home[n->out[0]] = lo->ready[n->out[0]] = ci;
    return lower_join(lo, &lo->clusters[ci], ci, node);
}

/* ---- all ------------------------------------------------------------------------------------- */

/* What a norm, a rotary embedding, a reduction or a window reads. A floating node that computes its
 * data becomes a part of the step (pre), which then passes over memory once. */
static sinter_status_t inputs_of_rows(lowering_t *lo, const node_t *n, cluster_t *pre)
{
    const int x = n->in[0], p = floating_producer(lo, n, 0);
    bool fits = p >= 0;
    for (int i = 1; i < n->n_in; i++) {
        SG_TRY(lower_need_memory(lo, n->in[i]));
    }
    if (fits) {
        SG_TRY(lower_fits(lo, p, x, &fits));
    }
    if (!fits) {
        return lower_need_memory(lo, x);
    }
    lo->floating[p] = false;
    return lower_join(lo, pre, -1, p);
}

sinter_status_t lower_heavy(lowering_t *lo, int node, step_kind_t kind)
{
    const node_t *n = &lo->g->nodes[node];
    const step_ops_t *ops = sinter_steps[kind];
    const int indices = op_index_port(n);
    cluster_t *pre = NULL;
    if (indices >= 0 && lo->g->values[n->in[indices]].producer >= 0 &&
        !graph_indices_fit(lo->g, n) &&
        (n->kind != sinter_op_gather || graph_gather_of_rows(lo->g, n->in[indices]) == NULL)) {
        return sg_fail(sinter_unimplemented, "%s: its indices are computed in the same partition",
                       node_label(n));
    }
    if (ops->takes_chain) {
        pre = ARENA_NEW(&lo->plan->arena, cluster_t, 1);
        SG_TRY(pre != NULL ? inputs_of_rows(lo, n, pre) : sinter_out_of_memory);
    } else {
        SG_TRY(lower_need_operands(lo, n));
    }
    const int ci = lower_new_cluster(lo, kind, node, n->out[0], lo->n_clusters);
    if (ci < 0) {
        return sinter_out_of_memory;
    }
    lo->clusters[ci].pre = pre;
    if (pre != NULL && pre->n_nodes > 0) { /* later readers find the data in memory */
        lo->ready[n->in[0]] = ci;
    }
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
        SG_TRY(lower_need_memory(lo, n->in[i]));
        lo->ready[out] =
            lo->ready[n->in[i]] > lo->ready[out] ? lo->ready[n->in[i]] : lo->ready[out];
    }
    lo->stored[out] = true;
    return sinter_success;
}

/* The kind of step that takes a node; STEP_KINDS: none does. */
static int kind_of(const lowering_t *lo, int node)
{
    const unsigned class = op_class(lo->g->nodes[node].kind);
    int kind = 0;
    for (; kind < STEP_KINDS; kind++) {
        const step_ops_t *ops = sinter_steps[kind];
        if (ops->takes != NULL ? ops->takes(lo, node) : (ops->classes & class) != 0) {
            break;
        }
    }
    return kind;
}

sinter_status_t lower_cluster(lowering_t *lo)
{
    const graph_t *g = lo->g;
    for (int t = 0; t < graph_n_live(g); t++) {
        const int node = g->topo[t];
        const node_t *n = &g->nodes[node];
        if (n->kind == sinter_op_end || lower_reads_itself(lo, n)) {
            continue; /* there is nothing to do */
        }
        const int kind = kind_of(lo, node);
        if (kind < STEP_KINDS) {
            const step_ops_t *ops = sinter_steps[kind];
            SG_TRY(ops->gather != NULL ? ops->gather(lo, node)
                                       : lower_heavy(lo, node, (step_kind_t)kind));
        } else if (lower_is_view(n)) {
            SG_TRY(lower_need_memory(lo, n->in[0]));
            lo->ready[n->out[0]] = lo->ready[n->in[0]];
        } else if (n->kind == sinter_op_concat) {
            SG_TRY(concat_node(lo, n));
        } else {
            return sg_fail(sinter_unimplemented, "%s: this op kind is not executed", node_label(n));
        }
    }
    for (int kind = 0; kind < STEP_KINDS; kind++) {
        SG_TRY(sinter_steps[kind]->gathered != NULL ? sinter_steps[kind]->gathered(lo)
                                                    : sinter_success);
    }
    for (int t = 0; t < graph_n_live(g); t++) {
        const node_t *n = &g->nodes[g->topo[t]];
        for (int o = 0; o < n->n_out; o++) {
            if (g->values[n->out[o]].is_output) {
                SG_TRY(lower_need_memory(lo, n->out[o]));
            }
        }
    }
    return sinter_success;
}
