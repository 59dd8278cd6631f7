/* Elementwise functions at the ends, signs of zeros included: at infinities, NaN and zeros, and Pow
 * against C's pow; in f32, f16, bf16 and f64, alone, between other ops, and op by op. Rotary
 * embeddings and Hadamard transforms of elements next to the largest and the least floats: what
 * fits f32 is finite, and what is subnormal has its digits. */
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

/* ---- sums of large elements ------------------------------------------------------------------ */

enum { LARGEST = 1024 }; /* elements of a block */
static const double u = 0x1p-24, half_of_least = 0x1p-150;

/* Whether got is want within a bound; a want that is beyond f32, or may be, is not compared. */
static bool within(double got, double want, double bound)
{
    return fabs(want) + bound > (double)FLT_MAX || fabs(got - want) <= bound;
}

/* Elements of a magnitude, with signs of a pattern: all alike, those of row n - 1 of the matrix,
 * alternating, or drawn with magnitudes of their own. */
static double element(int pattern, int i, int n, double size)
{
    const unsigned draw = (unsigned)(i + 7) * 2654435761u;
    switch (pattern) {
    case 0:
        return size;
    case 1:
        return __builtin_parity((unsigned)(i & (n - 1))) ? -size : size;
    case 2:
        return i % 2 ? -size : size;
    default:
        return (draw >> 31 ? -size : size) * (double)(draw >> 8 & 0xFFFF) / 0x1p16;
    }
}

static const double sizes[] = {FLT_MAX, FLT_MAX / 2, 0x1p125, 0x1p120, 1, 0x1p-126, 0x1p-149 * 77};
enum { SIZES = sizeof sizes / sizeof *sizes, PATTERNS = 4 };

/* docs/numerics.md: a sum in f32 for each level, and the factor. */
static void check_hadamard(int n, int pattern, double size)
{
    static float x[LARGEST], y[LARGEST];
    const int levels = __builtin_ctz((unsigned)n) + 3, row = n < 64 ? 64 : n;
    char spec[120];
    snprintf(spec, sizeof spec, "HadamardTransform block_size=%d 1:f32:1x%d -> 2:f32:1x%d", n, row,
             row);
    const spec_port_t ports[] = {{1, x}, {2, y}, {0, NULL}};
    for (int i = 0; i < row; i++) {
        x[i] = (float)element(pattern, i, n, size);
    }
    CHECK(spec_run(spec, sinter_partition_policy_fusion, ports) == sinter_success, "%s: %s", spec,
          sinter_last_error_message());
    int bad = 0, first = 0;
    double wanted = 0;
    for (int i = 0; i < row; i++) {
        double sum = 0, magnitudes = 0;
        for (int k = 0; k < n; k++) {
            const double v = x[i / n * n + k];
            sum += __builtin_parity((unsigned)(i & k)) ? -v : v;
            magnitudes += fabs(v);
        }
        const double want = sum / sqrt(n),
                     bound = levels * (u * magnitudes / sqrt(n) + half_of_least);
        if (!within((double)y[i], want, bound)) {
            wanted = bad++ ? wanted : want;
            first = bad == 1 ? i : first;
        }
    }
    CHECK(bad == 0, "%s, elements %d of %g: %d of %d are wrong, %d is %g instead of %g", spec,
          pattern, size, bad, row, first, (double)y[first], wanted);
}

static void test_hadamard(void)
{
    for (int n = 1; n <= LARGEST; n *= 2) {
        for (int i = 0; i < PATTERNS * SIZES; i++) {
            check_hadamard(n, i / SIZES, sizes[i % SIZES]);
        }
    }
}

/* Tables of cosines and sines above 1, or a scale: products of large elements are beyond f32 where
 * their difference is not. */
static void check_rotary(const char *how, bool pairs, double scale, double table, double size,
                         int pattern)
{
    enum { HEADS = 2, HEAD = 38, TURNED = HEAD / 2 };
    static float x[HEADS * HEAD], y[HEADS * HEAD], cosine[TURNED], sine[TURNED];
    char spec[300];
    const spec_port_t ports[] = {{1, x}, {2, cosine}, {3, sine}, {4, y}, {0, NULL}};
    snprintf(spec, sizeof spec,
             "RotaryEmbedding %s scale=%g 1:f32:1x2x1x38 2:f32:1x1x19 3:f32:1x1x19 -> "
             "4:f32:1x2x1x38",
             how, scale);
    for (int i = 0; i < HEADS * HEAD; i++) {
        x[i] = (float)element(pattern, i, HEAD, size);
    }
    for (int i = 0; i < TURNED; i++) {
        cosine[i] = (float)(table * cos(0.37 * i));
        sine[i] = (float)(table * sin(0.37 * i));
    }
    CHECK(spec_run(spec, sinter_partition_policy_fusion, ports) == sinter_success, "%s: %s", spec,
          sinter_last_error_message());
    int bad = 0;
    for (int i = 0; i < HEADS * TURNED; i++) {
        const int h = i / TURNED * HEAD, k = i % TURNED, at = h + (pairs ? 2 * k : k),
                  to = at + (pairs ? 1 : TURNED);
        const double c = scale * (double)cosine[k], s = scale * (double)sine[k], a = (double)x[at],
                     b = (double)x[to],
                     all = fmax(fabs(a * c) + fabs(b * s), fabs(b * c) + fabs(a * s)),
                     bound = 4 * u * all + 2 * half_of_least;
        bad += !within((double)y[at], a * c - b * s, bound) +
               !within((double)y[to], b * c + a * s, bound);
    }
    CHECK(bad == 0, "%s, elements %d of %g, tables of %g: %d of %d are wrong", spec, pattern, size,
          table, bad, HEADS * HEAD);
}

static void test_rotary(void)
{
    for (int i = 0; i < PATTERNS * SIZES; i++) {
        for (int k = 0; k < 2 * 3; k++) {
            check_rotary(k % 2 ? "interleaved=1" : "", k % 2, k / 2 == 1 ? 1.25 : 1,
                         k / 2 == 2 ? 3 : 1, sizes[i % SIZES], i / SIZES);
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
    test_hadamard();
    test_rotary();
    return check_finish();
}
