/* The formulas of quantisation in the vocabulary of simd_<isa>.h: scales and zero points from the
 * extremes of groups, and elements from those. quant_formula.h has what they are made from.
 *
 * Extremes are bits of floats that are at least 0: top of the largest |x| (of dynamic_asymmetric
 * the largest x), bottom of the largest -x. */
#ifndef SINTER_SRC_NUMERIC_QUANT_SCALES_H
#define SINTER_SRC_NUMERIC_QUANT_SCALES_H

#include <math.h>

#include "numeric/dtype.h"
#include "numeric/dtype_bits.h"
#include "numeric/quant_formula.h"

/* An extreme is the largest of |x|, x or -x. The last two are also for groups without a 0: bits
 * are in the order of signed integers then. */
typedef enum side { MAGNITUDE, TOP, BOTTOM, OPEN_TOP, OPEN_BOTTOM } side_t;

/* Bits of floats in the order of signed integers, and the way back. */
OP vu ordered_bits(vu x)
{
    return vu_select(vu_gt(vu_set1(0), x), x ^ 0x7FFFFFFF, x);
}

/* ---- elements -------------------------------------------------------------------------------- */

/* round(x / by + zp) or round((x - zp) / by), as exact numbers are rounded, but those far beyond
 * all codes come nearer. The quotient t is in double, n the integer next to it. Where t is a tie,
 * the sign of what is exactly left, x - (t - zp) by or (x - zp) - t by, says on which side of the
 * tie the quotient is. */
OP vf rounded_exactly(bool less, vf x, vf by, vf zp)
{
    const vd most = vd_set1(0x1p20), whole = vd_set1(0x1.8p52), one = vd_set1(1);
    vd q[2];
    UNROLL
    for (int h = 0; h < 2; h++) {
        const vd a = vd_of(x, h), s = vd_of(by, h), z = vd_of(zp, h);
        vd t = less ? (vd)((a - z) / s) : (vd)(a / s + z);
        t = -vd_min(most, -vd_min(most, t));
        const vd n = (t + whole) - whole, apart = t - n;
        const vd b = less ? (vd)-z : (vd)(-t * s), sum = a + b, part = sum - a,
                 error = (a - (sum - part)) + (b - part),
                 left = (sum + (less ? (vd)(-t * s) : (vd)(z * s))) + error;
        const __typeof__(t > t) unit = (__typeof__(t > t))one,
                                up = (apart == 0.5) & (left > 0) & unit,
                                down = (apart == -0.5) & (left < 0) & unit;
        q[h] = n + (vd)up - (vd)down;
    }
    return vf_of_vd(q[0], q[1]);
}

OP vf rescaled(dtype_way_t way, vf x, vf by, vf zp)
{
    switch (way) {
    case DTYPE_MULTIPLIED:
        return x * by;
    case DTYPE_BOUNDED:
        return vf_max(x * by, zp);
    case DTYPE_DIVIDED:
        return x / by;
    case DTYPE_SHIFTED:
        return vf_round(x / by) + zp;
    case DTYPE_ADDED:
        return rounded_exactly(false, x, by, zp);
    case DTYPE_LESS:
        return rounded_exactly(true, x, by, zp);
    case DTYPE_RESTORED:
        return (x - zp) * by;
    case DTYPE_OFFSET: /* x * by may be beyond f32 where the sum is not */
        return vf_fma(x, by, zp);
    }
    __builtin_unreachable();
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* The value of an e8m0 code that is not NaN. */
OP vf e8m0_power(vu code)
{
    return (vf)vu_select(vu_eq(code, vu_set1(0)), vu_set1(0x00400000), code << 23);
}

/* The kinds of powers of two: the e8m0 codes of the scales. A subnormal amax is below 2^-126, whose
 * scale is the least one as well. */
OP vu power_codes(const quant_formula_t *f, vu amax)
{
    const uint32_t emax = (bits_of_f32(f->elem_max) >> 23) - 127;
    if (f->kind == QUANT_DYNAMIC_MX) {
        return vu_max(amax >> 23, vu_set1(emax)) - emax;
    }
    const vu s = (vu)((vf)amax / vf_set1(f->elem_max));
    return vu_select(vu_gt(s, vu_set1(0x00400000)), (s + 0x7FFFFF) >> 23, vu_set1(0));
}

/* hi - lo may be beyond f32 where the scale is not, hence in double precision. The divisor, a
 * small odd number, has no quotients near the middle of two. */
OP vf asymmetric_scales(const quant_formula_t *f, bool quick, vf top, vf bottom)
{
    const double levels = (double)f->elem_max - (double)f->elem_min;
    const vd by = vd_set1(levels), most = vd_set1(f->scale_max);
    vd s[2];
    UNROLL
    for (int h = 0; h < 2; h++) {
        const vd range = vd_of(top, h) + vd_of(bottom, h);
        s[h] = quick ? vd_quotient(range, by, vd_set1(1 / levels)) : (vd)(range / by);
        s[h] = vd_min(most, s[h]);
    }
    return vf_of_vd(s[0], s[1]);
}

/* m / the least code, m the element of largest magnitude, of which x and -x count as x. Of
 * dynamic_iq4_nl these are the first scales, and infinite for groups that are taken for zeros. */
OP vf signed_scales(const quant_formula_t *f, vu top, vu bottom)
{
    const bool refits = f->kind == QUANT_DYNAMIC_IQ4_NL;
    const vf amax = (vf)vu_max(top, bottom), least = vf_set1(f->elem_min);
    vf s = amax / -least;
    s = refits ? s : vf_min(vf_set1((float)f->scale_max), s);
    const vf with_sign = (vf)vu_select(vu_gt(bottom, top), (vu)s, (vu)-s);
    return refits ? (vf)vu_select(vu_gt((vu)vf_set1(QUANT_IQ4_NL_LEAST), (vu)amax),
                                  (vu)vf_set1(INFINITY), (vu)with_sign)
                  : (vf)vu_select(vu_eq((vu)amax, vu_set1(0)), (vu)vf_set1(1), (vu)with_sign);
}

/* The other kinds: scales before they are stored. The scale of zeros is 1. Another one that
 * underflows is 0 here, and the type that stores it decides what it becomes: e8m0 has no 0.
 * quick: where the result is subnormal it may be off. */
OP vf exact_scales(const quant_formula_t *f, bool quick, vu top, vu bottom)
{
    const vf max = vf_set1(f->elem_max), one = vf_set1(1);
    if (quant_by_sign(f->kind)) {
        return signed_scales(f, top, bottom);
    }
    if (f->kind == QUANT_DYNAMIC_ASYMMETRIC) {
        const vu range = f->zps == ZPS_INTEGERS ? top | bottom : (vu)((vf)top + (vf)bottom);
        return (vf)vu_select(vu_eq(range, vu_set1(0)), (vu)one,
                             (vu)asymmetric_scales(f, quick, (vf)top, (vf)bottom));
    }
    const vf s = quick ? vf_quotient((vf)top, max, vf_set1(1 / f->elem_max)) : (vf)((vf)top / max);
    if (f->kind == QUANT_DYNAMIC_NV) { /* a NaN stays: it is the second operand */
        const vf of_tensor = f->tensor_scale == 1 ? s : (vf)(s / vf_set1(f->tensor_scale));
        return vf_min(vf_set1(448), vf_max(vf_set1(0x1p-9f), of_tensor));
    }
    return (vf)vu_select(vu_eq(top, vu_set1(0)), (vu)one,
                         (vu)vf_min(vf_set1((float)f->scale_max), s));
}

/* Scales of 0, which underflow makes, become 1. */
OP vf one_for_zero(vf scale)
{
    return (vf)vu_select(vu_eq((vu)scale, vu_set1(0)), (vu)vf_set1(1), (vu)scale);
}

/* The types of scales and zero points that functions of chunks store. */
OP bool puts_scales(sinter_data_type_t type)
{
    return type == sinter_f32 || type == sinter_f16 || type == sinter_bf16 || type == sinter_e8m0 ||
           type == sinter_f8_e4m3;
}
OP bool puts_zps(sinter_data_type_t type)
{
    return type == sinter_s8 || type == sinter_u8 || type == sinter_s4 || type == sinter_u4 ||
           type == sinter_s32;
}

/* Groups that hold a NaN or an infinity. */
OP vm beyond_numbers(vu top, vu bottom)
{
    return vu_gt(vu_max(top, bottom), vu_set1(0x7F7FFFFF));
}

OP vf scales_of(const quant_formula_t *f, vu top, vu bottom)
{
    return quant_by_powers(f->kind) ? e8m0_power(power_codes(f, top))
                                    : exact_scales(f, false, top, bottom);
}

/* Zero points, not saturated, from bottom / scale. */
OP vf zero_points_of(const quant_formula_t *f, vf below)
{
    return vf_round(vf_set1(f->elem_min) + below);
}

/* Zero points that are floats, or offsets, from scales and the largest -x: in double, so that only
 * the result is rounded. */
OP vf float_zps_of(const quant_formula_t *f, vf bottom, vf scale)
{
    const vf most = vf_set1(f->zp_max);
    const vd least = vd_set1(f->elem_min);
    vd zp[2];
    UNROLL
    for (int h = 0; h < 2; h++) {
        const vd b = vd_of(bottom, h), s = vd_of(scale, h);
        zp[h] = f->zps == ZPS_OFFSETS ? (vd)(-(b + s * least)) : (vd)(least + b / s);
    }
    return vf_min(most, vf_max(-most, vf_of_vd(zp[0], zp[1])));
}

#endif
