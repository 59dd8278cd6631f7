#!/usr/bin/env python3
"""Compares the speed of two builds on each line of a list of graph_runner's command lines.

OLD is a graph_runner, or a folder with an older libsinter.so: then NEW_RUNNER runs over that
library, so that both builds are measured by the same program.

In a round both builds set a line up and then run it in turn, as old, new, new, old, twice, each
time for --min-time seconds (graph_runner --on-demand); every second round begins with new. A
round's ratio is that of the median old time to the new one, a line's ratio is the median over the
rounds: above 1 the new build is faster. A machine that gets slower or faster meanwhile favours
neither. A graph_runner without --on-demand is started anew for each turn; one without --json as
well has its text read.

Lines are those of --batch: options, and a case relative to the list's folder.

Exit status: 0 if every line is at least --factor times as fast, 1 if one is slower or fails, 2 if
there is nothing to compare.
"""

import argparse
import itertools
import json
import math
import os
import re
import shlex
import statistics
import subprocess
import sys

import user_tools  # noqa: F401
import quiet

SKIPPED = 77
MEDIAN = re.compile(r"^ +median +([\d.e+-]+) ms:", re.MULTILINE)
READY, TURN = re.compile("ready$"), re.compile(r"([\d.e+-]+) us$")
VARIABLE = re.compile(r"^\$\{(\w+)(?::-([^}]*))?\}")


class Failure(Exception):
    """A run that has no time, with the reason."""


class Skip(Exception):
    """A line whose graph is not on this machine."""


class Runner:
    """One build of graph_runner, or a build of the library under another one's graph_runner."""

    def __init__(self, name, path, library=None):
        self.name, self.path = name, os.path.abspath(path)
        # Both builds live at once: a waiting thread of one must not take the other's processor.
        self.environment = {"OMP_WAIT_POLICY": "passive", **os.environ}
        if library:
            self.environment["LD_LIBRARY_PATH"] = os.path.abspath(library)
        try:
            text = self.run(["--help"]).stdout
        except OSError as error:
            sys.exit(f"compare_builds: {path}: {error}")
        self.has_json, self.has_on_demand = "--json" in text, "--on-demand" in text

    def run(self, arguments):
        return subprocess.run([self.path, *arguments], capture_output=True, text=True,
                              check=False, env=self.environment)

    def refused(self, status, words):
        """What a run that has no time raises."""
        if status == SKIPPED:
            return Skip()
        return Failure(f"{self.name} build, exit status {status}: {words}")

    def open(self, arguments):
        """The line set up, to be measured by turns."""
        return (OnDemand if self.has_on_demand else Anew)(self, arguments)

    def microseconds(self, arguments):
        """The median time of an execute of all partitions together, by a process of its own."""
        run = self.run([*arguments, "--mode=P", *(["--json"] if self.has_json else [])])
        if run.returncode != 0:
            raise self.refused(run.returncode, last_words(run.stdout + run.stderr))
        return self.from_json(run.stdout) if self.has_json else self.from_text(run.stdout)

    def from_json(self, text):
        try:
            return json.loads(text)["performance"]["median"]["us"]
        except (ValueError, KeyError) as error:
            raise Failure(f"{self.name} build: no time in its document ({error!r})") from error

    def from_text(self, text):
        """The last line of this form is that of the only partition, or of all together."""
        found = MEDIAN.findall(text)
        if not found:
            raise Failure(f"{self.name} build: no time in its output")
        return 1e3 * float(found[-1])


class Anew:
    """A line whose every turn is a process of its own."""

    def __init__(self, runner, arguments):
        self.runner, self.arguments = runner, arguments

    def ready(self):
        """Nothing to wait for."""

    def turn(self):
        return self.runner.microseconds(self.arguments)

    def close(self):
        """Nothing is open."""


class OnDemand:
    """A line that one process has set up."""

    def __init__(self, runner, arguments):
        self.runner = runner
        self.process = subprocess.Popen(
            [runner.path, *arguments, "--mode=P", "--on-demand"], text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            env=runner.environment)

    def wait_for(self, pattern):
        text = ""
        for line in self.process.stdout:
            found = pattern.match(line)
            if found:
                return found
            text += line
        raise self.runner.refused(self.process.wait(), last_words(text))

    def ready(self):
        self.wait_for(READY)

    def turn(self):
        try:
            self.process.stdin.write("\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass
        return float(self.wait_for(TURN)[1])

    def close(self):
        try:
            self.process.stdin.close()
        except BrokenPipeError:
            pass
        self.process.stdout.close()
        self.process.wait()


def open_builds(old, new):
    """Both builds, from a graph_runner or a library's folder and a graph_runner."""
    library = old if os.path.isdir(old) else None
    return Runner("old", new if library else old, library), Runner("new", new)


def add_arguments(parser):
    """The arguments of every comparison of two builds."""
    parser.add_argument(
        "old", metavar="OLD", help="graph_runner or library folder of the build to compare with"
    )
    parser.add_argument("new", metavar="NEW_RUNNER")
    parser.add_argument(
        "--max-cpu-isa", metavar="ISA", help="the highest instruction set of both builds"
    )


def last_words(text):
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return " | ".join(lines[-2:])


def expand(path):
    """A leading ${NAME} or ${NAME:-default}, as graph_runner replaces it."""
    found = VARIABLE.match(path)
    if not found:
        return path
    return (os.environ.get(found[1]) or found[2] or "") + path[found.end() :]


def find_case(word, folder):
    """--case=FILE with a FILE that does not depend on the working directory."""
    path = expand(word.removeprefix("--case="))
    for place in (path, os.path.join(folder, path)):
        if os.access(place, os.R_OK):
            return "--case=" + os.path.abspath(place)
    return word


def words_of(text):
    """The words of a line with quotes as in a shell; a word that begins with # ends it."""
    lexer = shlex.shlex(text, posix=True)
    lexer.whitespace_split, lexer.commenters = True, ""
    return list(itertools.takewhile(lambda word: not word.startswith("#"), lexer))


def read_list(path):
    """[(line as it stands, its arguments)]"""
    folder, lines = os.path.dirname(os.path.abspath(path)), []
    with open(path, encoding="utf-8") as file:
        for text in file:
            words = words_of(text)
            if words and words[0] == "graph_runner":
                words = words[1:]
            if words:
                lines.append(
                    (
                        " ".join(words),
                        [find_case(w, folder) if w.startswith("--case=") else w for w in words],
                    )
                )
    return lines


def measure_once(first, second, arguments):
    """Microseconds of the turns of each, in the order first, second, second, first, twice."""
    times, opened = {first: [], second: []}, {}
    try:
        for runner in times:
            opened[runner] = runner.open(arguments)
            opened[runner].ready()
        for runner in (first, second, second, first) * 2:
            times[runner].append(opened[runner].turn())
            if times[runner][-1] <= 0:
                raise Failure("a time of 0")
    finally:
        for line in opened.values():
            line.close()
    return times


def measure(old, new, arguments, options, tell):
    """The median microseconds of the old build and of the new one, and the median ratio. Every
    round sets the line up anew, with the other build first, because times depend on where memory
    lies. After --rounds rounds, more follow while the median says that the line is slower."""
    times, ratios = {old: [], new: []}, []
    for turn in range(options.rounds + options.more):
        if turn >= options.rounds and statistics.median(ratios) >= options.factor:
            break
        tell(f"round {turn + 1} of {options.rounds}")
        order = (old, new) if turn % 2 == 0 else (new, old)
        some = measure_once(*order, arguments)
        ratios.append(statistics.median(some[old]) / statistics.median(some[new]))
        for runner in order:
            times[runner] += some[runner]
    return (*map(statistics.median, times.values()), statistics.median(ratios))


def compare(options, old, new, lines):
    """Prints a line for each; returns the ratios, and how many lines are slower or failed."""
    extra = [f"--min-time={options.min_time}"] if options.min_time is not None else []
    extra += [f"--max-cpu-isa={options.max_cpu_isa}"] if options.max_cpu_isa else []
    ratios, bad = [], 0
    print(" ratio      old us      new us  line")
    for i, (line, arguments) in enumerate(lines):

        def tell(text, at=i + 1):
            print(f"[{at} of {len(lines)}] {text}", file=sys.stderr, flush=True)

        def once(words=arguments, say=tell):
            return measure(old, new, [*words, *extra], options, say)

        try:
            before, after, ratio = quiet.measure(once) if options.wait_for_quiet else once()
        except Skip:
            print(f"     -           -           -  {line}  SKIPPED", flush=True)
            continue
        except Failure as failure:
            bad += 1
            print(f"     -           -           -  {line}  FAILED: {failure}", flush=True)
            continue
        ratios.append(ratio)
        bad += ratio < options.factor
        note = "  SLOWER" if ratio < options.factor else ""
        print(f"{ratio:6.3f}  {before:10.2f}  {after:10.2f}  {line}{note}", flush=True)
    return ratios, bad


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add_arguments(parser)
    parser.add_argument("list", metavar="LIST", help="command lines, as for graph_runner --batch")
    parser.add_argument(
        "--factor",
        type=float,
        default=0.93,
        help="least ratio of a line that passes (default 0.93)",
    )
    parser.add_argument(
        "--rounds", type=int, default=2, help="rounds of each line (default 2)"
    )
    parser.add_argument(
        "--more",
        type=int,
        default=0,
        metavar="N",
        help="up to N further rounds of a line that is below --factor; its ratio is the median over"
        " all its rounds",
    )
    parser.add_argument(
        "--min-time",
        type=float,
        metavar="S",
        help="seconds for each partition of a run, in place of those of the line",
    )
    parser.add_argument("--only", metavar="REGEX", help="only the lines that contain it")
    parser.add_argument(
        "--wait-for-quiet",
        action="store_true",
        help="measure a line again while other programs are busy",
    )
    options = parser.parse_args()
    if options.rounds < 1:
        parser.error("--rounds: expected at least 1")

    old, new = open_builds(options.old, options.new)
    lines = [
        line
        for line in read_list(options.list)
        if not options.only or re.search(options.only, line[0])
    ]
    ratios, bad = compare(options, old, new, lines)
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        extremes = f"lowest {min(ratios):.3f}, highest {max(ratios):.3f}"
        print(f"{mean:6.3f}  geometric mean of {len(ratios)} lines; {extremes}")
    compared = f"{len(ratios)} of {len(lines)} lines compared"
    print(f"{compared}, {bad} slower than {options.factor} or failed")
    return 1 if bad else 0 if ratios else 2


if __name__ == "__main__":
    sys.exit(main())
