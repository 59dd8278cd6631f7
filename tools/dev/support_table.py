#!/usr/bin/env python3
"""Makes docs/support.md, the table of what is supported, from the .def tables.

support_table.py           prints the page
support_table.py --write   writes the page
support_table.py --check   fails if the page is another one (a test)
"""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PAGE = os.path.join(ROOT, "docs", "support.md")
HEAD = """# What is supported

Made from the tables of the source by `tools/dev/support_table.py --write`.

"""
CLASSES = (("floats", "FLOAT"), ("integers", "INT"), ("power-of-two scales", "SCALE"),
           ("booleans", "BOOL"))


def rows(path, macro):
    """The arguments of each row of a .def file, without quotes."""
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        found = re.findall(rf"(?s)^{macro}\((.*?)\)[^\S\n]*(?:/\*[^\n]*)?$", f.read(), re.M)
    if not found:
        sys.exit(f"{path}: no rows of {macro}")
    return [[part.strip().strip('"') for part in row.split(",")] for row in found]


def code(names):
    return ", ".join(f"`{name}`" for name in names)


def data_types():
    types = [(row[1], row[2]) for row in rows("include/sinter/dtypes.def", "SINTER_DTYPE")]
    return [(what, code(name for name, of in types if of == cls)) for what, cls in CLASSES]


def ops():
    all_ops = rows("include/sinter/ops.def", "SINTER_OP")
    runs = [row[2] for row in all_ops if row[5] == "RUN"]
    others = len(all_ops) - len(runs)
    return [("ops that run", ", ".join(runs)),
            ("ops that are only checked",
             f"the other {others} of oneDNN Graph ([list](ops.md))")]


def patterns():
    names = [row[0] for row in rows("src/patterns/patterns.def", "SINTER_PATTERN")]
    joins = [row[0] for row in rows("src/patterns/joins.def", "SINTER_JOIN")]
    return [("fusion patterns", code(name.replace("_", "-") for name in names)),
            ("joined from several", code(dict.fromkeys(joins)))]


def quantization_kinds():
    words = rows("tools/graph_runner/op_notes.def", "OP_WORD")
    kinds = [row[2] for row in words if row[1] == "quantization_kind"]
    return [("kinds of quantisation", code(kinds))]


def kernels():
    """Kernel names are <step>_<algorithm>_<arithmetic>_<instruction set>."""
    sets = {}
    for row in rows("src/backend_xsmm/kernels.def", "SINTER_KERNEL"):
        name, isa = row[0].rsplit("_", 1)
        sets.setdefault(name, []).append(isa)
    return [(f"`{name}`", ", ".join(isas)) for name, isas in sets.items()]


def table(head, parts):
    lines = [head, "|---|---|"] + [f"| {what} | {which} |" for what, which in parts]
    return "\n".join(lines) + "\n"


def page():
    return (HEAD + table("| what | which |", data_types() + ops() + quantization_kinds() +
                         patterns()) +
            "\n## Kernels\n\n" + table("| kernel | instruction sets |", kernels()))


def main():
    if sys.argv[1:] == []:
        print(page(), end="")
    elif sys.argv[1:] == ["--write"]:
        with open(PAGE, "w", encoding="utf-8") as f:
            f.write(page())
    elif sys.argv[1:] == ["--check"]:
        with open(PAGE, encoding="utf-8") as f:
            if f.read() != page():
                print("docs/support.md is out of date: run tools/dev/support_table.py --write")
                return 1
    else:
        sys.exit(__doc__)
    return 0


if __name__ == "__main__":
    sys.exit(main())
