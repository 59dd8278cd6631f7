#!/usr/bin/env python3
"""Measures the source tree: how many concepts, how long, how dense.

    tools/dev/measure_house.py [OLD_TREE] [--build]

With OLD_TREE, an older checkout, it prints both numbers. --build also compiles both trees, in
directories of their own and without a compiler cache, and measures processor time and sizes. Lines
that are compared between trees are counted after clang-format with one width, because trees may
have been formatted at different ones."""
import argparse
import os
import re
import resource
import shutil
import subprocess
import sys
import tempfile

import c_source

HERE = os.path.normpath(os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", ".."))
COLUMNS = 100
C_FILES = (".c", ".h", ".inc")
GENERATED = re.compile(r"vectors\.h$")
# Micro-kernels, drivers and numbers, in the layout with rooms and in the one before it.
LOWER_HALF = (r"^src/(numeric/|backend_xsmm/(drivers|ukernels)/)",
              r"^src/(graph/dtype|backend_xsmm/(kernels/|quant_|simd_|tile|eltwise|xsmm\.))")
# Of that, what the goal of 25 % fewer lines was stated for in the older layout.
GOAL_BEFORE = r"^src/(graph/dtype_|backend_xsmm/kernels/)"
# The fields of a group struct, see group_structs.
INTEGERS = {"int", "int8_t", "int16_t", "int32_t", "int64_t", "size_t", "s64_list_t"}
OF_GROUPS = re.compile(r"(^|_)groups?(_|$)|^(scale|zp)s?_(stride|dim|step|line|rs|cs|gr|gc)$")
STRIDES = re.compile(r"^(scale|zp)s?$")
# Groups of something else: query heads that share K and V; ops that become one step.
OTHER_GROUPS = ("attention_dims_t", "lowering_t")
# Reads the geometry of quantisation out of attributes; the first that a tree has is its parser.
PARSERS = (r"\bquant_read\(", r"\bquant_geometry\(")
LAYOUT = "{BasedOnStyle: LLVM, IndentWidth: 4, ColumnLimit: 100, BreakBeforeBraces: Linux}"


class Tree:
    def __init__(self, root):
        self.root = root
        self.paths = [path for path in c_source.tracked_files(root)
                      if not path.startswith("build/")]
        self.texts = {}
        for path in self.paths:
            if path.endswith(C_FILES + (".def", ".py", ".cmake", ".sh", "CMakeLists.txt")):
                with open(os.path.join(root, path), encoding="utf-8", errors="replace") as file:
                    self.texts[path] = file.read()
        self.source = {path: text for path, text in self.texts.items()
                       if path.startswith("src/") and path.endswith(C_FILES)}
        self.tokens = {path: c_source.code(text) for path, text in self.source.items()}
        self.same_width = self.at_one_width()

    def at_one_width(self):
        """The source as clang-format lays it out at 100 columns, comments left alone."""
        if not shutil.which("clang-format"):
            return None
        with tempfile.TemporaryDirectory() as folder:
            names = []
            for number, (path, text) in enumerate(self.source.items()):
                # A name of their own, as clang-format knows languages by their names.
                names.append(os.path.join(folder, f"{number}.c"))
                with open(names[-1], "w", encoding="utf-8") as file:
                    file.write(without_comments(text))
            subprocess.run(["clang-format", "-i", "--style=" + LAYOUT] + names, check=True)
            laid_out = {}
            for name, path in zip(names, self.source):
                with open(name, encoding="utf-8") as file:
                    laid_out[path] = file.read()
            return laid_out


def without_comments(text):
    return re.sub(r'("(?:\\.|[^"\\\n])*")|/\*.*?\*/|//[^\n]*', lambda m: m.group(1) or "", text,
                  flags=re.S)


def fields_of(tokens):
    """Type words and name of every field; of a pointer to a function the name is None."""
    start, depth = 0, 0
    for i, token in enumerate(tokens):
        depth += token.text in ("(", "[", "{")
        depth -= token.text in (")", "]", "}")
        if token.text != ";" or depth != 0:
            continue
        words = tokens[start:i]
        start = i + 1
        if any(a.text == "(" and b.text == "*" for a, b in zip(words, words[1:])):
            yield [], None
            continue
        inside, first = 0, len(words)
        for k, (word, after) in enumerate(zip(words, words[1:] + [token])):
            inside += word.text in ("[", "{")
            inside -= word.text in ("]", "}")
            if inside == 0 and word.kind == "word" and after.text in (",", ";", "[", ":"):
                first = min(first, k)
                yield [w.text for w in words[:first]], word.text


def group_structs(tree):
    """Names of the struct types that describe the groups of a quantised tensor. Such a struct has
    an integer field, or an array of integers, of one of two kinds: a size, a number, an index or a
    stride of groups (its name has the word group, or is that of a stride or dim of scales or zero
    points), or a field of type int64_t called scale or zp, which is a stride or an offset. Buffers
    of scales, which have pointers only, are not counted, nor are tables of functions."""
    found = []
    for path, tokens in tree.tokens.items():
        for i, token in enumerate(tokens):
            if token.text != "struct":
                continue
            at = i + 2 if tokens[i + 1].kind == "word" else i + 1
            if tokens[at].text != "{":
                continue
            end = c_source.closing(tokens, at)
            fields = list(fields_of(tokens[at + 1:end]))
            functions = sum(name is None for _, name in fields)
            of_groups = [name for words, name in fields if name is not None and
                         INTEGERS & set(words) and
                         (OF_GROUPS.search(name) or
                          ("int64_t" in words and STRIDES.search(name) and "*" not in words))]
            if not of_groups or 2 * functions > len(fields):
                continue
            name = tokens[end + 1].text if tokens[end + 1].kind == "word" else tokens[i + 1].text
            if name not in OTHER_GROUPS:
                found.append(f"{name} ({path}): {', '.join(of_groups)}")
    return sorted(found)


def derivations(tree):
    for parser in PARSERS:
        calls = [f"{path}:{text[:match.start()].count(chr(10)) + 1}"
                 for path, text in tree.source.items() if path.endswith(".c")
                 and not path.startswith("src/graph/quant")
                 for match in re.finditer(parser, text)]
        if calls:
            return calls
    return []


def macros(tree):
    """Of every macro with a body of several lines: lines, name, path."""
    found = []
    for path, text in tree.source.items():
        for match in re.finditer(r"^[ \t]*#[ \t]*define[ \t]+(\w+)(?:\\\n|[^\n])*", text, re.M):
            found.append((match.group().count("\n") + 1, match.group(1), path))
    return sorted(found, reverse=True)


def functions(tokens_of):
    """Of every function with a body: lines, parameters, name, path."""
    for path, tokens in tokens_of.items():
        i = 0
        while i < len(tokens):
            token = tokens[i]
            if token.text == "{":
                i = c_source.closing(tokens, i) + 1
                continue
            if token.text == "(" and i > 0 and tokens[i - 1].kind == "word":
                end = c_source.closing(tokens, i)
                if end + 1 < len(tokens) and tokens[end + 1].text == "{":
                    close = c_source.closing(tokens, end + 1)
                    yield (tokens[close].line - tokens[i - 1].line + 1,
                           parameters(tokens[i + 1:end]), tokens[i - 1].text, path)
                    i = close + 1
                    continue
                i = end + 1
                continue
            i += 1


def parameters(tokens):
    if not tokens or (len(tokens) == 1 and tokens[0].text == "void"):
        return 0
    depth, n = 0, 1
    for token in tokens:
        depth += token.text in ("(", "[", "{")
        depth -= token.text in (")", "]", "}")
        n += token.text == "," and depth == 0
    return n


def touched(tree):
    """What the proofs of docs/extending.md edit for each kind of addition, and how many files."""
    proof = os.path.join(tree.root, "tests", "extending", "run.py")
    if not os.path.exists(proof):
        return
    done = subprocess.run([sys.executable, "-B", proof, "--count"], check=True,
                          capture_output=True, text=True)
    for name, number in re.findall(r"^(.*): (\d+) files(?: of .*?)?:", done.stdout, re.M):
        yield f"files touched: {name[0].lower() + name[1:]}", number


def spread(values):
    values = sorted(values)
    return " / ".join(str(values[min(len(values) - 1, int(len(values) * share))])
                      for share in (0.5, 0.9, 1))


def lines(text):
    return len(text.splitlines())


def of_lower_half(tree, texts):
    layout = LOWER_HALF[not any(path.startswith("src/numeric/") for path in tree.source)]
    return {path: text for path, text in texts.items() if re.match(layout, path)}


def comments_and_code(tree):
    comment = code = 0
    for path, text in tree.texts.items():
        if path.startswith("include/") and path.endswith(".h"):
            bare = without_comments(text)
            in_code = sum(bool(line.strip()) for line in bare.splitlines())
            comment += sum(bool(line.strip()) for line in text.splitlines()) - in_code
            code += in_code
    return f"{comment} / {code} = {comment / max(code, 1):.2f}"


def measure(tree):
    """Pairs of what is measured and its value, as text."""
    long_macros = macros(tree)
    all_functions = list(functions(tree.tokens))
    wide = [(number, name, path) for _, number, name, path in all_functions]
    widest = max(wide)
    over = sum(len(line) > COLUMNS for path, text in tree.texts.items()
               for line in text.splitlines() if not GENERATED.search(path))
    half = of_lower_half(tree, tree.source)
    yield "group structs", len(group_structs(tree))
    yield "derivations of group geometry from attributes", len(derivations(tree))
    yield from touched(tree)
    yield "longest macro, lines", f"{long_macros[0][0]} ({long_macros[0][1]})"
    yield "macros over 15 lines", sum(n > 15 for n, _, _ in long_macros)
    yield "lines that end in a backslash", sum(line.endswith("\\") for text in
                                               tree.source.values()
                                               for line in text.splitlines())
    yield "most parameters of a function", f"{widest[0]} ({widest[1]})"
    yield "functions with over 8 parameters", sum(number > 8 for number, _, _ in wide)
    yield "lines over 100 columns, generated ones not counted", over
    yield "public headers: comment lines / code lines", comments_and_code(tree)
    yield "drivers, micro-kernels, numbers: lines as they are", sum(map(lines, half.values()))
    if not any(path.startswith("src/numeric/") for path in tree.source):
        yield "  of these, the 12.6k of the goal", sum(
            lines(text) for path, text in tree.source.items() if re.match(GOAL_BEFORE, path))
    if tree.same_width:
        laid_out = of_lower_half(tree, tree.same_width)
        yield "  code at one width, blank lines not counted", sum(
            bool(line.strip()) for text in laid_out.values() for line in text.splitlines())
    yield "  tokens", sum(len(tree.tokens[path]) for path in half) + sum(
        len(c_source.code(match.group().split(None, 1)[-1])) for text in half.values()
        for match in re.finditer(r"^[ \t]*#(?:\\\n|[^\n])*", text, re.M))
    yield "src: lines as they are", sum(map(lines, tree.source.values()))
    if tree.same_width:
        yield "  code at one width, blank lines not counted", sum(
            bool(line.strip()) for text in tree.same_width.values()
            for line in text.splitlines())
    if tree.same_width:
        tokens = {path: c_source.code(text) for path, text in tree.same_width.items()}
        yield "functions of src at one width, p50 / p90 / max lines", spread(
            number for number, _, _, _ in functions(tokens))
    yield "functions of src, p50 / p90 / max lines", spread(n for n, _, _, _ in all_functions)
    yield "files of src, p50 / p90 / max lines", spread(map(lines, tree.source.values()))


def build(tree):
    """A release build without a cache: processor time, sizes."""
    with tempfile.TemporaryDirectory() as folder:
        environment = {name: value for name, value in os.environ.items()
                       if not name.endswith("_COMPILER_LAUNCHER")} | {"CCACHE_DISABLE": "1"}

        def run(*command):
            subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
        run("cmake", "-S", tree.root, "-B", folder, "-DCMAKE_BUILD_TYPE=Release",
            "-DBUILD_TESTING=OFF", "-DSINTER_BUILD_EXAMPLES=OFF")
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        run("cmake", "--build", folder, "-j", "2")
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        seconds = (after.ru_utime + after.ru_stime) - (before.ru_utime + before.ru_stime)
        run("cmake", "--install", folder, "--prefix", os.path.join(folder, "installed"))
        library = os.path.realpath(os.path.join(folder, "libsinter.so"))
        sizes = subprocess.run(["size", library], check=True, capture_output=True, text=True)
        installed = sum(os.path.getsize(os.path.join(where, name))
                        for where, _, names in os.walk(os.path.join(folder, "installed"))
                        for name in names if name.startswith("libsinter.so")
                        and not os.path.islink(os.path.join(where, name)))
        yield "release build, processor time, s", f"{seconds:.0f}"
        yield "text of libsinter.so, MB", f"{int(sizes.stdout.split()[6]) / 1e6:.2f}"
        yield "installed libsinter.so, MB", f"{installed / 1e6:.1f}"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("old", nargs="?", help="an older checkout")
    parser.add_argument("--build", action="store_true", help="compile too")
    parser.add_argument("--names", action="store_true", help="list structs and derivations")
    options = parser.parse_args()
    trees = [Tree(root) for root in ([options.old] if options.old else []) + [HERE]]
    tables = [dict(unique(list(measure(tree)) + (list(build(tree)) if options.build else [])))
              for tree in trees]
    names = list(dict.fromkeys(name for table in reversed(tables) for name in table))
    print("| measured |" + (" before |" if options.old else "") + " now |")
    print("|---|" + "---|" * len(tables))
    for name in names:
        values = " | ".join(str(table.get(name, "")) for table in tables)
        print(f"| {name.split(' #')[0].strip()} | {values} |")
    if options.names:
        for tree in trees:
            print(f"\n{tree.root}")
            print("\n".join(group_structs(tree) + derivations(tree)))
            print("\n".join(f"{n} lines: {name} ({path})" for n, name, path in macros(tree)[:8]))
            print("\n".join(f"{n} parameters: {name} ({path})" for _, n, name, path in
                            sorted(functions(tree.tokens), key=lambda f: -f[1])[:12]))
    return 0


def unique(rows):
    """The same rows; a name that comes again gets a mark."""
    seen = set()
    for name, value in rows:
        yield (name + " #2" if name in seen else name), value
        seen.add(name)


if __name__ == "__main__":
    sys.exit(main())
