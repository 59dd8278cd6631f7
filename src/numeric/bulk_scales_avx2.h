/* A part of bulk_quantise_avx2.h: how the extremes of groups are measured, and how scales and zero
 * points, which bulk_derive.h makes from them, go to memory. */
#ifndef SINTER_SRC_NUMERIC_BULK_SCALES_AVX2_H
#define SINTER_SRC_NUMERIC_BULK_SCALES_AVX2_H

#include "numeric/groups.h"
#include "numeric/quant_scales.h"

/* The largest of each group of a chunk lane by lane, as integers of the elements' width: of |x|,
 * or of x as signed ones and as unsigned ones, which of floats is the one furthest below 0. */
typedef struct lanes {
    vi top[CHUNK_REGISTERS], bottom[CHUNK_REGISTERS];
} lanes_t;

/* ---- extremes -------------------------------------------------------------------------------- */

/* Groups of a register or less have no lanes: those are their elements. */
OP bool within_register(sinter_data_type_t from, int64_t size)
{
    return size * source_bytes(from) <= REGISTER;
}

/* What is measured of a chunk, and where it goes. */
typedef struct measured {
    const unsigned char *x; /* NULL: nothing is measured */
    vi *copy;               /* NULL: of a long group, which is not copied */
    vi *top, *bottom;       /* the lanes of groups */
    int folds;              /* registers of a quad that are folded into one: of a group at most */
    int shift;              /* quad k is a part of group k >> shift */
} measured_t;

/* Lanes of a group of several quads begin with the least that there is. */
OP void clear_lanes(const measured_t *m, bool words, int64_t groups)
{
    for (int64_t g = 0; m->shift > 0 && g < groups; g++) {
        vi_store(m->top + g, sign_bits(words));
        vi_store(m->bottom + g, vi_set1(0));
    }
}
/* v: the registers of quads k to k + n - 1, four of floats each or two of words. Two quads are in
 * one group if a group has several. */
OP void put_lanes(side_t side, bool words, int n, const measured_t *m, int64_t k, const vi *v)
{
    vi *const to = side == BOTTOM ? m->bottom : m->top;
    const int each = words ? 1 : 2;
    vi pairs[4], quads[2];
    UNROLL
    for (int i = 0; i < n * each; i++) {
        pairs[i] = largest(side, words, v[2 * i], v[2 * i + 1]);
    }
    if (!words && m->folds == 2) {
        UNROLL
        for (int i = 0; i < 2 * n; i++) {
            vi_store(to + 2 * k + i, pairs[i]);
        }
        return;
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        quads[i] = words ? pairs[i] : largest(side, words, pairs[2 * i], pairs[2 * i + 1]);
    }
    if (m->shift > 0) {
        vi *const group = to + (k >> m->shift);
        const vi all = n == 1 ? quads[0] : largest(side, words, quads[0], quads[1]);
        vi_store(group, largest(side, words, all, vi_load(group)));
        return;
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        vi_store(to + k + i, quads[i]);
    }
}
/* One quad or two, from quad k on. */
OP void measure_quads(bool words, bool both, int quads, const measured_t *m, int64_t k)
{
    const int each = words ? 2 : 4, n = quads * each;
    const unsigned char *x = m->x + k * each * REGISTER;
    vi v[8];
    UNROLL
    for (int i = 0; i < n; i++) {
        v[i] = vi_load(x + i * REGISTER);
        if (i * REGISTER % 64 == 0) {
            __builtin_prefetch(x + i * REGISTER + BLOCK_AHEAD);
        }
    }
    if (m->copy != NULL) {
        UNROLL
        for (int i = 0; i < n; i++) {
            vi_store(m->copy + k * each + i, v[i]);
        }
    }
    if (m->folds == 1) {
        return;
    }
    if (both) {
        put_lanes(BOTTOM, words, quads, m, k, v);
    }
    UNROLL
    for (int i = 0; i < n; i++) {
        v[i] = both ? v[i] : without(v[i], sign_bits(words));
    }
    put_lanes(TOP, words, quads, m, k, v);
}

/* A chunk for which there is nothing to encode yet. */
NOT_INLINED void measure_only(bool words, bool both, const measured_t *m, int64_t quads)
{
    for (int64_t k = 0; k < quads; k++) {
        if (words) {
            measure_quads(true, both, 1, m, k);
        } else {
            measure_quads(false, both, 1, m, k);
        }
    }
}

/* The extreme that `largest` has left, at least 0. */
OP vi extreme_of(side_t side, bool words, vi x)
{
    if (side == MAGNITUDE) {
        return x;
    }
    return largest(TOP, words, side == TOP ? x : vi_xor(x, sign_bits(words)), vi_set1(0));
}

/* raw: of elements, whose magnitudes they do not yet have. */
OP vi lanes_of(side_t side, bool words, bool raw, const vi *from)
{
    const vi x = vi_load(from);
    return side == MAGNITUDE && raw ? without(x, sign_bits(words)) : x;
}

OP vi larger_by_turns(side_t side, int bytes, vi a, vi b)
{
    return largest(side, true, by_turns(bytes, 0, a, b), by_turns(bytes, 1, a, b));
}
/* In 128-bit lane i, word k: the largest of lane i of register k, of eight. */
OP vi of_eight(side_t side, bool raw, const vi *lanes)
{
    vi two[4], four[2];
    for (int k = 0; k < 4; k++) {
        two[k] = larger_by_turns(side, 2, lanes_of(side, true, raw, lanes + 2 * k),
                                 lanes_of(side, true, raw, lanes + 2 * k + 1));
    }
    for (int k = 0; k < 2; k++) {
        four[k] = larger_by_turns(side, 4, two[2 * k], two[2 * k + 1]);
    }
    return larger_by_turns(side, 8, four[0], four[1]);
}
/* Of up to 2 LANES groups of words, in order, n of which have a register each. */
OP vi extremes_of_words(side_t side, bool raw, const vi *lanes, int n)
{
    vi v[LANES / 4];
    for (int k = 0; k < LANES / 4; k++) {
        v[k] = 8 * k < n ? of_eight(side, raw, lanes + 8 * k) : vi_set1(0);
    }
    return fold_quarters(side, v);
}

OP void extremes_of_floats(side_t side, bool raw, const vi *lanes, int n, vu *to)
{
    vi v[LANES];
    for (int g = 0; g < n; g += LANES) {
        for (int k = 0; k < LANES; k++) {
            v[k] = lanes_of(side, false, raw, lanes + g + k);
        }
        to[g / LANES] = (vu)extreme_of(side, false, vi_larger_each(side != BOTTOM, v));
    }
}

/* Extremes of n groups as bits of floats, LANES a vector; after those anything. */
OP void extremes_of(sinter_data_type_t from, side_t side, int64_t size, const vi *lanes, int n,
                    vu *to)
{
    if (from == sinter_f32) {
        if (within_register(sinter_f32, size)) {
            extremes_of_floats(side, true, lanes, n, to);
        } else {
            extremes_of_floats(side, false, lanes, n, to);
        }
        return;
    }
    for (int g = 0; g < n; g += 2 * LANES) {
        const vi all = within_register(from, size)
                           ? extremes_of_words(side, true, lanes + g, n - g)
                           : extremes_of_words(side, false, lanes + g, n - g);
        const vi x = extreme_of(side, true, all);
        for (int h = 0; h < 2; h++) {
            to[g / LANES + h] = (vu)(from == sinter_f16 ? vf_of_half(x, h) : vf_of_brain(x, h));
        }
    }
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* The first 1, 2, 4 ... 32 bytes: plain stores are faster than those under masks. */
OP void put_bytes(unsigned char *p, int n, __m256i x)
{
    const __m128i low = _mm256_castsi256_si128(x);
    const uint32_t bits = (uint32_t)_mm_cvtsi128_si32(low);
    if (n == 4) {
        memcpy(p, &bits, 4);
    } else if (n == 8) {
        _mm_storel_epi64((__m128i *)(void *)p, low);
    } else if (n == 16) {
        _mm_storeu_si128((__m128i *)(void *)p, low);
    } else if (n == 32) {
        _mm256_storeu_si256((__m256i *)(void *)p, x);
    } else {
        memcpy(p, &bits, n == 2 ? 2 : 1);
    }
}
OP void put_dwords(unsigned char *p, int n, vf x)
{
    if (n == LANES) {
        vf_store(p, x);
    } else {
        put_bytes(p, 4 * n, (__m256i)vf_half(x, 0));
    }
}
/* The low bytes of n dwords; nibbles: of two in a byte. */
OP void put_low_bytes(bool nibbles, unsigned char *p, int n, vu x)
{
    const vu block[VECTORS] = {x};
    const __m128i bytes = narrow_8(block);
    if (nibbles) {
        n /= 2;
        put_bytes(p, n, _mm256_castsi128_si256(pack_4(_mm_and_si128(bytes, _mm_set1_epi8(15)))));
    } else {
        put_bytes(p, n, _mm256_castsi128_si256(bytes));
    }
}

/* The codes of the first n of a block: scales. */
OP void put_block_of(int bits, unsigned char *p, int n, block_t code)
{
    put_bytes(p, n * bits / 8, bits == 16 ? code.words : _mm256_castsi128_si256(code.bytes));
}

#include "numeric/bulk_derive.h"

#endif
