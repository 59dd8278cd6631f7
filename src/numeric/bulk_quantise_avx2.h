/* quantise with AVX2: from elements to codes with scales of their own. While a chunk of groups is
 * encoded, one further on is measured, quad by quad, so that memory is read at an even pace. What
 * is measured is copied as well: reading the same lines again slows down what is being fetched,
 * though they are in the first-level cache. Scales are made from the extremes of a chunk at once.
 * Signs are those of the elements: factors are positive.
 *
 * bulk_quantise_avx512.h does the same by other steps, because what is fast differs: its 32
 * registers hold a block of 128 elements at once, all of whose code is unrolled. Here a quad is
 * what 16 registers hold, signs join codes in bytes, and encoders share the code around them. */
#ifndef SINTER_SRC_NUMERIC_BULK_QUANTISE_AVX2_H
#define SINTER_SRC_NUMERIC_BULK_QUANTISE_AVX2_H

#include "numeric/bulk.h"
#include "numeric/bulk_codes_avx2.h"
#include "numeric/groups.h"

enum {
    QUAD = 4 * LANES, /* elements of four vectors, whose codes fill a register of bytes */
    BLOCK_QUADS = DTYPE_BLOCK / QUAD,
    BLOCK_FACTORS = DTYPE_BLOCK / 16,
    CHUNK_FACTORS = DTYPE_CHUNK_BYTES / 2 / 16, /* of 16-bit elements */
    CHUNK_REGISTERS = DTYPE_CHUNK_BYTES / REGISTER,
    BLOCK_AHEAD = 4096, /* bytes fetched ahead of what is measured; harmless past the end */
};

#include "numeric/bulk_scales_avx2.h"

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
/* The factor of vector k, of those for each 16 elements. */
OP vf quad_factor(const uint32_t *factors, int k)
{
    return vf_set1(f32_of_bits(factors[k * LANES / 16]));
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
    if (!is_integer(c)) {
        const vi codes = bytes_at_most(false, bytes_unsigned(low, high), (int)c->format->max);
        const int bit = (int)c->format->sign, shift = 8 - c->bits;
        const vi with_sign = bytes_with(codes, bit, quad_signs(from, x), shift);
        return c->format->one_zero ? without(with_sign, bytes_equal(with_sign, bit)) : with_sign;
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
        vi_stream(p, x);
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
    return bits == 6 ? BLOCK_QUADS : bits == 8 && from == sinter_f32 ? 1 : 2;
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

/* The code of y, which is times 2^gain, as an integer that quad_codes takes. */
OP vu code_of(const code_t *c, vf y)
{
    return c->kind == FLOAT_4 ? between(y)
           : is_integer(c)    ? vf_to_int(y)
                              : vf_to_magnitude(*c->format, y);
}

/* What is encoded of a chunk. one: all of it has the first factors. */
typedef struct encoded {
    const uint32_t *by, *inverse, *zp;
    const unsigned char *x;
    unsigned char *p;
    int64_t quads;
    bool one, nontemporal;
} encoded_t;
typedef void encode_t(const encoded_t *e, const measured_t *m);

/* Where the factors of a quad are. */
typedef struct factors_at {
    const uint32_t *by, *inverse, *zp;
} factors_at_t;

/* bf16 times powers of two become codes as words, 16 at a time, where subnormal codes are rare, or
 * are few enough for tables. */
OP bool takes_words(const code_t *c, dtype_way_t way, sinter_data_type_t from)
{
    return way == DTYPE_MULTIPLIED && from == sinter_bf16 &&
           (c->kind == FLOAT_4 || (c->bits == 8 && !is_integer(c) && !c->format->one_zero));
}
/* False: some elements have subnormal codes, or a factor is too large or too small. */
OP bool quad_of_words(const code_t *c, const uint32_t *factors, const unsigned char *x, vi *codes)
{
    const int emin = c->format->emin, shift = 8 - c->format->digits;
    const vi a = vi_load(x), b = vi_load(x + REGISTER);
    const struct brain_constants *k = &brain_constants;
    vi from[2];
    HIDE(k);
    if ((factors[0] >> 23) - 1 >= MOST_WORD_FACTOR || (factors[1] >> 23) - 1 >= MOST_WORD_FACTOR) {
        return false;
    }
    if (c->kind == FLOAT_4) {
        *codes = bytes_f4_of_words(k, words_above(k, a, factors[0], 127, &from[0]),
                                   words_above(k, b, factors[1], 127, &from[1]));
        return true;
    }
    /* The exponent below the least normal one is that of the code 0. */
    const vi low = words_rounded(k, words_above(k, a, factors[0], 126 + emin, &from[0]), shift),
             high = words_rounded(k, words_above(k, b, factors[1], 126 + emin, &from[1]), shift);
    const vi step = vi_load(k->step);
    const int rare = c->format->digits * BRAIN_STEP;
    const vi subnormal =
        _mm256_or_si256(words_between(k, a, _mm256_add_epi16(from[0], step), rare),
                        words_between(k, b, _mm256_add_epi16(from[1], step), rare));
    *codes = bytes_at_most(false, bytes_unsigned(low, high), (int)c->format->max);
    return _mm256_testz_si256(subnormal, subnormal) != 0;
}

/* The codes of four vectors, in bytes. */
OP vi quantise_quad(const code_t *c, dtype_way_t way, sinter_data_type_t from, factors_at_t f,
                    const unsigned char *x)
{
    vu code[4];
    vi codes;
    if (takes_words(c, way, from) && quad_of_words(c, f.by, x, &codes)) {
        return bytes_with(codes, (int)c->format->sign, quad_signs(from, x), 8 - c->bits);
    }
    UNROLL
    for (int k = 0; k < 4; k++) {
        const vf value = quad_vector(from, x, k), s = quad_factor(f.by, k);
        const vf y = way == DTYPE_MULTIPLIED ? (vf)(value * s)
                                             : vf_quotient(value, s, quad_factor(f.inverse, k));
        code[k] = code_of(c, y);
        if (way == DTYPE_SHIFTED) {
            code[k] += (vu)quad_factor(f.zp, k);
        }
    }
    return quad_codes(c, way, from, code, x);
}
/* Encodes a chunk, and measures as much of another one. */
OP void encode_chunk(const code_t *c, dtype_way_t way, sinter_data_type_t from,
                     const encoded_t *args, const measured_t *measured)
{
    const encoded_t own_e = *args, *e = &own_e; /* nothing that is stored can change copies */
    const measured_t own_m = *measured, *m = &own_m;
    const bool words = from != sinter_f32, both = way == DTYPE_SHIFTED;
    const int n = quads_at_once(c->bits, from), step = e->one ? 0 : n * QUAD / 16;
    const int64_t quads = e->quads;
    const unsigned char *x = e->x;
    unsigned char *p = e->p;
    factors_at_t f = {e->by, e->inverse, e->zp};
    vi bytes[BLOCK_QUADS];
    KEEP_LOOP
    for (int64_t k = 0; k < quads; k += n) {
        UNROLL
        for (int q = 0; q < n; q++) {
            const int at = q * QUAD / 16;
            const factors_at_t own = {f.by + at, f.inverse + at, f.zp + at};
            if (q % 2 == 0 && m->x != NULL) {
                measure_quads(words, both, n < 2 ? n : 2, m, k + q);
            }
            bytes[q] = quantise_quad(c, way, from, own, x + q * QUAD * source_bytes(from));
        }
        put_quads(c->bits, from, e->nontemporal, p, bytes);
        x += n * QUAD * source_bytes(from), p += n * QUAD * c->bits / 8;
        f.by += step, f.inverse += step, f.zp += step;
    }
}

OP int log_of(int64_t power)
{
    return 63 - __builtin_clzll((unsigned long long)power);
}
/* How groups of this size are measured. */
OP measured_t measured_as(sinter_data_type_t from, int64_t size)
{
    const int64_t part = size < QUAD ? size : QUAD;
    const int folds = within_register(from, size) ? 1 : (int)(part * source_bytes(from)) / REGISTER;
    return (measured_t){.folds = folds,
                        .shift = size > DTYPE_BLOCK ? 63
                                 : size > QUAD      ? log_of(size / QUAD)
                                                    : 0};
}

/* Chunks are encoded from a ring of copies, but long groups from memory. */
TARGET static int64_t quantise_chunks(const dtype_blocks_t *b, encode_t *encoder)
{
    const int64_t bytes = b->chunk * source_bytes(b->from), groups = b->chunk / b->size;
    const bool words = b->from != sinter_f32, long_group = b->size > DTYPE_BLOCK,
               both = b->formula->kind == QUANT_DYNAMIC_ASYMMETRIC;
    const int64_t lead = long_group ? 1 : 2;
    const unsigned char *x = b->x;
    factors_t ring[3];
    vi copies[3][CHUNK_REGISTERS];
    lanes_t lanes;
    measured_t m = measured_as(b->from, b->size);
    encoded_t e = {.p = groups_output(&b->to.codes, b->to.codes.first),
                   .quads = b->chunk / QUAD,
                   .one = long_group,
                   .nontemporal = b->nontemporal};
    int64_t stop = b->n;
    for (int k = 0; k < LANES; k++) { /* those of groups that a chunk lacks must not be slow */
        lanes.top[k] = lanes.bottom[k] = vi_set1(0);
    }
    m.top = lanes.top, m.bottom = lanes.bottom;
    /* old, new: the slots of both chunks */
    for (int64_t i = -lead, old = 3 - lead, new = 0; i < stop; i++) {
        const bool more = i + lead < stop;
        const factors_t *f = &ring[old];
        m.x = more ? x + (i + lead) * bytes : NULL;
        m.copy = long_group ? NULL : copies[new];
        clear_lanes(&m, words, groups);
        if (i < 0) {
            measure_only(words, both, &m, more ? e.quads : 0);
        } else {
            e.by = f->by, e.inverse = f->inverse, e.zp = f->zp;
            e.x = long_group ? x + i * bytes : (const void *)copies[old];
            encoder(&e, &m);
            e.p += b->chunk / 8 * b->to.codes.type->bits;
        }
        if (more) {
            const chunk_lanes_t at = {m.folds == 1 ? copies[new] : lanes.top,
                                      m.folds == 1 ? copies[new] : lanes.bottom};
            const bool good = derive_chunk(b, (i + lead) * groups, (int)groups, &at, &ring[new]);
            stop = good ? stop : i + lead;
        }
        old = old == 2 ? 0 : old + 1;
        new = new == 2 ? 0 : new + 1;
    }
    return stop;
}

/* The encoders of a type by way, then by source: f32, f16, bf16. Only those that kind_rules of
 * quant_geometry.c allows. */
typedef struct encoders {
    encode_t *multiplied[3], *divided[3], *shifted[3];
} encoders_t;

TARGET static int64_t quantise(const encoders_t *encoders, const dtype_blocks_t *b)
{
    const bool both = b->formula->kind == QUANT_DYNAMIC_ASYMMETRIC;
    const int source = b->from == sinter_f32 ? 0 : b->from == sinter_f16 ? 1 : 2;
    encode_t *const encoder = (both                                ? encoders->shifted
                               : quant_by_powers(b->formula->kind) ? encoders->multiplied
                                                                   : encoders->divided)[source];
    if (encoder == NULL || !puts_scales(b->to.scale.dtype) || (both && !puts_zps(b->to.zp.dtype))) {
        return -1;
    }
    return quantise_chunks(b, encoder);
}

#define ENCODE(name, way, from)                                                       \
    TARGET static void name##_##way##_##from(const encoded_t *e, const measured_t *m) \
    {                                                                                 \
        encode_chunk(&code_##name, DTYPE_##way, sinter_##from, e, m);                 \
    }
#define ENCODE_EACH(name, way) ENCODE(name, way, f32) ENCODE(name, way, f16) ENCODE(name, way, bf16)
#define EACH_SOURCE(name, way)                                      \
    {                                                               \
        name##_##way##_f32, name##_##way##_f16, name##_##way##_bf16 \
    }
#define QUANTISE(name, ...)                                 \
    static int64_t name##_quantise(const dtype_blocks_t *b) \
    {                                                       \
        static const encoders_t encoders = {__VA_ARGS__};   \
        return quantise(&encoders, b);                      \
    }
#define SINTER_QUANTISED_FLOAT(name)                            \
    ENCODE_EACH(name, MULTIPLIED)                               \
    ENCODE_EACH(name, DIVIDED)                                  \
    QUANTISE(name, .multiplied = EACH_SOURCE(name, MULTIPLIED), \
             .divided = EACH_SOURCE(name, DIVIDED))
#include "numeric/quantised.def"
ENCODE_EACH(s8, MULTIPLIED)
ENCODE_EACH(s8, DIVIDED)
ENCODE_EACH(s8, SHIFTED)
ENCODE_EACH(u8, SHIFTED)
ENCODE_EACH(s4, DIVIDED)
ENCODE_EACH(s4, SHIFTED)
ENCODE_EACH(u4, SHIFTED)
QUANTISE(s8, .multiplied = EACH_SOURCE(s8, MULTIPLIED), .divided = EACH_SOURCE(s8, DIVIDED),
         .shifted = EACH_SOURCE(s8, SHIFTED))
QUANTISE(u8, .shifted = EACH_SOURCE(u8, SHIFTED))
QUANTISE(s4, .divided = EACH_SOURCE(s4, DIVIDED), .shifted = EACH_SOURCE(s4, SHIFTED))
QUANTISE(u4, .shifted = EACH_SOURCE(u4, SHIFTED))
#undef QUANTISE
#undef EACH_SOURCE
#undef ENCODE_EACH
#undef ENCODE

#endif
