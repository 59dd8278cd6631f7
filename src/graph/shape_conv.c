/* Shape rules over sliding windows: pooling, convolution and its gradients, interpolation. */
#include <string.h>
#include <strings.h>

#include "base/alloc.h"
#include "graph/attr.h"
#include "graph/shape.h"
#include "graph/window.h"

/* Where a tensor keeps its channels and its spatial dims. */
typedef struct image {
    const lt_t *lt;
    int channel, first, n; /* n spatial dims from first on */
} image_t;

typedef struct weights {
    const lt_t *lt;
    int64_t i, o; /* channels by the letters of weights_format */
    int first;    /* spatial dims */
} weights_t;

static sinter_status_t read_image(const node_t *node, const lt_t *lt, image_t *image)
{
    if (lt->ndims < 3) {
        return FAIL_SHAPE(
            node,
            "tensor %" PRIu64
            " has %d dimensions: batch, channels and at least one spatial one are needed",
            lt->id, (int)lt->ndims);
    }
    int channel = shape_channel_dim(node, lt);
    *image = (image_t){lt, channel, channel == 1 ? 2 : 1, lt->ndims - 2};
    return sinter_success;
}

static sinter_status_t read_weights(const node_t *node, const lt_t *lt, int n_spatial,
                                    const char *otherwise, weights_t *w)
{
    const char *format = node_str(node, sinter_op_attr_weights_format, otherwise);
    bool spatial_first = format[0] == 'X';
    if (node->grouped_weights) { /* [groups, window, I, O] */
        const bool transposed = node->kind == sinter_op_conv_transpose;
        const int64_t groups = lt->dims[0], i = lt->dims[n_spatial + 1],
                      o = lt->dims[n_spatial + 2];
        *w = (weights_t){lt, transposed ? i * groups : i, transposed ? o : o * groups, 1};
        return sinter_success;
    }
    if (lt->ndims != n_spatial + 2) {
        return FAIL_SHAPE(node, "weights, tensor %" PRIu64 ", have %d dimensions, %d expected",
                          lt->id, (int)lt->ndims, n_spatial + 2);
    }
    const int64_t *letters = &lt->dims[spatial_first ? n_spatial : 0];
    bool i_first = format[spatial_first ? 1 : 0] == 'I';
    *w = (weights_t){lt, letters[i_first ? 0 : 1], letters[i_first ? 1 : 0], spatial_first ? 0 : 2};
    return sinter_success;
}

/* A vector attribute with one value for each spatial dim. Some producers write output_padding with
 * more values than that, which must be 0. */
static sinter_status_t spatial_attr(const node_t *node, sinter_op_attr_t id, int n, int at,
                                    int64_t otherwise, int64_t *value)
{
    const attr_t *attr = node_attr(node, id);
    bool fits = attr == NULL || attr->n == (size_t)n ||
                (id == sinter_op_attr_output_padding && attr->n > (size_t)n);
    for (size_t i = (size_t)n; fits && attr != NULL && i < attr->n; i++) {
        fits = attr->s64[i] == 0;
    }
    if (!fits) {
        return FAIL_SHAPE(node, "attribute %s has %zu values for %d spatial dimensions",
                          attr_name(id), attr->n, n);
    }
    *value = attr != NULL ? attr->s64[at] : otherwise;
    return sinter_success;
}

sinter_status_t window_read(const node_t *node, int n, int at, int64_t kernel, window_t *w)
{
    const char *pad = node_str(node, sinter_op_attr_auto_pad, "None");
    w->same = strncasecmp(pad, "same", 4) == 0;
    w->lower = strcasecmp(pad, "same_lower") == 0;
    w->valid = strcasecmp(pad, "valid") == 0;
    w->ceil = strcmp(node_str(node, sinter_op_attr_rounding_type, "floor"), "ceil") == 0;
    w->kernel = kernel;
    SG_TRY(spatial_attr(node, sinter_op_attr_strides, n, at, 1, &w->stride));
    SG_TRY(spatial_attr(node, sinter_op_attr_dilations, n, at, 1, &w->dilation));
    SG_TRY(spatial_attr(node, sinter_op_attr_pads_begin, n, at, 0, &w->pad_begin));
    SG_TRY(spatial_attr(node, sinter_op_attr_pads_end, n, at, 0, &w->pad_end));
    SG_TRY(spatial_attr(node, sinter_op_attr_output_padding, n, at, 0, &w->extra));
    if (w->valid || w->same) {
        w->pad_begin = w->pad_end = 0;
    }
    const int64_t most = INT32_MAX;
    if (w->pad_begin > most || w->pad_end > most || w->pad_begin < -most || w->pad_end < -most) {
        return FAIL_SHAPE(node, "padding of %" PRId64 " and %" PRId64 " in spatial dimension %d",
                          w->pad_begin, w->pad_end, at);
    }
    return sinter_success;
}

int64_t window_begin(const window_t *w, int64_t size, int64_t positions)
{
    const int64_t all =
        w->same ? (positions - 1) * w->stride + (w->kernel - 1) * w->dilation + 1 - size : 0;
    return !w->same ? w->pad_begin : all > 0 ? (all + w->lower) / 2 : 0;
}

/* (kernel - 1) * dilation + 1; false on overflow. */
static bool window_extent(const window_t *w, int64_t *extent)
{
    return mul_i64(w->kernel - 1, w->dilation, extent) && add_i64(*extent, 1, extent);
}

/* The number of positions of the window: (in + pads - extent) / stride + 1. */
static sinter_status_t slide(const node_t *node, const window_t *w, int64_t in, int at,
                             int64_t *out)
{
    int64_t extent, room;
    *out = UNKNOWN;
    if (!dim_known(in) || !dim_known(w->kernel)) {
        return sinter_success;
    }
    if (w->same) {
        *out = in / w->stride + (in % w->stride != 0);
        return window_extent(w, &extent) && add_i64(in, w->stride, &room) &&
                       add_i64(room, extent, &room)
                   ? sinter_success
                   : FAIL_SHAPE(node, "window of spatial dimension %d overflows", at);
    }
    if (!window_extent(w, &extent) || !add_i64(in, w->pad_begin, &room) ||
        !add_i64(room, w->pad_end, &room)) {
        return FAIL_SHAPE(node, "window of spatial dimension %d overflows", at);
    }
    if (extent > room) { /* negative padding may leave nothing */
        return FAIL_SHAPE(node,
                          "window of %" PRId64 " elements does not fit into the %" PRId64
                          " of spatial dimension %d",
                          extent, room, at);
    }
    room -= extent;
    *out = room / w->stride + (w->ceil && room % w->stride != 0) + 1;
    return sinter_success;
}

/* The inverse: stride * (in - 1) + extent - pads + output_padding. */
static sinter_status_t unslide(const node_t *node, const window_t *w, int64_t in, int at,
                               int64_t *out)
{
    int64_t extent, size;
    *out = UNKNOWN;
    if (!dim_known(in) || !dim_known(w->kernel)) {
        return sinter_success;
    }
    bool fits = w->same ? mul_i64(in, w->stride, &size)
                        : window_extent(w, &extent) && mul_i64(in - 1, w->stride, &size) &&
                              add_i64(size, extent, &size) && add_i64(size, w->extra, &size);
    fits = fits && add_i64(size, -w->pad_begin, &size) && add_i64(size, -w->pad_end, &size);
    if (!fits || size < 0) {
        return FAIL_SHAPE(node, "spatial dimension %d comes out negative or overflows", at);
    }
    *out = size;
    return sinter_success;
}

typedef sinter_status_t (*window_fn_t)(const node_t *node, const window_t *w, int64_t in, int at,
                                       int64_t *out);

/* An output with the batch and format of the image, `channels` channels, and the spatial dims that
 * fn computes. w NULL: the size of the window is the attribute kernel. */
static sinter_status_t put_image(const node_t *node, const image_t *image, const weights_t *w,
                                 int64_t channels, window_fn_t fn, lt_t *out)
{
    int64_t dims[SINTER_MAX_NDIMS];
    dims[0] = image->lt->dims[0];
    dims[image->channel] = channels;
    for (int i = 0; i < image->n; i++) {
        int64_t kernel = w != NULL ? w->lt->dims[w->first + i] : 0;
        window_t window = {0};
        if (w == NULL) {
            SG_TRY(spatial_attr(node, sinter_op_attr_kernel, image->n, i, 1, &kernel));
        }
        SG_TRY(window_read(node, image->n, i, kernel, &window));
        if (kernel == 0) {
            return FAIL_SHAPE(
                node, "weights, tensor %" PRIu64 ", have no elements in spatial dimension %d",
                w->lt->id, i);
        }
        SG_TRY(fn(node, &window, image->lt->dims[image->first + i], i, &dims[image->first + i]));
    }
    return shape_put(node, out, image->lt->ndims, dims);
}

sinter_status_t shape_pool(const node_t *node, lt_t *in, lt_t *out)
{
    image_t image = {0};
    if (in[0].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(read_image(node, &in[0], &image));
    return put_image(node, &image, NULL, in[0].dims[image.channel], slide, &out[0]);
}

/* The attribute holds the whole shape of the output. */
static sinter_status_t put_attr(const node_t *node, sinter_op_attr_t id, lt_t *out)
{
    const attr_t *attr = node_attr(node, id);
    int64_t dims[SINTER_MAX_NDIMS];
    if (attr == NULL || attr->n == 0) {
        return sinter_success;
    }
    if (attr->n > SINTER_MAX_NDIMS) {
        return FAIL_SHAPE(node, "attribute %s has %zu values, at most %d are possible",
                          attr_name(id), attr->n, SINTER_MAX_NDIMS);
    }
    memcpy(dims, attr->s64, sizeof dims[0] * attr->n);
    return shape_put(node, out, (int)attr->n, dims);
}

sinter_status_t shape_src_shape(const node_t *node, lt_t *in, lt_t *out)
{
    (void)in;
    return put_attr(node, sinter_op_attr_src_shape, &out[0]);
}

sinter_status_t shape_weights_shape(const node_t *node, lt_t *in, lt_t *out)
{
    (void)in;
    return put_attr(node, sinter_op_attr_weights_shape, &out[0]);
}

/* ---- convolution ----------------------------------------------------------------------------- */

static bool mul_dim(int64_t a, int64_t b, int64_t *out)
{
    *out = UNKNOWN;
    return !dim_known(a) || !dim_known(b) || mul_i64(a, b, out);
}

/* Checks that the data has as many channels as the weights: per_group times the number of
 * groups. */
static sinter_status_t match_channels(const node_t *node, const image_t *image, const weights_t *w,
                                      int64_t per_group, int64_t groups)
{
    int64_t want, have = image->lt->dims[image->channel];
    if (!mul_dim(per_group, groups, &want) || !dims_may_equal(have, want)) {
        return FAIL_SHAPE(node,
                          "tensor %" PRIu64 " has %" PRId64 " channels, weights, tensor %" PRIu64
                          ", are for %" PRId64 " with %" PRId64 " groups",
                          image->lt->id, have, w->lt->id, want, groups);
    }
    return sinter_success;
}

/* Checks that the groups divide the channels which the shape of the weights counts for all groups
 * together. */
static sinter_status_t match_groups(const node_t *node, const weights_t *w, int64_t channels,
                                    int64_t groups)
{
    return !dim_known(channels) || channels % groups == 0
               ? sinter_success
               : FAIL_SHAPE(node,
                            "weights, tensor %" PRIu64 ": %" PRId64 " groups do not divide %" PRId64
                            " channels",
                            w->lt->id, groups, channels);
}

static sinter_status_t match_bias(const node_t *node, const lt_t *in, int64_t channels)
{
    const lt_t *bias = &in[2];
    if (node->n_in < 3 || bias->ndims < 0) {
        return sinter_success;
    }
    return bias->ndims == 1 && dims_may_equal(bias->dims[0], channels)
               ? sinter_success
               : FAIL_SHAPE(node,
                            "bias, tensor %" PRIu64 ", must be one value for each of the %" PRId64
                            " channels",
                            bias->id, channels);
}

sinter_status_t shape_conv(const node_t *node, lt_t *in, lt_t *out)
{
    bool transposed = node->kind == sinter_op_conv_transpose_backward_data;
    int64_t groups = node_s64(node, sinter_op_attr_groups, 1);
    image_t image = {0};
    weights_t w = {0};
    if (in[0].ndims < 0 || in[1].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(read_image(node, &in[0], &image));
    SG_TRY(read_weights(node, &in[1], image.n, transposed ? "XOI" : "XIO", &w));
    SG_TRY(match_channels(node, &image, &w, transposed ? w.o : w.i, groups));
    SG_TRY(match_groups(node, &w, transposed ? w.i : w.o, groups));
    if (!transposed) {
        SG_TRY(match_bias(node, in, w.o));
    }
    return put_image(node, &image, &w, transposed ? w.i : w.o, slide, &out[0]);
}

/* The result of a ConvTranspose, or the gradient of a Convolution's data: the smallest image whose
 * convolution has the shape of in[0]. */
static sinter_status_t put_grown(const node_t *node, lt_t *in, bool gradient, lt_t *out)
{
    int64_t channels, groups = node_s64(node, sinter_op_attr_groups, 1);
    image_t image = {0};
    weights_t w = {0};
    SG_TRY(read_image(node, &in[0], &image));
    SG_TRY(read_weights(node, &in[1], image.n, gradient ? "XIO" : "XOI", &w));
    const int64_t from = gradient ? w.o : w.i;
    SG_TRY(match_channels(node, &image, &w, from, 1));
    SG_TRY(match_groups(node, &w, from, groups));
    if (!mul_dim(gradient ? w.i : w.o, groups, &channels)) {
        return FAIL_SHAPE(node, "channels of tensor %" PRIu64 " overflow", out[0].id);
    }
    if (!gradient) {
        SG_TRY(match_bias(node, in, channels));
    }
    return put_image(node, &image, &w, channels, unslide, &out[0]);
}

sinter_status_t shape_conv_transpose(const node_t *node, lt_t *in, lt_t *out)
{
    return in[0].ndims < 0 || in[1].ndims < 0 ? sinter_success : put_grown(node, in, false, out);
}

/* The gradient with respect to the data has the shape dst_shape, an attribute or an input, if there
 * is one. */
sinter_status_t shape_dst_shape(const node_t *node, lt_t *in, lt_t *out)
{
    const attr_t *given = node_attr(node, sinter_op_attr_dst_shape);
    return in[0].ndims < 0 || in[1].ndims < 0 || node->n_in > 2 || (given != NULL && given->n > 0)
               ? put_attr(node, sinter_op_attr_dst_shape, &out[0])
               : put_grown(node, in, true, out);
}

/* ---- interpolation --------------------------------------------------------------------------- */

sinter_status_t shape_interpolate(const node_t *node, lt_t *in, lt_t *out)
{
    const attr_t *sizes = node_attr(node, sinter_op_attr_sizes),
                 *scales = sizes == NULL ? node_attr(node, sinter_op_attr_scales) : NULL;
    int64_t dims[SINTER_MAX_NDIMS];
    image_t image = {0};
    if (in[0].ndims < 0) {
        return sinter_success;
    }
    SG_TRY(read_image(node, &in[0], &image));
    size_t given = sizes != NULL ? sizes->n : scales != NULL ? scales->n : (size_t)image.n;
    if (given != (size_t)image.n) {
        return FAIL_SHAPE(node, "%zu sizes or scales are given for %d spatial dimensions", given,
                          image.n);
    }
    memcpy(dims, in[0].dims, sizeof dims);
    for (int i = 0; i < image.n; i++) {
        int64_t *dim = &dims[image.first + i];
        double scaled =
            scales != NULL && dim_known(*dim) ? (double)*dim * (double)scales->f32[i] : 0;
        if (scaled < 0 || scaled > (double)INT32_MAX) {
            return FAIL_SHAPE(node, "scales[%d] leads to no size of tensor %" PRIu64, i, out[0].id);
        }
        int64_t most; /* the coordinates of results are fractions of such numbers */
        if (sizes != NULL && dim_known(*dim) &&
            (!mul_i64(sizes->s64[i], *dim, &most) || !mul_i64(most, 4, &most))) {
            return FAIL_SHAPE(node, "sizes[%d] is too large for tensor %" PRIu64, i, out[0].id);
        }
        *dim = sizes != NULL                        ? sizes->s64[i]
               : scales == NULL || !dim_known(*dim) ? UNKNOWN
                                                    : (int64_t)scaled;
    }
    return shape_put(node, &out[0], in[0].ndims, dims);
}
