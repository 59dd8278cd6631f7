"""The C API as ctypes sees it: constants, structs and prototypes. A test compares all three with
the headers, by way of a compiler. Names of data types, ops, attributes and modes are not here:
the library parses and prints them."""
import ctypes
from ctypes import (POINTER, c_char_p, c_double, c_float, c_int, c_int32, c_int64, c_size_t,
                    c_uint64, c_void_p)
from typing import Any

MAX_NDIMS = 12
UNKNOWN_NDIMS = -1
UNKNOWN_DIM = -2**63
BYTES_TRUSTED = 2**(8 * ctypes.sizeof(c_size_t)) - 1
ENGINE_KIND_CPU = 1
LAYOUTS = {"undef": 0, "any": 1, "strided": 2, "opaque": 3}
PROPERTIES = {"undef": 0, "variable": 1, "constant": 2, "host_scalar": 3}
WEIGHTS_PARTS = {"codes": 0, "values": 1, "codes_iq4_nl": 2, "codes_blocks": 3, "heads_k": 4,
                 "heads_v": 5, "heads_values": 6}
POLICIES = {"fusion": 1, "debug": 2}
STATUS_OUT_OF_MEMORY = 1
STATUS_INVALID_ARGUMENTS = 2
STATUS_RUNTIME_ERROR = 5
STATUS_INVALID_SHAPE = 9
STATUS_INVALID_DATA_TYPE = 10


class LogicalTensor(ctypes.Structure):
    _fields_ = [("id", c_uint64), ("ndims", c_int32), ("dims", c_int64 * MAX_NDIMS),
                ("data_type", c_int), ("property", c_int), ("layout_type", c_int),
                ("strides", c_int64 * MAX_NDIMS)]

    @property
    def layout_id(self) -> int:
        """What lies where the strides are, of layout opaque."""
        first: int = self.strides[0]
        return first & (2**64 - 1)

    @layout_id.setter
    def layout_id(self, value: int) -> None:
        self.strides[0] = value  # ctypes keeps the lower 64 bits


class Allocator(ctypes.Structure):
    _fields_ = [("alloc", c_void_p), ("free", c_void_p), ("user", c_void_p)]


class InplacePair(ctypes.Structure):
    _fields_ = [("input_id", c_uint64), ("output_id", c_uint64)]


class ArenaTensor(ctypes.Structure):
    _fields_ = [("id", c_uint64), ("bytes", c_size_t), ("offset", c_size_t), ("first", c_size_t),
                ("last", c_size_t)]


# Structs with a size may grow in the library. Those below are what this package uses of them.
class EngineDesc(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("allocator", Allocator), ("max_isa", c_int),
                ("deterministic", c_int)]


class StreamDesc(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("threads", c_int), ("all_threads", c_int)]


class ConstantCacheStats(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("budget", c_size_t), ("bytes", c_size_t),
                ("entries", c_size_t), ("packed", c_uint64), ("hits", c_uint64),
                ("refused", c_uint64), ("evicted", c_uint64)]


class OpSchema(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("min_inputs", c_int32), ("max_inputs", c_int32),
                ("min_outputs", c_int32), ("max_outputs", c_int32), ("any_attr", c_int32),
                ("n_attrs", c_size_t)]


class OpAttrRule(ctypes.Structure):
    _fields_ = [("size", c_size_t), ("attr", c_int), ("kind", c_char_p), ("required", c_int32),
                ("has_default", c_int32), ("default_number", c_double),
                ("default_word", c_char_p), ("words", c_char_p), ("has_least", c_int32),
                ("least", c_int64)]


# C name -> mirror; True: the C struct begins with its size and may have more fields.
STRUCTS = {
    "sinter_logical_tensor_t": (LogicalTensor, False),
    "sinter_allocator_t": (Allocator, False),
    "sinter_inplace_pair_t": (InplacePair, False),
    "sinter_arena_tensor_t": (ArenaTensor, False),
    "sinter_engine_desc_t": (EngineDesc, True),
    "sinter_stream_desc_t": (StreamDesc, True),
    "sinter_constant_cache_stats_t": (ConstantCacheStats, True),
    "sinter_op_schema_t": (OpSchema, True),
    "sinter_op_attr_rule_t": (OpAttrRule, True),
}

# C name -> value here
CONSTANTS = {
    "SINTER_MAX_NDIMS": MAX_NDIMS,
    "SINTER_UNKNOWN_NDIMS": UNKNOWN_NDIMS,
    "SINTER_UNKNOWN_DIM": UNKNOWN_DIM,
    "sinter_cpu": ENGINE_KIND_CPU,
    "sinter_out_of_memory": STATUS_OUT_OF_MEMORY,
    "sinter_invalid_arguments": STATUS_INVALID_ARGUMENTS,
    "sinter_runtime_error": STATUS_RUNTIME_ERROR,
    "sinter_invalid_shape": STATUS_INVALID_SHAPE,
    "sinter_invalid_data_type": STATUS_INVALID_DATA_TYPE,
    **{f"sinter_layout_type_{name}": value for name, value in LAYOUTS.items()},
    **{f"sinter_tensor_property_{name}": value for name, value in PROPERTIES.items()},
    **{f"sinter_weights_{name}": value for name, value in WEIGHTS_PARTS.items()},
    **{f"sinter_partition_policy_{name}": value for name, value in POLICIES.items()},
}

# What stands for pointers to objects, to lists of them, and to plain values.
_OBJ, _OUT = c_void_p, POINTER(c_void_p)
_LT, _S64, _SIZE, _INT, _U64 = (POINTER(t) for t in (LogicalTensor, c_int64, c_size_t, c_int,
                                                     c_uint64))
_TEXT = POINTER(c_char_p)

# Name without sinter_ -> arguments, of the functions that return a status.
CALLS: dict[str, list[Any]] = {
    "op_kind_get_schema": [c_int, POINTER(OpSchema)],
    "op_kind_get_attr_rule": [c_int, c_size_t, POINTER(OpAttrRule)],
    "set_verbose": [c_char_p],
    "engine_create": [_OUT, POINTER(EngineDesc)],
    "engine_destroy": [_OUT],
    "engine_set_constant_cache_budget": [_OBJ, c_size_t],
    "engine_get_constant_cache_stats": [_OBJ, POINTER(ConstantCacheStats)],
    "engine_invalidate_constants": [_OBJ, c_void_p, c_size_t],
    "stream_create": [_OUT, _OBJ, POINTER(StreamDesc)],
    "stream_destroy": [_OUT],
    "stream_get_threads": [_OBJ, _INT],
    "logical_tensor_get_bytes": [_LT, _SIZE],
    "logical_tensor_set_weights_layout": [_LT, c_int, c_int, c_int],
    "reorder": [_OBJ, _OBJ],
    "tensor_create": [_OUT, _OBJ, _LT, c_void_p, c_size_t],
    "tensor_destroy": [_OUT],
    "tensor_set_data": [_OBJ, c_void_p, c_size_t],
    "tensor_set_dims": [_OBJ, c_int, _S64, _S64],
    "op_create": [_OUT, _OBJ, c_uint64, c_int, c_char_p],
    "op_destroy": [_OUT],
    "op_add_input": [_OBJ, _LT],
    "op_add_output": [_OBJ, _LT],
    "op_set_attr_f32": [_OBJ, c_int, POINTER(c_float), c_size_t],
    "op_set_attr_s64": [_OBJ, c_int, _S64, c_size_t],
    "op_set_attr_bool": [_OBJ, c_int, c_int],
    "op_set_attr_str": [_OBJ, c_int, c_char_p],
    "graph_create_with_fpmath_mode": [_OUT, _OBJ, c_int, c_int, c_int],
    "graph_destroy": [_OUT],
    "graph_add_op": [_OBJ, _OBJ],
    "graph_set_ports": [_OBJ, c_size_t, _U64, c_size_t, _U64],
    "graph_finalize": [_OBJ],
    "graph_filter": [_OBJ, c_int],
    "graph_get_partition_num": [_OBJ, _SIZE],
    "graph_get_partitions": [_OBJ, c_size_t, _OUT],
    "graph_query_logical_tensor": [_OBJ, c_uint64, _LT],
    "graph_dump": [_OBJ, c_char_p],
    "graph_compile": [_OBJ, _OBJ, c_size_t, _OUT, _OUT],
    "partition_destroy": [_OUT],
    "partition_get_id": [_OBJ, _SIZE],
    "partition_get_op_num": [_OBJ, _SIZE],
    "partition_get_ops": [_OBJ, c_size_t, _U64],
    "partition_get_input_num": [_OBJ, _SIZE],
    "partition_get_output_num": [_OBJ, _SIZE],
    "partition_get_inputs": [_OBJ, c_size_t, _LT],
    "partition_get_outputs": [_OBJ, c_size_t, _LT],
    "partition_is_supported": [_OBJ, _INT],
    "partition_set_fpmath_mode": [_OBJ, c_int, c_int],
    "partition_get_fpmath_mode": [_OBJ, _INT, _INT],
    "partition_explain": [_OBJ, _TEXT],
    "partition_get_pattern": [_OBJ, _TEXT],
    "partition_compile": [_OBJ, _OBJ, c_size_t, _LT, c_size_t, _LT, _OUT],
    "compiled_partition_destroy": [_OUT],
    "compiled_partition_query_logical_tensor": [_OBJ, c_uint64, _LT],
    "compiled_partition_get_inplace_ports": [_OBJ, _SIZE, POINTER(POINTER(InplacePair))],
    "compiled_partition_get_fpmath_mode": [_OBJ, _INT, _INT],
    "compiled_partition_report": [_OBJ, _TEXT],
    "compiled_partition_get_scratchpad_bytes": [_OBJ, _OBJ, c_size_t, _OUT, _SIZE, _SIZE],
    "compiled_partition_execute": [_OBJ, _OBJ, c_size_t, _OUT, c_size_t, _OUT, c_void_p, c_size_t],
    "compiled_partition_infer_outputs": [_OBJ, c_size_t, _OUT, c_size_t, _LT],
    "sequence_create": [_OUT, _OBJ],
    "sequence_destroy": [_OUT],
    "sequence_append": [_OBJ, _OBJ, c_size_t, _OUT, c_size_t, _OUT],
    "sequence_execute": [_OBJ, _OBJ],
    "compiled_graph_destroy": [_OUT],
    "compiled_graph_get_partition_num": [_OBJ, _SIZE],
    "compiled_graph_get_partitions": [_OBJ, c_size_t, _SIZE, _OUT],
    "compiled_graph_get_input_num": [_OBJ, _SIZE],
    "compiled_graph_get_inputs": [_OBJ, c_size_t, _LT],
    "compiled_graph_get_output_num": [_OBJ, _SIZE],
    "compiled_graph_get_outputs": [_OBJ, c_size_t, _LT],
    "compiled_graph_get_inplace_ports": [_OBJ, _SIZE, POINTER(POINTER(InplacePair))],
    "compiled_graph_query_logical_tensor": [_OBJ, c_uint64, _LT],
    "compiled_graph_bind": [_OBJ, c_uint64, c_int, _S64, _S64, c_void_p, c_size_t],
    "compiled_graph_execute": [_OBJ, _OBJ],
    "compiled_graph_get_arena": [_OBJ, _SIZE, _SIZE, POINTER(POINTER(ArenaTensor))],
}

# Name without sinter_ -> (result, arguments), of the others.
QUERIES: dict[str, tuple[Any, list[Any]]] = {
    "version": (c_int, []),
    "last_error_message": (c_char_p, []),
    "status_name": (c_char_p, [c_int]),
    "data_type_name": (c_char_p, [c_int]),
    "op_kind_name": (c_char_p, [c_int]),
    "op_attr_name": (c_char_p, [c_int]),
    "fpmath_mode_name": (c_char_p, [c_int]),
    "cpu_isa_name": (c_char_p, [c_int]),
    "data_type_parse": (c_int, [c_char_p, _INT]),
    "op_kind_parse": (c_int, [c_char_p, _INT]),
    "op_attr_parse": (c_int, [c_char_p, _INT]),
    "fpmath_mode_parse": (c_int, [c_char_p, _INT]),
    "cpu_isa_parse": (c_int, [c_char_p, _INT]),
    "op_kind_is_executed": (c_int, [c_int]),
    "op_kind_output_takes": (c_int, [c_int, c_int, c_int]),
    "op_kind_input_takes": (c_int, [c_int, c_int, c_int]),
    "engine_get_isa": (c_int, [_OBJ]),
    "kernel_list": (c_char_p, []),
}


def declare(library: ctypes.CDLL) -> None:
    """Gives all functions their prototypes. AttributeError: the library lacks one."""
    for name, arguments in CALLS.items():
        function = getattr(library, "sinter_" + name)
        function.restype, function.argtypes = c_int, arguments
    for name, (result, arguments) in QUERIES.items():
        function = getattr(library, "sinter_" + name)
        function.restype, function.argtypes = result, arguments
