#!/usr/bin/env python3
"""Follows the checklists of docs/extending.md, all on one copy of the tree: adds an op, a data
type, a fusion pattern and a kernel, builds, compares with the oracle and runs the tests that each
list promises. A list fails if it needs more files than its goal or one that the document does not
name.

    tests/extending/run.py BUILD    BUILD: the build directory of the tree
    tests/extending/run.py --count  only edits, and prints what each list touches"""
import os
import sys

import dtype
import kernel
import op
import pattern
from scratch import ROOT, Scratch, run

LISTS = (op, dtype, pattern, kernel)
LEVEL = "avx2"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(os.path.join(ROOT, "docs", "extending.md"), encoding="utf-8") as file:
        document = file.read()
    with Scratch() as scratch:
        for module in LISTS:
            todo = scratch.checklist(module.NAME, module.MOST)
            module.edit(todo)
            todo.check(document)
            print(todo)
        if sys.argv[1] == "--count":
            return 0
        pattern.generate(scratch)
        scratch.prepare(sys.argv[1])
        program = scratch.program("tools/graph_runner/main.c")

        def runner(*options):
            return run([program, f"--max-cpu-isa={LEVEL}", *options])
        for module in LISTS:
            module.try_out(scratch, runner)
            for test in module.TESTS:
                run([scratch.program(f"tests/unit/{test}.c")],
                    env=os.environ | {"SINTER_MAX_CPU_ISA": LEVEL})
            print(f"{module.NAME}: works; {', '.join(module.TESTS)} pass")
    return 0


if __name__ == "__main__":
    sys.exit(main())
