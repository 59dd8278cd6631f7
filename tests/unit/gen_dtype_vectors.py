#!/usr/bin/env python3
"""Writes dtype_vectors.h: what ml_dtypes and NumPy make of every code and of many f32 values. Run
with ml_dtypes 0.6.0:

    python3 gen_dtype_vectors.py > dtype_vectors.h

tools/dev/check_vectors.py checks the SHA-256 of the data. Inputs for which the numeric contract has
another result than they do are in a list of their own, with both results and the rule that decides;
test_dtype.c asserts that list too.
"""
import hashlib
import random
from fractions import Fraction

import ml_dtypes
import numpy as np

TYPES = [
    ("f8_e5m2", ml_dtypes.float8_e5m2, 8),
    ("f8_e4m3", ml_dtypes.float8_e4m3fn, 8),
    ("f8_e5m2fnuz", ml_dtypes.float8_e5m2fnuz, 8),
    ("f8_e4m3fnuz", ml_dtypes.float8_e4m3fnuz, 8),
    ("f6_e3m2", ml_dtypes.float6_e3m2fn, 6),
    ("f6_e2m3", ml_dtypes.float6_e2m3fn, 6),
    ("f4_e2m1", ml_dtypes.float4_e2m1fn, 4),
    ("f16", np.float16, 16),
    ("bf16", ml_dtypes.bfloat16, 16),
]
E8M0 = ml_dtypes.float8_e8m0fnu


def inputs():
    rng = random.Random(1)
    values = [
        0.0, -0.0, np.inf, -np.inf, 3.4028234663852886e38, 1e-45, 1.1754942e-38, 1.17549435e-38,
        61440, 61439.99, 464, 464.0001
    ]
    for _ in range(300):
        values.append(rng.choice([-1, 1]) * (1 + rng.random()) * 2.0 ** rng.randint(-22, 18))
    for _ in range(100):  # few bits: many exact ties
        values.append(rng.choice([-1, 1]) * rng.randint(1, 63) * 2.0 ** rng.randint(-20, 12))
    return np.array(values, np.float32)


def scale_inputs():
    rng = random.Random(2)
    return np.array([(1 + rng.choice([0.0, 0.1, 0.499, 0.501, 0.9])) * 2.0**rng.randint(-126, 126)
                     for _ in range(100)], np.float32)


# ---- where the contract differs: input bits, and the code by the rule, worked out here without
# ml_dtypes ----

RULES = {
    "NO_NAN":
    "f6 and f4 have no NaN: it becomes the largest value, the sign kept; ml_dtypes gives a zero "
    "of the other sign",
    "NAN_BITS":
    "a NaN keeps its upper bits and is made quiet; ml_dtypes' bf16 drops them, NumPy's f16 leaves "
    "a signalling NaN",
    "SCALE_TIE":
    "e8m0 rounds a tie to the even code; ml_dtypes rounds it up",
    "SCALE_NEAREST":
    "e8m0 rounds f32 subnormals to the nearest scale like all others; ml_dtypes rounds all of "
    "them above 2^-127 up",
    "SCALE_CLAMP":
    "e8m0 clamps what lies outside to 0x00 or 0xFE, zero and negative numbers to 0x00; ml_dtypes "
    "gives NaN",
}


def f32_bits(x):
    return int(np.float32(x).view(np.uint32))


def e8m0_of(x):
    """The nearest power of two among 2^-127..2^127 by exact distance, of two equally near ones that
    with the even code."""
    x = Fraction(x)
    return min(range(255), key=lambda code: (abs(x - Fraction(2) ** (code - 127)), code % 2))


def differences():
    for name, most in (("f6_e3m2", 0x1F), ("f6_e2m3", 0x1F), ("f4_e2m1", 0x07)):
        for bits in (0x7FC00000, 0xFFC00000, 0x7F812345, 0xFFFFFFFF):
            yield name, bits, most | (most + 1 if bits >> 31 else 0), "NO_NAN"
    for bits in (0x7FD20000, 0xFFE54321, 0x7F812345):
        yield "bf16", bits, bits >> 16 | 0x40, "NAN_BITS"
    yield "f16", 0x7F812345, 0x7C00 | 0x200 | 0x012345 >> 13, "NAN_BITS"
    yield "e8m0", f32_bits(np.inf), 0xFE, "SCALE_CLAMP"
    for x in (-np.inf, 0.0, -0.0, -1.0, -(2.0**-130), -3e38):
        yield "e8m0", f32_bits(x), 0x00, "SCALE_CLAMP"
    for x in (1.5 * 2.0**127, 3.4028234663852886e38):
        yield "e8m0", f32_bits(x), 0xFE, "SCALE_CLAMP"
    for k in (-126, -125, -61, -3, -1, 1, 3, 5, 100, 125):
        if e8m0_of(1.5 * 2.0**k) == k + 127:  # the lower one is even: not up
            yield "e8m0", f32_bits(1.5 * 2.0**k), k + 127, "SCALE_TIE"
    for x in (1.125, 1.25, 1.4999, 1.5):
        yield "e8m0", f32_bits(x * 2.0**-127), e8m0_of(float(np.float32(
            x * 2.0**-127))), "SCALE_NEAREST"


def row(name, ctype, values, width):
    lines = [f"static const {ctype} {name}[] = {{"]
    step = {1: 26, 2: 22, 4: 16, 8: 11}[width]
    for i in range(0, len(values), step):
        lines.append("    " + ", ".join(f"0x{int(v):0{width}X}" for v in values[i:i + step]) + ",")
    return lines + ["};"]


def data():
    values = inputs()
    lines = row("vector_inputs", "uint32_t", values.view(np.uint32), 8)
    for name, dtype, bits in TYPES:
        lines += row(f"vector_codes_{name}", "uint16_t",
                     values.astype(dtype).view(np.uint8 if bits <= 8 else np.uint16),
                     (bits + 3) // 4)
        if bits <= 8:
            decoded = np.arange(2**bits, dtype=np.uint8).view(dtype).astype(np.float32)
            lines += row(f"vector_values_{name}", "uint32_t", decoded.view(np.uint32), 8)
    scales = scale_inputs()
    lines += row("vector_scale_inputs", "uint32_t", scales.view(np.uint32), 8)
    lines += row("vector_codes_e8m0", "uint16_t", scales.astype(E8M0).view(np.uint8), 2)
    lines += row("vector_values_e8m0", "uint32_t",
                 np.arange(256, dtype=np.uint8).view(E8M0).astype(np.float32).view(np.uint32), 8)
    dtypes = {name: dtype for name, dtype, _ in TYPES} | {"e8m0": E8M0}
    lines.append("static const vector_difference_t vector_differences[] = {")
    for name, bits, ours, rule in differences():
        theirs = int(
            np.array([bits], np.uint32).view(np.float32).astype(
                dtypes[name]).view(np.uint16 if name.endswith("f16") else np.uint8)[0])
        lines.append(
            f"    {{sinter_{name}, 0x{bits:08X}, 0x{theirs:02X}, 0x{ours:02X}, RULE_{rule}}},")
    return "\n".join(lines + ["};"]) + "\n"


def main():
    with np.errstate(all="ignore"):
        text = data()
    print(
        f"/* Made by gen_dtype_vectors.py with ml_dtypes {ml_dtypes.__version__}, NumPy "
        f"{np.__version__}."
    )
    print(f" * SHA-256 of what follows the mark: {hashlib.sha256(text.encode()).hexdigest()} */")
    print("/* clang-format off */")
    print("enum { " + ", ".join("RULE_" + rule for rule in RULES) + " };")
    print("static const char *const vector_rules[] = {")
    for rule, why in RULES.items():
        print(f'    [RULE_{rule}] = "{why}",')
    print("};")
    print(
        "typedef struct vector_difference {\n    sinter_data_type_t type;\n    uint32_t input;\n  "
        "  unsigned theirs, ours;\n    int rule;\n} vector_difference_t;"
    )
    print("/* data */")
    print(text, end="")


main()
