/* One partition of each pattern, with dims that only execute knows: where a side input has more
 * rows than what it is added to, the steps of the partition must compute what single ops do, and
 * say that they are others. Where dims do not fit an op, the error is that of the op alone. */
#define _POSIX_C_SOURCE 200809L

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "capture.h"
#include "e2e.h"
#include "passive.h"
#include "spec.h"

/* Dims in a graph's text: R, the rows (or batches) of the data; S, those of a side input; J, those
 * that both broadcast to. */
typedef struct open_case {
    const char *pattern, *graph;
} open_case_t;

static const open_case_t cases[] = {
    {"matmul", "MatMul 0:f32:Rx24 1:f32:24x16 2:f32:16 -> 3:f32:Rx16;"
               "Add 3:f32:Rx16 4:f32:Sx16 -> 5:f32:Jx16; ReLU 5:f32:Jx16 -> 6:f32:Jx16"},
    {"matmul", "DynamicDequantize qtype=per_group 0:s4:16x64 1:f32:16x2 -> 2:f32:16x64;"
               "MatMul transpose_b=1 3:f32:Rx64 2:f32:16x64 -> 4:f32:Rx16;"
               "Tanh 4:f32:Rx16 -> 5:f32:Rx16; Multiply 6:f16:Sx16 5:f32:Rx16 -> 7:f32:Jx16;"
               "DynamicQuantize qtype=per_channel axis=0 quantization_kind=dynamic_symmetric "
               "7:f32:Jx16 -> 8:s8:Jx16 9:f32:J"},
    {"gated-mlp", "MatMul 0:f32:Rx24 1:f32:24x16 -> 2:f32:Rx16; HardSwish 2:f32:Rx16 -> 3:f32:Rx16;"
                  "MatMul 0:f32:Rx24 4:f32:24x16 -> 5:f32:Rx16;"
                  "Multiply 3:f32:Rx16 5:f32:Rx16 -> 6:f32:Rx16;"
                  "MatMul 6:f32:Rx16 7:f32:16x24 -> 8:f32:Rx24;"
                  "Add 8:f32:Rx24 9:f32:Sx24 -> 10:f32:Jx24"},
    {"softmax", "SoftMax axis=1 0:f32:Rx24 -> 1:f32:Rx24;"
                "Multiply 1:f32:Rx24 2:f32:Sx24 -> 3:f32:Jx24"},
    {"softmax", "LogSoftmax axis=0 0:f32:9xR -> 1:f32:9xR; Add 2:f32:9xS 1:f32:9xR -> 3:f32:9xJ"},
    {"norm", "Add 0:f32:Rx24 1:f32:Rx24 -> 2:f32:Rx24; RMSNorm 2:f32:Rx24 3:f32:24 -> 4:f32:Rx24;"
             "Multiply 4:f32:Rx24 5:f32:Sx24 -> 6:f32:Jx24"},
    {"norm", "LayerNorm keep_stats=0 0:f32:Rx24 1:f32:24 2:f32:24 -> 3:f32:Rx24;"
             "Subtract 4:f32:Sx1 3:f32:Rx24 -> 5:f32:Jx24"},
    {"rotary", "RotaryEmbedding 0:f32:Rx2x3x8 1:f32:7x4 2:f32:7x4 3:s32:Rx3 -> 4:f32:Rx2x3x8;"
               "Multiply 4:f32:Rx2x3x8 5:f32:Sx1x3x8 -> 6:f32:Jx2x3x8"},
    {"reduction", "ReduceMean axes=1 keep_dims=1 0:f32:Rx24 -> 1:f32:Rx1;"
                  "Add 1:f32:Rx1 2:f32:Sx1 -> 3:f32:Jx1; Exp 3:f32:Jx1 -> 4:f32:Jx1"},
    {"pooling", "MaxPool strides=1,1 kernel=2,2 pads_begin=0,0 pads_end=0,0 0:f32:Rx5x6x8 -> "
                "1:f32:Rx4x5x8; Add 1:f32:Rx4x5x8 2:f32:Sx1x5x8 -> 3:f32:Jx4x5x8"},
    {"convolution", "Convolution strides=1 pads_begin=0 pads_end=0 dilations=1 0:f32:Rx9x4 "
                    "1:f32:3x4x8 -> 2:f32:Rx7x8; Add 2:f32:Rx7x8 3:f32:Sx7x8 -> 4:f32:Jx7x8;"
                    "Sigmoid 4:f32:Jx7x8 -> 5:f32:Jx7x8"},
    {"eltwise", "ReLU 0:f32:Rx24 -> 1:f32:Rx24; Multiply 1:f32:Rx24 2:f32:Sx24 -> 3:f32:Jx24;"
                "Add 3:f32:Jx24 4:f32:Rx24 -> 5:f32:Jx24; ports 0,2,4 -> 1,5"},
    {"eltwise", "GenIndex axis=0 0:f32:Rx24 -> 1:s32:Rx24; GenIndex axis=0 2:f32:Sx24 -> "
                "3:s32:Sx24; GreaterEqual 1:s32:Rx24 3:s32:Sx24 -> 4:boolean:Jx24;"
                "Select 4:boolean:Jx24 0:f32:Rx24 2:f32:Sx24 -> 5:f32:Jx24"},
    {"sdpa", "MatMul transpose_b=1 0:f32:Rx2x3x8 1:f32:Rx2x9x8 -> 2:f32:Rx2x3x9;"
             "Add 2:f32:Rx2x3x9 3:f32:Sx1x3x9 -> 4:f32:Jx2x3x9; SoftMax axis=-1 4:f32:Jx2x3x9 -> "
             "5:f32:Jx2x3x9; MatMul 5:f32:Jx2x3x9 6:f32:Rx2x9x8 -> 7:f32:Jx2x3x8"},
    {"sdpa", "MatMul transpose_b=1 0:f32:2x2xRx8 1:f32:2x2x9x8 -> 2:f32:2x2xRx9;"
             "Add 2:f32:2x2xRx9 3:f32:Sx9 -> 4:f32:2x2xJx9; SoftMax axis=-1 4:f32:2x2xJx9 -> "
             "5:f32:2x2xJx9; MatMul 5:f32:2x2xJx9 6:f32:2x2x9x8 -> 7:f32:2x2xJx8"},
};

/* Rows of the data and of the side input. data < 0: both are unknown. */
typedef struct rows {
    int data, side;
} rows_t;

static sinter_graph_t *graph_of(const open_case_t *c, rows_t rows)
{
    char text[2048], *to = text;
    sinter_graph_t *graph = NULL;
    for (const char *from = c->graph; *from != '\0'; from++) {
        const bool dim = from > c->graph && (from[-1] == ':' || from[-1] == 'x');
        if (!dim || strchr("RSJ", *from) == NULL) {
            *to++ = *from;
        } else if (rows.data < 0) {
            *to++ = '?';
        } else {
            const int n = *from == 'R'            ? rows.data
                          : *from == 'S'          ? rows.side
                          : rows.data > rows.side ? rows.data
                                                  : rows.side;
            to += snprintf(to, (size_t)(text + sizeof text - to), "%d", n);
        }
    }
    *to = '\0';
    CHECK(spec_graph(&graph, NULL, text) == sinter_success, "%s: %s", text,
          sinter_last_error_message());
    return graph;
}

/* The model of a graph with known dims, for the oracle. */
static void load(const open_case_t *c, rows_t rows, model_t *model)
{
    char path[] = "open-dims-XXXXXX";
    gr_error_t err = {{0}, 0};
    sinter_graph_t *graph = graph_of(c, rows);
    const int file = mkstemp(path);
    CHECK(file >= 0 && sinter_graph_dump(graph, path) == sinter_success, "%s", path);
    memset(model, 0, sizeof *model);
    CHECK(!model_load_file(model, path, &err), "%s", err.text);
    close(file);
    remove(path);
    sinter_graph_destroy(&graph);
}

static sinter_compiled_partition_t *compiled_of(const open_case_t *c)
{
    sinter_graph_t *graph = graph_of(c, (rows_t){-1, -1});
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    const char *pattern = "";
    size_t n = 0;
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success);
    CHECK(n == 1, "%s: %zu partitions", c->graph, n);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK_THAT(sinter_partition_get_pattern(partition, &pattern) == sinter_success);
    CHECK(strcmp(pattern, c->pattern) == 0, "%s: pattern %s, not %s", c->graph, pattern,
          c->pattern);
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) == sinter_success,
          "%s: %s", c->graph, sinter_last_error_message());
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return compiled;
}

/* In scratch memory of exactly the size that the library asks for, and in its own. */
static void run(const open_case_t *c, const sinter_compiled_partition_t *compiled,
                sinter_stream_t *stream, rows_t rows, bool fallback)
{
    static model_t model;
    e2e_ports_t ports;
    capture_t capture;
    size_t bytes = 0;
    char line[4096];
    load(c, rows, &model);
    e2e_ports_make(&ports, &model, NULL, 1, 0);
    CHECK(sinter_compiled_partition_get_scratchpad_bytes(compiled, stream, ports.n_in,
                                                         (const sinter_tensor_t *const *)ports.in,
                                                         &bytes, NULL) == sinter_success,
          "%s: %s", c->graph, sinter_last_error_message());
    void *scratch = malloc(bytes);
    for (int own = 0; own < 2; own++) {
        CHECK_THAT(sinter_set_verbose("exec") == sinter_success);
        capture_begin(&capture);
        const sinter_status_t status = sinter_compiled_partition_execute(
            compiled, stream, ports.n_in, (const sinter_tensor_t *const *)ports.in, ports.n_out,
            ports.out, own ? NULL : scratch, own ? 0 : bytes);
        capture_end(&capture, line, sizeof line);
        CHECK_THAT(sinter_set_verbose("none") == sinter_success);
        CHECK(status == sinter_success, "%s: %d and %d rows: %s", c->graph, rows.data, rows.side,
              sinter_last_error_message());
        CHECK(e2e_compare(&model, &ports, sinter_fpmath_mode_strict, 0) == 0, "%s: %d and %d rows",
              c->graph, rows.data, rows.side);
        CHECK((strstr(line, "; fallback, because tensor ") != NULL) == fallback,
              "%s: %d and %d rows: %s", c->graph, rows.data, rows.side, line);
    }
    free(scratch);
    e2e_ports_free(&ports);
    model_free(&model);
}

static void test_patterns(sinter_stream_t *stream)
{
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const char *report = "";
        sinter_compiled_partition_t *compiled = compiled_of(&cases[i]);
        CHECK_THAT(sinter_compiled_partition_report(compiled, &report) == sinter_success);
        CHECK(strstr(report, "assumes of unknown dims that tensor ") != NULL &&
                  strstr(report, "\nfallback step 0: ") != NULL,
              "%s: %s", cases[i].graph, report);
        run(&cases[i], compiled, stream, (rows_t){5, 5}, false);
        run(&cases[i], compiled, stream, (rows_t){1, 5}, true);
        run(&cases[i], compiled, stream, (rows_t){1, 1}, false);
        run(&cases[i], compiled, stream, (rows_t){1, 3}, true);
        /* GenIndex of a side input with one row is no column of the data's index */
        run(&cases[i], compiled, stream, (rows_t){4, 1},
            strstr(cases[i].graph, "GenIndex") != NULL);
        sinter_compiled_partition_destroy(&compiled);
    }
}

/* Nothing is assumed where one tensor has the dims of another whatever they are. */
static void test_sure(void)
{
    static const open_case_t sure[] = {
        {"matmul", "MatMul 0:f32:Rx24 1:f32:24x16 -> 2:f32:Rx16; Sigmoid 2:f32:Rx16 -> 3:f32:Rx16;"
                   "Multiply 2:f32:Rx16 3:f32:Rx16 -> 4:f32:Rx16;"
                   "Add 4:f32:Rx16 5:f32:16 -> 6:f32:Rx16; Add 6:f32:Rx16 7:f32:R -> 8:f32:Rx16"},
        {"norm", "RMSNorm 2:f32:Rx24 3:f32:24 -> 4:f32:Rx24; TypeCast 4:f32:Rx24 -> 5:bf16:Rx24"},
    };
    for (size_t i = 0; i < sizeof sure / sizeof *sure; i++) {
        const char *report = "";
        sinter_compiled_partition_t *compiled = compiled_of(&sure[i]);
        CHECK_THAT(sinter_compiled_partition_report(compiled, &report) == sinter_success);
        CHECK(strstr(report, "assumes") == NULL, "%s: %s", sure[i].graph, report);
        sinter_compiled_partition_destroy(&compiled);
    }
}

/* y = x w + r in the memory of r, where x has one row and r has more. */
static void test_in_place(sinter_stream_t *stream)
{
    static const open_case_t sum = {"matmul", "MatMul 0:f32:Rx2 1:f32:2x3 -> 2:f32:Rx3;"
                                              "Add 2:f32:Rx3 3:f32:Sx3 -> 4:f32:Jx3"};
    const float w[6] = {1, 2, 3, 4, 5, 6}, x[2] = {10, 100};
    float r[6] = {1, 2, 3, 4, 5, 6};
    const sinter_dim_t dims[3][2] = {{1, 2}, {2, 3}, {2, 3}};
    const sinter_inplace_pair_t *pairs = NULL;
    sinter_compiled_partition_t *compiled = compiled_of(&sum);
    sinter_tensor_t *tensors[4] = {NULL};
    void *const data[4] = {(void *)(uintptr_t)x, (void *)(uintptr_t)w, r, r};
    const uint64_t ids[4] = {0, 1, 3, 4};
    size_t n = 0;
    CHECK_THAT(sinter_compiled_partition_get_inplace_ports(compiled, &n, &pairs) == sinter_success);
    CHECK_THAT(n == 1 && pairs[0].input_id == 3 && pairs[0].output_id == 4);
    for (int i = 0; i < 4; i++) {
        CHECK_THAT(sinter_compiled_partition_create_tensor(compiled, ids[i], 2, dims[i < 3 ? i : 2],
                                                           data[i], SINTER_BYTES_TRUSTED,
                                                           &tensors[i]) == sinter_success);
    }
    CHECK_THAT(sinter_compiled_partition_execute(compiled, stream, 3,
                                                 (const sinter_tensor_t *const *)tensors, 1,
                                                 &tensors[3], NULL, 0) == sinter_success);
    const float want[6] = {411, 522, 633, 414, 525, 636};
    for (int i = 0; i < 6; i++) {
        CHECK(r[i] == want[i], "%d: %g, not %g", i, (double)r[i], (double)want[i]);
    }
    for (int i = 0; i < 4; i++) {
        sinter_tensor_destroy(&tensors[i]);
    }
    sinter_compiled_partition_destroy(&compiled);
}

/* ---- open numbers of groups ------------------------------------------------------------------ */

/* The error of an execute of the first partition of a graph with this number for its unknown dims;
 * "" if it runs. */
static void error_of(const char *spec, sinter_partition_policy_t policy, int64_t groups, char *text,
                     size_t size)
{
    static unsigned char memory[8192];
    sinter_graph_t *graph = NULL;
    sinter_partition_t *parts[4] = {NULL};
    sinter_compiled_partition_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    sinter_tensor_t *in[4], *out;
    sinter_logical_tensor_t ports[4], result;
    size_t n_parts = 0, n_in = 0;
    CHECK(spec_graph(&graph, NULL, spec) == sinter_success, "%s", sinter_last_error_message());
    CHECK_THAT(sinter_graph_filter(graph, policy) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n_parts) == sinter_success);
    CHECK_THAT(sinter_graph_get_partitions(graph, n_parts, parts) == sinter_success);
    CHECK_THAT(sinter_partition_compile(parts[0], NULL, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    CHECK_THAT(sinter_partition_get_input_num(parts[0], &n_in) == sinter_success);
    CHECK_THAT(sinter_partition_get_inputs(parts[0], n_in, ports) == sinter_success);
    CHECK_THAT(sinter_partition_get_outputs(parts[0], 1, &result) == sinter_success);
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    for (size_t i = 0; i <= n_in; i++) {
        sinter_logical_tensor_t *lt = i < n_in ? &ports[i] : &result;
        for (int d = 0; d < lt->ndims; d++) {
            lt->dims[d] = lt->dims[d] == SINTER_UNKNOWN_DIM ? groups : lt->dims[d];
        }
        CHECK_THAT(sinter_compiled_partition_create_tensor(
                       compiled, lt->id, lt->ndims, lt->dims, memory, SINTER_BYTES_TRUSTED,
                       i < n_in ? &in[i] : &out) == sinter_success);
    }
    *text = '\0';
    static unsigned char output[16384];
    CHECK_THAT(sinter_tensor_set_data(out, output, SINTER_BYTES_TRUSTED) == sinter_success);
    if (sinter_compiled_partition_execute(compiled, stream, n_in,
                                          (const sinter_tensor_t *const *)in, 1, &out, NULL, 0)) {
        snprintf(text, size, "%s", sinter_last_error_message());
    }
    for (size_t i = 0; i < n_in; i++) {
        sinter_tensor_destroy(&in[i]);
    }
    sinter_tensor_destroy(&out);
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
    for (size_t i = 0; i < n_parts; i++) {
        sinter_partition_destroy(&parts[i]);
    }
    sinter_graph_destroy(&graph);
}

/* A product folds the dequantisation of its operand; an execute with another number of groups than
 * the op's attributes say gets the error that the op alone gives. */
static void test_groups(void)
{
    static const struct {
        const char *of, *graph;
    } graphs[] = {
        {"scales",
         "DynamicDequantize qtype=per_group group_shape=1,32 0:s8:16x64 1:f32:16x? -> 2:f32:16x64;"
         "MatMul transpose_b=1 3:f32:3x64 2:f32:16x64 -> 4:f32:3x16"},
        {"scales",
         "DynamicDequantize qtype=per_group axis=-1 groups=2 0:f4_e2m1:16x64 1:e8m0:16x? -> "
         "2:bf16:16x64; MatMul transpose_b=1 3:bf16:3x64 2:bf16:16x64 -> 4:f32:3x16"},
        {"scales",
         "DynamicDequantize qtype=per_group group_shape=32,1 0:s4:64x16 1:f16:?x16 -> 2:f32:64x16;"
         "MatMul 3:f32:3x64 2:f32:64x16 -> 4:f32:3x16"},
        {"zero points",
         "DynamicDequantize qtype=per_group group_shape=1,32 0:s8:16x64 1:f32:16x2 2:s8:16x? -> "
         "3:f32:16x64; MatMul transpose_b=1 4:f32:3x64 3:f32:16x64 -> 5:f32:3x16"},
        {"scales", "DynamicDequantize qtype=per_channel axis=0 0:s8:64x3 1:f32:? -> 2:f32:64x3;"
                   "MatMul transpose_a=1 2:f32:64x3 3:f32:64x16 -> 4:f32:3x16"},
        {"scales",
         "DynamicDequantize qtype=per_channel axis=3 0:s8:3x3x4x8 1:f32:? -> 2:f32:3x3x4x8;"
         "Convolution strides=1,1 pads_begin=0,0 pads_end=0,0 dilations=1,1 3:f32:1x5x5x4 "
         "2:f32:3x3x4x8 -> 4:f32:1x3x3x8"},
    };
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        int right = 0;
        for (int64_t groups = 1; groups <= 64; groups *= 2) {
            char alone[512], folded[512];
            error_of(graphs[i].graph, sinter_partition_policy_debug, groups, alone, sizeof alone);
            error_of(graphs[i].graph, sinter_partition_policy_fusion, groups, folded,
                     sizeof folded);
            CHECK(strcmp(alone, folded) == 0, "%s, %lld %s: \"%s\" alone, \"%s\" folded",
                  graphs[i].graph, (long long)groups, graphs[i].of, alone, folded);
            CHECK(*alone == '\0' || strstr(alone, graphs[i].of) != NULL, "%s", alone);
            right += *alone == '\0';
        }
        /* any number of zero points that divides the dim is right */
        CHECK(right > 0 && (right < 4 || strcmp(graphs[i].of, "zero points") == 0),
              "%s: %d numbers of groups are right", graphs[i].graph, right);
    }
}

int main(int argc, char **argv)
{
    sinter_stream_t *stream = NULL;
    (void)argc;
    wait_passively(argv);
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    test_patterns(stream);
    test_sure();
    test_in_place(stream);
    test_groups();
    sinter_stream_destroy(&stream);
    return check_finish();
}
