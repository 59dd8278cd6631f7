#!/usr/bin/env python3
"""Measures matmuls with compressed weights with graph_runner and draws docs/matmul.svg: for one row
of A the fraction of the bandwidth that reading has, for 512 rows the speed in units of the FMA
peak; medians over the shapes of tests/lists/perf_matmul.list. Takes some five minutes."""
import itertools
import re
import statistics
import sys

import matmul_models
import plotting

STORED = {
    "s4-g128": "s4\ng128",
    "s4-g32": "s4\ng32",
    "u4-zp-g128": "u4+zp\ng128",
    "u4-zp-g32": "u4+zp\ng32",
    "mxfp4": "MXFP4",
    "s8-g128": "s8\ng128"
}
LIMITS = re.compile(r"FMA f32 ([\d.e+-]+) GFLOP/s, VNNI int8 ([\d.e+-]+)")
MEDIAN = re.compile(
    r"median +[\d.e+-]+ ms: [\d.e+-]+ GFLOP/s = ([\d.e+-]+) of FMA peak.*= ([\d.e+-]+) of read "
    r"bandwidth"
)


def parse(cells, text):
    """(M, stored, mode) -> [(fraction of the FMA peak, fraction of reading)] over the shapes, and
    what the VNNI peak is in FMA peaks."""
    rows = {}
    for (stored, _, _, m, mode), found in zip(cells, MEDIAN.findall(text), strict=True):
        rows.setdefault((m, stored, mode), []).append(tuple(map(float, found)))
    fma, vnni = max(tuple(map(float, found)) for found in LIMITS.findall(text))
    return rows, vnni / fma


def measure(options):
    """All cells that are drawn and graph_runner's output for them, measured in runs that take less
    than a minute each."""
    cells = [cell for cell in matmul_models.cells() if cell[0] in STORED and cell[3] in (1, 512)]
    text = ""
    for (stored, m), some in itertools.groupby(cells, lambda cell: (cell[0], cell[3])):
        print(f"M {m} {stored}", flush=True)
        text += plotting.measure(options, [matmul_models.line(*cell) for cell in some])
    return cells, text


def report(rows, vnni):
    for (m, stored, mode), found in rows.items():
        peaks, reads = ([f"{value:.2f}" for value in values] for values in zip(*found))
        unit = f"of the FMA peak: {' '.join(peaks)}" if m > 16 else f"of reading: {' '.join(reads)}"
        share = ""
        if m > 16 and mode == "int8" and vnni:
            share = f" of the VNNI peak: {' '.join(f'{peak / vnni:.2f}' for peak, _ in found)}"
        print(f"M {m:3} {stored:10} {mode:6} {unit}{share}")


def draw(rows, vnni, options):
    plt = plotting.pyplot(options)
    figure, axes = plt.subplots(1, 2, figsize=(9, 4))
    panels = ((1, 1, "1 row: fraction of read bandwidth", [1]),
              (512, 0, "512 rows: speed, f32 FMA peak = 1", [1, vnni]))
    for axis, (m, column, title, limits) in zip(axes, panels):
        for i, mode in enumerate(matmul_models.MODES):
            heights = [
                statistics.median(found[column] for found in rows[m, stored, mode])
                for stored in STORED
            ]
            axis.bar([x + 0.2 * i - 0.3 for x in range(len(STORED))], heights, 0.2, color=f"C{i}",
                     label=mode)
        for limit in limits:
            axis.axhline(limit, color="black", linestyle=":", linewidth=0.8)
        axis.set_title(title)
        axis.set_xticks(range(len(STORED)), STORED.values())
        axis.grid(axis="y", alpha=0.3)
    axes[1].set_ylim(0, 1.3 * max(vnni, 1))
    axes[1].legend(fontsize=8, title="fpmath mode", title_fontsize=8, loc="upper center",
                   ncols=len(matmul_models.MODES))
    axes[1].annotate("int8 (VNNI) peak", (-0.4, vnni), xytext=(0, -10), textcoords="offset points",
                     fontsize=8)
    plotting.save(figure, options)


def main():
    parser = plotting.options(__doc__, "matmul", 0.3)
    parser.add_argument("--output",
                        help="what graph_runner printed for the whole list, instead of measuring")
    options = parser.parse_args()
    plotting.enter(options)
    if options.output:
        with open(options.output, encoding="ascii") as file:
            cells, text = matmul_models.cells(), file.read()
    else:
        cells, text = measure(options)
    rows, vnni = parse(cells, text)
    report(rows, vnni)
    draw(rows, vnni, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
