"""A part of make_models.py: graphs that decode, encode by given scales or move elements, and the
list that measures them. Each takes 64 MiB on its wider side."""
import user_tools  # noqa: F401
from graph_json import Graph, transposed

COLUMNS = 4096
ROWS = {"f32": 4096, "f16": 8192, "bf16": 8192, "s8": 16384}  # 64 MiB

# name, codes, scales, zero points, group of each dim (0: all of it)
DEQUANTISE = [
    ("s8-g32", "s8", "f16", None, [1, 32]),
    ("s8-g128", "s8", "f32", None, [1, 128]),
    ("u8-zp-g128", "u8", "f16", "u8", [1, 128]),
    ("s4-g32", "s4", "f16", None, [1, 32]),
    ("s4-g128", "s4", "f16", None, [1, 128]),
    ("u4-zp-g32", "u4", "f16", "u4", [1, 32]),
    ("u4-zp-g128", "u4", "f16", "u4", [1, 128]),
    ("f8_e4m3-mx-g32", "f8_e4m3", "e8m0", None, [1, 32]),
    ("f8_e5m2-mx-g32", "f8_e5m2", "e8m0", None, [1, 32]),
    ("f6_e2m3-mx-g32", "f6_e2m3", "e8m0", None, [1, 32]),
    ("f6_e3m2-mx-g32", "f6_e3m2", "e8m0", None, [1, 32]),
    ("f4_e2m1-mx-g32", "f4_e2m1", "e8m0", None, [1, 32]),
    ("f4_e2m1-nv-g16", "f4_e2m1", "f8_e4m3", None, [1, 16]),
    ("f8_e4m3fnuz-g128", "f8_e4m3fnuz", "f32", None, [1, 128]),
    ("f8_e5m2fnuz-g128", "f8_e5m2fnuz", "f32", None, [1, 128]),
    ("s8-token", "s8", "f32", "s8", [1, 0]),
    ("s8-channel", "s8", "f32", "s8", [0, 1]),
    ("s8-4x4", "s8", "f32", None, [4, 4]),
    ("f8_e4m3-mx-32x32", "f8_e4m3", "e8m0", None, [32, 32]),
    ("u4-zp-256x256", "u4", "f16", "u4", [256, 256]),
    ("s8-32x1", "s8", "f16", None, [32, 1]),
    ("u4-zp-32x1", "u4", "f16", "u4", [32, 1]),
    ("f4_e2m1-mx-32x1", "f4_e2m1", "e8m0", None, [32, 1]),
]


def dequantise(codes, scale, zero_point, group):
    g = Graph()
    shape = [ROWS["f32"], COLUMNS]
    group = [size or dim for size, dim in zip(group, shape)]
    inputs = [g.input(codes, shape)] + [
        g.input(dtype, [dim // n for dim, n in zip(shape, group)])
        for dtype in (scale, zero_point) if dtype
    ]
    return g.output(g.op("DynamicDequantize", inputs, "f32", qtype="per_group", group_shape=group))


def static(kind, source, to, axis):
    """Quantize or Dequantize with scales and zero points in the graph: one, or one for each element
    along axis."""
    g = Graph()
    shape = [4096, COLUMNS]
    n = 1 if axis is None else shape[axis]
    attrs = {"qtype": "per_tensor"} if axis is None else {"qtype": "per_channel", "axis": axis}
    return g.output(
        g.op(kind, [g.input(source, shape)], to, scales=[2.0**-(4 + i % 3) for i in range(n)],
             zps=[i % 5 for i in range(n)], **attrs))


def move(kind, dtype, stride=None):
    g = Graph()
    return g.output(g.op(kind, [g.input(dtype, [ROWS[dtype], COLUMNS], stride)], dtype))


def models():
    """Name -> graph."""
    graphs = {"dequantise-" + name: dequantise(*row) for name, *row in DEQUANTISE}
    graphs["dequantise-u8-static"] = static("Dequantize", "u8", "f32", None)
    graphs["quantise-u8-static"] = static("Quantize", "f32", "u8", None)
    graphs["quantise-s8-static-channel"] = static("Quantize", "f32", "s8", 0)
    graphs["typecast"] = move("TypeCast", "f32")
    graphs["transpose"] = move("Reorder", "f32", transposed([ROWS["f32"], COLUMNS]))
    return graphs


def resized(zero_point, group, rows, columns, strides=""):
    """Knobs that give a model of DEQUANTISE another shape."""
    group = [size or dim for size, dim in zip(group, [rows, columns])]
    scales = f"{rows // group[0]}x{columns // group[1]}"
    shapes = f"--in-shapes=0:{rows}x{columns}{strides}+1:{scales}" + (f"+2:{scales}"
                                                                      if zero_point else "")
    return f"{shapes} --op-attrs=0:group_shape:{group[0]}x{group[1]}"


def small_commands():
    for name, _, _, zero_point, group in DEQUANTISE:
        for i, out in enumerate(("f32", "f16", "bf16")):
            rows = 256 if group[0] == 256 else 32
            columns = 256 if group[1] == 256 else 384
            strides = ("", "*ba", f"*{448}x1")[i]
            yield (f"dequantise-{name}.json {resized(zero_point, group, rows, columns, strides)} "
                   f"--dt={3 if zero_point else 2}:{out}")
    yield from ("dequantise-u8-static.json --in-shapes=0:33x70",
                "quantise-u8-static.json --in-shapes=0:33x70")
    yield "quantise-s8-static-channel.json --in-shapes=0:4096x5"
    types = ("f32", "f16", "bf16", "s8", "u8", "s4", "u4", "f8_e5m2", "f8_e4m3", "f8_e5m2fnuz",
             "f8_e4m3fnuz", "f6_e3m2", "f6_e2m3", "f4_e2m1")
    for i, source in enumerate(types):
        yield f"transpose.json --in-shapes=0:76x144 --dt=0:{source}+1:{source}"
        to = types[(i + 3) % len(types)]
        yield f"typecast.json --in-shapes=0:77x146{'*ba' if i % 2 else ''} --dt=0:{source}+1:{to}"


def commands():
    for name, _, _, zero_point, group in DEQUANTISE:
        yield f"dequantise-{name}.json"
        for out in ("f16", "bf16") if group[0] == 1 and group[1] != 0 else ():
            yield (f"dequantise-{name}.json {resized(zero_point, group, ROWS[out], COLUMNS)} "
                   f"--dt={3 if zero_point else 2}:{out}")
    yield from ("dequantise-u8-static.json", "quantise-u8-static.json",
                "quantise-s8-static-channel.json")
    for source, to in (("f32", "f32"), ("f32", "bf16"), ("f16", "f32"), ("f32", "f8_e4m3"),
                       ("f8_e5m2", "f32"), ("f32", "s8")):
        yield f"typecast.json --dt=0:{source}+1:{to}"
    for source, to in (("f32", "bf16"), ("s8", "f32"), ("s4", "f32")):
        yield f"typecast.json --in-shapes=0:{ROWS['f32']}x{COLUMNS}*ba --dt=0:{source}+1:{to}"
    yield "transpose.json"
    for dtype in ("f16", "s8"):
        yield f"transpose.json --in-shapes=0:{ROWS[dtype]}x{COLUMNS} --dt=0:{dtype}+1:{dtype}"


def lists():
    """File name -> text."""
    lines = [
        "# Decoding, encoding by given scales, casts and transpositions against this machine's "
        "copy bandwidth. Written by tools/dev/make_models.py."
    ]
    check = [
        "# The same graphs in small, with transposed and loose inputs, against the oracle. "
        "Written by tools/dev/make_models.py."
    ]
    lines += [f"--mode=P --case=../../models/{command} --cold-cache" for command in commands()]
    check += [
        f"--mode=C --case=../../models/{command} --expected-n-partitions=1"
        for command in small_commands()
    ]
    return {
        "perf_dequantise.list": "\n".join(lines) + "\n",
        "dequantise.list": "\n".join(check) + "\n"
    }
