#!/usr/bin/env python3
"""Checks the include directions between the rooms of the source tree, and that only the executor opens parallel regions."""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PUBLIC = ["include/sinter/"]
# Room -> what it may include besides itself and libc. The first prefix that fits a file is its room.
ROOMS = {
    "include/sinter/": [],
    "src/graph/": PUBLIC,
    "src/patterns/": PUBLIC + ["src/graph/"],
    "src/passes/": PUBLIC + ["src/graph/", "src/patterns/partition.h"],
    "src/backend_xsmm/": PUBLIC + ["src/graph/", "src/patterns/partition.h", "omp.h"],
    "src/": PUBLIC + ["src/graph/", "src/patterns/", "src/passes/", "src/backend_xsmm/"],
    "tests/oracle/selftest.c": ["tests/oracle/", "tests/unit/check.h"],
    "tests/oracle/": ["include/sinter/sinter_types.h", "include/sinter/dtypes.def", "include/sinter/ops.def", "include/sinter/attrs.def", "omp.h"],
    "tools/graph_runner/": PUBLIC + ["tests/oracle/oracle.h", "cjson/", "omp.h"],
    "examples/": PUBLIC,
}
THIRD_PARTY = ("omp.h", "libxsmm", "cjson/")
ONLY_LIBXSMM = "src/backend_xsmm/xsmm.c"
ONLY_OPENMP = "src/backend_xsmm/exec.c"


def room_of(path):
    return next((room for room in ROOMS if path.startswith(room)), None)


def resolve(path, name):
    """Where an include leads: a path in the tree, or the name itself for anything outside."""
    for base in (os.path.dirname(path), "src", "include", "include/sinter", "tests/oracle"):
        candidate = os.path.normpath(os.path.join(base, name))
        if os.path.exists(os.path.join(ROOT, candidate)):
            return candidate
    return "include/sinter/sinter_version.h" if name.endswith("sinter_version.h") else name


def check_file(path, text):
    room = room_of(path)
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if include:
            target = resolve(path, include.group(1))
            outside = not os.path.exists(os.path.join(ROOT, target)) and not target.startswith(THIRD_PARTY + ("include/", ".."))
            if target.startswith("libxsmm"):
                if path != ONLY_LIBXSMM:
                    yield f"{where}: only {ONLY_LIBXSMM} includes libxsmm"
            elif not outside and not target.startswith(tuple([room] + ROOMS[room])):
                yield f"{where}: {room} may not include {target}"
        elif re.match(r"\s*#\s*pragma\s+omp\b", line) and path.startswith("src/") and path != ONLY_OPENMP:
            yield f"{where}: only {ONLY_OPENMP} opens parallel regions"


def main():
    errors, n = [], 0
    for top in ("include", "src", "tests/oracle", "tools/graph_runner", "examples"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".def", ".inc")):
                    path = os.path.relpath(os.path.join(folder, name), ROOT)
                    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                        errors += check_file(path, f.read())
                    n += 1
    print("\n".join(errors + [f"{n} files, {len(errors)} violations"]))
    return 1 if errors or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
