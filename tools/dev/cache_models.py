"""A part of make_models.py: attention over caches that lie in tiles, the append that writes tokens
into them, and the shift of keys, which take other positions; the list that checks them at small
sizes, and the one that measures them from memory."""
from graph_json import Graph
from weight_models import CODES, VALUES

BLOCKS = 32  # layout id of codes in blocks without transpose_b, src/graph/layout.c
HEADS_K, HEADS_V, HEADS_VALUES = 33, 36, 37  # of caches [tokens, heads, head]
HEADS, QUERIES, HEAD, TOKENS = 8, 4, 128, 4096  # of Llama 3 8B
MOVED = 256  # tokens of a shift
# Name: codes, scales, group of the head, kind of quantisation of an append (None: plain floats).
CACHES = {
    "s4-g32": ("s4", "f16", 32, "dynamic_symmetric"),
    "s8-g32": ("s8", "f16", 32, "dynamic_symmetric"),
    "mxfp4": ("f4_e2m1", "e8m0", 32, "dynamic_mx"),
    "f16": ("f16", None, 0, None),
}
SMALL = (2, 3, 64)  # heads of K and V, queries of each, elements of a head
SMALL_TOKENS = (48, 256, 512)
SMALL_ROWS = (1, 5, 13)  # tokens of a batch: 3, 15 and 39 rows
ROWS = (1, 4, 512)
# Tokens that compile does not know, rows, mode, and whether the graph writes a token before.
OPEN = ((48, 1, "strict", False), (512, 5, "int8", False), (256, 13, "f16", False),
        (48, 5, "int8", True), (256, 1, "strict", True), (768, 13, "strict", True),
        (512, 1, "int8", True))


def cache(g, row, is_v, heads=HEADS, t=TOKENS, d=HEAD):
    """K or V, whose tokens are columns of tiles but for codes of V, as floats."""
    dtype, scale, group, _ = row
    codes = g.input(dtype, [1, heads, 1, t, d], layout_id=BLOCKS if is_v else CODES)
    if not scale:
        return codes
    scales = g.input(scale, [1, heads, 1, t, d // group], layout_id=VALUES)
    return g.op("DynamicDequantize", [codes, scales], "f32", qtype="per_group",
                group_shape=[1, 1, 1, 1, group])


def decode(row):
    g = Graph(apply_to_int=True)
    dtype = "f32" if row[1] else row[0]
    q = g.input(dtype, [1, HEADS, QUERIES, 1, HEAD])
    scores = g.op("MatMul", [q, cache(g, row, False)], "f32", transpose_a=False, transpose_b=True)
    scores = g.op("Multiply", [scores, g.input("f32", [1])], "f32")
    p = g.op("SoftMax", [scores], dtype, axis=-1, mode="inf_as_zero")
    v = cache(g, row, True)
    return g.output(g.op("MatMul", [p, v], dtype, transpose_a=False, transpose_b=False))


def with_token(g, row, caches, slots):
    """What the caches are when a token has been written at a slot, as outputs of the graph."""
    dtype, scale, group, kind = row
    new = [g.input("f32" if scale else dtype, [1, HEADS, HEAD])]
    if scale:
        x, new = new[0], [g.tensor(dtype, [1, HEADS, HEAD]),
                          g.tensor(scale, [1, HEADS, HEAD // group])]
        g.op_to("DynamicQuantize", [x], new, quantization_kind=kind, qtype="per_group",
                group_shape=[1, 1, group])
    after = []
    for data, tokens in zip(caches, new):
        like = {key: value for key, value in data.items() if key in ("dtype", "shape")}
        out = g.tensor(like["dtype"], like["shape"], layout_id=data["layout_id"])
        after += g.op_to("ScatterRows", [data, slots, tokens], [out], axis=0)
    return after


def side_by_side(g, row, is_v, slots=None):
    """The same where the heads of a token are side by side: [tokens, heads, head]. With slots, a
    token is written before; then the second result has the caches."""
    dtype, scale, group, _ = row
    caches = [g.input(dtype, [TOKENS, HEADS, HEAD], layout_id=HEADS_V if is_v else HEADS_K)]
    kind = "f32" if scale else dtype
    if scale:
        caches.append(g.input(scale, [TOKENS, HEADS, HEAD // group], layout_id=HEADS_VALUES))
    if slots:
        caches = with_token(g, row, caches, slots)
    x = caches[0]
    if scale:
        x = g.op("DynamicDequantize", caches, kind, qtype="per_group",
                 group_shape=[1, 1, group])
    x = g.op("StaticTranspose", [x], kind, order=[1, 0, 2])
    return g.op_to("StaticReshape", [x], [g.tensor(kind, [HEADS, 1, TOKENS, HEAD])],
                   shape=[HEADS, 1, -1, HEAD], special_zero=False)[0], caches if slots else []


def decode_heads(row, writes=False):
    g = Graph(apply_to_int=True)
    dtype = "f32" if row[1] else row[0]
    q = g.input(dtype, [HEADS, QUERIES, 1, HEAD])
    slots = g.input("s32", [1]) if writes else None
    k, written = side_by_side(g, row, False, slots)
    scores = g.op("MatMul", [q, k], "f32", transpose_a=False, transpose_b=True)
    scores = g.op("Multiply", [scores, g.input("f32", [1])], "f32")
    p = g.op("SoftMax", [scores], dtype, axis=-1, mode="inf_as_zero")
    v, more = side_by_side(g, row, True, slots)
    y = g.op("MatMul", [p, v], dtype, transpose_a=False, transpose_b=False)
    return g.output(y, *written, *more)


def append(row):
    """One token of K and of V."""
    dtype, scale, group, kind = row
    g = Graph(apply_to_int=True)
    slots = g.input("s32", [1])
    outputs = []
    for codes_id in (CODES, BLOCKS):
        x = g.input("f32" if scale else dtype, [1, HEADS, 1, HEAD])
        parts = [(x, dtype, HEAD, codes_id)]
        if scale:
            codes, scales = (g.tensor(t, [1, HEADS, 1, n]) for t, n in
                             ((dtype, HEAD), (scale, HEAD // group)))
            g.op_to("DynamicQuantize", [x], [codes, scales], quantization_kind=kind,
                    qtype="per_group", group_shape=[1, 1, 1, group])
            parts = [(codes, dtype, HEAD, codes_id), (scales, scale, HEAD // group, VALUES)]
        for new, kept, n, layout in parts:
            data = g.input(kept, [1, HEADS, TOKENS, n], layout_id=layout)
            out = g.tensor(kept, [1, HEADS, TOKENS, n], layout_id=layout)
            outputs += g.op_to("ScatterRows", [data, slots, new], [out], axis=2)
    return g.output(*outputs)


def shift(row):
    """Tokens of K go to other places of the cache, turned by what their positions change by."""
    dtype, scale, group, kind = row
    g = Graph(apply_to_int=True)
    places, slots, by = (g.input("s32", dims) for dims in ([MOVED], [MOVED], [1, MOVED]))
    frequencies = g.input("f32", [HEAD // 2])
    parts = [(dtype, HEAD, CODES)] + ([(scale, HEAD // group, VALUES)] if scale else [])
    kept = [g.input(t, [1, HEADS, TOKENS, n], layout_id=layout) for t, n, layout in parts]
    taken = [g.op("Gather", [x, places], t, axis=2) for x, (t, _, _) in zip(kept, parts)]
    x = g.op("DynamicDequantize", taken, "f32", qtype="per_group",
             group_shape=[1, 1, 1, group]) if scale else taken[0]
    x = g.op("RotaryEmbedding", [x, frequencies, by], "f32" if scale else dtype)
    new = [x]
    if scale:
        new = [g.tensor(t, [1, HEADS, MOVED, n]) for t, n, _ in parts]
        g.op_to("DynamicQuantize", [x], new, quantization_kind=kind, qtype="per_group",
                group_shape=[1, 1, 1, group])
    outputs = []
    for tokens, data, (t, n, layout) in zip(new, kept, parts):
        out = g.tensor(t, [1, HEADS, TOKENS, n], layout_id=layout)
        outputs += g.op_to("ScatterRows", [data, slots, tokens], [out], axis=2)
    return g.output(*outputs)


def models():
    """Name -> graph."""
    return ({f"serving/decode-tiles-{name}": decode(row) for name, row in CACHES.items()} |
            {f"serving/decode-heads-{name}": decode_heads(row) for name, row in CACHES.items()} |
            {f"serving/step-heads-{name}": decode_heads(row, True)
             for name, row in CACHES.items()} |
            {f"serving/append-tiles-{name}": append(row) for name, row in CACHES.items()} |
            {f"serving/shift-tiles-{name}": shift(row) for name, row in CACHES.items()})


def decode_line(name, row, rows, mode, small, tokens=TOKENS):
    """Ids are those of the inputs as decode() makes them."""
    heads, queries, head = SMALL if small else (HEADS, QUERIES, HEAD)
    graph = decode(row)
    tensors = {t["id"]: t for _, _, inputs, _ in graph.ops for t in inputs}
    shapes = {}
    for i in graph.inputs:
        shape = list(tensors[i]["shape"])
        if len(shape) == 5:
            shape[1] = heads
            shape[4] = head if shape[4] == HEAD else head // row[2]
            shape[2:4] = [1, tokens] if shape[3] == TOKENS else [queries, rows]
            shapes[i] = "x".join(map(str, shape))
    words = "+".join(f"{i}:{shape}" for i, shape in shapes.items())
    return (f"--mode={'C' if small else 'P'} --case=../../models/serving/decode-tiles-{name}.json "
            f"--in-shapes={words} --expected-n-partitions=1 --partition-fpmath=0:{mode}:true"
            + ("" if small else " --cold-cache --min-time=0.3"))


def heads_line(name, row, rows, mode, small, tokens=TOKENS, writes=False, is_open=False):
    """The same for decode_heads(). is_open: compile does not know the number of tokens."""
    heads, queries, head = SMALL if small else (HEADS, QUERIES, HEAD)
    graph = decode_heads(row, writes)
    tensors = {t["id"]: t for _, _, inputs, _ in graph.ops for t in inputs}
    shapes, unknown = {}, {}
    for i in graph.inputs:
        shape = list(tensors[i]["shape"])
        is_cache = shape[0] == TOKENS
        if len(shape) == 3:
            shape = [tokens if is_cache else shape[0], heads,
                     head if shape[2] == HEAD else head // row[2]]
        elif len(shape) == 4:
            shape = [heads, queries, rows, head]
        shapes[i] = "x".join(map(str, shape))
        if is_cache and is_open:
            unknown[i] = "x".join(["?"] + shapes[i].split("x")[1:])
    words = "+".join(f"{i}:{shape}" for i, shape in shapes.items())
    if unknown:
        words += " --dynamic=" + "+".join(f"{i}:{shape}" for i, shape in unknown.items())
    case = f"{'step' if writes else 'decode'}-heads-{name}"
    attrs = "+".join(f"{i}:shape:{heads}x1x-1x{head}" for i, (kind, *_) in enumerate(graph.ops)
                     if kind == "StaticReshape")
    return (f"--mode={'C' if small else 'P'} --case=../../models/serving/{case}.json "
            f"--in-shapes={words} --op-attrs={attrs} "
            + (f"--attr-fpmath={mode}:true" if writes else
               f"--expected-n-partitions=1 --partition-fpmath=0:{mode}:true")
            + ("" if small else " --cold-cache --min-time=0.3"))


def lists():
    """File name -> text."""
    check = ["# Attention over caches in tiles, appends and shifts of these, against the oracle."]
    speed = ["# Attention over caches in tiles, appends and shifts of tokens, from memory."]
    for texts in (check, speed):
        texts[0] += " Written by tools/dev/make_models.py."
    for name, row in CACHES.items():
        modes = ("strict", "f16", "int8") if row[1] else ("strict",)
        check += [decode_line(name, row, rows, mode, True, tokens) for tokens in SMALL_TOKENS
                  for rows in SMALL_ROWS for mode in modes]
        speed += [decode_line(name, row, rows, mode, False) for rows in ROWS for mode in modes]
        check += [heads_line(name, row, rows, mode, True, tokens) for tokens in SMALL_TOKENS
                  for rows in SMALL_ROWS for mode in modes]
        speed += [heads_line(name, row, 1, mode, False) for mode in modes]
        check += [heads_line(name, row, rows, mode, True, tokens, writes, True)
                  for tokens, rows, mode, writes in OPEN if mode in modes]
        for what in ("append", "shift"):
            case = f"--case=../../models/serving/{what}-tiles-{name}.json"
            check.append(f"--mode=C {case}")
            speed.append(f"--mode=P {case} --min-time=0.3")
    return {"caches.list": "\n".join(check) + "\n", "perf_caches.list": "\n".join(speed) + "\n"}
