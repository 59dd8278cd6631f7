"""Models with convolutions: what make_models.py writes beside attention and matmul."""
import user_tools  # noqa: F401
from graph_json import Graph


def conv(g, x, weights, bias=None, stride=1, pad=0, groups=1, layout="NXC", dtype="f32"):
    """A 2-D convolution with the same stride and padding along both dims; weights are XIO."""
    h, w = x["shape"][1:3] if layout == "NXC" else x["shape"][2:]
    kh, kw, _, channels = weights["shape"]
    size = [(h + 2 * pad - kh) // stride + 1, (w + 2 * pad - kw) // stride + 1]
    shape = [x["shape"][0], *size, channels] if layout == "NXC" else [
        x["shape"][0], channels, *size]
    inputs = [x, weights] + ([bias] if bias else [])
    return g.op_to("Convolution", inputs, [g.tensor(dtype, shape)], strides=[stride, stride],
                   pads_begin=[pad, pad], pads_end=[pad, pad], dilations=[1, 1], groups=groups,
                   data_format=layout, weights_format="XIO")[0]


def codes(g, dtype, shape, scales, zp=0, axis=None, prop="variable"):
    qtype = "per_tensor" if axis is None else "per_channel"
    return g.op("Dequantize", [g.input(dtype, shape, None, prop)], "f32", qtype=qtype,
                axis=0 if axis is None else axis, scales=scales, zps=[zp] * len(scales))


def quantised(g, y, scale, zp):
    return g.op("Quantize", [y], "u8", qtype="per_tensor", axis=0, scales=[scale], zps=[zp])


def guide_convolution():
    """The int8 convolution of oneDNN's guide to quantisation: u8 image, s8 weights with a scale for
    each output channel, bias, ReLU, and codes again."""
    g = Graph()
    x = codes(g, "u8", [1, 14, 14, 32], [0.02], 5)
    w = codes(g, "s8", [3, 3, 32, 64], [0.001 * (1 + c % 7) for c in range(64)], 0, 3, "constant")
    y = g.op("ReLU", [conv(g, x, w, g.input("f32", [64], None, "constant"), pad=1)], "f32")
    return g.output(quantised(g, y, 0.05, 3))


def resnet(size, channels, results, kernel, stride=1, int8=False):
    """A convolution of ResNet-50 with its bias and ReLU, batch 1."""
    g = Graph()
    shape, window = [1, size, size, channels], [kernel, kernel, channels, results]
    if int8:
        x = codes(g, "u8", shape, [0.02], 5)
        w = codes(g, "s8", window, [0.001 * (1 + c % 7) for c in range(results)], 0, 3, "constant")
    else:
        x, w = g.input("f32", shape), g.input("f32", window, None, "constant")
    y = conv(g, x, w, g.input("f32", [results], None, "constant"), stride, kernel // 2)
    y = g.op("ReLU", [y], "f32")
    return g.output(quantised(g, y, 0.05, 3) if int8 else y)


def depthwise(size, channels):
    """A 3 x 3 filter for each channel, as in a MobileNet."""
    g = Graph()
    w, bias = (g.input("f32", dims, None, "constant") for dims in ([3, 3, 1, channels], [channels]))
    y = conv(g, g.input("f32", [1, size, size, channels]), w, bias, pad=1, groups=channels)
    return g.output(g.op("ReLU", [y], "f32"))


def patch_embedding():
    """Patches of 16 x 16 pixels become tokens, and a norm follows: the beginning of a ViT."""
    g = Graph()
    y = conv(g, g.input("f32", [1, 64, 64, 3]), g.input("f32", [16, 16, 3, 96], None, "constant"),
             g.input("f32", [96], None, "constant"), 16)
    y = g.op("StaticReshape", [y], "f32", shape=[1, 16, 96], special_zero=False)
    gamma, beta = (g.input("f32", [96], None, "constant") for _ in range(2))
    return g.output(g.op("LayerNorm", [y, gamma, beta], "f32", keep_stats=False,
                         begin_norm_axis=-1, use_affine=True, epsilon=1e-6))


PARTITIONS = {"vit-patch-embedding": 2}  # others are one

# size of the image, channels of the image and of the result, kernel
RESNET = [(56, 64, 64, 3), (28, 128, 128, 3), (14, 256, 256, 3), (7, 512, 512, 3),
          (56, 64, 256, 1), (28, 512, 128, 1), (14, 1024, 256, 1), (7, 512, 2048, 1)]

DEPTHWISE = [(56, 128), (14, 512)]  # size of the image, channels


def models():
    all_models = {
        "guide-convolution": guide_convolution(),
        "vit-patch-embedding": patch_embedding()
    }
    for size, channels, results, kernel in RESNET:
        for int8 in (False, True):
            name = f"conv-{kernel}x{kernel}-{size}-{channels}-{results}-{'int8' if int8 else 'f32'}"
            all_models[name] = resnet(size, channels, results, kernel, int8=int8)
    for size, channels in DEPTHWISE:
        all_models[f"conv-depthwise-{size}-{channels}-f32"] = depthwise(size, channels)
    return all_models


def perf_list():
    lines = ["# Convolutions of ResNet-50 and depthwise ones, batch 1, channels last, as fractions "
             "of the FMA and int8 peaks."]
    for size, channels, results, kernel in RESNET:
        for kind in ("f32", "int8"):
            lines.append(f"--mode=P --case=../../models/conv-{kernel}x{kernel}-{size}-{channels}-"
                         f"{results}-{kind}.json --expected-n-partitions=1 --min-time=0.3")
    for size, channels in DEPTHWISE:
        lines.append(f"--mode=P --case=../../models/conv-depthwise-{size}-{channels}-f32.json "
                     "--expected-n-partitions=1 --min-time=0.3")
    return lines
