#!/usr/bin/env python3
"""Writes a GGUF file with the shapes of a real model and random weights, to measure llama.cpp with:

    make_gguf.py llama3-8b q4_k_m --layers=8 --tokenizer=SmolLM2.gguf --output=model.gguf

All matrices have their real sizes, the output too; only layers are fewer. The tokenizer is that of
another file, filled up with unused tokens to the vocabulary of the model. Weights have the mean 0
and the rms 1 / sqrt(K), so that activations keep their size from layer to layer."""
import argparse
import collections
import math
import os
import sys

import user_tools  # noqa: F401
import tools_venv

tools_venv.enter("gguf", "numpy")
import gguf  # noqa: E402
import numpy as np  # noqa: E402

F32, Q4_0, Q5_0, Q8_0, Q4_K, Q6_K, MXFP4 = (
    getattr(gguf.GGMLQuantizationType, name)
    for name in ("F32", "Q4_0", "Q5_0", "Q8_0", "Q4_K", "Q6_K", "MXFP4"))

# ---- shapes -------------------------------------------------------------------------------------

# `hidden` is the width of the feed-forward part, or of each expert; `used` experts of all compute a
# token, and a shared one of width `shared` all tokens. `mixer` gives the tensors of a layer before
# the feed-forward part. `more` is metadata with the architecture as its prefix.
Shape = collections.namedtuple(
    "Shape",
    "architecture width heads kv_heads head hidden vocabulary experts used shared mixer more")
EPSILON, BASE = "attention.layer_norm_rms_epsilon", "rope.freq_base"

# The types of matrices. `better` is that of attn_v and ffn_down in half of the layers.
Mix = collections.namedtuple("Mix", "file_type dense better experts output")
FILE = gguf.LlamaFileType
MIXES = {
    "q4_0": Mix(FILE.MOSTLY_Q4_0, Q4_0, Q4_0, Q4_0, Q6_K),
    "q4_k_m": Mix(FILE.MOSTLY_Q4_K_M, Q4_K, Q6_K, Q4_K, Q6_K),
    "q8_0": Mix(FILE.MOSTLY_Q8_0, Q8_0, Q8_0, Q8_0, Q8_0),
    "mxfp4": Mix(FILE.MOSTLY_MXFP4_MOE, Q8_0, Q8_0, MXFP4, Q8_0),
}
# What llama.cpp's quantiser takes where rows are no whole blocks of 256.
SMALLER_BLOCKS = {Q4_K: Q5_0, Q6_K: Q8_0}


def has_better_types(layer, layers):
    """The layers in which llama.cpp's quantiser spends more bits for a K_M mix: the first and the
    last eighth, and every third between them."""
    eighth = layers // 8
    return layer < eighth or layer >= 7 * layers // 8 or (layer - eighth) % 3 == 2


# Name, type and dims (the inner one first) of tensors. Names with .weight are matrices or factors
# of a norm, names with .bias are added.


def attention(shape, mix, layer, better):
    width, q, kv = shape.width, shape.heads * shape.head, shape.kv_heads * shape.head
    oss, gated = shape.architecture == "gpt-oss", shape.architecture == "qwen35moe"
    for name, kind, *dims in (("attn_q", mix.dense, width, 2 * q if gated else q),
                              ("attn_k", mix.dense, width, kv),
                              ("attn_v", mix.better if better else mix.dense, width, kv),
                              ("attn_output", mix.dense, q, width)):
        yield f"{name}.weight", kind, dims
        if oss:
            yield f"{name}.bias", F32, dims[1:]
    if oss:
        yield "attn_sinks.weight", F32, (shape.heads,)
    if shape.architecture in ("qwen3moe", "qwen35moe"):
        yield "attn_q_norm.weight", F32, (shape.head,)
        yield "attn_k_norm.weight", F32, (shape.head,)


def latent_attention(shape, mix, layer, better):
    """`head` is what a token has in the cache: the latent and the rotated part."""
    latent, rotated = shape.more["attention.kv_lora_rank"], shape.more["rope.dimension_count"]
    key, value = (shape.more[f"attention.{name}_length_mla"] for name in ("key", "value"))
    yield "attn_q.weight", mix.dense, (shape.width, shape.heads * key)
    yield "attn_kv_a_mqa.weight", mix.better if better else mix.dense, (shape.width, shape.head)
    yield "attn_kv_a_norm.weight", F32, (latent,)
    yield "attn_k_b.weight", mix.dense, (key - rotated, latent, shape.heads)
    yield "attn_v_b.weight", mix.better if better else mix.dense, (latent, value, shape.heads)
    yield "attn_output.weight", mix.dense, (shape.heads * value, shape.width)


def delta_net_or_attention(shape, mix, layer, better):
    """Every fourth layer has attention."""
    if layer % 4 == 3:
        yield from attention(shape, mix, layer, better)
        return
    head, inner, heads, key_heads, taps = (shape.more[f"ssm.{name}"] for name in (
        "state_size", "inner_size", "time_step_rank", "group_count", "conv_kernel"))
    convolved = inner + 2 * key_heads * head
    yield "attn_qkv.weight", mix.dense, (shape.width, convolved)
    yield "attn_gate.weight", mix.dense, (shape.width, inner)
    yield "ssm_conv1d.weight", F32, (taps, convolved)
    yield "ssm_alpha.weight", mix.dense, (shape.width, heads)
    yield "ssm_beta.weight", mix.dense, (shape.width, heads)
    yield "ssm_dt.bias", F32, (heads,)
    yield "ssm_a", F32, (heads,)
    yield "ssm_norm.weight", F32, (head,)
    yield "ssm_out.weight", mix.dense, (inner, shape.width)


def has_attention(layer):
    """One layer in ten of Granite 4 has it, the others have a scan."""
    return layer % 10 == 5


def scan_or_attention(shape, mix, layer, better):
    if has_attention(layer):
        yield from attention(shape, mix, layer, better)
        return
    state, inner, heads, groups, taps = (shape.more[f"ssm.{name}"] for name in (
        "state_size", "inner_size", "time_step_rank", "group_count", "conv_kernel"))
    convolved = inner + 2 * groups * state
    yield "ssm_in.weight", mix.dense, (shape.width, inner + convolved + heads)
    yield "ssm_conv1d.weight", F32, (taps, convolved)
    yield "ssm_conv1d.bias", F32, (convolved,)
    yield "ssm_dt.bias", F32, (heads,)
    yield "ssm_a", F32, (1, heads)
    yield "ssm_d", F32, (1, heads)
    yield "ssm_norm.weight", F32, (inner // groups, groups)
    yield "ssm_out.weight", mix.dense, (inner, shape.width)


def feed_forward(shape, mix, layer, better):
    width, oss = shape.width, shape.architecture == "gpt-oss"

    def gated(suffix, plain, hidden, experts):
        down = mix.better if better and plain == mix.dense else plain
        for name, kind, inner, outer in (("gate", plain, width, hidden),
                                         ("up", plain, width, hidden),
                                         ("down", down, hidden, width)):
            yield f"ffn_{name}{suffix}.weight", kind, (inner, outer, *experts)
            if oss:
                yield f"ffn_{name}{suffix}.bias", F32, (outer, *experts)

    if layer < shape.more.get("leading_dense_block_count", 0):
        yield from gated("", mix.dense, shape.more["feed_forward_length"], ())
        return
    if not shape.experts:
        yield from gated("", mix.dense, shape.hidden, ())
        return
    yield "ffn_gate_inp.weight", F32, (width, shape.experts)
    if oss:
        yield "ffn_gate_inp.bias", F32, (shape.experts,)
    yield from gated("_exps", mix.experts, shape.hidden, (shape.experts,))
    if shape.shared:
        yield from gated("_shexp", mix.dense, shape.shared, ())
    if shape.architecture == "qwen35moe":
        yield "ffn_gate_inp_shexp.weight", F32, (width,)


def layer_tensors(shape, mix, layer, better):
    after = "post_attention" if shape.architecture in ("gpt-oss", "qwen35moe") else "ffn"
    yield "attn_norm.weight", F32, (shape.width,)
    yield from shape.mixer(shape, mix, layer, better)
    yield f"{after}_norm.weight", F32, (shape.width,)
    yield from feed_forward(shape, mix, layer, better)


def fitting(kind, dims):
    whole = dims[0] % gguf.GGML_QUANT_SIZES[kind][0] == 0
    return kind if whole else SMALLER_BLOCKS.get(kind, kind)


def tensors(shape, mix, layers):
    matrix = (shape.width, shape.vocabulary)
    yield "token_embd.weight", mix.dense, matrix
    for layer in range(layers):
        for name, kind, dims in layer_tensors(shape, mix, layer, has_better_types(layer, layers)):
            yield f"blk.{layer}.{name}", fitting(kind, dims), dims
    yield "output_norm.weight", F32, (shape.width,)
    yield "output.weight", mix.output, matrix


SHAPES = {
    "llama3-8b": Shape("llama", 4096, 32, 8, 128, 14336, 128256, 0, 0, 0, attention,
                       {EPSILON: 1e-5, BASE: 5e5, "vocab_size": 128256}),
    "qwen3-30b-a3b": Shape("qwen3moe", 2048, 32, 4, 128, 768, 151936, 128, 8, 0, attention,
                           {EPSILON: 1e-6, BASE: 1e6}),
    "gpt-oss-20b": Shape("gpt-oss", 2880, 64, 8, 64, 2880, 201088, 32, 4, 0, attention,
                         {EPSILON: 1e-5, BASE: 1.5e5, "attention.sliding_window": 128,
                          "rope.scaling.type": "yarn", "rope.scaling.factor": 32.0,
                          "rope.scaling.original_context_length": 4096}),
    "deepseek-v2-lite": Shape("deepseek2", 2048, 16, 1, 576, 1408, 102400, 64, 6, 2816,
                              latent_attention,
                              {EPSILON: 1e-6, BASE: 1e4, "vocab_size": 102400,
                               "feed_forward_length": 10944, "leading_dense_block_count": 1,
                               "attention.q_lora_rank": 0, "attention.kv_lora_rank": 512,
                               "attention.key_length_mla": 192, "attention.value_length_mla": 128,
                               "attention.value_length": 512, "rope.dimension_count": 64,
                               "expert_shared_count": 2, "expert_weights_scale": 1.0,
                               "expert_gating_func": 1}),
    "qwen3.5-35b-a3b": Shape("qwen35moe", 2048, 16, 2, 256, 512, 248320, 256, 8, 512,
                             delta_net_or_attention,
                             {EPSILON: 1e-6, BASE: 1e7, "rope.dimension_count": 64,
                              "rope.dimension_sections": [11, 11, 10, 0],
                              "expert_shared_feed_forward_length": 512, "ssm.conv_kernel": 4,
                              "ssm.inner_size": 4096, "ssm.state_size": 128,
                              "ssm.time_step_rank": 32, "ssm.group_count": 16}),
    "granite-4-h-tiny": Shape("granitehybrid", 1536, 12, 4, 128, 512, 100352, 64, 6, 1024,
                              scan_or_attention,
                              {EPSILON: 1e-5, "rope.scaling.finetuned": False, "logit_scale": 6.0,
                               "residual_scale": 0.22, "embedding_scale": 12.0,
                               "attention.scale": 0.0078125, "vocab_size": 100352,
                               "expert_shared_feed_forward_length": 1024, "ssm.conv_kernel": 4,
                               "ssm.inner_size": 3072, "ssm.state_size": 128,
                               "ssm.time_step_rank": 48, "ssm.group_count": 1}),
}


def metadata(shape, layers):
    """Keys without the architecture, and values."""
    kv_heads = shape.kv_heads
    if shape.mixer == scan_or_attention:
        kv_heads = [kv_heads if has_attention(layer) else 0 for layer in range(layers)]
        if not any(kv_heads):
            sys.exit("llama.cpp needs a layer with attention, and the first one is number 5")
    experts = {"expert_count": shape.experts, "expert_used_count": shape.used,
               "expert_feed_forward_length": shape.hidden} if shape.experts else {}
    return {"block_count": layers, "context_length": 8192, "embedding_length": shape.width,
            "feed_forward_length": shape.hidden, "attention.head_count": shape.heads,
            "attention.head_count_kv": kv_heads, "attention.key_length": shape.head,
            "attention.value_length": shape.head, "rope.dimension_count": shape.head,
            **experts, **shape.more}


# ---- blocks -------------------------------------------------------------------------------------

# The fields of ggml's blocks. All bytes are random at first; then a function makes those right
# that must be, with weights of an rms. The rms of uniform codes: 4.6 of 0 to 15, 9.2 of 0 to 31, 73
# of -127 to 127, 18.5 of -32 to 31, 2.9 of the eight numbers of MXFP4.
BLOCKS = {
    Q4_0: [("d", "<f2"), ("codes", "u1", 16)],
    Q5_0: [("d", "<f2"), ("high", "u1", 4), ("codes", "u1", 16)],
    Q8_0: [("d", "<f2"), ("codes", "i1", 32)],
    Q4_K: [("d", "<f2"), ("dmin", "<f2"), ("scales", "u1", 12), ("codes", "u1", 128)],
    Q6_K: [("codes", "u1", 192), ("scales", "i1", 16), ("d", "<f2")],
    MXFP4: [("e", "u1"), ("codes", "u1", 16)],
}


def near(source, value, count):
    return value * source.uniform(0.75, 1.25, count)


def signs(source, *dims):
    """Codes that are not symmetric have a mean. Scales of both signs, as in real files, keep the
    sum of many weights small."""
    return source.choice(np.array([-1, 1], np.int8), dims)


def fill_q4_0(source, blocks, rms):
    """d * (q - 8)"""
    blocks["d"] = near(source, rms / 4.6, len(blocks)) * signs(source, len(blocks))


def fill_q5_0(source, blocks, rms):
    """d * (q - 16)"""
    blocks["d"] = near(source, rms / 9.2, len(blocks)) * signs(source, len(blocks))


def fill_q8_0(source, blocks, rms):
    """d * q; no quantiser makes -128."""
    blocks["d"] = near(source, rms / 73, len(blocks))
    np.maximum(blocks["codes"], -127, out=blocks["codes"])


def fill_q4_k(source, blocks, rms):
    """d * scale * q - dmin * min. With scale = min and dmin = 7.5 * d the mean is 0. Scales and
    mins have six bits; 8 to 15 need the low four, which lie in bytes of their own for the first
    four groups, and in halves of a byte for the other four."""
    small = source.integers(8, 16, (len(blocks), 8), np.uint8)
    blocks["d"] = near(source, rms / (11.7 * 4.6), len(blocks))
    blocks["dmin"] = 7.5 * blocks["d"].astype(np.float32)
    blocks["scales"] = np.hstack([small[:, :4], small[:, :4], small[:, 4:] * 17])


def fill_q6_k(source, blocks, rms):
    """d * scale * (q - 32)"""
    blocks["scales"] = source.integers(4, 8, (len(blocks), 16), np.int8)
    blocks["scales"] *= signs(source, len(blocks), 16)
    blocks["d"] = near(source, rms / (5.6 * 18.5), len(blocks))


def fill_mxfp4(source, blocks, rms):
    """2^(e - 127) * q"""
    exponent = 127 + round(math.log2(rms / 2.9))
    blocks["e"] = source.integers(exponent - 1, exponent + 1, len(blocks), np.uint8)


FILLS = {Q4_0: fill_q4_0, Q5_0: fill_q5_0, Q8_0: fill_q8_0, Q4_K: fill_q4_k, Q6_K: fill_q6_k,
         MXFP4: fill_mxfp4}


def floats(source, name, dims):
    if name.endswith("norm.weight"):
        mean, rms = 1, 0.1
    elif name.endswith(("gate_inp.weight", "conv1d.weight")):
        mean, rms = 0, dims[0] ** -0.5
    elif name.endswith("ssm_a"):
        mean, rms = -1, 0.1  # states decay
    else:
        mean, rms = 0, 0.3
    return mean + rms * source.standard_normal(math.prod(dims), np.float32)


def blocks_of(source, kind, dims):
    elements, size = gguf.GGML_QUANT_SIZES[kind]
    whole = math.prod(dims) // elements * size
    bits = source.integers(2**64, size=-(-whole // 8), dtype=np.uint64)
    blocks = bits.view(np.uint8)[:whole].view(np.dtype(BLOCKS[kind]))
    FILLS[kind](source, blocks, dims[0] ** -0.5)
    return blocks.view(np.uint8)


# ---- the file -----------------------------------------------------------------------------------


def add_value(writer, key, value):
    kinds = {int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32,
             str: gguf.GGUFValueType.STRING, bool: gguf.GGUFValueType.BOOL}
    if isinstance(value, list):
        writer.add_key_value(key, value, gguf.GGUFValueType.ARRAY, kinds[int])
    else:
        writer.add_key_value(key, value, kinds[type(value)])


def add_tokenizer(writer, path, vocabulary):
    """The tokenizer of a file, with unused tokens at the end."""
    fields = {key: field for key, field in gguf.GGUFReader(path).fields.items()
              if key.startswith("tokenizer.")}
    if "tokenizer.ggml.tokens" not in fields:
        sys.exit(f"{path} has no tokenizer")
    for key, field in fields.items():
        value = field.contents()
        missing = range(len(value), vocabulary) if isinstance(value, list) else ()
        if key == "tokenizer.ggml.tokens":
            value += [f"<|unused {i}|>" for i in missing]
        elif key == "tokenizer.ggml.token_type":
            value += [int(gguf.TokenType.UNUSED) for _ in missing]
        elif key == "tokenizer.ggml.scores":
            value += [0.0 for _ in missing]
        writer.add_key_value(key, value, field.types[0],
                             field.types[-1] if len(field.types) > 1 else None)


def write(path, shape, mix, layers, tokenizer, seed):
    rows = list(tensors(shape, mix, layers))
    for name, kind, dims in rows:
        if dims[0] % gguf.GGML_QUANT_SIZES[kind][0]:
            sys.exit(f"{name} has rows of {dims[0]} numbers: no whole blocks of {kind.name}")
    source = np.random.default_rng(seed)
    writer = gguf.GGUFWriter(path, shape.architecture)
    add_value(writer, "general.file_type", int(mix.file_type))
    for key, value in metadata(shape, layers).items():
        add_value(writer, f"{shape.architecture}.{key}", value)
    add_tokenizer(writer, tokenizer, shape.vocabulary)
    for name, kind, dims in rows:
        stored = gguf.quant_shape_to_byte_shape(dims[::-1], kind)
        writer.add_tensor_info(name, stored, np.dtype(np.uint8), math.prod(stored), kind)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for name, kind, dims in rows:
        writer.write_tensor_data(floats(source, name, dims) if kind == F32 else
                                 blocks_of(source, kind, dims))
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("shape", choices=SHAPES)
    parser.add_argument("types", choices=MIXES, help="of the matrices")
    parser.add_argument("--layers", type=int, default=8)
    parser.add_argument("--tokenizer", required=True, help="a GGUF file that has one")
    parser.add_argument("--output", required=True)
    parser.add_argument("--seed", type=int, default=1)
    options = parser.parse_args()
    # A file that is there is whole.
    part = options.output + ".part"
    write(part, SHAPES[options.shape], MIXES[options.types], options.layers, options.tokenizer,
          options.seed)
    os.replace(part, options.output)
    print(f"{options.output}: {os.path.getsize(options.output) / 1e9:.2f} GB")


if __name__ == "__main__":
    main()
