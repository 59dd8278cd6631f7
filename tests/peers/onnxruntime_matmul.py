#!/usr/bin/env python3
"""Times matmul with 4-bit weights of onnxruntime's CPU MatMulNBits and of Sinter on the same codes,
scales and zero points, pass by pass alternating, and prints medians and ratios. See README.md next
to it."""
import os
import statistics
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import peers

# N x K
SHAPES = {f"{n}x{k}": (n, k) for n, k in ((4096, 4096), (14336, 4096), (4096, 14336), (2880, 2880))}
# Up to FEW_ROWS rows take copies of the weights in turn, which together are COLD times the caches.
FEW_ROWS, COLD, PASSES = 16, 4, 3
# accuracy_level of onnxruntime -> its name here; Sinter's mode -> what it is compared with, and how
# far the largest difference from the f32 product may be
# from the largest result: f32 sums; two int8 limbs; f16 or bf16 operands; one int8 limb
LEVELS = {"f32": 1, "int8": 4}
MODES = {"strict": "f32", "f16": "f32", "bf16": "f32", "int8": "int8"}
CAPS = ("avx2", "avx512_vnni")  # what Sinter's kernels may use
CLASSES = {"f32": 1e-5, "strict": 1e-5, "f16": 1e-3, "bf16": 1e-2, "int8": 2e-2}


class Case:
    """Random weights, as many copies as the caches cannot hold, and what their products with the
    rows of a are."""

    def __init__(self, shape, group, zero_points, rows):
        import numpy as np

        self.n, self.k = SHAPES[shape]
        self.group, self.blocks, self.has_zero_points = group, self.k // group, zero_points
        rng = np.random.default_rng(1)
        self.bytes = self.n * (self.k // 2 + self.blocks * 4 +
                               (self.blocks // 2 if zero_points else 0))
        self.a = rng.random((rows, self.k), np.float32) * 2 - 1
        self.weights = [
            self.draw(rng) for _ in range(COLD * peers.last_level_cache() // self.bytes + 1)
        ]
        self.products = [self.a @ self.decoded(*weights).T for weights in self.weights]

    def draw(self, rng):
        """Codes and zero points, two in a byte, the even one in the low bits; scales."""
        import numpy as np

        zero_points = rng.integers(0, 256,
                                   (self.n,
                                    self.blocks // 2), np.uint8) if self.has_zero_points else None
        return rng.integers(0, 256, (self.n, self.k // 2), np.uint8), (rng.random(
            (self.n, self.blocks), np.float32) + 1) / 64, zero_points

    def decoded(self, codes, scales, zero_points):
        import numpy as np

        def nibbles(packed):
            return np.stack([packed & 15, packed >> 4], axis=-1).reshape(self.n,
                                                                         -1).astype(np.float32)

        zero_points = nibbles(zero_points)[..., None] if self.has_zero_points else 8
        return ((nibbles(codes).reshape(self.n, self.blocks, self.group) - zero_points) *
                scales[..., None]).reshape(self.n, self.k)

    def copies(self, m):
        return len(self.weights) if m <= FEW_ROWS else 1

    def difference(self, outputs):
        """Of the results for all copies: the largest difference relative to the largest result."""
        import numpy as np

        return max(
            float(np.abs(out - ref[:len(out)]).max() / np.abs(ref[:len(out)]).max())
            for out, ref in zip(outputs, self.products))


class Onnx:
    """One MatMulNBits for each copy of the weights, in one session: a run is a pass over all of
    them."""

    def __init__(self, case, copies, level, threads):
        import onnx
        import onnxruntime as ort
        from onnx import TensorProto, helper, numpy_helper

        nodes, constants = [], []
        for i, weights in enumerate(case.weights[:copies]):
            values = dict(zip((f"codes{i}", f"scales{i}", f"zero_points{i}"), weights))
            values[f"codes{i}"] = weights[0].reshape(case.n, case.blocks, case.group // 2)
            values = {name: value for name, value in values.items() if value is not None}
            constants += [numpy_helper.from_array(value, name) for name, value in values.items()]
            nodes.append(
                helper.make_node("MatMulNBits", ["a", *values], [f"out{i}"], domain="com.microsoft",
                                 K=case.k, N=case.n, bits=4, block_size=case.group,
                                 accuracy_level=level))
        inputs = [helper.make_tensor_value_info("a", TensorProto.FLOAT, ["m", case.k])]
        outputs = [
            helper.make_tensor_value_info(f"out{i}", TensorProto.FLOAT, ["m", case.n])
            for i in range(copies)
        ]
        model = helper.make_model(
            helper.make_graph(nodes, "matmul", inputs, outputs, constants), ir_version=10,
            opset_imports=[helper.make_opsetid("", 21),
                           helper.make_opsetid("com.microsoft", 1)])
        onnx.checker.check_model(model)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(model.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])
        self.case, self.copies = case, copies


class Bound:
    """An Onnx with m rows."""

    def __init__(self, onnx, m):
        import numpy as np
        import onnxruntime as ort

        self.session = onnx.session
        self.values = [
            ort.OrtValue.ortvalue_from_numpy(np.zeros((m, onnx.case.n), np.float32))
            for _ in range(onnx.copies)
        ]
        self.binding = self.session.io_binding()
        self.binding.bind_ortvalue_input("a", ort.OrtValue.ortvalue_from_numpy(onnx.case.a[:m]))
        for i, value in enumerate(self.values):
            self.binding.bind_ortvalue_output(f"out{i}", value)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def outputs(self):
        return [value.numpy() for value in self.values]


class Sinter:
    """Executes over all copies of the weights, which are s4 where there are no zero points:
    onnxruntime's is 8 then."""

    def __init__(self, case, m, mode, threads, engine):
        import numpy as np
        from graph_json import Graph

        graph = Graph()
        sides = [graph.input("f32", [case.n, case.blocks], prop="constant")]
        if case.has_zero_points:
            sides.append(graph.input("u4", [case.n, case.blocks], prop="constant"))
        codes = graph.input("u4" if case.has_zero_points else "s4", [case.n, case.k],
                            prop="constant")
        b = graph.op("DynamicDequantize", [codes, *sides], "f32", qtype="per_group", axis=[1],
                     groups=[case.blocks])
        a = graph.input("f32", [m, case.k])
        out = graph.op("MatMul", [a, b], "f32", transpose_a=False, transpose_b=True)
        self.results, self.compiled = [], []
        for packed, scales, zero_points in case.weights[:case.copies(m)]:
            self.results.append(np.zeros((m, case.n), np.float32))
            arrays = {
                a["id"]: case.a[:m],
                codes["id"]: packed if case.has_zero_points else packed ^ 0x88,
                out["id"]: self.results[-1]
            }
            arrays |= {side["id"]: array for side, array in zip(sides, (scales, zero_points))}
            self.compiled.append(peers.Compiled(graph, arrays, mode, threads, engine))

    def run(self):
        for compiled in self.compiled:
            compiled.run()

    def outputs(self):
        return self.results


class Reading:
    """What memory gives: all copies of the weights, read and nothing else."""

    def __init__(self, case, copies, threads):
        import numpy as np

        arrays = [
            array.reshape(-1).view(np.uint64) for weights in case.weights[:copies]
            for array in weights if array is not None
        ]
        self.shares = [[np.array_split(array, threads)[i] for array in arrays]
                       for i in range(threads)]
        self.pool = ThreadPoolExecutor(threads)

    def run(self):
        list(self.pool.map(lambda arrays: [array.max() for array in arrays], self.shares))


def time_all(sides, repeat):
    """Medians of the seconds of a pass. A pass that does not count wakes each side's threads before
    the ones that do."""
    times = {name: [] for name in sides}
    for _ in range(repeat):
        for name, side in sides.items():
            peers.rest()
            side.run()
            for _ in range(PASSES):
                start = time.perf_counter()
                side.run()
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def make_sides(case, engines, options):
    """M -> name -> what runs."""
    numbers = {case.copies(m) for m in options.rows}
    sessions = {
        (name, n): Onnx(case, n, level, options.threads)
        for name, level in LEVELS.items()
        for n in numbers
    }
    return {
        m: {
            "reading": Reading(case, case.copies(m), options.threads)
        } | {
            f"onnxruntime {name}": Bound(sessions[name, case.copies(m)], m)
            for name in LEVELS
        } | {
            f"sinter {mode} {cap}": Sinter(case, m, mode, options.threads, engine)
            for mode in options.modes
            for cap, engine in engines.items()
        }
        for m in options.rows
    }


def report(title, case, m, sides, medians):
    """Prints a line for each side. Returns what is further from the products than its class
    allows."""
    wrong = []
    for name, side in sides.items():
        seconds, kind = medians[name] / case.copies(m), name.partition(" ")[2].split(" ")[0]
        if name == "reading":
            print(
                f"{title} M {m:3} {name:25} {1e3 * seconds:9.3f} ms "
                f"{case.bytes / seconds * 1e-9:6.2f} GB/s",
                flush=True)
            continue
        off = case.difference(side.outputs())
        other = "" if name.startswith("onnxruntime") else "onnxruntime " + MODES[kind]
        ratio = f"x{medians[other] / medians[name]:.2f} of {other}" if other else ""
        print(
            f"{title} M {m:3} {name:25} {1e3 * seconds:9.3f} ms "
            f"{case.bytes / seconds * 1e-9:6.2f} GB/s {2e-9 * m * case.n * case.k / seconds:7.1f} "
            f"GOP/s  "
            f"off by {off:.1e}  {ratio}", flush=True)
        if not off <= CLASSES[kind]:
            wrong.append(f"{title} M {m} {name}: off by {off:.2g}, more than {CLASSES[kind]:.2g}")
    return wrong


def time_case(shape, group, zero_points, engines, options):
    import quiet

    with peers.preparing(options.lock):
        case = Case(shape, group, zero_points, max(options.rows))
        sides = make_sides(case, engines, options)
    medians = quiet.measure(
        lambda: {
            m: time_all(some, options.repeat)
            for m, some in sides.items()
        }, options.lock)
    title = f"{shape} g{group}{'+zp' if zero_points else ''}"
    return [line for m in options.rows for line in report(title, case, m, sides[m], medians[m])]


def parse_options():
    parser = peers.options(__doc__)
    parser.add_argument("--repeat", type=int, default=3, help=f"rounds of {PASSES} passes of each")
    parser.add_argument("--shapes", nargs="+", default=["4096x14336"], choices=SHAPES, help="N x K")
    parser.add_argument("--groups", nargs="+", type=int, default=[128, 32])
    parser.add_argument("--zero-points", nargs="+", default=["without", "with"],
                        choices=["without", "with"])
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4, 16, 512])
    parser.add_argument("--modes", nargs="+", default=["strict", "int8"], choices=MODES)
    parser.add_argument("--caps", nargs="+", choices=CAPS,
                        help="Sinter's instruction sets; those that the machine has")
    return parser.parse_args()


def main():
    options = parse_options()
    peers.enter(options.venv)
    import onnxruntime
    import sinter

    sinter.load(options.library)
    engines = {cap: sinter.Engine(cap) for cap in options.caps or CAPS}
    engines = {cap: engine for cap, engine in engines.items() if engine.isa == cap}
    wrong = []
    print(
        f"onnxruntime {onnxruntime.__version__}, which uses all that the machine has; "
        f"{options.threads} threads, medians; "
        f"OMP_WAIT_POLICY={os.environ.get('OMP_WAIT_POLICY', '')}"
    )
    for shape in options.shapes:
        for group in options.groups:
            if SHAPES[shape][1] % group:
                print(f"{shape}: no groups of {group}")
                continue
            for zero_points in options.zero_points:
                wrong += time_case(shape, group, zero_points == "with", engines, options)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
