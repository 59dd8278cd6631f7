"""vLLM's attention backend of the CPU platform, on Sinter."""
from dataclasses import dataclass, replace

import torch
from vllm.v1.attention.backend import (AttentionBackend, AttentionImpl, AttentionMetadataBuilder,
                                       AttentionType, MultipleOf)
from vllm.v1.attention.backends.registry import AttentionBackendEnum, register_backend
from vllm.v1.kv_cache_interface import KVCacheLayout, KVQuantMode

from . import options
from .attention import FORMS, Kind, append, attention, rows_of_slots
from .calls import TYPES

# What vLLM calls caches of codes -> a form of Sinter.
_CODES = {"int8_per_token_head": "int8", "int4_per_token_head": "int4"}
_FLOATS = {"float16": "f16", "bfloat16": "bf16"}


def _form(cache_dtype, rows):
    """The form of a cache; auto is the type of the rows."""
    return FORMS[_CODES.get(cache_dtype) or _FLOATS.get(cache_dtype) or TYPES[rows]]


class SinterAttentionBackend(AttentionBackend):
    """Paged attention of decoders."""

    # Appending needs the rows of the slots, which the metadata has.
    forward_includes_kv_cache_update = True
    supported_dtypes = [torch.float16, torch.bfloat16, torch.float32]
    supported_kv_cache_dtypes = ["auto", *_FLOATS, *_CODES]

    @staticmethod
    def get_name():
        return "CPU_ATTN"  # in whose place it stands: vLLM has a list of names

    @staticmethod
    def get_supported_kernel_block_sizes(kv_cache_spec=None):
        return [MultipleOf(1)]

    @classmethod
    def supported_kv_cache_layouts(cls):
        return (KVCacheLayout.LBHNC,)

    @classmethod
    def customize_spec(cls, spec):
        names = {KVQuantMode.INT8_PER_TOKEN_HEAD: "int8", KVQuantMode.INT4_PER_TOKEN_HEAD: "int4"}
        if spec.kv_quant_mode not in names or spec.state_content_bytes is not None:
            return spec
        return replace(spec, state_content_bytes=FORMS[names[spec.kv_quant_mode]].content(
            spec.head_size))

    @classmethod
    def supports_sliding_window(cls):
        return True

    @classmethod
    def supports_sink(cls):
        return True

    @staticmethod
    def get_impl_cls():
        return SinterAttentionImpl

    @staticmethod
    def get_builder_cls():
        return SinterAttentionMetadataBuilder


@dataclass
class Group:
    """Sequences that have as many queries each: those of tokens [first, last) of the step.

    table   blocks of each
    before  tokens that each has before the first query
    """
    first: int
    last: int
    table: torch.Tensor
    before: torch.Tensor


@dataclass
class SinterAttentionMetadata:
    """rows: where the new tokens of the step go in the cache."""
    rows: torch.Tensor
    groups: list


class SinterAttentionMetadataBuilder(AttentionMetadataBuilder):
    reorder_batch_threshold = 1  # sequences with one query come first

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._heads, self._block = kv_cache_spec.num_kv_heads, kv_cache_spec.block_size

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        if common.causal is not True:
            raise NotImplementedError("Sinter's attention backend is causal")
        starts = common.query_start_loc_cpu.tolist()
        count = common.num_reqs
        lengths = common.seq_lens[:count].int()
        queries = [starts[i + 1] - starts[i] for i in range(count)]
        groups, i = [], 0
        while i < count:
            # Sequences of one query together; each of more by itself, since each reads its blocks.
            end = i + 1
            while queries[i] == 1 and end < count and queries[end] == 1:
                end += 1
            blocks = -(-int(lengths[i:end].max()) // self._block)
            if queries[i] and blocks:
                groups.append(Group(
                    starts[i], starts[end], common.block_table_tensor[i:end, :blocks].int(),
                    lengths[i:end] - queries[i]))
            i = end
        slots = common.slot_mapping[:common.num_actual_tokens].long()
        return SinterAttentionMetadata(rows_of_slots(slots, self._heads, self._block), groups)


class SinterAttentionImpl(AttentionImpl):
    def __init__(self, num_heads, head_size, scale, num_kv_heads=None, alibi_slopes=None,
                 sliding_window=None, kv_cache_dtype="auto", logits_soft_cap=None,
                 attn_type=AttentionType.DECODER, kv_sharing_target_layer_name=None, sinks=None):
        if attn_type != AttentionType.DECODER or alibi_slopes is not None:
            raise NotImplementedError("Sinter's attention backend is for decoders without ALiBi; "
                                      "leave attention out of the variable SINTER_VLLM")
        self.num_heads, self.head_size, self.scale = num_heads, head_size, float(scale)
        self.num_kv_heads = num_kv_heads or num_heads
        self.kv_cache_dtype, self.sliding_window = kv_cache_dtype, sliding_window
        self.logits_soft_cap = logits_soft_cap or None
        self.sinks, self._shares = sinks, kv_sharing_target_layer_name is not None

    def _kind(self, rows, block):
        return Kind(TYPES[rows], _form(self.kv_cache_dtype, rows), self.num_kv_heads,
                    self.num_heads // self.num_kv_heads, self.head_size, block, self.scale,
                    self.sliding_window, self.logits_soft_cap, self.sinks is not None,
                    options.fpmath())

    def forward(self, layer, query, key, value, kv_cache, attn_metadata, output,
                output_scale=None, output_block_scale=None):
        """query, output [tokens, heads, head]; key, value [tokens, KV heads, head]."""
        if output_scale is not None or output_block_scale is not None:
            raise NotImplementedError("Sinter's attention backend writes floats")
        if attn_metadata is None:
            return output  # vLLM warms up
        kind = self._kind(query.dtype, kv_cache.shape[2])
        tokens = attn_metadata.rows.shape[0] // self.num_kv_heads
        if key is not None and not self._shares:
            append(kind)(key[:tokens], value[:tokens], kv_cache, attn_metadata.rows)
        run = attention(kind)
        sinks = None if self.sinks is None else self.sinks.float()
        for group in attn_metadata.groups:
            each = (group.table.shape[0], -1)
            run(query[group.first:group.last].unflatten(0, each), kv_cache, group.table,
                group.before, output[group.first:group.last].unflatten(0, each), sinks)
        return output


def register():
    """Puts the backend in the place of vLLM's own for CPUs."""
    register_backend(AttentionBackendEnum.CPU_ATTN,
                     "sinter_vllm.attention_backend.SinterAttentionBackend")
