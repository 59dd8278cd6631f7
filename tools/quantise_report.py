#!/usr/bin/env python3
"""What a weight or a recorded cache loses in each of Sinter's formats: bits per element, relative
error and the worst group, as a table and a picture.

quantise_report.py weight.npy --plot=weight.svg
quantise_report.py keys.npy --rotate=64

The last dim (or --axis) is divided into groups, of which the last one may be shorter. With
--rotate=64|128|256 a second column has the errors of vectors that were multiplied with a Hadamard
matrix before. Needs NumPy, and matplotlib for the picture; they are installed into build/tools-venv
where they are missing."""
import argparse
import dataclasses
import fnmatch
import sys
import typing

import tools_venv

tools_venv.enter("numpy", "matplotlib")

import numpy as np

import number_formats as formats

ROW = 0  # a group for each row
GROUPS = (16, 32, 64, 128, 256, ROW)
ROTATIONS = (64, 128, 256)
AT_ONCE = 1 << 18  # elements, so that arrays of them stay in the caches


@dataclasses.dataclass(frozen=True)
class Format:
    """How codes are made (a function of number_formats), the types of codes, scales, and of zero
    points or offsets, and the groups to try."""
    name: str
    make: typing.Callable
    codes: str
    scales: str
    points: str | None
    groups: tuple = GROUPS


FORMATS = [
    Format("s8", formats.symmetric, "s8", "f16", None),
    Format("u8 + zero points", formats.asymmetric, "u8", "f16", "u8"),
    Format("s4", formats.symmetric, "s4", "f16", None),
    Format("u4 + zero points", formats.asymmetric, "u4", "f16", "u4"),
    Format("u4 + offsets", formats.with_offsets, "u4", "f16", "f16"),
    Format("f8_e4m3", formats.symmetric, "f8_e4m3", "f32", None, (128, ROW)),
    Format("f8_e5m2", formats.symmetric, "f8_e5m2", "f32", None, (128, ROW)),
    Format("MXFP8 e4m3", formats.mx, "f8_e4m3", "e8m0", None, (32,)),
    Format("MXFP8 e5m2", formats.mx, "f8_e5m2", "e8m0", None, (32,)),
    Format("MXFP6 e2m3", formats.mx, "f6_e2m3", "e8m0", None, (32,)),
    Format("MXFP6 e3m2", formats.mx, "f6_e3m2", "e8m0", None, (32,)),
    Format("MXFP4", formats.mx, "f4_e2m1", "e8m0", None, (32,)),
    Format("MXFP4 rceil", formats.mx_rceil, "f4_e2m1", "e8m0", None, (32,)),
    Format("NVFP4", formats.nv, "f4_e2m1", "f8_e4m3", None, (16,)),
]


def bits_per_element(row, n, group):
    """Of rows of n elements."""
    sides = formats.BITS[row.scales] + (formats.BITS[row.points] if row.points else 0)
    return formats.BITS[row.codes] + sides * -(-n // group) / n


def dequantised(row, codes, scale, point):
    x = formats.decode(row.codes, codes)
    if row.points == "f16":
        return scale * x + point
    return scale * (x if point is None else x - point)


def squares(x):
    return np.square(x.astype(np.float64)).sum(axis=1)


def errors(row, x, group):
    """Relative error of x [rows, K], that of the worst group, both in the sense of L2."""
    whole_groups = x.shape[1] // group * group
    arguments = ()
    if row.make is formats.nv:  # the greatest group has the greatest scale
        arguments = (max(np.abs(x).max() / np.float32(6 * 448), np.float32(2.0**-126)),)
    parts = [x[:, :whole_groups].reshape(-1, group), x[:, whole_groups:]]
    wrong, whole, worst = 0.0, 0.0, 0.0
    for part in (part for groups in parts if groups.size
                 for part in np.array_split(groups, -(-groups.size // AT_ONCE))):
        made = row.make(part, row.codes, row.scales, *arguments)
        lost, own = squares(dequantised(row, *made) - part), squares(part)
        wrong, whole = wrong + lost.sum(), whole + own.sum()
        share = np.divide(lost, own, out=np.zeros_like(lost), where=own > 0)
        worst = max(worst, share.max(initial=0))
    return np.sqrt(wrong / whole) if whole > 0 else 0.0, np.sqrt(worst)


def hadamard(n):
    """Orthonormal and symmetric, of a power of two."""
    h = np.ones((1, 1))
    while len(h) < n:
        h = np.block([[h, h], [h, -h]])
    return h / np.sqrt(n)


def rotated(x, n):
    """Every n elements of a row times the matrix: as exact as f32."""
    turned = x.astype(np.float64).reshape(-1, n) @ hadamard(n)
    return turned.astype(np.float32).reshape(x.shape)


def measured(options, x):
    """(format, group, bits per element, errors, errors of rotated vectors or None) for each format
    whose groups are no longer than the rows."""
    turned = rotated(x, options.rotate) if options.rotate else None
    for row in FORMATS:
        if not fnmatch.fnmatchcase(row.name, options.only):
            continue
        for wanted in row.groups:
            group = wanted or x.shape[1]
            if group <= x.shape[1] and (wanted != ROW or group not in row.groups):
                name = "row" if wanted == ROW else f"g{group}"
                yield (row, name, bits_per_element(row, x.shape[1], group), errors(row, x, group),
                       errors(row, turned, group) if options.rotate else None)


def table(options, rows):
    """Markdown."""
    head = ["format", "groups", "bits per element", "error", "worst group"]
    head += [f"error, rotated {options.rotate}", "worst group"] if options.rotate else []
    yield "| " + " | ".join(head) + " |"
    yield "|" + "---|" * len(head)
    for row, group, bits, *found in rows:
        shares = [f"{100 * share:.3g} %" for pair in found if pair for share in pair]
        yield f"| {row.name} | {group} | {bits:.3g} | {' | '.join(shares)} |"


def draw(options, rows):
    import matplotlib

    matplotlib.use("svg" if options.plot.endswith(".svg") else "agg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "sinter", "font.size": 9})
    import matplotlib.pyplot as plt

    figure, axis = plt.subplots(figsize=(8, 5))
    names = list(dict.fromkeys(row.name for row, *_ in rows))
    for i, name in enumerate(names):
        own = sorted((bits, group, plain, turned)
                     for row, group, bits, plain, turned in rows if row.name == name)
        style = {"marker": "osD^vP*"[i // 10], "color": f"C{i % 10}"}
        axis.plot([r[0] for r in own], [r[2][0] for r in own], label=name, **style)
        if options.rotate:
            axis.plot([r[0] for r in own], [r[3][0] for r in own], linestyle=":", fillstyle="none",
                      **style)
        for bits, group, plain, _ in own:
            axis.annotate(group, (bits, plain[0]), fontsize=6, xytext=(3, 3),
                          textcoords="offset points")
    axis.set_yscale("log")
    axis.set_xlabel("bits per element")
    axis.set_ylabel("relative error (L2)" + (", dotted: rotated" if options.rotate else ""))
    axis.grid(True, which="both", alpha=0.3)
    axis.legend(fontsize=7)
    figure.tight_layout()
    figure.savefig(options.plot, metadata={"Date": None} if options.plot.endswith(".svg") else None)


def load(options):
    """The elements as f32 rows, groups along the last dim."""
    try:
        x = np.load(options.file, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise formats.FormatError(f"is no .npy file of numbers: {error}") from None
    if not isinstance(x, np.ndarray) or x.dtype.kind != "f" or x.size == 0 or x.ndim == 0:
        raise formats.FormatError("has no floats")
    if not -x.ndim <= options.axis < x.ndim:
        raise formats.FormatError(f"has no dim {options.axis}: {list(x.shape)}")
    x = np.moveaxis(x, options.axis, -1).astype(np.float32)
    if not np.isfinite(x).all():
        raise formats.FormatError("has NaN or infinities in f32")
    x = x.reshape(-1, x.shape[-1])
    if options.rotate and x.shape[1] % options.rotate:
        raise formats.FormatError(f"rows of {x.shape[1]} elements do not divide into vectors of "
                                  f"{options.rotate}")
    return x


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("file", help="a .npy of floats")
    parser.add_argument("--axis", type=int, default=-1, help="the dim with the groups (-1)")
    parser.add_argument("--rotate", type=int, choices=ROTATIONS, help="size of a Hadamard matrix")
    parser.add_argument("--only", default="*", help="a pattern of formats' names")
    parser.add_argument("--plot", help="a .svg or .png")
    return parser.parse_args()


def main():
    options = parse()
    try:
        x = load(options)
        rows = list(measured(options, x))
        if not rows:
            raise formats.FormatError(f"has rows of {x.shape[1]} elements, which are too short for "
                                      f"groups of {options.only}")
        if options.plot:
            draw(options, rows)
    except (formats.FormatError, OSError) as error:
        print(f"quantise_report: {options.file}: {error}", file=sys.stderr)
        return 1
    print("\n".join(table(options, rows)))
    return 0


if __name__ == "__main__":
    sys.exit(main())
