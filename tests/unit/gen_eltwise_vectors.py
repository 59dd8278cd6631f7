#!/usr/bin/env python3
"""Writes eltwise_vectors.h: elementwise ops of f32 inputs in arithmetic of 1000 bits, by the
definitions that oneDNN Graph's and ONNX's documents give. Needs mpmath:

    python3 gen_eltwise_vectors.py > eltwise_vectors.h

tools/dev/check_vectors.py checks the SHA-256 of the data."""
import hashlib
import math
import platform
import random
import struct
import sys

import mpmath
from mpmath import mp, mpf

mp.prec = 1000
INF, NAN = math.inf, math.nan


def f32(x):
    return struct.unpack("f", struct.pack("f", x))[0]


def round_half_even(x):
    low = mpmath.floor(x)
    if x - low == mpf(1) / 2:
        return low if low % 2 == 0 else low + 1
    return mpmath.floor(x + mpf(1) / 2)


def clip(x, low, high):
    return min(max(x, low), high)


def softplus(x, beta):
    return mpmath.log(1 + mpmath.exp(beta * x)) / beta


def gelu_tanh(x, by_tanh):
    return x / 2 * (1 + mpmath.tanh(mpmath.sqrt(2 / mp.pi) * (x + mpf("0.044715") * x**3)))


def power(x, beta):
    if beta == int(beta):
        return x ** int(beta) if x != 0 or beta >= 0 else INF
    return NAN if x < 0 else mpmath.power(x, beta) if x > 0 else mpf(0) if beta > 0 else INF


# Op, its attributes, its definition, its limits at +infinity and at -infinity.
CASES = [
    ("abs", (), abs, INF, INF),
    ("exp", (), mpmath.exp, INF, 0.0),
    ("log", (), lambda x: NAN if x < 0 else mpmath.log(x) if x else -INF, INF, NAN),
    ("sqrt", (), lambda x: NAN if x < 0 else mpmath.sqrt(x), INF, NAN),
    ("square", (), lambda x: x * x, INF, INF),
    ("reciprocal", (), lambda x: 1 / x if x else None, 0.0, -0.0),
    ("relu", (), lambda x: max(x, mpf(0)), INF, 0.0),
    ("round", (), round_half_even, INF, -INF),
    ("tanh", (), mpmath.tanh, 1.0, -1.0),
    ("sigmoid", (), lambda x: 1 / (1 + mpmath.exp(-x)), 1.0, 0.0),
    ("mish", (), lambda x: x * mpmath.tanh(softplus(x, 1)), INF, -0.0),
    ("gelu", (0,), lambda x, by_tanh: x / 2 * (1 + mpmath.erf(x / mpmath.sqrt(2))), INF, -0.0),
    ("gelu", (1,), gelu_tanh, INF, -0.0),
    ("hard_swish", (), lambda x: x * clip(x + 3, 0, 6) / 6, INF, -0.0),
    ("hard_sigmoid", (0.2, 0.5), lambda x, a, b: clip(a * x + b, 0, 1), 1.0, 0.0),
    ("leaky_relu", (0.01,), lambda x, a: x if x >= 0 else a * x, INF, -INF),
    ("elu", (1.3,), lambda x, a: x if x >= 0 else a * (mpmath.exp(x) - 1), INF, -f32(1.3)),
    ("softplus", (1,), softplus, INF, 0.0),
    ("softplus", (2.5,), softplus, INF, 0.0),
    ("clamp", (-1.5, 6), clip, 6.0, -1.5),
    ("pow", (2,), power, INF, INF),
    ("pow", (1,), power, INF, -INF),
    ("pow", (0,), power, 1.0, 1.0),
    ("pow", (3,), power, INF, -INF),
    ("pow", (-3,), power, 0.0, -0.0),
    ("pow", (0.5,), power, INF, None),
    ("pow", (-1.7,), power, 0.0, None),
]  # fmt: skip


def inputs():
    rng = random.Random(1)
    x = [
        0.0, 2.0**-149, 2.0**-126, 3.4028234663852886e38, 1, 0.5, 1.5, 2.5, 3, 88.72283, 87.33655,
        103.9, 17.5, 0.625, 8388607.5, 16777216
    ]
    x += [0.70710677, 1.41421354, 0.99999994, 1.00000012, 9.01, 13.5, 14.2, 1.1924312, 0.7517916, 6]
    x += [rng.uniform(0, 20) for _ in range(30)]
    x += [rng.uniform(1, 2) * 2.0 ** rng.randint(-30, 5) for _ in range(16)]
    x += [rng.uniform(1, 2) * 2.0 ** rng.randint(-140, 126) for _ in range(8)]
    return [f32(s * v) for v in x for s in (1, -1)]


def number(x):
    """The nearest double; what is beyond doubles is infinite or zero."""
    if isinstance(x, mpmath.mpf):
        huge = x != 0 and mpmath.log(abs(x), 2) > 1023.9
        x = math.copysign(INF, x) if huge else float(x)
    if math.isnan(x):
        return "NAN"
    if math.isinf(x):
        return "INFINITY" if x > 0 else "-INFINITY"
    mantissa, exponent = float(x).hex().split("p")
    zero = "-0.0" if math.copysign(1, x) < 0 else "0"
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent if x else zero


def main():
    rows, cases = [], []
    for op, attrs, fn, above, below in CASES:
        p = [f32(a) for a in attrs]
        first = len(rows)
        for x in inputs():
            y = fn(mpf(x), *(mpf(a) for a in p))
            if y is not None:
                rows.append(f"{{{number(x)}f, {number(y)}}}" if x else f"{{0, {number(y)}}}")
        rows += [
            f"{{{s}INFINITY, {number(y)}}}" for s, y in (("", above), ("-", below)) if y is not None
        ]
        rows.append("{NAN, NAN}" if (op, attrs) != ("pow", (0,)) else "{NAN, 1}")
        p += [0.0] * (2 - len(p))
        cases.append(
            f"    {{sinter_op_{op}, {{{p[0]!r}f, {p[1]!r}f}}, {first}, {len(rows) - first}}},")
    lines = ["static const eltwise_vector_t eltwise_vectors[] = {"]
    lines += ["    " + ", ".join(rows[i : i + 3]) + "," for i in range(0, len(rows), 3)]
    lines += ["};", "static const eltwise_vectors_of_t eltwise_vectors_of[] = {"] + cases + ["};"]
    data = "\n".join(lines) + "\n"
    print(
        f"/* Made by gen_eltwise_vectors.py with mpmath {mpmath.__version__}, Python "
        f"{platform.python_version()}."
    )
    print(f" * SHA-256 of what follows the mark: {hashlib.sha256(data.encode()).hexdigest()} */")
    print("/* clang-format off */")
    print(
        "typedef struct eltwise_vector {\n    float x;\n    double y; /* the double nearest to "
        "the result */\n} eltwise_vector_t;"
    )
    print(
        "typedef struct eltwise_vectors_of {\n    sinter_op_kind_t kind;\n    float p[2]; /* "
        "attributes */\n    int first, n;\n} eltwise_vectors_of_t;"
    )
    print("/* data */")
    sys.stdout.write(data)


if __name__ == "__main__":
    main()
