#!/usr/bin/env python3
"""tools/dev/measure_goals.py: its cells are lines of the lists; with an invented graph_runner whose
figures are known, what it prints."""

import glob
import os
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
TOOL = os.path.join(ROOT, "tools", "dev", "measure_goals.py")

# Every line reaches .9 of each limit, at twice the time in mode strict; it has only avx2.
FAKE = """#!{python}
import json, sys
(batch,) = [a[8:] for a in sys.argv if a.startswith("--batch=")]
for line in open(batch):
    fails = {fails!r} and {fails!r} in line
    limits = ("read_bandwidth", "roofline", "fma_peak", "int8_peak", "read_and_write_limit")
    figures = {{"of_" + name: 0.9 for name in limits}} | {{"us": 50 if ":int8:" in line else 100}}
    print(json.dumps({{"verdict": "FAILED" if fails else "PASSED", "message": "no luck",
                       "limits": {{"isa": "avx2"}}, "performance": {{"median": figures}}}}))
"""


class Goals(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.scratch.cleanup()

    def fake(self, fails=""):
        path = os.path.join(self.scratch.name, "fake")
        with open(path, "w", encoding="utf-8") as file:
            file.write(FAKE.format(python=sys.executable, fails=fails))
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def run_tool(self, *options):
        return subprocess.run([sys.executable, "-B", TOOL, *options], capture_output=True,
                              text=True, check=False)

    def test_lists(self):
        listed = set()
        for path in glob.glob(os.path.join(ROOT, "tests", "lists", "perf_*.list")):
            with open(path, encoding="ascii") as file:
                listed.update(line.strip() for line in file)
        lines = self.run_tool("--list").stdout.splitlines()
        self.assertGreater(len(lines), 300)
        self.assertEqual([line for line in lines if line not in listed], [])
        self.assertLess(len(self.run_tool("--list", "--quick").stdout.splitlines()), 80)

    def test_table(self):
        done = self.run_tool(f"--runner={self.fake()}", "--caps", "avx2", "--rounds=2", "--cells")
        rows = {line.split(" | ")[0][2:]: line.split(" | ")[1:]
                for line in done.stdout.splitlines() if line.startswith("| ")}
        self.assertEqual(rows["decode, 4 rows, int8"][0], "≥ 0.45 of reads")
        self.assertEqual(rows["decode, 4 rows, int8"][-1], "met by all 8 |")
        self.assertEqual(rows["prefill, int8 against strict"][2], "2.00")
        self.assertEqual(rows["verify, S 4 against S 1, int8"][0], "≤ 1.6x time")
        self.assertEqual(rows["verify, S 4 against S 1, int8"][2], "1.00")
        self.assertEqual(rows["matmul, 1 row, 4 and 8 bits, int8"][0], "≥ 0.90 of reads")
        self.assertEqual(rows["matmul, 8 and 16 rows, int8"][-1], "met by all 24 |")
        # Nine tenths of the FMA peak, and of the roofline: no more than that peak is possible.
        self.assertEqual(rows["matmul, 32 to 512 rows, int8"][-1],
                         "missed by 36 of 36, by 36 at the roofline too |")
        self.assertIn("| · s8-g32 T 16384 strict | | 0.90 0.90 |", done.stdout)
        self.assertEqual(rows["experts, 512 tokens, int8"][-1],
                         "missed by 3 of 3, by 3 at the roofline too |")
        self.assertIn("\n30 of 33 goals met", done.stdout)
        self.assertEqual(done.returncode, 1, done.stderr)

    def test_all_met(self):
        done = self.run_tool(f"--runner={self.fake()}", "--caps", "avx2", "--only=quantise")
        self.assertIn("\n2 of 2 goals met", done.stdout)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_failures(self):
        done = self.run_tool(f"--runner={self.fake('8x8x1x64')}", "--caps", "avx2")
        self.assertEqual(done.returncode, 2)
        self.assertIn("no luck: --mode=P", done.stderr)
        done = self.run_tool(f"--runner={self.fake()}", "--caps", "avx512_vnni")
        self.assertEqual(done.returncode, 2)
        self.assertIn("the engine has avx2, not avx512_vnni", done.stderr)


if __name__ == "__main__":
    unittest.main()
