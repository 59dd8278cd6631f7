#include "spread.h"

#include <math.h>
#include <string.h>

/* Means and variances of a sum, a product and so on, as if all elements were independent. That is
 * rough, and enough: what matters is a factor of two, not ten per cent. */

typedef struct limiter {
    const model_t *m;
    spread_t *of;
    double *gain;
    /* For the sink that is being looked at: whether values behind a tensor can be scaled, and
     * whether they have been. */
    unsigned char *seen;
} limiter_t;

enum { CAN = 1, CANNOT = 2, DONE = 4 };

static size_t index_of(const limiter_t *l, uint64_t id)
{
    return (size_t)(model_find(l->m, id) - l->m->tensors);
}

static spread_t in(const limiter_t *l, const model_op_t *op, size_t slot)
{
    return slot < op->n_inputs ? l->of[index_of(l, op->inputs[slot].id)] : (spread_t){0};
}

/* The mean of a list. */
static double mean_attr(const model_op_t *op, sinter_op_attr_t id, double missing)
{
    const orc_attr_t *a = model_attr(op, id);
    double sum = 0;

    for (size_t i = 0; a && i < a->n; i++) {
        sum += a->f32 ? (double)a->f32[i] : (double)a->s64[i];
    }
    return a && a->n ? sum / (double)a->n : missing;
}

/* Scales in attributes; 0: they are of no use here. */
static double scale_of(const model_op_t *op)
{
    return fabs(mean_attr(op, sinter_op_attr_scales, 1));
}

/* Elements that one result sums up. */
static double length(const model_op_t *op)
{
    const sinter_logical_tensor_t *w = &op->inputs[1];
    const orc_attr_t *format = model_attr(op, sinter_op_attr_weights_format),
                     *groups = model_attr(op, sinter_op_attr_groups);
    const int transposed = op->kind == sinter_op_conv_transpose;

    if (op->kind == sinter_op_matmul) {
        const int64_t k =
            model_inner_dim(op, 0) > 0 ? model_inner_dim(op, 0) : model_inner_dim(op, 1);
        return k > 0 ? (double)k : 64;
    }
    if (w->ndims < 3 || !gr_is_known(w)) {
        return 64;
    }
    const char *letters = format && format->str ? format->str : transposed ? "XOI" : "XIO";
    const char *o = strchr(letters, 'O');
    const int d = letters[0] == 'X' ? w->ndims - 3 + (int)(o - letters) : (int)(o - letters);
    const double divided = transposed && groups ? (double)groups->s64[0] : 1;
    return fmax(1, (double)gr_elements(w) / fmax(1, (double)w->dims[d] * divided));
}

static spread_t sum(spread_t a, spread_t b, double sign)
{
    return (spread_t){.mean = a.mean + sign * b.mean,
                      .variance = a.variance + b.variance,
                      .known = a.known && b.known};
}

/* n products of which a result is the sum. */
static spread_t product(spread_t a, spread_t b, double n)
{
    const double squares = (a.variance + a.mean * a.mean) * (b.variance + b.mean * b.mean) -
                           a.mean * a.mean * b.mean * b.mean;
    return (spread_t){
        .mean = n * a.mean * b.mean, .variance = n * squares, .known = a.known && b.known};
}

static spread_t scaled(spread_t a, double scale, double shift)
{
    return (spread_t){
        .mean = scale * (a.mean + shift), .variance = scale * scale * a.variance, .known = a.known};
}

/* scale * (code - zero point), or scale * code + offset. */
static spread_t dequantized(const limiter_t *l, const model_op_t *op)
{
    const orc_attr_t *kind = model_attr(op, sinter_op_attr_zps_kind);
    const int offsets = kind && kind->str && !strcmp(kind->str, "offsets"),
              split = model_attr(op, sinter_op_attr_split_type) != NULL;
    const spread_t codes = in(l, op, 0), scale = in(l, op, 1);
    const size_t n = op->n_inputs - (split ? 1 : 0);
    spread_t zp = {.known = 1};

    const model_tensor_t *t = model_find(l->m, op->inputs[0].id);
    if (split) { /* planes of random bits */
        return (spread_t){0};
    }
    if (t->producer != MODEL_NONE &&
        l->m->ops[t->producer].kind == sinter_op_dynamic_quantize) { /* about what was quantised */
        return in(l, &l->m->ops[t->producer], 0);
    }
    if (op->kind == sinter_op_dequantize) {
        const double floats = mean_attr(op, sinter_op_attr_float_zps, 0), s = scale_of(op);
        spread_t y = scaled(codes, s, -mean_attr(op, sinter_op_attr_zps, 0));
        y.mean += offsets ? floats : -s * floats;
        return y;
    }
    if (n > 2) {
        zp = in(l, op, 2);
    }
    return offsets ? sum(product(codes, scale, 1), zp, 1) : product(sum(codes, zp, -1), scale, 1);
}

/* A unary function, where it is roughly linear, or what it saturates at. */
static spread_t unary(sinter_op_kind_t kind, spread_t a)
{
    const double square = a.variance + a.mean * a.mean, top = fmin(a.variance, 8);

    switch (kind) {
    case sinter_op_relu:
    case sinter_op_gelu:
    case sinter_op_hard_swish:
    case sinter_op_mish:
    case sinter_op_softplus:
    case sinter_op_elu:
        return (spread_t){.mean = a.mean / 2 + 0.4 * sqrt(a.variance),
                          .variance = 0.4 * a.variance,
                          .known = a.known};
    case sinter_op_sigmoid:
    case sinter_op_hard_sigmoid:
        return (spread_t){.mean = 0.5, .variance = fmin(a.variance / 16, 0.2), .known = a.known};
    case sinter_op_tanh:
        return (spread_t){.variance = fmin(square, 1), .known = a.known};
    case sinter_op_abs:
        return (spread_t){.mean = 0.8 * sqrt(square), .variance = 0.36 * square, .known = a.known};
    case sinter_op_square:
        return (spread_t){.mean = square, .variance = 2 * square * square, .known = a.known};
    case sinter_op_reduce_max:
        return (spread_t){.mean = a.mean + 3 * sqrt(a.variance), .known = a.known};
    case sinter_op_reduce_mean:
        return (spread_t){.mean = a.mean, .known = a.known};
    case sinter_op_exp:
        return (spread_t){.mean = exp(fmin(a.mean, 8) + top / 2),
                          .variance = exp(2 * fmin(a.mean, 8) + top) * (exp(top) - 1),
                          .known = a.known};
    default:
        return (spread_t){0};
    }
}

static double last_dim(const sinter_logical_tensor_t *lt, int64_t axis)
{
    const int64_t d = axis < 0 ? axis + lt->ndims : axis;
    return d >= 0 && d < lt->ndims && lt->dims[d] > 0 ? (double)lt->dims[d] : 64;
}

/* Whether results are elements of input 0, or about as far spread. */
static int hands_on(sinter_op_kind_t kind)
{
    switch (kind) {
    case sinter_op_type_cast:
    case sinter_op_reorder:
    case sinter_op_static_reshape:
    case sinter_op_static_transpose:
    case sinter_op_slice:
    case sinter_op_gather:
    case sinter_op_scatter_rows:
    case sinter_op_rotary_embedding:
    case sinter_op_hadamard_transform:
    case sinter_op_dropout:
    case sinter_op_max_pool:
    case sinter_op_avg_pool:
    case sinter_op_interpolate:
    case sinter_op_leaky_relu:
    case sinter_op_prelu:
        return 1;
    default:
        return 0;
    }
}

static spread_t handed_on(spread_t a)
{
    a.scalable = 0;
    return a;
}

static spread_t result(const limiter_t *l, const model_op_t *op)
{
    const spread_t a = in(l, op, 0), b = in(l, op, 1);
    const orc_attr_t *axis = model_attr(op, sinter_op_attr_axis);
    spread_t y;

    switch (op->kind) {
    case sinter_op_matmul:
    case sinter_op_convolution:
    case sinter_op_conv_transpose:
        y = product(a, b, length(op));
        return op->n_inputs > 2 ? sum(y, in(l, op, 2), 1) : y;
    case sinter_op_dequantize:
    case sinter_op_dynamic_dequantize:
        return dequantized(l, op);
    case sinter_op_quantize: {
        y = scale_of(op) > 0 ? scaled(a, 1 / scale_of(op), 0) : (spread_t){0};
        y.mean += mean_attr(op, sinter_op_attr_zps, 0);
        return y;
    }
    case sinter_op_add:
    case sinter_op_bias_add:
        return sum(a, b, 1);
    case sinter_op_subtract:
        return sum(a, b, -1);
    case sinter_op_multiply:
        return product(a, b, 1);
    case sinter_op_divide:
        return b.mean != 0 ? scaled(a, 1 / b.mean, 0) : (spread_t){0};
    case sinter_op_select: /* a mask is 0, and what it leaves is what counts */
        y = in(l, op, 1).variance > in(l, op, 2).variance ? in(l, op, 1) : in(l, op, 2);
        y.known = in(l, op, 1).known && in(l, op, 2).known;
        return y;
    case sinter_op_softmax: {
        const double n = last_dim(&op->inputs[0], axis ? axis->s64[0] : 1);
        return (spread_t){
            .mean = 1 / n, .variance = (exp(fmin(a.variance, 8)) - 1) / (n * n), .known = a.known};
    }
    case sinter_op_layer_norm:
    case sinter_op_rms_norm:
    case sinter_op_group_norm: {
        const size_t gamma = op->n_inputs - (op->kind == sinter_op_rms_norm ? 1 : 2);
        y = (spread_t){.variance = 1, .known = 1};
        return op->n_inputs > 1 ? product(y, in(l, op, gamma), 1) : y;
    }
    case sinter_op_concat:
    case sinter_op_clamp:
        return handed_on(a);
    default:
        return hands_on(op->kind) ? handed_on(a) : unary(op->kind, a);
    }
}

/* ---- back to the inputs ---------------------------------------------------------------------- */

/* The inputs of an op, as bits, which its result grows with in proportion; of several, all of them
 * in a sum, and each of them in a product. */
static unsigned carriers(const model_op_t *op, int *is_product)
{
    *is_product = 0;
    switch (op->kind) {
    case sinter_op_matmul:
    case sinter_op_convolution:
    case sinter_op_conv_transpose:
    case sinter_op_multiply:
        *is_product = 1;
        return 3;
    case sinter_op_add:
    case sinter_op_subtract:
    case sinter_op_bias_add:
        return 3;
    case sinter_op_select:
        return 6;
    case sinter_op_dynamic_dequantize: /* its scales, and offsets */
        return op->n_inputs > 2 && model_attr(op, sinter_op_attr_zps_kind) ? 6 : 2;
    case sinter_op_layer_norm:
    case sinter_op_rms_norm:
    case sinter_op_group_norm:
        return op->n_inputs > 2 ? 6 : op->n_inputs > 1 ? 2 : 0;
    case sinter_op_concat:
        return op->n_inputs < 32 ? (1u << op->n_inputs) - 1 : 0;
    case sinter_op_divide:
    case sinter_op_dequantize:
    case sinter_op_quantize:
    case sinter_op_dynamic_quantize:
    case sinter_op_relu:
    case sinter_op_abs:
    case sinter_op_gelu:
    case sinter_op_hard_swish:
        return 1;
    default:
        return hands_on(op->kind);
    }
}

/* Whether some input that has its first values can scale this tensor. */
static int can_scale(limiter_t *l, size_t at, int depth)
{
    const model_tensor_t *t = &l->m->tensors[at];
    int yes = 0, is_product;

    if (l->seen[at] & (CAN | CANNOT)) {
        return l->seen[at] & CAN;
    }
    l->seen[at] |= CANNOT; /* until known better: paths that meet ask once */
    if (t->is_input) {
        yes = l->of[at].scalable && l->gain[at] == 1;
    } else if (t->producer != MODEL_NONE && depth < 200) {
        const model_op_t *op = &l->m->ops[t->producer];
        const unsigned from = carriers(op, &is_product);
        for (size_t i = 0; i < op->n_inputs && i < 32; i++) {
            yes = (from >> i & 1 && can_scale(l, index_of(l, op->inputs[i].id), depth + 1)) || yes;
        }
    }
    if (yes) {
        l->seen[at] = CAN;
    }
    return yes;
}

static void scale(limiter_t *l, size_t at, double factor)
{
    const model_tensor_t *t = &l->m->tensors[at];
    int is_product = 0;

    if (!(l->seen[at] & CAN) || l->seen[at] & DONE) {
        return;
    }
    l->seen[at] |= DONE;
    if (t->is_input) {
        spread_t *s = &l->of[at];
        l->gain[at] *= factor;
        s->mean = s->centre + factor * (s->mean - s->centre);
        s->variance *= factor * factor;
        return;
    }
    const model_op_t *op = &l->m->ops[t->producer];
    const unsigned from = carriers(op, &is_product);
    int n = 0;
    for (size_t i = 0; i < op->n_inputs && i < 32; i++) {
        n += (from >> i & 1) && (l->seen[index_of(l, op->inputs[i].id)] & CAN);
    }
    for (size_t i = 0; i < op->n_inputs && i < 32; i++) {
        if (from >> i & 1) {
            scale(l, index_of(l, op->inputs[i].id),
                  is_product && n > 1 ? pow(factor, 1.0 / n) : factor);
        }
    }
}

/* The most that the operand of an op should spread; 0: as far as it likes. of: how far it does. */
static double most(const model_op_t *op, spread_t a, double *of)
{
    *of = sqrt(a.variance);
    switch (op->kind) {
    case sinter_op_softmax:
    case sinter_op_log_softmax:
        return 1;
    case sinter_op_exp:
        *of = sqrt(a.variance + fmax(a.mean, 0) * fmax(a.mean, 0));
        return 1;
    case sinter_op_quantize: { /* half of its codes to either side */
        const gr_dtype_t *t = gr_dtype(op->outputs[0].data_type);
        const double half = t->digits == t->bits ? t->max / 2 : t->max;
        *of = sqrt(a.variance + a.mean * a.mean);
        return t->class_ == GR_INT ? half * scale_of(op) : 0;
    }
    default:
        return 0;
    }
}

/* Scales the inputs behind an op down if its operand spreads too far. */
static int limit(limiter_t *l, const model_op_t *op)
{
    const size_t at = index_of(l, op->inputs[0].id);
    double is, may = most(op, l->of[at], &is);

    if (may <= 0 || !l->of[at].known || !(is > may) || !isfinite(is)) {
        return 0;
    }
    memset(l->seen, 0, l->m->n_tensors);
    if (!can_scale(l, at, 0)) {
        return 0;
    }
    scale(l, at, may / is);
    return 1;
}

static int all_known(const limiter_t *l, const model_op_t *op, const unsigned char *ready)
{
    for (size_t i = 0; i < op->n_inputs; i++) {
        if (!ready[index_of(l, op->inputs[i].id)]) {
            return 0;
        }
    }
    return 1;
}

/* One way through the graph, whose ops may stand in any order. Stops where it has scaled. */
static int go_through(limiter_t *l, unsigned char *ready, unsigned char *limited)
{
    int more = 1;

    for (size_t i = 0; i < l->m->n_tensors; i++) {
        ready[i] = l->m->tensors[i].producer == MODEL_NONE;
    }
    while (more) {
        more = 0;
        for (size_t i = 0; i < l->m->n_ops; i++) {
            const model_op_t *op = &l->m->ops[i];
            if (op->n_outputs == 0 || ready[index_of(l, op->outputs[0].id)] ||
                !all_known(l, op, ready)) {
                continue;
            }
            if (op->n_inputs > 0 && !limited[i]) {
                limited[i] = 1;
                if (limit(l, op)) {
                    return 1;
                }
            }
            const spread_t y = result(l, op);
            for (size_t k = 0; k < op->n_outputs; k++) { /* others than the first stay unknown */
                const size_t at = index_of(l, op->outputs[k].id);
                l->of[at] = k == 0 ? y : (spread_t){0};
                ready[at] = 1;
            }
            more = 1;
        }
    }
    return 0;
}

void spread_limit(const model_t *model, spread_t *spread, double *gain)
{
    unsigned char *seen = gr_malloc(2 * model->n_tensors + model->n_ops + 1);
    limiter_t l = {model, spread, gain, seen};

    for (size_t i = 0; i < model->n_tensors; i++) {
        gain[i] = 1;
    }
    if (seen) {
        memset(seen, 0, 2 * model->n_tensors + model->n_ops);
        while (go_through(&l, seen + model->n_tensors, seen + 2 * model->n_tensors)) {
        }
    }
    gr_free(seen);
}
