"""A small builder of JSON graphs: used by make_models.py and make_patterns.py."""
import json

ATTR_TYPES = {bool: "bool", int: "s64", float: "f32", str: "string"}


def row_major(shape):
    stride, step = [], 1
    for dim in reversed(shape):
        stride.insert(0, step)
        step *= dim
    return stride


def transposed(shape):
    """Strides of a tensor whose last two dims are stored in the other order."""
    stride = row_major([*shape[:-2], shape[-1], shape[-2]])
    return [*stride[:-2], stride[-1], stride[-2]]


def attr(value):
    if isinstance(value, list):
        kind = type(value[0]) if value else int
        return {"type": ATTR_TYPES[kind] + "[]", "value": value}
    return {
        "type": ATTR_TYPES[type(value)],
        "value": int(value) if isinstance(value, bool) else value
    }


def broadcast(shapes):
    n = max(len(s) for s in shapes)
    padded = [[1] * (n - len(s)) + s for s in shapes]
    return [max(dims) for dims in zip(*padded)]


def matmul_shape(a, b, attrs):
    """numpy.matmul, 1-D operands included, after the transposes."""
    a, b = list(a), list(b)
    if attrs.get("transpose_a") and len(a) > 1:
        a[-1], a[-2] = a[-2], a[-1]
    if attrs.get("transpose_b") and len(b) > 1:
        b[-1], b[-2] = b[-2], b[-1]
    return broadcast([a[:-2], b[:-2]]) + a[-2:-1] + (b[-1:] if len(b) > 1 else [])


def output_shape(kind, inputs, attrs):
    shapes = [t["shape"] for t in inputs]
    if kind == "MatMul":
        return matmul_shape(shapes[0], shapes[1], attrs)
    if kind == "StaticReshape":
        return attrs["shape"]
    if kind == "StaticTranspose":
        return [shapes[0][i] for i in attrs["order"]]
    if kind == "Gather":
        axis = attrs.get("axis", 0) % len(shapes[0])
        return shapes[0][:axis] + shapes[1] + shapes[0][axis + 1:]
    if kind == "Slice":
        parts = zip(attrs["axes"], attrs["starts"], attrs["ends"])
        taken = {axis % len(shapes[0]): end - start for axis, start, end in parts}
        return [taken.get(d, n) for d, n in enumerate(shapes[0])]
    if kind == "Concat":
        axis = attrs["axis"] % len(shapes[0])
        return shapes[0][:axis] + [sum(s[axis] for s in shapes)] + shapes[0][axis + 1:]
    if kind.startswith("Reduce"):
        axes = [a % len(shapes[0]) for a in attrs["axes"]]
        kept = [1 if d in axes else n for d, n in enumerate(shapes[0])]
        return kept if attrs.get("keep_dims") else [n for d, n in enumerate(kept) if d not in axes]
    if kind in ("Add", "Subtract", "Multiply", "Divide", "Maximum", "Minimum", "Select",
                "GreaterEqual"):
        return broadcast(shapes)
    return shapes[0]


class Graph:
    def __init__(self, fpmath="strict", apply_to_int=False):
        self.fpmath, self.apply_to_int = fpmath, apply_to_int
        self.ops, self.inputs, self.outputs, self.n_tensors = [], [], [], 0

    def tensor(self, dtype, shape, stride=None, prop="variable", layout_id=None):
        """layout_id: the tensor is in tiles, as docs/layouts.md has them. Its strides mean nothing
        then."""
        self.n_tensors += 1
        stride = row_major(shape) if stride is None else stride
        layout = {"layout_type": "opaque", "layout_id": layout_id} if layout_id else {
            "layout_type": "strided"}
        return {
            "id": self.n_tensors - 1,
            "dtype": dtype,
            "shape": shape,
            "stride": stride
        } | layout | {"property_type": prop}

    def input(self, dtype, shape, stride=None, prop="variable", layout_id=None):
        t = self.tensor(dtype, shape, stride, prop, layout_id)
        self.inputs.append(t["id"])
        return t

    def op(self, kind, inputs, dtype, **attrs):
        """Appends an op with one output and returns that."""
        return self.op_to(kind, inputs, [self.tensor(dtype, output_shape(kind, inputs, attrs))],
                          **attrs)[0]

    def op_to(self, kind, inputs, outputs, **attrs):
        self.ops.append((kind, attrs, inputs, outputs))
        return outputs

    def output(self, *tensors):
        self.outputs += [t["id"] for t in tensors]
        return self

    def text(self):
        out = ["{"]
        out.append('    "version": "3.11.0",')
        out.append('    "engine_kind": "cpu",')
        out.append(f'    "fpmath_mode": "{self.fpmath}",')
        out.append(f'    "fpmath_mode_apply_to_int": "{str(self.apply_to_int).lower()}",')
        out.append(f'    "input_ports": {self.inputs},')
        out.append(f'    "output_ports": {self.outputs},')
        out.append('    "graph": [')
        out.append(",\n".join(op_text(i, *op) for i, op in enumerate(self.ops)))
        out.append("    ]\n}\n")
        return "\n".join(out)

    def write(self, path):
        with open(path, "w", encoding="ascii") as f:
            f.write(self.text())


def op_text(index, kind, attrs, inputs, outputs):
    def rows(items):
        return ",\n".join(" " * 16 + item for item in items)

    fields = [
        f'            "id": {index}', f'            "name": "{kind.lower()}_{index}"',
        f'            "kind": "{kind}"'
    ]
    attr_rows = rows(f"{json.dumps(name)}: {json.dumps(attr(value))}"
                     for name, value in attrs.items())
    fields.append('            "attrs": {' + (f"\n{attr_rows}\n            " if attrs else "") +
                  "}")
    for name, tensors in (("inputs", inputs), ("outputs", outputs)):
        fields.append(
            f'            "{name}": [\n{rows(json.dumps(t) for t in tensors)}\n            ]')
    return "        {\n" + ",\n".join(fields) + "\n        }"
