/* SoftMax, LogSoftmax and dynamic quantisation kernels against plain loops in double: any axis,
 * strides, types, special values, threads, ISA levels. */
#include <math.h>

#include "backend_xsmm/chain/chain.h"
#include "graph/quant.h"
#include "rig.h"

static sinter_cpu_isa_t cap;

static void store_chain(rig_t *r, step_t *step, int out, int with_input)
{
    chain_builder_t b;
    chain_begin(&b, &r->plan.arena, r->v[out].ndims, out, with_input);
    CHECK((!with_input || chain_store(&b, 0, out, NULL) == sinter_success) &&
              chain_finish(&b, -1, false, &step->post) == sinter_success,
          "chain");
}

/* ---- softmax --------------------------------------------------------------------------------- */

typedef struct softmax_case {
    int ndims;
    int64_t dims[4];
    int axis;
    sinter_data_type_t in, out;
    int special; /* 1: some rows of -inf, 2: also NaN and +inf here and there */
} softmax_case_t;

/* Expected along one row, with what f32 code may be off by: the exponent's roundings, a few
 * units, the sum's. sink: -inf is none. */
static void softmax_row(const double *x, int64_t n, double sink, bool log_form, bool zero,
                        double *y, double *tol, double *stats, double *stats_tol)
{
    double max = sink, sum = 0, nan = isnan(sink);
    for (int64_t i = 0; i < n; i++) {
        max = x[i] > max ? x[i] : max;
        nan += isnan(x[i]);
    }
    for (int64_t i = 0; i < n; i++) {
        sum += exp(x[i] - max);
    }
    sum += sink == -INFINITY ? 0 : exp(sink - max);
    const double rel = (12 + 2 * sqrt((double)n)) * 0x1p-24;
    for (int64_t i = 0; i < n; i++) {
        y[i] = log_form ? x[i] - max - log(sum) : exp(x[i] - max) / sum;
        tol[i] = log_form
                     ? (fabs(x[i]) + 2 * fabs(max) + 8 * fabs(log(sum)) + 12) * 0x1p-24 + rel
                     : (y[i] == 0 ? 0 : y[i] * (rel + 2 * fabs(x[i] - max) * 0x1p-24)) + 0x1p-140;
    }
    *stats = max + log(sum);
    *stats_tol = (2 * fabs(max) + 8 * fabs(log(sum))) * 0x1p-24 + rel;
    if (max == -INFINITY && nan == 0) {
        *stats = -INFINITY;
        for (int64_t i = 0; i < n; i++) {
            y[i] = zero ? 0 : NAN;
            tol[i] = 0;
        }
    }
}

static bool near(double got, double want, double tol, int digits)
{
    if (isnan(want) || isinf(want)) {
        return isnan(want) ? isnan(got) : got == want;
    }
    return fabs(got - want) <=
           tol + fmax(fabs(want) * ldexp(1, -digits),
                      digits == 11 ? 0x1p-25
                                   : 0); /* half a unit of the stored type, subnormal f16 too */
}

static double sample(const softmax_case_t *c, int64_t row, int64_t i)
{
    if (c->special && row % 3 == 1) {
        return -INFINITY;
    }
    if (c->special > 1 && row % 5 == 2 && i == 1) {
        return row % 2 ? NAN : INFINITY;
    }
    return c->special && rig_pick(4) == 0 ? -INFINITY : (rig_pick(4001) - 2000) / 64.0;
}

/* Sinks for each row, or shared along the dims whose bit is set in `shared`; some are -inf. */
static int sinks(rig_t *r, const softmax_case_t *c, const int64_t *row_dims, int shared)
{
    int64_t dims[4], idx[4];
    for (int d = 0; d < c->ndims; d++) {
        dims[d] = shared >> d & 1 ? 1 : row_dims[d];
    }
    const int sink = rig_value(r, sinter_f32, c->ndims, dims, NULL);
    for (int64_t row = 0, n = rig_count(&r->v[sink]); row < n; row++) {
        rig_index(&r->v[sink], row, idx);
        rig_set(r, sink, idx, row % 4 == 3 ? -INFINITY : (rig_pick(4001) - 2000) / 64.0);
    }
    return sink;
}

static double sink_of(rig_t *r, int sink, const int64_t *row)
{
    int64_t idx[4];
    for (int d = 0; sink >= 0 && d < r->v[sink].ndims; d++) {
        idx[d] = r->v[sink].dims[d] == 1 ? 0 : row[d];
    }
    return sink >= 0 ? rig_get(r, sink, idx) : -INFINITY;
}

/* shared: see sinks(); -1: no sinks. */
static void softmax_one(const softmax_case_t *c, bool log_form, bool zero, bool stats, int shared)
{
    rig_t r;
    int64_t strides[4], stat_dims[4], idx[4];
    rig_init(&r, cap);
    r.plan.cache_bytes = (size_t)rig_pick(2); /* 1: results are too large for it */
    rig_strides(c->ndims, c->dims, strides);
    const int in = rig_value(&r, c->in, c->ndims, c->dims, strides);
    rig_strides(c->ndims, c->dims, strides);
    const int out = rig_value(&r, c->out, c->ndims, c->dims, strides);
    memcpy(stat_dims, c->dims, sizeof stat_dims);
    stat_dims[c->axis] = 1;
    const int st = rig_value(&r, sinter_f32, c->ndims, stat_dims, NULL);
    const int sink = shared >= 0 ? sinks(&r, c, stat_dims, shared) : -1;
    const int64_t n = c->dims[c->axis], rows = rig_count(&r.v[st]);
    for (int64_t row = 0; row < rows; row++) {
        rig_index(&r.v[st], row, idx);
        for (idx[c->axis] = 0; idx[c->axis] < n; idx[c->axis]++) {
            rig_set(&r, in, idx, sample(c, row, idx[c->axis]));
        }
    }
    step_t step = {.kind = STEP_SOFTMAX};
    step.p.softmax = (softmax_params_t){.in = in,
                                        .stats = stats ? st : -1,
                                        .sink = sink,
                                        .axis = c->axis,
                                        .inf_as_zero = zero,
                                        .log = log_form};
    store_chain(&r, &step, out, true);
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    double *x = malloc(sizeof(double) * 3 * (size_t)(n + 1)), *y = x + n, *tol = y + n, s, s_tol;
    CHECK(n_kernels >= 1, "a kernel accepts");
    for (int k = 0; k < n_kernels; k++) {
        memset(r.v[out].data, RIG_FILL, r.bytes[out]);
        CHECK(rig_run(&r, kernels[k], &step, 1 + k) == sinter_success, "%s: %s", kernels[k]->name,
              sinter_last_error_message());
        int bad = 0;
        for (int64_t row = 0; row < rows; row++) {
            rig_index(&r.v[st], row, idx);
            for (int64_t i = 0; i < n; i++) {
                idx[c->axis] = i;
                x[i] = rig_get(&r, in, idx);
            }
            idx[c->axis] = 0;
            softmax_row(x, n, sink_of(&r, sink, idx), log_form, zero && !log_form, y, tol, &s,
                        &s_tol);
            for (int64_t i = 0; i < n; i++) {
                idx[c->axis] = i;
                bad += !near(rig_get(&r, out, idx), y[i], tol[i], dtype_traits(c->out)->digits);
            }
            idx[c->axis] = 0;
            bad += stats && n > 0 && !near(rig_get(&r, st, idx), s, s_tol, 24);
        }
        CHECK(bad == 0 && rig_guarded(&r, out) && rig_guarded(&r, st), "%s: %s", kernels[k]->name,
              log_form     ? "log"
              : c->special ? "special"
                           : "plain");
    }
    free(x);
    rig_free(&r);
}

static void softmax_all(void)
{
    static const softmax_case_t cases[] = {
        {1, {1}, 0, sinter_f32, sinter_f32, 0},
        {1, {17}, 0, sinter_f32, sinter_f32, 0},
        {2, {7, 256}, 1, sinter_f32, sinter_f32, 1},
        {2, {5, 300}, 1, sinter_f16, sinter_f16, 1},
        {3, {2, 3, 4097}, 2, sinter_f32, sinter_f32, 0},
        {2, {3, 9000}, 1, sinter_bf16, sinter_f32, 1},
        {2, {3, 4096}, 1, sinter_f32, sinter_bf16, 1},
        {2, {80, 4000}, 1, sinter_f32, sinter_f32, 0}, /* the next row is fetched */
        {2, {300, 5}, 0, sinter_f32, sinter_f32, 1},
        {3, {3, 70, 33}, 1, sinter_f32, sinter_bf16, 2},
        {4, {2, 9, 5, 70}, 1, sinter_f32, sinter_f32, 2},
        {4, {2, 9, 5, 7}, 2, sinter_bf16, sinter_f16, 1},
        {3, {2, 30, 300}, 0, sinter_f32, sinter_f32, 2},
        {2, {20, 33}, 1, sinter_f32, sinter_f32, 2},
        {3, {4, 0, 5}, 1, sinter_f32, sinter_f32, 0},
        {3, {4, 5, 0}, 1, sinter_f32, sinter_f32, 0},
        {3, {2, 5000, 17}, 1, sinter_f32, sinter_f32, 0},
        {4, {3, 12, 28, 28}, 1, sinter_f32, sinter_f32, 1},
        {4, {3, 2, 12, 1}, 2, sinter_f32, sinter_f32, 1},
        {4, {3, 1, 12, 20}, 2, sinter_f32, sinter_f16, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int form = 0; form < 6; form++) {
            softmax_one(&cases[i], form >= 4, form & 1, form & 2, -1);
        }
        for (int shared = 0; shared < 1 << cases[i].ndims; shared += 1 + (int)(i % 2)) {
            softmax_one(&cases[i], false, shared & 1, true, shared);
        }
    }
}

/* A post chain on probabilities, into packed codes: round(p * 8) is exact for uniform rows. */
static void softmax_quantised(void)
{
    rig_t r;
    const int64_t dims[] = {9, 8};
    rig_init(&r, cap);
    const int in = rig_value(&r, sinter_f32, 2, dims, NULL),
              out = rig_value(&r, sinter_u4, 2, dims, NULL),
              scale = rig_value(&r, sinter_f32, 0, NULL, NULL);
    rig_fill(&r, in, 3, 3);
    rig_set(&r, scale, NULL, 0x1p-6);
    step_t step = {.kind = STEP_SOFTMAX};
    step.p.softmax = (softmax_params_t){.in = in, .stats = -1, .sink = -1, .axis = 1};
    chain_builder_t b;
    chain_begin(&b, &r.plan.arena, 2, out, true);
    const int q = chain_quant(&b, 0, chain_load(&b, scale, 0), -1, sinter_u4);
    CHECK(chain_store(&b, q, out, NULL) == sinter_success &&
              chain_finish(&b, -1, false, &step.post) == sinter_success,
          "quantised");
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    for (int k = 0; k < n_kernels; k++) {
        CHECK(rig_run(&r, kernels[k], &step, 3) == sinter_success, "quantised: %s",
              sinter_last_error_message());
        for (int64_t i = 0; i < 72; i++) {
            int64_t idx[2];
            rig_index(&r.v[out], i, idx);
            CHECK(rig_get(&r, out, idx) == 8, "quantised: %s", kernels[k]->name);
        }
    }
    rig_free(&r);
}

/* ---- dynamic quantisation -------------------------------------------------------------------- */

typedef struct quant_case {
    quant_kind_t kind;
    sinter_data_type_t type, scale;
    int ndims;
    int64_t dims[3], groups[3];
} quant_case_t;

/* Formulas of the numeric contract in double; x is whole numbers, f32 divisions are followed by
 * hand. */
static double expected_scale(const quant_case_t *c, double amax, double lo, double hi, bool special)
{
    const dtype_traits_t *t = dtype_traits(c->type);
    unsigned char code[8];
    double s;
    switch (c->kind) {
    case QUANT_DYNAMIC_MX:
        return special ? NAN
               : amax == 0
                   ? 0x1p-127
                   : fmax(0x1p-127, ldexp(1, (int)(floor(log2(amax)) - floor(log2(t->max)))));
    case QUANT_DYNAMIC_MX_RCEIL:
        return special     ? NAN
               : amax == 0 ? 0x1p-127
                           : fmax(0x1p-127, exp2(ceil(log2((float)(amax / t->max)))));
    case QUANT_DYNAMIC_SYMMETRIC:
        s = amax == 0 ? 1 : (float)(amax / t->max);
        break;
    case QUANT_DYNAMIC_ASYMMETRIC:
        s = hi == lo ? 1 : (float)((hi - lo) / (t->max - t->min));
        break;
    default:
        s = (float)((float)(amax / 6) / 0.5);
        s = s < 0x1p-9 ? 0x1p-9 : s > 448 ? 448 : s;
        break; /* tensor scale 0.5 */
    }
    orc_encode(c->scale, code, 0, s);
    return orc_decode(c->scale, code, 0);
}

static double expected_code(const quant_case_t *c, double x, double scale, double zp)
{
    const dtype_traits_t *t = dtype_traits(c->type);
    unsigned char code[8];
    double v = (float)(x / (c->kind == QUANT_DYNAMIC_NV ? scale * 0.5 : scale));
    const bool saturates =
        c->kind != QUANT_DYNAMIC_SYMMETRIC && c->kind != QUANT_DYNAMIC_ASYMMETRIC;
    if (isnan(scale)) {
        return 0;
    }
    if (t->cls == DTYPE_INT) {
        v = rint(v) + zp;
    } else if (saturates) {
        v = v > t->max ? t->max : v < -t->max ? -t->max : v;
    }
    orc_encode(c->type, code, 0, v);
    return orc_decode(c->type, code, 0);
}

static void dynquant_one(const quant_case_t *c, int kind_of_data)
{
    rig_t r;
    int64_t strides[3], idx[3], g[3];
    rig_init(&r, cap);
    rig_strides(c->ndims, c->dims, strides);
    const int in =
        rig_value(&r, kind_of_data == 2 ? sinter_bf16 : sinter_f32, c->ndims, c->dims, strides);
    rig_strides(c->ndims, c->dims, strides);
    const int out = rig_value(&r, c->type, c->ndims, c->dims, strides),
              scale = rig_value(&r, c->scale, c->ndims, c->groups, NULL);
    const int zp = rig_value(&r, c->type == sinter_u4 ? sinter_u4 : sinter_s32, c->ndims, c->groups,
                             NULL),
              t = rig_value(&r, sinter_f32, 0, NULL, NULL);
    const bool has_zp = c->kind == QUANT_DYNAMIC_ASYMMETRIC;
    const int64_t n = rig_count(&r.v[in]);
    rig_set(&r, t, NULL, 0.5);
    for (int64_t i = 0; i < n; i++) {
        rig_index(&r.v[in], i, idx);
        const bool zero_group = idx[0] % 3 == 0 && kind_of_data == 1;
        const double edge =
            dtype_traits(c->type)->max *
            8; /* some groups reach exactly what a power of two scales to the largest code */
        rig_set(&r, in, idx,
                zero_group                        ? 0
                : kind_of_data == 2 && i % 7 == 0 ? edge
                : kind_of_data == 2
                    ? floor((rig_pick(2001) - 1000) * edge / 1000)
                    : (rig_pick(2001) - 1000) * (kind_of_data == 3 ? 0x1p-140 : 0x1p-3));
    }
    if (kind_of_data == 1 && c->kind <= QUANT_DYNAMIC_MX_RCEIL) {
        memset(idx, 0, sizeof idx);
        idx[0] = c->dims[0] - 1;
        rig_set(&r, in, idx, INFINITY);
    }
    step_t step = {.kind = STEP_DYNQUANT};
    step.p.dynquant = (dynquant_params_t){.in = in,
                                          .out = {.data = out,
                                                  .scale = scale,
                                                  .zp = has_zp ? zp : -1,
                                                  .high = -1,
                                                  .scale_dim = {0, 1, 2},
                                                  .zp_dim = {0, 1, 2}},
                                          .kind = (int)c->kind,
                                          .tensor_scale = c->kind == QUANT_DYNAMIC_NV ? t : -1};
    store_chain(&r, &step, out, false);
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    CHECK(n_kernels >= 1, "a kernel accepts");
    for (int k = 0; k < n_kernels; k++) {
        memset(r.v[out].data, RIG_FILL, r.bytes[out]);
        CHECK(rig_run(&r, kernels[k], &step, 1 + k) == sinter_success, "%s: %s", kernels[k]->name,
              sinter_last_error_message());
        int bad = 0;
        for (int64_t group = 0; group < rig_count(&r.v[scale]); group++) {
            double amax = 0, lo = 0, hi = 0;
            bool special = false;
            rig_index(&r.v[scale], group, g);
            for (int pass = 0; pass < 2; pass++) {
                const double s = expected_scale(c, amax, lo, hi, special),
                             got_s = rig_get(&r, scale, g);
                unsigned char code[8];
                orc_encode(c->type, code, 0,
                           rint((float)(dtype_traits(c->type)->min - (float)(lo / s))));
                const double z = has_zp ? orc_decode(c->type, code, 0) : 0;
                bad += pass == 1 && !(isnan(s) ? isnan(got_s) : s == got_s);
                bad += pass == 1 && has_zp && rig_get(&r, zp, g) != z;
                for (int64_t i = 0; i < n; i++) {
                    rig_index(&r.v[in], i, idx);
                    bool mine = true;
                    for (int d = 0; d < c->ndims; d++) {
                        mine = mine && idx[d] / (c->dims[d] / c->groups[d]) == g[d];
                    }
                    if (!mine) {
                        continue;
                    }
                    const double x = rig_get(&r, in, idx);
                    if (pass == 0) {
                        amax = fabs(x) > amax ? fabs(x) : amax;
                        lo = x < lo ? x : lo;
                        hi = x > hi ? x : hi;
                        special = special || !isfinite(x);
                    } else {
                        bad += rig_get(&r, out, idx) != expected_code(c, x, s, z);
                    }
                }
            }
        }
        CHECK(bad == 0 && rig_guarded(&r, out) && rig_guarded(&r, scale) && rig_guarded(&r, zp),
              "%s: %s", kernels[k]->name, dtype_traits(c->type)->name);
    }
    rig_free(&r);
}

static void dynquant_all(void)
{
    static const quant_case_t cases[] = {
        {QUANT_DYNAMIC_MX, sinter_f8_e4m3, sinter_e8m0, 2, {7, 96}, {7, 3}},
        {QUANT_DYNAMIC_MX, sinter_f4_e2m1, sinter_e8m0, 2, {6, 64}, {6, 2}},
        {QUANT_DYNAMIC_MX, sinter_f6_e3m2, sinter_e8m0, 3, {2, 6, 32}, {2, 3, 2}},
        {QUANT_DYNAMIC_MX, sinter_s8, sinter_e8m0, 2, {33, 5}, {3, 5}},
        {QUANT_DYNAMIC_MX_RCEIL, sinter_f8_e5m2, sinter_e8m0, 2, {5, 320}, {5, 1}},
        {QUANT_DYNAMIC_MX_RCEIL, sinter_f4_e2m1, sinter_e8m0, 1, {96}, {3}},
        {QUANT_DYNAMIC_SYMMETRIC, sinter_s8, sinter_f32, 2, {9, 300}, {9, 1}},
        {QUANT_DYNAMIC_SYMMETRIC, sinter_s4, sinter_f16, 2, {9, 35}, {3, 7}},
        {QUANT_DYNAMIC_SYMMETRIC, sinter_f8_e4m3, sinter_bf16, 2, {4, 64}, {1, 4}},
        {QUANT_DYNAMIC_ASYMMETRIC, sinter_u8, sinter_f32, 2, {9, 70}, {9, 5}},
        {QUANT_DYNAMIC_ASYMMETRIC, sinter_u4, sinter_f16, 3, {3, 4, 32}, {3, 2, 1}},
        {QUANT_DYNAMIC_ASYMMETRIC, sinter_s8, sinter_bf16, 1, {700}, {1}},
        {QUANT_DYNAMIC_NV, sinter_f4_e2m1, sinter_f8_e4m3, 2, {6, 64}, {6, 4}},
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int data = 0; data < 4; data++) {
            if (data != 3 || cases[i].scale == sinter_e8m0 ||
                cases[i].scale == sinter_f32) { /* data below 2^-126 */
                dynquant_one(&cases[i], data);
            }
        }
    }
}

int main(void)
{
    if (cpu_isa_cap(sinter_isa_default, &cap) != sinter_success) {
        return 1;
    }
    softmax_all();
    softmax_quantised();
    dynquant_all();
    return check_finish();
}
