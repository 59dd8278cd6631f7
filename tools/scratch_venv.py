"""Packages for scripts that are no part of the build: a virtual environment of their own, made when
it is missing."""
import fcntl
import os
import shutil
import subprocess
import sys
import venv


def make(folder, packages):
    """Makes the environment where it is missing; several processes may want it at once. Its python,
    or None and the reason why there is none."""
    python, done = os.path.join(folder, "bin", "python"), os.path.join(folder, "done")
    os.makedirs(os.path.dirname(os.path.abspath(folder)), exist_ok=True)
    with open(folder + ".lock", "a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if os.path.exists(done):
            return python, None
        try:
            venv.create(folder, with_pip=True, clear=True)
            subprocess.run([python, "-m", "pip", "install", "--quiet", "--retries=1",
                            "--timeout=20", "--disable-pip-version-check", *packages], check=True,
                           capture_output=True, text=True)
        except (OSError, subprocess.CalledProcessError) as error:
            shutil.rmtree(folder, ignore_errors=True)
            said = (getattr(error, "stderr", None) or str(error)).strip().splitlines()
            return None, f"{', '.join(packages)} cannot be installed: {said[-1]}"
        with open(done, "w", encoding="ascii"):
            return python, None


def inside(folder):
    return os.path.realpath(sys.prefix) == os.path.realpath(folder)


def enter(folder, packages):
    """Runs the calling script again inside the environment in folder."""
    python, why = make(folder, packages)
    if not python:
        sys.exit(f"{os.path.basename(sys.argv[0])}: {why}")
    if not inside(folder):
        os.execv(python, [python, "-B", *sys.argv])
