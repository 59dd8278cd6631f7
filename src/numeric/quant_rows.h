/* The loops of quantisation over rows of floats: one table of functions for each instruction set,
 * all compiled from quant_loops.h.
 *
 * A row is n_groups groups of `size` consecutive elements. Extremes of a group are bits of
 * non-negative floats in an int32_t: top of the largest |x| (or of the largest x above zero),
 * bottom of the largest -x above zero. As integers they have the order of the floats, with
 * infinities and NaNs above all numbers. */
#ifndef SINTER_SRC_QUANT_ROWS_H
#define SINTER_SRC_QUANT_ROWS_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include <sinter/sinter_types.h>

#include "base/features.h"
#include "numeric/dtype.h"
#include "numeric/quant_formula.h"

/* Scales or zero points of a run: element i has x[(phase + i) / group]. Groups of more than one
 * element and their phases are multiples of DTYPE_GROUP; QUANT_ONE: x[0] is for all. */
typedef struct quant_param {
    const float *x;
    int64_t group, phase;
} quant_param_t;
#define QUANT_ONE (INT64_MAX / DTYPE_GROUP * DTYPE_GROUP)

typedef void quant_widen16_t(const uint16_t *x, int size, int n_groups, int32_t *top,
                             int32_t *bottom);

typedef struct quant_rows {
    /* Widens extremes by a row. bottom NULL: top is of |x|. */
    void (*widen)(const float *x, int size, int n_groups, int32_t *top, int32_t *bottom);
    /* The same of groups whose numbers may all be above or below 0. Extremes are integers that have
     * the order of the floats, INT32_MIN before there are any. */
    void (*widen_open)(const float *x, int size, int n_groups, int32_t *top, int32_t *bottom);
    /* The same for rows whose columns are groups, `stride` floats apart; the floats `ahead` of each
     * row are prefetched. */
    void (*widen_rows)(const float *x, int64_t stride, int64_t rows, int n, int64_t ahead,
                       int32_t *top, int32_t *bottom);
    /* Widens by a row of f16 or bf16, in groups of multiples of DTYPE_GROUP. NULL: nothing is
     * better than a row of floats. */
    quant_widen16_t *widen_f16, *widen_bf16;
    /* a[i] = max(a[i], b[i]). */
    void (*merge)(int32_t *a, const int32_t *b, int n);
    /* a[i] = max(a[2 i], a[2 i + 1]) for i < n. */
    void (*halve)(int32_t *a, int n);
    /* Scales as the formula has them, before they are stored: 1 for zeros, 0 where f32 underflows.
     * Extremes beyond all numbers are marked and become 0; those of widen_open become floats. */
    void (*scales)(const quant_formula_t *f, int n, int32_t *top, int32_t *bottom, float *scale,
                   int32_t *special);
    /* Of scales as stored, 0 becoming 1: what elements are divided by or, for the kinds of
     * powers of two, multiplied with. Marks scales that are NaN by themselves; returns whether
     * any is marked. */
    int (*factors)(const quant_formula_t *f, int n, float *scale, float *by, int32_t *special);
    /* zp = round(min + bottom / scale), not saturated; or as f->zps says. */
    void (*zero_points)(const quant_formula_t *f, int n, const int32_t *bottom, const float *scale,
                        float *zp);
    /* q = x / by, or x * by for the kinds of powers of two, then at least -elem_max where elem_min
     * is less; zp not NULL: q = round(q) + zp. f->clamps: not beyond elem_min and elem_max. One
     * factor and zero point for each group. */
    void (*quantise)(const quant_formula_t *f, const float *x, int size, int n_groups,
                     const float *by, const float *zp, float *q);
    /* The elements of dynamic_iq4_nl: q = the number next to t = x / by. Adds the sums of t^3 q and
     * t^2 q^2 to num[i] and den[i], of which the scale is made. */
    void (*numbers)(const float *x, int size, int n_groups, const float *by, float *q, float *num,
                    float *den);
    /* n elements by given scales: to = (x - zp) * scale; to = round(x / scale) + zp, without zp
     * (NULL) x / scale. to may be x. */
    void (*dequant_run)(const float *x, int n, const quant_param_t *scale, const quant_param_t *zp,
                        float *to);
    void (*quant_run)(const float *x, int n, const quant_param_t *scale, const quant_param_t *zp,
                      float *to);
    /* The same by offsets: to = x * scale + offset, finite where the sum fits f32 though the
     * product does not. */
    void (*offset_run)(const float *x, int n, const quant_param_t *scale,
                       const quant_param_t *offset, float *to);
    /* Offsets of scale * code + offset become zero points of scale * (code - zp), each with two
     * roundings. Codes have at most 8 bits: beside an offset beyond 2^40 times its scale, the
     * product does not count, so that such scales become the offset times 2^-40. Offsets of 0 have
     * zero points of 0, whatever the scale. */
    void (*zps_of_offsets)(float *scale, float *offset, int64_t n);
    /* to[i] = x[(phase + i) / group] */
    void (*spread)(const float *x, int n, int64_t group, int64_t phase, float *to);
    /* Copies past the caches where `to` is aligned to cache lines. stream_end must be called before
     * other threads may look. */
    void (*stream)(unsigned char *to, const unsigned char *from, size_t bytes);
    void (*stream_end)(void);
} quant_rows_t;

/* A scale of the tensor as the formula of dynamic_nv takes it: 0, like NaN, makes scales NaN and
 * codes 0. */
static inline float quant_tensor_scale(float x)
{
    return x == 0 ? NAN : x;
}

/* The function that widens by a row of f16 or bf16; NULL for other types too. */
static inline quant_widen16_t *quant_widen16(const quant_rows_t *fn, sinter_data_type_t type)
{
    return type == sinter_f16 ? fn->widen_f16 : type == sinter_bf16 ? fn->widen_bf16 : NULL;
}

/* The best table that these features allow, which the machine must have. */
const quant_rows_t *quant_rows(features_t features);

extern const quant_rows_t quant_rows_generic, quant_rows_avx2, quant_rows_avx512;

#endif
