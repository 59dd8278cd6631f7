#!/usr/bin/env python3
"""Writes dynquant_vectors.h: groups of 8 numbers quantised by the formulas of the numeric contract
in exact rational arithmetic.

    python3 gen_dynquant_vectors.py > dynquant_vectors.h

Shares no code with the oracle or the library, and uses no floating point: f32 steps are exact
quotients rounded once."""
import random
from fractions import Fraction as F

GROUP = 8
NAN = "NAN"
INF = "INF"


def power(e):
    return F(2) ** e


def floor_log2(x):
    e = x.numerator.bit_length() - x.denominator.bit_length()
    return e if power(e) <= x else e - 1


def half_even(x):
    n, rest = divmod(x.numerator, x.denominator)
    twice = 2 * rest - x.denominator
    return n + (twice > 0 or (twice == 0 and n % 2 == 1))


def round_float(x, man, emin, top):
    """To `man` stored bits of mantissa, multiples of 2^(emin - man) below 2^emin; top: the largest
    number, beyond which all is INF."""
    if x == 0:
        return x
    unit = power(max(floor_log2(abs(x)), emin) - man)
    r = half_even(x / unit) * unit
    return INF if abs(r) > top else r


# name: mantissa bits, least normal exponent, largest number
FLOATS = {
    "f8_e4m3": (3, -6, F(448)),
    "f8_e5m2": (2, -14, F(57344)),
    "f8_e4m3fnuz": (3, -7, F(240)),
    "f8_e5m2fnuz": (2, -15, F(57344)),
    "f6_e3m2": (2, -2, F(28)),
    "f6_e2m3": (3, 0, F(15, 2)),
    "f4_e2m1": (1, 0, F(6)),
    "f16": (10, -14, F(65504)),
    "bf16": (7, -126, F(255) * power(120)),
    "f32": (23, -126, (power(24) - 1) * power(104)),
}  # fmt: skip
INTS = {
    "s8": (-128, 127),
    "u8": (0, 255),
    "s4": (-8, 7),
    "u4": (0, 15),
    "s32": (-(2**31), 2**31 - 1)
}
EMAX = {
    "f8_e4m3": 8,
    "f8_e5m2": 15,
    "f8_e4m3fnuz": 7,
    "f8_e5m2fnuz": 15,
    "f6_e3m2": 4,
    "f6_e2m3": 2,
    "f4_e2m1": 2,
    "s8": 6
}


def f32(x):
    r = round_float(x, *FLOATS["f32"])
    return FLOATS["f32"][2] * 2 if r == INF else r


def largest(name):
    return F(INTS[name][1]) if name in INTS else FLOATS[name][2]


def clamp(x, low, high):
    return min(max(x, low), high)


def element(x, name, zp=0, symmetric=False):
    """Saturating; symmetric: to the largest number with either sign."""
    if name in INTS:
        low, high = INTS[name]
        return F(clamp(half_even(x) + zp, -high if symmetric else low, high))
    top = FLOATS[name][2]
    return round_float(clamp(x, -top, top), *FLOATS[name])


def to_e8m0(x):
    """The nearest power of two, ties to the even code."""
    if x <= power(-127):
        return power(-127)
    e = floor_log2(x)
    up = x > F(3, 2) * power(e) or (x == F(3, 2) * power(e) and (e + 127) % 2 == 1)
    return power(clamp(e + up, -127, 127))


def stored_scale(x, name):
    """Saturating; 1 in place of 0, which e8m0 does not have."""
    if x == 0:
        return F(1)
    x = f32(x)
    if name == "e8m0":
        return to_e8m0(x)
    r = round_float(min(x, FLOATS[name][2]), *FLOATS[name]) if x else x
    return F(1) if r == 0 else r


def stored_zp(x, name):
    """A float zero point or an offset: rounded once to f32, then to its type, saturating."""
    top = FLOATS[name][2]
    return round_float(clamp(f32(x), -top, top), *FLOATS[name])


def quantise_open(x, elem, scale, zp_type, offsets):
    """Groups that need not contain 0. Differences and sums are exact, and codes rounded once."""
    low, high = INTS[elem]
    s = stored_scale((max(x) - min(x)) / (high - low), scale)
    zp = stored_zp(min(x) - s * low if offsets else low - min(x) / s, zp_type)
    exact = [(v - zp) / s if offsets else v / s + zp for v in x]
    return s, zp, [F(clamp(half_even(q), low, high)) for q in exact]


def quantise(kind, x, elem, scale, zp_type, t):
    """Scale, zero point, elements."""
    zp = F(0)
    if t == 0:
        return NAN, zp, [zp] * len(x)
    if NAN in x or INF in x:
        return NAN, quantise(kind, [zp], elem, scale, zp_type, t)[1], [zp] * len(x)
    if zp_type in FLOATS:
        return quantise_open(x, elem, scale, zp_type, kind == "offsets")
    amax = max(abs(v) for v in x)
    if kind == "dynamic_mx":
        s = power(clamp(floor_log2(amax) - EMAX[elem], -127, 127)) if amax else power(-127)
    elif kind == "dynamic_mx_rceil":
        q = f32(amax / largest(elem))
        s = power(-127) if q <= power(-127) else power(floor_log2(q) + (power(floor_log2(q)) != q))
    elif kind == "dynamic_symmetric":
        s = stored_scale(amax / largest(elem), scale)
    elif kind == "dynamic_asymmetric":
        low, high = INTS[elem]
        lo = min(F(0), min(x))
        s = stored_scale((max(F(0), max(x)) - lo) / (high - low), scale)
        zp = F(clamp(clamp(half_even(low - lo / s), low, high), *INTS[zp_type]))
    else:
        s = round_float(clamp(f32(f32(amax / 6) / t), power(-9), F(448)), *FLOATS["f8_e4m3"])
    return s, zp, [element(v / (s * t), elem, int(zp), kind.startswith("dynamic_mx")) for v in x]


# ---- groups --------------------------------------------------------------------------------------


def random_f32(rng, e):
    return round_float(
        F(rng.choice([-1, 1]) * rng.randint(2**23, 2**24 - 1)) * power(e - 23), *FLOATS["f32"])


def groups(rng):
    just_below = (power(24) - 1) * power(-24)  # of 1
    yield [random_f32(rng, rng.randint(-3, 3)) for _ in range(GROUP)]
    yield [random_f32(rng, rng.randint(-12, 0)) for _ in range(GROUP)]
    yield [abs(random_f32(rng, rng.randint(-3, 6))) for _ in range(GROUP)]
    yield [-just_below * power(rng.randint(-6, 9))
           ] + [random_f32(rng, -9) for _ in range(GROUP - 1)]
    yield [power(rng.randint(-6, 9)), F(0)] + [random_f32(rng, -8) for _ in range(GROUP - 2)]
    yield [random_f32(rng, rng.randint(-149, -127)) for _ in range(GROUP)]
    yield [random_f32(rng, rng.randint(-130, -115)) for _ in range(GROUP)]
    yield [random_f32(rng, rng.randint(120, 127)) for _ in range(GROUP)]
    yield [F(0)] * GROUP
    yield [random_f32(rng, 15)] + [random_f32(rng, rng.randint(-5, 0)) for _ in range(GROUP - 1)]
    yield [F(rng.randint(-127, 127), 4) for _ in range(GROUP)]  # ties
    yield [random_f32(rng, 0) for _ in range(GROUP - 1)] + [rng.choice([NAN, INF])]
    yield [F(n) * power(-149) for n in (1, -7, 0, 3, -30, 12, 5, -2)]  # a scale that f32 has as 0
    yield [-just_below * power(3),
           F(255, 256) * power(3), -F(509, 512) * power(3)
           ] + [F(n, 16) for n in (-127, 127, 1, -1, 0)]
    most = FLOATS["f32"][2]
    yield [-most, most, f32(most / 2), f32(-most / 3), F(0), F(1), f32(most / 4), f32(most / 255)]
    yield [f32(F(-24 * 10**37)), f32(F(24 * 10**37)), f32(F(12 * 10**37)), F(0)] + [F(1)] * 4
    yield [F(1000) + random_f32(rng, rng.randint(-3, 3)) // power(-10) * power(-10)
           for _ in range(GROUP)]  # fmt: skip
    yield [F(-20) + F(rng.randint(0, 2**20), 2**18) for _ in range(GROUP)]
    # beside ties, by less than floats or doubles tell from them
    yield [F(-1, 2), F(509, 2), power(-60), -power(-60), power(-149), -power(-149),
           2 + power(-22), 4 - power(-22)]  # fmt: skip
    yield [F(0), F(255), F(1, 2), F(5, 2), F(1, 2) - power(-25), F(5, 2) + power(-22), F(7, 2),
           F(301, 2)]  # fmt: skip


SETS = ([("dynamic_mx", e, "e8m0", "s32", 1)
         for e in EMAX] + [("dynamic_mx_rceil", e, "e8m0", "s32", 1)
                           for e in EMAX] + [("dynamic_symmetric", "s8", s, "s32", 1)
                                             for s in ("f32", "f16", "bf16", "e8m0", "f8_e4m3")] +
        [("dynamic_symmetric", e, s, "s32", 1)
         for e, s in (("s4", "f16"), ("f8_e4m3", "f32"), ("f8_e4m3", "f8_e4m3"),
                      ("f8_e5m2", "e8m0"), ("f8_e4m3fnuz", "bf16"), ("f6_e3m2", "f32"),
                      ("f4_e2m1", "f16"))] +
        [("dynamic_asymmetric", e, s, z, 1)
         for e, s, z in (("u8", "f32", "u8"), ("u4", "f16", "u4"), ("s8", "bf16", "s8"),
                         ("s4", "f32", "s4"), ("u8", "e8m0", "s32"), ("u8", "f32", "s8"),
                         ("s8", "f8_e4m3", "s4"))] + [("dynamic_nv", "f4_e2m1", "f8_e4m3", "s32", t)
                                                      for t in (F(1), F(1, 4), F(3, 2), F(0))] +
        [(k, e, s, z, 1)
         for k in ("dynamic_asymmetric", "offsets")
         for e, s, z in (("u8", "f32", "f32"), ("s8", "f32", "f32"), ("u4", "f16", "f16"),
                         ("s4", "bf16", "bf16"), ("u8", "f16", "f32"), ("s8", "f32", "f16"))]
        )  # fmt: skip


TYPES = """enum {{ DYNQUANT_GROUPS = {groups} }};
typedef struct dynquant_result {{
    double scale, zp, elements[8];
}} dynquant_result_t;
typedef struct dynquant_vector {{
    const char *kind;
    sinter_data_type_t type, scale_type, zp_type;
    int offsets;         /* zero points are offsets */
    double tensor_scale; /* dynamic_nv */
    dynquant_result_t results[DYNQUANT_GROUPS];
}} dynquant_vector_t;"""


def number(x):
    if x in (NAN, INF):
        return "NAN" if x == NAN else "INFINITY"
    if x.denominator <= 2**12 and abs(x) < 2**20:
        return repr(float(x)).removesuffix(".0")
    mantissa, exponent = float(x).hex().split("p")
    return mantissa.rstrip("0").rstrip(".") + "p" + exponent


def main():
    rng = random.Random(1)
    data = list(groups(rng))
    print("/* Made by gen_dynquant_vectors.py. */")
    print("/* clang-format off */")
    print(TYPES.format(groups=len(data)))
    print("static const float dynquant_groups[][8] = {")
    for x in data:
        words = [number(v) + ("f" if v not in (NAN, INF) and "x" in number(v) else "") for v in x]
        print("    {" + ", ".join(words[:4]) + ",\n     " + ", ".join(words[4:]) + "},")
    print("};")
    print("/* For each group scale, zero point, elements. */")
    print("static const dynquant_vector_t dynquant_vectors[] = {")
    for kind, elem, scale, zp_type, t in SETS:
        offsets = kind == "offsets"
        print(f'    {{"{"dynamic_asymmetric" if offsets else kind}", sinter_{elem}, '
              f"sinter_{scale}, sinter_{zp_type}, {int(offsets)}, {number(F(t))}, {{")
        for x in data:
            s, zp, q = quantise(kind, x, elem, scale, zp_type, F(t))
            print(f"        {{{number(s)}, {number(zp)}, {{" + ", ".join(number(v)
                                                                         for v in q) + "}},")
        print("    }},")
    print("};")


if __name__ == "__main__":
    main()
