#!/usr/bin/env python3
"""Compares the results of two builds bit by bit on each line of lists of graph_runner's command
lines.

OLD is a graph_runner, or a folder with an older libsinter.so: then NEW_RUNNER runs over that
library. Each line is executed once by both with the same inputs (--mode=X, --dump-tensors, the
line's seed or the default one), and every tensor that it writes is compared.

Exit status: 0 if all results are equal, 1 if one differs or a line fails, 2 if nothing was
compared.
"""

import argparse
import filecmp
import os
import sys
import tempfile

import compare_builds


def dump(runner, arguments, folder):
    """Executes a line with its tensors written to folder."""
    os.mkdir(folder)
    run = runner.run([*arguments, "--mode=X", f"--dump-tensors={folder}"])
    if run.returncode != 0:
        raise runner.refused(run.returncode, compare_builds.last_words(run.stdout + run.stderr))


def differing(old, new, arguments):
    """The names of the tensors that differ or that one build alone wrote, and the number of all."""
    with tempfile.TemporaryDirectory() as folder:
        folders = [os.path.join(folder, runner.name) for runner in (old, new)]
        for runner, place in zip((old, new), folders):
            dump(runner, arguments, place)
        names = sorted(set().union(*map(os.listdir, folders)))
        _, unequal, missing = filecmp.cmpfiles(*folders, names, shallow=False)
        return sorted(unequal + missing), len(names)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    compare_builds.add_arguments(parser)
    parser.add_argument("lists", metavar="LIST", nargs="+", help="command lines, as for --batch")
    options = parser.parse_args()
    old, new = compare_builds.open_builds(options.old, options.new)
    extra = [f"--max-cpu-isa={options.max_cpu_isa}"] if options.max_cpu_isa else []
    compared = skipped = tensors = bad = 0
    for path in options.lists:
        for line, arguments in compare_builds.read_list(path):
            try:
                names, count = differing(old, new, [*arguments, *extra])
            except compare_builds.Skip:
                skipped += 1
                continue
            except compare_builds.Failure as failure:
                bad += 1
                print(f"{line}  FAILED: {failure}", flush=True)
                continue
            compared += 1
            tensors += count
            if names:
                bad += 1
                print(f"{line}  DIFFERS: {', '.join(names)}", flush=True)
    print(f"{compared} lines with {tensors} tensors compared, {skipped} skipped, "
          f"{bad} differ or failed")
    return 1 if bad else 0 if compared else 2


if __name__ == "__main__":
    sys.exit(main())
