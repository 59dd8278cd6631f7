#!/usr/bin/env python3
"""The plugin in vLLM: greedy tokens of small models beside those of vLLM's own kernels.

    test_engine.py [CASE ...]    some of the cases alone
"""
import gc
import json
import os
import subprocess
import sys
import tempfile
import unittest

import vllm_case

vllm_case.enter()

import tiny_models

# Name -> form of the weights, type of the cache, largest difference of a logarithm of a
# probability, and changes of the model (None: gpt-oss). Codes of a cache are compared with a cache
# of floats.
CASES = {
    "gptq": ("gptq", "auto", .25, {}),
    "awq": ("awq", "auto", .25, {}),
    "w4a16": ("w4a16", "auto", .25, {}),
    "w4a16-zeros": ("w4a16-zeros", "auto", .25, {}),
    "w8a8": ("w8a8", "auto", .4, {}),
    "w8a16": ("w8a16", "auto", .25, {}),
    "mxfp4": ("mxfp4", "auto", .25, {}),
    "window": ("plain", "auto", .25, {"architectures": ["MistralForCausalLM"],
                                      "model_type": "mistral", "sliding_window": 48}),
    "gpt-oss": ("mxfp4", "auto", .25, None),
    "int8-cache": ("plain", "int8_per_token_head", .4, {}),
    "int4-cache": ("plain", "int4_per_token_head", 3, {}),
}
# vLLM has no kernel for these on CPUs. The other side has the same numbers as plain weights.
PLAIN = ("w8a16", "mxfp4", "gpt-oss")
TOKENS, MOST = 12, 20


def prompts():
    """Of many lengths; some share their first tokens, so that blocks of the cache are shared."""
    made = []
    for i, n in enumerate((1, 5, 31, 32, 33, 64, 100, 150, 150, 200)):
        first = 100 if n >= 100 else i
        made.append([(first + 7 * j) % 509 + 3 for j in range(n - 1)] + [3 + i])
    return made


def run(folder, plugin):
    """Tokens of all cases, with the most likely ones at each place: more sequences than run at
    once, prompts in chunks, blocks that are shared."""
    from vllm import LLM, SamplingParams
    from vllm.distributed.parallel_state import cleanup_dist_env_and_memory

    sampling = SamplingParams(temperature=0, max_tokens=TOKENS, ignore_eos=True, detokenize=False,
                              logprobs=MOST)
    found = {}
    for name, (_, cache, _, _) in CASES.items():
        engine = LLM(model=os.path.join(folder, name if plugin or name not in PLAIN else
                                        f"{name}-plain"), skip_tokenizer_init=True,
                     dtype="bfloat16", max_model_len=512, enforce_eager=True, max_num_seqs=6,
                     max_num_batched_tokens=64, block_size=32, enable_prefix_caching=True,
                     kv_cache_dtype=cache if plugin else "auto",
                     distributed_executor_backend="uni")
        outputs = engine.generate([{"prompt_token_ids": prompt} for prompt in prompts()], sampling,
                                  use_tqdm=False)
        found[name] = [[list(output.outputs[0].token_ids),
                        [{token: value.logprob for token, value in place.items()}
                         for place in output.outputs[0].logprobs]] for output in outputs]
        del engine
        gc.collect()
        cleanup_dist_env_and_memory()
    return found


def side(folder, plugin):
    """The tokens of a process of its own, with the plugin or without."""
    into = os.path.join(folder, "plugin.json" if plugin else "own.json")
    with vllm_case.entry_points() as points:
        # One thread: products are small, and other tests have the cores.
        environment = {**os.environ, "VLLM_PLUGINS": "sinter" if plugin else "",
                       "OMP_NUM_THREADS": "1",
                       "SINTER_VLLM": "linear,attention", "SINTER_VLLM_FPMATH": "f16",
                       "VLLM_ENABLE_V1_MULTIPROCESSING": "0", "VLLM_CPU_KVCACHE_SPACE": "1",
                       "VLLM_NO_USAGE_STATS": "1", "HF_HUB_OFFLINE": "1",
                       "PYTHONPATH": os.pathsep.join((vllm_case.PLUGIN, vllm_case.PYTHON, points))}
        done = subprocess.run([sys.executable, "-B", os.path.abspath(__file__), "--run", folder,
                               into], env=environment, stdout=subprocess.PIPE,
                              stderr=subprocess.STDOUT, text=True, check=False)
    if done.returncode:
        raise RuntimeError(done.stdout[-6000:])
    with open(into, encoding="utf-8") as file:
        return json.load(file), done.stdout


class EngineTest(unittest.TestCase):
    def test_tokens(self):
        with tempfile.TemporaryDirectory() as folder:
            for name, (form, _, _, changes) in CASES.items():
                where = os.path.join(folder, name)
                if changes is None:
                    tiny_models.write_gpt_oss(where, False)
                    tiny_models.write_gpt_oss(f"{where}-plain", True)
                    continue
                tiny_models.write(where, form, **changes)
                if name in PLAIN:
                    tiny_models.write(f"{where}-plain", "plain", same_as=form)
            own, _ = side(folder, False)
            sinter, said = side(folder, True)
        for name, kernel in (("gptq", "SinterMPLinearKernel"), ("w8a8", "SinterInt8LinearKernel"),
                             ("mxfp4", "SinterMxFp4LinearKernel")):
            if name in CASES:
                self.assertIn(kernel, said)
        for name, (_, _, bound, _) in CASES.items():
            same = 0
            for (tokens, places), (wanted, exact) in zip(sinter[name], own[name]):
                for i, token in enumerate(wanted):
                    # Both have the same tokens up to here. What is likely must be as likely.
                    for other, value in exact[i].items():
                        if value > -4 and other in places[i]:
                            self.assertLess(abs(places[i][other] - value), bound, (name, i))
                    if tokens[i] != token:
                        # Another token only where both are about as likely.
                        self.assertIn(str(tokens[i]), exact[i], (name, i))
                        self.assertLess(exact[i][str(token)] - exact[i][str(tokens[i])],
                                        2 * bound, (name, i))
                        break
                    same += 1
            print(f"{name}: {same} of {TOKENS * len(own[name])} tokens before the first near tie")


if __name__ == "__main__":
    if "--run" in sys.argv:
        CASES = {name: CASES[name] for name in os.environ["SINTER_VLLM_CASES"].split(",")}
        models, into = sys.argv[-2:]
        with_plugin = os.environ["VLLM_PLUGINS"] != ""
        tokens_of_cases = run(models, with_plugin)
        with open(into, "w", encoding="utf-8") as written:
            json.dump(tokens_of_cases, written)
    else:
        CASES = {name: CASES[name] for name in sys.argv[1:] or CASES}
        os.environ["SINTER_VLLM_CASES"] = ",".join(CASES)
        unittest.main(argv=sys.argv[:1])
