/* The functions of immintrin.h, which has the types. unit/test_emulated.c gives them other names. */
#ifndef EMULATED
#define EMULATED(name) name
#endif
#define FN static inline __attribute__((always_inline, unused))
#define EACH_OF(n) for (int i = 0; i < (n); i++)

typedef union any512 {
    __m512 f;
    __m512i i;
    __m512d d;
    __m256 half_f[2];
    __m256i half_i[2];
    __m256d half_d[2];
    __m128i quarter[4];
    float f32[16];
    double f64[8];
    int8_t s8[64];
    uint8_t u8[64];
    int16_t s16[32];
    uint16_t u16[32];
    int32_t s32[16];
    uint32_t u32[16];
    int64_t s64[8];
    uint64_t u64[8];
} any512;

FN any512 any_f(__m512 x)
{
    return (any512){.f = x};
}
FN any512 any_i(__m512i x)
{
    return (any512){.i = x};
}
FN any512 any_d(__m512d x)
{
    return (any512){.d = x};
}

/* Faults as the instruction would. */
FN void must_be_aligned(const void *p)
{
    if ((uintptr_t)p % 64 != 0) {
        __builtin_trap();
    }
}

/* ---- what AVX2 does to each half ------------------------------------------------------------- */

#define UNARY(type, letter, name)                                          \
    FN type EMULATED(_mm512_##name)(type x)                                \
    {                                                                      \
        any512 a = any_##letter(x);                                        \
        EACH_OF(2) a.half_##letter[i] = _mm256_##name(a.half_##letter[i]); \
        return a.letter;                                                   \
    }
#define BINARY(type, letter, name)                                                             \
    FN type EMULATED(_mm512_##name)(type x, type y)                                            \
    {                                                                                          \
        any512 a = any_##letter(x), b = any_##letter(y);                                       \
        EACH_OF(2) a.half_##letter[i] = _mm256_##name(a.half_##letter[i], b.half_##letter[i]); \
        return a.letter;                                                                       \
    }
#define BITWISE(name)                                                             \
    FN __m512i EMULATED(_mm512_##name##_si512)(__m512i x, __m512i y)              \
    {                                                                             \
        any512 a = any_i(x), b = any_i(y);                                        \
        EACH_OF(2) a.half_i[i] = _mm256_##name##_si256(a.half_i[i], b.half_i[i]); \
        return a.i;                                                               \
    }
#define TERNARY(type, letter, name)                                                    \
    FN type EMULATED(_mm512_##name)(type x, type y, type z)                            \
    {                                                                                  \
        any512 a = any_##letter(x), b = any_##letter(y), c = any_##letter(z);          \
        EACH_OF(2)                                                                     \
        a.half_##letter[i] =                                                           \
            _mm256_##name(a.half_##letter[i], b.half_##letter[i], c.half_##letter[i]); \
        return a.letter;                                                               \
    }
#define SHIFT(name)                                             \
    FN __m512i EMULATED(_mm512_##name)(__m512i x, int n)        \
    {                                                           \
        any512 a = any_i(x);                                    \
        EACH_OF(2) a.half_i[i] = _mm256_##name(a.half_i[i], n); \
        return a.i;                                             \
    }
BINARY(__m512, f, add_ps)
BINARY(__m512, f, sub_ps)
BINARY(__m512, f, mul_ps)
BINARY(__m512, f, div_ps)
BINARY(__m512, f, min_ps)
BINARY(__m512, f, max_ps)
BINARY(__m512, f, andnot_ps)
BINARY(__m512, f, unpacklo_ps)
BINARY(__m512, f, unpackhi_ps)
BINARY(__m512d, d, min_pd)
TERNARY(__m512, f, fmadd_ps)
TERNARY(__m512, f, fmsub_ps)
TERNARY(__m512, f, fnmadd_ps)
TERNARY(__m512d, d, fmadd_pd)
TERNARY(__m512d, d, fnmadd_pd)
UNARY(__m512i, i, abs_epi16)
BINARY(__m512i, i, add_epi8)
BINARY(__m512i, i, add_epi16)
BINARY(__m512i, i, add_epi32)
BINARY(__m512i, i, sub_epi8)
BINARY(__m512i, i, sub_epi16)
BINARY(__m512i, i, mullo_epi32)
BINARY(__m512i, i, madd_epi16)
BINARY(__m512i, i, maddubs_epi16)
BINARY(__m512i, i, avg_epu16)
BINARY(__m512i, i, min_epi8)
BINARY(__m512i, i, min_epu8)
BINARY(__m512i, i, min_epu16)
BINARY(__m512i, i, min_epu32)
BINARY(__m512i, i, max_epi8)
BINARY(__m512i, i, max_epi16)
BINARY(__m512i, i, max_epi32)
BINARY(__m512i, i, max_epu16)
BINARY(__m512i, i, max_epu32)
BINARY(__m512i, i, packs_epi16)
BINARY(__m512i, i, packs_epi32)
BINARY(__m512i, i, packus_epi16)
BINARY(__m512i, i, shuffle_epi8)
BINARY(__m512i, i, srlv_epi32)
BINARY(__m512i, i, unpacklo_epi8)
BINARY(__m512i, i, unpackhi_epi8)
BINARY(__m512i, i, unpacklo_epi16)
BINARY(__m512i, i, unpackhi_epi16)
BINARY(__m512i, i, unpacklo_epi32)
BINARY(__m512i, i, unpackhi_epi32)
BINARY(__m512i, i, unpacklo_epi64)
BINARY(__m512i, i, unpackhi_epi64)
BITWISE(and)
BITWISE(andnot)
BITWISE(or)
BITWISE(xor)
SHIFT(slli_epi16)
SHIFT(slli_epi32)
SHIFT(srai_epi16)
SHIFT(srai_epi32)
SHIFT(srli_epi16)
SHIFT(srli_epi32)

/* ---- constants ------------------------------------------------------------------------------- */

#define SET1(type, letter, name, element, field, n) \
    FN type EMULATED(_mm512_##name)(element x)      \
    {                                               \
        any512 a;                                   \
        EACH_OF(n) a.field[i] = x;                  \
        return a.letter;                            \
    }
SET1(__m512, f, set1_ps, float, f32, 16)
SET1(__m512d, d, set1_pd, double, f64, 8)
SET1(__m512i, i, set1_epi8, char, s8, 64)
SET1(__m512i, i, set1_epi16, short, s16, 32)
SET1(__m512i, i, set1_epi32, int, s32, 16)
SET1(__m512i, i, set1_epi64, long long, s64, 8)

FN __m512 EMULATED(_mm512_setzero_ps)(void)
{
    return (__m512){0};
}
FN __m512i EMULATED(_mm512_setzero_si512)(void)
{
    return (__m512i){0};
}
/* As many arguments as elements: macros, as many of the compiler's own are. */
#define emulated_setr_epi32(...) ((any512){.s32 = {__VA_ARGS__}}.i)
#define emulated_setr_epi64(...) ((any512){.s64 = {__VA_ARGS__}}.i)
#define emulated_set4_epi32(d, c, b, a) \
    ((any512){.s32 = {a, b, c, d, a, b, c, d, a, b, c, d, a, b, c, d}}.i)
FN __m512i emulated_reversed_words(any512 x)
{
    any512 a;
    EACH_OF(32) a.s16[i] = x.s16[31 - i];
    return a.i;
}
#define emulated_set_epi16(...) emulated_reversed_words((any512){.s16 = {__VA_ARGS__}})
#ifndef EMULATED_ASIDE
#define _mm512_setr_epi32 emulated_setr_epi32
#define _mm512_setr_epi64 emulated_setr_epi64
#define _mm512_set4_epi32 emulated_set4_epi32
#define _mm512_set_epi16 emulated_set_epi16
#endif

/* ---- registers of other kinds and widths ----------------------------------------------------- */

FN __m512i EMULATED(_mm512_castps_si512)(__m512 x)
{
    return (__m512i)x;
}
FN __m512 EMULATED(_mm512_castsi512_ps)(__m512i x)
{
    return (__m512)x;
}
FN __m256 EMULATED(_mm512_castps512_ps256)(__m512 x)
{
    return any_f(x).half_f[0];
}
FN __m256i EMULATED(_mm512_castsi512_si256)(__m512i x)
{
    return any_i(x).half_i[0];
}
/* What is above is undefined: ones, which would show. */
FN any512 emulated_ones(void)
{
    any512 a;
    memset(&a, 0xff, sizeof a);
    return a;
}
FN __m512 EMULATED(_mm512_castps256_ps512)(__m256 x)
{
    any512 a = emulated_ones();
    a.half_f[0] = x;
    return a.f;
}
FN __m512 EMULATED(_mm512_castps128_ps512)(__m128 x)
{
    any512 a = emulated_ones();
    a.quarter[0] = (__m128i)x;
    return a.f;
}
FN __m512i EMULATED(_mm512_castsi256_si512)(__m256i x)
{
    any512 a = emulated_ones();
    a.half_i[0] = x;
    return a.i;
}
FN __m256 EMULATED(_mm512_extractf32x8_ps)(__m512 x, int at)
{
    return any_f(x).half_f[at];
}
FN __m256i EMULATED(_mm512_extracti64x4_epi64)(__m512i x, int at)
{
    return any_i(x).half_i[at];
}
FN __m512 EMULATED(_mm512_insertf32x8)(__m512 x, __m256 y, int at)
{
    any512 a = any_f(x);
    a.half_f[at] = y;
    return a.f;
}
FN __m512i EMULATED(_mm512_broadcast_i32x4)(__m128i x)
{
    any512 a;
    EACH_OF(4) a.quarter[i] = x;
    return a.i;
}
FN __m512 EMULATED(_mm512_broadcast_f32x4)(__m128 x)
{
    return (__m512)EMULATED(_mm512_broadcast_i32x4)((__m128i)x);
}
FN __m512i EMULATED(_mm512_broadcast_i64x4)(__m256i x)
{
    return (any512){.half_i = {x, x}}.i;
}

/* ---- memory ---------------------------------------------------------------------------------- */

FN __m512 EMULATED(_mm512_loadu_ps)(const void *p)
{
    any512 a;
    memcpy(&a, p, sizeof a);
    return a.f;
}
FN __m512i EMULATED(_mm512_loadu_si512)(const void *p)
{
    any512 a;
    memcpy(&a, p, sizeof a);
    return a.i;
}
FN void EMULATED(_mm512_storeu_ps)(void *p, __m512 x)
{
    memcpy(p, &x, sizeof x);
}
FN void EMULATED(_mm512_storeu_si512)(void *p, __m512i x)
{
    memcpy(p, &x, sizeof x);
}
FN void EMULATED(_mm512_stream_si512)(void *p, __m512i x)
{
    must_be_aligned(p);
    EACH_OF(2) _mm256_stream_si256((__m256i *)p + i, any_i(x).half_i[i]);
}
FN void EMULATED(_mm512_stream_ps)(void *p, __m512 x)
{
    EMULATED(_mm512_stream_si512)(p, (__m512i)x);
}

/* Elements under a mask, one after the other. */
#define MASKED_LOAD(type, name, mask, field, n, result)                                          \
    FN type EMULATED(name)(mask m, const void *p)                                                \
    {                                                                                            \
        any512 a = {.i = {0}};                                                                   \
        EACH_OF(n)                                                                               \
        {                                                                                        \
            if (m >> i & 1) {                                                                    \
                memcpy(&a.field[i], (const char *)p + i * sizeof a.field[i], sizeof a.field[i]); \
            }                                                                                    \
        }                                                                                        \
        return a.result;                                                                         \
    }
#define MASKED_STORE(type, name, mask, field, n, whole)                                    \
    FN void EMULATED(name)(void *p, mask m, type x)                                        \
    {                                                                                      \
        any512 a;                                                                          \
        a.whole = x;                                                                       \
        EACH_OF(n)                                                                         \
        {                                                                                  \
            if (m >> i & 1) {                                                              \
                memcpy((char *)p + i * sizeof a.field[i], &a.field[i], sizeof a.field[i]); \
            }                                                                              \
        }                                                                                  \
    }
MASKED_LOAD(__m512, _mm512_maskz_loadu_ps, __mmask16, f32, 16, f)
MASKED_LOAD(__m512i, _mm512_maskz_loadu_epi32, __mmask16, s32, 16, i)
MASKED_LOAD(__m512i, _mm512_maskz_loadu_epi8, __mmask64, s8, 64, i)
MASKED_LOAD(__m256i, _mm256_maskz_loadu_epi16, __mmask16, s16, 16, half_i[0])
MASKED_LOAD(__m128i, _mm_maskz_loadu_epi8, __mmask16, s8, 16, quarter[0])
MASKED_STORE(__m512, _mm512_mask_storeu_ps, __mmask16, f32, 16, f)
MASKED_STORE(__m256i, _mm256_mask_storeu_epi16, __mmask16, s16, 16, half_i[0])
MASKED_STORE(__m128i, _mm_mask_storeu_epi8, __mmask16, s8, 16, quarter[0])

FN __m512 EMULATED(_mm512_i32gather_ps)(__m512i at, const void *p, int scale)
{
    any512 a;
    EACH_OF(16)
    memcpy(&a.f32[i], (const char *)p + (int64_t)any_i(at).s32[i] * scale, sizeof(float));
    return a.f;
}

/* ---- masks ----------------------------------------------------------------------------------- */

#define COMPARE(name, mask, field, n, comparison)                \
    FN mask EMULATED(_mm512_##name##_mask)(__m512i x, __m512i y) \
    {                                                            \
        const any512 a = any_i(x), b = any_i(y);                 \
        mask m = 0;                                              \
        EACH_OF(n) m |= (mask)(comparison) << i;                 \
        return m;                                                \
    }
COMPARE(cmpeq_epi8, __mmask64, s8, 64, a.s8[i] == b.s8[i])
COMPARE(cmpeq_epi16, __mmask32, s16, 32, a.s16[i] == b.s16[i])
COMPARE(cmpeq_epi32, __mmask16, s32, 16, a.s32[i] == b.s32[i])
COMPARE(cmpgt_epi32, __mmask16, s32, 16, a.s32[i] > b.s32[i])
COMPARE(cmplt_epu32, __mmask16, u32, 16, a.u32[i] < b.u32[i])
COMPARE(test_epi16, __mmask32, s16, 32, (a.s16[i] & b.s16[i]) != 0)

FN __mmask16 EMULATED(_mm512_cmp_ps_mask)(__m512 x, __m512 y, const int how)
{
    const any512 a = any_f(x), b = any_f(y);
    return (__mmask16)(_mm256_movemask_ps(_mm256_cmp_ps(a.half_f[0], b.half_f[0], how)) |
                       _mm256_movemask_ps(_mm256_cmp_ps(a.half_f[1], b.half_f[1], how)) << 8);
}
FN __mmask32 EMULATED(_mm512_kunpackw)(__mmask32 high, __mmask32 low)
{
    return high << 16 | (low & 0xffff);
}

FN __m512i emulated_words(__mmask32 m, __m512i set, __m512i clear)
{
    any512 a = any_i(clear);
    EACH_OF(32) a.s16[i] = m >> i & 1 ? any_i(set).s16[i] : a.s16[i];
    return a.i;
}
FN __m512i emulated_dwords(__mmask16 m, __m512i set, __m512i clear)
{
    any512 a = any_i(clear);
    EACH_OF(16) a.s32[i] = m >> i & 1 ? any_i(set).s32[i] : a.s32[i];
    return a.i;
}
FN __m512 emulated_floats(__mmask16 m, __m512 set, __m512 clear)
{
    return (__m512)emulated_dwords(m, (__m512i)set, (__m512i)clear);
}
FN __m512i EMULATED(_mm512_mask_mov_epi16)(__m512i x, __mmask32 m, __m512i y)
{
    return emulated_words(m, y, x);
}
FN __m512i EMULATED(_mm512_mask_blend_epi16)(__mmask32 m, __m512i x, __m512i y)
{
    return emulated_words(m, y, x);
}
FN __m512i EMULATED(_mm512_mask_mov_epi32)(__m512i x, __mmask16 m, __m512i y)
{
    return emulated_dwords(m, y, x);
}
FN __m512i EMULATED(_mm512_mask_set1_epi32)(__m512i x, __mmask16 m, int y)
{
    return emulated_dwords(m, EMULATED(_mm512_set1_epi32)(y), x);
}
FN __m512i EMULATED(_mm512_mask_or_epi32)(__m512i x, __mmask16 m, __m512i y, __m512i z)
{
    return emulated_dwords(m, EMULATED(_mm512_or_si512)(y, z), x);
}
FN __m512 EMULATED(_mm512_mask_mov_ps)(__m512 x, __mmask16 m, __m512 y)
{
    return emulated_floats(m, y, x);
}
FN __m512 EMULATED(_mm512_maskz_mov_ps)(__mmask16 m, __m512 x)
{
    return emulated_floats(m, x, EMULATED(_mm512_setzero_ps)());
}
FN __m512 EMULATED(_mm512_mask_add_ps)(__m512 x, __mmask16 m, __m512 y, __m512 z)
{
    return emulated_floats(m, EMULATED(_mm512_add_ps)(y, z), x);
}
FN __m512 EMULATED(_mm512_mask_loadu_ps)(__m512 x, __mmask16 m, const void *p)
{
    return emulated_floats(m, EMULATED(_mm512_maskz_loadu_ps)(m, p), x);
}

/* ---- permutes -------------------------------------------------------------------------------- */

FN __m512i EMULATED(_mm512_shuffle_i32x4)(__m512i x, __m512i y, int how)
{
    any512 a;
    EACH_OF(4) a.quarter[i] = any_i(i < 2 ? x : y).quarter[how >> 2 * i & 3];
    return a.i;
}
FN __m512i EMULATED(_mm512_shuffle_i64x2)(__m512i x, __m512i y, int how)
{
    return EMULATED(_mm512_shuffle_i32x4)(x, y, how);
}
FN __m512 EMULATED(_mm512_shuffle_f32x4)(__m512 x, __m512 y, int how)
{
    return (__m512)EMULATED(_mm512_shuffle_i32x4)((__m512i)x, (__m512i)y, how);
}
FN __m512 EMULATED(_mm512_shuffle_ps)(__m512 x, __m512 y, int how)
{
    any512 a;
    EACH_OF(16) a.f32[i] = any_f(i % 4 < 2 ? x : y).f32[(i & ~3) + (how >> 2 * (i % 4) & 3)];
    return a.f;
}

#define PERMUTE(name, field, index, n)                                    \
    FN __m512i EMULATED(_mm512_permutexvar_##name)(__m512i at, __m512i x) \
    {                                                                     \
        const any512 from = any_i(x), to = any_i(at);                     \
        any512 a;                                                         \
        EACH_OF(n) a.field[i] = from.field[to.index[i] & ((n)-1)];        \
        return a.i;                                                       \
    }
#define PERMUTE2(name, field, n)                                                        \
    FN __m512i EMULATED(_mm512_permutex2var_##name)(__m512i x, __m512i at, __m512i y)   \
    {                                                                                   \
        const any512 from[2] = {any_i(x), any_i(y)}, to = any_i(at);                    \
        any512 a;                                                                       \
        EACH_OF(n) a.field[i] = from[to.field[i] / (n)&1].field[to.field[i] & ((n)-1)]; \
        return a.i;                                                                     \
    }
PERMUTE(epi16, u16, u16, 32)
PERMUTE(epi32, u32, u32, 16)
PERMUTE(epi64, u64, u64, 8)
PERMUTE2(epi16, u16, 32)
PERMUTE2(epi32, u32, 16)
FN __m512 EMULATED(_mm512_permutexvar_ps)(__m512i at, __m512 x)
{
    return (__m512)EMULATED(_mm512_permutexvar_epi32)(at, (__m512i)x);
}
FN __m512 EMULATED(_mm512_permutex2var_ps)(__m512 x, __m512i at, __m512 y)
{
    return (__m512)EMULATED(_mm512_permutex2var_epi32)((__m512i)x, at, (__m512i)y);
}
FN __m512i EMULATED(_mm512_maskz_permutexvar_epi16)(__mmask32 m, __m512i at, __m512i x)
{
    return emulated_words(m, EMULATED(_mm512_permutexvar_epi16)(at, x), (__m512i){0});
}
FN __m512i EMULATED(_mm512_maskz_permutex2var_epi16)(__mmask32 m, __m512i x, __m512i at, __m512i y)
{
    return emulated_words(m, EMULATED(_mm512_permutex2var_epi16)(x, at, y), (__m512i){0});
}

/* ---- integers -------------------------------------------------------------------------------- */

FN __m512i EMULATED(_mm512_srlv_epi16)(__m512i x, __m512i n)
{
    any512 a = any_i(x);
    EACH_OF(32) a.u16[i] = any_i(n).u16[i] > 15 ? 0 : (uint16_t)(a.u16[i] >> any_i(n).u16[i]);
    return a.i;
}
FN __m512i EMULATED(_mm512_ternarylogic_epi32)(__m512i x, __m512i y, __m512i z, int table)
{
    __m512i a = {0};
    for (int k = 0; k < 8; k++) { /* where the bits of x, y and z are those of k */
        if (table >> k & 1) {
            a |= (k & 4 ? x : ~x) & (k & 2 ? y : ~y) & (k & 1 ? z : ~z);
        }
    }
    return a;
}
FN int EMULATED(_mm512_reduce_add_epi32)(__m512i x)
{
    uint32_t sum = 0;
    EACH_OF(16) sum += any_i(x).u32[i];
    return (int)sum;
}
FN int EMULATED(_mm512_reduce_max_epi32)(__m512i x)
{
    int most = INT32_MIN;
    EACH_OF(16) most = any_i(x).s32[i] > most ? any_i(x).s32[i] : most;
    return most;
}
/* sum += four products of unsigned and signed bytes, or two of signed words, in each dword. */
FN __m512i EMULATED(_mm512_dpbusd_epi32)(__m512i sum, __m512i u, __m512i s)
{
    any512 a = any_i(sum);
    EACH_OF(64) a.u32[i / 4] += (uint32_t)(any_i(u).u8[i] * any_i(s).s8[i]);
    return a.i;
}
FN __m512i EMULATED(_mm512_dpwssd_epi32)(__m512i sum, __m512i x, __m512i y)
{
    any512 a = any_i(sum);
    EACH_OF(32) a.u32[i / 2] += (uint32_t)(any_i(x).s16[i] * any_i(y).s16[i]);
    return a.i;
}

/* ---- conversions ----------------------------------------------------------------------------- */

#define WIDEN(name, part, from, to, n)         \
    FN __m512i EMULATED(_mm512_##name)(part x) \
    {                                          \
        any512 a, b;                           \
        memcpy(&b, &x, sizeof x);              \
        EACH_OF(n) a.to[i] = b.from[i];        \
        return a.i;                            \
    }
WIDEN(cvtepi8_epi16, __m256i, s8, s16, 32)
WIDEN(cvtepi8_epi32, __m128i, s8, s32, 16)
WIDEN(cvtepu8_epi32, __m128i, u8, s32, 16)
WIDEN(cvtepu16_epi32, __m256i, u16, s32, 16)
FN __m256i EMULATED(_mm512_cvtepi32_epi16)(__m512i x)
{
    any512 a;
    EACH_OF(16) a.u16[i] = (uint16_t)any_i(x).u32[i];
    return a.half_i[0];
}
FN __m128i EMULATED(_mm512_cvtepi32_epi8)(__m512i x)
{
    any512 a;
    EACH_OF(16) a.u8[i] = (uint8_t)any_i(x).u32[i];
    return a.quarter[0];
}
FN __m512 EMULATED(_mm512_cvtepi32_ps)(__m512i x)
{
    any512 a = any_i(x);
    EACH_OF(2) a.half_f[i] = _mm256_cvtepi32_ps(a.half_i[i]);
    return a.f;
}
FN __m512i EMULATED(_mm512_cvtps_epi32)(__m512 x)
{
    any512 a = any_f(x);
    EACH_OF(2) a.half_i[i] = _mm256_cvtps_epi32(a.half_f[i]);
    return a.i;
}
FN __m512 EMULATED(_mm512_roundscale_ps)(__m512 x, const int how)
{
    any512 a = any_f(x); /* how: no digits behind the point, which is all that is asked for */
    EACH_OF(2) a.half_f[i] = _mm256_round_ps(a.half_f[i], how);
    return a.f;
}
FN __m512i EMULATED(_mm512_cvt_roundps_epi32)(__m512 x, const int how)
{
    return EMULATED(_mm512_cvtps_epi32)(EMULATED(_mm512_roundscale_ps)(x, how));
}
FN __m512 EMULATED(_mm512_cvtph_ps)(__m256i x)
{
    any512 a, b = {.half_i = {x}};
    EACH_OF(2) a.half_f[i] = _mm256_cvtph_ps(b.quarter[i]);
    return a.f;
}
FN __m256i EMULATED(_mm512_cvtps_ph)(__m512 x, const int how)
{
    any512 a;
    EACH_OF(2) a.quarter[i] = _mm256_cvtps_ph(any_f(x).half_f[i], how);
    return a.half_i[0];
}
FN __m512d EMULATED(_mm512_cvtps_pd)(__m256 x)
{
    any512 a, b = {.half_f = {x}};
    EACH_OF(2) a.half_d[i] = _mm256_cvtps_pd((__m128)b.quarter[i]);
    return a.d;
}
FN __m256 EMULATED(_mm512_cvtpd_ps)(__m512d x)
{
    any512 a;
    EACH_OF(2) a.quarter[i] = (__m128i)_mm256_cvtpd_ps(any_d(x).half_d[i]);
    return a.half_f[0];
}
/* To nearest even; subnormals are zeros, before and after. */
FN uint16_t emulated_bf16(uint32_t x)
{
    if ((x & 0x7fffffff) > 0x7f800000) {
        return (uint16_t)(x >> 16 | 0x40);
    }
    if ((x & 0x7f800000) == 0) {
        return (uint16_t)(x >> 16 & 0x8000);
    }
    return (uint16_t)((x + 0x7fff + (x >> 16 & 1)) >> 16);
}
FN __m256i EMULATED(_mm512_cvtneps_pbh)(__m512 x)
{
    any512 a;
    EACH_OF(16) a.u16[i] = emulated_bf16(any_f(x).u32[i]);
    return a.half_i[0];
}

/* ---- floats ---------------------------------------------------------------------------------- */

enum { MAGNITUDE_BITS = 0x7fffffff, QUIET_BIT = 0x400000, INFINITY_BITS = 0x7f800000 };

/* x 2^floor(y), rounded once: a double holds the product exactly, beyond 2^300 the result is the
 * same. A quiet NaN times 2^infinity is infinite, times 2^-infinity 0. */
FN __m512 EMULATED(_mm512_scalef_ps)(__m512 x, __m512 y)
{
    any512 a = any_f(x);
    EACH_OF(16)
    {
        const double most = 300, n = __builtin_floor(any_f(y).f32[i]);
        const int64_t whole = (int64_t)(n > most ? most : n < -most ? -most : n == n ? n : 0);
        const uint64_t bits = (uint64_t)(whole + 1023) << 52;
        const int infinite = n == __builtin_inf() || n == -__builtin_inf();
        const uint32_t u = a.u32[i] & MAGNITUDE_BITS;
        double by;
        memcpy(&by, &bits, sizeof by);
        by = infinite ? (n > 0 ? n : 0) : n == n ? by : n;
        a.f32[i] = infinite && u > INFINITY_BITS && (u & QUIET_BIT) != 0 ? (float)by
                                                                         : (float)(a.f32[i] * by);
    }
    return a.f;
}

/* What an instruction takes for the bits of a float where MXCSR says that subnormals are zeros. */
FN uint32_t emulated_operand(uint32_t x)
{
    const int zeros = (_mm_getcsr() & 0x40) != 0;
    return zeros && (x & INFINITY_BITS) == 0 ? x & ~(uint32_t)MAGNITUDE_BITS : x;
}
/* how: 0xA, the only one in use, is the one with the smaller magnitude, without its sign. */
FN __m512 EMULATED(_mm512_range_ps)(__m512 x, __m512 y, const int how)
{
    if (how != 0xA) {
        __builtin_trap();
    }
    any512 a = any_f(x), b = any_f(y);
    EACH_OF(16)
    {
        const uint32_t u = emulated_operand(a.u32[i]) & MAGNITUDE_BITS,
                       v = emulated_operand(b.u32[i]) & MAGNITUDE_BITS;
        const int nan_u = u > INFINITY_BITS, nan_v = v > INFINITY_BITS;
        if (nan_u && (u & QUIET_BIT) == 0) {
            a.u32[i] |= QUIET_BIT;
        } else if (nan_v && (v & QUIET_BIT) == 0) {
            a.u32[i] = b.u32[i] | QUIET_BIT;
        } else {
            a.u32[i] = nan_v || (!nan_u && u <= v) ? u : v;
        }
    }
    return a.f;
}
FN float EMULATED(_mm512_reduce_max_ps)(__m512 x)
{
    const __m256 y = _mm256_max_ps(any_f(x).half_f[1], any_f(x).half_f[0]);
    const __m128 z = _mm_max_ps(_mm256_extractf128_ps(y, 1), _mm256_castps256_ps128(y)),
                 w = _mm_max_ps(z, _mm_shuffle_ps(z, z, 0x4e));
    return _mm_cvtss_f32(_mm_max_ps(w, _mm_shuffle_ps(w, w, 0xb1)));
}
