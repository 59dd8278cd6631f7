#!/usr/bin/env python3
"""The table of docs/scaling.md: how decoding divides among more threads than the machine has.

simulate_scaling.py GRAPH_RUNNER [--threads N,N...] [--nodes N] [--only WORDS]

Each case runs under --simulate-threads. Its row has, for each number of threads, the largest share
over the mean, of bytes / of products: of the worst phase among those that read at least a
twentieth of all bytes. Then, for all phases together, the largest shares over an even division
among the threads; and the MB that are read from other nodes by first touch (if one thread had
written all).
"""

import argparse
import os
import re
import subprocess

ROOT = os.path.abspath(os.path.join(os.path.dirname(__file__), "..", ".."))
PHASE = re.compile(r" (\d+) shares, ([\d.]+) MB \(largest ([\d.]+) of the mean\), "
                   r"([\d.]+) M products \(([\d.]+)\), from other nodes ([\d.]+) MB \(([\d.]+)\)")
ALL = re.compile(r"all: (\d+) barriers, ([\d.]+) MB \(largest ([\d.]+) of the mean\), "
                 r"([\d.]+) M products \(([\d.]+)\), from other nodes ([\d.]+) MB \(([\d.]+)\)")
TILES = "--op-attrs=0:group_shape:1x1x1x32x1+4:group_shape:1x1x1x1x32"
INT8 = "--partition-fpmath=0:int8:true"


def layer(name, past):
    return ["--case=models/layers/" + name + ".json", "--in=3:=" + past]


def product(rows):
    return ["--case=models/weight-q4_0.json", INT8,
            f"--in-shapes=0:{rows}x4096+1:14336x4096+2:14336x128"]


def cache(batch, tokens, name="scaled-tiles"):
    heads = f"{batch}x8x1x"
    return [f"--case=models/attention-decode-{name}.json", TILES,
            f"--in-shapes=0:{batch}x8x4x1x128+1:{heads}128x{tokens}+2:{heads}4x{tokens}+"
            f"8:{heads}{tokens}x128+9:{heads}{tokens}x4"]


def experts(name, tokens, each, shapes, ids):
    return [f"--case=models/serving/moe-mlp-{name}.json", INT8,
            f"--in-shapes=0:{tokens}x1x1x{shapes[0]}+1:{tokens}x{each}+2:{tokens}x{each}x1x1+"
            + shapes[1]] + ([f"--in=1:={ids}"] if ids else [])


QWEN = ("2048", "3:128x768x2048+5:128x768x16+9:128x768x2048+11:128x768x16+18:128x2048x768+"
        "20:128x2048x6")
DEEPSEEK = ("7168", "3:64x2048x7168+5:64x2048x56+9:64x2048x7168+11:64x2048x56+18:64x7168x2048+"
            "20:64x7168x16")
GPT = ("2880", "3:32x2880x2880+5:32x2880x90+9:32x1x2880+12:32x2880x2880+14:32x2880x90+"
       "18:32x1x2880+23:1+24:1+30:32x2880x2880+32:32x2880x90+36:32x1x2880")
EIGHT = "3,17,26,31,12,9,22,5"
CASES = [
    ("Llama 3 8B layer, int4, cache int8, 1,023 tokens",
     layer("llama3-8b-decode-int4-kv8", "1022")),
    ("the same, MXFP4, cache MXFP8", layer("llama3-8b-decode-mxfp4-kvmx8", "1022")),
    ("the same, int4, cache int4, B 4, up to 1,023 tokens",
     layer("llama3-8b-decode-int4-kv4-b4", "1022,512,204,-1")),
    ("gpt-oss 20B layer without experts, MXFP4", layer("gpt-oss-20b-decode-mxfp4-kvmx8",
                                                      "1022+4:=127")),
    ("Qwen2.5 0.5B layer, int4", layer("qwen2.5-0.5b-decode-int4zp-kv4", "1022")),
    ("product 4096 x 14336, Q4_0, B 1", product(1)),
    ("the same, B 16", product(16)),
    ("attention 32/8 heads, 4,096 tokens, tiles int8, B 1", cache(1, 4096)),
    ("the same, B 16", cache(16, 4096)),
    ("the same, cache of strides, B 1", cache(1, 4096, "scaled")),
    ("one cache of 4 sequences, int8, 4,100 tokens each",
     ["--case=models/serving/unified-decode-s8-g32.json", INT8,
      "--in-shapes=0:1x8x4x4x128+7:1x1x1x4x16400+1:1x8x1x128x16400*16793600x128x128x1x1024+"
      "2:1x8x1x4x16400*524800x4x4x1x32+11:1x8x1x16400x128*16793600x128x128x1024x1+"
      "12:1x8x1x16400x4*524800x4x4x32x1", "--in=7:=0,-inf,-inf,-inf"]),
    ("latent attention, 128 heads, 16,384 tokens, int8",
     ["--case=models/serving/latent-decode-s8-g32.json", INT8,
      "--in-shapes=0:1x128x1x576+1:1x1x16384x576+2:1x1x16384x18"]),
    ("experts of Qwen3 30B-A3B, int4, B 1",
     experts("qwen3-30b-a3b-int4-g128", 1, 8, QWEN, EIGHT)),
    ("the same, B 16", experts("qwen3-30b-a3b-int4-g128", 16, 8, QWEN, None)),
    ("experts of gpt-oss 20B, MXFP4, B 1", experts("gpt-oss-20b-mxfp4", 1, 4, GPT, "3,17,26,31")),
    ("the same, B 16", experts("gpt-oss-20b-mxfp4", 16, 4, GPT, None)),
    ("64 experts of DeepSeek V3, int4, B 1",
     experts("deepseek-v3-int4-g128", 1, 8, DEEPSEEK, EIGHT)),
    ("the same, B 16", experts("deepseek-v3-int4-g128", 16, 8, DEEPSEEK, None)),
    ("gated delta net of Qwen3-Next, B 1",
     ["--case=models/serving/gated-delta-net-qwen3-next.json", "--in=6:=0+7:=0",
      "--in-shapes=0:1x1x16x128+1:1x1x16x128+2:1x1x32x128+3:1x32x128x128+4:1x1x32x1+5:1x1x32x1+"
      "6:1+7:1"]),
]


def simulate(runner, words, threads, nodes):
    """The worst phase (bytes, products), all phases (bytes, products), barriers, MB, MB from other
    nodes by first touch and where one thread has written all."""
    done = subprocess.run([runner, "--mode=X", *words, f"--simulate-threads={threads}",
                           f"--simulate-nodes={nodes}"], cwd=ROOT, capture_output=True, text=True,
                          check=False)
    if done.returncode != 0:
        raise SystemExit(done.stdout + done.stderr)
    end = ALL.search(done.stdout)
    phases = [[float(x) for x in p] for p in PHASE.findall(done.stdout)]
    large = [p for p in phases if p[1] >= float(end[2]) / 20]
    return {"worst": (max(p[2] for p in large), max(p[4] for p in large)),
            "all": (float(end[3]), float(end[5])), "barriers": int(end[1]), "bytes": float(end[2]),
            "far": (float(end[6]), float(end[7]))}


def numbers(text):
    return [int(n) for n in text.split(",")]


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("runner")
    parser.add_argument("--threads", type=numbers, default=[8, 16, 32, 64, 128])
    parser.add_argument("--nodes", type=int, default=4)
    parser.add_argument("--only", default="")
    args = parser.parse_args()
    runner = os.path.abspath(args.runner)
    most = 64 if 64 in args.threads else args.threads[-1]
    print("| decoding | MB | barriers | " + " | ".join(map(str, args.threads)) +
          f" | all, {most} | from {args.nodes} nodes, {most} |")
    print("|---" * (len(args.threads) + 5) + "|")
    for name, words in CASES:
        if args.only not in name:
            continue
        got = {n: simulate(runner, words, n, args.nodes) for n in args.threads}
        worst = " | ".join("{:.2f} / {:.2f}".format(*got[n]["worst"]) for n in args.threads)
        print(f"| {name} | {got[most]['bytes']:.1f} | {got[most]['barriers']} | {worst} | "
              "{:.2f} / {:.2f} | ".format(*got[most]["all"]) +
              "{:.1f} ({:.1f}) |".format(*got[most]["far"]), flush=True)


if __name__ == "__main__":
    main()
