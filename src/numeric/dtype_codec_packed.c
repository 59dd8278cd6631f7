/* Codecs of the types that share bytes: four 2-bit elements or two 4-bit elements in a byte,
 * four 6-bit elements in three. 4-bit loads go through a table of all values. */
#include "numeric/dtype_codec.h"

#include "numeric/dtype_bits.h"

#define INLINE static inline __attribute__((always_inline))

/* The functions of a codec, from what does them for all types of as many bits; what is stored
 * saturates anyway. */
#define LOAD(type, suffix, real, load)                                                   \
    void sinter_codec_##type##_##suffix(const void *base, int64_t first, int64_t stride, \
                                        int64_t n, real *dst)                            \
    {                                                                                    \
        load;                                                                            \
    }
#define STORE(type, suffix, real, store)                                                      \
    void sinter_codec_##type##_##suffix(void *base, int64_t first, int64_t stride, int64_t n, \
                                        const real *src)                                      \
    {                                                                                         \
        store;                                                                                \
    }

/* ---- 4 bits: element 2i is the low nibble of byte i ------------------------------------------ */

INLINE unsigned get_nibble(const unsigned char *bytes, int64_t at)
{
    return bytes[at / 2] >> at % 2 * 4 & 15u;
}
INLINE void put_nibble(unsigned char *bytes, int64_t at, unsigned code)
{
    int shift = (int)(at % 2) * 4;
    bytes[at / 2] = (unsigned char)((bytes[at / 2] & ~(15u << shift)) | (code & 15) << shift);
}

INLINE void load_nibbles(const float *values, const unsigned char *restrict bytes, int64_t first,
                         int64_t stride, int64_t n, float *restrict out)
{
    int64_t i = 0;
    if (stride == 1 && first % 2 == 0) {
        for (; i + 1 < n; i += 2) {
            unsigned pair = bytes[(first + i) / 2];
            out[i] = values[pair & 15];
            out[i + 1] = values[pair >> 4];
        }
    }
    for (; i < n; i++) {
        out[i] = values[get_nibble(bytes, first + i * stride)];
    }
}
INLINE void load_nibbles_f64(const float *values, const unsigned char *bytes, int64_t first,
                             int64_t stride, int64_t n, double *dst)
{
    for (int64_t i = 0; i < n; i++) {
        dst[i] = values[get_nibble(bytes, first + i * stride)];
    }
}
INLINE void store_nibbles(unsigned (*encode)(float), unsigned char *restrict bytes, int64_t first,
                          int64_t stride, int64_t n, const float *restrict in)
{
    int64_t i = 0;
    if (stride == 1 && first % 2 == 0) {
        for (; i + 1 < n; i += 2) {
            unsigned low = encode(in[i]) & 15, high = encode(in[i + 1]) & 15;
            bytes[(first + i) / 2] = (unsigned char)(low | high << 4);
        }
    }
    for (; i < n; i++) {
        put_nibble(bytes, first + i * stride, encode(in[i]));
    }
}
INLINE void store_nibbles_f64(unsigned (*encode)(double), unsigned char *bytes, int64_t first,
                              int64_t stride, int64_t n, const double *src)
{
    for (int64_t i = 0; i < n; i++) {
        put_nibble(bytes, first + i * stride, encode(src[i]));
    }
}

static const float values_s4[16] = {0, 1, 2, 3, 4, 5, 6, 7, -8, -7, -6, -5, -4, -3, -2, -1};
INLINE unsigned s4_of_f32(float x)
{
    return (unsigned)f32_to_small_int(x, -8.0f, 7.0f);
}
INLINE unsigned s4_of_f64(double x)
{
    return (unsigned)f64_to_int(x, -8.0, 7.0);
}
static const float values_u4[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
INLINE unsigned u4_of_f32(float x)
{
    return (unsigned)f32_to_small_int(x, 0.0f, 15.0f);
}
INLINE unsigned u4_of_f64(double x)
{
    return (unsigned)f64_to_int(x, 0.0, 15.0);
}
INLINE unsigned f4_e2m1_of_f32(float x)
{
    return f32_to_format(format_f4_e2m1, x);
}
INLINE unsigned f4_e2m1_of_f64(double x)
{
    return f64_to_format(format_f4_e2m1, x);
}

#define NIBBLES(type)                                                                             \
    LOAD(type, load_f32, float, load_nibbles(values_##type, base, first, stride, n, dst))         \
    LOAD(type, load_f64, double, load_nibbles_f64(values_##type, base, first, stride, n, dst))    \
    STORE(type, store_f32, float, store_nibbles(type##_of_f32, base, first, stride, n, src))      \
    STORE(type, store_f64, double, store_nibbles_f64(type##_of_f64, base, first, stride, n, src)) \
    STORE(type, store_sat, float, store_nibbles(type##_of_f32, base, first, stride, n, src))
NIBBLES(s4)
NIBBLES(u4)
NIBBLES(f4_e2m1)

/* ---- 2 bits: element 4i is the two low bits of byte i ---------------------------------------- */

INLINE unsigned get_2bit(const unsigned char *bytes, int64_t at)
{
    return bytes[at / 4] >> at % 4 * 2 & 3u;
}
INLINE void put_2bit(unsigned char *bytes, int64_t at, unsigned code)
{
    int shift = (int)(at % 4) * 2;
    bytes[at / 4] = (unsigned char)((bytes[at / 4] & ~(3u << shift)) | code << shift);
}
void sinter_codec_u2_load_f32(const void *base, int64_t first, int64_t stride, int64_t n,
                              float *dst)
{
    for (int64_t i = 0; i < n; i++) {
        dst[i] = (float)get_2bit(base, first + i * stride);
    }
}
void sinter_codec_u2_load_f64(const void *base, int64_t first, int64_t stride, int64_t n,
                              double *dst)
{
    for (int64_t i = 0; i < n; i++) {
        dst[i] = (double)get_2bit(base, first + i * stride);
    }
}
void sinter_codec_u2_store_f32(void *base, int64_t first, int64_t stride, int64_t n,
                               const float *src)
{
    for (int64_t i = 0; i < n; i++) {
        put_2bit(base, first + i * stride, (unsigned)f32_to_small_int(src[i], 0, 3));
    }
}
void sinter_codec_u2_store_f64(void *base, int64_t first, int64_t stride, int64_t n,
                               const double *src)
{
    for (int64_t i = 0; i < n; i++) {
        put_2bit(base, first + i * stride, (unsigned)f64_to_int(src[i], 0, 3));
    }
}
STORE(u2, store_sat, float, sinter_codec_u2_store_f32(base, first, stride, n, src))

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

INLINE void load_6bit(format_t f, const unsigned char *bytes, int64_t first, int64_t stride,
                      int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++) {
        dst[i] = format_to_f32(f, get_6bit(bytes, first + i * stride));
    }
}
INLINE void load_6bit_f64(format_t f, const unsigned char *bytes, int64_t first, int64_t stride,
                          int64_t n, double *dst)
{
    for (int64_t i = 0; i < n; i++) {
        dst[i] = format_to_f32(f, get_6bit(bytes, first + i * stride));
    }
}
INLINE void store_6bit(format_t f, unsigned char *bytes, int64_t first, int64_t stride, int64_t n,
                       const float *src)
{
    for (int64_t i = 0; i < n; i++) {
        put_6bit(bytes, first + i * stride, f32_to_format(f, src[i]));
    }
}
INLINE void store_6bit_f64(format_t f, unsigned char *bytes, int64_t first, int64_t stride,
                           int64_t n, const double *src)
{
    for (int64_t i = 0; i < n; i++) {
        put_6bit(bytes, first + i * stride, f64_to_format(f, src[i]));
    }
}
#define SIX_BITS(type)                                                                         \
    LOAD(type, load_f32, float, load_6bit(format_##type, base, first, stride, n, dst))         \
    LOAD(type, load_f64, double, load_6bit_f64(format_##type, base, first, stride, n, dst))    \
    STORE(type, store_f32, float, store_6bit(format_##type, base, first, stride, n, src))      \
    STORE(type, store_f64, double, store_6bit_f64(format_##type, base, first, stride, n, src)) \
    STORE(type, store_sat, float, store_6bit(format_##type, base, first, stride, n, src))
SIX_BITS(f6_e3m2)
SIX_BITS(f6_e2m3)
