#!/usr/bin/env python3
"""Checks models/: valid JSON with exactly the keys of the format in their order, known attribute
types, one dtype and shape for each tensor id; graphs and the lists that name them are what their
generators write."""
import glob
import json
import os
import sys

import make_models
import make_patterns

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
MODELS = os.path.join(ROOT, "models")
TOP_KEYS = [
    "version", "engine_kind", "fpmath_mode", "fpmath_mode_apply_to_int", "input_ports",
    "output_ports", "graph"
]
OP_KEYS = ["id", "name", "kind", "attrs", "inputs", "outputs"]
TENSOR_KEYS = ["id", "dtype", "shape", "stride", "layout_type", "property_type"]
TILES_KEYS = [*TENSOR_KEYS[:-1], "layout_id", TENSOR_KEYS[-1]]
ATTR_TYPES = {"bool", "s64", "s64[]", "f32", "f32[]", "string"}


def check_graph(graph):
    if list(graph) != TOP_KEYS:
        yield f"top-level keys are {list(graph)}"
        return
    tensors, produced = {}, set()
    for op in graph["graph"]:
        if list(op) != OP_KEYS:
            yield f"keys of an op are {list(op)}"
            return
        for name, attr in op["attrs"].items():
            if list(attr) != ["type", "value"] or attr["type"] not in ATTR_TYPES:
                yield f"op {op['id']}: attribute {name} is {attr}"
        for tensor in op["inputs"] + op["outputs"]:
            keys = TILES_KEYS if tensor.get("layout_type") == "opaque" else TENSOR_KEYS
            if list(tensor) != keys or len(tensor["shape"]) != len(tensor["stride"]):
                yield f"op {op['id']}: tensor {tensor}"
            elif tensors.setdefault(tensor["id"], tensor) != tensor:
                yield f"op {op['id']}: tensor {tensor['id']} is described in two ways"
        produced |= {tensor["id"] for tensor in op["outputs"]}
    if set(graph["input_ports"]) != set(tensors) - produced:
        yield (f"input_ports are {graph['input_ports']}, tensors without a producer "
               f"{sorted(set(tensors) - produced)}")
    if not set(graph["output_ports"]) <= produced or not graph["output_ports"]:
        yield f"output_ports {graph['output_ports']} are not all produced"


def check_file(path, expected):
    with open(path, encoding="utf-8") as f:
        text = f.read()
    if text != expected:
        yield "differs from what its generator writes" if expected else "has no generator"
    try:
        yield from check_graph(json.loads(text))
    except json.JSONDecodeError as error:
        yield str(error)


def main():
    expected = {name + ".json": graph.text() for name, graph in make_models.models().items()}
    expected |= {
        os.path.join("patterns", name + ".json"): graph.text()
        for name, graph in make_patterns.graphs().items()
    }
    paths = [
        os.path.relpath(path, MODELS)
        for path in glob.glob(os.path.join(MODELS, "**", "*.json"), recursive=True)
    ]
    errors = [f"models/{path}: not there" for path in expected if path not in paths]
    for name, text in (make_models.lists() | make_patterns.lists()).items():
        with open(os.path.join(ROOT, "tests", "lists", name), encoding="utf-8") as f:
            if f.read() != text:
                errors.append(f"tests/lists/{name}: differs from what its generator writes")
    for path in sorted(paths):
        errors += [
            f"models/{path}: {error}"
            for error in check_file(os.path.join(MODELS, path), expected.get(path))
        ]
    print("\n".join(errors + [f"{len(paths)} graphs, {len(errors)} violations"]))
    return 1 if errors or not paths else 0


if __name__ == "__main__":
    sys.exit(main())
