#!/usr/bin/env python3
"""Times attention of onnxruntime's CPU GroupQueryAttention and of Sinter on the same shapes, run by
run alternating, and prints medians and ratios. See README.md next to it."""
import statistics
import time

import peers

# What is timed: kv heads, query heads for each, head, queries, tokens, causal
SHAPES = {
    "decode": (32, 1, 128, 1, 16384, False),
    "prefill": (8, 4, 128, 2048, 2048, True),
}
# onnxruntime's cache -> how Sinter stores it (tools/dev/attention_models.py)
STORED = {"f32": "f32", "int8": "s8-g32", "int4": "s4-zp-g32"}


class Onnx:
    """One GroupQueryAttention whose present K and V are its past ones: the cache is written in
    place."""

    def __init__(self, cache, shape, arrays, threads):
        import numpy as np
        import onnx
        import onnxruntime as ort
        from onnx import TensorProto, helper

        kv_heads, per_kv, head, s, t, causal = shape
        heads = kv_heads * per_kv
        types = {"f32": TensorProto.FLOAT, "int8": TensorProto.INT8, "int4": TensorProto.UINT8}
        row = head // 2 if cache == "int4" else head
        attrs = {
            "num_heads": heads,
            "kv_num_heads": kv_heads,
            "do_rotary": 0,
            "scale": float(head)**-0.5
        }
        if cache != "f32":
            attrs |= {
                "k_quant_type": "PER_TENSOR",
                "v_quant_type": "PER_TENSOR",
                "kv_cache_bit_width": 4 if cache == "int4" else 8
            }
        f32, i32 = TensorProto.FLOAT, TensorProto.INT32
        inputs = [("query", f32, [1, s, heads * head]), ("key", f32, [1, s, kv_heads * head]),
                  ("value", f32, [1, s, kv_heads * head]),
                  ("past_key", types[cache], [1, kv_heads, t, row]),
                  ("past_value", types[cache], [1, kv_heads, t, row]), ("seqlens_k", i32, [1]),
                  ("total", i32, [1])]
        outputs = [("output", f32, [1, s, heads * head]),
                   ("present_key", types[cache], [1, kv_heads, t, row]),
                   ("present_value", types[cache], [1, kv_heads, t, row])]
        names = [name for name, *_ in inputs]
        if cache != "f32":
            inputs += [("k_scale", f32, [1]), ("v_scale", f32, [1])]
            names += [""] * 5 + ["k_scale", "v_scale"]
        node = helper.make_node("GroupQueryAttention", names, [name for name, *_ in outputs],
                                domain="com.microsoft", **attrs)
        infos = [[helper.make_tensor_value_info(*port) for port in ports]
                 for ports in (inputs, outputs)]
        model = helper.make_model(
            helper.make_graph([node], "attention", *infos), ir_version=10,
            opset_imports=[helper.make_opsetid("", 21),
                           helper.make_opsetid("com.microsoft", 1)])
        onnx.checker.check_model(model)
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        self.session = ort.InferenceSession(model.SerializeToString(), options,
                                            providers=["CPUExecutionProvider"])
        arrays = arrays | {
            "seqlens_k": np.array([t - 1], np.int32),
            "total": np.array([t], np.int32)
        }
        self.values = {name: ort.OrtValue.ortvalue_from_numpy(arrays[name]) for name, *_ in inputs}
        self.values["output"] = ort.OrtValue.ortvalue_from_numpy(
            np.zeros([1, s, heads * head], np.float32))
        for name in ("key", "value"):
            self.values["present_" + name] = self.values["past_" + name]
        self.binding = self.session.io_binding()
        for name, *_ in inputs:
            self.binding.bind_ortvalue_input(name, self.values[name])
        for name, *_ in outputs:
            self.binding.bind_ortvalue_output(name, self.values[name])

    def run(self):
        self.session.run_with_iobinding(self.binding)

    def output(self):
        return self.values["output"].numpy()


def numbers(rng, shape):
    return rng.random(shape, dtype="float32") * 2 - 1


def onnx_arrays(rng, cache, shape):
    """Random inputs. Prefill makes its cache from key and value; decode appends one token, which is
    that of the cache already."""
    import numpy as np

    kv_heads, per_kv, head, s, t, _ = shape
    scale = np.array([{"f32": 1, "int8": 1 / 127, "int4": 1 / 7}[cache]], np.float32)
    arrays = {
        "query": numbers(rng, [1, s, kv_heads * per_kv * head]),
        "k_scale": scale,
        "v_scale": scale
    }
    for name in ("key", "value"):
        codes = rng.integers(-7 if cache == "int4" else -127, 8 if cache == "int4" else 128,
                             [1, kv_heads, t, head], np.int8)
        values = numbers(rng, codes.shape) if cache == "f32" else codes * scale
        last = values[:, :, t - s:]
        arrays[name] = np.ascontiguousarray(
            last.transpose(0, 2, 1, 3).reshape(1, s, kv_heads * head), np.float32)
        codes = (codes + 8).astype(np.uint8)[..., 0::2] | (codes + 8).astype(
            np.uint8)[..., 1::2] << 4 if cache == "int4" else codes
        arrays["past_" + name] = np.ascontiguousarray(values if cache == "f32" else codes,
                                                      np.float32 if cache == "f32" else None)
    return arrays


def sinter_graph(cache, shape, same):
    """Attention over a cache of rows of the head, with queries and results as onnxruntime has them:
    [s][heads][head]. same: one scale, no groups."""
    from attention_models import attention, STORED as kinds

    kv_heads, per_kv, head, s, t, causal = shape
    if same and cache != "f32":
        kinds["same"] = ("s8", "f32", None, head) if cache == "int8" else ("u4", "f32", "u4", head)
        graph = attention("same", *shape)
    else:
        graph = attention(STORED[cache], *shape)
    out = graph.ops[-1][3][0]
    for tensor in (graph.ops[1 if cache != "f32" else 0][2][0], out):
        tensor["stride"] = [
            kv_heads * per_kv * s * head, per_kv * head, head, kv_heads * per_kv * head, 1
        ]
    return graph


def byte_count(tensor, bits):
    n = 1
    for dim in tensor["shape"]:
        n *= dim
    return (n * bits[tensor["dtype"]] + 7) // 8


BITS = {"f32": 32, "f16": 16, "s8": 8, "u8": 8, "s4": 4, "u4": 4}


def sinter_arrays(graph, rng, arrays, same):
    """Random groups; or onnxruntime's cache with one scale. Returns arrays by id and the bytes of K
    and V."""
    import numpy as np

    dequantize = [inputs for kind, _, inputs, _ in graph.ops if kind == "DynamicDequantize"]
    k_and_v = dequantize or [[graph.ops[0][2][1]], [graph.ops[-1][2][1]]]
    out = graph.ops[-1][3][0]
    by_id = {out["id"]: np.zeros(byte_count(out, BITS) // 4, np.float32)}
    query = (graph.ops[1] if dequantize else graph.ops[0])[2][0]
    by_id[query["id"]] = arrays["query"]
    for ports, name in zip(k_and_v, ("key", "value")):
        for port, what in zip(ports, ("codes", "scale", "zero point")):
            n = byte_count(port, BITS)
            if what == "codes" and (same or not dequantize):
                by_id[port["id"]] = arrays["past_" + name].view(np.uint8).reshape(-1).copy()
            elif what == "scale":
                count = n * 8 // BITS[port["dtype"]]
                value = arrays["k_scale"][0] if same else rng.random(count, np.float32) / 64
                by_id[port["id"]] = (
                    np.zeros(count) +
                    value).astype(np.float16 if port["dtype"] == "f16" else np.float32)
            else:
                by_id[port["id"]] = np.full(n, 0x88, np.uint8) if same else rng.integers(
                    0, 256, n, np.uint8)
    for i in graph.inputs:
        if i not in by_id:  # the scale of the scores, what masks put
            by_id[i] = np.array([
                -np.inf if any(k == "Select" and p[2]["id"] == i
                               for k, _, p, _ in graph.ops) else float(query["shape"][-1])**-0.5
            ], np.float32)
    return by_id, sum(byte_count(port, BITS) for ports in k_and_v for port in ports)


def settle(memory):
    """Waiting threads fall asleep, then the caches are emptied."""
    peers.rest()
    return memory.max()


def time_all(runs, repeat, memory):
    times = {name: [] for name in runs}
    for i in range(repeat + 1):
        for name, run in runs.items():
            settle(memory)
            start = time.perf_counter()
            run()
            if i:
                times[name].append(time.perf_counter() - start)
    return {name: statistics.median(values) for name, values in times.items()}


def compare(cache, shape, threads):
    """Both over the same codes and one scale: the largest difference relative to the largest
    result."""
    import numpy as np

    rng = np.random.default_rng(1)
    arrays = onnx_arrays(rng, cache, shape)
    theirs = Onnx(cache, shape, arrays, threads)
    graph = sinter_graph(cache, shape, True)
    by_id, _ = sinter_arrays(graph, rng, arrays, True)
    ours = peers.Compiled(graph, by_id, "strict", threads)
    theirs.run()
    ours.run()
    a, b = theirs.output().reshape(-1), by_id[graph.ops[-1][3][0]["id"]]
    return float(np.abs(a - b).max() / np.abs(a).max())


def time_case(what, cache, options, memory):
    import numpy as np
    import quiet

    shape = SHAPES[what]
    rng = np.random.default_rng(1)
    arrays = onnx_arrays(rng, cache, shape)
    theirs = Onnx(cache, shape, arrays, options.threads)
    graph = sinter_graph(cache, shape, False)
    by_id, n_bytes = sinter_arrays(graph, rng, arrays, False)
    runs = {"onnxruntime": theirs.run}
    for mode in options.modes:
        runs[f"sinter {mode}"] = peers.Compiled(graph, by_id, mode, options.threads).run
    kv_heads, per_kv, head, s, t, causal = shape
    their_bytes = arrays["past_key"].nbytes * 2
    flops = 4 * kv_heads * per_kv * head * (s * (s + 1) / 2 if causal else s * t)
    medians = quiet.measure(lambda: time_all(runs, options.repeat, memory), options.lock)
    for name, seconds in medians.items():
        rate = f"{flops / seconds * 1e-9:7.1f} GFLOP/s" if causal else \
            f"{(their_bytes if name == 'onnxruntime' else n_bytes) / seconds * 1e-9:7.2f} GB/s"
        print(
            f"{what:8} {cache:5} {name:15} {1e3 * seconds:9.3f} ms {rate}  "
            f"x{medians['onnxruntime'] / seconds:.2f}",
            flush=True)


def parse_options():
    parser = peers.options(__doc__)
    parser.add_argument("--repeat", type=int, default=7)
    parser.add_argument("--shapes", nargs="+", default=list(SHAPES), choices=SHAPES)
    parser.add_argument("--caches", nargs="+", default=list(STORED), choices=STORED)
    parser.add_argument("--modes", nargs="+", default=["strict", "f16"])
    return parser.parse_args()


def main():
    options = parse_options()
    peers.enter(options.venv)
    import numpy as np
    import onnxruntime
    import sinter

    sinter.load(options.library)
    print(
        f"onnxruntime {onnxruntime.__version__}, {options.threads} threads, medians of "
        f"{options.repeat} cold runs"
    )
    for cache in options.caches:
        for name, shape in (("decode", (4, 1, 128, 1, 256, False)), ("prefill", (2, 4, 128, 64, 64,
                                                                                 True))):
            print(
                f"same codes, one scale: {name} {cache} differs by "
                f"{compare(cache, shape, options.threads):.2g}"
            )
    memory = np.ones(64 << 20, np.float32)
    for what in options.shapes:
        for cache in options.caches:
            time_case(what, cache, options, memory)


if __name__ == "__main__":
    main()
