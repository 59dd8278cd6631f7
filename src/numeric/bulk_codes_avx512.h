/* The instructions of AVX-512 that bulk_quantise.h needs besides the vocabulary of simd_avx512.h:
 * bulk_codes_avx2.h lists the names, which mean the same in both. */
#ifndef SINTER_SRC_NUMERIC_BULK_CODES_AVX512_H
#define SINTER_SRC_NUMERIC_BULK_CODES_AVX512_H

#include "numeric/bulk.h"
#include "numeric/simd_avx512.h"

enum { LEAST_QUADS = 2, SIGNS_IN_DWORDS = 1 };

/* ---- elements -------------------------------------------------------------------------------- */

/* The halves of a register of bf16 may be two groups. */
OP vf quad_factor(sinter_data_type_t from, const uint32_t *factors, int k)
{
    const int pair = k / 2 * 2;
    if (from == sinter_bf16) {
        return _mm512_mask_mov_ps(vf_set1(f32_of_bits(factors[pair])), 0xFF00,
                                  vf_set1(f32_of_bits(factors[pair + 1])));
    }
    return vf_set1(f32_of_bits(factors[k]));
}
OP vi upper_words(vi x, int h)
{
    const vi zero = _mm512_setzero_si512();
    return h == 0 ? _mm512_unpacklo_epi16(zero, x) : _mm512_unpackhi_epi16(zero, x);
}
OP vf vf_of_brain(vi words, int h)
{
    return (vf)((vu)_mm512_cvtepu16_epi32(h == 0 ? _mm512_castsi512_si256(words)
                                                 : _mm512_extracti64x4_epi64(words, 1))
                << 16);
}

/* ---- extremes -------------------------------------------------------------------------------- */

OP vi words_larger(bool is_signed, vi a, vi b)
{
    return is_signed ? _mm512_max_epi16(a, b) : _mm512_max_epu16(a, b);
}
OP vi by_turns(int bytes, int h, vi a, vi b)
{
    if (bytes == 2) {
        return h == 0 ? _mm512_unpacklo_epi16(a, b) : _mm512_unpackhi_epi16(a, b);
    }
    if (bytes == 4) {
        return h == 0 ? _mm512_unpacklo_epi32(a, b) : _mm512_unpackhi_epi32(a, b);
    }
    return h == 0 ? _mm512_unpacklo_epi64(a, b) : _mm512_unpackhi_epi64(a, b);
}
OP vi fold_quarters(bool is_signed, const vi *v)
{
    vi two[2];
    for (int k = 0; k < 2; k++) { /* 128-bit lanes of v[2 k], v[2 k], v[2 k + 1], v[2 k + 1] */
        const vi a = v[2 * k], b = v[2 * k + 1];
        two[k] = words_larger(is_signed, _mm512_shuffle_i64x2(a, b, 0x44),
                              _mm512_shuffle_i64x2(a, b, 0xee));
    }
    return words_larger(is_signed, _mm512_shuffle_i64x2(two[0], two[1], 0x88),
                        _mm512_shuffle_i64x2(two[0], two[1], 0xdd));
}
OP vi fold_halves(bool is_signed, vi a, vi b)
{
    /* 128-bit lanes of groups 0 2 ... 14, 1 3 ... 15, 16 18 ... 30, 17 19 ... 31 */
    const vi turns =
        words_larger(is_signed, _mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
    const vi order = _mm512_set_epi16(31, 23, 30, 22, 29, 21, 28, 20, 27, 19, 26, 18, 25, 17, 24,
                                      16, /* by turns */
                                      15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
    return _mm512_permutexvar_epi16(order, turns);
}

/* ---- lines of codes -------------------------------------------------------------------------- */

OP vi in_order(sinter_data_type_t from, vi bytes)
{
    return from == sinter_bf16
               ? _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), bytes)
               : _mm512_permutexvar_epi32(
                     _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                     bytes);
}
OP vi nibbles_in_order(sinter_data_type_t from, vi codes)
{
    const vi order = /* as in_order, of pairs of pairs */
        _mm512_set_epi16(31, 23, 15, 7, 30, 22, 14, 6, 29, 21, 13, 5, 28, 20, 12, 4, 27, 19, 11, 3,
                         26, 18, 10, 2, 25, 17, 9, 1, 24, 16, 8, 0);
    return from == sinter_bf16 ? in_order(sinter_f32, codes)
                               : _mm512_permutexvar_epi16(order, codes);
}
OP vi signs_in_order(vi bytes)
{
    return _mm512_permutexvar_epi32(
        _mm512_setr_epi32(0, 8, 2, 10, 1, 9, 3, 11, 4, 12, 6, 14, 5, 13, 7, 15), bytes);
}
OP vi words_of(vi a, vi b)
{
    return _mm512_packs_epi32(a, b);
}
OP vi bytes_signed(vi a, vi b)
{
    return _mm512_packs_epi16(a, b);
}
OP vi bytes_unsigned(vi a, vi b)
{
    return _mm512_packus_epi16(a, b);
}
OP vi bytes_at_least(vi a, int least)
{
    return _mm512_max_epi8(a, _mm512_set1_epi8((char)least));
}
OP vi bytes_at_most(bool is_signed, vi a, int most)
{
    const vi b = _mm512_set1_epi8((char)most);
    return is_signed ? _mm512_min_epi8(a, b) : _mm512_min_epu8(a, b);
}
OP vi bytes_with(vi a, int mask, vi b, int shift)
{
    return _mm512_ternarylogic_epi32(a, _mm512_srli_epi16(b, (unsigned)shift),
                                     _mm512_set1_epi8((char)mask), 0xF8); /* a | (b & mask) */
}
OP vu between(vf z)
{
    return (vu)_mm512_cvt_roundps_epi32(z, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC) +
           (vu)_mm512_cvt_roundps_epi32(z, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
/* A table has the codes of all sums up to 63. */
OP vi words_f4(vi sums)
{
    static const uint16_t codes[64] = {0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4,
                                       4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6,
                                       6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7,
                                       7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
    return _mm512_permutex2var_epi16(
        vi_load(codes), _mm512_min_epu16(_mm512_abs_epi16(sums), _mm512_set1_epi16(63)),
        vi_load(codes + 32));
}
OP vi bytes_f4(const vu *sum)
{
    return bytes_unsigned(words_f4(words_of((vi)sum[0], (vi)sum[1])),
                          words_f4(words_of((vi)sum[2], (vi)sum[3])));
}
OP bool quad_of_words(const code_t *c, dtype_way_t way, sinter_data_type_t type,
                      const uint32_t *factors, const unsigned char *x, vi *codes)
{
    (void)c, (void)way, (void)type, (void)factors, (void)x, (void)codes;
    return false;
}
OP vi pairs_4(vi codes)
{
    return _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x1001));
}
/* As pack_6, of sixteen fours: twelve bytes in each 128-bit lane, then side by side. */
OP vi fours_6(vi codes)
{
    const vi pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x4001));
    const vi fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x10000001));
    const vi bytes = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const vi dense = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(dense, _mm512_shuffle_epi8(fours, bytes));
}
OP void dense_6(const vi *codes, __m256i *to)
{
    const vi a = fours_6(codes[0]), b = fours_6(codes[1]);
    const vi middle = _mm512_permutex2var_epi32(
        a, _mm512_setr_epi32(8, 9, 10, 11, 16, 17, 18, 19, 0, 0, 0, 0, 0, 0, 0, 0), b);
    const vi end = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0, 0, 0, 0, 0), b);
    to[0] = _mm512_castsi512_si256(a);
    to[1] = _mm512_castsi512_si256(middle);
    to[2] = _mm512_castsi512_si256(end);
}

#endif
