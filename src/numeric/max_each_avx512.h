/* For files of this ISA: includes come from them. */
#ifndef SINTER_SRC_MAX_EACH_AVX512_H
#define SINTER_SRC_MAX_EACH_AVX512_H

/* Lane i: the largest dword of v[i]. A tree: each level folds two vectors into one that holds
 * half as many lanes of each. */
#define MAX_EACH(name, max)                                                                 \
    OP __m512i name(const __m512i *v)                                                       \
    {                                                                                       \
        __m512i a[8], b[4];                                                                 \
        for (int i = 0; i < 8; i++) { /* 128-bit lanes of v[i], v[i], v[i + 8], v[i + 8] */ \
            a[i] = max(_mm512_shuffle_i64x2(v[i], v[i + 8], 0x44),                          \
                       _mm512_shuffle_i64x2(v[i], v[i + 8], 0xee));                         \
        }                                                                                   \
        for (int i = 0; i < 4; i++) { /* of v[i], v[i + 8], v[i + 4], v[i + 12] */          \
            b[i] = max(_mm512_shuffle_i64x2(a[i], a[i + 4], 0x88),                          \
                       _mm512_shuffle_i64x2(a[i], a[i + 4], 0xdd));                         \
        }                                                                                   \
        const __m512i even =                                                                \
            max(_mm512_unpacklo_epi32(b[0], b[1]), _mm512_unpackhi_epi32(b[0], b[1]));      \
        const __m512i odd =                                                                 \
            max(_mm512_unpacklo_epi32(b[2], b[3]), _mm512_unpackhi_epi32(b[2], b[3]));      \
        const __m512i all =                                                                 \
            max(_mm512_unpacklo_epi64(even, odd), _mm512_unpackhi_epi64(even, odd));        \
        return _mm512_shuffle_i64x2(all, all, 0xd8);                                        \
    }
MAX_EACH(max_each_epi32, _mm512_max_epi32)
MAX_EACH(max_each_epu32, _mm512_max_epu32)

#endif
