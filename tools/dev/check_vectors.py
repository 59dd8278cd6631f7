#!/usr/bin/env python3
"""Checks that recorded results of other implementations are what was recorded: each file names the
SHA-256 of its data."""
import hashlib
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
RECORDED = ("tests/unit/dtype_vectors.h", "tests/unit/mx_vectors.h", "tests/oracle/vectors.h",
            "tests/unit/eltwise_vectors.h")
MARK = "/* data */\n"


def main():
    errors = []
    for path in RECORDED:
        with open(os.path.join(ROOT, path), encoding="utf-8", newline="") as f:
            head, _, data = f.read().partition(MARK)
        digest = hashlib.sha256(data.encode()).hexdigest()
        if not data or digest not in head:
            errors.append(
                f"{path}: the data's SHA-256 is {digest}, not the one that the head names")
    print("\n".join(errors + [f"{len(RECORDED)} files, {len(errors)} violations"]))
    return 1 if errors else 0


if __name__ == "__main__":
    sys.exit(main())
