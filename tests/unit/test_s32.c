/* s32 arithmetic, fused and op by op, against 64-bit integers: results saturate, quotients are
 * truncated, x / 0 is the largest or the least number by the sign of x, 0 / 0 is 0. */
#include <math.h>
#include <stdint.h>
#include <string.h>

#include "passive.h"
#include "spec_run.h"

static const int32_t ends[] = {
    INT32_MIN, INT32_MIN + 1, -1999999999, -16777217, -31, -16, -7, -2, -1, 0, 1, 2, 7, 11, 16,
    31,        16777217,      777777777,   INT32_MAX};
enum { ENDS = sizeof ends / sizeof *ends, ALL = ENDS * ENDS * ENDS };

static int32_t a[ALL], b[ALL], c[ALL], y[ALL];

static int32_t saturated(int64_t x)
{
    return x > INT32_MAX ? INT32_MAX : x < INT32_MIN ? INT32_MIN : (int32_t)x;
}

static int32_t add(int32_t p, int32_t q)
{
    return saturated((int64_t)p + q);
}
static int32_t subtract(int32_t p, int32_t q)
{
    return saturated((int64_t)p - q);
}
static int32_t multiply(int32_t p, int32_t q)
{
    return saturated((int64_t)p * q);
}
static int32_t divide(int32_t p, int32_t q)
{
    if (q == 0) {
        return p > 0 ? INT32_MAX : p < 0 ? INT32_MIN : 0;
    }
    return saturated((int64_t)p / q); /* C truncates */
}
static int32_t maximum(int32_t p, int32_t q)
{
    return p > q ? p : q;
}
static int32_t minimum(int32_t p, int32_t q)
{
    return p < q ? p : q;
}
/* The square of a difference of up to 2^32 fits an unsigned number only. */
static int32_t squared_difference(int32_t p, int32_t q)
{
    const int64_t d = (int64_t)p - q;
    return d > 46341 || d < -46341 ? INT32_MAX : saturated(d * d);
}

typedef struct op {
    const char *name;
    int32_t (*f)(int32_t p, int32_t q);
} op_t;
static const op_t ops[] = {{"Add", add},
                           {"Subtract", subtract},
                           {"Multiply", multiply},
                           {"Divide", divide},
                           {"Maximum", maximum},
                           {"Minimum", minimum},
                           {"SquaredDifference", squared_difference}};
enum { OPS = sizeof ops / sizeof *ops };

static const sinter_partition_policy_t policies[] = {sinter_partition_policy_fusion,
                                                     sinter_partition_policy_debug};

/* (a op b) op c, where the last dim is long enough for vectors. */
static void test_pairs(void)
{
    char spec[200];
    for (int i = 0; i < OPS * OPS * 2; i++) {
        const op_t *first = &ops[i / 2 / OPS], *second = &ops[i / 2 % OPS];
        const spec_port_t ports[] = {{1, a}, {2, b}, {3, c}, {5, y}, {0, NULL}};
        int bad = 0;
        snprintf(spec, sizeof spec,
                 "%s 1:s32:%dx%d 2:s32:%dx%d -> 4:s32:%dx%d; %s 4:s32:%dx%d 3:s32:%dx%d -> "
                 "5:s32:%dx%d",
                 first->name, ENDS, ENDS * ENDS, ENDS, ENDS * ENDS, ENDS, ENDS * ENDS, second->name,
                 ENDS, ENDS * ENDS, ENDS, ENDS * ENDS, ENDS, ENDS * ENDS);
        if (!CHECK(spec_run(spec, policies[i % 2], ports) == sinter_success, "%s", spec)) {
            continue;
        }
        for (int k = 0; k < ALL && bad < 3; k++) {
            const int32_t want = second->f(first->f(a[k], b[k]), c[k]);
            bad += !CHECK(y[k] == want, "%s, %s of %d, %d, %d (policy %d): got %d, want %d",
                          first->name, second->name, a[k], b[k], c[k], i % 2, y[k], want);
        }
    }
}

/* All of it in integers of 32 bits: operands that are transposed, broadcast or have gaps, a
 * condition, an intermediate result that is an output too. */
static void test_words(void)
{
    enum { ROWS = 37, COLS = 70 };
    static int32_t p[ROWS * COLS], q[COLS], r[2 * ROWS], kept[ROWS * COLS], last[ROWS * COLS];
    static unsigned char above[ROWS * COLS];
    const spec_port_t ports[] = {{1, p}, {2, q}, {3, r}, {9, kept}, {8, last}, {0, NULL}};
    for (int i = 0; i < ROWS * COLS; i++) {
        p[i] = ends[i * 7 % ENDS];
        q[i % COLS] = ends[i % COLS * 5 % ENDS];
        r[i % ROWS * 2] = ends[i % ROWS * 3 % ENDS];
    }
    for (int i = 0; i < 2; i++) {
        memset(last, 0x5A, sizeof last);
        memset(kept, 0x5A, sizeof kept);
        CHECK(spec_run("GreaterEqual 1:s32:37x70:1x37 2:s32:70 -> 4:boolean:37x70;"
                       "Subtract 1:s32:37x70:1x37 3:s32:37x1:2x1 -> 5:s32:37x70;"
                       "Select 4:boolean:37x70 5:s32:37x70 2:s32:70 -> 6:s32:37x70;"
                       "Multiply 6:s32:37x70 3:s32:37x1:2x1 -> 7:s32:37x70;"
                       "Maximum 7:s32:37x70 1:s32:37x70:1x37 -> 8:s32:37x70;"
                       "StaticReshape shape=37,70 special_zero=0 6:s32:37x70 -> 9:s32:37x70",
                       policies[i], ports) == sinter_success,
              "%s", sinter_last_error_message());
        for (int k = 0; k < ROWS * COLS; k++) {
            const int32_t x = p[k / COLS + k % COLS * ROWS], other = q[k % COLS],
                          z = r[k / COLS * 2], chosen = x >= other ? subtract(x, z) : other,
                          want = maximum(multiply(chosen, z), x);
            CHECK(kept[k] == chosen && last[k] == want, "element %d: %d and %d, want %d and %d", k,
                  kept[k], last[k], chosen, want);
        }
    }
    const spec_port_t compared[] = {{1, p}, {2, q}, {4, above}, {0, NULL}};
    CHECK_THAT(spec_run("GreaterEqual 1:s32:37x70:1x37 2:s32:70 -> 4:boolean:37x70",
                        sinter_partition_policy_fusion, compared) == sinter_success);
    for (int k = 0; k < ROWS * COLS; k++) {
        CHECK_THAT(above[k] == (p[k / COLS + k % COLS * ROWS] >= q[k % COLS]));
    }
}

/* The s32 tensors lie inside the partition: f32 has no room for their sums. */
static void test_inside(void)
{
    enum { N = 300 };
    static float p[N], q[N], r[N], z[N];
    static const char *const cast = "TypeCast 1:f32:300 -> 11:s32:300;"
                                    "TypeCast 2:f32:300 -> 12:s32:300;"
                                    "TypeCast 3:f32:300 -> 13:s32:300;";
    char spec[600];
    for (int i = 0; i < N; i++) {
        p[i] = (float)(16777216 + 2 * i);
        q[i] = (float)(2 * (i % 7) + 1);
        r[i] = (float)(16777216 + 2 * (i % 11));
    }
    for (int i = 0; i < OPS * OPS * 2; i++) {
        const op_t *first = &ops[i / 2 / OPS], *second = &ops[i / 2 % OPS];
        const spec_port_t ports[] = {{1, p}, {2, q}, {3, r}, {6, z}, {0, NULL}};
        int bad = 0;
        snprintf(spec, sizeof spec,
                 "%s%s 11:s32:300 12:s32:300 -> 4:s32:300; %s 4:s32:300 13:s32:300 -> 5:s32:300;"
                 "TypeCast 5:s32:300 -> 6:f32:300",
                 cast, first->name, second->name);
        if (!CHECK(spec_run(spec, policies[i % 2], ports) == sinter_success, "%s", spec)) {
            continue;
        }
        for (int k = 0; k < N && bad < 3; k++) {
            const float want =
                (float)second->f(first->f((int32_t)p[k], (int32_t)q[k]), (int32_t)r[k]);
            bad += !CHECK(z[k] == want, "%s, %s of casts %.9g, %.9g, %.9g: got %.9g, want %.9g",
                          first->name, second->name, p[k], q[k], r[k], z[k], want);
        }
    }
}

/* Blocks of a cache: token / 16 of an index made on the way; the divisor has one element. */
static void test_index(void)
{
    enum { N = 1000 };
    static unsigned char codes[N];
    static int32_t block[N], sixteen = 16;
    const spec_port_t ports[] = {{1, codes}, {2, &sixteen}, {4, block}, {0, NULL}};
    CHECK_THAT(spec_run("GenIndex axis=0 1:u8:1000 -> 3:s32:1000;"
                        "Divide 3:s32:1000 2:s32:1 -> 4:s32:1000",
                        sinter_partition_policy_fusion, ports) == sinter_success);
    for (int i = 0; i < N; i++) {
        CHECK(block[i] == i / 16, "token %d: block %d", i, block[i]);
    }
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    for (int i = 0; i < ALL; i++) {
        a[i] = ends[i / ENDS / ENDS];
        b[i] = ends[i / ENDS % ENDS];
        c[i] = ends[i % ENDS];
    }
    test_pairs();
    test_words();
    test_inside();
    test_index();
    return check_finish();
}
