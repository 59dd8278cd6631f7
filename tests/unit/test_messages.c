/* What errors say: op id, tensor id and rule, whichever of finalize, compile and execute finds
 * them; and why kernels are refused. */
#include "check.h"
#include "spec.h"

/* ---- attention over int8 codes, in which each number of keys may differ ---------------------- */

/* Numbers of keys as text, "?" where they are not known yet. viewed: K and V are stored [1, T,
 * heads, 16]. */
typedef struct keys {
    const char *k, *k_scales, *v, *v_scales;
} keys_t;

enum { N_IN = 6 };
static const int in_ids[N_IN] = {1, 2, 3, 6, 9, 10};

static void tensor_text(int id, const keys_t *t, bool viewed, char *text, size_t size)
{
    const char *const n = id == 2 ? t->k : id == 3 ? t->k_scales : id == 9 ? t->v : t->v_scales;
    const bool codes = id == 2 || id == 9;
    if (id == 1 || id == 6) {
        snprintf(text, size, "%s", id == 1 ? "1:f32:1x2x5x16" : "6:f32:1");
    } else {
        snprintf(text, size, "%d:%s:1x%s%sx%s%s", id, codes ? "s8" : "f16", viewed ? "" : "2x", n,
                 viewed ? "2x" : "", codes ? "16" : "2");
    }
}

static void attention_text(const keys_t *t, bool viewed, char *spec, size_t size)
{
    char in[N_IN][96];
    for (int i = 0; i < N_IN; i++) {
        tensor_text(in_ids[i], t, viewed, in[i], sizeof(in[i]));
    }
    snprintf(spec, size,
             "#1 DynamicDequantize qtype=per_group group_shape=1,1,1,8 %s %s -> 4:f32:*;"
             "#5 DynamicDequantize qtype=per_group group_shape=1,1,1,8 %s %s -> 11:f32:*;%s"
             "#2 MatMul transpose_b=1 %s %d:f32:* -> 5:f32:*; #3 Multiply 5:f32:* %s -> 7:f32:*; "
             "#4 SoftMax axis=-1 7:f32:* -> 8:f32:*;"
             "#6 MatMul 8:f32:* %d:f32:* -> 12:f32:*",
             in[1], in[2], in[4], in[5],
             viewed ? "#7 StaticTranspose order=0,2,1,3 4:f32:* -> 13:f32:*; #8 StaticTranspose "
                      "order=0,2,1,3 11:f32:* -> 14:f32:*;"
                    : "",
             in[0], viewed ? 13 : 4, in[3], viewed ? 14 : 11);
}

typedef enum stage { FINALIZE, COMPILE, EXECUTE } stage_t;

static sinter_status_t execute(const sinter_compiled_partition_t *compiled,
                               const sinter_logical_tensor_t *lts)
{
    static float data[N_IN + 1][4096];
    const sinter_stream_desc_t desc = {.size = sizeof(desc), .threads = 1, .all_threads = 1};
    const sinter_logical_tensor_t result = spec_tensor("12:f32:1x2x5x16");
    sinter_tensor_t *in[N_IN] = {NULL}, *out = NULL;
    sinter_stream_t *stream = NULL;
    sinter_status_t status = sinter_stream_create(&stream, NULL, &desc);
    for (int i = 0; i < N_IN && status == sinter_success; i++) {
        status = sinter_tensor_create(&in[i], NULL, &lts[i], data[i], sizeof(data[i]));
    }
    status = status == sinter_success
                 ? sinter_tensor_create(&out, NULL, &result, data[N_IN], sizeof(data[N_IN]))
                 : status;
    if (status == sinter_success) {
        status = sinter_compiled_partition_execute(
            compiled, stream, N_IN, (const sinter_tensor_t *const *)in, 1, &out, NULL, 0);
    }
    for (int i = 0; i < N_IN; i++) {
        sinter_tensor_destroy(&in[i]);
    }
    sinter_tensor_destroy(&out);
    sinter_stream_destroy(&stream);
    return status;
}

/* The status of the first stage that knows the numbers of keys; the stages before it succeed. */
static sinter_status_t tell(stage_t stage, const keys_t *t, bool viewed)
{
    static const keys_t unknown = {"?", "?", "?", "?"};
    char spec[2048], text[96];
    sinter_logical_tensor_t lts[N_IN];
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    size_t n = 0;
    for (int i = 0; i < N_IN; i++) {
        tensor_text(in_ids[i], t, viewed, text, sizeof(text));
        lts[i] = spec_tensor(text);
    }
    attention_text(stage == FINALIZE ? t : &unknown, viewed, spec, sizeof(spec));
    sinter_status_t status = spec_graph(&graph, NULL, spec);
    CHECK(status == sinter_success || stage == FINALIZE, "building: %s",
          sinter_last_error_message());
    if (status == sinter_success) {
        sinter_graph_filter(graph, sinter_partition_policy_fusion);
        sinter_graph_get_partition_num(graph, &n);
        CHECK(n == 1, "%zu partitions", n);
        sinter_graph_get_partitions(graph, 1, &partition);
        status = sinter_partition_compile(partition, NULL, stage == COMPILE ? N_IN : 0,
                                          stage == COMPILE ? lts : NULL, 0, NULL, &compiled);
        CHECK(status == sinter_success || stage == COMPILE, "compiling: %s",
              sinter_last_error_message());
    }
    if (compiled != NULL) {
        status = execute(compiled, lts);
    }
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return status;
}

/* parts: what the message must have; NULL-terminated. */
static void expect_at(stage_t stage, bool viewed, const keys_t *t, const char *const *parts,
                      int line)
{
    static const char *const stages[] = {"finalize", "compile", "execute"};
    const sinter_status_t status = tell(stage, t, viewed);
    const char *message = sinter_last_error_message();
    check_at(status == sinter_invalid_shape, line, "%s%s: status %s (%s)", stages[stage],
             viewed ? ", viewed" : "", sinter_status_name(status), message);
    for (int i = 0; parts[i] != NULL; i++) {
        check_at(strstr(message, parts[i]) != NULL, line, "%s%s: \"%s\" lacks \"%s\"",
                 stages[stage], viewed ? ", viewed" : "", message, parts[i]);
    }
}

static void expect(keys_t t, const char *const *parts, const char *const *parts_viewed, int line)
{
    for (int stage = FINALIZE; stage <= EXECUTE; stage++) {
        expect_at((stage_t)stage, false, &t, parts, line);
        expect_at((stage_t)stage, true, &t, parts_viewed, line);
    }
}
#define PARTS(...)        \
    (const char *const[]) \
    {                     \
        __VA_ARGS__, NULL \
    }

static void test_numbers_of_keys(void)
{
    const keys_t good = {"6", "6", "6", "6"};
    for (int stage = FINALIZE; stage <= EXECUTE; stage++) {
        CHECK(tell((stage_t)stage, &good, false) == sinter_success, "%s",
              sinter_last_error_message());
        CHECK(tell((stage_t)stage, &good, true) == sinter_success, "%s",
              sinter_last_error_message());
    }
    /* Scales of V for more keys, for fewer, and for fewer that divide V's. */
    expect((keys_t){"5", "5", "5", "6"},
           PARTS("op 5 (DynamicDequantize)", "scales, tensor 10, have 6 values along dimension 2",
                 "5 elements"),
           PARTS("op 5 (DynamicDequantize)", "scales, tensor 10, have 6 values along dimension 1",
                 "5 elements"),
           __LINE__);
    expect((keys_t){"6", "6", "6", "5"},
           PARTS("op 5 (DynamicDequantize)", "scales, tensor 10, have 5 values along dimension 2",
                 "6 elements"),
           PARTS("op 5 (DynamicDequantize)", "scales, tensor 10, have 5 values along dimension 1",
                 "6 elements"),
           __LINE__);
    expect((keys_t){"6", "6", "6", "3"},
           PARTS("op 5 (DynamicDequantize)", "scales, tensor 10, have 3 values along dimension 2",
                 "group_shape makes it 6"),
           PARTS("op 5 (DynamicDequantize)", "scales, tensor 10, have 3 values along dimension 1",
                 "group_shape makes it 6"),
           __LINE__);
    expect((keys_t){"5", "6", "5", "5"},
           PARTS("op 1 (DynamicDequantize)", "scales, tensor 3, have 6 values along dimension 2"),
           PARTS("op 1 (DynamicDequantize)", "scales, tensor 3, have 6 values along dimension 1"),
           __LINE__);
    /* K and V of different lengths: the message is about the second matmul and tensors that the
     * caller knows. */
    static const char *const lengths[][2] = {{"6", "5"}, {"5", "6"}};
    for (int i = 0; i < 2; i++) {
        const char *k = lengths[i][0], *v = lengths[i][1];
        for (int stage = FINALIZE; stage <= EXECUTE; stage++) {
            for (int viewed = 0; viewed < 2; viewed++) {
                char rule[96];
                /* A kernel reads the codes, so execute names them. */
                const int tensor = stage == EXECUTE ? 9 : viewed ? 14 : 11;
                snprintf(rule, sizeof(rule), "tensor 8 reduces over %s elements, tensor %d over %s",
                         k, tensor, v);
                expect_at((stage_t)stage, viewed != 0, &(keys_t){k, k, v, v},
                          PARTS("op 6 (MatMul)", rule), __LINE__);
            }
        }
    }
}

/* A dequantisation that no matmul takes over, with this many scales for 6 rows of codes. */
static sinter_status_t dequantise(int64_t rows_of_scales)
{
    static float data[3][6 * 16];
    const sinter_stream_desc_t desc = {.size = sizeof(desc), .threads = 1, .all_threads = 1};
    sinter_logical_tensor_t lts[] = {spec_tensor("1:s8:6x16"), spec_tensor("2:f16:6x2"),
                                     spec_tensor("3:f32:6x16")};
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    sinter_tensor_t *t[3] = {NULL};
    lts[1].dims[0] = rows_of_scales;
    CHECK(spec_graph(&graph, NULL,
                     "#4 DynamicDequantize qtype=per_group group_shape=1,8 1:s8:?x16 2:f16:?x2 -> "
                     "3:f32:*") == sinter_success,
          "%s", sinter_last_error_message());
    sinter_graph_filter(graph, sinter_partition_policy_fusion);
    sinter_graph_get_partitions(graph, 1, &partition);
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) == sinter_success,
          "%s", sinter_last_error_message());
    sinter_stream_create(&stream, NULL, &desc);
    for (int i = 0; i < 3; i++) {
        sinter_tensor_create(&t[i], NULL, &lts[i], data[i], sizeof(data[i]));
    }
    const sinter_status_t status = sinter_compiled_partition_execute(
        compiled, stream, 2, (const sinter_tensor_t *const *)t, 1, &t[2], NULL, 0);
    for (int i = 0; i < 3; i++) {
        sinter_tensor_destroy(&t[i]);
    }
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return status;
}

static void test_dequantise(void)
{
    CHECK(dequantise(6) == sinter_success, "%s", sinter_last_error_message());
    for (int rows = 3; rows <= 5; rows++) {
        CHECK(dequantise(rows) == sinter_invalid_shape, "%d rows of scales", rows);
        CHECK(strstr(sinter_last_error_message(),
                     "op 4 (DynamicDequantize): scales, tensor 2, have") != NULL,
              "%s", sinter_last_error_message());
    }
}

/* ---- shared memory --------------------------------------------------------------------------- */

static float buffers[4][16];

/* Tensor 3 = f(tensor 1, tensor 2), all of 4 elements, with the output at this address. */
static sinter_status_t run_over(const char *spec, float *output)
{
    const sinter_stream_desc_t desc = {.size = sizeof(desc), .threads = 1, .all_threads = 1};
    const sinter_logical_tensor_t lts[3] = {spec_tensor("1:f32:2x2"), spec_tensor("2:f32:2x2"),
                                            spec_tensor("3:f32:2x2")};
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    sinter_tensor_t *in[2] = {NULL}, *out = NULL;
    CHECK(spec_graph(&graph, NULL, spec) == sinter_success, "%s", sinter_last_error_message());
    CHECK(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success, "%s",
          sinter_last_error_message());
    CHECK(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success, "%s",
          sinter_last_error_message());
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) == sinter_success,
          "%s", sinter_last_error_message());
    sinter_stream_create(&stream, NULL, &desc);
    sinter_tensor_create(&in[0], NULL, &lts[0], buffers[0], sizeof(buffers[0]));
    sinter_tensor_create(&in[1], NULL, &lts[1], buffers[1], sizeof(buffers[1]));
    sinter_tensor_create(&out, NULL, &lts[2], output, 4 * sizeof(float));
    const sinter_status_t status = sinter_compiled_partition_execute(
        compiled, stream, 2, (const sinter_tensor_t *const *)in, 1, &out, NULL, 0);
    for (int i = 0; i < 2; i++) {
        sinter_tensor_destroy(&in[i]);
    }
    sinter_tensor_destroy(&out);
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return status;
}

static void test_overlap(void)
{
    const char *message = NULL;
    CHECK(run_over("MatMul 1:f32:2x2 2:f32:2x2 -> 3:f32:2x2", buffers[0]) ==
              sinter_invalid_arguments,
          "an output over an operand");
    message = sinter_last_error_message();
    CHECK(strstr(message,
                 "output tensor 3 overlaps input tensor 1; it may share memory with no input") !=
              NULL,
          "%s", message);
    CHECK(strstr(message, "sinter_compiled_partition_get_inplace_ports") != NULL, "%s", message);
    const char *add = "Add 1:f32:2x2 2:f32:2x2 -> 3:f32:2x2";
    CHECK(run_over(add, buffers[0]) == sinter_success &&
              run_over(add, buffers[1]) == sinter_success,
          "%s", sinter_last_error_message());
    CHECK(run_over(add, buffers[0] + 1) == sinter_invalid_arguments,
          "an output one element behind its input");
    message = sinter_last_error_message();
    CHECK(strstr(message, "output tensor 3 overlaps input tensor 1; it may share memory from the "
                          "same address on, and with the same dims and strides, with input "
                          "tensor 1 or 2") != NULL,
          "%s", message);
    CHECK(strstr(message, "sinter_compiled_partition_get_inplace_ports") != NULL, "%s", message);
}

/* ---- kernels refused ------------------------------------------------------------------------- */

/* The report of attention over f32 with these dims of Q and of K and V, as text; valid until
 * *compiled is destroyed. */
static const char *report_of(const char *q, const char *kv, sinter_compiled_partition_t **compiled)
{
    char spec[512];
    const char *report = "";
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    snprintf(spec, sizeof(spec),
             "MatMul transpose_b=1 1:f32:%s 2:f32:%s -> 3:f32:*; SoftMax axis=-1 3:f32:* -> "
             "4:f32:*; MatMul 4:f32:* 5:f32:%s -> 6:f32:*",
             q, kv, kv);
    CHECK(spec_graph(&graph, NULL, spec) == sinter_success, "%s", sinter_last_error_message());
    CHECK(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success, "%s",
          sinter_last_error_message());
    CHECK(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success, "%s",
          sinter_last_error_message());
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, compiled) == sinter_success,
          "%s", sinter_last_error_message());
    if (*compiled != NULL) {
        sinter_compiled_partition_report(*compiled, &report);
    }
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return report;
}

/* text: what the report says about the kernels. decodes: a kernel for decoding is the first
 * choice. */
static void expect_report(const char *q, const char *kv, bool decodes, const char *text,
                          const char *not_said)
{
    sinter_compiled_partition_t *compiled = NULL;
    const char *report = report_of(q, kv, &compiled);
    CHECK((strstr(report, "step 0: attention_decode") != NULL) == decodes, "%s over %s: %s", q, kv,
          report);
    CHECK(strstr(report, text) != NULL, "%s over %s: \"%s\" lacks \"%s\"", q, kv, report, text);
    CHECK(strstr(report, not_said) == NULL, "%s over %s: \"%s\" has \"%s\"", q, kv, report,
          not_said);
    sinter_compiled_partition_destroy(&compiled);
}

static void test_refusals(void)
{
    const char *rows = "refused: needs 1 to 8 query rows";
    const char *later = " (1 to 8 query rows for each K and V, 16 tokens or more), else "
                        "attention_flash_f32_";
    sinter_compiled_partition_t *compiled = NULL;
    const bool there =
        strstr(report_of("2x2x1x64", "2x2x64x64", &compiled), "step 0: attention_decode") != NULL;
    sinter_compiled_partition_destroy(&compiled);
    if (there) { /* from AVX2 on */
        expect_report("?x2x1x64", "?x2x64x64", true, later, rows);
        expect_report("2x2x1x64", "2x?x64x64", true, later, rows);
        expect_report("2x2x?x64", "2x2x64x64", true, later, rows);
        expect_report("2x2x1x64", "2x2x?x64", true, later, rows);
        expect_report("2x2x1x64", "2x2x64x64", true, "1 query row,", "chosen at execute");
        expect_report("2x2x9x64", "2x2x64x64", false, rows, "chosen at execute");
        expect_report("?x2x9x64", "?x2x64x64", false, rows, "chosen at execute");
    }
}

/* ---- tensors without a number of dims -------------------------------------------------------- */

/* Compiles each partition of a graph whose tensor `open` has none. */
static void expect_rank(const char *spec, int open)
{
    char want[128];
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partitions[4] = {NULL};
    size_t n = 0, failed = 0;
    snprintf(want, sizeof(want), "): tensor %d: its number of dims must be known to compile", open);
    CHECK(spec_graph(&graph, NULL, spec) == sinter_success, "%s", spec);
    sinter_graph_filter(graph, sinter_partition_policy_fusion);
    sinter_graph_get_partition_num(graph, &n);
    sinter_graph_get_partitions(graph, n < 4 ? n : 4, partitions);
    for (size_t i = 0; i < n && i < 4; i++) {
        sinter_compiled_partition_t *compiled = NULL;
        const sinter_status_t status =
            sinter_partition_compile(partitions[i], NULL, 0, NULL, 0, NULL, &compiled);
        failed +=
            status == sinter_unimplemented && strstr(sinter_last_error_message(), want) != NULL;
        sinter_compiled_partition_destroy(&compiled);
        sinter_partition_destroy(&partitions[i]);
    }
    CHECK(failed > 0, "%s: \"%s\", expected \"%s\"", spec, sinter_last_error_message(), want);
    sinter_graph_destroy(&graph);
}

/* Where compile gets it, the product is right. */
static void test_rank_at_compile(void)
{
    sinter_logical_tensor_t ports[3] = {spec_tensor("1:f32:2x3"), spec_tensor("2:f32:3"),
                                        spec_tensor("3:f32:2")};
    float data[3][6] = {{1, 2, 3, 4, 5, 6}, {1, 10, 100}, {0}};
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    sinter_tensor_t *tensors[3] = {NULL};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(spec_graph(&graph, NULL, "MatMul 1:f32:* 2:f32:3 -> 3:f32:*") == sinter_success);
    sinter_graph_filter(graph, sinter_partition_policy_fusion);
    sinter_graph_get_partitions(graph, 1, &partition);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 2, ports, 0, NULL, &compiled) ==
               sinter_success);
    for (int i = 0; i < 3; i++) {
        CHECK_THAT(sinter_tensor_create(&tensors[i], NULL, &ports[i], data[i], sizeof(data[i])) ==
                   sinter_success);
    }
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    CHECK_THAT(sinter_compiled_partition_execute(compiled, stream, 2,
                                                 (const sinter_tensor_t *const *)tensors, 1,
                                                 &tensors[2], NULL, 0) == sinter_success &&
               data[2][0] == 321 && data[2][1] == 654);
    for (int i = 0; i < 3; i++) {
        sinter_tensor_destroy(&tensors[i]);
    }
    sinter_stream_destroy(&stream);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
}

static void test_ranks(void)
{
    expect_rank("MatMul 1:f32:* 2:f32:8 -> 3:f32:*", 1);
    expect_rank("MatMul 1:f32:8 2:f32:* -> 3:f32:*", 2);
    expect_rank("MatMul 1:f32:* 2:f32:* -> 3:f32:*", 1);
    expect_rank("MatMul 1:f32:2x8 2:f32:8x3 -> 3:f32:2x3; Add 3:f32:2x3 4:f32:* -> 5:f32:*", 4);
    expect_rank("MatMul transpose_b=1 1:f32:* 2:f32:2x7x16 -> 3:f32:*; SoftMax axis=-1 3:f32:* -> "
                "4:f32:*; MatMul 4:f32:* 5:f32:2x7x16 -> 6:f32:*",
                1);
    expect_rank("MatMul transpose_b=1 1:f32:2x7x16 2:f32:2x5x16 -> 3:f32:*; SoftMax axis=1 3:f32:* "
                "-> 4:f32:*; MatMul transpose_a=1 5:f32:* 4:f32:* -> 6:f32:*",
                5);
    expect_rank("DynamicDequantize qtype=per_group group_shape=1,8 1:s8:* 2:f32:4x2 -> 3:f32:*; "
                "MatMul transpose_b=1 4:f32:3x16 3:f32:* -> 5:f32:*",
                1);
    expect_rank("RMSNorm 1:f32:* 2:f32:8 -> 3:f32:*; MatMul 3:f32:* 4:f32:8x8 -> 5:f32:*", 1);
    expect_rank("StaticTranspose order=1,0 1:f32:* -> 2:f32:*; ReLU 2:f32:* -> 3:f32:*", 1);
    expect_rank("ReduceSum axes=-1 1:f32:* -> 2:f32:*", 1);
    expect_rank("Gather 1:f32:5x8 2:s32:* -> 3:f32:*", 2);
    expect_rank("Concat axis=0 1:f32:5x8 2:f32:* -> 3:f32:*", 2);
    expect_rank("RotaryEmbedding 1:f32:* 2:f32:4 3:s32:1x5 -> 4:f32:*", 1);
    test_rank_at_compile();
}

int main(void)
{
    test_numbers_of_keys();
    test_dequantise();
    test_overlap();
    test_refusals();
    test_ranks();
    return check_finish();
}
