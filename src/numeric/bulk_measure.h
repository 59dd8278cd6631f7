/* A part of bulk_quantise.h: how the extremes of groups are measured. */
#ifndef SINTER_SRC_NUMERIC_BULK_MEASURE_H
#define SINTER_SRC_NUMERIC_BULK_MEASURE_H

#include "numeric/bulk.h"
#include "numeric/groups.h"
#include "numeric/quant_scales.h"

enum {
    REGISTER = 4 * LANES, /* bytes */
    QUAD = 4 * LANES,     /* elements of four vectors, whose codes fill a register of bytes */
    BLOCK_QUADS = DTYPE_BLOCK / QUAD,
    CHUNK_REGISTERS = DTYPE_CHUNK_BYTES / REGISTER,
    BLOCK_AHEAD = 4096, /* bytes fetched ahead of what is measured; harmless past the end */
};

/* The largest of each group of a chunk lane by lane, as integers of the elements' width: of |x|,
 * or of x as signed ones and as unsigned ones, which of floats is the one furthest below 0. */
typedef struct lanes {
    vi top[CHUNK_REGISTERS], bottom[CHUNK_REGISTERS];
} lanes_t;

/* What is measured of a chunk, and where it goes. */
typedef struct measured {
    const unsigned char *x; /* NULL: nothing is measured */
    vi *copy;               /* NULL: of a long group, which is not copied */
    vi *top, *bottom;       /* the lanes of groups */
    int folds;              /* registers of a quad that are folded into one: of a group at most */
    int shift;              /* quad k is a part of group k >> shift */
    int64_t within;         /* the bits of k that say which of its quads this is */
} measured_t;

/* Groups of a register or less have no lanes: those are their elements. */
OP bool within_register(sinter_data_type_t from, int64_t size)
{
    return size * source_bytes(from) <= REGISTER;
}
/* How groups of this size are measured. */
OP measured_t measured_as(sinter_data_type_t from, int64_t size, lanes_t *lanes)
{
    const int64_t part = size < QUAD ? size : QUAD;
    const int folds = within_register(from, size) ? 1 : (int)(part * source_bytes(from)) / REGISTER,
              shift = size > DTYPE_BLOCK ? 63
                      : size > QUAD      ? __builtin_ctzll((uint64_t)(size / QUAD))
                                         : 0;
    return (measured_t){.top = lanes->top,
                        .bottom = lanes->bottom,
                        .folds = folds,
                        .shift = shift,
                        .within = (int64_t)((UINT64_C(1) << shift) - 1)};
}

OP vi sign_bits(bool words)
{
    return vi_set1(words ? INT32_MIN | 0x8000 : INT32_MIN);
}
/* The bits of a that b has not. */
OP vi without(vi a, vi b)
{
    return a & ~b;
}
OP vi largest(side_t side, bool words, vi a, vi b)
{
    return words ? words_larger(side != BOTTOM, a, b) : vi_larger(side != BOTTOM, a, b);
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
        const bool first = (k & m->within) == 0;
        vi_store(group, first ? all : largest(side, words, all, vi_load(group)));
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
NOT_INLINED void measure_only(bool words, bool both, const measured_t *measured, int64_t quads)
{
    const measured_t own = *measured, *m = &own; /* nothing that is stored can change copies */
    for (int64_t k = 0; k < quads; k += 2) {
        if (words) {
            measure_quads(true, both, 2, m, k);
        } else {
            measure_quads(false, both, 2, m, k);
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
/* Of up to 2 LANES groups of words, in order, n of which have a register each; or of 32 that have
 * half a register of 64 bytes each. */
OP vi extremes_of_words(side_t side, bool raw, const vi *lanes, int n)
{
    vi v[LANES / 4];
    for (int k = 0; k < LANES / 4; k++) {
        v[k] = 8 * k < n ? of_eight(side, raw, lanes + 8 * k) : vi_set1(0);
    }
    return fold_quarters(side != BOTTOM, v);
}
OP vi extremes_of_halves(side_t side, const vi *lanes)
{
    return fold_halves(side != BOTTOM, of_eight(side, true, lanes),
                       of_eight(side, true, lanes + 8));
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
        const vi all = LANES == 16 && size == 16 ? extremes_of_halves(side, lanes + g / 2)
                       : within_register(from, size)
                           ? extremes_of_words(side, true, lanes + g, n - g)
                           : extremes_of_words(side, false, lanes + g, n - g);
        const vi x = extreme_of(side, true, all);
        for (int h = 0; h < 2; h++) {
            to[g / LANES + h] = (vu)(from == sinter_f16 ? vf_of_half(x, h) : vf_of_brain(x, h));
        }
    }
}
/* Once for each chunk, not inlined: all kinds of formulas share these. */
NOT_INLINED void extremes_of_magnitudes(sinter_data_type_t from, int64_t size, const vi *lanes,
                                        int n, vu *to)
{
    extremes_of(from, MAGNITUDE, size, lanes, n, to);
}
NOT_INLINED void extremes_at_top(sinter_data_type_t from, int64_t size, const vi *lanes, int n,
                                 vu *to)
{
    extremes_of(from, TOP, size, lanes, n, to);
}
NOT_INLINED void extremes_at_bottom(sinter_data_type_t from, int64_t size, const vi *lanes, int n,
                                    vu *to)
{
    extremes_of(from, BOTTOM, size, lanes, n, to);
}

#endif
