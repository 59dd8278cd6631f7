/* Decoding and storing of pairs of blocks, 32 elements, with AVX-512, and tables of all results of
 * a group of codes of four bits: what bulk_stream.h is made of.
 *
 * Codes look up words, 32 at a time: the upper halves of floats whose lower halves are zero. */
#ifndef SINTER_SRC_NUMERIC_BULK_PAIRS_AVX512_H
#define SINTER_SRC_NUMERIC_BULK_PAIRS_AVX512_H

#include "numeric/simd_avx512.h"

#include "numeric/bulk.h"

typedef uint16_t v32u16 __attribute__((vector_size(64)));

/* ---- decoders -------------------------------------------------------------------------------- */

OP void floats_of_words(__m512i words, vf *x)
{
    x[0] = (vf)((vu)words << 16);
    x[1] = (vf)((vu)words & 0xFFFF0000);
}
OP void floats_of_halves(v32u16 halves, vf *x)
{
    x[0] = _mm512_cvtph_ps(_mm512_castsi512_si256((__m512i)halves));
    x[1] = _mm512_cvtph_ps(_mm512_extracti64x4_epi64((__m512i)halves, 1));
}
/* Their words, which follow each other: odd 1: the upper ones, 0: the lower ones. Zero where a
 * bit of `which` is. */
OP v32u16 words_of_floats(__mmask32 which, const vf *x, int odd)
{
    static const uint16_t even[32] = {0,  2,  4,  6,  8,  10, 12, 14, 16, 18, 20,
                                      22, 24, 26, 28, 30, 32, 34, 36, 38, 40, 42,
                                      44, 46, 48, 50, 52, 54, 56, 58, 60, 62};
    const __m512i at = (__m512i)((v32u16)_mm512_loadu_si512(even) + (uint16_t)odd);
    return (v32u16)_mm512_maskz_permutex2var_epi16(which, (__m512i)x[0], at, (__m512i)x[1]);
}
OP v32u16 words_of_values(const float *values)
{
    const vf x[2] = {vf_load(values), vf_load(values + LANES)};
    return words_of_floats(~(__mmask32)0, x, 1);
}

/* Dword j of the result: codes j and 16 + j in the low bits of its words. */
OP __m512i index_4(const unsigned char *p)
{
    const __m512i all = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m512i bytes = _mm512_add_epi8(
        _mm512_set4_epi32(0x09090101, 0x09090101, 0x08080000, 0x08080000),
        _mm512_setr_epi64(0, 0, 0x0202020202020202, 0x0202020202020202, 0x0404040404040404,
                          0x0404040404040404, 0x0606060606060606, 0x0606060606060606));
    return _mm512_srlv_epi16(_mm512_shuffle_epi8(all, bytes),
                             _mm512_set1_epi64(0x0004000400000000));
}
/* Lane k takes bytes 3k, 3k + 1, 3k + 2 and those 12 further on, each three four codes. */
OP __m512i index_6(const unsigned char *p)
{
    const __m512i dwords = _mm512_setr_epi32(0, 1, 3, 4, 0, 1, 3, 4, 1, 2, 4, 5, 2, 3, 5, 6);
    const __m512i all = _mm512_permutexvar_epi32(dwords, _mm512_maskz_loadu_epi32(0x3F, p));
    const __m512i bytes = _mm512_add_epi8(
        _mm512_set4_epi32(0x0B0A0302, 0x0A090201, 0x09080100, 0x09080100),
        _mm512_setr_epi64(0, 0, 0x0303030303030303, 0x0303030303030303, 0x0202020202020202,
                          0x0202020202020202, 0x0101010101010101, 0x0101010101010101));
    return _mm512_srlv_epi16(_mm512_shuffle_epi8(all, bytes),
                             _mm512_setr_epi32(0, 0x60006, 0x40004, 0x20002, 0, 0x60006, 0x40004,
                                               0x20002, 0, 0x60006, 0x40004, 0x20002, 0, 0x60006,
                                               0x40004, 0x20002));
}
/* Here codes are in both bytes of words. */
OP __m512i index_8(const unsigned char *p)
{
    const __m512i dwords = _mm512_setr_epi32(0, 4, 0, 4, 1, 5, 1, 5, 2, 6, 2, 6, 3, 7, 3, 7);
    const __m512i all =
        _mm512_castsi256_si512(_mm256_loadu_si256((const __m256i *)(const void *)p));
    return _mm512_shuffle_epi8(_mm512_permutexvar_epi32(dwords, all),
                               _mm512_set4_epi32(0x07070303, 0x06060202, 0x05050101, 0x04040000));
}
OP v32u16 widen_pair(const unsigned char *p)
{
    return (v32u16)_mm512_cvtepi8_epi16(_mm256_loadu_si256((const __m256i *)(const void *)p));
}

/* Words of all codes without sign, by exponents as bf16 has them. TINY: the first eight codes,
 * subnormals. */
#define FOUR(e) 128 * (e), 128 * (e) + 32, 128 * (e) + 64, 128 * (e) + 96
#define EIGHT(e) FOUR(e), FOUR((e) + 1)
#define SEVEN(e)                                                                               \
    128 * (e), 128 * (e) + 16, 128 * (e) + 32, 128 * (e) + 48, 128 * (e) + 64, 128 * (e) + 80, \
        128 * (e) + 96
#define SIXTEEN(e) SEVEN(e), 128 * (e) + 112, SEVEN((e) + 1), 128 * (e) + 240
#define TINY(e) 0, 128 * (e), 128 * (e) + 128, 128 * (e) + 192, FOUR((e) + 2)
static const uint16_t words_f8_e4m3[128] = {TINY(118),    SIXTEEN(121), SIXTEEN(123), SIXTEEN(125),
                                            SIXTEEN(127), SIXTEEN(129), SIXTEEN(131), SIXTEEN(133),
                                            SEVEN(135),   0x7FC0};
static const uint16_t words_f8_e4m3fnuz[128] = {
    TINY(117),    SIXTEEN(120), SIXTEEN(122), SIXTEEN(124), SIXTEEN(126),
    SIXTEEN(128), SIXTEEN(130), SIXTEEN(132), SEVEN(134),   128 * 134 + 112};
static const uint16_t words_f8_e5m2fnuz[128] = {
    TINY(110),  EIGHT(113), EIGHT(115), EIGHT(117), EIGHT(119), EIGHT(121), EIGHT(123), EIGHT(125),
    EIGHT(127), EIGHT(129), EIGHT(131), EIGHT(133), EIGHT(135), EIGHT(137), EIGHT(139), EIGHT(141)};
OP __m512i look_up_128(const uint16_t *words, __m512i code)
{
    const __m512i low =
        _mm512_permutex2var_epi16(_mm512_loadu_si512(words), code, _mm512_loadu_si512(words + 32));
    const __m512i high = _mm512_permutex2var_epi16(_mm512_loadu_si512(words + 64), code,
                                                   _mm512_loadu_si512(words + 96));
    const __m512i magnitude =
        _mm512_mask_blend_epi16(_mm512_test_epi16_mask(code, _mm512_set1_epi16(0x40)), low, high);
    return _mm512_ternarylogic_epi32(magnitude, code, _mm512_set1_epi16((short)0x8000), 0xF8);
}

OP void decode_fnuz(const uint16_t *words, __m512i code, vf *x)
{
    const __mmask32 nan = _mm512_cmpeq_epi16_mask(code, _mm512_set1_epi16((short)0x8080));
    floats_of_words(_mm512_mask_mov_epi16(look_up_128(words, code), nan, _mm512_set1_epi16(0x7FC0)),
                    x);
}

/* The two blocks at p. */
OP void decode_pair(const code_t *c, const unsigned char *p, vf *x)
{
    if (c->bits == 4) {
        const vu values = (vu)vf_load(values_of(c));
        const __m512i words = _mm512_broadcast_i64x4(narrow_high(&values));
        floats_of_words(_mm512_permutexvar_epi16(index_4(p), words), x);
    } else if (c->kind == FLOAT_6) {
        const v32u16 values = words_of_values(c->magnitudes);
        floats_of_words(
            _mm512_permutex2var_epi16((__m512i)values, index_6(p), (__m512i)(values | 0x8000)), x);
    } else if (c->kind == FLOAT_8_F16) {
        floats_of_halves(widen_pair(p) << 8, x);
    } else if (c->format == &format_f8_e5m2fnuz) {
        decode_fnuz(words_f8_e5m2fnuz, index_8(p), x);
    } else if (c->kind == FLOAT_8_LOWER && c->format->one_zero) {
        decode_fnuz(words_f8_e4m3fnuz, index_8(p), x);
    } else if (c->kind == FLOAT_8_LOWER) {
        floats_of_words(look_up_128(words_f8_e4m3, index_8(p)), x);
    } else {
        x[0] = decode(c, block_load(c->bits, p), 0);
        x[1] = decode(c, block_load(c->bits, p + 2 * c->bits), 0);
    }
}

/* ---- stores ---------------------------------------------------------------------------------- */

OP void put_words(unsigned char *to, __m512i words)
{
    vf_stream(to, (vf)words);
}
/* The upper words grow by the carry of the lower ones, 0x7FFF and their own last bits; an
 * average is such a sum without its last bit. */
OP void put_bf16_of(unsigned char *to, const vf *x, __mmask32 rounded)
{
    const v32u16 high = words_of_floats(~(__mmask32)0, x, 1), low = words_of_floats(rounded, x, 0);
    const __m512i odd = _mm512_ternarylogic_epi32((__m512i)high, _mm512_set1_epi16(1),
                                                  _mm512_set1_epi16(0x7FFE), 0xEA);
    put_words(to, (__m512i)(high + ((v32u16)_mm512_avg_epu16((__m512i)low, odd) >> 15)));
}

/* Two vectors as bf16 by AVX512_BF16, which those who call this have checked for. */
OP __m512i native_bf16(const vf *x)
{
    return asm_bf16_pair(x[0], x[1]);
}

OP void put_pair(result_t result, unsigned char *to, const vf *x)
{
    switch (result) {
    case RESULT_F32:
        vf_stream(to, x[0]);
        vf_stream(to + 64, x[1]);
        break;
    case RESULT_F16:
        _mm256_stream_si256((__m256i *)(void *)to, f16_of_vf(x));
        _mm256_stream_si256((__m256i *)(void *)(to + 32), f16_of_vf(x + 1));
        break;
    case RESULT_BF16:
        put_bf16_of(to, x, ~(__mmask32)0);
        break;
    case RESULT_ANY_BF16:
        put_bf16_of(to, x, _mm512_kunpackw(vf_ordered(x[1]), vf_ordered(x[0])));
        break;
    case RESULT_EXACT_BF16:
        put_words(to, (__m512i)words_of_floats(~(__mmask32)0, x, 1));
        break;
    case RESULT_NATIVE_BF16:
        put_words(to, native_bf16(x));
        break;
    }
}

/* ---- tables ---------------------------------------------------------------------------------- */

OP bool has_table(const code_t *c, result_t result)
{
    (void)result;
    return c->bits == 4;
}
/* One table of all codes serves every type of four bits. */
typedef int word_table_t;
OP bool has_table_of_signs(const code_t *c, result_t result)
{
    (void)c, (void)result;
    return false;
}
OP word_table_t table_of_signs(result_t result, float first, float second, vf s0, vf s1)
{
    (void)result, (void)first, (void)second, (void)s0, (void)s1;
    return 0;
}
OP void put_coded_words(word_table_t t, const unsigned char *p, unsigned char *to)
{
    (void)t, (void)p, (void)to;
}
/* 16 codes. */
OP vf look_up_f32(vf results, const unsigned char *p)
{
    int low, high;
    memcpy(&low, p, sizeof low);
    memcpy(&high, p + 4, sizeof high);
    const __m512i shifts =
        _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i both = _mm512_mask_set1_epi32(_mm512_set1_epi32(low), 0xFF00, high);
    return _mm512_permutexvar_ps(_mm512_srlv_epi32(both, shifts), results);
}
/* 32 codes. */
OP __m512i look_up_words(__m512i results, const unsigned char *p)
{
    const __m512i pairs = _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)p));
    const __m512i each = _mm512_add_epi8(
        _mm512_set4_epi32(0x01000100 + 0x02020202, 0x01000100 + 0x02020202, 0x01000100, 0x01000100),
        _mm512_setr_epi64(0, 0, 0x0404040404040404, 0x0404040404040404, 0x0808080808080808,
                          0x0808080808080808, 0x0C0C0C0C0C0C0C0C, 0x0C0C0C0C0C0C0C0C));
    const __m512i words =
        _mm512_srlv_epi16(_mm512_shuffle_epi8(pairs, each), _mm512_set1_epi64(0x000C000800040000));
    return _mm512_permutexvar_epi16(words, results);
}
/* The 16 results of a group as words. */
OP __m256i words_of_results(result_t result, vf results)
{
    if (result == RESULT_F16) {
        return f16_of_vf(&results);
    }
    if (result == RESULT_NATIVE_BF16) {
        return asm_bf16(results);
    }
    const vu rounded = round_to_bf16(results);
    return narrow_high(&rounded);
}
/* n codes of one group; results: of all codes. */
OP void table_group(result_t result, const vf *results, const unsigned char *p, int64_t n,
                    unsigned char *to)
{
    if (result == RESULT_F32) {
        for (; n > 0; n -= PAIR, p += PAIR / 2, to += 4 * PAIR) {
            __builtin_prefetch(p + CODES_AHEAD);
            vf_stream(to, look_up_f32(*results, p));
            vf_stream(to + 64, look_up_f32(*results, p + BLOCK / 2));
        }
        return;
    }
    const __m512i words = _mm512_broadcast_i64x4(words_of_results(result, *results));
    for (; n > 0; n -= PAIR, p += PAIR / 2, to += 2 * PAIR) {
        __builtin_prefetch(p + CODES_AHEAD);
        put_words(to, look_up_words(words, p));
    }
}

/* ---- whether AVX512_BF16 may be used --------------------------------------------------------- */

enum { HAS_NATIVE_BF16 = 1 };

/* That it takes subnormals for 0 shows in no result of n codes, which are multiples of 2^-17, as
 * is what zero points make of them. */
OP vm below_normal(vf scale) /* 0 is not */
{
    const vu least = vu_set1(bits_of_f32(0x1p-100f) - 1);
    return _mm512_cmplt_epu32_mask((__m512i)(((vu)scale & 0x7FFFFFFF) - 1), (__m512i)least);
}
TARGET static bool all_normal(const dtype_scaled_t *g, int64_t n)
{
    const int64_t count = (g->phase + n - 1) / g->group + 1, whole = count & -LANES;
    vm small = below_normal(vf_load_n(g->scale + whole, count - whole));
    for (int64_t i = 0; i < whole; i += LANES) {
        small |= below_normal(vf_load(g->scale + i));
    }
    return small == 0;
}

#endif
