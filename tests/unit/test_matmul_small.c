/* Many products of small matrices, against sums in double: matrices that are turned, have gaps, or
 * are shared by a batch dim; ops behind; results of other types. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "passive.h"
#include "spec_run.h"

enum { OUTER = 3, INNER = 25, MOST = 32, MOST_K = 64, GAP = 3 };
enum { ALL = OUTER * INNER * MOST_K * (MOST + GAP) }; /* the larger of both layouts */

static float a[ALL], b[ALL], bias[MOST], y[OUTER * INNER * MOST * MOST];

/* A spec "id:f32:dims:strides" of a [OUTER or 1, INNER, rows, columns] tensor with gaps; where it
 * is turned the last two dims are swapped in the tensor. */
static void spec_of(char *text, size_t size, int id, int outer, int rows, int columns, bool turned)
{
    const int r = turned ? columns : rows, c = turned ? rows : columns, ld = c + GAP;
    snprintf(text, size, "%d:f32:%dx%dx%dx%d:%dx%dx%dx1", id, outer, INNER, r, c, INNER * r * ld,
             r * ld, ld);
}

static double element(const float *x, int outers, int o, int i, int rows, int columns, bool turned,
                      int r, int c)
{
    const int tall = turned ? columns : rows, ld = (turned ? rows : columns) + GAP,
              at = ((outers == 1 ? 0 : o) * INNER + i) * tall * ld;
    return (double)x[at + (turned ? c * ld + r : r * ld + c)];
}

static void check(int M, int N, int K, int how)
{
    const bool turn_a = how & 1, turn_b = how & 2, shared = how & 4, more = how & 8;
    char of_a[80], of_b[80], spec[400];
    const int outer_a = shared ? 1 : OUTER;
    spec_of(of_a, sizeof of_a, 1, outer_a, M, K, turn_a);
    spec_of(of_b, sizeof of_b, 2, OUTER, K, N, turn_b);
    const int n = snprintf(spec, sizeof spec, "MatMul transpose_a=%d transpose_b=%d %s %s", turn_a,
                           turn_b, of_a, of_b);
    if (more) {
        snprintf(spec + n, sizeof spec - (size_t)n,
                 " -> 4:f32:%dx%dx%dx%d; Add 4:f32:%dx%dx%dx%d 3:f32:%d -> 5:f32:%dx%dx%dx%d; "
                 "ReLU 5:f32:%dx%dx%dx%d -> 6:f32:%dx%dx%dx%d",
                 OUTER, INNER, M, N, OUTER, INNER, M, N, N, OUTER, INNER, M, N, OUTER, INNER, M, N,
                 OUTER, INNER, M, N);
    } else {
        snprintf(spec + n, sizeof spec - (size_t)n, " -> 6:f32:%dx%dx%dx%d", OUTER, INNER, M, N);
    }
    const spec_port_t ports[] = {
        {1, a}, {2, b}, {6, y}, {more ? 3 : 0, more ? bias : NULL}, {0, NULL}};
    memset(y, 0xFF, sizeof y);
    if (!CHECK(spec_run(spec, sinter_partition_policy_fusion, ports) == sinter_success, "%s: %s",
               spec, sinter_last_error_message())) {
        return;
    }
    int wrong = 0;
    for (int at = 0; at < OUTER * INNER * M * N; at++) {
        const int c = at % N, r = at / N % M, i = at / N / M % INNER, o = at / N / M / INNER;
        double sum = 0, terms = 0;
        for (int k = 0; k < K; k++) {
            const double term = element(a, outer_a, o, i, M, K, turn_a, r, k) *
                                element(b, OUTER, o, i, K, N, turn_b, k, c);
            sum += term;
            terms += fabs(term);
        }
        sum += more ? (double)bias[c] : 0;
        terms += more ? fabs((double)bias[c]) : 0;
        sum = more && sum < 0 ? 0 : sum;
        wrong += !(fabs((double)y[at] - sum) <= (K + 2) * 0x1p-24 * terms);
    }
    CHECK(wrong == 0, "%s: %d wrong", spec, wrong);
}

int main(int argc, char **argv)
{
    static const int sizes[][3] = {{8, 8, 8},   {1, 8, 8},  {8, 1, 8},    {3, 3, 3},
                                   {1, 1, 1},   {7, 13, 5}, {32, 32, 64}, {31, 17, 63},
                                   {16, 16, 1}, {4, 32, 20}};
    (void)argc;
    wait_passively(argv);
    for (int i = 0; i < ALL; i++) {
        a[i] = (float)(i * 37 % 101 - 50) / 16;
        b[i] = (float)(i * 53 % 97 - 48) / 7;
    }
    for (int i = 0; i < MOST; i++) {
        bias[i] = (float)(i - 16);
    }
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (int how = 0; how < 16; how++) {
            check(sizes[i][0], sizes[i][1], sizes[i][2], how);
        }
    }
    return check_finish();
}
