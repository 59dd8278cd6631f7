"""Sinter from Python: graphs of inference over compressed tensors, run on arrays of NumPy,
ml_dtypes and torch where they lie.

    graph = sinter.Graph(fpmath="int8", apply_to_int=True)
    ...
    compiled = graph.compile()
    (result,) = compiled({x: activation})

docs/python.md of the project has an example from weights to results, docs/ops.md the ops.

What holds for all of it:

Units      shapes and strides are in elements, sizes in bytes.
Ownership  Arrays are used where they are; what they are bound to keeps them alive. Objects may be
           dropped in any order.
Errors     A SinterError with a status and a message that names op, tensor and rule.
Threads    Executes let other Python threads run. Engines, partitions and compiled partitions may be
           used by many threads at once; streams and compiled graphs make threads wait for one
           another; a graph and an Execution belong to one thread at a time.
Library    The first use loads libsinter.so: see load.
"""
from ._library import SinterError, call as _call, lib as _lib, load, text as _text
from ._dlpack import SupportsDLPack
from .arrays import (AnyArray, Array, Opaque, View, bits, data_type_of, empty, numpy_type, pack,
                     unpack, view)
from .compiled_graph import ArenaTensor, CompiledGraph
from .graph import Graph
from .partition import CompiledPartition, Execution, Partition
from .runtime import (ConstantCacheStats, Engine, Stream, constant_cache, default_stream,
                      invalidate, isa)
from .schema import (Attribute, OpSchema, cpu_isas, data_types, fpmath_modes, op_kinds, op_schema)
from .sequence import Sequence
from .tensors import Tensor, packed, reorder, weights


def version() -> str:
    """The version of the library. Thread-safe."""
    number: int = _lib().sinter_version()
    return f"{number // 10000}.{number // 100 % 100}.{number % 100}"


def kernel_list() -> str:
    """The kernels that the library has, one in each line. Thread-safe."""
    text: bytes = _lib().sinter_kernel_list()
    return text.decode()


def set_verbose(words: str) -> None:
    """Which messages the library prints on stderr, for the whole process: a list of "error",
    "dispatch", "compile", "exec" with commas between them, "all" or "none". Thread-safe."""
    _call("set_verbose", _text("a list of words", words))


__all__ = [
    "AnyArray", "ArenaTensor", "Array", "Attribute", "CompiledGraph", "CompiledPartition",
    "ConstantCacheStats", "Engine", "Execution", "Graph", "OpSchema", "Opaque", "Partition",
    "Sequence", "SinterError", "Stream", "SupportsDLPack", "Tensor", "View", "bits",
    "constant_cache", "cpu_isas", "data_type_of", "data_types", "default_stream", "empty",
    "fpmath_modes", "invalidate", "isa", "kernel_list", "load", "numpy_type", "op_kinds",
    "op_schema", "pack", "packed", "reorder", "set_verbose", "unpack", "version", "view", "weights",
]
