"""A part of make_models.py: matmuls with weights in the forms that convert_weights.py makes of
other programs' files, K-quants in tiles, and weights with offsets at the size of a real network;
the list that checks the first two, the one that measures some of them, and the one that measures
the last against the same with integer zero points."""
import user_tools  # noqa: F401
from graph_json import Graph, transposed

# name: codes, scales, zero points or offsets, kind of these, group; whether the sides are stored
# [K / group, N]
FORMS = {
    "q4_0": ("s4", "f16", None, None, 32, False),
    "q4_1": ("u4", "f16", "f16", "offsets", 32, False),
    "q5_0": ("s8", "f16", None, None, 32, False),
    "q8_0": ("s8", "f16", None, None, 32, False),
    "q4_k": ("u4", "f32", "f32", "offsets", 32, False),
    "q6_k": ("s8", "f32", None, None, 16, False),
    "nvfp4": ("f4_e2m1", "f8_e4m3", None, None, 16, False),
    "awq": ("u4", "f16", "u4", "zero_points", 128, True),
    "hqq": ("u4", "f16", "f16", "zero_points", 64, False),
    "torchao-int4": ("s4", "bf16", "bf16", "offsets", 128, True),
}
# K-quants in tiles, with scales of scales, as the backend of llama.cpp has them. Name: codes and
# their layout id, scales, elements of a scale, scales of a scale of scales, whether there are
# offsets
CODES, VALUES, CODES_OF_6_BITS = 1, 3, 5  # layout ids with transpose_b, src/graph/layout.c
TILES = {
    "q4_k-tiles": ("u4", CODES, "u8", 32, 8, True),
    "q6_k-tiles": ("s8", CODES_OF_6_BITS, "s8", 16, 16, False),
}
SMALL = (4, 256, 96)  # M, K, N
# K in groups of which the last one is short: as the forms above, and K.
SHORT = {
    "s4-g128": (("s4", "f16", None, None, 128, False), 576),
    "u4-zero-points-g128": (("u4", "f16", "u4", "zero_points", 128, False), 576),
    "u4-offsets-g32": (("u4", "f16", "f16", "offsets", 32, False), 1000),
}
SHORT_N = 1536
LARGE = (1, 4096, 14336)
GROUPS = (32, 128)
FORMS_TIMED = ("q4_0", "q4_1", "q8_0", "q4_k")  # one row at LARGE
ROWS = {1: "--min-time=0.3", 4: "--min-time=0.3", 512: "--repeat=5"}


def linear(form, g, x, n):
    """x times a constant weight of a row of FORMS."""
    codes, scales, points, kind, group, turned = form
    k = x["shape"][-1]
    sides = [n, -(-k // group)]
    stride = transposed(sides) if turned else None
    inputs = [g.input(codes, [n, k], prop="constant")]
    inputs += [g.input(dtype, sides, stride, "constant") for dtype in (scales, points) if dtype]
    attrs = {"qtype": "per_group", "group_shape": [1, group]}
    if kind == "offsets":
        attrs["zps_kind"] = kind
    w = g.op("DynamicDequantize", inputs, "f32", **attrs)
    return g.op("MatMul", [x, w], "f32", transpose_a=False, transpose_b=True)


def matmul(form, m, k, n):
    g = Graph()
    return g.output(linear(form, g, g.input("f32", [m, k]), n))


def k_quant(form, m, k, n):
    """Scales, and offsets, are codes of 8 bits that have scales in f16."""
    dtype, layout, side, group, span, has_offsets = form
    g = Graph()
    x = g.input("f32", [m, k])
    codes = g.input(dtype, [n, k], prop="constant", layout_id=layout)
    inputs = [[g.input(side, [n, k // group], prop="constant", layout_id=VALUES),
               g.input("f16", [n, k // group // span], prop="constant", layout_id=VALUES)]
              for _ in range(1 + has_offsets)]
    sides = [g.op("DynamicDequantize", pair, "f32", qtype="per_group", group_shape=[1, span])
             for pair in inputs]
    attrs = {"zps_kind": "offsets"} if has_offsets else {}
    w = g.op("DynamicDequantize", [codes, *sides], "f32", qtype="per_group",
             group_shape=[1, group], **attrs)
    return g.output(g.op("MatMul", [x, w], "f32", transpose_a=False, transpose_b=True))


def floats(m, k, n):
    """A weight in f16, stored along K."""
    g = Graph()
    x, w = g.input("f32", [m, k]), g.input("f16", [n, k], prop="constant")
    return g.output(g.op("MatMul", [x, w], "f32", transpose_a=False, transpose_b=True))


def act_order(m, k, n):
    """GPTQ with groups in the order of activations: a Gather puts those of a group side by side."""
    g = Graph()
    x, order = g.input("f32", [m, k]), g.input("s32", [k], prop="constant")
    x = g.op("Gather", [x, order], "f32", axis=1)
    return g.output(linear(("u4", "f16", "u8", "zero_points", 128, True), g, x, n))


def name_of(group, kind):
    return f"matmul-u4-{kind.replace('_', '-')}-4096x14336-g{group}"


def models():
    """Name -> graph."""
    graphs = {"weight-" + name: matmul(form, *SMALL) for name, form in FORMS.items()}
    graphs |= {"weight-" + name: k_quant(form, *SMALL) for name, form in TILES.items()}
    graphs["weight-f16"] = floats(*SMALL)
    graphs["weight-gptq-act-order"] = act_order(*SMALL)
    for name, (form, k) in SHORT.items():
        graphs["weight-short-" + name] = matmul(form, 1, k, SHORT_N)
    for group in GROUPS:
        for points, kind in (("f16", "offsets"), ("u4", "zero_points")):
            graphs[name_of(group, kind)] = matmul(("u4", "f16", points, kind, group, False), *LARGE)
    return graphs


def lists():
    """File name -> text."""
    check = [
        "# Weights in the forms of other programs against the oracle, with few and many rows, in "
        "floats and in integers. Written by tools/dev/make_models.py."
    ]
    speed = [
        "# Weights with offsets, each beside the same with integer zero points: 1 and 4 rows "
        "against reading them, 512 against the FMA and int8 peaks. Written by "
        "tools/dev/make_models.py."
    ]
    forms = [
        "# Weights in the forms of other programs, 4096 x 14336, and one row: against reading "
        "them. Written by tools/dev/make_models.py."
    ]
    for name in FORMS_TIMED:
        _, k, n = LARGE
        sides = 2 if FORMS[name][2] else 1
        shapes = "+".join([f"0:1x{k}", f"1:{n}x{k}"] +
                          [f"{2 + i}:{n}x{k // FORMS[name][4]}" for i in range(sides)])
        for mode in ("strict", "int8"):
            forms.append(f"--mode=P --case=../../models/weight-{name}.json --in-shapes={shapes} "
                         f"--expected-n-partitions=1 --partition-fpmath=0:{mode}:true "
                         "--cold-cache --min-time=0.3")
    m, k, _ = SMALL
    for name in [*FORMS, *TILES, "f16"]:
        for rows in (1, m, 40):
            for mode in ("strict", "int8"):
                check.append(f"--mode=C --case=../../models/weight-{name}.json "
                             f"--in-shapes=0:{rows}x{k} --partition-fpmath=0:{mode}:true "
                             "--expected-n-partitions=1")
    for name, (_, k) in SHORT.items():
        for rows in (1, 4, 130):
            for mode in ("strict", "f16", "int8"):
                check.append(f"--mode=C --case=../../models/weight-short-{name}.json "
                             f"--in-shapes=0:{rows}x{k} --partition-fpmath=0:{mode}:true "
                             "--expected-n-partitions=1")
    # Q8_0 where it lies: one row, fours of columns that end early, panels and blocks of integers.
    check += [f"--mode=C --case=../../models/matmul-q8-blocks-variable-576x1538.json "
              f"--in-shapes=4:{rows}x576 --partition-fpmath=0:{mode}:true --expected-n-partitions=1"
              for rows in (1, 5, 16, 17, 70) for mode in ("strict", "bf16", "int8")]
    # Scales and offsets with stride 0 along K: in memory, all groups share one value.
    for name, sides in (("q4_0", "2:48x8*1x0"), ("q4_1", "2:48x8*1x0+3:48x8*1x0")):
        check += [f"--mode=C --case=../../models/weight-{name}.json --in-shapes=0:{rows}x256+"
                  f"1:48x256+{sides} --partition-fpmath=0:{mode}:true --expected-n-partitions=1"
                  for rows in (1, 40) for mode in ("strict", "int8")]
    check.append("--mode=C --case=../../models/weight-gptq-act-order.json "
                 "--in=1:=200,37,74,0,148,255,222,3 --expected-n-partitions=2")
    for rows, time in ROWS.items():
        for group in GROUPS:
            for kind in ("offsets", "zero_points"):
                for mode in ("strict", "int8"):
                    speed.append(f"--mode=P --case=../../models/{name_of(group, kind)}.json "
                                 f"--in-shapes=0:{rows}x{LARGE[1]} --expected-n-partitions=1 "
                                 f"--partition-fpmath=0:{mode}:true --cold-cache {time}")
    return {"weight_forms.list": "\n".join(check) + "\n",
            "perf_weight_forms.list": "\n".join(forms) + "\n",
            "perf_offsets.list": "\n".join(speed) + "\n"}
