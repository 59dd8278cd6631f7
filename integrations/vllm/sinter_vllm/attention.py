"""Attention over paged caches on Sinter: torch in, torch out. vLLM is not needed here.

A cache is one tensor of bytes or floats [blocks, KV heads, tokens of a block, content]. The content
of a token and head is one after the other: K, V, and for codes the scales of K and of V.
"""
import functools
from dataclasses import dataclass

import numpy as np
import sinter
import torch

from .calls import TYPES, Whole


@dataclass(frozen=True)
class Form:
    """How a cache keeps K and V.

    codes   Sinter's type of an element
    group   elements of a head that share a scale; 0: one scale for the head; None: no scales
    scales  the type of the scales
    """
    codes: str
    group: "int | None" = None
    scales: str = "f16"

    def groups(self, head):
        return 0 if self.group is None else head // (self.group or head)

    def content(self, head):
        """Bytes of the content of a token and head."""
        return (2 * head * sinter.bits(self.codes) + 2 * self.groups(head)
                * sinter.bits(self.scales)) // 8

    def parts(self, head):
        """Type, first bit, and number of elements of each part of the content: those of K, those of
        V."""
        bits, side = sinter.bits(self.codes), self.groups(head)
        step, start = sinter.bits(self.scales), 2 * head * sinter.bits(self.codes)
        return [[(self.codes, i * head * bits, head)] + ([] if self.group is None else [
            (self.scales, start + i * side * step, side)]) for i in (0, 1)]


FORMS = {"bf16": Form("bf16"), "f16": Form("f16"), "f32": Form("f32"), "int8": Form("s8", 0),
         "int4": Form("s4", 32)}


@dataclass(frozen=True)
class Kind:
    """What layers have in common that share compiled graphs.

    rows        type of queries, of new keys and values, and of results
    form        of the cache
    kv_heads, queries, head   KV heads, query heads for each of these, elements of a head
    block       tokens of a block
    scale       factor of the scores
    window      so many tokens are seen, the own one included; None: all before
    soft_cap    scores become cap * tanh(score / cap); None: they do not
    sinks       whether there is one more logit for each query head
    fpmath      how far products may depart from f32
    """
    rows: str
    form: Form
    kv_heads: int
    queries: int
    head: int
    block: int
    scale: float
    window: "int | None" = None
    soft_cap: "float | None" = None
    sinks: bool = False
    fpmath: str = "strict"


def _inputs(graph, kind, dims):
    """The parts of the cache as inputs of a graph, K's and V's: dims, then the elements."""
    return [[graph.tensor(dtype, [*dims, count], strides=[None] * (len(dims) + 1))
             for dtype, _, count in side] for side in kind.form.parts(kind.head)]


class Attention:
    """Attention over a cache that has the new tokens already.

    In the plain form, sequences have as many queries each: their last tokens. In the ragged form
    each query names its sequence, so sequences may have any numbers of queries. Queries see what is
    not behind them.
    """

    def __init__(self, kind, ragged):
        self._kind, self._ragged = kind, ragged
        graph = sinter.Graph(fpmath=kind.fpmath, apply_to_int=kind.fpmath != "strict")

        def number(value, dtype=np.float32):
            return graph.constant(np.array([value], dtype))

        each = 1 if ragged else None
        query = graph.input(kind.rows, [None, kind.kv_heads, kind.queries, each, kind.head])
        blocks = table = graph.input("s32", [None, None])
        sequence = graph.input("s32", [None])
        if ragged:
            blocks = graph.op("Gather", [table, sequence], axis=0)
        before = graph.input("s32", [None, 1, 1, 1, 1])
        parts = _inputs(graph, kind, [None, kind.kv_heads, kind.block])
        sides, group = [], kind.form.group
        for side in parts:
            # [items, blocks of each, heads, tokens, elements] to [items, heads, 1, tokens,
            # elements].
            paged = []
            for part in side:
                taken = graph.op("Gather", [part, blocks], axis=0)
                taken = graph.op("StaticTranspose", [taken], order=[0, 2, 1, 3, 4])
                paged.append(graph.op("StaticReshape", [taken], special_zero=True, shape=[
                    0, kind.kv_heads, 1, -1, part.shape[-1]]))
            sides.append(paged[0] if group is None else graph.op(
                "DynamicDequantize", paged, kind.rows, qtype="per_group",
                group_shape=[1, 1, 1, 1, group or kind.head]))
        scores = graph.op("MatMul", [query, sides[0]], "f32", transpose_b=True)
        scores = graph.op("Multiply", [scores, number(kind.scale)])
        if kind.soft_cap is not None:
            capped = graph.op("Tanh", [graph.op("Multiply", [scores, number(1 / kind.soft_cap)])])
            scores = graph.op("Multiply", [capped, number(kind.soft_cap)])
        column, own = graph.op("GenIndex", [scores], axis=4), before
        if not ragged:
            own = graph.op("Add", [graph.op("GenIndex", [scores], axis=3), before], "s32")
        hidden = number(-np.inf)
        keep = graph.op("GreaterEqual", [own, column])
        scores = graph.op("Select", [keep, scores, hidden], "f32")
        if kind.window is not None:
            first = graph.op("Subtract", [own, number(kind.window - 1, np.int32)], "s32")
            keep = graph.op("GreaterEqual", [column, first])
            scores = graph.op("Select", [keep, scores, hidden], "f32")
        sinks = [graph.input("f32", [1, kind.kv_heads, kind.queries, 1, 1])] if kind.sinks else []
        weights = graph.op("SoftMax", [scores, *sinks], kind.rows, axis=-1, mode="inf_as_zero")
        result = graph.tensor(kind.rows, [None, kind.kv_heads, kind.queries, each, kind.head],
                              strides=[None] * 5)
        graph.op("MatMul", [weights, sides[1]], outputs=[result])
        self.whole = Whole(graph)
        self._query, self._table, self._before, self._result = query, table, before, result
        self._sequence, self._sinks = sequence, sinks
        self._parts = [part for side in parts for part in side]

    @functools.cached_property
    def in_place(self):
        """Whether blocks are read where they lie; else the tokens of each item are copied first."""
        steps = self.whole.compiled.report().splitlines()
        return not any(step.startswith("step ") and "gather" in step for step in steps)

    def __call__(self, query, cache, table, before, output, sinks=None, sequence=None):
        """query, output  [sequences, queries of each, heads, head]; ragged: [tokens, 1, heads,
                       head]
        table          [sequences, blocks] of torch.int32
        before         of torch.int32, for each item: tokens before its first query
        sequence       ragged: of torch.int32, for each token: the row of the table
        """
        kind, whole = self._kind, self.whole
        rank = (kind.kv_heads, kind.queries)
        whole.bind(self._query, query.unflatten(2, rank).permute(0, 2, 3, 1, 4))
        whole.bind(self._table, table)
        whole.bind(self._before, before.view(-1, 1, 1, 1, 1))
        if self._ragged:
            whole.bind(self._sequence, sequence)
        _bind_cache(whole, self._parts, kind, cache, False)
        if kind.sinks:
            whole.bind(self._sinks[0], sinks.view(1, *rank, 1, 1))
        whole.bind(self._result, output.unflatten(2, rank).permute(0, 2, 3, 1, 4))
        whole.execute()


class Append:
    """Writes the keys and values of new tokens into a cache, in its form."""

    def __init__(self, kind):
        self._kind = kind
        graph = sinter.Graph()
        slots = graph.input("s64", [None])
        parts = _inputs(graph, kind, [None])
        self._new, self._after, group = [], [], kind.form.group
        for side in parts:
            new = graph.input(kind.rows, [None, kind.kv_heads, kind.head])
            self._new.append(new)
            made = [new]
            if group is not None:
                made = graph.op("DynamicQuantize", [new], [kind.form.codes, kind.form.scales],
                                qtype="per_group", group_shape=[1, 1, group or kind.head],
                                quantization_kind="dynamic_symmetric")
            elif kind.rows != kind.form.codes:
                made = [graph.op("TypeCast", [new], kind.form.codes)]
            for data, update in zip(side, made):
                count = data.shape[1]
                rows = graph.op("StaticReshape", [update], shape=[-1, count], special_zero=False)
                after = graph.tensor(data.dtype, [None, count], strides=[None, None])
                graph.op("ScatterRows", [data, slots, rows], outputs=[after], axis=0)
                self._after.append(after)
        self.whole = Whole(graph)
        self._slots, self._parts = slots, [part for side in parts for part in side]

    def __call__(self, keys, values, cache, slots):
        """keys, values [tokens, KV heads, head]; slots of torch.int64, as rows_of_slots gives
        them."""
        whole = self.whole
        for port, new in zip(self._new, (keys, values)):
            whole.bind(port, new)
        whole.bind(self._slots, slots)
        # In place: only what is new is written.
        for ports in (self._parts, self._after):
            _bind_cache(whole, ports, self._kind, cache, True)
        whole.execute()


def _bind_cache(whole, ports, kind, cache, as_rows):
    """Binds the parts of a cache where they lie. as_rows: blocks, heads and tokens are one dim."""
    if not cache.is_contiguous():
        raise ValueError("a cache has its blocks one after the other")
    blocks, heads, block, _ = cache.shape
    n_bytes = kind.form.content(kind.head)
    if cache.shape[3] * cache.element_size() != n_bytes or heads != kind.kv_heads:
        raise ValueError(f"a cache of {tuple(cache.shape)} {cache.dtype} is not one of "
                         f"{kind.kv_heads} heads of {n_bytes} bytes")
    for port, (dtype, first, count) in zip(ports, sum(kind.form.parts(kind.head), [])):
        step = 8 * n_bytes // sinter.bits(dtype)
        shape, strides = ((blocks * heads * block, count), (step, 1)) if as_rows else (
            (blocks, heads, block, count), (heads * block * step, block * step, step, 1))
        whole.bind_memory(port, cache, first // 8, shape, strides)


def rows_of_slots(slots, kv_heads, block):
    """Rows of a cache, [tokens * KV heads], of slots = block * tokens of a block + place; of slots
    below 0 nothing is written."""
    heads = torch.arange(kv_heads)
    rows = ((slots // block).unsqueeze(1) * kv_heads + heads) * block + (slots % block).unsqueeze(1)
    return torch.where(slots.unsqueeze(1) < 0, -1, rows).flatten()


attention = functools.lru_cache(maxsize=None)(Attention)
append = functools.lru_cache(maxsize=None)(Append)
