/* Conversions of one element between f32 / f64 and the formats, on bits: no arithmetic ever sees
 * or makes a subnormal, so that a caller's FTZ/DAZ changes nothing. Straight-line code with
 * selects, which compilers vectorise. Only dtype_codec*.c and dtype_bulk*.c include this. */
#ifndef SINTER_SRC_DTYPE_BITS_H
#define SINTER_SRC_DTYPE_BITS_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

static inline uint32_t bits_of_f32(float x)
{
    uint32_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline float f32_of_bits(uint32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

static inline uint64_t bits_of_f64(double x)
{
    uint64_t bits;
    memcpy(&bits, &x, sizeof bits);
    return bits;
}

static inline double f64_of_bits(uint64_t bits)
{
    double x;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* A binary float format: sign bit, exponent field, digits - 1 bits of fraction. Codes without
 * sign are in order of magnitude. */
typedef struct format {
    int digits;       /* significant bits, hidden one counted */
    int emin;         /* exponent of the least normal value */
    uint32_t sign;    /* the sign bit */
    uint32_t max;     /* code of the largest finite value */
    uint32_t over;    /* what overflow and Inf become, without sign */
    uint32_t nan;     /* what NaN becomes, without sign */
    uint32_t payload; /* bits of a NaN that are kept, from the top of the fraction down */
    bool inf;         /* max + 1 is Inf, what follows is NaN */
    bool one_zero;    /* FNUZ: the code of -0 is the only NaN */
} format_t;

static const format_t format_f32 = {24,         -126,     0x80000000, 0x7F7FFFFF, 0x7F800000,
                                    0x7FC00000, 0x3FFFFF, true,       false};
static const format_t format_f16 = {11, -14, 0x8000, 0x7BFF, 0x7C00, 0x7E00, 0x1FF, true, false};
static const format_t format_bf16 = {8, -126, 0x8000, 0x7F7F, 0x7F80, 0x7FC0, 0x3F, true, false};
static const format_t format_f8_e5m2 = {3, -14, 0x80, 0x7B, 0x7C, 0x7E, 0, true, false};
static const format_t format_f8_e4m3 = {4, -6, 0x80, 0x7E, 0x7F, 0x7F, 0, false, false};
static const format_t format_f8_e5m2fnuz = {3, -15, 0x80, 0x7F, 0x80, 0x80, 0, false, true};
static const format_t format_f8_e4m3fnuz = {4, -7, 0x80, 0x7F, 0x80, 0x80, 0, false, true};
static const format_t format_f6_e3m2 = {3, -2, 0x20, 0x1F, 0x1F, 0x1F, 0, false, false};
static const format_t format_f6_e2m3 = {4, 0, 0x20, 0x1F, 0x1F, 0x1F, 0, false, false};
static const format_t format_f4_e2m1 = {2, 0, 0x8, 0x7, 0x7, 0x7, 0, false, false};
static const float values_f4_e2m1[16] = {0.0f,  0.5f,  1.0f,  1.5f,  2.0f,  3.0f,  4.0f,  6.0f,
                                         -0.0f, -0.5f, -1.0f, -1.5f, -2.0f, -3.0f, -4.0f, -6.0f};
/* Of six bits: a sign and five bits of magnitude. */
static const float magnitudes_f6_e3m2[32] = {
    0.0f,   0.0625f, 0.125f, 0.1875f, 0.25f, 0.3125f, 0.375f, 0.4375f, 0.5f,  0.625f, 0.75f,
    0.875f, 1.0f,    1.25f,  1.5f,    1.75f, 2.0f,    2.5f,   3.0f,    3.5f,  4.0f,   5.0f,
    6.0f,   7.0f,    8.0f,   10.0f,   12.0f, 14.0f,   16.0f,  20.0f,   24.0f, 28.0f};
static const float magnitudes_f6_e2m3[32] = {
    0.0f,   0.125f, 0.25f,  0.375f, 0.5f,   0.625f, 0.75f, 0.875f, 1.0f,  1.125f, 1.25f,
    1.375f, 1.5f,   1.625f, 1.75f,  1.875f, 2.0f,   2.25f, 2.5f,   2.75f, 3.0f,   3.25f,
    3.5f,   3.75f,  4.0f,   4.5f,   5.0f,   5.5f,   6.0f,  6.5f,   7.0f,  7.5f};

static inline format_t saturating(format_t f)
{
    f.over = f.max;
    return f;
}

/* Adds overflow, NaN and sign to the code of a magnitude. Overflow is decided here, after
 * rounding. */
static inline uint32_t finish(format_t f, uint32_t code, uint32_t negative, bool is_nan,
                              uint32_t payload)
{
    code = code > f.max ? f.over : code;
    code = is_nan ? f.nan | (payload & f.payload) : code;
    uint32_t with_sign = code | (negative ? f.sign : 0);
    return f.one_zero && code == 0 ? 0 : with_sign;
}

/* To nearest even. For formats whose least normal value is above f32's (not bf16), so that f32
 * subnormals become 0. */
static inline uint32_t f32_to_format(format_t f, float x)
{
    uint32_t bits = bits_of_f32(x), magnitude = bits & 0x7FFFFFFF;
    int shift = 24 - f.digits, exponent = (int)(magnitude >> 23) - 127;
    uint32_t normal = magnitude - ((uint32_t)(126 + f.emin) << 23);
    normal = (normal + ((1u << (shift - 1)) - 1) + ((normal >> shift) & 1)) >> shift;

    int down =
        shift + f.emin - exponent; /* a subnormal result is the significand shifted further down */
    down = down < shift ? shift : down > 25 ? 25 : down;
    uint32_t significand = (magnitude & 0x7FFFFF) | 0x800000;
    uint32_t subnormal =
        (significand + ((1u << (down - 1)) - 1) + ((significand >> down) & 1)) >> down;

    return finish(f, exponent >= f.emin ? normal : subnormal, bits >> 31, magnitude > 0x7F800000,
                  (magnitude & 0x7FFFFF) >> shift);
}

/* The same from f64, for every format up to f32. */
static inline uint32_t f64_to_format(format_t f, double x)
{
    uint64_t bits = bits_of_f64(x), magnitude = bits & INT64_MAX,
             fraction = magnitude & ((UINT64_C(1) << 52) - 1);
    int shift = 53 - f.digits, exponent = (int)(magnitude >> 52) - 1023;
    int down = exponent >= f.emin ? shift : shift + f.emin - exponent;
    down = down > 54 ? 54 : down;
    uint64_t significand = fraction | (UINT64_C(1) << 52);
    uint64_t code =
        (significand + ((UINT64_C(1) << (down - 1)) - 1) + ((significand >> down) & 1)) >> down;
    /* A normal result still has its hidden bit, which counts as one step of the exponent field. */
    if (exponent >= f.emin) {
        code += (uint64_t)(exponent - f.emin) << (f.digits - 1);
    }
    code = code > UINT32_MAX >> 1 ? UINT32_MAX >> 1 : code;
    return finish(f, (uint32_t)code, (uint32_t)(bits >> 63), magnitude > UINT64_C(0x7FF) << 52,
                  (uint32_t)(fraction >> shift));
}

/* Exact, for formats whose subnormals are normal in f32 (not bf16). */
static inline float format_to_f32(format_t f, uint32_t code)
{
    uint32_t magnitude = code & (f.sign - 1), fraction = magnitude & ((1u << (f.digits - 1)) - 1);
    uint32_t normal = (magnitude << (24 - f.digits)) + ((uint32_t)(126 + f.emin) << 23);
    uint32_t quantum = (uint32_t)(f.emin - f.digits + 1 + 127) << 23;
    uint32_t subnormal = bits_of_f32((float)(int32_t)fraction * f32_of_bits(quantum));
    uint32_t bits = magnitude >> (f.digits - 1) != 0 ? normal : subnormal;
    uint32_t quiet = fraction != 0 ? 0x00400000 : 0; /* as the hardware converts a signalling NaN */
    uint32_t special = f.inf ? 0x7F800000 | fraction << (24 - f.digits) | quiet : 0x7FC00000;
    bits = magnitude > f.max ? special : bits;
    bits |= code & f.sign ? 0x80000000 : 0;
    return f32_of_bits(f.one_zero && code == f.sign ? 0x7FC00000 : bits);
}

/* Exact; the hardware's conversion would flush f32 subnormals under DAZ. */
static inline double f32_to_f64(float x)
{
    uint32_t bits = bits_of_f32(x), exponent = bits >> 23 & 0xFF, fraction = bits & 0x7FFFFF;
    uint64_t wide = (uint64_t)(exponent == 0xFF ? 0x7FF : exponent + 896) << 52 | (uint64_t)fraction
                                                                                      << 29;
    uint64_t subnormal = bits_of_f64((double)(int32_t)fraction * 0x1p-149);
    return f64_of_bits((exponent == 0 ? subnormal : wide) | (uint64_t)(bits >> 31) << 63);
}

/* Integers of up to 23 bits: adding 1.5 * 2^23 leaves the integer, rounded to nearest even, in
 * the low bits. NaN is 0. */
static inline int32_t f32_to_small_int(float x, float min, float max)
{
    x = x < min ? min : x;
    x = x > max ? max : x;
    x = x == x ? x : 0.0f;
    return (int32_t)(bits_of_f32(x + 0x1.8p23f) - 0x4B400000);
}

/* Integers of up to 32 bits, in the same way with 1.5 * 2^52. */
static inline int64_t f64_to_int(double x, double min, double max)
{
    x = x < min ? min : x;
    x = x > max ? max : x;
    x = x == x ? x : 0.0;
    return (int64_t)(bits_of_f64(x + 0x1.8p52) - UINT64_C(0x4338000000000000));
}

static inline int64_t f64_to_s64(double x)
{
    if (!(x > -0x1p63)) {
        return x == x ? INT64_MIN : 0;
    }
    if (x >= 0x1p63) {
        return INT64_MAX;
    }
    double big = x < 0 ? -0x1p52 : 0x1p52; /* from 2^52 up a double is an integer already */
    return (int64_t)(x > -0x1p52 && x < 0x1p52 ? (x + big) - big : x);
}

#endif
