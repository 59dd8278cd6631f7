"""A part of make_models.py: attention over caches in pages, beside the same sequences in caches of
their own, and ragged batches: tokens that name their sequences, of decodes, of a chunk of a prompt,
and of both at once. The list that checks them at small sizes, and the one that measures them from
memory. Lines rewrite shapes of their graph."""
from graph_json import Graph

KV_HEADS, PER_KV, HEAD, GROUP = 8, 4, 128, 32
# Codes, scales.
STORED = {"f16": ("f16", None), "s8-g32": ("s8", "f16"), "s4-g32": ("s4", "f16")}
PAGES = (16, 64, 1)
# Sequences of so many tokens.
DECODES = ((4, 4096), (1, 16384))
SMALL_DECODES = ((3, 128), )
# Tokens of each sequence of a ragged batch, and of the table.
LENGTHS = (100, 8000, 600, 4200, 2000, 7300, 300, 1500, 5000, 3300, 150, 6400, 900, 2600, 220, 1200)
MOST = 8000
# A chunk of a prompt from one token on, beside decodes of half these lengths.
CHUNK, FIRST, MOST_MIXED = 512, 1536, 4096


def tokens(g, dtype, width, paged, table, b, t):
    """Codes or scales of all tokens, [b, heads, 1, t, width]: taken from pages of 16 tokens, or an
    input."""
    shape = [b, KV_HEADS, 1, t, width]
    if not paged:
        return g.input(dtype, shape)
    x = g.op("Gather", [g.input(dtype, [b * t // 16, KV_HEADS, 16, width]), table], dtype, axis=0)
    x = g.op("StaticTranspose", [x], dtype, order=[0, 2, 1, 3, 4])
    return g.op_to("StaticReshape", [x], [g.tensor(dtype, shape)],
                   shape=[0, KV_HEADS, 1, -1, width], special_zero=True)[0]


def side(g, stored, *where):
    dtype, scale = STORED[stored]
    codes = tokens(g, dtype, HEAD, *where)
    if not scale:
        return codes
    scales = tokens(g, scale, HEAD // GROUP, *where)
    return g.op("DynamicDequantize", [codes, scales], "f32", qtype="per_group",
                group_shape=[1, 1, 1, 1, GROUP])


def attention(stored, paged, ragged, b, t):
    """One query of each of b sequences or tokens. A sequence has its length, a token of a ragged
    batch has its position, up to which it sees its sequence. Inputs: the queries, lengths or
    positions, the table, and the sequences of tokens; then K, the scale and what masks, V."""
    g = Graph(apply_to_int=True)
    q = g.input("f32", [b, KV_HEADS, PER_KV, 1, HEAD])
    lengths = g.input("s32", [b, 1, 1, 1, 1])
    table = g.input("s32", [b, t // 16]) if paged else None
    if ragged:
        table = g.op("Gather", [table, g.input("s32", [b])], "s32", axis=0)
    scores = g.op("MatMul", [q, side(g, stored, paged, table, b, t)], "f32", transpose_a=False,
                  transpose_b=True)
    scores = g.op("Multiply", [scores, g.input("f32", [1])], "f32", auto_broadcast="numpy")
    column = g.op("GenIndex", [scores], "s32", axis=4)
    fill = g.input("f32", [1])
    if ragged:
        keep = g.op("GreaterEqual", [lengths, column], "boolean", auto_broadcast="numpy")
        scores = g.op("Select", [keep, scores, fill], "f32", auto_broadcast="numpy")
    else:
        beyond = g.op("GreaterEqual", [column, lengths], "boolean", auto_broadcast="numpy")
        scores = g.op("Select", [beyond, fill, scores], "f32", auto_broadcast="numpy")
    p = g.op("SoftMax", [scores], "f32", axis=-1, mode="inf_as_zero")
    return g.output(g.op("MatMul", [p, side(g, stored, paged, table, b, t)], "f32",
                         transpose_a=False, transpose_b=False))


# Kind -> paged, ragged.
KINDS = {"paged-decode": (True, False), "lengths-decode": (False, False), "ragged": (True, True)}


def models():
    """Name -> graph."""
    return {f"serving/{kind}-{stored}": attention(stored, *of_kind, 4, 4096)
            for kind, of_kind in KINDS.items() for stored in STORED}


def numbers(values):
    """As --in has them: runs of equal numbers, and of numbers that follow one another, in short."""
    words, i = [], 0
    while i < len(values):
        step = values[i + 1] - values[i] if i + 1 < len(values) else None
        n = 1
        while step in (0, 1) and i + n < len(values) and values[i + n] - values[i + n - 1] == step:
            n += 1
        first = values[i]
        words.append(str(first) if n == 1 else f"{first}*{n}" if step == 0 else
                     f"{first}-{values[i + n - 1]}")
        i += n
    return ",".join(words)


def line(kind, stored, page, mode, small, sequences, t, items):
    """items: of a ragged batch the sequence and the position of each token, else the length of each
    sequence."""
    paged, ragged = KINDS[kind]
    inputs = models()[f"serving/{kind}-{stored}"].inputs
    pages = -(-t // page) if paged else 0
    parts = [HEAD, HEAD // GROUP] if STORED[stored][1] else [HEAD]
    widths = iter(parts * 2)
    n_first = 2 + paged + ragged  # inputs before K
    tensors = [*inputs[n_first:n_first + len(parts)], *inputs[-len(parts):]]
    shapes = {inputs[0]: [len(items), KV_HEADS, PER_KV, 1, HEAD],
              inputs[1]: [len(items), 1, 1, 1, 1]}
    values = {inputs[1]: numbers([item[1] for item in items] if ragged else items)}
    if paged:
        shapes[inputs[2]] = [sequences, pages]
        values[inputs[2]] = "permuted"
    if ragged:
        shapes[inputs[3]] = [len(items)]
        values[inputs[3]] = numbers([item[0] for item in items])
    for tensor in tensors:
        shapes[tensor] = ([sequences * pages, KV_HEADS, page] if paged else
                          [sequences, KV_HEADS, 1, t]) + [next(widths)]
    words = [f"--mode={'C' if small else 'P'}", f"--case=../../models/serving/{kind}-{stored}.json",
             "--in-shapes=" + "+".join(f"{i}:{'x'.join(map(str, dims))}"
                                       for i, dims in shapes.items()),
             "--in=" + "+".join(f"{i}:={text}" for i, text in values.items()),
             "--expected-n-partitions=1", f"--partition-fpmath=0:{mode}:true"]
    return " ".join(words + ([] if small else ["--cold-cache", "--min-time=0.3"]))


def decodes(lengths, first=0):
    """The last token of each sequence."""
    return [(first + i, n - 1) for i, n in enumerate(lengths)]


def modes_of(stored):
    return ("strict", ) if stored == "f16" else ("strict", "int8")


def decode_lines(small):
    """Pages of each size, then the same sequences in caches of their own."""
    for sequences, t in SMALL_DECODES if small else DECODES:
        for stored in STORED:
            lengths = [t - 3 * i for i in range(sequences)]
            for mode in modes_of(stored):
                for page in PAGES:
                    yield line("paged-decode", stored, page, mode, small, sequences, t, lengths)
                yield line("lengths-decode", stored, 0, mode, small, sequences, t, lengths)


def ragged_lines(small):
    """Decodes of 16 sequences, and one sequence of as many tokens; a chunk of a prompt beside 15
    decodes, and both alone."""
    by = 100 if small else 1
    lengths = [-(-n // by) for n in LENGTHS]
    most = MOST // by
    others = [-(-n // 2) for n in lengths[1:]]
    most_mixed, first, n_chunk = (-(-n // by) for n in (MOST_MIXED, FIRST, CHUNK))
    chunk = [(0, first + i) for i in range(n_chunk)]
    for stored in STORED:
        for mode in modes_of(stored):
            for page in PAGES:
                def ragged(t, items, stored=stored, mode=mode, page=page):
                    return line("ragged", stored, page, mode, small, len(lengths), t, items)

                yield ragged(most, decodes(lengths))
                if not small:
                    total = sum(lengths)
                    yield line("paged-decode", stored, page, mode, small, 1, total, [total])
                yield ragged(most_mixed, chunk + decodes(others, 1))
                if not small:
                    yield ragged(most_mixed, chunk)
                    yield ragged(most_mixed, decodes(others, 1))


def lists():
    """File name -> text."""
    check = ["# Caches in pages and ragged batches against the oracle, at small sizes."]
    speed = ["# Decoding over caches in pages, beside caches of their own, and ragged batches."]
    for texts in (check, speed):
        small = texts is check
        texts[0] += " Written by tools/dev/make_models.py."
        texts += [*decode_lines(small), *ragged_lines(small)]
    return {"paged.list": "\n".join(check) + "\n", "perf_paged.list": "\n".join(speed) + "\n"}
