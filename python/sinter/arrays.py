"""Arrays: what NumPy calls the library's data types, views of raw bytes, packing of codes narrower
than a byte."""
import ctypes
import functools
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Optional, Union

import numpy as np
import numpy.typing as npt

from . import _abi, _dlpack
from ._abi import LogicalTensor
from ._dlpack import SupportsDLPack
from ._library import (MOST_S64, MOST_U64, call, fail, instance, integer, items, parse,
                       parse_or_none, shown, wrong)

# How ml_dtypes spells what the library has another name for. Its other types have other values
# (float8_e4m3 has infinities), or keep codes narrower than a byte one in a byte.
_OF_ML_DTYPES = {
    "bfloat16": "bf16",
    "float8_e4m3fn": "f8_e4m3",
    "float8_e4m3fnuz": "f8_e4m3fnuz",
    "float8_e5m2": "f8_e5m2",
    "float8_e5m2fnuz": "f8_e5m2fnuz",
    "float8_e8m0fnu": "e8m0",
}
_LETTERS = {"f": "f", "i": "s", "u": "u"}


def _spelling(dtype: "np.dtype[Any]") -> Optional[str]:
    """The library's name of a NumPy type, if it has one."""
    if dtype.name in _OF_ML_DTYPES:
        return _OF_ML_DTYPES[dtype.name]
    if dtype.kind == "b":
        return "boolean"
    if dtype.kind in _LETTERS and dtype.name[-1].isdigit() and "_" not in dtype.name:
        return f"{_LETTERS[dtype.kind]}{8 * dtype.itemsize}"
    return None


@functools.lru_cache(maxsize=None)
def _type_of(dtype: "np.dtype[Any]") -> str:
    name = _spelling(dtype)
    if name is None or parse_or_none("data_type", name) is None:
        hint = ""
        if dtype.itemsize == 1 and dtype.name not in ("int8", "uint8"):
            hint = "; pack codes narrower than a byte with sinter.pack"
        raise fail(_abi.STATUS_INVALID_DATA_TYPE,
                   f"NumPy's {dtype.name} is no data type of the library{hint}")
    if not dtype.isnative:
        raise fail(_abi.STATUS_INVALID_DATA_TYPE,
                   f"an array of {dtype.name} has the other byte order")
    return name


def data_type_of(dtype: npt.DTypeLike) -> str:
    """The library's name of a NumPy type, of NumPy itself or of ml_dtypes: "f32" of np.float32.
    A SinterError (invalid_data_type) if the library has no such type."""
    try:
        found = np.dtype(dtype)
    except (TypeError, ValueError):
        raise fail(_abi.STATUS_INVALID_DATA_TYPE,
                   f"NumPy has no type {shown(dtype)}") from None
    return _type_of(found)


@functools.lru_cache(maxsize=None)
def _numpy_types() -> dict[str, "np.dtype[Any]"]:
    types = [np.dtype(code) for code in "?bBhHiIqQefd"]
    try:
        import ml_dtypes
        types += [np.dtype(getattr(ml_dtypes, name)) for name in _OF_ML_DTYPES
                  if hasattr(ml_dtypes, name)]
    except ImportError:
        pass
    return {name: dtype for dtype in types if (name := _spelling(dtype))
            and parse_or_none("data_type", name)}


def numpy_type(data_type: str) -> "Optional[np.dtype[Any]]":
    """The NumPy type with the values of a data type. None if there is none: types narrower than a
    byte, and without the package ml_dtypes bf16, floats of 8 bits and e8m0."""
    parse("data_type", data_type)
    return _numpy_types().get(data_type)


def bits(data_type: str) -> int:
    """Bits of one element."""
    return _bits(parse("data_type", data_type))


@functools.lru_cache(maxsize=None)
def _bits(data_type: int) -> int:
    lt, size = LogicalTensor(), ctypes.c_size_t()
    lt.data_type, lt.layout_type, lt.ndims = data_type, 2, 1
    lt.dims[0], lt.strides[0] = 8, 1
    call("logical_tensor_get_bytes", ctypes.byref(lt), ctypes.byref(size))
    return size.value


def dense(shape: Sequence[int]) -> tuple[int, ...]:
    """Row-major strides in elements."""
    strides, step = [], 1
    for dim in reversed(shape):
        strides.append(step)
        step *= max(dim, 1)
    return tuple(reversed(strides))


@dataclass(frozen=True)
class View:
    """Elements of any data type over an array's memory, without a copy. sinter.view makes it.

    buffer   an array, C-contiguous; its own type means nothing. The view keeps it alive.
             sinter.view also takes a tensor of torch and whatever else shows itself by __dlpack__.
    dtype    name of the data type of the elements
    shape    dims, in elements
    strides  in elements; types narrower than a byte lie packed along the dim of stride 1, the
             first element in the lowest bits

    A SinterError if the buffer is not C-contiguous or too small for the elements.
    """
    buffer: "np.ndarray[Any, Any]"
    dtype: str
    shape: tuple[int, ...]
    strides: tuple[int, ...]

    def __post_init__(self) -> None:
        buffer = _array(self.buffer)
        shape, steps = _sizes("dim", self.shape), _sizes("stride", self.strides)
        if len(steps) != len(shape):
            raise wrong(f"a view has {len(shape)} dims and {len(steps)} strides")
        if not buffer.flags.c_contiguous:
            raise wrong("the buffer of a view must be C-contiguous")
        needed = _bytes(self.dtype, shape, steps)
        if needed > buffer.nbytes:
            raise wrong(f"a view of {self.dtype} {shown(list(shape))} needs {needed} bytes, the "
                        f"buffer has {buffer.nbytes}")
        object.__setattr__(self, "buffer", buffer)
        object.__setattr__(self, "shape", shape)
        object.__setattr__(self, "strides", steps)

    def numpy(self) -> "np.ndarray[Any, Any]":
        """The elements as an array of their NumPy type over the same memory. A SinterError if
        there is no such type (see numpy_type)."""
        dtype = numpy_type(self.dtype)
        if dtype is None:
            raise fail(_abi.STATUS_INVALID_DATA_TYPE,
                       f"NumPy has no type for {self.dtype}; sinter.unpack gives the codes")
        return self._as(dtype)

    def _raw(self) -> "np.ndarray[Any, Any]":
        """Elements of whole bytes as unsigned integers of their size."""
        return self._as(np.dtype(f"u{bits(self.dtype) // 8}"))

    def _as(self, dtype: "np.dtype[Any]") -> "np.ndarray[Any, Any]":
        steps = [stride * dtype.itemsize for stride in self.strides]
        # As bytes: types of ml_dtypes have no buffer protocol.
        memory = self.buffer.reshape(-1).view(np.uint8) if self.buffer.size else None
        return np.ndarray(self.shape, dtype, memory, 0, steps)

    def __dlpack_device__(self) -> tuple[int, int]:
        return _dlpack.CPU, 0

    def __dlpack__(self, *, stream: Any = None, **options: Any) -> Any:
        """For torch.from_dlpack and its like: the same memory, also of types that NumPy lacks. A
        BufferError, as the protocol wants it, for types narrower than a byte."""
        if self.dtype not in _dlpack.TYPES:
            raise BufferError(f"DLPack has no type for {self.dtype}; the buffer has the bytes")
        return _dlpack.show(self._raw(), self.dtype, stream=stream, **options)


@dataclass(frozen=True)
class Opaque:
    """Elements that lie as the library wants them; sinter.weights makes it.

    buffer     an array of bytes, C-contiguous
    dtype      name of the data type of the elements
    shape      dims, in elements
    layout_id  which of the library's layouts

    A SinterError if there is no such layout for the type and the shape, or if the buffer is not
    C-contiguous or too small for it.
    """
    buffer: "np.ndarray[Any, Any]"
    dtype: str
    shape: tuple[int, ...]
    layout_id: int

    def __post_init__(self) -> None:
        buffer, lt, size = _array(self.buffer), LogicalTensor(), ctypes.c_size_t()
        shape = _sizes("dim", self.shape)
        if len(shape) > _abi.MAX_NDIMS:
            raise wrong(f"a tensor has at most {_abi.MAX_NDIMS} dims, not {len(shape)}")
        if not buffer.flags.c_contiguous:
            raise wrong("the buffer of an opaque layout must be C-contiguous")
        lt.data_type, lt.ndims = parse("data_type", self.dtype), len(shape)
        lt.layout_type = _abi.LAYOUTS["opaque"]
        lt.layout_id = integer("a layout_id", self.layout_id, 0, MOST_U64)
        for i, n in enumerate(shape):
            lt.dims[i] = n
        call("logical_tensor_get_bytes", ctypes.byref(lt), ctypes.byref(size))
        if size.value > buffer.nbytes:
            raise wrong(f"an opaque layout of {self.dtype} {shown(list(shape))} needs {size.value} "
                        f"bytes, the buffer has {buffer.nbytes}")
        object.__setattr__(self, "buffer", buffer)
        object.__setattr__(self, "shape", shape)


Array = Union["np.ndarray[Any, Any]", View, Opaque]
#: What functions take: these, and arrays of other packages that show themselves by __dlpack__.
AnyArray = Union[Array, SupportsDLPack]


def array_of(what: str, value: object) -> Array:
    """An argument as an array of this package. An object with __dlpack__ becomes one over the same
    memory, which keeps that memory alive; other objects are a SinterError."""
    if isinstance(value, (np.ndarray, View, Opaque)):
        return value
    if not hasattr(type(value), "__dlpack__"):
        raise wrong(f"{what} an array or a view, not {type(value).__name__}")
    try:
        seen = _dlpack.see(value)
    except Exception as error:  # the other package's, of any kind
        raise wrong(f"{what} an array, but {type(value).__name__} has none to show: {error}"
                    ) from None
    plain = dense(seen.shape)
    # Strides of dims of one element mean nothing.
    steps = plain if seen.strides is None else tuple(
        step if n > 1 else other for n, step, other in zip(seen.shape, seen.strides, plain))
    if 0 in seen.shape:
        return empty(seen.dtype, seen.shape)
    dtype = numpy_type(seen.dtype)
    if dtype is not None:
        return seen.array(dtype.itemsize, seen.shape, steps).view(dtype)
    buffer = seen.array(1, [_bytes(seen.dtype, seen.shape, steps)], [1])
    return View(buffer, seen.dtype, seen.shape, steps)


def memory_of(array: Array) -> "np.ndarray[Any, Any]":
    """The array in whose memory the elements lie."""
    return array if isinstance(array, np.ndarray) else array.buffer


def _array(value: object) -> "np.ndarray[Any, Any]":
    """The array under a view."""
    if isinstance(value, (View, Opaque)):
        raise wrong(f"a view is over an array, not {type(value).__name__}")
    found = array_of("a view is over", value)
    return found if isinstance(found, np.ndarray) else found._raw()  # type: ignore[union-attr]


def _sizes(what: str, values: object) -> tuple[int, ...]:
    """Dims or strides of memory that is there."""
    sizes = tuple(integer(f"a {what}", value) for value in items(f"a list of {what}s", values))
    if any(n < 0 for n in sizes):
        raise fail(_abi.STATUS_INVALID_SHAPE, f"a {what} must not be negative")
    return sizes


def _bytes(dtype: str, shape: Sequence[int], steps: Sequence[int]) -> int:
    """Bytes from the first element to behind the last one."""
    elements = 0 if 0 in shape else 1 + sum((n - 1) * step for n, step in zip(shape, steps))
    return -(-elements * bits(dtype) // 8)


def view(buffer: "Union[np.ndarray[Any, Any], SupportsDLPack]", dtype: str,
         shape: Optional[Sequence[int]] = None, strides: Optional[Sequence[int]] = None) -> View:
    """Elements of a data type over an array's memory: codes of 8-bit floats in an array of uint8,
    codes of 4 bits packed two in a byte, the lower half first.

    shape    in elements. Without it: that of the buffer, whose elements must then be as large as
             those of the data type.
    strides  in elements; without them dense row-major

    A SinterError if the buffer is not C-contiguous or too small for the elements.
    """
    buffer = _array(buffer)
    if shape is None:
        if buffer.itemsize * 8 != bits(dtype):
            raise wrong(f"a view of {buffer.dtype.name} as {dtype} needs a shape: elements have "
                        f"{8 * buffer.itemsize} and {bits(dtype)} bits")
        shape = buffer.shape
    shape = _sizes("dim", shape)
    return View(buffer, dtype, shape,
                dense(shape) if strides is None else strides)  # type: ignore[arg-type]


def empty(dtype: str, shape: Sequence[int], strides: Optional[Sequence[int]] = None) -> Array:
    """An array for elements of a data type, not initialised: of its NumPy type, or a view of bytes
    where NumPy has none. strides are in elements; without them it is dense row-major."""
    shape = _sizes("dim", shape)
    steps = dense(shape) if strides is None else _sizes("stride", strides)
    n_bytes = _bytes(dtype, shape, steps)
    try:
        if n_bytes > MOST_S64:
            raise MemoryError
        memory = np.empty(n_bytes, np.uint8)
    except MemoryError:
        raise fail(_abi.STATUS_OUT_OF_MEMORY,
                   f"no memory for an array of {dtype} {shown(list(shape))}") from None
    made = View(memory, dtype, shape, steps)
    return made if numpy_type(dtype) is None else made.numpy()


# ---- codes narrower than a byte ------------------------------------------------------------------


def pack(codes: npt.ArrayLike, dtype: str) -> View:
    """Packs codes into the bytes in which the library has types of less than 8 bits, or of 8.

    codes  an array of integers of any shape: values of an integer type, else bit patterns. Negative
           ones are two's complement. Arrays of ml_dtypes' types of that width (int4, uint4,
           float4_e2m1fn) are taken as they are.

    The result is a dense view of a new array of bytes, its first element in the lowest bits. A
    SinterError if a code does not fit its bits.
    """
    width = bits(dtype)
    if width > 8:
        raise wrong(f"{dtype} has {width} bits; only types of up to 8 bits are packed")
    try:
        array = np.asarray(codes)
    except (TypeError, ValueError) as error:
        raise wrong(f"codes are an array of integers: {error}") from None
    raw = array.view(np.uint8) if array.itemsize == 1 and array.dtype.kind == "V" else array
    if raw.dtype.kind not in "iub":
        raise fail(_abi.STATUS_INVALID_DATA_TYPE, f"codes are integers, not {raw.dtype.name}")
    mask = (1 << width) - 1
    if raw is not array:
        raw = raw & mask
    elif raw.size:
        low, high = int(raw.min()), int(raw.max())
        least, most = _range(dtype, width)
        if low < least or high > most:
            raise wrong(f"codes of {dtype} are {least} to {most}, not {low} to {high}")
    flat = (raw.astype(np.int64) & mask).astype(np.uint8).reshape(-1, 1)
    stream = np.unpackbits(flat, axis=1, count=width, bitorder="little")
    return view(np.packbits(stream.reshape(-1), bitorder="little"), dtype, array.shape)


def unpack(packed: View) -> "np.ndarray[Any, Any]":
    """The codes of a view of up to 8 bits, as int8 or uint8 in its shape: values of an integer
    type, else bit patterns. A copy."""
    width = bits(instance("what is unpacked", packed, View).dtype)
    if width > 8:
        raise wrong(f"{packed.dtype} has {width} bits; only types of up to 8 bits are unpacked")
    stream = np.unpackbits(packed.buffer.reshape(-1).view(np.uint8), bitorder="little")
    count = stream.size // width
    flat = np.packbits(stream[:count * width].reshape(count, width), axis=1, bitorder="little")
    codes: "np.ndarray[Any, Any]" = flat.reshape(-1)
    if _range(packed.dtype, width)[0] < 0:
        codes = (codes << 8 - width).view(np.int8) >> 8 - width
    return np.ascontiguousarray(np.lib.stride_tricks.as_strided(codes, packed.shape,
                                                                packed.strides))


def _range(dtype: str, width: int) -> tuple[int, int]:
    """The least and the largest code: signed integers are the names s and bits."""
    return (-(1 << width - 1), (1 << width - 1) - 1) if dtype == f"s{width}" else (
        0, (1 << width) - 1)
