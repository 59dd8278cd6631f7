"""A copy of the tree to try a checklist of docs/extending.md on: edits it, counts the files that
were touched, builds graph_runner and runs it."""
import os
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import c_source  # noqa: E402


class Scratch:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.join(self.folder.name, "tree")
        self.touched = []
        for path in c_source.tracked_files(ROOT):
            target = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(os.path.join(ROOT, path), target)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def edit(self, path, *replacements):
        """Replaces the first place of each text, which must be there."""
        full = os.path.join(self.root, path)
        with open(full, encoding="utf-8") as file:
            text = file.read()
        for old, new in replacements:
            if old not in text:
                sys.exit(f"{path} has no {old!r}: the checklist and this script need an update")
            text = text.replace(old, new, 1)
        with open(full, "w", encoding="utf-8") as file:
            file.write(text)
        self.touched.append(path)

    def check_touched(self, most):
        """No more files than that, and each of them in docs/extending.md."""
        with open(os.path.join(ROOT, "docs", "extending.md"), encoding="utf-8") as file:
            checklist = file.read()
        unnamed = [path for path in self.touched
                   if path not in checklist and os.path.basename(path) not in checklist]
        if unnamed or len(self.touched) > most:
            sys.exit(f"{len(self.touched)} files, at most {most}; docs/extending.md does not name "
                     f"{unnamed}")
        print(f"{len(self.touched)} files: {', '.join(self.touched)}")

    def build(self):
        """graph_runner without optimisation; returns the program."""
        build = os.path.join(self.folder.name, "build")
        flags = ["-DCMAKE_BUILD_TYPE=None", "-DCMAKE_C_FLAGS=-O0", "-DBUILD_TESTING=OFF",
                 "-DSINTER_BUILD_EXAMPLES=OFF"]
        run(["cmake", "-S", self.root, "-B", build, *flags])
        run(["cmake", "--build", build, "-j2", "--target", "graph_runner"])
        return os.path.join(build, "graph_runner")

    def write(self, name, text):
        """A file beside the tree, which does not count."""
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path


def run(command):
    """What the command prints; ends the test if it fails."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{' '.join(command)}\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout
