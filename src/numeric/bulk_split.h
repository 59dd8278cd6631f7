/* Codes of six bits whose four low and two high bits lie in planes of their own. */
#ifndef SINTER_SRC_NUMERIC_BULK_SPLIT_H
#define SINTER_SRC_NUMERIC_BULK_SPLIT_H

#include "numeric/bulk.h"

TARGET static int64_t split_load(const float *magnitudes, const unsigned char *low,
                                 const unsigned char *high, int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + BLOCK <= n; i += BLOCK, low += BLOCK / 2, high += BLOCK / 4) {
        const v16u8 fours = (v16u8)unpack(4, block_load(4, low)).bytes,
                    twos = (v16u8)unpack(2, block_load(2, high)).bytes;
        const __m128i codes = (__m128i)(fours | twos << 4);
        EACH_VECTOR
        {
            vf_store(dst + i + h * LANES, six_to_vf(widen_8(codes, h), magnitudes));
        }
    }
    return i;
}

/* The same of planes that were loaded as numbers; dst may be low or high. */
TARGET static int64_t split_join(const float *magnitudes, const float *low, const float *high,
                                 int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        const vu code = vf_to_int(vf_load(low + i)) | vf_to_int(vf_load(high + i)) << 4;
        vf_store(dst + i, six_to_vf(code, magnitudes));
    }
    return i;
}

#endif
