#include "backend_xsmm/drivers/common/matrices.h"

#include "base/status.h"
#include "graph/quant.h"
#include "numeric/tiles.h"

static void list_parts(matrix_t *m, groups_t *parts[MATRIX_PARTS])
{
    parts[IN_CODES] = &m->codes;
    parts[IN_HIGH] = &m->high;
    parts[IN_SCALE] = &m->scale;
    parts[IN_ZP] = &m->zp;
}

/* Part `at` of an operand, the values of which are `side`. dim_of[d] is the dim of side that
 * belongs to dim d of the data: where it is -1, all of the dim is one group. sizes: the group_size
 * of operand_t. */
static sinter_status_t bind_part(const bound_t *data, const bound_t *side, const int8_t *dim_of,
                                 const int64_t *sizes, int at, matrices_t *out)
{
    static const char *const names[] = {"codes", "the high plane of split codes", "scales",
                                        "zero points"};
    groups_t *parts[MATRIX_PARTS];
    for (int d = 0; d < data->ndims; d++) {
        const int64_t n = data->dims[d], groups = dim_of[d] < 0 ? 1 : side->dims[dim_of[d]],
                      size = n > 0 ? quant_group_size(n, groups, sizes[d]) : 1;
        if (size == 0) {
            return sg_fail(sinter_invalid_shape,
                           "%s: dim %d of %lld elements does not divide into %lld groups",
                           names[at], d, (long long)n, (long long)groups);
        }
        int64_t stride = dim_of[d] < 0 ? 0 : side->strides[dim_of[d]];
        if (side->tiled != NOT_TILED && stride == 0 && groups > 1) {
            stride = 1; /* values of all groups lie in tiles, also where they were one in memory */
        }
        out->axis[d][at] = (axis_t){.stride = stride, .group = size};
    }
    list_parts(&out->base, parts);
    *parts[at] =
        (groups_t){.data = side->data, .type = dtype_traits(side->dtype), .dtype = side->dtype};
    return sinter_success;
}

/* Split codes: both planes have the same dims. */
static sinter_status_t check_high(const bound_t *data, const bound_t *high)
{
    if (high->ndims != data->ndims) {
        return sg_fail(sinter_invalid_shape,
                       "the high plane of split codes has %d dims, the low plane %d", high->ndims,
                       data->ndims);
    }
    for (int d = 0; d < data->ndims; d++) {
        if (high->dims[d] != data->dims[d]) {
            return sg_fail(
                sinter_invalid_shape,
                "the high plane of split codes has %lld elements along dim %d, the low plane %lld",
                (long long)high->dims[d], d, (long long)data->dims[d]);
        }
    }
    return sinter_success;
}

/* Pages of all parts of an operand: lowering has seen to it that they have one table and lie
 * alike. */
static sinter_status_t bind_pages(const operand_t *op, const frame_t *frame, matrices_t *m)
{
    pages_t *out = &m->pages;
    const bound_t *data = &frame->v[op->data];
    const int values[] = {op->scale, op->zp};
    *out = (pages_t){.id_value = -1, .rows_value = -1, .by = -1};
    if (data->pages == NULL) {
        return sinter_success;
    }
    const pages_of_t *of = data->pages;
    const bound_t *table = &frame->v[of->table];
    const int last = table->ndims - 1;
    *out = (pages_t){.page = data->page,
                     .table = table->data,
                     .wide = table->dtype == sinter_s64,
                     .step = table->dims[last] > 1 ? table->strides[last] : 0,
                     .cells = pages_apart(data),
                     .blocks = data->n_pages,
                     .id_value = of->table,
                     .by = -1,
                     .rows_value = of->rows};
    if (of->rows >= 0) {
        const bound_t *rows = &frame->v[of->rows];
        out->named = true;
        out->rows = rows->data;
        out->rows_wide = rows->dtype == sinter_s64;
        out->name_stride = rows->dims[0] > 1 ? rows->strides[0] : 0;
        out->row_stride = table->dims[0] > 1 ? table->strides[0] : 0;
        out->sequences = table->dims[0];
    }
    for (int d = 0; d < data->ndims; d++) {
        const int from = d == of->tokens ? -1 : of->of_table[d];
        const bool named = of->rows >= 0 && from == 0;
        out->by = named ? d : out->by;
        out->stride[d] = from >= 0 && table->dims[from] > 1 && !named ? table->strides[from] : 0;
    }
    bool alike = out->cells >= 0;
    for (int i = 0; i < 2; i++) {
        const bound_t *side = values[i] >= 0 ? &frame->v[values[i]] : NULL;
        if (side != NULL && side->pages != NULL) {
            alike = alike && side->page == out->page && side->n_pages == out->blocks &&
                    pages_apart(side) == out->cells;
        } else if (side != NULL) { /* one for all tokens, wherever these lie */
            m->axis[of->tokens][i == 0 ? IN_SCALE : IN_ZP].stride = 0;
        }
    }
    return alike ? sinter_success
                 : sg_fail(sinter_unimplemented,
                           "codes, scales and zero points in pages do not lie alike");
}

static void swap_dims(matrices_t *m, int i, int j)
{
    const int64_t n = m->dims[i];
    m->dims[i] = m->dims[j];
    m->dims[j] = n;
    for (int part = 0; part < MATRIX_PARTS; part++) {
        const axis_t axis = m->axis[i][part];
        m->axis[i][part] = m->axis[j][part];
        m->axis[j][part] = axis;
    }
}

sinter_status_t operand_bind(const operand_t *op, const frame_t *frame, matrices_t *out)
{
    const bound_t *data = &frame->v[op->data];
    static const int64_t exact[SINTER_MAX_NDIMS]; /* no size is said */
    int8_t same[SINTER_MAX_NDIMS];
    *out = (matrices_t){.ndims = data->ndims, .base = {.split = op->split, .offsets = op->offsets}};
    for (int d = 0; d < data->ndims; d++) {
        out->dims[d] = data->dims[d];
        same[d] = (int8_t)d;
        for (int part = 0; part < MATRIX_PARTS; part++) {
            out->axis[d][part].group = 1; /* of parts that are not there, too */
        }
    }
    SG_TRY(bind_part(data, data, same, exact, IN_CODES, out));
    out->base.codes.block = data->block;
    out->base.codes.block_stride = data->block_stride;
    if (op->scale >= 0) {
        SG_TRY(bind_part(data, &frame->v[op->scale], op->scale_dim, op->group_size, IN_SCALE, out));
    }
    if (op->zp >= 0) {
        SG_TRY(bind_part(data, &frame->v[op->zp], op->zp_dim, op->group_size, IN_ZP, out));
    }
    if (op->split != sinter_data_type_undef) {
        SG_TRY(check_high(data, &frame->v[op->high]));
        SG_TRY(bind_part(data, &frame->v[op->high], same, exact, IN_HIGH, out));
    }
    return bind_pages(op, frame, out);
}

/* Parts that lie in tiles, once rows and columns are known. */
static void bind_strips(const operand_t *op, const frame_t *frame, int64_t K, groups_t **parts)
{
    const int values[MATRIX_PARTS] = {op->data, op->high, op->scale, op->zp};
    for (int i = 0; i < MATRIX_PARTS; i++) {
        groups_t *g = parts[i];
        if (values[i] < 0 || frame->v[values[i]].tiled == NOT_TILED) {
            continue;
        }
        g->tiled = frame->v[values[i]].tiled;
        g->heads = frame->v[values[i]].heads;
        if (!tiles_are_values(g->tiled)) {
            const int64_t block = g->tiled == TILED_BLOCKS && K > TILES_BLOCK ? TILES_BLOCK : K;
            tiles_of_codes(tiles_bits(g->tiled, g->dtype), block, TILES_COLUMNS, &g->strip);
        } else {
            tiles_of_values(g->tiled, g->dtype, axis_groups(&g->row, K), TILES_COLUMNS, &g->strip);
        }
    }
}

/* The factors of scales or offsets. */
static void bind_factors(const factors_of_scales_t *by, const frame_t *frame, int64_t K,
                         const groups_t *of, groups_t *to)
{
    if (by == NULL) {
        return;
    }
    const bound_t *b = &frame->v[by->value];
    *to = (groups_t){.data = b->data,
                     .type = dtype_traits(b->dtype),
                     .dtype = b->dtype,
                     .row = {of->row.stride, of->row.group * by->groups},
                     .column = of->column,
                     .tiled = b->tiled};
    tiles_of_values(b->tiled, b->dtype, axis_groups(&to->row, K), TILES_COLUMNS, &to->strip);
}

sinter_status_t matrices_bind(const operand_t *op, bool trans, const frame_t *frame,
                              matrices_t *out)
{
    const int n = frame->v[op->data].ndims, rows = n - 2, columns = n - 1;
    groups_t *parts[MATRIX_PARTS];
    if (n < 2) {
        return sg_fail(sinter_invalid_shape, "a matrix operand has %d dims, needs 2", n);
    }
    SG_TRY(operand_bind(op, frame, out));
    if (trans) {
        swap_dims(out, rows, columns);
    }
    list_parts(&out->base, parts);
    for (int i = 0; i < MATRIX_PARTS; i++) {
        parts[i]->row = out->axis[rows][i];
        parts[i]->column = out->axis[columns][i];
    }
    bind_strips(op, frame, out->dims[rows], parts);
    const int64_t K = out->dims[rows];
    bind_factors(op->scale_by, frame, K, &out->base.scale, &out->base.scale_scale);
    bind_factors(op->zp_by, frame, K, &out->base.zp, &out->base.zp_scale);
    return sinter_success;
}

void matrices_repeat(matrices_t *op, bool rows)
{
    groups_t *parts[MATRIX_PARTS];
    if (op->pages.page > 0) { /* the only token, whichever is asked for */
        op->pages.page = 1;
        op->pages.step = 0;
        return;
    }
    list_parts(&op->base, parts);
    for (int i = 0; i < MATRIX_PARTS; i++) {
        axis_t *axis = &op->axis[op->ndims - (rows ? 2 : 1)][i];
        axis->stride = 0;
        axis->group = 1;
        *(rows ? &parts[i]->row : &parts[i]->column) = *axis;
    }
}

matrix_t matrix_at(const matrices_t *op, const int64_t *idx, int nb)
{
    matrix_t m = op->base;
    groups_t *parts[MATRIX_PARTS];
    const int own = op->ndims - 2;
    list_parts(&m, parts);
    for (int d = 0; d < own; d++) {
        const int from = nb - own + d;
        const int64_t i = from < 0 || op->dims[d] == 1 ? 0 : idx[from];
        for (int part = 0; part < MATRIX_PARTS && i > 0; part++) {
            const axis_t *axis = &op->axis[d][part];
            if (parts[part]->type != NULL) { /* divisions take long */
                parts[part]->first += (axis->group == 1 ? i : i / axis->group) * axis->stride;
            }
        }
    }
    return m;
}

bool matrices_on_bytes(const matrices_t *op, bool rows)
{
    const int last = op->ndims - (rows ? 2 : 1), bits = op->base.codes.type->bits;
    for (int d = 0; d < op->ndims; d++) {
        const bool counts = d < op->ndims - 2 || d == last;
        if (counts && op->dims[d] != 1 && op->axis[d][IN_CODES].stride * bits % 8 != 0) {
            return false;
        }
    }
    return true;
}
