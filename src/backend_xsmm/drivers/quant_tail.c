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
    const int64_t strip = TAIL_MATMUL_STRIP, panel = TAIL_MATMUL_COLUMNS,
                  chunk = TAIL_ATTENTION_COLUMNS;
    switch (kind) {
    case STEP_MATMUL:
        return TAIL_MATMUL_ROWS % rows != 0 ? "groups of so many rows do not divide a block of rows"
               : !columns_fit(n, cols, strip, panel) ? "groups of so many columns reach over panels"
                                                     : NULL;
    case STEP_ATTENTION:
        return rows > 1 ? "rows of attention are computed in an order of their own"
               : (n >= 0 && n <= chunk) || chunk % cols == 0
                   ? NULL
                   : "groups of so many columns reach over chunks of the head";
    case STEP_CHAIN:
        return rows > TAIL_CHAIN_ROWS      ? "groups of so many rows"
               : cols > TAIL_CHAIN_COLUMNS ? "groups longer than a run of 256 elements"
                                           : NULL;
    case STEP_SOFTMAX:
    case STEP_DYNQUANT:
        break;
    }
    return "steps of its kind have no quantising tail";
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

/* Zero points are one for each scale. */
static sinter_status_t check_zps(const matrices_t *out)
{
    for (int d = 0; d < out->ndims; d++) {
        if (out->axis[d][IN_ZP].group != out->axis[d][IN_SCALE].group) {
            return sg_fail(sinter_invalid_shape,
                           "zero points have other groups than the scales along dim %d", d);
        }
    }
    return sinter_success;
}

sinter_status_t quant_tail_bind(const dynquant_params_t *p, const frame_t *frame,
                                features_t features, quant_tail_t *t)
{
    *t = (quant_tail_t){.fn = quant_rows(features)};
    SG_TRY(operand_bind(&p->out, frame, &t->out));
    const matrix_t *base = &t->out.base;
    const sinter_data_type_t codes = base->high.type != NULL ? base->split : base->codes.dtype;
    const dtype_traits_t *elem = dtype_traits(codes);
    t->formula = (quant_formula_t){.kind = (quant_kind_t)p->kind,
                                   .elem_max = (float)elem->max,
                                   .elem_min = (float)elem->min,
                                   .scale_max = base->scale.type->max,
                                   .tensor_scale = 1};
    t->elem = dtype_bulk(codes, features);
    t->scale_type = dtype_bulk(base->scale.dtype, features);
    if (base->zp.type != NULL) {
        t->zp_type = dtype_bulk(base->zp.dtype, features);
        SG_TRY(check_zps(&t->out));
    }
    const int n = t->out.ndims;
    t->cols = (int)t->out.axis[n - 1][IN_SCALE].group;
    t->rows = n > 1 ? (int)t->out.axis[n - 2][IN_SCALE].group : 1;
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

/* Whether results of one part of the output share a byte with others: those of blocks of
 * block_cols columns next to each other, or of other rows. */
static bool shares_bytes(const matrices_t *out, int part, const dtype_traits_t *type,
                         int64_t block_cols)
{
    const int packed = type->block_elems;
    for (int d = 0; packed > 1 && d < out->ndims; d++) {
        const axis_t *axis = &out->axis[d][part];
        const int64_t n = out->dims[d] / axis->group, step = block_cols / axis->group;
        const bool last = d == out->ndims - 1;
        if (n > 1 && (last ? axis->stride != 1 || (n > step && step % packed != 0)
                           : axis->stride % packed != 0)) {
            return true;
        }
    }
    return false;
}

bool quant_tail_shares_bytes(const quant_tail_t *t, int64_t block_cols)
{
    const matrix_t *base = &t->out.base;
    return shares_bytes(&t->out, IN_CODES, base->codes.type, block_cols) ||
           (base->high.type != NULL &&
            shares_bytes(&t->out, IN_HIGH, base->high.type, block_cols)) ||
           (base->zp.type != NULL && shares_bytes(&t->out, IN_ZP, base->zp.type, block_cols));
}

/* ---- merging --------------------------------------------------------------------------------- */

bool quant_tail_merges(const quant_tail_t *t, int d)
{
    const axis_t *outer = t->out.axis[d], *inner = t->out.axis[d + 1];
    bool merges = outer[IN_SCALE].group == 1;
    for (int part = 0; part < MATRIX_PARTS; part++) {
        const int64_t groups = t->out.dims[d + 1] / inner[part].group;
        merges = merges && outer[part].stride == groups * inner[part].stride;
    }
    return merges;
}

void quant_tail_merge(quant_tail_t *t, int d)
{
    matrices_t *out = &t->out;
    out->dims[d + 1] *= out->dims[d];
    out->ndims--;
    memmove(out->dims + d, out->dims + d + 1, sizeof *out->dims * (size_t)(out->ndims - d));
    memmove(out->axis + d, out->axis + d + 1, sizeof *out->axis * (size_t)(out->ndims - d));
}

/* ---- running --------------------------------------------------------------------------------- */

/* What is found out about the groups of a block, and codes on their way. */
typedef struct block {
    int32_t top[TAIL_COLUMNS], bottom[TAIL_COLUMNS], special[TAIL_COLUMNS];
    float scale[TAIL_COLUMNS], by[TAIL_COLUMNS], zp[TAIL_COLUMNS];
    unsigned char code[TAIL_COLUMNS * 4];
    bool any_special;
} block_t;

size_t quant_tail_scratch(void)
{
    return sizeof(block_t);
}

/* x as its type stores it. */
static void round_trip(const dtype_bulk_t *type, int n, float *x, unsigned char *code)
{
    type->store_sat(code, 0, n, x);
    type->load(code, 0, n, x);
}

/* Outputs are written, though groups_t of operands points to data that is only read. */
static void *output_of(const groups_t *g)
{
    return (void *)(uintptr_t)g->data;
}

static void put(const groups_t *to, const dtype_bulk_t *type, int64_t first, int64_t stride, int n,
                const float *x)
{
    if (stride == 1) {
        type->store_sat(output_of(to), first, n, x);
    } else {
        to->type->codec.store_sat(output_of(to), first, stride, n, x);
    }
}

/* Where one part of the output has what belongs to index idx. */
static int64_t offset(const quant_tail_t *t, const int64_t *idx, int part)
{
    int64_t at = 0;
    for (int d = 0; d < t->out.ndims; d++) {
        const axis_t *axis = &t->out.axis[d][part];
        at += (axis->group == 1 ? idx[d] : idx[d] / axis->group) * axis->stride;
    }
    return at;
}

/* From one index along dim d to the next; 0 where there is no such dim. */
static int64_t stride_of(const quant_tail_t *t, int d, int part)
{
    return d >= 0 ? t->out.axis[d][part].stride : 0;
}

/* Codes at elements `low` (of whole codes, all their bits) and `high` of the outputs. */
static void put_codes(const quant_tail_t *t, int64_t low, int64_t high, int n, const float *x,
                      unsigned char *code)
{
    const matrix_t *base = &t->out.base;
    const int last = t->out.ndims - 1;
    if (base->high.type != NULL) {
        t->elem->store_sat(code, 0, n, x);
        dtype_part(code, n, output_of(&base->codes), low, stride_of(t, last, IN_CODES),
                   output_of(&base->high), high, stride_of(t, last, IN_HIGH));
    } else {
        put(&base->codes, t->elem, low, stride_of(t, last, IN_CODES), n, x);
    }
}

/* Scales and zero points of n groups, and what makes their elements. */
static void derive(const quant_tail_t *t, const int64_t *idx, int n, block_t *g)
{
    const int last = t->out.ndims - 1;
    const matrix_t *base = &t->out.base;
    int32_t *bottom = t->zp_type != NULL ? g->bottom : NULL;
    t->fn->scales(&t->formula, n, g->top, bottom, g->scale, g->special);
    round_trip(t->scale_type, n, g->scale, g->code);
    g->any_special = t->fn->factors(&t->formula, n, g->scale, g->by, g->special) != 0;
    if (t->zp_type != NULL) {
        t->fn->zero_points(&t->formula, n, g->bottom, g->scale, g->zp);
        round_trip(t->elem, n, g->zp, g->code);
        round_trip(t->zp_type, n, g->zp, g->code);
        put(&base->zp, t->zp_type, offset(t, idx, IN_ZP), stride_of(t, last, IN_ZP), n, g->zp);
    }
    for (int i = 0; g->any_special && i < n; i++) {
        g->scale[i] = g->special[i] ? NAN : g->scale[i];
    }
    put(&base->scale, t->scale_type, offset(t, idx, IN_SCALE), stride_of(t, last, IN_SCALE), n,
        g->scale);
}

void quant_tail_run(const quant_tail_t *t, const int64_t *idx, int cols, float *x, int64_t ld,
                    void *scratch)
{
    const int last = t->out.ndims - 1, n = cols / t->cols;
    block_t *g = scratch;
    memset(g->top, 0, (size_t)n * sizeof(*g->top));
    memset(g->bottom, 0, (size_t)n * sizeof(*g->bottom));
    for (int r = 0; r < t->rows; r++) {
        t->fn->widen(x + r * ld, t->cols, n, g->top, t->zp_type != NULL ? g->bottom : NULL);
    }
    derive(t, idx, n, g);
    const int64_t low = offset(t, idx, IN_CODES), high = offset(t, idx, IN_HIGH);
    const int64_t low_down = stride_of(t, last - 1, IN_CODES),
                  high_down = stride_of(t, last - 1, IN_HIGH);
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
