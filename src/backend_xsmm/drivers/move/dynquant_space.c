/* How a DynamicQuantize step is cut: axes of groups and of elements of a group, merged where
 * tensors are dense; columns; slabs; items. */
#include "backend_xsmm/drivers/move/dynquant.h"

#include <string.h>

enum {
    LINE_COLUMNS = 128, /* this many columns fill whole cache lines of any type */
    /* Of a slab of many rows, which is walked twice while the next one is fetched. */
    SLAB_BYTES = 512 << 10,
    TALL_BYTES = 4 << 20,   /* of one that only the last-level cache can hold for a thread */
    MAX_SLAB_COLUMNS = 512, /* first-level caches hold several numbers for each of these */
    /* Minimum elements per slab: making its scales costs as much as encoding about a thousand
     * elements. */
    MIN_SLAB = 8 << 10,
    MIN_SLAB_COLUMNS = 128,     /* shorter runs of memory are read too slowly */
    MIN_SHARED_SLAB = 32 << 10, /* elements of a slab that are worth a second barrier */
    /* Input and output together; beyond this nothing stays in the caches. */
    STREAM_BYTES = 32 << 20,
};

/* ---- axes ------------------------------------------------------------------------------------ */

typedef struct axes {
    quant_span_t a[SINTER_MAX_NDIMS + 1];
    int n;
} axes_t;

/* Whether a step along `outer` is n steps along `inner`, in the input and in parts first..last - 1
 * of the output. */
static bool follows(const quant_span_t *outer, const quant_span_t *inner, int first, int last)
{
    bool same = outer->in == inner->n * inner->in;
    for (int part = first; part < last; part++) {
        same = same && outer->to[part] == inner->n * inner->to[part];
    }
    return same;
}

/* By descending input stride, so that neighbours in memory are neighbours; one axis where two
 * are one run. */
static void add_axis(axes_t *to, quant_span_t axis)
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
        if (n > 0 && axes->a[i].n > 0 && follows(&axes->a[n - 1], &axes->a[i], 0, MATRIX_PARTS)) {
            axes->a[i].n *= axes->a[n - 1].n;
            n--;
        }
        axes->a[n++] = axes->a[i];
    }
    axes->n = n;
}

static quant_span_t take_axis(axes_t *axes, int at)
{
    const quant_span_t axis = axes->a[at];
    axes->n--;
    memmove(&axes->a[at], &axes->a[at + 1], (size_t)(axes->n - at) * sizeof axis);
    return axis;
}

/* groups: how many there are along each dim. A group has elements along its `inner` axes. */
static void bind_axes(const bound_t *in, const matrices_t *out, const int64_t *groups,
                      axes_t *inner, axes_t *outer)
{
    inner->n = outer->n = 0;
    for (int d = 0; d < in->ndims; d++) {
        const int64_t size = groups[d] < 1 ? 0 : in->dims[d] / groups[d];
        quant_span_t element = {.n = size, .in = in->strides[d]},
                     group = {.n = groups[d], .in = size * in->strides[d]};
        for (int part = 0; part < MATRIX_PARTS; part++) {
            const bool of_groups = part == IN_SCALE || part == IN_ZP;
            const int64_t stride = out->axis[d][part].stride;
            element.to[part] = of_groups ? 0 : stride;
            group.to[part] = of_groups ? stride : size * stride;
        }
        if (groups[d] != 1) {
            add_axis(outer, group);
        }
        if (size != 1) {
            add_axis(inner, element);
        }
    }
    merge_axes(inner);
    merge_axes(outer);
}

/* ---- columns --------------------------------------------------------------------------------- */

/* The axis along which groups lie side by side, -1 if there is none. */
static int next_to(const axes_t *outer, const quant_span_t *column)
{
    for (int i = 0; i < outer->n; i++) {
        if (follows(&outer->a[i], column, IN_CODES, IN_HIGH + 1)) {
            return i;
        }
    }
    return -1;
}

/* How good a row along this axis would be: long, in consecutive elements of both tensors. */
static int64_t merit(const quant_span_t *axis, int64_t n)
{
    const int64_t enough = n < MIN_SLAB_COLUMNS ? n : MIN_SLAB_COLUMNS;
    return enough * (axis->in == 1 ? 4 : 1) * (axis->to[IN_CODES] == 1 ? 2 : 1);
}

static void choose_columns(quant_space_t *s, axes_t *inner, axes_t *outer)
{
    int best_inner = -1, best_outer = -1;
    int64_t best = 0;
    for (int i = 0; i < inner->n; i++) {
        const int next = next_to(outer, &inner->a[i]);
        const int64_t m = merit(&inner->a[i], inner->a[i].n * (next < 0 ? 1 : outer->a[next].n));
        if (m > best) {
            best = m;
            best_inner = i;
            best_outer = next;
        }
    }
    for (int i = 0; i < outer->n; i++) {
        if (merit(&outer->a[i], outer->a[i].n) > best) {
            best = merit(&outer->a[i], outer->a[i].n);
            best_inner = -1;
            best_outer = i;
        }
    }
    s->column = (quant_span_t){.n = 1, .in = 1, .to[IN_CODES] = 1, .to[IN_HIGH] = 1};
    s->group = (quant_span_t){.n = 1};
    if (best_outer >= 0) {
        s->group = take_axis(outer, best_outer);
        s->column.in = s->group.in;
        s->column.to[IN_CODES] = s->group.to[IN_CODES];
        s->column.to[IN_HIGH] = s->group.to[IN_HIGH];
    }
    if (best_inner >= 0) {
        s->column = take_axis(inner, best_inner);
    }
}

/* ---- slabs ----------------------------------------------------------------------------------- */

/* True if the rows are too many for a cache even with the fewest columns. */
static bool outgrows(const quant_space_t *s, int64_t bytes)
{
    const int64_t columns = s->group.n * s->column.n,
                  least = columns < MIN_SLAB_COLUMNS ? columns : MIN_SLAB_COLUMNS;
    return s->rows > bytes / (int64_t)sizeof(float) / (least > 0 ? least : 1);
}

/* Columns of a slab: as many as stay in a cache of these bytes, in whole cache lines if groups
 * allow it. bytes 0: memory is read twice anyway, and many columns are best. */
static void choose_groups_per_row(quant_space_t *s, int64_t bytes)
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
    const int64_t groups = columns / size < 1 ? 1 : columns / size;
    s->groups_per_row = groups < s->group.n ? groups : s->group.n;
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

static void place_slabs(quant_space_t *s, const axes_t *outer, int64_t bytes)
{
    quant_span_t *along = &s->slab[outer->n];
    s->n_slab = outer->n + 1;
    memcpy(s->slab, outer->a, (size_t)outer->n * sizeof *outer->a);
    choose_groups_per_row(s, bytes);
    *along = (quant_span_t){0};
    span_move(along, &s->group, s->groups_per_row);
    along->n = s->group.n > 0 ? (s->group.n + s->groups_per_row - 1) / s->groups_per_row : 0;
    for (int a = 0; a < s->n_slab; a++) {
        s->slab_n[a] = s->slab[a].n;
    }
}

/* ---- items ----------------------------------------------------------------------------------- */

/* An axis of one output. */
typedef struct extent {
    int64_t n, stride;
    int slab; /* the axis of slabs; -1: within a slab */
} extent_t;

static void add_extent(extent_t *extents, int *n, int64_t extent, int64_t stride, int slab)
{
    int at = extent > 1 ? (*n)++ : -1;
    for (; at > 0 && extents[at - 1].stride < stride; at--) {
        extents[at] = extents[at - 1];
    }
    if (at >= 0) {
        extents[at] = (extent_t){extent, stride, slab};
    }
}

/* Axes of slabs are cut from the largest stride down, as long as the elements inside one step fill
 * whole blocks. The first axis where they do not is cut at multiples that do, and no axis inside it
 * is cut. least[a]: slabs that must stay together along axis a. */
static void keep_blocks(const extent_t *extents, int n, int64_t block, const quant_space_t *s,
                        int64_t *least)
{
    bool cut = true;
    for (int i = 0; i < n; i++) {
        int64_t inside = 1;
        for (int k = i + 1; k < n; k++) {
            inside += (extents[k].n - 1) * extents[k].stride;
        }
        const int64_t together = extents[i].stride >= inside
                                     ? block / common_divisor(block, extents[i].stride % block)
                                     : extents[i].n;
        if (extents[i].slab >= 0) {
            const int64_t have = least[extents[i].slab],
                          want = cut ? together : s->slab[extents[i].slab].n;
            least[extents[i].slab] = have > want ? have : want; /* powers of two, or everything */
        }
        cut = cut && extents[i].stride >= inside && together == 1;
    }
}

/* Cuts for a part of the output with an element for each input element; whether rows and slabs all
 * begin with a block, whose elements are neighbours. */
static bool cut_codes(quant_space_t *s, const dtype_traits_t *type, int part)
{
    extent_t extents[2 * SINTER_MAX_NDIMS + 2];
    const int64_t block = type != NULL ? type->block_elems : 1;
    bool whole = block == 1 || s->column.to[part] == 1;
    int n = 0;
    for (int a = 0; a < s->n_slab; a++) {
        const int64_t stride = s->slab[a].to[part];
        add_extent(extents, &n, s->slab[a].n, stride, a);
        whole = whole && (s->slab[a].n == 1 || stride % block == 0);
    }
    for (int a = 0; a < s->n_row; a++) {
        const int64_t stride = s->row[a].to[part];
        add_extent(extents, &n, s->row[a].n, stride, -1);
        whole = whole && stride % block == 0;
    }
    add_extent(extents, &n, s->groups_per_row * s->column.n, s->column.to[part], -1);
    if (block > 1) {
        keep_blocks(extents, n, block, s, s->item);
    }
    return whole;
}

/* False: pieces of units cannot go to different shares. */
static bool choose_items(quant_space_t *s, const matrix_t *out, int shares)
{
    extent_t extents[2 * SINTER_MAX_NDIMS + 2] = {{0}};
    for (int a = 0; a < s->n_slab; a++) {
        s->item[a] = 1;
    }
    bool whole = cut_codes(s, out->codes.type, IN_CODES);
    whole = cut_codes(s, out->high.type, IN_HIGH) && whole;
    if (out->zp.type != NULL && out->zp.type->block_elems > 1) {
        int n = 0;
        for (int a = 0; a < s->n_slab; a++) {
            add_extent(extents, &n, s->slab[a].n, s->slab[a].to[IN_ZP], a);
        }
        add_extent(extents, &n, s->groups_per_row, s->group.to[IN_ZP], -1);
        keep_blocks(extents, n, out->zp.type->block_elems, s, s->item);
    }
    s->n_items = 1;
    for (int a = 0; a < s->n_slab; a++) {
        s->n_items *= (s->slab[a].n + s->item[a] - 1) / s->item[a];
    }
    s->by_pieces = shares > 1 && whole && s->n_items < 4 * (int64_t)shares &&
                   s->rows * s->groups_per_row * s->column.n >= MIN_SHARED_SLAB &&
                   s->rows * s->pieces >= shares;
    return whole;
}

/* Slabs that fit the second-level cache, else the last-level one; else all threads read memory
 * twice, in long rows, where they can share slabs. */
static void place_in_cache(quant_space_t *s, const axes_t *outer, const matrix_t *out, int shares)
{
    s->exceeds_l2 = outgrows(s, 2 * SLAB_BYTES);
    const bool twice = outgrows(s, TALL_BYTES);
    const int64_t bytes = s->exceeds_l2 ? TALL_BYTES : SLAB_BYTES;
    place_slabs(s, outer, twice ? 0 : bytes);
    const bool whole = choose_items(s, out, shares);
    if (whole && s->exceeds_l2 && (twice || s->by_pieces)) {
        place_slabs(s, outer, 0);
        choose_items(s, out, shares);
        s->by_pieces = true;
    } else if (twice) {
        place_slabs(s, outer, bytes);
        choose_items(s, out, shares);
    }
}

/* ---------------------------------------------------------------------------------------------- */

/* The last group along a dim is shorter than the others. */
static bool is_short(const matrices_t *out, int d)
{
    return out->dims[d] % out->axis[d][IN_SCALE].group != 0;
}

int quant_short_dims(const matrices_t *out)
{
    int n = 0;
    for (int d = 0; d < out->ndims; d++) {
        n += is_short(out, d);
    }
    return n;
}

void quant_box_bind(const bound_t *in, const matrices_t *out, const int64_t *groups, unsigned box,
                    quant_box_t *part)
{
    *part = (quant_box_t){.in = *in};
    memcpy(part->groups, groups, sizeof *groups * (size_t)in->ndims);
    for (int d = 0; d < in->ndims; d++) {
        const int64_t size = out->axis[d][IN_SCALE].group, whole = in->dims[d] / size;
        if (!is_short(out, d)) {
            continue;
        }
        part->groups[d] = box & 1 ? 1 : whole;
        part->in.dims[d] = box & 1 ? in->dims[d] % size : whole * size;
        if (box & 1) {
            part->begin.in += whole * size * in->strides[d];
            span_seek(&part->begin, out, d, whole * size);
        }
        box >>= 1;
    }
}

static bool part_shares_bytes(const matrices_t *out, int part, const dtype_traits_t *type)
{
    const int packed = type != NULL ? type->block_elems : 1;
    for (int d = 0; packed > 1 && d < out->ndims; d++) {
        const axis_t *axis = &out->axis[d][part];
        const int64_t size = out->axis[d][IN_SCALE].group, whole = out->dims[d] / size,
                      begin = (axis->group == 1 ? whole * size : whole) * axis->stride;
        const bool one = out->dims[d] <= (axis->group == 1 ? 1 : size);
        if ((is_short(out, d) && begin % packed != 0) ||
            (!one && axis->stride != 1 && axis->stride % packed != 0)) {
            return true;
        }
    }
    return false;
}

bool quant_boxes_share_bytes(const matrices_t *out)
{
    const matrix_t *base = &out->base;
    return part_shares_bytes(out, IN_CODES, base->codes.type) ||
           part_shares_bytes(out, IN_HIGH, base->high.type) ||
           part_shares_bytes(out, IN_ZP, base->zp.type);
}

void quant_space_bind(const bound_t *in, const matrices_t *out, const int64_t *groups, int shares,
                      quant_space_t *space)
{
    axes_t inner, outer;
    int64_t elements = 1;
    *space = (quant_space_t){.in = *in};
    bind_axes(in, out, groups, &inner, &outer);
    choose_columns(space, &inner, &outer);
    place_rows(space, &inner);
    place_in_cache(space, &outer, &out->base, shares);
    for (int d = 0; d < in->ndims; d++) {
        elements *= in->dims[d];
    }
    const int bits = dtype_traits(in->dtype)->bits + out->base.codes.type->bits;
    space->stream = out->base.high.type == NULL && elements / 8 * bits >= STREAM_BYTES;
}
