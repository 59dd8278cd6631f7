#!/usr/bin/env python3
"""The layout of the source: C as clang-format 14 leaves it, no line over 100 columns, and braces
around every body. Without clang-format 14 the other two are checked, and the test is skipped."""
import os
import re
import subprocess
import sys

import c_source

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
COLUMNS = 100
CLANG_FORMAT_VERSION = "14"
SKIPPED = 77
C_FILES = (".c", ".h", ".inc")
SCRIPTS = (".def", ".py", ".cmake", ".sh", "CMakeLists.txt")
# Headers that a script writes: rows of numbers.
GENERATED = re.compile(r"^tests/.*vectors\.h$")
# Rows of tables, which may be longer; their comments may not.
LONG_ROWS = {"include/sinter/ops.def": "SINTER_OP("}
BODY_OF_PARENTHESES = ("if", "for", "while", "switch")


def unbraced(text):
    """The lines of if, else, for, while and do whose body is not in braces."""
    tokens = c_source.code(text)
    ends_of_do = set()
    for i, token in enumerate(tokens):
        if token.kind != "word":
            continue
        if token.text == "do":
            if tokens[i + 1].text == "{":
                ends_of_do.add(c_source.closing(tokens, i + 1) + 1)
            else:
                yield token.line
        elif token.text == "else":
            if tokens[i + 1].text not in ("{", "if"):
                yield token.line
        elif token.text in BODY_OF_PARENTHESES and i not in ends_of_do:
            if tokens[c_source.closing(tokens, i + 1) + 1].text != "{":
                yield token.line


def check_file(path, text):
    row = LONG_ROWS.get(path)
    for number, line in enumerate(text.splitlines(), 1):
        if len(line) > COLUMNS and not (row and line.startswith(row)):
            yield f"{path}:{number}: {len(line)} columns, at most {COLUMNS}"
    if path.endswith(C_FILES):
        for number in unbraced(text):
            yield f"{path}:{number}: a body without braces"


def clang_format():
    """The program to call, or None with a reason."""
    for name in (f"clang-format-{CLANG_FORMAT_VERSION}", "clang-format"):
        try:
            said = subprocess.run([name, "--version"], capture_output=True, text=True).stdout
        except OSError:
            continue
        if re.search(rf"version {CLANG_FORMAT_VERSION}\.", said):
            return name, None
        return None, said.strip()
    return None, "there is no clang-format"


def check_layout(program, paths):
    said = subprocess.run([program, "--dry-run", "-Werror", "--style=file"] + paths, cwd=ROOT,
                          capture_output=True, text=True)
    places = re.findall(r"^(\S+?:\d+):\d+: error", said.stderr, re.M)
    if said.returncode != 0 and not places:
        places = [said.stderr.strip()]
    return [f"{place}: not as clang-format leaves it" for place in places]


def main():
    paths = [path for path in c_source.tracked_files(ROOT)
             if path.endswith(C_FILES + SCRIPTS) and not GENERATED.match(path)]
    errors = []
    for path in paths:
        with open(os.path.join(ROOT, path), encoding="utf-8") as f:
            errors += check_file(path, f.read())
    program, why_not = clang_format()
    if program:
        errors += check_layout(program, [path for path in paths if path.endswith(C_FILES)])
    print("\n".join(errors + [f"{len(paths)} files, {len(errors)} violations"]))
    if errors or not paths:
        return 1
    if not program:
        print(f"not tested: the layout of C (needs clang-format {CLANG_FORMAT_VERSION}: {why_not})")
        return SKIPPED
    return 0


if __name__ == "__main__":
    sys.exit(main())
