"""What the scripts that measure lines of lists, or draw measurements, share."""
import argparse
import functools
import json
import os
import subprocess
import tempfile

import user_tools  # noqa: F401
import quiet
import scratch_venv

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
PACKAGES = ["matplotlib==3.11.2"]
CAPS = ("avx2", "avx512_vnni")  # what this machine has is measured at these


class Failure(Exception):
    """A line without figures, with the reason."""


def options(description, name, min_time):
    parser = argparse.ArgumentParser(description=description)
    add_measuring(parser, min_time)
    parser.add_argument("--venv", default=os.path.join(ROOT, "build", "plot-venv"),
                        help="made if it is not there")
    parser.add_argument("--out", help=f"the picture; else docs/{name}-CAP.svg, with all caps")
    parser.set_defaults(name=name)
    return parser


def add_measuring(parser, min_time):
    """The options that measure() reads."""
    parser.add_argument(
        "--runner", default=os.path.abspath(os.path.join(ROOT, "build", "release", "graph_runner")))
    parser.add_argument("--caps", nargs="+", choices=CAPS, default=CAPS)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--min-time", type=float, default=min_time, help="seconds for each line")
    parser.add_argument("--lock", default=os.devnull,
                        help="a file to lock while measuring, where others measure too")
    parser.add_argument("--wait-for-quiet", action="store_true",
                        help="measure again while other programs are busy")


def measure(opt, cap, lines):
    """The documents that graph_runner prints for lines of a list, in order."""
    models = os.path.abspath(os.path.join(ROOT, "models"))
    with tempfile.NamedTemporaryFile("w", suffix=".list") as file:
        for line in lines:
            here = line.replace("--case=../../models", "--case=" + models)
            # Of two of the same option in a line the later one counts.
            file.write(f"{here} --min-time={opt.min_time} --max-cpu-isa={cap}\n")
        file.flush()
        command = [opt.runner, f"--threads={opt.threads}", "--json", f"--batch={file.name}"]
        run = functools.partial(subprocess.run, command, capture_output=True, text=True,
                                check=False)
        done = quiet.measure(run, opt.lock, quiet.TRIES if opt.wait_for_quiet else 1)
    documents = [json.loads(text) for text in done.stdout.splitlines()]
    if len(documents) != len(lines):
        raise Failure(f"graph_runner ended with {done.returncode}: {done.stderr}")
    for line, document in zip(lines, documents):
        if document["verdict"] != "PASSED":
            raise Failure(f"{document['message']}: {line}")
        if document["limits"]["isa"] != cap:
            raise Failure(f"the engine has {document['limits']['isa']}, not {cap}")
    return documents


def picture(opt):
    """Where the picture goes."""
    name = "-".join([opt.name, *opt.caps]) + ".svg"
    return os.path.abspath(opt.out or os.path.join(ROOT, "docs", name))


def pyplot(opt):
    """matplotlib, for drawings that are the same from the same numbers."""
    import matplotlib

    matplotlib.use("svg")
    salt = os.path.splitext(os.path.basename(picture(opt)))[0]
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": salt, "font.size": 9})
    import matplotlib.pyplot as plt

    return plt


def save(figure, opt):
    path = picture(opt)
    figure.tight_layout()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def enter(opt):
    scratch_venv.enter(opt.venv, PACKAGES)
