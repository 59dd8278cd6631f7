#include "exec.h"

#include "../../tests/oracle/oracle.h"
#include "fill.h"
#include "npy.h"
#include "random.h"
#include "rewrite.h"
#include "simulate.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum { GUARD = 256, GUARD_BYTE = 0xA5, POISON = 0xFF };

int gr_library_failure(sinter_status_t status, const char *what, gr_error_t *err)
{
    if (status == sinter_out_of_memory) {
        err->out_of_memory = 1;
    }
    return gr_fail(err, "%s: %s: %s", what, sinter_status_name(status),
                   sinter_last_error_message());
}

/* ---- open: engine, graph, partitions --------------------------------------------------------- */

static int unknown_isa(const char *isa, gr_error_t *err)
{
    char names[256] = "";
    size_t n = 0;
    for (int i = sinter_isa_default; sinter_cpu_isa_name((sinter_cpu_isa_t)i) != NULL; i++) {
        n += (size_t)snprintf(names + n, n < sizeof names ? sizeof names - n : 0, " %s",
                              sinter_cpu_isa_name((sinter_cpu_isa_t)i));
    }
    return gr_fail(err, "--max-cpu-isa=%s: no such instruction set, there are:%s", isa, names);
}

static int open_engine(gr_exec_t *x, gr_error_t *err)
{
    sinter_engine_desc_t desc = {.size = sizeof desc, .deterministic = x->opt->deterministic};
    /* Checking results wants threads in small graphs too. */
    sinter_stream_desc_t stream = {.size = sizeof stream,
                                   .threads = (int)x->opt->threads,
                                   .all_threads = x->opt->mode[0] != 'P'};
    sinter_status_t status;

    if (x->opt->simulate_threads > 0) {
        desc.allocator = gr_simulate_allocator();
        gr_simulate_stream(x->opt, &stream);
    }
    if (x->opt->max_cpu_isa && !sinter_cpu_isa_parse(x->opt->max_cpu_isa, &desc.max_isa)) {
        return unknown_isa(x->opt->max_cpu_isa, err);
    }
    if (x->opt->dump_after) {
        setenv("SINTER_DUMP_AFTER", x->opt->dump_after, 1);
    } else {
        unsetenv("SINTER_DUMP_AFTER");
    }
    /* Set for each case, since the line before it in a batch may have had other words. */
    const char *words = x->opt->verbose ? x->opt->verbose : getenv("SINTER_VERBOSE");
    status = sinter_set_verbose(words ? words : "none");
    if (status) {
        return gr_library_failure(status, "--verbose", err);
    }
    status = sinter_engine_create(&x->engine, &desc);
    if (!status && x->opt->constant_cache >= 0) {
        status = sinter_engine_set_constant_cache_budget(x->engine, (size_t)x->opt->constant_cache);
    }
    if (!status) {
        status = sinter_stream_create(&x->stream, x->engine, &stream);
    }
    if (!status) {
        status = sinter_stream_get_threads(x->stream, &x->threads);
    }
    return status ? gr_library_failure(status, "engine", err) : 0;
}

static sinter_status_t describe_part(gr_exec_t *x, gr_part_t *p)
{
    gr_arena_t *arena = &x->model->arena;
    sinter_status_t status = sinter_partition_get_id(p->partition, &p->id);

    if (!status) {
        status = sinter_partition_get_op_num(p->partition, &p->n_ops);
    }
    if (!status) {
        status = sinter_partition_get_input_num(p->partition, &p->n_in);
    }
    if (!status) {
        status = sinter_partition_get_output_num(p->partition, &p->n_out);
    }
    if (status) {
        return status;
    }
    p->ops = gr_arena_alloc(arena, p->n_ops, sizeof *p->ops);
    p->in = gr_arena_alloc(arena, p->n_in, sizeof *p->in);
    p->out = gr_arena_alloc(arena, p->n_out, sizeof *p->out);
    if (!p->ops || !p->in || !p->out) {
        return sinter_out_of_memory;
    }
    status = sinter_partition_get_ops(p->partition, p->n_ops, p->ops);
    if (!status) {
        status = sinter_partition_get_inputs(p->partition, p->n_in, p->in);
    }
    if (!status) {
        status = sinter_partition_get_outputs(p->partition, p->n_out, p->out);
    }
    if (!status) {
        status = sinter_partition_is_supported(p->partition, &p->supported);
    }
    if (!status) {
        status = sinter_partition_get_pattern(p->partition, &p->pattern);
    }
    return status ? status
                  : sinter_partition_get_fpmath_mode(p->partition, &p->mode, &p->apply_to_int);
}

static int get_partitions(gr_exec_t *x, gr_error_t *err)
{
    sinter_partition_policy_t policy =
        x->opt->no_fuse ? sinter_partition_policy_debug : sinter_partition_policy_fusion;
    sinter_partition_t **list;
    sinter_status_t status = sinter_graph_filter(x->graph, policy);

    if (!status) {
        status = sinter_graph_get_partition_num(x->graph, &x->n_parts);
    }
    if (status) {
        return gr_library_failure(status, "filter", err);
    }
    list = gr_arena_alloc(&x->model->arena, x->n_parts, sizeof *list);
    x->parts = gr_arena_alloc(&x->model->arena, x->n_parts, sizeof *x->parts);
    if (!list || !x->parts) {
        return gr_fail_memory(err);
    }
    status = sinter_graph_get_partitions(x->graph, x->n_parts, list);
    if (status) {
        return gr_library_failure(status, "get_partitions", err);
    }
    for (size_t i = 0; i < x->n_parts; i++) {
        x->parts[i].partition = list[i];
    }
    for (size_t i = 0; i < x->n_parts && !status; i++) {
        status = describe_part(x, &x->parts[i]);
    }
    return status ? gr_library_failure(status, "partition", err) : 0;
}

/* --partition-fpmath=PID:MODE[:true]+... */
static int set_partition_modes(gr_exec_t *x, gr_error_t *err)
{
    const char *p = x->opt->partition_fpmath;

    for (; p; p = *p ? p + 1 : NULL) {
        const char *start = p;
        sinter_fpmath_mode_t mode;
        sinter_status_t status;
        uint64_t pid;
        int to_int;

        if (gr_parse_u64(&p, &pid) || *p++ != ':' || gr_parse_fpmath(&p, &mode, &to_int) ||
            (*p && *p != '+')) {
            return gr_fail(err, "--partition-fpmath: expected PID:MODE[:true] at \"%s\"", start);
        }
        if (pid >= x->n_parts) {
            return gr_fail(err, "--partition-fpmath: there is no partition %llu",
                           (unsigned long long)pid);
        }
        status = sinter_partition_set_fpmath_mode(x->parts[pid].partition, mode, to_int);
        if (status) {
            return gr_library_failure(status, "--partition-fpmath", err);
        }
        x->parts[pid].mode = mode;
        x->parts[pid].apply_to_int = to_int;
    }
    return 0;
}

/* The graph with the dims of --dynamic unknown. The model keeps the real ones: inputs, oracle and
 * figures need them. */
static int build_dynamic(gr_exec_t *x, gr_error_t *err)
{
    model_t *m = x->model;
    sinter_logical_tensor_t *real = gr_arena_alloc(&m->arena, m->n_uses, sizeof *real);
    int failed;

    if (!real) {
        return gr_fail_memory(err);
    }
    for (size_t i = 0; i < m->n_uses; i++) {
        real[i] = *model_at(m, &m->uses[i]);
    }
    x->graph = NULL;
    failed =
        gr_rewrite_dynamic(m, x->opt->dynamic, err) || model_build(m, x->engine, &x->graph, err);
    for (size_t i = 0; i < m->n_uses; i++) {
        *model_at(m, &m->uses[i]) = real[i];
    }
    return failed ? -1 : 0;
}

int gr_exec_open(gr_exec_t *x, model_t *model, const gr_options_t *opt, gr_error_t *err)
{
    sinter_status_t status;

    *x = (gr_exec_t){.opt = opt, .model = model};
    x->buffers = gr_arena_alloc(&model->arena, model->n_tensors, sizeof *x->buffers);
    x->settled = gr_arena_alloc(&model->arena, model->n_tensors, sizeof *x->settled);
    if (!x->buffers || !x->settled) {
        return gr_fail_memory(err);
    }
    if (open_engine(x, err) || model_build(model, x->engine, &x->shapes, err)) {
        return -1;
    }
    x->graph = x->shapes;
    if (opt->dynamic && build_dynamic(x, err)) {
        return -1;
    }
    status = opt->dump_graph ? sinter_graph_dump(x->graph, opt->dump_graph) : sinter_success;
    if (status) {
        return gr_library_failure(status, "--dump-graph", err);
    }
    return get_partitions(x, err) || set_partition_modes(x, err) ? -1 : 0;
}

void gr_exec_close(gr_exec_t *x)
{
    sinter_compiled_graph_destroy(&x->whole);
    for (size_t i = 0; x->buffers && i < x->model->n_tensors; i++) {
        gr_buffer_free(&x->buffers[i]);
    }
    for (size_t i = 0; x->parts && i < x->n_parts; i++) {
        sinter_compiled_partition_destroy(&x->parts[i].compiled);
        sinter_partition_destroy(&x->parts[i].partition);
    }
    if (x->shapes != x->graph) {
        sinter_graph_destroy(&x->shapes);
    }
    sinter_graph_destroy(&x->graph);
    sinter_stream_destroy(&x->stream);
    sinter_engine_destroy(&x->engine);
    *x = (gr_exec_t){0};
}

static double unit_roundoff(sinter_fpmath_mode_t mode)
{
    switch (mode) {
    case sinter_fpmath_mode_strict:
        return 0x1p-24;
    case sinter_fpmath_mode_tf32:
    case sinter_fpmath_mode_f16:
        return 0x1p-11;
    case sinter_fpmath_mode_bf16:
    case sinter_fpmath_mode_any:
        return 0x1p-8;
    case sinter_fpmath_mode_int8:
        return 0x1p-7;
    }
    return 0x1p-8; /* there is no other mode */
}

void gr_exec_loosest_mode(const gr_exec_t *x, sinter_fpmath_mode_t *mode, int *apply_to_int)
{
    *mode = x->n_parts ? x->parts[0].mode : x->model->mode;
    *apply_to_int =
        x->n_parts >
        1; /* a MatMul apart from its Dequantize cannot know that its operand is integer */
    for (size_t i = 0; i < x->n_parts; i++) {
        if (unit_roundoff(x->parts[i].mode) > unit_roundoff(*mode)) {
            *mode = x->parts[i].mode;
        }
        *apply_to_int |= x->parts[i].apply_to_int;
    }
}

/* ---- buffers --------------------------------------------------------------------------------- */

int gr_buffer_alloc(gr_buffer_t *b, const sinter_logical_tensor_t *lt, gr_error_t *err)
{
    sinter_status_t status;
    char text[256];

    *b = (gr_buffer_t){.lt = *lt};
    status = sinter_logical_tensor_get_bytes(lt, &b->bytes);
    if (status) {
        snprintf(text, sizeof text, "tensor %llu", (unsigned long long)lt->id);
        return gr_library_failure(status, text, err);
    }
    b->base = b->bytes < SIZE_MAX / 2 ? gr_malloc(b->bytes + 2 * GUARD + 64) : NULL;
    if (!b->base) {
        err->out_of_memory = 1;
        return gr_fail(err, "tensor %llu %s: out of memory for its %zu bytes",
                       (unsigned long long)lt->id, gr_lt_text(lt, text, sizeof text), b->bytes);
    }
    b->data = b->base + GUARD + (64 - (uintptr_t)b->base % 64) % 64;
    memset(b->data - GUARD, GUARD_BYTE, GUARD);
    memset(b->data, POISON, b->bytes);
    memset(b->data + b->bytes, GUARD_BYTE, GUARD);
    return 0;
}

/* Memory for the opaque layout of a port, whose dims are those of the buffer. */
static int alloc_opaque(gr_buffer_t *b, const sinter_logical_tensor_t *port, gr_error_t *err)
{
    sinter_status_t status;

    b->opaque_lt = *port;
    memcpy(b->opaque_lt.dims, b->lt.dims, sizeof b->lt.dims);
    status = sinter_logical_tensor_get_bytes(&b->opaque_lt, &b->opaque_bytes);
    if (status) {
        return gr_library_failure(status, "reorder", err);
    }
    gr_free(b->opaque);
    b->opaque = gr_malloc(b->opaque_bytes + 1);
    if (!b->opaque) {
        return gr_fail_memory(err);
    }
    memset(b->opaque, POISON, b->opaque_bytes);
    return 0;
}

/* Copies all elements from one layout of a buffer to the other. */
static int reorder(gr_buffer_t *b, bool pack, gr_error_t *err)
{
    sinter_tensor_t *strided = NULL, *opaque = NULL;
    sinter_status_t status = sinter_tensor_create(&strided, NULL, &b->lt, b->data, b->bytes);

    if (!status) {
        status = sinter_tensor_create(&opaque, NULL, &b->opaque_lt, b->opaque, b->opaque_bytes);
    }
    if (!status) {
        status = pack ? sinter_reorder(strided, opaque) : sinter_reorder(opaque, strided);
    }
    sinter_tensor_destroy(&strided);
    sinter_tensor_destroy(&opaque);
    return status ? gr_library_failure(status, "reorder", err) : 0;
}

int gr_buffer_pack(gr_buffer_t *b, const sinter_logical_tensor_t *port, gr_error_t *err)
{
    return alloc_opaque(b, port, err) || reorder(b, true, err) ? -1 : 0;
}

void gr_buffer_free(gr_buffer_t *b)
{
    gr_free(b->base);
    gr_free(b->opaque);
    *b = (gr_buffer_t){0};
}

static int check_guards(const gr_buffer_t *b, gr_error_t *err)
{
    for (size_t i = 1; i <= GUARD; i++) {
        if (b->data[-(ptrdiff_t)i] != GUARD_BYTE) {
            return gr_fail(err, "tensor %llu: memory %zu bytes before its buffer was overwritten",
                           (unsigned long long)b->lt.id, i);
        }
        if (b->data[b->bytes + i - 1] != GUARD_BYTE) {
            return gr_fail(err, "tensor %llu: memory %zu bytes behind its buffer was overwritten",
                           (unsigned long long)b->lt.id, i);
        }
    }
    return 0;
}

static bool is_opaque(const sinter_logical_tensor_t *lt)
{
    return lt->layout_type == sinter_layout_type_opaque;
}

static bool knows_dims(const sinter_logical_tensor_t *lt)
{
    bool known = lt->ndims >= 0;

    for (int i = 0; i < lt->ndims; i++) {
        known &= lt->dims[i] != SINTER_UNKNOWN_DIM;
    }
    return known;
}

/* Layout any, with dims that are known: compile chooses the layout. */
static bool may_be_any(const sinter_logical_tensor_t *lt)
{
    return lt->layout_type == sinter_layout_type_any && knows_dims(lt);
}

gr_buffer_t *gr_exec_buffer(const gr_exec_t *x, uint64_t id)
{
    const model_tensor_t *t = model_find(x->model, id);
    gr_buffer_t *b = t ? &x->buffers[t - x->model->tensors] : NULL;

    return b && b->base ? b : NULL;
}

void gr_exec_lt(const gr_exec_t *x, uint64_t id, sinter_logical_tensor_t *lt)
{
    const gr_buffer_t *b = gr_exec_buffer(x, id);

    if (b) {
        *lt = b->lt;
    } else if (sinter_graph_query_logical_tensor(x->shapes, id, lt)) {
        *lt = *model_lt(x->model, model_find(x->model, id));
    }
    if (is_opaque(lt) || may_be_any(lt)) {
        gr_set_dense(lt, NULL);
    }
}

const sinter_logical_tensor_t *gr_exec_port(const gr_exec_t *x, const sinter_logical_tensor_t *port)
{
    const gr_buffer_t *b = gr_is_known(port) ? NULL : gr_exec_buffer(x, port->id);

    return !b ? port : !is_opaque(port) ? &b->lt : b->opaque ? &b->opaque_lt : port;
}

int gr_make_tensor(const gr_exec_t *x, const sinter_logical_tensor_t *lt, const gr_buffer_t *b,
                   sinter_tensor_t **tensor, gr_error_t *err)
{
    sinter_status_t status;

    if (lt->property == sinter_tensor_property_host_scalar) {
        status = sinter_tensor_create_scalar(tensor, x->engine, lt, b->data);
    } else if (is_opaque(lt)) {
        status = sinter_tensor_create(tensor, x->engine, lt, b->opaque, b->opaque_bytes);
    } else {
        status = sinter_tensor_create(tensor, x->engine, lt, b->data, b->bytes);
    }
    return status ? gr_library_failure(status, "tensor", err) : 0;
}

/* =permuted: the numbers from 0 on, each once, in a random order. */
static int permute(gr_buffer_t *b, uint64_t seed, gr_error_t *err)
{
    const int64_t n = gr_elements(&b->lt);
    int64_t *values = calloc((size_t)n + 1, sizeof *values);
    uint64_t state = random_mix(seed ^ b->lt.id << 32);

    if (values == NULL) {
        return gr_fail(err, "out of memory");
    }
    for (int64_t i = 0; i < n; i++) { /* the new one goes anywhere, and what was there behind all */
        const int64_t at = (int64_t)(random_next(&state) % (uint64_t)(i + 1));
        values[i] = values[at];
        values[at] = i;
    }
    for (int64_t i = 0; i < n; i++) {
        orc_encode(b->lt.data_type, b->data, gr_offset(&b->lt, i), (double)values[i]);
    }
    free(values);
    return 0;
}

/* =VALUE,VALUE...: elements in their order; behind the last value it goes on with the first. A-B
 * stands for the whole numbers from A to B, and V*N for N times V. */
static int read_values(const char *text, gr_buffer_t *b, gr_error_t *err)
{
    const int64_t n = gr_elements(&b->lt);
    const char *p = text; /* before a value */
    bool again = false;
    int64_t i = 0;

    do {
        char *end;
        const double value = strtod(p + 1, &end);
        const bool is_range = end > p + 1 && *end == '-', is_repeated = end > p + 1 && *end == '*';
        const double last = is_range || is_repeated ? strtod(end + 1, &end) : 1;
        const double count = is_range ? last - value + 1 : last;

        if (end == p + 1 || (*end && *end != ',') || !(count >= 1)) {
            return gr_fail(err, "--in: expected a number at \"%s\"", p + 1);
        }
        for (int64_t k = 0; (double)k < count && (i < n || !again); k++, i++) {
            if (i > 0 && i >= n) {
                return gr_fail(err, "--in: more than the tensor's %lld values at \"%s\"",
                               (long long)n, text);
            }
            if (i < n) {
                orc_encode(b->lt.data_type, b->data, gr_offset(&b->lt, i),
                           value + (is_range ? (double)k : 0));
            }
        }
        again = again || !*end;
        p = *end ? end : text;
    } while (i < n || !again);
    return 0;
}

/* --in=ID:FILE+... */
static int read_inputs(gr_exec_t *x, gr_error_t *err)
{
    const char *p = x->opt->in;
    char path[4096];

    for (; p; p = *p ? p + 1 : NULL) {
        const char *start = p;
        gr_buffer_t *b;
        uint64_t id;
        size_t n;

        if (gr_parse_u64(&p, &id) || *p++ != ':' || (n = strcspn(p, "+")) == 0 ||
            n >= sizeof path) {
            return gr_fail(err, "--in: expected ID:FILE at \"%s\"", start);
        }
        memcpy(path, p, n);
        path[n] = 0;
        p += n;
        b = gr_exec_buffer(x, id);
        if (!b) {
            return gr_fail(err, "--in: the graph has no input %llu", (unsigned long long)id);
        }
        if (strcmp(path, "=permuted") == 0 ? permute(b, (uint64_t)x->opt->seed, err)
            : *path == '='                 ? read_values(path, b, err)
                                           : npy_read(path, &b->lt, b->data, b->bytes, err)) {
            return -1;
        }
    }
    return 0;
}

int gr_exec_inputs(gr_exec_t *x, gr_error_t *err)
{
    for (size_t i = 0; i < x->model->n_tensors; i++) {
        const model_tensor_t *t = &x->model->tensors[i];
        sinter_logical_tensor_t lt;

        if (!t->is_input) {
            continue;
        }
        gr_exec_lt(x, t->id, &lt);
        if (!gr_is_known(&lt)) {
            return gr_fail(err, "input %llu has unknown dims: give them with --in-shapes",
                           (unsigned long long)t->id);
        }
        if (gr_buffer_alloc(&x->buffers[i], &lt, err)) {
            return -1;
        }
        if (*x->opt->mode == 'P' || (x->opt->simulate_threads > 0 && *x->opt->mode == 'X')) {
            fill_for_timing(x->model, t, &lt, (uint64_t)x->opt->seed, x->buffers[i].data,
                            x->buffers[i].bytes);
        } else {
            fill_input(x->model, t, &lt, (uint64_t)x->opt->seed, x->buffers[i].data);
        }
    }
    return read_inputs(x, err);
}

/* ---- compile and run ------------------------------------------------------------------------- */

static sinter_status_t query_ports(gr_exec_t *x, gr_part_t *p)
{
    sinter_status_t status = sinter_success;

    for (size_t i = 0; i < p->n_in && !status; i++) {
        status =
            sinter_compiled_partition_query_logical_tensor(p->compiled, p->in[i].id, &p->in[i]);
    }
    for (size_t i = 0; i < p->n_out && !status; i++) {
        status =
            sinter_compiled_partition_query_logical_tensor(p->compiled, p->out[i].id, &p->out[i]);
    }
    for (size_t i = 0; i < p->n_in; i++) {
        p->dynamic |= is_opaque(&p->in[i]) ? !knows_dims(&p->in[i]) : !gr_is_known(&p->in[i]);
    }
    if (!status && !p->dynamic) { /* else scratch memory is known with the tensors only */
        status = sinter_compiled_partition_get_scratchpad_bytes(
            p->compiled, x->stream, 0, NULL, &p->scratch, &p->scratch_per_thread);
    }
    return status;
}

static int check_scratch(const gr_exec_t *x, const gr_part_t *p, gr_error_t *err)
{
    if (!x->opt->max_scratch || p->scratch_per_thread <= (size_t)x->opt->max_scratch) {
        return 0;
    }
    return gr_fail(
        err, "partition %zu (%s) takes %zu bytes of scratch memory per thread, more than %lld",
        p->id, p->pattern, p->scratch_per_thread, (long long)x->opt->max_scratch);
}

static int compile_part(gr_exec_t *x, gr_part_t *p, gr_error_t *err)
{
    sinter_status_t status;
    const char *why = "";
    char what[64];
    double start;

    snprintf(what, sizeof what, "partition %zu (%s)", p->id, p->pattern);
    if (!p->supported) {
        sinter_partition_explain(p->partition, &why);
        return gr_fail(err, "%s is not supported: %s", what, why);
    }
    start = gr_seconds();
    status = sinter_partition_compile(p->partition, x->engine, p->n_in, p->in, p->n_out, p->out,
                                      &p->compiled);
    p->compile_seconds = gr_seconds() - start;
    if (!status) {
        status = query_ports(x, p);
    }
    if (status) {
        return gr_library_failure(status, what, err);
    }
    return check_scratch(x, p, err);
}

/* Notes the layouts that a compile of the whole graph chooses for inputs of layout any. What is
 * wrong with the graph is for the partitions to say. */
static int choose_layouts(gr_exec_t *x, gr_error_t *err)
{
    model_t *m = x->model;
    sinter_partition_t **parts = gr_arena_alloc(&m->arena, x->n_parts + 1, sizeof *parts);
    sinter_logical_tensor_t *lts = gr_arena_alloc(&m->arena, m->n_tensors + 1, sizeof *lts);
    sinter_compiled_graph_t *whole = NULL;
    bool some = false;

    if (!parts || !lts) {
        return gr_fail_memory(err);
    }
    for (size_t i = 0; i < m->n_tensors; i++) {
        some |= m->tensors[i].is_input &&
                !sinter_graph_query_logical_tensor(x->graph, m->tensors[i].id, &lts[i]) &&
                may_be_any(&lts[i]);
    }
    for (size_t i = 0; i < x->n_parts; i++) {
        parts[i] = x->parts[i].partition;
    }
    if (!some || sinter_graph_compile(x->graph, x->engine, x->n_parts, parts, &whole)) {
        return 0;
    }
    for (size_t i = 0; i < m->n_tensors; i++) {
        const model_tensor_t *t = &m->tensors[i];

        if (t->is_input && may_be_any(&lts[i]) &&
            !sinter_compiled_graph_query_logical_tensor(whole, t->id, &lts[i])) {
            x->settled[i] = &lts[i];
        }
    }
    sinter_compiled_graph_destroy(&whole);
    return 0;
}

/* In execution order, with the layouts that compiling the producer has settled. */
static int compile_parts(gr_exec_t *x, gr_error_t *err)
{
    const model_t *m = x->model;

    for (size_t i = 0; i < x->n_parts; i++) {
        gr_part_t *p = &x->parts[i];

        for (size_t j = 0; j < p->n_in; j++) {
            const model_tensor_t *t = model_find(m, p->in[j].id);

            if (t && x->settled[t - m->tensors]) {
                p->in[j] = *x->settled[t - m->tensors];
            }
        }
        if (compile_part(x, p, err)) {
            return -1;
        }
        for (size_t j = 0; j < p->n_out; j++) {
            const model_tensor_t *t = model_find(m, p->out[j].id);

            if (t) {
                x->settled[t - m->tensors] = &p->out[j];
            }
        }
    }
    return 0;
}

/* The partitions as one graph. They were compiled one by one for the figures of each. */
static int tie_parts(gr_exec_t *x, gr_error_t *err)
{
    sinter_compiled_partition_t **list =
        gr_arena_alloc(&x->model->arena, x->n_parts + 1, sizeof *list);
    sinter_status_t status;

    if (!list) {
        return gr_fail_memory(err);
    }
    for (size_t i = 0; i < x->n_parts; i++) {
        list[i] = x->parts[i].compiled;
    }
    status = sinter_compiled_graph_create(&x->whole, x->engine, x->graph, x->n_parts, list);
    return status ? gr_library_failure(status, "graph", err) : 0;
}

/* Binds an input to memory, with the dims of lt; where the port that was compiled has unknown ones,
 * with its strides too. data may be NULL. */
static int bind_input(gr_exec_t *x, const sinter_logical_tensor_t *port,
                      const sinter_logical_tensor_t *lt, void *data, size_t bytes, gr_error_t *err)
{
    const bool strided = lt->layout_type == sinter_layout_type_strided && !gr_is_known(port);
    sinter_status_t status;

    if (lt->property == sinter_tensor_property_host_scalar && data) {
        status = sinter_compiled_graph_bind_scalar(x->whole, lt->id, data);
    } else {
        status = sinter_compiled_graph_bind(x->whole, lt->id, lt->ndims, lt->dims,
                                            strided ? lt->strides : NULL, data, bytes);
    }
    return status ? gr_library_failure(status, "bind", err) : 0;
}

/* The inputs that the partitions read. lts: room for them, in the arena. */
static int list_inputs(gr_exec_t *x, size_t *n, sinter_logical_tensor_t **lts, gr_error_t *err)
{
    sinter_status_t status = sinter_compiled_graph_get_input_num(x->whole, n);

    *lts = gr_arena_alloc(&x->model->arena, *n + 1, sizeof **lts);
    if (!*lts) {
        return gr_fail_memory(err);
    }
    if (!status) {
        status = sinter_compiled_graph_get_inputs(x->whole, *n, *lts);
    }
    return status ? gr_library_failure(status, "graph", err) : 0;
}

/* Notes how tensors lie between the partitions, as far as the dims of the inputs are known. What is
 * wrong with dims is for the run to say. */
static int plan_memory(gr_exec_t *x, gr_error_t *err)
{
    const sinter_arena_tensor_t *tensors = NULL;
    gr_sequence_t *s = &x->sequence;
    sinter_logical_tensor_t *lts, lt;
    gr_error_t ignored = {0};
    size_t n;

    if (list_inputs(x, &n, &lts, err)) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        gr_exec_lt(x, lts[i].id, &lt);
        if (!gr_is_known(&lt) || bind_input(x, &lts[i], &lt, NULL, 0, &ignored)) {
            return 0;
        }
    }
    if (sinter_compiled_graph_get_arena(x->whole, &s->bytes, &s->n, &tensors)) {
        return 0;
    }
    s->tensors = gr_arena_alloc(&x->model->arena, s->n + 1, sizeof *s->tensors);
    if (!s->tensors) {
        return gr_fail_memory(err);
    }
    for (size_t i = 0; i < s->n; i++) {
        s->tensors[i] = tensors[i];
    }
    s->known = true;
    return 0;
}

int gr_exec_compile(gr_exec_t *x, gr_error_t *err)
{
    return choose_layouts(x, err) || compile_parts(x, err) || tie_parts(x, err) ||
                   plan_memory(x, err)
               ? -1
               : 0;
}

static int bind_inputs(gr_exec_t *x, gr_error_t *err)
{
    sinter_logical_tensor_t *lts;
    size_t n;

    if (list_inputs(x, &n, &lts, err)) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        gr_buffer_t *b = gr_exec_buffer(x, lts[i].id);

        if (!b) {
            return gr_fail(err, "input %llu has no data", (unsigned long long)lts[i].id);
        }
        const bool opaque = is_opaque(&lts[i]);

        if (opaque && !b->opaque && gr_buffer_pack(b, &lts[i], err)) {
            return -1;
        }
        if (bind_input(x, &lts[i], gr_exec_port(x, &lts[i]), opaque ? b->opaque : b->data,
                       opaque ? b->opaque_bytes : b->bytes, err)) {
            return -1;
        }
    }
    return 0;
}

/* Whether tensors between partitions get buffers of their own. */
static bool sees_all(const gr_exec_t *x)
{
    const gr_options_t *opt = x->opt;

    return *opt->mode == 'P' || opt->no_fuse || opt->dump_tensors || opt->same_bits;
}

/* A fresh buffer for what a partition writes. */
static int bind_output(gr_exec_t *x, uint64_t id, gr_error_t *err)
{
    const model_tensor_t *t = model_find(x->model, id);
    sinter_logical_tensor_t lt;
    sinter_status_t status;
    gr_buffer_t *b;

    if (!t) {
        return gr_fail(err, "output %llu is not in the graph", (unsigned long long)id);
    }
    status = sinter_compiled_graph_query_logical_tensor(x->whole, id, &lt);
    if (status) {
        return gr_library_failure(status, "dynamic dims", err);
    }
    b = &x->buffers[t - x->model->tensors];
    gr_buffer_free(b);
    const bool opaque = is_opaque(&lt);
    sinter_logical_tensor_t dense = lt;

    if (opaque) {
        gr_set_dense(&dense, NULL);
    }
    if (gr_buffer_alloc(b, &dense, err) || (opaque && alloc_opaque(b, &lt, err))) {
        return -1;
    }
    status = sinter_compiled_graph_bind(x->whole, id, 0, NULL, NULL, opaque ? b->opaque : b->data,
                                        opaque ? b->opaque_bytes : b->bytes);
    return status ? gr_library_failure(status, "bind", err) : 0;
}

static int bind_outputs(gr_exec_t *x, gr_error_t *err)
{
    const bool all = sees_all(x);

    for (size_t i = 0; i < x->n_parts; i++) {
        const gr_part_t *p = &x->parts[i];

        for (size_t j = 0; j < p->n_out; j++) {
            const model_tensor_t *t = model_find(x->model, p->out[j].id);

            if ((all || !t || t->is_output) && bind_output(x, p->out[j].id, err)) {
                return -1;
            }
        }
    }
    return 0;
}

/* A tensor without data that has the dims of this execute. */
static int make_shape(gr_exec_t *x, uint64_t id, sinter_tensor_t **tensor, gr_error_t *err)
{
    sinter_logical_tensor_t lt;
    sinter_status_t status = sinter_compiled_graph_query_logical_tensor(x->whole, id, &lt);

    if (!status) {
        status = sinter_tensor_create(tensor, x->engine, &lt, NULL, 0);
    }
    return status ? gr_library_failure(status, "dynamic dims", err) : 0;
}

/* Where dims are dynamic, only they tell how much scratch memory a partition takes. */
static int query_scratch(gr_exec_t *x, gr_part_t *p, gr_error_t *err)
{
    sinter_tensor_t **in = gr_malloc((p->n_in + 1) * sizeof *in);
    int failed = 0;

    if (!in) {
        return gr_fail_memory(err);
    }
    memset(in, 0, p->n_in * sizeof *in);
    for (size_t i = 0; i < p->n_in && !failed; i++) {
        failed = make_shape(x, p->in[i].id, &in[i], err);
    }
    if (!failed) {
        sinter_status_t status = sinter_compiled_partition_get_scratchpad_bytes(
            p->compiled, x->stream, p->n_in, (const sinter_tensor_t *const *)in, &p->scratch,
            &p->scratch_per_thread);

        failed =
            status ? gr_library_failure(status, "dynamic dims", err) : check_scratch(x, p, err);
    }
    for (size_t i = 0; i < p->n_in; i++) {
        sinter_tensor_destroy(&in[i]);
    }
    gr_free(in);
    return failed;
}

/* Gives what was written in an opaque layout to those who look at the elements. */
static int unpack_outputs(gr_exec_t *x, gr_error_t *err)
{
    for (size_t i = 0; i < x->model->n_tensors; i++) {
        gr_buffer_t *b = &x->buffers[i];

        if (b->opaque && !x->model->tensors[i].is_input && reorder(b, false, err)) {
            return -1;
        }
    }
    return 0;
}

int gr_exec_run(gr_exec_t *x, gr_error_t *err)
{
    sinter_status_t status;

    if (bind_inputs(x, err) || bind_outputs(x, err)) {
        return -1;
    }
    for (size_t i = 0; i < x->n_parts; i++) {
        if (x->parts[i].dynamic && query_scratch(x, &x->parts[i], err)) {
            return -1;
        }
    }
    status = sinter_compiled_graph_execute(x->whole, x->stream);
    if (status) {
        return gr_library_failure(status, "execute", err);
    }
    if (unpack_outputs(x, err)) {
        return -1;
    }
    for (size_t i = 0; i < x->model->n_tensors; i++) {
        if (x->buffers[i].base && check_guards(&x->buffers[i], err)) {
            return -1;
        }
    }
    return 0;
}

/* What ScatterRows makes of a cache, and the states of a LinearAttention, are written into that
 * where they may be. */
static int share_caches(gr_exec_t *x, gr_error_t *err)
{
    const sinter_inplace_pair_t *pairs;
    size_t n = 0;
    sinter_status_t status = sinter_compiled_graph_get_inplace_ports(x->whole, &n, &pairs);

    for (size_t i = 0; i < n && !status; i++) {
        const model_tensor_t *t = model_find(x->model, pairs[i].output_id);
        const model_op_t *op = t && t->producer != MODEL_NONE ? &x->model->ops[t->producer] : NULL;

        const size_t slot = op && op->kind == sinter_op_linear_attention ? 3 : 0;

        if (op && (op->kind == sinter_op_scatter_rows || slot > 0) &&
            op->inputs[slot].id == pairs[i].input_id) {
            status = sinter_compiled_graph_bind(x->whole, t->id, 0, NULL, NULL, NULL, 0);
        }
    }
    return status ? gr_library_failure(status, "bind", err) : 0;
}

int gr_exec_share_memory(gr_exec_t *x, gr_error_t *err)
{
    for (size_t i = 0; i < x->n_parts; i++) {
        const gr_part_t *p = &x->parts[i];

        for (size_t j = 0; j < p->n_out; j++) {
            const model_tensor_t *t = model_find(x->model, p->out[j].id);
            sinter_status_t status = sinter_success;

            if (t && !t->is_output) {
                status = sinter_compiled_graph_bind(x->whole, t->id, 0, NULL, NULL, NULL, 0);
            }
            if (status) {
                return gr_library_failure(status, "bind", err);
            }
        }
    }
    return share_caches(x, err);
}
