/* Products with experts against the oracle: graphs drawn at random over types, groups, layouts,
 * modes and numbers of tokens; and what users rely on: a partition of its own name, errors for
 * indices that name no expert before anything is written, the same bits with any number of threads.
 * SINTER_RANDOM_SEED makes other graphs, SINTER_RANDOM_CASES more; SINTER_MATRIX_ONLY=N runs one.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "../fuzz/fuzz.h"
#include "check.h"
#include "passive.h"
#include "spec.h"

#if defined(__SANITIZE_ADDRESS__)
enum { CASES = 150 };
#else
enum { CASES = 500 };
#endif

enum { TOKENS = 40, EACH = 2, EXPERTS = 5, N = 48, K = 64 };

#define GRAPH                                                                                \
    "Gather axis=0 2:s8:5x48x64 1:s32:?x2 -> 5:s8:?x2x48x64; Gather axis=0 3:f32:5x48x2 "    \
    "1:s32:?x2 -> 6:f32:?x2x48x2; DynamicDequantize qtype=per_group group_shape=1,1,1,32 "   \
    "5:s8:?x2x48x64 6:f32:?x2x48x2 -> 7:f32:?x2x48x64; MatMul transpose_b=1 0:f32:?x1x1x64 " \
    "7:f32:?x2x48x64 -> 8:f32:?x2x1x48"

/* The MLP of the same tables: each row of an expert is y = W relu(W x)^2 of K = N elements, times
 * the weight of its expert. */
#define SQUARE "48x48"
#define MLP                                                                                      \
    "Gather axis=0 2:f32:5x" SQUARE " 1:s32:?x2 -> 5:f32:?x2x" SQUARE "; Gather axis=0 "         \
    "3:f32:5x" SQUARE " 1:s32:?x2 -> 6:f32:?x2x" SQUARE "; MatMul transpose_b=1 0:f32:?x1x1x48 " \
    "5:f32:?x2x" SQUARE " -> 7:f32:?x2x1x48; ReLU 7:f32:?x2x1x48 -> 9:f32:?x2x1x48; Square "     \
    "9:f32:?x2x1x48 -> 10:f32:?x2x1x48; MatMul transpose_b=1 10:f32:?x2x1x48 6:f32:?x2x" SQUARE  \
    " -> 11:f32:?x2x1x48; Multiply 11:f32:?x2x1x48 4:f32:?x2x1x1 -> 12:f32:?x2x1x48; ReduceSum " \
    "axes=1 12:f32:?x2x1x48 -> 8:f32:?x1x48"

static float x[TOKENS * K], y[TOKENS * EACH * N], scales[EXPERTS * N * K / 32];
static int8_t codes[EXPERTS * N * K];
static int32_t ids[TOKENS * EACH];

static long partitions_named(const char *name)
{
    long n = 0;
    for (size_t i = 0; i < sizeof fz_tally.patterns / sizeof *fz_tally.patterns; i++) {
        n += strcmp(fz_tally.patterns[i].name, name) == 0 ? fz_tally.patterns[i].n : 0;
    }
    return n;
}

/* Graphs of a generator, of which more than a third have partitions of this name. */
static void random_graphs(const char *generator, void (*generate)(fz_t *f), const char *name)
{
    const char *seed_text = getenv("SINTER_RANDOM_SEED"),
               *cases_text = getenv("SINTER_RANDOM_CASES"), *only = getenv("SINTER_MATRIX_ONLY");
    const uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : 1;
    const long cases = cases_text ? strtol(cases_text, NULL, 0) : CASES,
               one = only ? strtol(only, NULL, 0) : -1;
    const long before = partitions_named(name);

    for (long i = 0; i < cases; i++) {
        char text[1024] = "";
        fz_t f;

        if (one >= 0 && i != one) {
            continue;
        }
        fz_init(&f, seed * 100000 + (uint64_t)i);
        f.generator = generator;
        generate(&f);
        const fz_outcome_t outcome = fz_run(&f, text, sizeof text);
        CHECK(outcome == FZ_PASSED, "%s, case %ld %s: %s", generator, i,
              outcome == FZ_FAILED ? "failed" : "is unsupported", text);
        if (outcome != FZ_PASSED) {
            fz_print(&f);
        }
        fz_free(&f);
    }
    const long fused = partitions_named(name) - before;
    CHECK(one >= 0 || cases < CASES || fused > cases / 3, "%ld of %ld graphs have a %s", fused,
          cases, name);
    printf("%ld partitions %s, %ld tensors in tiles\n", fused, name, fz_tally.tiled);
}

static sinter_status_t run(sinter_compiled_graph_t *whole, int tokens, int threads)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    const sinter_dim_t of_x[4] = {tokens, 1, 1, K}, of_ids[2] = {tokens, EACH};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    const struct {
        uint64_t id;
        int ndims;
        const sinter_dim_t *dims;
        void *data;
    } tensors[] = {{0, 4, of_x, x},
                   {1, 2, of_ids, ids},
                   {2, 0, NULL, codes},
                   {3, 0, NULL, scales},
                   {8, 0, NULL, y}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        CHECK_THAT(sinter_compiled_graph_bind(whole, tensors[i].id, tensors[i].ndims,
                                              tensors[i].dims, NULL, tensors[i].data,
                                              SINTER_BYTES_TRUSTED) == sinter_success);
    }
    const sinter_status_t status = sinter_compiled_graph_execute(whole, stream);
    sinter_stream_destroy(&stream);
    return status;
}

/* One compile serves all numbers of tokens. Results are compared with sums in double of the same
 * codes, and between numbers of threads. */
static void numbers_of_tokens(sinter_compiled_graph_t *whole)
{
    static const int tokens[] = {1, 3, TOKENS, 2}, threads[] = {1, 2, 3, 7};
    static float first[TOKENS * EACH * N];
    for (int i = 0; i < 4; i++) {
        for (int r = 0; r < tokens[i] * EACH; r++) { /* most rows to one expert, none to the last */
            ids[r] = r % 3 == 0 ? (r * 7) % (EXPERTS - 1) : 1;
        }
        for (int t = 0; t < 4; t++) {
            memset(y, 0xff, sizeof y);
            CHECK(run(whole, tokens[i], threads[t]) == sinter_success, "%s",
                  sinter_last_error_message());
            if (t == 0) {
                memcpy(first, y, sizeof y);
            }
            CHECK(memcmp(first, y, sizeof y) == 0, "%d tokens, %d threads: other bits", tokens[i],
                  threads[t]);
        }
        int wrong = 0;
        for (int r = 0; r < tokens[i] * EACH; r++) {
            for (int n = 0; n < N; n++) {
                double sum = 0, size = 0;
                const int row = ids[r] * N + n;
                for (int k = 0; k < K; k++) {
                    const double term = (double)x[r / EACH * K + k] * codes[row * K + k] *
                                        (double)scales[(row * K + k) / 32];
                    sum += term;
                    size += term < 0 ? -term : term;
                }
                const double off = (double)y[r * N + n] - sum;
                wrong += !((off < 0 ? -off : off) <= size * 0x1p-18);
            }
        }
        CHECK(wrong == 0, "%d tokens: %d results are wrong", tokens[i], wrong);
    }
}

static void wrong_indices(sinter_compiled_graph_t *whole)
{
    static const int32_t wrong[] = {EXPERTS, -EXPERTS - 1, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        memset(ids, 0, sizeof ids);
        memset(y, 0xff, sizeof y);
        ids[3] = wrong[i];
        CHECK(run(whole, 2, 2) == sinter_invalid_arguments, "index %d is taken", wrong[i]);
        CHECK(strstr(sinter_last_error_message(), "tensor 1") != NULL &&
                  strstr(sinter_last_error_message(), "position 3") != NULL,
              "%s", sinter_last_error_message());
        int written = 0;
        for (size_t b = 0; b < sizeof y; b++) {
            written += ((unsigned char *)y)[b] != 0xff;
        }
        CHECK(written == 0, "%d bytes are written in spite of index %d", written, wrong[i]);
    }
}

/* ---- the MLP --------------------------------------------------------------------------------- */

static float up[EXPERTS * N * N], down[EXPERTS * N * N], share[TOKENS * EACH];

static sinter_status_t run_mlp(sinter_compiled_graph_t *whole, int tokens, int threads, float *rows,
                               int32_t *indices, float *of_experts, float *out)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    const sinter_dim_t of_x[4] = {tokens, 1, 1, N}, of_ids[2] = {tokens, EACH},
                       of_share[4] = {tokens, EACH, 1, 1};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    const struct {
        uint64_t id;
        int ndims;
        const sinter_dim_t *dims;
        void *data;
    } tensors[] = {{0, 4, of_x, rows}, {1, 2, of_ids, indices},      {2, 0, NULL, up},
                   {3, 0, NULL, down}, {4, 4, of_share, of_experts}, {8, 0, NULL, out}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        CHECK_THAT(sinter_compiled_graph_bind(whole, tensors[i].id, tensors[i].ndims,
                                              tensors[i].dims, NULL, tensors[i].data,
                                              SINTER_BYTES_TRUSTED) == sinter_success);
    }
    const sinter_status_t status = sinter_compiled_graph_execute(whole, stream);
    sinter_stream_destroy(&stream);
    return status;
}

/* What a token's results are, in double; size: the sum of the magnitudes that go into each. */
static void expect_token(const float *row, const int32_t *indices, const float *of_experts,
                         double *out, double *size)
{
    for (int n = 0; n < N; n++) {
        out[n] = size[n] = 0;
    }
    for (int i = 0; i < EACH; i++) {
        const int e = indices[i];
        double mid[N];
        for (int n = 0; n < N; n++) {
            double sum = 0;
            for (int k = 0; k < N; k++) {
                sum += (double)row[k] * (double)up[(e * N + n) * N + k];
            }
            mid[n] = sum > 0 ? sum * sum : 0;
        }
        for (int n = 0; n < N; n++) {
            for (int k = 0; k < N; k++) {
                const double term =
                    mid[k] * (double)down[(e * N + n) * N + k] * (double)of_experts[i];
                out[n] += term;
                size[n] += term < 0 ? -term : term;
            }
        }
    }
}

static int wrong_results(int token, const float *rows, const int32_t *indices,
                         const float *of_experts, const float *out)
{
    double want[N], size[N];
    int wrong = 0;
    expect_token(rows + token * N, indices + token * EACH, of_experts + token * EACH, want, size);
    for (int c = 0; c < N; c++) {
        const double off = (double)out[token * N + c] - want[c];
        wrong += !((off < 0 ? -off : off) <= size[c] * 0x1p-16);
    }
    return wrong;
}

/* One compile serves all numbers of tokens: rows spread over experts, nearly all of one expert, all
 * of it. Results do not depend on the number of threads. */
static void tokens_of_the_mlp(sinter_compiled_graph_t *whole)
{
    static const int tokens[] = {1, 3, TOKENS, 2, 0}, threads[] = {1, 2, 3, 7};
    static float first[TOKENS * N];
    for (int i = 0; i < 15; i++) {
        const int n = tokens[i % 5], spread = i / 5;
        for (int r = 0; r < n * EACH; r++) {
            ids[r] = spread == 0 ? (r * 7) % EXPERTS : spread == 1 && r % 5 == 0 ? 4 : 2;
            share[r] = (float)(r % 7 - 2) / 8;
        }
        for (int t = 0; t < 4; t++) {
            memset(y, 0xff, sizeof y);
            CHECK(run_mlp(whole, n, threads[t], x, ids, share, y) == sinter_success, "%s",
                  sinter_last_error_message());
            if (t == 0) {
                memcpy(first, y, sizeof first);
            }
            CHECK(memcmp(first, y, sizeof first) == 0, "%d tokens, %d threads: other bits", n,
                  threads[t]);
        }
        int wrong = 0;
        for (int token = 0; token < n; token++) {
            wrong += wrong_results(token, x, ids, share, y);
        }
        CHECK(wrong == 0, "%d tokens, spread %d: %d results are wrong", n, spread, wrong);
    }
}

static void wrong_indices_of_the_mlp(sinter_compiled_graph_t *whole)
{
    static const int32_t wrong[] = {EXPERTS, -EXPERTS - 1, INT32_MAX, INT32_MIN};
    for (int i = 0; i < 4; i++) {
        memset(ids, 0, sizeof ids);
        memset(y, 0xff, sizeof y);
        ids[3] = wrong[i];
        CHECK(run_mlp(whole, 2, 2, x, ids, share, y) == sinter_invalid_arguments,
              "index %d is taken", wrong[i]);
        CHECK(strstr(sinter_last_error_message(), "tensor 1") != NULL &&
                  strstr(sinter_last_error_message(), "position 3") != NULL,
              "%s", sinter_last_error_message());
        int written = 0;
        for (size_t b = 0; b < sizeof y; b++) {
            written += ((unsigned char *)y)[b] != 0xff;
        }
        CHECK(written == 0, "%d bytes are written in spite of index %d", written, wrong[i]);
    }
}

/* So many tokens that they are computed in rounds; some of them are compared. */
static void many_tokens(sinter_compiled_graph_t *whole)
{
    enum { MANY = 150000, EACH_COMPARED = 997 };
    float *const rows = malloc(sizeof(float) * MANY * N),
                 *const out = malloc(sizeof(float) * MANY * N),
                 *const of_experts = malloc(sizeof(float) * MANY * EACH);
    int32_t *const indices = malloc(sizeof(int32_t) * MANY * EACH);
    CHECK_THAT(rows != NULL && out != NULL && of_experts != NULL && indices != NULL);
    for (int i = 0; i < MANY * N; i++) {
        rows[i] = (float)(i * 37L % 101 - 50) / 16;
    }
    for (int i = 0; i < MANY * EACH; i++) {
        indices[i] = (i * 7L + i / 1000) % EXPERTS;
        of_experts[i] = (float)(i % 7 - 2) / 8;
    }
    CHECK(run_mlp(whole, MANY, 2, rows, indices, of_experts, out) == sinter_success, "%s",
          sinter_last_error_message());
    int wrong = 0;
    for (int token = 0; token < MANY; token += EACH_COMPARED) {
        wrong += wrong_results(token, rows, indices, of_experts, out);
    }
    CHECK(wrong == 0, "%d tokens: %d results are wrong", MANY, wrong);
    free(rows);
    free(out);
    free(of_experts);
    free(indices);
}

static void the_mlp(void)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *part = NULL;
    sinter_compiled_graph_t *whole = NULL;
    const char *pattern = "";
    size_t n = 0;
    for (int i = 0; i < EXPERTS * N * N; i++) {
        up[i] = (float)(i * 37 % 61 - 30) / 64;
        down[i] = (float)(i * 73 % 53 - 26) / 64;
    }
    CHECK_THAT(spec_graph(&graph, NULL, MLP) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success && n == 1);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &part) == sinter_success);
    CHECK_THAT(sinter_partition_get_pattern(part, &pattern) == sinter_success);
    CHECK(strcmp(pattern, "moe-mlp") == 0, "the partition is %s", pattern);
    CHECK(sinter_graph_compile(graph, NULL, 1, &part, &whole) == sinter_success, "%s",
          sinter_last_error_message());
    if (whole != NULL) {
        tokens_of_the_mlp(whole);
        wrong_indices_of_the_mlp(whole);
        many_tokens(whole);
    }
    sinter_compiled_graph_destroy(&whole);
    sinter_partition_destroy(&part);
    sinter_graph_destroy(&graph);
}

/* Gate and up of one table: halves of its columns, or every other one, are one step with all of the
 * MLP; others are right, too, but several steps. */
static void slices_of_one_table(void)
{
    static const struct {
        const char *gate, *up;
        bool one_step;
    } cases[] = {{"starts=0 ends=48", "starts=48 ends=96", true},
                 {"starts=0 ends=96 steps=2", "starts=1 ends=96 steps=2", true},
                 {"starts=1 ends=96 steps=2", "starts=0 ends=95 steps=2", true},
                 {"starts=0 ends=96 steps=2", "starts=48 ends=96", false},
                 {"starts=94 ends=-97 steps=-2", "starts=1 ends=96 steps=2", false}};
    /* The product has a bias for each expert and column. */
    static const char bias[] = "Gather axis=0 4:f32:8x1x96 1:s32:1x2 -> 14:f32:1x2x1x96; "
                               "Add 14:f32:1x2x1x96 6:f32:1x2x1x96 -> 15:f32:1x2x1x96; ";
    const size_t n = sizeof cases / sizeof *cases;
    for (size_t c = 0; c < 2 * n; c++) {
        const size_t i = c % n;
        const int sliced = c < n ? 6 : 15;
        char text[1280];
        sinter_graph_t *graph = NULL;
        sinter_partition_t *part = NULL;
        sinter_compiled_partition_t *compiled = NULL;
        const char *report = "";
        snprintf(text, sizeof text,
                 "Gather axis=0 2:f32:8x96x48 1:s32:1x2 -> 5:f32:1x2x96x48; MatMul transpose_b=1 "
                 "0:f32:1x1x1x48 5:f32:1x2x96x48 -> 6:f32:1x2x1x96; "
                 "%s"
                 "Slice %s axes=-1 %d:f32:1x2x1x96 -> 7:f32:1x2x1x48; "
                 "Slice %s axes=-1 %d:f32:1x2x1x96 -> 8:f32:1x2x1x48; "
                 "Sigmoid 7:f32:1x2x1x48 -> 9:f32:1x2x1x48; "
                 "Multiply 9:f32:1x2x1x48 8:f32:1x2x1x48 -> 10:f32:1x2x1x48; "
                 "Gather axis=0 3:f32:8x48x48 1:s32:1x2 -> 11:f32:1x2x48x48; MatMul transpose_b=1 "
                 "10:f32:1x2x1x48 11:f32:1x2x48x48 -> 12:f32:1x2x1x48; "
                 "ReduceSum axes=1 12:f32:1x2x1x48 -> 13:f32:1x1x48",
                 sliced == 6 ? "" : bias, cases[i].gate, sliced, cases[i].up, sliced);
        CHECK_THAT(spec_graph(&graph, NULL, text) == sinter_success);
        CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
        CHECK_THAT(sinter_graph_get_partitions(graph, 1, &part) == sinter_success);
        CHECK(sinter_partition_compile(part, NULL, 0, NULL, 0, NULL, &compiled) == sinter_success,
              "%s", sinter_last_error_message());
        if (compiled != NULL) {
            CHECK_THAT(sinter_compiled_partition_report(compiled, &report) == sinter_success);
        }
        CHECK((strstr(report, "experts kernel refused") == NULL) == cases[i].one_step,
              "slices %s and %s:\n%s", cases[i].gate, cases[i].up, report);
        sinter_compiled_partition_destroy(&compiled);
        sinter_partition_destroy(&part);
        sinter_graph_destroy(&graph);
    }
}

/* What the report estimates of a product of one token with two of so many experts, in us. */
static double estimated_work(const char *experts)
{
    char text[512];
    sinter_graph_t *graph = NULL;
    sinter_partition_t *part = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    const char *report = "";
    double us = -1;
    snprintf(text, sizeof text,
             "Gather axis=0 2:f32:%sx48x48 1:s32:1x2 -> 5:f32:1x2x48x48; MatMul transpose_b=1 "
             "0:f32:1x1x1x48 5:f32:1x2x48x48 -> 8:f32:1x2x1x48",
             experts);
    CHECK_THAT(spec_graph(&graph, NULL, text) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &part) == sinter_success);
    CHECK_THAT(sinter_partition_compile(part, NULL, 0, NULL, 0, NULL, &compiled) == sinter_success);
    CHECK_THAT(sinter_compiled_partition_report(compiled, &report) == sinter_success);
    const char *line = strstr(report, " us of work by estimate");
    while (line != NULL && line > report && line[-1] != ' ') {
        line--;
    }
    us = line != NULL ? strtod(line, NULL) : us;
    CHECK(us >= 0, "%s", report);
    sinter_compiled_partition_destroy(&compiled);
    sinter_partition_destroy(&part);
    sinter_graph_destroy(&graph);
    return us;
}

/* Threads are worth what is read, and experts without rows are not. */
static void the_work(void)
{
    const double one = estimated_work("1"), two = estimated_work("2"), many = estimated_work("512");
    CHECK(one < two && two == many, "%g us of 1 expert, %g of 2, %g of 512", one, two, many);
}

int main(int argc, char **argv)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *part = NULL;
    sinter_compiled_graph_t *whole = NULL;
    size_t n = 0;
    (void)argc;
    wait_passively(argv);
    random_graphs("experts", fz_gen_experts, "moe-matmul");
    random_graphs("experts_mlp", fz_gen_experts_mlp, "moe-mlp");
    for (int i = 0; i < TOKENS * K; i++) {
        x[i] = (float)(i * 37 % 101 - 50) / 16;
    }
    for (int i = 0; i < EXPERTS * N * K; i++) {
        codes[i] = (int8_t)(i * 73 % 251 - 125);
        scales[i / 32] = (float)(i / 32 % 13 + 1) / 64;
    }
    CHECK_THAT(spec_graph(&graph, NULL, GRAPH) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success && n == 1);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &part) == sinter_success);
    CHECK(sinter_graph_compile(graph, NULL, 1, &part, &whole) == sinter_success, "%s",
          sinter_last_error_message());
    if (whole != NULL) {
        numbers_of_tokens(whole);
        wrong_indices(whole);
    }
    sinter_compiled_graph_destroy(&whole);
    sinter_partition_destroy(&part);
    sinter_graph_destroy(&graph);
    the_mlp();
    slices_of_one_table();
    the_work();
    return check_finish();
}
