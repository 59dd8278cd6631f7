"""Compiled partitions of Sinter that read and write torch's tensors where they lie."""
import ctypes
import functools
import weakref
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint64, c_void_p

import sinter
import torch

_INT64S = POINTER(c_int64)
# The functions of sinter.h that a call needs at each execute. The package sinter makes new tensors
# for each execute, which takes longer than a small product does.
_FUNCTIONS = {
    "compiled_partition_create_tensor": [c_void_p, c_uint64, c_int, _INT64S, c_void_p, c_size_t,
                                         POINTER(c_void_p)],
    "compiled_partition_execute": [c_void_p, c_void_p, c_size_t, POINTER(c_void_p), c_size_t,
                                   POINTER(c_void_p), c_void_p, c_size_t],
    "tensor_set_data": [c_void_p, c_void_p, c_size_t],
    "tensor_set_dims": [c_void_p, c_int, _INT64S, _INT64S],
    "tensor_destroy": [POINTER(c_void_p)],
    "compiled_graph_bind": [c_void_p, c_uint64, c_int, _INT64S, _INT64S, c_void_p, c_size_t],
    "compiled_graph_execute": [c_void_p, c_void_p],
}
TYPES = {torch.float32: "f32", torch.bfloat16: "bf16", torch.float16: "f16", torch.int32: "s32",
         torch.int64: "s64", torch.uint8: "u8", torch.int8: "s8"}
_TRUSTED = c_size_t(-1).value  # SINTER_BYTES_TRUSTED: torch knows how large its memory is


@functools.lru_cache(maxsize=None)
def _library():
    """The library that the package sinter has loaded, with the prototypes from above."""
    library = ctypes.CDLL(sinter.load())
    for name, arguments in _FUNCTIONS.items():
        function = getattr(library, "sinter_" + name)
        function.restype, function.argtypes = c_int, arguments
    library.sinter_status_name.restype, library.sinter_status_name.argtypes = c_char_p, [c_int]
    library.sinter_last_error_message.restype = c_char_p
    library.sinter_last_error_message.argtypes = []
    return library


def _check(status):
    if status:
        library = _library()
        raise sinter.SinterError(library.sinter_status_name(status).decode(),
                                 library.sinter_last_error_message().decode(errors="replace"))


@functools.lru_cache(maxsize=None)
def stream():
    """The stream of all executes: as many threads as torch has, and the same ones, since both use
    the OpenMP library that the process has loaded. vLLM runs a model in one thread."""
    return sinter.Stream(threads=torch.get_num_threads())


class Port:
    """The tensor of one port. It keeps the memory that it points to alive."""

    def __init__(self, compiled, port):
        known = [1 if dim is None else dim for dim in port.shape]
        self._rank, self._dims = len(known), (c_int64 * len(known))(*known)
        self._memory, self._seen = None, None
        self.handle, library = c_void_p(), _library()
        _check(library.sinter_compiled_partition_create_tensor(
            compiled, port.id, self._rank, self._dims, None, 0, byref(self.handle)))
        weakref.finalize(self, library.sinter_tensor_destroy, byref(self.handle)).atexit = False

    def set(self, tensor):
        """Points to a torch tensor of the port's type, with any strides."""
        library = _library()
        self._memory = tensor
        _check(library.sinter_tensor_set_data(self.handle, tensor.data_ptr(), _TRUSTED))
        seen = tensor.shape, tensor.stride()
        if seen != self._seen:
            dims = (c_int64 * self._rank)(*seen[0])
            _check(library.sinter_tensor_set_dims(self.handle, self._rank, dims,
                                                  (c_int64 * self._rank)(*seen[1])))
            self._seen = seen

    def set_packed(self, opaque):
        """Points to a sinter.Opaque."""
        self._memory = opaque
        _check(_library().sinter_tensor_set_data(self.handle, opaque.buffer.ctypes.data,
                                                 opaque.buffer.nbytes))


class Ports:
    """Pointers to the tensors of one side of a compiled partition."""

    def __init__(self, ports):
        self.count = len(ports)
        self.pointers = (c_void_p * len(ports))(*(port.handle.value for port in ports))
        self._ports = ports


def execute(compiled, inputs, outputs):
    """Runs a compiled partition, and returns when the outputs are written. Sinter's message is a
    sinter.SinterError."""
    _check(_library().sinter_compiled_partition_execute(
        compiled, stream(), inputs.count, inputs.pointers, outputs.count, outputs.pointers, None,
        0))


class Whole:
    """A graph that is compiled as a whole, with torch's tensors at its ports."""

    def __init__(self, graph):
        self.compiled = graph.compile()
        self._memory, self._seen = {}, {}

    def bind(self, port, tensor):
        """Binds a torch tensor of the port's type, with any strides."""
        if TYPES[tensor.dtype] != port.dtype:
            raise TypeError(f"tensor {port.id} is {port.dtype}, not {tensor.dtype}")
        self.bind_memory(port, tensor, 0, tensor.shape, tensor.stride())

    def bind_memory(self, port, tensor, first, shape, strides):
        """Binds elements of the port's type that lie in the memory of a torch tensor, from byte
        `first` on. The tensor is kept alive."""
        self._bind(port, tensor, tensor.data_ptr() + first, tuple(shape), tuple(strides))

    def bind_array(self, port, array):
        """Binds a sinter.Opaque, or a sinter.View."""
        strides = None if isinstance(array, sinter.Opaque) else array.strides
        self._bind(port, array, array.buffer.ctypes.data, array.shape, strides)

    def _bind(self, port, memory, address, shape, strides):
        seen, rank = (address, shape, strides), len(shape)
        if self._seen.get(port.id) == seen:
            return
        _check(_library().sinter_compiled_graph_bind(
            self.compiled, port.id, rank, (c_int64 * rank)(*shape),
            None if strides is None else (c_int64 * rank)(*strides), address, _TRUSTED))
        self._seen[port.id], self._memory[port.id] = seen, memory

    def execute(self):
        """Runs the graph, and returns when the outputs are written."""
        _check(_library().sinter_compiled_graph_execute(self.compiled, stream()))
