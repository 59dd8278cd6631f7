/* Plans: a run of nodes as compiled Sinter graphs, kept for later runs of the same structure. */
#include "sinter_ggml.h"

#include <stdlib.h>
#include <string.h>

typedef struct ggml_tensor tensor_t;

/* A part of a plan: nodes first ... end - 1 as one compiled graph, by loops of the backend, or,
 * where Sinter refuses them together, one by one. */
typedef struct step {
    int first, end;
    sinter_compiled_graph_t *whole;
    sg_native_t native;
    bool singly;
    bool writes_weights;
    sg_input_t *inputs;
    sg_output_t *outputs;
    int n_inputs, n_outputs;
    void **memory;
    int n_memory;
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

struct sg_plans {
    sinter_engine_t *engine;
    plan_t *list; /* used last first */
    int count;
    uint64_t hits, misses;
    /* The graph of the last call, if the host has numbered it: the number changes with all that
     * moves. */
    uint64_t uid;
    plan_t *last;
    sg_tensors_t last_tensors;
};

/* ---- the tensors of a run of nodes ----------------------------------------------------------- */

static void tensors_free(sg_tensors_t *tensors)
{
    free(tensors->list);
    free(tensors->outer_uses);
    free(tensors->open);
    free(tensors->slots);
    free(tensors->src);
    *tensors = (sg_tensors_t){0};
}

static uint64_t mix(uint64_t hash, uint64_t value)
{
    hash = (hash ^ value) * 0x9E3779B97F4A7C15u;
    return hash ^ hash >> 29;
}

int sg_tensors_find(const sg_tensors_t *tensors, const tensor_t *tensor)
{
    const uint64_t hash = mix(0, (uint64_t)(uintptr_t)tensor);
    for (int i = (int)(hash % (uint64_t)tensors->n_slots);; i = (i + 1) % tensors->n_slots) {
        if (tensors->slots[i] < 0) {
            return -1;
        }
        if (tensors->list[tensors->slots[i]] == tensor) {
            return tensors->slots[i];
        }
    }
}

static int tensors_add(sg_tensors_t *tensors, const tensor_t *tensor)
{
    const uint64_t hash = mix(0, (uint64_t)(uintptr_t)tensor);
    int i = (int)(hash % (uint64_t)tensors->n_slots);
    while (tensors->slots[i] >= 0) {
        if (tensors->list[tensors->slots[i]] == tensor) {
            return tensors->slots[i];
        }
        i = (i + 1) % tensors->n_slots;
    }
    tensors->list[tensors->count] = tensor;
    return tensors->slots[i] = tensors->count++;
}

/* Uses of a node in all of the host's graph. A node that nobody uses is what the host wants, and
 * one that the graph does not know may be. */
static int uses_of(const struct ggml_cgraph *graph, const tensor_t *node)
{
    if (!graph || !graph->use_counts || !graph->visited_hash_set.keys) {
        return INT32_MAX;
    }
    const size_t at = ggml_hash_find(&graph->visited_hash_set, node);
    if (at == GGML_HASHSET_FULL || !ggml_bitset_get(graph->visited_hash_set.used, at) ||
        graph->visited_hash_set.keys[at] != node) {
        return INT32_MAX;
    }
    return graph->use_counts[at] > 0 ? graph->use_counts[at] : INT32_MAX;
}

static bool tensors_collect(sg_tensors_t *tensors, tensor_t *const *nodes, int n_nodes,
                            const struct ggml_cgraph *graph)
{
    *tensors = (sg_tensors_t){.n_nodes = n_nodes};
    int most = 64;
    for (int n = 0; n < n_nodes; n++) {
        most += 2;
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            most += nodes[n]->src[s] ? 2 : 0;
        }
    }
    tensors->n_slots = 2 * most;
    tensors->list = malloc((size_t)most * sizeof(*tensors->list));
    tensors->slots = malloc((size_t)tensors->n_slots * sizeof(*tensors->slots));
    tensors->src = malloc((size_t)(n_nodes + 1) * sizeof(*tensors->src));
    tensors->outer_uses = calloc((size_t)n_nodes + 1, sizeof(*tensors->outer_uses));
    if (!tensors->list || !tensors->slots || !tensors->src || !tensors->outer_uses) {
        tensors_free(tensors);
        return false;
    }
    memset(tensors->slots, 0xFF, (size_t)tensors->n_slots * sizeof(*tensors->slots));
    for (int n = 0; n < n_nodes; n++) {
        tensors_add(tensors, nodes[n]);
    }
    for (int n = 0; n < n_nodes; n++) {
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            const tensor_t *src = nodes[n]->src[s];
            tensors->src[n][s] = src ? tensors_add(tensors, src) : -1;
            if (src) {
                tensors_add(tensors, sg_root(src));
            }
        }
        tensors_add(tensors, sg_root(nodes[n]));
    }
    for (int n = 0; n < n_nodes; n++) {
        tensors->outer_uses[n] = uses_of(graph, nodes[n]);
    }
    for (int n = 0; n < n_nodes; n++) {
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            const int src = tensors->src[n][s];
            if (src >= 0 && src < n_nodes && tensors->outer_uses[src] != INT32_MAX) {
                tensors->outer_uses[src]--;
            }
        }
    }
    return true;
}

static size_t offset_in_root(const tensor_t *t)
{
    return (size_t)((const char *)t->data - (const char *)sg_root(t)->data);
}

/* All that decides what the graphs look like, but for dims and strides by themselves. */
static uint64_t structure_of(const sg_tensors_t *tensors)
{
    uint64_t hash = mix((uint64_t)tensors->n_nodes, (uint64_t)tensors->count);
    for (int i = 0; i < tensors->count; i++) {
        const tensor_t *t = tensors->list[i];
        const ggml_backend_buffer_t buffer = sg_root(t)->buffer;
        uint64_t bits = (uint64_t)t->op << 32 | (uint64_t)t->type << 24;
        for (int d = 0; d < GGML_MAX_DIMS; d++) {
            bits |= (uint64_t)((t->ne[d] == 1) | (t->ne[d] == 0) << 1) << (2 * d);
        }
        bits |= (uint64_t)ggml_is_contiguous(t) << 8 | (uint64_t)sg_is_ours(t) << 9;
        bits |= (uint64_t)(buffer && buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS) << 10;
        bits |= (uint64_t)((t->flags & GGML_TENSOR_FLAG_OUTPUT) != 0) << 11;
        hash = mix(hash, bits);
        hash = mix(hash, (uint64_t)sg_tensors_find(tensors, sg_root(t)));
        if (t->view_src) {
            hash = mix(hash, sg_kind_of_view(t));
        }
        if (i >= tensors->n_nodes) {
            continue;
        }
        hash = mix(hash, (uint64_t)(tensors->outer_uses[i] > 0) | (uint64_t)!sg_native(t) << 1);
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            hash = mix(hash, (uint64_t)tensors->src[i][s]);
        }
        if (t->op != GGML_OP_VIEW) {
            for (size_t p = 0; p < sizeof(t->op_params) / sizeof(t->op_params[0]); p += 2) {
                uint64_t two;
                memcpy(&two, &t->op_params[p], sizeof(two));
                hash = mix(hash, two);
            }
        }
    }
    return hash;
}

/* ---- plans ----------------------------------------------------------------------------------- */

static void step_free(step_t *step)
{
    sinter_compiled_graph_destroy(&step->whole);
    for (int i = 0; i < step->n_memory; i++) {
        free(step->memory[i]);
    }
    free(step->memory);
    free(step->inputs);
    free(step->outputs);
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

sg_plans_t *sg_plans_create(sinter_engine_t *engine)
{
    sg_plans_t *plans = calloc(1, sizeof(*plans));
    if (plans) {
        plans->engine = engine;
    }
    return plans;
}

void sg_plans_destroy(sg_plans_t *plans)
{
    if (!plans) {
        return;
    }
    sg_say_counts(plans->misses, plans->hits);
    while (plans->list) {
        plan_t *next = plans->list->next;
        plan_free(plans->list);
        plans->list = next;
    }
    tensors_free(&plans->last_tensors);
    free(plans);
}

static bool plan_fits(const plan_t *plan, const sg_tensors_t *tensors)
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

/* Which nodes of [first, end) later nodes or the host read, and those that write memory that
 * existed before. */
static bool export_nodes(sg_builder_t *b, int first, int end)
{
    const sg_tensors_t *tensors = b->tensors;
    bool *needed = calloc((size_t)tensors->n_nodes + 1, sizeof(*needed));
    bool ok = needed != NULL;
    for (int n = tensors->n_nodes - 1; n >= first && ok; n--) {
        if (n < end) {
            const tensor_t *t = tensors->list[n];
            const int root = sg_tensors_find(tensors, sg_root(t));
            needed[n] |= tensors->outer_uses[n] > 0 || (t->flags & GGML_TENSOR_FLAG_OUTPUT);
            needed[n] |= t->view_src && !sg_is_view(t) && !(root >= first && root < end);
            if (needed[n] && !sg_is_view(t) && t->op != GGML_OP_SET_ROWS && !ggml_is_empty(t)) {
                ok = sg_export(b, n);
            }
        }
        for (int s = 0; s < GGML_MAX_SRC && ok; s++) {
            const int src = tensors->src[n][s];
            if (src >= 0 && src < tensors->n_nodes) {
                needed[src] |= n >= end || (needed[n] && sg_is_view(tensors->list[n]));
            }
        }
    }
    free(needed);
    return ok;
}

static void builder_free(sg_builder_t *b)
{
    sinter_graph_destroy(&b->graph);
    for (int i = 0; i < b->n_memory; i++) {
        free(b->memory[i]);
    }
    free(b->memory);
    free(b->inputs);
    free(b->outputs);
    free(b->silent);
    free(b->values);
    free(b->versions);
    *b = (sg_builder_t){0};
}

static bool builder_open(sg_builder_t *b, sg_plans_t *plans, sg_tensors_t *tensors, int first,
                         int end)
{
    *b = (sg_builder_t){.tensors = tensors, .first = first, .end = end, .node = first};
    b->values = calloc((size_t)tensors->count + 1, sizeof(*b->values));
    b->versions = calloc((size_t)tensors->count + 1, sizeof(*b->versions));
    return b->values && b->versions &&
           sinter_graph_create_with_fpmath_mode(&b->graph, plans->engine, sinter_cpu, sg_fpmath(),
                                                sg_fpmath() != sinter_fpmath_mode_strict) ==
               sinter_success;
}

/* Translates the nodes; where it ended. */
static int translate(sg_builder_t *b)
{
    int n = b->first;
    while (n < b->end && !sg_native(b->tensors->list[n]) && sg_translate(b, n)) {
        n++;
    }
    return n;
}

static bool compile(sg_builder_t *b, sg_plans_t *plans, step_t *step)
{
    const int count = b->n_outputs + b->n_silent;
    uint64_t *outputs = malloc((size_t)(count + 1) * sizeof(*outputs));
    if (!outputs) {
        return false;
    }
    for (int i = 0; i < b->n_outputs; i++) {
        outputs[i] = b->outputs[i].id;
    }
    if (b->n_silent) {
        memcpy(outputs + b->n_outputs, b->silent, (size_t)b->n_silent * sizeof(*outputs));
    }
    const bool ok =
        sinter_graph_set_ports(b->graph, 0, NULL, (size_t)count, outputs) == sinter_success &&
        sinter_graph_finalize(b->graph) == sinter_success &&
        sinter_graph_compile(b->graph, plans->engine, 0, NULL, &step->whole) == sinter_success;
    free(outputs);
    return ok;
}

/* Inputs that the graph does not read in the end have no port. */
static void drop_dead_inputs(step_t *step)
{
    int kept = 0;
    for (int i = 0; i < step->n_inputs; i++) {
        sinter_logical_tensor_t lt;
        if (sinter_compiled_graph_query_logical_tensor(step->whole, step->inputs[i].id, &lt) ==
            sinter_success) {
            step->inputs[kept++] = step->inputs[i];
        }
    }
    step->n_inputs = kept;
}

/* Makes a step of as many nodes as go into one graph. */
static bool build_step(sg_plans_t *plans, sg_tensors_t *tensors, int first, int end, step_t *step)
{
    sg_builder_t b;
    *step = (step_t){.first = first, .end = end};
    if (sg_native(tensors->list[first])) {
        step->native = sg_native(tensors->list[first]);
        step->end = first + 1;
        return true; /* it writes by ggml_backend_tensor_set, which knows of copies */
    }
    /* Once to see where the graph ends, then with its outputs known. */
    bool ok = builder_open(&b, plans, tensors, first, end);
    step->end = ok ? translate(&b) : first;
    if (step->end < end && step->end > first) {
        const tensor_t *next = tensors->list[step->end];
        sg_say_reason(next->name, "a graph ends before %s: %s", ggml_op_name(next->op),
                      sg_native(next) ? "it is a loop of the backend's own" : b.why);
    }
    while (ok && step->end > first) {
        builder_free(&b);
        ok = builder_open(&b, plans, tensors, first, step->end) &&
             export_nodes(&b, first, step->end);
        const int reached = ok ? translate(&b) : first;
        if (reached == step->end) {
            break;
        }
        step->end = reached;
    }
    ok = ok && step->end > first;
    if (!ok) {
        GGML_LOG_ERROR("sinter: %s %s: %s\n", ggml_op_name(tensors->list[first]->op),
                       tensors->list[first]->name, b.why);
    } else if (b.n_outputs + b.n_silent > 0) {
        ok = compile(&b, plans, step);
        plans->misses++;
        if (!ok && step->end - first > 1) {
            sg_say_reason(tensors->list[first]->name, "%d nodes run one by one: %s",
                          step->end - first, sinter_last_error_message());
            step->singly = ok = true;
        } else if (!ok) {
            GGML_LOG_ERROR("sinter: %s %s: %s\n", ggml_op_name(tensors->list[first]->op),
                           tensors->list[first]->name, sinter_last_error_message());
        }
        if (ok && step->whole) {
            step->inputs = b.inputs, step->n_inputs = b.n_inputs;
            step->outputs = b.outputs, step->n_outputs = b.n_outputs;
            step->memory = b.memory, step->n_memory = b.n_memory;
            b.inputs = NULL, b.outputs = NULL, b.memory = NULL;
            b.n_memory = 0;
            drop_dead_inputs(step);
        }
    }
    for (int n = first; n < step->end; n++) {
        const tensor_t *t = tensors->list[n];
        step->writes_weights |= !sg_is_view(t) && sg_is_constant(t);
    }
    builder_free(&b);
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
static bool classify_dims(plan_t *plan, sg_tensors_t *tensors, const plan_t *older)
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
            if (c == capacity) {
                capacity = capacity ? 2 * capacity : 16;
                int *more = realloc(firsts, (size_t)capacity * sizeof(*more));
                if (!more) {
                    free(firsts);
                    return false;
                }
                firsts = more;
            }
            if (c == n_firsts) {
                firsts[n_firsts++] = number;
            }
            plan->geometry[i].open[d] = tensors->open[i][d] = firsts[c] + 1;
        }
    }
    free(firsts);
    return true;
}

/* older: the first of the plans whose dims tell which ones change, or NULL where none is open. */
static plan_t *plan_create(sg_plans_t *plans, sg_tensors_t *tensors, uint64_t structure,
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
        if (plan->n_steps == plan->steps_capacity) {
            const int more = plan->steps_capacity ? 2 * plan->steps_capacity : 4;
            step_t *steps = realloc(plan->steps, (size_t)more * sizeof(*steps));
            if (!steps) {
                ok = false;
                break;
            }
            plan->steps = steps;
            plan->steps_capacity = more;
        }
        step_t *step = &plan->steps[plan->n_steps];
        ok = build_step(plans, tensors, first, tensors->n_nodes, step);
        if (!ok) {
            step_free(step);
            break;
        }
        first = step->end;
        plan->n_steps++;
    }
    if (!ok) {
        plan_free(plan);
        return NULL;
    }
    return plan;
}

static void forget_oldest(sg_plans_t *plans)
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
static plan_t *plan_of(sg_plans_t *plans, sg_tensors_t *tensors)
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

static sinter_status_t bind_input(const step_t *step, const sg_input_t *in,
                                  const sg_tensors_t *tensors)
{
    sinter_dim_t dims[SG_MAX_RANK], strides[SG_MAX_RANK];
    if (in->tensor < 0) {
        dims[0] = in->rank;
        return sinter_compiled_graph_bind(step->whole, in->id, 1, dims, NULL, (void *)in->own,
                                          (size_t)in->rank * sizeof(float));
    }
    const tensor_t *t = tensors->list[in->tensor];
    for (int i = 0; i < in->rank; i++) {
        dims[i] = in->size_dim[i] < 0 ? 1
                                      : sg_size(t, in->plane, in->size_dim[i],
                                                tensors->list[in->size_of[i]]->ne[in->size_dim[i]]);
        strides[i] = in->stride_dim[i] < 0 ? 0 : sg_stride(t, in->plane, in->stride_dim[i]);
    }
    return sinter_compiled_graph_bind(step->whole, in->id, in->rank, dims, strides,
                                      sg_begin(t, in->plane), SINTER_BYTES_TRUSTED);
}

static sinter_status_t bind_output(const step_t *step, const sg_output_t *out,
                                   const sg_tensors_t *tensors)
{
    const tensor_t *t = tensors->list[out->tensor];
    sinter_dim_t dims[SG_MAX_RANK], strides[SG_MAX_RANK];
    for (int i = 0; i < out->rank; i++) {
        dims[i] = t->ne[out->dim[i]];
        strides[i] = sg_stride(t, -1, out->dim[i]);
    }
    return sinter_compiled_graph_bind(step->whole, out->id, out->rank, dims, strides, t->data,
                                      SINTER_BYTES_TRUSTED);
}

static sinter_status_t bind_step(const step_t *step, const sg_tensors_t *tensors)
{
    sinter_status_t status = sinter_success;
    for (int i = 0; i < step->n_inputs && status == sinter_success; i++) {
        status = bind_input(step, &step->inputs[i], tensors);
    }
    for (int i = 0; i < step->n_outputs && status == sinter_success; i++) {
        status = bind_output(step, &step->outputs[i], tensors);
    }
    return status;
}

static enum ggml_status compute(sg_plans_t *plans, sinter_stream_t *stream, tensor_t *const *nodes,
                                int n_nodes, const struct ggml_cgraph *graph);

static enum ggml_status fail_step(const step_t *step, const sg_tensors_t *tensors,
                                  sinter_status_t status)
{
    const tensor_t *node = tensors->list[step->first];
    GGML_LOG_ERROR("sinter: %s %s: %s\n", ggml_op_name(node->op), node->name,
                   step->native ? "it failed" : sinter_last_error_message());
    return status == sinter_out_of_memory ? GGML_STATUS_ALLOC_FAILED : GGML_STATUS_FAILED;
}

static enum ggml_status run_singly(sg_plans_t *plans, const step_t *step, sinter_stream_t *stream,
                                   const sg_tensors_t *tensors)
{
    tensor_t *const *nodes = (tensor_t *const *)tensors->list;
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int n = step->first; n < step->end && status == GGML_STATUS_SUCCESS; n++) {
        status = compute(plans, stream, nodes + n, 1, NULL);
    }
    return status;
}

static enum ggml_status run_whole(sg_plans_t *plans, step_t *step, sinter_stream_t *stream,
                                  const sg_tensors_t *tensors, bool bind)
{
    sinter_status_t status = bind ? bind_step(step, tensors) : sinter_success;
    if (status == sinter_success) {
        status = sinter_compiled_graph_execute(step->whole, stream);
    }
    if (status == sinter_success) {
        return GGML_STATUS_SUCCESS;
    }
    if (step->end - step->first == 1) {
        return fail_step(step, tensors, status);
    }
    /* An execute that fails has written nothing, because no index is computed within the graph. If
     * the nodes fail, too, the data were wrong, and those of the next run may be right. */
    sg_say_reason(tensors->list[step->first]->name, "%d nodes run one by one: %s",
                  step->end - step->first, sinter_last_error_message());
    const enum ggml_status after = run_singly(plans, step, stream, tensors);
    step->singly = after == GGML_STATUS_SUCCESS;
    return after;
}

static void forget_copies(const step_t *step, const sg_tensors_t *tensors)
{
    for (int n = step->first; n < step->end; n++) {
        const tensor_t *t = tensors->list[n];
        if (!sg_is_view(t) && sg_is_constant(t)) {
            sg_forget_copies(t);
        }
    }
}

static enum ggml_status run(sg_plans_t *plans, plan_t *plan, sinter_stream_t *stream,
                            const sg_tensors_t *tensors, bool bind)
{
    enum ggml_status status = GGML_STATUS_SUCCESS;
    for (int i = 0; i < plan->n_steps && status == GGML_STATUS_SUCCESS; i++) {
        step_t *step = &plan->steps[i];
        if (step->singly) {
            status = run_singly(plans, step, stream, tensors);
        } else if (step->whole) {
            status = run_whole(plans, step, stream, tensors, bind);
        } else if (step->native && !step->native(tensors->list[step->first])) {
            status = fail_step(step, tensors, sinter_success);
        }
        if (step->writes_weights) {
            forget_copies(step, tensors);
        }
    }
    return status;
}

/* True if the bound tensors are not those that the plan must run on. */
static bool has_moved(const plan_t *plan, const sg_tensors_t *tensors)
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

static void note_bound(plan_t *plan, const sg_tensors_t *tensors)
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
static enum ggml_status run_plan(sg_plans_t *plans, plan_t *plan, sinter_stream_t *stream,
                                 const sg_tensors_t *tensors)
{
    const bool bind = has_moved(plan, tensors);
    plan->is_bound &= !bind;
    plan->runs = true;
    const enum ggml_status status = run(plans, plan, stream, tensors, bind);
    plan->runs = false;
    if (bind && status == GGML_STATUS_SUCCESS) {
        note_bound(plan, tensors);
    }
    return status;
}

/* The device refuses such nodes, but nobody need have asked it. */
static bool refuses(tensor_t *const *nodes, int n_nodes)
{
    for (int n = 0; n < n_nodes; n++) {
        const char *why = sg_refuses(nodes[n]);
        if (why) {
            GGML_LOG_ERROR("sinter: %s %s: %s\n", ggml_op_desc(nodes[n]), nodes[n]->name, why);
            return true;
        }
    }
    return false;
}

static enum ggml_status compute(sg_plans_t *plans, sinter_stream_t *stream, tensor_t *const *nodes,
                                int n_nodes, const struct ggml_cgraph *graph)
{
    sg_tensors_t tensors;
    if (n_nodes == 1 && (sg_is_view(nodes[0]) || ggml_is_empty(nodes[0]))) {
        return GGML_STATUS_SUCCESS;
    }
    if (refuses(nodes, n_nodes)) {
        return GGML_STATUS_FAILED;
    }
    if (!tensors_collect(&tensors, nodes, n_nodes, graph)) {
        return GGML_STATUS_ALLOC_FAILED;
    }
    plan_t *plan = plan_of(plans, &tensors);
    const enum ggml_status status =
        plan ? run_plan(plans, plan, stream, &tensors) : GGML_STATUS_FAILED;
    if (graph && graph->uid && status == GGML_STATUS_SUCCESS) {
        tensors_free(&plans->last_tensors);
        plans->uid = graph->uid;
        plans->last = plan;
        plans->last_tensors = tensors;
    } else {
        tensors_free(&tensors);
    }
    return status;
}

enum ggml_status sg_plans_compute(sg_plans_t *plans, sinter_stream_t *stream,
                                  struct ggml_cgraph *graph)
{
    if (graph->uid && graph->uid == plans->uid) {
        plan_t *plan = plans->last;
        plans->hits++;
        plan->runs = true;
        const enum ggml_status status = run(plans, plan, stream, &plans->last_tensors, false);
        plan->runs = false;
        return status;
    }
    plans->uid = 0;
    plans->last = NULL;
    return graph->n_nodes ? compute(plans, stream, graph->nodes, graph->n_nodes, graph)
                          : GGML_STATUS_SUCCESS;
}
