#!/usr/bin/env python3
"""python -m sinter: it passes at each instruction set that there is, and fails where the library
computes wrong or is not there.

test_self.py, with SINTER_LIBRARY"""
import os
import subprocess
import sys
import unittest

import python_case

python_case.enter()

import sinter

# A library whose results are off by a thousandth.
WRONG = """
import runpy, sinter
right = sinter.CompiledGraph.__call__
sinter.CompiledGraph.__call__ = lambda self, arrays: tuple(y * 1.001 for y in right(self, arrays))
runpy.run_module("sinter", run_name="__main__")
"""


class Self(unittest.TestCase):
    def run_python(self, *arguments, **variables):
        environment = os.environ | {"PYTHONPATH": os.path.join(python_case.ROOT, "python")}
        return subprocess.run([sys.executable, "-B", *arguments], env=environment | variables,
                              text=True, capture_output=True, check=False)

    def test_right(self):
        done = self.run_python("-m", "sinter")
        self.assertEqual((done.returncode, done.stderr), (0, ""), done.stdout)
        for said in (sinter.version(), os.environ["SINTER_LIBRARY"], f"used       {sinter.isa()}",
                     "self-test  generic, strict: right",
                     f"self-test  {sinter.isa()}, int8: right"):
            self.assertIn(said, done.stdout)

    def test_cap(self):
        done = self.run_python("-m", "sinter", SINTER_MAX_CPU_ISA="generic")
        self.assertEqual((done.returncode, done.stdout.count("self-test")), (0, 2))

    def test_wrong(self):
        done = self.run_python("-c", WRONG)
        self.assertEqual(done.returncode, 1, done.stderr)
        self.assertIn("self-test  generic, strict: WRONG, off by 1e-03", done.stdout)

    def test_no_library(self):
        done = self.run_python("-m", "sinter", SINTER_LIBRARY="none.so")
        self.assertEqual((done.returncode, done.stderr), (1, ""))
        self.assertIn("none.so", done.stdout)


if __name__ == "__main__":
    unittest.main()
