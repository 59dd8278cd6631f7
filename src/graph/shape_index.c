/* Checks and shape rules of Sinter's own ops: RotaryEmbedding, HadamardTransform, and what moves
 * rows by index. */
#include "graph/schema.h"
#include "graph/shape.h"

/* ---- checks ---------------------------------------------------------------------------------- */

static size_t count_of(const node_t *node, sinter_op_attr_t id, size_t otherwise)
{
    const attr_t *a = node_attr(node, id);
    return a != NULL ? a->n : otherwise;
}

sinter_status_t check_slice(const node_t *node, const lt_t *in, const lt_t *out)
{
    const size_t n = count_of(node, sinter_op_attr_starts, 0);
    const attr_t *steps = node_attr(node, sinter_op_attr_steps);
    if (count_of(node, sinter_op_attr_ends, 0) != n ||
        count_of(node, sinter_op_attr_axes, n) != n ||
        count_of(node, sinter_op_attr_steps, n) != n || n > SINTER_MAX_NDIMS) {
        return FAIL_OP(node,
                       "attributes starts, ends, axes and steps have different lengths, or "
                       "more than %d values",
                       SINTER_MAX_NDIMS);
    }
    for (size_t i = 0; steps != NULL && i < n; i++) {
        if (steps->s64[i] == 0) {
            return FAIL_OP(node, "attribute steps: value %d is 0, another number is expected",
                           (int)i);
        }
    }
    return check_same_first(node, in, out);
}

static bool is_index(sinter_data_type_t type)
{
    return type == sinter_s32 || type == sinter_s64;
}

/* Inputs 1 and 2 are tables of cosines and sines, or inverse frequencies and positions. */
sinter_status_t check_rotary_embedding(const node_t *node, const lt_t *in, const lt_t *out)
{
    const bool frequencies = is_index(in[2].data_type);
    (void)out;
    if (frequencies && node->n_in != 3) {
        return FAIL_OP(node,
                       "the inputs are x, cosines, sines and perhaps positions, or x, inverse "
                       "frequencies and positions; %d inputs are given",
                       node->n_in);
    }
    return sinter_success;
}

static bool is_power_of_two(int64_t n)
{
    return n > 0 && (n & (n - 1)) == 0;
}

sinter_status_t check_hadamard_transform(const node_t *node, const lt_t *in, const lt_t *out)
{
    const int64_t block = node_s64(node, sinter_op_attr_block_size, 0);
    (void)in, (void)out;
    return block == 0 || is_power_of_two(block)
               ? sinter_success
               : FAIL_OP(node, "block_size %" PRId64 " is not a power of two", block);
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* The first *n dims of data and indices are the same; they end before the axis. */
static sinter_status_t batch_dims_of(const node_t *node, lt_t *data, lt_t *indices, int axis,
                                     int *n)
{
    const int64_t given = node_s64(node, sinter_op_attr_batch_dims, 0);
    if (given > axis || given > indices->ndims) {
        return FAIL_SHAPE(node,
                          "batch_dims is %" PRId64 ", but the axis is %d, and tensor %" PRIu64
                          " has %d dimensions",
                          given, axis, indices->id, (int)indices->ndims);
    }
    *n = (int)given;
    for (int d = 0; d < *n; d++) {
        SG_TRY(shape_unify(node, indices, d, &data->dims[d]));
    }
    return sinter_success;
}

sinter_status_t shape_gather(const node_t *node, lt_t *in, lt_t *out)
{
    int64_t dims[SINTER_MAX_NDIMS];
    int axis, batch = 0, n = 0;
    if (in[0].ndims < 0 || in[1].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(shape_axis(node, node_s64(node, sinter_op_attr_axis, 0), &in[0], &axis));
    SG_TRY(batch_dims_of(node, &in[0], &in[1], axis, &batch));
    if (in[0].ndims - 1 + in[1].ndims - batch > SINTER_MAX_NDIMS) {
        return FAIL_SHAPE(node, "the output would have %d dimensions, %d are possible",
                          in[0].ndims - 1 + in[1].ndims - batch, SINTER_MAX_NDIMS);
    }
    for (int d = 0; d < axis; d++) {
        dims[n++] = in[0].dims[d];
    }
    for (int d = batch; d < in[1].ndims; d++) {
        dims[n++] = in[1].dims[d];
    }
    for (int d = axis + 1; d < in[0].ndims; d++) {
        dims[n++] = in[0].dims[d];
    }
    return shape_put(node, &out[0], n, dims);
}

sinter_status_t shape_scatter_rows(const node_t *node, lt_t *in, lt_t *out)
{
    int axis, batch = 0;
    if (in[0].ndims < 0 || in[2].ndims < 0 || in[1].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(shape_axis(node, node_s64(node, sinter_op_attr_axis, 0), &in[0], &axis));
    SG_TRY(batch_dims_of(node, &in[0], &in[1], axis, &batch));
    if (in[1].ndims != batch + 1 || in[2].ndims != in[0].ndims) {
        return FAIL_SHAPE(node,
                          "slots, tensor %" PRIu64 ", must have one dimension behind the %d of "
                          "batch_dims, and updates, tensor %" PRIu64 ", as many as the data",
                          in[1].id, batch, in[2].id);
    }
    for (int d = 0; d < in[0].ndims; d++) {
        int64_t *with = d == axis ? &in[1].dims[batch] : &in[0].dims[d];
        if (!dims_unify(&in[2].dims[d], with)) {
            return FAIL_SHAPE(node,
                              "dimension %d of updates, tensor %" PRIu64 ", is %" PRId64
                              ", expected %" PRId64,
                              d, in[2].id, in[2].dims[d], *with);
        }
    }
    return shape_put(node, &out[0], in[0].ndims, in[0].dims);
}

static int64_t within(int64_t i, int64_t n, int64_t least, int64_t most)
{
    i += i < 0 ? n : 0;
    return i < least ? least : i > most ? most : i;
}

sinter_status_t slice_of_dim(const node_t *node, const lt_t *in, int dim, int64_t *start,
                             int64_t *step, int64_t *n)
{
    const attr_t *starts = node_attr(node, sinter_op_attr_starts),
                 *ends = node_attr(node, sinter_op_attr_ends),
                 *axes = node_attr(node, sinter_op_attr_axes),
                 *steps = node_attr(node, sinter_op_attr_steps);
    *start = 0;
    *step = 1;
    *n = in->dims[dim];
    for (size_t i = 0; i < starts->n; i++) {
        int axis;
        SG_TRY(shape_axis(node, axes != NULL ? axes->s64[i] : (int64_t)i, in, &axis));
        if (axis != dim || !dim_known(in->dims[dim])) {
            continue;
        }
        /* As in ONNX: backwards from start, an end before the first element takes that one, too. */
        const int64_t size = in->dims[dim], by = steps != NULL ? steps->s64[i] : 1;
        const int64_t first = by > 0 ? 0 : -1, last = by > 0 ? size : size - 1;
        const int64_t end = within(ends->s64[i], size, first, last),
                      begin = within(starts->s64[i], size, 0, last > 0 ? last : 0),
                      apart = by > 0 ? end - begin : begin - end;
        *n = apart <= 0 || size == 0 ? 0 : by > 0 ? (apart - 1) / by + 1 : 1 - (apart - 1) / by;
        *start = *n > 0 ? begin : 0;
        *step = *n > 1 ? by : 1;
    }
    return sinter_success;
}

bool slice_goes_back(const node_t *node)
{
    const attr_t *steps = node_attr(node, sinter_op_attr_steps);
    for (size_t i = 0; steps != NULL && i < steps->n; i++) {
        if (steps->s64[i] < 0) {
            return true;
        }
    }
    return false;
}

static sinter_status_t check_slice_axes(const node_t *node, const lt_t *in)
{
    const attr_t *axes = node_attr(node, sinter_op_attr_axes);
    bool given[SINTER_MAX_NDIMS] = {false};
    for (size_t i = 0; axes != NULL && i < axes->n; i++) {
        int axis;
        SG_TRY(shape_axis(node, axes->s64[i], in, &axis));
        if (given[axis]) {
            return FAIL_SHAPE(node, "axis %d is given twice", axis);
        }
        given[axis] = true;
    }
    return sinter_success;
}

sinter_status_t shape_slice(const node_t *node, lt_t *in, lt_t *out)
{
    int64_t dims[SINTER_MAX_NDIMS], start, step;
    if (in[0].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(check_slice_axes(node, &in[0]));
    for (int d = 0; d < in[0].ndims; d++) {
        SG_TRY(slice_of_dim(node, &in[0], d, &start, &step, &dims[d]));
    }
    return shape_put(node, &out[0], in[0].ndims, dims);
}

sinter_status_t shape_top_k(const node_t *node, lt_t *in, lt_t *out)
{
    const int64_t k = node_s64(node, sinter_op_attr_k, 0);
    int64_t dims[SINTER_MAX_NDIMS];
    int axis;
    if (in[0].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(shape_axis(node, node_s64(node, sinter_op_attr_axis, -1), &in[0], &axis));
    for (int d = 0; d < in[0].ndims; d++) {
        dims[d] = d == axis ? k : in[0].dims[d];
    }
    if (dim_known(in[0].dims[axis]) && k > in[0].dims[axis]) {
        return FAIL_SHAPE(node, "k is %" PRId64 ", dimension %d of tensor %" PRIu64 " is %" PRId64,
                          k, axis, in[0].id, in[0].dims[axis]);
    }
    SG_TRY(shape_put(node, &out[0], in[0].ndims, dims));
    for (int d = 0; d < in[0].ndims; d++) {
        dims[d] = d == axis ? k : out[0].dims[d];
    }
    return shape_put(node, &out[1], in[0].ndims, dims);
}

/* x is [batch, heads, sequence, head] or, with num_heads, [batch, sequence, heads * head];
 * positions [batch, sequence]; tables [positions, dim / 2], or [batch, sequence, dim / 2] without
 * positions; frequencies [dim / 2]. */
sinter_status_t shape_rotary_embedding(const node_t *node, lt_t *in, lt_t *out)
{
    const bool frequencies = is_index(in[2].data_type);
    lt_t *positions = frequencies ? &in[2] : node->n_in > 3 ? &in[3] : NULL;
    lt_t *x = &in[0];
    if (x->ndims < 0) {
        return sinter_success;
    }
    const int64_t heads = node_s64(node, sinter_op_attr_num_heads, 0);
    if (x->ndims != 4 && !(x->ndims == 3 && heads > 0)) {
        return FAIL_SHAPE(
            node, "tensor %" PRIu64 " has %d dimensions; 4 are expected, or 3 and num_heads", x->id,
            (int)x->ndims);
    }
    const int sequence = x->ndims - 2;
    if (positions != NULL && positions->ndims >= 0) {
        if (positions->ndims != 2) {
            return FAIL_SHAPE(node, "positions, tensor %" PRIu64 ", must be [batch, sequence]",
                              positions->id);
        }
        SG_TRY(shape_unify(node, positions, 0, &x->dims[0]));
        SG_TRY(shape_unify(node, positions, 1, &x->dims[sequence]));
    }
    for (int i = 1; i < (frequencies ? 2 : 3); i++) {
        const int want = frequencies ? 1 : positions != NULL ? 2 : 3;
        if (in[i].ndims >= 0 && in[i].ndims != want) {
            return FAIL_SHAPE(node, "tensor %" PRIu64 " has %d dimensions, %d are expected",
                              in[i].id, (int)in[i].ndims, want);
        }
        if (in[i].ndims == 3) {
            SG_TRY(shape_unify(node, &in[i], 0, &x->dims[0]));
            SG_TRY(shape_unify(node, &in[i], 1, &x->dims[sequence]));
        }
    }
    const int64_t last = x->dims[x->ndims - 1];
    if (dim_known(last) && x->ndims == 3 && last % heads != 0) {
        return FAIL_SHAPE(node, "%" PRId64 " heads do not divide dimension 2 of tensor %" PRIu64,
                          heads, x->id);
    }
    if (dim_known(last)) {
        const int64_t head = x->ndims == 3 ? last / heads : last,
                      given = node_s64(node, sinter_op_attr_rotary_embedding_dim, 0);
        int64_t half = (given > 0 ? given : head) / 2;
        if (given > head || (given > 0 ? given : head) % 2 != 0) {
            return FAIL_SHAPE(
                node, "%" PRId64 " elements of a head of %" PRId64 " cannot be rotated in pairs",
                given > 0 ? given : head, head);
        }
        for (int i = 1; i < (frequencies ? 2 : 3); i++) {
            if (in[i].ndims > 0) {
                SG_TRY(shape_unify(node, &in[i], in[i].ndims - 1, &half));
            }
        }
    }
    return shape_put(node, &out[0], x->ndims, x->dims);
}

sinter_status_t shape_hadamard_transform(const node_t *node, lt_t *in, lt_t *out)
{
    lt_t *x = &in[0];
    if (x->ndims < 0) {
        return sinter_success;
    }
    if (x->ndims == 0) {
        return FAIL_SHAPE(node, "tensor %" PRIu64 " is a scalar", x->id);
    }
    const int64_t last = x->dims[x->ndims - 1],
                  given = node_s64(node, sinter_op_attr_block_size, 0);
    if (dim_known(last) && (given > 0 ? last % given != 0 : last != 0 && !is_power_of_two(last))) {
        return FAIL_SHAPE(
            node, "the last dimension of tensor %" PRIu64 " is %" PRId64 ", which is not %s", x->id,
            last, given > 0 ? "whole blocks" : "a power of two");
    }
    return shape_put(node, &out[0], x->ndims, x->dims);
}
