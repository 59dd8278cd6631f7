#!/usr/bin/env python3
"""pip install of the package into a fresh virtual environment, from a copy of python/: it is
imported from there, finds the library by the variable and beside itself, and has its types.

test_install.py, with SINTER_LIBRARY"""
import os
import shutil
import subprocess
import sys
import tempfile
import venv

import python_case

PROGRAM = """
import os, sinter, numpy as np
print(os.path.dirname(sinter.__file__))
print(os.path.dirname(sinter.load()))
print(os.path.exists(os.path.join(os.path.dirname(sinter.__file__), "py.typed")))
g = sinter.Graph()
x = g.input("f32", [None, 3])
g.op("ReLU", [x])
print(g.compile()({x: np.array([[-1, 0, 2]], np.float32)})[0].tolist())
"""


def run(*command, **options):
    return subprocess.run(command, capture_output=True, text=True, check=True, **options).stdout


def installed(folder, package, library):
    """What PROGRAM prints in a fresh environment that has the package."""
    python = os.path.join(folder, "bin", "python")
    venv.create(folder, with_pip=True)
    run(python, "-m", "pip", "install", "--quiet", "--retries=1", "--timeout=20",
        "--disable-pip-version-check", package)
    environment = {k: v for k, v in os.environ.items() if k not in ("SINTER_LIBRARY", "PYTHONPATH")}
    environment |= {"SINTER_LIBRARY": library} if library else {}
    lines = run(python, "-c", PROGRAM, env=environment, cwd=folder).splitlines()
    # Without ml_dtypes a type that NumPy lacks is a view of bytes.
    run(python, "-c", "import sinter; assert isinstance(sinter.empty('bf16', [3]), sinter.View)",
        env=environment)
    return lines


def main():
    library = os.path.realpath(os.environ["SINTER_LIBRARY"])
    with tempfile.TemporaryDirectory() as scratch:
        package = os.path.join(scratch, "package")
        shutil.copytree(os.path.join(python_case.ROOT, "python"), package,
                        ignore=shutil.ignore_patterns("__pycache__", "build", "*.egg-info"))
        try:
            first = installed(os.path.join(scratch, "first"), package, library)
        except subprocess.CalledProcessError as error:
            said = error.stderr.strip().splitlines()
            if "pip" not in error.cmd or not any("Could not find a version" in line or
                                                 "No matching distribution" in line
                                                 for line in said):
                print(error.stderr)
                raise
            print("not tested: PyPI cannot be had:", said[-1])
            return python_case.SKIPPED
        print("\n".join(first))
        assert first[0].startswith(os.path.join(scratch, "first")), first
        assert first[1:] == [os.path.dirname(library), "True", "[[0.0, 0.0, 2.0]]"], first
        # A library in the package's folder goes with it.
        shutil.copy(library, os.path.join(package, "sinter", "libsinter.so"))
        second = installed(os.path.join(scratch, "second"), package, "")
        print("\n".join(second))
        assert second[0] == second[1] and second[2:] == first[2:], second
    return 0


if __name__ == "__main__":
    sys.exit(main())
