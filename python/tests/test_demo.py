#!/usr/bin/env python3
"""What tools/llm_demo.py does without a network: it adds up the times that the library prints, and
lets a library load that was built for a newer C library.

test_demo.py CC, with SINTER_LIBRARY"""
import contextlib
import ctypes
import io
import os
import re
import subprocess
import sys
import unittest
from unittest import mock

import python_case

python_case.enter()

import llm_demo

CC = sys.argv.pop(1)
PROGRAM = """
import sys, numpy as np, sinter
g = sinter.Graph()
x, w = g.input("f32", [None, 64]), g.constant(np.ones((64, 64), np.float32))
g.op("SoftMax", [g.op("MatMul", [g.op("RMSNorm", [x, g.constant(np.ones(64, np.float32))],
                                      epsilon=1e-5), w])], axis=-1)
c = g.compile()
for step in ("warm", "decoding begins", "", "decoding ends", ""):
    print(step, file=sys.stderr, flush=True)
    c({x: np.ones((300, 64), np.float32)}, sinter.Stream(int(sys.argv[1])))
"""


class Demo(python_case.Case):
    def test_times(self):
        """The times of the executes between the marks, each divided among its partitions."""
        for threads in (1, 2):
            self.times(threads)

    def times(self, threads):
        environment = os.environ | {"SINTER_VERBOSE": "exec",
                                    "PYTHONPATH": os.path.join(python_case.ROOT, "python")}
        command = [sys.executable, "-B", "-c", PROGRAM, str(threads)]
        said = subprocess.run(command, env=environment, text=True, capture_output=True,
                              check=True).stderr
        parts = llm_demo.parts_of_log(said)
        patterns = set(re.findall(r"exec partition \d+ \(([^)]+)\)", said))
        self.assertGreater(len(patterns), 1)
        if sinter_threads(said) > 1:
            self.assertEqual(set(parts), patterns)
        else:
            self.assertEqual(set(parts), {llm_demo.ALONE})
        times = [float(us) for us in re.findall(r"exec sequence .*, ([\d.]+) us$", said, re.M)]
        self.assertEqual(len(times), 5)
        self.assertAlmostEqual(sum(parts.values()), sum(times[1:3]) * 1e-6, 9)
        self.assertTrue(all(seconds > 0 for seconds in parts.values()))

    def test_busy_machine(self):
        """Rates that were measured beside other programs are not compared where both together want
        more processors than there are."""
        def said(others, threads, processors):
            runs = [{"others": others, "rates": {"prompt": 2.0 * n, "decode": 3.0 * n}}
                    for n in (1, 4)]
            with contextlib.redirect_stdout(io.StringIO()) as text:
                llm_demo.rates(*runs, threads, processors)
            return text.getvalue()

        quiet = "prompt: 4.00 times as fast\ndecode: 4.00 times as fast\n"
        self.assertEqual(said(0.02, 2, 2), quiet)
        self.assertEqual(said(1.5, 2, 8), quiet)
        for text in (said(0.5, 2, 2), said(6.5, 2, 8)):
            self.assertIn("no comparison", text)
            self.assertNotIn("times as fast", text)

    def test_weak_versions(self):
        """A library whose needed version of a function is marked as weak still loads, and takes
        the function from one that has it without a version."""
        with open("shim.c", "w", encoding="ascii") as file:
            file.write(llm_demo.SHIM)
        subprocess.run([CC, "-shared", "-fPIC", "shim.c", "-o", "shim.so"], check=True)
        with open("needs.c", "w", encoding="ascii") as file:
            file.write('#include <stdlib.h>\n__asm__(".symver strtol, strtol@GLIBC_2.2.5");\n'
                       "long number(const char *s) { return strtol(s, 0, 10); }\n")
        subprocess.run([CC, "-shared", "-s", "-fPIC", "needs.c", "-o", "needs.so"], check=True)
        with open("needs.so", "rb") as file:
            image = file.read()
        # Its name, and the hash by which the loader knows it, of a version that there is not.
        old, new = b"GLIBC_2.2.5\0", b"GLIBC_9.9.9\0"
        self.assertEqual(image.count(old), 1)
        image = image.replace(old, new).replace(elf_hash(old), elf_hash(new))
        image = image.replace(b"\0strtol\0", b"\0strtoX\0")
        with open("newer.so", "wb") as file:
            file.write(image)
        with self.assertRaises(OSError):
            ctypes.CDLL("./newer.so")
        with mock.patch.object(llm_demo, "NEWER", "GLIBC_9.9.9"):
            llm_demo.make_weak("newer.so")
        with open("shim.c", "a", encoding="ascii") as file:
            file.write("long strtoX(const char *s, char **e, int b) { return strtol(s, e, b); }\n")
        subprocess.run([CC, "-shared", "-fPIC", "shim.c", "-o", "other.so"], check=True)
        ctypes.CDLL("./other.so", mode=ctypes.RTLD_GLOBAL)
        self.assertEqual(ctypes.CDLL("./newer.so").number(b"42"), 42)


def sinter_threads(said):
    """How many threads the stream had: the system may refuse the second."""
    return 2 if "us of work" in said else 1


def elf_hash(name):
    value = 0
    for byte in name.rstrip(b"\0"):
        value = (value << 4) + byte
        value ^= (value & 0xf0000000) >> 24
        value &= 0x0fffffff
    return value.to_bytes(4, "little")


if __name__ == "__main__":
    unittest.main()
