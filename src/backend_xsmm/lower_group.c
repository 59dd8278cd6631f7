/* Grouping. Nodes are taken in topological order. An elementwise node joins the latest group among its producers if it has that group's dims, so that it can run
 * on the registers; a node over external tensors only (a residual's dequantise, a mask) floats: it is computed inside whichever group needs it. */
#include <string.h>

#include "../graph/quant.h"
#include "../graph/schema.h"
#include "../graph/status.h"
#include "lower.h"

bool lower_is_eltwise(sinter_op_kind_t kind) {
    return (op_flags(kind) & (OP_ELTWISE | OP_QUANT | OP_DEQUANT)) != 0 || kind == sinter_op_type_cast || kind == sinter_op_reorder;
}

bool lower_same_dims(const lt_t *a, const lt_t *b) {
    return a->ndims == b->ndims && (a->ndims <= 0 || memcmp(a->dims, b->dims, sizeof(int64_t) * (size_t)a->ndims) == 0);
}

static bool is_view(const node_t *n) { return n->kind == sinter_op_static_reshape || n->kind == sinter_op_static_transpose; }

static bool computes_scales(const node_t *n) {
    const char *kind = node_str(n, sinter_op_attr_quantization_kind, "static");
    return n->kind == sinter_op_dynamic_quantize && strcmp(kind, "static") != 0;
}

int lower_new_group(lowering_t *lo, step_kind_t kind, int heavy, int dims_value, int pos) {
    if (!arena_grow(&lo->plan->arena, (void **)&lo->groups, &lo->cap_groups, lo->n_groups, sizeof(group_t))) {
        return -1;
    }
    lo->groups[lo->n_groups] = (group_t){.kind = kind, .heavy = heavy, .dims_value = dims_value, .pos = pos};
    return lo->n_groups++;
}

static bool in_group(const group_t *gr, int node) {
    for (int i = 0; i < gr->n_nodes; i++) {
        if (gr->nodes[i] == node) {
            return true;
        }
    }
    return false;
}

static sinter_status_t append(lowering_t *lo, group_t *gr, int node) {
    if (!arena_grow(&lo->plan->arena, (void **)&gr->nodes, &gr->cap_nodes, gr->n_nodes, sizeof(int))) {
        return sinter_out_of_memory;
    }
    gr->nodes[gr->n_nodes++] = node;
    return sinter_success;
}

/* Instructions a node adds: itself, its loads, and the arithmetic of scales and zero points. */
static int node_cost(const node_t *n) { return 1 + n->n_in + ((op_flags(n->kind) & (OP_QUANT | OP_DEQUANT)) ? 4 : 0); }

/* Cost of a node with the floating producers it would pull into a group; INT_MAX/4 at most. */
static int pull_cost(const lowering_t *lo, const group_t *gr, int node, int depth) {
    const node_t *n = &lo->g->nodes[node];
    int cost = node_cost(n);
    for (int i = 0; i < n->n_in && cost <= lo->max_cost && depth < 256; i++) {
        const int p = lo->g->values[n->in[i]].producer;
        if (p >= 0 && lo->floating[p] && !in_group(gr, p)) {
            cost += pull_cost(lo, gr, p, depth + 1);
        }
    }
    return depth >= 256 ? lo->max_cost + 1 : cost;
}

/* Adds a node to a group, its floating producers first. */
static sinter_status_t pull(lowering_t *lo, group_t *gr, int node) {
    const node_t *n = &lo->g->nodes[node];
    for (int i = 0; i < n->n_in; i++) {
        const int p = lo->g->values[n->in[i]].producer;
        if (p >= 0 && lo->floating[p] && !in_group(gr, p)) {
            SG_TRY(pull(lo, gr, p));
        }
    }
    gr->cost += node_cost(n);
    return append(lo, gr, node);
}

/* Floating producers are evaluated in the group's dims; an index along a dim that is broadcast there would be another index. */
static bool floats_broadcast(const lowering_t *lo, int node, const lt_t *dims, int depth) {
    const node_t *n = &lo->g->nodes[node];
    for (int i = 0; i < n->n_in; i++) {
        const int p = lo->g->values[n->in[i]].producer;
        if (p < 0 || !lo->floating[p]) {
            continue;
        }
        const node_t *f = &lo->g->nodes[p];
        const bool indexed = f->kind == sinter_op_gen_index || (op_flags(f->kind) & (OP_QUANT | OP_DEQUANT)) || f->kind == sinter_op_bias_add ||
                             f->kind == sinter_op_prelu;
        if (depth > 64 || (indexed && !lower_same_dims(&lo->probe[f->out[0]], dims)) || !floats_broadcast(lo, p, dims, depth + 1)) {
            return false;
        }
    }
    return true;
}

static sinter_status_t place(lowering_t *lo, int node, bool force);

/* The value will be read from memory by something outside registers. */
static sinter_status_t need_memory(lowering_t *lo, int value) {
    const int p = lo->g->values[value].producer;
    if (p >= 0 && lo->floating[p]) {
        SG_TRY(place(lo, p, true));
    }
    lo->stored[value] = true;
    return sinter_success;
}

/* The latest group among the producers, through floating ones; *in_registers: everything from that group is there in registers. */
static int latest_group(const lowering_t *lo, int node, bool *in_registers, int depth) {
    const node_t *n = &lo->g->nodes[node];
    int latest = -1;
    *in_registers = true;
    for (int i = 0; i < n->n_in; i++) {
        const int v = n->in[i], p = lo->g->values[v].producer;
        bool regs = true;
        int r = lo->ready[v];
        if (p >= 0 && lo->floating[p]) {
            r = depth < 256 ? latest_group(lo, p, &regs, depth + 1) : -1;
        } else if (r >= 0) {
            regs = lo->home[v] == r;
        }
        if (r > latest) {
            latest = r;
            *in_registers = regs;
        } else if (r == latest && r >= 0) {
            *in_registers = *in_registers && regs;
        }
    }
    return latest;
}


/* An elementwise node: floats, joins, or opens a chain. force: it must have a group now. */
static sinter_status_t place(lowering_t *lo, int node, bool force) {
    const node_t *n = &lo->g->nodes[node];
    bool in_registers;
    int gi = latest_group(lo, node, &in_registers, 0);
    if (gi < 0 && !force) {
        lo->floating[node] = true;
        return sinter_success;
    }
    const lt_t *dims = &lo->probe[n->out[0]];
    const group_t *gr = gi >= 0 ? &lo->groups[gi] : NULL;
    const bool join = gr != NULL && in_registers && gr->kind != STEP_DYNQUANT && lower_same_dims(dims, &lo->probe[gr->dims_value]) &&
                      gr->cost + pull_cost(lo, gr, node, 0) <= lo->max_cost && floats_broadcast(lo, node, dims, 0);
    lo->floating[node] = false;
    if (!join) {
        /* Floating producers with other dims than this chain, or too many of them, become chains of their own. */
        static const group_t none;
        const bool alone = !floats_broadcast(lo, node, dims, 0) || pull_cost(lo, &none, node, 0) > lo->max_cost;
        for (int i = 0; i < n->n_in && alone; i++) {
            SG_TRY(need_memory(lo, n->in[i]));
        }
        gi = lower_new_group(lo, STEP_CHAIN, -1, n->out[0], lo->n_groups);
        if (gi < 0) {
            return sinter_out_of_memory;
        }
    }
    const int before = lo->groups[gi].n_nodes;
    SG_TRY(pull(lo, &lo->groups[gi], node));
    /* need_memory may open further groups and move the array: go by index. */
    group_t added = lo->groups[gi];
    added.nodes += before;
    added.n_nodes -= before;
    for (int k = 0; k < added.n_nodes; k++) {
        const node_t *m = &lo->g->nodes[added.nodes[k]];
        for (int i = 0; i < m->n_in; i++) {
            const int p = lo->g->values[m->in[i]].producer;
            if (lo->home[m->in[i]] != gi && !(p >= 0 && in_group(&lo->groups[gi], p))) {
                SG_TRY(need_memory(lo, m->in[i]));
            }
        }
    }
    lo->home[n->out[0]] = lo->ready[n->out[0]] = gi;
    return sinter_success;
}

/* ---- attention ---------------------------------------------------------------------------------------------------------------- */

static char spine_of(const lowering_t *lo, const node_t *n) {
    char s = 0;
    for (int i = 0; i < n->n_in; i++) {
        s = lo->spine[n->in[i]] > s ? lo->spine[n->in[i]] : s;
    }
    return s;
}

static sinter_status_t give_up(lowering_t *lo, const char *why) {
    lo->why_not = why;
    return sinter_unimplemented;
}

/* Nodes between QK and PV. Called for nodes that read a score or a probability, and for the QK MatMul. */
static sinter_status_t attention_node(lowering_t *lo, int node, char spine) {
    const node_t *n = &lo->g->nodes[node];
    attention_parts_t *att = &lo->att;
    const lt_t *scores = att->qk >= 0 ? &lo->probe[lo->g->nodes[att->qk].out[0]] : NULL;
    if (n->kind == sinter_op_matmul && spine == 0) {
        for (int i = 0; i < n->n_in; i++) {
            SG_TRY(need_memory(lo, n->in[i]));
        }
        if (n->n_in > 2) {
            return give_up(lo, "the score matmul has a bias");
        }
        att->qk = node;
        lo->spine[n->out[0]] = 's';
        return sinter_success;
    }
    if (n->kind == sinter_op_softmax && spine == 's' && att->softmax < 0) {
        const int64_t axis = node_s64(n, sinter_op_attr_axis, 1);
        if (axis != -1 && axis != scores->ndims - 1) {
            return give_up(lo, "softmax is not over the last axis");
        }
        att->softmax = node;
        lo->spine[n->out[0]] = 'p';
        if (n->n_out > 1) {
            lo->stored[n->out[1]] = true;
        }
        return sinter_success;
    }
    if (n->kind == sinter_op_matmul && spine == 'p' && lo->spine[n->in[0]] == 'p' && lo->spine[n->in[1]] == 0 && n->n_in == 2 &&
        !node_bool(n, sinter_op_attr_transpose_a, false)) {
        SG_TRY(need_memory(lo, n->in[1]));
        att->pv = node;
        const int gi = lower_new_group(lo, STEP_ATTENTION, node, n->out[0], lo->n_groups);
        if (gi < 0) {
            return sinter_out_of_memory;
        }
        lo->home[n->out[0]] = lo->ready[n->out[0]] = gi;
        if (lo->g->nodes[att->softmax].n_out > 1) {
            lo->ready[lo->g->nodes[att->softmax].out[1]] = gi;
        }
        return sinter_success;
    }
    if (!lower_is_eltwise(n->kind)) {
        return give_up(lo, "an op between the two matmuls is neither elementwise nor the softmax");
    }
    if (!lower_same_dims(&lo->probe[n->out[0]], scores) || !floats_broadcast(lo, node, scores, 0)) {
        return give_up(lo, "an op between the two matmuls changes dims");
    }
    group_t *part = spine == 's' ? &att->score : &att->prob;
    const int before = part->n_nodes;
    SG_TRY(pull(lo, part, node));
    if (part->cost > lo->max_cost) {
        return give_up(lo, "too many elementwise ops between the two matmuls");
    }
    lo->spine[n->out[0]] = spine;
    group_t added = *part;
    added.nodes += before;
    added.n_nodes -= before;
    for (int k = 0; k < added.n_nodes; k++) {
        const node_t *m = &lo->g->nodes[added.nodes[k]];
        for (int i = 0; i < m->n_in; i++) {
            const int p = lo->g->values[m->in[i]].producer;
            if (lo->spine[m->in[i]] == 0 && !(p >= 0 && in_group(part, p))) {
                SG_TRY(need_memory(lo, m->in[i]));
            }
        }
    }
    return sinter_success;
}

/* Scores and probabilities exist in tiles only. */
static sinter_status_t check_spine(lowering_t *lo) {
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

/* ---- all ---------------------------------------------------------------------------------------------------------------------- */

static sinter_status_t heavy_node(lowering_t *lo, int node) {
    const node_t *n = &lo->g->nodes[node];
    const bool softmax = n->kind == sinter_op_softmax || n->kind == sinter_op_log_softmax;
    for (int i = 0; i < n->n_in; i++) {
        SG_TRY(need_memory(lo, n->in[i]));
    }
    const step_kind_t kind = n->kind == sinter_op_matmul ? STEP_MATMUL : softmax ? STEP_SOFTMAX : STEP_DYNQUANT;
    const int gi = lower_new_group(lo, kind, node, n->out[0], lo->n_groups);
    if (gi < 0) {
        return sinter_out_of_memory;
    }
    for (int o = 0; o < n->n_out; o++) {
        lo->ready[n->out[o]] = gi;
        lo->stored[n->out[o]] = o > 0 || kind == STEP_DYNQUANT;
    }
    lo->home[n->out[0]] = kind == STEP_DYNQUANT ? -1 : gi;
    return sinter_success;
}

sinter_status_t lower_group(lowering_t *lo) {
    const graph_t *g = lo->g;
    for (int t = 0; t < graph_n_live(g); t++) {
        const int node = g->topo[t];
        const node_t *n = &g->nodes[node];
        const char spine = lo->attention ? spine_of(lo, n) : 0;
        const bool qk = lo->attention && n->kind == sinter_op_matmul && n->role != NULL && strcmp(n->role, "qk") == 0;
        if (qk || spine != 0) {
            SG_TRY(attention_node(lo, node, spine));
        } else if (is_view(n)) {
            SG_TRY(need_memory(lo, n->in[0]));
            lo->ready[n->out[0]] = lo->ready[n->in[0]];
        } else if (n->kind == sinter_op_matmul || n->kind == sinter_op_softmax || n->kind == sinter_op_log_softmax || computes_scales(n)) {
            SG_TRY(heavy_node(lo, node));
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
