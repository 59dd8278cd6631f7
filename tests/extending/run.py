#!/usr/bin/env python3
"""Follows the checklists of docs/extending.md, all on one copy of the tree: adds ops, data types, a
fusion pattern, a kernel and an instruction set, builds, compares with the oracle and runs the tests
that each list promises. A list fails if it needs more files than its goal or one that the document
does not name.

    tests/extending/run.py BUILD    BUILD: the build directory of the tree
    tests/extending/run.py --count  only edits, and prints what each list touches"""
import os
import sys

import binary_op
import dtype
import heavy_op
import integer_type
import isa
import kernel
import new_driver
import op
import pattern
from scratch import ROOT, Scratch, run

LISTS = (op, binary_op, heavy_op, new_driver, dtype, integer_type, pattern, kernel, isa)
LEVEL = "avx2"


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    with open(os.path.join(ROOT, "docs", "extending.md"), encoding="utf-8") as file:
        document = file.read()
    with Scratch() as scratch:
        for module in LISTS:
            todo = scratch.checklist(module.NAME, module.MOST, getattr(module, "COUNTED", ("",)))
            module.edit(todo)
            todo.check(document)
            print(todo)
        if sys.argv[1] == "--count":
            return 0
        pattern.generate(scratch)
        scratch.prepare(sys.argv[1])
        program = scratch.program("tools/graph_runner/main.c")

        # Objects for AVX-512 are those of the existing build, so nothing may run above the level.
        def runner(*options, level=LEVEL):
            return run([program, *options], env=os.environ | {"SINTER_MAX_CPU_ISA": level})
        for module in LISTS:
            module.try_out(scratch, runner)
            for test in module.TESTS:
                run([scratch.program(f"tests/unit/{test}.c")],
                    env=os.environ | {"SINTER_MAX_CPU_ISA": LEVEL})
            print(f"{module.NAME}: works; {', '.join(module.TESTS)} pass")
    return 0


if __name__ == "__main__":
    sys.exit(main())
