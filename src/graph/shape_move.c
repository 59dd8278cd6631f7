/* Shape rules of ops that move elements, of softmax and of quantisation. */
#include <string.h>

#include "base/alloc.h"
#include "graph/quant.h"
#include "graph/shape.h"

/* The statistics have one value for each row along the axis; sinks broadcast to them. */
static sinter_status_t check_sink(const node_t *node, lt_t *sink, lt_t *stats)
{
    return sink->ndims < 0 || shape_broadcasts_to(sink, stats)
               ? sinter_success
               : FAIL_SHAPE(node,
                            "sinks (tensor %" PRIu64 ") do not broadcast to one value for each row",
                            sink->id);
}

sinter_status_t shape_softmax(const node_t *node, lt_t *in, lt_t *out)
{
    int axis;
    if (in[0].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(shape_axis(node, node_s64(node, sinter_op_attr_axis, 1), &in[0], &axis));
    SG_TRY(shape_put(node, &out[0], in[0].ndims, in[0].dims));
    lt_t stats = in[0];
    stats.dims[axis] = 1;
    if (node->n_in > 1) {
        SG_TRY(check_sink(node, &in[1], &stats));
    }
    return node->n_out > 1 ? shape_put(node, &out[1], stats.ndims, stats.dims) : sinter_success;
}

/* ---- reshape --------------------------------------------------------------------------------- */

/* What attribute shape asks for. */
typedef struct target {
    int64_t dims[SINTER_MAX_NDIMS];
    bool copied[SINTER_MAX_NDIMS]; /* the input's dim at that place, by special_zero */
    int n, open;                   /* open: the place of -1, or -1 */
} target_t;

static sinter_status_t read_target(const node_t *node, const lt_t *in, target_t *to)
{
    const attr_t *shape = node_attr(node, sinter_op_attr_shape);
    bool special_zero = node_bool(node, sinter_op_attr_special_zero, false);
    to->n = (int)shape->n;
    to->open = -1;
    for (int i = 0; i < to->n; i++) {
        to->dims[i] = shape->s64[i];
        to->copied[i] = shape->s64[i] == 0 && special_zero;
        if (to->copied[i] && in->ndims >= 0 && i >= in->ndims) {
            return FAIL_SHAPE(
                node, "special_zero asks for dimension %d of tensor %" PRIu64 ", which has %d", i,
                in->id, (int)in->ndims);
        }
        if (to->copied[i]) {
            to->dims[i] = in->ndims < 0 ? UNKNOWN : in->dims[i];
        } else if (to->dims[i] == -1) {
            to->dims[i] = UNKNOWN;
            to->open = i;
        }
    }
    return sinter_success;
}

static bool copies_zero(const target_t *to)
{
    for (int i = 0; i < to->n; i++) {
        if (to->copied[i] && to->dims[i] == 0) {
            return true;
        }
    }
    return false;
}

/* Product of the known dims that are not copied, and how many are unknown. */
static sinter_status_t elements(const node_t *node, const lt_t *in, int n, const int64_t *dims,
                                const target_t *to, int64_t *product, int *unknown)
{
    *product = 1;
    *unknown = 0;
    for (int i = 0; i < n; i++) {
        if (i < to->n && to->copied[i]) {
            continue;
        }
        *unknown += !dim_known(dims[i]);
        if (dim_known(dims[i]) && !mul_i64(*product, dims[i], product)) {
            return FAIL_SHAPE(
                node, "the number of elements of tensor %" PRIu64 " overflows when reshaped",
                in->id);
        }
    }
    return sinter_success;
}

/* Dims that are copied stand on both sides: neither they nor what is not known of them matters
 * to the others. */
/* The one dim that is not known and not copied. */
static void fill_unknown(lt_t *in, const target_t *to, int64_t dim)
{
    for (int i = 0; i < in->ndims; i++) {
        if (!dim_known(in->dims[i]) && (i >= to->n || !to->copied[i])) {
            in->dims[i] = dim;
        }
    }
}

sinter_status_t shape_reshape(const node_t *node, lt_t *in, lt_t *out)
{
    target_t to;
    int64_t have, want;
    int have_unknown, want_unknown;
    SG_TRY(read_target(node, &in[0], &to));
    SG_TRY(elements(node, &in[0], in[0].ndims, in[0].dims, &to, &have, &have_unknown));
    SG_TRY(elements(node, &in[0], to.n, to.dims, &to, &want, &want_unknown));
    bool in_known = in[0].ndims >= 0 && have_unknown == 0;
    if (in_known && to.open >= 0) {
        if (want == 0 || have % want != 0) {
            return FAIL_SHAPE(node,
                              "-1 of attribute shape cannot be told from the %" PRId64
                              " elements of tensor %" PRIu64,
                              have, in[0].id);
        }
        to.dims[to.open] = have / want;
    } else if (in_known && have != want && !copies_zero(&to)) {
        return FAIL_SHAPE(
            node, "tensor %" PRIu64 " has %" PRId64 " elements, attribute shape asks for %" PRId64,
            in[0].id, have, want);
    }
    SG_TRY(shape_put(node, &out[0], to.n, to.dims));
    for (int i = 0; i < to.n && i < in[0].ndims; i++) {
        in[0].dims[i] = to.copied[i] ? to.dims[i] : in[0].dims[i];
    }
    SG_TRY(elements(node, &in[0], to.n, to.dims, &to, &want, &want_unknown));
    if (in[0].ndims >= 0 && want_unknown == 0 && have_unknown == 1 && have > 0 &&
        want % have == 0) {
        fill_unknown(&in[0], &to, want / have);
    }
    return sinter_success;
}

sinter_status_t shape_transpose(const node_t *node, lt_t *in, lt_t *out)
{
    int64_t dims[SINTER_MAX_NDIMS], from[SINTER_MAX_NDIMS];
    const attr_t *order = node_attr(node, sinter_op_attr_order);
    if (in[0].ndims >= 0 && order->n != (size_t)in[0].ndims) {
        return FAIL_SHAPE(node,
                          "attribute order has %zu values, tensor %" PRIu64 " has %d dimensions",
                          order->n, in[0].id, (int)in[0].ndims);
    }
    for (size_t i = 0; i < order->n; i++) {
        from[i] = order->s64[i] < 0 ? order->s64[i] + (int64_t)order->n : order->s64[i];
        dims[i] = in[0].ndims < 0 ? UNKNOWN : in[0].dims[from[i]];
    }
    SG_TRY(shape_put(node, &out[0], (int)order->n, dims));
    for (size_t i = 0; i < order->n; i++) {
        in[0].dims[from[i]] = dims[i];
    }
    return sinter_success;
}

sinter_status_t shape_concat(const node_t *node, lt_t *in, lt_t *out)
{
    lt_t sum = in[0];
    int axis;
    for (int i = 0; i < node->n_in; i++) {
        if (in[i].ndims < 0) {
            return sinter_success;
        }
    }
    SG_TRY(shape_axis(node, node_s64(node, sinter_op_attr_axis, 0), &in[0], &axis));
    for (int i = 1; i < node->n_in; i++) {
        if (in[i].ndims != sum.ndims) {
            return FAIL_SHAPE(
                node, "tensors %" PRIu64 " and %" PRIu64 " have different numbers of dimensions",
                in[0].id, in[i].id);
        }
        for (int d = 0; d < sum.ndims; d++) {
            int64_t dim = in[i].dims[d];
            if (d != axis && !dims_may_equal(sum.dims[d], dim)) {
                return FAIL_SHAPE(node,
                                  "tensors %" PRIu64 " and %" PRIu64 " differ in dimension %d",
                                  in[0].id, in[i].id, d);
            }
            if (d != axis) {
                sum.dims[d] = dim_known(dim) ? dim : sum.dims[d];
            } else if (!dim_known(dim) || !dim_known(sum.dims[d])) {
                sum.dims[d] = UNKNOWN;
            } else if (!add_i64(sum.dims[d], dim, &sum.dims[d])) {
                return FAIL_SHAPE(node, "dimension %d of tensor %" PRIu64 " overflows", d,
                                  out[0].id);
            }
        }
    }
    return shape_put(node, &out[0], sum.ndims, sum.dims);
}

/* ---- quantisation ---------------------------------------------------------------------------- */

/* dims of scales or zero points that the op computes: as many as there are groups. axis: of
 * channels, or -1. */
static sinter_status_t put_groups(const node_t *node, const lt_t *data, int axis,
                                  const int64_t *group, const int8_t *to_dim, lt_t *out)
{
    int64_t dims[SINTER_MAX_NDIMS];
    int n = 0;
    for (int i = 0; i < data->ndims; i++) {
        if (to_dim[i] < 0) {
            continue;
        }
        bool known = dim_known(data->dims[i]) && dim_known(group[i]) && group[i] > 0;
        dims[to_dim[i]] = axis >= 0 && i != axis ? 1
                          : known                ? quant_n_groups(data->dims[i], group[i])
                                                 : UNKNOWN;
        n++;
    }
    if (n == 0 && out->ndims > 0) { /* one value of whatever rank */
        for (n = 0; n < out->ndims; n++) {
            dims[n] = 1;
        }
    }
    return shape_put(node, out, n, dims);
}

sinter_status_t shape_dyn_quantize(const node_t *node, lt_t *in, lt_t *out)
{
    quant_geom_t geom;
    SG_TRY(shape_put(node, &out[0], in[0].ndims, in[0].dims));
    if (node->quant->high_port >= 0) {
        SG_TRY(shape_put(node, &out[node->quant->high_port], in[0].ndims, in[0].dims));
    }
    if (node->n_out < 2 || in[0].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(quant_geometry(node, in, out, &geom));
    SG_TRY(put_groups(node, &in[0], geom.axis, geom.scale_group, geom.scale_dim, &out[1]));
    return node->quant->has_zp
               ? put_groups(node, &in[0], geom.axis, geom.zp_group, geom.zp_dim, &out[2])
               : sinter_success;
}
