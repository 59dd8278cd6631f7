"""A part of make_models.py: multi-head latent attention, whose values are the first elements of its
keys, for one token and for prompts; the list that checks it at small sizes, and the one that
measures it from memory. Shapes and types of a line are rewrites of its graph."""
from graph_json import Graph

KEY, VALUE = 576, 512  # elements of a token
HEADS = 128
# Name: codes, scales, group along the token (0: none).
STORED = {
    "f16": ("f16", None, 0),
    "bf16": ("bf16", None, 0),
    "s8-g32": ("s8", "f16", 32),
    "s4-g32": ("s4", "f16", 32),
    "mxfp4": ("f4_e2m1", "e8m0", 32),
}
# Tokens of the query, tokens of the cache.
CELLS = {"decode": ((1, 4096), (1, 16384)), "prefill": ((512, 512), )}
SMALL = {"decode": ((1, 4096), (1, 77)), "prefill": ((9, 40), )}
SMALL_HEADS = {"decode": 19, "prefill": 5}


def first(g, x, group=1):
    """The part of a tensor of tokens that has the values."""
    return g.op("Slice", [x], x["dtype"], starts=[0], ends=[VALUE // group], axes=[3])


def dequantised(g, codes, scales, group):
    return g.op("DynamicDequantize", [codes, scales], "f32", qtype="per_group",
                group_shape=[1, 1, 1, group])


def attention(what, stored):
    """The heads are rows that share one cache. Of a decoded token, codes and scales are sliced; of
    a prompt, what is dequantised is."""
    dtype, scale, group = STORED[stored]
    s, t = CELLS[what][0]
    g = Graph()
    float_type = "f32" if scale else dtype
    q = g.input(float_type, [1, HEADS, s, KEY])
    cache = [g.input(dtype, [1, 1, t, KEY])]
    if scale:
        cache.append(g.input(scale, [1, 1, t, KEY // group]))
    k = dequantised(g, *cache, group) if scale else cache[0]
    scores = g.op("MatMul", [q, k], "f32", transpose_a=False, transpose_b=True)
    scores = g.op("Multiply", [scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    if what == "prefill":
        row = g.op("GenIndex", [scores], "s32", axis=2)
        column = g.op("GenIndex", [scores], "s32", axis=3)
        keep = g.op("GreaterEqual", [row, column], "boolean", auto_broadcast="numpy")
        scores = g.op("Select", [keep, scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    p = g.op("SoftMax", [scores], float_type, axis=-1, mode="inf_as_zero")
    if scale and what == "decode":
        v = dequantised(g, first(g, cache[0]), first(g, cache[1], group), group)
    else:
        v = first(g, k)
    return g.output(g.op("MatMul", [p, v], float_type, transpose_a=False, transpose_b=False))


# The graph of the others that are scaled is that of s8.
GRAPHS = ("f16", "s8-g32")
SLICED = {1: 8, 2: 9}  # tensors of codes and scales, and those of their parts


def models():
    """Name -> graph."""
    return {f"serving/latent-{what}-{stored}": attention(what, stored)
            for what in CELLS for stored in GRAPHS}


def line(what, stored, s, t, mode, small=False):
    dtype, scale, group = STORED[stored]
    heads = SMALL_HEADS[what] if small else HEADS
    shapes = {0: [1, heads, s, KEY], 1: [1, 1, t, KEY]}
    if scale:
        shapes[2] = [1, 1, t, KEY // group]
    words = [f"--mode={'C' if small else 'P'}",
             f"--case=../../models/serving/latent-{what}-{'s8-g32' if scale else 'f16'}.json",
             "--in-shapes=" + "+".join(f"{i}:{'x'.join(map(str, n))}" for i, n in shapes.items())]
    if stored == "bf16":
        words.append("--dt=bf16")
    if scale and stored != "s8-g32":
        types = {1: dtype, 2: scale}
        if what == "decode":
            types |= {of: types[i] for i, of in SLICED.items()}
        words.append("--dt=" + "+".join(f"{i}:{t}" for i, t in types.items()))
    words += ["--expected-n-partitions=1", f"--partition-fpmath=0:{mode}:true"]
    return " ".join(words + ([] if small else ["--cold-cache", "--min-time=0.3"]))


def modes_of(stored):
    return ("strict", "int8") if STORED[stored][1] else ("strict", stored)


def lists():
    """File name -> text."""
    check = ["# Multi-head latent attention against the oracle, at small sizes."]
    speed = ["# Multi-head latent attention of 128 heads, from memory: one token, and a prompt."]
    for texts, cells in ((check, SMALL), (speed, CELLS)):
        texts[0] += " Written by tools/dev/make_models.py."
        texts += [line(what, stored, s, t, mode, cells is SMALL) for what in cells
                  for stored in STORED for s, t in cells[what] for mode in modes_of(stored)]
    return {"latent.list": "\n".join(check) + "\n", "perf_latent.list": "\n".join(speed) + "\n"}
