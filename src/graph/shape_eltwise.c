/* Shape rules of elementwise ops, their gradients, and side inputs that follow the channels. */
#include <string.h>

#include "graph/shape.h"

sinter_status_t shape_none(const node_t *node, lt_t *in, lt_t *out)
{
    (void)node, (void)in, (void)out;
    return sinter_success;
}

sinter_status_t shape_same(const node_t *node, lt_t *in, lt_t *out)
{
    return shape_put(node, &out[0], in[0].ndims, in[0].dims);
}

/* Dims of a against b by numpy's rule, or equal ones with auto_broadcast none. */
static sinter_status_t broadcast_pair(const node_t *node, const lt_t *a, const lt_t *b, lt_t *out)
{
    bool numpy = strcmp(node_str(node, sinter_op_attr_auto_broadcast, "numpy"), "numpy") == 0;
    if (!numpy && !lt_dims_may_equal(a, b)) {
        return FAIL_SHAPE(node,
                          "tensors %" PRIu64 " and %" PRIu64
                          " must have the same dims with auto_broadcast none",
                          a->id, b->id);
    }
    if (!broadcast_dims(a, b, out)) {
        return FAIL_SHAPE(node, "tensors %" PRIu64 " and %" PRIu64 " do not broadcast", a->id,
                          b->id);
    }
    return sinter_success;
}

/* The inputs broadcast to the result. */
static sinter_status_t broadcast_back(const node_t *node, lt_t *in, lt_t *out)
{
    for (int i = 0; i < node->n_in; i++) {
        if (!shape_broadcasts_to(&in[i], out)) {
            return FAIL_SHAPE(node, "tensor %" PRIu64 " does not broadcast to tensor %" PRIu64,
                              in[i].id, out->id);
        }
    }
    return sinter_success;
}

sinter_status_t shape_broadcast(const node_t *node, lt_t *in, lt_t *out)
{
    lt_t both;
    SG_TRY(broadcast_pair(node, &in[0], &in[1], &both));
    SG_TRY(shape_put(node, &out[0], both.ndims, both.dims));
    return broadcast_back(node, in, &out[0]);
}

sinter_status_t shape_select(const node_t *node, lt_t *in, lt_t *out)
{
    lt_t both, all;
    SG_TRY(broadcast_pair(node, &in[1], &in[2], &both));
    both.id = in[1].id;
    SG_TRY(broadcast_pair(node, &in[0], &both, &all));
    SG_TRY(shape_put(node, &out[0], all.ndims, all.dims));
    return broadcast_back(node, in, &out[0]);
}

sinter_status_t shape_channel(const node_t *node, lt_t *in, lt_t *out)
{
    return shape_put_channels(node, &in[0], &out[0]);
}

sinter_status_t shape_prelu_bwd(const node_t *node, lt_t *in, lt_t *out)
{
    SG_TRY(shape_put(node, &out[0], in[0].ndims, in[0].dims));
    return shape_put(node, &out[1], in[1].ndims, in[1].dims);
}

sinter_status_t shape_dropout(const node_t *node, lt_t *in, lt_t *out)
{
    for (int i = 0; i < node->n_out; i++) {
        SG_TRY(shape_put(node, &out[i], in[0].ndims, in[0].dims));
    }
    for (int i = 1; i < node->n_in; i++) {
        if (lt_dims_known(&in[i]) && lt_elems(&in[i]) != 1) {
            return FAIL_SHAPE(node, "tensor %" PRIu64 " must have one element", in[i].id);
        }
    }
    return sinter_success;
}

/* ---- dims that cards check beside the rule --------------------------------------------------- */

sinter_status_t dims_axis(const node_t *node, lt_t *in, lt_t *out)
{
    int axis;
    (void)out;
    return in[0].ndims < 0
               ? sinter_success
               : shape_axis(node, node_s64(node, sinter_op_attr_axis, -1), &in[0], &axis);
}

sinter_status_t dims_grad(const node_t *node, lt_t *in, lt_t *out)
{
    (void)out;
    return lt_dims_may_equal(&in[0], &in[1])
               ? sinter_success
               : FAIL_SHAPE(node, "tensors %" PRIu64 " and %" PRIu64 " must have the same dims",
                            in[0].id, in[1].id);
}

/* vector holds one value for each channel of src. */
static sinter_status_t unify_channels(const node_t *node, lt_t *src, lt_t *vector)
{
    if (src->ndims < 0 || vector->ndims < 0) {
        return sinter_success;
    }
    if (src->ndims == 0 || vector->ndims != 1 ||
        !dims_unify(&vector->dims[0], &src->dims[shape_channel_dim(node, src)])) {
        return FAIL_SHAPE(
            node, "tensor %" PRIu64 " must be one value for each channel of tensor %" PRIu64,
            vector->id, src->id);
    }
    return sinter_success;
}

sinter_status_t dims_bias_add(const node_t *node, lt_t *in, lt_t *out)
{
    (void)out;
    return unify_channels(node, &in[0], &in[1]);
}

sinter_status_t dims_channel_params(const node_t *node, lt_t *in, lt_t *out)
{
    (void)out;
    for (int i = 1; i < node->n_in; i++) {
        SG_TRY(unify_channels(node, &in[0], &in[i]));
    }
    return sinter_success;
}

sinter_status_t dims_prelu(const node_t *node, lt_t *in, lt_t *out)
{
    (void)out;
    lt_t *slope = &in[1];
    if (slope->ndims == 1 && slope->dims[0] != 1 && in[0].ndims > 0 &&
        node_bool(node, sinter_op_attr_per_channel_broadcast, true)) {
        return unify_channels(node, &in[0], slope);
    }
    return shape_broadcasts_to(slope, &in[0])
               ? sinter_success
               : FAIL_SHAPE(node,
                            "slope, tensor %" PRIu64 ", does not broadcast to tensor %" PRIu64,
                            slope->id, in[0].id);
}
