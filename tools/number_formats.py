"""Sinter's number formats in NumPy, by the formulas of docs/numerics.md: how codes of each type are
packed, decoded and rounded. For the tools that convert and compare weights; the library has codecs
of its own, and the tests compare the two."""
import numpy as np

INTEGERS = {"s8": (-128, 127), "u8": (0, 255), "s4": (-8, 7), "u4": (0, 15)}
# exponent bits, mantissa bits, exponent bias, largest finite value
SMALL_FLOATS = {
    "f8_e5m2": (5, 2, 15, 57344.0),
    "f8_e4m3": (4, 3, 7, 448.0),
    "f6_e3m2": (3, 2, 3, 28.0),
    "f6_e2m3": (2, 3, 1, 7.5),
    "f4_e2m1": (2, 1, 1, 6.0),
}
BITS = {
    "f32": 32, "f16": 16, "bf16": 16, "s32": 32, "s8": 8, "u8": 8, "e8m0": 8, "f8_e5m2": 8,
    "f8_e4m3": 8, "f6_e3m2": 6, "f6_e2m3": 6, "s4": 4, "u4": 4, "f4_e2m1": 4
}
# What NumPy calls the bits of a type. Codes of less than 8 bits are unpacked, one to a byte.
STORAGE = {"f32": "<f4", "f16": "<f2", "bf16": "<u2", "s32": "<i4", "s8": "i1"}


class FormatError(Exception):
    """Something that cannot be converted, with the reason."""


def storage(dtype):
    return np.dtype(STORAGE.get(dtype, "u1"))


def largest(dtype):
    return SMALL_FLOATS[dtype][3] if dtype in SMALL_FLOATS else float(INTEGERS[dtype][1])


# ---- bytes ---------------------------------------------------------------------------------------


def pack(dtype, codes):
    """The bytes of codes in row-major order, as a flat array."""
    flat = np.ascontiguousarray(codes, storage(dtype)).reshape(-1)
    if BITS[dtype] == 4:
        flat = np.append(flat, np.zeros(-len(flat) % 2, np.uint8)) & 15
        return flat[0::2] | (flat[1::2] << 4)
    if BITS[dtype] == 6:
        flat = np.append(flat, np.zeros(-len(flat) % 4, np.uint8)).reshape(-1, 4).astype(np.uint32)
        word = flat[:, 0] | flat[:, 1] << 6 | flat[:, 2] << 12 | flat[:, 3] << 18
        return word.astype("<u4").view(np.uint8).reshape(-1, 4)[:, :3].reshape(-1)
    return flat.view(np.uint8)


def unpack(dtype, raw, shape):
    """The inverse of pack, for types whose elements fill whole bytes, or two a byte."""
    n = int(np.prod(shape, dtype=object))
    if len(raw) * 8 != (n + n % 2) * BITS[dtype] and len(raw) * 8 != n * BITS[dtype]:
        raise FormatError(f"{len(raw)} bytes are not {shape} elements of {dtype}")
    if BITS[dtype] == 4:
        return np.stack([raw & 15, raw >> 4], axis=-1).reshape(-1)[:n].reshape(shape)
    return raw.view(storage(dtype)).reshape(shape)


# ---- decoding ------------------------------------------------------------------------------------


def bf16_values(codes):
    return (codes.astype(np.uint32) << 16).view(np.float32)


def small_float_table(dtype):
    """The value of each code."""
    exponent_bits, mantissa_bits, bias, _ = SMALL_FLOATS[dtype]
    code = np.arange(1 << (1 + exponent_bits + mantissa_bits))
    exponent = code >> mantissa_bits & (1 << exponent_bits) - 1
    fraction = (code & (1 << mantissa_bits) - 1) / (1 << mantissa_bits)
    value = np.where(exponent > 0, 1 + fraction, fraction) * 2.0**(np.maximum(exponent, 1) - bias)
    magnitude = code & (1 << exponent_bits + mantissa_bits) - 1
    if dtype == "f8_e4m3":
        value = np.where(magnitude == 0x7F, np.nan, value)
    if dtype == "f8_e5m2":
        value = np.where(magnitude == 0x7C, np.inf, np.where(magnitude > 0x7C, np.nan, value))
    return np.where(code != magnitude, -value, value).astype(np.float32)


def decode(dtype, codes):
    """The values of unpacked codes, as f32."""
    if dtype == "bf16":
        return bf16_values(codes)
    if dtype == "e8m0":
        value = np.ldexp(np.float32(1), codes.astype(np.int32) - 127)
        return np.where(codes == 255, np.float32(np.nan), value)
    if dtype in SMALL_FLOATS:
        return small_float_table(dtype)[codes]
    if dtype == "s4":
        return ((codes & 15) ^ 8).astype(np.float32) - 8
    return codes.astype(np.float32)


# ---- rounding ------------------------------------------------------------------------------------


def to_small_float(dtype, x):
    """The codes of f32 values, rounded to nearest even, at most the largest number. NaN gives
    0."""
    _, mantissa_bits, bias, largest_value = SMALL_FLOATS[dtype]
    magnitude = np.minimum(np.nan_to_num(np.abs(x).astype(np.float64)), largest_value)
    _, exponent = np.frexp(magnitude)  # magnitude < 2^exponent
    exponent = np.where(magnitude > 0, np.maximum(exponent - 1, 1 - bias), 1 - bias)
    steps = np.rint(np.ldexp(magnitude, mantissa_bits - exponent)).astype(np.int64)
    # One step past the last mantissa is the next exponent: the sum carries.
    code = (exponent + bias - 1 << mantissa_bits) + steps
    sign = np.signbit(x).astype(np.int64) << BITS[dtype] - 1
    return (code | np.where(np.isnan(x), 0, sign)).astype(np.uint8)


def to_bf16(x):
    """The codes of finite f32 values, rounded to nearest even."""
    bits = np.ascontiguousarray(x, np.float32).view(np.uint32)
    return (bits + 0x7FFF + (bits >> 16 & 1) >> 16).astype(np.uint16)


def to_integer(dtype, x):
    lo, hi = INTEGERS[dtype]
    q = np.clip(np.rint(np.nan_to_num(x, nan=0.0)), lo, hi).astype(np.int32)
    return q.astype(np.int8) if dtype == "s8" else (q & (1 << BITS[dtype]) - 1).astype(np.uint8)


def round_to(dtype, x):
    """Codes of x: the nearest numbers of the type, and the largest one beyond them."""
    if dtype == "f32":
        return np.asarray(x, np.float32)
    if dtype == "f16":
        return np.clip(x, -65504, 65504).astype(np.float16)
    if dtype == "bf16":
        return to_bf16(x)
    return to_small_float(dtype, x) if dtype in SMALL_FLOATS else to_integer(dtype, x)


# ---- quantisation with computed scales -----------------------------------------------------------


def stored_scale(dtype, x):
    """f32 scales as their type holds them. What it would store as 0 is 1, or the least number of
    e8m0."""
    values = decode(dtype, round_to(dtype, x))
    return np.where(values == 0, np.float32(1), values)


def quotient(x, scale):
    with np.errstate(over="ignore"):
        return x / scale


def symmetric(x, codes, scales):
    """dynamic_symmetric of groups x [n, g]: codes, scales [n, 1], nothing."""
    amax = np.abs(x).max(axis=1, keepdims=True)
    scale = stored_scale(scales, amax / np.float32(largest(codes)))
    return round_to(codes, quotient(x, scale)), scale, None


def asymmetric(x, codes, scales):
    """dynamic_asymmetric of groups x [n, g]: codes, scales, integer zero points."""
    qmin, qmax = INTEGERS[codes]
    zero = np.float32(0)
    lo = np.minimum(x.min(axis=1, keepdims=True), zero)
    hi = np.maximum(x.max(axis=1, keepdims=True), zero)
    scale = stored_scale(scales, (hi - lo) / np.float32(qmax - qmin))
    point = np.clip(np.rint(np.float32(qmin) - lo / scale), qmin, qmax).astype(np.float32)
    return to_integer(codes, np.rint(quotient(x, scale)) + point), scale, point


def with_offsets(x, codes, scales):
    """Codes from the least to the greatest of a group, as GGUF's Q4_1: x = scale * code + offset.
    No op computes these; they come with weights."""
    qmin, qmax = INTEGERS[codes]
    lo = x.min(axis=1, keepdims=True)
    offset = decode(scales, round_to(scales, lo))
    scale = stored_scale(scales, (x.max(axis=1, keepdims=True) - lo) / np.float32(qmax - qmin))
    return to_integer(codes, quotient(x - offset, scale)), scale, offset


def power_of_two(exponent):
    return np.ldexp(np.float32(1), np.clip(exponent, -127, 127))


def mx(x, codes, _):
    """dynamic_mx of groups x [n, g]: the scale is the power of two of the greatest number, less
    that of the type."""
    amax = np.abs(x).max(axis=1, keepdims=True)
    emax = np.frexp(largest(codes))[1]
    scale = np.where(amax > 0, power_of_two(np.frexp(amax)[1] - emax), power_of_two(-127))
    return to_codes_of_either_sign(codes, quotient(x, scale)), scale, None


def mx_rceil(x, codes, _):
    """dynamic_mx_rceil: amax / max(codes), rounded up to a power of two."""
    mantissa, exponent = np.frexp(np.abs(x).max(axis=1, keepdims=True) / np.float32(largest(codes)))
    exponent = np.where(mantissa == 0, -127, exponent - (mantissa == 0.5))
    scale = power_of_two(exponent)
    return to_codes_of_either_sign(codes, quotient(x, scale)), scale, None


def to_codes_of_either_sign(dtype, x):
    return round_to(dtype, np.clip(x, -largest(dtype), largest(dtype)))


def nv(x, codes, scales, tensor_scale=np.float32(1)):
    """dynamic_nv: f4_e2m1 with scales in f8_e4m3 and one f32 for the tensor."""
    amax = np.abs(x).max(axis=1, keepdims=True)
    wanted = np.clip(amax / np.float32(6) / tensor_scale, np.float32(2.0**-9), np.float32(448))
    scale = decode(scales, round_to(scales, wanted)) * tensor_scale
    return round_to(codes, quotient(x, scale)), scale, None
