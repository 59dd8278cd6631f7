/* The partitioner. It tries the rows of patterns.def in their order, each at all anchors in
 * topological order, and takes every match. The remaining ops become partitions of one op. Then the
 * rows of joins.def make one partition of several. */
#include "patterns/partition.h"

#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "graph/schema.h"
#include "patterns/joins.h"
#include "patterns/matcher.h"
#include "patterns/predicates.h"
#include "patterns/tables.h"

/* A pattern that nearly matched at an anchor. */
typedef struct refusal {
    const char *pattern, *reason;
    struct refusal *next; /* of the same anchor */
} refusal_t;

typedef struct partitioner {
    const graph_t *g;
    arena_t arena; /* for the time of partitioning */
    matcher_t m;
    refusal_t **refusals; /* by node */
    joinable_t *parts;    /* by partition */
    int *order, n_order;  /* partitions in an order in which they can run */
    const char **stops;   /* by partition; text lines, NULL: none */
    const char **role;    /* by node */
} partitioner_t;

/* ---- matching -------------------------------------------------------------------------------- */

static sinter_status_t add_refusal(partitioner_t *p, int node, const pattern_t *pattern)
{
    refusal_t *r = ARENA_NEW(&p->arena, refusal_t, 1);
    if (r == NULL) {
        return sinter_out_of_memory;
    }
    *r = (refusal_t){.pattern = pattern->name, .reason = arena_strdup(&p->arena, p->m.reason)};
    refusal_t **at = &p->refusals[node];
    while (*at != NULL) {
        at = &(*at)->next;
    }
    *at = r;
    return r->reason != NULL ? sinter_success : sinter_out_of_memory;
}

static sinter_status_t take(partitioner_t *p, const pattern_t *pattern)
{
    matcher_t *m = &p->m;
    const int part = m->n_parts;
    matcher_take(m);
    p->parts[part] = (joinable_t){.name = pattern->name,
                                  .family = pattern->family,
                                  .classes = pattern->family == FAMILY_ATTENTION
                                                 ? PAT_ATTENTION
                                                 : pat_classes(&m->g->nodes[m->node[0]])};
    for (int i = 0; i < m->match.n; i++) {
        p->role[m->node[i]] = m->of[i] < 0 ? "idle" : pattern->nodes[m->of[i]].role;
    }
    if (m->n_stops > 0) {
        textbuf_t text;
        text_init(&text, &p->arena);
        for (int i = 0; i < m->n_stops; i++) {
            text_add(&text, "  stopped %s\n", m->stops[i]);
        }
        if (text.oom) {
            return sinter_out_of_memory;
        }
        p->stops[part] = text.text;
    }
    return sinter_success;
}

static sinter_status_t match_all(partitioner_t *p)
{
    const graph_t *g = p->g;
    for (int row = 0; row < sinter_n_patterns; row++) {
        matcher_new_row(&p->m);
        for (int t = 0; t < graph_n_live(g); t++) {
            if (matcher_try(&p->m, sinter_patterns[row], g->topo[t])) {
                SG_TRY(take(p, sinter_patterns[row]));
            } else if (p->m.near) {
                SG_TRY(add_refusal(p, g->topo[t], sinter_patterns[row]));
            }
        }
    }
    return sinter_success;
}

/* ---- order ----------------------------------------------------------------------------------- */

/* Adds `by` to waiting[q] for each use that partition q makes of a value of partition p. Pushes the
 * partitions that then wait for nothing. */
static void release(const partitioner_t *p, int part, int by, int *waiting, heap_t *ready)
{
    const graph_t *g = p->g;
    const matcher_t *m = &p->m;
    for (int i = 0; i < m->parts[part].n; i++) {
        const node_t *n = &g->nodes[m->parts[part].nodes[i]];
        for (int o = 0; o < n->n_out; o++) {
            for (int u = g->uses_begin[n->out[o]]; u < g->uses_begin[n->out[o] + 1]; u++) {
                const int q = m->owner[g->uses[u]];
                if (q != part) {
                    waiting[q] += by;
                    if (by < 0 && waiting[q] == 0) {
                        heap_push(ready, m->parts[q].min_pos, q);
                    }
                }
            }
        }
    }
}

/* Sorts the partitions topologically: each one is a point of the graph. Those that went into
 * others are left out. */
static sinter_status_t order_parts(partitioner_t *p)
{
    const int n = p->m.n_parts;
    int n_left = 0;
    int *waiting = ARENA_NEW(&p->arena, int, n + 1);
    heap_t ready = {.items = ARENA_NEW(&p->arena, heap_item_t, n + 1)}; /* the first one on top */
    if (waiting == NULL || ready.items == NULL) {
        return sinter_out_of_memory;
    }
    for (int i = 0; i < n; i++) {
        release(p, i, 1, waiting, &ready);
    }
    for (int i = 0; i < n; i++) {
        n_left += p->m.parts[i].n > 0;
        if (waiting[i] == 0 && p->m.parts[i].n > 0) {
            heap_push(&ready, p->m.parts[i].min_pos, i);
        }
    }
    int done = 0;
    while (ready.n > 0) {
        p->order[done] = heap_pop(&ready);
        release(p, p->order[done++], -1, waiting, &ready);
    }
    p->n_order = done;
    return done == n_left
               ? sinter_success
               : sg_fail(sinter_runtime_error, "partitions depend on each other in a circle");
}

/* ---- making partitions ----------------------------------------------------------------------- */

static const char *explain_text(const partitioner_t *p, int part, const sinter_partition_t *made,
                                arena_t *arena)
{
    textbuf_t text;
    const matcher_t *m = &p->m;
    text_init(&text, arena);
    text_add(&text, "pattern %s\n", made->pattern);
    for (int i = 0; i < m->parts[part].n; i++) {
        const int node = m->parts[part].nodes[i];
        text_add(&text, "  %-12s %s\n", p->role[node] != NULL ? p->role[node] : "op",
                 node_label(&p->g->nodes[node]));
    }
    if (p->stops[part] != NULL) {
        text_add(&text, "%s", p->stops[part]);
    }
    if (p->parts[part].note != NULL) {
        text_add(&text, "%s", p->parts[part].note);
    }
    for (int i = 0; i < m->parts[part].n; i++) {
        const int node = m->parts[part].nodes[i];
        for (const refusal_t *r = p->refusals[node]; r != NULL; r = r->next) {
            text_add(&text, "  refused %s at %s: %s\n", r->pattern, node_label(&p->g->nodes[node]),
                     r->reason);
        }
    }
    if (!made->supported) {
        text_add(&text, "  not supported: %s\n", made->reason);
    }
    return text.oom ? NULL : text.text;
}

static sinter_status_t find_ports(sinter_partition_t *made)
{
    const graph_t *sub = &made->sub;
    made->inputs = ARENA_NEW(&made->sub.arena, int, sub->n_values + 1);
    made->outputs = ARENA_NEW(&made->sub.arena, int, sub->n_values + 1);
    if (made->inputs == NULL || made->outputs == NULL) {
        return sinter_out_of_memory;
    }
    for (int v = 0; v < sub->n_values; v++) {
        const value_t *value = &sub->values[v];
        if (value->producer < 0 && value->n_uses > 0) {
            made->inputs[made->n_inputs++] = v;
        } else if (value->producer >= 0 && value->is_output) {
            made->outputs[made->n_outputs++] = v;
        }
    }
    return sinter_success;
}

static sinter_status_t check_supported(sinter_partition_t *made)
{
    made->supported = true;
    for (int i = 0; i < made->sub.n_nodes && made->supported; i++) {
        const node_t *n = &made->sub.nodes[i];
        const char *why = op_runs(n->kind) ? op_limit(&made->sub, n)
                                           : "checked, but not executed by this library";
        if (why != NULL) {
            textbuf_t text;
            text_init(&text, &made->sub.arena);
            text_add(&text, "%s: %s", node_label(n), why);
            if (text.oom) {
                return sinter_out_of_memory;
            }
            made->supported = false;
            made->reason = text.text;
        }
    }
    return sinter_success;
}

static sinter_status_t fill(const partitioner_t *p, int part, sinter_partition_t *made)
{
    const graph_t *g = p->g;
    const part_t *from = &p->m.parts[part];
    const joinable_t *as = &p->parts[part];
    SG_TRY(graph_extract(g, from->nodes, from->n, &made->sub));
    for (int i = 0; i < from->n; i++) {
        const char *role = p->role[from->nodes[i]];
        made->sub.nodes[i].role = role != NULL ? role : "op";
    }
    made->pattern = as->name != NULL ? as->name : "single";
    made->family = as->name != NULL ? as->family : FAMILY_SINGLE;
    partition_set_fpmath(made, g->mode, g->apply_to_int);
    SG_TRY(find_ports(made));
    SG_TRY(check_supported(made));
    made->explain = explain_text(p, part, made, &made->sub.arena);
    return made->explain != NULL ? sinter_success : sinter_out_of_memory;
}

static sinter_status_t make_partition(const partitioner_t *p, int part, size_t id,
                                      sinter_partition_t **out)
{
    sinter_partition_t *made = sg_alloc(p->g->engine, sizeof(*made), 64);
    if (made == NULL) {
        return sinter_out_of_memory;
    }
    memset(made, 0, sizeof(*made));
    atomic_init(&made->refs, 1);
    made->engine = engine_ref(p->g->engine);
    made->id = id;
    graph_init(&made->sub, made->engine);
    const sinter_status_t status = fill(p, part, made);
    if (status != sinter_success) {
        partition_unref(made);
        return status;
    }
    *out = made;
    return sinter_success;
}

static sinter_status_t make_all(partitioner_t *p, partition_list_t *out)
{
    out->items = ARENA_NEW(&out->arena, sinter_partition_t *, p->n_order + 1);
    if (out->items == NULL) {
        return sinter_out_of_memory;
    }
    for (int i = 0; i < p->n_order; i++) {
        SG_TRY(make_partition(p, p->order[i], (size_t)i, &out->items[i]));
        out->n++;
    }
    return sinter_success;
}

/* A Reorder that packs or unpacks is a partition of its own: to patterns, a Reorder is a view. */
static void take_repacking(partitioner_t *p)
{
    const graph_t *g = p->g;
    for (int t = 0; t < graph_n_live(g); t++) {
        if (graph_repacks(g, &g->nodes[g->topo[t]])) {
            matcher_take_single(&p->m, g->topo[t]);
        }
    }
}

static sinter_status_t run(partitioner_t *p, sinter_partition_policy_t policy,
                           partition_list_t *out)
{
    const graph_t *g = p->g;
    p->refusals = ARENA_NEW(&p->arena, refusal_t *, g->n_nodes + 1);
    p->parts = ARENA_NEW(&p->arena, joinable_t, g->n_nodes + 1);
    p->stops = ARENA_NEW(&p->arena, const char *, g->n_nodes + 1);
    p->role = ARENA_NEW(&p->arena, const char *, g->n_nodes + 1);
    if (p->refusals == NULL || p->parts == NULL || p->stops == NULL || p->role == NULL) {
        return sinter_out_of_memory;
    }
    SG_TRY(matcher_init(&p->m, g, &p->arena));
    take_repacking(p);
    if (policy != sinter_partition_policy_debug) {
        SG_TRY(match_all(p));
    }
    for (int t = 0; t < graph_n_live(g); t++) {
        if (p->m.owner[g->topo[t]] < 0) {
            p->parts[p->m.n_parts].classes = pat_classes(&g->nodes[g->topo[t]]);
            matcher_take_single(&p->m, g->topo[t]);
        }
    }
    p->order = ARENA_NEW(&p->arena, int, p->m.n_parts + 1);
    if (p->order == NULL) {
        return sinter_out_of_memory;
    }
    if (policy != sinter_partition_policy_debug) {
        SG_TRY(order_parts(p));
        SG_TRY(join_partitions(&p->m, p->parts, p->order, &p->arena));
    }
    SG_TRY(order_parts(p));
    return make_all(p, out);
}

sinter_status_t partition_graph(const graph_t *g, sinter_partition_policy_t policy,
                                partition_list_t *out)
{
    partitioner_t p = {.g = g};
    arena_init(&p.arena, g->engine);
    *out = (partition_list_t){.n = 0};
    arena_init(&out->arena, g->engine);
    const sinter_status_t status = run(&p, policy, out);
    arena_free(&p.arena);
    if (status != sinter_success) {
        partition_list_free(out);
    }
    return status;
}

void partition_list_free(partition_list_t *list)
{
    for (int i = 0; i < list->n; i++) {
        partition_unref(list->items[i]);
    }
    arena_free(&list->arena);
    list->items = NULL;
    list->n = 0;
}

void partition_set_fpmath(sinter_partition_t *p, sinter_fpmath_mode_t mode, bool apply_to_int)
{
    atomic_store(&p->fpmath, 2 * (int)mode + apply_to_int);
}

void partition_get_fpmath(const sinter_partition_t *p, sinter_fpmath_mode_t *mode, bool *to_int)
{
    const int both = atomic_load(&p->fpmath);
    *mode = (sinter_fpmath_mode_t)(both / 2);
    *to_int = both % 2 != 0;
}

sinter_status_t partition_write_json(const sinter_partition_t *p, const char *path)
{
    sinter_fpmath_mode_t mode;
    bool apply_to_int;
    partition_get_fpmath(p, &mode, &apply_to_int);
    return graph_write_json(&p->sub, mode, apply_to_int, path);
}

sinter_partition_t *partition_ref(sinter_partition_t *p)
{
    atomic_fetch_add(&p->refs, 1);
    return p;
}

void partition_unref(sinter_partition_t *p)
{
    if (p != NULL && atomic_fetch_sub(&p->refs, 1) == 1) {
        sinter_engine_t *engine = p->engine;
        graph_free(&p->sub);
        sg_free(engine, p);
        engine_unref(engine);
    }
}
