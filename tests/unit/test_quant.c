/* The geometry of quantisation: a table of graphs that break one rule each, a table of valid
 * ones with their groups, and the index functions against a calculation of the test's own. */
#include <string.h>

#include <sinter/sinter_graph.h>

#include "check.h"
#include "graph/quant.h"

#define U SINTER_UNKNOWN_DIM
#define LENGTH(array) (sizeof(array) / sizeof *(array))
enum { MAX_TENSORS = 3, MAX_LIST = 4, MAX_DIMS = 5, EMPTY = -1 };

typedef struct tensor {
    sinter_data_type_t type; /* undef: no such tensor */
    int ndims;
    int64_t dims[MAX_DIMS];
} tensor_t;

typedef struct list {
    int n; /* 0: not given, EMPTY: given without values */
    int64_t v[MAX_LIST];
} list_t;

typedef struct quant_case {
    sinter_op_kind_t op;
    const char *qtype, *kind; /* NULL: not given */
    list_t axis, groups, group_shape, zps;
    int scales; /* how many the attribute has; 0: not given, EMPTY */
    tensor_t in[MAX_TENSORS], out[MAX_TENSORS];
    /* What comes of it. */
    sinter_status_t status;
    const char *message;
    int64_t scale_group[MAX_DIMS], zp_group[MAX_DIMS];
} quant_case_t;

#define S(...)                                              \
    {                                                       \
        sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
        {                                                   \
            __VA_ARGS__                                     \
        }                                                   \
    }
#define T(type, ...)                                                       \
    {                                                                      \
        sinter_##type, sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
        {                                                                  \
            __VA_ARGS__                                                    \
        }                                                                  \
    }
#define SCALAR(type)      \
    {                     \
        sinter_##type, 0, \
        {                 \
            0             \
        }                 \
    }
#define NO_RANK(type)      \
    {                      \
        sinter_##type, -1, \
        {                  \
            0              \
        }                  \
    }

#define DEQ .op = sinter_op_dynamic_dequantize
#define DYN .op = sinter_op_dynamic_quantize
#define STATIC_Q .op = sinter_op_quantize
#define STATIC_DEQ .op = sinter_op_dequantize
#define ATTR .status = sinter_invalid_graph_op, .message =
#define SHAPE .status = sinter_invalid_shape, .message =
#define TYPE .status = sinter_invalid_data_type, .message =

static const quant_case_t invalid[] = {
    /* attributes */
    {DEQ, .qtype = "per_row", .in = {T(s8, 4, 8), SCALAR(f32)},
     ATTR "qtype \"per_row\" is not per_tensor, per_channel or per_group"},
    {DEQ, .qtype = "per_channel", .axis = S(2), .in = {T(s8, 4, 8), T(f32, 8)},
     ATTR "axis 2 is outside the 2 dimensions of tensor 10"},
    {DEQ, .qtype = "per_channel", .axis = S(-3), .in = {T(s8, 4, 8), T(f32, 8)},
     ATTR "axis -3 is outside"},
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4), T(f32, 4)},
     ATTR "axis 1 is outside the 1 dimensions"},
    {DEQ, .qtype = "per_channel", .axis = {EMPTY, {0}}, .in = {T(s8, 4, 8), T(f32, 8)},
     ATTR "axis has 0 values"},
    {DEQ, .qtype = "per_channel", .axis = S(0, 1), .in = {T(s8, 4, 8), T(f32, 8)},
     ATTR "2 axes need qtype per_group"},
    {DEQ, .qtype = "per_tensor", .axis = S(0, 1), .in = {T(s8, 4, 8), SCALAR(f32)},
     ATTR "2 axes need qtype per_group"},
    {DEQ, .qtype = "per_group", .axis = S(1, 1), .groups = S(2, 2),
     .in = {T(s8, 4, 8), T(f32, 4, 2)}, ATTR "axis 1 is given twice"},
    {DEQ, .qtype = "per_group", .axis = S(1, -1), .groups = S(2, 2),
     .in = {T(s8, 4, 8), T(f32, 4, 2)}, ATTR "axis 1 is given twice"},
    {DEQ, .qtype = "per_group", .axis = S(0, 1), .groups = S(2), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     ATTR "groups has 1 values for 2 axes"},
    {DEQ, .qtype = "per_group", .groups = S(2, 2), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     ATTR "groups has 2 values for 1 axes"},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(0), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     ATTR "groups[0] is 0, which is less than 1"},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(-2), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     ATTR "groups[0] is -2, which is less than 1"},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(16), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     ATTR "groups[0] is 16, more than the 8 elements"},
    {DEQ, .qtype = "per_group", .axis = S(0, 1), .groups = S(2, 3),
     .in = {T(s8, 4, 8), T(f32, 2, 3)}, ATTR "groups[1] is 3, which does not divide the 8"},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 1, 4), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     ATTR "group_shape has 3 values for the 2 dimensions"},
    {DEQ, .qtype = "per_group", .group_shape = S(0, 4), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     ATTR "group_shape[0] is 0, which is less than 1"},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 3), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     SHAPE "2 values along dimension 1, but group_shape makes it 3 for 8 elements"},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 16), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     SHAPE "2 values along dimension 1, but group_shape makes it 1 for 8 elements"},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(2), .group_shape = S(1, 3),
     .in = {T(s8, 4, 8), T(f32, 4, 3)}, SHAPE "3 values along dimension 1, but groups says 2"},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(5), .group_shape = S(1, 3),
     .in = {T(s8, 4, 8), T(f32, 4, 3)}, ATTR "groups[0] is 5, which does not divide"},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 3),
     .in = {T(s8, 4, 8), T(f32, 4, 3), T(s8, 4, 5)},
     SHAPE "5 values along dimension 1, which do not divide its 8 elements"},
    {DEQ, .qtype = "per_group", .axis = S(5), .group_shape = S(1, 4),
     .in = {T(s8, 4, 8), T(f32, 4, 2)}, ATTR "axis 5 is outside the 2 dimensions"},
    /* scales against data and attributes */
    {DEQ, .in = {T(s8, 4, 8)}, ATTR "the scales of tensor 10 are missing"},
    {DEQ, .qtype = "per_tensor", .in = {T(s8, 4, 8), T(f32, 4)},
     SHAPE "scales of qtype per_tensor, tensor 11, must be one value"},
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4, 8), T(f32, 4)},
     SHAPE "scales of qtype per_channel, tensor 11, are 4 for the 8 channels of axis 1"},
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4, 8), T(f32, 1)},
     SHAPE "tensor 11, are 1 for the 8 channels of axis 1"},
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4, 8), T(f32, 1, 8, 1)},
     SHAPE "scales of qtype per_channel, tensor 11, have 3 dimensions, not 1 or 2"},
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4, 8), T(f32, 4, 8)},
     SHAPE "have dimension 0 that is neither 1 nor the axis 1"},
    {DEQ, .qtype = "per_group", .in = {T(s8, 4, 8), T(f32, 2)},
     SHAPE "scales of qtype per_group, tensor 11, have 1 dimensions, but tensor 10 has 2"},
    {DEQ, .qtype = "per_group", .in = {T(s8, 4, 8), SCALAR(f32)},
     SHAPE "scales of qtype per_group, tensor 11, have 0 dimensions"},
    {DEQ, .qtype = "per_group", .in = {T(s8, 4, 8), T(f32, 4, 3)},
     SHAPE "scales, tensor 11, have 3 values along dimension 1, which do not divide its 8"},
    {DEQ, .qtype = "per_group", .in = {T(s8, 4, 8), T(f32, 8, 2)},
     SHAPE "scales, tensor 11, have 8 values along dimension 0, which do not divide its 4"},
    {DEQ, .qtype = "per_group", .in = {T(s8, 4, 8), T(f32, 4, 0)},
     SHAPE "scales, tensor 11, have no values along dimension 1"},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(4), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     SHAPE "dimension 1, but groups says 4"},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(2), .in = {T(s8, 4, 8), T(f32, 2, 2)},
     SHAPE "divide dimension 0 into 2 groups, but axis does not list"},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 2), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     SHAPE "2 values along dimension 1, but group_shape makes it 4"},
    {DEQ, .qtype = "per_group", .group_shape = S(2, 4), .in = {T(s8, 4, 8), T(f32, 4, 2)},
     SHAPE "4 values along dimension 0, but group_shape makes it 2"},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(2), .group_shape = S(1, 2),
     .in = {T(s8, 4, 8), T(f32, 4, 2)}, SHAPE "but group_shape makes it 4"},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(4), .in = {T(s8, 4, U), T(f32, 4, 2)},
     SHAPE "2 values along dimension 1, but groups says 4"},
    {DEQ, .in = {T(s8, 4, 8), SCALAR(s32)},
     TYPE "scales, tensor 11, are s32, not f32, f16, bf16, e8m0 or f8_e4m3"},
    {DEQ, .in = {T(s8, 4, 8), SCALAR(f64)}, TYPE "scales, tensor 11, are f64, not"},
    {DEQ, .in = {T(s8, 4, 8), SCALAR(f8_e5m2)}, TYPE "scales, tensor 11, are f8_e5m2, not"},
    /* zero points */
    {DEQ, .in = {T(s8, 4, 8), SCALAR(f32), T(s8, 4)},
     SHAPE "zero points of qtype per_tensor, tensor 12, must be one value"},
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4, 8), T(f32, 8), T(s8, 4)},
     SHAPE "zero points of qtype per_channel, tensor 12, are 4 for the 8 channels"},
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4, 8), T(f32, 8), T(s8, 2, 8)},
     SHAPE "zero points of qtype per_channel, tensor 12, have dimension 0 that"},
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4, 8), T(f32, 8), T(s8, 1, 1, 8)},
     SHAPE "zero points of qtype per_channel, tensor 12, have 3 dimensions"},
    {DEQ, .qtype = "per_group", .in = {T(s8, 4, 8), T(f32, 4, 2), T(s8, 2)},
     SHAPE "zero points of qtype per_group, tensor 12, have 1 dimensions"},
    {DEQ, .qtype = "per_group", .in = {T(s8, 4, 8), T(f32, 4, 2), T(s8, 3, 2)},
     SHAPE "zero points, tensor 12, have 3 values along dimension 0, which"},
    {DEQ, .qtype = "per_group", .in = {T(s8, 4, 8), T(f32, 4, 2), T(s8, 0, 2)},
     SHAPE "zero points, tensor 12, have no values along dimension 0"},
    {DEQ, .in = {T(s8, 4, 8), SCALAR(f32), SCALAR(f64)},
     TYPE "zero points, tensor 12, are f64, not s8, u8, s4, u4, s32, f32, f16 or bf16"},
    {.op = sinter_op_dynamic_quantize,
     .in = {T(f32, 4, 8), SCALAR(f32), SCALAR(f32)},
     .out = {T(s8, 4, 8)},
     TYPE "zero points, tensor 12, are f32, not s8, u8, s4, u4 or s32"},
    {DEQ, .in = {T(s8, 4, 8), SCALAR(f32), SCALAR(s64)},
     TYPE "zero points, tensor 12, are s64, not"},
    {DEQ, .in = {T(f4_e2m1, 4, 8), SCALAR(f32), SCALAR(s8)},
     TYPE "zero points, tensor 12, need integer data, but tensor 10 is f4_e2m1"},
    {DEQ, .in = {T(f4_e2m1, 4, 8), SCALAR(f32), SCALAR(f16)},
     TYPE "zero points, tensor 12, need integer data, but tensor 10 is f4_e2m1"},
    /* Quantize, Dequantize */
    {STATIC_DEQ, .qtype = "per_tensor", .in = {T(s8, 4, 8)},
     ATTR "the attribute scales is missing"},
    {STATIC_DEQ, .qtype = "per_tensor", .scales = EMPTY, .in = {T(s8, 4, 8)},
     ATTR "the attribute scales is empty"},
    {STATIC_DEQ, .qtype = "per_tensor", .scales = 2, .in = {T(s8, 4, 8)},
     ATTR "scales has 2 values, qtype per_tensor wants one"},
    {STATIC_DEQ, .qtype = "per_channel", .scales = 2, .in = {T(s8, 4, 8)},
     ATTR "scales has 2 values for the 8 channels of axis 1 of tensor 10"},
    {STATIC_DEQ, .qtype = "per_group", .scales = 2, .in = {T(s8, 4, 8)},
     ATTR "qtype per_group needs scales as a tensor"},
    {STATIC_DEQ, .scales = 1, .zps = S(0, 0), .in = {T(s8, 4, 8)},
     ATTR "zps has 2 values for 1 scales"},
    {STATIC_DEQ, .scales = 1, .zps = {EMPTY, {0}}, .in = {T(s8, 4, 8)},
     ATTR "zps has 0 values for 1 scales"},
    {STATIC_DEQ, .scales = 1, .zps = S(128), .in = {T(s8, 4, 8)},
     ATTR "zps[0] is 128: zero points outside their type, s8 of tensor 10"},
    {STATIC_DEQ, .scales = 1, .zps = S(-1), .in = {T(u8, 4, 8)},
     ATTR "zps[0] is -1: zero points outside their type, u8 of tensor 10"},
    {STATIC_Q, .scales = 1, .zps = S(256), .in = {T(f32, 4, 8)}, .out = {T(u8, 4, 8)},
     ATTR "zps[0] is 256: zero points outside their type, u8 of tensor 20"},
    {STATIC_Q, .scales = 1, .zps = S(1), .in = {T(f32, 4, 8)}, .out = {T(f8_e4m3, 4, 8)},
     ATTR "zps[0] is 1, but zero points need integer data"},
    /* DynamicQuantize */
    {DYN, .kind = "dynamic", .in = {T(f32, 4, 8)}, .out = {T(s8, 4, 8), SCALAR(f32)},
     ATTR "quantization_kind \"dynamic\" is unknown"},
    {DYN, .in = {T(f32, 4, 8)}, .out = {T(s8, 4, 8)},
     ATTR "the scales of tensor 10 are missing: they are input 1"},
    {DYN, .kind = "dynamic_mx", .in = {T(f32, 4, 64)}, .out = {T(f8_e4m3, 4, 64)},
     ATTR "quantization_kind dynamic_mx needs an output for its scales"},
    {DYN, .kind = "dynamic_mx", .in = {T(f32, 4, 64), SCALAR(f32)},
     .out = {T(f8_e4m3, 4, 64), T(e8m0, 4, 2)}, ATTR "computes its scales: 2 inputs are too many"},
    {DYN, .kind = "dynamic_mx", .in = {T(f32, 4, 64)}, .out = {T(f8_e4m3, 4, 64), T(f32, 4, 2)},
     TYPE "scales of dynamic_mx, tensor 21, must be e8m0, not f32"},
    {DYN, .kind = "dynamic_mx", .in = {T(f32, 4, 64)}, .out = {T(u8, 4, 64), T(e8m0, 4, 2)},
     TYPE "dynamic_mx does not make u8, the type of tensor 20"},
    {DYN, .kind = "dynamic_mx", .in = {T(f32, 4, 65)}, .out = {T(f8_e4m3, 4, 65), T(e8m0, 4, U)},
     SHAPE "(65) of tensor 10 is no multiple of the default group 32"},
    {DYN, .kind = "dynamic_mx", .in = {T(f32, 4, 64)},
     .out = {T(s8, 4, 64), T(e8m0, 4, 2), T(s8, 4, 2)},
     ATTR "dynamic_mx has no zero points to put into tensor 22"},
    {DYN, .kind = "dynamic_symmetric", .in = {T(f32, 4, 8)}, .out = {T(u8, 4, 8), SCALAR(f32)},
     TYPE "dynamic_symmetric does not make u8"},
    {DYN, .kind = "dynamic_signed", .in = {T(f32, 4, 8)}, .out = {T(u8, 4, 8), SCALAR(f32)},
     TYPE "dynamic_signed does not make u8"},
    {DYN, .kind = "dynamic_signed", .in = {T(f32, 4, 8)}, .out = {T(s8, 4, 8), SCALAR(e8m0)},
     TYPE "scales of dynamic_signed, tensor 21, may be negative, which e8m0 has not"},
    {DYN, .kind = "dynamic_iq4_nl", .in = {T(f32, 4, 64)}, .out = {T(s4, 4, 64), T(f16, 4, 2)},
     TYPE "dynamic_iq4_nl does not make s4"},
    {DYN, .kind = "dynamic_asymmetric", .in = {T(f32, 4, 8)}, .out = {T(u8, 4, 8), SCALAR(f32)},
     ATTR "dynamic_asymmetric needs an output for its zero points"},
    {DYN, .kind = "dynamic_asymmetric", .in = {T(f32, 4, 8)},
     .out = {T(f8_e4m3, 4, 8), SCALAR(f32), SCALAR(s8)},
     TYPE "dynamic_asymmetric does not make f8_e4m3"},
    {DYN, .kind = "dynamic_asymmetric", .qtype = "per_group", .in = {T(f32, 4, 8)},
     .out = {T(u8, 4, 8), T(f32, 4, 2), T(u8, 4, 1)},
     SHAPE "zero points of dynamic_asymmetric, tensor 22, must have the groups of the scales in "
           "dimension 1"},
    {DYN, .kind = "dynamic_nv", .in = {T(f32, 4, 32)}, .out = {T(f8_e4m3, 4, 32), T(f8_e4m3, 4, 2)},
     TYPE "dynamic_nv does not make f8_e4m3"},
    {DYN, .kind = "dynamic_nv", .in = {T(f32, 4, 32), SCALAR(f16)},
     .out = {T(f4_e2m1, 4, 32), T(f8_e4m3, 4, 2)},
     TYPE "the per-tensor scale of dynamic_nv, tensor 11, must be f32, not f16"},
    {DYN, .kind = "dynamic_nv", .in = {T(f32, 4, 32), T(f32, 4)},
     .out = {T(f4_e2m1, 4, 32), T(f8_e4m3, 4, 2)},
     SHAPE "the per-tensor scale of dynamic_nv, tensor 11, must be one value"},
};

static const quant_case_t valid[] = {
    /* one value */
    {DEQ, .in = {T(s8, 4, 8), SCALAR(f32)}, .scale_group = {4, 8}},
    {DEQ, .qtype = "per_tensor", .axis = S(7), .in = {T(s8, 4, 8), T(f16, 1), T(s32, 1, 1)},
     .scale_group = {4, 8}, .zp_group = {4, 8}},
    {DEQ, .qtype = "per_tensor", .groups = S(3), .in = {T(u8, 4, 8), T(bf16, 1, 1), SCALAR(u8)},
     .scale_group = {4, 8}, .zp_group = {4, 8}},
    /* one for each channel */
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4, 8), T(f32, 8)}, .scale_group = {4, 1}},
    {DEQ, .qtype = "per_channel", .axis = S(-2), .groups = S(3),
     .in = {T(s8, 4, 8), T(f32, 4), T(s8, 4)}, .scale_group = {1, 8}, .zp_group = {1, 8}},
    {DEQ, .qtype = "per_channel", .axis = S(1), .in = {T(s8, 2, 4, 8), T(e8m0, 1, 4, 1), T(u4, 4)},
     .scale_group = {2, 1, 8}, .zp_group = {2, 1, 8}},
    {DEQ, .qtype = "per_channel", .axis = S(0), .in = {T(s8, 19), T(f32, 19), SCALAR(s8)},
     .scale_group = {1}, .zp_group = {19}},
    /* groups in all spellings */
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(2),
     .in = {T(s4, 4, 8), T(f16, 4, 2), T(s4, 4, 2)}, .scale_group = {1, 4}, .zp_group = {1, 4}},
    {DEQ, .qtype = "per_group", .groups = S(2), .in = {T(s4, 4, 8), T(f16, 4, 2)},
     .scale_group = {1, 4}},
    {DEQ, .qtype = "per_group", .axis = S(-1, 0), .groups = S(2, 2),
     .in = {T(s4, 4, 8), T(f16, 2, 2)}, .scale_group = {2, 4}},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(2), .in = {T(s4, 4, 8), T(f16, 1, 2)},
     .scale_group = {4, 4}},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 1, 32, 1), .axis = S(2),
     .in = {T(s4, 1, 32, 128, 32), T(f16, 1, 32, 4, 32), T(s8, 1, 32, 4, 32)},
     .scale_group = {1, 1, 32, 1}, .zp_group = {1, 1, 32, 1}},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 128), .axis = S(-1),
     .in = {T(u4, 4096, 14336), T(f16, 4096, 112), T(u8, 4096, 112)}, .scale_group = {1, 128},
     .zp_group = {1, 128}},
    {DEQ, .qtype = "per_group", .group_shape = S(2, 4), .in = {T(f4_e2m1, 4, 8), T(e8m0, 2, 2)},
     .scale_group = {2, 4}},
    {DEQ, .qtype = "per_group", .in = {T(f8_e5m2, 6, 8), T(f8_e4m3, 3, 8)}, .scale_group = {2, 1}},
    {DEQ, .qtype = "per_group", .axis = S(1), .in = {T(s8, 6, 8), T(f32, 6, 1)},
     .scale_group = {1, 8}},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(2), .group_shape = S(1, 4),
     .in = {T(s4, 4, 8), T(f16, 4, 2)}, .scale_group = {1, 4}},
    /* zero points of their own */
    {DEQ, .qtype = "per_group", .in = {T(u4, 4, 16), T(f16, 4, 4), T(u4, 4, 2)},
     .scale_group = {1, 4}, .zp_group = {1, 8}},
    /* the last group is short; zero points share it, or divide the dim */
    {DEQ, .qtype = "per_group", .group_shape = S(1, 128), .in = {T(s4, 4, 576), T(f16, 4, 5)},
     .scale_group = {1, 128}},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(3), .group_shape = S(1, 3),
     .in = {T(s8, 4, 8), T(f32, 4, 3), T(s8, 4, 3)}, .scale_group = {1, 3}, .zp_group = {1, 3}},
    {DEQ, .qtype = "per_group", .group_shape = S(3, 5),
     .in = {T(s8, 4, 8), T(f32, 2, 2), T(s8, 1, 4)}, .scale_group = {3, 5}, .zp_group = {4, 2}},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 5), /* 3 groups of 5, 5 and 2, not of 4 */
     .in = {T(s8, 4, 12), T(f32, 4, 3), T(s8, 4, 3)}, .scale_group = {1, 5}, .zp_group = {1, 5}},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 16), .in = {T(s8, 4, 8), T(f32, 4, 1)},
     .scale_group = {1, 8}},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 32), .in = {T(s8, U, 80), T(f32, U, U)},
     .scale_group = {1, 32}},
    {DEQ, .qtype = "per_group", .group_shape = S(32, 1), .in = {T(s8, U, 80), T(f32, U, 80)},
     .scale_group = {32, 1}},
    {DEQ, .qtype = "per_group", .group_shape = S(1, 8),
     .in = {T(u4, 4, 16), T(f16, 4, 2), T(u4, 2, 4)}, .scale_group = {1, 8}, .zp_group = {2, 4}},
    {DEQ, .qtype = "per_group", .in = {T(u4, 4, 16), T(f16, 4, 4), SCALAR(s32)},
     .scale_group = {1, 4}, .zp_group = {4, 16}},
    {DEQ, .qtype = "per_group", .in = {T(u4, 4, 16), T(f16, 4, 4), T(u4, 1, 1)},
     .scale_group = {1, 4}, .zp_group = {4, 16}},
    {DEQ, .qtype = "per_group", .in = {T(u4, 4, 16), T(f16, 4, 4), T(bf16, 4, 2)},
     .scale_group = {1, 4}, .zp_group = {1, 8}},
    /* not known yet */
    {DEQ, .qtype = "per_group", .group_shape = S(1, 32),
     .in = {T(s4, U, 64), T(f16, U, 2), T(s4, U, 2)}, .scale_group = {1, 32}, .zp_group = {U, 32}},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(2), .in = {T(s4, U, 64), T(f16, U, U)},
     .scale_group = {U, 32}},
    {DEQ, .qtype = "per_group", .axis = S(1), .groups = S(2), .in = {T(s4, U, U), T(f16, U, 2)},
     .scale_group = {U, U}},
    {DEQ, .qtype = "per_group", .axis = S(-1), .groups = S(2), .in = {NO_RANK(s4), T(f16, 4, 2)}},
    {DEQ, .qtype = "per_group", .in = {T(s4, 4, 8), NO_RANK(f16)}, .scale_group = {U, U}},
    {DEQ, .qtype = "per_channel", .axis = S(-1), .in = {NO_RANK(s4), T(f16, 4)}},
    {DEQ, .qtype = "per_channel", .in = {T(s8, 4, U), T(f32, 8)}, .scale_group = {4, 1}},
    {DEQ, .in = {T(s8, U, 8), T(f32, U)}, .scale_group = {U, 8}},
    {DEQ, .qtype = "per_group", .in = {T(s8, 0, 8), T(f32, 0, 2)}, .scale_group = {1, 4}},
    /* Quantize, Dequantize */
    {STATIC_DEQ, .scales = 1, .zps = S(-128), .in = {T(s8, 4, 8)}, .scale_group = {4, 8},
     .zp_group = {4, 8}},
    {STATIC_DEQ, .qtype = "per_channel", .scales = 2, .zps = S(0, 255), .in = {T(u8, 4, 2)},
     .scale_group = {4, 1}, .zp_group = {4, 1}},
    {STATIC_Q, .qtype = "per_channel", .axis = S(0), .scales = 4, .in = {T(f32, 4, 2)},
     .out = {T(s8, 4, 2)}, .scale_group = {1, 2}},
    {STATIC_Q, .scales = 1, .zps = S(0), .in = {T(f32, 4, 2)}, .out = {T(f8_e4m3, 4, 2)},
     .scale_group = {4, 2}, .zp_group = {4, 2}},
    {STATIC_DEQ, .qtype = "per_channel", .axis = S(1), .scales = 3, .in = {T(s8, 4, U)},
     .scale_group = {4, 1}},
    /* DynamicQuantize */
    {DYN, .kind = "static", .qtype = "per_channel", .in = {T(f32, 4, 2), T(f32, 2), T(s8, 2)},
     .out = {T(s8, 4, 2)}, .scale_group = {4, 1}, .zp_group = {4, 1}},
    {DYN, .kind = "dynamic_mx", .in = {T(f32, 4, 64)}, .out = {T(f8_e4m3, 4, 64), T(e8m0, U, U)},
     .scale_group = {1, 32}},
    {DYN, .kind = "dynamic_mx_rceil", .in = {T(f32, 4, 64)},
     .out = {T(f6_e2m3, 4, 64), T(e8m0, 2, 4)}, .scale_group = {2, 16}},
    {DYN, .kind = "dynamic_mx", .in = {T(f32, U, 64)}, .out = {T(s8, U, 64), NO_RANK(e8m0)},
     .scale_group = {1, 32}},
    {DYN, .kind = "dynamic_nv", .in = {T(f32, 4, 64), SCALAR(f32)},
     .out = {T(f4_e2m1, 4, 64), NO_RANK(f8_e4m3)}, .scale_group = {1, 16}},
    {DYN, .kind = "dynamic_symmetric", .in = {T(f32, 4, 8)}, .out = {T(s4, 4, 8), NO_RANK(f16)},
     .scale_group = {4, 8}},
    {DYN, .kind = "dynamic_symmetric", .qtype = "per_group", .axis = S(1), .groups = S(2),
     .in = {T(f32, 4, 8)}, .out = {T(s8, 4, 8), T(f32, U, U)}, .scale_group = {1, 4}},
    {DYN, .kind = "dynamic_asymmetric", .qtype = "per_group", .group_shape = S(2, 4),
     .in = {T(f32, 4, 8)}, .out = {T(u4, 4, 8), T(f32, 2, 2), T(u4, U, U)}, .scale_group = {2, 4},
     .zp_group = {2, 4}},
    {DYN, .kind = "dynamic_asymmetric", .qtype = "per_channel", .in = {T(f32, 4, 8)},
     .out = {T(u8, 4, 8), T(f16, 8), T(u8, 8)}, .scale_group = {4, 1}, .zp_group = {4, 1}},
    {DYN, .kind = "dynamic_mx", .in = {T(f32, 4, U)}, .out = {T(f8_e4m3, 4, U), T(e8m0, 4, 1)},
     .scale_group = {1, U}},
};

/* ---- running a case -------------------------------------------------------------------------- */

typedef struct run {
    attr_t attrs[8];
    float scales[MAX_DIMS];
    lt_t in[MAX_TENSORS], out[MAX_TENSORS];
    int n_attrs, n_in, n_out;
    quant_t quant;
    quant_geom_t geom;
} run_t;

static int make_tensors(const tensor_t *from, uint64_t id, lt_t *to)
{
    int n = 0;
    for (; n < MAX_TENSORS && from[n].type != sinter_data_type_undef; n++) {
        to[n] = (lt_t){.id = id + (uint64_t)n, .data_type = from[n].type, .ndims = from[n].ndims};
        memcpy(to[n].dims, from[n].dims, sizeof from[n].dims);
        lt_set_dense(&to[n]);
    }
    return n;
}

static void add_text(run_t *r, sinter_op_attr_t id, const char *text)
{
    if (text != NULL) {
        r->attrs[r->n_attrs++] = (attr_t){.id = id, .n = 1, .str = text};
    }
}

static void add_list(run_t *r, sinter_op_attr_t id, const list_t *list)
{
    if (list->n != 0) {
        r->attrs[r->n_attrs++] =
            (attr_t){.id = id, .n = list->n == EMPTY ? 0 : (size_t)list->n, .s64 = list->v};
    }
}

static sinter_status_t run(const quant_case_t *c, run_t *r)
{
    *r = (run_t){.n_attrs = 0};
    add_text(r, sinter_op_attr_qtype, c->qtype);
    add_text(r, sinter_op_attr_quantization_kind, c->kind);
    add_list(r, sinter_op_attr_axis, &c->axis);
    add_list(r, sinter_op_attr_groups, &c->groups);
    add_list(r, sinter_op_attr_group_shape, &c->group_shape);
    add_list(r, sinter_op_attr_zps, &c->zps);
    if (c->scales != 0) {
        r->attrs[r->n_attrs++] = (attr_t){.id = sinter_op_attr_scales,
                                          .n = c->scales == EMPTY ? 0 : (size_t)c->scales,
                                          .f32 = r->scales};
    }
    r->n_in = make_tensors(c->in, 10, r->in);
    r->n_out = make_tensors(c->out, 20, r->out);
    const node_t node = {.id = 3,
                         .kind = c->op,
                         .n_in = r->n_in,
                         .n_out = r->n_out,
                         .n_attrs = r->n_attrs,
                         .attrs = r->attrs,
                         .quant = &r->quant};
    const sinter_status_t status = quant_read(&node, &r->quant);
    return status == sinter_success ? quant_geometry(&node, r->in, r->out, &r->geom) : status;
}

static void test_invalid(void)
{
    run_t r;
    for (size_t i = 0; i < LENGTH(invalid); i++) {
        const quant_case_t *c = &invalid[i];
        sinter_status_t status = run(c, &r);
        CHECK(status == c->status, "invalid %zu: status %d, not %d (%s)", i, (int)status,
              (int)c->status, c->message);
        CHECK(strncmp(sinter_last_error_message(), "op 3 (", 6) == 0, "invalid %zu: \"%s\"", i,
              sinter_last_error_message());
        CHECK(strstr(sinter_last_error_message(), c->message) != NULL,
              "invalid %zu: \"%s\", not \"%s\"", i, sinter_last_error_message(), c->message);
    }
}

/* The tensor of scales (zp: of zero points) of a valid case, NULL if they are attributes or
 * there are none. */
static const lt_t *param_of(const run_t *r, bool zp)
{
    int port = zp ? r->quant.zp_input : r->quant.scale_input;
    if (r->quant.scales != NULL || (zp && !r->quant.has_zp)) {
        return NULL;
    }
    return port >= 0 ? &r->in[port] : &r->out[zp ? 2 : 1];
}

static int64_t offset_of(int ndims, const int64_t *group, const int8_t *dim, const int64_t *idx,
                         const int64_t *strides)
{
    int64_t offset = 0;
    for (int i = 0; i < ndims; i++) {
        offset += dim[i] >= 0 ? idx[i] / group[i] * strides[dim[i]] : 0;
    }
    return offset;
}

/* The offset of the scale (zero point) of the element at idx in a tensor of these strides. */
static int64_t scale_index(const quant_geom_t *geom, const int64_t *idx, const int64_t *strides)
{
    return offset_of(geom->ndims, geom->scale_group, geom->scale_dim, idx, strides);
}

static int64_t zp_index(const quant_geom_t *geom, const int64_t *idx, const int64_t *strides)
{
    return offset_of(geom->ndims, geom->zp_group, geom->zp_dim, idx, strides);
}

/* For every element: dims of the tensor divide the data's, so the index in the tensor is idx *
 * tensor dim / data dim, unless there are sizes; a 1-D tensor runs along the axis. */
static void check_index(size_t number, const quant_case_t *c, const run_t *r, bool zp)
{
    const int64_t *size = zp ? c->zp_group : c->scale_group;
    const lt_t *data = &r->in[0], *param = param_of(r, zp);
    int64_t idx[SINTER_MAX_NDIMS] = {0}, elems = lt_elems(data);
    if (param == NULL || elems < 1 || elems > 1 << 16 || !lt_dims_known(param)) {
        return;
    }
    bool right = true;
    for (int64_t k = 0; k < elems; k++) {
        int64_t rest = k, want = 0;
        for (int d = data->ndims - 1; d >= 0; d--) {
            idx[d] = rest % data->dims[d];
            rest /= data->dims[d];
        }
        if (lt_elems(param) > 1 && param->ndims == data->ndims) {
            for (int d = 0; d < data->ndims; d++) {
                const int64_t at = c->group_shape.n > 0 ? idx[d] / size[d]
                                                        : idx[d] * param->dims[d] / data->dims[d];
                want += at * param->strides[d];
            }
        } else if (lt_elems(param) > 1) {
            want = idx[r->geom.axis] * param->strides[0];
        }
        int64_t got = zp ? zp_index(&r->geom, idx, param->strides)
                         : scale_index(&r->geom, idx, param->strides);
        right = right && got == want;
    }
    CHECK(right, "valid %zu: the %s index points elsewhere", number, zp ? "zero point" : "scale");
}

static void test_valid(void)
{
    run_t r;
    for (size_t i = 0; i < LENGTH(valid); i++) {
        const quant_case_t *c = &valid[i];
        sinter_status_t status = run(c, &r);
        CHECK(status == sinter_success, "valid %zu: %s", i, sinter_last_error_message());
        if (status != sinter_success) {
            continue;
        }
        const quant_geom_t *g = &r.geom;
        bool zps = c->zps.n > 0 || c->in[2].type != sinter_data_type_undef ||
                   c->out[2].type != sinter_data_type_undef;
        CHECK(g->ndims == c->in[0].ndims && r.quant.has_zp == zps,
              "valid %zu: %d dims, zero points %d", i, g->ndims, r.quant.has_zp);
        for (int d = 0; d < g->ndims; d++) {
            CHECK(g->scale_group[d] == c->scale_group[d],
                  "valid %zu: scale group %d is %lld, not %lld", i, d, (long long)g->scale_group[d],
                  (long long)c->scale_group[d]);
            CHECK(!zps || g->zp_group[d] == c->zp_group[d],
                  "valid %zu: zero point group %d is %lld, not %lld", i, d,
                  (long long)g->zp_group[d], (long long)c->zp_group[d]);
        }
        check_index(i, c, &r, false);
        check_index(i, c, &r, true);
    }
}

/* What a geometry says besides its groups. */
static void test_fields(void)
{
    run_t r;
    quant_case_t channel = {STATIC_DEQ,  .qtype = "per_channel", .axis = S(-1),
                            .scales = 3, .zps = S(1, 2, 3),      .in = {T(s8, 2, 3)}};
    CHECK(run(&channel, &r) == sinter_success, "per channel");
    CHECK(r.quant.scales != NULL && r.quant.n_scales == 3 && r.geom.axis == 1 &&
              r.quant.scales == r.scales && r.quant.zps.v[2] == 3,
          "attributes");
    CHECK(scale_index(&r.geom, (int64_t[]){1, 2}, (int64_t[]){1}) == 2 &&
              zp_index(&r.geom, (int64_t[]){1, 1}, (int64_t[]){1}) == 1,
          "index");
    CHECK(r.quant.scale_input == -1 && r.quant.zp_input == -1 && r.quant.kind == QUANT_STATIC,
          "no inputs");

    quant_case_t given = {DEQ, .qtype = "per_channel", .axis = S(1),
                          .in = {T(s8, 2, 3, 4), T(f32, 3), T(s8, 1, 3, 1)}};
    CHECK(run(&given, &r) == sinter_success && r.quant.scale_input == 1 && r.quant.zp_input == 2 &&
              r.geom.axis == 1,
          "inputs");
    CHECK(r.geom.scale_dim[0] == -1 && r.geom.scale_dim[1] == 0 && r.geom.scale_dim[2] == -1,
          "1-D scales have the axis only");
    CHECK(r.geom.zp_dim[0] == 0 && r.geom.zp_dim[1] == 1 && r.geom.zp_dim[2] == 2,
          "full zero points have all dims");

    static const struct {
        const char *name;
        quant_kind_t kind;
        sinter_data_type_t codes, scales;
        bool zps;
    } kinds[] = {
        {"dynamic_mx", QUANT_DYNAMIC_MX, sinter_s8, sinter_e8m0, false},
        {"dynamic_mx_rceil", QUANT_DYNAMIC_MX_RCEIL, sinter_f4_e2m1, sinter_e8m0, false},
        {"dynamic_symmetric", QUANT_DYNAMIC_SYMMETRIC, sinter_f8_e5m2, sinter_bf16, false},
        {"dynamic_asymmetric", QUANT_DYNAMIC_ASYMMETRIC, sinter_s4, sinter_f32, true},
        {"dynamic_nv", QUANT_DYNAMIC_NV, sinter_f4_e2m1, sinter_f8_e4m3, false},
        {"dynamic_signed", QUANT_DYNAMIC_SIGNED, sinter_s4, sinter_f16, false},
        {"dynamic_iq4_nl", QUANT_DYNAMIC_IQ4_NL, sinter_s8, sinter_bf16, false},
    };
    for (size_t i = 0; i < LENGTH(kinds); i++) {
        quant_case_t c = {DYN, .kind = kinds[i].name, .qtype = "per_group", .in = {T(f32, 4, 64)},
                          .out = {T(s8, 4, 64), T(f32, 4, 4), T(s8, 4, 4)}};
        c.out[0].type = kinds[i].codes;
        c.out[1].type = kinds[i].scales;
        c.out[2].type = kinds[i].zps ? sinter_s8 : sinter_data_type_undef;
        CHECK(run(&c, &r) == sinter_success, "%s: %s", kinds[i].name, sinter_last_error_message());
        CHECK(r.quant.kind == kinds[i].kind && r.quant.has_zp == kinds[i].zps &&
                  r.quant.scale_input == -1 && r.quant.zp_input == -1,
              "%s", kinds[i].name);
    }
}

/* Scales with loose or permuted strides. */
static void test_strides(void)
{
    run_t r;
    quant_case_t c = {DEQ, .qtype = "per_group", .in = {T(s4, 4, 8, 6), T(f16, 2, 4, 1)}};
    int64_t strides[] = {3, 100, 7};
    CHECK(run(&c, &r) == sinter_success, "%s", sinter_last_error_message());
    for (int64_t i = 0; i < 4; i++) {
        for (int64_t j = 0; j < 8; j++) {
            int64_t idx[] = {i, j, (i + j) % 6};
            CHECK(scale_index(&r.geom, idx, strides) == i / 2 * 3 + j / 2 * 100, "element %d %d",
                  (int)i, (int)j);
        }
    }
}

int main(void)
{
    test_invalid();
    test_valid();
    test_fields();
    test_strides();
    return check_finish();
}
