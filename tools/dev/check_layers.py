#!/usr/bin/env python3
"""Checks the include directions between the rooms of the source tree, that no files include one
another in a circle, and that only the executor opens parallel regions."""
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PUBLIC = ["include/sinter/"]
CONTRACT = ["src/backend_xsmm/plan.h", "src/backend_xsmm/kernel.h", "src/backend_xsmm/step.h",
            "src/backend_xsmm/kernels.def", "src/backend_xsmm/steps.def",
            "src/patterns/partition.h"]
BELOW_BACKEND = PUBLIC + ["src/base/", "src/numeric/", "src/graph/"]
BELOW_DRIVERS = BELOW_BACKEND + CONTRACT + ["src/backend_xsmm/ukernels/",
                                            "src/backend_xsmm/chain/"]
# Room -> what it may include besides itself and libc. The first prefix that fits a file is its
# room.
ROOMS = {
    "include/sinter/": [],
    "src/base/": PUBLIC,
    "src/numeric/": PUBLIC + ["src/base/"],
    "src/graph/": PUBLIC + ["src/base/", "src/numeric/"],
    "src/patterns/": BELOW_BACKEND,
    "src/passes/": BELOW_BACKEND + ["src/patterns/partition.h"],
    "src/backend_xsmm/ukernels/": PUBLIC + ["src/base/", "src/numeric/"],
    "src/backend_xsmm/chain/": BELOW_BACKEND + CONTRACT + ["src/backend_xsmm/ukernels/"],
    "src/backend_xsmm/drivers/common/": BELOW_DRIVERS,
    **{f"src/backend_xsmm/drivers/{room}/": BELOW_DRIVERS + ["src/backend_xsmm/drivers/common/"]
       for room in ("attention", "matmul", "move", "rows")},
    "src/backend_xsmm/exec/": BELOW_BACKEND + CONTRACT + ["src/backend_xsmm/ukernels/", "omp.h"],
    "src/backend_xsmm/plan/":
        BELOW_BACKEND + CONTRACT + ["src/backend_xsmm/chain/", "src/backend_xsmm/exec/",
                                    "src/backend_xsmm/ukernels/"],
    "src/backend_xsmm/steps/": BELOW_BACKEND + CONTRACT + ["src/backend_xsmm/"],
    "src/backend_xsmm/":
        BELOW_BACKEND + ["src/patterns/partition.h", "src/backend_xsmm/chain/chain.h"],
    "src/api/": PUBLIC + ["src/"],
    "tests/oracle/selftest.c": ["tests/oracle/", "tests/unit/check.h"],
    "tests/oracle/":
        ["include/sinter/sinter_types.h", "include/sinter/dtypes.def", "include/sinter/ops.def",
                      "include/sinter/attrs.def", "omp.h"],
    "tools/graph_runner/":
        PUBLIC + ["tests/oracle/oracle.h", "tests/oracle/random.h", "cjson/", "omp.h"],
    "examples/": PUBLIC,
    "integrations/ggml/": PUBLIC,
}
ACYCLIC = ("src/", "integrations/")
THIRD_PARTY = ("omp.h", "libxsmm", "cjson/")
ONLY_LIBXSMM = "src/backend_xsmm/ukernels/xsmm.c"
ONLY_OPENMP = "src/backend_xsmm/exec/team.c"


def room_of(path):
    return next((room for room in ROOMS if path.startswith(room)), None)


def resolve(path, name):
    """Where an include leads: a path in the tree, or the name itself for anything outside."""
    for base in (os.path.dirname(path), "src", "include", "include/sinter", "tests/oracle"):
        candidate = os.path.normpath(os.path.join(base, name))
        if os.path.exists(os.path.join(ROOT, candidate)):
            return candidate
    return "include/sinter/sinter_version.h" if name.endswith("sinter_version.h") else name


def includes_of(path, text):
    """The files of the tree that a file includes, with the numbers of the lines."""
    for number, line in enumerate(text.splitlines(), 1):
        include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if include:
            yield number, resolve(path, include.group(1))


def find_cycles(texts):
    """Groups of units (a header with the files of its name) that include one another, in src and
    in integrations."""
    def unit(path):
        return os.path.splitext(path)[0]
    uses = {}
    for path, text in texts.items():
        if path.startswith(ACYCLIC):
            targets = {unit(target) for _, target in includes_of(path, text)
                       if target.startswith(ACYCLIC)}
            uses.setdefault(unit(path), set()).update(targets - {unit(path)})

    def reach(start):
        seen, todo = set(), [start]
        while todo:
            for target in uses.get(todo.pop(), ()):
                if target not in seen:
                    seen.add(target)
                    todo.append(target)
        return seen
    reached = {name: reach(name) for name in uses}
    cycles = {tuple(sorted(other for other in uses
                           if name in reached[other] and other in reached[name]))
              for name in uses if name in reached[name]}
    return sorted(cycles)


def check_file(path, text):
    room = room_of(path)
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        include = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if include:
            target = resolve(path, include.group(1))
            outside = not (os.path.exists(os.path.join(ROOT, target))
                           or target.startswith(THIRD_PARTY + ("include/", "..")))
            if target.startswith("libxsmm"):
                if path != ONLY_LIBXSMM:
                    yield f"{where}: only {ONLY_LIBXSMM} includes libxsmm"
            elif not outside and not target.startswith(tuple([room] + ROOMS[room])):
                yield f"{where}: {room} may not include {target}"
        elif (path.startswith("src/") and path != ONLY_OPENMP
              and re.match(r"\s*#\s*pragma\s+omp\b", line)):
            yield f"{where}: only {ONLY_OPENMP} opens parallel regions"


def main():
    errors, n, texts = [], 0, {}
    for top in ("include", "src", "tests/oracle", "tools/graph_runner", "examples",
                "integrations"):
        for folder, _, names in os.walk(os.path.join(ROOT, top)):
            for name in sorted(names):
                if name.endswith((".c", ".h", ".def", ".inc")):
                    path = os.path.relpath(os.path.join(folder, name), ROOT)
                    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
                        texts[path] = f.read()
                    errors += check_file(path, texts[path])
                    n += 1
    errors += ["files include one another in a circle: " + ", ".join(cycle)
               for cycle in find_cycles(texts)]
    print("\n".join(errors + [f"{n} files, {len(errors)} violations"]))
    return 1 if errors or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
