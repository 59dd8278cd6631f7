/* Six-bit codes whose four low and two high bits lie in planes of their own. A code is a sign and
 * five bits of magnitude:
 *
 *     high plane  s m4       low plane  m3 m2 m1 m0       value = +-magnitude[m] */
#include "numeric/dtype.h"

#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

typedef const float magnitudes_t[32];

static magnitudes_t magnitudes_f6_e3m2 = {
    0,      0.0625f, 0.125f, 0.1875f, 0.25f, 0.3125f, 0.375f, 0.4375f, 0.5f, 0.625f, 0.75f,
    0.875f, 1,       1.25f,  1.5f,    1.75f, 2,       2.5f,   3,       3.5f, 4,      5,
    6,      7,       8,      10,      12,    14,      16,     20,      24,   28};
static magnitudes_t magnitudes_f6_e2m3 = {0, 0.125f, 0.25f, 0.375f, 0.5f, 0.625f, 0.75f, 0.875f,
                                          1, 1.125f, 1.25f, 1.375f, 1.5f, 1.625f, 1.75f, 1.875f,
                                          2, 2.25f,  2.5f,  2.75f,  3,    3.25f,  3.5f,  3.75f,
                                          4, 4.5f,   5,     5.5f,   6,    6.5f,   7,     7.5f};

/* What one ISA has: runs of whole vectors (of bytes, in the portable form), returning how many
 * elements they did. */
typedef int64_t load_vectors_t(magnitudes_t table, const unsigned char *low,
                               const unsigned char *high, int64_t n, float *dst);
typedef int64_t join_vectors_t(magnitudes_t table, const float *low, const float *high, int64_t n,
                               float *dst);

static float value_of(magnitudes_t table, unsigned low, unsigned high)
{
    const uint32_t sign = high >> 1 << 31;
    uint32_t bits;
    float value = table[low | (high & 1) << 4];
    memcpy(&bits, &value, sizeof bits);
    bits |= sign;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static void load_each(magnitudes_t table, const unsigned char *low, int64_t low_at,
                      const unsigned char *high, int64_t high_at, int64_t n, float *dst)
{
    for (int64_t i = 0; i < n; i++, low_at++, high_at++) {
        dst[i] = value_of(table, low[low_at / 2] >> low_at % 2 * 4 & 15,
                          high[high_at / 4] >> high_at % 4 * 2 & 3);
    }
}

/* Vectors begin where both planes are at the start of a byte; planes that never are together go
 * one by one. */
static inline void load_run(load_vectors_t *vectors, magnitudes_t table, const unsigned char *low,
                            int64_t low_first, const unsigned char *high, int64_t high_first,
                            int64_t n, float *dst)
{
    int64_t head = -high_first & 3, done = 0;
    head = head < n ? head : n;
    load_each(table, low, low_first, high, high_first, head, dst);
    if ((low_first + head) % 2 == 0) {
        done = vectors(table, low + (low_first + head) / 2, high + (high_first + head) / 4,
                       n - head, dst + head);
    }
    done += head;
    load_each(table, low, low_first + done, high, high_first + done, n - done, dst + done);
}

static inline void join_run(join_vectors_t *vectors, magnitudes_t table, const float *low,
                            const float *high, int64_t n, float *dst)
{
    for (int64_t i = vectors(table, low, high, n, dst); i < n; i++) {
        dst[i] = value_of(table, (unsigned)low[i], (unsigned)high[i]);
    }
}

/* ---- portable -------------------------------------------------------------------------------- */

static int64_t load_generic(magnitudes_t table, const unsigned char *low, const unsigned char *high,
                            int64_t n, float *dst)
{
    int64_t i = 0;
    for (; i + 4 <= n; i += 4, low += 2, high++) {
        dst[i] = value_of(table, low[0] & 15, *high & 3);
        dst[i + 1] = value_of(table, low[0] >> 4, *high >> 2 & 3);
        dst[i + 2] = value_of(table, low[1] & 15, *high >> 4 & 3);
        dst[i + 3] = value_of(table, low[1] >> 4, *high >> 6);
    }
    return i;
}

static int64_t join_generic(magnitudes_t table, const float *low, const float *high, int64_t n,
                            float *dst)
{
    (void)table, (void)low, (void)high, (void)n, (void)dst;
    return 0;
}

#if defined(__x86_64__)

static inline uint32_t load_u16(const unsigned char *p)
{
    return p[0] | (uint32_t)p[1] << 8;
}

static inline uint32_t load_u32(const unsigned char *p)
{
    return load_u16(p) | load_u16(p + 2) << 16;
}

/* ---- AVX2 ------------------------------------------------------------------------------------ */

#define AVX2 __attribute__((target("avx2")))

/* The codes' bits are the lowest of each lane, with anything above them. A permute sees three
 * bits, blends choose by the other two. */
AVX2 static inline __m256 values_avx2(const __m256 *table, __m256i low, __m256i high)
{
    const __m256 m3 = _mm256_castsi256_ps(_mm256_slli_epi32(low, 28)),
                 m4 = _mm256_castsi256_ps(_mm256_slli_epi32(high, 31));
    const __m256 below = _mm256_blendv_ps(_mm256_permutevar8x32_ps(table[0], low),
                                          _mm256_permutevar8x32_ps(table[1], low), m3);
    const __m256 above = _mm256_blendv_ps(_mm256_permutevar8x32_ps(table[2], low),
                                          _mm256_permutevar8x32_ps(table[3], low), m3);
    const __m256i sign = _mm256_slli_epi32(_mm256_srli_epi32(high, 1), 31);
    return _mm256_or_ps(_mm256_blendv_ps(below, above, m4), _mm256_castsi256_ps(sign));
}

AVX2 static inline void table_avx2(magnitudes_t table, __m256 *t)
{
    for (int i = 0; i < 4; i++) {
        t[i] = _mm256_loadu_ps(table + 8 * i);
    }
}

AVX2 static int64_t load_avx2(magnitudes_t table, const unsigned char *low,
                              const unsigned char *high, int64_t n, float *dst)
{
    const __m256i nibble = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28),
                  pair = _mm256_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14);
    __m256 t[4];
    int64_t i = 0;
    table_avx2(table, t);
    for (; i + 8 <= n; i += 8, low += 4, high += 2) {
        const __m256i l = _mm256_srlv_epi32(_mm256_set1_epi32((int)load_u32(low)), nibble);
        const __m256i h = _mm256_srlv_epi32(_mm256_set1_epi32((int)load_u16(high)), pair);
        _mm256_storeu_ps(dst + i, values_avx2(t, l, h));
    }
    return i;
}

AVX2 static int64_t join_avx2(magnitudes_t table, const float *low, const float *high, int64_t n,
                              float *dst)
{
    __m256 t[4];
    int64_t i = 0;
    table_avx2(table, t);
    for (; i + 8 <= n; i += 8) {
        const __m256i l = _mm256_cvtps_epi32(_mm256_loadu_ps(low + i)),
                      h = _mm256_cvtps_epi32(_mm256_loadu_ps(high + i));
        _mm256_storeu_ps(dst + i, values_avx2(t, l, h));
    }
    return i;
}

/* ---- AVX-512 --------------------------------------------------------------------------------- */

#define AVX512 __attribute__((target("avx512f")))

/* As above; the permute of two tables sees five bits. */
AVX512 static inline __m512 values_avx512(__m512 below, __m512 above, __m512i low, __m512i high)
{
    const __m512i code =
        _mm512_or_si512(_mm512_and_si512(low, _mm512_set1_epi32(15)), _mm512_slli_epi32(high, 4));
    const __m512i sign = _mm512_slli_epi32(_mm512_srli_epi32(high, 1), 31);
    return _mm512_castsi512_ps(
        _mm512_or_si512(_mm512_castps_si512(_mm512_permutex2var_ps(below, code, above)), sign));
}

AVX512 static int64_t load_avx512(magnitudes_t table, const unsigned char *low,
                                  const unsigned char *high, int64_t n, float *dst)
{
    const __m512 below = _mm512_loadu_ps(table), above = _mm512_loadu_ps(table + 16);
    const __m512i nibble =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i pair =
        _mm512_setr_epi32(0, 2, 4, 6, 8, 10, 12, 14, 16, 18, 20, 22, 24, 26, 28, 30);
    const __m512i half = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16, low += 8, high += 4) {
        const __m512i bytes =
            _mm512_castsi128_si512(_mm_loadl_epi64((const __m128i *)(const void *)low));
        const __m512i l = _mm512_srlv_epi32(_mm512_permutexvar_epi32(half, bytes), nibble);
        const __m512i h = _mm512_srlv_epi32(_mm512_set1_epi32((int)load_u32(high)), pair);
        _mm512_storeu_ps(dst + i, values_avx512(below, above, l, h));
    }
    return i;
}

AVX512 static int64_t join_avx512(magnitudes_t table, const float *low, const float *high,
                                  int64_t n, float *dst)
{
    const __m512 below = _mm512_loadu_ps(table), above = _mm512_loadu_ps(table + 16);
    int64_t i = 0;
    for (; i + 16 <= n; i += 16) {
        const __m512i l = _mm512_cvtps_epi32(_mm512_loadu_ps(low + i)),
                      h = _mm512_cvtps_epi32(_mm512_loadu_ps(high + i));
        _mm512_storeu_ps(dst + i, values_avx512(below, above, l, h));
    }
    return i;
}

#endif

/* ---- storing --------------------------------------------------------------------------------- */

static void put_bits(unsigned char *plane, int64_t at, int bits, unsigned value)
{
    const int shift = (int)(at % (8 / bits)) * bits;
    unsigned char *byte = &plane[at / (8 / bits)];
    *byte = (unsigned char)((*byte & ~(((1u << bits) - 1) << shift)) | value << shift);
}

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
        const int64_t bit = i * 6;
        const unsigned next = bit % 8 > 2 ? from[bit / 8 + 1] : 0,
                       code = (from[bit / 8] | next << 8) >> bit % 8 & 63;
        put_bits(l, low_first + i * low_stride, 4, code & 15);
        put_bits(h, high_first + i * high_stride, 2, code >> 4);
    }
}

/* ---- choice ---------------------------------------------------------------------------------- */

#define SPLIT(type, isa)                                                                        \
    static void load_##type##_##isa(const void *low, int64_t low_first, const void *high,       \
                                    int64_t high_first, int64_t n, float *dst)                  \
    {                                                                                           \
        load_run(load_##isa, magnitudes_##type, low, low_first, high, high_first, n, dst);      \
    }                                                                                           \
    static void join_##type##_##isa(const float *low, const float *high, int64_t n, float *dst) \
    {                                                                                           \
        join_run(join_##isa, magnitudes_##type, low, high, n, dst);                             \
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
