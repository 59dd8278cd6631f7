/* What DynamicQuantize steps and quantising tails share: from the extremes of groups to their
 * scales and zero points, and the stores of those and of codes. Formulas:
 *
 *   mx          S = 2^(floor(log2 amax) - emax), from the bits of amax      q = elem(x / S)
 *   mx_rceil    S = amax / max rounded up to a power of two                 q = elem(x / S)
 *   symmetric   S = amax / qmax                                             q = elem(x / S)
 *   asymmetric  S = (hi - lo) / (qmax - qmin), zp = sat(round(qmin - lo / S))
 *                                                                 q = sat(round(x / S) + zp)
 *     zp a float             zp = qmin - lo / S                     q = sat(round(x / S + zp))
 *     offsets                o = lo - S qmin                        q = sat(round((x - o) / S))
 *   nv          S = e4m3(clamp(amax / 6 / t, 2^-9, 448))                    q = elem(x / (S t))
 *   signed      S = m / qmin, m the element of largest magnitude            q = elem(x / S)
 *   iq4_nl      s = m / -127, t = x / s     q = the number of IQ4_NL next to t
 *               S = s sum(t^3 q) / sum(t^2 q^2)
 *
 * Elements saturate, those of mx and mx_rceil to the largest number with either sign (s8: -127).
 * S saturates at the largest number of its type and is 1 where that type would store 0, which
 * e8m0 never does; that of iq4_nl, which has no code 0, stays 0. A NaN or an infinity in the group
 * makes S NaN, the elements 0 and the zero point that of an all-zero group. A tensor's scale t of 0
 * or NaN makes S NaN and the elements 0. */
#ifndef SINTER_SRC_QUANTISER_H
#define SINTER_SRC_QUANTISER_H

#include "backend_xsmm/drivers/common/matrices.h"
#include "numeric/quant_rows.h"

typedef struct quantiser {
    const quant_rows_t *fn;
    const dtype_bulk_t *codes, *scale, *zp; /* zp NULL: no zero points */
    quant_formula_t formula;
    matrices_t out; /* zero points have the groups of the scales */
} quantiser_t;

/* Where something lies in the tensors of a quantisation, or how far it is from one index to the
 * next: in elements of each. n: how many indexes, groups or columns there are. */
typedef struct quant_span {
    int64_t n, in, to[MATRIX_PARTS];
} quant_span_t;

/* Moves on by i indexes of an axis. */
static inline void span_move(quant_span_t *at, const quant_span_t *axis, int64_t i)
{
    at->in += i * axis->in;
    for (int part = 0; part < MATRIX_PARTS; part++) {
        at->to[part] += i * axis->to[part];
    }
}

/* Moves from the first index along dim d of the output to index i. */
static inline void span_seek(quant_span_t *at, const matrices_t *out, int d, int64_t i)
{
    for (int part = 0; part < MATRIX_PARTS; part++) {
        const axis_t *axis = &out->axis[d][part];
        at->to[part] += (axis->group == 1 ? i : i / axis->group) * axis->stride;
    }
}

/* What is known about groups while their elements become codes. */
typedef struct group_values {
    int32_t *top, *bottom, *special; /* bottom NULL: top is of |x| */
    float *scale, *inverse_scale, *zp;
    float *num, *den;     /* sums that scales are made from after the codes */
    int32_t none;         /* the extremes of no elements */
    unsigned char *codes; /* on their way: four bytes for each group, or element of a row */
    bool any_special;
} group_values_t;

/* Binds all but the scale of the tensor, which quantiser_start reads. */
sinter_status_t quantiser_bind(const dynquant_params_t *p, const frame_t *frame,
                               features_t features, quantiser_t *out);
void quantiser_start(const dynquant_params_t *p, const frame_t *frame, quantiser_t *q);
static inline bool quantiser_splits(const quantiser_t *q)
{
    return q->out.base.high.type != NULL;
}

/* Whether groups go from their least to their largest number, without a 0 among them. */
static inline bool quantiser_is_open(const quantiser_t *q)
{
    return q->formula.zps != ZPS_INTEGERS;
}

/* Whether extremes are of x and -x instead of |x|. */
static inline bool quantiser_has_sides(const quantiser_t *q)
{
    return q->zp != NULL || quant_by_sign(q->formula.kind);
}

/* Whether scales are made after the codes, from sums over these. */
static inline bool quantiser_refits(const quantiser_t *q)
{
    return q->formula.kind == QUANT_DYNAMIC_IQ4_NL;
}

/* Memory for the values of `most` groups, aligned to 64 bytes; returns its size. base NULL: only
 * the size, for which q may be NULL. */
size_t group_values_carve(unsigned char *base, int most, const quantiser_t *q, group_values_t *m);
void group_values_clear(const group_values_t *m, int64_t n);
void group_values_clear_sums(const group_values_t *m, int64_t n);
/* Widens the extremes by n groups of `size` elements. */
void quantiser_widen(const quantiser_t *q, const float *x, int size, int n, group_values_t *m);
/* Scales, zero points and factors of n groups from their extremes. */
void quantiser_derive(const quantiser_t *q, int n, group_values_t *m);
/* The elements of n groups from group `first` on, before they are rounded to codes. */
void quantiser_quantise(const quantiser_t *q, const float *x, int size, int n, int first,
                        const group_values_t *m, float *to);
/* Scales of n groups from the sums over their codes. */
void quantiser_refit(const quantiser_t *q, int n, group_values_t *m);
/* Makes the elements of special groups 0: x has n groups of `size` elements. */
void quantiser_clear_specials(const group_values_t *m, int64_t size, int64_t n, float *x);
/* Stores scales and zero points of n groups, which lie `step` apart. */
void quantiser_put_groups(const quantiser_t *q, const quant_span_t *at, const quant_span_t *step,
                          int n, const group_values_t *m);
/* Stores the codes of at->n numbers. */
void quantiser_put_codes(const quantiser_t *q, const quant_span_t *at, const quant_span_t *step,
                         const float *x, unsigned char *tmp);

#endif
