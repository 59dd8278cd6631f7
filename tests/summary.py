#!/usr/bin/env python3
"""Sums up JUnit reports of ctest: the skipped tests by the reason that each of them printed, and
the tests that took longest."""
import collections
import os
import re
import sys
import xml.etree.ElementTree as xml

COUNTS = re.compile(r"\d+ passed, \d+ failed")
NAMED = 2  # so many tests with one reason are named, more are counted
SLOWEST = 15


def reason(output):
    """The last line that is not the program's count of its checks."""
    lines = [line.strip() for line in output.splitlines()]
    lines = [line for line in lines if line and not COUNTS.match(line)]
    return re.sub("^(skipped|not tested): ", "", lines[-1]) if lines else "no reason given"


def main():
    found, times = collections.defaultdict(list), []
    for path in sys.argv[1:]:
        build = os.path.basename(os.path.dirname(os.path.abspath(path)))
        for case in xml.parse(path).getroot().iter("testcase"):
            times.append((float(case.get("time", 0)), f"{case.get('name')}, {build}"))
            if case.find("skipped") is not None:
                found[reason(case.findtext("system-out", ""))].append(case.get("name"))
    if found:
        print("skipped:")
    for why, names in sorted(found.items(), key=lambda item: -len(item[1])):
        who = f" ({', '.join(names)})" if len(names) <= NAMED else ""
        print(f"{len(names):6}  {why}{who}")
    print("slowest, in seconds:")
    for seconds, name in sorted(times, reverse=True)[:SLOWEST]:
        print(f"{seconds:6.0f}  {name}")


if __name__ == "__main__":
    main()
