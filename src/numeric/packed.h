/* Codes of up to 8 bits that follow one another without gaps, and may share bytes: element i is the
 * bits from i * bits on, counted from the low end of each byte. */
#ifndef SINTER_SRC_NUMERIC_PACKED_H
#define SINTER_SRC_NUMERIC_PACKED_H

#include <stdint.h>

#define PACKED_INLINE static inline __attribute__((always_inline))

PACKED_INLINE int64_t packed_byte(int bits, int64_t at)
{
    return at / 8 * bits + at % 8 * bits / 8;
}
PACKED_INLINE int packed_shift(int bits, int64_t at)
{
    return (int)(at % 8) * bits % 8;
}

/* Only the bytes that hold the element are touched: the last one of a tensor may end a page. */
PACKED_INLINE unsigned packed_get(int bits, const unsigned char *bytes, int64_t at)
{
    const unsigned char *p = bytes + packed_byte(bits, at);
    const int shift = packed_shift(bits, at);
    const unsigned next = shift + bits > 8 ? p[1] : 0;
    return (p[0] | next << 8) >> shift & ((1u << bits) - 1);
}
PACKED_INLINE void packed_put(int bits, unsigned char *bytes, int64_t at, unsigned code)
{
    unsigned char *p = bytes + packed_byte(bits, at);
    const int shift = packed_shift(bits, at);
    const unsigned mask = ((1u << bits) - 1) << shift, word = code << shift & mask;
    p[0] = (unsigned char)((p[0] & ~mask) | word);
    if (shift + bits > 8) {
        p[1] = (unsigned char)((p[1] & ~(mask >> 8)) | word >> 8);
    }
}

#undef PACKED_INLINE

#endif
