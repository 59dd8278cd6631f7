/* Six-bit codes whose four low and two high bits lie in planes of their own. A code is a sign and
 * five bits of magnitude:
 *
 *     high plane  s m4       low plane  m3 m2 m1 m0       value = +-magnitude[m] */
#include "numeric/dtype.h"

#include <stddef.h>

#include "numeric/dtype_bits.h"
#include "numeric/dtype_bulk.h"
#include "numeric/packed.h"

static float value_of(const float *magnitudes, unsigned low, unsigned high)
{
    return f32_of_bits(bits_of_f32(magnitudes[low | (high & 1) << 4]) | high >> 1 << 31);
}

static void load_each(const float *magnitudes, const unsigned char *low, int64_t low_at,
                      const unsigned char *high, int64_t high_at, int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++, low_at++, high_at++) {
        dst[i] = value_of(magnitudes, packed_get(4, low, low_at), packed_get(2, high, high_at));
    }
}

/* Vectors begin where both planes are at the start of a byte; planes that never are together go
 * one by one. */
static void load_run(const split_vectors_t *isa, const float *magnitudes, const unsigned char *low,
                     int64_t low_first, const unsigned char *high, int64_t high_first, int64_t n,
                     float *dst)
{
    int64_t head = -high_first & 3, done = 0;
    head = head < n ? head : n;
    load_each(magnitudes, low, low_first, high, high_first, head, dst);
    if ((low_first + head) % 2 == 0) {
        done = isa->load(magnitudes, low + (low_first + head) / 2, high + (high_first + head) / 4,
                         n - head, dst + head);
    }
    done += head;
    load_each(magnitudes, low, low_first + done, high, high_first + done, n - done, dst + done);
}

static void join_run(const split_vectors_t *isa, const float *magnitudes, const float *low,
                     const float *high, int64_t n, float *dst)
{
    for (int64_t i = isa->join(magnitudes, low, high, n, dst); i < n; i++) {
        dst[i] = value_of(magnitudes, (unsigned)low[i], (unsigned)high[i]);
    }
}

/* ---- portable -------------------------------------------------------------------------------- */

static int64_t load_generic(const float *magnitudes, const unsigned char *low,
                            const unsigned char *high, int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4, low += 2, high++) {
        dst[i] = value_of(magnitudes, low[0] & 15, *high & 3);
        dst[i + 1] = value_of(magnitudes, low[0] >> 4, *high >> 2 & 3);
        dst[i + 2] = value_of(magnitudes, low[1] & 15, *high >> 4 & 3);
        dst[i + 3] = value_of(magnitudes, low[1] >> 4, *high >> 6);
    }
    return i;
}

static int64_t join_generic(const float *magnitudes, const float *low, const float *high, int64_t n,
                            float *dst)
{
    (void)magnitudes, (void)low, (void)high, (void)n, (void)dst;
    return 0;
}

static const split_vectors_t split_generic = {load_generic, join_generic};

/* ---- storing --------------------------------------------------------------------------------- */

/* Eight codes, their low four bits and their high two bits moved together: halves of pairs, of
 * fours, of all. */
static uint64_t eight_codes(const unsigned char *p)
{
    return p[0] | (uint64_t)p[1] << 8 | (uint64_t)p[2] << 16 | (uint64_t)p[3] << 24 |
           (uint64_t)p[4] << 32 | (uint64_t)p[5] << 40;
}

static uint32_t low_bits(uint64_t codes)
{
    uint64_t x = (codes & 0x00F00F00F00F) | (codes >> 2 & 0x0F00F00F00F0);
    x = (x & 0x0000FF0000FF) | (x >> 4 & 0x00FF0000FF00);
    return (uint32_t)((x & 0xFFFF) | (x >> 8 & 0xFFFF0000));
}

static uint32_t high_bits(uint64_t codes)
{
    uint64_t x = (codes >> 4 & 0x003003003003) | (codes >> 8 & 0x00C00C00C00C);
    x = (x & 0x00000F00000F) | (x >> 8 & 0x0000F00000F0);
    return (uint32_t)((x & 0xFF) | (x >> 16 & 0xFF00));
}

void dtype_part(const void *codes, int64_t n, void *low, int64_t low_first, int64_t low_stride,
                void *high, int64_t high_first, int64_t high_stride)
{
    const unsigned char *from = codes;
    unsigned char *l = low, *h = high;
    int64_t i = 0;
    if (low_stride == 1 && high_stride == 1 && low_first % 2 == 0 && high_first % 4 == 0) {
        l += low_first / 2;
        h += high_first / 4;
        for (; i + 8 <= n; i += 8, from += 6, l += 4, h += 2) {
            const uint64_t eight = eight_codes(from);
            const uint32_t x = low_bits(eight), y = high_bits(eight);
            for (int k = 0; k < 4; k++) {
                l[k] = (unsigned char)(x >> 8 * k);
            }
            h[0] = (unsigned char)y;
            h[1] = (unsigned char)(y >> 8);
        }
    }
    for (from = codes, l = low, h = high; i < n; i++) {
        const unsigned code = packed_get(6, from, i);
        packed_put(4, l, low_first + i * low_stride, code & 15);
        packed_put(2, h, high_first + i * high_stride, code >> 4);
    }
}

/* ---- choice ---------------------------------------------------------------------------------- */

#define SPLIT(type, isa)                                                                        \
    static void load_##type##_##isa(const void *low, int64_t low_first, const void *high,       \
                                    int64_t high_first, int64_t n, float *dst)                  \
    {                                                                                           \
        load_run(&split_##isa, magnitudes_##type, low, low_first, high, high_first, n, dst);    \
    }                                                                                           \
    static void join_##type##_##isa(const float *low, const float *high, int64_t n, float *dst) \
    {                                                                                           \
        join_run(&split_##isa, magnitudes_##type, low, high, n, dst);                           \
    }                                                                                           \
    static const dtype_split_t split_##type##_##isa = {load_##type##_##isa, join_##type##_##isa};

SPLIT(f6_e3m2, generic)
SPLIT(f6_e2m3, generic)
#if defined(__x86_64__)
SPLIT(f6_e3m2, avx2)
SPLIT(f6_e2m3, avx2)
SPLIT(f6_e3m2, avx512)
SPLIT(f6_e2m3, avx512)
#endif

const dtype_split_t *dtype_split(sinter_data_type_t type, features_t features)
{
    static const struct {
        features_t needs;
        sinter_data_type_t type;
        const dtype_split_t *split;
    } rows[] = {
#if defined(__x86_64__)
        {{NEEDS_AVX512}, sinter_f6_e3m2, &split_f6_e3m2_avx512},
        {{NEEDS_AVX512}, sinter_f6_e2m3, &split_f6_e2m3_avx512},
        {{NEEDS_AVX2}, sinter_f6_e3m2, &split_f6_e3m2_avx2},
        {{NEEDS_AVX2}, sinter_f6_e2m3, &split_f6_e2m3_avx2},
#endif
        {{NEEDS_NOTHING}, sinter_f6_e3m2, &split_f6_e3m2_generic},
        {{NEEDS_NOTHING}, sinter_f6_e2m3, &split_f6_e2m3_generic},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        if (rows[i].type == type && has_features(features, rows[i].needs.bits)) {
            return rows[i].split;
        }
    }
    return NULL;
}
