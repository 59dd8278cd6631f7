"""vLLM's kernels of linear layers, on Sinter: a class for each kind of kernel that vLLM chooses."""
import torch
from vllm.model_executor.kernels import linear as registry
from vllm.model_executor.kernels.linear import register_linear_kernel
from vllm.model_executor.kernels.linear.mixed_precision.MPLinearKernel import MPLinearKernel
from vllm.model_executor.kernels.linear.mxfp4.base import MxFp4LinearKernel
from vllm.model_executor.kernels.linear.scaled_mm.ScaledMMLinearKernel import (
    Int8ScaledMMLinearKernel)
from vllm.platforms import PlatformEnum
from vllm.scalar_type import scalar_types

from . import options
from .linear import Linear, Weights, from_words, zeros_of_words

# torch.compile does not look into an op, so layers are arguments of one by their number.
_layers = []
ops = torch.library.Library("sinter", "DEF")
ops.define("linear(Tensor x, int layer, int n, Tensor? bias) -> Tensor")


def _linear(x, layer, n, bias):
    return _layers[layer](x, bias)


ops.impl("linear", _linear, "CPU")


@torch.library.register_fake("sinter::linear", lib=ops)
def _(x, layer, n, bias):
    return x.new_empty([*x.shape[:-1], n])


def _take(layer, weights, n, k, *names):
    """Makes a layer's weights Sinter's, and frees the parameters that they came from."""
    layer.sinter_layer = len(_layers)
    layer.sinter_n = n
    _layers.append(Linear(weights, n, k, options.fpmath()))
    for name in names:
        if getattr(layer, name, None) is not None:
            delattr(layer, name)
            layer.register_parameter(name, None)


def _apply(layer, x, bias):
    return torch.ops.sinter.linear(x, layer.sinter_layer, layer.sinter_n, bias)


_INTEGERS = {scalar_types.uint4: (4, True), scalar_types.uint4b8: (4, False),
             scalar_types.uint8: (8, True), scalar_types.uint8b128: (8, False)}


class SinterMPLinearKernel(MPLinearKernel):
    """Integers of 4 and 8 bits with floats: AWQ, GPTQ, compressed-tensors (w4a16, w8a16)."""

    @classmethod
    def get_min_capability(cls):
        return -1

    @classmethod
    def can_implement(cls, c):
        if c.weight_type not in _INTEGERS:
            return False, f"Sinter's kernel has no weights of {c.weight_type}"
        if c.zero_points != _INTEGERS[c.weight_type][1]:
            return False, f"{c.weight_type} with zero points: {c.zero_points}"
        k = c.partition_weight_shape[0]
        if c.group_size != -1 and k % c.group_size:
            return False, f"groups of {c.group_size} do not divide a row of {k}"
        return True, None

    def process_weights_after_loading(self, layer):
        c = self.config
        k, n = c.partition_weight_shape
        bits, has_zeros = _INTEGERS[c.weight_type]
        words, scales, zeros = self._get_weight_params(layer)
        # GPTQ (and AWQ, as vLLM converts it) has k first, compressed-tensors n. Sinter has n first.
        codes, dtype = from_words(words.data if words.input_dim == 1 else words.data.t(), bits,
                                  has_zeros)
        scales = scales.data if scales.output_dim == 0 else scales.data.t()
        if has_zeros:
            zeros = zeros_of_words(zeros.data if zeros.output_dim == 0 else zeros.data.t(), bits,
                                   n)
        _take(layer, Weights(codes, scales, zeros if has_zeros else None, dtype), n, k,
              self.w_q_name, self.w_s_name, self.w_zp_name)

    def apply_weights(self, layer, x, bias=None):
        return _apply(layer, x, bias)


class SinterInt8LinearKernel(Int8ScaledMMLinearKernel):
    """Integers of 8 bits with activations that are quantised as they come (w8a8)."""

    @classmethod
    def is_supported(cls, compute_capability=None):
        return True, None

    @classmethod
    def can_implement(cls, c):
        if c.is_static_input_scheme:
            return False, "Sinter's kernel has no scales of activations that are known beforehand"
        return True, None

    def process_weights_after_loading(self, layer):
        weight, scales = (getattr(layer, name).data for name in self.layer_param_names[:2])
        n, k = weight.shape
        if scales.numel() == len(layer.logical_widths) != n:
            # One scale for each of the matrices that vLLM has put together.
            scales = scales.flatten().repeat_interleave(torch.tensor(layer.logical_widths))
        _take(layer, Weights(weight.view(torch.uint8), scales.reshape(n, 1).float(), None, "s8"),
              n, k, *self.layer_param_names)

    def apply_weights(self, layer, x, bias=None):
        return _apply(layer, x, bias)


class SinterMxFp4LinearKernel(MxFp4LinearKernel):
    """MXFP4 weights. Activations stay floats."""

    @classmethod
    def is_supported(cls, compute_capability=None):
        return True, None

    @classmethod
    def can_implement(cls, config):
        return True, None

    def process_weights_after_loading(self, layer):
        n, half = layer.weight.shape
        _take(layer, Weights(layer.weight.data, layer.weight_scale.data, None, "f4_e2m1", "e8m0"),
              n, 2 * half, "weight", "weight_scale")

    def apply_weights(self, layer, x, bias=None):
        return _apply(layer, x, bias)


def register():
    """Puts the kernels before vLLM's own. VLLM_DISABLED_KERNELS leaves them out by name."""
    for kernel, kind, lists in (
            (SinterMPLinearKernel, "mp", registry._POSSIBLE_KERNELS),
            (SinterInt8LinearKernel, "int8", registry._POSSIBLE_INT8_KERNELS),
            (SinterMxFp4LinearKernel, "mxfp4", registry._POSSIBLE_MXFP4_KERNELS)):
        if kernel in lists.get(PlatformEnum.CPU, ()):
            continue
        register_linear_kernel(kernel, PlatformEnum.CPU, kind)
        kernels = lists[PlatformEnum.CPU]
        kernels.insert(0, kernels.pop())
