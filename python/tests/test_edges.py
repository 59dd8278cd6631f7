#!/usr/bin/env python3
"""Arguments at the edges: numbers that do not fit are refused and never cut, strings with a NUL
too, whatever is wrong is a SinterError; outputs that are bound anew.

test_edges.py, with SINTER_LIBRARY"""
import copy
import json
import os
import pathlib
import pickle
import tempfile
import unittest
import warnings

import python_case

python_case.enter()

import ml_dtypes
import numpy as np

import sinter

BIG = 2**64 + 4  # what is left of it in 64 bits is 4


def relu(shape, dtype="f32"):
    graph = sinter.Graph()
    x = graph.input(dtype, shape)
    return graph, x, graph.op("ReLU", [x])


def add(dtype):
    """An array of two plus a scalar."""
    graph = sinter.Graph()
    a, s = graph.input(dtype, [2]), graph.scalar(dtype)
    graph.op("Add", [a, s])
    compiled, zeros = graph.compile(), np.zeros(2, sinter.numpy_type(dtype))
    return lambda value: compiled({a: zeros, s: value})[0]


def document(**changes):
    """JSON of a graph of one SoftMax."""
    tensor = {"id": 0, "dtype": "f32", "shape": [2, 3], "stride": [3, 1],
              "layout_type": "strided", "property_type": "variable"} | changes.pop("tensor", {})
    op = {"id": 0, "name": "s", "kind": "SoftMax",
          "attrs": {"axis": {"type": "s64", "value": changes.pop("axis", 1)}},
          "inputs": [tensor], "outputs": [tensor | {"id": 1}]} | changes
    return {"graph": [op]}


class Layouts(python_case.Case):
    """Weights in the library's own layout."""

    K, N, GROUP = 64, 24, 32

    def setUp(self):
        rng = np.random.default_rng(3)
        self.codes = rng.integers(-8, 8, (self.N, self.K), np.int8)
        self.scales = rng.uniform(0.5, 2, (self.N, self.K // self.GROUP)).astype(np.float32)
        self.x = rng.uniform(-1, 1, (3, self.K)).astype(np.float32)
        packed = sinter.pack(self.codes, "s4")
        self.opaque = (sinter.weights(packed, "codes", transpose_b=True),
                       sinter.weights(self.scales, "values", transpose_b=True))
        self.packed = packed

    def graph(self, codes, scales):
        graph = sinter.Graph()
        ports = [one if isinstance(one, sinter.Tensor) else graph.constant(one)
                 for one in (codes, scales)]
        x = graph.input("f32", [None, self.K])
        w = graph.op("DynamicDequantize", ports, "f32", qtype="per_group",
                     group_shape=[1, self.GROUP])
        graph.op("MatMul", [x, w], transpose_b=True)
        return graph, x

    def wanted(self):
        weights = self.codes * np.repeat(self.scales, self.GROUP, 1).astype(np.float64)
        return self.x @ weights.T

    def test_product(self):
        graph, x = self.graph(*self.opaque)
        self.near(graph.compile()({x: self.x})[0], self.wanted(), 1e-3)
        (partition,) = graph.partitions()
        compiled = partition.compile()
        self.near(compiled({x: self.x})[0], self.wanted(), 1e-3)
        self.assertIn("in tiles, as it was given", compiled.report())
        ids = [port.layout_id for port in compiled.inputs if port.id != x.id]
        self.assertEqual(ids, [one.layout_id for one in self.opaque])
        again = sinter.Graph.from_json(graph.to_json())
        found = again.compile()({0: self.opaque[0], 1: self.opaque[1], x.id: self.x})[0]
        self.near(found, self.wanted(), 1e-3)

    def test_there_and_back(self):
        back = sinter.empty("s4", [self.N, self.K])
        sinter.reorder(self.opaque[0], back)
        self.assertTrue((sinter.unpack(back) == self.codes).all())
        back = np.zeros_like(self.scales)
        sinter.reorder(self.opaque[1], back)
        self.assertTrue((back == self.scales).all())
        few = self.codes.astype(np.int8) % 8 - 4
        tiles, back = sinter.weights(few, "codes", bits=3), np.zeros_like(few)
        self.assertEqual(8 * tiles.buffer.size, 3 * sinter.weights(few, "codes").buffer.size)
        sinter.reorder(tiles, back)
        self.assertTrue((back == few).all())
        with self.fails("invalid_arguments", "do not fit the 2 bits"):
            sinter.weights(few, "codes", bits=2)
        with self.fails("invalid_arguments", "does not keep 7 bits"):
            sinter.weights(few, "codes", bits=7)
        floats = np.arange(33 * 17, dtype=np.float16).reshape(33, 17)
        tiles, back = sinter.weights(floats, "codes"), np.zeros_like(floats)
        self.assertEqual(tiles.buffer.nbytes, 2 * 2 * 1024)
        sinter.reorder(tiles, back)
        self.assertTrue((back == floats).all())
        some = sinter.weights(self.scales[16:], "values", transpose_b=True)
        self.assertTrue((some.buffer == self.opaque[1].buffer[-some.buffer.size:]).all())

    def test_tensors(self):
        tensor = sinter.Tensor(4, "s8", (32, 16), (16, 1)).for_weights("codes")
        self.assertIsNone(tensor.strides)
        self.assertNotEqual(tensor, tensor.for_weights("codes", transpose_b=True))
        for made, status, words in (
                (sinter.Tensor(4, "f64", (32, 16)), "invalid_data_type", "does not take f64"),
                (sinter.Tensor(4, "s8", (None, 16)), "invalid_shape", "one matrix"),
                (sinter.Tensor(4, "s8", (2, 3, 4)), "invalid_shape", "one matrix")):
            with self.fails(status, "tensor 4", words):
                made.for_weights("codes")
        with self.fails("invalid_arguments", "part"):
            tensor.for_weights("code")
        made = tensor.for_weights("codes").empty()
        self.assertEqual((made.layout_id, made.buffer.size),
                         (tensor.for_weights("codes").layout_id, 512))
        self.assertEqual(sinter.Tensor(4, "s8", (32, 16)).empty().strides, (16, 1))
        with self.fails("invalid_arguments", "not known"):
            sinter.Tensor(4, "s8", (None, 16)).empty()
        for layout, words in ((0, "0 is no id"), (99, "99 is no id"), (BIG, "layout_id"),
                              (2**64, "layout_id"), (1.5, "layout_id")):
            with self.fails("invalid_arguments", words):
                sinter.Graph().op("ReLU", [sinter.Tensor(0, "s8", (4, 4), layout_id=layout)], "f32")
        with self.fails("invalid_arguments", "strides and an opaque layout"):
            sinter.Graph().op("ReLU", [sinter.Tensor(0, "s8", (4, 4), (4, 1), layout_id=1)], "f32")

    def test_arrays(self):
        codes, scales = self.opaque
        with self.fails("invalid_arguments", "needs 1024 bytes, the buffer has 1023"):
            sinter.Opaque(codes.buffer[:-1], "s4", codes.shape, codes.layout_id)
        with self.fails("invalid_arguments", "contiguous"):
            sinter.Opaque(np.zeros(4096, np.uint8)[::2], "s4", codes.shape, codes.layout_id)
        with self.fails("invalid_arguments", "77 is no id of an opaque layout"):
            sinter.Opaque(codes.buffer, "s4", codes.shape, 77)
        with self.fails("invalid_arguments", "other data types or dims"):
            sinter.reorder(codes, self.scales)
        with self.fails("invalid_arguments", "the other one strides"):
            sinter.reorder(codes, codes)
        with self.fails("invalid_arguments", "reorder takes an array or a view, not int"):
            sinter.reorder(codes, 5)
        with self.fails("invalid_arguments", "an array or a view"):
            sinter.weights([1, 2], "codes")
        target = np.zeros_like(self.scales)
        target.flags.writeable = False
        with self.fails("invalid_arguments", "read-only"):
            sinter.reorder(scales, target)

    def test_what_is_bound(self):
        codes, scales = self.opaque
        graph, x = self.graph(
            sinter.Tensor(10, "s4", codes.shape, layout_id=codes.layout_id),
            sinter.Tensor(11, "f32", scales.shape, layout_id=scales.layout_id))
        compiled = graph.compile()
        for wrong, words in ((self.packed, "tensor 10 has an opaque layout, the array strides"),
                             (sinter.weights(self.packed, "codes"), "of another id")):
            with self.fails("invalid_arguments", words):
                compiled({x: self.x, 10: wrong, 11: self.opaque[1]})
        self.near(compiled({x: self.x, 10: codes, 11: self.opaque[1]})[0], self.wanted(), 1e-3)
        plain, x = self.graph(self.packed, self.scales)
        with self.fails("invalid_arguments", "tensor 0 has strides, the array an opaque layout"):
            plain.compile()({x: self.x, 0: self.opaque[0]})
        mixed, x = self.graph(self.packed, self.opaque[1])
        self.near(mixed.compile()({x: self.x})[0], self.wanted(), 1e-3)

    def test_layout_any(self):
        """Compile chooses the layout: what the graph holds is packed, other arrays are given so."""
        graph = sinter.Graph()
        ports = [graph.constant(one, any_layout=True) for one in (self.packed, self.scales)]
        x = graph.input("f32", [None, self.K])
        w = graph.op("DynamicDequantize", ports, "f32", qtype="per_group",
                     group_shape=[1, self.GROUP])
        graph.op("MatMul", [x, w], transpose_b=True)
        compiled = graph.compile()
        self.near(compiled({x: self.x})[0], self.wanted(), 1e-3)
        (partition,) = graph.partitions()
        alone = partition.compile()
        self.near(alone({x: self.x})[0], self.wanted(), 1e-3)
        tiles = sinter.isa() != "generic"
        for port, one, array in zip(ports, self.opaque, (self.packed, self.scales)):
            self.assertEqual(alone.query(port).layout_id, one.layout_id if tiles else None)
            if tiles:
                made = sinter.packed(array, alone.query(port))
                self.assertTrue((made.buffer == one.buffer).all())
            with self.fails("invalid_arguments", "no opaque layout"):
                sinter.packed(array, x)

    def test_layout_any_of_an_input(self):
        """Weights that the graph does not hold: compile tells the layout, and packed makes it."""
        graph = sinter.Graph()
        ports = [graph.tensor(dtype, one.shape, property="constant", any_layout=True)
                 for dtype, one in (("s4", self.packed), ("f32", self.scales))]
        x = graph.input("f32", [None, self.K])
        w = graph.op("DynamicDequantize", ports, "f32", qtype="per_group",
                     group_shape=[1, self.GROUP])
        graph.op("MatMul", [x, w], transpose_b=True)
        compiled = graph.compile()
        given = {x: self.x}
        for port, array in zip(ports, (self.packed, self.scales)):
            chosen = compiled.query(port)
            given[port] = array if chosen.layout_id is None else sinter.packed(array, chosen)
        self.near(compiled(given)[0], self.wanted(), 1e-3)
        with self.fails("invalid_arguments", "strides and any layout"):
            graph.tensor("f32", [2], strides=[1], any_layout=True)

    def test_caches(self):
        """K and V of attention whose heads lie side by side: the first tokens of a cache are
        written, and come back."""
        tokens, heads, head = 64, 2, 32
        rng = np.random.default_rng(4)
        for part, dtype, dims in (("heads_k", np.int8, (tokens, heads, head)),
                                  ("heads_v", np.int8, (tokens, heads, head)),
                                  ("heads_values", np.float32, (tokens, heads, 1))):
            name = sinter.data_type_of(dtype)
            cache = sinter.Tensor(0, name, dims).for_weights(part).empty()
            cache.buffer[:] = 0
            some = rng.integers(-128, 128, (48, *dims[1:])).astype(dtype)
            sinter.reorder(some, cache)
            back = np.ones_like(some)
            sinter.reorder(cache, back)
            np.testing.assert_array_equal(back, some)
        whole = rng.integers(-128, 128, (256, 16)).astype(np.int8)
        back = np.zeros_like(whole)
        sinter.reorder(sinter.weights(whole, "codes_blocks"), back)
        np.testing.assert_array_equal(back, whole)

    def test_reorder_op(self):
        """Reorder in a graph packs and unpacks; an output in tiles gets an array of its own."""
        graph = sinter.Graph()
        codes = graph.input("s4", [self.N, self.K])
        tiles = graph.op("Reorder", [codes], outputs=[
            graph.tensor("s4", [self.N, self.K]).for_weights("codes", transpose_b=True)])
        back = graph.op("Reorder", [tiles])
        graph.set_outputs(tiles, back)
        found = graph.compile()({codes: self.packed})
        packed, same = found if isinstance(found[0], sinter.Opaque) else found[::-1]
        self.assertEqual(packed.layout_id, self.opaque[0].layout_id)
        self.assertTrue((packed.buffer == self.opaque[0].buffer).all())
        self.assertTrue((sinter.unpack(same) == self.codes).all())


class Numbers(python_case.Case):
    """No number is cut to what fits into a field of the library."""

    def test_tensors(self):
        graph = sinter.Graph()
        for dim in (BIG, 2**63, 2.0, 2.7, float("nan"), np.float32(2), "2"):
            with self.fails("invalid_arguments", "tensor 0: dim 0"):
                graph.input("f32", [dim])
            with self.fails("invalid_arguments", "tensor 0: stride 1"):
                graph.input("f32", [3, 4], strides=[1, dim])
        for number in (-1, 2**64, BIG, 1.0, 1.5, "1"):
            with self.fails("invalid_arguments", "a tensor's id"):
                graph.tensor("f32", [2], id=number)
            with self.fails("invalid_arguments", "a tensor's id"):
                graph.set_outputs(number)
        with self.fails("invalid_arguments", "tensor 0: stride 0"):
            graph.input("f32", [2, 2**40, 2**40])
        x = graph.tensor("f32", [np.int64(3), np.uint8(4)], id=2**64 - 2)
        self.assertEqual((x.id, x.shape, x.strides), (2**64 - 2, (3, 4), (4, 1)))
        for made in (sinter.Tensor(0, "f32", (BIG,)), sinter.Tensor(BIG, "f32", (2,)),
                     sinter.Tensor(0, "f32", (2,), (BIG,)), sinter.Tensor(0, "f32", (1,) * 13),
                     sinter.Tensor(0, "f32", (2,), (1, 1)), sinter.Tensor(0, "f32", None, (1,)),
                     sinter.Tensor(0, "f32", (2,), property="frozen"),
                     sinter.Tensor(0, "f33", (2,))):
            with self.fails("invalid_arguments"):
                sinter.Graph().op("ReLU", [made], "f32")
        graph, x, _ = relu([2, 3])
        with self.fails("invalid_arguments", "a tensor's id"):
            graph.compile()({BIG: np.zeros((2, 3), np.float32)})

    def test_attributes(self):
        graph = sinter.Graph()
        x = graph.input("f32", [2, 3])
        with self.fails("invalid_arguments", "attribute axis is -9223372036854775808 to"):
            graph.op("SoftMax", [x], axis=2**64 + 1)
        for axis in (1.0, 0.5, float("nan"), "1"):
            with self.fails("invalid_arguments", "attribute axis is s64, not"):
                graph.op("SoftMax", [x], axis=axis)
        with self.fails("invalid_arguments", "attribute shape is"):
            graph.op("StaticReshape", [x], shape=[BIG, 6], special_zero=False)
        for keep in (0.5, 2, -1, "yes", "no"):
            with self.fails("invalid_arguments", "attribute transpose_b is bool, not"):
                graph.op("MatMul", [x, x], transpose_b=keep)
        for alpha in (1e39, 10**400):
            with self.fails("invalid_arguments", "attribute alpha is f32"):
                graph.op("LeakyReLU", [x], alpha=alpha)
        y = graph.op("Clamp", [x], min=-1, max=float("inf"))
        self.assertEqual(graph.op("SoftMax", [y], axis=np.int8(-1)).dtype, "f32")

    def test_scalars(self):
        wrong = {"s32": (2.7, 2.0, np.float32(1.5), float("nan"), 2**31, -2**31 - 1, BIG,
                         np.uint64(2**63), np.datetime64(3, "s"), np.str_("3")),
                 "f32": (1e39, -10**400, np.str_("3"), np.datetime64(3, "s"), np.complex64(1))}
        right = {"s32": (2**31 - 1, -2**31, True, np.uint8(7), np.bool_(True)),
                 "f32": (1.5, -3, 2**24, float("inf"), np.float16(0.25), np.int64(5), np.True_,
                         ml_dtypes.bfloat16(1.5))}
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for dtype, values in wrong.items():
                run = add(dtype)
                for value in values:
                    with self.fails("invalid_arguments", "input tensor 1", dtype):
                        run(value)
            for dtype, values in right.items():
                run = add(dtype)
                for value in values:
                    self.assertEqual(run(value).tolist(), [float(value)] * 2)
            self.assertTrue(np.isnan(add("f32")(float("nan"))).all())
            with self.fails("invalid_arguments", "f16"):
                add("f16")(65520)

    def test_engines_and_streams(self):
        engine = sinter.Engine()
        for n_bytes in (-1, 2**64, BIG, 1.5):
            with self.fails("invalid_arguments", "a budget"):
                engine.set_constant_cache_budget(n_bytes)
        for threads in (2**32, 2**31, -1, 1.5, "1"):
            with self.fails("invalid_arguments", "a number of threads"):
                sinter.Stream(threads)
        with self.fails("invalid_arguments", "all_threads is bool"):
            sinter.Stream(1, all_threads=2**32)
        with self.fails("invalid_arguments", "apply_to_int is bool"):
            sinter.Graph(apply_to_int=2)

    def test_views(self):
        memory = np.zeros(64, np.uint8)
        for size in (2.5, 2.0, BIG, "2"):
            for dims, steps in (([size], None), ([0, size], None), ([2], [size]), ([1], [size])):
                with self.fails("invalid_arguments"):
                    sinter.view(memory, "u8", dims, steps)
                with self.fails("invalid_arguments"):
                    sinter.empty("u8", dims, steps)
        with self.fails("invalid_arguments", "needs 100 bytes"):
            sinter.View(memory, "u8", (100,), (1,))
        with self.fails("invalid_shape", "negative"):
            sinter.View(memory, "u8", (2,), (-1,))
        with self.fails("out_of_memory"):
            sinter.empty("f32", [2**60])
        with self.fails("out_of_memory"):
            sinter.empty("f32", [2**62, 2**62])

    def test_json(self):
        self.assertEqual(len(sinter.Graph.from_json(document()).partitions()), 1)
        for changes, word in (({"axis": BIG}, "axis"), ({"axis": 0.5}, "axis"),
                              ({"tensor": {"id": BIG}}, "id"), ({"tensor": {"id": 0.5}}, "id"),
                              ({"tensor": {"shape": [2, 2**64 + 3]}}, "dim 1"),
                              ({"tensor": {"shape": [2, 3.5]}}, "dim 1"),
                              ({"tensor": {"stride": [2**64 + 3, 1]}}, "stride 0"),
                              ({"id": BIG}, "id"), ({"id": -1}, "id")):
            with self.fails("invalid_arguments", word):
                sinter.Graph.from_json(document(**changes))

    def test_infinite_attributes(self):
        """to_json writes an infinity as a string, which from_json reads."""
        graph = sinter.Graph()
        graph.op("Clamp", [graph.input("f32", [2])], min=-np.inf, max=2.5)
        text = graph.to_json()
        self.assertEqual(json.loads(text)["graph"][0]["attrs"]["min"]["value"], "-inf")
        self.assertEqual(sinter.Graph.from_json(text).to_json(), text)


class Strings(python_case.Case):
    def test_nul(self):
        """C would take what is before the NUL for the whole."""
        graph = sinter.Graph()
        x = graph.input("f32", [2, 3])
        for call in (lambda: graph.input("f32\0x", [2]), lambda: graph.op("ReLU\0x", [x]),
                     lambda: graph.op("ReLU", [x], name="a\0b"),
                     lambda: graph.op("SoftMax", [x], **{"axis\0x": 1}),
                     lambda: graph.op("SoftMax", [x], axis=1, mode="inf_as_zero\0x"),
                     lambda: graph.op("TypeCast", [x], "bf16\0"),
                     lambda: sinter.Graph(fpmath="strict\0"), lambda: sinter.Engine("avx2\0"),
                     lambda: sinter.set_verbose("error\0,all"), lambda: sinter.bits("f32\0"),
                     lambda: sinter.op_schema("ReLU\0"), lambda: sinter.numpy_type("f32\0")):
            with self.fails("invalid_arguments", "NUL"):
                call()

    def test_surrogates(self):
        graph = sinter.Graph()
        x = graph.input("f32", [2, 3])
        with self.fails("invalid_arguments", "Unicode"):
            graph.op("ReLU", [x], name="\ud800")
        graph.op("ReLU", [x], name="\u03c3")
        self.assertIn("\u03c3", graph.to_json())


class Anything:
    """An object that is nothing a function takes."""


class Errors(python_case.Case):
    """Whatever is given in place of an argument: it is taken, or refused by a SinterError."""

    VALUES = [None, 0, 1, -1, 2**31, 2**63, BIG, 10**5000, 1.5, float("nan"), True, "", "x", "f32",
              "a\0b", "\ud800", b"f32", [], [1], [None], ["f32"], [[1], [2, 3]], [BIG], [2.5],
              (2, 3), {}, {0: 1}, {"graph": 3}, {"graph": [{}]}, np.zeros(0), np.float32(1.5),
              np.zeros((2, 3), np.float32), np.zeros(2, object), np.array("s"), Anything(),
              Anything, np.dtype("f4"), sinter.Tensor(0, "f32", (2, 3), (3, 1)),
              sinter.Tensor("0", 5, 7, 9), 1j, np.timedelta64(2, "s"), range(3), {"f32"}]

    def test_any_argument(self):
        graph, x, y = relu([2, 3])
        open_graph = sinter.Graph()
        a = open_graph.input("f32", [2, 3])
        (partition,) = graph.partitions()
        compiled, whole = partition.compile(), graph.compile()
        good = np.zeros((2, 3), np.float32)
        execution, engine = compiled.bind({x: good}), sinter.Engine()
        memory = np.zeros(64, np.uint8)
        calls = {
            "load": sinter.load, "bits": sinter.bits, "data_type_of": sinter.data_type_of,
            "numpy_type": sinter.numpy_type, "op_schema": sinter.op_schema, "isa": sinter.isa,
            "constant_cache": sinter.constant_cache, "set_verbose": sinter.set_verbose,
            "invalidate": sinter.invalidate, "engine invalidate": engine.invalidate,
            "invalidate engine": lambda v: sinter.invalidate(memory, v),
            "view": lambda v: sinter.view(v, "u8", [2]), "unpack": sinter.unpack,
            "view type": lambda v: sinter.view(memory, v, [2]),
            "view shape": lambda v: sinter.view(memory, "u8", v),
            "view strides": lambda v: sinter.view(memory, "u8", [2], v),
            "View": lambda v: sinter.View(v, v, v, v), "empty": lambda v: sinter.empty(v, [2]),
            "empty shape": lambda v: sinter.empty("u8", v),
            "empty strides": lambda v: sinter.empty("u8", [2], v),
            "pack": lambda v: sinter.pack(v, "s4"), "pack type": lambda v: sinter.pack([1], v),
            "Engine": sinter.Engine, "budget": engine.set_constant_cache_budget,
            "Stream": sinter.Stream,
            "Stream all": lambda v: sinter.Stream(1, all_threads=v),
            "Stream engine": lambda v: sinter.Stream(1, engine=v),
            "Graph mode": lambda v: sinter.Graph(fpmath=v),
            "Graph int": lambda v: sinter.Graph(apply_to_int=v),
            "Graph engine": lambda v: sinter.Graph(engine=v),
            "dtype": lambda v: open_graph.input(v, [2]),
            "shape": lambda v: open_graph.input("f32", v),
            "strides": lambda v: open_graph.input("f32", [2, 3], strides=v),
            "any layout": lambda v: open_graph.tensor("f32", [2, 3], any_layout=v),
            "strides and any": lambda v: open_graph.tensor("f32", [2], strides=v, any_layout=True),
            "part": lambda v: sinter.Tensor(0, "s8", (16, 16)).for_weights(v),
            "Tensor empty": lambda v: sinter.Tensor(0, "f32", v).empty(),
            "weights": lambda v: sinter.weights(v, "codes"),
            "packed": lambda v: sinter.packed(v, a), "reorder": lambda v: sinter.reorder(good, v),
            "Sequence": sinter.Sequence, "append": sinter.Sequence().append,
            "Sequence engine": lambda v: sinter.Sequence(engine=v),
            "Sequence run": sinter.Sequence().run, "other array": lambda v: execution.bind({x: v}),
            "other arrays": execution.bind,
            "property": lambda v: open_graph.tensor("f32", [2], property=v),
            "id": lambda v: sinter.Graph().tensor("f32", [2], id=v),
            "scalar": open_graph.scalar, "constant": open_graph.constant,
            "op kind": lambda v: open_graph.op(v, [a]),
            "op inputs": lambda v: open_graph.op("ReLU", v),
            "op inputs and type": lambda v: open_graph.op("ReLU", [v], "f32"),
            "op type": lambda v: open_graph.op("TypeCast", [a], v),
            "op outputs": lambda v: open_graph.op("ReLU", [a], outputs=v),
            "op output": lambda v: open_graph.op("ReLU", [a], outputs=[v]),
            "op name": lambda v: open_graph.op("ReLU", [a], name=v),
            "s64": lambda v: open_graph.op("SoftMax", [a], axis=v),
            "s64s": lambda v: open_graph.op("StaticReshape", [a], shape=v, special_zero=False),
            "f32": lambda v: open_graph.op("LeakyReLU", [a], alpha=v),
            "bool": lambda v: open_graph.op("MatMul", [a, a], transpose_b=v),
            "string": lambda v: open_graph.op("SoftMax", [a], axis=1, mode=v),
            "no attribute": lambda v: open_graph.op("ReLU", [a], axis=v),
            "set_outputs": lambda v: sinter.Graph().set_outputs(v),
            "from_json": sinter.Graph.from_json,
            "from_json graph": lambda v: sinter.Graph.from_json({"graph": v}),
            "from_json mode": lambda v: sinter.Graph.from_json(document(), fpmath=v),
            "from_json int": lambda v: sinter.Graph.from_json(document(), apply_to_int=v),
            "query": graph.query, "partitions": graph.partitions,
            "compile": graph.compile, "compile one": lambda v: graph.compile([v]),
            "set_fpmath": partition.set_fpmath,
            "set_fpmath int": lambda v: partition.set_fpmath("strict", v),
            "partition inputs": lambda v: partition.compile(v),
            "partition outputs": lambda v: partition.compile(None, [v]),
            "partition query": compiled.query, "partition bind": compiled.bind,
            "partition call": compiled, "partition array": lambda v: compiled({x: v}),
            "partition output": lambda v: compiled({x: good, y: v}),
            "partition stream": lambda v: compiled({x: good}, v),
            "run": execution.run, "scratch_bytes": execution.scratch_bytes,
            "whole query": whole.query, "whole bind": whole.bind, "whole call": whole,
            "whole array": lambda v: whole({x: v}), "whole output": lambda v: whole.bind({y: v}),
            "execute": whole.execute, "whole stream": lambda v: whole({x: good}, v),
        }
        for field in ("id", "kind", "name", "attrs", "inputs", "outputs"):
            calls["json " + field] = lambda v, f=field: sinter.Graph.from_json(document(**{f: v}))
        for field in ("id", "dtype", "shape", "stride", "layout_type", "property_type"):
            calls["json tensor " + field] = lambda v, f=field: sinter.Graph.from_json(
                document(tensor={f: v}))
        refused = 0
        for name, call in calls.items():
            for value in self.VALUES:
                try:
                    with warnings.catch_warnings():
                        warnings.simplefilter("error")
                        call(value)
                except sinter.SinterError as error:
                    refused += 1
                    self.assertTrue(error.message)
                except Exception as error:
                    self.fail(f"{name}, given a {type(value).__name__}: {error!r}")
        self.assertGreater(refused, 2000)
        sinter.set_verbose("none")

    def test_other_objects(self):
        """An object of the library in place of one of another kind is never taken for it."""
        graph, x, _ = relu([2, 3])
        (partition,) = graph.partitions()
        objects = {sinter.Engine: sinter.Engine(), sinter.Graph: graph,
                   sinter.Stream: sinter.Stream(1), sinter.Partition: partition,
                   sinter.CompiledPartition: partition.compile(),
                   sinter.CompiledGraph: graph.compile()}
        compiled, good = objects[sinter.CompiledPartition], np.zeros((2, 3), np.float32)
        takes = [(sinter.Engine, lambda v: sinter.Graph(engine=v)),
                 (sinter.Engine, lambda v: sinter.Stream(1, engine=v)), (sinter.Engine, sinter.isa),
                 (sinter.Engine, sinter.constant_cache),
                 (sinter.Engine, lambda v: sinter.invalidate(good, v)),
                 (sinter.Partition, lambda v: graph.compile([v])),
                 (sinter.Stream, lambda v: compiled({x: good}, v)),
                 (sinter.Stream, lambda v: objects[sinter.CompiledGraph]({x: good}, v)),
                 (sinter.Stream, compiled.bind({x: good}).scratch_bytes)]
        for kind, call in takes:
            for other, value in objects.items():
                if other is kind:
                    call(value)
                    continue
                with self.fails("invalid_arguments", other.__name__):
                    call(value)

    def test_copies(self):
        """A copy of an object would name what its original destroys."""
        for value in (sinter.Engine(), sinter.Graph(), sinter.Stream(1)):
            for make in (copy.copy, copy.deepcopy, pickle.dumps):
                with self.fails("invalid_arguments", "neither copied nor pickled"):
                    make(value)

    def test_files(self):
        with self.fails("runtime_error", "none.json"):
            sinter.Graph.from_json(pathlib.Path("none.json"))
        with tempfile.TemporaryDirectory() as folder:
            with self.fails("runtime_error", folder):
                sinter.Graph.from_json(pathlib.Path(folder))
            path = os.path.join(folder, "latin1.json")
            with open(path, "wb") as file:
                file.write(b'{"graph": "\xe9"}')
            with self.fails("invalid_arguments", "JSON"):
                sinter.Graph.from_json(pathlib.Path(path))
        with self.fails("invalid_arguments", "JSON"):
            sinter.Graph.from_json("[" * 10**6)


class Rebinding(python_case.Case):
    def run_rows(self, compiled, x, y, rows, bind_first=()):
        given = {x: np.full((rows, 16), rows, np.float32), y: np.empty((rows, 16), np.float32)}
        for key in bind_first:
            compiled.bind({key: given.pop(key)})
        (out,) = compiled(given)
        np.testing.assert_array_equal(out, np.full((rows, 16), rows))

    def test_outputs(self):
        """An output that is bound is bound anew for other dims of the input, in either order."""
        graph, x, y = relu([None, 16])
        compiled = graph.compile()
        for rows, first in ((7, ()), (3, ()), (5, (y,)), (2, (x,)), (9, (y, x)), (1, (x, y))):
            self.run_rows(compiled, x, y, rows, first)
        compiled.bind({x: np.zeros((4, 16), np.float32)})
        self.assertEqual(compiled.query(y).shape, (4, 16))
        with self.fails("invalid_arguments", "tensor 1: dim 0 is 1, the inputs lead to 4"):
            compiled.execute()
        self.run_rows(compiled, x, y, 4)

    def test_two_inputs(self):
        """Inputs that do not fit together until the last of them is bound."""
        graph = sinter.Graph()
        a, b = (graph.input("f32", [None, 4]) for _ in range(2))
        y = graph.op("Add", [a, b])
        compiled = graph.compile()
        for rows in (6, 2):
            ones, out = np.ones((rows, 4), np.float32), np.empty((rows, 4), np.float32)
            for key, array in ((a, ones), (y, out), (b, ones)):
                compiled.bind({key: array})
            self.assertIs(compiled()[0], out)
            np.testing.assert_array_equal(out, np.full((rows, 4), 2))

    def test_packed_output(self):
        """Bytes stand for codes of 4 bits once the dims of the output follow from the input."""
        graph = sinter.Graph()
        x = graph.input("f32", [None, 8])
        y = graph.op("DynamicQuantize", [x, graph.constant(np.ones(1, np.float32))], "u4")
        compiled = graph.compile()
        for rows in (3, 1, 2):
            values = np.arange(rows * 8, dtype=np.float32).reshape(rows, 8) % 16
            out = np.zeros(rows * 4, np.uint8)
            compiled({y: out, x: values})
            codes = sinter.unpack(sinter.view(out, "u4", (rows, 8)))
            np.testing.assert_array_equal(codes, values)


if __name__ == "__main__":
    unittest.main()
