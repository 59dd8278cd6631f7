/* The bulk conversions in the vocabulary of simd_<isa>.h: load, store, load_scaled and
 * store_scaled. Elements go in blocks of 16. A block of a type of 8 bits or fewer is unpacked to 16
 * bytes, one code in each, and packed from them. The rest of a run, less than a block, is read and
 * written under masks or through a copy, the rest of a byte by the codec.
 *
 * The templates are inlined for a constant code_t; bulk_table.h has the instances. The
 * arithmetic is that of dtype_bits.h, on bits; the one addition of floats neither sees nor makes
 * a subnormal that counts. */
#ifndef SINTER_SRC_NUMERIC_BULK_H
#define SINTER_SRC_NUMERIC_BULK_H

#include <string.h>

#include "numeric/dtype_bits.h"
#include "numeric/dtype_bulk.h"
#include "numeric/dtype_codec.h"
#include "numeric/quant_scales.h"

enum { BLOCK = 16, VECTORS = BLOCK / LANES };
#define NOT_INLINED TARGET __attribute__((noinline)) static
#define EACH_VECTOR \
    UNROLL          \
    for (int h = 0; h < VECTORS; h++)

typedef uint8_t v16u8 __attribute__((vector_size(16)));
typedef uint16_t v8u16 __attribute__((vector_size(16)));
typedef uint32_t v4u32 __attribute__((vector_size(16)));
typedef uint16_t v16u16 __attribute__((vector_size(32)));

/* ---- the types of codes ---------------------------------------------------------------------- */

typedef enum code_kind {
    UNSIGNED, /* u2, u4, u8 */
    SIGNED_4, /* s4 */
    SIGNED_8, /* s8 */
    FLOAT_4,  /* f4_e2m1, by a table of all values */
    FLOAT_6,  /* f6: by a table of magnitudes where the ISA can look up 32 of them, else by f16 */
    FLOAT_8,  /* f8 by format_t */
    FLOAT_8_F16,   /* f8_e5m2, the upper half of an f16 */
    FLOAT_8_LOWER, /* f8_e4m3 and its FNUZ form, one bit lower in an f16 */
    FLOAT_16,      /* f16 */
    BRAIN_16,      /* bf16 */
    POWER_8,       /* e8m0 */
    BOOLEAN_8
} code_kind_t;

typedef struct code {
    code_kind_t kind;
    int bits, unit;          /* of one element; that many elements fill whole bytes */
    float low, high;         /* of integers */
    const format_t *format;  /* of floats of 8 bits and fewer */
    const float *magnitudes; /* of f6 */
    /* These convert the elements that share a byte with others. */
    void (*load_each)(const void *base, int64_t first, int64_t stride, int64_t n, float *dst);
    void (*store_each)(void *base, int64_t first, int64_t stride, int64_t n, const float *src);
} code_t;

#define CODE(name, kind_, bits_, unit_, ...) \
    static const code_t code_##name = {.kind = kind_, .bits = bits_, .unit = unit_, __VA_ARGS__};
#define INTEGER(least, most) .low = least, .high = most
#define EACH(name) \
    .load_each = sinter_codec_##name##_load_f32, .store_each = sinter_codec_##name##_store_f32
CODE(s8, SIGNED_8, 8, 1, INTEGER(-128, 127))
CODE(u8, UNSIGNED, 8, 1, INTEGER(0, 255))
CODE(s4, SIGNED_4, 4, 2, INTEGER(-8, 7), EACH(s4))
CODE(u4, UNSIGNED, 4, 2, INTEGER(0, 15), EACH(u4))
CODE(u2, UNSIGNED, 2, 4, INTEGER(0, 3), EACH(u2))
CODE(f8_e5m2, FLOAT_8_F16, 8, 1, .format = &format_f8_e5m2)
CODE(f8_e4m3, FLOAT_8_LOWER, 8, 1, .format = &format_f8_e4m3)
CODE(f8_e5m2fnuz, FLOAT_8, 8, 1, .format = &format_f8_e5m2fnuz)
CODE(f8_e4m3fnuz, FLOAT_8_LOWER, 8, 1, .format = &format_f8_e4m3fnuz)
CODE(f6_e3m2, FLOAT_6, 6, 4, .format = &format_f6_e3m2, .magnitudes = magnitudes_f6_e3m2,
     EACH(f6_e3m2))
CODE(f6_e2m3, FLOAT_6, 6, 4, .format = &format_f6_e2m3, .magnitudes = magnitudes_f6_e2m3,
     EACH(f6_e2m3))
CODE(f4_e2m1, FLOAT_4, 4, 2, .format = &format_f4_e2m1, EACH(f4_e2m1))
CODE(f16, FLOAT_16, 16, 1, .format = NULL)
CODE(bf16, BRAIN_16, 16, 1, .format = NULL)
CODE(e8m0, POWER_8, 8, 1, .format = NULL)
CODE(boolean, BOOLEAN_8, 8, 1, .format = NULL)
#undef CODE
#undef INTEGER
#undef EACH

OP bool is_integer(const code_t *c)
{
    return c->kind <= SIGNED_8;
}
/* Elements of the kinds of powers of two: no others are multiplied. */
OP bool is_mx(const code_t *c)
{
    return !is_integer(c) || c->kind == SIGNED_8;
}

/* ---- 16 codes in memory, and one code a byte or word of 32 bytes ----------------------------- */

/* words: of codes of 16 bits; bytes: of others. Two registers instead of casts, which would keep
 * GCC from folding loads into what widens them. */
typedef struct block {
    __m128i bytes;
    __m256i words;
} block_t;

OP block_t block_load(int bits, const unsigned char *p)
{
    int32_t last = 0;
    if (bits == 16) {
        return (block_t){.words = load_32_bytes(p)};
    }
    if (bits == 8) {
        return (block_t){.bytes = load_16_bytes(p)};
    }
    if (bits == 4) {
        return (block_t){.bytes = load_8_bytes(p)};
    }
    if (bits == 6) {
        memcpy(&last, p + 8, sizeof last);
        return (block_t){.bytes = _mm_insert_epi32(load_8_bytes(p), last, 2)};
    }
    memcpy(&last, p, sizeof last); /* 2 bits */
    return (block_t){.bytes = _mm_cvtsi32_si128(last)};
}
OP void block_store(int bits, unsigned char *p, block_t block)
{
    const __m128i x = block.bytes;
    int32_t last;
    if (bits == 16) {
        _mm256_storeu_si256((__m256i *)(void *)p, block.words);
    } else if (bits == 8) {
        _mm_storeu_si128((__m128i *)(void *)p, x);
    } else if (bits == 4) {
        _mm_storel_epi64((__m128i *)(void *)p, x);
    } else if (bits == 6) {
        last = _mm_extract_epi32(x, 2);
        _mm_storel_epi64((__m128i *)(void *)p, x);
        memcpy(p + 8, &last, sizeof last);
    } else { /* 2 bits */
        last = _mm_cvtsi128_si32(x);
        memcpy(p, &last, sizeof last);
    }
}
/* The bytes that hold the first n codes; `whole` codes, which fill whole bytes. */
OP block_t block_load_n(int bits, const unsigned char *p, int64_t n)
{
    return bits == 16 ? (block_t){.words = words_load_n(p, n)}
                      : (block_t){.bytes = bytes_load_n(p, (n * bits + 7) / 8)};
}
OP void block_store_n(int bits, unsigned char *p, block_t block, int64_t whole)
{
    if (bits == 16) {
        words_store_n(p, block.words, whole);
    } else {
        bytes_store_n(p, block.bytes, whole * bits / 8);
    }
}

OP __m128i unpack_4(__m128i block)
{
    const v8u16 pair = (v8u16)_mm_cvtepu8_epi16(block);
    return (__m128i)((pair | pair << 4) & 0x0F0F);
}
/* Each dword takes 3 bytes, c0 | c1 << 6 | c2 << 12 | c3 << 18. */
OP __m128i unpack_6(__m128i block)
{
    const v4u32 x = (v4u32)_mm_shuffle_epi8(
        block, _mm_setr_epi8(0, 1, 2, -1, 3, 4, 5, -1, 6, 7, 8, -1, 9, 10, 11, -1));
    return (__m128i)((x & 0x3F) | (x << 2 & 0x3F00) | (x << 4 & 0x3F0000) | (x << 6 & 0x3F000000));
}
OP block_t unpack(int bits, block_t block)
{
    if (bits >= 8) {
        return block;
    }
    if (bits == 6) {
        return (block_t){.bytes = unpack_6(block.bytes)};
    }
    if (bits == 4) {
        return (block_t){.bytes = unpack_4(block.bytes)};
    }
    const v8u16 pair = (v8u16)_mm_cvtepu8_epi16(unpack_4(block.bytes)); /* 2 bits */
    return (block_t){.bytes = (__m128i)((pair | pair << 6) & 0x0303)};
}

OP __m128i pack_4(__m128i codes)
{
    const __m128i pairs = _mm_maddubs_epi16(codes, _mm_set1_epi16(0x1001)); /* c0 + 16 c1 */
    return _mm_packus_epi16(pairs, pairs);
}
OP __m128i pack_6(__m128i codes)
{
    const __m128i pairs = _mm_maddubs_epi16(codes, _mm_set1_epi16(0x4001)),
                  fours = _mm_madd_epi16(pairs, _mm_set1_epi32(0x10000001));
    return _mm_shuffle_epi8(fours,
                            _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
}
OP block_t pack(int bits, block_t codes)
{
    if (bits >= 8) {
        return codes;
    }
    if (bits == 6) {
        return (block_t){.bytes = pack_6(codes.bytes)};
    }
    if (bits == 4) {
        return (block_t){.bytes = pack_4(codes.bytes)};
    }
    const __m128i pairs = _mm_maddubs_epi16(codes.bytes, _mm_set1_epi16(0x0401)); /* 2 bits */
    return (block_t){.bytes = pack_4(_mm_packus_epi16(pairs, pairs))};
}

/* ---- from codes to floats -------------------------------------------------------------------- */

/* As format_to_f32. Codes become bits one exponent too high: of subnormals the first such power of
 * two is taken away as a float, which leaves their value. */
OP vf format_to_vf(format_t f, vu code)
{
    const int shift = 24 - f.digits;
    const uint32_t base = (uint32_t)(127 + f.emin) << 23;
    const vu magnitude = code & (f.sign - 1), high = (magnitude << shift) + base;
    const vu subnormal = (vu)((vf)high - vf_set1(f32_of_bits(base)));
    vu bits =
        vu_select(vu_gt(vu_set1(1u << (f.digits - 1)), magnitude), subnormal, high - (1u << 23));
    if (f.max + 1 < f.sign) { /* the codes after the largest value: Inf and NaNs, or NaNs */
        const vu fraction = magnitude & ((1u << (f.digits - 1)) - 1);
        const vu quiet = vu_select(vu_eq(fraction, vu_set1(0)), fraction, vu_set1(0x00400000));
        const vu special = f.inf ? fraction << shift | quiet | 0x7F800000 : vu_set1(0x7FC00000);
        bits = vu_select(vu_gt(magnitude, vu_set1(f.max)), special, bits);
    }
    bits |= (code & f.sign) << __builtin_clz(f.sign);
    return (vf)(f.one_zero ? vu_select(vu_eq(code, vu_set1(f.sign)), vu_set1(0x7FC00000), bits)
                           : bits);
}

OP vf six_to_vf(vu code, const float *magnitudes)
{
    return (vf)((vu)lut32(code, magnitudes) | (code << 26 & 0x80000000));
}

/* f6 as an f16 with its exponent times this power of two is its value, subnormals included. */
OP vf power_of_six(const code_t *c)
{
    return vf_set1(f32_of_bits((uint32_t)(127 + 14 + c->format->emin) << 23));
}
OP vf six_by_half(const code_t *c, __m128i codes, int h)
{
    const int shift = 9 - c->format->digits; /* of codes that begin at bit 2 of signed bytes */
    const uint16_t mask = (uint16_t)(0x8000 | ((32 << (shift + 2)) - 1));
    const v16u16 words = (v16u16)_mm256_cvtepi8_epi16((__m128i)((v8u16)codes << 2)),
                 half = words << shift & mask;
    return vf_of_f16((__m256i)half, h) * power_of_six(c);
}

/* f8_e4m3 one bit lower in an f16 is 2^-8 of its value, subnormals included, and f8_e4m3fnuz
 * 2^-7; their NaNs come out as +-480 and -0. */
OP vf lower_to_number(const code_t *c, __m128i codes, int h)
{
    const v16u16 half = (v16u16)_mm256_cvtepi8_epi16(codes) << 7 & 0xBFFF;
    return vf_of_f16((__m256i)half, h) * vf_set1(c->format->one_zero ? 128 : 256);
}
OP vf lower_to_vf(const code_t *c, __m128i codes, int h)
{
    const vu bits = (vu)lower_to_number(c, codes, h);
    if (c->format->one_zero) {
        return (vf)vu_select(vu_eq(bits, vu_set1(0x80000000)), vu_set1(0x7FC00000), bits);
    }
    return (vf)vu_select(vu_eq(bits & 0x7FFFFFFF, vu_set1(0x43F00000)),
                         (bits & 0x80000000) | 0x7FC00000, bits);
}

OP vf e8m0_to_vf(vu code)
{
    return (vf)vu_select(vu_eq(code, vu_set1(0xFF)), vu_set1(0x7FC00000), (vu)e8m0_power(code));
}

/* Vector h of a block. */
OP vf decode(const code_t *c, block_t block, int h)
{
    const __m128i codes = block.bytes;
    switch (c->kind) {
    case UNSIGNED:
        return vf_of_int(widen_8(codes, h));
    case SIGNED_4:
        return vf_of_int(widen_s8((__m128i)(((v16u8)codes ^ 8) - 8), h));
    case SIGNED_8:
        return vf_of_int(widen_s8(codes, h));
    case FLOAT_4:
        return lut16(widen_8(codes, h), values_f4_e2m1);
    case FLOAT_6:
        return FAST_LUT32 ? six_to_vf(widen_8(codes, h), c->magnitudes) : six_by_half(c, codes, h);
    case FLOAT_8:
        return format_to_vf(*c->format, widen_8(codes, h));
    case FLOAT_8_F16:
        return vf_of_f16(_mm256_slli_epi16(_mm256_cvtepu8_epi16(codes), 8), h);
    case FLOAT_8_LOWER:
        return lower_to_vf(c, codes, h);
    case FLOAT_16:
        return vf_of_f16(block.words, h);
    case BRAIN_16:
        return (vf)widen_high(block.words, h);
    case POWER_8:
        return e8m0_to_vf(widen_8(codes, h));
    case BOOLEAN_8:
        return vf_of_int(vu_min(widen_8(codes, h), vu_set1(1)));
    }
    __builtin_unreachable();
}

/* ---- from floats to codes -------------------------------------------------------------------- */

/* FINITE: what is encoded is finite, so that NaNs need no care, and saturates. FINITE_EVEN:
 * integers saturate to the largest number with either sign. */
typedef enum encoding { PLAIN, SATURATED, FINITE, FINITE_EVEN } encoding_t;

/* As f32_to_format for formats of 8 bits and fewer, none of which keeps NaN payloads. Below the
 * least normal value, adding the float whose last bit is the format's quantum rounds to a
 * multiple of it; max and over, being neighbours or the same, are one clamp. */
OP vu vf_to_format(format_t f, vf x)
{
    const int shift = 24 - f.digits;
    const uint32_t least = (uint32_t)(127 + f.emin) << 23, magic = (uint32_t)(127 + f.emin + shift)
                                                                   << 23;
    const vu bits = (vu)x, magnitude = bits & 0x7FFFFFFF;
    const vu rounding = vu_set1((1u << (shift - 1)) - 1 - (least - (1u << 23)));
    const vu normal = (magnitude + rounding + (magnitude >> shift & 1)) >> shift;
    const vu subnormal = (vu)((vf)magnitude + vf_set1(f32_of_bits(magic))) - magic;
    vu code =
        vu_min(vu_select(vu_gt(vu_set1(least), magnitude), subnormal, normal), vu_set1(f.over));
    if (f.nan != f.over) {
        code = vu_select(vu_gt(magnitude, vu_set1(0x7F800000)), vu_set1(f.nan), code);
    }
    const vu with_sign = code | (bits >> __builtin_clz(f.sign) & f.sign);
    return f.one_zero ? vu_select(vu_eq(code, vu_set1(0)), code, with_sign) : with_sign;
}

/* A float that, added to a magnitude for which the format has room, rounds it to a multiple of its
 * quantum and leaves the code in the last bits of the sum: a power of two of the exponent of the
 * magnitude, or of the least normal value. sum_code adds what codes gain with the exponent, moved
 * down onto the last bits; its bias is taken away here already. */
OP vf rounding_power(format_t f, vf magnitude)
{
    const int shift = 24 - f.digits;
    const uint32_t least = (uint32_t)(127 + f.emin) << 23,
                   even = -((uint32_t)(127 + f.emin + shift) << (f.digits - 1)) & 0xFFFF;
    return (vf)(vu_max((vu)magnitude & 0x7F800000, vu_set1(least)) +
                (((uint32_t)shift << 23) + even));
}
/* The code in the last 16 bits; above it anything. */
OP vu sum_code(format_t f, vf sum)
{
    return (vu)sum + ((vu)sum >> (24 - f.digits));
}
/* The magnitude of a finite number's code in 16 bits, not saturated. */
OP vu vf_to_magnitude(format_t f, vf x)
{
    const vf magnitude = vf_abs(x);
    return sum_code(f, magnitude + rounding_power(f, x)) & 0xFFFF;
}
/* The code of a finite number, saturating, with the sign of another one. */
OP vu vf_to_finite(format_t f, vf x, vf signed_as)
{
    const vf magnitude = vf_abs_min(x, format_to_f32(f, f.max));
    const vu code = sum_code(f, magnitude + rounding_power(f, magnitude)),
             sign = (vu)signed_as >> __builtin_clz(f.sign);
    const vu with_sign = vu_merge(f.sign - 1, code, sign);
    return f.one_zero ? vu_select(vu_eq(code & (f.sign - 1), vu_set1(0)), vu_set1(0), with_sign)
                      : with_sign;
}

OP vu vf_to_bf16(vf x, bool saturates)
{
    const vu bits = (vu)x, rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    const vu code = vu_select(vf_ordered(x), rounded, bits >> 16 | 0x40);
    return saturates ? vu_select(vu_eq(code & 0x7FFF, vu_set1(0x7F80)), code - 1, code) : code;
}

/* Up to 0x00600000, 1.5 * 2^-127, and for negative numbers the code is 0; from there on the
 * exponent field is rounded. */
OP vu vf_to_e8m0(vf x)
{
    const vu bits = (vu)x, magnitude = bits & 0x7FFFFFFF,
             rounded = (magnitude + 0x3FFFFF + (magnitude >> 23 & 1)) >> 23;
    const vu code =
        vu_select(vu_gt(bits, vu_set1(0x00600000)), vu_min(rounded, vu_set1(0xFE)), vu_set1(0));
    return vu_select(vu_gt(magnitude, vu_set1(0x7F800000)), vu_set1(0xFF), code);
}

OP vu vf_to_small_int(const code_t *c, encoding_t how, vf x)
{
    const float low = how == FINITE_EVEN && c->low < -c->high ? -c->high : c->low;
    const vu code = vf_to_int(vf_clamp(x, low, c->high));
    return (how >= FINITE ? code : vu_select(vf_ordered(x), code, vu_set1(0))) &
           ((1u << c->bits) - 1);
}

/* The codes of a vector as dwords; of f16 see encode. */
OP vu encode_vector(const code_t *c, encoding_t how, vf x)
{
    switch (c->kind) {
    case UNSIGNED:
    case SIGNED_4:
    case SIGNED_8:
        return vf_to_small_int(c, how, x);
    case FLOAT_4:
    case FLOAT_6:
    case FLOAT_8:
    case FLOAT_8_F16:
    case FLOAT_8_LOWER:
        return how >= FINITE      ? vf_to_finite(*c->format, x, x)
               : how == SATURATED ? vf_to_format(saturating(*c->format), x)
                                  : vf_to_format(*c->format, x);
    case BRAIN_16:
        return vf_to_bf16(x, how == SATURATED);
    case POWER_8:
        return vf_to_e8m0(x);
    case BOOLEAN_8:
        return vu_min((vu)x & 0x7FFFFFFF, vu_set1(1));
    case FLOAT_16:
        break;
    }
    __builtin_unreachable();
}

/* The codes of a block of vectors. The hardware's conversion to f16 heeds neither FTZ nor DAZ where
 * it shows: f32 subnormals are zero in f16. */
OP block_t encode(const code_t *c, encoding_t how, const vf *x)
{
    vu code[VECTORS];
    if (c->kind == FLOAT_16) {
        const v16u16 all = (v16u16)f16_of_vf(x);
        return (block_t){
            .words = (__m256i)(how == SATURATED ? all + (v16u16)((all & 0x7FFF) == 0x7C00) : all)};
    }
    EACH_VECTOR
    {
        code[h] = encode_vector(c, how, x[h]);
    }
    return c->bits == 16 ? (block_t){.words = narrow_16(code)} : (block_t){.bytes = narrow_8(code)};
}

/* ---- load and store -------------------------------------------------------------------------- */

/* The first n lanes, none if n < 0. In plain stores: what is stored under a mask cannot be
 * loaded again at once. */
OP void vf_store_n_plain(void *to, vf x, int64_t n)
{
    float *p = to;
    if (n >= LANES) {
        vf_store(p, x);
        return;
    }
    if (n <= 0) {
        return;
    }
    const bool upper = n >= 8;
    if (upper) {
        _mm256_storeu_ps(p, vf_half(x, 0));
        p += 8;
    }
    const __m256 half = vf_half(x, upper);
    __m128 quarter = _mm256_castps256_ps128(half);
    if (n & 4) {
        _mm_storeu_ps(p, quarter);
        quarter = _mm256_extractf128_ps(half, 1);
        p += 4;
    }
    if (n & 2) {
        _mm_storel_pi((__m64 *)(void *)p, quarter);
        quarter = _mm_movehl_ps(quarter, quarter);
        p += 2;
    }
    if (n & 1) {
        const float last = _mm_cvtss_f32(quarter);
        memcpy(p, &last, sizeof last); /* p has any alignment */
    }
}

/* Elements before the first whole group of bytes, at most n. */
OP int64_t head_of(const code_t *c, int64_t first, int64_t n)
{
    const int64_t head = -first & (c->unit - 1);
    return head < n ? head : n;
}

OP void load(const code_t *c, const void *base, int64_t first, int64_t n, float *dst)
{
    const int64_t head = head_of(c, first, n);
    const unsigned char *p = (const unsigned char *)base + (first + head) * c->bits / 8;
    if (c->unit > 1 && head > 0) {
        c->load_each(base, first, 1, head, dst);
    }
    for (dst += head, n -= head; n >= BLOCK; dst += BLOCK, n -= BLOCK, p += 2 * c->bits) {
        const block_t codes = unpack(c->bits, block_load(c->bits, p));
        EACH_VECTOR
        {
            vf_store(dst + h * LANES, decode(c, codes, h));
        }
    }
    if (n > 0) {
        const block_t codes = unpack(c->bits, block_load_n(c->bits, p, n));
        EACH_VECTOR
        {
            vf_store_n_plain(dst + h * LANES, decode(c, codes, h), n - h * LANES);
        }
    }
}

OP void store(const code_t *c, encoding_t how, void *base, int64_t first, int64_t n,
              const float *src)
{
    const int64_t head = head_of(c, first, n), end = first + n;
    unsigned char *p = (unsigned char *)base + (first + head) * c->bits / 8;
    vf x[VECTORS];
    if (c->unit > 1 && head > 0) {
        c->store_each(base, first, 1, head, src);
    }
    for (src += head, n -= head; n >= BLOCK; src += BLOCK, n -= BLOCK, p += 2 * c->bits) {
        EACH_VECTOR
        {
            x[h] = vf_load(src + h * LANES);
        }
        block_store(c->bits, p, pack(c->bits, encode(c, how, x)));
    }
    if (n > 0) {
        const int64_t rest = n % c->unit, whole = n - rest;
        EACH_VECTOR
        {
            x[h] = vf_load_n(src + h * LANES, n - h * LANES);
        }
        block_store_n(c->bits, p, pack(c->bits, encode(c, how, x)), whole);
        if (c->unit > 1 && rest > 0) {
            c->store_each(base, end - rest, 1, rest, src + whole);
        }
    }
}

/* ---- types of 32 bits ------------------------------------------------------------------------ */

typedef enum dword_change { SATURATE_F32, F32_OF_S32, S32_OF_F32 } dword_change_t;

/* The conversion to integers itself gives INT32_MIN for what does not fit. */
OP vf changed(dword_change_t how, vf x)
{
    const vu bits = (vu)x;
    if (how == SATURATE_F32) {
        return (vf)vu_select(vu_eq(bits & 0x7FFFFFFF, vu_set1(0x7F800000)), bits - 1, bits);
    }
    if (how == F32_OF_S32) {
        return vf_of_int(bits);
    }
    const vu in_range = vu_select(vf_ge(x, vf_set1(0x1p31f)), vu_set1(INT32_MAX), vf_to_int(x));
    return (vf)vu_select(vf_ordered(x), in_range, vu_set1(0));
}
OP void change_dwords(dword_change_t how, void *to, const void *from, int64_t n)
{
    const unsigned char *x = from;
    unsigned char *y = to;
    for (; n >= LANES; n -= LANES, y += 4 * LANES, x += 4 * LANES) {
        vf_store(y, changed(how, vf_load(x)));
    }
    if (n > 0) {
        vf_store_n_plain(y, changed(how, vf_load_n(x, n)), n);
    }
}

/* ---- load_scaled ----------------------------------------------------------------------------- */

typedef void load_t(const void *base, int64_t first, int64_t n, float *dst);
typedef void load_scaled_t(const void *base, int64_t first, int64_t n, const dtype_scaled_t *how,
                           float *dst);

/* The ends of runs, and runs that start inside a byte: once for all types. */
NOT_INLINED void rescale_all(float *x, int64_t n, const dtype_scaled_t *how)
{
    const float *scale = how->scale, *zp = how->zp;
    int64_t left = how->group - how->phase;
    for (int64_t i = 0; i < n; i++) {
        x[i] = (x[i] - *zp) * *scale;
        if (--left == 0) {
            left = how->group;
            scale++;
            zp += how->zp_each;
        }
    }
}

/* Moves n elements on, which do not end beyond the current group. */
static inline void move_on(dtype_scaled_t *how, int64_t n)
{
    how->phase += n;
    if (how->phase == how->group) {
        how->phase = 0;
        how->scale++;
        how->zp += how->zp_each;
    }
}

/* n elements of one group, n a multiple of BLOCK. */
OP void load_group(const code_t *c, const unsigned char *p, int64_t n, float scale, float zp,
                   float *dst)
{
    const vf s = vf_set1(scale), z = vf_set1(zp);
    for (int64_t i = 0; i < n; i += BLOCK, p += 2 * c->bits) {
        const block_t codes = unpack(c->bits, block_load(c->bits, p));
        EACH_VECTOR
        {
            vf_store(dst + i + h * LANES, rescaled(DTYPE_RESTORED, decode(c, codes, h), s, z));
        }
    }
}

/* Whole groups of a size that is a constant where this is inlined, so that a group is two
 * broadcasts and a few vectors. Moves on; returns how many elements that did. */
OP int64_t load_groups(const code_t *c, int size, const unsigned char *p, int64_t n,
                       dtype_scaled_t *how, float *dst)
{
    const float *scale = how->scale, *zp = how->zp;
    const int zp_step = how->zp_each;
    int64_t i = 0;
    for (; i + size <= n; i += size, p += size * c->bits / 8, zp += zp_step) {
        load_group(c, p, size, *scale++, *zp, dst + i);
    }
    how->scale = scale;
    how->zp = zp;
    return i;
}

/* load_floats: what load does for these codes. */
OP void load_scaled(const code_t *c, load_t *load_floats, const void *base, int64_t first,
                    int64_t n, const dtype_scaled_t *all, float *dst)
{
    const unsigned char *p = (const unsigned char *)base + first * c->bits / 8;
    dtype_scaled_t how = *all;
    int64_t i = 0;
    if (first % c->unit != 0) {
        load_floats(base, first, n, dst);
        rescale_all(dst, n, all);
        return;
    }
    if (how.phase == 0 && how.group == BLOCK) {
        i = load_groups(c, BLOCK, p, n, &how, dst);
    } else if (how.phase == 0 && how.group == 2 * BLOCK) {
        i = load_groups(c, 2 * BLOCK, p, n, &how, dst);
    }
    while (i + BLOCK <= n) {
        const int64_t most = how.group - how.phase, left = (n - i) & -BLOCK,
                      run = most < left ? most : left;
        load_group(c, p + i * c->bits / 8, run, *how.scale, *how.zp, dst + i);
        i += run;
        move_on(&how, run);
    }
    if (i < n) {
        const dtype_scaled_t rest = how; /* a copy: `how` stays in registers */
        load_floats(base, first + i, n - i, dst + i);
        rescale_all(dst + i, n - i, &rest);
    }
}

/* ---- store_scaled ---------------------------------------------------------------------------- */

/* Of floats: f32, f16 or bf16. */
OP int source_bytes(sinter_data_type_t from)
{
    return from == sinter_f32 ? 4 : 2;
}
/* Vector h of the block at p. */
OP vf source(sinter_data_type_t from, const unsigned char *p, int h)
{
    return from == sinter_f32   ? vf_load(p + h * LANES * 4)
           : from == sinter_f16 ? decode(&code_f16, block_load(16, p), h)
                                : decode(&code_bf16, block_load(16, p), h);
}

/* each: there is one scale for each element, else for each group. Groups have no loop of their own,
 * because they may be single blocks. */
OP void store_run(const code_t *c, dtype_way_t way, sinter_data_type_t from, bool each,
                  unsigned char *p, int64_t n, const unsigned char *x, const dtype_scaled_t *s)
{
    const encoding_t how = way == DTYPE_MULTIPLIED ? FINITE_EVEN : FINITE;
    const float *scale = s->scale, *zp = way == DTYPE_SHIFTED ? s->zp : s->scale;
    const bool zp_each = each && (way != DTYPE_SHIFTED || s->zp_each);
    const int64_t ahead = s->ahead, size = s->group;
    const int step = BLOCK * source_bytes(from), zp_step = s->zp_each;
    int64_t left = size;
    vf y[VECTORS];
    for (int64_t i = 0; i < n; i += BLOCK, x += step, p += 2 * c->bits) {
        const vf b = vf_set1(*scale), z = vf_set1(*zp);
        __builtin_prefetch(x + ahead);
        EACH_VECTOR
        {
            const int64_t at = i + h * LANES;
            y[h] = rescaled(way, source(from, x, h), each ? vf_load(scale + at) : b,
                            zp_each ? vf_load(zp + at) : z);
        }
        block_store(c->bits, p, pack(c->bits, encode(c, how, y)));
        if (!each) {
            left -= BLOCK;
            scale += left == 0;
            zp += left == 0 ? zp_step : 0;
            left = left == 0 ? size : left;
        }
    }
}
OP void store_from(const code_t *c, dtype_way_t way, sinter_data_type_t from, unsigned char *p,
                   int64_t n, const unsigned char *x, const dtype_scaled_t *s)
{
    if (s->group == 1) {
        store_run(c, way, from, true, p, n, x, s);
    } else {
        store_run(c, way, from, false, p, n, x, s);
    }
}
OP void store_way(const code_t *c, dtype_way_t way, unsigned char *p, int64_t n,
                  const unsigned char *x, const dtype_scaled_t *s)
{
    if (s->from == sinter_f32) {
        store_from(c, way, sinter_f32, p, n, x, s);
    } else if (s->from == sinter_f16) {
        store_from(c, way, sinter_f16, p, n, x, s);
    } else {
        store_from(c, way, sinter_bf16, p, n, x, s);
    }
}
OP void store_scaled(const code_t *c, void *base, int64_t first, int64_t n, const void *src,
                     const dtype_scaled_t *s)
{
    unsigned char *p = (unsigned char *)base + first * c->bits / 8;
    if (is_mx(c) && s->way == DTYPE_MULTIPLIED) {
        store_way(c, DTYPE_MULTIPLIED, p, n, src, s);
    } else if (is_integer(c) && s->way == DTYPE_SHIFTED) {
        store_way(c, DTYPE_SHIFTED, p, n, src, s);
    } else {
        store_way(c, DTYPE_DIVIDED, p, n, src, s);
    }
}

/* ---- what the parts of stream_scaled share --------------------------------------------------- */

enum {
    PAIR = 2 * BLOCK,
    CODES_AHEAD = 1024
}; /* bytes that are fetched ahead; harmless past the end */

static const float values_s4[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
static const float values_u4[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
/* The values of all codes of four bits. */
OP const float *values_of(const code_t *c)
{
    return c->kind == SIGNED_4 ? values_s4 : c->kind == UNSIGNED ? values_u4 : values_f4_e2m1;
}

/* The type that results are converted to. BF16: NaNs have zeros in the lower half of their bits.
 * EXACT_BF16: all floats have zeros there. NATIVE_BF16: by AVX512_BF16. */
typedef enum result {
    RESULT_F32,
    RESULT_F16,
    RESULT_BF16,
    RESULT_ANY_BF16,
    RESULT_EXACT_BF16,
    RESULT_NATIVE_BF16
} result_t;

/* In the upper halves. */
OP vu round_to_bf16(vf x)
{
    return (vu)x + 0x7FFF + ((vu)x >> 16 & 1);
}

/* Whether products of codes with the scale are bf16 exactly, or infinite: they are if these bits of
 * its fraction are 0, since codes are multiples of 2^-17. */
OP bool keeps_digits(uint32_t fraction, float scale)
{
    const uint32_t bits = bits_of_f32(scale) & 0x7FFFFFFF;
    return (bits & fraction) == 0 &&
           bits - bits_of_f32(0x1p-100f) < 0x7F800000 - bits_of_f32(0x1p-100f);
}

#endif
