"""A copy of the tree on which the checklists of docs/extending.md are followed.

It is compiled on top of an existing build: a file is compiled again only if an edit can change its
object, without optimisation where that is faster. All other objects are taken from that build. An
edit of ops.def, dtypes.def or features.def counts for the files that expand these tables
themselves, not for the many that only see the enumerations in sinter_types.h and features.h, where
a new row is one more name. Files for AVX-512 are only checked by the compiler: they take most of
the time, and the programs are run at the level of AVX2.
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
sys.path.insert(0, os.path.join(ROOT, "tools", "dev"))
import c_source  # noqa: E402

INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]+["<]([^">]+)[">]', re.M)
FOLDERS = ("src", "include", "include/sinter", "tests/oracle", "tests/unit", "tests/fuzz",
           "tools/graph_runner")
ENUMERATIONS = ("include/sinter/sinter_types.h", "src/base/features.h")
HAS_LEVEL = re.compile(r"-mavx2\b|_generic\.c$", re.M)
ONLY_CHECKED = ("_avx512.c", "_vnni.c")
# Adding an op changes the number of kinds, adding an instruction set the number of levels.
USES_NUMBER_OF_ROWS = re.compile(r"\b(sinter_op_last_symbol|LEVELS)\b")
# What the build was configured with.
OPTIONS = re.compile(r"^((?:SINTER|LIBXSMM|CJSON|Python3)_\w+|CMAKE_BUILD_TYPE|CMAKE_C_COMPILER|"
                     r"CMAKE_C_FLAGS):\w+=(.*)$", re.M)


def run(command, **options):
    """What the command prints; ends the test if it fails."""
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{shlex.join(command)}: {done.returncode}\n"
                 f"{done.stdout[-3000:]}{done.stderr[-3000:]}")
    return done.stdout


class Checklist:
    """The files that one list edits."""

    def __init__(self, scratch, name, most, counted):
        self.scratch, self.name, self.files = scratch, name, []
        self.most, self.counted = most, counted

    def add_op(self, columns):
        """A row at the end of ops.def, with the next number."""
        path = "include/sinter/ops.def"
        row, number = re.findall(r"(SINTER_OP\((0x\w+),.*\n)", self.scratch.read(path))[-1]
        self.edit(path, (row, f"{row}SINTER_OP({int(number, 16) + 1:#x}, {columns})\n"))

    def edit(self, path, *replacements, places=1):
        """Replaces the first place of each text, which must be there; places=-1: all of them."""
        text = self.scratch.read(path)
        for old, new in replacements:
            if old not in text:
                sys.exit(f"{path} has no {old!r}: the checklist and this script need an update")
            text = text.replace(old, new, places)
        self.write(path, text)

    def write(self, path, text):
        self.scratch.write(path, text)
        if path not in self.files:
            self.files.append(path)

    def check(self, document):
        """No more files than the goal, and each of them in the section of the document."""
        title = self.name.partition(",")[0]
        section = re.search(rf"^## {title}$(.*?)(?=^## |\Z)", document, re.M | re.S)
        if section is None:
            sys.exit(f"docs/extending.md has no section {title!r}")
        named = [re.escape(name).replace(r"\*", "[^/]*")
                 for name in re.findall(r"`([\w./*-]+)`", section[1])]
        unnamed = [path for path in self.files
                   if not any(re.fullmatch(name, path) for name in named)]
        if unnamed or self.n_counted() > self.most:
            sys.exit(f"{self}; at most {self.most}; docs/extending.md does not name {unnamed}")

    def n_counted(self):
        return sum(path.startswith(self.counted) for path in self.files)

    def __str__(self):
        where = " of " + " ".join(self.counted) if any(self.counted) else ""
        return f"{self.name}: {self.n_counted()} files{where}: {', '.join(self.files)}"


class Scratch:
    def __init__(self):
        self.folder = tempfile.TemporaryDirectory()
        self.root = os.path.join(self.folder.name, "tree")
        self.edited, self.reached = set(), {}
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

    def checklist(self, name, most, counted):
        return Checklist(self, name, most, counted)

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
            if path in ENUMERATIONS and name.endswith(".def"):
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
            if at not in ENUMERATIONS and (at in self.edited or
                                           USES_NUMBER_OF_ROWS.search(self.read(at))):
                return True
            if at not in self.reached:
                self.reached[at] = list(self.included(at))
            todo += [name for name in self.reached[at] if name not in seen]
            seen.update(self.reached[at])
        return False

    # ---- compiling -------------------------------------------------------------------------------

    def prepare(self, build):
        """Configures the copy as the build is, and reads how both compile."""
        def commands(folder, root):
            with open(os.path.join(folder, "compile_commands.json"), encoding="utf-8") as file:
                return {os.path.relpath(entry["file"], root): entry for entry in json.load(file)}

        def made_by(entry):
            words = shlex.split(entry["command"])
            return os.path.normpath(os.path.join(entry["directory"],
                                                 words[words.index("-o") + 1]))
        self.build = os.path.join(self.folder.name, "build")
        with open(os.path.join(build, "CMakeCache.txt"), encoding="utf-8") as file:
            self.options = dict(OPTIONS.findall(file.read()))
        run(["cmake", "-S", self.root, "-B", self.build,
             *(f"-D{name}={value}" for name, value in self.options.items())])
        self.existing = {path: made_by(entry) for path, entry in
                         commands(os.path.abspath(build), ROOT).items()}
        self.commands = commands(self.build, self.root)
        self.compiled = {}

    def command(self, path):
        """How a file is compiled, up to the name of its object."""
        words = [word for word in shlex.split(self.commands[path]["command"])
                 if not re.match(r"-O|-g|-W|-M", word)]
        at = words.index("-o")
        del words[at:at + 2]
        # Files for an instruction set inline so much that compiling them without optimisation takes
        # ten times as long.
        return words + ["-O1" if HAS_LEVEL.search("\n".join(words)) else "-O0", "-g0"]

    def object_of(self, path):
        """The object of a source file: compiled here if an edit can change it."""
        if path not in self.compiled:
            made = self.existing.get(path)
            if self.sees_an_edit(path):
                if path.endswith(ONLY_CHECKED):
                    run(self.command(path) + ["-fsyntax-only"])
                else:
                    made = os.path.join(self.folder.name, path.replace("/", "_") + ".o")
                    run(self.command(path) + ["-o", made])
            self.compiled[path] = made
        return self.compiled[path]

    def library_paths(self):
        return [self.options[name] for name in ("LIBXSMM_LIBRARY", "LIBXSMM_NOBLAS_LIBRARY",
                                                "CJSON_LIBRARY") if self.options.get(name)]

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
        run([self.options["CMAKE_C_COMPILER"], "-fopenmp", "-o", program, *objects,
             *self.library_paths(), "-lm", "-ldl", "-lpthread"])
        return program
