"""DLPack: how arrays of torch and of other packages are seen where they lie, and show theirs. The
structs are those of dlpack.h, of its versions 0 and 1."""
import ctypes
from ctypes import (POINTER, PYFUNCTYPE, Structure, c_char_p, c_int, c_int32, c_int64, c_uint8,
                    c_uint16, c_uint32, c_uint64, c_void_p, py_object)
from dataclasses import dataclass
from typing import Any, Optional, Protocol

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

    def __init__(self, capsule: Any, address: int, n_bytes: int, read_only: bool) -> None:
        self.capsule = capsule
        self.__array_interface__ = {"version": 3, "typestr": "|u1", "shape": (n_bytes,),
                                    "data": (address, read_only)}


@dataclass(frozen=True)
class Seen:
    """What an object shows. buffer: bytes from the first element to the end of the last one."""
    buffer: "np.ndarray[Any, Any]"
    dtype: str
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]  # None: dense


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
    kind = tensor.dtype
    name = _NAMES.get((kind.code, kind.bits)) if kind.lanes == 1 else None
    if name is None:
        raise BufferError(f"its elements (DLPack's type {kind.code} of {kind.bits} bits) are of no "
                          "data type of the library; sinter.view takes the bytes of an array of "
                          "uint8 for elements of any type")
    shape = tuple(tensor.shape[:tensor.ndim])
    strides = tuple(tensor.strides[:tensor.ndim]) if tensor.strides else None
    last = sum((n - 1) * step for n, step in zip(shape, strides)) if strides else (
        int(np.prod(shape, dtype=object)) - 1)
    if 0 in shape:
        return Seen(np.empty(0, np.uint8), name, shape, None)
    if strides and any(step < 0 for step in strides):
        raise BufferError("it has a negative stride")
    owner = _Owner(capsule, tensor.data + tensor.byte_offset, (last + 1) * kind.bits // 8,
                   read_only)
    return Seen(np.asarray(owner), name, shape, strides)


def show(array: "np.ndarray[Any, Any]", dtype: str, **options: Any) -> Any:
    """A capsule with an array of unsigned integers as elements of another type of their size."""
    capsule = array.__dlpack__(**{k: v for k, v in options.items() if v is not None})
    _inside(capsule)[0].dtype.code = TYPES[dtype][0]
    return capsule
