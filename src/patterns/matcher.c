#include "patterns/matcher.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "base/status.h"
#include "graph/schema.h"

/* An index that nobody reads. It needs the dims of its input alone, so it stands in no pattern's
 * way and joins the partition that makes its input. */
static bool is_idle(const graph_t *g, int node)
{
    const node_t *n = &g->nodes[node];
    return n->kind == sinter_op_gen_index && g->values[n->out[0]].n_uses == 0;
}

static sinter_status_t collect_readers(matcher_t *m, arena_t *arena)
{
    const graph_t *g = m->g;
    m->readers = ARENA_NEW(arena, int, g->uses_begin[g->n_values] + 1);
    m->readers_begin = ARENA_NEW(arena, int, g->n_values + 1);
    if (m->readers == NULL || m->readers_begin == NULL) {
        return sinter_out_of_memory;
    }
    for (int v = 0, n = 0; v < g->n_values; v++) {
        for (int u = g->uses_begin[v]; u < g->uses_begin[v + 1]; u++) {
            if (!is_idle(g, g->uses[u])) {
                m->readers[n++] = g->uses[u];
            }
        }
        m->readers_begin[v + 1] = n;
    }
    return sinter_success;
}

sinter_status_t matcher_init(matcher_t *m, const graph_t *g, arena_t *arena)
{
    const int n = g->n_nodes + 1, n_live = graph_n_live(g);
    int n_slots = n;
    for (int i = 0; i < g->n_nodes; i++) {
        n_slots += g->nodes[i].n_in;
    }
    *m = (matcher_t){.g = g, .limit = PAT_MANY};
    int **const arrays[] = {&m->pos, &m->owner, &m->members, &m->node, &m->of,
                            &m->at,  &m->list,  &m->stack,   &m->ends};
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        *arrays[i] = ARENA_NEW(arena, int, n);
        if (*arrays[i] == NULL) {
            return sinter_out_of_memory;
        }
    }
    m->parts = ARENA_NEW(arena, part_t, n);
    m->node_search = ARENA_NEW(arena, unsigned, n);
    m->value_search = ARENA_NEW(arena, unsigned, g->n_values + 1);
    m->node_state = ARENA_NEW(arena, unsigned char, n);
    m->value_state = ARENA_NEW(arena, unsigned char, g->n_values + 1);
    m->work_values = ARENA_NEW(arena, int, 2 * (size_t)n_slots);
    m->heap.items =
        ARENA_NEW(arena, heap_item_t,
                  3 * (size_t)n); /* a node waits once and goes out once, a partition is met once */
    if (!m->parts || !m->node_search || !m->value_search || !m->node_state || !m->value_state ||
        !m->work_values || !m->heap.items) {
        return sinter_out_of_memory;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        m->owner[i] = m->at[i] = m->pos[i] = -1;
    }
    for (int i = 0; i < n; i++) {
        m->ends[i] = -1;
    }
    for (int t = 0; t < n_live; t++) {
        m->pos[g->topo[t]] = t;
    }
    m->match = (match_t){.g = g, .node = m->node, .of = m->of, .at = m->at, .text = m->text};
    return collect_readers(m, arena);
}

/* ---- the match in the making ----------------------------------------------------------------- */

static void match_clear(matcher_t *m, const pattern_t *pattern)
{
    for (int i = 0; i < m->match.n; i++) {
        m->at[m->node[i]] = -1;
    }
    m->match.n = 0;
    m->match.pattern = pattern;
    m->required = 0;
    m->near = false;
    m->n_stops = 0;
    m->work = 0;
}

void match_add(matcher_t *m, int node, int pattern_node)
{
    const int i = m->match.n++;
    m->at[node] = i;
    m->node[i] = node;
    m->of[i] = pattern_node;
    m->work++;
}

void match_stop(matcher_t *m, const char *format, ...)
{
    if (m->n_stops < MATCH_STOPS) {
        va_list args;
        va_start(args, format);
        vsnprintf(m->stops[m->n_stops++], MATCH_TEXT, format, args);
        va_end(args);
    }
}

/* ---- producers ------------------------------------------------------------------------------- */

static bool all_users_match(const matcher_t *m, int v)
{
    const int *users = value_users(m, v);
    for (int i = 0; i < value_n_users(m, v); i++) {
        if (m->at[users[i]] < 0) {
            return false;
        }
    }
    return true;
}

static bool used_by_match_only(const matcher_t *m, int v)
{
    return all_users_match(m, v) && !m->g->values[v].is_output;
}

/* The value v is computed elementwise from the result of a product that is in no partition yet. The
 * step of that product will quantise it. */
static bool rides_on_product(const matcher_t *m, int v)
{
    enum { MOST = 16 };
    int stack[MOST] = {v}, n = 1;
    for (int step = 0; n > 0 && step < MOST; step++) {
        const int p = m->g->values[stack[--n]].producer;
        const unsigned classes = p >= 0 && m->owner[p] < 0 ? pat_classes(&m->g->nodes[p]) : 0;
        if ((classes & (OP_MATMUL | OP_SOFTMAX | OP_LOG_SOFTMAX)) != 0) {
            return true;
        }
        for (int i = 0; (classes & (PAT_ELTWISE | PAT_CAST | PAT_VIEW)) != 0 &&
                        i < m->g->nodes[p].n_in && n < MOST;
             i++) {
            stack[n++] = m->g->nodes[p].in[i];
        }
    }
    return false;
}

/* Only the match uses the outputs of n. Codes and scales are in memory in any case, so they may be
 * outputs of the graph too. */
static bool made_for_match(const matcher_t *m, const node_t *n, bool leave)
{
    if ((pat_classes(n) & (PAT_QUANT | PAT_DYNQUANT)) == 0) {
        return n->n_out == 1 && used_by_match_only(m, n->out[0]);
    }
    for (int o = 0; o < n->n_out; o++) {
        if (!all_users_match(m, n->out[o])) {
            return false;
        }
    }
    return !leave || !rides_on_product(m, n->in[0]);
}

/* Some op of the match computes its scales and takes v as the scale of these scales. That is read
 * before the first step runs, so it must come from outside. */
static bool scales_scales(const matcher_t *m, int v)
{
    const int *users = value_users(m, v);
    for (int i = 0; i < value_n_users(m, v); i++) {
        const node_t *n = &m->g->nodes[users[i]];
        if (m->at[users[i]] >= 0 && (pat_classes(n) & PAT_DYNQUANT) != 0 && n->n_in > 1 &&
            n->in[1] == v) {
            return true;
        }
    }
    return false;
}

/* Evaluated for each element of `to`: dims broadcast to it, and an index counts along a dim that
 * is really there. */
static bool broadcasts_to(const node_t *n, const lt_t *from, const lt_t *to)
{
    if (from->ndims < 0 || to->ndims < 0) {
        return true;
    }
    const int shift = to->ndims - from->ndims;
    for (int d = 0; shift >= 0 && d < from->ndims; d++) {
        const int64_t a = from->dims[d], b = to->dims[d + shift];
        if (a != b && a != SINTER_UNKNOWN_DIM && b != SINTER_UNKNOWN_DIM &&
            (a != 1 || n->kind == sinter_op_gen_index)) {
            return false;
        }
    }
    return shift >= 0;
}

static bool fits_above(const matcher_t *m, int v, unsigned classes, const lt_t *space, bool leave)
{
    const int p = m->g->values[v].producer;
    if (p < 0 || m->owner[p] >= 0 || m->at[p] >= 0) {
        return false;
    }
    const node_t *n = &m->g->nodes[p];
    if ((pat_classes(n) & classes) == 0 || !made_for_match(m, n, leave) || scales_scales(m, v)) {
        return false;
    }
    for (int i = 0; i < n->n_in;
         i++) { /* what the match computes is not brought in again from above */
        const int q = m->g->values[n->in[i]].producer;
        if (q >= 0 && m->at[q] >= 0) {
            return false;
        }
    }
    return space == NULL || (pat_classes(n) & PAT_VIEW) != 0 ||
           broadcasts_to(n, &m->g->values[v].lt, space);
}

/* Adds what takes a part of scales or zero points, or takes them from pages. */
static int take_parts(matcher_t *m, int pattern_node, int v, unsigned classes, bool leave)
{
    const bool pages = (classes & OP_GATHER) != 0;
    unsigned fit = classes & (pages ? PAT_SLICE | PAT_VIEW | OP_GATHER : PAT_SLICE);
    int taken = 0;
    while (fits_above(m, v, fit, NULL, leave) && (pages || taken == 0)) {
        const node_t *n = &m->g->nodes[m->g->values[v].producer];
        match_add(m, m->g->values[v].producer, pattern_node);
        taken++;
        fit &= pat_classes(n) == OP_GATHER ? PAT_SLICE | PAT_VIEW : ~0u;
        v = n->in[0];
    }
    return taken;
}

/* Adds the tree of producers above the values work_values[0..n) to the match. space: the producers
 * are evaluated in these dims, so only views may stand above a view. */
static int take_above(matcher_t *m, int pattern_node, unsigned classes, const lt_t *space, int n,
                      int max)
{
    const bool leave = m->match.pattern->nodes[pattern_node].leave;
    const unsigned above_views = space != NULL ? PAT_VIEW : PAT_VIEW | PAT_SLICE;
    int taken = 0;
    while (n > 0 && taken < max) {
        const int item = m->work_values[--n], v = item >= 0 ? item : ~item;
        m->work++;
        if (!fits_above(m, v, item >= 0 ? classes : classes & above_views, space, leave)) {
            continue;
        }
        const int p = m->g->values[v].producer;
        const node_t *node = &m->g->nodes[p];
        const unsigned of = pat_classes(node);
        const bool only_views =
            item < 0 || (of & OP_GATHER) != 0 || (space != NULL && (of & PAT_VIEW) != 0);
        /* Scales, zero points and the like stay as they are: only data has a tree. */
        const int n_in = (of & (PAT_ELTWISE | PAT_CAST)) != 0 ? node->n_in : 1;
        match_add(m, p, pattern_node);
        taken++;
        for (int i = 0; i < n_in; i++) {
            m->work_values[n++] = only_views ? ~node->in[i] : node->in[i];
        }
        /* But a part of the codes has a part of the scales, and scales of a cache in pages are
         * in pages, too. */
        for (int i = 1; i < node->n_in && (of & PAT_DEQUANT) != 0; i++) {
            taken += take_parts(m, pattern_node, node->in[i], classes, leave);
        }
    }
    return taken;
}

/* Lists the inputs of the ops [from, n) of the match, without the scales of quantising ops: no
 * producer is fused with those. */
static int gather_inputs(matcher_t *m, int from, int port, int pattern_node)
{
    int n = 0;
    for (int k = from; k < m->match.n; k++) {
        const node_t *node = &m->g->nodes[m->node[k]];
        const bool data_only = (op_flags(node->kind) & (OP_QUANT | OP_DEQUANT)) != 0;
        for (int i = 0; i < node->n_in && m->of[k] == pattern_node; i++) {
            if ((port < 0 && !(data_only && i > 0)) || i == port) {
                m->work_values[n++] = node->in[i];
            }
        }
    }
    return n;
}

static void take_sides(matcher_t *m, int pattern_node, int from, const lt_t *space)
{
    const unsigned side = m->match.pattern->nodes[pattern_node].side;
    if (side != 0 && m->match.n > from) {
        take_above(m, pattern_node, side, space, gather_inputs(m, from, -1, pattern_node),
                   m->limit);
    }
}

/* ---- below ----------------------------------------------------------------------------------- */

/* The node that is the only user of v and may follow it in a chain. -1: there is none, and *why
 * says why *other is not one; "": no user is of the right kind. */
static int sole_user(const matcher_t *m, const pat_node_t *pn, int v, int *other, const char **why)
{
    const value_t *value = &m->g->values[v];
    const int *users = value_users(m, v);
    *why = "";
    if (value_n_users(m, v) == 0) {
        return -1;
    }
    int c = users[0];
    /* With several, the one that the pattern asks for, to say so. */
    for (int i = 0; i < value_n_users(m, v); i++) {
        if ((pat_classes(&m->g->nodes[users[i]]) & pn->ops) != 0) {
            c = users[i];
            break;
        }
    }
    const node_t *n = &m->g->nodes[c];
    const bool quant = (op_flags(n->kind) & (OP_QUANT | OP_DEQUANT)) != 0;
    const unsigned classes = pat_classes(n);
    int at_port = 0, n_at = 0;
    for (int i = 0; i < n->n_in; i++) {
        at_port = n->in[i] == v ? i : at_port;
        n_at += n->in[i] == v;
    }
    if (m->owner[c] >= 0 || m->at[c] >= 0 || (classes & pn->ops) == 0) {
        return -1;
    }
    *why = value->is_output && !pn->keep ? "its input is a graph output"
           : value_n_users(m, v) != n_at ? "its input has other uses"
           : (pn->port >= 0 && (n_at > 1 || at_port != pn->port)) || (quant && at_port != 0)
               ? "its input arrives at another port"
           : n->n_out != 1 && (classes & (OP_SOFTMAX | PAT_DYNQUANT)) == 0
               ? "it has further outputs"
           : (classes & (PAT_ELTWISE | PAT_CAST | PAT_QUANT | PAT_DEQUANT | PAT_DYNQUANT)) != 0 &&
                   !lt_dims_may_equal(&m->g->values[n->out[0]].lt, &value->lt)
               ? "it broadcasts its input to larger dims"
               : NULL;
    *other = c;
    return *why == NULL ? c : -1;
}

static int take_chain(matcher_t *m, int pattern_node, int v)
{
    const pat_node_t *pn = &m->match.pattern->nodes[pattern_node];
    const int max = pn->max < m->limit ? pn->max : m->limit;
    for (int taken = 0; taken < max; taken++) {
        int other;
        const char *why;
        const int c = sole_user(m, pn, v, &other, &why);
        if (c < 0) {
            if (why[0] != '\0') {
                match_stop(m, "before %s: %s", node_label(&m->g->nodes[other]), why);
            }
            break;
        }
        const int from = m->match.n;
        match_add(m, c, pattern_node);
        v = m->g->nodes[c].out[0];
        take_sides(m, pattern_node, from, &m->g->values[v].lt);
    }
    return v;
}

/* ---- a pattern ------------------------------------------------------------------------------- */

/* The op of the match with the role that node i hangs on, for messages. */
static const char *hook_label(const matcher_t *m, int i)
{
    for (int k = m->match.n - 1; k >= 0; k--) {
        if (m->of[k] == i) {
            return node_label(&m->g->nodes[m->node[k]]);
        }
    }
    return i > 0 ? hook_label(m, m->match.pattern->nodes[i].of) : "the anchor";
}

/* The ops of a node of the pattern. NULL, or why the match fails. */
static const char *take_below(matcher_t *m, int i)
{
    const pat_node_t *pn = &m->match.pattern->nodes[i];
    const int from = m->match.n, v = m->end[pn->of];
    m->end[i] = v;
    if (v >= 0 && pn->edge == PAT_REGION) {
        m->end[i] = region_grow(m, i, v);
        take_sides(m, i, from, &m->g->values[v].lt);
    } else if (v >= 0) {
        m->end[i] = take_chain(m, i, v);
    }
    if (m->match.n - from >= pn->min) {
        return NULL;
    }
    if (v < 0) {
        return match_reason(&m->match, "no %s below %s: the ops there have several ends", pn->role,
                            hook_label(m, pn->of));
    }
    if (m->n_stops > 0) {
        return match_reason(&m->match, "no %s below %s; stopped %s", pn->role,
                            hook_label(m, pn->of), m->stops[m->n_stops - 1]);
    }
    if (value_n_users(m, v) == 0) {
        m->required = 0;
        return match_reason(&m->match, "no %s below %s: nothing follows", pn->role,
                            hook_label(m, pn->of));
    }
    return match_reason(&m->match, "no %s below %s: %s follows", pn->role, hook_label(m, pn->of),
                        node_label(&m->g->nodes[value_users(m, v)[0]]));
}

/* Why a fitting producer was left out. */
static void note_above(matcher_t *m, int v, unsigned classes)
{
    const int p = m->g->values[v].producer;
    if (p >= 0 && m->owner[p] < 0 && m->at[p] < 0 &&
        (pat_classes(&m->g->nodes[p]) & classes) != 0) {
        match_stop(m, "below %s: %s", node_label(&m->g->nodes[p]),
                   m->g->values[v].is_output   ? "its result is a graph output"
                   : !used_by_match_only(m, v) ? "its result has other uses"
                   : scales_scales(m, v) ? "its result scales the scales that an op below computes"
                                         : "it depends on the ops below");
    }
}

static const char *take_node(matcher_t *m, int i)
{
    const pat_node_t *pn = &m->match.pattern->nodes[i];
    if (pn->edge != PAT_ABOVE) {
        return take_below(m, i);
    }
    const int from = m->match.n;
    take_above(m, i, pn->ops, NULL, gather_inputs(m, 0, pn->port, pn->of),
               pn->max < m->limit ? pn->max : m->limit);
    m->end[i] = -1;
    for (int k = pn->port >= 0 ? gather_inputs(m, 0, pn->port, pn->of) - 1 : -1; k >= 0; k--) {
        note_above(m, m->work_values[k], pn->ops);
    }
    if (m->match.n - from >= pn->min) {
        return NULL;
    }
    m->required = 0;
    return match_reason(&m->match, "no %s above %s that only this uses", pn->role,
                        hook_label(m, pn->of));
}

static const char *try_nodes(matcher_t *m, int anchor)
{
    const pattern_t *p = m->match.pattern;
    match_add(m, anchor, 0);
    m->required = 1;
    m->end[0] = m->g->nodes[anchor].out[0];
    take_sides(m, 0, 0, &m->g->values[m->end[0]].lt);
    for (int i = 1; i < p->n_nodes; i++) {
        const char *why = take_node(m, i);
        if (why != NULL) {
            return why;
        }
        m->required += p->nodes[i].min > 0;
    }
    if (m->match.n < 2) {
        return m->n_stops > 0 ? match_reason(&m->match, "stopped %s", m->stops[0])
                              : "nothing to fuse with";
    }
    for (const pat_check_t *check = p->checks; check != NULL && *check != NULL; check++) {
        const char *why = (*check)(&m->match);
        if (why != NULL) {
            return why;
        }
    }
    return match_cycle(m);
}

bool matcher_try(matcher_t *m, const pattern_t *pattern, int anchor)
{
    enum { SHORT_LIMIT = 64 };
    const node_t *n = &m->g->nodes[anchor];
    match_clear(m, pattern);
    if (m->owner[anchor] >= 0 || n->n_out < 1 || (pat_classes(n) & pattern->nodes[0].ops) == 0) {
        return false;
    }
    m->reason = try_nodes(m, anchor);
    const bool matched = m->reason == NULL;
    m->near = !matched && m->reason[0] != '\0' && (m->required > 1 || m->n_stops > 0);
    m->wasted += matched ? 0 : m->work;
    if (m->wasted > 100000 + 8 * (int64_t)m->g->n_nodes) {
        m->limit = SHORT_LIMIT;
    }
    return matched;
}

/* ---- partitions ------------------------------------------------------------------------------ */

void matcher_new_row(matcher_t *m)
{
    m->wasted = 0;
    m->limit = PAT_MANY;
}

/* Between searches, whose heap it uses. */
static void sort_by_pos(matcher_t *m, int *nodes, int n)
{
    m->heap.n = 0;
    for (int i = 0; i < n; i++) {
        heap_push(&m->heap, m->pos[nodes[i]], nodes[i]);
    }
    for (int i = 0; i < n; i++) {
        nodes[i] = heap_pop(&m->heap);
    }
}

static void note_end(matcher_t *m, const part_t *part)
{
    const int end = m->pos[part->nodes[part->n - 1]];
    for (int i = part->min_pos + 1; i <= m->g->n_nodes; i += i & -i) {
        m->ends[i] = end > m->ends[i] ? end : m->ends[i];
    }
}

int matcher_horizon(const matcher_t *m, int pos)
{
    for (int last = -1; last != pos;) {
        last = pos;
        for (int i = last; i > 0; i -= i & -i) {
            pos = m->ends[i] > pos ? m->ends[i] : pos;
        }
    }
    return pos;
}

static void add_part(matcher_t *m, const int *nodes, int n)
{
    part_t *part = &m->parts[m->n_parts];
    *part = (part_t){.nodes = m->members + m->n_members, .n = n};
    memcpy(part->nodes, nodes, sizeof(int) * (size_t)n);
    m->n_members += n;
    sort_by_pos(m, part->nodes, n);
    part->min_pos = m->pos[part->nodes[0]];
    note_end(m, part);
    for (int i = 0; i < n; i++) {
        m->owner[nodes[i]] = m->n_parts;
    }
    m->n_parts++;
}

static void add_idle(matcher_t *m, int v)
{
    for (int u = m->g->uses_begin[v]; u < m->g->uses_begin[v + 1]; u++) {
        const int node = m->g->uses[u];
        if (is_idle(m->g, node) && m->owner[node] < 0 && m->at[node] < 0) {
            match_add(m, node, -1);
        }
    }
}

void matcher_take(matcher_t *m)
{
    for (int i = 0, n = m->match.n; i < n; i++) {
        const node_t *node = &m->g->nodes[m->node[i]];
        for (int o = 0; o < node->n_out; o++) {
            add_idle(m, node->out[o]);
        }
    }
    add_part(m, m->node, m->match.n);
}

void matcher_take_single(matcher_t *m, int node)
{
    add_part(m, &node, 1);
}

/* ---- joining partitions ---------------------------------------------------------------------- */

void matcher_merge(matcher_t *m, int upper, int lower, int *nodes)
{
    part_t *a = &m->parts[upper], *b = &m->parts[lower];
    memcpy(nodes, a->nodes, sizeof(int) * (size_t)a->n);
    memcpy(nodes + a->n, b->nodes, sizeof(int) * (size_t)b->n);
    for (int i = 0; i < a->n; i++) {
        m->owner[a->nodes[i]] = lower;
    }
    b->nodes = nodes;
    b->n += a->n;
    a->n = 0;
    sort_by_pos(m, b->nodes, b->n);
    b->min_pos = m->pos[b->nodes[0]];
}
