"""A tiny model of random numbers with the architecture of gpt-oss, as a GGUF file: experts,
attention with sinks, biases, eight query heads for each head of the cache, a sliding window in
every other layer, and positions stretched by YaRN. It has no tokenizer."""
import math
import random
import struct

F32, Q8_0, MXFP4 = 0, 8, 39  # types of tensors
LAYERS, WIDTH, HEADS, KV_HEADS, HEAD, EXPERTS, USED, HIDDEN = 4, 160, 16, 2, 64, 5, 3, 96
VOCABULARY, WINDOW, ALIGNMENT = 307, 19, 32


def string(text):
    data = text.encode()
    return struct.pack("<Q", len(data)) + data


def entry(key, value):
    """A row of the metadata."""
    kinds = {int: (4, "<I"), float: (6, "<f")}
    if isinstance(value, str):
        return string(key) + struct.pack("<I", 8) + string(value)
    kind, code = kinds[type(value)]
    return string(key) + struct.pack("<I", kind) + struct.pack(code, value)


def floats(source, count, width, mean=0.0):
    return struct.pack(f"<{count}f", *(source.gauss(mean, width) for _ in range(count)))


def q8_0(source, count, width):
    """Blocks of 32: codes of 8 bits whose rms is a third of the range."""
    blocks = []
    for _ in range(count // 32):
        codes = [max(-127, min(127, round(source.gauss(0, 42)))) for _ in range(32)]
        blocks.append(struct.pack("<e32b", width / 42, *codes))
    return b"".join(blocks)


def mxfp4(source, count, width):
    """Blocks of 32: codes of 4 bits, whose rms is 2.93, and a power of two."""
    exponent = 127 + round(math.log2(width / 2.93))
    return b"".join(bytes([exponent + source.choice((-1, 0, 1))]) + source.randbytes(16)
                    for _ in range(count // 32))


def tensors(source, dense, experts):
    """Name, dims (the inner one first), type and bytes of each. `experts` is the type of their
    matrices, `dense` that of all others."""
    def matrix(name, *dims, kind=dense):
        make = {F32: floats, Q8_0: q8_0, MXFP4: mxfp4}[kind]
        return name, dims, kind, make(source, math.prod(dims), dims[0] ** -0.5)

    def vector(name, *dims, width=0.3, mean=0.0):
        return name, dims, F32, floats(source, math.prod(dims), width, mean)

    yield matrix("token_embd.weight", WIDTH, VOCABULARY)
    yield vector("output_norm.weight", WIDTH, mean=1.0)
    yield matrix("output.weight", WIDTH, VOCABULARY)
    for i in range(LAYERS):
        layer = f"blk.{i}."
        yield vector(layer + "attn_norm.weight", WIDTH, mean=1.0)
        yield vector(layer + "post_attention_norm.weight", WIDTH, mean=1.0)
        for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield matrix(f"{layer}attn_{part}.weight", WIDTH, heads * HEAD)
            yield vector(f"{layer}attn_{part}.bias", heads * HEAD)
        yield matrix(layer + "attn_output.weight", HEADS * HEAD, WIDTH)
        yield vector(layer + "attn_output.bias", WIDTH)
        yield vector(layer + "attn_sinks.weight", HEADS, width=1.0)
        # Routing that is far from ties: an expert more or less is no rounding error.
        yield (f"{layer}ffn_gate_inp.weight", (WIDTH, EXPERTS), F32,
               floats(source, WIDTH * EXPERTS, 2 * WIDTH ** -0.5))
        yield vector(layer + "ffn_gate_inp.bias", EXPERTS, width=1.0)
        for part, inner, outer in (("gate", WIDTH, HIDDEN), ("up", WIDTH, HIDDEN),
                                   ("down", HIDDEN, WIDTH)):
            yield matrix(f"{layer}ffn_{part}_exps.weight", inner, outer, EXPERTS, kind=experts)
            yield vector(f"{layer}ffn_{part}_exps.bias", outer, EXPERTS)


def write(path, dense, experts, seed=1):
    meta = {"general.architecture": "gpt-oss", "general.alignment": ALIGNMENT,
            "tokenizer.ggml.model": "none"}
    meta.update({"gpt-oss." + key: value for key, value in {
        "block_count": LAYERS, "context_length": 512, "embedding_length": WIDTH,
        "feed_forward_length": HIDDEN, "expert_feed_forward_length": HIDDEN,
        "expert_count": EXPERTS, "expert_used_count": USED, "vocab_size": VOCABULARY,
        "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
        "attention.key_length": HEAD, "attention.value_length": HEAD,
        "attention.sliding_window": WINDOW, "attention.layer_norm_rms_epsilon": 1e-5,
        "rope.dimension_count": HEAD, "rope.freq_base": 150000.0, "rope.scaling.type": "yarn",
        "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 16}.items()})
    head, data, count = b"", b"", 0
    for name, dims, kind, values in tensors(random.Random(seed), dense, experts):
        head += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += values + bytes(-len(values) % ALIGNMENT)
        count += 1
    head = (b"GGUF" + struct.pack("<IQQ", 3, count, len(meta)) +
            b"".join(entry(*row) for row in meta.items()) + head)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + data)
