#!/usr/bin/env python3
"""Measures decoding over caches of several types and lengths with graph_runner and draws docs/decode.svg: time against the number of tokens, and
what reading the cache once takes on the same machine. Takes a minute or two."""
import argparse
import functools
import os
import re
import statistics
import subprocess
import sys
import tempfile

import attention_models
import quiet
import scratch_venv

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..")
PACKAGES = ["matplotlib==3.11.2"]
HEADS = (8, 4, 128)  # of K and V, queries for each, size
MODES = {"strict": "strict", "f16": "fpmath mode f16"}
CACHES = {"f16": "f16", "s8-g32": "s8, groups of 32", "mxfp8-e4m3": "MXFP8", "s4-zp-g32": "s4 + zero points, groups of 32", "mxfp4": "MXFP4"}


def measure(options, stored, mode):
    """[(tokens, milliseconds of an execute, MB of K and V, GB/s that reading has between the executes)]"""
    lists = os.path.join(ROOT, "tests", "lists")  # the paths of lines start there
    with tempfile.NamedTemporaryFile("w", suffix=".list", dir=lists) as file:
        file.writelines(attention_models.line("decode", stored, (*HEADS, 1, tokens), mode) + "\n" for tokens in options.tokens)
        file.flush()
        command = [options.runner, f"--threads={options.threads}", f"--min-time={options.min_time}", f"--batch={file.name}"]
        run = functools.partial(subprocess.run, command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
        text = quiet.measure(run, options.lock).stdout
    found = re.findall(r"MFLOP, ([\d.e+-]+) MB of K and V.*?between the runs: best [\d.e+-]+, median ([\d.e+-]+).*?median +([\d.e+-]+) ms", text, re.DOTALL)
    return [(tokens, float(ms), float(megabytes), float(rate)) for tokens, (megabytes, rate, ms) in zip(options.tokens, found, strict=True)]


def measure_all(options):
    """(mode, cache) -> [(tokens, ms, MB)], and the median GB/s of reading."""
    rows, reads = {}, []
    for stored in CACHES:
        for mode in MODES:
            for tokens, ms, megabytes, rate in measure(options, stored, mode):
                rows.setdefault((mode, stored), []).append((tokens, ms, megabytes))
                reads.append(rate)
                print(f"{mode:6} {stored:10} T {tokens:6} {ms:8.3f} ms {megabytes / ms:6.2f} GB/s = {megabytes / ms / rate:.2f} of reading", flush=True)
    return rows, statistics.median(reads)


def draw(rows, rate, path):
    import matplotlib

    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.fonttype": "none", "svg.hashsalt": "decode", "font.size": 9})
    import matplotlib.pyplot as plt

    figure, axes = plt.subplots(1, len(MODES), figsize=(9, 4), sharey=True)
    for axis, (mode, title) in zip(axes, MODES.items()):
        for i, (stored, label) in enumerate(CACHES.items()):
            tokens, times, megabytes = zip(*rows[mode, stored])
            axis.loglog(tokens, times, "o-", color=f"C{i}", label=label, markersize=3, linewidth=1.2)
            axis.loglog(tokens, [mb / rate for mb in megabytes], ":", color=f"C{i}", linewidth=0.8)
        axis.set_title(title)
        axis.set_xlabel("tokens in the cache")
        axis.set_xticks(tokens, [str(t) if t < 1024 else f"{t // 1024}k" for t in tokens], minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("milliseconds for one token")
    axes[0].legend(fontsize=8, title=f"dotted: reading the cache at {rate:.0f} GB/s", title_fontsize=8)
    figure.tight_layout()
    os.makedirs(os.path.dirname(path), exist_ok=True)
    figure.savefig(path, metadata={"Date": None})


def parse_options():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runner", default=os.path.abspath(os.path.join(ROOT, "build", "release", "graph_runner")))
    parser.add_argument("--venv", default=os.path.join(ROOT, "build", "plot-venv"), help="made if it is not there")
    parser.add_argument("--out", default=os.path.join(ROOT, "docs", "decode.svg"))
    parser.add_argument("--lock", default=os.devnull, help="a file to lock while measuring, where others measure too")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--min-time", type=float, default=0.3, help="seconds for each point")
    parser.add_argument("--tokens", type=int, nargs="+", default=[512 << i for i in range(8)])
    return parser.parse_args()


def main():
    options = parse_options()
    scratch_venv.enter(options.venv, PACKAGES)
    rows, rate = measure_all(options)
    draw(rows, rate, os.path.abspath(options.out))
    return 0


if __name__ == "__main__":
    sys.exit(main())
