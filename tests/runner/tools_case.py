"""What the tests of the tools that need NumPy share."""
import os
import subprocess
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
SKIPPED = 77
sys.path.insert(0, os.path.join(ROOT, "tools"))

import scratch_venv
import tools_venv


def enter():
    """Runs the test again with the packages of tools_venv; without them it is skipped."""
    python, why = scratch_venv.make(tools_venv.FOLDER, tools_venv.PACKAGES)
    if not python:
        print("not tested:", why)
        sys.exit(SKIPPED)
    if not scratch_venv.inside(tools_venv.FOLDER):
        os.execv(python, [python, "-B", *sys.argv])


def tool(name, *arguments):
    path = os.path.join(ROOT, "tools", name)
    return subprocess.run([sys.executable, "-B", path, *arguments], capture_output=True, text=True,
                          check=False)
