"""Engines and streams."""
import ctypes
import threading
import weakref
from ctypes import byref, c_int, c_void_p
from dataclasses import dataclass
from typing import Optional

from . import _abi
from ._library import (MOST_INT, MOST_SIZE, Handle, call, flag, instance, integer, lib, name_of,
                       parse)
from .arrays import AnyArray, Array, array_of, memory_of


@dataclass(frozen=True)
class ConstantCacheStats:
    """The constant cache of an engine: sizes in bytes, counts since the engine was created.

    budget   most bytes of copies that are kept
    bytes    bytes of the copies that there are
    entries  copies that can be found
    packed   copies made
    hits     times that a copy was found
    refused  times that the budget had no room; the kernel then reads the array as it is
    evicted  copies that had to go to make room
    """
    budget: int
    bytes: int
    entries: int
    packed: int
    hits: int
    refused: int
    evicted: int


class Engine(Handle):
    """An instruction-set cap and a constant cache. Functions that take engine=None use the
    default engine, which has all that the machine has. Thread-safe.

    max_isa        the most that kernels may use, such as "avx2"; None: what the machine has
    deterministic  True: a row or a sequence has the same bits alone and among others
    """

    def __init__(self, max_isa: Optional[str] = None, *, deterministic: bool = False) -> None:
        desc = _abi.EngineDesc(ctypes.sizeof(_abi.EngineDesc))
        desc.max_isa = 0 if max_isa is None else parse("cpu_isa", max_isa)
        desc.deterministic = flag("deterministic", deterministic)
        pointer = c_void_p()
        call("engine_create", byref(pointer), byref(desc))
        super().__init__("engine", pointer)

    @property
    def isa(self) -> str:
        """The instruction set in use."""
        return isa(self)

    def constant_cache(self) -> ConstantCacheStats:
        """What is in the constant cache, and what has happened in it."""
        return constant_cache(self)

    def set_constant_cache_budget(self, n_bytes: int) -> None:
        """The most bytes of copies that are kept. 0: no copies."""
        call("engine_set_constant_cache_budget", self, integer("a budget", n_bytes, 0, MOST_SIZE))

    def invalidate(self, array: AnyArray) -> None:
        """See sinter.invalidate."""
        invalidate(array, self)


def engine_of(engine: Optional[Engine]) -> Optional[Engine]:
    """An engine as the library takes it: another object there would be read as one."""
    return None if engine is None else instance("an engine", engine, Engine)


def isa(engine: Optional[Engine] = None) -> str:
    """The instruction set that an engine uses: what the machine has, below all caps.
    Thread-safe."""
    return name_of("cpu_isa", lib().sinter_engine_get_isa(engine_of(engine)))


def constant_cache(engine: Optional[Engine] = None) -> ConstantCacheStats:
    """The state of an engine's constant cache. Thread-safe."""
    stats = _abi.ConstantCacheStats(ctypes.sizeof(_abi.ConstantCacheStats))
    call("engine_get_constant_cache_stats", engine_of(engine), byref(stats))
    fields = ConstantCacheStats.__annotations__
    return ConstantCacheStats(**{name: getattr(stats, name) for name in fields})


def invalidate(array: AnyArray, engine: Optional[Engine] = None) -> None:
    """Forgets the engine's copies of an array that was bound as a constant. Call it after writing
    to such an array; otherwise executes may use what was there before. An array that the package
    lets go of is invalidated by itself. Thread-safe."""
    _invalidate(_extent(array_of("invalidate takes", array)), engine_of(engine))


def _extent(array: Array) -> tuple[int, int]:
    """The address and the bytes of the memory in which an array's elements lie."""
    memory = memory_of(array)
    low = high = memory.ctypes.data
    for n, step in zip(memory.shape, memory.strides):
        low += min(0, (n - 1) * step)
        high += max(0, (n - 1) * step)
    return low, high + memory.itemsize - low if memory.size else 0


def _invalidate(memory: tuple[int, int], engine: Optional[Engine]) -> None:
    call("engine_invalidate_constants", engine, *memory)


class Stream(Handle):
    """How many threads an execute may use. Executes that are to run side by side need a stream
    each; one that finds its stream in use waits for the other.

    threads      the most threads of an execute; 0: as many as OpenMP would use by default
    all_threads  True: every step is divided among all threads, however little work it has
    """

    def __init__(self, threads: int = 0, *, all_threads: bool = False,
                 engine: Optional[Engine] = None) -> None:
        desc = _abi.StreamDesc(ctypes.sizeof(_abi.StreamDesc),
                               integer("a number of threads", threads, 0, MOST_INT),
                               flag("all_threads", all_threads))
        pointer = c_void_p()
        call("stream_create", byref(pointer), engine_of(engine), byref(desc))
        super().__init__("stream", pointer)
        self.lock = threading.Lock()

    @property
    def threads(self) -> int:
        """The most threads that an execute uses: fewer than asked for where the system refused
        them."""
        count = c_int()
        call("stream_get_threads", self, byref(count))
        return count.value


_of_thread = threading.local()


def default_stream() -> Stream:
    """The stream that executes use which name none. Each Python thread has its own."""
    if not hasattr(_of_thread, "stream"):
        _of_thread.stream = Stream()
    stream: Stream = _of_thread.stream
    return stream


def stream_of(stream: Optional[Stream]) -> Stream:
    """A stream for an execute; None: that of this thread."""
    return default_stream() if stream is None else instance("a stream", stream, Stream)


def fpmath(mode: str, apply_to_int: bool) -> tuple[int, int]:
    return parse("fpmath_mode", mode), flag("apply_to_int", apply_to_int)


def _forget(held: dict[int, tuple[Array, tuple[int, int]]], engine: Optional[Engine]) -> None:
    for _, memory in held.values():
        _invalidate(memory, engine)
    held.clear()


class Constants:
    """The constants that a compiled object has read. The library's copies of a constant are found
    by its address, so an array that goes is forgotten there first: another array may get the same
    address."""

    def __init__(self, engine: Optional[Engine]) -> None:
        self.engine = engine
        self.held: dict[int, tuple[Array, tuple[int, int]]] = {}
        weakref.finalize(self, _forget, self.held, engine).atexit = False

    def hold(self, number: int, array: Array) -> None:
        before, memory = self.held.get(number), _extent(array)
        if before is not None and before[1] != memory:
            _invalidate(before[1], self.engine)
        self.held[number] = array, memory
