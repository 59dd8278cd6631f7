#!/usr/bin/env python3
"""ops.py GRAPH_RUNNER: docs/ops.md is what this build generates, and op_notes.def has a row for
each op that the library executes and for each value of quantization_kind."""
import re
import sys

from common import read, run, verdict


def main():
    runner = sys.argv[1]
    errors, checks = [], 1
    if run(runner, "--describe-op=all", "--markdown") != read("docs/ops.md"):
        errors.append("docs/ops.md is out of date: write to it what "
                      "graph_runner --describe-op=all --markdown prints")
    notes = read("tools/graph_runner/op_notes.def")
    noted = set(re.findall(r"^OP_NOTE\((\w+),", notes, re.M))
    rows = re.compile(r"^SINTER_OP\(\w+, (\w+), .*, (RUN|ACCEPT)\)", re.M)
    for op, runs in rows.findall(read("include/sinter/ops.def")):
        checks += 1
        if runs == "RUN" and op not in noted:
            errors.append(f"tools/graph_runner/op_notes.def has no OP_NOTE row for {op}")
    described = run(runner, "--describe-op=DynamicQuantize")
    for kind in re.search(r"quantization_kind .*; (.*)", described).group(1).split(", "):
        checks += 1
        if f'OP_WORD(dynamic_quantize, quantization_kind, "{kind}"' not in notes:
            errors.append(f"op_notes.def does not explain quantization_kind {kind}")
    return verdict("docs/ops.md", errors, checks)


if __name__ == "__main__":
    sys.exit(main())
