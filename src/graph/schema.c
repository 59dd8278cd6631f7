/* The schema check: an op against its card. Each broken rule has its own message, which names
 * the op and, where there is one, the tensor. */
#include "graph/schema.h"

#include <math.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "base/status.h"
#include "graph/attr.h"
#include "graph/fail.h"
#include "graph/layout.h"
#include "graph/op_rules.h"
#include "graph/quant.h"

/* ---- arity and data types -------------------------------------------------------------------- */

static sinter_status_t check_count(const node_t *node, const char *what, int n, int min, int max)
{
    if (n >= min && n <= max) {
        return sinter_success;
    }
    if (min == max) {
        return FAIL_OP(node, "%d %s given, %d expected", n, what, min);
    }
    return FAIL_OP(node, "%d %s given, %d to %d expected", n, what, min, max);
}

static dtype_set_t port_set(const dtype_set_t *sets, int port)
{
    int last = 0;
    for (int i = 0; i <= port && i < CARD_PORTS && sets[i] != 0; i++) {
        last = i;
    }
    return sets[last];
}

static sinter_status_t check_type(const node_t *node, const char *what, int port, const lt_t *lt,
                                  const dtype_set_t *sets)
{
    const char *name = sinter_data_type_name(lt->data_type);
    if (dtype_in_set(lt->data_type, port_set(sets, port))) {
        return sinter_success;
    }
    return FAIL_TYPE(node, "%s %d, tensor %" PRIu64 ": data type %s is not allowed here", what,
                     port, lt->id, name != NULL ? name : "undef");
}

static sinter_status_t check_ports(const node_t *node, const op_card_t *card, const lt_t *in,
                                   const lt_t *out)
{
    SG_TRY(check_count(node, "inputs", node->n_in, card->min_in, card->max_in));
    SG_TRY(check_count(node, "outputs", node->n_out, card->min_out, card->max_out));
    for (int i = 0; i < node->n_in; i++) {
        if (node->in_dequant == NULL || node->in_dequant[i] == NULL) {
            SG_TRY(check_type(node, "input", i, &in[i], card->in));
        }
    }
    for (int i = 0; i < node->n_out; i++) {
        SG_TRY(check_type(node, "output", i, &out[i], card->out));
    }
    return sinter_success;
}

/* ---- attributes ------------------------------------------------------------------------------ */

static bool is_word(const char *word, const char *words)
{
    size_t len = strlen(word);
    for (const char *w = words; *w != '\0';) {
        size_t n = strcspn(w, "|");
        if (n == len && memcmp(w, word, n) == 0) {
            return true;
        }
        w += n + (w[n] == '|');
    }
    return false;
}

static sinter_status_t check_attr_kind(const node_t *node, const attr_t *attr)
{
    attr_kind_t kind = attr_kind(attr->id);
    bool one = kind == ATTR_F32 || kind == ATTR_S64;
    bool stored = attr_kind_is_f32(kind)   ? attr->f32 != NULL
                  : attr_kind_is_s64(kind) ? attr->s64 != NULL
                  : kind == ATTR_STR       ? attr->str != NULL
                                           : true;
    if (!stored || (one && attr->n != 1)) {
        return FAIL_OP(node, "attribute %s is not of its kind, %s", attr_name(attr->id),
                       attr_kind_name(kind));
    }
    for (size_t i = 0; attr_kind_is_f32(kind) && i < attr->n; i++) {
        if (isnan(attr->f32[i])) {
            return FAIL_OP(node, "attribute %s is NaN", attr_name(attr->id));
        }
    }
    return sinter_success;
}

static sinter_status_t check_attr_value(const node_t *node, const attr_t *attr,
                                        const attr_rule_t *rule)
{
    if (attr_kind(attr->id) == ATTR_S64_OR_S64S && !rule->many && attr->n != 1) {
        return FAIL_OP(node, "attribute %s has %zu values, this op takes one", attr_name(attr->id),
                       attr->n);
    }
    if (rule->words != NULL && !is_word(attr->str, rule->words)) {
        return FAIL_OP(node, "attribute %s is \"%.40s\", allowed are %s", attr_name(attr->id),
                       attr->str, rule->words);
    }
    for (size_t i = 0; rule->bounded && i < attr->n; i++) {
        if (attr->s64[i] < rule->least) {
            return FAIL_OP(node,
                           "attribute %s has the value %" PRId64 ", the least allowed is %" PRId64,
                           attr_name(attr->id), attr->s64[i], rule->least);
        }
    }
    return sinter_success;
}

static sinter_status_t check_attrs(const node_t *node, const op_card_t *card)
{
    for (int i = 0; i < node->n_attrs; i++) {
        const attr_t *attr = &node->attrs[i];
        const attr_rule_t *rule = op_attr_rule(node->kind, attr->id);
        if (attr_name(attr->id) == NULL) {
            return FAIL_OP(node, "attribute %d does not exist", (int)attr->id);
        }
        SG_TRY(check_attr_kind(node, attr));
        if (rule == NULL && !card->any_attr) {
            return FAIL_OP(node, "attribute %s is unknown to this op", attr_name(attr->id));
        }
        if (rule != NULL) {
            SG_TRY(check_attr_value(node, attr, rule));
        }
    }
    for (const attr_rule_t *rule = card->attrs; rule != NULL && rule->id != sinter_op_attr_undef;
         rule++) {
        if (rule->required && node_attr(node, rule->id) == NULL) {
            return FAIL_OP(node, "attribute %s is required", attr_name(rule->id));
        }
    }
    return sinter_success;
}

/* ---- rules of single cards ------------------------------------------------------------------- */

static sinter_status_t same_type(const node_t *node, const lt_t *a, const lt_t *b)
{
    return a->data_type == b->data_type ? sinter_success
                                        : FAIL_TYPE(node,
                                                    "tensor %" PRIu64 " is %s and tensor %" PRIu64
                                                    " is %s, but this op does not convert",
                                                    a->id, sinter_data_type_name(a->data_type),
                                                    b->id, sinter_data_type_name(b->data_type));
}

sinter_status_t check_same_type(const node_t *node, const lt_t *in, const lt_t *out)
{
    for (int i = 0; i < node->n_in; i++) {
        SG_TRY(same_type(node, &in[i], &out[0]));
    }
    return sinter_success;
}

sinter_status_t check_same_first(const node_t *node, const lt_t *in, const lt_t *out)
{
    return same_type(node, &in[0], &out[0]);
}

sinter_status_t check_scatter_rows(const node_t *node, const lt_t *in, const lt_t *out)
{
    SG_TRY(same_type(node, &in[0], &out[0]));
    return same_type(node, &in[2], &out[0]);
}

static sinter_status_t check_integers_agree(const node_t *node, const lt_t *a, const lt_t *b)
{
    if ((a->data_type == sinter_s32) != (b->data_type == sinter_s32)) {
        return FAIL_TYPE(
            node,
            "tensor %" PRIu64 " is %s and tensor %" PRIu64 " is %s: integer and float do not mix",
            a->id, sinter_data_type_name(a->data_type), b->id, sinter_data_type_name(b->data_type));
    }
    return sinter_success;
}

sinter_status_t check_binary_types(const node_t *node, const lt_t *in, const lt_t *out)
{
    SG_TRY(check_integers_agree(node, &in[0], &in[1]));
    return out[0].data_type == sinter_boolean ? sinter_success
                                              : check_integers_agree(node, &in[0], &out[0]);
}

sinter_status_t check_select_types(const node_t *node, const lt_t *in, const lt_t *out)
{
    SG_TRY(check_integers_agree(node, &in[1], &in[2]));
    return check_integers_agree(node, &in[1], &out[0]);
}

sinter_status_t check_clamp(const node_t *node, const lt_t *in, const lt_t *out)
{
    (void)in, (void)out;
    double min = (double)node_f32(node, sinter_op_attr_min, 0),
           max = (double)node_f32(node, sinter_op_attr_max, 0);
    return min <= max ? sinter_success
                      : FAIL_OP(node, "attribute min (%g) is greater than max (%g)", min, max);
}

sinter_status_t check_order(const node_t *node, const lt_t *in, const lt_t *out)
{
    const attr_t *order = node_attr(node, sinter_op_attr_order);
    unsigned seen = 0;
    if (order->n > SINTER_MAX_NDIMS || (in[0].ndims >= 0 && order->n != (size_t)in[0].ndims)) {
        return FAIL_OP(node, "attribute order has %zu values, tensor %" PRIu64 " has %d dimensions",
                       order->n, in[0].id, (int)in[0].ndims);
    }
    for (size_t i = 0; i < order->n; i++) {
        int64_t n = (int64_t)order->n, dim = order->s64[i] < 0 ? order->s64[i] + n : order->s64[i];
        if (dim < 0 || dim >= n || (seen & (1u << dim)) != 0) {
            return FAIL_OP(node, "attribute order is no permutation: value %zu is %" PRId64, i,
                           order->s64[i]);
        }
        seen |= 1u << dim;
    }
    return check_same_type(node, in, out);
}

sinter_status_t check_reshape(const node_t *node, const lt_t *in, const lt_t *out)
{
    const attr_t *shape = node_attr(node, sinter_op_attr_shape);
    int open = 0;
    if (shape->n > SINTER_MAX_NDIMS) {
        return FAIL_OP(node, "attribute shape has %zu values, at most %d are possible", shape->n,
                       SINTER_MAX_NDIMS);
    }
    for (size_t i = 0; i < shape->n; i++) {
        open += shape->s64[i] == -1;
    }
    if (open > 1) {
        return FAIL_OP(node, "attribute shape has %d times -1, one is allowed", open);
    }
    return check_same_type(node, in, out);
}

sinter_status_t check_quant(const node_t *node, const lt_t *in, const lt_t *out)
{
    SG_TRY(quant_geometry(node, in, out, &node->quant->geom));
    if (node->quant->kind == QUANT_STATIC && node->n_out != 1) {
        return FAIL_OP(node, "%d outputs given, 1 expected with given scales", node->n_out);
    }
    return sinter_success;
}

sinter_status_t check_reduce(const node_t *node, const lt_t *in, const lt_t *out)
{
    (void)in, (void)out;
    const attr_t *axes = node_attr(node, sinter_op_attr_axes);
    if ((axes == NULL) == (node->n_in < 2)) {
        return FAIL_OP(node, "axes are given %s: either the attribute or input 1 has them",
                       axes == NULL ? "nowhere" : "twice");
    }
    return sinter_success;
}

sinter_status_t check_interpolate(const node_t *node, const lt_t *in, const lt_t *out)
{
    (void)in, (void)out;
    const bool attr = node_attr(node, sinter_op_attr_sizes) != NULL ||
                      node_attr(node, sinter_op_attr_scales) != NULL;
    const int given = attr + (node->n_in > 1); /* where sizes are given, scales are ignored */
    return given == 1
               ? sinter_success
               : FAIL_OP(
                     node,
                     "%d of attribute sizes, attribute scales and input 1 are given, 1 expected",
                     given);
}

static sinter_status_t check_given(const node_t *node, int given, int want, const char *ports,
                                   const char *attr)
{
    return given == want
               ? sinter_success
               : FAIL_OP(node, "%d %s given, %d expected with this %s", given, ports, want, attr);
}

sinter_status_t check_norm(const node_t *node, const lt_t *in, const lt_t *out)
{
    (void)in, (void)out;
    SG_TRY(check_given(node, node->n_in, node_bool(node, sinter_op_attr_use_affine, true) ? 3 : 1,
                       "inputs", "use_affine"));
    return check_given(node, node->n_out, node_bool(node, sinter_op_attr_keep_stats, true) ? 3 : 1,
                       "outputs", "keep_stats");
}

sinter_status_t check_norm_bwd(const node_t *node, const lt_t *in, const lt_t *out)
{
    (void)in, (void)out;
    return check_given(node, node->n_out, node_bool(node, sinter_op_attr_use_affine, true) ? 3 : 1,
                       "outputs", "use_affine");
}

sinter_status_t check_rms_norm(const node_t *node, const lt_t *in, const lt_t *out)
{
    (void)in, (void)out;
    return check_given(node, node->n_in, node_bool(node, sinter_op_attr_use_affine, true) ? 2 : 1,
                       "inputs", "use_affine");
}

/* The card is shared by the convolution and its transpose, whose formats differ. */
sinter_status_t check_weights_format(const node_t *node, const lt_t *in, const lt_t *out)
{
    (void)in, (void)out;
    const char *words =
        node->kind == sinter_op_convolution_backward_weights ? "XIO|OIX" : "XOI|IOX";
    const char *format = node_str(node, sinter_op_attr_weights_format, NULL);
    return format == NULL || is_word(format, words)
               ? sinter_success
               : FAIL_OP(node, "attribute weights_format is \"%s\", allowed are %s", format, words);
}

/* ---- the whole ------------------------------------------------------------------------------- */

/* ScatterRows writes tokens into a cache that lies in tiles. */
static sinter_status_t check_layouts(const node_t *node, const lt_t *in, const lt_t *out)
{
    const bool writes = node->kind == sinter_op_scatter_rows && lt_is_opaque(&in[0]);
    for (int i = 0; i < node->n_out; i++) {
        if (lt_is_opaque(&out[i]) && node->kind != sinter_op_reorder &&
            !(writes && lt_same_layout(&in[0], &out[i]))) {
            return sg_fail(sinter_unimplemented,
                           "%s: tensor %" PRIu64 ": only a Reorder makes an opaque layout, or a "
                           "ScatterRows along the tokens of data of the same layout",
                           node_label(node), out[i].id);
        }
    }
    return sinter_success;
}

/* Ports and attributes, each by itself. */
static sinter_status_t check_card(const node_t *node, const op_card_t *card, const lt_t *in,
                                  const lt_t *out)
{
    if (card == NULL) {
        return sg_fail(sinter_invalid_graph_op, "op %" PRIu64 ": op kind %d does not exist",
                       node->id, (int)node->kind);
    }
    SG_TRY(check_ports(node, card, in, out));
    SG_TRY(check_layouts(node, in, out));
    return check_attrs(node, card);
}

sinter_status_t op_check(const node_t *node, const lt_t *in, const lt_t *out)
{
    const op_card_t *card = op_card(node->kind);
    SG_TRY(check_card(node, card, in, out));
    return card->check != NULL ? card->check(node, in, out) : sinter_success;
}

sinter_status_t op_infer_shapes(const node_t *node, lt_t *in, lt_t *out)
{
    const op_card_t *card = op_card(node->kind);
    if (card->dims != NULL) {
        SG_TRY(card->dims(node, in, out));
    }
    return op_shape_rule(node->kind)(node, in, out);
}

/* Copies for looking at an op alone: what only looks like one dimension becomes an unknown
 * number of them. */
static sinter_status_t take_tensors(const node_t *node, const lt_t *from, int n, bool outputs,
                                    lt_t *to)
{
    for (int i = 0; i < n; i++) {
        SG_TRY(lt_verify(&from[i], outputs, node_label(node)));
        to[i] = from[i];
        to[i].ndims = lt_is_any_rank(&from[i]) ? SINTER_UNKNOWN_NDIMS : from[i].ndims;
    }
    return sinter_success;
}

sinter_status_t op_verify(const struct sinter_op *op, quant_t *quant)
{
    lt_t in[OP_MAX_PORTS], out[OP_MAX_PORTS];
    node_t node = {.id = op->id,
                   .name = op->name,
                   .kind = op->kind,
                   .n_in = op->n_in,
                   .n_out = op->n_out,
                   .n_attrs = op->n_attrs,
                   .attrs = op->attrs};
    SG_TRY(check_count(&node, "inputs", op->n_in, 0, OP_MAX_PORTS));
    SG_TRY(check_count(&node, "outputs", op->n_out, 0, OP_MAX_PORTS));
    SG_TRY(take_tensors(&node, op->in, op->n_in, false, in));
    SG_TRY(take_tensors(&node, op->out, op->n_out, true, out));
    const op_card_t *card = op_card(node.kind);
    SG_TRY(check_card(&node, card, in, out));
    if ((card->flags & (OP_QUANT | OP_DEQUANT)) != 0) {
        SG_TRY(quant_read(&node, quant));
        node.quant = quant;
    }
    SG_TRY(card->check != NULL ? card->check(&node, in, out) : sinter_success);
    return op_infer_shapes(&node, in, out);
}

int op_index_port(const node_t *node)
{
    const op_card_t *card = op_card(node->kind);
    const int port = card != NULL ? card->index_port : 0;
    return port > 0 && node->n_in > port ? port : -1;
}

const char *op_limit(const struct graph *g, const node_t *node)
{
    const op_card_t *card = op_card(node->kind);
    return card != NULL && card->limit != NULL ? card->limit(g, node) : NULL;
}
