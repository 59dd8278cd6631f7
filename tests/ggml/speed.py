#!/usr/bin/env python3
"""Tokens/s of llama.cpp on ggml's CPU backend and on this one, with llama-bench, as quotients
against goals. Both run in a host that is built here from the sources of PyPI, once for this machine
(GGML_NATIVE) and once for AVX2 alone, with the compiler flags of its release build."""
import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys

import run as ggml

# For each cap, the options of ggml's build.
CAPS = {"native": {"GGML_NATIVE": "ON"},
        "avx2": {"GGML_NATIVE": "OFF", "GGML_AVX2": "ON", "GGML_FMA": "ON", "GGML_F16C": "ON",
                 "GGML_BMI2": "ON"}}
# What is measured, llama-bench's options, cache, threads, the goal for ours / theirs. A prompt is
# its own warm-up: the first of its runs is counted, and compiles.
DECODE, DEEP, DEEPER = ["-p", "0", "-n", "128"], ["-d", "5000"], ["-d", "8192"]
PROMPT_2K, PROMPT_5K = (["-p", tokens, "-n", "0", "--no-warmup"] for tokens in ("2048", "5000"))
LINES = [("decode, empty", DECODE, "f16", 1, 1.2), ("decode, empty", DECODE, "f16", 2, 1.2),
         ("decode at 5k", DECODE + DEEP, "f16", 2, 3),
         ("decode at 5k", DECODE + DEEP, "q8_0", 2, 3),
         ("decode at 5k", DECODE + DEEP, "q4_0", 2, 5),
         ("decode at 8k", DECODE + DEEPER, "q8_0", 2, 4),
         ("decode at 8k", DECODE + DEEPER, "q4_0", 2, 6),
         ("prompt of 2k", PROMPT_2K, "f16", 2, 1.5),
         ("prompt of 5k", PROMPT_5K, "f16", 2, 1.5),
         ("prompt of 2k", PROMPT_2K, "q8_0", 2, 3),
         ("prompt of 5k", PROMPT_5K, "q8_0", 2, 3),
         ("prompt of 2k", PROMPT_2K, "q4_0", 2, 4),
         ("prompt of 5k", PROMPT_5K, "q4_0", 2, 4)]


def build_hosts(python, sources, work):
    """The folders with llama-bench and its libraries, by cap."""
    folders = {}
    for cap, options in CAPS.items():
        # All but ggml's kernels is the same.
        targets = ["llama-bench"] if cap == "native" else ["ggml"]
        folders[cap] = ggml.build_host(python, sources, os.path.join(work, f"speed-{cap}"),
                                       {"LLAMA_BUILD_TESTS": "OFF", **options}, targets)
    both = os.path.join(work, "speed-avx2-bin")
    shutil.rmtree(both, ignore_errors=True)
    shutil.copytree(folders["native"], both, symlinks=True,
                    ignore=shutil.ignore_patterns("libggml-cpu*"))
    for name in os.listdir(folders["avx2"]):
        if name.startswith("libggml-cpu"):
            shutil.copy(os.path.join(folders["avx2"], name), both, follow_symlinks=False)
    folders["avx2"] = both
    return folders


def rates(folder, model, backend, cap, line, runs):
    """Tokens/s of each run."""
    _, options, cache, threads, _ = line
    environment = dict(os.environ, LD_LIBRARY_PATH=folder)
    environment.pop("GGML_BACKEND_PATH", None)
    device = ["-dev", "none", "-ngl", "0"]
    if backend:
        environment["GGML_BACKEND_PATH"] = backend
        environment.setdefault("SINTER_GGML_FPMATH", "int8")
        device = ["-dev", "Sinter", "-ngl", "99"]
        if cap == "avx2":
            environment["SINTER_MAX_CPU_ISA"] = "avx2"
    done = subprocess.run([os.path.join(folder, "llama-bench"), "-m", model, *device, "-fa", "on",
                           "-o", "jsonl", "-r", str(runs), "-t", str(threads), "-ctk", cache,
                           "-ctv", cache, *options], env=environment, capture_output=True,
                          text=True, check=False)
    rows = [json.loads(row) for row in done.stdout.splitlines() if row.startswith("{")]
    if done.returncode or len(rows) != 1:
        sys.exit(f"llama-bench: {done.stderr[-2000:]}")
    return rows[0]["samples_ts"]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sinter", required=True, help="a build folder of this project")
    parser.add_argument("--work", required=True, help="the scratch folder, kept for the next run")
    parser.add_argument("--caps", default="native,avx2")
    parser.add_argument("--only", default="", help="lines that begin so")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--model", help="another GGUF file than SmolLM2-135M-Instruct")
    arguments = parser.parse_args()
    work = os.path.abspath(arguments.work)
    fetched, why = ggml.fetch(work)
    if not fetched:
        sys.exit(f"skipped: {why}")
    python, sources, model = fetched
    backend = ggml.build_backend(arguments.sinter, sources, work)
    folders = build_hosts(python, sources, work)
    for cap in arguments.caps.split(","):
        for line in LINES:
            name, _, cache, threads, goal = line
            if not name.startswith(arguments.only):
                continue
            theirs, ours = (rates(folders[cap], arguments.model or model, which, cap, line,
                                  arguments.runs) for which in (None, backend))
            quotient = statistics.median(ours) / statistics.median(theirs)
            print(f"{cap}: {name}, {cache} cache, {threads} threads: CPU backend "
                  f"{' '.join(f'{x:.1f}' for x in theirs)}, Sinter "
                  f"{' '.join(f'{x:.1f}' for x in ours)} tokens/s: {quotient:.2f}, goal {goal}"
                  f"{'' if quotient >= goal else ': MISSED'}", flush=True)


if __name__ == "__main__":
    main()
