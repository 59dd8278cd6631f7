#!/usr/bin/env python3
"""Times LayerNormalization, SkipSimplifiedLayerNormalization and RotaryEmbedding of onnxruntime's
CPU provider and of Sinter on the same rows, alternating, and prints medians and ratios. See
README.md next to it."""
import statistics
import sys
import time

import peers

COLUMNS, HEADS, HEAD = 4096, 32, 128
OPS = ("layer_norm", "skip_rms_norm", "rotary")
MOST_OFF = 1e-5  # of the largest difference, relative to the largest result


class Case:
    """The arrays of one op with so many rows, by name, and what the results must be."""

    def __init__(self, op, rows):
        import numpy as np

        rng = np.random.default_rng(1)

        def draw(*shape):
            return rng.random(shape, np.float32) * 2 - 1

        self.op, self.rows = op, rows
        if op == "rotary":
            x, angle = draw(1, HEADS, rows, HEAD), draw(rows, HEAD // 2)
            cos, sin = np.cos(angle), np.sin(angle)
            a, b = x[..., :HEAD // 2], x[..., HEAD // 2:]
            self.inputs = {
                "x": x,
                "positions": np.arange(rows, dtype=np.int64)[None],
                "cos": cos,
                "sin": sin
            }
            self.wanted = [np.concatenate([a * cos - b * sin, b * cos + a * sin], axis=-1)]
        elif op == "layer_norm":
            x, gamma, beta = draw(rows, COLUMNS), draw(COLUMNS), draw(COLUMNS)
            self.inputs = {"x": x, "gamma": gamma, "beta": beta}
            self.wanted = [(x - x.mean(1, keepdims=True)) /
                           np.sqrt(x.var(1, keepdims=True) + 1e-5) * gamma + beta]
        else:
            x, y, gamma = draw(1, rows, COLUMNS), draw(1, rows, COLUMNS), draw(COLUMNS)
            total = x + y
            scale = 1 / np.sqrt((total**2).mean(-1, keepdims=True) + 1e-5)
            self.inputs = {"x": x, "y": y, "gamma": gamma}
            self.wanted = [total * scale * gamma, total]
        self.bytes = sum(a.nbytes for a in [*self.inputs.values(), *self.wanted])

    def difference(self, results):
        import numpy as np

        return max(
            float(np.abs(got.reshape(want.shape) - want).max() / np.abs(want).max())
            for got, want in zip(results, self.wanted))


class Onnx:
    def __init__(self, case, threads):
        import numpy as np
        import onnxruntime as ort
        from onnx import TensorProto, helper

        types = {"int64": TensorProto.INT64, "float32": TensorProto.FLOAT}
        inputs = [
            helper.make_tensor_value_info(name, types[str(a.dtype)], a.shape)
            for name, a in case.inputs.items()
        ]
        names = ["out", "sum"][:len(case.wanted)]
        outputs = [
            helper.make_tensor_value_info(name, TensorProto.FLOAT, want.shape)
            for name, want in zip(names, case.wanted)
        ]
        if case.op == "layer_norm":
            node = helper.make_node("LayerNormalization", [*case.inputs], names, epsilon=1e-5)
        elif case.op == "rotary":
            node = helper.make_node("RotaryEmbedding", [*case.inputs], names,
                                    domain="com.microsoft")
        else:
            node = helper.make_node("SkipSimplifiedLayerNormalization", [*case.inputs],
                                    ["out", "", "", "sum"], domain="com.microsoft", epsilon=1e-5)
        model = helper.make_model(
            helper.make_graph([node], case.op, inputs, outputs), ir_version=10,
            opset_imports=[helper.make_opsetid("", 21),
                           helper.make_opsetid("com.microsoft", 1)])
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(model.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.values = [
            ort.OrtValue.ortvalue_from_numpy(np.zeros(want.shape, np.float32))
            for want in case.wanted
        ]
        for name, a in case.inputs.items():
            self.binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(a))
        for name, value in zip(names, self.values):
            self.binding.bind_ortvalue_output(name, value)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def results(self):
        return [value.numpy() for value in self.values]


class Sinter:
    def __init__(self, case, threads):
        import numpy as np
        from graph_json import Graph

        g, types = Graph(), {"int64": "s64", "float32": "f32"}
        at = {name: g.input(types[str(a.dtype)], list(a.shape)) for name, a in case.inputs.items()}
        if case.op == "layer_norm":
            out = [
                g.op("LayerNorm", [*at.values()], "f32", keep_stats=False, epsilon=1e-5)
            ]
        elif case.op == "rotary":
            order = [at[name] for name in ("x", "cos", "sin", "positions")]
            out = [g.op("RotaryEmbedding", order, "f32")]
        else:
            total = g.op("Add", [at["x"], at["y"]], "f32")
            out = [g.op("RMSNorm", [total, at["gamma"]], "f32", epsilon=1e-5), total]
            g.op_to("End", [total], [])
        g.output(*out)
        self.made = [np.zeros(want.shape, np.float32) for want in case.wanted]
        arrays = {at[name]["id"]: a for name, a in case.inputs.items()}
        arrays |= {tensor["id"]: a for tensor, a in zip(out, self.made)}
        self.compiled = peers.Compiled(g, arrays, threads=threads)

    def run(self):
        self.compiled.run()

    def results(self):
        return self.made


def time_all(sides, repeat, passes):
    """Medians of the seconds of a run. Runs that do not count wake each side's threads."""
    times = {name: [] for name in sides}
    for _ in range(repeat):
        for name, side in sides.items():
            peers.rest()
            side.run()
            start = time.perf_counter()
            for _ in range(passes):
                side.run()
            times[name].append((time.perf_counter() - start) / passes)
    return {name: statistics.median(values) for name, values in times.items()}


def time_case(op, rows, options):
    """Prints a line for each side; returns what is wrong."""
    import quiet

    with peers.preparing(options.lock):
        case = Case(op, rows)
        sides = {
            "onnxruntime": Onnx(case, options.threads),
            "sinter": Sinter(case, options.threads)
        }
    passes = max(3, 20000 // rows if rows < 100 else 3)
    medians = quiet.measure(lambda: time_all(sides, options.repeat, passes), options.lock)
    wrong = []
    for name, side in sides.items():
        off = case.difference(side.results())
        ratio = medians["onnxruntime"] / medians[name]
        print(
            f"{op:14} {rows:5} rows {name:12} {1e6 * medians[name]:10.1f} us "
            f"{case.bytes / medians[name] * 1e-9:6.1f} GB/s  off by {off:.1e}  x{ratio:.2f}",
            flush=True)
        if not off <= MOST_OFF:
            wrong.append(f"{op} of {rows} rows, {name}: off by {off:.2g}")
    return wrong


def parse_options():
    parser = peers.options(__doc__)
    parser.add_argument("--repeat", type=int, default=9, help="rounds of some runs of each")
    parser.add_argument("--ops", nargs="+", default=list(OPS), choices=OPS)
    parser.add_argument("--rows", nargs="+", type=int, default=[1, 4096])
    return parser.parse_args()


def main():
    options = parse_options()
    peers.enter(options.venv)
    import onnxruntime
    import sinter

    sinter.load(options.library)
    wrong = []
    print(f"onnxruntime {onnxruntime.__version__}, {options.threads} threads, medians")
    for op in options.ops:
        for rows in options.rows:
            wrong += time_case(op, rows, options)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
