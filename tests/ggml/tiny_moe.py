"""Tiny models of random numbers with experts, as GGUF files, of two architectures:

gpt-oss    biases, also of the experts; attention with sinks, eight query heads for each head of the
           cache, a sliding window in every other layer, and positions stretched by YaRN
qwen3moe   weights of experts that are normalised; norms of the heads

They have no tokenizer."""
import math
import random
import struct

F32, Q8_0, Q4_K, Q6_K, MXFP4 = 0, 8, 12, 14, 39  # types of tensors
LAYERS, HEADS, KV_HEADS, HEAD = 4, 16, 2, 64
VOCABULARY, WINDOW, ALIGNMENT = 307, 19, 32
# Width of the model, width of an expert, experts, and how many of them a token uses. Blocks of
# K-quants have 256 elements.
SIZES = {"gpt-oss": (160, 96, 5, 3), "qwen3moe": (256, 256, 16, 4)}


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


def q4_k(source, count, width):
    """Blocks of 256: codes of 4 bits, whose mean is 7.5 and rms 4.61; the scales and minima of a
    block are one number of 6 bits, from 8 to 15, so that the mean of the elements is 0."""
    blocks = []
    for _ in range(count // 256):
        scale, factor = source.randrange(8, 16), width / 4.61 / 12
        blocks.append(struct.pack("<ee", factor, 7.5 * factor) + bytes([scale] * 8) +
                      bytes([scale | scale << 4] * 4) + source.randbytes(128))
    return b"".join(blocks)


def q6_k(source, count, width):
    """Blocks of 256: codes of 6 bits, whose rms is 18.5, and 16 scales of 8 bits."""
    return b"".join(source.randbytes(192) + bytes(source.randrange(60, 100) for _ in range(16)) +
                    struct.pack("<e", width / 18.5 / 80) for _ in range(count // 256))


def tensors(source, architecture, dense, experts):
    """Name, dims (the inner one first), type and bytes of each. `experts` is the type of their
    matrices (down, if that is another one: a pair of types), `dense` that of all others."""
    width, hidden, count, _ = SIZES[architecture]
    oss = architecture == "gpt-oss"
    first, last = experts if isinstance(experts, tuple) else (experts, experts)

    def matrix(name, *dims, kind=dense):
        make = {F32: floats, Q8_0: q8_0, Q4_K: q4_k, Q6_K: q6_k, MXFP4: mxfp4}[kind]
        return name, dims, kind, make(source, math.prod(dims), dims[0] ** -0.5)

    def vector(name, *dims, width=0.3, mean=0.0):
        return name, dims, F32, floats(source, math.prod(dims), width, mean)

    yield matrix("token_embd.weight", width, VOCABULARY)
    yield vector("output_norm.weight", width, mean=1.0)
    yield matrix("output.weight", width, VOCABULARY)
    for i in range(LAYERS):
        layer = f"blk.{i}."
        yield vector(layer + "attn_norm.weight", width, mean=1.0)
        yield vector(layer + ("post_attention" if oss else "ffn") + "_norm.weight", width, mean=1.0)
        for part, heads in (("q", HEADS), ("k", KV_HEADS), ("v", KV_HEADS)):
            yield matrix(f"{layer}attn_{part}.weight", width, heads * HEAD)
            if oss:
                yield vector(f"{layer}attn_{part}.bias", heads * HEAD)
            elif part != "v":
                yield vector(f"{layer}attn_{part}_norm.weight", HEAD, mean=1.0)
        yield matrix(layer + "attn_output.weight", HEADS * HEAD, width)
        if oss:
            yield vector(layer + "attn_output.bias", width)
            yield vector(layer + "attn_sinks.weight", HEADS, width=1.0)
            yield vector(layer + "ffn_gate_inp.bias", count, width=1.0)
        # Routing that is far from ties, or where the last expert has little weight: an expert more
        # or less is no rounding error.
        yield (f"{layer}ffn_gate_inp.weight", (width, count), F32,
               floats(source, width * count, (2 if oss else 3) * width ** -0.5))
        for part, inner, outer in (("gate", width, hidden), ("up", width, hidden),
                                   ("down", hidden, width)):
            kind = last if part == "down" else first
            yield matrix(f"{layer}ffn_{part}_exps.weight", inner, outer, count, kind=kind)
            if oss:
                yield vector(f"{layer}ffn_{part}_exps.bias", outer, count)


def metadata(architecture):
    width, hidden, count, used = SIZES[architecture]
    own = {"block_count": LAYERS, "context_length": 512, "embedding_length": width,
           "feed_forward_length": hidden, "expert_feed_forward_length": hidden,
           "expert_count": count, "expert_used_count": used, "vocab_size": VOCABULARY,
           "attention.head_count": HEADS, "attention.head_count_kv": KV_HEADS,
           "attention.key_length": HEAD, "attention.value_length": HEAD,
           "attention.layer_norm_rms_epsilon": 1e-5, "rope.dimension_count": HEAD,
           "rope.freq_base": 150000.0}
    if architecture == "gpt-oss":
        own.update({"attention.sliding_window": WINDOW, "rope.scaling.type": "yarn",
                    "rope.scaling.factor": 32.0, "rope.scaling.original_context_length": 16})
    return {"general.architecture": architecture, "tokenizer.ggml.model": "none",
            **{f"{architecture}.{key}": value for key, value in own.items()}}


def write_file(path, meta, rows):
    """A GGUF file of this metadata and of rows (name, dims, type, data)."""
    meta = meta | {"general.alignment": ALIGNMENT}
    head, data, count = b"", b"", 0
    for name, dims, kind, values in rows:
        head += string(name) + struct.pack(f"<I{len(dims)}QIQ", len(dims), *dims, kind, len(data))
        data += values + bytes(-len(values) % ALIGNMENT)
        count += 1
    head = (b"GGUF" + struct.pack("<IQQ", 3, count, len(meta)) +
            b"".join(entry(*row) for row in meta.items()) + head)
    with open(path, "wb") as file:
        file.write(head + bytes(-len(head) % ALIGNMENT) + data)


def write(path, architecture, dense, experts, seed=1):
    write_file(path, metadata(architecture),
               tensors(random.Random(seed), architecture, dense, experts))
