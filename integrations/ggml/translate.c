/* Nodes of ggml to ops of a Sinter graph: one row of the table at the end for each op. */
#include "sinter_ggml.h"

#include <math.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

typedef sinter_logical_tensor_t lt_t;
typedef struct ggml_tensor tensor_t;

static const int PLAIN[4] = {3, 2, 1, 0};

/* ---- small helpers --------------------------------------------------------------------------- */

static bool fail(sg_builder_t *b, const char *format, ...)
{
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(b->why, sizeof(b->why), format, arguments);
    va_end(arguments);
    return false;
}

/* Room for one more element of a list; the list as it was where there is none. */
static bool grow(void **list, int count, int *capacity, size_t size)
{
    if (count < *capacity) {
        return true;
    }
    const int more = *capacity ? 2 * *capacity : 32;
    void *larger = realloc(*list, (size_t)more * size);
    if (!larger) {
        return false;
    }
    *list = larger;
    *capacity = more;
    return true;
}

static sinter_data_type_t plain_type(enum ggml_type type)
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

static bool is_float(const tensor_t *t)
{
    return t->type == GGML_TYPE_F32 || t->type == GGML_TYPE_F16 || t->type == GGML_TYPE_BF16;
}

static float param(const tensor_t *t, int i)
{
    float value;
    memcpy(&value, &t->op_params[i], sizeof(value));
    return value;
}

bool sg_is_view(const tensor_t *t)
{
    return t->op == GGML_OP_NONE || t->op == GGML_OP_RESHAPE || t->op == GGML_OP_VIEW ||
           t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE;
}

/* Dims of a tensor without those of size 1 at the end, which is the begin in Sinter's order. */
static int rank_of(const tensor_t *t)
{
    int rank = GGML_MAX_DIMS;
    while (rank > 2 && t->ne[rank - 1] == 1) {
        rank--;
    }
    return rank;
}

static const int *plain_order(int rank)
{
    return PLAIN + 4 - rank;
}

/* A dim of a tensor. One that may change is minus its class; Sinter sees it as unknown. */
static sinter_dim_t dim_of(const sg_builder_t *b, const tensor_t *t, int i)
{
    const int index = sg_tensors_find(b->tensors, t);
    return index >= 0 && b->tensors->open[index][i] ? -b->tensors->open[index][i] : t->ne[i];
}

static bool has_open(const sg_builder_t *b, const tensor_t *t)
{
    const int index = sg_tensors_find(b->tensors, t);
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (index >= 0 && b->tensors->open[index][i]) {
            return true;
        }
    }
    return false;
}

static lt_t inner(sg_builder_t *b, sinter_data_type_t type)
{
    lt_t lt;
    sinter_logical_tensor_init_unknown(&lt, ++b->ids, type, SINTER_UNKNOWN_NDIMS,
                                       sinter_tensor_property_undef);
    return lt;
}

static bool add(sg_builder_t *b, sinter_op_kind_t kind, int count, const sinter_op_part_t *parts)
{
    if (sinter_graph_add_parts(b->graph, ++b->ids, kind, (size_t)count, parts) != sinter_success) {
        return fail(b, "%s", sinter_last_error_message());
    }
    return true;
}

static bool unary_to(sg_builder_t *b, sinter_op_kind_t kind, const lt_t *x, const lt_t *y)
{
    const sinter_op_part_t parts[] = {sinter_in(x), sinter_out(y)};
    return add(b, kind, 2, parts);
}

static bool binary_to(sg_builder_t *b, sinter_op_kind_t kind, const lt_t *x, const lt_t *z,
                      const lt_t *y)
{
    const sinter_op_part_t parts[] = {sinter_in(x), sinter_in(z), sinter_out(y)};
    return add(b, kind, 3, parts);
}

static bool unary(sg_builder_t *b, sinter_op_kind_t kind, const lt_t *x, lt_t *y)
{
    *y = inner(b, sinter_f32);
    return unary_to(b, kind, x, y);
}

static bool binary(sg_builder_t *b, sinter_op_kind_t kind, const lt_t *x, const lt_t *z, lt_t *y)
{
    *y = inner(b, sinter_f32);
    return binary_to(b, kind, x, z, y);
}

/* ---- inputs ---------------------------------------------------------------------------------- */

static bool add_input(sg_builder_t *b, const sg_input_t *input)
{
    if (!grow((void **)&b->inputs, b->n_inputs, &b->inputs_capacity, sizeof(*b->inputs))) {
        return fail(b, "out of memory");
    }
    b->inputs[b->n_inputs++] = *input;
    return true;
}

/* An input whose values the plan keeps. */
static bool own_input(sg_builder_t *b, const float *values, int count, lt_t *lt)
{
    float *copy = malloc((size_t)count * sizeof(*copy));
    if (!copy || !grow((void **)&b->memory, b->n_memory, &b->memory_capacity, sizeof(void *))) {
        free(copy);
        return fail(b, "out of memory");
    }
    memcpy(copy, values, (size_t)count * sizeof(*copy));
    b->memory[b->n_memory++] = copy;
    const sinter_dim_t dims[1] = {count};
    const sg_input_t input = {.id = ++b->ids, .tensor = -1, .own = copy, .rank = count};
    sinter_logical_tensor_init(lt, input.id, sinter_f32, 1, dims, sinter_tensor_property_constant);
    return add_input(b, &input);
}

static bool scalar(sg_builder_t *b, float value, lt_t *lt)
{
    return own_input(b, &value, 1, lt);
}

/* Weights in our buffers: those of the host may be freed without our knowledge. */
bool sg_is_constant(const tensor_t *t)
{
    return sg_is_ours(t) && sg_root(t)->buffer->usage == GGML_BACKEND_BUFFER_USAGE_WEIGHTS;
}

/* Elements with one number in a plane, along dim 0. */
static int plane_group(const sg_layout_t *layout, int plane)
{
    return plane == SG_CODES ? 1 : layout->group;
}

static sinter_data_type_t plane_type(const sg_layout_t *layout, int plane)
{
    return plane == SG_CODES    ? layout->codes
           : plane == SG_SCALES ? layout->scales
                                : layout->offsets;
}

/* In a plane block follows block, so that strides in blocks are those of ggml. */
sinter_dim_t sg_stride(const tensor_t *t, int plane, int dim)
{
    if (plane < 0) {
        return (sinter_dim_t)(t->nb[dim] / ggml_type_size(t->type));
    }
    const sg_layout_t *layout = sg_layout_of(t->type);
    const sinter_dim_t numbers = layout->elements / plane_group(layout, plane);
    return dim == 0 ? 1 : (sinter_dim_t)(t->nb[dim] / (size_t)layout->bytes) * numbers;
}

void *sg_begin(const tensor_t *t, int plane)
{
    if (plane < 0) {
        return t->data;
    }
    const sg_layout_t *layout = sg_layout_of(t->type);
    const tensor_t *root = sg_root(t);
    const size_t offset = (size_t)((char *)t->data - (char *)root->data);
    return (char *)root->data + sg_plane_offset(root, plane) +
           offset / (size_t)layout->bytes * (size_t)layout->plane_bytes[plane];
}

sinter_dim_t sg_size(const tensor_t *t, int plane, int dim, int64_t size)
{
    return plane < 0 || dim != 0 ? size : size / plane_group(sg_layout_of(t->type), plane);
}

/* Fills in the logical tensor of an input: known strides, but where dims may change. */
static void describe(const sg_builder_t *b, const sg_input_t *in, lt_t *lt)
{
    const tensor_t *t = b->tensors->list[in->tensor];
    const sg_layout_t *layout = in->plane >= 0 ? sg_layout_of(t->type) : NULL;
    const sinter_tensor_property_t property =
        sg_is_constant(t) ? sinter_tensor_property_constant : sinter_tensor_property_undef;
    sinter_dim_t dims[SG_MAX_RANK], strides[SG_MAX_RANK];
    bool open = has_open(b, t);
    for (int i = 0; i < in->rank; i++) {
        dims[i] =
            in->size_dim[i] < 0 ? 1 : dim_of(b, b->tensors->list[in->size_of[i]], in->size_dim[i]);
        open |= dims[i] < 0;
        dims[i] =
            dims[i] < 0 ? SINTER_UNKNOWN_DIM : sg_size(t, in->plane, in->size_dim[i], dims[i]);
        strides[i] = in->stride_dim[i] < 0 ? 0 : sg_stride(t, in->plane, in->stride_dim[i]);
    }
    const sinter_data_type_t type = layout ? plane_type(layout, in->plane) : plain_type(t->type);
    if (open) {
        sinter_logical_tensor_init(lt, in->id, type, in->rank, dims, property);
        lt->layout_type = sinter_layout_type_any;
    } else {
        sinter_logical_tensor_init_with_strides(lt, in->id, type, in->rank, dims, strides,
                                                property);
    }
}

/* The input that is a tensor of memory with its dims in this order, without the dims of size 1
 * that the order leaves out. */
static bool input(sg_builder_t *b, const tensor_t *t, int plane, int rank, const int *order,
                  lt_t *lt)
{
    sg_input_t in = {.tensor = sg_tensors_find(b->tensors, t), .plane = plane, .rank = rank};
    if (in.tensor < 0) {
        return fail(b, "a tensor that is not in the list");
    }
    for (int i = 0; i < rank; i++) {
        in.size_of[i] = in.tensor;
        in.size_dim[i] = in.stride_dim[i] = order[i];
    }
    for (int i = 0; i < b->n_inputs; i++) {
        const sg_input_t *other = &b->inputs[i];
        if (other->tensor == in.tensor && other->plane == plane && other->rank == rank &&
            !memcmp(other->size_of, in.size_of, sizeof(in.size_of)) &&
            !memcmp(other->size_dim, in.size_dim, sizeof(in.size_dim)) &&
            !memcmp(other->stride_dim, in.stride_dim, sizeof(in.stride_dim))) {
            describe(b, other, lt);
            return true;
        }
    }
    in.id = ++b->ids;
    describe(b, &in, lt);
    return add_input(b, &in);
}

/* ---- values ---------------------------------------------------------------------------------- */

static bool in_graph(const sg_builder_t *b, const tensor_t *t)
{
    const int index = sg_tensors_find(b->tensors, t);
    if (index < b->first || index >= b->node) {
        return false;
    }
    return sg_is_view(t) ? t->src[0] && in_graph(b, t->src[0]) : true;
}

/* The value of a tensor whose dims in Sinter are those of t in this order. */
static sg_value_t value_in_order(const sg_builder_t *b, const tensor_t *t, const lt_t *lt, int rank,
                                 const int *order)
{
    sg_value_t v = {.known = true, .id = lt->id, .type = lt->data_type, .rank = rank};
    bool used[GGML_MAX_DIMS] = {0};
    for (int i = 0; i < rank; i++) {
        const int base = rank - 1 - i;
        v.dims[i] = v.ne[base] = dim_of(b, t, order[i]);
        v.perm[order[i]] = base;
        used[order[i]] = true;
    }
    for (int i = 0, base = rank; i < GGML_MAX_DIMS; i++) {
        if (!used[i] && base < GGML_MAX_DIMS) {
            v.perm[i] = base;
            v.ne[base++] = 1;
        }
    }
    return v;
}

static void define(sg_builder_t *b, const tensor_t *t, const lt_t *lt, int rank, const int *order)
{
    b->values[sg_tensors_find(b->tensors, t)] = value_in_order(b, t, lt, rank, order);
}

static bool reshape(sg_builder_t *b, const lt_t *x, const sinter_dim_t *from, int from_rank,
                    const sinter_dim_t *to, int rank, lt_t *y)
{
    if (from_rank == rank && !memcmp(from, to, (size_t)rank * sizeof(*to))) {
        *y = *x;
        return true;
    }
    int64_t shape[SG_MAX_RANK];
    int open = 0;
    bool keep = false;
    for (int i = 0; i < rank; i++) {
        shape[i] = to[i];
        if (to[i] < 0 && i < from_rank && from[i] == to[i] && open > 0) {
            shape[i] = 0;
            keep = true;
        } else if (to[i] < 0) {
            shape[i] = -1;
            open++;
        }
    }
    if (open > 1) {
        return fail(b, "a view of several dims that change");
    }
    *y = inner(b, x->data_type);
    const sinter_op_part_t parts[] = {sinter_in(x), sinter_out(y),
                                      sinter_attr_s64s(sinter_op_attr_shape, (size_t)rank, shape),
                                      sinter_attr_bool(sinter_op_attr_special_zero, keep)};
    return add(b, sinter_op_static_reshape, 4, parts);
}

/* The tensor of a value with the dims of t in an order. Dims that the order leaves out are 1. */
static bool arrange(sg_builder_t *b, const sg_value_t *v, int rank, const int *order, lt_t *y)
{
    int base[GGML_MAX_DIMS], last = GGML_MAX_DIMS, n = 0;
    bool sorted = true, used[GGML_MAX_DIMS] = {0};
    sinter_dim_t dims[GGML_MAX_DIMS];
    for (int i = 0; i < rank; i++) {
        const int d = v->perm[order[i]];
        base[i] = d;
        dims[i] = v->ne[d];
        used[d] = true;
        if (dims[i] != 1) {
            sorted &= d < last;
            last = d;
        }
    }
    lt_t x;
    sinter_logical_tensor_init_unknown(&x, v->id, v->type, SINTER_UNKNOWN_NDIMS,
                                       sinter_tensor_property_undef);
    if (sorted) {
        return reshape(b, &x, v->dims, v->rank, dims, rank, y);
    }
    /* All four dims in ggml's order, transposed, and without the dims of size 1 again. */
    const sinter_dim_t all[4] = {v->ne[3], v->ne[2], v->ne[1], v->ne[0]};
    int64_t turn[4];
    sinter_dim_t turned[4];
    for (int d = GGML_MAX_DIMS - 1; d >= 0; d--) {
        if (!used[d]) {
            turn[n++] = 3 - d;
        }
    }
    for (int i = 0; i < rank; i++) {
        turn[n++] = 3 - base[i];
    }
    for (int i = 0; i < 4; i++) {
        turned[i] = all[turn[i]];
    }
    lt_t four, z;
    if (!reshape(b, &x, v->dims, v->rank, all, 4, &four)) {
        return false;
    }
    z = inner(b, v->type);
    const sinter_op_part_t parts[] = {sinter_in(&four), sinter_out(&z),
                                      sinter_attr_s64s(sinter_op_attr_order, 4, turn)};
    return add(b, sinter_op_static_transpose, 3, parts) && reshape(b, &z, turned, 4, dims, rank, y);
}

/* A quantised tensor in memory as floats. */
static bool dequantised(sg_builder_t *b, const tensor_t *t, int rank, const int *order,
                        const lt_t *parts, lt_t *y)
{
    const sg_layout_t *layout = sg_layout_of(t->type);
    int64_t groups[GGML_MAX_DIMS];
    for (int i = 0; i < rank; i++) {
        groups[i] = order[i] == 0 ? layout->group : 1;
    }
    sinter_op_part_t list[8];
    int n = 0;
    list[n++] = sinter_in(&parts[SG_CODES]);
    list[n++] = sinter_in(&parts[SG_SCALES]);
    if (layout->offsets != sinter_data_type_undef) {
        list[n++] = sinter_in(&parts[SG_OFFSETS]);
        list[n++] = sinter_attr_str(sinter_op_attr_zps_kind, "offsets");
    }
    *y = inner(b, sinter_f32);
    list[n++] = sinter_out(y);
    list[n++] = sinter_attr_str(sinter_op_attr_qtype, "per_group");
    list[n++] = sinter_attr_s64s(sinter_op_attr_group_shape, (size_t)rank, groups);
    return add(b, sinter_op_dynamic_dequantize, n, list);
}

static bool quantised_input(sg_builder_t *b, const tensor_t *t, int rank, const int *order, lt_t *y)
{
    const sg_layout_t *layout = sg_layout_of(t->type);
    lt_t parts[SG_PLANES];
    for (int p = SG_CODES; p <= SG_OFFSETS; p++) {
        if (p == SG_OFFSETS && layout->offsets == sinter_data_type_undef) {
            continue;
        }
        if (!input(b, t, p, rank, order, &parts[p])) {
            return false;
        }
    }
    return dequantised(b, t, rank, order, parts, y);
}

/* Memory that an earlier node of this graph has written. */
static sg_value_t *version_of(sg_builder_t *b, const tensor_t *t)
{
    const int index = sg_tensors_find(b->tensors, sg_root(t));
    return index >= 0 && b->versions[index].known ? &b->versions[index] : NULL;
}

/* How a view sees the rows of its root, in which heads lie side by side: dim i of the view is
 * number perm[i] of elements, heads, rows and a dim of 1. NULL, or why it is none of rows. */
static const char *view_of_rows(const tensor_t *t, int perm[GGML_MAX_DIMS], int64_t *heads)
{
    const tensor_t *root = sg_root(t);
    const size_t row = ggml_row_size(root->type, root->ne[0]);
    const size_t head = ggml_row_size(t->type, t->ne[0]);
    if (t->type != root->type || t->ne[0] == 0 || root->ne[0] % t->ne[0] != 0) {
        return "memory that an earlier node writes";
    }
    *heads = root->ne[0] / t->ne[0];
    bool found[GGML_MAX_DIMS] = {true};
    int left[GGML_MAX_DIMS], n = 0;
    perm[0] = 0;
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        const int base = *heads > 1 && t->nb[i] == head && t->ne[i] == *heads ? 1
                         : t->nb[i] == row && t->ne[i] > 1                    ? 2
                                                                              : 0;
        if (base && !found[base]) {
            perm[i] = base;
            found[base] = true;
        } else if (t->ne[i] == 1) {
            left[n++] = i;
        } else {
            return "a view of memory that an earlier node writes";
        }
    }
    if (*heads > 1 && !found[1]) {
        return "a part of the rows that an earlier node writes";
    }
    for (int base = 1; base < GGML_MAX_DIMS; base++) {
        if (!found[base]) {
            perm[left[--n]] = base;
        }
    }
    return NULL;
}

/* A view of the rows of a cache, of which an earlier node has written some. */
static bool rows_of_version(sg_builder_t *b, const tensor_t *t, const sg_value_t *version,
                            sg_value_t *v)
{
    int64_t heads = 0;
    *v = (sg_value_t){.known = true, .id = version->id, .type = version->type, .rank = 2};
    const char *why = view_of_rows(t, v->perm, &heads);
    if (why || version->id == 0 || t->data != version->begin) {
        return fail(b, "%s", why ? why : "memory that an earlier node writes");
    }
    memcpy(v->dims, version->dims, sizeof(v->dims));
    v->ne[0] = t->ne[0];
    v->ne[1] = heads;
    v->ne[2] = version->dims[0];
    v->ne[3] = 1;
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (v->perm[i] == 2 && dim_of(b, t, i) != version->dims[0]) {
            return fail(b, "other rows than an earlier node writes");
        }
    }
    return true;
}

/* What a view of a value takes of it: all elements, in other dims, or `count` elements of each row
 * from `start` on. */
typedef enum part { PART_ALL, PART_OF_ROWS, PART_OTHER } part_t;

static part_t part_of(const tensor_t *t, int64_t *start, int64_t *count)
{
    const tensor_t *from = t->src[0];
    const size_t offset = (size_t)((const char *)t->data - (const char *)from->data);
    const size_t size = ggml_type_size(t->type);
    if (ggml_nelements(t) == ggml_nelements(from) && offset == 0 && ggml_is_contiguous(t)) {
        return PART_ALL;
    }
    /* Dims inside of a row of the source, then its rows. */
    int64_t run = 1, rows = 1;
    bool fits = ggml_is_contiguous(from);
    for (int i = 0; i < GGML_MAX_DIMS && fits; i++) {
        if (t->ne[i] == 1) {
            continue;
        }
        if (rows == 1 && t->nb[i] == (size_t)run * size && run * t->ne[i] <= from->ne[0]) {
            run *= t->ne[i];
        } else {
            fits = t->nb[i] == (size_t)rows * from->nb[1];
            rows *= t->ne[i];
        }
    }
    *start = (int64_t)(offset / size);
    *count = run;
    return fits && rows == ggml_nrows(from) && offset % size == 0 && *start + run <= from->ne[0]
               ? PART_OF_ROWS
               : PART_OTHER;
}

uint64_t sg_kind_of_view(const tensor_t *t)
{
    int perm[GGML_MAX_DIMS] = {0};
    int64_t heads = 0, start = 0, count = 0;
    const bool of_rows = !view_of_rows(t, perm, &heads);
    uint64_t kind = (uint64_t)of_rows;
    for (int i = 1; i < GGML_MAX_DIMS && of_rows; i++) {
        kind = kind << 2 | (uint64_t)perm[i];
    }
    const part_t part = t->op == GGML_OP_VIEW && t->src[0] ? part_of(t, &start, &count) : PART_ALL;
    kind = kind << 2 | (uint64_t)part;
    return part == PART_OF_ROWS ? kind << 48 ^ (uint64_t)start << 24 ^ (uint64_t)count : kind << 48;
}

static bool value_of(sg_builder_t *b, const tensor_t *t, sg_value_t *v);

/* A view of a value: the same elements in other dims, or a run of elements of each row. */
static bool view_of_value(sg_builder_t *b, const tensor_t *t, sg_value_t *v)
{
    const tensor_t *from = t->src[0];
    sg_value_t source;
    if (!value_of(b, from, &source)) {
        return false;
    }
    *v = source;
    if (t->op == GGML_OP_PERMUTE || t->op == GGML_OP_TRANSPOSE) {
        static const int swap[4] = {1, 0, 2, 3};
        for (int i = 0; i < GGML_MAX_DIMS; i++) {
            v->perm[t->op == GGML_OP_TRANSPOSE ? swap[i] : t->op_params[i]] = source.perm[i];
        }
        return true;
    }
    lt_t x;
    const int rank = rank_of(from);
    if (!arrange(b, &source, rank, plain_order(rank), &x)) {
        return false;
    }
    v->id = x.id;
    v->rank = rank;
    for (int i = 0; i < rank; i++) {
        v->dims[i] = dim_of(b, from, rank - 1 - i);
    }
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        v->ne[i] = dim_of(b, t, i);
        v->perm[i] = i;
    }
    int64_t start, count;
    const part_t part = part_of(t, &start, &count);
    if (part != PART_OF_ROWS) {
        return part == PART_ALL || fail(b, "a view that is no run of each row");
    }
    lt_t y = inner(b, v->type);
    const int64_t end = start + count, axis = rank - 1;
    const sinter_op_part_t parts[] = {sinter_in(&x), sinter_out(&y),
                                      sinter_attr_s64s(sinter_op_attr_starts, 1, &start),
                                      sinter_attr_s64s(sinter_op_attr_ends, 1, &end),
                                      sinter_attr_s64s(sinter_op_attr_axes, 1, &axis)};
    v->id = y.id;
    v->dims[rank - 1] = count;
    return add(b, sinter_op_slice, 5, parts);
}

/* What a tensor is in this graph, where it is more than plain memory. v->known is false where it
 * is that. */
static bool value_of(sg_builder_t *b, const tensor_t *t, sg_value_t *v)
{
    const int index = sg_tensors_find(b->tensors, t);
    if (index < 0) {
        return fail(b, "a tensor that is not in the list");
    }
    *v = b->values[index];
    if (v->known) {
        return true;
    }
    if (in_graph(b, t)) {
        if (!sg_is_view(t)) {
            return fail(b, "%s of this graph has no value", ggml_op_name(t->op));
        }
        if (!view_of_value(b, t, v)) {
            return false;
        }
    } else {
        const sg_value_t *version = version_of(b, t);
        if (version) {
            if (!rows_of_version(b, t, version, v)) {
                return false;
            }
        } else if (sg_layout_of(t->type)) {
            const int rank = rank_of(t);
            lt_t y;
            if (!quantised_input(b, t, rank, plain_order(rank), &y)) {
                return false;
            }
            *v = value_in_order(b, t, &y, rank, plain_order(rank));
        } else {
            return true;
        }
    }
    b->values[index] = *v;
    return true;
}

/* The tensor t for an op that wants its dims in this order. */
static bool use(sg_builder_t *b, const tensor_t *t, int rank, const int *order, lt_t *lt)
{
    sg_value_t v;
    if (!value_of(b, t, &v)) {
        return false;
    }
    if (v.known) {
        return arrange(b, &v, rank, order, lt);
    }
    return input(b, t, -1, rank, order, lt);
}

static bool use_plain(sg_builder_t *b, const tensor_t *t, int rank, lt_t *lt)
{
    return use(b, t, rank, plain_order(rank), lt);
}

/* ---- results --------------------------------------------------------------------------------- */

/* 1: the node is an output; the second pass over a range of nodes knows. */
static bool is_exported(const sg_builder_t *b, int node)
{
    for (int i = 0; i < b->n_outputs; i++) {
        if (b->outputs[i].tensor == node) {
            return true;
        }
    }
    return false;
}

/* The tensor for the result of the present node, with its dims in this order. Where it is an output
 * it has the strides of the node's memory. */
static lt_t result(sg_builder_t *b, int rank, const int *order)
{
    const tensor_t *t = b->tensors->list[b->node];
    const sinter_data_type_t type = plain_type(t->type);
    lt_t lt = inner(b, type);
    sinter_dim_t dims[GGML_MAX_DIMS], strides[GGML_MAX_DIMS];
    bool open = has_open(b, t);
    for (int i = 0; i < rank; i++) {
        dims[i] = t->ne[order[i]];
        strides[i] = (sinter_dim_t)(t->nb[order[i]] / ggml_type_size(t->type));
    }
    for (int i = 0; i < b->n_outputs; i++) {
        sg_output_t *output = &b->outputs[i];
        const bool plain = order == plain_order(rank) && ggml_is_contiguous(t);
        if (output->tensor == b->node && (!open || plain)) {
            output->id = lt.id;
            output->rank = rank;
            memcpy(output->dim, order, (size_t)rank * sizeof(*order));
            if (!open) {
                sinter_logical_tensor_init_with_strides(&lt, lt.id, type, rank, dims, strides,
                                                        sinter_tensor_property_undef);
            }
        }
    }
    return lt;
}

static void done(sg_builder_t *b, const lt_t *lt, int rank, const int *order)
{
    define(b, b->tensors->list[b->node], lt, rank, order);
}

bool sg_export(sg_builder_t *b, int node)
{
    if (is_exported(b, node)) {
        return true;
    }
    if (!grow((void **)&b->outputs, b->n_outputs, &b->outputs_capacity, sizeof(*b->outputs))) {
        return fail(b, "out of memory");
    }
    b->outputs[b->n_outputs++] = (sg_output_t){.tensor = node};
    return true;
}

/* An output that the op itself could not write in place of the node's memory: one more copy. */
static bool export_by_copy(sg_builder_t *b)
{
    const tensor_t *t = b->tensors->list[b->node];
    for (int i = 0; i < b->n_outputs; i++) {
        if (b->outputs[i].tensor == b->node && b->outputs[i].id == 0) {
            const int rank = rank_of(t);
            lt_t x, y;
            if (!use_plain(b, t, rank, &x)) {
                return false;
            }
            y = result(b, rank, plain_order(rank));
            if (b->outputs[i].id == 0) {
                return fail(b, "an output of dims that change, in memory with gaps");
            }
            return unary_to(b, x.data_type == y.data_type ? sinter_op_reorder : sinter_op_type_cast,
                            &x, &y);
        }
    }
    return true;
}

static bool silent_output(sg_builder_t *b, uint64_t id)
{
    if (!grow((void **)&b->silent, b->n_silent, &b->silent_capacity, sizeof(*b->silent))) {
        return fail(b, "out of memory");
    }
    b->silent[b->n_silent++] = id;
    return true;
}

/* ---- rules for what is taken ----------------------------------------------------------------- */

/* NULL, or why a quantised tensor is no rows of whole blocks. */
static const char *broken_blocks(const tensor_t *t)
{
    const size_t block = ggml_type_size(t->type);
    const size_t offset = (size_t)((const char *)t->data - (const char *)sg_root(t)->data);
    if (t->nb[0] != block) {
        return "quantised data that is transposed";
    }
    bool whole = t->ne[0] % ggml_blck_size(t->type) == 0 && offset % block == 0;
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        whole &= t->nb[i] % block == 0;
    }
    return whole ? NULL : "quantised data that is not whole blocks";
}

/* Whether a quantised tensor is blocks of ggml and no planes: in memory of the host, and where the
 * type has no planes. Before memory is given it is taken for ours. */
static bool has_blocks(const tensor_t *t)
{
    const bool placed = sg_root(t)->buffer || sg_root(t)->data;
    return ggml_is_quantized(t->type) && (!sg_layout_of(t->type) || (placed && !sg_is_ours(t)));
}

/* Memory that Sinter can read: plain elements, or planes in a buffer of ours. */
static const char *unreadable(const tensor_t *t)
{
    if (is_float(t)) {
        for (int i = 0; i < GGML_MAX_DIMS; i++) {
            if (t->nb[i] % ggml_type_size(t->type)) {
                return "strides that are not whole elements";
            }
        }
        return NULL;
    }
    if (!sg_layout_of(t->type)) {
        return "its data type";
    }
    return has_blocks(t) ? "quantised data in a buffer of the host" : broken_blocks(t);
}

static const char *float_sources(const tensor_t *t)
{
    for (int i = 0; i < GGML_MAX_SRC; i++) {
        if (t->src[i] && !is_float(t->src[i])) {
            return "a source that is not f32, f16 or bf16";
        }
        if (t->src[i] && unreadable(t->src[i])) {
            return unreadable(t->src[i]);
        }
    }
    return is_float(t) ? NULL : "a result that is not f32, f16 or bf16";
}

/* Dims of b are those of a, or 1. */
static bool broadcasts(const tensor_t *a, const tensor_t *b)
{
    for (int i = 0; i < GGML_MAX_DIMS; i++) {
        if (b->ne[i] != a->ne[i] && b->ne[i] != 1) {
            return false;
        }
    }
    return true;
}

/* ---- elementwise ops ------------------------------------------------------------------------- */

static const char *refuse_binary(const tensor_t *t)
{
    const char *why = float_sources(t);
    return why ? why : broadcasts(t->src[0], t->src[1]) ? NULL : "a source that is repeated";
}

static bool binary_op(sg_builder_t *b, const tensor_t *t, sinter_op_kind_t kind)
{
    lt_t x, z;
    const int rank = rank_of(t);
    const bool vector = ggml_nrows(t->src[1]) == 1 && ggml_nrows(t) > 1;
    const int other = vector ? 1 : rank;
    if (!use_plain(b, t->src[0], rank, &x) || !use_plain(b, t->src[1], other, &z)) {
        return false;
    }
    const lt_t y = result(b, rank, plain_order(rank));
    if (!binary_to(b, kind, &x, &z, &y)) {
        return false;
    }
    done(b, &y, rank, plain_order(rank));
    return true;
}

static bool op_add(sg_builder_t *b, const tensor_t *t)
{
    return binary_op(b, t, sinter_op_add);
}

static bool op_sub(sg_builder_t *b, const tensor_t *t)
{
    return binary_op(b, t, sinter_op_subtract);
}

static bool op_div(sg_builder_t *b, const tensor_t *t)
{
    return binary_op(b, t, sinter_op_divide);
}

static bool norm_to(sg_builder_t *b, const tensor_t *norm, const lt_t *gamma, const lt_t *y)
{
    lt_t x;
    if (!use_plain(b, norm->src[0], rank_of(norm), &x)) {
        return false;
    }
    sinter_op_part_t parts[8];
    int n = 0;
    parts[n++] = sinter_in(&x);
    if (gamma) {
        parts[n++] = sinter_in(gamma);
    }
    parts[n++] = sinter_out(y);
    parts[n++] = sinter_attr_f32(sinter_op_attr_epsilon, param(norm, 0));
    parts[n++] = sinter_attr_bool(sinter_op_attr_use_affine, gamma != NULL);
    if (norm->op == GGML_OP_NORM) {
        parts[n++] = sinter_attr_bool(sinter_op_attr_keep_stats, 0);
    }
    return add(b, norm->op == GGML_OP_NORM ? sinter_op_layer_norm : sinter_op_rms_norm, n, parts);
}

/* RMS_NORM times a vector is one op. The norm without it is dropped where nobody else reads it. */
static bool op_mul(sg_builder_t *b, const tensor_t *t)
{
    const tensor_t *norm = t->src[0], *gamma = t->src[1];
    lt_t g;
    if (norm->op != GGML_OP_RMS_NORM || !in_graph(b, norm) || ggml_nrows(gamma) != 1 ||
        gamma->ne[0] != t->ne[0] || rank_of(t) != rank_of(norm)) {
        return binary_op(b, t, sinter_op_multiply);
    }
    const int rank = rank_of(t);
    if (!use_plain(b, gamma, 1, &g)) {
        return false;
    }
    const lt_t y = result(b, rank, plain_order(rank));
    if (!norm_to(b, norm, &g, &y)) {
        return false;
    }
    done(b, &y, rank, plain_order(rank));
    return true;
}

static bool op_norm(sg_builder_t *b, const tensor_t *t)
{
    const int rank = rank_of(t);
    const lt_t y = result(b, rank, plain_order(rank));
    if (!norm_to(b, t, NULL, &y)) {
        return false;
    }
    done(b, &y, rank, plain_order(rank));
    return true;
}

static bool op_scale(sg_builder_t *b, const tensor_t *t)
{
    lt_t x, s, o, z;
    const int rank = rank_of(t);
    if (!use_plain(b, t->src[0], rank, &x) || !scalar(b, param(t, 0), &s)) {
        return false;
    }
    const lt_t y = result(b, rank, plain_order(rank));
    if (param(t, 1) == 0.0f) {
        if (!binary_to(b, sinter_op_multiply, &x, &s, &y)) {
            return false;
        }
    } else if (!scalar(b, param(t, 1), &o) || !binary(b, sinter_op_multiply, &x, &s, &z) ||
               !binary_to(b, sinter_op_add, &z, &o, &y)) {
        return false;
    }
    done(b, &y, rank, plain_order(rank));
    return true;
}

static bool op_clamp(sg_builder_t *b, const tensor_t *t)
{
    lt_t x;
    const int rank = rank_of(t);
    if (!use_plain(b, t->src[0], rank, &x)) {
        return false;
    }
    const lt_t y = result(b, rank, plain_order(rank));
    const sinter_op_part_t parts[] = {sinter_in(&x), sinter_out(&y),
                                      sinter_attr_f32(sinter_op_attr_min, param(t, 0)),
                                      sinter_attr_f32(sinter_op_attr_max, param(t, 1))};
    if (!add(b, sinter_op_clamp, 4, parts)) {
        return false;
    }
    done(b, &y, rank, plain_order(rank));
    return true;
}

/* An activation: an op of Sinter, or x * sigmoid(factor * x). */
typedef struct activation {
    sinter_op_kind_t kind;
    float factor;
    const char *mode; /* of GELU */
} activation_t;

enum { X_SIGMOID = -1 };

static bool activate_to(sg_builder_t *b, const activation_t *a, const lt_t *x, const lt_t *y)
{
    if ((int)a->kind == X_SIGMOID) {
        lt_t f, scaled = *x, s;
        if (a->factor != 1.0f &&
            (!scalar(b, a->factor, &f) || !binary(b, sinter_op_multiply, x, &f, &scaled))) {
            return false;
        }
        return unary(b, sinter_op_sigmoid, &scaled, &s) &&
               binary_to(b, sinter_op_multiply, x, &s, y);
    }
    sinter_op_part_t parts[5];
    int n = 0;
    parts[n++] = sinter_in(x);
    parts[n++] = sinter_out(y);
    if (a->mode) {
        parts[n++] = sinter_attr_str(sinter_op_attr_mode, a->mode);
    }
    if (a->kind == sinter_op_elu) {
        parts[n++] = sinter_attr_f32(sinter_op_attr_alpha, 1.0f);
    }
    if (a->kind == sinter_op_hard_sigmoid) {
        parts[n++] = sinter_attr_f32(sinter_op_attr_alpha, 1.0f / 6);
        parts[n++] = sinter_attr_f32(sinter_op_attr_beta, 0.5f);
    }
    return add(b, a->kind, n, parts);
}

/* One row for each activation that is taken; the others have no kind, which is Abs. */
static const activation_t unaries[GGML_UNARY_OP_COUNT] = {
    [GGML_UNARY_OP_TANH] = {sinter_op_tanh, 0, NULL},
    [GGML_UNARY_OP_ELU] = {sinter_op_elu, 0, NULL},
    [GGML_UNARY_OP_RELU] = {sinter_op_relu, 0, NULL},
    [GGML_UNARY_OP_SIGMOID] = {sinter_op_sigmoid, 0, NULL},
    [GGML_UNARY_OP_GELU] = {sinter_op_gelu, 0, "gelu_tanh"},
    [GGML_UNARY_OP_GELU_ERF] = {sinter_op_gelu, 0, "gelu_erf"},
    [GGML_UNARY_OP_GELU_QUICK] = {(sinter_op_kind_t)X_SIGMOID, 1.702f, NULL},
    [GGML_UNARY_OP_SILU] = {(sinter_op_kind_t)X_SIGMOID, 1.0f, NULL},
    [GGML_UNARY_OP_HARDSWISH] = {sinter_op_hard_swish, 0, NULL},
    [GGML_UNARY_OP_HARDSIGMOID] = {sinter_op_hard_sigmoid, 0, NULL},
    [GGML_UNARY_OP_EXP] = {sinter_op_exp, 0, NULL},
};

static const activation_t glus[GGML_GLU_OP_COUNT] = {
    [GGML_GLU_OP_REGLU] = {sinter_op_relu, 0, NULL},
    [GGML_GLU_OP_GEGLU] = {sinter_op_gelu, 0, "gelu_tanh"},
    [GGML_GLU_OP_SWIGLU] = {(sinter_op_kind_t)X_SIGMOID, 1.0f, NULL},
    [GGML_GLU_OP_GEGLU_ERF] = {sinter_op_gelu, 0, "gelu_erf"},
    [GGML_GLU_OP_GEGLU_QUICK] = {(sinter_op_kind_t)X_SIGMOID, 1.702f, NULL},
};

static const char *refuse_unary(const tensor_t *t)
{
    const enum ggml_unary_op op = ggml_get_unary_op(t);
    if (op != GGML_UNARY_OP_ABS && unaries[op].kind == sinter_op_abs) {
        return "an activation that Sinter does not have";
    }
    return float_sources(t);
}

static bool op_unary(sg_builder_t *b, const tensor_t *t)
{
    lt_t x;
    const int rank = rank_of(t);
    if (!use_plain(b, t->src[0], rank, &x)) {
        return false;
    }
    const lt_t y = result(b, rank, plain_order(rank));
    if (!activate_to(b, &unaries[ggml_get_unary_op(t)], &x, &y)) {
        return false;
    }
    done(b, &y, rank, plain_order(rank));
    return true;
}

static const char *refuse_glu(const tensor_t *t)
{
    const enum ggml_glu_op op = ggml_get_glu_op(t);
    if (op != GGML_GLU_OP_SWIGLU_OAI && glus[op].kind == sinter_op_abs) {
        return "a gate that Sinter does not have";
    }
    return float_sources(t);
}

/* Half of each row of x. */
static bool half_of(sg_builder_t *b, const lt_t *x, int rank, int64_t start, int64_t count, lt_t *y)
{
    const int64_t end = start + count, axis = rank - 1;
    *y = inner(b, x->data_type);
    const sinter_op_part_t parts[] = {sinter_in(x), sinter_out(y),
                                      sinter_attr_s64s(sinter_op_attr_starts, 1, &start),
                                      sinter_attr_s64s(sinter_op_attr_ends, 1, &end),
                                      sinter_attr_s64s(sinter_op_attr_axes, 1, &axis)};
    return add(b, sinter_op_slice, 5, parts);
}

/* min(gate, limit) * sigmoid(alpha * gate) * (clamp(up, -limit, limit) + 1) */
static bool swiglu_oai(sg_builder_t *b, const tensor_t *t, const lt_t *gate, const lt_t *up,
                       const lt_t *y)
{
    const activation_t swish = {(sinter_op_kind_t)X_SIGMOID, param(t, 2), NULL};
    const float limit = param(t, 3);
    lt_t most, one, g, u, u1, a = inner(b, sinter_f32);
    u = inner(b, sinter_f32);
    const sinter_op_part_t clamp[] = {sinter_in(up), sinter_out(&u),
                                      sinter_attr_f32(sinter_op_attr_min, -limit),
                                      sinter_attr_f32(sinter_op_attr_max, limit)};
    return scalar(b, limit, &most) && scalar(b, 1.0f, &one) &&
           binary(b, sinter_op_minimum, gate, &most, &g) && activate_to(b, &swish, &g, &a) &&
           add(b, sinter_op_clamp, 4, clamp) && binary(b, sinter_op_add, &u, &one, &u1) &&
           binary_to(b, sinter_op_multiply, &a, &u1, y);
}

static bool op_glu(sg_builder_t *b, const tensor_t *t)
{
    lt_t gate, up, a;
    const int rank = rank_of(t);
    if (!use_plain(b, t->src[0], rank, &gate)) {
        return false;
    }
    if (t->src[1]) {
        if (!use_plain(b, t->src[1], rank, &up)) {
            return false;
        }
    } else {
        const lt_t both = gate;
        const bool swapped = t->op_params[1];
        if (!half_of(b, &both, rank, swapped ? t->ne[0] : 0, t->ne[0], &gate) ||
            !half_of(b, &both, rank, swapped ? 0 : t->ne[0], t->ne[0], &up)) {
            return false;
        }
    }
    const lt_t y = result(b, rank, plain_order(rank));
    if (ggml_get_glu_op(t) == GGML_GLU_OP_SWIGLU_OAI) {
        if (!swiglu_oai(b, t, &gate, &up, &y)) {
            return false;
        }
    } else {
        a = inner(b, sinter_f32);
        if (!activate_to(b, &glus[ggml_get_glu_op(t)], &gate, &a) ||
            !binary_to(b, sinter_op_multiply, &a, &up, &y)) {
            return false;
        }
    }
    done(b, &y, rank, plain_order(rank));
    return true;
}

static bool unary_op(sg_builder_t *b, const tensor_t *t, sinter_op_kind_t kind)
{
    const activation_t a = {kind, 0, NULL};
    lt_t x;
    const int rank = rank_of(t);
    if (!use_plain(b, t->src[0], rank, &x)) {
        return false;
    }
    const lt_t y = result(b, rank, plain_order(rank));
    if (!activate_to(b, &a, &x, &y)) {
        return false;
    }
    done(b, &y, rank, plain_order(rank));
    return true;
}

static bool op_sqr(sg_builder_t *b, const tensor_t *t)
{
    return unary_op(b, t, sinter_op_square);
}

static bool op_sqrt(sg_builder_t *b, const tensor_t *t)
{
    return unary_op(b, t, sinter_op_sqrt);
}

/* ---- softmax --------------------------------------------------------------------------------- */

/* A mask or a table of sinks that broadcasts to the dims of t in ggml's way. */
static const char *refuse_mask(const tensor_t *t, const tensor_t *scores, const tensor_t *mask)
{
    if (!mask) {
        return NULL;
    }
    if (!is_float(mask) || mask->ne[0] != scores->ne[0] || mask->ne[1] < scores->ne[1]) {
        return "the mask's type or dims";
    }
    for (int i = 2; i < GGML_MAX_DIMS; i++) {
        if (mask->ne[i] != 1 && mask->ne[i] != scores->ne[i]) {
            return "a mask that is repeated";
        }
    }
    (void)t;
    return unreadable(mask);
}

static const char *refuse_soft_max(const tensor_t *t)
{
    if (param(t, 1) != 0.0f) {
        return "ALiBi";
    }
    if (!is_float(t->src[0]) || unreadable(t->src[0])) {
        return "its source";
    }
    if (t->src[2] && t->src[2]->type != GGML_TYPE_F32) {
        return "sinks that are not f32";
    }
    return refuse_mask(t, t->src[0], t->src[1]);
}

/* A mask in memory, of which as many rows count as `rows` has in dim 1. Of rank 5 it has a dim of 1
 * behind that of the heads. */
static bool mask_input(sg_builder_t *b, const tensor_t *mask, const tensor_t *rows, int rank,
                       lt_t *lt)
{
    if (in_graph(b, mask) || version_of(b, mask)) {
        return fail(b, "a mask that is computed");
    }
    sg_input_t in = {.tensor = sg_tensors_find(b->tensors, mask), .plane = -1, .rank = rank};
    for (int i = 0; i < rank; i++) {
        const int dim = i < 2 ? 3 - i : rank - 1 - i;
        in.size_dim[i] = in.stride_dim[i] = dim < 2 || i < 2 ? dim : -1;
        in.size_of[i] = in.tensor;
    }
    in.size_of[rank - 2] = sg_tensors_find(b->tensors, rows);
    for (int i = 0; i < b->n_inputs; i++) {
        const sg_input_t *other = &b->inputs[i];
        if (other->tensor == in.tensor && other->rank == rank && other->plane == -1 &&
            other->stride_dim[rank - 3] == in.stride_dim[rank - 3] &&
            dim_of(b, b->tensors->list[other->size_of[rank - 2]], 1) == dim_of(b, rows, 1)) {
            describe(b, other, lt);
            return true;
        }
    }
    in.id = ++b->ids;
    describe(b, &in, lt);
    return add_input(b, &in);
}

/* Sinks are one number for each head. */
static bool sinks_input(sg_builder_t *b, const tensor_t *sinks, int rank, const sinter_dim_t *dims,
                        lt_t *lt)
{
    lt_t x;
    const sinter_dim_t from[1] = {sinks->ne[0]};
    return use_plain(b, sinks, 1, &x) && reshape(b, &x, from, 1, dims, rank, lt);
}

static bool softmax_to(sg_builder_t *b, const lt_t *x, const lt_t *sinks, const lt_t *y)
{
    sinter_op_part_t parts[5];
    int n = 0;
    parts[n++] = sinter_in(x);
    if (sinks) {
        parts[n++] = sinter_in(sinks);
    }
    parts[n++] = sinter_out(y);
    parts[n++] = sinter_attr_s64(sinter_op_attr_axis, -1);
    parts[n++] = sinter_attr_str(sinter_op_attr_mode, "inf_as_zero");
    return add(b, sinter_op_softmax, n, parts);
}

static bool op_soft_max(sg_builder_t *b, const tensor_t *t)
{
    lt_t x, s, m, z, sinks;
    if (!use_plain(b, t->src[0], 4, &x)) {
        return false;
    }
    if (param(t, 0) != 1.0f) {
        if (!scalar(b, param(t, 0), &s) || !binary(b, sinter_op_multiply, &x, &s, &z)) {
            return false;
        }
        x = z;
    }
    if (t->src[1]) {
        if (!mask_input(b, t->src[1], t->src[0], 4, &m) || !binary(b, sinter_op_add, &x, &m, &z)) {
            return false;
        }
        x = z;
    }
    const sinter_dim_t heads[4] = {1, t->ne[2], 1, 1};
    if (t->src[2] && !sinks_input(b, t->src[2], 4, heads, &sinks)) {
        return false;
    }
    const lt_t y = result(b, 4, PLAIN);
    if (!softmax_to(b, &x, t->src[2] ? &sinks : NULL, &y)) {
        return false;
    }
    done(b, &y, 4, PLAIN);
    return true;
}

/* ---- products -------------------------------------------------------------------------------- */

static const char *refuse_mul_mat(const tensor_t *t)
{
    const tensor_t *w = t->src[0], *x = t->src[1];
    const char *why = unreadable(w);
    if (why) {
        return why;
    }
    if (!is_float(x) || unreadable(x) || t->type != GGML_TYPE_F32) {
        return "the activation's type";
    }
    if (w->ne[3] != x->ne[3] && w->ne[3] != 1) {
        return "weights that are repeated in dim 3";
    }
    return NULL;
}

static bool op_mul_mat(sg_builder_t *b, const tensor_t *t)
{
    const tensor_t *weights = t->src[0], *activation = t->src[1];
    const int64_t repeat = activation->ne[2] / weights->ne[2];
    const bool shared = weights->ne[2] == 1 && weights->ne[3] == 1;
    const int rank = shared ? rank_of(t) : 4;
    const bool grouped = !shared && repeat > 1;
    lt_t x, w, y;
    if (!use_plain(b, activation, rank, &x) || !use_plain(b, weights, shared ? 2 : 4, &w)) {
        return false;
    }
    if (grouped) {
        /* [b3, w2, repeat, M, K] times [b3, w2, 1, N, K] */
        const sinter_dim_t w2 = weights->ne[2], m = dim_of(b, activation, 1),
                           n = dim_of(b, weights, 1), k = dim_of(b, weights, 0),
                           b3 = dim_of(b, activation, 3), w3 = dim_of(b, weights, 3);
        const sinter_dim_t x4[4] = {b3, dim_of(b, activation, 2), m, k}, w4[4] = {w3, w2, n, k};
        const sinter_dim_t x5[5] = {b3, w2, repeat, m, k}, w5[5] = {w3, w2, 1, n, k};
        lt_t xs, ws;
        if (!reshape(b, &x, x4, 4, x5, 5, &xs) || !reshape(b, &w, w4, 4, w5, 5, &ws)) {
            return false;
        }
        x = xs;
        w = ws;
        y = inner(b, sinter_f32);
    } else {
        y = result(b, rank, plain_order(rank));
    }
    const sinter_op_part_t parts[] = {sinter_in(&x), sinter_in(&w), sinter_out(&y),
                                      sinter_attr_bool(sinter_op_attr_transpose_b, 1)};
    if (!add(b, sinter_op_matmul, 4, parts)) {
        return false;
    }
    done(b, &y, rank, plain_order(rank));
    if (grouped) {
        sg_value_t *v = &b->values[b->node];
        const sinter_dim_t dims[5] = {v->dims[0], weights->ne[2], repeat, v->dims[2], v->dims[3]};
        memcpy(v->dims, dims, sizeof(dims));
        v->rank = 5;
    }
    return true;
}

static const char *refuse_attention(const tensor_t *t)
{
    const tensor_t *q = t->src[0], *k = t->src[1], *v = t->src[2], *mask = t->src[3],
                   *sinks = t->src[4];
    if (param(t, 1) != 0.0f) {
        return "ALiBi";
    }
    if (!is_float(q) || unreadable(q)) {
        return "the queries' type";
    }
    if (unreadable(k) || unreadable(v)) {
        return unreadable(k) ? unreadable(k) : unreadable(v);
    }
    if (q->ne[2] % k->ne[2] || k->ne[2] != v->ne[2] || k->ne[3] != q->ne[3]) {
        return "heads of the cache that do not divide those of the queries";
    }
    if (sinks && sinks->type != GGML_TYPE_F32) {
        return "sinks that are not f32";
    }
    if (mask && (mask->ne[0] != k->ne[1] || mask->ne[1] < q->ne[1] ||
                 (mask->ne[2] != 1 && mask->ne[2] != q->ne[2]) ||
                 (mask->ne[3] != 1 && mask->ne[3] != q->ne[3]))) {
        return "a mask that is repeated";
    }
    return mask ? unreadable(mask) : NULL;
}

static bool op_attention(sg_builder_t *b, const tensor_t *t)
{
    const tensor_t *query = t->src[0], *key = t->src[1], *mask = t->src[3];
    const sinter_dim_t batch = dim_of(b, query, 3), heads = query->ne[2], kv = key->ne[2],
                       rows = dim_of(b, query, 1), tokens = dim_of(b, key, 1);
    const sinter_dim_t share = heads / kv;
    const float cap = param(t, 2), scale = param(t, 0);
    lt_t q, k, v, x, y, z, s, m, sinks;
    if (!use_plain(b, query, 4, &q) || !use_plain(b, key, 4, &k) ||
        !use_plain(b, t->src[2], 4, &v)) {
        return false;
    }
    const sinter_dim_t q4[4] = {batch, heads, rows, query->ne[0]},
                       q5[5] = {batch, kv, share, rows, query->ne[0]},
                       k4[4] = {dim_of(b, key, 3), kv, tokens, key->ne[0]},
                       k5[5] = {k4[0], kv, 1, tokens, key->ne[0]},
                       v4[4] = {k4[0], kv, tokens, t->src[2]->ne[0]},
                       v5[5] = {k4[0], kv, 1, tokens, t->src[2]->ne[0]};
    if (!reshape(b, &q, q4, 4, q5, 5, &x) || !reshape(b, &k, k4, 4, k5, 5, &y) ||
        !reshape(b, &v, v4, 4, v5, 5, &z)) {
        return false;
    }
    q = x, k = y, v = z;
    x = inner(b, sinter_f32);
    const sinter_op_part_t qk[] = {sinter_in(&q), sinter_in(&k), sinter_out(&x),
                                   sinter_attr_bool(sinter_op_attr_transpose_b, 1)};
    if (!add(b, sinter_op_matmul, 4, qk) || !scalar(b, cap ? scale / cap : scale, &s) ||
        !binary(b, sinter_op_multiply, &x, &s, &y)) {
        return false;
    }
    if (cap) {
        if (!unary(b, sinter_op_tanh, &y, &x) || !scalar(b, cap, &s) ||
            !binary(b, sinter_op_multiply, &x, &s, &y)) {
            return false;
        }
    }
    if (mask) {
        const bool per_head = mask->ne[2] != 1;
        const sinter_dim_t from[4] = {dim_of(b, mask, 3), mask->ne[2], rows, tokens},
                           to[5] = {from[0], kv, share, rows, tokens};
        if (!mask_input(b, mask, query, per_head ? 4 : 5, &m) ||
            (per_head && !reshape(b, &m, from, 4, to, 5, &z)) ||
            !binary(b, sinter_op_add, &y, per_head ? &z : &m, &x)) {
            return false;
        }
        y = x;
    }
    const sinter_dim_t per_head[5] = {1, kv, share, 1, 1};
    if (t->src[4] && !sinks_input(b, t->src[4], 5, per_head, &sinks)) {
        return false;
    }
    x = inner(b, sinter_f32);
    if (!softmax_to(b, &y, t->src[4] ? &sinks : NULL, &x)) {
        return false;
    }
    y = inner(b, sinter_f32);
    if (!binary_to(b, sinter_op_matmul, &x, &v, &y)) {
        return false;
    }
    static const int heads_first[4] = {3, 1, 2, 0};
    done(b, &y, 4, heads_first);
    sg_value_t *value = &b->values[b->node];
    const sinter_dim_t dims[5] = {value->dims[0], kv, share, value->dims[2], value->dims[3]};
    memcpy(value->dims, dims, sizeof(dims));
    value->rank = 5;
    return true;
}

/* ---- rotary embedding ------------------------------------------------------------------------ */

static const char *refuse_rope(const tensor_t *t)
{
    const int mode = t->op_params[2];
    if (mode != GGML_ROPE_TYPE_NORMAL && mode != GGML_ROPE_TYPE_NEOX) {
        return "positions of several dims";
    }
    if (t->op_params[15] != 0) {
        return "a rotation that does not begin with the row";
    }
    if (t->src[2] && t->src[2]->type != GGML_TYPE_F32) {
        return "factors that are not f32";
    }
    if (!is_float(t->src[0]) || unreadable(t->src[0])) {
        return "its source";
    }
    return t->src[1]->type == GGML_TYPE_I32 ? NULL : "positions that are not i32";
}

/* The angle of a pair is its frequency times the position, with the stretching of YaRN as well. */
static bool frequencies(sg_builder_t *b, const tensor_t *t, lt_t *lt)
{
    enum { MOST = 1024 };
    const int pairs = t->op_params[1] / 2;
    const double base = param(t, 5), stretch = param(t, 6), extrapolate = param(t, 7);
    float ends[2], values[MOST];
    if (pairs > MOST) {
        return fail(b, "more than %d pairs", MOST);
    }
    ggml_rope_yarn_corr_dims(2 * pairs, t->op_params[4], param(t, 5), param(t, 9), param(t, 10),
                             ends);
    for (int i = 0; i < pairs; i++) {
        const double width = fmax(0.001, (double)ends[1] - ends[0]);
        const double ramp = 1 - fmin(1, fmax(0, (i - (double)ends[0]) / width));
        const double mix = extrapolate == 0 ? 0 : ramp * extrapolate;
        values[i] = (float)((stretch * (1 - mix) + mix) * pow(base, -(double)i / pairs));
    }
    if (!t->src[2]) {
        return own_input(b, values, pairs, lt);
    }
    lt_t own, factors, part;
    if (!own_input(b, values, pairs, &own) || !use_plain(b, t->src[2], 1, &factors)) {
        return false;
    }
    if (t->src[2]->ne[0] != pairs) {
        if (!half_of(b, &factors, 1, 0, pairs, &part)) {
            return false;
        }
        factors = part;
    }
    return binary(b, sinter_op_divide, &own, &factors, lt);
}

static bool op_rope(sg_builder_t *b, const tensor_t *t)
{
    static const int heads_first[4] = {3, 1, 2, 0};
    const float stretch = param(t, 6);
    const float scale = param(t, 8) * (param(t, 7) != 0 ? 1 + 0.1f * logf(1 / stretch) : 1);
    lt_t x, f, p;
    if (!use(b, t->src[0], 4, heads_first, &x) || !frequencies(b, t, &f)) {
        return false;
    }
    /* Positions [batch, sequence]: the same for all of the batch. */
    const tensor_t *positions = t->src[1];
    if (in_graph(b, positions) || version_of(b, positions)) {
        return fail(b, "positions that are computed");
    }
    sg_input_t in = {.id = ++b->ids,
                     .tensor = sg_tensors_find(b->tensors, positions),
                     .plane = -1,
                     .rank = 2,
                     .size_dim = {3, 0},
                     .stride_dim = {-1, 0}};
    in.size_of[0] = t->ne[3] == 1 ? in.tensor : sg_tensors_find(b->tensors, t);
    in.size_of[1] = in.tensor;
    bool known = false;
    for (int i = 0; i < b->n_inputs && !known; i++) {
        const sg_input_t *other = &b->inputs[i];
        known = other->tensor == in.tensor && other->plane == -1 && other->rank == 2 &&
                other->stride_dim[0] == -1 && other->size_of[0] == in.size_of[0];
        if (known) {
            describe(b, other, &p);
        }
    }
    if (!known) {
        describe(b, &in, &p);
        if (!add_input(b, &in)) {
            return false;
        }
    }
    const lt_t y = result(b, 4, heads_first);
    const sinter_op_part_t parts[] = {
        sinter_in(&x),
        sinter_in(&f),
        sinter_in(&p),
        sinter_out(&y),
        sinter_attr_bool(sinter_op_attr_interleaved, t->op_params[2] == GGML_ROPE_TYPE_NORMAL),
        sinter_attr_s64(sinter_op_attr_rotary_embedding_dim, t->op_params[1]),
        sinter_attr_f32(sinter_op_attr_scale, scale)};
    if (!add(b, sinter_op_rotary_embedding, 7, parts)) {
        return false;
    }
    done(b, &y, 4, heads_first);
    return true;
}

/* ---- rows and copies ------------------------------------------------------------------------- */

static const char *refuse_get_rows(const tensor_t *t)
{
    const tensor_t *data = t->src[0], *rows = t->src[1];
    const bool decoded = has_blocks(data) && ggml_get_type_traits(data->type)->to_float;
    const char *why = decoded ? broken_blocks(data) : unreadable(data);
    if (why) {
        return why;
    }
    if (data->ne[2] != 1 || data->ne[3] != 1) {
        return "several tables";
    }
    if (rows->type != GGML_TYPE_I32 || ggml_nrows(rows) != 1) {
        return "the indices' type or dims";
    }
    return t->type == GGML_TYPE_F32 ? NULL : "a result that is not f32";
}

static bool gather_to(sg_builder_t *b, const lt_t *data, const lt_t *rows, const lt_t *y)
{
    const sinter_op_part_t parts[] = {sinter_in(data), sinter_in(rows), sinter_out(y),
                                      sinter_attr_s64(sinter_op_attr_axis, 0)};
    return add(b, sinter_op_gather, 4, parts);
}

static bool op_get_rows(sg_builder_t *b, const tensor_t *t)
{
    const tensor_t *data = t->src[0];
    const sg_layout_t *layout = sg_layout_of(data->type);
    lt_t rows, y;
    if (!use_plain(b, t->src[1], 1, &rows)) {
        return false;
    }
    if (layout && !version_of(b, data)) {
        lt_t parts[SG_PLANES];
        for (int p = SG_CODES; p <= SG_OFFSETS; p++) {
            if (p == SG_OFFSETS && layout->offsets == sinter_data_type_undef) {
                continue;
            }
            lt_t from;
            if (!input(b, data, p, 2, plain_order(2), &from)) {
                return false;
            }
            parts[p] = inner(b, from.data_type);
            if (!gather_to(b, &from, &rows, &parts[p])) {
                return false;
            }
        }
        if (!dequantised(b, data, 2, plain_order(2), parts, &y)) {
            return false;
        }
        done(b, &y, 2, plain_order(2));
        return true;
    }
    lt_t from;
    if (!use_plain(b, data, 2, &from)) {
        return false;
    }
    if (from.data_type == sinter_f32) {
        y = result(b, 2, plain_order(2));
        if (!gather_to(b, &from, &rows, &y)) {
            return false;
        }
    } else {
        lt_t some = inner(b, from.data_type);
        y = result(b, 2, plain_order(2));
        if (!gather_to(b, &from, &rows, &some) || !unary_to(b, sinter_op_type_cast, &some, &y)) {
            return false;
        }
    }
    done(b, &y, 2, plain_order(2));
    return true;
}

/* The first node of the graph that reads what SET_ROWS writes, if it reads the first of these rows
 * and nothing else, and which of its dims they are. NULL where nobody reads them, or in another
 * way. */
static const tensor_t *reader_of(const sg_builder_t *b, const tensor_t *t, int *dim)
{
    const tensor_t *root = sg_root(t);
    for (int i = b->node + 1; i < b->end; i++) {
        const tensor_t *node = b->tensors->list[i];
        for (int s = 0; s < GGML_MAX_SRC; s++) {
            const tensor_t *src = node->src[s];
            if (!src || sg_is_view(node) || sg_root(src) != root || src == t ||
                src->op == GGML_OP_NONE) {
                continue;
            }
            int perm[GGML_MAX_DIMS];
            int64_t heads;
            if (src->data != t->data || view_of_rows(src, perm, &heads)) {
                return NULL;
            }
            for (int d = 1; d < GGML_MAX_DIMS; d++) {
                if (perm[d] == 2 && src->ne[d] > 1 && src->ne[d] <= t->ne[1]) {
                    *dim = d;
                    return src;
                }
            }
            return NULL;
        }
    }
    return NULL;
}

static bool set_rows_is_plain(const tensor_t *t)
{
    const tensor_t *rows = t->src[0], *slots = t->src[1];
    const bool direct = is_float(t) || (!has_blocks(t) &&
                                        (t->type == GGML_TYPE_Q8_0 || t->type == GGML_TYPE_MXFP4));
    return direct && t->ne[2] == 1 && t->ne[3] == 1 && rows->ne[2] == 1 && rows->ne[3] == 1 &&
           ggml_nrows(slots) == 1 && ggml_is_contiguous(t) && sg_root(t)->ne[0] == t->ne[0];
}

static const char *refuse_set_rows(const tensor_t *t)
{
    const tensor_t *rows = t->src[0], *slots = t->src[1];
    if (rows->type != GGML_TYPE_F32 && !(rows->type == GGML_TYPE_F16 && is_float(t))) {
        return "rows that are not f32";
    }
    if (slots->type != GGML_TYPE_I64 && slots->type != GGML_TYPE_I32) {
        return "the slots' type";
    }
    if (set_rows_is_plain(t)) {
        return NULL;
    }
    if (rows->type != GGML_TYPE_F32) {
        return "rows that are not f32";
    }
    if (!is_float(t) && !ggml_get_type_traits(t->type)->from_float_ref) {
        return "its data type";
    }
    return ggml_is_quantized(t->type) ? broken_blocks(t) : NULL;
}

static bool op_set_rows(sg_builder_t *b, const tensor_t *t)
{
    const tensor_t *root = sg_root(t);
    const sg_layout_t *layout = sg_layout_of(t->type);
    int dim = 1;
    const tensor_t *reader = reader_of(b, t, &dim);
    const int index = sg_tensors_find(b->tensors, t),
              root_index = sg_tensors_find(b->tensors, root);
    const int n_planes = layout ? 2 : 1;
    if (root_index < 0 || version_of(b, t) || in_graph(b, t->src[2])) {
        return fail(b, "memory that is written twice");
    }
    lt_t rows, slots, new[2], after[2];
    if (!use_plain(b, t->src[0], 2, &rows) || !use_plain(b, t->src[1], 1, &slots)) {
        return false;
    }
    if (layout) {
        static const int64_t groups[2] = {1, 32};
        new[0] = inner(b, layout->codes);
        new[1] = inner(b, layout->scales);
        const char *kind = layout->scales == sinter_e8m0 ? "dynamic_mx" : "dynamic_symmetric";
        const sinter_op_part_t parts[] = {sinter_in(&rows),
                                          sinter_out(&new[0]),
                                          sinter_out(&new[1]),
                                          sinter_attr_str(sinter_op_attr_quantization_kind, kind),
                                          sinter_attr_str(sinter_op_attr_qtype, "per_group"),
                                          sinter_attr_s64s(sinter_op_attr_group_shape, 2, groups)};
        if (!add(b, sinter_op_dynamic_quantize, 6, parts)) {
            return false;
        }
    } else if (rows.data_type == plain_type(t->type)) {
        new[0] = rows;
    } else {
        new[0] = inner(b, plain_type(t->type));
        if (!unary_to(b, sinter_op_type_cast, &rows, &new[0])) {
            return false;
        }
    }
    for (int p = 0; p < n_planes; p++) {
        sg_input_t in = {.id = ++b->ids,
                         .tensor = index,
                         .plane = layout ? p : -1,
                         .rank = 2,
                         .size_of = {reader ? sg_tensors_find(b->tensors, reader) : index, index},
                         .size_dim = {dim, 0},
                         .stride_dim = {1, 0}};
        lt_t before;
        describe(b, &in, &before);
        before.property = sinter_tensor_property_undef;
        after[p] = before;
        after[p].id = ++b->ids;
        const sinter_op_part_t parts[] = {sinter_in(&before), sinter_in(&slots), sinter_in(&new[p]),
                                          sinter_out(&after[p]),
                                          sinter_attr_s64(sinter_op_attr_axis, 0)};
        if (!add_input(b, &in) || !add(b, sinter_op_scatter_rows, 5, parts) ||
            !silent_output(b, after[p].id)) {
            return false;
        }
    }
    lt_t y = after[0];
    if (layout && !dequantised(b, t, 2, plain_order(2), after, &y)) {
        return false;
    }
    sg_value_t v = {.known = true, .id = y.id, .type = y.data_type, .rank = 2, .begin = t->data};
    v.dims[0] = reader ? dim_of(b, reader, dim) : dim_of(b, t, 1);
    v.dims[1] = t->ne[0];
    b->versions[root_index] = v;
    /* Nobody but readers of the cache may use the result: it has fewer rows. */
    b->values[b->node] = v;
    b->values[b->node].known = false;
    return true;
}

/* Rows of the same dims, from a quantised type to itself or f32, or from f32 to it. */
static bool copies_blocks(const tensor_t *t)
{
    const tensor_t *src = t->src[0];
    const struct ggml_type_traits *from = ggml_get_type_traits(src->type),
                                  *to = ggml_get_type_traits(t->type);
    return (ggml_is_quantized(src->type) || ggml_is_quantized(t->type)) &&
           ggml_are_same_shape(src, t) && !broken_blocks(src) && !broken_blocks(t) &&
           (src->type == t->type || (src->type == GGML_TYPE_F32 && to->from_float_ref) ||
            (t->type == GGML_TYPE_F32 && from->to_float));
}

static const char *refuse_copy(const tensor_t *t)
{
    if (copies_blocks(t)) {
        return NULL;
    }
    if (!is_float(t->src[0]) || !is_float(t)) {
        return "a copy of other types than f32, f16 and bf16";
    }
    if (unreadable(t->src[0]) || unreadable(t)) {
        return "strides that are not whole elements";
    }
    if (ggml_nelements(t) != ggml_nelements(t->src[0])) {
        return "a copy of other elements";
    }
    for (int i = 1; i < GGML_MAX_DIMS; i++) {
        /* A result with gaps is fine, one that covers itself is not. */
        if (t->ne[i] > 1 && t->nb[i] < t->nb[0]) {
            return "a result whose elements lie in one another";
        }
    }
    return NULL;
}

static bool op_copy(sg_builder_t *b, const tensor_t *t)
{
    const tensor_t *src = t->src[0];
    const int rank = rank_of(t), from = rank_of(src);
    lt_t x, z;
    sinter_dim_t dims[4], to[4];
    if (!use_plain(b, src, from, &x)) {
        return false;
    }
    for (int i = 0; i < from; i++) {
        dims[i] = dim_of(b, src, from - 1 - i);
    }
    for (int i = 0; i < rank; i++) {
        to[i] = dim_of(b, t, rank - 1 - i);
    }
    if (!reshape(b, &x, dims, from, to, rank, &z)) {
        return false;
    }
    const lt_t y = result(b, rank, plain_order(rank));
    if (!unary_to(b, z.data_type == y.data_type ? sinter_op_reorder : sinter_op_type_cast, &z,
                  &y)) {
        return false;
    }
    done(b, &y, rank, plain_order(rank));
    return true;
}

/* ---- the table ------------------------------------------------------------------------------- */

typedef struct op_row {
    enum ggml_op op;
    bool (*translate)(sg_builder_t *b, const tensor_t *node);
    const char *(*refuse)(const tensor_t *node); /* NULL, or why it is left to the host */
} op_row_t;

static const op_row_t rows[] = {
    {GGML_OP_MUL_MAT, op_mul_mat, refuse_mul_mat},
    {GGML_OP_FLASH_ATTN_EXT, op_attention, refuse_attention},
    {GGML_OP_SET_ROWS, op_set_rows, refuse_set_rows},
    {GGML_OP_GET_ROWS, op_get_rows, refuse_get_rows},
    {GGML_OP_ROPE, op_rope, refuse_rope},
    {GGML_OP_RMS_NORM, op_norm, float_sources},
    {GGML_OP_NORM, op_norm, float_sources},
    {GGML_OP_SOFT_MAX, op_soft_max, refuse_soft_max},
    {GGML_OP_GLU, op_glu, refuse_glu},
    {GGML_OP_UNARY, op_unary, refuse_unary},
    {GGML_OP_ADD, op_add, refuse_binary},
    {GGML_OP_SUB, op_sub, refuse_binary},
    {GGML_OP_MUL, op_mul, refuse_binary},
    {GGML_OP_DIV, op_div, refuse_binary},
    {GGML_OP_SCALE, op_scale, float_sources},
    {GGML_OP_CLAMP, op_clamp, float_sources},
    {GGML_OP_SQR, op_sqr, float_sources},
    {GGML_OP_SQRT, op_sqrt, float_sources},
    {GGML_OP_CPY, op_copy, refuse_copy},
    {GGML_OP_CONT, op_copy, refuse_copy},
    {GGML_OP_DUP, op_copy, refuse_copy},
};

static const op_row_t *row_of(const tensor_t *op)
{
    for (size_t i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
        if (rows[i].op == op->op) {
            return &rows[i];
        }
    }
    return NULL;
}

const char *sg_refuses(const tensor_t *op)
{
    if (sg_is_view(op) || ggml_is_empty(op)) {
        return NULL;
    }
    const op_row_t *row = row_of(op);
    return row ? row->refuse(op) : "no such op here";
}

bool sg_translate(sg_builder_t *b, int node)
{
    const tensor_t *t = b->tensors->list[node];
    b->node = node;
    if (sg_is_view(t) || ggml_is_empty(t)) {
        return true;
    }
    const op_row_t *row = row_of(t);
    if (!row) {
        return fail(b, "no such op here");
    }
    if (!row->translate(b, t) || !export_by_copy(b)) {
        return false;
    }
    /* A result in memory that existed before: whoever reads that from now on needs a new graph. */
    const int root = sg_tensors_find(b->tensors, sg_root(t));
    if (t->view_src && t->op != GGML_OP_SET_ROWS && root >= 0 && !in_graph(b, t->view_src)) {
        b->versions[root] = (sg_value_t){.known = true};
    }
    return true;
}

/* ---- loops of the backend's own -------------------------------------------------------------- */

/* SET_ROWS with the codes that ggml makes. */
static bool native_set_rows(const tensor_t *t)
{
    const tensor_t *from = t->src[0], *slots = t->src[1];
    const size_t row = ggml_row_size(t->type, t->ne[0]);
    void *blocks = malloc(row);
    bool ok = blocks != NULL;
    for (int64_t i = 0; i < ggml_nrows(from) && ok; i++) {
        const size_t i1 = (size_t)(i % from->ne[1]), i2 = (size_t)(i / from->ne[1] % from->ne[2]),
                     i3 = (size_t)(i / from->ne[1] / from->ne[2]);
        const char *at = (const char *)slots->data + i1 * slots->nb[0] +
                         i2 % (size_t)slots->ne[1] * slots->nb[1] +
                         i3 % (size_t)slots->ne[2] * slots->nb[2];
        const int64_t slot =
            slots->type == GGML_TYPE_I64 ? *(const int64_t *)at : *(const int32_t *)at;
        const float *x = (const float *)((const char *)from->data + i1 * from->nb[1] +
                                         i2 * from->nb[2] + i3 * from->nb[3]);
        ok = slot >= 0 && slot < t->ne[1];
        if (ok && t->type == GGML_TYPE_F32) {
            memcpy(blocks, x, row);
        } else if (ok) {
            ggml_get_type_traits(t->type)->from_float_ref(x, blocks, t->ne[0]);
        }
        if (ok) {
            ggml_backend_tensor_set((struct ggml_tensor *)t, blocks,
                                    (size_t)slot * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3], row);
        }
    }
    free(blocks);
    return ok;
}

/* GET_ROWS of a table in blocks: few rows, which ggml's own functions decode. */
static bool native_get_rows(const tensor_t *t)
{
    const tensor_t *table = t->src[0], *ids = t->src[1];
    const struct ggml_type_traits *traits = ggml_get_type_traits(table->type);
    for (int64_t i = 0; i < ids->ne[0]; i++) {
        const int32_t row = *(const int32_t *)((const char *)ids->data + (size_t)i * ids->nb[0]);
        if (row < 0 || row >= table->ne[1]) {
            return false;
        }
        traits->to_float((const char *)table->data + (size_t)row * table->nb[1],
                         (float *)((char *)t->data + (size_t)i * t->nb[1]), t->ne[0]);
    }
    return true;
}

/* A copy from or to blocks: through floats, row by row. It is for shifts of a cache, which are
 * rare. */
static bool native_copy(const tensor_t *t)
{
    const tensor_t *src = t->src[0];
    const size_t from = ggml_row_size(src->type, src->ne[0]), to = ggml_row_size(t->type, t->ne[0]);
    const struct ggml_type_traits *decode = ggml_get_type_traits(src->type),
                                  *encode = ggml_get_type_traits(t->type);
    uint8_t *blocks = malloc(from > to ? from : to);
    float *floats = malloc((size_t)t->ne[0] * sizeof(*floats));
    const bool ok = blocks && floats;
    for (int64_t row = 0; row < ggml_nrows(t) && ok; row++) {
        const size_t i1 = (size_t)(row % t->ne[1]), i2 = (size_t)(row / t->ne[1] % t->ne[2]),
                     i3 = (size_t)(row / t->ne[1] / t->ne[2]);
        const size_t in = i1 * src->nb[1] + i2 * src->nb[2] + i3 * src->nb[3],
                     out = i1 * t->nb[1] + i2 * t->nb[2] + i3 * t->nb[3];
        ggml_backend_tensor_get(src, blocks, in, from);
        if (src->type == t->type) {
            ggml_backend_tensor_set((struct ggml_tensor *)t, blocks, out, to);
            continue;
        }
        if (src->type == GGML_TYPE_F32) {
            memcpy(floats, blocks, from);
        } else {
            decode->to_float(blocks, floats, t->ne[0]);
        }
        if (t->type == GGML_TYPE_F32) {
            ggml_backend_tensor_set((struct ggml_tensor *)t, floats, out, to);
        } else {
            encode->from_float_ref(floats, blocks, t->ne[0]);
            ggml_backend_tensor_set((struct ggml_tensor *)t, blocks, out, to);
        }
    }
    free(blocks);
    free(floats);
    return ok;
}

sg_native_t sg_native(const tensor_t *node)
{
    if (ggml_is_empty(node)) {
        return NULL;
    }
    if (node->op == GGML_OP_GET_ROWS && has_blocks(node->src[0])) {
        return native_get_rows;
    }
    if ((node->op == GGML_OP_CPY || node->op == GGML_OP_CONT || node->op == GGML_OP_DUP) &&
        copies_blocks(node)) {
        return native_copy;
    }
    return node->op == GGML_OP_SET_ROWS && !set_rows_is_plain(node) ? native_set_rows : NULL;
}
