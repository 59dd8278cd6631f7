/* The instructions of AVX2 that bulk_quantise.h needs besides the vocabulary of simd_avx2.h.
 * bulk_codes_avx512.h has the same names, which mean the same:
 *
 *   LEAST_QUADS                 quads that an encoder of bytes takes at least at a time
 *   SIGNS_IN_DWORDS             codes of floats get their signs as dwords; else as bytes
 *
 *   quad_factor                 the factors of vector k of a quad, of those for each 16 elements
 *   upper_words(x, h)           words of half h of each 128 bits as the upper halves of dwords
 *   vf_of_brain(words, h)       the bf16 of half h of the register
 *
 *   words_larger                the larger words of a and b, as signed integers or unsigned ones
 *   by_turns(bytes, h, a, b)    within each 128 bits: of 2, 4 or 8 bytes from a and b by turns, the
 *                               first half or the second
 *   fold_quarters(is_signed, v) the largest words of the 128-bit lanes of each of LANES / 4
 *                               vectors, in order; fold_halves: of the halves of a and b, where
 *                               groups may be half a register
 *
 *   words_of, bytes_signed, bytes_unsigned
 *                               integers, saturated: dwords to words, words to bytes
 *   bytes_at_least, bytes_at_most
 *   bytes_with(a, mask, b, shift)
 *                               a with the bits of b that the mask has in each byte; b moves down
 *                               by `shift` first
 *   between(z)                  floor(z) + ceil(z)
 *   bytes_f4(sum)               magnitudes of f4_e2m1 by such sums, of four vectors
 *   quad_of_words               the magnitudes of a quad without floats; false: not this one
 *
 * Packing works within 128 bits, which is why codes come out of order:
 *
 *   in_order(from, bytes)       brings them back; nibbles_in_order: of two registers of bytes
 *                               whose codes were packed by twos
 *   signs_in_order(bytes)       the bytes of f16 whose words were packed once, as codes lie
 *   pairs_4(codes)              c0 + 16 c1, in words
 *   dense_6(codes, to)          128 codes of six bits, in order, as three times 32 bytes */
#ifndef SINTER_SRC_NUMERIC_BULK_CODES_AVX2_H
#define SINTER_SRC_NUMERIC_BULK_CODES_AVX2_H

#include "numeric/bulk.h"
#include "numeric/simd_avx2.h"

enum { LEAST_QUADS = 1, SIGNS_IN_DWORDS = 0 };

/* ---- elements -------------------------------------------------------------------------------- */

OP vf quad_factor(sinter_data_type_t from, const uint32_t *factors, int k)
{
    (void)from;
    return vf_set1(f32_of_bits(factors[k * LANES / 16]));
}
OP vi upper_words(vi x, int h)
{
    const vi zero = _mm256_setzero_si256();
    return h == 0 ? _mm256_unpacklo_epi16(zero, x) : _mm256_unpackhi_epi16(zero, x);
}
OP vf vf_of_brain(vi words, int h)
{
    return (vf)(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half_of(words, h)), 16));
}

/* ---- extremes -------------------------------------------------------------------------------- */

OP vi words_larger(bool is_signed, vi a, vi b)
{
    return is_signed ? _mm256_max_epi16(a, b) : _mm256_max_epu16(a, b);
}
OP vi by_turns(int bytes, int h, vi a, vi b)
{
    if (bytes == 2) {
        return h == 0 ? _mm256_unpacklo_epi16(a, b) : _mm256_unpackhi_epi16(a, b);
    }
    if (bytes == 4) {
        return h == 0 ? _mm256_unpacklo_epi32(a, b) : _mm256_unpackhi_epi32(a, b);
    }
    return h == 0 ? _mm256_unpacklo_epi64(a, b) : _mm256_unpackhi_epi64(a, b);
}
OP vi fold_quarters(bool is_signed, const vi *v)
{
    return words_larger(is_signed, _mm256_permute2x128_si256(v[0], v[1], 0x20),
                        _mm256_permute2x128_si256(v[0], v[1], 0x31));
}
OP vi fold_halves(bool is_signed, vi a, vi b)
{
    (void)is_signed, (void)b;
    return a;
}

/* ---- lines of codes -------------------------------------------------------------------------- */

OP vi in_order(sinter_data_type_t from, vi bytes)
{
    return from == sinter_bf16
               ? _mm256_permute4x64_epi64(bytes, 0xD8)
               : _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}
OP vi nibbles_in_order(sinter_data_type_t from, vi codes)
{
    const vi turns = _mm256_broadcastsi128_si256(
        _mm_setr_epi8(0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6, 7, 14, 15));
    return from == sinter_bf16 ? in_order(sinter_f32, codes)
                               : _mm256_shuffle_epi8(_mm256_permute4x64_epi64(codes, 0xD8), turns);
}
OP vi signs_in_order(vi bytes)
{
    return _mm256_permutevar8x32_epi32(bytes, _mm256_setr_epi32(0, 4, 2, 6, 1, 5, 3, 7));
}
OP vi words_of(vi a, vi b)
{
    return _mm256_packs_epi32(a, b);
}
OP vi bytes_signed(vi a, vi b)
{
    return _mm256_packs_epi16(a, b);
}
OP vi bytes_unsigned(vi a, vi b)
{
    return _mm256_packus_epi16(a, b);
}
OP vi bytes_at_least(vi a, int least)
{
    return _mm256_max_epi8(a, _mm256_set1_epi8((char)least));
}
OP vi bytes_at_most(bool is_signed, vi a, int most)
{
    const vi b = _mm256_set1_epi8((char)most);
    return is_signed ? _mm256_min_epi8(a, b) : _mm256_min_epu8(a, b);
}
OP vi bytes_with(vi a, int mask, vi b, int shift)
{
    return _mm256_or_si256(
        a, _mm256_and_si256(_mm256_srli_epi16(b, shift), _mm256_set1_epi8((char)mask)));
}
OP vu between(vf z)
{
    const vf low = _mm256_round_ps(z, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC),
             high = _mm256_round_ps(z, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
    return vf_to_int(low + high);
}
/* A table has the codes of sums up to 15; comparisons find the three ends of codes behind them. The
 * magnitude of -128 would be negative. */
OP vi bytes_f4(const vu *sum)
{
    const vi codes =
        _mm256_broadcastsi128_si256(_mm_setr_epi8(0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4));
    const vi bytes =
        bytes_signed(words_of((vi)sum[0], (vi)sum[1]), words_of((vi)sum[2], (vi)sum[3]));
    const vi sums = _mm256_abs_epi8(bytes_at_least(bytes, -127));
    const vi code = _mm256_shuffle_epi8(codes, bytes_at_most(false, sums, 15));
    const vi above = _mm256_add_epi8(_mm256_cmpgt_epi8(sums, _mm256_set1_epi8(20)),
                                     _mm256_cmpgt_epi8(sums, _mm256_set1_epi8(27)));
    return _mm256_sub_epi8(code,
                           _mm256_add_epi8(above, _mm256_cmpgt_epi8(sums, _mm256_set1_epi8(40))));
}

OP vi pairs_4(vi codes)
{
    return _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x1001));
}
/* As pack_6, of eight fours: twelve bytes in each 128-bit lane, not yet side by side. */
OP vi fours_6(vi codes)
{
    const vi pairs = _mm256_maddubs_epi16(codes, _mm256_set1_epi16(0x4001));
    const vi fours = _mm256_madd_epi16(pairs, _mm256_set1_epi32(0x10000001));
    return _mm256_shuffle_epi8(fours, _mm256_broadcastsi128_si256(_mm_setr_epi8(
                                          0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1)));
}
/* Six dwords of each register, moved to where the results have them. */
OP void dense_6(const vi *codes, __m256i *to)
{
    const vi a = _mm256_permutevar8x32_epi32(fours_6(codes[0]),
                                             _mm256_setr_epi32(0, 1, 2, 4, 5, 6, 0, 0)),
             b = _mm256_permutevar8x32_epi32(fours_6(codes[1]),
                                             _mm256_setr_epi32(2, 4, 5, 6, 0, 0, 0, 1)),
             c = _mm256_permutevar8x32_epi32(fours_6(codes[2]),
                                             _mm256_setr_epi32(5, 6, 0, 0, 0, 1, 2, 4)),
             d = _mm256_permutevar8x32_epi32(fours_6(codes[3]),
                                             _mm256_setr_epi32(0, 0, 0, 1, 2, 4, 5, 6));
    to[0] = _mm256_blend_epi32(a, b, 0xC0);
    to[1] = _mm256_blend_epi32(b, c, 0xF0);
    to[2] = _mm256_blend_epi32(c, d, 0xFC);
}

/* ---- bf16 times powers of two, as words ------------------------------------------------------ */

enum {
    BRAIN_STEP = 1 << 7,    /* what an exponent adds to a bf16 */
    MOST_WORD_FACTOR = 230, /* the exponent of a factor up to which subnormals have the code 0 */
};

/* These constants are read from memory. GCC would compute a constant again in each turn of the loop
 * if no register is left for it. */
#define WORDS(x)                                       \
    {                                                  \
        x, x, x, x, x, x, x, x, x, x, x, x, x, x, x, x \
    }
#define BYTES(...)               \
    {                            \
        __VA_ARGS__, __VA_ARGS__ \
    }
static const struct brain_constants {
    uint16_t magnitude[16], one[16], step[16], round_5[16];
    uint8_t floors[32], ceilings[32], most[32], last[32];
} brain_constants = {.magnitude = WORDS(0x7FFF),
                     .one = WORDS(1),
                     .step = WORDS(BRAIN_STEP),
                     .round_5 = WORDS(31),
                     .floors = BYTES(0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3),
                     .ceilings = BYTES(0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3),
                     .most = BYTES(15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15, 15),
                     .last = BYTES(17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17, 17)};
#undef BYTES
#undef WORDS

/* How far the bits of a bf16 |x|, times a power of two, are above those of 2^(least - 127), or 0
 * where they are below. by: the power's bits as f32. *from becomes the bits of the |x| whose
 * product is 2^(least - 127). */
OP vi words_above(const struct brain_constants *k, vi x, uint32_t by, int least, vi *from)
{
    *from = _mm256_set1_epi16((short)((uint32_t)(least + 127) * BRAIN_STEP - (by >> 16)));
    return _mm256_subs_epu16(_mm256_and_si256(x, vi_load(k->magnitude)), *from);
}
/* All bits are set in words whose magnitude lies between `from - below` and `from`, both
 * excluded. */
OP vi words_between(const struct brain_constants *k, vi x, vi from, int below)
{
    const vi magnitude = _mm256_and_si256(x, vi_load(k->magnitude));
    const vi low = _mm256_sub_epi16(from, _mm256_set1_epi16((short)below));
    return _mm256_and_si256(_mm256_cmpgt_epi16(magnitude, low),
                            _mm256_cmpgt_epi16(from, magnitude));
}
/* Shifted down, rounded to nearest even. */
OP vi words_rounded(const struct brain_constants *k, vi x, int shift)
{
    const vi even = _mm256_and_si256(_mm256_srli_epi16(x, shift), vi_load(k->one)),
             half = _mm256_set1_epi16((short)((1 << (shift - 1)) - 1));
    return _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(x, half), even), shift);
}
/* Magnitudes of f4_e2m1 from the words that 4 |y| is above 1, which end in 7 bits of a fraction: in
 * units of 32 one code ends and the next begins at 0, 6, 9, 11, 13, 15 and 17. The codes of even
 * mantissas have both of their ends: they begin where the floor says so, others behind, where the
 * ceiling does. */
OP vi bytes_f4_of_words(const struct brain_constants *k, vi a, vi b)
{
    const vi up = vi_load(k->round_5), most = vi_load(k->most);
    const vi low = bytes_unsigned(_mm256_srli_epi16(a, 5), _mm256_srli_epi16(b, 5)),
             high = bytes_unsigned(_mm256_srli_epi16(_mm256_add_epi16(a, up), 5),
                                   _mm256_srli_epi16(_mm256_add_epi16(b, up), 5));
    const vi code =
        _mm256_add_epi8(_mm256_shuffle_epi8(vi_load(k->floors), _mm256_min_epu8(low, most)),
                        _mm256_shuffle_epi8(vi_load(k->ceilings), _mm256_min_epu8(high, most)));
    return _mm256_sub_epi8(code, _mm256_cmpgt_epi8(high, vi_load(k->last)));
}

/* bf16 times powers of two become codes as words, 16 at a time, where subnormal codes are rare, or
 * are few enough for tables. False: it is not such a type, some elements have subnormal codes, or a
 * factor is too large or too small. */
OP bool quad_of_words(const code_t *c, dtype_way_t way, sinter_data_type_t type,
                      const uint32_t *factors, const unsigned char *x, vi *codes)
{
    if (way != DTYPE_MULTIPLIED || type != sinter_bf16 ||
        (c->kind != FLOAT_4 && (c->bits != 8 || is_integer(c) || c->format->one_zero))) {
        return false;
    }
    const int emin = c->format->emin, shift = 8 - c->format->digits;
    const vi a = vi_load(x), b = vi_load(x + 4 * LANES);
    const struct brain_constants *k = &brain_constants;
    vi from[2];
    HIDE(k);
    if ((factors[0] >> 23) - 1 >= MOST_WORD_FACTOR || (factors[1] >> 23) - 1 >= MOST_WORD_FACTOR) {
        return false;
    }
    if (c->kind == FLOAT_4) {
        *codes = bytes_f4_of_words(k, words_above(k, a, factors[0], 127, &from[0]),
                                   words_above(k, b, factors[1], 127, &from[1]));
        return true;
    }
    /* The exponent below the least normal one is that of the code 0. */
    const vi low = words_rounded(k, words_above(k, a, factors[0], 126 + emin, &from[0]), shift),
             high = words_rounded(k, words_above(k, b, factors[1], 126 + emin, &from[1]), shift);
    const vi step = vi_load(k->step);
    const int rare = c->format->digits * BRAIN_STEP;
    const vi subnormal =
        _mm256_or_si256(words_between(k, a, _mm256_add_epi16(from[0], step), rare),
                        words_between(k, b, _mm256_add_epi16(from[1], step), rare));
    *codes = bytes_at_most(false, bytes_unsigned(low, high), (int)c->format->max);
    return _mm256_testz_si256(subnormal, subnormal) != 0;
}

#endif
