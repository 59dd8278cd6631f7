/* Checks the oracle against hand-derived values and against vectors.h, which other software
 * computed. Exit status 0 if all hold. */
#include <float.h>
#include <stdio.h>

#include "../unit/check.h"
#include "internal.h"
#include "random.h"
#include "vectors.h"

#include "dynquant_vectors.h"

static bool same(double a, double b)
{
    return isnan(a) ? isnan(b) : a == b && signbit(a) == signbit(b);
}
static bool near(double a, double b, double relative)
{
    return fabs(a - b) <= relative * fabs(b);
}

/* ---- small graphs ---------------------------------------------------------------------------- */

enum { MAX_TENSORS = 8, ROOM = 1 << 16 };
static unsigned char pool[1 << 22];
static size_t pool_used;

static sinter_logical_tensor_t describe(uint64_t id, sinter_data_type_t type, int ndims,
                                        const int64_t *dims)
{
    sinter_logical_tensor_t lt = {
        .id = id, .ndims = ndims, .data_type = type, .layout_type = sinter_layout_type_strided};
    for (int d = 0; d < ndims; d++) {
        lt.dims[d] = dims[d];
    }
    orc_dense_strides(ndims, dims, lt.strides);
    return lt;
}

static sinter_logical_tensor_t unknown(uint64_t id, sinter_data_type_t type)
{
    return (sinter_logical_tensor_t){.id = id, .ndims = SINTER_UNKNOWN_NDIMS, .data_type = type};
}

/* Values stored in row-major order of the logical tensor, whatever its strides. */
static orc_tensor_t store(sinter_logical_tensor_t lt, const double *values)
{
    orc_tensor_t t = {lt, pool + pool_used};
    size_t n = orc_count(lt.dims, lt.ndims);

    for (size_t i = 0; i < n; i++) {
        size_t rest = i;
        int64_t offset = 0;
        for (int d = lt.ndims - 1; d >= 0; d--) {
            offset += (int64_t)(rest % (size_t)lt.dims[d]) * lt.strides[d];
            rest /= (size_t)lt.dims[d];
        }
        orc_encode(lt.data_type, pool + pool_used, offset, values[i]);
    }
    pool_used += n * 8 + 8;
    return t;
}

/* clang-format off */
#define DIMS(...) \
    (int)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (int64_t[]){__VA_ARGS__}
#define SCALAR 0, NULL
#define TENSOR(id, type, dims, ...) \
    store(describe(id, sinter_##type, dims), (double[]){__VA_ARGS__})
#define STR(name, text) {.id = sinter_op_attr_##name, .str = text}
#define FLAG(name, on) {.id = sinter_op_attr_##name, .b = on}
#define F32S(name, ...) \
    {.id = sinter_op_attr_##name, .n = sizeof((float[]){__VA_ARGS__}) / sizeof(float), \
     .f32 = (float[]){__VA_ARGS__}}
#define S64S(name, ...) \
    {.id = sinter_op_attr_##name, .n = sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t), \
     .s64 = (int64_t[]){__VA_ARGS__}}
#define ATTRS(...) {__VA_ARGS__}
#define NONE {{0}}
/* An op with one output and the inputs that follow. */
#define CALL(op, type, attrs_, ...) \
    &(call_t){.kind = sinter_op_##op, .attrs = attrs_, .in = {__VA_ARGS__}, .n_out = 1, \
              .out = {sinter_##type}}
/* clang-format on */

/* Attributes and inputs end at the first that is all zero. */
typedef struct call {
    sinter_op_kind_t kind;
    orc_attr_t attrs[5];
    orc_tensor_t in[5];
    size_t n_out;
    sinter_data_type_t out[3];
    sinter_fpmath_mode_t mode;
} call_t;

/* Runs one op; outputs have the ids 100, 101, ... */
static bool run_one(const call_t *call, orc_result_t *results)
{
    sinter_logical_tensor_t in[4], out[3];
    uint64_t ids[3] = {100, 101, 102};
    char err[200] = "";
    orc_op_t op = {.id = 1,
                   .kind = call->kind,
                   .n_outputs = call->n_out,
                   .attrs = call->attrs,
                   .inputs = in,
                   .outputs = out};
    orc_graph_t graph = {1, &op, call->mode, 0};
    int failed;

    for (; call->in[op.n_inputs].data; op.n_inputs++) {
        in[op.n_inputs] = call->in[op.n_inputs].lt;
    }
    while (call->attrs[op.n_attrs].id) {
        op.n_attrs++;
    }
    for (size_t i = 0; i < call->n_out; i++) {
        out[i] = unknown(ids[i], call->out[i]);
    }
    failed = orc_run(&graph, op.n_inputs, call->in, call->n_out, ids, results, err, sizeof err);
    CHECK(!failed, "%s", err);
    pool_used = 0;
    return !failed;
}

static void free_results(orc_result_t *results, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        orc_result_free(&results[i]);
    }
}

/* Values within relative error of want, bounds (if asked) all zero. */
static void expect(const char *what, const orc_result_t *r, size_t n, const double *want,
                   double relative, bool exact)
{
    CHECK(r->n == n, "%s: %zu elements, want %zu", what, r->n, n);
    for (size_t i = 0; i < n && i < r->n; i++) {
        CHECK(isnan(want[i]) ? isnan(r->value[i])
                             : near(r->value[i], want[i], relative) || r->value[i] == want[i],
              "%s[%zu] = %.17g, want %.17g", what, i, r->value[i], want[i]);
        if (exact) {
            CHECK(r->bound[i] == 0, "%s[%zu] has bound %g", what, i, r->bound[i]);
        }
    }
}

#define EXPECT(what, result, exact, ...)                                   \
    expect(what, result, sizeof((double[]){__VA_ARGS__}) / sizeof(double), \
           (double[]){__VA_ARGS__}, 1e-15, exact)

/* ---- formats --------------------------------------------------------------------------------- */

static void test_decode(sinter_data_type_t type, const double *want, size_t n)
{
    unsigned char bytes[256] = {0};
    int bits = orc_type_bits(type);

    for (size_t code = 0; code < n; code++) { /* all codes in a row, least significant bits first */
        for (int k = 0; k < bits; k++) {
            bytes[(code * (size_t)bits + (size_t)k) / 8] |=
                (unsigned char)((code >> k & 1) << (code * (size_t)bits + (size_t)k) % 8);
        }
    }
    for (size_t code = 0; code < n; code++) {
        double got = orc_decode(type, bytes, (int64_t)code);
        CHECK(same(got, want[code]), "%s code %zx is %g, want %g", orc_type_name(type), code, got,
              want[code]);
    }
}

static void test_encode(sinter_data_type_t type, const encode_t *pairs, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        unsigned char bytes[8] = {0};
        float x;
        memcpy(&x, &pairs[i].f32, sizeof x);
        orc_encode(type, bytes, 1, (double)x);
        int bits = orc_type_bits(type);
        unsigned word = bytes[0] | (unsigned)bytes[1] << 8 | (unsigned)bytes[2] << 16 |
                        (unsigned)bytes[3] << 24;
        unsigned got = word >> bits & ((1u << bits) - 1);
        CHECK(got == pairs[i].code, "%s of %a is code %x, want %x", orc_type_name(type), (double)x,
              got, pairs[i].code);
        CHECK((word & ((1u << bits) - 1)) == 0 && (bits == 16 || word >> 2 * bits == 0),
              "%s store touched its neighbours", orc_type_name(type));
    }
}

static void test_round(sinter_data_type_t type, double v, double want)
{
    double got = orc_round(type, v);
    CHECK(same(got, want), "%s of %.10g is %.10g, want %.10g", orc_type_name(type), v, got, want);
}

static void test_packing(void)
{
    unsigned char s4[2] = {0}, f6[3] = {0};

    orc_encode(sinter_s4, s4, 0, 1);
    orc_encode(sinter_s4, s4, 1, -2);
    orc_encode(sinter_s4, s4, 2, 3);
    CHECK(s4[0] == 0xE1 && s4[1] == 0x03, "s4 1 -2 3 is %02x %02x", s4[0], s4[1]);
    for (int i = 0; i < 4; i++) { /* codes 1 2 3 4 of e2m3 are eighths */
        orc_encode(sinter_f6_e2m3, f6, i, 0.125 * (i + 1));
    }
    CHECK(f6[0] == 0x81 && f6[1] == 0x30 && f6[2] == 0x10, "f6 codes 1 2 3 4 are %02x %02x %02x",
          f6[0], f6[1], f6[2]);
}

static void test_formats(void)
{
#define FORMAT(name)                                                                         \
    test_decode(sinter_##name, decode_##name, sizeof decode_##name / sizeof *decode_##name); \
    test_encode(sinter_##name, encode_##name, sizeof encode_##name / sizeof *encode_##name)
    FORMAT(f8_e5m2);
    FORMAT(f8_e4m3);
    FORMAT(f8_e5m2fnuz);
    FORMAT(f8_e4m3fnuz);
    FORMAT(e8m0);
    FORMAT(f6_e3m2);
    FORMAT(f6_e2m3);
    FORMAT(f4_e2m1);
    test_decode(sinter_s4, decode_s4, 16);
    test_decode(sinter_u4, decode_u4, 16);
    test_encode(sinter_f16, encode_f16, sizeof encode_f16 / sizeof *encode_f16);
    test_encode(sinter_bf16, encode_bf16, sizeof encode_bf16 / sizeof *encode_bf16);
    test_packing();
    /* The numeric contract's examples and choices. */
    static const double e2m1[][2] = {{5, 4},    {3.5, 4},  {2.5, 2}, {1.75, 2},
                                     {1.25, 1}, {0.75, 1}, {0.25, 0}};
    for (size_t i = 0; i < 7; i++) {
        test_round(sinter_f4_e2m1, e2m1[i][0], e2m1[i][1]);
    }
    test_round(sinter_f8_e4m3, 0x1p-10, 0);
    test_round(sinter_f8_e5m2, 0x1p-17, 0);
    test_round(sinter_f8_e4m3, 1.0625 + 0x1p-20, 1.125);
    test_round(sinter_f8_e5m2, 61439, 57344);
    test_round(sinter_f8_e5m2, 61440, INFINITY);
    test_round(sinter_f8_e4m3, 464, 448);
    test_round(sinter_f8_e4m3, 464.1, NAN);
    test_round(sinter_f8_e4m3fnuz, -INFINITY, NAN);
    test_round(sinter_f8_e4m3fnuz, -0.0, 0.0);
    test_round(sinter_f6_e3m2, -1000, -28);
    test_round(sinter_f6_e2m3, NAN, 7.5);
    test_round(sinter_f4_e2m1, -NAN, -6);
    test_round(sinter_s8, NAN, 0);
    test_round(sinter_s8, 2.5, 2);
    test_round(sinter_s8, -300, -128);
    test_round(sinter_u4, 15.6, 15);
    test_round(sinter_s32, 1e10, 2147483647);
    test_round(sinter_boolean, 0.25, 1);
    test_round(sinter_e8m0, 3, 2); /* between codes 128 and 129 */
    test_round(sinter_e8m0, 1.5, 2);
    test_round(sinter_e8m0, 0, 0x1p-127);
}

/* ---- ops ------------------------------------------------------------------------------------- */

static void test_matmul(void)
{
    orc_result_t r;
    call_t *call;
    const int64_t da[] = {3, 5}, db[] = {5, 4};
    sinter_logical_tensor_t la = describe(1, sinter_f32, 2, da),
                            lb = describe(2, sinter_f32, 2, db);

    lb.strides[0] = 1; /* column-major B */
    lb.strides[1] = 5;
    if (run_one(CALL(matmul, f32, NONE, store(la, matmul_a), store(lb, matmul_b)), &r)) {
        expect("matmul", &r, 12, matmul_c, 1e-13, false);
        CHECK(r.bound[0] > 0 && r.bound[0] < 1e-5, "matmul bound %g", r.bound[0]);
    }
    orc_result_free(&r);
    /* [2,1,2] x [2 2]^T of integers, broadcast over batch, transposed, with a bias: exact, so no
     * tolerance at all. */
    if (run_one(CALL(matmul, f32, ATTRS(FLAG(transpose_b, 1)),
                     TENSOR(1, f32, DIMS(2, 1, 2), 1, 2, 3, 4),
                     TENSOR(2, f32, DIMS(3, 2), 1, 0, 0, 1, 2, -1),
                     TENSOR(3, f32, DIMS(3), 10, 20, 30)),
                &r)) {
        EXPECT("batched matmul", &r, true, 11, 22, 30, 13, 24, 32);
        CHECK(r.lt.ndims == 3 && r.lt.dims[1] == 1 && r.lt.dims[2] == 3, "batched matmul shape");
    }
    orc_result_free(&r);
    call =
        CALL(matmul, f32, NONE, TENSOR(1, f32, DIMS(3), 1, 2, 3), TENSOR(2, f32, DIMS(3), 4, 5, 6));
    call->mode = sinter_fpmath_mode_bf16;
    if (run_one(call, &r)) {
        EXPECT("dot product", &r, false, 32);
        CHECK(r.lt.ndims == 0, "dot product has %d dims", (int)r.lt.ndims);
        CHECK(r.bound[0] > 0.05 && r.bound[0] < 0.3,
              "bf16 bound %g: 2^-8 for each operand of a product of norms near 33", r.bound[0]);
    }
    orc_result_free(&r);
}

static void test_softmax(void)
{
    orc_result_t r[2];
    const int64_t dims[] = {1, 7, 1};

    if (run_one(&(call_t){.kind = sinter_op_softmax,
                          .n_out = 2,
                          .in = {store(describe(1, sinter_f32, 3, dims), softmax_x)},
                          .out = {sinter_f32, sinter_f32}},
                r)) {
        expect("softmax", &r[0], 7, softmax_y, 1e-14, false);
        expect("softmax stats", &r[1], 1, softmax_stats, 1e-14, false);
        CHECK(r[1].lt.ndims == 3 && r[1].lt.dims[1] == 1, "stats keep the axis");
        for (size_t i = 0; i < 7; i++) {
            CHECK(r[0].bound[i] < 12e-6 * softmax_y[i] + 1e-37, "softmax bound %g of %g",
                  r[0].bound[i], softmax_y[i]);
        }
    }
    free_results(r, 2);
    if (run_one(CALL(softmax, f32, ATTRS(STR(mode, "inf_as_zero"), S64S(axis, -1)),
                     TENSOR(1, f32, DIMS(2, 2), -INFINITY, -INFINITY, 0, -INFINITY)),
                r)) {
        EXPECT("masked softmax", r, false, 0, 0, 1, 0);
    }
    orc_result_free(r);
    if (run_one(CALL(softmax, f32, ATTRS(STR(mode, "inf_as_zero"), S64S(axis, -1)),
                     TENSOR(1, f32, DIMS(1, 3), -INFINITY, NAN, -INFINITY)),
                r)) {
        EXPECT("softmax of -inf and NaN", r, false, NAN, NAN, NAN);
    }
    orc_result_free(r);
    if (run_one(CALL(softmax, f32, ATTRS(S64S(axis, -1)),
                     TENSOR(1, f32, DIMS(1, 2), -INFINITY, -INFINITY)),
                r)) {
        EXPECT("softmax of -inf", r, false, NAN, NAN);
    }
    orc_result_free(r);
    /* Sinks: log 2 beside 0 and 0 takes half; alone, everything. */
    if (run_one(CALL(softmax, f32, ATTRS(S64S(axis, -1)),
                     TENSOR(1, f32, DIMS(2, 2), 0, 0, -INFINITY, -INFINITY),
                     TENSOR(2, f64, DIMS(1), 0.69314718055994530942)),
                r)) {
        EXPECT("softmax with a sink", r, false, 0.25, 0.25, 0, 0);
    }
    orc_result_free(r);
    if (run_one(CALL(softmax, f32, ATTRS(S64S(axis, 0)), TENSOR(1, f32, DIMS(1, 2), 5, 5),
                     TENSOR(2, f32, DIMS(1, 2), 5, -INFINITY)),
                r)) {
        EXPECT("softmax with a sink for each column", r, false, 0.5, 1);
    }
    orc_result_free(r);
    if (run_one(CALL(log_softmax, f32, ATTRS(S64S(axis, 0)), TENSOR(1, f32, DIMS(2), 0, 0)), r)) {
        EXPECT("log softmax", r, false, -0.69314718055994530942, -0.69314718055994530942);
    }
    orc_result_free(r);
}

static void test_unary(sinter_op_kind_t kind, const char *what, const double *want, orc_attr_t a,
                       orc_attr_t b)
{
    const int64_t dims[] = {8};
    orc_result_t r;
    call_t call = {.kind = kind, .attrs = {a, b}, .n_out = 1, .out = {sinter_f32}};

    call.in[0] = store(describe(1, sinter_f32, 1, dims), unary_x);
    if (run_one(&call, &r)) {
        expect(what, &r, 8, want, 1e-12, false);
        for (size_t i = 0; i < 8; i++) {
            CHECK(r.bound[i] <= 64 * ORC_U * (1 + fabs(want[i])), "%s bound %g", what, r.bound[i]);
        }
    }
    orc_result_free(&r);
}

static void test_unaries(void)
{
    static const orc_attr_t none = {.id = sinter_op_attr_undef};
    test_unary(sinter_op_exp, "exp", unary_exp, none, none);
    test_unary(sinter_op_sigmoid, "sigmoid", unary_sigmoid, none, none);
    test_unary(sinter_op_tanh, "tanh", unary_tanh, none, none);
    test_unary(sinter_op_mish, "mish", unary_mish, none, none);
    test_unary(sinter_op_hard_swish, "hard_swish", unary_hard_swish, none, none);
    test_unary(sinter_op_softplus, "softplus", unary_softplus2, (orc_attr_t)F32S(beta, 2), none);
    test_unary(sinter_op_elu, "elu", unary_elu, (orc_attr_t)F32S(alpha, 0.5f), none);
    test_unary(sinter_op_gelu, "gelu", unary_gelu_erf, none, none);
    test_unary(sinter_op_gelu, "gelu_tanh", unary_gelu_tanh, (orc_attr_t)STR(mode, "gelu_tanh"),
               none);
    test_unary(sinter_op_hard_sigmoid, "hard_sigmoid", unary_hard_sigmoid,
               (orc_attr_t)F32S(alpha, 0.25f), (orc_attr_t)F32S(beta, 0.5f));
}

/* Ops whose results are exact for these operands. */
static void test_exact_unary(sinter_op_kind_t kind, const char *what, orc_attr_t a, orc_attr_t b,
                             const double *want)
{
    orc_result_t r;
    call_t *call = CALL(abs, f32, ATTRS(a, b), TENSOR(1, f32, DIMS(4), -2, 0.5, 1.5, 4));

    call->kind = kind;
    if (run_one(call, &r)) {
        expect(what, &r, 4, want, 0, true);
    }
    orc_result_free(&r);
}

static void test_exact(void)
{
    static const orc_attr_t none = {.id = sinter_op_attr_undef};
    orc_result_t r;

    test_exact_unary(sinter_op_abs, "abs", none, none, (double[]){2, 0.5, 1.5, 4});
    test_exact_unary(sinter_op_relu, "relu", none, none, (double[]){0, 0.5, 1.5, 4});
    test_exact_unary(sinter_op_round, "round", none, none, (double[]){-2, 0, 2, 4});
    test_exact_unary(sinter_op_square, "square", none, none, (double[]){4, 0.25, 2.25, 16});
    test_exact_unary(sinter_op_pow, "pow", (orc_attr_t)F32S(beta, 2), none,
                     (double[]){4, 0.25, 2.25, 16});
    test_exact_unary(sinter_op_leaky_relu, "leaky_relu", (orc_attr_t)F32S(alpha, 0.5f), none,
                     (double[]){-1, 0.5, 1.5, 4});
    test_exact_unary(sinter_op_clamp, "clamp", (orc_attr_t)F32S(min, -1), (orc_attr_t)F32S(max, 2),
                     (double[]){-1, 0.5, 1.5, 2});
    if (run_one(CALL(subtract, f32, NONE, TENSOR(1, f32, DIMS(2, 1), 3, 5),
                     TENSOR(2, f32, DIMS(3), 1, 2, 4)),
                &r)) {
        EXPECT("subtract", &r, true, 2, 1, -1, 4, 3, 1);
    }
    orc_result_free(&r);
    if (run_one(CALL(squared_difference, f32, NONE, TENSOR(1, f32, DIMS(2), 3, 5),
                     TENSOR(2, f32, DIMS(1), 1)),
                &r)) {
        EXPECT("squared difference", &r, true, 4, 16);
    }
    orc_result_free(&r);
    if (run_one(CALL(select, f32, NONE, TENSOR(1, boolean, DIMS(2, 1), 1, 0),
                     TENSOR(2, f32, DIMS(2), 1, 2), TENSOR(3, f32, DIMS(1), -INFINITY)),
                &r)) {
        EXPECT("select", &r, true, 1, 2, -INFINITY, -INFINITY);
    }
    orc_result_free(&r);
    if (run_one(CALL(prelu, f32, ATTRS(STR(data_format, "NCX")),
                     TENSOR(1, f32, DIMS(1, 2, 2), -1, 2, -3, -4), TENSOR(2, f32, DIMS(2), 0.5, 2)),
                &r)) {
        EXPECT("prelu", &r, true, -0.5, 2, -6, -8);
    }
    orc_result_free(&r);
    if (run_one(CALL(bias_add, f32, NONE, TENSOR(1, f32, DIMS(2, 2), 1, 2, 3, 4),
                     TENSOR(2, f32, DIMS(2), 10, 20)),
                &r)) {
        EXPECT("bias_add", &r, true, 11, 22, 13, 24);
    }
    orc_result_free(&r);
}

/* Values of C's integer division; Python's int(Fraction(a, b)) for the long ones. */
static void test_integers(void)
{
    orc_result_t r;

    if (run_one(CALL(divide, s32, NONE,
                     TENSOR(1, s32, DIMS(13), 7, -7, 7, -7, 777777777, 1900000000, -1999999999, 31,
                            5, -5, 0, -2147483648.0, 2147483647),
                     TENSOR(2, s32, DIMS(13), 2, 2, -2, -2, 11, 11, 11, 16, 0, 0, 0, -1, -1)),
                &r)) {
        EXPECT("s32 divide", &r, true, 3, -3, -3, 3, 70707070, 172727272, -181818181, 1, 2147483647,
               -2147483648.0, 0, 2147483647, -2147483647);
    }
    orc_result_free(&r);
    if (run_one(CALL(multiply, s32, NONE, TENSOR(1, s32, DIMS(3), 65536, -65536, 46340),
                     TENSOR(2, s32, DIMS(3), 65536, 65536, 46340)),
                &r)) {
        EXPECT("s32 multiply", &r, true, 2147483647, -2147483648.0, 2147395600);
    }
    orc_result_free(&r);
}

static void test_moves(void)
{
    orc_result_t r;

    if (run_one(CALL(static_transpose, u4, ATTRS(S64S(order, -1, 0)),
                     TENSOR(1, u4, DIMS(2, 3), 1, 2, 3, 4, 5, 6)),
                &r)) {
        EXPECT("transpose", &r, true, 1, 4, 2, 5, 3, 6);
    }
    orc_result_free(&r);
    if (run_one(CALL(static_reshape, f32, ATTRS(S64S(shape, 0, -1), FLAG(special_zero, 1)),
                     TENSOR(1, f32, DIMS(2, 2, 1), 1, 2, 3, 4)),
                &r)) {
        EXPECT("reshape", &r, true, 1, 2, 3, 4);
        CHECK(r.lt.ndims == 2 && r.lt.dims[0] == 2 && r.lt.dims[1] == 2, "reshape shape");
    }
    orc_result_free(&r);
    if (run_one(CALL(gen_index, s32, ATTRS(S64S(axis, 0)),
                     TENSOR(1, f32, DIMS(3, 2), 0, 0, 0, 0, 0, 0)),
                &r)) {
        EXPECT("gen_index", &r, true, 0, 0, 1, 1, 2, 2);
    }
    orc_result_free(&r);
    if (run_one(CALL(greater_equal, boolean, NONE, TENSOR(1, f32, DIMS(3), 0, 1, 2),
                     TENSOR(2, f32, SCALAR, 1)),
                &r)) {
        EXPECT("greater_equal", &r, true, 0, 1, 1);
    }
    orc_result_free(&r);
    if (run_one(CALL(type_cast, s8, NONE, TENSOR(1, f32, DIMS(4), 2.5, -3.5, 1000, NAN)), &r)) {
        EXPECT("type_cast", &r, true, 2, -4, 127, 0);
    }
    orc_result_free(&r);
}

static void test_static_quantise(void)
{
    orc_result_t r;
    const int64_t dims[] = {1, 4, 2}, strides[] = {8, 1, 4};
    sinter_logical_tensor_t data = describe(1, sinter_u4, 3, dims);

    if (run_one(CALL(quantize, u8, ATTRS(F32S(scales, 0.5f), S64S(zps, 10)),
                     TENSOR(1, f32, DIMS(6), 0.25, 0.75, -1, 200, -200, NAN)),
                &r)) {
        EXPECT("quantize", &r, true, 10, 12, 8, 255, 0, 0);
    }
    orc_result_free(&r);
    /* 0.25 / f32(0.1) is 2.49999996: f32 arithmetic may see 2.5, on either side of the tie. */
    if (run_one(CALL(quantize, u8, ATTRS(F32S(scales, 0.1f), S64S(zps, 0)),
                     TENSOR(1, f32, DIMS(2), 0.25, 0.3)),
                &r)) {
        EXPECT("quantize near a tie", &r, false, 2, 3);
        CHECK(r.bound[0] == 1 && r.bound[1] == 0, "bounds %g %g near a tie", r.bound[0],
              r.bound[1]);
    }
    orc_result_free(&r);
    if (run_one(CALL(dequantize, f32,
                     ATTRS(F32S(scales, 0.5f, 2), S64S(zps, 1, -1), S64S(axis, 0),
                           STR(qtype, "per_channel")),
                     TENSOR(1, s8, DIMS(2, 2), 1, 3, -128, 127)),
                &r)) {
        EXPECT("dequantize", &r, true, 0, 1, -254, 256);
    }
    orc_result_free(&r);
    /* Groups of two along the transposed, packed dim; zero points cover all four. */
    memcpy(data.strides, strides, sizeof strides);
    if (run_one(CALL(dynamic_dequantize, f32, ATTRS(STR(qtype, "per_group")),
                     store(data, (double[]){1, 2, 3, 4, 5, 6, 7, 15}),
                     TENSOR(2, f16, DIMS(1, 2, 2), 1, 2, 3, 4),
                     TENSOR(3, s8, DIMS(1, 1, 2), 1, -1)),
                &r)) {
        EXPECT("grouped dequantise", &r, true, 0, 6, 2, 10, 12, 28, 18, 64);
    }
    orc_result_free(&r);
}

/* A scale for each output channel of a ConvTranspose in groups, of which the weights count one: 1
 * and 10 are those of the first group, 100 and 1000 of the second. window_first: [1, 2, 2] of
 * output and input channels, else [2, 2, 1] of input and output channels. y by hand: x of the group
 * times code times scale. */
static void test_scales_of_groups(bool window_first)
{
    const int64_t first[] = {1, 2, 2}, last[] = {2, 2, 1}, one[] = {1}, zero[] = {0};
    const int64_t two[] = {2}, image[] = {1, 2, 1};
    const orc_attr_t scales[] = {F32S(scales, 1, 10, 100, 1000),
                                 S64S(zps, 0, 0, 0, 1),
                                 STR(qtype, "per_channel"),
                                 {.id = sinter_op_attr_axis, .n = 1, .s64 = one}};
    const orc_attr_t conv[] = {{.id = sinter_op_attr_strides, .n = 1, .s64 = one},
                               {.id = sinter_op_attr_dilations, .n = 1, .s64 = one},
                               {.id = sinter_op_attr_pads_begin, .n = 1, .s64 = zero},
                               {.id = sinter_op_attr_pads_end, .n = 1, .s64 = zero},
                               {.id = sinter_op_attr_groups, .n = 1, .s64 = two},
                               STR(data_format, "NCX"),
                               STR(weights_format, window_first ? "XOI" : "IOX")};
    const double codes[2][4] = {{1, 2, 3, 4}, {1, 3, 2, 4}};
    const orc_tensor_t in[] = {
        store(describe(1, sinter_s8, 3, window_first ? first : last), codes[window_first]),
        store(describe(2, sinter_f32, 3, image), (double[]){1, 2})};
    const sinter_logical_tensor_t w = unknown(3, sinter_f32), y = unknown(100, sinter_f32);
    const sinter_logical_tensor_t read[] = {in[1].lt, w};
    const orc_op_t ops[] = {{.id = 1,
                             .kind = sinter_op_dequantize,
                             .n_attrs = 4,
                             .n_inputs = 1,
                             .n_outputs = 1,
                             .attrs = scales,
                             .inputs = &in[0].lt,
                             .outputs = &w},
                            {.id = 2,
                             .kind = sinter_op_conv_transpose,
                             .n_attrs = 7,
                             .n_inputs = 2,
                             .n_outputs = 1,
                             .attrs = conv,
                             .inputs = read,
                             .outputs = &y}};
    const orc_graph_t graph = {2, ops, sinter_fpmath_mode_strict, 0};
    char err[200] = "";
    orc_result_t r;
    const int failed = orc_run(&graph, 2, in, 1, (uint64_t[]){100}, &r, err, sizeof err);
    pool_used = 0;
    if (CHECK(!failed, "%s", err)) {
        EXPECT("scales of groups", &r, false, 1, 20, 600, 6000);
        orc_result_free(&r);
    }
}

static void test_dynamic(const char *kind, orc_tensor_t data, sinter_data_type_t type,
                         sinter_data_type_t scale, orc_result_t *r)
{
    call_t call = {.kind = sinter_op_dynamic_quantize,
                   .attrs = {STR(quantization_kind, kind), STR(qtype, "per_tensor")}};
    call.n_out = 3;
    call.in[0] = data;
    call.out[0] = type;
    call.out[1] = scale;
    call.out[2] = sinter_s32;
    memset(r, 0, 3 * sizeof *r);
    run_one(&call, r);
}

static void test_dynamic_quantise(void)
{
    orc_result_t r[3];

    /* floor(log2 6) - 2 = 0; just below 8: still 0, and 7.9999995 saturates to 6. */
    test_dynamic("dynamic_mx", TENSOR(1, f32, DIMS(4), 0x1.FFFFFEp2, -6, 0.26, 0.25),
                 sinter_f4_e2m1, sinter_e8m0, r);
    EXPECT("mx elements", &r[0], true, 6, -6, 0.5, 0);
    EXPECT("mx scale", &r[1], true, 1);
    free_results(r, 3);
    test_dynamic("dynamic_mx", TENSOR(1, f32, DIMS(2), 0.0, -0.0), sinter_f8_e4m3, sinter_e8m0, r);
    EXPECT("mx zeros", &r[1], true, 0x1p-127);
    CHECK(signbit(r[0].value[1]), "the sign of zero is kept");
    free_results(r, 3);
    test_dynamic("dynamic_mx", TENSOR(1, f32, DIMS(2), NAN, 3), sinter_f8_e5m2, sinter_e8m0, r);
    EXPECT("mx NaN scale", &r[1], true, NAN);
    EXPECT("mx NaN elements", &r[0], true, 0, 0);
    free_results(r, 3);
    test_dynamic("dynamic_mx", TENSOR(1, f32, DIMS(2), 127, -64.5), sinter_s8, sinter_e8m0,
                 r); /* emax 6: scale 1 */
    EXPECT("mx s8", &r[0], true, 127, -64);
    free_results(r, 3);
    /* 7 / 6 rounds up to 2, so nothing saturates. */
    test_dynamic("dynamic_mx_rceil", TENSOR(1, f32, DIMS(2), 7, 6), sinter_f4_e2m1, sinter_e8m0, r);
    EXPECT("rceil scale", &r[1], true, 2);
    EXPECT("rceil elements", &r[0], true, 4, 3);
    free_results(r, 3);
    test_dynamic("dynamic_symmetric", TENSOR(1, f32, DIMS(3), 254, -127, 3), sinter_s8, sinter_f32,
                 r);
    EXPECT("symmetric scale", &r[1], true, 2);
    EXPECT("symmetric elements", &r[0], true, 127, -64, 2);
    free_results(r, 3);
    /* The scale has the sign that makes the largest element -8; its negative stops at 7. */
    test_dynamic("dynamic_signed", TENSOR(1, f32, DIMS(4), 4, -4, 0.5, -1.25), sinter_s4,
                 sinter_f32, r);
    EXPECT("signed scale", &r[1], true, -0.5);
    EXPECT("signed elements", &r[0], true, -8, 7, -1, 2);
    free_results(r, 3);
    test_dynamic("dynamic_signed", TENSOR(1, f32, DIMS(2), 2, -4), sinter_s4, sinter_f32, r);
    EXPECT("signed scale of a number below 0", &r[1], true, 0.5);
    EXPECT("elements of it", &r[0], true, 4, -8);
    free_results(r, 3);
    /* s = -1: the table has -127 and 1. The scale is that of least squares: s again. */
    test_dynamic("dynamic_iq4_nl", TENSOR(1, f32, DIMS(2), 127, -1), sinter_s8, sinter_f32, r);
    EXPECT("iq4_nl scale", &r[1], false, -1);
    EXPECT("iq4_nl elements", &r[0], true, -127, 1);
    free_results(r, 3);
    test_dynamic("dynamic_iq4_nl", TENSOR(1, f32, DIMS(2), 0, 0), sinter_s8, sinter_f32, r);
    EXPECT("iq4_nl scale of zeros", &r[1], true, 0);
    EXPECT("iq4_nl elements of zeros", &r[0], true, 1, 1);
    free_results(r, 3);
    test_dynamic("dynamic_symmetric", TENSOR(1, f32, DIMS(2), 0, 0), sinter_s4, sinter_f32, r);
    EXPECT("symmetric zero scale", &r[1], true, 1);
    free_results(r, 3);
    test_dynamic("dynamic_asymmetric", TENSOR(1, f32, DIMS(3), -2, 5.5, 1), sinter_u4, sinter_f32,
                 r); /* 7.5 / 15 */
    EXPECT("asymmetric scale", &r[1], true, 0.5);
    EXPECT("asymmetric zero point", &r[2], true, 4);
    EXPECT("asymmetric elements", &r[0], true, 0, 15, 6);
    free_results(r, 3);
    test_dynamic("dynamic_nv", TENSOR(1, f32, DIMS(3), 12, -1, 3), sinter_f4_e2m1, sinter_f8_e4m3,
                 r);
    EXPECT("nv scale", &r[1], true, 2);
    EXPECT("nv elements", &r[0], true, 6, -0.5, 1.5);
    free_results(r, 3);
}

/* What the sources are silent about: scales that their type cannot hold, specials, zero points
 * that their type cannot hold. */
static void test_dynamic_choices(void)
{
    orc_result_t r[3];

    /* 2^23 / 127 = 66052 is beyond f16: 65504, and 2^23 / 65504 = 128.06. */
    test_dynamic("dynamic_symmetric", TENSOR(1, f32, DIMS(2), 0x1p23, -65504), sinter_s8,
                 sinter_f16, r);
    EXPECT("saturated scale", &r[1], true, 65504);
    EXPECT("elements of a saturated scale", &r[0], true, 127, -1);
    free_results(r, 3);
    /* 2^-19 / 127 is below half of 2^-24: 1. */
    test_dynamic("dynamic_symmetric", TENSOR(1, f32, DIMS(2), 0x1p-19, 0), sinter_s8, sinter_f16,
                 r);
    EXPECT("underflown scale", &r[1], true, 1);
    EXPECT("elements of an underflown scale", &r[0], true, 0, 0);
    free_results(r, 3);
    /* 475 / 448 = 1.0603 is 1 in e4m3, where 1.0625 would be a tie: the quotient 475 saturates. */
    test_dynamic("dynamic_symmetric", TENSOR(1, f32, DIMS(2), 475, -1), sinter_f8_e4m3,
                 sinter_f8_e4m3, r);
    EXPECT("e4m3 scale", &r[1], true, 1);
    EXPECT("saturated elements", &r[0], true, 448, -1);
    free_results(r, 3);
    /* The spread, 255 * 2^121, is beyond f32; its 255th part is not. */
    test_dynamic("dynamic_asymmetric", TENSOR(1, f32, DIMS(3), -0x1.FEp127, 0x1.FEp127, 0),
                 sinter_u8, sinter_f32, r);
    EXPECT("huge scale", &r[1], true, 0x1p121);
    EXPECT("zero point of a huge scale", &r[2], true, 128); /* round(127.5) to even */
    EXPECT("elements of a huge scale", &r[0], true, 0, 255, 128);
    free_results(r, 3);
    test_dynamic("dynamic_asymmetric", TENSOR(1, f32, DIMS(3), 1, NAN, -3), sinter_s8, sinter_f32,
                 r);
    EXPECT("NaN scale", &r[1], true, NAN);
    EXPECT("zero point of nothing", &r[2], true, -128);
    EXPECT("elements beside a NaN", &r[0], true, 0, 0, 0);
    free_results(r, 3);
    test_dynamic("dynamic_nv", TENSOR(1, f32, DIMS(2), 1, -INFINITY), sinter_f4_e2m1,
                 sinter_f8_e4m3, r);
    EXPECT("scale of an infinity", &r[1], true, NAN);
    EXPECT("elements beside an infinity", &r[0], true, 0, 0);
    free_results(r, 3);
}

/* What exact rational arithmetic makes of many groups. Code in f32 may differ where a quotient
 * lies within its errors of a tie, which is rare, and where hi - lo has more bits than f32. */
static void check_vector(const dynquant_vector_t *v, int group, const orc_result_t *r, int *open)
{
    const dynquant_result_t *want = &v->results[group];

    CHECK(isnan(want->scale) ? isnan(r[1].value[0])
                             : r[1].value[0] == want->scale && (r[1].bound[0] == 0 || r[2].n > 0),
          "%s of %s, group %d: scale %a (+- %g), want %a", v->kind, orc_type_name(v->type), group,
          r[1].value[0], r[1].bound[0], want->scale);
    if (r[2].n) {
        CHECK(fabs(r[2].value[0] - want->zp) <= r[2].bound[0],
              "%s of %s, group %d: zero point %g, want %g", v->kind, orc_type_name(v->type), group,
              r[2].value[0], want->zp);
    }
    for (int i = 0; i < 8; i++) {
        CHECK(fabs(r[0].value[i] - want->elements[i]) <= r[0].bound[i],
              "%s of %s to %s, group %d: element %d is %g, want %g", v->kind,
              orc_type_name(v->type), orc_type_name(v->scale_type), group, i, r[0].value[i],
              want->elements[i]);
        *open += r[0].bound[i] > 0;
    }
}

static void test_dynamic_vectors(void)
{
    const int64_t dims[] = {8};
    int elements = 0, open = 0;

    for (size_t i = 0; i < sizeof dynquant_vectors / sizeof *dynquant_vectors; i++) {
        for (int g = 0; g < DYNQUANT_GROUPS; g++, elements += 8) {
            const dynquant_vector_t *v = &dynquant_vectors[i];
            float scale = (float)v->tensor_scale;
            call_t call = {.kind = sinter_op_dynamic_quantize,
                           .attrs = {STR(quantization_kind, v->kind), STR(qtype, "per_tensor"),
                                     STR(zps_kind, v->offsets ? "offsets" : "zero_points")}};
            orc_result_t r[3] = {{.n = 0}};

            call.in[0] = (orc_tensor_t){describe(1, sinter_f32, 1, dims), dynquant_groups[g]};
            if (v->tensor_scale != 1) {
                call.in[1] = (orc_tensor_t){describe(2, sinter_f32, 0, NULL), &scale};
            }
            call.n_out = strcmp(v->kind, "dynamic_asymmetric") == 0 ? 3 : 2;
            call.out[0] = v->type;
            call.out[1] = v->scale_type;
            call.out[2] = v->zp_type;
            if (run_one(&call, r)) {
                check_vector(v, g, r, &open);
            }
            free_results(r, 3);
        }
    }
    printf("computed quantisation: %d elements, %d of them near a tie\n", elements, open);
    CHECK(open * 50 < elements, "%d of %d elements are open", open, elements);
}

/* Groups from the attributes: two along the last dim, every row its own. */
static void test_dynamic_groups(void)
{
    orc_result_t r[2];
    call_t call = {.kind = sinter_op_dynamic_quantize,
                   .n_out = 2,
                   .out = {sinter_s8, sinter_f32},
                   .attrs = {STR(quantization_kind, "dynamic_symmetric"), STR(qtype, "per_group"),
                             S64S(axis, -1), S64S(groups, 2)}};

    call.in[0] = TENSOR(1, f32, DIMS(2, 4), 127, 1, 254, 2, 0, 0, -508, 4);
    if (run_one(&call, r)) {
        CHECK(r[1].lt.ndims == 2 && r[1].lt.dims[0] == 2 && r[1].lt.dims[1] == 2,
              "one scale for each group");
        EXPECT("group scales", &r[1], true, 1, 2, 1, 4);
        EXPECT("grouped elements", &r[0], true, 127, 1, 127, 1, 0, 0, -127, 1);
    }
    free_results(r, 2);
}

/* An s8 weight dequantised by one scale, or one for each row of it, and multiplied: the mode
 * counts for it only with apply_to_int. */
static double int_weight_bound(sinter_fpmath_mode_t mode, int apply_to_int, int n_scales)
{
    const int64_t da[] = {1, 2}, db[] = {2, 1};
    float a[2] = {0.3f, 0.7f}, scale[2] = {0.5f, 2};
    int8_t w[2] = {3, 5};
    sinter_logical_tensor_t in[3] = {describe(1, sinter_f32, 2, da), describe(2, sinter_s8, 2, db),
                                     describe(3, sinter_f32, n_scales > 1 ? 2 : 0, db)};
    sinter_logical_tensor_t weight = describe(4, sinter_f32, 2, db), out = unknown(5, sinter_f32),
                            codes[2] = {in[1], in[2]};
    sinter_logical_tensor_t factors[2] = {in[0], weight};
    orc_op_t ops[2] = {{1, sinter_op_dynamic_dequantize, 0, 2, 1, NULL, codes, &weight},
                       {2, sinter_op_matmul, 0, 2, 1, NULL, factors, &out}};
    orc_graph_t graph = {2, ops, mode, apply_to_int};
    orc_tensor_t inputs[3] = {{in[0], a}, {in[1], w}, {in[2], scale}};
    uint64_t id = 5;
    orc_result_t r;
    char err[200] = "";
    double bound;

    CHECK(orc_run(&graph, 3, inputs, 1, &id, &r, err, sizeof err) == 0, "%s", err);
    bound = r.n == 1 ? r.bound[0] : NAN;
    orc_result_free(&r);
    return bound;
}

static void test_modes(void)
{
    /* |a| = 0.76, |b| = 2.92; its limbs are off by parts of 0.7 in each of two elements */
    const double largest = 0.7 * sqrt(2) * 2.9155, folded = 0.7 * 2 * (3 + 5);

    CHECK(int_weight_bound(sinter_fpmath_mode_strict, 1, 1) < 1e-6, "strict");
    CHECK(int_weight_bound(sinter_fpmath_mode_bf16, 0, 1) < 1e-6, "bf16 not applied to int");
    CHECK(int_weight_bound(sinter_fpmath_mode_int8, 0, 1) < 1e-6, "int8 not applied to int");
    CHECK(near(int_weight_bound(sinter_fpmath_mode_bf16, 1, 1),
               2 * 0x1p-8 * 0.7616 * 2.9155 + 0x1p-15 * largest, 0.004),
          "bf16");
    CHECK(near(int_weight_bound(sinter_fpmath_mode_f16, 1, 1),
               2 * 0x1p-11 * 0.7616 * 2.9155 + 0x1p-15 * largest, 0.004),
          "f16");
    CHECK(near(int_weight_bound(sinter_fpmath_mode_int8, 1, 1), 0x1p-7 * largest, 0.004),
          "int8 of the group's largest element");
    CHECK(near(int_weight_bound(sinter_fpmath_mode_int8, 1, 2), 0x1p-7 * folded, 0.004),
          "int8 of the largest product with a scale");
    CHECK(int_weight_bound(sinter_fpmath_mode_strict, 1, 2) < 1e-5, "strict, two scales");
}

static float noise(uint64_t *state)
{
    return (float)random_signed(state);
}

/* ---- limbs ----------------------------------------------------------------------------------- */

enum { TOKENS = 300, COLS = 64, COL_GROUP = 16, COL_GROUPS = COLS / COL_GROUP };

/* Weights of very different size times s4 codes with a scale for each token and group of
 * columns. */
typedef struct limb_case {
    float p[TOKENS], scale[TOKENS * COL_GROUPS], out[COLS];
    unsigned char codes[TOKENS * COLS / 2];
} limb_case_t;

static int code_of(const limb_case_t *l, int t, int j)
{
    int nibble = l->codes[(t * COLS + j) / 2] >> (j % 2 ? 4 : 0) & 15;
    return nibble > 7 ? nibble - 16 : nibble;
}

/* What a kernel of limbs does: weights times scales are rounded to integers of up to `steps`, their
 * products are exact, and one scale is applied after them. */
static void multiply_limbs(limb_case_t *l, double steps)
{
    for (int j = 0; j < COLS; j++) {
        double most = 0, sum = 0;
        for (int t = 0; t < TOKENS; t++) {
            most = fmax(most, fabs((double)(l->p[t] * l->scale[t * COL_GROUPS + j / COL_GROUP])));
        }
        for (int t = 0; t < TOKENS; t++) {
            sum +=
                rint((double)(l->p[t] * l->scale[t * COL_GROUPS + j / COL_GROUP]) / most * steps) *
                code_of(l, t, j);
        }
        l->out[j] = (float)(sum * most / steps);
    }
}

/* Ratio of the worst error to the bound of a mode. */
static double limb_ratio(const limb_case_t *l, sinter_fpmath_mode_t mode)
{
    const int64_t da[] = {1, TOKENS}, db[] = {TOKENS, COLS}, ds[] = {TOKENS, COL_GROUPS},
                  dc[] = {1, COLS};
    sinter_logical_tensor_t in[3] = {describe(1, sinter_f32, 2, da), describe(2, sinter_s4, 2, db),
                                     describe(3, sinter_f32, 2, ds)};
    sinter_logical_tensor_t values = describe(4, sinter_f32, 2, db),
                            out = describe(5, sinter_f32, 2, dc), codes[2] = {in[1], in[2]};
    sinter_logical_tensor_t factors[2] = {in[0], values};
    orc_op_t ops[2] = {{1, sinter_op_dynamic_dequantize, 0, 2, 1, NULL, codes, &values},
                       {2, sinter_op_matmul, 0, 2, 1, NULL, factors, &out}};
    orc_graph_t graph = {2, ops, mode, 1};
    orc_tensor_t inputs[3] = {{in[0], l->p}, {in[1], l->codes}, {in[2], l->scale}};
    uint64_t id = 5;
    orc_result_t r;
    orc_diff_t diff;
    char err[200] = "";

    CHECK(orc_run(&graph, 3, inputs, 1, &id, &r, err, sizeof err) == 0, "%s", err);
    orc_compare(&r, &out, l->out, &diff);
    CHECK(diff.n == COLS && diff.loose == 0, "limbs: %zu results, %zu of them loose", diff.n,
          diff.loose);
    orc_result_free(&r);
    return diff.worst_ratio;
}

/* Two limbs are within the bounds of the modes that allow them and one limb is not; one is in
 * int8 mode, and 4 bits are not. */
static void test_limbs(void)
{
    limb_case_t l;
    uint64_t state = 11;

    for (int t = 0; t < TOKENS; t++) {
        l.p[t] = expf(-6 * fabsf(noise(&state)));
    }
    for (int i = 0; i < TOKENS * COL_GROUPS; i++) {
        l.scale[i] = exp2f(4 * noise(&state));
    }
    for (int i = 0; i < TOKENS * COLS / 2; i++) {
        l.codes[i] = (unsigned char)(128 * (noise(&state) + 1));
    }
    multiply_limbs(&l, 127 * 256);
    CHECK(limb_ratio(&l, sinter_fpmath_mode_strict) > 1, "two limbs are not strict");
    CHECK(limb_ratio(&l, sinter_fpmath_mode_f16) <= 1 &&
              limb_ratio(&l, sinter_fpmath_mode_bf16) <= 1,
          "two limbs");
    CHECK(limb_ratio(&l, sinter_fpmath_mode_tf32) > 1e-3, "the bound is not vastly wider");
    multiply_limbs(&l, 127);
    CHECK(limb_ratio(&l, sinter_fpmath_mode_f16) > 1, "one limb is not f16");
    CHECK(limb_ratio(&l, sinter_fpmath_mode_int8) <= 1, "one limb");
    multiply_limbs(&l, 7);
    CHECK(limb_ratio(&l, sinter_fpmath_mode_int8) > 1, "4 bits are not int8");
}

/* ---- bounds ---------------------------------------------------------------------------------- */

static float to_bf16(float x)
{
    return (float)orc_round(sinter_bf16, (double)x);
}

enum { SIDE = 96 };

static void multiply_f32(const float *a, const float *b, float *c, bool bf16)
{
    for (int i = 0; i < SIDE; i++) {
        for (int j = 0; j < SIDE; j++) {
            float sum = 0;
            for (int k = 0; k < SIDE; k++) {
                sum += bf16 ? to_bf16(a[i * SIDE + k]) * to_bf16(b[k * SIDE + j])
                            : a[i * SIDE + k] * b[k * SIDE + j];
            }
            c[i * SIDE + j] = sum;
        }
    }
}

/* (A B) B in plain f32 code, operands optionally rounded, must be within bounds that are not
 * vastly wider; a wrong element is found. */
static void test_chain(sinter_fpmath_mode_t mode, bool bf16)
{
    static float a[SIDE * SIDE], b[SIDE * SIDE], ab[SIDE * SIDE], c[SIDE * SIDE];
    const int64_t dims[] = {SIDE, SIDE};
    sinter_logical_tensor_t in[2][2], out[2];
    orc_op_t ops[2] = {{2, sinter_op_matmul, 0, 2, 1, NULL, in[1], &out[1]},
                       {1, sinter_op_matmul, 0, 2, 1, NULL, in[0], &out[0]}};
    orc_graph_t graph = {2, ops, mode, 0};
    orc_tensor_t inputs[2] = {{describe(1, sinter_f32, 2, dims), a},
                              {describe(2, sinter_f32, 2, dims), b}};
    uint64_t id = 4, state = 7;
    orc_result_t r;
    orc_diff_t diff;
    char err[200] = "";

    for (int i = 0; i < SIDE * SIDE; i++) {
        a[i] = noise(&state);
        b[i] = noise(&state);
    }
    in[0][0] = inputs[0].lt;
    in[0][1] = in[1][1] = inputs[1].lt;
    out[0] = in[1][0] = describe(3, sinter_f32, 2, dims);
    out[1] = describe(4, sinter_f32, 2, dims);
    multiply_f32(a, b, ab, bf16);
    multiply_f32(ab, b, c, bf16);
    CHECK(orc_run(&graph, 2, inputs, 1, &id, &r, err, sizeof err) == 0, "%s", err);
    CHECK(orc_compare(&r, &out[1], c, &diff) == 0, "chain: %zu bad, worst ratio %g", diff.bad,
          diff.worst_ratio);
    CHECK(diff.worst_ratio > 1e-3 && diff.worst_ratio <= 1 && diff.n == SIDE * SIDE &&
              diff.loose == 0,
          "chain: worst ratio %g", diff.worst_ratio);
    printf("chain of two matmuls, mode %d: worst ratio %.3g, rel l2 %.3g\n", (int)mode,
           diff.worst_ratio, diff.rel_l2);
    c[5] += bf16 ? 2.0f : 2e-3f; /* a typical element is 18 */
    CHECK(orc_compare(&r, &out[1], c, &diff) != 0 && diff.bad == 1 && diff.worst == 5,
          "a wrong element is found");
    out[1].dims[0]--;
    CHECK(orc_compare(&r, &out[1], c, &diff) != 0, "other dims are an error");
    orc_result_free(&r);
}

/* TypeCast to bf16 then Multiply by 1: an unfused execution rounds, a fused one does not; both
 * pass, a bf16 step more does not. */
static void test_intermediate(void)
{
    const int64_t dims[] = {1};
    float x = 1.00390625f + 0.001f, one = 1, rounded = to_bf16(x), off = rounded + 0x1p-7f;
    sinter_logical_tensor_t in = describe(1, sinter_f32, 1, dims),
                            mid = describe(2, sinter_bf16, 1, dims),
                            unit = describe(3, sinter_f32, 1, dims);
    sinter_logical_tensor_t out = describe(4, sinter_f32, 1, dims), factors[2] = {mid, unit};
    orc_op_t ops[2] = {{1, sinter_op_type_cast, 0, 1, 1, NULL, &in, &mid},
                       {2, sinter_op_multiply, 0, 2, 1, NULL, factors, &out}};
    orc_graph_t graph = {2, ops, sinter_fpmath_mode_strict, 0};
    orc_tensor_t inputs[2] = {{in, &x}, {unit, &one}};
    uint64_t ids[2] = {4, 2};
    orc_result_t r[2];
    orc_diff_t diff;
    uint16_t stored = (uint16_t)(0x3F80 + 1);
    char err[200] = "";

    CHECK(orc_run(&graph, 2, inputs, 2, ids, r, err, sizeof err) == 0, "%s", err);
    CHECK(orc_compare(&r[0], &out, &x, &diff) == 0 && diff.differ == 0 && diff.open == 1,
          "fused value");
    CHECK(orc_compare(&r[0], &out, &rounded, &diff) == 0 && diff.differ == 1, "unfused value");
    CHECK(orc_compare(&r[0], &out, &off, &diff) != 0 && diff.differ == 1, "a step off");
    CHECK(r[1].bound[0] == 0, "the cast itself, asked for as an output, has no slack");
    CHECK(orc_compare(&r[1], &mid, &stored, &diff) == 0 && diff.differ == 0 && diff.open == 0,
          "bf16 output %g", diff.got);
    stored++;
    CHECK(orc_compare(&r[1], &mid, &stored, &diff) != 0, "next bf16");
    free_results(r, 2);
}

/* 1 / e^(x^5) of an x halfway between two bf16, rounded or not, and of a bf16: where f32 may
 * overflow and may not, nothing is demanded; where it does in any case, 0 is. */
static void test_overflow(void)
{
    const int64_t dims[] = {2};
    const float x[2] = {2.4609375f, 2.5f}, finite[2] = {5e-39f, 0}, wrong[2] = {5e-39f, 5e-39f};
    const float five = 5;
    sinter_logical_tensor_t t[5];
    orc_attr_t beta = {.id = sinter_op_attr_beta, .n = 1, .f32 = &five};
    orc_op_t ops[4] = {{1, sinter_op_type_cast, 0, 1, 1, NULL, &t[0], &t[1]},
                       {2, sinter_op_pow, 1, 1, 1, &beta, &t[1], &t[2]},
                       {3, sinter_op_exp, 0, 1, 1, NULL, &t[2], &t[3]},
                       {4, sinter_op_reciprocal, 0, 1, 1, NULL, &t[3], &t[4]}};
    orc_graph_t graph = {4, ops, sinter_fpmath_mode_strict, 0};
    uint64_t id = 5;
    orc_result_t r;
    orc_diff_t diff;
    char err[200] = "";

    for (int i = 0; i < 5; i++) {
        t[i] = describe((uint64_t)i + 1, i == 1 ? sinter_bf16 : sinter_f32, 1, dims);
    }
    CHECK(orc_run(&graph, 1, &(orc_tensor_t){t[0], (void *)x}, 1, &id, &r, err, sizeof err) == 0,
          "%s", err);
    CHECK(orc_compare(&r, &t[4], finite, &diff) != 0 && diff.bad == 0 && diff.loose > 0,
          "what may overflow need not: got %g, want %g", diff.got, diff.want);
    CHECK(orc_compare(&r, &t[4], wrong, &diff) != 0 && diff.bad == 1 && diff.worst == 1,
          "what must overflow does");
    orc_result_free(&r);
}

/* Products near the ends of f32: the result in any order of summation, or nothing. */
static void test_range(void)
{
    const float big = 3e38f, inf = INFINITY, least = 0x1p-149f, third = 1 / 3.0f;
    const struct {
        float a[3], b[3], got;
        bool right, loose;
    } cases[] = {
        {{big, big, 0}, {1, 1, 1}, inf, true, false},
        {{big, big, 0}, {1, 1, 1}, FLT_MAX, false, false},
        {{-big, -big, 1}, {1, 1, 1}, inf, false, false},
        {{big, big, -big}, {1, 1, 1}, big, true, true},
        {{big, -1, 0}, {1, 0, 0}, big, true, false},
        {{big, big, 0}, {0.1f, 0.1f, 0}, 6e37f, true, false},
        {{inf, 1, 1}, {1, 1, 1}, inf, true, false},
        {{inf, 1, 1}, {1, 1, 1}, -inf, false, false},
        {{inf, big, big}, {1, -1, -1}, NAN, true, true},
        {{least, least, least}, {third, third, third}, 0, true, false},
        {{least, least, least}, {third, third, third}, 2 * least, true, false},
        {{least, least, least}, {third, third, third}, 4 * least, false, false},
    };
    const int64_t dims[] = {1, 3, 1};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        sinter_logical_tensor_t in[2] = {describe(1, sinter_f32, 2, dims),
                                         describe(2, sinter_f32, 2, dims + 1)},
                                out = unknown(3, sinter_f32);
        orc_op_t op = {1, sinter_op_matmul, 0, 2, 1, NULL, in, &out};
        orc_graph_t graph = {1, &op, sinter_fpmath_mode_strict, 0};
        orc_tensor_t inputs[2] = {{in[0], cases[i].a}, {in[1], cases[i].b}};
        uint64_t id = 3;
        orc_result_t r;
        orc_diff_t diff;
        char err[200] = "";

        CHECK(orc_run(&graph, 2, inputs, 1, &id, &r, err, sizeof err) == 0, "%s", err);
        orc_compare(&r, &r.lt, &cases[i].got, &diff);
        CHECK((diff.bad == 0) == cases[i].right && (diff.loose == 1) == cases[i].loose,
              "range, case %zu: got %g, want %g within %g", i, diff.got, diff.want, diff.tolerance);
        orc_result_free(&r);
    }
}

/* Ends of an interval beside the minimum of HardSwish, which is -0.375 at -1.5, say too little. */
static void test_dip(void)
{
    const int64_t dims[] = {1, 2, 1};
    const float a[2] = {1000, -1000}, b[2] = {1, 1.0171f};
    sinter_logical_tensor_t in[2] = {describe(1, sinter_f32, 2, dims),
                                     describe(2, sinter_f32, 2, dims + 1)};
    sinter_logical_tensor_t x = describe(3, sinter_f32, 2, (int64_t[]){1, 1}),
                            out = unknown(4, sinter_f32);
    orc_op_t ops[2] = {{1, sinter_op_matmul, 0, 2, 1, NULL, in, &x},
                       {2, sinter_op_hard_swish, 0, 1, 1, NULL, &x, &out}};
    orc_graph_t graph = {2, ops, sinter_fpmath_mode_bf16, 0};
    orc_tensor_t inputs[2] = {{in[0], a}, {in[1], b}};
    uint64_t ids[2] = {3, 4};
    orc_result_t r[2];
    char err[200] = "";

    CHECK(orc_run(&graph, 2, inputs, 2, ids, r, err, sizeof err) == 0, "%s", err);
    CHECK(fabs(r[0].value[0] + r[0].bound[0] + 1) < 0.5, "an end is beside the dip: %g +- %g",
          r[0].value[0], r[0].bound[0]);
    CHECK(r[1].bound[0] >= 0.375, "the dip is within %g", r[1].bound[0]);
    free_results(r, 2);
}

/* 1 / (0.3 * f4(leaky(f16(x)))): where f16 stores a zero and a fused execution has a number,
 * f4's zero has either sign; that of a certain zero is certain. */
static void test_zero_sign(void)
{
    const int64_t dims[] = {3};
    const float x[3] = {-1e-30f, 2, -0.0f}, scale = 0.3f, slope = -0.5f;
    float got[2][3] = {{INFINITY, 1 / (0.3f * 2), -INFINITY},
                       {-INFINITY, 1 / (0.3f * 2), INFINITY}};
    sinter_logical_tensor_t t[7];
    orc_attr_t alpha = {.id = sinter_op_attr_alpha, .n = 1, .f32 = &slope};
    orc_op_t ops[5] = {{1, sinter_op_type_cast, 0, 1, 1, NULL, &t[0], &t[1]},
                       {2, sinter_op_leaky_relu, 1, 1, 1, &alpha, &t[1], &t[2]},
                       {3, sinter_op_type_cast, 0, 1, 1, NULL, &t[2], &t[3]},
                       {4, sinter_op_multiply, 0, 2, 1, NULL, &t[3], &t[5]},
                       {5, sinter_op_reciprocal, 0, 1, 1, NULL, &t[5], &t[6]}};
    orc_graph_t graph = {5, ops, sinter_fpmath_mode_strict, 0};
    orc_tensor_t inputs[2];
    uint64_t id = 7;
    orc_result_t r;
    orc_diff_t diff;
    char err[200] = "";

    for (int i = 0; i < 7; i++) {
        t[i] = describe((uint64_t)i + 1,
                        i == 1 || i == 2 ? sinter_f16
                        : i == 3         ? sinter_f4_e2m1
                                         : sinter_f32,
                        i == 4 ? 0 : 1, dims);
    }
    inputs[0] = (orc_tensor_t){t[0], x};
    inputs[1] = (orc_tensor_t){t[4], &scale};
    CHECK(orc_run(&graph, 2, inputs, 1, &id, &r, err, sizeof err) == 0, "%s", err);
    CHECK(orc_compare_loosely(&r, &t[6], got[0], 0.4, &diff) == 0 && diff.loose == 1,
          "a zero of either sign: got %g, want %g", diff.got, diff.want);
    CHECK(orc_compare(&r, &t[6], got[1], &diff) != 0 && diff.bad == 1 && diff.worst == 2,
          "a certain sign: %zu wrong, worst %zu", diff.bad, diff.worst);
    orc_result_free(&r);
}

/* ---- bounds that are certain, and bounds that check nothing ---------------------------------- */

/* x = a . b in bf16, which leaves x a bound; y = op(x, other) or op(other, x). */
typedef struct certain_case {
    const char *what;
    sinter_op_kind_t kind;
    float a[2], other;
    bool turned; /* op(other, x) */
    sinter_data_type_t type;
    float right, wrong; /* of them the first must be taken and the second must not */
} certain_case_t;

/* An uncertain operand does not make every result uncertain. */
static void test_certain(void)
{
    static const float b[2] = {1, 1.0171f};
    static const certain_case_t cases[] = {
        {"root of a negative", sinter_op_sqrt, {2, -1000}, 0, false, sinter_f32, NAN, 1},
        {"logarithm of a negative", sinter_op_log, {2, -1000}, 0, false, sinter_f32, NAN, -1},
        {"infinity times a positive",
         sinter_op_multiply,
         {2, 3},
         INFINITY,
         false,
         sinter_f32,
         INFINITY,
         -INFINITY},
        {"infinity over a positive",
         sinter_op_divide,
         {2, 3},
         INFINITY,
         true,
         sinter_f32,
         INFINITY,
         1},
        {"a number over NaN", sinter_op_divide, {2, 3}, NAN, false, sinter_f32, NAN, 1},
        {"distance to infinity",
         sinter_op_squared_difference,
         {2, 3},
         INFINITY,
         false,
         sinter_f32,
         INFINITY,
         1},
        {"NaN to f4", sinter_op_multiply, {2, 3}, NAN, false, sinter_f4_e2m1, -6, 0},
        {"NaN to f6", sinter_op_multiply, {2, 3}, NAN, false, sinter_f6_e3m2, 28, 1},
    };
    const int64_t dims[] = {1, 2, 1}, one[] = {1, 1};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const certain_case_t *c = &cases[i];
        const bool binary = c->kind != sinter_op_sqrt && c->kind != sinter_op_log;
        const sinter_logical_tensor_t in[2] = {describe(1, sinter_f32, 2, dims),
                                               describe(2, sinter_f32, 2, dims + 1)};
        const sinter_logical_tensor_t x = describe(3, sinter_f32, 2, one),
                                      other = describe(4, sinter_f32, 2, one);
        const sinter_logical_tensor_t out = describe(5, c->type, 2, one),
                                      ab[2] = {c->turned ? other : x, c->turned ? x : other};
        const orc_op_t ops[2] = {{1, sinter_op_matmul, 0, 2, 1, NULL, in, &x},
                                 {2, c->kind, 0, binary ? 2 : 1, 1, NULL, ab, &out}};
        const orc_graph_t graph = {2, ops, sinter_fpmath_mode_bf16, 0};
        const orc_tensor_t inputs[3] = {{in[0], c->a}, {in[1], b}, {other, &c->other}};
        const uint64_t ids[2] = {3, 5};
        unsigned char right[4] = {0}, wrong[4] = {0};
        orc_result_t r[2];
        orc_diff_t diff;
        char err[200] = "";

        CHECK(orc_run(&graph, binary ? 3 : 2, inputs, 2, ids, r, err, sizeof err) == 0, "%s: %s",
              c->what, err);
        orc_encode(c->type, right, 0, (double)c->right);
        orc_encode(c->type, wrong, 0, (double)c->wrong);
        CHECK(r[0].bound[0] > 0, "%s: the operand is uncertain", c->what);
        CHECK(orc_compare(&r[1], &out, right, &diff) == 0 && diff.loose == 0, "%s: %g is right",
              c->what, (double)c->right);
        CHECK(orc_compare(&r[1], &out, wrong, &diff) != 0 && diff.bad == 1, "%s: %g is wrong",
              c->what, (double)c->wrong);
        free_results(r, 2);
    }
}

/* exp of infinity is infinite, and infinity times a bf16 that is not tiny as well. */
static void test_certain_infinity(void)
{
    const int64_t dims[] = {1, 2, 1}, one[] = {1, 1};
    const float a[2] = {INFINITY, 3}, b[2] = {1, 1.0171f}, right = INFINITY, wrong = 1;
    const sinter_logical_tensor_t in[2] = {describe(1, sinter_f32, 2, dims),
                                           describe(2, sinter_f32, 2, dims + 1)};
    const sinter_logical_tensor_t x = describe(3, sinter_f32, 2, one),
                                  y = describe(4, sinter_f32, 2, one);
    const orc_op_t ops[2] = {{1, sinter_op_matmul, 0, 2, 1, NULL, in, &x},
                             {2, sinter_op_exp, 0, 1, 1, NULL, &x, &y}};
    const orc_graph_t graph = {2, ops, sinter_fpmath_mode_bf16, 0};
    const orc_tensor_t inputs[2] = {{in[0], a}, {in[1], b}};
    const uint64_t ids[2] = {3, 4};
    orc_result_t r[2];
    orc_diff_t diff;
    char err[200] = "";

    CHECK(orc_run(&graph, 2, inputs, 2, ids, r, err, sizeof err) == 0, "%s", err);
    for (int i = 0; i < 2; i++) {
        CHECK(orc_compare(&r[i], &r[i].lt, &right, &diff) == 0 && diff.loose == 0,
              "infinity, op %d", i);
        CHECK(orc_compare(&r[i], &r[i].lt, &wrong, &diff) != 0 && diff.bad == 1,
              "infinity is not 1, op %d", i);
    }
    free_results(r, 2);
}

/* A NaN in a row makes the sum NaN, whatever the sign of another element that meets an infinity. */
static void test_certain_sum(void)
{
    const int64_t dims[] = {1, 3, 1};
    const float a[3] = {NAN, 0x1p-140f, 1}, b[3] = {1, INFINITY, 1}, right = NAN, wrong = 1;
    const sinter_logical_tensor_t in[2] = {describe(1, sinter_f32, 2, dims),
                                           describe(2, sinter_f32, 2, dims + 1)},
                                  out = unknown(3, sinter_f32);
    const orc_op_t op = {1, sinter_op_matmul, 0, 2, 1, NULL, in, &out};
    const orc_graph_t graph = {1, &op, sinter_fpmath_mode_bf16, 0};
    const orc_tensor_t inputs[2] = {{in[0], a}, {in[1], b}};
    const uint64_t id = 3;
    orc_result_t r;
    orc_diff_t diff;
    char err[200] = "";

    CHECK(orc_run(&graph, 2, inputs, 1, &id, &r, err, sizeof err) == 0, "%s", err);
    CHECK(orc_compare(&r, &r.lt, &right, &diff) == 0 && diff.loose == 0, "a sum with NaN is NaN");
    CHECK(orc_compare(&r, &r.lt, &wrong, &diff) != 0 && diff.bad == 1, "a sum with NaN is not 1");
    orc_result_free(&r);
}

/* Adds 528 products in f32, one after the other: a factor times one of `choices` numbers, most of
 * which are positive. Equal terms are rounded alike. Returns the largest error as a fraction of the
 * oracle's bound, and that bound for a factor of 1. */
static double worst_sum(int choices, double *bound)
{
    enum { TERMS = 528, SUMS = 400 };
    const int64_t dims[] = {1, TERMS, 1};
    const sinter_logical_tensor_t in[2] = {describe(1, sinter_f32, 2, dims),
                                           describe(2, sinter_f32, 2, dims + 1)},
                                  out = unknown(3, sinter_f32);
    const orc_op_t op = {1, sinter_op_matmul, 0, 2, 1, NULL, in, &out};
    const orc_graph_t graph = {1, &op, sinter_fpmath_mode_strict, 0};
    const uint64_t id = 3;
    uint64_t state = 7;
    double worst = 0;
    for (int i = 0; i < SUMS; i++) {
        float a[TERMS], b[TERMS], numbers[TERMS], sum = 0, factor = noise(&state);
        const orc_tensor_t inputs[2] = {{in[0], a}, {in[1], b}};
        orc_result_t r;
        char err[200] = "";
        for (int k = 0; k < choices; k++) {
            numbers[k] = noise(&state) + 0.75f;
        }
        for (int k = 0; k < TERMS; k++) {
            a[k] = factor;
            b[k] = numbers[(int)((noise(&state) + 1) / 2 * (float)choices) % choices];
            sum = fmaf(a[k], b[k], sum);
        }
        CHECK(orc_run(&graph, 2, inputs, 1, &id, &r, err, sizeof err) == 0, "%s", err);
        worst = fmax(worst, fabs((double)sum - r.value[0]) / r.bound[0]);
        *bound = r.bound[0] / fabs(factor);
        orc_result_free(&r);
    }
    return worst;
}

static void test_equal_terms(void)
{
    double few, many;
    const double of_few = worst_sum(4, &few), of_many = worst_sum(528, &many);
    CHECK(of_few <= 1, "sums of few different terms are off by %g of their bound", of_few);
    CHECK(of_many <= 1, "sums of many different terms are off by %g of their bound", of_many);
    CHECK(of_few > 0.1 && of_many > 0.1, "the bounds are loose: %g, %g", of_few, of_many);
    CHECK(few > 4 * many, "the bound of few different terms is %g, of many %g", few, many);
}

/* x / scale where the scale of an uncertain group may be the next power of two: x is halved, not
 * lost. */
static void test_uncertain_scale(void)
{
    const int64_t dims[] = {1, 1, 32}, scale_dims[] = {1, 1};
    const float a = 1;
    float b[32];
    const sinter_logical_tensor_t in[2] = {describe(1, sinter_f32, 2, dims),
                                           describe(2, sinter_f32, 2, dims + 1)},
                                  x = describe(3, sinter_f32, 2, dims + 1);
    const sinter_logical_tensor_t out[2] = {describe(4, sinter_f8_e4m3, 2, dims + 1),
                                            describe(5, sinter_e8m0, 2, scale_dims)};
    const orc_attr_t kind = {.id = sinter_op_attr_quantization_kind, .str = "dynamic_mx"};
    const orc_op_t ops[2] = {{1, sinter_op_matmul, 0, 2, 1, NULL, in, &x},
                             {2, sinter_op_dynamic_quantize, 1, 1, 2, &kind, &x, out}};
    const orc_graph_t graph = {2, ops, sinter_fpmath_mode_bf16, 0};
    const orc_tensor_t inputs[2] = {{in[0], &a}, {in[1], b}};
    const uint64_t ids[2] = {4, 5};
    orc_result_t r[2];
    char err[200] = "";

    for (int i = 0; i < 32; i++) {
        b[i] = i == 0 ? 1.9999f : 1.25f;
    }
    CHECK(orc_run(&graph, 2, inputs, 2, ids, r, err, sizeof err) == 0, "%s", err);
    CHECK(r[1].bound[0] > 0, "the scale is uncertain");
    for (int i = 1; i < 32; i++) {
        CHECK(r[0].bound[i] > 0 && r[0].bound[i] < 1.1 * r[0].value[i], "element %d: %g within %g",
              i, r[0].value[i], r[0].bound[i]);
    }
    free_results(r, 2);
}

/* What counts as loose: see the head of compare.c. Every output has a magnitude of 8 in its second
 * element. */
static void test_loose(void)
{
    static const struct {
        sinter_data_type_t type;
        double value, bound;
        bool loose;
    } cases[] = {
        {sinter_f32, 1, INFINITY, true}, {sinter_f32, NAN, INFINITY, true},
        {sinter_f32, 1, 7.9, false},     {sinter_f32, 1, 8.1, true},
        {sinter_f32, 0, 8.1, true},      {sinter_s8, 1, 8, false},
        {sinter_s4, 0, 7.9, true},       {sinter_s4, 4, 6, false},
        {sinter_u4, 7, 7.8, true},       {sinter_boolean, 1, 0, false},
        {sinter_boolean, 1, 1, true},    {sinter_f32, NAN, 0, false},
    };
    const int64_t dims[] = {2};

    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const bool truth = cases[i].type == sinter_boolean;
        double value[2] = {cases[i].value, truth ? 1 : 8}, bound[2] = {cases[i].bound, 0};
        const orc_result_t r = {
            .lt = describe(1, cases[i].type, 1, dims), .n = 2, .value = value, .bound = bound};
        unsigned char got[8] = {0};
        orc_diff_t diff;
        char text[300];

        orc_encode(cases[i].type, got, 0, value[0]);
        orc_encode(cases[i].type, got, 1, value[1]);
        const int strict = orc_compare(&r, &r.lt, got, &diff),
                  half = orc_compare_loosely(&r, &r.lt, got, 0.5, &diff);
        CHECK(diff.bad == 0 && diff.loose == cases[i].loose, "loose, case %zu: %zu loose, %zu bad",
              i, diff.loose, diff.bad);
        CHECK((strict != 0) == cases[i].loose && half == 0,
              "loose, case %zu: %d, and %d where half may be", i, strict, half);
        CHECK(!cases[i].loose || strstr(orc_diff_text(&diff, text, sizeof text),
                                        "1 of 2 elements with a bound that checks nothing"),
              "loose, case %zu: \"%s\"", i, text);
    }
}

/* Codes times scales that are beyond f32: with offsets that make up for it they are numbers, and
 * infinities are wrong, op by op and in products. Without these they are infinite, which a product
 * need not see. */
static void test_brink(void)
{
    const int64_t row[] = {1, 2}, column[] = {2, 1}, one[] = {1, 1};
    const uint8_t codes[2] = {160, 170};
    const float a[2] = {0x1p-3f, 0x1p-3f}, scale[2] = {0x1p121f, 0x1p121f};
    const float offset[2][2] = {{-0x1.8p127f, -0x1.8p127f}, {0, 0}}, infinite = INFINITY;
    const float x[2][2] = {{0x1p127f, INFINITY}, {INFINITY, 0x1p127f}}; /* right and wrong */
    const sinter_logical_tensor_t in[3] = {describe(1, sinter_u8, 2, column),
                                           describe(2, sinter_f32, 2, column),
                                           describe(3, sinter_f32, 2, column)};
    const sinter_logical_tensor_t b = describe(4, sinter_f32, 2, column),
                                  y = describe(6, sinter_f32, 2, one),
                                  factors[2] = {describe(5, sinter_f32, 2, row), b};
    const orc_attr_t kind = STR(zps_kind, "offsets");
    const orc_op_t ops[2] = {{1, sinter_op_dynamic_dequantize, 1, 3, 1, &kind, in, &b},
                             {2, sinter_op_matmul, 0, 2, 1, NULL, factors, &y}};
    const orc_graph_t graph = {2, ops, sinter_fpmath_mode_strict, 0};
    const uint64_t ids[2] = {4, 6};

    for (int i = 0; i < 2; i++) {
        const orc_tensor_t inputs[4] = {
            {in[0], codes}, {in[1], scale}, {in[2], offset[i]}, {factors[0], a}};
        orc_result_t r[2];
        orc_diff_t diff;
        char err[200] = "";

        CHECK(orc_run(&graph, 4, inputs, 2, ids, r, err, sizeof err) == 0, "%s", err);
        const float wrong[2] = {x[i][1], (float)r[0].value[1]};
        CHECK((float)r[0].value[0] == x[i][0] && r[0].bound[0] < 0x1p107, "%g within %g",
              r[0].value[0], r[0].bound[0]);
        CHECK(orc_compare(&r[0], &r[0].lt, wrong, &diff) != 0 && diff.bad == 1, "%g in place of %g",
              (double)x[i][1], (double)x[i][0]);
        CHECK(orc_compare(&r[1], &r[1].lt, &infinite, &diff) != 0 &&
                  (i == 0 ? diff.bad == 1 : diff.loose == 1),
              "a product of %g within %g", r[1].value[0], r[1].bound[0]);
        free_results(r, 2);
    }
}

/* Attention adds exp(x - max) times V, where the maximum may be 4 too small, and divides at the
 * end: 4 values times e^4 that f32 does not hold may overflow before. */
static void test_vast_values(void)
{
    const int64_t row[] = {1, 4}, column[] = {4, 1}, one[] = {1, 1};
    const float x[4] = {1, 1, 1, 1}, infinite = INFINITY;
    const sinter_logical_tensor_t in = describe(1, sinter_f32, 2, row),
                                  y = describe(4, sinter_f32, 2, one),
                                  factors[2] = {describe(3, sinter_f32, 2, row),
                                                describe(2, sinter_f32, 2, column)};
    const orc_op_t ops[2] = {{1, sinter_op_softmax, 0, 1, 1, NULL, &in, factors},
                             {2, sinter_op_matmul, 0, 2, 1, NULL, factors, &y}};
    const orc_graph_t graph = {2, ops, sinter_fpmath_mode_strict, 0};
    const uint64_t id = 4;

    for (int e = 119; e <= 124; e += 5) {
        const float each = ldexpf(1, e), v[4] = {each, each, each, each};
        const orc_tensor_t inputs[2] = {{in, x}, {factors[1], v}};
        orc_result_t r;
        orc_diff_t diff;
        char err[200] = "";

        CHECK(orc_run(&graph, 2, inputs, 1, &id, &r, err, sizeof err) == 0, "%s", err);
        CHECK(orc_compare(&r, &r.lt, &infinite, &diff) != 0 &&
                  (e == 119 ? diff.bad == 1 : diff.loose == 1),
              "values of 2^%d: %g within %g", e, r.value[0], r.bound[0]);
        orc_result_free(&r);
    }
}

int main(void)
{
    test_formats();
    test_matmul();
    test_softmax();
    test_unaries();
    test_exact();
    test_integers();
    test_moves();
    test_static_quantise();
    test_scales_of_groups(false);
    test_scales_of_groups(true);
    test_dynamic_quantise();
    test_dynamic_choices();
    test_dynamic_vectors();
    test_dynamic_groups();
    test_modes();
    test_limbs();
    test_chain(sinter_fpmath_mode_strict, false);
    test_chain(sinter_fpmath_mode_bf16, true);
    test_intermediate();
    test_overflow();
    test_range();
    test_dip();
    test_zero_sign();
    test_certain();
    test_certain_infinity();
    test_certain_sum();
    test_equal_terms();
    test_uncertain_scale();
    test_loose();
    test_brink();
    test_vast_values();
    return check_finish();
}
