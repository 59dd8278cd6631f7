/* The descriptor of quantisation: read from attributes, copied, edited and written back. */
#include "graph/quant.h"

#include <string.h>

#include "graph/fail.h"
#include "numeric/dtype.h"

static const char *const kind_names[] = {
    [QUANT_STATIC] = "static",
    [QUANT_DYNAMIC_MX] = "dynamic_mx",
    [QUANT_DYNAMIC_MX_RCEIL] = "dynamic_mx_rceil",
    [QUANT_DYNAMIC_SYMMETRIC] = "dynamic_symmetric",
    [QUANT_DYNAMIC_ASYMMETRIC] = "dynamic_asymmetric",
    [QUANT_DYNAMIC_NV] = "dynamic_nv",
    [QUANT_DYNAMIC_SIGNED] = "dynamic_signed",
    [QUANT_DYNAMIC_IQ4_NL] = "dynamic_iq4_nl",
};

static const char *const type_names[] = {
    [QUANT_PER_TENSOR] = "per_tensor",
    [QUANT_PER_CHANNEL] = "per_channel",
    [QUANT_PER_GROUP] = "per_group",
};

/* ---- reading --------------------------------------------------------------------------------- */

static s64_list_t list_of(const node_t *node, sinter_op_attr_t id)
{
    const attr_t *attr = node_attr(node, id);
    return attr != NULL ? (s64_list_t){attr->n, attr->s64} : (s64_list_t){0, NULL};
}

/* The place of a word in a list, -1 if it is not there. */
static int find_word(const char *word, const char *const *words, int n)
{
    for (int i = 0; i < n; i++) {
        if (strcmp(word, words[i]) == 0) {
            return i;
        }
    }
    return -1;
}

static sinter_status_t read_kind(const node_t *node, quant_t *q)
{
    const attr_t *attr = node_attr(node, sinter_op_attr_quantization_kind);
    if (attr != NULL) {
        const int kind =
            find_word(attr->str, kind_names, (int)(sizeof kind_names / sizeof *kind_names));
        if (kind < 0) {
            return FAIL_OP(node, "quantization_kind \"%s\" is unknown", attr->str);
        }
        q->kind = (quant_kind_t)kind;
    }
    return sinter_success;
}

/* MX, NV and IQ4_NL formats have groups of a fixed size unless the attributes say otherwise. */
static bool has_default_group(quant_kind_t kind)
{
    return quant_by_powers(kind) || kind == QUANT_DYNAMIC_NV || kind == QUANT_DYNAMIC_IQ4_NL;
}

static sinter_status_t read_type(const node_t *node, quant_t *q)
{
    const attr_t *attr = node_attr(node, sinter_op_attr_qtype);
    if (attr == NULL) {
        q->type = has_default_group(q->kind) ? QUANT_PER_GROUP : QUANT_PER_TENSOR;
        return sinter_success;
    }
    const int type =
        find_word(attr->str, type_names, (int)(sizeof type_names / sizeof *type_names));
    if (type < 0) {
        return FAIL_OP(node, "qtype \"%s\" is not per_tensor, per_channel or per_group", attr->str);
    }
    q->type = (quant_type_t)type;
    return sinter_success;
}

/* per_tensor does not look at its axis, which real graphs fill with anything. */
static sinter_status_t read_axes(const node_t *node, quant_t *q)
{
    static const int64_t default_axis = 1;
    const s64_list_t given = list_of(node, sinter_op_attr_axis);
    if (given.v != NULL && given.n == 0) {
        return FAIL_OP(node, "axis has %zu values", given.n);
    }
    if (given.n > 1 && q->type != QUANT_PER_GROUP) {
        return FAIL_OP(node, "%zu axes need qtype per_group", given.n);
    }
    if (q->type == QUANT_PER_TENSOR) {
        return sinter_success;
    }
    q->axes = given;
    if (given.v == NULL && (q->type == QUANT_PER_CHANNEL || q->groups.v != NULL)) {
        q->axes = (s64_list_t){1, &default_axis};
    }
    return sinter_success;
}

static sinter_status_t read_sizes(const node_t *node, const char *name, s64_list_t list)
{
    for (size_t i = 0; i < list.n; i++) {
        if (list.v[i] < 1) {
            return FAIL_OP(node, "%s[%zu] is %" PRId64 ", which is less than 1", name, i,
                           list.v[i]);
        }
    }
    return sinter_success;
}

static sinter_status_t read_groups(const node_t *node, quant_t *q)
{
    if (q->type == QUANT_PER_GROUP) {
        q->groups = list_of(node, sinter_op_attr_groups);
        q->group_shape = list_of(node, sinter_op_attr_group_shape);
    }
    SG_TRY(read_axes(node, q));
    if (q->groups.v != NULL && q->groups.n != q->axes.n) {
        return FAIL_OP(node, "groups has %zu values for %zu axes", q->groups.n, q->axes.n);
    }
    SG_TRY(read_sizes(node, "groups", q->groups));
    return read_sizes(node, "group_shape", q->group_shape);
}

static sinter_status_t read_split(const node_t *node, bool quantises, quant_t *q)
{
    const attr_t *attr = node_attr(node, sinter_op_attr_split_type);
    if (attr == NULL) {
        return sinter_success;
    }
    if (!sinter_data_type_parse(attr->str, &q->split) ||
        dtype_split(q->split, (features_t){NEEDS_NOTHING}) == NULL) {
        return FAIL_OP(node, "split_type \"%s\" is no type of six bits", attr->str);
    }
    q->high_port = (quantises ? node->n_out : node->n_in) - 1;
    return sinter_success;
}

/* Only kinds that compute scales have codes of fewer bits than their type. */
static sinter_status_t read_code_bits(const node_t *node, quant_t *q)
{
    const attr_t *attr = node_attr(node, sinter_op_attr_code_bits);
    if (attr == NULL) {
        return sinter_success;
    }
    if (q->kind != QUANT_DYNAMIC_SYMMETRIC && q->kind != QUANT_DYNAMIC_ASYMMETRIC &&
        q->kind != QUANT_DYNAMIC_SIGNED) {
        return FAIL_OP(node, "code_bits needs quantization_kind %s",
                       "dynamic_symmetric, dynamic_asymmetric or dynamic_signed");
    }
    if (attr->s64[0] > 8) {
        return FAIL_OP(node, "code_bits is %" PRId64 ", more than 8", attr->s64[0]);
    }
    q->code_bits = (int)attr->s64[0];
    return sinter_success;
}

static bool says_offsets(const node_t *node)
{
    const attr_t *kind = node_attr(node, sinter_op_attr_zps_kind);
    return kind != NULL && strcmp(kind->str, "offsets") == 0;
}

/* Zero points that are floats, or offsets. */
static sinter_status_t read_float_zps(const node_t *node, quant_t *q)
{
    const attr_t *zps = node_attr(node, sinter_op_attr_float_zps);
    q->offsets = says_offsets(node);
    if (zps == NULL || zps->n == 0) {
        return q->offsets ? FAIL_OP(node, "zps_kind offsets needs the attribute %s", "float_zps")
                          : sinter_success;
    }
    if (q->zps.v != NULL) {
        return FAIL_OP(node, "both zps and %s are given", "float_zps");
    }
    if (zps->n != q->n_scales) {
        return FAIL_OP(node, "float_zps has %zu values for %zu scales", zps->n, q->n_scales);
    }
    q->float_zps = zps->f32;
    q->has_zp = true;
    return sinter_success;
}

/* Quantize and Dequantize: scales and zero points are attributes. */
static sinter_status_t read_values(const node_t *node, quant_t *q)
{
    const attr_t *scales = node_attr(node, sinter_op_attr_scales);
    if (q->type == QUANT_PER_GROUP) {
        return FAIL_OP(node, "qtype %s needs scales as a tensor", "per_group");
    }
    if (scales == NULL || scales->n == 0) {
        return FAIL_OP(node, "the attribute scales is %s", scales == NULL ? "missing" : "empty");
    }
    if (q->type == QUANT_PER_TENSOR && scales->n != 1) {
        return FAIL_OP(node, "scales has %zu values, qtype per_tensor wants one", scales->n);
    }
    q->scales = scales->f32;
    q->n_scales = scales->n;
    q->zps = list_of(node, sinter_op_attr_zps);
    q->has_zp = q->zps.v != NULL;
    if (q->has_zp && q->zps.n != q->n_scales) {
        return FAIL_OP(node, "zps has %zu values for %" PRId64 " scales", q->zps.n,
                       (int64_t)q->n_scales);
    }
    return read_float_zps(node, q);
}

sinter_status_t quant_read(const node_t *node, quant_t *q)
{
    const sinter_op_kind_t op = node->kind;
    const bool quantises = op == sinter_op_quantize || op == sinter_op_dynamic_quantize;
    *q = (quant_t){.kind = QUANT_STATIC,
                   .split = sinter_data_type_undef,
                   .high_port = -1,
                   .scale_input = -1,
                   .zp_input = -1,
                   .n_readers = -1};
    if (op == sinter_op_dynamic_quantize) {
        SG_TRY(read_kind(node, q));
        SG_TRY(read_code_bits(node, q));
    }
    SG_TRY(read_type(node, q));
    SG_TRY(read_groups(node, q));
    SG_TRY(read_split(node, quantises, q));
    if (op == sinter_op_quantize || op == sinter_op_dequantize) {
        return read_values(node, q);
    }
    if (q->kind != QUANT_STATIC) {
        q->has_zp = q->kind == QUANT_DYNAMIC_ASYMMETRIC;
        q->offsets = says_offsets(node);
        return q->offsets && !q->has_zp
                   ? FAIL_OP(node, "zps_kind offsets needs quantization_kind %s",
                             "dynamic_asymmetric")
                   : sinter_success;
    }
    const int n_in = node->n_in - (q->high_port >= 0 && !quantises);
    q->scale_input = n_in > 1 ? 1 : -1;
    q->zp_input = n_in > 2 ? 2 : -1;
    q->has_zp = q->zp_input >= 0;
    q->offsets = says_offsets(node);
    if (q->offsets && quantises) {
        return FAIL_OP(node, "zps_kind offsets needs quantization_kind %s", "dynamic_asymmetric");
    }
    return q->offsets && !q->has_zp
               ? FAIL_OP(node, "zps_kind offsets needs offsets as input %d", q->scale_input + 1)
               : sinter_success;
}

/* ---- copying and editing --------------------------------------------------------------------- */

static bool copy_list(arena_t *arena, s64_list_t *list)
{
    int64_t *copy = list->v != NULL ? ARENA_NEW(arena, int64_t, list->n + 1) : NULL;
    if (copy != NULL) {
        memcpy(copy, list->v, sizeof *copy * list->n);
    }
    const bool ok = list->v == NULL || copy != NULL;
    list->v = copy;
    return ok;
}

quant_t *quant_copy(arena_t *arena, const quant_t *from)
{
    quant_t *to = ARENA_NEW(arena, quant_t, 1);
    float *scales = ARENA_NEW(arena, float, from->n_scales + 1);
    float *zps = ARENA_NEW(arena, float, from->n_scales + 1);
    if (to == NULL || scales == NULL || zps == NULL) {
        return NULL;
    }
    *to = *from;
    if (from->scales != NULL) {
        memcpy(scales, from->scales, sizeof *scales * from->n_scales);
        to->scales = scales;
    }
    if (from->float_zps != NULL) {
        memcpy(zps, from->float_zps, sizeof *zps * from->n_scales);
        to->float_zps = zps;
    }
    const bool ok = copy_list(arena, &to->axes) && copy_list(arena, &to->groups) &&
                    copy_list(arena, &to->group_shape) && copy_list(arena, &to->zps);
    return ok ? to : NULL;
}

static bool says_groups(sinter_op_attr_t id)
{
    return id == sinter_op_attr_qtype || id == sinter_op_attr_axis || id == sinter_op_attr_groups ||
           id == sinter_op_attr_group_shape;
}

/* Replaces the attributes about groups by what the descriptor says. */
static sinter_status_t write_attrs(arena_t *arena, node_t *node)
{
    enum { MOST_WRITTEN = 4 };
    const quant_t *q = node->quant;
    const struct {
        sinter_op_attr_t id;
        s64_list_t list;
    } lists[] = {{sinter_op_attr_axis, q->axes},
                 {sinter_op_attr_groups, q->groups},
                 {sinter_op_attr_group_shape, q->group_shape}};
    attr_t *attrs = ARENA_NEW(arena, attr_t, node->n_attrs + MOST_WRITTEN);
    int n = 0;
    if (attrs == NULL) {
        return sinter_out_of_memory;
    }
    for (int i = 0; i < node->n_attrs; i++) {
        if (!says_groups(node->attrs[i].id)) {
            attrs[n++] = node->attrs[i];
        }
    }
    attrs[n++] = (attr_t){.id = sinter_op_attr_qtype, .n = 1, .str = type_names[q->type]};
    for (size_t i = 0; i < sizeof lists / sizeof *lists; i++) {
        if (lists[i].list.v != NULL) {
            attrs[n++] = (attr_t){.id = lists[i].id, .n = lists[i].list.n, .s64 = lists[i].list.v};
        }
    }
    node->attrs = attrs;
    node->n_attrs = n;
    return sinter_success;
}

sinter_status_t quant_regroup(arena_t *arena, node_t *node, quant_type_t type, s64_list_t axes,
                              s64_list_t group_shape)
{
    quant_t changed = *node->quant;
    changed.type = type;
    changed.axes = axes;
    changed.groups = (s64_list_t){0, NULL};
    changed.group_shape = group_shape;
    changed.n_readers = 0;
    node->quant = quant_copy(arena, &changed);
    return node->quant != NULL ? write_attrs(arena, node) : sinter_out_of_memory;
}
