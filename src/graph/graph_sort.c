/* Topological order, uses and use counts. */
#include <inttypes.h>
#include <string.h>

#include "base/heap.h"
#include "base/status.h"
#include "graph/graph.h"

/* Gives *array room for n entries; its old entries are lost. */
static bool room(arena_t *arena, int **array, int *cap, int n)
{
    if (n <= *cap && *array != NULL) {
        return true;
    }
    int *grown = ARENA_NEW(arena, int, n + 1);
    if (grown != NULL) {
        *array = grown;
        *cap = n;
    }
    return grown != NULL;
}

/* Sets the producers and use counts of all values. Returns the number of all uses. */
static int64_t count_uses(graph_t *g)
{
    int64_t total = 0;
    for (int v = 0; v < g->n_values; v++) {
        g->values[v].producer = -1;
        g->values[v].n_uses = 0;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const node_t *node = &g->nodes[i];
        for (int k = 0, v; !node->dead && (v = node_read(node, k)) >= 0; k++, total++) {
            g->values[v].n_uses++;
        }
        for (int p = 0; p < node->n_out && !node->dead; p++) {
            g->values[node->out[p]].producer = i;
            g->values[node->out[p]].producer_port = p;
        }
    }
    return total;
}

/* Sorts the uses by value, by counting. */
static sinter_status_t collect_uses(graph_t *g)
{
    int64_t total = count_uses(g);
    if (total > INT32_MAX / 2) {
        return sg_fail(sinter_out_of_memory, "graph: too many inputs");
    }
    if (!room(&g->arena, &g->uses, &g->cap_uses, (int)total) ||
        !room(&g->arena, &g->uses_begin, &g->cap_begin, g->n_values + 1)) {
        return sinter_out_of_memory;
    }
    /* begin[v + 1] is where the next use of v goes, so that in the end the uses of v lie between
     * begin[v] and begin[v + 1]. */
    int *begin = g->uses_begin;
    begin[0] = 0;
    for (int v = 0, at = 0; v < g->n_values; v++) {
        begin[v + 1] = at;
        at += g->values[v].n_uses;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        const node_t *node = &g->nodes[i];
        for (int k = 0, v; !node->dead && (v = node_read(node, k)) >= 0; k++) {
            g->uses[begin[v + 1]++] = i;
        }
    }
    return sinter_success;
}

/* Walks from an unsorted node to unsorted producers, often enough to have reached the cycle. */
static sinter_status_t report_cycle(const graph_t *g, const int *pending)
{
    int at = 0, value = -1;
    while (pending[at] <= 0) {
        at++;
    }
    for (int step = 0; step <= g->n_nodes; step++) {
        const node_t *node = &g->nodes[at];
        for (int k = 0, v; (v = node_read(node, k)) >= 0; k++) {
            int producer = g->values[v].producer;
            if (producer >= 0 && pending[producer] > 0) {
                value = v;
                at = producer;
                break;
            }
        }
    }
    return sg_fail(sinter_invalid_graph,
                   "%s: its output tensor %" PRIu64 " leads back to its inputs: a cycle",
                   node_label(&g->nodes[at]), g->values[value].lt.id);
}

/* Sets pending[i] to the number of reads of node i whose producers are not sorted yet; 0 for dead
 * nodes. Of the nodes that are ready, the one that was added first comes first. */
static sinter_status_t order_nodes(graph_t *g, int *pending, heap_t ready, int n_live)
{
    g->n_topo = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        const node_t *node = &g->nodes[i];
        pending[i] = 0;
        for (int k = 0, v; !node->dead && (v = node_read(node, k)) >= 0; k++) {
            pending[i] += g->values[v].producer >= 0;
        }
        if (pending[i] == 0 && !node->dead) {
            heap_push(&ready, i, i);
        }
    }
    while (ready.n > 0) {
        int i = heap_pop(&ready);
        g->topo[g->n_topo++] = i;
        for (int p = 0; p < g->nodes[i].n_out; p++) {
            int v = g->nodes[i].out[p];
            for (int u = g->uses_begin[v]; u < g->uses_begin[v + 1]; u++) {
                if (--pending[g->uses[u]] == 0) {
                    heap_push(&ready, g->uses[u], g->uses[u]);
                }
            }
        }
    }
    return g->n_topo == n_live ? sinter_success : report_cycle(g, pending);
}

sinter_status_t graph_sort(graph_t *g)
{
    int n_live = 0;
    for (int i = 0; i < g->n_nodes; i++) {
        n_live += !g->nodes[i].dead;
    }
    if (g->n_nodes > INT32_MAX / 4) {
        return sg_fail(sinter_out_of_memory, "graph: too many ops");
    }
    SG_TRY(collect_uses(g));
    /* topo is followed by what is needed while sorting: a number and an item for each node. */
    if (!room(&g->arena, &g->topo, &g->cap_topo, 4 * g->n_nodes)) {
        return sinter_out_of_memory;
    }
    const heap_t ready = {.items = (heap_item_t *)(g->topo + 2 * g->n_nodes)};
    return order_nodes(g, g->topo + g->n_nodes, ready, n_live);
}

sinter_status_t graph_prune(graph_t *g)
{
    bool *used = ARENA_NEW(&g->arena, bool, g->n_values + 1);
    if (used == NULL) {
        return sinter_out_of_memory;
    }
    for (int t = graph_n_live(g) - 1; t >= 0; t--) {
        node_t *n = &g->nodes[g->topo[t]];
        n->dead = true;
        for (int o = 0; o < n->n_out; o++) {
            n->dead = n->dead && !used[n->out[o]] && !g->values[n->out[o]].is_output;
        }
        for (int o = 0; o < n->n_out && n->dead; o++) {
            g->values[n->out[o]].producer = -1;
        }
        for (int k = 0, v; !n->dead && (v = node_read(n, k)) >= 0; k++) {
            used[v] = true;
        }
    }
    return sinter_success;
}
