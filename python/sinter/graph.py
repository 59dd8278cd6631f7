"""Building graphs."""
import json
import math
import os
import tempfile
from collections.abc import Mapping, Sequence
from ctypes import byref, c_float, c_int64, c_size_t, c_uint64, c_void_p
from dataclasses import replace
from typing import Any, Optional, Union

from . import _abi
from ._abi import LogicalTensor
from ._library import (MOST_U64, Handle, call, fail, flag, instance, integer, items, lib, names,
                       parse, shown, text, word, wrong)
from .arrays import AnyArray, Array, array_of, dense
from .compiled_graph import CompiledGraph
from .partition import Partition
from .runtime import Engine, engine_of, fpmath
from .schema import attr_kinds, op_schema
from .tensors import Tensor, TensorKey, from_logical, tensor_id, tensor_of, to_logical

Shape = Sequence[Optional[int]]


class Graph(Handle):
    """Ops over tensors. For one thread at a time.

        graph = sinter.Graph()
        x = graph.input("f32", [None, 64])
        w = graph.constant(weights)                    # an array of [32, 64]
        y = graph.op("MatMul", [x, w], transpose_b=True)
        (result,) = graph.compile()({x: activation})

    Arrays for its tensors may be of any NumPy or ml_dtypes type that data_type_of knows, with any
    strides that are not negative and whole elements. Types narrower than a byte are bytes: a view
    (sinter.view, sinter.pack), or, where all dims are known, an array of uint8 with enough of them.

    fpmath        how far products of floats may depart from f32: "strict", "bf16", "f16", "int8"
                  and others (sinter.fpmath_modes)
    apply_to_int  whether that also holds for products of integers with floats
    engine        for the graph and what is compiled from it; None: the default engine
    """

    def __init__(self, *, fpmath: str = "strict", apply_to_int: bool = False,
                 engine: Optional[Engine] = None) -> None:
        pointer = c_void_p()
        call("graph_create_with_fpmath_mode", byref(pointer), engine_of(engine),
             _abi.ENGINE_KIND_CPU, *_mode(fpmath, apply_to_int))
        super().__init__("graph", pointer)
        self._engine = engine
        self._next_tensor = self._next_op = 0
        self._constants: dict[int, Array] = {}

    # ---- building --------------------------------------------------------------------------------

    def tensor(self, dtype: str, shape: Optional[Shape] = None, *,
               strides: Optional[Sequence[Optional[int]]] = None, property: str = "variable",
               id: Optional[int] = None, any_layout: bool = False) -> Tensor:
        """A tensor of this graph, for the inputs and outputs of ops.

        dtype     name of its data type, such as "f32", "bf16", "s4" (sinter.data_types)
        shape     dims in elements. None for a dim that each execute tells; None as a whole for
                  what follows from other tensors.
        strides   in elements; without them dense row-major where all dims are known, else whatever
                  the arrays have
        property  "variable"; "constant": the data does not change between executes; "host_scalar":
                  one element
        id        its number; None: the next one that is free
        any_layout  compile chooses the layout: what is compiled tells it (query), and sinter.packed
                    copies an array to it
        """
        number = integer("a tensor's id", self._next_tensor if id is None else id, 0, MOST_U64)
        lists = [None if values is None else tuple(
            None if value is None else integer(f"tensor {number}: {what} {i}", value)
            for i, value in enumerate(items(f"tensor {number}: a list of {what}s", values)))
            for what, values in (("dim", shape), ("stride", strides))]
        dims, steps = lists
        if flag("any_layout", any_layout):
            if steps is not None:
                raise wrong(f"tensor {number} has strides and any layout")
        elif steps is None and dims is not None and None not in dims:
            steps = dense(dims)  # type: ignore[arg-type]
        made = Tensor(number, dtype, dims, steps, property)
        to_logical(made)
        self._next_tensor = max(self._next_tensor, number + 1)
        return made

    def input(self, dtype: str, shape: Shape, *,
              strides: Optional[Sequence[Optional[int]]] = None) -> Tensor:
        """A tensor that each execute is given: tensor with the property "variable"."""
        return self.tensor(dtype, shape, strides=strides)

    def scalar(self, dtype: str) -> Tensor:
        """A tensor of one element that each execute is given, as an array or as a number."""
        return self.tensor(dtype, [1], property="host_scalar")

    def constant(self, array: AnyArray, *, any_layout: bool = False) -> Tensor:
        """A tensor with the data type, dims and strides of an array or a view, whose data does not
        change between executes, so that the library may keep it in another layout. What is
        compiled from the graph keeps the array and binds it by itself.

        any_layout  compile chooses the layout of weights: what is compiled has a packed copy then,
                    and the library makes none. Without one the array must be dense.
        """
        array = array_of("a constant is", array)
        made = tensor_of(array, self._next_tensor, "constant")
        if flag("any_layout", any_layout) and made.layout_id is None:
            made = replace(made, strides=None)
        self._next_tensor += 1
        self._constants[made.id] = array
        return made

    def op(self, kind: str, inputs: Sequence[Tensor], dtype: Union[str, Sequence[str], None] = None,
           *, outputs: Optional[Sequence[Tensor]] = None, name: Optional[str] = None,
           **attrs: object) -> Any:
        """Appends an op and returns its output, or a tuple where it has none or several.

        kind     such as "MatMul" (sinter.op_kinds); sinter.op_schema tells ports and attributes
        inputs   in the order that docs/ops.md names
        dtype    data type of the output, or one for each output. Without it: the type of the first
                 input, or the only one that the output takes.
        outputs  tensors of this graph to write to, where their strides or ids matter; dtype is
                 not used then
        name     for messages and JSON
        attrs    attributes by name: numbers, lists of numbers, bools and strings

        A SinterError, which names op and rule, if the op breaks its schema; the graph is then as it
        was before.
        """
        number = self._next_op
        reads = _tensors_of(number, kind, "input", inputs)
        if outputs is None:
            writes = [self.tensor(one) for one in _output_types(kind, reads, dtype)]
        else:
            writes = _tensors_of(number, kind, "output", outputs)
        self._add(number, kind, reads, writes, name, attrs)
        return writes[0] if len(writes) == 1 else tuple(writes)

    def _add(self, number: int, kind: str, inputs: Sequence[Tensor], outputs: Sequence[Tensor],
             name: Optional[str], attrs: Mapping[str, object]) -> None:
        pointer = c_void_p()
        number = integer("an op's id", number, 0, MOST_U64)
        call("op_create", byref(pointer), self._engine, number, parse("op_kind", kind),
             None if name is None else text(f"op {number}: the name", name))
        op = Handle("op", pointer)
        kinds = attr_kinds(kind)
        for attr, value in attrs.items():
            if value is not None:
                _set_attr(op, attr, kinds.get(attr), value)
        for what, tensors in (("input", inputs), ("output", outputs)):
            for tensor in tensors:
                call(f"op_add_{what}", op, byref(to_logical(tensor)))
        call("graph_add_op", self, op)
        self._next_op = max(self._next_op, number + 1)

    def set_outputs(self, *outputs: TensorKey) -> None:
        """Says which tensors are outputs of the graph. Without it: those that no op reads. Ops on
        which none of these depends are left out."""
        ids = [tensor_id(key) for key in outputs]
        call("graph_set_ports", self, 0, None, len(ids), (c_uint64 * len(ids))(*ids))

    # ---- JSON ------------------------------------------------------------------------------------

    @classmethod
    def from_json(cls, source: Union[str, "os.PathLike[str]", Mapping[str, Any]], *,
                  fpmath: Optional[str] = None, apply_to_int: Optional[bool] = None,
                  engine: Optional[Engine] = None) -> "Graph":
        """A graph of the JSON that graph_runner, sinter_graph_dump and oneDNN Graph write.

        source                the text, a path (os.PathLike), or the loaded dict
        fpmath, apply_to_int  instead of what the JSON says

        Ports that no op has are ignored. A SinterError if the file cannot be read, if a key is
        missing, or for what add_op refuses.
        """
        try:
            if isinstance(source, os.PathLike):
                with open(source, encoding="utf-8") as file:
                    source = file.read()
            loaded: Mapping[str, Any] = json.loads(source) if isinstance(source, str) else source
            to_int = str(loaded.get("fpmath_mode_apply_to_int", "false")).lower() == "true"
            mode = loaded.get("fpmath_mode", "strict") if fpmath is None else fpmath
            graph = cls(fpmath=mode, engine=engine,
                        apply_to_int=to_int if apply_to_int is None else apply_to_int)
            ports: dict[str, set[int]] = {"inputs": set(), "outputs": set()}
            for op in loaded["graph"]:
                sides = {side: [graph._from_json(t) for t in op.get(side, [])] for side in ports}
                for side, tensors in sides.items():
                    ports[side].update(tensor.id for tensor in tensors)
                attrs = {key: _of_json(attr["value"], attr.get("type"))
                         for key, attr in op.get("attrs", {}).items()}
                graph._add(op["id"], op["kind"], sides["inputs"], sides["outputs"],
                           op.get("name"), attrs)
            graph.set_outputs(*(number for number in loaded.get("output_ports", ())
                                if number in ports["outputs"]))
        except (json.JSONDecodeError, UnicodeDecodeError, RecursionError) as error:
            raise wrong(f"JSON: {error}") from None
        except OSError as error:
            raise fail(_abi.STATUS_RUNTIME_ERROR, f"JSON: {error}") from None
        except (KeyError, TypeError, AttributeError, ValueError) as error:
            raise wrong(f"JSON: no graph of the format: {error!r}") from None
        return graph

    def _from_json(self, row: Mapping[str, Any]) -> Tensor:
        def known(values: Any) -> list[Optional[int]]:
            return [None if n == _abi.UNKNOWN_DIM else n for n in values]

        shape, strides = row.get("shape"), row.get("stride")
        if shape is not None:
            shape = None if shape == [_abi.UNKNOWN_DIM] else known(shape)
        if row.get("layout_type") == "opaque":
            made = self.tensor(row["dtype"], shape, id=row["id"],
                               property=row.get("property_type", "variable"))
            made = replace(made, strides=None, layout_id=row.get("layout_id", 0))
            to_logical(made)
            return made
        any_layout = row.get("layout_type") == "any"
        if shape is None or not strides or None in known(strides) or any_layout:
            strides = None
        return self.tensor(row["dtype"], shape, strides=strides, id=row["id"],
                           property=row.get("property_type", "variable"), any_layout=any_layout)

    def to_json(self) -> str:
        """The finalized graph, with all that was inferred, as JSON that graph_runner loads."""
        self.finalize()
        with tempfile.TemporaryDirectory() as folder:
            path = os.path.join(folder, "graph.json")
            call("graph_dump", self, os.fsencode(path))
            with open(path, encoding="utf-8") as file:
                return file.read()

    # ---- what becomes of it ----------------------------------------------------------------------

    def finalize(self) -> None:
        """Ends building: checks the graph as a whole and infers shapes. partitions, compile, query
        and to_json call it by themselves; ops cannot be added after it. A SinterError
        (invalid_graph, invalid_shape) names what does not fit."""
        call("graph_finalize", self)

    def query(self, tensor: TensorKey) -> Tensor:
        """A tensor with everything that was inferred."""
        self.finalize()
        lt = LogicalTensor()
        call("graph_query_logical_tensor", self, tensor_id(tensor), byref(lt))
        return from_logical(lt)

    def partitions(self, policy: str = "fusion") -> list[Partition]:
        """Divides the graph anew and returns its partitions in the order of execution. policy:
        "fusion", or "debug" for each op by itself."""
        self.finalize()
        count = c_size_t()
        call("graph_filter", self, word("policy", _abi.POLICIES, policy))
        call("graph_get_partition_num", self, byref(count))
        pointers = (c_void_p * count.value)()
        call("graph_get_partitions", self, count.value, pointers)
        return [Partition(c_void_p(pointer), self._constants, self._engine)
                for pointer in pointers]

    def compile(self, partitions: Optional[Sequence[Partition]] = None) -> CompiledGraph:
        """Compiles the graph as a whole; all code generation happens here.

        partitions  those of one call of partitions, in any order, each with its own fpmath mode;
                    None: those of the last call, or by fusion if there was none

        A SinterError (unimplemented) lists all ops that the library does not run.
        """
        self.finalize()
        compiled = c_void_p()
        chosen = [instance("what is compiled", p, Partition) for p in
                  ([] if partitions is None else items("what is compiled", partitions))]
        pointers = (c_void_p * len(chosen))(*(p._as_parameter_.value for p in chosen))
        call("graph_compile", self, self._engine, len(chosen), pointers if chosen else None,
             byref(compiled))
        return CompiledGraph(compiled, self._constants, self._engine)

    def explain(self) -> str:
        """How the graph is divided by fusion: for each partition its number, and the lines of
        Partition.explain. It divides the graph anew."""
        return "".join(f"partition {p.id}\n{p.explain()}" for p in self.partitions())


_mode = fpmath


def _tensors_of(number: int, kind: object, side: str, values: object) -> list[Tensor]:
    """The inputs or the outputs of an op."""
    tensors = items(f"op {number} ({shown(kind)}): the {side}s", values)
    for tensor in tensors:
        if not isinstance(tensor, Tensor):
            raise wrong(f"op {number} ({shown(kind)}): an {side} is a Tensor of the graph, not "
                        f"{type(tensor).__name__}")
    return tensors


def _set_attr(op: Handle, name: str, kind: Optional[str], value: Any) -> None:
    """Sets an attribute of a kind of the schema; without one, the value's type says which."""
    attr = parse("op_attr", name)
    what = f"attribute {name}"
    many = hasattr(value, "__iter__") and not isinstance(value, (str, bytes, type))
    values = list(value) if many and getattr(value, "ndim", 1) > 0 else [value]
    first = values[0] if values else 0
    if kind is None:
        kind = ("bool" if isinstance(first, bool) else "string" if isinstance(first, str) else
                "f32" if isinstance(first, float) else "s64")
    try:
        if kind == "bool":
            call("op_set_attr_bool", op, attr, flag(what, value))
        elif kind == "string":
            call("op_set_attr_str", op, attr, text(what, value))
        elif kind.startswith("f32"):
            floats = (c_float * len(values))(*values)
            if any(math.isinf(to) and not math.isinf(of) for to, of in zip(floats, values)):
                raise OverflowError
            call("op_set_attr_f32", op, attr, floats, len(values))
        else:
            if not all(hasattr(number, "__index__") for number in values):
                raise TypeError
            integers = [integer(what, number) for number in values]
            call("op_set_attr_s64", op, attr, (c_int64 * len(values))(*integers), len(values))
    except (TypeError, ValueError):
        raise wrong(f"{what} is {kind}, not {shown(value)}") from None
    except OverflowError:
        raise wrong(f"{what} is {kind}, beyond whose ends {shown(value)} is") from None


def _of_json(value: Any, kind: Optional[str]) -> Any:
    """The value of an attribute in JSON, which has no infinities."""
    if kind is not None and kind.startswith("f32"):
        return ([_of_json(one, "f32") for one in value] if isinstance(value, list) else
                float(value) if value in ("inf", "-inf", "nan") else value)
    return value


def _output_types(kind: str, inputs: Sequence[Tensor],
                  dtype: Union[str, Sequence[str], None]) -> list[str]:
    """The data types of an op's outputs."""
    if isinstance(dtype, str):
        return [dtype]
    if dtype is not None:
        return items(f"{shown(kind)}: the list of data types", dtype)
    schema, number = op_schema(kind), parse("op_kind", kind)
    if schema.outputs[1] == 0:
        return []
    taken = [name for name in names("data_type")
             if lib().sinter_op_kind_output_takes(number, 0, parse("data_type", name))]
    if schema.outputs[0] == 1 and inputs and inputs[0].dtype in taken:
        return [inputs[0].dtype]
    if schema.outputs[0] == 1 and len(taken) == 1:
        return taken
    raise wrong(f"{kind} needs a dtype for its output, one of {', '.join(taken)}")
