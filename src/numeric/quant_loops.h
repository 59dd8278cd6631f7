/* The loops of quantisation, which quant_rows_{generic,avx2,avx512}.c compile, in the vocabulary of
 * simd_<isa>.h. The including file defines QUANT_ROWS, the name of the table, and LOADS_16 where
 * the vocabulary has vf_load_f16 and vf_load_bf16. */
#ifndef SINTER_SRC_NUMERIC_QUANT_LOOPS_H
#define SINTER_SRC_NUMERIC_QUANT_LOOPS_H

#include <math.h>
#include <string.h>

#include "numeric/dtype_bits.h"
#include "numeric/quant_rows.h"
#include "numeric/quant_scales.h"
#include "numeric/unroll.h"

enum {
    CACHE_LINE = 64,
    LINE_FLOATS = 16,
    STRIP = LANES == 16 ? 16 : 8, /* vectors of extremes that fit into the registers */
    STRIP_ROWS = 8,
};

/* ---- extremes -------------------------------------------------------------------------------- */

/* In a maximum with 0, or with the least integer, these give what the side is about. */
OP vi side_of(side_t side, vi bits)
{
    return side == OPEN_TOP      ? (vi)ordered_bits((vu)bits)
           : side == OPEN_BOTTOM ? (vi)ordered_bits((vu)bits ^ 0x80000000u)
           : side == MAGNITUDE   ? (vi)(bits & vi_set1(INT32_MAX))
           : side == TOP         ? bits
                                 : (vi)(bits ^ vi_set1(INT32_MIN));
}

/* The first n elements at x, of floats; of 16 bits a whole vector. */
OP vi loaded(sinter_data_type_t type, side_t side, const unsigned char *x, int n)
{
#ifdef LOADS_16
    if (type != sinter_f32) {
        return side_of(side, vi_of(type == sinter_f16 ? vf_load_f16(x) : vf_load_bf16(x)));
    }
#endif
    (void)type;
    const void *p = x;
    if ((side == OPEN_TOP || side == OPEN_BOTTOM) &&
        n < LANES) { /* a lane without an element is no 0 */
        int32_t lane[LANES];
        vi_store(lane, side_of(side, vi_of(vf_load_n(p, n))));
        for (int i = n > 0 ? n : 0; i < LANES; i++) {
            lane[i] = INT32_MIN;
        }
        return vi_load(lane);
    }
    return side_of(side, vi_of(n < LANES ? vf_load_n(p, n) : vf_load(p)));
}

/* The extremes of one group, lane by lane. */
OP vi widen_group(sinter_data_type_t type, side_t side, const unsigned char *x, int size)
{
    const int bytes = type == sinter_f32 ? 4 : 2;
    vi most = loaded(type, side, x, size);
    int i = LANES;
    for (; i + 4 * LANES <= size; i += 4 * LANES) { /* no vector waits for the one before it */
        vi v[4];
        UNROLL
        for (int k = 0; k < 4; k++) {
            v[k] = loaded(type, side, x + (i + k * LANES) * bytes, LANES);
        }
        most = vi_max(most, vi_max(vi_max(v[0], v[1]), vi_max(v[2], v[3])));
    }
    for (; i + LANES <= size; i += LANES) {
        most = vi_max(most, loaded(type, side, x + i * bytes, LANES));
    }
    return i < size ? vi_max(most, loaded(type, side, x + i * bytes, size - i)) : most;
}

/* LANES groups at a time, so that one vector takes the extreme of each. */
OP void widen_groups_of(sinter_data_type_t type, side_t side, const void *from, int size, int n,
                        int32_t *to)
{
    const unsigned char *x = from;
    const int64_t step = (int64_t)size * (type == sinter_f32 ? 4 : 2);
    vi v[LANES];
    int g = 0;
    for (; g + LANES <= n; g += LANES) {
        for (int k = 0; k < LANES; k++, x += step) {
            v[k] = widen_group(type, side, x, size);
        }
        vi_store(to + g, vi_max(vi_load(to + g), vi_max_each(v)));
    }
    if (g < n) {
        int32_t most[LANES] = {0};
        memcpy(most, to + g, (size_t)(n - g) * sizeof *most);
        for (int k = 0; k < LANES; k++, x += step) {
            v[k] = k < n - g ? widen_group(type, side, x, size) : vi_set1(0);
        }
        vi_store(most, vi_max(vi_load(most), vi_max_each(v)));
        memcpy(to + g, most, (size_t)(n - g) * sizeof *most);
    }
}
OP void widen_groups(sinter_data_type_t type, side_t side, const void *x, int size, int n,
                     int32_t *to)
{
    if (size == 16) {
        widen_groups_of(type, side, x, 16, n, to);
    } else if (size == 32) {
        widen_groups_of(type, side, x, 32, n, to);
    } else {
        widen_groups_of(type, side, x, size, n, to);
    }
}

/* Columns that are groups. */
OP void widen_columns(side_t side, const float *x, int n, int32_t *to)
{
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        vi_store(to + i, vi_max(vi_load(to + i), side_of(side, vi_of(vf_load(x + i)))));
    }
    for (; i < n; i++) {
        int32_t lane[LANES];
        vi_store(lane, side_of(side, vi_of(vf_load_n(x + i, 1))));
        to[i] = lane[0] > to[i] ? lane[0] : to[i];
    }
}

/* Rows of such columns, `stride` floats apart; the floats `ahead` of each are prefetched. */
typedef struct rows {
    const float *x;
    int64_t stride, ahead;
    int n;
} rows_t;

/* A strip of extremes stays in registers meanwhile. */
OP void widen_strip(side_t side, int vectors, const rows_t *rows, int first, int32_t *to)
{
    const float *x = rows->x + first;
    const int64_t stride = rows->stride, ahead = rows->ahead;
    const int n = rows->n;
    vi most[STRIP];
    UNROLL
    for (int v = 0; v < vectors; v++) {
        most[v] = vi_load(to + v * LANES);
    }
    for (int r = 0; r < n; r++, x += stride) {
        UNROLL
        for (int v = 0; v < vectors; v++) {
            if (v * LANES % LINE_FLOATS == 0) {
                __builtin_prefetch(x + v * LANES + ahead);
            }
            most[v] = vi_max(most[v], side_of(side, vi_of(vf_load(x + v * LANES))));
        }
    }
    UNROLL
    for (int v = 0; v < vectors; v++) {
        vi_store(to + v * LANES, most[v]);
    }
}
OP void widen_strips(side_t side, const rows_t *rows, int n, int32_t *to)
{
    int i = 0;
    for (; i + STRIP * LANES <= n; i += STRIP * LANES) {
        widen_strip(side, STRIP, rows, i, to + i);
    }
    for (; i + LANES <= n; i += LANES) {
        widen_strip(side, 1, rows, i, to + i);
    }
    for (int r = 0; i < n && r < rows->n; r++) {
        widen_columns(side, rows->x + r * rows->stride + i, n - i, to + i);
    }
}

OP void widen_sides(sinter_data_type_t type, const void *x, int size, int n, int32_t *top,
                    int32_t *bottom)
{
    if (bottom == NULL) {
        widen_groups(type, MAGNITUDE, x, size, n, top);
    } else {
        widen_groups(type, TOP, x, size, n, top);
        widen_groups(type, BOTTOM, x, size, n, bottom);
    }
}
TARGET static void widen(const float *x, int size, int n_groups, int32_t *top, int32_t *bottom)
{
    if (size > 1) {
        widen_sides(sinter_f32, x, size, n_groups, top, bottom);
    } else if (bottom == NULL) {
        widen_columns(MAGNITUDE, x, n_groups, top);
    } else {
        widen_columns(TOP, x, n_groups, top);
        widen_columns(BOTTOM, x, n_groups, bottom);
    }
}

/* Of groups without a 0. */
TARGET static void widen_open(const float *x, int size, int n_groups, int32_t *top, int32_t *bottom)
{
    if (size == 1) {
        widen_columns(OPEN_TOP, x, n_groups, top);
        widen_columns(OPEN_BOTTOM, x, n_groups, bottom);
    } else {
        widen_groups_of(sinter_f32, OPEN_TOP, x, size, n_groups, top);
        widen_groups_of(sinter_f32, OPEN_BOTTOM, x, size, n_groups, bottom);
    }
}

/* Few rows at a time, which a first-level cache holds though they lie at equal distances. */
TARGET static void widen_rows(const float *x, int64_t stride, int64_t rows, int n, int64_t ahead,
                              int32_t *top, int32_t *bottom)
{
    for (int64_t r = 0; r < rows; r += STRIP_ROWS, x += STRIP_ROWS * stride) {
        const int k = rows - r < STRIP_ROWS ? (int)(rows - r) : STRIP_ROWS;
        const rows_t some = {x, stride, ahead, k};
        if (bottom == NULL) {
            widen_strips(MAGNITUDE, &some, n, top);
        } else {
            widen_strips(TOP, &some, n, top);
            widen_strips(BOTTOM, &some, n, bottom);
        }
    }
}

#ifdef LOADS_16
TARGET static void widen_f16(const uint16_t *x, int size, int n, int32_t *top, int32_t *bottom)
{
    widen_sides(sinter_f16, x, size, n, top, bottom);
}
TARGET static void widen_bf16(const uint16_t *x, int size, int n, int32_t *top, int32_t *bottom)
{
    widen_sides(sinter_bf16, x, size, n, top, bottom);
}
#else
#define widen_f16 NULL
#define widen_bf16 NULL
#endif

TARGET static void merge(int32_t *a, const int32_t *b, int n)
{
    for (int i = 0; i < n; i++) {
        a[i] = b[i] > a[i] ? b[i] : a[i];
    }
}

TARGET static void halve(int32_t *a, int n)
{
    NO_DEPENDENCE /* what is read lies ahead of what is written */
        for (int i = 0; i < n; i++)
    {
        a[i] = a[2 * i + 1] > a[2 * i] ? a[2 * i + 1] : a[2 * i];
    }
}

/* ---- scales ---------------------------------------------------------------------------------- */

/* The first n lanes, at most all. Whole vectors are loaded and stored without a mask. */
OP vu load_some(const void *p, int n)
{
    return (vu)(n < LANES ? vf_load_n(p, n) : vf_load(p));
}
OP void store_some(void *p, vu x, int n)
{
    if (n < LANES) {
        vf_store_n(p, (vf)x, n);
    } else {
        vf_store(p, (vf)x);
    }
}

/* The kind is known where this is compiled. Groups that hold a NaN or an infinity are marked, and
 * their extremes become 0. */
OP void scales_of_kind(quant_kind_t kind, const quant_formula_t *formula, int n, int32_t *top,
                       int32_t *bottom, float *scale, int32_t *special)
{
    const vu zero = vu_set1(0);
    quant_formula_t f = *formula;
    f.kind = kind;
    for (int i = 0; i < n; i += LANES) {
        const int k = n - i;
        vu t = load_some(top + i, k), b = bottom != NULL ? load_some(bottom + i, k) : zero;
        const bool open = f.zps != ZPS_INTEGERS;
        const vm infinite =
            open ? vu_gt((vu)vi_max((vi)t, (vi)b), vu_set1(0x7F7FFFFF)) : beyond_numbers(t, b);
        const vm empty = vu_eq(t, vu_set1(INT32_MIN)); /* of open extremes: no number was met */
        t = open ? vu_select(empty, zero, ordered_bits(t)) : t;
        b = open ? vu_select(empty, zero, ordered_bits(b)) : b;
        t = vu_select(infinite, zero, t);
        b = vu_select(infinite, zero, b);
        store_some(top + i, t, k);
        if (bottom != NULL) {
            store_some(bottom + i, b, k);
        }
        store_some(special + i, vu_select(infinite, vu_set1(1), zero), k);
        store_some(scale + i, (vu)scales_of(&f, t, b), k);
    }
}

TARGET static void scales(const quant_formula_t *f, int n, int32_t *top, int32_t *bottom,
                          float *scale, int32_t *special)
{
    switch (f->kind) {
    case QUANT_DYNAMIC_MX:
        scales_of_kind(QUANT_DYNAMIC_MX, f, n, top, bottom, scale, special);
        break;
    case QUANT_DYNAMIC_MX_RCEIL:
        scales_of_kind(QUANT_DYNAMIC_MX_RCEIL, f, n, top, bottom, scale, special);
        break;
    case QUANT_DYNAMIC_ASYMMETRIC:
        scales_of_kind(QUANT_DYNAMIC_ASYMMETRIC, f, n, top, bottom, scale, special);
        break;
    case QUANT_DYNAMIC_NV:
        scales_of_kind(QUANT_DYNAMIC_NV, f, n, top, bottom, scale, special);
        break;
    case QUANT_DYNAMIC_SIGNED:
        scales_of_kind(QUANT_DYNAMIC_SIGNED, f, n, top, bottom, scale, special);
        break;
    case QUANT_DYNAMIC_IQ4_NL:
        scales_of_kind(QUANT_DYNAMIC_IQ4_NL, f, n, top, bottom, scale, special);
        break;
    case QUANT_DYNAMIC_SYMMETRIC:
    case QUANT_STATIC: /* whose scales are not made here */
        scales_of_kind(QUANT_DYNAMIC_SYMMETRIC, f, n, top, bottom, scale, special);
        break;
    }
}

TARGET static int factors(const quant_formula_t *f, int n, float *restrict scale,
                          float *restrict by, int32_t *restrict special)
{
    const bool powers = quant_by_powers(f->kind);
    const float t = f->tensor_scale;
    int32_t any = 0;
    for (int i = 0; i < n; i++) {
        scale[i] = scale[i] == 0 ? 1 : scale[i];
        by[i] = powers ? 1 / scale[i] : scale[i] * t;
        special[i] |= scale[i] != scale[i];
        any |= special[i];
    }
    return any;
}

TARGET static void zero_points(const quant_formula_t *f, int n, const int32_t *bottom,
                               const float *scale, float *zp)
{
    for (int i = 0; i < n; i += LANES) {
        const vf b = (vf)load_some(bottom + i, n - i), s = (vf)load_some(scale + i, n - i);
        const vf x = f->zps == ZPS_INTEGERS ? zero_points_of(f, b / s) : float_zps_of(f, b, s);
        store_some(zp + i, (vu)x, n - i);
    }
}

/* ---- elements -------------------------------------------------------------------------------- */

/* n elements. each: every element has a factor or a zero point of its own; otherwise *by or *zp is
 * for all. */
OP void segment(dtype_way_t how, const float *x, int n, const float *by, const float *zp,
                bool by_each, bool zp_each, float *to)
{
    const vf b0 = vf_set1(*by), z0 = vf_set1(*zp);
    int i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf_store(to + i, rescaled(how, vf_load(x + i), by_each ? vf_load(by + i) : b0,
                                  zp_each ? vf_load(zp + i) : z0));
    }
    if (i < n) {
        const vf b = by_each ? vf_load_n(by + i, n - i) : b0,
                 z = zp_each ? vf_load_n(zp + i, n - i) : z0;
        vf_store_n(to + i, rescaled(how, vf_load_n(x + i, n - i), b, z), n - i);
    }
}

/* Groups of `size` elements; zp_each: every group has a zero point of its own. */
OP void quantise_rows(dtype_way_t how, const float *x, int size, int n, const float *by,
                      const float *zp, float *q)
{
    const bool zp_each = how == DTYPE_SHIFTED || how == DTYPE_ADDED || how == DTYPE_LESS;
    if (size == 1) {
        segment(how, x, n, by, zp, true, zp_each, q);
        return;
    }
    for (int g = 0; g < n; g++, x += size, q += size) {
        segment(how, x, size, by + g, zp_each ? zp + g : zp, false, false, q);
    }
}

TARGET static void quantise(const quant_formula_t *f, const float *x, int size, int n_groups,
                            const float *by, const float *zp, float *q)
{
    const float least = -f->elem_max;
    const int count = size * n_groups;
    if (zp != NULL && f->zps == ZPS_FLOATS) {
        quantise_rows(DTYPE_ADDED, x, size, n_groups, by, zp, q);
    } else if (zp != NULL && f->zps == ZPS_OFFSETS) {
        quantise_rows(DTYPE_LESS, x, size, n_groups, by, zp, q);
    } else if (zp != NULL) {
        quantise_rows(DTYPE_SHIFTED, x, size, n_groups, by, zp, q);
    } else if (quant_by_powers(f->kind) && f->elem_min < least) {
        quantise_rows(DTYPE_BOUNDED, x, size, n_groups, by, &least, q);
    } else if (quant_by_powers(f->kind)) {
        quantise_rows(DTYPE_MULTIPLIED, x, size, n_groups, by, by, q);
    } else {
        quantise_rows(DTYPE_DIVIDED, x, size, n_groups, by, by, q);
    }
    const vf lowest = vf_set1(f->elem_min), highest = vf_set1(f->elem_max);
    for (int i = 0; f->clamps && i < count; i += LANES) {
        const vf y = vf_min(highest, vf_max(lowest, (vf)load_some(q + i, count - i)));
        store_some(q + i, (vu)y, count - i);
    }
}

/* The number of IQ4_NL next to each, of two the larger one. */
OP vf nearest_number(vf x)
{
    static const float number[] = QUANT_IQ4_NL_NUMBERS;
    const vu at = ordered_bits((vu)x);
    vf q = vf_set1(number[0]);
    UNROLL
    for (int i = 1; i < 16; i++) {
        const vu between = ordered_bits((vu)vf_set1((number[i - 1] + number[i]) / 2));
        q = (vf)vu_select(vu_gt(between, at), (vu)q, (vu)vf_set1(number[i]));
    }
    return q;
}

/* Groups of one element. */
OP void single_numbers(const float *x, int n, const float *by, float *q, float *num, float *den)
{
    for (int i = 0; i < n; i += LANES) {
        const int k = n - i;
        const vf t = (vf)load_some(x + i, k) / (vf)load_some(by + i, k), code = nearest_number(t),
                 w = t * code;
        store_some(q + i, (vu)code, k);
        store_some(num + i, (vu)((vf)load_some(num + i, k) + w * t * t), k);
        store_some(den + i, (vu)((vf)load_some(den + i, k) + w * w), k);
    }
}

/* In a tree that is the same for all numbers of lanes. */
static inline float sum_of_16(const float *x)
{
    float half[8];
    for (int i = 0; i < 8; i++) {
        half[i] = x[i] + x[i + 8];
    }
    return ((half[0] + half[4]) + (half[2] + half[6])) +
           ((half[1] + half[5]) + (half[3] + half[7]));
}

/* One group. */
OP void group_numbers(const float *x, int size, float by, float *q, float *num, float *den)
{
    enum { VECTORS_OF_16 = 16 / LANES };
    vf above[VECTORS_OF_16], below[VECTORS_OF_16];
    float sums[2][16];
    for (int v = 0; v < VECTORS_OF_16; v++) {
        above[v] = below[v] = vf_set1(0);
    }
    for (int i = 0; i < size; i += 16) {
        UNROLL
        for (int v = 0; v < VECTORS_OF_16; v++) {
            const int at = i + v * LANES, k = size - at;
            if (k > 0) { /* lanes without an element add 0 */
                const vf t = (vf)load_some(x + at, k) / vf_set1(by), code = nearest_number(t),
                         w = t * code;
                store_some(q + at, (vu)code, k);
                above[v] += w * t * t;
                below[v] += w * w;
            }
        }
    }
    for (int v = 0; v < VECTORS_OF_16; v++) {
        vf_store(sums[0] + v * LANES, above[v]);
        vf_store(sums[1] + v * LANES, below[v]);
    }
    *num += sum_of_16(sums[0]);
    *den += sum_of_16(sums[1]);
}

TARGET static void numbers(const float *x, int size, int n_groups, const float *by, float *q,
                           float *num, float *den)
{
    if (size == 1) {
        single_numbers(x, n_groups, by, q, num, den);
        return;
    }
    for (int g = 0; g < n_groups; g++, x += size, q += size) {
        group_numbers(x, size, by[g], q, num + g, den + g);
    }
}

#include "numeric/quant_runs.h"

TARGET static void stream(unsigned char *to, const unsigned char *from, size_t bytes)
{
    size_t head = -(uintptr_t)to % CACHE_LINE;
    head = head < bytes ? head : bytes;
    memcpy(to, from, head);
    for (to += head, from += head, bytes -= head; bytes >= CACHE_LINE;
         to += CACHE_LINE, from += CACHE_LINE, bytes -= CACHE_LINE) {
        stream_line(to, from);
    }
    memcpy(to, from, bytes);
}

TARGET static void end_stream(void)
{
    stream_end();
}

OP void zps_of_some(vf *scale, vf *offset)
{
    const vu magnitude = vu_set1(0x7FFFFFFF), zero = vu_set1(0);
    const vf s = *scale, o = *offset;
    const vu far_from = (vu)(s * vf_set1(0x1p40f)) & magnitude, size = (vu)o & magnitude;
    const vm far = vu_gt(size, far_from);
    const vu zp = vu_select(far, (vu)vf_set1(-0x1p40f), (vu)(-o / s));
    *scale = (vf)vu_select(far, (vu)(o * vf_set1(0x1p-40f)), (vu)s);
    *offset = (vf)vu_select(vu_eq(size, zero), zero, zp);
}

/* Stores under a mask take long on some CPUs, so that only the end has them. */
TARGET static void zps_of_offsets(float *scale, float *offset, int64_t n)
{
    int64_t i = 0;
    for (; i + LANES <= n; i += LANES) {
        vf s = vf_load(scale + i), o = vf_load(offset + i);
        zps_of_some(&s, &o);
        vf_store(scale + i, s);
        vf_store(offset + i, o);
    }
    if (i < n) {
        vf s = vf_load_n(scale + i, n - i), o = vf_load_n(offset + i, n - i);
        zps_of_some(&s, &o);
        vf_store_n(scale + i, s, n - i);
        vf_store_n(offset + i, o, n - i);
    }
}

const quant_rows_t QUANT_ROWS = {widen,          widen_open, widen_rows,  widen_f16, widen_bf16,
                                 merge,          halve,      scales,      factors,   zero_points,
                                 quantise,       numbers,    dequant_run, quant_run, offset_run,
                                 zps_of_offsets, spread,     stream,      end_stream};

#endif
