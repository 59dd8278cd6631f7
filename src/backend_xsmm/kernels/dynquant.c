/* DynamicQuantize steps that compute scales (and zero points) from the data. Each group is one work item: its extremes
 * are found in one walk over its elements, the elements are quantised with the stored scale in a second. Formulas:
 *
 *   mx          S = 2^(floor(log2 amax) - emax), from the bits of amax           q = elem(x / S)
 *   mx_rceil    S = amax / max rounded up to a power of two                      q = elem(x / S)
 *   symmetric   S = amax / qmax                                                  q = elem(x / S)
 *   asymmetric  S = (hi - lo) / (qmax - qmin), zp = sat(round(qmin - lo / S))    q = sat(round(x / S) + zp)
 *   nv          S = e4m3(clamp(amax / 6 / t, 2^-9, 448))                         q = elem(x / (S t))
 *
 * Elements saturate. S saturates at the largest number of its type and is 1 where that would store 0. A NaN or an infinity in the group
 * makes S NaN, the elements 0 and the zero point that of an all-zero group. */
#include <math.h>
#include <string.h>

#include "../../graph/quant.h"
#include "../../graph/status.h"
#include "../eltwise.h"
#include "../kernel.h"
#include "chain_walk.h"

enum { RUN = 256, SHORT = 8 };

typedef struct dynquant_state {
    const eltwise_table_t *fn;
    bound_t in, out, scale, zp;
    bool has_zp, serial;
    float tensor_scale;
    int ndims, inner; /* inner: the dim that runs go along */
    int64_t groups[SINTER_MAX_NDIMS], size[SINTER_MAX_NDIMS], n_groups;
    int64_t scale_stride[SINTER_MAX_NDIMS], zp_stride[SINTER_MAX_NDIMS]; /* by data dim, from group to group */
    int64_t extent[SINTER_MAX_NDIMS], n_runs;                            /* runs of one group */
} dynquant_state_t;

/* ---- prepare -------------------------------------------------------------------------------------------------------------------- */

static sinter_status_t bind_groups(dynquant_state_t *st, const dynquant_params_t *p)
{
    st->n_groups = 1;
    for (int d = 0; d < st->ndims; d++) {
        const int s = p->scale_dim[d], z = p->zp_dim[d];
        st->groups[d] = s < 0 ? 1 : st->scale.dims[s];
        st->scale_stride[d] = s < 0 ? 0 : st->scale.strides[s];
        st->zp_stride[d] = st->has_zp && z >= 0 ? st->zp.strides[z] : 0;
        if (st->groups[d] < 1 ? st->in.dims[d] > 0 : st->in.dims[d] % st->groups[d] != 0) {
            return sg_fail(sinter_invalid_shape, "dim %d of %lld elements does not divide into %lld groups", d, (long long)st->in.dims[d],
                           (long long)st->groups[d]);
        }
        if (st->has_zp && (z < 0 ? 1 : st->zp.dims[z]) != st->groups[d]) {
            return sg_fail(sinter_invalid_shape, "zero points have other groups than the scales along dim %d", d);
        }
        st->size[d] = st->groups[d] > 0 ? st->in.dims[d] / st->groups[d] : 0;
        st->n_groups *= st->groups[d];
    }
    return sinter_success;
}

/* Runs go along the dim that is contiguous in the input, or the longest one if that is short. */
static void plan_runs(dynquant_state_t *st)
{
    st->inner = st->ndims - 1;
    for (int d = 0; d < st->ndims; d++) {
        if (st->in.strides[d] == 1 && st->size[d] > 1) {
            st->inner = d;
        }
    }
    for (int d = 0; st->ndims > 0 && st->size[st->inner] < SHORT && d < st->ndims; d++) {
        st->inner = st->size[d] > st->size[st->inner] ? d : st->inner;
    }
    st->n_runs = 1;
    for (int d = 0; d < st->ndims; d++) {
        st->extent[d] = d == st->inner ? (st->size[d] + RUN - 1) / RUN : st->size[d];
        st->n_runs *= st->extent[d];
    }
}

/* Could elements of two groups lie in one byte of the output, or two zero points? */
static bool groups_share_bytes(const dynquant_state_t *st)
{
    const int packed = dtype_traits(st->out.dtype)->block_elems;
    if (st->has_zp && dtype_is_packed(st->zp.dtype)) {
        return true;
    }
    for (int d = 0; d < st->ndims; d++) {
        const int64_t step = st->out.strides[d] == 1 ? st->size[d] : st->out.strides[d];
        const int64_t n = st->out.strides[d] == 1 ? st->groups[d] : st->out.dims[d];
        if (n > 1 && step % packed != 0) {
            return true;
        }
    }
    return false;
}

static sinter_status_t prepare(const plan_t *plan, const step_t *step, const frame_t *frame, void *state)
{
    const dynquant_params_t *p = &step->p.dynquant;
    dynquant_state_t *st = state;
    (void)plan;
    st->fn = eltwise_table(step->kernel->isa);
    st->in = frame->v[p->in];
    st->out = frame->v[p->out];
    st->scale = frame->v[p->scale];
    st->has_zp = p->zp >= 0;
    if (st->has_zp) {
        st->zp = frame->v[p->zp];
    }
    st->ndims = st->in.ndims;
    st->tensor_scale = 1;
    if (p->tensor_scale >= 0) {
        const bound_t *t = &frame->v[p->tensor_scale];
        eltwise_load(st->fn, t->dtype, t->data, 0, 0, 1, &st->tensor_scale);
    }
    SG_TRY(bind_groups(st, p));
    plan_runs(st);
    st->serial = groups_share_bytes(st);
    return sinter_success;
}

/* ---- scales --------------------------------------------------------------------------------------------------------------------- */

/* Of one group: the bits of max |x| (above those of infinity: NaN), min(0, x), max(0, x). */
typedef struct extremes {
    int32_t amax_bits;
    float lo, hi;
} extremes_t;

/* How the elements of a group are made: q = (x / divisor) + zp. */
typedef struct quantum {
    float divisor, zp;
    bool zeros; /* every element is 0 */
} quantum_t;

typedef struct formula {
    const dtype_traits_t *elem, *scale;
    float tensor_scale;
} formula_t;

static float float_of(int32_t bits)
{
    float x;
    memcpy(&x, &bits, sizeof(x));
    return x;
}

/* x as the scales' type stores it. */
static float stored(const dtype_traits_t *type, float x)
{
    unsigned char code[8];
    float y;
    type->codec.store_f32(code, 0, 1, 1, &x);
    type->codec.load_f32(code, 0, 1, 1, &y);
    return y;
}

static float power_of_two(int e)
{
    return ldexpf(1, e < -127 ? -127 : e > 127 ? 127 : e);
}

static float mx_scale(const formula_t *f, const extremes_t *x)
{
    int e, emax; /* frexp's exponents are both one more than floor(log2) */
    frexp(f->elem->max, &emax);
    frexpf(float_of(x->amax_bits), &e);
    return x->amax_bits == 0 ? 0x1p-127f : power_of_two(e - emax);
}

static float rceil_scale(const formula_t *f, const extremes_t *x)
{
    int e;
    const float s = float_of(x->amax_bits) / (float)f->elem->max, fraction = frexpf(s, &e);
    return s < 0x1p-127f ? 0x1p-127f : power_of_two(fraction == 0.5f ? e - 1 : e);
}

/* Saturated, and never 0. */
static float storable(const dtype_traits_t *type, double s)
{
    const float f = stored(type, s > type->max ? (float)type->max : (float)s);
    return (float)s == 0 || f == 0 ? 1 : f;
}

static float symmetric_scale(const formula_t *f, const extremes_t *x)
{
    return storable(f->scale, float_of(x->amax_bits) / (float)f->elem->max);
}

/* In double, as hi - lo may be beyond f32 where the scale is not. */
static float asymmetric_scale(const formula_t *f, const extremes_t *x)
{
    return storable(f->scale, ((double)x->hi - x->lo) / (f->elem->max - f->elem->min));
}

static float nv_scale(const formula_t *f, const extremes_t *x)
{
    const float s = float_of(x->amax_bits) / (float)f->elem->max / f->tensor_scale, low = 0x1p-9f, high = 448;
    return stored(f->scale, s < low ? low : s > high ? high : s);
}

/* By quant_kind_t. */
static float (*const scale_of[])(const formula_t *f, const extremes_t *x) = {
    [QUANT_DYNAMIC_MX] = mx_scale,
    [QUANT_DYNAMIC_MX_RCEIL] = rceil_scale,
    [QUANT_DYNAMIC_SYMMETRIC] = symmetric_scale,
    [QUANT_DYNAMIC_ASYMMETRIC] = asymmetric_scale,
    [QUANT_DYNAMIC_NV] = nv_scale,
};

/* ---- groups --------------------------------------------------------------------------------------------------------------------- */

typedef struct cursor {
    int64_t at[SINTER_MAX_NDIMS], in, out; /* run of the group; first elements */
    int n;
} cursor_t;

static void locate(const dynquant_state_t *st, const int64_t *group, cursor_t *c)
{
    c->in = c->out = 0;
    c->n = 1;
    for (int d = 0; d < st->ndims; d++) {
        const int64_t within = d == st->inner ? c->at[d] * RUN : c->at[d], i = group[d] * st->size[d] + within;
        c->in += i * st->in.strides[d];
        c->out += i * st->out.strides[d];
        if (d == st->inner) {
            c->n = st->size[d] - within < RUN ? (int)(st->size[d] - within) : RUN;
        }
    }
}

static int64_t stride_at(const dynquant_state_t *st, const int64_t *strides)
{
    return st->ndims > 0 ? strides[st->inner] : 1;
}

static void widen(extremes_t *e, const float *x, int n)
{
    int32_t bits[RUN], amax = e->amax_bits;
    float lo = e->lo, hi = e->hi;
    memcpy(bits, x, (size_t)n * sizeof(*x));
    for (int i = 0; i < n; i++) {
        const int32_t u = bits[i] & 0x7FFFFFFF;
        amax = u > amax ? u : amax;
        lo = x[i] < lo ? x[i] : lo;
        hi = x[i] > hi ? x[i] : hi;
    }
    e->amax_bits = amax;
    e->lo = lo;
    e->hi = hi;
}

static void put(const dynquant_state_t *st, const bound_t *to, const int64_t *stride, const int64_t *group, float x)
{
    int64_t at = 0;
    for (int d = 0; d < st->ndims; d++) {
        at += group[d] * stride[d];
    }
    eltwise_store(st->fn, to->dtype, to->data, at, 1, 1, &x);
}

static quantum_t derive(const dynquant_state_t *st, int kind, const int64_t *group, const extremes_t *x)
{
    const formula_t f = {dtype_traits(st->out.dtype), dtype_traits(st->scale.dtype), st->tensor_scale};
    const extremes_t none = {0, 0, 0}, *seen = x->amax_bits < 0x7F800000 ? x : &none;
    const float computed = scale_of[kind](&f, seen), scale = seen == x ? computed : NAN;
    quantum_t q = {scale * st->tensor_scale, 0, isnan(scale)};
    put(st, &st->scale, st->scale_stride, group, scale);
    if (st->has_zp) {
        q.zp = stored(dtype_traits(st->zp.dtype), stored(f.elem, rintf((float)f.elem->min - seen->lo / computed)));
        put(st, &st->zp, st->zp_stride, group, q.zp);
    }
    return q;
}

static void quantise(const dynquant_state_t *st, const quantum_t *q, float *x, int n)
{
    if (q->zeros) {
        memset(x, 0, (size_t)n * sizeof(*x));
        return;
    }
    for (int i = 0; i < n; i++) {
        x[i] /= q->divisor;
    }
    if (st->has_zp) {
        st->fn->op[sinter_op_round](x, x, NULL, NULL, n, NULL);
        for (int i = 0; i < n; i++) {
            x[i] += q->zp;
        }
    }
}

static void one_group(const dynquant_state_t *st, int kind, const int64_t *group, float *x)
{
    const dtype_codec_t *codec = &dtype_traits(st->out.dtype)->codec;
    const int64_t in_step = stride_at(st, st->in.strides), out_step = stride_at(st, st->out.strides);
    extremes_t e = {0, 0, 0};
    cursor_t c = {.n = 0};
    for (int64_t run = 0; run < st->n_runs; run++, walk_next(st->ndims, st->extent, c.at)) {
        locate(st, group, &c);
        eltwise_load(st->fn, st->in.dtype, st->in.data, c.in, in_step, c.n, x);
        widen(&e, x, c.n);
    }
    const quantum_t q = derive(st, kind, group, &e);
    for (int64_t run = 0; run < st->n_runs; run++, walk_next(st->ndims, st->extent, c.at)) {
        locate(st, group, &c);
        eltwise_load(st->fn, st->in.dtype, st->in.data, c.in, in_step, c.n, x);
        quantise(st, &q, x, c.n);
        codec->store_sat(st->out.data, c.out, out_step, c.n, x);
    }
}

static void work(const plan_t *plan, const step_t *step, const frame_t *frame, const void *state, int phase, int tid, int nth,
                 void *scratch, void *shared)
{
    const dynquant_state_t *st = state;
    int64_t begin, end, group[SINTER_MAX_NDIMS] = {0};
    (void)plan, (void)frame, (void)phase, (void)shared;
    share(st->n_groups, st->serial ? 0 : tid, st->serial ? 1 : nth, &begin, &end);
    if (begin >= end || (st->serial && tid > 0)) {
        return;
    }
    walk_seek(st->ndims, st->groups, begin, group);
    for (int64_t g = begin; g < end; g++, walk_next(st->ndims, st->groups, group)) {
        one_group(st, step->p.dynquant.kind, group, scratch);
    }
}

/* ---- the kernels ---------------------------------------------------------------------------------------------------------------- */

static size_t thread_bytes(const plan_t *plan, const step_t *step)
{
    (void)plan, (void)step;
    return RUN * sizeof(float);
}

static sinter_status_t setup(plan_t *plan, step_t *step)
{
    (void)plan;
    step->state_bytes = sizeof(dynquant_state_t);
    step->note = "two walks over each group";
    return sinter_success;
}

static const char *refuse(const plan_t *plan, const step_t *step)
{
    return dtype_needs_f64(plan->values[step->p.dynquant.in].lt.data_type) ? "the input needs double precision" : NULL;
}

#define DYNQUANT \
    .step = STEP_DYNQUANT, .refuse = refuse, .setup = setup, .thread_bytes = thread_bytes, .prepare = prepare, .work = work, .phases = 1
KERNEL(dynquant_groups_f32_avx512, DYNQUANT, .isa = sinter_isa_avx512, .cost = 200)
KERNEL(dynquant_groups_f32_avx2, DYNQUANT, .isa = sinter_isa_avx2, .cost = 300)
KERNEL(dynquant_groups_f32_generic, DYNQUANT, .isa = sinter_isa_generic, .cost = 400)
