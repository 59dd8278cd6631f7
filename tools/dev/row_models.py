"""A part of make_models.py: graphs that work on rows (norms, rotary embedding, rows by index,
reductions, Concat, TopK, SoftMax) and the list that measures them. 4096 rows of 4096 floats take
64 MiB and come from memory; one row comes from the cache."""
import user_tools  # noqa: F401
from graph_json import Graph

COLUMNS = 4096
ROWS = 4096
HEAD = 128


def norm(kind, residual=False, dtype="f32"):
    """[rows, COLUMNS]; with a residual: x + y is an output, too."""
    g = Graph()
    shape = [ROWS, COLUMNS]
    x = g.input(dtype, shape)
    if residual:
        x = g.op("Add", [x, g.input(dtype, shape)], dtype)
        g.output(x)
    params = [g.input("f32", [COLUMNS]) for _ in range(2 if kind == "LayerNorm" else 1)]
    attrs = {"keep_stats": False} if kind == "LayerNorm" else {}
    return g.output(g.op(kind, [x, *params], dtype, epsilon=1e-6, **attrs))


def group_norm():
    g = Graph()
    x, *params = g.input("f32", [16, 256, 64, 64]), g.input("f32", [256]), g.input("f32", [256])
    return g.output(
        g.op("GroupNorm", [x, *params], "f32", groups=32, keep_stats=False, data_format="NCX"))


def turned(g, x, tables=8192):
    positions = g.input("s32", [x["shape"][0], x["shape"][2]])
    cos, sin = (g.input("f32", [tables, HEAD // 2]) for _ in range(2))
    return g.op("RotaryEmbedding", [x, cos, sin, positions], x["dtype"])


def rotary():
    g = Graph()
    return g.output(turned(g, g.input("f32", [1, 32, ROWS, HEAD])))


def hadamard(block):
    g = Graph()
    x = g.input("f32", [1, 32, ROWS, HEAD])
    return g.output(g.op("HadamardTransform", [x], "f32", block_size=block))


def append(codes, transform=False):
    """K is turned and goes as codes with scales for groups of 32 into a cache; with `transform` it
    is multiplied by a Hadamard matrix before."""
    g = Graph()
    tokens, cache = 4096, 8192
    slots = g.input("s32", [tokens])
    x = turned(g, g.input("f32", [1, 8, tokens, HEAD]))
    x = g.op("HadamardTransform", [x], "f32") if transform else x
    parts = [(codes, HEAD), ("f16", HEAD // 32)]
    made = [g.tensor(dtype, [1, 8, tokens, n]) for dtype, n in parts]
    g.op_to("DynamicQuantize", [x], made, qtype="per_group", group_shape=[1, 1, 1, 32],
            quantization_kind="dynamic_symmetric")
    for part, (dtype, n) in zip(made, parts):
        data = g.input(dtype, [1, 8, cache, n])
        g.output(g.op("ScatterRows", [data, slots, part], dtype, axis=2))
    return g


def gather(dtype, table=32768):
    g = Graph()
    data, ids = g.input(dtype, [table, COLUMNS]), g.input("s32", [ROWS])
    return g.output(g.op("Gather", [data, ids], dtype, axis=0))


def scatter(dtype, table=8192):
    g = Graph()
    data, slots = g.input(dtype, [table, COLUMNS]), g.input("s32", [ROWS])
    return g.output(
        g.op("ScatterRows", [data, slots, g.input(dtype, [ROWS, COLUMNS])], dtype, axis=0))


def reduce(kind, *axes):
    g = Graph()
    return g.output(
        g.op("Reduce" + kind, [g.input("f32", [ROWS, COLUMNS])], "f32", axes=list(axes),
             keep_dims=False))


def cumsum(axis, **attrs):
    g = Graph()
    return g.output(
        g.op("CumSum", [g.input("f32", [ROWS, COLUMNS])], "f32", axis=axis, **attrs))


def concat(shapes, axis):
    g = Graph()
    return g.output(g.op("Concat", [g.input("f32", shape) for shape in shapes], "f32", axis=axis))


def top_k(rows, columns, k):
    g = Graph()
    x = g.input("f32", [rows, columns])
    out = [g.tensor(dtype, [rows, k]) for dtype in ("f32", "s32")]
    return g.output(*g.op_to("TopK", [x], out, k=k, axis=-1, largest=True))


def softmax():
    g = Graph()
    return g.output(g.op("SoftMax", [g.input("f32", [ROWS, COLUMNS])], "f32", axis=-1))


def slices(starts, ends, steps, shape):
    """Of both dims of a matrix."""
    g = Graph()
    x, y = g.input("f32", [ROWS, COLUMNS]), g.tensor("f32", shape)
    return g.output(*g.op_to("Slice", [x], [y], starts=starts, ends=ends, axes=[0, 1], steps=steps))


def batch_norm():
    g = Graph()
    x, params = g.input("f32", [16, 256, 64, 64]), [g.input("f32", [256]) for _ in range(4)]
    return g.output(
        g.op("BatchNormInference", [x, *params], "f32", epsilon=1e-5, data_format="NCX"))


def dropout():
    """As networks have it that were trained: behind a residual sum."""
    g = Graph()
    shape = [ROWS, COLUMNS]
    x = g.op("Add", [g.input("f32", shape), g.input("f32", shape)], "f32")
    scalars = [g.input(dtype, [], prop="host_scalar") for dtype in ("s64", "s64", "f32")]
    return g.output(g.op("Dropout", [x, *scalars], "f32"))


KINDS = ("Sum", "Mean", "Max")


def measured():
    """Name -> graph, of those in perf_rows.list."""
    graphs = {
        "rms-norm": norm("RMSNorm"),
        "rms-norm-residual": norm("RMSNorm", True),
        "rms-norm-residual-bf16": norm("RMSNorm", True, "bf16"),
        "layer-norm": norm("LayerNorm"),
        "layer-norm-residual": norm("LayerNorm", True),
        "group-norm": group_norm(),
        "rotary": rotary(),
        "append-s8": append("s8"),
        "append-s4": append("s4"),
        "append-hadamard-s4": append("s4", True),
        "hadamard": hadamard(0),
        "concat-last": concat([[ROWS, 3072], [ROWS, 1024]], -1),
        "concat-middle": concat([[1, 32, 3072, HEAD], [1, 32, 1024, HEAD]], 2),
        "top-8-of-128": top_k(65536, 128, 8),
        "top-8-of-32000": top_k(512, 32000, 8),
        "softmax": softmax(),
        "cumsum-last": cumsum(-1),
        "cumsum-first": cumsum(0),
    }
    for kind in KINDS:
        graphs[f"reduce-{kind.lower()}-last"] = reduce(kind, -1)
        graphs[f"reduce-{kind.lower()}-first"] = reduce(kind, 0)
    for dtype in ("f16", "s8", "s4"):
        graphs[f"gather-{dtype}"] = gather(dtype)
    graphs["scatter-f16"] = scatter("f16")
    return {"rows-" + name: graph for name, graph in graphs.items()}


def models():
    """Name -> graph."""
    graphs = {
        "batch-norm": batch_norm(),
        "dropout": dropout(),
        "hadamard-blocks": hadamard(64),
        "slice": slices([16, 1], [-16, COLUMNS], [1, 2], [ROWS - 32, COLUMNS // 2]),
        "slice-back": slices([-1, -1], [-ROWS - 1, 0], [-1, -3], [ROWS, COLUMNS // 3]),
    }
    for kind in ("L1", "L2", "Min", "Prod"):
        graphs[f"reduce-{kind.lower()}"] = reduce(kind, -1)
    graphs["cumsum-back"] = cumsum(-1, exclusive=True, reverse=True)
    graphs["reduce-l1-none"] = reduce("L1")  # no axes: the identity
    return measured() | {"rows-" + name: graph for name, graph in graphs.items()}


# The same graphs with one row: name, knobs.
ONE_ROW = [
    ("rms-norm", f"0:1x{COLUMNS}"),
    ("rms-norm-residual", f"0:1x{COLUMNS}+1:1x{COLUMNS}"),
    ("rms-norm-residual-bf16", f"0:1x{COLUMNS}+1:1x{COLUMNS}"),
    ("layer-norm", f"0:1x{COLUMNS}"),
    ("layer-norm-residual", f"0:1x{COLUMNS}+1:1x{COLUMNS}"),
    ("rotary", f"0:1x32x1x{HEAD}+1:1x1"),
    ("append-s8", f"0:1+1:1x8x1x{HEAD}+2:1x1"),
    ("append-s4", f"0:1+1:1x8x1x{HEAD}+2:1x1"),
    ("append-hadamard-s4", f"0:1+1:1x8x1x{HEAD}+2:1x1"),
    ("gather-f16", f"0:256x{COLUMNS}+1:1"),
    ("reduce-sum-last", f"0:1x{COLUMNS}"),
    ("top-8-of-128", "0:1x128"),
    ("softmax", f"0:1x{COLUMNS}"),
]


# The same graphs in small: rows in batches, batches that end early, rows one by one, and rows
# longer than what is kept in place.
SMALL = [
    ("rms-norm", ["0:1x4096", "0:7x4096", "0:333x40", "0:3x20000"]),
    ("rms-norm-residual", ["0:5x4096+1:5x4096", "0:77x100+1:77x100", "0:2x20001+1:2x20001"]),
    ("rms-norm-residual-bf16", ["0:5x4096+1:5x4096", "0:77x100+1:77x100"]),
    ("layer-norm", ["0:5x4096", "0:333x40", "0:2x20001"]),
    ("layer-norm-residual", ["0:5x4096+1:5x4096", "0:41x100+1:41x100"]),
    ("rotary", ["0:1x32x1x128+1:1x1", "0:2x3x37x128+1:2x37", "0:1x8x64x128+1:1x64"]),
    ("append-s8", ["0:1+1:1x8x1x128+2:1x1", "0:37+1:1x8x37x128+2:1x37"]),
    ("append-s4", ["0:1+1:1x8x1x128+2:1x1", "0:37+1:1x8x37x128+2:1x37"]),
    ("append-hadamard-s4", ["0:1+1:1x8x1x128+2:1x1", "0:37+1:1x8x37x128+2:1x37"]),
    ("hadamard", ["0:1x32x1x128", "0:2x3x37x64", "0:5x1x3x256", "0:1x1x3x4096", "0:1x1x9x2",
                  "0:1x1x3x1"]),
    ("hadamard-blocks", ["0:3x1x5x192", "0:1x1x3x4096"]),
    ("softmax", ["0:5x4096"]),
    ("reduce-sum-last", ["0:5x4096", "0:77x100"]),
    ("reduce-sum-first", ["0:5x4096", "0:77x100"]),
    ("reduce-max-last", ["0:5x4096", "0:77x101"]),
    ("reduce-max-first", ["0:5x4096", "0:77x101"]),
    ("cumsum-last", ["0:5x4096", "0:77x101"]),
    ("cumsum-first", ["0:5x4096", "0:77x101"]),
    ("cumsum-back", ["0:5x4096", "0:77x101"]),
    ("top-8-of-128", ["0:33x128", "0:5x13"]),
    ("top-8-of-32000", ["0:3x32000"]),
    ("gather-f16", ["0:256x4096+1:5"]),
    ("gather-s8", ["0:256x4096+1:37"]),
    ("gather-s4", ["0:256x4096+1:37"]),
    ("scatter-f16", ["0:64x4096+1:5+2:5x4096"]),
    ("batch-norm", ["0:2x256x5x7", "0:1x256x64x64"]),
    ("dropout", ["0:5x4096+1:5x4096"]),
    ("slice", ["0:64x4096", "0:77x31"]),
    ("slice-back", ["0:64x4096", "0:77x31"]),
    ("reduce-l1", ["0:5x4096", "0:77x101"]),
    ("reduce-l2", ["0:5x4096", "0:77x101"]),
    ("reduce-min", ["0:5x4096", "0:77x101"]),
    ("reduce-prod", ["0:5x16", "0:77x7"]),
    ("reduce-l1-none", ["0:5x4096", "0:77x101"]),
]


def small_shapes(name, shapes):
    """Parameters of norms have as many elements as a row."""
    columns, biases = shapes.split("+")[0].split("x")[-1], 2 if "layer" in name else 1
    if "norm" in name and name != "batch-norm":
        first = shapes.count("+") + 1
        if "residual" in name:
            first += 1
        shapes += "".join(f"+{first + i}:{columns}" for i in range(biases))
    return shapes


def lists():
    """File name -> text."""
    check = [
        "# Rows in small, in batches and one by one, against the oracle. Written by "
        "tools/dev/make_models.py."
    ]
    for name, all_shapes in SMALL:
        check += [
            f"--mode=C --case=../../models/rows-{name}.json "
            f"--in-shapes={small_shapes(name, shapes)} --expected-n-partitions=1{threads}"
            for shapes in all_shapes for threads in ("", " --threads=3")
        ]
    lines = [
        "# Rows against this machine's copy bandwidth: from memory, and one row from the cache. "
        "Written by tools/dev/make_models.py."
    ]
    lines += [f"--mode=P --case=../../models/{name}.json --cold-cache" for name in measured()]
    lines += [
        f"--mode=P --case=../../models/rows-{name}.json --in-shapes={shapes}"
        for name, shapes in ONE_ROW
    ]
    return {"perf_rows.list": "\n".join(lines) + "\n", "rows.list": "\n".join(check) + "\n"}
