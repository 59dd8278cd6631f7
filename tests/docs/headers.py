#!/usr/bin/env python3
"""headers.py: each function of the public headers has a comment of its own, and the headers have as
many lines with comments as with code."""
import glob
import os
import re
import sys

from common import ROOT, verdict


def count(text):
    """(lines with comments, lines with code)"""
    comments = code = 0
    inside = False
    for line in text.splitlines():
        commented, rest = inside, ""
        while line:
            if inside:
                _, end, line = line.partition("*/")
                inside = not end
            else:
                before, begin, line = line.partition("/*")
                rest += before
                commented = commented or bool(begin)
                inside = bool(begin)
        comments += commented
        code += bool(rest.strip())
    return comments, code


def main():
    errors, checks, comments, code = [], 0, 0, 0
    for path in sorted(glob.glob(os.path.join(ROOT, "include/sinter/*.h"))):
        with open(path, encoding="utf-8") as f:
            text = f.read()
        for match in re.finditer(r"^SINTER_API [^;]*?(sinter_\w+)\(", text, re.M):
            checks += 1
            if not text[:match.start()].endswith("*/\n"):
                errors.append(f"{os.path.relpath(path, ROOT)}: {match.group(1)} has no comment")
        lines = count(text)
        comments += lines[0]
        code += lines[1]
    if comments < code:
        errors.append(f"public headers: {comments} lines with comments for {code} with code")
    print(f"public headers: {comments / code:.2f} lines with comments for one with code")
    return verdict("public headers", errors, checks)


if __name__ == "__main__":
    sys.exit(main())
