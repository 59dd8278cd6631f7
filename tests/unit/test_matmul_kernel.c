/* The matmul kernels against plain loops in double: batch broadcasts, transposes, strides,
 * element types, group geometries, post chains, threads, ISA levels. Inputs are small whole
 * numbers and powers of two, so every product is exact in every arithmetic and results compare
 * equal. */
#include <math.h>

#include "backend_xsmm/chain/chain.h"
#include "backend_xsmm/drivers/matmul/matmul_blocks.h"
#include "rig.h"

static sinter_cpu_isa_t cap;

/* One operand: codes with or without scales and zero points of group geometries of their own. */
typedef struct side {
    int data, scale, zp;
    bool trans;
    operand_t op;
} side_t;

static int64_t divisor_of(int64_t n)
{
    int64_t by = n > 0 ? 1 + rig_pick((int)(n < 40 ? n : 40)) : 1;
    while (n % by != 0) {
        by--;
    }
    return by;
}

static int coefficients(rig_t *r, sinter_data_type_t type, int ndims, const int64_t *dims)
{
    int64_t own[SINTER_MAX_NDIMS] = {0}, strides[SINTER_MAX_NDIMS];
    for (int d = 0; d < ndims; d++) {
        own[d] = rig_pick(4) == 0 ? 1 : rig_pick(4) == 0 ? dims[d] : dims[d] / divisor_of(dims[d]);
    }
    rig_strides(ndims, own, strides);
    return rig_value(r, type, ndims, own, strides);
}

/* A matrix of the given rows and columns with nb batch dims (some broadcast); codes in lo..hi. */
static side_t make_side(rig_t *r, int nb, const int64_t *batch, int64_t rows, int64_t cols,
                        bool quantised)
{
    static const sinter_data_type_t plain[] = {sinter_f32, sinter_f16, sinter_bf16, sinter_f8_e4m3},
                                    codes[] = {sinter_s8, sinter_u8, sinter_s4, sinter_u4,
                                               sinter_f4_e2m1};
    side_t s = {.scale = -1, .zp = -1, .trans = rig_pick(2)};
    int64_t dims[SINTER_MAX_NDIMS], strides[SINTER_MAX_NDIMS];
    const int own = rig_pick(3) ? nb : rig_pick(nb + 1);
    for (int d = 0; d < own; d++) {
        dims[d] = rig_pick(3) ? batch[nb - own + d] : 1;
    }
    dims[own] = s.trans ? cols : rows;
    dims[own + 1] = s.trans ? rows : cols;
    rig_strides(own + 2, dims, strides);
    const sinter_data_type_t type = quantised ? codes[rig_pick(5)] : plain[rig_pick(4)];
    s.data = rig_value(r, type, own + 2, dims, strides);
    rig_fill(r, s.data, dtype_traits(type)->min < 0 ? -3 : 0, 3);
    s.op = (operand_t){.data = s.data, .scale = -1, .zp = -1};
    for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
        s.op.scale_dim[d] = s.op.zp_dim[d] = (int8_t)(d < own + 2 ? d : -1);
    }
    if (quantised) {
        s.op.scale = s.scale =
            coefficients(r, rig_pick(2) ? sinter_f16 : sinter_f32, own + 2, dims);
        rig_fill(r, s.scale, 1, 2);
        if (dtype_traits(type)->cls == DTYPE_INT && rig_pick(2)) {
            s.op.zp = s.zp = coefficients(r, type, own + 2, dims);
            rig_fill(r, s.zp, 0, 3);
        }
    }
    return s;
}

static double side_at(const rig_t *r, const side_t *s, const int64_t *batch_idx, int nb,
                      int64_t row, int64_t col)
{
    const bound_t *b = &r->v[s->data];
    const int own = b->ndims - 2;
    int64_t idx[SINTER_MAX_NDIMS], g[SINTER_MAX_NDIMS];
    double zp = 0, scale = 1;
    for (int d = 0; d < own; d++) {
        idx[d] = b->dims[d] == 1 ? 0 : batch_idx[nb - own + d];
    }
    idx[own] = s->trans ? col : row;
    idx[own + 1] = s->trans ? row : col;
    if (s->scale >= 0) {
        for (int d = 0; d < b->ndims; d++) {
            g[d] = idx[d] * r->v[s->scale].dims[d] / b->dims[d];
        }
        scale = rig_get(r, s->scale, g);
    }
    if (s->zp >= 0) {
        for (int d = 0; d < b->ndims; d++) {
            g[d] = idx[d] * r->v[s->zp].dims[d] / b->dims[d];
        }
        zp = rig_get(r, s->zp, g);
    }
    return (rig_get(r, s->data, idx) - zp) * scale;
}

/* The exact product, dense over the output's dims. */
static double *product(const rig_t *r, const side_t *a, const side_t *b, const bound_t *out,
                       int64_t K)
{
    const int64_t n = rig_count(out), N = out->dims[out->ndims - 1];
    const int nb = out->ndims - 2;
    double *v = calloc((size_t)n + 1, sizeof *v);
    double *row = calloc((size_t)K + 1, sizeof *row), *columns = calloc((size_t)(N * K) + 1, 8);
    for (int64_t i = 0; i < n; i++) {
        int64_t idx[SINTER_MAX_NDIMS];
        rig_index(out, i, idx);
        for (int64_t k = 0; idx[nb + 1] == 0 && k < K; k++) { /* a row begins */
            row[k] = side_at(r, a, idx, nb, idx[nb], k);
        }
        for (int64_t at = 0; idx[nb] == 0 && idx[nb + 1] == 0 && at < N * K; at++) { /* a batch */
            columns[at] = side_at(r, b, idx, nb, at % K, at / K);
        }
        for (int64_t k = 0; k < K; k++) {
            v[i] += row[k] * columns[idx[nb + 1] * K + k];
        }
    }
    free(row);
    free(columns);
    return v;
}

/* Rounds the rows of A to limbs: not exact. tests/unit/test_matmul_rows.c has bounds for it. */
static bool in_limbs(const kernel_t *k)
{
    return strstr(k->name, "int8") != NULL;
}

static void run_all(rig_t *r, step_t *step, int out, const unsigned char *want)
{
    const kernel_t *kernels[RIG_KERNELS];
    const int n = rig_kernels(r, step, kernels);
    CHECK(n >= 1, "a kernel accepts");
    for (int k = 0; k < n; k++) {
        if (in_limbs(kernels[k])) {
            continue;
        }
        for (int nth = 1; nth <= 3; nth++) {
            memset(r->v[out].data, RIG_FILL, r->bytes[out]);
            CHECK(rig_run(r, kernels[k], step, nth) == sinter_success, "%s: %s", kernels[k]->name,
                  sinter_last_error_message());
            char what[200];
            const bound_t *b = &r->v[out];
            snprintf(what, sizeof what, "%s, %d threads, M %lld N %lld batch dims %d, %s",
                     dtype_traits(b->dtype)->name, nth, (long long)b->dims[b->ndims - 2],
                     (long long)b->dims[b->ndims - 1], b->ndims - 2, r->note);
            CHECK(memcmp(want, b->data, r->bytes[out]) == 0 && rig_guarded(r, out), "%s: %s",
                  kernels[k]->name, what);
        }
    }
}

/* out = product + bias[N], in steps of `unit` so that it fits the output type; known: dims are
 * known at compile. */
static void random_matmul(int64_t M, int64_t N, int64_t K, bool known)
{
    static const sinter_data_type_t outs[] = {sinter_f32, sinter_f32, sinter_s32, sinter_bf16,
                                              sinter_u4};
    rig_t r;
    int64_t dims[SINTER_MAX_NDIMS], strides[SINTER_MAX_NDIMS], idx[SINTER_MAX_NDIMS];
    const int nb = rig_pick(4);
    rig_init(&r, cap);
    for (int d = 0; d < nb; d++) {
        dims[d] = 1 + rig_pick(3);
    }
    dims[nb] = M;
    dims[nb + 1] = N;
    rig_strides(nb + 2, dims, strides);
    const int out = rig_value(&r, outs[rig_pick(5)], nb + 2, dims, strides),
              bias = rig_value(&r, sinter_f32, 1, &N, NULL);
    rig_fill(&r, bias, -5, 5);
    const side_t a = make_side(&r, nb, dims, M, K, rig_pick(2)),
                 b = make_side(&r, nb, dims, K, N, rig_pick(3));
    /* The dims that A and B broadcast may leave none that varies: then the output is declared
     * smaller than it is, which is fine here. */
    if (!known) {
        for (int i = 0; i < r.n; i++) {
            for (int d = 0; d < r.v[i].ndims; d++) {
                r.values[i].lt.dims[d] = SINTER_UNKNOWN_DIM;
            }
        }
    }
    step_t step = {.kind = STEP_MATMUL};
    step.p.matmul = (matmul_params_t){.experts = -1,
                                      .a = a.op,
                                      .b = b.op,
                                      .trans_a = a.trans,
                                      .trans_b = b.trans,
                                      .out_dims = out};
    step.permit = permit_of(rig_pick(2) ? sinter_fpmath_mode_any : sinter_fpmath_mode_strict,
                            blocks_of_codes(&(problem_t){.plan = &r.plan, .step = &step}));
    const node_t add = {.kind = sinter_op_add};
    chain_builder_t bld;
    chain_begin(&bld, &r.plan.arena, nb + 2, out, true);
    const int y = rig_pick(2) ? chain_op(&bld, &add, (int[]){0, chain_load(&bld, bias, 1)}, 2) : 0;
    CHECK(chain_store(&bld, y, out, NULL) == sinter_success &&
              chain_finish(&bld, -1, r.v[out].dtype == sinter_s32, &step.post) == sinter_success,
          "chain");
    double *v = product(&r, &a, &b, &r.v[out], K);
    unsigned char *want = malloc(r.bytes[out] + 1);
    memset(want, RIG_FILL, r.bytes[out]);
    for (int64_t i = 0; i < rig_count(&r.v[out]); i++) {
        rig_index(&r.v[out], i, idx);
        orc_encode(r.v[out].dtype, want, rig_offset(&r.v[out], idx),
                   (float)(v[i] + (y ? rig_get(&r, bias, &idx[nb + 1]) : 0)));
    }
    run_all(&r, &step, out, want);
    free(want);
    free(v);
    rig_free(&r);
}

/* Dims that contradict each other, found at execute. */
static void bad_dims(void)
{
    rig_t r;
    const int64_t a_dims[] = {2, 3, 4}, b_dims[] = {3, 4, 5}, k_dims[] = {3, 5},
                  out_dims[] = {2, 3, 5};
    rig_init(&r, cap);
    const int a = rig_value(&r, sinter_f32, 3, a_dims, NULL),
              b = rig_value(&r, sinter_f32, 3, b_dims, NULL),
              k = rig_value(&r, sinter_f32, 2, k_dims, NULL);
    const int out = rig_value(&r, sinter_f32, 3, out_dims, NULL);
    chain_builder_t bld;
    step_t step = {.kind = STEP_MATMUL};
    chain_begin(&bld, &r.plan.arena, 3, out, true);
    CHECK(chain_store(&bld, 0, out, NULL) == sinter_success &&
              chain_finish(&bld, -1, false, &step.post) == sinter_success,
          "chain");
    const kernel_t *kernels[RIG_KERNELS];
    for (int i = 0; i < 2; i++) {
        step.p.matmul = (matmul_params_t){.experts = -1,
                                          .a = {.data = a, .scale = -1, .zp = -1},
                                          .b = {.data = i ? b : k, .scale = -1, .zp = -1},
                                          .out_dims = out};
        const int n = rig_kernels(&r, &step, kernels);
        for (int j = 0; j < n; j++) {
            CHECK(rig_run(&r, kernels[j], &step, 1) == sinter_invalid_shape, "%s: %s",
                  kernels[j]->name, i ? "batch 2 and 3" : "K 4 and 3");
        }
    }
    rig_free(&r);
}

/* The bf16 kernel needs permission. */
static void selection(void)
{
    rig_t r;
    const int64_t dims[] = {4, 4};
    rig_init(&r, cap);
    const int a = rig_value(&r, sinter_f32, 2, dims, NULL),
              out = rig_value(&r, sinter_f32, 2, dims, NULL);
    chain_builder_t bld;
    step_t step = {.kind = STEP_MATMUL, .permit = permit_of(sinter_fpmath_mode_f16, false)};
    step.p.matmul = (matmul_params_t){.experts = -1,
                                      .a = {.data = a, .scale = -1, .zp = -1},
                                      .b = {.data = a, .scale = -1, .zp = -1},
                                      .out_dims = out};
    chain_begin(&bld, &r.plan.arena, 2, out, true);
    CHECK(chain_store(&bld, 0, out, NULL) == sinter_success &&
              chain_finish(&bld, -1, false, &step.post) == sinter_success,
          "chain");
    textbuf_t why;
    const kernel_t *k = rig_select(&r, &step, &why);
    const features_t has = features_up_to(cap);
    const char *want = has_features(has, NEEDS_AVX512) ? "matmul_rows_f32_avx512"
                       : has_features(has, NEEDS_AVX2) ? "matmul_rows_f32_avx2"
                                                       : "matmul_panel_f32_generic";
    CHECK(k != NULL && strcmp(k->name, want) == 0, "selected: %s", k ? k->name : "none");
    CHECK(strstr(why.text, "matmul_panel_bf16_avx512 refused") != NULL, "bf16 refused: %s",
          why.text);
    rig_free(&r);
}

/* Few rows: B's layout, type and size choose the kernel. */
static void selection_of_rows(void)
{
    static const struct {
        sinter_data_type_t type;
        int64_t M, N;
        bool turned;
        const char *avx512, *avx2, *why; /* NULL: the best row takes it */
    } cases[] = {
        {sinter_f32, 4, 64, false, "matmul_columns_f32_avx512", "matmul_columns_f32_avx2",
         "_avx512 refused: B is not contiguous along K"},
        {sinter_f16, 16, 24, false, "matmul_columns_f32_avx2", "matmul_columns_f32_avx2",
         "fewer columns than a vector register has codes"},
        {sinter_f32, 17, 64, false, "matmul_panel_f32_avx512", "matmul_panel_f32_avx2",
         "more than 16 rows share one B"},
        {sinter_f32, 4, 64, true, "matmul_rows_f32_avx512", "matmul_rows_f32_avx2", NULL},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        rig_t r;
        const int64_t K = 40, N = cases[i].N, a_dims[] = {cases[i].M, K}, b_dims[] = {K, N},
                      out_dims[] = {cases[i].M, N};
        const int64_t along_k[] = {1, K};
        rig_init(&r, cap);
        const int a = rig_value(&r, sinter_f32, 2, a_dims, NULL),
                  out = rig_value(&r, sinter_f32, 2, out_dims, NULL);
        const int b = rig_value(&r, cases[i].type, 2, b_dims, cases[i].turned ? along_k : NULL);
        r.values[b].lt.layout_type = sinter_layout_type_strided;
        memcpy(r.values[b].lt.strides, r.v[b].strides, sizeof r.v[b].strides);
        step_t step = {.kind = STEP_MATMUL};
        step.p.matmul.a = step.p.matmul.b = (operand_t){.data = a, .scale = -1, .zp = -1};
        step.p.matmul.b.data = b;
        step.p.matmul.experts = -1;
        step.p.matmul.out_dims = out;
        textbuf_t why;
        const kernel_t *k = rig_select(&r, &step, &why);
        const features_t has = features_up_to(cap);
        const char *want = has_features(has, NEEDS_AVX512) ? cases[i].avx512
                           : has_features(has, NEEDS_AVX2) ? cases[i].avx2
                                                           : "matmul_panel_f32_generic";
        CHECK(k != NULL && strcmp(k->name, want) == 0, "selected for few rows: %s",
              k ? k->name : "none");
        CHECK(!has_features(has, NEEDS_AVX512) || cases[i].why == NULL ||
                  strstr(why.text, cases[i].why) != NULL,
              "refused for few rows: %s", why.text);
        rig_free(&r);
    }
}

/* ---- sums of integers at their extremes ------------------------------------------------------ */

typedef struct extreme {
    sinter_data_type_t a, b, zp; /* zp: undef: none */
    double a_value, b_value, zp_value;
    sinter_fpmath_mode_t mode;
} extreme_t;

/* Many rows, all codes of each operand alike, B contiguous along K or along N, with scales for
 * every `group` of K: the sum over each block is as large as the types allow. */
static void extreme(const extreme_t *x, int64_t K, int64_t group, bool turned)
{
    enum { COLUMNS = 70 };
    const int64_t rows = group < K ? 56 : 37, a_dims[] = {rows, K}, b_dims[] = {K, COLUMNS},
                  out_dims[] = {rows, COLUMNS}, along_k[] = {1, K}, one[] = {1, 1},
                  groups[] = {K / group, 1};
    const bool codes = dtype_traits(x->a)->cls == DTYPE_INT;
    rig_t r;
    rig_init(&r, cap);
    const int a = rig_value(&r, x->a, 2, a_dims, NULL),
              b = rig_value(&r, x->b, 2, b_dims, turned ? along_k : NULL),
              scale = rig_value(&r, sinter_f32, 2, one, NULL),
              b_scale = rig_value(&r, sinter_f32, 2, groups, NULL),
              out = rig_value(&r, sinter_f32, 2, out_dims, NULL);
    step_t step = {.kind = STEP_MATMUL, .permit = permit_of(x->mode, codes)};
    operand_t *of[] = {&step.p.matmul.a, &step.p.matmul.b};
    for (int i = 0; i < 2; i++) {
        *of[i] = (operand_t){.data = i ? b : a,
                             .scale = i       ? b_scale
                                      : codes ? scale
                                              : -1,
                             .zp = -1};
        for (int d = 0; d < SINTER_MAX_NDIMS; d++) {
            of[i]->scale_dim[d] = of[i]->zp_dim[d] = (int8_t)(d < 2 ? d : -1);
        }
    }
    if (x->zp != sinter_data_type_undef) {
        step.p.matmul.b.zp = rig_value(&r, x->zp, 2, one, NULL);
        rig_set(&r, step.p.matmul.b.zp, (int64_t[]){0, 0}, x->zp_value);
    }
    step.p.matmul.experts = -1;
    step.p.matmul.out_dims = out;
    rig_fill(&r, scale, 1, 1);
    rig_fill(&r, b_scale, 1, 1);
    rig_fill(&r, a, (int)x->a_value, (int)x->a_value);
    rig_fill(&r, b, (int)x->b_value, (int)x->b_value);
    chain_builder_t bld;
    chain_begin(&bld, &r.plan.arena, 2, out, true);
    CHECK(chain_store(&bld, 0, out, NULL) == sinter_success &&
              chain_finish(&bld, -1, false, &step.post) == sinter_success,
          "chain");
    const kernel_t *kernels[RIG_KERNELS];
    const double want = (double)K * x->a_value * (x->b_value - x->zp_value),
                 bound = codes ? 0 : fabs(want) * 0x1p-20;
    for (int n = rig_kernels(&r, &step, kernels), k = 0; k < n; k++) {
        if (strstr(kernels[k]->name, "blocks_int8") == NULL) {
            continue;
        }
        CHECK(rig_run(&r, kernels[k], &step, 1) == sinter_success, "%s", kernels[k]->name);
        double worst = 0;
        for (int64_t i = 0; i < rows * COLUMNS; i++) {
            const double off = fabs(((const float *)(const void *)r.v[out].data)[i] - want);
            worst = off > worst ? off : worst;
        }
        CHECK(worst <= bound, "%s: %s %g times %s %g - %g, K %lld: off by %g of %g",
              kernels[k]->name, dtype_traits(x->a)->name, x->a_value, dtype_traits(x->b)->name,
              x->b_value, x->zp_value, (long long)K, worst, want);
    }
    rig_free(&r);
}

static void extremes(void)
{
    const sinter_fpmath_mode_t exact = sinter_fpmath_mode_strict, one = sinter_fpmath_mode_int8,
                               two = sinter_fpmath_mode_f16;
    const sinter_data_type_t none = sinter_data_type_undef;
    const extreme_t cases[] = {
        {sinter_u8, sinter_u4, none, 255, 15, 0, exact},
        {sinter_u8, sinter_u4, sinter_u4, 255, 0, 15, exact},
        {sinter_u8, sinter_s4, sinter_s4, 255, -8, 7, exact},
        {sinter_u8, sinter_s4, sinter_s4, 255, 7, -8, exact},
        {sinter_s8, sinter_s4, none, -128, -8, 0, exact},
        {sinter_u8, sinter_s4, none, 255, -8, 0, exact},
        {sinter_u8, sinter_u4, none, 255, 0, 0, exact},
        {sinter_s8, sinter_s8, none, -128, -128, 0, exact},
        {sinter_u8, sinter_u8, none, 255, 255, 0, exact},
        {sinter_u8, sinter_s8, sinter_s8, 255, -128, 127, exact},
        {sinter_u8, sinter_u4, sinter_u8, 255, 0, 255, exact},
        {sinter_u8, sinter_u8, sinter_s32, 255, 255, -255, exact},
        {sinter_u8, sinter_f4_e2m1, none, 255, 6, 0, exact},
        {sinter_f32, sinter_u4, none, 3, 15, 0, one},
        {sinter_f32, sinter_u4, sinter_u4, 3, 0, 15, one},
        {sinter_f32, sinter_s4, none, 3, -8, 0, one},
        {sinter_f32, sinter_s4, sinter_s4, 3, -8, 7, one},
        {sinter_f32, sinter_u4, sinter_u4, -3, 15, 0, one},
        {sinter_f32, sinter_f4_e2m1, none, 3, -6, 0, one},
        {sinter_f32, sinter_s8, none, -3, -128, 0, one},
        {sinter_f32, sinter_u8, none, 3, 255, 0, one},
        {sinter_f32, sinter_u8, sinter_s32, 3, 255, -255, one},
        {sinter_f32, sinter_u4, none, 3, 15, 0, two},
        {sinter_f32, sinter_u8, sinter_s32, 3, 255, -255, two},
        {sinter_f32, sinter_s8, sinter_s32, -3, -128, 255, two},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        for (int turned = 0; turned < 2; turned++) {
            extreme(&cases[i], 128, 128, turned != 0);
            extreme(&cases[i], 44, 44, turned != 0);
            extreme(&cases[i], 288, 32, turned != 0); /* the shortest sums of nibbles */
        }
    }
}

int main(void)
{
    static const int64_t sizes[] = {1, 2, 3, 5, 7, 13, 16, 31, 33, 64, 65, 100};
    if (cpu_isa_cap(sinter_isa_default, &cap) != sinter_success) {
        return 1;
    }
    for (int i = 0; i < 250; i++) {
        random_matmul(sizes[rig_pick(12)], sizes[rig_pick(12)], sizes[rig_pick(12)], rig_pick(2));
    }
    const int64_t big[][3] = {{1, 600, 700}, {3, 300, 513},  {150, 70, 300},
                              {260, 20, 40}, {33, 257, 256}, {0, 5, 7},
                              {5, 0, 7},     {5, 7, 0},      {129, 513, 33}};
    for (size_t i = 0; i < sizeof big / sizeof big[0]; i++) {
        random_matmul(big[i][0], big[i][1], big[i][2], true);
        random_matmul(big[i][0], big[i][1], big[i][2], false);
    }
    bad_dims();
    selection();
    selection_of_rows();
    extremes();
    return check_finish();
}
