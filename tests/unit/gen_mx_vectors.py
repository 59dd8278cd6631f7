#!/usr/bin/env python3
"""Writes mx_vectors.h: what torchao makes of groups of 32 numbers in the MX formats. Run with
torchao 0.14.1 and torch 2.9.1:

    python3 gen_mx_vectors.py > mx_vectors.h
    python3 gen_mx_vectors.py --check mx_vectors.h    # the data has its SHA-256; needs neither

ScaleCalculationMode.FLOOR is dynamic_mx, RCEIL is dynamic_mx_rceil; elements round half to even.
What differs, and the rule that decides it, is listed and asserted in test_mx_vectors.c. Groups
whose scale byte is 0 come with a second row of codes, those of twice the group in FLOOR mode: there
torchao divides by 2^-126 where the scale says 2^-127, so that they are x / 2^-127.
"""
import hashlib
import sys

GROUP = 32
MAX = {"f8_e4m3": 448.0, "f8_e5m2": 57344.0, "f6_e3m2": 28.0, "f6_e2m3": 7.5, "f4_e2m1": 6.0}


def marked(text):
    return "\n".join(text.split("/* data */\n")[1].splitlines()) + "\n"


def check(path):
    text = open(path).read()
    digest = hashlib.sha256(marked(text).encode()).hexdigest()
    print(digest)
    sys.exit(digest not in text.split("/* data */\n")[0])


def normal(rng, exponent, spread=0):
    import numpy as np

    return np.ldexp(rng.standard_normal(GROUP), exponent + rng.integers(-spread, spread + 1, GROUP))


def with_amax(rng, amax):
    """Random numbers under one largest."""
    x = rng.uniform(-1, 1, GROUP) * amax
    x[rng.integers(GROUP)] = amax * rng.choice([-1, 1])
    return x


def groups():
    import numpy as np

    rng = np.random.default_rng(1)
    out = [normal(rng, e) for e in (-100, -60, -24, -7, 0, 3, 12, 50, 110)]
    out += [normal(rng, e, 12) for e in (-90, -10, 0, 70)]
    out += [normal(rng, e, 30) for e in (-95, 0, 80)]
    # subnormals alone, among small normals, and where the scale byte goes from 0 to 1
    out += [
        np.ldexp(rng.uniform(-1, 1, GROUP), e)
        for e in (-148, -140, -127, -126, -125, -124, -122, -118, -112, -110)
    ]
    out += [normal(rng, -124, 8), normal(rng, -116, 14)]
    # the largest at, just below and just above powers of two
    for e in (-126, -30, -1, 0, 1, 20, 127):
        power = np.float32(np.ldexp(1.0, e))
        out.append(with_amax(rng, float(np.nextafter(power, np.float32(0)))))
        out.append(with_amax(rng, float(power)))
    out += [
        with_amax(rng, float(np.nextafter(np.float32(2.0**e), np.float32(np.inf))))
        for e in (-20, 0)
    ]
    # ... and at those of each element type, where rceil goes to the next scale
    for i, top in enumerate(MAX.values()):
        edge = np.float32(np.ldexp(top, 9 * i - 20))
        out += [with_amax(rng, float(v)) for v in (edge, np.nextafter(edge, np.float32(np.inf)))]
    # ties of every format: few bits
    out += [np.ldexp(rng.integers(-127, 128, GROUP).astype(float), int(e)) for e in (-9, 0, 5)]
    out += [np.zeros(GROUP), np.where(rng.integers(0, 2, GROUP) == 0, -0.0, 0.0)]
    for outlier in (1e4, -3e9):  # one outlier
        x = normal(rng, 0)
        x[rng.integers(GROUP)] = outlier
        out.append(x)
    out += [with_amax(rng, 3.4028234663852886e38), np.full(GROUP, -3.4028234663852886e38)]
    for specials in ((np.nan,), (np.inf,), (-np.inf, np.nan)):
        x = normal(rng, 0)
        x[rng.permutation(GROUP)[: len(specials)]] = specials
        out.append(x)
    return np.array(out, np.float32)


def quantise(x, name, mode):
    """Scale bytes and a code per element."""
    import torch
    from torchao.prototype.mx_formats import constants as k
    from torchao.prototype.mx_formats.config import ScaleCalculationMode
    from torchao.prototype.mx_formats.kernels import unpack_uint4
    from torchao.prototype.mx_formats.mx_tensor import to_mx

    types = {
        "f8_e4m3": torch.float8_e4m3fn,
        "f8_e5m2": torch.float8_e5m2,
        "f6_e3m2": k.DTYPE_FP6_E3M2,
        "f6_e2m3": k.DTYPE_FP6_E2M3,
        "f4_e2m1": torch.float4_e2m1fn_x2,
    }
    scale, data = to_mx(torch.from_numpy(x), types[name], GROUP, ScaleCalculationMode[mode])
    data = data.view(torch.uint8)
    if name == "f4_e2m1":
        data = unpack_uint4(data)
    return scale.view(torch.uint8).reshape(-1).numpy(), data.reshape(-1, GROUP).numpy()


def main():
    import numpy as np
    import torch
    import torchao

    x = groups()
    lines = ["static const uint32_t mx_inputs[][MX_GROUP] = {"]
    for row in x.view(np.uint32):
        words = [f"0x{v:08X}" for v in row]
        lines += [
            "    {" + ", ".join(words[:11]) + ",", "     " + ", ".join(words[11:22]) + ",",
            "     " + ", ".join(words[22:]) + "},"
        ]
    lines.append("};")
    with np.errstate(over="ignore"):
        twice = x * np.float32(2)
    for mode, kind in (("FLOOR", "mx"), ("RCEIL", "mx_rceil")):
        for name in MAX:
            scales, codes = quantise(x, name, mode)
            doubled = quantise(twice, name, "FLOOR")[1]
            lines.append(f"static const mx_row_t {kind}_{name}[] = {{")
            for scale, row, second, values in zip(scales, codes, doubled, x):
                more = f',\n     "{second.tobytes().hex()}"' if scale == 0 and values.any(
                ) else ", NULL"
                lines.append(f'    {{0x{scale:02X}, "{row.tobytes().hex()}"{more}}},')
            lines.append("};")
    data = "\n".join(lines) + "\n"
    print(
        f"/* Made by gen_mx_vectors.py with torchao {torchao.__version__}, torch "
        f"{torch.__version__.split('+')[0]}."
    )
    print(f" * SHA-256 of what follows the mark: {hashlib.sha256(data.encode()).hexdigest()} */")
    print("/* clang-format off */")
    print("enum { MX_GROUP = 32 };")
    print(
        "typedef struct mx_row {\n    uint8_t scale;\n    const char *codes, *doubled; /* a byte "
        "for each element */\n} mx_row_t;"
    )
    print("/* data */")
    print(data, end="")


if __name__ == "__main__":
    check(sys.argv[2]) if sys.argv[1:2] == ["--check"] else main()
