/* Codecs of the types that share bytes: four 2-bit elements or two 4-bit elements in a byte,
 * four 6-bit elements in three. 4-bit loads go through a table of all values. */
#include "numeric/dtype_codec.h"

#include "numeric/dtype_bits.h"

/* ---- 4 bits: element 2i is the low nibble of byte i ------------------------------------------ */

#define LOAD_NIBBLES(suffix, type, real)                                                 \
    void sinter_codec_##type##_##suffix(const void *base, int64_t first, int64_t stride, \
                                        int64_t n, real *dst)                            \
    {                                                                                    \
        const unsigned char *restrict bytes = base;                                      \
        real *restrict out = dst;                                                        \
        int64_t i = 0;                                                                   \
        if (stride == 1 && first % 2 == 0) {                                             \
            for (; i + 1 < n; i += 2) {                                                  \
                unsigned pair = bytes[(first + i) / 2];                                  \
                out[i] = values_##type[pair & 15];                                       \
                out[i + 1] = values_##type[pair >> 4];                                   \
            }                                                                            \
        }                                                                                \
        for (; i < n; i++) {                                                             \
            int64_t at = first + i * stride;                                             \
            out[i] = values_##type[bytes[at / 2] >> at % 2 * 4 & 15];                    \
        }                                                                                \
    }

static inline void put_nibble(unsigned char *bytes, int64_t at, unsigned code)
{
    int shift = (int)(at % 2) * 4;
    bytes[at / 2] = (unsigned char)((bytes[at / 2] & ~(15u << shift)) | (code & 15) << shift);
}

#define STORE_NIBBLES(suffix, type, real, convert)                                            \
    void sinter_codec_##type##_##suffix(void *base, int64_t first, int64_t stride, int64_t n, \
                                        const real *src)                                      \
    {                                                                                         \
        unsigned char *restrict bytes = base;                                                 \
        const real *restrict in = src;                                                        \
        int64_t i = 0;                                                                        \
        if (stride == 1 && first % 2 == 0) {                                                  \
            for (; i + 1 < n; i += 2) {                                                       \
                unsigned low = (unsigned)convert(in[i]) & 15,                                 \
                         high = (unsigned)convert(in[i + 1]) & 15;                            \
                bytes[(first + i) / 2] = (unsigned char)(low | high << 4);                    \
            }                                                                                 \
        }                                                                                     \
        for (; i < n; i++) {                                                                  \
            put_nibble(bytes, first + i * stride, (unsigned)convert(in[i]));                  \
        }                                                                                     \
    }

#define CODEC_NIBBLES(type, from_f32, from_f64)      \
    LOAD_NIBBLES(load_f32, type, float)              \
    LOAD_NIBBLES(load_f64, type, double)             \
    STORE_NIBBLES(store_f32, type, float, from_f32)  \
    STORE_NIBBLES(store_f64, type, double, from_f64) \
    STORE_NIBBLES(store_sat, type, float, from_f32) /* which saturates anyway */

static const float values_s4[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
static inline int32_t f32_to_s4(float x)
{
    return f32_to_small_int(x, -8.0f, 7.0f);
}
static inline int64_t f64_to_s4(double x)
{
    return f64_to_int(x, -8.0, 7.0);
}
CODEC_NIBBLES(s4, f32_to_s4, f64_to_s4)

static const float values_u4[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
static inline int32_t f32_to_u4(float x)
{
    return f32_to_small_int(x, 0.0f, 15.0f);
}
static inline int64_t f64_to_u4(double x)
{
    return f64_to_int(x, 0.0, 15.0);
}
CODEC_NIBBLES(u4, f32_to_u4, f64_to_u4)

static inline uint32_t f32_to_f4_e2m1(float x)
{
    return f32_to_format(format_f4_e2m1, x);
}
static inline uint32_t f64_to_f4_e2m1(double x)
{
    return f64_to_format(format_f4_e2m1, x);
}
CODEC_NIBBLES(f4_e2m1, f32_to_f4_e2m1, f64_to_f4_e2m1)

/* ---- 2 bits: element 4i is the two low bits of byte i ---------------------------------------- */

#define LOAD_2BIT(suffix, real)                                                               \
    void sinter_codec_u2_##suffix(const void *base, int64_t first, int64_t stride, int64_t n, \
                                  real *dst)                                                  \
    {                                                                                         \
        const unsigned char *bytes = base;                                                    \
        for (int64_t i = 0; i < n; i++) {                                                     \
            int64_t at = first + i * stride;                                                  \
            dst[i] = (real)(bytes[at / 4] >> at % 4 * 2 & 3);                                 \
        }                                                                                     \
    }

#define STORE_2BIT(suffix, real, convert)                                               \
    void sinter_codec_u2_##suffix(void *base, int64_t first, int64_t stride, int64_t n, \
                                  const real *src)                                      \
    {                                                                                   \
        unsigned char *bytes = base;                                                    \
        for (int64_t i = 0; i < n; i++) {                                               \
            int64_t at = first + i * stride;                                            \
            int shift = (int)(at % 4) * 2;                                              \
            bytes[at / 4] = (unsigned char)((bytes[at / 4] & ~(3u << shift)) |          \
                                            (unsigned)convert(src[i], 0, 3) << shift);  \
        }                                                                               \
    }

LOAD_2BIT(load_f32, float)
LOAD_2BIT(load_f64, double)
STORE_2BIT(store_f32, float, f32_to_small_int)
STORE_2BIT(store_f64, double, f64_to_int)
STORE_2BIT(store_sat, float, f32_to_small_int) /* which saturates anyway */

/* ---- 6 bits: element i is the bits 6i .. 6i+5, counted from the low end of each byte --------- */

/* Only the bytes that hold the element are touched: the last one of a tensor may end a page. */
static inline unsigned get_6bit(const unsigned char *bytes, int64_t at)
{
    int64_t byte = at / 4 * 3 + at % 4 * 6 / 8;
    int shift = (int)(at % 4) * 6 % 8;
    unsigned word = bytes[byte];
    if (shift > 2) {
        word |= (unsigned)bytes[byte + 1] << 8;
    }
    return word >> shift & 0x3F;
}

static inline void put_6bit(unsigned char *bytes, int64_t at, unsigned code)
{
    int64_t byte = at / 4 * 3 + at % 4 * 6 / 8;
    int shift = (int)(at % 4) * 6 % 8;
    unsigned mask = 0x3Fu << shift, word = code << shift;
    bytes[byte] = (unsigned char)((bytes[byte] & ~mask) | (word & 0xFF));
    if (shift > 2) {
        bytes[byte + 1] = (unsigned char)((bytes[byte + 1] & ~(mask >> 8)) | word >> 8);
    }
}

#define LOAD_6BIT(suffix, type, real)                                                    \
    void sinter_codec_##type##_##suffix(const void *base, int64_t first, int64_t stride, \
                                        int64_t n, real *dst)                            \
    {                                                                                    \
        for (int64_t i = 0; i < n; i++) {                                                \
            dst[i] = format_to_f32(format_##type, get_6bit(base, first + i * stride));   \
        }                                                                                \
    }

#define STORE_6BIT(suffix, type, real, convert)                                               \
    void sinter_codec_##type##_##suffix(void *base, int64_t first, int64_t stride, int64_t n, \
                                        const real *src)                                      \
    {                                                                                         \
        for (int64_t i = 0; i < n; i++) {                                                     \
            put_6bit(base, first + i * stride, convert(format_##type, src[i]));               \
        }                                                                                     \
    }

#define CODEC_6BIT(type)                               \
    LOAD_6BIT(load_f32, type, float)                   \
    LOAD_6BIT(load_f64, type, double)                  \
    STORE_6BIT(store_f32, type, float, f32_to_format)  \
    STORE_6BIT(store_f64, type, double, f64_to_format) \
    STORE_6BIT(store_sat, type, float, f32_to_format) /* which saturates anyway */

CODEC_6BIT(f6_e3m2)
CODEC_6BIT(f6_e2m3)
