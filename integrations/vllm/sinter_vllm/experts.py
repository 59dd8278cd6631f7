"""Experts with MXFP4 weights on Sinter: torch in, torch out. vLLM is not needed here."""
import functools
from dataclasses import dataclass, replace

import numpy as np
import sinter
import torch

from .calls import TYPES, Whole
from .linear import _view


@dataclass(frozen=True)
class Mixture:
    """What layers have in common that share a compiled partition.

    experts, k, mid  number of experts, elements of a row, elements between the two products
    rows             type of rows, results and biases
    bias             whether both products have a bias for each expert
    alpha, limit     the activation of gpt-oss: gate and up are each other row of the first weight,
                     gate is at most limit, up at most limit either way;
                     (up + 1) * gate * sigmoid(alpha * gate)
    fpmath           how far products may depart from f32
    """
    experts: int
    k: int
    mid: int
    rows: str
    bias: bool
    alpha: float
    limit: float
    fpmath: str


class MixtureGraph:
    """The mixture, compiled once for any number of tokens and of experts for each of them."""

    def __init__(self, kind):
        graph = sinter.Graph(fpmath=kind.fpmath, apply_to_int=kind.fpmath != "strict")
        x = graph.input(kind.rows, [None, 1, 1, kind.k])
        chosen = graph.input("s32", [None, None])
        share = graph.input("f32", [None, None, 1, 1])
        self.tables, biases = [], []

        def product(rows, n, k):
            parts = [replace(graph.input(dtype, [kind.experts, n, count]), strides=None)
                     for dtype, count in (("f4_e2m1", k), ("e8m0", k // 32))]
            self.tables += parts
            taken = [graph.op("Gather", [part, chosen], axis=0) for part in parts]
            weight = graph.op("DynamicDequantize", taken, kind.rows, qtype="per_group",
                              group_shape=[1, 1, 1, 32])
            y = graph.op("MatMul", [rows, weight], "f32", transpose_b=True)
            if kind.bias:
                biases.append(graph.input(kind.rows, [kind.experts, 1, n]))
                y = graph.op("Add", [y, graph.op("Gather", [biases[-1], chosen], axis=0)], "f32")
            return y

        both = product(x, 2 * kind.mid, kind.k)
        gate, up = (graph.op("Slice", [both], axes=[3], starts=[first], ends=[2 * kind.mid],
                             steps=[2]) for first in (0, 1))
        # No float is below the least f32; Clamp wants both ends.
        gate = graph.op("Clamp", [gate], min=-3.4e38, max=kind.limit)
        up = graph.op("Clamp", [up], min=-kind.limit, max=kind.limit)
        one, alpha = (graph.constant(np.array([value], np.float32)) for value in (1, kind.alpha))
        gated = graph.op("Multiply", [gate, graph.op("Sigmoid", [
            graph.op("Multiply", [gate, alpha])])])
        mid = graph.op("Multiply", [graph.op("Add", [up, one]), gated], kind.rows)
        y = graph.op("Multiply", [product(mid, kind.k, kind.mid), share])
        y = graph.op("ReduceSum", [y], kind.rows, axes=[1])
        self.whole, self.biases = Whole(graph), biases
        self.x, self.chosen, self.share, self.y = x, chosen, share, y
        self.tables = [self.whole.compiled.query(table) for table in self.tables]


mixture = functools.lru_cache(maxsize=None)(MixtureGraph)


class Experts:
    """The experts of one layer. Their weights lie as Sinter's kernels read them.

    first   codes [experts, 2 * mid, k / 2] and scales [experts, 2 * mid, k / 32], of torch.uint8
    second  codes [experts, k, mid / 2] and scales [experts, k, mid / 32]
    biases  None, or [experts, 2 * mid] and [experts, k], of the type of the rows
    """

    def __init__(self, first, second, biases, fpmath, rows=torch.bfloat16, alpha=1.702, limit=7.):
        experts, k, half = second[0].shape
        kind = Mixture(experts, k, 2 * half, TYPES[rows], biases is not None, alpha, limit, fpmath)
        self.shared, self._biases = mixture(kind), biases and [bias.unsqueeze(1) for bias in biases]
        self._tables = []
        for table, given in zip(self.shared.tables, (*first, *second)):
            array = _view(given, table.dtype, table.shape)
            self._tables.append(array if table.layout_id is None else sinter.packed(array, table))

    def __call__(self, x, share, chosen):
        """x [tokens, k]; share [tokens, experts of each] of torch.float32, chosen of torch.int32:
        [tokens, k]."""
        shared, whole, y = self.shared, self.shared.whole, torch.empty_like(x)
        if x.shape[0] == 0:
            return y
        for table, array in zip(shared.tables, self._tables):
            whole.bind_array(table, array)
        for port, bias in zip(shared.biases, self._biases or ()):
            whole.bind(port, bias)
        whole.bind(shared.x, x.view(-1, 1, 1, x.shape[1]))
        whole.bind(shared.chosen, chosen)
        whole.bind(shared.share, share.view(*share.shape, 1, 1))
        whole.bind(shared.y, y.view(-1, 1, x.shape[1]))
        whole.execute()
        return y
