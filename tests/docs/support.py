#!/usr/bin/env python3
"""support.py: the table in README.md is what tools/support_table.py makes from the .def tables."""
import os
import subprocess
import sys

from common import ROOT


def main():
    return subprocess.run([sys.executable, "-B", os.path.join(ROOT, "tools/support_table.py"), "--check"]).returncode


if __name__ == "__main__":
    sys.exit(main())
