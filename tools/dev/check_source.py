#!/usr/bin/env python3
"""Checks conventions that a grep can see: no absolute paths, no tuning for the build machine, no
switch over data types outside the codecs, no call_once."""
import os
import re
import sys

import c_source

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
ABSOLUTE_PATH = re.compile(
    r"(?<![\w.$})])/(?:home|root|work|tmp|mnt|opt|Users|usr/(?:include|lib|local|share))/")
NATIVE = re.compile("-m(?:arch|tune)=" + "native")
# The codecs are where one function for each data type belongs; unit tests may have decoders of
# their own to compare with.
CODE = re.compile(r"^(src|include|tools|examples|tests/oracle)/.*\.(c|h|inc)$")
# ThreadSanitizer knows nothing of C11's call_once, and reports races in the host that are none.
CALL_ONCE = re.compile(r"\b(?:call_once|once_flag)\b")
CODECS = re.compile(r"^(src/numeric/dtype[^/]*|tests/oracle/[^/]*codec[^/]*)\.[ch]$")


def dtype_names():
    with open(os.path.join(ROOT, "include/sinter/dtypes.def"), encoding="utf-8") as f:
        return re.findall(r"^SINTER_DTYPE\(\d+, (\w+)", f.read(), re.M)


def check_file(path, text, case_dtype):
    library = path.startswith("src/")
    for number, line in enumerate(text.splitlines(), 1):
        where = f"{path}:{number}"
        if ABSOLUTE_PATH.search(line):
            yield f"{where}: absolute path"
        if NATIVE.search(line):
            yield f"{where}: compiles for the build machine"
        if CODE.match(path) and not CODECS.match(path) and case_dtype.search(line):
            yield f"{where}: switch over data types outside the codecs; ask the traits table"
        if library and CALL_ONCE.search(line):
            yield f"{where}: call_once, which ThreadSanitizer does not know; use pthread_once"


def main():
    names = dtype_names()
    case_dtype = re.compile(r"\bcase\s+sinter_(?:" + "|".join(names) + r")\b")
    errors, n = [], 0
    for path in c_source.tracked_files(ROOT):
        with open(os.path.join(ROOT, path), encoding="utf-8", errors="replace") as f:
            errors += check_file(path, f.read(), case_dtype)
        n += 1
    print("\n".join(errors + [f"{n} files, {len(errors)} violations"]))
    return 1 if errors or not names or n == 0 else 0


if __name__ == "__main__":
    sys.exit(main())
