/* The router of a mixture of experts: graphs drawn at random against the oracle, most of which are
 * one partition; which graphs are one and which are not; and one compile for any number of tokens,
 * none among them, with ties and NaN, and the same bits with any number of threads.
 * SINTER_RANDOM_SEED makes other graphs, SINTER_RANDOM_CASES more. */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "../fuzz/fuzz.h"
#include "check.h"
#include "passive.h"
#include "spec.h"

enum { TOKENS = 40, EXPERTS = 23, K = 8, EACH = 4 };

static void random_graphs(void)
{
    const char *seed_text = getenv("SINTER_RANDOM_SEED"),
               *cases_text = getenv("SINTER_RANDOM_CASES");
    const uint64_t seed = seed_text ? strtoull(seed_text, NULL, 0) : 1;
    const long cases = cases_text ? strtol(cases_text, NULL, 0) : 200;
    long routers = 0;

    for (long i = 0; i < cases; i++) {
        char text[1024] = "";
        fz_t f;

        fz_init(&f, seed * 100000 + (uint64_t)i);
        f.generator = "router";
        f.dynamic = fz_chance(&f, 40);
        fz_gen_router(&f);
        const fz_outcome_t outcome = fz_run(&f, text, sizeof text);
        CHECK(outcome == FZ_PASSED, "case %ld %s: %s", i,
              outcome == FZ_FAILED ? "failed" : "is unsupported", text);
        if (outcome != FZ_PASSED) {
            fz_print(&f);
        }
        fz_free(&f);
    }
    for (size_t i = 0; i < sizeof fz_tally.patterns / sizeof *fz_tally.patterns; i++) {
        routers +=
            strcmp(fz_tally.patterns[i].name, "moe-router") == 0 ? fz_tally.patterns[i].n : 0;
    }
    CHECK(10 * routers >= 9 * cases, "%ld of %ld routers are one partition", routers, cases);
}

/* ---- which graphs are routers ---------------------------------------------------------------- */

#define GATE "MatMul transpose_b=1 0:f32:?x8 1:f32!:24x8 -> 2:f32:?x24; "
#define BEST "TopK k=4 3:f32:?x24 -> 4:f32:?x4 5:s32:?x4; "
#define TAKEN "Gather axis=1 batch_dims=1 3:f32:?x24 5:s32:?x4 -> 6:f32:?x4; "

static void one_or_more(void)
{
    static const struct {
        const char *graph, *first; /* the pattern of the partition that has the TopK */
        size_t n;
    } rows[] = {
        {GATE "SoftMax axis=1 2:f32:?x24 -> 3:f32:?x24; " BEST TAKEN "ports 0,1 -> 5,6",
         "moe-router", 1},
        {GATE "Sigmoid 2:f32:?x24 -> 3:f32:?x24; " BEST TAKEN
              "ReduceSum axes=-1 keep_dims=1 6:f32:?x4 -> 7:f32:?x1; "
              "Divide 6:f32:?x4 7:f32:?x1 -> 8:f32:?x4; ports 0,1 -> 5,8",
         "moe-router", 1},
        /* Scores turned to probabilities for what is taken alone, as in Llama 4. */
        {GATE "Add 2:f32:?x24 7:f32:24 -> 3:f32:?x24; " BEST
              "Sigmoid 3:f32:?x24 -> 8:f32:?x24; Gather axis=1 batch_dims=1 8:f32:?x24 5:s32:?x4 "
              "-> 6:f32:?x4; ports 0,1,7 -> 5,6",
         "moe-router", 1},
        /* One list of indices for all tokens: TopK gives no such indices. */
        {GATE "SoftMax axis=1 2:f32:?x24 -> 3:f32:?x24; " BEST
              "Gather axis=1 3:f32:?x24 7:s32:4 -> 6:f32:?x4; ports 0,1,7 -> 5,6",
         "moe-router", 2},
        /* Indices of a longer row. */
        {GATE "Sigmoid 2:f32:?x24 -> 3:f32:?x24; TopK k=4 9:f32:?x32 -> 4:f32:?x4 5:s32:?x4; " TAKEN
              "ports 0,1,9 -> 5,6",
         "single", 3},
        /* Rows of unknown length. */
        {"TopK k=4 0:f32:?x? -> 4:f32:?x4 5:s32:?x4; Gather axis=1 batch_dims=1 0:f32:?x? "
         "5:s32:?x4 -> 6:f32:?x4; ports 0 -> 5,6",
         "single", 2},
        /* A table that the router does not know. */
        {GATE "SoftMax axis=1 2:f32:?x24 -> 3:f32:?x24; " BEST
              "Gather 7:f32:24x3 5:s32:?x4 -> 6:f32:?x4x3; ports 0,1,7 -> 4,6",
         "moe-router", 2},
        /* What reads the scores alone. */
        {GATE "SoftMax axis=1 2:f32:?x24 -> 3:f32:?x24; " BEST
              "ReduceMax axes=0 3:f32:?x24 -> 6:f32:24; ports 0,1 -> 4,5,6",
         "moe-router", 2},
        /* A TopK alone. */
        {"TopK k=4 3:f32:?x24 -> 4:f32:?x4 5:s32:?x4; ports 3 -> 4,5", "single", 1},
    };
    for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
        sinter_graph_t *graph = NULL;
        sinter_partition_t *parts[8] = {NULL};
        size_t n = 0;
        bool found = false;
        CHECK_THAT(spec_graph(&graph, NULL, rows[i].graph) == sinter_success);
        CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
        CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success && n <= 8);
        CHECK_THAT(sinter_graph_get_partitions(graph, n, parts) == sinter_success);
        for (size_t k = 0; k < n; k++) {
            const char *text = "", *name = "";
            CHECK_THAT(sinter_partition_explain(parts[k], &text) == sinter_success);
            CHECK_THAT(sinter_partition_get_pattern(parts[k], &name) == sinter_success);
            found = found || (strstr(text, "TopK") != NULL && strcmp(name, rows[i].first) == 0);
            sinter_partition_destroy(&parts[k]);
        }
        CHECK(n == rows[i].n && found, "graph %zu: %zu partitions", i, n);
        sinter_graph_destroy(&graph);
    }
}

/* ---- one compile ----------------------------------------------------------------------------- */

#define GRAPH                                                                              \
    "MatMul transpose_b=1 0:f32:?x8 1:f32!:23x8 -> 2:f32:?x23; TopK k=4 2:f32:?x23 -> "    \
    "3:f32:?x4 4:s32:?x4; Gather axis=1 batch_dims=1 2:f32:?x23 4:s32:?x4 -> 5:f32:?x4; "  \
    "ReduceSum axes=-1 keep_dims=1 5:f32:?x4 -> 6:f32:?x1; Divide 5:f32:?x4 6:f32:?x1 -> " \
    "7:f32:?x4; ports 0,1 -> 4,7"

static float x[TOKENS * K], gate[EXPERTS * K], weights[TOKENS * EACH];
static int32_t ids[TOKENS * EACH];

static sinter_status_t run(sinter_compiled_graph_t *whole, int tokens, int threads)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    const sinter_dim_t of_x[2] = {tokens, K};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    const struct {
        uint64_t id;
        int ndims;
        const sinter_dim_t *dims;
        void *data;
    } tensors[] = {{0, 2, of_x, x}, {1, 0, NULL, gate}, {4, 0, NULL, ids}, {7, 0, NULL, weights}};
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        CHECK_THAT(sinter_compiled_graph_bind(whole, tensors[i].id, tensors[i].ndims,
                                              tensors[i].dims, NULL, tensors[i].data,
                                              SINTER_BYTES_TRUSTED) == sinter_success);
    }
    const sinter_status_t status = sinter_compiled_graph_execute(whole, stream);
    sinter_stream_destroy(&stream);
    return status;
}

/* Small integers have exact sums, of which many are equal: the first one of these is better. */
static int wrong_choices(int tokens)
{
    int wrong = 0;
    for (int t = 0; t < tokens; t++) {
        double score[EXPERTS], sum = 0, best[EACH];
        bool taken[EXPERTS] = {false};
        for (int e = 0; e < EXPERTS; e++) {
            score[e] = 0;
            for (int i = 0; i < K; i++) {
                score[e] += (double)x[t * K + i] * (double)gate[e * K + i];
            }
        }
        for (int i = 0; i < EACH; i++) {
            int first = -1;
            for (int e = 0; e < EXPERTS; e++) {
                const bool better = first < 0 || score[e] > score[first] ||
                                    (isnan(score[e]) && !isnan(score[first]));
                first = !taken[e] && better ? e : first;
            }
            taken[first] = true;
            best[i] = score[first];
            sum += best[i];
            wrong += ids[t * EACH + i] != first;
        }
        for (int i = 0; i < EACH; i++) {
            const double got = (double)weights[t * EACH + i], want = best[i] / sum;
            wrong += isfinite(want) ? !(fabs(got - want) <= 1e-6 * fabs(want))
                                    : isnan(want) != isnan(got);
        }
    }
    return wrong;
}

static void numbers_of_tokens(sinter_compiled_graph_t *whole)
{
    static const int tokens[] = {1, 3, TOKENS, 0, 2}, threads[] = {1, 2, 3, 7};
    static int32_t first_ids[TOKENS * EACH];
    static float first_weights[TOKENS * EACH];
    for (int i = 0; i < 5; i++) {
        for (int t = 0; t < 4; t++) {
            memset(ids, 0xff, sizeof ids);
            memset(weights, 0, sizeof weights);
            CHECK(run(whole, tokens[i], threads[t]) == sinter_success, "%s",
                  sinter_last_error_message());
            if (t == 0) {
                memcpy(first_ids, ids, sizeof ids);
                memcpy(first_weights, weights, sizeof weights);
            }
            CHECK(memcmp(first_ids, ids, sizeof ids) == 0 &&
                      memcmp(first_weights, weights, sizeof weights) == 0,
                  "%d tokens, %d threads: other bits", tokens[i], threads[t]);
        }
        const int wrong = wrong_choices(tokens[i]);
        CHECK(wrong == 0, "%d tokens: %d results are wrong", tokens[i], wrong);
        int beyond = 0;
        for (int r = tokens[i] * EACH; r < TOKENS * EACH; r++) {
            beyond += ids[r] != -1;
        }
        CHECK(beyond == 0, "%d tokens: %d ids beyond them", tokens[i], beyond);
    }
}

int main(int argc, char **argv)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *part = NULL;
    sinter_compiled_graph_t *whole = NULL;
    size_t n = 0;
    (void)argc;
    wait_passively(argv);
    random_graphs();
    one_or_more();
    for (int i = 0; i < TOKENS * K; i++) {
        x[i] = (float)(i * 37 % 5 + 1);
    }
    for (int i = 0; i < EXPERTS * K; i++) {
        gate[i] = (float)(i * 73 % 7 + 1);
    }
    x[7 * K + 2] = NAN;
    CHECK_THAT(spec_graph(&graph, NULL, GRAPH) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success && n == 1);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &part) == sinter_success);
    CHECK(sinter_graph_compile(graph, NULL, 1, &part, &whole) == sinter_success, "%s",
          sinter_last_error_message());
    if (whole != NULL) {
        numbers_of_tokens(whole);
    }
    sinter_compiled_graph_destroy(&whole);
    sinter_partition_destroy(&part);
    sinter_graph_destroy(&graph);
    return check_finish();
}
