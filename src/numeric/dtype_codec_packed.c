/* Codecs of the types that share bytes. */
#include "numeric/dtype_codec.h"

#include "numeric/dtype_bits.h"
#include "numeric/packed.h"

#define INLINE static inline __attribute__((always_inline))

/* ---- templates, for constant numbers of bits and conversions --------------------------------- */

INLINE void load(int bits, float (*value)(unsigned), const void *base, int64_t first,
                 int64_t stride, int64_t n, float *restrict dst)
{
    for (int64_t i = 0; i < n; i++) {
        dst[i] = value(packed_get(bits, base, first + i * stride));
    }
}
INLINE void load_double(int bits, float (*value)(unsigned), const void *base, int64_t first,
                        int64_t stride, int64_t n, double *restrict dst)
{
    for (int64_t i = 0; i < n; i++) {
        dst[i] = (double)value(packed_get(bits, base, first + i * stride));
    }
}
INLINE void store(int bits, unsigned (*code)(float), void *base, int64_t first, int64_t stride,
                  int64_t n, const float *restrict src)
{
    for (int64_t i = 0; i < n; i++) {
        packed_put(bits, base, first + i * stride, code(src[i]));
    }
}
INLINE void store_double(int bits, unsigned (*code)(double), void *base, int64_t first,
                         int64_t stride, int64_t n, const double *restrict src)
{
    for (int64_t i = 0; i < n; i++) {
        packed_put(bits, base, first + i * stride, code(src[i]));
    }
}

/* ---- conversions ----------------------------------------------------------------------------- */

#define INTEGER(type, least, most, value)                  \
    INLINE float type##_to_f32(unsigned code)              \
    {                                                      \
        return value;                                      \
    }                                                      \
    INLINE unsigned f32_to_##type(float x)                 \
    {                                                      \
        return (unsigned)f32_to_small_int(x, least, most); \
    }                                                      \
    INLINE unsigned f64_to_##type(double x)                \
    {                                                      \
        return (unsigned)f64_to_int(x, least, most);       \
    }
#define OF_FORMAT(type, value)                  \
    INLINE float type##_to_f32(unsigned code)   \
    {                                           \
        return value;                           \
    }                                           \
    INLINE unsigned f32_to_##type(float x)      \
    {                                           \
        return f32_to_format(format_##type, x); \
    }                                           \
    INLINE unsigned f64_to_##type(double x)     \
    {                                           \
        return f64_to_format(format_##type, x); \
    }
INTEGER(s4, -8, 7, (float)((int)(code ^ 8) - 8))
INTEGER(u4, 0, 15, (float)(int)code)
INTEGER(u2, 0, 3, (float)(int)code)
OF_FORMAT(f4_e2m1, values_f4_e2m1[code])
OF_FORMAT(f6_e3m2, format_to_f32(format_f6_e3m2, code))
OF_FORMAT(f6_e2m3, format_to_f32(format_f6_e2m3, code))

/* ---- codecs ---------------------------------------------------------------------------------- */

#define FUNCTION(type, suffix, constant, real, body)                                        \
    void sinter_codec_##type##_##suffix(constant void *base, int64_t first, int64_t stride, \
                                        int64_t n, real *x)                                 \
    {                                                                                       \
        body;                                                                               \
    }
/* Every store saturates. */
#define CODEC(type, bits)                                                                        \
    FUNCTION(type, load_f32, const, float, load(bits, type##_to_f32, base, first, stride, n, x)) \
    FUNCTION(type, load_f64, const, double,                                                      \
             load_double(bits, type##_to_f32, base, first, stride, n, x))                        \
    FUNCTION(type, store_f32, , const float,                                                     \
             store(bits, f32_to_##type, base, first, stride, n, x))                              \
    FUNCTION(type, store_f64, , const double,                                                    \
             store_double(bits, f64_to_##type, base, first, stride, n, x))                       \
    FUNCTION(type, store_sat, , const float, store(bits, f32_to_##type, base, first, stride, n, x))
CODEC(s4, 4)
CODEC(u4, 4)
CODEC(f4_e2m1, 4)
CODEC(u2, 2)
CODEC(f6_e3m2, 6)
CODEC(f6_e2m3, 6)
