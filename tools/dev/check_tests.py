#!/usr/bin/env python3
"""Every test program hands its exit status to check_finish, which fails a program that made no
check. The programs of tests/process are no part of this: each runs one case, whose verdict is its
exit status. Nor are those of tests/ggml, whose output run.py judges."""
import glob
import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MAIN = re.compile(r"^int main\(.*?^}", re.M | re.S)


def main():
    paths = sorted(glob.glob(os.path.join(ROOT, "tests", "**", "*.c"), recursive=True))
    programs, errors = 0, []
    for path in paths:
        if os.path.basename(os.path.dirname(path)) in ("process", "ggml"):
            continue
        with open(path, encoding="utf-8") as f:
            body = MAIN.search(f.read())
        if body is None:
            continue
        programs += 1
        if not body.group().rstrip("}\n ").endswith("return check_finish();"):
            errors.append(
                f"{os.path.relpath(path, ROOT)}: main does not end in \"return check_finish();\"")
    print("\n".join(errors + [f"{programs} test programs, {len(errors)} violations"]))
    return 1 if errors or programs == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
