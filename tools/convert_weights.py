#!/usr/bin/env python3
"""Compressed weights of GGUF and safetensors files as tensors of Sinter, and back, bit for bit.

convert_weights.py to-sinter FILE -o FOLDER    codes, scales, zero points or offsets of each weight,
                                               and a graph that multiplies with it
convert_weights.py back FOLDER -o FILE         the file again
convert_weights.py formats                     the formats

Needs NumPy; it is installed into build/tools-venv where it is missing."""
import argparse
import dataclasses
import fnmatch
import hashlib
import json
import os
import struct
import sys
import urllib.parse

import tools_venv

tools_venv.enter("numpy")

import numpy as np

import weight_formats
from graph_json import Graph, row_major, transposed
from number_formats import FormatError, storage
from weight_formats import SAFETENSORS, Stored, Tensor, Weight, require

MANIFEST = "manifest.json"
VERSION = 1
NPY_TYPES = ("f32", "f16", "s32", "s8", "u8")  # .npy has them as graph_runner reads them
ROLES = ("codes", "scales", "zero_points", "offsets")


@dataclasses.dataclass
class Entry:
    """A weight of a file: where its tensors lie, and what reads it."""
    name: str
    format: str
    spans: dict  # name in the file -> (offset, bytes)
    read: object  # () -> Weight
    options: dict = dataclasses.field(default_factory=dict)


# ---- GGUF ----------------------------------------------------------------------------------------

PLAIN_GGUF = {0: "f32", 1: "f16", 30: "bf16", 24: "s8", 26: "s32"}
LEFT_GGUF = (25, 27, 28)  # I16, I64, F64: no weights
GGUF_STRING, GGUF_ARRAY = 8, 9
GGUF_SIZES = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


class Cursor:
    """Reads little-endian numbers; the end of the file is an error."""

    def __init__(self, raw):
        self.raw, self.at = raw, 0

    def take(self, n):
        require(n <= len(self.raw) - self.at, f"ends after {len(self.raw)} bytes in its header")
        self.at += n
        return self.raw[self.at - n:self.at].tobytes()

    def number(self, code):
        return struct.unpack("<" + code, self.take(struct.calcsize(code)))[0]

    def string(self):
        text = self.take(self.number("Q"))
        try:
            return text.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"a name in the header is not UTF-8: {error}") from None

    def skip_value(self, kind, depth=0):
        if kind == GGUF_STRING:
            self.string()
        elif kind == GGUF_ARRAY:
            require(depth < 4, "arrays in the header are nested too deep")
            inner, n = self.number("I"), self.number("Q")
            if inner in GGUF_SIZES:
                self.take(GGUF_SIZES[inner] * n)
            else:
                for _ in range(n):
                    self.skip_value(inner, depth + 1)
        else:
            require(kind in GGUF_SIZES, f"the header has a value of unknown type {kind}")
            self.take(GGUF_SIZES[kind])


def gguf_header(raw):
    """[(name, shape, type, offset from the data)], and where the data starts."""
    at = Cursor(raw)
    require(at.take(4) == b"GGUF", "is no GGUF file")
    version = at.number("I")
    require(version in (2, 3), f"GGUF version {version} is not 2 or 3 of a little-endian machine")
    n_tensors, n_values = at.number("Q"), at.number("Q")
    alignment = 32
    for _ in range(n_values):
        key, kind = at.string(), at.number("I")
        if key == "general.alignment":
            require(kind == 4, "general.alignment is no u32")
            alignment = at.number("I")
        else:
            at.skip_value(kind)
    require(alignment and alignment & (alignment - 1) == 0,
            f"general.alignment {alignment} is no power of two")
    tensors = []
    for _ in range(n_tensors):
        name, n_dims = at.string(), at.number("I")
        require(n_dims <= 8, f"tensor {name} has {n_dims} dims")
        shape = [at.number("Q") for _ in range(n_dims)][::-1]
        tensors.append((name, shape, at.number("I"), at.number("Q")))
    return tensors, -(-at.at // alignment) * alignment


def gguf_entries(raw, only, _):
    """The weights of a GGUF file."""
    tensors, data = gguf_header(raw)
    require(len({name for name, *_ in tensors}) == len(tensors), "has two tensors of one name")
    rows = {row.number: row for row in weight_formats.BLOCKS}
    for name, shape, number, offset in tensors:
        if number in LEFT_GGUF or not fnmatch.fnmatchcase(name, only):
            continue
        row, plain = rows.get(number), PLAIN_GGUF.get(number)
        known = ", ".join(row.name for row in weight_formats.BLOCKS)
        require(row or plain, f"{name}: GGUF type {number} is not {known} or plain")
        elements = product(shape)
        if row:
            require(elements > 0 and shape and shape[-1] % row.elements == 0,
                    f"{name}: shape {shape} has no rows of blocks of {row.elements}")
            size = elements // row.elements * row.block_bytes
        else:
            size = elements * storage(plain).itemsize
        start = data + offset
        require(start + size <= len(raw), f"{name}: {size} bytes at {start} do not fit the file of "
                f"{len(raw)} bytes")
        part = raw[start:start + size]
        read = reader(row.read, part, shape) if row else reader(plain_weight, plain, part, shape)
        yield Entry(name, row.name if row else "plain", {name: (start, size)}, read)


def product(shape):
    n = 1
    for dim in shape:
        n *= dim
    return n


def reader(read, *arguments):
    return lambda: read(*arguments)


def plain_weight(dtype, raw, shape):
    return Weight("plain", Tensor.load(dtype, raw, shape), None)


# ---- safetensors ---------------------------------------------------------------------------------


def safetensors_header(raw):
    """name -> (Stored, offset, bytes), and the metadata. A tensor may have a type that is not
    known; whoever needs the type says so."""
    require(raw[8:9].tobytes() == b"{", "is neither a GGUF nor a safetensors file")
    size = int(raw[:8].view("<u8")[0])
    require(size <= len(raw) - 8, f"its header of {size} bytes does not fit the file of {len(raw)}")
    try:
        header = json.loads(raw[8:8 + size].tobytes())
        metadata = header.pop("__metadata__", {})
        found = {name: (t["dtype"], t["shape"], t["data_offsets"]) for name, t in header.items()}
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(f"its header is not that of safetensors: {error!r}") from None
    tensors = {}
    for name, (dtype, shape, offsets) in found.items():
        require(isinstance(dtype, str), f"{name}: its type is no name: {dtype}")
        require(are_counts(shape) and are_counts(offsets) and len(offsets) == 2 and
                offsets[0] <= offsets[1], f"{name}: shape {shape}, bytes from and to {offsets}")
        start, size_of = 8 + size + offsets[0], offsets[1] - offsets[0]
        if dtype in SAFETENSORS:
            want = product(shape) * np.dtype(SAFETENSORS[dtype][1]).itemsize
            require(size_of == want, f"{name}: {shape} of {dtype} are {want} bytes, not {size_of}")
        require(start + size_of <= len(raw), f"{name}: bytes {offsets[0]} to {offsets[1]} do not "
                f"fit the file of {len(raw)}")
        tensors[name] = (Stored(dtype, shape, raw[start:start + size_of]), start, size_of)
    return tensors, metadata


def are_counts(numbers):
    return isinstance(numbers, list) and all(type(n) is int and n >= 0 for n in numbers)


def torchao_weights(metadata):
    """(name, type, prefix of its tensors) of the weights that torchao's metadata describe."""
    try:
        for name in json.loads(metadata.get("tensor_names", "[]")):
            kind = json.loads(metadata[name])["_type"]
            module, _, last = name.rpartition(".")
            require(isinstance(kind, str), f"{name}: its type is no name: {kind}")
            if kind != "Tensor":
                yield name, kind, f"{module}._{last}_"
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"its metadata are not those of torchao: {error!r}") from None


def named_weights(tensors):
    """(name, type, prefix) of the weights that the names of tensors tell."""
    for name in tensors:
        prefix, _, last = name.rpartition(".")
        if last == "W_q":
            yield prefix, "HQQ", prefix + "."
        if last == "qweight":
            words, scales = (tensors[key][0].shape if key in tensors else []
                             for key in (name, prefix + ".scales"))
            awq = len(words) == 2 and len(scales) == 2 and words[1] * 8 == scales[1]
            yield prefix, "AWQ" if awq else "GPTQ", prefix + "."


def safetensors_entries(raw, only, options):
    """The weights of a safetensors file."""
    tensors, metadata = safetensors_header(raw)
    used = set()
    for name, kind, prefix in [*torchao_weights(metadata), *named_weights(tensors)]:
        if not fnmatch.fnmatchcase(name, only):
            continue
        row = weight_formats.TENSORS.get(kind)
        require(row, f"{name}: type {kind} is not " + ", ".join(weight_formats.TENSORS))
        require(prefix + "act_pre_scale" not in tensors,
                f"{name}: act_pre_scale is not taken; multiply the activation with it")
        missing = [prefix + part for part in row.tensors if prefix + part not in tensors]
        require(not missing, f"{name}: {kind} needs {', '.join(missing)}")
        parts = {part: tensors[prefix + part]
                 for part in (*row.tensors, *row.optional, *row.notes) if prefix + part in tensors}
        chosen = {"prefix": prefix, "type": kind, "gptq_zero": options.gptq_format == "v1"}
        read = reader(row.read, {part: t[0] for part, t in parts.items()}, chosen)
        spans = {prefix + part: t[1:] for part, t in parts.items() if part not in row.notes}
        used.update(prefix + part for part in parts)
        yield Entry(name, kind, spans, read, chosen)
    for name, (stored, start, size) in tensors.items():
        if name in used or not fnmatch.fnmatchcase(name, only):
            continue
        require(stored.dtype in SAFETENSORS, f"{name}: unknown type {stored.dtype}")
        dtype = SAFETENSORS[stored.dtype][0]
        if dtype:
            yield Entry(name, "plain", {name: (start, size)},
                        reader(plain_weight, dtype, stored.raw, stored.shape))


# ---- to Sinter -----------------------------------------------------------------------------------


def save_tensor(folder, stem, tensor):
    """Writes it and says how to find it."""
    shape = tensor.shape
    npy = tensor.dtype in NPY_TYPES and not tensor.transposed
    name = f"{stem}.{'npy' if npy else 'bin'}"
    path = os.path.join(folder, name)
    if npy:
        np.save(path, np.ascontiguousarray(tensor.values))
    else:
        tensor.raw().tofile(path)
    strides = transposed(shape) if tensor.transposed else row_major(shape)
    return {"file": name, "dtype": tensor.dtype, "shape": shape, "stride": strides}


def graph_of(weight, rows):
    """x [rows, K] times the weight, and the names of the tensors behind x in order of their ids."""
    def constant(tensor):
        shape = tensor.shape
        return g.input(tensor.dtype, shape, transposed(shape) if tensor.transposed else None,
                       "constant")

    g = Graph()
    k = (weight.matrix or weight.codes.shape)[-1]
    x, names = g.input("f32", [rows, k]), []
    if weight.order is not None:
        names.append("order")
        x = g.op("Gather", [x, g.input("s32", [k], prop="constant")], "f32", axis=1)
    roles = [role for role in ROLES if getattr(weight, role)]
    attrs = {"qtype": "per_group", "group_shape": weight.sizes()}
    if weight.offsets:
        attrs["zps_kind"] = "offsets"
    # Inputs have ids in the order in which the graph needs them: those of Gather come first.
    inputs = [constant(getattr(weight, role)) for role in roles]
    ids = [t["id"] for t in inputs]
    w = g.op("DynamicDequantize", inputs, "f32", **attrs)
    if weight.matrix:
        w = g.op("StaticReshape", [w], "f32", shape=weight.matrix, special_zero=False)
    g.output(g.op("MatMul", [x, w], "f32", transpose_a=False, transpose_b=True))
    return g, dict(zip([*names, *roles], [1] * len(names) + ids))


def save_weight(folder, entry, weight, rows):
    """Writes the tensors and the graph of a weight; its part of the manifest."""
    stem = urllib.parse.quote(entry.name, safe="")
    stem = stem.replace(".", "%2E", 1) if stem.startswith(".") else stem
    tensors = {role: save_tensor(folder, f"{stem}.{role}", getattr(weight, role))
               for role in ROLES if getattr(weight, role)}
    extras = dict(weight.extras)
    if weight.order is not None:
        extras["order"] = weight.order
    found = {"name": entry.name, "format": weight.format, "options": entry.options,
             "spans": entry.spans, "tensors": tensors, "extras": {}, "matrix": weight.matrix}
    found |= {"group": weight.group} if weight.group else {}
    for name, values in extras.items():
        found["extras"][name] = f"{stem}.{name}.npy"
        np.save(os.path.join(folder, found["extras"][name]), np.ascontiguousarray(values))
    if weight.scales and len(weight.codes.shape) >= 2:
        graph, ids = graph_of(weight, rows)
        graph.write(os.path.join(folder, stem + ".json"))
        files = {role: t["file"] for role, t in tensors.items()} | found["extras"]
        found["graph"] = stem + ".json"
        found["in"] = {str(id): files[role] for role, id in ids.items()}
    return found


def rest_of(raw, spans):
    """The bytes outside of the spans."""
    keep = np.ones(len(raw), bool)
    for start, size in spans:
        require(keep[start:start + size].all(), "two of its tensors share bytes")
        keep[start:start + size] = False
    return raw[keep]


def to_sinter(options):
    raw = np.fromfile(options.file, np.uint8)
    entries = gguf_entries if raw[:4].tobytes() == b"GGUF" else safetensors_entries
    os.makedirs(options.out, exist_ok=True)
    weights, counts = [], {}
    for entry in entries(raw, options.only, options):
        try:
            weight = entry.read()
        except FormatError as error:
            raise FormatError(f"{entry.name}: {error}") from None
        weights.append(save_weight(options.out, entry, weight, options.rows))
        counts[weight.format] = counts.get(weight.format, 0) + 1
    require(weights, "has no weight to convert")
    rest = rest_of(raw, [span for weight in weights for span in weight["spans"].values()])
    rest.tofile(os.path.join(options.out, "rest.bin"))
    manifest = {"version": VERSION, "source": os.path.basename(options.file), "bytes": len(raw),
                "sha256": hashlib.sha256(raw).hexdigest(), "weights": weights}
    with open(os.path.join(options.out, MANIFEST), "w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=1)
    print(f"{len(weights)} tensors:", ", ".join(f"{n} {name}" for name, n in counts.items()))


# ---- and back ------------------------------------------------------------------------------------


def load_tensor(folder, row):
    path = os.path.join(folder, os.path.basename(row["file"]))
    shape, turned = row["shape"], row["stride"] != row_major(row["shape"])
    if not path.endswith(".npy"):
        return Tensor.load(row["dtype"], np.fromfile(path, np.uint8), shape, turned)
    values = load_npy(path)
    require(list(values.shape) == shape and values.dtype == storage(row["dtype"]),
            f"{path}: {values.dtype} {list(values.shape)}, not {row['dtype']} {shape}")
    return Tensor(row["dtype"], values)


def load_npy(path):
    try:
        return np.load(path, allow_pickle=False)
    except (ValueError, EOFError) as error:
        raise FormatError(f"{path}: {error}") from None


def load_weight(folder, row):
    tensors = {role: load_tensor(folder, t) for role, t in row["tensors"].items()}
    extras = {name: load_npy(os.path.join(folder, os.path.basename(file)))
              for name, file in row["extras"].items()}
    return Weight(row["format"], tensors["codes"], tensors.get("scales"),
                  tensors.get("zero_points"), tensors.get("offsets"), extras.pop("order", None),
                  row["matrix"], extras)


def stored_bytes(row, weight):
    """name in the file -> bytes, of the tensors that the weight holds."""
    if weight.format == "plain":
        (name,) = row["spans"]
        return {name: weight.codes.raw()}
    blocks = {b.name: b for b in weight_formats.BLOCKS}
    if weight.format in blocks:
        (name,) = row["spans"]
        return {name: blocks[weight.format].write(weight)}
    options = row["options"]
    require(options["type"] in weight_formats.TENSORS, f"unknown format {weight.format}")
    tensors = weight_formats.TENSORS[options["type"]].write(weight, options)
    return {options["prefix"] + part: np.ascontiguousarray(values).reshape(-1).view(np.uint8)
            for part, values in tensors.items()}


def back(options):
    try:
        with open(os.path.join(options.file, MANIFEST), encoding="utf-8") as file:
            manifest = json.load(file)
        require(manifest["version"] == VERSION, f"{MANIFEST}: version {manifest['version']}")
        raw = assemble(options.file, manifest)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise FormatError(f"{MANIFEST} or a tensor is damaged: {error!r}") from None
    raw.tofile(options.out)
    same = hashlib.sha256(raw).hexdigest() == manifest["sha256"]
    print("the same bits as", manifest["source"] if same else
          manifest["source"] + ", but for tensors that were changed")


def assemble(folder, manifest):
    raw = np.zeros(manifest["bytes"], np.uint8)
    filled = np.zeros(len(raw), bool)
    for row in manifest["weights"]:
        try:
            found = stored_bytes(row, load_weight(folder, row))
        except FormatError as error:
            raise FormatError(f"{row['name']}: {error}") from None
        for name, values in found.items():
            start, size = row["spans"][name]
            require(len(values) == size, f"{name}: {len(values)} bytes instead of {size}")
            raw[start:start + size] = values
            filled[start:start + size] = True
    rest = np.fromfile(os.path.join(folder, "rest.bin"), np.uint8)
    require(len(rest) == np.count_nonzero(~filled), f"rest.bin has {len(rest)} bytes instead of "
            f"{np.count_nonzero(~filled)}")
    raw[~filled] = rest
    return raw


def parse():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    commands = parser.add_subparsers(dest="command", required=True)
    to = commands.add_parser("to-sinter", help="a .gguf or .safetensors file to a folder")
    to.add_argument("file")
    to.add_argument("-o", "--out", required=True, help="the folder")
    to.add_argument("--only", default="*", help="a pattern of names; others stay as they are")
    to.add_argument("--rows", type=int, default=1, help="M of the graphs")
    to.add_argument("--gptq-format", choices=("v1", "v2"), default="v1",
                    help="v1 stores zero points less one")
    to.set_defaults(run=to_sinter)
    from_sinter = commands.add_parser("back", help="the folder to the file again")
    from_sinter.add_argument("file", metavar="folder")
    from_sinter.add_argument("-o", "--out", required=True, help="the file")
    from_sinter.set_defaults(run=back)
    formats = commands.add_parser("formats", help="print the formats, as Markdown")
    formats.set_defaults(run=lambda _: print("\n".join(weight_formats.table())), file="")
    return parser.parse_args()


def main():
    options = parse()
    try:
        options.run(options)
    except FormatError as error:
        print(f"convert_weights: {options.file}: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"convert_weights: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
