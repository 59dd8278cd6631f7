#!/usr/bin/env python3
"""Arrays of other packages, which show themselves by DLPack: the same memory, all data types,
strides, what is refused, how long it lives. By way of NumPy, and with torch where it can be
imported (SINTER_PYTHON names an interpreter that has it).

test_dlpack.py, with SINTER_LIBRARY"""
import gc
import unittest
import weakref

import python_case

python_case.enter()

import numpy as np

import sinter

try:
    import torch
except ImportError:
    torch = None


class Foreign:
    """An array of NumPy, or a view, as another package would have it; of DLPack 0 or 1."""

    def __init__(self, array, version=1, device=(1, 0)):
        self.array, self.version, self.device = array, version, device

    def __dlpack_device__(self):
        return self.device

    def __dlpack__(self, **options):
        if self.version == 0 and options:
            raise TypeError("max_version is not known")
        return self.array.__dlpack__(**options)


def double(dtype, x, **options):
    """2 * x, of tensors of any package; the array that comes back."""
    graph = sinter.Graph()
    a, factor = graph.input(dtype, [None, None]), graph.scalar("f32")
    y = graph.tensor(dtype, [None, None], strides=[None, None])
    graph.op("Multiply", [a, factor], outputs=[y])
    return graph.compile()({a: x, factor: 2.0, **({y: options["out"]} if options else {})})[0]


class Numpy(python_case.Case):
    def test_in_and_out(self):
        """Strided parts of larger arrays; an output comes back as it was given."""
        for version in (0, 1):
            base = np.arange(48, dtype=np.float32).reshape(4, 12)
            for x in (base, base[1:3, ::2], base.T, base[:1, 5:6], base[:0]):
                np.testing.assert_array_equal(double("f32", Foreign(x, version)), 2 * x)
                big = np.zeros((x.shape[0], 2 * x.shape[1]), np.float32)
                out = Foreign(big[:, 1::2], version)
                self.assertIs(double("f32", Foreign(x, version), out=out), out)
                np.testing.assert_array_equal(big[:, 1::2], 2 * x)
                self.assertFalse(big[:, ::2].any())

    def test_every_type(self):
        """Each data type of whole bytes comes in by DLPack as sinter.view shows it there."""
        codes = np.arange(64, dtype=np.uint8)
        for name in sinter.data_types():
            width = sinter.bits(name) // 8
            shown = sinter.view(codes, name, (64 // max(width, 1),))
            if sinter.bits(name) < 8:
                with self.assertRaisesRegex(BufferError, f"no type for {name}"):
                    shown.__dlpack__()
                continue
            for version in (0, 1):
                graph = sinter.Graph()
                tensor = graph.constant(Foreign(shown, version))
                self.assertEqual((tensor.dtype, tensor.shape), (name, shown.shape))
                (held,) = graph._constants.values()
                # Without ml_dtypes it is a view where NumPy has no such type.
                memory = held.buffer if isinstance(held, sinter.View) else held
                self.assertEqual(memory.ctypes.data, codes.ctypes.data)
                np.testing.assert_array_equal(memory.view(np.uint8), codes)

    def test_codes_of_4_bits(self):
        """Bytes stand for codes of 4 bits, by their port or by a view."""
        graph = sinter.Graph()
        codes = graph.input("u4", [2, 6])
        graph.op("DynamicDequantize", [codes, graph.constant(np.ones(1, np.float32))], "f32")
        compiled = graph.compile()
        raw = Foreign(np.array([[0x10, 0x32, 0x54], [0x76, 0x98, 0xBA]], np.uint8))
        for given in (raw, sinter.view(raw, "u4", (2, 6))):
            (found,) = compiled({codes: given})
            np.testing.assert_array_equal(found, np.arange(12).reshape(2, 6))

    def test_weights(self):
        codes = np.arange(-32, 32, dtype=np.int8).reshape(4, 16)
        codes = np.tile(codes, (4, 2))
        tiles = sinter.weights(Foreign(codes), "codes")
        self.assertTrue((tiles.buffer == sinter.weights(codes, "codes").buffer).all())
        self.assertTrue((sinter.packed(Foreign(codes), sinter.Tensor(
            0, "s8", codes.shape, layout_id=tiles.layout_id)).buffer == tiles.buffer).all())
        back = np.zeros_like(codes)
        sinter.reorder(tiles, Foreign(back))
        np.testing.assert_array_equal(back, codes)

    def test_refused(self):
        graph = sinter.Graph()
        x = graph.input("f32", [2, 3])
        y = graph.op("ReLU", [x])
        compiled, good = graph.compile(), np.zeros((2, 3), np.float32)
        other = np.zeros((2, 3), np.int16)

        class Broken:
            def __dlpack_device__(self):
                raise ValueError("nowhere")

            def __dlpack__(self):
                return 5

        class NoCapsule(Broken):
            def __dlpack_device__(self):
                return 1, 0

        for wrong, words in ((Foreign(good, device=(2, 0)), "memory of the CPU"),
                             (Foreign(other), "no data type of the library"),
                             (Broken(), "nowhere"), (NoCapsule(), "no capsule"),
                             (Foreign, "not type")):
            with self.fails("invalid_arguments", "input tensor 0", words):
                compiled({x: wrong})
            with self.fails("invalid_arguments", words):
                sinter.invalidate(wrong)
        with self.fails("invalid_shape", "input tensor 0", "negative stride"):
            compiled({x: Foreign(good[:, ::-1])})
        with self.fails("invalid_data_type", "the array f64"):
            compiled({x: Foreign(good.astype(np.float64))})
        fixed = np.zeros((2, 3), np.float32)
        fixed.flags.writeable = False
        if np.lib.NumpyVersion(np.__version__) >= "2.1.0":  # it tells since
            with self.fails("invalid_arguments", "read-only"):
                compiled({x: good, y: Foreign(fixed)})

    def test_lifetime(self):
        """The memory lives while it is bound, and not longer."""
        graph = sinter.Graph()
        x = graph.input("f32", [None])
        graph.op("ReLU", [x])
        compiled = graph.compile()
        for version in (0, 1):
            array = np.full(100, 3, np.float32)
            gone = weakref.ref(array)
            compiled.bind({x: Foreign(array, version)})
            del array
            gc.collect()
            self.assertIsNotNone(gone())
            self.assertEqual(float(compiled()[0].sum()), 300)
            compiled.bind({x: np.zeros(1, np.float32)})
            gc.collect()
            self.assertIsNone(gone())


@unittest.skipUnless(torch, "torch is not here")
class Torch(python_case.Case):
    TYPES = {"f32": "float32", "f16": "float16", "bf16": "bfloat16", "f64": "float64"}

    def test_floats(self):
        for name, dtype in self.TYPES.items():
            base = torch.arange(48, dtype=getattr(torch, dtype)).reshape(4, 12)
            for x in (base, base[1:3, ::2], base.T):
                out = torch.zeros(x.shape, dtype=x.dtype)
                self.assertIs(double(name, x, out=out), out)
                self.assertTrue(torch.equal(out, 2 * x))

    def test_eight_bits(self):
        for name, dtype in (("f8_e4m3", torch.float8_e4m3fn), ("f8_e5m2", torch.float8_e5m2)):
            values = torch.linspace(-4, 4, 64).reshape(8, 8).to(dtype)
            graph = sinter.Graph()
            x = graph.input(name, [None, 8])
            y = graph.op("TypeCast", [x], "bf16")
            out = torch.empty(8, 8, dtype=torch.bfloat16)
            graph.compile()({x: values, y: out})
            self.assertTrue(torch.equal(out, values.to(torch.bfloat16)))

    def test_results(self):
        """What the package makes comes to torch without a copy, through a view where NumPy has no
        such type."""
        x = torch.randn(3, 5).to(torch.bfloat16)
        made = double("bf16", x)
        shown = made if isinstance(made, sinter.View) else sinter.view(made, "bf16")
        found = torch.from_dlpack(shown)
        self.assertTrue(torch.equal(found, 2 * x))
        self.assertEqual(found.data_ptr(), shown.buffer.ctypes.data)
        del made, shown
        gc.collect()
        self.assertTrue(torch.equal(found, 2 * x))

    def test_product(self):
        """int4 weights as bytes of torch, activations and results in bf16."""
        n, k, group = 32, 64, 32
        codes = torch.randint(0, 16, (n, k), dtype=torch.uint8)
        packed = codes[:, ::2] | codes[:, 1::2] << 4
        scales = torch.rand(n, k // group).to(torch.bfloat16)
        graph = sinter.Graph()
        x = graph.input("bf16", [None, k])
        w = graph.op("DynamicDequantize", [
            graph.constant(sinter.view(packed, "u4", (n, k))), graph.constant(scales)], "bf16",
            qtype="per_group", group_shape=[1, group])
        y = graph.op("MatMul", [x, w], transpose_b=True)
        rows, out = torch.randn(3, k).to(torch.bfloat16), torch.empty(3, n, dtype=torch.bfloat16)
        graph.compile()({x: rows, y: out})
        exact = rows.double() @ (codes.double() * scales.double().repeat_interleave(group, 1)).T
        self.near(out.double().numpy(), exact.numpy(), 2.0**-8 * exact.abs().max().item())

    def test_refused(self):
        graph = sinter.Graph()
        x = graph.input("f32", [2])
        graph.op("ReLU", [x])
        compiled = graph.compile()
        for wrong, words in ((torch.zeros(2, requires_grad=True), "detach"),
                             (torch.zeros(2, device="meta"), "meta"),
                             (torch.zeros(2, dtype=torch.complex64), "no data type")):
            with self.fails("invalid_arguments", "input tensor 0", words):
                compiled({x: wrong})


if __name__ == "__main__":
    unittest.main()
