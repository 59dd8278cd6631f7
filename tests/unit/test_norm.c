/* Norms of rows against plain loops in double: lengths, strides, types of the parameters, stores
 * past the caches, rows whose elements lie far from the first ones or from 0, vast, tiny and
 * special values, statistics, threads, ISA levels. */
#include <math.h>

#include "backend_xsmm/chain/chain.h"
#include "rig.h"

static sinter_cpu_isa_t cap;

/* What the rows hold. */
typedef enum rows_kind {
    PLAIN,
    ASIDE,    /* a small spread around a large value */
    STEPS,    /* the first elements are zeros, the others lie around 50 */
    CONSTANT, /* 0.1 throughout */
    FAR,      /* 10^7 and one or two more */
    VAST,     /* 3e38 and -3e38 by turns */
    TINY,     /* around 1e-25 */
    LEAST,    /* a few units of 2^-149 */
    SPECIAL,  /* a NaN or an infinity in some rows */
    OPPOSED,  /* infinities of both signs, thousands of elements apart in long rows */
    KINDS
} rows_kind_t;

typedef struct norm_case {
    int64_t rows, n;
    sinter_data_type_t in, out;
    sinter_data_type_t gamma, beta; /* sinter_data_type_undef: none */
    bool one;                       /* gamma and beta have one element */
    bool follows;                   /* the result is stored after an op more */
} norm_case_t;

static double sample(const norm_case_t *c, rows_kind_t kind, int64_t row, int64_t i)
{
    const double x = (rig_pick(4001) - 2000) / 1024.0;
    switch (kind) {
    case ASIDE:
        return 300 + x / 16;
    case STEPS:
        return i < 40 ? 0 : 50 + x;
    case CONSTANT:
        return 0.1;
    case FAR:
        return 1e7 + (double)rig_pick(3);
    case VAST:
        return i % 2 ? 3e38 : -3e38;
    case TINY:
        return x * 1e-25;
    case LEAST:
        return ldexp((double)rig_pick(5), -149);
    case OPPOSED:
        return i == 1 ? INFINITY : i == c->n - 1 ? -INFINITY : x;
    case SPECIAL:
        return i == 3 && row % 3 ? (row % 3 == 1 ? NAN : INFINITY) : x;
    default:
        return x;
    }
}

static int parameter(rig_t *r, sinter_data_type_t type, const norm_case_t *c)
{
    if (type == sinter_data_type_undef) {
        return -1;
    }
    const int64_t dims[2] = {1, c->one ? 1 : c->n};
    const int v = rig_value(r, type, 2, dims, NULL);
    rig_fill(r, v, 1, 7);
    return v;
}

/* y = x * gamma + beta, perhaps |y|, stored. */
static void make_post(rig_t *r, step_t *step, const norm_case_t *c, const int *params, int out)
{
    const node_t ops[2] = {{.kind = sinter_op_multiply, .n_in = 2},
                           {.kind = sinter_op_add, .n_in = 2}},
                 abs = {.kind = sinter_op_abs, .n_in = 1};
    chain_builder_t b;
    int y = 0;
    chain_begin(&b, &r->plan.arena, 2, out, true);
    for (int i = 0; i < 2; i++) {
        if (params[i] >= 0) {
            const int loaded = chain_load(&b, params[i], 2);
            y = chain_op(&b, &ops[i], (int[]){y, loaded}, 2);
        }
    }
    y = c->follows ? chain_op(&b, &abs, &y, 1) : y;
    CHECK(chain_store(&b, y, out, NULL) == sinter_success &&
              chain_finish(&b, -1, false, &step->post) == sinter_success,
          "chain");
}

static void make_pre(rig_t *r, step_t *step, int in)
{
    chain_builder_t b;
    chain_begin(&b, &r->plan.arena, 2, in, false);
    const int x = chain_load(&b, in, 2);
    CHECK(chain_finish(&b, x, false, &step->pre) == sinter_success, "chain");
}

static bool near(double got, double want, double bound, int digits)
{
    if (!isfinite((float)want)) {
        return isnan(want) ? isnan(got) : got == (float)want;
    }
    return fabs(got - want) <= bound + fabs(want) * ldexp(1, -digits);
}

/* Sums in double of a row. Differences from an infinite mean are NaN. */
static void find_moments(rig_t *r, int v, const norm_case_t *c, int64_t row, bool centred,
                         double *mean, double *variance)
{
    double sum = 0, squares = 0;
    for (int64_t i = 0; i < c->n; i++) {
        sum += centred ? rig_get(r, v, (int64_t[]){row, i}) : 0;
    }
    *mean = sum / (double)c->n;
    for (int64_t i = 0; i < c->n; i++) {
        const double d = rig_get(r, v, (int64_t[]){row, i}) - *mean;
        squares += d * d;
    }
    *variance = squares / (double)c->n;
}

/* Counts what is wrong in a row. Errors do not grow with its length, nor with its mean but for the
 * rounding of that: 8 units of f32, and 8 of the result, before gamma and beta. */
static int check_row(rig_t *r, const norm_case_t *c, const step_t *step, const int *v, int64_t row)
{
    const norm_params_t *p = &step->p.norm;
    const double u = 0x1p-24;
    double mean, variance;
    int bad = 0;
    find_moments(r, v[0], c, row, p->centered, &mean, &variance);
    const double factor = 1 / sqrt(variance + p->epsilon),
                 deviation = isinf(variance) ? 0 : sqrt(variance);
    for (int64_t i = 0; i < c->n; i++) {
        const int64_t at[2] = {row, i}, param[2] = {0, c->one ? 0 : i};
        const double normed = (rig_get(r, v[0], at) - mean) * factor,
                     gamma = v[2] >= 0 ? rig_get(r, v[2], param) : 1,
                     beta = v[3] >= 0 ? rig_get(r, v[3], param) : 0;
        double y = normed * gamma + beta;
        const double error = 8 * u * (deviation * factor + fabs(normed)) * fabs(gamma) +
                             4 * u * (fabs(y) + fabs(beta)) + 0x1p-130;
        y = c->follows ? fabs(y) : y;
        const double got = rig_get(r, v[1], at);
        if (!near(got, y, error, dtype_traits(c->out)->digits) && bad++ == 0) {
            printf("row %d, element %d: %.9g, expected %.9g +- %.2g\n", (int)row, (int)i, got, y,
                   error);
        }
    }
    for (int k = 0; k < 2 && p->mean >= 0; k++) {
        const double got = rig_get(r, k ? p->variance : p->mean, &row), want = k ? variance : mean;
        if (!near(got, want, k ? 16 * u * want : 8 * u * deviation, 24) &&
            !(fabs(got - want) < 0x1p-149) && bad++ == 0) {
            printf("row %d: %s %.9g, expected %.9g\n", (int)row, k ? "variance" : "mean", got,
                   want);
        }
    }
    return bad;
}

static void check_norm(const norm_case_t *c, rows_kind_t kind, bool centered, bool past,
                       double epsilon)
{
    rig_t r;
    int64_t dims[2] = {c->rows, c->n}, strides[2] = {c->n + (past ? 64 : 3), 1};
    rig_init(&r, cap);
    r.plan.cache_bytes = past; /* 1: results are too large for it */
    const int in = rig_value(&r, c->in, 2, dims, strides),
              out = rig_value(&r, c->out, 2, dims, rig_pick(2) ? strides : NULL),
              params[2] = {parameter(&r, c->gamma, c), parameter(&r, c->beta, c)},
              v[4] = {in, out, params[0], params[1]};
    for (int64_t i = 0; i < c->rows * c->n; i++) {
        const int64_t at[2] = {i / c->n, i % c->n};
        rig_set(&r, in, at, sample(c, kind, at[0], at[1]));
    }
    step_t step = {.kind = STEP_NORM};
    step.p.norm =
        (norm_params_t){.x = in,
                        .mean = centered ? rig_value(&r, sinter_f32, 1, &c->rows, NULL) : -1,
                        .variance = centered ? rig_value(&r, sinter_f32, 1, &c->rows, NULL) : -1,
                        .begin_axis = -1,
                        .centered = centered,
                        .epsilon = epsilon};
    make_pre(&r, &step, in);
    make_post(&r, &step, c, params, out);
    const kernel_t *kernels[RIG_KERNELS];
    const int n_kernels = rig_kernels(&r, &step, kernels);
    CHECK(n_kernels >= 1, "a kernel accepts");
    for (int k = 0; k < n_kernels; k++) {
        int bad = 0;
        memset(r.v[out].data, RIG_FILL, r.bytes[out]);
        CHECK(rig_run(&r, kernels[k], &step, 1 + k) == sinter_success, "%s: %s", kernels[k]->name,
              sinter_last_error_message());
        for (int64_t row = 0; row < c->rows; row++) {
            bad += check_row(&r, c, &step, v, row);
        }
        CHECK(bad == 0 && rig_guarded(&r, out),
              "%s: %s norm of %d x %d, rows of kind %d, epsilon %g%s", kernels[k]->name,
              centered ? "layer" : "RMS", (int)c->rows, (int)c->n, (int)kind, epsilon,
              past ? ", past the caches" : "");
    }
    rig_free(&r);
}

int main(void)
{
    const sinter_data_type_t f32 = sinter_f32, bf16 = sinter_bf16, none = sinter_data_type_undef;
    const norm_case_t cases[] = {
        {7, 4, f32, f32, f32, f32, false, false},
        {9, 17, f32, f32, f32, none, false, false},
        {5, 1023, f32, f32, f32, f32, false, false},
        {5, 1025, f32, f32, none, f32, false, false},
        {6, 2100, f32, f32, f32, f32, false, true},
        {5, 3001, f32, f32, f32, none, false, false},
        {3, 17001, f32, f32, f32, f32, false, false},
        {4, 1500, f32, f32, f32, f32, true, false},
        {4, 4097, f32, f32, none, none, false, false},
        {4, 2049, bf16, bf16, bf16, bf16, false, false},
        {4, 1100, f32, bf16, bf16, f32, false, false},
        {4, 1100, bf16, f32, f32, none, true, false},
        {90, 3100, f32, f32, f32, f32, false, false}, /* the next row is fetched */
    };
    if (cpu_isa_cap(sinter_isa_default, &cap) != sinter_success) {
        return 1;
    }
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int form = 0; form < 8 * KINDS; form++) {
            if (cases[i].rows < 90 || form / 8 == PLAIN) {
                check_norm(&cases[i], (rows_kind_t)(form / 8), form & 1, form & 2,
                           form & 4 ? 0 : 1e-5f);
            }
        }
    }
    return check_finish();
}
