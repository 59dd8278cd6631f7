"""Finding and loading libsinter.so, errors, names."""
import ctypes
import difflib
import functools
import operator
import os
import threading
import weakref
from ctypes import byref, c_int, c_void_p
from typing import Any, Optional, TypeVar, Union

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
    return [(os.path.join(_HERE, FILE), "in the package"),
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
        except (OSError, ValueError) as error:
            tried.append(f"{path} ({why}): {error}")
        except AttributeError as error:
            raise SinterError("runtime_error",
                              f"{path} ({why}) is no Sinter, or another version: {error}") from None
    raise SinterError(
        "runtime_error", "the Sinter library was not found. Install the package with pip, or name "
        f"the file in the variable {VARIABLE}. Looked for: " + "; ".join(tried))


def load(path: "Union[str, os.PathLike[str], None]" = None) -> str:
    """Loads the library and returns the path that it came from.

    path  the file to load. Without it: the file that the variable SINTER_LIBRARY names, and no
          other, if it is set; else the one in the package, which pip install . builds into it;
          else what the system's loader finds under libsinter.so or libsinter.so.0.

    The first use of the package calls it, so a program need not. A process has one library:
    another path after that is a SinterError, and so is a library that cannot be found or lacks a
    function. Thread-safe.
    """
    global _loaded, _loaded_from
    if path is not None:
        try:
            path = os.fsdecode(path)
            if b"\0" in os.fsencode(path):
                raise ValueError
        except (TypeError, ValueError):
            raise SinterError("invalid_arguments",
                              f"a path is a string without a NUL, not {shown(path)}") from None
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
    try:
        status = getattr(library, "sinter_" + name)(*args)
    except ctypes.ArgumentError as error:
        raise wrong(f"sinter_{name}: {error}") from None
    if status:
        raise fail(status, library.sinter_last_error_message().decode(errors="replace"))


# ---- arguments: ctypes cuts numbers and strings to what fits, so all are checked before ----------

LEAST_S64, MOST_S64, MOST_U64 = -2**63, 2**63 - 1, 2**64 - 1
MOST_SIZE = _abi.BYTES_TRUSTED
MOST_INT = 2**(8 * ctypes.sizeof(c_int) - 1) - 1
T = TypeVar("T")


def shown(value: object) -> str:
    """A value in a message."""
    try:
        printed = repr(value)
    except Exception:  # such as an int of more digits than Python prints
        printed = f"a value of {type(value).__name__}"
    return printed if len(printed) <= 80 else printed[:77] + "..."


def integer(what: str, value: Any, least: int = LEAST_S64, most: int = MOST_S64) -> int:
    """An integer of Python or NumPy, as it is."""
    try:
        number = operator.index(value)
    except TypeError:
        raise wrong(f"{what} is an integer, not {shown(value)}") from None
    if not least <= number <= most:
        raise wrong(f"{what} is {least} to {most}, not {shown(number)}")
    return number


def flag(what: str, value: Any) -> bool:
    """A truth value: of Python, of NumPy, or 0 or 1."""
    try:
        return bool(integer(what, value.item() if hasattr(value, "item") else value, 0, 1))
    except (SinterError, TypeError, ValueError):
        raise wrong(f"{what} is bool, not {shown(value)}") from None


def text(what: str, value: Any) -> bytes:
    """A string for C, which ends at its first NUL."""
    if not isinstance(value, str):
        raise wrong(f"{what} is a string, not {shown(value)}")
    if "\0" in value:
        raise wrong(f"{what} {shown(value)} has a NUL in it")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise wrong(f"{what} {shown(value)} is no Unicode text") from None


def items(what: str, values: Any) -> list[Any]:
    """The elements of a list, a tuple or whatever else has elements, other than a string."""
    try:
        if isinstance(values, (str, bytes)):
            raise TypeError
        return list(values)
    except TypeError:
        raise wrong(f"{what} is a list, not {shown(values)}") from None


def instance(what: str, value: Any, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise wrong(f"{what} is a sinter.{kind.__name__}, not {type(value).__name__}")
    return value


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
    spelled = text(what.replace("_", " "), name)
    return value if getattr(lib(), f"sinter_{what}_parse")(spelled, byref(value)) else None


@functools.lru_cache(maxsize=None)
def _parse(what: str, name: str) -> int:
    value = parse_or_none(what, name)
    if value is None:
        near = difflib.get_close_matches(name, names(what), 3, 0.5)
        hint = f"; did you mean {' or '.join(near)}?" if near else ""
        raise wrong(f"{what.replace('_', ' ')} {shown(name)} is unknown{hint}")
    return value.value


def parse(what: str, name: Any) -> int:
    """The number of a name; a SinterError with the nearest names if there is none."""
    text(what.replace("_", " "), name)  # the cache takes only what has a hash
    return _parse(what, name)


@functools.lru_cache(maxsize=None)
def name_of(what: str, number: int) -> str:
    name = getattr(lib(), f"sinter_{what}_name")(number)
    return name.decode() if name else f"{what} {number}"


def word(what: str, words: dict[str, int], name: Any) -> int:
    """The number of a word of a list."""
    if not isinstance(name, str) or name not in words:
        raise wrong(f"{what} {shown(name)} is none of {', '.join(words)}")
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

    def __reduce_ex__(self, protocol: Any) -> Any:
        """A copy would outlive the object that it names."""
        raise wrong(f"a {type(self).__name__} can be neither copied nor pickled")
