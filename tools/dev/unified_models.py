"""A part of make_models.py: decoding of several sequences that share one cache, whose mask is a
tensor of 0 and -inf, beside the same sequences in caches of their own; the list that checks it at
small sizes, and the one that measures it from memory. Lines rewrite shapes of their graph."""
from attention_models import TILED, TILES
from graph_json import Graph

KV_HEADS, PER_KV, HEAD, GROUP = 8, 4, 128, 32
# Name: codes, scales; and tensor ids of the mask, K, its scales, V, its scales.
STORED = {
    "f16": ("f16", None, (6, 1, None, 10, None)),
    "s8-g32": ("s8", "f16", (7, 1, 2, 11, 12)),
    "s4-g32": ("s4", "f16", (7, 1, 2, 11, 12)),
}
TOKENS, SMALL_TOKENS = 16384, 256  # of all sequences together
SEQUENCES = (4, 8)
# Caches in tiles are multiples of 256 tokens, of which a mask leaves one in five, or in nine, to
# each of 4 or 8 sequences; and as many tokens for each of these alone.
TILES_OF_ALL, SMALL_TILES_OF_ALL = 16384, 256
TILES_ALONE = {4: 3328, 8: 1792}
# One sequence beside three idle ones as long, of so many tokens each; a mask that leaves the first
# tokens of a cache; batches of tokens that are verified behind so many.
IDLE, SMALL_IDLE = 8192, 64
FIRST, SMALL_FIRST = (4096, 16384), (70, 256)
VERIFIED, SMALL_VERIFIED, ROWS = 4096, 256, (1, 4, 8)
# Tokens that masks leave sequences with a cache of their own, each with room for the last number.
LENGTHS, SMALL_LENGTHS = (100, 1000, 4000, 8192), (3, 40, 200, 256)


def layout(axis, b, t, elements, tiles):
    """Shape and strides of K or V, or of its scales: a token has its heads side by side, or there
    are tiles. axis: that of the head, of so many elements."""
    row = KV_HEADS * elements
    if axis == 3:
        dims, strides = [b, KV_HEADS, 1, elements, t], [t * row, elements, elements, 1, row]
    else:
        dims, strides = [b, KV_HEADS, 1, t, elements], [t * row, elements, elements, row, 1]
    return dims, None if tiles else strides


def side(g, stored, axis, b, t, tiles):
    dtype, scale, _ = STORED[stored]
    codes, values = TILES[axis] if tiles else (None, None)
    codes = g.input(dtype, *layout(axis, b, t, HEAD, tiles), layout_id=codes)
    if not scale:
        return g.op("TypeCast", [codes], "f32")
    sizes = [1, 1, 1, 1, 1]
    sizes[axis] = GROUP
    scales = g.input(scale, *layout(axis, b, t, HEAD // GROUP, tiles), layout_id=values)
    return g.op("DynamicDequantize", [codes, scales], "f32", qtype="per_group", group_shape=sizes)


def attention(stored, b, s, t, tiles=False):
    """b caches of t tokens, s sequences in each."""
    g = Graph(apply_to_int=True)
    q = g.input("f32", [b, KV_HEADS, PER_KV, s, HEAD])
    scores = g.op("MatMul", [q, side(g, stored, 3, b, t, tiles)], "f32", transpose_a=False,
                  transpose_b=False)
    scores = g.op("Multiply", [scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    mask = g.op("TypeCast", [g.input("f16", [b, 1, 1, s, t])], "f32")
    scores = g.op("Add", [scores, mask], "f32", auto_broadcast="numpy")
    p = g.op("SoftMax", [scores], "f32", axis=-1, mode="inf_as_zero")
    return g.output(g.op("MatMul", [p, side(g, stored, 4, b, t, tiles)], "f32", transpose_a=False,
                         transpose_b=False))


def fragmented(n):
    """n parts of 16 tokens: each of these belongs to one part."""
    owner = [(i * i * 7 + i * 3 + i // 5) % n for i in range(16)]
    return ["0" if owner[i % 16] == i // 16 else "-inf" for i in range(16 * n)]


# Values of the mask for n sequences, again and again, and tokens beyond a multiple of these, so
# that each row sees other tokens: those of the row before, moved by so many.
PATTERNS = {
    "interleaved": (lambda n: ["0"] + ["-inf"] * (n - 1), 1),
    "fragmented": (fragmented, 16),
}
IN_TILES = (lambda n: ["0"] + ["-inf"] * n, 0)


def models():
    """Name -> graph."""
    return {f"serving/unified-decode-{stored}{TILED * tiles}":
            attention(stored, 1, 4, TILES_OF_ALL if tiles else TOKENS + 1, tiles)
            for stored in STORED for tiles in (False, True)}


def line(stored, dims, values, mode, small, tiles):
    """dims: caches, sequences or tokens in each, tokens of each. values: those of the mask."""
    (b, s, t), (mask, k, k_scale, v, v_scale) = dims, STORED[stored][2]
    shapes = [f"0:{b}x{KV_HEADS}x{PER_KV}x{s}x{HEAD}", f"{mask}:{b}x1x1x{s}x{t}"]
    for tensor, axis, elements in ((k, 3, HEAD), (k_scale, 3, HEAD // GROUP), (v, 4, HEAD),
                                   (v_scale, 4, HEAD // GROUP)):
        if tensor is not None:
            sizes, strides = layout(axis, b, t, elements, tiles)
            shapes.append(f"{tensor}:{'x'.join(map(str, sizes))}" +
                          ("" if tiles else f"*{'x'.join(map(str, strides))}"))
    words = [f"--mode={'C' if small else 'P'}",
             f"--case=../../models/serving/unified-decode-{stored}{TILED * tiles}.json",
             "--in-shapes=" + "+".join(shapes), f"--in={mask}:={','.join(values)}",
             "--expected-n-partitions=1", f"--partition-fpmath=0:{mode}:true"]
    return " ".join(words + ([] if small else ["--cold-cache", "--min-time=0.3"]))


def shared_line(stored, n, pattern, mode, small, tiles=False):
    """n sequences in one cache, or (pattern None) in caches of their own."""
    values, more = pattern or (lambda n: ["0"], 0)
    if tiles:
        alone = SMALL_TILES_OF_ALL if small else TILES_ALONE[n]
        all_tokens = SMALL_TILES_OF_ALL if small else TILES_OF_ALL
    else:
        all_tokens = SMALL_TOKENS if small else TOKENS
        alone = all_tokens // n
    dims = (1, n, all_tokens + more) if pattern else (n, 1, alone)
    return line(stored, dims, values(n), mode, small, tiles)


def some_rows(small, tiles):
    """Dims and values of masks of one sequence: beside three idle ones, whose tokens alternate with
    its own or lie in pieces of 64, and alone; of several lengths in caches of their own; of the
    first tokens, and of a cache of these alone; and of batches that are verified, of which each
    token sees those before it."""
    idle = SMALL_IDLE if small else IDLE
    lengths = SMALL_LENGTHS if small else LENGTHS
    first, tokens = SMALL_FIRST if small else FIRST
    verified = SMALL_VERIFIED if small else VERIFIED
    own = -(-first // 16) * 16
    masks = [((1, 1, 4 * idle), ["0", "-inf*3"]), ((1, 1, 4 * idle), ["0*64", "-inf*192"]),
             ((1, 1, idle), ["0"]),
             ((len(lengths), 1, lengths[-1]),
              [f"0*{n}{f',-inf*{lengths[-1] - n}' if n < lengths[-1] else ''}" for n in lengths]),
             ((1, 1, tokens), [f"0*{first}", f"-inf*{tokens - first}"]), ((1, 1, own), ["0"])]
    for rows in ROWS:
        seen = [verified - rows + 1 + row for row in range(rows)]
        values = [f"0*{n}{f',-inf*{verified - n}' if n < verified else ''}" for n in seen]
        masks.append(((1, rows, verified), values))
    return masks if tiles else masks[:4]


def lists():
    """File name -> text."""
    check = ["# Decoding of sequences that share one cache against the oracle, at small sizes."]
    speed = ["# Decoding of 4 and 8 sequences in one cache, and in caches of their own; of one "
             "beside idle ones, of the first tokens, and of batches that are verified."]
    for texts in (check, speed):
        texts[0] += " Written by tools/dev/make_models.py."
        modes = {stored: ("strict", ) if stored == "f16" else ("strict", "int8")
                 for stored in STORED}
        texts += [shared_line(stored, n, pattern, mode, texts is check, tiles)
                  for tiles in (False, True) for stored in STORED for n in SEQUENCES
                  for pattern in (*([IN_TILES] if tiles else PATTERNS.values()), None)
                  for mode in modes[stored]]
        texts += [line(stored, dims, values, mode, texts is check, tiles)
                  for tiles in (False, True) for stored in STORED
                  for dims, values in some_rows(texts is check, tiles) for mode in modes[stored]]
    return {"unified.list": "\n".join(check) + "\n", "perf_unified.list": "\n".join(speed) + "\n"}
