"""A part of make_models.py: attention as it is measured, in one graph for each way of storing K and
V, and the list that measures it over head counts, lengths and types. Shapes and types of a line are
rewrites of its graph."""
import functools

import user_tools  # noqa: F401
from graph_json import Graph, transposed

# Inputs in this order: query, then for K (before the scale) and V (last) codes, scales, zero points
# if any.
# name, type, scales, zero points, group along the head
STORED = {
    "s4-zp-g32": ("s4", "f16", "s4", 32),
    "u4-zp-g128": ("u4", "f16", "u4", 128),
    "mxfp4": ("f4_e2m1", "e8m0", None, 32),
    "s8-g32": ("s8", "f16", None, 32),
    "mxfp8-e4m3": ("f8_e4m3", "e8m0", None, 32),
    "mxfp8-e5m2": ("f8_e5m2", "e8m0", None, 32),
    "f16": ("f16", None, None, 0),
    "f32": ("f32", None, None, 0),
    "u4-zp-g32": ("u4", "f16", "u4", 32),
} | {f"u4-{kind}-g{group}": ("u4", "f16", "f16", group) for kind in ("offsets", "float-zp")
     for group in (32, 128)}
# Graph -> what it is written for.
GRAPHS = {"zp": "s4-zp-g32", "offsets": "u4-offsets-g32", "scaled": "s8-g32", "float": "f16"}
TILED = "-tiles"  # of the name of a graph whose caches lie in tiles
BASE = {"decode": (32, 1, 128, 1, 4096), "prefill": (8, 4, 128, 1024, 1024)}


def shapes(kv_heads, per_kv, head, s, t, group):
    """Shapes of the query, of K and of V; of K and V with groups of the head if there are any."""
    query = [1, kv_heads, per_kv, s, head]
    k = [1, kv_heads, 1, head, t]
    v = [1, kv_heads, 1, t, head]
    if not group:
        return query, k, v, None, None
    return query, k, v, [*k[:3], head // group, t], [*v[:4], head // group]


# Layout ids of caches in tiles, src/graph/layout.c, by the axis of the head: of codes and of
# values. K has tokens as the last dim here, V has the head.
TILES = {3: (2, 4), 4: (32, 3)}


def cache(g, dtype, scale, zero_point, shape, scale_shape, axis, group_shape=None, tiles=False,
          **attributes):
    """K or V with one row of the head for each token in memory, or in tiles. axis: that of the
    head; attributes: of the DynamicDequantize."""
    stride = transposed if axis == 3 else lambda _: None
    codes, values = TILES[axis] if tiles else (None, None)
    data = g.input(dtype, shape, None if tiles else stride(shape), layout_id=codes)
    if not scale:
        return data
    sides = [
        g.input(side, scale_shape, None if tiles else stride(scale_shape), layout_id=values)
        for side in (scale, zero_point) if side
    ]
    group_shape = group_shape or [n // groups for n, groups in zip(shape, scale_shape)]
    return g.op("DynamicDequantize", [data, *sides], "f32", qtype="per_group",
                group_shape=group_shape, **attributes)


def attention(stored, kv_heads, per_kv, head, s, t, causal, tiles=False):
    dtype, scale, zero_point, group = STORED[stored]
    query, k_shape, v_shape, k_scales, v_scales = shapes(kv_heads, per_kv, head, s, t, group)
    float_type = "f32" if scale else dtype
    kind = {"zps_kind": "offsets"} if graph_of(stored) == "offsets" else {}
    g = Graph(apply_to_int=True)
    q = g.input(float_type, query)
    k = cache(g, dtype, scale, zero_point, k_shape, k_scales, 3, tiles=tiles, **kind)
    scores = g.op("MatMul", [q, k], "f32", transpose_a=False, transpose_b=False)
    scores = g.op("Multiply", [scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    if causal:
        row = g.op("GenIndex", [scores], "s32", axis=3)
        column = g.op("GenIndex", [scores], "s32", axis=4)
        keep = g.op("GreaterEqual", [row, column], "boolean", auto_broadcast="numpy")
        scores = g.op("Select", [keep, scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    p = g.op("SoftMax", [scores], float_type, axis=-1, mode="inf_as_zero")
    v = cache(g, dtype, scale, zero_point, v_shape, v_scales, 4, tiles=tiles, **kind)
    return g.output(g.op("MatMul", [p, v], float_type, transpose_a=False, transpose_b=False))


# Caches whose last group is short, along the head or along tokens: types, head, tokens and sizes.
SHORT = {
    "head-96-g64": ("s4", "f16", "s4", 96, 259, (64, 1)),
    "head-80-g64": ("s8", "f16", None, 80, 259, (64, 1)),
    "tokens-g32": ("s8", "f16", None, 64, 77, (1, 32)),
}


def short(dtype, scale, zero_point, head, t, sizes):
    """Eight queries for two heads of K and V. sizes: of a group, along head and tokens."""
    def side(axis):
        shape, group_shape = [1, 2, 1, t, t], [1, 1, 1, sizes[1], sizes[1]]
        shape[axis], group_shape[axis] = head, sizes[0]
        scale_shape = [-(-n // size) for n, size in zip(shape, group_shape)]
        return cache(g, dtype, scale, zero_point, shape, scale_shape, axis, group_shape)

    g = Graph(apply_to_int=True)
    scores = g.op("MatMul", [g.input("f32", [1, 2, 4, 1, head]), side(3)], "f32",
                  transpose_a=False, transpose_b=False)
    p = g.op("SoftMax", [scores], "f32", axis=-1, mode="inf_as_zero")
    return g.output(g.op("MatMul", [p, side(4)], "f32", transpose_a=False, transpose_b=False))


def short_lines():
    """One query and many. Mode int8 leaves scores of random codes too open to check anything."""
    for name, (*_, head, _, _) in SHORT.items():
        for rows in (1, 40):
            for mode in ("strict", "f16"):
                yield (f"--mode=C --case=../../models/attention-short-{name}.json "
                       f"--in-shapes=0:1x2x4x{rows}x{head} --partition-fpmath=0:{mode}:true "
                       "--expected-n-partitions=1")


@functools.cache
def models():
    """Name -> graph."""
    return {f"attention-{what}-{graph}{TILED * tiles}":
            attention(stored, *BASE[what], what == "prefill", tiles)
            for what in BASE for graph, stored in GRAPHS.items() for tiles in (False, True)
            } | {f"attention-short-{name}": short(*row) for name, row in SHORT.items()}


def graph_of(stored):
    _, scale, zero_point, _ = STORED[stored]
    if "offsets" in stored:
        return "offsets"
    return "zp" if zero_point else "scaled" if scale else "float"


def dims(shape):
    return "x".join(str(n) for n in shape)


def case(what, stored, kv_heads, per_kv, head, s, t, tiles=False):
    """The options that make a graph of models() this one."""
    name = f"attention-{what}-{graph_of(stored)}{TILED * tiles}"
    graph = models()[name]
    dtype, scale, zero_point, group = STORED[stored]
    query, k, v, k_scales, v_scales = shapes(kv_heads, per_kv, head, s, t, group)
    sides = [side for side in (scale, zero_point) if side]
    scalars = len(graph.inputs) - 3 - 2 * len(sides)  # between K and V: the scale, what masks
    at_v = 1 + 1 + len(sides) + scalars
    by_input = [query, k, *[k_scales] * len(sides)] + [None] * scalars
    by_input += [v, *[v_scales] * len(sides)]
    types = [None, dtype, *sides] + [None] * scalars + [dtype, *sides]
    assert len(by_input) == len(graph.inputs) and at_v == len(by_input) - 1 - len(sides)
    words = [f"--case=../../models/{name}.json"]
    words.append("--in-shapes=" + "+".join(f"{i}:{dims(shape)}"
                                           for i, shape in zip(graph.inputs, by_input) if shape))
    if not scale:
        return words + ([f"--dt={dtype}"] if dtype != "f16" else [])
    if stored != GRAPHS[graph_of(stored)]:
        words.append("--dt=" + "+".join(f"{i}:{dtype}"
                                        for i, dtype in zip(graph.inputs, types) if dtype))
    group_shapes = [
        dims(n // m for n, m in zip(shape, scales))
        for shape, scales in ((k, k_scales), (v, v_scales))
    ]
    ops = [i for i, (kind, *_) in enumerate(graph.ops) if kind == "DynamicDequantize"]
    words.append("--op-attrs=" + "+".join(f"{op}:group_shape:{group_shape}"
                                          for op, group_shape in zip(ops, group_shapes)))
    return words


def line(what, stored, shape, mode, cold=True, tiles=False):
    words = ["--mode=P", *case(what, stored, *shape, tiles), "--expected-n-partitions=1"]
    if mode != "strict":
        words.append(f"--partition-fpmath=0:{mode}:true")
    return " ".join(words + (["--cold-cache"] if cold else []))


COMPRESSED = ["s4-zp-g32", "u4-zp-g128", "mxfp4", "s8-g32", "mxfp8-e4m3", "mxfp8-e5m2"]
# Codes that mode int8 multiplies as integers.
INTEGERS = ("s4-zp-g32", "u4-zp-g128", "mxfp4", "s8-g32", "u4-zp-g32", "u4-offsets-g32",
            "u4-offsets-g128", "u4-float-zp-g32", "u4-float-zp-g128")
# Heads of K and V, queries for each, size of a head: what is stored.
DECODE = {
    (32, 1, 128): [*COMPRESSED, "f16"],
    (8, 4, 128): [*COMPRESSED, "f16"],
    (8, 8, 64): ["mxfp4", "s8-g32"],
}
VERIFY, VERIFIED = (32, 1, 128), ("s8-g32", "s4-zp-g32")


def modes_of(stored):
    return ("strict", "f16", "int8") if stored in INTEGERS else ("strict", "f16")


def decode_cells():
    """(stored, shape, mode) of one query for each head."""
    for t in (4096, 16384):
        for heads, stored_types in DECODE.items():
            for stored in stored_types:
                for mode in modes_of(stored):
                    yield stored, (*heads, 1, t), mode


def decode_lines():
    yield from (line("decode", *cell) for cell in decode_cells())
    for threads in (1, 2):
        yield line("decode", "s4-zp-g32",
                   (1, 1, 128, 1, 131072), "strict") + f" --threads={threads}"


def verify_cells():
    """Several queries at once for each head, as a draft is verified."""
    for s in (4, 8):
        for stored in VERIFIED:
            for mode in ("strict", "f16", "int8"):
                yield stored, (*VERIFY, s, 4096), mode


def overhead_lines():
    for t in (1, 32):
        yield line("decode", "s8-g32", (1, 1, 32, 1, t), "strict", False) + " --threads=1"


def prefill_cells():
    """As many queries as tokens."""
    for head in (128, 64):
        for n in (1024, 4096):
            for stored in ("s4-zp-g32", "mxfp8-e4m3", "f16", "f32"):
                for mode in modes_of(stored):
                    yield stored, (8, 4, head, n, n), mode


def prefill_line(stored, shape, mode, tiles=False):
    return line("prefill", stored, shape, mode, tiles=tiles) + " --max-scratch-per-thread=2097152"


def tiles_lines():
    """Caches in tiles: what the lines of strided ones measure."""
    yield from (line("decode", *cell, tiles=True) for cell in decode_cells())
    yield from (line("decode", *cell, tiles=True) for cell in verify_cells())
    yield from (prefill_line(*cell, tiles=True) for cell in prefill_cells())


def offset_lines():
    """Integer zero points, offsets and zero points that are floats beside each other."""
    for kv_heads, per_kv, s, t in ((32, 1, 1, 4096), (8, 4, 1, 4096)):
        for group in (32, 128):
            for mode in ("strict", "f16", "int8"):
                for kind in ("zp", "offsets", "float-zp"):
                    yield line("decode", f"u4-{kind}-g{group}", (kv_heads, per_kv, 128, s, t), mode)
    for group in (32, 128):
        for mode in ("strict", "int8"):
            for kind in ("zp", "offsets", "float-zp"):
                yield prefill_line(f"u4-{kind}-g{group}", (8, 4, 128, 512, 512), mode)


def lists():
    """File name -> text."""
    head = [
        "# Attention against this machine's limits: bytes of K and V against reading them, "
        "products that are not masked against the FMA peak.",
        "# One query: 32/32 and 32/8 heads of 128, 64/8 of 64; all threads at one long head."
    ]
    parts = [
        *decode_lines(),
        "# One query over next to nothing, hot: what an execute costs besides its kernel.",
        *overhead_lines(), "# Four and eight queries for each of 32/32 heads.",
        *(line("decode", *cell) for cell in verify_cells()),
        "# Causal, as many queries as tokens.", *(prefill_line(*cell) for cell in prefill_cells())
    ]
    head[0] += " Written by tools/dev/make_models.py."
    offsets = [
        "# Caches of 4 bits with integer zero points, offsets and zero points that are floats: one "
        "query for 32/32 and 32/8 heads, and prompts. Written by tools/dev/make_models.py.",
        *offset_lines()
    ]
    tiles = ["# Caches in tiles. Written by tools/dev/make_models.py.", *tiles_lines()]
    return {
        "perf_attention.list": "\n".join(head + parts) + "\n",
        "perf_attention_tiles.list": "\n".join(tiles) + "\n",
        "perf_attention_offsets.list": "\n".join(offsets) + "\n"
    }
