#include "backend_xsmm/drivers/common/quant_tail.h"

#include <string.h>

#include <sinter/sinter_graph.h>

#include "backend_xsmm/kernel.h"
#include "base/status.h"

/* ---- binding --------------------------------------------------------------------------------- */

sinter_status_t quant_tail_bind(const dynquant_params_t *p, const frame_t *frame,
                                features_t features, quant_tail_t *t)
{
    SG_TRY(quantiser_bind(p, frame, features, &t->q));
    const matrices_t *out = &t->q.out;
    t->cols = (int)out->axis[out->ndims - 1][IN_SCALE].group;
    t->rows = out->ndims > 1 ? (int)out->axis[out->ndims - 2][IN_SCALE].group : 1;
    return sinter_success;
}

void quant_tail_start(const dynquant_params_t *p, const frame_t *frame, quant_tail_t *t)
{
    quantiser_start(p, frame, &t->q);
}

/* Whether results of one part of the output share a byte with those of a neighbouring block of
 * block_cols columns, or of other rows. type NULL: there is no such part. */
static bool shares_bytes(const matrices_t *out, int part, const dtype_traits_t *type,
                         int64_t block_cols)
{
    const int packed = type != NULL ? type->block_elems : 1;
    for (int d = 0; packed > 1 && d < out->ndims; d++) {
        const axis_t *axis = &out->axis[d][part];
        const int64_t n = quant_n_groups(out->dims[d], axis->group),
                      step = block_cols / axis->group;
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
    const matrices_t *out = &t->q.out;
    const matrix_t *base = &out->base;
    return shares_bytes(out, IN_CODES, base->codes.type, block_cols) ||
           shares_bytes(out, IN_HIGH, base->high.type, block_cols) ||
           shares_bytes(out, IN_ZP, base->zp.type, block_cols);
}

/* ---- merging --------------------------------------------------------------------------------- */

bool quant_tail_merges(const quant_tail_t *t, int d)
{
    const axis_t *outer = t->q.out.axis[d], *inner = t->q.out.axis[d + 1];
    bool merges = outer[IN_SCALE].group == 1;
    for (int part = 0; part < MATRIX_PARTS; part++) {
        const int64_t n = t->q.out.dims[d + 1], groups = n / inner[part].group;
        merges = merges && n % inner[part].group == 0 &&
                 outer[part].stride == groups * inner[part].stride;
    }
    return merges;
}

void quant_tail_merge(quant_tail_t *t, int d)
{
    matrices_t *out = &t->q.out;
    out->dims[d + 1] *= out->dims[d];
    out->ndims--;
    memmove(out->dims + d, out->dims + d + 1, sizeof *out->dims * (size_t)(out->ndims - d));
    memmove(out->axis + d, out->axis + d + 1, sizeof *out->axis * (size_t)(out->ndims - d));
}

/* ---- running --------------------------------------------------------------------------------- */

size_t quant_tail_scratch(void)
{
    group_values_t m;
    return group_values_carve(NULL, TAIL_COLUMNS, NULL, &m);
}

/* Where the output has what belongs to index idx. */
static quant_span_t place_of(const quant_tail_t *t, const int64_t *idx)
{
    quant_span_t at = {0};
    for (int d = 0; d < t->q.out.ndims; d++) {
        span_seek(&at, &t->q.out, d, idx[d]);
    }
    return at;
}

/* From one index along dim d to the next, or from one group to the next; nothing where there is no
 * such dim. */
static quant_span_t step_of(const quant_tail_t *t, int d)
{
    quant_span_t step = {0};
    for (int part = 0; d >= 0 && part < MATRIX_PARTS; part++) {
        step.to[part] = t->q.out.axis[d][part].stride;
    }
    return step;
}

/* A row of n groups of `size` columns becomes codes; along: from one column to the next. */
static void put_row(const quantiser_t *q, quant_span_t *at, const quant_span_t *along, int size,
                    int n, float *row, const group_values_t *m)
{
    quantiser_quantise(q, row, size, n, 0, m, row);
    quantiser_clear_specials(m, size, n, row);
    at->n = (int64_t)size * n;
    quantiser_put_codes(q, at, along, row, m->codes);
}

/* After the codes of n groups, from which scales may be made. */
static void put_scales(const quantiser_t *q, const quant_span_t *at, const quant_span_t *along,
                       int n, group_values_t *m)
{
    if (quantiser_refits(q)) {
        quantiser_refit(q, n, m);
    }
    quantiser_put_groups(q, at, along, n, m);
}

/* n groups of `size` columns from index idx on. */
static void run_groups(const quant_tail_t *t, const int64_t *idx, int rows, int size, int n,
                       float *x, int64_t ld, void *scratch)
{
    const quantiser_t *q = &t->q;
    const int last = q->out.ndims - 1;
    const quant_span_t along = step_of(t, last), down = step_of(t, last - 1);
    quant_span_t at = place_of(t, idx);
    group_values_t m;
    group_values_carve(scratch, TAIL_COLUMNS, q, &m);
    group_values_clear(&m, n);
    for (int r = 0; r < rows; r++) {
        quantiser_widen(q, x + r * ld, size, n, &m);
    }
    quantiser_derive(q, n, &m);
    const quant_span_t first = at;
    for (int r = 0; r < rows; r++, span_move(&at, &down, 1)) {
        put_row(q, &at, &along, size, n, x + r * ld, &m);
    }
    put_scales(q, &first, &along, n, &m);
}

void quant_tail_run(const quant_tail_t *t, const int64_t *idx, int rows, int cols, float *x,
                    int64_t ld, void *scratch)
{
    const int last = t->q.out.ndims - 1, n = cols / t->cols, rest = cols % t->cols;
    if (n > 0) {
        run_groups(t, idx, rows, t->cols, n, x, ld, scratch);
    }
    if (rest > 0) {
        int64_t at[SINTER_MAX_NDIMS];
        memcpy(at, idx, sizeof *at * (size_t)t->q.out.ndims);
        at[last] += cols - rest;
        run_groups(t, at, rows, rest, 1, x + cols - rest, ld, scratch);
    }
}

void quant_tail_long_group(const quant_tail_t *t, const int64_t *idx, int64_t n, float *x,
                           void *scratch)
{
    const quantiser_t *q = &t->q;
    const quant_span_t along = step_of(t, q->out.ndims - 1);
    quant_span_t at = place_of(t, idx);
    group_values_t m;
    group_values_carve(scratch, TAIL_COLUMNS, q, &m);
    group_values_clear(&m, 1);
    for (int64_t i = 0; i < n; i += TAIL_COLUMNS) {
        quantiser_widen(q, x + i, (int)at_most(n - i, TAIL_COLUMNS), 1, &m);
    }
    quantiser_derive(q, 1, &m);
    const quant_span_t first = at;
    for (int64_t i = 0; i < n; i += TAIL_COLUMNS) {
        const int part = (int)at_most(n - i, TAIL_COLUMNS);
        put_row(q, &at, &along, part, 1, x + i, &m);
        at.to[IN_CODES] += part * along.to[IN_CODES];
        at.to[IN_HIGH] += part * along.to[IN_HIGH];
    }
    put_scales(q, &first, &along, 1, &m);
}
