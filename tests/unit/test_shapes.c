/* Shape rules against values worked out by hand. */
#include "check.h"
#include "spec.h"

static const struct {
    /* Output tensors have ids 90, 91, 92. Nothing is known of them unless the case is about
     * that. */
    const char *spec;
    const char *dims[3]; /* expected; NULL: no such output */
} cases[] = {
    /* elementwise */
    {"Abs 1:f32:2x3x4 -> 90:f32:*", {"2x3x4"}},
    {"Abs 1:f32:2x?x4 -> 90:f32:?x3x?", {"2x3x4"}},
    {"Abs 1:f32:- -> 90:f32:*", {"-"}},
    {"Abs 1:f32:0x3 -> 90:f32:*", {"0x3"}},
    {"Add 1:f32:2x1x4 2:f32:3x1 -> 90:f32:*", {"2x3x4"}},
    {"Add 1:f32:2x3 2:f32:- -> 90:f32:*", {"2x3"}},
    {"Add 1:f32:0x3 2:f32:1x3 -> 90:f32:*", {"0x3"}},
    {"Add 1:f32:?x3 2:f32:4x1 -> 90:f32:*", {"4x3"}},
    {"Add 1:f32:?x3 2:f32:1x3 -> 90:f32:*", {"?x3"}},
    {"Add 1:f32:?x3 2:f32:?x3 -> 90:f32:*", {"?x3"}},
    {"Add 1:f32:* 2:f32:2x3 -> 90:f32:*", {"*"}},
    {"Multiply auto_broadcast=none 1:f32:2x3 2:f32:2x3 -> 90:f32:*", {"2x3"}},
    {"Subtract 1:s32:5x1 2:s32:1x7 -> 90:s32:*", {"5x7"}},
    {"Select 1:boolean:4x1x6 2:f32:5x1 3:f32:- -> 90:f32:*", {"4x5x6"}},
    {"GreaterEqual 1:f32:3x1 2:f32:1x2 -> 90:boolean:*", {"3x2"}},
    {"GenIndex axis=-1 1:f32:3x4 -> 90:s32:*", {"3x4"}},
    {"BiasAdd 1:f32:2x5x7 2:f32:7 -> 90:f32:*", {"2x5x7"}},
    {"BiasAdd data_format=NCX 1:f32:2x5x7 2:f32:5 -> 90:f32:*", {"2x5x7"}},
    {"BiasAddBackward 1:f32:2x5x7 -> 90:f32:*", {"7"}},
    {"BiasAddBackward data_format=NCX 1:f32:2x5x7 -> 90:f32:*", {"5"}},
    {"PReLU 1:f32:2x5x7 2:f32:7 -> 90:f32:*", {"2x5x7"}},
    {"PReLU data_format=NCX 1:f32:2x5x7 2:f32:5 -> 90:f32:*", {"2x5x7"}},
    {"PReLU per_channel_broadcast=0 data_format=NCX 1:f32:2x5x7 2:f32:7 -> 90:f32:*", {"2x5x7"}},
    {"PReLUBackward 1:f32:2x5x7 2:f32:7 3:f32:2x5x7 -> 90:f32:* 91:f32:*", {"2x5x7", "7"}},
    {"ReLUBackward 1:f32:2x3 2:f32:2x3 -> 90:f32:*", {"2x3"}},
    {"TypeCast 1:s4:2x6 -> 90:f32:*", {"2x6"}},

    /* matmul */
    {"MatMul 1:f32:2x3 2:f32:3x5 -> 90:f32:*", {"2x5"}},
    {"MatMul transpose_a=1 1:f32:3x2 2:f32:3x5 -> 90:f32:*", {"2x5"}},
    {"MatMul transpose_b=1 1:f32:2x3 2:f32:5x3 -> 90:f32:*", {"2x5"}},
    {"MatMul 1:f32:3 2:f32:3x5 -> 90:f32:*", {"5"}},
    {"MatMul 1:f32:2x3 2:f32:3 -> 90:f32:*", {"2"}},
    {"MatMul 1:f32:3 2:f32:3 -> 90:f32:*", {"-"}},
    {"MatMul 1:f32:3 2:f32:3 -> 90:f32:1", {"1"}},
    {"MatMul 1:f32:4x1x2x3 2:f32:6x3x5 -> 90:f32:*", {"4x6x2x5"}},
    {"MatMul 1:f32:4x6x2x3 2:f32:3x5 -> 90:f32:*", {"4x6x2x5"}},
    {"MatMul 1:f32:1x8x2x1x256 2:f32:1x8x1x256x64 -> 90:f32:*", {"1x8x2x1x64"}},
    {"MatMul 1:f32:4x2x3 2:f32:3 -> 90:f32:*", {"4x2"}},
    {"MatMul 1:f32:2x3 2:f32:3x5 3:f32:5 -> 90:f32:*", {"2x5"}},
    {"MatMul 1:f32:?x3 2:f32:3x? -> 90:f32:*", {"?x?"}},
    {"MatMul 1:f32:4x?x3 2:f32:?x3x5 -> 90:f32:*", {"4x?x5"}},
    {"MatMul 1:bf16:2x0 2:bf16:0x5 -> 90:f32:*", {"2x5"}},

    /* softmax */
    {"SoftMax 1:f32:2x3x4 -> 90:f32:* 91:f32:*", {"2x3x4", "2x1x4"}},
    {"SoftMax axis=-1 1:f32:2x3x? 2:bf16:3x1 -> 90:f32:* 91:f32:*", {"2x3x?", "2x3x1"}},
    {"SoftMax axis=0 1:f32:2x3 2:f32:? -> 90:f32:*", {"2x3"}},
    {"SoftMax axis=-1 1:f32:2x3x4 -> 90:bf16:* 91:f32:*", {"2x3x4", "2x3x1"}},
    {"LogSoftmax 1:f32:5 -> 90:f32:*", {"5"}},

    /* moves */
    {"StaticReshape shape=6,4 special_zero=0 1:f32:2x3x4 -> 90:f32:*", {"6x4"}},
    {"StaticReshape shape=-1,4 special_zero=0 1:f32:2x3x4 -> 90:f32:*", {"6x4"}},
    {"StaticReshape shape=0,-1 special_zero=1 1:f32:2x3x4 -> 90:f32:*", {"2x12"}},
    {"StaticReshape shape=0,5 special_zero=0 1:f32:2x0 -> 90:f32:*", {"0x5"}},
    {"StaticReshape shape=2,-1 special_zero=0 1:f32:?x4 -> 90:f32:*", {"2x?"}},
    {"StaticReshape shape=0,4 special_zero=1 1:f32:?x4 -> 90:f32:*", {"?x4"}},
    {"StaticTranspose order=0,2,1,3 1:s4:2x3x4x6 -> 90:s4:*", {"2x4x3x6"}},
    {"StaticTranspose order=-1,0 1:f32:2x? -> 90:f32:*", {"?x2"}},
    {"StaticTranspose order=1,0 1:f32:* -> 90:f32:*", {"?x?"}},
    {"Reorder 1:f32:2x3 -> 90:f32:*", {"2x3"}},
    {"Concat axis=1 1:f32:2x3 2:f32:2x4 3:f32:2x1 -> 90:f32:*", {"2x8"}},
    {"Concat axis=-2 1:f32:2x3 2:f32:?x3 -> 90:f32:*", {"?x3"}},

    {"Concat axis=0 1:s4:?x4 2:s4:3x4 -> 90:s4:8x4", {"8x4"}},
    {"Slice starts=1,-2 ends=9,9 axes=0,2 1:f32:4x3x5 -> 90:f32:*", {"3x3x2"}},
    {"Slice starts=0 ends=100 steps=3 1:f32:8x? -> 90:f32:*", {"3x?"}},
    {"Slice starts=3 ends=1 1:f32:8x2 -> 90:f32:*", {"0x2"}},
    {"Slice starts=-100 ends=-1 axes=-1 1:s4:2x6 -> 90:s4:*", {"2x5"}},
    {"Slice starts=1 ends=3 1:f32:?x2 -> 90:f32:*", {"?x2"}},
    {"Slice starts=0 ends=8 steps=9223372036854775807 1:f32:8x2 -> 90:f32:*", {"1x2"}},
    {"Slice starts=-1 ends=-100 steps=-1 1:f32:8x2 -> 90:f32:*", {"8x2"}},
    {"Slice starts=100 ends=0 steps=-2 1:f32:8x2 -> 90:f32:*", {"4x2"}},
    {"Slice starts=-100 ends=-100 steps=-3 1:f32:8x2 -> 90:f32:*", {"1x2"}},
    {"Slice starts=1 ends=3 steps=-1 1:f32:8x2 -> 90:f32:*", {"0x2"}},
    {"Slice starts=-1 ends=-100 steps=-1 1:f32:0x2 -> 90:f32:*", {"0x2"}},
    {"Slice starts=7 ends=0 steps=-9223372036854775808 1:f32:8x2 -> 90:f32:*", {"1x2"}},

    /* moves by index */
    {"Gather 1:f32:9x4 2:s32:2x3 -> 90:f32:*", {"2x3x4"}},
    {"Gather axis=1 1:s4:9x5x4 2:s64:- -> 90:s4:*", {"9x4"}},
    {"Gather axis=-1 1:f32:9x? 2:s32:? -> 90:f32:*", {"9x?"}},
    {"Gather 1:f32:?x4 2:s32:0 -> 90:f32:*", {"0x4"}},
    {"Gather 1:f32:* 2:s32:3 -> 90:f32:*", {"*"}},
    {"Gather axis=1 batch_dims=1 1:f32:?x5x3 2:s32:2x4 -> 90:f32:*", {"2x4x3"}},
    {"Gather axis=2 batch_dims=1 1:f32:2x6x5 2:s32:2x4x3 -> 90:f32:*", {"2x6x4x3"}},
    {"Gather axis=-1 batch_dims=2 1:f32:2x6x5 2:s32:?x6 -> 90:f32:*", {"2x6"}},
    {"ScatterRows 1:f32:9x4 2:s32:2 3:f32:2x4 -> 90:f32:*", {"9x4"}},
    {"ScatterRows axis=-2 1:u4:2x?x4 2:s64:? 3:u4:?x3x4 -> 90:u4:*", {"2x?x4"}},
    {"ScatterRows axis=1 1:f32:?x9x4 2:s32:0 3:f32:5x0x4 -> 90:f32:*", {"5x9x4"}},
    {"ScatterRows axis=1 batch_dims=1 1:f32:?x9x4 2:s32:5x2 3:f32:?x?x4 -> 90:f32:*", {"5x9x4"}},
    {"TopK k=3 1:f32:2x9 -> 90:f32:* 91:s32:*", {"2x3", "2x3"}},
    {"LinearAttention mode=linear 1:f32:2x5x1x8 2:f32:2x5x2x8 3:f32:2x?x4x6 4:f32:2x4x?x? -> "
     "90:f32:* 91:f32:*",
     {"2x5x4x6", "2x4x6x8"}},
    {"LinearAttention mode=gated 1:f32:2x5x1x8 2:f32:2x5x1x8 3:f32:2x5x4x6 4:f32:9x4x6x8 "
     "5:f32:2x5x4x8 6:s32:2 -> 90:f32:* 91:f32:*",
     {"2x5x4x6", "2x4x6x8"}},
    {"LinearAttention mode=gated_delta 1:f32:2x5x1x8 2:f32:2x5x1x8 3:f32:2x5x4x6 4:f32:9x4x6x8 "
     "5:f32:2x5x4x1 6:f32:2x5x4x1 7:s32:2 8:s64:2 -> 90:f32:* 91:f32:*",
     {"2x5x4x6", "9x4x6x8"}},
    {"LinearAttention mode=gated_bonus 1:f32:2x5x1x8 2:f32:2x5x1x8 3:f32:2x5x4x6 4:f32:9x4x6x8 "
     "5:f32:2x5x4x8 6:f32:4x? 7:s32:2 -> 90:f32:* 91:f32:*",
     {"2x5x4x6", "2x4x6x8"}},
    {"LinearAttention mode=gated_low_rank 1:f32:2x5x1x8 2:f32:2x5x1x8 3:f32:2x5x4x6 4:f32:9x4x6x8 "
     "5:f32:2x5x4x1 6:f32:2x5x2x8 7:f32:2x5x4x? 8:s32:2 9:s64:2 -> 90:f32:* 91:f32:*",
     {"2x5x4x6", "9x4x6x8"}},
    {"TopK k=2 axis=0 1:f32:?x9 -> 90:f32:* 91:s32:*", {"2x9", "2x9"}},
    {"TopK k=0 1:s32:4 -> 90:s32:* 91:s32:*", {"0", "0"}},
    {"RotaryEmbedding 1:f32:2x3x5x8 2:f32:2x5x4 3:f32:2x5x4 -> 90:f32:*", {"2x3x5x8"}},
    {"RotaryEmbedding 1:f32:?x3x?x8 2:f32:40x4 3:f32:40x4 4:s32:2x5 -> 90:f32:*", {"2x3x5x8"}},
    {"RotaryEmbedding num_heads=3 1:f16:2x5x24 2:f32:4 3:s64:2x5 -> 90:f16:*", {"2x5x24"}},
    {"RotaryEmbedding rotary_embedding_dim=4 1:f32:1x3x?x8 2:f32:1x5x2 3:f32:1x5x2 -> 90:f32:*",
     {"1x3x5x8"}},
    {"HadamardTransform 1:f32:2x8 -> 90:f32:*", {"2x8"}},
    {"HadamardTransform block_size=4 1:bf16:2x?x12 -> 90:f32:*", {"2x?x12"}},
    {"HadamardTransform 1:f32:2x? -> 90:f32:*", {"2x?"}},
    {"HadamardTransform 1:f32:2x0 -> 90:f32:*", {"2x0"}},

    /* quantisation */
    {"Quantize scales=0.5 1:f32:2x3 -> 90:s8:*", {"2x3"}},
    {"Dequantize scales=0.5,1,2 qtype=per_channel axis=1 1:u8:2x3 -> 90:f32:*", {"2x3"}},
    {"DynamicDequantize qtype=per_group group_shape=1,4 1:s4:2x8 2:f16:2x2 -> 90:f16:*", {"2x8"}},
    {"DynamicQuantize quantization_kind=dynamic_mx 1:f32:3x64 -> 90:f8_e4m3:* 91:e8m0:*",
     {"3x64", "3x2"}},
    {"DynamicQuantize quantization_kind=dynamic_mx_rceil qtype=per_group group_shape=1,16 "
     "1:f32:3x64 -> 90:f4_e2m1:* 91:e8m0:*",
     {"3x64", "3x4"}},
    {"DynamicQuantize quantization_kind=dynamic_symmetric qtype=per_group axis=0,1 groups=3,2 "
     "1:f32:3x64 -> 90:s8:* 91:f32:*",
     {"3x64", "3x2"}},
    {"DynamicQuantize quantization_kind=dynamic_symmetric qtype=per_group axis=1 groups=2 "
     "1:f32:3x64 -> 90:s8:* 91:f32:*",
     {"3x64", "3x2"}},
    {"DynamicQuantize quantization_kind=dynamic_asymmetric qtype=per_channel axis=0 1:f32:3x64 -> "
     "90:u8:* 91:f32:* 92:u8:*",
     {"3x64", "3", "3"}},
    {"DynamicQuantize quantization_kind=dynamic_nv 1:f32:3x64 -> 90:f4_e2m1:* 91:f8_e4m3:*",
     {"3x64", "3x4"}},

    /* pooling: (in + pads - kernel) / stride + 1 */
    {"MaxPool strides=2,2 pads_begin=0,0 pads_end=0,0 kernel=3,3 1:f32:1x8x9x5 -> 90:f32:*",
     {"1x3x4x5"}},
    {"MaxPool strides=2,2 pads_begin=0,0 pads_end=0,0 kernel=3,3 rounding_type=ceil 1:f32:1x8x9x5 "
     "-> 90:f32:*",
     {"1x4x4x5"}},
    {"MaxPool strides=2 pads_begin=1 pads_end=1 kernel=3 data_format=NCX 1:f32:1x5x8 -> 90:f32:*",
     {"1x5x4"}},
    {"MaxPool strides=1 pads_begin=0 pads_end=0 kernel=3 dilations=2 data_format=NCX 1:f32:1x5x8 "
     "-> 90:f32:*",
     {"1x5x4"}},
    {"MaxPool strides=3 pads_begin=9 pads_end=9 kernel=2 auto_pad=SAME_UPPER data_format=NCX "
     "1:f32:1x5x8 -> 90:f32:*",
     {"1x5x3"}},
    {"AvgPool strides=3 pads_begin=9 pads_end=9 kernel=2 auto_pad=VALID exclude_pad=0 "
     "data_format=NCX 1:f32:1x5x8 -> 90:f32:*",
     {"1x5x3"}},
    {"AvgPool strides=2 pads_begin=1 pads_end=-1 kernel=2 exclude_pad=1 data_format=NCX "
     "1:f32:1x5x22 -> 90:f32:*",
     {"1x5x11"}},
    {"AvgPool strides=3 pads_begin=9 pads_end=9 kernel=2 auto_pad=same_upper exclude_pad=0 "
     "data_format=NCX 1:f32:1x5x8 -> 90:f32:*",
     {"1x5x3"}},
    {"AvgPoolBackward strides=2 pads_begin=0 pads_end=0 kernel=2 exclude_pad=0 src_shape=1,8,5 "
     "1:f32:1x4x5 -> 90:f32:*",
     {"1x8x5"}},
    {"MaxPoolBackward strides=2 pads_begin=0 pads_end=0 kernel=2 1:f32:1x8x5 2:f32:1x4x5 -> "
     "90:f32:*",
     {"1x8x5"}},

    /* convolution */
    {"Convolution strides=1,1 pads_begin=0,0 pads_end=0,0 dilations=1,1 1:f32:1x8x8x3 "
     "2:f32:3x3x3x16 -> 90:f32:*",
     {"1x6x6x16"}},
    {"Convolution strides=2,2 pads_begin=3,3 pads_end=3,3 dilations=1,1 data_format=NCX "
     "weights_format=OIX 1:f32:1x3x224x224 2:f32:64x3x7x7 3:f32:64 "
     "-> 90:f32:*",
     {"1x64x112x112"}},
    {"Convolution strides=1 pads_begin=2 pads_end=2 dilations=2 groups=4 data_format=NCX "
     "weights_format=OIX 1:f32:1x8x10 2:f32:12x2x3 -> 90:f32:*",
     {"1x12x10"}},
    {"Convolution strides=2 pads_begin=0 pads_end=0 dilations=1 auto_pad=SAME_LOWER "
     "data_format=NCX weights_format=OIX 1:f32:1x8x9 2:f32:12x8x3 -> "
     "90:f32:*",
     {"1x12x5"}},
    {"Convolution strides=1 pads_begin=0 pads_end=0 dilations=1 data_format=NCX weights_format=OIX "
     "1:f32:?x8x? 2:f32:12x8x3 -> 90:f32:*",
     {"?x12x?"}},
    {"ConvTranspose strides=2 pads_begin=1 pads_end=1 dilations=1 output_padding=1 data_format=NCX "
     "weights_format=IOX 1:f32:1x8x5 2:f32:8x6x3 -> "
     "90:f32:*",
     {"1x6x10"}},
    {"ConvTranspose strides=2 pads_begin=0 pads_end=0 dilations=1 groups=2 1:f32:1x5x8 2:f32:3x3x8 "
     "-> 90:f32:*",
     {"1x11x6"}},
    {"ConvTransposeBackwardData strides=2 pads_begin=1 pads_end=1 dilations=1 data_format=NCX "
     "weights_format=IOX 1:f32:1x6x10 2:f32:8x6x3 -> 90:f32:*",
     {"1x8x5"}},
    {"ConvolutionBackwardData strides=2 pads_begin=1 pads_end=1 dilations=1 data_format=NCX "
     "weights_format=OIX 1:f32:1x12x5 2:f32:12x8x3 -> 90:f32:*",
     {"1x8x9"}},
    {"ConvolutionBackwardData strides=2 pads_begin=1 pads_end=1 dilations=1 dst_shape=1,8,10 "
     "data_format=NCX weights_format=OIX 1:f32:1x12x5 "
     "2:f32:12x8x3 -> 90:f32:*",
     {"1x8x10"}},
    {"ConvolutionBackwardWeights strides=1 pads_begin=0 pads_end=0 dilations=1 "
     "weights_shape=3,8,12 1:f32:1x10x8 2:f32:1x8x12 -> 90:f32:*",
     {"3x8x12"}},
    {"ConvTransposeBackwardWeights strides=1 pads_begin=0 pads_end=0 dilations=1 "
     "weights_format=IOX weights_shape=8,12,3 1:f32:1x10x8 2:f32:1x12x12 -> "
     "90:f32:*",
     {"8x12x3"}},
    {"Interpolate mode=nearest sizes=7,9 1:f32:1x4x5x3 -> 90:f32:*", {"1x7x9x3"}},
    {"Interpolate mode=bilinear scales=2,1.5 data_format=NCX 1:f32:1x3x4x5 -> 90:f32:*",
     {"1x3x8x7"}},
    {"Interpolate mode=linear sizes=3 scales=7 data_format=NCX 1:f32:1x5x4 -> 90:f32:*", {"1x5x3"}},
    {"InterpolateBackward mode=nearest 1:f32:1x4x5x3 2:f32:1x8x10x3 -> 90:f32:*", {"1x4x5x3"}},

    /* reductions and norms */
    {"ReduceSum axes=1 1:f32:2x3x4 -> 90:f32:*", {"2x4"}},
    {"CumSum axis=0 1:f32:2x?x4 -> 90:f16:*", {"2x?x4"}},
    {"ReduceMean axes=-1,0 keep_dims=1 1:f32:2x3x4 -> 90:f32:*", {"1x3x1"}},
    {"ReduceMax axes=0,1,2 1:f32:2x3x4 -> 90:f32:*", {"-"}},
    {"ReduceL2 keep_dims=1 1:f32:2x3x4 2:s32:1 -> 90:f32:*", {"?x?x?"}},
    {"BatchNormInference epsilon=1e-5 1:f32:2x5x7 2:f32:7 3:f32:7 4:f32:7 5:f32:7 -> 90:f32:*",
     {"2x5x7"}},
    {"BatchNormForwardTraining epsilon=1e-5 data_format=NCX 1:f32:2x5x7 2:f32:5 3:f32:5 -> "
     "90:f32:* 91:f32:* 92:f32:* 93:f32:* 94:f32:*",
     {"2x5x7", "5", "5"}},
    {"BatchNormTrainingBackward epsilon=1e-5 1:f32:2x5x7 2:f32:2x5x7 3:f32:7 4:f32:7 5:f32:7 -> "
     "90:f32:* 91:f32:* 92:f32:*",
     {"2x5x7", "7", "7"}},
    {"LayerNorm begin_norm_axis=1 1:f32:2x5x7 2:f32:5x7 3:f32:5x7 -> 90:f32:* 91:f32:* 92:f32:*",
     {"2x5x7", "2", "2"}},
    {"LayerNorm keep_stats=0 use_affine=0 1:f32:2x5x7 -> 90:f32:*", {"2x5x7"}},
    {"LayerNormBackward 1:f32:2x5x7 2:f32:2x5x7 3:f32:2x5 4:f32:2x5 -> 90:f32:* 91:f32:* 92:f32:*",
     {"2x5x7", "7", "7"}},
    {"GroupNorm groups=4 1:f32:2x5x8 2:f32:8 3:f32:8 -> 90:f32:* 91:f32:* 92:f32:*",
     {"2x5x8", "2x4", "2x4"}},
    {"RMSNorm 1:f32:2x5x8 2:f32:8 -> 90:f32:*", {"2x5x8"}},
    {"RMSNorm begin_norm_axis=1 1:f32:2x?x8 2:f32:5x1 -> 90:f32:*", {"2x5x8"}},
    {"RMSNorm begin_norm_axis=-2 1:f32:2x5x8 2:f32:8 -> 90:f32:*", {"2x5x8"}},
    {"LayerNorm 1:f32:2x5x? 2:f32:8 3:f32:8 -> 90:f32:* 91:f32:* 92:f32:*",
     {"2x5x8", "2x5", "2x5"}},
    {"GroupNorm groups=4 data_format=NCX 1:f32:2x?x8 2:f32:12 3:f32:? -> 90:f32:* 91:f32:* "
     "92:f32:*",
     {"2x12x8", "2x4", "2x4"}},
    {"ReduceProd axes=0 1:f32:0x4 -> 90:f32:*", {"4"}},
    {"Dropout 1:f32:2x5 2:s64:- 3:s64:- 4:f32:- -> 90:f32:* 91:u8:*", {"2x5", "2x5"}},

    /* [?] is how JSON says an unknown number of dims */
    {"Select 1:boolean:1x8x2x1x256 2:f32:1x8x2x1x256 3:f32:1 -> 4:f32:?; SoftMax axis=-1 4:f32:? "
     "-> 5:bf16:?; "
     "MatMul 5:bf16:? 6:bf16:1x8x1x256x256 -> 90:bf16:1x8x2x1x256",
     {"1x8x2x1x256"}},
    {"SoftMax axis=-1 4:f32:? -> 90:bf16:?; Abs 3:f32:2x3 -> 4:f32:?", {"2x3"}},
    {"Abs 1:f32:? -> 90:f32:*", {"?"}},
};

static void check_case(const char *spec, const char *const *dims)
{
    sinter_graph_t *graph;
    sinter_status_t status = spec_graph(&graph, NULL, spec);
    CHECK(status == sinter_success, "%s: %s", spec, sinter_last_error_message());
    for (int i = 0; i < 3 && dims[i] != NULL && graph != NULL; i++) {
        sinter_logical_tensor_t lt;
        memset(&lt, 0, sizeof lt);
        status = sinter_graph_query_logical_tensor(graph, 90 + (uint64_t)i, &lt);
        CHECK(status == sinter_success && strcmp(spec_text(&lt), dims[i]) == 0,
              "%s: tensor %d is %s, not %s", spec, 90 + i, spec_text(&lt), dims[i]);
    }
    sinter_graph_destroy(&graph);
}

int main(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        check_case(cases[i].spec, cases[i].dims);
    }
    return check_finish();
}
