"""A part of make_models.py: the list that measures matmuls with compressed weights over shapes,
types, modes and numbers of rows. Lines are rewrites of two graphs, one with zero points and one
without."""

SHAPES = [(4096, 4096), (14336, 4096), (4096, 14336), (2880, 2880)]  # N, K
MODES = ("strict", "f16", "bf16", "int8")
# M -> how long a line measures: passes over memory between the runs take most of the time of few
# rows
ROWS = {1: "--min-time=0.3", 4: "--min-time=0.3", 32: "--min-time=0.3", 512: "--repeat=5"}
# name: type, scales, zero points, group along K
STORED = {
    "s4-g128": ("s4", "f16", None, 128),
    "s4-g32": ("s4", "f16", None, 32),
    "s4-zp-g128": ("s4", "f16", "s4", 128),
    "s4-zp-g32": ("s4", "f16", "s4", 32),
    "u4-g128": ("u4", "f16", None, 128),
    "u4-g32": ("u4", "f16", None, 32),
    "u4-zp-g128": ("u4", "f16", "u4", 128),
    "u4-zp-g32": ("u4", "f16", "u4", 32),
    "mxfp4": ("f4_e2m1", "e8m0", None, 32),
    "s8-g128": ("s8", "f16", None, 128),
}
# M 32 is measured for one type only: how rows share the work is much the same for all of them.
SOME_32 = [("s4-g32", n, k, 32, mode) for n, k in ((4096, 4096), (14336, 4096))
           for mode in ("strict", "f16", "int8")]
ZERO_POINTS, SCALED = "matmul-int4-4096x14336-g128", "matmul-mxfp4-2880x2880"


def line(stored, n, k, m, mode):
    dtype, scale, zero_point, group = STORED[stored]
    groups = k // group
    sides = [scale, zero_point] if zero_point else [scale]
    shapes = [f"0:{m}x{k}", f"1:{n}x{k}"] + [f"{2 + i}:{n}x{groups}" for i in range(len(sides))]
    types = [f"{1 + i}:{name}" for i, name in enumerate([dtype, *sides])]
    words = [
        "--mode=P", f"--case=../../models/{ZERO_POINTS if zero_point else SCALED}.json",
        "--in-shapes=" + "+".join(shapes), f"--op-attrs=0:groups:{groups}",
        "--dt=" + "+".join(types), "--expected-n-partitions=1", f"--partition-fpmath=0:{mode}:true"
    ]
    return " ".join([*words, "--cold-cache", ROWS[m]])


def all_cells(m):
    return [(stored, n, k, m, mode) for stored in STORED for n, k in SHAPES
            if k % STORED[stored][3] == 0 for mode in MODES]


def cells():
    """(stored, N, K, M, mode) of each line of the list, in its order. Groups divide K."""
    return [*all_cells(1), *all_cells(4), *SOME_32, *all_cells(512)]


def lists():
    """File name -> text."""
    head = [
        "# Matmul with compressed weights, N x K of 4096 x 4096, 14336 x 4096, 4096 x 14336, 2880 "
        "x 2880: 1 and 4 rows against reading the weights,",
        "# 32 rows against the roofline, 512 rows against the FMA and int8 peaks. About ten "
        "minutes. Written by tools/dev/make_models.py."
    ]
    return {"perf_matmul.list": "\n".join([*head, *(line(*cell) for cell in cells())]) + "\n"}
