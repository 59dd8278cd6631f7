"""Packages for scripts that are no part of the build: a virtual environment of their own, made when
it is missing."""
import os
import subprocess
import sys
import venv


def enter(folder, packages):
    """Runs the calling script again inside the environment in folder."""
    python = os.path.join(folder, "bin", "python")
    if not os.path.exists(python):
        venv.create(folder, with_pip=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", *packages], check=True)
    if os.path.realpath(sys.prefix) != os.path.realpath(folder):
        os.execv(python, [python, "-B", *sys.argv])
