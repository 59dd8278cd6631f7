"""Finding and loading libsinter.so, errors, names."""
import ctypes
import difflib
import functools
import os
import threading
import weakref
from ctypes import byref, c_int, c_void_p
from typing import Any, Optional

from . import _abi

VARIABLE = "SINTER_LIBRARY"
FILE, SONAME = "libsinter.so", "libsinter.so.0"
_HERE = os.path.dirname(os.path.abspath(__file__))


class SinterError(Exception):
    """What went wrong.

    status   the name of the status, such as "invalid_shape"; sinter_types.h says what to do about
             each
    message  names the op id, the tensor id and the rule that was broken
    """

    def __init__(self, status: str, message: str) -> None:
        super().__init__(f"{status}: {message}")
        self.status, self.message = status, message

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.status, self.message)


_lock = threading.Lock()
_loaded: Optional[ctypes.CDLL] = None
_loaded_from = ""


def _candidates() -> list[tuple[str, str]]:
    """What to load, and why there."""
    path = os.environ.get(VARIABLE)
    if path:
        return [(path, f"named by {VARIABLE}")]
    beside = [os.path.join(_HERE, FILE), os.path.join(os.path.dirname(_HERE), FILE)]
    return [(path, "beside the package") for path in beside] + [
        (FILE, "by the system's loader"), (SONAME, "by the system's loader")]


def _open(candidates: list[tuple[str, str]]) -> tuple[ctypes.CDLL, str]:
    tried = []
    for path, why in candidates:
        if os.path.isabs(path) and not os.path.exists(path):
            tried.append(f"{path} ({why}): no such file")
            continue
        try:
            library = ctypes.CDLL(path)
            _abi.declare(library)
            return library, path
        except OSError as error:
            tried.append(f"{path} ({why}): {error}")
        except AttributeError as error:
            raise SinterError("runtime_error",
                              f"{path} ({why}) is no Sinter, or another version: {error}") from None
    raise SinterError(
        "runtime_error", "the Sinter library was not found. Build it, and name the file in the "
        f"variable {VARIABLE}. Looked for: " + "; ".join(tried))


def load(path: Optional[str] = None) -> str:
    """Loads the library and returns the path that it came from.

    path  the file to load. Without it: the file that the variable SINTER_LIBRARY names, and no
          other, if it is set; else libsinter.so in the folder of the package or in the one above;
          else what the system's loader finds under libsinter.so or libsinter.so.0.

    The first use of the package calls it, so a program need not. A process has one library:
    another path after that is a SinterError, and so is a library that cannot be found or lacks a
    function. Thread-safe.
    """
    global _loaded, _loaded_from
    with _lock:
        if _loaded is None:
            _loaded, _loaded_from = _open([(path, "given to load")] if path else _candidates())
        elif path and os.path.realpath(path) != os.path.realpath(_loaded_from):
            raise SinterError("invalid_arguments",
                              f"{_loaded_from} is loaded already, so {path} cannot be")
        return _loaded_from


def lib() -> ctypes.CDLL:
    if _loaded is None:
        load()
    assert _loaded is not None
    return _loaded


def fail(status: int, message: str) -> SinterError:
    return SinterError(lib().sinter_status_name(status).decode(), message)


def wrong(message: str) -> SinterError:
    return fail(_abi.STATUS_INVALID_ARGUMENTS, message)


def call(name: str, *args: Any) -> None:
    """Calls sinter_<name>; a SinterError unless it succeeds."""
    library = lib()
    status = getattr(library, "sinter_" + name)(*args)
    if status:
        raise fail(status, library.sinter_last_error_message().decode(errors="replace"))


# ---- names ---------------------------------------------------------------------------------------

# Numbers of each kind of name lie below: the library knows which of them it has.
_LAST = {"data_type": 0x100, "op_kind": 0x2000, "op_attr": 0x100, "fpmath_mode": 0x100,
         "cpu_isa": 0x100}


@functools.lru_cache(maxsize=None)
def names(what: str) -> tuple[str, ...]:
    """All names of a kind, in the order of their numbers."""
    name_of = getattr(lib(), f"sinter_{what}_name")
    found = (name_of(number) for number in range(_LAST[what]))
    return tuple(name.decode() for name in found
                 if name and parse_or_none(what, name.decode()) is not None)


def parse_or_none(what: str, name: str) -> Optional[c_int]:
    value = c_int()
    parsed = getattr(lib(), f"sinter_{what}_parse")(name.encode(), byref(value))
    return value if parsed else None


@functools.lru_cache(maxsize=None)
def parse(what: str, name: str) -> int:
    """The number of a name; a SinterError with the nearest names if there is none."""
    value = parse_or_none(what, name) if isinstance(name, str) else None
    if value is None:
        near = difflib.get_close_matches(str(name), names(what), 3, 0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise wrong(f"{what.replace('_', ' ')} {name!r} is unknown{hint}")
    return value.value


@functools.lru_cache(maxsize=None)
def name_of(what: str, number: int) -> str:
    name = getattr(lib(), f"sinter_{what}_name")(number)
    return name.decode() if name else f"{what} {number}"


def word(what: str, words: dict[str, int], name: str) -> int:
    """The number of a word of a list."""
    if name not in words:
        raise wrong(f"{what} {name!r} is none of {', '.join(words)}")
    return words[name]


def word_of(words: dict[str, int], number: int) -> str:
    return next(word for word, value in words.items() if value == number)


# ---- objects -------------------------------------------------------------------------------------


def _destroy(library: ctypes.CDLL, destroy: str, pointer: c_void_p) -> None:
    getattr(library, destroy)(byref(pointer))


class Handle:
    """An object of the library, destroyed with its last reference. Objects may go in any order:
    the library keeps alive what each needs."""

    def __init__(self, kind: str, pointer: c_void_p) -> None:
        self._as_parameter_ = pointer
        finalizer = weakref.finalize(self, _destroy, lib(), f"sinter_{kind}_destroy", pointer)
        # At exit the system takes the memory; threads may still be executing then.
        finalizer.atexit = False
