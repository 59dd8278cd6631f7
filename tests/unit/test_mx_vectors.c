/* DynamicQuantize of the MX kinds against recorded results of torchao, bit for bit. The
 * differences, each decided by a rule of the numeric contract and asserted here:
 *
 *   a NaN or an infinity in a group   scale 0xFF, elements 0. torchao lets infinities saturate
 *   and encodes NaNs.
 *   scale 0x00                        elements are made with the scale as stored, 2^-127.
 *   torchao divides by 2^-126 (FLOOR), by 1 (RCEIL).
 *   RCEIL just above a power of two   the exponent is taken from the bits. torchao's logarithm
 *   in f32 rounds down to the power. */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include <sinter/sinter.h>

#include "check.h"
#include "mx_vectors.h"
#include "oracle.h"

enum { N_GROUPS = sizeof mx_inputs / sizeof *mx_inputs };

static const struct {
    const char *kind;
    sinter_data_type_t type;
    int bits;
    double max;
    const mx_row_t *rows;
} sets[] = {
    {"dynamic_mx", sinter_f8_e4m3, 8, 448, mx_f8_e4m3},
    {"dynamic_mx", sinter_f8_e5m2, 8, 57344, mx_f8_e5m2},
    {"dynamic_mx", sinter_f6_e3m2, 6, 28, mx_f6_e3m2},
    {"dynamic_mx", sinter_f6_e2m3, 6, 7.5, mx_f6_e2m3},
    {"dynamic_mx", sinter_f4_e2m1, 4, 6, mx_f4_e2m1},
    {"dynamic_mx_rceil", sinter_f8_e4m3, 8, 448, mx_rceil_f8_e4m3},
    {"dynamic_mx_rceil", sinter_f8_e5m2, 8, 57344, mx_rceil_f8_e5m2},
    {"dynamic_mx_rceil", sinter_f6_e3m2, 6, 28, mx_rceil_f6_e3m2},
    {"dynamic_mx_rceil", sinter_f6_e2m3, 6, 7.5, mx_rceil_f6_e2m3},
    {"dynamic_mx_rceil", sinter_f4_e2m1, 4, 6, mx_rceil_f4_e2m1},
};

/* ---- the library ----------------------------------------------------------------------------- */

static sinter_compiled_partition_t *compiled_quantise(const char *kind,
                                                      const sinter_logical_tensor_t *lt)
{
    sinter_graph_t *graph = NULL;
    sinter_op_t *op = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;

    CHECK_THAT(sinter_graph_create(&graph, NULL, sinter_cpu) == sinter_success);
    CHECK_THAT(sinter_op_create(&op, NULL, 1, sinter_op_dynamic_quantize, NULL) == sinter_success);
    CHECK_THAT(sinter_op_add_input(op, &lt[0]) == sinter_success);
    CHECK_THAT(sinter_op_add_output(op, &lt[1]) == sinter_success);
    CHECK_THAT(sinter_op_add_output(op, &lt[2]) == sinter_success);
    CHECK_THAT(sinter_op_set_attr_str(op, sinter_op_attr_quantization_kind, kind) ==
               sinter_success);
    CHECK_THAT(sinter_graph_add_op(graph, op) == sinter_success);
    CHECK_THAT(sinter_graph_finalize(graph) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    sinter_partition_destroy(&partition);
    sinter_op_destroy(&op);
    sinter_graph_destroy(&graph);
    return compiled;
}

static void quantise(const char *kind, sinter_data_type_t type, void *codes, uint8_t *scales)
{
    const sinter_dim_t dims[2] = {N_GROUPS, MX_GROUP}, scale_dims[2] = {N_GROUPS, 1};
    void *data[3] = {(void *)(uintptr_t)mx_inputs, codes, scales};
    sinter_logical_tensor_t lt[3];
    sinter_tensor_t *tensors[3];
    sinter_stream_t *stream = NULL;

    CHECK_THAT(sinter_logical_tensor_init(&lt[0], 0, sinter_f32, 2, dims,
                                          sinter_tensor_property_undef) == sinter_success);
    CHECK_THAT(sinter_logical_tensor_init(&lt[1], 1, type, 2, dims, sinter_tensor_property_undef) ==
               sinter_success);
    CHECK_THAT(sinter_logical_tensor_init(&lt[2], 2, sinter_e8m0, 2, scale_dims,
                                          sinter_tensor_property_undef) == sinter_success);
    sinter_compiled_partition_t *compiled = compiled_quantise(kind, lt);
    for (int i = 0; i < 3; i++) {
        CHECK_THAT(sinter_tensor_create(&tensors[i], NULL, &lt[i], data[i], SINTER_BYTES_TRUSTED) ==
                   sinter_success);
    }
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    CHECK_THAT(sinter_compiled_partition_execute(compiled, stream, 1,
                                                 (const sinter_tensor_t *const *)tensors, 2,
                                                 tensors + 1, NULL, 0) == sinter_success);
    sinter_stream_destroy(&stream);
    for (int i = 0; i < 3; i++) {
        sinter_tensor_destroy(&tensors[i]);
    }
    sinter_compiled_partition_destroy(&compiled);
}

/* ---- codes ----------------------------------------------------------------------------------- */

/* Bits are numbered from the lowest of the first byte on. */
static unsigned packed_code(const uint8_t *bytes, int bits, int i)
{
    unsigned code = 0;
    for (int b = 0; b < bits; b++) {
        const int at = i * bits + b;
        code |= (unsigned)(bytes[at / 8] >> at % 8 & 1) << b;
    }
    return code;
}

static unsigned recorded_code(const char *hex, int i)
{
    unsigned code = 0;
    sscanf(hex + 2 * i, "%2x", &code);
    return code;
}

typedef struct group {
    int set, index;
    const float *x;
    const uint8_t *codes;
    uint8_t scale;
} group_t;

static void same_codes(const group_t *g, const char *hex)
{
    for (int i = 0; i < MX_GROUP; i++) {
        const unsigned got = packed_code(g->codes, sets[g->set].bits, i),
                       want = recorded_code(hex, i);
        CHECK(got == want, "set %d, group %d, element %d, %a: code %02x, recorded %02x", g->set,
              g->index, i, (double)g->x[i], got, want);
    }
}

/* ---- the differences ------------------------------------------------------------------------- */

static void special_group(const group_t *g)
{
    CHECK(g->scale == 0xFF, "set %d, group %d: scale %02x of a NaN or an infinity", g->set,
          g->index, g->scale);
    for (int i = 0; i < MX_GROUP; i++) {
        CHECK(packed_code(g->codes, sets[g->set].bits, i) == 0,
              "set %d, group %d: element %d beside a NaN or an infinity", g->set, g->index, i);
    }
}

/* The next scale, because with the recorded one the largest element is beyond the type. */
static void next_scale(const group_t *g, uint8_t recorded)
{
    const double scale = ldexp(1, g->scale - 127);
    double amax = 0;
    for (int i = 0; i < MX_GROUP; i++) {
        uint8_t code[4] = {0};
        const unsigned got = packed_code(g->codes, sets[g->set].bits, i);
        amax = fmax(amax, fabs((double)g->x[i]));
        orc_encode(sets[g->set].type, code, 0, (double)g->x[i] / scale);
        CHECK(got == packed_code(code, sets[g->set].bits, 0),
              "set %d, group %d, element %d: code %02x", g->set, g->index, i, got);
    }
    CHECK(g->scale == recorded + 1, "set %d, group %d: scale %02x, recorded %02x", g->set, g->index,
          g->scale, recorded);
    CHECK((float)(amax / sets[g->set].max) > ldexpf(1, recorded - 127) &&
              amax <= sets[g->set].max * scale,
          "set %d, group %d: scale %02x of %a", g->set, g->index, g->scale, amax);
}

static int special(const float *x)
{
    for (int i = 0; i < MX_GROUP; i++) {
        if (!isfinite(x[i])) {
            return 1;
        }
    }
    return 0;
}

static void compare(const group_t *g, int counts[3])
{
    const mx_row_t *row = &sets[g->set].rows[g->index];

    if (special(g->x)) {
        counts[0]++;
        special_group(g);
    } else if (strcmp(sets[g->set].kind, "dynamic_mx_rceil") == 0 && g->scale != row->scale) {
        counts[2]++;
        next_scale(g, row->scale);
    } else {
        CHECK(g->scale == row->scale, "set %d, group %d: scale %02x, recorded %02x", g->set,
              g->index, g->scale, row->scale);
        counts[1] += row->doubled != NULL;
        same_codes(g, row->doubled ? row->doubled : row->codes);
    }
}

int main(void)
{
    static uint8_t codes[N_GROUPS * MX_GROUP], scales[N_GROUPS];
    static float x[N_GROUPS][MX_GROUP];
    int counts[3] = {0};

    memcpy(x, mx_inputs, sizeof x);
    for (int s = 0; s < (int)(sizeof sets / sizeof *sets); s++) {
        quantise(sets[s].kind, sets[s].type, codes, scales);
        for (int i = 0; i < N_GROUPS; i++) {
            compare(&(group_t){s, i, x[i], codes + i * MX_GROUP * sets[s].bits / 8, scales[i]},
                    counts);
        }
    }
    printf("%d groups of %d sets: %d with specials, %d of scale 0, %d just above a power of two\n",
           N_GROUPS, (int)(sizeof sets / sizeof *sets), counts[0], counts[1], counts[2]);
    return check_finish();
}
