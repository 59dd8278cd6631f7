/* The kinds of DynamicQuantize that make the codes of ggml's legacy formats, against code of this
 * file that follows ggml's functions: scales and offsets are equal bit for bit, and codes differ
 * only where a number lies next to the middle of two. ggml makes codes with scales that are not yet
 * rounded to f16, hence a few differ. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "node.h"
#include "passive.h"
#include "random.h"

enum { ROWS = 640, GROUP = 32, COLUMNS = 4 * GROUP, GROUPS = ROWS * COLUMNS / GROUP };

/* ---- as ggml does it ------------------------------------------------------------------------- */

typedef struct block {
    float scale, offset;
    int codes[GROUP];
} block_t;

static float greatest(const float *x)
{
    float amax = 0, most = 0;
    for (int i = 0; i < GROUP; i++) {
        if (amax < fabsf(x[i])) {
            amax = fabsf(x[i]);
            most = x[i];
        }
    }
    return most;
}

/* Q4_0 and Q5_0: levels 8 and 16. */
static void by_sign(const float *x, int levels, block_t *b)
{
    const float d = greatest(x) / (float)-levels, id = d != 0 ? 1 / d : 0;
    b->scale = d;
    for (int i = 0; i < GROUP; i++) {
        const int code = (int)(x[i] * id + (float)levels + 0.5f);
        b->codes[i] = (code < 2 * levels - 1 ? code : 2 * levels - 1) - levels;
    }
}

/* Q4_1 and Q5_1: most 15 and 31. */
static void from_least(const float *x, int most, block_t *b)
{
    float least = x[0], greatest_x = x[0];
    for (int i = 1; i < GROUP; i++) {
        least = fminf(least, x[i]);
        greatest_x = fmaxf(greatest_x, x[i]);
    }
    const float d = (greatest_x - least) / (float)most, id = d != 0 ? 1 / d : 0;
    b->scale = d;
    b->offset = least;
    for (int i = 0; i < GROUP; i++) {
        const int code = (int)((x[i] - least) * id + 0.5f);
        b->codes[i] = code < most ? code : most;
    }
}

/* IQ4_NL. */
static void from_table(const float *x, int unused, block_t *b)
{
    static const int numbers[16] = {-127, -104, -83, -65, -49, -35, -22, -10,
                                    1,    13,   25,  38,  53,  69,  89,  113};
    const float most = greatest(x);
    float above = 0, below = 0;
    (void)unused;
    memset(b, 0, sizeof *b);
    if (fabsf(most) < 1e-15f) {
        return;
    }
    const float id = 1 / (most / -127);
    for (int i = 0; i < GROUP; i++) {
        const float t = id * x[i];
        int low = 0, high = 15;
        while (high - low > 1 && t > -127 && t < 113) {
            const int middle = (low + high) / 2;
            low = t < (float)numbers[middle] ? low : middle;
            high = t < (float)numbers[middle] ? middle : high;
        }
        const int code = t <= -127                                            ? -127
                         : t >= 113                                           ? 113
                         : t - (float)numbers[low] < (float)numbers[high] - t ? numbers[low]
                                                                              : numbers[high];
        const float w = x[i] * x[i];
        b->codes[i] = code;
        above += w * (float)code * x[i];
        below += w * (float)code * (float)code;
    }
    b->scale = below > 0 ? above / below : 0;
}

/* Q8_0. */
static void symmetric(const float *x, int most, block_t *b)
{
    const float d = fabsf(greatest(x)) / (float)most, id = d != 0 ? 1 / d : 0;
    b->scale = d;
    for (int i = 0; i < GROUP; i++) {
        b->codes[i] = (int)roundf(x[i] * id);
    }
}

/* ---- formats --------------------------------------------------------------------------------- */

static const struct {
    const char *name, *kind;
    int64_t code_bits;
    sinter_data_type_t codes;
    bool offsets;
    void (*reference)(const float *x, int levels, block_t *b);
    int levels;
    int units;     /* f16 units that a scale may be off */
    double differ; /* share of codes that may */
} formats[] = {
    {"Q8_0", "dynamic_symmetric", 0, sinter_s8, false, symmetric, 127, 0, 0.04},
    {"Q4_0", "dynamic_signed", 0, sinter_s4, false, by_sign, 8, 0, 0.002},
    {"Q4_1", "dynamic_asymmetric", 0, sinter_u4, true, from_least, 15, 0, 0.01},
    {"Q5_0", "dynamic_signed", 5, sinter_s8, false, by_sign, 16, 0, 0.004},
    {"Q5_1", "dynamic_asymmetric", 5, sinter_u8, true, from_least, 31, 0, 0.02},
    {"IQ4_NL", "dynamic_iq4_nl", 0, sinter_s8, false, from_table, 0, 1, 0.0001},
};

static float x[ROWS * COLUMNS];
static unsigned char codes[ROWS * COLUMNS];
static uint16_t scales[GROUPS], offsets[GROUPS];

/* Of some groups all elements are zeros, equal, or on one side of 0. */
static void fill(void)
{
    static uint64_t state = 7;
    for (int g = 0; g < GROUPS; g++) {
        for (int i = 0; i < GROUP; i++) {
            const double u = (double)(random_next(&state) >> 40) * 0x1p-23 - 1;
            x[g * GROUP + i] = (float)(g % 16 == 5   ? 0
                                       : g % 16 == 6 ? 0.375
                                       : g % 16 == 7 ? 3 + u
                                       : g % 16 == 8 ? u - 3
                                                     : u * u * u * 4);
        }
    }
}

static double half(const uint16_t *at, int64_t i)
{
    return orc_decode(sinter_f16, at, i);
}

static uint16_t to_half(float v)
{
    uint16_t h;
    orc_encode(sinter_f16, &h, 0, v);
    return h;
}

static void check_format(int f, sinter_stream_t *stream)
{
    const int64_t group[2] = {1, GROUP}, dims[2] = {ROWS, COLUMNS},
                  groups[2] = {ROWS, COLUMNS / GROUP};
    const sinter_data_type_t types[3] = {formats[f].codes, sinter_f16, sinter_f16};
    void *const data[3] = {codes, scales, offsets};
    const int n_out = formats[f].offsets ? 3 : 2;
    node_t n = {sinter_op_dynamic_quantize, 1, n_out, formats[f].code_bits > 0 ? 5 : 4,
                .attrs = {{.id = sinter_op_attr_quantization_kind, .str = formats[f].kind},
                          {.id = sinter_op_attr_qtype, .str = "per_group"},
                          {.id = sinter_op_attr_group_shape, .n = 2, .s64 = group},
                          {.id = sinter_op_attr_zps_kind,
                           .str = formats[f].offsets ? "offsets" : "zero_points"},
                          {.id = sinter_op_attr_code_bits, .n = 1, .s64 = &formats[f].code_bits}}};
    orc_tensor_t in, out[3];
    CHECK_THAT(sinter_logical_tensor_init(&n.in[0], 0, sinter_f32, 2, dims,
                                          sinter_tensor_property_undef) == sinter_success);
    in = (orc_tensor_t){n.in[0], x};
    for (int i = 0; i < n_out; i++) {
        CHECK_THAT(sinter_logical_tensor_init(&n.out[i], (uint64_t)(1 + i), types[i], 2,
                                              i ? groups : dims,
                                              sinter_tensor_property_undef) == sinter_success);
        out[i] = (orc_tensor_t){n.out[i], data[i]};
    }
    sinter_compiled_partition_t *compiled = node_compiled(&n, 1, "single");
    node_execute(compiled, stream, &in, 1, out, n_out);
    sinter_compiled_partition_destroy(&compiled);
    long differ = 0, far = 0, wrong = 0;
    double mine = 0, theirs = 0;
    for (int g = 0; g < GROUPS; g++) {
        block_t b = {.offset = 0};
        formats[f].reference(x + g * GROUP, formats[f].levels, &b);
        const uint16_t scale = to_half(b.scale), offset = to_half(b.offset);
        /* Groups without a range: a scale of 0 there, of 1 here, and codes of 0. */
        const bool flat = b.scale == 0;
        wrong += !flat && abs((int)scale - (int)scales[g]) > formats[f].units;
        wrong += formats[f].offsets && half(offsets, g) != half(&offset, 0);
        for (int i = 0; i < GROUP; i++) {
            const int code = (int)orc_decode(formats[f].codes, codes, g * GROUP + i);
            const double o = formats[f].offsets ? half(offsets, g) : 0,
                         got = half(scales, g) * code + o, want = half(&scale, 0) * b.codes[i] + o,
                         v = x[g * GROUP + i];
            differ += !flat && code != b.codes[i];
            /* Another code is no worse by more than what rounding the scale moves the middle. */
            far += fabs(got - v) > fabs(want - v) + fabs(half(&scale, 0)) * 0.2 + 1e-6;
            mine += (got - v) * (got - v);
            theirs += (want - v) * (want - v);
        }
    }
    CHECK(wrong == 0, "%s: %ld scales or offsets differ", formats[f].name, wrong);
    CHECK(far == 0, "%s: %ld codes are far off", formats[f].name, far);
    CHECK((double)differ <= formats[f].differ * ROWS * COLUMNS, "%s: %ld codes differ",
          formats[f].name, differ);
    CHECK(mine <= 1.001 * theirs, "%s: an error of %g instead of %g", formats[f].name, mine,
          theirs);
    printf("%s: %.3f %% of codes differ, error %.6f of ggml's\n", formats[f].name,
           100.0 * (double)differ / (ROWS * COLUMNS), sqrt(mine / theirs));
}

int main(int argc, char **argv)
{
    sinter_stream_t *stream = NULL;
    (void)argc;
    wait_passively(argv);
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    fill();
    for (int f = 0; f < (int)(sizeof formats / sizeof *formats); f++) {
        check_format(f, stream);
    }
    sinter_stream_destroy(&stream);
    return check_finish();
}
