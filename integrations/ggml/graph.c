/* The Sinter graph that is made of a run of nodes. */
#include "graph.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "engine.h"
#include "layout.h"

/* ---- the builder ----------------------------------------------------------------------------- */

bool gs_builder_open(gs_builder_t *b, const gs_tensors_t *tensors, int first, int end)
{
    *b = (gs_builder_t){.tensors = tensors, .first = first, .end = end, .node = first};
    b->values = calloc((size_t)tensors->count + 1, sizeof(*b->values));
    b->versions = calloc((size_t)tensors->count + 1, sizeof(*b->versions));
    b->slots = calloc((size_t)tensors->count + 1, sizeof(*b->slots));
    return b->values && b->versions && b->slots &&
           sinter_graph_create_with_fpmath_mode(
               &b->graph, gs_engine(), sinter_cpu, gs_fpmath(false),
               gs_fpmath(false) != sinter_fpmath_mode_strict) == sinter_success;
}

void gs_builder_free(gs_builder_t *b)
{
    sinter_graph_destroy(&b->graph);
    gs_ports_free(&b->ports);
    free(b->values);
    free(b->versions);
    free(b->slots);
    free(b->exact);
    *b = (gs_builder_t){0};
}

bool gs_keep_exact(gs_builder_t *b)
{
    uint64_t *exact = gs_grown(b->exact, b->n_exact, &b->exact_capacity, sizeof(*exact));
    if (!exact) {
        return gs_fail(b, "out of memory");
    }
    b->exact = exact;
    exact[b->n_exact++] = b->ids;
    return true;
}

/* Whether some op of a partition must be exact. */
static sinter_status_t has_exact(const gs_builder_t *b, const sinter_partition_t *partition,
                                 bool *found)
{
    size_t count = 0;
    sinter_status_t status = sinter_partition_get_op_num(partition, &count);
    uint64_t *ops = malloc((count + 1) * sizeof(*ops));
    *found = false;
    if (!ops) {
        return sinter_out_of_memory;
    }
    if (status == sinter_success) {
        status = sinter_partition_get_ops(partition, count, ops);
    }
    for (size_t i = 0; i < count && status == sinter_success; i++) {
        for (int k = 0; k < b->n_exact; k++) {
            *found |= ops[i] == b->exact[k];
        }
    }
    free(ops);
    return status;
}

/* Divides the graph, and gives partitions with an op that must be exact the mode of these. The
 * other ops of such a partition are more exact than they need be. */
static sinter_status_t filter(const gs_builder_t *b)
{
    const sinter_fpmath_mode_t mode = gs_fpmath(true);
    size_t count = 0;
    sinter_status_t status = sinter_graph_filter(b->graph, sinter_partition_policy_fusion);
    if (status == sinter_success) {
        status = sinter_graph_get_partition_num(b->graph, &count);
    }
    sinter_partition_t **partitions = calloc(count + 1, sizeof(*partitions));
    if (!partitions) {
        return sinter_out_of_memory;
    }
    if (status == sinter_success) {
        status = sinter_graph_get_partitions(b->graph, count, partitions);
    }
    for (size_t i = 0; i < count && status == sinter_success; i++) {
        bool exact = false;
        status = has_exact(b, partitions[i], &exact);
        if (status == sinter_success && exact) {
            status = sinter_partition_set_fpmath_mode(partitions[i], mode,
                                                      mode != sinter_fpmath_mode_strict);
        }
    }
    for (size_t i = 0; i < count; i++) {
        sinter_partition_destroy(&partitions[i]);
    }
    free(partitions);
    return status;
}

sinter_compiled_graph_t *gs_builder_compile(gs_builder_t *b)
{
    const int count = b->ports.n_outputs;
    sinter_compiled_graph_t *compiled = NULL;
    uint64_t *outputs = malloc((size_t)(count + 1) * sizeof(*outputs));
    if (!outputs) {
        return NULL;
    }
    for (int i = 0; i < count; i++) {
        outputs[i] = b->ports.outputs[i].id;
    }
    if (sinter_graph_set_ports(b->graph, 0, NULL, (size_t)count, outputs) != sinter_success ||
        sinter_graph_finalize(b->graph) != sinter_success ||
        (b->n_exact > 0 && filter(b) != sinter_success) ||
        sinter_graph_compile(b->graph, gs_engine(), 0, NULL, &compiled) != sinter_success) {
        compiled = NULL;
    }
    free(outputs);
    return compiled;
}

bool gs_fail(gs_builder_t *b, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(b->why, sizeof(b->why), format, arguments);
    va_end(arguments);
    return false;
}

bool gs_added(gs_builder_t *b, sinter_status_t status)
{
    return status == sinter_success || gs_fail(b, "%s", sinter_last_error_message());
}

bool gs_add_parts(gs_builder_t *b, sinter_op_kind_t kind, int count, const sinter_op_part_t *parts)
{
    return gs_added(b, sinter_graph_add_parts(b->graph, ++b->ids, kind, (size_t)count, parts));
}

lt_t gs_inner(gs_builder_t *b, sinter_data_type_t type)
{
    lt_t lt;
    sinter_logical_tensor_init_unknown(&lt, ++b->ids, type, SINTER_UNKNOWN_NDIMS,
                                       sinter_tensor_property_undef);
    return lt;
}

bool gs_binary(gs_builder_t *b, sinter_op_kind_t kind, const lt_t *x, const lt_t *z, lt_t *y)
{
    *y = gs_inner(b, sinter_f32);
    return gs_add(b, kind, sinter_in(x), sinter_in(z), sinter_out(y));
}

bool gs_times(gs_builder_t *b, const lt_t *x, float factor, lt_t *y)
{
    lt_t f;
    return gs_scalar(b, factor, &f) && gs_binary(b, sinter_op_multiply, x, &f, y);
}

/* ---- dims and types -------------------------------------------------------------------------- */

sinter_data_type_t gs_plain_type(enum ggml_type type)
{
    static const struct {
        enum ggml_type from;
        sinter_data_type_t to;
    } types[] = {{GGML_TYPE_F32, sinter_f32},   {GGML_TYPE_F16, sinter_f16},
                 {GGML_TYPE_BF16, sinter_bf16}, {GGML_TYPE_I32, sinter_s32},
                 {GGML_TYPE_I64, sinter_s64},   {GGML_TYPE_I8, sinter_s8}};
    for (size_t i = 0; i < sizeof(types) / sizeof(types[0]); i++) {
        if (types[i].from == type) {
            return types[i].to;
        }
    }
    return sinter_data_type_undef;
}

sinter_dim_t gs_dim(const gs_builder_t *b, const tensor_t *t, int i)
{
    const int index = gs_tensors_find(b->tensors, t);
    return index >= 0 && b->tensors->open[index][i] ? -b->tensors->open[index][i] : t->ne[i];
}

bool gs_has_open(const gs_builder_t *b, const tensor_t *t)
{
    bool open = false;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        open |= gs_dim(b, t, i) < 0;
    }
    return open;
}

/* Elements with one number in a plane, along dim 0. */
static int plane_group(const tensor_t *t, int plane)
{
    return plane < 0 ? 1 : gs_plane_group(gs_layout_of(t->type), plane);
}

static sinter_data_type_t type_in_plane(const tensor_t *t, int plane)
{
    return plane < 0 ? gs_plain_type(t->type) : gs_layout_of(t->type)->planes[plane].type;
}

/* The blocks of a plane lie next to each other, so its strides, counted in blocks, equal ggml's.
 * Where the host has blocks, the planes are a copy of all rows that the cache has room for. */
static sinter_dim_t stride_in_plane(const tensor_t *t, int plane, int dim)
{
    if (plane < 0) {
        return (sinter_dim_t)(t->nb[dim] / ggml_type_size(t->type));
    }
    const gs_layout_t *layout = gs_layout_of(t->type);
    const sinter_dim_t numbers = layout->elements / plane_group(t, plane);
    if (gs_has_blocks(t)) {
        return gs_relaid_stride(t, plane, dim);
    }
    return dim == 0 ? 1 : (sinter_dim_t)(t->nb[dim] / (size_t)layout->bytes) * numbers;
}

static void *begin_of_plane(const tensor_t *t, int plane)
{
    if (plane < 0) {
        return t->data;
    }
    const gs_layout_t *layout = gs_layout_of(t->type);
    const tensor_t *root = gs_root(t);
    const size_t offset = (size_t)((char *)t->data - (char *)root->data);
    return (char *)root->data + gs_plane_offset(root, plane) +
           offset / (size_t)layout->bytes * (size_t)layout->planes[plane].bytes;
}

/* ---- inputs and outputs ---------------------------------------------------------------------- */

/* The dims and strides of an input now. */
static void measure(const gs_tensors_t *tensors, const gs_input_t *in, sinter_dim_t *dims,
                    sinter_dim_t *strides)
{
    const tensor_t *t = tensors->list[in->tensor], *seen = tensors->list[in->strides_of];
    if (in->heads.head > 0) {
        dims[0] = tensors->list[in->size_of[0]]->ne[in->size_dim[0]];
        dims[1] = t->ne[0] / in->heads.head;
        dims[2] = in->heads.head / plane_group(t, in->plane);
        memset(strides, 0, 3 * sizeof(*strides)); /* it has none */
        return;
    }
    for (int i = 0; i < in->rank; i++) {
        const int size = in->size_dim[i], stride = in->stride_dim[i];
        const tensor_t *of = tensors->list[in->size_of[i]];
        dims[i] = size < 0 ? 1 : of->ne[size];
        dims[i] /= size == 0 ? plane_group(t, in->plane) : 1;
        strides[i] = stride < 0 ? in->stride[i] : stride_in_plane(seen, in->plane, stride);
    }
}

/* Dim i of an input as gs_dim has it, of elements. */
static sinter_dim_t dim_of_input(const gs_builder_t *b, const gs_input_t *in, int i)
{
    const tensor_t *of = b->tensors->list[in->size_of[i]];
    return in->size_dim[i] < 0 ? 1 : gs_dim(b, of, in->size_dim[i]);
}

/* Fills in the logical tensor of an input: known strides, but where dims may change. */
static void describe(const gs_builder_t *b, const gs_input_t *in, lt_t *lt)
{
    const tensor_t *t = b->tensors->list[in->tensor];
    const sinter_data_type_t type = type_in_plane(t, in->plane);
    /* Quantised weights and matrices of floats are read where they lie: a copy in the constant
     * cache would take their memory twice. */
    const bool copied = !ggml_is_quantized(t->type) && (in->rank != 2 || gs_root(t)->ne[1] == 1);
    const sinter_tensor_property_t property = gs_is_constant(t) && copied
                                                  ? sinter_tensor_property_constant
                                                  : sinter_tensor_property_undef;
    sinter_dim_t dims[GS_MAX_RANK], strides[GS_MAX_RANK];
    bool open = gs_has_open(b, t);
    measure(b->tensors, in, dims, strides);
    for (int i = 0; i < in->rank; i++) {
        if (dim_of_input(b, in, i) < 0) {
            dims[i] = SINTER_UNKNOWN_DIM;
            open = true;
        }
    }
    if (in->heads.head > 0) {
        sinter_logical_tensor_init(lt, in->id, type, in->rank, dims, property);
        gs_heads_plane(in->heads, in->plane, lt);
    } else if (in->plane >= 0 && gs_in_tiles(gs_root(t))) {
        sinter_logical_tensor_init(lt, in->id, type, in->rank, dims, property);
        gs_tile_plane(gs_layout_of(t->type), in->plane, lt);
    } else if (open && !in->keeps_strides) {
        sinter_logical_tensor_init(lt, in->id, type, in->rank, dims, property);
        lt->layout_type = sinter_layout_type_any;
    } else {
        sinter_logical_tensor_init_with_strides(lt, in->id, type, in->rank, dims, strides,
                                                property);
    }
}

gs_input_t gs_input_in_order(const gs_builder_t *b, const tensor_t *t, int plane, int rank,
                             const int *order)
{
    gs_input_t in = {.tensor = gs_tensors_find(b->tensors, t), .plane = plane, .rank = rank};
    in.strides_of = in.tensor;
    for (int i = 0; i < rank; i++) {
        in.size_of[i] = in.tensor;
        in.size_dim[i] = in.stride_dim[i] = order[i];
    }
    return in;
}

gs_input_t gs_input_of_heads(const gs_builder_t *b, const tensor_t *root, int plane,
                             gs_heads_t heads, const tensor_t *rows, int dim)
{
    return (gs_input_t){.tensor = gs_tensors_find(b->tensors, root),
                        .plane = plane,
                        .heads = heads,
                        .rank = 3,
                        .strides_of = gs_tensors_find(b->tensors, root),
                        .size_of = {gs_tensors_find(b->tensors, rows)},
                        .size_dim = {dim, -1, -1}};
}

/* The same memory and, in all runs that the graph serves, the same dims. */
static bool same_input(const gs_builder_t *b, const gs_input_t *x, const gs_input_t *y)
{
    bool same = x->tensor == y->tensor && x->plane == y->plane && x->rank == y->rank &&
                x->strides_of == y->strides_of && x->heads.head == y->heads.head;
    for (int i = 0; i < x->rank && same; i++) {
        same = x->size_dim[i] == y->size_dim[i] && x->stride_dim[i] == y->stride_dim[i] &&
               x->stride[i] == y->stride[i] && dim_of_input(b, x, i) == dim_of_input(b, y, i);
    }
    return same;
}

static bool append_input(gs_ports_t *ports, const gs_input_t *in)
{
    gs_input_t *inputs =
        gs_grown(ports->inputs, ports->n_inputs, &ports->inputs_capacity, sizeof(*inputs));
    if (!inputs) {
        return false;
    }
    ports->inputs = inputs;
    inputs[ports->n_inputs++] = *in;
    return true;
}

bool gs_add_input(gs_builder_t *b, gs_input_t in, lt_t *lt)
{
    if (in.tensor < 0) {
        return gs_fail(b, "a tensor that is not in the list");
    }
    for (int i = 0; i < b->ports.n_inputs; i++) {
        if (same_input(b, &b->ports.inputs[i], &in)) {
            describe(b, &b->ports.inputs[i], lt);
            return true;
        }
    }
    in.id = ++b->ids;
    describe(b, &in, lt);
    return append_input(&b->ports, &in) || gs_fail(b, "out of memory");
}

/* Elements of four bytes. */
static bool constants(gs_builder_t *b, const void *values, int count, sinter_data_type_t type,
                      lt_t *lt)
{
    const sinter_dim_t dims[1] = {count};
    const size_t bytes = (size_t)count * sizeof(float);
    const gs_input_t in = {.id = ++b->ids, .tensor = -1, .own = malloc(bytes), .rank = count};
    if (!in.own || !append_input(&b->ports, &in)) {
        free(in.own);
        return gs_fail(b, "out of memory");
    }
    memcpy(in.own, values, bytes);
    sinter_logical_tensor_init(lt, in.id, type, 1, dims, sinter_tensor_property_constant);
    return true;
}

bool gs_constants(gs_builder_t *b, const float *values, int count, lt_t *lt)
{
    return constants(b, values, count, sinter_f32, lt);
}

bool gs_integers(gs_builder_t *b, const int32_t *values, int count, lt_t *lt)
{
    return constants(b, values, count, sinter_s32, lt);
}

bool gs_scalar(gs_builder_t *b, float value, lt_t *lt)
{
    return gs_constants(b, &value, 1, lt);
}

gs_output_t *gs_output_of(const gs_builder_t *b, int node)
{
    for (int i = 0; i < b->ports.n_outputs; i++) {
        if (b->ports.outputs[i].tensor == node) {
            return &b->ports.outputs[i];
        }
    }
    return NULL;
}

bool gs_add_output(gs_builder_t *b, uint64_t id, int tensor)
{
    gs_ports_t *ports = &b->ports;
    gs_output_t *outputs =
        gs_grown(ports->outputs, ports->n_outputs, &ports->outputs_capacity, sizeof(*outputs));
    if (!outputs) {
        return gs_fail(b, "out of memory");
    }
    ports->outputs = outputs;
    outputs[ports->n_outputs++] = (gs_output_t){.id = id, .tensor = tensor};
    return true;
}

/* ---- the ports of a compiled graph ----------------------------------------------------------- */

/* Whether an input is a copy of blocks of the host. */
static bool is_relaid(const gs_input_t *in, const gs_tensors_t *tensors)
{
    return in->tensor >= 0 && in->plane >= 0 && gs_has_blocks(tensors->list[in->tensor]);
}

void gs_ports_refresh(const gs_ports_t *ports, const gs_tensors_t *tensors, gs_caches_t *caches)
{
    for (int i = 0; i < ports->n_inputs; i++) {
        const gs_input_t *in = &ports->inputs[i];
        if (is_relaid(in, tensors) && in->plane == GS_CODES) {
            const tensor_t *t = tensors->list[in->tensor];
            gs_relaid_refresh(gs_relaid_of(caches, t), t);
        }
    }
}

sinter_status_t gs_ports_bind(const gs_ports_t *ports, sinter_compiled_graph_t *graph,
                              const gs_tensors_t *tensors, gs_caches_t *caches)
{
    sinter_dim_t dims[GS_MAX_RANK], strides[GS_MAX_RANK];
    sinter_status_t status = sinter_success;
    for (int i = 0; i < ports->n_inputs && status == sinter_success; i++) {
        const gs_input_t *in = &ports->inputs[i];
        if (in->tensor < 0) {
            dims[0] = in->rank;
            status = sinter_compiled_graph_bind(graph, in->id, 1, dims, NULL, in->own,
                                                (size_t)in->rank * sizeof(float));
        } else {
            const tensor_t *t = tensors->list[in->tensor];
            const bool relaid = is_relaid(in, tensors);
            const gs_relaid_t *r = relaid ? gs_relaid_of(caches, t) : NULL;
            if (relaid && !r) {
                return sinter_out_of_memory;
            }
            measure(tensors, in, dims, strides);
            status = sinter_compiled_graph_bind(graph, in->id, in->rank, dims, strides,
                                                r ? gs_relaid_plane(r, in->plane)
                                                  : begin_of_plane(t, in->plane),
                                                SINTER_BYTES_TRUSTED);
        }
    }
    for (int i = 0; i < ports->n_outputs && status == sinter_success; i++) {
        const gs_output_t *out = &ports->outputs[i];
        if (out->tensor < 0) {
            continue;
        }
        const tensor_t *t = tensors->list[out->tensor];
        for (int d = 0; d < out->rank; d++) {
            dims[d] = t->ne[out->dim[d]];
            strides[d] = stride_in_plane(t, -1, out->dim[d]);
        }
        status = sinter_compiled_graph_bind(graph, out->id, out->rank, dims, strides, t->data,
                                            SINTER_BYTES_TRUSTED);
    }
    return status;
}

void gs_ports_drop_dead(gs_ports_t *ports, sinter_compiled_graph_t *graph)
{
    int kept = 0;
    for (int i = 0; i < ports->n_inputs; i++) {
        lt_t lt;
        const gs_input_t in = ports->inputs[i];
        if (sinter_compiled_graph_query_logical_tensor(graph, in.id, &lt) == sinter_success) {
            ports->inputs[kept++] = in;
        } else {
            free(in.own);
        }
    }
    ports->n_inputs = kept;
}

void gs_ports_free(gs_ports_t *ports)
{
    for (int i = 0; i < ports->n_inputs; i++) {
        free(ports->inputs[i].own);
    }
    free(ports->inputs);
    free(ports->outputs);
    *ports = (gs_ports_t){0};
}
