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
class SinterAttentionMetadata:
    """A step.

    rows      where the new tokens go in the cache
    starts    first token of each sequence, and the end of the last one
    table     blocks of each sequence
    before    tokens of each sequence before its first query
    sequence  of each token: its row of the table
    position  of each token: tokens of its sequence before it
    """
    rows: torch.Tensor
    starts: list
    table: torch.Tensor
    before: torch.Tensor
    sequence: torch.Tensor
    position: torch.Tensor

    def groups(self):
        """Sequences with one query together, each of more by itself: first and end."""
        first, count = 0, len(self.starts) - 1
        queries = [self.starts[i + 1] - self.starts[i] for i in range(count)]
        while first < count:
            end = first + 1
            while queries[first] == 1 and end < count and queries[end] == 1:
                end += 1
            if queries[first]:
                yield first, end
            first = end


class SinterAttentionMetadataBuilder(AttentionMetadataBuilder):
    reorder_batch_threshold = 1  # sequences with one query come first

    def __init__(self, kv_cache_spec, layer_names, vllm_config, device):
        super().__init__(kv_cache_spec, layer_names, vllm_config, device)
        self._heads, self._block = kv_cache_spec.num_kv_heads, kv_cache_spec.block_size

    def build(self, common_prefix_len, common_attn_metadata, fast_build=False):
        common = common_attn_metadata
        if common.causal is not True:
            raise NotImplementedError("Sinter's attention backend is causal")
        count = common.num_reqs
        starts = common.query_start_loc_cpu[:count + 1]
        queries, lengths = (starts[1:] - starts[:-1]).int(), common.seq_lens[:count].int()
        before = lengths - queries
        sequence = torch.repeat_interleave(torch.arange(count, dtype=torch.int32), queries)
        blocks = -(-int(lengths.max()) // self._block)
        # The number of a token in its sequence: that in the step, less the start of the sequence.
        position = torch.arange(len(sequence), dtype=torch.int32) + (
            before - starts[:-1].int())[sequence]
        slots = common.slot_mapping[:common.num_actual_tokens].long()
        return SinterAttentionMetadata(
            rows_of_slots(slots, self._heads, self._block), starts.tolist(),
            common.block_table_tensor[:count, :blocks].int(), before, sequence, position)


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
        sinks = None if self.sinks is None else self.sinks.float()
        step, run = attn_metadata, attention(kind, True)
        if run.in_place:
            last = step.starts[-1]
            run(query[:last].unsqueeze(1), kv_cache, step.table, step.position,
                output[:last].unsqueeze(1), sinks, step.sequence)
            return output
        # Without a kernel that reads blocks where they lie, each item has a copy of its tokens.
        run = attention(kind, False)
        for first, end in step.groups():
            tokens, each = slice(step.starts[first], step.starts[end]), (end - first, -1)
            run(query[tokens].unflatten(0, each), kv_cache, step.table[first:end],
                step.before[first:end], output[tokens].unflatten(0, each), sinks)
        return output


def register():
    """Puts the backend in the place of vLLM's own for CPUs."""
    register_backend(AttentionBackendEnum.CPU_ATTN,
                     "sinter_vllm.attention_backend.SinterAttentionBackend")
