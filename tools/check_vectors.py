#!/usr/bin/env python3
"""Checks that recorded results of other implementations (tests/**/*vectors.h) are what was recorded: each names the SHA-256 of its data."""
import glob
import hashlib
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
MARK = "/* data */\n"


def main():
    paths = sorted(glob.glob(os.path.join(ROOT, "tests", "**", "*vectors.h"), recursive=True))
    errors = []
    for path in paths:
        with open(path, encoding="utf-8", newline="") as f:
            head, _, data = f.read().partition(MARK)
        digest = hashlib.sha256(data.encode()).hexdigest()
        if not data or digest not in head:
            errors.append(f"{os.path.relpath(path, ROOT)}: the data's SHA-256 is {digest}, not the one that the head names")
    print("\n".join(errors + [f"{len(paths)} files, {len(errors)} violations"]))
    return 1 if errors or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
