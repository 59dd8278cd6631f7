"""What the tests of the documents share."""
import os
import re
import subprocess

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))


def read(path):
    with open(os.path.join(ROOT, path), encoding="utf-8") as f:
        return f.read()


def documents():
    """README.md, CHANGELOG.md and every markdown file of these rooms."""
    found = [name for name in os.listdir(ROOT) if name.endswith(".md")]
    for room in ("docs", "src", "tests", "models", "examples", "tools", "python", "integrations"):
        for folder, _, names in os.walk(os.path.join(ROOT, room)):
            found += [os.path.relpath(os.path.join(folder, name), ROOT)
                      for name in names if name.endswith(".md")]
    return sorted(found)


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def prose(text):
    """A markdown text without its code blocks."""
    return re.sub(r"(?ms)^ *```.*?^ *```", "", text)


def verdict(name, errors, checks):
    """Prints the errors; the exit status. A test without checks fails."""
    print("\n".join(errors + [f"{name}: {checks} checks, {len(errors)} errors"]))
    return 1 if errors or checks == 0 else 0
