/* Bytes and dwords with AVX-512 VNNI: what products in integers are written in, beside the
 * vocabulary of simd_avx512.h. ints_avx2.h has the same names. For files of x86-64 only.
 *
 *   VECTOR, REGISTERS           bytes in a vector; vector registers
 *   SUMS_BYTES                  one instruction sums products of bytes (a macro)
 *   FLIPS_AND_MASKS             bytes_flip is one instruction
 *
 *   vi_dot(small, sum, u, s)    every dword of sum plus the products of the four unsigned bytes of
 *                               u there and the four signed bytes of s; small: all u are below 128
 *   vi_dot_dword(small, sum, u, s)  the same with the four bytes at s for every dword
 *   bytes_flip(x, mask, flip)   (x & mask) ^ flip
 *   bytes_lookup(table, at)     byte i: byte at[i] of the 16 bytes of table in its quarter
 *   bytes_add, bytes_sub(a, b)
 *   bytes_shuffle(x, at)        the same permutation of each 16 bytes
 *   vi_load_part(p, n)          the first n >= 0 bytes at p, zeros behind them
 *   vi_load_halves(p, apart)    a vector of 64 bytes, of which the second half is `apart` bytes
 *                               after the first
 *   vi_repeat(p)                16 bytes, again and again; vf_repeat: 4 floats
 *   vi_of_bytes(x)              a byte in each place
 *   vi_low_8, _16, _32, _64     elements of the lower halves of each 16 bytes of a and b in turn;
 *                               vi_high_...: of the upper halves
 *   vi_even, vi_odd(a, b)       in each 16 bytes: two dwords of a, then two of b
 *   vi_to_s8(x)                 four vectors of dwords: in each 16 bytes, 4 of each, as s8
 *   vi_largest, vi_sum          of all dwords
 *   fours_max, fours_sum        of the dwords with the same place in their fours, in every four
 *   fours_sum_of_floats(x)      the same of floats
 *
 *   vf_gather(p, at)            lane i: p[at[i]]
 *   vf_corners(p, to)           four rows of four floats as vectors of columns
 *   vf_spread(p)                every four of LANES / 2 floats, twice
 *   vf_add_quads(a, b)          the sums of pairs of four floats, those of a first
 *   vf_store_quad(p, x)         the sum of all the fours of x
 *   vf_units(line, to)          LANES floats of four lines as LANES fours, one of each line
 *
 * What products with many rows, and those without VNNI, need besides; words are signed:
 *
 *   vi_dot_words(sum, a, b)     every dword of sum plus the products of the two words of a and b
 *                               there
 *   vi_pairs(u, s)              words: the sums of two products of unsigned bytes of u with signed
 *                               bytes of s, which saturate
 *   vi_add_pairs(pairs, u, s)   the same added to pairs
 *   vi_widen_pairs(sum, pairs)  every dword of sum plus the two words of pairs there
 *   vi_mul(a, b)                the lower halves of products of dwords
 *   low_words, high_words(x)    the lower or upper byte of each word as a word
 *   words_add, words_sub(a, b) */
#ifndef SINTER_SRC_NUMERIC_INTS_AVX512_H
#define SINTER_SRC_NUMERIC_INTS_AVX512_H

#ifndef TARGET
#define TARGET \
    __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")))
#endif
#include "numeric/simd_avx512.h"

enum { VECTOR = 64, REGISTERS = 32, FLIPS_AND_MASKS = 1 };
#define SUMS_BYTES 1

/* ---- bytes ----------------------------------------------------------------------------------- */

OP vi vi_dot(bool small, vi sum, vi u, vi s)
{
    (void)small;
    return asm_dot_bytes(sum, u, s);
}
OP vi vi_dot_dword(bool small, vi sum, vi u, const uint8_t *s)
{
    (void)small;
    return asm_dot_dword(sum, u, s);
}
OP vi bytes_flip(vi x, vi mask, vi flip)
{
    return _mm512_ternarylogic_epi32(x, mask, flip, 0x6a);
}
OP vi bytes_lookup(vi table, vi at)
{
    return _mm512_shuffle_epi8(table, at);
}
OP vi bytes_shuffle(vi x, vi at)
{
    return _mm512_shuffle_epi8(x, at);
}
OP vi bytes_add(vi a, vi b)
{
    return _mm512_add_epi8(a, b);
}
OP vi bytes_sub(vi a, vi b)
{
    return _mm512_sub_epi8(a, b);
}
OP vi vi_of_bytes(int x)
{
    return _mm512_set1_epi8((char)x);
}
OP vi vi_load_part(const void *p, int n)
{
    return vi_load_bytes(p, n);
}
OP vi vi_load_halves(const unsigned char *p, int64_t apart)
{
    if (apart == VECTOR / 2) {
        return vi_load(p);
    }
    const __m256i first = _mm256_loadu_si256((const __m256i *)(const void *)p),
                  second = _mm256_loadu_si256((const __m256i *)(const void *)(p + apart));
    return vi_of(_mm512_insertf32x8(_mm512_castsi512_ps(_mm512_castsi256_si512(first)),
                                    _mm256_castsi256_ps(second), 1));
}
OP vi vi_repeat(const void *p)
{
    return _mm512_broadcast_i32x4(load_16_bytes(p));
}
OP vi vi_low_8(vi a, vi b)
{
    return _mm512_unpacklo_epi8(a, b);
}
OP vi vi_high_8(vi a, vi b)
{
    return _mm512_unpackhi_epi8(a, b);
}
OP vi vi_low_16(vi a, vi b)
{
    return _mm512_unpacklo_epi16(a, b);
}
OP vi vi_high_16(vi a, vi b)
{
    return _mm512_unpackhi_epi16(a, b);
}
OP vi vi_low_32(vi a, vi b)
{
    return _mm512_unpacklo_epi32(a, b);
}
OP vi vi_high_32(vi a, vi b)
{
    return _mm512_unpackhi_epi32(a, b);
}
OP vi vi_low_64(vi a, vi b)
{
    return _mm512_unpacklo_epi64(a, b);
}
OP vi vi_high_64(vi a, vi b)
{
    return _mm512_unpackhi_epi64(a, b);
}
OP vi vi_even(vi a, vi b)
{
    return vi_of(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0x88));
}
OP vi vi_odd(vi a, vi b)
{
    return vi_of(_mm512_shuffle_ps(_mm512_castsi512_ps(a), _mm512_castsi512_ps(b), 0xdd));
}
OP vi vi_to_s8(const vi *x)
{
    return _mm512_packs_epi16(_mm512_packs_epi32(x[0], x[1]), _mm512_packs_epi32(x[2], x[3]));
}

/* ---- dwords ---------------------------------------------------------------------------------- */

OP int32_t vi_sum(vi x)
{
    return _mm512_reduce_add_epi32(x);
}
OP vi fours_max(vi x)
{
    x = vi_max(x, _mm512_shuffle_i32x4(x, x, 0x4e));
    return vi_max(x, _mm512_shuffle_i32x4(x, x, 0xb1));
}
OP vi fours_sum(vi x)
{
    x = _mm512_add_epi32(x, _mm512_shuffle_i32x4(x, x, 0x4e));
    return _mm512_add_epi32(x, _mm512_shuffle_i32x4(x, x, 0xb1));
}
OP vf fours_sum_of_floats(vf x)
{
    x = _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0x4e));
    return _mm512_add_ps(x, _mm512_shuffle_f32x4(x, x, 0xb1));
}

/* ---- fours of floats ------------------------------------------------------------------------- */

OP vf vf_gather(const float *p, const int32_t *at)
{
    return _mm512_i32gather_ps(vi_load(at), p, 4);
}
OP vf vf_repeat(const float *p)
{
    return _mm512_broadcast_f32x4(_mm_loadu_ps(p));
}
OP void vf_corners(const float *p, vf *to)
{
    const vi lane = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
    to[0] = _mm512_permutexvar_ps(lane, _mm512_loadu_ps(p));
}
OP vf vf_spread(const float *p)
{
    const vf halves = _mm512_castps256_ps512(_mm256_loadu_ps(p));
    return _mm512_shuffle_f32x4(halves, halves, 0x50);
}
OP vf vf_add_quads(vf a, vf b)
{
    return _mm512_add_ps(_mm512_shuffle_f32x4(a, b, 0x88), _mm512_shuffle_f32x4(a, b, 0xdd));
}
OP void vf_store_quad(float *p, vf x)
{
    const __m256 half = _mm256_add_ps(vf_half(x, 0), vf_half(x, 1));
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(half), _mm256_extractf128_ps(half, 1)));
}
OP void vf_units(const vf *line, vf *to)
{
    const vf a = _mm512_unpacklo_ps(line[0], line[1]), b = _mm512_unpackhi_ps(line[0], line[1]);
    const vf c = _mm512_unpacklo_ps(line[2], line[3]), d = _mm512_unpackhi_ps(line[2], line[3]);
    /* Quarter i of x[j] is unit 4 i + j. */
    const vf x[4] = {_mm512_shuffle_ps(a, c, 0x44), _mm512_shuffle_ps(a, c, 0xee),
                     _mm512_shuffle_ps(b, d, 0x44), _mm512_shuffle_ps(b, d, 0xee)};
    const vf low_01 = _mm512_shuffle_f32x4(x[0], x[1], 0x44),
             high_01 = _mm512_shuffle_f32x4(x[0], x[1], 0xee);
    const vf low_23 = _mm512_shuffle_f32x4(x[2], x[3], 0x44),
             high_23 = _mm512_shuffle_f32x4(x[2], x[3], 0xee);
    to[0] = _mm512_shuffle_f32x4(low_01, low_23, 0x88);
    to[1] = _mm512_shuffle_f32x4(low_01, low_23, 0xdd);
    to[2] = _mm512_shuffle_f32x4(high_01, high_23, 0x88);
    to[3] = _mm512_shuffle_f32x4(high_01, high_23, 0xdd);
}

/* ---- products with many rows ----------------------------------------------------------------- */

OP vi vi_dot_words(vi sum, vi a, vi b)
{
    return asm_dot_words(sum, a, b);
}
OP vi vi_pairs(vi u, vi s)
{
    return _mm512_maddubs_epi16(u, s);
}
OP vi vi_add_pairs(vi pairs, vi u, vi s)
{
    return _mm512_add_epi16(pairs, vi_pairs(u, s));
}
OP vi vi_widen_pairs(vi sum, vi pairs)
{
    return _mm512_add_epi32(sum, _mm512_madd_epi16(pairs, _mm512_set1_epi16(1)));
}
OP vi vi_mul(vi a, vi b)
{
    return _mm512_mullo_epi32(a, b);
}
OP vi low_words(vi x)
{
    return _mm512_srai_epi16(_mm512_slli_epi16(x, 8), 8);
}
OP vi high_words(vi x)
{
    return _mm512_srai_epi16(x, 8);
}
OP vi words_add(vi a, vi b)
{
    return _mm512_add_epi16(a, b);
}
OP vi words_sub(vi a, vi b)
{
    return _mm512_sub_epi16(a, b);
}

#endif
