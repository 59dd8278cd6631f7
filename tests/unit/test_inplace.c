/* In-place pairs: which inputs and outputs of a partition may be one buffer, and that an execute in
 * one buffer gives the bits of an execute in two, for every kernel that reads a residual, with any
 * number of threads, with static and with dynamic dims. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "passive.h"
#include "spec.h"

enum { MOST_PORTS = 12 };

typedef struct inplace_case {
    const char *what, *graph;
    const char *pairs;  /* "input>output ..", in the order of outputs, then inputs */
    const char *kernel; /* begins a step of the report; NULL: any */
    sinter_fpmath_mode_t mode;
    sinter_cpu_isa_t least; /* that has the kernel */
} inplace_case_t;

#define STRICT sinter_fpmath_mode_strict
#define INT8 sinter_fpmath_mode_int8
#define BF16 sinter_fpmath_mode_bf16
#define ANY sinter_isa_generic
#define AVX2 sinter_isa_avx2

/* Codes of 4 bits along K and along N. */
#define BY_K(m)                                                                         \
    "DynamicDequantize qtype=per_group 1:s4:96x256 2:f16:96x8 -> 4:f32:96x256; MatMul " \
    "transpose_b=1 0:f32:" m "x256 4:f32:96x256 -> 5:f32:" m "x96; Add 5:f32:" m "x96 " \
    "6:f32:" m "x96 -> 7:f32:" m "x96"
#define BY_N(m)                                                                             \
    "DynamicDequantize qtype=per_group 1:s4:256x96 2:f16:8x96 -> 4:f32:256x96; MatMul "     \
    "0:f32:" m "x256 4:f32:256x96 -> 5:f32:" m "x96; Add 5:f32:" m "x96 6:f32:" m "x96 -> " \
    "7:f32:" m "x96"

static const inplace_case_t cases[] = {
    {"an elementwise op", "Add 0:f32:5x7 1:f32:5x7 -> 2:f32:5x7", "0>2 1>2", NULL, STRICT, ANY},
    {"dims that execute knows", "Add 0:f32:?x7 1:f32:?x7 -> 2:f32:?x7", "0>2 1>2", NULL, STRICT,
     ANY},
    {"one that is broadcast", "Add 0:f32:5x7 1:f32:1x7 -> 2:f32:5x7", "0>2", NULL, STRICT, ANY},
    {"one of another type", "Add 0:f16:5x7 1:f32:5x7 -> 2:f32:5x7", "1>2", NULL, STRICT, ANY},
    {"one that is transposed too",
     "StaticTranspose order=1,0 0:f32:6x6 -> 1:f32:6x6; Add 0:f32:6x6 1:f32:6x6 -> 2:f32:6x6", "",
     NULL, STRICT, ANY},
    {"two outputs, of which the first is not yet read",
     "ReLU 0:f32:5x7 -> 1:f32:5x7; Add 1:f32:5x7 2:f32:5x7 -> 3:f32:5x7; ports 0,2 -> 1,3",
     "0>1 2>1 0>3 2>3", NULL, STRICT, ANY},
    {"a residual behind few rows along K", BY_K("3"), "6>7", "matmul_rows_", STRICT, AVX2},
    {"the same in integers", BY_K("3"), "6>7", "matmul_rows_", INT8, AVX2},
    {"behind few rows along N", BY_N("2"), "6>7", "matmul_columns_", STRICT, AVX2},
    {"behind many rows in floats", BY_K("70"), "6>7", "matmul_panel_f32", STRICT, ANY},
    {"behind many rows in integers", BY_K("70"), "6>7", "matmul_blocks_int8", INT8, AVX2},
    {"behind any number of rows", BY_K("?"), "6>7", NULL, STRICT, ANY},
    {"behind any number of rows along N", BY_N("?"), "6>7", NULL, INT8, ANY},
    {"a residual of a batch",
     "MatMul 0:f32:2x3x32 1:f32:32x48 -> 2:f32:2x3x48; Add 2:f32:2x3x48 3:f32:2x3x48 -> "
     "4:f32:2x3x48",
     "3>4", "matmul_", STRICT, ANY},
    {"a residual that is an operand",
     "MatMul 0:f32:32x32 1:f32:32x32 -> 2:f32:32x32; Add 2:f32:32x32 0:f32:32x32 -> 3:f32:32x32",
     "", "matmul_", STRICT, ANY},
    {"a product without a residual", "MatMul 0:f32:32x32 1:f32:32x32 -> 2:f32:32x32", "", "matmul_",
     STRICT, ANY},
    {"the residual of a gated MLP",
     "MatMul 0:f32:3x64 1:f32:64x96 -> 2:f32:3x96; MatMul 0:f32:3x64 3:f32:64x96 -> 4:f32:3x96; "
     "Sigmoid 2:f32:3x96 -> 5:f32:3x96; Multiply 2:f32:3x96 5:f32:3x96 -> 6:f32:3x96; Multiply "
     "6:f32:3x96 4:f32:3x96 -> 7:f32:3x96; MatMul 7:f32:3x96 8:f32:96x64 -> 9:f32:3x64; Add "
     "9:f32:3x64 0:f32:3x64 -> 10:f32:3x64",
     "0>10", "matmul_", STRICT, ANY},
    {"a residual behind attention",
     "MatMul transpose_b=1 0:f32:2x9x32 1:f32:2x40x32 -> 2:f32:2x9x40; SoftMax axis=-1 "
     "2:f32:2x9x40 -> 3:f32:2x9x40; MatMul 3:f32:2x9x40 4:f32:2x40x32 -> 5:f32:2x9x32; Add "
     "5:f32:2x9x32 6:f32:2x9x32 -> 7:f32:2x9x32",
     "6>7", "attention_", STRICT, ANY},
    {"a residual behind attention that decodes",
     "MatMul transpose_b=1 0:f32:2x1x32 1:f32:2x?x32 -> 2:f32:2x1x?; SoftMax axis=-1 2:f32:2x1x? "
     "-> 3:f32:2x1x?; MatMul 3:f32:2x1x? 4:f32:2x?x32 -> 5:f32:2x1x32; Add 5:f32:2x1x32 "
     "6:f32:2x1x32 -> 7:f32:2x1x32",
     "6>7", "attention_", STRICT, ANY},
    {"softmax of rows", "SoftMax axis=-1 0:f32:9x700 -> 1:f32:9x700", "0>1", "softmax_", STRICT,
     ANY},
    {"softmax of long rows", "SoftMax axis=-1 0:f16:2x9000 -> 1:f16:2x9000", "0>1", "softmax_",
     STRICT, ANY},
    {"softmax of columns", "SoftMax axis=0 0:f32:9x700 -> 1:f32:9x700", "0>1", "softmax_", STRICT,
     ANY},
    {"softmax to another type", "SoftMax axis=-1 0:f16:9x70 -> 1:f32:9x70", "", "softmax_", STRICT,
     ANY},
    {"softmax, then a product with its input",
     "SoftMax axis=-1 0:f32:9x70 -> 1:f32:9x70; Multiply 1:f32:9x70 0:f32:9x70 -> 2:f32:9x70", "",
     NULL, STRICT, ANY},
    {"the input and the sum of a norm with a residual",
     "Add 0:f32:5x64 1:f32:5x64 -> 2:f32:5x64; RMSNorm 2:f32:5x64 3:f32:64 -> 4:f32:5x64; ports "
     "0,1,3 -> 2,4",
     "0>2 1>2 0>4 1>4", "norm_", STRICT, ANY},
    {"a norm whose sum is added again",
     "Add 0:f32:5x64 1:f32:5x64 -> 2:f32:5x64; RMSNorm 2:f32:5x64 3:f32:64 -> 4:f32:5x64; Add "
     "4:f32:5x64 0:f32:5x64 -> 5:f32:5x64; ports 0,1,3 -> 2,5",
     "1>2 1>5", "norm_", STRICT, ANY},
    {"a norm of long rows", "RMSNorm 0:f32:3x5000 1:f32:5000 -> 2:f32:3x5000", "0>2", "norm_",
     STRICT, ANY},
    {"a norm of long rows with a residual, to another type",
     "Add 0:f16:3x5000 1:f16:3x5000 -> 2:f16:3x5000; LayerNorm keep_stats=0 2:f16:3x5000 "
     "3:f32:5000 4:f32:5000 -> 5:f32:3x5000; ports 0,1,3,4 -> 2,5",
     "0>2 1>2", "norm_", STRICT, ANY},
    {"rotary embedding", "RotaryEmbedding 0:f32:1x2x5x32 1:f32:16 2:s32:1x5 -> 3:f32:1x2x5x32",
     "0>3", "rotary_", STRICT, ANY},
    {"rotary embeddings of rows, one after another",
     "RotaryEmbedding 0:f32:1x2x5x32 1:f32:16 2:s32:1x5 -> 3:f32:1x2x5x32; RotaryEmbedding "
     "3:f32:1x2x5x32 4:f32:16 5:s32:1x5 -> 6:f32:1x2x5x32",
     "0>6", "rotary_", STRICT, ANY},
    {"the same of any number of rows, whose first result is an output",
     "RotaryEmbedding 0:f32:1x2x?x32 1:f32:16 2:s32:1x? -> 3:f32:1x2x?x32; RotaryEmbedding "
     "3:f32:1x2x?x32 4:f32:16 5:s32:1x? -> 6:f32:1x2x?x32; ports 0,1,2,4,5 -> 3,6",
     "0>3 0>6", "rotary_", STRICT, ANY},
    {"an MLP, whose result is made of no element of its input alone",
     "MatMul 0:f32:32x32 1:f32:32x96 -> 2:f32:32x96; MatMul 0:f32:32x32 3:f32:32x96 -> "
     "4:f32:32x96; Sigmoid 2:f32:32x96 -> 5:f32:32x96; Multiply 2:f32:32x96 5:f32:32x96 -> "
     "6:f32:32x96; Multiply 6:f32:32x96 4:f32:32x96 -> 7:f32:32x96; MatMul 7:f32:32x96 "
     "8:f32:96x32 -> 9:f32:32x32",
     "", "matmul_", STRICT, ANY},
    {"rows of a cache", "ScatterRows axis=1 0:f32:2x9x16 1:s32:3 2:f32:2x3x16 -> 3:f32:2x9x16",
     "0>3", "scatter_", STRICT, ANY},
    {"a residual behind softmax",
     "SoftMax axis=-1 0:f32:9x70 -> 1:f32:9x70; Add 1:f32:9x70 2:f32:9x70 -> 3:f32:9x70", "0>3 2>3",
     "softmax_", STRICT, ANY},
};

/* ---- one case -------------------------------------------------------------------------------- */

typedef struct port {
    sinter_logical_tensor_t lt;
    unsigned char *data, *want;
    size_t bytes;
    sinter_tensor_t *tensor;
} port_t;

typedef struct run {
    sinter_compiled_partition_t *compiled;
    size_t n_in, n_out;
    port_t ports[MOST_PORTS]; /* inputs, then outputs */
} run_t;

static sinter_compiled_partition_t *compile(const inplace_case_t *c, sinter_partition_t **partition)
{
    sinter_graph_t *graph = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    size_t n = 0;
    CHECK(spec_graph(&graph, NULL, c->graph) == sinter_success, "%s", c->what);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success);
    CHECK(n == 1, "%s: %zu partitions", c->what, n);
    sinter_partition_t *list[8] = {NULL};
    CHECK_THAT(sinter_graph_get_partitions(graph, 8, list) == sinter_success);
    *partition = list[0];
    for (size_t i = 1; i < n; i++) {
        sinter_partition_destroy(&list[i]);
    }
    CHECK_THAT(sinter_partition_set_fpmath_mode(*partition, c->mode, 1) == sinter_success);
    CHECK(sinter_partition_compile(*partition, NULL, 0, NULL, 0, NULL, &compiled) == sinter_success,
          "%s", c->what);
    sinter_graph_destroy(&graph);
    return compiled;
}

/* Small floats of any width, any codes. */
static void fill(port_t *p)
{
    static uint32_t state = 1;
    for (size_t i = 0; i < p->bytes; i++) {
        state = state * 1664525u + 1013904223u;
        p->data[i] = (unsigned char)(state >> 24);
        if (p->lt.data_type == sinter_s32) {
            p->data[i] = (unsigned char)(i % 4 == 0 ? 2 * i / 4 : 0); /* slots */
        } else if (p->lt.data_type == sinter_f32 && i % 4 == 3) {
            p->data[i] = (unsigned char)(0x3C | (state >> 30 & 1) << 7);
        } else if (p->lt.data_type == sinter_f16 && i % 2 == 1) {
            p->data[i] = (unsigned char)(0x2C | (state >> 30 & 1) << 7);
        }
    }
}

static void open_port(run_t *r, port_t *p, sinter_dim_t unknown)
{
    for (int d = 0; d < p->lt.ndims; d++) {
        p->lt.dims[d] = p->lt.dims[d] == SINTER_UNKNOWN_DIM ? unknown : p->lt.dims[d];
    }
    CHECK_THAT(sinter_compiled_partition_create_tensor(r->compiled, p->lt.id, p->lt.ndims,
                                                       p->lt.dims, NULL, 0,
                                                       &p->tensor) == sinter_success);
    CHECK_THAT(sinter_tensor_get_logical_tensor(p->tensor, &p->lt) == sinter_success);
    CHECK_THAT(sinter_logical_tensor_get_bytes(&p->lt, &p->bytes) == sinter_success);
    p->data = malloc(p->bytes + 1);
    p->want = malloc(p->bytes + 1);
    fill(p);
}

static void open_run(run_t *r, const sinter_partition_t *partition, sinter_dim_t unknown)
{
    sinter_logical_tensor_t lts[MOST_PORTS];
    CHECK_THAT(sinter_partition_get_input_num(partition, &r->n_in) == sinter_success);
    CHECK_THAT(sinter_partition_get_output_num(partition, &r->n_out) == sinter_success);
    CHECK_THAT(r->n_in + r->n_out <= MOST_PORTS);
    CHECK_THAT(sinter_partition_get_inputs(partition, r->n_in, lts) == sinter_success);
    CHECK_THAT(sinter_partition_get_outputs(partition, r->n_out, lts + r->n_in) == sinter_success);
    for (size_t i = 0; i < r->n_in + r->n_out; i++) {
        r->ports[i] = (port_t){.lt = lts[i]};
        open_port(r, &r->ports[i], unknown);
    }
}

static void close_run(run_t *r)
{
    for (size_t i = 0; i < r->n_in + r->n_out; i++) {
        sinter_tensor_destroy(&r->ports[i].tensor);
        free(r->ports[i].data);
        free(r->ports[i].want);
    }
}

static sinter_status_t execute(run_t *r, sinter_stream_t *stream)
{
    const sinter_tensor_t *in[MOST_PORTS];
    sinter_tensor_t *out[MOST_PORTS];
    for (size_t i = 0; i < r->n_in; i++) {
        in[i] = r->ports[i].tensor;
    }
    for (size_t i = 0; i < r->n_out; i++) {
        out[i] = r->ports[r->n_in + i].tensor;
    }
    return sinter_compiled_partition_execute(r->compiled, stream, r->n_in, in, r->n_out, out, NULL,
                                             0);
}

static void give_all(run_t *r)
{
    for (size_t i = 0; i < r->n_in + r->n_out; i++) {
        CHECK_THAT(sinter_tensor_set_data(r->ports[i].tensor, r->ports[i].data,
                                          r->ports[i].bytes) == sinter_success);
    }
}

static port_t *port_of(run_t *r, uint64_t id)
{
    size_t i = 0;
    while (r->ports[i].lt.id != id) {
        i++;
    }
    return &r->ports[i];
}

/* Executes with the output in the input's buffer, and compares all outputs with those that an
 * execute in buffers of their own has made. */
static void run_pair(run_t *r, const inplace_case_t *c, const sinter_inplace_pair_t *pair,
                     sinter_stream_t *stream)
{
    port_t *in = port_of(r, pair->input_id), *out = port_of(r, pair->output_id);
    unsigned char *kept = malloc(in->bytes + 1);
    memcpy(kept, in->data, in->bytes);
    give_all(r);
    CHECK_THAT(sinter_tensor_set_data(out->tensor, in->data, in->bytes) == sinter_success);
    for (size_t i = r->n_in; i < r->n_in + r->n_out; i++) {
        memset(r->ports[i].data, 0xFF, r->ports[i].bytes);
    }
    CHECK(execute(r, stream) == sinter_success, "%s: %s", c->what, sinter_last_error_message());
    for (size_t i = r->n_in; i < r->n_in + r->n_out; i++) {
        const port_t *p = &r->ports[i];
        CHECK(memcmp(p == out ? in->data : p->data, p->want, p->bytes) == 0,
              "%s: other bits of tensor %llu with tensor %llu over tensor %llu", c->what,
              (unsigned long long)p->lt.id, (unsigned long long)pair->output_id,
              (unsigned long long)pair->input_id);
    }
    memcpy(in->data, kept, in->bytes);
    free(kept);
}

/* Every output over every input that is in no pair with it is refused, and nothing is written. */
static void run_others(run_t *r, const inplace_case_t *c, const char *pairs,
                       sinter_stream_t *stream)
{
    for (size_t i = 0; i < r->n_in; i++) {
        for (size_t o = r->n_in; o < r->n_in + r->n_out; o++) {
            char pair[64], *found;
            snprintf(pair, sizeof pair, "%llu>%llu", (unsigned long long)r->ports[i].lt.id,
                     (unsigned long long)r->ports[o].lt.id);
            found = strstr(pairs, pair);
            if (found != NULL || r->ports[i].bytes < r->ports[o].bytes) {
                continue;
            }
            give_all(r);
            CHECK_THAT(sinter_tensor_set_data(r->ports[o].tensor, r->ports[i].data,
                                              r->ports[i].bytes) == sinter_success);
            CHECK(execute(r, stream) == sinter_invalid_arguments &&
                      strstr(sinter_last_error_message(),
                             "sinter_compiled_partition_get_inplace_ports") != NULL,
                  "%s: %s", c->what, pair);
        }
    }
}

static void run_case(const inplace_case_t *c, int threads)
{
    static const sinter_dim_t unknown[] = {1, 3, 40};
    sinter_partition_t *partition = NULL;
    run_t r = {.compiled = compile(c, &partition)};
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    const sinter_inplace_pair_t *pairs = NULL;
    sinter_stream_t *stream = NULL;
    size_t n = 0, used = 0;
    char text[256] = "";
    const char *report = "";
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    CHECK_THAT(sinter_compiled_partition_get_inplace_ports(r.compiled, &n, &pairs) ==
               sinter_success);
    for (size_t i = 0; i < n; i++) {
        used += (size_t)snprintf(text + used, sizeof text - used, "%s%llu>%llu", i > 0 ? " " : "",
                                 (unsigned long long)pairs[i].input_id,
                                 (unsigned long long)pairs[i].output_id);
    }
    CHECK(strcmp(text, c->pairs) == 0, "%s: \"%s\", expected \"%s\"", c->what, text, c->pairs);
    CHECK_THAT(sinter_compiled_partition_report(r.compiled, &report) == sinter_success);
    CHECK(c->kernel == NULL || sinter_engine_get_isa(NULL) < c->least ||
              strstr(report, c->kernel) != NULL,
          "%s: %s", c->what, report);
    for (size_t u = 0; u < (strchr(c->graph, '?') != NULL ? 3 : 1); u++) {
        open_run(&r, partition, unknown[u]);
        give_all(&r);
        CHECK(execute(&r, stream) == sinter_success, "%s: %s", c->what,
              sinter_last_error_message());
        for (size_t i = r.n_in; i < r.n_in + r.n_out; i++) {
            memcpy(r.ports[i].want, r.ports[i].data, r.ports[i].bytes);
        }
        for (size_t i = 0; i < n; i++) {
            run_pair(&r, c, &pairs[i], stream);
        }
        run_others(&r, c, c->pairs, stream);
        close_run(&r);
    }
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&r.compiled);
    sinter_partition_destroy(&partition);
}

/* A pair with dynamic dims holds where both have the same dims and strides. */
static void test_conditions(void)
{
    float data[64] = {0}, other[64] = {0};
    const inplace_case_t c = {.what = "two dynamic inputs",
                              .graph = "Add 0:f32:?x4 1:f32:?x4 -> 2:f32:?x4"};
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = compile(&c, &partition);
    sinter_stream_t *stream = NULL;
    sinter_tensor_t *t[3] = {NULL};
    const sinter_dim_t one[2] = {1, 4}, four[2] = {4, 4}, loose[2] = {8, 1};
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    const sinter_dim_t *const dims[3] = {one, four, four};
    for (uint64_t i = 0; i < 3; i++) {
        CHECK_THAT(sinter_compiled_partition_create_tensor(compiled, i, 2, dims[i],
                                                           i == 1 ? other : data, sizeof data,
                                                           &t[i]) == sinter_success);
    }
    const sinter_tensor_t *const in[2] = {t[0], t[1]};
    CHECK_THAT(sinter_compiled_partition_execute(compiled, stream, 2, in, 1, &t[2], NULL, 0) ==
               sinter_invalid_arguments); /* a row that is added to all rows */
    CHECK(strstr(sinter_last_error_message(),
                 "output tensor 2 overlaps input tensor 0; it may share memory from the same "
                 "address on, and with the same dims and strides, with input tensor 0 or 1") !=
              NULL,
          "%s", sinter_last_error_message());
    CHECK_THAT(sinter_tensor_set_dims(t[0], 2, four, NULL) == sinter_success);
    CHECK_THAT(sinter_compiled_partition_execute(compiled, stream, 2, in, 1, &t[2], NULL, 0) ==
               sinter_success);
    CHECK_THAT(sinter_tensor_set_dims(t[0], 2, four, loose) == sinter_success);
    CHECK_THAT(sinter_compiled_partition_execute(compiled, stream, 2, in, 1, &t[2], NULL, 0) ==
               sinter_invalid_arguments);
    for (int i = 0; i < 3; i++) {
        sinter_tensor_destroy(&t[i]);
    }
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        run_case(&cases[i], 1);
        run_case(&cases[i], 3);
    }
    test_conditions();
    return check_finish();
}
