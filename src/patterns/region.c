/* Regions and cycles.  A region grows below a value in topological order. An op that cannot join is
 * outside, and so is every op that depends on it. A value with a user outside is closed: none of
 * its users may be inside, and users that had joined are removed again. The result is the largest
 * set of ops in which the users of each value are all inside or all outside, and no path leads out
 * and back in. */
#include "patterns/matcher.h"

#include <stdio.h>
#include <string.h>

#include "graph/schema.h"

enum { NODE_FREE, NODE_WAITING, NODE_IN, NODE_OUT, NODE_OUT_DONE };
enum { VALUE_FREE, VALUE_OPEN, VALUE_CLOSED };

typedef struct region {
    matcher_t *m;
    const pat_node_t *pat;
    const lt_t *dims; /* of the source and so of all values */
    int n_list;       /* ops taken in, in m->list, those put out again included */
    int n_in, n_waiting, n_stack, max_pos;
    int budget; /* of steps outside */
} region_t;

static int node_state(const matcher_t *m, int node)
{
    return m->node_search[node] == m->now ? m->node_state[node] : NODE_FREE;
}

static void set_node(matcher_t *m, int node, int state)
{
    m->node_search[node] = m->now;
    m->node_state[node] = (unsigned char)state;
}

static int value_state(const matcher_t *m, int v)
{
    return m->value_search[v] == m->now ? m->value_state[v] : VALUE_FREE;
}

static void set_value(matcher_t *m, int v, int state)
{
    m->value_search[v] = m->now;
    m->value_state[v] = (unsigned char)state;
}

/* ---- outside --------------------------------------------------------------------------------- */

static const char *const dependent_text =
    "it also needs something that the region leads to through other ops";

/* dependent: because it depends on something outside. */
static void put_out(region_t *r, int node, bool dependent)
{
    matcher_t *m = r->m;
    if (m->owner[node] >= 0) {
        part_t *part = &m->parts[m->owner[node]];
        if (part->seen != m->now) {
            part->seen = m->now;
            heap_push(&m->heap, part->min_pos, ~m->owner[node]);
        }
        return;
    }
    const int state = node_state(m, node);
    if (m->match.at[node] >= 0 || state == NODE_OUT || state == NODE_OUT_DONE) {
        return;
    }
    r->n_waiting -= state == NODE_WAITING;
    r->n_in -= state == NODE_IN;
    if (state == NODE_WAITING || state == NODE_IN) {
        m->stack[r->n_stack++] = node;
        if (dependent) {
            match_stop(m, "before %s: %s", node_label(&m->g->nodes[node]), dependent_text);
        }
    }
    set_node(m, node, NODE_OUT);
    heap_push(&m->heap, m->pos[node], node);
}

static void put_out_users(region_t *r, int v, bool dependent)
{
    const int *users = value_users(r->m, v);
    for (int i = 0; i < value_n_users(r->m, v); i++) {
        put_out(r, users[i], dependent);
    }
}

static void close_value(region_t *r, int v)
{
    if (value_state(r->m, v) == VALUE_OPEN) {
        set_value(r->m, v, VALUE_CLOSED);
        put_out_users(r, v, false);
    }
}

/* An op that was inside, or was about to join, and is now outside closes the values that it reads
 * and makes. */
static void settle(region_t *r)
{
    while (r->n_stack > 0) {
        const node_t *n = &r->m->g->nodes[r->m->stack[--r->n_stack]];
        for (int i = 0; i < n->n_in; i++) {
            close_value(r, n->in[i]);
        }
        close_value(r, n->out[0]);
    }
}

/* Puts everything outside that depends on a point outside. */
static void spread(region_t *r, int id)
{
    const graph_t *g = r->m->g;
    const int one = id;
    const int *nodes = id >= 0 ? &one : r->m->parts[~id].nodes;
    const int n = id >= 0 ? 1 : r->m->parts[~id].n;
    for (int i = 0; i < n; i++) {
        const node_t *node = &g->nodes[nodes[i]];
        for (int o = 0; o < node->n_out; o++) {
            put_out_users(r, node->out[o], true);
        }
        r->budget--;
        r->m->work++;
    }
    settle(r);
}

/* ---- inside ---------------------------------------------------------------------------------- */

/* Why a user of v cannot be a member, whatever its neighbours are. "": it is of another kind, which
 * is not worth reporting. */
static const char *unfit(const region_t *r, int node, int v)
{
    const matcher_t *m = r->m;
    const node_t *n = &m->g->nodes[node];
    if (m->owner[node] >= 0 || m->match.at[node] >= 0 || (pat_classes(n) & r->pat->ops) == 0 ||
        n->n_out != 1) {
        return "";
    }
    if (node_state(m, node) >= NODE_OUT) {
        return dependent_text;
    }
    for (int i = 1; i < n->n_in && (op_flags(n->kind) & (OP_QUANT | OP_DEQUANT)) != 0; i++) {
        if (n->in[i] == v) {
            return "its scales depend on the region";
        }
    }
    return lt_dims_may_equal(&m->g->values[n->out[0]].lt, r->dims)
               ? NULL
               : "it broadcasts the region to larger dims";
}

/* Reports a value of which one user fits and another does not, and a user that nearly fits. */
static void note_stop(region_t *r, int v, int node, const char *why)
{
    const graph_t *g = r->m->g;
    if (why[0] != '\0') {
        match_stop(r->m, "before %s: %s", node_label(&g->nodes[node]), why);
        return;
    }
    for (int i = 0; i < value_n_users(r->m, v); i++) {
        if (unfit(r, value_users(r->m, v)[i], v) == NULL) {
            match_stop(r->m, "at tensor %llu: %s uses it too",
                       (unsigned long long)g->values[v].lt.id, node_label(&g->nodes[node]));
            return;
        }
    }
}

/* Takes in a value. If all its users may join, they wait for their turn; else it is closed. */
static void open_value(region_t *r, int v)
{
    matcher_t *m = r->m;
    const int n = value_n_users(m, v), *users = value_users(m, v);
    set_value(m, v, VALUE_OPEN);
    if (m->g->values[v].is_output && !r->pat->keep) {
        if (n > 0) {
            match_stop(m, "at tensor %llu: it is a graph output",
                       (unsigned long long)m->g->values[v].lt.id);
        }
        close_value(r, v);
        return;
    }
    for (int i = 0; i < n; i++) {
        const char *why = unfit(r, users[i], v);
        if (why != NULL) {
            note_stop(r, v, users[i], why);
            close_value(r, v);
            return;
        }
    }
    for (int i = 0; i < n; i++) {
        if (node_state(m, users[i]) == NODE_FREE) {
            set_node(m, users[i], NODE_WAITING);
            heap_push(&m->heap, m->pos[users[i]], users[i]);
            r->n_waiting++;
        }
    }
}

static void take_in(region_t *r, int node)
{
    matcher_t *m = r->m;
    const int max = r->pat->max < m->limit ? r->pat->max : m->limit;
    if (r->n_in >= max) {
        match_stop(m, "before %s: the limit of %d ops is reached", node_label(&m->g->nodes[node]),
                   max);
        put_out(r, node, false);
        settle(r);
        return;
    }
    set_node(m, node, NODE_IN);
    r->n_waiting--;
    r->n_in++;
    r->max_pos = m->pos[node] > r->max_pos ? m->pos[node] : r->max_pos;
    m->list[r->n_list++] = node;
    open_value(r, m->g->nodes[node].out[0]);
    settle(r);
}

static void wave(region_t *r)
{
    matcher_t *m = r->m;
    while (m->heap.n > 0 && (r->n_waiting > 0 || m->heap.items[0].key < r->max_pos)) {
        const int id = heap_pop(&m->heap);
        m->work++;
        if (r->budget < 0) { /* too much outside to look at: nothing more joins */
            if (id >= 0 && node_state(m, id) == NODE_WAITING) {
                match_stop(m, "before %s: too many ops lie between", node_label(&m->g->nodes[id]));
                put_out(r, id, false);
                settle(r);
            }
            if (r->n_waiting == 0) {
                break;
            }
        } else if (id < 0) {
            spread(r, id);
        } else if (node_state(m, id) == NODE_WAITING) {
            take_in(r, id);
        } else if (node_state(m, id) == NODE_OUT) {
            set_node(m, id, NODE_OUT_DONE);
            spread(r, id);
        }
    }
}

/* The end is the value that no op inside uses. */
static void count_end(const matcher_t *m, int v, int *end, int *n_ends)
{
    if (value_n_users(m, v) == 0 || value_state(m, v) == VALUE_CLOSED) {
        *end = v;
        ++*n_ends;
    }
}

int region_grow(matcher_t *m, int pattern_node, int source)
{
    enum { OUTSIDE_STEPS = 20000, FEW_STEPS = 200 };
    region_t r = {.m = m,
                  .pat = &m->match.pattern->nodes[pattern_node],
                  .dims = &m->g->values[source].lt,
                  .max_pos = -1};
    r.budget = m->limit == PAT_MANY ? OUTSIDE_STEPS : FEW_STEPS;
    m->now++;
    m->heap.n = 0;
    open_value(&r, source);
    settle(&r);
    wave(&r);
    int end = -1, n_ends = 0;
    count_end(m, source, &end, &n_ends);
    for (int i = 0; i < r.n_list; i++) {
        if (node_state(m, m->list[i]) == NODE_IN) {
            match_add(m, m->list[i], pattern_node);
            count_end(m, m->g->nodes[m->list[i]].out[0], &end, &n_ends);
        }
    }
    return n_ends == 1 ? end : -1;
}

/* ---- cycles ---------------------------------------------------------------------------------- */

/* Visits a point outside that begins before max_pos: a path may lead from it to the match. */
static void visit(matcher_t *m, int node, int max_pos)
{
    const int p = m->owner[node];
    if (p >= 0) {
        if (m->parts[p].seen != m->now && m->parts[p].min_pos < max_pos) {
            m->parts[p].seen = m->now;
            m->heap.items[m->heap.n++].id = ~p;
        }
    } else if (node_state(m, node) == NODE_FREE && m->pos[node] < max_pos) {
        set_node(m, node, NODE_OUT);
        m->heap.items[m->heap.n++].id = node;
    }
}

/* Visits the users of a point's outputs; a user inside the match closes a cycle (-1: none). */
static int visit_users(matcher_t *m, int id, bool from_match, int max_pos)
{
    const int one = id;
    const int *nodes = id >= 0 ? &one : m->parts[~id].nodes;
    const int n = id >= 0 ? 1 : m->parts[~id].n;
    for (int i = 0; i < n; i++) {
        const node_t *node = &m->g->nodes[nodes[i]];
        for (int o = 0; o < node->n_out; o++) {
            const int *users = value_users(m, node->out[o]);
            for (int u = 0; u < value_n_users(m, node->out[o]); u++) {
                m->work++;
                if (m->match.at[users[u]] < 0) {
                    visit(m, users[u], max_pos);
                } else if (!from_match) {
                    return users[u];
                }
            }
        }
    }
    return -1;
}

const char *match_cycle(matcher_t *m)
{
    enum { STEPS = 200000, FEW_STEPS = 2000 };
    int max_pos = -1;
    const int64_t until =
        m->work + (m->limit == PAT_MANY ? STEPS : FEW_STEPS) + 8 * (int64_t)m->match.n;
    m->now++;
    m->heap.n = 0;
    for (int i = 0; i < m->match.n; i++) {
        max_pos = m->pos[m->node[i]] > max_pos ? m->pos[m->node[i]] : max_pos;
    }
    max_pos = matcher_horizon(m, max_pos);
    for (int i = 0; i < m->match.n; i++) {
        visit_users(m, m->node[i], true, max_pos);
    }
    while (m->heap.n > 0) {
        const int back = visit_users(m, m->heap.items[--m->heap.n].id, false, max_pos);
        if (back >= 0) {
            return match_reason(
                &m->match,
                "%s depends on the rest through ops outside, fusing them would close a cycle",
                node_label(&m->g->nodes[back]));
        }
        if (m->work > until) {
            return "too many ops lie between its parts";
        }
    }
    return NULL;
}
