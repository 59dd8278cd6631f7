#include "backend_xsmm/drivers/quant_tail.h"

#include <math.h>
#include <string.h>

#include <sinter/sinter_graph.h>

#include "base/status.h"

/* ---- what fits ------------------------------------------------------------------------------- */

/* A block is all columns if those are few, else as many as fit `most` and are a multiple of
 * `unit`. */
static bool columns_fit(int64_t n, int64_t group, int64_t unit, int64_t most)
{
    return (n >= 0 && n <= most) || group / common_divisor(group, unit) * unit <= most;
}

static const char *refuse_block(step_kind_t kind, int64_t n, int64_t rows, int64_t cols)
{
    switch (kind) {
    case STEP_MATMUL:
        return 128 % rows != 0 ? "groups of so many rows do not divide a block of rows"
               : !columns_fit(n, cols, 64, 256) ? "groups of so many columns reach over panels"
                                                : NULL;
    case STEP_ATTENTION:
        return rows > 1 ? "rows of attention are computed in an order of their own"
               : (n >= 0 && n <= 512) || 512 % cols == 0
                   ? NULL
                   : "groups of so many columns reach over chunks of the head";
    case STEP_CHAIN:
        return rows > 64    ? "groups of so many rows"
               : cols > 256 ? "groups longer than a run of 256 elements"
                            : NULL;
    default:
        return "steps of its kind have no quantising tail";
    }
}

const char *quant_tail_refuse(step_kind_t kind, const lt_t *data, const quant_geom_t *geom)
{
    const int last = data->ndims - 1;
    int64_t size[2] = {1, 1}; /* of columns, of rows */
    if (last < 0) {
        return "the data is a scalar";
    }
    for (int d = 0; d <= last; d++) {
        const int64_t group = data->dims[d] == 1 ? 1 : geom->scale_group[d];
        if (data->dims[d] == 0) {
            return "groups of no elements have scales, too";
        }
        if (group == SINTER_UNKNOWN_DIM || group < 1) {
            return "the size of the groups is not known at compile";
        }
        if (d < last - 1 && group > 1) {
            return "groups lie across other dims than the last two";
        }
        if (d >= last - 1) {
            size[last - d] = group;
        }
    }
    return refuse_block(kind, data->dims[last], size[1], size[0]);
}

/* ---- binding --------------------------------------------------------------------------------- */

static sinter_status_t bind_groups(const dynquant_params_t *p, quant_tail_t *t)
{
    for (int d = 0; d < t->out.ndims; d++) {
        const int s = p->scale_dim[d], z = p->zp >= 0 ? p->zp_dim[d] : -1;
        const int64_t n = t->out.dims[d], groups = s < 0 ? 1 : t->scale.dims[s];
        if (groups < 1 ? n > 0 : n % groups != 0) {
            return sg_fail(sinter_invalid_shape,
                           "dim %d of %lld elements does not divide into %lld groups", d,
                           (long long)n, (long long)groups);
        }
        if (p->zp >= 0 && (z < 0 ? 1 : t->zp.dims[z]) != groups) {
            return sg_fail(sinter_invalid_shape,
                           "zero points have other groups than the scales along dim %d", d);
        }
        t->size[d] = groups > 0 && n > 0 ? n / groups : 1;
        t->scale_stride[d] = s < 0 ? 0 : t->scale.strides[s];
        t->zp_stride[d] = z < 0 ? 0 : t->zp.strides[z];
    }
    return sinter_success;
}

sinter_status_t quant_tail_bind(const dynquant_params_t *p, const frame_t *frame,
                                features_t features, quant_tail_t *t)
{
    *t = (quant_tail_t){
        .fn = quant_rows(features), .out = frame->v[p->out], .scale = frame->v[p->scale]};
    t->split = p->split != sinter_data_type_undef;
    if (t->split) {
        t->high = frame->v[p->high];
    }
    const sinter_data_type_t codes = t->split ? p->split : t->out.dtype;
    const dtype_traits_t *elem = dtype_traits(codes);
    t->formula = (quant_formula_t){.kind = (quant_kind_t)p->kind,
                                   .elem_max = (float)elem->max,
                                   .elem_min = (float)elem->min,
                                   .scale_max = dtype_traits(t->scale.dtype)->max,
                                   .tensor_scale = 1};
    t->elem = dtype_bulk(codes, features);
    t->scale_type = dtype_bulk(t->scale.dtype, features);
    if (p->zp >= 0) {
        t->zp = frame->v[p->zp];
        t->zp_type = dtype_bulk(t->zp.dtype, features);
    }
    SG_TRY(bind_groups(p, t));
    const int n = t->out.ndims;
    t->cols = (int)t->size[n - 1];
    t->rows = n > 1 ? (int)t->size[n - 2] : 1;
    return sinter_success;
}

void quant_tail_start(const dynquant_params_t *p, const frame_t *frame, quant_tail_t *t)
{
    if (p->tensor_scale >= 0) {
        const bound_t *ts = &frame->v[p->tensor_scale];
        dtype_traits(ts->dtype)->codec.load_f32(ts->data, 0, 0, 1, &t->formula.tensor_scale);
        t->formula.tensor_scale = quant_tensor_scale(t->formula.tensor_scale);
    }
}

/* Do items `step` apart along the last dim, or at different outer indices, start in a byte of
 * their own? */
static bool splits(const bound_t *b, const int64_t *dims, const int64_t *stride, int ndims,
                   int64_t step)
{
    const int packed = dtype_traits(b->dtype)->block_elems;
    for (int d = 0; packed > 1 && d < ndims; d++) {
        const bool last = d == ndims - 1;
        if (dims[d] > 1 && (last ? stride[d] != 1 || (dims[d] > step && step % packed != 0)
                                 : stride[d] % packed != 0)) {
            return true;
        }
    }
    return false;
}

bool quant_tail_shares_bytes(const quant_tail_t *t, int64_t block_cols)
{
    int64_t groups[SINTER_MAX_NDIMS];
    for (int d = 0; d < t->out.ndims; d++) {
        groups[d] = t->out.dims[d] / t->size[d];
    }
    return splits(&t->out, t->out.dims, t->out.strides, t->out.ndims, block_cols) ||
           (t->split && splits(&t->high, t->out.dims, t->high.strides, t->out.ndims, block_cols)) ||
           (t->zp_type != NULL &&
            splits(&t->zp, groups, t->zp_stride, t->out.ndims, block_cols / t->cols));
}

/* ---- merging --------------------------------------------------------------------------------- */

bool quant_tail_merges(const quant_tail_t *t, int d)
{
    const int64_t n = t->out.dims[d + 1], groups = n / t->size[d + 1];
    return t->size[d] == 1 && t->out.strides[d] == n * t->out.strides[d + 1] &&
           t->scale_stride[d] == groups * t->scale_stride[d + 1] &&
           t->zp_stride[d] == groups * t->zp_stride[d + 1] &&
           t->high.strides[d] == n * t->high.strides[d + 1];
}

void quant_tail_merge(quant_tail_t *t, int d)
{
    int64_t *const arrays[] = {t->out.dims,     t->out.strides, t->size,
                               t->scale_stride, t->zp_stride,   t->high.strides};
    t->out.dims[d + 1] *= t->out.dims[d];
    t->out.ndims--;
    for (size_t i = 0; i < sizeof(arrays) / sizeof(arrays[0]); i++) {
        memmove(arrays[i] + d, arrays[i] + d + 1, sizeof(int64_t) * (size_t)(t->out.ndims - d));
    }
}

/* ---- running --------------------------------------------------------------------------------- */

typedef struct groups {
    int32_t top[TAIL_COLUMNS], bottom[TAIL_COLUMNS], special[TAIL_COLUMNS];
    float scale[TAIL_COLUMNS], by[TAIL_COLUMNS], zp[TAIL_COLUMNS];
    unsigned char code[TAIL_COLUMNS * 4];
    bool any_special;
} groups_t;

size_t quant_tail_scratch(void)
{
    return sizeof(groups_t);
}

/* x as its type stores it. */
static void round_trip(const dtype_bulk_t *type, int n, float *x, unsigned char *code)
{
    type->store_sat(code, 0, n, x);
    type->load(code, 0, n, x);
}

static void put(const bound_t *to, const dtype_bulk_t *type, int64_t first, int64_t stride, int n,
                const float *x)
{
    if (stride == 1) {
        type->store_sat(to->data, first, n, x);
    } else {
        dtype_traits(to->dtype)->codec.store_sat(to->data, first, stride, n, x);
    }
}

/* Codes at elements `low` (of whole codes, all their bits) and `high` of the outputs. */
static void put_codes(const quant_tail_t *t, int64_t low, int64_t high, int n, const float *x,
                      unsigned char *code)
{
    const int last = t->out.ndims - 1;
    if (t->split) {
        t->elem->store_sat(code, 0, n, x);
        dtype_part(code, n, t->out.data, low, t->out.strides[last], t->high.data, high,
                   t->high.strides[last]);
    } else {
        put(&t->out, t->elem, low, t->out.strides[last], n, x);
    }
}

static int64_t offset(const quant_tail_t *t, const int64_t *idx, const int64_t *stride,
                      bool by_group)
{
    int64_t at = 0;
    for (int d = 0; d < t->out.ndims; d++) {
        at += (by_group ? idx[d] / t->size[d] : idx[d]) * stride[d];
    }
    return at;
}

/* Scales and zero points of n groups, and what makes their elements. */
static void derive(const quant_tail_t *t, const int64_t *idx, int n, groups_t *g)
{
    const int last = t->out.ndims - 1;
    int32_t *bottom = t->zp_type != NULL ? g->bottom : NULL;
    t->fn->scales(&t->formula, n, g->top, bottom, g->scale, g->special);
    round_trip(t->scale_type, n, g->scale, g->code);
    g->any_special = t->fn->factors(&t->formula, n, g->scale, g->by, g->special) != 0;
    if (t->zp_type != NULL) {
        t->fn->zero_points(&t->formula, n, g->bottom, g->scale, g->zp);
        round_trip(t->elem, n, g->zp, g->code);
        round_trip(t->zp_type, n, g->zp, g->code);
        put(&t->zp, t->zp_type, offset(t, idx, t->zp_stride, true), t->zp_stride[last], n, g->zp);
    }
    for (int i = 0; g->any_special && i < n; i++) {
        g->scale[i] = g->special[i] ? NAN : g->scale[i];
    }
    put(&t->scale, t->scale_type, offset(t, idx, t->scale_stride, true), t->scale_stride[last], n,
        g->scale);
}

void quant_tail_run(const quant_tail_t *t, const int64_t *idx, int cols, float *x, int64_t ld,
                    void *scratch)
{
    const int last = t->out.ndims - 1, n = cols / t->cols;
    groups_t *g = scratch;
    memset(g->top, 0, (size_t)n * sizeof(*g->top));
    memset(g->bottom, 0, (size_t)n * sizeof(*g->bottom));
    for (int r = 0; r < t->rows; r++) {
        t->fn->widen(x + r * ld, t->cols, n, g->top, t->zp_type != NULL ? g->bottom : NULL);
    }
    derive(t, idx, n, g);
    const int64_t low = offset(t, idx, t->out.strides, false),
                  high = offset(t, idx, t->high.strides, false);
    const int64_t low_down = last > 0 ? t->out.strides[last - 1] : 0,
                  high_down = last > 0 ? t->high.strides[last - 1] : 0;
    for (int r = 0; r < t->rows; r++) {
        float *row = x + r * ld;
        t->fn->quantise(&t->formula, row, t->cols, n, g->by, t->zp_type != NULL ? g->zp : NULL,
                        row);
        for (int i = 0; g->any_special && i < n; i++) {
            if (g->special[i]) {
                memset(row + i * t->cols, 0, (size_t)t->cols * sizeof(*row));
            }
        }
        put_codes(t, low + r * low_down, high + r * high_down, cols, row, g->code);
    }
}
