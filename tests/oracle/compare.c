/* Checks packed bytes against values and bounds. Rounding is monotone, so a result is right if and
 * only if it lies between the roundings of value - bound and value + bound to the output's type;
 * that covers saturation, overflow and integer types alike.
 *
 * An element is loose where its bound leaves so much open that comparing says nothing about it:
 *   - the bound is infinite;
 *   - no value of the type is wrong (of a boolean: both are right);
 *   - the bound is larger than every magnitude of the output, so that 0 and a value of the wrong
 *     sign are right. This does not count where the output is 0 throughout, and for bounds below
 *     the
 *     normal numbers of f32, which underflow alone makes.
 * A loose element is never bad, so that it has to be allowed: a comparison with more loose
 * elements than the caller allows fails. */
#include <float.h>
#include <stdio.h>

#include "internal.h"

typedef struct verdict {
    bool bad, loose, differs,
        open; /* not the rounding of the value; more than one result is right */
    double ratio, tolerance;
} verdict_t;

/* What all elements of an output have in common. */
typedef struct scale {
    sinter_data_type_t type;
    double most;           /* no result is beyond it */
    double least, largest; /* ends of the finite values of the type */
    double amax;           /* the largest finite magnitude that is expected */
} scale_t;

/* A type that stores a NaN as its largest number: which sign is open, the magnitude is not. */
static bool is_stored_nan(sinter_data_type_t type, double v, double b, double got)
{
    return isnan(v) && b == 0 && orc_stores_signed_nan(type) && fabs(got) == orc_type_max(type);
}

/* f32 is the type of most outputs, and its rounding one instruction. */
static inline double round_to(sinter_data_type_t type, double v)
{
    return type == sinter_f32 ? (double)(float)v : orc_round(type, v);
}

static verdict_t judge(const scale_t *s, double v, double b, double got)
{
    const sinter_data_type_t type = s->type;
    const double nearest = round_to(type, v), most = s->most;
    verdict_t r = {.differs = got != nearest && !(isnan(got) && isnan(nearest))};
    double low, high;

    if (is_stored_nan(type, v, b, got)) {
        r.open = true;
        return r;
    }

    if (isinf(b)) {
        r.loose = r.open = true;
        r.tolerance = INFINITY;
        return r;
    }
    r.open = b > 0;
    if (orc_class(type) == ORC_BOOL && b > 0) {
        r.loose = true;
        return r;
    }
    low = b > 0 ? round_to(type, orc_cut(v - b, most)) : nearest;
    high = b > 0 ? round_to(type, orc_cut(v + b, most)) : low;
    r.open = low != high && !(isnan(low) && isnan(high));
    r.loose = b > 0 && ((low <= s->least && high >= s->largest) ||
                        (s->amax > 0 && b > fmax(s->amax, FLT_MIN)));
    if (isnan(got)) {
        r.bad = !isnan(low) && !isnan(high);
        r.ratio = r.bad ? INFINITY : 0;
        return r;
    }
    if (isnan(low) && isnan(high)) {
        r.bad = true;
        r.ratio = INFINITY;
        return r;
    }
    r.bad = got < low || got > high; /* an end that is NaN bounds nothing */
    r.tolerance = got < v ? orc_distance(v, low) : orc_distance(high, v);
    r.ratio = got == v || isinf(got) ? 0 : fabs(got - v) / r.tolerance;
    if (!r.bad && !(r.ratio <= 1)) {
        r.ratio = 1;
    }
    if (r.bad && !(r.ratio > 1)) {
        r.ratio = INFINITY;
    }
    return r;
}

static bool same_dims(const sinter_logical_tensor_t *a, const sinter_logical_tensor_t *b)
{
    if (a->ndims != b->ndims) {
        return false;
    }
    for (int d = 0; d < a->ndims; d++) {
        if (a->dims[d] != b->dims[d]) {
            return false;
        }
    }
    return true;
}

typedef struct tally {
    orc_diff_t diff;
    double error2, value2;
} tally_t;

static double largest_magnitude(const orc_result_t *want)
{
    double amax = 0;
#pragma omp parallel for reduction(max : amax)
    for (size_t i = 0; i < want->n; i++) {
        const double x = fabs(want->value[i]);
        amax = isfinite(x) && x > amax ? x : amax;
    }
    return amax;
}

static void count_loose(tally_t *t, const verdict_t *r, size_t at, double value, double bound)
{
    if (r->loose && t->diff.loose++ == 0) {
        t->diff.loose_at = at;
        t->diff.loose_want = value;
        t->diff.loose_bound = bound;
    }
}

static void compare_chunk(const orc_result_t *want, const scale_t *s, const double *got,
                          size_t start, size_t n, tally_t *t)
{
    for (size_t i = 0; i < n; i++) {
        double v = want->value[start + i], b = want->bound ? want->bound[start + i] : 0;
        verdict_t r = judge(s, v, b, got[i]);
        t->diff.bad += r.bad;
        count_loose(t, &r, start + i, v, b);
        t->diff.differ += r.differs;
        t->diff.open += r.open;
        if (r.ratio > t->diff.worst_ratio || (start == 0 && i == 0)) {
            t->diff.worst = start + i;
            t->diff.worst_ratio = r.ratio;
            t->diff.got = got[i];
            t->diff.want = v;
            t->diff.tolerance = r.tolerance;
        }
        if (isfinite(v) && isfinite(got[i])) {
            t->error2 += (got[i] - v) * (got[i] - v);
            t->value2 += v * v;
        }
    }
}

/* The first of equally bad elements stays, whatever the threads do. */
static void merge(tally_t *to, const tally_t *from)
{
    const orc_diff_t first =
        from->diff.loose > 0 && (to->diff.loose == 0 || from->diff.loose_at < to->diff.loose_at)
            ? from->diff
            : to->diff;
    size_t bad = to->diff.bad + from->diff.bad, loose = to->diff.loose + from->diff.loose;
    size_t differ = to->diff.differ + from->diff.differ, open = to->diff.open + from->diff.open;
    if (from->diff.worst_ratio > to->diff.worst_ratio ||
        (from->diff.worst_ratio == to->diff.worst_ratio && from->diff.worst < to->diff.worst)) {
        to->diff = from->diff;
    }
    to->diff.bad = bad;
    to->diff.loose = loose;
    to->diff.loose_at = first.loose_at;
    to->diff.loose_want = first.loose_want;
    to->diff.loose_bound = first.loose_bound;
    to->diff.differ = differ;
    to->diff.open = open;
    to->error2 += from->error2;
    to->value2 += from->value2;
}

int orc_compare(const orc_result_t *want, const sinter_logical_tensor_t *lt, const void *data,
                orc_diff_t *diff)
{
    return orc_compare_loosely(want, lt, data, 0, diff);
}

int orc_compare_loosely(const orc_result_t *want, const sinter_logical_tensor_t *lt,
                        const void *data, double max_loose, orc_diff_t *diff)
{
    size_t chunks = (want->n + ORC_CHUNK - 1) / ORC_CHUNK;
    tally_t total = {{0}, 0, 0};
    double table[256];

    memset(diff, 0, sizeof *diff);
    if (!same_dims(&want->lt, lt) || lt->data_type != want->lt.data_type) {
        diff->bad = diff->differ = diff->n = want->n;
        diff->worst_ratio = INFINITY;
        return -1;
    }
    const double largest = orc_type_max(lt->data_type);
    const scale_t scale = {.type = lt->data_type,
                           .most = want->saturates ? largest : INFINITY,
                           .least = orc_round(lt->data_type, -largest),
                           .largest = largest,
                           .amax = largest_magnitude(want)};
    orc_decode_table(lt->data_type, table);
    total.diff.worst = SIZE_MAX;
#pragma omp parallel
    {
        tally_t mine = {{.worst = SIZE_MAX}, 0, 0};
        double got[ORC_CHUNK];
#pragma omp for schedule(static)
        for (size_t c = 0; c < chunks; c++) {
            size_t start = c * ORC_CHUNK,
                   n = want->n - start < ORC_CHUNK ? want->n - start : ORC_CHUNK;
            orc_decode_span(lt, data, table, start, n, got);
            compare_chunk(want, &scale, got, start, n, &mine);
        }
#pragma omp critical
        merge(&total, &mine);
    }
    *diff = total.diff;
    diff->n = want->n;
    if (diff->worst == SIZE_MAX) {
        diff->worst = 0;
    }
    diff->rel_l2 = total.value2 > 0   ? sqrt(total.error2 / total.value2)
                   : total.error2 > 0 ? INFINITY
                                      : 0;
    return diff->bad > 0 || (double)diff->loose > max_loose * (double)diff->n ? -1 : 0;
}

const char *orc_diff_text(const orc_diff_t *d, char *text, size_t size)
{
    size_t used = 0;

    text[0] = 0;
    if (d->bad > 0) {
        used = (size_t)snprintf(text, size,
                                "%zu of %zu elements out of tolerance, worst at %zu: got %.9g, "
                                "expected %.9g within %.3g%s",
                                d->bad, d->n, d->worst, d->got, d->want, d->tolerance,
                                d->loose > 0 ? "; " : "");
    }
    if (d->loose > 0 && used < size) {
        snprintf(text + used, size - used,
                 "%zu of %zu elements with a bound that checks nothing, first at %zu: expected "
                 "%.9g within %.3g",
                 d->loose, d->n, d->loose_at, d->loose_want, d->loose_bound);
    }
    return text;
}
