/* Compiled graphs: they give what the partitions give one by one, bit by bit, with one compile for
 * all dims. Each partition keeps its fpmath mode. Tensors between partitions share memory where
 * they may, in steady state nothing is allocated, and where an allocation fails, nothing leaks.
 * Errors name partition and tensor, and nothing is written then. */
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "check.h"
#include "passive.h"
#include "spec.h"

/* ---- allocations ----------------------------------------------------------------------------- */

static long budget = -1; /* allocations that succeed; -1: all */
static long calls, live;

static void *counted_alloc(size_t bytes, size_t alignment, void *user)
{
    void *p = NULL;
    (void)user;
    calls++;
    if (budget == 0 || posix_memalign(&p, alignment < sizeof p ? sizeof p : alignment, bytes)) {
        return NULL;
    }
    memset(p, 0xFF, bytes); /* NaN in what nobody has written */
    budget -= budget > 0;
    live++;
    return p;
}

static void counted_free(void *p, void *user)
{
    (void)user;
    live -= p != NULL;
    free(p);
}

static sinter_engine_t *engine;

static void open_engine(void)
{
    const sinter_engine_desc_t desc = {.size = sizeof desc,
                                       .allocator = {counted_alloc, counted_free, NULL}};
    CHECK_THAT(sinter_engine_create(&engine, &desc) == sinter_success);
}

static void close_engine(void)
{
    sinter_engine_destroy(&engine);
    CHECK(live == 0, "%ld allocations are left", live);
}

static sinter_stream_t *stream_of(int threads)
{
    const sinter_stream_desc_t desc = {
        .size = sizeof desc, .threads = threads, .all_threads = threads > 1};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(sinter_stream_create(&stream, engine, &desc) == sinter_success);
    return stream;
}

static void check_message(sinter_status_t got, sinter_status_t want, const char *text)
{
    CHECK(got == want && strstr(sinter_last_error_message(), text) != NULL,
          "%s: \"%s\", expected \"%s\"", sinter_status_name(got), sinter_last_error_message(),
          text);
}

/* ---- a layer --------------------------------------------------------------------------------- */

/* Attention and a small MLP over x[B, S, 64] with a cache of T tokens, all dims of which are open.
 * 0: x, 20 and 21: K and V, 30: the result. */
enum { X = 0, K = 20, V = 21, Y = 30, WIDTH = 64, WIDER = 128, PARTS = 5 };

static const char layer[] = "MatMul 0:f32:?x?x64 1:f32:64x64 -> 10:f32:?x?x64;"
                            "MatMul transpose_b=1 10:f32:?x?x64 20:f32:?x?x64 -> 11:f32:?x?x?;"
                            "SoftMax axis=-1 11:f32:?x?x? -> 12:f32:?x?x?;"
                            "MatMul 12:f32:?x?x? 21:f32:?x?x64 -> 13:f32:?x?x64;"
                            "MatMul 13:f32:?x?x64 2:f32:64x64 -> 14:f32:?x?x64;"
                            "Add 14:f32:?x?x64 0:f32:?x?x64 -> 15:f32:?x?x64;"
                            "MatMul 15:f32:?x?x64 3:f32:64x128 -> 16:f32:?x?x128;"
                            "Sigmoid 16:f32:?x?x128 -> 17:f32:?x?x128;"
                            "Multiply 16:f32:?x?x128 17:f32:?x?x128 -> 18:f32:?x?x128;"
                            "MatMul 18:f32:?x?x128 4:f32:128x64 -> 19:f32:?x?x64;"
                            "Add 19:f32:?x?x64 15:f32:?x?x64 -> 30:f32:?x?x64";

static float weights[4][WIDTH * WIDER];
static const sinter_dim_t weight_dims[4][2] = {{64, 64}, {64, 64}, {64, 128}, {128, 64}};

enum { MOST_B = 4, MOST_S = 9, MOST_T = 80 };
static float x[MOST_B * MOST_S * WIDTH], k[MOST_B * MOST_T * WIDTH], v[MOST_B * MOST_T * WIDTH],
    y[MOST_B * MOST_S * WIDTH];

static float noise(void)
{
    static uint32_t state = 1;
    state = state * 1664525u + 1013904223u;
    return (float)(state >> 8) * 0x1p-23f - 1.0f;
}

static void fill(float *to, size_t n, float scale)
{
    for (size_t i = 0; i < n; i++) {
        to[i] = noise() * scale;
    }
}

static void fill_all(void)
{
    for (int i = 0; i < 4; i++) {
        fill(weights[i], WIDTH * WIDER, 0.125f);
    }
    fill(x, sizeof x / sizeof *x, 1);
    fill(k, sizeof k / sizeof *k, 1);
    fill(v, sizeof v / sizeof *v, 1);
}

static sinter_graph_t *graph_of(const char *text)
{
    sinter_graph_t *graph = NULL;
    CHECK(spec_graph(&graph, engine, text) == sinter_success, "%s: %s", text,
          sinter_last_error_message());
    return graph;
}

static sinter_compiled_graph_t *compile(const char *text)
{
    sinter_graph_t *graph = graph_of(text);
    sinter_compiled_graph_t *whole = NULL;
    CHECK(sinter_graph_compile(graph, engine, 0, NULL, &whole) == sinter_success, "%s: %s", text,
          sinter_last_error_message());
    sinter_graph_destroy(&graph);
    return whole;
}

static sinter_status_t bind(sinter_compiled_graph_t *whole, uint64_t id, void *data)
{
    return sinter_compiled_graph_bind(whole, id, 0, NULL, NULL, data, SINTER_BYTES_TRUSTED);
}

static sinter_status_t bind_3d(sinter_compiled_graph_t *whole, uint64_t id, sinter_dim_t b,
                               sinter_dim_t rows, float *data)
{
    const sinter_dim_t dims[3] = {b, rows, WIDTH};
    return sinter_compiled_graph_bind(whole, id, 3, dims, NULL, data,
                                      sizeof(float) * (size_t)(b * rows * WIDTH));
}

static void bind_weights(sinter_compiled_graph_t *whole)
{
    for (int i = 0; i < 4; i++) {
        CHECK_THAT(sinter_compiled_graph_bind(whole, (uint64_t)i + 1, 2, weight_dims[i], NULL,
                                              weights[i], sizeof weights[i]) == sinter_success);
    }
}

static void bind_data(sinter_compiled_graph_t *whole, int b, int s, int t)
{
    CHECK_THAT(bind_3d(whole, X, b, s, x) == sinter_success);
    CHECK_THAT(bind_3d(whole, K, b, t, k) == sinter_success);
    CHECK_THAT(bind_3d(whole, V, b, t, v) == sinter_success);
    CHECK_THAT(bind(whole, Y, y) == sinter_success);
}

/* ---- the same by single partitions ----------------------------------------------------------- */

enum { MOST_TENSORS = 32 };

typedef struct singly {
    sinter_partition_t *parts[PARTS];
    sinter_compiled_partition_t *compiled[PARTS];
    size_t n;
    sinter_tensor_t *tensors[MOST_TENSORS]; /* by id */
    float *made[MOST_TENSORS];
} singly_t;

static void open_singly(singly_t *s, sinter_graph_t *graph)
{
    *s = (singly_t){.n = 0};
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &s->n) == sinter_success && s->n <= PARTS);
    CHECK_THAT(sinter_graph_get_partitions(graph, s->n, s->parts) == sinter_success);
}

static void compile_singly(singly_t *s)
{
    for (size_t i = 0; i < s->n; i++) {
        CHECK_THAT(sinter_partition_compile(s->parts[i], engine, 0, NULL, 0, NULL,
                                            &s->compiled[i]) == sinter_success);
    }
}

static void close_singly(singly_t *s)
{
    for (size_t i = 0; i < s->n; i++) {
        sinter_partition_destroy(&s->parts[i]);
        sinter_compiled_partition_destroy(&s->compiled[i]);
    }
}

static void give(singly_t *s, uint64_t id, int ndims, const sinter_dim_t *dims, float *data)
{
    sinter_logical_tensor_t lt;
    CHECK_THAT(sinter_logical_tensor_init(&lt, id, sinter_f32, ndims, dims,
                                          sinter_tensor_property_undef) == sinter_success);
    CHECK_THAT(sinter_tensor_create(&s->tensors[id], engine, &lt, data, SINTER_BYTES_TRUSTED) ==
               sinter_success);
}

static void run_part(singly_t *s, size_t at, sinter_stream_t *stream)
{
    sinter_logical_tensor_t in[8], out[4];
    const sinter_tensor_t *ins[8];
    sinter_tensor_t *outs[4];
    size_t n_in = 0, n_out = 0;
    CHECK_THAT(sinter_partition_get_input_num(s->parts[at], &n_in) == sinter_success && n_in <= 8);
    CHECK_THAT(sinter_partition_get_output_num(s->parts[at], &n_out) == sinter_success &&
               n_out <= 4);
    CHECK_THAT(sinter_partition_get_inputs(s->parts[at], n_in, in) == sinter_success);
    for (size_t i = 0; i < n_in; i++) {
        ins[i] = s->tensors[in[i].id];
    }
    CHECK(sinter_compiled_partition_infer_outputs(s->compiled[at], n_in, ins, n_out, out) ==
              sinter_success,
          "%s", sinter_last_error_message());
    for (size_t i = 0; i < n_out; i++) {
        size_t bytes = 0;
        CHECK_THAT(sinter_logical_tensor_get_bytes(&out[i], &bytes) == sinter_success);
        s->made[out[i].id] = malloc(bytes + 64);
        give(s, out[i].id, out[i].ndims, out[i].dims, s->made[out[i].id]);
        outs[i] = s->tensors[out[i].id];
    }
    CHECK(sinter_compiled_partition_execute(s->compiled[at], stream, n_in, ins, n_out, outs, NULL,
                                            0) == sinter_success,
          "%s", sinter_last_error_message());
}

/* What the partitions make of these dims one by one, into `to`. */
static void run_singly(singly_t *s, sinter_stream_t *stream, int b, int rows, int t, float *to)
{
    const sinter_dim_t xs[3] = {b, rows, WIDTH}, ts[3] = {b, t, WIDTH};
    give(s, X, 3, xs, x);
    give(s, K, 3, ts, k);
    give(s, V, 3, ts, v);
    for (uint64_t i = 0; i < 4; i++) {
        give(s, i + 1, 2, weight_dims[i], weights[i]);
    }
    for (size_t i = 0; i < s->n; i++) {
        run_part(s, i, stream);
    }
    memcpy(to, s->made[Y], sizeof(float) * (size_t)(b * rows * WIDTH));
    for (int i = 0; i < MOST_TENSORS; i++) {
        sinter_tensor_destroy(&s->tensors[i]);
        free(s->made[i]);
        s->made[i] = NULL;
    }
}

/* ---- results --------------------------------------------------------------------------------- */

static void compare(sinter_compiled_graph_t *whole, singly_t *s, sinter_stream_t *stream,
                    const int *dims, const char *what)
{
    static float want[MOST_B * MOST_S * WIDTH];
    const size_t bytes = sizeof(float) * (size_t)(dims[0] * dims[1] * WIDTH);
    run_singly(s, stream, dims[0], dims[1], dims[2], want);
    memset(y, 0xFF, sizeof y);
    bind_data(whole, dims[0], dims[1], dims[2]);
    CHECK(sinter_compiled_graph_execute(whole, stream) == sinter_success, "%s: %s", what,
          sinter_last_error_message());
    CHECK(memcmp(want, y, bytes) == 0, "%s, B %d, S %d, T %d: other results than one by one", what,
          dims[0], dims[1], dims[2]);
    CHECK(bytes == sizeof y || ((unsigned char *)y)[bytes] == 0xFF, "%s writes beyond", what);
}

static const int all_dims[][3] = {{MOST_B, MOST_S, MOST_T},
                                  {1, 1, 1},
                                  {1, 1, 2},
                                  {4, 1, 33},
                                  {4, 1, 34},
                                  {1, 5, 7},
                                  {2, 0, 3},
                                  {4, 1, 80},
                                  {3, 9, 80},
                                  {1, 1, 2},
                                  {4, 9, 1}};
enum { ALL_DIMS = sizeof all_dims / sizeof *all_dims };

/* One compile for all dims. After the largest ones nothing is allocated. */
static void test_results(int threads)
{
    singly_t s;
    open_engine();
    sinter_stream_t *stream = stream_of(threads);
    sinter_graph_t *graph = graph_of(layer);
    sinter_compiled_graph_t *whole = NULL;
    open_singly(&s, graph);
    compile_singly(&s);
    CHECK_THAT(sinter_graph_compile(graph, engine, 0, NULL, &whole) == sinter_success);
    sinter_graph_destroy(&graph);
    bind_weights(whole);
    for (int i = 0; i < ALL_DIMS; i++) {
        compare(whole, &s, stream, all_dims[i], "whole");
    }
    const long before = calls;
    for (int i = 0; i < ALL_DIMS; i++) {
        bind_data(whole, all_dims[i][0], all_dims[i][1], all_dims[i][2]);
        CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
        CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
    }
    CHECK(calls == before, "%ld allocations in steady state", calls - before);
    close_singly(&s);
    sinter_compiled_graph_destroy(&whole);
    sinter_compiled_graph_destroy(&whole);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* Two layers share compiled partitions. Partitions may come in any order, and their modes stay. */
static void test_shared_and_modes(void)
{
    singly_t s;
    size_t n = 0, ids[PARTS];
    sinter_compiled_partition_t *compiled[PARTS];
    sinter_compiled_graph_t *whole[2] = {NULL, NULL};
    open_engine();
    sinter_stream_t *stream = stream_of(1);
    sinter_graph_t *graph = graph_of(layer);
    open_singly(&s, graph);
    CHECK_THAT(sinter_partition_set_fpmath_mode(s.parts[1], sinter_fpmath_mode_bf16, 1) ==
               sinter_success);
    sinter_partition_t *reversed[PARTS];
    for (size_t i = 0; i < s.n; i++) {
        reversed[i] = s.parts[s.n - 1 - i];
    }
    CHECK_THAT(sinter_graph_compile(graph, engine, s.n, reversed, &whole[0]) == sinter_success);
    compile_singly(&s);
    CHECK_THAT(sinter_compiled_graph_get_partition_num(whole[0], &n) == sinter_success && n == s.n);
    CHECK_THAT(sinter_compiled_graph_get_partitions(whole[0], n, ids, compiled) == sinter_success);
    for (size_t i = 0; i < n; i++) {
        sinter_fpmath_mode_t mode;
        int to_int;
        CHECK_THAT(ids[i] == i);
        CHECK_THAT(sinter_compiled_partition_get_fpmath_mode(compiled[i], &mode, &to_int) ==
                   sinter_success);
        CHECK_THAT(mode == (i == 1 ? sinter_fpmath_mode_bf16 : sinter_fpmath_mode_strict) &&
                   to_int == (i == 1));
    }
    CHECK_THAT(sinter_compiled_graph_create(&whole[1], engine, graph, n, compiled) ==
               sinter_success);
    sinter_graph_destroy(&graph);
    for (int i = 0; i < 2; i++) {
        bind_weights(whole[i]);
        compare(whole[i], &s, stream, all_dims[3], i == 0 ? "first layer" : "second layer");
    }
    sinter_compiled_graph_destroy(&whole[0]);
    compare(whole[1], &s, stream, all_dims[5], "second layer alone");
    sinter_compiled_graph_destroy(&whole[1]);
    close_singly(&s);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* ---- queries --------------------------------------------------------------------------------- */

static void test_queries(void)
{
    size_t n = 0, bytes = 0, end = 0;
    const sinter_arena_tensor_t *t = NULL;
    sinter_logical_tensor_t lts[8], lt;
    open_engine();
    sinter_compiled_graph_t *whole = compile(layer);
    CHECK_THAT(sinter_compiled_graph_get_input_num(whole, &n) == sinter_success && n == 7);
    CHECK_THAT(sinter_compiled_graph_get_inputs(whole, n, lts) == sinter_success);
    CHECK_THAT(lts[0].id == X && lts[0].dims[1] == SINTER_UNKNOWN_DIM && lts[0].dims[2] == 64);
    CHECK_THAT(sinter_compiled_graph_get_output_num(whole, &n) == sinter_success && n == 1);
    CHECK_THAT(sinter_compiled_graph_get_outputs(whole, n, lts) == sinter_success);
    CHECK_THAT(lts[0].id == Y);
    CHECK_THAT(sinter_compiled_graph_query_logical_tensor(whole, 13, &lt) == sinter_success &&
               lt.dims[0] == SINTER_UNKNOWN_DIM);
    check_message(sinter_compiled_graph_get_arena(whole, NULL, &n, &t), sinter_invalid_arguments,
                  "dims of input tensor 0 are not known yet");
    bind_weights(whole);
    CHECK_THAT(bind_3d(whole, X, 4, 3, NULL) == sinter_success);
    CHECK_THAT(bind_3d(whole, K, 4, 50, NULL) == sinter_success);
    CHECK_THAT(bind_3d(whole, V, 4, 50, NULL) == sinter_success);
    CHECK_THAT(sinter_compiled_graph_query_logical_tensor(whole, Y, &lt) == sinter_success &&
               strcmp(spec_text(&lt), "4x3x64") == 0);
    CHECK_THAT(sinter_compiled_graph_get_arena(whole, &bytes, &n, &t) == sinter_success);
    size_t parts = 0;
    CHECK_THAT(sinter_compiled_graph_get_partition_num(whole, &parts) == sinter_success);
    CHECK(n == parts - 1 || n == parts, "%zu tensors between %zu partitions", n, parts);
    for (size_t i = 0; i < n; i++) {
        CHECK_THAT(t[i].first < t[i].last && t[i].last < parts && t[i].offset % 64 == 0);
        end = t[i].offset + t[i].bytes > end ? t[i].offset + t[i].bytes : end;
        for (size_t j = 0; j < i; j++) {
            CHECK(t[j].last < t[i].first || t[i].offset >= t[j].offset + t[j].bytes ||
                      t[j].offset >= t[i].offset + t[i].bytes,
                  "tensors %llu and %llu share memory", (unsigned long long)t[j].id,
                  (unsigned long long)t[i].id);
        }
    }
    CHECK_THAT(bytes >= end);
    size_t sum = 0;
    for (size_t i = 0; i < n; i++) {
        sum += t[i].bytes;
    }
    CHECK(bytes < sum, "no memory is used twice: %zu bytes of %zu", bytes, sum);
    /* A tensor that the caller has bound is not in the block. */
    static float seen[4 * 3 * 64];
    CHECK_THAT(bind(whole, t[0].id, seen) == sinter_success);
    size_t fewer = 0;
    CHECK_THAT(sinter_compiled_graph_get_arena(whole, NULL, &fewer, NULL) == sinter_success &&
               fewer == n - 1);
    sinter_compiled_graph_destroy(&whole);
    close_engine();
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void test_null_arguments(void)
{
    const sinter_status_t bad = sinter_invalid_arguments;
    size_t n = 0;
    const sinter_inplace_pair_t *pairs;
    sinter_logical_tensor_t lt;
    const float one = 1;
    open_engine();
    sinter_graph_t *graph = graph_of(layer);
    sinter_compiled_graph_t *whole = NULL;
    check_message(sinter_graph_compile(NULL, engine, 0, NULL, &whole), bad, "graph != NULL");
    check_message(sinter_graph_compile(graph, engine, 0, NULL, NULL), bad, "compiled != NULL");
    check_message(sinter_graph_compile(graph, engine, 1, NULL, &whole), bad, "partitions != NULL");
    sinter_partition_t *none[1] = {NULL};
    check_message(sinter_graph_compile(graph, engine, 1, none, &whole), bad, "[i] != NULL");
    check_message(sinter_compiled_graph_create(NULL, engine, graph, 0, NULL), bad, "compiled");
    check_message(sinter_compiled_graph_create(&whole, engine, NULL, 0, NULL), bad, "graph");
    check_message(sinter_compiled_graph_create(&whole, engine, graph, 0, NULL), bad,
                  "a partition is missing");
    sinter_graph_t *open = NULL;
    CHECK_THAT(sinter_graph_create(&open, engine, sinter_cpu) == sinter_success);
    check_message(sinter_graph_compile(open, engine, 0, NULL, &whole), bad, "not finalized");
    sinter_graph_destroy(&open);
    CHECK_THAT(whole == NULL);
    CHECK_THAT(sinter_graph_compile(graph, engine, 0, NULL, &whole) == sinter_success);
    check_message(sinter_compiled_graph_destroy(NULL), bad, "compiled != NULL");
    check_message(sinter_compiled_graph_get_partition_num(whole, NULL), bad, "count != NULL");
    check_message(sinter_compiled_graph_get_partitions(whole, 99, NULL, NULL), bad, "n_parts");
    check_message(sinter_compiled_graph_get_input_num(NULL, &n), bad, "w != NULL");
    check_message(sinter_compiled_graph_get_inputs(whole, 1, &lt), bad, "count ==");
    check_message(sinter_compiled_graph_get_outputs(whole, 1, NULL), bad, "ports != NULL");
    check_message(sinter_compiled_graph_get_inplace_ports(whole, NULL, &pairs), bad, "count");
    check_message(sinter_compiled_graph_query_logical_tensor(whole, X, NULL), bad, "lt != NULL");
    check_message(sinter_compiled_graph_bind(NULL, X, 0, NULL, NULL, x, 4), bad, "compiled");
    check_message(sinter_compiled_graph_bind(whole, X, 3, NULL, NULL, x, 4), bad, "dims != NULL");
    check_message(sinter_compiled_graph_bind_scalar(whole, X, NULL), bad, "value != NULL");
    check_message(sinter_compiled_graph_bind_scalar(whole, X, &one), bad, "of one element");
    check_message(sinter_compiled_graph_execute(whole, NULL), bad, "stream != NULL");
    check_message(sinter_compiled_graph_get_arena(NULL, NULL, NULL, NULL), bad, "compiled");
    sinter_compiled_graph_destroy(&whole);
    sinter_graph_destroy(&graph);
    close_engine();
}

static void test_partition_lists(void)
{
    const sinter_status_t bad = sinter_invalid_arguments;
    singly_t s, others;
    sinter_compiled_graph_t *whole = NULL;
    open_engine();
    sinter_graph_t *graph = graph_of(layer), *other = graph_of("ReLU 50:f32:4 -> 51:f32:4");
    open_singly(&s, graph);
    open_singly(&others, other);
    check_message(sinter_graph_compile(graph, engine, s.n - 1, s.parts, &whole), bad,
                  "no partition writes output tensor 30: a partition is missing");
    check_message(sinter_graph_compile(graph, engine, s.n - 1, s.parts + 1, &whole), bad,
                  "tensor 10 is written by no partition before");
    check_message(sinter_graph_compile(graph, engine, 1, others.parts, &whole), bad,
                  "partition 0 (single): tensor 50 is not of this graph");
    sinter_partition_t *twice[2] = {s.parts[0], s.parts[0]};
    check_message(sinter_graph_compile(graph, engine, 2, twice, &whole), bad,
                  "partition 0 is given twice");
    CHECK_THAT(whole == NULL);
    close_singly(&s);
    close_singly(&others);
    sinter_graph_destroy(&graph);
    sinter_graph_destroy(&other);
    close_engine();
}

/* Every op that does not run is in the message. */
static void test_unsupported(void)
{
    sinter_compiled_graph_t *whole = NULL;
    open_engine();
    sinter_graph_t *graph =
        graph_of("#7 AbsBackward 0:f32:4x2 10:f32:4x2 -> 1:f32:4x2; #8 ReLU 1:f32:4x2 -> "
                 "2:f32:4x2; #9 ReLUBackward 2:f32:4x2 11:f32:4x2 -> 3:f32:4x2");
    check_message(sinter_graph_compile(graph, engine, 0, NULL, &whole), sinter_unimplemented,
                  "2 ops of the graph cannot run:\n  op 7 (AbsBackward), partition 0: ");
    CHECK_THAT(strstr(sinter_last_error_message(), "\n  op 9 (ReLUBackward), partition 2: ") !=
               NULL);
    CHECK_THAT(whole == NULL);
    sinter_graph_destroy(&graph);
    close_engine();
}

/* Nobody knows what a Wildcard computes, so its partition is not supported, and says so. */
static void test_wildcard(void)
{
    sinter_compiled_graph_t *whole = NULL;
    sinter_partition_t *parts[2] = {NULL};
    const char *reason = NULL;
    size_t n = 0;
    int supported = 1;
    open_engine();
    sinter_graph_t *graph =
        graph_of("#5 ReLU 0:f32:4 -> 1:f32:4; #6 Wildcard 1:f32:4 2:s4:2 -> 3:f32:5");
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success && n == 2);
    CHECK_THAT(sinter_graph_get_partitions(graph, 2, parts) == sinter_success);
    CHECK_THAT(sinter_partition_is_supported(parts[1], &supported) == sinter_success);
    CHECK_THAT(supported == 0);
    CHECK_THAT(sinter_partition_explain(parts[1], &reason) == sinter_success);
    CHECK(reason != NULL && strstr(reason, "op 6 (Wildcard)") != NULL, "reason \"%s\"",
          reason != NULL ? reason : "none");
    check_message(sinter_graph_compile(graph, engine, 0, NULL, &whole), sinter_unimplemented,
                  "1 op of the graph cannot run:\n  op 6 (Wildcard), partition 1: ");
    CHECK_THAT(whole == NULL);
    sinter_partition_destroy(&parts[0]);
    sinter_partition_destroy(&parts[1]);
    sinter_graph_destroy(&graph);
    close_engine();
}

static void test_binding_errors(void)
{
    const sinter_status_t bad = sinter_invalid_arguments;
    const sinter_dim_t wrong[3] = {1, 2, 65}, fits[3] = {1, 2, 64}, more[3] = {1, 3, 64};
    open_engine();
    sinter_stream_t *stream = stream_of(1);
    sinter_compiled_graph_t *whole = compile(layer);
    check_message(bind(whole, 99, x), bad, "tensor 99 is no input or output of the graph");
    check_message(bind(whole, 11, x), bad, "tensor 11 is no input or output of the graph");
    check_message(bind(whole, X, x), bad, "dims of tensor 0 are not known yet");
    check_message(sinter_compiled_graph_bind(whole, X, 3, wrong, NULL, x, sizeof x), bad,
                  "tensor 0: dim 2 is 65, compiled for 64");
    check_message(sinter_compiled_graph_bind(whole, X, 2, fits, NULL, x, sizeof x), bad,
                  "tensor 0 has 2 dims, compiled for 3");
    check_message(sinter_compiled_graph_bind(whole, X, 3, fits, NULL, x, 511), bad,
                  "tensor 0: 511 bytes given, 512 needed");
    check_message(sinter_compiled_graph_execute(whole, stream), bad,
                  "element 0, partition 0 (single): the dims of input tensor 0 are not known yet");
    bind_weights(whole);
    bind_data(whole, 1, 2, 7);
    memset(y, 0xFF, sizeof y);
    CHECK_THAT(bind_3d(whole, V, 1, 8, v) == sinter_success);
    check_message(sinter_compiled_graph_execute(whole, stream), sinter_invalid_shape,
                  "element 1, partition 1 (sdpa): ");
    CHECK_THAT(bind_3d(whole, V, 1, 7, v) == sinter_success);
    CHECK_THAT(sinter_compiled_graph_bind(whole, Y, 3, more, NULL, y, sizeof y) == sinter_success);
    check_message(sinter_compiled_graph_execute(whole, stream), bad,
                  "tensor 30: dim 1 is 3, the inputs lead to 2");
    /* Whoever is about to bind the output anew asks for its dims first, which follow from the
     * inputs alone. */
    sinter_logical_tensor_t lt;
    CHECK_THAT(sinter_compiled_graph_query_logical_tensor(whole, Y, &lt) == sinter_success);
    CHECK(lt.dims[1] == 2, "dim 1 is %lld", (long long)lt.dims[1]);
    check_message(sinter_compiled_graph_execute(whole, stream), bad,
                  "element 4, partition 4 (matmul): tensor 30: dim 1 is 3, the inputs lead to 2");
    CHECK_THAT(sinter_compiled_graph_bind(whole, Y, 0, NULL, NULL, y, 511) == sinter_success);
    check_message(sinter_compiled_graph_execute(whole, stream), bad,
                  "tensor 30: 511 bytes given, 512 needed");
    CHECK_THAT(bind(whole, Y, y) == sinter_success && bind(whole, K, NULL) == sinter_success);
    check_message(sinter_compiled_graph_execute(whole, stream), bad,
                  "input tensor 20 is not bound");
    CHECK_THAT(((unsigned char *)y)[0] == 0xFF); /* nothing is written */
    CHECK_THAT(bind(whole, K, k) == sinter_success);
    CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
    CHECK_THAT(((unsigned char *)y)[3] != 0xFF);
    sinter_compiled_graph_destroy(&whole);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* ---- sharing memory -------------------------------------------------------------------------- */

/* The result may lie in memory that is only read before it is written. */
static void test_overlaps(void)
{
    singly_t s;
    static float want[MOST_B * MOST_S * WIDTH], kept[MOST_B * MOST_S * WIDTH];
    open_engine();
    sinter_stream_t *stream = stream_of(2);
    sinter_graph_t *graph = graph_of(layer);
    sinter_compiled_graph_t *whole = NULL;
    open_singly(&s, graph);
    compile_singly(&s);
    CHECK_THAT(sinter_graph_compile(graph, engine, 0, NULL, &whole) == sinter_success);
    run_singly(&s, stream, 4, 9, 11, want);
    bind_weights(whole);
    bind_data(whole, 4, 9, 11);
    memcpy(kept, x, sizeof x);
    CHECK_THAT(bind(whole, Y, x) == sinter_success); /* the hidden state in place */
    CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
    CHECK_THAT(memcmp(want, x, sizeof x) == 0);
    memcpy(x, kept, sizeof x);
    /* What the first product makes must not go over x, which is added later. */
    CHECK_THAT(bind(whole, 10, x) == sinter_success);
    check_message(sinter_compiled_graph_execute(whole, stream), sinter_invalid_arguments,
                  "element 0, partition 0 (single) writes tensor 10 over tensor 0, which a later "
                  "partition reads");
    CHECK_THAT(memcmp(kept, x, sizeof x) == 0);
    CHECK_THAT(bind(whole, 10, NULL) == sinter_success && bind(whole, Y, y) == sinter_success);
    CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
    CHECK_THAT(memcmp(want, y, sizeof x) == 0);
    sinter_compiled_graph_destroy(&whole);
    close_singly(&s);
    sinter_graph_destroy(&graph);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* Pairs lead from the result to x: x + attention, and what is added to that. An output that is not
 * bound takes the buffer of its input, and with it the sum between them. */
static void test_pairs(void)
{
    singly_t s;
    size_t n = 0, before = 0, after = 0;
    const sinter_inplace_pair_t *pairs = NULL;
    static float want[MOST_B * MOST_S * WIDTH], kept[MOST_B * MOST_S * WIDTH];
    open_engine();
    sinter_stream_t *stream = stream_of(2);
    sinter_graph_t *graph = graph_of(layer);
    sinter_compiled_graph_t *whole = NULL;
    open_singly(&s, graph);
    compile_singly(&s);
    CHECK_THAT(sinter_graph_compile(graph, engine, 0, NULL, &whole) == sinter_success);
    sinter_graph_destroy(&graph);
    CHECK_THAT(sinter_compiled_graph_get_inplace_ports(whole, &n, &pairs) == sinter_success);
    CHECK_THAT(n == 1 && pairs[0].input_id == X && pairs[0].output_id == Y);
    run_singly(&s, stream, 4, 9, 11, want);
    bind_weights(whole);
    bind_data(whole, 4, 9, 11);
    memcpy(kept, x, sizeof x);
    CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
    CHECK_THAT(memcmp(kept, x, sizeof x) == 0 && memcmp(want, y, sizeof y) == 0);
    CHECK_THAT(sinter_compiled_graph_get_arena(whole, NULL, &before, NULL) == sinter_success);
    CHECK_THAT(bind(whole, Y, NULL) == sinter_success);
    CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
    CHECK_THAT(memcmp(want, x, sizeof x) == 0);
    CHECK_THAT(sinter_compiled_graph_get_arena(whole, NULL, &after, NULL) == sinter_success);
    CHECK(after == before - 1, "%zu tensors in the block, before %zu", after, before);
    memcpy(x, kept, sizeof x);
    sinter_compiled_graph_destroy(&whole);
    close_singly(&s);
    /* Without a pair an output must be bound. */
    whole = compile("MatMul 0:f32:2x2 1:f32:2x2 -> 2:f32:2x2");
    CHECK_THAT(sinter_compiled_graph_get_inplace_ports(whole, &n, &pairs) == sinter_success);
    CHECK_THAT(n == 0 && bind(whole, 0, x) == sinter_success &&
               bind(whole, 1, k) == sinter_success);
    check_message(sinter_compiled_graph_execute(whole, stream), sinter_invalid_arguments,
                  "output tensor 2 is not bound");
    CHECK_THAT(bind(whole, 2, x) == sinter_success);
    check_message(sinter_compiled_graph_execute(whole, stream), sinter_invalid_arguments,
                  "output tensor 2 overlaps input tensor 0");
    sinter_compiled_graph_destroy(&whole);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* Two caches of one shape, updated in place: each output takes the buffer of its own cache. What is
 * read behind the append is what was appended. */
/* A chain of in-place pairs, one for each partition, in a thread with a small stack. */
enum { DEEP = 5000 };
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
enum { DEEP_STACK = 512 << 10 }; /* with room around each variable */
#else
enum { DEEP_STACK = 128 << 10 };
#endif

static void *run_deep(void *unused)
{
    static float data[4] = {-1, 2, -3, 4};
    const int64_t dims[1] = {4};
    sinter_graph_t *graph = NULL;
    sinter_compiled_graph_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    size_t n = 0;
    const sinter_inplace_pair_t *pairs = NULL;
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = 1};
    (void)unused;
    sinter_status_t status = sinter_graph_create(&graph, NULL, sinter_cpu);
    for (uint64_t i = 0; i < DEEP && status == sinter_success; i++) {
        sinter_logical_tensor_t in, out;
        sinter_logical_tensor_init(&in, i, sinter_f32, 1, dims, sinter_tensor_property_undef);
        sinter_logical_tensor_init(&out, i + 1, sinter_f32, 1, dims, sinter_tensor_property_undef);
        status = sinter_graph_add(graph, i, sinter_op_abs, sinter_in(&in), sinter_out(&out));
    }
    status = status ? status : sinter_graph_finalize(graph);
    status = status ? status : sinter_graph_filter(graph, sinter_partition_policy_debug);
    status = status ? status : sinter_graph_compile(graph, NULL, 0, NULL, &compiled);
    status = status ? status : sinter_stream_create(&stream, NULL, &desc);
    status =
        status ? status : sinter_compiled_graph_bind(compiled, 0, 0, NULL, NULL, data, sizeof data);
    status = status ? status : sinter_compiled_graph_execute(compiled, stream);
    CHECK(status == sinter_success, "%s", sinter_last_error_message());
    CHECK_THAT(sinter_compiled_graph_get_inplace_ports(compiled, &n, &pairs) == sinter_success &&
               n == 1 && pairs[0].input_id == 0 && pairs[0].output_id == DEEP);
    CHECK_THAT(data[0] == 1 && data[1] == 2 && data[2] == 3 && data[3] == 4);
    sinter_compiled_graph_destroy(&compiled);
    sinter_graph_destroy(&graph);
    sinter_stream_destroy(&stream);
    return NULL;
}

static void test_deep(void)
{
    pthread_t thread;
    pthread_attr_t attributes;
    pthread_attr_init(&attributes);
    CHECK_THAT(pthread_attr_setstacksize(&attributes, DEEP_STACK) == 0);
    CHECK_THAT(pthread_create(&thread, &attributes, run_deep, NULL) == 0);
    pthread_join(thread, NULL);
    pthread_attr_destroy(&attributes);
}

static void test_caches(void)
{
    enum { ROWS = 6, COLUMNS = 8, N = 2 };
    static float a[ROWS][COLUMNS], b[ROWS][COLUMNS], out[ROWS][COLUMNS], copy[ROWS][COLUMNS];
    static float updates[2][N][COLUMNS];
    int32_t slots[N] = {4, 1};
    const sinter_dim_t cache[2] = {ROWS, COLUMNS}, rows[2] = {N, COLUMNS}, n[1] = {N};
    size_t n_pairs = 0;
    const sinter_inplace_pair_t *pairs = NULL;
    open_engine();
    sinter_stream_t *stream = stream_of(2);
    sinter_compiled_graph_t *whole =
        compile("ScatterRows axis=0 0:f32:?x8 1:s32:? 2:f32:?x8 -> 3:f32:?x8; ScatterRows axis=0 "
                "4:f32:?x8 1:s32:? 5:f32:?x8 -> 6:f32:?x8; Subtract 3:f32:?x8 6:f32:?x8 -> "
                "7:f32:?x8; ports 0,1,2,4,5 -> 3,6,7");
    CHECK_THAT(sinter_compiled_graph_get_inplace_ports(whole, &n_pairs, &pairs) == sinter_success);
    CHECK_THAT(n_pairs == 2 && pairs[0].input_id == 0 && pairs[0].output_id == 3 &&
               pairs[1].input_id == 4 && pairs[1].output_id == 6);
    for (int i = 0; i < N * COLUMNS; i++) {
        updates[0][i / COLUMNS][i % COLUMNS] = (float)(i + 1);
        updates[1][i / COLUMNS][i % COLUMNS] = (float)(100 * i);
    }
    float *const caches[2] = {&a[0][0], &b[0][0]};
    for (int i = 0; i < 2; i++) {
        CHECK_THAT(sinter_compiled_graph_bind(whole, i == 0 ? 0 : 4, 2, cache, NULL, caches[i],
                                              sizeof a) == sinter_success);
        CHECK_THAT(sinter_compiled_graph_bind(whole, i == 0 ? 2 : 5, 2, rows, NULL, updates[i],
                                              sizeof updates[i]) == sinter_success);
    }
    CHECK_THAT(sinter_compiled_graph_bind(whole, 1, 1, n, NULL, slots, sizeof slots) ==
               sinter_success);
    CHECK_THAT(bind(whole, 7, out) == sinter_success);
    CHECK(sinter_compiled_graph_execute(whole, stream) == sinter_success, "%s",
          sinter_last_error_message());
    for (int i = 0; i < N; i++) {
        CHECK_THAT(memcmp(a[slots[i]], updates[0][i], sizeof a[0]) == 0 &&
                   memcmp(b[slots[i]], updates[1][i], sizeof a[0]) == 0);
    }
    CHECK_THAT(a[0][0] == 0 && b[5][7] == 0 && out[4][1] == 2 - 100 && out[1][0] == 9 - 800);
    /* A slot outside of the cache: nothing is written. */
    memcpy(copy, a, sizeof a);
    memset(out, 0xFF, sizeof out);
    memset(updates, 0, sizeof updates);
    slots[1] = ROWS;
    check_message(sinter_compiled_graph_execute(whole, stream), sinter_invalid_arguments,
                  "slot 6 of row 1 is outside a dimension of 6");
    CHECK_THAT(strncmp(sinter_last_error_message(), "element ", 8) == 0);
    CHECK_THAT(memcmp(copy, a, sizeof a) == 0 && ((unsigned char *)out)[3] == 0xFF);
    /* Bound elsewhere, the output is a copy, and the cache stays. */
    slots[1] = 1;
    static float elsewhere[ROWS][COLUMNS];
    CHECK_THAT(bind(whole, 3, elsewhere) == sinter_success);
    CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
    CHECK_THAT(memcmp(copy, a, sizeof a) == 0 && elsewhere[4][0] == 0 && b[4][1] == 0);
    sinter_compiled_graph_destroy(&whole);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* ---- errors in elements ---------------------------------------------------------------------- */

/* Indices, slots and positions that are inputs of the graph are checked before its first partition
 * runs: an error in the last one leaves the first one's result unwritten, too. */
static void test_checked_first(void)
{
    static float in[4] = {1, 2, 3, 4}, out[4], cache[6][4], rows[2][4], picked[2][4];
    int32_t slots[2] = {4, 6}, ids[2] = {0, 5};
    const struct {
        uint64_t id;
        void *data;
    } ports[] = {{0, in},   {1, out},   {2, cache}, {3, slots},
                 {4, rows}, {5, cache}, {6, ids},   {7, picked}};
    open_engine();
    for (int threads = 1; threads < 4; threads += 2) {
        sinter_stream_t *stream = stream_of(threads);
        sinter_compiled_graph_t *whole =
            compile("Exp 0:f32:4 -> 1:f32:4; ScatterRows axis=0 2:f32:6x4 3:s32:2 4:f32:2x4 -> "
                    "5:f32:6x4; Gather 5:f32:6x4 6:s32:2 -> 7:f32:2x4; ports 0,2,3,4,6 -> 1,5,7");
        for (size_t i = 0; i < sizeof ports / sizeof *ports; i++) {
            CHECK_THAT(bind(whole, ports[i].id, ports[i].data) == sinter_success);
        }
        memset(out, 0xFF, sizeof out);
        memset(picked, 0xFF, sizeof picked);
        slots[1] = 6;
        check_message(sinter_compiled_graph_execute(whole, stream), sinter_invalid_arguments,
                      "tensor 3: slot 6 of row 1 is outside a dimension of 6");
        CHECK_THAT(((unsigned char *)out)[3] == 0xFF);
        slots[1] = 5;
        ids[0] = -7;
        check_message(sinter_compiled_graph_execute(whole, stream), sinter_invalid_arguments,
                      "tensor 6: index -7 at position 0 is outside a dimension of 6");
        CHECK_THAT(strncmp(sinter_last_error_message(), "element 2, partition 2", 22) == 0);
        CHECK_THAT(((unsigned char *)out)[3] == 0xFF && ((unsigned char *)picked)[3] == 0xFF);
        ids[0] = 0;
        CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
        CHECK_THAT(((unsigned char *)out)[3] != 0xFF && ((unsigned char *)picked)[3] != 0xFF);
        sinter_compiled_graph_destroy(&whole);
        sinter_stream_destroy(&stream);
    }
    close_engine();
}

/* Indices that another partition makes are checked when they are there. */
static void test_checked_late(void)
{
    static float in[4] = {1, 2, 3, 9}, table[3] = {5, 6, 7}, out[1];
    open_engine();
    sinter_stream_t *stream = stream_of(1);
    sinter_compiled_graph_t *whole =
        compile("TopK k=1 0:f32:4 -> 1:f32:1 2:s32:1; Gather 3:f32:3 2:s32:1 -> 4:f32:1; "
                "ports 0,3 -> 4");
    CHECK_THAT(bind(whole, 0, in) == sinter_success && bind(whole, 3, table) == sinter_success &&
               bind(whole, 4, out) == sinter_success);
    check_message(sinter_compiled_graph_execute(whole, stream), sinter_invalid_arguments,
                  "tensor 2: index 3 at position 0 is outside a dimension of 3");
    in[1] = 10;
    CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success && out[0] == 6);
    sinter_compiled_graph_destroy(&whole);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* Dropout is for inference: with a probability other than 0 nothing is written. */
static void test_dropout(void)
{
    static float first[4] = {1, 4, 9, 16}, in[4] = {1, 4, 9, 16}, out[4], last[4];
    const float bad[] = {0.5f, -0.25f, 0x1p-140f, 1};
    int64_t seed = INT64_C(1) << 40, offset = 3;
    open_engine();
    sinter_stream_t *stream = stream_of(1);
    sinter_compiled_graph_t *whole =
        compile("SoftMax axis=0 0:f32:4 -> 1:f32:4; #7 Dropout 2:f32:4 3:s64:- 4:s64:- 5:f32:- -> "
                "6:f32:4; Sqrt 6:f32:4 -> 7:f32:4; ports 0,2,3,4,5 -> 1,7");
    size_t n = 0;
    CHECK_THAT(sinter_compiled_graph_get_partition_num(whole, &n) == sinter_success && n == 2);
    CHECK_THAT(bind(whole, 0, first) == sinter_success && bind(whole, 1, out) == sinter_success &&
               bind(whole, 2, in) == sinter_success && bind(whole, 7, last) == sinter_success);
    CHECK_THAT(sinter_compiled_graph_bind_scalar(whole, 3, &seed) == sinter_success &&
               sinter_compiled_graph_bind_scalar(whole, 4, &offset) == sinter_success);
    memset(out, 0xFF, sizeof out);
    for (int i = 0; i < 4; i++) {
        CHECK_THAT(sinter_compiled_graph_bind_scalar(whole, 5, &bad[i]) == sinter_success);
        check_message(sinter_compiled_graph_execute(whole, stream), sinter_invalid_arguments,
                      "op 7 (Dropout): tensor 5: the probability is ");
        CHECK_THAT(((unsigned char *)out)[3] == 0xFF);
    }
    CHECK_THAT(sinter_compiled_graph_bind_scalar(whole, 5, &(float){0}) == sinter_success);
    CHECK(sinter_compiled_graph_execute(whole, stream) == sinter_success, "%s",
          sinter_last_error_message());
    CHECK_THAT(((unsigned char *)out)[3] != 0xFF && last[0] == 1 && last[3] == 4);
    sinter_compiled_graph_destroy(&whole);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* ---- sequences in one cache ------------------------------------------------------------------ */

/* Rows of three for each sequence, in one cache: their number is a multiple of that of sequences,
 * and neither is known when the graph is compiled. */
static void test_open_batch(void)
{
    static float q[5][4], cache[15][4], out[5][3];
    const sinter_dim_t none[2] = {0, 4};
    fill(&q[0][0], sizeof q / sizeof(float), 1);
    fill(&cache[0][0], sizeof cache / sizeof(float), 1);
    open_engine();
    sinter_stream_t *stream = stream_of(1);
    sinter_compiled_graph_t *whole =
        compile("StaticReshape shape=-1,1,4 special_zero=0 0:f32:?x4 -> 1:f32:?x1x4; "
                "StaticReshape shape=-1,3,4 special_zero=0 2:f32:?x4 -> 3:f32:?x3x4; "
                "MatMul transpose_b=1 1:f32:?x1x4 3:f32:?x3x4 -> 4:f32:?x1x3");
    for (int n = 5; n >= 0; n--) {
        const sinter_dim_t few[2] = {n, 4}, rows[2] = {3 * n, 4};
        CHECK_THAT(sinter_compiled_graph_bind(whole, 0, 2, few, NULL, q, sizeof q) ==
                       sinter_success &&
                   sinter_compiled_graph_bind(whole, 2, 2, n > 0 ? rows : none, NULL, cache,
                                              sizeof cache) == sinter_success &&
                   bind(whole, 4, out) == sinter_success);
        memset(out, 0xFF, sizeof out);
        CHECK(sinter_compiled_graph_execute(whole, stream) == sinter_success, "%s",
              sinter_last_error_message());
        for (int i = 0; i < 3 * n; i++) {
            float want = 0;
            for (int d = 0; d < 4; d++) {
                want += q[i / 3][d] * cache[i][d];
            }
            CHECK(out[i / 3][i % 3] - want < 1e-6f && want - out[i / 3][i % 3] < 1e-6f,
                  "%d sequences: %g, not %g", n, (double)out[i / 3][i % 3], (double)want);
        }
    }
    sinter_compiled_graph_destroy(&whole);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* ---- heads of open rows ---------------------------------------------------------------------- */

/* Rows are tokens times heads, and only the heads are known, whatever their number: none of them
 * divides all that a compile may put in for what it does not know. */
static void test_open_heads(void)
{
    enum { MOST_HEADS = 71, TOKENS = 3, HEAD = 2 };
    static float in[TOKENS * MOST_HEADS][HEAD], out[MOST_HEADS][TOKENS][HEAD];
    fill(&in[0][0], sizeof in / sizeof(float), 1);
    open_engine();
    sinter_stream_t *stream = stream_of(1);
    for (int heads = 2; heads <= MOST_HEADS; heads++) {
        char text[256];
        const sinter_dim_t rows[2] = {(sinter_dim_t)TOKENS * heads, HEAD};
        snprintf(text, sizeof text,
                 "StaticReshape shape=-1,%d,2 special_zero=0 0:f32:?x2 -> 1:f32:?x%dx2; "
                 "StaticTranspose order=1,0,2 1:f32:?x%dx2 -> 2:f32:%dx?x2",
                 heads, heads, heads, heads);
        sinter_compiled_graph_t *whole = compile(text);
        memset(out, 0xFF, sizeof out);
        CHECK_THAT(sinter_compiled_graph_bind(whole, 0, 2, rows, NULL, in, sizeof in) ==
                       sinter_success &&
                   bind(whole, 2, out) == sinter_success);
        CHECK(sinter_compiled_graph_execute(whole, stream) == sinter_success, "%d heads: %s", heads,
              sinter_last_error_message());
        bool right = true;
        for (int i = 0; i < TOKENS * heads * HEAD; i++) {
            const int row = i / HEAD, head = row % heads, token = row / heads;
            right &=
                (&out[0][0][0])[(head * TOKENS + token) * HEAD + i % HEAD] == in[row][i % HEAD];
        }
        CHECK(right, "%d heads: wrong", heads);
        sinter_compiled_graph_destroy(&whole);
    }
    sinter_stream_destroy(&stream);
    close_engine();
}

/* ---- scalars --------------------------------------------------------------------------------- */

static void test_scalars(void)
{
    float in[4] = {1, 2, 3, 4}, out[4] = {0};
    open_engine();
    sinter_stream_t *stream = stream_of(1);
    sinter_compiled_graph_t *whole = compile("Multiply 0:f32:4 1:f32:- -> 2:f32:4");
    CHECK_THAT(bind(whole, 0, in) == sinter_success && bind(whole, 2, out) == sinter_success);
    for (int i = 1; i < 4; i++) {
        float factor = (float)i;
        CHECK_THAT(sinter_compiled_graph_bind_scalar(whole, 1, &factor) == sinter_success);
        factor = 99;
        CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success);
        CHECK_THAT(out[0] == (float)i && out[3] == 4 * (float)i);
    }
    float own = 7;
    CHECK_THAT(bind(whole, 1, &own) == sinter_success);
    CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success && out[1] == 14);
    own = 8;
    CHECK_THAT(sinter_compiled_graph_execute(whole, stream) == sinter_success && out[1] == 16);
    sinter_compiled_graph_destroy(&whole);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* ---- memory that is not there ---------------------------------------------------------------- */

static sinter_status_t build_and_run(sinter_graph_t *graph, sinter_stream_t *stream,
                                     sinter_compiled_graph_t **whole)
{
    sinter_status_t status = sinter_graph_compile(graph, engine, 0, NULL, whole);
    if (status == sinter_success) {
        bind_weights(*whole);
        bind_data(*whole, 4, 1, 20);
        status = sinter_compiled_graph_execute(*whole, stream);
    }
    return status;
}

static void test_no_memory(void)
{
    long n = 0;
    open_engine();
    sinter_stream_t *stream = stream_of(2);
    sinter_graph_t *graph = graph_of(layer);
    for (sinter_status_t status = sinter_out_of_memory; status != sinter_success; n++) {
        sinter_compiled_graph_t *whole = NULL;
        budget = n;
        status = build_and_run(graph, stream, &whole);
        budget = -1;
        CHECK_THAT(status == sinter_success || status == sinter_out_of_memory);
        /* after a failure it works with enough memory */
        CHECK_THAT(whole == NULL || sinter_compiled_graph_execute(whole, stream) == sinter_success);
        sinter_compiled_graph_destroy(&whole);
        if (n > 5000) {
            break;
        }
    }
    CHECK_THAT(n > 20 && n < 5000);
    sinter_graph_destroy(&graph);
    sinter_stream_destroy(&stream);
    close_engine();
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    fill_all();
    test_results(1);
    test_results(2);
    test_shared_and_modes();
    test_queries();
    test_null_arguments();
    test_partition_lists();
    test_unsupported();
    test_wildcard();
    test_binding_errors();
    test_overlaps();
    test_pairs();
    test_deep();
    test_caches();
    test_checked_first();
    test_checked_late();
    test_dropout();
    test_open_batch();
    test_open_heads();
    test_scalars();
    test_no_memory();
    return check_finish();
}
