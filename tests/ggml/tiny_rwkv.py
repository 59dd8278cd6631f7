"""Tiny models of random numbers with states of RWKV, as GGUF files, of two architectures whose
layers are otherwise those of Llama. test-llama-archs makes none of them.

rwkv6qwen2  gated linear attention; two heads of queries share one of keys and values
arwkv7      RWKV-7, and one kept token for each sequence

They have no tokenizer."""
import random

from tiny_moe import F32, floats, write_file

# The kernel of the CPU backend for RWKV-7 wants heads of 64.
LAYERS, HEADS, KV_HEADS, HEAD = 3, 4, 2, 64
WIDTH, HIDDEN, VOCABULARY, RANK = HEADS * HEAD, 320, 307, 16


def matrix(name, *dims):
    return f"time_mix_{name}", dims, dims[0] ** -0.5


def vector(name, *more, width=1.0):
    return f"time_mix_{name}", (WIDTH, *more), width


def time_mix(architecture):
    """Names, dims, and the widths of the numbers."""
    if architecture == "rwkv6qwen2":
        return [matrix("w1", WIDTH, 5 * RANK), matrix("w2", RANK, WIDTH, 5), vector("lerp_x", 1, 1),
                vector("lerp_fused", 1, 1, 5), vector("decay"), matrix("decay_w1", WIDTH, RANK),
                matrix("decay_w2", RANK, WIDTH), matrix("key", WIDTH, KV_HEADS * HEAD),
                matrix("value", WIDTH, KV_HEADS * HEAD), matrix("receptance", WIDTH, WIDTH),
                matrix("gate", WIDTH, WIDTH), matrix("output", WIDTH, WIDTH)]
    low_rank = [row for name in "wav" for row in (
        vector(name + "0"), matrix(name + "1", WIDTH, RANK), matrix(name + "2", RANK, WIDTH))]
    return [*low_rank, matrix("g1", WIDTH, RANK), matrix("g2", RANK, WIDTH),
            vector("lerp_fused", 1, 1, 6), vector("k_k"), vector("k_a"), vector("r_k", width=0.1),
            *(matrix(name, WIDTH, WIDTH) for name in ("key", "value", "receptance", "output"))]


def tensors(architecture):
    yield "token_embd", (WIDTH, VOCABULARY), 1.0
    yield "output_norm", (WIDTH,), 1.0
    yield "output", (WIDTH, VOCABULARY), WIDTH ** -0.5
    for i in range(LAYERS):
        for name, dims, width in [
                ("attn_norm", (WIDTH,), 1.0), *time_mix(architecture), ("ffn_norm", (WIDTH,), 1.0),
                ("ffn_gate", (WIDTH, HIDDEN), WIDTH ** -0.5),
                ("ffn_up", (WIDTH, HIDDEN), WIDTH ** -0.5),
                ("ffn_down", (HIDDEN, WIDTH), HIDDEN ** -0.5)]:
            yield f"blk.{i}.{name}", dims, width


def metadata(architecture):
    own = {"block_count": LAYERS, "context_length": 1024, "embedding_length": WIDTH,
           "feed_forward_length": HIDDEN, "vocab_size": VOCABULARY, "wkv.head_size": HEAD,
           "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
           "attention.layer_norm_rms_epsilon": 1e-6, "token_shift_count": 1}
    if architecture == "rwkv6qwen2":
        own.update({"time_mix_extra_dim": RANK, "time_decay_extra_dim": RANK})
    else:
        own.update({f"attention.{name}_lora_rank": RANK
                    for name in ("decay", "iclr", "value_residual_mix", "gate")})
    return {"general.architecture": architecture, "tokenizer.ggml.model": "none",
            **{f"{architecture}.{key}": value for key, value in own.items()}}


def write(path, architecture, seed=1):
    source, rows = random.Random(seed), []
    for name, dims, width in tensors(architecture):
        count = 1
        for size in dims:
            count *= size
        rows.append((name + ".weight", dims, F32, floats(source, count, width)))
    write_file(path, metadata(architecture), rows)
