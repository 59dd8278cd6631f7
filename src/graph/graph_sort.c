/* Topological order and uses. */
#include <limits.h>

#include "graph.h"
#include "status.h"

/* The k-th value a node reads, scales and zero points behind its in_dequant included; -1 behind the last. */
static int reads(const node_t *n, int k)
{
    if (k < n->n_in)
        return n->in[k];
    k -= n->n_in;
    for (int p = 0; n->in_dequant != NULL && p < n->n_in; p++) {
        const node_t *dq = n->in_dequant[p];
        const int more = dq != NULL ? dq->n_in - 1 : 0;
        if (k < more)
            return dq->in[k + 1];
        k -= more;
    }
    return -1;
}

enum { WHITE, GREY, BLACK };

typedef struct visit {
    int node, next; /* next: which of its reads to look at */
} visit_t;

/* Depth first over producers: a graph whose nodes already are in execution order keeps that order. */
static sinter_status_t order_from(graph_t *g, int root, char *colour, visit_t *stack)
{
    int depth = 0;

    stack[depth++] = (visit_t){root, 0};
    colour[root] = GREY;
    while (depth > 0) {
        visit_t *top = &stack[depth - 1];
        const int v = reads(&g->nodes[top->node], top->next++);
        if (v < 0) {
            colour[top->node] = BLACK;
            g->topo[g->n_topo++] = top->node;
            depth--;
            continue;
        }
        const int p = g->values[v].producer;
        if (p < 0 || colour[p] == BLACK)
            continue;
        if (colour[p] == GREY)
            return sg_fail(sinter_invalid_graph, "%s: tensor %llu closes a cycle", node_label(&g->nodes[top->node]),
                           (unsigned long long)g->values[v].lt.id);
        colour[p] = GREY;
        stack[depth++] = (visit_t){p, 0};
    }
    return sinter_success;
}

/* Passes sort again and again: arrays are reused while they are large enough. */
static bool room(graph_t *g, int **array, int *cap, size_t n)
{
    if (*array == NULL || (size_t)*cap < n) {
        *array = n < INT_MAX / 2 ? ARENA_NEW(&g->arena, int, n + n / 2 + 1) : NULL;
        *cap = *array != NULL ? (int)(n + n / 2 + 1) : 0;
    }
    return *array != NULL;
}

static sinter_status_t collect_uses(graph_t *g)
{
    size_t total = 0;

    for (int v = 0; v < g->n_values; v++)
        g->values[v].n_uses = 0;
    for (int t = 0; t < g->n_topo; t++)
        for (int k = 0, v; (v = reads(&g->nodes[g->topo[t]], k)) >= 0; k++, total++)
            g->values[v].n_uses++;
    if (!room(g, &g->uses, &g->cap_uses, total + 1) || !room(g, &g->uses_begin, &g->cap_begin, (size_t)g->n_values + 2))
        return sinter_out_of_memory;
    /* uses_begin[v + 1] is where v's next use goes, and ends up as where v's uses end. */
    g->uses_begin[0] = 0;
    for (int v = 0, at = 0; v < g->n_values; at += g->values[v++].n_uses)
        g->uses_begin[v + 1] = at;
    for (int t = 0; t < g->n_topo; t++)
        for (int k = 0, v; (v = reads(&g->nodes[g->topo[t]], k)) >= 0; k++)
            g->uses[g->uses_begin[v + 1]++] = g->topo[t];
    return sinter_success;
}

sinter_status_t graph_sort(graph_t *g)
{
    char *colour = ARENA_NEW(&g->arena, char, g->n_nodes + 1);
    visit_t *stack = ARENA_NEW(&g->arena, visit_t, g->n_nodes + 1);

    g->n_topo = 0;
    if (colour == NULL || stack == NULL || !room(g, &g->topo, &g->cap_topo, (size_t)g->n_nodes + 1))
        return sinter_out_of_memory;
    for (int i = 0; i < g->n_nodes; i++)
        if (!g->nodes[i].dead && colour[i] == WHITE)
            SG_TRY(order_from(g, i, colour, stack));
    return collect_uses(g);
}
