/* Attention spelled with transposes, swapped operands and ops that nobody reads: one partition
 * each, run by the kernel that runs the plain form of the same size, right against the oracle, with
 * static and with dynamic numbers of keys. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e2e.h"
#include "spec.h"
#include "spec_run.h"

enum { NAME = 64, QUERIES = 5, KEYS = 7 }; /* dims of these sizes in all models */

/* The word after "kernel" of the attention step in a report; "" if there is none. */
static void attention_kernel(const sinter_compiled_partition_t *compiled, char *name)
{
    const char *report = "", *at;
    CHECK_THAT(sinter_compiled_partition_report(compiled, &report) == sinter_success);
    at = strstr(report, "attention_");
    snprintf(name, NAME, "%.*s",
             at != NULL ? (int)strspn(at, "abcdefghijklmnopqrstuvwxyz0123456789_") : 0,
             at != NULL ? at : "");
}

static void load(model_t *model, const char *name, int64_t queries, int64_t keys)
{
    char path[128];
    snprintf(path, sizeof(path), "patterns/%s.json", name);
    e2e_load(model, path);
    e2e_replace_dim(model, QUERIES, queries);
    e2e_replace_dim(
        model, KEYS,
        keys); /* last: it takes strides from tensors whose number of keys is not known */
}

/* Compiles for compile_keys (SINTER_UNKNOWN_DIM: dynamic), runs with `keys`. */
static void run(const char *name, int64_t queries, int64_t compile_keys, int64_t keys,
                sinter_fpmath_mode_t mode, char *kernel)
{
    model_t model;
    e2e_ports_t ports;
    sinter_stream_t *stream = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    const sinter_stream_desc_t desc = {.size = sizeof(desc), .threads = 2, .all_threads = 1};
    load(&model, name, queries, compile_keys);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    model_free(&model);
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, mode, 1) == sinter_success);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    if (compiled != NULL) {
        attention_kernel(compiled, kernel);
        load(&model, name, queries, keys);
        e2e_ports_make(&ports, &model, NULL, 1, 0);
        CHECK_THAT(e2e_execute(compiled, stream, &ports) == sinter_success);
        if (e2e_compare(&model, &ports, mode, 1) != 0) {
            CHECK_THAT(!"within the oracle's bounds");
            fprintf(stderr, "  %s, %lld queries, %lld keys, mode %d\n", name, (long long)queries,
                    (long long)keys, (int)mode);
        }
        e2e_ports_free(&ports);
        model_free(&model);
    }
    CHECK_THAT(sinter_compiled_partition_destroy(&compiled) == sinter_success);
    CHECK_THAT(sinter_partition_destroy(&partition) == sinter_success);
    CHECK_THAT(sinter_stream_destroy(&stream) == sinter_success);
}

static void same_kernel(const char *name, int64_t queries, int64_t compile_keys, int64_t keys,
                        sinter_fpmath_mode_t mode)
{
    char plain[NAME] = "", kernel[NAME] = "";
    run("sdpa", queries, compile_keys, keys, mode, plain);
    run(name, queries, compile_keys, keys, mode, kernel);
    CHECK_THAT(plain[0] != '\0');
    if (strcmp(plain, kernel) != 0) {
        CHECK_THAT(!"the kernel of the plain form");
        fprintf(stderr, "  %s, %lld queries, %lld keys, mode %d: \"%s\", not \"%s\"\n", name,
                (long long)queries, (long long)keys, (int)mode, kernel, plain);
    }
}

/* ---- ops on which no listed output depends --------------------------------------------------- */

/* The bytes of output 7 of a graph that must be one partition with one output. */
static void run_spec(const char *spec, float *result, size_t bytes)
{
    static float data[3][2 * 7 * 16];
    static const char *const inputs[] = {"1:f32:2x5x16", "2:f32:2x7x16", "3:f32:2x7x16"};
    const sinter_stream_desc_t desc = {.size = sizeof(desc), .threads = 1, .all_threads = 1};
    const sinter_logical_tensor_t out_lt = spec_tensor("7:f32:2x5x16");
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    sinter_tensor_t *in[3] = {NULL}, *out = NULL;
    size_t n = 0;
    CHECK_THAT(spec_graph(&graph, NULL, spec) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success && n == 1);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK_THAT(sinter_partition_get_output_num(partition, &n) == sinter_success && n == 1);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    for (int i = 0; i < 3; i++) {
        const sinter_logical_tensor_t lt = spec_tensor(inputs[i]);
        for (size_t k = 0; k < sizeof(data[i]) / sizeof(data[i][0]); k++) {
            data[i][k] = (float)((k * 7 + (size_t)i * 3) % 11) * 0.25f - 1.0f;
        }
        CHECK_THAT(sinter_tensor_create(&in[i], NULL, &lt, data[i], sizeof(data[i])) ==
                   sinter_success);
    }
    memset(result, 0xFF, bytes);
    CHECK_THAT(sinter_tensor_create(&out, NULL, &out_lt, result, bytes) == sinter_success);
    CHECK_THAT(sinter_compiled_partition_execute(compiled, stream, 3,
                                                 (const sinter_tensor_t *const *)in, 1, &out, NULL,
                                                 0) == sinter_success);
    for (int i = 0; i < 3; i++) {
        sinter_tensor_destroy(&in[i]);
    }
    sinter_tensor_destroy(&out);
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
}

#define QK "MatMul transpose_b=1 1:f32:2x5x16 2:f32:2x7x16 -> 4:f32:*; "
#define PV "MatMul 5:f32:* 3:f32:2x7x16 -> 7:f32:*"

static void test_dead_ops(void)
{
    static const char *const dead[] = {
        /* an index over the scores; the scores themselves; probabilities; an op that reads inputs
         * alone */
        QK "GenIndex axis=2 4:f32:* -> 8:s32:*; SoftMax axis=-1 4:f32:* -> 5:f32:*; " PV
           "; ports -> 7",
        QK "Abs 4:f32:* -> 8:f32:*; Exp 8:f32:* -> 9:f32:*; SoftMax axis=-1 4:f32:* -> 5:f32:*; " PV
           "; ports -> 7",
        QK "SoftMax axis=-1 4:f32:* -> 5:f32:*; StaticReshape shape=-1 special_zero=0 5:f32:* -> "
           "8:f32:*; " PV "; ports -> 7",
        QK "SoftMax axis=-1 4:f32:* -> 5:f32:*; MatMul transpose_b=1 1:f32:2x5x16 3:f32:2x7x16 -> "
           "8:f32:*; " PV "; ports -> 7",
        /* the last reader of the statistics */
        QK "SoftMax axis=-1 4:f32:* -> 5:f32:* 6:f32:*; Abs 6:f32:* -> 8:f32:*; " PV "; ports -> 7",
    };
    float want[2 * 5 * 16], got[2 * 5 * 16];
    run_spec(QK "SoftMax axis=-1 4:f32:* -> 5:f32:*; " PV, want, sizeof(want));
    for (size_t i = 0; i < sizeof(dead) / sizeof(dead[0]); i++) {
        run_spec(dead[i], got, sizeof(got));
        CHECK_THAT(memcmp(got, want, sizeof(want)) == 0);
    }
    /* Without a list they are outputs. */
    sinter_graph_t *graph = NULL;
    size_t n = 0;
    CHECK_THAT(spec_graph(&graph, NULL,
                          QK "Abs 4:f32:* -> 8:f32:*; SoftMax axis=-1 4:f32:* -> 5:f32:*; " PV) ==
               sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success && n == 4);
    sinter_graph_destroy(&graph);
}

/* A sink has all of the weight where there are no keys: results are zeros, and a chain over the
 * weights has no column to look at. */
static void test_no_keys(void)
{
    float q[3 * 8], none[1] = {0}, sink[3] = {1, 2, 3}, y[3 * 8];
    const spec_port_t ports[] = {{1, q}, {2, none}, {3, none}, {10, sink}, {9, y}, {0, NULL}};
    int zeros = 0;
    for (int i = 0; i < 3 * 8; i++) {
        q[i] = 1;
        y[i] = -1;
    }
    CHECK_THAT(spec_run("MatMul transpose_b=1 1:f32:3x8 2:f32:0x8 -> 4:f32:3x0;"
                        "SoftMax axis=-1 4:f32:3x0 10:f32:3x1 -> 5:f32:3x0;"
                        "Quantize scales=0.0078125 5:f32:3x0 -> 6:u8:3x0;"
                        "Dequantize scales=0.0078125 6:u8:3x0 -> 7:f32:3x0;"
                        "MatMul 7:f32:3x0 3:f32:0x8 -> 9:f32:3x8",
                        sinter_partition_policy_fusion, ports) == sinter_success);
    for (int i = 0; i < 3 * 8; i++) {
        zeros += y[i] == 0;
    }
    CHECK(zeros == 3 * 8, "%d zeros", zeros);
}

int main(void)
{
    static const char *const same_types[] = {"sdpa-jax", "sdpa-keys-queries", "sdpa-dead-ops",
                                             "sdpa-index-output"};
    static const char *const others[] = {"sdpa-transposed-scores", "sdpa-keys-queries-int4",
                                         "sdpa-transposed-causal"};
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_bf16,
                                                 sinter_fpmath_mode_any};
    for (size_t k = 0; k < sizeof(modes) / sizeof(modes[0]); k++) {
        for (size_t i = 0; i < sizeof(same_types) / sizeof(same_types[0]); i++) {
            same_kernel(same_types[i], QUERIES, KEYS, KEYS, modes[k]);
            same_kernel(same_types[i], 1, 64, 64, modes[k]);
            same_kernel(same_types[i], 40, 130, 130, modes[k]);
            same_kernel(same_types[i], 1, SINTER_UNKNOWN_DIM, 33, modes[k]);
            same_kernel(same_types[i], QUERIES, SINTER_UNKNOWN_DIM, 21, modes[k]);
        }
        for (size_t i = 0; i < sizeof(others) / sizeof(others[0]); i++) {
            char kernel[NAME] = "";
            run(others[i], QUERIES, KEYS, KEYS, modes[k], kernel);
            CHECK_THAT(kernel[0] != '\0');
        }
    }
    test_dead_ops();
    test_no_keys();
    return check_finish();
}
