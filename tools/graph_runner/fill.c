#include "fill.h"
#include "random.h"
#include "spread.h"

#include <math.h>
#include <string.h>

typedef enum shape { UNIFORM, INTEGER, CHOICE, SPARSE } shape_t;

/* UNIFORM: reals in [lo, hi]. INTEGER: integers in [lo, hi]. CHOICE: lo with probability p and
 * always at the start of a row, else hi. SPARSE: lo and hi with probability p together, else the
 * integer between them. */
typedef struct rule {
    shape_t shape;
    double lo, hi, p;
} rule_t;

static rule_t uniform(double lo, double hi)
{
    return (rule_t){UNIFORM, lo, hi, 0};
}

static rule_t integer(double lo, double hi)
{
    return (rule_t){INTEGER, lo, hi, 0};
}

/* ---- what a type can hold -------------------------------------------------------------------- */

static double int_min(const gr_dtype_t *t)
{
    return t->digits == t->bits ? 0 : -t->max - 1;
}

/* The zero point near which values of a quantised type lie. */
static double middle(const gr_dtype_t *t)
{
    return t->class_ == GR_INT && t->digits == t->bits ? (t->max + 1) / 2 : 0;
}

/* How far from the middle quantised values typically go; the scale is its inverse. */
static double reach(const gr_dtype_t *t)
{
    if (t->class_ == GR_INT) {
        return t->max - middle(t);
    }
    return t->bits <= 6 ? t->max : 4;
}

static rule_t plain_data(const gr_dtype_t *t)
{
    if (t->class_ == GR_BOOL) {
        return (rule_t){CHOICE, 1, 0, 0.5};
    }
    if (t->class_ == GR_INT) {
        return t->bits > 8 ? integer(-8, 8) : integer(int_min(t), t->max);
    }
    return t->class_ == GR_SCALE ? uniform(0.25, 4) : uniform(-1, 1);
}

/* ---- the graph around a tensor --------------------------------------------------------------- */

static const model_op_t *producer(const model_t *model, uint64_t id)
{
    const model_tensor_t *t = model_find(model, id);

    return t->producer == MODEL_NONE ? NULL : &model->ops[t->producer];
}

/* The square root of the reduction length of the MatMul that id's values come from. */
static double root_k(const model_t *model, uint64_t id)
{
    for (int step = 0; step < 8; step++) {
        const model_op_t *op = producer(model, id);
        size_t i = 0;

        if (!op || op->n_inputs == 0) {
            break;
        }
        if (op->kind == sinter_op_matmul && op->n_inputs >= 2) {
            int64_t k =
                model_inner_dim(op, 0) > 0 ? model_inner_dim(op, 0) : model_inner_dim(op, 1);

            return k > 0 ? sqrt((double)k) : 8;
        }
        while (i + 1 < op->n_inputs && !producer(model, op->inputs[i].id)) {
            i++;
        }
        id = op->inputs[i].id;
    }
    return 8;
}

/* The SoftMax that values of a tensor reach through element-wise steps, or NULL. */
static const model_op_t *next_softmax(const model_t *model, uint64_t id)
{
    for (int step = 0; step < 6; step++) {
        const model_tensor_t *t = model_find(model, id);
        const model_use_t *use = &model->uses[t->first + t->n - 1];
        const model_op_t *op = &model->ops[use->op];

        if (use->output || op->n_outputs == 0) {
            return NULL;
        }
        if (op->kind == sinter_op_softmax) {
            return op;
        }
        if (op->kind == sinter_op_matmul) {
            return NULL;
        }
        id = op->outputs[0].id;
    }
    return NULL;
}

static int feeds_matmul(const model_t *model, uint64_t id)
{
    for (int step = 0; step < 4; step++) {
        const model_tensor_t *t = model_find(model, id);
        const model_use_t *use = &model->uses[t->first + t->n - 1];
        const model_op_t *op = &model->ops[use->op];

        if (use->output || op->n_outputs == 0) {
            return 0;
        }
        if (op->kind == sinter_op_matmul) {
            return 1;
        }
        id = op->outputs[0].id;
    }
    return 0;
}

/* What a weight is scaled by so that a product with values of O(1) is O(1) again; 1 for anything
 * but the right side of a 2-D MatMul. */
static double weight_gain(const model_t *model, uint64_t id)
{
    const model_tensor_t *t = model_find(model, id);
    const model_use_t *use = &model->uses[t->first + t->n - 1];
    const model_op_t *op = &model->ops[use->op];

    if (use->output || op->kind != sinter_op_matmul || use->slot != 1 || op->inputs[1].ndims != 2 ||
        model_inner_dim(op, 1) <= 9) {
        return 1;
    }
    return 3 / sqrt((double)model_inner_dim(op, 1));
}

static int is_single(const sinter_logical_tensor_t *lt)
{
    return lt->ndims >= 0 && gr_elements(lt) == 1;
}

/* What masks a score: -inf only where the softmax says what a row of them gives. */
static double masked_score(const model_op_t *softmax)
{
    const orc_attr_t *mode = model_attr(softmax, sinter_op_attr_mode);

    return mode && mode->str && !strcmp(mode->str, "inf_as_zero") ? -INFINITY : -10000;
}

/* ---- rules by consumer ----------------------------------------------------------------------- */

static double typical_scale(const model_op_t *op)
{
    const orc_attr_t *scales = model_attr(op, sinter_op_attr_scales);
    double sum = 0;

    if (!scales) {
        return 1;
    }
    for (size_t i = 0; i < scales->n; i++) {
        sum += fabs((double)scales->f32[i]);
    }
    return sum > 0 ? sum / (double)scales->n : 1;
}

static double typical_zp(const model_op_t *op)
{
    const orc_attr_t *zps = model_attr(op, sinter_op_attr_zps),
                     *floats = model_attr(op, sinter_op_attr_float_zps),
                     *kind = model_attr(op, sinter_op_attr_zps_kind);

    if (floats && floats->n) {
        int offsets = kind && !strcmp(kind->str, "offsets");

        return (double)floats->f32[0] * (offsets ? -1 / typical_scale(op) : 1);
    }
    return zps && zps->n ? (double)zps->s64[0] : 0;
}

/* Before a MatMul around the zero point, such that real values are a few units at most: sums of
 * products then stay inside the next integer type. */
static rule_t static_dequantize_data(const model_t *model, const model_op_t *op,
                                     const gr_dtype_t *t)
{
    double scale = typical_scale(op), zp = typical_zp(op), r = fmax(1, round(2 / scale));

    if (model_attr(op, sinter_op_attr_split_type)) {
        return plain_data(t);
    }
    if (t->class_ == GR_INT && !feeds_matmul(model, op->inputs[0].id)) {
        return plain_data(t);
    }
    if (t->class_ != GR_INT) {
        return uniform(-fmin(t->max / 2, 1 / scale), fmin(t->max / 2, 1 / scale));
    }
    return integer(fmax(int_min(t), zp - r), fmin(t->max, zp + r));
}

/* A little more than the type holds, so that saturation is seen too; but not where too much
 * would be NaN. */
static rule_t static_quantize_data(const model_op_t *op)
{
    const gr_dtype_t *t = gr_dtype(op->outputs[0].data_type);
    double scale = typical_scale(op), zp = typical_zp(op);

    if (t->class_ != GR_INT) {
        return uniform(-t->max * scale, t->max * scale);
    }
    return uniform(scale * (int_min(t) - zp - 0.1 * t->max), scale * (t->max - zp + 0.1 * t->max));
}

/* The type of the codes that an op's input 0 has: of split codes, whose planes are random bits,
 * what the attribute says. */
static const gr_dtype_t *dequantized_type(const model_op_t *op)
{
    const orc_attr_t *split = model_attr(op, sinter_op_attr_split_type);
    sinter_data_type_t type;

    return gr_dtype(split && split->str && sinter_data_type_parse(split->str, &type)
                        ? type
                        : op->inputs[0].data_type);
}

static int is_plane(const model_op_t *op, size_t slot)
{
    return model_attr(op, sinter_op_attr_split_type) && (slot == 0 || slot + 1 == op->n_inputs);
}

static double middle_scale(const model_t *model, const model_op_t *op)
{
    int quantize = op->kind == sinter_op_dynamic_quantize;

    return weight_gain(model, op->outputs[0].id) /
           reach(quantize ? gr_dtype(op->outputs[0].data_type) : dequantized_type(op));
}

/* Floats lie between the codes; offsets are those of such zero points. */
static rule_t zero_point(const model_t *model, const model_op_t *op, const gr_dtype_t *t)
{
    const orc_attr_t *kind = model_attr(op, sinter_op_attr_zps_kind);
    int quantize = op->kind == sinter_op_dynamic_quantize;
    const gr_dtype_t *data =
        gr_dtype(quantize ? op->outputs[0].data_type : op->inputs[0].data_type);
    double width = data->bits <= 4 ? 2 : 8;

    if (data->class_ != GR_INT) {
        return integer(0, 0);
    }
    if (kind && !strcmp(kind->str, "offsets")) {
        double scale = middle_scale(model, op);

        return uniform(-scale * (middle(data) + width), scale * (width - middle(data)));
    }
    return t->class_ == GR_FLOAT ? uniform(middle(data) - width, middle(data) + width)
                                 : integer(fmax(int_min(t), middle(data) - width),
                                           fmin(t->max, middle(data) + width));
}

static rule_t quantised_group_input(const model_t *model, const model_op_t *op, size_t slot,
                                    const gr_dtype_t *t)
{
    if (is_plane(op, slot)) {
        return plain_data(t);
    }
    if (slot == 1) {
        double scale = middle_scale(model, op);

        return uniform(0.5 * scale, 1.5 * scale);
    }
    if (slot == 2 && (t->class_ == GR_INT || op->kind == sinter_op_dynamic_dequantize)) {
        return zero_point(model, op, t);
    }
    if (slot >= 2) {
        return uniform(0.5, 1.5); /* a scale of scales */
    }
    if (t->class_ == GR_FLOAT && t->bits <= 8) {
        return uniform(-reach(t), reach(t));
    }
    return plain_data(t);
}

static rule_t select_input(const model_t *model, const model_op_t *op, size_t slot,
                           const gr_dtype_t *t)
{
    const model_op_t *softmax = next_softmax(model, op->outputs[0].id);
    int fill_slot =
        op->n_inputs == 3 && is_single(&op->inputs[1]) && !is_single(&op->inputs[2]) ? 1 : 2;

    if (slot == 0) {
        return (rule_t){CHOICE, fill_slot == 2, fill_slot == 1, 0.8};
    }
    if (softmax && (int)slot == fill_slot) {
        return (rule_t){CHOICE, masked_score(softmax), masked_score(softmax), 1};
    }
    return plain_data(t);
}

/* Scores are divided by the root of the head size, or multiplied by its inverse; behind a Tanh
 * stands a soft cap. */
static rule_t scaling_input(const model_t *model, const model_op_t *op, size_t slot)
{
    const sinter_logical_tensor_t *other = &op->inputs[!slot];
    const model_op_t *before = producer(model, other->id);
    double root = root_k(model, other->id);

    if (!next_softmax(model, op->outputs[0].id)) {
        return uniform(0.5, 2);
    }
    if (before->kind == sinter_op_tanh) {
        return uniform(20, 20);
    }
    return op->kind == sinter_op_divide ? uniform(root, root) : uniform(1 / root, 1 / root);
}

/* The next op has no value for negative numbers. */
static int wants_positive(const model_t *model, uint64_t id)
{
    const model_tensor_t *t = model_find(model, id);
    const model_use_t *use = &model->uses[t->first + t->n - 1];
    sinter_op_kind_t kind = model->ops[use->op].kind;

    return !use->output &&
           (kind == sinter_op_log || kind == sinter_op_sqrt || kind == sinter_op_pow);
}

static rule_t binary_input(const model_t *model, const model_op_t *op, size_t slot,
                           const gr_dtype_t *t)
{
    const sinter_logical_tensor_t *lt = &op->inputs[slot];
    int other_computed = op->n_inputs == 2 && producer(model, op->inputs[!slot].id);
    const model_op_t *softmax =
        op->kind == sinter_op_add && other_computed ? next_softmax(model, op->outputs[0].id) : NULL;

    if (t->class_ != GR_FLOAT) {
        return plain_data(t);
    }
    if (softmax && !is_single(lt)) {
        return (rule_t){CHOICE, 0, masked_score(softmax), 0.75};
    }
    if ((op->kind == sinter_op_divide || op->kind == sinter_op_multiply) && is_single(lt) &&
        other_computed) {
        return scaling_input(model, op, slot);
    }
    if ((op->kind == sinter_op_divide && slot == 1) || wants_positive(model, op->outputs[0].id)) {
        return uniform(0.5, 2);
    }
    return plain_data(t);
}

/* Rows of a tensor along an axis. Places in a cache are all below 2^31. */
static rule_t rows_of(const sinter_logical_tensor_t *lt, int64_t axis)
{
    const int64_t d = axis < 0 ? axis + lt->ndims : axis;
    const int64_t rows = d >= 0 && d < lt->ndims ? lt->dims[d] : 1;
    return integer(0, rows > 0 ? (double)(rows - 1) : 0);
}

/* Indices, slots and positions are those of rows that exist. */
static rule_t index_input(const model_op_t *op, size_t slot, const gr_dtype_t *t)
{
    const bool rotary = op->kind == sinter_op_rotary_embedding;
    const bool tables = op->n_inputs > 3 && rotary; /* else inverse frequencies */
    if (t->class_ != GR_INT || slot != (rotary ? op->n_inputs - 1 : 1)) {
        return plain_data(t);
    }
    const orc_attr_t *axis = model_attr(op, sinter_op_attr_axis);
    return rotary && !tables
               ? integer(0, 4095)
               : rows_of(&op->inputs[rotary ? 1 : 0], !rotary && axis != NULL ? axis->s64[0] : 0);
}

/* Keys, and a and b, of a length below 1, decays that keep a part, rates between 0 and 1; slots are
 * those of states. Where several sequences write, the command line gives the slots: no two may be
 * equal. */
static rule_t linear_attention_input(const model_op_t *op, size_t slot, const gr_dtype_t *t)
{
    const orc_attr_t *mode = model_attr(op, sinter_op_attr_mode);
    const orc_attr_t *log_decay = model_attr(op, sinter_op_attr_log_decay);
    const int64_t keys = op->inputs[1].ndims == 4 ? op->inputs[1].dims[3] : 1;
    const double most = 1 / sqrt(keys > 0 ? (double)keys : 1);
    const bool gated = mode && strncmp(mode->str, "gated", 5) == 0,
               low_rank = mode && strcmp(mode->str, "gated_low_rank") == 0,
               factors = log_decay && !log_decay->b;

    return t->class_ == GR_INT                   ? rows_of(&op->inputs[3], 0)
           : slot == 1 || (slot > 4 && low_rank) ? uniform(-most, most)
           : slot < 4                            ? plain_data(t)
           : slot == 4 && gated && !factors      ? uniform(-1, 0)
                                                 : uniform(0, 1);
}

/* The use of a tensor that says what its values mean. Rows of a table or of a cache mean what the
 * op behind the Gather or ScatterRows reads, and behind the views that follow a Gather. */
static const model_use_t *first_use(const model_t *model, const model_tensor_t *tensor)
{
    enum { MOST_STEPS = 8 };
    const model_use_t *use = &model->uses[tensor->first];
    bool gathered = false;
    for (int step = 0; step < MOST_STEPS; step++) {
        const model_op_t *op = &model->ops[use->op];
        const bool views = gathered && (op->kind == sinter_op_static_reshape ||
                                        op->kind == sinter_op_static_transpose),
                   moves = op->kind == sinter_op_gather || op->kind == sinter_op_scatter_rows;
        if (use->output || !(moves || views) || use->slot == 1 || op->n_outputs == 0) {
            break;
        }
        gathered = gathered || op->kind == sinter_op_gather;
        const model_tensor_t *moved = model_find(model, op->outputs[0].id);
        const model_use_t *next = &model->uses[moved->first + moved->n - 1];
        if (next->output) {
            break;
        }
        use = next;
    }
    return use;
}

static rule_t rule_by_use(const model_t *model, const model_tensor_t *tensor)
{
    const model_use_t *use = first_use(model, tensor);
    const model_op_t *op = &model->ops[use->op];
    const gr_dtype_t *t = gr_dtype(model_lt(model, tensor)->data_type);

    switch (op->kind) {
    case sinter_op_dynamic_dequantize:
    case sinter_op_dynamic_quantize:
        return quantised_group_input(model, op, use->slot, t);
    case sinter_op_dequantize:
        return static_dequantize_data(model, op, t);
    case sinter_op_quantize:
        return static_quantize_data(op);
    case sinter_op_select:
        return select_input(model, op, use->slot, t);
    case sinter_op_add:
    case sinter_op_subtract:
    case sinter_op_multiply:
    case sinter_op_divide:
        return binary_input(model, op, use->slot, t);
    case sinter_op_log:
    case sinter_op_sqrt:
    case sinter_op_reciprocal:
    case sinter_op_pow:
        return uniform(0.25, 2);
    case sinter_op_matmul:
        return use->slot == 1 && t->class_ == GR_FLOAT
                   ? uniform(-weight_gain(model, tensor->id), weight_gain(model, tensor->id))
                   : plain_data(t);
    case sinter_op_round:
        return uniform(-8, 8);
    case sinter_op_dropout: /* inference: no element is dropped */
        return use->slot == 3 ? uniform(0, 0) : plain_data(t);
    case sinter_op_gather:
    case sinter_op_scatter_rows:
    case sinter_op_rotary_embedding:
        return index_input(op, use->slot, t);
    case sinter_op_linear_attention:
        return linear_attention_input(op, use->slot, t);
    default:
        return plain_data(t);
    }
}

/* How many bits of each integer the layout of a tensor in tiles keeps; 0: all. The library gives
 * layouts for bits, so this looks for the one that the tensor has. */
static int kept_bits(const sinter_logical_tensor_t *lt)
{
    static const sinter_weights_part_t parts[] = {sinter_weights_codes, sinter_weights_values};

    for (int i = 0; lt->layout_type == sinter_layout_type_opaque && i < 24; i++) {
        const int bits = i % 6 + 1;
        sinter_logical_tensor_t tiles = *lt;

        if (!sinter_logical_tensor_set_weights_layout(&tiles, parts[i / 6 % 2], bits, i / 12) &&
            tiles.layout_id == lt->layout_id) {
            return bits;
        }
    }
    return 0;
}

/* Integers fit the bits that their layout keeps. */
static rule_t rule_of(const model_t *model, const model_tensor_t *tensor)
{
    const sinter_logical_tensor_t *lt = model_lt(model, tensor);
    const gr_dtype_t *t = gr_dtype(lt->data_type);
    const rule_t rule = rule_by_use(model, tensor);
    const int bits = t->class_ == GR_INT && rule.shape == INTEGER ? kept_bits(lt) : 0;
    const double codes = ldexp(1, bits), least = int_min(t) < 0 ? -codes / 2 : 0;

    return bits == 0 ? rule
                     : integer(fmin(fmax(rule.lo, least), least + codes - 1),
                               fmax(fmin(rule.hi, least + codes - 1), least));
}

/* ---- spread ---------------------------------------------------------------------------------- */

/* What the values of an input are about, and whether they may be nearer to that. */
static spread_t spread_of(const model_t *model, const model_tensor_t *tensor, const rule_t *rule)
{
    const model_use_t *use = first_use(model, tensor);
    const model_op_t *op = &model->ops[use->op];
    const sinter_logical_tensor_t *lt = model_lt(model, tensor);
    const orc_attr_t *kind = model_attr(op, sinter_op_attr_zps_kind);
    const double width = rule->hi - rule->lo;
    spread_t s = {.mean = (rule->lo + rule->hi) / 2, .variance = width * width / 12, .known = 1};

    if (rule->shape == CHOICE) { /* masks and conditions */
        return (spread_t){.known = 1};
    }
    if (rule->shape == INTEGER) {
        s.variance = ((width + 1) * (width + 1) - 1) / 12;
    }
    switch (op->kind) {
    case sinter_op_dequantize:
        s.centre = rule->shape == INTEGER ? typical_zp(op) : 0;
        s.scalable = !model_attr(op, sinter_op_attr_split_type);
        break;
    case sinter_op_dynamic_dequantize:
        s.scalable = rule->shape == UNIFORM &&
                     (use->slot == 1 || (use->slot == 2 && kind && !strcmp(kind->str, "offsets")));
        break;
    case sinter_op_quantize: /* these go to the ends of the type already */
        break;
    default:
        s.scalable = rule->shape == UNIFORM && !is_single(lt);
    }
    return s;
}

/* The rule of an input with the gain that the whole graph asks for. */
static rule_t limited_rule(const model_t *model, const model_tensor_t *tensor)
{
    const size_t at = (size_t)(tensor - model->tensors);
    rule_t rule = rule_of(model, tensor);

    if (!spread_of(model, tensor, &rule).scalable) {
        return rule;
    }
    spread_t *spread = gr_malloc((model->n_tensors + 1) * sizeof *spread);
    double *gain = gr_malloc((model->n_tensors + 1) * sizeof *gain);
    for (size_t i = 0; spread && gain && i < model->n_tensors; i++) {
        const model_tensor_t *t = &model->tensors[i];
        const rule_t r = t->is_input ? rule_of(model, t) : uniform(0, 0);
        spread[i] = t->is_input ? spread_of(model, t, &r) : (spread_t){0};
    }
    if (spread && gain) {
        spread_limit(model, spread, gain);
        if (gain[at] != 1) {
            const double centre = spread[at].centre, g = gain[at];
            rule.lo = centre + g * (rule.lo - centre);
            rule.hi = centre + g * (rule.hi - centre);
            if (rule.shape == INTEGER && fmax(rule.hi - centre, centre - rule.lo) < 1) {
                rule = (rule_t){SPARSE, centre - 1, centre + 1, spread[at].variance};
            } else if (rule.shape == INTEGER) {
                rule = integer(ceil(rule.lo), floor(rule.hi));
            }
        }
    }
    gr_free(spread);
    gr_free(gain);
    return rule;
}

/* ---- values ---------------------------------------------------------------------------------- */

/* The number that belongs to x. */
static uint64_t mix(uint64_t x)
{
    return random_mix(x + RANDOM_STEP);
}

static double value_of(const rule_t *rule, uint64_t key, int64_t index, int64_t row)
{
    double u = (double)(mix(key ^ mix((uint64_t)index)) >> 11) * 0x1p-53;

    if (rule->shape == UNIFORM) {
        return rule->lo + u * (rule->hi - rule->lo);
    }
    if (rule->shape == INTEGER) {
        return rule->lo + floor(u * (rule->hi - rule->lo + 1));
    }
    if (rule->shape == SPARSE) {
        return u < rule->p / 2 ? rule->lo : u < rule->p ? rule->hi : (rule->lo + rule->hi) / 2;
    }
    return index % row == 0 || u < rule->p ? rule->lo : rule->hi;
}

void fill_input(const model_t *model, const model_tensor_t *tensor,
                const sinter_logical_tensor_t *lt, uint64_t seed, void *data)
{
    const rule_t rule = limited_rule(model, tensor);
    const uint64_t key = mix(seed) ^ mix(tensor->id + 1);
    const int64_t n = gr_elements(lt);
    const int64_t row = lt->ndims > 0 && lt->dims[lt->ndims - 1] > 0 ? lt->dims[lt->ndims - 1] : 1;
    const int dense = gr_is_dense(lt);

    /* Elements that share a byte are written by one thread, the last one last: a share of a dense
     * tensor is a whole number of bytes, and with other strides elements may be one. */
#pragma omp parallel for schedule(static, 4096) if (dense && n > 65536)
    for (int64_t i = 0; i < n; i++) {
        orc_encode(lt->data_type, data, dense ? i : gr_offset(lt, i), value_of(&rule, key, i, row));
    }
}

/* Elements after which values of a timed run repeat: more than a first-level cache holds, and no
 * multiple of what kernels work off together, but whole bytes of each type. */
enum { REPEATS_AFTER = 8 * 131071 };

void fill_for_timing(const model_t *model, const model_tensor_t *tensor,
                     const sinter_logical_tensor_t *lt, uint64_t seed, void *data, size_t bytes)
{
    const rule_t rule = limited_rule(model, tensor);
    const int64_t n = gr_elements(lt), bits = gr_dtype(lt->data_type)->bits;
    const int64_t piece = REPEATS_AFTER / 8 * bits;
    sinter_logical_tensor_t first = *lt;

    /* Positions matter to a choice, and gaps between elements stay as they are. */
    if (rule.shape == CHOICE || n <= REPEATS_AFTER || (int64_t)bytes != (n * bits + 7) / 8) {
        fill_input(model, tensor, lt, seed, data);
        return;
    }
    first.ndims = 1;
    first.dims[0] = REPEATS_AFTER;
    first.strides[0] = 1;
    fill_input(model, tensor, &first, seed, data);
#pragma omp parallel for schedule(static)
    for (int64_t at = piece; at < (int64_t)bytes; at += piece) {
        const int64_t left = (int64_t)bytes - at;
        memcpy((char *)data + at, data, (size_t)(left < piece ? left : piece));
    }
}
