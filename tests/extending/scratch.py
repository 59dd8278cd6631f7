"""A copy of the tree on which the checklists of docs/extending.md are followed.

It is compiled on top of an existing build: a file is compiled again only if an edit can change its
object, without optimisation where that is faster. All other objects are taken from that build. An
edit of ops.def or dtypes.def counts for the files that expand these tables themselves, not for the
many that only see the enumerations in sinter_types.h, where a new row is one more name. Files for
AVX-512 are only checked by the compiler: they take most of the time, and the programs are run at
the level of AVX2.
"""
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile

ROOT = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
sys.path.insert(0, os.path.join(ROOT, "tools"))
import c_source  # noqa: E402

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', re.M)
FOLDERS = ("src", "include", "include/sinter", "tests/oracle", "tests/unit", "tests/fuzz",
           "tools/graph_runner")
ENUMERATIONS = "include/sinter/sinter_types.h"
HAS_LEVEL = re.compile(r"_(generic|avx2|avxvnni|avx512|vnni)\.c$")
ONLY_CHECKED = ("_avx512.c", "_vnni.c")
# Adding an op changes the number of kinds.
USES_NUMBER_OF_KINDS = re.compile(r"\bsinter_op_last_symbol\b")


def run(command, **options):
    """What the command prints; ends the test if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {done.returncode}\n"
                 f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


class Checklist:
    """The files that one list edits."""

    def __init__(self, scratch, name, most):
        self.scratch, self.name, self.most, self.files = scratch, name, most, []

    def edit(self, path, *replacements):
        """Replaces the first place of each text, which must be there."""
        text = self.scratch.read(path)
        for old, new in replacements:
            if old not in text:
                sys.exit(f"{path} has no {old!r}: the checklist and this script need an update")
            text = text.replace(old, new, 1)
        self.write(path, text)

    def write(self, path, text):
        self.scratch.write(path, text)
        if path not in self.files:
            self.files.append(path)

    def check(self, document):
        """No more files than the goal, and each of them in the section of the document."""
        section = re.search(rf"^## {self.name}$(.*?)(?=^## |\Z)", document, re.M | re.S)
        if section is None:
            sys.exit(f"docs/extending.md has no section {self.name!r}")
        named = [re.escape(name).replace(r"\*", "[^/]*")
                 for name in re.findall(r"`([\w./*-]+)`", section[1])]
        unnamed = [path for path in self.files
                   if not any(re.fullmatch(name, path) for name in named)]
        if unnamed or len(self.files) > self.most:
            sys.exit(f"{self.name}: {len(self.files)} files, at most {self.most}; "
                     f"docs/extending.md does not name {unnamed}")

    def __str__(self):
        return f"{self.name}: {len(self.files)} files: {', '.join(self.files)}"


class Scratch:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.join(self.folder.name, "tree")
        self.edited, self.lists, self.reached = set(), [], {}
        for path in c_source.tracked_files(ROOT):
            target = os.path.join(self.root, path)
            os.makedirs(os.path.dirname(target), exist_ok=True)
            shutil.copyfile(os.path.join(ROOT, path), target)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.folder.cleanup()

    def read(self, path):
        with open(os.path.join(self.root, path), encoding="utf-8") as file:
            return file.read()

    def write(self, path, text):
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(text)
        self.edited.add(path)

    def checklist(self, name, most):
        self.lists.append(Checklist(self, name, most))
        return self.lists[-1]

    def case(self, name, text):
        """A graph beside the tree."""
        path = os.path.join(self.folder.name, name)
        with open(path, "w", encoding="utf-8") as file:
            file.write(text)
        return path

    # ---- what has to be compiled -----------------------------------------------------------------

    def included(self, path):
        """The files that a file includes itself."""
        for name in INCLUDE.findall(self.read(path)):
            if path == ENUMERATIONS and name.endswith(".def"):
                continue
            for folder in (os.path.dirname(path), *FOLDERS):
                found = os.path.normpath(os.path.join(folder, name))
                if os.path.exists(os.path.join(self.root, found)):
                    yield found
                    break

    def sees_an_edit(self, path):
        """Whether an edit can change the object of a file."""
        todo, seen = [path], {path}
        while todo:
            at = todo.pop()
            if at in self.edited and at != ENUMERATIONS:
                return True
            if at != ENUMERATIONS and USES_NUMBER_OF_KINDS.search(self.read(at)):
                return True
            if at not in self.reached:
                self.reached[at] = list(self.included(at))
            todo += [name for name in self.reached[at] if name not in seen]
            seen.update(self.reached[at])
        return False

    # ---- compiling -------------------------------------------------------------------------------

    def prepare(self, build):
        """Reads how the existing build compiles, and compiles what the edits change."""
        self.build = os.path.abspath(build)
        with open(os.path.join(self.build, "compile_commands.json"), encoding="utf-8") as file:
            self.commands = {os.path.relpath(entry["file"], ROOT): entry
                             for entry in json.load(file)}
        self.compiled = {}

    def command(self, path):
        """How a file is compiled, in the copy; a new one as its neighbours are."""
        entry = self.commands.get(path)
        old = path
        if entry is None:
            level = HAS_LEVEL.search(path)
            old = next(other for other in sorted(self.commands)
                       if os.path.dirname(other) == os.path.dirname(path) and
                       (HAS_LEVEL.search(other) or [None])[0] == (level and level[0]))
            entry = self.commands[old]
        words = []
        for word in shlex.split(entry["command"]):
            if re.match(r"-O|-g|-W|-M", word):
                continue
            if not word.startswith(("-I" + self.build, self.build)):
                word = word.replace(ROOT, self.root)
            words.append(word)
        at = words.index("-o")
        existing = os.path.normpath(os.path.join(entry["directory"], words[at + 1]))
        del words[at:at + 2]
        words = [word.replace(self.root + "/" + old, self.root + "/" + path) for word in words]
        # Files for an instruction set inline so much that compiling them without optimisation takes
        # ten times as long.
        return words + ["-O1" if HAS_LEVEL.search(path) else "-O0", "-g0"], existing

    def object_of(self, path):
        """The object of a source file: compiled here if an edit can change it."""
        if path not in self.compiled:
            command, existing = self.command(path)
            if self.sees_an_edit(path):
                if path.endswith(ONLY_CHECKED):
                    run(command + ["-fsyntax-only"])
                else:
                    existing = os.path.join(self.folder.name, path.replace("/", "_") + ".o")
                    run(command + ["-o", existing])
            self.compiled[path] = existing
        return self.compiled[path]

    def library_paths(self):
        with open(os.path.join(self.build, "CMakeCache.txt"), encoding="utf-8") as file:
            cache = dict(re.findall(r"^(\w+):\w+=(.*)$", file.read(), re.M))
        return [cache[name] for name in ("LIBXSMM_LIBRARY", "LIBXSMM_NOBLAS_LIBRARY",
                                         "CJSON_LIBRARY") if cache.get(name)]

    def program(self, main):
        """Links a main file with all objects of library, oracle, graph_runner and, for a unit test,
        of what the tests share."""
        def belongs(path):
            if path.startswith("tests/unit/") or path.startswith("tests/fuzz/"):
                return (main.startswith("tests/unit/") and
                        not os.path.basename(path).startswith(("test_", "pool_streams")))
            return (path.startswith(("src/", "tests/oracle/", "tools/graph_runner/")) and
                    os.path.basename(path) not in ("main.c", "selftest.c"))
        sources = [path for path in c_source.tracked_files(ROOT) if path.endswith(".c")]
        sources += sorted(path for path in self.edited
                          if path.endswith(".c") and path not in sources)
        objects = [self.object_of(path) for path in [*filter(belongs, sources), main]]
        program = os.path.join(self.folder.name, os.path.basename(main)[:-2])
        run([shlex.split(self.commands[main]["command"])[0], "-fopenmp", "-o", program, *objects,
             *self.library_paths(), "-lm", "-ldl", "-lpthread"])
        return program
