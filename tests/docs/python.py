#!/usr/bin/env python3
"""python.py, with SINTER_LIBRARY: the Python blocks of docs/python.md run in order and print what
the text block behind each of them says; a block without one prints nothing."""
import contextlib
import io
import os
import re
import sys

from common import ROOT, read, verdict

sys.path.insert(0, os.path.join(ROOT, "python", "tests"))

import python_case

PAGE = "docs/python.md"


def main():
    python_case.enter()
    blocks = re.findall(r"(?ms)^```python\n(.*?)^```\n(?:\n```text\n(.*?)^```)?", read(PAGE))
    names, errors = {}, []
    for number, (program, expected) in enumerate(blocks):
        with contextlib.redirect_stdout(io.StringIO()) as printed:
            exec(compile(program, f"{PAGE}, block {number}", "exec"), names)
        if printed.getvalue() != expected:
            errors.append(f"{PAGE}, block {number} prints:\n{printed.getvalue()}")
    return verdict(PAGE, errors, len(blocks))


if __name__ == "__main__":
    sys.exit(main())
