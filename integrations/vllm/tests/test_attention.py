#!/usr/bin/env python3
"""Paged attention of the plugin beside plain torch in double precision. Only torch is needed."""
import math
import unittest

import vllm_case

vllm_case.enter("torch")

import sinter
import torch
from sinter_vllm.attention import FORMS, Kind, append, attention, rows_of_slots
from sinter_vllm.calls import TYPES

HEADS, QUERIES, HEAD = 2, 4, 64


def exact(query, keys, values, kind, sinks):
    """Attention of the last queries of one sequence."""
    count, tokens = query.shape[0], keys.shape[0]
    keys, values = (each.double().repeat_interleave(kind.queries, 1) for each in (keys, values))
    scores = torch.einsum("shd,thd->hst", query.double(), keys) * kind.scale
    if kind.soft_cap:
        scores = kind.soft_cap * torch.tanh(scores / kind.soft_cap)
    own, column = torch.arange(count)[:, None] + tokens - count, torch.arange(tokens)[None]
    hidden = column > own
    if kind.window:
        hidden |= column <= own - kind.window
    scores = scores.masked_fill(hidden, -math.inf)
    if sinks is not None:
        scores = torch.cat([scores, sinks.double().view(-1, 1, 1).expand(-1, count, 1)], 2)
    return torch.einsum("hst,thd->shd", scores.softmax(2)[:, :, :tokens], values)


class Cache:
    """A cache of random blocks, in which sequences of given lengths have theirs in any order."""

    def __init__(self, kind, lengths):
        blocks = [-(-n // kind.block) for n in lengths]
        total, n_bytes = sum(blocks) + 2, kind.form.content(kind.head)
        self.kind, self.lengths = kind, lengths
        # Bytes of all bits 1 are NaN in each type of floats: what no token has must not be read.
        self.memory = torch.full((total, kind.kv_heads, kind.block, n_bytes), 255,
                                 dtype=torch.uint8)
        order = torch.randperm(total)
        self.unused, order = order[:2], order[2:]
        self.table = torch.full((len(lengths), max(blocks)), int(self.unused[0]),
                                dtype=torch.int32)
        for row, n in zip(self.table, blocks):
            row[:n], order = order[:n].int(), order[n:]

    def slots(self, sequence):
        at = torch.arange(self.lengths[sequence])
        block = self.kind.block
        return self.table[sequence][at // block].long() * block + at % block

    def fill(self, dtype):
        """Appends keys and values of all tokens; returns them."""
        kept = []
        for i, n in enumerate(self.lengths):
            # As vLLM has them: parts of one row of queries, keys and values.
            rows = torch.randn(n, HEADS * (QUERIES + 2), HEAD).to(dtype)
            keys, values = rows[:, -2 * HEADS:-HEADS], rows[:, -HEADS:]
            slots = self.slots(i)
            slots[n // 2] = -1  # written in a second call
            for part in (slots, torch.where(torch.arange(n) == n // 2, self.slots(i), -1)):
                append(self.kind)(keys, values, self.memory,
                                  rows_of_slots(part, HEADS, self.kind.block))
            kept.append((keys, values))
        return kept


def kind_of(form, dtype, block=16, **changes):
    return Kind(TYPES[dtype], FORMS[form], HEADS, QUERIES, HEAD, block, HEAD**-.5, **changes)


class AttentionTest(unittest.TestCase):
    def setUp(self):
        torch.manual_seed(5)

    def check(self, kind, dtype, bound):
        lengths = [5, max(kind.block, 3), 2 * kind.block + 1, 100]
        cache = Cache(kind, lengths)
        kept = cache.fill(dtype)
        sinks = torch.randn(HEADS * QUERIES) if kind.sinks else None
        run = attention(kind, False)
        # One query of each sequence, then all and some of the last one.
        for first, count in ((0, 1), (3, 100), (3, 37)):
            chosen = range(first, len(lengths)) if count > 1 else range(len(lengths))
            query = torch.randn(len(chosen), count, HEADS * QUERIES, HEAD).to(dtype)
            output = torch.full_like(query, math.nan)
            before = torch.tensor([lengths[i] - count for i in chosen], dtype=torch.int32)
            run(query, cache.memory, cache.table[first:], before, output, sinks)
            for i, q, found in zip(chosen, query, output):
                wanted = exact(q, *kept[i], kind, sinks)
                self.assertTrue(found.isfinite().all())
                self.assertLess((found.double() - wanted).abs().max().item(), bound, (i, count))
        # A step of some queries of each sequence.
        counts = [1, 3, 1, 40]
        sequence = torch.repeat_interleave(torch.arange(4), torch.tensor(counts)).int()
        position = torch.cat([torch.arange(n - count, n) for n, count in zip(lengths, counts)])
        query = torch.randn(sum(counts), 1, HEADS * QUERIES, HEAD).to(dtype)
        output = torch.full_like(query, math.nan)
        attention(kind, True)(query, cache.memory, cache.table, position.int(), output, sinks,
                              sequence)
        for found, q, (keys, values), count in zip(output.split(counts), query.split(counts), kept,
                                                   counts):
            wanted = exact(q.squeeze(1), keys, values, kind, sinks)
            self.assertLess((found.squeeze(1).double() - wanted).abs().max().item(), bound, count)

    def test_forms(self):
        """Bounds are for numbers of about 1: half a step of a code, more where it meets few."""
        for form, dtype, bound in (("f32", torch.float32, 2e-6), ("bf16", torch.bfloat16, 2e-2),
                                   ("f16", torch.float16, 3e-3), ("f16", torch.float32, 2e-3),
                                   ("int8", torch.bfloat16, 6e-2), ("int8", torch.float32, 4e-2),
                                   ("int4", torch.bfloat16, .6)):
            for changes in ({}, {"window": 7, "soft_cap": 20., "sinks": True, "fpmath": "int8"},
                            {"block": 1}, {"block": 64, "fpmath": "f16"}):
                with self.subTest(form=form, dtype=dtype, **changes):
                    self.check(kind_of(form, dtype, **changes), dtype, bound)

    def test_codes(self):
        """Codes are read as they were appended: attention of one token is its value."""
        for form, step in (("int8", 1 / 127), ("int4", 1 / 7)):
            kind = kind_of(form, torch.float32)
            cache = Cache(kind, [1])
            (keys, values), = cache.fill(torch.float32)
            output = torch.empty(1, 1, HEADS * QUERIES, HEAD)
            attention(kind, False)(torch.randn_like(output), cache.memory, cache.table,
                            torch.zeros(1, dtype=torch.int32), output)
            group = kind.form.group or HEAD
            most = values.view(HEADS, -1, group).abs().amax(2, keepdim=True) * step * .51 + 1e-4
            wanted = values.view(HEADS, 1, -1, group).expand(-1, QUERIES, -1, -1)
            off = (output.view(HEADS, QUERIES, -1, group) - wanted).abs()
            self.assertTrue((off <= most.unsqueeze(1)).all())

    def test_slots(self):
        slots = torch.tensor([5, -1, 16])
        self.assertEqual(rows_of_slots(slots, 2, 4).tolist(), [9, 13, -1, -1, 32, 36])

    def test_errors(self):
        kind = kind_of("bf16", torch.bfloat16)
        cache = Cache(kind, [40])
        cache.fill(torch.bfloat16)
        query = torch.randn(1, 1, HEADS * QUERIES, HEAD).bfloat16()
        before = torch.tensor([39], dtype=torch.int32)
        output = torch.zeros_like(query)
        with self.assertRaises(sinter.SinterError):
            attention(kind, False)(query, cache.memory, cache.table + 1000, before, output)
        self.assertEqual(output.abs().max().item(), 0)
        with self.assertRaises(TypeError):
            attention(kind, False)(query.float(), cache.memory, cache.table, before, output)
        with self.assertRaises(ValueError):
            attention(kind, False)(query, cache.memory[..., 2:], cache.table, before, output)
        with self.assertRaises(sinter.SinterError):
            append(kind)(query[0, :, :HEADS], query[0, :, :HEADS], cache.memory,
                         torch.tensor([0, 1 << 40]))


if __name__ == "__main__":
    unittest.main()
