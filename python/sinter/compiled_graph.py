"""Compiled graphs: a graph that runs as a whole."""
import threading
from collections.abc import Mapping
from ctypes import POINTER, byref, c_int64, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any, Optional

from . import _abi
from ._abi import LogicalTensor
from ._library import Handle, call
from .arrays import Array, Opaque, View, bits
from .partition import by_id, check_arrays, pairs_of, ports_of, text_of
from .runtime import Constants, Engine, Stream, stream_of
from .tensors import (Arrays, Bound, Tensor, TensorKey, as_wanted, bind, from_logical, new_array,
                      tensor_id)


@dataclass(frozen=True)
class ArenaTensor:
    """A tensor between partitions: its bytes, its offset in the block, and the partitions, counted
    from 0, that write it and that read it last."""
    id: int
    bytes: int
    offset: int
    first: int
    last: int


class CompiledGraph(Handle):
    """All partitions of a graph with their kernels, and the memory between them. Graph.compile
    makes it. Several threads may hold it, but calls wait for one another: for executes at the same
    time make one for each thread.

    Arrays are bound where they lie, without copies, and kept alive until others are bound. Between
    executes the program may write to them, but for constants: see sinter.invalidate.
    """

    def __init__(self, pointer: c_void_p, constants: Mapping[int, Array],
                 engine: Optional[Engine]) -> None:
        super().__init__("compiled_graph", pointer)
        self._lock, self._held = threading.RLock(), Constants(engine)
        self._bound: dict[int, Bound] = {}
        #: The tensors that the graph reads and writes; dims that are None take their values from
        #: the arrays that are bound.
        self.inputs = tuple(from_logical(p) for p in ports_of("compiled_graph", self, "input"))
        self.outputs = tuple(from_logical(p) for p in ports_of("compiled_graph", self, "output"))
        self._inputs = {port.id: port for port in self.inputs}
        self._outputs = {port.id: port for port in self.outputs}
        self.bind(as_wanted(constants, self.inputs))

    def query(self, tensor: TensorKey) -> Tensor:
        """A port of any partition, with the dims and strides of the next execute as far as they
        follow from what is bound."""
        lt = LogicalTensor()
        with self._lock:
            call("compiled_graph_query_logical_tensor", self, tensor_id(tensor), byref(lt))
        return from_logical(lt)

    @property
    def inplace(self) -> dict[int, int]:
        """Id of an output -> id of the input that it may share a buffer with: a cache and what
        ScatterRows makes of it."""
        with self._lock:
            return pairs_of("compiled_graph", self)

    def report(self) -> str:
        """For each partition in the order of execution its number, and the lines of
        CompiledPartition.report."""
        count = c_size_t()
        with self._lock:
            call("compiled_graph_get_partition_num", self, byref(count))
            ids, partitions = (c_size_t * count.value)(), (c_void_p * count.value)()
            call("compiled_graph_get_partitions", self, count.value, ids, partitions)
            return "".join(
                f"partition {number}\n{text_of('compiled_partition_report', partition)}"
                for number, partition in zip(ids, partitions))

    def arena(self) -> tuple[int, tuple[ArenaTensor, ...]]:
        """The bytes of the block of tensors between partitions, and these tensors, for the dims
        that are bound."""
        n_bytes, count, tensors = c_size_t(), c_size_t(), POINTER(_abi.ArenaTensor)()
        with self._lock:
            call("compiled_graph_get_arena", self, byref(n_bytes), byref(count), byref(tensors))
            return n_bytes.value, tuple(
                ArenaTensor(t.id, t.bytes, t.offset, t.first, t.last)
                for t in (tensors[i] for i in range(count.value)))

    def bind(self, arrays: Arrays) -> None:
        """Binds arrays to tensors of the graph, by tensor or by its id, until others are bound.

        An input may be an array, a view, an object with __dlpack__ such as a tensor of torch, or,
        if it has one element, a Python number. Every output must be bound for execute, except that
        of a pair (inplace), which is else written into the buffer of its input. Tensors between
        partitions may be bound too, to see what is in them.

        A SinterError if data types, dims or strides do not fit, if an output is read-only, or if a
        tensor is no port. What was bound to that tensor then stays bound.
        """
        check_arrays(arrays)
        given = {tensor_id(key): value for key, value in arrays.items()}
        with self._lock:
            # Inputs first: the dims of outputs follow from them.
            for number in sorted(given, key=lambda number: number not in self._inputs):
                value, port = given[number], self._inputs.get(number)
                bound = bind(port or self._written(number, value), value, port is None)
                n = len(bound.shape)
                dims = (c_int64 * n)(*bound.shape)
                call("compiled_graph_bind", self, number, n, dims if n else None,
                     (c_int64 * n)(*bound.strides) if n and bound.strides is not None else None,
                     bound.address, bound.n_bytes)
                if port is not None and port.property == "constant":
                    self._held.hold(number, bound.array)
                self._bound[number] = bound

    def _written(self, number: int, value: object) -> Tensor:
        """A tensor that is written, as bind needs it. Its dims matter where bytes stand for codes
        narrower than a byte: only then must those of the inputs fit together already."""
        port = self._outputs.get(number)
        if port is None or bits(port.dtype) < 8 and not isinstance(value, (View, Opaque)):
            return self.query(number)
        return port

    def _unbind(self, number: int) -> None:
        call("compiled_graph_bind", self, number, 0, None, None, None, 0)
        del self._bound[number]

    def execute(self, stream: Optional[Stream] = None) -> None:
        """Runs all partitions in order, and returns when the outputs are written. Other Python
        threads run meanwhile. stream None: the stream of this thread.

        A SinterError, which names partition and tensor, if something is not bound or does not fit;
        nothing is written then.
        """
        stream = stream_of(stream)
        with self._lock, stream.lock:
            call("compiled_graph_execute", self, stream)

    def __call__(self, arrays: Optional[Arrays] = None,
                 stream: Optional[Stream] = None) -> tuple[Any, ...]:
        """Binds arrays, executes, and returns the arrays of the outputs, in the order of outputs:
        those that the caller has bound, as they were given. Outputs that are not bound get new
        arrays for this call alone, so none of them is written into an input."""
        with self._lock:
            given = by_id({} if arrays is None else arrays, (*self.inputs, *self.outputs), "graph")
            self.bind(given)
            missing = [port.id for port in self.outputs if port.id not in self._bound]
            try:
                for number in missing:
                    self.bind({number: new_array(self.query(number))})
                self.execute(stream)
                return tuple(self._bound[port.id].given for port in self.outputs)
            finally:
                for number in missing:
                    if number in self._bound:
                        self._unbind(number)
