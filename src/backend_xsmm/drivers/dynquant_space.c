/* How a DynamicQuantize step is cut: axes of groups and of elements of a group, merged where
 * tensors are dense; columns; units; items. */
#include "backend_xsmm/drivers/dynquant.h"

#include <string.h>

#include "base/status.h"

enum {
    LINE_COLUMNS = 128, /* as many columns fill whole cache lines of any type */
    SLAB_BYTES =
        512 << 10, /* of a unit of many rows, which is walked twice while the next one is fetched */
    TALL_BYTES = 4 << 20,   /* of one that only the last-level cache can hold for a thread */
    MAX_SLAB_COLUMNS = 512, /* of which first-level caches hold several numbers each */
    MIN_SLAB =
        8
        /* elements of a unit, where what all of it waits for, its scales, takes as long as some
         * thousand of them */
        << 10,
    MIN_SLAB_COLUMNS = 128,     /* shorter runs of memory are read too slowly */
    MIN_SHARED_UNIT = 32 << 10, /* elements of a unit that are worth a second barrier */
    STREAM_BYTES =
        32 << 20, /* input and output together beyond which nothing stays in the caches */
};

/* ---- axes ------------------------------------------------------------------------------------ */

typedef struct axes {
    quant_axis_t a[SINTER_MAX_NDIMS + 1];
    int n;
} axes_t;

static bool follows(const quant_axis_t *outer, const quant_axis_t *inner)
{
    return outer->in == inner->n * inner->in && outer->out == inner->n * inner->out &&
           outer->scale == inner->n * inner->scale && outer->zp == inner->n * inner->zp &&
           outer->high == inner->n * inner->high;
}

/* By descending input stride, so that neighbours in memory are neighbours; one axis where two
 * are one run. */
static void add_axis(axes_t *to, quant_axis_t axis)
{
    int at = to->n++;
    for (; at > 0 && to->a[at - 1].in < axis.in; at--) {
        to->a[at] = to->a[at - 1];
    }
    to->a[at] = axis;
}

static void merge_axes(axes_t *axes)
{
    int n = 0;
    for (int i = 0; i < axes->n; i++) {
        if (n > 0 && axes->a[i].n > 0 && follows(&axes->a[n - 1], &axes->a[i])) {
            axes->a[i].n *= axes->a[n - 1].n;
            n--;
        }
        axes->a[n++] = axes->a[i];
    }
    axes->n = n;
}

static quant_axis_t take_axis(axes_t *axes, int at)
{
    const quant_axis_t axis = axes->a[at];
    axes->n--;
    memmove(&axes->a[at], &axes->a[at + 1], (size_t)(axes->n - at) * sizeof axis);
    return axis;
}

static sinter_status_t bind_axes(const dynquant_params_t *p, const quant_space_t *s, axes_t *inner,
                                 axes_t *outer)
{
    inner->n = outer->n = 0;
    for (int d = 0; d < s->in.ndims; d++) {
        const int c = p->out.scale_dim[d], z = p->out.zp_dim[d];
        const int64_t dim = s->in.dims[d], groups = c < 0 ? 1 : s->scale.dims[c];
        if (groups < 1 ? dim > 0 : dim % groups != 0) {
            return sg_fail(sinter_invalid_shape,
                           "dim %d of %lld elements does not divide into %lld groups", d,
                           (long long)dim, (long long)groups);
        }
        if (s->has_zp && (z < 0 ? 1 : s->zp.dims[z]) != groups) {
            return sg_fail(sinter_invalid_shape,
                           "zero points have other groups than the scales along dim %d", d);
        }
        const int64_t size = groups < 1 ? 0 : dim / groups, in = s->in.strides[d],
                      out = s->out.strides[d];
        const int64_t high = s->split ? s->high.strides[d] : 0;
        if (groups != 1) {
            add_axis(outer,
                     (quant_axis_t){groups, size * in, size * out, c < 0 ? 0 : s->scale.strides[c],
                                    s->has_zp && z >= 0 ? s->zp.strides[z] : 0, size * high});
        }
        if (size != 1) {
            add_axis(inner, (quant_axis_t){size, in, out, 0, 0, high});
        }
    }
    merge_axes(inner);
    merge_axes(outer);
    return sinter_success;
}

/* ---- columns --------------------------------------------------------------------------------- */

static int next_to(const axes_t *outer, const quant_axis_t *column)
{
    for (int i = 0; i < outer->n; i++) {
        if (outer->a[i].in == column->n * column->in &&
            outer->a[i].out == column->n * column->out &&
            outer->a[i].high == column->n * column->high) {
            return i;
        }
    }
    return -1;
}

/* How good a row along this axis would be: long, in consecutive elements of both tensors. */
static int64_t merit(const quant_axis_t *axis, int64_t n)
{
    const int64_t enough = n < MIN_SLAB_COLUMNS ? n : MIN_SLAB_COLUMNS;
    return enough * (axis->in == 1 ? 4 : 1) * (axis->out == 1 ? 2 : 1);
}

static void choose_columns(quant_space_t *s, axes_t *inner, axes_t *outer)
{
    int best_inner = -1, best_outer = -1;
    int64_t best = 0;
    for (int i = 0; i < inner->n; i++) {
        const int next = next_to(outer, &inner->a[i]);
        const int64_t m = merit(&inner->a[i], inner->a[i].n * (next < 0 ? 1 : outer->a[next].n));
        if (m > best) {
            best = m, best_inner = i, best_outer = next;
        }
    }
    for (int i = 0; i < outer->n; i++) {
        if (merit(&outer->a[i], outer->a[i].n) > best) {
            best = merit(&outer->a[i], outer->a[i].n), best_inner = -1, best_outer = i;
        }
    }
    s->column = (quant_axis_t){.n = 1, .in = 1, .out = 1, .high = 1};
    s->group = (quant_axis_t){.n = 1};
    if (best_outer >= 0) {
        s->group = take_axis(outer, best_outer);
        s->column.in = s->group.in, s->column.out = s->group.out, s->column.high = s->group.high;
    }
    if (best_inner >= 0) {
        s->column = take_axis(inner, best_inner);
    }
}

/* ---- units ----------------------------------------------------------------------------------- */

/* Are there so many rows that even the fewest columns outgrow a cache? */
static bool outgrows(const quant_space_t *s, int64_t bytes)
{
    const int64_t columns = s->group.n * s->column.n,
                  least = columns < MIN_SLAB_COLUMNS ? columns : MIN_SLAB_COLUMNS;
    return s->rows > bytes / (int64_t)sizeof(float) / (least > 0 ? least : 1);
}

/* Columns of a unit: what stays in a cache of so many bytes, in whole cache lines if groups
 * allow it; many if memory is read twice anyway (0 bytes). */
static void choose_tile(quant_space_t *s, int64_t bytes)
{
    const int64_t size = s->column.n,
                  line = size / common_divisor(size, LINE_COLUMNS) * LINE_COLUMNS;
    int64_t columns = QUANT_COLUMNS;
    if (bytes > 0 && (s->rows > 1 || size < LINE_COLUMNS / 8)) {
        const int64_t rows = s->rows > 0 ? s->rows : 1, fit = bytes / (int64_t)sizeof(float) / rows;
        const int64_t most =
            MIN_SLAB / rows > MAX_SLAB_COLUMNS ? MIN_SLAB / rows : MAX_SLAB_COLUMNS;
        columns = fit < MIN_SLAB_COLUMNS ? MIN_SLAB_COLUMNS : fit < most ? fit : most;
        columns = columns < QUANT_COLUMNS ? columns : QUANT_COLUMNS;
    }
    columns = line <= columns ? columns / line * line : columns;
    s->pieces = (size + QUANT_COLUMNS - 1) / QUANT_COLUMNS;
    s->tile = columns / size;
    s->tile = s->tile < 1 ? 1 : s->tile > s->group.n ? s->group.n : s->tile;
}

static void place_rows(quant_space_t *s, const axes_t *inner)
{
    s->n_row = inner->n;
    memcpy(s->row, inner->a, (size_t)inner->n * sizeof *inner->a);
    s->rows = 1;
    for (int a = 0; a < s->n_row; a++) {
        s->row_n[a] = s->row[a].n;
        s->rows *= s->row[a].n;
    }
}

static void place_units(quant_space_t *s, const axes_t *outer, int64_t bytes)
{
    s->n_unit = outer->n + 1;
    memcpy(s->unit, outer->a, (size_t)outer->n * sizeof *outer->a);
    choose_tile(s, bytes);
    s->unit[outer->n] = (quant_axis_t){s->group.n > 0 ? (s->group.n + s->tile - 1) / s->tile : 0,
                                       s->tile * s->group.in,
                                       s->tile * s->group.out,
                                       s->tile * s->group.scale,
                                       s->tile * s->group.zp,
                                       s->tile * s->group.high};
}

/* ---- items ----------------------------------------------------------------------------------- */

typedef struct span {
    int64_t n, stride;
    int unit; /* axis of units, -1: within a unit */
} span_t;

static void add_span(span_t *spans, int *n, int64_t extent, int64_t stride, int unit)
{
    int at = extent > 1 ? (*n)++ : -1;
    for (; at > 0 && spans[at - 1].stride < stride; at--) {
        spans[at] = spans[at - 1];
    }
    if (at >= 0) {
        spans[at] = (span_t){extent, stride, unit};
    }
}

/* Unit axes are cut from the largest stride down while what lies inside one step fills whole
 * blocks; the first one that does not is cut at multiples that do, and nothing inside it is.
 * least[a]: units that must stay together along axis a. */
static void keep_blocks(const span_t *spans, int n, int64_t block, const quant_space_t *s,
                        int64_t *least)
{
    bool cut = true;
    for (int i = 0; i < n; i++) {
        int64_t inside = 1;
        for (int k = i + 1; k < n; k++) {
            inside += (spans[k].n - 1) * spans[k].stride;
        }
        const int64_t together = spans[i].stride >= inside
                                     ? block / common_divisor(block, spans[i].stride % block)
                                     : spans[i].n;
        if (spans[i].unit >= 0) {
            const int64_t have = least[spans[i].unit],
                          want = cut ? together : s->unit[spans[i].unit].n;
            least[spans[i].unit] = have > want ? have : want; /* powers of two, or everything */
        }
        cut = cut && spans[i].stride >= inside && together == 1;
    }
}

static int64_t code_stride(const quant_axis_t *axis, bool high)
{
    return high ? axis->high : axis->out;
}

/* Cuts for the codes, or for the high plane of split ones; whether rows and units all begin with
 * a block, whose elements are neighbours. */
static bool cut_codes(quant_space_t *s, bool high)
{
    span_t spans[2 * SINTER_MAX_NDIMS + 2];
    const int64_t block = dtype_traits(high ? s->high.dtype : s->out.dtype)->block_elems;
    bool whole = block == 1 || code_stride(&s->column, high) == 1;
    int n = 0;
    for (int a = 0; a < s->n_unit; a++) {
        const int64_t stride = code_stride(&s->unit[a], high);
        add_span(spans, &n, s->unit[a].n, stride, a);
        whole = whole && (s->unit[a].n == 1 || stride % block == 0);
    }
    for (int a = 0; a < s->n_row; a++) {
        const int64_t stride = code_stride(&s->row[a], high);
        add_span(spans, &n, s->row[a].n, stride, -1);
        whole = whole && stride % block == 0;
    }
    add_span(spans, &n, s->tile * s->column.n, code_stride(&s->column, high), -1);
    if (block > 1) {
        keep_blocks(spans, n, block, s, s->item);
    }
    return whole;
}

/* False: threads cannot share pieces of units. */
static bool choose_items(quant_space_t *s, int threads)
{
    span_t spans[2 * SINTER_MAX_NDIMS + 2];
    for (int a = 0; a < s->n_unit; a++) {
        s->item[a] = 1;
    }
    bool whole = cut_codes(s, false);
    whole = (!s->split || cut_codes(s, true)) && whole;
    if (s->has_zp && dtype_is_packed(s->zp.dtype)) {
        int n = 0;
        for (int a = 0; a < s->n_unit; a++) {
            add_span(spans, &n, s->unit[a].n, s->unit[a].zp, a);
        }
        add_span(spans, &n, s->tile, s->group.zp, -1);
        keep_blocks(spans, n, dtype_traits(s->zp.dtype)->block_elems, s, s->item);
    }
    s->n_items = 1;
    for (int a = 0; a < s->n_unit; a++) {
        s->n_items *= (s->unit[a].n + s->item[a] - 1) / s->item[a];
    }
    s->by_pieces = threads > 1 && whole && s->n_items < 4 * (int64_t)threads &&
                   s->rows * s->tile * s->column.n >= MIN_SHARED_UNIT &&
                   s->rows * s->pieces >= threads;
    return whole;
}

/* Units of the second-level cache, else of the last-level one, else all threads read memory
 * twice, in long rows, where they can share units. */
static void place_in_cache(quant_space_t *s, const axes_t *outer, int threads)
{
    s->tall = outgrows(s, 2 * SLAB_BYTES);
    const bool twice = outgrows(s, TALL_BYTES);
    const int64_t bytes = s->tall ? TALL_BYTES : SLAB_BYTES;
    place_units(s, outer, twice ? 0 : bytes);
    const bool whole = choose_items(s, threads);
    if (whole && s->tall && (twice || s->by_pieces)) {
        place_units(s, outer, 0);
        choose_items(s, threads);
        s->by_pieces = true;
    } else if (twice) {
        place_units(s, outer, bytes);
        choose_items(s, threads);
    }
}

/* ---------------------------------------------------------------------------------------------- */

sinter_status_t quant_space_bind(const dynquant_params_t *p, const frame_t *frame,
                                 quant_space_t *out)
{
    axes_t inner, outer;
    int64_t elements = 1;
    memset(out, 0, sizeof *out);
    out->in = frame->v[p->in];
    out->out = frame->v[p->out.data];
    out->scale = frame->v[p->out.scale];
    out->has_zp = p->out.zp >= 0;
    if (out->has_zp) {
        out->zp = frame->v[p->out.zp];
    }
    out->split = p->out.split != sinter_data_type_undef;
    if (out->split) {
        out->high = frame->v[p->out.high];
    }
    SG_TRY(bind_axes(p, out, &inner, &outer));
    choose_columns(out, &inner, &outer);
    place_rows(out, &inner);
    place_in_cache(out, &outer, frame->threads);
    for (int d = 0; d < out->in.ndims; d++) {
        elements *= out->in.dims[d];
    }
    out->stream =
        !out->split &&
        elements / 8 * (dtype_traits(out->in.dtype)->bits + dtype_traits(out->out.dtype)->bits) >=
            STREAM_BYTES;
    return sinter_success;
}
