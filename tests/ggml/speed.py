#!/usr/bin/env python3
"""Tokens/s of llama.cpp on ggml's CPU backend and on this one: SmolLM2, and models with the shapes
of real ones and random weights (tools/dev/make_gguf.py). Both run in a host that is built here from
the sources of PyPI, for this machine (GGML_NATIVE, without AMX) and for AVX2 alone, with the
compiler flags of its release build; with --caps=amx it has AMX.

Both backends have a process with the model (rates.c), and these run in turn. Rates are medians, the
ratio is the median over the rounds, with the least and the most. Then each loads the model some
times, from a file that the system has in memory."""
import argparse
import collections
import os
import shutil
import statistics
import subprocess
import sys
import time

import run as ggml

# For each cap, the options of ggml's build. Sinter does not use AMX, so only the cap "amx" builds
# ggml with it. gcc 12 does not know that an AMX tile configuration is read as a whole: it drops the
# stores to it unless it must keep dead stores, and the program dies of an illegal instruction.
NO_AMX, NO_DSE = "-U__AMX_INT8__", "-fno-tree-dse -fno-dse"
CAPS = {"native": {"GGML_NATIVE": "ON", "CMAKE_C_FLAGS": NO_AMX, "CMAKE_CXX_FLAGS": NO_AMX},
        "avx2": {"GGML_NATIVE": "OFF", "GGML_AVX2": "ON", "GGML_FMA": "ON", "GGML_F16C": "ON",
                 "GGML_BMI2": "ON"},
        "amx": {"GGML_NATIVE": "ON", "CMAKE_CXX_FLAGS": NO_DSE}}
# A line runs a prompt, or steps of one token for each sequence, behind as many tokens in the cache
# as `depth` says. The goal is one for the ratio.
Line = collections.namedtuple("Line", "name cache threads sequences depth prompt steps goal",
                              defaults=[None])


def decode(cache, threads, depth, goal):
    return Line(f"decode at {depth}", cache, threads, 1, depth, 0, 128, goal)


def prompt(cache, tokens, goal):
    return Line(f"prompt of {tokens}", cache, 2, 1, 0, tokens, 0, goal)


SMOLLM2 = [decode("f16", 1, 0, 1.2), decode("f16", 2, 0, 1.2), decode("f16", 2, 5000, 3),
           decode("q8_0", 2, 5000, 3), decode("q4_0", 2, 5000, 5), decode("q8_0", 2, 8192, 4),
           decode("q4_0", 2, 8192, 6), prompt("f16", 2048, 1.5), prompt("f16", 5000, 1.5),
           prompt("q8_0", 2048, 3), prompt("q8_0", 5000, 3), prompt("q4_0", 2048, 4),
           prompt("q4_0", 5000, 4)]
LARGE = [Line(name, "f16", threads, *rest) for name, *rest in (
    ("decode", 1, 128, 0, 32), ("4 sequences", 4, 128, 0, 16), ("8 sequences", 8, 128, 0, 16),
    ("prompt of 512", 1, 0, 512, 0)) for threads in (1, 2)]
# The shape and the types of make_gguf.py.
MODELS = {f"{shape}-{types}": (shape, types) for shape, types in (
    ("llama3-8b", "q4_0"), ("llama3-8b", "q4_k_m"), ("llama3-8b", "q8_0"),
    ("qwen3-30b-a3b", "q4_k_m"), ("gpt-oss-20b", "mxfp4"), ("deepseek-v2-lite", "q4_k_m"),
    ("qwen3.5-35b-a3b", "q4_k_m"), ("granite-4-h-tiny", "q4_k_m"))}
# A warm-up is a run with at most so much: two batches, so that the growing cache is compiled.
WARM_PROMPT, WARM_STEPS = 1024, 4
PAUSE = 0.05  # seconds until the threads of the other process sleep
MAKE_GGUF = os.path.join(ggml.SOURCE, "tools", "dev", "make_gguf.py")


def build_hosts(python, sources, work, caps):
    """The folders with llama.cpp's libraries, by cap."""
    def build(cap, targets):
        return ggml.build_host(python, sources, os.path.join(work, f"speed-{cap}"),
                               {"LLAMA_BUILD_TESTS": "OFF", **CAPS[cap]}, targets)

    folders = {"native": build("native", ["ggml", "llama"])}
    for cap in set(caps) - {"native"}:
        # All but ggml's kernels is the same.
        kernels, folders[cap] = build(cap, ["ggml-cpu"]), os.path.join(work, f"speed-{cap}-bin")
        shutil.rmtree(folders[cap], ignore_errors=True)
        shutil.copytree(folders["native"], folders[cap], symlinks=True,
                        ignore=shutil.ignore_patterns("libggml-cpu*"))
        for name in os.listdir(kernels):
            if name.startswith("libggml-cpu"):
                shutil.copy(os.path.join(kernels, name), folders[cap], follow_symlinks=False)
    return folders


def model_path(name, layers, folder, tokenizer):
    """The file of a model, which is made where it is missing."""
    path = os.path.join(folder, f"{name}-{layers}.gguf")
    if not os.path.exists(path):
        os.makedirs(folder, exist_ok=True)
        print(ggml.run([sys.executable, "-B", MAKE_GGUF, *MODELS[name], f"--layers={layers}",
                        f"--tokenizer={tokenizer}", f"--output={path}"]), end="", flush=True)
    return path


class Host:
    """A process with a model on one backend: Sinter's if there is a library, else the CPU's."""

    def __init__(self, program, folder, model, cap, backend=None, read=False):
        environment = dict(os.environ, LD_LIBRARY_PATH=folder)
        environment.pop("GGML_BACKEND_PATH", None)
        if backend:
            environment["GGML_BACKEND_PATH"] = backend
            if cap == "avx2":
                environment["SINTER_MAX_CPU_ISA"] = "avx2"
        words = [program, model, "Sinter" if backend else "cpu", *(["read"] if read else [])]
        self.process = subprocess.Popen(words, env=environment, text=True, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)
        self.context = None

    def ask(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()
        answer = self.process.stdout.readline()
        if not answer:
            sys.exit(f"the process ended with {self.process.wait()} at {words}")
        return answer

    def open(self, line):
        """A context for this line, unless that of the line before serves: filling it takes time."""
        context = line.cache, line.sequences, line.depth, line.prompt + line.steps
        if context != self.context:
            self.ask("context", *context)
            self.context = context

    def run(self, line, most_prompt=sys.maxsize, most_steps=sys.maxsize):
        """Seconds."""
        time.sleep(PAUSE)
        return float(self.ask("run", line.threads, min(line.prompt, most_prompt),
                              min(line.steps, most_steps)))

    def close(self):
        self.process.stdin.close()
        self.process.wait()


def measure(hosts, line, runs):
    """Seconds of each run, for each host."""
    for host in hosts:
        host.open(line)
        host.run(line, WARM_PROMPT, WARM_STEPS)
    seconds = [[] for _ in hosts]
    for turn in range(runs):
        order = list(zip(hosts, seconds))
        for host, found in order if turn % 2 == 0 else reversed(order):
            found.append(host.run(line))
    return seconds


def gigabytes(line, seconds, weights, experts):
    """GB/s of weights that steps read; nobody knows how many experts several sequences read."""
    if not line.steps or (experts and line.sequences > 1):
        return "-"
    return f"{1e-9 * weights * line.steps / seconds:.1f}"


def measure_loading(start, runs):
    """Prints how long loading takes and how much memory at most; start(which, read) makes a host
    on the CPU backend (0) or on Sinter (1), which reads the file or maps it."""
    print("\n| loading, the file is | CPU backend, s | Sinter | ratio | CPU backend, peak GB | "
          "Sinter |\n|---|---|---|---|---|---|", flush=True)
    for read in (False, True):
        seconds, peaks = [[], []], [0, 0]
        for turn in range(runs):
            for which in (0, 1) if turn % 2 == 0 else (1, 0):
                host = start(which, read)
                words = host.ask("loaded").split()
                seconds[which].append(float(words[0]))
                peaks[which] = max(peaks[which], 1e-9 * int(words[1]))
                host.close()
        ratio = statistics.median(ours / theirs for theirs, ours in zip(*seconds))
        print(f"| {'read' if read else 'mapped'} | " +
              " | ".join(f"{statistics.median(each):.2f}" for each in seconds) +
              f" | {ratio:.2f} | " + " | ".join(f"{peak:.2f}" for peak in peaks) + " |", flush=True)


def measure_model(name, path, lines, hosts, runs):
    """Prints a table."""
    weights, experts = map(int, hosts[0].ask("weights").split())
    print(f"\n{name}: {os.path.getsize(path) / 1e9:.2f} GB, of which a token reads "
          f"{weights / 1e9:.3f} GB\n\n| | cache | threads | CPU backend, tokens/s | Sinter | ratio "
          "| CPU backend, GB/s of weights | Sinter |\n|---|---|---|---|---|---|---|---|",
          flush=True)
    for line in lines:
        seconds = measure(hosts, line, runs)
        ratios = [theirs / ours for theirs, ours in zip(*seconds)]
        ratio = statistics.median(ratios)
        goal = "" if not line.goal else (f", goal {line.goal}" +
                                         ("" if ratio >= line.goal else ": MISSED"))
        tokens = line.sequences * (line.prompt + line.steps)
        middle = [statistics.median(each) for each in seconds]
        rates = [f"{tokens / each:.1f}" for each in middle]
        reads = [gigabytes(line, each, weights, experts) for each in middle]
        print(f"| {line.name} | {line.cache} | {line.threads} | {' | '.join(rates)} | {ratio:.2f} "
              f"({min(ratios):.2f} to {max(ratios):.2f}){goal} | {' | '.join(reads)} |",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--sinter", required=True, help="a build folder of this project")
    parser.add_argument("--work", required=True, help="the scratch folder, kept for the next run")
    parser.add_argument("--caps", default="native,avx2", help="of " + ", ".join(CAPS))
    parser.add_argument("--models", default=",".join(["smollm2", *MODELS]),
                        help="names of these, or paths of GGUF files (default: %(default)s)")
    parser.add_argument("--layers", type=int, default=8, help="of models with random weights")
    parser.add_argument("--files", help="the folder of these models (default: WORK/models)")
    parser.add_argument("--only", default="", help="lines that begin so")
    parser.add_argument("--runs", type=int, default=3)
    arguments = parser.parse_args()
    work = os.path.abspath(arguments.work)
    caps, models = arguments.caps.split(","), arguments.models.split(",")
    for name in models:
        if name != "smollm2" and name not in MODELS and not os.path.exists(name):
            parser.error(f"no such model: {name}")
    fetched, why = ggml.fetch(work)
    if not fetched:
        sys.exit(f"skipped: {why}")
    python, sources, smollm2 = fetched
    backend = ggml.build_backend(arguments.sinter, sources, work)
    folders = build_hosts(python, sources, work, caps)
    program = ggml.build_programs(sources, folders["native"], work, ["rates"])["rates"]
    files = arguments.files or os.path.join(work, "models")
    for name in models:
        path = (smollm2 if name == "smollm2" else name if name not in MODELS else
                model_path(name, arguments.layers, files, smollm2))
        lines = [line for line in (SMOLLM2 if name == "smollm2" else LARGE)
                 if line.name.startswith(arguments.only)]
        for cap in caps:
            def start(which, read=False, path=path, cap=cap):
                return Host(program, folders[cap], path, cap, (None, backend)[which], read)

            if lines:
                hosts = [start(which) for which in (0, 1)]
                measure_model(f"{os.path.basename(path)}, {cap}", path, lines, hosts,
                              arguments.runs)
                for host in hosts:
                    host.close()
            if "loading".startswith(arguments.only):
                print(f"\n{os.path.basename(path)}, {cap}", flush=True)
                measure_loading(start, arguments.runs)


if __name__ == "__main__":
    main()
