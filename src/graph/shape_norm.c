/* Shape rules of reductions and norms. */
#include <string.h>

#include "graph/shape.h"

/* ---- reductions ------------------------------------------------------------------------------ */

static sinter_status_t read_axes(const node_t *node, const lt_t *in, bool *reduced)
{
    const attr_t *axes = node_attr(node, sinter_op_attr_axes);
    for (size_t i = 0; i < axes->n; i++) {
        int axis;
        SG_TRY(shape_axis(node, axes->s64[i], in, &axis));
        if (reduced[axis]) {
            return FAIL_SHAPE(node, "axis %d is reduced twice", axis);
        }
        reduced[axis] = true;
    }
    return sinter_success;
}

/* If the axes are a tensor, no dim of the output is known, nor their number unless all are kept. */
static sinter_status_t put_open(const node_t *node, const lt_t *in, bool keep, lt_t *out)
{
    int64_t dims[SINTER_MAX_NDIMS];
    for (int i = 0; i < SINTER_MAX_NDIMS; i++) {
        dims[i] = UNKNOWN;
    }
    return keep ? shape_put(node, out, in->ndims, dims) : sinter_success;
}

sinter_status_t shape_reduce(const node_t *node, lt_t *in, lt_t *out)
{
    bool keep = node_bool(node, sinter_op_attr_keep_dims, false),
         reduced[SINTER_MAX_NDIMS] = {false};
    int64_t dims[SINTER_MAX_NDIMS];
    int n = 0;
    if (in[0].ndims < 0) {
        return sinter_success;
    }
    if (node->n_in > 1) {
        return put_open(node, &in[0], keep, &out[0]);
    }
    SG_TRY(read_axes(node, &in[0], reduced));
    for (int i = 0; i < in[0].ndims; i++) {
        if (keep || !reduced[i]) {
            dims[n++] = reduced[i] ? 1 : in[0].dims[i];
        }
    }
    return shape_put(node, &out[0], n, dims);
}

/* ---- norms ----------------------------------------------------------------------------------- */

/* All outputs but the first one are vectors over the channels. */
sinter_status_t shape_bn_train(const node_t *node, lt_t *in, lt_t *out)
{
    SG_TRY(shape_put(node, &out[0], in[0].ndims, in[0].dims));
    for (int i = 1; i < node->n_out; i++) {
        SG_TRY(shape_put_channels(node, &in[0], &out[i]));
    }
    return sinter_success;
}

sinter_status_t shape_bn_bwd(const node_t *node, lt_t *in, lt_t *out)
{
    return shape_bn_train(node, in, out);
}

/* Further outputs have the dims before begin_norm_axis, as statistics do, or the others. */
static sinter_status_t put_rows(const node_t *node, lt_t *in, lt_t *out, bool statistics)
{
    int axis;
    if (in[0].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(shape_axis(node, node_s64(node, sinter_op_attr_begin_norm_axis, -1), &in[0], &axis));
    SG_TRY(shape_put(node, &out[0], in[0].ndims, in[0].dims));
    for (int i = 1; i < node->n_out; i++) {
        SG_TRY(statistics ? shape_put(node, &out[i], axis, in[0].dims)
                          : shape_put(node, &out[i], in[0].ndims - axis, in[0].dims + axis));
    }
    return sinter_success;
}

sinter_status_t shape_layer_norm(const node_t *node, lt_t *in, lt_t *out)
{
    return put_rows(node, in, out, true);
}

/* The gradients of gamma and beta. */
sinter_status_t shape_layer_norm_bwd(const node_t *node, lt_t *in, lt_t *out)
{
    return put_rows(node, in, out, false);
}

/* gamma and beta broadcast to the dims from begin_norm_axis on, so that a vector over the last dim
 * is enough. */
sinter_status_t dims_row_params(const node_t *node, lt_t *in, lt_t *out)
{
    int axis;
    (void)out;
    if (in[0].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(shape_axis(node, node_s64(node, sinter_op_attr_begin_norm_axis, -1), &in[0], &axis));
    for (int i = 1; i < node->n_in; i++) {
        lt_t row = {.id = in[0].id, .ndims = in[0].ndims - axis};
        memcpy(row.dims, in[0].dims + axis, sizeof(int64_t) * (size_t)row.ndims);
        if (!shape_broadcasts_to(&in[i], &row)) {
            return FAIL_SHAPE(node,
                              "tensor %" PRIu64 " does not broadcast to the dims of tensor %" PRIu64
                              " from begin_norm_axis on",
                              in[i].id, in[0].id);
        }
        memcpy(in[0].dims + axis, row.dims, sizeof(int64_t) * (size_t)row.ndims);
    }
    return sinter_success;
}

/* Statistics have the dims [batch, groups]. */
sinter_status_t shape_group_norm(const node_t *node, lt_t *in, lt_t *out)
{
    int64_t groups = node_s64(node, sinter_op_attr_groups, 1);
    if (in[0].ndims < 0) {
        return sinter_success;
    }
    if (in[0].ndims < 2) {
        return FAIL_SHAPE(node, "tensor %" PRIu64 " has no batch and channels", in[0].id);
    }
    int64_t channels = in[0].dims[shape_channel_dim(node, &in[0])];
    if (dim_known(channels) && channels % groups != 0) {
        return FAIL_SHAPE(
            node, "%" PRId64 " groups do not divide the %" PRId64 " channels of tensor %" PRIu64,
            groups, channels, in[0].id);
    }
    SG_TRY(shape_put(node, &out[0], in[0].ndims, in[0].dims));
    for (int i = 1; i < node->n_out; i++) {
        SG_TRY(shape_put(node, &out[i], 2, (int64_t[]){in[0].dims[0], groups}));
    }
    return sinter_success;
}
