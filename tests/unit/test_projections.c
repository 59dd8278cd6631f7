/* Several products of one activation in one partition: the first one makes integers of it, the
 * others use them. They give the bits that each product gives in a partition of its own, for any
 * number of rows and threads, and where some rows are not finite. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "check.h"
#include "passive.h"
#include "spec.h"

enum { K = 256, N = 200, OTHER_N = 72, MOST_ROWS = 300, THIRD_N = 8 };

/* A x B with weights of s4 in groups of 32 along K. Tensor ids: codes, scales, weight, product. */
#define WEIGHTS(q, s, w, n)                                                              \
    "DynamicDequantize qtype=per_group group_shape=1,32 " q ":s4:" n "x256 " s ":f32:" n \
    "x8 -> " w ":f32:" n "x256; "
#define PRODUCT(q, s, w, y, n) \
    WEIGHTS(q, s, w, n) "MatMul transpose_b=1 1:f32:?x256 " w ":f32:" n "x256 -> " y ":f32:?x" n
#define FIRST PRODUCT("10", "11", "12", "13", "200")
#define SECOND PRODUCT("20", "21", "22", "23", "72")
#define THIRD PRODUCT("30", "31", "32", "33", "8")

static float a[MOST_ROWS * K], scales[3][N * K / 32];
static unsigned char codes[3][N * K / 2];
static float alone[3][MOST_ROWS * N], together[3][MOST_ROWS * N];
static const int columns[3] = {N, OTHER_N, THIRD_N};

static uint32_t state = 1;
static uint32_t draw(void)
{
    state = state * 1664525u + 1013904223u;
    return state >> 8;
}

static void fill(void)
{
    for (int i = 0; i < MOST_ROWS * K; i++) {
        a[i] = (float)draw() * 0x1p-23f - 1;
    }
    for (int m = 0; m < 3; m++) {
        for (int i = 0; i < N * K / 32; i++) {
            scales[m][i] = (float)(draw() % 100 + 1) * 0x1p-8f;
        }
        for (int i = 0; i < N * K / 2; i++) {
            codes[m][i] = (unsigned char)draw();
        }
    }
}

static sinter_compiled_graph_t *compile(const char *spec, sinter_fpmath_mode_t mode)
{
    sinter_graph_t *graph = NULL;
    sinter_compiled_graph_t *whole = NULL;
    sinter_partition_t *part = NULL;
    size_t n = 0;
    CHECK_THAT(spec_graph(&graph, NULL, spec) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(graph, &n) == sinter_success);
    if (!CHECK(n == 1, "%s: %zu partitions", spec, n)) {
        exit(check_finish());
    }
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &part) == sinter_success);
    CHECK_THAT(sinter_partition_set_fpmath_mode(part, mode, 1) == sinter_success);
    CHECK(sinter_graph_compile(graph, NULL, 1, &part, &whole) == sinter_success, "%s",
          sinter_last_error_message());
    sinter_partition_destroy(&part);
    sinter_graph_destroy(&graph);
    return whole;
}

static void bind(sinter_compiled_graph_t *whole, int product, int rows, float *to)
{
    const uint64_t id = 10 * (uint64_t)(product + 1);
    const sinter_dim_t dims[2] = {rows, K};
    CHECK_THAT(sinter_compiled_graph_bind(whole, 1, 2, dims, NULL, a, SINTER_BYTES_TRUSTED) ==
                   sinter_success &&
               sinter_compiled_graph_bind(whole, id, 0, NULL, NULL, codes[product],
                                          SINTER_BYTES_TRUSTED) == sinter_success &&
               sinter_compiled_graph_bind(whole, id + 1, 0, NULL, NULL, scales[product],
                                          SINTER_BYTES_TRUSTED) == sinter_success &&
               sinter_compiled_graph_bind(whole, id + 3, 0, NULL, NULL, to, SINTER_BYTES_TRUSTED) ==
                   sinter_success);
}

static void compare(sinter_compiled_graph_t *joined, sinter_compiled_graph_t *const *single,
                    int rows, int threads)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    for (int m = 0; m < 3; m++) {
        bind(joined, m, rows, together[m]);
        bind(single[m], m, rows, alone[m]);
        memset(alone[m], 0xFF, sizeof alone[m]);
        memset(together[m], 0xFF, sizeof together[m]);
        CHECK(sinter_compiled_graph_execute(single[m], stream) == sinter_success, "%s",
              sinter_last_error_message());
    }
    CHECK(sinter_compiled_graph_execute(joined, stream) == sinter_success, "%s",
          sinter_last_error_message());
    for (int m = 0; m < 3; m++) {
        CHECK(memcmp(alone[m], together[m], sizeof(float) * (size_t)(rows * columns[m])) == 0,
              "%d rows, %d threads: product %d differs", rows, threads, m);
    }
    sinter_stream_destroy(&stream);
}

int main(int argc, char **argv)
{
    static const char *const specs[3] = {FIRST, SECOND, THIRD};
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_int8, sinter_fpmath_mode_f16};
    static const int rows[] = {1, 3, 16, 17, 40, 300, 2};
    (void)argc;
    wait_passively(argv);
    fill();
    for (int mode = 0; mode < 2; mode++) {
        sinter_compiled_graph_t *single[3],
            *joined = compile(FIRST "; " SECOND "; " THIRD, modes[mode]);
        for (int m = 0; m < 3; m++) {
            single[m] = compile(specs[m], modes[mode]);
        }
        for (int wrong = 0; wrong < 2; wrong++) {
            const float kept = a[K + 5];
            a[K + 5] = wrong ? INFINITY : kept; /* of the second row */
            for (size_t i = 0; i < sizeof rows / sizeof *rows; i++) {
                for (int threads = 1; threads < 9; threads += 2) {
                    compare(joined, single, rows[i], threads);
                }
            }
            a[K + 5] = kept;
        }
        for (int m = 0; m < 3; m++) {
            sinter_compiled_graph_destroy(&single[m]);
        }
        sinter_compiled_graph_destroy(&joined);
    }
    return check_finish();
}
