#!/usr/bin/env python3
"""Tokens per second of a model with layers as large as those of Llama 3 8B and weights of 4 bits in
groups of 128 (GPTQ), in one process of vLLM. The weights are not initialised.

    VLLM_PLUGINS=sinter measure.py --batches 1 8     with the plugin
    VLLM_PLUGINS=       measure.py --batches 1 8     vLLM's own kernels

    --layers N        number of layers
    --batches N ...   sequences at the same time
    --prompt N        tokens of each prompt
    --tokens N        that follow it
    --rounds N        the best of so many is printed
    --cache TYPE      vLLM's kv_cache_dtype
    --lock FILE       hold this lock and real-time priority while a round is timed: for machines
                      on which others work
"""
import argparse
import contextlib
import fcntl
import json
import os
import tempfile
import time

CONFIG = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 4096,
          "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8,
          "vocab_size": 2048, "max_position_embeddings": 8192, "rms_norm_eps": 1e-5,
          "hidden_act": "silu", "tie_word_embeddings": False, "torch_dtype": "bfloat16",
          "bos_token_id": 1, "eos_token_id": 2,
          "quantization_config": {"quant_method": "gptq", "bits": 4, "group_size": 128,
                                  "desc_act": False, "sym": True, "modules_in_block_to_quantize":
                                  ["self_attn", "mlp"]}}


@contextlib.contextmanager
def alone(path):
    """Holds a lock, with real-time priority for all threads of the process."""
    if not path:
        yield
        return
    with open(path, "a", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        for policy, priority in ((os.SCHED_FIFO, 5), (os.SCHED_OTHER, 0)):
            for thread in os.listdir("/proc/self/task"):
                os.sched_setscheduler(int(thread), policy, os.sched_param(priority))
            if policy == os.SCHED_FIFO:
                yield


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--batches", type=int, nargs="+", default=[1, 8])
    parser.add_argument("--prompt", type=int, default=32)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--cache", default="auto")
    parser.add_argument("--lock")
    options = parser.parse_args()
    os.environ.setdefault("VLLM_ENABLE_V1_MULTIPROCESSING", "0")
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "2")

    from vllm import LLM, SamplingParams

    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump({**CONFIG, "num_hidden_layers": options.layers}, file)
        engine = LLM(model=folder, skip_tokenizer_init=True, load_format="dummy", dtype="bfloat16",
                     max_model_len=options.prompt + options.tokens + 8, enforce_eager=True,
                     max_num_seqs=max(options.batches), enable_prefix_caching=False,
                     max_num_batched_tokens=256,
                     kv_cache_dtype=options.cache, distributed_executor_backend="uni")

    def seconds(batch, tokens):
        sampling = SamplingParams(temperature=0, max_tokens=tokens, ignore_eos=True,
                                  detokenize=False)
        prompts = [{"prompt_token_ids": [(7 * i + j) % 2000 for j in range(options.prompt)]}
                   for i in range(batch)]
        start = time.perf_counter()
        engine.generate(prompts, sampling, use_tqdm=False)
        return time.perf_counter() - start

    for batch in options.batches:
        with alone(options.lock):
            seconds(batch, 2)
    best = {}
    for _ in range(options.rounds):
        for batch in options.batches:
            with alone(options.lock):
                first, all_of_them = seconds(batch, 1), seconds(batch, options.tokens)
            found = batch * options.prompt / first, batch * (options.tokens - 1) / (
                all_of_them - first)
            best[batch] = tuple(map(max, zip(found, best.get(batch, found))))
    for batch, (prompt, decode) in best.items():
        print(f"{batch} sequences: prompts of {options.prompt} {prompt:.1f} tokens/s, decode "
              f"{decode:.1f} tokens/s, {batch * 1000 / decode:.2f} ms a step")


if __name__ == "__main__":
    main()
