/* The public functions of compiled graphs. */
#include <string.h>

#include <sinter/sinter.h>

#include "api/bind.h"
#include "api/compile_with.h"
#include "api/graph_object.h"
#include "api/whole.h"
#include "base/status.h"
#include "graph/layout.h"
#include "graph/op_schema.h"

/* ---- create and destroy ---------------------------------------------------------------------- */

sinter_status_t sinter_compiled_graph_destroy(sinter_compiled_graph_t **compiled)
{
    SG_REQUIRE(compiled != NULL);
    sinter_compiled_graph_t *w = *compiled;
    if (w != NULL) {
        sinter_engine_t *engine = w->engine;
        (void)sinter_sequence_destroy(&w->sequence);
        for (int p = 0; p < w->n_parts; p++) {
            compiled_unref(w->parts[p].compiled);
        }
        sg_free(engine, w->frame);
        sg_free(engine, w->memory);
        arena_free(&w->arena);
        object_free(w);
    }
    *compiled = NULL;
    return sinter_success;
}

/* ---- partitions ------------------------------------------------------------------------------ */

/* Room for n partitions, and for their ports as tensors. */
static bool make_room(sinter_compiled_graph_t *w, size_t n,
                      sinter_compiled_partition_t *const *partitions)
{
    size_t ports = 1, frame = 1;
    int outputs = 1;
    w->parts = ARENA_NEW(&w->arena, whole_part_t, n + 1);
    for (size_t i = 0; i < n; i++) {
        const sinter_compiled_partition_t *cp = partitions[i];
        ports += (size_t)cp->n_inputs + (size_t)cp->n_outputs;
        outputs = cp->n_outputs > outputs ? cp->n_outputs : outputs;
        frame = cp->plan.frame_bytes > frame ? cp->plan.frame_bytes : frame;
    }
    w->tensors = ARENA_NEW(&w->arena, whole_tensor_t, ports);
    w->inputs = ARENA_NEW(&w->arena, int, ports);
    w->outputs = ARENA_NEW(&w->arena, int, ports);
    w->live = ARENA_NEW(&w->arena, int, ports);
    w->path = ARENA_NEW(&w->arena, whole_hop_t, n + 1);
    w->placed = ARENA_NEW(&w->arena, sinter_arena_tensor_t, ports);
    w->pairs = ARENA_NEW(&w->arena, sinter_inplace_pair_t, ports);
    w->inferred = ARENA_NEW(&w->arena, lt_t, outputs);
    w->ids = idmap_new(&w->arena);
    w->frame = sg_alloc(w->engine, frame, SCRATCH_ALIGN);
    return w->parts != NULL && w->tensors != NULL && w->inputs != NULL && w->outputs != NULL &&
           w->live != NULL && w->path != NULL && w->placed != NULL && w->pairs != NULL &&
           w->inferred != NULL && w->ids != NULL && w->frame != NULL;
}

static sinter_status_t fail_tensor(const whole_part_t *part, const lt_t *port, const char *why)
{
    return sg_fail(sinter_invalid_arguments, "partition %zu (%s): tensor %llu %s",
                   part->compiled->id, part->compiled->pattern, (unsigned long long)port->id, why);
}

/* Port i of partition p as a tensor of the graph. */
static sinter_status_t add_port(sinter_compiled_graph_t *w, const sinter_graph_t *graph, int p,
                                int i, int *at)
{
    whole_part_t *part = &w->parts[p];
    const lt_t *port = bind_port(part->compiled, i);
    const bool output = i >= part->compiled->n_inputs;
    const int value = graph_find_value(&graph->g, port->id);
    *at = idmap_get(w->ids, port->id);
    if (value < 0 || (output && graph->g.values[value].producer < 0)) {
        return fail_tensor(part, port, "is not of this graph");
    }
    if (*at >= 0 && output) {
        return fail_tensor(part, port, "is written by an earlier partition, or read by one");
    }
    if (*at >= 0 && !lt_same_layout(&w->tensors[*at].port, port)) {
        return fail_tensor(part, port, "has another layout in an earlier partition");
    }
    if (*at < 0 && !output && graph->g.values[value].producer >= 0) {
        return fail_tensor(part, port, "is written by no partition before");
    }
    if (*at < 0) {
        *at = w->n_tensors++;
        w->tensors[*at] = (whole_tensor_t){
            .tensor = {.engine = w->engine, .lt = *port}, .port = *port, .first = output ? p : -1};
        if (!idmap_put(w->ids, port->id, *at)) {
            return sinter_out_of_memory;
        }
    }
    w->tensors[*at].last = p;
    return sinter_success;
}

static sinter_status_t add_part(sinter_compiled_graph_t *w, const sinter_graph_t *graph, int p)
{
    whole_part_t *part = &w->parts[p];
    const sinter_compiled_partition_t *cp = part->compiled;
    part->stale = true;
    part->ports = ARENA_NEW(&w->arena, int, cp->n_inputs + cp->n_outputs + 1);
    part->ins = ARENA_NEW(&w->arena, const sinter_tensor_t *, cp->n_inputs + 1);
    part->outs = ARENA_NEW(&w->arena, sinter_tensor_t *, cp->n_outputs + 1);
    if (part->ports == NULL || part->ins == NULL || part->outs == NULL) {
        return sinter_out_of_memory;
    }
    for (int i = 0; i < cp->n_inputs + cp->n_outputs; i++) {
        SG_TRY(add_port(w, graph, p, i, &part->ports[i]));
        sinter_tensor_t *tensor = &w->tensors[part->ports[i]].tensor;
        if (i < cp->n_inputs) {
            part->ins[i] = tensor;
        } else {
            part->outs[i - cp->n_inputs] = tensor;
        }
    }
    return sinter_sequence_append(w->sequence, cp, (size_t)cp->n_inputs, part->ins,
                                  (size_t)cp->n_outputs, part->outs);
}

/* The partitions by their numbers, which are the order of execution. */
static sinter_status_t take_parts(sinter_compiled_graph_t *w, size_t n,
                                  sinter_compiled_partition_t *const *partitions)
{
    for (size_t i = 0; i < n; i++) {
        int at = (int)i;
        for (; at > 0 && w->parts[at - 1].compiled->id > partitions[i]->id; at--) {
            w->parts[at] = w->parts[at - 1];
        }
        atomic_fetch_add(&partitions[i]->refs, 1);
        w->parts[at] = (whole_part_t){.compiled = partitions[i]};
        w->n_parts = (int)i + 1;
        if (at > 0 && w->parts[at - 1].compiled->id == partitions[i]->id) {
            return sg_fail(sinter_invalid_arguments, "partition %zu is given twice",
                           partitions[i]->id);
        }
    }
    return sinter_success;
}

/* ---- ports of the graph ---------------------------------------------------------------------- */

/* What ops make besides the listed outputs is an output of its partition alone. */
static bool is_listed(const sinter_graph_t *graph, uint64_t id)
{
    for (size_t i = 0; i < graph->n_outputs; i++) {
        if (graph->outputs[i] == id) {
            return true;
        }
    }
    return graph->n_outputs == 0 && graph->g.values[graph_find_value(&graph->g, id)].is_output;
}

static sinter_status_t find_ports(sinter_compiled_graph_t *w, const sinter_graph_t *graph)
{
    for (int i = 0; i < w->n_tensors; i++) {
        whole_tensor_t *t = &w->tensors[i];
        if (t->first < 0) {
            w->inputs[w->n_inputs++] = i;
        } else if (is_listed(graph, t->port.id)) {
            w->outputs[w->n_outputs++] = i;
            t->last = w->n_parts;
        }
    }
    for (int v = 0; v < graph->g.n_values; v++) {
        const uint64_t id = graph->g.values[v].lt.id;
        if (graph->g.values[v].is_output && idmap_get(w->ids, id) < 0) {
            return sg_fail(sinter_invalid_arguments,
                           "no partition writes output tensor %llu: a partition is missing",
                           (unsigned long long)id);
        }
    }
    return sinter_success;
}

static void find_pairs(sinter_compiled_graph_t *w)
{
    for (int i = 0; i < w->n_outputs; i++) {
        const int root = whole_find_root(w, w->outputs[i], false);
        if (root >= 0) {
            w->pairs[w->n_pairs++] = (sinter_inplace_pair_t){w->tensors[root].port.id,
                                                             w->tensors[w->outputs[i]].port.id};
        }
    }
}

static sinter_status_t build(sinter_compiled_graph_t *w, const sinter_graph_t *graph, size_t n,
                             sinter_compiled_partition_t *const *partitions)
{
    if (n > INT32_MAX / 2 || !make_room(w, n, partitions)) {
        return sinter_out_of_memory;
    }
    SG_TRY(sinter_sequence_create(&w->sequence, w->engine));
    SG_TRY(take_parts(w, n, partitions));
    for (int p = 0; p < w->n_parts; p++) {
        SG_TRY(add_part(w, graph, p));
    }
    SG_TRY(find_ports(w, graph));
    find_pairs(w);
    return sinter_success;
}

static sinter_status_t check_graph(const sinter_graph_t *graph)
{
    return graph->finalized ? sinter_success
                            : sg_fail(sinter_invalid_arguments, "the graph is not finalized");
}

sinter_status_t sinter_compiled_graph_create(sinter_compiled_graph_t **compiled,
                                             sinter_engine_t *engine, const sinter_graph_t *graph,
                                             size_t n_partitions,
                                             sinter_compiled_partition_t *const *partitions)
{
    SG_REQUIRE_ALL(compiled, graph);
    SG_REQUIRE(n_partitions == 0 || partitions != NULL);
    SG_TRY(check_graph(graph));
    for (size_t i = 0; i < n_partitions; i++) {
        SG_REQUIRE(partitions[i] != NULL);
    }
    SG_TRY(engine_check(engine));
    sinter_compiled_graph_t *w = object_new(engine, sizeof(*w));
    if (w == NULL) {
        return sinter_out_of_memory;
    }
    w->stale = true;
    arena_init(&w->arena, w->engine);
    const sinter_status_t status = build(w, graph, n_partitions, partitions);
    if (status != sinter_success) {
        (void)sinter_compiled_graph_destroy(&w);
        return status;
    }
    *compiled = w;
    return sinter_success;
}

/* ---- compile --------------------------------------------------------------------------------- */

/* While a graph is compiled: its partitions by number, what compile has settled of the tensors
 * between them, and the results. */
typedef struct job {
    arena_t arena;
    sinter_engine_t *engine;
    int n;
    sinter_partition_t **parts;
    sinter_compiled_partition_t **compiled;
    idmap_t *ids; /* tensor id -> settled */
    lt_t *settled;
    int n_settled;
    lt_t *inputs; /* of one partition at a time */
    strided_inputs_t strided;
} job_t;

static sinter_status_t list_parts(job_t *job, size_t n, sinter_partition_t *const *parts)
{
    int outputs = 1, most_in = 1;
    job->parts = ARENA_NEW(&job->arena, sinter_partition_t *, n + 1);
    job->compiled = ARENA_NEW(&job->arena, sinter_compiled_partition_t *, n + 1);
    if (job->parts == NULL || job->compiled == NULL) {
        return sinter_out_of_memory;
    }
    for (size_t i = 0; i < n; i++) {
        int at = (int)i;
        for (; at > 0 && job->parts[at - 1]->id > parts[i]->id; at--) {
            job->parts[at] = job->parts[at - 1];
        }
        job->parts[at] = parts[i];
        outputs += parts[i]->n_outputs;
        most_in = parts[i]->n_inputs > most_in ? parts[i]->n_inputs : most_in;
    }
    job->n = (int)n;
    job->settled = ARENA_NEW(&job->arena, lt_t, outputs);
    job->inputs = ARENA_NEW(&job->arena, lt_t, most_in);
    return job->settled != NULL && job->inputs != NULL ? sinter_success : sinter_out_of_memory;
}

/* All ops that do not run, in one message. */
static sinter_status_t check_supported(job_t *job)
{
    textbuf_t text;
    int ops = 0;
    text_init(&text, &job->arena);
    for (int p = 0; p < job->n; p++) {
        const sinter_partition_t *part = job->parts[p];
        for (int i = 0; i < graph_n_live(&part->sub) && !part->supported; i++) {
            const node_t *op = &part->sub.nodes[part->sub.topo[i]];
            text_add(&text, "\n  op %llu (%s), partition %zu: %s", (unsigned long long)op->id,
                     op_name(op->kind), part->id, part->reason != NULL ? part->reason : "");
            ops++;
        }
    }
    if (text.oom) {
        return sinter_out_of_memory;
    }
    return ops == 0 ? sinter_success
                    : sg_fail(sinter_unimplemented, "%d op%s of the graph cannot run:%s", ops,
                              ops == 1 ? "" : "s", text.text);
}

/* Compiles a partition with the layouts that compiling its producers has settled. */
static sinter_status_t compile_part(job_t *job, int p)
{
    sinter_partition_t *part = job->parts[p];
    for (int i = 0; i < part->n_inputs; i++) {
        const lt_t *lt = &part->sub.values[part->inputs[i]].lt;
        const int at = idmap_get(job->ids, lt->id);
        job->inputs[i] = at >= 0 ? job->settled[at] : *lt;
    }
    const sinter_status_t status = compile_with(
        part, job->engine, &(compile_ports_t){.n_in = (size_t)part->n_inputs, .in = job->inputs},
        &job->strided, &job->compiled[p]);
    if (status != sinter_success) {
        return status == sinter_out_of_memory ? status
                                              : sg_fail(status, "partition %zu (%s): %s", part->id,
                                                        part->pattern, sinter_last_error_message());
    }
    const sinter_compiled_partition_t *cp = job->compiled[p];
    for (int i = 0; i < cp->n_outputs; i++) {
        const lt_t *lt = bind_port(cp, cp->n_inputs + i);
        job->settled[job->n_settled] = *lt;
        if (!idmap_put(job->ids, lt->id, job->n_settled++)) {
            return sinter_out_of_memory;
        }
    }
    return sinter_success;
}

/* A partition that has input `of` of layout any in strides, while this one wants it in tiles; or in
 * other ones. -1: none. */
static int other_layout(const job_t *job, const lt_t *of)
{
    for (int p = 0; p < job->n; p++) {
        const sinter_compiled_partition_t *cp = job->compiled[p];
        for (int i = 0; i < cp->n_inputs; i++) {
            const lt_t *lt = bind_port(cp, i);
            if (lt->id == of->id && !lt_same_layout(lt, of)) {
                return p;
            }
        }
    }
    return -1;
}

/* Inputs for which partitions have chosen different layouts: all will have them with strides. */
static sinter_status_t find_conflicts(job_t *job, bool *again)
{
    *again = false;
    for (int p = 0; p < job->n; p++) {
        const sinter_compiled_partition_t *cp = job->compiled[p];
        for (int i = 0; i < cp->n_inputs; i++) {
            const value_t *v = &cp->plan.sub.values[cp->inputs[i]];
            const int other = v->chosen ? other_layout(job, &v->lt) : -1;
            if (other < 0) {
                continue;
            }
            textbuf_t why;
            text_init(&why, &job->arena);
            text_add(&why, "partition %zu (%s) does not read it in these tiles",
                     job->parts[other]->id, job->parts[other]->pattern);
            if (why.oom || !strided_inputs_add(&job->strided, v->lt.id, why.text)) {
                return sinter_out_of_memory;
            }
            *again = true;
        }
    }
    return sinter_success;
}

static void drop_compiled(job_t *job)
{
    for (int p = 0; p < job->n; p++) {
        (void)sinter_compiled_partition_destroy(&job->compiled[p]);
    }
}

static sinter_status_t compile_all(job_t *job, const sinter_graph_t *graph,
                                   sinter_compiled_graph_t **compiled)
{
    SG_TRY(check_supported(job));
    for (bool again = true; again;) {
        drop_compiled(job);
        job->n_settled = 0;
        job->ids = idmap_new(&job->arena);
        if (job->ids == NULL) {
            return sinter_out_of_memory;
        }
        for (int p = 0; p < job->n; p++) {
            SG_TRY(compile_part(job, p));
        }
        SG_TRY(find_conflicts(job, &again));
    }
    return sinter_compiled_graph_create(compiled, job->engine, graph, (size_t)job->n,
                                        job->compiled);
}

sinter_status_t sinter_graph_compile(sinter_graph_t *graph, sinter_engine_t *engine,
                                     size_t n_partitions, sinter_partition_t *const *partitions,
                                     sinter_compiled_graph_t **compiled)
{
    SG_REQUIRE_ALL(graph, compiled);
    SG_REQUIRE(n_partitions == 0 || partitions != NULL);
    SG_TRY(check_graph(graph));
    SG_TRY(engine_check(engine));
    for (size_t i = 0; i < n_partitions; i++) {
        SG_REQUIRE(partitions[i] != NULL);
    }
    if (n_partitions == 0 && !graph->filtered) {
        SG_TRY(sinter_graph_filter(graph, sinter_partition_policy_fusion));
    }
    const size_t n = n_partitions > 0 ? n_partitions : (size_t)graph->partitions.n;
    job_t job = {.engine = engine_ref(engine)};
    arena_init(&job.arena, job.engine);
    job.strided.arena = &job.arena;
    sinter_status_t status =
        list_parts(&job, n, n_partitions > 0 ? partitions : graph->partitions.items);
    status = status == sinter_success ? compile_all(&job, graph, compiled) : status;
    drop_compiled(&job);
    arena_free(&job.arena);
    engine_unref(job.engine);
    return status;
}

/* ---- queries --------------------------------------------------------------------------------- */

sinter_status_t sinter_compiled_graph_get_partition_num(const sinter_compiled_graph_t *compiled,
                                                        size_t *count)
{
    SG_REQUIRE_ALL(compiled, count);
    *count = (size_t)compiled->n_parts;
    return sinter_success;
}

sinter_status_t sinter_compiled_graph_get_partitions(const sinter_compiled_graph_t *compiled,
                                                     size_t count, size_t *ids,
                                                     sinter_compiled_partition_t **partitions)
{
    SG_REQUIRE(compiled != NULL);
    SG_REQUIRE(count == (size_t)compiled->n_parts);
    for (size_t i = 0; i < count; i++) {
        if (ids != NULL) {
            ids[i] = compiled->parts[i].compiled->id;
        }
        if (partitions != NULL) {
            partitions[i] = compiled->parts[i].compiled;
        }
    }
    return sinter_success;
}

static sinter_status_t get_num(const sinter_compiled_graph_t *w, size_t *count, bool output)
{
    SG_REQUIRE_ALL(w, count);
    *count = (size_t)(output ? w->n_outputs : w->n_inputs);
    return sinter_success;
}

sinter_status_t sinter_compiled_graph_get_input_num(const sinter_compiled_graph_t *compiled,
                                                    size_t *count)
{
    return get_num(compiled, count, false);
}

sinter_status_t sinter_compiled_graph_get_output_num(const sinter_compiled_graph_t *compiled,
                                                     size_t *count)
{
    return get_num(compiled, count, true);
}

static sinter_status_t get_ports(const sinter_compiled_graph_t *w, size_t count, lt_t *ports,
                                 bool output)
{
    SG_REQUIRE(w != NULL);
    SG_REQUIRE(count == 0 || ports != NULL);
    SG_REQUIRE(count == (size_t)(output ? w->n_outputs : w->n_inputs));
    for (size_t i = 0; i < count; i++) {
        ports[i] = w->tensors[output ? w->outputs[i] : w->inputs[i]].port;
    }
    return sinter_success;
}

sinter_status_t sinter_compiled_graph_get_inputs(const sinter_compiled_graph_t *compiled,
                                                 size_t count, sinter_logical_tensor_t *ports)
{
    return get_ports(compiled, count, ports, false);
}

sinter_status_t sinter_compiled_graph_get_outputs(const sinter_compiled_graph_t *compiled,
                                                  size_t count, sinter_logical_tensor_t *ports)
{
    return get_ports(compiled, count, ports, true);
}

sinter_status_t sinter_compiled_graph_get_inplace_ports(const sinter_compiled_graph_t *compiled,
                                                        size_t *count,
                                                        const sinter_inplace_pair_t **pairs)
{
    SG_REQUIRE_ALL(compiled, count, pairs);
    *count = compiled->n_pairs;
    *pairs = compiled->pairs;
    return sinter_success;
}

static sinter_status_t find_tensor_of(sinter_compiled_graph_t *w, uint64_t id,
                                      whole_tensor_t **tensor)
{
    const int at = idmap_get(w->ids, id);
    if (at < 0) {
        return sg_fail(sinter_invalid_arguments,
                       "tensor %llu is no input or output of the graph, nor between its partitions",
                       (unsigned long long)id);
    }
    *tensor = &w->tensors[at];
    return sinter_success;
}

sinter_status_t sinter_compiled_graph_query_logical_tensor(sinter_compiled_graph_t *compiled,
                                                           uint64_t id, sinter_logical_tensor_t *lt)
{
    SG_REQUIRE_ALL(compiled, lt);
    whole_tensor_t *t = NULL;
    bool known = true;
    SG_TRY(find_tensor_of(compiled, id, &t));
    for (int i = 0; i < compiled->n_inputs; i++) {
        known = known && lt_dims_known(&compiled->tensors[compiled->inputs[i]].tensor.lt);
    }
    if (known) {
        SG_TRY(whole_infer(compiled));
    }
    *lt = t->tensor.lt;
    return sinter_success;
}

/* ---- binding --------------------------------------------------------------------------------- */

static void set_data(sinter_compiled_graph_t *w, whole_tensor_t *t, void *data, size_t bytes)
{
    size_t need;
    const bool empty = lt_dims_known(&t->tensor.lt) &&
                       lt_bytes(&t->tensor.lt, &need) == sinter_success && need == 0;
    w->stale = w->stale || t->data != data || t->tensor.bytes != bytes || !t->bound;
    t->bound = data != NULL || empty;
    t->data = data;
    t->tensor.bytes = bytes;
}

static sinter_status_t bind_input(sinter_compiled_graph_t *w, whole_tensor_t *t, const lt_t *lt,
                                  void *data, size_t bytes)
{
    const lt_t *now = lt != NULL ? lt : &t->tensor.lt;
    if (!lt_dims_known(now)) {
        return sg_fail(sinter_invalid_arguments,
                       "the dims of tensor %llu are not known yet: give them with its data",
                       (unsigned long long)t->port.id);
    }
    SG_TRY(bind_check_bytes(now, data, bytes));
    if (lt != NULL && !lt_same_shape(lt, &t->tensor.lt)) {
        t->tensor.lt = *lt;
        whole_renew(w, t);
    }
    set_data(w, t, data, bytes);
    return sinter_success;
}

static sinter_status_t bind_output(sinter_compiled_graph_t *w, whole_tensor_t *t, const lt_t *lt,
                                   void *data, size_t bytes)
{
    if (lt != NULL) {
        SG_TRY(bind_check_bytes(lt, data, bytes));
    }
    if ((lt != NULL) != t->given || (lt != NULL && !lt_same_shape(lt, &t->wanted))) {
        t->given = lt != NULL;
        t->wanted = lt != NULL ? *lt : t->port;
        whole_renew(w, t);
    }
    set_data(w, t, data, bytes);
    return sinter_success;
}

sinter_status_t sinter_compiled_graph_bind(sinter_compiled_graph_t *compiled, uint64_t id,
                                           int ndims, const sinter_dim_t *dims,
                                           const sinter_dim_t *strides, void *data, size_t bytes)
{
    SG_REQUIRE(compiled != NULL);
    SG_REQUIRE(ndims == 0 || dims != NULL);
    SG_REQUIRE(strides == NULL || dims != NULL);
    whole_tensor_t *t = NULL;
    lt_t lt;
    const bool with = dims != NULL;
    SG_TRY(find_tensor_of(compiled, id, &t));
    if (with) {
        SG_TRY(bind_with_dims(&t->port, ndims, dims, strides, &lt));
        SG_TRY(lt_verify(&lt, t->first >= 0, "sinter_compiled_graph_bind"));
    }
    return t->first < 0 ? bind_input(compiled, t, with ? &lt : NULL, data, bytes)
                        : bind_output(compiled, t, with ? &lt : NULL, data, bytes);
}

sinter_status_t sinter_compiled_graph_bind_scalar(sinter_compiled_graph_t *compiled, uint64_t id,
                                                  const void *value)
{
    SG_REQUIRE_ALL(compiled, value);
    whole_tensor_t *t = NULL;
    int64_t bytes = 0;
    SG_TRY(find_tensor_of(compiled, id, &t));
    const lt_t *lt = &t->tensor.lt;
    if (t->first >= 0 || !lt_dims_known(lt) || lt_elems(lt) != 1 || lt_is_opaque(lt) ||
        !dtype_bytes(lt->data_type, 1, &bytes)) {
        return sg_fail(sinter_invalid_arguments, "tensor %llu is no input of one element",
                       (unsigned long long)id);
    }
    memcpy(t->tensor.scalar, value, (size_t)bytes);
    set_data(compiled, t, t->tensor.scalar, (size_t)bytes);
    return sinter_success;
}

/* ---- execute --------------------------------------------------------------------------------- */

sinter_status_t sinter_compiled_graph_execute(sinter_compiled_graph_t *compiled,
                                              sinter_stream_t *stream)
{
    SG_REQUIRE_ALL(compiled, stream);
    SG_TRY(whole_prepare(compiled));
    return sinter_sequence_execute(compiled->sequence, stream);
}

sinter_status_t sinter_compiled_graph_get_arena(sinter_compiled_graph_t *compiled, size_t *bytes,
                                                size_t *count,
                                                const sinter_arena_tensor_t **tensors)
{
    SG_REQUIRE(compiled != NULL);
    SG_TRY(whole_place_all(compiled));
    if (bytes != NULL) {
        *bytes = compiled->placed_bytes;
    }
    if (count != NULL) {
        *count = compiled->n_placed;
    }
    if (tensors != NULL) {
        *tensors = compiled->placed;
    }
    return sinter_success;
}
