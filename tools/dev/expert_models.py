"""A part of make_models.py: products with the experts of real networks, for any number of tokens;
the list that checks them at small sizes, and the one that measures them from memory."""
from graph_json import Graph
from weight_models import CODES, VALUES

# Name: experts, those of a token, N, K, codes, scales, group, elements of K with one scale of
# scales and offsets, in tiles (0: there are none).
EXPERTS = {
    "qwen3-30b-a3b-int4-g128": (128, 8, 768, 2048, "s4", "f16", 128, 0),
    "qwen3-30b-a3b-q4_k": (128, 8, 768, 2048, "u4", "u8", 32, 256),
    "gpt-oss-20b-mxfp4": (32, 4, 2880, 2880, "f4_e2m1", "e8m0", 32, 0),
}
# The whole MLP. Name: experts, those of a token, hidden size, size between the products, a row of
# EXPERTS with the types, and whether it is that of gpt-oss: biases, and a swish that is clamped.
MLPS = {
    "qwen3-30b-a3b-int4-g128": (128, 8, 2048, 768, "qwen3-30b-a3b-int4-g128", False),
    "qwen3-30b-a3b-q4_k": (128, 8, 2048, 768, "qwen3-30b-a3b-q4_k", False),
    "gpt-oss-20b-mxfp4": (32, 4, 2880, 2880, "gpt-oss-20b-mxfp4", True),
    # A quarter of its 256 experts, so that the tables fit into the memory of a small machine.
    "deepseek-v3-int4-g128": (64, 8, 7168, 2048, "qwen3-30b-a3b-int4-g128", False),
}
TOKENS = (1, 8, 64, 512)
SMALL = (5, 48, 512)  # experts, N, K
SMALL_MLP = (5, 512, 256)  # experts, hidden, inner
SMALL_TOKENS = (1, 7, 40)


def tables(row, experts, n, k):
    """Shapes of codes and of what dequantises them, in the order of the graph's inputs."""
    *_, group, span = row
    sides = [k // group] if not span else [k // group, k // span] * 2
    return [[experts, n, k]] + [[experts, n, groups] for groups in sides]


def weights(g, ids, row, experts, n, k):
    """The experts that the indices name, as floats [1, k of a token, n, k]."""
    dtype, scales, group, span = row[4:]
    types = [dtype, scales] if not span else [dtype, *[scales, "f16"] * 2]
    taken = []
    for kind, shape in zip(types, tables(row, experts, n, k)):
        layout = {"layout_id": VALUES if taken else CODES} if span else {}
        table = g.input(kind, shape, prop="constant", **layout)
        taken.append(g.op("Gather", [table, ids], kind, axis=0))
    codes, *sides = taken
    attrs = {}
    if span:
        attrs["zps_kind"] = "offsets"
        sides = [g.op("DynamicDequantize", sides[i:i + 2], "f32", qtype="per_group",
                      group_shape=[1, 1, 1, span // group]) for i in (0, 2)]
    return g.op("DynamicDequantize", [codes, *sides], "f32", qtype="per_group",
                group_shape=[1, 1, 1, group], **attrs)


def times(g, x, w):
    return g.op("MatMul", [x, w], "f32", transpose_a=False, transpose_b=True)


def product(row):
    experts, each, n, k = row[:4]
    g = Graph()
    x = g.input("f32", [1, 1, 1, k])
    ids = g.input("s32", [1, each])
    return g.output(times(g, x, weights(g, ids, row, experts, n, k)))


def mlp(row, tokens=1):
    """down(act(gate x) * up x) of each expert of a token, times its weight, and their sum."""
    experts, each, hidden, inner, types, gpt_oss = row
    g = Graph()
    x = g.input("f32", [tokens, 1, 1, hidden])
    ids = g.input("s32", [tokens, each])
    share = g.input("f32", [tokens, each, 1, 1])

    def dense(x, n, k):
        y = times(g, x, weights(g, ids, EXPERTS[types], experts, n, k))
        if not gpt_oss:
            return y
        table = g.input("f32", [experts, 1, n], prop="constant")
        return g.op("Add", [y, g.op("Gather", [table, ids], "f32", axis=0)], "f32")

    gate, up = dense(x, inner, hidden), dense(x, inner, hidden)
    if gpt_oss:
        limit = 7.0
        gate = g.op("Clamp", [gate], "f32", min=-3e38, max=limit)
        up = g.op("Clamp", [up], "f32", min=-limit, max=limit)
        steep, one = (g.input("f32", [1], prop="constant") for _ in range(2))
        turned = g.op("Sigmoid", [g.op("Multiply", [gate, steep], "f32")], "f32")
        gate = g.op("Multiply", [gate, turned], "f32")
        mid = g.op("Multiply", [gate, g.op("Add", [up, one], "f32")], "f32")
    else:
        act = g.op("Multiply", [gate, g.op("Sigmoid", [gate], "f32")], "f32")
        mid = g.op("Multiply", [act, up], "f32")
    y = g.op("Multiply", [dense(mid, hidden, inner), share], "f32")
    return g.output(g.op("ReduceSum", [y], "f32", axes=[1], keep_dims=False))


def models():
    """Name -> graph."""
    return ({"serving/experts-" + name: product(row) for name, row in EXPERTS.items()} |
            {"serving/moe-mlp-" + name: mlp(row) for name, row in MLPS.items()})


def line(name, row, tokens, mode, small):
    """Ids of tensors are those of the inputs as product() makes them: every other one is taken."""
    experts, n, k = SMALL if small else (row[0], row[2], row[3])
    shapes = [[tokens, 1, 1, k], [tokens, row[1]], *tables(row, experts, n, k)]
    ids = [0, 1, *range(2, 2 * len(shapes) - 2, 2)]
    words = "+".join(f"{i}:{'x'.join(map(str, s))}" for i, s in zip(ids, shapes))
    return (f"--mode={'C' if small else 'P'} --case=../../models/serving/experts-{name}.json "
            f"--in-shapes={words} --expected-n-partitions=1 --partition-fpmath=0:{mode}:true"
            + ("" if small else " --cold-cache --min-time=0.3"))


def mlp_line(name, row, tokens, mode, small):
    """As line() is for a product."""
    row = (SMALL_MLP[0], row[1], *SMALL_MLP[1:], *row[4:]) if small else row
    graph = mlp(row, tokens)
    tensors = {t["id"]: t for _, _, inputs, _ in graph.ops for t in inputs}
    words = "+".join(f"{i}:{'x'.join(map(str, tensors[i]['shape']))}" for i in graph.inputs)
    # Scales of scales as weights have them: else what lies between the products is too large for
    # rows of integers.
    scales = "+".join(f"{i}:=0.0001" for i in graph.inputs if tensors[i]["dtype"] == "f16") \
        if EXPERTS[row[4]][-1] and not small else ""
    return (f"--mode={'C' if small else 'P'} --case=../../models/serving/moe-mlp-{name}.json "
            f"--in-shapes={words}{' --in=' + scales if scales else ''} --expected-n-partitions=1 "
            f"--partition-fpmath=0:{mode}:true"
            + ("" if small else " --cold-cache --min-time=0.3"))


def lists():
    """File name -> text."""
    check = ["# Products with experts against the oracle, at small sizes."]
    speed = ["# Products with the experts of real networks, from memory: 1, 8, 64 and 512 tokens."]
    for texts, small, tokens in ((check, True, SMALL_TOKENS), (speed, False, TOKENS)):
        texts[0] += " Written by tools/dev/make_models.py."
        texts += [write(name, row, t, mode, small)
                  for rows, write in ((EXPERTS, line), (MLPS, mlp_line))
                  for name, row in rows.items() for t in tokens for mode in ("strict", "int8")]
    return {"experts.list": "\n".join(check) + "\n", "perf_experts.list": "\n".join(speed) + "\n"}
