#!/usr/bin/env python3
"""Times Conv (f32) and QLinearConv (u8 image, s8 weights with a scale for each channel of results)
of onnxruntime's CPU provider and of Sinter on the shapes of tests/lists/perf_conv.list,
alternating, and prints medians, best times and ratios. See README.md next to it."""
import statistics
import sys
import time

import peers

ZP, SCALE, OUT_ZP = 5, 0.02, 3
MOST_OFF = {"f32": 1e-5, "int8": 1}  # relative to the largest result; codes


class Case:
    """The arrays of one convolution, channels last, and what its results must be."""

    def __init__(self, name, kind):
        import numpy as np

        self.name, self.kind = name, kind
        window, *sizes = name.split("-")
        if window == "depthwise":
            self.size, self.channels = (int(n) for n in sizes)
            self.results, self.groups, self.kernel = self.channels, self.channels, 3
        else:
            self.size, self.channels, self.results = (int(n) for n in sizes)
            self.groups, self.kernel = 1, int(window[0])
        rng = np.random.default_rng(1)
        shape = [1, self.size, self.size, self.channels]
        weights = [self.kernel, self.kernel, self.channels // self.groups, self.results]
        self.flops = 2 * self.size**2 * int(np.prod(weights))
        self.scales = ((rng.random(self.results) + .5) / 1000).astype(np.float32)
        if kind == "f32":
            self.x = (rng.random(shape, np.float32) * 2 - 1)
            self.w = (rng.random(weights, np.float32) * 2 - 1)
            self.bias = rng.random(self.results, np.float32)
            self.wanted = np.maximum(self.convolve(self.x, self.w) + self.bias, 0)
            return
        self.x = rng.integers(0, 256, shape, np.uint8)
        self.w = rng.integers(-127, 128, weights, np.int8)
        self.codes_of_bias = rng.integers(-5000, 5000, self.results, np.int32)
        self.bias = (self.codes_of_bias * (SCALE * self.scales)).astype(np.float32)
        sums = self.convolve(self.x.astype(np.float64) - ZP, self.w.astype(np.float64))
        exact = (sums + self.codes_of_bias) * SCALE * self.scales
        self.out_scale = float(np.float32(np.abs(exact).max() / 100))
        self.wanted = np.clip(np.rint(exact / self.out_scale) + OUT_ZP, 0, 255)

    def convolve(self, x, w):
        import numpy as np

        pad, size = self.kernel // 2, self.size
        x = np.pad(x.astype(np.float64), [(0, 0), (pad, pad), (pad, pad), (0, 0)])
        total = 0
        for i in range(self.kernel):
            for j in range(self.kernel):
                part = x[:, i:i + size, j:j + size, :]
                total = total + (part * w[i, j, 0] if self.groups > 1 else part @ w[i, j].astype(
                    np.float64))
        return total

    def difference(self, result):
        import numpy as np

        off = np.abs(result.astype(np.float64) - self.wanted).max()
        return float(off / (np.abs(self.wanted).max() if self.kind == "f32" else 1))


class Onnx:
    """Channels are the second dim here, as onnxruntime wants them."""

    def __init__(self, case, threads):
        import numpy as np
        import onnxruntime as ort
        from onnx import TensorProto, helper, numpy_helper

        pad = case.kernel // 2
        constants = {"w": np.ascontiguousarray(case.w.transpose(3, 2, 0, 1))}
        attributes = {"pads": [pad] * 4, "group": case.groups}
        if case.kind == "f32":
            constants["bias"] = case.bias
            nodes = [
                helper.make_node("Conv", ["x", "w", "bias"], ["sum"], **attributes),
                helper.make_node("Relu", ["sum"], ["out"])
            ]
            element, array = TensorProto.FLOAT, np.float32
        else:
            constants |= {
                "x_scale": np.float32(SCALE),
                "x_zp": np.uint8(ZP),
                "w_scale": case.scales,
                "w_zp": np.zeros(case.results, np.int8),
                "y_scale": np.float32(case.out_scale),
                "y_zp": np.uint8(OUT_ZP),
                "bias": case.codes_of_bias
            }
            order = ["x", "x_scale", "x_zp", "w", "w_scale", "w_zp", "y_scale", "y_zp", "bias"]
            nodes = [helper.make_node("QLinearConv", order, ["out"], **attributes)]
            element, array = TensorProto.UINT8, np.uint8
        x = np.ascontiguousarray(case.x.transpose(0, 3, 1, 2))
        shape = [1, case.results, case.size, case.size]
        model = helper.make_model(
            helper.make_graph(
                nodes, "conv", [helper.make_tensor_value_info("x", element, x.shape)],
                [helper.make_tensor_value_info("out", element, shape)],
                [numpy_helper.from_array(np.asarray(a), name) for name, a in constants.items()]),
            ir_version=10, opset_imports=[helper.make_opsetid("", 21)])
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(model.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])
        self.binding = self.session.io_binding()
        self.value = ort.OrtValue.ortvalue_from_numpy(np.zeros(shape, array))
        self.binding.bind_ortvalue_input("x", ort.OrtValue.ortvalue_from_numpy(x))
        self.binding.bind_ortvalue_output("out", self.value)

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def result(self):
        return self.value.numpy().transpose(0, 2, 3, 1)


class Sinter:
    def __init__(self, case, threads):
        import image_models
        import numpy as np
        from graph_json import Graph

        g, codes = Graph(), case.kind == "int8"
        x = g.input("u8" if codes else "f32", list(case.x.shape))
        w = g.input("s8" if codes else "f32", list(case.w.shape), None, "constant")
        bias = g.input("f32", [case.results], None, "constant")
        arrays = {x["id"]: case.x, w["id"]: case.w, bias["id"]: case.bias}
        if codes:
            x = g.op("Dequantize", [x], "f32", qtype="per_tensor", scales=[SCALE], zps=[ZP])
            w = g.op("Dequantize", [w], "f32", qtype="per_channel", axis=3,
                     scales=[float(s) for s in case.scales], zps=[0] * case.results)
        y = image_models.conv(g, x, w, bias, pad=case.kernel // 2, groups=case.groups)
        y = image_models.quantised(g, y, case.out_scale, OUT_ZP) if codes else g.op(
            "ReLU", [y], "f32")
        g.output(y)
        self.made = np.zeros(case.wanted.shape, np.uint8 if codes else np.float32)
        arrays[y["id"]] = self.made
        self.compiled = peers.Compiled(g, arrays, threads=threads)

    def run(self):
        self.compiled.run()

    def result(self):
        return self.made


def time_all(sides, repeat, passes):
    """Seconds of runs. Runs that do not count wake each side's threads."""
    times = {name: [] for name in sides}
    for _ in range(repeat):
        for name, side in sides.items():
            peers.rest()
            for _ in range(3):
                side.run()
            for _ in range(passes):
                start = time.perf_counter()
                side.run()
                times[name].append(time.perf_counter() - start)
    return {name: (statistics.median(values), min(values)) for name, values in times.items()}


def time_case(name, kind, options):
    """Prints a line for each side; returns what is wrong."""
    import quiet

    with peers.preparing(options.lock):
        case = Case(name, kind)
        sides = {
            "onnxruntime": Onnx(case, options.threads),
            "sinter": Sinter(case, options.threads)
        }
    times = quiet.measure(lambda: time_all(sides, options.repeat, options.passes), options.lock)
    wrong = []
    for side in sides:
        off = case.difference(sides[side].result())
        median, best = times[side]
        of_median, of_best = (a / b for a, b in zip(times["onnxruntime"], times[side]))
        print(
            f"{name:20} {kind:4} {side:12} median {1e3 * median:8.3f} ms, best {1e3 * best:8.3f} "
            f"ms {case.flops / best * 1e-9:6.1f} GOP/s  off by {off:.1e}  x{of_median:.2f}, "
            f"best x{of_best:.2f}", flush=True)
        if not off <= MOST_OFF[kind]:
            wrong.append(f"{name} {kind}, {side}: off by {off:.2g}")
    return wrong


def parse_options(shapes):
    parser = peers.options(__doc__)
    parser.add_argument("--repeat", type=int, default=5, help="rounds of some runs of each")
    parser.add_argument("--passes", type=int, default=20, help="runs of a round")
    parser.add_argument("--kinds", nargs="+", default=list(MOST_OFF), choices=MOST_OFF)
    parser.add_argument("--shapes", nargs="+", default=shapes, choices=shapes,
                        help="window, size of the image, channels, results")
    return parser.parse_args()


def main():
    sys.path.insert(0, f"{peers.ROOT}/tools")
    import image_models

    shapes = [f"{kernel}x{kernel}-{size}-{channels}-{results}"
              for size, channels, results, kernel in image_models.RESNET]
    shapes += [f"depthwise-{size}-{channels}" for size, channels in image_models.DEPTHWISE]
    options = parse_options(shapes)
    peers.enter(options.venv)
    import onnxruntime
    import sinter

    sinter.load(options.library)
    wrong = []
    print(f"onnxruntime {onnxruntime.__version__}, {options.threads} threads")
    for kind in options.kinds:
        for name in options.shapes:
            wrong += time_case(name, kind, options)
    for line in wrong:
        print(line)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
