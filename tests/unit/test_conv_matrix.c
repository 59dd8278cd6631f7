/* Convolution against the oracle over a covering design: of every two properties below, every two
 * values meet in at least one case. Tensors have random layouts with gaps, and outputs lie between
 * sentinels. Each case is one partition, and runs op by op as well. SINTER_MATRIX_ONLY=N runs one
 * case, SINTER_RANDOM_SEED makes another design. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "../fuzz/fuzz.h"
#include "check.h"
#include "covering.h"
#include "passive.h"

/* ---- properties ------------------------------------------------------------------------------ */

typedef enum property {
    DIMS,
    GROUPS,
    CHANNELS, /* of the image, for each group */
    RESULTS,  /* for each group */
    KERNEL,
    STRIDE,
    DILATION,
    PADS,
    FORMAT,
    WEIGHTS_FORMAT,
    IMAGE,
    WEIGHTS,
    SCALES,
    CONSTANT,
    BIAS,
    POSTS,
    TRANSPOSED,
    MODE,
    DYNAMIC,
    PROPERTIES
} property_t;

enum groups { ONE, TWO, FOUR, DEPTHWISE, DEPTHWISE_TWICE };
enum pads { NONE, SOME, VALID, SAME_UPPER, SAME_LOWER };
enum image { F32, F16, BF16, OF_E4M3, OF_E5M2, OF_U8, OF_S8, OF_U8_WITH_ZP };
enum weights { LIKE_THE_IMAGE, S8_BY_TENSOR, S8_BY_CHANNEL, S8_WITH_ZPS, E4M3_BY_CHANNEL };
enum posts { NOTHING, RELU, SUM_AND_PRODUCT, CODES };

static const char *const names[PROPERTIES] = {
    "dims", "groups", "channels",   "results", "kernel", "stride", "dilation",
    "pads", "format", "weights",    "image",   "coded",  "scales", "const",
    "bias", "posts",  "transposed", "mode",    "dynamic"};
static const int values[PROPERTIES][COVERING_VALUES] = {
    [DIMS] = {1, 2, 3},
    [GROUPS] = {ONE, TWO, FOUR, DEPTHWISE, DEPTHWISE_TWICE},
    [CHANNELS] = {3, 8, 33, 64},
    [RESULTS] = {1, 5, 16, 40, 70},
    [KERNEL] = {1, 2, 3},
    [STRIDE] = {1, 2, 3},
    [DILATION] = {1, 2},
    [PADS] = {NONE, SOME, VALID, SAME_UPPER, SAME_LOWER},
    [FORMAT] = {0, 1},         /* 1: NCX */
    [WEIGHTS_FORMAT] = {0, 1}, /* 1: OIX, IOX */
    [IMAGE] = {F32, F16, BF16, OF_E4M3, OF_E5M2, OF_U8, OF_S8, OF_U8_WITH_ZP},
    [WEIGHTS] = {LIKE_THE_IMAGE, S8_BY_TENSOR, S8_BY_CHANNEL, S8_WITH_ZPS, E4M3_BY_CHANNEL},
    [SCALES] = {0, 1}, /* 1: those of all groups, where the weights have the channels of one */
    [CONSTANT] = {0, 1},
    [BIAS] = {0, 1},
    [POSTS] = {NOTHING, RELU, SUM_AND_PRODUCT, CODES},
    [TRANSPOSED] = {0, 1},
    [MODE] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_bf16, sinter_fpmath_mode_int8},
    [DYNAMIC] = {0, 1}};
static const int sizes[PROPERTIES] = {3, 5, 4, 5, 3, 3, 2, 5, 2, 2, 8, 5, 2, 2, 2, 4, 2, 3, 2};

/* ---- a case as a graph ----------------------------------------------------------------------- */

typedef struct conv_case {
    int v[PROPERTIES];
    int64_t groups, channels, results; /* of all groups */
    sinter_data_type_t type;           /* of the convolution */
} conv_case_t;

static void settle(fz_t *f, conv_case_t *c)
{
    const bool deep = c->v[GROUPS] >= DEPTHWISE;
    c->groups = c->v[GROUPS] == ONE    ? 1
                : c->v[GROUPS] == TWO  ? 2
                : c->v[GROUPS] == FOUR ? 4
                                       : c->v[CHANNELS];
    c->channels = deep ? c->v[CHANNELS] : c->groups * c->v[CHANNELS];
    c->results = c->groups * (c->v[GROUPS] == DEPTHWISE         ? 1
                              : c->v[GROUPS] == DEPTHWISE_TWICE ? 2
                                                                : c->v[RESULTS]);
    c->type = c->v[IMAGE] == F16 ? sinter_f16 : c->v[IMAGE] == BF16 ? sinter_bf16 : sinter_f32;
    f->mode = (sinter_fpmath_mode_t)c->v[MODE];
    f->apply_to_int = 1;
}

/* Codes with n given scales; axis -1: one scale. */
static int dequantised(fz_t *f, int codes, sinter_data_type_t type, int axis, size_t n, bool zps)
{
    const fz_tensor_t t = f->tensors[codes];
    float scale[512];
    int64_t zp[512];
    for (size_t i = 0; i < n; i++) {
        scale[i] = (float)fz_range(f, 1, 40) / 256;
        zp[i] = zps ? fz_range(f, -7, 7) + (t.type == sinter_u8 ? 100 : 0) : 0;
    }
    const int x = fz_op(f, sinter_op_dequantize, type, t.ndims, t.dims, 1, &codes);
    fz_str(f, sinter_op_attr_qtype, axis < 0 ? "per_tensor" : "per_channel");
    fz_f32(f, sinter_op_attr_scales, n, scale);
    if (zps) {
        fz_s64(f, sinter_op_attr_zps, n, zp);
    }
    if (axis >= 0) {
        fz_s64(f, sinter_op_attr_axis, 1, &(int64_t){axis});
    }
    return x;
}

static int image(fz_t *f, const conv_case_t *c, int ndims, const int64_t *dims)
{
    static const sinter_data_type_t codes[] = {
        [OF_E4M3] = sinter_f8_e4m3, [OF_E5M2] = sinter_f8_e5m2,  [OF_U8] = sinter_u8,
        [OF_S8] = sinter_s8,        [OF_U8_WITH_ZP] = sinter_u8,
    };
    const int kind = c->v[IMAGE];
    if (kind < OF_E4M3) {
        return fz_input(f, c->type, ndims, dims);
    }
    return dequantised(f, fz_input(f, codes[kind], ndims, dims), c->type, -1, 1,
                       kind == OF_U8_WITH_ZP);
}

/* Cases whose weights have scales for the output channels of several groups, by direction and
 * format of the weights. */
static int of_all_groups[2][2];

static int weights(fz_t *f, const conv_case_t *c)
{
    const bool transposed = c->v[TRANSPOSED], ahead = !c->v[WEIGHTS_FORMAT];
    const int64_t i = transposed ? c->channels : c->channels / c->groups,
                  o = transposed ? c->results / c->groups : c->results;
    const int n = c->v[DIMS], kind = c->v[WEIGHTS];
    int64_t dims[FZ_MAX_RANK];
    /* XIO, OIX; XOI, IOX. */
    const int first = ahead ? n : 0;
    dims[first] = transposed == ahead ? o : i;
    dims[first + 1] = transposed == ahead ? i : o;
    for (int k = 0; k < n; k++) {
        dims[(ahead ? 0 : 2) + k] = c->v[KERNEL];
    }
    const int axis = first + (transposed == ahead ? 0 : 1);
    const int x = fz_input(f,
                           kind == LIKE_THE_IMAGE    ? c->type
                           : kind == E4M3_BY_CHANNEL ? sinter_f8_e4m3
                                                     : sinter_s8,
                           n + 2, dims);
    f->tensors[x].property =
        c->v[CONSTANT] ? sinter_tensor_property_constant : sinter_tensor_property_variable;
    if (kind == LIKE_THE_IMAGE) {
        return x;
    }
    if (kind == S8_BY_TENSOR) {
        return dequantised(f, x, c->type, -1, 1, false);
    }
    const int64_t scales = c->v[SCALES] ? c->results : dims[axis];
    of_all_groups[transposed][ahead] += transposed ? scales > dims[axis] : c->groups > 1;
    return dequantised(f, x, c->type, axis, (size_t)scales, kind == S8_WITH_ZPS);
}

static int64_t result_size(const conv_case_t *c, int64_t size)
{
    const int64_t stride = c->v[STRIDE], extent = (c->v[KERNEL] - 1) * c->v[DILATION] + 1,
                  padding = c->v[PADS] == SOME ? 3 : 0;
    const bool same = c->v[PADS] == SAME_UPPER || c->v[PADS] == SAME_LOWER;
    if (c->v[TRANSPOSED]) {
        return same ? size * stride : stride * (size - 1) + extent - padding;
    }
    return same ? (size + stride - 1) / stride : (size + padding - extent) / stride + 1;
}

static void put_attributes(fz_t *f, const conv_case_t *c)
{
    static const char *const pads[] = {"None", "None", "VALID", "SAME_UPPER", "SAME_LOWER"};
    const size_t n = (size_t)c->v[DIMS];
    int64_t stride[3], dilation[3], begin[3], end[3];
    for (size_t i = 0; i < n; i++) {
        stride[i] = c->v[STRIDE];
        dilation[i] = c->v[DILATION];
        begin[i] = c->v[PADS] == SOME;
        end[i] = c->v[PADS] == SOME ? 2 : 0;
    }
    fz_s64(f, sinter_op_attr_strides, n, stride);
    fz_s64(f, sinter_op_attr_dilations, n, dilation);
    fz_s64(f, sinter_op_attr_pads_begin, n, begin);
    fz_s64(f, sinter_op_attr_pads_end, n, end);
    fz_s64(f, sinter_op_attr_groups, 1, &c->groups);
    fz_str(f, sinter_op_attr_auto_pad, pads[c->v[PADS]]);
    fz_str(f, sinter_op_attr_data_format, c->v[FORMAT] ? "NCX" : "NXC");
    fz_str(f, sinter_op_attr_weights_format,
           c->v[TRANSPOSED] ? (c->v[WEIGHTS_FORMAT] ? "IOX" : "XOI")
                            : (c->v[WEIGHTS_FORMAT] ? "OIX" : "XIO"));
}

static void put_posts(fz_t *f, const conv_case_t *c, int x)
{
    const sinter_data_type_t type = f->tensors[x].type;
    if (c->v[POSTS] == RELU || c->v[POSTS] == CODES) {
        x = fz_unary(f, sinter_op_relu, type, x);
    }
    if (c->v[POSTS] == SUM_AND_PRODUCT) {
        const int side = fz_input(f, type, f->tensors[x].ndims, f->tensors[x].dims);
        x = fz_binary(f, sinter_op_add, type, x, side);
        x = fz_binary(f, sinter_op_multiply, type, x, fz_scalar(f, type, 1));
    }
    if (c->v[POSTS] == CODES) {
        const fz_tensor_t t = f->tensors[x];
        fz_op(f, sinter_op_quantize, sinter_u8, t.ndims, t.dims, 1, &x);
        fz_str(f, sinter_op_attr_qtype, "per_tensor");
        fz_f32(f, sinter_op_attr_scales, 1, &(float){0.5F});
        fz_s64(f, sinter_op_attr_zps, 1, &(int64_t){3});
    }
}

static void build(fz_t *f, conv_case_t *c)
{
    static const int64_t longest[] = {0, 41, 9, 6};
    const int n = c->v[DIMS], channel = c->v[FORMAT] ? 1 : n + 1, first = c->v[FORMAT] ? 2 : 1;
    int64_t from[FZ_MAX_RANK] = {2}, to[FZ_MAX_RANK] = {2};
    settle(f, c);
    from[channel] = c->channels;
    to[channel] = c->results;
    for (int i = 0; i < n; i++) {
        const int64_t size = longest[n] + i;
        from[first + i] = size;
        to[first + i] = result_size(c, size);
        if (c->v[DYNAMIC] && i == n - 1) {
            from[first + i] = fz_symbol(f, size, 5, size + 7);
            to[first + i] =
                fz_symbol(f, result_size(c, size), result_size(c, 5), result_size(c, size + 7));
        }
    }
    int in[3] = {image(f, c, n + 2, from)};
    in[1] = weights(f, c);
    if (c->v[BIAS]) {
        in[2] = fz_input(f, c->type, 1, &c->results);
    }
    const int x = fz_op(f, c->v[TRANSPOSED] ? sinter_op_conv_transpose : sinter_op_convolution,
                        c->type, n + 2, to, c->v[BIAS] ? 3 : 2, in);
    put_attributes(f, c);
    put_posts(f, c, x);
}

/* ---- running --------------------------------------------------------------------------------- */

static void run_case(const int *row, uint64_t seed, int number)
{
    conv_case_t c = {0};
    char text[1024] = "";
    const long before = fz_tally.partitions;
    fz_t f;
    fz_init(&f, seed);
    f.generator = "conv matrix";
    for (int p = 0; p < PROPERTIES; p++) {
        c.v[p] = values[p][row[p]];
    }
    build(&f, &c);
    const fz_outcome_t outcome = fz_run(&f, text, sizeof text);
    if (!CHECK(outcome == FZ_PASSED && fz_tally.partitions == before + 1,
               "case %d: %s, %ld partitions", number, text, fz_tally.partitions - before)) {
        for (int p = 0; p < PROPERTIES; p++) {
            printf("%s %d ", names[p], c.v[p]);
        }
        printf("\n");
        fz_print(&f);
    }
    fz_free(&f);
}

int main(int argc, char **argv)
{
    static covering_t design;
    const char *only = getenv("SINTER_MATRIX_ONLY"), *seed_text = getenv("SINTER_RANDOM_SEED");
    const uint64_t seed = seed_text != NULL ? strtoull(seed_text, NULL, 0) : 1;
    int row[COVERING_PROPERTIES], n = 0;
    (void)argc;
    wait_passively(argv);
    covering_begin(&design, PROPERTIES, sizes, seed);
    while (covering_next(&design, row)) {
        n++;
        if (only == NULL || strtol(only, NULL, 0) == n) {
            run_case(row, seed * 1000 + (uint64_t)n, n);
        }
        fflush(stdout);
    }
    printf("%d cases: every two values of two properties\n", n);
    /* Of the design that always runs; another one need not have every case. */
    for (int i = 0; i < 4 && only == NULL && seed_text == NULL; i++) {
        CHECK(of_all_groups[i / 2][i % 2] > 0, "no scales for all groups: %s, weights %d",
              i / 2 ? "transposed" : "forward", i % 2);
    }
    fz_check_loose(0.05);
    return check_finish();
}
