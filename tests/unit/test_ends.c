/* Elementwise functions at the ends, signs of zeros included: at infinities, NaN and zeros, and Pow
 * against C's pow; in f32, f16, bf16 and f64, alone, between other ops, and op by op. */
#include <float.h>
#include <math.h>

#include "oracle.h"
#include "passive.h"
#include "spec_run.h"

enum { N = 77, MOST = 16 };

typedef struct end {
    double x, y;
} end_t;

typedef struct ends_case {
    const char *op; /* and its attributes */
    end_t at[MOST];
    int n;
} ends_case_t;

#define INF INFINITY
static const ends_case_t cases[] = {
    {"Abs", {{-INF, INF}, {-0.0, 0.0}, {NAN, NAN}}, 3},
    {"Exp", {{-INF, 0.0}, {INF, INF}, {-0.0, 1}, {NAN, NAN}}, 4},
    {"Log",
     {{-INF, NAN}, {-1, NAN}, {0.0, -INF}, {-0.0, -INF}, {1, 0.0}, {INF, INF}, {NAN, NAN}},
     7},
    {"Sqrt", {{-INF, NAN}, {-1, NAN}, {-0.0, -0.0}, {0.0, 0.0}, {INF, INF}, {NAN, NAN}}, 6},
    {"Square", {{-INF, INF}, {-0.0, 0.0}, {INF, INF}, {NAN, NAN}}, 4},
    {"Reciprocal", {{-INF, -0.0}, {INF, 0.0}, {-0.0, -INF}, {0.0, INF}, {NAN, NAN}}, 5},
    {"ReLU", {{-INF, 0.0}, {INF, INF}, {NAN, NAN}}, 3},
    {"Round",
     {{-INF, -INF}, {INF, INF}, {-0.0, -0.0}, {-0.5, -0.0}, {0.5, 0.0}, {2.5, 2}, {NAN, NAN}},
     7},
    {"Tanh", {{-INF, -1}, {INF, 1}, {-0.0, -0.0}, {0.0, 0.0}, {NAN, NAN}}, 5},
    {"Sigmoid", {{-INF, 0.0}, {INF, 1}, {0.0, 0.5}, {NAN, NAN}}, 4},
    {"GELU", {{-INF, -0.0}, {-60000, -0.0}, {INF, INF}, {-0.0, -0.0}, {0.0, 0.0}, {NAN, NAN}}, 6},
    {"GELU mode=gelu_tanh",
     {{-INF, -0.0}, {-60000, -0.0}, {INF, INF}, {-0.0, -0.0}, {0.0, 0.0}, {NAN, NAN}},
     6},
    {"Mish", {{-INF, -0.0}, {-60000, -0.0}, {INF, INF}, {-0.0, -0.0}, {0.0, 0.0}, {NAN, NAN}}, 6},
    {"HardSwish",
     {{-INF, -0.0}, {-60000, -0.0}, {-4, -0.0}, {INF, INF}, {-0.0, -0.0}, {0.0, 0.0}, {NAN, NAN}},
     7},
    {"HardSigmoid alpha=0.25 beta=0.5", {{-INF, 0.0}, {INF, 1}, {0.0, 0.5}, {NAN, NAN}}, 4},
    {"LeakyReLU alpha=0.25", {{-INF, -INF}, {INF, INF}, {-0.0, -0.0}, {NAN, NAN}}, 4},
    {"Elu alpha=1.5", {{-INF, -1.5}, {INF, INF}, {0.0, 0.0}, {-0.0, -0.0}, {NAN, NAN}}, 5},
    {"SoftPlus beta=2", {{-INF, 0.0}, {-60000, 0.0}, {INF, INF}, {NAN, NAN}}, 4},
    {"Clamp min=-1.5 max=4", {{-INF, -1.5}, {INF, 4}, {NAN, NAN}}, 3},
};

static const char *const types[] = {"f32", "f16", "bf16", "f64"};

static sinter_data_type_t type_of(const char *name)
{
    sinter_data_type_t type;
    CHECK_THAT(sinter_data_type_parse(name, &type));
    return type;
}

/* The same number, or both NaN; zeros of one sign. Results of f64 that are not exact may differ by
 * as much as docs/numerics.md says. */
static bool same(double a, double b)
{
    return isnan(a) || isnan(b) ? isnan(a) && isnan(b)
                                : (a == b && !signbit(a) == !signbit(b)) ||
                                      (b != 0 && isfinite(b) && fabs(a - b) <= 1e-13 * fabs(b));
}

/* Elements of x, in turn, through op in a type; what comes out is want, rounded to the type. With
 * `between`, ops that change nothing stand on both sides. */
static void run_case(const char *op, const char *type, bool between, int policy, const end_t *at,
                     int n)
{
    static double x[N], y[N];
    double neutral[2]; /* -0 and 1, of any type */
    const sinter_data_type_t of = type_of(type);
    char spec[400];
    orc_encode(of, &neutral[0], 0, -0.0);
    orc_encode(of, &neutral[1], 0, 1);
    for (int i = 0; i < N; i++) {
        orc_encode(of, x, i, at[i % n].x);
    }
    memset(y, 0x5A, sizeof y);
    if (between) {
        snprintf(spec, sizeof spec,
                 "Add 1:%s:77 3:%s:- -> 5:%s:77; %s 5:%s:77 -> 6:%s:77; "
                 "Multiply 6:%s:77 4:%s:- -> 2:%s:77",
                 type, type, type, op, type, type, type, type, type);
    } else {
        snprintf(spec, sizeof spec, "%s 1:%s:77 -> 2:%s:77", op, type, type);
    }
    const spec_port_t ports[] = {{1, x}, {2, y}, {3, &neutral[0]}, {4, &neutral[1]}, {0, NULL}},
                      two[] = {{1, x}, {2, y}, {0, NULL}};
    const sinter_status_t status =
        spec_run(spec, (sinter_partition_policy_t)policy, between ? ports : two);
    CHECK(status == sinter_success, "%s: %s", spec, sinter_last_error_message());
    for (int i = 0; i < N; i++) {
        double rounded;
        orc_encode(of, &rounded, 0, at[i % n].y);
        const double got = orc_decode(of, y, i), want = orc_decode(of, &rounded, 0);
        CHECK(same(got, want), "%s of %g, %s: %g instead of %g", op, at[i % n].x, spec, got, want);
    }
}

static void test_unary(void)
{
    for (size_t c = 0; c < sizeof cases / sizeof *cases; c++) {
        for (int i = 0; i < 4 * 2 * 2; i++) {
            run_case(cases[c].op, types[i % 4], i / 4 % 2,
                     i / 8 ? sinter_partition_policy_fusion : sinter_partition_policy_debug,
                     cases[c].at, cases[c].n);
        }
    }
}

/* Every case of C's pow that is special or exact: bases and exponents at the ends and among whole
 * numbers. */
static void test_pow(void)
{
    static const float bases[] = {-INF, -4, -1, -0.5f, -0.0f, 0.0f, 0.5f, 1, 4, INF, NAN},
                       betas[] = {-0.0f, 0,      1,      -1,      2,       -2,       3,   -3,
                                  0.5f,  -0.5f,  1.5f,   -1.5f,   17,      -17,      18,  -18,
                                  1e10f, -1e10f, 1e-40f, -1e-40f, FLT_MAX, -FLT_MAX, INF, -INF};
    enum { BASES = sizeof bases / sizeof *bases };
    for (size_t b = 0; b < sizeof betas / sizeof *betas; b++) {
        end_t at[BASES];
        char op[60];
        for (int i = 0; i < BASES; i++) {
            at[i] = (end_t){bases[i], pow((double)bases[i], (double)betas[b])};
        }
        snprintf(op, sizeof op, "Pow beta=%.9g", (double)betas[b]);
        for (int i = 0; i < 4 * 2 * 2; i++) {
            run_case(op, types[i % 4], i / 4 % 2,
                     i / 8 ? sinter_partition_policy_fusion : sinter_partition_policy_debug, at,
                     BASES);
        }
    }
}

/* A NaN wins over everything, infinities too. */
static void test_extremes(void)
{
    static const double ends[] = {-INF, -1, 0, 1, INF, NAN};
    enum { ENDS = sizeof ends / sizeof *ends };
    for (int i = 0; i < 4 * 2; i++) {
        const char *type = types[i % 4], *op = i / 4 ? "Maximum" : "Minimum";
        const sinter_data_type_t of = type_of(type);
        static double a[ENDS * ENDS], b[ENDS * ENDS], y[ENDS * ENDS];
        char spec[100];
        for (int k = 0; k < ENDS * ENDS; k++) {
            orc_encode(of, a, k, ends[k / ENDS]);
            orc_encode(of, b, k, ends[k % ENDS]);
        }
        snprintf(spec, sizeof spec, "%s 1:%s:36 2:%s:36 -> 3:%s:36", op, type, type, type);
        const spec_port_t ports[] = {{1, a}, {2, b}, {3, y}, {0, NULL}};
        CHECK(spec_run(spec, sinter_partition_policy_fusion, ports) == sinter_success, "%s: %s",
              spec, sinter_last_error_message());
        for (int k = 0; k < ENDS * ENDS; k++) {
            const double p = ends[k / ENDS], q = ends[k % ENDS], got = orc_decode(of, y, k),
                         want = isnan(p) || isnan(q) ? NAN
                                : i / 4              ? fmax(p, q)
                                                     : fmin(p, q);
            CHECK(same(got, want), "%s, %g and %g: %g", spec, p, q, got);
        }
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    test_unary();
    test_pow();
    test_extremes();
    return check_finish();
}
