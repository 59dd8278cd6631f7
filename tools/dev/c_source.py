"""What the checks and the measuring scripts share: the files of the tree, and the tokens of C
source without preprocessing and without types."""
import os
import re
import subprocess

SKIPPED_FOLDERS = {".git", "build", "__pycache__"}

TOKEN = re.compile(r"""
    (?P<comment>/\*.*?\*/|//[^\n]*)
  | (?P<directive>^[ \t]*\#(?:\\\n|/\*.*?\*/|[^\n])*)
  | (?P<string>"(?:\\.|[^"\\\n])*")
  | (?P<char>'(?:\\.|[^'\\\n])*')
  | (?P<word>[A-Za-z_]\w*)
  | (?P<number>\.?\d(?:[eEpP][+-]|[\w.])*)
  | (?P<space>\s+|\\\n)
  | (?P<mark><<=|>>=|\.\.\.|->|\+\+|--|<<|>>|[-+*/%&|^<>=!]=|&&|\|\||\#\#|.)
""", re.X | re.S | re.M)


class Token:
    __slots__ = ("kind", "text", "line")

    def __init__(self, kind, text, line):
        self.kind, self.text, self.line = kind, text, line


def tokens(text):
    """Every token of a source text except white space, with the line on which it begins."""
    line = 1
    for match in TOKEN.finditer(text):
        if match.lastgroup != "space":
            yield Token(match.lastgroup, match.group(), line)
        line += match.group().count("\n")


def code(text):
    """The tokens without comments and preprocessor directives."""
    return [t for t in tokens(text) if t.kind not in ("comment", "directive")]


def closing(code_tokens, at):
    """The index of the bracket that closes the one at `at`."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    close = pairs[code_tokens[at].text]
    depth = 0
    for i in range(at, len(code_tokens)):
        if code_tokens[i].kind == "mark":
            depth += code_tokens[i].text == code_tokens[at].text
            depth -= code_tokens[i].text == close
            if depth == 0:
                return i
    return len(code_tokens) - 1


def tracked_files(root):
    """What git tracks, or everything outside build folders in an unpacked archive."""
    try:
        listed = subprocess.run(["git", "-C", root, "ls-files", "-z"], capture_output=True,
                                check=True).stdout.decode().split("\0")
        return sorted({name for name in listed
                       if name and os.path.exists(os.path.join(root, name))})
    except (OSError, subprocess.CalledProcessError):
        found = []
        for folder, folders, names in os.walk(root):
            folders[:] = [name for name in folders if name not in SKIPPED_FOLDERS]
            found += [os.path.relpath(os.path.join(folder, name), root) for name in names]
        return found
