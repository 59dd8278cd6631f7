/* Roundings between ops. A wide float keeps its unrounded value and its bound grows by what an
 * unfused execution would lose; any other type takes its stored value, and its bound says how
 * far that may move if the unrounded value does. */
#include "internal.h"

/* A NaN or an infinity is certain unless it came from something with an infinite bound; a bound
 * that cannot be told is infinite. */
static double mend(double v, double b)
{
    if (isfinite(v)) {
        return isnan(b) ? INFINITY : b;
    }
    return b == INFINITY ? b : 0;
}

/* Error of rounding v to `digits` significant bits, below the normal range to a multiple of
 * unit. Veltkamp's splitting vectorises. */
static inline double split_error(double v, int digits, double least_normal, double unit)
{
    double scaled = v * (double)((INT64_C(1) << (53 - digits)) + 1), rest = scaled - v,
           rounded = scaled - rest, shift = unit * 0x1.8p52;
    if (fabs(v) < least_normal) {
        rounded = v + shift;
        rounded -= shift;
    }
    return fabs(rounded - v);
}

/* weight multiplies new, certain errors that join likely ones: see grow. */
typedef double error_fn_t(double v, double b, double weight);

static double f32_arithmetic(double v, double b, double weight)
{
    (void)weight;
    return b + orc_f32_error(v, b);
}

static double stored_f32(double v, double b, double weight)
{
    (void)weight;
    if (fabs(v) + b >= 0x1.FFFFFFp127 && isfinite(v)) {
        return INFINITY;
    }
    return b + orc_f32_error(v, b);
}

/* Above the largest f16 an unfused execution has Inf and a fused one the number itself: nothing
 * can be demanded. */
static double stored_f16(double v, double b, double weight)
{
    if (fabs(v) + b >= 65520 && isfinite(v)) {
        return INFINITY;
    }
    return b == 0 ? split_error(v, 11, 0x1p-14, 0x1p-24)
                  : b + weight * ((fabs(v) + b) * 0x1p-11 + 0x1p-25);
}

static double stored_bf16(double v, double b, double weight)
{
    if (fabs(v) + b >= 0x1.FFp127 && isfinite(v)) {
        return INFINITY;
    }
    return b == 0 ? split_error(v, 8, 0x1p-126, 0x1p-133)
                  : b + weight * ((fabs(v) + b) * 0x1p-8 + 0x1p-134);
}

/* True if every v is certain and stays what it is, so that no bounds are needed. */
static bool all_exact(const orc_value_t *t, error_fn_t *error)
{
    const double *v = t->v;
    int exact = 1;
#pragma omp parallel for reduction(&& : exact)
    for (size_t i = 0; i < t->n; i++) {
        if (exact && isfinite(v[i]) && error(v[i], 0, 1) != 0) {
            exact = 0;
        }
    }
    return exact;
}

/* True if the errors a rounding adds are smaller than the ones already there, taken together. */
static bool rounding_is_minor(const orc_value_t *t, error_fn_t *error)
{
    const double *v = t->v, *b = t->b;
    double old = 0, added = 0;
#pragma omp parallel for reduction(+ : old, added)
    for (size_t i = 0; i < t->n; i++) {
        if (isfinite(v[i]) && isfinite(b[i])) {
            double grown = error(v[i], b[i], 1);
            old += b[i];
            added += isfinite(grown) ? grown - b[i] : 0;
        }
    }
    return added < old;
}

/* A walked bound stands for some 7 standard deviations and is used as such in the next sum. A
 * uniform rounding error's bound is 1.7 of them, so it joins with a weight; where such errors
 * prevail the tensor counts as not walked instead. */
static inline __attribute__((always_inline)) int grow(orc_ctx_t *c, orc_value_t *t,
                                                      error_fn_t *error)
{
    double *v = t->v, *b = t->b, weight;
    bool fresh = !b;

    if (fresh) {
        if (all_exact(t, error)) {
            return 0;
        }
        b = t->b = orc_doubles(t->n);
        if (!b) {
            return orc_fail(c, "out of memory for %zu bounds", t->n);
        }
    }
    if (t->walked && error != f32_arithmetic && error != stored_f32) {
        t->walked = !fresh && rounding_is_minor(t, error);
    }
    weight = t->walked ? 3 : 1;
#pragma omp parallel for
    for (size_t i = 0; i < t->n; i++) {
        b[i] = fresh ? 0 : mend(v[i], b[i]);
        if (isfinite(
                /* nothing rounds a NaN or an infinity, and infinite bounds stay what they are */
                v[i])) {
            b[i] = mend(v[i], error(v[i], b[i], weight));
        }
    }
    return 0;
}

/* Where f32 has the largest range of all arithmetic, what overflows it is infinite in every
 * execution. */
static void overflow_f32(orc_value_t *t)
{
    double *v = t->v;
#pragma omp parallel for
    for (size_t i = 0; i < t->n; i++) {
        if (fabs(v[i]) < 0x1.FFFFFEp127 || !isfinite(v[i])) {
            continue;
        }
        double b = t->b ? t->b[i] : 0, least = fabs(v[i]) - b;
        if (least > 0 && isinf((float)least)) {
            v[i] = copysign(INFINITY, v[i]);
            if (t->b) {
                t->b[i] = 0;
            }
        } else if (t->b && isinf((float)(fabs(v[i]) + b))) {
            t->b[i] = INFINITY;
        }
    }
}

/* one_side: 0 is not between low and high. Far from it, types without infinities have NaNs on
 * both sides. */
static double snapped_bound(double v, double low, double high, bool one_side)
{
    if (isnan(v) || isnan(low) || isnan(high)) {
        return isnan(v) && isnan(low) && isnan(high) && one_side ? 0 : INFINITY;
    }
    return orc_reach(v, low, high);
}

bool orc_stores_signed_nan(sinter_data_type_t type)
{
    double stored = orc_round(type, NAN);
    return orc_class(type) == ORC_NARROW && !isnan(stored) && stored != 0;
}

/* Such a NaN is one until the value has consumers: they see the number that is stored, of either
 * sign. */
static int store_nans(orc_ctx_t *c, orc_value_t *t)
{
    for (size_t i = 0; i < t->n; i++) {
        if (!isnan(t->v[i])) {
            continue;
        }
        if (!t->b) {
            t->b = orc_doubles(t->n);
            if (!t->b) {
                return orc_fail(c, "out of memory for %zu bounds", t->n);
            }
            memset(t->b, 0, t->n * sizeof *t->b);
        }
        t->v[i] = orc_round(t->lt.data_type, t->v[i]);
        t->b[i] = 2 * orc_type_max(t->lt.data_type);
    }
    return 0;
}

/* A boolean's bound above zero means either truth value; it is not a distance that could be
 * rounded. */
static void snap(orc_value_t *t)
{
    sinter_data_type_t type = t->lt.data_type;
    double most = t->saturates ? orc_type_max(type) : INFINITY;
#pragma omp parallel for
    for (size_t i = 0; i < t->n; i++) {
        double v = t->v[i], b = t->b ? mend(v, t->b[i]) : 0;
        if (isnan(v) && b == 0 && orc_stores_signed_nan(type)) {
            if (t->b) {
                t->b[i] = 0;
            }
            continue;
        }
        t->v[i] = orc_round(type, v);
        if (t->b && orc_class(type) == ORC_BOOL) {
            t->b[i] = b > 0;
        } else if (t->b && b == INFINITY) {
            t->b[i] = b;
        } else if (t->b) {
            t->b[i] = b == 0 ? 0
                             : snapped_bound(t->v[i], orc_round(type, orc_cut(v - b, most)),
                                             orc_round(type, orc_cut(v + b, most)),
                                             isnan(v) || b < fabs(v));
        }
    }
}

int orc_finish(orc_ctx_t *c, orc_value_t *t)
{
    sinter_data_type_t type = t->lt.data_type;

    switch (orc_class(type)) {
    case ORC_WIDE:
        return type == sinter_f32 || type == sinter_f64 ? 0 : grow(c, t, f32_arithmetic);
    case ORC_NARROW:
        if (grow(c, t, f32_arithmetic)) {
            return -1;
        }
        break;
    case ORC_INT:
    case ORC_BOOL:
        break;
    }
    snap(t);
    t->walked = false; /* an error is a whole step now, or none */
    return 0;
}

int orc_finish_stored(orc_ctx_t *c, orc_value_t *t)
{
    /* grow is inlined with its function, so one call for each. */
    if (t->lt.data_type == sinter_f32) {
        if (!c->doubles) {
            overflow_f32(t);
        }
        return grow(c, t, stored_f32);
    }
    if (t->lt.data_type == sinter_f16) {
        return grow(c, t, stored_f16);
    }
    if (orc_stores_signed_nan(t->lt.data_type)) {
        return store_nans(c, t);
    }
    return t->lt.data_type == sinter_bf16 ? grow(c, t, stored_bf16) : 0;
}
