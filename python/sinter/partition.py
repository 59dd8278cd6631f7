"""Partitions, compiled partitions, and executes of them."""
import ctypes
from collections.abc import Iterable, Mapping, Sequence
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p
from typing import Any, Optional

from . import _abi
from ._abi import LogicalTensor
from ._library import Handle, SinterError, call, instance, items, name_of, wrong
from .arrays import Array
from .runtime import Constants, Engine, Stream, fpmath, stream_of
from .tensors import (Arrays, Bound, Tensor, TensorKey, as_wanted, bind, from_logical, new_array,
                      tensor_id, to_logical)


def text_of(name: str, handle: Any) -> str:
    text = c_char_p()
    call(name, handle, byref(text))
    return (text.value or b"").decode()


def ports_of(kind: str, handle: Any, side: str) -> list[LogicalTensor]:
    count = c_size_t()
    call(f"{kind}_get_{side}_num", handle, byref(count))
    ports = (LogicalTensor * count.value)()
    call(f"{kind}_get_{side}s", handle, count.value, ports)
    return list(ports)


def pairs_of(kind: str, handle: Any) -> dict[int, int]:
    """Output -> the input that it may share a buffer with."""
    count, pairs = c_size_t(), POINTER(_abi.InplacePair)()
    call(f"{kind}_get_inplace_ports", handle, byref(count), byref(pairs))
    return {pairs[i].output_id: pairs[i].input_id for i in range(count.value)}


def mode_of(kind: str, handle: Any) -> tuple[str, bool]:
    mode, apply_to_int = c_int(), c_int()
    call(f"{kind}_get_fpmath_mode", handle, byref(mode), byref(apply_to_int))
    return name_of("fpmath_mode", mode.value), bool(apply_to_int.value)


def check_arrays(arrays: object) -> None:
    if not isinstance(arrays, Mapping):
        raise wrong(f"arrays are given in a dict by their tensors, not in a "
                    f"{type(arrays).__name__}")


def by_id(arrays: Arrays, ports: Iterable[Tensor],
          what: str) -> dict[int, object]:
    """Arrays by tensor id; each must belong to a port."""
    known = {port.id for port in ports}
    check_arrays(arrays)
    given = {tensor_id(key): value for key, value in arrays.items()}
    for number in given:
        if number not in known:
            raise wrong(f"tensor {number} is no port of the {what}; ports are "
                        f"{', '.join(map(str, sorted(known)))}")
    return given


class Partition(Handle):
    """A part of a graph that runs as one unit. Graph.partitions gives it. Thread-safe."""

    def __init__(self, pointer: c_void_p, constants: Mapping[int, Array],
                 engine: Optional[Engine]) -> None:
        super().__init__("partition", pointer)
        self._engine, self._constants = engine, dict(constants)

    @property
    def id(self) -> int:
        """Unique in its graph, counted from 0 in the order of execution."""
        number = c_size_t()
        call("partition_get_id", self, byref(number))
        return number.value

    @property
    def ops(self) -> tuple[int, ...]:
        """Ids of the ops, in the order of execution."""
        count = c_size_t()
        call("partition_get_op_num", self, byref(count))
        ids = (c_uint64 * count.value)()
        call("partition_get_ops", self, count.value, ids)
        return tuple(ids)

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The tensors that it reads."""
        return tuple(from_logical(port) for port in ports_of("partition", self, "input"))

    @property
    def outputs(self) -> tuple[Tensor, ...]:
        """The tensors that it writes. None for an End, which marks an output of the graph that its
        ops read too."""
        return tuple(from_logical(port) for port in ports_of("partition", self, "output"))

    @property
    def supported(self) -> bool:
        """Whether compile can succeed; explain has the reason if not."""
        value = c_int()
        call("partition_is_supported", self, byref(value))
        return bool(value.value)

    @property
    def pattern(self) -> str:
        """The pattern that matched, such as "sdpa" or "matmul"."""
        return text_of("partition_get_pattern", self)

    @property
    def fpmath(self) -> tuple[str, bool]:
        """The mode of the next compile, and whether it covers products of integers with floats."""
        return mode_of("partition", self)

    def set_fpmath(self, mode: str, apply_to_int: bool = False) -> None:
        """Sets the mode of later compiles. It wins over the graph's."""
        call("partition_set_fpmath_mode", self, *fpmath(mode, apply_to_int))

    def explain(self) -> str:
        """Which pattern matched, with the role of each op, and why larger patterns were refused."""
        return text_of("partition_explain", self)

    def compile(self, inputs: Optional[Sequence[Tensor]] = None,
                outputs: Optional[Sequence[Tensor]] = None) -> "CompiledPartition":
        """Makes a compiled partition; all code generation happens here. It may be called many
        times, with other shapes and in other modes.

        inputs, outputs  ports with dims that are now known, matched by id; None: as the partition
                         has them. Dims that stay None take their values at each execute.

        A SinterError (unimplemented) if the partition is not supported.
        """
        lists: list[Any] = []
        for side, given in (("input", inputs), ("output", outputs)):
            ports = ports_of("partition", self, side) if given is None else [
                to_logical(instance("a port", tensor, Tensor))
                for tensor in items(f"the list of {side}s", given)]
            lists += [len(ports), (LogicalTensor * len(ports))(*ports)]
        compiled = c_void_p()
        call("partition_compile", self, self._engine, *lists, byref(compiled))
        return CompiledPartition(compiled, [port.id for port in lists[1]],
                                 [port.id for port in lists[3]], self._constants, self._engine)


class CompiledPartition(Handle):
    """A partition with its kernels. Partition.compile makes it. Thread-safe: several threads may
    execute it at once, on a stream each, with outputs that do not overlap."""

    def __init__(self, pointer: c_void_p, inputs: list[int], outputs: list[int],
                 constants: Mapping[int, Array], engine: Optional[Engine]) -> None:
        super().__init__("compiled_partition", pointer)
        self._engine, self._held = engine, Constants(engine)
        #: The tensors that it reads and writes, with all that compile has filled in; dims that are
        #: None take their values at each execute.
        self.inputs = tuple(self.query(number) for number in inputs)
        self.outputs = tuple(self.query(number) for number in outputs)
        self._constants = as_wanted(constants, self.inputs)

    def query(self, tensor: TensorKey) -> Tensor:
        """A port with everything that compile has filled in."""
        lt = LogicalTensor()
        call("compiled_partition_query_logical_tensor", self, tensor_id(tensor), byref(lt))
        return from_logical(lt)

    @property
    def inplace(self) -> dict[int, int]:
        """Id of an output -> id of the input that it may share a buffer with, from the same
        address on."""
        return pairs_of("compiled_partition", self)

    @property
    def fpmath(self) -> tuple[str, bool]:
        """The mode that it was compiled with, and whether it covers products of integers with
        floats."""
        return mode_of("compiled_partition", self)

    def report(self) -> str:
        """A line for each step: kernel, mode, arithmetic, scratch memory, tile sizes; below it what
        else the step does, and why better kernels were refused."""
        return text_of("compiled_partition_report", self)

    def bind(self, arrays: Arrays) -> "Execution":
        """Ties arrays to the ports, for many executes.

        arrays  an array, a view or an object with __dlpack__, such as a tensor of torch, for each
                port, by tensor or by its id; see Graph for what fits.
                Constants that the graph holds, and outputs, may be missing: outputs get new arrays.
                A Python number stands for an input of one element.

        The memory of the arrays is used where it is, and kept alive by the result. A SinterError
        if data types differ or an output is read-only; dims and strides are checked by run.
        """
        given = by_id(arrays, (*self.inputs, *self.outputs), "partition")
        return Execution(self, {**self._constants, **given})

    def __call__(self, arrays: Arrays,
                 stream: Optional[Stream] = None) -> tuple[Any, ...]:
        """Binds arrays, executes once, and returns the arrays of the outputs in the order of
        outputs."""
        execution = self.bind(arrays)
        execution.run(stream)
        return execution.outputs


class Execution:
    """A compiled partition with arrays at its ports. For one thread at a time. It keeps the arrays
    and the partition alive."""

    def __init__(self, compiled: CompiledPartition, arrays: Mapping[int, object]) -> None:
        self._compiled = compiled
        self._tensors: list[Handle] = []
        self._bound: list[Bound] = []
        self._inputs = self._take(compiled.inputs, arrays, False)
        missing = [port for port in compiled.outputs if port.id not in arrays]
        made = {port.id: new_array(port) for port in (self._inferred(missing) if missing else ())}
        self._outputs = self._take(compiled.outputs, {**arrays, **made}, True)

    def _take(self, ports: Sequence[Tensor], arrays: Mapping[int, object],
              output: bool) -> "ctypes.Array[c_void_p]":
        """Tensors of the library over the arrays of one side."""
        pointers = (c_void_p * len(ports))()
        for i, port in enumerate(ports):
            if port.id not in arrays:
                raise wrong(f"no array for input tensor {port.id}")
            bound = bind(port, arrays[port.id], output)
            lt = to_logical(Tensor(port.id, port.dtype, bound.shape, bound.strides, port.property,
                                   port.layout_id))
            pointer = c_void_p()
            call("tensor_create", byref(pointer), self._compiled._engine, byref(lt), bound.address,
                 bound.n_bytes)
            self._hold(len(self._tensors), port, bound)
            self._tensors.append(Handle("tensor", pointer))
            pointers[i] = pointer.value
        return pointers

    def _inferred(self, wanted: Sequence[Tensor]) -> list[Tensor]:
        """Outputs with the dims that the inputs lead to."""
        count = len(self._compiled.outputs)
        ports = (LogicalTensor * count)()
        call("compiled_partition_infer_outputs", self._compiled, len(self._inputs), self._inputs,
             count, ports)
        ids = {port.id for port in wanted}
        return [from_logical(port) for port in ports if port.id in ids]

    @property
    def outputs(self) -> tuple[Any, ...]:
        """The arrays of the outputs, in the order of the compiled partition's outputs: those that
        the caller has given, as they are, and new ones."""
        return tuple(bound.given for bound in self._bound[len(self._inputs):])

    def bind(self, arrays: Arrays) -> None:
        """Gives some ports other arrays, of the same data type and number of dims, from the next
        run on: more tokens of a cache, another row. Where dims of inputs change, so must those of
        the outputs that follow from them.

        A SinterError if an array does not fit; what that port had then stays bound.
        """
        ports = (*self._compiled.inputs, *self._compiled.outputs)
        given = by_id(arrays, ports, "partition")
        for i, port in enumerate(ports):
            if port.id in given:
                bound, before = bind(port, given[port.id], i >= len(self._inputs)), self._bound[i]
                tensor, n = self._tensors[i], len(bound.shape)
                try:
                    # The bytes are told last: the new memory may be too small for the old dims.
                    call("tensor_set_data", tensor, bound.address, _abi.BYTES_TRUSTED)
                    if (bound.shape, bound.strides) != (before.shape, before.strides):
                        call("tensor_set_dims", tensor, n, (c_int64 * n)(*bound.shape),
                             (c_int64 * n)(*(bound.strides or ())))
                    call("tensor_set_data", tensor, bound.address, bound.n_bytes)
                except SinterError:
                    call("tensor_set_data", tensor, before.address, before.n_bytes)
                    raise
                self._hold(i, port, bound)

    def _hold(self, i: int, port: Tensor, bound: Bound) -> None:
        self._bound[i:i + 1] = [bound]
        if port.property == "constant":
            self._compiled._held.hold(port.id, bound.array)

    def scratch_bytes(self, stream: Optional[Stream] = None) -> int:
        """Bytes of scratch memory that an execute needs."""
        total = c_size_t()
        call("compiled_partition_get_scratchpad_bytes", self._compiled, stream_of(stream),
             len(self._inputs), self._inputs, byref(total), None)
        return total.value

    def run(self, stream: Optional[Stream] = None) -> None:
        """Executes, and returns when the outputs are written. Other Python threads run meanwhile.
        stream None: the stream of this thread.

        A SinterError if an array does not have the dims and strides that were compiled, or if
        an output overlaps another port's memory; nothing is written then.
        """
        stream = stream_of(stream)
        with stream.lock:
            call("compiled_partition_execute", self._compiled, stream, len(self._inputs),
                 self._inputs, len(self._outputs), self._outputs, None, 0)
