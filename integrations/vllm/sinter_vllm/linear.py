"""Linear layers of compressed weights on Sinter: torch in, torch out. vLLM is not needed here."""
import functools
from dataclasses import dataclass, replace

import sinter
import torch

from .calls import TYPES, Port, Ports, execute


@dataclass(frozen=True)
class Shape:
    """What layers have in common that share a compiled partition.

    n, k    results, and elements of each row of activations
    group   so many elements of k share a scale, and a zero point
    codes   Sinter's type of the codes: s4, u4, s8, u8, f4_e2m1
    scales  that of the scales: bf16, f16, f32, e8m0
    zeros   that of the zero points; None: there are none
    rows    that of activations and results
    bias    whether results get a bias, which has the type of the rows
    fpmath  how far products may depart from f32: "int8", "f16", "bf16", "strict"
    """
    n: int
    k: int
    group: int
    codes: str
    scales: str
    zeros: "str | None"
    rows: str
    bias: bool
    fpmath: str


class Product:
    """rows * weights^T + bias, compiled once for all layers of a shape and any number of rows."""

    def __init__(self, shape):
        graph = sinter.Graph(fpmath=shape.fpmath, apply_to_int=shape.fpmath != "strict")
        groups = shape.k // shape.group
        x = graph.input(shape.rows, [None, shape.k])
        # Without strides, a layout of the library's choice.
        parts = [replace(graph.input(dtype, dims), strides=None) for dtype, dims in (
            (shape.codes, [shape.n, shape.k]), (shape.scales, [shape.n, groups]),
            (shape.zeros, [shape.n, groups])) if dtype is not None]
        weight = graph.op("DynamicDequantize", parts, shape.rows, qtype="per_group",
                          group_shape=[1, shape.group])
        bias = [graph.input(shape.rows, [shape.n])] if shape.bias else []
        y = graph.op("MatMul", [x, weight, *bias], shape.rows, transpose_b=True)
        (partition,) = graph.partitions()
        self.compiled = partition.compile()
        self.inputs = [self.compiled.query(tensor) for tensor in (x, *parts, *bias)]
        self.parts = [self.compiled.query(part) for part in parts]
        # Rows and results are those of one layer after the other.
        self.x, self.y = (Port(self.compiled, self.compiled.query(port)) for port in (x, y))
        self.outputs = Ports([self.y])


product = functools.lru_cache(maxsize=None)(Product)


@dataclass
class Weights:
    """A weight of dims [n, k], as bytes or as codes of bytes.

    codes   bytes of torch.uint8 in which each row has k codes; codes of 4 bits lie two in a byte,
            the lower half first
    scales  [n, groups]
    zeros   [n, groups] of torch.uint8, or None
    dtype   Sinter's type of the codes
    scale_type  that of the scales, where torch's type does not say it (e8m0 is bytes)
    """
    codes: torch.Tensor
    scales: torch.Tensor
    zeros: "torch.Tensor | None"
    dtype: str
    scale_type: "str | None" = None


def _view(tensor, dtype, shape):
    """A dense tensor as Sinter's elements of any type."""
    raw = tensor.contiguous().view(-1)
    if raw.dtype != torch.uint8:
        raw = raw.view(torch.uint8)
    return sinter.view(raw.numpy(), dtype, shape)


class Linear:
    """One layer. Its weights lie as Sinter's kernels read them; what they were made of is not kept.

    n, k    dims of the weight
    fpmath  see Shape
    """

    def __init__(self, weights, n, k, fpmath):
        groups = weights.scales.shape[1]
        if weights.scales.shape[0] != n or groups == 0 or k % groups:
            raise ValueError(f"scales of {tuple(weights.scales.shape)} do not fit a weight of "
                             f"{(n, k)}")
        self.n, self.k, self._bound = n, k, None
        self._shape = Shape(n, k, k // groups, weights.dtype,
                            weights.scale_type or TYPES[weights.scales.dtype],
                            None if weights.zeros is None else "u8", "f32", False, fpmath)
        given = [_view(weights.codes, weights.dtype, (n, k)),
                 _view(weights.scales, self._shape.scales, (n, groups))]
        if weights.zeros is not None:
            given.append(_view(weights.zeros, "u8", (n, groups)))
        # All types of rows get the same layout: that of the shape, which the ports name.
        self._parts = [array if port.layout_id is None else sinter.packed(array, port)
                       for array, port in zip(given, product(self._shape).parts)]

    @property
    def n_bytes(self):
        """Bytes of the weight as it is kept."""
        return sum(part.buffer.nbytes for part in self._parts)

    def report(self, rows=torch.bfloat16):
        """Which kernels run."""
        return product(replace(self._shape, rows=TYPES[rows])).compiled.report()

    def _bind(self, rows, bias):
        """The product for a type of rows, with tensors over the weights."""
        shared = product(replace(self._shape, rows=rows, bias=bias is not None))
        ports = [Port(shared.compiled, port) for port in shared.inputs[1:]]
        for port, part in zip(ports, self._parts):
            port.set_packed(part)
        if bias is not None:
            ports[-1].set(bias)
        self._bound = rows, None if bias is None else bias.data_ptr(), shared, Ports(
            [shared.x, *ports])
        return self._bound

    def __call__(self, x, bias=None):
        """x [.., k] times the weight, with a bias [n] of the same type: [.., n]."""
        rows = TYPES.get(x.dtype)
        if rows not in ("f32", "bf16", "f16"):
            raise TypeError(f"rows are floats of up to 32 bits, not {x.dtype}")
        bound = self._bound
        if bound is None or bound[0] != rows or bound[1] != (
                None if bias is None else bias.data_ptr()):
            bound = self._bind(rows, bias)
        shared = bound[2]
        flat = x if x.dim() == 2 else x.reshape(-1, self.k)
        y = torch.empty(flat.shape[0], self.n, dtype=x.dtype)
        if flat.shape[0]:
            shared.x.set(flat)
            shared.y.set(y)
            execute(shared.compiled, bound[3], shared.outputs)
        return y if x.dim() == 2 else y.view(*x.shape[:-1], self.n)


# ---- formats of checkpoints ----------------------------------------------------------------------


def from_words(words, bits, has_zeros):
    """Codes that lie along k in words of 32 bits, the first one lowest: [n, k * bits / 32].

    Without zero points they count from 2^(bits - 1) less than zero, so that this is their zero
    point; with the uppermost bit flipped they are signed.
    """
    raw = words.contiguous().view(torch.uint8)
    if has_zeros:
        return raw, f"u{bits}"
    return raw ^ (0x88 if bits == 4 else 0x80), f"s{bits}"


def zeros_of_words(words, bits, n):
    """Zero points that lie along n in words of 32 bits, [n * bits / 32, groups], as bytes
    [n, groups]."""
    shifts = torch.arange(0, 32, bits, dtype=torch.int32).view(1, -1, 1)
    unpacked = (words.unsqueeze(1) >> shifts) & ((1 << bits) - 1)
    return unpacked.reshape(-1, words.shape[1])[:n].to(torch.uint8).contiguous()
