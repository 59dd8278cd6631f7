/* Sums of many terms, against sums in double: errors do not grow with the number of terms. Equal
 * terms are the worst case, since they round the same way again and again. */
#include <math.h>
#include <stdint.h>

#include "passive.h"
#include "spec_run.h"

static const double u = 0x1p-24;

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
    return check_finish();
}
