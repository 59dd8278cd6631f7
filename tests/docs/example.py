#!/usr/bin/env python3
"""example.py CC LIBRARY_DIR INCLUDE_DIR...: the C example of README.md compiles without a warning
against the built library, runs, and prints what the README says."""
import os
import re
import subprocess
import sys

from common import read, verdict


def main():
    compiler, libraries, *includes = sys.argv[1:]
    readme, name = read("README.md"), "example of README.md"
    blocks = re.findall(r"(?ms)^```c\n(.*?)^```", readme)
    programs = [block for block in blocks if "int main(" in block]
    if len(programs) != 1:
        return verdict(name, [f"{len(programs)} programs in README.md, 1 expected"], 1)
    with open("example.c", "w", encoding="utf-8") as f:
        f.write(programs[0])
    command = [compiler, "-std=c11", "-Wall", "-Wextra", "-Werror", "example.c", "-o", "example"]
    command += [f"-I{folder}" for folder in includes]
    command += [f"-L{libraries}", f"-Wl,-rpath,{libraries}", "-lsinter"]
    built = subprocess.run(command, capture_output=True, text=True)
    if built.returncode:
        return verdict(name, [built.stderr], 1)
    ran = subprocess.run([os.path.join(".", "example")], capture_output=True, text=True)
    print(ran.stdout, end="")
    # The text block behind the program is what it prints.
    expected = re.search(r"(?ms)^```text\n(.*?)^```", readme[readme.index(programs[0]):])
    errors = [] if ran.returncode == 0 else [f"exit status {ran.returncode}: {ran.stderr}"]
    if expected is None or ran.stdout != expected.group(1):
        errors.append("it does not print what README.md says")
    return verdict(name, errors, 2)


if __name__ == "__main__":
    sys.exit(main())
