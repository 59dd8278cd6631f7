"""A part of make_models.py: the routers of mixtures of experts of real networks, which choose the
experts of each token and weigh them; the list that checks them at small sizes, and the one that
measures them from memory."""
from graph_json import Graph

# Name: experts, those of a token, K, groups of experts, those of a token.
ROUTERS = {
    "gpt-oss-20b": (32, 4, 2880, 1, 1),
    "qwen3-30b-a3b": (128, 8, 2048, 1, 1),
    "deepseek-v3": (256, 8, 7168, 8, 4),
}
TOKENS = (1, 8, 64, 512)
SMALL_K, SMALL_TOKENS = 96, (1, 7, 40)
NEVER = -1e30


def top_k(g, x, k):
    """The k largest of each row, and where they are."""
    shape = [*x["shape"][:-1], k]
    return g.op_to("TopK", [x], [g.tensor("f32", shape), g.tensor("s32", shape)], k=k, axis=-1)


def reshape(g, x, shape):
    """Keeps the first dim, the tokens."""
    made = g.tensor(x["dtype"], [x["shape"][0], *shape])
    return g.op_to("StaticReshape", [x], [made], shape=[0, *shape], special_zero=True)[0]


def at_indices(g, x, ids):
    """Of each row of x, what its own indices name."""
    made = g.tensor("f32", ids["shape"] + x["shape"][2:])
    return g.op_to("Gather", [x, ids], [made], axis=1, batch_dims=1)[0]


def best_groups(g, scores, groups, chosen):
    """Scores outside of the groups with the best two experts become one that is never chosen."""
    experts = scores["shape"][1]
    split = reshape(g, scores, [groups, experts // groups])
    two, _ = top_k(g, split, 2)
    _, ids = top_k(g, g.op("ReduceSum", [two], "f32", axes=[-1], keep_dims=False), chosen)
    nothing = g.op("Clamp", [split], "f32", min=NEVER, max=NEVER)
    kept = g.op("ScatterRows", [nothing, ids, at_indices(g, split, ids)], "f32", axis=1,
                batch_dims=1)
    return reshape(g, kept, [experts])


def shares(g, weights):
    """Divided by their sum."""
    return g.op("Divide", [weights, g.op("ReduceSum", [weights], "f32", axes=[-1],
                                         keep_dims=True)], "f32")


def router(name):
    experts, each, k, groups, chosen = ROUTERS[name]
    g = Graph()
    gate = [g.input("f32", [1, k]), g.input("f32", [experts, k], prop="constant")]
    scores = g.op("MatMul", gate, "f32", transpose_a=False, transpose_b=True)
    if name == "gpt-oss-20b":
        best, ids = top_k(g, g.op("Add", [scores, g.input("f32", [experts])], "f32"), each)
        return g.output(ids, g.op("SoftMax", [best], "f32", axis=-1))
    if name == "qwen3-30b-a3b":
        best, ids = top_k(g, g.op("SoftMax", [scores], "f32", axis=-1), each)
        return g.output(ids, shares(g, best))
    scores = g.op("Sigmoid", [scores], "f32")
    biased = g.op("Add", [scores, g.input("f32", [experts])], "f32")
    _, ids = top_k(g, best_groups(g, biased, groups, chosen), each)
    weights = shares(g, at_indices(g, scores, ids))
    return g.output(ids, g.op("Multiply", [weights, g.input("f32", [1])], "f32"))


def models():
    """Name -> graph."""
    return {"serving/router-" + name: router(name) for name in ROUTERS}


def line(name, tokens, small):
    experts, _, k, *_ = ROUTERS[name]
    k = SMALL_K if small else k
    return (f"--mode={'C' if small else 'P'} --case=../../models/serving/router-{name}.json "
            f"--in-shapes=0:{tokens}x{k}+1:{experts}x{k} --expected-n-partitions=1" +
            ("" if small else " --cold-cache --min-time=0.3"))


def lists():
    """File name -> text."""
    check = ["# The routers of mixtures of experts against the oracle, at small sizes."]
    speed = ["# The routers of real networks, from memory: 1, 8, 64 and 512 tokens."]
    for texts, small, tokens in ((check, True, SMALL_TOKENS), (speed, False, TOKENS)):
        texts[0] += " Written by tools/dev/make_models.py."
        texts += [line(name, t, small) for name in ROUTERS for t in tokens]
    return {"routers.list": "\n".join(check) + "\n", "perf_routers.list": "\n".join(speed) + "\n"}
