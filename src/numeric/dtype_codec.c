/* Codecs of the types that fill whole bytes. Each is four element conversions, named
 * <type>_to_f32, f32_to_<type> and so on, put into loops by CODEC. */
#include "numeric/dtype_codec.h"

#include "numeric/dtype_bits.h"

/* Elements of any alignment; the stride-1 loops are apart so that they vectorise. */
#define LOOP(first, stride, n, body)                   \
    if ((stride) == 1) {                               \
        for (int64_t i = 0; i < (n); i++) {            \
            const int64_t at = (first) + i;            \
            body                                       \
        }                                              \
    } else {                                           \
        for (int64_t i = 0; i < (n); i++) {            \
            const int64_t at = (first) + i * (stride); \
            body                                       \
        }                                              \
    }

#define LOAD(suffix, type, storage, real, convert)                                       \
    void sinter_codec_##type##_##suffix(const void *base, int64_t first, int64_t stride, \
                                        int64_t n, real *dst)                            \
    {                                                                                    \
        const unsigned char *restrict bytes = base;                                      \
        real *restrict out = dst;                                                        \
        LOOP(first, stride, n, {                                                         \
            storage code;                                                                \
            memcpy(&code, bytes + at * (int64_t)sizeof code, sizeof code);               \
            out[i] = convert(code);                                                      \
        })                                                                               \
    }

#define STORE(suffix, type, storage, real, convert)                                           \
    void sinter_codec_##type##_##suffix(void *base, int64_t first, int64_t stride, int64_t n, \
                                        const real *src)                                      \
    {                                                                                         \
        unsigned char *restrict bytes = base;                                                 \
        const real *restrict in = src;                                                        \
        LOOP(first, stride, n, {                                                              \
            storage code = (storage)convert(in[i]);                                           \
            memcpy(bytes + at * (int64_t)sizeof code, &code, sizeof code);                    \
        })                                                                                    \
    }

#define CODEC(type, storage, to_f32, to_f64, from_f32, from_f64, from_f32_sat) \
    LOAD(load_f32, type, storage, float, to_f32)                               \
    LOAD(load_f64, type, storage, double, to_f64)                              \
    STORE(store_f32, type, storage, float, from_f32)                           \
    STORE(store_f64, type, storage, double, from_f64)                          \
    STORE(store_sat, type, storage, float, from_f32_sat)

/* ---- floats by format ------------------------------------------------------------------------ */

/* Every value of these formats is zero or normal in f32, so that the hardware may widen it. */
#define OF_FORMAT(type, storage)                           \
    static inline float type##_to_f32(storage code)        \
    {                                                      \
        return format_to_f32(format_##type, code);         \
    }                                                      \
    static inline double type##_to_f64(storage code)       \
    {                                                      \
        return (double)format_to_f32(format_##type, code); \
    }
#define TO_FORMAT(type)                                     \
    static inline uint32_t f32_to_##type(float x)           \
    {                                                       \
        return f32_to_format(format_##type, x);             \
    }                                                       \
    static inline uint32_t f64_to_##type(double x)          \
    {                                                       \
        return f64_to_format(format_##type, x);             \
    }                                                       \
    static inline uint32_t sat_to_##type(float x)           \
    {                                                       \
        return f32_to_format(saturating(format_##type), x); \
    }
#define FORMAT_CODEC(type, storage) \
    OF_FORMAT(type, storage)        \
    TO_FORMAT(type)                 \
    CODEC(type, storage, type##_to_f32, type##_to_f64, f32_to_##type, f64_to_##type, sat_to_##type)

FORMAT_CODEC(f16, uint16_t)
FORMAT_CODEC(f8_e5m2, uint8_t)
FORMAT_CODEC(f8_e4m3, uint8_t)
FORMAT_CODEC(f8_e5m2fnuz, uint8_t)
FORMAT_CODEC(f8_e4m3fnuz, uint8_t)

/* ---- f32, bf16: the same exponent range ------------------------------------------------------ */

static inline float f32_to_f32(float x)
{
    return x;
}
static inline float f64_to_f32(double x)
{
    return f32_of_bits(f64_to_format(format_f32, x));
}

static inline float sat_to_f32(float x)
{
    uint32_t bits = bits_of_f32(x);
    return f32_of_bits((bits & 0x7FFFFFFF) == 0x7F800000 ? bits - 1 : bits);
}

CODEC(f32, float, f32_to_f32, f32_to_f64, f32_to_f32, f64_to_f32, sat_to_f32)

static inline float bf16_to_f32(uint16_t code)
{
    return f32_of_bits((uint32_t)code << 16);
}
static inline double bf16_to_f64(uint16_t code)
{
    return f32_to_f64(bf16_to_f32(code));
}
static inline uint32_t f64_to_bf16(double x)
{
    return f64_to_format(format_bf16, x);
}

static inline uint32_t f32_to_bf16(float x)
{
    uint32_t bits = bits_of_f32(x), rounded = (bits + 0x7FFF + (bits >> 16 & 1)) >> 16;
    return (bits & 0x7FFFFFFF) > 0x7F800000 ? bits >> 16 | 0x40 : rounded;
}

static inline uint32_t sat_to_bf16(float x)
{
    uint32_t code = f32_to_bf16(x);
    return (code & 0x7FFF) == 0x7F80 ? code - 1 : code;
}

CODEC(bf16, uint16_t, bf16_to_f32, bf16_to_f64, f32_to_bf16, f64_to_bf16, sat_to_bf16)

/* ---- f64 ------------------------------------------------------------------------------------- */

static inline double f64_to_f64(double x)
{
    return x;
}

static inline double sat_to_f64(float x)
{
    return f32_to_f64(sat_to_f32(x));
}

CODEC(f64, double, f64_to_f32, f64_to_f64, f32_to_f64, f64_to_f64, sat_to_f64)

/* ---- e8m0 ------------------------------------------------------------------------------------ */

static inline float e8m0_to_f32(uint8_t code)
{
    uint32_t normal = (uint32_t)code << 23;
    return f32_of_bits(code == 0 ? 0x00400000 : code == 0xFF ? 0x7FC00000 : normal);
}

static inline double e8m0_to_f64(uint8_t code)
{
    uint64_t normal = (uint64_t)(code + 896) << 52;
    return f64_of_bits(code == 0xFF ? UINT64_C(0x7FF8000000000000) : normal);
}

/* To the nearest power of two; the tie 1.5 * 2^k to the even code. Rounding the exponent field
 * half up to even does it, but for f32 subnormals, where 2^-127 is a fraction of one half. */
static inline uint32_t f32_to_e8m0(float x)
{
    uint32_t bits = bits_of_f32(x), magnitude = bits & 0x7FFFFFFF;
    uint32_t code = (magnitude + 0x3FFFFF + (magnitude >> 23 & 1)) >> 23;
    code = magnitude < 0x00800000 ? magnitude > 0x00600000 : code;
    code = code > 0xFE ? 0xFE : code;
    code = bits >> 31 ? 0 : code;
    return magnitude > 0x7F800000 ? 0xFF : code;
}

static inline uint32_t f64_to_e8m0(double x)
{
    uint64_t bits = bits_of_f64(x), magnitude = bits & INT64_MAX, lowest = UINT64_C(896) << 52;
    uint64_t steps = magnitude < lowest ? 0 : magnitude - lowest; /* from 2^-127 up */
    uint64_t code = (steps + ((UINT64_C(1) << 51) - 1) + (steps >> 52 & 1)) >> 52;
    code = code > 0xFE ? 0xFE : code;
    code = bits >> 63 ? 0 : code;
    return magnitude > UINT64_C(0x7FF) << 52 ? 0xFF : (uint32_t)code;
}

CODEC(e8m0, uint8_t, e8m0_to_f32, e8m0_to_f64, f32_to_e8m0, f64_to_e8m0, f32_to_e8m0)

/* ---- integers -------------------------------------------------------------------------------- */

#define INT_TO(type, storage)                        \
    static inline float type##_to_f32(storage code)  \
    {                                                \
        return (float)code;                          \
    }                                                \
    static inline double type##_to_f64(storage code) \
    {                                                \
        return (double)code;                         \
    }

#define SMALL_INT_CODEC(type, storage, min, max)  \
    INT_TO(type, storage)                         \
    static inline int32_t f32_to_##type(float x)  \
    {                                             \
        return f32_to_small_int(x, min, max);     \
    }                                             \
    static inline int64_t f64_to_##type(double x) \
    {                                             \
        return f64_to_int(x, min, max);           \
    }                                             \
    CODEC(type, storage, type##_to_f32, type##_to_f64, f32_to_##type, f64_to_##type, f32_to_##type)

SMALL_INT_CODEC(s8, int8_t, -128.0f, 127.0f)
SMALL_INT_CODEC(u8, uint8_t, 0.0f, 255.0f)

INT_TO(s32, int32_t)
static inline int64_t f64_to_s32(double x)
{
    return f64_to_int(x, -2147483648.0, 2147483647.0);
}
static inline int64_t f32_to_s32(float x)
{
    return f64_to_s32((double)x);
}
CODEC(s32, int32_t, s32_to_f32, s32_to_f64, f32_to_s32, f64_to_s32, f32_to_s32)

INT_TO(s64, int64_t)
static inline int64_t f32_to_s64(float x)
{
    return f64_to_s64((double)x);
}
CODEC(s64, int64_t, s64_to_f32, s64_to_f64, f32_to_s64, f64_to_s64, f32_to_s64)

/* ---- boolean --------------------------------------------------------------------------------- */

static inline float boolean_to_f32(uint8_t code)
{
    return code != 0 ? 1.0f : 0.0f;
}
static inline double boolean_to_f64(uint8_t code)
{
    return code != 0 ? 1.0 : 0.0;
}
static inline uint32_t f32_to_boolean(float x)
{
    return (bits_of_f32(x) & 0x7FFFFFFF) != 0;
}
static inline uint32_t f64_to_boolean(double x)
{
    return (bits_of_f64(x) & INT64_MAX) != 0;
}
CODEC(boolean, uint8_t, boolean_to_f32, boolean_to_f64, f32_to_boolean, f64_to_boolean,
      f32_to_boolean)
