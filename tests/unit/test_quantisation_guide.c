/* The worked examples of oneDNN's guide to quantisation (models/guide-*.json) with integers that
 * make every sum exact: results are what the formulas say, bit for bit in strict mode and within
 * the oracle's bound in the others; sums of the activations given or computed make no
 * difference. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "e2e.h"
#include "passive.h"

enum {
    M = 5,
    K = 256,
    N_CHANNEL = 12,
    N_ZP = 64,
    N_ONLY = 512,
    SCALE_GROUP = 128,
    ZP_GROUP = 64,
    ZP_A = 8
};
static const double scale_a = 0.125;

/* ---- data: small integers, powers of two ----------------------------------------------------- */

static unsigned hash(unsigned a, unsigned b, unsigned c)
{
    unsigned h = a * 2654435761u ^ (b + 1) * 40503u ^ (c + 7) * 2246822519u;

    h ^= h >> 13;
    h *= 3266489917u;
    return h ^ h >> 16;
}

static int code_a(int m, int k)
{
    return (int)(hash(1, (unsigned)m, (unsigned)k) % 32);
}
static int code_w(int k, int n)
{
    return (int)(hash(2, (unsigned)k, (unsigned)n) % 32) - 16;
}
static int zero_point(int k, int n)
{
    return (int)(hash(3, (unsigned)(k / ZP_GROUP), (unsigned)n) % 16) - 8;
}
static double scale_w(int k, int n)
{
    return ldexp(1, -4 - (int)(hash(4, (unsigned)(k / SCALE_GROUP), (unsigned)n) % 4));
}
static double scale_channel(int n)
{
    return ldexp(1, -4 - n % 4);
}
static double value_x(int m, int k)
{
    return (code_a(m, k) - 16) / 8.0;
}
static double bias(int n)
{
    return n - 6;
}

static int sum_a(int m, int group)
{
    int sum = 0;

    for (int k = group * ZP_GROUP; k < (group + 1) * ZP_GROUP; k++) {
        sum += code_a(m, k) - ZP_A;
    }
    return sum;
}

/* ---- what comes out -------------------------------------------------------------------------- */

static double per_channel(int m, int n)
{
    double y = 0;

    for (int k = 0; k < K; k++) {
        y += (code_a(m, k) - ZP_A) * code_w(k, n);
    }
    y = y * scale_a * scale_channel(n) + bias(n);
    y = nearbyint(fmax(y, 0) / 0.5);
    return y > 127 ? 127 : y;
}

static double weight_only(int m, int n)
{
    double y = 0;

    for (int k = 0; k < K; k++) {
        y += value_x(m, k) * (scale_w(k, n) * code_w(k, n));
    }
    return y; /* an f16 has to round it */
}

static double zero_points(int m, int n)
{
    double y = 0;

    for (int k = 0; k < K; k++) {
        y += scale_a * (code_a(m, k) - ZP_A) * (scale_w(k, n) * (code_w(k, n) - zero_point(k, n)));
    }
    return y;
}

/* ---- inputs ---------------------------------------------------------------------------------- */

/* By the tensor's type and shape, which tell in these graphs what it is. */
static double input_value(const sinter_logical_tensor_t *lt, int r, int c)
{
    const int rows = (int)(lt->ndims > 0 ? lt->dims[0] : 1);

    switch (lt->data_type) {
    case sinter_u8:
        return code_a(r, c);
    case sinter_s8:
        return rows == K ? code_w(r, c) : zero_point(r * ZP_GROUP, c);
    case sinter_f16:
        return rows == M ? value_x(r, c) : scale_w(r * SCALE_GROUP, c);
    case sinter_s32:
        return sum_a(r, c);
    default:
        return lt->dims[0] == 1 ? scale_a : bias(r);
    }
}

static void fill(const e2e_ports_t *ports)
{
    for (size_t i = 0; i < ports->n_in; i++) {
        const sinter_logical_tensor_t *lt = &ports->in_lt[i];
        const int rows = (int)lt->dims[0], columns = lt->ndims > 1 ? (int)lt->dims[1] : 1;
        unsigned char host[8];
        void *data = ports->in_data[i];

        if (lt->property == sinter_tensor_property_host_scalar) {
            orc_encode(lt->data_type, host, 0, input_value(lt, 0, 0));
            sinter_tensor_get_data(ports->in[i], &data);
            memcpy(data, host, 4);
            continue;
        }
        for (int r = 0; r < rows; r++) {
            for (int c = 0; c < columns; c++) {
                orc_encode(lt->data_type, data, (int64_t)r * columns + c, input_value(lt, r, c));
            }
        }
    }
}

/* ---- the examples ---------------------------------------------------------------------------- */

typedef struct example {
    const char *name;
    int n;
    double (*expected)(int m, int n);
} example_t;

static const example_t examples[] = {
    {"guide-per-channel.json", N_CHANNEL, per_channel},
    {"guide-weight-only.json", N_ONLY, weight_only},
    {"guide-zero-points.json", N_ZP, zero_points},
    {"guide-sums.json", N_ZP, zero_points},
};

/* Elements that are not the expected number rounded once. */
static int count_wrong(const example_t *e, const e2e_ports_t *ports)
{
    const sinter_data_type_t type = ports->out_lt[0].data_type;
    int wrong = 0;

    for (int m = 0; m < M; m++) {
        for (int n = 0; n < e->n; n++) {
            unsigned char rounded[8];
            const int64_t at = (int64_t)m * e->n + n;

            orc_encode(type, rounded, 0, e->expected(m, n));
            wrong += orc_decode(type, rounded, 0) != orc_decode(type, ports->out_data[0], at);
        }
    }
    return wrong;
}

static void run(const example_t *e, sinter_fpmath_mode_t mode, int threads)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    sinter_compiled_partition_t *compiled = NULL;
    sinter_partition_t *partition;
    sinter_stream_t *stream = NULL;
    e2e_ports_t ports;
    model_t model;

    e2e_load(&model, e->name);
    partition = e2e_partition(&model, NULL);
    e2e_ports_make(&ports, &model, NULL, 1, 0);
    fill(&ports);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, mode, 1) == sinter_success);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    CHECK_THAT(e2e_execute(compiled, stream, &ports) == sinter_success);
    CHECK_THAT(mode != sinter_fpmath_mode_strict || count_wrong(e, &ports) == 0);
    CHECK_THAT(!e2e_compare(&model, &ports, mode, 1));
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    e2e_ports_free(&ports);
    model_free(&model);
}

int main(int argc, char **argv)
{
    static const sinter_fpmath_mode_t modes[] = {
        sinter_fpmath_mode_strict, sinter_fpmath_mode_tf32, sinter_fpmath_mode_f16,
        sinter_fpmath_mode_bf16,   sinter_fpmath_mode_any,  sinter_fpmath_mode_int8};

    (void)argc;
    wait_passively(argv);
    for (size_t i = 0; i < sizeof examples / sizeof *examples; i++) {
        for (size_t k = 0; k < sizeof modes / sizeof *modes; k++) {
            run(&examples[i], modes[k], 1 + (int)k % 2);
        }
    }
    return check_finish();
}
