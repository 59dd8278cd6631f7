/* Ops of images and of audio: padding, windows, convolutions, sizes; and ARANGE. All dims are known
 * when a graph is built, since their translations count elements. */
#include <stdlib.h>

#include "special.h"

/* The most elements of an own list of indices. */
enum { MOST_INDICES = 1 << 22 };

static int64_t all_dims(const tensor_t *t)
{
    uint64_t hash = 0;
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        hash = gs_mix(hash, (uint64_t)t->ne[d]);
        for (int s = 0; s < 2; s++) {
            hash = gs_mix(hash, t->src[s] ? (uint64_t)t->src[s]->ne[d] : 0);
        }
    }
    return (int64_t)(hash | 1);
}

/* The dims of the present node's tensors, in Sinter's order; false where one may change. */
static bool known_dims(gs_builder_t *b, const tensor_t *t, sinter_dim_t dims[GGML_MAX_DIMS])
{
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        dims[GGML_MAX_DIMS - 1 - d] = t->ne[d];
    }
    return !gs_has_open(b, t) || gs_fail(b, "dims that change");
}

/* y = x in the node's memory, where it has to be there. */
static bool done(gs_builder_t *b, const lt_t *x)
{
    const lt_t y = gs_result(b, 4, gs_plain_order(4));
    return gs_convert(b, x, &y) && gs_done(b, &y, 4, gs_plain_order(4));
}

/* *x becomes its elements along an axis in the order of a list. */
static bool take(gs_builder_t *b, int axis, const int32_t *list, int64_t count, lt_t *x)
{
    lt_t indices;
    const lt_t y = gs_inner(b, x->data_type);
    const bool ok = gs_integers(b, list, (int)count, &indices) &&
                    gs_add(b, sinter_op_gather, sinter_in(x), sinter_in(&indices), sinter_out(&y),
                           sinter_attr_s64(sinter_op_attr_axis, axis));
    *x = y;
    return ok;
}

/* Zeros of these dims, f32. */
static bool zeros(gs_builder_t *b, const sinter_dim_t *dims, int rank, lt_t *y)
{
    int64_t count = 1;
    for (int i = 0; i < rank; i++) {
        count *= dims[i];
    }
    float *values = count <= MOST_INDICES ? calloc((size_t)count, sizeof(*values)) : NULL;
    const sinter_dim_t from[1] = {count};
    lt_t all;
    const bool ok = values ? gs_constants(b, values, (int)count, &all)
                           : gs_fail(b, "too many zeros, or out of memory");
    free(values);
    return ok && gs_reshape(b, &all, from, 1, dims, rank, y);
}

static const char *refuse_floats(const tensor_t *t)
{
    for (int i = 0; i < 2; i++) {
        const char *why = t->src[i] ? gs_unreadable_floats(t->src[i]) : NULL;
        if (why) {
            return why;
        }
    }
    return gs_is_float(t) ? NULL : "a result that is not f32, f16 or bf16";
}

/* ---- ARANGE ---------------------------------------------------------------------------------- */

static const char *refuse_arange(const tensor_t *t)
{
    return t->type == GGML_TYPE_F32 && t->ne[0] <= MOST_INDICES ? NULL : "its type, or its length";
}

static bool translate_arange(gs_builder_t *b, const tensor_t *t)
{
    float *values = malloc((size_t)t->ne[0] * sizeof(*values));
    lt_t x;
    for (int64_t i = 0; i < t->ne[0] && values; i++) {
        values[i] = gs_param(t, 0) + gs_param(t, 2) * (float)i;
    }
    const bool ok =
        values ? gs_constants(b, values, (int)t->ne[0], &x) : gs_fail(b, "out of memory");
    free(values);
    const lt_t y = gs_result(b, 1, gs_plain_order(1));
    return ok && !gs_has_open(b, t) && gs_convert(b, &x, &y) &&
           gs_done(b, &y, 1, gs_plain_order(1));
}

const gs_special_t gs_arange = {
    .translate = translate_arange, .refuse = refuse_arange, .fixed = all_dims};

/* ---- PAD ------------------------------------------------------------------------------------- */

static bool translate_pad(gs_builder_t *b, const tensor_t *t)
{
    enum { CIRCULAR = 8 };
    const bool circular = t->op_params[CIRCULAR] != 0;
    sinter_dim_t dims[GGML_MAX_DIMS], to[GGML_MAX_DIMS];
    lt_t x;
    if (!known_dims(b, t->src[0], dims) || !known_dims(b, t, to) ||
        !gs_use_floats(b, t->src[0], 4, &x)) {
        return false;
    }
    for (int d = 0; d < GGML_MAX_DIMS; d++) {
        const int axis = GGML_MAX_DIMS - 1 - d;
        const int64_t before = t->op_params[2 * d], each = t->src[0]->ne[d];
        if (to[axis] == dims[axis]) {
            continue;
        }
        int32_t *list = malloc((size_t)to[axis] * sizeof(*list));
        for (int64_t i = 0; i < to[axis] && list; i++) {
            const int64_t at = i - before;
            /* Behind the last element there is one that is zero. */
            list[i] = (int32_t)(circular               ? ((at % each) + each) % each
                                : at < 0 || at >= each ? each
                                                       : at);
        }
        bool ok = list ? true : gs_fail(b, "out of memory");
        if (ok && !circular) {
            sinter_dim_t one[GGML_MAX_DIMS];
            lt_t zero;
            const lt_t more = gs_inner(b, sinter_f32);
            memcpy(one, dims, sizeof(one));
            one[axis] = 1;
            ok = zeros(b, one, GGML_MAX_DIMS, &zero) &&
                 gs_add(b, sinter_op_concat, sinter_in(&x), sinter_in(&zero), sinter_out(&more),
                        sinter_attr_s64(sinter_op_attr_axis, axis));
            x = more;
        }
        ok = ok && take(b, axis, list, to[axis], &x);
        free(list);
        if (!ok) {
            return false;
        }
        dims[axis] = to[axis];
    }
    return done(b, &x);
}

const gs_special_t gs_pad = {
    .translate = translate_pad, .refuse = refuse_floats, .fixed = all_dims};

/* ---- GROUP_NORM ------------------------------------------------------------------------------ */

static const char *refuse_group_norm(const tensor_t *t)
{
    const char *why = refuse_floats(t);
    return why ? why : t->ne[2] % t->op_params[0] ? "groups of several sizes" : NULL;
}

static bool translate_group_norm(gs_builder_t *b, const tensor_t *t)
{
    lt_t x;
    if (!gs_use_plain(b, t->src[0], 4, &x)) {
        return false;
    }
    const lt_t y = gs_result(b, 4, gs_plain_order(4));
    return gs_add(b, sinter_op_group_norm, sinter_in(&x), sinter_out(&y),
                  sinter_attr_s64(sinter_op_attr_groups, t->op_params[0]),
                  sinter_attr_f32(sinter_op_attr_epsilon, gs_param(t, 1)),
                  sinter_attr_bool(sinter_op_attr_use_affine, 0),
                  sinter_attr_bool(sinter_op_attr_keep_stats, 0),
                  sinter_attr_str(sinter_op_attr_data_format, "NCX")) &&
           gs_done(b, &y, 4, gs_plain_order(4));
}

const gs_special_t gs_group_norm = {
    .translate = translate_group_norm, .refuse = refuse_group_norm, .fixed = all_dims};

/* ---- POOL_1D, POOL_2D ------------------------------------------------------------------------ */

/* Windows of height and width. An average of POOL_1D is that of the elements alone, one of POOL_2D
 * counts padding as zeros. */
static bool translate_pool(gs_builder_t *b, const tensor_t *t)
{
    const int32_t *p = t->op_params;
    const bool plane = gs_op(t) == GS_OP_POOL_2D;
    const int64_t kernel[2] = {plane ? p[2] : 1, p[1]},
                  strides[2] = {plane ? p[4] : 1, plane ? p[3] : p[2]},
                  pads[2] = {plane ? p[6] : 0, plane ? p[5] : p[3]};
    sinter_dim_t dims[GGML_MAX_DIMS];
    lt_t x;
    if (!known_dims(b, t, dims) || !gs_use_plain(b, t->src[0], 4, &x)) {
        return false;
    }
    sinter_op_part_t parts[8];
    int n = 0;
    const bool average = p[0] == GGML_OP_POOL_AVG;
    const lt_t y = gs_result(b, 4, gs_plain_order(4));
    parts[n++] = sinter_in(&x);
    parts[n++] = sinter_out(&y);
    parts[n++] = sinter_attr_s64s(sinter_op_attr_kernel, 2, kernel);
    parts[n++] = sinter_attr_s64s(sinter_op_attr_strides, 2, strides);
    parts[n++] = sinter_attr_s64s(sinter_op_attr_pads_begin, 2, pads);
    parts[n++] = sinter_attr_s64s(sinter_op_attr_pads_end, 2, pads);
    parts[n++] = sinter_attr_str(sinter_op_attr_data_format, "NCX");
    if (average) {
        parts[n++] = sinter_attr_bool(sinter_op_attr_exclude_pad, !plane);
    }
    return gs_add_parts(b, average ? sinter_op_avg_pool : sinter_op_max_pool, n, parts) &&
           gs_done(b, &y, 4, gs_plain_order(4));
}

const gs_special_t gs_pool = {
    .translate = translate_pool, .refuse = refuse_floats, .fixed = all_dims};

/* ---- CONV_2D, CONV_2D_DW, IM2COL ------------------------------------------------------------- */

static const char *refuse_conv(const tensor_t *t)
{
    const int32_t *p = t->op_params;
    for (int d = 0; d < 2; d++) {
        if (p[4 + d] * (t->src[0]->ne[d] - 1) >= t->src[1]->ne[d] + 2 * p[2 + d]) {
            return "a window that is larger than the image and its padding";
        }
    }
    return refuse_floats(t);
}

static bool translate_conv(gs_builder_t *b, const tensor_t *t)
{
    const int32_t *p = t->op_params;
    const int64_t strides[2] = {p[1], p[0]}, pads[2] = {p[3], p[2]}, dilations[2] = {p[5], p[4]};
    const int64_t groups = gs_op(t) == GS_OP_CONV_2D_DW ? t->ne[2] : 1;
    sinter_dim_t dims[GGML_MAX_DIMS];
    lt_t w, x;
    if (!known_dims(b, t, dims) || !gs_use_plain(b, t->src[0], 4, &w) ||
        !gs_use_plain(b, t->src[1], 4, &x)) {
        return false;
    }
    const lt_t y = gs_result(b, 4, gs_plain_order(4));
    return gs_add(b, sinter_op_convolution, sinter_in(&x), sinter_in(&w), sinter_out(&y),
                  sinter_attr_s64s(sinter_op_attr_strides, 2, strides),
                  sinter_attr_s64s(sinter_op_attr_pads_begin, 2, pads),
                  sinter_attr_s64s(sinter_op_attr_pads_end, 2, pads),
                  sinter_attr_s64s(sinter_op_attr_dilations, 2, dilations),
                  sinter_attr_s64(sinter_op_attr_groups, groups),
                  sinter_attr_str(sinter_op_attr_data_format, "NCX"),
                  sinter_attr_str(sinter_op_attr_weights_format, "OIX")) &&
           gs_keep_exact(b) && gs_done(b, &y, 4, gs_plain_order(4));
}

const gs_special_t gs_conv = {
    .translate = translate_conv, .refuse = refuse_conv, .fixed = all_dims};

/* The windows of an image: of a row of it where there is one dim. */
typedef struct windows {
    int64_t channels, height, width, kernel_height, kernel_width, high, wide, batch;
} windows_t;

static windows_t windows_of(const tensor_t *t)
{
    const tensor_t *kernel = t->src[0], *x = t->src[1];
    const bool plane = t->op_params[6] == 1;
    return (windows_t){.channels = plane ? x->ne[2] : x->ne[1],
                       .height = plane ? x->ne[1] : 1,
                       .width = x->ne[0],
                       .kernel_height = plane ? kernel->ne[1] : 1,
                       .kernel_width = kernel->ne[0],
                       .high = plane ? t->ne[2] : 1,
                       .wide = t->ne[1],
                       .batch = plane ? x->ne[3] : x->ne[2]};
}

static int64_t elements_of(const windows_t *w)
{
    return w->high * w->wide * w->channels * w->kernel_height * w->kernel_width;
}

static const char *refuse_im2col(const tensor_t *t)
{
    const windows_t w = windows_of(t);
    return gs_unreadable_floats(t->src[1])  ? gs_unreadable_floats(t->src[1])
           : !gs_is_float(t)                ? "a result that is not f32, f16 or bf16"
           : elements_of(&w) > MOST_INDICES ? "too many elements"
                                            : NULL;
}

/* For each element of the windows, where it is in the image; behind the image is a zero. */
static void find_elements(const tensor_t *t, const windows_t *w, int32_t *list)
{
    const int32_t *p = t->op_params;
    for (int64_t i = 0; i < elements_of(w); i++) {
        int64_t rest = i;
        const int64_t kx = rest % w->kernel_width;
        rest /= w->kernel_width;
        const int64_t ky = rest % w->kernel_height;
        rest /= w->kernel_height;
        const int64_t channel = rest % w->channels;
        rest /= w->channels;
        const int64_t x = rest % w->wide * p[0] + kx * p[4] - p[2],
                      y = w->height == 1 && w->kernel_height == 1
                              ? 0
                              : rest / w->wide * p[1] + ky * p[5] - p[3];
        const bool inside = x >= 0 && x < w->width && y >= 0 && y < w->height;
        list[i] = (int32_t)(inside ? (channel * w->height + y) * w->width + x
                                   : w->channels * w->height * w->width);
    }
}

static bool translate_im2col(gs_builder_t *b, const tensor_t *t)
{
    const windows_t w = windows_of(t);
    const int64_t image = w.channels * w.height * w.width;
    sinter_dim_t dims[GGML_MAX_DIMS], to[GGML_MAX_DIMS];
    const sinter_dim_t flat[2] = {w.batch, image}, one[2] = {w.batch, 1},
                       found[2] = {w.batch, elements_of(&w)};
    lt_t x, images, zero, all, y;
    if (!known_dims(b, t->src[1], dims) || !known_dims(b, t, to) ||
        !gs_use_floats(b, t->src[1], 4, &x) || !gs_reshape(b, &x, dims, 4, flat, 2, &images) ||
        !zeros(b, one, 2, &zero)) {
        return false;
    }
    all = gs_inner(b, sinter_f32);
    if (!gs_add(b, sinter_op_concat, sinter_in(&images), sinter_in(&zero), sinter_out(&all),
                sinter_attr_s64(sinter_op_attr_axis, 1))) {
        return false;
    }
    int32_t *list = malloc((size_t)elements_of(&w) * sizeof(*list));
    if (list) {
        find_elements(t, &w, list);
    }
    const bool ok = list ? take(b, 1, list, elements_of(&w), &all) : gs_fail(b, "out of memory");
    free(list);
    return ok && gs_reshape(b, &all, found, 2, to, 4, &y) && done(b, &y);
}

const gs_special_t gs_im2col = {
    .translate = translate_im2col, .refuse = refuse_im2col, .fixed = all_dims};

/* ---- UPSCALE --------------------------------------------------------------------------------- */

enum { MODE = 0xFF };

static const char *refuse_upscale(const tensor_t *t)
{
    const int mode = t->op_params[0];
    const bool same = t->ne[2] == t->src[0]->ne[2] && t->ne[3] == t->src[0]->ne[3];
    const bool linear = (mode & MODE) == GGML_SCALE_MODE_BILINEAR && same &&
                        !(mode & ~MODE & ~GGML_SCALE_FLAG_ALIGN_CORNERS);
    return mode == GGML_SCALE_MODE_NEAREST || linear ? refuse_floats(t)
                                                     : "a mode that Sinter does not have";
}

static bool translate_upscale(gs_builder_t *b, const tensor_t *t)
{
    const int mode = t->op_params[0];
    sinter_dim_t from[GGML_MAX_DIMS], to[GGML_MAX_DIMS];
    lt_t x;
    if (!known_dims(b, t->src[0], from) || !known_dims(b, t, to) ||
        !gs_use_floats(b, t->src[0], 4, &x)) {
        return false;
    }
    if ((mode & MODE) == GGML_SCALE_MODE_BILINEAR) {
        const int64_t sizes[2] = {to[2], to[3]};
        const lt_t y = gs_result(b, 4, gs_plain_order(4));
        const bool corners = mode & GGML_SCALE_FLAG_ALIGN_CORNERS;
        return gs_add(b, sinter_op_interpolate, sinter_in(&x), sinter_out(&y),
                      sinter_attr_str(sinter_op_attr_mode, "bilinear"),
                      sinter_attr_str(sinter_op_attr_coordinate_transformation_mode,
                                      corners ? "align_corners" : "half_pixel"),
                      sinter_attr_str(sinter_op_attr_data_format, "NCX"),
                      sinter_attr_s64s(sinter_op_attr_sizes, 2, sizes)) &&
               gs_done(b, &y, 4, gs_plain_order(4));
    }
    for (int axis = 0; axis < GGML_MAX_DIMS; axis++) {
        const float factor = (float)to[axis] / (float)from[axis];
        int32_t *list = malloc((size_t)to[axis] * sizeof(*list));
        for (int64_t i = 0; i < to[axis] && list; i++) {
            const int64_t at = (int64_t)((float)i / factor);
            list[i] = (int32_t)(at < from[axis] ? at : from[axis] - 1);
        }
        const bool ok = to[axis] == from[axis] || (list && take(b, axis, list, to[axis], &x));
        free(list);
        if (!ok) {
            return gs_fail(b, "out of memory");
        }
    }
    return done(b, &x);
}

const gs_special_t gs_upscale = {
    .translate = translate_upscale, .refuse = refuse_upscale, .fixed = all_dims};
