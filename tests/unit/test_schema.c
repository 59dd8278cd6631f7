/* The op and attribute tables: oneDNN Graph's numbers, a card and a shape rule for every kind,
 * defaults, and that a default is what leaving the attribute out means. */
#include <stddef.h>

#include "check.h"
#include "graph/attr.h"
#include "graph/node.h"
#include "graph/op_schema.h"
#include "spec.h"

/* dnnl_graph_op_kind_t of oneDNN 3.11, in order, by the spelling of its JSON. */
static const char *const kinds[] = {
    "Abs",
    "AbsBackward",
    "Add",
    "AvgPool",
    "AvgPoolBackward",
    "BatchNormTrainingBackward",
    "BatchNormForwardTraining",
    "BatchNormInference",
    "BiasAdd",
    "BiasAddBackward",
    "Clamp",
    "ClampBackward",
    "Concat",
    "Convolution",
    "ConvolutionBackwardData",
    "ConvolutionBackwardWeights",
    "ConvTranspose",
    "ConvTransposeBackwardData",
    "ConvTransposeBackwardWeights",
    "Dequantize",
    "Divide",
    "DynamicDequantize",
    "DynamicQuantize",
    "Elu",
    "EluBackward",
    "End",
    "Exp",
    "GELU",
    "GELUBackward",
    "HardSwish",
    "HardSwishBackward",
    "Interpolate",
    "InterpolateBackward",
    "LayerNorm",
    "LayerNormBackward",
    "LeakyReLU",
    "Log",
    "LogSoftmax",
    "LogSoftmaxBackward",
    "MatMul",
    "Maximum",
    "MaxPool",
    "MaxPoolBackward",
    "Minimum",
    "Mish",
    "MishBackward",
    "Multiply",
    "PReLU",
    "PReLUBackward",
    "Quantize",
    "Reciprocal",
    "ReduceL1",
    "ReduceL2",
    "ReduceMax",
    "ReduceMean",
    "ReduceMin",
    "ReduceProd",
    "ReduceSum",
    "ReLU",
    "ReLUBackward",
    "Reorder",
    "Round",
    "Sigmoid",
    "SigmoidBackward",
    "SoftMax",
    "SoftMaxBackward",
    "SoftPlus",
    "SoftPlusBackward",
    "Sqrt",
    "SqrtBackward",
    "Square",
    "SquaredDifference",
    "StaticReshape",
    "StaticTranspose",
    "Subtract",
    "Tanh",
    "TanhBackward",
    "TypeCast",
    "Wildcard",
    "HardSigmoid",
    "HardSigmoidBackward",
    "Select",
    "Pow",
    "GroupNorm",
    "GenIndex",
    "GreaterEqual",
    "RMSNorm",
    "Dropout",
};
enum { N_KINDS = sizeof kinds / sizeof *kinds };

/* Of these and of all ops that were added to them later. */
static bool is_kind(int kind)
{
    return op_card((sinter_op_kind_t)kind) != NULL;
}

static const struct {
    int value;
    const char *name;
} attrs[] = {
    {0x1, "alpha"},
    {0x2, "beta"},
    {0x3, "epsilon"},
    {0x4, "max"},
    {0x5, "min"},
    {0x6, "momentum"},
    {0x20, "scales"},
    {0x30, "axis"},
    {0x31, "begin_norm_axis"},
    {0x32, "groups"},
    {0x40, "axes"},
    {0x41, "dilations"},
    {0x42, "dst_shape"},
    {0x43, "kernel"},
    {0x44, "order"},
    {0x45, "output_padding"},
    {0x46, "pads_begin"},
    {0x47, "pads_end"},
    {0x48, "shape"},
    {0x49, "sizes"},
    {0x4A, "src_shape"},
    {0x4B, "strides"},
    {0x4C, "weights_shape"},
    {0x4D, "zps"},
    {0x4E, "group_shape"},
    {0x60, "exclude_pad"},
    {0x61, "keep_dims"},
    {0x62, "keep_stats"},
    {0x63, "per_channel_broadcast"},
    {0x64, "special_zero"},
    {0x65, "transpose_a"},
    {0x66, "transpose_b"},
    {0x67, "use_affine"},
    {0x68, "use_dst"},
    {0x80, "auto_broadcast"},
    {0x81, "auto_pad"},
    {0x82, "coordinate_transformation_mode"},
    {0x83, "data_format"},
    {0x84, "mode"},
    {0x85, "qtype"},
    {0x86, "rounding_type"},
    {0x87, "weights_format"},
    {0x88, "accumulation_mode"},
};

/* Data types, layouts, properties, statuses, modes and policies of oneDNN Graph. */
static void check_enumerators(void)
{
    static const int pairs[][2] = {
        {sinter_data_type_undef, 0},
        {sinter_f16, 1},
        {sinter_bf16, 2},
        {sinter_f32, 3},
        {sinter_s32, 4},
        {sinter_s8, 5},
        {sinter_u8, 6},
        {sinter_f64, 7},
        {sinter_boolean, 8},
        {sinter_f8_e5m2, 9},
        {sinter_f8_e4m3, 10},
        {sinter_s4, 11},
        {sinter_u4, 12},
        {sinter_e8m0, 13},
        {sinter_f4_e2m1, 14},
        {sinter_layout_type_undef, 0},
        {sinter_layout_type_any, 1},
        {sinter_layout_type_strided, 2},
        {sinter_layout_type_opaque, 3},
        {sinter_tensor_property_variable, 1},
        {sinter_tensor_property_constant, 2},
        {sinter_tensor_property_host_scalar, 3},
        {sinter_invalid_graph, 7},
        {sinter_invalid_graph_op, 8},
        {sinter_invalid_shape, 9},
        {sinter_invalid_data_type, 10},
        {sinter_fpmath_mode_bf16, 1},
        {sinter_fpmath_mode_f16, 2},
        {sinter_fpmath_mode_any, 3},
        {sinter_fpmath_mode_tf32, 4},
        {sinter_partition_policy_fusion, 1},
        {sinter_partition_policy_debug, 2},
    };
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        CHECK(pairs[i][0] == pairs[i][1], "enumerator %zu is %d, not %d", i, pairs[i][0],
              pairs[i][1]);
    }
}

static void check_kinds(void)
{
    for (int k = 0; k < N_KINDS; k++) {
        CHECK(is_kind(k) && strcmp(op_name((sinter_op_kind_t)k), kinds[k]) == 0,
              "kind %d is not %s", k, kinds[k]);
    }
    for (int k = 0; k < sinter_op_last_symbol; k++) {
        sinter_op_kind_t parsed = sinter_op_last_symbol, kind = (sinter_op_kind_t)k;
        const op_card_t *card = op_card(kind);
        const char *name = sinter_op_kind_name(kind);
        CHECK((card == NULL) == (name == NULL), "kind %d has a card or a name, but not both", k);
        if (card == NULL || name == NULL) {
            continue;
        }
        CHECK(sinter_op_kind_parse(name, &parsed) && parsed == kind, "%s", name);
        CHECK(op_shape_rule(kind) != NULL, "%s has no shape rule", name);
        CHECK(card->min_in <= card->max_in && card->min_out <= card->max_out &&
                  card->max_in <= OP_MAX_PORTS,
              "%s", name);
        CHECK(card->in[0] != 0 && card->out[0] != 0, "%s has no data types", name);
    }
    sinter_op_kind_t untouched = sinter_op_end;
    CHECK(!sinter_op_kind_parse("matmul", &untouched) && untouched == sinter_op_end,
          "parse of an unknown name");
    CHECK(sinter_op_kind_name(sinter_op_last_symbol) == NULL &&
              sinter_op_kind_name((sinter_op_kind_t)-1) == NULL,
          "names outside");
}

static void check_attr_table(void)
{
    for (size_t i = 0; i < sizeof attrs / sizeof *attrs; i++) {
        sinter_op_attr_t parsed, id = (sinter_op_attr_t)attrs[i].value;
        CHECK(sinter_op_attr_name(id) != NULL &&
                  strcmp(sinter_op_attr_name(id), attrs[i].name) == 0,
              "attribute %s", attrs[i].name);
        CHECK(sinter_op_attr_parse(attrs[i].name, &parsed) && parsed == id, "attribute %s",
              attrs[i].name);
        CHECK(attr_kind(id) != ATTR_NONE, "attribute %s has no kind", attrs[i].name);
    }
    CHECK(sinter_op_attr_name(sinter_op_attr_undef) == NULL &&
              sinter_op_attr_name((sinter_op_attr_t)0x7FFF) == NULL,
          "names outside");
    CHECK(attr_kind((sinter_op_attr_t)-1) == ATTR_NONE, "kind outside");
}

/* Rules only name attributes of the right kind, and allowed words include the default. */
static void check_rules(void)
{
    for (int k = 0; k < sinter_op_last_symbol; k++) {
        const char *op = is_kind(k) ? op_name((sinter_op_kind_t)k) : "";
        for (const attr_rule_t *r = is_kind(k) ? op_card((sinter_op_kind_t)k)->attrs : NULL;
             r != NULL && r->id != sinter_op_attr_undef; r++) {
            attr_kind_t kind = attr_kind(r->id);
            CHECK((r->words != NULL) == (kind == ATTR_STR), "%s %s: words", op, attr_name(r->id));
            CHECK(r->text == NULL || strstr(r->words, r->text) != NULL,
                  "%s %s: default is not allowed", op, attr_name(r->id));
            CHECK(!r->bounded || attr_kind_is_s64(kind), "%s %s: bound", op, attr_name(r->id));
            CHECK(!r->many || kind == ATTR_S64_OR_S64S, "%s %s: many", op, attr_name(r->id));
            CHECK(!r->required || (!r->has_default && r->text == NULL),
                  "%s %s: required with a default", op, attr_name(r->id));
        }
    }
}

static void check_defaults(void)
{
    static const struct {
        sinter_op_kind_t kind;
        sinter_op_attr_t attr;
        double number;
        const char *text;
    } defaults[] = {
        {sinter_op_softmax, sinter_op_attr_axis, 1, NULL},
        {sinter_op_log_softmax, sinter_op_attr_axis, -1, NULL},
        {sinter_op_quantize, sinter_op_attr_axis, 1, NULL},
        {sinter_op_quantize, sinter_op_attr_qtype, 0, "per_tensor"},
        {sinter_op_softmax, sinter_op_attr_mode, 0, "none"},
        {sinter_op_gelu, sinter_op_attr_mode, 0, "gelu_erf"},
        {sinter_op_add, sinter_op_attr_auto_broadcast, 0, "numpy"},
        {sinter_op_greater_equal, sinter_op_attr_auto_broadcast, 0, "numpy"},
        {sinter_op_bias_add, sinter_op_attr_data_format, 0, "NXC"},
        {sinter_op_matmul, sinter_op_attr_accumulation_mode, 0, "strict"},
        {sinter_op_matmul, sinter_op_attr_transpose_b, 0, NULL},
        {sinter_op_prelu, sinter_op_attr_per_channel_broadcast, 1, NULL},
        {sinter_op_softplus, sinter_op_attr_beta, 1, NULL},
        {sinter_op_relu_backward, sinter_op_attr_use_dst, 1, NULL},
        {sinter_op_layer_norm, sinter_op_attr_keep_stats, 1, NULL},
        {sinter_op_layer_norm, sinter_op_attr_begin_norm_axis, -1, NULL},
        {sinter_op_layer_norm, sinter_op_attr_epsilon, 1e-5, NULL},
        {sinter_op_reduce_sum, sinter_op_attr_keep_dims, 0, NULL},
        {sinter_op_convolution, sinter_op_attr_groups, 1, NULL},
        {sinter_op_convolution, sinter_op_attr_weights_format, 0, "XIO"},
        {sinter_op_conv_transpose, sinter_op_attr_weights_format, 0, "XOI"},
        {sinter_op_max_pool, sinter_op_attr_rounding_type, 0, "floor"},
        {sinter_op_dynamic_quantize, sinter_op_attr_quantization_kind, 0, "static"},
    };
    for (size_t i = 0; i < sizeof defaults / sizeof *defaults; i++) {
        node_t node = {.kind = defaults[i].kind};
        const char *op = kinds[defaults[i].kind], *attr = attr_name(defaults[i].attr);
        attr_kind_t kind = attr_kind(defaults[i].attr);
        if (defaults[i].text != NULL) {
            const char *got = node_str(&node, defaults[i].attr, "otherwise");
            CHECK(strcmp(got, defaults[i].text) == 0, "%s %s defaults to %s", op, attr, got);
        } else if (kind == ATTR_BOOL) {
            CHECK(node_bool(&node, defaults[i].attr, defaults[i].number == 0) ==
                      (defaults[i].number != 0),
                  "%s %s", op, attr);
        } else if (attr_kind_is_s64(kind)) {
            CHECK(node_s64(&node, defaults[i].attr, 77) == (int64_t)defaults[i].number, "%s %s", op,
                  attr);
        } else {
            CHECK(node_f32(&node, defaults[i].attr, 77) == (float)defaults[i].number, "%s %s", op,
                  attr);
        }
    }
    node_t add = {.kind = sinter_op_add};
    CHECK(node_s64(&add, sinter_op_attr_axis, 77) == 77, "no default: what the caller says");
}

/* The parameters of elementwise functions are attributes: numbers, or the place of a word. */
static void check_params(void)
{
    const float numbers[] = {0.25f, 4};
    attr_t given[] = {{.id = sinter_op_attr_alpha, .n = 1, .f32 = &numbers[0]},
                      {.id = sinter_op_attr_beta, .n = 1, .f32 = &numbers[1]},
                      {.id = sinter_op_attr_mode, .n = 1, .str = "gelu_tanh"}};
    const node_t sigmoid = {.kind = sinter_op_hard_sigmoid, .n_attrs = 2, .attrs = given},
                 gelu = {.kind = sinter_op_gelu, .n_attrs = 1, .attrs = &given[2]},
                 erf = {.kind = sinter_op_gelu}, softplus = {.kind = sinter_op_softplus},
                 relu = {.kind = sinter_op_relu};
    CHECK(node_param(&sigmoid, 0) == 0.25f && node_param(&sigmoid, 1) == 4, "HardSigmoid");
    CHECK(node_param(&gelu, 0) == 1 && node_param(&erf, 0) == 0, "GELU");
    CHECK(node_param(&softplus, 0) == 1 && node_param(&softplus, 1) == 0, "SoftPlus's default");
    CHECK(node_param(&relu, 0) == 0 && node_param(&relu, 1) == 0, "no parameters");
}

/* The flags that passes and patterns go by. */
static void check_flags(void)
{
    CHECK(op_flags(sinter_op_add) == (OP_ELTWISE | OP_BINARY), "Add");
    CHECK(op_flags(sinter_op_divide) == (OP_ELTWISE | OP_BINARY), "Divide");
    CHECK(op_flags(sinter_op_relu) == (OP_ELTWISE | OP_UNARY) &&
              op_flags(sinter_op_clamp) == (OP_ELTWISE | OP_UNARY),
          "ReLU, Clamp");
    CHECK(op_flags(sinter_op_select) == OP_ELTWISE && op_flags(sinter_op_gen_index) == OP_ELTWISE,
          "Select, GenIndex");
    CHECK(op_flags(sinter_op_static_reshape) == OP_VIEW &&
              op_flags(sinter_op_static_transpose) == OP_VIEW &&
              op_flags(sinter_op_reorder) == OP_VIEW,
          "views");
    CHECK(op_flags(sinter_op_dynamic_quantize) == OP_QUANT &&
              op_flags(sinter_op_dequantize) == OP_DEQUANT,
          "quantisation");
    CHECK(op_flags(sinter_op_matmul) == OP_MATMUL && op_flags(sinter_op_softmax) == OP_SOFTMAX &&
              op_flags(sinter_op_convolution) == OP_CONVOLUTION &&
              op_class(sinter_op_conv_transpose) == OP_CONVOLUTION && op_class(sinter_op_add) == 0,
          "classes");
    for (int k = 0; k < sinter_op_last_symbol; k++) {
        CHECK(op_flags((sinter_op_kind_t)k) == 0 || op_runs((sinter_op_kind_t)k),
              "op %d has flags but is not executed", k);
    }
}

/* ---- the schema as users ask for it ---------------------------------------------------------- */

static void check_public_rule(sinter_op_kind_t kind, size_t index, const attr_rule_t *want)
{
    sinter_op_attr_rule_t got = {.size = sizeof got};

    CHECK(sinter_op_kind_get_attr_rule(kind, index, &got) == sinter_success, "%s: attribute %zu",
          op_name(kind), index);
    CHECK(got.size == sizeof got && got.attr == want->id && got.required == want->required &&
              got.has_default == (want->has_default || want->text != NULL) &&
              got.default_number == want->number && got.default_word == want->text &&
              got.words == want->words && got.has_least == want->bounded &&
              got.least == want->least,
          "%s: the public rule of attribute %s differs from the card", op_name(kind),
          attr_name(want->id));
}

static void check_public_schema(void)
{
    for (int k = 0; k < sinter_op_last_symbol; k++) {
        const sinter_op_kind_t kind = (sinter_op_kind_t)k;
        const op_card_t *card = op_card(kind);
        sinter_op_schema_t got = {.size = sizeof got};

        if (card == NULL) {
            continue;
        }
        CHECK(sinter_op_kind_get_schema(kind, &got) == sinter_success, "%s", op_name(kind));
        CHECK(got.size == sizeof got && got.min_inputs == card->min_in &&
                  got.max_inputs == card->max_in && got.min_outputs == card->min_out &&
                  got.max_outputs == card->max_out && got.any_attr == card->any_attr,
              "%s: the public schema differs from the card", op_name(kind));
        for (size_t i = 0; i < got.n_attrs; i++) {
            check_public_rule(kind, i, &card->attrs[i]);
        }
        sinter_op_attr_rule_t rule = {.size = sizeof rule};
        CHECK(sinter_op_kind_get_attr_rule(kind, got.n_attrs, &rule) == sinter_invalid_arguments,
              "%s: an attribute behind the last one", op_name(kind));
        CHECK(!sinter_op_kind_input_takes(kind, card->max_in, sinter_f32) &&
                  !sinter_op_kind_output_takes(kind, card->max_out, sinter_f32),
              "%s: a port behind the last one", op_name(kind));
    }
    CHECK(sinter_op_kind_input_takes(sinter_op_matmul, 1, sinter_f16) &&
              !sinter_op_kind_input_takes(sinter_op_matmul, 1, sinter_s4) &&
              sinter_op_kind_input_takes(sinter_op_dynamic_dequantize, 0, sinter_s4) &&
              sinter_op_kind_output_takes(sinter_op_softmax, 1, sinter_f32) &&
              !sinter_op_kind_output_takes(sinter_op_softmax, 1, sinter_f16),
          "data types of ports");
}

/* A caller with older headers has a shorter struct: what is behind its end stays as it was. */
static void check_short_structs(void)
{
    sinter_op_schema_t schema = {.size = offsetof(sinter_op_schema_t, min_outputs),
                                 .max_outputs = -7};
    sinter_op_schema_t none = {.size = 0};

    CHECK(sinter_op_kind_get_schema(sinter_op_matmul, &schema) == sinter_success &&
              schema.max_inputs == 3 && schema.max_outputs == -7,
          "a struct of older headers");
    CHECK(sinter_op_kind_get_schema(sinter_op_matmul, &none) == sinter_invalid_arguments,
          "a struct without its size");
    CHECK(sinter_op_kind_get_schema(sinter_op_last_symbol, &schema) == sinter_invalid_arguments,
          "a kind that does not exist");
    CHECK(sinter_op_kind_get_schema(sinter_op_matmul, NULL) == sinter_invalid_arguments, "NULL");
}

int main(void)
{
    check_enumerators();
    check_public_schema();
    check_short_structs();
    check_kinds();
    check_attr_table();
    check_rules();
    check_defaults();
    check_params();
    check_flags();
    return check_finish();
}
