#!/usr/bin/env python3
"""Measures matmuls with compressed weights with graph_runner and draws a picture, at each
cap: for one row of A the fraction of the bandwidth that reading has, for 512 rows the speed in
units of the FMA peak. Takes two minutes or three."""
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
SHAPES = {1: (14336, 4096), 512: (4096, 4096)}  # M -> N, K


def measure(options):
    """(cap, M, stored, mode) -> the figures of the median run, and cap -> what the int8 peak is in
    FMA peaks."""
    rows, peaks = {}, {}
    for cap in options.caps:
        cells = [cell for cell in matmul_models.cells()
                 if cell[0] in STORED and cell[1:3] == SHAPES.get(cell[3])]
        found = plotting.measure(options, cap, [matmul_models.line(*cell) for cell in cells])
        for (stored, _, _, m, mode), document in zip(cells, found, strict=True):
            rows[cap, m, stored, mode] = document["performance"]["median"]
        limits = found[-1]["limits"]  # the best of all lines
        peaks[cap] = limits["int8_ops_per_second"] / limits["fma_flops_per_second"]
    return rows, peaks


def unit_of(m):
    return "of_fma_peak" if m > 16 else "of_read_bandwidth"


def report(rows, peaks):
    for (cap, m, stored, mode), figures in rows.items():
        share = figures[unit_of(m)]
        text = f"{cap:11} M {m:3} {stored:10} {mode:6} {unit_of(m)} {share:.2f}"
        if m > 16 and mode == "int8":
            text += f" = {share / peaks[cap]:.2f} of the int8 peak"
        print(text)


def bars(axis, rows, cap, m):
    for i, mode in enumerate(matmul_models.MODES):
        heights = [rows[cap, m, stored, mode][unit_of(m)] for stored in STORED]
        axis.bar([x + 0.2 * i - 0.3 for x in range(len(STORED))], heights, 0.2, color=f"C{i}",
                 label=mode)


def draw(rows, peaks, options):
    plt = plotting.pyplot(options)
    figure, grid = plt.subplots(len(options.caps), 2, figsize=(9, 3.4 * len(options.caps)),
                                squeeze=False)
    panels = ((1, "1 row: of read bandwidth"), (512, "512 rows: in f32 FMA peaks"))
    for axes, cap in zip(grid, options.caps):
        for axis, (m, title) in zip(axes, panels):
            bars(axis, rows, cap, m)
            for limit in [1, peaks[cap]] if m > 16 else [1]:
                axis.axhline(limit, color="black", linestyle=":", linewidth=0.8)
            axis.set_title(f"{cap}, {title}")
            axis.set_xticks(range(len(STORED)), STORED.values())
            axis.grid(axis="y", alpha=0.3)
        axes[1].set_ylim(0, 1.3 * max(peaks[cap], 1))
        axes[1].annotate("int8 peak", (-0.4, peaks[cap]), xytext=(0, -10),
                         textcoords="offset points", fontsize=8)
    grid[0][1].legend(fontsize=8, title="fpmath mode", title_fontsize=8, loc="upper center",
                      ncols=len(matmul_models.MODES))
    plotting.save(figure, options)


def main():
    options = plotting.options(__doc__, "matmul", 0.15).parse_args()
    plotting.enter(options)
    rows, peaks = measure(options)
    report(rows, peaks)
    draw(rows, peaks, options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
