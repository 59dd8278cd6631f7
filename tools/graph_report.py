#!/usr/bin/env python3
"""Makes one HTML page about a graph: partitions in colour, and for each its ops, reasons, kernels
with the ways that they took, bytes and products; a roofline chart; the sequence with its scratch
arena. The page needs no network and no other file. It is made from what graph_runner --json says.

    tools/graph_report.py models/gated-mlp-int4.json -o report.html
    tools/graph_report.py models/gated-mlp-int4.json --measure -- --threads=1 --no-fuse
    tools/graph_report.py models/gated-mlp-int4.json --picture graph.svg

Options of graph_runner stand behind "--". Exit status: 0 if everything asked for was written, 1 if
not. A graph that does not run has a page, too, which says why."""
import argparse
import os
import sys

from report_page import arena, page, runner


def options():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter,
        usage="%(prog)s CASE.json [-o FILE] [--measure] [...] [-- OPTIONS of graph_runner]")
    parser.add_argument("case", metavar="CASE.json", help="the graph, as graph_runner takes it")
    parser.add_argument("-o", "--output", metavar="FILE",
                        help="the page (report.html; none if only --picture is given)")
    parser.add_argument("--picture", metavar="FILE.svg",
                        help="write a picture for documents: graph and arena, light and dark")
    parser.add_argument("--direction", choices=("TB", "LR"), default="TB",
                        help="of the picture: from top to bottom, or left to right")
    parser.add_argument("--folded", action="store_true",
                        help="in the picture a partition is one box, with its ops by kind")
    parser.add_argument("--title", help="instead of the name of the case")
    timing = parser.add_argument_group("time")
    timing.add_argument("--measure", action="store_true",
                        help="time each partition (mode P of graph_runner)")
    timing.add_argument("--min-time", type=float, default=0.5, metavar="SECONDS",
                        help="for each partition (0.5)")
    timing.add_argument("--cold-cache", action="store_true",
                        help="nothing of the inputs is in the caches, and memory is measured "
                        "beside each run")
    timing.add_argument("--limits", default="measured", metavar="LIMITS",
                        help="of the machine; instead of measuring them, which takes seconds: "
                        "read:24+copy:31 in GB/s, fma:187+int8:330+bf16:0 in GFLOP/s")
    where = parser.add_argument_group("where from")
    where.add_argument("--runner", metavar="FILE",
                       help="the program graph_runner (build/release/graph_runner)")
    where.add_argument("--document", action="store_true",
                       help="CASE.json is no graph, but what graph_runner --json printed")
    words = sys.argv[1:]
    end = words.index("--") if "--" in words else len(words)
    opt = parser.parse_args(words[:end])
    opt.rest = words[end + 1:]
    if opt.output is None and not opt.picture:
        opt.output = "report.html"
    return opt


def read_document(path):
    try:
        with open(path, encoding="utf-8") as file:
            return runner.parse(file.read(), path)
    except OSError as error:
        raise runner.Failure(f"{path}: {error.strerror}") from error


def make_document(opt):
    if opt.document:
        return read_document(opt.case)
    if not os.path.exists(opt.case):
        raise runner.Failure(f"{opt.case}: no such file")
    measure = None
    if opt.measure:
        measure = [f"--min-time={opt.min_time}"] + ["--cold-cache"] * opt.cold_cache
    return runner.run(runner.find_runner(opt.runner), opt.case, opt.limits, measure, opt.rest)


def write(path, text):
    try:
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
    except OSError as error:
        raise runner.Failure(f"{path}: {error.strerror}") from error
    print(path)


def main():
    opt = options()
    try:
        dot = runner.find_dot()
        document = make_document(opt)
        wrong = arena.check(document["sequence"], document) if "sequence" in document else None
        if wrong:
            raise runner.Failure(wrong)
        title = opt.title or os.path.splitext(os.path.basename(opt.case))[0]
        if opt.output:
            write(opt.output, page.make(document, title, dot))
        if opt.picture:
            write(opt.picture, page.picture(document, title, dot, opt.direction, opt.folded))
    except runner.Failure as failure:
        print(f"graph_report: {failure}", file=sys.stderr)
        return 1
    why = runner.failure(document)
    if why:
        print(f"graph_report: the graph does not run: {why}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main())
