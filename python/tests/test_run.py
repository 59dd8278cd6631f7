#!/usr/bin/env python3
"""Graphs built, compiled and run by the Python package: results against formulas in NumPy's
float64, whole and partition by partition, with dims that stay open, in each mode.

test_run.py, with SINTER_LIBRARY"""
import gc
import unittest

import python_case

python_case.enter()

import ml_dtypes
import numpy as np

import sinter

N, K, G = 40, 96, 32  # groups of G along K


def normal(rng, *shape):
    return rng.standard_normal(shape).astype(np.float32)


def int4_weights(rng):
    """Codes, scales, and the values that they mean."""
    codes = rng.integers(-8, 8, (N, K))
    scales = (rng.random((N, K // G)) / 8).astype(np.float16)
    return sinter.pack(codes, "s4"), scales, codes * np.repeat(scales.astype(np.float64), G, 1)


def product(mode, codes, scales, rows=None, **options):
    """A graph x times codes and scales, and its x."""
    graph = sinter.Graph(fpmath=mode, apply_to_int=mode != "strict", **options)
    x = graph.input("f32", [rows, K])
    w = graph.op("DynamicDequantize", [graph.constant(codes), graph.constant(scales)], "f32",
                 qtype="per_group", group_shape=[1, G])
    graph.op("MatMul", [x, w], transpose_b=True)
    return graph, x


def bound_of(mode, a, w):
    """The most that a mode may be off: f32 sums of K terms; operands of 8 bits on top; or
    activations that are s8 in groups, off by half a step of 1/127 of the largest one."""
    terms = np.abs(a) @ np.abs(w).T
    bound = K * 2.0**-23 * terms
    if mode == "bf16":
        bound += 2.02 * 2.0**-8 * terms
    if mode == "int8":
        largest = np.abs(a.reshape(len(a), -1, G)).max(2)
        bound += 1.01 / 254 * largest @ np.abs(w.reshape(N, -1, G)).sum(2).T
    return bound


class MatMul(python_case.Case):
    def setUp(self):
        self.rng = np.random.default_rng(1)

    def test_quantised(self):
        codes, scales, w = int4_weights(self.rng)
        for mode in ("strict", "bf16", "int8"):
            graph, x = product(mode, codes, scales)
            compiled = graph.compile()
            for rows in (1, 3, 16, 70):
                a = normal(self.rng, rows, K)
                (y,) = compiled({x: a})
                a = a.astype(np.float64)
                self.near(y, a @ w.T, bound_of(mode, a, w))
            self.assertIn(f"fpmath {mode}", compiled.report())

    def test_mx(self):
        """f4_e2m1 codes with e8m0 scales, both decoded by ml_dtypes."""
        values = self.rng.integers(0, 16, (N, K)).astype(np.uint8).view(ml_dtypes.float4_e2m1fn)
        scales = self.rng.integers(120, 132, (N, K // G)).astype(np.uint8).view(
            ml_dtypes.float8_e8m0fnu)
        w = values.astype(np.float64) * np.repeat(scales.astype(np.float64), G, 1)
        graph, x = product("strict", sinter.pack(values, "f4_e2m1"), scales)
        a = normal(self.rng, 5, K)
        (y,) = graph.compile()({x: a})
        a = a.astype(np.float64)
        self.near(y, a @ w.T, bound_of("strict", a, w))

    def test_bf16_in_and_out(self):
        graph = sinter.Graph()
        x, w = (graph.input("bf16", shape) for shape in ([None, K], [K, N]))
        y = graph.op("MatMul", [x, w])
        self.assertEqual(graph.query(y).dtype, "bf16")
        a, b = (normal(self.rng, *s).astype(ml_dtypes.bfloat16) for s in ((7, K), (K, N)))
        (found,) = graph.compile()({x: a, w: b})
        self.assertEqual(found.dtype, ml_dtypes.bfloat16)
        a, b = a.astype(np.float64), b.astype(np.float64)
        self.near(found, a @ b, K * 2.0**-23 * np.abs(a) @ np.abs(b) + 2.0**-8 * np.abs(a @ b))

    def test_scalar_and_epilogue(self):
        graph = sinter.Graph()
        x, w = graph.input("f32", [4, K]), graph.input("f32", [K, N])
        factor = graph.scalar("f32")
        y = graph.op("Multiply", [graph.op("MatMul", [x, w]), factor])
        graph.op("ReLU", [y], name="last")
        (partition,) = graph.partitions()
        self.assertEqual((partition.pattern, len(partition.ops)), ("matmul", 3))
        a, b = normal(self.rng, 4, K), normal(self.rng, K, N)
        compiled = graph.compile()
        for number in (1.5, -2, np.float32(0.25), np.array([3], np.float32)):
            (found,) = compiled({x: a, w: b, factor: number})
            exact = a.astype(np.float64) @ b.astype(np.float64) * float(np.squeeze(number))
            self.near(found, np.maximum(exact, 0),
                      (K + 2) * 2.0**-23 * 3 * np.abs(a.astype(np.float64)) @ np.abs(b))


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


class Attention(python_case.Case):
    HEADS, D, MOST = 3, 64, 200

    def build(self, graph):
        """Queries over an s8 cache in groups of G, tokens open; its tensors."""
        h, d = self.HEADS, self.D
        q = graph.input("f32", [1, h, None, d])
        ports = [graph.input(dtype, [1, h, None, n]) for dtype, n in
                 (("s8", d), ("f16", d // G)) * 2]
        factor = graph.scalar("f32")
        k, v = (graph.op("DynamicDequantize", pair, "f32", qtype="per_group",
                         group_shape=[1, 1, 1, G]) for pair in (ports[:2], ports[2:]))
        scores = graph.op("Multiply", [graph.op("MatMul", [q, k], transpose_b=True), factor])
        p = graph.op("SoftMax", [scores], axis=-1, mode="inf_as_zero")
        return q, ports, factor, graph.op("MatMul", [p, v])

    def test_growing_cache(self):
        """One compile for all lengths; K and V are the first tokens of larger arrays."""
        rng, h, d = np.random.default_rng(2), self.HEADS, self.D
        graph = sinter.Graph()
        q, ports, factor, _ = self.build(graph)
        (partition,) = graph.partitions()
        self.assertEqual(partition.pattern, "sdpa")
        self.assertIn("SoftMax", partition.explain())
        compiled = graph.compile()
        self.assertEqual(compiled.outputs[0].shape[0:2], (1, h))
        caches = [rng.integers(-127, 128, (1, h, self.MOST, d)).astype(np.int8)
                  if i % 2 == 0 else (rng.random((1, h, self.MOST, d // G)) / 64).astype(np.float16)
                  for i in range(4)]
        for rows, tokens in ((1, 1), (1, 77), (5, 131), (1, self.MOST)):
            queries = normal(rng, 1, h, rows, d)
            now = [cache[:, :, :tokens] for cache in caches]
            (found,) = compiled({q: queries, factor: d**-0.5, **dict(zip(ports, now))})
            k, v = (now[i] * np.repeat(now[i + 1].astype(np.float64), G, 3) for i in (0, 2))
            p = softmax(queries.astype(np.float64) @ k.swapaxes(2, 3) * d**-0.5)
            self.near(found, p @ v, 1e-4 * (p @ np.abs(v)) + 1e-7)

    def test_cache_written_in_place(self):
        """ScatterRows into the array of the cache itself, and into a new one."""
        graph = sinter.Graph()
        cache = graph.input("f32", [6, 4])
        rows, slots = graph.input("f32", [None, 4]), graph.input("s32", [None])
        after = graph.op("ScatterRows", [cache, slots, rows], axis=0)
        compiled = graph.compile()
        self.assertEqual(compiled.inplace, {after.id: cache.id})
        memory = np.zeros((6, 4), np.float32)
        new = np.arange(8, dtype=np.float32).reshape(2, 4) + 1
        given = {cache: memory, rows: new, slots: np.array([4, 1], np.int32)}
        (copy,) = compiled(given)
        self.assertFalse(np.shares_memory(copy, memory))
        self.assertFalse(memory.any())
        (same,) = compiled({**given, after: memory})
        self.assertIs(same, memory)
        wanted = np.zeros((6, 4))
        wanted[[4, 1]] = new
        np.testing.assert_array_equal(memory, wanted)
        np.testing.assert_array_equal(copy, wanted)
        with self.fails("invalid_arguments", "6"):
            compiled({slots: np.array([6, 1], np.int32)})


class Partitions(python_case.Case):
    def test_one_by_one(self):
        """Each partition on its own gives what the whole gives, which is the formula."""
        rng = np.random.default_rng(3)
        x, gamma, w = normal(rng, 6, K), normal(rng, K), normal(rng, N, K)

        def build(policy):
            graph = sinter.Graph()
            port = graph.input("f32", [None, K])
            y = graph.op("RMSNorm", [port, graph.constant(gamma)], epsilon=1e-5)
            y = graph.op("MatMul", [y, graph.constant(w)], transpose_b=True)
            graph.op("SoftMax", [y], axis=-1)
            return graph, port, graph.partitions(policy)

        exact = x.astype(np.float64)
        exact = exact / np.sqrt((exact**2).mean(1, keepdims=True) + 1e-5) * gamma
        exact = softmax(exact @ w.astype(np.float64).T)
        for policy in ("fusion", "debug"):
            graph, port, partitions = build(policy)
            self.assertEqual([p.id for p in partitions], list(range(len(partitions))))
            self.assertEqual([op for p in partitions for op in p.ops], [0, 1, 2])
            tensors = {port.id: x}
            for partition in partitions:
                self.assertTrue(partition.supported)
                compiled = partition.compile()
                reads = {t.id: tensors[t.id] for t in compiled.inputs if t.id in tensors}
                execution = compiled.bind(reads)
                self.assertGreaterEqual(execution.scratch_bytes(), 0)
                execution.run()
                tensors |= dict(zip((t.id for t in compiled.outputs), execution.outputs))
            last = tensors[compiled.outputs[0].id]
            self.near(last, exact, 1e-4 * exact)
            (whole,) = graph.compile(partitions)({port: x})
            np.testing.assert_array_equal(whole, last)
        self.assertEqual(len(partitions), 3)
        self.assertTrue(graph.explain().startswith("partition 0\npattern"))

    def test_arena(self):
        graph = sinter.Graph()
        x = graph.input("f32", [None, K])
        y = graph.op("SoftMax", [x], axis=-1)
        graph.op("MatMul", [y, graph.constant(np.eye(K, dtype=np.float32))])
        graph.partitions("debug")
        compiled = graph.compile()
        compiled({x: np.zeros((5, K), np.float32)})
        n_bytes, (tensor,) = compiled.arena()
        self.assertEqual((tensor.id, tensor.bytes, tensor.first, tensor.last),
                         (y.id, 5 * K * 4, 0, 1))
        self.assertGreaterEqual(n_bytes, tensor.offset + tensor.bytes)
        seen = np.empty((5, K), np.float32)
        compiled.bind({y: seen})
        compiled({})
        self.near(seen, np.full((5, K), 1 / K), 1e-8)

    def test_modes(self):
        rng = np.random.default_rng(4)
        codes, scales, _ = int4_weights(rng)
        graph, _ = product("strict", codes, scales)
        (partition,) = graph.partitions()
        self.assertEqual(partition.fpmath, ("strict", False))
        before = partition.compile()
        partition.set_fpmath("int8", True)
        self.assertEqual(partition.fpmath, ("int8", True))
        self.assertEqual(before.fpmath, ("strict", False))
        self.assertEqual(partition.compile().fpmath, ("int8", True))
        with self.fails("invalid_arguments", "did you mean int8"):
            partition.set_fpmath("int9")

    def test_dims_at_compile(self):
        """A partition whose dims are open, compiled for known ones."""
        graph = sinter.Graph()
        x = graph.input("f32", [None, 4])
        graph.op("ReLU", [x])
        (partition,) = graph.partitions()
        known = sinter.Graph().tensor("f32", [3, 4], id=x.id)
        compiled = partition.compile(inputs=[known])
        self.assertEqual(compiled.outputs[0].shape, (3, 4))
        with self.fails("invalid_arguments", "compiled for 3"):
            compiled({x: np.zeros((2, 4), np.float32)})


class Sequences(python_case.Case):
    def layer(self, rng):
        """A norm from x to y, and a product with int4 weights from a to z, compiled alone."""
        codes, scales, w = int4_weights(rng)
        graph = sinter.Graph()
        x = graph.input("f32", [None, K])
        gamma = rng.random(K).astype(np.float32)
        y = graph.op("RMSNorm", [x, graph.constant(gamma)], epsilon=1e-5)
        other, a = product("strict", codes, scales)
        parts = [partition.compile() for g in (graph, other) for partition in g.partitions()]
        return (x, y, a, parts[1].outputs[0]), parts, gamma, w

    def test_runs_in_order(self):
        """Bits of executes one by one; other rows and dims between runs; arrays stay alive."""
        rng = np.random.default_rng(6)
        (x, y, a, z), parts, gamma, w = self.layer(rng)
        first, last = np.zeros((1, K), np.float32), np.zeros((1, N), np.float32)
        between = np.zeros((1, K), np.float32)
        norm, product = parts[0].bind({x: first, y: between}), parts[1].bind({a: between, z: last})
        sequence = sinter.Sequence([norm])
        sequence.append(product)
        del norm, product
        gc.collect()
        rows = normal(rng, 1, K)
        for _ in range(3):
            first[:] = rows
            sequence.run()
            (alone,) = parts[1]({a: parts[0]({x: rows})[0]})
            np.testing.assert_array_equal(last, alone)
            rows = normal(rng, 1, K)
        sinter.Sequence().run()

        norm, product = parts[0].bind({x: first, y: between}), parts[1].bind({a: between, z: last})
        sequence = sinter.Sequence((norm, product, norm))
        for count in (5, 1, 70, 2):
            rows = normal(rng, count, K)
            normed, out = (np.zeros((count, n), np.float32) for n in (K, N))
            norm.bind({x: rows, y: normed})
            product.bind({a: normed})
            with self.fails("invalid_shape", "element 1"):
                sequence.run(sinter.Stream(2))
            product.bind({z.id: out})
            sequence.run(sinter.Stream(2))
            self.assertIs(product.outputs[0], out)
            exact = rows.astype(np.float64)
            exact = exact / np.sqrt((exact**2).mean(1, keepdims=True) + 1e-5) * gamma @ w.T
            self.near(out, exact, 1e-5 * np.abs(exact).max())

    def test_wrong(self):
        (x, y, _, _), parts, _, _ = self.layer(np.random.default_rng(7))
        rows = np.zeros((2, K), np.float32)
        norm = parts[0].bind({x: rows, y: np.ones((2, K), np.float32)})
        for wrong, status, words in (
                ({x: np.zeros((2, K))}, "invalid_data_type", "input tensor 0 is f32"),
                ({x: np.zeros(K, np.float32)}, "invalid_arguments", "2 dims, not 1"),
                ({99: rows}, "invalid_arguments", "tensor 99 is no port of the partition"),
                ({y: 2.0}, "invalid_arguments", "takes an array or a view")):
            with self.fails(status, words):
                norm.bind(wrong)
        norm.run()
        self.assertFalse(norm.outputs[0].any())
        with self.fails("invalid_arguments", "sinter.Execution, not Engine"):
            sinter.Sequence([sinter.Engine()])

    def test_tiles(self):
        """An input in tiles is bound anew only with the same dims."""
        rng = np.random.default_rng(8)
        w = [rng.integers(-8, 8, (32, 64)).astype(np.int8) for _ in range(2)]
        tiles = [sinter.weights(one, "codes") for one in w]
        graph = sinter.Graph()
        x, codes = graph.input("f32", [1, 32]), sinter.Tensor(
            7, "s8", (32, 64), layout_id=tiles[0].layout_id)
        scales = graph.constant(sinter.weights(np.ones((1, 64), np.float32), "values"))
        graph.op("MatMul", [x, graph.op("DynamicDequantize", [codes, scales], "f32",
                                        qtype="per_group", group_shape=[32, 1])])
        (partition,) = graph.partitions()
        rows = rng.integers(-8, 8, (1, 32)).astype(np.float32)
        execution = partition.compile().bind({x: rows, 7: tiles[0]})
        for i in (0, 1, 0):
            execution.bind({7: tiles[i]})
            execution.run()
            np.testing.assert_array_equal(execution.outputs[0], rows @ w[i])
        with self.fails("invalid_arguments"):
            execution.bind({7: sinter.weights(w[0][:16], "codes")})
        execution.run()
        np.testing.assert_array_equal(execution.outputs[0], rows @ w[0])


class Schemas(python_case.Case):
    def test_names(self):
        self.assertIn("strict", sinter.fpmath_modes())
        self.assertIn(sinter.isa(), sinter.cpu_isas())
        for kind in sinter.op_kinds():
            schema = sinter.op_schema(kind)
            self.assertLessEqual(*schema.inputs)
            for attr in schema.attributes:
                self.assertIsInstance(attr.required, bool)
        (axis,) = (a for a in sinter.op_schema("SoftMax").attributes if a.name == "axis")
        self.assertEqual((axis.kind, axis.required), ("s64", False))

    def test_cap(self):
        engine = sinter.Engine(max_isa="generic")
        self.assertEqual(engine.isa, "generic")
        rng = np.random.default_rng(5)
        codes, scales, w = int4_weights(rng)
        graph, x = product("strict", codes, scales, engine=engine)
        a = normal(rng, 3, K)
        compiled = graph.compile()
        (y,) = compiled({x: a})
        self.near(y, a.astype(np.float64) @ w.T, bound_of("strict", a.astype(np.float64), w))
        self.assertIn("isa generic", compiled.report())


class Errors(python_case.Case):
    def test_ops(self):
        graph = sinter.Graph()
        x = graph.input("f32", [2, 3])
        with self.fails("invalid_arguments", "MatMool", "did you mean MatMul"):
            graph.op("MatMool", [x, x])
        with self.fails("invalid_arguments", "transpose_c", "did you mean"):
            graph.op("MatMul", [x, x], transpose_c=True)
        with self.fails("invalid_graph_op", "op 0"):
            graph.op("MatMul", [x])
        with self.fails("invalid_graph_op", "op 0"):
            graph.op("ReLU", [x], axis=1)
        with self.fails("invalid_data_type", "op 0"):
            graph.op("ReLU", [graph.input("s8", [2])], "s8")
        with self.fails("invalid_arguments", "is bool, not 'yes'"):
            graph.op("MatMul", [x, x], transpose_b="yes")
        with self.fails("invalid_arguments", "is s64[], not"):
            graph.op("StaticReshape", [x], shape=[1.5], special_zero=False)
        with self.fails("invalid_arguments", "an input is a Tensor"):
            graph.op("ReLU", [np.zeros(3, np.float32)], "f32")
        with self.fails("invalid_arguments", "needs a dtype"):
            graph.op("DynamicDequantize", [graph.input("s8", [2]), x])
        with self.fails("invalid_arguments", "property"):
            graph.tensor("f32", [2], property="frozen")
        with self.fails("invalid_arguments", "at most 12 dims"):
            graph.input("f32", [1] * 13)
        y = graph.op("ReLU", [x])
        self.assertEqual(graph.query(y).shape, (2, 3))
        with self.fails("invalid_arguments"):
            graph.op("ReLU", [y])

    def test_graphs(self):
        graph = sinter.Graph()
        a, b = graph.input("f32", [2]), graph.input("f32", [2])
        graph.op("ReLU", [a], outputs=[b])
        graph.op("ReLU", [b], outputs=[a])
        with self.fails("invalid_graph", "cycle"):
            graph.finalize()
        graph = sinter.Graph()
        with self.fails("invalid_shape", "op 0 (MatMul)", "over 3 elements"):
            graph.op("MatMul", [graph.input("f32", [2, 3]), graph.input("f32", [4, 5])])
        graph.set_outputs(9)
        with self.fails("invalid_graph", "9"):
            graph.compile()
        with self.fails("invalid_arguments", "is none of fusion, debug"):
            sinter.Graph().partitions("all")

    def test_unsupported(self):
        graph = sinter.Graph()
        x = graph.input("f32", [2, 3])
        graph.op("ReLUBackward", [x, x])
        (partition,) = graph.partitions()
        self.assertFalse(partition.supported)
        with self.fails("unimplemented", "ReLUBackward"):
            partition.compile()
        with self.fails("unimplemented", "ReLUBackward"):
            graph.compile()

    def test_error_keeps_its_parts(self):
        import pickle
        error = pickle.loads(pickle.dumps(sinter.SinterError("invalid_shape", "tensor 3")))
        self.assertEqual((error.status, error.message), ("invalid_shape", "tensor 3"))
        self.assertEqual(str(error), "invalid_shape: tensor 3")


if __name__ == "__main__":
    unittest.main()
