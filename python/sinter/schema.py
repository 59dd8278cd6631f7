"""What ops may look like."""
import ctypes
import functools
from ctypes import byref
from dataclasses import dataclass
from typing import Optional, Union

from . import _abi
from ._library import call, lib, name_of, names, parse


@dataclass(frozen=True)
class Attribute:
    """An attribute of an op kind.

    kind      "f32", "f32[]", "s64", "s64[]", "s64 or s64[]", "bool" or "string"
    required  whether an op without it is refused
    default   what a missing attribute means; None: there is no default
    words     values that a string may have; (): any
    least     no value may be below it; None: no such bound
    """
    name: str
    kind: str
    required: bool
    default: Union[None, bool, float, str]
    words: tuple[str, ...]
    least: Optional[int]


@dataclass(frozen=True)
class OpSchema:
    """An op kind: the least and the largest number of inputs and of outputs, its attributes, and
    whether the library runs it (else it checks it only)."""
    kind: str
    inputs: tuple[int, int]
    outputs: tuple[int, int]
    attributes: tuple[Attribute, ...]
    executed: bool


def _attribute(kind: int, index: int) -> Attribute:
    rule = _abi.OpAttrRule(ctypes.sizeof(_abi.OpAttrRule))
    call("op_kind_get_attr_rule", kind, index, byref(rule))
    spelling = rule.kind.decode()
    default: Union[None, bool, float, str] = None
    if rule.has_default:
        default = rule.default_word.decode() if rule.default_word else (
            bool(rule.default_number) if spelling == "bool" else rule.default_number)
    return Attribute(name_of("op_attr", rule.attr), spelling, bool(rule.required), default,
                     tuple(rule.words.decode().split("|")) if rule.words else (),
                     rule.least if rule.has_least else None)


def op_schema(kind: str) -> OpSchema:
    """Ports and attributes of an op kind, such as "MatMul". docs/ops.md has the formulas.
    Thread-safe."""
    parse("op_kind", kind)
    return _op_schema(kind)


@functools.lru_cache(maxsize=None)
def _op_schema(kind: str) -> OpSchema:
    number = parse("op_kind", kind)
    schema = _abi.OpSchema(ctypes.sizeof(_abi.OpSchema))
    call("op_kind_get_schema", number, byref(schema))
    return OpSchema(kind, (schema.min_inputs, schema.max_inputs),
                    (schema.min_outputs, schema.max_outputs),
                    tuple(_attribute(number, i) for i in range(schema.n_attrs)),
                    bool(lib().sinter_op_kind_is_executed(number)))


@functools.lru_cache(maxsize=None)
def attr_kinds(kind: str) -> dict[str, str]:
    return {attr.name: attr.kind for attr in op_schema(kind).attributes}


def op_kinds() -> tuple[str, ...]:
    """The names of all op kinds."""
    return names("op_kind")


def data_types() -> tuple[str, ...]:
    """The names of all data types."""
    return names("data_type")


def fpmath_modes() -> tuple[str, ...]:
    """The names of all fpmath modes."""
    return names("fpmath_mode")


def cpu_isas() -> tuple[str, ...]:
    """The names of all instruction sets that an engine may be capped at."""
    return names("cpu_isa")
