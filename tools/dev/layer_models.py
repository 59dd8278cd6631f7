"""A part of make_models.py: decoder layers of real networks, one graph each, models/layers/*.json,
and their lists.

A layer computes n = batch * S tokens at once, S of each sequence: one while decoding, many of a
prompt. Its inputs, beside x [n, hidden] and the weights:

    positions  s32 [1, n]           where a token stands in its sequence, for the rotary embedding
    slots      s32 [n]              where its key and value go in the cache, see below
    past       s32 [b, 1, 1, 1, 1]  tokens of each sequence before those of this step. Token i of
                                    the step sees the keys 0 ... past + i of its own sequence.
    reach      s32 scalar           with a sliding window of w tokens: w - 1

Outputs are y [n, hidden] and the cache after the append, which an engine binds to the memory of the
cache before it.

The cache is [1, kv_heads, b * capacity, head], scales and zero points [1, kv_heads, b * capacity,
head / group]. The token at position p of sequence i is in row i * capacity + p, so one tensor of
slots serves K, V, their scales and their zero points for all heads and sequences, and all keys that
one head of a sequence reads lie one after the other. Attention reads what ScatterRows returns as
[b, kv_heads, 1, capacity, head], which is a view. The number of rows, b * capacity, may stay
unknown until execute, the number of tokens n as well: decoding and prompts are one compile."""
import functools

import user_tools  # noqa: F401
from graph_json import Graph


class Codes:
    """A compressed type: elements, scales, zero points or None, and elements of a group."""

    def __init__(self, dtype, scale, zero_point, group):
        self.dtype, self.scale, self.zero_point, self.group = dtype, scale, zero_point, group

    def types(self):
        return [t for t in (self.dtype, self.scale, self.zero_point) if t]

    def kind(self):
        if self.scale == "e8m0":
            return "dynamic_mx"
        return "dynamic_asymmetric" if self.zero_point else "dynamic_symmetric"


WEIGHTS = {
    "int4": Codes("s4", "f16", None, 128),
    "int4zp": Codes("u4", "f16", "u4", 128),
    "mxfp4": Codes("f4_e2m1", "e8m0", None, 32),
}
CACHES = {
    "kv8": Codes("s8", "f16", None, 32),
    "kv4": Codes("u4", "f16", "u4", 32),
    "kvmx8": Codes("f8_e4m3", "e8m0", None, 32),
}
# The fpmath mode of graphs with these weights.
MODES = {"int4": "f16", "int4zp": "f16", "mxfp4": "bf16"}


class Net:
    """The sizes and the parts of a network's layer."""

    def __init__(self, hidden, heads, kv_heads, head, inner, *, bias=False, out_bias=False,
                 head_norms=False, branch_norms=False, sinks=False, window=None, gate="silu",
                 epsilon=1e-5, float_type="f32"):
        self.hidden, self.inner = hidden, inner
        self.heads, self.kv_heads, self.head = heads, kv_heads, head
        self.bias, self.out_bias = bias, out_bias  # of query, key and value; of what follows
        self.head_norms = head_norms  # of query and key, for each head
        self.branch_norms = branch_norms  # of what attention and MLP add to the residual
        self.sinks, self.window, self.gate, self.epsilon = sinks, window, gate, epsilon
        self.float_type = float_type  # of activations, and of what codes are decoded to


LLAMA = {"epsilon": 1e-5}
QWEN = {"bias": True, "epsilon": 1e-6}
GEMMA = {"head_norms": True, "branch_norms": True, "gate": "gelu", "epsilon": 1e-6}
GPT_OSS = {"bias": True, "out_bias": True, "sinks": True, "epsilon": 1e-5, "float_type": "bf16"}
# The MLP of gpt-oss is a mixture of experts, which is no part of its graph (inner is None).
NETS = {
    "llama3-8b": Net(4096, 32, 8, 128, 14336, **LLAMA),
    "qwen2.5-0.5b": Net(896, 14, 2, 64, 4864, **QWEN),
    "gemma3-270m": Net(640, 4, 1, 256, 2048, window=512, **GEMMA),
    "gpt-oss-20b": Net(2880, 64, 8, 64, None, window=128, **GPT_OSS),
}
# The same with few and small heads, all in f32: roundings of activations to bf16 leave so many of
# the codes open that go into a cache that the oracle's bounds would check nothing.
SMALL = {
    "llama3-8b": Net(256, 8, 2, 32, 384, **LLAMA),
    "qwen2.5-0.5b": Net(256, 4, 2, 64, 384, **QWEN),
    "gemma3-270m": Net(128, 4, 1, 64, 256, window=24, **GEMMA),
    "gpt-oss-20b": Net(96, 8, 2, 32, None, window=20, **{**GPT_OSS, "float_type": "f32"}),
}


class Layer:
    """Builds one layer. A reshape can leave one dim open: that is the number of sequences, if
    open_batch, or the numbers of tokens and of rows of a sequence."""

    def __init__(self, net, weights, cache, sizes, open_batch=False):
        batch, tokens, capacity = sizes
        self.open_batch = open_batch
        self.net, self.batch, self.n, self.capacity = net, batch, batch * tokens, capacity
        self.weights, self.cache = WEIGHTS[weights], CACHES[cache]
        self.float_type = net.float_type
        self.caches = []  # tensors
        self.g = Graph(fpmath=MODES[weights], apply_to_int=True)
        self.x = self.g.input(self.float_type, [self.n, net.hidden])
        self.positions = self.g.input("s32", [1, self.n])
        self.slots = self.g.input("s32", [self.n])
        self.past = self.g.input("s32", [batch, 1, 1, 1, 1])
        self.reach = self.g.input("s32", [], prop="host_scalar") if net.window else None
        # Rows of cosines and sines: one for each position that the cache has room for.
        self.tables = [self.constant("f32", [capacity, net.head // 2]) for _ in range(2)]

    # ---- ops -------------------------------------------------------------------------------------

    def constant(self, dtype, shape):
        return self.g.input(dtype, shape, prop="constant")

    def op(self, kind, inputs, **attrs):
        return self.g.op(kind, inputs, self.float_type, **attrs)

    def binary(self, kind, a, b, dtype=None):
        return self.g.op(kind, [a, b], dtype or self.float_type, auto_broadcast="numpy")

    def reshape(self, x, shape, dynamic=None):
        """dynamic: the dim that follows from the number of elements, so that it may change."""
        made = self.g.tensor(x["dtype"], shape)
        asked = [-1 if i == dynamic else n for i, n in enumerate(shape)]
        return self.g.op_to("StaticReshape", [x], [made], shape=asked, special_zero=False)[0]

    def transpose(self, x, order):
        return self.g.op("StaticTranspose", [x], x["dtype"], order=order)

    def norm(self, x):
        """RMSNorm over the last dim. Gemma's factors 1 + gamma come as they are."""
        return self.op("RMSNorm", [x, self.constant("f32", x["shape"][-1:])],
                       epsilon=self.net.epsilon)

    def linear(self, x, n, bias=False):
        """x times a constant weight stored [n][k], groups along k."""
        k, codes = x["shape"][-1], self.weights
        rows = [self.constant(codes.dtype, [n, k])]
        rows += [self.constant(t, [n, k // codes.group]) for t in codes.types()[1:]]
        w = self.op("DynamicDequantize", rows, qtype="per_group", group_shape=[1, codes.group])
        inputs = [x, w] + ([self.constant(self.float_type, [n])] if bias else [])
        return self.op("MatMul", inputs, transpose_a=False, transpose_b=True)

    # ---- attention -------------------------------------------------------------------------------

    def heads(self, x, heads, norm=False, rotary=False):
        """[n, heads * head] as [1, heads, n, head], with what stands in front of the product."""
        x = self.reshape(x, [1, self.n, heads, self.net.head], 1)
        x = self.transpose(x, [0, 2, 1, 3])
        x = self.norm(x) if norm else x
        return self.op("RotaryEmbedding", [x, *self.tables, self.positions]) if rotary else x

    def append(self, rows):
        """Rows [1, kv_heads, n, head] go into a cache. Returns what is in it then."""
        codes, kv_heads, head = self.cache, self.net.kv_heads, self.net.head
        widths = [head] + [head // codes.group] * (len(codes.types()) - 1)
        made = [
            self.g.tensor(t, [1, kv_heads, self.n, width])
            for t, width in zip(codes.types(), widths)
        ]
        self.g.op_to("DynamicQuantize", [rows], made, quantization_kind=codes.kind(),
                     qtype="per_group", group_shape=[1, 1, 1, codes.group])
        stored = []
        for update in made:
            shape = [1, kv_heads, self.batch * self.capacity, update["shape"][-1]]
            cache = self.g.input(update["dtype"], shape)
            self.caches.append(cache)
            stored.append(
                self.g.op("ScatterRows", [cache, self.slots, update], update["dtype"], axis=2))
        self.g.output(*stored)
        return stored

    def recall(self, stored):
        """A cache as [b, kv_heads, 1, capacity, head], decoded."""
        x = self.op("DynamicDequantize", stored, qtype="per_group",
                    group_shape=[1, 1, 1, self.cache.group])
        shape = [1, self.net.kv_heads, self.batch, self.capacity, self.net.head]
        x = self.reshape(x, shape, 2 if self.open_batch else 3)
        return self.transpose(x, [2, 1, 0, 3, 4])

    def mask(self, scores):
        fill = self.g.input("f32", [1])
        row = self.g.op("GenIndex", [scores], "s32", axis=3)
        column = self.g.op("GenIndex", [scores], "s32", axis=4)
        last = self.binary("Add", row, self.past, "s32")
        keep = self.binary("GreaterEqual", last, column, "boolean")
        scores = self.g.op("Select", [keep, scores, fill], "f32", auto_broadcast="numpy")
        if self.reach:
            first = self.binary("Subtract", last, self.reach, "s32")
            keep = self.binary("GreaterEqual", column, first, "boolean")
            scores = self.g.op("Select", [keep, scores, fill], "f32", auto_broadcast="numpy")
        return scores

    def attention(self, q, k, v):
        """q [1, heads, n, head], caches of codes. Returns [n, heads * head]."""
        net, per_kv = self.net, self.net.heads // self.net.kv_heads
        q = self.reshape(q, [net.kv_heads, per_kv, self.batch, self.n // self.batch, net.head],
                         2 if self.open_batch else 3)
        q = self.transpose(q, [2, 0, 1, 3, 4])
        scores = self.g.op("MatMul", [q, self.recall(k)], "f32", transpose_a=False,
                           transpose_b=True)
        scores = self.binary("Multiply", scores, self.g.input("f32", [1]), "f32")
        inputs = [self.mask(scores)]
        if net.sinks:
            sinks = self.constant(self.float_type, [1, net.kv_heads, per_kv, 1, 1])
            inputs.append(self.g.op("TypeCast", [sinks], "f32") if self.float_type != "f32" else
                          sinks)
        p = self.op("SoftMax", inputs, axis=-1, mode="inf_as_zero")
        y = self.op("MatMul", [p, self.recall(v)], transpose_a=False, transpose_b=False)
        y = self.transpose(y, [0, 3, 1, 2, 4])
        return self.reshape(y, [self.n, net.heads * net.head], 0)

    # ---- the layer -------------------------------------------------------------------------------

    def attention_block(self, x):
        net = self.net
        h = self.norm(x)
        q, k, v = (self.linear(h, n * net.head, net.bias)
                   for n in (net.heads, net.kv_heads, net.kv_heads))
        k = self.append(self.heads(k, net.kv_heads, net.head_norms, True))
        v = self.append(self.heads(v, net.kv_heads))
        q = self.heads(q, net.heads, net.head_norms, True)
        y = self.linear(self.attention(q, k, v), net.hidden, net.out_bias)
        return self.binary("Add", self.norm(y) if net.branch_norms else y, x)

    def mlp_block(self, x):
        h = self.norm(x)
        gate, up = (self.linear(h, self.net.inner) for _ in range(2))
        if self.net.gate == "gelu":
            gate = self.op("GELU", [gate], mode="gelu_tanh")
        else:
            gate = self.binary("Multiply", gate, self.op("Sigmoid", [gate]))
        y = self.linear(self.binary("Multiply", gate, up), self.net.hidden)
        return self.binary("Add", self.norm(y) if self.net.branch_norms else y, x)

    def build(self):
        x = self.attention_block(self.x)
        self.g.output(self.mlp_block(x) if self.net.inner else x)
        return self

    def open_dims(self):
        """Tensors with the place of the dim that counts tokens, or rows of the cache."""
        tokens = [(self.x, 0), (self.positions, 1), (self.slots, 0)]
        tokens += [(self.past, 0)] if self.open_batch else []
        return tokens, [(cache, 2) for cache in self.caches]

    def dynamic(self):
        """The option that leaves the numbers of tokens and of rows of the cache to execute."""
        tokens, rows = self.open_dims()
        return "--dynamic=" + "+".join(with_dim(t, at, "?") for t, at in tokens + rows)

    def resized(self, tokens, capacity, batch=None):
        """The option for other numbers of tokens and of rows of a sequence, or of sequences."""
        n, rows = ([with_dim(t, at, (batch or self.batch) * size) for t, at in tensors]
                   for tensors, size in zip(self.open_dims(), (tokens, capacity)))
        return "--in-shapes=" + "+".join(n + rows)


def with_dim(tensor, at, size):
    dims = (str(size if i == at else n) for i, n in enumerate(tensor["shape"]))
    return f"{tensor['id']}:" + "x".join(dims)


# Network, weights, cache; sequences, tokens of each, capacity of each; partitions.
LAYERS = [
    ("llama3-8b", "int4", "kv8", 1, 1, 1024, 5),
    ("llama3-8b", "int4", "kv4", 4, 1, 1024, 5),
    ("llama3-8b", "mxfp4", "kvmx8", 1, 1, 1024, 5),
    ("llama3-8b", "int4", "kv4", 1, 512, 1024, 5),
    ("llama3-8b", "mxfp4", "kvmx8", 1, 512, 1024, 5),
    ("qwen2.5-0.5b", "int4zp", "kv4", 1, 1, 1024, 5),
    ("qwen2.5-0.5b", "int4zp", "kv8", 4, 1, 1024, 5),
    ("qwen2.5-0.5b", "int4zp", "kvmx8", 1, 512, 1024, 5),
    ("gemma3-270m", "int4", "kv8", 1, 1, 1024, 6),
    ("gemma3-270m", "mxfp4", "kvmx8", 4, 1, 1024, 6),
    ("gemma3-270m", "int4", "kv4", 1, 512, 1024, 6),
    ("gpt-oss-20b", "mxfp4", "kvmx8", 1, 1, 1024, 4),
    ("gpt-oss-20b", "mxfp4", "kv8", 4, 1, 1024, 4),
    ("gpt-oss-20b", "mxfp4", "kv8", 1, 512, 1024, 4),
]
# Tokens and capacity of a sequence of small graphs, decoding and prompts, and the same graphs
# compiled once for other numbers of both.
SMALL_SIZES = {"decode": (1, 40), "prefill": (7, 40)}
OTHER_SIZES = [(1, 33), (3, 64)]
# Seeds that leave no code of the cache open where that would make bounds too wide behind norms.
SEEDS = {
    "gemma3-270m-decode-int4-kv8": 5,
    "gemma3-270m-decode-int4-kv8-small": 5,
    "qwen2.5-0.5b-decode-int4zp-kv8-b4-small": 2,
}


class Case:
    """A row of LAYERS: a graph of real size and a small one."""

    def __init__(self, net, weights, cache, batch, tokens, capacity, n_partitions):
        self.phase = "decode" if tokens == 1 else "prefill"
        self.name = f"{net}-{self.phase}-{weights}-{cache}" + (f"-b{batch}" if batch > 1 else "")
        self.net, self.batch, self.n_partitions = net, batch, n_partitions
        self.real = Layer(NETS[net], weights, cache, (batch, tokens, capacity)).build()
        small = (SMALL[net], weights, cache, (batch, *SMALL_SIZES[self.phase]))
        self.small = Layer(*small).build()
        self.open = Layer(*small, open_batch=True).build() if batch > 1 else None

    def words(self, layer, capacity, mode="C", batch=None):
        """The start of a command line. The first sequence is nearly as long as its room, the third
        one is short (new, if it is small), and the fourth has no token that it sees."""
        name = self.name + ("" if layer is self.real else
                            "-small" if layer is self.small else "-open-small")
        third = capacity // 5 if layer is self.real else 0
        lengths = [capacity - layer.n // self.batch - 1, capacity // 2, third, -1]
        past = ",".join(str(n) for n in lengths[:batch or self.batch])
        reach = f"+{layer.reach['id']}:={layer.net.window - 1}" if layer.reach else ""
        seed = f" --seed={SEEDS[name]}" if name in SEEDS and mode == "C" else ""
        return (f"--mode={mode} --case=../../models/layers/{name}.json "
                f"--in={layer.past['id']}:={past}{reach}{seed}")

    def parts(self):
        return f" --expected-n-partitions={self.n_partitions}"


@functools.cache
def cases():
    return [Case(*row) for row in LAYERS]


def models():
    """Name -> graph."""
    graphs = {}
    for case in cases():
        graphs["layers/" + case.name] = case.real.g
        graphs["layers/" + case.name + "-small"] = case.small.g
        if case.open:
            graphs["layers/" + case.name + "-open-small"] = case.open.g
    return graphs


def small_lines(case):
    layer = case.small
    start = case.words(layer, layer.capacity)
    strict = " --attr-fpmath=strict:true"
    yield start + case.parts() + strict
    yield start + strict + f" --no-fuse --expected-n-partitions={len(layer.g.ops)}"
    for tokens, capacity in OTHER_SIZES:
        line = case.words(layer, min(capacity, layer.capacity)) + strict + " " + layer.dynamic()
        line += " " + layer.resized(tokens, capacity)
        yield line + case.parts()
        if layer.batch > 1:
            yield line + f" --no-fuse --expected-n-partitions={len(layer.g.ops)}"
    for batch in (1, 2, 4) if case.open else ():
        layer = case.open
        yield (case.words(layer, layer.capacity, batch=batch) + case.parts() + strict + " " +
               layer.dynamic() + " " + layer.resized(1, layer.capacity, batch))


# What is checked in small alone: prompts and batches, whose many tokens leave some codes of 4 bits
# or of activations in bf16 open, or which take the oracle too long.
ONLY_SMALL = ("llama3-8b-decode-int4-kv4-b4", "llama3-8b-prefill-int4-kv4",
              "llama3-8b-prefill-mxfp4-kvmx8", "gemma3-270m-decode-mxfp4-kvmx8-b4",
              "gemma3-270m-prefill-int4-kv4", "gpt-oss-20b-decode-mxfp4-kv8-b4")
# Checked in the mode of the graph.
IN_OWN_MODE = ("llama3-8b-decode-int4-kv8", "qwen2.5-0.5b-decode-int4zp-kv4",
               "qwen2.5-0.5b-decode-int4zp-kv8-b4", "gpt-oss-20b-decode-mxfp4-kvmx8",
               "gpt-oss-20b-prefill-mxfp4-kv8")


def real_lines(case):
    """Prompts of few tokens, because the oracle is slow."""
    layer, few = case.real, 4
    line = case.words(layer, layer.capacity) + case.parts()
    line += "" if case.name in IN_OWN_MODE else " --attr-fpmath=strict:true"
    yield line if case.phase == "decode" else f"{line} {layer.resized(few, layer.capacity)}"


def lists():
    """File name -> text."""
    head = " Written by tools/dev/make_models.py."
    small = [
        "# Small decoder layers with the parts of real ones: fused, op by op, and compiled once "
        "for other numbers of tokens and rows of the cache." + head,
        "# Strict, because codes in the cache that another mode leaves open make the bounds of "
        "what comes behind too wide to check anything; layers_real.list checks the modes."
    ]
    real = ["# Decoder layers of real networks against the oracle." + head]
    perf = ["# Speed of decoder layers: one token, four sequences of one token, 512 tokens." + head]
    for case in cases():
        small += small_lines(case)
        real += [] if case.name in ONLY_SMALL else real_lines(case)
        perf.append(case.words(case.real, case.real.capacity, "P") + case.parts() + " --cold-cache")
    texts = {"layers.list": small, "layers_real.list": real, "perf_layers.list": perf}
    return {name: "\n".join(lines) + "\n" for name, lines in texts.items()}
