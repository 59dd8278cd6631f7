/* Every quantization_kind that computes scales, with every element type, against the oracle:
 * groups of 1 to 256 along either dim, tiles, rows, columns and whole tensors, of random, tiny,
 * huge, zero and special numbers. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "node.h"
#include "passive.h"
#include "random.h"

/* ---- what is quantised ----------------------------------------------------------------------- */

typedef struct kind {
    const char *name;
    sinter_data_type_t types[10], scales[5], zps[5]; /* undef ends a list */
    int offsets;
    int64_t code_bits; /* 0: all that the type has */
} kind_t;

#define FLOATS                                                                              \
    sinter_f8_e4m3, sinter_f8_e5m2, sinter_f8_e4m3fnuz, sinter_f8_e5m2fnuz, sinter_f6_e3m2, \
        sinter_f6_e2m3, sinter_f4_e2m1
#define SCALES                                                           \
    {                                                                    \
        sinter_f32, sinter_f16, sinter_bf16, sinter_e8m0, sinter_f8_e4m3 \
    }
#define SIGNED_SCALES                                       \
    {                                                       \
        sinter_f32, sinter_f16, sinter_bf16, sinter_f8_e4m3 \
    }
static const kind_t kinds[] = {
    {"dynamic_mx", {FLOATS, sinter_s8}, {sinter_e8m0}, {0}, 0, 0},
    {"dynamic_mx_rceil", {FLOATS, sinter_s8}, {sinter_e8m0}, {0}, 0, 0},
    {"dynamic_symmetric", {FLOATS, sinter_s8, sinter_s4}, SCALES, {0}, 0, 0},
    {"dynamic_asymmetric",
     {sinter_u8, sinter_s8, sinter_u4, sinter_s4},
     SCALES,
     {sinter_s32, sinter_u8, sinter_s8, sinter_u4, sinter_s4},
     0,
     0},
    {"dynamic_asymmetric",
     {sinter_u8, sinter_s8, sinter_u4, sinter_s4},
     SCALES,
     {sinter_f32, sinter_f16, sinter_bf16},
     0,
     0},
    {"dynamic_asymmetric",
     {sinter_u8, sinter_s8, sinter_u4, sinter_s4},
     SCALES,
     {sinter_f32, sinter_f16, sinter_bf16},
     1,
     0},
    {"dynamic_nv", {sinter_f4_e2m1}, {sinter_f8_e4m3}, {0}, 0, 0},
    {"dynamic_signed", {sinter_s8, sinter_s4}, SIGNED_SCALES, {0}, 0, 0},
    {"dynamic_signed", {sinter_s8}, SIGNED_SCALES, {0}, 0, 5},
    {"dynamic_symmetric", {sinter_s8, sinter_s4}, SCALES, {0}, 0, 3},
    {"dynamic_asymmetric", {sinter_u8, sinter_s8}, SCALES, {sinter_u8, sinter_s32}, 0, 5},
    {"dynamic_asymmetric",
     {sinter_u8, sinter_s8},
     {sinter_f32, sinter_f16, sinter_bf16},
     {sinter_f16, sinter_f32},
     1,
     5},
    {"dynamic_asymmetric",
     {sinter_u8, sinter_s8},
     {sinter_f32, sinter_f16, sinter_bf16},
     {sinter_f16, sinter_f32},
     0,
     6},
    {"dynamic_iq4_nl", {sinter_s8}, SIGNED_SCALES, {0}, 0, 0},
};

/* 2-D data and the shape of its groups. */
static const struct {
    int64_t dims[2], group[2];
} geometries[] = {
    {{5, 40}, {1, 1}},     {{24, 6}, {1, 2}},    {{24, 9}, {1, 3}},     {{12, 35}, {1, 7}},
    {{12, 64}, {1, 8}},    {{12, 64}, {1, 16}},  {{12, 48}, {1, 24}},   {{12, 96}, {1, 32}},
    {{24, 48}, {1, 48}},   {{12, 128}, {1, 64}}, {{12, 200}, {1, 100}}, {{12, 256}, {1, 128}},
    {{12, 400}, {1, 200}}, {{6, 512}, {1, 256}}, {{24, 30}, {2, 1}},    {{96, 20}, {32, 1}},
    {{256, 12}, {128, 1}}, {{512, 6}, {256, 1}}, {{24, 40}, {4, 4}},    {{32, 64}, {16, 8}},
    {{96, 96}, {32, 32}},  {{30, 66}, {3, 11}},  {{11, 33}, {11, 33}},  {{512, 512}, {256, 256}},
    {{9, 1024}, {1, 16}},  {{9, 1024}, {1, 32}}, {{9, 1024}, {1, 64}},  {{9, 1024}, {1, 128}},
    {{21, 336}, {1, 16}},  {{15, 416}, {1, 32}}, {{6, 2048}, {1, 256}}, {{7, 4096}, {1, 4096}},
    {{8, 1152}, {1, 384}},
};

/* ---- data ------------------------------------------------------------------------------------ */

static uint64_t bits(void)
{
    static uint64_t state = 1;
    return random_next(&state) >> 16;
}

static double noise(void)
{
    return (double)(int64_t)(bits() % 0x2000001) * 0x1p-24 - 1;
}

/* TINY: so small that f32 has the scale as 0. */
enum {
    RANDOM,
    WIDE,
    SUBNORMAL,
    TINY,
    HUGE_ONES,
    ZEROS,
    OUTLIER,
    POWER,
    BELOW_POWER,
    TIES,
    POSITIVE,
    WITH_NAN,
    WITH_INF,
    N_CLASSES
};

/* Element i of a group of n. top: the largest number of the input's type. */
static double value(int class, uint64_t seed, int64_t i, int64_t n, double top)
{
    const double power = ldexp(1, (int)(seed % 20) - 10);
    const int64_t special = (int64_t)(seed % (uint64_t)n);

    switch (class) {
    case WIDE:
        return ldexp(noise(), (int)(bits() % 30) - 20);
    case SUBNORMAL:
        return top > 1e6 ? ldexp(noise(), -126 - (int)(bits() % 20))
                         : ldexp(noise(), -14 - (int)(bits() % 8));
    case TINY:
        return ldexp((double)((int64_t)(bits() % 127) - 63), -149);
    case HUGE_ONES:
        return noise() * top;
    case ZEROS:
        return bits() % 2 ? 0 : -0.0;
    case OUTLIER:
        return i == special ? -3e4 : noise();
    case POWER:
        return i == special ? power : noise() * power;
    case BELOW_POWER:
        return i == special ? -power * (top > 0x1.FFp127 ? 1 - 0x1p-24
                                        : top > 1e6      ? 1 - 0x1p-8
                                                         : 1 - 0x1p-11)
                            : noise() * power / 2;
    case TIES:
        return (double)((int64_t)(bits() % 255) - 127) / 8;
    case POSITIVE:
        return 1 + fabs(noise());
    case WITH_NAN:
        return i == special ? NAN : noise();
    case WITH_INF:
        return i == special ? -INFINITY : noise();
    default:
        return noise() * power;
    }
}

/* What group g holds. Of long runs, whose groups are taken many at a time, three in four have
 * plain numbers only. */
static int class_of(int64_t g, const int64_t dims[2], const int64_t group[2])
{
    const int class = (int)(g % N_CLASSES);
    const bool long_run = group[0] == 1 && dims[0] * dims[1] > 6000,
               plain = g * group[1] / (group[1] > 1024 ? group[1] : 1024) % 4 != 3;

    return long_run && plain &&
                   (class == SUBNORMAL || class == TINY || class == HUGE_ONES || class >= WITH_NAN)
               ? RANDOM
               : class;
}

/* No number is beyond `most`. */
static void fill(sinter_data_type_t type, double most, void *data, const int64_t dims[2],
                 const int64_t group[2])
{
    const double top = fmin(most, type == sinter_f16    ? 65504
                                  : type == sinter_bf16 ? 0x1.FEp127
                                                        : 0x1.FFFFFEp127);
    const int64_t across = dims[1] / group[1];

    for (int64_t g = 0; g < dims[0] / group[0] * across; g++) {
        const uint64_t seed = bits();
        for (int64_t i = 0; i < group[0] * group[1]; i++) {
            const int64_t row = g / across * group[0] + i / group[1],
                          col = g % across * group[1] + i % group[1];
            orc_encode(type, data, row * dims[1] + col,
                       value(class_of(g, dims, group), seed, i, group[0] * group[1], top));
        }
    }
}

/* ---- one case -------------------------------------------------------------------------------- */

enum { MOST = 512 * 512 };
static float input[MOST];
static unsigned char outputs[3][MOST * 4];
static long n_cases, n_elements;

static void run(const kind_t *k, sinter_data_type_t from, const sinter_data_type_t to[3],
                const int64_t dims[2], const int64_t group[2], sinter_stream_t *stream)
{
    const int64_t groups[2] = {dims[0] / group[0], dims[1] / group[1]};
    const int n_out = to[2] ? 3 : 2;
    node_t n = {
        sinter_op_dynamic_quantize, 1, n_out, k->code_bits > 0 ? 5 : 4,
        .attrs = {{.id = sinter_op_attr_quantization_kind, .str = k->name},
                  {.id = sinter_op_attr_qtype, .str = "per_group"},
                  {.id = sinter_op_attr_group_shape, .n = 2, .s64 = group},
                  {.id = sinter_op_attr_zps_kind, .str = k->offsets ? "offsets" : "zero_points"},
                  {.id = sinter_op_attr_code_bits, .n = 1, .s64 = &k->code_bits}}};
    orc_tensor_t in, out[3];
    char what[128];

    /* Where a scale is far from what its group asks for, codes are sums of numbers that differ by
     * less than they are rounded; and differences from an offset may leave f32. */
    const int floats = to[2] == sinter_f32 || to[2] == sinter_f16 || to[2] == sinter_bf16;
    const double most = to[1] == sinter_f16 ? 65504 : to[1] == sinter_f8_e4m3 ? 448 : 0x1p117;
    const double levels = k->code_bits > 0 ? (double)(1 << k->code_bits) : 256;
    fill(from, floats ? levels * most : INFINITY, input, dims, group);
    CHECK_THAT(sinter_logical_tensor_init(&n.in[0], 0, from, 2, dims,
                                          sinter_tensor_property_undef) == sinter_success);
    in = (orc_tensor_t){n.in[0], input};
    for (int i = 0; i < n_out; i++) {
        CHECK_THAT(sinter_logical_tensor_init(&n.out[i], (uint64_t)(1 + i), to[i], 2,
                                              i ? groups : dims,
                                              sinter_tensor_property_undef) == sinter_success);
        out[i] = (orc_tensor_t){n.out[i], outputs[i]};
    }
    sinter_compiled_partition_t *compiled = node_compiled(&n, 1, "single");
    node_execute(compiled, stream, &in, 1, out, n_out);
    sinter_compiled_partition_destroy(&compiled);
    snprintf(what, sizeof what, "%s, types %d to %d, %d, %d, groups %dx%d of %dx%d", k->name, from,
             to[0], to[1], to[2], (int)group[0], (int)group[1], (int)dims[0], (int)dims[1]);
    node_compare(what, &n, 1, &in, 1, out, (size_t)n_out);
    n_cases++;
    n_elements += (long)(dims[0] * dims[1]);
}

/* The member of a list that is to be next. */
static sinter_data_type_t next(const sinter_data_type_t *list, int most, long at)
{
    int n = 0;

    while (n < most && list[n]) {
        n++;
    }
    return n ? list[at % n] : sinter_data_type_undef;
}

int main(int argc, char **argv)
{
    static const sinter_data_type_t from[] = {sinter_f32, sinter_bf16, sinter_f32, sinter_f16};
    sinter_stream_t *stream = NULL;
    long turn = 0;

    (void)argc;
    wait_passively(argv);
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    for (size_t k = 0; k < sizeof kinds / sizeof *kinds; k++) {
        for (int t = 0; t < 10 && kinds[k].types[t]; t++) {
            for (size_t g = 0; g < sizeof geometries / sizeof *geometries; g++, turn++) {
                const sinter_data_type_t to[3] = {kinds[k].types[t], next(kinds[k].scales, 5, turn),
                                                  next(kinds[k].zps, 5, turn / 5)};
                if (geometries[g].dims[0] * geometries[g].dims[1] < 100000 || t == 0) {
                    run(&kinds[k], from[turn % 4], to, geometries[g].dims, geometries[g].group,
                        stream);
                }
            }
        }
    }
    sinter_stream_destroy(&stream);
    printf("%ld cases, %ld elements\n", n_cases, n_elements);
    return check_finish();
}
