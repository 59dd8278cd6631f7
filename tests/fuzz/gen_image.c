/* Convolution, pooling and interpolation of images that elementwise ops or dequantisation make,
 * with what may follow them. */
#include "fuzz.h"

#include <string.h>

typedef struct image {
    int ncx, n; /* spatial dims */
    int codes;  /* of 8 bits, which weights of 8 bits meet */
    int64_t dims[FZ_MAX_RANK];
} image_t;

static int first(const image_t *i)
{
    return i->ncx ? 2 : 1;
}

static int channel(const image_t *i)
{
    return i->ncx ? 1 : i->n + 1;
}

static image_t some_image(fz_t *f, int64_t channels)
{
    static const int longest[] = {0, 70, 17, 7};
    image_t i = {.ncx = fz_chance(f, 50), .n = fz_range(f, 1, 3)};
    i.dims[0] = fz_dim(f, fz_range(f, 1, 2), 1);
    i.dims[channel(&i)] = channels;
    for (int d = 0; d < i.n; d++) {
        i.dims[first(&i) + d] = fz_dim(f, fz_range(f, 1, longest[i.n]), 1);
    }
    return i;
}

/* ---- windows --------------------------------------------------------------------------------- */

typedef struct window {
    int64_t kernel[FZ_MAX_RANK], stride[FZ_MAX_RANK], dilation[FZ_MAX_RANK];
    int64_t begin[FZ_MAX_RANK], end[FZ_MAX_RANK];
    const char *pad;
    int ceil;
} window_t;

static int64_t extent(const window_t *w, int i)
{
    return (w->kernel[i] - 1) * w->dilation[i] + 1;
}

static int64_t least_size(const fz_t *f, int64_t dim)
{
    int64_t least = fz_size(f, dim, 0);
    for (int v = 1; v < FZ_VARIANTS; v++) {
        least = fz_size(f, dim, v) < least ? fz_size(f, dim, v) : least;
    }
    return least;
}

/* A window that fits the image in every size that its dims may have. */
static window_t some_window(fz_t *f, const image_t *image, int dilates, int rounds)
{
    static const char *const pads[] = {"None", "None", "None", "SAME_UPPER", "SAME_LOWER", "VALID"};
    window_t w = {.pad = pads[fz_pick(f, 6)], .ceil = rounds && fz_chance(f, 40)};
    for (int i = 0; i < image->n; i++) {
        const int64_t least = least_size(f, image->dims[first(image) + i]);
        w.kernel[i] = fz_range(f, 1, 4);
        w.stride[i] = fz_range(f, 1, 3);
        w.dilation[i] = dilates && fz_chance(f, 30) ? fz_range(f, 2, 3) : 1;
        const int64_t size = extent(&w, i);
        w.begin[i] = fz_pick(f, (int)size + 1);
        w.end[i] = fz_pick(f, (int)size + 1) - fz_chance(f, 10);
        w.end[i] = least + w.begin[i] + w.end[i] < size ? size - least - w.begin[i] : w.end[i];
        w.pad = w.pad[0] == 'V' && least < size ? "None" : w.pad;
    }
    return w;
}

static int64_t positions(const window_t *w, int i, int64_t size)
{
    const int64_t room = size + (w->pad[0] == 'N' ? w->begin[i] + w->end[i] : 0) - extent(w, i);
    return w->pad[0] == 'S' ? (size + w->stride[i] - 1) / w->stride[i]
                            : room / w->stride[i] + (w->ceil && room % w->stride[i] != 0) + 1;
}

/* A dim whose sizes are those of another one, changed. */
static int64_t changed(fz_t *f, int64_t dim,
                       int64_t (*size)(const window_t *w, int i, int64_t from), const window_t *w,
                       int i)
{
    int64_t sizes[FZ_VARIANTS];
    for (int v = 0; v < FZ_VARIANTS; v++) {
        sizes[v] = size(w, i, fz_size(f, dim, v));
    }
    return fz_is_symbol(dim) ? fz_symbol(f, sizes[0], sizes[1], sizes[2]) : sizes[0];
}

static void slide(fz_t *f, image_t *image, const window_t *w,
                  int64_t (*size)(const window_t *w, int i, int64_t from))
{
    for (int i = 0; i < image->n; i++) {
        int64_t *dim = &image->dims[first(image) + i];
        *dim = changed(f, *dim, size, w, i);
    }
}

static void put_window(fz_t *f, const image_t *image, const window_t *w, int dilates)
{
    const size_t n = (size_t)image->n;
    fz_s64(f, sinter_op_attr_strides, n, w->stride);
    fz_s64(f, sinter_op_attr_pads_begin, n, w->begin);
    fz_s64(f, sinter_op_attr_pads_end, n, w->end);
    if (dilates) {
        fz_s64(f, sinter_op_attr_dilations, n, w->dilation);
    }
    if (w->pad[0] != 'N' || fz_chance(f, 20)) {
        fz_str(f, sinter_op_attr_auto_pad, w->pad);
    }
    if (w->ceil) {
        fz_str(f, sinter_op_attr_rounding_type, "ceil");
    }
    if (image->ncx || fz_chance(f, 30)) {
        fz_str(f, sinter_op_attr_data_format, image->ncx ? "NCX" : "NXC");
    }
}

static int pool(fz_t *f, int x, image_t *image)
{
    const int max = fz_chance(f, 50), dilates = max && fz_chance(f, 60);
    const window_t w = some_window(f, image, dilates, 1);
    slide(f, image, &w, positions);
    const int y = fz_op(f, max ? sinter_op_max_pool : sinter_op_avg_pool,
                        fz_chance(f, 70) ? f->tensors[x].type : fz_float(f), image->n + 2,
                        image->dims, 1, &x);
    put_window(f, image, &w, dilates);
    fz_s64(f, sinter_op_attr_kernel, (size_t)image->n, w.kernel);
    if (!max) {
        fz_bool(f, sinter_op_attr_exclude_pad, fz_chance(f, 50));
    }
    return y;
}

/* ---- convolution ----------------------------------------------------------------------------- */

/* ConvTranspose: stride * (in - 1) + extent - padding; the rest of the stride is output_padding. */
static int64_t unslid(const window_t *w, int i, int64_t size)
{
    return w->pad[0] == 'S' ? size * w->stride[i]
                            : w->stride[i] * (size - 1) + extent(w, i) -
                                  (w->pad[0] == 'N' ? w->begin[i] + w->end[i] : 0);
}

/* Codes of 8 bits with one scale for all of them, or for each index along an axis (-1: none), as
 * convolution multiplies them in integers. groups: of those that the dim of the axis is of, where
 * scales in attributes are those of all groups. */
static int byte_codes(fz_t *f, int n, const int64_t *dims, int axis, int64_t groups)
{
    enum { MOST = 33 * 32 };
    const int is_signed = fz_chance(f, 50), low = is_signed ? -128 : 0, high = low + 255,
              shifts = fz_chance(f, 60), given = fz_chance(f, 60), each = axis >= 0;
    const int t = fz_input(f, is_signed ? sinter_s8 : sinter_u8, n, dims);
    const int64_t scales = (each ? dims[axis] : 1) * (given ? groups : 1);
    if (!given) {
        const int scale = fz_input(f, sinter_f32, 1, &scales),
                  zp = shifts ? fz_input(f, is_signed ? sinter_s8 : sinter_u8, 1, &scales) : -1;
        const int y = fz_op(f, sinter_op_dynamic_dequantize, fz_float(f), n, dims, shifts ? 3 : 2,
                            (const int[]){t, scale, zp});
        fz_str(f, sinter_op_attr_qtype, each ? "per_channel" : "per_tensor");
        if (each) {
            fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){axis});
        }
        return y;
    }
    float scale[MOST];
    int64_t zp[MOST];
    for (int i = 0; i < scales; i++) {
        scale[i] = (float)fz_range(f, 1, 40) / 512;
        zp[i] = shifts ? fz_range(f, low, high) : 0;
    }
    const int y = fz_op(f, sinter_op_dequantize, fz_float(f), n, dims, 1, &t);
    fz_f32(f, sinter_op_attr_scales, (size_t)scales, scale);
    fz_s64(f, sinter_op_attr_zps, (size_t)scales, zp);
    fz_str(f, sinter_op_attr_qtype, each ? "per_channel" : "per_tensor");
    if (each) {
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){axis});
    }
    return y;
}

/* Weights of one of the formats, perhaps of codes; o: channels of results, i: of the image, as the
 * shape counts them; groups: those of which o has one. */
static int weights(fz_t *f, const image_t *image, const window_t *w, const char *format, int64_t i,
                   int64_t o, int64_t groups)
{
    int64_t dims[FZ_MAX_RANK];
    int n = 0, axis = 0;
    for (const char *c = format; *c != '\0'; c++) {
        for (int k = 0; *c == 'X' && k < image->n; k++) {
            dims[n++] = w->kernel[k];
        }
        axis = *c == 'O' ? n : axis;
        if (*c != 'X') {
            dims[n++] = *c == 'I' ? i : o;
        }
    }
    const int each = image->codes && fz_chance(f, 70),
              t = image->codes       ? byte_codes(f, n, dims, each ? axis : -1,
                                            each && groups > 1 && fz_chance(f, 60) ? groups : 1)
                  : fz_chance(f, 40) ? fz_dequantized(f, fz_float(f), n, dims, -1)
                                     : fz_input(f, fz_float(f), n, dims);
    if (!f->tensors[t].produced && fz_chance(f, 40)) {
        f->tensors[t].property = sinter_tensor_property_constant;
    }
    return t;
}

static int convolve(fz_t *f, int x, image_t *image)
{
    const int transposed = fz_chance(f, 30), ahead = fz_chance(f, 50);
    const char *format = transposed ? (ahead ? "XOI" : "IOX") : ahead ? "XIO" : "OIX";
    const int64_t channels = image->dims[channel(image)], groups = fz_divisor(f, channels),
                  each = FZ_ONE_OF(f, 1, 2, 5, 16, 33), results = each * groups;
    window_t w = some_window(f, image, 1, 0);
    for (int i = 0; i < image->n && transposed; i++) { /* something must be left */
        const int64_t least = least_size(f, image->dims[first(image) + i]);
        w.begin[i] = w.begin[i] > 1 ? 1 : w.begin[i];
        w.end[i] = w.end[i] > 1 ? 1 : w.end[i];
        w.pad = w.pad[0] == 'N' && unslid(&w, i, least) < 1 ? "VALID" : w.pad;
    }
    const int kernel = weights(f, image, &w, format, transposed ? channels : channels / groups,
                               transposed ? each : results, transposed ? groups : 1);
    const int biased = fz_chance(f, 40), bias = biased ? fz_input(f, fz_float(f), 1, &results) : -1;
    slide(f, image, &w, transposed ? unslid : positions);
    image->dims[channel(image)] = results;
    const int y = fz_op(f, transposed ? sinter_op_conv_transpose : sinter_op_convolution,
                        fz_chance(f, 70) ? f->tensors[x].type : fz_float(f), image->n + 2,
                        image->dims, biased ? 3 : 2, (const int[]){x, kernel, bias});
    put_window(f, image, &w, 1);
    if (groups > 1 || fz_chance(f, 20)) {
        fz_s64(f, sinter_op_attr_groups, 1, &groups);
    }
    if (!ahead || fz_chance(f, 30)) {
        fz_str(f, sinter_op_attr_weights_format, format);
    }
    return y;
}

/* The image is codes, or rows of floats. */
static int conv_input(fz_t *f, const image_t *image)
{
    return image->codes       ? byte_codes(f, image->n + 2, image->dims, -1, 1)
           : fz_chance(f, 30) ? fz_dequantized(f, fz_float(f), image->n + 2, image->dims, -1)
                              : fz_rows(f, image->n + 2, image->dims);
}

/* ---- interpolation --------------------------------------------------------------------------- */

static int interpolate(fz_t *f, int x, image_t *image)
{
    static const float factors[] = {0.5F, 1, 1.5F, 2, 0.75F, 3};
    static const char *const modes[] = {"nearest", "linear", "bilinear", "trilinear"};
    float scales[FZ_MAX_RANK];
    int64_t sizes[FZ_MAX_RANK];
    int scaled = fz_chance(f, 50);
    for (int i = 0; i < image->n; i++) { /* no result may be empty */
        scaled = scaled && least_size(f, image->dims[first(image) + i]) > 1;
    }
    for (int i = 0; i < image->n; i++) {
        int64_t *dim = &image->dims[first(image) + i], to[FZ_VARIANTS];
        scales[i] = factors[fz_pick(f, 6)];
        sizes[i] = fz_range(f, 1, 12);
        for (int v = 0; v < FZ_VARIANTS; v++) {
            to[v] = (int64_t)((double)fz_size(f, *dim, v) * (double)scales[i]);
        }
        *dim = !scaled ? sizes[i] : fz_is_symbol(*dim) ? fz_symbol(f, to[0], to[1], to[2]) : to[0];
    }
    const int y =
        fz_op(f, sinter_op_interpolate, fz_chance(f, 70) ? f->tensors[x].type : fz_float(f),
              image->n + 2, image->dims, 1, &x);
    fz_str(f, sinter_op_attr_mode, modes[fz_pick(f, 4)]);
    if (fz_chance(f, 50)) {
        fz_str(f, sinter_op_attr_coordinate_transformation_mode,
               fz_chance(f, 50) ? "align_corners" : "half_pixel");
    }
    if (image->ncx || fz_chance(f, 30)) {
        fz_str(f, sinter_op_attr_data_format, image->ncx ? "NCX" : "NXC");
    }
    if (scaled) {
        fz_f32(f, sinter_op_attr_scales, (size_t)image->n, scales);
    } else {
        fz_s64(f, sinter_op_attr_sizes, (size_t)image->n, sizes);
    }
    return y;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

void fz_gen_conv(fz_t *f)
{
    image_t image = some_image(f, FZ_ONE_OF(f, 1, 3, 8, 12, 32));
    image.codes = fz_chance(f, 40);
    int x = conv_input(f, &image);
    x = convolve(f, x, &image);
    const int chained = image.codes && fz_chance(f, 60); /* as networks in integers are */
    if (chained && fz_chance(f, 60)) {
        x = fz_op(f, sinter_op_relu, fz_float(f), image.n + 2, image.dims, 1, &x);
    }
    for (int i = chained ? 0 : fz_pick(f, 4); i > 0; i--) {
        f->tensors[x].keep = fz_chance(f, 15);
        x = fz_post_op(f, x);
    }
    if (fz_chance(f, chained ? 80 : 40)) {
        fz_quantized(f, x);
    }
}

void fz_gen_image(fz_t *f)
{
    image_t image = some_image(f, FZ_ONE_OF(f, 1, 3, 8, 17, 64));
    int x = fz_rows(f, image.n + 2, image.dims);
    x = fz_chance(f, 60) ? pool(f, x, &image) : interpolate(f, x, &image);
    for (int i = fz_pick(f, 3); i > 0; i--) {
        f->tensors[x].keep = fz_chance(f, 15);
        x = fz_post_op(f, x);
    }
    if (f->tensors[x].ndims == image.n + 2 &&
        !memcmp(f->tensors[x].dims, image.dims, sizeof(int64_t) * (size_t)(image.n + 2)) &&
        fz_chance(f, 20)) {
        x = pool(f, x, &image);
    }
    if (fz_chance(f, 40)) {
        fz_quantized(f, x);
    }
}
