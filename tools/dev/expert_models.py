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
TOKENS = (1, 8, 64, 512)
SMALL = (5, 48, 512)  # experts, N, K
SMALL_TOKENS = (1, 7, 40)


def tables(row, experts, n, k):
    """Shapes of codes and of what dequantises them, in the order of the graph's inputs."""
    *_, group, span = row
    sides = [k // group] if not span else [k // group, k // span] * 2
    return [[experts, n, k]] + [[experts, n, groups] for groups in sides]


def product(row):
    experts, each, n, k, dtype, scales, group, span = row
    g = Graph()
    x = g.input("f32", [1, 1, 1, k])
    ids = g.input("s32", [1, each])
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
    w = g.op("DynamicDequantize", [codes, *sides], "f32", qtype="per_group",
             group_shape=[1, 1, 1, group], **attrs)
    return g.output(g.op("MatMul", [x, w], "f32", transpose_a=False, transpose_b=True))


def models():
    """Name -> graph."""
    return {"serving/experts-" + name: product(row) for name, row in EXPERTS.items()}


def line(name, row, tokens, mode, small):
    """Ids of tensors are those of the inputs as product() makes them: every other one is taken."""
    experts, n, k = SMALL if small else (row[0], row[2], row[3])
    shapes = [[tokens, 1, 1, k], [tokens, row[1]], *tables(row, experts, n, k)]
    ids = [0, 1, *range(2, 2 * len(shapes) - 2, 2)]
    words = "+".join(f"{i}:{'x'.join(map(str, s))}" for i, s in zip(ids, shapes))
    return (f"--mode={'C' if small else 'P'} --case=../../models/serving/experts-{name}.json "
            f"--in-shapes={words} --expected-n-partitions=1 --partition-fpmath=0:{mode}:true"
            + ("" if small else " --cold-cache --min-time=0.3"))


def lists():
    """File name -> text."""
    check = ["# Products with experts against the oracle, at small sizes."]
    speed = ["# Products with the experts of real networks, from memory: 1, 8, 64 and 512 tokens."]
    for texts, small, tokens in ((check, True, SMALL_TOKENS), (speed, False, TOKENS)):
        texts[0] += " Written by tools/dev/make_models.py."
        texts += [line(name, row, t, mode, small) for name, row in EXPERTS.items() for t in tokens
                  for mode in ("strict", "int8")]
    return {"experts.list": "\n".join(check) + "\n", "perf_experts.list": "\n".join(speed) + "\n"}
