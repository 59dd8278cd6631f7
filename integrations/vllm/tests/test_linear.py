#!/usr/bin/env python3
"""Linear layers of the plugin beside torch in double precision. Only torch is needed."""
import unittest

import vllm_case

vllm_case.enter("torch")

import sinter
import tiny_models
import torch
from sinter_vllm.linear import Linear, Weights, from_words, zeros_of_words

# Largest difference in parts of the largest result. Rows of 16 bits are rounded as results, too.
BOUNDS = {"strict": {torch.float32: 1e-6, torch.bfloat16: 5e-3, torch.float16: 1e-3},
          "f16": {torch.float32: 1e-3, torch.bfloat16: 6e-3, torch.float16: 2e-3},
          "int8": {torch.float32: 2e-2, torch.bfloat16: 2e-2, torch.float16: 2e-2}}


def integers(n, k, group, bits, zeros, dtype):
    """A layer's weights of random integers in words, as checkpoints have them, and their values."""
    groups = k // group
    codes = torch.randint(0, 2**bits, (n, k))
    scales = (torch.rand(n, groups) * .01 + .001).to(dtype)
    zero = torch.randint(0, 2**bits, (n, groups)) if zeros else torch.full(
        (n, groups), 2**(bits - 1))
    raw, name = from_words(tiny_models.words(codes, bits, 1), bits, zeros)
    points = zeros_of_words(tiny_models.words(zero, bits, 0), bits, n) if zeros else None
    spread = zero.repeat_interleave(group, 1), scales.double().repeat_interleave(group, 1)
    return Weights(raw, scales, points, name), (codes - spread[0]).double() * spread[1]


class LinearTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(3)

    def check(self, layer, exact, dtype, mode, bias=True):
        n, k = exact.shape
        added = torch.randn(n).to(dtype) if bias else None
        for rows in (1, 5, 17, 70):
            # Columns of a larger matrix: rows are further apart than they are long.
            x = torch.randn(rows, k + 8).to(dtype)[:, 8:]
            wanted = x.double() @ exact.t() + (added.double() if bias else 0)
            found = layer(x, added)
            self.assertEqual((found.dtype, found.shape), (dtype, wanted.shape))
            self.assertLess(vllm_case.error_of(found, wanted), BOUNDS[mode][dtype], (rows, mode))

    def test_integers(self):
        for bits, group, zeros in ((4, 32, False), (4, 128, True), (4, 384, False),
                                   (8, 384, False), (8, 64, True)):
            for dtype in (torch.float32, torch.bfloat16, torch.float16):
                for mode in BOUNDS:
                    weights, exact = integers(208, 384, group, bits, zeros, dtype)
                    with self.subTest(bits=bits, group=group, zeros=zeros, dtype=dtype, mode=mode):
                        self.check(Linear(weights, 208, 384, mode), exact, dtype, mode)

    def test_mxfp4(self):
        made = tiny_models.mxfp4("w", torch.randn(96, 256))
        codes, scales = made["w.weight_packed"], made["w.weight_scale"]
        ends = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6], dtype=torch.float64)
        values = torch.cat([ends, -ends])
        both = torch.stack([codes & 15, codes >> 4], -1).view(96, 256).long()
        exact = values[both] * (scales.double() - 127).exp2().repeat_interleave(32, 1)
        for mode in BOUNDS:
            layer = Linear(Weights(codes, scales, None, "f4_e2m1", "e8m0"), 96, 256, mode)
            self.check(layer, exact, torch.bfloat16, mode, bias=False)

    def test_shapes(self):
        """Any number of dims before the last one, and no rows."""
        weights, exact = integers(32, 64, 32, 4, False, torch.float32)
        layer = Linear(weights, 32, 64, "strict")
        x = torch.randn(2, 3, 64)
        self.assertLess(vllm_case.error_of(layer(x), x.double() @ exact.t()), 1e-6)
        self.assertEqual(layer(torch.empty(0, 64)).shape, (0, 32))
        self.assertEqual(layer(torch.empty(4, 0, 64)).shape, (4, 0, 32))

    def test_layers_of_a_shape(self):
        """Two layers that share a compiled partition, in turn, also with another bias."""
        layers = [integers(64, 128, 32, 4, True, torch.float32) for _ in range(2)]
        made = [Linear(weights, 64, 128, "strict") for weights, _ in layers]
        for rows in (3, 1, 3):
            for layer, (_, exact) in zip(made, layers):
                bias, x = torch.randn(64), torch.randn(rows, 128)
                wanted = x.double() @ exact.t() + bias.double()
                self.assertLess(vllm_case.error_of(layer(x, bias), wanted), 1e-6)

    def test_errors(self):
        weights, _ = integers(32, 64, 32, 4, False, torch.float32)
        with self.assertRaises(ValueError):
            Linear(weights, 32, 65, "strict")
        layer = Linear(weights, 32, 64, "strict")
        with self.assertRaises(sinter.SinterError) as caught:
            layer(torch.randn(2, 65))
        self.assertIn("tensor 0", caught.exception.message)
        with self.assertRaises(TypeError):
            layer(torch.randn(2, 64).double())


if __name__ == "__main__":
    unittest.main()
