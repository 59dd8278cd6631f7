#!/usr/bin/env python3
"""options.py GRAPH_RUNNER: docs/graph_runner.md names every option of --help, and no other. Where a
line of another document names graph_runner, the options behind it exist, too."""
import re
import sys

from common import documents, read, run, verdict

OPTION = re.compile(r"(?<![\w-])--([a-z][a-z-]*[a-z])")
PAGE = "docs/graph_runner.md"


def main():
    options = set(re.findall(r"^    --([a-z-]+)", run(sys.argv[1], "--help"), re.M))
    named = set(OPTION.findall(read(PAGE)))
    errors = [f"{PAGE} does not name --{name}" for name in sorted(options - named)]
    errors += [f"{PAGE}: graph_runner has no option --{name}" for name in sorted(named - options)]
    checks = len(options) + len(named)
    for document in documents():
        for line in read(document).splitlines():
            command = line.partition("graph_runner")[2]
            if command and "compare_builds" not in line and document != "CHANGELOG.md":
                checks += 1
                errors += [f"{document}: graph_runner has no option --{name}"
                           for name in OPTION.findall(command) if name not in options]
    return verdict(PAGE, errors, checks)


if __name__ == "__main__":
    sys.exit(main())
