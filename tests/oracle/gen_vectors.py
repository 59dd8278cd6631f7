#!/usr/bin/env python3
"""Writes vectors.h, values from outside for selftest.c. Needs ml_dtypes and numpy; usage:
gen_vectors.py > vectors.h

tools/dev/check_vectors.py checks the SHA-256 of the data."""
import contextlib
import decimal
import fractions
import hashlib
import io
import math
import random
import sys

import ml_dtypes
import numpy as np

SMALL = {
    "f8_e5m2": (ml_dtypes.float8_e5m2, 8),
    "f8_e4m3": (ml_dtypes.float8_e4m3fn, 8),
    "f8_e5m2fnuz": (ml_dtypes.float8_e5m2fnuz, 8),
    "f8_e4m3fnuz": (ml_dtypes.float8_e4m3fnuz, 8),
    "e8m0": (ml_dtypes.float8_e8m0fnu, 8),
    "f6_e3m2": (ml_dtypes.float6_e3m2fn, 6),
    "f6_e2m3": (ml_dtypes.float6_e2m3fn, 6),
    "f4_e2m1": (ml_dtypes.float4_e2m1fn, 4),
    "s4": (ml_dtypes.int4, 4),
    "u4": (ml_dtypes.uint4, 4),
}


def c_double(x):
    if math.isnan(x):
        return "NAN"
    if math.isinf(x):
        return "-INFINITY" if x < 0 else "INFINITY"
    mantissa, exponent = float(x).hex().split("p")
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent if x else "-0.0" if math.copysign(
        1, x) < 0 else "0.0"


def rows(items, per_line):
    items = list(items)
    for i in range(0, len(items), per_line):
        print("    " + ", ".join(items[i:i + per_line]) + ",")


def decode(dtype, bits):
    return np.arange(2**bits, dtype=np.uint8).view(dtype).astype(np.float64)


def code_of(dtype, x, bits):
    return int(np.array(
        [x], np.float32).astype(dtype).view(f"u{np.dtype(dtype).itemsize}")[0]) & (2**bits - 1)


def encode_points(values):
    """Every midpoint of neighbouring finite values, the f32 numbers next to it, and what lies just
    beyond the largest."""
    finite = sorted(set(v for v in values if math.isfinite(v)))
    mids = [(a + b) / 2
            for a, b in zip(finite, finite[1:])] + [finite[-1] + (finite[-1] - finite[-2]) / 2]
    for m in mids:
        m = np.float32(m)
        yield from (np.nextafter(m, np.float32(-np.inf)), m, np.nextafter(m, np.float32(np.inf)))


def emit_encode(name, pairs):
    print(f"static const encode_t encode_{name}[] = {{")
    rows((f"{{0x{int(np.float32(x).view(np.uint32)):08X}, 0x{code:X}}}" for x, code in pairs), 6)
    print("};\n")


def emit_formats():
    for name, (dtype, bits) in SMALL.items():
        values = decode(dtype, bits)
        print(f"static const double decode_{name}[] = {{")
        rows((c_double(v) for v in values), 8)
        print("};\n")
        # ml_dtypes rounds ties up, overflow to NaN, and f32 subnormals twice; the contract ties to
        # even
        if name == "e8m0":
            emit_encode(name, ((x, code_of(dtype, x, bits)) for x in encode_points(values)
                               if math.frexp(x)[0] != 0.75 and 2**-126 < x < 2**127))
        elif name not in ("s4", "u4"):  # ml_dtypes wraps integers around, the contract saturates
            emit_encode(name, ((x, code_of(dtype, x, bits)) for x in encode_points(values)))


def emit_halves():
    rng = random.Random(1)
    for name, dtype, low, high in (("f16", np.float16, 96, 144), ("bf16", ml_dtypes.bfloat16, 0,
                                                                  254)):
        points = []
        for _ in range(120):
            tail = rng.choice([0, 1 << 12, 1 << 15, rng.getrandbits(16)])
            bits = rng.getrandbits(1) << 31 | rng.randint(low, high) << 23 | (
                rng.getrandbits(23) & ~0xFFFF | tail)
            points.append(np.uint32(bits).view(np.float32))
        emit_encode(name, ((x, code_of(dtype, x, 16)) for x in points))


def emit_doubles(name, items):
    print(f"static const double {name}[] = {{")
    rows((c_double(x) for x in items), 5)
    print("};\n")


def emit_matmul():
    rng = random.Random(2)
    a = [[float(np.float32(rng.uniform(-2, 2))) for _ in range(5)] for _ in range(3)]
    b = [[float(np.float32(rng.uniform(-2, 2))) for _ in range(4)] for _ in range(5)]
    c = [[
        float(sum(fractions.Fraction(a[i][k]) * fractions.Fraction(b[k][j]) for k in range(5)))
        for j in range(4)
    ] for i in range(3)]
    for name, m in (("matmul_a", a), ("matmul_b", b), ("matmul_c", c)):
        emit_doubles(name, sum(m, []))


def emit_softmax():
    decimal.getcontext().prec = 50
    x = [0.5, -1.25, 3.0, 2.75, -40.0, 0.0, 1.5]
    e = [decimal.Decimal(v).exp() for v in x]
    emit_doubles("softmax_x", x)
    emit_doubles("softmax_y", [float(v / sum(e)) for v in e])
    emit_doubles("softmax_stats", [float(sum(e).ln())])


def emit_unary():
    """Written with decimals or from the definitions, not with the functions selftest calls."""
    d = decimal.Decimal
    x = [-5.0, -1.5, -0.25, 0.0, 0.125, 1.0, 2.5, 6.0]
    sig = lambda v: 1 / (1 + (-v).exp())
    tanh = lambda v: 2 * sig(2 * v) - 1
    softplus = lambda v: (1 + v.exp()).ln()

    def erf(v):
        total, term, n = d(0), v, 0
        while abs(term) > d(10) ** -45:
            total += term / (2 * n + 1)
            n += 1
            term *= -v * v / n
        return 2 * total / PI.sqrt()

    PI = d("3.14159265358979323846264338327950288419716939937510")
    emit_doubles("unary_x", x)
    for name, f in (
        ("exp", lambda v: v.exp()),
        ("sigmoid", sig),
        ("tanh", tanh),
        ("softplus2", lambda v: softplus(2 * v) / 2),
        ("mish", lambda v: v * tanh(softplus(v))),
        ("elu", lambda v: v if v > 0 else d("0.5") * (v.exp() - 1)),
        ("gelu_erf", lambda v: v / 2 * (1 + erf(v / d(2).sqrt()))),
        ("gelu_tanh", lambda v: v / 2 * (1 + tanh((2 / PI).sqrt() * (v + d("0.044715") * v**3)))),
        ("hard_swish", lambda v: v * min(d(6), max(d(0), v + 3)) / 6),
        ("hard_sigmoid", lambda v: min(d(1), max(d(0), v / 4 + d("0.5")))),
    ):
        emit_doubles("unary_" + name, [float(f(d(v))) for v in x])


def main():
    data = io.StringIO()
    with contextlib.redirect_stdout(data):
        emit_formats()
        emit_halves()
        emit_matmul()
        emit_softmax()
        emit_unary()
    print(
        f"/* Generated by gen_vectors.py with ml_dtypes {ml_dtypes.__version__}, numpy "
        f"{np.__version__}, Python {sys.version.split()[0]}."
    )
    print(
        f" * SHA-256 of what follows the mark: "
        f"{hashlib.sha256(data.getvalue().encode()).hexdigest()} */"
    )
    print(
        "typedef struct encode {\n    uint32_t f32; /* bits */\n    unsigned code;\n} encode_t;\n")
    print("/* data */")
    print(data.getvalue(), end="")


main()
