#!/usr/bin/env python3
"""Measures decoding over caches of several types and lengths with graph_runner and draws
docs/decode.svg: time against the number of tokens, and what reading the cache once takes on the
same machine. Takes a minute or two."""
import re
import statistics
import sys

import attention_models
import plotting

HEADS = (8, 4, 128)  # of K and V, queries for each, size
MODES = {"strict": "strict", "f16": "fpmath mode f16"}
CACHES = {
    "f16": "f16",
    "s8-g32": "s8, groups of 32",
    "mxfp8-e4m3": "MXFP8",
    "s4-zp-g32": "s4 + zero points, groups of 32",
    "mxfp4": "MXFP4"
}


def measure(options, stored, mode):
    """[(tokens, milliseconds of an execute, MB of K and V, GB/s that reading has between the
    executes)]"""
    text = plotting.measure(options, [
        attention_models.line("decode", stored, (*HEADS, 1, tokens), mode)
        for tokens in options.tokens
    ])
    found = re.findall(
        r"MFLOP, ([\d.e+-]+) MB of K and V.*?between the runs: best [\d.e+-]+, median "
        r"([\d.e+-]+).*?median +([\d.e+-]+) ms",
        text, re.DOTALL)
    return [(tokens, float(ms), float(megabytes), float(rate))
            for tokens, (megabytes, rate, ms) in zip(options.tokens, found, strict=True)]


def measure_all(options):
    """(mode, cache) -> [(tokens, ms, MB)], and the median GB/s of reading."""
    rows, reads = {}, []
    for stored in CACHES:
        for mode in MODES:
            for tokens, ms, megabytes, rate in measure(options, stored, mode):
                rows.setdefault((mode, stored), []).append((tokens, ms, megabytes))
                reads.append(rate)
                print(
                    f"{mode:6} {stored:10} T {tokens:6} {ms:8.3f} ms {megabytes / ms:6.2f} GB/s = "
                    f"{megabytes / ms / rate:.2f} of reading",
                    flush=True)
    return rows, statistics.median(reads)


def draw(rows, rate, options):
    plt = plotting.pyplot(options)
    figure, axes = plt.subplots(1, len(MODES), figsize=(9, 4), sharey=True)
    for axis, (mode, title) in zip(axes, MODES.items()):
        for i, (stored, label) in enumerate(CACHES.items()):
            tokens, times, megabytes = zip(*rows[mode, stored])
            axis.loglog(tokens, times, "o-", color=f"C{i}", label=label, markersize=3,
                        linewidth=1.2)
            axis.loglog(tokens, [mb / rate for mb in megabytes], ":", color=f"C{i}", linewidth=0.8)
        axis.set_title(title)
        axis.set_xlabel("tokens in the cache")
        axis.set_xticks(tokens, [str(t) if t < 1024 else f"{t // 1024}k" for t in tokens],
                        minor=False)
        axis.minorticks_off()
        axis.grid(alpha=0.3)
    axes[0].set_ylabel("milliseconds for one token")
    axes[0].legend(fontsize=8, title=f"dotted: reading the cache at {rate:.0f} GB/s",
                   title_fontsize=8)
    plotting.save(figure, options)


def main():
    parser = plotting.options(__doc__, "decode", 0.3)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512 << i for i in range(8)])
    options = parser.parse_args()
    plotting.enter(options)
    draw(*measure_all(options), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
