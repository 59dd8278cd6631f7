"""Makes small models with weights of random numbers, in the formats of checkpoints that vLLM reads:
a folder with config.json and model.safetensors."""
import json
import os

import torch
from safetensors.torch import save_file

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256,
          "intermediate_size": 512, "num_hidden_layers": 2, "num_attention_heads": 8,
          "num_key_value_heads": 2, "head_dim": 32, "vocab_size": 512,
          "max_position_embeddings": 4096, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
          "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
          "bos_token_id": 1, "eos_token_id": 2}
ENDS = torch.tensor([0, .5, 1, 1.5, 2, 3, 4, 6])  # magnitudes of f4_e2m1
AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]  # element i of eight lies at place AWQ_ORDER.index(i)


def words(codes, bits, dim):
    """Codes of a matrix packed along dim, the first one lowest, in words of 32 bits."""
    per = 32 // bits
    codes = codes.movedim(dim, -1).reshape(*codes.movedim(dim, -1).shape[:-1], -1, per)
    packed = (codes.long() << torch.arange(0, 32, bits)).sum(-1)
    packed = torch.where(packed >= 2**31, packed - 2**32, packed)
    return packed.to(torch.int32).movedim(-1, dim).contiguous()


def quantised(weight, bits, group, zeros):
    """Codes, scales and zero points [n, groups], such that (codes - zeros) * scales is about the
    weight."""
    n, k = weight.shape
    group = k if group == -1 else group
    grouped = weight.float().view(n, k // group, group)
    most = 2**bits - 1
    if zeros:
        low, high = grouped.amin(2).clamp(max=0), grouped.amax(2).clamp(min=0)
        scales = ((high - low) / most).bfloat16().float()
        zero = (-low / scales).round().clamp(0, most)
    else:
        scales = (grouped.abs().amax(2) / (most // 2)).bfloat16().float()
        zero = torch.full_like(scales, 2**(bits - 1))
    codes = (grouped / scales[..., None] + zero[..., None]).round().clamp(0, most)
    return codes.view(n, k).int(), scales, zero.int()


def gptq(name, weight, bits=4, group=128, **_):
    codes, scales, zero = quantised(weight, bits, group, False)
    return {f"{name}.qweight": words(codes.t(), bits, 0), f"{name}.scales": scales.t().half(),
            f"{name}.qzeros": words(zero.t() - 1, bits, 1),
            f"{name}.g_idx": (torch.arange(weight.shape[1]) // group).int()}


def awq(name, weight, group=128, **_):
    codes, scales, zero = quantised(weight, 4, group, True)

    def in_order(matrix):
        rows = matrix.t().reshape(matrix.shape[1], -1, 8)
        return words(rows[:, :, AWQ_ORDER].reshape(matrix.shape[1], -1), 4, 1)

    return {f"{name}.qweight": in_order(codes), f"{name}.scales": scales.t().half(),
            f"{name}.qzeros": in_order(zero)}


def packed(name, weight, bits=4, group=128, zeros=False, **_):
    codes, scales, zero = quantised(weight, bits, group, zeros)
    made = {f"{name}.weight_packed": words(codes, bits, 1), f"{name}.weight_scale":
            scales.bfloat16(), f"{name}.weight_shape": torch.tensor(weight.shape)}
    if zeros:
        made[f"{name}.weight_zero_point"] = words(zero, bits, 0)
    return made


def int8(name, weight, **_):
    codes, scales, _ = quantised(weight, 8, -1, False)
    return {f"{name}.weight": (codes - 128).to(torch.int8), f"{name}.weight_scale": scales}


def mxfp4_values(codes, scales):
    """The numbers of MXFP4 weights [.., n, k / 2]."""
    both = torch.stack([codes & 15, codes >> 4], -1).flatten(-2).long()
    return torch.cat([ENDS, -ENDS])[both] * (scales.float() - 127).exp2().repeat_interleave(32, -1)


def mxfp4(name, weight, **_):
    n, k = weight.shape
    grouped = weight.float().view(n, k // 32, 32)
    exponent = grouped.abs().amax(2).log2().floor() - 2
    values = grouped / exponent.exp2()[..., None]
    codes = (values.abs()[..., None] - ENDS).abs().argmin(-1) + 8 * (values < 0)
    codes = codes.view(n, k // 2, 2)
    return {f"{name}.weight_packed": (codes[..., 0] + 16 * codes[..., 1]).to(torch.uint8),
            f"{name}.weight_scale": (exponent + 127).to(torch.uint8)}


def plain(name, weight, **_):
    return {f"{name}.weight": weight.bfloat16()}


def _compressed(form, weights, activations=None):
    return {"quant_method": "compressed-tensors", "format": form, "ignore": ["lm_head"],
            "quantization_status": "compressed", "config_groups": {"group_0": {
                "targets": ["Linear"], "weights": weights, "input_activations": activations,
                "output_activations": None}}}


def _integers(bits, group, symmetric):
    return {"num_bits": bits, "type": "int", "symmetric": symmetric, "dynamic": False,
            "strategy": "channel" if group == -1 else "group",
            "group_size": None if group == -1 else group}


# Name -> what makes a weight, with which arguments, and the quantization_config.
FORMS = {
    "plain": (plain, {}, None),
    "gptq": (gptq, {}, {"quant_method": "gptq", "bits": 4, "group_size": 128, "desc_act": False,
                        "sym": True}),
    "awq": (awq, {}, {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True,
                      "version": "gemm"}),
    "w4a16": (packed, {"group": 32}, _compressed("pack-quantized", _integers(4, 32, True))),
    "w4a16-zeros": (packed, {"zeros": True}, _compressed("pack-quantized",
                                                         _integers(4, 128, False))),
    "w8a16": (packed, {"bits": 8, "group": -1}, _compressed("pack-quantized",
                                                            _integers(8, -1, True))),
    "w8a8": (int8, {}, _compressed("int-quantized", _integers(8, -1, True), {
        "num_bits": 8, "type": "int", "symmetric": True, "dynamic": True, "strategy": "token"})),
    "mxfp4": (mxfp4, {}, _compressed("mxfp4-pack-quantized", {
        "num_bits": 4, "type": "float", "symmetric": True, "dynamic": False, "strategy": "group",
        "group_size": 32, "scale_dtype": "torch.uint8"})),
}


def rounded(name, weight, form):
    """A plain weight that has the values of one of a form."""
    make, arguments, _ = FORMS[form]
    if make is mxfp4:
        made = mxfp4(name, weight)
        return plain(name, mxfp4_values(made[f"{name}.weight_packed"],
                                        made[f"{name}.weight_scale"]))
    bits, group = arguments.get("bits", 4), arguments.get("group", 128)
    codes, scales, zero = quantised(weight, bits, group, arguments.get("zeros", False))
    each = weight.shape[1] // scales.shape[1]
    return plain(name, (codes - zero.repeat_interleave(each, 1))
                 * scales.repeat_interleave(each, 1))


def _save(folder, tensors, config):
    os.makedirs(folder, exist_ok=True)
    save_file({name: tensor.contiguous() for name, tensor in tensors.items()},
              os.path.join(folder, "model.safetensors"), {"format": "pt"})
    with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
        json.dump(config, file, indent=1)


def write(folder, form, seed=1, same_as=None, **changes):
    """Writes a model of a form of FORMS, with changes of CONFIG. same_as: a plain one with the
    values of another form."""
    make, arguments, quantization = FORMS[form]
    if same_as is not None:
        make, arguments = rounded, {"form": same_as}
    config = {**CONFIG, **changes}
    if quantization is not None:
        config["quantization_config"] = quantization
    torch.manual_seed(seed)
    hidden, mid, head = (config[key] for key in ("hidden_size", "intermediate_size", "head_dim"))
    heads, kv_heads = config["num_attention_heads"], config["num_key_value_heads"]
    tensors = {}

    def random(n, k):
        return torch.randn(n, k) / k**.5

    for layer in range(config["num_hidden_layers"]):
        name = f"model.layers.{layer}"
        for part, n, k in (("self_attn.q_proj", heads * head, hidden),
                           ("self_attn.k_proj", kv_heads * head, hidden),
                           ("self_attn.v_proj", kv_heads * head, hidden),
                           ("self_attn.o_proj", hidden, heads * head),
                           ("mlp.gate_proj", mid, hidden), ("mlp.up_proj", mid, hidden),
                           ("mlp.down_proj", hidden, mid)):
            tensors |= make(f"{name}.{part}", random(n, k), **arguments)
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{name}.{norm}.weight"] = torch.ones(hidden).bfloat16()
    tensors["model.embed_tokens.weight"] = torch.randn(config["vocab_size"], hidden).bfloat16()
    tensors["lm_head.weight"] = (4 * random(config["vocab_size"], hidden)).bfloat16()
    tensors["model.norm.weight"] = torch.ones(hidden).bfloat16()
    _save(folder, tensors, config)


GPT_OSS = {"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "hidden_size": 256,
           "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
           "num_key_value_heads": 2, "head_dim": 64, "vocab_size": 512, "num_local_experts": 8,
           "num_experts_per_tok": 2, "sliding_window": 32, "max_position_embeddings": 4096,
           "layer_types": ["sliding_attention", "full_attention"], "rms_norm_eps": 1e-5,
           "tie_word_embeddings": False, "torch_dtype": "bfloat16", "bos_token_id": 1,
           "eos_token_id": 2, "rope_scaling": {
               "rope_type": "yarn", "factor": 2.0, "beta_fast": 32.0, "beta_slow": 1.0,
               "truncate": False, "original_max_position_embeddings": 2048}}


def write_gpt_oss(folder, as_plain, seed=1):
    """A model of gpt-oss with experts in MXFP4, or as_plain with the same numbers in bf16."""
    torch.manual_seed(seed)
    config, tensors = dict(GPT_OSS), {}
    if not as_plain:
        config["quantization_config"] = {"quant_method": "mxfp4"}
    hidden, mid, experts = 256, 128, 8

    def random(*dims):
        return (torch.randn(*dims) / dims[-1]**.5).bfloat16()

    for layer in range(2):
        name = f"model.layers.{layer}"
        for part, n, k in (("q", 256, hidden), ("k", 128, hidden), ("v", 128, hidden),
                           ("o", hidden, 256)):
            tensors[f"{name}.self_attn.{part}_proj.weight"] = random(n, k)
            tensors[f"{name}.self_attn.{part}_proj.bias"] = random(n)
        tensors[f"{name}.self_attn.sinks"] = torch.randn(4).bfloat16()
        tensors[f"{name}.mlp.router.weight"] = 2 * random(experts, hidden)
        tensors[f"{name}.mlp.router.bias"] = random(experts)
        for part, n, k in (("gate_up_proj", 2 * mid, hidden), ("down_proj", hidden, mid)):
            where = f"{name}.mlp.experts.{part}"
            made = mxfp4("w", torch.randn(experts * n, k) / k**.5)
            codes, scales = (made[f"w.{each}"].view(experts, n, -1)
                             for each in ("weight_packed", "weight_scale"))
            tensors[f"{where}_bias"] = random(experts, n)
            if as_plain:
                tensors[where] = mxfp4_values(codes, scales).transpose(1, 2).bfloat16()
            else:
                tensors[f"{where}_blocks"] = codes.view(experts, n, k // 32, 16)
                tensors[f"{where}_scales"] = scales
        for norm in ("input_layernorm", "post_attention_layernorm"):
            tensors[f"{name}.{norm}.weight"] = torch.ones(hidden).bfloat16()
    tensors["model.embed_tokens.weight"] = torch.randn(512, hidden).bfloat16()
    tensors["lm_head.weight"] = 4 * random(512, hidden)
    tensors["model.norm.weight"] = torch.ones(hidden).bfloat16()
    _save(folder, tensors, config)
