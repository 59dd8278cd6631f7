#!/usr/bin/env python3
"""Experts of the plugin beside torch in double precision. Only torch is needed."""
import unittest

import vllm_case

vllm_case.enter("torch")

import tiny_models
import torch
from sinter_vllm.experts import Experts

EXPERTS, HIDDEN, MID = 8, 128, 96
BOUNDS = {"strict": 6e-3, "f16": 6e-3, "int8": 3e-2}  # in parts of the largest result, of bf16


def weight(n, k):
    """MXFP4 codes and scales of all experts, and their numbers."""
    made = tiny_models.mxfp4("w", torch.randn(EXPERTS * n, k) / k**.5)
    parts = tuple(made[f"w.{part}"].view(EXPERTS, n, -1)
                  for part in ("weight_packed", "weight_scale"))
    return parts, tiny_models.mxfp4_values(*parts).double()


def exact(x, share, chosen, first, second, biases):
    """The formula, for each expert of each token."""
    result = torch.zeros(x.shape, dtype=torch.float64)
    for row, token in enumerate(x.double()):
        for part, expert in zip(share[row].double(), chosen[row]):
            both = first[expert] @ token
            both += biases[0][expert].double() if biases else 0
            gate, up = both[0::2].clamp(max=7), both[1::2].clamp(-7, 7)
            y = second[expert] @ ((up + 1) * gate * torch.sigmoid(1.702 * gate))
            result[row] += part * (y + (biases[1][expert].double() if biases else 0))
    return result


class ExpertsTest(unittest.TestCase):
    def test_mixtures(self):
        torch.manual_seed(7)
        first, first_values = weight(2 * MID, HIDDEN)
        second, second_values = weight(HIDDEN, MID)
        some = torch.randn(EXPERTS, 2 * MID).bfloat16(), torch.randn(EXPERTS, HIDDEN).bfloat16()
        for mode, bound in BOUNDS.items():
            for biases in (None, some):
                experts = Experts(first, second, biases, mode)
                for tokens, each in ((1, 2), (5, 4), (40, 2), (3, 1)):
                    x = torch.randn(tokens, HIDDEN).bfloat16()
                    share = torch.rand(tokens, each)
                    chosen = torch.stack([torch.randperm(EXPERTS)[:each]
                                          for _ in range(tokens)]).int()
                    wanted = exact(x, share, chosen, first_values, second_values, biases)
                    self.assertLess(vllm_case.error_of(experts(x, share, chosen), wanted), bound,
                                    (mode, tokens, each))
                self.assertEqual(experts(x[:0], share[:0], chosen[:0]).shape, (0, HIDDEN))


if __name__ == "__main__":
    unittest.main()
