/* Sums of many terms, against sums in double: errors do not grow with the number of terms. Equal
 * terms are the worst case, since they round the same way again and again. And softmax of scores of
 * every magnitude. */
#include <math.h>
#include <stdint.h>

#include "passive.h"
#include "random.h"
#include "spec_run.h"

static const double u = 0x1p-24;
static uint64_t seed = 1;

static float *floats(size_t n, float x)
{
    float *to = malloc(n * sizeof *to);
    if (to == NULL) {
        abort();
    }
    for (size_t i = 0; i < n; i++) {
        to[i] = x;
    }
    return to;
}

/* One score of 0 and n - 1 of `other`, in each of `width` rows along axis 0 or 1. The exponentials
 * may be off by 4 units and 2 for each unit of the exponent. */
static void check_softmax(int64_t n, int64_t width, int axis, float other)
{
    const size_t all = (size_t)(n * width);
    float *x = floats(all, other), *y = floats(all, NAN), *stats = floats((size_t)width, NAN),
          *logs = floats(all, NAN);
    const spec_port_t ports[] = {{1, x}, {2, y}, {3, stats}, {4, logs}, {0, NULL}};
    char spec[300];
    const long long d[2] = {axis == 0 ? n : width, axis == 0 ? width : n};
    snprintf(spec, sizeof spec,
             "SoftMax axis=%d 1:f32:%lldx%lld -> 2:f32:%lldx%lld 3:f32:%lldx%lld;"
             "LogSoftmax axis=%d 1:f32:%lldx%lld -> 4:f32:%lldx%lld",
             axis, d[0], d[1], d[0], d[1], axis == 0 ? 1 : d[0], axis == 0 ? d[1] : 1, axis, d[0],
             d[1], d[0], d[1]);
    for (int64_t w = 0; w < width; w++) {
        x[axis == 0 ? n / 3 * width + w : w * n + n / 3] = 0;
    }
    CHECK(spec_run(spec, sinter_partition_policy_fusion, ports) == sinter_success, "%s: %s", spec,
          sinter_last_error_message());
    const double sum = 1 + (double)(n - 1) * exp(other), units = 24 + 2 * fabs(other);
    int bad = 0;
    for (size_t i = 0; i < all; i++) {
        const double want = exp(x[i]) / sum, log_want = x[i] - log(sum);
        bad += !(fabs(y[i] - want) <= units * u * want) ||
               !(fabs(logs[i] - log_want) <= u * (units + fabs(log_want)));
    }
    for (int64_t w = 0; w < width; w++) {
        bad += !(fabs(stats[w] - log(sum)) <= u * (units + log(sum)));
    }
    CHECK(bad == 0, "%s: %d of %zu elements; the first is %.9g, not %.9g", spec, bad, all, y[0],
          exp(x[0]) / sum);
    free(x);
    free(y);
    free(stats);
    free(logs);
}

/* The terms of a chain of n that are added one after the other, and the chains. */
static double one_by_one(int64_t n, int64_t chain)
{
    return (double)chain + (double)n / (double)chain;
}

/* K equal products for each of rows x N results, weights of some type with K along their rows or
 * their columns. */
static void check_product(const char *type, int64_t rows, int64_t K, bool along_k)
{
    enum { N = 40 };
    const bool codes = strcmp(type, "s8") == 0, halves = strcmp(type, "f16") == 0;
    const float x = 0.1f, w = codes ? 3 : halves ? 0.0999755859375f : 0.1f, s = 0.0333f;
    const double one = (double)x * w * (codes ? (double)s : 1), want = one * (double)K;
    char spec[400], weights[64], dequantise[200] = "";
    snprintf(weights, sizeof weights, "%lldx%lld", along_k ? (long long)N : (long long)K,
             along_k ? (long long)K : (long long)N);
    if (codes) {
        snprintf(dequantise, sizeof dequantise,
                 "DynamicDequantize qtype=per_tensor 2:s8:%s 5:f32:1 -> 4:f32:%s;", weights,
                 weights);
    }
    snprintf(spec, sizeof spec, "%sMatMul transpose_b=%d 1:f32:%lldx%lld %d:%s:%s -> 3:f32:%lldx%d",
             dequantise, along_k, (long long)rows, (long long)K, codes ? 4 : 2,
             codes ? "f32" : type, weights, (long long)rows, N);
    const size_t all = (size_t)(rows * N), many = (size_t)(K * N);
    float *a = floats((size_t)(rows * K), x), *y = floats(all, NAN), scale = s;
    void *b = floats(many, w);
    for (size_t i = 0; i < many && (codes || halves); i++) {
        if (codes) {
            ((int8_t *)b)[i] = 3;
        } else {
            ((uint16_t *)b)[i] = 0x2E66; /* of w */
        }
    }
    const spec_port_t ports[] = {
        {1, a}, {2, b}, {3, y}, {codes ? 5 : 0, codes ? &scale : NULL}, {0, NULL}};
    CHECK(spec_run(spec, sinter_partition_policy_fusion, ports) == sinter_success, "%s: %s", spec,
          sinter_last_error_message());
    /* Few rows have a chain in each of 8 lanes at least, or for each 16 rows of weights. */
    const double units = one_by_one(K, rows <= 16 ? K / 8 : 1024);
    int bad = 0;
    double worst = 0;
    for (size_t i = 0; i < all; i++) {
        const double off = fabs(y[i] - want);
        worst = off > worst ? off : worst;
        bad += !(off <= units * u * want);
    }
    CHECK(bad == 0, "%s: %d of %zu sums; the worst is off by %.3g of %.9g", spec, bad, all, worst,
          want);
    free(a);
    free(b);
    free(y);
}

/* Attention over T equal keys gives the value that they all have. */
static void check_attention(int64_t rows, int64_t T)
{
    enum { D = 32 };
    char spec[400];
    const long long r = rows, t = T;
    snprintf(spec, sizeof spec,
             "MatMul transpose_b=1 1:f32:1x%lldx32 2:f32:1x%lldx32 -> 4:f32:1x%lldx%lld;"
             "SoftMax axis=-1 4:f32:1x%lldx%lld -> 5:f32:1x%lldx%lld;"
             "MatMul 5:f32:1x%lldx%lld 3:f32:1x%lldx32 -> 6:f32:1x%lldx32",
             r, t, r, t, r, t, r, t, r, t, t, r);
    const size_t all = (size_t)rows * D;
    float *q = floats(all, 0.1f), *k = floats((size_t)T * D, 0.1f),
          *v = floats((size_t)T * D, 0.1f), *y = floats(all, NAN);
    const spec_port_t ports[] = {{1, q}, {2, k}, {3, v}, {6, y}, {0, NULL}};
    CHECK(spec_run(spec, sinter_partition_policy_fusion, ports) == sinter_success, "%s: %s", spec,
          sinter_last_error_message());
    int bad = 0;
    double worst = 0;
    for (size_t i = 0; i < all; i++) {
        const double off = fabs(y[i] - (double)0.1f) / (double)0.1f;
        worst = off > worst ? off : worst;
        bad += !(off <= one_by_one(T, 256) * u);
    }
    CHECK(bad == 0, "%s: %d of %zu results; the worst is off by %.3g", spec, bad, all, worst);
    free(q);
    free(k);
    free(v);
    free(y);
}

/* Rows of scores of every magnitude that differs from 0 in the results, some -inf, against long
 * double. The errors are those that docs/numerics.md states. */
static void check_magnitudes(int64_t n, int magnitude)
{
    enum { ROWS = 6 };
    float *x = floats((size_t)(ROWS * n), 0), *y = floats((size_t)(ROWS * n), NAN),
          *logs = floats((size_t)(ROWS * n), NAN), stats[ROWS];
    const spec_port_t ports[] = {{1, x}, {2, y}, {3, stats}, {4, logs}, {0, NULL}};
    char spec[200];
    snprintf(spec, sizeof spec,
             "SoftMax axis=1 1:f32:6x%d -> 2:f32:6x%d 3:f32:6x1;"
             "LogSoftmax axis=1 1:f32:6x%d -> 4:f32:6x%d",
             (int)n, (int)n, (int)n, (int)n);
    for (int64_t i = 0; i < ROWS * n; i++) {
        x[i] = random_below(&seed, 50) == 0 && i % n != 0
                   ? -INFINITY
                   : (float)ldexp(random_signed(&seed), magnitude);
    }
    CHECK(spec_run(spec, sinter_partition_policy_fusion, ports) == sinter_success, "%s: %s", spec,
          sinter_last_error_message());
    for (int64_t r = 0; r < ROWS; r++) {
        const float *row = x + r * n;
        long double max = -INFINITY, sum = 0, mean = 0;
        for (int64_t i = 0; i < n; i++) {
            max = row[i] > max ? row[i] : max;
        }
        for (int64_t i = 0; i < n; i++) {
            sum += expl(row[i] - max);
            mean += isfinite(row[i]) ? expl(row[i] - max) * (max - row[i]) : 0;
        }
        mean /= sum;
        int bad = 0;
        for (int64_t i = 0; i < n; i++) {
            const long double below = max - row[i], want = expl(-below) / sum,
                              log_want = -below - logl(sum);
            const bool none = row[i] == -INFINITY;
            bad += none ? y[r * n + i] != 0 || logs[r * n + i] != -INFINITY
                        : !(fabsl(y[r * n + i] - want) <=
                            (24 + 2 * mean + 2 * below) * u * want + 0x1p-148L) ||
                              !(fabsl(logs[r * n + i] - log_want) <=
                                (24 + 2 * mean + fabsl(log_want)) * u);
        }
        const long double stat = max + logl(sum);
        bad += !(fabsl(stats[r] - stat) <= (24 + 2 * mean + fabsl(stat)) * u);
        CHECK(bad == 0, "%s, scores up to 2^%d, row %d: %d results", spec, magnitude, (int)r, bad);
    }
    free(x);
    free(y);
    free(logs);
}

int main(int argc, char **argv)
{
    static const float others[] = {-0.7f, -0.1f, -3.3f};
    (void)argc;
    wait_passively(argv);
    for (int i = 0; i < 3; i++) {
        check_softmax(4096, 3, 1, others[i]);
        check_softmax(200001, 2, 1, others[i]);
        check_softmax(4096, 35, 0, others[i]);
        check_softmax(200001, 20, 0, others[i]);
    }
    static const char *const types[] = {"f32", "f16", "s8"};
    static const int64_t rows[] = {1, 4, 16, 40};
    for (int i = 0; i < 3 * 4 * 2; i++) {
        check_product(types[i % 3], rows[i / 3 % 4], 32768, i / 12);
    }
    check_attention(1, 32768);
    check_attention(6, 32768);
    check_attention(70, 32768);
    static const int64_t lengths[] = {1, 7, 64, 1000, 33333};
    for (int i = 0; i < 5 * 34; i++) {
        check_magnitudes(lengths[i % 5], i / 5 - 26);
    }
    return check_finish();
}
