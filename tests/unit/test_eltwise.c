/* Elementwise functions at every ISA level of this machine and in double: against results of
 * 1000-bit arithmetic by the published definitions (eltwise_vectors.h), and, over bit patterns
 * spread over all of f32, against references in double, which are themselves compared with those
 * results. */
#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "backend_xsmm/ukernels/eltwise.h"
#include "base/cpu.h"
#include "check.h"
#include "eltwise_vectors.h"
#include "graph/op_schema.h"
#include "numeric/dtype.h"
#include "oracle.h"
#include "random.h"

static uint64_t seed = 1;

static void check_value(bool ok, const char *isa, const char *what, double x, double got,
                        double want)
{
    CHECK(ok, "%s %s(%a = %.9g): got %.9g, want %.9g", isa, what, x, x, got, want);
}

/* ---- references ------------------------------------------------------------------------------ */

/* test_references compares them with results from outside. */

typedef double ref_t(double x, const double *p);
#define REF(name, expr)                               \
    static double r_##name(double x, const double *p) \
    {                                                 \
        (void)p;                                      \
        return expr;                                  \
    }
static double softplus(double x)
{
    return fmax(x, 0) + log1p(exp(-fabs(x))) + (isnan(x) ? x : 0);
}
/* As a factor: -inf times 0 is taken for the limit, 0. */
static double limited(double x)
{
    return x < -FLT_MAX ? -FLT_MAX : x;
}
static double unit(double x)
{
    return x < 0 ? 0 : x > 1 ? 1 : x;
}
REF(abs, fabs(x))
REF(exp, exp(x))
REF(log, log(x))
REF(sqrt, sqrt(x))
REF(square, x *x)
REF(reciprocal, 1 / x)
REF(relu, x < 0 ? 0 : x)
REF(round, nearbyint(x))
REF(tanh, tanh(x))
REF(sigmoid, exp(-softplus(-x)))
REF(mish, limited(x) * tanh(softplus(x)))
REF(gelu_erf, 0.5 * limited(x) * erfc(-x * 0.70710678118654752440))
REF(gelu_tanh, limited(x) / (1 + exp(-2 * 0.79788456080286535588 * (x + 0.044715 * x * x * x))))
REF(hard_swish, limited(x) * fmin(fmax(x + 3, 0), 6) / 6 + (isnan(x) ? x : 0))
REF(hard_sigmoid, unit(p[0] * x + p[1]))
REF(leaky_relu, x < 0 ? p[0] * x : x)
REF(elu, x < 0 ? p[0] * expm1(x) : x)
REF(softplus, softplus(p[0] * x) / p[0])
REF(clamp, x<p[0] ? p[0] : x> p[1] ? p[1] : x)
REF(pow, pow(x, p[0]))

/* What the exponent's own rounding costs: e^y moves by |y| units. */
REF(w_gelu_erf, 0.5 * x * x)
REF(w_gelu_tanh, 3 * fabs(1.6 * x * (1 + 0.045 * x * x))) /* roundings on the way to it */
REF(w_softplus, fabs(p[0] * x))
REF(w_hard, (fabs(p[0] * x) + fabs(p[1])) / fabs(unit(p[0] * x + p[1])))
REF(w_hard_swish, (fabs(x) / 6 + 0.5) / fabs(unit(x / 6 + 0.5)))

typedef struct unary_case {
    sinter_op_kind_t kind;
    const char *name;
    ref_t *ref;
    double units; /* error allowed, in 2^-24 of the result; 0: correctly rounded */
    ref_t *extra; /* further units */
    float p[2];
    bool by_libm; /* the reference is the C library's function itself: there are no vectors */
} unary_case_t;

static const unary_case_t cases[] = {
    {sinter_op_abs, "abs", r_abs, 0, NULL, {0}, false},
    {sinter_op_exp, "exp", r_exp, 2, NULL, {0}, false},
    {sinter_op_log, "log", r_log, 2, NULL, {0}, false},
    {sinter_op_sqrt, "sqrt", r_sqrt, 0, NULL, {0}, false},
    {sinter_op_square, "square", r_square, 0, NULL, {0}, false},
    {sinter_op_reciprocal, "reciprocal", r_reciprocal, 0, NULL, {0}, false},
    {sinter_op_relu, "relu", r_relu, 0, NULL, {0}, false},
    {sinter_op_round, "round", r_round, 0, NULL, {0}, false},
    {sinter_op_tanh, "tanh", r_tanh, 3, NULL, {0}, false},
    {sinter_op_sigmoid, "sigmoid", r_sigmoid, 4, NULL, {0}, false},
    {sinter_op_mish, "mish", r_mish, 6, NULL, {0}, false},
    {sinter_op_gelu, "gelu_erf", r_gelu_erf, 8, r_w_gelu_erf, {0}, false},
    {sinter_op_gelu, "gelu_tanh", r_gelu_tanh, 6, r_w_gelu_tanh, {1}, false},
    {sinter_op_hard_swish, "hard_swish", r_hard_swish, 3, r_w_hard_swish, {0}, false},
    {sinter_op_hard_sigmoid, "hard_sigmoid", r_hard_sigmoid, 2, r_w_hard, {0.2f, 0.5f}, false},
    {sinter_op_leaky_relu, "leaky_relu", r_leaky_relu, 0, NULL, {0.01f}, false},
    {sinter_op_elu, "elu", r_elu, 3, NULL, {1.3f}, false},
    {sinter_op_softplus, "softplus", r_softplus, 4, r_w_softplus, {1.0f}, false},
    {sinter_op_softplus, "softplus 2.5", r_softplus, 4, r_w_softplus, {2.5f}, false},
    {sinter_op_softplus, "softplus 0.01", r_softplus, 4, r_w_softplus, {0.01f}, true},
    {sinter_op_softplus, "softplus -3", r_softplus, 4, r_w_softplus, {-3}, true},
    {sinter_op_clamp, "clamp", r_clamp, 0, NULL, {-1.5f, 6}, false},
    {sinter_op_pow, "pow 2", r_pow, 0, NULL, {2}, false},
    {sinter_op_pow, "pow 1", r_pow, 0, NULL, {1}, false},
    {sinter_op_pow, "pow 0", r_pow, 0, NULL, {0}, false},
    {sinter_op_pow, "pow 3", r_pow, 1.01, NULL, {3}, false},
    {sinter_op_pow, "pow -3", r_pow, 1.01, NULL, {-3}, false},
    {sinter_op_pow, "pow 0.5", r_pow, 1.01, NULL, {0.5f}, false},
    {sinter_op_pow, "pow -1.7", r_pow, 1.01, NULL, {-1.7f}, false},
    {sinter_op_pow, "pow 0.45", r_pow, 1.01, NULL, {0.45f}, true},
    {sinter_op_pow, "pow 2.2", r_pow, 1.01, NULL, {2.2f}, true},
    {sinter_op_pow, "pow -0.01", r_pow, 1.01, NULL, {-0.01f}, true},
    {sinter_op_pow, "pow 1 + 2^-23", r_pow, 1.01, NULL, {0x1.000002p0f}, true},
    {sinter_op_pow, "pow 17", r_pow, 1.01, NULL, {17}, true},
    {sinter_op_pow, "pow 18", r_pow, 1.01, NULL, {18}, true},
    {sinter_op_pow, "pow -17", r_pow, 1.01, NULL, {-17}, true},
    {sinter_op_pow, "pow 100.5", r_pow, 1.01, NULL, {100.5f}, true},
    {sinter_op_pow, "pow 2^33", r_pow, 1.01, NULL, {0x1p33f}, true},
    {sinter_op_pow, "pow inf", r_pow, 1.01, NULL, {INFINITY}, true},
    {sinter_op_pow, "pow -inf", r_pow, 1.01, NULL, {-INFINITY}, true},
};

/* Below 2^-126 the loss is absolute: units of 2^-149, times x in x * f(x). */
static int close_to(double x, float got, double want, double units)
{
    if (isnan(want) || isinf((float)want) || units == 0) {
        return isnan(want)
                   ? isnan(got)
                   : got == (float)want || (units > 0 && !isinf(want) && got >= 0x1.FFFFFAp127f);
    }
    if (isinf(got)) { /* rounding up from just below the largest number */
        return fabs(want) > 0x1.FFFFF0p127;
    }
    return fabs((double)got - want) <=
           units * 0x1p-24 * fabs(want) + 0x1p-148 * (1 + fmin(fabs(x), 128));
}

static const float special[] = {0.0f,
                                -0.0f,
                                INFINITY,
                                -INFINITY,
                                NAN,
                                0x1p-149f,
                                -0x1p-149f,
                                0x1p-126f,
                                -0x1p-126f,
                                0x1.FFFFFEp127f,
                                -0x1.FFFFFEp127f,
                                1,
                                -1,
                                0.5f,
                                -0.5f,
                                1.5f,
                                2.5f,
                                -2.5f,
                                88.72284f,
                                88.7229f,
                                -87.33655f,
                                -87.4f,
                                -103.9f,
                                -104.1f,
                                -17.5f,
                                0.625f,
                                -0.625f,
                                8388607.5f,
                                8388608,
                                16777216,
                                3,
                                -3,
                                0.70710677f,
                                0.70710683f,
                                1.41421354f,
                                1.41421366f,
                                0.99999994f,
                                1.00000012f,
                                9.01f,
                                -9.01f,
                                -13.5f,
                                -14.2f};
enum { N_SPECIAL = sizeof special / sizeof special[0], BLOCK = 251 };

/* ---- results from outside -------------------------------------------------------------------- */

static const eltwise_vectors_of_t *vectors_of(const unary_case_t *c)
{
    for (size_t i = 0; i < sizeof eltwise_vectors_of / sizeof eltwise_vectors_of[0]; i++) {
        const eltwise_vectors_of_t *v = &eltwise_vectors_of[i];
        if (v->kind == c->kind && v->p[0] == c->p[0] && v->p[1] == c->p[1]) {
            return v;
        }
    }
    return NULL;
}

/* In double: some hundred units in the last place are what a large exponent costs. */
static int near_double(double got, double want)
{
    return isnan(want) ? isnan(got)
                       : got == want || fabs(got - want) <= 1e-13 * fabs(want) + 1e-300;
}

/* The references. */
static void test_references(void)
{
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const eltwise_vectors_of_t *v = vectors_of(&cases[k]);
        const double p[2] = {cases[k].p[0], cases[k].p[1]};
        check_value(cases[k].by_libm || (v != NULL && v->n > 100), "vectors", cases[k].name, 0, 0,
                    0);
        for (int i = 0; v != NULL && i < v->n; i++) {
            const eltwise_vector_t *e = &eltwise_vectors[v->first + i];
            check_value(near_double(cases[k].ref(e->x, p), e->y), "reference", cases[k].name, e->x,
                        cases[k].ref(e->x, p), e->y);
        }
    }
}

static void test_vectors(const char *isa, const eltwise_table_t *t)
{
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const eltwise_vectors_of_t *v = vectors_of(&cases[k]);
        const double p[2] = {cases[k].p[0], cases[k].p[1]};
        for (int i = 0; v != NULL && i < v->n; i++) {
            const eltwise_vector_t *e = &eltwise_vectors[v->first + i];
            const double extra = cases[k].extra ? cases[k].extra(e->x, p) : 0;
            float got;
            t->op[cases[k].kind](&got, &e->x, NULL, NULL, 1, cases[k].p);
            check_value(close_to(e->x, got, e->y, cases[k].units + (isfinite(extra) ? extra : 0)),
                        isa, cases[k].name, e->x, got, e->y);
        }
    }
}

/* The rows of eltwise.def say what the cards of the schema say: which ops are elementwise, and with
 * how many operands and attributes. */
typedef struct eltwise_row {
    bool is_function;
    int operands, attributes;
} eltwise_row_t;

static const eltwise_row_t def_rows[ELTWISE_KINDS] = {
#define ELTWISE(name, operands, attributes, f32, f64) \
    [OP_SLOT(sinter_op_##name)] = {true, operands, attributes},
#include "backend_xsmm/ukernels/eltwise.def"
};

static void test_agrees_with_schema(void)
{
    for (int slot = 0; slot < ELTWISE_KINDS; slot++) {
        const sinter_op_kind_t kind = op_of_slot(slot);
        const op_card_t *card = op_card(kind);
        if (card == NULL) { /* a gap between the numbers of ops */
            continue;
        }
        /* BatchNormInference is made of other functions, Dropout is left out. */
        const bool computes = (card->flags & OP_ELTWISE) != 0 && kind != sinter_op_type_cast &&
                              kind != sinter_op_gen_index &&
                              kind != sinter_op_batch_norm_inference && kind != sinter_op_dropout;
        int params = 0;
        while (params < CARD_PARAMS && card->params[params] != 0) {
            params++;
        }
        CHECK(def_rows[slot].is_function == computes, "%s: the row says %d, the schema %d",
              sinter_op_kind_name(kind), def_rows[slot].is_function, computes);
        CHECK(!computes ||
                  (def_rows[slot].operands == card->max_in && def_rows[slot].attributes == params),
              "%s: %d operands and %d attributes in the row, %d and %d in the schema",
              sinter_op_kind_name(kind), def_rows[slot].operands, def_rows[slot].attributes,
              card->max_in, params);
    }
}

static void run_unary(const char *isa, const eltwise_table_t *t, const unary_case_t *c,
                      const float *x, int n)
{
    float got[BLOCK];
    double p[2] = {c->p[0], c->p[1]};
    memcpy(got, x, (size_t)n * sizeof(float));
    t->op[c->kind](got, got, NULL, NULL, n, c->p); /* in place */
    for (int i = 0; i < n; i++) {
        const double want = c->ref(x[i], p), extra = c->extra ? c->extra(x[i], p) : 0;
        check_value(close_to(x[i], got[i], want, c->units + (isfinite(extra) ? extra : 0)), isa,
                    c->name, x[i], got[i], want);
    }
}

static float of_bits(uint32_t u)
{
    float x;
    memcpy(&x, &u, sizeof x);
    return x;
}

/* Bit patterns `step` apart, and numbers of everyday size. */
static void test_unary(const char *isa, const eltwise_table_t *t, uint32_t step)
{
    float x[BLOCK];
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        run_unary(isa, t, &cases[k], special, N_SPECIAL);
        uint64_t u = k;
        while (u < 0x100000000u) {
            int n = 0;
            for (; n < BLOCK && u < 0x100000000u; u += step) {
                x[n++] = of_bits((uint32_t)u);
            }
            run_unary(isa, t, &cases[k], x, n);
        }
        for (int b = 0; b < 300; b++) {
            for (int i = 0; i < BLOCK; i++) {
                x[i] = (float)(random_signed(&seed) * 20);
            }
            run_unary(isa, t, &cases[k], x, BLOCK);
        }
    }
}

/* ---- binary, select -------------------------------------------------------------------------- */

static double binary_ref(sinter_op_kind_t kind, double a, double b)
{
    switch (kind) {
    case sinter_op_add:
    case sinter_op_bias_add:
        return a + b;
    case sinter_op_subtract:
        return a - b;
    case sinter_op_multiply:
        return a * b;
    case sinter_op_divide:
        return a / b;
    case sinter_op_squared_difference:
        return pow(a - b, 2);
    case sinter_op_prelu: /* the slope counts for negative numbers only */
        return a < 0 ? a * b : a;
    case sinter_op_greater_equal:
        return a >= b;
    case sinter_op_maximum:
        return isnan(a) || isnan(b) ? NAN : a > b ? a : b;
    default:
        return isnan(a) || isnan(b) ? NAN : a < b ? a : b;
    }
}

static void test_binary(const char *isa, const eltwise_table_t *t)
{
    static const sinter_op_kind_t kinds[] = {sinter_op_add,
                                             sinter_op_subtract,
                                             sinter_op_multiply,
                                             sinter_op_divide,
                                             sinter_op_squared_difference,
                                             sinter_op_prelu,
                                             sinter_op_greater_equal,
                                             sinter_op_maximum,
                                             sinter_op_minimum,
                                             sinter_op_bias_add};
    static float a[N_SPECIAL * N_SPECIAL], b[N_SPECIAL * N_SPECIAL], got[N_SPECIAL * N_SPECIAL],
        cond[N_SPECIAL * N_SPECIAL];
    const int n = N_SPECIAL * N_SPECIAL;
    for (int i = 0; i < n; i++) {
        a[i] = special[i / N_SPECIAL];
        b[i] = special[i % N_SPECIAL];
        cond[i] = (float)(i % 3 == 0);
    }
    for (size_t k = 0; k < sizeof kinds / sizeof kinds[0]; k++) {
        memcpy(got, b, sizeof got);
        t->op[kinds[k]](got, a, got, NULL, n, NULL);
        for (int i = 0; i < n; i++) {
            const double want = binary_ref(kinds[k], a[i], b[i]);
            /* Rounding the difference costs two units of its square, rounding the square one. */
            const double units = kinds[k] == sinter_op_squared_difference ? 3.01 : 0;
            check_value(close_to(a[i], got[i], want, units), isa, sinter_op_kind_name(kinds[k]),
                        a[i], got[i], want);
        }
    }
    memcpy(got, cond, sizeof got);
    t->op[sinter_op_select](got, got, a, b, n, NULL);
    for (int i = 0; i < n; i++) {
        const float want = i % 3 == 0 ? a[i] : b[i];
        check_value(memcmp(&got[i], &want, 4) == 0, isa, "select", a[i], got[i], want);
    }
}

/* ---- rows ------------------------------------------------------------------------------------ */

static void test_rows(const char *isa, const eltwise_table_t *t)
{
    float x[300], y[300], z[300];
    for (int n = 0; n < 300; n += n < 40 ? 1 : 37) {
        double sum = 0, esum = 0, bound = 0;
        float max = -INFINITY;
        for (int i = 0; i < n; i++) {
            x[i] = (float)(random_below(&seed, 2001) - 1000) / 64;
            y[i] = z[i] = (float)(random_below(&seed, 100));
            max = x[i] > max ? x[i] : max;
            sum += x[i];
        }
        check_value(t->row_max(x, n) == max, isa, "row_max", n, t->row_max(x, n), max);
        check_value(t->row_sum(x, n) == sum, isa, "row_sum", n, t->row_sum(x, n),
                    sum); /* exact in f32 */
        for (int i = 0; i < n; i++) {
            esum += exp((double)x[i] - max);
            bound += (4 + fabs((double)x[i] - max)) * exp((double)x[i] - max);
        }
        const double got = t->exp_sub_sum(y, x, n, max);
        check_value(fabs(got - esum) <= (bound + n / 8.0 * esum) * 0x1p-24, isa, "exp_sub_sum", n,
                    got, esum);
        for (int i = 0; i < n; i++) {
            const double e = exp((double)x[i] - max);
            check_value(fabs(y[i] - e) <= (4 + fabs((double)x[i] - max)) * e * 0x1p-24, isa,
                        "exp_sub", x[i], y[i], e);
        }
        memcpy(y, z, sizeof y);
        t->scale_row(y, n, 3);
        t->add_row(y, x, n);
        t->max_row(y, z, n);
        for (int i = 0; i < n; i++) {
            const float v = 3 * z[i] + x[i], want = v > z[i] ? v : z[i];
            check_value(y[i] == want, isa, "scale, add, max", z[i], y[i], want);
        }
        memcpy(y, z, sizeof y);
        t->mix_row(y, 3, x, 2, n);
        for (int i = 0; i < n; i++) {
            check_value(y[i] == 3 * z[i] + 2 * x[i], isa, "mix", z[i], y[i], 3 * z[i] + 2 * x[i]);
        }
    }
    const float odd[] = {-INFINITY, NAN, 2, -INFINITY}, none[] = {-INFINITY, -INFINITY};
    float e[2];
    check_value(t->row_max(odd, 4) == 2, isa, "row_max of NaN", 0, t->row_max(odd, 4), 2);
    check_value(t->row_max(none, 2) == -INFINITY, isa, "row_max of -inf", 0, t->row_max(none, 2),
                -INFINITY);
    check_value(t->exp_sub_sum(e, none, 2, 0) == 0 && e[0] == 0, isa, "exp of -inf", 0, e[0], 0);
    unsigned char past[300 * sizeof(float) + 128];
    for (int n = 0; n < 300; n += n < 40 ? 1 : 37) {
        const size_t at = (size_t)random_below(&seed, 64);
        int bad = 0;
        memset(past, 0xA5, sizeof past);
        t->scale_past(past + at, x, n, 3);
        for (size_t i = 0; i < sizeof past; i++) {
            const bool within = i >= at && i - at < (size_t)n * sizeof(float);
            const float want = within ? x[(i - at) / sizeof(float)] * 3 : 0;
            unsigned char byte[sizeof want];
            memcpy(byte, &want, sizeof want);
            bad += past[i] != (within ? byte[(i - at) % sizeof want] : 0xA5);
        }
        check_value(bad == 0, isa, "scale_past", n, bad, 0);
    }
}

/* Sums of squares, and norms of runs at any address, with parameters for each element, for all, and
 * none. Small integers: results are exact. */
static void test_norm_rows(const char *isa, const eltwise_table_t *t)
{
    enum { MOST = 300, ASIDE = 16 };
    float x[MOST], gamma[MOST] = {0}, beta[MOST] = {0}, room[MOST + 2 * ASIDE];
    for (int n = 0; n < MOST; n += n < 40 ? 1 : 37) {
        double sum = 0, squares = 0, plain = 0, got;
        for (int i = 0; i < n; i++) {
            x[i] = (float)(random_below(&seed, 33) - 16);
            gamma[i] = (float)(random_below(&seed, 5) - 2);
            beta[i] = (float)(random_below(&seed, 9));
            sum += x[i] - 3;
            squares += (x[i] - 3) * (x[i] - 3);
            plain += x[i] * x[i];
        }
        const double second = t->row_moments(x, n, 3, &got);
        check_value(second == squares && got == sum, isa, "row_moments", n, got, sum);
        check_value(t->row_squares(x, n) == plain, isa, "row_squares", n, t->row_squares(x, n),
                    plain);
        for (int form = 0; form < 16; form++) {
            const eltwise_norm_t how = {.shift = 3,
                                        .factor = 0.5f,
                                        .offset = 1,
                                        .gamma = form & 1 ? gamma : NULL,
                                        .beta = form & 2 ? beta : NULL,
                                        .each = form & 4,
                                        .nontemporal = form & 8,
                                        .ahead = {(const unsigned char *)x, form & 1 ? 4 : 2}};
            const int at = random_below(&seed, ASIDE + 1);
            int bad = 0;
            memset(room, 0xA5, sizeof room);
            float guard;
            memset(&guard, 0xA5, sizeof guard);
            t->norm_row(room + at, x, n, &how);
            for (int i = 0; i < MOST + 2 * ASIDE; i++) {
                const int e = i - at;
                const bool within = e >= 0 && e < n;
                const float g = form & 1 && n > 0 ? gamma[form & 4 && within ? e : 0] : 1,
                            b = form & 2 && n > 0 ? beta[form & 4 && within ? e : 0] : 0,
                            want = within ? ((x[e] - 3) / 2 + 1) * g + b : guard;
                bad += room[i] != want;
            }
            check_value(bad == 0, isa, "norm_row", n, form, bad);
        }
    }
}

/* Up to 8 rows folded into sums, with a NaN and infinities in some columns. Small integers: results
 * are exact. */
static void test_columns(const char *isa, const eltwise_table_t *t)
{
    enum { MOST = 45, ROWS = 8 };
    static const sinter_op_kind_t kinds[] = {sinter_op_reduce_sum, sinter_op_reduce_max,
                                             sinter_op_reduce_min, sinter_op_reduce_l1,
                                             sinter_op_reduce_l2,  sinter_op_reduce_prod};
    float x[ROWS][MOST];
    const float *rows[ROWS];
    for (int r = 0; r < ROWS; r++) {
        rows[r] = x[r];
        for (int i = 0; i < MOST; i++) {
            const int which = i % 11 == 5 && r == i % ROWS ? random_below(&seed, 4) : 3;
            x[r][i] = which < 3 ? (float[]){NAN, INFINITY, -INFINITY}[which]
                                : (float)(random_below(&seed, 9) - 4);
        }
    }
    for (int k = 0; k < (int)(sizeof kinds / sizeof *kinds); k++) {
        for (int n = 1; n <= ROWS; n++) {
            double sums[MOST], start = kinds[k] == sinter_op_reduce_max   ? -INFINITY
                                       : kinds[k] == sinter_op_reduce_min ? INFINITY
                                                                          : 2;
            for (int i = 0; i < MOST; i++) {
                sums[i] = start;
            }
            t->fold_columns[OP_SLOT(kinds[k])](sums, rows, n, MOST);
            for (int i = 0; i < MOST; i++) {
                double want = start;
                for (int r = 0; r < n; r++) {
                    const double v = x[r][i];
                    want = kinds[k] == sinter_op_reduce_sum    ? want + v
                           : kinds[k] == sinter_op_reduce_l1   ? want + fabs(v)
                           : kinds[k] == sinter_op_reduce_l2   ? want + v * v
                           : kinds[k] == sinter_op_reduce_prod ? want * v
                           : (kinds[k] == sinter_op_reduce_max ? v > want : v < want) || isnan(v)
                               ? v
                               : want;
                }
                check_value(isnan(want) ? isnan(sums[i]) : sums[i] == want, isa, "fold_columns", n,
                            sums[i], want);
            }
        }
    }
}

/* The best of short rows with many equal elements, against a selection one by one. */
static void test_top_rows(const char *isa, const eltwise_table_t *t)
{
    int refused = 0;
    for (int round = 0; round < 3000; round++) {
        const int n = 1 + random_below(&seed, TOP_ROW),
                  k = 1 + random_below(&seed, n < TOP_MOST ? n : TOP_MOST),
                  values = round % 3 == 0   ? 3
                           : round % 3 == 1 ? 40
                                            : 1 << 20;
        int32_t key[TOP_ROW], left[TOP_ROW];
        int64_t best[TOP_MOST];
        for (int i = 0; i < n; i++) {
            key[i] = left[i] = random_below(&seed, 50) == 0 ? (i % 2 ? INT32_MAX : INT32_MIN)
                                                            : random_below(&seed, values);
        }
        if (!t->top_row(best, key, n, k)) {
            refused++;
            continue;
        }
        bool taken[TOP_ROW] = {false};
        for (int j = 0; j < k; j++) {
            int at = -1;
            for (int i = 0; i < n; i++) {
                at = !taken[i] && (at < 0 || left[i] > left[at]) ? i : at;
            }
            taken[at] = true;
            const int64_t want = (int64_t)left[at] * (INT64_C(1) << 32) + (UINT32_MAX - at);
            check_value(best[j] == want, isa, "top_row", n, k, at);
        }
    }
    check_value(refused < 1500, isa, "top_row refuses", refused, 0, 0);
}

/* ---- conversions ----------------------------------------------------------------------------- */

static void convert_types(const char *isa, const eltwise_table_t *t, sinter_data_type_t type,
                          const char *name, int bytes)
{
    unsigned char raw[BLOCK * 4 + 1], want[BLOCK * 4 + 1];
    float x[BLOCK];
    for (uint32_t base = 0; base < 70000;
         base += BLOCK) { /* all codes of up to 16 bits, at an odd address */
        for (int i = 0; i < BLOCK; i++) {
            const uint32_t code = base + (uint32_t)i;
            memcpy(raw + 1 + i * bytes, &code, (size_t)bytes);
        }
        eltwise_load(t, type, raw + 1, 0, 1, BLOCK, x);
        for (int i = 0; i < BLOCK; i++) {
            const double w = orc_decode(type, raw + 1, i);
            check_value(isnan(w) ? isnan(x[i]) : x[i] == w && !signbit(x[i]) == !signbit(w), isa,
                        name, i, x[i], w);
        }
    }
    for (uint64_t u = 0; u < 0x100000000u;) {
        const int n = 1 + (int)(u / 7 % BLOCK);
        for (int i = 0; i < n; i++, u += 16381) {
            x[i] = of_bits((uint32_t)u);
            x[i] = i % 3 ? x[i]
                         : (float)((int)(u >> 8 & 1023) - 400) *
                               0.5f; /* halves: ties of the integer types */
        }
        memset(raw, 0xA5, sizeof raw);
        memset(want, 0xA5, sizeof want);
        eltwise_store(t, type, raw + 1, 0, 1, n, x);
        for (int i = 0; i < n; i++) {
            orc_encode(type, want + 1, i, x[i]);
            const double g = orc_decode(type, raw + 1, i), w = orc_decode(type, want + 1, i);
            check_value(isnan(w) ? isnan(g) : g == w, isa, name, x[i], g, w);
        }
        check_value(memcmp(raw + 1 + n * bytes, want + 1 + n * bytes,
                           sizeof raw - 1 - (size_t)(n * bytes)) == 0 &&
                        raw[0] == 0xA5,
                    isa, "sentinel", n, 0, 0);
    }
}

/* A number at an end of some type, at a tie, or anywhere. */
static long double any_number(int i)
{
    static const double ends[] = {0,        -0.0,     0.5,       1.5,      2.5,     -0.5,
                                  127.5,    -128.5,   255.5,     -1,       0x1p23,  0x1p24 + 1,
                                  0x1p31,   -0x1p31,  0x1p52,    0x1p53,   0x1p63,  -0x1p63,
                                  0x1p64,   FLT_MAX,  DBL_MAX,   -DBL_MAX, FLT_MIN, 0x1p-149,
                                  0x1p-150, INFINITY, -INFINITY, NAN};
    enum { ENDS = sizeof ends / sizeof *ends };
    if (i < 4 * ENDS) { /* and its neighbours */
        const double x = ends[i / 4];
        return i % 4 == 0   ? x
               : i % 4 == 1 ? nextafter(x, INFINITY)
               : i % 4 == 2 ? nextafter(x, -INFINITY)
                            : x + 1;
    }
    const int64_t whole = (int64_t)random_next(&seed) >> random_below(&seed, 64);
    return i % 2 ? (long double)whole : ldexpl(random_signed(&seed), random_below(&seed, 80) - 10);
}

/* The integer next to x, ties to even, within the ends; NaN is 0. */
static int64_t saturated(long double x, int64_t least, int64_t most)
{
    return isnan(x) ? 0 : x <= least ? least : x >= most ? most : (int64_t)rintl(x);
}

/* x as an element of a type, and what the element is. */
static long double put(sinter_data_type_t type, long double x, void *to)
{
    const double f64 = (double)x;
    const float f32 = (float)x;
    const int64_t s64 = saturated(x, INT64_MIN, INT64_MAX);
    const int32_t s32 = (int32_t)saturated(x, INT32_MIN, INT32_MAX);
    const int8_t s8 = (int8_t)saturated(x, INT8_MIN, INT8_MAX);
    const uint8_t u8 = (uint8_t)saturated(x, 0, UINT8_MAX), boolean = x != 0;
    switch (type) {
    case sinter_f64:
        return *(double *)memcpy(to, &f64, sizeof f64);
    case sinter_f32:
        return *(float *)memcpy(to, &f32, sizeof f32);
    case sinter_s64:
        return *(int64_t *)memcpy(to, &s64, sizeof s64);
    case sinter_s32:
        return *(int32_t *)memcpy(to, &s32, sizeof s32);
    case sinter_s8:
        return *(int8_t *)memcpy(to, &s8, sizeof s8);
    case sinter_u8:
        return *(uint8_t *)memcpy(to, &u8, sizeof u8);
    default:
        return *(uint8_t *)memcpy(to, &boolean, sizeof boolean);
    }
}

/* Conversions in one loop, at odd addresses, against C's own in long double: every pair of types
 * of which one has numbers that no float is. */
static void test_conversions(const char *isa, const eltwise_f64_t *t)
{
    static const sinter_data_type_t types[] = {sinter_f64, sinter_s64, sinter_s32,    sinter_f32,
                                               sinter_s8,  sinter_u8,  sinter_boolean};
    enum { TYPES = sizeof types / sizeof *types, ROUNDS = 40 };
    int pairs = 0;
    for (int p = 0; p < TYPES * TYPES; p++) {
        const sinter_data_type_t from = types[p / TYPES], to = types[p % TYPES];
        const size_t in = (size_t)dtype_traits(from)->block_bytes,
                     out = (size_t)dtype_traits(to)->block_bytes;
        eltwise_convert_t *convert = eltwise_convert(t, from, to);
        pairs += convert != NULL;
        for (int r = 0; r < ROUNDS && convert != NULL; r++) {
            unsigned char x[BLOCK * 8 + 1], y[BLOCK * 8 + 2], want[8] = {0}, guard = 0xA5;
            long double value[BLOCK];
            const int n = r < 20 ? r : BLOCK;
            for (int i = 0; i < n; i++) {
                unsigned char element[8] = {0};
                value[i] = put(from, any_number(r * BLOCK + i), element);
                memcpy(x + 1 + (size_t)i * in, element, in);
            }
            y[1 + (size_t)n * out] = guard;
            convert(x + 1, y + 1, n);
            for (int i = 0; i < n; i++) {
                const long double exact = put(to, value[i], want);
                const unsigned char *got = y + 1 + (size_t)i * out;
                double as = 0;
                dtype_traits(to)->codec.load_f64(got, 0, 1, 1, &as);
                check_value(isnan(exact) ? isnan(as) : memcmp(got, want, out) == 0, isa,
                            sinter_data_type_name(to), (double)value[i], as, (double)exact);
            }
            check_value(y[1 + (size_t)n * out] == guard, isa, "what follows", n, 0, 0);
        }
    }
    check_value(pairs == 32, isa, "pairs of types", pairs, 0, 32);
}

/* Doubles that become shorter floats by way of floats are rounded once. */
static void test_sticky(const char *isa, const eltwise_table_t *fn, const eltwise_f64_t *t)
{
    static const sinter_data_type_t types[] = {sinter_f16,     sinter_bf16,        sinter_f8_e4m3,
                                               sinter_f8_e5m2, sinter_f8_e4m3fnuz, sinter_e8m0};
    for (size_t k = 0; k < sizeof types / sizeof *types; k++) {
        for (int r = 0; r < 200; r++) {
            double x[BLOCK];
            float sticky[BLOCK];
            uint16_t got[BLOCK] = {0}, want[BLOCK] = {0};
            for (int i = 0; i < BLOCK; i++) {
                const float half = of_bits((uint32_t)random_next(&seed) & 0xFFFFF000u);
                x[i] = i % 3 == 0   ? (double)half /* ties, and what lies next to them */
                       : i % 3 == 1 ? nextafter((double)half, i % 2 ? INFINITY : 0)
                                    : (double)any_number(r * BLOCK + i);
            }
            t->to_sticky(sticky, x, BLOCK);
            eltwise_store(fn, types[k], (unsigned char *)got, 0, 1, BLOCK, sticky);
            dtype_traits(types[k])->codec.store_f64(want, 0, 1, BLOCK, x);
            for (int i = 0; i < BLOCK; i++) {
                double g, w;
                dtype_traits(types[k])->codec.load_f64(got, i, 1, 1, &g);
                dtype_traits(types[k])->codec.load_f64(want, i, 1, 1, &w);
                check_value(isnan(w) ? isnan(g) : g == w && !signbit(g) == !signbit(w), isa,
                            sinter_data_type_name(types[k]), x[i], g, w);
            }
        }
    }
}

/* The functions in double: the results from outside, and the C library's over all magnitudes. */
static void test_f64(const char *isa, const eltwise_f64_t *t)
{
    enum { RANDOM = 20000 };
    for (size_t k = 0; k < sizeof cases / sizeof cases[0]; k++) {
        const eltwise_vectors_of_t *v = vectors_of(&cases[k]);
        const double p[2] = {cases[k].p[0], cases[k].p[1]};
        const int vectors = v != NULL ? v->n : 0;
        double x[BLOCK], got[BLOCK], want[BLOCK];
        for (int i = 0, n = 0; i < vectors + RANDOM; i++) {
            const bool vector = i < vectors;
            if (vector) {
                x[n] = eltwise_vectors[v->first + i].x;
            } else {
                x[n] = i - vectors < N_SPECIAL ? special[i - vectors]
                       : i % 2                 ? random_signed(&seed) * 15
                               : ldexp(random_signed(&seed), random_below(&seed, 2098) - 1073);
            }
            want[n] = vector ? eltwise_vectors[v->first + i].y : cases[k].ref(x[n], p);
            n++;
            if (n < BLOCK && i + 1 < vectors + RANDOM) {
                continue;
            }
            t->op[cases[k].kind](got, x, NULL, NULL, n, p);
            for (int j = 0; j < n; j++) {
                check_value(near_double(got[j], want[j]), isa, cases[k].name, x[j], got[j],
                            want[j]);
            }
            n = 0;
        }
    }
}

int main(void)
{
    static const struct {
        sinter_data_type_t type;
        const char *name;
        int bytes;
    } types[] = {{sinter_f32, "f32", 4},
                 {sinter_f16, "f16", 2},
                 {sinter_bf16, "bf16", 2},
                 {sinter_s8, "s8", 1},
                 {sinter_u8, "u8", 1},
                 {sinter_f8_e5m2, "f8_e5m2", 1},
                 {sinter_f8_e4m3fnuz, "f8_e4m3fnuz", 1}};
    static const struct {
        sinter_cpu_isa_t isa;
        const char *name;
    } levels[] = {
        {sinter_isa_generic, "generic"}, {sinter_isa_avx2, "avx2"}, {sinter_isa_avx512, "avx512"}};
    sinter_cpu_isa_t cap;
    if (cpu_isa_cap(sinter_isa_default, &cap) != sinter_success) {
        return 1;
    }
    for (size_t l = 0; l < sizeof levels / sizeof levels[0]; l++) {
        if (!has_features(features_up_to(cap), features_of_level(levels[l].isa).bits)) {
            continue;
        }
        const eltwise_table_t *t = eltwise_table(features_up_to(levels[l].isa));
        test_vectors(levels[l].name, t);
        const eltwise_f64_t *wide = eltwise_f64(features_up_to(levels[l].isa));
        test_f64(levels[l].name, wide);
        test_conversions(levels[l].name, wide);
        test_sticky(levels[l].name, t, wide);
        test_unary(levels[l].name, t, 16381);
        test_binary(levels[l].name, t);
        test_rows(levels[l].name, t);
        test_norm_rows(levels[l].name, t);
        test_columns(levels[l].name, t);
        test_top_rows(levels[l].name, t);
        for (size_t k = 0; k < sizeof types / sizeof types[0]; k++) {
            convert_types(levels[l].name, t, types[k].type, types[k].name, types[k].bytes);
        }
    }
    test_agrees_with_schema();
    test_references();
    return check_finish();
}
