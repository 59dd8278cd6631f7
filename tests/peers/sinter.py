"""Graphs of tools/graph_json.py through the library's C API: build, partition, compile, execute on
NumPy arrays."""
import ctypes
from ctypes import (POINTER, byref, c_char_p, c_float, c_int, c_int32, c_int64, c_size_t, c_uint64,
                    c_void_p)

MAX_NDIMS = 12
FUSION, STRIDED, TRUSTED = 1, 2, c_size_t(-1)
PROPERTIES = {"variable": 1, "constant": 2, "host_scalar": 3}


class LogicalTensor(ctypes.Structure):
    _fields_ = [("id", c_uint64), ("ndims", c_int32), ("dims", c_int64 * MAX_NDIMS),
                ("data_type", c_int), ("property", c_int), ("layout_type", c_int),
                ("strides", c_int64 * MAX_NDIMS)]


class StreamDesc(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("threads", c_int)]


class Library:
    def __init__(self, path):
        self.lib = ctypes.CDLL(path)
        self.lib.sinter_last_error_message.restype = c_char_p

    def call(self, name, *args):
        if getattr(self.lib, "sinter_" + name)(*args):
            raise RuntimeError(f"{name}: {self.lib.sinter_last_error_message().decode()}")

    def parse(self, what, name):
        value = c_int()
        if not getattr(self.lib, f"sinter_{what}_parse")(name.encode(), byref(value)):
            raise ValueError(f"{what} {name}")
        return value

    def logical(self, tensor):
        n = len(tensor["shape"])
        return LogicalTensor(tensor["id"], n, (c_int64 * MAX_NDIMS)(*tensor["shape"]),
                             self.parse("data_type",
                                        tensor["dtype"]).value, PROPERTIES[tensor["property_type"]],
                             STRIDED, (c_int64 * MAX_NDIMS)(*tensor["stride"]))

    def set_attr(self, op, name, value):
        attr = self.parse("op_attr", name)
        if isinstance(value, bool):
            self.call("op_set_attr_bool", op, attr, int(value))
        elif isinstance(value, str):
            self.call("op_set_attr_str", op, attr, value.encode())
        elif isinstance(value, float):
            self.call("op_set_attr_f32", op, attr, byref(c_float(value)), c_size_t(1))
        elif isinstance(value, list) and value and isinstance(value[0], float):
            self.call("op_set_attr_f32", op, attr, (c_float * len(value))(*value),
                      c_size_t(len(value)))
        else:
            values = value if isinstance(value, list) else [value]
            self.call("op_set_attr_s64", op, attr, (c_int64 * len(values))(*values),
                      c_size_t(len(values)))

    def add_op(self, graph, index, kind, attrs, inputs, outputs):
        op = c_void_p()
        self.call("op_create", byref(op), None, c_uint64(index), self.parse("op_kind", kind), None)
        for name, value in attrs.items():
            self.set_attr(op, name, value)
        for what, tensors in (("input", inputs), ("output", outputs)):
            for tensor in tensors:
                self.call("op_add_" + what, op, byref(self.logical(tensor)))
        self.call("graph_add_op", graph, op)
        self.call("op_destroy", byref(op))


class Compiled:
    """A graph that is one partition, but for Ends, over arrays by tensor id. run() executes it."""

    def __init__(self, library, graph, arrays, mode="strict", threads=2):
        self.library, self.arrays = library, arrays
        handle, self.compiled, self.stream = c_void_p(), c_void_p(), c_void_p()
        library.call("graph_create", byref(handle), None, 1)
        for i, op in enumerate(graph.ops):
            library.add_op(handle, i, *op)
        library.call("graph_finalize", handle)
        library.call("graph_filter", handle, FUSION)
        partition = self.only_partition(handle)
        library.call("partition_set_fpmath_mode", partition, library.parse("fpmath_mode", mode), 1)
        inputs, outputs = self.ports(partition, "input"), self.ports(partition, "output")
        library.call("partition_compile", partition, None, c_size_t(len(inputs)), inputs,
                     c_size_t(len(outputs)), outputs, byref(self.compiled))
        library.call("stream_create", byref(self.stream), None,
                     byref(StreamDesc(ctypes.sizeof(StreamDesc), threads)))
        self.inputs, self.outputs = self.tensors(inputs), self.tensors(outputs)
        library.call("partition_destroy", byref(partition))
        library.call("graph_destroy", byref(handle))

    def only_partition(self, graph):
        """The one that is not an End, which marks an output that ops of the graph read too."""
        count, outputs, found = c_size_t(), c_size_t(), []
        self.library.call("graph_get_partition_num", graph, byref(count))
        partitions = (c_void_p * count.value)()
        self.library.call("graph_get_partitions", graph, count, partitions)
        for partition in map(c_void_p, partitions):
            self.library.call("partition_get_output_num", partition, byref(outputs))
            if outputs.value > 0:
                found.append(partition)
            else:
                self.library.call("partition_destroy", byref(partition))
        if len(found) != 1:
            raise RuntimeError(f"{len(found)} partitions")
        return found[0]

    def ports(self, partition, what):
        count = c_size_t()
        self.library.call(f"partition_get_{what}_num", partition, byref(count))
        ports = (LogicalTensor * count.value)()
        self.library.call(f"partition_get_{what}s", partition, count, ports)
        return ports

    def tensors(self, ports):
        tensors = (c_void_p * len(ports))()
        for i, lt in enumerate(ports):
            self.library.call(
                "tensor_create",
                ctypes.cast(ctypes.byref(tensors, i * ctypes.sizeof(c_void_p)), POINTER(c_void_p)),
                None, byref(lt), c_void_p(self.arrays[lt.id].ctypes.data), TRUSTED)
        return tensors

    def report(self):
        text = c_char_p()
        self.library.call("compiled_partition_report", self.compiled, byref(text))
        return text.value.decode()

    def run(self):
        self.library.call("compiled_partition_execute", self.compiled, self.stream,
                          c_size_t(len(self.inputs)), self.inputs, c_size_t(len(self.outputs)),
                          self.outputs, None, c_size_t(0))
