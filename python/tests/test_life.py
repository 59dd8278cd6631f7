#!/usr/bin/env python3
"""How long things live, and who may use them at once: arrays stay while they are bound, objects go
in any order, constants that go are forgotten, threads execute side by side; the library is found or
the error says where it was looked for; JSON.

test_life.py, with SINTER_LIBRARY"""
import gc
import glob
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import unittest
import weakref

import python_case

python_case.enter()

import numpy as np

import sinter

N, K, G = 48, 64, 32


def product(engine=None):
    """x times a constant w of s8 with scales of 1. The integer kernels want a copy of w that is
    contiguous along K, from the constant cache."""
    graph = sinter.Graph(fpmath="int8", apply_to_int=True, engine=engine)
    x = graph.input("f32", [None, K])
    w = graph.tensor("s8", [K, N], property="constant")
    scales = graph.constant(np.ones((K // G, N), np.float32))
    decoded = graph.op("DynamicDequantize", [w, scales], "f32", qtype="per_group",
                       group_shape=[G, 1])
    graph.op("MatMul", [x, decoded])
    return graph, x, w


def codes(rng):
    return rng.integers(-127, 128, (K, N)).astype(np.int8)


def activation(rng, rows):
    """Integers whose largest one in each 16 is 127, so that mode int8 quantises them without an
    error: kernels for few rows have a scale of their own for as few."""
    x = rng.integers(-127, 128, (rows, K)).astype(np.float32)
    x[:, ::16] = 127
    return x


def right(case, found, x, w):
    """What a scale of 1 / 127 * 127 leaves open, and sums in f32."""
    x, w = x.astype(np.float64), w.astype(np.float64)
    case.near(found, x @ w, 2.0**-20 * np.abs(x) @ np.abs(w))


class Lifetime(python_case.Case):
    def setUp(self):
        self.rng = np.random.default_rng(1)

    def test_arrays_live_while_bound(self):
        graph, x, w = product()
        weights, rows = codes(self.rng), activation(self.rng, 3)
        (partition,) = graph.partitions()
        compiled, cut = graph.compile(), partition.compile()
        compiled.bind({x: rows, w: weights})
        execution = cut.bind({x: rows, w: weights})
        gone = [weakref.ref(weights), weakref.ref(rows)]
        copies = rows.copy(), weights.copy()
        del weights, rows
        gc.collect()
        # What would have taken the memory if it were free.
        fill = [np.full((K, N), 9, np.int8) for _ in range(50)]
        execution.run()
        right(self, compiled()[0], *copies)
        right(self, execution.outputs[0], *copies)
        self.assertTrue(all(ref() is not None for ref in gone))
        del execution, cut, compiled, fill
        gc.collect()
        self.assertTrue(all(ref() is None for ref in gone))

    def test_rebinding_lets_go(self):
        graph, x, w = product()
        compiled = graph.compile()
        rows = activation(self.rng, 3)
        compiled.bind({x: rows, w: codes(self.rng)})
        gone = weakref.ref(rows)
        compiled.bind({x: rows + 1})
        del rows
        self.assertIsNone(gone())

    def test_constants_that_go(self):
        """New weights where old ones were are not mistaken for them, whole and by partition."""
        graph, x, w = product()
        rows = activation(self.rng, 70)
        (partition,) = graph.partitions()
        cut, memory = partition.compile(), set()
        for compiled in (graph.compile(), cut):
            for _ in range(20):
                weights = codes(self.rng)
                memory.add(weights.ctypes.data)
                (found,) = compiled({x: rows, w: weights})
                right(self, found, rows, weights)
                del weights
        self.assertLess(len(memory), 40)
        if sinter.isa() != "generic":  # it has no integer kernels
            self.assertGreater(sinter.constant_cache().packed, 0)
        del graph, partition, cut, compiled
        gc.collect()
        self.assertEqual(sinter.constant_cache().entries, 0)

    def test_invalidate(self):
        engine = sinter.Engine()
        graph, x, w = product(engine)
        weights, rows = codes(self.rng), activation(self.rng, 70)
        compiled = graph.compile()
        compiled.bind({w: weights})
        for _ in range(2):
            right(self, compiled({x: rows})[0], rows, weights)
            weights[:] = codes(self.rng)
            engine.invalidate(weights)
        packed = engine.constant_cache().packed
        if sinter.isa() != "generic":
            self.assertGreater(packed, 1)
        engine.set_constant_cache_budget(0)
        compiled()
        self.assertEqual(engine.constant_cache().packed, packed)

    def test_any_order(self):
        """Objects are dropped in each order; those that are left go on working."""
        weights, rows = codes(self.rng), activation(self.rng, 4)
        names = ("engine", "graph", "partition", "cut", "whole", "execution", "stream")
        orders = list(itertools.permutations(names))
        for order in orders[::97]:
            engine = sinter.Engine()
            graph, x, w = product(engine)
            (partition,) = graph.partitions()
            objects = {"engine": engine, "graph": graph, "partition": partition,
                       "cut": partition.compile(), "whole": graph.compile(),
                       "stream": sinter.Stream(2, engine=engine)}
            objects["execution"] = objects["cut"].bind({x: rows, w: weights})
            objects["whole"].bind({w: weights})
            del engine, graph, partition
            for name in order:
                del objects[name]
                stream = objects.get("stream")
                if "whole" in objects:
                    right(self, objects["whole"]({x: rows}, stream)[0], rows, weights)
                if "execution" in objects:
                    objects["execution"].outputs[0][:] = 0
                    objects["execution"].run(stream)
                    right(self, objects["execution"].outputs[0], rows, weights)

    def test_results_are_new_arrays(self):
        graph, x, w = product()
        compiled, weights = graph.compile(), np.eye(K, N, dtype=np.int8)
        first = compiled({x: np.ones((1, K), np.float32), w: weights})[0]
        second = compiled({x: np.zeros((2, K), np.float32)})[0]
        self.assertEqual((round(first.min()), second.max(), second.shape), (1, 0, (2, N)))


class Threads(python_case.Case):
    def run_all(self, *targets):
        """Runs them in a thread each; an error in one is one here."""
        errors = []

        def guarded(target):
            try:
                target()
            except BaseException as error:
                errors.append(error)

        threads = [threading.Thread(target=guarded, args=(target,)) for target in targets]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        if errors:
            raise errors[0]

    def test_streams(self):
        """Two threads with a stream each over one compiled partition; then one stream for both, and
        one compiled graph, where they wait for each other."""
        graph, x, w = product()
        weights = codes(np.random.default_rng(2))
        (partition,) = graph.partitions()
        cut, whole = partition.compile(), graph.compile()
        whole.bind({w: weights})
        shared = sinter.Stream(2)

        def work(seed, run, stream):
            rng = np.random.default_rng(seed)
            for i in range(150):
                rows = activation(rng, 1 + i % 40)
                right(self, run({x: rows}, stream)[0], rows, weights)

        def of_partition(arrays, stream):
            return cut({**arrays, w: weights}, stream)

        for run, streams in ((of_partition, (sinter.Stream(1), sinter.Stream(2))),
                             (of_partition, (shared, shared)), (whole, (None, None)),
                             (whole, (shared, None))):
            self.run_all(*(lambda i=i, s=s: work(i, run, s) for i, s in enumerate(streams)))

    def test_default_streams(self):
        streams = []
        self.run_all(*[lambda: streams.append(sinter.default_stream())] * 2)
        self.assertIsNot(streams[0], streams[1])
        self.assertIs(sinter.default_stream(), sinter.default_stream())

    def test_threads_of_a_stream(self):
        self.assertEqual(sinter.Stream(1).threads, 1)
        self.assertGreaterEqual(sinter.default_stream().threads, 1)
        with self.fails("invalid_arguments"):
            sinter.Stream(-1)

    def test_errors_of_threads(self):
        """Each thread sees the message of its own error."""
        graph, x, w = product()
        compiled = graph.compile()
        wrong = {"dim 1 is 3": np.zeros((1, 3), np.float32), "3 dims": np.zeros((1, 1, K), "f4")}

        def work(message, array):
            for _ in range(200):
                with self.fails("invalid_arguments", message):
                    compiled.bind({x: array})

        self.run_all(*(lambda m=m, a=a: work(m, a) for m, a in wrong.items()))


class Loading(python_case.Case):
    def python(self, program, library):
        environment = {k: v for k, v in os.environ.items() if not k.startswith("SINTER_")}
        environment |= {"PYTHONPATH": os.path.join(python_case.ROOT, "python")}
        environment |= {"SINTER_LIBRARY": library} if library else {}
        return subprocess.run([sys.executable, "-B", "-c", program], env=environment, text=True,
                              capture_output=True, check=False)

    def test_not_found(self):
        program = ("import sinter\ntry:\n    sinter.version()\n"
                   "except sinter.SinterError as error:\n    print(error)")
        said = self.python(program, "").stdout
        if not said.startswith("runtime_error"):
            self.skipTest("the system's loader finds a libsinter.so")
        for place in ("SINTER_LIBRARY", os.path.join("sinter", "libsinter.so"),
                      "in the package", "libsinter.so.0", "by the system's loader"):
            self.assertIn(place, said)
        said = self.python(program, "none/libsinter.so").stdout
        self.assertIn("none/libsinter.so (named by SINTER_LIBRARY)", said)
        self.assertNotIn("in the package", said)
        with tempfile.NamedTemporaryFile(suffix=".so") as file:
            self.assertIn(file.name, self.python(program, file.name).stdout)
        other = self.python(program, "libm.so.6").stdout
        self.assertIn("is no Sinter, or another version", other)

    def test_load(self):
        library = os.environ["SINTER_LIBRARY"]
        done = self.python(f"import sinter\nprint(sinter.load({library!r}) == {library!r}, "
                           f"sinter.load({library!r}) == {library!r}, sinter.version())", "")
        self.assertEqual((done.stdout.split(), done.stderr),
                         (["True", "True", sinter.version()], ""))
        with self.fails("invalid_arguments", "is loaded already"):
            sinter.load("other.so")

    def test_exit(self):
        """A program may end while objects live and threads of the library wait."""
        program = ("import numpy as np, sinter\ng = sinter.Graph()\nx = g.input('f32', [64, 64])\n"
                   "g.op('MatMul', [x, x])\nc = g.compile()\na = np.ones((64, 64), 'f4')\n"
                   "print(c({x: a}, sinter.Stream(2, all_threads=True))[0][0, 0])")
        done = self.python(program, os.environ["SINTER_LIBRARY"])
        self.assertEqual((done.returncode, done.stdout, done.stderr), (0, "64.0\n", ""))


class Json(python_case.Case):
    def test_models(self):
        """Every graph of models/patterns loads, with its ops and tensors, and comes back as it was
        read."""
        paths = sorted(glob.glob(os.path.join(python_case.ROOT, "models", "patterns", "*.json")))
        self.assertGreater(len(paths), 50)
        for path in paths:
            graph = sinter.Graph.from_json(pathlib.Path(path))
            with open(path, encoding="utf-8") as file:
                loaded = json.load(file)
            self.assertLessEqual(sum(len(p.ops) for p in graph.partitions()),
                                 len(loaded["graph"]))
            again = json.loads(graph.to_json())
            ops = [{op["id"]: op for op in one["graph"]} for one in (again, loaded)]
            self.assertEqual(ops[0].keys(), ops[1].keys())
            for number, one in ops[0].items():
                other = ops[1][number]
                self.assertEqual(one["kind"], other["kind"])
                for key, attr in other.get("attrs", {}).items():
                    self.same(one["attrs"][key]["value"], attr["value"])
                for side in ("inputs", "outputs"):
                    for a, b in zip(one[side], other[side]):
                        self.assertEqual((a["id"], a["dtype"]), (b["id"], b["dtype"]))
                        self.assertEqual(a["shape"], b.get("shape", a["shape"]), path)
            self.assertEqual(json.loads(sinter.Graph.from_json(again).to_json()), again)

    def same(self, one, other):
        """Values of an attribute; an integer may come back as a list of one."""
        if isinstance(one, list) or isinstance(other, list):
            one, other = (v if isinstance(v, list) else [v] for v in (one, other))
            self.assertEqual(len(one), len(other))
            for a, b in zip(one, other):
                self.same(a, b)
        elif isinstance(one, float):
            self.assertEqual(np.float32(one), np.float32(other))
        else:
            self.assertEqual(one, other)

    def test_built(self):
        """A graph of tools/graph_json.py, its mode replaced."""
        import graph_json

        built = graph_json.Graph()
        x = built.input("f32", [3, 4])
        y = built.op("ReLU", [x], "f32")
        graph = sinter.Graph.from_json(built.output(y).text(), fpmath="bf16")
        self.assertEqual(graph.partitions()[0].fpmath, ("bf16", False))
        values = np.arange(12, dtype=np.float32).reshape(3, 4) - 6
        (found,) = graph.compile()({x["id"]: values})
        np.testing.assert_array_equal(found, np.maximum(values, 0))

    def test_wrong(self):
        for text, message in (("{", "JSON"), ("[]", "JSON"), ("{}", "graph"),
                              ('{"graph": [{"id": 0}]}', "kind"),
                              ('{"graph": [{"id": 0, "kind": "ReLU", "inputs": [{"id": 1}]}]}',
                               "dtype"), ('{"graph": [{"id": 0, "kind": "Foo"}]}', "Foo")):
            with self.fails("invalid_arguments", message):
                sinter.Graph.from_json(text)


if __name__ == "__main__":
    unittest.main()
