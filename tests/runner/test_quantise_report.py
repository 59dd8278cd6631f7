#!/usr/bin/env python3
"""tools/quantise_report.py: errors that follow by hand, codes that are those of DynamicQuantize,
the effect of a rotation, the picture, and what it says about wrong input.

test_quantise_report.py GRAPH_RUNNER"""

import os
import subprocess
import sys
import tempfile
import unittest
import xml.etree.ElementTree

import tools_case

tools_case.enter()

import numpy as np

import number_formats
import quantise_report
from graph_json import Graph

RUNNER = os.path.abspath(sys.argv.pop(1))
# kind, its function, codes, scales, zero points, group
KINDS = [
    ("dynamic_symmetric", number_formats.symmetric, "s8", "f16", None, 32),
    ("dynamic_symmetric", number_formats.symmetric, "s8", "f32", None, 256),
    ("dynamic_symmetric", number_formats.symmetric, "s4", "f16", None, 16),
    ("dynamic_symmetric", number_formats.symmetric, "s4", "bf16", None, 32),
    ("dynamic_symmetric", number_formats.symmetric, "f8_e4m3", "f32", None, 128),
    ("dynamic_symmetric", number_formats.symmetric, "f8_e5m2", "f32", None, 256),
    ("dynamic_asymmetric", number_formats.asymmetric, "u8", "f16", "u8", 64),
    ("dynamic_asymmetric", number_formats.asymmetric, "u4", "f16", "u4", 32),
    ("dynamic_mx", number_formats.mx, "f8_e4m3", "e8m0", None, 32),
    ("dynamic_mx", number_formats.mx, "f8_e5m2", "e8m0", None, 32),
    ("dynamic_mx", number_formats.mx, "f6_e2m3", "e8m0", None, 32),
    ("dynamic_mx", number_formats.mx, "f6_e3m2", "e8m0", None, 32),
    ("dynamic_mx", number_formats.mx, "f4_e2m1", "e8m0", None, 32),
    ("dynamic_mx_rceil", number_formats.mx_rceil, "f4_e2m1", "e8m0", None, 32),
    ("dynamic_mx_rceil", number_formats.mx_rceil, "f8_e4m3", "e8m0", None, 32),
    ("dynamic_nv", number_formats.nv, "f4_e2m1", "f8_e4m3", None, 16),
    # The last group is short.
    ("dynamic_symmetric", number_formats.symmetric, "s4", "f16", None, 96),
    ("dynamic_asymmetric", number_formats.asymmetric, "u4", "f16", "u4", 80),
    ("dynamic_mx", number_formats.mx, "f8_e4m3", "e8m0", None, 48),
    ("dynamic_nv", number_formats.nv, "f4_e2m1", "f8_e4m3", None, 24),
]
ROWS, COLUMNS = 24, 256


class Report(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()

    def tearDown(self):
        self.scratch.cleanup()

    def path(self, name):
        return os.path.join(self.scratch.name, name)

    def report(self, x, *options):
        """(format, groups) -> the other cells of its row."""
        np.save(self.path("x.npy"), x)
        done = tools_case.tool("quantise_report.py", self.path("x.npy"), *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        rows = [line.strip("| ").split(" | ") for line in done.stdout.splitlines()[2:]]
        return {(row[0], row[1]): [float(cell.rstrip(" %")) for cell in row[2:]] for row in rows}

    def test_by_hand(self):
        # One group of 16: scale 1 in s4, and 1.25 and -2.25 are off by .25. In u4 from -8 to 7,
        # scale 1 and zero point 8: the same. MXFP4: amax 7 has the power 4, the scale is 1 and 7
        # becomes 6; 1.25 becomes 1 (a tie, to even), -2.25 becomes -2, the others are exact.
        x = np.zeros((1, 32), np.float32)
        x[0, :4] = 7, 1.25, -2.25, 1
        length = np.sqrt(49 + 1.25**2 + 2.25**2 + 1)
        found = self.report(x)
        self.assertAlmostEqual(found["s4", "g32"][1], 100 * np.sqrt(2 * .25**2) / length, 1)
        self.assertAlmostEqual(found["MXFP4", "g32"][1], 100 * np.sqrt(1 + 2 * .25**2) / length, 1)
        # rceil: 7 / 6 rounded up is 2: 6, 1 (of .625: .5), -2 (of -1.125: -1), 1 (.5)
        wrong = np.sqrt(1**2 + .25**2 + .25**2) / length
        self.assertAlmostEqual(found["MXFP4 rceil", "g32"][1], 100 * wrong, 1)
        self.assertEqual(found["s4", "g32"][0], 4.5)
        self.assertEqual(found["u4 + zero points", "g16"][0], 5.25)
        self.assertEqual(found["u4 + offsets", "g32"][0], 5)
        self.assertEqual(found["NVFP4", "g16"][0], 4.5)
        self.assertEqual(found["MXFP6 e2m3", "g32"][0], 6.25)

    def test_exact(self):
        """Sixteen equal steps from 3 are exact with offsets, and not with integer zero points."""
        x = np.tile(3 + np.arange(16, dtype=np.float32) / 16, (4, 4))
        found = self.report(x)
        self.assertEqual(found["u4 + offsets", "g16"][1:], [0, 0])
        self.assertGreater(found["u4 + zero points", "g16"][1], 1)

    def test_worst_group(self):
        """Half of a group's only element is lost beside a great one in the other group."""
        x = np.zeros((1, 32), np.float32)
        x[0, 0], x[0, 16], x[0, 17] = 700, 7, .5
        found = self.report(x, "--only=s4")["s4", "g16"]
        self.assertAlmostEqual(found[2], 100 * .5 / np.sqrt(49.25), 1)
        self.assertAlmostEqual(found[1], 100 * .5 / np.sqrt(700**2 + 49.25), 3)

    def test_short_group(self):
        """Rows of 80 have a last group of 16 after one of 64: its scale is that of its elements."""
        x = np.zeros((2, 80), np.float32)
        x[:, 0], x[:, 64], x[:, 65] = 700, 7, .5
        found = self.report(x, "--only=s4")
        self.assertAlmostEqual(found["s4", "g64"][0], 4 + 2 * 16 / 80, 2)
        self.assertAlmostEqual(found["s4", "g64"][2], 100 * .5 / np.sqrt(49.25), 1)
        self.assertEqual(found["s4", "row"][2], found["s4", "row"][1])
        self.assertNotIn(("s4", "g128"), found)

    def test_axis(self):
        x = np.random.default_rng(2).standard_normal((32, 3, 64)).astype(np.float16)
        turned = np.ascontiguousarray(np.moveaxis(x, 0, -1))
        self.assertEqual(self.report(x, "--axis=0"), self.report(turned))

    def test_rotation(self):
        """Vectors of 64 with one element of 50 among others around 1. As they are, s4 has a step of
        7, which leaves nothing of the others. Rotated, every element is 50 / 8 and some of the
        others' noise: the step is about 1.3, the error of an element 1.3 over the root of 12."""
        x = np.random.default_rng(3).standard_normal((64, 128)).astype(np.float32)
        x[:, 5::64] = 50
        _, plain, _, turned, _ = self.report(x, "--rotate=64", "--only=s4")["s4", "g64"]
        self.assertAlmostEqual(plain, 100 * np.sqrt(63 / (2500 + 63)), delta=1)
        self.assertAlmostEqual(turned, 100 * np.sqrt(64 * 1.3**2 / 12 / (2500 + 63)), delta=1)
        h = quantise_report.hadamard(64)
        np.testing.assert_allclose(h @ h, np.eye(64), atol=1e-12)
        np.testing.assert_allclose(quantise_report.rotated(quantise_report.rotated(x, 64), 64), x,
                                   atol=1e-4)

    def test_as_the_library(self):
        rng = np.random.default_rng(4)
        x = rng.standard_normal((ROWS, COLUMNS)).astype(np.float32)
        x *= np.exp2(rng.integers(-20, 12, (ROWS, 1))).astype(np.float32)
        x[3], x[4, :16], x[5] = 0, 0, np.abs(x[5])
        x[6] = np.rint(x[6] / np.abs(x[6]).max() * 14) / 2  # ties
        np.save(self.path("x.npy"), x)
        for row in KINDS:
            with self.subTest(row[0] + " " + row[2]):
                self.compare(x, *row)

    def compare(self, x, kind, make, codes, scales, points, group):
        g = Graph()
        sides = [ROWS, -(-COLUMNS // group)]
        source = g.input("f32", [ROWS, COLUMNS])
        outputs = [g.tensor(codes, [ROWS, COLUMNS]), g.tensor(scales, sides)]
        outputs += [g.tensor(points, sides)] if points else []
        g.op_to("DynamicQuantize", [source], outputs, qtype="per_group", group_shape=[1, group],
                quantization_kind=kind)
        g.output(*outputs).write(self.path("q.json"))
        folder = tempfile.mkdtemp(dir=self.scratch.name)
        done = subprocess.run([RUNNER, "--mode=X", f"--case={self.path('q.json')}",
                               f"--in={source['id']}:{self.path('x.npy')}",
                               f"--dump-tensors={folder}"], capture_output=True, text=True,
                              check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        short = COLUMNS % group
        parts = [make(x[:, :COLUMNS - short].reshape(-1, group), codes, scales)]
        parts += [make(x[:, COLUMNS - short:], codes, scales)] if short else []
        made = [np.concatenate([part.reshape(ROWS, -1) for part in side], 1)
                for side in zip(*parts) if side[0] is not None]
        self.assert_dumped(folder, outputs[0], made[0])
        expected = number_formats.round_to(scales, made[1]) if scales != "e8m0" else (
            np.log2(made[1].astype(np.float64)) + 127).astype(np.uint8)
        self.assert_dumped(folder, outputs[1], expected)
        if points:
            self.assert_dumped(folder, outputs[2], made[2].astype(np.uint8))

    def assert_dumped(self, folder, tensor, expected):
        path = os.path.join(folder, str(tensor["id"]))
        if os.path.exists(path + ".npy"):
            raw = np.load(path + ".npy").reshape(-1).view(np.uint8)
        else:
            raw = np.fromfile(path + ".bin", np.uint8)
        np.testing.assert_array_equal(raw, number_formats.pack(tensor["dtype"], expected))

    def test_picture(self):
        x = np.random.default_rng(5).standard_normal((8, 64)).astype(np.float32)
        self.report(x, f"--plot={self.path('a.svg')}", "--rotate=64")
        self.report(x, f"--plot={self.path('a.png')}")
        with open(self.path("a.svg"), encoding="utf-8") as file:
            text = file.read()
        xml.etree.ElementTree.fromstring(text)
        for row in quantise_report.FORMATS:
            self.assertIn(row.name, text)
        with open(self.path("a.png"), "rb") as file:
            self.assertEqual(file.read(4), b"\x89PNG")

    def test_refused(self):
        def refuse(says, *options):
            done = tools_case.tool("quantise_report.py", self.path("x.npy"), *options)
            self.assertEqual(done.returncode, 1, done.stdout)
            self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
            self.assertIn(says, done.stderr)

        refuse("No such file")
        np.save(self.path("x.npy"), np.ones((2, 48), np.float32))
        refuse("do not divide into vectors of 64", "--rotate=64")
        refuse("has no dim 2", "--axis=2")
        refuse("too short for groups of none", "--only=none")
        np.save(self.path("x.npy"), np.array([[1, np.nan]], np.float32))
        refuse("has NaN or infinities")
        np.save(self.path("x.npy"), np.ones((2, 48), np.int32))
        refuse("has no floats")
        with open(self.path("x.npy"), "wb") as file:
            file.write(b"\x93NUMPY\x01\x00")
        refuse("is no .npy file")


if __name__ == "__main__":
    unittest.main()
