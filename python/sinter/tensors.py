"""Tensors as a graph knows them, and arrays that are bound to them."""
import math
from collections.abc import Iterable, Mapping
from ctypes import byref, c_size_t, c_void_p
from dataclasses import dataclass, replace
from typing import Any, Optional, Union

import numpy as np

from . import _abi
from ._abi import LogicalTensor
from ._library import (MOST_U64, Handle, SinterError, call, fail, flag, integer, items, name_of,
                       parse, shown, word, word_of, wrong)
from .arrays import (AnyArray, Array, Opaque, View, array_of, bits, data_type_of, dense, empty,
                     memory_of, numpy_type, view)


@dataclass(frozen=True)
class Tensor:
    """What a graph, a partition or a compiled object knows of a tensor; it has no data.

    id        the tensor's number in its graph
    dtype     name of its data type
    shape     dims in elements; None: a dim that is not known yet. None as a whole: not even their
              number is known.
    strides   in elements; None: not known, or the library's choice
    property  "variable", "constant" or "host_scalar"
    layout_id which of the library's opaque layouts it has instead of strides; None: it has none
    """
    id: int
    dtype: str
    shape: Optional[tuple[Optional[int], ...]]
    strides: Optional[tuple[Optional[int], ...]] = None
    property: str = "variable"
    layout_id: Optional[int] = None

    def for_weights(self, part: str, transpose_b: bool = False, bits: int = 0) -> "Tensor":
        """The same tensor in the layout in which MatMul reads its second operand at the speed of
        memory; all tensors of the operand must have such a layout.

        part         "codes", also for plain floats; "codes_iq4_nl" for numbers of IQ4_NL; "values"
                     for scales, zero points and offsets. Of caches of attention "codes" is for K
                     and "codes_blocks" for V; where the heads of a token are side by side,
                     [tokens, heads, head], it is "heads_k", "heads_v" and "heads_values".
        transpose_b  MatMul's attribute
        bits         so many, from 1 to 6, are stored of each element of s8 or u8; 0: all

        A SinterError if there is no such layout for the type and the dims."""
        lt = to_logical(replace(self, layout_id=None))
        call("logical_tensor_set_weights_layout", byref(lt),
             word("part", _abi.WEIGHTS_PARTS, part), integer("bits", bits, 0, 8),
             flag("transpose_b", transpose_b))
        return from_logical(lt)

    def empty(self) -> Array:
        """An array for it, not initialised, in its layout: as sinter.empty makes it, or an Opaque.
        All dims must be known; strides that are not are dense ones."""
        shape = from_logical(to_logical(self)).shape
        if shape is None or None in shape:
            raise wrong(f"tensor {self.id} has dims that are not known")
        if self.layout_id is not None:
            return _room(self)
        steps = self.strides if self.strides and None not in self.strides else None
        return empty(self.dtype, shape, steps)  # type: ignore[arg-type]


TensorKey = Union[Tensor, int]
#: Arrays by TensorKey. Any, as a dict of tensors alone is no mapping of their union with int.
Arrays = Mapping[Any, object]


def tensor_id(key: TensorKey) -> int:
    return integer("a tensor's id", key.id if isinstance(key, Tensor) else key, 0, MOST_U64)


def _known(value: int) -> Optional[int]:
    return None if value == _abi.UNKNOWN_DIM else value


def from_logical(lt: LogicalTensor) -> Tensor:
    shape = None if lt.ndims < 0 else tuple(_known(n) for n in lt.dims[:lt.ndims])
    strided = lt.ndims >= 0 and lt.layout_type == _abi.LAYOUTS["strided"]
    strides = tuple(_known(n) for n in lt.strides[:lt.ndims]) if strided else None
    kind = word_of(_abi.PROPERTIES, lt.property)
    opaque = lt.layout_type == _abi.LAYOUTS["opaque"]
    return Tensor(lt.id, name_of("data_type", lt.data_type), shape, strides,
                  "variable" if kind == "undef" else kind, lt.layout_id if opaque else None)


def to_logical(tensor: Tensor) -> LogicalTensor:
    """A tensor for the library; a SinterError if a field is not what it should be."""
    lt = LogicalTensor()
    lt.id, lt.data_type = tensor_id(tensor), parse("data_type", tensor.dtype)
    lt.property = word("property", _abi.PROPERTIES, tensor.property)
    lt.layout_type = _abi.LAYOUTS["strided" if tensor.strides is not None else "any"]
    if tensor.shape is None:
        if tensor.strides is not None:
            raise wrong(f"tensor {lt.id}: strides without a shape")
        lt.ndims, lt.layout_type = _abi.UNKNOWN_NDIMS, _abi.LAYOUTS["any"]
        return lt
    shape = items(f"tensor {lt.id}: the shape", tensor.shape)
    if len(shape) > _abi.MAX_NDIMS:
        raise wrong(f"a tensor has at most {_abi.MAX_NDIMS} dims, not {len(shape)}")
    lt.ndims = len(shape)
    strides = [] if tensor.strides is None else items(f"tensor {lt.id}: the list of strides",
                                                      tensor.strides)
    if tensor.strides is not None and len(strides) != len(shape):
        raise wrong(f"tensor {lt.id} has {len(shape)} dims and {len(strides)} strides")
    for what, values, into in (("dim", shape, lt.dims), ("stride", strides, lt.strides)):
        for i, value in enumerate(values):
            into[i] = _abi.UNKNOWN_DIM if value is None else integer(
                f"tensor {lt.id}: {what} {i}", value)
    if tensor.layout_id is not None:
        if tensor.strides is not None:
            raise wrong(f"tensor {lt.id} has strides and an opaque layout")
        lt.layout_type = _abi.LAYOUTS["opaque"]
        lt.layout_id = integer(f"tensor {lt.id}: a layout_id", tensor.layout_id, 0, MOST_U64)
    return lt


def _steps(array: "np.ndarray[Any, Any]") -> tuple[int, ...]:
    """The strides of an array in elements. Those of dims of one element, and of an array without
    elements, mean nothing: they become dense ones."""
    if array.size == 0:
        return dense(array.shape)
    plain, steps = dense(array.shape), []
    for n, step, other in zip(array.shape, array.strides, plain):
        if n > 1 and step < 0:
            raise fail(_abi.STATUS_INVALID_SHAPE, "an array has a negative stride; "
                       "np.ascontiguousarray makes a copy without")
        if n > 1 and step % array.itemsize:
            raise fail(_abi.STATUS_INVALID_SHAPE, f"an array has a stride of {step} bytes, which "
                       f"is no multiple of its elements of {array.itemsize}")
        steps.append(step // array.itemsize if n > 1 else other)
    return tuple(steps)


def tensor_of(array: Array, number: int, kind: str) -> Tensor:
    """An array as a tensor with its data type, dims and strides or opaque layout."""
    if isinstance(array, Opaque):
        return Tensor(number, array.dtype, array.shape, None, kind, array.layout_id)
    if isinstance(array, View):
        return Tensor(number, array.dtype, array.shape, array.strides, kind)
    return Tensor(number, data_type_of(array.dtype), array.shape, _steps(array), kind)


def _room(tensor: Tensor) -> Opaque:
    """Memory for a tensor in an opaque layout."""
    size = c_size_t()
    assert tensor.shape is not None and tensor.layout_id is not None
    call("logical_tensor_get_bytes", byref(to_logical(tensor)), byref(size))
    try:
        memory = np.empty(size.value, np.uint8)
    except (MemoryError, ValueError):
        raise fail(_abi.STATUS_OUT_OF_MEMORY,
                   f"no memory for {size.value} bytes of weights") from None
    return Opaque(memory, tensor.dtype, tensor.shape, tensor.layout_id)  # type: ignore[arg-type]


def new_array(port: Tensor) -> Array:
    """An array for an output whose dims must be known."""
    if port.shape is None or None in port.shape:
        raise wrong(f"output tensor {port.id}: its dims follow from inputs that are not bound")
    return port.empty()


@dataclass
class Bound:
    """An array at a port: what the library is told, and what keeps the memory alive."""
    array: Array
    given: Any  # what the caller has for it: the array, or an object that shows it by DLPack
    shape: tuple[int, ...]
    strides: Optional[tuple[int, ...]]  # None: an opaque layout
    address: int
    n_bytes: int


def _is_bytes_of(array: "np.ndarray[Any, Any]", port: Tensor) -> bool:
    """Whether an array is the packed bytes of a port whose dims are known."""
    return (array.dtype == np.uint8 and bits(port.dtype) < 8 and port.shape is not None
            and None not in port.shape)


def _scalar(side: str, port: Tensor, value: Any) -> "np.ndarray[Any, Any]":
    """A number as an array of one element. A float is rounded to the port's type; else the number
    must be one that the type has."""
    dtype = numpy_type(port.dtype)
    if dtype is None:
        raise wrong(f"{side} tensor {port.id} is {port.dtype}, which takes arrays only")
    what, whole = f"a number for {side} tensor {port.id}, which is {port.dtype},", value
    if isinstance(value, np.generic) and value.dtype.kind in "biu":
        whole = value.item()
    if dtype.kind == "b":
        number: Any = flag(what, whole)
    elif dtype.kind in "iu":
        limits = np.iinfo(dtype)
        number = integer(what, whole, int(limits.min), int(limits.max))
    else:
        number = _float(what, value, dtype)
    return np.full([1] * len(port.shape or ()), number, dtype)


def _float(what: str, value: Any, dtype: "np.dtype[Any]") -> float:
    """A number for a type of floats, of which it is not beyond the ends."""
    try:
        if isinstance(value, np.generic) and value.dtype.kind in "mMcSUO":
            raise TypeError
        number = float(value)
        with np.errstate(all="ignore"):
            rounded = float(np.float64(number).astype(dtype))
    except (TypeError, ValueError):
        raise wrong(f"{what} is a float, not {shown(value)}") from None
    except OverflowError:
        number, rounded = 0, math.inf
    if math.isfinite(number) and not math.isfinite(rounded):
        raise wrong(f"{what} is beyond the type's ends: {shown(value)}")
    return number


def bind(port: Tensor, value: object, output: bool) -> Bound:
    """Checks what the library cannot see in a pointer: the data type, byte order, whether strides
    are whole elements, whether an output may be written. Dims and strides are the library's to
    check."""
    side, given = "output" if output else "input", value
    if isinstance(value, (bool, int, float, np.generic)) and not output:
        value = _scalar(side, port, value)
    value = array_of(f"{side} tensor {port.id} takes", value)
    if isinstance(value, np.ndarray) and port.layout_id is None and _is_bytes_of(value, port):
        assert port.shape is not None
        known = port.strides if port.strides and None not in port.strides else None
        value = view(value, port.dtype, port.shape, known)  # type: ignore[arg-type]
    try:
        tensor = tensor_of(value, port.id, port.property)
    except SinterError as error:
        raise SinterError(error.status, f"{side} tensor {port.id}: {error.message}") from None
    if tensor.dtype != port.dtype:
        raise fail(_abi.STATUS_INVALID_DATA_TYPE,
                   f"{side} tensor {port.id} is {port.dtype}, the array {tensor.dtype}; "
                   "sinter.view gives bytes another data type")
    if tensor.layout_id != port.layout_id:
        raise wrong(f"{side} tensor {port.id} has "
                    f"{'strides' if port.layout_id is None else 'an opaque layout'}, the array "
                    f"{'strides' if tensor.layout_id is None else 'an opaque layout'}"
                    + (" of another id" if None not in (tensor.layout_id, port.layout_id) else ""))
    memory = memory_of(value)
    if output and not memory.flags.writeable:
        raise wrong(f"output tensor {port.id} is bound to an array that is read-only")
    shape: Any = tensor.shape
    steps: Any = tensor.strides
    n_bytes = memory.nbytes
    if isinstance(value, np.ndarray) and value.size:
        n_bytes = value.itemsize * (1 + sum((n - 1) * step for n, step in zip(shape, steps)))
    return Bound(value, given, shape, steps, memory.ctypes.data, n_bytes)


# ---- opaque layouts ------------------------------------------------------------------------------

def _over(array: Array) -> Handle:
    """The library's tensor over an array."""
    lt, pointer = to_logical(tensor_of(array, 0, "variable")), c_void_p()
    memory = memory_of(array)
    call("tensor_create", byref(pointer), None, byref(lt), memory.ctypes.data,
         _abi.BYTES_TRUSTED if isinstance(array, np.ndarray) else memory.nbytes)
    return Handle("tensor", pointer)


def reorder(source: AnyArray, target: AnyArray) -> None:
    """Copies all elements, of which one side has an opaque layout and the other one strides; data
    type and shape are the same. 16 columns (the dim that is not K) from a multiple of 16 on lie
    together in an opaque layout. Other Python threads run meanwhile.

    A SinterError if they do not fit together, or if the target is read-only.
    """
    source, target = array_of("reorder takes", source), array_of("reorder takes", target)
    if not memory_of(target).flags.writeable:
        raise wrong("the target of a reorder is read-only")
    call("reorder", _over(source), _over(target))


def weights(array: AnyArray, part: str, transpose_b: bool = False, bits: int = 0) -> Opaque:
    """A copy of an array or a view in the layout in which MatMul reads its second operand at the
    speed of memory; see Tensor.for_weights. An engine keeps the copy alone."""
    array = _with_strides("weights are", array)
    copy = _room(tensor_of(array, 0, "variable").for_weights(part, transpose_b, bits))
    reorder(array, copy)
    return copy


def packed(array: AnyArray, port: Tensor) -> Opaque:
    """A copy of an array or a view in the opaque layout of a port: what compile has chosen for a
    tensor of layout any, or Tensor.for_weights."""
    array = _with_strides("what is packed is", array)
    if port.layout_id is None:
        raise wrong(f"tensor {port.id} has no opaque layout")
    own = tensor_of(array, port.id, "variable")
    copy = _room(replace(own, strides=None, layout_id=port.layout_id))
    reorder(array, copy)
    return copy


def _with_strides(what: str, array: AnyArray) -> Array:
    """An array that has no opaque layout yet."""
    found = array_of(what, array)
    if isinstance(found, Opaque):
        raise wrong(f"{what} an array or a view, not Opaque")
    return found


def as_wanted(constants: Mapping[int, Array], ports: Iterable[Tensor]) -> dict[int, Array]:
    """Constants that a graph holds, of these ports: packed where compile has chosen that."""
    wanted = {port.id: port for port in ports}
    return {number: packed(array, wanted[number])
            if wanted[number].layout_id is not None and not isinstance(array, Opaque) else array
            for number, array in constants.items() if number in wanted}
