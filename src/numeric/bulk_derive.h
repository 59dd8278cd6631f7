/* The part of quantise by chunks that is the same for all instruction sets: from the extremes of
 * a chunk's groups to their scales and zero points in memory, and to the factors that encoding
 * needs. The schema allows kinds of powers of two only e8m0 scales, and dynamic_nv only f8_e4m3
 * scales. Included by bulk_scales_<isa>.h at its end, which has what stands above it here:
 *
 *   CHUNK_FACTORS, BLOCK_FACTORS      factors of a chunk, of a block
 *   extremes_of                       of n groups, as bits of floats
 *   put_dwords, put_low_bytes, put_block_of
 *                                     the first n dwords; their low bytes; the codes of a block
 */
#ifndef SINTER_SRC_NUMERIC_BULK_DERIVE_H
#define SINTER_SRC_NUMERIC_BULK_DERIVE_H

#include "numeric/bulk.h"
#include "numeric/groups.h"
#include "numeric/quant_scales.h"

/* The factors of each 16 elements of a chunk, as bits; zp: integers. A long group has those of one
 * block, which all its blocks share. */
typedef struct factors {
    uint32_t by[CHUNK_FACTORS], inverse[CHUNK_FACTORS], zp[CHUNK_FACTORS];
} factors_t;

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
    put_block_of(c->bits, p, n, code);
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
/* Groups of 32 and 64 as if there were LANES of them, a constant: the factors have room for it. */
OP void spread(int64_t size, vf x, int g, int n, uint32_t *to)
{
    if (size == 16) {
        vf_store(to + g, x);
    } else if (size == 32) {
        spread_by(2, x, g, LANES, to);
    } else if (size == 64) {
        spread_by(4, x, g, LANES, to);
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
/* Quotients of f4_e2m1 are times 2^gain: its codes are found from what is beside 4 |y|. */
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
