#!/usr/bin/env python3
"""tools/dev/compare_builds.py with invented builds whose times are known, and with a real one.

test_compare_builds.py GRAPH_RUNNER"""

import os
import re
import stat
import subprocess
import sys
import tempfile
import unittest

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
COMPARE = os.path.join(ROOT, "tools", "dev", "compare_builds.py")
RUNNER = os.path.abspath(sys.argv.pop(1))

# A build that answers at once: 100 us times its factor, plus `drift` for each run of any build so
# far, 1.2 times as much for cases whose name contains `slow`; those with `fails` in their name
# fail. It notes its arguments in runs.log.
FAKE = """#!{python}
import json, os, sys
folder = {folder!r}
if "--help" in sys.argv:
    print("--mode=C {flag}")
    sys.exit(0)
with open(os.path.join(folder, "runs.log"), "a") as log:
    log.write({name!r} + " " + " ".join(sys.argv[1:]) + "\\n")
with open(os.path.join(folder, "runs.log")) as log:
    before = len(log.readlines()) - 1
case = [a for a in sys.argv if a.startswith("--case=")][-1][7:]
if not os.access(case, os.R_OK):
    sys.exit(77 if "shared" in case else 1)
if {fails!r} and {fails!r} in case:
    print("    output 3: 1 of 8 elements out of tolerance")
    sys.exit(1)
us = 100 * {factor} + {drift} * before
if {slow!r} and {slow!r} in case:
    us *= 1.2
if "--json" in sys.argv:
    assert {json}
    times = {{"min": {{"us": 1}}, "median": {{"us": us}}}}
    print(json.dumps({{"partitions": [], "performance": times}}))
else:
    print("    partition 0 single: compile 0.2 ms")
    print("        median 77.7 ms: 1 GB/s")
    print("    all partitions: compile 0.2 ms")
    print(f"        min    {{us / 2000:.6g}} ms: 1 GB/s")
    print(f"        median {{us / 1000:.6g}} ms: 1 GB/s")
"""


class Compared(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.folder = self.scratch.name
        os.mkdir(os.path.join(self.folder, "lists"))
        os.mkdir(os.path.join(self.folder, "models"))
        for name in ("a", "b"):
            self.write(f"models/{name}.json", "{}")
        self.write(
            "lists/x.list",
            "# two lines\ngraph_runner --case=../models/a.json --threads=1 # first\n\n"
            "--case=../models/b.json\n",
        )

    def tearDown(self):
        self.scratch.cleanup()

    def write(self, name, text):
        path = os.path.join(self.folder, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    def fake(self, name, factor=1.0, json=True, slow="", fails="", drift=0.0):
        path = self.write(
            name,
            FAKE.format(
                python=sys.executable,
                folder=self.folder,
                name=name,
                factor=factor,
                json=json,
                flag="--json" if json else "",
                slow=slow,
                fails=fails,
                drift=drift,
            ),
        )
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return path

    def compare(self, old, new, *options, listed="lists/x.list"):
        command = [
            sys.executable,
            "-B",
            COMPARE,
            old,
            new,
            os.path.join(self.folder, listed),
            *options,
        ]
        run = subprocess.run(command, capture_output=True, text=True, check=False)
        self.text = run.stdout + run.stderr
        return run.returncode

    def ratio(self, line):
        found = re.search(rf"^ *([\d.]+) +[\d.]+ +[\d.]+  .*{line}", self.text, re.MULTILINE)
        self.assertTrue(found, self.text)
        return float(found[1])

    def runs(self):
        with open(os.path.join(self.folder, "runs.log"), encoding="utf-8") as log:
            return [line.split() for line in log]

    def test_faster(self):
        self.assertEqual(
            self.compare(self.fake("old", json=False), self.fake("new", 0.5)), 0, self.text
        )
        self.assertEqual((self.ratio("a.json"), self.ratio("b.json")), (2.0, 2.0))
        self.assertIn(" 2.000  geometric mean of 2 lines", self.text)

    def test_slower(self):
        old, new = self.fake("old", json=False), self.fake("new", slow="b.json")
        self.assertEqual(self.compare(old, new), 1)
        self.assertEqual((self.ratio("a.json"), self.ratio("b.json")), (1.0, 0.833))
        self.assertRegex(self.text, r"b\.json  SLOWER")
        self.assertNotRegex(self.text, r"a\.json.*SLOWER")
        self.assertIn(" 0.913  geometric mean", self.text)
        self.assertEqual(self.compare(old, new, "--factor=0.83"), 0, self.text)
        self.assertEqual(self.compare(old, new, "--only=a[.]json"), 0, self.text)
        self.assertIn("1 of 1 lines compared", self.text)

    def test_json_and_text_agree(self):
        for old_json in (False, True):
            for new_json in (False, True):
                self.assertEqual(
                    self.compare(
                        self.fake("old", json=old_json), self.fake("new", 0.8, json=new_json)
                    ),
                    0,
                    self.text,
                )
                self.assertEqual(self.ratio("a.json"), 1.25)

    def test_order(self):
        """Old, new, new, old, and the other way round in every second round: that every run is
        slower than the one before changes nothing."""
        self.assertEqual(
            self.compare(
                self.fake("old", drift=25),
                self.fake("new", drift=25),
                "--rounds=3",
                "--only=a.json",
            ),
            0,
            self.text,
        )
        first, second = 2 * ["old", "new", "new", "old"], 2 * ["new", "old", "old", "new"]
        self.assertEqual([run[0] for run in self.runs()], first + second + first)
        self.assertEqual(self.ratio("a.json"), 1.0)

    def test_more(self):
        """A line that is slower gets further rounds, and stays slower if it is."""
        self.assertEqual(
            self.compare(
                self.fake("old"), self.fake("new", slow="b.json"), "--rounds=1", "--more=2"
            ),
            1,
        )
        self.assertEqual((self.ratio("a.json"), self.ratio("b.json")), (1.0, 0.833))
        cases = [next(word for word in run if word.startswith("--case=")) for run in self.runs()]
        self.assertEqual([sum(name in case for case in cases) for name in ("a.json", "b.json")],
                         [8, 24])

    def test_arguments(self):
        self.compare(
            self.fake("old", json=False),
            self.fake("new"),
            "--rounds=1",
            "--max-cpu-isa=avx2",
            "--min-time=0.25",
            "--only=a.json",
        )
        case = "--case=" + os.path.realpath(os.path.join(self.folder, "models/a.json"))
        for run in self.runs():
            words = [
                word if not word.startswith("--case=") else "--case=" + os.path.realpath(word[7:])
                for word in run[1:]
            ]
            json = ["--json"] if run[0] == "new" else []
            self.assertEqual(
                words,
                [case, "--threads=1", "--min-time=0.25", "--max-cpu-isa=avx2", "--mode=P", *json],
            )

    def test_failures(self):
        self.assertEqual(self.compare(self.fake("old"), self.fake("new", fails="a.json")), 1)
        self.assertRegex(
            self.text,
            r"a\.json.*FAILED: new build, exit status 1: output 3: 1 of 8 elements out of",
        )
        self.assertEqual(self.ratio("b.json"), 1.0)
        self.assertEqual(
            self.compare(self.fake("old", fails="a.json", json=False), self.fake("new")), 1
        )
        self.assertRegex(self.text, r"FAILED: old build")

    def test_nothing_to_compare(self):
        old, new = self.fake("old"), self.fake("new")
        self.write("lists/none.list", "# nothing\n")
        self.assertEqual(self.compare(old, new, listed="lists/none.list"), 2)
        self.write("lists/absent.list", "--case=${NO_SUCH_VARIABLE:-../shared}/x.json\n")
        self.assertEqual(self.compare(old, new, listed="lists/absent.list"), 2)
        self.assertIn("SKIPPED", self.text)
        self.assertNotEqual(self.compare(os.path.join(self.folder, "no-such-build"), new), 0)

    def test_real_build(self):
        """A build against itself, once by its text and once by its document."""
        case = os.path.join(ROOT, "models", "patterns", "sdpa.json")
        self.write("lists/real.list", f"--case={case} --no-fuse\n")
        hidden = self.write(
            "hidden", f'#!/bin/sh\n[ "$1" = --help ] && exit 0\nexec "{RUNNER}" "$@"\n'
        )
        os.chmod(hidden, 0o755)
        self.assertEqual(
            self.compare(
                hidden,
                RUNNER,
                "--rounds=1",
                "--min-time=0.01",
                "--factor=1e-6",
                listed="lists/real.list",
            ),
            0,
            self.text,
        )
        self.assertIn("1 of 1 lines compared, 0 slower", self.text)

    def test_library(self):
        """The same program over the library of its own folder, and over a file that is no
        library."""
        case = os.path.join(ROOT, "models", "patterns", "sdpa.json")
        self.write("lists/real.list", f"--case={case} --no-fuse\n")
        options = ["--rounds=1", "--min-time=0.01", "--factor=1e-6"]
        self.assertEqual(
            self.compare(os.path.dirname(RUNNER), RUNNER, *options, listed="lists/real.list"),
            0,
            self.text,
        )
        self.assertIn("1 of 1 lines compared, 0 slower", self.text)
        broken = os.path.join(self.folder, "broken")
        os.mkdir(broken)
        self.write("broken/libsinter.so.0", "not a library")
        self.assertNotEqual(self.compare(broken, RUNNER, *options, listed="lists/real.list"), 0)


if __name__ == "__main__":
    unittest.main()
