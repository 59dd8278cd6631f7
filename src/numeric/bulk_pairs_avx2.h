/* Decoding and storing of pairs of blocks, 32 elements, with AVX2, and tables of all results of a
 * group of codes of four bits: what bulk_stream.h is made of. */
#ifndef SINTER_SRC_NUMERIC_BULK_PAIRS_AVX2_H
#define SINTER_SRC_NUMERIC_BULK_PAIRS_AVX2_H

#include "numeric/simd_avx2.h"

#include "numeric/bulk.h"

/* Whether a pair of blocks of e4m3 has a NaN. */
OP bool any_nan_of_pair(const code_t *c, const unsigned char *p)
{
    const vi codes = vi_load(p);
    return c->format->one_zero
               ? _mm256_movemask_epi8(_mm256_cmpeq_epi8(codes, _mm256_set1_epi8((char)0x80))) != 0
               : any_nan_of_e4m3(codes);
}
/* Codes of 6 bits. Words get two codes each, with the second one at the top, and then one each: f16
 * with the codes' exponents, as six_by_half has them. */
OP void decode_sixes(const code_t *c, const unsigned char *p, vf *x)
{
    const int shift = c->format->digits - 1;
    const __m256i mask = _mm256_set1_epi16((short)(0x8000 | 0x1F << (10 - shift)));
    const vi bytes = _mm256_set_m128i(load_16_bytes(p + 8), load_16_bytes(p)),
             at = _mm256_setr_epi8(0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 9, 10, 10, 11, /* lane 0 */
                                   4, 5, 5, 6, 7, 8, 8, 9, 10, 11, 11, 12, 13, 14, 14, 15);
    const vi twos =
        _mm256_mullo_epi16(_mm256_shuffle_epi8(bytes, at), _mm256_set1_epi32(0x00010010));
    const vi even = _mm256_and_si256(_mm256_srai_epi16(_mm256_slli_epi16(twos, 6), shift), mask),
             odd = _mm256_and_si256(_mm256_srai_epi16(twos, shift), mask);
    /* Codes 0 to 7 and 16 to 23, 8 to 15 and 24 to 31. */
    const vi words[VECTORS] = {_mm256_unpacklo_epi16(even, odd), _mm256_unpackhi_epi16(even, odd)};
    UNROLL
    for (int k = 0; k < 2 * VECTORS; k++) {
        x[k] = vf_of_half(words[k % VECTORS], k / VECTORS) * power_of_six(c);
    }
}

/* The two blocks at p. */
OP void decode_pair(const code_t *c, const unsigned char *p, vf *x)
{
    if (c->kind == FLOAT_6) {
        decode_sixes(c, p, x);
        return;
    }
    if (c->kind == FLOAT_8_LOWER && !any_nan_of_pair(c, p)) {
        EACH_VECTOR
        {
            x[h] = lower_to_number(c, load_16_bytes(p), h);
            x[VECTORS + h] = lower_to_number(c, load_16_bytes(p + BLOCK), h);
        }
        return;
    }
    const block_t first = unpack(c->bits, block_load(c->bits, p)),
                  second = unpack(c->bits, block_load(c->bits, p + 2 * c->bits));
    EACH_VECTOR
    {
        x[h] = decode(c, first, h);
        x[VECTORS + h] = decode(c, second, h);
    }
}

OP __m256i block_of_words(result_t result, const vf *x)
{
    if (result == RESULT_F16) {
        return encode(&code_f16, PLAIN, x).words;
    }
    if (result == RESULT_ANY_BF16) {
        return encode(&code_bf16, PLAIN, x).words;
    }
    if (result == RESULT_EXACT_BF16) {
        return narrow_high((const vu *)x);
    }
    const vu rounded[2] = {round_to_bf16(x[0]), round_to_bf16(x[1])};
    return narrow_high(rounded);
}
OP void put_pair(result_t result, unsigned char *to, const vf *x)
{
    if (result == RESULT_F32) {
        UNROLL
        for (int k = 0; k < 2 * VECTORS; k++) {
            vf_stream(to + 4 * k * LANES, x[k]);
        }
        return;
    }
    _mm256_stream_si256((__m256i *)(void *)to, block_of_words(result, x));
    _mm256_stream_si256((__m256i *)(void *)(to + 32), block_of_words(result, x + VECTORS));
}

/* ---- tables ---------------------------------------------------------------------------------- */

/* Of words only: floats have more bytes than looking up saves. */
OP bool has_table(const code_t *c, result_t result)
{
    return c->bits == 4 && result != RESULT_F32;
}
/* The lower and the upper bytes of words, by code, and 32 codes looked up in them. */
typedef struct word_table {
    vi low, high;
} word_table_t;
OP void put_coded_words(word_table_t t, const unsigned char *p, unsigned char *to)
{
    const v16u16 twos = (v16u16)_mm256_cvtepu8_epi16(load_16_bytes(p));
    const vi codes = (vi)((twos | twos << 4) & 0x0F0F);
    const vi lower = _mm256_shuffle_epi8(t.low, codes), upper = _mm256_shuffle_epi8(t.high, codes);
    /* Results 0 to 7 and 16 to 23, 8 to 15 and 24 to 31. */
    const vi a = _mm256_unpacklo_epi8(lower, upper), b = _mm256_unpackhi_epi8(lower, upper);
    _mm256_stream_si256((__m256i *)(void *)to, _mm256_permute2x128_si256(a, b, 0x20));
    _mm256_stream_si256((__m256i *)(void *)(to + 32), _mm256_permute2x128_si256(a, b, 0x31));
}
/* n codes of one group; results: of all codes. */
OP void table_group(result_t result, const vf *results, const unsigned char *p, int64_t n,
                    unsigned char *to)
{
    const __m256i words = block_of_words(result, results);
    const vi bytes = _mm256_permute4x64_epi64(
        _mm256_packus_epi16(_mm256_and_si256(words, _mm256_set1_epi16(0xFF)),
                            _mm256_srli_epi16(words, 8)),
        0xD8);
    const word_table_t t = {_mm256_permute2x128_si256(bytes, bytes, 0x00),
                            _mm256_permute2x128_si256(bytes, bytes, 0x11)};
    for (; n > 0; n -= PAIR, p += PAIR / 2, to += 2 * PAIR) {
        __builtin_prefetch(p + CODES_AHEAD);
        put_coded_words(t, p, to);
    }
}

/* Codes whose upper half has the values of the lower one with the other sign: tables of eight
 * values for each of two blocks are made as fast as one of sixteen. */
OP bool has_table_of_signs(const code_t *c, result_t result)
{
    return c->kind == FLOAT_4 && result != RESULT_F32;
}
/* first, second: the scales of a pair's blocks; scale_for has seen to NaNs. */
OP word_table_t table_of_signs(result_t result, float first, float second, vf s0, vf s1)
{
    const bool exact = result == RESULT_BF16 && /* values have two digits, bf16 eight */
                       keeps_digits(0x0003FFFF, first) && keeps_digits(0x0003FFFF, second);
    const vf values = vf_load(values_f4_e2m1), x[2] = {values * s0, values * s1};
    const vi words = exact ? block_of_words(RESULT_EXACT_BF16, x) : block_of_words(result, x);
    const vi low = _mm256_and_si256(words, _mm256_set1_epi16(0xFF)),
             high = _mm256_srli_epi16(words, 8);
    return (word_table_t){
        _mm256_packus_epi16(low, low),
        _mm256_packus_epi16(high, _mm256_xor_si256(high, _mm256_set1_epi16(0x80)))};
}

/* There is no AVX512_BF16. */
enum { HAS_NATIVE_BF16 = 0 };
static inline bool all_normal(const dtype_scaled_t *g, int64_t n)
{
    (void)g, (void)n;
    return false;
}

#endif
