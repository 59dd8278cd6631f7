/* Norms and reductions of rows that elementwise ops, sums and dequantisation make, with what may
 * follow them. */
#include "fuzz.h"

#include <string.h>

static void epsilon(fz_t *f)
{
    if (fz_chance(f, 60)) {
        fz_f32(f, sinter_op_attr_epsilon, 1,
               (const float[]){(float[]){0, 0, 1e-30F, 1e-6F, 1e-5F, 1e-3F, 0.5F}[fz_pick(f, 7)]});
    }
}

/* Elements at both ends of f32, of all magnitudes, or far from 0 and near each other. */
static void extremes(fz_t *f, int x)
{
    fz_tensor_t *t = &f->tensors[x];
    const int what = t->produced ? 9 : fz_pick(f, 9), top = t->type == sinter_f16 ? 12 : 125;
    t->wild = what == 0;
    t->spread = what == 1 ? fz_range(f, 1, 2) : 0;
    t->vast = what == 2;
    t->level = what == 3 || what == 4 ? fz_range(f, -top - 15, top) : 0;
    t->far = what == 4 || what == 5 ? fz_range(f, 1, 24) : 0;
}

static void use_affine(fz_t *f, int given)
{
    if (!given || fz_chance(f, 20)) {
        fz_bool(f, sinter_op_attr_use_affine, given);
    }
}

/* Mean and variance, one for each row. */
static void statistics(fz_t *f, int given, int ndims, const int64_t *dims)
{
    if (!given || fz_chance(f, 20)) {
        fz_bool(f, sinter_op_attr_keep_stats, given);
    }
    for (int i = 0; given && i < 2; i++) {
        const int t = fz_more_output(f, fz_chance(f, 70) ? sinter_f32 : fz_float(f), ndims, dims);
        f->tensors[t].keep = fz_chance(f, 80);
    }
}

static int row_norm(fz_t *f, int x, int rms)
{
    const fz_tensor_t t = f->tensors[x];
    const int begin = fz_chance(f, 60) ? t.ndims - 1 : fz_pick(f, t.ndims),
              affine = fz_chance(f, 70);
    int in[3] = {x};
    for (int i = 1; i < 3 && affine; i++) {
        const int drop = fz_chance(f, 20) ? fz_pick(f, t.ndims - begin + 1) : 0;
        int64_t dims[FZ_MAX_RANK];
        for (int d = begin + drop; d < t.ndims; d++) {
            dims[d - begin - drop] = fz_chance(f, 10) ? 1 : t.dims[d];
        }
        in[i] = fz_input(f, fz_float(f), t.ndims - begin - drop, dims);
    }
    const int y = fz_op(f, rms ? sinter_op_rms_norm : sinter_op_layer_norm,
                        fz_chance(f, 70) ? t.type : fz_float(f), t.ndims, t.dims,
                        !affine ? 1
                        : rms   ? 2
                                : 3,
                        in);
    if (begin != t.ndims - 1 || fz_chance(f, 30)) {
        fz_s64(f, sinter_op_attr_begin_norm_axis, 1,
               &(int64_t){fz_chance(f, 50) ? begin : begin - t.ndims});
    }
    epsilon(f);
    use_affine(f, affine);
    if (!rms) {
        statistics(f, fz_chance(f, 40), begin, t.dims);
    }
    return y;
}

static int group_norm(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int ncx = fz_chance(f, 50), channel = ncx ? 1 : t.ndims - 1, affine = fz_chance(f, 70);
    const int64_t groups = fz_divisor(f, t.dims[channel]);
    int in[3] = {x};
    for (int i = 1; i < 3; i++) {
        in[i] = affine ? fz_input(f, fz_float(f), 1, &t.dims[channel]) : -1;
    }
    const int y = fz_op(f, sinter_op_group_norm, fz_chance(f, 70) ? t.type : fz_float(f), t.ndims,
                        t.dims, affine ? 3 : 1, in);
    fz_s64(f, sinter_op_attr_groups, 1, &groups);
    if (ncx || fz_chance(f, 30)) {
        fz_str(f, sinter_op_attr_data_format, ncx ? "NCX" : "NXC");
    }
    epsilon(f);
    use_affine(f, affine);
    statistics(f, fz_chance(f, 40), 2, (int64_t[]){t.dims[0], groups});
    return y;
}

static int batch_norm(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int ncx = t.ndims > 1 && fz_chance(f, 50), channel = ncx ? 1 : t.ndims - 1;
    int in[5] = {x};
    for (int i = 1; i < 5; i++) {
        in[i] = fz_input(f, fz_float(f), 1, &t.dims[channel]);
        f->tensors[in[i]].level = fz_chance(f, 20) ? fz_range(f, -20, 12) : 0;
    }
    static const double variances[][FZ_VARIANTS] = {
        {0.75, 0.75, 0.75}, {1e-4, 1e-4, 1e-4}, {1e-30, 1e-30, 1e-30}, {6e4, 6e4, 6e4}};
    f->tensors[in[4]].value = variances[fz_pick(f, 4)];
    const int y = fz_op(f, sinter_op_batch_norm_inference, fz_chance(f, 70) ? t.type : fz_float(f),
                        t.ndims, t.dims, 5, in);
    fz_f32(f, sinter_op_attr_epsilon, 1, (const float[]){1e-5F});
    if (ncx || fz_chance(f, 30)) {
        fz_str(f, sinter_op_attr_data_format, ncx ? "NCX" : "NXC");
    }
    return y;
}

static int reduction(fz_t *f, int x)
{
    static const sinter_op_kind_t kinds[] = {
        sinter_op_reduce_sum, sinter_op_reduce_mean, sinter_op_reduce_max, sinter_op_reduce_min,
        sinter_op_reduce_l1,  sinter_op_reduce_l2,   sinter_op_reduce_prod};
    const fz_tensor_t t = f->tensors[x];
    const int keep = fz_chance(f, 50);
    int64_t axes[FZ_MAX_RANK], dims[FZ_MAX_RANK];
    int n = 0, ndims = 0;
    for (int d = 0; d < t.ndims; d++) {
        if (fz_chance(f, d == t.ndims - 1 ? 60 : 30)) {
            axes[n++] = fz_chance(f, 30) ? d - t.ndims : d;
            dims[ndims] = 1;
            ndims += keep;
        } else {
            dims[ndims++] = t.dims[d];
        }
    }
    const int y =
        fz_op(f, kinds[fz_pick(f, 7)], fz_chance(f, 70) ? t.type : fz_float(f), ndims, dims, 1, &x);
    fz_s64(f, sinter_op_attr_axes, (size_t)n, axes);
    if (keep || fz_chance(f, 30)) {
        fz_bool(f, sinter_op_attr_keep_dims, keep);
    }
    return y;
}

static int running_sum(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int axis = fz_chance(f, 50) ? t.ndims - 1 : fz_pick(f, t.ndims),
              y = fz_op(f, sinter_op_cumsum, fz_chance(f, 70) ? t.type : fz_float(f), t.ndims,
                        t.dims, 1, &x);
    if (axis < t.ndims - 1 || fz_chance(f, 50)) {
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 50) ? axis : axis - t.ndims});
    }
    if (fz_chance(f, 30)) {
        fz_bool(f, sinter_op_attr_exclusive, 1);
    }
    if (fz_chance(f, 30)) {
        fz_bool(f, sinter_op_attr_reverse, 1);
    }
    return y;
}

static int again(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int what = t.ndims == 0 ? 10 : fz_pick(f, 11);
    if (what < 3) {
        return row_norm(f, x, what > 0);
    }
    if (what == 3 && t.ndims > 1) {
        return group_norm(f, x);
    }
    if (what == 4) {
        return batch_norm(f, x);
    }
    return what < 7 ? reduction(f, x) : what == 7 ? running_sum(f, x) : fz_post_op(f, x);
}

static int times_weights(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    const int64_t n = FZ_ONE_OF(f, 1, 5, 16, 33), w_dims[2] = {t.dims[t.ndims - 1], n};
    int64_t dims[FZ_MAX_RANK];
    memcpy(dims, t.dims, sizeof dims);
    dims[t.ndims - 1] = n;
    const int w = fz_chance(f, 50) ? fz_dequantized(f, fz_float(f), 2, w_dims, -1)
                                   : fz_input(f, fz_float(f), 2, w_dims);
    return FZ_OP(f, matmul, fz_float(f), t.ndims, dims, x, w);
}

void fz_gen_norm(fz_t *f)
{
    int64_t dims[FZ_MAX_RANK];
    const int ndims = fz_some_dims(f, 1, 4, 6000, dims);
    int x = fz_rows(f, ndims, dims);
    const int root = x;
    extremes(f, x);
    x = fz_chance(f, 40)                ? row_norm(f, x, 1)
        : fz_chance(f, 50)              ? row_norm(f, x, 0)
        : ndims > 1 && fz_chance(f, 40) ? group_norm(f, x)
        : fz_chance(f, 25)              ? batch_norm(f, x)
                                        : reduction(f, x);
    for (int i = fz_pick(f, 3); i > 0; i--) {
        f->tensors[x].keep = fz_chance(f, 15);
        x = fz_post_op(f, x);
    }
    const int y = x;
    if (fz_chance(f, 30)) {
        x = again(f, x);
    }
    if (f->tensors[x].ndims > 0 && fz_chance(f, 15)) {
        x = times_weights(f, x);
    }
    if (y != x && f->tensors[y].ndims == ndims && fz_chance(f, 20)) { /* a residual sum */
        fz_binary(f, sinter_op_add, fz_float(f), y, root);
    }
    if (f->tensors[x].ndims > 0 && fz_chance(f, 40)) {
        fz_quantized(f, x);
    }
}
