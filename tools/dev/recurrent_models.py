"""A part of make_models.py: recurrent layers of real networks, for any number of tokens and of
sequences; the list that checks them at small sizes, and the one that measures them from memory."""
from graph_json import Graph

# Name: mode, heads of queries and keys, heads, elements of a key, of a value, a decay for each
# element of a key. Those of RWKV are what multiplies the state.
LAYERS = {
    "gated-delta-net-qwen3-next": ("gated_delta", 16, 32, 128, 128, False),
    "delta-attention-kimi-linear": ("gated_delta", 32, 32, 128, 128, True),
    "scan-granite-4-h-small": ("gated", 1, 128, 128, 64, False),
    "rwkv6-7b": ("gated_bonus", 64, 64, 64, 64, True),
    "rwkv7-2.9b": ("gated_low_rank", 40, 40, 64, 64, True),
}
SEQUENCES = ((1, 1), (8, 1), (1, 64), (1, 512))  # how many, and tokens of each
SMALL = ((1, 1), (3, 1), (2, 3), (2, 21))


def shapes(row, sequences, tokens):
    """Of the inputs, in their order."""
    mode, few, heads, keys, values, each = row
    sides = [keys if each else 1] + [1] * ("delta" in mode) + [keys, keys] * ("rank" in mode)
    bonus = [[heads, keys]] * ("bonus" in mode)
    return [*([sequences, tokens, n, size]
              for n, size in ((few, keys), (few, keys), (heads, values))),
            [sequences, heads, values, keys],
            *([sequences, tokens, heads, n] for n in sides), *bonus]


def layer(row):
    g = Graph()
    inputs = [g.input("f32", shape) for shape in shapes(row, 1, 1)]
    slots = [g.input("s32", [1]) for _ in range(2)]
    results = [g.tensor("f32", t["shape"]) for t in inputs[2:4]]
    attrs = {"scale": row[3]**-0.5} if "delta" in row[0] else {}
    if "bonus" in row[0] or "rank" in row[0]:
        attrs["log_decay"] = False
    return g.output(*g.op_to("LinearAttention", [*inputs, *slots], results, mode=row[0], **attrs))


def models():
    """Name -> graph."""
    return {"serving/" + name: layer(row) for name, row in LAYERS.items()}


def line(name, row, sequences, tokens, small):
    """States are read and written in place, each in a slot of its own."""
    mode, few, heads, keys, values, each = row
    size = (mode, min(few, 2), 4, 20, 24, each) if small else row
    dims = shapes(size, sequences, tokens)
    words = "+".join(f"{i}:{'x'.join(map(str, s))}" for i, s in enumerate(
        [*dims, [sequences], [sequences]]))
    slots = ",".join(map(str, range(sequences)))
    given = "+".join(f"{len(dims) + i}:={slots}" for i in range(2))
    return (f"--mode={'C' if small else 'P'} --case=../../models/serving/{name}.json "
            f"--in-shapes={words} --in={given} --expected-n-partitions=1"
            + ("" if small else " --cold-cache --min-time=0.3"))


def lists():
    """File name -> text."""
    check = ["# Recurrent layers against the oracle, at small sizes."]
    speed = ["# Recurrent layers of real networks, from memory: 1 and 8 sequences of one token; 64 "
             "and 512 tokens."]
    for texts, small, sizes in ((check, True, SMALL), (speed, False, SEQUENCES)):
        texts[0] += " Written by tools/dev/make_models.py."
        texts += [line(name, row, *size, small) for name, row in LAYERS.items() for size in sizes]
    return {"recurrent.list": "\n".join(check) + "\n",
            "perf_recurrent.list": "\n".join(speed) + "\n"}
