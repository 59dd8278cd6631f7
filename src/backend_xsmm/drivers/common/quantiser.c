#include "backend_xsmm/drivers/common/quantiser.h"

#include <math.h>
#include <string.h>

#include "backend_xsmm/kernel.h"
#include "base/status.h"

/* ---- binding --------------------------------------------------------------------------------- */

static int64_t groups_along(const frame_t *frame, int value, int dim)
{
    return dim < 0 ? 1 : frame->v[value].dims[dim];
}

/* There is one zero point for each scale. */
static sinter_status_t check_zps(const operand_t *out, const frame_t *frame)
{
    for (int d = 0; out->zp >= 0 && d < frame->v[out->data].ndims; d++) {
        if (groups_along(frame, out->zp, out->zp_dim[d]) !=
            groups_along(frame, out->scale, out->scale_dim[d])) {
            return sg_fail(sinter_invalid_shape,
                           "zero points have other groups than the scales along dim %d", d);
        }
    }
    return sinter_success;
}

sinter_status_t quantiser_bind(const dynquant_params_t *p, const frame_t *frame,
                               features_t features, quantiser_t *q)
{
    *q = (quantiser_t){.fn = quant_rows(features)};
    SG_TRY(operand_bind(&p->out, frame, &q->out));
    SG_TRY(check_zps(&p->out, frame));
    const matrix_t *base = &q->out.base;
    const sinter_data_type_t codes = quantiser_splits(q) ? base->split : base->codes.dtype;
    const dtype_traits_t *elem = dtype_traits(codes);
    q->formula = (quant_formula_t){.kind = (quant_kind_t)p->kind,
                                   .elem_max = (float)elem->max,
                                   .elem_min = (float)elem->min,
                                   .scale_max = base->scale.type->max,
                                   .tensor_scale = 1};
    if (p->code_bits > 0 && p->code_bits < elem->bits) {
        const float levels = (float)(1 << p->code_bits);
        q->formula.elem_min = elem->min < 0 ? -levels / 2 : 0;
        q->formula.elem_max = q->formula.elem_min + levels - 1;
        q->formula.clamps = true;
    }
    if (q->formula.kind == QUANT_DYNAMIC_IQ4_NL) {
        q->formula.elem_min = -127;
    }
    if (base->zp.type != NULL && base->zp.type->cls != DTYPE_INT) {
        q->formula.zps = p->out.offsets ? ZPS_OFFSETS : ZPS_FLOATS;
        q->formula.zp_max = (float)base->zp.type->max;
    }
    q->codes = dtype_bulk(codes, features);
    q->scale = dtype_bulk(base->scale.dtype, features);
    q->zp = base->zp.type != NULL ? dtype_bulk(base->zp.dtype, features) : NULL;
    return sinter_success;
}

void quantiser_start(const dynquant_params_t *p, const frame_t *frame, quantiser_t *q)
{
    if (p->tensor_scale >= 0) {
        const bound_t *t = &frame->v[p->tensor_scale];
        dtype_traits(t->dtype)->codec.load_f32(t->data, 0, 0, 1, &q->formula.tensor_scale);
        q->formula.tensor_scale = quant_tensor_scale(q->formula.tensor_scale);
    }
}

/* ---- groups ---------------------------------------------------------------------------------- */

size_t group_values_carve(unsigned char *base, int most, const quantiser_t *q, group_values_t *m)
{
    const size_t n = (size_t)most;
    size_t at = 0;
    m->top = carve(base, &at, n, sizeof *m->top);
    m->bottom = carve(base, &at, n, sizeof *m->bottom);
    m->special = carve(base, &at, n, sizeof *m->special);
    m->scale = carve(base, &at, n, sizeof *m->scale);
    m->inverse_scale = carve(base, &at, n, sizeof *m->inverse_scale);
    m->zp = carve(base, &at, n, sizeof *m->zp);
    m->num = carve(base, &at, n, sizeof *m->num);
    m->den = carve(base, &at, n, sizeof *m->den);
    m->codes = carve(base, &at, n, sizeof(float));
    m->bottom = q != NULL && quantiser_has_sides(q) ? m->bottom : NULL;
    m->none = q != NULL && quantiser_is_open(q) ? INT32_MIN : 0;
    m->any_special = false;
    return at;
}

void group_values_clear(const group_values_t *m, int64_t n)
{
    for (int64_t i = 0; i < n; i++) {
        m->top[i] = m->none;
    }
    for (int64_t i = 0; m->bottom != NULL && i < n; i++) {
        m->bottom[i] = m->none;
    }
}

void group_values_clear_sums(const group_values_t *m, int64_t n)
{
    memset(m->num, 0, (size_t)n * sizeof *m->num);
    memset(m->den, 0, (size_t)n * sizeof *m->den);
}

void quantiser_widen(const quantiser_t *q, const float *x, int size, int n, group_values_t *m)
{
    (quantiser_is_open(q) ? q->fn->widen_open : q->fn->widen)(x, size, n, m->top, m->bottom);
}

/* x as its type stores it. */
static void round_trip(const dtype_bulk_t *type, int n, float *x, unsigned char *codes)
{
    type->store_sat(codes, 0, n, x);
    type->load(codes, 0, n, x);
}

void quantiser_derive(const quantiser_t *q, int n, group_values_t *m)
{
    q->fn->scales(&q->formula, n, m->top, m->bottom, m->scale, m->special);
    if (quantiser_refits(q)) {
        group_values_clear_sums(m, n);
    } else {
        round_trip(q->scale, n, m->scale, m->codes);
    }
    m->any_special = q->fn->factors(&q->formula, n, m->scale, m->inverse_scale, m->special) != 0;
    if (q->zp != NULL) {
        q->fn->zero_points(&q->formula, n, m->bottom, m->scale, m->zp);
        for (int g = 0; q->formula.clamps && !quantiser_is_open(q) && g < n; g++) {
            m->zp[g] = fminf(fmaxf(m->zp[g], q->formula.elem_min), q->formula.elem_max);
        }
        if (!quantiser_is_open(q)) {
            round_trip(q->codes, n, m->zp, m->codes);
        }
        round_trip(q->zp, n, m->zp, m->codes);
    }
    for (int g = 0; m->any_special && g < n; g++) {
        m->scale[g] = m->special[g] ? NAN : m->scale[g];
    }
}

void quantiser_quantise(const quantiser_t *q, const float *x, int size, int n, int first,
                        const group_values_t *m, float *to)
{
    if (quantiser_refits(q)) {
        q->fn->numbers(x, size, n, m->inverse_scale + first, to, m->num + first, m->den + first);
    } else {
        q->fn->quantise(&q->formula, x, size, n, m->inverse_scale + first,
                        q->zp != NULL ? m->zp + first : NULL, to);
    }
}

void quantiser_refit(const quantiser_t *q, int n, group_values_t *m)
{
    const float most = (float)q->formula.scale_max;
    for (int g = 0; g < n; g++) {
        const bool some = !m->special[g] && m->den[g] > 0;
        const float s = some ? m->scale[g] * (m->num[g] / m->den[g]) : m->special[g] ? NAN : 0;
        m->scale[g] = s > most ? most : s < -most ? -most : s;
    }
    round_trip(q->scale, n, m->scale, m->codes);
}

void quantiser_clear_specials(const group_values_t *m, int64_t size, int64_t n, float *x)
{
    for (int64_t g = 0; m->any_special && g < n; g++) {
        if (m->special[g]) {
            memset(x + g * size, 0, (size_t)size * sizeof *x);
        }
    }
}

/* ---- stores ---------------------------------------------------------------------------------- */

static void put(const groups_t *to, const dtype_bulk_t *type, int64_t first, int64_t stride,
                int64_t n, const float *x)
{
    if (stride == 1) {
        type->store_sat(groups_output(to, 0), first, n, x);
    } else {
        to->type->codec.store_sat(groups_output(to, 0), first, stride, n, x);
    }
}

void quantiser_put_groups(const quantiser_t *q, const quant_span_t *at, const quant_span_t *step,
                          int n, const group_values_t *m)
{
    const matrix_t *out = &q->out.base;
    put(&out->scale, q->scale, at->to[IN_SCALE], step->to[IN_SCALE], n, m->scale);
    if (q->zp != NULL) {
        put(&out->zp, q->zp, at->to[IN_ZP], step->to[IN_ZP], n, m->zp);
    }
}

void quantiser_put_codes(const quantiser_t *q, const quant_span_t *at, const quant_span_t *step,
                         const float *x, unsigned char *tmp)
{
    const matrix_t *out = &q->out.base;
    if (quantiser_splits(q)) {
        q->codes->store_sat(tmp, 0, at->n, x);
        dtype_part(tmp, at->n, groups_output(&out->codes, 0), at->to[IN_CODES], step->to[IN_CODES],
                   groups_output(&out->high, 0), at->to[IN_HIGH], step->to[IN_HIGH]);
    } else {
        put(&out->codes, q->codes, at->to[IN_CODES], step->to[IN_CODES], at->n, x);
    }
}
