"""python -m sinter: which versions and which processor there are, and whether the library computes
right here, at each instruction set. Exit code 0, or 1 if it does not."""
import os
import platform
import re
import sys
from collections.abc import Iterator
from importlib import metadata
from typing import Any

import numpy as np

import sinter

HEADS, HEAD, GROUP, WIDTH, TOKENS = 2, 64, 32, 96, 77
# The most that each mode may be off, of the largest result: sums in f32; activations of 8 bits.
MODES = {"strict": 1e-5, "int8": 3e-2}


def processor() -> tuple[str, list[str]]:
    """The processor's name, and those of its features that matter for kernels."""
    said: dict[str, str] = {}
    try:
        with open("/proc/cpuinfo", encoding="utf-8", errors="replace") as file:
            said = dict(re.findall(r"(?m)^(.*?)\s*: (.*)$", file.read()))
    except OSError:
        pass
    wanted = re.compile(r"avx2|fma|f16c|avx_vnni|avx512(f|bw|dq|vl|_vnni|_bf16|_fp16)|amx_\w+|"
                        r"asimd(dp|hp)?|i8mm|bf16|sve2?")
    flags = said.get("flags", said.get("Features", "")).split()
    return said.get("model name", platform.machine()), [f for f in flags if wanted.fullmatch(f)]


def groups(rng: "np.random.Generator", *shape: int) -> tuple[Any, Any, Any]:
    """Codes of 4 bits with a scale for each group along the last dim, and their values."""
    codes = rng.integers(-8, 8, shape)
    scales = rng.uniform(0.05, 0.1, (*shape[:-1], shape[-1] // GROUP)).astype(np.float16)
    return sinter.pack(codes, "s4"), scales, codes * np.repeat(scales.astype(float), GROUP, -1)


def errors(max_isa: str, mode: str) -> Iterator[tuple[float, str]]:
    """Queries by a product with weights of 4 bits, then attention over a cache of 4 bits: how far
    off the results are, of the largest one, and the kernels."""
    rng = np.random.default_rng(1)
    engine = sinter.Engine(max_isa)
    graph = sinter.Graph(fpmath=mode, apply_to_int=mode != "strict", engine=engine)
    x = graph.input("f32", [HEADS, None, WIDTH])
    weights, *cache = (groups(rng, *shape) for shape in (
        (HEAD, WIDTH), (HEADS, TOKENS, HEAD), (HEADS, TOKENS, HEAD)))

    def decoded(codes: sinter.Tensor, scales: sinter.Tensor) -> Any:
        return graph.op("DynamicDequantize", [codes, scales], "f32", qtype="per_group",
                        group_shape=[1] * (len(codes.shape or ()) - 1) + [GROUP])

    ports = [(graph.input("s4", codes.shape), graph.input("f16", scales.shape))
             for codes, scales, _ in cache]
    w = decoded(graph.constant(weights[0]), graph.constant(weights[1]))
    query = graph.op("MatMul", [x, w], transpose_b=True)
    k, v = (decoded(*port) for port in ports)
    scores = graph.op("Multiply", [graph.op("MatMul", [query, k], transpose_b=True),
                                   graph.constant(np.array([HEAD**-0.5], np.float32))])
    graph.op("MatMul", [graph.op("SoftMax", [scores], axis=-1), v])
    compiled = graph.compile()
    kernels = ", ".join(re.findall(r"(?m)^step \d+: (\w+)", compiled.report()))
    for rows in (1, 33):
        values = rng.standard_normal((HEADS, rows, WIDTH)).astype(np.float32) / 8
        given: dict[Any, Any] = {x: values}
        for (codes, scales), (packed, of_groups, _) in zip(ports, cache):
            given |= {codes: packed, scales: of_groups}
        (found,) = compiled(given)
        exact = values.astype(float) @ weights[2].T @ cache[0][2].swapaxes(1, 2) * HEAD**-0.5
        exact = np.exp(exact - exact.max(-1, keepdims=True))
        exact = exact / exact.sum(-1, keepdims=True) @ cache[1][2]
        yield float(np.abs(found - exact).max() / np.abs(exact).max()), kernels


def main() -> int:
    try:
        package = metadata.version("sinter")
    except metadata.PackageNotFoundError:
        package = "not installed by pip"
    try:
        name, features = processor()
        print(f"package    {package}, in {os.path.dirname(sinter.__file__)}")
        print(f"library    {sinter.version()}, {sinter.load()}")
        print(f"processor  {name}, {len(os.sched_getaffinity(0))} CPUs: {' '.join(features)}")
        print(f"used       {sinter.isa()}, {sinter.default_stream().threads} threads")
        wrong = 0
        for isa in sinter.cpu_isas():
            if isa == "default" or sinter.Engine(isa).isa != isa:
                continue
            for mode, bound in MODES.items():
                found = list(errors(isa, mode))
                worst, kernels = max(found)
                # NaN is not right either.
                right = all(error <= bound for error, _ in found)
                wrong += not right
                print(f"self-test  {isa}, {mode}: {'right' if right else 'WRONG'}, off by "
                      f"{worst:.0e} ({kernels})")
    except sinter.SinterError as error:
        print(f"failed     {error}")
        return 1
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
