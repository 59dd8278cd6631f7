/* A part of bulk_quantise_avx512.h: how the extremes of groups are measured, and how scales and
 * zero points, which bulk_derive.h makes from them, go to memory. */
#ifndef SINTER_SRC_NUMERIC_BULK_SCALES_AVX512_H
#define SINTER_SRC_NUMERIC_BULK_SCALES_AVX512_H

#include "numeric/groups.h"
#include "numeric/quant_scales.h"

/* The largest of each group of a chunk lane by lane, as integers of the elements' width: of |x|,
 * or of x as signed ones and as unsigned ones, which of floats is the one furthest below 0. */
typedef struct lanes {
    __m512i top[CHUNK_LINES], bottom[CHUNK_LINES];
} lanes_t;

/* ---- extremes -------------------------------------------------------------------------------- */

OP __m512i sign_bits(bool words)
{
    return words ? _mm512_set1_epi16(INT16_MIN) : _mm512_set1_epi32(INT32_MIN);
}
OP __m512i largest(side_t side, bool words, __m512i a, __m512i b)
{
    if (side == BOTTOM) {
        return words ? _mm512_max_epu16(a, b) : _mm512_max_epu32(a, b);
    }
    return words ? _mm512_max_epi16(a, b) : _mm512_max_epi32(a, b);
}

/* Groups of a line or less have no lanes: those are their elements. */
OP bool within_line(sinter_data_type_t from, int64_t size)
{
    return size * source_bytes(from) <= 64;
}
/* Lines of a block that are folded into one: those of a group, at least one. */
OP int folds(sinter_data_type_t from, int64_t size)
{
    const int64_t most = size < DTYPE_BLOCK ? size : DTYPE_BLOCK;
    return within_line(from, size) ? 1 : (int)(most * source_bytes(from) / 64);
}

/* The lines of a block, four of words or eight, folded by 2, by 4 or into one, then with what is
 * there if `more`. */
OP void fold_lines(side_t side, bool words, int fold, bool more, const __m512i *v, __m512i *to)
{
    const int n = words ? 4 : 8;
    __m512i two[4], four[2];
    UNROLL
    for (int k = 0; k < n / 2; k++) {
        two[k] = largest(side, words, v[2 * k], v[2 * k + 1]);
        if (fold == 2) {
            _mm512_store_si512(to + k, two[k]);
        }
    }
    if (fold == 2) {
        return;
    }
    four[0] = largest(side, words, two[0], two[1]);
    if (!words) {
        four[1] = largest(side, words, two[2], two[3]);
        if (fold == 4) {
            _mm512_store_si512(to, four[0]);
            _mm512_store_si512(to + 1, four[1]);
            return;
        }
        four[0] = largest(side, words, four[0], four[1]);
    }
    _mm512_store_si512(to, more ? largest(side, words, four[0], _mm512_load_si512(to)) : four[0]);
}

/* Where measuring a block puts its lines, unless copy is NULL, and its lanes. */
typedef struct measured {
    __m512i *copy, *top, *bottom;
} measured_t;

/* The block at x. more: its lanes join those of a group that has begun before. */
OP void measure(sinter_data_type_t from, bool both, int fold, bool more, const unsigned char *x,
                const measured_t *to)
{
    const bool words = from != sinter_f32;
    const int n = words ? 4 : 8;
    __m512i v[8];
    UNROLL
    for (int k = 0; k < n; k++) {
        v[k] = _mm512_loadu_si512(x + 64 * k);
        __builtin_prefetch(x + 64 * k + BLOCK_AHEAD);
    }
    if (to->copy != NULL) {
        UNROLL
        for (int k = 0; k < n; k++) {
            _mm512_store_si512(to->copy + k, v[k]);
        }
    }
    if (fold == 1) {
        return;
    }
    if (both) {
        fold_lines(BOTTOM, words, fold, more, v, to->bottom);
    }
    UNROLL
    for (int k = 0; k < n; k++) {
        v[k] = both ? v[k] : _mm512_andnot_si512(sign_bits(words), v[k]);
    }
    fold_lines(TOP, words, fold, more, v, to->top);
}

/* The extreme that `largest` has left, at least 0. */
OP __m512i extreme_of(side_t side, bool words, __m512i x)
{
    if (side == MAGNITUDE) {
        return x;
    }
    return largest(TOP, words, side == TOP ? x : _mm512_xor_si512(x, sign_bits(words)),
                   _mm512_setzero_si512());
}

/* raw: of elements, whose magnitudes they do not yet have. */
OP __m512i lanes_line(side_t side, bool words, bool raw, const __m512i *line)
{
    const __m512i x = _mm512_load_si512(line);
    return side == MAGNITUDE && raw ? _mm512_andnot_si512(sign_bits(words), x) : x;
}

/* In 128-bit lane i, word k: the largest of lane i of line k, of eight. */
OP __m512i of_eight(side_t side, bool raw, const __m512i *lines)
{
    __m512i two[4], four[2];
    for (int k = 0; k < 4; k++) {
        const __m512i a = lanes_line(side, true, raw, lines + 2 * k),
                      b = lanes_line(side, true, raw, lines + 2 * k + 1);
        two[k] = largest(side, true, _mm512_unpacklo_epi16(a, b), _mm512_unpackhi_epi16(a, b));
    }
    for (int k = 0; k < 2; k++) {
        const __m512i a = two[2 * k], b = two[2 * k + 1];
        four[k] = largest(side, true, _mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
    }
    return largest(side, true, _mm512_unpacklo_epi64(four[0], four[1]),
                   _mm512_unpackhi_epi64(four[0], four[1]));
}
/* Of up to 32 groups of words, in order: of n that have a line each, or of 32 that have half a
 * line each. */
OP __m512i extremes_of_lines(side_t side, bool raw, const __m512i *lines, int n)
{
    __m512i v[4];
    for (int k = 0; k < 4; k++) {
        v[k] = 8 * k < n ? of_eight(side, raw, lines + 8 * k) : _mm512_setzero_si512();
    }
    for (int k = 0; k < 2; k++) { /* 128-bit lanes of v[2 k], v[2 k], v[2 k + 1], v[2 k + 1] */
        const __m512i a = v[2 * k], b = v[2 * k + 1];
        v[k] =
            largest(side, true, _mm512_shuffle_i64x2(a, b, 0x44), _mm512_shuffle_i64x2(a, b, 0xee));
    }
    return largest(side, true, _mm512_shuffle_i64x2(v[0], v[1], 0x88),
                   _mm512_shuffle_i64x2(v[0], v[1], 0xdd));
}
OP __m512i extremes_of_halves(side_t side, const __m512i *lines)
{
    const __m512i a = of_eight(side, true, lines), b = of_eight(side, true, lines + 8);
    /* 128-bit lanes of groups 0 2 ... 14, 1 3 ... 15, 16 18 ... 30, 17 19 ... 31 */
    const __m512i turns =
        largest(side, true, _mm512_shuffle_i64x2(a, b, 0x88), _mm512_shuffle_i64x2(a, b, 0xdd));
    const __m512i order = _mm512_set_epi16(31, 23, 30, 22, 29, 21, 28, 20, 27, 19, 26, 18, 25, 17,
                                           24, 16, /* by turns */
                                           15, 7, 14, 6, 13, 5, 12, 4, 11, 3, 10, 2, 9, 1, 8, 0);
    return _mm512_permutexvar_epi16(order, turns);
}

OP void extremes_of_floats(side_t side, bool raw, const __m512i *lines, int n, vu *to)
{
    __m512i v[16];
    for (int g = 0; g < n; g += 16) {
        for (int k = 0; k < 16; k++) {
            v[k] = lanes_line(side, false, raw, lines + g + k);
        }
        to[g / 16] = (vu)extreme_of(side, false, vi_larger_each(side != BOTTOM, v));
    }
}

/* Extremes of n groups as bits of floats, 16 a vector; after those anything. */
OP void extremes_of(sinter_data_type_t from, side_t side, int64_t size, const __m512i *lines, int n,
                    vu *to)
{
    if (from == sinter_f32) {
        if (within_line(sinter_f32, size)) {
            extremes_of_floats(side, true, lines, n, to);
        } else {
            extremes_of_floats(side, false, lines, n, to);
        }
        return;
    }
    for (int g = 0; g < n; g += 32) {
        const __m512i all = size == 16 ? extremes_of_halves(side, lines + g / 2)
                            : within_line(from, size)
                                ? extremes_of_lines(side, true, lines + g, n - g)
                                : extremes_of_lines(side, false, lines + g, n - g);
        const __m512i x = extreme_of(side, true, all);
        const __m256i low = _mm512_castsi512_si256(x), high = _mm512_extracti64x4_epi64(x, 1);
        to[g / 16] =
            from == sinter_f16 ? (vu)_mm512_cvtph_ps(low) : (vu)_mm512_cvtepu16_epi32(low) << 16;
        to[g / 16 + 1] =
            from == sinter_f16 ? (vu)_mm512_cvtph_ps(high) : (vu)_mm512_cvtepu16_epi32(high) << 16;
    }
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* The first 1, 2, 4 ... bytes: plain stores are faster than those under masks. */
OP void put_bytes(unsigned char *p, int n, __m512i x)
{
    const __m128i low = _mm512_castsi512_si128(x);
    const uint32_t bits = (uint32_t)_mm_cvtsi128_si32(low);
    if (n == 4) {
        memcpy(p, &bits, 4);
    } else if (n == 8) {
        _mm_storel_epi64((__m128i *)(void *)p, low);
    } else if (n == 16) {
        _mm_storeu_si128((__m128i *)(void *)p, low);
    } else if (n == 32) {
        _mm256_storeu_si256((__m256i *)(void *)p, _mm512_castsi512_si256(x));
    } else if (n == 64) {
        _mm512_storeu_si512(p, x);
    } else {
        memcpy(p, &bits, n == 2 ? 2 : 1);
    }
}
OP void put_dwords(unsigned char *p, int n, vf x)
{
    put_bytes(p, 4 * n, (__m512i)x);
}
/* The low bytes of n dwords; nibbles: of two in a byte. */
OP void put_low_bytes(bool nibbles, unsigned char *p, int n, vu x)
{
    const __m128i bytes = narrow_8(&x);
    const __m128i pairs = pack_4(_mm_and_si128(bytes, _mm_set1_epi8(15)));
    put_bytes(p, nibbles ? n / 2 : n, _mm512_castsi128_si512(nibbles ? pairs : bytes));
}
/* The codes of the first n of a block: scales. */
OP void put_block_of(int bits, unsigned char *p, int n, block_t code)
{
    put_bytes(p, n * bits / 8,
              bits == 16 ? _mm512_castsi256_si512(code.words) : _mm512_castsi128_si512(code.bytes));
}

#include "numeric/bulk_derive.h"

#endif
