/* stream_scaled: codes that are decoded, rescaled, converted and stored past the caches in
 * registers, two blocks at a time. bulk_pairs_<isa>.h has the parts. */
#ifndef SINTER_SRC_NUMERIC_BULK_STREAM_H
#define SINTER_SRC_NUMERIC_BULK_STREAM_H

#include "numeric/bulk.h"

#define EACH_IN_PAIR \
    UNROLL           \
    for (int k = 0; k < 2 * VECTORS; k++)

OP int result_bytes(result_t result)
{
    return result == RESULT_F32 ? 4 : 2;
}

/* The scale of a group. Where the lower half of a NaN's bits is zero, rounding to bf16 leaves the
 * NaN alone. All NaNs that arithmetic makes from codes are such, and those of scales, which it
 * hands on, are made such here. */
OP vf scale_for(result_t result, float x)
{
    const bool as_it_is = result != RESULT_BF16 || x == x;
    return vf_set1(as_it_is ? x : f32_of_bits((bits_of_f32(x) & 0xFFFF0000) | 0x00400000));
}

/* shifts: there is a zero point. */
OP vf rescale(vf x, vf zp, vf scale, bool shifts)
{
    const vf shifted = shifts ? (vf)(x - zp) : x;
    return shifted * scale;
}

/* n elements of one group. */
OP void stream_group(const code_t *c, result_t result, bool shifts, const unsigned char *p,
                     int64_t n, float scale, float zp, unsigned char *to)
{
    const vf s = scale_for(result, scale), z = vf_set1(zp);
    vf x[2 * VECTORS];
    if (has_table_of_signs(c, result)) {
        const word_table_t t = table_of_signs(result, scale, scale, s, s);
        for (; n > 0; n -= PAIR, p += 4 * c->bits, to += PAIR * result_bytes(result)) {
            __builtin_prefetch(p + CODES_AHEAD);
            put_coded_words(t, p, to);
        }
        return;
    }
    if (has_table(c, result)) {
        EACH_VECTOR
        {
            x[h] = rescale(vf_load(values_of(c) + h * LANES), z, s, shifts);
        }
        table_group(result, x, p, n, to);
        return;
    }
    const bool exact = /* of powers of two: codes have at most eight digits */
        result == RESULT_BF16 && !shifts && keeps_digits(0x007FFFFF, scale);
    for (; n > 0; n -= PAIR, p += 4 * c->bits, to += PAIR * result_bytes(result)) {
        __builtin_prefetch(p + CODES_AHEAD);
        decode_pair(c, p, x);
        EACH_IN_PAIR
        {
            x[k] = rescale(x[k], z, s, shifts);
        }
        if (exact) {
            put_pair(RESULT_EXACT_BF16, to, x);
        } else {
            put_pair(result, to, x);
        }
    }
}

/* Groups of whole pairs, the first and the last perhaps cut. size: of all groups where it is a
 * constant, so that they are whole; else 0. */
OP void stream_groups(const code_t *c, result_t result, bool shifts, int size,
                      const unsigned char *p, int64_t n, const dtype_scaled_t *g, unsigned char *to)
{
    const float *scale = g->scale, *zp = g->zp;
    const int zp_step = g->zp_each;
    const int64_t group = size > 0 ? size : g->group;
    int64_t run = size > 0 ? size : g->group - g->phase;
    for (; n > 0; n -= run, p += run * c->bits / 8, to += run * result_bytes(result),
                  run = group, zp += zp_step) {
        stream_group(c, result, shifts, p, size > 0 || run < n ? run : n, *scale++, *zp, to);
    }
}

/* Groups of one block: two of them make a pair. */
OP void stream_blocks(const code_t *c, result_t result, bool shifts, const unsigned char *p,
                      int64_t n, const dtype_scaled_t *g, unsigned char *to)
{
    const float *scale = g->scale, *zp = g->zp;
    const int zp_step = g->zp_each;
    vf x[2 * VECTORS];
    for (; n > 0; n -= PAIR, p += 4 * c->bits, to += PAIR * result_bytes(result)) {
        __builtin_prefetch(p + CODES_AHEAD);
        if (has_table_of_signs(c, result)) {
            put_coded_words(table_of_signs(result, scale[0], scale[1], scale_for(result, scale[0]),
                                           scale_for(result, scale[1])),
                            p, to);
            scale += 2;
            continue;
        }
        decode_pair(c, p, x);
        EACH_IN_PAIR
        {
            x[k] = rescale(x[k], vf_set1(*zp), scale_for(result, *scale), shifts);
            if (k % VECTORS == VECTORS - 1) {
                scale++;
                zp += zp_step;
            }
        }
        put_pair(result, to, x);
    }
}

/* A scale for each element, and a zero point for each or one for all. */
OP void stream_elements(const code_t *c, result_t result, const unsigned char *p, int64_t n,
                        const dtype_scaled_t *g, unsigned char *to)
{
    const float *scale = g->scale, *zp = g->zp;
    const int64_t zp_step = g->zp_each ? PAIR : 0;
    float zp_of_all[PAIR];
    vf x[2 * VECTORS];
    if (!g->zp_each) {
        EACH_IN_PAIR
        {
            vf_store(zp_of_all + k * LANES, vf_set1(*zp));
        }
        zp = zp_of_all;
    }
    for (; n > 0; n -= PAIR, p += 4 * c->bits, to += PAIR * result_bytes(result)) {
        __builtin_prefetch(p + CODES_AHEAD);
        decode_pair(c, p, x);
        EACH_IN_PAIR
        {
            x[k] = (x[k] - vf_load(zp + k * LANES)) * vf_load(scale + k * LANES);
        }
        put_pair(result, to, x);
        scale += PAIR;
        zp += zp_step;
    }
}

/* Any groups, through floats in a buffer. */
NOT_INLINED void stream_buffered(int bits, result_t result, load_scaled_t *load_floats,
                                 const unsigned char *p, int64_t n, const dtype_scaled_t *groups,
                                 unsigned char *to)
{
    enum { MOST = 16 * PAIR };
    dtype_scaled_t g = *groups;
    float buffer[MOST];
    vf x[2 * VECTORS];
    for (int64_t run; n > 0; n -= run, p += run * bits / 8) {
        run = n < MOST ? n : MOST;
        load_floats(p, 0, run, &g, buffer);
        for (int64_t i = 0; i < run; i += PAIR, to += PAIR * result_bytes(result)) {
            EACH_IN_PAIR
            {
                x[k] = vf_load(buffer + i + k * LANES);
            }
            put_pair(result, to, x);
        }
        const int64_t passed = (g.phase + run) / g.group;
        g.phase = (g.phase + run) % g.group;
        g.scale += passed;
        g.zp += passed * g.zp_each;
    }
}

OP void stream_usual(const code_t *c, result_t result, bool shifts, const unsigned char *p,
                     int64_t n, const dtype_scaled_t *g, unsigned char *to)
{
    if (g->group == BLOCK) {
        stream_blocks(c, result, shifts, p, n, g, to);
    } else if (g->group == PAIR) {
        stream_groups(c, result, shifts, PAIR, p, n, g, to);
    } else {
        stream_groups(c, result, shifts, 0, p, n, g, to);
    }
}

/* load_floats: what load_scaled does for these codes. Floats with zero points are rare. */
OP void stream(const code_t *c, result_t result, load_scaled_t *load_floats, const unsigned char *p,
               int64_t n, const dtype_scaled_t *g, unsigned char *to)
{
    const bool shifts = g->zp_each || *g->zp != 0, words = result != RESULT_F32,
               pairs = g->group == BLOCK || (g->group % PAIR == 0 && g->phase % PAIR == 0);
    const result_t any = words && result != RESULT_F16 ? RESULT_ANY_BF16 : result;
    if (result != RESULT_NATIVE_BF16 && g->group == 1) {
        stream_elements(c, any, p, n, g, to);
    } else if (!pairs || (shifts && !is_integer(c))) {
        stream_buffered(c->bits, any, load_floats, p, n, g, to);
    } else if (is_integer(c) && shifts) {
        stream_usual(c, result, true, p, n, g, to);
    } else {
        stream_usual(c, result, false, p, n, g, to);
    }
}

/* otherwise: the function without AVX512_BF16. Scales of single elements are as many as the
 * results: to check those costs more than rounding. */
OP void stream_native(const code_t *c, dtype_stream_t *otherwise, load_scaled_t *load_floats,
                      const unsigned char *p, int64_t n, const dtype_scaled_t *g, unsigned char *to)
{
    if (g->group > 1 && all_normal(g, n)) {
        stream(c, RESULT_NATIVE_BF16, load_floats, p, n, g, to);
    } else {
        otherwise(p, n, g, to);
    }
}

#endif
