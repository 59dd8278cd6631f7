/* quantise: from elements to codes with scales of their own. While a chunk of groups is encoded,
 * one further on is measured, quad by quad, so that memory is read at an even pace. What is
 * measured is copied as well: reading the same lines again slows down what is being fetched, though
 * they are in the first-level cache. Scales are made from the extremes of a chunk at once. Signs
 * are those of the elements: factors are positive.
 *
 * Compiled for each instruction set, after its bulk_codes_<isa>.h. */
#ifndef SINTER_SRC_NUMERIC_BULK_QUANTISE_H
#define SINTER_SRC_NUMERIC_BULK_QUANTISE_H

#include "numeric/bulk_derive.h"

typedef uint8_t v_bytes __attribute__((vector_size(4 * LANES)));

/* ---- lines of codes -------------------------------------------------------------------------- */

/* Vectors of a quad are those of its elements in order, but those of bf16 come by pairs from a
 * register: of each 128 bits the first half and the second, which packing them brings together
 * again. quad_codes gives the bytes of four vectors as packing them twice leaves them: in each
 * 128-bit lane four of each vector, of bf16 eight of each register. */
OP vf quad_vector(sinter_data_type_t from, const unsigned char *x, int k)
{
    return from == sinter_bf16  ? (vf)upper_words(vi_load(x + k / 2 * REGISTER), k % 2)
           : from == sinter_f16 ? vf_load_f16(x + k * LANES * 2)
                                : vf_load(x + k * LANES * 4);
}
/* Bytes with the signs of a quad, in the order of its codes. */
OP vi quad_signs(sinter_data_type_t from, const unsigned char *x)
{
    const vi a = vi_load(x), b = vi_load(x + REGISTER);
    if (from == sinter_f32) {
        return bytes_signed(words_of(a, b),
                            words_of(vi_load(x + 2 * REGISTER), vi_load(x + 3 * REGISTER)));
    }
    return from == sinter_bf16 ? bytes_signed(a, b) : signs_in_order(bytes_signed(a, b));
}

/* Four vectors of integers of code_of as codes, saturated, in bytes. x: the elements themselves.
 * Signed integers that were multiplied saturate to the largest number with either sign. Codes of
 * f4_e2m1 are found by floor(z) + ceil(z) of z = 4 |y|, which tells the places where one code ends
 * and the next begins, z = 1 3 5 7 10 14 20, from what is beside them: the code of an even mantissa
 * has both of its ends. */
OP vi quad_codes(const code_t *c, dtype_way_t way, sinter_data_type_t from, const vu *code,
                 const unsigned char *x)
{
    if (c->kind == FLOAT_4) {
        return bytes_with(bytes_f4(code), 8, quad_signs(from, x), 4);
    }
    const vi low = words_of((vi)code[0], (vi)code[1]), high = words_of((vi)code[2], (vi)code[3]);
    if (!is_integer(c) && !SIGNS_IN_DWORDS) {
        const vi codes = bytes_at_most(false, bytes_unsigned(low, high), (int)c->format->max);
        const int bit = (int)c->format->sign, shift = 8 - c->bits;
        const vi with_sign = bytes_with(codes, bit, quad_signs(from, x), shift);
        return c->format->one_zero ? without(with_sign, (vi)((v_bytes)with_sign == (uint8_t)bit))
                                   : with_sign;
    }
    if (c->kind == SIGNED_8) {
        const vi bytes = bytes_signed(low, high);
        return way == DTYPE_MULTIPLIED ? bytes_at_least(bytes, -127) : bytes;
    }
    if (c->kind == SIGNED_4) {
        const vi bytes = bytes_at_least(bytes_signed(low, high), -8);
        return vi_and(bytes_at_most(true, bytes, 7), vi_set1(0x0F0F0F0F));
    }
    const vi bytes = bytes_unsigned(low, high);
    return is_integer(c) && c->bits == 4 ? bytes_at_most(false, bytes, 15) : bytes;
}

OP void put_register(bool nontemporal, unsigned char *p, vi x)
{
    if (nontemporal) {
        vf_stream(p, (vf)x);
    } else {
        vi_store(p, x);
    }
}
OP void put_32_bytes(bool nontemporal, unsigned char *p, __m256i x)
{
    if (nontemporal) {
        _mm256_stream_si256((__m256i *)(void *)p, x);
    } else {
        _mm256_storeu_si256((__m256i *)(void *)p, x);
    }
}
/* Quads whose codes leave together, in whole registers. Of bytes as many as cost little more than
 * the turn of the loop. */
OP int quads_at_once(int bits, sinter_data_type_t from)
{
    return bits == 6 ? BLOCK_QUADS : bits == 8 && from == sinter_f32 ? LEAST_QUADS : 2;
}
OP void put_6(sinter_data_type_t from, bool nontemporal, unsigned char *p, const vi *bytes)
{
    vi ordered[BLOCK_QUADS];
    __m256i dense[3];
    UNROLL
    for (int q = 0; q < BLOCK_QUADS; q++) {
        ordered[q] = in_order(from, bytes[q]);
    }
    dense_6(ordered, dense);
    UNROLL
    for (int k = 0; k < 3; k++) {
        put_32_bytes(nontemporal, p + 32 * k, dense[k]);
    }
}
OP void put_quads(int bits, sinter_data_type_t from, bool nontemporal, unsigned char *p,
                  const vi *bytes)
{
    if (bits == 8) {
        UNROLL
        for (int q = 0; q < quads_at_once(8, from); q++) {
            put_register(nontemporal, p + q * REGISTER, in_order(from, bytes[q]));
        }
    } else if (bits == 6) {
        put_6(from, nontemporal, p, bytes);
    } else {
        const vi codes = bytes_unsigned(pairs_4(bytes[0]), pairs_4(bytes[1]));
        put_register(nontemporal, p, nibbles_in_order(from, codes));
    }
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* The code of y, which is x scaled and times 2^gain of derive_chunk, as an integer that quad_codes
 * takes. */
OP vu code_of(const code_t *c, vf y, vf x)
{
    return c->kind == FLOAT_4 ? between(y)
           : is_integer(c)    ? vf_to_int(y)
           : SIGNS_IN_DWORDS  ? vf_to_finite(*c->format, y, x)
                              : vf_to_magnitude(*c->format, y);
}

/* The codes of four vectors, in bytes. f: their factors. */
OP vi quantise_quad(const code_t *c, dtype_way_t way, sinter_data_type_t from, const uint32_t *f,
                    const unsigned char *x)
{
    vu code[4];
    vi codes;
    if (quad_of_words(c, way, from, f + BY, x, &codes)) {
        return bytes_with(codes, (int)c->format->sign, quad_signs(from, x), 8 - c->bits);
    }
    UNROLL
    for (int k = 0; k < 4; k++) {
        const vf value = quad_vector(from, x, k), s = quad_factor(from, f + BY, k);
        const vf y = way == DTYPE_MULTIPLIED
                         ? (vf)(value * s)
                         : vf_quotient(value, s, quad_factor(from, f + INVERSE, k));
        code[k] = code_of(c, y, value);
        if (way == DTYPE_SHIFTED) {
            code[k] += (vu)quad_factor(from, f + ZP, k);
        }
    }
    return quad_codes(c, way, from, code, x);
}

/* What is encoded of a chunk. */
typedef struct encoded {
    const unsigned char *x;
    unsigned char *p;
    const uint32_t *f; /* the factors of the first quad, and how far apart those of quads are */
    int64_t apart, quads;
    bool nontemporal;
} encoded_t;

/* Encodes a chunk, and measures as much of another one. */
OP void encode_chunk(const code_t *c, dtype_way_t way, sinter_data_type_t from, const encoded_t *e,
                     const measured_t *measured)
{
    const measured_t own = *measured, *m = &own; /* nothing that is stored can change copies */
    const bool words = from != sinter_f32, both = way == DTYPE_SHIFTED,
               nontemporal = e->nontemporal;
    const int n = quads_at_once(c->bits, from), step = QUAD * source_bytes(from);
    const int64_t quads = e->quads, apart = n * e->apart;
    const unsigned char *x = e->x;
    unsigned char *p = e->p;
    const uint32_t *f = e->f;
    vi bytes[BLOCK_QUADS];
    KEEP_LOOP
    for (int64_t k = 0; k < quads; k += n, x += n * step, f += apart) {
        UNROLL
        for (int q = 0; q < n; q++) {
            if (q % 2 == 0 && m->x != NULL) {
                measure_quads(words, both, n < 2 ? n : 2, m, k + q);
            }
            bytes[q] = quantise_quad(c, way, from, f + q * QUAD / 16, x + q * step);
        }
        put_quads(c->bits, from, nontemporal, p, bytes);
        p += n * QUAD * c->bits / 8;
    }
}

OP void encode_from(const code_t *c, dtype_way_t way, sinter_data_type_t from, const encoded_t *e,
                    const measured_t *m)
{
    if (from == sinter_f32) {
        encode_chunk(c, way, sinter_f32, e, m);
    } else if (from == sinter_f16) {
        encode_chunk(c, way, sinter_f16, e, m);
    } else {
        encode_chunk(c, way, sinter_bf16, e, m);
    }
}
/* Only the kinds whose elements may be of this type, which kind_rules of quant_geometry.c says. */
OP void encode_kind(const code_t *c, quant_kind_t kind, sinter_data_type_t from, const encoded_t *e,
                    const measured_t *m)
{
    if (is_mx(c) && quant_by_powers(kind)) {
        encode_from(c, DTYPE_MULTIPLIED, from, e, m);
    } else if (is_integer(c) && (c->kind == UNSIGNED || kind == QUANT_DYNAMIC_ASYMMETRIC)) {
        encode_from(c, DTYPE_SHIFTED, from, e, m);
    } else {
        encode_from(c, DTYPE_DIVIDED, from, e, m);
    }
}
typedef void encode_t(quant_kind_t kind, sinter_data_type_t from, const encoded_t *e,
                      const measured_t *m);

/* What is kept of a chunk until it is encoded. */
typedef struct slot {
    vi copy[CHUNK_REGISTERS];
    factors_t factors;
} slot_t;

/* Chunks are encoded from a ring of copies, but long groups from memory. */
TARGET static int64_t quantise(encode_t *encoder, const dtype_blocks_t *b)
{
    const quant_kind_t kind = b->formula->kind;
    const sinter_data_type_t from = b->from;
    const int64_t bytes = b->chunk * source_bytes(from), groups = b->chunk / b->size;
    const bool words = from != sinter_f32, long_group = b->size > DTYPE_BLOCK,
               both = kind == QUANT_DYNAMIC_ASYMMETRIC;
    const int64_t lead = long_group ? 1 : 2, codes = b->chunk / 8 * b->to.codes.type->bits;
    slot_t ring[3], *old = ring + 3 - lead, *new = ring; /* of both chunks */
    lanes_t lanes;
    measured_t m = measured_as(from, b->size, &lanes);
    encoded_t e = {.x = b->x,
                   .p = groups_output(&b->to.codes, b->to.codes.first),
                   .apart = long_group ? 0 : QUAD / 16,
                   .quads = b->chunk / QUAD,
                   .nontemporal = b->nontemporal};
    const unsigned char *x = b->x;
    int64_t stop = b->n;
    if (!puts_scales(b->to.scale.dtype) || (both && !puts_zps(b->to.zp.dtype))) {
        return -1;
    }
    UNROLL
    for (int k = 0; k < LANES; k++) { /* those of groups that a chunk lacks must not be slow */
        lanes.top[k] = lanes.bottom[k] = vi_set1(0);
    }
    for (int64_t i = -lead; i < stop; i++, x += bytes) {
        const bool more = i + lead < stop;
        m.x = more ? x : NULL;
        m.copy = long_group ? NULL : new->copy;
        if (i >= 0) {
            e.x = long_group ? x - bytes : (const void *)old->copy;
            e.f = old->factors.of;
            encoder(kind, from, &e, &m);
            e.p += codes;
        } else if (more) {
            measure_only(words, both, &m, e.quads);
        }
        if (more) {
            const vi *top = m.folds == 1 ? new->copy : lanes.top,
                     *bottom = m.folds == 1 ? new->copy : lanes.bottom;
            const bool good =
                derive_chunk(b, (i + lead) * groups, (int)groups, top, bottom, &new->factors);
            stop = good ? stop : i + lead;
        }
        old = old == ring + 2 ? ring : old + 1;
        new = new == ring + 2 ? ring : new + 1;
    }
    return stop;
}

#define QUANTISE(name)                                                                             \
    NOT_INLINED void name##_encode(quant_kind_t kind, sinter_data_type_t from, const encoded_t *e, \
                                   const measured_t *m)                                            \
    {                                                                                              \
        encode_kind(&code_##name, kind, from, e, m);                                               \
    }                                                                                              \
    static int64_t name##_quantise(const dtype_blocks_t *b)                                        \
    {                                                                                              \
        return quantise(name##_encode, b);                                                         \
    }
#define SINTER_QUANTISED_FLOAT QUANTISE
#include "numeric/quantised.def"
QUANTISE(s8)
QUANTISE(u8)
QUANTISE(s4)
QUANTISE(u4)
#undef QUANTISE

#endif
