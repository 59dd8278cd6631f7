/* The public functions of ops, graphs and partitions. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "api/graph_object.h"
#include "base/cpu.h"
#include "base/status.h"
#include "graph/attr.h"
#include "graph/schema.h"

/* ---- ops ------------------------------------------------------------------------------------- */

sinter_status_t sinter_op_create(sinter_op_t **op, sinter_engine_t *engine, uint64_t id,
                                 sinter_op_kind_t kind, const char *name)
{
    SG_REQUIRE(op != NULL);
    if (op_name(kind) == NULL) {
        return sg_fail(sinter_invalid_arguments, "op %llu: %d is no op kind",
                       (unsigned long long)id, (int)kind);
    }
    SG_TRY(engine_check(engine));
    sinter_op_t *o = object_new(engine, sizeof(*o));
    if (o == NULL) {
        return sinter_out_of_memory;
    }
    o->id = id;
    o->kind = kind;
    arena_init(&o->arena, o->engine);
    o->name = arena_strdup(&o->arena, name != NULL ? name : "");
    if (o->name == NULL) {
        sinter_op_destroy(&o);
        return sinter_out_of_memory;
    }
    *op = o;
    return sinter_success;
}

sinter_status_t sinter_op_destroy(sinter_op_t **op)
{
    SG_REQUIRE(op != NULL);
    if (*op != NULL) {
        arena_free(&(*op)->arena);
        object_free(*op);
    }
    *op = NULL;
    return sinter_success;
}

static sinter_status_t add_port(sinter_op_t *op, const lt_t *lt, lt_t **ports, int *n, int *cap)
{
    if (!arena_grow(&op->arena, (void **)ports, cap, *n, sizeof(lt_t))) {
        return sinter_out_of_memory;
    }
    (*ports)[(*n)++] = *lt;
    return sinter_success;
}

sinter_status_t sinter_op_add_input(sinter_op_t *op, const sinter_logical_tensor_t *lt)
{
    SG_REQUIRE_ALL(op, lt);
    return add_port(op, lt, &op->in, &op->n_in, &op->cap_in);
}

sinter_status_t sinter_op_add_output(sinter_op_t *op, const sinter_logical_tensor_t *lt)
{
    SG_REQUIRE_ALL(op, lt);
    return add_port(op, lt, &op->out, &op->n_out, &op->cap_out);
}

static sinter_status_t set_attr(sinter_op_t *op, const attr_t *given)
{
    attr_t copy;
    int at = 0;

    if (!attr_copy(&op->arena, given, &copy)) {
        return sinter_out_of_memory;
    }
    while (at < op->n_attrs && op->attrs[at].id != given->id) {
        at++;
    }
    if (at == op->n_attrs) {
        if (!arena_grow(&op->arena, (void **)&op->attrs, &op->cap_attrs, op->n_attrs,
                        sizeof(attr_t))) {
            return sinter_out_of_memory;
        }
        op->n_attrs++;
    }
    op->attrs[at] = copy;
    return sinter_success;
}

/* fits: the attribute is of the kind that the setter is for. */
static sinter_status_t check_kind(const sinter_op_t *op, sinter_op_attr_t attr, bool fits,
                                  const char *given)
{
    const unsigned long long id = (unsigned long long)op->id;

    if (attr_name(attr) == NULL) {
        return sg_fail(sinter_invalid_arguments, "op %llu (%s): %d is no attribute", id,
                       op_name(op->kind), (int)attr);
    }
    if (!fits) {
        return sg_fail(sinter_invalid_arguments, "op %llu (%s): attribute %s is of kind %s, not %s",
                       id, op_name(op->kind), attr_name(attr), attr_kind_name(attr_kind(attr)),
                       given);
    }
    return sinter_success;
}

/* An empty list needs an address as well: an attribute without one is not of its kind. */
sinter_status_t sinter_op_set_attr_f32(sinter_op_t *op, sinter_op_attr_t attr, const float *values,
                                       size_t count)
{
    SG_REQUIRE(op != NULL);
    SG_REQUIRE(count == 0 || values != NULL);
    const attr_kind_t kind = attr_kind(attr);
    SG_TRY(check_kind(op, attr, attr_kind_is_f32(kind) && (kind == ATTR_F32S || count == 1),
                      count == 1 ? "f32" : "f32[]"));
    const attr_t given = {.id = attr, .n = count, .f32 = count > 0 ? values : (const float[]){0}};
    return set_attr(op, &given);
}

sinter_status_t sinter_op_set_attr_s64(sinter_op_t *op, sinter_op_attr_t attr,
                                       const int64_t *values, size_t count)
{
    SG_REQUIRE(op != NULL);
    SG_REQUIRE(count == 0 || values != NULL);
    const attr_kind_t kind = attr_kind(attr);
    SG_TRY(check_kind(op, attr, attr_kind_is_s64(kind) && (kind != ATTR_S64 || count == 1),
                      count == 1 ? "s64" : "s64[]"));
    const attr_t given = {.id = attr, .n = count, .s64 = count > 0 ? values : (const int64_t[]){0}};
    return set_attr(op, &given);
}

sinter_status_t sinter_op_set_attr_bool(sinter_op_t *op, sinter_op_attr_t attr, int value)
{
    SG_REQUIRE(op != NULL);
    SG_TRY(check_kind(op, attr, attr_kind(attr) == ATTR_BOOL, "bool"));
    const attr_t given = {.id = attr, .n = 1, .b = value != 0};
    return set_attr(op, &given);
}

sinter_status_t sinter_op_set_attr_str(sinter_op_t *op, sinter_op_attr_t attr, const char *value)
{
    SG_REQUIRE_ALL(op, value);
    SG_TRY(check_kind(op, attr, attr_kind(attr) == ATTR_STR, "string"));
    const attr_t given = {.id = attr, .n = 1, .str = value};
    return set_attr(op, &given);
}

sinter_status_t sinter_op_get_id(const sinter_op_t *op, uint64_t *id)
{
    SG_REQUIRE_ALL(op, id);
    *id = op->id;
    return sinter_success;
}

sinter_status_t sinter_op_get_kind(const sinter_op_t *op, sinter_op_kind_t *kind)
{
    SG_REQUIRE_ALL(op, kind);
    *kind = op->kind;
    return sinter_success;
}

/* ---- graph ----------------------------------------------------------------------------------- */

static sinter_status_t check_mode(sinter_fpmath_mode_t mode)
{
    return fpmath_mode_is_valid(mode)
               ? sinter_success
               : sg_fail(sinter_invalid_arguments, "%d is no fpmath mode", (int)mode);
}

sinter_status_t sinter_graph_create_with_fpmath_mode(sinter_graph_t **graph,
                                                     sinter_engine_t *engine,
                                                     sinter_engine_kind_t kind,
                                                     sinter_fpmath_mode_t mode, int apply_to_int)
{
    SG_REQUIRE(graph != NULL);
    if (kind != sinter_cpu && kind != sinter_any_engine) {
        return sg_fail(sinter_unimplemented, "graph: engine kind %d; there is a CPU engine only",
                       (int)kind);
    }
    SG_TRY(check_mode(mode));
    SG_TRY(engine_check(engine));
    sinter_graph_t *g = object_new(engine, sizeof(*g));
    if (g == NULL) {
        return sinter_out_of_memory;
    }
    graph_init(&g->g, g->engine);
    g->g.mode = mode;
    g->g.apply_to_int = apply_to_int != 0;
    *graph = g;
    return sinter_success;
}

sinter_status_t sinter_graph_create(sinter_graph_t **graph, sinter_engine_t *engine,
                                    sinter_engine_kind_t kind)
{
    return sinter_graph_create_with_fpmath_mode(graph, engine, kind, sinter_fpmath_mode_strict, 0);
}

static void drop_partitions(sinter_graph_t *graph)
{
    partition_list_free(&graph->partitions);
    memset(&graph->partitions, 0, sizeof(graph->partitions));
    graph->filtered = false;
}

sinter_status_t sinter_graph_destroy(sinter_graph_t **graph)
{
    SG_REQUIRE(graph != NULL);
    if (*graph != NULL) {
        drop_partitions(*graph);
        graph_free(&(*graph)->g);
        object_free(*graph);
    }
    *graph = NULL;
    return sinter_success;
}

sinter_status_t sinter_graph_set_fpmath_mode(sinter_graph_t *graph, sinter_fpmath_mode_t mode,
                                             int apply_to_int)
{
    SG_REQUIRE(graph != NULL);
    SG_TRY(check_mode(mode));
    graph->g.mode = mode;
    graph->g.apply_to_int = apply_to_int != 0;
    return sinter_success;
}

sinter_status_t sinter_graph_get_fpmath_mode(const sinter_graph_t *graph,
                                             sinter_fpmath_mode_t *mode, int *apply_to_int)
{
    SG_REQUIRE_ALL(graph, mode, apply_to_int);
    *mode = graph->g.mode;
    *apply_to_int = graph->g.apply_to_int;
    return sinter_success;
}

static sinter_status_t check_building(const sinter_graph_t *graph)
{
    return graph->finalized ? sg_fail(sinter_invalid_arguments, "the graph is finalized")
                            : sinter_success;
}

static sinter_status_t check_finalized(const sinter_graph_t *graph)
{
    return graph->finalized ? sinter_success
                            : sg_fail(sinter_invalid_arguments, "the graph is not finalized yet");
}

sinter_status_t sinter_graph_add_op(sinter_graph_t *graph, const sinter_op_t *op)
{
    SG_REQUIRE_ALL(graph, op);
    SG_TRY(check_building(graph));
    return graph_add_node(&graph->g, op);
}

static uint64_t *copy_ids(arena_t *arena, size_t n, const uint64_t *ids)
{
    uint64_t *copy = ARENA_NEW(arena, uint64_t, n + 1);

    if (copy != NULL && n > 0) {
        memcpy(copy, ids, n * sizeof(*ids));
    }
    return copy;
}

static sinter_status_t add_part(sinter_op_t *op, const sinter_op_part_t *part)
{
    switch (part->kind) {
    case sinter_op_part_input:
        return sinter_op_add_input(op, part->tensor);
    case sinter_op_part_output:
        return sinter_op_add_output(op, part->tensor);
    case sinter_op_part_f32:
        return sinter_op_set_attr_f32(op, part->attr, part->f32s ? part->f32s : &part->f32,
                                      part->count);
    case sinter_op_part_s64:
        return sinter_op_set_attr_s64(op, part->attr, part->s64s ? part->s64s : &part->s64,
                                      part->count);
    case sinter_op_part_bool:
        return sinter_op_set_attr_bool(op, part->attr, part->s64 != 0);
    case sinter_op_part_str:
        return sinter_op_set_attr_str(op, part->attr, part->text);
    case sinter_op_part_name:
        return sinter_success; /* the op was made with it */
    }
    return sg_fail(sinter_invalid_arguments, "op %llu: %d is no kind of part",
                   (unsigned long long)op->id, (int)part->kind);
}

sinter_status_t sinter_graph_add_parts(sinter_graph_t *graph, uint64_t id, sinter_op_kind_t kind,
                                       size_t count, const sinter_op_part_t *parts)
{
    SG_REQUIRE(graph != NULL);
    SG_REQUIRE(count == 0 || parts != NULL);
    const char *name = NULL;
    sinter_op_t *op = NULL;
    for (size_t i = 0; i < count; i++) {
        name = parts[i].kind == sinter_op_part_name ? parts[i].text : name;
    }
    sinter_status_t status = sinter_op_create(&op, graph->engine, id, kind, name);
    for (size_t i = 0; i < count && status == sinter_success; i++) {
        status = add_part(op, &parts[i]);
    }
    status = status == sinter_success ? sinter_graph_add_op(graph, op) : status;
    sinter_op_destroy(&op);
    return status;
}

sinter_status_t sinter_graph_set_ports(sinter_graph_t *graph, size_t n_inputs,
                                       const uint64_t *inputs, size_t n_outputs,
                                       const uint64_t *outputs)
{
    SG_REQUIRE(graph != NULL);
    SG_REQUIRE(n_inputs == 0 || inputs != NULL);
    SG_REQUIRE(n_outputs == 0 || outputs != NULL);
    SG_TRY(check_building(graph));
    uint64_t *in = copy_ids(&graph->g.arena, n_inputs, inputs),
             *out = copy_ids(&graph->g.arena, n_outputs, outputs);
    if (in == NULL || out == NULL) {
        return sinter_out_of_memory;
    }
    graph->inputs = in;
    graph->outputs = out;
    graph->n_inputs = n_inputs;
    graph->n_outputs = n_outputs;
    return sinter_success;
}

/* A listed input must have no producer, and a listed output must have one. */
static sinter_status_t check_ports(const sinter_graph_t *graph, size_t n, const uint64_t *ids,
                                   bool output)
{
    for (size_t i = 0; i < n; i++) {
        const int v = graph_find_value(&graph->g, ids[i]);
        const unsigned long long id = (unsigned long long)ids[i];
        if (v < 0) {
            return sg_fail(sinter_invalid_graph, "%s port %llu: no op has this tensor",
                           output ? "output" : "input", id);
        }
        if (output != (graph->g.values[v].producer >= 0)) {
            return sg_fail(sinter_invalid_graph,
                           output ? "output port %llu: no op produces it"
                                  : "input port %llu: an op produces it",
                           id);
        }
    }
    return sinter_success;
}

/* Every tensor without producer must be a listed input. */
static sinter_status_t check_dangling(sinter_graph_t *graph)
{
    graph_t *g = &graph->g;
    bool *listed = ARENA_NEW(&g->arena, bool, g->n_values + 1);

    if (listed == NULL) {
        return sinter_out_of_memory;
    }
    for (size_t i = 0; i < graph->n_inputs; i++) {
        listed[graph_find_value(g, graph->inputs[i])] = true;
    }
    for (int v = 0; v < g->n_values; v++) {
        if (g->values[v].producer < 0 && !listed[v]) {
            return sg_fail(sinter_invalid_graph,
                           "tensor %llu is used, but no op produces it and it is no input port",
                           (unsigned long long)g->values[v].lt.id);
        }
    }
    return sinter_success;
}

/* Without ports every tensor without producer is an input; what nobody uses is an output either
 * way. */
static sinter_status_t settle_ports(sinter_graph_t *graph)
{
    graph_t *g = &graph->g;

    for (int v = 0; v < g->n_values; v++) {
        g->values[v].is_output = g->values[v].producer >= 0 && g->values[v].n_uses == 0;
    }
    SG_TRY(check_ports(graph, graph->n_inputs, graph->inputs, false));
    SG_TRY(check_ports(graph, graph->n_outputs, graph->outputs, true));
    if (graph->n_inputs > 0) {
        SG_TRY(check_dangling(graph));
    }
    for (size_t i = 0; i < graph->n_outputs; i++) {
        g->values[graph_find_value(g, graph->outputs[i])].is_output = true;
    }
    return sinter_success;
}

/* Without a list of outputs everything unread is an output. With one, ops on which no listed output
 * depends are left out: exporters leave such ops behind. What other ops make besides stays an
 * output. */
static sinter_status_t drop_unlisted(sinter_graph_t *graph)
{
    graph_t *g = &graph->g;
    if (graph->n_outputs == 0) {
        return sinter_success;
    }
    bool *was_output = ARENA_NEW(&g->arena, bool, g->n_values + 1);
    if (was_output == NULL) {
        return sinter_out_of_memory;
    }
    for (int v = 0; v < g->n_values; v++) {
        was_output[v] = g->values[v].is_output;
        g->values[v].is_output = false;
    }
    for (size_t i = 0; i < graph->n_outputs; i++) {
        g->values[graph_find_value(g, graph->outputs[i])].is_output = true;
    }
    SG_TRY(graph_prune(g));
    SG_TRY(graph_sort(g));
    for (int v = 0; v < g->n_values; v++) {
        g->values[v].is_output = was_output[v] && g->values[v].producer >= 0;
    }
    for (int i = 0; i < g->n_nodes; i++) {
        if (g->nodes[i].dead) {
            sg_log(SG_VERBOSE_DISPATCH, "%s is left out: no listed output depends on it",
                   node_label(&g->nodes[i]));
        }
    }
    return sinter_success;
}

/* ---- dumping --------------------------------------------------------------------------------- */

enum { DUMP_GRAPH = 1, DUMP_SUBGRAPH = 2, DUMP_UNREAD = 1 << 30 };
static _Atomic int dump_words = DUMP_UNREAD;
static _Atomic int dump_serial;

static bool parse_dump(const char *words, int *bits)
{
    *bits = 0;
    while (*words) {
        const size_t n = strcspn(words, ",");
        if (n == 5 && strncmp(words, "graph", n) == 0) {
            *bits |= DUMP_GRAPH;
        } else if (n == 8 && strncmp(words, "subgraph", n) == 0) {
            *bits |= DUMP_SUBGRAPH;
        } else if (n != 0 && !(n == 4 && strncmp(words, "none", n) == 0)) {
            return false;
        }
        words += n + (words[n] == ',');
    }
    return true;
}

static int dump_mode(void)
{
    if (dump_words == DUMP_UNREAD) {
        const char *env = getenv("SINTER_GRAPH_DUMP");
        int bits = 0;
        if (env != NULL && !parse_dump(env, &bits)) {
            sg_log(SG_VERBOSE_ERROR, "SINTER_GRAPH_DUMP=%s: words are graph, subgraph, none", env);
            bits = 0;
        }
        dump_words = bits;
    }
    return dump_words;
}

sinter_status_t sinter_set_graph_dump(const char *words)
{
    int bits;

    SG_REQUIRE(words != NULL);
    if (!parse_dump(words, &bits)) {
        return sg_fail(sinter_invalid_arguments,
                       "graph dump \"%s\": words are graph, subgraph, none", words);
    }
    dump_words = bits;
    return sinter_success;
}

sinter_status_t sinter_graph_dump(const sinter_graph_t *graph, const char *path)
{
    SG_REQUIRE_ALL(graph, path);
    SG_TRY(check_finalized(graph));
    return graph_write_json(&graph->g, graph->g.mode, graph->g.apply_to_int, path);
}

sinter_status_t sinter_graph_finalize(sinter_graph_t *graph)
{
    char path[64];

    SG_REQUIRE(graph != NULL);
    if (graph->finalized) {
        return sinter_success;
    }
    SG_TRY(graph_sort(&graph->g));
    SG_TRY(settle_ports(graph));
    SG_TRY(graph_verify(&graph->g, "finalize"));
    SG_TRY(graph_infer_shapes(&graph->g));
    SG_TRY(drop_unlisted(graph));
    SG_TRY(graph_find_weights_readers(&graph->g));
    graph->finalized = true;
    graph->serial = dump_serial++;
    if (dump_mode() & DUMP_GRAPH) {
        snprintf(path, sizeof(path), "sinter-graph-%d.json", graph->serial);
        (void)sinter_graph_dump(
            graph, path); /* a dump that fails leaves a message and does not fail the call */
    }
    return sinter_success;
}

sinter_status_t sinter_graph_is_finalized(const sinter_graph_t *graph, int *finalized)
{
    SG_REQUIRE_ALL(graph, finalized);
    *finalized = graph->finalized;
    return sinter_success;
}

sinter_status_t sinter_graph_filter(sinter_graph_t *graph, sinter_partition_policy_t policy)
{
    SG_REQUIRE(graph != NULL);
    SG_TRY(check_finalized(graph));
    if (policy != sinter_partition_policy_fusion && policy != sinter_partition_policy_debug) {
        return sg_fail(sinter_invalid_arguments, "%d is no partition policy", (int)policy);
    }
    drop_partitions(graph);
    arena_init(&graph->partitions.arena, graph->engine);
    const sinter_status_t status = partition_graph(&graph->g, policy, &graph->partitions);
    graph->filtered = true;
    if (status != sinter_success) {
        drop_partitions(graph);
    }
    return status;
}

static sinter_status_t check_filtered(const sinter_graph_t *graph)
{
    return graph->filtered
               ? sinter_success
               : sg_fail(sinter_invalid_arguments, "the graph has not been filtered yet");
}

sinter_status_t sinter_graph_get_partition_num(const sinter_graph_t *graph, size_t *count)
{
    SG_REQUIRE_ALL(graph, count);
    SG_TRY(check_filtered(graph));
    *count = (size_t)graph->partitions.n;
    return sinter_success;
}

sinter_status_t sinter_graph_get_partitions(sinter_graph_t *graph, size_t count,
                                            sinter_partition_t **partitions)
{
    char path[96];

    SG_REQUIRE_ALL(graph, partitions);
    SG_TRY(check_filtered(graph));
    if (count < (size_t)graph->partitions.n) {
        return sg_fail(sinter_invalid_arguments, "room for %zu partitions, the graph has %d", count,
                       graph->partitions.n);
    }
    for (int i = 0; i < graph->partitions.n && (dump_mode() & DUMP_SUBGRAPH); i++) {
        snprintf(path, sizeof(path), "sinter-subgraph-%d-%d.json", graph->serial, i);
        (void)partition_write_json(graph->partitions.items[i], path);
    }
    for (int i = 0; i < graph->partitions.n; i++) {
        partitions[i] = partition_ref(graph->partitions.items[i]);
    }
    return sinter_success;
}

sinter_status_t sinter_graph_query_logical_tensor(const sinter_graph_t *graph, uint64_t id,
                                                  sinter_logical_tensor_t *lt)
{
    SG_REQUIRE_ALL(graph, lt);
    SG_TRY(check_finalized(graph));
    const int v = graph_find_value(&graph->g, id);
    if (v < 0) {
        return sg_fail(sinter_invalid_arguments, "the graph has no tensor %llu",
                       (unsigned long long)id);
    }
    *lt = graph->g.values[v].lt;
    return sinter_success;
}

/* ---- partitions ------------------------------------------------------------------------------ */

sinter_status_t sinter_partition_destroy(sinter_partition_t **partition)
{
    SG_REQUIRE(partition != NULL);
    if (*partition != NULL) {
        partition_unref(*partition);
    }
    *partition = NULL;
    return sinter_success;
}

sinter_status_t sinter_partition_get_id(const sinter_partition_t *partition, size_t *id)
{
    SG_REQUIRE_ALL(partition, id);
    *id = partition->id;
    return sinter_success;
}

static sinter_status_t get_num(const sinter_partition_t *partition, size_t *count, int n)
{
    SG_REQUIRE_ALL(partition, count);
    *count = (size_t)n;
    return sinter_success;
}

sinter_status_t sinter_partition_get_op_num(const sinter_partition_t *partition, size_t *count)
{
    return get_num(partition, count, partition ? graph_n_live(&partition->sub) : 0);
}

sinter_status_t sinter_partition_get_input_num(const sinter_partition_t *partition, size_t *count)
{
    return get_num(partition, count, partition ? partition->n_inputs : 0);
}

sinter_status_t sinter_partition_get_output_num(const sinter_partition_t *partition, size_t *count)
{
    return get_num(partition, count, partition ? partition->n_outputs : 0);
}

sinter_status_t sinter_partition_get_ops(const sinter_partition_t *partition, size_t count,
                                         uint64_t *ids)
{
    SG_REQUIRE_ALL(partition, ids);
    SG_REQUIRE(count == (size_t)graph_n_live(&partition->sub));
    for (size_t i = 0; i < count; i++) {
        ids[i] = partition->sub.nodes[partition->sub.topo[i]].id;
    }
    return sinter_success;
}

static sinter_status_t get_ports(const sinter_partition_t *partition, size_t count,
                                 sinter_logical_tensor_t *ports, const int *values, int n)
{
    SG_REQUIRE(ports != NULL || count == 0);
    SG_REQUIRE(count == (size_t)n);
    for (size_t i = 0; i < count; i++) {
        ports[i] = partition->sub.values[values[i]].lt;
    }
    return sinter_success;
}

sinter_status_t sinter_partition_get_inputs(const sinter_partition_t *partition, size_t count,
                                            sinter_logical_tensor_t *ports)
{
    SG_REQUIRE(partition != NULL);
    return get_ports(partition, count, ports, partition->inputs, partition->n_inputs);
}

sinter_status_t sinter_partition_get_outputs(const sinter_partition_t *partition, size_t count,
                                             sinter_logical_tensor_t *ports)
{
    SG_REQUIRE(partition != NULL);
    return get_ports(partition, count, ports, partition->outputs, partition->n_outputs);
}

sinter_status_t sinter_partition_is_supported(const sinter_partition_t *partition, int *supported)
{
    SG_REQUIRE_ALL(partition, supported);
    *supported = partition->supported;
    return sinter_success;
}

sinter_status_t sinter_partition_set_fpmath_mode(sinter_partition_t *partition,
                                                 sinter_fpmath_mode_t mode, int apply_to_int)
{
    SG_REQUIRE(partition != NULL);
    SG_TRY(check_mode(mode));
    partition_set_fpmath(partition, mode, apply_to_int != 0);
    return sinter_success;
}

sinter_status_t sinter_partition_get_fpmath_mode(const sinter_partition_t *partition,
                                                 sinter_fpmath_mode_t *mode, int *apply_to_int)
{
    SG_REQUIRE_ALL(partition, mode, apply_to_int);
    bool to_int;
    partition_get_fpmath(partition, mode, &to_int);
    *apply_to_int = to_int;
    return sinter_success;
}

sinter_status_t sinter_partition_explain(const sinter_partition_t *partition, const char **text)
{
    SG_REQUIRE_ALL(partition, text);
    *text = partition->explain != NULL ? partition->explain : "";
    return sinter_success;
}

sinter_status_t sinter_partition_get_pattern(const sinter_partition_t *partition, const char **name)
{
    SG_REQUIRE_ALL(partition, name);
    *name = partition->pattern;
    return sinter_success;
}

sinter_status_t sinter_partition_dump(const sinter_partition_t *partition, const char *path)
{
    SG_REQUIRE_ALL(partition, path);
    return partition_write_json(partition, path);
}
