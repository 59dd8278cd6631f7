#!/usr/bin/env python3
"""Data types of arrays: what NumPy and ml_dtypes call them, packing, views, strides, and what is
refused. Values come from ml_dtypes or from formulas.

test_arrays.py, with SINTER_LIBRARY"""
import unittest

import python_case

python_case.enter()

import ml_dtypes
import numpy as np

import sinter

FLOATS = {"bf16": ml_dtypes.bfloat16, "f8_e4m3": ml_dtypes.float8_e4m3fn,
          "f8_e5m2": ml_dtypes.float8_e5m2, "f8_e4m3fnuz": ml_dtypes.float8_e4m3fnuz,
          "f8_e5m2fnuz": ml_dtypes.float8_e5m2fnuz}


def cast(array, dtype):
    """TypeCast to another data type, by Sinter."""
    graph = sinter.Graph()
    x = graph.input(sinter.data_type_of(array.dtype), array.shape)
    graph.op("TypeCast", [x], dtype)
    return graph.compile()({x: array})[0]


class Types(python_case.Case):
    def test_every_data_type_has_an_array(self):
        """A data type of whole bytes has a NumPy type of its size, and the names lead back."""
        for name in sinter.data_types():
            dtype = sinter.numpy_type(name)
            if sinter.bits(name) < 8:
                self.assertIsNone(dtype)
                continue
            self.assertIsNotNone(dtype, name)
            self.assertEqual((sinter.data_type_of(dtype), 8 * dtype.itemsize),
                             (name, sinter.bits(name)))

    def test_values_of_ml_dtypes(self):
        """Each code of each float type means what ml_dtypes says."""
        for name, dtype in FLOATS.items():
            size = np.dtype(dtype).itemsize
            codes = np.arange(1 << 8 * size, dtype=f"u{size}").view(dtype)
            self.assertEqual(sinter.data_type_of(dtype), name)
            np.testing.assert_array_equal(cast(codes, "f32"), codes.astype(np.float32))
        back = cast(np.linspace(-300, 300, 999, dtype=np.float32), "bf16")
        self.assertEqual(back.dtype, ml_dtypes.bfloat16)
        np.testing.assert_array_equal(
            back, np.linspace(-300, 300, 999, dtype=np.float32).astype(ml_dtypes.bfloat16))

    def test_unknown_types(self):
        for dtype in (np.int16, np.uint32, np.complex64, "S4", "U1", "M8[s]", "V3",
                      ml_dtypes.float8_e3m4):
            with self.fails("invalid_data_type"):
                sinter.data_type_of(dtype)
        for dtype in (ml_dtypes.int4, ml_dtypes.float4_e2m1fn, ml_dtypes.float6_e2m3fn):
            with self.fails("invalid_data_type", "sinter.pack"):
                sinter.data_type_of(dtype)
        with self.fails("invalid_data_type", "byte order"):
            sinter.data_type_of(">f4")
        with self.fails("invalid_arguments", "did you mean"):
            sinter.bits("bf17")


class Packing(python_case.Case):
    def test_bits(self):
        """Element i lies at bit i * bits, the lowest bits of a byte first."""
        rng = np.random.default_rng(1)
        for name in sinter.data_types():
            width = sinter.bits(name)
            if width > 8:
                continue
            low = -(1 << width - 1) if name == f"s{width}" else 0
            for shape in ((), (1,), (7,), (3, 5), (2, 3, 8)):
                codes = rng.integers(low, low + (1 << width), shape)
                packed = sinter.pack(codes, name)
                number = sum((int(code) & (1 << width) - 1) << i * width
                             for i, code in enumerate(codes.reshape(-1)))
                self.assertEqual(packed.buffer.tobytes(),
                                 number.to_bytes(-(-codes.size * width // 8), "little"))
                self.assertEqual((packed.dtype, packed.shape), (name, shape))
                np.testing.assert_array_equal(sinter.unpack(packed), codes)

    def test_of_ml_dtypes(self):
        for name, dtype in (("s4", ml_dtypes.int4), ("u4", ml_dtypes.uint4),
                            ("f4_e2m1", ml_dtypes.float4_e2m1fn)):
            values = np.array([1, 0, 3, 2, -2 if name != "u4" else 6]).astype(dtype)
            codes = sinter.unpack(sinter.pack(values, name)).astype(np.uint8) & 15
            np.testing.assert_array_equal(codes, values.view(np.uint8) & 15)

    def test_refused(self):
        with self.fails("invalid_arguments", "codes of s4 are -8 to 7, not -9 to 3"):
            sinter.pack([-9, 3], "s4")
        with self.fails("invalid_arguments", "codes of u2 are 0 to 3"):
            sinter.pack([4], "u2")
        with self.fails("invalid_data_type", "codes are integers"):
            sinter.pack([0.5], "f4_e2m1")
        with self.fails("invalid_arguments", "16 bits"):
            sinter.pack([1], "bf16")


class Views(python_case.Case):
    def test_no_copy(self):
        memory = np.arange(48, dtype=np.uint8)
        seen = sinter.view(memory, "u8", (2, 3), (24, 2)).numpy()
        np.testing.assert_array_equal(seen, [[0, 2, 4], [24, 26, 28]])
        self.assertTrue(np.shares_memory(seen, memory))
        self.assertEqual(sinter.view(memory, "f8_e4m3").shape, (48,))
        self.assertEqual(sinter.view(memory, "s4", (96,)).buffer is memory, True)
        with self.fails("invalid_data_type", "sinter.unpack"):
            sinter.view(memory, "s4", (96,)).numpy()

    def test_refused(self):
        memory = np.zeros(12, np.uint8)
        with self.fails("invalid_arguments", "needs 13 bytes, the buffer has 12"):
            sinter.view(memory, "s4", (25,))
        with self.fails("invalid_arguments", "needs a shape"):
            sinter.view(memory, "bf16")
        with self.fails("invalid_arguments", "C-contiguous"):
            sinter.view(memory[::2], "u8")
        with self.fails("invalid_shape", "negative"):
            sinter.view(memory, "u8", (-1,))
        with self.fails("invalid_arguments", "2 dims and 1 strides"):
            sinter.view(memory, "u8", (2, 2), (1,))
        with self.fails("invalid_arguments", "bytes"):
            sinter.view(memory, "u8", (2, 2), (2**62, 1))


class Strides(python_case.Case):
    """y = 2 * x, where x and y are parts of larger arrays."""

    def doubled(self, x, out=None):
        graph = sinter.Graph()
        strides = [step // x.itemsize for step in x.strides]
        a = graph.input("f32", x.shape, strides=strides)
        b = graph.scalar("f32")
        y = graph.tensor("f32", x.shape, strides=None if out is None else
                         [step // out.itemsize for step in out.strides])
        graph.op("Multiply", [a, b], outputs=[y])
        given = {a: x, b: 2.0} | ({} if out is None else {y: out})
        return graph.compile()(given)[0]

    def test_parts(self):
        base = np.arange(120, dtype=np.float32).reshape(4, 5, 6)
        for x in (base, base[1], base[:, 1:3, ::2], base.transpose(2, 0, 1), base[:, :, 3],
                  base[2:3, ::4], base[:0]):
            np.testing.assert_array_equal(self.doubled(x), 2 * x)

    def test_output(self):
        big = np.full((6, 10), -1, np.float32)
        x = np.arange(12, dtype=np.float32).reshape(3, 4)
        made = self.doubled(x, big[::2, 1:9:2])
        self.assertTrue(np.shares_memory(made, big))
        wanted = np.full((6, 10), -1, np.float32)
        wanted[::2, 1:9:2] = 2 * x
        np.testing.assert_array_equal(big, wanted)

    def test_output_that_the_package_makes(self):
        """It has the strides that the graph asks for."""
        graph = sinter.Graph()
        x = graph.input("f32", [3, 4])
        y = graph.tensor("f32", [3, 4], strides=[1, 3])
        graph.op("ReLU", [x], outputs=[y])
        values = np.arange(12, dtype=np.float32).reshape(3, 4) - 5
        (made,) = graph.compile()({x: values})
        self.assertEqual(made.strides, (4, 12))
        np.testing.assert_array_equal(made, np.maximum(values, 0))

    def test_any_strides_where_dims_are_open(self):
        graph = sinter.Graph()
        x = graph.input("f32", [None, None])
        graph.op("ReLU", [x])
        compiled = graph.compile()
        for a in (np.eye(3, 5, dtype=np.float32).T, np.ones((4, 8), np.float32)[:, ::2]):
            np.testing.assert_array_equal(compiled({x: a})[0], a)


class Wrong(python_case.Case):
    def setUp(self):
        graph = sinter.Graph()
        self.x = graph.input("f32", [3, 4])
        self.y = graph.op("ReLU", [self.x])
        self.compiled = graph.compile()
        (partition,) = graph.partitions()
        self.partition = partition.compile()
        self.good = np.zeros((3, 4), np.float32)

    def test_arrays(self):
        good = self.good
        fields = np.zeros((3, 4), [("a", "<f4"), ("b", "u1")])["a"]
        wrong = [
            (good.astype(np.float64), "invalid_data_type", "input tensor 0 is f32, the array f64"),
            (good.astype(">f4"), "invalid_data_type", "byte order"),
            (good.astype(np.int16), "invalid_data_type", "int16"),
            (good[:, ::-1], "invalid_shape", "negative stride"),
            (fields, "invalid_shape", "multiple of its elements"),
            (good[:2], "invalid_arguments", "dim 0 is 2, compiled for 3"),
            (good[None], "invalid_arguments", "3 dims, compiled for 2"),
            (np.zeros((4, 3), np.float32).T, "invalid_arguments", "strides"),
            (sinter.view(np.zeros(96, np.uint8), "bf16", (3, 4)), "invalid_data_type", "bf16"),
            (good.tolist(), "invalid_arguments", "takes an array or a view, not list"),
            (None, "invalid_arguments", "NoneType"),
            (1.0, "invalid_arguments", "dim 0 is 1"),
        ]
        for array, status, message in wrong:
            with self.fails(status, message):
                self.compiled({self.x: array})
            with self.fails(status, message):
                self.partition({self.x: array})
        self.compiled({self.x: good})

    def test_outputs(self):
        fixed = np.zeros((3, 4), np.float32)
        fixed.flags.writeable = False
        shared = np.zeros(14, np.float32)
        overlap = {self.x: shared[:12].reshape(3, 4), self.y: shared[2:].reshape(3, 4)}
        for run in (self.compiled, self.partition):
            with self.fails("invalid_arguments", "read-only"):
                run({self.x: self.good, self.y: fixed})
            with self.fails("invalid_arguments", "overlap"):
                run(overlap)
            with self.fails("invalid_arguments", "tensor 9 is no port"):
                run({self.x: self.good, 9: self.good})

    def test_missing(self):
        with self.fails("invalid_arguments", "tensor 0"):
            self.compiled({})
        with self.fails("invalid_arguments", "no array for input tensor 0"):
            self.partition({})
        graph = sinter.Graph()
        graph.op("ReLU", [graph.input("f32", [None])])
        with self.fails("invalid_arguments", "not bound"):
            graph.compile()({})

    def test_failed_bind_keeps_what_was_bound(self):
        first = np.full((3, 4), 2, np.float32)
        self.compiled.bind({self.x: first})
        with self.fails("invalid_arguments"):
            self.compiled.bind({self.x: first[:1]})
        np.testing.assert_array_equal(self.compiled()[0], first)

    def test_packed(self):
        """Bytes stand for codes of 4 bits where all dims are known, and there must be enough."""
        graph = sinter.Graph()
        codes = graph.input("u4", [2, 6])
        y = graph.op("DynamicDequantize", [codes, graph.constant(np.ones(1, np.float32))], "f32")
        compiled = graph.compile()
        raw = np.array([[0x10, 0x32, 0x54], [0x76, 0x98, 0xBA]], np.uint8)
        np.testing.assert_array_equal(compiled({codes: raw})[0], np.arange(12).reshape(2, 6))
        with self.fails("invalid_arguments", "needs 6 bytes, the buffer has 5"):
            compiled({codes: raw.reshape(-1)[:5]})
        self.assertEqual(compiled.outputs[0].id, y.id)


if __name__ == "__main__":
    unittest.main()
