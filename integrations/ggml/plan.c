/* Plans: a run of nodes as compiled Sinter graphs, kept for later runs of the same structure. */
#include "plan.h"

#include <stdlib.h>

#include "cuts.h"
#include "engine.h"
#include "heads.h"
#include "layout.h"
#include "ops.h"
#include "twins.h"

/* A part of a plan: nodes first ... end - 1 as one compiled graph, by loops of the backend, or,
 * where Sinter refuses them together, one by one. */
typedef struct step {
    int first, end;
    sinter_compiled_graph_t *whole; /* NULL: a loop, one by one, or nothing to compute */
    gs_ports_t ports;               /* of whole */
    gs_loop_t loop;
    bool singly; /* one by one */
    bool writes_weights;
} step_t;

/* A dim that has had several sizes is open. Two open dims are of one class if they have had the
 * same size in all runs, and a plan serves runs where that holds. A class has the number of its
 * first dim, from 1 on: dim d of tensor i is number 1 + GGML_MAX_DIMS * i + d. */
typedef struct geometry {
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS], offset; /* of the data in its root's */
    int open[GGML_MAX_DIMS];          /* 0, or the class */
} geometry_t;

/* What is bound for a tensor. */
typedef struct bound {
    const void *data;
    int64_t ne[GGML_MAX_DIMS];
    size_t nb[GGML_MAX_DIMS];
} bound_t;

typedef struct plan {
    struct plan *next;
    uint64_t structure;
    int n_tensors, n_steps, steps_capacity;
    bool runs;     /* now; its nodes one by one may need plans of their own */
    bool is_bound; /* every step, to what `bound` says */
    geometry_t *geometry;
    bound_t *bound;
    step_t *steps;
} plan_t;

enum { MAX_PLANS = 512 };

struct gs_plans {
    plan_t *list; /* used last first */
    int count;
    uint64_t hits, misses;
    /* The graph of the last call, if the host has numbered it: the number changes with all that
     * moves. */
    uint64_t uid;
    uint64_t changes; /* of caches that had been laid out anew before */
    plan_t *last;
    gs_tensors_t last_tensors;
    gs_cuts_t cuts;
    gs_caches_t caches;
};

static size_t offset_in_root(const tensor_t *t)
{
    return (size_t)((const char *)t->data - (const char *)gs_root(t)->data);
}

/* All that decides what the graphs look like, but for dims and strides by themselves. */
static uint64_t structure_of(const gs_tensors_t *tensors)
{
    uint64_t hash = gs_mix((uint64_t)tensors->n_nodes, (uint64_t)tensors->count);
    for (int i = 0; i < tensors->count; i++) {
        const tensor_t *t = tensors->list[i];
        const ggml_backend_buffer_t buffer = gs_root(t)->buffer;
        uint64_t bits = (uint64_t)t->op << 32 | (uint64_t)t->type << 24;
        for (int d = 0; d < GGML_MAX_DIMS; d++) {
            bits |= (uint64_t)((t->ne[d] == 1) | (t->ne[d] == 0) << 1) << (2 * d);
        }
        bits |= (uint64_t)ggml_is_contiguous(t) << 8 | (uint64_t)gs_is_ours(t) << 9;
        bits |= (uint64_t)(buffer && buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) << 10;
        bits |= (uint64_t)((t->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) << 11;
        bits |= (uint64_t)gs_in_tiles(gs_root(t)) << 12;
        const gs_heads_t heads = gs_heads_of(t);
        bits |= (uint64_t)heads.is_v << 13 | (uint64_t)heads.head << 40;
        hash = gs_mix(hash, bits);
        hash = gs_mix(hash, (uint64_t)gs_tensors_find(tensors, gs_root(t)));
        if (t->view_src) {
            hash = gs_mix(hash, gs_kind_of_view(t));
        }
        if (i >= tensors->n_nodes) {
            continue;
        }
        hash = gs_mix(hash, (uint64_t)(tensors->outer_uses[i] > 0) | (uint64_t)!gs_loop_of(t) << 1);
        hash = gs_mix(hash, (uint64_t)gs_fixed_dim(t));
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            hash = gs_mix(hash, (uint64_t)tensors->src[i][s]);
        }
        if (gs_op(t) != GS_OP_VIEW) {
            for (size_t p = 0; p < sizeof(t->op_params) / sizeof(t->op_params[0]); p += 2) {
                uint64_t two;
                memcpy(&two, &t->op_params[p], sizeof(two));
                hash = gs_mix(hash, two);
            }
        }
    }
    return hash;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void step_free(step_t *step)
{
    sinter_compiled_graph_destroy(&step->whole);
    gs_ports_free(&step->ports);
}

static void plan_free(plan_t *plan)
{
    for (int i = 0; i < plan->n_steps; i++) {
        step_free(&plan->steps[i]);
    }
    free(plan->steps);
    free(plan->geometry);
    free(plan->bound);
    free(plan);
}

gs_plans_t *gs_plans_create(void)
{
    return calloc(1, sizeof(gs_plans_t));
}

void gs_plans_destroy(gs_plans_t *plans)
{
    if (!plans) {
        return;
    }
    gs_cuts_say(&plans->cuts);
    gs_twins_say();
    gs_say_counts(plans->misses, plans->hits);
    while (plans->list) {
        plan_t *next = plans->list->next;
        plan_free(plans->list);
        plans->list = next;
    }
    gs_tensors_free(&plans->last_tensors);
    gs_caches_free(&plans->caches);
    free(plans);
}

static bool plan_fits(const plan_t *plan, const gs_tensors_t *tensors)
{
    for (int i = 0; i < tensors->count; i++) {
        const tensor_t *t = tensors->list[i];
        const geometry_t *g = &plan->geometry[i];
        bool open = false;
        for (int d = 0; d < GGML_MAX_DIMS; d++) {
            const int first = g->open[d] - 1;
            open |= g->open[d] != 0;
            if (t->ne[d] !=
                (g->open[d] == 0
                     ? g->ne[d]
                     : tensors->list[first / GGML_MAX_DIMS]->ne[first % GGML_MAX_DIMS])) {
                return false;
            }
        }
        if ((!open && memcmp(t->nb, g->nb, sizeof(t->nb))) || offset_in_root(t) != g->offset) {
            return false;
        }
    }
    return true;
}

static void say_error(const tensor_t *node, const char *why)
{
    GGML_LOG_ERROR("sinter: %s %s: %s\n", ggml_op_desc(node), node->name, why);
}

/* Adds an output to the graph for each node that later nodes or the host read, and for each node
 * that writes memory which existed before. */
static bool add_outputs(gs_builder_t *b)
{
    const gs_tensors_t *tensors = b->tensors;
    bool *needed = calloc((size_t)tensors->n_nodes + 1, sizeof(*needed));
    bool ok = needed != NULL;
    for (int n = tensors->n_nodes - 1; n >= b->first && ok; n--) {
        const tensor_t *t = tensors->list[n];
        if (n < b->end) {
            const int root = gs_tensors_find(tensors, gs_root(t));
            needed[n] |= tensors->outer_uses[n] > 0 || (t->flags & GGML_TENSOR_FLAG_OUTPUT);
            needed[n] |= t->view_src && !gs_is_view(t) && !(root >= b->first && root < b->end);
            const bool into_memory =
                gs_op(t) == GS_OP_SET_ROWS && !(root >= b->first && root < b->end);
            if (needed[n] && !gs_is_noop(t) && !into_memory) {
                ok = gs_add_output(b, 0, n);
            }
        }
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            const int src = tensors->src[n][s];
            if (src >= 0 && src < tensors->n_nodes) {
                needed[src] |= n >= b->end || (needed[n] && gs_is_view(t));
            }
        }
    }
    free(needed);
    return ok;
}

/* Translates the nodes; where it ended. */
static int translate(gs_builder_t *b)
{
    int n = b->first;
    while (n < b->end && !gs_loop_of(b->tensors->list[n]) && gs_translate(b, n)) {
        n++;
    }
    return n;
}

/* Makes a step of as many nodes as go into one graph. */
static bool build_step(gs_plans_t *plans, const gs_tensors_t *tensors, int first, step_t *step)
{
    const tensor_t *node = tensors->list[first];
    gs_builder_t b;
    *step = (step_t){.first = first, .end = first + 1, .loop = gs_loop_of(node)};
    if (step->loop) {
        return true; /* it writes by ggml_backend_tensor_set, which knows of copies */
    }
    /* Once to see where the graph ends, then with its outputs known. */
    bool ok = gs_builder_open(&b, tensors, first, tensors->n_nodes);
    step->end = ok ? translate(&b) : first;
    if (step->end < tensors->n_nodes && step->end > first) {
        const tensor_t *next = tensors->list[step->end];
        gs_say_reason(next->name, "a graph ends before %s: %s", ggml_op_name(next->op),
                      gs_loop_of(next) ? "it is a loop of the backend's own" : b.why);
    }
    while (ok && step->end > first) {
        gs_builder_free(&b);
        ok = gs_builder_open(&b, tensors, first, step->end) && add_outputs(&b);
        const int reached = ok ? translate(&b) : first;
        if (reached == step->end) {
            break;
        }
        step->end = reached;
    }
    ok = ok && step->end > first;
    if (!ok) {
        say_error(node, b.why);
    } else if (b.ports.n_outputs > 0) {
        step->whole = gs_builder_compile(&b);
        plans->misses++;
        if (step->whole) {
            step->ports = b.ports;
            b.ports = (gs_ports_t){0};
            gs_ports_drop_dead(&step->ports, step->whole);
        } else if (step->end - first > 1) {
            gs_say_reason(node->name, "%d nodes run one by one: %s", step->end - first,
                          sinter_last_error_message());
            step->singly = true;
        } else {
            say_error(node, sinter_last_error_message());
            ok = false;
        }
    }
    for (int n = first; n < step->end; n++) {
        const tensor_t *t = tensors->list[n];
        step->writes_weights |= !gs_is_view(t) && gs_is_constant(t);
    }
    gs_builder_free(&b);
    return ok;
}

/* The next plan of a structure in a list. */
static const plan_t *of_structure(const plan_t *plan, uint64_t structure, int n_tensors)
{
    while (plan && (plan->structure != structure || plan->n_tensors != n_tensors)) {
        plan = plan->next;
    }
    return plan;
}

static const plan_t *next_of_structure(const plan_t *plan)
{
    return of_structure(plan->next, plan->structure, plan->n_tensors);
}

/* Whether two dims, numbered from 0 on, have had the same size in all runs of these plans. */
static bool same_before(const plan_t *older, int x, int y)
{
    bool same = true;
    for (const plan_t *p = older; p && same; p = next_of_structure(p)) {
        const geometry_t *gx = &p->geometry[x / GGML_MAX_DIMS],
                         *gy = &p->geometry[y / GGML_MAX_DIMS];
        const int dx = x % GGML_MAX_DIMS, dy = y % GGML_MAX_DIMS;
        same = gx->open[dx] == gy->open[dy] && (gx->open[dx] || gx->ne[dx] == gy->ne[dy]);
    }
    return same;
}

static bool changes(const plan_t *older, int tensor, int dim, int64_t now)
{
    bool differs = false;
    for (const plan_t *p = older; p && !differs; p = next_of_structure(p)) {
        differs = p->geometry[tensor].open[dim] || p->geometry[tensor].ne[dim] != now;
    }
    return differs;
}

/* Opens the dims that differ from those of older plans of the same structure. */
static bool classify_dims(plan_t *plan, gs_tensors_t *tensors, const plan_t *older)
{
    int *firsts = NULL, n_firsts = 0, capacity = 0;
    for (int i = 0; i < tensors->count; i++) {
        const tensor_t *t = tensors->list[i];
        for (int d = 0; d < GGML_MAX_DIMS; d++) {
            const int number = GGML_MAX_DIMS * i + d;
            if (!changes(older, i, d, t->ne[d])) {
                continue;
            }
            int c = 0;
            while (c < n_firsts &&
                   !(tensors->list[firsts[c] / GGML_MAX_DIMS]->ne[firsts[c] % GGML_MAX_DIMS] ==
                         t->ne[d] &&
                     same_before(older, firsts[c], number))) {
                c++;
            }
            if (c == n_firsts) {
                int *more = gs_grown(firsts, n_firsts, &capacity, sizeof(*more));
                if (!more) {
                    free(firsts);
                    return false;
                }
                firsts = more;
                firsts[n_firsts++] = number;
            }
            plan->geometry[i].open[d] = tensors->open[i][d] = firsts[c] + 1;
        }
    }
    free(firsts);
    return true;
}

/* older: the first of the plans whose dims tell which ones change, or NULL where none is open. */
static plan_t *plan_create(gs_plans_t *plans, gs_tensors_t *tensors, uint64_t structure,
                           const plan_t *older)
{
    const size_t count = (size_t)tensors->count;
    plan_t *plan = calloc(1, sizeof(*plan));
    if (!plan) {
        return NULL;
    }
    plan->structure = structure;
    plan->n_tensors = tensors->count;
    plan->geometry = calloc(count + 1, sizeof(*plan->geometry));
    plan->bound = calloc(count + 1, sizeof(*plan->bound));
    free(tensors->open);
    tensors->open = calloc(count + 1, sizeof(*tensors->open));
    bool ok = plan->geometry && plan->bound && tensors->open && classify_dims(plan, tensors, older);
    for (size_t i = 0; i < count && ok; i++) {
        const tensor_t *t = tensors->list[i];
        geometry_t *g = &plan->geometry[i];
        memcpy(g->ne, t->ne, sizeof(g->ne));
        memcpy(g->nb, t->nb, sizeof(g->nb));
        g->offset = offset_in_root(t);
    }
    for (int first = 0; first < tensors->n_nodes && ok;) {
        step_t *steps = gs_grown(plan->steps, plan->n_steps, &plan->steps_capacity, sizeof(*steps));
        ok = steps != NULL;
        if (ok) {
            plan->steps = steps;
            ok = build_step(plans, tensors, first, &steps[plan->n_steps]);
            first = steps[plan->n_steps++].end;
        }
    }
    if (!ok) {
        plan_free(plan);
        return NULL;
    }
    return plan;
}

static void forget_oldest(gs_plans_t *plans)
{
    plan_t **oldest = NULL;
    for (plan_t **at = &plans->list; *at; at = &(*at)->next) {
        if (!(*at)->runs && at != &plans->list) {
            oldest = at;
        }
    }
    if (oldest) {
        plan_t *plan = *oldest;
        *oldest = plan->next;
        plan_free(plan);
        plans->count--;
    }
}

/* The plan for these nodes: one that fits, or a new one. A single node has fixed dims. */
static plan_t *plan_of(gs_plans_t *plans, gs_tensors_t *tensors)
{
    const uint64_t structure = structure_of(tensors);
    for (plan_t **at = &plans->list; *at; at = &(*at)->next) {
        plan_t *plan = *at;
        if (plan->structure == structure && plan->n_tensors == tensors->count &&
            plan_fits(plan, tensors)) {
            *at = plan->next;
            plan->next = plans->list;
            plans->hits++;
            return plans->list = plan;
        }
    }
    const plan_t *older =
        tensors->n_nodes > 1 ? of_structure(plans->list, structure, tensors->count) : NULL;
    plan_t *plan = plan_create(plans, tensors, structure, older);
    if (!plan && older) {
        plan = plan_create(plans, tensors, structure, NULL);
    }
    if (plan) {
        plan->next = plans->list;
        plans->list = plan;
        if (++plans->count > MAX_PLANS) {
            forget_oldest(plans);
        }
    }
    return plan;
}

/* ---- execute --------------------------------------------------------------------------------- */

static enum ggml_status compute(gs_plans_t *plans, sinter_stream_t *stream, tensor_t *const *nodes,
                                int n_nodes, const struct ggml_cgraph *graph, int *done);

static enum ggml_status fail_step(const step_t *step, const gs_tensors_t *tensors,
                                  sinter_status_t status)
{
    say_error(tensors->list[step->first], step->loop ? "it failed" : sinter_last_error_message());
    return status == sinter_out_of_memory ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
}

static enum ggml_status run_singly(gs_plans_t *plans, const step_t *step, sinter_stream_t *stream,
                                   const gs_tensors_t *tensors)
{
    tensor_t *const *nodes = (tensor_t *const *)tensors->list;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    int done;
    for (int n = step->first; n < step->end && status == GGML_STATUS_SUCCESS; n++) {
        status = compute(plans, stream, nodes + n, 1, NULL, &done);
    }
    return status;
}

static enum ggml_status run_whole(gs_plans_t *plans, step_t *step, sinter_stream_t *stream,
                                  const gs_tensors_t *tensors, bool bind)
{
    sinter_status_t status =
        bind ? gs_ports_bind(&step->ports, step->whole, tensors, &plans->caches) : sinter_success;
    if (status == sinter_success) {
        gs_ports_refresh(&step->ports, tensors, &plans->caches);
        status = sinter_compiled_graph_execute(step->whole, stream);
    }
    if (status == sinter_success) {
        return GGML_STATUS_SUCCESS;
    }
    if (step->end - step->first == 1) {
        return fail_step(step, tensors, status);
    }
    /* An execute that fails has written nothing: indices from outside are checked before, and those
     * that sorting within the graph gives are right. If the nodes fail, too, the data were wrong,
     * and those of the next run may be right. */
    gs_say_reason(tensors->list[step->first]->name, "%d nodes run one by one: %s",
                  step->end - step->first, sinter_last_error_message());
    const enum ggml_status after = run_singly(plans, step, stream, tensors);
    step->singly = after == GGML_STATUS_SUCCESS;
    return after;
}

static void forget_copies(const step_t *step, const gs_tensors_t *tensors)
{
    for (int n = step->first; n < step->end; n++) {
        const tensor_t *t = tensors->list[n];
        if (!gs_is_view(t) && gs_is_constant(t)) {
            gs_forget_copies(t);
        }
    }
}

static enum ggml_status run(gs_plans_t *plans, plan_t *plan, sinter_stream_t *stream,
                            const gs_tensors_t *tensors, bool bind)
{
    enum ggml_status status = GGML_STATUS_SUCCESS;
    plan->runs = true;
    for (int i = 0; i < plan->n_steps && status == GGML_STATUS_SUCCESS; i++) {
        step_t *step = &plan->steps[i];
        if (step->singly) {
            status = run_singly(plans, step, stream, tensors);
        } else if (step->whole) {
            status = run_whole(plans, step, stream, tensors, bind);
        } else if (step->loop && !step->loop(tensors->list[step->first])) {
            status = fail_step(step, tensors, sinter_success);
        }
        if (step->writes_weights) {
            forget_copies(step, tensors);
        }
    }
    plan->runs = false;
    return status;
}

/* True if the bound tensors are not those that the plan must run on. */
static bool has_moved(const plan_t *plan, const gs_tensors_t *tensors)
{
    bool moved = !plan->is_bound;
    for (int i = 0; i < tensors->count && !moved; i++) {
        const tensor_t *t = tensors->list[i];
        const bound_t *b = &plan->bound[i];
        moved = b->data != t->data || memcmp(b->ne, t->ne, sizeof(t->ne)) ||
                memcmp(b->nb, t->nb, sizeof(t->nb));
    }
    return moved;
}

static void note_bound(plan_t *plan, const gs_tensors_t *tensors)
{
    for (int i = 0; i < tensors->count; i++) {
        const tensor_t *t = tensors->list[i];
        bound_t *b = &plan->bound[i];
        b->data = t->data;
        memcpy(b->ne, t->ne, sizeof(t->ne));
        memcpy(b->nb, t->nb, sizeof(t->nb));
    }
    plan->is_bound = true;
}

/* Where a run fails, steps behind that point are not bound yet: the next run binds all. */
static enum ggml_status run_plan(gs_plans_t *plans, plan_t *plan, sinter_stream_t *stream,
                                 const gs_tensors_t *tensors)
{
    const bool bind = has_moved(plan, tensors);
    plan->is_bound &= !bind;
    const enum ggml_status status = run(plans, plan, stream, tensors, bind);
    if (bind && status == GGML_STATUS_SUCCESS) {
        note_bound(plan, tensors);
    }
    return status;
}

/* The device refuses such nodes, but nobody need have asked it. */
static bool refuses(tensor_t *const *nodes, int n_nodes)
{
    for (int n = 0; n < n_nodes; n++) {
        const char *why = gs_refuses(nodes[n]);
        if (why) {
            say_error(nodes[n], why);
            return true;
        }
    }
    return false;
}

/* Gives in *done how many nodes it has computed: all, or those before one that comes again. */
static enum ggml_status compute(gs_plans_t *plans, sinter_stream_t *stream, tensor_t *const *nodes,
                                int n_nodes, const struct ggml_cgraph *graph, int *done)
{
    gs_tensors_t tensors;
    *done = n_nodes;
    if (n_nodes == 1 && gs_is_noop(nodes[0])) {
        return GGML_STATUS_SUCCESS;
    }
    if (refuses(nodes, n_nodes)) {
        return GGML_STATUS_FAILED;
    }
    if (!gs_tensors_collect(&tensors, nodes, n_nodes, graph)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    /* Nodes one by one belong to a plan that relies on how caches lie. */
    if (!gs_twins_collect(&tensors) || (graph && !gs_arrange_heads(&tensors))) {
        gs_tensors_free(&tensors);
        return GGML_STATUS_ALLOC_FAILED;
    }
    *done = tensors.n_nodes;
    plan_t *plan = plan_of(plans, &tensors);
    const enum ggml_status status =
        plan ? run_plan(plans, plan, stream, &tensors) : GGML_STATUS_FAILED;
    if (graph && graph->uid && status == GGML_STATUS_SUCCESS) {
        gs_tensors_free(&plans->last_tensors);
        plans->uid = graph->uid;
        plans->changes = gs_heads_changes();
        plans->last = plan;
        plans->last_tensors = tensors;
    } else {
        gs_tensors_free(&tensors);
    }
    return status;
}

/* The nodes of a graph that the host wants to be computed, in a list of their own; NULL: out of
 * memory. Of several branches (ggml_build_forward_select) a graph has all nodes, and those of one
 * carry the flag. What the others read need not have been set. */
static tensor_t **nodes_to_compute(const struct ggml_cgraph *graph, int *count)
{
    tensor_t **nodes = malloc((size_t)(graph->n_nodes + 1) * sizeof(*nodes));
    *count = 0;
    for (int n = 0; n < graph->n_nodes && nodes; n++) {
        if (graph->nodes[n]->flags & GGML_TENSOR_FLAG_COMPUTE) {
            nodes[(*count)++] = graph->nodes[n];
        }
    }
    return nodes;
}

enum ggml_status gs_plans_compute(gs_plans_t *plans, sinter_stream_t *stream,
                                  struct ggml_cgraph *graph)
{
    gs_cuts_note(&plans->cuts, graph);
    if (graph->uid && graph->uid == plans->uid && plans->changes == gs_heads_changes()) {
        plans->hits++;
        if (!gs_twins_renew(&plans->last_tensors)) {
            return GGML_STATUS_ALLOC_FAILED;
        }
        return run(plans, plans->last, stream, &plans->last_tensors, false);
    }
    plans->uid = 0;
    plans->last = NULL;
    int count, done = 0;
    tensor_t **nodes = nodes_to_compute(graph, &count);
    enum ggml_status status = nodes ? GGML_STATUS_SUCCESS : GGML_STATUS_ALLOC_FAILED;
    for (int n = 0; n < count && status == GGML_STATUS_SUCCESS; n += done) {
        status = compute(plans, stream, nodes + n, count - n, graph, &done);
        plans->uid = done < count ? 0 : plans->uid; /* several plans are not kept together */
    }
    free(nodes);
    return status;
}
