#!/usr/bin/env python3
"""Measures decoding over caches of several types and lengths with graph_runner and draws
a picture: time against the number of tokens at each cap, and what reading the cache once
takes on the same machine. Takes two minutes."""
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


def measure(options):
    """(cap, mode, cache) -> [(tokens, milliseconds, MB of K and V)], and the median GB/s of
    reading."""
    rows, reads = {}, []
    for cap in options.caps:
        keys = [(stored, mode, tokens) for stored in CACHES for mode in MODES
                for tokens in options.tokens]
        found = plotting.measure(options, cap, [
            attention_models.line("decode", stored, (*HEADS, 1, tokens), mode)
            for stored, mode, tokens in keys
        ])
        for (stored, mode, tokens), document in zip(keys, found, strict=True):
            part = document["performance"]
            ms, megabytes = 1e-3 * part["median"]["us"], 1e-6 * part["bytes"]
            rows.setdefault((cap, mode, stored), []).append((tokens, ms, megabytes))
            reads.append(megabytes / ms / part["median"]["of_read_bandwidth"])
            print(f"{cap:11} {mode:6} {stored:10} T {tokens:6} {ms:8.3f} ms "
                  f"{megabytes / ms:6.2f} GB/s = "
                  f"{part['median']['of_read_bandwidth']:.2f} of reading", flush=True)
    return rows, statistics.median(reads)


def draw(rows, rate, options):
    plt = plotting.pyplot(options)
    figure, grid = plt.subplots(len(options.caps), len(MODES),
                                figsize=(9, 3.4 * len(options.caps)), sharex=True, sharey=True,
                                squeeze=False)
    for axes, cap in zip(grid, options.caps):
        for axis, (mode, title) in zip(axes, MODES.items()):
            for i, (stored, label) in enumerate(CACHES.items()):
                tokens, times, megabytes = zip(*rows[cap, mode, stored])
                axis.loglog(tokens, times, "o-", color=f"C{i}", label=label, markersize=3,
                            linewidth=1.2)
                axis.loglog(tokens, [mb / rate for mb in megabytes], ":", color=f"C{i}",
                            linewidth=0.8)
            axis.set_title(f"{cap}, {title}")
            axis.set_xticks(tokens, [str(t) if t < 1024 else f"{t // 1024}k" for t in tokens],
                            minor=False)
            axis.minorticks_off()
            axis.grid(alpha=0.3)
        axes[0].set_ylabel("milliseconds for one token")
    for axis in grid[-1]:
        axis.set_xlabel("tokens in the cache")
    grid[0][0].legend(fontsize=8, title=f"dotted: reading the cache at {rate:.0f} GB/s",
                      title_fontsize=8)
    plotting.save(figure, options)


def main():
    parser = plotting.options(__doc__, "decode", 0.15)
    parser.add_argument("--tokens", type=int, nargs="+", default=[512, 2048, 8192, 32768])
    options = parser.parse_args()
    plotting.enter(options)
    draw(*measure(options), options)
    return 0


if __name__ == "__main__":
    sys.exit(main())
