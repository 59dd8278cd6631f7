"""DLPack: how arrays of torch and of other packages are seen where they lie, and show theirs. The
structs are those of dlpack.h, of its versions 0 and 1."""
import ctypes
from collections.abc import Sequence
from ctypes import (POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_int64, c_uint8,
                    c_uint16, c_uint32, c_uint64, c_void_p, py_object)
from typing import Any, NamedTuple, Optional, Protocol

import numpy as np

CPU = 1
_PLACES = (CPU, 3)  # the second one is memory of the CPU that a GPU may read
_VERSION = (1, 0)
_READ_ONLY = 1  # a flag

# Data type -> code and bits
TYPES = {
    "s8": (0, 8), "s32": (0, 32), "s64": (0, 64), "u8": (1, 8), "f16": (2, 16), "f32": (2, 32),
    "f64": (2, 64), "bf16": (4, 16), "boolean": (6, 8), "f8_e4m3": (10, 8),
    "f8_e4m3fnuz": (11, 8), "f8_e5m2": (12, 8), "f8_e5m2fnuz": (13, 8), "e8m0": (14, 8),
}
_NAMES = {code: name for name, code in TYPES.items()}


class SupportsDLPack(Protocol):
    """An array of another package, such as a tensor of torch."""

    def __dlpack__(self) -> Any:
        ...

    def __dlpack_device__(self) -> tuple[int, int]:
        ...


class _DataType(Structure):
    _fields_ = [("code", c_uint8), ("bits", c_uint8), ("lanes", c_uint16)]


class _Tensor(Structure):
    _fields_ = [("data", c_void_p), ("place", c_int32), ("device", c_int32), ("ndim", c_int32),
                ("dtype", _DataType), ("shape", POINTER(c_int64)), ("strides", POINTER(c_int64)),
                ("byte_offset", c_uint64)]


class _Versioned(Structure):
    _fields_ = [("major", c_uint32), ("minor", c_uint32), ("context", c_void_p),
                ("deleter", c_void_p), ("flags", c_uint64), ("tensor", _Tensor)]


_is_valid = PYFUNCTYPE(c_int, py_object, c_char_p)(("PyCapsule_IsValid", ctypes.pythonapi))
_pointer_of = PYFUNCTYPE(c_void_p, py_object, c_char_p)(("PyCapsule_GetPointer", ctypes.pythonapi))


def _inside(capsule: Any) -> tuple[_Tensor, bool]:
    """The tensor in a capsule, and whether it may not be written to."""
    if _is_valid(capsule, b"dltensor_versioned"):
        managed = _Versioned.from_address(_pointer_of(capsule, b"dltensor_versioned"))
        if managed.major != _VERSION[0]:
            raise BufferError(f"DLPack {managed.major} is not known here")
        return managed.tensor, bool(managed.flags & _READ_ONLY)
    if _is_valid(capsule, b"dltensor"):
        return _Tensor.from_address(_pointer_of(capsule, b"dltensor")), False
    raise BufferError("__dlpack__ gives no capsule of DLPack")


class _Owner:
    """Keeps a capsule, which nobody takes over, until NumPy's array over its memory goes: the end
    of the capsule then tells the package that made it."""

    def __init__(self, capsule: Any, interface: dict[str, Any]) -> None:
        self.capsule, self.__array_interface__ = capsule, interface


class Seen(NamedTuple):
    """What an object shows of itself. strides are in elements; None: dense."""
    dtype: str
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]
    capsule: Any
    address: int
    read_only: bool

    def array(self, size: int, shape: Sequence[int],
              strides: Sequence[int]) -> "np.ndarray[Any, Any]":
        """Its memory as an array of unsigned integers of so many bytes; strides are in elements,
        and shape must have some."""
        interface = {"version": 3, "typestr": np.dtype(f"u{size}").str, "shape": tuple(shape),
                     "strides": tuple(step * size for step in strides),
                     "data": (self.address, self.read_only)}
        return np.asarray(_Owner(self.capsule, interface))


def see(array: Any) -> Seen:
    """An array of another package, without a copy. Errors are those of that package, or a
    BufferError."""
    place = int(array.__dlpack_device__()[0])
    if place not in _PLACES:
        raise BufferError(f"it is not in the memory of the CPU (DLPack's device {place})")
    try:
        capsule = array.__dlpack__(max_version=_VERSION)
    except TypeError:  # of a package from before version 1
        capsule = array.__dlpack__()
    tensor, read_only = _inside(capsule)
    kind, n = tensor.dtype, tensor.ndim
    name = _NAMES.get((kind.code, kind.bits)) if kind.lanes == 1 else None
    if name is None:
        raise BufferError(f"its elements (DLPack's type {kind.code} of {kind.bits} bits) are of no "
                          "data type of the library; sinter.view takes the bytes of an array of "
                          "uint8 for elements of any type")
    return Seen(name, tuple(tensor.shape[:n]), tuple(tensor.strides[:n]) if tensor.strides else
                None, capsule, (tensor.data or 0) + tensor.byte_offset, read_only)


def show(array: "np.ndarray[Any, Any]", dtype: str, **options: Any) -> Any:
    """A capsule with an array of unsigned integers as elements of another type of their size."""
    capsule = array.__dlpack__(**{k: v for k, v in options.items() if v is not None})
    _inside(capsule)[0].dtype.code = TYPES[dtype][0]
    return capsule
