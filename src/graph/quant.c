#include "graph/quant.h"

#include <inttypes.h>
#include <string.h>

#include "base/status.h"
#include "graph/attr.h"
#include "numeric/dtype.h"

typedef enum qtype { PER_TENSOR, PER_CHANNEL, PER_GROUP } qtype_t;

/* What a quantization_kind asks of its tensors. */
typedef struct kind_row {
    const char *name;
    quant_kind_t kind;
    bool (*element_ok)(sinter_data_type_t type);
    sinter_data_type_t scale_type; /* undef: any scale type */
    int64_t
        default_group; /* along the last axis where neither attributes nor shapes tell; 0: none */
    bool has_zp;
} kind_row_t;

/* Everything read so far about one node; `geom` is the result. */
typedef struct reader {
    const char *label;
    const attr_t *attrs;
    int n_attrs;
    const lt_t *data;
    const lt_t *codes; /* the quantised side: data, or the output of a quantising op */
    sinter_data_type_t code_type;
    const kind_row_t *kind;
    qtype_t qtype;
    int n_axes, axes[SINTER_MAX_NDIMS]; /* normalised */
    const attr_t *groups, *group_shape; /* only if per_group, else NULL */
    quant_geom_t *geom;
} reader_t;

/* One tensor of scales or zero points on its way into the geometry. */
typedef struct param {
    const lt_t *lt;
    const char *name;
    int64_t *group;
    int *dim;
    bool
        /* axis + groups and group_shape speak of the scales, zero points go by their shape alone */
        checks_attrs;
} param_t;

#define FAIL(r, status, format, ...) sg_fail(status, "%s: " format, (r)->label, __VA_ARGS__)
#define FAIL_ATTR(r, ...) FAIL(r, sinter_invalid_graph_op, __VA_ARGS__)
#define FAIL_SHAPE(r, ...) FAIL(r, sinter_invalid_shape, __VA_ARGS__)
#define FAIL_TYPE(r, ...) FAIL(r, sinter_invalid_data_type, __VA_ARGS__)

static bool known(int64_t dim)
{
    return dim != SINTER_UNKNOWN_DIM;
}

/* ---- data types ------------------------------------------------------------------------------ */

static bool is_narrow_float(sinter_data_type_t type)
{
    return dtype_is_float(type) && !dtype_is_wide_float(type);
}

/* u2 holds the high bits of split codes, no numbers. */
static bool is_narrow_int(sinter_data_type_t type)
{
    return dtype_traits(type)->cls == DTYPE_INT && dtype_traits(type)->bits <= 8 &&
           type != sinter_u2;
}

static bool is_mx_element(sinter_data_type_t type)
{
    return is_narrow_float(type) || type == sinter_s8;
}

static bool is_symmetric_element(sinter_data_type_t type)
{
    return is_narrow_float(type) || (is_narrow_int(type) && dtype_traits(type)->min < 0);
}

static bool is_nv_element(sinter_data_type_t type)
{
    return type == sinter_f4_e2m1;
}

static bool is_scale_type(sinter_data_type_t type)
{
    return type == sinter_f32 || type == sinter_f16 || type == sinter_bf16 || type == sinter_e8m0 ||
           type == sinter_f8_e4m3;
}

static bool is_zp_type(sinter_data_type_t type)
{
    return is_narrow_int(type) || type == sinter_s32;
}

static const kind_row_t kinds[] = {
    {"static", QUANT_STATIC, NULL, sinter_data_type_undef, 0, false},
    {"dynamic_mx", QUANT_DYNAMIC_MX, is_mx_element, sinter_e8m0, 32, false},
    {"dynamic_mx_rceil", QUANT_DYNAMIC_MX_RCEIL, is_mx_element, sinter_e8m0, 32, false},
    {"dynamic_symmetric", QUANT_DYNAMIC_SYMMETRIC, is_symmetric_element, sinter_data_type_undef, 0,
     false},
    {"dynamic_asymmetric", QUANT_DYNAMIC_ASYMMETRIC, is_narrow_int, sinter_data_type_undef, 0,
     true},
    {"dynamic_nv", QUANT_DYNAMIC_NV, is_nv_element, sinter_f8_e4m3, 16, false},
};

static sinter_status_t check_scale_type(const reader_t *r, const lt_t *scales)
{
    if (!is_scale_type(scales->data_type)) {
        return FAIL_TYPE(r,
                         "scales, tensor %" PRIu64 ", are %s, not f32, f16, bf16, e8m0 or f8_e4m3",
                         scales->id, dtype_traits(scales->data_type)->name);
    }
    if (r->kind->scale_type != sinter_data_type_undef && scales->data_type != r->kind->scale_type) {
        return FAIL_TYPE(r, "scales of %s, tensor %" PRIu64 ", must be %s, not %s", r->kind->name,
                         scales->id, dtype_traits(r->kind->scale_type)->name,
                         dtype_traits(scales->data_type)->name);
    }
    return sinter_success;
}

static sinter_status_t check_zp_type(const reader_t *r, const lt_t *zps)
{
    if (!is_zp_type(zps->data_type)) {
        return FAIL_TYPE(r, "zero points, tensor %" PRIu64 ", are %s, not s8, u8, s4, u4 or s32",
                         zps->id, dtype_traits(zps->data_type)->name);
    }
    if (dtype_traits(r->code_type)->cls != DTYPE_INT) {
        return FAIL_TYPE(
            r, "zero points, tensor %" PRIu64 ", need integer data, but tensor %" PRIu64 " is %s",
            zps->id, r->codes->id, dtype_traits(r->code_type)->name);
    }
    return sinter_success;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static sinter_status_t read_kind(reader_t *r)
{
    const attr_t *attr = attr_find(r->attrs, r->n_attrs, sinter_op_attr_quantization_kind);
    r->kind = &kinds[0];
    if (attr == NULL) {
        return sinter_success;
    }
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(attr->str, kinds[i].name) == 0) {
            r->kind = &kinds[i];
            r->geom->kind = kinds[i].kind;
            return sinter_success;
        }
    }
    return FAIL_ATTR(r, "quantization_kind \"%s\" is unknown", attr->str);
}

static sinter_status_t read_qtype(reader_t *r)
{
    static const char *const names[] = {
        [PER_TENSOR] = "per_tensor", [PER_CHANNEL] = "per_channel", [PER_GROUP] = "per_group"};
    const attr_t *attr = attr_find(r->attrs, r->n_attrs, sinter_op_attr_qtype);
    if (attr == NULL) {
        r->qtype = r->kind->default_group > 0 ? PER_GROUP : PER_TENSOR;
        return sinter_success;
    }
    for (int i = PER_TENSOR; i <= PER_GROUP; i++) {
        if (strcmp(attr->str, names[i]) == 0) {
            r->qtype = (qtype_t)i;
            return sinter_success;
        }
    }
    return FAIL_ATTR(r, "qtype \"%s\" is not per_tensor, per_channel or per_group", attr->str);
}

static sinter_status_t add_axis(reader_t *r, int64_t axis)
{
    int rank = r->data->ndims;
    if (axis < -rank || axis >= rank) {
        return FAIL_ATTR(r, "axis %" PRId64 " is outside the %d dimensions of tensor %" PRIu64,
                         axis, rank, r->data->id);
    }
    int normal = (int)(axis < 0 ? axis + rank : axis);
    for (int i = 0; i < r->n_axes; i++) {
        if (r->axes[i] == normal) {
            return FAIL_ATTR(r, "axis %d is given twice", normal);
        }
    }
    r->axes[r->n_axes++] = normal;
    return sinter_success;
}

/* per_tensor does not look at its axis, which real graphs fill with anything. */
static sinter_status_t read_axes(reader_t *r)
{
    const attr_t *attr = attr_find(r->attrs, r->n_attrs, sinter_op_attr_axis);
    if (attr != NULL && attr->n == 0) {
        return FAIL_ATTR(r, "axis has %zu values", attr->n);
    }
    if (attr != NULL && attr->n > 1 && r->qtype != PER_GROUP) {
        return FAIL_ATTR(r, "%zu axes need qtype per_group", attr->n);
    }
    bool needed = r->qtype == PER_CHANNEL || (r->qtype == PER_GROUP && r->groups != NULL);
    if (r->qtype == PER_TENSOR || r->data->ndims < 0 || (attr == NULL && !needed)) {
        return sinter_success;
    }
    if (attr == NULL) {
        return add_axis(r, 1);
    }
    for (size_t i = 0; i < attr->n; i++) {
        SG_TRY(add_axis(r, attr->s64[i]));
    }
    return sinter_success;
}

static sinter_status_t check_groups(const reader_t *r)
{
    const attr_t *axes = attr_find(r->attrs, r->n_attrs, sinter_op_attr_axis);
    size_t n_axes = axes != NULL ? axes->n : 1;
    if (r->groups->n != n_axes) {
        return FAIL_ATTR(r, "groups has %zu values for %zu axes", r->groups->n, n_axes);
    }
    for (size_t i = 0; i < r->groups->n; i++) {
        int64_t n = r->groups->s64[i],
                dim = (int)i < r->n_axes ? r->data->dims[r->axes[i]] : SINTER_UNKNOWN_DIM;
        if (n < 1) {
            return FAIL_ATTR(r, "groups[%zu] is %" PRId64 ", which is less than 1", i, n);
        }
        if (known(dim) && n > dim) {
            return FAIL_ATTR(r,
                             "groups[%zu] is %" PRId64 ", more than the %" PRId64
                             " elements of axis %d of tensor %" PRIu64,
                             i, n, dim, r->axes[i], r->data->id);
        }
        if (known(dim) && dim % n != 0) {
            return FAIL_ATTR(r,
                             "groups[%zu] is %" PRId64 ", which does not divide the %" PRId64
                             " elements of axis %d of tensor %" PRIu64,
                             i, n, dim, r->axes[i], r->data->id);
        }
    }
    return sinter_success;
}

static sinter_status_t check_group_shape(const reader_t *r)
{
    int rank = r->data->ndims;
    if (rank >= 0 && r->group_shape->n != (size_t)rank) {
        return FAIL_ATTR(r, "group_shape has %zu values for the %d dimensions of tensor %" PRIu64,
                         r->group_shape->n, rank, r->data->id);
    }
    for (size_t i = 0; i < r->group_shape->n; i++) {
        int64_t size = r->group_shape->s64[i],
                dim = rank >= 0 ? r->data->dims[i] : SINTER_UNKNOWN_DIM;
        if (size < 1) {
            return FAIL_ATTR(r, "group_shape[%zu] is %" PRId64 ", which is less than 1", i, size);
        }
        if (known(dim) && dim % size != 0) {
            return FAIL_ATTR(r,
                             "group_shape[%zu] is %" PRId64
                             ", which does not divide dimension %zu (%" PRId64
                             ") of tensor %" PRIu64,
                             i, size, i, dim, r->data->id);
        }
    }
    return sinter_success;
}

static sinter_status_t read_attrs(reader_t *r)
{
    SG_TRY(read_qtype(r));
    if (r->qtype == PER_GROUP) {
        r->groups = attr_find(r->attrs, r->n_attrs, sinter_op_attr_groups);
        r->group_shape = attr_find(r->attrs, r->n_attrs, sinter_op_attr_group_shape);
    }
    SG_TRY(read_axes(r));
    if (r->groups != NULL) {
        SG_TRY(check_groups(r));
    }
    if (r->group_shape != NULL) {
        SG_TRY(check_group_shape(r));
    }
    if (r->qtype == PER_CHANNEL && r->n_axes == 1) {
        r->geom->axis = r->axes[0];
    }
    return sinter_success;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* All known dims are 1: one value, or it may become one. */
static bool may_be_single(const lt_t *lt)
{
    for (int i = 0; i < lt->ndims; i++) {
        if (known(lt->dims[i]) && lt->dims[i] != 1) {
            return false;
        }
    }
    return true;
}

static bool is_single(const lt_t *lt)
{
    return lt_dims_known(lt) && may_be_single(lt);
}

/* One value for everything. */
static void cover_all(const reader_t *r, int64_t *group, int *param_dim)
{
    for (int i = 0; i < r->data->ndims; i++) {
        int64_t dim = r->data->dims[i];
        group[i] = dim == 0 ? 1 : dim;
        param_dim[i] = -1;
    }
}

static sinter_status_t per_tensor(const reader_t *r, const param_t *p)
{
    if (!may_be_single(p->lt)) {
        return FAIL_SHAPE(r, "%s of qtype per_tensor, tensor %" PRIu64 ", must be one value",
                          p->name, p->lt->id);
    }
    cover_all(r, p->group, p->dim);
    return sinter_success;
}

/* One dim with a value for each index of the axis, or all dims of the data with 1 everywhere
 * else. */
static sinter_status_t per_channel(const reader_t *r, const param_t *p)
{
    const lt_t *lt = p->lt;
    int rank = r->data->ndims, axis = r->geom->axis;
    if (rank < 0) {
        return sinter_success;
    }
    cover_all(r, p->group, p->dim);
    if (!p->checks_attrs && is_single(lt)) {
        return sinter_success;
    }
    if (lt->ndims >= 0 && lt->ndims != 1 && lt->ndims != rank) {
        return FAIL_SHAPE(
            r, "%s of qtype per_channel, tensor %" PRIu64 ", have %d dimensions, not 1 or %d",
            p->name, lt->id, (int)lt->ndims, rank);
    }
    bool full = lt->ndims == rank;
    for (int i = 0; full && i < rank; i++) {
        if (i != axis && known(lt->dims[i]) && lt->dims[i] != 1) {
            return FAIL_SHAPE(r,
                              "%s of qtype per_channel, tensor %" PRIu64
                              ", have dimension %d that is neither 1 nor the axis %d",
                              p->name, lt->id, i, axis);
        }
        p->dim[i] = i;
    }
    int64_t values = lt->ndims < 0 ? SINTER_UNKNOWN_DIM : lt->dims[full ? axis : 0],
            channels = r->data->dims[axis];
    if (known(values) && known(channels) && values != channels) {
        return FAIL_SHAPE(r,
                          "%s of qtype per_channel, tensor %" PRIu64 ", are %" PRId64
                          " for the %" PRId64 " channels of axis %d",
                          p->name, lt->id, values, channels, axis);
    }
    p->dim[axis] = full ? axis : 0;
    p->group[axis] = 1;
    return sinter_success;
}

/* The number of groups of data dimension `dim` by axis + groups; 0: the attributes do not say. */
static int64_t listed_groups(const reader_t *r, int dim)
{
    for (int i = 0; r->groups != NULL && i < r->n_axes; i++) {
        if (r->axes[i] == dim) {
            return r->groups->s64[i];
        }
    }
    return 0;
}

/* The group size of data dimension i that the attributes ask for; unknown if they leave it open. */
static int64_t attr_group(const reader_t *r, int i)
{
    int64_t groups = listed_groups(r, i), dim = r->data->dims[i];
    if (r->group_shape != NULL) {
        return r->group_shape->s64[i];
    }
    if (groups > 0) {
        return known(dim) ? dim / groups : SINTER_UNKNOWN_DIM;
    }
    if (r->kind->kind == QUANT_STATIC || (r->groups == NULL && r->kind->default_group == 0)) {
        return SINTER_UNKNOWN_DIM;
    }
    /* The op makes the scales: what is not divided has its own, but for the default group of the
     * formats that have one. */
    return r->groups == NULL && i == r->data->ndims - 1 ? r->kind->default_group : 1;
}

/* The scales have `n` values along data dimension i: does that agree with the attributes? */
static sinter_status_t check_against_attrs(const reader_t *r, const param_t *p, int i, int64_t n)
{
    int64_t groups = listed_groups(r, i), dim = r->data->dims[i];
    if (groups > 0 && n != groups) {
        return FAIL_SHAPE(r,
                          "%s, tensor %" PRIu64 ", have %" PRId64
                          " values along dimension %d, but groups says %" PRId64,
                          p->name, p->lt->id, n, i, groups);
    }
    if (r->groups != NULL && groups == 0 && n != 1 && known(dim) && n != dim) {
        return FAIL_SHAPE(r,
                          "%s, tensor %" PRIu64 ", divide dimension %d into %" PRId64
                          " groups, but axis does not list it",
                          p->name, p->lt->id, i, n);
    }
    if (r->group_shape != NULL && known(dim) && n != dim / r->group_shape->s64[i]) {
        return FAIL_SHAPE(r,
                          "%s, tensor %" PRIu64 ", have %" PRId64
                          " values along dimension %d, but group_shape makes it %" PRId64,
                          p->name, p->lt->id, n, i, dim / r->group_shape->s64[i]);
    }
    return sinter_success;
}

static sinter_status_t group_of_dim(const reader_t *r, const param_t *p, int i)
{
    int64_t dim = r->data->dims[i], n = p->lt->ndims < 0 ? SINTER_UNKNOWN_DIM : p->lt->dims[i];
    int64_t wanted = p->checks_attrs ? attr_group(r, i) : SINTER_UNKNOWN_DIM;
    if (!known(n) || !known(dim)) {
        if (known(wanted) && known(dim) && dim % wanted != 0) {
            return FAIL_SHAPE(r,
                              "dimension %d (%" PRId64 ") of tensor %" PRIu64
                              " is no multiple of the default group %" PRId64,
                              i, dim, r->data->id, wanted);
        }
        /* So many scales over a dim that is not known yet: no default says how many elements
         * each has. */
        p->group[i] = known(n) && r->group_shape == NULL ? SINTER_UNKNOWN_DIM : wanted;
        return known(n) && p->checks_attrs ? check_against_attrs(r, p, i, n) : sinter_success;
    }
    if (n < 1 && dim > 0) {
        return FAIL_SHAPE(r, "%s, tensor %" PRIu64 ", have no values along dimension %d", p->name,
                          p->lt->id, i);
    }
    if (n > 1 && (n > dim || dim % n != 0)) {
        return FAIL_SHAPE(r,
                          "%s, tensor %" PRIu64 ", have %" PRId64
                          " values along dimension %d, which do not divide its %" PRId64
                          " elements",
                          p->name, p->lt->id, n, i, dim);
    }
    p->group[i] = dim > n && n > 0 ? dim / n : 1;
    return p->checks_attrs ? check_against_attrs(r, p, i, n) : sinter_success;
}

static sinter_status_t per_group(const reader_t *r, const param_t *p)
{
    int rank = r->data->ndims;
    if (!p->checks_attrs && is_single(p->lt) && p->lt->ndims != rank) {
        cover_all(r, p->group, p->dim);
        return sinter_success;
    }
    if (rank >= 0 && p->lt->ndims >= 0 && p->lt->ndims != rank) {
        return FAIL_SHAPE(r,
                          "%s of qtype per_group, tensor %" PRIu64
                          ", have %d dimensions, but tensor %" PRIu64 " has %d",
                          p->name, p->lt->id, (int)p->lt->ndims, r->data->id, rank);
    }
    for (int i = 0; i < rank; i++) {
        p->dim[i] = i;
        SG_TRY(group_of_dim(r, p, i));
    }
    return sinter_success;
}

static sinter_status_t read_param(const reader_t *r, const param_t *p)
{
    static sinter_status_t (*const readers[])(const reader_t *, const param_t *) = {
        [PER_TENSOR] = per_tensor, [PER_CHANNEL] = per_channel, [PER_GROUP] = per_group};
    return readers[r->qtype](r, p);
}

static sinter_status_t read_scales(const reader_t *r, const lt_t *scales)
{
    SG_TRY(check_scale_type(r, scales));
    return read_param(r,
                      &(param_t){scales, "scales", r->geom->scale_group, r->geom->scale_dim, true});
}

static sinter_status_t read_zps(const reader_t *r, const lt_t *zps)
{
    SG_TRY(check_zp_type(r, zps));
    r->geom->has_zp = true;
    return read_param(r, &(param_t){zps, "zero points", r->geom->zp_group, r->geom->zp_dim, false});
}

/* ---- the forms of the op --------------------------------------------------------------------- */

static sinter_status_t check_attr_zps(const reader_t *r, const attr_t *zps)
{
    const dtype_traits_t *codes = dtype_traits(r->code_type);
    bool integer = codes->cls == DTYPE_INT;
    if (zps->n != (size_t)r->geom->n_scales) {
        return FAIL_ATTR(r, "zps has %zu values for %" PRId64 " scales", zps->n, r->geom->n_scales);
    }
    for (size_t i = 0; i < zps->n; i++) {
        double value = (double)zps->s64[i];
        if (!integer && zps->s64[i] != 0) {
            return FAIL_ATTR(r,
                             "zps[%zu] is %" PRId64
                             ", but zero points need integer data and tensor %" PRIu64 " is %s",
                             i, zps->s64[i], r->codes->id, codes->name);
        }
        if (integer && (value < codes->min || value > codes->max)) {
            return FAIL_ATTR(
                r, "zps[%zu] is %" PRId64 ": zero points outside their type, %s of tensor %" PRIu64,
                i, zps->s64[i], codes->name, r->codes->id);
        }
    }
    return sinter_success;
}

/* Quantize and Dequantize: scales and zero points are attributes. */
static sinter_status_t read_static(reader_t *r)
{
    quant_geom_t *g = r->geom;
    const attr_t *scales = attr_find(r->attrs, r->n_attrs, sinter_op_attr_scales);
    const attr_t *zps = attr_find(r->attrs, r->n_attrs, sinter_op_attr_zps);
    if (r->qtype == PER_GROUP) {
        return FAIL_ATTR(r, "qtype %s needs scales as a tensor", "per_group");
    }
    if (scales == NULL || scales->n == 0) {
        return FAIL_ATTR(r, "the attribute scales is %s", scales == NULL ? "missing" : "empty");
    }
    if (r->qtype == PER_TENSOR && scales->n != 1) {
        return FAIL_ATTR(r, "scales has %zu values, qtype per_tensor wants one", scales->n);
    }
    g->from_attrs = true;
    g->scales = scales->f32;
    g->n_scales = (int64_t)scales->n;
    if (zps != NULL) {
        SG_TRY(check_attr_zps(r, zps));
        g->zps = zps->s64;
        g->has_zp = true;
    }
    cover_all(r, g->scale_group, g->scale_dim);
    cover_all(r, g->zp_group, g->zp_dim);
    if (g->axis >= 0) {
        int64_t channels = r->data->dims[g->axis];
        if (known(channels) && channels != g->n_scales) {
            return FAIL_ATTR(r,
                             "scales has %" PRId64 " values for the %" PRId64
                             " channels of axis %d of tensor %" PRIu64,
                             g->n_scales, channels, g->axis, r->data->id);
        }
        g->scale_group[g->axis] = g->zp_group[g->axis] = 1;
        g->scale_dim[g->axis] = g->zp_dim[g->axis] = 0;
    }
    return sinter_success;
}

/* DynamicDequantize, and DynamicQuantize of kind static: scales are input 1, zero points input
 * 2. */
static sinter_status_t read_given(reader_t *r, const lt_t *in, int n_in)
{
    if (n_in < 2) {
        return FAIL_ATTR(r, "the scales of tensor %" PRIu64 " are missing: they are input 1",
                         r->data->id);
    }
    r->geom->scale_input = 1;
    SG_TRY(read_scales(r, &in[1]));
    if (n_in > 2) {
        r->geom->zp_input = 2;
        SG_TRY(read_zps(r, &in[2]));
    }
    return sinter_success;
}

/* The only input besides the data is the per-tensor scale of dynamic_nv. */
static sinter_status_t check_dynamic_inputs(const reader_t *r, const lt_t *in, int n_in)
{
    int allowed = r->kind->kind == QUANT_DYNAMIC_NV ? 2 : 1;
    if (n_in > allowed) {
        return FAIL_ATTR(r, "quantization_kind %s computes its scales: %d inputs are too many",
                         r->kind->name, n_in);
    }
    if (n_in == 2 && in[1].data_type != sinter_f32) {
        return FAIL_TYPE(
            r, "the per-tensor scale of dynamic_nv, tensor %" PRIu64 ", must be f32, not %s",
            in[1].id, dtype_traits(in[1].data_type)->name);
    }
    if (n_in == 2 && !may_be_single(&in[1])) {
        return FAIL_SHAPE(
            r, "the per-tensor scale of dynamic_nv, tensor %" PRIu64 ", must be one value",
            in[1].id);
    }
    return sinter_success;
}

/* Scale and zero point come from the same extremes, so they share their groups. */
static sinter_status_t match_zp_groups(const reader_t *r, const lt_t *zps)
{
    quant_geom_t *g = r->geom;
    for (int i = 0; i < r->data->ndims; i++) {
        if (!known(g->zp_group[i])) {
            g->zp_group[i] = g->scale_group[i];
        }
        if (!known(g->scale_group[i])) {
            g->scale_group[i] = g->zp_group[i];
        }
        if (g->zp_group[i] != g->scale_group[i]) {
            return FAIL_SHAPE(r,
                              "zero points of dynamic_asymmetric, tensor %" PRIu64
                              ", must have the groups of the scales in dimension %d",
                              zps->id, i);
        }
    }
    return sinter_success;
}

/* DynamicQuantize that computes scales: output 1, and zero points: output 2. */
static sinter_status_t read_dynamic(reader_t *r, const lt_t *in, int n_in, const lt_t *out,
                                    int n_out)
{
    SG_TRY(check_dynamic_inputs(r, in, n_in));
    if (n_out < 2) {
        return FAIL_ATTR(r, "quantization_kind %s needs an output for its scales", r->kind->name);
    }
    if (r->kind->has_zp && n_out < 3) {
        return FAIL_ATTR(r, "quantization_kind %s needs an output for its zero points",
                         r->kind->name);
    }
    if (!r->kind->has_zp && n_out > 2) {
        return FAIL_ATTR(r, "quantization_kind %s has no zero points to put into tensor %" PRIu64,
                         r->kind->name, out[2].id);
    }
    if (!r->kind->element_ok(r->code_type)) {
        return FAIL_TYPE(r, "quantization_kind %s does not make %s, the type of tensor %" PRIu64,
                         r->kind->name, dtype_traits(r->code_type)->name, r->codes->id);
    }
    SG_TRY(read_scales(r, &out[1]));
    if (!r->kind->has_zp) {
        return sinter_success;
    }
    SG_TRY(read_zps(r, &out[2]));
    return match_zp_groups(r, &out[2]);
}

static void init_geometry(quant_geom_t *g, int ndims)
{
    *g = (quant_geom_t){.kind = QUANT_STATIC,
                        .ndims = ndims,
                        .axis = -1,
                        .scale_input = -1,
                        .zp_input = -1,
                        .high_port = -1};
    for (int i = 0; i < SINTER_MAX_NDIMS; i++) {
        g->scale_group[i] = g->zp_group[i] = SINTER_UNKNOWN_DIM;
        g->scale_dim[i] = g->zp_dim[i] = -1;
    }
}

sinter_status_t quant_geometry(const char *label, sinter_op_kind_t kind, const attr_t *attrs,
                               int n_attrs, const lt_t *in, int n_in, const lt_t *out, int n_out,
                               quant_geom_t *geom)
{
    bool quantises = kind == sinter_op_quantize || kind == sinter_op_dynamic_quantize;
    reader_t r = {.label = label,
                  .attrs = attrs,
                  .n_attrs = n_attrs,
                  .data = &in[0],
                  .kind = &kinds[0],
                  .geom = geom};
    if (n_in < 1 || n_out < (quantises ? 1 : 0)) {
        return FAIL_ATTR(&r, "a tensor of %s is missing", n_in < 1 ? "inputs" : "outputs");
    }
    init_geometry(geom, in[0].ndims);
    r.codes = quantises ? &out[0] : &in[0];
    r.code_type = r.codes->data_type;
    if (kind == sinter_op_dynamic_quantize) {
        SG_TRY(read_kind(&r));
    }
    SG_TRY(read_attrs(&r));
    if (kind != sinter_op_quantize) {
        const bool scales = kind == sinter_op_dynamic_dequantize || r.kind->kind != QUANT_STATIC;
        SG_TRY(quant_read_planes(label, attrs, n_attrs, quantises, quantises ? out : in,
                                 scales ? 2 : 1, quantises ? &n_out : &n_in, &r.code_type,
                                 &geom->high_port));
    }
    if (kind == sinter_op_quantize || kind == sinter_op_dequantize) {
        return read_static(&r);
    }
    if (quantises && geom->high_port >= 0 && r.kind->kind == QUANT_STATIC) {
        return FAIL_ATTR(&r, "split_type %s needs a quantization_kind that computes its scales",
                         dtype_traits(r.code_type)->name);
    }
    return r.kind->kind == QUANT_STATIC ? read_given(&r, in, n_in)
                                        : read_dynamic(&r, in, n_in, out, n_out);
}

static int64_t offset_of(int ndims, const int64_t *group, const int *dim, const int64_t *idx,
                         const int64_t *strides)
{
    int64_t offset = 0;
    for (int i = 0; i < ndims; i++) {
        if (dim[i] >= 0) {
            offset += idx[i] / group[i] * strides[dim[i]];
        }
    }
    return offset;
}

int64_t quant_scale_index(const quant_geom_t *geom, const int64_t *idx,
                          const int64_t *scale_strides)
{
    return offset_of(geom->ndims, geom->scale_group, geom->scale_dim, idx, scale_strides);
}

int64_t quant_zp_index(const quant_geom_t *geom, const int64_t *idx, const int64_t *zp_strides)
{
    return offset_of(geom->ndims, geom->zp_group, geom->zp_dim, idx, zp_strides);
}
