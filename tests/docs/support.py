#!/usr/bin/env python3
"""support.py: docs/support.md is what tools/dev/support_table.py makes from the .def tables."""
import os
import subprocess
import sys

from common import ROOT


def main():
    tool = os.path.join(ROOT, "tools/dev/support_table.py")
    return subprocess.run([sys.executable, "-B", tool, "--check"]).returncode


if __name__ == "__main__":
    sys.exit(main())
