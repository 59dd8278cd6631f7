/* Quantize, Dequantize, DynamicQuantize, DynamicDequantize with given scales. The shape of the
 * scales (and of the zero points, which may differ) is the geometry: the group size of a dim is
 * dim / scale dim, or what group_shape says, with what is left over in a last, shorter group. */
#include "quant.h"

#include <float.h>
#include <string.h>

#include "internal.h"

int64_t orc_group_size(orc_ctx_t *c, int ndims, int d, int64_t n, int64_t groups)
{
    const orc_attr_t *shape = orc_attr(c, sinter_op_attr_group_shape);
    const bool per_group = strcmp(orc_attr_str(c, sinter_op_attr_qtype, ""), "per_group") == 0;
    if (per_group && shape && shape->n == (size_t)ndims && shape->s64[d] > 0) {
        const int64_t size = shape->s64[d];
        int64_t count = 0;
        for (int64_t at = 0; at < n && count <= groups; at += size < n ? size : n) {
            count++;
        }
        if (count == groups) {
            return size < n ? size : n;
        }
    }
    if (groups < 1 || n % groups) {
        (void)orc_fail(c, "dim %d is %lld, not divisible into %lld groups", d, (long long)n,
                       (long long)groups);
        return -1;
    }
    return n / groups;
}

/* The ConvTranspose that reads a tensor as weights, also behind ops that leave each element where
 * it is; NULL: none. */
static const orc_op_t *weights_reader(const orc_graph_t *graph, uint64_t id)
{
    for (size_t i = 0; i < graph->n_ops; i++) {
        const orc_op_t *op = &graph->ops[i], *found = NULL;
        const bool in_place = op->kind == sinter_op_type_cast || op->kind == sinter_op_reorder ||
                              op->kind == sinter_op_quantize || op->kind == sinter_op_dequantize;
        if (op->kind == sinter_op_conv_transpose && op->inputs[1].id == id) {
            return op;
        }
        if (in_place && op->inputs[0].id == id) {
            found = weights_reader(graph, op->outputs[0].id);
        }
        if (found) {
            return found;
        }
    }
    return NULL;
}

/* A scale for each output channel of a ConvTranspose in groups. Weight w[i, o] of group i / (I / g)
 * makes output channel group * O + o, where O are those of one group. */
static int view_of_groups(orc_ctx_t *c, orc_view_t *view, const orc_value_t *param, int axis,
                          int ndims, const int64_t *dims, int64_t *group)
{
    orc_ctx_t reader = *c;
    reader.op = weights_reader(c->graph, c->op->outputs[0].id);
    if (!reader.op) {
        return orc_fail(c, "%lld scales or zero points for %lld channels",
                        (long long)param->lt.dims[0], (long long)dims[axis]);
    }
    const int64_t groups = orc_attr_s64(&reader, sinter_op_attr_groups, 1);
    const bool window_first = orc_attr_str(&reader, sinter_op_attr_weights_format, "XOI")[0] == 'X';
    const int in = window_first ? ndims - 1 : 0, out = window_first ? ndims - 2 : 1;
    if (axis != out || dims[out] * groups != param->lt.dims[0] || dims[in] % groups) {
        return orc_fail(c, "%lld scales or zero points for %lld groups of %lld channels",
                        (long long)param->lt.dims[0], (long long)groups, (long long)dims[axis]);
    }
    for (int d = 0; d < ndims; d++) {
        view->div[d] = d == in ? dims[in] / groups : 1;
        view->stride[d] = d == in ? dims[out] : d == out;
        if (group) {
            group[d] = d == in ? dims[in] / groups : d == out ? 1 : dims[d];
        }
    }
    return 0;
}

/* View of scales or zero points over data of dims ndims. Keeps the group size of each dim in
 * group, if not NULL. */
static int param_view(orc_ctx_t *c, orc_view_t *view, const orc_value_t *param, int ndims,
                      const int64_t *dims, int64_t *group)
{
    int64_t strides[SINTER_MAX_NDIMS];
    int axis;

    view->src = param;
    if (param->n == 1) {
        for (int d = 0; d < ndims || d == 0; d++) {
            view->div[d] = 1;
            view->stride[d] = 0;
            if (group && d < ndims) {
                group[d] = dims[d];
            }
        }
        return 0;
    }
    if (param->lt.ndims == 1 && ndims > 1) {
        axis = orc_axis(c, 1, ndims);
        if (axis < 0) {
            return -1;
        }
        if (param->lt.dims[0] != dims[axis]) {
            return view_of_groups(c, view, param, axis, ndims, dims, group);
        }
        orc_view_channel(view, param, axis);
        for (int d = 0; group && d < ndims; d++) {
            group[d] = d == axis ? 1 : dims[d];
        }
        return 0;
    }
    if (param->lt.ndims != ndims) {
        return orc_fail(c, "scales or zero points have %d dims, data %d", (int)param->lt.ndims,
                        ndims);
    }
    orc_dense_strides(ndims, param->lt.dims, strides);
    for (int d = 0; d < ndims; d++) {
        int64_t groups = param->lt.dims[d] == 0 && dims[d] == 0
                             ? 1
                             : param->lt.dims[d]; /* nothing to scale, no scales */
        view->div[d] = orc_group_size(c, ndims, d, dims[d], groups);
        if (view->div[d] < 0) {
            return -1;
        }
        view->stride[d] = groups == 1 ? 0 : strides[d];
        if (group) {
            group[d] = view->div[d];
        }
    }
    return 0;
}

/* ---- the two formulas ------------------------------------------------------------------------ */

typedef struct formula {
    bool to_int;
    bool floats;  /* zero points are floats: whatever is subtracted may round */
    bool offsets; /* the third tensor has offsets in place of zero points */
} formula_t;

/* s q + o. An execution may round the product, or take a quotient -o / s for a zero point and round
 * it and the difference: two roundings of parts of s q and of o. */
static void dequantize_with_offsets(const orc_chunk_t *k)
{
    for (size_t i = 0; i < k->n; i++) {
        double q = k->v[0][i], s = k->v[1][i], o = k->v[2][i];
        double sb = k->b[1][i], qb = k->b[0][i];
        k->ob[i] = (qb > 0 ? qb * fabs(s) : 0) + (sb > 0 ? sb * (fabs(q) + qb) : 0) + k->b[2][i] +
                   2 * ORC_U * (fabs(s * q) + fabs(o)) + ORC_UNDERFLOW * (1 + fabs(s));
        k->ov[i] = s * q + o;
    }
}

static void dequantize_chunk(const orc_chunk_t *k)
{
    const formula_t *f = k->args;
    if (f->offsets) {
        dequantize_with_offsets(k);
        return;
    }
    for (size_t i = 0; i < k->n; i++) {
        double d = k->v[0][i] - k->v[2][i], s = k->v[1][i];
        if (k->ob) {
            double db = k->b[0][i] + k->b[2][i], sb = k->b[1][i];
            db += f->floats ? ORC_U * (fabs(k->v[0][i]) + fabs(k->v[2][i])) : 0;
            k->ob[i] = (db > 0 ? db * fabs(s) : 0) + (sb > 0 ? sb * (fabs(d) + db) : 0);
        }
        k->ov[i] = s * d;
    }
}

/* x / s, which may be computed as x * (1 / s). */
double orc_quotient(double x, double xb, double s, double sb, double *bound)
{
    double t = x / s;
    *bound = 0;
    if (isfinite(t) && !orc_is_pow2(s)) {
        *bound = 2 * ORC_U * fabs(t);
    }
    if ((xb > 0 || sb > 0) && !isnan(x) && !isnan(s)) {
        *bound += fabs(s) > sb ? (xb + sb * fabs(t)) / (fabs(s) - sb) : INFINITY;
    }
    return t;
}

/* Integers: round(x / s) + zp, off by whole steps where the quotient may round elsewhere.
 * rounding.c saturates, and rounds for floats. */
static void quantize_chunk(const orc_chunk_t *k)
{
    bool to_int = ((const formula_t *)k->args)->to_int;
    for (size_t i = 0; i < k->n; i++) {
        double tb, t = orc_quotient(k->v[0][i], k->b[0][i], k->v[1][i], k->b[1][i], &tb),
                   zp = k->v[2][i], zb = k->b[2][i];
        if (to_int && !isinf(tb)) {
            double low = rint(t - tb), high = rint(t + tb);
            t = rint(t);
            tb = orc_distance(t, low) > orc_distance(t, high) ? orc_distance(t, low)
                                                              : orc_distance(t, high);
        }
        k->ov[i] = zp == 0 ? t : t + zp; /* -0 stays */
        k->ob[i] = tb + zb;
    }
}

/* Up to a power of two, the codes are integers of 8 bits at most: int8 limbs of the other
 * operand of a product multiply them exactly. */
static bool has_small_codes(sinter_data_type_t type)
{
    return type == sinter_f4_e2m1 || type == sinter_f6_e2m3 ||
           (orc_class(type) == ORC_INT && orc_type_bits(type) <= 8);
}

static void copy_scales(const orc_chunk_t *k)
{
    memcpy(k->ov, k->v[0], k->n * sizeof(double));
}

/* The scale of each element, for the modes in which products may fold them into the other
 * operand. */
static int keep_scales(orc_ctx_t *c, const orc_view_t *scales)
{
    orc_value_t each = {.lt = c->out[0]->lt, .n = c->out[0]->n};
    bool dying = c->dying[1];
    int failed;

    if (c->mode == sinter_fpmath_mode_strict) {
        return 0;
    }
    c->dying[1] = false; /* still to be used */
    failed = orc_map(c, &each, 1, scales, copy_scales, NULL, false);
    c->dying[1] = dying;
    free(each.b);
    c->out[0]->scale = each.v;
    return failed;
}

static int apply(orc_ctx_t *c, const orc_value_t *scales, const orc_value_t *zps, bool quantize)
{
    const sinter_logical_tensor_t *lt = &c->in[0]->lt;
    const orc_class_t zp = orc_class(zps->lt.data_type);
    const formula_t formula = {
        .to_int = orc_class(c->out[0]->lt.data_type) == ORC_INT,
        .floats = !quantize && (zp == ORC_WIDE || orc_attr(c, sinter_op_attr_float_zps) != NULL),
        .offsets = !quantize &&
                   !strcmp(orc_attr_str(c, sinter_op_attr_zps_kind, "zero_points"), "offsets")};
    orc_value_t *out = c->out[0];
    orc_view_t views[3];

    if (orc_shape_like(c, 0, c->in[0])) {
        return -1;
    }
    orc_view_broadcast(&views[0], c->in[0], lt->ndims, lt->dims);
    if (param_view(c, &views[1], scales, lt->ndims, lt->dims, quantize ? NULL : out->group) ||
        param_view(c, &views[2], zps, lt->ndims, lt->dims, NULL)) {
        return -1;
    }
    out->from_int = !quantize && orc_class(lt->data_type) == ORC_INT;
    out->small_codes = !quantize && has_small_codes(lt->data_type);
    if (out->small_codes && keep_scales(c, &views[1])) {
        return -1;
    }
    if (orc_map(c, out, 3, views, quantize ? quantize_chunk : dequantize_chunk, &formula,
                quantize || formula.floats || formula.offsets)) {
        return -1;
    }
    for (size_t i = 0; i < out->n && !quantize && !out->beyond; i++) {
        out->beyond = isfinite(out->v[i]) && fabs(out->v[i]) > FLT_MAX;
    }
    return 0;
}

/* ---- ops ------------------------------------------------------------------------------------- */

/* The values of codes in two planes, the low four bits in a and the others in b, both as
 * numbers. */
static int join_planes(orc_ctx_t *c, const char *type, const orc_value_t *a, const orc_value_t *b,
                       orc_value_t *codes)
{
    double table[256];

    *codes = (orc_value_t){.lt = a->lt, .n = a->n};
    if (!orc_find_type(type, &codes->lt.data_type) || a->lt.ndims != b->lt.ndims || a->n != b->n) {
        return orc_fail(c, "codes of type %s in planes of %zu and %zu elements", type, a->n, b->n);
    }
    for (int d = 0; d < a->lt.ndims; d++) {
        if (a->lt.dims[d] != b->lt.dims[d]) {
            return orc_fail(c, "planes of %lld and %lld elements along dim %d",
                            (long long)a->lt.dims[d], (long long)b->lt.dims[d], d);
        }
    }
    if (orc_alloc(c, codes, a->b || b->b)) {
        return -1;
    }
    orc_decode_table(codes->lt.data_type, table);
    for (size_t i = 0; i < codes->n; i++) {
        codes->v[i] = table[(unsigned)a->v[i] + 16 * (unsigned)b->v[i]];
        if (codes->b) { /* computed planes: which code it is may be open */
            codes->b[i] = (a->b && a->b[i] > 0) || (b->b && b->b[i] > 0) ? INFINITY : 0;
        }
    }
    return 0;
}

/* Dequantises split codes, whose high plane is the last input, as if they were whole. */
static int with_planes(orc_ctx_t *c, int dequantize(orc_ctx_t *c, bool quantize))
{
    const char *type = orc_attr_str(c, sinter_op_attr_split_type, NULL);
    orc_ctx_t whole = *c;
    orc_value_t codes;
    int failed;

    if (!type) {
        return dequantize(c, false);
    }
    if (c->n_in < 2) {
        return orc_fail(c, "no high plane");
    }
    whole.n_in = c->n_in - 1;
    whole.in[0] = &codes;
    whole.dying[0] = false;
    failed =
        join_planes(c, type, c->in[0], c->in[c->n_in - 1], &codes) || dequantize(&whole, false);
    orc_value_clear(&codes);
    return failed ? -1 : 0;
}

/* One value for each element of a list attribute; a single `missing` if it is absent. */
static int from_attr(orc_ctx_t *c, sinter_op_attr_t id, double missing, orc_value_t *value)
{
    const orc_attr_t *a = orc_attr(c, id);
    size_t n = a && a->n ? a->n : 1;

    *value = (orc_value_t){.n = n};
    value->lt.ndims = 1;
    value->lt.dims[0] = (int64_t)n;
    if (orc_alloc(c, value, false)) {
        return -1;
    }
    for (size_t i = 0; i < n; i++) {
        value->v[i] = !a || !a->n ? missing : a->f32 ? (double)a->f32[i] : (double)a->s64[i];
    }
    return 0;
}

static int with_attrs(orc_ctx_t *c, bool quantize)
{
    orc_value_t scales, zps;
    int failed;

    if (from_attr(c, sinter_op_attr_scales, 1, &scales)) {
        return -1;
    }
    failed = from_attr(c,
                       orc_attr(c, sinter_op_attr_float_zps) ? sinter_op_attr_float_zps
                                                             : sinter_op_attr_zps,
                       0, &zps) ||
             apply(c, &scales, &zps, quantize);
    orc_value_clear(&scales);
    orc_value_clear(&zps);
    return failed ? -1 : 0;
}

static int with_tensors(orc_ctx_t *c, bool quantize)
{
    orc_value_t none;
    int failed;

    if (c->n_in < 2) {
        return orc_fail(c, "no scales");
    }
    if (c->n_in > 2) {
        return apply(c, c->in[1], c->in[2], quantize);
    }
    if (from_attr(c, sinter_op_attr_undef, 0, &none)) {
        return -1;
    }
    failed = apply(c, c->in[1], &none, quantize);
    orc_value_clear(&none);
    return failed;
}

int oracle_quantize(orc_ctx_t *c)
{
    return with_attrs(c, true);
}
int oracle_dequantize(orc_ctx_t *c)
{
    return with_planes(c, with_attrs);
}
int oracle_dynamic_dequantize(orc_ctx_t *c)
{
    return with_planes(c, with_tensors);
}

int oracle_dynamic_quantize(orc_ctx_t *c)
{
    const char *kind = orc_attr_str(c, sinter_op_attr_quantization_kind, "static");
    return strcmp(kind, "static") == 0 ? with_tensors(c, true) : orc_quantize_dynamic(c, kind);
}
