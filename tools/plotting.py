"""What the scripts that draw measurements for the README share."""
import argparse
import functools
import os
import subprocess
import tempfile

import quiet
import scratch_venv

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PACKAGES = ["matplotlib==3.11.2"]


def options(description, name, min_time):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument(
        "--runner", default=os.path.abspath(os.path.join(ROOT, "build", "release", "graph_runner")))
    parser.add_argument("--venv", default=os.path.join(ROOT, "build", "plot-venv"),
                        help="made if it is not there")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", name + ".svg"))
    parser.add_argument("--lock", default=os.devnull,
                        help="a file to lock while measuring, where others measure too")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--min-time", type=float, default=min_time, help="seconds for each point")
    return parser


def measure(opt, lines):
    """What graph_runner prints for lines of a list."""
    lists = os.path.join(ROOT, "tests", "lists")  # the paths of lines start there
    with tempfile.NamedTemporaryFile("w", suffix=".list", dir=lists) as file:
        file.writelines(line + "\n" for line in lines)
        file.flush()
        command = [
            opt.runner, f"--threads={opt.threads}", f"--min-time={opt.min_time}",
            f"--batch={file.name}"
        ]
        run = functools.partial(subprocess.run, command, stdout=subprocess.PIPE,
                                stderr=subprocess.DEVNULL, text=True, check=True)
        return quiet.measure(run, opt.lock).stdout


def pyplot(opt):
    """matplotlib, for drawings that are the same from the same numbers."""
    import matplotlib

    matplotlib.use("svg")
    salt = os.path.splitext(os.path.basename(opt.out))[0]
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9})
    import matplotlib.pyplot as plt

    return plt


def save(figure, opt):
    path = os.path.abspath(opt.out)
    figure.tight_layout()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def enter(opt):
    scratch_venv.enter(opt.venv, PACKAGES)
