/* The descriptor of quantisation applied to tensors: every rule about types and dims, and the group
 * sizes that follow. */
#include <string.h>

#include "graph/fail.h"
#include "graph/quant.h"
#include "numeric/dtype.h"

/* The rules of a quantization_kind for its tensors. */
typedef struct kind_rule {
    const char *name;
    bool (*element_ok)(sinter_data_type_t type);
    sinter_data_type_t scale_type; /* undef: any scale type */
    /* The size along the last axis where attributes and shapes say nothing; 0: none. */
    int64_t default_group;
    bool has_zp;
    bool by_sign; /* scales may be negative */
} kind_rule_t;

/* A node, its tensors, and what is known about them so far. */
typedef struct reader {
    const node_t *node;
    const quant_t *q;
    const kind_rule_t *kind;
    const lt_t *data;
    const lt_t *codes; /* the quantised side: data, or the output of a quantising op */
    sinter_data_type_t code_type;
    int n_in, n_out;                    /* ports without the high plane of split codes */
    int n_axes, axes[SINTER_MAX_NDIMS]; /* counted from the first dim */
    quant_geom_t *geom;
} reader_t;

/* One tensor of scales or zero points. */
typedef struct param {
    const lt_t *lt;
    const char *name;
    int64_t *group; /* into the geometry */
    int8_t *dim;
    /* groups and group_shape are about the scales; zero points go by their dims alone */
    bool checks_attrs;
} param_t;

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

static bool is_signed_element(sinter_data_type_t type)
{
    return is_narrow_int(type) && dtype_traits(type)->min < 0;
}

static bool is_iq4_nl_element(sinter_data_type_t type)
{
    return type == sinter_s8;
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

/* Codes count from them, but no code is one: what is quantised with given zero points may not use
 * them. */
static bool is_float_zp_type(sinter_data_type_t type)
{
    return type == sinter_f32 || type == sinter_f16 || type == sinter_bf16;
}

static const kind_rule_t kind_rules[] = {
    [QUANT_STATIC] = {"static", NULL, sinter_data_type_undef, 0, false},
    [QUANT_DYNAMIC_MX] = {"dynamic_mx", is_mx_element, sinter_e8m0, 32, false},
    [QUANT_DYNAMIC_MX_RCEIL] = {"dynamic_mx_rceil", is_mx_element, sinter_e8m0, 32, false},
    [QUANT_DYNAMIC_SYMMETRIC] = {"dynamic_symmetric", is_symmetric_element, sinter_data_type_undef,
                                 0, false},
    [QUANT_DYNAMIC_ASYMMETRIC] = {"dynamic_asymmetric", is_narrow_int, sinter_data_type_undef, 0,
                                  true},
    [QUANT_DYNAMIC_NV] = {"dynamic_nv", is_nv_element, sinter_f8_e4m3, 16, false},
    [QUANT_DYNAMIC_SIGNED] = {"dynamic_signed", is_signed_element, sinter_data_type_undef, 0, false,
                              .by_sign = true},
    [QUANT_DYNAMIC_IQ4_NL] = {"dynamic_iq4_nl", is_iq4_nl_element, sinter_data_type_undef, 32,
                              false, .by_sign = true},
};

static sinter_status_t check_scale_type(const reader_t *r, const lt_t *scales)
{
    if (!is_scale_type(scales->data_type)) {
        return FAIL_TYPE(r->node,
                         "scales, tensor %" PRIu64 ", are %s, not f32, f16, bf16, e8m0 or f8_e4m3",
                         scales->id, dtype_traits(scales->data_type)->name);
    }
    if (r->kind->scale_type != sinter_data_type_undef && scales->data_type != r->kind->scale_type) {
        return FAIL_TYPE(r->node, "scales of %s, tensor %" PRIu64 ", must be %s, not %s",
                         r->kind->name, scales->id, dtype_traits(r->kind->scale_type)->name,
                         dtype_traits(scales->data_type)->name);
    }
    if (r->kind->by_sign && scales->data_type == sinter_e8m0) {
        return FAIL_TYPE(r->node,
                         "scales of %s, tensor %" PRIu64 ", may be negative, which e8m0 has not",
                         r->kind->name, scales->id);
    }
    return sinter_success;
}

static sinter_status_t check_zp_type(const reader_t *r, const lt_t *zps)
{
    const bool floats =
        r->node->kind == sinter_op_dynamic_dequantize || r->q->kind == QUANT_DYNAMIC_ASYMMETRIC;
    if (!is_zp_type(zps->data_type) && !(floats && is_float_zp_type(zps->data_type))) {
        return FAIL_TYPE(r->node, "zero points, tensor %" PRIu64 ", are %s, not s8, u8, s4, u4%s",
                         zps->id, dtype_traits(zps->data_type)->name,
                         floats ? ", s32, f32, f16 or bf16" : " or s32");
    }
    if (r->q->offsets && !is_float_zp_type(zps->data_type)) {
        return FAIL_TYPE(r->node, "offsets, tensor %" PRIu64 ", are %s, not f32, f16 or bf16",
                         zps->id, dtype_traits(zps->data_type)->name);
    }
    if (dtype_traits(r->code_type)->cls != DTYPE_INT) {
        return FAIL_TYPE(r->node,
                         "zero points, tensor %" PRIu64 ", need integer data, but tensor %" PRIu64
                         " is %s",
                         zps->id, r->codes->id, dtype_traits(r->code_type)->name);
    }
    return sinter_success;
}

/* ---- attributes against dims ----------------------------------------------------------------- */

static sinter_status_t find_axes(reader_t *r)
{
    const int rank = r->data->ndims;
    for (size_t i = 0; rank >= 0 && i < r->q->axes.n; i++) {
        const int64_t axis = r->q->axes.v[i];
        if (axis < -rank || axis >= rank) {
            return FAIL_OP(r->node,
                           "axis %" PRId64 " is outside the %d dimensions of tensor %" PRIu64, axis,
                           rank, r->data->id);
        }
        const int normal = (int)(axis < 0 ? axis + rank : axis);
        for (int k = 0; k < r->n_axes; k++) {
            if (r->axes[k] == normal) {
                return FAIL_OP(r->node, "axis %d is given twice", normal);
            }
        }
        r->axes[r->n_axes++] = normal;
    }
    if (r->q->type == QUANT_PER_CHANNEL && r->n_axes >= 1) {
        r->geom->axis = r->axes[0];
        r->geom->inner_axis = r->n_axes == 2 && r->q->scales != NULL ? r->axes[1] : -1;
    }
    return sinter_success;
}

static sinter_status_t check_groups(const reader_t *r)
{
    for (size_t i = 0; i < r->q->groups.n; i++) {
        const int64_t n = r->q->groups.v[i],
                      dim = (int)i < r->n_axes ? r->data->dims[r->axes[i]] : SINTER_UNKNOWN_DIM;
        if (dim_known(dim) && n > dim) {
            return FAIL_OP(r->node,
                           "groups[%zu] is %" PRId64 ", more than the %" PRId64
                           " elements of axis %d of tensor %" PRIu64,
                           i, n, dim, r->axes[i], r->data->id);
        }
        const int64_t said =
            (int)i < r->n_axes ? quant_said_size(r->q, r->data->ndims, r->axes[i]) : 0;
        if (dim_known(dim) && dim % n != 0 && (said == 0 || n != quant_n_groups(dim, said))) {
            return FAIL_OP(r->node,
                           "groups[%zu] is %" PRId64 ", which does not divide the %" PRId64
                           " elements of axis %d of tensor %" PRIu64,
                           i, n, dim, r->axes[i], r->data->id);
        }
    }
    return sinter_success;
}

static sinter_status_t check_group_shape(const reader_t *r)
{
    const int rank = r->data->ndims;
    const s64_list_t sizes = r->q->group_shape;
    if (rank < 0 || sizes.v == NULL) {
        return sinter_success;
    }
    if (sizes.n != (size_t)rank) {
        return FAIL_OP(r->node,
                       "group_shape has %zu values for the %d dimensions of tensor %" PRIu64,
                       sizes.n, rank, r->data->id);
    }
    return sinter_success;
}

/* ---- shapes ---------------------------------------------------------------------------------- */

/* All known dims are 1: one value, or it may become one. */
static bool may_be_single(const lt_t *lt)
{
    for (int i = 0; i < lt->ndims; i++) {
        if (dim_known(lt->dims[i]) && lt->dims[i] != 1) {
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
static void cover_all(const reader_t *r, int64_t *group, int8_t *param_dim)
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
        return FAIL_SHAPE(r->node, "%s of qtype per_tensor, tensor %" PRIu64 ", must be one value",
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
            r->node, "%s of qtype per_channel, tensor %" PRIu64 ", have %d dimensions, not 1 or %d",
            p->name, lt->id, (int)lt->ndims, rank);
    }
    bool full = lt->ndims == rank;
    for (int i = 0; full && i < rank; i++) {
        if (i != axis && dim_known(lt->dims[i]) && lt->dims[i] != 1) {
            return FAIL_SHAPE(r->node,
                              "%s of qtype per_channel, tensor %" PRIu64
                              ", have dimension %d that is neither 1 nor the axis %d",
                              p->name, lt->id, i, axis);
        }
        p->dim[i] = (int8_t)i;
    }
    int64_t values = lt->ndims < 0 ? SINTER_UNKNOWN_DIM : lt->dims[full ? axis : 0],
            channels = r->data->dims[axis];
    if (dim_known(values) && dim_known(channels) && values != channels) {
        return FAIL_SHAPE(r->node,
                          "%s of qtype per_channel, tensor %" PRIu64 ", are %" PRId64
                          " for the %" PRId64 " channels of axis %d",
                          p->name, lt->id, values, channels, axis);
    }
    p->dim[axis] = (int8_t)(full ? axis : 0);
    p->group[axis] = 1;
    return sinter_success;
}

/* The number of groups of data dimension `dim` by axis + groups; 0: the attributes do not say. */
static int64_t listed_groups(const reader_t *r, int dim)
{
    for (int i = 0; r->q->groups.v != NULL && i < r->n_axes; i++) {
        if (r->axes[i] == dim) {
            return r->q->groups.v[i];
        }
    }
    return 0;
}

/* The group size of data dimension i that the attributes ask for; unknown if they leave it open. */
static int64_t attr_group(const reader_t *r, int i)
{
    const int64_t groups = listed_groups(r, i), dim = r->data->dims[i],
                  said = quant_said_size(r->q, r->data->ndims, i);
    if (said > 0) {
        return dim_known(dim) && said > dim && dim > 0 ? dim : said;
    }
    if (groups > 0) {
        return dim_known(dim) ? dim / groups : SINTER_UNKNOWN_DIM;
    }
    if (r->q->kind == QUANT_STATIC || (r->q->groups.v == NULL && r->kind->default_group == 0)) {
        return SINTER_UNKNOWN_DIM;
    }
    /* The op makes the scales: what is not divided has its own, but for the default group of the
     * formats that have one. */
    return r->q->groups.v == NULL && i == r->data->ndims - 1 ? r->kind->default_group : 1;
}

/* The scales have `n` values along data dimension i: does that agree with the attributes? */
static sinter_status_t check_against_attrs(const reader_t *r, const param_t *p, int i, int64_t n)
{
    int64_t groups = listed_groups(r, i), dim = r->data->dims[i];
    if (groups > 0 && n != groups) {
        return FAIL_SHAPE(r->node,
                          "%s, tensor %" PRIu64 ", have %" PRId64
                          " values along dimension %d, but groups says %" PRId64,
                          p->name, p->lt->id, n, i, groups);
    }
    if (r->q->groups.v != NULL && groups == 0 && n != 1 && dim_known(dim) && n != dim) {
        return FAIL_SHAPE(r->node,
                          "%s, tensor %" PRIu64 ", divide dimension %d into %" PRId64
                          " groups, but axis does not list it",
                          p->name, p->lt->id, i, n);
    }
    const int64_t said = quant_said_size(r->q, r->data->ndims, i);
    if (said > 0 && dim_known(dim) && n != quant_n_groups(dim, said)) {
        return FAIL_SHAPE(r->node,
                          "%s, tensor %" PRIu64 ", have %" PRId64
                          " values along dimension %d, but group_shape makes it %" PRId64
                          " for %" PRId64 " elements",
                          p->name, p->lt->id, n, i, quant_n_groups(dim, said), dim);
    }
    return sinter_success;
}

static sinter_status_t group_of_dim(const reader_t *r, const param_t *p, int i)
{
    int64_t dim = r->data->dims[i], n = p->lt->ndims < 0 ? SINTER_UNKNOWN_DIM : p->lt->dims[i];
    const int64_t said = quant_said_size(r->q, r->data->ndims, i);
    int64_t wanted = p->checks_attrs ? attr_group(r, i) : SINTER_UNKNOWN_DIM;
    if (!dim_known(n) || !dim_known(dim)) {
        if (dim_known(wanted) && dim_known(dim) && dim % wanted != 0 && said == 0) {
            return FAIL_SHAPE(r->node,
                              "dimension %d (%" PRId64 ") of tensor %" PRIu64
                              " is no multiple of the default group %" PRId64,
                              i, dim, r->data->id, wanted);
        }
        /* The number of scales is known, but not the dim that they divide: no default says how many
         * elements each has. */
        p->group[i] = dim_known(n) && said == 0 ? SINTER_UNKNOWN_DIM : wanted;
        return dim_known(n) && p->checks_attrs ? check_against_attrs(r, p, i, n) : sinter_success;
    }
    if (n < 1 && dim > 0) {
        return FAIL_SHAPE(r->node, "%s, tensor %" PRIu64 ", have no values along dimension %d",
                          p->name, p->lt->id, i);
    }
    const int64_t size = dim > 0 ? quant_group_size(dim, n, said) : 0;
    if (n > 1 && size == 0 && (said == 0 || !p->checks_attrs)) {
        return FAIL_SHAPE(r->node,
                          "%s, tensor %" PRIu64 ", have %" PRId64
                          " values along dimension %d, which do not divide its %" PRId64
                          " elements",
                          p->name, p->lt->id, n, i, dim);
    }
    p->group[i] = size > 0 ? size : 1;
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
        return FAIL_SHAPE(r->node,
                          "%s of qtype per_group, tensor %" PRIu64
                          ", have %d dimensions, but tensor %" PRIu64 " has %d",
                          p->name, p->lt->id, (int)p->lt->ndims, r->data->id, rank);
    }
    for (int i = 0; i < rank; i++) {
        p->dim[i] = (int8_t)i;
        SG_TRY(group_of_dim(r, p, i));
    }
    return sinter_success;
}

static sinter_status_t read_param(const reader_t *r, const param_t *p)
{
    static sinter_status_t (*const readers[])(const reader_t *,
                                              const param_t *) = {[QUANT_PER_TENSOR] = per_tensor,
                                                                  [QUANT_PER_CHANNEL] = per_channel,
                                                                  [QUANT_PER_GROUP] = per_group};
    return readers[r->q->type](r, p);
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
    return read_param(r, &(param_t){zps, "zero points", r->geom->zp_group, r->geom->zp_dim, false});
}

/* ---- the forms of the op --------------------------------------------------------------------- */

static sinter_status_t check_attr_zps(const reader_t *r)
{
    const dtype_traits_t *codes = dtype_traits(r->code_type);
    const s64_list_t zps = r->q->zps;
    bool integer = codes->cls == DTYPE_INT;
    if (!integer && r->q->float_zps != NULL) {
        return FAIL_OP(r->node, "float_zps need integer data, but tensor %" PRIu64 " is %s",
                       r->codes->id, codes->name);
    }
    for (size_t i = 0; i < zps.n; i++) {
        double value = (double)zps.v[i];
        if (!integer && zps.v[i] != 0) {
            return FAIL_OP(r->node,
                           "zps[%zu] is %" PRId64
                           ", but zero points need integer data and tensor %" PRIu64 " is %s",
                           i, zps.v[i], r->codes->id, codes->name);
        }
        if (integer && (value < codes->min || value > codes->max)) {
            return FAIL_OP(r->node,
                           "zps[%zu] is %" PRId64
                           ": zero points outside their type, %s of tensor %" PRIu64,
                           i, zps.v[i], codes->name, r->codes->id);
        }
    }
    return sinter_success;
}

/* Scales that are more than the channels of the axis, as a ConvTranspose in groups asks for: the
 * axis has the output channels of one group, and the groups divide the input channels. Before
 * finalize nobody knows who reads the numbers, so that a multiple of the channels passes. */
static sinter_status_t bind_to_reader(const reader_t *r, int64_t channels)
{
    quant_geom_t *g = r->geom;
    const quant_t *q = r->q;
    const int64_t n_scales = (int64_t)q->n_scales;
    const weights_reader_t *reader = &q->readers[0];
    if (q->n_readers < 0 && channels > 0 && n_scales % channels == 0) {
        return sinter_success;
    }
    if (q->n_readers <= 0) {
        return FAIL_OP(r->node,
                       "scales has %" PRId64 " values for the %" PRId64
                       " channels of axis %d of tensor %" PRIu64,
                       n_scales, channels, g->axis, r->data->id);
    }
    if (q->n_readers > 1) {
        return FAIL_OP(r->node,
                       "scales has %" PRId64 " values for the %" PRId64
                       " channels of axis %d of tensor %" PRIu64 ", which op %" PRIu64
                       " (ConvTranspose, groups %" PRId64 ") and op %" PRIu64
                       " (ConvTranspose, groups %" PRId64 ") read in different ways",
                       n_scales, channels, g->axis, r->data->id, reader->op, reader->groups,
                       reader[1].op, reader[1].groups);
    }
    const int ndims = r->data->ndims, in_axis = reader->in_axis + (reader->in_axis < 0 ? ndims : 0),
              out_axis = reader->out_axis + (reader->out_axis < 0 ? ndims : 0);
    if (out_axis != g->axis || channels == 0 || n_scales % channels != 0 ||
        n_scales / channels != reader->groups) {
        return FAIL_OP(r->node,
                       "scales has %" PRId64 " values for the %" PRId64
                       " channels of axis %d of tensor %" PRIu64 ", which op %" PRIu64
                       " (ConvTranspose) reads in %" PRId64
                       " groups with the output channels of each in dimension %d",
                       n_scales, channels, g->axis, r->data->id, reader->op, reader->groups,
                       out_axis);
    }
    const int64_t in_channels = r->data->dims[in_axis];
    if (dim_known(in_channels) && in_channels % reader->groups != 0) {
        return FAIL_OP(r->node,
                       "the %" PRId64 " groups of op %" PRIu64
                       " (ConvTranspose) do not divide dimension %d (%" PRId64
                       ") of tensor %" PRIu64,
                       reader->groups, reader->op, in_axis, in_channels, r->data->id);
    }
    g->axis = in_axis;
    g->inner_axis = out_axis;
    g->scale_group[in_axis] = g->zp_group[in_axis] =
        dim_known(in_channels) ? in_channels / reader->groups : SINTER_UNKNOWN_DIM;
    return sinter_success;
}

/* One or two axes of scales in attributes. */
static sinter_status_t bind_axes(const reader_t *r)
{
    quant_geom_t *g = r->geom;
    const int64_t outer = r->data->dims[g->axis],
                  inner = g->inner_axis >= 0 ? r->data->dims[g->inner_axis] : 1,
                  channels =
                      dim_known(outer) && dim_known(inner) ? outer * inner : SINTER_UNKNOWN_DIM;
    g->scale_group[g->axis] = g->zp_group[g->axis] = 1;
    if (dim_known(channels) && channels != (int64_t)r->q->n_scales) {
        SG_TRY(bind_to_reader(r, channels));
    }
    if (r->q->n_scales > 1) {
        g->scale_dim[g->axis] = g->zp_dim[g->axis] = 0;
    }
    if (g->inner_axis >= 0) {
        g->scale_group[g->inner_axis] = g->zp_group[g->inner_axis] = 1;
        g->scale_dim[g->inner_axis] = g->zp_dim[g->inner_axis] = r->q->n_scales > 1 ? 1 : -1;
    }
    return sinter_success;
}

/* Quantize and Dequantize: scales and zero points are attributes. */
static sinter_status_t bind_attrs(const reader_t *r)
{
    quant_geom_t *g = r->geom;
    SG_TRY(check_attr_zps(r));
    cover_all(r, g->scale_group, g->scale_dim);
    cover_all(r, g->zp_group, g->zp_dim);
    if (g->axis >= 0) {
        SG_TRY(bind_axes(r));
    }
    return sinter_success;
}

/* Scales and what goes with them share their groups: where both are computed, they come from the
 * same extremes. */
static sinter_status_t match_zp_groups(const reader_t *r, const lt_t *zps, const char *name)
{
    quant_geom_t *g = r->geom;
    for (int i = 0; i < r->data->ndims; i++) {
        if (!dim_known(g->zp_group[i])) {
            g->zp_group[i] = g->scale_group[i];
        }
        if (!dim_known(g->scale_group[i])) {
            g->scale_group[i] = g->zp_group[i];
        }
        if (g->zp_group[i] != g->scale_group[i]) {
            return FAIL_SHAPE(r->node,
                              "%s, tensor %" PRIu64
                              ", must have the groups of the scales in dimension %d",
                              name, zps->id, i);
        }
    }
    return sinter_success;
}

/* DynamicDequantize, and DynamicQuantize of kind static: scales are input 1, zero points input
 * 2. */
static sinter_status_t bind_given(const reader_t *r, const lt_t *in)
{
    if (r->q->scale_input < 0) {
        return FAIL_OP(r->node, "the scales of tensor %" PRIu64 " are missing: they are input 1",
                       r->data->id);
    }
    SG_TRY(read_scales(r, &in[r->q->scale_input]));
    if (r->q->zp_input < 0) {
        return sinter_success;
    }
    SG_TRY(read_zps(r, &in[r->q->zp_input]));
    return r->q->offsets ? match_zp_groups(r, &in[r->q->zp_input], "offsets") : sinter_success;
}

/* The only input besides the data is the per-tensor scale of dynamic_nv. */
static sinter_status_t check_dynamic_inputs(const reader_t *r, const lt_t *in)
{
    const int n_in = r->n_in;
    int allowed = r->q->kind == QUANT_DYNAMIC_NV ? 2 : 1;
    if (n_in > allowed) {
        return FAIL_OP(r->node, "quantization_kind %s computes its scales: %d inputs are too many",
                       r->kind->name, n_in);
    }
    if (n_in == 2 && in[1].data_type != sinter_f32) {
        return FAIL_TYPE(
            r->node, "the per-tensor scale of dynamic_nv, tensor %" PRIu64 ", must be f32, not %s",
            in[1].id, dtype_traits(in[1].data_type)->name);
    }
    if (n_in == 2 && !may_be_single(&in[1])) {
        return FAIL_SHAPE(
            r->node, "the per-tensor scale of dynamic_nv, tensor %" PRIu64 ", must be one value",
            in[1].id);
    }
    return sinter_success;
}

/* DynamicQuantize that computes scales: output 1, and zero points: output 2. */
static sinter_status_t bind_computed(const reader_t *r, const lt_t *in, const lt_t *out)
{
    const int n_out = r->n_out;
    SG_TRY(check_dynamic_inputs(r, in));
    if (n_out < 2) {
        return FAIL_OP(r->node, "quantization_kind %s needs an output for its scales",
                       r->kind->name);
    }
    if (r->kind->has_zp && n_out < 3) {
        return FAIL_OP(r->node, "quantization_kind %s needs an output for its zero points",
                       r->kind->name);
    }
    if (!r->kind->has_zp && n_out > 2) {
        return FAIL_OP(r->node,
                       "quantization_kind %s has no zero points to put into tensor %" PRIu64,
                       r->kind->name, out[2].id);
    }
    if (!r->kind->element_ok(r->code_type)) {
        return FAIL_TYPE(r->node,
                         "quantization_kind %s does not make %s, the type of tensor %" PRIu64,
                         r->kind->name, dtype_traits(r->code_type)->name, r->codes->id);
    }
    const dtype_traits_t *codes = dtype_traits(r->code_type);
    if (r->q->code_bits > 0 && (codes->cls != DTYPE_INT || r->q->code_bits > codes->bits)) {
        return FAIL_TYPE(r->node, "code_bits %d does not suit %s, the type of tensor %" PRIu64,
                         r->q->code_bits, codes->name, r->codes->id);
    }
    SG_TRY(read_scales(r, &out[1]));
    if (!r->kind->has_zp) {
        return sinter_success;
    }
    SG_TRY(read_zps(r, &out[2]));
    return match_zp_groups(r, &out[2], "zero points of dynamic_asymmetric");
}

sinter_status_t quant_geometry(const node_t *node, const lt_t *in, const lt_t *out,
                               quant_geom_t *geom)
{
    const quant_t *q = node->quant;
    const bool quantises =
        node->kind == sinter_op_quantize || node->kind == sinter_op_dynamic_quantize;
    const bool given = q->kind == QUANT_STATIC;
    *geom = (quant_geom_t){.ndims = in[0].ndims, .axis = -1, .inner_axis = -1};
    for (int i = 0; i < SINTER_MAX_NDIMS; i++) {
        geom->scale_group[i] = geom->zp_group[i] = SINTER_UNKNOWN_DIM;
        geom->scale_dim[i] = geom->zp_dim[i] = -1;
    }
    reader_t r = {.node = node,
                  .q = q,
                  .kind = &kind_rules[q->kind],
                  .data = &in[0],
                  .codes = quantises ? &out[0] : &in[0],
                  .n_in = node->n_in - (q->high_port >= 0 && !quantises),
                  .n_out = node->n_out - (q->high_port >= 0 && quantises),
                  .geom = geom};
    r.code_type = q->high_port >= 0 ? q->split : r.codes->data_type;
    SG_TRY(find_axes(&r));
    SG_TRY(check_group_shape(&r));
    SG_TRY(check_groups(&r));
    if (node->kind != sinter_op_quantize) {
        const bool with_scales = node->kind == sinter_op_dynamic_dequantize || !given;
        SG_TRY(quant_check_planes(node, quantises, quantises ? out : in, with_scales ? 2 : 1));
    }
    if (q->scales != NULL) {
        return bind_attrs(&r);
    }
    if (quantises && q->high_port >= 0 && given) {
        return FAIL_OP(node, "split_type %s needs a quantization_kind that computes its scales",
                       dtype_traits(r.code_type)->name);
    }
    return given ? bind_given(&r, in) : bind_computed(&r, in, out);
}
