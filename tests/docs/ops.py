#!/usr/bin/env python3
"""ops.py GRAPH_RUNNER: docs/ops.md is what this build generates, and op_notes.def has a row for each op that the library executes
and for each value of quantization_kind."""
import re
import sys

from common import read, run, verdict


def main():
    runner = sys.argv[1]
    errors, checks = [], 1
    if run(runner, "--describe-op=all", "--markdown") != read("docs/ops.md"):
        errors.append("docs/ops.md is not what graph_runner --describe-op=all --markdown prints: write that to docs/ops.md")
    notes = read("tools/graph_runner/op_notes.def")
    noted = set(re.findall(r"^OP_NOTE\((\w+),", notes, re.M))
    for op, runs in re.findall(r"^SINTER_OP\(\d+, (\w+), .*, (RUN|ACCEPT)\)", read("include/sinter/ops.def"), re.M):
        checks += 1
        if runs == "RUN" and op not in noted:
            errors.append(f"tools/graph_runner/op_notes.def has no OP_NOTE row for {op}")
    kinds = re.search(r"quantization_kind .*; (.*)", run(runner, "--describe-op=DynamicQuantize")).group(1).split(", ")
    for kind in kinds:
        checks += 1
        if f'OP_WORD(dynamic_quantize, quantization_kind, "{kind}"' not in notes:
            errors.append(f"tools/graph_runner/op_notes.def does not explain quantization_kind {kind}")
    return verdict("docs/ops.md", errors, checks)


if __name__ == "__main__":
    sys.exit(main())
