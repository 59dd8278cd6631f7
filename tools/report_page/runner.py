"""Calls graph_runner, and adds to its document the ways that the kernels took."""
import json
import os
import re
import shutil
import subprocess

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
BUILDS = ("release", "dev", "debug")
EXECUTE = re.compile(r"^sinter: exec partition (\d+) \(")
STEP = re.compile(r"; step \d+: ")
SHARES = re.compile(r", [\d.]+ us of work in \d+ shares?$")


class Failure(Exception):
    """No report can be made, with the reason."""


def find_runner(path):
    if path:
        if not os.access(path, os.X_OK) or os.path.isdir(path):
            raise Failure(f"{path}: no such program; build graph_runner with\n"
                          "    cmake --preset release && cmake --build --preset release")
        return os.path.abspath(path)
    for build in BUILDS:
        found = os.path.join(ROOT, "build", build, "graph_runner")
        if os.access(found, os.X_OK):
            return found
    raise Failure("there is no build/release/graph_runner; build it with\n"
                  "    cmake --preset release && cmake --build --preset release\n"
                  "or name another one with --runner=FILE")


def find_dot():
    found = shutil.which("dot")
    if not found:
        raise Failure("Graphviz is missing: there is no program \"dot\"; install the package "
                      "graphviz, or let\n    tools/install_deps.sh report\ndo it")
    return found


def ways(log):
    """{partition id: a text for each step} from the lines of --verbose=exec; later ones win."""
    found = {}
    for line in log.splitlines():
        execute = EXECUTE.match(line)
        if execute:
            steps = [SHARES.sub("", step).partition(", ") for step in STEP.split(line)[1:]]
            found[int(execute.group(1))] = [way for _, _, way in steps]
    return found


def call(runner, options):
    """The document, and stderr."""
    try:
        done = subprocess.run([runner, "--json", *options], capture_output=True, text=True,
                              check=False)
    except OSError as error:
        raise Failure(f"{runner}: {error.strerror}") from error
    lines = done.stdout.splitlines()
    if len(lines) != 1:
        # A wrong option, or a build without --json.
        raise Failure(done.stderr.strip() or f"graph_runner ended with {done.returncode} and "
                      f"{len(lines)} lines instead of one document")
    return parse(lines[0], "graph_runner"), done.stderr


def parse(text, origin):
    try:
        document = json.loads(text)
    except ValueError as error:
        raise Failure(f"{origin}: not a JSON document of graph_runner: {error}") from error
    if not isinstance(document, dict) or "schema" not in document:
        raise Failure(f"{origin}: not a document that graph_runner --json printed")
    if not document.get("partitions"):
        raise Failure(document.get("message") or f"{origin}: there are no partitions")
    if "tensors" not in document:
        raise Failure(f"{origin}: printed by an older graph_runner, without \"tensors\"")
    return document


def failure(document):
    """Why the graph does not run; None where it does."""
    if document["verdict"] == "PASSED":
        return None
    found = [f"partition {part['id']}: {part['reason']}" for part in document["partitions"]
             if part["reason"]]
    return "; ".join(found) or document["message"]


def add_ways(document, found):
    for part in document["partitions"]:
        for step, way in zip(part["steps"], found.get(part["id"], ())):
            step["way"] = way


def run(runner, case, limits, measure, options):
    """limits: as --limits takes them. measure: options of mode P, or None."""
    common = [f"--case={case}", f"--limits={limits}", *options]
    first = ["--mode=X", "--verbose=exec"]
    document, log = call(runner, [*common, *first])
    found = ways(log)
    if measure is not None and document["verdict"] == "PASSED":
        document, _ = call(runner, [*common, "--mode=P", *measure])
    add_ways(document, found)
    return document
