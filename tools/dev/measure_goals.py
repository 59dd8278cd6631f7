#!/usr/bin/env python3
"""Measures the classes of work that have a goal of speed, at each cap, and prints a table in
Markdown: a row for each class with its goal, its worst and its median cell, and what fractions of
reads, of the roofline, of the FMA peak and of the int8 peak its cells are (medians). The cells are
lines of tests/lists/perf_*.list. Weights and caches come from memory, whatever the size of the
processor's caches is: the lines have --cold-cache.

    tools/dev/measure_goals.py                       # all cells, both caps: about 15 minutes
    tools/dev/measure_goals.py --quick               # two cells of each class: about 2 minutes
    tools/dev/measure_goals.py --only='decode|1 row' --caps avx2 --rounds=3 --cells

A cell may miss its goal "at the roofline too": reading its weights alone takes longer than the goal
allows. With --rounds=N everything is measured N times, round after round, and a cell is the median
of its rounds; --cells prints each cell with all of its rounds. Exit status: 0 if all goals are met,
1 if not, 2 if a line fails."""
import argparse
import dataclasses
import os
import re
import statistics
import sys

import attention_models
import expert_models
import matmul_models
import plotting

LISTS = os.path.join(plotting.ROOT, "tests", "lists")
READS, ROOFLINE, FMA, INT8 = ("of_read_bandwidth", "of_roofline", "of_fma_peak", "of_int8_peak")
PASS = "of_read_and_write_limit"
NAMES = {READS: "reads", ROOFLINE: "roofline", FMA: "FMA peak", INT8: "int8 peak",
         PASS: "a pass without arithmetic"}
# How many times as fast as the other cell; how many times its time, at most.
FASTER, TIME = "faster", "time"


@dataclasses.dataclass
class Cell:
    name: str
    line: str
    other: str = None  # the line that FASTER and TIME compare with


@dataclasses.dataclass
class Goal:
    work: str
    cells: list  # the most telling ones first
    wanted: dict  # cap -> (what, least fraction; TIME: the most)


def both(what, avx2, vnni):
    return {"avx2": (what, avx2), "avx512_vnni": (what, vnni)}


# ---- cells ---------------------------------------------------------------------------------------


def decode(kinds, shape, mode, *lengths):
    """One query for each head; shape: heads of K and V, queries for each, size of a head."""
    return [
        Cell(f"{stored} T {t} {mode}",
             attention_models.line("decode", stored, (*shape, 1, t), mode, tiles=True))
        for t in lengths or (16384, 4096) for stored in kinds
    ]


def verify(s):
    shape = attention_models.VERIFY
    lines = [[attention_models.line("decode", stored, (*shape, n, 4096), "int8", tiles=True)
              for n in (s, 1)] for stored in attention_models.VERIFIED]
    return [Cell(f"{stored} T 4096 int8", line, other)
            for stored, (line, other) in zip(attention_models.VERIFIED, lines)]


def prefill(head, mode, stored_types, other=None):
    def line(stored, n, of_mode):
        return attention_models.prefill_line(stored, (8, 4, head, n, n), of_mode, tiles=True)

    return [
        Cell(f"{stored} S {n} D {head} {mode}", line(stored, n, mode), other
             and line(stored, n, other)) for n in (1024, 4096) for stored in stored_types
    ]


def matmul(rows, stored, mode):
    """Types and rows as they stand; then the typical types at other shapes."""
    cells = [cell for cell in matmul_models.cells()
             if cell[0] in stored and cell[3] in rows and cell[4] == mode]
    order = list(stored)
    cells.sort(key=lambda cell: (cell[1:3] != matmul_models.ROWS[cell[3]], order.index(cell[0]),
                                 rows.index(cell[3])))
    return [Cell(f"{stored} N {n} K {k} M {m} {mode}", matmul_models.line(stored, n, k, m, mode))
            for stored, n, k, m, mode in cells]


def experts(tokens, mode):
    return [Cell(f"{name} {tokens} tokens {mode}",
                 expert_models.line(name, row, tokens, mode, False))
            for name, row in expert_models.EXPERTS.items()]


def expert_mlps(tokens, mode):
    return [Cell(f"{name} {tokens} tokens {mode}",
                 expert_models.mlp_line(name, row, tokens, mode, False))
            for name, row in expert_models.MLPS.items()]


def goals_of_experts(work, cells):
    """Of 8 and 64 tokens: reading all their experts once takes at least such a part of the time."""
    return [
        Goal(f"{work}, 1 token, int8", cells(1, "int8"), both(READS, 0.85, 0.90)),
        Goal(f"{work}, 8 tokens, int8", cells(8, "int8"), both(READS, 1 / 1.25, 1 / 1.10)),
        Goal(f"{work}, 64 tokens, int8", cells(64, "int8"), both(READS, 1 / 1.5, 1 / 1.25)),
        Goal(f"{work}, 512 tokens, int8", cells(512, "int8"),
             {"avx2": (FMA, 1.5), "avx512_vnni": (INT8, 0.60)}),
        Goal(f"{work}, 512 tokens, strict", cells(512, "strict"), both(FMA, 0.75, 0.80)),
    ]


def listed(name, first):
    """The lines of a list, those first whose case has one of these names."""
    with open(os.path.join(LISTS, name), encoding="ascii") as file:
        lines = [line.strip() for line in file if not line.startswith("#")]
    cells = [Cell(" ".join([re.search(r"models/(\S+)\.json", line)[1],
                            *re.findall(r"--dt=(\S+)", line)]), line) for line in lines]
    return sorted(cells, key=lambda cell: cell.name not in first)


def goals():
    """The classes of work; fractions at the caps of plotting.CAPS."""
    four_bits, wide = ["s4-zp-g32", "mxfp4", "u4-zp-g128"], ["s8-g32", "f16", "mxfp8-e4m3",
                                                            "mxfp8-e5m2"]
    one, four, eight = (32, 1, 128), (8, 4, 128), (8, 8, 64)
    integers = ["s4-zp-g32", "s8-g32", "u4-zp-g128", "mxfp4"]
    every = [four_bits[0], *wide, *four_bits[1:]]
    floats = ["s4-zp-g32", "f32", "f16", "mxfp8-e4m3"]
    codes = [*matmul_models.FOUR_BITS, *matmul_models.EIGHT_BITS]
    wide_weights = [*matmul_models.EIGHT_BITS, *matmul_models.FLOATS]
    every_weight = [*codes, *matmul_models.FLOATS]
    return [
        Goal("decode, 1 row, 8 and 16 bits, strict", decode(wide, one, "strict"),
             both(READS, 0.80, 0.85)),
        Goal("decode, 1 row, 4 bits, strict", decode(four_bits, one, "strict"),
             both(READS, 0.55, 0.75)),
        Goal("decode, 1 row, 4 bits, f16", decode(four_bits, one, "f16"), both(READS, 0.60, 0.75)),
        Goal("decode, 1 row, 4 bits, int8", decode(four_bits, one, "int8"),
             both(READS, 0.80, 0.85)),
        Goal("decode, 4 rows, strict", decode(every, four, "strict"), both(ROOFLINE, 0.70, 0.75)),
        Goal("decode, 4 rows, int8", decode(integers, four, "int8"), both(READS, 0.45, 0.70)),
        Goal("decode, 8 rows, D 64, strict", decode(["mxfp4", "s8-g32"], eight, "strict", 16384),
             both(ROOFLINE, 0.65, 0.70)),
        Goal("decode, 8 rows, D 64, int8", decode(["mxfp4", "s8-g32"], eight, "int8", 16384),
             both(INT8, 0.45, 0.50)),
        Goal("verify, S 4 against S 1, int8", verify(4), both(TIME, 1.6, 1.15)),
        Goal("verify, S 8 against S 1, int8", verify(8), both(TIME, 2.6, 1.4)),
        Goal("prefill, D 128, strict", prefill(128, "strict", floats), both(FMA, 0.80, 0.85)),
        Goal("prefill, int8 against strict",
             prefill(128, "int8", ["s4-zp-g32"], "strict"), both(FASTER, 1.3, 1.6)),
        *goals_of_experts("experts", experts),
        *goals_of_experts("MLP of experts", expert_mlps),
        Goal("matmul, 1 row, 4 and 8 bits, int8", matmul([1], codes, "int8"),
             both(READS, 0.90, 0.92)),
        Goal("matmul, 1 row, 4 bits, strict", matmul([1], matmul_models.FOUR_BITS, "strict"),
             both(READS, 0.70, 0.85)),
        Goal("matmul, 1 row, 8 and 16 bits, strict", matmul([1], wide_weights, "strict"),
             both(READS, 0.85, 0.90)),
        Goal("matmul, 4 rows, int8", matmul([4], codes, "int8"), both(READS, 0.60, 0.80)),
        Goal("matmul, 4 rows, strict", matmul([4], every_weight, "strict"),
             both(ROOFLINE, 0.80, 0.82)),
        Goal("matmul, 8 and 16 rows, int8", matmul([16, 8], codes, "int8"),
             both(INT8, 0.60, 0.65)),
        Goal("matmul, 8 and 16 rows, strict", matmul([16, 8], every_weight, "strict"),
             both(FMA, 0.85, 0.90)),
        Goal("matmul, 32 to 512 rows, int8", matmul([512, 32, 128], codes, "int8"),
             {"avx2": (FMA, 1.9), "avx512_vnni": (INT8, 0.75)}),
        Goal("matmul, 32 to 512 rows, strict", matmul([512, 32, 128], every_weight, "strict"),
             both(FMA, 0.88, 0.90)),
        Goal("quantise", listed("perf_quantise.list",
                                ("quantise-s8-symmetric-token", "quantise-s4-symmetric-g32")),
             both(PASS, 0.85, 0.85)),
        Goal("dequantise", listed("perf_dequantise.list",
                                  ("dequantise-s4-g32", "dequantise-u4-zp-g128")),
             both(PASS, 0.85, 0.85)),
    ]


# ---- measuring -----------------------------------------------------------------------------------


def lines_of(goal):
    return list(dict.fromkeys(line for cell in goal.cells for line in (cell.line, cell.other)
                              if line))


def measure(options, cap, wanted):
    """line -> the median figures of each round."""
    figures = {}
    for turn in range(options.rounds):
        seen = set()
        for goal in wanted:
            lines = [line for line in lines_of(goal) if line not in seen]
            seen.update(lines)
            print(f"{cap}, round {turn + 1} of {options.rounds}: {goal.work}, {len(lines)} lines",
                  file=sys.stderr, flush=True)
            for line, document in zip(lines, plotting.measure(options, cap, lines), strict=True):
                figures.setdefault(line, []).append(document["performance"]["median"])
    return figures


def values(cell, what, figures):
    """A figure of the cell in each round; 0 where the machine has none."""
    if what in (FASTER, TIME):
        rounds = zip(figures[cell.line], figures[cell.other], strict=True)
        return [b["us"] / a["us"] if what == FASTER else a["us"] / b["us"] for a, b in rounds]
    return [figure.get(what, 0) for figure in figures[cell.line]]


# ---- table ---------------------------------------------------------------------------------------


def wish(what, least):
    if what == TIME:
        return f"≤ {least:g}x time"
    return f"≥ {least:g}x" if what == FASTER else f"≥ {least:.2f} of {NAMES[what]}"


def beyond_roofline(cell, what, least, figures):
    """Whether the cell would miss the goal at its roofline, too."""
    if what in (FASTER, TIME):
        return False
    return statistics.median(
        figure.get(what, 0) / figure[ROOFLINE] for figure in figures[cell.line]) < least


def print_goal(goal, cap, figures, cells):
    """A row; returns whether all cells reach the goal."""
    what, least = goal.wanted[cap]
    sign = -1 if what == TIME else 1
    found = {cell.name: values(cell, what, figures) for cell in goal.cells}
    medians = {name: statistics.median(some) for name, some in found.items()}
    worst = min(medians, key=lambda name: sign * medians[name])
    missed = [cell for cell in goal.cells if sign * medians[cell.name] < sign * least]
    beyond = sum(beyond_roofline(cell, what, least, figures) for cell in missed)
    others = [
        statistics.median(
            statistics.median(values(cell, other, figures)) for cell in goal.cells)
        for other in (READS, ROOFLINE, FMA, INT8)
    ]
    verdict = f"missed by {len(missed)} of" if missed else "met by all"
    verdict += f" {len(medians)}" + (f", by {beyond} at the roofline too" if beyond else "")
    print("|", " | ".join([
        goal.work, wish(what, least), f"{medians[worst]:.2f} ({worst})",
        f"{statistics.median(medians.values()):.2f}",
        *(f"{value:.2f}" if value else "–" for value in others), verdict
    ]), "|", flush=True)
    for name, rounds in found.items() if cells else ():
        print(f"| · {name} | | {' '.join(f'{value:.2f}' for value in rounds)} | | | | | | |")
    return not missed


def print_table(wanted, cap, figures, options):
    """Returns how many goals are met."""
    print(f"\n{cap}, {options.threads} threads, medians of {options.rounds} "
          f"round{'s' if options.rounds > 1 else ''}\n")
    print("| work | goal | worst cell | median cell | of reads | of roofline | of FMA peak | "
          "of int8 peak | |\n|---|---|---|---|---|---|---|---|---|")
    return sum(print_goal(goal, cap, figures, options.cells) for goal in wanted)


def parse():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    plotting.add_measuring(parser, 0.2)
    parser.add_argument("--only", metavar="REGEX", help="only the classes whose name contains it")
    parser.add_argument("--quick", action="store_true", help="the first two cells of each class")
    parser.add_argument("--cells", action="store_true", help="print each cell as well")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--list", action="store_true", help="print the lines, and measure nothing")
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: expected at least 1")
    return options


def main():
    options = parse()
    wanted = [goal for goal in goals() if re.search(options.only or "", goal.work)]
    if options.quick:
        wanted = [dataclasses.replace(goal, cells=goal.cells[:2]) for goal in wanted]
    if options.list:
        print(*dict.fromkeys(line for goal in wanted for line in lines_of(goal)), sep="\n")
        return 0
    met = 0
    try:
        for cap in options.caps:
            met += print_table(wanted, cap, measure(options, cap, wanted), options)
    except plotting.Failure as failure:
        print(f"measure_goals: {failure}", file=sys.stderr)
        return 2
    total = len(wanted) * len(options.caps)
    print(f"\n{met} of {total} goals met")
    return 0 if met == total else 1


if __name__ == "__main__":
    sys.exit(main())
