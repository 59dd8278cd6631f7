/* DynamicQuantize that derives scales and zero points from the data of each group, by the formulas
 * of the numeric contract:
 *
 *   a NaN or an infinity in the group    scale NaN, elements and zero point those of nothing: 0
 *   and that of an all-zero group
 *   scales                               saturate at their type's largest number; one that their
 *                                        type stores as 0 is 1 (nv: 2^-9 at least);
 *                                        e8m0 has no 0: what is below 2^-127 is 2^-127 there
 *   floating-point elements              saturate; all elements are made with the scale and zero
 *   point as stored
 *   elements of the mx kinds             saturate to the largest number with either sign: -127
 *   is the least s8
 *   elements of dynamic_iq4_nl           numbers of a table, next to x / (m / -127); the scale is
 *                                        made after them, and 0 where all |x| are below 1e-15
 *
 * Inexact inputs make the scale uncertain: it is then computed from both ends of the interval of
 * the group's extremes, and the elements from both ends of the scale. */
#include "quant.h"

typedef struct range {
    double v, low, high;
} range_t;

typedef struct group_stats {
    range_t amax, min, max; /* of |x|, min(0, x), max(0, x) */
    bool special, loose;    /* a NaN or an infinity; perhaps one, or anything else */
    bool open, begun;       /* min and max are of x alone; they are of some x already */
} group_stats_t;

typedef struct params {
    sinter_data_type_t type, scale_type, zp_type; /* of elements, scales, zero points */
    double lowest, max;                           /* of the element type */
    double least;                                 /* the lowest number that the kind stores */
    bool clamps; /* elements end before their type does: at lowest and max */
    enum { ZPS_INTEGERS, ZPS_FLOATS, ZPS_OFFSETS } zps; /* the last two: groups without a 0 */
    double tensor_scale;                                /* dynamic_nv */
} params_t;

typedef struct quantum {
    range_t scale, zp;
    bool zeros, loose; /* every element is zero; a bound is infinite, so that nothing can be told */
} quantum_t;

typedef quantum_t derive_fn_t(const group_stats_t *g, const params_t *p);

typedef struct kind {
    const char *name;
    derive_fn_t *derive;
    int64_t group; /* along the last axis, if no attribute says otherwise; 0: the whole tensor */
} kind_t;

/* ---- scales ---------------------------------------------------------------------------------- */

static range_t order(double v, double a, double b)
{
    return (range_t){v, fmin(v, fmin(a, b)), fmax(v, fmax(a, b))};
}

/* 2^e as e8m0 has it. */
static double clamped_power(int e)
{
    return ldexp(1, e < -127 ? -127 : e > 127 ? 127 : e);
}

static double mx_scale(double amax, const params_t *p)
{
    int e, emax;
    if (amax == 0) {
        return 0x1p-127;
    }
    frexp(amax, &e);
    frexp(p->max, &emax);
    return clamped_power(e -
                         emax); /* both exponents are one more than the floor of the logarithm */
}

static double rceil_scale(double amax, const params_t *p)
{
    float s = (float)(amax / p->max);
    int e;
    double fraction = frexp(s, &e);
    if (s < 0x1p-127f) {
        return 0x1p-127;
    }
    return clamped_power(fraction == 0.5 ? e - 1 : e);
}

static quantum_t power_of_two(const group_stats_t *g, const params_t *p,
                              double (*scale)(double amax, const params_t *p))
{
    quantum_t q = {.zeros = g->amax.high == 0};
    q.scale = order(scale(g->amax.v, p), scale(g->amax.low, p), scale(g->amax.high, p));
    return q;
}

static quantum_t derive_mx(const group_stats_t *g, const params_t *p)
{
    return power_of_two(g, p, mx_scale);
}
static quantum_t derive_mx_rceil(const group_stats_t *g, const params_t *p)
{
    return power_of_two(g, p, rceil_scale);
}

/* True for the scale of zeros too, which is 0 before anything is rounded. A scale is computed in
 * f32. */
static bool stores_zero(const params_t *p, double s)
{
    return s == 0 || orc_round(p->scale_type, (double)(float)s) == 0;
}

static double stored_scale(const params_t *p, double s)
{
    double max = orc_type_max(p->scale_type);
    return stores_zero(p, s) ? 1 : orc_round(p->scale_type, s < max ? (double)(float)s : max);
}

static range_t scale_range(const params_t *p, double v, double low, double high)
{
    range_t r = order(stored_scale(p, v), stored_scale(p, low), stored_scale(p, high));
    if (stores_zero(p, low) &&
        !stores_zero(p, high)) { /* from 1 in place of 0 over the smallest numbers of the type */
        r.low = 0;
    }
    return r;
}

static quantum_t derive_symmetric(const group_stats_t *g, const params_t *p)
{
    quantum_t q = {.zeros = g->amax.high == 0};
    q.scale = scale_range(p, g->amax.v / p->max, g->amax.low / p->max, g->amax.high / p->max);
    return q;
}

static double stored_zp(const params_t *p, double zp)
{
    return orc_round(p->zp_type, fmax(p->lowest, fmin(p->max, orc_round(p->type, zp))));
}

static range_t zero_point(const params_t *p, range_t min, range_t scale)
{
    double bound, min_bound = fmax(min.v - min.low, min.high - min.v),
                  scale_bound = fmax(scale.v - scale.low, scale.high - scale.v);
    double t = orc_quotient(min.v, min_bound, scale.v, scale_bound, &bound);
    /* qmin - lo / s is one more rounding in f32. */
    double v = p->lowest - t, slack = bound + orc_f32_error(v, bound);
    return (range_t){stored_zp(p, v), stored_zp(p, v - slack), stored_zp(p, v + slack)};
}

/* A number that a zero point, or an offset, is stored as, without being an integer. */
static double stored_float(const params_t *p, double x)
{
    double max = orc_type_max(p->zp_type);
    return orc_round(p->zp_type, (double)(float)fmax(-max, fmin(max, x)));
}

/* x / s for x between x - below and x + above, s within a range of positive numbers. */
static range_t exact_quotient(double x, double below, double above, range_t s)
{
    const double a = x - below, b = x + above;
    if (!(s.low > 0)) { /* nothing is known beyond the quotient itself */
        const bool certain = below == 0 && above == 0 && s.low == s.high;
        return certain ? (range_t){x / s.v, x / s.v, x / s.v}
                       : (range_t){x / s.v, -INFINITY, INFINITY};
    }
    return (range_t){x / s.v, a / (a < 0 ? s.low : s.high), b / (b < 0 ? s.high : s.low)};
}

/* qmin - lo / s, or lo - s qmin, rounded once: as in double. */
static range_t float_zero_point(const params_t *p, range_t min, range_t scale)
{
    double bound, v, low, high;
    if (p->zps == ZPS_OFFSETS) {
        v = min.v - scale.v * p->lowest;
        low = min.low - scale.low * p->lowest;
        high = min.high - scale.high * p->lowest;
        bound = 0x1p-50 * (fabs(min.v) + fabs(scale.v * p->lowest));
    } else {
        const range_t t = exact_quotient(min.v, min.v - min.low, min.high - min.v, scale);
        v = p->lowest - t.v, low = p->lowest - t.high, high = p->lowest - t.low;
        bound = 0x1p-50 * (fabs(p->lowest) + fabs(t.v));
    }
    return order(stored_float(p, v), stored_float(p, low - bound), stored_float(p, high + bound));
}

/* hi - lo may be beyond f32 where the scale is not, so that it may be formed in f32 or in
 * something wider. */
static quantum_t derive_asymmetric(const group_stats_t *g, const params_t *p)
{
    double levels = p->max - p->lowest, spread = g->max.v - g->min.v,
           slack = (double)(float)(spread / 2) == spread / 2 ? 0 : 2 * ORC_U;
    double low = fmax(0, g->max.low - g->min.high) / levels,
           high = (g->max.high - g->min.low) / levels;
    quantum_t q = {.zeros = false};
    q.scale = scale_range(p, spread / levels, low * (1 - slack), high * (1 + slack));
    q.zp = p->zps == ZPS_INTEGERS ? zero_point(p, g->min, q.scale)
                                  : float_zero_point(p, g->min, q.scale);
    return q;
}

static double nv_scale(double amax, const params_t *p)
{
    float s = (float)(amax / p->max);
    s = (float)(s / p->tensor_scale);
    return orc_round(p->scale_type, s < 0x1p-9f ? 0x1p-9 : s > 448 ? 448 : (double)s);
}

static quantum_t derive_nv(const group_stats_t *g, const params_t *p)
{
    quantum_t q = {.zeros = false};
    q.scale = order(nv_scale(g->amax.v, p), nv_scale(g->amax.low, p), nv_scale(g->amax.high, p));
    return q;
}

/* m / the lowest code: m is the element of largest magnitude, of which x and -x count as x. */
static double signed_scale(const params_t *p, double max, double min)
{
    const double top = fmax(0, max), bottom = fmax(0, -min), exact = fmax(top, bottom) / -p->lowest,
                 s = stored_scale(p, exact);
    return top >= bottom && !stores_zero(p, exact) ? -s : s;
}

static quantum_t derive_signed(const group_stats_t *g, const params_t *p)
{
    quantum_t q = {.zeros = g->amax.high == 0};
    q.scale = order(signed_scale(p, g->max.v, g->min.v), signed_scale(p, g->max.low, g->min.low),
                    signed_scale(p, g->max.high, g->min.high));
    /* Either end may be the one of largest magnitude, and then the sign is open. */
    if (g->max.high >= -g->min.high && g->max.low < -g->min.low) {
        q.loose = g->amax.high != g->amax.low;
    }
    q.loose = q.loose || (g->amax.low != g->amax.high && stores_zero(p, g->amax.low / -p->lowest));
    return q;
}

static quantum_t derive(const kind_t *kind, const group_stats_t *g, const params_t *p)
{
    static const group_stats_t none = {.special = false};
    quantum_t q = kind->derive(g->special ? &none : g, p);
    q.loose = (q.loose || g->loose) && !g->special;
    if (g->special) {
        q.scale = (range_t){NAN, NAN, NAN};
    }
    q.zeros = q.zeros || isnan(q.scale.v);
    return q;
}

/* ---- elements -------------------------------------------------------------------------------- */

static double element(const params_t *p, double t, double zp)
{
    if (orc_class(p->type) == ORC_INT) {
        if (p->clamps) {
            return fmax(p->lowest, fmin(p->max, rint(t) + zp));
        }
        return fmax(p->least, orc_round(p->type, rint(t) + zp));
    }
    return orc_round(p->type, t > p->max ? p->max : t < -p->max ? -p->max : t);
}

/* x / s with x off by xb and s within a range of positive numbers. It may be computed as
 * x * (1 / s). */
static range_t quotient(double x, double xb, range_t s)
{
    const double a = x - xb, b = x + xb;
    const double low = a / (a < 0 ? s.low : s.high), high = b / (b < 0 ? s.high : s.low);
    return (range_t){x / s.v, low - 2 * ORC_U * fabs(low), high + 2 * ORC_U * fabs(high)};
}

/* A code of x / s + zp, or of (x - offset) / s, rounded once. Doubles leave open what lies beside a
 * tie. Quotients are beyond 2^34 only where all of the group is equal and the scale is 1. */
static void element_of_float(const params_t *p, const quantum_t *q, double x, double xb, double *v,
                             double *b)
{
    const bool offsets = p->zps == ZPS_OFFSETS;
    const range_t zp = q->zp;
    const double less = offsets ? zp.v : 0, more = offsets ? 0 : zp.v,
                 below = xb + (offsets ? zp.high - zp.v : 0),
                 above = xb + (offsets ? zp.v - zp.low : 0);
    const range_t t = exact_quotient(x - less, below, above, q->scale);
    const double slack = 0x1p-50 * fmin(fabs(t.v) + fabs(more), 0x1p34),
                 low = element(p, t.low + (offsets ? 0 : zp.low) - slack, 0),
                 high = element(p, t.high + (offsets ? 0 : zp.high) + slack, 0);
    *v = element(p, t.v + more, 0);
    *b = isnan(low) || isnan(high) ? (isnan(*v) ? 0 : INFINITY) : orc_reach(*v, low, high);
}

static void quantize_element(const params_t *p, const quantum_t *q, double x, double xb, double *v,
                             double *b)
{
    double tb, t, low, high, scale = q->scale.v * p->tensor_scale, error = 0;
    range_t s = {scale, q->scale.low * p->tensor_scale, q->scale.high * p->tensor_scale}, ends;

    if (q->zeros || q->loose) {
        *v = isnan(q->scale.v) ? 0 : copysign(0, x);
        *b = q->loose ? INFINITY : 0;
        return;
    }
    if (p->zps != ZPS_INTEGERS) {
        element_of_float(p, q, x, xb, v, b);
        return;
    }
    if (p->tensor_scale != 1) {
        error = orc_f32_error(scale, 0);
    }
    s.low -= error;
    s.high += error;
    if (s.v < 0) { /* as if both had the other sign */
        s = (range_t){-s.v, -s.high, -s.low};
        x = -x;
        scale = -scale;
    }
    if (s.low < s.high && s.low > 0) {
        ends = quotient(x, xb, s);
        t = ends.v;
    } else {
        t = orc_quotient(x, xb, scale, fmax(s.v - s.low, s.high - s.v), &tb);
        ends = (range_t){t, t - tb, t + tb};
    }
    *v = element(p, t, q->zp.v);
    low = element(p, ends.low, q->zp.low);
    high = element(p, ends.high, q->zp.high);
    *b = isnan(low) || isnan(high) ? (isnan(*v) ? 0 : INFINITY) : orc_reach(*v, low, high);
}

/* ---- groups ---------------------------------------------------------------------------------- */

typedef struct geometry {
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS], groups[SINTER_MAX_NDIMS], size[SINTER_MAX_NDIMS],
        strides[SINTER_MAX_NDIMS];
} geometry_t;

/* Calls fn with the offset of every element of a group. */
typedef void visit_fn_t(size_t offset, void *arg);

static void visit_group(const geometry_t *g, size_t group, visit_fn_t *fn, void *arg)
{
    int64_t start[SINTER_MAX_NDIMS] = {0}, index[SINTER_MAX_NDIMS] = {0};
    int d;

    for (d = g->ndims - 1; d >= 0; d--) {
        start[d] = (int64_t)(group % (size_t)g->groups[d]) * g->size[d];
        group /= (size_t)g->groups[d];
        if (g->size[d] == 0) {
            return;
        }
    }
    do {
        int64_t offset = 0;
        for (d = 0; d < g->ndims; d++) {
            offset += (start[d] + index[d]) * g->strides[d];
        }
        fn((size_t)offset, arg);
        for (d = g->ndims - 1;
             d >= 0 && (++index[d] == g->size[d] || start[d] + index[d] == g->dims[d]); d--) {
            index[d] = 0;
        }
    } while (d >= 0);
}

/* ---- IQ4_NL ---------------------------------------------------------------------------------- */

/* A code, and by how much it may be off where x / s may be on either side of a middle. */
static double nearest_number(double low, double t, double high, double *bound)
{
    static const double number[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                      1,    13,   25,  38,  53,  69,  89,  113};
    double at[3] = {low, t, high}, found[3];
    for (int k = 0; k < 3; k++) {
        int i = 0;
        while (i < 15 && at[k] >= (number[i] + number[i + 1]) / 2) {
            i++;
        }
        found[k] = number[i];
    }
    *bound = fmax(found[1] - found[0], found[2] - found[1]);
    return found[1];
}

typedef struct group_work {
    const orc_value_t *in;
    orc_value_t *out;
    group_stats_t stats;
    const params_t *params;
    quantum_t quantum;
    /* Of dynamic_iq4_nl: the first scale, how far off it may be for its size, and sums. */
    double first, off, num, den, num_off, den_off;
    int64_t n;
    bool open;
} group_work_t;

static void widen(range_t *r, double v, double low, double high, int sign)
{
    if (sign * v > sign * r->v) {
        r->v = v;
    }
    if (sign * low > sign * r->low) {
        r->low = low;
    }
    if (sign * high > sign * r->high) {
        r->high = high;
    }
}

static void measure(size_t offset, void *arg)
{
    group_work_t *w = arg;
    double x = w->in->v[offset], b = w->in->b ? w->in->b[offset] : 0;

    w->stats.special = w->stats.special || (!isfinite(x) && !isinf(b));
    w->stats.loose = w->stats.loose || isinf(b);
    if (w->stats.open && !w->stats.begun) {
        w->stats.max = w->stats.min = (range_t){x, x - b, x + b};
        w->stats.begun = true;
    }
    widen(&w->stats.amax, fabs(x), fabs(x) - b, fabs(x) + b, 1);
    widen(&w->stats.max, x, x - b, x + b, 1);
    widen(&w->stats.min, x, x - b, x + b, -1);
}

static void quantize_at(size_t offset, void *arg)
{
    group_work_t *w = arg;
    double b = w->in->b ? w->in->b[offset] : 0;
    quantize_element(w->params, &w->quantum, w->in->v[offset], b, &w->out->v[offset],
                     &w->out->b[offset]);
}

/* One group of dynamic_iq4_nl: codes by the first scale, which add to the sums of the second. */
static void quantize_number(size_t offset, void *arg)
{
    group_work_t *w = arg;
    const double x = w->in->v[offset], b = w->in->b ? w->in->b[offset] : 0,
                 t = (float)(x / w->first),
                 off =
                     b > 0 || w->off > 0 ? b / fabs(w->first) + fabs(t) * (w->off + 4 * ORC_U) : 0;
    double bound, q = nearest_number(t - off, t, t + off, &bound);
    w->out->v[offset] = q;
    w->out->b[offset] = w->quantum.loose ? INFINITY : bound;
    w->num += t * t * t * q;
    w->den += t * t * q * q;
    w->num_off += 3 * t * t * fabs(q) * off;
    w->den_off += 2 * fabs(t) * q * q * off;
    w->n++;
    w->open = w->open || bound > 0;
}

/* A code of 0 does not exist: zeros have a scale of 0. Rounding errors of f32 sums are within n u
 * of their terms, all of which count as positive. */
static void run_numbers(const geometry_t *g, size_t i, group_work_t *w)
{
    const params_t *p = w->params;
    const double amax = w->stats.amax.v, slack = w->stats.amax.high - w->stats.amax.low;
    if (w->stats.special) {
        visit_group(g, i, quantize_at, w);
        return;
    }
    const bool top = w->stats.max.v >= -w->stats.min.v;
    w->first = amax < 1e-15f ? INFINITY : (double)(float)((top ? amax : -amax) / -127);
    w->off = amax > 0 ? slack / amax : slack;
    /* An element may be the other one of largest magnitude, or the group may be zeros. */
    w->quantum.loose = w->stats.loose || (slack > 0 && amax - slack < 1.1e-15) ||
                       (slack > 0 && fabs(w->stats.max.v + w->stats.min.v) <= 2 * slack);
    visit_group(g, i, quantize_number, w);
    w->quantum.loose = w->quantum.loose || w->open;
    const double most = orc_type_max(p->scale_type),
                 s = w->den > 0 ? fmax(-most, fmin(most, w->first * (w->num / w->den))) : 0,
                 error =
                     (2 * (double)w->n + 8) * ORC_U * fabs(s) + 4 * w->off * fabs(s) +
                     (w->den > 0 ? 1.1 * fabs(s) * (w->num_off / fabs(w->num) + w->den_off / w->den)
                                 : 0);
    w->quantum.scale = order(orc_round(p->scale_type, s), orc_round(p->scale_type, s - error),
                             orc_round(p->scale_type, s + error));
}

/* ---- the op ---------------------------------------------------------------------------------- */

static const kind_t kinds[] = {
    {"dynamic_mx", derive_mx, 32},
    {"dynamic_mx_rceil", derive_mx_rceil, 32},
    {"dynamic_symmetric", derive_symmetric, 0},
    {"dynamic_asymmetric", derive_asymmetric, 0},
    {"dynamic_nv", derive_nv, 16},
    {"dynamic_signed", derive_signed, 0},
    {"dynamic_iq4_nl", NULL, 32},
};

/* Number of groups of each dim from the attributes, for a scales output of unknown shape. */
static int groups_from_attrs(orc_ctx_t *c, const kind_t *kind, geometry_t *g)
{
    const orc_attr_t *axes = orc_attr(c, sinter_op_attr_axis),
                     *groups = orc_attr(c, sinter_op_attr_groups);
    const orc_attr_t *shape = orc_attr(c, sinter_op_attr_group_shape);
    const char *qtype =
        orc_attr_str(c, sinter_op_attr_qtype, kind->group ? "per_group" : "per_tensor");
    int axis;

    if (strcmp(qtype, "per_group") == 0 && shape) {
        for (int d = 0; d < g->ndims && d < (int)shape->n; d++) {
            g->groups[d] = shape->s64[d] > 0 ? (g->dims[d] + shape->s64[d] - 1) / shape->s64[d] : 0;
        }
    } else if (strcmp(qtype, "per_group") == 0 && groups) {
        memcpy(g->groups, g->dims, sizeof g->groups); /* what is not listed is not shared */
        for (size_t i = 0; i < groups->n; i++) {
            int64_t at = axes && i < axes->n ? axes->s64[i] : 1;
            at += at < 0 ? g->ndims : 0;
            if (at < 0 || at >= g->ndims) {
                return orc_fail(c, "axis is out of range");
            }
            g->groups[at] = groups->s64[i];
        }
    } else if (strcmp(qtype, "per_group") == 0) {
        if (!kind->group || !g->ndims) {
            return orc_fail(c, "no attribute says what the groups are");
        }
        memcpy(g->groups, g->dims, sizeof g->groups);
        g->groups[g->ndims - 1] = g->dims[g->ndims - 1] / kind->group;
    } else if (strcmp(qtype, "per_channel") == 0) {
        axis = orc_axis(c, 1, g->ndims);
        if (axis < 0) {
            return -1;
        }
        g->groups[axis] = g->dims[axis];
    }
    return 0;
}

static bool known_dims(const sinter_logical_tensor_t *lt)
{
    for (int d = 0; d < lt->ndims; d++) {
        if (lt->dims[d] < 0) {
            return false;
        }
    }
    return lt->ndims >= 0;
}

static int geometry(orc_ctx_t *c, const kind_t *kind, geometry_t *g)
{
    const sinter_logical_tensor_t *lt = &c->in[0]->lt, *scales = &c->out[1]->lt;
    int axis;

    g->ndims = lt->ndims;
    memcpy(g->dims, lt->dims, sizeof g->dims);
    orc_dense_strides(g->ndims, g->dims, g->strides);
    for (int d = 0; d < g->ndims; d++) {
        g->groups[d] = 1;
    }
    if (!known_dims(scales)) {
        if (groups_from_attrs(c, kind, g)) {
            return -1;
        }
    } else if (scales->ndims == g->ndims && orc_count(scales->dims, scales->ndims) != 1) {
        memcpy(g->groups, scales->dims, sizeof g->groups);
    } else if (scales->ndims == 1 && scales->dims[0] != 1) {
        axis = orc_axis(c, 1, g->ndims);
        if (axis < 0) {
            return -1;
        }
        g->groups[axis] = scales->dims[0];
    }
    for (int d = 0; d < g->ndims; d++) {
        const bool empty = g->groups[d] < 1 && g->dims[d] == 0;
        g->size[d] = empty ? 0 : orc_group_size(c, g->ndims, d, g->dims[d], g->groups[d]);
        if (g->size[d] < 0) {
            return -1;
        }
    }
    return 0;
}

/* Scales and zero points are a scalar (per_tensor), a list (per_channel) or have a dim for each
 * data dim, unless a rank is declared. */
static int param_output(orc_ctx_t *c, size_t i, const kind_t *kind, const geometry_t *g)
{
    const char *qtype =
        orc_attr_str(c, sinter_op_attr_qtype, kind->group ? "per_group" : "per_tensor");
    int64_t n = (int64_t)orc_count(g->groups, g->ndims);
    int rank = strcmp(qtype, "per_tensor") == 0    ? 0
               : strcmp(qtype, "per_channel") == 0 ? 1
                                                   : g->ndims;

    if (c->out[i]->lt.ndims >= 0) {
        rank = c->out[i]->lt.ndims;
    }
    if (rank > 1 && rank != g->ndims) {
        return orc_fail(c, "output %zu has %d dims, the data %d", i, rank, g->ndims);
    }
    if (rank == g->ndims && rank > 0 ? orc_shape(c, i, rank, g->groups)
                                     : orc_shape(c, i, rank, &n)) {
        return -1;
    }
    if (c->out[i]->n != (size_t)n) {
        return orc_fail(c, "output %zu has %zu values for %lld groups", i, c->out[i]->n,
                        (long long)n);
    }
    return orc_alloc(c, c->out[i], true);
}

static void put_range(orc_value_t *to, size_t i, range_t r, bool loose)
{
    to->v[i] = r.v;
    to->b[i] = loose ? INFINITY : isnan(r.v) ? 0 : fmax(r.v - r.low, r.high - r.v);
}

static void run_groups(orc_ctx_t *c, const kind_t *kind, const geometry_t *g, const params_t *p)
{
    size_t n = orc_count(g->groups, g->ndims);
#pragma omp parallel for
    for (size_t i = 0; i < n; i++) {
        group_work_t w = {.in = c->in[0], .out = c->out[0], .params = p};
        w.stats.open = p->zps != ZPS_INTEGERS;
        visit_group(g, i, measure, &w);
        if (kind->derive != NULL) {
            w.quantum = derive(kind, &w.stats, p);
            visit_group(g, i, quantize_at, &w);
        } else {
            w.quantum = (quantum_t){.scale = {NAN, NAN, NAN}, .zeros = true};
            run_numbers(g, i, &w);
        }
        put_range(c->out[1], i, w.quantum.scale, w.quantum.loose);
        if (c->n_out > 2) {
            put_range(c->out[2], i, w.quantum.zp, w.quantum.loose);
        }
    }
}

static int whole_codes(orc_ctx_t *c, const char *name)
{
    const kind_t *kind = NULL;
    params_t p = {.tensor_scale = 1};
    geometry_t g;

    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        if (strcmp(kinds[i].name, name) == 0) {
            kind = &kinds[i];
        }
    }
    if (!kind) {
        return orc_fail(c, "unknown quantization_kind %s", name);
    }
    if (c->n_out < 2) {
        return orc_fail(c, "no output for the scales");
    }
    if (geometry(c, kind, &g) || orc_shape_like(c, 0, c->in[0]) || orc_alloc(c, c->out[0], true) ||
        param_output(c, 1, kind, &g)) {
        return -1;
    }
    if (c->n_out > 2 && param_output(c, 2, kind, &g)) {
        return -1;
    }
    p.type = c->out[0]->lt.data_type;
    c->out[0]->saturates =
        orc_class(p.type) != ORC_INT; /* rounding to those saturates in any case */
    p.scale_type = c->out[1]->lt.data_type;
    p.zp_type = c->n_out > 2 ? c->out[2]->lt.data_type : sinter_s32;
    if (kind->derive == derive_asymmetric && orc_class(p.zp_type) == ORC_WIDE) {
        p.zps = strcmp(orc_attr_str(c, sinter_op_attr_zps_kind, "zero_points"), "offsets") == 0
                    ? ZPS_OFFSETS
                    : ZPS_FLOATS;
    }
    p.max = orc_type_max(p.type);
    p.lowest = orc_round(p.type, -0x1p62);
    const orc_attr_t *bits = orc_attr(c, sinter_op_attr_code_bits);
    if (bits && ldexp(1, (int)bits->s64[0]) < p.max - p.lowest + 1) {
        p.clamps = true;
        p.lowest = p.lowest < 0 ? -ldexp(1, (int)bits->s64[0] - 1) : 0;
        p.max = p.lowest + ldexp(1, (int)bits->s64[0]) - 1;
    }
    p.least = kind->derive == derive_mx || kind->derive == derive_mx_rceil ? -p.max : p.lowest;
    if (kind->derive == derive_nv && c->n_in > 1) {
        p.tensor_scale = c->in[1]->v[0] == 0 ? NAN : c->in[1]->v[0];
    }
    run_groups(c, kind, &g, &p);
    return 0;
}

/* Codes into planes: four bits into output 0, the others into the last one. A code that a bound
 * leaves open may be anything in both; a zero that was computed may have either sign, which is
 * the upper bit of the last one. */
static int part_codes(orc_ctx_t *c, const orc_value_t *codes, orc_value_t *low, size_t high_output)
{
    orc_value_t *high = c->out[high_output];

    if (orc_shape(c, 0, codes->lt.ndims, codes->lt.dims) || orc_alloc(c, low, true) ||
        orc_shape(c, high_output, codes->lt.ndims, codes->lt.dims) || orc_alloc(c, high, true)) {
        return -1;
    }
    for (size_t i = 0; i < codes->n; i++) {
        unsigned char byte = 0;
        orc_encode(codes->lt.data_type, &byte, 0, codes->v[i]);
        low->v[i] = byte & 15;
        high->v[i] = byte >> 4 & 3;
        low->b[i] = high->b[i] = codes->b && codes->b[i] > 0 ? INFINITY : 0;
        if (codes->v[i] == 0 && low->b[i] == 0 && c->in[0]->b) {
            high->b[i] = 2;
        }
    }
    return 0;
}

int orc_quantize_dynamic(orc_ctx_t *c, const char *name)
{
    const char *type = orc_attr_str(c, sinter_op_attr_split_type, NULL);
    orc_ctx_t whole = *c;
    orc_value_t codes;
    int failed;

    if (!type) {
        return whole_codes(c, name);
    }
    codes = (orc_value_t){.lt = c->out[0]->lt};
    if (c->n_out < 3 || !orc_find_type(type, &codes.lt.data_type)) {
        return orc_fail(c, "no planes of type %s", type);
    }
    whole.n_out = c->n_out - 1;
    whole.out[0] = &codes;
    failed = whole_codes(&whole, name) || orc_finish(&whole, &codes) ||
             part_codes(c, &codes, c->out[0], c->n_out - 1);
    orc_value_clear(&codes);
    return failed ? -1 : 0;
}
