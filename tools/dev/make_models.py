#!/usr/bin/env python3
"""Writes models/*.json: attention, matmul and MLP graphs with the shapes of real networks, whole
decoder layers, quantisation of 64 MiB, and their lists in tests/lists. Run from anywhere; what it
writes is checked in."""
import os

import attention_models
import cache_models
import dequantise_models
import expert_models
import image_models
import latent_models
import layer_models
import matmul_models
import paged_models
import recurrent_models
import router_models
import row_models
import unified_models
import weight_models
from graph_json import Graph, transposed

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")


class Codes:
    """How compressed data is stored: element type, scale type, zero-point type or None, group size,
    and the float type it decodes to."""

    def __init__(self, dtype, scale, zero_point, group, decoded, split=False):
        self.dtype, self.scale, self.zero_point = dtype, scale, zero_point
        self.group, self.decoded = group, decoded
        self.split = split  # six bits in two planes


INT4 = Codes("s4", "f16", "s4", 32, "f16")
MXFP8 = Codes("f8_e4m3", "e8m0", None, 32, "bf16")
MXFP4 = Codes("f4_e2m1", "e8m0", None, 32, "bf16")
MXFP6 = Codes("f6_e2m3", "e8m0", None, 32, "bf16")
MXFP6_SPLIT = Codes("f6_e2m3", "e8m0", None, 32, "bf16", split=True)
INT4_G128 = Codes("u4", "f16", "u4", 128, "f16")


def dequantize(g, codes, shape, axis, stride=None, scale_stride=None, prop="variable"):
    """A compressed input and its DynamicDequantize: groups of codes.group along axis, given as axis
    + groups."""
    groups = shape[axis] // codes.group
    scale_shape = [*shape[:axis], groups, *shape[axis + 1:]]
    inputs = [
        g.input("u4" if codes.split else codes.dtype, shape, stride, prop),
        g.input(codes.scale, scale_shape, scale_stride, prop)
    ]
    attrs = {"qtype": "per_group", "axis": [axis], "groups": [groups]}
    if codes.zero_point:
        inputs.append(g.input(codes.zero_point, scale_shape, scale_stride, prop))
    if codes.split:
        inputs.append(g.input("u2", shape, stride, prop))
        attrs["split_type"] = codes.dtype
    return g.op("DynamicDequantize", inputs, codes.decoded, **attrs)


def attention(codes, kv_heads, heads_per_kv, head_dim, s, t, causal):
    """5-D grouped-query attention over a KV cache that holds one row of head_dim codes after the
    other, one for each token."""
    float_type = codes.decoded
    g = Graph(fpmath=float_type, apply_to_int=True)
    q = g.input(float_type, [1, kv_heads, heads_per_kv, s, head_dim])
    k_shape = [1, kv_heads, 1, head_dim, t]
    k = dequantize(g, codes, k_shape, 3, transposed(k_shape),
                   transposed([1, kv_heads, 1, head_dim // codes.group, t]))
    scores = g.op("MatMul", [q, k], "f32", transpose_a=False, transpose_b=False)
    scores = g.op("Multiply", [scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    if causal:
        row = g.op("GenIndex", [scores], "s32", axis=3)
        column = g.op("GenIndex", [scores], "s32", axis=4)
        keep = g.op("GreaterEqual", [row, column], "boolean", auto_broadcast="numpy")
        scores = g.op("Select", [keep, scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    else:
        scores = g.op("Add", [scores, g.input(float_type, [1, 1, 1, 1, t])], "f32",
                      auto_broadcast="numpy")
    p = g.op("SoftMax", [scores], float_type, axis=-1, mode="inf_as_zero")
    v = dequantize(g, codes, [1, kv_heads, 1, t, head_dim], 4)
    return g.output(g.op("MatMul", [p, v], float_type, transpose_a=False, transpose_b=False))


def window_attention(codes, kv_heads, heads_per_kv, head_dim, s, t):
    """As attention(), with one sink logit for each head. Query i is token i + input PAST and sees
    WINDOW + 1 tokens up to itself."""
    float_type = codes.decoded
    g = Graph(fpmath=float_type, apply_to_int=True)
    past, window = (g.input("s32", [], prop="host_scalar") for _ in range(2))
    q = g.input(float_type, [1, kv_heads, heads_per_kv, s, head_dim])
    k_shape = [1, kv_heads, 1, head_dim, t]
    k = dequantize(g, codes, k_shape, 3, transposed(k_shape),
                   transposed([1, kv_heads, 1, head_dim // codes.group, t]))
    scores = g.op("MatMul", [q, k], "f32", transpose_a=False, transpose_b=False)
    scores = g.op("Multiply", [scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    row = g.op("GenIndex", [scores], "s32", axis=3)
    column = g.op("GenIndex", [scores], "s32", axis=4)
    row = g.op("Add", [row, past], "s32", auto_broadcast="numpy")
    first = g.op("Subtract", [row, window], "s32", auto_broadcast="numpy")
    fill = g.input("f32", [1])
    for a, b in ((column, first), (row, column)):
        keep = g.op("GreaterEqual", [a, b], "boolean", auto_broadcast="numpy")
        scores = g.op("Select", [keep, scores, fill], "f32", auto_broadcast="numpy")
    sinks = g.op("TypeCast",
                 [g.input(float_type, [1, kv_heads, heads_per_kv, 1, 1], prop="constant")], "f32")
    p = g.op("SoftMax", [scores, sinks], float_type, axis=-1, mode="inf_as_zero")
    v = dequantize(g, codes, [1, kv_heads, 1, t, head_dim], 4)
    return g.output(g.op("MatMul", [p, v], float_type, transpose_a=False, transpose_b=False))


def lengths_attention(codes, batch, kv_heads, heads_per_kv, head_dim, s, t, window=False):
    """As attention(), over a batch of sequences in caches of t tokens each. Input LENGTHS has the
    number of tokens of each sequence. The queries are its last tokens; with one query all of its
    tokens are seen, or with a window the last input WINDOW + 1 of them."""
    float_type = codes.decoded
    g = Graph(fpmath=float_type, apply_to_int=True)
    lengths = g.input("s32", [batch, 1, 1, 1, 1])
    reach = g.input("s32", [], prop="host_scalar") if window else None
    q = g.input(float_type, [batch, kv_heads, heads_per_kv, s, head_dim])
    k_shape = [batch, kv_heads, 1, head_dim, t]
    k = dequantize(g, codes, k_shape, 3, transposed(k_shape),
                   transposed([batch, kv_heads, 1, head_dim // codes.group, t]))
    scores = g.op("MatMul", [q, k], "f32", transpose_a=False, transpose_b=False)
    scores = g.op("Multiply", [scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    fill = g.input("f32", [1])
    column = g.op("GenIndex", [scores], "s32", axis=4)
    last = lengths  # the column after the last one that a row sees
    if s > 1:
        row = g.op("GenIndex", [scores], "s32", axis=3)
        first = g.op("Subtract", [lengths, g.input("s32", [], prop="host_scalar")], "s32",
                     auto_broadcast="numpy")
        last = g.op("Add", [row, first], "s32", auto_broadcast="numpy")
    beyond = g.op("GreaterEqual", [column, last], "boolean", auto_broadcast="numpy")
    scores = g.op("Select", [beyond, fill, scores], "f32", auto_broadcast="numpy")
    if window:
        begin = g.op("Subtract", [last, reach], "s32", auto_broadcast="numpy")
        near = g.op("GreaterEqual", [column, begin], "boolean", auto_broadcast="numpy")
        scores = g.op("Select", [near, scores, fill], "f32", auto_broadcast="numpy")
    p = g.op("SoftMax", [scores], float_type, axis=-1, mode="inf_as_zero")
    v = dequantize(g, codes, [batch, kv_heads, 1, t, head_dim], 4)
    return g.output(g.op("MatMul", [p, v], float_type, transpose_a=False, transpose_b=False))


# The values of the first inputs of models that have them: PAST and WINDOW, or LENGTHS and others.
INPUTS = {
    "llama3-8b-decode-int4-lengths": " --in=0:=4096,1000,300,1",
    "llama3-8b-prefill-int4-lengths": " --in=0:=512,300,128,60+12:=127",
    "gpt-oss-20b-decode-window-mxfp4-lengths": " --in=0:=4096,1000,100,0+1:=128",
    "gpt-oss-20b-decode-window-mxfp4": " --in=0:=4095+1:=127",
    "gpt-oss-20b-prefill-window-mxfp4": " --in=0:=0+1:=127",
}


def linear(g, codes, x, n, out_type):
    """x times a constant weight stored [n][k], groups along k."""
    w = dequantize(g, codes, [n, x["shape"][-1]], 1, prop="constant")
    return g.op("MatMul", [x, w], out_type, transpose_a=False, transpose_b=True)


def linear_kn(g, codes, x, n, out_type):
    """x times a constant weight stored [k][n], groups along k."""
    w = dequantize(g, codes, [x["shape"][-1], n], 0, prop="constant")
    return g.op("MatMul", [x, w], out_type, transpose_a=False, transpose_b=False)


def matmul(codes, m, k, n, layer=linear):
    g = Graph(fpmath=codes.decoded, apply_to_int=True)
    return g.output(layer(g, codes, g.input(codes.decoded, [m, k]), n, codes.decoded))


def matmul_codes(m, k, n):
    """Bytes with a scale and a zero point for each row times 4 bits: exact in integers whatever the
    fpmath mode."""
    g = Graph()
    x = dequantize(g, Codes("u8", "f32", "u8", k, "f32"), [m, k], 1)
    return g.output(linear(g, Codes("s4", "f16", None, 128, "f32"), x, n, "f32"))


def matmul_blocks(m, k, n, prop="constant"):
    """Weights as GGUF's Q8_0 has them: blocks of a scale in f16 and 32 bytes, one after the other
    in memory, seen as codes and scales of three dims whose strides leave out the other part."""
    blocks, g = k // 32, Graph()
    codes = g.input("s8", [n, blocks, 32], [34 * blocks, 34, 1], prop)
    scales = g.input("f16", [n, blocks, 1], [17 * blocks, 17, 1], prop)
    w = g.op("DynamicDequantize", [codes, scales], "f32", qtype="per_group", group_shape=[1, 1, 32])
    w = g.op("StaticReshape", [w], "f32", shape=[n, k], special_zero=False)
    x = g.input("f32", [m, k])
    return g.output(g.op("MatMul", [x, w], "f32", transpose_a=False, transpose_b=True))


def mx_operand(g, dtype, shape, named, transpose=False):
    """A matrix with its K last: MX in groups of 32 along K, or f32 in rows of the other dim."""
    if dtype == "f32":
        return g.input("f32", [*reversed(shape)] if transpose else shape)
    return dequantize(g, Codes(dtype, "e8m0", None, 32, named), shape, 1)


def mx_matmul(a, b, out, m, k, n, named="f32"):
    """MX or f32 operands, product quantised to MX in groups of 32 along N; no value is ever rounded
    to the type `named` in between."""
    g = Graph()
    x, w = mx_operand(g, a, [m, k], named), mx_operand(g, b, [n, k], named, True)
    y = g.op("MatMul", [x, w], named, transpose_a=False, transpose_b=b != "f32")
    outputs = [g.tensor(out, [m, n]), g.tensor("e8m0", [m, n // 32])]
    g.op_to("DynamicQuantize", [y], outputs, qtype="per_group", axis=[1], groups=[n // 32],
            quantization_kind="dynamic_mx")
    return g.output(*outputs)


def fnuz_square():
    """A row times a column in f8_e5m2fnuz: 0, 1 ... 15 in both are cast to numbers whose squares
    add up to 1252, which is 1280 in that type."""
    g = Graph()
    x, y = (g.op("TypeCast", [g.input("f32", shape)], "f8_e5m2fnuz")
            for shape in ([1, 16], [16, 1]))
    return g.output(g.op("MatMul", [x, y], "f8_e5m2fnuz"))


def linear_rows(g, codes, x, n, out_type):
    """x times a constant weight stored [k][n], groups along n."""
    w = dequantize(g, codes, [x["shape"][-1], n], 1, prop="constant")
    return g.op("MatMul", [x, w], out_type, transpose_a=False, transpose_b=False)


def gated_mlp(codes, m, hidden, inner, linear=linear):
    g = Graph(fpmath=codes.decoded, apply_to_int=True)
    x = g.input(codes.decoded, [m, hidden])
    gate = linear(g, codes, x, inner, "f32")
    gate = g.op("Multiply", [gate, g.op("Sigmoid", [gate], "f32")], "f32", auto_broadcast="numpy")
    up = linear(g, codes, x, inner, "f32")
    product = g.op("Multiply", [gate, up], "f32", auto_broadcast="numpy")
    product = g.op("TypeCast", [product], codes.decoded)
    return g.output(linear(g, codes, product, hidden, codes.decoded))


def guide_operands(g, m, k, n):
    """u8 activations with one scale and zero point, s8 weights [k][n] and f16 scales of 128 rows
    each."""
    x = g.op("Dequantize", [g.input("u8", [m, k])], "f32", qtype="per_tensor", axis=1,
             scales=[0.125], zps=[8])
    return x, g.input("s8", [k, n], prop="constant"), g.input("f16", [k // 128, n], prop="constant")


def guide_per_channel(m, k, n):
    """A scale for each column of the weights, in attributes; the product goes on in 8 bits."""
    g = Graph()
    x = g.op("Dequantize", [g.input("u8", [m, k])], "f32", qtype="per_tensor", axis=1,
             scales=[0.125], zps=[8])
    w = g.op("Dequantize", [g.input("s8", [k, n], prop="constant")], "f32", qtype="per_channel",
             axis=1, scales=[2.0**-(4 + i % 4) for i in range(n)], zps=[0] * n)
    y = g.op("MatMul", [x, w, g.input("f32", [n], prop="constant")], "f32", transpose_a=False,
             transpose_b=False)
    return g.output(
        g.op("Quantize", [g.op("ReLU", [y], "f32")], "s8", qtype="per_tensor", axis=1, scales=[0.5],
             zps=[0]))


def guide_weight_only(m, k, n):
    g = Graph(fpmath="f16", apply_to_int=True)
    codes = Codes("s8", "f16", None, 128, "f16")
    w = dequantize(g, codes, [k, n], 0, prop="constant")
    return g.output(
        g.op("MatMul", [g.input("f16", [m, k]), w], "f16", transpose_a=False, transpose_b=False))


def guide_zero_points(m, k, n):
    """Scales of 128 rows each, zero points of 64."""
    g = Graph()
    x, codes, scales = guide_operands(g, m, k, n)
    w = g.op("DynamicDequantize",
             [codes, scales, g.input("s8", [k // 64, n], prop="constant")], "f32",
             qtype="per_group")
    return g.output(g.op("MatMul", [x, w], "f32", transpose_a=False, transpose_b=False))


def guide_sums(m, k, n):
    """The same with the sums of code - zero point over 64 elements of a row each, which the caller
    has already."""
    g = Graph()
    x, codes, scales = guide_operands(g, m, k, n)
    w = g.op("DynamicDequantize", [codes, scales], "f32", qtype="per_group", group_shape=[128, 1])
    zps = g.op("DynamicDequantize", [g.input("s8", [k // 64, n], prop="constant"), scales], "f32",
               qtype="per_group", group_shape=[2, 1])
    sums = g.op("TypeCast", [g.input("s32", [m, k // 64])], "f32")
    sums = g.op("Multiply", [sums, g.input("f32", [1], prop="host_scalar")], "f32",
                auto_broadcast="numpy")
    y, z = (g.op("MatMul", pair, "f32", transpose_a=False, transpose_b=False)
            for pair in ([x, w], [sums, zps]))
    return g.output(g.op("Subtract", [y, z], "f32", auto_broadcast="numpy"))


def guide_models():
    """The worked examples of oneDNN's guide to quantisation as graphs. Name -> graph."""
    return {
        "guide-per-channel": guide_per_channel(5, 256, 12),
        "guide-weight-only": guide_weight_only(5, 256, 512),
        "guide-zero-points": guide_zero_points(5, 256, 64),
        "guide-sums": guide_sums(5, 256, 64),
    }


# name, quantization_kind, input, codes, scales, zero points, group of each dim (0: all of it)
QUANTISE = [
    ("s8-symmetric-token", "dynamic_symmetric", "f32", "s8", "f32", None, [1, 0]),
    ("s8-symmetric-token-f16", "dynamic_symmetric", "f16", "s8", "f32", None, [1, 0]),
    ("s8-symmetric-g128", "dynamic_symmetric", "f32", "s8", "f16", None, [1, 128]),
    ("s4-symmetric-g32", "dynamic_symmetric", "f32", "s4", "f16", None, [1, 32]),
    ("s4-symmetric-g32-f16", "dynamic_symmetric", "f16", "s4", "f16", None, [1, 32]),
    ("u8-asymmetric-g32", "dynamic_asymmetric", "f32", "u8", "f16", "u8", [1, 32]),
    ("u8-asymmetric-g128", "dynamic_asymmetric", "f32", "u8", "f16", "u8", [1, 128]),
    ("u4-asymmetric-g32", "dynamic_asymmetric", "f32", "u4", "f16", "u4", [1, 32]),
    ("u4-asymmetric-g128", "dynamic_asymmetric", "f32", "u4", "f16", "u4", [1, 128]),
    ("f8_e4m3-mx-g32", "dynamic_mx", "f32", "f8_e4m3", "e8m0", None, [1, 32]),
    ("f8_e4m3-mx-g32-bf16", "dynamic_mx", "bf16", "f8_e4m3", "e8m0", None, [1, 32]),
    ("f8_e5m2-mx-g32", "dynamic_mx", "f32", "f8_e5m2", "e8m0", None, [1, 32]),
    ("f8_e4m3-mx_rceil-g32", "dynamic_mx_rceil", "f32", "f8_e4m3", "e8m0", None, [1, 32]),
    ("f6_e3m2-mx-g32", "dynamic_mx", "f32", "f6_e3m2", "e8m0", None, [1, 32]),
    ("f6_e2m3-mx-g32", "dynamic_mx", "f32", "f6_e2m3", "e8m0", None, [1, 32]),
    ("f4_e2m1-mx-g32", "dynamic_mx", "f32", "f4_e2m1", "e8m0", None, [1, 32]),
    ("f4_e2m1-mx-g32-bf16", "dynamic_mx", "bf16", "f4_e2m1", "e8m0", None, [1, 32]),
    ("f4_e2m1-nv-g16", "dynamic_nv", "f32", "f4_e2m1", "f8_e4m3", None, [1, 16]),
    ("f4_e2m1-nv-g16-bf16", "dynamic_nv", "bf16", "f4_e2m1", "f8_e4m3", None, [1, 16]),
    ("s8-symmetric-4x4", "dynamic_symmetric", "f32", "s8", "f32", None, [4, 4]),
    ("s4-symmetric-32x32", "dynamic_symmetric", "f32", "s4", "f16", None, [32, 32]),
    ("f8_e4m3-mx-32x32", "dynamic_mx", "f32", "f8_e4m3", "e8m0", None, [32, 32]),
    ("f8_e4m3-symmetric-256x256", "dynamic_symmetric", "f32", "f8_e4m3", "f32", None, [256, 256]),
    ("f8_e4m3-mx-32x1", "dynamic_mx", "f32", "f8_e4m3", "e8m0", None, [32, 1]),
    ("u4-asymmetric-32x1", "dynamic_asymmetric", "f32", "u4", "f16", "u4", [32, 1]),
    ("s8-symmetric-channel", "dynamic_symmetric", "f32", "s8", "f32", None, [0, 1]),
    ("s8-static-g128", "static", "f32", "s8", "f16", None, [1, 128]),
    ("u8-static-token", "static", "f32", "u8", "f32", "u8", [1, 0]),
]


def quantise(kind, source, codes, scale, zero_point, group):
    """DynamicQuantize of 64 MiB."""
    g = Graph()
    shape = [4096, 4096 if source == "f32" else 8192]
    group = [size or dim for size, dim in zip(group, shape)]
    scale_shape = [dim // size for size, dim in zip(group, shape)]
    x, q = g.input(source, shape), g.tensor(codes, shape)
    params = [g.tensor(dtype, scale_shape) for dtype in (scale, zero_point) if dtype]
    attrs = {"quantization_kind": kind, "qtype": "per_group", "group_shape": group}
    if kind == "static":
        g.inputs += [t["id"] for t in params]
        return g.output(*g.op_to("DynamicQuantize", [x, *params], [q], **attrs))
    return g.output(*g.op_to("DynamicQuantize", [x], [q, *params], **attrs))


def quantise_models():
    """Name -> graph."""
    return {"quantise-" + name: quantise(*row) for name, *row in QUANTISE}


def models():
    """Name -> graph."""
    return network_models() | guide_models() | image_models.models() | quantise_models(
    ) | dequantise_models.models() | attention_models.models() | row_models.models(
    ) | layer_models.models() | weight_models.models() | expert_models.models(
    ) | cache_models.models() | latent_models.models() | router_models.models(
    ) | recurrent_models.models() | unified_models.models() | paged_models.models()


def network_models():
    graphs = {
        "gpt-oss-20b-decode-int4":
        attention(INT4, 8, 8, 64, 1, 4096, False),
        "gpt-oss-20b-decode-mxfp4":
        attention(MXFP4, 8, 8, 64, 1, 4096, False),
        "gpt-oss-20b-decode-window-mxfp4":
        window_attention(MXFP4, 8, 8, 64, 1, 4096),
        "gpt-oss-20b-prefill-window-mxfp4":
        window_attention(MXFP4, 8, 8, 64, 512, 512),
        "gpt-oss-20b-decode-window-mxfp4-lengths":
        lengths_attention(MXFP4, 4, 8, 8, 64, 1, 4096, window=True),
        "llama3-8b-decode-int4-lengths":
        lengths_attention(INT4, 4, 8, 4, 128, 1, 4096),
        "llama3-8b-prefill-int4-lengths":
        lengths_attention(INT4, 4, 8, 4, 128, 128, 512),
        "qwen2.5-0.5b-decode-int4":
        attention(INT4, 2, 7, 64, 1, 4096, False),
        "qwen2.5-0.5b-prefill-int4":
        attention(INT4, 2, 7, 64, 512, 512, True),
        "phi3-mini-decode-int4":
        attention(INT4, 32, 1, 96, 1, 4096, False),
        "phi3-mini-prefill-int4":
        attention(INT4, 32, 1, 96, 512, 512, True),
        "matmul-int4-4096x14336-g128":
        matmul(INT4_G128, 1, 4096, 14336),
        "matmul-int4-4096x14336-g128-m128":
        matmul(INT4_G128, 128, 4096, 14336),
        "matmul-int4-kn-4096x14336-g128":
        matmul(INT4_G128, 1, 4096, 14336, linear_kn),
        "matmul-f16-4096x4096":
        weight_models.floats(1, 4096, 4096),
        "matmul-u8-s4-4096x4096-g128":
        matmul_codes(1, 4096, 4096),
        "matmul-q8-blocks-576x1536":
        matmul_blocks(1, 576, 1536),
        "matmul-q8-blocks-variable-576x1538":
        matmul_blocks(1, 576, 1538, "variable"),
        "matmul-mxfp4-2880x2880":
        matmul(MXFP4, 1, 2880, 2880),
        "matmul-mxfp6-2880x2880":
        matmul(MXFP6, 1, 2880, 2880),
        "matmul-mxfp6-split-2880x2880":
        matmul(MXFP6_SPLIT, 1, 2880, 2880),
        "llama3-8b-decode-mxfp6":
        attention(MXFP6, 8, 4, 128, 1, 4096, False),
        "llama3-8b-decode-mxfp6-split":
        attention(MXFP6_SPLIT, 8, 4, 128, 1, 4096, False),
        "fnuz-square":
        fnuz_square(),
        "mx-matmul-mxfp4-mxfp4":
        mx_matmul("f4_e2m1", "f4_e2m1", "f4_e2m1", 64, 2880, 2880),
        "mx-matmul-mxfp8-mxfp8":
        mx_matmul("f8_e4m3", "f8_e4m3", "f8_e4m3", 64, 2880, 2880),
        "mx-matmul-mxfp8-mxfp8-bf16":
        mx_matmul("f8_e4m3", "f8_e4m3", "f8_e4m3", 64, 2880, 2880, "bf16"),
        "mx-matmul-mxfp8-f32":
        mx_matmul("f8_e4m3", "f32", "f8_e4m3", 64, 2880, 2880),
        "gated-mlp-int4":
        gated_mlp(INT4_G128, 1, 4096, 14336),
        "gated-mlp-int4-groups-n":
        gated_mlp(Codes("u4", "f16", "u8", 128, "f16"), 1, 4096, 14336, linear_rows),
        "gated-mlp-s4":
        gated_mlp(Codes("s4", "f16", None, 128, "f16"), 1, 4096, 14336),
    }
    for name, codes in (("int4", INT4), ("mxfp8", MXFP8), ("mxfp4", MXFP4)):
        graphs[f"llama3-8b-decode-{name}"] = attention(codes, 8, 4, 128, 1, 4096, False)
        graphs[f"llama3-8b-prefill-{name}"] = attention(codes, 8, 4, 128, 512, 512, True)
    return graphs


def lists():
    """File name -> text."""
    check = [
        "# The shapes of real networks against the oracle: each is one partition, attention with "
        "less than 2 MiB of scratch memory per thread."
    ]
    speed = ["# Speed of the same graphs against this machine's limits."]
    quantisation = ["# Quantisation against this machine's copy bandwidth."]
    quantisation += [
        f"--mode=P --case=../../models/{name}.json --cold-cache" for name in quantise_models()
    ]
    for name in sorted(network_models()):
        limit = " --max-scratch-per-thread=2097151" if "decode" in name or "prefill" in name else ""
        limit += " --max-ambiguous=0.001" if name.startswith("mx-matmul") else ""
        inputs = INPUTS.get(name, "")
        check.append(
            f"--mode=C --case=../../models/{name}.json --expected-n-partitions=1{limit}{inputs}")
        if name != "fnuz-square":
            speed.append(f"--mode=P --case=../../models/{name}.json --cold-cache{inputs}")
    check += [
        f"--mode=C --case=../../models/{name}.json --expected-n-partitions="
        f"{image_models.PARTITIONS.get(name, 1)}" for name in guide_models() | image_models.models()
    ]
    check += attention_models.short_lines()
    header = " Written by tools/dev/make_models.py."
    texts = {"models.list": check, "models_perf.list": speed, "perf_quantise.list": quantisation}
    texts["perf_conv.list"] = image_models.perf_list()
    own = {name: "\n".join([lines[0] + header, *lines[1:]]) + "\n" for name, lines in texts.items()}
    return own | dequantise_models.lists() | attention_models.lists(
    ) | matmul_models.lists() | row_models.lists() | layer_models.lists() | weight_models.lists(
    ) | expert_models.lists() | cache_models.lists() | latent_models.lists(
    ) | router_models.lists() | recurrent_models.lists() | unified_models.lists(
    ) | paged_models.lists()


def main():
    for name, graph in models().items():
        graph.write(os.path.join(ROOT, "models", name + ".json"))
    for name, text in lists().items():
        with open(os.path.join(ROOT, "tests", "lists", name), "w", encoding="ascii") as f:
            f.write(text)


if __name__ == "__main__":
    main()
