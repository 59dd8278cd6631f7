#!/usr/bin/env python3
"""Writes dtype_vectors.h: what ml_dtypes and NumPy make of every code and of many f32 values. Run with ml_dtypes 0.6.0:

    python3 gen_dtype_vectors.py > dtype_vectors.h

Left out, because NUMERICS chooses otherwise or says nothing: NaN to f6 and f4, and to e8m0 ties (ml_dtypes rounds them up) and
values outside its range.
"""
import random

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
    values = [0.0, -0.0, np.inf, -np.inf, 3.4028234663852886e38, 1e-45, 1.1754942e-38, 1.17549435e-38, 61440, 61439.99, 464, 464.0001]
    for _ in range(300):
        values.append(rng.choice([-1, 1]) * (1 + rng.random()) * 2.0 ** rng.randint(-22, 18))
    for _ in range(100):  # few bits: many exact ties
        values.append(rng.choice([-1, 1]) * rng.randint(1, 63) * 2.0 ** rng.randint(-20, 12))
    return np.array(values, np.float32)


def scale_inputs():
    rng = random.Random(2)
    return np.array([(1 + rng.choice([0.0, 0.1, 0.499, 0.501, 0.9])) * 2.0 ** rng.randint(-126, 126) for _ in range(100)], np.float32)


def row(name, ctype, values, width):
    print(f"static const {ctype} {name}[] = {{")
    step = {1: 26, 2: 22, 4: 16, 8: 11}[width]
    for i in range(0, len(values), step):
        print("    " + ", ".join(f"0x{int(v):0{width}X}" for v in values[i : i + step]) + ",")
    print("};")


def main():
    print("/* Made by gen_dtype_vectors.py with ml_dtypes %s. */" % ml_dtypes.__version__)
    values = inputs()
    row("vector_inputs", "uint32_t", values.view(np.uint32), 8)
    for name, dtype, bits in TYPES:
        with np.errstate(over="ignore"):
            row(f"vector_codes_{name}", "uint16_t", values.astype(dtype).view(np.uint8 if bits <= 8 else np.uint16), (bits + 3) // 4)
        if bits <= 8:
            decoded = np.arange(2**bits, dtype=np.uint8).view(dtype).astype(np.float32)
            row(f"vector_values_{name}", "uint32_t", decoded.view(np.uint32), 8)
    scales = scale_inputs()
    row("vector_scale_inputs", "uint32_t", scales.view(np.uint32), 8)
    row("vector_codes_e8m0", "uint16_t", scales.astype(E8M0).view(np.uint8), 2)
    row("vector_values_e8m0", "uint32_t", np.arange(256, dtype=np.uint8).view(E8M0).astype(np.float32).view(np.uint32), 8)


main()
