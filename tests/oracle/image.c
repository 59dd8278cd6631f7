/* Pooling and interpolation.
 *
 * Errors: an extreme lies between those of the ends of all intervals; an average has the errors of
 * its terms, and those of a sum in f32 and of a division; interpolation has those of its terms by
 * their weights, and a few roundings for each spatial dim. */
#include "image.h"

#include <strings.h>

int orc_image(orc_ctx_t *c, const orc_value_t *t, image_t *image)
{
    const bool last = strcmp(orc_attr_str(c, sinter_op_attr_data_format, "NXC"), "NXC") == 0;

    if (t->lt.ndims < 3) {
        return orc_fail(c, "an image of less than 3 dims");
    }
    *image = (image_t){.ndims = t->lt.ndims,
                       .n = t->lt.ndims - 2,
                       .channel = last ? t->lt.ndims - 1 : 1,
                       .first = last ? 1 : 2};
    return 0;
}

static int64_t at_dim(const orc_ctx_t *c, sinter_op_attr_t id, int i, int64_t missing)
{
    const orc_attr_t *a = orc_attr(c, id);
    return a && (size_t)i < a->n ? a->s64[i] : missing;
}

int orc_slider(orc_ctx_t *c, const image_t *image, int i, int64_t kernel, int64_t size, slider_t *s)
{
    const char *pad = orc_attr_str(c, sinter_op_attr_auto_pad, "None");
    const bool ceil = strcmp(orc_attr_str(c, sinter_op_attr_rounding_type, "floor"), "ceil") == 0;
    int64_t room, extent, after = at_dim(c, sinter_op_attr_pads_end, i, 0);

    (void)image;
    s->kernel = kernel;
    s->stride = at_dim(c, sinter_op_attr_strides, i, 1);
    s->dilation = at_dim(c, sinter_op_attr_dilations, i, 1);
    s->before = at_dim(c, sinter_op_attr_pads_begin, i, 0);
    extent = (kernel - 1) * s->dilation + 1;
    if (strcasecmp(pad, "valid") == 0) {
        s->before = after = 0;
    }
    if (strncasecmp(pad, "same", 4) == 0) {
        int64_t all;
        s->positions = (size + s->stride - 1) / s->stride;
        all = (s->positions - 1) * s->stride + extent - size;
        all = all > 0 ? all : 0;
        s->before = strcasecmp(pad, "same_upper") == 0 ? all / 2 : all - all / 2;
        return 0;
    }
    room = size + s->before + after - extent;
    if (kernel < 1 || room < 0) {
        return orc_fail(c, "a window does not fit");
    }
    s->positions = room / s->stride + (ceil && room % s->stride != 0) + 1;
    return 0;
}

void orc_index(const int64_t *dims, int n, size_t i, int64_t *at)
{
    for (int d = n - 1; d >= 0; d--) {
        at[d] = (int64_t)(i % (size_t)dims[d]);
        i /= (size_t)dims[d];
    }
}

/* ---- pooling --------------------------------------------------------------------------------- */

typedef struct pool {
    image_t image;
    slider_t s[SINTER_MAX_NDIMS];
    bool max, inside;
    double volume;
} pool_t;

/* One result, at[] its index. */
static double pool_at(const pool_t *p, const orc_value_t *in, const int64_t *at, double *bound)
{
    int64_t taps[SINTER_MAX_NDIMS] = {0};
    double v = p->max ? -INFINITY : 0, low = v, high = v, sizes = 0, errors = 0, n = 0;

    for (bool more = true; more;) {
        bool there = true;
        int64_t from[SINTER_MAX_NDIMS];
        memcpy(from, at, sizeof from);
        for (int i = 0; i < p->image.n; i++) {
            const slider_t *s = &p->s[i];
            const int d = p->image.first + i;
            from[d] = at[d] * s->stride - s->before + taps[i] * s->dilation;
            there = there && from[d] >= 0 && from[d] < in->lt.dims[d];
        }
        if (there) {
            size_t k = 0;
            for (int d = 0; d < p->image.ndims; d++) {
                k = k * (size_t)in->lt.dims[d] + (size_t)from[d];
            }
            const double x = in->v[k], e = in->b ? in->b[k] : 0;
            n++;
            sizes += fabs(x);
            errors += e;
            if (p->max) {
                v = isnan(x) || x > v ? x : v;
                low = isnan(x) || x - e > low ? x - e : low;
                high = isnan(x) || x + e > high ? x + e : high;
            } else {
                v += x;
            }
        }
        more = false;
        for (int i = p->image.n - 1; i >= 0 && !more; i--) {
            more = ++taps[i] < p->s[i].kernel;
            taps[i] = more ? taps[i] : 0;
        }
    }
    if (p->max) {
        *bound = orc_reach(v, low, high);
        return v;
    }
    n = p->inside ? n : p->volume;
    if (n == 0) { /* an average of nothing */
        *bound = 0;
        return 0;
    }
    *bound = (errors + (n < 6 * sqrt(n) ? n : 6 * sqrt(n)) * ORC_U * sizes) / n +
             4 * ORC_U * sizes / n + ORC_UNDERFLOW;
    return v / n;
}

static int pool(orc_ctx_t *c, bool max)
{
    const orc_value_t *in = c->in[0];
    const orc_attr_t *kernel = orc_attr(c, sinter_op_attr_kernel);
    orc_value_t *out = c->out[0];
    pool_t p = {.max = max, .volume = 1};
    int64_t dims[SINTER_MAX_NDIMS];

    if (orc_image(c, in, &p.image)) {
        return -1;
    }
    memcpy(dims, in->lt.dims, sizeof dims);
    for (int i = 0; i < p.image.n; i++) {
        const int d = p.image.first + i;
        if (!kernel || kernel->n != (size_t)p.image.n) {
            return orc_fail(c, "kernel has not one value for each spatial dim");
        }
        if (orc_slider(c, &p.image, i, kernel->s64[i], in->lt.dims[d], &p.s[i])) {
            return -1;
        }
        p.volume *= (double)kernel->s64[i];
        dims[d] = p.s[i].positions;
    }
    p.inside = !max && orc_attr_bool(c, sinter_op_attr_exclude_pad, false);
    if (orc_shape(c, 0, p.image.ndims, dims) || orc_alloc(c, out, true)) {
        return -1;
    }
#pragma omp parallel for
    for (size_t i = 0; i < out->n; i++) {
        int64_t at[SINTER_MAX_NDIMS];
        orc_index(dims, p.image.ndims, i, at);
        out->v[i] = pool_at(&p, in, at, &out->b[i]);
    }
    return 0;
}

int oracle_max_pool(orc_ctx_t *c)
{
    return pool(c, true);
}

int oracle_avg_pool(orc_ctx_t *c)
{
    return pool(c, false);
}

/* ---- interpolation --------------------------------------------------------------------------- */

/* The elements that a result takes along one dim, and their weights. */
typedef struct ends {
    int64_t at[2];
    double weight[2];
    int n;
} ends_t;

static ends_t ends_of(bool nearest, bool corners, int64_t size, int64_t results, int64_t o)
{
    /* The coordinate in the image is up / down; both are integers. */
    const int64_t down = corners ? (results > 1 ? results - 1 : 1) : 2 * results,
                  up = corners ? (results > 1 ? o * (size - 1) : 0) : (2 * o + 1) * size - results;
    const int64_t inside = up < 0 ? 0 : up > (size - 1) * down ? (size - 1) * down : up;
    const int64_t left = inside / down, rest = inside % down;
    if (nearest) { /* halves go up */
        return (ends_t){.at = {left + (2 * rest >= down)}, .weight = {1}, .n = 1};
    }
    return (ends_t){.at = {left, left + 1},
                    .weight = {1 - (double)rest / (double)down, (double)rest / (double)down},
                    .n = rest > 0 ? 2 : 1};
}

int oracle_interpolate(orc_ctx_t *c)
{
    const orc_value_t *in = c->in[0];
    const orc_attr_t *sizes = orc_attr(c, sinter_op_attr_sizes),
                     *scales = orc_attr(c, sinter_op_attr_scales);
    const bool nearest = strcmp(orc_attr_str(c, sinter_op_attr_mode, ""), "nearest") == 0,
               corners = strcmp(orc_attr_str(c, sinter_op_attr_coordinate_transformation_mode, ""),
                                "align_corners") == 0;
    orc_value_t *out = c->out[0];
    int64_t dims[SINTER_MAX_NDIMS];
    image_t image;

    if (c->n_in > 1) {
        return orc_fail(c, "sizes are a tensor");
    }
    if (orc_image(c, in, &image)) {
        return -1;
    }
    memcpy(dims, in->lt.dims, sizeof dims);
    for (int i = 0; i < image.n; i++) {
        const int d = image.first + i;
        dims[d] = sizes ? sizes->s64[i] : (int64_t)((double)dims[d] * (double)scales->f32[i]);
    }
    if (orc_shape(c, 0, image.ndims, dims) || orc_alloc(c, out, true)) {
        return -1;
    }
#pragma omp parallel for
    for (size_t i = 0; i < out->n; i++) {
        int64_t at[SINTER_MAX_NDIMS];
        ends_t ends[SINTER_MAX_NDIMS];
        int combinations = 1;
        double v = 0, size = 0, error = 0;
        orc_index(dims, image.ndims, i, at);
        for (int k = 0; k < image.n; k++) {
            const int d = image.first + k;
            ends[k] = ends_of(nearest, corners, in->lt.dims[d], dims[d], at[d]);
            combinations *= 2;
        }
        for (int which = 0; which < combinations; which++) {
            double weight = 1;
            size_t from = 0;
            for (int k = 0; k < image.n; k++) {
                const int end = which >> k & 1;
                weight *= end < ends[k].n ? ends[k].weight[end] : 0;
                at[image.first + k] = ends[k].at[end < ends[k].n ? end : 0];
            }
            for (int d = 0; d < image.ndims; d++) {
                from = from * (size_t)in->lt.dims[d] + (size_t)at[d];
            }
            if (weight > 0) {
                v += weight * in->v[from];
                size += weight * fabs(in->v[from]);
                error += in->b ? weight * in->b[from] : 0;
            }
        }
        out->v[i] = v;
        out->b[i] = nearest ? error : error + 4 * image.n * ORC_U * size + ORC_UNDERFLOW;
    }
    return 0;
}
