/* Compiling and executing through the API: dynamic dims, fpmath modes, threads, scratch, in-place
 * ports, dumps, the line that is printed for each execute, and every wrong way to call execute. */
#define _DEFAULT_SOURCE /* P_tmpdir */
#include <math.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/features.h"

#include "capture.h"
#include "e2e.h"

static const char *const ATTENTION = "llama3-8b-decode-int4.json";

static sinter_stream_t *stream_of(int threads)
{
    sinter_stream_t *stream = NULL;
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    return stream;
}

static sinter_compiled_partition_t *compile(sinter_partition_t *partition)
{
    sinter_compiled_partition_t *compiled = NULL;
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    if (!compiled) {
        exit(check_finish());
    }
    return compiled;
}

/* One compile with the KV length unknown, then a token more at each execute. */
static void test_dynamic_length(void)
{
    model_t model;
    e2e_load(&model, ATTENTION);
    e2e_replace_dim(&model, 4096, SINTER_UNKNOWN_DIM);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, sinter_fpmath_mode_strict, 0) ==
               sinter_success);
    sinter_compiled_partition_t *compiled = compile(partition);
    sinter_stream_t *stream = stream_of(2);
    model_free(&model);
    for (int64_t t = 1; t <= 100; t++) {
        e2e_ports_t ports;
        e2e_load(&model, ATTENTION);
        e2e_replace_dim(&model, 4096, t);
        e2e_ports_make(&ports, &model, NULL, (uint64_t)t, 0);
        sinter_logical_tensor_t inferred;
        CHECK_THAT(sinter_compiled_partition_infer_outputs(compiled, ports.n_in,
                                                           (const sinter_tensor_t *const *)ports.in,
                                                           1, &inferred) == sinter_success);
        CHECK_THAT(inferred.ndims == 5 && inferred.dims[1] == 8 && inferred.dims[4] == 128);
        CHECK_THAT(e2e_execute(compiled, stream, &ports) == sinter_success);
        CHECK_THAT(e2e_compare(&model, &ports, sinter_fpmath_mode_strict, 0) == 0);
        e2e_ports_free(&ports);
        model_free(&model);
    }
    CHECK_THAT(sinter_compiled_partition_destroy(&compiled) == sinter_success);
    CHECK_THAT(sinter_partition_destroy(&partition) == sinter_success);
    CHECK_THAT(sinter_stream_destroy(&stream) == sinter_success);
}

static int says(const sinter_compiled_partition_t *compiled, const char *word)
{
    const char *report = "";
    return sinter_compiled_partition_report(compiled, &report) == sinter_success &&
           strstr(report, word) != NULL;
}

/* The graph says strict, the partition bf16 and strict in turn: each compiled partition keeps
 * its own. */
static void test_modes(void)
{
    model_t model;
    e2e_ports_t ports, again;
    e2e_load(&model, ATTENTION);
    e2e_replace_dim(&model, 4096, 203);
    model.mode = sinter_fpmath_mode_tf32;
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    sinter_fpmath_mode_t mode;
    int apply;
    CHECK_THAT(sinter_partition_get_fpmath_mode(partition, &mode, &apply) == sinter_success &&
               mode == sinter_fpmath_mode_tf32);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, sinter_fpmath_mode_strict, 0) ==
               sinter_success);
    sinter_compiled_partition_t *strict = compile(partition);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, sinter_fpmath_mode_bf16, 1) ==
               sinter_success);
    sinter_compiled_partition_t *bf16 = compile(partition);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, (sinter_fpmath_mode_t)99, 1) ==
               sinter_invalid_arguments);
    CHECK_THAT(says(strict, "fpmath strict") && !says(strict, "fpmath bf16"));
    CHECK_THAT(says(bf16, "fpmath bf16 (applied to int)"));
    CHECK_THAT(sinter_compiled_partition_get_fpmath_mode(strict, &mode, &apply) == sinter_success &&
               mode == sinter_fpmath_mode_strict && !apply);
    CHECK_THAT(sinter_compiled_partition_get_fpmath_mode(bf16, &mode, &apply) == sinter_success &&
               mode == sinter_fpmath_mode_bf16 && apply);
    sinter_stream_t *stream = stream_of(1);
    e2e_ports_make(&ports, &model, NULL, 7, 0);
    e2e_ports_make(&again, &model, NULL, 7, 0);
    CHECK_THAT(e2e_execute(strict, stream, &ports) == sinter_success);
    CHECK_THAT(e2e_execute(bf16, stream, &again) == sinter_success);
    CHECK_THAT(e2e_compare(&model, &ports, sinter_fpmath_mode_strict, 0) == 0);
    CHECK_THAT(e2e_compare(&model, &again, sinter_fpmath_mode_bf16, 1) == 0);
    size_t bytes;
    CHECK_THAT(sinter_logical_tensor_get_bytes(&ports.out_lt[0], &bytes) == sinter_success);
    /* Where the report says that the kernel computes in bf16 or in integers, the bits must
     * differ; elsewhere they must not. */
    const int differs =
        says(bf16, "step 0: attention_flash_bf16") || says(bf16, "by 16-bit integers");
    CHECK_THAT((memcmp(ports.out_data[0], again.out_data[0], bytes) != 0) == differs);
    CHECK_THAT(!says(strict, "step 0: attention_flash_bf16") &&
               !says(strict, "by 16-bit integers"));
    e2e_ports_free(&ports);
    e2e_ports_free(&again);
    sinter_compiled_partition_destroy(&strict);
    sinter_compiled_partition_destroy(&bf16);
    sinter_partition_destroy(&partition);
    sinter_stream_destroy(&stream);
    model_free(&model);
}

/* ---- many threads, one compiled partition ---------------------------------------------------- */

typedef struct worker {
    const sinter_compiled_partition_t *compiled;
    const model_t *model;
    const unsigned char *want;
    size_t bytes;
    int user_scratch, bad;
} worker_t;

static void *work(void *arg)
{
    worker_t *w = arg;
    sinter_stream_t *stream = NULL;
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = 1, .all_threads = 1};
    e2e_ports_t ports;
    size_t total = 0;
    w->bad += sinter_stream_create(&stream, NULL, &desc) != sinter_success;
    e2e_ports_make(&ports, w->model, NULL, 7, 0);
    w->bad += sinter_compiled_partition_get_scratchpad_bytes(w->compiled, stream, 0, NULL, &total,
                                                             NULL) != sinter_success;
    unsigned char *scratch = w->user_scratch ? malloc(total + 1) : NULL;
    for (int i = 0; i < 8; i++) {
        w->bad += sinter_compiled_partition_execute(
                      w->compiled, stream, ports.n_in, (const sinter_tensor_t *const *)ports.in,
                      ports.n_out, ports.out, scratch ? scratch + 1 : NULL,
                      scratch ? total : 0) != sinter_success;
        w->bad += memcmp(ports.out_data[0], w->want, w->bytes) != 0;
        memset(ports.out_data[0], 0xFF, w->bytes);
    }
    free(scratch);
    e2e_ports_free(&ports);
    sinter_stream_destroy(&stream);
    return NULL;
}

static void test_concurrent(void)
{
    enum { WORKERS = 6 };
    model_t model;
    e2e_ports_t ports;
    pthread_t threads[WORKERS];
    worker_t workers[WORKERS];
    size_t bytes;
    e2e_load(&model, ATTENTION);
    e2e_replace_dim(&model, 4096, 129);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    sinter_compiled_partition_t *compiled = compile(partition);
    sinter_stream_t *stream = stream_of(1);
    e2e_ports_make(&ports, &model, NULL, 7, 0);
    CHECK_THAT(e2e_execute(compiled, stream, &ports) == sinter_success);
    CHECK_THAT(sinter_logical_tensor_get_bytes(&ports.out_lt[0], &bytes) == sinter_success);
    for (int i = 0; i < WORKERS; i++) {
        workers[i] = (worker_t){compiled, &model, ports.out_data[0], bytes, i % 2, 0};
        CHECK_THAT(pthread_create(&threads[i], NULL, work, &workers[i]) == 0);
    }
    for (int i = 0; i < WORKERS; i++) {
        pthread_join(threads[i], NULL);
        CHECK_THAT(workers[i].bad == 0);
    }
    e2e_ports_free(&ports);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_stream_destroy(&stream);
    model_free(&model);
}

/* ---- wrong calls ----------------------------------------------------------------------------- */

static void test_wrong_calls(void)
{
    model_t model;
    e2e_ports_t p, odd;
    e2e_load(&model, ATTENTION);
    e2e_replace_dim(&model, 4096, 65);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    sinter_compiled_partition_t *c = compile(partition);
    sinter_stream_t *s = stream_of(1);
    e2e_ports_make(&p, &model, NULL, 7, 0);
    const sinter_tensor_t *const *in = (const sinter_tensor_t *const *)p.in;
    sinter_compiled_partition_t *none = NULL;
    size_t n;
    CHECK_THAT(sinter_partition_compile(NULL, NULL, 0, NULL, 0, NULL, &none) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, NULL) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 1, NULL, 0, NULL, &none) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_partition_compile(partition, NULL, 0, NULL, 1, NULL, &none) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_compiled_partition_execute(NULL, s, p.n_in, in, p.n_out, p.out, NULL, 0) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_compiled_partition_execute(c, NULL, p.n_in, in, p.n_out, p.out, NULL, 0) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_compiled_partition_execute(c, s, p.n_in, NULL, p.n_out, p.out, NULL, 0) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_compiled_partition_execute(c, s, p.n_in, in, p.n_out, NULL, NULL, 0) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_compiled_partition_execute(c, s, p.n_in - 1, in, p.n_out, p.out, NULL, 0) ==
               sinter_invalid_arguments);
    CHECK_THAT(strstr(sinter_last_error_message(), "no input with tensor id") != NULL);
    CHECK_THAT(sinter_compiled_partition_execute(c, s, p.n_in, in, 0, p.out, NULL, 0) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_compiled_partition_execute(c, s, p.n_in, in, p.n_out, p.out, &n, 8) ==
               sinter_invalid_arguments);
    CHECK_THAT(strstr(sinter_last_error_message(), "too small") != NULL);
    CHECK_THAT(sinter_compiled_partition_query_logical_tensor(c, 12345, &p.in_lt[0]) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_compiled_partition_get_scratchpad_bytes(c, s, 0, NULL, NULL, NULL) ==
               sinter_invalid_arguments);
    const sinter_inplace_pair_t *pairs;
    CHECK_THAT(sinter_compiled_partition_get_inplace_ports(c, NULL, &pairs) ==
               sinter_invalid_arguments);
    CHECK_THAT(sinter_compiled_partition_get_inplace_ports(c, &n, &pairs) == sinter_success &&
               n == 0);

    /* A compile-time shape that contradicts the graph, and an id that is no port. */
    sinter_logical_tensor_t lt = p.in_lt[0];
    lt.dims[0] = 2;
    CHECK_THAT(sinter_partition_compile(partition, NULL, 1, &lt, 0, NULL, &none) ==
                   sinter_invalid_shape &&
               none == NULL);
    lt = p.in_lt[0];
    lt.id = 999;
    CHECK_THAT(sinter_partition_compile(partition, NULL, 1, &lt, 0, NULL, &none) ==
                   sinter_invalid_arguments &&
               none == NULL);

    /* Another data type, other dims, too few bytes, an output over an input. Nothing may be
     * written. */
    size_t bytes;
    CHECK_THAT(sinter_logical_tensor_get_bytes(&p.out_lt[0], &bytes) == sinter_success);
    sinter_tensor_t *keep = p.in[0], *other = NULL;
    lt = p.in_lt[0];
    lt.data_type = lt.data_type == sinter_f16 ? sinter_bf16 : sinter_f16;
    CHECK_THAT(sinter_tensor_create(&other, NULL, &lt, p.in_data[0], SINTER_BYTES_TRUSTED) ==
               sinter_success);
    p.in[0] = other;
    CHECK_THAT(e2e_execute(c, s, &p) == sinter_invalid_arguments &&
               strstr(sinter_last_error_message(), "compiled for") != NULL);
    CHECK_THAT(sinter_tensor_destroy(&other) == sinter_success);
    lt = p.in_lt[0];
    lt.dims[2]++;
    CHECK_THAT(sinter_tensor_create(&other, NULL, &lt, p.in_data[0], SINTER_BYTES_TRUSTED) ==
               sinter_success);
    p.in[0] = other;
    CHECK_THAT(e2e_execute(c, s, &p) == sinter_invalid_arguments);
    CHECK_THAT(sinter_tensor_destroy(&other) == sinter_success);
    p.in[0] = keep;
    CHECK_THAT(sinter_tensor_create(&other, NULL, &p.in_lt[0], p.in_data[0], 3) ==
                   sinter_invalid_arguments &&
               other == NULL);
    sinter_tensor_t *out = p.out[0];
    CHECK_THAT(sinter_tensor_create(&other, NULL, &p.out_lt[0], p.in_data[0],
                                    SINTER_BYTES_TRUSTED) == sinter_success);
    p.out[0] = other;
    CHECK_THAT(e2e_execute(c, s, &p) == sinter_invalid_arguments &&
               strstr(sinter_last_error_message(), "overlaps") != NULL);
    p.out[0] = out;
    CHECK_THAT(sinter_tensor_destroy(&other) == sinter_success);
    CHECK_THAT(sinter_tensor_set_data(p.in[0], NULL, 0) != sinter_success ||
               e2e_execute(c, s, &p) == sinter_invalid_arguments);
    int untouched = 1;
    for (size_t i = 0; i < bytes; i++) {
        untouched = untouched && p.out_data[0][i] == 0xFF;
    }
    CHECK_THAT(untouched);
    CHECK_THAT(sinter_tensor_set_data(p.in[0], p.in_data[0], SINTER_BYTES_TRUSTED) ==
               sinter_success);

    /* Any alignment works and changes nothing. */
    CHECK_THAT(e2e_execute(c, s, &p) == sinter_success);
    e2e_ports_make(&odd, &model, NULL, 7, 1);
    CHECK_THAT(e2e_execute(c, s, &odd) == sinter_success);
    CHECK_THAT(memcmp(p.out_data[0], odd.out_data[0] + 1, bytes) == 0);
    e2e_ports_free(&odd);
    e2e_ports_free(&p);
    CHECK_THAT(sinter_compiled_partition_destroy(&c) == sinter_success && c == NULL);
    CHECK_THAT(sinter_compiled_partition_destroy(&c) == sinter_success);
    sinter_partition_destroy(&partition);
    sinter_stream_destroy(&s);
    model_free(&model);
}

/* ---- in place -------------------------------------------------------------------------------- */

static void test_inplace(void)
{
    model_t model;
    e2e_ports_t p, q;
    const sinter_inplace_pair_t *pairs = NULL;
    size_t n = 0, bytes;
    e2e_load(&model, "patterns/eltwise-chain.json");
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    sinter_compiled_partition_t *c = compile(partition);
    sinter_stream_t *s = stream_of(2);
    CHECK_THAT(sinter_compiled_partition_get_inplace_ports(c, &n, &pairs) == sinter_success);
    CHECK_THAT(n >= 1);
    e2e_ports_make(&p, &model, NULL, 7, 0);
    e2e_ports_make(&q, &model, NULL, 7, 0);
    CHECK_THAT(e2e_execute(c, s, &p) == sinter_success);
    CHECK_THAT(e2e_compare(&model, &p, sinter_fpmath_mode_strict, 0) == 0);
    for (size_t i = 0; n > 0 && i < q.n_in; i++) {
        if (q.in_lt[i].id == pairs[0].input_id) {
            CHECK_THAT(sinter_logical_tensor_get_bytes(&q.out_lt[0], &bytes) == sinter_success);
            CHECK_THAT(sinter_tensor_set_data(q.out[0], q.in_data[i], bytes) == sinter_success);
            CHECK_THAT(e2e_execute(c, s, &q) == sinter_success);
            CHECK_THAT(memcmp(q.in_data[i], p.out_data[0], bytes) == 0);
            CHECK_THAT(sinter_tensor_set_data(q.out[0], q.in_data[i] + 4, bytes) == sinter_success);
            CHECK_THAT(e2e_execute(c, s, &q) == sinter_invalid_arguments);
        }
    }
    e2e_ports_free(&p);
    e2e_ports_free(&q);
    sinter_compiled_partition_destroy(&c);
    sinter_partition_destroy(&partition);
    sinter_stream_destroy(&s);
    model_free(&model);
}

/* ---- a partition's dump ---------------------------------------------------------------------- */

/* A dumped partition that is loaded again has the partition's mode, not the graph's. */
static void test_dump(void)
{
    char folder[] = P_tmpdir "/sinter_execute_XXXXXX", file[sizeof folder + 32];
    model_t model, again = {0};
    gr_error_t err = {{0}, 0};
    if (!CHECK(mkdtemp(folder) != NULL, "no temporary folder")) {
        return;
    }
    snprintf(file, sizeof file, "%s/partition.json", folder);
    e2e_load(&model, ATTENTION);
    model.mode = sinter_fpmath_mode_tf32;
    model.apply_to_int = 0;
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    CHECK_THAT(sinter_partition_dump(partition, file) == sinter_success);
    CHECK_THAT(model_load_file(&again, file, &err) == 0);
    CHECK_THAT(again.mode == sinter_fpmath_mode_tf32 && !again.apply_to_int &&
               again.n_ops == model.n_ops);
    model_free(&again);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, sinter_fpmath_mode_bf16, 1) ==
               sinter_success);
    CHECK_THAT(sinter_partition_dump(partition, file) == sinter_success);
    CHECK_THAT(model_load_file(&again, file, &err) == 0);
    CHECK_THAT(again.mode == sinter_fpmath_mode_bf16 && again.apply_to_int == 1 &&
               again.n_ops == model.n_ops);
    remove(file);
    rmdir(folder);
    model_free(&again);
    sinter_partition_destroy(&partition);
    model_free(&model);
}

/* ---- the line for each execute --------------------------------------------------------------- */

/* What one execute prints with the class exec on. */
static void logged_execute(const sinter_compiled_partition_t *compiled, sinter_stream_t *stream,
                           e2e_ports_t *ports, char *text, size_t size)
{
    capture_t c;
    CHECK_THAT(sinter_set_verbose("exec") == sinter_success);
    capture_begin(&c);
    const sinter_status_t status = e2e_execute(compiled, stream, ports);
    capture_end(&c, text, size);
    CHECK_THAT(sinter_set_verbose("none") == sinter_success);
    CHECK_THAT(status == sinter_success);
}

static void check_line(const char *line, const char *const *words)
{
    const size_t n = strlen(line);
    CHECK_THAT(n > 0 && strchr(line, '\n') == line + n - 1); /* one line */
    CHECK_THAT(strncmp(line, "sinter: exec partition 0 (", 26) == 0 &&
               strstr(line, " us: ") != NULL);
    for (; *words != NULL; words++) {
        CHECK_THAT(strstr(line, *words) != NULL);
        if (strstr(line, *words) == NULL) {
            fprintf(stderr, "\"%s\" is missing in: %s", *words, line);
        }
    }
}

/* Decoding with a length and strides that compile does not know. The decoding kernel runs where
 * the head of K is contiguous. Where the tokens are contiguous, the same kernel runs as when
 * compile knows these strides. */
static void test_decode_line(void)
{
    enum { T = 64, HEADS = 32, D = 128, K_ID = 1 };
    static const char *const yes[] = {"(sdpa), 2 threads, ", " 1:f16[1,32,1,128,64]",
                                      "-> 7:f16[1,32,1,1,128]; step 0: attention_decode_f32_",
                                      ", K by f32 FMA on decoded registers, V by f32 FMA on "
                                      "decoded registers, q.k by chunks of any "
                                      "scales, p.v by rows of few scales\n",
                                      NULL};
    static const char *const no[] = {"step 0: attention_flash_f32_", NULL};
    static const char *const flash[] = {
        "step 0: attention_flash_f32_generic, products by own f32 gemm\n", NULL};
    const sinter_dim_t dims[] = {1, HEADS, 1, D, T},
                       strides[] = {HEADS * D * T, D * T, D * T, T, 1};
    model_t model;
    e2e_ports_t ports;
    char text[8192];
    const int decodes = sinter_engine_get_isa(NULL) >= sinter_isa_avx2;
    e2e_load(&model, "attention-decode-float.json");
    e2e_replace_dim(&model, 4096, SINTER_UNKNOWN_DIM);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, sinter_fpmath_mode_strict, 0) ==
               sinter_success);
    sinter_compiled_partition_t *compiled = compile(partition);
    sinter_stream_t *stream = stream_of(2);
    model_free(&model);
    e2e_load(&model, "attention-decode-float.json");
    e2e_replace_dim(&model, 4096, T);
    e2e_ports_make(&ports, &model, NULL, 7, 0);
    logged_execute(compiled, stream, &ports, text, sizeof text);
    check_line(text, decodes ? yes : flash);
    for (size_t i = 0; i < ports.n_in; i++) {
        CHECK_THAT(ports.in_lt[i].id != K_ID ||
                   sinter_tensor_set_dims(ports.in[i], ports.in_lt[i].ndims, dims, strides) ==
                       sinter_success);
    }
    logged_execute(compiled, stream, &ports, text, sizeof text);
    check_line(text, decodes ? no : flash);
    e2e_ports_free(&ports);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_stream_destroy(&stream);
    model_free(&model);
}

/* Weights of a model that would be constant are read where they lie. */
static void make_variable(model_t *m)
{
    for (size_t o = 0; o < m->n_ops; o++) {
        for (size_t i = 0; i < m->ops[o].n_inputs; i++) {
            m->ops[o].inputs[i].property = sinter_tensor_property_variable;
        }
    }
}

/* 256 columns, and rows that compile may not know. */
static void load_matmul(model_t *model, int64_t rows)
{
    e2e_load(model, "patterns/matmul-weight-int4-kn.json");
    make_variable(model);
    e2e_replace_dim(model, 38, 256);
    e2e_replace_dim(model, 3, rows);
}

/* Where only execute knows the number of rows, it takes the kernel for few rows or that for
 * many. */
static void test_rows_line(void)
{
    static const char *const few[] = {"(matmul), 1 thread, ", "step 0: matmul_columns_f32_",
                                      ", by f32 FMA on decoded registers, scales by sums of rows\n",
                                      NULL};
    static const char *const many[] = {"step 0: matmul_panel_f32_", NULL};
    static const char *const panels[] = {
        "step 0: matmul_panel_f32_generic, products by own f32 gemm\n", NULL};
    static const int64_t rows[] = {3, 77};
    char text[8192];
    model_t model;
    load_matmul(&model, SINTER_UNKNOWN_DIM);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, sinter_fpmath_mode_strict, 0) ==
               sinter_success);
    sinter_compiled_partition_t *compiled = compile(partition);
    sinter_stream_t *stream = stream_of(1);
    model_free(&model);
    for (int i = 0; i < 2; i++) {
        e2e_ports_t ports;
        load_matmul(&model, rows[i]);
        e2e_ports_make(&ports, &model, NULL, 7, 0);
        logged_execute(compiled, stream, &ports, text, sizeof text);
        check_line(text, sinter_engine_get_isa(NULL) < sinter_isa_avx2 ? panels
                         : i == 0                                      ? few
                                                                       : many);
        e2e_ports_free(&ports);
        model_free(&model);
    }
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_stream_destroy(&stream);
}

/* A model with some dims replaced, and the ways that its step must go at each level. */
typedef struct way_case {
    const char *model;
    int64_t dims[3][2]; /* from, to; 0: no more */
    sinter_fpmath_mode_t mode;
    const char *at[LEVELS];
    bool constant;    /* weights may be copied */
    int64_t infinite; /* one more than the id of an input of floats that begins with infinity */
} way_case_t;

/* At the levels avx2 and avx2_vnni, avx512, avx512_vnni. */
#define WAY_AT(generic, avx2, avx512, vnni)                                                      \
    {                                                                                            \
        [sinter_isa_generic] = generic, [sinter_isa_avx2] = avx2, [sinter_isa_avx2_vnni] = avx2, \
        [sinter_isa_avx512] = avx512, [sinter_isa_avx512_vnni] = vnni                            \
    }
#define EVERYWHERE(way) WAY_AT(way, way, way, way)
#define WITH_VNNI(generic, without, with)                             \
    {                                                                 \
        [sinter_isa_generic] = generic, [sinter_isa_avx2] = without,  \
        [sinter_isa_avx2_vnni] = with, [sinter_isa_avx512] = without, \
        [sinter_isa_avx512_vnni] = with                               \
    }
#define OWN_PRODUCTS ", products by own f32 gemm"
#define FMA "by f32 FMA on decoded registers"
#define LIMBS_16 "by 16-bit integers (two 8-bit limbs)"
#define LIMBS_8 "by 8-bit integers"
#define BY_K_AND_V(name) "K " name ", V " name

#define ODD_QUERY(scales)                                                \
    BY_K_AND_V(FMA)                                                      \
    ", q.k by chunks of " scales ", p.v by rows of few scales, some by " \
    "tiles of floats (a query is not finite, too small or too large)\n"
#define ON_TILES " on tiles"
#define BY_ROWS "some row by row (rows of A are not finite, too small or too large)"
#define CODES_BY_ROWS "some row by row (scales or zero points of A do not suit integers)"
#define EXACT "by exact products of codes"
#define BY_PANELS "some by panels (rows of A are not finite, too small or too large)"

static void begin_with_infinity(e2e_ports_t *ports, int64_t id)
{
    static const uint16_t half = 0x7c00;
    static const float single = INFINITY;
    for (size_t i = 0; i < ports->n_in; i++) {
        if ((int64_t)ports->in_lt[i].id == id) {
            const bool is_half = ports->in_lt[i].data_type == sinter_f16;
            memcpy(ports->in_data[i], is_half ? (const void *)&half : &single, is_half ? 2 : 4);
        }
    }
}

static void test_ways(void)
{
    static const way_case_t cases[] = {
        {"patterns/matmul-weight-int4-kn.json",
         {{38, 256}},
         sinter_fpmath_mode_strict,
         .at = WAY_AT(OWN_PRODUCTS, ", " FMA ", scales by sums of rows",
                      ", " FMA ", scales by sums", ", " FMA ", scales by sums")},
        {"patterns/matmul-weight-int4.json",
         {{3, 4}},
         sinter_fpmath_mode_strict,
         .at = WAY_AT(OWN_PRODUCTS, ", " FMA, ", " FMA, ", " FMA)},
        {"patterns/matmul-weight-int4.json",
         {{3, 4}},
         sinter_fpmath_mode_f16,
         .at = WAY_AT(OWN_PRODUCTS, ", " LIMBS_16, ", " FMA, ", " LIMBS_16)},
        {"patterns/matmul-weight-int4.json",
         {{3, 4}},
         sinter_fpmath_mode_int8,
         .at = WAY_AT(OWN_PRODUCTS, ", " LIMBS_8, ", " FMA, ", " LIMBS_8)},
        {"patterns/matmul-weight-int4.json",
         {{3, 40}},
         sinter_fpmath_mode_f16,
         .at = WAY_AT(OWN_PRODUCTS, ", products by ", ", products by ", ", products " LIMBS_16)},
        {"patterns/matmul-weight-int4.json",
         {{3, 40}},
         sinter_fpmath_mode_int8,
         .at = WAY_AT(OWN_PRODUCTS, ", products by ", ", products by ", ", products " LIMBS_8)},
        {"attention-decode-float.json",
         {{4096, 64}},
         sinter_fpmath_mode_strict,
         .at = WAY_AT(OWN_PRODUCTS, BY_K_AND_V(FMA), BY_K_AND_V(FMA), BY_K_AND_V(FMA))},
        {"attention-decode-scaled.json",
         {{4096, 64}},
         sinter_fpmath_mode_f16,
         .at = WITH_VNNI(OWN_PRODUCTS, BY_K_AND_V(FMA), BY_K_AND_V(LIMBS_16))},
        {"attention-decode-scaled.json",
         {{4096, 64}},
         sinter_fpmath_mode_int8,
         .at = WITH_VNNI(OWN_PRODUCTS, BY_K_AND_V(FMA), BY_K_AND_V(LIMBS_8))},
        {"attention-decode-scaled.json",
         {{4096, 64}},
         sinter_fpmath_mode_strict,
         .at = WAY_AT(OWN_PRODUCTS "\n", ODD_QUERY("one scale"), ODD_QUERY("any scales"),
                      ODD_QUERY("any scales")),
         .infinite = 1},
        {"patterns/matmul-weight-int4.json",
         {{3, 4}},
         sinter_fpmath_mode_f16,
         .at = WAY_AT(OWN_PRODUCTS "\n", LIMBS_16 ", " BY_PANELS "\n", FMA ", " BY_PANELS "\n",
                      LIMBS_16 ", " BY_PANELS "\n"),
         .infinite = 5},
        {"patterns/matmul-weight-int4-kn.json",
         {{38, 256}},
         sinter_fpmath_mode_strict,
         .at = WAY_AT(OWN_PRODUCTS "\n", "by sums of rows, " BY_PANELS "\n",
                      "by sums of rows, " BY_PANELS "\n", "by sums of rows, " BY_PANELS "\n"),
         .infinite = 5},
        {"patterns/matmul-weight-int4.json",
         {{3, 4}},
         sinter_fpmath_mode_f16,
         .at = WAY_AT(OWN_PRODUCTS "\n", LIMBS_16 ON_TILES "\n", "by f32 FMA" ON_TILES "\n",
                      LIMBS_16 ON_TILES "\n"),
         .constant = true},
        {"patterns/matmul-weight-int4.json",
         {{3, 4}},
         sinter_fpmath_mode_f16,
         .at = WAY_AT(OWN_PRODUCTS "\n", LIMBS_16 ON_TILES ", " BY_ROWS "\n",
                      "by f32 FMA" ON_TILES ", " BY_ROWS "\n", LIMBS_16 ON_TILES ", " BY_ROWS "\n"),
         .constant = true,
         .infinite = 5},
        {"patterns/matmul-quantized-activation.json",
         {{0}},
         sinter_fpmath_mode_strict,
         .at = WAY_AT(OWN_PRODUCTS "\n", EXACT ON_TILES "\n", "by f32 FMA" ON_TILES "\n",
                      EXACT ON_TILES "\n"),
         .constant = true},
        {"patterns/matmul-quantized-activation.json",
         {{0}},
         sinter_fpmath_mode_strict,
         .at = WAY_AT(OWN_PRODUCTS "\n", EXACT ON_TILES ", " CODES_BY_ROWS "\n",
                      "by f32 FMA" ON_TILES ", " BY_ROWS "\n",
                      EXACT ON_TILES ", " CODES_BY_ROWS "\n"),
         .constant = true,
         .infinite = 1},
        {"patterns/softmax-postops.json",
         {{0}},
         sinter_fpmath_mode_strict,
         .at = EVERYWHERE(", by rows in cache\n")},
        {"patterns/eltwise-chain.json",
         {{0}},
         sinter_fpmath_mode_strict,
         .at = EVERYWHERE(", by runs (what is written may stay in the caches)\n")},
    };
    const sinter_cpu_isa_t isa = sinter_engine_get_isa(NULL);
    sinter_stream_t *stream = stream_of(1);
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const way_case_t *c = &cases[i];
        model_t model;
        e2e_ports_t ports;
        char text[8192];
        e2e_load(&model, c->model);
        if (!c->constant) {
            make_variable(&model);
        }
        for (int d = 0; d < 3 && c->dims[d][0] > 0; d++) {
            e2e_replace_dim(&model, c->dims[d][0], c->dims[d][1]);
        }
        sinter_partition_t *partition = e2e_partition(&model, NULL);
        CHECK_THAT(sinter_partition_set_fpmath_mode(partition, c->mode, 1) == sinter_success);
        sinter_compiled_partition_t *compiled = compile(partition);
        e2e_ports_make(&ports, &model, NULL, 7, 0);
        begin_with_infinity(&ports, c->infinite - 1);
        logged_execute(compiled, stream, &ports, text, sizeof text);
        CHECK(strstr(text, c->at[isa]) != NULL, "%s, mode %d: \"%s\" is missing in: %s", c->model,
              (int)c->mode, c->at[isa], text);
        e2e_ports_free(&ports);
        sinter_compiled_partition_destroy(&compiled);
        sinter_partition_destroy(&partition);
        model_free(&model);
    }
    sinter_stream_destroy(&stream);
}

/* ---- one compile for all dims ---------------------------------------------------------------- */

enum { MOST_DIMS = 3, CALLS = 6, MOVED = 10007 };

/* A model with dims that compile does not know, and what they are in each call. */
typedef struct open_model {
    const char *name;
    int64_t dims[MOST_DIMS]; /* in the file; 0: no more */
    int64_t calls[CALLS][MOST_DIMS];
} open_model_t;

static void load_open(model_t *model, const open_model_t *m, const int64_t *to)
{
    e2e_load(model, m->name);
    for (int i = 0; i < MOST_DIMS && m->dims[i] > 0; i++) {
        /* Large numbers keep a dim that has been replaced apart from those in the file. */
        e2e_replace_dim(model, m->dims[i], MOVED + i);
    }
    for (int i = 0; i < MOST_DIMS && m->dims[i] > 0; i++) {
        e2e_replace_dim(model, MOVED + i, to != NULL ? to[i] : SINTER_UNKNOWN_DIM);
    }
}

static sinter_compiled_partition_t *compile_open_model(const open_model_t *m, const int64_t *dims,
                                                       sinter_fpmath_mode_t mode)
{
    model_t model;
    load_open(&model, m, dims);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    CHECK_THAT(sinter_partition_set_fpmath_mode(partition, mode, 1) == sinter_success);
    sinter_compiled_partition_t *compiled = compile(partition);
    sinter_partition_destroy(&partition);
    model_free(&model);
    return compiled;
}

/* Where dims are not known at compile, each execute takes the same kernel and ways as a compile
 * that knows its dims, and its results are within the same bounds. */
static void test_open_dims(sinter_fpmath_mode_t mode)
{
    static const open_model_t models[] = {
        {"patterns/matmul-weight-int4-kn.json", {3}, {{1}, {3}, {16}, {17}, {77}, {2}}},
        {"patterns/matmul-weight-int4.json", {3}, {{1}, {4}, {16}, {33}, {8}, {5}}},
        {"patterns/sdpa-int4-kv.json",
         {3, 5, 9}, /* heads, queries, tokens */
         {{3, 1, 40}, {2, 8, 300}, {1, 20, 300}, {3, 1, 9}, {4, 5, 64}, {2, 9, 33}}},
    };
    sinter_stream_t *stream = stream_of(2);
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        sinter_compiled_partition_t *open = compile_open_model(&models[i], NULL, mode);
        for (int call = 0; call < CALLS; call++) {
            const int64_t *dims = models[i].calls[call];
            sinter_compiled_partition_t *closed = compile_open_model(&models[i], dims, mode);
            model_t model;
            e2e_ports_t ports;
            char text[8192], want[8192];
            load_open(&model, &models[i], dims);
            e2e_ports_make(&ports, &model, NULL, 7, 0);
            logged_execute(closed, stream, &ports, want, sizeof want);
            logged_execute(open, stream, &ports, text, sizeof text);
            const char *kernels = strstr(text, "; step 0: "), *wanted = strstr(want, "; step 0: ");
            CHECK(kernels != NULL && wanted != NULL && strcmp(kernels, wanted) == 0,
                  "%s, call %d: with open dims %s with known ones %s", models[i].name, call, text,
                  want);
            CHECK(e2e_compare(&model, &ports, mode, 1) == 0, "%s, call %d: wrong result",
                  models[i].name, call);
            e2e_ports_free(&ports);
            model_free(&model);
            sinter_compiled_partition_destroy(&closed);
        }
        sinter_compiled_partition_destroy(&open);
    }
    sinter_stream_destroy(&stream);
}

/* Without the class nothing is printed, and an execute that fails prints no line either. */
static void test_no_line(void)
{
    model_t model;
    e2e_ports_t ports;
    capture_t c;
    char text[8192];
    e2e_load(&model, "attention-decode-float.json");
    e2e_replace_dim(&model, 4096, 64);
    sinter_partition_t *partition = e2e_partition(&model, NULL);
    sinter_compiled_partition_t *compiled = compile(partition);
    sinter_stream_t *stream = stream_of(1);
    e2e_ports_make(&ports, &model, NULL, 7, 0);
    capture_begin(&c);
    CHECK_THAT(e2e_execute(compiled, stream, &ports) == sinter_success);
    capture_end(&c, text, sizeof text);
    CHECK_THAT(text[0] == '\0');
    CHECK_THAT(sinter_set_verbose("exec") == sinter_success);
    capture_begin(&c);
    const sinter_status_t status =
        sinter_compiled_partition_execute(compiled, stream, 0, NULL, 0, NULL, NULL, 0);
    capture_end(&c, text, sizeof text);
    CHECK_THAT(sinter_set_verbose("none") == sinter_success);
    CHECK_THAT(status == sinter_invalid_arguments && text[0] == '\0');
    e2e_ports_free(&ports);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&partition);
    sinter_stream_destroy(&stream);
    model_free(&model);
}

int main(void)
{
    test_dynamic_length();
    test_modes();
    test_concurrent();
    test_wrong_calls();
    test_inplace();
    test_dump();
    test_decode_line();
    test_rows_line();
    test_ways();
    test_open_dims(sinter_fpmath_mode_strict);
    test_open_dims(sinter_fpmath_mode_f16);
    test_open_dims(sinter_fpmath_mode_bf16);
    test_no_line();
    return check_finish();
}
