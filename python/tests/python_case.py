"""What the tests of the Python package share: its environment, the library under test, NumPy."""
import os
import sys
import unittest

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
FOLDER = os.environ.get("SINTER_PYTHON_VENV", os.path.join(ROOT, "build", "python-venv"))
PACKAGES = ["numpy==2.4.6", "ml_dtypes==0.6.0"]
SKIPPED = 77
sys.path[:0] = [os.path.join(ROOT, "python"), os.path.join(ROOT, "tools")]

import scratch_venv


def enter():
    """Runs the test again where NumPy and ml_dtypes are; it is skipped where they cannot be had. It
    stays in the interpreter that SINTER_PYTHON names, which has them and may have torch."""
    named = os.environ.get("SINTER_PYTHON")
    if named and named != "this":
        os.execve(named, [named, "-B", *sys.argv], os.environ | {"SINTER_PYTHON": "this"})
    if named:
        return
    python, why = scratch_venv.make(FOLDER, PACKAGES)
    if not python:
        print("not tested:", why)
        sys.exit(SKIPPED)
    if not scratch_venv.inside(FOLDER):
        os.execv(python, [python, "-B", *sys.argv])


class Case(unittest.TestCase):
    def fails(self, status, *words):
        """A SinterError with this status, whose message has these words."""
        import sinter

        case = self

        class Expected:
            def __enter__(self):
                return self

            def __exit__(self, kind, error, _):
                case.assertIsInstance(error, sinter.SinterError, "no SinterError")
                case.assertEqual(error.status, status, error.message)
                for word in words:
                    case.assertIn(word, error.message)
                return True

        return Expected()

    def near(self, found, wanted, bound):
        """No element further from the wanted one than its bound."""
        import numpy as np

        found, wanted = np.asarray(found, np.float64), np.asarray(wanted, np.float64)
        self.assertEqual(found.shape, wanted.shape)
        self.assertTrue(np.isfinite(found).all())
        over = np.abs(found - wanted) - bound
        self.assertLessEqual(float(np.max(over)), 0.0)
