"""vLLM's method for the experts of gpt-oss in MXFP4, on Sinter. vLLM has none for CPUs."""
import torch
from vllm.model_executor.layers.fused_moe import FusedMoEMethodBase
from vllm.model_executor.layers.fused_moe.oracle.mxfp4 import Mxfp4MoeBackend
from vllm.model_executor.layers.quantization.mxfp4 import (GptOssMxfp4Config,
                                                           GptOssMxfp4MoEMethod)

from . import options
from .experts import Experts
from .linear_kernels import ops

_layers = []
ops.define("experts(Tensor x, Tensor share, Tensor chosen, int layer) -> Tensor")


def _experts(x, share, chosen, layer):
    return _layers[layer](x, share.float(), chosen.int())


ops.impl("experts", _experts, "CPU")


@torch.library.register_fake("sinter::experts", lib=ops)
def _(x, share, chosen, layer):
    return torch.empty_like(x)


class SinterMxfp4MoEMethod(GptOssMxfp4MoEMethod):
    """The parameters are those of vLLM's method; nothing else of it is used."""

    def __init__(self, moe):
        FusedMoEMethodBase.__init__(self, moe)
        self.weight_dtype, self.mxfp4_backend = "gpt_oss_mxfp4", Mxfp4MoeBackend.NONE

    @property
    def is_monolithic(self):
        return False

    def maybe_roundup_sizes(self, hidden_size, intermediate_size_per_partition, act_dtype,
                            moe_parallel_config):
        return hidden_size, intermediate_size_per_partition

    def get_fused_moe_quant_config(self, layer):
        return None

    def process_weights_after_loading(self, layer):
        activation = getattr(layer.activation, "value", layer.activation)
        if activation != "swigluoai" or layer.apply_router_weight_on_input or (
                layer.expert_map is not None):
            raise NotImplementedError(f"Sinter's experts have gpt-oss's activation, not "
                                      f"{activation}, and are all in one process")
        biases = (layer.w13_bias.data, layer.w2_bias.data) if self.moe.has_bias else None
        layer.sinter_layer = len(_layers)
        _layers.append(Experts((layer.w13_weight.data, layer.w13_weight_scale.data),
                               (layer.w2_weight.data, layer.w2_weight_scale.data), biases,
                               options.fpmath()))
        for name in ("w13_weight", "w13_weight_scale", "w2_weight", "w2_weight_scale"):
            delattr(layer, name)
            layer.register_parameter(name, None)

    def apply(self, layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input):
        return torch.ops.sinter.experts(x, topk_weights, topk_ids, layer.sinter_layer)


def register():
    """gpt-oss asks its configuration for the method."""
    GptOssMxfp4Config._make_moe_method = lambda self, moe: SinterMxfp4MoEMethod(moe)
