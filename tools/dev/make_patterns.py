#!/usr/bin/env python3
"""Writes models/patterns/<pattern>.json and <pattern>.nomatch.json, and tests/lists/patterns.list
with the partition count of each.

A near-miss is its pattern with one condition broken; the comment at each says which and what is
left to fuse."""
import os

import user_tools  # noqa: F401
from graph_json import Graph, transposed
from router_models import at_indices, best_groups, shares, top_k

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PATTERNS = {}  # name -> (builder, partitions of the near-miss, values of inputs)


def pattern(name, nomatch_partitions, inputs=""):
    def register(builder):
        PATTERNS[name] = (builder, nomatch_partitions, inputs)
        return builder
    return register


def binary(g, kind, a, b, dtype="f32"):
    return g.op(kind, [a, b], dtype, auto_broadcast="numpy")


def matmul(g, a, b, dtype="f32", transpose_b=False, transpose_a=False):
    return g.op("MatMul", [a, b], dtype, transpose_a=transpose_a, transpose_b=transpose_b)


def softmax(g, x, dtype="f32", axis=-1):
    return g.op("SoftMax", [x], dtype, axis=axis, mode="inf_as_zero")


def dequantize(g, dtype, shape, scale=0.0625, zp=0, to="f32"):
    """A quantised input and its static Dequantize. Floating-point codes have no zero point."""
    attrs = {"qtype": "per_tensor", "axis": 1, "scales": [scale]}
    if not dtype.startswith("f"):
        attrs["zps"] = [zp]
    x = g.op("Dequantize", [g.input(dtype, shape)], "f32", **attrs)
    return x if to == "f32" else g.op("TypeCast", [x], to)


def quantize(g, x, dtype, scale, zp=0):
    attrs = {"qtype": "per_tensor", "axis": 1, "scales": [scale]}
    if not dtype.startswith("f"):
        attrs["zps"] = [zp]
    return g.op("Quantize", [x], dtype, **attrs)


def dequantize_groups(g, dtype, shape, group_shape, stride=None, to="f16", prop="variable"):
    """A compressed input with f16 scales and zero points of its own type, and its
    DynamicDequantize."""
    groups = [dim // size for dim, size in zip(shape, group_shape)]
    inputs = [
        g.input(dtype, shape, stride, prop),
        g.input("f16", groups, None, prop),
        g.input(dtype, groups, None, prop)
    ]
    return g.op("DynamicDequantize", inputs, to, qtype="per_group", group_shape=group_shape)


def quantize_mx(g, x, dtype, kind="dynamic_mx", scale="e8m0", group=32):
    """A DynamicQuantize over groups along the last axis that computes its scales: codes, scales
    and, for dynamic_asymmetric, zero points."""
    shape = [*x["shape"][:-1], x["shape"][-1] // group]
    outputs = [g.tensor(dtype, x["shape"]), g.tensor(scale, shape)]
    if kind == "dynamic_asymmetric":
        outputs.append(g.tensor(dtype, shape))
    g.output(*outputs)
    g.op_to("DynamicQuantize", [x], outputs, qtype="per_group", axis=[-1], groups=[shape[-1]],
            quantization_kind=kind)
    return g


def dequantize_planes(g, dtype, shape, group, stride=None, high_stride=None, to="f32",
                      prop="variable"):
    """MX codes of six bits in two planes, with groups along the last axis of the tensor's dims."""
    scales = [*shape[:-1], shape[-1] // group]
    inputs = [
        g.input("u4", shape, stride, prop),
        g.input("e8m0", scales, None, prop),
        g.input("u2", shape, high_stride, prop)
    ]
    return g.op("DynamicDequantize", inputs, to, qtype="per_group",
                group_shape=[1] * (len(shape) - 1) + [group], split_type=dtype)


def mx(g, dtype, shape, to="f32", axis=-1):
    """An MX input with groups of 32 along one axis, and its DynamicDequantize."""
    groups = [dim // 32 if i == axis % len(shape) else dim for i, dim in enumerate(shape)]
    return g.op("DynamicDequantize",
                [g.input(dtype, shape), g.input("e8m0", groups)], to, qtype="per_group",
                axis=[axis], groups=[groups[axis]])


@pattern("matmul-fp6-planes", 3)
def matmul_fp6_planes(g, nomatch):
    x = dequantize_planes(g, "f6_e2m3", [7, 64], 32)
    w = dequantize_planes(g, "f6_e3m2", [19, 64], 16, prop="constant")
    # the high plane depends on the product through a SoftMax: Dequantizes+MatMul, SoftMax+TypeCast,
    # Dequantize+MatMul
    if nomatch:
        bits = g.op("TypeCast", [softmax(g, matmul(g, x, w, transpose_b=True))], "u2")
        last = g.op("Dequantize", [g.input("u4", [7, 19]), bits], "f32", qtype="per_tensor", axis=1,
                    scales=[1.0], split_type="f6_e3m2")
        return g.output(matmul(g, last, g.input("f32", [19, 5])))
    return g.output(g.op("ReLU", [matmul(g, x, w, transpose_b=True)], "f32"))


@pattern("matmul-quantize-planes", 2)
def matmul_quantize_planes(g, nomatch):
    y = matmul(g, g.input("f32", [7, 33]), g.input("f32", [33, 64]))
    # the groups are those of a SoftMax over the product: MatMul, SoftMax+DynamicQuantize
    if nomatch:
        y = softmax(g, y)
    outputs = [
        g.tensor("u4", [7, 64], [80, 1]),
        g.tensor("e8m0", [7, 2]),
        g.tensor("u2", [7, 64], [64, 1])
    ]
    return g.output(*g.op_to("DynamicQuantize", [y], outputs, quantization_kind="dynamic_mx",
                             split_type="f6_e3m2"))


# ---- attention -----------------------------------------------------------------------------------


@pattern("sdpa", 3)
def sdpa(g, nomatch):
    q = g.input("f32", [2, 3, 5, 16])
    k = g.input("f32", [2, 3, 7, 16])
    v = g.input("f32", [2, 3, 7, 12])
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True),
               g.input("f32", [], prop="host_scalar"))
    s = binary(g, "Add", s, g.input("f32", [2, 1, 1, 7]))
    # The softmax runs over the queries: MatMul+Multiply+Add, SoftMax, MatMul.
    return g.output(matmul(g, softmax(g, s, axis=2 if nomatch else -1), v))


@pattern("sdpa-5d-gqa", 3)
def sdpa_5d_gqa(g, nomatch):
    q = g.input("f16", [1, 2, 3, 5, 16])
    k = g.input("f16", [1, 2, 1, 16, 9])
    v = g.input("f16", [1, 2, 1, 9, 16])
    s = binary(g, "Divide", matmul(g, q, k), g.input("f32", [1]))
    if nomatch:  # the scores must be written as a matrix: MatMul+Divide, SoftMax, MatMul
        g.output(s)
    return g.output(matmul(g, softmax(g, s, "f16"), v, "f16"))


def reshape(g, x, shape):
    return g.op("StaticReshape", [x], x["dtype"], shape=shape, special_zero=False)


@pattern("sdpa-reshape-gqa", 3)
def sdpa_reshape_gqa(g, nomatch):
    q = reshape(g, g.input("f32", [2, 4, 5, 16]), [2, 2, 2, 5, 16])
    k = reshape(g, g.input("f32", [2, 2, 6, 16]), [2, 2, 1, 6, 16])
    s = binary(g, "Divide", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    # softmax over halves of the rows: Reshapes+MatMul+Divide+Reshape, SoftMax+Reshape,
    # Reshape+MatMul+Reshape
    if nomatch:
        p = reshape(g, softmax(g, reshape(g, s, [2, 2, 2, 5, 2, 3])), [2, 2, 2, 5, 6])
    else:
        p = softmax(g, binary(g, "Add", s, reshape(g, g.input("f32", [2, 1, 1, 6]),
                                                   [2, 1, 1, 1, 6])))
    v = reshape(g, g.input("f32", [2, 2, 6, 16]), [2, 2, 1, 6, 16])
    return g.output(reshape(g, matmul(g, p, v), [2, 4, 5, 16]))


def transpose(g, x, order):
    return g.op("StaticTranspose", [x], x["dtype"], order=order)


@pattern("sdpa-mqa-jax", 3)
def sdpa_mqa_jax(g, nomatch):
    heads, s, t, d = 3, 6, 5, 8
    scores = matmul(g, g.input("f32", [2, s, d]), g.input("f32", [2, d, heads * t]))
    scores = transpose(g, reshape(g, scores, [2, s, heads, t]), [0, 2, 1, 3])
    scores = g.op("Add", [scores, g.input("f32", [2, heads, s, t])], "f32", auto_broadcast="none")
    # the scores must be written as a matrix: MatMul with its tail, SoftMax with its tail, MatMul
    if nomatch:
        g.output(scores)
    p = reshape(g, transpose(g, softmax(g, scores, axis=3), [0, 2, 1, 3]), [2, s, heads * t])
    return g.output(matmul(g, g.input("f32", [2, d, s]), p))


@pattern("sdpa-jax", 3)
def sdpa_jax(g, nomatch):
    # Tensors [b, t, h, d]; the second product is V^T P^T, its result is transposed back to that.
    sizes = ((5, 16), (7, 16), (7, 12))
    q, k, v = (transpose(g, g.input("f32", [2, t, 3, d]), [0, 2, 1, 3]) for t, d in sizes)
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    s = [g.input("boolean", [2, 1, 5, 7]), s, g.input("f32", [1])]
    s = g.op("Select", s, "f32", auto_broadcast="numpy")
    # The softmax runs over the queries: MatMul+Multiply+Select, SoftMax+StaticTranspose+Reorder,
    # MatMul+StaticTranspose.
    p = transpose(g, softmax(g, s, axis=2 if nomatch else -1), [0, 1, 3, 2])
    out = matmul(g, v, g.op("Reorder", [p], "f32"), transpose_a=True)
    return g.output(transpose(g, out, [0, 3, 1, 2]))


@pattern("sdpa-keys-queries", 3)
def sdpa_keys_queries(g, nomatch):
    # Scores [.., keys, queries], with masks over keys, over both and over queries.
    q, k, v = (g.input("f32", [2, 3, t, d]) for t, d in ((5, 16), (7, 16), (7, 12)))
    s = binary(g, "Divide", matmul(g, k, q, transpose_b=True), g.input("f32", [1]))
    for mask in ([2, 1, 7, 1], [7, 5], [5]):
        s = binary(g, "Add", s, g.input("f32", mask))
    # The softmax runs over the queries: MatMul+Divide+Adds, SoftMax, MatMul.
    return g.output(matmul(g, softmax(g, s, axis=-1 if nomatch else 2), v, transpose_a=True))


@pattern("sdpa-keys-queries-int4", 2)
def sdpa_keys_queries_int4(g, nomatch):
    g.fpmath, g.apply_to_int = "f16", True
    q = g.input("f16", [1, 3, 5, 16])
    k = dequantize_groups(g, "s4", [1, 3, 9, 16], [1, 1, 1, 8])
    s = binary(g, "Multiply", matmul(g, k, q, "f32", transpose_b=True), g.input("f32", [1]))
    p = softmax(g, binary(g, "Add", s, g.input("f16", [1, 1, 9, 5])), "f16", axis=-2)
    v = dequantize_groups(g, "s8", [1, 3, 9, 16], [1, 1, 1, 8])
    if nomatch:  # the dequantised V must be written: DynamicDequantize, attention over an f16 V
        g.output(v)
    return g.output(matmul(g, transpose(g, v, [0, 1, 3, 2]), p, "f16"))


@pattern("sdpa-transposed-scores", 3)
def sdpa_transposed_scores(g, nomatch):
    q, k, v = (g.input("bf16", [2, 3, t, 16]) for t in (5, 7, 7))
    s = transpose(g, matmul(g, k, q, transpose_b=True), [0, 1, 3, 2])
    s = binary(g, "Multiply", s, g.input("f32", [1]))
    if nomatch:  # a reshape tears the rows: MatMul to StaticReshape, SoftMax to TypeCast, MatMul
        s = g.op("StaticReshape", [s], "f32", shape=[2, 3, 7, 5], special_zero=False)
        p = g.op("StaticReshape", [softmax(g, s)], "f32", shape=[2, 3, 5, 7], special_zero=False)
    else:
        p = softmax(g, s)
    return g.output(matmul(g, g.op("TypeCast", [p], "bf16"), v, "bf16"))


@pattern("sdpa-transposed-causal", 3)
def sdpa_transposed_causal(g, nomatch):
    # Causal masks made of indices over [.., keys, queries], with sinks; an index is an output, too.
    q, k, v = (g.input("f32", [2, 3, t, 16]) for t in (7, 10, 10))
    s = binary(g, "Multiply", matmul(g, k, q, transpose_b=True), g.input("f32", [1]))
    key, query = g.op("GenIndex", [s], "s32", axis=-2), g.op("GenIndex", [s], "s32", axis=3)
    s = [boolean(g, "GreaterEqual", query, key), s, g.input("f32", [1])]
    s = [g.op("Select", s, "f32", auto_broadcast="numpy"), g.input("f32", [3, 1, 1])]
    # The softmax runs over the queries: MatMul with the mask, SoftMax, MatMul.
    p = g.op("SoftMax", s, "f32", axis=3 if nomatch else 2, mode="inf_as_zero")
    return g.output(matmul(g, p, v, transpose_a=True), g.op("GenIndex", s[:1], "s32", axis=2))


@pattern("sdpa-dead-ops", 3)
def sdpa_dead_ops(g, nomatch):
    # Exporters leave ops behind that nobody reads: they are in no partition.
    q, k, v = (g.input("f32", [2, 3, t, d]) for t, d in ((5, 16), (7, 16), (7, 12)))
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    g.op("Tanh", [g.op("Abs", [s], "f32")], "f32")
    s = binary(g, "Add", s, g.input("f32", [2, 1, 1, 7]))
    index = g.op("GenIndex", [s], "s32", axis=3)
    dead = g.op("TypeCast", [index], "f32")
    p = softmax(g, s)
    if nomatch:  # the index is added to the probabilities: MatMul to Add, SoftMax to Add, MatMul
        p = binary(g, "Add", p, dead)
    return g.output(matmul(g, p, v))


@pattern("sdpa-index-output", 4)
def sdpa_index_output(g, nomatch):
    # An index over the scores needs their dims alone, so such an output does not stand in the way.
    q, k, v = (g.input("f32", [2, 3, t, d]) for t, d in ((5, 16), (7, 16), (7, 12)))
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    # Abs needs the scores: MatMul+Multiply, Abs, SoftMax, MatMul.
    other = g.op("Abs", [s], "f32") if nomatch else g.op("GenIndex", [s], "s32", axis=3)
    return g.output(matmul(g, softmax(g, s), v), other)


def compressed_sdpa(g, k_type, v_type, outputs=lambda name, tensor: None):
    """4-D f16 attention with K [.., T, D] in memory; outputs(name, tensor) may declare an
    intermediate as a graph output."""
    k_shape, v_shape = [1, 3, 16, 9], [1, 3, 9, 16]
    q = g.input("f16", [1, 3, 5, 16])
    k = (dequantize_groups(g, k_type, k_shape, [1, 1, 8, 1], transposed(k_shape)) if k_type != "f16"
         else g.input("f16", k_shape, transposed(k_shape)))
    outputs("k", k)
    s = binary(g, "Divide", matmul(g, q, k, "f16"), g.input("f16", []), "f16")
    outputs("scores", s)
    s = binary(g, "Add", s, g.input("f16", [1, 1, 5, 9]), "f16")
    p = softmax(g, s, "f16")
    outputs("p", p)
    v = dequantize_groups(g, v_type, v_shape, [1, 1, 1, 8]) if v_type != "f16" else g.input(
        "f16", v_shape)
    return g.output(matmul(g, p, v, "f16"))


def declare(g, which):
    return lambda name, tensor: g.output(tensor) if name == which else None


@pattern("sdpa-int4-kv", 2)
def sdpa_int4_kv(g, nomatch):
    g.fpmath, g.apply_to_int = "f16", True
    # The dequantised K must be written: DynamicDequantize, attention over an f16 K.
    return compressed_sdpa(g, "s4", "s4", declare(g, "k" if nomatch else None))


@pattern("sdpa-int4-k-only", 3)
def sdpa_int4_k_only(g, nomatch):
    g.fpmath, g.apply_to_int = "f16", True
    # The scores must be written: Dequantize+MatMul+Divide(+Add), SoftMax, MatMul.
    return compressed_sdpa(g, "u4", "f16", declare(g, "scores" if nomatch else None))


@pattern("sdpa-int4-v-only", 3)
def sdpa_int4_v_only(g, nomatch):
    g.fpmath, g.apply_to_int = "f16", True
    # The probabilities must be written: MatMul+Divide+Add, SoftMax, Dequantize+MatMul.
    return compressed_sdpa(g, "f16", "s4", declare(g, "p" if nomatch else None))


@pattern("sdpa-latent", 3)
def sdpa_latent(g, nomatch):
    """The values are the first elements of the keys, which all heads share."""
    q = g.input("f32", [1, 3, 5, 48])
    k = dequantize_groups(g, "s8", [1, 1, 9, 48], [1, 1, 1, 16], to="f32")
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    v = g.op("Slice", [k], "f32", starts=[0], ends=[32], axes=[3])
    if nomatch:  # the values must be written: DynamicDequantize, Slice, attention over f32
        g.output(v)
    return g.output(matmul(g, softmax(g, s), v))


def transpose(g, x, order):
    return g.op("StaticTranspose", [x], x["dtype"], order=order)


def paged(g, dtype, blocks, table):
    """Heads of tokens from blocks [blocks, heads, tokens of a block, elements]."""
    x = transpose(g, g.op("Gather", [g.input(dtype, blocks), table], dtype, axis=0),
                  [0, 2, 1, 3, 4])
    b, heads, n, size, elements = x["shape"]
    return reshape(g, x, [b, heads, n * size, elements])


@pattern("sdpa-paged", 11)
def sdpa_paged(g, nomatch):
    """Codes of 8 bits with scales and zero points for groups of 8, in blocks of 4 tokens."""
    table = g.input("s32", [2, 3])

    def cache(tables):
        parts = [paged(g, *of, t) for of, t in zip(
            (("u8", [7, 2, 4, 16]), ("f16", [7, 2, 4, 2]), ("u8", [7, 2, 4, 2])), tables)]
        return g.op("DynamicDequantize", parts, "f32", qtype="per_group", group_shape=[1, 1, 1, 8])

    k = cache([table] * 3)
    # Scales of V have a table of their own: six Gathers, and attention over what they take.
    v = cache([table, g.input("s32", [2, 3]) if nomatch else table, table])
    s = matmul(g, g.input("f32", [2, 2, 3, 16]), k, transpose_b=True)
    s = binary(g, "Add", binary(g, "Multiply", s, g.input("f32", [1])),
               g.input("f32", [2, 1, 3, 12]))
    return g.output(matmul(g, softmax(g, s), v))


@pattern("sdpa-paged-tokens", 2)
def sdpa_paged_tokens(g, nomatch):
    """Blocks of one token each; three query heads share a head of K and V."""
    table = g.input("s64", [2, 9])

    def cache(tokens):
        x = tokens if nomatch else g.op("Gather", [tokens, table], "f16", axis=0)
        return reshape(g, transpose(g, x, [0, 2, 1, 3]), [2, 2, 1, 9, 16])

    k = reshape(g, transpose(g, g.op("Gather", [g.input("f16", [30, 2, 16]), table], "f16", axis=0),
                             [0, 2, 1, 3]), [2, 2, 1, 9, 16])
    # V is no cache of blocks: Gather, attention.
    v = cache(g.input("f16", [2, 9, 2, 16] if nomatch else [30, 2, 16]))
    s = matmul(g, g.input("f16", [2, 2, 3, 5, 16]), k, "f16", transpose_b=True)
    return g.output(matmul(g, softmax(g, s, "f16"), v, "f16"))


@pattern("sdpa-paged-latent", 6)
def sdpa_paged_latent(g, nomatch):
    """The values are the first elements of the keys, which all heads share."""
    table = g.input("s32", [2, 3])
    parts = [paged(g, dtype, [7, 1, 4, n], table) for dtype, n in (("s8", 48), ("f16", 3))]
    k = g.op("DynamicDequantize", parts, "f32", qtype="per_group", group_shape=[1, 1, 1, 16])
    s = matmul(g, g.input("f32", [2, 3, 5, 48]), k, transpose_b=True)
    s = binary(g, "Multiply", s, g.input("f32", [1]))
    v = g.op("Slice", [k], "f32", starts=[0], ends=[32], axes=[3])
    if nomatch:  # the values must be written: two Gathers, what follows these, attention over f32
        g.output(v)
    return g.output(matmul(g, softmax(g, s), v))


@pattern("sdpa-fp6-planes", 2)
def sdpa_fp6_planes(g, nomatch):
    q, cache = g.input("bf16", [1, 3, 5, 64]), [64 * 3 * 12, 64 * 12, 64, 1]
    k = dequantize_planes(g, "f6_e3m2", [1, 3, 9, 64], 32, cache, to="bf16")
    s = binary(g, "Multiply", matmul(g, q, k, "f32", transpose_b=True), g.input("f32", [1]))
    v = dequantize_planes(g, "f6_e2m3", [1, 3, 9, 64], 32, None, cache, to="bf16")
    if nomatch:  # the dequantised V must be written: DynamicDequantize, attention over a bf16 V
        g.output(v)
    return g.output(matmul(g, softmax(g, s, "bf16"), v, "bf16"))


@pattern("sdpa-int8-static", 3)
def sdpa_int8_static(g, nomatch):
    q = dequantize(g, "u8", [1, 2, 5, 16], 0.03, 128, "bf16")
    k = dequantize(g, "u8", [1, 2, 16, 9], 0.04, 120, "bf16")
    v = dequantize(g, "u8", [1, 2, 9, 16], 0.05, 130, "bf16")
    s = binary(g, "Divide", matmul(g, q, k, "bf16"), g.input("bf16", []), "bf16")
    s = binary(g, "Add", s, g.input("bf16", [1, 1, 1, 9]), "bf16")
    p = quantize(g, g.op("TypeCast", [softmax(g, s, "bf16")], "f32"), "u8", 0.00392157)
    # the quantised probabilities must be written: MatMul to Add, SoftMax to Quantize, Dequantize to
    # Quantize
    if nomatch:
        g.output(p)
    p = g.op("Dequantize", [p], "f32", qtype="per_tensor", axis=1, scales=[0.00392157], zps=[0])
    out = matmul(g, g.op("TypeCast", [p], "bf16"), v, "bf16")
    return g.output(quantize(g, g.op("TypeCast", [out], "f32"), "u8", 0.02, 127))


@pattern("sdpa-f8-static", 3)
def sdpa_f8_static(g, nomatch):
    q = dequantize(g, "f8_e4m3", [1, 2, 5, 16], 0.125)
    k = dequantize(g, "f8_e4m3", [1, 2, 9, 16], 0.25)
    v = dequantize(g, "f8_e4m3", [1, 2, 9, 16], 0.5)
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    # The softmax runs over the queries: Dequantizes+MatMul+Multiply, SoftMax+Quantize,
    # Dequantizes+MatMul+Quantize.
    p = quantize(g, softmax(g, s, axis=2 if nomatch else -1), "f8_e4m3", 0.00390625)
    p = g.op("Dequantize", [p], "f32", qtype="per_tensor", axis=1, scales=[0.00390625])
    return g.output(quantize(g, matmul(g, p, v), "f8_e4m3", 0.25))


@pattern("sdpa-softcap", 3)
def sdpa_softcap(g, nomatch):
    q = g.input("bf16", [1, 2, 3, 5, 16])
    k = g.input("bf16", [1, 2, 1, 16, 9])
    v = g.input("bf16", [1, 2, 1, 9, 16])
    s = matmul(g, q, k)
    cap, scale = g.input("f32", [1]), g.input("f32", [1])
    # the cap sits behind the softmax: MatMul, SoftMax+Multiply+Tanh+Multiply+TypeCast, MatMul
    if nomatch:
        p = g.op("Tanh", [binary(g, "Multiply", softmax(g, s), scale)], "f32")
        p = g.op("TypeCast", [binary(g, "Multiply", p, cap)], "bf16")
    else:
        s = g.op("Tanh", [binary(g, "Multiply", s, scale)], "f32")
        p = softmax(g, binary(g, "Multiply", s, cap), "bf16")
    return g.output(matmul(g, p, v, "bf16"))


def causal_sdpa(g, axis, bottom_right):
    q = g.input("f32", [2, 3, 7, 16])
    k = g.input("f32", [2, 3, 10, 16])
    v = g.input("f32", [2, 3, 10, 16])
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    row, column = g.op("GenIndex", [s], "s32", axis=2), g.op("GenIndex", [s], "s32", axis=3)
    if bottom_right:  # row + T - S
        row = binary(g, "Add", row, g.input("s32", [], prop="host_scalar"), "s32")
        row = binary(g, "Subtract", row, g.input("s32", [], prop="host_scalar"), "s32")
    keep = g.op("GreaterEqual", [row, column], "boolean", auto_broadcast="numpy")
    s = g.op("Select", [keep, s, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    return g.output(matmul(g, softmax(g, s, axis=axis), v))


@pattern("sdpa-causal", 3)
def sdpa_causal(g, nomatch):
    # The softmax runs over the queries: MatMul with scale and mask, SoftMax, MatMul.
    return causal_sdpa(g, 2 if nomatch else -1, False)


@pattern("sdpa-causal-bottom-right", 3)
def sdpa_causal_bottom_right(g, nomatch):
    # The softmax runs over the heads: MatMul with scale and mask, SoftMax, MatMul.
    return causal_sdpa(g, 1 if nomatch else -1, True)


def boolean(g, kind, a, b):
    return g.op(kind, [a, b], "boolean", auto_broadcast="numpy")


@pattern("sdpa-window", 3, " --in=8:=3+10:=3")
def sdpa_window(g, nomatch):
    # Bottom-right, row + T - S, with a window: column + W - 1 >= row. The softmax runs over the
    # queries: MatMul with masks, SoftMax, MatMul.
    q = g.input("f32", [2, 3, 7, 16])
    k = g.input("f32", [2, 3, 10, 16])
    v = g.input("f32", [2, 3, 10, 16])
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    row, column = g.op("GenIndex", [s], "s32", axis=2), g.op("GenIndex", [s], "s32", axis=3)
    row = binary(g, "Add", row, g.input("s32", [], prop="host_scalar"), "s32")
    near = boolean(g, "GreaterEqual",
                   binary(g, "Add", column, g.input("s32", [], prop="host_scalar"), "s32"), row)
    fill = g.input("f32", [1])
    for keep in (near, boolean(g, "GreaterEqual", row, column)):
        s = g.op("Select", [keep, s, fill], "f32", auto_broadcast="numpy")
    return g.output(matmul(g, softmax(g, s, axis=2 if nomatch else -1), v))


@pattern("sdpa-window-product", 3, " --in=6:=4")
def sdpa_window_product(g, nomatch):
    # One mask: both conditions as numbers, multiplied.
    q = g.input("f32", [2, 3, 12, 16])
    k = g.input("f32", [2, 3, 12, 16])
    v = g.input("f32", [2, 3, 12, 16])
    s = matmul(g, q, k, transpose_b=True)
    row, column = g.op("GenIndex", [s], "s32", axis=2), g.op("GenIndex", [s], "s32", axis=3)
    first = binary(g, "Subtract", row, g.input("s32", [], prop="host_scalar"), "s32")
    keep = [
        g.op("TypeCast", [boolean(g, "GreaterEqual", a, b)], "f32")
        for a, b in ((row, column), (column, first))
    ]
    keep = binary(g, "Multiply", *keep)
    s = g.op("Select", [g.op("TypeCast", [keep], "boolean"), s,
                        g.input("f32", [1])], "f32", auto_broadcast="numpy")
    # The softmax runs over the queries: MatMul with the mask, SoftMax, MatMul.
    return g.output(matmul(g, softmax(g, s, axis=2 if nomatch else -1), v))


@pattern("sdpa-lengths", 3, " --in=4:=9,4,0")
def sdpa_lengths(g, nomatch):
    # A length for each sequence of the batch, as a vector: column >= length is masked. The softmax
    # runs over the queries: MatMul with the mask, SoftMax, MatMul.
    q = g.input("f32", [3, 2, 4, 16])
    k = g.input("f32", [3, 2, 9, 16])
    s = matmul(g, q, k, transpose_b=True)
    fill = g.input("f32", [1])
    lengths = g.op("StaticReshape", [g.input("s32", [3])], "s32", shape=[3, 1, 1, 1],
                   special_zero=False)
    beyond = boolean(g, "GreaterEqual", g.op("GenIndex", [s], "s32", axis=3), lengths)
    s = g.op("Select", [beyond, fill, s], "f32", auto_broadcast="numpy")
    v = g.input("f32", [3, 2, 9, 16])
    p = g.op("SoftMax", [s], "f32", axis=2 if nomatch else -1, mode="inf_as_zero")
    return g.output(matmul(g, p, v))


@pattern("sdpa-lengths-window", 3, " --in=4:=30,17,3+5:=20,5,9+8:=4")
def sdpa_lengths_window(g, nomatch):
    # The queries are the last tokens of their sequences, which have lengths and windows of their
    # own: row + length - S >= column >= row + length - S - window.
    q = g.input("f32", [3, 2, 2, 4, 16])
    k = g.input("f32", [3, 2, 1, 33, 16])
    s = matmul(g, q, k, transpose_b=True)
    fill = g.input("f32", [1])
    lengths, windows = (g.input("s32", [3, 1, 1, 1, 1]) for _ in range(2))
    row, column = g.op("GenIndex", [s], "s32", axis=3), g.op("GenIndex", [s], "s32", axis=4)
    past = binary(g, "Subtract", lengths, g.input("s32", [], prop="host_scalar"), "s32")
    last = binary(g, "Add", row, past, "s32")
    first = binary(g, "Subtract", last, windows, "s32")
    for a, b in ((column, first), (last, column)):
        s = g.op("Select", [boolean(g, "GreaterEqual", a, b), s, fill], "f32",
                 auto_broadcast="numpy")
    p = softmax(g, s)
    if nomatch:  # the probabilities must be written: MatMul with masks, SoftMax, MatMul
        g.output(p)
    return g.output(matmul(g, p, g.input("f32", [3, 2, 1, 33, 16])))


@pattern("sdpa-sinks", 3)
def sdpa_sinks(g, nomatch):
    # One logit for each of the heads, learned as a vector of bf16. The softmax runs over the
    # queries: MatMul+Multiply, SoftMax, MatMul.
    q = g.input("f32", [2, 3, 5, 16])
    k = g.input("f32", [2, 3, 9, 16])
    v = g.input("f32", [2, 3, 9, 16])
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    sinks = g.input("bf16", [1, 3, 1, 1], prop="constant")
    if not nomatch:
        sinks = g.op("TypeCast", [sinks], "f32")
    p = g.op("SoftMax", [s, sinks], "f32", axis=2 if nomatch else -1, mode="none")
    return g.output(matmul(g, p, v))


@pattern("sdpa-window-sinks", 4, " --in=8:=3+10:=3")
def sdpa_window_sinks(g, nomatch):
    # Grouped heads, a window and sinks.
    q = g.input("f32", [2, 3, 2, 7, 16])
    k = g.input("f32", [2, 3, 1, 10, 16])
    v = g.input("f32", [2, 3, 1, 10, 16])
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    row, column = g.op("GenIndex", [s], "s32", axis=3), g.op("GenIndex", [s], "s32", axis=4)
    row = binary(g, "Add", row, g.input("s32", [], prop="host_scalar"), "s32")
    first = binary(g, "Subtract", row, g.input("s32", [], prop="host_scalar"), "s32")
    fill = g.input("f32", [1])
    for a, b in ((column, first), (row, column)):
        s = g.op("Select", [boolean(g, "GreaterEqual", a, b), s, fill], "f32",
                 auto_broadcast="numpy")
    p = g.op("SoftMax", [s, g.input("f32", [3, 2, 1, 1])], "bf16", axis=-1, mode="inf_as_zero")
    if nomatch:  # a second SoftMax stands between: MatMul with masks, SoftMax, SoftMax, MatMul
        p = g.op("SoftMax", [p], "bf16", axis=-1, mode="none")
    return g.output(matmul(g, p, v))


@pattern("sdpa-select-mask", 3)
def sdpa_select_mask(g, nomatch):
    q = g.input("f32", [1, 4, 5, 16])
    k = g.input("f32", [1, 4, 16, 9])
    v = g.input("f32", [1, 4, 9, 16])
    s = g.op(
        "Select",
        [g.input("boolean", [1, 1, 5, 9]),
         matmul(g, q, k), g.input("f32", [])], "f32", auto_broadcast="numpy")
    s = binary(g, "Divide", s, g.input("f32", []))
    if nomatch:  # the masked scores must be written: MatMul+Select+Divide, SoftMax, MatMul
        g.output(s)
    return g.output(matmul(g, softmax(g, s), v))


@pattern("sdpa-stats", 4)
def sdpa_stats(g, nomatch):
    q = g.input("f32", [1, 3, 9, 16])
    k = g.input("f32", [1, 3, 9, 16])
    v = g.input("f32", [1, 3, 9, 16])
    s = binary(g, "Multiply", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))
    p, stats = g.op_to(
        "SoftMax", [s],
        [g.tensor("f32", s["shape"]), g.tensor("f32", [1, 3, 9, 1])], axis=-1, mode="inf_as_zero")
    # V depends on the stats, fusing would close a cycle: MatMul+Multiply, SoftMax, Multiply, MatMul
    if nomatch:
        return g.output(matmul(g, p, binary(g, "Multiply", v, stats)))
    return g.output(matmul(g, p, v), stats)


@pattern("sdpa-transposed-tail", 2)
def sdpa_transposed_tail(g, nomatch):
    q = g.input("f32", [2, 3, 5, 16])
    k = g.input("f32", [2, 3, 7, 16])
    v = g.input("f32", [2, 3, 7, 12])
    out = matmul(
        g, softmax(g, binary(g, "Divide", matmul(g, q, k, transpose_b=True), g.input("f32", []))),
        v)
    if nomatch:  # a SoftMax stands between attention and its tail: attention, SoftMax with the tail
        out = softmax(g, out)
    return g.output(g.op("Reorder", [transpose(g, out, [0, 2, 1, 3])], "f32"))


@pattern("sdpa-typecasts", 3)
def sdpa_typecasts(g, nomatch):
    q = g.input("bf16", [1, 3, 5, 16])
    k = g.input("bf16", [1, 3, 16, 9])
    v = g.input("bf16", [1, 3, 9, 16])
    s = g.op("TypeCast", [matmul(g, q, k, "bf16")], "f32")
    # The softmax runs over the queries: MatMul+TypeCast+Multiply, SoftMax+TypeCast, MatMul.
    p = softmax(g, binary(g, "Multiply", s, g.input("f32", [1])), axis=2 if nomatch else -1)
    return g.output(matmul(g, g.op("TypeCast", [p], "bf16"), v, "bf16"))


@pattern("sdpa-mx", 2)
def sdpa_mx(g, nomatch):
    q = mx(g, "f8_e4m3", [2, 3, 5, 32])
    k = mx(g, "f4_e2m1", [2, 3, 7, 32], "bf16")
    v = mx(g, "f8_e5m2", [2, 3, 7, 64])
    if nomatch:  # the dequantised V must be written: DynamicDequantize, attention over it
        g.output(v)
    return g.output(
        matmul(
            g,
            softmax(g, binary(g, "Divide", matmul(g, q, k, transpose_b=True), g.input("f32", [1]))),
            v))


@pattern("sdpa-dynamic-quantize", 2)
def sdpa_dynamic_quantize(g, nomatch):
    q = g.input("bf16", [2, 3, 5, 16])
    k = g.input("bf16", [2, 3, 16, 7])
    v = g.input("bf16", [2, 3, 7, 64])
    out = matmul(g, softmax(g, binary(g, "Divide", matmul(g, q, k), g.input("f32", [1])), "bf16"),
                 v, "bf16")
    # a SoftMax between attention and its quantisation: attention, SoftMax+DynamicQuantize
    if nomatch:
        out = softmax(g, out)
    return quantize_mx(g, out, "f8_e4m3")


@pattern("sdpa-merged-heads-quantize", 2)
def sdpa_merged_heads_quantize(g, nomatch):
    q = g.input("f16", [2, 3, 5, 16])
    k = g.input("f16", [2, 3, 16, 7])
    v = g.input("f16", [2, 3, 7, 64])
    out = matmul(g, softmax(g, binary(g, "Divide", matmul(g, q, k), g.input("f32", [1])), "f16"), v,
                 "f16")
    # the heads beside each other are an output, which the codes are made from: attention with its
    # tail, DynamicQuantize
    if nomatch:
        out = reshape(g, transpose(g, out, [0, 2, 1, 3]), [2, 5, 192])
        g.output(out)
        return quantize_mx(g, reshape(g, out, [10, 192]), "f8_e4m3")
    return quantize_mx(g, reshape(g, transpose(g, out, [0, 2, 1, 3]), [2, 5, 192]), "f8_e4m3")


# ---- matmul and MLP ------------------------------------------------------------------------------


@pattern("matmul-bias-postops", 2)
def matmul_bias_postops(g, nomatch):
    y = g.op(
        "MatMul",
        [g.input("f32", [7, 33]),
         g.input("f32", [33, 19], prop="constant"),
         g.input("f32", [19])], "f32", transpose_a=False, transpose_b=False)
    # The residual depends on the product through a SoftMax, fusing would close a cycle: MatMul,
    # SoftMax+Add+ReLU+Multiply.
    y = binary(g, "Add", y, softmax(g, y) if nomatch else g.input("f32", [7, 19]))
    return g.output(binary(g, "Multiply", g.op("ReLU", [y], "f32"), g.input("f32", [1, 19])))


@pattern("matmul-quantized-both", 2)
def matmul_quantized_both(g, nomatch):
    x = dequantize(g, "u8", [7, 33], 0.25, 3)
    # the dequantised activation must be written: Dequantize, Dequantize+MatMul+ReLU+Quantize
    if nomatch:
        g.output(x)
    w = g.op("Dequantize", [g.input("s8", [33, 6], prop="constant")], "f32", qtype="per_channel",
             axis=1, scales=[0.5, 0.25, 0.125, 1.0, 2.0, 0.5], zps=[0] * 6)
    return g.output(quantize(g, g.op("ReLU", [matmul(g, x, w)], "f32"), "s8", 0.5))


def weight_int4(g, nomatch, mode, x_shape, shape, group_shape, transpose_b):
    g.fpmath, g.apply_to_int = mode, True
    w = dequantize_groups(g, "u4", shape, group_shape, prop="constant")
    if nomatch:  # the dequantised weight must be written: DynamicDequantize, MatMul
        g.output(w)
    return g.output(matmul(g, g.input("f16", x_shape), w, "f16", transpose_b=transpose_b))


@pattern("matmul-weight-int4", 2)
def matmul_weight_int4(g, nomatch):
    return weight_int4(g, nomatch, "f16", [3, 64], [19, 64], [1, 32], True)


@pattern("matmul-weight-int4-kn", 2)
def matmul_weight_int4_kn(g, nomatch):
    return weight_int4(g, nomatch, "int8", [3, 160], [160, 38], [32, 1], False)


@pattern("matmul-typecast-quantize", 3)
def matmul_typecast_quantize(g, nomatch):
    # the scales depend on the product, fusing would close a cycle: MatMul+TypeCast, SoftMax,
    # DynamicQuantize
    if nomatch:
        y = g.op("TypeCast", [matmul(g, g.input("bf16", [33]), g.input("bf16", [33, 19]), "bf16")],
                 "f32")
        return g.output(
            g.op("DynamicQuantize", [y, softmax(g, y, axis=0)], "s8", qtype="per_channel", axis=0))
    y = g.op("TypeCast", [matmul(g, g.input("bf16", [7, 33]), g.input("bf16", [33, 19]), "bf16")],
             "f32")
    return g.output(quantize(g, y, "u8", 0.5, 128))


@pattern("matmul-mx", 2)
def matmul_mx(g, nomatch):
    y = matmul(g, mx(g, "f8_e4m3", [7, 64]), mx(g, "f4_e2m1", [96, 64], "bf16"), "bf16",
               transpose_b=True)
    # the groups are those of a SoftMax over the product: MatMul, SoftMax+DynamicQuantize
    if nomatch:
        y = softmax(g, y)
    return quantize_mx(g, y, "f4_e2m1")


def quantize_on_the_fly(g, x, dtype, group, to="f32", zp=True, keep=False):
    """x through codes with computed scales, and perhaps zero points, for groups along the last
    axis; keep: codes and scales are outputs too."""
    shape = [*x["shape"][:-1], x["shape"][-1] // group]
    attrs = {"qtype": "per_group", "group_shape": [1] * (len(shape) - 1) + [group]}
    made = [g.tensor(dtype, x["shape"]), g.tensor("f16", shape)
            ] + ([g.tensor("u8", shape)] if zp else [])
    g.op_to("DynamicQuantize", [x], made,
            quantization_kind="dynamic_asymmetric" if zp else "dynamic_symmetric", **attrs)
    if keep:
        g.output(*made)
    return g.op("DynamicDequantize", made, to, **attrs)


@pattern("matmul-quantized-activation", 4)
def matmul_quantized_activation(g, nomatch):
    x = binary(g, "Multiply", g.op("TypeCast", [g.input("bf16", [5, 64])], "f32"),
               g.input("f32", [64]))
    x = g.op("TypeCast", [quantize_on_the_fly(g, x, "u8", 32)], "f16")
    # the recovered activation has two uses: TypeCast+Multiply+DynamicQuantize,
    # DynamicDequantize+TypeCast, SoftMax, MatMul+ReLU
    if nomatch:
        g.output(softmax(g, x, "f16"))
    w = dequantize_groups(g, "s4", [19, 64], [1, 32], prop="constant")
    return g.output(g.op("ReLU", [matmul(g, x, w, "f16", transpose_b=True)], "f16"))


@pattern("matmul-sums", 2)
def matmul_sums(g, nomatch):
    """Scale groups of 128, zero-point groups of 64 whose sums over the activation are an input."""
    x = dequantize(g, "u8", [5, 256], 0.25, 3)
    scales, shape = g.input("f16", [2, 19], prop="constant"), {"qtype": "per_group"}
    w = g.op("DynamicDequantize", [g.input("s8", [256, 19], prop="constant"), scales], "f32",
             group_shape=[128, 1], **shape)
    zps = g.op("DynamicDequantize", [g.input("s8", [4, 19], prop="constant"), scales], "f32",
               group_shape=[2, 1], **shape)
    sums = g.op("TypeCast", [g.input("s32", [5, 4])], "f32")
    y = binary(g, "Multiply", matmul(g, sums, zps), g.input("f32", [5, 1]))
    # What is added is no correction: MatMul+Multiply, MatMul+Add+ReLU.
    return g.output(
        g.op("ReLU", [binary(g, "Add" if nomatch else "Subtract", matmul(g, x, w), y)], "f32"))


@pattern("matmul-dynamic-quantize", 5)
def matmul_dynamic_quantize(g, nomatch):
    y = g.op("MatMul", [g.input("bf16", [7, 33]),
                        g.input("bf16", [33, 64]),
                        g.input("bf16", [64])], "bf16", transpose_a=False, transpose_b=False)
    y = g.op("GELU", [y], "f32", mode="gelu_tanh")
    # the tensor scale depends on the product, fusing would close a cycle: MatMul+GELU, Reshape,
    # SoftMax, MatMul+Reshape, DynamicQuantize
    if nomatch:
        last = matmul(g, softmax(g, reshape(g, y, [1, 448])), g.input("f32", [448, 1]))
        outputs = [g.tensor("f4_e2m1", [7, 64]), g.tensor("f8_e4m3", [7, 4])]
        g.op_to("DynamicQuantize", [y, reshape(g, last, [1])], outputs,
                quantization_kind="dynamic_nv")
        return g.output(*outputs)
    return quantize_mx(g, g.op("TypeCast", [y], "f16"), "s8", "dynamic_asymmetric", "f16", 16)


def mlp(g, activation, weights, nomatch_input=False):
    """activation(g, gate); weights() makes the next [in, out] weight."""
    x = g.input("f32", [3, 24])
    gate = activation(g, matmul(g, x, weights([24, 40])))
    up = matmul(g, g.input("f32", [3, 24]) if nomatch_input else x, weights([24, 40]))
    return g.output(matmul(g, binary(g, "Multiply", gate, up), weights([40, 24])))


def swish(g, x):
    return binary(g, "Multiply", x, g.op("Sigmoid", [x], "f32"))


@pattern("gated-mlp-swish", 3)
def gated_mlp_swish(g, nomatch):
    # Gate and up project different inputs: MatMul, MatMul+Sigmoid+Multiply+Multiply, MatMul.
    return mlp(g, swish, lambda shape: g.input("f32", shape, prop="constant"), nomatch)


@pattern("gated-mlp-gelu", 3)
def gated_mlp_gelu(g, nomatch):
    # A SoftMax is no activation: the first two MatMuls, SoftMax+Multiply, MatMul.
    activation = softmax if nomatch else lambda h, x: h.op("GELU", [x], "f32", mode="gelu_erf")
    return mlp(g, activation, lambda shape: g.input("f32", shape, prop="constant"))


@pattern("gated-mlp-single", 3)
def gated_mlp_single(g, nomatch):
    # Gate and up project different inputs: MatMul, MatMul+HardSwish+Multiply, MatMul.
    return mlp(g, lambda h, x: h.op("HardSwish", [x], "f32"),
               lambda shape: g.input("f32", shape, prop="constant"), nomatch)


@pattern("gated-mlp-int4", 2)
def gated_mlp_int4(g, nomatch):
    g.fpmath, g.apply_to_int = "bf16", True
    made = []

    def weights(shape):
        made.append(dequantize_groups(g, "u4", shape, [8, 1], to="f32", prop="constant"))
        return made[-1]

    mlp(g, swish, weights)
    # the dequantised gate weight must be written: DynamicDequantize, gated MLP with that weight in
    # f32
    if nomatch:
        g.output(made[0])
    return g


@pattern("gated-mlp-clamped", 2)
def gated_mlp_clamped(g, nomatch):
    """The experts of gpt-oss: gate <= 7, -7 <= up <= 7, gate * sigmoid(1.702 gate) * (up + 1), rows
    of the two in turn in one weight."""
    x = g.input("bf16", [2, 3, 64])

    def linear(x, n, apart=1):
        shape, groups = [2, n, x["shape"][-1]], [2, n, x["shape"][-1] // 32]
        strides = [[s[1] * s[2] * apart, s[2] * apart, 1] for s in (shape, groups)]
        codes, scales = (g.input(t, s, stride, "constant")
                         for t, s, stride in zip(("f4_e2m1", "e8m0"), (shape, groups), strides))
        w = g.op("DynamicDequantize", [codes, scales], "bf16", qtype="per_group",
                 group_shape=[1, 1, 32])
        return binary(g, "Add", matmul(g, x, w, "bf16", transpose_b=True),
                      g.input("bf16", [2, 1, n]), "bf16")

    gate = binary(g, "Minimum", linear(x, 96, 2), g.input("bf16", [1], prop="host_scalar"), "bf16")
    gate = binary(
        g, "Multiply", gate,
        g.op("Sigmoid",
             [binary(g, "Multiply", gate, g.input("bf16", [1], prop="host_scalar"), "bf16")],
             "bf16"), "bf16")
    up = binary(g, "Add", g.op("Clamp", [linear(x, 96, 2)], "bf16", min=-7.0, max=7.0),
                g.input("bf16", [1], prop="host_scalar"), "bf16")
    # A sum of both is no gate: the first two MatMuls with what follows them, MatMul+Add+Multiply.
    y = linear(binary(g, "Add" if nomatch else "Multiply", up, gate, "bf16"), 64)
    return g.output(binary(g, "Multiply", y, g.input("bf16", [2, 3, 1]), "bf16"))


@pattern("gated-mlp-quantized", 2)
def gated_mlp_quantized(g, nomatch):
    def linear(x, n):
        return matmul(
            g, x, dequantize_groups(g, "s4", [n, x["shape"][-1]], [1, 32], to="f32",
                                    prop="constant"), transpose_b=True)

    x = quantize_on_the_fly(g, g.input("f32", [5, 64]), "s8", 64, zp=False)
    gate = swish(g, linear(x, 96))
    # The codes between the layers must be written: gated MLP without its last layer, MatMul.
    y = quantize_on_the_fly(g, binary(g, "Multiply", linear(x, 96), gate), "u8", 32, keep=nomatch)
    return g.output(linear(y, 64))


@pattern("gated-mlp-dynamic-quantize", 2)
def gated_mlp_dynamic_quantize(g, nomatch):
    x = g.input("bf16", [3, 32])
    gate = swish(g, matmul(g, x, g.input("bf16", [32, 64])))
    # Gate and up project different inputs: MatMul,
    # MatMul+Sigmoid+Multiply+Multiply+DynamicQuantize.
    up = matmul(g, g.input("bf16", [3, 32]) if nomatch else x, g.input("bf16", [32, 64]))
    return quantize_mx(g, binary(g, "Multiply", gate, up), "f8_e5m2")


# ---- the rest ------------------------------------------------------------------------------------


@pattern("eltwise-chain", 3)
def eltwise_chain(g, nomatch):
    x = g.op("Exp", [binary(g, "Subtract", g.input("f32", [3, 5, 7]), g.input("f32", [5, 1]))],
             "f32")
    # The Add needs the chain through a MatMul: Subtract+Exp, MatMul, SoftMax+Add+Sqrt.
    other = softmax(g, matmul(g, x, g.input("f32", [7, 7]))) if nomatch else g.input(
        "f32", [3, 1, 7])
    return g.output(g.op("Sqrt", [binary(g, "Add", x, other)], "f32"))


@pattern("softmax-postops", 2)
def softmax_postops(g, nomatch):
    p = softmax(g, g.input("f32", [3, 5, 7]))
    # The factor needs the softmax through a MatMul, fusing would close a cycle: SoftMax,
    # MatMul+Multiply+Quantize.
    factor = matmul(g, p, g.input("f32", [7, 7])) if nomatch else g.input("f32", [5, 7])
    return g.output(quantize(g, binary(g, "Multiply", p, factor), "u8", 0.0078125))


@pattern("reorder-chain", 2)
def reorder_chain(g, nomatch):
    x = dequantize(g, "u8", [2, 6, 3, 5], 1.0)
    x = g.op_to("Reorder", [x], [g.tensor("f32", [2, 6, 3, 5], [90, 1, 30, 6])])[0]
    if nomatch:  # a SoftMax in the middle: Dequantize+Reorder, SoftMax+Quantize
        x = softmax(g, x)
    return g.output(quantize(g, x, "u8", 0.5))


@pattern("quantize-chain", 3)
def quantize_chain(g, nomatch):
    x = g.op("TypeCast", [g.input("bf16", [37])], "f32")
    # the scales depend on the data, fusing would close a cycle: TypeCast, SoftMax, DynamicQuantize
    if nomatch:
        return g.output(
            g.op("DynamicQuantize", [x, softmax(g, x, axis=0)], "s8", qtype="per_channel", axis=0))
    return g.output(quantize(g, x, "u8", 0.0625, 100))


@pattern("dynamic-quantize", 2)
def dynamic_quantize(g, nomatch):
    x = reshape(g, g.input("f16", [4, 3, 32]), [4, 96])
    if nomatch:  # the reshaped data is an output: StaticReshape, DynamicQuantize
        g.output(x)
    return quantize_mx(g, x, "f8_e4m3", "dynamic_mx_rceil")


@pattern("eltwise-dynamic-quantize", 2)
def eltwise_dynamic_quantize(g, nomatch):
    x = binary(g, "Multiply", g.input("bf16", [5, 64]), g.input("bf16", [1, 64]), "bf16")
    x = binary(g, "Multiply", x, g.op("Sigmoid", [x], "bf16"), "bf16")
    if nomatch:  # a SoftMax in between: Multiply+Sigmoid+Multiply, SoftMax+DynamicQuantize
        x = softmax(g, x)
    return quantize_mx(g, x, "s4", "dynamic_symmetric", "f16")


@pattern("softmax-dynamic-quantize", 2)
def softmax_dynamic_quantize(g, nomatch):
    p = softmax(g, g.input("f32", [3, 5, 32]))
    # A MatMul in between: SoftMax, MatMul+DynamicQuantize.
    return quantize_mx(g,
                       matmul(g, p, g.input("f32", [32, 32])) if nomatch else p, "u4",
                       "dynamic_asymmetric", "f32")


@pattern("shuffle", 2)
def shuffle(g, nomatch):
    x = reshape(g, g.input("f32", [2, 6, 5, 4]), [2, 3, 2, 5, 4])
    # a SoftMax between the reshape and the transpose: StaticReshape,
    # SoftMax+StaticTranspose+StaticReshape
    if nomatch:
        x = softmax(g, x)
    return g.output(reshape(g, transpose(g, x, [0, 2, 1, 3, 4]), [2, 6, 5, 4]))


def graphs():
    """Name -> graph, matches and near-misses."""
    made = {}
    for name, (builder, *_) in PATTERNS.items():
        for suffix in ("", ".nomatch"):
            made[name + suffix] = Graph()
            builder(made[name + suffix], suffix != "")
    return made


def lists():
    """File name -> text."""
    lines = [
        "# Each fusion pattern: its graph is one partition, its near-miss is split. Written by "
        "tools/dev/make_patterns.py."
    ]
    for name, (_, nomatch_partitions, inputs) in PATTERNS.items():
        for suffix, partitions in (("", 1), (".nomatch", nomatch_partitions)):
            lines.append(
                f"--mode=C --case=../../models/patterns/{name}{suffix}.json "
                f"--expected-n-partitions={partitions}{inputs}"
            )
    return {"patterns.list": "\n".join(lines) + "\n", "mx_types.list": mx_types(),
            "attention_forms.list": attention_forms()}


def attention_forms():
    """Attention with transposed scores or probabilities, with float types and types of codes."""
    made = graphs()
    lines = ["# Attention with transposed scores or probabilities, one partition and op by op. "
             "Written by tools/dev/make_patterns.py."]
    forms = {"sdpa-jax": (), "sdpa-keys-queries": (), "sdpa-transposed-scores": (),
             "sdpa-transposed-causal": (),
             "sdpa-keys-queries-int4": (("s4", "s4"), ("u4", "u4"), ("s8", "u8"))}
    for name, codes in forms.items():
        n_ops = len(made[name].ops)
        for dt in ("f32", "f16", "bf16"):
            for k, v in codes or ((None, None),):
                types = dt if k is None else f"{dt}+1:{k}+3:{k}+11:{v}+13:{v}"
                for mode in ("strict", "bf16:true") if k is None else ("strict:true", "any:true"):
                    line = f"--mode=C --case=../../models/patterns/{name}.json --dt={types}"
                    line += f" --attr-fpmath={mode}"
                    lines.append(f"{line} --expected-n-partitions=1")
                    if mode.startswith("strict"):
                        lines.append(f"{line} --expected-n-partitions={n_ops} --no-fuse")
    return "\n".join(lines) + "\n"


def rms_norm(g, x, dtype="f32"):
    gamma = g.input("f32", x["shape"][-1:], prop="constant")
    return g.op("RMSNorm", [x, gamma], dtype, epsilon=1e-6)


@pattern("norm-residual", 3)
def norm_residual(g, nomatch):
    """The sum is the residual of what follows; its norm is scaled and quantised in one pass."""
    x = binary(g, "Add", g.input("bf16", [7, 64]), g.input("bf16", [7, 64]), "bf16")
    g.output(x)
    # A SoftMax stands between: Add, SoftMax, RMSNorm to DynamicQuantize.
    y = rms_norm(g, softmax(g, x, "bf16") if nomatch else x)
    y = g.op("TypeCast", [binary(g, "Multiply", y, g.input("f32", [64]))], "bf16")
    made = [g.tensor("s8", [7, 64]), g.tensor("f32", [7, 2])]
    g.op_to("DynamicQuantize", [y], made, quantization_kind="dynamic_symmetric", qtype="per_group",
            group_shape=[1, 32])
    return g.output(*made)


@pattern("norm-layer", 3)
def norm_layer(g, nomatch):
    x = binary(g, "Add", g.input("f32", [3, 5, 33]), g.input("f32", [3, 5, 33]))
    g.output(x)
    y = g.op("LayerNorm", [x, g.input("f32", [33]), g.input("f32", [33])], "f32",
             keep_stats=False, epsilon=1e-5)
    # What scales the norm depends on the sum through a SoftMax: Add, SoftMax, LayerNorm+Multiply+
    # Quantize.
    scale = softmax(g, x) if nomatch else g.input("f32", [33])
    return g.output(quantize(g, binary(g, "Multiply", y, scale), "u8", 0.0625, 128))


@pattern("norm-branch", 2)
def norm_branch(g, nomatch):
    """A norm behind a block, the residual, and the norm in front of the next block."""
    x = rms_norm(g, g.input("f32", [5, 48]))
    x = x if nomatch else binary(g, "Add", x, g.input("f32", [5, 48]))
    # One norm is an Abs behind a SoftMax: RMSNorm+Abs, SoftMax.
    if nomatch:
        return g.output(softmax(g, g.op("Abs", [x], "f32")))
    return g.output(x, rms_norm(g, x))


@pattern("reduction", 3)
def reduction(g, nomatch):
    x = binary(g, "Multiply", g.input("f32", [4, 9, 20]), g.input("f32", [20]))
    if nomatch:  # others read what is reduced: Multiply, SoftMax, ReduceMean+Sqrt
        g.output(softmax(g, x))
    x = g.op("Abs", [g.op("ReduceMean", [x], "f32", axes=[-1], keep_dims=True)], "f32")
    return g.output(g.op("Sqrt", [x], "f32"))


@pattern("convolution", 4)
def convolution(g, nomatch):
    """Codes, a convolution with a bias, a residual, and codes again."""
    attrs = {"strides": [1, 2], "pads_begin": [1, 0], "pads_end": [1, 1], "dilations": [1, 1],
             "data_format": "NCX", "weights_format": "OIX"}
    x = dequantize(g, "u8", [1, 5, 9, 11], 0.125, 7)
    w = dequantize(g, "s8", [8, 5, 3, 3], 0.0625)
    y = g.op_to("Convolution", [x, w, g.input("f32", [8])], [g.tensor("f32", [1, 8, 9, 5])],
                **attrs)[0]
    if nomatch:  # one SoftMax reads the image, another one stands before the sum: Dequantize,
        g.output(softmax(g, x))  # Dequantize+Convolution, SoftMax, SoftMax+Add+Quantize
        y = softmax(g, y)
    y = binary(g, "Add", y, g.input("f32", [1, 8, 9, 5]))
    return g.output(quantize(g, y, "u8", 0.0625, 128))


@pattern("pooling", 3)
def pooling(g, nomatch):
    """Codes are pooled, and become codes again."""
    pool = {"kernel": [3, 3], "strides": [2, 2], "pads_begin": [1, 1], "pads_end": [0, 1],
            "exclude_pad": True, "rounding_type": "ceil", "data_format": "NCX"}
    x = dequantize(g, "u8", [1, 5, 9, 11], 0.125, 7)
    if nomatch:  # others read the image too: Dequantize, SoftMax, AvgPool+Quantize
        g.output(softmax(g, x))
    y = g.op_to("AvgPool", [x], [g.tensor("f32", [1, 5, 5, 6])], **pool)[0]
    return g.output(quantize(g, y, "u8", 0.0625, 128))


@pattern("projections", 3)
def projections(g, nomatch):
    """Query, key and value of one normalised activation, with weights in s4 and a bias."""
    x = rms_norm(g, binary(g, "Add", g.input("f32", [3, 64]), g.input("f32", [3, 64])))
    if nomatch:  # others read the norm too: Add+RMSNorm, the MatMuls, SoftMax
        g.output(softmax(g, x))
    for n in (64, 32, 32):
        w = dequantize_groups(g, "s4", [n, 64], [1, 32], to="f32", prop="constant")
        g.output(g.op("MatMul", [x, w, g.input("f32", [n], prop="constant")], "f32",
                      transpose_a=False, transpose_b=True))
    return g


@pattern("projections-quantized", 4)
def projections_quantized(g, nomatch):
    """One quantised activation for gate and up."""
    x = quantize_on_the_fly(g, rms_norm(g, g.input("f32", [5, 64])), "u8", 32)
    # A SoftMax reads the recovered activation: RMSNorm+DynamicQuantize, DynamicDequantize, the
    # MatMuls, SoftMax.
    if nomatch:
        g.output(softmax(g, x))
    for n in (19, 9):
        w = dequantize_groups(g, "s4", [n, 64], [1, 32], to="f32", prop="constant")
        g.output(matmul(g, x, w, transpose_b=True))
    return g


def rotary(g, x, cos, sin, positions):
    return g.op("RotaryEmbedding", [x, cos, sin, positions], x["dtype"])


def hadamard(g, x):
    return g.op("HadamardTransform", [x], x["dtype"])


@pattern("append-hadamard", 2)
def append_hadamard(g, nomatch):
    """The same, and K and V are multiplied by a Hadamard matrix before they are quantised."""
    return append(g, nomatch, transform=hadamard)


@pattern("append", 2)
def append(g, nomatch, transform=lambda g, x: x):
    """K, normalised and turned, and V go into a cache of 8-bit codes at the same slots."""
    cos, sin = (g.input("f32", [40, 16], prop="constant") for _ in range(2))
    positions, slots = g.input("s32", [1, 3]), g.input("s32", [3])
    for name in ("k", "v"):
        x = g.input("f32", [1, 2, 3, 32])
        if name == "k":
            x = rotary(g, rms_norm(g, x), cos, sin, positions)
        x = transform(g, x)
        made = [g.tensor("s8", [1, 2, 3, 32]), g.tensor("f16", [1, 2, 3, 1])]
        g.op_to("DynamicQuantize", [x], made, quantization_kind="dynamic_symmetric",
                qtype="per_group", group_shape=[1, 1, 1, 32])
        # V has slots of its own: the appends of K, the appends of V.
        at = g.input("s32", [3]) if nomatch and name == "v" else slots
        for codes in made:
            cache = g.input(codes["dtype"], [1, 2, 9, codes["shape"][-1]])
            g.output(g.op("ScatterRows", [cache, at, codes], codes["dtype"], axis=2))
    return g


@pattern("attention-hadamard", 3)
def attention_hadamard(g, nomatch):
    """The same, and the queries are multiplied by a Hadamard matrix, as the keys were."""
    return attention_rotary(g, nomatch, transform=hadamard)


@pattern("attention-rotary", 3)
def attention_rotary(g, nomatch, transform=lambda g, x: x):
    x = g.input("f32", [1, 4, 3, 16])
    cos, sin = (g.input("f32", [40, 8], prop="constant") for _ in range(2))
    q = transform(g, rotary(g, rms_norm(g, x), cos, sin, g.input("s32", [1, 3])))
    if nomatch:  # others read the turned queries: RMSNorm+RotaryEmbedding, ReduceMean, attention
        g.output(g.op("ReduceMean", [q], "f32", axes=[-1], keep_dims=True))
    k = dequantize_groups(g, "s8", [1, 4, 9, 16], [1, 1, 1, 8], to="f32")
    v = dequantize_groups(g, "s8", [1, 4, 9, 16], [1, 1, 1, 8], to="f32")
    return g.output(matmul(g, softmax(g, matmul(g, q, k, transpose_b=True)), v))


@pattern("embedding", 3)
def embedding(g, nomatch):
    """Rows of a table in s4 with scales for groups of 32."""
    ids = g.input("s32", [2, 5])
    table = [g.input("s4", [50, 64], prop="constant"), g.input("f16", [50, 2], prop="constant")]
    rows = [g.op("Gather", [t, ids], t["dtype"], axis=0) for t in table]
    if nomatch:  # others read the scales too: Gather, Gather+DynamicDequantize, SoftMax
        g.output(softmax(g, rows[1], "f16"))
    return g.output(g.op("DynamicDequantize", rows, "f32", qtype="per_group",
                         group_shape=[1, 1, 32]))


def gate(g, experts):
    return matmul(g, g.input("f32", [5, 32]), g.input("f32", [32, experts], prop="constant"))


@pattern("moe-router", 2)
def moe_router(g, nomatch):
    """The choice of experts, with the shares of their probabilities."""
    p = softmax(g, gate(g, 24))
    best, ids = top_k(g, p, 4)
    if nomatch:  # what has another use than the choice is not a part of it: ReduceMax
        g.output(g.op("ReduceMax", [p], "f32", axes=[0], keep_dims=False))
    return g.output(ids, shares(g, best))


@pattern("moe-router-logits", 2)
def moe_router_logits(g, nomatch):
    """Weights are the probabilities among the chosen experts."""
    best, ids = top_k(g, binary(g, "Add", gate(g, 24), g.input("f32", [24])), 4)
    if nomatch:  # rows of a table that the router does not know: Gather
        g.output(g.op("Gather", [g.input("f32", [24, 8]), ids], "f32", axis=0))
    return g.output(ids, softmax(g, best))


@pattern("moe-router-biased", 7)
def moe_router_biased(g, nomatch):
    """Experts are chosen by more than what weighs them, which Gather takes by their indices."""
    p = g.op("Sigmoid", [gate(g, 23)], "f32")
    chosen = binary(g, "Add", p, g.input("f32", [23]))
    if nomatch:  # indices into a part of the scores: MatMul, Add, Slice, TopK, Gather, ReduceSum
        part = g.tensor("f32", [5, 20])
        chosen = g.op_to("Slice", [chosen], [part], starts=[0], ends=[20], axes=[1])[0]
    _, ids = top_k(g, chosen, 3)
    weights = at_indices(g, p, ids)
    total = g.op("ReduceSum", [weights], "f32", axes=[-1], keep_dims=True)
    weights = binary(g, "Divide", weights, g.op("Clamp", [total], "f32", min=6e-5, max=1e30))
    return g.output(ids, binary(g, "Multiply", weights, g.input("f32", [1])))


@pattern("moe-router-groups", 4)
def moe_router_groups(g, nomatch):
    """Experts of the best groups of experts."""
    p = g.op("Sqrt", [g.op("SoftPlus", [gate(g, 24)], "f32")], "f32")
    biased = binary(g, "Add", p, g.input("f32", [24]))
    if nomatch:  # a product lies between: MatMul to Add, StaticReshape, ReduceSum, MatMul and TopK
        split = reshape(g, biased, [5, 4, 6])
        sums = g.op("ReduceSum", [split], "f32", axes=[-1], keep_dims=False)
        _, ids = top_k(g, matmul(g, sums, g.input("f32", [4, 4])), 2)
        return g.output(at_indices(g, split, ids))
    _, ids = top_k(g, best_groups(g, biased, 4, 2), 3)
    return g.output(ids, shares(g, at_indices(g, p, ids)))


def mx_types():
    """Every type of codes with every type of scales on every side of a matmul and of attention, the
    other sides going round through the types."""
    codes = [
        "f8_e4m3", "f8_e5m2", "f8_e4m3fnuz", "f8_e5m2fnuz", "f6_e3m2", "f6_e2m3", "f4_e2m1", "s8",
        "u8", "s4", "u4"
    ]
    scales = ["e8m0", "f32", "f16", "bf16", "f8_e4m3"]
    lines = [
        "# Any type of codes with any type of scales on any side of one partition. Written by "
        "tools/dev/make_patterns.py."
    ]
    for i, code in enumerate(codes):
        for k, scale in enumerate(scales):
            other, third = codes[(i + 3 * k + 1) % len(codes)], codes[(i + 5 * k + 2) % len(codes)]
            pairs = [(code, scale), (other, scales[(k + i + 1) % len(scales)]),
                     (third, scales[(k + 2 * i + 3) % len(scales)])]
            for name, n in (("matmul-mx", 2), ("sdpa-mx", 3)):
                for turn in range(n):
                    turned = pairs[turn:n] + pairs[:turn]
                    dt = "+".join(f"{3 * t}:{c}+{3 * t + 1}:{s}" for t, (c, s) in enumerate(turned))
                    lines.append(
                        f"--mode=C --case=../../models/patterns/{name}.json "
                        f"--expected-n-partitions=1 --dt={dt}"
                    )
    return "\n".join(lines) + "\n"


def main():
    for name, graph in graphs().items():
        graph.write(os.path.join(ROOT, "models", "patterns", name + ".json"))
    for name, text in lists().items():
        with open(os.path.join(ROOT, "tests", "lists", name), "w", encoding="ascii") as f:
            f.write(text)


if __name__ == "__main__":
    main()
