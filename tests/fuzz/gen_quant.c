/* Quantisation for all generators: static, with given scales, and with computed ones. */
#include "fuzz.h"

#include <string.h>

sinter_data_type_t fz_code_type(fz_t *f)
{
    return (sinter_data_type_t)FZ_ONE_OF(f, sinter_s4, sinter_s4, sinter_u4, sinter_u4, sinter_s8,
                                         sinter_u8, sinter_f8_e4m3, sinter_f8_e5m2, sinter_f4_e2m1,
                                         sinter_f4_e2m1, sinter_f6_e3m2, sinter_f6_e2m3,
                                         sinter_f8_e4m3fnuz, sinter_f8_e5m2fnuz);
}

static int is_int(sinter_data_type_t type)
{
    return gr_dtype(type)->class_ == GR_INT;
}

static int is_signed(sinter_data_type_t type)
{
    return gr_dtype(type)->digits != gr_dtype(type)->bits;
}

/* scales and zps attributes for a tensor of known channels; floats: zero points may be floats, or
 * offsets. */
static void static_attrs(fz_t *f, sinter_data_type_t code, int ndims, const int64_t *dims,
                         int floats)
{
    float scales[64], float_zps[64];
    int64_t zps[64], axis = ndims ? fz_pick(f, ndims) : 0;
    int channel = ndims && !fz_is_symbol(dims[axis]) && dims[axis] > 0 && dims[axis] <= 64 &&
                  fz_chance(f, 50);
    size_t n = channel ? (size_t)dims[axis] : 1;
    int width = gr_dtype(code)->bits <= 4 ? 2 : 8, zp = is_int(code) && fz_chance(f, 50);
    int offsets = fz_chance(f, 50);

    for (size_t i = 0; i < n; i++) {
        scales[i] = (float)fz_range(f, 1, 40) / (is_int(code) ? 8 * width : 32);
        float_zps[i] = (float)((is_signed(code) ? 0 : width) + fz_range(f, -width, width)) + 0.3f;
        float_zps[i] *= offsets ? -scales[i] : 1;
        zps[i] = zp ? (is_signed(code) ? 0 : width) + fz_range(f, -width, width) : 0;
    }
    fz_f32(f, sinter_op_attr_scales, n, scales);
    if (floats && is_int(code) && fz_chance(f, 50)) {
        fz_f32(f, sinter_op_attr_float_zps, n, float_zps);
        if (offsets) {
            fz_str(f, sinter_op_attr_zps_kind, "offsets");
        }
    } else if (zp || fz_chance(f, 20)) {
        fz_s64(f, sinter_op_attr_zps, n, zps);
    }
    if (channel || fz_chance(f, 50)) {
        fz_str(f, sinter_op_attr_qtype, channel ? "per_channel" : "per_tensor");
    }
    if (channel && (axis != 1 || fz_chance(f, 50))) {
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 30) ? axis - ndims : axis});
    }
}

static sinter_data_type_t scale_type(fz_t *f)
{
    return (sinter_data_type_t)FZ_ONE_OF(f, sinter_f32, sinter_f32, sinter_f16, sinter_bf16,
                                         sinter_e8m0, sinter_f8_e4m3);
}

static sinter_data_type_t zp_type(fz_t *f, sinter_data_type_t code, int floats)
{
    if (floats && fz_chance(f, 30)) {
        return (sinter_data_type_t)FZ_ONE_OF(f, sinter_f32, sinter_f16, sinter_bf16);
    }
    return is_signed(code) ? (sinter_data_type_t)FZ_ONE_OF(f, sinter_s8, sinter_s4, sinter_s32)
                           : (sinter_data_type_t)FZ_ONE_OF(f, sinter_u8, sinter_u4, sinter_s32);
}

static void group_dims(const int64_t *dims, int ndims, fz_geometry_t *g)
{
    g->ndims = ndims;
    for (int d = 0; d < ndims; d++) {
        g->dims[d] = g->group[d] ? fz_divide(dims[d], g->group[d]) : 1;
    }
}

/* A size that leaves a short last group, where the dim is large enough; else 0. */
static int64_t ragged_size(fz_t *f, int64_t dim)
{
    const int64_t least = fz_size(f, dim, 0),
                  size = FZ_ONE_OF(f, 3, 5, 8, 12, 16, 20, 24, 32, 40, 48, 56, 64);
    return size < least && least % size ? size : 0;
}

/* group 0 stands for the whole dim. ragged: some last groups may be short. */
static void choose_groups(fz_t *f, int ndims, const int64_t *dims, int ragged, fz_geometry_t *g)
{
    int one = fz_chance(f, 60) ? fz_range(f, ndims > 1 ? ndims - 2 : 0, ndims - 1)
                               : -1; /* usually along one of the two last dims */

    for (int d = 0; d < ndims; d++) {
        g->group[d] = one >= 0 && d != one ? !fz_chance(f, 10)
                      : fz_chance(f, 10)   ? 0
                                           : fz_divisor(f, dims[d]);
    }
    g->ragged = 0;
    if (ragged && fz_chance(f, 30)) {
        for (int d = 0; d < ndims; d++) {
            const int64_t size = g->group[d] != 1 || fz_chance(f, 20) ? ragged_size(f, dims[d]) : 0;
            g->group[d] = size                                   ? size
                          : g->group[d] || fz_is_symbol(dims[d]) ? g->group[d]
                                                                 : dims[d];
            g->ragged = g->ragged || size;
        }
        for (int d = 0; d < ndims && g->ragged; d++) {
            if (g->group[d] == 0) { /* no size says a whole dim that is not known */
                g->group[d] = 1;
            }
        }
    }
    group_dims(dims, ndims, g);
}

static void choose_geometry(fz_t *f, int ndims, const int64_t *dims, int ragged, fz_geometry_t *g)
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
        choose_groups(f, ndims, dims, ragged, g);
    }
}

/* A number of groups along one dim that changes from execute to execute, which the shapes of scales
 * alone tell. */
static void vary_groups(fz_t *f, int ndims, const int64_t *dims, fz_geometry_t *g)
{
    const int d = ndims > 0 ? fz_range(f, ndims > 1 ? ndims - 2 : 0, ndims - 1) : -1;
    int64_t sizes[FZ_VARIANTS];

    if (!f->dynamic || d < 0 || strcmp(g->qtype, "per_group") || g->ragged ||
        f->n_symbols >= FZ_SOME_SYMBOLS || fz_may_be_empty(f, dims[d]) || !fz_chance(f, 25)) {
        return;
    }
    for (int v = 0; v < FZ_VARIANTS; v++) {
        const int64_t size = fz_size(f, dims[d], v), divisor = FZ_ONE_OF(f, 1, 2, 3, 4, 8, 16, 32);

        sizes[v] = size % divisor == 0 ? size / divisor : fz_chance(f, 50) ? 1 : size;
    }
    g->dims[d] = fz_symbol(f, sizes[0], sizes[1], sizes[2]);
    g->untold = 1;
}

/* Scales or zero points, of which dims may be known to execute alone. */
static int group_input(fz_t *f, sinter_data_type_t type, const fz_geometry_t *g)
{
    int64_t dims[FZ_MAX_RANK];

    for (int d = 0; d < g->ndims; d++) {
        dims[d] = fz_hidden(f, g->dims[d]);
    }
    return fz_input(f, type, g->ndims, dims);
}

/* A zero point for each group of its own. */
static void zp_geometry(fz_t *f, int ndims, const int64_t *dims, const fz_geometry_t *scales,
                        fz_geometry_t *zps)
{
    *zps = *scales;
    if (strcmp(scales->qtype, "per_group")) {
        return;
    }
    if (fz_chance(f, 30)) {
        choose_groups(f, ndims, dims, 0, zps);
    } else if (fz_chance(f, 15)) {
        zps->ndims = 0;
    }
}

static void list_axes(fz_t *f, int ndims, const int64_t *dims, const fz_geometry_t *g)
{
    int64_t axes[FZ_MAX_RANK], groups[FZ_MAX_RANK];
    size_t n = 0;

    for (int d = 0; d < ndims; d++) {
        int64_t count = g->dims[d];

        if ((count == 1 || count == dims[d]) && fz_chance(f, 70)) {
            continue; /* need not be listed */
        }
        axes[n] = fz_chance(f, 20) ? d - ndims : d;
        groups[n++] = count;
    }
    if (n == 0) {
        return;
    }
    fz_s64(f, sinter_op_attr_axis, n, axes);
    fz_s64(f, sinter_op_attr_groups, n, groups);
}

/* Symbols can be in group_shape, if the dim is divided, but not in groups. */
static void geometry_attrs(fz_t *f, int ndims, const int64_t *dims, const fz_geometry_t *g)
{
    int64_t shape[FZ_MAX_RANK];
    int countable = 1, sized = 1;

    if (strcmp(g->qtype, "per_tensor") || fz_chance(f, 50)) {
        fz_str(f, sinter_op_attr_qtype, g->qtype);
    }
    if (!strcmp(g->qtype, "per_channel") && (g->axis != 1 || fz_chance(f, 50))) {
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 20) ? g->axis - ndims : g->axis});
    }
    if (strcmp(g->qtype, "per_group") || g->untold) {
        return;
    }
    for (int d = 0; d < ndims; d++) {
        countable = countable && !fz_is_symbol(g->dims[d]) && !fz_may_be_empty(f, dims[d]);
        sized = sized && (g->group[d] || !fz_is_symbol(dims[d])) && fz_size(f, dims[d], 0) > 0;
        shape[d] = g->group[d] ? g->group[d] : dims[d];
    }
    if (g->ragged || (sized && fz_chance(f, 60))) {
        fz_s64(f, sinter_op_attr_group_shape, (size_t)ndims, shape);
    } else if (countable && fz_chance(f, 80)) {
        list_axes(f, ndims, dims, g);
    }
}

/* Adds the inputs for scales and zero points; gives how many. floats: zero points may be floats, or
 * offsets. */
static int scale_inputs(fz_t *f, sinter_data_type_t code, int ndims, const int64_t *dims,
                        int floats, fz_geometry_t *g, int *in)
{
    fz_geometry_t z;
    int offsets = floats && fz_chance(f, 25);

    choose_geometry(f, ndims, dims, 1, g);
    vary_groups(f, ndims, dims, g);
    in[0] = group_input(f, scale_type(f), g);
    if (!is_int(code) || !fz_chance(f, 60)) {
        return 1;
    }
    if (offsets) {
        g->offsets = 1;
        in[1] = group_input(
            f, (sinter_data_type_t)FZ_ONE_OF(f, sinter_f32, sinter_f16, sinter_bf16), g);
        return 2;
    }
    zp_geometry(f, ndims, dims, g, &z);
    in[1] = group_input(f, zp_type(f, code, floats), &z);
    return 2;
}

static int has_range_of_f32(sinter_data_type_t type)
{
    return type == sinter_f32 || type == sinter_bf16 || type == sinter_e8m0;
}

/* Not drawn: seeds name the same cases as before. */
void fz_perhaps_at_brink(fz_t *f, int codes, int scales, int zps, int offsets, int percent)
{
    const uint64_t h = random_mix(f->seed ^ (uint64_t)scales << 16);
    fz_tensor_t *c = &f->tensors[codes], *s = &f->tensors[scales],
                *z = zps < 0 ? s : &f->tensors[zps];

    if ((int)(h % 100) >= percent || s->produced || z->produced || !has_range_of_f32(s->type) ||
        (offsets && !has_range_of_f32(z->type))) {
        return;
    }
    s->codes = codes;
    s->power = s->type == sinter_e8m0;
    s->brink = FZ_BRINK_SCALES;
    if (zps < 0) {
        return;
    }
    z->brink = offsets ? FZ_BRINK_OFFSETS : FZ_BRINK_ZPS;
    z->codes = codes;
    z->power = s->power;
    if (!c->produced && c->type == sinter_u8 &&
        h >> 32 & 1) { /* within a few codes of each other */
        c->far = 6;
        c->level = 7;
    }
}

/* Codes of six bits come whole or in two planes. */
static int split_planes(fz_t *f, sinter_data_type_t code)
{
    return gr_dtype(code)->bits == 6 && fz_chance(f, 50);
}

int fz_dequantized(fz_t *f, sinter_data_type_t type, int ndims, const int64_t *dims, int codes)
{
    sinter_data_type_t code = codes < 0 ? fz_code_type(f) : f->tensors[codes].type;
    fz_geometry_t g;
    int in[FZ_MAX_PORTS], n = 1, split = codes < 0 && split_planes(f, code), given;

    in[0] = codes < 0 ? fz_input(f, split ? sinter_u4 : code, ndims, dims) : codes;
    given = fz_chance(f, 25);
    if (!given) {
        n += scale_inputs(f, code, ndims, dims, 1, &g, in + 1);
    }
    if (n > 1) {
        fz_perhaps_at_brink(f, in[0], in[1], n > 2 ? in[2] : -1, g.offsets, g.offsets ? 40 : 10);
    }
    if (split) {
        in[n++] = fz_input(f, sinter_u2, ndims, dims);
    }
    n = fz_op(f, given ? sinter_op_dequantize : sinter_op_dynamic_dequantize, type, ndims, dims, n,
              in);
    if (given) {
        static_attrs(f, code, ndims, dims, 1);
    } else {
        geometry_attrs(f, ndims, dims, &g);
    }
    if (!given && g.offsets) {
        fz_str(f, sinter_op_attr_zps_kind, "offsets");
    }
    if (split) {
        fz_str(f, sinter_op_attr_split_type, gr_dtype(code)->name);
    }
    return n;
}

/* ---- computed scales ------------------------------------------------------------------------- */

typedef struct kind {
    const char *name;
    int64_t group;                      /* of the last dim, if nothing is said */
    sinter_data_type_t types[9], scale; /* undef: any */
} kind_t;

#define NARROW_FLOATS                                                               \
    sinter_f8_e4m3, sinter_f8_e5m2, sinter_f4_e2m1, sinter_f6_e3m2, sinter_f6_e2m3, \
        sinter_f8_e4m3fnuz, sinter_f8_e5m2fnuz, sinter_s8
static const kind_t kinds[] = {
    {"dynamic_mx", 32, {NARROW_FLOATS}, sinter_e8m0},
    {"dynamic_mx_rceil", 32, {NARROW_FLOATS}, sinter_e8m0},
    {"dynamic_symmetric", 0, {NARROW_FLOATS, sinter_s4}, sinter_data_type_undef},
    {"dynamic_asymmetric", 0, {sinter_u8, sinter_s8, sinter_u4, sinter_s4}, sinter_data_type_undef},
    {"dynamic_nv", 16, {sinter_f4_e2m1}, sinter_f8_e4m3},
    {"dynamic_signed", 0, {sinter_s8, sinter_s4}, sinter_data_type_undef},
    {"dynamic_iq4_nl", 32, {sinter_s8}, sinter_data_type_undef},
};

static sinter_data_type_t element_type(fz_t *f, const kind_t *k)
{
    int n = 0;

    while (n < 9 && k->types[n]) {
        n++;
    }
    return k->types[fz_pick(f, n)];
}

/* Can group_shape say it? Symbols need a group, empty dims have none. */
static int shapeable(const fz_t *f, int ndims, const int64_t *dims, const fz_geometry_t *g)
{
    for (int d = 0; d < ndims; d++) {
        if ((!g->group[d] && fz_is_symbol(dims[d])) || fz_size(f, dims[d], 0) == 0) {
            return 0;
        }
    }
    return 1;
}

/* Can axis and groups say it? */
static int listable(int ndims, const int64_t *dims, const fz_geometry_t *g)
{
    int countable = 0;

    for (int d = 0; d < ndims; d++) {
        if (g->dims[d] != dims[d] &&
            (fz_is_symbol(g->dims[d]) || g->dims[d] == 0 || dims[d] == 0)) {
            return 0;
        }
        countable += !fz_is_symbol(g->dims[d]) && g->dims[d] > 0;
    }
    return countable > 0;
}

/* Dims that are not listed have a scale for each index. */
static void list_shared(fz_t *f, int ndims, const int64_t *dims, const fz_geometry_t *g)
{
    int64_t axes[FZ_MAX_RANK], groups[FZ_MAX_RANK];
    size_t n = 0;
    int left = 0;

    for (int d = 0; d < ndims; d++) {
        left += !fz_is_symbol(g->dims[d]) && g->dims[d] > 0;
    }
    for (int d = 0; d < ndims; d++) {
        if (fz_is_symbol(g->dims[d]) || g->dims[d] == 0) {
            continue;
        }
        left--;
        if (g->dims[d] == dims[d] && fz_chance(f, 60) && (n || left)) {
            continue;
        }
        axes[n] = fz_chance(f, 20) ? d - ndims : d;
        groups[n++] = g->dims[d];
    }
    fz_s64(f, sinter_op_attr_axis, n, axes);
    fz_s64(f, sinter_op_attr_groups, n, groups);
}

static void last_dim_groups(int ndims, const int64_t *dims, int64_t group, fz_geometry_t *g)
{
    memset(g, 0, sizeof *g);
    g->qtype = "per_group";
    for (int d = 0; d < ndims; d++) {
        g->group[d] = d == ndims - 1 ? group : 1;
    }
    group_dims(dims, ndims, g);
}

static int divides(const fz_t *f, int64_t dim, int64_t by)
{
    for (int v = 0; v < FZ_VARIANTS; v++) {
        if (by < 1 || fz_size(f, dim, v) % by || fz_size(f, dim, v) == 0) {
            return 0;
        }
    }
    return 1;
}

/* A geometry that attributes can tell without the dims of the scales. */
static void computed_geometry(fz_t *f, int ndims, const int64_t *dims, int64_t group,
                              fz_geometry_t *g)
{
    if (ndims && divides(f, dims[ndims - 1], group)) {
        last_dim_groups(ndims, dims, group, g);
        if (shapeable(f, ndims, dims, g) || listable(ndims, dims, g)) {
            return;
        }
    }
    for (int i = 0; i < 8; i++) {
        choose_geometry(f, ndims, dims, 1, g);
        if (strcmp(g->qtype, "per_group") || shapeable(f, ndims, dims, g) ||
            (!g->ragged && listable(ndims, dims, g))) {
            return;
        }
    }
    memset(g, 0, sizeof *g);
    g->qtype = "per_tensor";
}

/* telling: the attributes must say all. */
static void computed_attrs(fz_t *f, const kind_t *k, int ndims, const int64_t *dims,
                           const fz_geometry_t *g, int telling)
{
    const int implied = ndims && k->group && g->group[ndims - 1] == k->group && g->ndims == ndims &&
                        !strcmp(g->qtype, "per_group");
    int own = 1, shape = shapeable(f, ndims, dims, g), list = listable(ndims, dims, g);

    for (int d = 0; d < ndims - 1; d++) {
        own = own && g->dims[d] == dims[d];
    }
    if (!g->ragged && implied && own && fz_chance(f, 40)) {
        return;
    }
    fz_str(f, sinter_op_attr_qtype, g->qtype);
    if (!strcmp(g->qtype, "per_channel") && (g->axis != 1 || fz_chance(f, 50))) {
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){fz_chance(f, 20) ? g->axis - ndims : g->axis});
    }
    if (strcmp(g->qtype, "per_group")) {
        return;
    }
    if (!g->ragged && !telling && fz_chance(f, 10)) {
        return;
    }
    if (g->ragged || (shape && (!list || fz_chance(f, 60)))) {
        int64_t sizes[FZ_MAX_RANK];

        for (int d = 0; d < ndims; d++) {
            sizes[d] = g->group[d] ? g->group[d] : dims[d];
        }
        fz_s64(f, sinter_op_attr_group_shape, (size_t)ndims, sizes);
    } else if (list) {
        list_shared(f, ndims, dims, g);
    }
}

/* Whether the rank is what the library would infer; otherwise it must be declared. */
static int usual_rank(const fz_geometry_t *g, int ndims)
{
    return g->ndims == (!strcmp(g->qtype, "per_tensor")    ? 0
                        : !strcmp(g->qtype, "per_channel") ? 1
                                                           : ndims);
}

static int param_output(fz_t *f, sinter_data_type_t type, const fz_geometry_t *g, int ndims,
                        int *telling)
{
    int t = fz_more_output(f, type, g->ndims, g->dims);

    if (f->tensors[t].declare >= FZ_NO_DIMS &&
        !usual_rank(g, ndims)) { /* one unknown dim means an unknown rank */
        f->tensors[t].declare = g->ndims > 1 ? FZ_NO_DIMS : FZ_ALL;
    }
    *telling |= f->tensors[t].declare >= FZ_NO_DIMS;
    for (int d = 0; d < g->ndims; d++) {
        *telling |= fz_is_symbol(g->dims[d]);
    }
    f->tensors[t].keep = fz_chance(f, 80);
    return t;
}

/* An input, or computed, exactly; the data may be made with it. */
static int tensor_scale(fz_t *f, int *x)
{
    int s = fz_scalar(f, sinter_f32, f->tensors[*x].ndims > 0);

    f->tensors[s].property = sinter_tensor_property_variable;
    if (!f->compute_scales || fz_chance(f, 70)) {
        return s;
    }
    s = fz_unary(f, sinter_op_abs, sinter_f32, s);
    if (fz_chance(f, 70)) {
        *x = fz_binary(f, sinter_op_multiply, f->tensors[*x].type, *x, s);
    }
    return s;
}

fz_coded_t fz_computed(fz_t *f, int x, int64_t group)
{
    const kind_t *k = &kinds[fz_pick(f, (int)(sizeof kinds / sizeof *kinds))];
    const int by_sign = !strcmp(k->name, "dynamic_signed") || !strcmp(k->name, "dynamic_iq4_nl");
    const int scaled = k->scale == sinter_f8_e4m3 && fz_chance(f, 30),
              scale = scaled ? tensor_scale(f, &x) : -1;
    const fz_tensor_t t = f->tensors[x];
    int in[2] = {x, scale}, telling = t.declare >= FZ_NO_DIMS;
    const sinter_data_type_t code = element_type(f, k);
    fz_coded_t q = {
        .zps = -1, .high = -1, .split = split_planes(f, code) ? code : sinter_data_type_undef};

    computed_geometry(f, t.ndims, t.dims, group, &q.geometry);
    q.codes = fz_op(f, sinter_op_dynamic_quantize, q.split ? sinter_u4 : code, t.ndims, t.dims,
                    1 + scaled, in);
    f->tensors[q.codes].keep = fz_chance(f, 80);
    q.scales = param_output(f,
                            k->scale  ? k->scale
                            : by_sign ? FZ_ONE_OF(f, sinter_f32, sinter_f16, sinter_bf16)
                                      : scale_type(f),
                            &q.geometry, t.ndims, &telling);
    if (!strcmp(k->name, "dynamic_asymmetric")) {
        const sinter_data_type_t zp = zp_type(f, f->tensors[q.codes].type, 1);

        q.zps = param_output(f, zp, &q.geometry, t.ndims, &telling);
        q.geometry.offsets = gr_dtype(zp)->class_ == GR_FLOAT && fz_chance(f, 60);
        if (q.geometry.offsets) {
            fz_str(f, sinter_op_attr_zps_kind, "offsets");
        }
    }
    if (q.split) {
        q.high = fz_more_output(f, sinter_u2, t.ndims, t.dims);
        f->tensors[q.high].keep = fz_chance(f, 80);
        fz_str(f, sinter_op_attr_split_type, gr_dtype(code)->name);
    }
    fz_str(f, sinter_op_attr_quantization_kind, k->name);
    if (gr_dtype(code)->class_ == GR_INT && strncmp(k->name, "dynamic_mx", 10) &&
        strcmp(k->name, "dynamic_iq4_nl") && fz_chance(f, 25)) {
        const int64_t bits = 2 + fz_pick(f, gr_dtype(code)->bits - 1);
        fz_s64(f, sinter_op_attr_code_bits, 1, &bits);
    }
    computed_attrs(f, k, t.ndims, t.dims, &q.geometry, telling);
    return q;
}

int fz_recovered(fz_t *f, sinter_data_type_t type, const fz_coded_t *q)
{
    const fz_tensor_t t = f->tensors[q->codes];
    int in[3] = {q->codes, q->scales, q->split ? q->high : q->zps};
    int x = fz_op(f, sinter_op_dynamic_dequantize, type, t.ndims, t.dims, in[2] < 0 ? 2 : 3, in);

    if (q->split) {
        fz_str(f, sinter_op_attr_split_type, gr_dtype(q->split)->name);
    }
    if (q->geometry.offsets) {
        fz_str(f, sinter_op_attr_zps_kind, "offsets");
    }
    geometry_attrs(f, t.ndims, t.dims, &q->geometry);
    return x;
}

int fz_quantized(fz_t *f, int x)
{
    const fz_tensor_t t = f->tensors[x];
    sinter_data_type_t code = fz_code_type(f);
    fz_geometry_t g;
    int in[3] = {x}, n;

    if (fz_chance(f, 40)) {
        return fz_computed(f, x, FZ_ONE_OF(f, 0, 16, 32)).codes;
    }
    if (fz_chance(f, 60)) {
        n = fz_unary(f, sinter_op_quantize, code, x);
        static_attrs(f, code, t.ndims, t.dims, 0);
        return n;
    }
    n = 1 + scale_inputs(f, code, t.ndims, t.dims, 0, &g, in + 1);
    n = fz_op(f, sinter_op_dynamic_quantize, code, t.ndims, t.dims, n, in);
    geometry_attrs(f, t.ndims, t.dims, &g);
    return n;
}

/* ---- tiles ----------------------------------------------------------------------------------- */

/* An input of known dims, of a type that tiles have: one matrix, or several with a multiple of 16
 * columns. */
static int fits_tiles(const fz_tensor_t *t, int codes, int ndims, int transposed)
{
    const int bits = gr_dtype(t->type)->bits, number = is_int(t->type) && bits <= 8;
    const int plain = t->type == sinter_f32 || t->type == sinter_f16 || t->type == sinter_bf16;
    const int e4m3 = t->type == sinter_f8_e4m3,
              small = t->type == sinter_f4_e2m1 || t->type == sinter_f8_e5m2 || e4m3;
    const int type = codes ? (number && bits >= 4) || small || plain
                           : number || plain || t->type == sinter_e8m0 || e4m3;
    int one = type && !t->produced && t->declare == FZ_ALL && t->ndims == ndims && ndims >= 2 &&
              t->property != sinter_tensor_property_host_scalar;

    for (int d = 0; one && d < ndims; d++) {
        one = !fz_is_symbol(t->dims[d]) && (d >= ndims - 3 || t->dims[d] == 1);
    }
    return one && (ndims < 3 || t->dims[ndims - 3] == 1 ||
                   t->dims[transposed ? ndims - 2 : ndims - 1] % 16 == 0);
}

void fz_perhaps_in_tiles(fz_t *f, int x, int transpose_b, int percent)
{
    /* Not drawn: seeds name the same cases as before. */
    const int drawn = (int)(random_mix(f->seed + (uint64_t)x) % 100) < percent;

    if (!f->tensors[x].produced) { /* plain floats */
        f->tensors[x].tiles =
            drawn && fits_tiles(&f->tensors[x], 1, f->tensors[x].ndims, transpose_b) ? 1 : 0;
        f->tensors[x].turned = transpose_b;
        return;
    }
    if (f->n_ops == 0) {
        return;
    }
    const fz_op_t *op = &f->ops[f->n_ops - 1];
    int fits = op->kind == sinter_op_dynamic_dequantize && op->out[0] == x && op->n_in > 1;

    for (int i = 0; fits && i < op->n_attrs; i++) {
        fits = op->attrs[i].id != sinter_op_attr_split_type;
    }
    for (int i = 0; fits && i < op->n_in; i++) {
        fits = fits_tiles(&f->tensors[op->in[i]], i == 0, f->tensors[op->in[0]].ndims, transpose_b);
    }
    if (!fits || !drawn) {
        return;
    }
    for (int i = 0; i < op->n_in; i++) {
        f->tensors[op->in[i]].tiles = i == 0 ? 1 : 2;
        f->tensors[op->in[i]].turned = transpose_b;
        f->tensors[op->in[i]].any = (int)(random_mix(f->seed + (uint64_t)x + 1) % 2);
        /* Without tiles, layout any is dense. */
        for (int d = 0; d < FZ_MAX_RANK && f->tensors[op->in[i]].any; d++) {
            f->tensors[op->in[i]].order[d] = d;
            f->tensors[op->in[i]].pad[d] = f->tensors[op->in[i]].repeat[d] = 0;
            f->tensors[op->in[i]].halves = 0;
        }
        /* What compile chooses keeps all bits. */
        if (!f->tensors[op->in[i]].any && is_int(f->tensors[op->in[i]].type) &&
            gr_dtype(f->tensors[op->in[i]].type)->bits == 8) {
            f->tensors[op->in[i]].kept = (int)(random_mix(f->seed + (uint64_t)op->in[i]) % 10) % 7;
        }
    }
}

/* Whether a part of K or V can lie so: of several matrices the columns are multiples of 16, and
 * long blocks are whole. */
static int fits_cache(const fz_tensor_t *t, int codes, int transposed, int blocks)
{
    const int last = t->ndims - 1;
    const int64_t across = last > 0 ? t->dims[transposed ? last - 1 : last] : 1,
                  along = last > 0 ? t->dims[transposed ? last : last - 1] : 1;
    int64_t matrices = 1;

    for (int d = 0; d < last - 1; d++) {
        if (fz_is_symbol(t->dims[d])) {
            return 0;
        }
        matrices *= t->dims[d];
    }
    fz_tensor_t one = *t;
    for (int d = 0; d < last - 1; d++) {
        one.dims[d] = 1;
    }
    return fits_tiles(&one, codes, t->ndims, transposed) && (matrices == 1 || across % 16 == 0) &&
           matrices > 0 && (!blocks || along <= 256 || (along % 256 == 0 && across % 16 == 0));
}

static void lay_part(fz_t *f, int x, int tiles, int transposed, int any)
{
    fz_tensor_t *t = &f->tensors[x];

    if (any) { /* without tiles, it is dense */
        for (int d = 0; d < FZ_MAX_RANK; d++) {
            t->order[d] = d;
            t->pad[d] = t->repeat[d] = 0;
        }
        t->halves = 0;
    }
    t->any = any;
    t->turned = transposed;
    t->tiles = tiles;
}

void fz_cache_in_tiles(fz_t *f, int x, int transpose_b, int is_v, int any)
{
    const fz_op_t *op = f->n_ops > 0 ? &f->ops[f->n_ops - 1] : NULL;
    const int coded = f->tensors[x].produced, tokens_turned = is_v ? !transpose_b : transpose_b;
    int all = 1;

    if (coded && (op == NULL || op->kind != sinter_op_dynamic_dequantize || op->out[0] != x ||
                  op->n_in < 2)) {
        return;
    }
    for (int i = 0; coded && i < op->n_attrs; i++) {
        if (op->attrs[i].id == sinter_op_attr_split_type) {
            return;
        }
    }
    const int *parts = coded ? op->in : &x, n = coded ? op->n_in : 1;
    for (int i = 0; i < n; i++) {
        all = all && fits_cache(&f->tensors[parts[i]], i == 0, i == 0 ? transpose_b : tokens_turned,
                                i == 0 && is_v);
    }
    for (int i = 0; i < n; i++) {
        const int turned = i == 0 ? transpose_b : tokens_turned, blocks = i == 0 && is_v;
        if (any ? all : fits_cache(&f->tensors[parts[i]], i == 0, turned, blocks)) {
            lay_part(f, parts[i], blocks ? 3 : i == 0 ? 1 : 2, turned, any);
        }
    }
}

void fz_some_in_tiles(fz_t *f, int percent)
{
    for (int i = 0; i < f->n_tensors; i++) {
        fz_tensor_t *t = &f->tensors[i];
        const uint64_t h = random_mix(f->seed ^ (uint64_t)(i + 1) << 32);

        if (!t->tiles && fits_tiles(t, 0, t->ndims, (int)(h >> 32 & 1)) &&
            (int)(h % 100) < percent) {
            t->tiles = 2;
            t->turned = (int)(h >> 32 & 1);
        }
    }
}
