#!/usr/bin/env python3
"""Tests tests/summary.py with an invented report."""
import os
import subprocess
import sys
import tempfile

TOOL = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "summary.py")
REPORT = """<testsuite tests="6" failures="1" skipped="5">
<testcase name="a.avx512" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
  <system-out>no level avx512 here\n</system-out></testcase>
<testcase name="b.avx512" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
  <system-out>building\nno level avx512 here\n</system-out></testcase>
<testcase name="c.avx512" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
  <system-out>no level avx512 here\n</system-out></testcase>
<testcase name="graphs" status="notrun"><skipped message="SKIP_RETURN_CODE=77"/>
  <system-out>not tested: the folder is &lt;absent&gt;\n0 passed, 0 failed, 3 skipped\n</system-out>
</testcase>
<testcase name="silent" status="notrun" time="2"><skipped message="SKIP_RETURN_CODE=77"/></testcase>
<testcase name="wrong" status="fail" time="12.5"><failure message=""/>
  <system-out>skipped: this one failed\n</system-out></testcase>
</testsuite>"""
WANTED = """skipped:
     3  no level avx512 here
     1  the folder is <absent> (graphs)
     1  no reason given (silent)
slowest, in seconds:
    12  wrong, build
     2  silent, build
     0  graphs, build
     0  c.avx512, build
     0  b.avx512, build
     0  a.avx512, build
"""


def main():
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "build", "tests.xml")
        os.mkdir(os.path.dirname(path))
        with open(path, "w", encoding="utf-8") as file:
            file.write(REPORT)
        said = subprocess.run([sys.executable, "-B", TOOL, path], check=True, text=True,
                              stdout=subprocess.PIPE).stdout
    print(said)
    if said != WANTED:
        print("expected:", WANTED, sep="\n")
    return said != WANTED


if __name__ == "__main__":
    sys.exit(main())
