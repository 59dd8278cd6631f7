/* A part of bulk_quantise_avx2.h: the extremes of groups, and the scales, zero points and factors
 * that quant_scales.h makes from them. The schema allows kinds of powers of two only e8m0 scales,
 * and dynamic_nv only f8_e4m3 scales. */
#ifndef SINTER_SRC_NUMERIC_BULK_SCALES_AVX2_H
#define SINTER_SRC_NUMERIC_BULK_SCALES_AVX2_H

#include "numeric/groups.h"
#include "numeric/quant_scales.h"

/* The largest of each group of a chunk lane by lane, as integers of the elements' width: of |x|,
 * or of x as signed ones and as unsigned ones, which of floats is the one furthest below 0. */
typedef struct lanes {
    vi top[CHUNK_REGISTERS], bottom[CHUNK_REGISTERS];
} lanes_t;

/* The factors of each 16 elements of a chunk, as bits; zp: integers. A long group has those of one
 * block, which all its blocks share. */
typedef struct factors {
    uint32_t by[CHUNK_FACTORS], inverse[CHUNK_FACTORS], zp[CHUNK_FACTORS];
} factors_t;

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

/* n scales to memory; returns them as their type has them, 0 as 1. */
OP vf put_codes(const code_t *c, encoding_t how, unsigned char *p, int n, vf s)
{
    vf block[VECTORS] = {s};
    block_t code = encode(c, how, block);
    vf x = decode(c, code, 0);
    if (vm_any(vu_eq((vu)x, vu_set1(0)))) {
        x = block[0] = one_for_zero(x);
        code = encode(c, how, block);
    }
    put_bytes(p, n * c->bits / 8, c->bits == 16 ? code.words : _mm256_castsi128_si256(code.bytes));
    return x;
}
OP vf put_scales(sinter_data_type_t type, unsigned char *p, int n, vf s)
{
    if (type == sinter_e8m0) {
        return put_codes(&code_e8m0, PLAIN, p, n, s);
    }
    if (type == sinter_f8_e4m3) { /* scales that are NaN or infinite are found later */
        return put_codes(&code_f8_e4m3, FINITE, p, n, s);
    }
    if (type == sinter_f16) {
        return put_codes(&code_f16, PLAIN, p, n, s);
    }
    if (type == sinter_bf16) {
        return put_codes(&code_bf16, PLAIN, p, n, s);
    }
    s = one_for_zero(s);
    put_dwords(p, n, s);
    return s;
}

/* Those of dynamic_nv, which f8_e4m3 neither overflows nor has as 0. */
OP vf put_scales_nv(unsigned char *p, int n, vf s)
{
    const vf power = rounding_power(format_f8_e4m3, s), sum = s + power;
    put_low_bytes(false, p, n, sum_code(format_f8_e4m3, sum) & 0x7F);
    return sum - power;
}

/* Zero points, saturated, to memory: nibbles by twos, or bytes, or dwords. */
OP void put_zps(sinter_data_type_t type, unsigned char *p, int n, vf zp)
{
    const vu code = vf_to_int(zp);
    if (type == sinter_s32) {
        put_dwords(p, n, (vf)code);
    } else {
        put_low_bytes(type == sinter_s4 || type == sinter_u4, p, n, code & 0xFF);
    }
}

/* Values of n <= LANES groups from g on to their factors. Each group has `each` of them, 1, 2, 4 or
 * 8. */
OP void spread_by(int each, vf x, int g, int n, uint32_t *to)
{
    static const uint32_t first[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    const vu lane = (vu)vi_load(first);
    to += g * each;
    for (int i = 0; i < each && i * LANES < n * each; i++) {
        vf_store(to + i * LANES, vf_lookup((lane + (uint32_t)(i * LANES)) / (uint32_t)each, x));
    }
}
OP void spread(int64_t size, vf x, int g, int n, uint32_t *to)
{
    if (size == 16) {
        vf_store(to + g, x);
    } else if (size == 32) {
        spread_by(2, x, g, n, to);
    } else if (size == 64) {
        spread_by(4, x, g, n, to);
    } else {
        spread_by(BLOCK_FACTORS, x, g, n, to);
    }
}

/* n groups of a chunk from g on, at most LANES; `first`: the number of the chunk's first group. */
typedef struct some_groups {
    int64_t first;
    int g, n;
} some_groups_t;

/* For up to LANES groups: scales and zero points to memory, factors to their elements, for
 * quotients times 2^gain. Returns the bad groups: those whose extreme or scale is NaN or infinite,
 * or whose scale is too far from 1 for its inverse to stand for it, or so small that quotients are
 * beyond the range that packing saturates. */
OP vm derive_groups(const dtype_blocks_t *b, const quant_formula_t *f, int gain, some_groups_t at,
                    vu top, vu bottom, factors_t *to)
{
    const int g = at.g, n = at.n;
    const groups_t *scales = &b->to.scale, *zps = &b->to.zp;
    const vm infinite = beyond_numbers(top, bottom);
    unsigned char *scale = groups_output(scales, scales->first + at.first + g);
    if (quant_by_powers(f->kind)) {
        const vu code = power_codes(f, top), inverse = 254 + (uint32_t)gain - code;
        put_low_bytes(false, scale, n, code);
        spread(b->size, e8m0_power(vu_min(inverse, vu_set1(254))), g, n, to->by);
        return infinite | (vu_gt(inverse, vu_set1(254)) & vu_gt(top, vu_set1(0)));
    }
    /* A subnormal scale may be off, but it is bad, or below what its type or dynamic_nv have. */
    const vf exact = exact_scales(f, true, top, bottom);
    const vf s = f->kind == QUANT_DYNAMIC_NV ? put_scales_nv(scale, n, exact)
                                             : put_scales(scales->dtype, scale, n, exact);
    const vf gained = vf_set1(f32_of_bits((127 + (uint32_t)gain) << 23)),
             lost = vf_set1(f32_of_bits((127 - (uint32_t)gain) << 23));
    const vf by = s * vf_set1(f->tensor_scale), inverse = gained / by;
    spread(b->size, (vf)(by * lost), g, n, to->by);
    spread(b->size, inverse, g, n, to->inverse);
    if (f->kind == QUANT_DYNAMIC_ASYMMETRIC) {
        const float least = (float)zps->type->min, most = (float)zps->type->max;
        const vf zp = vf_clamp(zero_points_of(f, vf_quotient((vf)bottom, s, inverse)),
                               f->elem_min > least ? f->elem_min : least,
                               f->elem_max < most ? f->elem_max : most);
        put_zps(zps->dtype, groups_output(zps, zps->first + at.first + g), n, zp);
        spread(b->size, (vf)vf_to_int(zp), g, n, to->zp);
    }
    const vm good = vf_ge(by, vf_set1(0x1p-100f)) & vf_ge(vf_set1(0x1p100f), by) &
                    vf_ge(by * vf_set1(0x1p14f), (vf)vu_max(top, bottom));
    return infinite | (vm)~good;
}

/* The lanes of a chunk's groups, or the elements of groups of a register or less. */
typedef struct chunk_lanes {
    const vi *top, *bottom;
} chunk_lanes_t;

/* The n groups of a chunk, from `first`. False: some are bad. First all extremes, so that many
 * scales are under way at once. */
OP bool derive_kind(quant_kind_t kind, const dtype_blocks_t *b, int gain, int64_t first, int n,
                    const chunk_lanes_t *lanes, factors_t *to)
{
    const bool both = kind == QUANT_DYNAMIC_ASYMMETRIC;
    quant_formula_t f = *b->formula;
    vu top[CHUNK_FACTORS / LANES], bottom[CHUNK_FACTORS / LANES];
    vm bad = lanes_below(0);
    f.kind = kind; /* known where this is compiled */
    (both ? extremes_at_top : extremes_of_magnitudes)(b->from, b->size, lanes->top, n, top);
    if (both) {
        extremes_at_bottom(b->from, b->size, lanes->bottom, n, bottom);
    }
    for (int g = 0; g < n; g += LANES) {
        const vu low = both ? bottom[g / LANES] : vu_set1(0);
        const int count = n - g < LANES ? n - g : LANES;
        const some_groups_t at = {first, g, count};
        bad |= derive_groups(b, &f, gain, at, top[g / LANES], low, to) & lanes_below(count);
    }
    return !vm_any(bad);
}
/* Quotients of f4_e2m1 are times 2^gain. */
NOT_INLINED bool derive_chunk(const dtype_blocks_t *b, int64_t first, int n,
                              const chunk_lanes_t *lanes, factors_t *to)
{
    const int gain = b->to.codes.dtype == sinter_f4_e2m1 ? 2 : 0;
    switch (b->formula->kind) {
    case QUANT_DYNAMIC_MX:
        return derive_kind(QUANT_DYNAMIC_MX, b, gain, first, n, lanes, to);
    case QUANT_DYNAMIC_MX_RCEIL:
        return derive_kind(QUANT_DYNAMIC_MX_RCEIL, b, gain, first, n, lanes, to);
    case QUANT_DYNAMIC_SYMMETRIC:
        return derive_kind(QUANT_DYNAMIC_SYMMETRIC, b, gain, first, n, lanes, to);
    case QUANT_DYNAMIC_ASYMMETRIC:
        return derive_kind(QUANT_DYNAMIC_ASYMMETRIC, b, gain, first, n, lanes, to);
    case QUANT_DYNAMIC_NV:
        return derive_kind(QUANT_DYNAMIC_NV, b, gain, first, n, lanes, to);
    case QUANT_STATIC:
        break;
    }
    return false; /* static scales are not made here */
}

#endif
