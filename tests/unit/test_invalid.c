/* Invalid graphs: each is refused with its own status and a message that names the place. Beside
 * each stands what makes it invalid; the same graphs without that fault are valid (see `valid`
 * below and test_shapes.c). */
#include "check.h"
#include "spec.h"

#define GRAPH sinter_invalid_graph
#define OP sinter_invalid_graph_op
#define SHAPE sinter_invalid_shape
#define TYPE sinter_invalid_data_type
#define ARGS sinter_invalid_arguments

/* Weights with scales, [I, O of a group, window], and the ConvTranspose that reads them. */
#define WEIGHTS "#1 Dequantize qtype=per_channel axis=1 "
#define TRANSPOSED                                                                    \
    "#2 ConvTranspose strides=1 pads_begin=0 pads_end=0 dilations=1 data_format=NCX " \
    "weights_format=IOX "
/* q and k have the same dims, which `more` follows. */
#define LINEAR(attrs, q, v, state, more)                                                     \
    "LinearAttention " attrs " 1:f32:" q " 2:f32:" q " 3:f32:" v " 4:f32:" state more " -> " \
    "90:f32:* 91:f32:*"
#define ENDS " 3:f32:1x4x5 2:f32:* -> 4:f32:*"

static const struct {
    const char *spec;
    sinter_status_t status;
    const char *message; /* a part of it */
} cases[] = {
    /* arity */
    {"Abs -> 2:f32:2", OP, "op 100 (Abs): 0 inputs given, 1 expected"},
    {"Abs 1:f32:2", OP, "0 outputs given, 1 expected"},
    {"Add 1:f32:2 -> 2:f32:2", OP, "op 100 (Add): 1 inputs given, 2 expected"},
    {"MatMul 1:f32:2x2 2:f32:2x2 3:f32:2 4:f32:2 -> 5:f32:2x2", OP,
     "4 inputs given, 2 to 3 expected"},
    {"SoftMax 1:f32:2x2 -> 2:f32:2x2 3:f32:2x1 4:f32:2x1", OP, "3 outputs given, 1 to 2 expected"},
    {"LayerNorm use_affine=0 1:f32:2x2 -> 2:f32:2x2", OP,
     "1 outputs given, 3 expected with this keep_stats"},
    {"LayerNorm keep_stats=0 1:f32:2x2 -> 2:f32:2x2", OP,
     "1 inputs given, 3 expected with this use_affine"},
    {"RMSNorm 1:f32:2x2 -> 2:f32:2x2", OP, "1 inputs given, 2 expected with this use_affine"},

    /* data types */
    {"Exp 1:s8:2 -> 2:f32:2", TYPE,
     "op 100 (Exp): input 0, tensor 1: data type s8 is not allowed here"},
    {"Exp 1:f32:2 -> 2:f6_e3m2:2", TYPE, "output 0, tensor 2: data type f6_e3m2"},
    {"Add 1:f32:2 2:s32:2 -> 3:f32:2", TYPE, "integer and float do not mix"},
    {"Select 1:u8:2 2:f32:2 3:f32:2 -> 4:f32:2", TYPE, "input 0, tensor 1: data type u8"},
    {"GreaterEqual 1:f32:2 2:f32:2 -> 3:u8:2", TYPE, "output 0, tensor 3: data type u8"},
    {"GenIndex axis=0 1:f32:2 -> 2:s64:2", TYPE, "output 0, tensor 2: data type s64"},
    {"MatMul 1:s8:2x2 2:s8:2x2 -> 3:f32:2x2", TYPE, "input 0, tensor 1: data type s8"},
    {"Quantize scales=1 1:f32:2 -> 2:f32:2", TYPE, "output 0, tensor 2: data type f32"},
    {"StaticReshape shape=2 special_zero=0 1:f32:2 -> 2:f16:2", TYPE,
     "tensor 1 is f32 and tensor 2 is f16, but this op does not convert"},
    {"SoftMax axis=0 1:f32:2 -> 2:f32:2 3:f16:1", TYPE, "output 1, tensor 3: data type f16"},

    /* attributes */
    {"Abs axis=1 1:f32:2 -> 2:f32:2", OP, "attribute axis is unknown to this op"},
    {"Elu 1:f32:2 -> 2:f32:2", OP, "op 100 (Elu): attribute alpha is required"},
    {"Clamp min=0 1:f32:2 -> 2:f32:2", OP, "attribute max is required"},
    {"Clamp min=1 max=0 1:f32:2 -> 2:f32:2", OP, "attribute min (1) is greater than max (0)"},
    {"Clamp min=nan max=1 1:f32:2 -> 2:f32:2", OP, "attribute min is NaN"},
    {"GELU mode=gelu 1:f32:2 -> 2:f32:2", OP,
     "attribute mode is \"gelu\", allowed are gelu_erf|gelu_tanh"},
    {"SoftMax axis=0 mode=nan_as_zero 1:f32:2 -> 2:f32:2", OP, "allowed are none|inf_as_zero"},
    {"Add auto_broadcast=jax 1:f32:2 2:f32:2 -> 3:f32:2", OP, "allowed are none|numpy"},
    {"BiasAdd data_format=NHWC 1:f32:2x2 2:f32:2 -> 3:f32:2x2", OP, "allowed are NXC|NCX"},
    {"SoftMax axis=0,1 1:f32:2x2 -> 2:f32:2x2", OP,
     "attribute axis has 2 values, this op takes one"},
    {"StaticTranspose order=0,0 1:f32:2x2 -> 2:f32:2x2", OP,
     "attribute order is no permutation: value 1 is 0"},
    {"StaticTranspose order=0,2 1:f32:2x2 -> 2:f32:2x2", OP,
     "attribute order is no permutation: value 1 is 2"},
    {"StaticTranspose order=0 1:f32:2x2 -> 2:f32:2x2", OP,
     "attribute order has 1 values, tensor 1 has 2 dimensions"},
    {"StaticReshape shape=-1,-1 special_zero=0 1:f32:2x2 -> 2:f32:*", OP,
     "attribute shape has 2 times -1, one is allowed"},
    {"StaticReshape shape=-2,2 special_zero=0 1:f32:2x2 -> 2:f32:*", OP,
     "attribute shape has the value -2, the least allowed is -1"},
    {"ReduceSum 1:f32:2x2 -> 2:f32:*", OP, "axes are given nowhere"},
    {"ReduceSum axes=0 1:f32:2x2 2:s32:1 -> 3:f32:*", OP, "axes are given twice"},
    {"Interpolate mode=nearest 1:f32:1x2x3 -> 2:f32:*", OP,
     "0 of attribute sizes, attribute scales and input 1 are given"},
    {"MaxPool strides=0 pads_begin=0 pads_end=0 kernel=1 1:f32:1x4x2 -> 2:f32:*", OP,
     "attribute strides has the value 0, the least allowed is 1"},
    {"ConvTransposeBackwardWeights strides=1 pads_begin=0 pads_end=0 dilations=1 "
     "weights_format=OIX 1:f32:1x4x2 2:f32:1x4x2 -> 3:f32:*",
     OP, "allowed are XOI|IOX"},
    {"ConvolutionBackwardWeights strides=1 pads_begin=0 pads_end=0 dilations=1 weights_format=XOI "
     "1:f32:1x4x2 2:f32:1x4x2 -> 3:f32:*",
     OP, "allowed are XIO|OIX"},

    /* quantisation attributes */
    {"Quantize 1:f32:2 -> 2:s8:2", OP, "op 100 (Quantize): attribute scales is required"},
    {"Quantize scales=1,2 1:f32:2 -> 2:s8:2", OP,
     "scales has 2 values, qtype per_tensor wants one"},
    {"Quantize scales=1 zps=1,2 1:f32:2 -> 2:s8:2", OP, "zps has 2 values for 1 scales"},
    {"Quantize scales=1 zps=300 1:f32:2 -> 2:u8:2", OP,
     "zero points outside their type, u8 of tensor 2"},
    {"Quantize scales=1 zps=1 1:f32:2 -> 2:f8_e5m2:2", OP, "zero points need integer data"},
    {"Quantize qtype=per_channel axis=1 scales=1,2 1:f32:4x3 -> 2:s8:4x3", OP,
     "scales has 2 values for the 3 channels of axis 1"},
    /* as many as a ConvTranspose in groups asks for, if one reads them */
    {"#1 Dequantize qtype=per_channel axis=1 scales=1,2,3,4 1:s8:4x2x3 -> 2:f32:4x2x3", OP,
     "op 1 (Dequantize): scales has 4 values for the 2 channels of axis 1 of tensor 1"},
    {WEIGHTS "scales=1,2,3,4,5,6,7,8 1:s8:4x2x3 -> 2:f32:*;" TRANSPOSED "groups=2" ENDS, OP,
     "op 1 (Dequantize): scales has 8 values for the 2 channels of axis 1 of tensor 1, which op 2 "
     "(ConvTranspose) reads in 2 groups with the output channels of each in dimension 1"},
    {WEIGHTS "scales=1,2 1:s8:4x1x3 -> 2:f32:*;" TRANSPOSED "groups=1" ENDS, OP,
     "scales has 2 values for the 1 channels of axis 1 of tensor 1, which op 2 (ConvTranspose) "
     "reads in 1 groups"},
    {"#1 Dequantize qtype=per_channel axis=2 scales=1,2,3,4,5,6 1:s8:4x2x3 -> 2:f32:*;" TRANSPOSED
     "groups=2" ENDS,
     OP,
     "6 values for the 3 channels of axis 2 of tensor 1, which op 2 (ConvTranspose) reads in 2"},
    {WEIGHTS "scales=1,2,3,4 1:s8:4x2x3 -> 2:f32:*;" TRANSPOSED "groups=2" ENDS
             "; #3 ConvTranspose strides=1 pads_begin=0 pads_end=0 dilations=1 data_format=NCX "
             "weights_format=IOX groups=4 3:f32:1x4x5 2:f32:* -> 5:f32:*",
     OP,
     "op 1 (Dequantize): scales has 4 values for the 2 channels of axis 1 of tensor 1, which op 2 "
     "(ConvTranspose, groups 2) and op 3 (ConvTranspose, groups 4) read in different ways"},
    {"Quantize qtype=per_channel axis=2 scales=1,2 1:f32:4x2 -> 2:s8:4x2", OP,
     "axis 2 is outside the 2 dimensions of tensor 1"},
    {"Quantize qtype=per_group scales=1 1:f32:4x2 -> 2:s8:4x2", OP,
     "attribute qtype is \"per_group\", allowed are per_tensor|per_channel"},
    {"DynamicDequantize qtype=per_row 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8", OP,
     "attribute qtype is \"per_row\""},
    {"DynamicDequantize qtype=per_channel axis=0,1 1:s4:4x8 2:f32:4 -> 3:f32:4x8", OP,
     "2 axes need qtype per_group"},
    {"DynamicDequantize qtype=per_group axis=1,1 groups=2,2 1:s4:4x8 2:f32:1x2 -> 3:f32:4x8", OP,
     "axis 1 is given twice"},
    {"DynamicDequantize qtype=per_group axis=1,-1 groups=2,2 1:s4:4x8 2:f32:1x2 -> 3:f32:4x8", OP,
     "axis 1 is given twice"},
    {"DynamicDequantize qtype=per_group axis=2 groups=2 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8", OP,
     "axis 2 is outside the 2 dimensions of tensor 1"},
    {"DynamicDequantize qtype=per_group axis=1 groups=2,2 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8", OP,
     "groups has 2 values for 1 axes"},
    {"DynamicDequantize qtype=per_group axis=1 groups=0 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8", OP,
     "groups[0] is 0, which is less than 1"},
    {"DynamicDequantize qtype=per_group axis=1 groups=16 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8", OP,
     "groups[0] is 16, more than the 8 elements of axis 1"},
    {"DynamicDequantize qtype=per_group axis=1 groups=3 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8", OP,
     "groups[0] is 3, which does not divide the 8 elements"},
    {"DynamicDequantize qtype=per_group group_shape=1,0 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8", OP,
     "group_shape[1] is 0, which is less than 1"},
    {"DynamicDequantize qtype=per_group group_shape=1,3 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8", SHAPE,
     "have 2 values along dimension 1, but group_shape makes it 3 for 8 elements"},
    {"DynamicDequantize qtype=per_group group_shape=4 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8", OP,
     "group_shape has 1 values for the 2 dimensions"},
    {"DynamicQuantize quantization_kind=mx 1:f32:4x32 -> 2:f8_e4m3:4x32 3:e8m0:4x1", OP,
     "attribute quantization_kind is \"mx\""},
    {"DynamicQuantize quantization_kind=dynamic_mx 1:f32:4x32 -> 2:f8_e4m3:4x32", OP,
     "needs an output for its scales"},
    {"DynamicQuantize quantization_kind=dynamic_asymmetric 1:f32:4x32 -> 2:u8:4x32 3:f32:-", OP,
     "needs an output for its zero points"},
    {"DynamicQuantize 1:f32:4x32 -> 2:s8:4x32", OP, "the scales of tensor 1 are missing"},
    {"DynamicQuantize 1:f32:4x32 4:f32:1 -> 2:s8:4x32 3:f32:1", OP,
     "2 outputs given, 1 expected with given scales"},

    /* quantisation geometry */
    {"DynamicDequantize qtype=per_tensor 1:s8:4x8 2:f32:2 -> 3:f32:4x8", SHAPE,
     "scales of qtype per_tensor, tensor 2, must be one value"},
    {"DynamicDequantize qtype=per_channel 1:s8:4x8 2:f32:4 -> 3:f32:4x8", SHAPE,
     "are 4 for the 8 channels of axis 1"},
    {"DynamicDequantize qtype=per_group group_shape=1,4 1:s4:4x8 2:f32:4x4 -> 3:f32:4x8", SHAPE,
     "have 4 values along dimension 1, but group_shape"},
    {"DynamicDequantize qtype=per_group axis=1 groups=2 1:s4:4x8 2:f32:4x4 -> 3:f32:4x8", SHAPE,
     "have 4 values along dimension 1, but groups says 2"},
    {"DynamicDequantize qtype=per_group axis=1 groups=2 1:s4:4x8 2:f32:2x2 -> 3:f32:4x8", SHAPE,
     "but axis does not list it"},
    {"DynamicDequantize qtype=per_group 1:s4:4x8 2:f32:4x3 -> 3:f32:4x8", SHAPE,
     "have 3 values along dimension 1, which do not divide its 8 elements"},
    {"DynamicDequantize qtype=per_group 1:s4:4x8 2:f32:2 -> 3:f32:4x8", SHAPE,
     "have 1 dimensions, but tensor 1 has 2"},
    {"DynamicDequantize qtype=per_group group_shape=1,4 1:s4:4x8 2:f32:4x2 4:s4:4x5 -> 3:f32:4x8",
     SHAPE, "zero points, tensor 4"},
    {"DynamicDequantize qtype=per_group group_shape=1,4 1:f8_e4m3:4x8 2:f32:4x2 4:s8:4x2 -> "
     "3:f32:4x8",
     TYPE, "need integer data"},
    {"DynamicDequantize qtype=per_group group_shape=1,4 1:s4:4x8 2:s8:4x2 -> 3:f32:4x8", TYPE,
     "input 1, tensor 2: data type s8"},
    {"DynamicDequantize qtype=per_group group_shape=1,4 1:s4:4x8 2:f32:4x2 4:f64:4x2 -> 3:f32:4x8",
     TYPE, "input 2, tensor 4: data type f64"},
    {"Dequantize scales=1 zps=1 float_zps=0.5 1:s8:2 -> 2:f32:2", OP,
     "both zps and float_zps are given"},
    {"Dequantize scales=1 float_zps=0.5,1 1:s8:2 -> 2:f32:2", OP,
     "float_zps has 2 values for 1 scales"},
    {"Dequantize scales=1 float_zps=0.5 1:f8_e4m3:2 -> 2:f32:2", OP,
     "float_zps need integer data, but tensor 1 is f8_e4m3"},
    {"Dequantize scales=1 zps=1 zps_kind=offsets 1:s8:2 -> 2:f32:2", OP,
     "zps_kind offsets needs the attribute float_zps"},
    {"Quantize scales=1 float_zps=1 1:f32:2 -> 2:s8:2", OP, "float_zps"},
    {"DynamicQuantize quantization_kind=dynamic_symmetric zps_kind=offsets 1:f32:4x8 -> 2:s8:4x8 "
     "3:f32:1",
     OP, "zps_kind offsets needs quantization_kind dynamic_asymmetric"},
    {"DynamicQuantize quantization_kind=dynamic_mx code_bits=5 1:f32:4x32 -> 2:s8:4x32 3:e8m0:4x1",
     OP,
     "code_bits needs quantization_kind dynamic_symmetric, dynamic_asymmetric or dynamic_signed"},
    {"DynamicQuantize quantization_kind=dynamic_signed code_bits=9 1:f32:4x8 -> 2:s8:4x8 3:f32:1",
     OP, "code_bits is 9, more than 8"},
    {"DynamicQuantize quantization_kind=dynamic_signed code_bits=1 1:f32:4x8 -> 2:s8:4x8 3:f32:1",
     OP, "code_bits"},
    {"DynamicQuantize quantization_kind=dynamic_signed code_bits=5 1:f32:4x8 -> 2:s4:4x8 3:f32:1",
     TYPE, "code_bits 5 does not suit s4, the type of tensor 2"},
    {"DynamicQuantize quantization_kind=dynamic_symmetric code_bits=5 1:f32:4x8 -> 2:f8_e4m3:4x8 "
     "3:f32:1",
     TYPE, "code_bits 5 does not suit f8_e4m3, the type of tensor 2"},
    {"DynamicQuantize zps_kind=offsets 1:f32:4x8 3:f32:1 4:s8:1 -> 2:s8:4x8", OP,
     "zps_kind offsets needs quantization_kind dynamic_asymmetric"},
    {"DynamicQuantize quantization_kind=dynamic_asymmetric zps_kind=offsets 1:f32:4x8 -> 2:s8:4x8 "
     "3:f32:1 4:s8:1",
     TYPE, "offsets, tensor 4, are s8, not f32, f16 or bf16"},
    {"DynamicDequantize zps_kind=shifts 1:s4:4x8 2:f32:1 4:f32:1 -> 3:f32:4x8", OP,
     "allowed are zero_points|offsets"},
    {"DynamicDequantize zps_kind=offsets 1:s4:4x8 2:f32:1 -> 3:f32:4x8", OP,
     "zps_kind offsets needs offsets as input 2"},
    {"DynamicDequantize zps_kind=offsets 1:s4:4x8 2:f32:1 4:s8:1 -> 3:f32:4x8", TYPE,
     "offsets, tensor 4, are s8, not f32, f16 or bf16"},
    {"DynamicDequantize zps_kind=offsets 1:f4_e2m1:4x8 2:f32:1 4:f16:1 -> 3:f32:4x8", TYPE,
     "zero points, tensor 4, need integer data"},
    {"DynamicDequantize qtype=per_group zps_kind=offsets 1:s4:4x8 2:f32:4x2 4:f16:4x4 -> "
     "3:f32:4x8",
     SHAPE, "offsets, tensor 4, must have the groups of the scales in dimension 1"},
    {"DynamicQuantize quantization_kind=dynamic_mx 1:f32:4x48 -> 2:f8_e4m3:4x48 3:e8m0:*", SHAPE,
     "is no multiple of the default group 32"},
    {"DynamicQuantize quantization_kind=dynamic_mx 1:f32:4x64 -> 2:f8_e4m3:4x64 3:f32:*", TYPE,
     "must be e8m0, not f32"},
    {"DynamicQuantize quantization_kind=dynamic_mx 1:f32:4x64 -> 2:u8:4x64 3:e8m0:*", TYPE,
     "does not make u8"},

    /* shapes */
    {"Abs 1:f32:2x3 -> 2:f32:2x4", SHAPE,
     "op 100 (Abs): output tensor 2: dimension 1 is 4, its inputs lead to 3"},
    {"Abs 1:f32:2x3 -> 2:f32:6", SHAPE, "output tensor 2 has 1 dimensions, its inputs lead to 2"},
    {"Add 1:f32:2x3 2:f32:2x4 -> 3:f32:*", SHAPE, "tensors 1 and 2 do not broadcast"},
    {"Add auto_broadcast=none 1:f32:2x3 2:f32:1x3 -> 3:f32:*", SHAPE,
     "must have the same dims with auto_broadcast none"},
    {"MatMul 1:f32:2x3 2:f32:4x5 -> 3:f32:*", SHAPE,
     "tensor 1 reduces over 3 elements, tensor 2 over 4"},
    {"MatMul 1:f32:2x2x3 2:f32:3x3x5 -> 3:f32:*", SHAPE,
     "batch dims of tensors 1 and 2 do not broadcast"},
    {"MatMul 1:f32:2x3 2:f32:3x5 4:f32:4 -> 3:f32:*", SHAPE,
     "bias, tensor 4, does not broadcast to the product"},
    {"MatMul 1:f32:- 2:f32:3x5 -> 3:f32:*", SHAPE, "tensor 1 is a scalar"},
    {"SoftMax 1:f32:4 -> 2:f32:4", SHAPE, "axis 1 is outside the 1 dimensions of tensor 1"},
    {"SoftMax axis=-1 1:f32:4x5 2:f32:4x5 -> 3:f32:4x5", SHAPE,
     "sinks (tensor 2) do not broadcast to one value for each row"},
    {"SoftMax axis=0 1:f32:5 2:f32:1x1 -> 3:f32:5", SHAPE,
     "sinks (tensor 2) do not broadcast to one value for each row"},
    {"SoftMax axis=-1 1:f32:4x5 2:s32:1 -> 3:f32:4x5", TYPE, "input 1, tensor 2: data type s32"},
    {"SoftMax axis=-1 1:f32:4x5 -> 2:f32:4x5 3:f32:4x5", SHAPE,
     "output tensor 3: dimension 1 is 5, its inputs lead to 1"},
    {"GenIndex axis=2 1:f32:4x5 -> 2:s32:4x5", SHAPE, "axis 2 is outside"},
    {"BiasAdd 1:f32:4x5 2:f32:4 -> 3:f32:4x5", SHAPE,
     "tensor 2 must be one value for each channel of tensor 1"},
    {"PReLU 1:f32:4x5 2:f32:4 -> 3:f32:4x5", SHAPE,
     "tensor 2 must be one value for each channel of tensor 1"},
    {"PReLU 1:f32:4x5 2:f32:3x5 -> 3:f32:4x5", SHAPE,
     "slope, tensor 2, does not broadcast to tensor 1"},
    {"ReLUBackward 1:f32:4x5 2:f32:5x4 -> 3:f32:*", SHAPE,
     "tensors 1 and 2 must have the same dims"},
    {"StaticReshape shape=5,5 special_zero=0 1:f32:2x12 -> 2:f32:*", SHAPE,
     "has 24 elements, attribute shape asks for 25"},
    {"StaticReshape shape=5,-1 special_zero=0 1:f32:2x12 -> 2:f32:*", SHAPE,
     "-1 of attribute shape cannot be told from the 24 elements"},
    {"StaticReshape shape=2,12,0 special_zero=1 1:f32:2x12 -> 2:f32:*", SHAPE,
     "special_zero asks for dimension 2 of tensor 1, which has 2"},
    {"StaticReshape shape=4294967296,4294967296 special_zero=0 1:f32:?x2 -> 2:f32:*", SHAPE,
     "overflows when reshaped"},
    {"Concat axis=1 1:f32:2x3 2:f32:3x3 -> 3:f32:*", SHAPE,
     "tensors 1 and 2 differ in dimension 0"},
    {"MaxPool strides=1 pads_begin=0 pads_end=0 kernel=5 1:f32:1x4x2 -> 2:f32:*", SHAPE,
     "window of 5 elements does not fit into the 4"},
    {"MaxPool strides=1 pads_begin=0 pads_end=-9 kernel=1 1:f32:1x4x2 -> 2:f32:*", SHAPE,
     "window of 1 elements does not fit into the -5"},
    {"MaxPool strides=1 pads_begin=-9223372036854775808 pads_end=0 kernel=1 1:f32:1x4x2 -> "
     "2:f32:*",
     SHAPE, "padding of -9223372036854775808 and 0 in spatial dimension 0"},
    {"MaxPool strides=1 pads_begin=0 pads_end=0 kernel=4611686018427387904 dilations=4 "
     "1:f32:1x4x2 -> 2:f32:*",
     SHAPE, "window of spatial dimension 0 overflows"},
    {"AvgPool strides=4611686018427387904 pads_begin=0 pads_end=0 kernel=4611686018427387904 "
     "exclude_pad=1 auto_pad=SAME_UPPER 1:f32:1x4x2 -> 2:f32:*",
     SHAPE, "window of spatial dimension 0 overflows"},
    {"Interpolate mode=nearest sizes=4611686018427387904 1:f32:1x4x3 -> 2:f32:*", SHAPE,
     "sizes[0] is too large for tensor 2"},
    {"MaxPool strides=1,1 pads_begin=0 pads_end=0 kernel=1 1:f32:1x4x2 -> 2:f32:*", SHAPE,
     "attribute strides has 2 values for 1 spatial dimensions"},
    {"Convolution strides=1 pads_begin=0 pads_end=0 dilations=1 1:f32:1x8x3 2:f32:3x4x16 -> "
     "3:f32:*",
     SHAPE, "tensor 1 has 3 channels, weights"},
    {"Convolution strides=1 pads_begin=0 pads_end=0 dilations=1 groups=2 1:f32:1x8x4 2:f32:3x2x15 "
     "-> 3:f32:*",
     SHAPE, "2 groups do not divide 15"},
    {"CumSum axis=2 1:f32:2x2 -> 2:f32:*", SHAPE, "axis 2 is outside the 2 dimensions"},
    {"CumSum 1:f64:2x2 -> 2:f64:*", TYPE, "data type f64 is not allowed"},
    {"ReduceSum axes=0,-2 1:f32:2x2 -> 2:f32:*", SHAPE, "axis 0 is reduced twice"},
    {"GroupNorm groups=3 1:f32:2x8 2:f32:8 3:f32:8 -> 4:f32:* 5:f32:* 6:f32:*", SHAPE,
     "3 groups do not divide the 8 channels"},
    {"MatMul 1:f32:?x3 2:f32:3x? -> 3:f32:2x2; Add 3:f32:2x2 4:f32:3x2 -> 5:f32:*", SHAPE,
     "op 101 (Add): tensors 3 and 4 do not broadcast"},
    {"Add 3:f32:* 4:f32:3x2 -> 5:f32:*; Abs 1:f32:2x2 -> 3:f32:*", SHAPE,
     "op 100 (Add): tensors 3 and 4 do not broadcast"},

    {"LayerNorm 1:f32:2x8 2:f32:4 3:f32:8 -> 4:f32:* 5:f32:* 6:f32:*", SHAPE,
     "tensor 2 does not broadcast to the dims of tensor 1 from begin_norm_axis on"},
    {"LayerNorm 1:f32:2x8 2:f32:8 3:f32:2x8 -> 4:f32:* 5:f32:* 6:f32:*", SHAPE,
     "tensor 3 does not broadcast"},
    {"LayerNorm begin_norm_axis=2 1:f32:2x8 2:f32:8 3:f32:8 -> 4:f32:* 5:f32:* 6:f32:*", SHAPE,
     "axis 2 is outside the 2 dimensions of tensor 1"},
    {"LayerNorm use_affine=0 1:f32:2x8 -> 4:f32:* 5:f32:2x8 6:f32:2", SHAPE,
     "output tensor 5 has 2 dimensions, its inputs lead to 1"},
    {"RMSNorm 1:f32:2x8 2:f32:2x1 -> 4:f32:*", SHAPE, "tensor 2 does not broadcast"},
    {"GroupNorm groups=2 1:f32:2x8 2:f32:8 3:f32:2 -> 4:f32:* 5:f32:* 6:f32:*", SHAPE,
     "tensor 3 must be one value for each channel of tensor 1"},
    {"GroupNorm groups=1 use_affine=0 1:f32:8 -> 4:f32:* 5:f32:* 6:f32:*", SHAPE,
     "tensor 1 has no batch and channels"},
    {"GroupNorm groups=0 use_affine=0 1:f32:2x8 -> 4:f32:* 5:f32:* 6:f32:*", OP,
     "attribute groups has the value 0, the least allowed is 1"},
    {"BatchNormInference epsilon=1 1:f32:2x8 2:f32:8 3:f32:8 4:f32:8 5:f32:2 -> 6:f32:*", SHAPE,
     "tensor 5 must be one value for each channel of tensor 1"},
    {"Concat axis=0 1:s4:2x4 2:u4:2x4 -> 3:s4:*", TYPE,
     "tensor 2 is u4 and tensor 3 is s4, but this op does not convert"},
    {"Concat axis=2 1:f32:2x4 -> 3:f32:*", SHAPE, "axis 2 is outside"},

    /* Slice */
    {"Slice starts=0,0 ends=1 1:f32:2x3 -> 2:f32:*", OP,
     "attributes starts, ends, axes and steps have different lengths"},
    {"Slice starts=0 ends=1 axes=0,1 1:f32:2x3 -> 2:f32:*", OP, "have different lengths"},
    {"Slice starts=0 1:f32:2x3 -> 2:f32:*", OP, "attribute ends is required"},
    {"Slice starts=2 ends=0 steps=0 1:f32:3 -> 2:f32:*", OP, "attribute steps: value 0 is 0"},
    {"Slice starts=0 ends=1 axes=2 1:f32:2x3 -> 2:f32:*", SHAPE, "axis 2 is outside"},
    {"Slice starts=0,0 ends=1,1 axes=1,-1 1:f32:2x3 -> 2:f32:*", SHAPE, "axis 1 is given twice"},
    {"Slice starts=0,0,0 ends=1,1,1 1:f32:2x3 -> 2:f32:*", SHAPE, "axis 2 is outside"},
    {"Slice starts=0 ends=1 1:f32:2x3 -> 2:f16:*", TYPE, "but this op does not convert"},
    {"Slice starts=0 ends=1 1:f32:2x3 -> 2:f32:2x3", SHAPE,
     "dimension 0 is 2, its inputs lead to 1"},

    /* moves by index */
    {"Gather 1:f32:2x3 2:s8:2 -> 3:f32:*", TYPE, "input 1, tensor 2: data type s8"},
    {"Gather 1:f32:2x3 2:s32:2 -> 3:f16:*", TYPE, "but this op does not convert"},
    {"Gather axis=2 1:f32:2x3 2:s32:2 -> 3:f32:*", SHAPE, "axis 2 is outside"},
    {"Gather 1:f32:- 2:s32:2 -> 3:f32:*", SHAPE, "axis 0 is outside"},
    {"Gather axis=1 batch_dims=2 1:f32:2x3 2:s32:2x3 -> 3:f32:*", SHAPE,
     "batch_dims is 2, but the axis is 1"},
    {"Gather axis=1 batch_dims=1 1:f32:2x3 2:s32:- -> 3:f32:*", SHAPE, "tensor 2 has 0 dimensions"},
    {"Gather axis=1 batch_dims=1 1:f32:2x3 2:s32:3x3 -> 3:f32:*", SHAPE,
     "dimension 0 of tensor 2 is 3, expected 2"},
    {"Gather batch_dims=-1 1:f32:2x3 2:s32:2 -> 3:f32:*", OP, "batch_dims"},
    {"Gather 1:f32:2x1x1x1x1x1x1x1x1x1x1x1 2:s32:1x2 -> 3:f32:*", SHAPE,
     "the output would have 13 dimensions, 12 are possible"},
    {"ScatterRows 1:f32:9x4 2:s32:2 -> 3:f32:*", OP, "2 inputs given, 3 expected"},
    {"ScatterRows 1:f32:9x4 2:s32:2 3:f16:2x4 -> 4:f32:*", TYPE, "but this op does not convert"},
    {"ScatterRows 1:f32:9x4 2:f32:2 3:f32:2x4 -> 4:f32:*", TYPE, "input 1, tensor 2"},
    {"ScatterRows 1:f32:9x4 2:s32:2x1 3:f32:2x4 -> 4:f32:*", SHAPE,
     "slots, tensor 2, must have one dimension"},
    {"ScatterRows 1:f32:9x4 2:s32:2 3:f32:2 -> 4:f32:*", SHAPE,
     "and updates, tensor 3, as many as the data"},
    {"ScatterRows 1:f32:9x4 2:s32:2 3:f32:3x4 -> 4:f32:*", SHAPE,
     "dimension 0 of updates, tensor 3, is 3, expected 2"},
    {"ScatterRows axis=1 batch_dims=1 1:f32:5x9 2:s32:2 3:f32:5x2 -> 4:f32:*", SHAPE,
     "dimension 0 of tensor 2 is 2, expected 5"},
    {"ScatterRows axis=1 batch_dims=1 1:f32:5x9 2:s32:5 3:f32:5x2 -> 4:f32:*", SHAPE,
     "must have one dimension behind the 1 of batch_dims"},
    {"ScatterRows axis=-3 1:f32:9x4 2:s32:2 3:f32:2x4 -> 4:f32:*", SHAPE, "axis -3 is outside"},
    {LINEAR("mode=gated", "2x5x2x8", "2x5x4x6", "2x4x6x8", ""), OP,
     "mode gated takes 5 inputs, and perhaps one or two tensors of indices; 4 inputs are given"},
    {LINEAR("mode=linear", "2x5x2x8", "2x5x4x6", "2x4x6x8", " 5:f32:2x5x4x1"), TYPE,
     "tensor 5 is f32, indices of s32 or s64 are expected in mode linear"},
    {LINEAR("mode=delta", "2x5x2x8", "2x5x4x6", "2x4x6x8", " 5:s32:2"), TYPE,
     "tensor 5 is s32, a float is expected in mode delta"},
    {LINEAR("mode=gated_bonus", "2x5x2x8", "2x5x4x6", "2x4x6x8", " 5:f32:2x5x4x8"), OP,
     "mode gated_bonus takes 6 inputs"},
    {LINEAR("mode=gated_low_rank", "2x5x2x8", "2x5x4x6", "2x4x6x8",
            " 5:f32:2x5x4x8 6:f32:2x5x4x8 7:s32:2"),
     TYPE, "tensor 7 is s32, a float is expected in mode gated_low_rank"},
    {LINEAR("mode=gated_bonus", "2x5x2x8", "2x5x4x6", "2x4x6x8", " 5:f32:2x5x4x8 6:f32:2x5x4x8"),
     SHAPE, "the bonus, tensor 6, has 4 dimensions, 2 are expected"},
    {LINEAR("mode=gated_bonus", "2x5x2x8", "2x5x4x6", "2x4x6x8", " 5:f32:2x5x4x8 6:f32:2x8"), SHAPE,
     "dimension 0 of tensor 6 is 2, expected 4"},
    {LINEAR("mode=gated_low_rank", "2x5x2x8", "2x5x4x6", "2x4x6x8",
            " 5:f32:2x5x4x8 6:f32:2x5x4x8 7:f32:2x5x3x8"),
     SHAPE, "3 heads of tensor 7 do not divide the 4 heads of tensor 3"},
    {LINEAR("mode=gated_low_rank", "2x5x2x8", "2x5x4x6", "2x4x6x8",
            " 5:f32:2x5x4x8 6:f32:2x5x4x9 7:f32:2x5x4x8"),
     SHAPE, "dimension 3 of tensor 6 is 9, expected 8"},
    {LINEAR("mode=other", "2x5x2x8", "2x5x4x6", "2x4x6x8", ""), OP, "other"},
    {LINEAR("mode=linear", "2x5x3x8", "2x5x4x6", "2x4x6x8", ""), SHAPE,
     "3 heads of tensor 1 do not divide the 4 heads of tensor 3"},
    {LINEAR("mode=linear", "2x5x2x8", "2x5x4x6", "3x4x6x8", ""), SHAPE,
     "dimension 0 of tensor 4 is 3, expected 2"},
    {LINEAR("mode=linear", "2x5x2x8", "2x5x4x6", "2x4x8x6", ""), SHAPE,
     "dimension 2 of tensor 4 is 8, expected 6"},
    {LINEAR("mode=linear", "2x5x2x8", "2x5x4", "2x4x6x8", ""), SHAPE,
     "v, tensor 3, has 3 dimensions, 4 are expected"},
    {LINEAR("mode=gated", "2x5x2x8", "2x5x4x6", "2x4x6x8", " 5:f32:2x5x4x6"), SHAPE,
     "dimension 3 of tensor 5 is 6, expected 1 or the 8 elements of a key"},
    {LINEAR("mode=linear", "2x5x2x8", "2x5x4x6", "9x4x6x8", " 5:s32:3"), SHAPE,
     "dimension 0 of tensor 5 is 3, expected 2"},
    {"TopK k=5 1:f32:2x4 -> 2:f32:* 3:s32:*", SHAPE, "k is 5, dimension 1 of tensor 1 is 4"},
    {"TopK k=-1 1:f32:2x4 -> 2:f32:* 3:s32:*", OP, "the least allowed is 0"},
    {"TopK k=1 1:f32:2x4 -> 2:f32:*", OP, "1 outputs given, 2 expected"},
    {"TopK k=1 1:f32:2x4 -> 2:f32:* 3:s64:*", TYPE, "output 1, tensor 3: data type s64"},
    {"TopK k=1 1:f32:- -> 2:f32:* 3:s32:*", SHAPE, "axis -1 is outside"},

    /* rotary embedding */
    {"RotaryEmbedding 1:f32:2x3x5x8 2:f32:4 3:f32:2x5x4 -> 4:f32:*", SHAPE,
     "tensor 2 has 1 dimensions, 3 are expected"},
    {"RotaryEmbedding 1:f32:2x3x5x8 2:f32:2x5x4 3:f32:2x4x4 -> 4:f32:*", SHAPE,
     "dimension 1 of tensor 3 is 4, expected 5"},
    {"RotaryEmbedding 1:f32:2x3x5x8 2:f32:9x4 3:f32:9x2 5:s32:2x5 -> 4:f32:*", SHAPE,
     "dimension 1 of tensor 3 is 2, expected 4"},
    {"RotaryEmbedding 1:f32:2x3x5x8 2:f32:9x4 3:f32:9x4 5:s32:10 -> 4:f32:*", SHAPE,
     "positions, tensor 5, must be [batch, sequence]"},
    {"RotaryEmbedding 1:f32:2x5x24 2:f32:2x5x4 3:f32:2x5x4 -> 4:f32:*", SHAPE,
     "tensor 1 has 3 dimensions; 4 are expected, or 3 and num_heads"},
    {"RotaryEmbedding num_heads=5 1:f32:2x5x24 2:f32:2x5x4 3:f32:2x5x4 -> 4:f32:*", SHAPE,
     "5 heads do not divide dimension 2 of tensor 1"},
    {"RotaryEmbedding 1:f32:2x3x5x7 2:f32:2x5x3 3:f32:2x5x3 -> 4:f32:*", SHAPE,
     "7 elements of a head of 7 cannot be rotated in pairs"},
    {"RotaryEmbedding rotary_embedding_dim=10 1:f32:2x3x5x8 2:f32:2x5x5 3:f32:2x5x5 -> 4:f32:*",
     SHAPE, "10 elements of a head of 8 cannot be rotated in pairs"},
    {"RotaryEmbedding 1:f32:2x3x5x8 2:s32:2x5 3:f32:4 -> 4:f32:*", TYPE,
     "input 1, tensor 2: data type s32 is not allowed here"},
    {"RotaryEmbedding 1:f32:2x3x5x8 2:f32:4 3:s32:2x5 5:s32:2x5 -> 4:f32:*", OP,
     "the inputs are x, cosines, sines and perhaps positions, or x, inverse frequencies and "
     "positions; 4 inputs are given"},
    {"RotaryEmbedding 1:s8:2x3x5x8 2:f32:4 3:s32:2x5 -> 4:f32:*", TYPE,
     "input 0, tensor 1: data type s8"},

    /* Hadamard transform */
    {"HadamardTransform 1:f32:2x12 -> 2:f32:*", SHAPE,
     "the last dimension of tensor 1 is 12, which is not a power of two"},
    {"HadamardTransform block_size=8 1:f32:2x12 -> 2:f32:*", SHAPE,
     "the last dimension of tensor 1 is 12, which is not whole blocks"},
    {"HadamardTransform block_size=12 1:f32:2x12 -> 2:f32:*", OP,
     "block_size 12 is not a power of two"},
    {"HadamardTransform block_size=-8 1:f32:2x8 -> 2:f32:*", OP, "block_size"},
    {"HadamardTransform 1:f32:- -> 2:f32:*", SHAPE, "tensor 1 is a scalar"},
    {"HadamardTransform 1:s8:2x8 -> 2:f32:*", TYPE, "input 0, tensor 1: data type s8"},

    /* dims and strides of one tensor */
    {"Abs 1:f32:-3x2 -> 2:f32:*", SHAPE, "op 100 (Abs): tensor 1: dimension 0 is negative (-3)"},
    {"Abs 1:f32:4294967296x4294967296 -> 2:f32:*", SHAPE,
     "tensor 1: the number of elements overflows"},
    {"Abs 1:f64:4611686018427387904 -> 2:f64:*", SHAPE, "overflows in bytes"},
    {"Abs 1:f32:2x2:-2x1 -> 2:f32:*", SHAPE, "tensor 1: stride 0 is negative"},
    {"Abs 1:f32:2x2:9223372036854775807x9223372036854775807 -> 2:f32:*", SHAPE,
     "the offset of the last element overflows"},
    {"Abs 1:f32:2x3 -> 2:f32:2x3:1x1", SHAPE,
     "tensor 2: strides of an output let elements overlap"},
    {"Abs 1:f32:2x3 -> 2:f32:2x3:0x1", SHAPE, "strides of an output let elements overlap"},
    {"TypeCast 1:s4:2x4:8x2 -> 2:f32:2x4", SHAPE,
     "tensor 1: packed type s4 needs a dimension of stride 1"},

    /* the graph */
    {"Abs 1:f32:2 -> 2:f32:2; Exp 3:f32:2 -> 2:f32:2", GRAPH,
     "op 101 (Exp): tensor 2 is already produced by op 100 (Abs)"},
    {"SoftMax axis=0 1:f32:1 -> 2:f32:1 2:f32:1", GRAPH, "tensor 2 is given as two outputs"},
    {"Abs 1:f32:2 -> 1:f32:2", GRAPH,
     "op 100 (Abs): its output tensor 1 leads back to its inputs: a cycle"},
    {"Abs 1:f32:2 -> 2:f32:2; Exp 2:f32:2 -> 3:f32:2; Add 3:f32:2 9:f32:2 -> 1:f32:2; Tanh 3:f32:2 "
     "-> 4:f32:2",
     GRAPH, "a cycle"},
    {"#7 Abs 1:f32:2 -> 2:f32:2; #7 Exp 2:f32:2 -> 3:f32:2", OP,
     "op 7 (Exp): an op with this id is already in the graph"},
    {"Abs 1:f32:2 -> 2:f32:2; Exp 2:f16:2 -> 3:f32:2", TYPE,
     "op 101 (Exp): tensor 2 was given before with different data type"},
    {"Abs 1:f32:2 -> 2:f32:2; Exp 2:f32:3 -> 3:f32:3", SHAPE,
     "tensor 2 was given before with different dims"},
    {"Abs 1:f32:2 -> 2:f32:2; Exp 2:f32:2x1 -> 3:f32:2x1", SHAPE,
     "tensor 2 was given before with different rank"},
    {"Abs 1:f32:2x2 -> 2:f32:2x2; Exp 2:f32:2x2:1x2 -> 3:f32:2x2", SHAPE,
     "tensor 2 was given before with different strides"},
    {"Add 1:f32:2x2 1:f32:2x2:1x2 -> 3:f32:2x2", SHAPE,
     "tensor 1 was given before with different strides"},
    {"Abs 1:f32:2 -> 2:f32:2; ports 1,5 -> 2", GRAPH, "input port 5: no op has this tensor"},
    {"Abs 1:f32:2 -> 2:f32:2; ports 1 -> 9", GRAPH, "output port 9: no op has this tensor"},
    {"Abs 1:f32:2 -> 2:f32:2; ports 1 -> 1", GRAPH, "output port 1: no op produces it"},
    {"Abs 1:f32:2 -> 2:f32:2; ports 2 -> 2", GRAPH, "input port 2: an op produces it"},
    {"Add 1:f32:2 3:f32:2 -> 2:f32:2; ports 1 -> 2", GRAPH,
     "tensor 3 is used, but no op produces it and it is no input port"},

    /* setters know an attribute's kind */
    {"Elu alpha=1,2 1:f32:2 -> 2:f32:2", ARGS, "attribute alpha is of kind f32"},
};

/* The graphs above without their faults, so that a refusal above is for the named fault. */
static const char *const valid[] = {
    "DynamicDequantize qtype=per_group group_shape=1,4 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8",
    "DynamicDequantize qtype=per_group axis=1 groups=2 1:s4:4x8 2:f32:4x2 -> 3:f32:4x8",
    "DynamicDequantize qtype=per_group axis=0,1 groups=2,2 1:s4:4x8 2:f32:2x2 -> 3:f32:4x8",
    "DynamicDequantize qtype=per_group group_shape=1,4 1:s4:4x8 2:f32:4x2 4:s4:4x4 -> 3:f32:4x8",
    "DynamicDequantize qtype=per_channel 1:s8:4x8 2:f32:8 -> 3:f32:4x8",
    "DynamicDequantize qtype=per_tensor groups=5 1:s8:4x8 2:f32:1 -> 3:f32:4x8",
    "Quantize scales=1 zps=200 1:f32:2 -> 2:u8:2",
    "Quantize qtype=per_channel axis=1 scales=1,2,3 1:f32:4x3 -> 2:s8:4x3",
    WEIGHTS "scales=1,2,3,4 1:s8:4x2x3 -> 2:f32:*;" TRANSPOSED "groups=2" ENDS,
    WEIGHTS "scales=1,2 1:s8:4x2x3 -> 2:f32:*;" TRANSPOSED "groups=2" ENDS,
    WEIGHTS "scales=1,2,3,4 1:s8:4x2x3 -> 2:f32:*; TypeCast 2:f32:* -> 6:f16:*; #2 ConvTranspose "
            "strides=1 pads_begin=0 pads_end=0 dilations=1 data_format=NCX weights_format=IOX "
            "groups=2 3:f16:1x4x5 6:f16:* -> 4:f16:*; Abs 2:f32:* -> 7:f32:*",
    "Quantize qtype=per_channel axis=1 scales=1,2,3,4 5:f32:4x2x3 -> 1:s8:*;" WEIGHTS
    "scales=1,2,3,4 1:s8:* -> 2:f32:*;" TRANSPOSED "groups=2" ENDS,
    "Clamp min=-inf max=inf 1:f32:2 -> 2:f32:2",
    "Abs 1:f32:2x3 -> 2:f32:2x3:1x2",
    "Abs 1:f32:2x3:0x0 -> 2:f32:2x3",
    "TypeCast 1:s4:2x4:1x2 -> 2:f32:2x4",
    "Abs 1:f32:2 -> 2:f32:2; Exp 2:f32:2 -> 3:f32:2; ports 1 -> 3,2",
    "Exp 2:f32:2 -> 3:f32:2; Abs 1:f32:2 -> 2:f32:2; ports 1 -> 3",
    "Multiply 1:f32:2 1:f32:2 -> 2:f32:2",
    "Wildcard alpha=1 1:f32:2 2:s4:2 -> 3:f32:5 4:u8:6; End 3:f32:5",
    "MatMul 1:bf16:2x3 2:bf16:3x5 -> 3:f32:*; SoftMax axis=-1 3:f32:* -> 4:bf16:*; Divide 4:bf16:* "
    "5:f32:1 -> 6:bf16:*",
    "MatMul 1:f8_e4m3:2x3 2:f8_e5m2:3x5 -> 3:bf16:*",
};

static void check_invalid(const char *spec, sinter_status_t want, const char *message)
{
    sinter_graph_t *graph;
    sinter_status_t status = spec_graph(&graph, NULL, spec);
    CHECK(status == want, "%s: status %s, not %s (%s)", spec, sinter_status_name(status),
          sinter_status_name(want), sinter_last_error_message());
    CHECK(strstr(sinter_last_error_message(), message) != NULL, "%s: message \"%s\" lacks \"%s\"",
          spec, sinter_last_error_message(), message);
    sinter_graph_destroy(&graph);
}

static void check_valid(const char *spec)
{
    sinter_graph_t *graph;
    sinter_status_t status = spec_graph(&graph, NULL, spec);
    CHECK(status == sinter_success, "%s: %s: %s", spec, sinter_status_name(status),
          sinter_last_error_message());
    sinter_graph_destroy(&graph);
}

/* A refused op leaves the graph as it was: what comes after it behaves as if it had not been
 * tried. */
static void check_atomic(void)
{
    static const char *const refused[] = {
        "#1 Exp 2:f32:3 -> 3:f32:3",         /* disagrees about tensor 2 */
        "#1 Exp 4:f32:3 -> 2:f32:3",         /* produces tensor 2 again */
        "#1 Add 4:f32:2 2:f16:2 -> 3:f32:2", /* new tensor 4 before the fault */
        "#1 Exp 4:f32:3 -> 3:s8:3",          /* type */
        "#1 Add 5:f32:3 6:f32:4 -> 3:f32:*", /* shape */
    };
    sinter_graph_t *graph = NULL;
    sinter_graph_create(&graph, NULL, sinter_cpu);
    CHECK(spec_add(graph, NULL, "#0 Abs 1:f32:2 -> 2:f32:2") == sinter_success, "first op");
    for (size_t i = 0; i < sizeof refused / sizeof *refused; i++) {
        CHECK(spec_add(graph, NULL, refused[i]) != sinter_success, "%s", refused[i]);
    }
    CHECK(spec_add(
              graph, NULL,
              "#1 Exp 2:f32:2 -> 3:f32:2; #2 Abs 4:f64:7 -> 5:f64:7; #3 Abs 5:f64:7 -> 6:f64:7") ==
              sinter_success,
          "%s", sinter_last_error_message());
    CHECK(sinter_graph_finalize(graph) == sinter_success, "%s", sinter_last_error_message());
    sinter_graph_destroy(&graph);
}

static sinter_logical_tensor_t plain(uint64_t id)
{
    sinter_logical_tensor_t lt;
    memset(&lt, 0, sizeof lt);
    sinter_logical_tensor_init(&lt, id, sinter_f32, 1, (int64_t[]){4},
                               sinter_tensor_property_undef);
    return lt;
}

/* Structs that no spec can say. */
static void check_raw(const sinter_logical_tensor_t *lt, sinter_status_t want, const char *message)
{
    sinter_graph_t *graph = NULL;
    sinter_op_t *op = NULL;
    sinter_logical_tensor_t out = plain(2);
    sinter_graph_create(&graph, NULL, sinter_cpu);
    sinter_op_create(&op, NULL, 0, sinter_op_abs, NULL);
    sinter_op_add_input(op, lt);
    sinter_op_add_output(op, &out);
    sinter_status_t status = sinter_graph_add_op(graph, op);
    CHECK(status == want && strstr(sinter_last_error_message(), message) != NULL, "%s: %s, \"%s\"",
          message, sinter_status_name(status), sinter_last_error_message());
    sinter_op_destroy(&op);
    sinter_graph_destroy(&graph);
}

static void check_raw_tensors(void)
{
    sinter_logical_tensor_t lt = plain(1);
    lt.ndims = 13;
    check_raw(&lt, SHAPE, "rank 13");
    lt = plain(1);
    lt.ndims = -2;
    check_raw(&lt, SHAPE, "rank -2");
    lt = plain(1);
    lt.data_type = (sinter_data_type_t)15;
    check_raw(&lt, TYPE, "unknown data type 15");
    lt = plain(1);
    lt.data_type = sinter_data_type_undef;
    check_raw(&lt, TYPE, "unknown data type 0");
    lt = plain(1);
    lt.layout_type = sinter_layout_type_opaque;
    lt.layout_id = 99;
    check_raw(&lt, ARGS, "99 is no id of an opaque layout");
    lt = plain(1);
    lt.layout_type = (sinter_layout_type_t)9;
    check_raw(&lt, ARGS, "unknown layout type 9");
    lt = plain(1);
    lt.property = (sinter_tensor_property_t)9;
    check_raw(&lt, ARGS, "unknown property 9");
    lt = plain(1);
    lt.property = sinter_tensor_property_host_scalar;
    check_raw(&lt, SHAPE, "a host scalar has one element, not 4");
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_invalid(cases[i].spec, cases[i].status, cases[i].message);
    }
    for (size_t i = 0; i < sizeof valid / sizeof *valid; i++) {
        check_valid(valid[i]);
    }
    check_atomic();
    check_raw_tensors();
    printf("%zu invalid graphs\n", sizeof cases / sizeof *cases);
    return check_finish();
}
