/* Convolution and its transpose, as products of patches and weights: a row has what the window at
 * one result covers, zeros for padding included, a column the weights of one output channel. The
 * product is that of MatMul, with its bounds. */
#include <stdlib.h>

#include "image.h"

typedef struct conv {
    image_t image;
    bool transposed;
    int64_t groups, in_each, out_each, taps; /* channels of a group; elements of the window */
    int64_t batch, results;                  /* of one image */
    int64_t dims[SINTER_MAX_NDIMS];          /* of the output */
    slider_t s[SINTER_MAX_NDIMS];
    int w_spatial, w_in, w_out; /* dims of the weights: the first spatial one, channels */
} conv_t;

static int read_conv(orc_ctx_t *c, conv_t *k)
{
    const orc_value_t *x = c->in[0], *w = c->in[1];
    const char *format =
        orc_attr_str(c, sinter_op_attr_weights_format, k->transposed ? "XOI" : "XIO");
    int64_t size;

    if (orc_image(c, x, &k->image)) {
        return -1;
    }
    if (w->lt.ndims != k->image.ndims) {
        return orc_fail(c, "weights have other dims than the image");
    }
    k->w_spatial = format[0] == 'X' ? 0 : 2;
    size = format[0] == 'X' ? k->image.n : 0; /* the first dim of channels */
    k->w_in = (int)size + (format[format[0] == 'X' ? 1 : 0] == 'I' ? 0 : 1);
    k->w_out = (int)size + (format[format[0] == 'X' ? 1 : 0] == 'I' ? 1 : 0);
    k->groups = orc_attr_s64(c, sinter_op_attr_groups, 1);
    k->in_each = x->lt.dims[k->image.channel] / k->groups;
    k->out_each = k->transposed ? w->lt.dims[k->w_out] : w->lt.dims[k->w_out] / k->groups;
    if (w->lt.dims[k->w_in] != (k->transposed ? k->in_each * k->groups : k->in_each)) {
        return orc_fail(c, "weights are for other channels");
    }
    k->batch = x->lt.dims[0];
    k->results = k->taps = 1;
    k->dims[0] = k->batch;
    k->dims[k->image.channel] = k->out_each * k->groups;
    for (int i = 0; i < k->image.n; i++) {
        const int d = k->image.first + i;
        const int64_t kernel = w->lt.dims[k->w_spatial + i];
        const orc_attr_t *more = orc_attr(c, sinter_op_attr_output_padding),
                         *ends = orc_attr(c, sinter_op_attr_pads_end);
        slider_t *s = &k->s[i];
        if (!k->transposed) {
            if (orc_slider(c, &k->image, i, kernel, x->lt.dims[d], s)) {
                return -1;
            }
            k->dims[d] = s->positions;
        } else {
            const char *pad = orc_attr_str(c, sinter_op_attr_auto_pad, "None");
            const bool same = (pad[0] | 32) == 's', valid = (pad[0] | 32) == 'v';
            /* Positions of the window are elements of the input; it slides over the output. */
            if (orc_slider(c, &k->image, i, kernel, INT32_MAX, s)) {
                return -1;
            }
            s->positions = x->lt.dims[d];
            const int64_t extent = (s->positions - 1) * s->stride + (kernel - 1) * s->dilation + 1;
            const int64_t end = valid || !ends ? 0 : ends->s64[i];
            k->dims[d] = same ? s->positions * s->stride
                              : extent - s->before - end + (more ? more->s64[i] : 0);
            if (same) {
                const int64_t all = extent > k->dims[d] ? extent - k->dims[d] : 0;
                s->before = strlen(pad) > 6 && (pad[5] | 32) == 'u' ? all / 2 : all - all / 2;
            }
        }
        k->results *= k->dims[d];
        k->taps *= kernel;
    }
    return orc_shape(c, 0, k->image.ndims, k->dims);
}

/* Copies element `from` of one value to element `to` of another; -1: a zero. */
static void copy(const orc_value_t *x, int64_t from, orc_value_t *y, size_t to)
{
    y->v[to] = from < 0 ? 0 : x->v[from];
    if (y->b) {
        y->b[to] = from < 0 ? 0 : x->b[from];
    }
    if (y->scale) {
        y->scale[to] = from < 0 ? 1 : x->scale[from];
    }
}

static int like(orc_ctx_t *c, const orc_value_t *x, int64_t a, int64_t b, int64_t d, orc_value_t *y)
{
    *y = (orc_value_t){.lt = x->lt,
                       .walked = x->walked,
                       .probabilities = x->probabilities,
                       .from_int = x->from_int,
                       .small_codes = x->small_codes,
                       .beyond = x->beyond};
    y->lt.ndims = 3;
    y->lt.dims[0] = a;
    y->lt.dims[1] = b;
    y->lt.dims[2] = d;
    y->n = orc_count(y->lt.dims, 3);
    if (y->n > (size_t)1 << 31) {
        return orc_fail(c, "patches of %zu elements", y->n);
    }
    if (orc_alloc(c, y, x->b != NULL)) {
        return -1;
    }
    y->scale = x->scale ? orc_doubles(y->n) : NULL;
    return 0;
}

/* One scale for everything that a row or a column reduces: runs of together[d] elements of dim
 * d. */
static bool one_scale(const orc_value_t *x, const int64_t *together)
{
    for (int d = 0; d < x->lt.ndims; d++) {
        if (x->group[d] < x->lt.dims[d] && x->group[d] % together[d] != 0) {
            return false;
        }
    }
    return true;
}

/* Where the element of the image lies that tap[] meets at the result at[], -1 in the padding. */
static int64_t image_element(const conv_t *k, const orc_value_t *x, const int64_t *at,
                             const int64_t *tap, int64_t channel)
{
    int64_t from = 0;
    for (int d = 0; d < k->image.ndims; d++) {
        int64_t i = d == 0 ? at[0] : channel;
        if (d != 0 && d != k->image.channel) {
            const slider_t *s = &k->s[d - k->image.first];
            const int64_t step = tap[d - k->image.first] * s->dilation;
            i = k->transposed ? at[d] + s->before - step : at[d] * s->stride - s->before + step;
            if (k->transposed && (i < 0 || i % s->stride != 0)) {
                return -1;
            }
            i = k->transposed ? i / s->stride : i;
            if (i < 0 || i >= x->lt.dims[d]) {
                return -1;
            }
        }
        from = from * x->lt.dims[d] + i;
    }
    return from;
}

static int make_patches(orc_ctx_t *c, const conv_t *k, orc_value_t *to)
{
    const orc_value_t *x = c->in[0];
    const int64_t rows = k->batch * k->results, K = k->taps * k->in_each;
    int64_t kernel[SINTER_MAX_NDIMS], spatial[SINTER_MAX_NDIMS];

    if (like(c, x, k->groups, rows, K, to)) {
        return -1;
    }
    to->group[0] = to->group[1] = 1;
    to->group[2] = one_scale(x, x->lt.dims) ? K : 1;
    for (int i = 0; i < k->image.n; i++) {
        kernel[i] = k->s[i].kernel;
        spatial[i] = k->dims[k->image.first + i];
    }
#pragma omp parallel for
    for (int64_t r = 0; r < k->groups * rows; r++) {
        const int64_t group = r / rows, row = r % rows;
        int64_t at[SINTER_MAX_NDIMS] = {0}, tap[SINTER_MAX_NDIMS];
        at[0] = row / k->results;
        orc_index(spatial, k->image.n, (size_t)(row % k->results), at + k->image.first);
        for (int64_t i = 0; i < K; i++) {
            orc_index(kernel, k->image.n, (size_t)(i / k->in_each), tap);
            copy(x, image_element(k, x, at, tap, group * k->in_each + i % k->in_each), to,
                 (size_t)(r * K + i));
        }
    }
    return 0;
}

static int make_columns(orc_ctx_t *c, const conv_t *k, orc_value_t *to)
{
    const orc_value_t *w = c->in[1];
    const int64_t K = k->taps * k->in_each, N = k->out_each;
    int64_t kernel[SINTER_MAX_NDIMS], together[SINTER_MAX_NDIMS], n_scaled = w->group[k->w_out];

    if (like(c, w, k->groups, K, N, to)) {
        return -1;
    }
    memcpy(together, w->lt.dims, sizeof together);
    together[k->w_in] = k->in_each;
    together[k->w_out] = 1;
    to->group[0] = 1;
    to->group[1] = one_scale(w, together) ? K : 1;
    to->group[2] = n_scaled >= N ? N : 1;
    for (int i = 0; i < k->image.n; i++) {
        kernel[i] = k->s[i].kernel;
    }
#pragma omp parallel for
    for (int64_t j = 0; j < k->groups * K; j++) {
        const int64_t group = j / K, i = j % K;
        int64_t at[SINTER_MAX_NDIMS], tap[SINTER_MAX_NDIMS];
        orc_index(kernel, k->image.n, (size_t)(i / k->in_each), tap);
        memcpy(at + k->w_spatial, tap, sizeof *at * (size_t)k->image.n);
        at[k->w_in] = i % k->in_each + (k->transposed ? group * k->in_each : 0);
        for (int64_t n = 0; n < N; n++) {
            int64_t from = 0;
            at[k->w_out] = n + (k->transposed ? 0 : group * N);
            for (int d = 0; d < w->lt.ndims; d++) {
                from = from * w->lt.dims[d] + at[d];
            }
            copy(w, from, to, (size_t)(j * N + n));
        }
    }
    return 0;
}

/* From [group][row][channel of the group] to the output, with the bias. */
static void put_results(const orc_ctx_t *c, const conv_t *k, const orc_value_t *product)
{
    const orc_value_t *bias = c->n_in > 2 ? c->in[2] : NULL;
    orc_value_t *out = c->out[0];
    int64_t spatial[SINTER_MAX_NDIMS];

    for (int i = 0; i < k->image.n; i++) {
        spatial[i] = k->dims[k->image.first + i];
    }
#pragma omp parallel for
    for (size_t i = 0; i < out->n; i++) {
        int64_t at[SINTER_MAX_NDIMS], row;
        size_t from;
        orc_index(k->dims, k->image.ndims, i, at);
        row = at[0];
        for (int d = 0; d < k->image.n; d++) {
            row = row * spatial[d] + at[k->image.first + d];
        }
        const int64_t channel = at[k->image.channel], group = channel / k->out_each;
        from =
            (size_t)((group * k->batch * k->results + row) * k->out_each + channel % k->out_each);
        out->v[i] = product->v[from];
        out->b[i] = product->b[from];
        if (bias) {
            out->b[i] += orc_f32_error(out->v[i], out->b[i]) + (bias->b ? bias->b[channel] : 0);
            out->v[i] += bias->v[channel];
        }
    }
}

static int convolve(orc_ctx_t *c, bool transposed)
{
    const orc_op_t plain = {.id = c->op->id, .kind = sinter_op_matmul};
    orc_ctx_t sub = *c;
    orc_value_t patches = {0}, columns = {0}, product = {.lt = c->out[0]->lt};
    conv_t k = {.transposed = transposed};
    int failed;

    if (read_conv(c, &k)) {
        return -1;
    }
    product.lt.ndims = -1;
    product.lt.data_type = sinter_f32;
    sub.op = &plain;
    sub.n_in = 2;
    sub.in[0] = &patches;
    sub.in[1] = &columns;
    sub.out[0] = &product;
    failed = make_patches(c, &k, &patches) || make_columns(c, &k, &columns) ||
             oracle_matmul(&sub) || orc_alloc(c, c->out[0], true);
    if (!failed) {
        put_results(c, &k, &product);
        c->out[0]->walked = product.walked;
    }
    orc_value_clear(&patches);
    orc_value_clear(&columns);
    orc_value_clear(&product);
    return failed ? -1 : 0;
}

int oracle_convolution(orc_ctx_t *c)
{
    return convolve(c, false);
}

int oracle_conv_transpose(orc_ctx_t *c)
{
    return convolve(c, true);
}
