/* The cards, and the projections of ops.def onto them. A row whose card is missing does not
 * compile; one whose shape rule is missing does not link. */
#include "graph/op_schema.h"

#include <string.h>

#include <sinter/sinter_graph.h>

#include "base/op_slot.h"
#include "graph/op_rules.h"

/* ---- sets of data types ---------------------------------------------------------------------- */

enum {
#define SINTER_DTYPE(value, name, ...) INDEX_##name,
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};
#define ONLY(name) (1u << INDEX_##name)

static const dtype_set_t type_bit[] = {
#define SINTER_DTYPE(value, name, ...) [value] = ONLY(name),
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};

bool dtype_in_set(sinter_data_type_t type, dtype_set_t set)
{
    return (unsigned)type < sizeof type_bit / sizeof *type_bit && (type_bit[type] & set) != 0;
}

#define ANY 0xFFFFFFFFu
#define FLT (ONLY(f32) | ONLY(f16) | ONLY(bf16) | ONLY(f64))
#define FLT32 (FLT & ~ONLY(f64)) /* where the op computes in f32: f64 would lose digits unsaid */
/* The floats of 8 bits, and what quantisation may make: floats of up to 8 bits, integers of 4 to 8
 * bits. Both follow from the rows of dtypes.def, so that a new format belongs to them by itself. */
enum { IS_FLOAT, IS_INT, IS_SCALE, IS_BOOL };
enum {
    F8 = 0
#define SINTER_DTYPE(value, name, class, bits, ...) \
    | (IS_##class == IS_FLOAT && (bits) == 8 ? ONLY(name) : 0)
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
    ,
    CODES = 0
#define SINTER_DTYPE(value, name, class, bits, ...)              \
    | (IS_##class == IS_FLOAT && (bits) <= 8 ? ONLY(name) : 0) | \
        (IS_##class == IS_INT && (bits) >= 4 && (bits) <= 8 ? ONLY(name) : 0)
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};
#define SCALES (FLT32 | ONLY(e8m0) | ONLY(f8_e4m3))
#define ZPS (ONLY(s8) | ONLY(u8) | ONLY(s4) | ONLY(u4) | ONLY(s32))
#define ANY_ZPS (ZPS | FLT32) /* what codes are restored with */
#define HIGH ONLY(u2) /* the high plane of codes that attribute split_type splits: the last port */
#define REAL (FLT | F8) /* what elementwise ops and MatMul take and give; they compute in f32 */
/* Operands of binary ops: all of them float, or all s32 (index arithmetic of masks). */
#define NUMBER (REAL | ONLY(s32))
#define INDEX (ONLY(s32) | ONLY(s64))

/* ---- attribute rules ------------------------------------------------------------------------- */

/* clang-format off */
#define ATTRS(...)            .attrs = (const attr_rule_t[]){__VA_ARGS__, LAST_RULE}
#define LAST_RULE             {.id = sinter_op_attr_undef}
#define RULE(a, ...)          {.id = sinter_op_attr_##a, __VA_ARGS__}
#define NEED(a)               RULE(a, .required = true)
#define NEED_MIN(a, lo)       RULE(a, .required = true, AT_LEAST(lo))
#define NEED_WORD(a, list)    RULE(a, .required = true, .words = list)
#define MAY(a)                RULE(a, .required = false)
#define MAY_MANY(a)           RULE(a, .many = true)
#define MAY_MIN(a, lo)        RULE(a, AT_LEAST(lo))
#define MAY_WORD(a, list)     RULE(a, .words = list)
#define NUM(a, value)         RULE(a, .has_default = true, .number = (value))
#define NUM_MIN(a, value, lo) RULE(a, .has_default = true, .number = (value), AT_LEAST(lo))
#define WORD(a, value, list)  RULE(a, .text = value, .words = list)
#define AT_LEAST(lo)          .bounded = true, .least = (lo)
/* clang-format on */

#define BROADCAST WORD(auto_broadcast, "numpy", "none|numpy")
#define DATA_FORMAT WORD(data_format, "NXC", "NXC|NCX")
/* Both spellings occur: that of the published descriptions, and that of producers. */
#define AUTO_PAD \
    WORD(auto_pad, "None", "None|SAME_UPPER|SAME_LOWER|VALID|none|same_upper|same_lower|valid")
#define ROUNDING WORD(rounding_type, "floor", "floor|ceil")
/* Producers write negative padding where the last elements of a dim are in no window. */
#define WINDOW NEED_MIN(strides, 1), NEED(pads_begin), NEED(pads_end)
#define CONV_ATTRS WINDOW, NEED_MIN(dilations, 1), AUTO_PAD, NUM_MIN(groups, 1, 1), DATA_FORMAT
#define QTYPE_STATIC WORD(qtype, "per_tensor", "per_tensor|per_channel")
/* Its default depends on quantization_kind: quant.c. */
#define QTYPE_GROUP MAY_WORD(qtype, "per_tensor|per_channel|per_group")
#define STATIC_QUANT_ATTRS QTYPE_STATIC, NUM(axis, 1), NEED(scales), MAY(zps)
#define ZPS_KIND WORD(zps_kind, "zero_points", "zero_points|offsets")
#define SPLIT MAY_WORD(split_type, "f6_e3m2|f6_e2m3")
#define RESIZE                                                                          \
    NEED_WORD(mode, "nearest|linear|bilinear|trilinear"),                               \
        WORD(coordinate_transformation_mode, "half_pixel", "half_pixel|align_corners"), \
        DATA_FORMAT, MAY_MIN(sizes, 1), MAY(scales)

/* ---- cards: {inputs, outputs, types in, types out, attributes, ...} -------------------------- */

#define CARD static const op_card_t
#define IN(least, most, ...) .min_in = (least), .max_in = (most), .in = {__VA_ARGS__}
#define OUT(least, most, ...) .min_out = (least), .max_out = (most), .out = {__VA_ARGS__}

/* eltwise */
CARD card_unary = {IN(1, 1, REAL), OUT(1, 1, REAL), .flags = OP_ELTWISE | OP_UNARY};
CARD card_unary_bwd = {IN(2, 2, FLT), OUT(1, 1, FLT), .dims = dims_grad};
CARD card_unary_dst_bwd = {IN(2, 2, FLT), OUT(1, 1, FLT), ATTRS(NUM(use_dst, 1)),
                           .dims = dims_grad};
CARD card_clamp = {IN(1, 1, REAL),
                   OUT(1, 1, REAL),
                   ATTRS(NEED(min), NEED(max)),
                   .check = check_clamp,
                   .flags = OP_ELTWISE | OP_UNARY,
                   .params = {sinter_op_attr_min, sinter_op_attr_max}};
CARD card_clamp_bwd = {IN(2, 2, FLT), OUT(1, 1, FLT), ATTRS(NEED(min), NEED(max), NUM(use_dst, 1)),
                       .check = check_clamp, .dims = dims_grad};
CARD card_elu = {IN(1, 1, REAL), OUT(1, 1, REAL), ATTRS(NEED(alpha)),
                 .flags = OP_ELTWISE | OP_UNARY, .params = {sinter_op_attr_alpha}};
CARD card_elu_bwd = {IN(2, 2, FLT), OUT(1, 1, FLT), ATTRS(NEED(alpha), NUM(use_dst, 1)),
                     .dims = dims_grad};
CARD card_leaky_relu = {IN(1, 1, REAL), OUT(1, 1, REAL), ATTRS(NEED(alpha)),
                        .flags = OP_ELTWISE | OP_UNARY, .params = {sinter_op_attr_alpha}};
CARD card_gelu = {IN(1, 1, REAL), OUT(1, 1, REAL),
                  ATTRS(WORD(mode, "gelu_erf", "gelu_erf|gelu_tanh")),
                  .flags = OP_ELTWISE | OP_UNARY, .params = {sinter_op_attr_mode}};
CARD card_gelu_bwd = {IN(2, 2, FLT), OUT(1, 1, FLT),
                      ATTRS(WORD(mode, "gelu_erf", "gelu_erf|gelu_tanh")), .dims = dims_grad};
CARD card_hard_sigmoid = {IN(1, 1, REAL), OUT(1, 1, REAL), ATTRS(NEED(alpha), NEED(beta)),
                          .flags = OP_ELTWISE | OP_UNARY,
                          .params = {sinter_op_attr_alpha, sinter_op_attr_beta}};
CARD card_hard_sigmoid_bwd = {IN(2, 2, FLT), OUT(1, 1, FLT), ATTRS(NEED(alpha), NEED(beta)),
                              .dims = dims_grad};
CARD card_softplus = {IN(1, 1, REAL), OUT(1, 1, REAL), ATTRS(NUM(beta, 1)),
                      .flags = OP_ELTWISE | OP_UNARY, .params = {sinter_op_attr_beta}};
CARD card_softplus_bwd = {IN(2, 2, FLT), OUT(1, 1, FLT), ATTRS(NUM(beta, 1)), .dims = dims_grad};
CARD card_pow = {IN(1, 1, REAL), OUT(1, 1, REAL), ATTRS(NEED(beta)), .flags = OP_ELTWISE | OP_UNARY,
                 .params = {sinter_op_attr_beta}};
CARD card_type_cast = {IN(1, 1, ANY), OUT(1, 1, ANY), .flags = OP_ELTWISE | OP_UNARY};
CARD card_gen_index = {IN(1, 1, ANY), OUT(1, 1, ONLY(s32)), ATTRS(NEED(axis)), .dims = dims_axis,
                       .flags = OP_ELTWISE};
CARD card_binary = {IN(2, 2, NUMBER), OUT(1, 1, NUMBER), ATTRS(BROADCAST),
                    .check = check_binary_types, .flags = OP_ELTWISE | OP_BINARY};
CARD card_compare = {IN(2, 2, NUMBER), OUT(1, 1, ONLY(boolean)), ATTRS(BROADCAST),
                     .check = check_binary_types, .flags = OP_ELTWISE | OP_BINARY};
CARD card_select = {IN(3, 3, ONLY(boolean), NUMBER), OUT(1, 1, NUMBER), ATTRS(BROADCAST),
                    .check = check_select_types, .flags = OP_ELTWISE};
CARD card_bias_add = {IN(2, 2, REAL), OUT(1, 1, REAL), ATTRS(DATA_FORMAT), .dims = dims_bias_add,
                      .flags = OP_ELTWISE};
CARD card_bias_add_bwd = {IN(1, 1, FLT), OUT(1, 1, FLT), ATTRS(DATA_FORMAT)};
CARD card_prelu = {IN(2, 2, REAL), OUT(1, 1, REAL),
                   ATTRS(DATA_FORMAT, NUM(per_channel_broadcast, 1)), .dims = dims_prelu,
                   .flags = OP_ELTWISE};
CARD card_prelu_bwd = {IN(3, 3, FLT), OUT(2, 2, FLT), ATTRS(DATA_FORMAT)};

/* matmul, softmax, moves */
CARD card_matmul = {IN(2, 3, FLT32 | F8, FLT32 | F8, FLT), OUT(1, 1, REAL),
                    ATTRS(NUM(transpose_a, 0), NUM(transpose_b, 0),
                          WORD(accumulation_mode, "strict", "strict|relaxed|any|s32|f32|f16")),
                    .limit = limit_products, .flags = OP_MATMUL};
CARD card_softmax = {IN(1, 2, FLT32), OUT(1, 2, FLT, ONLY(f32)),
                     ATTRS(NUM(axis, 1), WORD(mode, "none", "none|inf_as_zero")),
                     .flags = OP_SOFTMAX};
CARD card_log_softmax = {IN(1, 1, FLT32), OUT(1, 1, FLT), ATTRS(NUM(axis, -1)), .dims = dims_axis,
                         .flags = OP_LOG_SOFTMAX};
CARD card_softmax_bwd = {IN(2, 2, FLT), OUT(1, 1, FLT), ATTRS(MAY(axis)), .dims = dims_grad};
CARD card_reorder = {IN(1, 1, ANY), OUT(1, 1, ANY), .check = check_same_type, .flags = OP_VIEW};
CARD card_reshape = {IN(1, 1, ANY), OUT(1, 1, ANY), ATTRS(NEED_MIN(shape, -1), NEED(special_zero)),
                     .check = check_reshape, .flags = OP_VIEW};
CARD card_transpose = {IN(1, 1, ANY), OUT(1, 1, ANY), ATTRS(NEED(order)), .check = check_order,
                       .flags = OP_VIEW};
CARD card_concat = {IN(1, OP_MAX_PORTS, ANY), OUT(1, 1, ANY), ATTRS(NEED(axis)),
                    .check = check_same_type, .flags = OP_MOVE};

/* quantisation */
CARD card_quantize = {IN(1, 1, FLT), OUT(1, 1, CODES), ATTRS(STATIC_QUANT_ATTRS),
                      .check = check_quant, .flags = OP_QUANT};
CARD card_dequantize = {IN(1, 2, CODES, HIGH),
                        OUT(1, 1, FLT),
                        ATTRS(STATIC_QUANT_ATTRS, SPLIT, MAY(float_zps), ZPS_KIND),
                        .check = check_quant,
                        .dims = dims_planes,
                        .flags = OP_DEQUANT};
CARD card_dyn_quantize = {
    IN(1, 3, FLT, SCALES, ZPS), OUT(1, 3, CODES, SCALES, ANY_ZPS | HIGH),
    ATTRS(QTYPE_GROUP, MAY_MANY(axis), MAY_MANY(groups), MAY(group_shape), SPLIT,
          WORD(quantization_kind, "static",
               "static|dynamic_mx|dynamic_mx_rceil|dynamic_symmetric|dynamic_asymmetric|dynamic_nv|"
               "dynamic_signed|dynamic_iq4_nl"),
          ZPS_KIND, MAY_MIN(code_bits, 2)),
    .check = check_quant, .flags = OP_QUANT};
CARD card_dyn_dequantize = {
    IN(2, 3, CODES, SCALES, ANY_ZPS | HIGH),
    OUT(1, 1, FLT),
    ATTRS(QTYPE_GROUP, MAY_MANY(axis), MAY_MANY(groups), MAY(group_shape), SPLIT, ZPS_KIND),
    .check = check_quant,
    .dims = dims_planes,
    .flags = OP_DEQUANT};

/* pooling and convolution */
CARD card_avg_pool = {
    IN(1, 1, FLT32), OUT(1, 1, FLT32),
    ATTRS(WINDOW, NEED_MIN(kernel, 1), NEED(exclude_pad), DATA_FORMAT, ROUNDING, AUTO_PAD),
    .flags = OP_WINDOW};
CARD card_avg_pool_bwd = {IN(1, 2, FLT, INDEX), OUT(1, 1, FLT),
                          ATTRS(WINDOW, NEED_MIN(kernel, 1), NEED(exclude_pad), DATA_FORMAT,
                                AUTO_PAD, MAY_MIN(src_shape, 0))};
CARD card_max_pool = {
    IN(1, 1, FLT32), OUT(1, 1, FLT32),
    ATTRS(WINDOW, NEED_MIN(kernel, 1), MAY_MIN(dilations, 1), DATA_FORMAT, ROUNDING, AUTO_PAD),
    .flags = OP_WINDOW};
CARD card_max_pool_bwd = {
    IN(2, 2, FLT), OUT(1, 1, FLT),
    ATTRS(WINDOW, NEED_MIN(kernel, 1), MAY_MIN(dilations, 1), DATA_FORMAT, AUTO_PAD)};
CARD card_conv = {IN(2, 3, FLT32), OUT(1, 1, FLT),
                  ATTRS(CONV_ATTRS, WORD(weights_format, "XIO", "XIO|OIX")),
                  .limit = limit_convolution, .flags = OP_CONVOLUTION};
CARD card_conv_bwd_data = {IN(2, 3, FLT, FLT, INDEX), OUT(1, 1, FLT),
                           ATTRS(CONV_ATTRS, MAY_MIN(output_padding, 0), MAY_MIN(dst_shape, 0),
                                 WORD(weights_format, "XIO", "XIO|OIX"))};
CARD card_conv_bwd_weights = {
    IN(2, 3, FLT, FLT, INDEX), OUT(1, 1, FLT),
    ATTRS(CONV_ATTRS, MAY_MIN(output_padding, 0), MAY_MIN(weights_shape, 0),
          {.id = sinter_op_attr_weights_format, .words = "XIO|OIX|XOI|IOX"}),
    .check = check_weights_format};
CARD card_conv_transpose = {
    IN(2, 3, FLT32), OUT(1, 1, FLT),
    ATTRS(CONV_ATTRS, MAY_MIN(output_padding, 0), WORD(weights_format, "XOI", "XOI|IOX")),
    .limit = limit_convolution, .flags = OP_CONVOLUTION};
CARD card_conv_transpose_bwd_data = {IN(2, 2, FLT), OUT(1, 1, FLT),
                                     ATTRS(CONV_ATTRS, WORD(weights_format, "XOI", "XOI|IOX"))};
CARD card_interpolate = {
    IN(1, 2, FLT32, INDEX),      OUT(1, 1, FLT32),  ATTRS(RESIZE), .check = check_interpolate,
    .limit = limit_tensor_attrs, .flags = OP_WINDOW};
CARD card_interpolate_bwd = {IN(2, 3, FLT, FLT, INDEX), OUT(1, 1, FLT), ATTRS(RESIZE)};

/* reductions and norms */
CARD card_reduce = {IN(1, 2, FLT32, INDEX),
                    OUT(1, 1, FLT32),
                    ATTRS(MAY(axes), NUM(keep_dims, 0)),
                    .check = check_reduce,
                    .limit = limit_tensor_attrs,
                    .flags = OP_REDUCE};
CARD card_bn_inf = {IN(5, 5, FLT), OUT(1, 1, FLT), ATTRS(NEED(epsilon), DATA_FORMAT),
                    .dims = dims_channel_params, .flags = OP_ELTWISE};
CARD card_bn_train = {IN(3, 5, FLT), OUT(5, 5, FLT),
                      ATTRS(NEED(epsilon), MAY(momentum), DATA_FORMAT),
                      .dims = dims_channel_params};
CARD card_bn_bwd = {IN(4, 5, FLT), OUT(1, 3, FLT), ATTRS(NEED(epsilon), DATA_FORMAT)};
CARD card_layer_norm = {
    IN(1, 3, FLT32, FLT),
    OUT(1, 3, FLT32, FLT),
    ATTRS(NUM(keep_stats, 1), NUM(begin_norm_axis, -1), NUM(use_affine, 1), NUM(epsilon, 1e-5)),
    .check = check_norm,
    .dims = dims_row_params,
    .flags = OP_NORM};
CARD card_layer_norm_bwd = {IN(4, 6, FLT), OUT(1, 3, FLT),
                            ATTRS(NUM(begin_norm_axis, -1), NUM(use_affine, 1), NUM(epsilon, 1e-5)),
                            .check = check_norm_bwd};
CARD card_group_norm = {IN(1, 3, FLT32, FLT),
                        OUT(1, 3, FLT32, FLT),
                        ATTRS(NUM(keep_stats, 1), NUM(use_affine, 1), NEED_MIN(groups, 1),
                              NUM(epsilon, 1e-5), DATA_FORMAT),
                        .check = check_norm,
                        .dims = dims_channel_params,
                        .flags = OP_NORM};
CARD card_rms_norm = {IN(1, 2, FLT32, FLT),
                      OUT(1, 1, FLT32),
                      ATTRS(NUM(begin_norm_axis, -1), NUM(use_affine, 1), NUM(epsilon, 1e-5)),
                      .check = check_rms_norm,
                      .dims = dims_row_params,
                      .flags = OP_NORM};

/* Sinter's own */
CARD card_rotary_embedding = {IN(3, 4, FLT32, FLT32, FLT32 | INDEX, INDEX),
                              OUT(1, 1, FLT32),
                              ATTRS(NUM(interleaved, 0), NUM_MIN(rotary_embedding_dim, 0, 0),
                                    NUM_MIN(num_heads, 0, 0), NUM(scale, 1)),
                              .check = check_rotary_embedding,
                              .flags = OP_ROTARY,
                              .index_port = 3};
CARD card_hadamard_transform = {IN(1, 1, FLT32), OUT(1, 1, FLT32), ATTRS(NUM_MIN(block_size, 0, 0)),
                                .check = check_hadamard_transform, .flags = OP_ROTARY};
CARD card_gather = {IN(2, 2, ANY, INDEX),
                    OUT(1, 1, ANY),
                    ATTRS(NUM(axis, 0), NUM_MIN(batch_dims, 0, 0)),
                    .check = check_same_first,
                    .flags = OP_MOVE | OP_GATHER,
                    .index_port = 1};
CARD card_scatter_rows = {IN(3, 3, ANY, INDEX, ANY),
                          OUT(1, 1, ANY),
                          ATTRS(NUM(axis, 0), NUM_MIN(batch_dims, 0, 0)),
                          .check = check_scatter_rows,
                          .flags = OP_MOVE | OP_SCATTER,
                          .index_port = 1};
CARD card_cumsum = {IN(1, 1, FLT32), OUT(1, 1, FLT32),
                    ATTRS(NUM(axis, -1), NUM(exclusive, 0), NUM(reverse, 0)), .dims = dims_axis,
                    .flags = OP_CUMSUM};
CARD card_linear_attention = {
    IN(4, 9, FLT32, FLT32, FLT32, FLT32, FLT32 | INDEX, FLT32 | INDEX, FLT32 | INDEX, INDEX),
    OUT(2, 2, FLT32),
    ATTRS(NEED_WORD(mode, "linear|gated|delta|gated_delta|gated_bonus|gated_low_rank"),
          NUM(scale, 1), NUM(interleaved, 1), NUM(log_decay, 1)),
    .check = check_linear_attention, .flags = OP_LINEAR_ATTENTION};
CARD card_slice = {
    IN(1, 1, ANY),        OUT(1, 1, ANY),   ATTRS(NEED(starts), NEED(ends), MAY(axes), MAY(steps)),
    .check = check_slice, .flags = OP_MOVE, .limit = limit_slice};
CARD card_top_k = {IN(1, 1, REAL | INDEX), OUT(2, 2, REAL | INDEX, ONLY(s32)),
                   ATTRS(NEED_MIN(k, 0), NUM(axis, -1), NUM(largest, 1)), .check = check_same_first,
                   .flags = OP_MOVE | OP_TOP_K};

/* the rest */
CARD card_dropout = {IN(4, 4, FLT, INDEX, INDEX, FLT), OUT(1, 2, FLT, ONLY(u8)),
                     .check = check_same_first, .flags = OP_ELTWISE, .limit = limit_dropout};
CARD card_end = {IN(1, 1, ANY), OUT(0, 0, ANY)};
CARD card_wildcard = {IN(0, OP_MAX_PORTS, ANY), OUT(0, OP_MAX_PORTS, ANY), .any_attr = true};

/* ---- projections of ops.def ------------------------------------------------------------------ */

enum { RUNS_RUN = 1, RUNS_ACCEPT = 0 };

typedef struct op_row {
    const char *name;
    const op_card_t *card;
    shape_rule_t shape;
    bool runs;
} op_row_t;

static const op_row_t op_rows[OP_SLOTS] = {
#define SINTER_OP(value, name, spelling, schema, shape, run) \
    [OP_SLOT(value)] = {#spelling, &card_##schema, shape_##shape, RUNS_##run},
#include <sinter/ops.def>
#undef SINTER_OP
};

static const sinter_op_kind_t kinds[] = {
#define SINTER_OP(value, name, ...) sinter_op_##name,
#include <sinter/ops.def>
#undef SINTER_OP
};

static const op_row_t *row_of(sinter_op_kind_t kind)
{
    static const op_row_t none;
    const int slot = op_slot(kind);
    return slot >= 0 ? &op_rows[slot] : &none;
}

const op_card_t *op_card(sinter_op_kind_t kind)
{
    return row_of(kind)->card;
}

shape_rule_t op_shape_rule(sinter_op_kind_t kind)
{
    return row_of(kind)->shape;
}

const char *op_name(sinter_op_kind_t kind)
{
    return row_of(kind)->name;
}

bool op_runs(sinter_op_kind_t kind)
{
    return row_of(kind)->runs;
}

unsigned op_flags(sinter_op_kind_t kind)
{
    const op_card_t *card = op_card(kind);
    return card != NULL ? card->flags : 0;
}

unsigned op_class(sinter_op_kind_t kind)
{
    return op_flags(kind) & OP_CLASSES;
}

bool op_by_channels(sinter_op_kind_t kind)
{
    return (op_flags(kind) & OP_ELTWISE) != 0 &&
           op_attr_rule(kind, sinter_op_attr_data_format) != NULL;
}

const attr_rule_t *op_attr_rule(sinter_op_kind_t kind, sinter_op_attr_t id)
{
    const op_card_t *card = op_card(kind);
    for (const attr_rule_t *rule = card != NULL ? card->attrs : NULL;
         rule != NULL && rule->id != sinter_op_attr_undef; rule++) {
        if (rule->id == id) {
            return rule;
        }
    }
    return NULL;
}

/* ---- public names ---------------------------------------------------------------------------- */

const char *sinter_op_kind_name(sinter_op_kind_t kind)
{
    return op_name(kind);
}

int sinter_op_kind_is_executed(sinter_op_kind_t kind)
{
    return op_runs(kind);
}

int sinter_op_kind_parse(const char *name, sinter_op_kind_t *out)
{
    for (size_t k = 0; name != NULL && out != NULL && k < sizeof kinds / sizeof *kinds; k++) {
        if (strcmp(op_name(kinds[k]), name) == 0) {
            *out = kinds[k];
            return 1;
        }
    }
    return 0;
}
