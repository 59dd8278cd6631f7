"""A part of make_models.py: the list that measures matmuls with compressed weights over types,
modes, numbers of rows and some shapes. Lines are rewrites of a few small graphs."""

LARGE, SQUARE, WIDE = (14336, 4096), (4096, 4096), (4096, 14336)  # N, K
MODES = ("strict", "f16", "bf16", "int8")
# M -> N, K. Fewer rows are bound by memory, more by arithmetic.
ROWS = {1: LARGE, 4: LARGE, 8: LARGE, 16: LARGE, 32: LARGE, 128: SQUARE, 512: SQUARE}
# Name: graph, its new data types or None, its new group along K or None, for how many elements of K
# each of its other inputs has a value. Activations and results are f32.
ZERO_POINTS, OFFSETS = (f"matmul-u4-{kind}-4096x14336-g" for kind in ("zero-points", "offsets"))
FOUR_BITS = {
    "s4-g32": ("weight-q4_0", None, None, [32]),
    "u4-zp-g128": (ZERO_POINTS + "128", None, None, [128, 128]),
    "u4-offsets-g32": (OFFSETS + "32", None, None, [32, 32]),
    "mxfp4": ("weight-q4_0", "1:f4_e2m1+2:e8m0", None, [32]),
    "q4_k": ("weight-q4_k-tiles", None, None, [32, 256, 32, 256]),
    "nvfp4": ("weight-nvfp4", None, None, [16]),
    "s4-g128": ("weight-q4_0", None, 128, [128]),
    "u4-zp-g32": (ZERO_POINTS + "32", None, None, [32, 32]),
    "u4-offsets-g128": (OFFSETS + "128", None, None, [128, 128]),
}
EIGHT_BITS = {
    "s8-g32": ("weight-q8_0", None, None, [32]),
    "q6_k": ("weight-q6_k-tiles", None, None, [16, 256]),
    "s8-g128": ("weight-q8_0", None, 128, [128]),
}
FLOATS = {
    "f16": ("weight-f16", None, None, []),
    "bf16": ("weight-f16", "1:bf16", None, []),
}
STORED = FOUR_BITS | EIGHT_BITS | FLOATS
# Measured at other shapes; and in the other modes.
TYPICAL = ("s4-g32", "u4-zp-g128")
DRAWN = ("s4-g128", "s4-g32", "u4-zp-g128", "u4-zp-g32", "mxfp4", "s8-g128")


def line(stored, n, k, m, mode):
    """Weights and a pass over other memory alternate, so that weights come from memory whatever
    the size of the caches is (--cold-cache)."""
    graph, types, group, sides = STORED[stored]
    shapes = [f"0:{m}x{k}", f"1:{n}x{k}"]
    shapes += [f"{2 + i}:{n}x{k // elements}" for i, elements in enumerate(sides)]
    words = ["--mode=P", f"--case=../../models/{graph}.json", "--in-shapes=" + "+".join(shapes)]
    if group:
        words.append(f"--op-attrs=0:group_shape:1x{group}")
    if types:
        words.append("--dt=" + types)
    words += ["--expected-n-partitions=1", f"--partition-fpmath=0:{mode}:true", "--cold-cache"]
    # Passes over memory between the runs take most of the time of few rows.
    return " ".join([*words, "--repeat=5" if m > 32 else "--min-time=0.3"])


def modes_of(stored):
    return ("strict", ) if stored in FLOATS else ("strict", "int8")


def cells():
    """(stored, N, K, M, mode) of each line of the list, in its order."""
    found = [(stored, *shape, m, mode) for m, shape in ROWS.items() for stored in STORED
             for mode in modes_of(stored)]
    found += [(stored, *shape, m, mode) for m in (1, 4) for shape in (SQUARE, WIDE)
              for stored in TYPICAL for mode in ("strict", "int8")]
    return found + [(stored, *ROWS[m], m, mode) for m in (1, 512) for stored in DRAWN
                    for mode in ("f16", "bf16")]


def lists():
    """File name -> text."""
    head = [
        "# Matmul with weights of 4, 8 and 16 bits from memory: 1 and 4 rows against reading the "
        "weights, 8 and more rows against the FMA and int8 peaks.",
        "# About ten minutes. Written by tools/dev/make_models.py."
    ]
    return {"perf_matmul.list": "\n".join([*head, *(line(*cell) for cell in cells())]) + "\n"}
