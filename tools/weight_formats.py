"""How other programs store compressed weights, and how the same numbers are tensors of Sinter:
one row for each format, with both directions. Used by convert_weights.py."""
import dataclasses
import typing

import numpy as np

from number_formats import FormatError, decode, pack, storage, unpack


@dataclasses.dataclass
class Tensor:
    """Elements as Sinter names them: values holds one code each, in row-major order of shape.
    With transposed, they are stored with the last two dims in the other order."""
    dtype: str
    values: np.ndarray
    transposed: bool = False

    @property
    def shape(self):
        return list(self.values.shape)

    def stored(self):
        """The elements in the order of memory."""
        return np.swapaxes(self.values, -1, -2) if self.transposed else self.values

    def raw(self):
        return pack(self.dtype, self.stored())

    def f32(self):
        return decode(self.dtype, self.values)

    @staticmethod
    def load(dtype, raw, shape, transposed=False):
        if not transposed:
            return Tensor(dtype, unpack(dtype, raw, shape))
        values = unpack(dtype, raw, [*shape[:-2], shape[-1], shape[-2]])
        return Tensor(dtype, np.swapaxes(values, -1, -2), True)


@dataclasses.dataclass
class Weight:
    """x = scale * (code - zero point), or scale * code + offset; codes are [..., N, K], or
    elements of the matrix in another shape. Element j of a row is element order[j] of a row of the
    activation, where there is an order. Fields that the tensors do not determine are in extras."""
    format: str
    codes: Tensor
    scales: Tensor
    zero_points: Tensor | None = None
    offsets: Tensor | None = None
    order: np.ndarray | None = None
    matrix: list | None = None
    extras: dict = dataclasses.field(default_factory=dict)
    group: int = 0  # along K, where the last one is short; 0: scales divide the codes

    def sizes(self):
        """Elements of a group along each dim of the codes."""
        sizes = [n // g for n, g in zip(self.codes.shape, self.scales.shape)]
        return [*sizes[:-1], self.group] if self.group else sizes

    def f32(self):
        """The weight itself: one rounding for each operation."""

        def spread(tensor):
            values = tensor.f32()
            for axis, size in enumerate(self.sizes()):
                values = np.repeat(values, size, axis)
            return values[tuple(slice(n) for n in self.codes.shape)]

        x = self.codes.f32()
        with np.errstate(all="ignore"):
            if self.zero_points:
                x = x - spread(self.zero_points)
            x = spread(self.scales) * x
            if self.offsets:
                x = x + spread(self.offsets)
        if self.order is not None:
            x = x[..., np.argsort(self.order)]
        return x.reshape(self.matrix) if self.matrix else x


def require(condition, message):
    if not condition:
        raise FormatError(message)


# ---- GGUF: blocks --------------------------------------------------------------------------------


def split_halves(qs, half):
    """Bytes [n, b] -> nibbles [n, 2 b]: of each `half` bytes first the low, then the high ones."""
    qs = qs.reshape(len(qs), -1, half)
    return np.stack([qs & 15, qs >> 4], axis=2).reshape(len(qs), -1)


def join_halves(codes, half):
    codes = codes.reshape(len(codes), -1, 2, half)
    return (codes[:, :, 0] | codes[:, :, 1] << 4).reshape(len(codes), -1)


def halves(raw):
    return raw.view("<f2")


@dataclasses.dataclass(frozen=True)
class Blocks:
    """A format of GGUF. `fields` are the bytes of a block in order; `decode` makes the arrays
    codes, scales, offsets and extras of them, one row for each block, and `encode` is its
    inverse."""
    name: str
    number: int  # in GGUF
    elements: int
    group: int
    fields: tuple
    types: tuple  # codes, scales, offsets or None
    meaning: str
    decode: typing.Callable
    encode: typing.Callable

    @property
    def block_bytes(self):
        return sum(n for _, n in self.fields)

    def split(self, raw):
        ends = np.cumsum([n for _, n in self.fields])[:-1]
        parts = np.split(raw.reshape(-1, self.block_bytes), ends, axis=1)
        return {name: np.ascontiguousarray(part) for (name, _), part in zip(self.fields, parts)}

    def read(self, raw, shape):
        """The weight of the bytes of a tensor of this shape, [..., K]."""
        parts = self.decode(self.split(raw))
        codes, scales, offsets = self.types
        sides = [*shape[:-1], shape[-1] // self.group]
        extras = {name: part.reshape(*shape[:-1], -1)
                  for name, part in parts.items() if name not in ("codes", "scales", "offsets")}
        return Weight(self.name, Tensor(codes, parts["codes"].reshape(shape)),
                      Tensor(scales, parts["scales"].reshape(sides)),
                      offsets=offsets and Tensor(offsets, parts["offsets"].reshape(sides)),
                      extras=extras)

    def write(self, weight):
        """The bytes again."""
        n = weight.codes.values.size // self.elements
        parts = {"codes": weight.codes.values, "scales": weight.scales.values, **weight.extras}
        if weight.offsets:
            parts["offsets"] = weight.offsets.values
        parts = {name: np.ascontiguousarray(part).reshape(n, -1) for name, part in parts.items()}
        fields = self.encode(parts)
        return np.concatenate([fields[name].view(np.uint8).reshape(n, -1)
                               for name, _ in self.fields], axis=1).reshape(-1)


def q4_0(f):
    return {"codes": split_halves(f["qs"], 16) ^ 8, "scales": halves(f["d"])}


def q4_0_back(p):
    return {"d": p["scales"], "qs": join_halves(p["codes"] ^ 8, 16)}


def q4_1(f):
    return {"codes": split_halves(f["qs"], 16), "scales": halves(f["d"]),
            "offsets": halves(f["m"])}


def q4_1_back(p):
    return {"d": p["scales"], "m": p["offsets"], "qs": join_halves(p["codes"], 16)}


def q5_0(f):
    high = np.unpackbits(f["qh"], axis=1, bitorder="little")
    codes = (split_halves(f["qs"], 16) | high << 4).astype(np.int8) - np.int8(16)
    return {"codes": codes, "scales": halves(f["d"])}


def q5_0_back(p):
    codes = (p["codes"] + np.int8(16)).view(np.uint8)
    require(codes.max(initial=0) < 32, "codes of Q5_0 are from -16 to 15")
    return {"d": p["scales"], "qh": np.packbits(codes >> 4, axis=1, bitorder="little"),
            "qs": join_halves(codes & 15, 16)}


def q8_0(f):
    return {"codes": f["qs"].view(np.int8), "scales": halves(f["d"])}


def q8_0_back(p):
    return {"d": p["scales"], "qs": p["codes"]}


def product(d, integers):
    """f16 times integers of 8 bits: exact in f32."""
    with np.errstate(invalid="ignore"):
        return d.astype(np.float32) * integers.astype(np.float32)


def require_product(stored, d, integers, what):
    require(stored.tobytes() == product(d, integers).tobytes(),
            f"{what} are not the super-block's fields times each other")


def q4_k(f):
    """Twelve bytes have eight 6-bit scales and eight 6-bit minima: of the first four the low six
    bits of a byte each; of the others the low four bits of both share a byte, and the high two lie
    above the first four."""
    d, m, both = np.split(f["scales"], 3, axis=1)
    scales = np.concatenate([d & 63, both & 15 | d >> 2 & 48], axis=1)
    minima = np.concatenate([m & 63, both >> 4 | m >> 2 & 48], axis=1)
    return {"codes": split_halves(f["qs"], 32), "scales": product(halves(f["d"]), scales),
            "offsets": -product(halves(f["dmin"]), minima), "d": halves(f["d"]),
            "dmin": halves(f["dmin"]), "sub_scales": scales, "sub_minima": minima}


def q4_k_back(p):
    scales, minima = p["sub_scales"], p["sub_minima"]
    require(max(scales.max(initial=0), minima.max(initial=0)) < 64, "sub-scales have 6 bits")
    require_product(p["scales"], p["d"], scales, "scales")
    require_product(-p["offsets"], p["dmin"], minima, "offsets")
    low = [side[:, :4] | (side[:, 4:] >> 4) << 6 for side in (scales, minima)]
    both = scales[:, 4:] & 15 | (minima[:, 4:] & 15) << 4
    return {"d": p["d"], "dmin": p["dmin"], "scales": np.concatenate([*low, both], axis=1),
            "qs": join_halves(p["codes"], 32)}


def q6_k(f):
    n = len(f["d"])
    low = split_halves(f["ql"], 64)
    high = f["qh"].reshape(n, 2, 1, 32) >> np.array([0, 2, 4, 6], np.uint8).reshape(1, 1, 4, 1) & 3
    codes = (low | high.reshape(n, 256) << 4).astype(np.int8) - np.int8(32)
    scales = f["scales"].view(np.int8)
    return {"codes": codes, "scales": product(halves(f["d"]), scales), "d": halves(f["d"]),
            "sub_scales": scales}


def q6_k_back(p):
    codes = (p["codes"] + np.int8(32)).view(np.uint8)
    require(codes.max(initial=0) < 64, "codes of Q6_K are from -32 to 31")
    require_product(p["scales"], p["d"], p["sub_scales"], "scales")
    high = (codes >> 4).reshape(-1, 2, 4, 32) << np.array([0, 2, 4, 6], np.uint8).reshape(4, 1)
    return {"ql": join_halves(codes & 15, 64), "qh": np.bitwise_or.reduce(high, axis=2),
            "scales": p["sub_scales"], "d": p["d"]}


def mxfp4(f):
    require(f["e"].max(initial=0) < 255, "a scale of 255 is NaN in e8m0 but 2^128 in GGUF")
    return {"codes": split_halves(f["qs"], 16), "scales": f["e"]}


def mxfp4_back(p):
    return {"e": p["scales"], "qs": join_halves(p["codes"], 16)}


def nvfp4(f):
    require(f["scales"].max(initial=0) < 127, "a scale is beyond the positive numbers of f8_e4m3")
    return {"codes": split_halves(f["qs"], 8), "scales": f["scales"]}


def nvfp4_back(p):
    return {"scales": p["scales"], "qs": join_halves(p["codes"], 8)}


BLOCKS = [
    Blocks("Q4_0", 2, 32, 32, (("d", 2), ("qs", 16)), ("s4", "f16", None),
           "code = q - 8, scale = d", q4_0, q4_0_back),
    Blocks("Q4_1", 3, 32, 32, (("d", 2), ("m", 2), ("qs", 16)), ("u4", "f16", "f16"),
           "code = q, scale = d, offset = m", q4_1, q4_1_back),
    Blocks("Q5_0", 6, 32, 32, (("d", 2), ("qh", 4), ("qs", 16)), ("s8", "f16", None),
           "code = q - 16 (5 bits in 8), scale = d", q5_0, q5_0_back),
    Blocks("Q8_0", 8, 32, 32, (("d", 2), ("qs", 32)), ("s8", "f16", None), "code = q, scale = d",
           q8_0, q8_0_back),
    Blocks("Q4_K", 12, 256, 32, (("d", 2), ("dmin", 2), ("scales", 12), ("qs", 128)),
           ("u4", "f32", "f32"), "code = q, scale = d sc, offset = -dmin m, exact; fields kept",
           q4_k, q4_k_back),
    Blocks("Q6_K", 14, 256, 16, (("ql", 128), ("qh", 64), ("scales", 16), ("d", 2)),
           ("s8", "f32", None), "code = q - 32 (6 bits in 8), scale = d sc, exact; fields kept",
           q6_k, q6_k_back),
    Blocks("MXFP4", 39, 32, 32, (("e", 1), ("qs", 16)), ("f4_e2m1", "e8m0", None),
           "code = q, scale = e", mxfp4, mxfp4_back),
    Blocks("NVFP4", 40, 64, 16, (("scales", 4), ("qs", 32)), ("f4_e2m1", "f8_e4m3", None),
           "code = q, scale = scales; a tensor NAME.scale is one of its own", nvfp4, nvfp4_back),
]


# ---- safetensors: several tensors make a weight --------------------------------------------------


@dataclasses.dataclass(frozen=True)
class Stored:
    """A tensor of a file: its type as the file names it, and its bytes."""
    dtype: str
    shape: list
    raw: np.ndarray

    def array(self, *dtypes):
        """The elements, of one of these types."""
        require(self.dtype in dtypes, f"has type {self.dtype}, not {' or '.join(dtypes)}")
        return self.raw.view(SAFETENSORS[self.dtype][1]).reshape(self.shape)


# name: Sinter's type or None, NumPy's type of the bits
SAFETENSORS = {
    "F32": ("f32", "<f4"), "F16": ("f16", "<f2"), "BF16": ("bf16", "<u2"), "I8": ("s8", "i1"),
    "U8": ("u8", "u1"), "I32": ("s32", "<i4"), "F8_E4M3": ("f8_e4m3", "u1"),
    "F8_E5M2": ("f8_e5m2", "u1"), "F8_E8M0": ("e8m0", "u1"), "I64": (None, "<i8"),
    "I16": (None, "<i2"), "U16": (None, "<u2"), "U32": (None, "<u4"), "U64": (None, "<u8"),
    "F64": (None, "<f8"), "BOOL": (None, "u1")
}
FLOATS = ("F32", "F16", "BF16")


def of_file(stored, transposed=False, shape=None):
    """A tensor that lies in the file as Sinter wants it."""
    require(stored.dtype in SAFETENSORS, f"has type {stored.dtype}, which is not known")
    dtype = SAFETENSORS[stored.dtype][0]
    values = stored.raw.view(storage(dtype)).reshape(shape or stored.shape)
    return Tensor(dtype, np.swapaxes(values, -1, -2) if transposed else values, transposed)


def fields_of(words, bits=4):
    """[..., n] words of 32 bits -> [..., n, 32 / bits], lowest bits first."""
    shifts = np.arange(0, 32, bits, dtype=np.uint32)
    return (words.view(np.uint32)[..., None] >> shifts & (1 << bits) - 1).astype(np.uint8)


def words_of(fields):
    shifts = np.arange(0, 32, 32 // fields.shape[-1], dtype=np.uint32)
    return np.bitwise_or.reduce(fields.astype(np.uint32) << shifts, axis=-1).view(np.int32)


AWQ_COLUMN = [0, 2, 4, 6, 1, 3, 5, 7]  # of the nibble i of a word, lowest bits first


def awq_columns(words):
    """[r, n / 8] words -> [r, n] nibbles."""
    columns = np.empty((*words.shape, 8), np.uint8)
    columns[..., AWQ_COLUMN] = fields_of(words)
    return columns.reshape(len(words), -1)


def awq_words(columns):
    return words_of(columns.reshape(len(columns), -1, 8)[..., AWQ_COLUMN])


def require_groups(scales, k, n, divide=True):
    shape = scales.shape
    require(len(shape) == 2 and shape[1] == n and 0 < shape[0] <= k,
            f"scales {shape} are not groups of {k} x {n}")
    require(not divide or k % shape[0] == 0, f"scales {shape} are not groups of {k} x {n}")
    require(scales.dtype in FLOATS, f"scales have type {scales.dtype}, which is no float")


def read_awq(t, _):
    words, zeros = t["qweight"].array("I32"), t["qzeros"].array("I32")
    require(words.ndim == 2 and zeros.ndim == 2, "qweight and qzeros have two dims")
    k, n = words.shape[0], words.shape[1] * 8
    require_groups(t["scales"], k, n)
    require(list(zeros.shape) == [t["scales"].shape[0], n // 8],
            f"qzeros {list(zeros.shape)} do not belong to scales {t['scales'].shape}")
    return Weight("AWQ", Tensor("u4", awq_columns(words).T), of_file(t["scales"], True),
                  Tensor("u4", awq_columns(zeros).T, True))


def write_awq(w, _):
    return {"qweight": awq_words(w.codes.values.T), "qzeros": awq_words(w.zero_points.values.T),
            "scales": w.scales.stored()}


def read_gptq(t, options):
    words, zeros = t["qweight"].array("I32"), t["qzeros"].array("I32")
    require(words.ndim == 2 and zeros.ndim == 2, "qweight and qzeros have two dims")
    n, in_word = words.shape[1], words.shape[1] // max(zeros.shape[1], 1)
    require(in_word in (4, 8) and n == zeros.shape[1] * in_word,
            f"qzeros {list(zeros.shape)} are not 4 or 8 bits for each of {n} columns")
    k, bits = words.shape[0] * in_word, 32 // in_word
    require_groups(t["scales"], k, n, "g_idx" not in t)
    groups = t["scales"].shape[0]
    require(zeros.shape[0] == groups,
            f"qzeros {list(zeros.shape)} do not belong to scales {t['scales'].shape}")
    codes = fields_of(words, bits).transpose(1, 0, 2).reshape(n, k)
    points = fields_of(zeros, bits).reshape(groups, n)
    require(int(points.max(initial=0)) + options["gptq_zero"] < 256, "a zero point is 256")
    points += np.uint8(options["gptq_zero"])
    dtype = f"u{bits}"
    weight = Weight(f"GPTQ{bits}", Tensor(dtype, codes), of_file(t["scales"], True),
                    Tensor("u8", points.T, True))
    if "g_idx" in t:
        group = t["g_idx"].array("I32")
        require(list(group.shape) == [k] and k > 0, f"g_idx {list(group.shape)} is not [{k}]")
        rows = np.bincount(np.clip(group, 0, groups), minlength=groups)
        require(len(rows) == groups and (rows[:-1] == rows[0]).all() and 0 < rows[-1] <= rows[0],
                f"g_idx does not have as many rows in each of {groups} groups (fewer in the last)")
        weight.group = int(rows[0]) if rows[-1] < rows[0] else 0
        weight.extras["g_idx"] = group
        order = np.argsort(group, kind="stable").astype(np.int32)
        if not np.array_equal(order, np.arange(k)):
            weight.order = order
            weight.codes = Tensor(dtype, codes[:, order])
    return weight


def write_gptq(w, options):
    codes = w.codes.values
    if w.order is not None:
        codes = codes[:, np.argsort(w.order)]
    (n, k), in_word = codes.shape, 8 if w.codes.dtype == "u4" else 4
    points = w.zero_points.values.T - np.uint8(options["gptq_zero"])
    require(points.max(initial=0) < 1 << 32 // in_word, "a zero point does not fit its bits")
    tensors = {"qweight": words_of(codes.reshape(n, k // in_word, in_word).transpose(1, 0, 2)),
               "qzeros": words_of(points.reshape(len(points), n // in_word, in_word)),
               "scales": w.scales.stored()}
    return tensors | w.extras


def read_hqq(t, _):
    """Codes are the elements of the weight in their order, as a matrix whose groups are its rows
    (axis 1) or columns (axis 0); 4 bits have the first half of its rows in high nibbles."""
    def number(name, default):
        return int(t[name].array("I32", "I64", "U8").reshape(-1)[0]) if name in t else default

    bits, axis = number("nbits", 4), number("axis", 1)
    require(axis in (0, 1), f"axis {axis} is not 0 or 1")
    require(bits in (4, 8), f"codes of {bits} bits; there are 4 and 8")
    require(not number("view_as_float", 0), "view_as_float is not taken: save the codes as bytes")
    require("shape" in t and len(t["shape"].shape) == 1 and t["shape"].shape[0] == 2,
            "shape is not [N, K]")
    n, k = (int(v) for v in t["shape"].array("I32", "I64"))
    packed = t["W_q"].array("U8")
    require(n > 0 and k > 0 and packed.ndim == 2, f"shape {n} x {k}, W_q {list(packed.shape)}")
    codes = np.concatenate([packed >> 4, packed & 15]) if bits == 4 else packed
    require(codes.size == n * k, f"W_q {list(packed.shape)} does not have the codes of {n} x {k}")
    groups = codes.shape[1 - axis]
    require(groups % (n if axis else k) == 0 and n * k % groups == 0,
            f"{groups} groups along axis {axis} do not divide {n} x {k}")
    for name in ("scale", "zero"):
        require(t[name].dtype in FLOATS and np.prod(t[name].shape) == groups,
                f"{name} {t[name].shape} does not have {groups} numbers")
    # Groups of axis 0 have one row in each run of groups / K rows.
    shape, sides = ([n, k], [n, groups // n]) if axis else ([n * k // groups, groups // k, k],
                                                            [1, groups // k, k])
    return Weight(f"HQQ{bits}", Tensor("u4" if bits == 4 else "u8", codes.reshape(shape)),
                  *(of_file(t[name], shape=sides) for name in ("scale", "zero")),
                  matrix=None if axis else [n, k])


def write_hqq(w, _):
    groups = w.scales.values.size
    codes = w.codes.values.reshape((-1, groups) if w.matrix else (groups, -1))
    if w.codes.dtype == "u4":
        high, low = np.split(codes, 2)
        codes = high << 4 | low
    return {"W_q": codes, "scale": w.scales.values, "zero": w.zero_points.values}


def require_scales(t, codes, names):
    for name in names:
        shape = t[name].shape
        require(name != "scale" or t[name].dtype in FLOATS, f"scale has type {t[name].dtype}")
        require(len(shape) == codes.ndim and all(g > 0 and d % g == 0
                                                 for d, g in zip(codes.shape, shape)),
                f"{name} {shape} are not groups of {list(codes.shape)}")


def read_torchao_int4(t, _):
    packed = t["qdata"].array("I8", "U8").view(np.uint8)
    codes = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*packed.shape[:-1], -1)
    require(codes.ndim >= 2, f"qdata {list(packed.shape)} have one dim")
    swapped = np.swapaxes(codes, -1, -2)
    require_scales(t, swapped, ("scale", "zero_point"))
    require(t["scale"].shape == t["zero_point"].shape and t["zero_point"].dtype in FLOATS,
            f"zero_point {t['zero_point'].shape} does not belong to scale {t['scale'].shape}")
    return Weight("Int4Tensor", Tensor("s4", codes), of_file(t["scale"], True),
                  offsets=of_file(t["zero_point"], True))


def write_torchao_int4(w, _):
    return {"qdata": w.codes.raw(), "scale": w.scales.stored(), "zero_point": w.offsets.stored()}


def read_torchao_plain(t, options):
    """Codes of a byte: Int8Tensor, IntxUnpackedToInt8Tensor, Float8Tensor."""
    points = [name for name in ("zero_point",) if name in t]
    require(t["qdata"].dtype in ("I8", "F8_E4M3", "F8_E5M2"),
            f"qdata have type {t['qdata'].dtype}, not I8 or an 8-bit float")
    codes = of_file(t["qdata"])
    require_scales(t, codes.values, ["scale", *points])
    require(not points or t["zero_point"].dtype in ("I8", "I32", *FLOATS),
            f"zero_point has type {t.get('zero_point') and t['zero_point'].dtype}")
    return Weight(options["type"], codes, of_file(t["scale"]),
                  *(of_file(t[name]) for name in points))


def write_torchao_plain(w, _):
    tensors = {"qdata": w.codes.values, "scale": w.scales.values}
    return tensors | ({"zero_point": w.zero_points.values} if w.zero_points else {})


@dataclasses.dataclass(frozen=True)
class Tensors:
    """A format of several tensors of a safetensors file. `read` makes a weight of those that are
    there, and `write` gives those of the first two columns again; the third names small ones that
    say how these lie."""
    name: str
    tensors: tuple
    optional: tuple
    notes: tuple
    types: str
    meaning: str
    read: typing.Callable
    write: typing.Callable


TENSORS = {row.name: row for row in [
    Tensors("AWQ", ("qweight", "qzeros", "scales"), (), (), "u4, f16, zero points u4",
            "[K, N / 8] words, columns 0 2 4 6 1 3 5 7: codes re-laid to [N, K]; scales and zero "
            "points [N, K / g] with strides 1, N", read_awq, write_awq),
    Tensors("GPTQ", ("qweight", "qzeros", "scales"), ("g_idx",), (),
            "u4 or u8, f16, zero points u8",
            "[K bits / 32, N] words: codes re-laid to [N, K]; zero point = stored + 1 (v2: stored);"
            " act-order sorts the rows by g_idx and is a Gather of the activation; g_idx may have"
            " a short last group", read_gptq, write_gptq),
    Tensors("HQQ", ("W_q", "scale", "zero"), (), ("shape", "nbits", "axis", "view_as_float"),
            "u4 or u8, any float, zero points any float",
            "first half of the rows in high nibbles, second in low: codes re-laid; scales and zero "
            "points as they lie; axis 0: [g, N / g, K] with groups [g, 1, 1] and a StaticReshape",
            read_hqq, write_hqq),
    Tensors("Int4Tensor", ("qdata", "scale", "zero_point"), (), (),
            "s4, any float, offsets any float",
            "codes as they lie; scales and offsets (zero_point) [N, K / g] with strides 1, N",
            read_torchao_int4, write_torchao_int4),
    Tensors("Int8Tensor", ("qdata", "scale"), ("zero_point",), (), "s8, any float, zero points",
            "as they lie", read_torchao_plain, write_torchao_plain),
    Tensors("IntxUnpackedToInt8Tensor", ("qdata", "scale", "zero_point"), (), (),
            "s8, any float, zero points s8 or any float", "as they lie", read_torchao_plain,
            write_torchao_plain),
    Tensors("Float8Tensor", ("qdata", "scale"), (), (), "f8_e4m3 or f8_e5m2, any float",
            "as they lie", read_torchao_plain, write_torchao_plain),
]}
TORCHAO = ("Int4Tensor", "Int8Tensor", "IntxUnpackedToInt8Tensor", "Float8Tensor")


def table():
    """The formats, as docs/quantisation.md has them."""
    yield "| format | elements, bytes | codes | scales | offsets or zero points | how |"
    yield "|---|---|---|---|---|---|"
    for b in BLOCKS:
        codes, scales, offsets = b.types
        yield (f"| GGUF {b.name} | {b.elements}, {b.block_bytes} | {codes} | {scales}, groups of "
               f"{b.group} | {'offsets ' + offsets if offsets else ''} | {b.meaning} |")
    for row in TENSORS.values():
        name = ("torchao " if row.name in TORCHAO else "") + row.name
        codes, scales, *points = row.types.split(", ")
        yield f"| {name} | | {codes} | {scales} | {''.join(points)} | {row.meaning} |"
