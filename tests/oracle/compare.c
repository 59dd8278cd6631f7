/* Checks packed bytes against values and bounds. Rounding is monotone, so a result is right if and only if it lies between the roundings of
 * value - bound and value + bound to the output's type; that covers saturation, overflow and integer types alike. */
#include "internal.h"

typedef struct verdict {
    bool bad, loose, differs, open; /* not the rounding of the value; more than one result is right */
    double ratio, tolerance;
} verdict_t;

/* most: no result is beyond it. */
static verdict_t judge(sinter_data_type_t type, double v, double b, double most, double got)
{
    const double nearest = orc_round(type, v);
    verdict_t r = {.differs = got != nearest && !(isnan(got) && isnan(nearest))};
    double low, high;

    if (isinf(b)) {
        r.loose = r.open = true;
        r.tolerance = INFINITY;
        return r;
    }
    r.open = b > 0;
    if (orc_class(type) == ORC_BOOL && b > 0)
        return r;
    low = b > 0 ? orc_round(type, orc_cut(v - b, most)) : nearest;
    high = b > 0 ? orc_round(type, orc_cut(v + b, most)) : low;
    r.open = low != high && !(isnan(low) && isnan(high));
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
    if (!r.bad && !(r.ratio <= 1))
        r.ratio = 1;
    if (r.bad && !(r.ratio > 1))
        r.ratio = INFINITY;
    return r;
}

static bool same_dims(const sinter_logical_tensor_t *a, const sinter_logical_tensor_t *b)
{
    if (a->ndims != b->ndims)
        return false;
    for (int d = 0; d < a->ndims; d++)
        if (a->dims[d] != b->dims[d])
            return false;
    return true;
}

typedef struct tally {
    orc_diff_t diff;
    double error2, value2;
} tally_t;

static void compare_chunk(const orc_result_t *want, sinter_data_type_t type, const double *got, size_t start, size_t n, tally_t *t)
{
    double most = want->saturates ? orc_type_max(type) : INFINITY;
    for (size_t i = 0; i < n; i++) {
        double v = want->value[start + i], b = want->bound ? want->bound[start + i] : 0;
        verdict_t r = judge(type, v, b, most, got[i]);
        t->diff.bad += r.bad;
        t->diff.loose += r.loose;
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
    size_t bad = to->diff.bad + from->diff.bad, loose = to->diff.loose + from->diff.loose;
    size_t differ = to->diff.differ + from->diff.differ, open = to->diff.open + from->diff.open;
    if (from->diff.worst_ratio > to->diff.worst_ratio ||
        (from->diff.worst_ratio == to->diff.worst_ratio && from->diff.worst < to->diff.worst))
        to->diff = from->diff;
    to->diff.bad = bad;
    to->diff.loose = loose;
    to->diff.differ = differ;
    to->diff.open = open;
    to->error2 += from->error2;
    to->value2 += from->value2;
}

int orc_compare(const orc_result_t *want, const sinter_logical_tensor_t *lt, const void *data, orc_diff_t *diff)
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
    orc_decode_table(lt->data_type, table);
    total.diff.worst = SIZE_MAX;
#pragma omp parallel
    {
        tally_t mine = {{.worst = SIZE_MAX}, 0, 0};
        double got[ORC_CHUNK];
#pragma omp for schedule(static)
        for (size_t c = 0; c < chunks; c++) {
            size_t start = c * ORC_CHUNK, n = want->n - start < ORC_CHUNK ? want->n - start : ORC_CHUNK;
            orc_decode_span(lt, data, table, start, n, got);
            compare_chunk(want, lt->data_type, got, start, n, &mine);
        }
#pragma omp critical
        merge(&total, &mine);
    }
    *diff = total.diff;
    diff->n = want->n;
    if (diff->worst == SIZE_MAX)
        diff->worst = 0;
    diff->rel_l2 = total.value2 > 0 ? sqrt(total.error2 / total.value2) : total.error2 > 0 ? INFINITY : 0;
    return diff->bad ? -1 : 0;
}
