/* quantise with AVX-512: from elements to codes with scales of their own. While a chunk of
 * groups is encoded, one further on is measured, block by block, so that memory is read at an
 * even pace. What is measured is copied as well: reading the same lines again slows down what is
 * being fetched, though they are in the first-level cache. Scales are made from the extremes of
 * a chunk at once. Codes leave in whole cache lines. Signs are those of the elements: factors
 * are positive. bulk_quantise_avx2.h says why AVX2 has a form of its own. */
#ifndef SINTER_SRC_NUMERIC_BULK_QUANTISE_AVX512_H
#define SINTER_SRC_NUMERIC_BULK_QUANTISE_AVX512_H

#include "numeric/bulk.h"
#include "numeric/groups.h"
#include "numeric/simd_avx512.h"

enum {
    BLOCK_VECTORS = DTYPE_BLOCK / LANES,
    BLOCK_FACTORS = BLOCK_VECTORS,                 /* one for each vector */
    CHUNK_FACTORS = DTYPE_CHUNK_BYTES / 2 / LANES, /* of words */
    CHUNK_LINES = DTYPE_CHUNK_BYTES / 64,
    BLOCK_AHEAD = 4096, /* bytes fetched ahead of what is measured; harmless past the end */
};

#define EACH_IN_BLOCK \
    UNROLL            \
    for (int k = 0; k < BLOCK_VECTORS; k++)

#include "numeric/bulk_scales_avx512.h"

/* ---- lines of codes -------------------------------------------------------------------------- */

/* Vectors of a block are those of its elements in order, but those of bf16 come by pairs from a
 * line: of each 128 bits the first half and the second, which packing them brings together
 * again. bytes_<narrow> gives the bytes of four vectors as packing them twice leaves them: in
 * each 128-bit lane four of each vector, of bf16 eight of each line. */
OP vf block_vector(sinter_data_type_t from, const unsigned char *x, int k)
{
    if (from == sinter_bf16) {
        const __m512i line = _mm512_loadu_si512(x + k / 2 * 64), zero = _mm512_setzero_si512();
        return (vf)(k % 2 == 0 ? _mm512_unpacklo_epi16(zero, line)
                               : _mm512_unpackhi_epi16(zero, line));
    }
    return source(from, x + k * LANES * source_bytes(from), 0);
}
/* The factor of vector k of a block; the halves of a line of bf16 may be two groups. */
OP vf block_factor(sinter_data_type_t from, const uint32_t *factors, int k)
{
    const int pair = k / 2 * 2;
    if (from == sinter_bf16) {
        return _mm512_mask_mov_ps(vf_set1(f32_of_bits(factors[pair])), 0xFF00,
                                  vf_set1(f32_of_bits(factors[pair + 1])));
    }
    return vf_set1(f32_of_bits(factors[k]));
}
OP __m512i in_order(sinter_data_type_t from, __m512i bytes)
{
    return from == sinter_bf16
               ? _mm512_permutexvar_epi64(_mm512_setr_epi64(0, 2, 4, 6, 1, 3, 5, 7), bytes)
               : _mm512_permutexvar_epi32(
                     _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15),
                     bytes);
}
/* The integers of two vectors, saturated, in words. */
OP __m512i words_of(const vu *code)
{
    return _mm512_packs_epi32((__m512i)code[0], (__m512i)code[1]);
}
/* The same of four vectors, in bytes; of signed types. */
OP __m512i bytes_signed(const vu *code)
{
    return _mm512_packs_epi16(words_of(code), words_of(code + 2));
}
OP __m512i bytes_unsigned(const vu *code)
{
    return _mm512_packus_epi16(words_of(code), words_of(code + 2));
}

/* Bytes with the signs of 64 elements. */
OP __m512i bytes_signs(sinter_data_type_t from, const unsigned char *x)
{
    const __m512i a = _mm512_loadu_si512(x), b = _mm512_loadu_si512(x + 64);
    if (from == sinter_f32) {
        return _mm512_packs_epi16(
            _mm512_packs_epi32(a, b),
            _mm512_packs_epi32(_mm512_loadu_si512(x + 128), _mm512_loadu_si512(x + 192)));
    }
    const __m512i lines = _mm512_packs_epi16(a, b);
    return from == sinter_bf16
               ? lines
               : _mm512_permutexvar_epi32(
                     _mm512_setr_epi32(0, 8, 2, 10, 1, 9, 3, 11, 4, 12, 6, 14, 5, 13, 7, 15),
                     lines);
}
/* Codes of f4_e2m1 by floor(z) + ceil(z) of z = 4 |y|, which tells the places where one code
 * ends and the next begins, z = 1 3 5 7 10 14 20, from what is beside them: the code of an even
 * mantissa has both of its ends. */
static const uint16_t codes_f4[64] = {
    0, 0, 0, 1, 1, 1, 2, 2, 2, 2, 2, 3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6,
    6, 6, 6, 6, 6, 6, 6, 6, 6, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7};
OP vu between(vf z)
{
    return (vu)_mm512_cvt_roundps_epi32(z, _MM_FROUND_TO_NEG_INF | _MM_FROUND_NO_EXC) +
           (vu)_mm512_cvt_roundps_epi32(z, _MM_FROUND_TO_POS_INF | _MM_FROUND_NO_EXC);
}
OP __m512i words_f4(const vu *code)
{
    const __m512i sums = _mm512_abs_epi16(words_of(code)), most = _mm512_set1_epi16(63);
    return _mm512_permutex2var_epi16(_mm512_loadu_si512(codes_f4), _mm512_min_epu16(sums, most),
                                     _mm512_loadu_si512(codes_f4 + 32));
}
OP __m512i bytes_f4(sinter_data_type_t from, const vu *code, const unsigned char *x)
{
    const __m512i magnitude = _mm512_packus_epi16(words_f4(code), words_f4(code + 2));
    return _mm512_ternarylogic_epi32(magnitude, _mm512_srli_epi16(bytes_signs(from, x), 4),
                                     _mm512_set1_epi8(8), 0xF8); /* a | (b & c) */
}

/* Four vectors of integers of code_of as codes, saturated, in bytes. x: the elements themselves.
 * Signed integers that were multiplied saturate to the largest number with either sign. */
OP __m512i bytes_of_codes(const code_t *c, dtype_way_t way, sinter_data_type_t from, const vu *code,
                          const unsigned char *x)
{
    if (c->kind == FLOAT_4) {
        return bytes_f4(from, code, x);
    }
    if (c->kind == SIGNED_8) {
        const __m512i bytes = bytes_signed(code);
        return way == DTYPE_MULTIPLIED ? _mm512_max_epi8(bytes, _mm512_set1_epi8(-127)) : bytes;
    }
    if (c->kind == SIGNED_4) {
        const __m512i least = _mm512_set1_epi8(-8), most = _mm512_set1_epi8(7);
        const __m512i bytes = _mm512_max_epi8(bytes_signed(code), least);
        return _mm512_and_si512(_mm512_min_epi8(bytes, most), _mm512_set1_epi8(15));
    }
    const __m512i bytes = bytes_unsigned(code);
    return is_integer(c) && c->bits == 4 ? _mm512_min_epu8(bytes, _mm512_set1_epi8(15)) : bytes;
}

OP void put_line(bool nontemporal, unsigned char *p, __m512i x)
{
    if (nontemporal) {
        _mm512_stream_si512((__m512i *)(void *)p, x);
    } else {
        _mm512_storeu_si512(p, x);
    }
}
OP void put_half(bool nontemporal, unsigned char *p, __m256i x)
{
    if (nontemporal) {
        _mm256_stream_si256((__m256i *)(void *)p, x);
    } else {
        _mm256_storeu_si256((__m256i *)(void *)p, x);
    }
}
OP void put_block_8(sinter_data_type_t from, bool nontemporal, unsigned char *p,
                    const __m512i *bytes)
{
    put_line(nontemporal, p, in_order(from, bytes[0]));
    put_line(nontemporal, p + 64, in_order(from, bytes[1]));
}
OP void put_block_4(sinter_data_type_t from, bool nontemporal, unsigned char *p,
                    const __m512i *bytes)
{
    const __m512i pair = _mm512_set1_epi16(0x1001); /* c0 + 16 c1 */
    const __m512i codes = _mm512_packus_epi16(_mm512_maddubs_epi16(bytes[0], pair),
                                              _mm512_maddubs_epi16(bytes[1], pair));
    if (from == sinter_bf16) {
        put_line(nontemporal, p, in_order(sinter_f32, codes));
        return;
    }
    const __m512i order = /* as in_order, of pairs of pairs */
        _mm512_set_epi16(31, 23, 15, 7, 30, 22, 14, 6, 29, 21, 13, 5, 28, 20, 12, 4, 27, 19, 11, 3,
                         26, 18, 10, 2, 25, 17, 9, 1, 24, 16, 8, 0);
    put_line(nontemporal, p, _mm512_permutexvar_epi16(order, codes));
}
/* As pack_6, of sixteen fours: twelve bytes in each 128-bit lane, then side by side. */
OP __m512i fours_6(__m512i codes)
{
    const __m512i pairs = _mm512_maddubs_epi16(codes, _mm512_set1_epi16(0x4001));
    const __m512i fours = _mm512_madd_epi16(pairs, _mm512_set1_epi32(0x10000001));
    const __m512i bytes = _mm512_broadcast_i32x4(
        _mm_setr_epi8(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, -1, -1, -1, -1));
    const __m512i dense = _mm512_setr_epi32(0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, 3, 7, 11, 15);
    return _mm512_permutexvar_epi32(dense, _mm512_shuffle_epi8(fours, bytes));
}
OP void put_block_6(sinter_data_type_t from, bool nontemporal, unsigned char *p,
                    const __m512i *bytes)
{
    const __m512i a = fours_6(in_order(from, bytes[0])), b = fours_6(in_order(from, bytes[1]));
    const __m512i middle = _mm512_permutex2var_epi32(
        a, _mm512_setr_epi32(8, 9, 10, 11, 16, 17, 18, 19, 0, 0, 0, 0, 0, 0, 0, 0), b);
    const __m512i end = _mm512_permutexvar_epi32(
        _mm512_setr_epi32(4, 5, 6, 7, 8, 9, 10, 11, 0, 0, 0, 0, 0, 0, 0, 0), b);
    put_half(nontemporal, p, _mm512_castsi512_si256(a));
    put_half(nontemporal, p + 32, _mm512_castsi512_si256(middle));
    put_half(nontemporal, p + 64, _mm512_castsi512_si256(end));
}
OP void put_block(int bits, sinter_data_type_t from, bool nontemporal, unsigned char *p,
                  const __m512i *bytes)
{
    if (bits == 8) {
        put_block_8(from, nontemporal, p, bytes);
    } else if (bits == 6) {
        put_block_6(from, nontemporal, p, bytes);
    } else {
        put_block_4(from, nontemporal, p, bytes);
    }
}

/* ---- chunks ---------------------------------------------------------------------------------- */

/* The code of y, which is x scaled and times the gain of derive_chunk, as an integer that
 * bytes_of_codes takes. */
OP vu code_of(const code_t *c, vf y, vf x)
{
    return c->kind == FLOAT_4 ? between(y)
           : is_integer(c)    ? (vu)_mm512_cvtps_epi32(y)
                              : vf_to_finite(*c->format, y, x);
}

/* Where the factors of a block's vectors are. */
typedef struct factors_at {
    const uint32_t *by, *inverse, *zp;
} factors_at_t;

OP void quantise_block(const code_t *c, dtype_way_t way, sinter_data_type_t from, factors_at_t f,
                       const unsigned char *x, unsigned char *p, bool nontemporal)
{
    const int half = DTYPE_BLOCK / 2 * source_bytes(from);
    vu code[BLOCK_VECTORS];
    EACH_IN_BLOCK
    {
        const vf value = block_vector(from, x, k), s = block_factor(from, f.by, k);
        const vf y = way == DTYPE_MULTIPLIED
                         ? (vf)(value * s)
                         : vf_quotient(value, s, block_factor(from, f.inverse, k));
        code[k] = code_of(c, y, value);
        if (way == DTYPE_SHIFTED) {
            code[k] += (vu)block_factor(from, f.zp, k);
        }
    }
    const __m512i bytes[2] = {bytes_of_codes(c, way, from, code, x),
                              bytes_of_codes(c, way, from, code + 4, x + half)};
    put_block(c->bits, from, nontemporal, p, bytes);
}

/* Chunks are encoded from a ring of copies, but long groups from memory. */
OP int64_t quantise_chunks(const code_t *c, dtype_way_t way, sinter_data_type_t from,
                           const dtype_blocks_t *args)
{
    const dtype_blocks_t b = *args;
    const int64_t blocks = b.chunk / DTYPE_BLOCK, groups = b.chunk / b.size;
    const int64_t step = DTYPE_BLOCK * source_bytes(from), lines = step / 64;
    const bool both = way == DTYPE_SHIFTED, long_group = b.size > DTYPE_BLOCK;
    const int fold = folds(from, b.size);
    const int64_t lead = long_group ? 1 : 2, vectors = long_group ? 0 : BLOCK_VECTORS,
                  folded = long_group ? 0 : lines / fold;
    const unsigned char *x = b.x, *next = b.x; /* what is encoded, what is measured */
    unsigned char *p = groups_output(&b.to.codes, b.to.codes.first);
    factors_t ring[3];
    __m512i copies[3][CHUNK_LINES];
    lanes_t lanes;
    int64_t stop = b.n;
    for (int k = 0; k < LANES; k++) { /* lines of groups that a chunk lacks must not be slow */
        lanes.top[k] = lanes.bottom[k] = _mm512_setzero_si512();
    }
    /* old, new: the slots of both chunks */
    for (int64_t i = -lead, old = 3 - lead, new = 0; i < stop; i++) {
        const bool more = i + lead < stop;
        factors_at_t f = {ring[old].by, ring[old].inverse, ring[old].zp};
        const __m512i *copied = copies[old];
        __m512i *copy = copies[new], *top = lanes.top, *bottom = lanes.bottom;
        for (int64_t k = 0; k < blocks; k++) {
            if (more) {
                const measured_t to = {long_group ? NULL : copy, top, bottom};
                measure(from, both, fold, k > 0 && long_group, next, &to);
                next += step, copy += lines, top += folded, bottom += folded;
            }
            if (i >= 0) {
                quantise_block(c, way, from, f, long_group ? x : (const void *)copied, p,
                               b.nontemporal);
                f.by += vectors, f.inverse += vectors, f.zp += vectors;
                x += step, copied += lines, p += DTYPE_BLOCK / 8 * c->bits;
            }
        }
        if (more) {
            const chunk_lanes_t at = {fold == 1 ? copies[new] : lanes.top,
                                      fold == 1 ? copies[new] : lanes.bottom};
            const bool good = derive_chunk(args, (i + lead) * groups, (int)groups, &at, &ring[new]);
            stop = good ? stop : i + lead;
        }
        old = old == 2 ? 0 : old + 1;
        new = new == 2 ? 0 : new + 1;
    }
    return stop;
}

/* Only the kinds whose elements may be of this type, which kind_rules of quant_geometry.c says. */
OP int64_t quantise_from(const code_t *c, sinter_data_type_t from, const dtype_blocks_t *b)
{
    if (is_mx(c) && quant_by_powers(b->formula->kind)) {
        return quantise_chunks(c, DTYPE_MULTIPLIED, from, b);
    }
    if (is_integer(c) && b->formula->kind == QUANT_DYNAMIC_ASYMMETRIC) {
        return quantise_chunks(c, DTYPE_SHIFTED, from, b);
    }
    return c->kind == UNSIGNED ? -1 : quantise_chunks(c, DTYPE_DIVIDED, from, b);
}

OP int64_t quantise(const code_t *c, const dtype_blocks_t *b)
{
    if (!puts_scales(b->to.scale.dtype) ||
        (b->formula->kind == QUANT_DYNAMIC_ASYMMETRIC && !puts_zps(b->to.zp.dtype))) {
        return -1;
    }
    return b->from == sinter_f32   ? quantise_from(c, sinter_f32, b)
           : b->from == sinter_f16 ? quantise_from(c, sinter_f16, b)
                                   : quantise_from(c, sinter_bf16, b);
}

#define QUANTISE(name)                                             \
    TARGET static int64_t name##_quantise(const dtype_blocks_t *b) \
    {                                                              \
        return quantise(&code_##name, b);                          \
    }
#define SINTER_QUANTISED_FLOAT QUANTISE
#include "numeric/quantised.def"
QUANTISE(s8)
QUANTISE(u8)
QUANTISE(s4)
QUANTISE(u4)
#undef QUANTISE

#endif
