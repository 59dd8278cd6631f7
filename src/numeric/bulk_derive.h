/* A part of bulk_quantise.h: from the extremes of a chunk's groups to their scales and zero points
 * in memory, and to the factors that encoding needs. The schema allows kinds of powers of two only
 * e8m0 scales, and dynamic_nv only f8_e4m3 scales. */
#ifndef SINTER_SRC_NUMERIC_BULK_DERIVE_H
#define SINTER_SRC_NUMERIC_BULK_DERIVE_H

#include "numeric/bulk_measure.h"

enum {
    BLOCK_FACTORS = DTYPE_BLOCK / 16,
    CHUNK_FACTORS = DTYPE_CHUNK_BYTES / 2 / 16, /* of 16-bit elements */
};

/* The factors of each 16 elements of a chunk, as bits, from these places on; zero points are
 * integers. A long group has those of one block, which all its blocks share. */
enum { BY, INVERSE = CHUNK_FACTORS, ZP = 2 * CHUNK_FACTORS };
typedef struct factors {
    uint32_t of[3 * CHUNK_FACTORS];
} factors_t;

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
        spread(b->size, e8m0_power(vu_min(inverse, vu_set1(254))), g, n, to->of + BY);
        return infinite | (vu_gt(inverse, vu_set1(254)) & vu_gt(top, vu_set1(0)));
    }
    /* A subnormal scale may be off, but it is bad, or below what its type or dynamic_nv have. */
    const vf exact = exact_scales(f, true, top, bottom);
    const vf s = f->kind == QUANT_DYNAMIC_NV ? put_scales_nv(scale, n, exact)
                                             : put_scales(scales->dtype, scale, n, exact);
    const vf gained = vf_set1(f32_of_bits((127 + (uint32_t)gain) << 23)),
             lost = vf_set1(f32_of_bits((127 - (uint32_t)gain) << 23));
    const vf by = s * vf_set1(f->tensor_scale), inverse = gained / by;
    spread(b->size, (vf)(by * lost), g, n, to->of + BY);
    spread(b->size, inverse, g, n, to->of + INVERSE);
    if (f->kind == QUANT_DYNAMIC_ASYMMETRIC) {
        const float least = (float)zps->type->min, most = (float)zps->type->max;
        const vf zp = vf_clamp(zero_points_of(f, vf_quotient((vf)bottom, s, inverse)),
                               f->elem_min > least ? f->elem_min : least,
                               f->elem_max < most ? f->elem_max : most);
        put_zps(zps->dtype, groups_output(zps, zps->first + at.first + g), n, zp);
        spread(b->size, (vf)vf_to_int(zp), g, n, to->of + ZP);
    }
    const vm good = vf_ge(by, vf_set1(0x1p-100f)) & vf_ge(vf_set1(0x1p100f), by) &
                    vf_ge(by * vf_set1(0x1p14f), (vf)vu_max(top, bottom));
    return infinite | (vm)~good;
}

/* The n groups of a chunk, from `first`. at_top, at_bottom: their lanes, or the elements of groups
 * of a register or less. False: some are bad. First all extremes, so that many scales are under way
 * at once. */
OP bool derive_kind(quant_kind_t kind, const dtype_blocks_t *b, int gain, int64_t first, int n,
                    const vi *at_top, const vi *at_bottom, factors_t *to)
{
    const bool both = kind == QUANT_DYNAMIC_ASYMMETRIC;
    quant_formula_t f = *b->formula;
    vu top[CHUNK_FACTORS / LANES], bottom[CHUNK_FACTORS / LANES];
    vm bad = lanes_below(0);
    f.kind = kind; /* known where this is compiled */
    (both ? extremes_at_top : extremes_of_magnitudes)(b->from, b->size, at_top, n, top);
    if (both) {
        extremes_at_bottom(b->from, b->size, at_bottom, n, bottom);
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
NOT_INLINED bool derive_chunk(const dtype_blocks_t *b, int64_t first, int n, const vi *at_top,
                              const vi *at_bottom, factors_t *to)
{
    const int gain = b->to.codes.dtype == sinter_f4_e2m1 ? 2 : 0;
    switch (b->formula->kind) {
    case QUANT_DYNAMIC_MX:
        return derive_kind(QUANT_DYNAMIC_MX, b, gain, first, n, at_top, at_bottom, to);
    case QUANT_DYNAMIC_MX_RCEIL:
        return derive_kind(QUANT_DYNAMIC_MX_RCEIL, b, gain, first, n, at_top, at_bottom, to);
    case QUANT_DYNAMIC_SYMMETRIC:
        return derive_kind(QUANT_DYNAMIC_SYMMETRIC, b, gain, first, n, at_top, at_bottom, to);
    case QUANT_DYNAMIC_ASYMMETRIC:
        return derive_kind(QUANT_DYNAMIC_ASYMMETRIC, b, gain, first, n, at_top, at_bottom, to);
    case QUANT_DYNAMIC_NV:
        return derive_kind(QUANT_DYNAMIC_NV, b, gain, first, n, at_top, at_bottom, to);
    case QUANT_STATIC:
    case QUANT_DYNAMIC_SIGNED: /* no way in registers takes these */
    case QUANT_DYNAMIC_IQ4_NL:
        break;
    }
    return false;
}

#endif
