/* Bytes and dwords with AVX2, and with AVX-VNNI where the including file defines HAS_AVX_VNNI:
 * ints_avx512.h lists the names, which mean the same in both. */
#ifndef SINTER_SRC_NUMERIC_INTS_AVX2_H
#define SINTER_SRC_NUMERIC_INTS_AVX2_H

#include "numeric/simd_avx2.h"

enum { VECTOR = 32, REGISTERS = 16, FLIPS_AND_MASKS = 0 };

/* ---- bytes ----------------------------------------------------------------------------------- */

#ifdef HAS_AVX_VNNI
#define SUMS_BYTES 1
/* As assembly: GCC would copy the sums around the intrinsic. */
OP vi vi_dot(bool small, vi sum, vi u, vi s)
{
    (void)small;
    __asm__("%{vex%} vpdpbusd %2, %1, %0" : "+x"(sum) : "x"(u), "x"(s));
    return sum;
}
#else
#define SUMS_BYTES 0
/* Pairs of products saturate at 16 bits: 127 * -128 twice does not reach that, and neither does
 * 128 * -128 twice, which is why the top bits of u go apart from the others. */
OP vi vi_dot(bool small, vi sum, vi u, vi s)
{
    const vi ones = _mm256_set1_epi16(1), top = _mm256_set1_epi8(-128);
    const vi low = _mm256_maddubs_epi16(small ? u : _mm256_andnot_si256(top, u), s);
    sum = _mm256_add_epi32(sum, _mm256_madd_epi16(low, ones));
    if (!small) {
        const vi high = _mm256_maddubs_epi16(_mm256_and_si256(top, u), s);
        sum = _mm256_add_epi32(sum, _mm256_madd_epi16(high, ones));
    }
    return sum;
}
#endif
OP vi vi_dot_dword(bool small, vi sum, vi u, const uint8_t *s)
{
    int32_t dword;
    memcpy(&dword, s, sizeof dword);
    return vi_dot(small, sum, u, vi_set1(dword));
}
OP vi bytes_flip(vi x, vi mask, vi flip)
{
    return _mm256_xor_si256(_mm256_and_si256(x, mask), flip);
}
OP vi bytes_lookup(vi table, vi at)
{
    return _mm256_shuffle_epi8(table, at);
}
OP vi bytes_shuffle(vi x, vi at)
{
    return _mm256_shuffle_epi8(x, at);
}
OP vi bytes_add(vi a, vi b)
{
    return _mm256_add_epi8(a, b);
}
OP vi bytes_sub(vi a, vi b)
{
    return _mm256_sub_epi8(a, b);
}
OP vi vi_of_bytes(int x)
{
    return _mm256_set1_epi8((char)x);
}
/* The tail of a row; not inlined, since it is rare and long. */
TARGET static __attribute__((noinline)) vi vi_load_tail(const unsigned char *p, int n)
{
    const int low = n < 16 ? n : 16;
    return _mm256_set_m128i(bytes_load_n(p + low, n - low), bytes_load_n(p, low));
}
OP vi vi_load_part(const void *p, int n)
{
    return n >= 32 ? _mm256_loadu_si256(p) : vi_load_tail(p, n);
}
/* Halves of 64 bytes are vectors of their own. */
OP vi vi_load_halves(const unsigned char *p, int64_t apart)
{
    (void)apart;
    return vi_load(p);
}
OP vi vi_repeat(const void *p)
{
    return _mm256_broadcastsi128_si256(load_16_bytes(p));
}
OP vi vi_low_8(vi a, vi b)
{
    return _mm256_unpacklo_epi8(a, b);
}
OP vi vi_high_8(vi a, vi b)
{
    return _mm256_unpackhi_epi8(a, b);
}
OP vi vi_low_16(vi a, vi b)
{
    return _mm256_unpacklo_epi16(a, b);
}
OP vi vi_high_16(vi a, vi b)
{
    return _mm256_unpackhi_epi16(a, b);
}
OP vi vi_low_32(vi a, vi b)
{
    return _mm256_unpacklo_epi32(a, b);
}
OP vi vi_high_32(vi a, vi b)
{
    return _mm256_unpackhi_epi32(a, b);
}
OP vi vi_low_64(vi a, vi b)
{
    return _mm256_unpacklo_epi64(a, b);
}
OP vi vi_high_64(vi a, vi b)
{
    return _mm256_unpackhi_epi64(a, b);
}
OP vi vi_even(vi a, vi b)
{
    return vi_of(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0x88));
}
OP vi vi_odd(vi a, vi b)
{
    return vi_of(_mm256_shuffle_ps(_mm256_castsi256_ps(a), _mm256_castsi256_ps(b), 0xdd));
}
OP vi vi_to_s8(const vi *x)
{
    return _mm256_packs_epi16(_mm256_packs_epi32(x[0], x[1]), _mm256_packs_epi32(x[2], x[3]));
}

/* ---- dwords ---------------------------------------------------------------------------------- */

OP vi fours_max(vi x)
{
    return vi_max(x, _mm256_permute2x128_si256(x, x, 1));
}
OP vi fours_sum(vi x)
{
    return _mm256_add_epi32(x, _mm256_permute2x128_si256(x, x, 1));
}
OP vf fours_sum_of_floats(vf x)
{
    return _mm256_add_ps(x, _mm256_permute2f128_ps(x, x, 1));
}
OP int32_t vi_sum(vi x)
{
    const vi pairs = _mm256_add_epi32(x, _mm256_shuffle_epi32(x, 0x4e));
    const vi ones = fours_sum(_mm256_add_epi32(pairs, _mm256_shuffle_epi32(pairs, 0xb1)));
    return _mm256_extract_epi32(ones, 0);
}

/* ---- fours of floats ------------------------------------------------------------------------- */

OP vf vf_gather(const float *p, const int32_t *at)
{
    return _mm256_i32gather_ps(p, vi_load(at), 4);
}
OP vf vf_repeat(const float *p)
{
    const __m128 x = _mm_loadu_ps(p);
    return _mm256_set_m128(x, x);
}
OP void vf_corners(const float *p, vf *to)
{
    const vf even = _mm256_set_m128(_mm_loadu_ps(p + 8), _mm_loadu_ps(p)),
             odd = _mm256_set_m128(_mm_loadu_ps(p + 12), _mm_loadu_ps(p + 4));
    to[0] = in_turn(_mm256_unpacklo_ps(even, odd));
    to[1] = in_turn(_mm256_unpackhi_ps(even, odd));
}
OP vf vf_spread(const float *p)
{
    return vf_repeat(p);
}
OP vf vf_add_quads(vf a, vf b)
{
    return _mm256_add_ps(_mm256_permute2f128_ps(a, b, 0x20), _mm256_permute2f128_ps(a, b, 0x31));
}
OP void vf_store_quad(float *p, vf x)
{
    _mm_storeu_ps(p, _mm_add_ps(_mm256_castps256_ps128(x), _mm256_extractf128_ps(x, 1)));
}
OP void vf_units(const vf *line, vf *to)
{
    const vf a = _mm256_unpacklo_ps(line[0], line[1]), b = _mm256_unpackhi_ps(line[0], line[1]);
    const vf c = _mm256_unpacklo_ps(line[2], line[3]), d = _mm256_unpackhi_ps(line[2], line[3]);
    /* Half i of x[j] is unit 4 i + j. */
    const vf x[4] = {_mm256_shuffle_ps(a, c, 0x44), _mm256_shuffle_ps(a, c, 0xee),
                     _mm256_shuffle_ps(b, d, 0x44), _mm256_shuffle_ps(b, d, 0xee)};
    to[0] = _mm256_permute2f128_ps(x[0], x[1], 0x20);
    to[1] = _mm256_permute2f128_ps(x[2], x[3], 0x20);
    to[2] = _mm256_permute2f128_ps(x[0], x[1], 0x31);
    to[3] = _mm256_permute2f128_ps(x[2], x[3], 0x31);
}

/* ---- products with many rows ----------------------------------------------------------------- */

#ifdef HAS_AVX_VNNI
OP vi vi_dot_words(vi sum, vi a, vi b)
{
    __asm__("%{vex%} vpdpwssd %2, %1, %0" : "+x"(sum) : "x"(a), "x"(b));
    return sum;
}
#else
OP vi vi_dot_words(vi sum, vi a, vi b)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(a, b));
}
#endif
OP vi vi_pairs(vi u, vi s)
{
    return _mm256_maddubs_epi16(u, s);
}
/* As assembly: GCC would copy the sums around the intrinsic. */
OP vi vi_add_pairs(vi pairs, vi u, vi s)
{
    __asm__("vpaddw %1, %0, %0" : "+x"(pairs) : "x"(vi_pairs(u, s)));
    return pairs;
}
/* As assembly, because GCC would keep the broadcasts of many rows in memory. */
OP void vi_two_pairs(vi *pairs, const vi *u, const uint8_t *s)
{
    __asm__("vpbroadcastd %4, %1\n\t"
            "vpmaddubsw %1, %2, %0\n\t"
            "vpmaddubsw %1, %3, %1"
            : "=&x"(pairs[0]), "=&x"(pairs[1])
            : "x"(u[0]), "x"(u[1]), "m"(*(const uint8_t(*)[4])s));
}
OP void vi_add_two_pairs(vi *pairs, const vi *u, const uint8_t *s)
{
    vi x, y;
    __asm__("vpbroadcastd %6, %3\n\t"
            "vpmaddubsw %3, %4, %2\n\t"
            "vpmaddubsw %3, %5, %3\n\t"
            "vpaddw %2, %0, %0\n\t"
            "vpaddw %3, %1, %1"
            : "+x"(pairs[0]), "+x"(pairs[1]), "=&x"(x), "=&x"(y)
            : "x"(u[0]), "x"(u[1]), "m"(*(const uint8_t(*)[4])s));
}
OP vi vi_widen_pairs(vi sum, vi pairs)
{
    return _mm256_add_epi32(sum, _mm256_madd_epi16(pairs, _mm256_set1_epi16(1)));
}
OP vi vi_mul(vi a, vi b)
{
    return _mm256_mullo_epi32(a, b);
}
OP vi low_words(vi x)
{
    return _mm256_srai_epi16(_mm256_slli_epi16(x, 8), 8);
}
OP vi high_words(vi x)
{
    return _mm256_srai_epi16(x, 8);
}
OP vi words_add(vi a, vi b)
{
    return _mm256_add_epi16(a, b);
}
OP vi words_sub(vi a, vi b)
{
    return _mm256_sub_epi16(a, b);
}

#endif
