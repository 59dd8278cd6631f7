/* Pieces that several generators use: types, side inputs, quantisation, what stands behind a matmul or softmax. */
#include "fuzz.h"

#include <string.h>

sinter_data_type_t fz_float(fz_t *f)
{
    return (sinter_data_type_t)FZ_ONE_OF(f, sinter_f32, sinter_f32, sinter_f16, sinter_bf16);
}

sinter_data_type_t fz_code_type(fz_t *f)
{
    return (sinter_data_type_t)FZ_ONE_OF(f, sinter_s4, sinter_s4, sinter_u4, sinter_u4, sinter_s8, sinter_u8, sinter_f8_e4m3, sinter_f8_e5m2, sinter_f4_e2m1,
                                         sinter_f4_e2m1, sinter_f6_e3m2, sinter_f6_e2m3, sinter_f8_e4m3fnuz, sinter_f8_e5m2fnuz);
}

static int is_int(sinter_data_type_t type)
{
    return gr_dtype(type)->class_ == GR_INT;
}

static int is_signed(sinter_data_type_t type)
{
    return gr_dtype(type)->digits != gr_dtype(type)->bits;
}

int fz_side_dims(fz_t *f, int x, int64_t *dims)
{
    const fz_tensor_t *t = &f->tensors[x];
    int drop = t->ndims && fz_chance(f, 30) ? fz_pick(f, t->ndims + 1) : 0;

    for (int d = drop; d < t->ndims; d++)
        dims[d - drop] = fz_chance(f, 30) ? 1 : t->dims[d];
    return t->ndims - drop;
}

/* ---- elementwise -------------------------------------------------------------------------------------------------------------------------- */

static void one_f32(fz_t *f, sinter_op_attr_t attr, double value)
{
    const float v = (float)value;

    fz_f32(f, attr, 1, &v);
}

static void unary_attrs(fz_t *f, sinter_op_kind_t kind)
{
    switch (kind) {
    case sinter_op_clamp:
        one_f32(f, sinter_op_attr_min, fz_range(f, -4, 0) * 0.5);
        one_f32(f, sinter_op_attr_max, fz_range(f, 0, 4) * 0.5);
        break;
    case sinter_op_elu:
    case sinter_op_leaky_relu:
        one_f32(f, sinter_op_attr_alpha, fz_range(f, 0, 4) * 0.25);
        break;
    case sinter_op_hard_sigmoid:
        one_f32(f, sinter_op_attr_alpha, fz_range(f, 1, 4) * 0.125);
        one_f32(f, sinter_op_attr_beta, fz_range(f, 0, 4) * 0.25);
        break;
    case sinter_op_pow:
        one_f32(f, sinter_op_attr_beta, FZ_ONE_OF(f, -2, -1, 0, 1, 2, 3, 5, 6) * 0.5);
        break;
    case sinter_op_softplus:
        if (fz_chance(f, 60))
            one_f32(f, sinter_op_attr_beta, FZ_ONE_OF(f, -2, 1, 2, 4) * 0.5);
        break;
    case sinter_op_gelu:
        if (fz_chance(f, 70))
            fz_str(f, sinter_op_attr_mode, fz_chance(f, 50) ? "gelu_erf" : "gelu_tanh");
        break;
    default:
        break;
    }
}

int fz_random_unary(fz_t *f, int x, sinter_data_type_t type)
{
    sinter_op_kind_t kind = (sinter_op_kind_t)FZ_ONE_OF(
        f, sinter_op_abs, sinter_op_clamp, sinter_op_elu, sinter_op_exp, sinter_op_gelu, sinter_op_hard_swish, sinter_op_leaky_relu, sinter_op_log,
        sinter_op_mish, sinter_op_reciprocal, sinter_op_relu, sinter_op_round, sinter_op_sigmoid, sinter_op_softplus, sinter_op_sqrt, sinter_op_square,
        sinter_op_tanh, sinter_op_hard_sigmoid, sinter_op_pow);

    x = fz_unary(f, kind, type, x);
    unary_attrs(f, kind);
    return x;
}

static int bias_add(fz_t *f, int x, sinter_data_type_t type)
{
    const fz_tensor_t t = f->tensors[x];
    int ncx = t.ndims > 1 && fz_chance(f, 30);
    int bias = fz_input(f, fz_float(f), 1, &t.dims[ncx ? 1 : t.ndims - 1]);

    x = FZ_OP(f, bias_add, type, t.ndims, t.dims, x, bias);
    if (ncx || fz_chance(f, 30))
        fz_str(f, sinter_op_attr_data_format, ncx ? "NCX" : "NXC");
    return x;
}

/* One slope for each channel, or a slope that broadcasts like any other operand. */
static int prelu(fz_t *f, int x, sinter_data_type_t type)
{
    const fz_tensor_t t = f->tensors[x];
    int channels = fz_chance(f, 60), ncx = t.ndims > 1 && fz_chance(f, 30);
    int64_t dims[FZ_MAX_RANK] = {t.dims[ncx ? 1 : t.ndims - 1]};
    int n = channels ? 1 : fz_side_dims(f, x, dims), slope = fz_input(f, fz_float(f), n, dims);

    x = FZ_OP(f, prelu, type, t.ndims, t.dims, x, slope);
    if (ncx)
        fz_str(f, sinter_op_attr_data_format, "NCX");
    if (!channels)
        fz_bool(f, sinter_op_attr_per_channel_broadcast, 0);
    return x;
}

sinter_op_kind_t fz_binary_kind(fz_t *f)
{
    return (sinter_op_kind_t)FZ_ONE_OF(f, sinter_op_add, sinter_op_add, sinter_op_multiply, sinter_op_multiply, sinter_op_subtract, sinter_op_divide,
                                       sinter_op_maximum, sinter_op_minimum, sinter_op_squared_difference);
}

int fz_post_op(fz_t *f, int x)
{
    sinter_data_type_t type = fz_chance(f, 70) ? f->tensors[x].type : fz_float(f);
    int64_t dims[FZ_MAX_RANK];
    int side, n, first, what = fz_pick(f, 12);

    if (what < 4)
        return fz_random_unary(f, x, type);
    if (what == 4)
        return fz_cast(f, fz_float(f), x);
    if (what == 5 && f->tensors[x].ndims)
        return bias_add(f, x, type);
    if (what == 6 && f->tensors[x].ndims)
        return prelu(f, x, type);
    if (fz_chance(f, 20)) {
        side = fz_scalar(f, fz_float(f), f->tensors[x].ndims);
    } else {
        n = fz_side_dims(f, x, dims);
        side = fz_input(f, fz_float(f), n, dims);
    }
    first = fz_chance(f, 75);
    return fz_binary(f, fz_binary_kind(f), type, first ? x : side, first ? side : x);
}

/* ---- quantisation ------------------------------------------------------------------------------------------------------------------------- */

/* scales and zps attributes for a tensor of known channels. */
static void static_attrs(fz_t *f, sinter_data_type_t code, int ndims, const int64_t *dims)
{
    float scales[64];
    int64_t zps[64], axis = ndims ? fz_pick(f, ndims) : 0;
    int channel = ndims && !fz_is_symbol(dims[axis]) && dims[axis] > 0 && dims[axis] <= 64 && fz_chance(f, 50);
    size_t n = channel ? (size_t)dims[axis] : 1;
    int width = gr_dtype(code)->bits <= 4 ? 2 : 8, zp = is_int(code) && fz_chance(f, 50);

    for (size_t i = 0; i < n; i++) {
        scales[i] = (float)fz_range(f, 1, 40) / (is_int(code) ? 8 * width : 32);
        zps[i] = zp ? (is_signed(code) ? 0 : width) + fz_range(f, -width, width) : 0;
    }
    fz_f32(f, sinter_op_attr_scales, n, scales);
    if (zp || fz_chance(f, 20))
        fz_s64(f, sinter_op_attr_zps, n, zps);
    if (channel || fz_chance(f, 50))
        fz_str(f, sinter_op_attr_qtype, channel ? "per_channel" : "per_tensor");
    if (channel && (axis != 1 || fz_chance(f, 50)))
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 30) ? axis - ndims : axis});
}

static sinter_data_type_t scale_type(fz_t *f)
{
    return (sinter_data_type_t)FZ_ONE_OF(f, sinter_f32, sinter_f32, sinter_f16, sinter_bf16, sinter_e8m0, sinter_f8_e4m3);
}

static sinter_data_type_t zp_type(fz_t *f, sinter_data_type_t code)
{
    return is_signed(code) ? (sinter_data_type_t)FZ_ONE_OF(f, sinter_s8, sinter_s4, sinter_s32) : (sinter_data_type_t)FZ_ONE_OF(f, sinter_u8, sinter_u4, sinter_s32);
}

/* How one tensor of scales or zero points divides the data. */
typedef struct geometry {
    const char *qtype;
    int64_t axis;
    int64_t group[FZ_MAX_RANK];
    int ndims;
    int64_t dims[FZ_MAX_RANK];
} geometry_t;

static void group_dims(const int64_t *dims, int ndims, geometry_t *g)
{
    g->ndims = ndims;
    for (int d = 0; d < ndims; d++)
        g->dims[d] = g->group[d] ? fz_divide(dims[d], g->group[d]) : 1;
}

/* group 0 stands for the whole dim. */
static void choose_groups(fz_t *f, int ndims, const int64_t *dims, geometry_t *g)
{
    int one = fz_chance(f, 60) ? fz_range(f, ndims > 1 ? ndims - 2 : 0, ndims - 1) : -1; /* usually along one of the two last dims */

    for (int d = 0; d < ndims; d++)
        g->group[d] = one >= 0 && d != one ? !fz_chance(f, 10) : fz_chance(f, 10) ? 0 : fz_divisor(f, dims[d]);
    group_dims(dims, ndims, g);
}

static void choose_geometry(fz_t *f, int ndims, const int64_t *dims, geometry_t *g)
{
    int what = ndims == 0 ? 0 : fz_pick(f, 10);

    memset(g, 0, sizeof *g);
    g->qtype = what < 2 ? "per_tensor" : what < 4 ? "per_channel" : "per_group";
    if (what < 2) {
        g->ndims = fz_pick(f, 2);
        g->dims[0] = 1;
    } else if (what < 4) {
        g->axis = fz_pick(f, ndims);
        if (fz_chance(f, 70)) {
            g->ndims = 1;
            g->dims[0] = dims[g->axis];
        } else {
            g->group[g->axis] = 1;
            group_dims(dims, ndims, g);
        }
    } else {
        choose_groups(f, ndims, dims, g);
    }
}

/* A zero point for each group of its own. */
static void zp_geometry(fz_t *f, int ndims, const int64_t *dims, const geometry_t *scales, geometry_t *zps)
{
    *zps = *scales;
    if (strcmp(scales->qtype, "per_group"))
        return;
    if (fz_chance(f, 30))
        choose_groups(f, ndims, dims, zps);
    else if (fz_chance(f, 15))
        zps->ndims = 0;
}

static void list_axes(fz_t *f, int ndims, const int64_t *dims, const geometry_t *g)
{
    int64_t axes[FZ_MAX_RANK], groups[FZ_MAX_RANK];
    size_t n = 0;

    for (int d = 0; d < ndims; d++) {
        int64_t count = g->dims[d];

        if ((count == 1 || count == dims[d]) && fz_chance(f, 70))
            continue; /* need not be listed */
        axes[n] = fz_chance(f, 20) ? d - ndims : d;
        groups[n++] = count;
    }
    if (n == 0)
        return;
    fz_s64(f, sinter_op_attr_axis, n, axes);
    fz_s64(f, sinter_op_attr_groups, n, groups);
}

/* Symbols can be in group_shape, if the dim is divided, but not in groups. */
static void geometry_attrs(fz_t *f, int ndims, const int64_t *dims, const geometry_t *g)
{
    int64_t shape[FZ_MAX_RANK];
    int countable = 1, sized = 1;

    if (strcmp(g->qtype, "per_tensor") || fz_chance(f, 50))
        fz_str(f, sinter_op_attr_qtype, g->qtype);
    if (!strcmp(g->qtype, "per_channel") && (g->axis != 1 || fz_chance(f, 50)))
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 20) ? g->axis - ndims : g->axis});
    if (strcmp(g->qtype, "per_group"))
        return;
    for (int d = 0; d < ndims; d++) {
        countable = countable && !fz_is_symbol(g->dims[d]) && dims[d] > 0;
        sized = sized && (g->group[d] || !fz_is_symbol(dims[d])) && fz_size(f, dims[d], 0) > 0;
        shape[d] = g->group[d] ? g->group[d] : dims[d];
    }
    if (sized && fz_chance(f, 60))
        fz_s64(f, sinter_op_attr_group_shape, (size_t)ndims, shape);
    else if (countable && fz_chance(f, 80))
        list_axes(f, ndims, dims, g);
}

/* Adds the inputs for scales and zero points; gives how many. */
static int scale_inputs(fz_t *f, sinter_data_type_t code, int ndims, const int64_t *dims, geometry_t *g, int *in)
{
    geometry_t z;

    choose_geometry(f, ndims, dims, g);
    in[0] = fz_input(f, scale_type(f), g->ndims, g->dims);
    if (!is_int(code) || !fz_chance(f, 60))
        return 1;
    zp_geometry(f, ndims, dims, g, &z);
    in[1] = fz_input(f, zp_type(f, code), z.ndims, z.dims);
    return 2;
}

/* Codes of six bits come whole or in two planes. */
static int split_planes(fz_t *f, sinter_data_type_t code)
{
    return gr_dtype(code)->bits == 6 && fz_chance(f, 50);
}

int fz_dequantized(fz_t *f, sinter_data_type_t type, int ndims, const int64_t *dims, int codes)
{
    sinter_data_type_t code = codes < 0 ? fz_code_type(f) : f->tensors[codes].type;
    geometry_t g;
    int in[FZ_MAX_PORTS], n = 1, split = codes < 0 && split_planes(f, code), given;

    in[0] = codes < 0 ? fz_input(f, split ? sinter_u4 : code, ndims, dims) : codes;
    given = fz_chance(f, 25);
    if (!given)
        n += scale_inputs(f, code, ndims, dims, &g, in + 1);
    if (split)
        in[n++] = fz_input(f, sinter_u2, ndims, dims);
    n = fz_op(f, given ? sinter_op_dequantize : sinter_op_dynamic_dequantize, type, ndims, dims, n, in);
    if (given)
        static_attrs(f, code, ndims, dims);
    else
        geometry_attrs(f, ndims, dims, &g);
    if (split)
        fz_str(f, sinter_op_attr_split_type, gr_dtype(code)->name);
    return n;
}

int fz_quantized(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    sinter_data_type_t code = fz_code_type(f);
    geometry_t g;
    int in[3] = {x}, n;

    if (fz_chance(f, 60)) {
        n = fz_unary(f, sinter_op_quantize, code, x);
        static_attrs(f, code, t.ndims, t.dims);
        return n;
    }
    n = 1 + scale_inputs(f, code, t.ndims, t.dims, &g, in + 1);
    n = fz_op(f, sinter_op_dynamic_quantize, code, t.ndims, t.dims, n, in);
    geometry_attrs(f, t.ndims, t.dims, &g);
    return n;
}
