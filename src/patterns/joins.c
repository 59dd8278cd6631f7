#include "patterns/joins.h"

#include <string.h>

#include "base/status.h"
#include "graph/experts.h"
#include "graph/schema.h"
#include "patterns/predicates.h"

/* ---- rows ------------------------------------------------------------------------------------ */

typedef enum join_how {
    JOIN_FEEDS,
    JOIN_KEEPS,
    JOIN_SHARES,
    JOIN_SCALES,
    JOIN_EXPERTS,
    JOIN_ROUTES,
    JOIN_CHAINS,
    JOIN_BETWEEN
} join_how_t;

/* As in joins.def. */
typedef struct join_row {
    const char *name;
    join_how_t how;
    unsigned upper, lower;
    bool joined;
} join_row_t;

#define POINTWISE (PAT_ELTWISE | PAT_CAST | PAT_DEQUANT)
/* What computes rows, of one value for each expert, from one another. */
#define BY_ROWS \
    (PAT_ELTWISE | PAT_CAST | PAT_VIEW | OP_SOFTMAX | OP_REDUCE | OP_GATHER | OP_SCATTER | OP_TOP_K)

static const join_row_t rows[] = {
#define SINTER_JOIN(name, how, upper, lower, joined) {#name, JOIN_##how, upper, lower, joined},
#include "patterns/joins.def"
#undef SINTER_JOIN
};

const char *const sinter_joins[] = {
#define SINTER_JOIN(name, ...) #name,
#include "patterns/joins.def"
#undef SINTER_JOIN
};
const int sinter_n_joins = (int)(sizeof sinter_joins / sizeof *sinter_joins);

typedef struct joiner {
    matcher_t *m;
    joinable_t *parts;
    arena_t *arena;
    int *order, *place; /* partitions in an order in which they can run; by partition */
    bool *after;        /* by partition: it depends on the upper one of two */
    int *moved;         /* partitions of a stretch of the order */
    bool *found;        /* by value: a TopK of the partition in question leads to it */
} joiner_t;

/* ---- what a partition reads ------------------------------------------------------------------ */

/* The tensor that becomes A of a product: casts, views and quantisations of the same partition
 * lie between. */
static int root_of_a(const joiner_t *j, const node_t *matmul, int part)
{
    enum { ON_THE_WAY = PAT_CAST | PAT_VIEW | PAT_QUANT | PAT_DYNQUANT | PAT_DEQUANT };
    const graph_t *g = j->m->g;
    int v = matmul->in[0];
    for (int p = g->values[v].producer;
         p >= 0 && j->m->owner[p] == part && (pat_classes(&g->nodes[p]) & ON_THE_WAY) != 0;
         p = g->values[v].producer) {
        v = g->nodes[p].in[0];
    }
    return v;
}

/* The tensor that counts for the rows. shared: A of a product, slots of an append. Else the data
 * that a node works on. -1: none. */
static int data_of(const joiner_t *j, int node, bool shared)
{
    const node_t *n = &j->m->g->nodes[node];
    const unsigned classes = pat_classes(n);
    const int part = j->m->owner[node];
    if ((classes & OP_SCATTER) != 0) {
        return n->in[shared ? 1 : 2];
    }
    if ((classes & OP_MATMUL) != 0) {
        return root_of_a(j, n, part);
    }
    return shared || n->n_in == 0 ? -1 : n->in[0];
}

/* Some op of `lower` takes rows by an index that `upper` computes, and that may be wrong. */
static bool computes_indices(const joiner_t *j, int upper, int lower)
{
    const matcher_t *m = j->m;
    for (int i = 0; i < m->parts[lower].n; i++) {
        const node_t *n = &m->g->nodes[m->parts[lower].nodes[i]];
        const int port = op_index_port(n), p = port >= 0 ? m->g->values[n->in[port]].producer : -1;
        if (p >= 0 && m->owner[p] == upper && !graph_indices_fit(m->g, n)) {
            return true;
        }
    }
    return false;
}

/* An op of `part` dequantises with v: v is its scales, its zero points or its offsets. */
static bool scaled_by(const joiner_t *j, int part, int v)
{
    const matcher_t *m = j->m;
    for (int i = 0; i < m->parts[part].n; i++) {
        const node_t *n = &m->g->nodes[m->parts[part].nodes[i]];
        for (int k = 1; n->kind == sinter_op_dynamic_dequantize && k < n->n_in; k++) {
            if (n->in[k] == v) {
                return true;
            }
        }
    }
    return false;
}

/* A product of `part` takes experts by these indices. */
static bool has_experts(const joiner_t *j, int part, int indices)
{
    const matcher_t *m = j->m;
    bool has = false;
    for (int i = 0; i < m->parts[part].n && indices >= 0 && !has; i++) {
        has = graph_experts(m->g, &m->g->nodes[m->parts[part].nodes[i]]) == indices;
    }
    return has;
}

static bool is_read(const matcher_t *m, int part, int v)
{
    bool reads = false;
    for (int i = 0; i < m->parts[part].n && !reads; i++) {
        const node_t *n = &m->g->nodes[m->parts[part].nodes[i]];
        for (int k = 0; k < n->n_in; k++) {
            reads = reads || n->in[k] == v;
        }
    }
    return reads;
}

/* v is an expert, or scales or zero points of one, that a product of `part` multiplies with; or the
 * rows of a bias that a Gather takes by the indices of such a product. */
static bool takes_by_experts(const joiner_t *j, int part, int v)
{
    const matcher_t *m = j->m;
    const int p = m->g->values[v].producer;
    const node_t *gather = p >= 0 ? &m->g->nodes[p] : NULL;
    return gather != NULL && is_read(m, part, v) &&
           (graph_product_of_experts(m->g, gather) != NULL ||
            (gather->kind == sinter_op_gather && m->g->values[gather->in[0]].producer < 0 &&
             has_experts(j, part, gather->in[1])));
}

/* The indices by which the first product with experts of `part` takes them. -1: there is none. */
static int experts_of(const matcher_t *m, int part)
{
    int indices = -1;
    for (int i = 0; i < m->parts[part].n && indices < 0; i++) {
        indices = graph_experts(m->g, &m->g->nodes[m->parts[part].nodes[i]]);
    }
    return indices;
}

/* `part` reads v, and multiplies with experts by the same indices as the partition that makes v. */
static bool chains_experts(const joiner_t *j, int part, int v)
{
    const matcher_t *m = j->m;
    const int p = m->g->values[v].producer;
    return p >= 0 && is_read(m, part, v) && has_experts(j, m->owner[p], experts_of(m, part));
}

/* v is made, by elementwise ops, casts, views and slices alone, of what a product gives that takes
 * experts by these indices. left: nodes that may still be looked at. */
static bool is_made_of_experts(const joiner_t *j, int v, int indices, int *left)
{
    enum { MAY_BE = PAT_ELTWISE | PAT_CAST | PAT_VIEW | PAT_SLICE };
    const graph_t *g = j->m->g;
    const int p = g->values[v].producer;
    const node_t *n = p >= 0 ? &g->nodes[p] : NULL;
    bool made = false;
    if (n == NULL || --*left < 0 || graph_experts(g, n) == indices) {
        return n != NULL && *left >= 0;
    }
    const bool may_be = (pat_classes(n) & MAY_BE) != 0;
    for (int i = 0; i < n->n_in && may_be && !made; i++) {
        made = is_made_of_experts(j, n->in[i], indices, left);
    }
    return made;
}

/* `part` multiplies with experts and reads v, which lies between such products. */
static bool reads_between(const joiner_t *j, int part, int v)
{
    const matcher_t *m = j->m;
    const int indices = experts_of(m, part);
    int left = 32;
    return indices >= 0 && m->g->values[v].producer >= 0 &&
           graph_experts(m->g, &m->g->nodes[m->g->values[v].producer]) < 0 &&
           is_made_of_experts(j, v, indices, &left);
}

/* Partition `part` reads v as its data. Products and norms do other work too, which does not
 * count, and indices are no data. */
static bool reads(const joiner_t *j, int part, int v, const join_row_t *row)
{
    const matcher_t *m = j->m;
    if (row->how == JOIN_SCALES) {
        return scaled_by(j, part, v);
    }
    if (row->how == JOIN_EXPERTS) {
        return takes_by_experts(j, part, v);
    }
    if (row->how == JOIN_BETWEEN) {
        return is_read(m, part, v) && reads_between(j, part, v);
    }
    if (row->how == JOIN_CHAINS && row->lower == OP_MATMUL) {
        return chains_experts(j, part, v);
    }
    const bool any = (row->upper & OP_GATHER) != 0 || row->lower == PAT_ATTENTION;
    const unsigned fed = (row->lower & (OP_MATMUL | OP_NORM)) != 0 ? row->lower : ~0u;
    for (int i = 0; i < m->parts[part].n; i++) {
        const int node = m->parts[part].nodes[i];
        const node_t *n = &m->g->nodes[node];
        for (int k = 0; k < n->n_in && any; k++) {
            if (n->in[k] == v && k != op_index_port(n)) {
                return true;
            }
        }
        if (!any && (pat_classes(n) & fed) != 0 && data_of(j, node, row->how == JOIN_SHARES) == v) {
            return true;
        }
    }
    return false;
}

/* ---- joining --------------------------------------------------------------------------------- */

/* Says once in the report of `part` why it was not joined with another one. */
static sinter_status_t note(joiner_t *j, int part, const join_row_t *row, int other,
                            const char *why)
{
    enum { ENOUGH = 1000 };
    textbuf_t line, text;
    const matcher_t *m = j->m;
    const char *before = j->parts[part].note != NULL ? j->parts[part].note : "";
    text_init(&line, j->arena);
    text_add(&line, "  not joined (%s) with %s: %s\n", row->name,
             node_label(&m->g->nodes[m->parts[other].nodes[0]]), why);
    if (line.oom) {
        return sinter_out_of_memory;
    }
    if (strlen(before) > ENOUGH || strstr(before, line.text) != NULL) {
        return sinter_success;
    }
    text_init(&text, j->arena);
    text_add(&text, "%s%s", before, line.text);
    j->parts[part].note = text.text;
    return text.oom ? sinter_out_of_memory : sinter_success;
}

/* Joins copy lists of ops, so partitions stay short. */
static bool fits(const joiner_t *j, int upper, int lower)
{
    enum { MOST_OPS = 256 };
    return j->m->parts[upper].n + j->m->parts[lower].n <= MOST_OPS;
}

/* The library runs all its ops. */
static bool runs(const joiner_t *j, int part)
{
    const matcher_t *m = j->m;
    for (int i = 0; i < m->parts[part].n; i++) {
        const node_t *n = &m->g->nodes[m->parts[part].nodes[i]];
        if (!op_runs(n->kind) || op_limit(m->g, n) != NULL) {
            return false;
        }
    }
    return true;
}

/* Every partition up to `end` in the order, other than `part` itself, that reads a result of `part`
 * becomes one that depends on it. */
static void spread(joiner_t *j, int part, int end)
{
    const matcher_t *m = j->m;
    for (int i = 0; i < m->parts[part].n; i++) {
        const node_t *n = &m->g->nodes[m->parts[part].nodes[i]];
        for (int o = 0; o < n->n_out; o++) {
            for (int u = m->g->uses_begin[n->out[o]]; u < m->g->uses_begin[n->out[o] + 1]; u++) {
                const int q = m->owner[m->g->uses[u]];
                j->after[q] = j->after[q] || (q != part && j->place[q] <= end);
            }
        }
    }
}

/* Gives a stretch of the order, from the first to the last of two partitions that become one, its
 * new order: what does not depend on the first of them, then `lower`, which will be both, then the
 * others. NULL, or why they cannot be one: the last one depends on the first through others. */
static const char *reorder(joiner_t *j, int upper, int lower)
{
    enum { LONGEST = 4096 };
    const bool in_order = j->place[upper] < j->place[lower];
    const int first = in_order ? upper : lower, last = in_order ? lower : upper,
              begin = j->place[first], end = j->place[last];
    if (end - begin > LONGEST) {
        return "too many partitions lie between them";
    }
    spread(j, first, end);
    j->after[last] = false; /* what it reads of the first one itself closes no cycle */
    for (int k = begin + 1; k < end; k++) {
        if (j->after[j->order[k]]) {
            spread(j, j->order[k], end);
        }
    }
    const bool cycle = j->after[last];
    int n = 0;
    for (int after = 0; after < 2; after++) {
        for (int k = begin + 1; k < end; k++) {
            if (j->after[j->order[k]] == (after == 1)) {
                j->moved[n++] = j->order[k];
            }
        }
        if (after == 0) {
            j->moved[n++] = lower;
        }
    }
    for (int k = begin; k <= end; k++) {
        j->after[j->order[k]] = false;
    }
    if (cycle) {
        return "one depends on the other through ops outside, so they would close a cycle";
    }
    for (int k = 0; k < n; k++) {
        j->order[begin + k] = j->moved[k];
        j->place[j->moved[k]] = begin + k;
    }
    j->order[end] = upper;
    j->place[upper] = end;
    return NULL;
}

/* A gated MLP stays one when a norm feeds it, and becomes one of experts when it takes these by
 * index. Anything stays what it is when its scales are dequantised. */
static const char *joined_name(const join_row_t *row, const char *before)
{
    if (row->how == JOIN_EXPERTS && before != NULL &&
        (strcmp(before, "gated-mlp") == 0 || strcmp(before, "moe-mlp") == 0)) {
        return "moe-mlp";
    }
    const bool says_more = row->how == JOIN_FEEDS && row->lower == OP_MATMUL && before != NULL &&
                           strcmp(before, "matmul") != 0;
    return says_more || (row->how == JOIN_SCALES && before != NULL) ? before : row->name;
}

/* Joins `upper` into `lower`, unless that would make a cycle. */
static sinter_status_t join(joiner_t *j, const join_row_t *row, int upper, int lower, bool *joined)
{
    matcher_t *m = j->m;
    part_t *a = &m->parts[upper], *b = &m->parts[lower];
    *joined = false;
    if (!runs(j, upper) || !runs(j, lower)) {
        return sinter_success;
    }
    const char *why = computes_indices(j, upper, lower)
                          ? "its indices must be there before it begins"
                          : reorder(j, upper, lower);
    if (why != NULL) {
        return note(j, lower, row, upper, why);
    }
    int *nodes = ARENA_NEW(j->arena, int, a->n + b->n);
    if (nodes == NULL) {
        return sinter_out_of_memory;
    }
    matcher_merge(m, upper, lower, nodes);
    const family_t families[] = {j->parts[upper].family, j->parts[lower].family};
    j->parts[lower].name = joined_name(row, j->parts[lower].name);
    if (row->how == JOIN_ROUTES) {
        j->parts[lower].classes = row->lower;
    }
    j->parts[lower].family = families[0] == FAMILY_ATTENTION || families[1] == FAMILY_ATTENTION
                                 ? FAMILY_ATTENTION
                             : strcmp(j->parts[lower].name, "moe-mlp") == 0 ? FAMILY_EXPERTS
                                                                            : FAMILY_GENERAL;
    *joined = true;
    return sinter_success;
}

/* A reader of v that is in neither partition; -1: none. */
static int other_reader(const joiner_t *j, int v, int upper, int lower)
{
    const int *users = value_users(j->m, v);
    for (int i = 0; i < value_n_users(j->m, v); i++) {
        const int part = j->m->owner[users[i]];
        if (part != upper && part != lower) {
            return users[i];
        }
    }
    return -1;
}

/* Whether `upper` feeds `lower` by the row. *other: a reader elsewhere of what it feeds, for which
 * the row leaves no room; NULL: none. Further results of `upper`, a residual sum for one, may have
 * any readers. */
static bool feeds(const joiner_t *j, const join_row_t *row, int upper, int lower,
                  const node_t **other)
{
    const matcher_t *m = j->m;
    bool fed = false;
    *other = NULL;
    for (int i = 0; i < m->parts[upper].n; i++) {
        const node_t *n = &m->g->nodes[m->parts[upper].nodes[i]];
        for (int o = 0; o < n->n_out; o++) {
            if (reads(j, lower, n->out[o], row)) {
                const int out = other_reader(j, n->out[o], upper, lower);
                *other = out >= 0 ? &m->g->nodes[out] : *other;
                fed = true;
            }
        }
    }
    return fed && (row->how == JOIN_KEEPS || *other == NULL);
}

/* What is summed up in a chain of experts' products is such a chain itself. What lies between them
 * may have no class: a slice. */
static bool is_upper(const joiner_t *j, const join_row_t *row, int upper)
{
    const joinable_t *part = &j->parts[upper];
    return (row->how == JOIN_BETWEEN || (part->classes & row->upper) != 0) &&
           (row->how != JOIN_CHAINS || row->lower == OP_MATMUL ||
            (part->name != NULL && strcmp(part->name, row->name) == 0));
}

/* Joins into `lower` all partitions above that the row names. */
static sinter_status_t join_above(joiner_t *j, const join_row_t *row, int lower)
{
    matcher_t *m = j->m;
    for (int i = 0; i < m->parts[lower].n; i++) {
        const node_t *n = &m->g->nodes[m->parts[lower].nodes[i]];
        for (int k = 0; k < n->n_in; k++) {
            const node_t *other;
            const int p = m->g->values[n->in[k]].producer;
            const int upper = p >= 0 ? m->owner[p] : lower;
            bool joined = false;
            if (upper == lower || !is_upper(j, row, upper) || !fits(j, upper, lower)) {
                continue;
            }
            if (feeds(j, row, upper, lower, &other)) {
                SG_TRY(join(j, row, upper, lower, &joined));
            } else if (other != NULL) {
                SG_TRY(note(j, lower, row, upper, "others read its result too"));
            }
            if (joined) {
                i = -1; /* the list of ops is another one now */
                break;
            }
        }
    }
    return sinter_success;
}

/* Which of the users of v this node is; a node that reads v in another way is none, and counts as
 * the first. */
static int place_of_user(const matcher_t *m, int v, int node)
{
    const int n = value_n_users(m, v);
    int u = 0;
    while (u < n && value_users(m, v)[u] != node) {
        u++;
    }
    return u < n ? u : 0;
}

/* Joins into `part` the partitions behind it that read the same tensor. Of many readers, as the
 * slots of a cache have in all layers, those next to the one of `part`. */
static sinter_status_t join_beside(joiner_t *j, const join_row_t *row, int part)
{
    enum { MOST_USERS = 64 };
    matcher_t *m = j->m;
    for (int i = 0; i < m->parts[part].n; i++) {
        const int node = m->parts[part].nodes[i];
        const int v =
            (pat_classes(&m->g->nodes[node]) & row->upper) != 0 ? data_of(j, node, true) : -1;
        const int p = v >= 0 ? m->g->values[v].producer : -1;
        if (v < 0 || (p >= 0 && m->owner[p] == part)) {
            continue;
        }
        bool joined = false;
        const int n_users = value_n_users(m, v), own = place_of_user(m, v, node),
                  begin = own > MOST_USERS / 2 ? own - MOST_USERS / 2 : 0;
        for (int u = begin; u < n_users && u < begin + MOST_USERS && !joined; u++) {
            const int other = m->owner[value_users(m, v)[u]];
            if (other != part && (j->parts[other].classes & row->lower) != 0 &&
                fits(j, other, part) && reads(j, other, v, row)) {
                SG_TRY(join(j, row, other, part, &joined));
            }
        }
        i = joined ? -1 : i;
    }
    return sinter_success;
}

/* ---- routers --------------------------------------------------------------------------------- */

/* Marks the results of `part` that a TopK of it leads to, or takes the marks away. */
static void mark_found(joiner_t *j, int part, bool mark)
{
    const graph_t *g = j->m->g;
    for (int i = 0; i < j->m->parts[part].n; i++) { /* in topological order */
        const node_t *n = &g->nodes[j->m->parts[part].nodes[i]];
        bool found = (pat_classes(n) & OP_TOP_K) != 0;
        for (int k = 0; k < n->n_in && !found; k++) {
            found = j->found[n->in[k]];
        }
        for (int o = 0; o < n->n_out; o++) {
            j->found[n->out[o]] = found && mark;
        }
    }
}

/* Between the scores and what is taken of them by index. */
enum { TURNS_SCORES = PAT_ELTWISE | PAT_CAST | PAT_VIEW | OP_SOFTMAX, MOST_TURNS = 8 };

/* v is computed in `part` or `router`, read by the router, or made of such a tensor. */
static bool is_known(const joiner_t *j, int v, int part, int router)
{
    const matcher_t *m = j->m;
    for (int step = 0; step < MOST_TURNS; step++) {
        const int p = m->g->values[v].producer;
        if ((p >= 0 && (m->owner[p] == part || m->owner[p] == router)) || is_read(m, router, v)) {
            return true;
        }
        if (p < 0 || (pat_classes(&m->g->nodes[p]) & TURNS_SCORES) == 0) {
            return false;
        }
        v = m->g->nodes[p].in[0];
    }
    return false;
}

/* What `part` takes rows of by index is known to `router`. */
static bool takes_known_rows(const joiner_t *j, int part, int router)
{
    const matcher_t *m = j->m;
    for (int i = 0; i < m->parts[part].n; i++) {
        const node_t *n = &m->g->nodes[m->parts[part].nodes[i]];
        if (op_index_port(n) >= 0 && !is_known(j, n->in[0], part, router)) {
            return false;
        }
    }
    return true;
}

/* The last result of `part` leads to what an op takes rows of, by indices that a router has
 * found. */
static bool leads_to_rows(const joiner_t *j, int part)
{
    const matcher_t *m = j->m;
    const node_t *n = &m->g->nodes[m->parts[part].nodes[m->parts[part].n - 1]];
    for (int step = 0; step < MOST_TURNS && value_n_users(m, n->out[0]) > 0; step++) {
        const int v = n->out[0];
        n = &m->g->nodes[value_users(m, v)[0]];
        const int port = op_index_port(n);
        if (port >= 0) {
            return n->in[0] == v && j->found[n->in[port]];
        }
        if ((pat_classes(n) & TURNS_SCORES) == 0) {
            break;
        }
    }
    return false;
}

static bool may_route(const joiner_t *j, const join_row_t *row, int other, int router)
{
    return other != router && (j->parts[other].classes & row->upper) != 0 && fits(j, other, router);
}

/* The last partition in the order before place `end` that makes something for `router`; -1: there
 * is none. The later ones go first, as the earlier ones may feed the router through them. */
static int next_above(const joiner_t *j, const join_row_t *row, int router, int end)
{
    const matcher_t *m = j->m;
    int last = -1;
    for (int i = 0; i < m->parts[router].n; i++) {
        const node_t *n = &m->g->nodes[m->parts[router].nodes[i]];
        for (int k = 0; k < n->n_in; k++) {
            const int p = m->g->values[n->in[k]].producer, other = p >= 0 ? m->owner[p] : router;
            if (may_route(j, row, other, router) && j->place[other] < end &&
                (last < 0 || j->place[other] > j->place[last])) {
                last = other;
            }
        }
    }
    return last;
}

/* The first partition in the order behind place `begin` that takes what `router` has found, or
 * makes what that names rows of. */
static int next_below(joiner_t *j, const join_row_t *row, int router, int begin)
{
    enum { MOST_USERS = 64 };
    const matcher_t *m = j->m;
    int first = -1;
    mark_found(j, router, true);
    for (int i = 0; i < m->parts[router].n; i++) {
        const node_t *n = &m->g->nodes[m->parts[router].nodes[i]];
        for (int o = 0; o < n->n_out; o++) {
            const int v = n->out[o];
            for (int u = 0; u < value_n_users(m, v) && u < MOST_USERS; u++) {
                const int other = m->owner[value_users(m, v)[u]];
                if (may_route(j, row, other, router) && j->place[other] > begin &&
                    (first < 0 || j->place[other] < j->place[first]) &&
                    (j->found[v] ? takes_known_rows(j, other, router) : leads_to_rows(j, other))) {
                    first = other;
                }
            }
        }
    }
    mark_found(j, router, false);
    return first;
}

/* Joins with a partition that chooses experts all that makes its rows, and all that takes what it
 * has found. */
static sinter_status_t join_around(joiner_t *j, const join_row_t *row, int router)
{
    for (bool joined = true; joined;) {
        joined = false;
        for (int end = j->m->n_parts, other; !joined; end = j->place[other]) {
            other = next_above(j, row, router, end);
            if (other < 0) {
                break;
            }
            SG_TRY(join(j, row, other, router, &joined));
        }
        for (int begin = -1, other; !joined; begin = j->place[other]) {
            other = next_below(j, row, router, begin);
            if (other < 0) {
                break;
            }
            SG_TRY(join(j, row, router, other, &joined));
            router = joined ? other : router;
        }
    }
    return sinter_success;
}

/* ---------------------------------------------------------------------------------------------- */

sinter_status_t join_partitions(matcher_t *m, joinable_t *parts, int *order, arena_t *arena)
{
    joiner_t j = {.m = m, .parts = parts, .arena = arena, .order = order};
    j.place = ARENA_NEW(arena, int, m->n_parts + 1);
    j.after = ARENA_NEW(arena, bool, m->n_parts + 1);
    j.moved = ARENA_NEW(arena, int, m->n_parts + 1);
    j.found = ARENA_NEW(arena, bool, m->g->n_values + 1);
    if (j.place == NULL || j.after == NULL || j.moved == NULL || j.found == NULL) {
        return sinter_out_of_memory;
    }
    memset(j.found, 0, sizeof *j.found * (size_t)m->g->n_values);
    for (int k = 0; k < m->n_parts; k++) {
        j.place[order[k]] = k;
        j.after[k] = false;
    }
    for (size_t r = 0; r < sizeof rows / sizeof *rows; r++) {
        const join_row_t *row = &rows[r];
        for (int p = 0; p < m->n_parts; p++) {
            const bool named = parts[p].name != NULL && strcmp(parts[p].name, row->name) == 0;
            if (m->parts[p].n > 0 && (parts[p].classes & row->lower) != 0 &&
                (named || !row->joined)) {
                SG_TRY(row->how == JOIN_SHARES   ? join_beside(&j, row, p)
                       : row->how == JOIN_ROUTES ? join_around(&j, row, p)
                                                 : join_above(&j, row, p));
            }
        }
    }
    return sinter_success;
}
