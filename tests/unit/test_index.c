/* Rows that move by index, where indices are wrong, repeated or none: an error writes nothing, and
 * what is defined does not depend on the number of threads. Parts of bytes, and empty tensors. */
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <sinter/sinter.h>

#include "check.h"
#include "numeric/dtype.h"
#include "passive.h"
#include "pool.h"
#include "spec.h"

enum { MOST_PORTS = 12, THREADS = 4 };

typedef struct ports {
    size_t n;
    sinter_logical_tensor_t lt[MOST_PORTS];
    sinter_tensor_t *tensors[MOST_PORTS];
} ports_t;

typedef struct part {
    sinter_graph_t *graph;
    sinter_partition_t *partition;
    sinter_compiled_partition_t *compiled;
    ports_t in, out;
} part_t;

static sinter_status_t compile(part_t *p, const char *spec)
{
    size_t n = 0;
    memset(p, 0, sizeof *p);
    CHECK_THAT(spec_graph(&p->graph, NULL, spec) == sinter_success);
    CHECK_THAT(sinter_graph_filter(p->graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partition_num(p->graph, &n) == sinter_success);
    CHECK(n == 1, "%s: %zu partitions", spec, n);
    CHECK_THAT(sinter_graph_get_partitions(p->graph, 1, &p->partition) == sinter_success);
    CHECK_THAT(sinter_partition_get_input_num(p->partition, &p->in.n) == sinter_success);
    CHECK_THAT(sinter_partition_get_output_num(p->partition, &p->out.n) == sinter_success);
    CHECK_THAT(p->in.n <= MOST_PORTS && p->out.n <= MOST_PORTS);
    CHECK_THAT(sinter_partition_get_inputs(p->partition, p->in.n, p->in.lt) == sinter_success);
    CHECK_THAT(sinter_partition_get_outputs(p->partition, p->out.n, p->out.lt) == sinter_success);
    return sinter_partition_compile(p->partition, NULL, 0, NULL, 0, NULL, &p->compiled);
}

static void close_part(part_t *p)
{
    for (size_t i = 0; i < p->in.n; i++) {
        sinter_tensor_destroy(&p->in.tensors[i]);
    }
    for (size_t i = 0; i < p->out.n; i++) {
        sinter_tensor_destroy(&p->out.tensors[i]);
    }
    sinter_compiled_partition_destroy(&p->compiled);
    sinter_partition_destroy(&p->partition);
    sinter_graph_destroy(&p->graph);
}

/* The buffer of a tensor, whose dims are those of a spec, such as "3:s32:2x3". */
typedef struct buffer {
    const char *spec;
    void *data;
} buffer_t;

static void bind(ports_t *ports, const buffer_t *buffers)
{
    for (size_t i = 0; i < ports->n; i++) {
        const buffer_t *b = buffers;
        while (b->spec != NULL && strtoull(b->spec, NULL, 10) != ports->lt[i].id) {
            b++;
        }
        if (!CHECK(b->spec != NULL, "tensor %d is not given", (int)ports->lt[i].id)) {
            exit(check_finish());
        }
        const sinter_logical_tensor_t lt = spec_tensor(b->spec);
        size_t bytes = 0;
        CHECK_THAT(sinter_logical_tensor_get_bytes(&lt, &bytes) == sinter_success);
        CHECK_THAT(sinter_tensor_create(&ports->tensors[i], NULL, &lt, b->data, bytes) ==
                   sinter_success);
    }
}

static sinter_status_t run(const char *spec, const buffer_t *buffers, int threads)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    sinter_stream_t *stream = NULL;
    part_t p;
    CHECK(compile(&p, spec) == sinter_success, "%s: %s", spec, sinter_last_error_message());
    bind(&p.in, buffers);
    bind(&p.out, buffers);
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    const sinter_status_t status = sinter_compiled_partition_execute(
        p.compiled, stream, p.in.n, (const sinter_tensor_t *const *)p.in.tensors, p.out.n,
        p.out.tensors, NULL, 0);
    sinter_stream_destroy(&stream);
    close_part(&p);
    return status;
}

#define FAILS(status, text)                                                     \
    CHECK((status) == sinter_invalid_arguments &&                               \
              strstr(sinter_last_error_message(), text) != NULL,                \
          "status %s, message \"%s\" lacks \"%s\"", sinter_status_name(status), \
          sinter_last_error_message(), text)

static int all_bytes(const void *data, size_t n, int value)
{
    const unsigned char *bytes = data;
    for (size_t i = 0; i < n; i++) {
        if (bytes[i] != value) {
            return 0;
        }
    }
    return 1;
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void test_bad_index(void)
{
    float data[9 * 4] = {0}, out[3 * 4];
    const int32_t late[3] = {0, 8, 9}, low[3] = {0, -10, 1};
    const int64_t wide[3] = {0, 1, INT64_C(1) << 32};
    const void *const indices[] = {late, low, wide};
    for (int i = 0; i < 3; i++) {
        const buffer_t buffers[] = {{"1:f32:9x4", data},
                                    {i < 2 ? "2:s32:3" : "2:s64:3", (void *)indices[i]},
                                    {"3:f32:3x4", out},
                                    {0}};
        memset(out, 0x5A, sizeof out);
        FAILS(run(i < 2 ? "Gather 1:f32:9x4 2:s32:3 -> 3:f32:3x4"
                        : "Gather 1:f32:9x4 2:s64:3 -> 3:f32:3x4",
                  buffers, THREADS),
              "is outside a dimension of 9");
        CHECK_THAT(all_bytes(out, sizeof out, 0x5A));
    }
}

static void test_bad_slot(void)
{
    float cache[9 * 4], updates[3 * 4] = {0}, out[9 * 4];
    const int32_t slots[2][3] = {{0, 1, 9}, {0, 1, -2}};
    for (int i = 0; i < 4; i++) {
        const int in_place = i & 1;
        const buffer_t buffers[] = {{"1:f32:9x4", cache},
                                    {"2:s32:3", (void *)slots[i / 2]},
                                    {"3:f32:3x4", updates},
                                    {"4:f32:9x4", in_place ? cache : out},
                                    {0}};
        memset(out, 0x5A, sizeof out);
        memset(cache, 0x5A, sizeof cache);
        FAILS(run("ScatterRows 1:f32:9x4 2:s32:3 3:f32:3x4 -> 4:f32:9x4", buffers, THREADS),
              "is outside a dimension of 9");
        CHECK_THAT(all_bytes(out, sizeof out, 0x5A) && all_bytes(cache, sizeof cache, 0x5A));
    }
}

/* Keys are normalised, rotated and appended, values are appended, by one partition: neither cache
 * changes if a position or a slot is wrong. */
static void test_bad_append(void)
{
    static const char *const spec =
        "RMSNorm 1:f32:1x2x3x8 2:f32:8 -> 3:f32:1x2x3x8;"
        "RotaryEmbedding 3:f32:1x2x3x8 4:f32:40x4 5:f32:40x4 6:s32:1x3 -> 7:f32:1x2x3x8;"
        "ScatterRows axis=2 8:f32:1x2x9x8 9:s32:3 7:f32:1x2x3x8 -> 10:f32:1x2x9x8;"
        "ScatterRows axis=2 11:f32:1x2x9x8 9:s32:3 12:f32:1x2x3x8 -> 13:f32:1x2x9x8";
    static float x[48], gamma[8], cosines[160], sines[160], k[144], v[144], rows[48];
    static const int32_t positions[3][3] = {{0, 1, 40}, {-1, 1, 2}, {0, 1, 2}},
                         slots[2][3] = {{0, 1, 2}, {0, 1, 9}};
    for (int i = 0; i < 4; i++) {
        const buffer_t buffers[] = {{"1:f32:1x2x3x8", x},
                                    {"2:f32:8", gamma},
                                    {"4:f32:40x4", cosines},
                                    {"5:f32:40x4", sines},
                                    {"6:s32:1x3", (void *)positions[i < 2 ? i : 2]},
                                    {"8:f32:1x2x9x8", k},
                                    {"9:s32:3", (void *)slots[i == 2]},
                                    {"10:f32:1x2x9x8", k},
                                    {"11:f32:1x2x9x8", v},
                                    {"12:f32:1x2x3x8", rows},
                                    {"13:f32:1x2x9x8", v},
                                    {0}};
        memset(k, 0x5A, sizeof k);
        memset(v, 0x5A, sizeof v);
        const sinter_status_t status = run(spec, buffers, THREADS);
        if (i == 3) {
            CHECK(status == sinter_success, "%s", sinter_last_error_message());
            CHECK_THAT(!all_bytes(k, sizeof k, 0x5A) && !all_bytes(v, sizeof v, 0x5A));
            continue;
        }
        FAILS(status, i == 2 ? "slot 9 of row 2 is outside" : "is outside the tables");
        CHECK_THAT(all_bytes(k, sizeof k, 0x5A) && all_bytes(v, sizeof v, 0x5A));
    }
}

/* Executes a graph as a whole. data: by tensor id; NULL: none of its ports. */
static sinter_status_t run_graph(const char *spec, void *const *data, int n)
{
    sinter_graph_t *graph = NULL;
    sinter_compiled_graph_t *compiled = NULL;
    sinter_stream_t *stream = NULL;
    CHECK_THAT(spec_graph(&graph, NULL, spec) == sinter_success);
    CHECK_THAT(sinter_stream_create(&stream, NULL, NULL) == sinter_success);
    sinter_status_t status = sinter_graph_compile(graph, NULL, 0, NULL, &compiled);
    CHECK(status == sinter_success, "%s", spec);
    for (int i = 0; i < n && status == sinter_success; i++) {
        if (data[i] != NULL) {
            status = sinter_compiled_graph_bind(compiled, (uint64_t)i, 0, NULL, NULL, data[i],
                                                SINTER_BYTES_TRUSTED);
        }
    }
    status = status ? status : sinter_compiled_graph_execute(compiled, stream);
    sinter_compiled_graph_destroy(&compiled);
    sinter_graph_destroy(&graph);
    sinter_stream_destroy(&stream);
    return status;
}

/* Indices that the op above computes, which also makes the data: they are checked all the same. */
static void test_computed_index(void)
{
    static const char scatter[] = "TypeCast 0:f32:3 -> 1:s32:3; "
                                  "ScatterRows 2:s32:8 1:s32:3 1:s32:3 -> 3:s32:8",
                      gather[] = "Gather 0:s32:4 1:s32:4 -> 2:s32:4; "
                                 "Gather 2:s32:4 2:s32:4 -> 3:s32:4; TypeCast 3:s32:4 -> 4:f32:4",
                      rotate[] = "ReLU 0:f32:1x2 -> 1:f32:1x2; TypeCast 1:f32:1x2 -> 2:s32:1x2; "
                                 "Add 1:f32:1x2 3:f32:1x1x2x2 -> 4:f32:1x1x2x2; RotaryEmbedding "
                                 "4:f32:1x1x2x2 5:f32:3x1 6:f32:3x1 2:s32:1x2 -> 7:f32:1x1x2x2";
    float slots[3] = {5, 0, 2}, floats[4] = {-1, -1, -1, -1}, positions[2] = {2, 0},
          more[4] = {1, 2, 3, 4}, cosines[3] = {1, 2, 3}, sines[3] = {0, 0, 0};
    int32_t zeros[8] = {0}, out[8], table[4] = {3, 2, 0, 1}, at[4] = {1, 0, 3, 2};
    memset(out, 0x5A, sizeof out);
    CHECK_THAT(run_graph(scatter, (void *[]){slots, NULL, zeros, out}, 4) == sinter_success);
    CHECK_THAT(memcmp(out, (const int32_t[]){0, 0, 2, 0, 0, 5, 0, 0}, sizeof out) == 0);
    /* rows 2 3 1 0 of the table, then those rows of them */
    CHECK_THAT(run_graph(gather, (void *[]){table, at, NULL, NULL, floats}, 5) == sinter_success);
    CHECK_THAT(memcmp(floats, (const float[]){1, 0, 3, 2}, sizeof floats) == 0);
    /* (2 0) + (1 2), times the cosine of row 2, and (2 0) + (3 4), times that of row 0 */
    void *const rotary[] = {positions, NULL, NULL, more, NULL, cosines, sines, floats};
    CHECK_THAT(run_graph(rotate, rotary, 8) == sinter_success);
    CHECK_THAT(memcmp(floats, (const float[]){9, 6, 5, 4}, sizeof floats) == 0);
    slots[1] = 8;
    positions[1] = 3;
    table[0] = 4;
    FAILS(run_graph(scatter, (void *[]){slots, NULL, zeros, out}, 4), "slot 8 of row 1 is outside");
    FAILS(run_graph(gather, (void *[]){table, at, NULL, NULL, floats}, 5), "index 4 at position 1");
    FAILS(run_graph(rotate, rotary, 8), "is outside the tables");
}

/* ---- codes of 4 bits ------------------------------------------------------------------------- */

/* Where the data is one run of codes, its shares would end within bytes: no two threads may write
 * such a byte. Whether they meet in it is a matter of chance, so there are many shares for two
 * threads, and many executes. */
static void test_whole_bytes(void)
{
    enum { CODES = 100, SHARES = 17, ROUNDS = 10000 };
    unsigned char data[CODES / 2], updates[1] = {0x2A}, out[CODES / 2];
    const int32_t slot[1] = {-1};
    const buffer_t buffers[] = {{"1:u4:1x50x2", data},
                                {"2:s32:1", (void *)slot},
                                {"3:u4:1x1x2", updates},
                                {"4:u4:1x50x2", out},
                                {0}};
    pool_t *pool = pool_create(2);
    const sinter_stream_desc_t desc = {.size = sizeof desc,
                                       .threads = SHARES,
                                       .all_threads = 1,
                                       .parallel_for = pool_for,
                                       .pool = pool};
    sinter_stream_t *stream = NULL;
    part_t p;
    int wrong = 0;
    CHECK_THAT(pool != NULL);
    for (int i = 0; i < CODES / 2; i++) {
        data[i] = (unsigned char)(i * 37 + 11);
    }
    CHECK_THAT(compile(&p, "ScatterRows axis=1 1:u4:1x50x2 2:s32:1 3:u4:1x1x2 -> 4:u4:1x50x2") ==
               sinter_success);
    bind(&p.in, buffers);
    bind(&p.out, buffers);
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    for (int i = 0; i < ROUNDS; i++) {
        memset(out, i % 2 == 0 ? 0xFF : 0, sizeof out);
        wrong += sinter_compiled_partition_execute(
                     p.compiled, stream, p.in.n, (const sinter_tensor_t *const *)p.in.tensors,
                     p.out.n, p.out.tensors, NULL, 0) != sinter_success ||
                 memcmp(out, data, sizeof out) != 0;
    }
    CHECK(wrong == 0, "%d of %d executes", wrong, ROUNDS);
    sinter_stream_destroy(&stream);
    pool_destroy(pool);
    close_part(&p);
}

/* ---- slots ----------------------------------------------------------------------------------- */

/* Many rows go to few slots: the last one stays, whatever the number of threads; slot -1 writes
 * nothing. */
static void test_equal_slots(void)
{
    enum { ROWS = 500, SLOTS = 7, WIDTH = 33 };
    static float cache[SLOTS * WIDTH], updates[ROWS * WIDTH], out[SLOTS * WIDTH];
    static int32_t slots[ROWS];
    int last[SLOTS];
    memset(last, -1, sizeof last);
    for (int i = 0; i < ROWS; i++) {
        slots[i] = i * 31 % (SLOTS + 1) - 1;
        if (slots[i] >= 0 && slots[i] != 3) {
            last[slots[i]] = i;
        } else {
            slots[i] = -1; /* row 3 keeps what it had */
        }
        for (int k = 0; k < WIDTH; k++) {
            updates[i * WIDTH + k] = (float)(i * WIDTH + k);
        }
    }
    for (int threads = 1; threads <= THREADS; threads++) {
        for (int in_place = 0; in_place < 2; in_place++) {
            float *to = in_place ? cache : out;
            const buffer_t buffers[] = {{"1:f32:7x33", cache},
                                        {"2:s32:500", slots},
                                        {"3:f32:500x33", updates},
                                        {"4:f32:7x33", to},
                                        {0}};
            for (int k = 0; k < SLOTS * WIDTH; k++) {
                cache[k] = (float)-k;
                out[k] = 1e9F;
            }
            CHECK_THAT(run("ScatterRows 1:f32:7x33 2:s32:500 3:f32:500x33 -> 4:f32:7x33", buffers,
                           threads) == sinter_success);
            for (int k = 0; k < SLOTS * WIDTH; k++) {
                const int row = last[k / WIDTH];
                const float want = row < 0 ? (float)-k : updates[row * WIDTH + k % WIDTH];
                CHECK(to[k] == want, "%d threads: element %d is %g, not %g", threads, k,
                      (double)to[k], (double)want);
            }
        }
    }
}

static int nibble(const unsigned char *data, int i)
{
    return data[i / 2] >> (i % 2 * 4) & 15;
}

/* Rows of three codes of four bits share bytes with their neighbours. */
static void test_shared_bytes(void)
{
    enum { ROWS = 9, WIDTH = 3, BYTES = (ROWS * WIDTH + 1) / 2 };
    unsigned char cache[BYTES], updates[5], out[BYTES], picked[5];
    const int32_t slots[3] = {4, -1, 1}, indices[3] = {8, -9, 3};
    for (int i = 0; i < BYTES; i++) {
        cache[i] = (unsigned char)(i * 37 + 11);
    }
    for (int i = 0; i < 5; i++) {
        updates[i] = (unsigned char)(i * 91 + 3);
    }
    const buffer_t scatter[] = {{"1:u4:9x3", cache},
                                {"2:s32:3", (void *)slots},
                                {"3:u4:3x3", updates},
                                {"4:u4:9x3", out},
                                {0}};
    CHECK_THAT(run("ScatterRows 1:u4:9x3 2:s32:3 3:u4:3x3 -> 4:u4:9x3", scatter, THREADS) ==
               sinter_success);
    for (int i = 0; i < ROWS * WIDTH; i++) {
        const int row = i / WIDTH == 4 ? 0 : i / WIDTH == 1 ? 2 : -1;
        const int want = row < 0 ? nibble(cache, i) : nibble(updates, row * WIDTH + i % WIDTH);
        CHECK(nibble(out, i) == want, "code %d is %d, not %d", i, nibble(out, i), want);
    }
    const buffer_t gather[] = {
        {"1:u4:9x3", cache}, {"2:s32:3", (void *)indices}, {"3:u4:3x3", picked}, {0}};
    CHECK_THAT(run("Gather 1:u4:9x3 2:s32:3 -> 3:u4:3x3", gather, THREADS) == sinter_success);
    for (int i = 0; i < 3 * WIDTH; i++) {
        const int row = indices[i / WIDTH] < 0 ? indices[i / WIDTH] + ROWS : indices[i / WIDTH];
        CHECK_THAT(nibble(picked, i) == nibble(cache, row * WIDTH + i % WIDTH));
    }
}

/* ---- rows of a few bytes --------------------------------------------------------------------- */

/* The value of byte b of element e. */
static unsigned char byte_of(int64_t e, int64_t b)
{
    return (unsigned char)(e * 17 + b * 101 + 5);
}

/* Gather and ScatterRows along the last axis and the last but one, where one index moves `width`
 * elements of a type: [OUTER, LENGTH, width] by N indices, which lie `gap` apart, and which count
 * from the end where they are negative. */
static void check_moves(const char *type, int bytes, int width, int wide, int gap, int threads)
{
    enum { OUTER = 5, LENGTH = 11, N = 23, MOST = 16 * 12 };
    static unsigned char data[OUTER * LENGTH * MOST], picked[OUTER * N * MOST];
    unsigned char cache[sizeof data];
    int64_t index[N];
    int32_t narrow[2 * N];
    int64_t indices[2 * N];
    char specs[5][64], gather[320], scatter[320];
    const int row = bytes * width;
    for (int i = 0; i < N; i++) {
        index[i] = i * 7 % LENGTH;
        const int64_t given = i % 3 == 0 ? index[i] - LENGTH : index[i];
        narrow[i * gap] = (int32_t)given;
        indices[i * gap] = given;
    }
    for (int i = 0; i < OUTER * LENGTH * row; i++) {
        data[i] = byte_of(i / row, i % row);
    }
    snprintf(specs[0], sizeof specs[0], "1:%s:5x11x%d", type, width);
    snprintf(specs[1], sizeof specs[1], "2:%s:23:%d", wide ? "s64" : "s32", gap);
    snprintf(specs[2], sizeof specs[2], "3:%s:5x23x%d", type, width);
    snprintf(gather, sizeof gather, "Gather axis=1 %s %s -> %s", specs[0], specs[1], specs[2]);
    const buffer_t moved[] = {{specs[0], data},
                              {specs[1], wide ? (void *)indices : (void *)narrow},
                              {specs[2], picked},
                              {0}};
    memset(picked, 0, sizeof picked);
    CHECK(run(gather, moved, threads) == sinter_success, "%s: %s", gather,
          sinter_last_error_message());
    int wrong = 0;
    for (int i = 0; i < OUTER * N * row; i++) {
        const int64_t e = i / row / N * LENGTH + index[i / row % N];
        wrong += picked[i] != byte_of(e, i % row);
    }
    CHECK(wrong == 0, "%s: %d wrong bytes", gather, wrong);
    /* Back to where they came from: what no index names stays 0, slot -1 is left out. */
    for (int i = 0; i < N; i++) {
        narrow[i * gap] = i % 5 == 0 ? -1 : (int32_t)index[i];
        indices[i * gap] = narrow[i * gap];
    }
    snprintf(specs[3], sizeof specs[3], "4:%s:5x11x%d", type, width);
    snprintf(specs[4], sizeof specs[4], "5:%s:5x11x%d", type, width);
    snprintf(scatter, sizeof scatter, "ScatterRows axis=1 %s %s %s -> %s", specs[3], specs[1],
             specs[2], specs[4]);
    static unsigned char none[sizeof data];
    const buffer_t back[] = {{specs[3], none},
                             {specs[1], wide ? (void *)indices : (void *)narrow},
                             {specs[2], picked},
                             {specs[4], cache},
                             {0}};
    memset(cache, 0xFF, sizeof cache);
    CHECK(run(scatter, back, threads) == sinter_success, "%s: %s", scatter,
          sinter_last_error_message());
    wrong = 0;
    for (int i = 0; i < OUTER * LENGTH * row; i++) {
        bool named = false;
        for (int k = 0; k < N; k++) {
            named = named || (k % 5 != 0 && index[k] == i / row % LENGTH);
        }
        wrong += cache[i] != (named ? byte_of(i / row, i % row) : 0);
    }
    CHECK(wrong == 0, "%s: %d wrong bytes", scatter, wrong);
}

static void test_short_rows(void)
{
    static const struct {
        const char *name;
        int bytes;
    } types[] = {{"s8", 1}, {"f16", 2}, {"f32", 4}, {"f64", 8}};
    for (int t = 0; t < 4; t++) {
        for (int width = 1; width * types[t].bytes <= 24; width += width < 4 ? 1 : 2) {
            for (int how = 0; how < 4; how++) {
                check_moves(types[t].name, types[t].bytes, width, how & 1, 1 + (how >> 1),
                            1 + (width + how) % THREADS);
            }
        }
    }
}

/* ---- the best elements ----------------------------------------------------------------------- */

typedef struct ranked {
    double x;
    int64_t whole; /* of s64, which doubles do not hold */
    int64_t at;
} ranked_t;

static bool rank_least;

/* -1: a comes before b. A NaN counts as larger than any number; equal elements keep their order. */
static int compare_ranked(const void *left, const void *right)
{
    const ranked_t *a = left, *b = right;
    const bool a_nan = isnan(a->x), b_nan = isnan(b->x);
    const int by_x = a_nan || b_nan ? (int)b_nan - (int)a_nan
                     : a->x != b->x ? (a->x < b->x) - (a->x > b->x)
                                    : (a->whole < b->whole) - (a->whole > b->whole),
              order = rank_least ? -by_x : by_x;
    return order != 0 ? order : (a->at > b->at) - (a->at < b->at);
}

enum { TOP_LENGTH = 6000 };
typedef enum order { RANDOM, RISING, FALLING, FEW_VALUES, EQUAL, N_ORDERS } order_t;

/* Element i of a row of n, as a double; for s64 this many steps of 2^53 + 1. */
static double element_of(order_t order, int64_t i, int64_t n, uint32_t *seed)
{
    *seed = *seed * 1664525u + 1013904223u;
    const double drawn = (double)(int32_t)*seed / 65536.0;
    if (*seed % 97 == 0 && order != RISING && order != FALLING) {
        const double special[] = {NAN, INFINITY, -INFINITY, -0.0, 0.0};
        return special[*seed / 97 % 5];
    }
    return order == RANDOM       ? drawn
           : order == RISING     ? (double)(i - n / 2)
           : order == FALLING    ? (double)(n / 2 - i)
           : order == FEW_VALUES ? (double)(*seed >> 8 & 7) - 3
                                 : 1;
}

static void check_best(sinter_data_type_t type, int64_t n, int64_t k, order_t order, int threads)
{
    enum { ROWS = 3 };
    static unsigned char in[ROWS * TOP_LENGTH * 8], values[sizeof in];
    static int32_t indices[ROWS * TOP_LENGTH];
    static ranked_t ranked[TOP_LENGTH];
    const dtype_traits_t *t = dtype_traits(type);
    const int bytes = t->block_bytes;
    char specs[3][64], graph[320];
    uint32_t seed = (uint32_t)(n * 31 + k * 7 + (int)order);
    for (int64_t i = 0; i < ROWS * n; i++) {
        const double x = element_of(order, i % n, n, &seed);
        const int64_t whole = isfinite(x) ? (int64_t)(x * 65536) * ((INT64_C(1) << 20) + 1) : 0;
        if (type == sinter_s64) {
            memcpy(in + i * 8, &whole, 8);
        } else {
            t->codec.store_f64(in, i, 1, 1, &x);
        }
    }
    for (int least = 0; least < 2; least++) {
        snprintf(specs[0], sizeof specs[0], "1:%s:%dx%d", t->name, ROWS, (int)n);
        snprintf(specs[1], sizeof specs[1], "2:%s:%dx%d", t->name, ROWS, (int)k);
        snprintf(specs[2], sizeof specs[2], "3:s32:%dx%d", ROWS, (int)k);
        snprintf(graph, sizeof graph, "TopK k=%d largest=%d %s -> %s %s", (int)k, !least, specs[0],
                 specs[1], specs[2]);
        const buffer_t buffers[] = {{specs[0], in}, {specs[1], values}, {specs[2], indices}, {0}};
        CHECK(run(graph, buffers, threads) == sinter_success, "%s: %s", graph,
              sinter_last_error_message());
        int wrong = 0;
        for (int64_t r = 0; r < ROWS; r++) {
            for (int64_t i = 0; i < n; i++) {
                ranked[i] = (ranked_t){.at = i};
                if (type == sinter_s64) {
                    memcpy(&ranked[i].whole, in + (r * n + i) * 8, 8);
                } else {
                    t->codec.load_f64(in, r * n + i, 1, 1, &ranked[i].x);
                }
            }
            rank_least = least;
            qsort(ranked, (size_t)n, sizeof *ranked, compare_ranked);
            for (int64_t i = 0; i < k; i++) {
                const int64_t at = ranked[i].at;
                wrong += indices[r * k + i] != at ||
                         memcmp(values + (r * k + i) * bytes, in + (r * n + at) * bytes,
                                (size_t)bytes) != 0;
            }
        }
        CHECK(wrong == 0, "%s, order %d: %d wrong", graph, (int)order, wrong);
    }
}

static void test_best(void)
{
    static const sinter_data_type_t types[] = {sinter_f32, sinter_f16, sinter_f8_e4m3,
                                               sinter_f64, sinter_s32, sinter_s64};
    static const struct {
        int n, k;
    } sizes[] = {{1, 1},      {16, 5},      {64, 64},     {256, 16},   {300, 48},
                 {300, 49},   {300, 300},   {2048, 50},   {2049, 100}, {5000, 49},
                 {5000, 700}, {6000, 2900}, {6000, 3100}, {6000, 6000}};
    for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
        for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
            for (int order = 0; order < N_ORDERS; order++) {
                check_best(types[t], sizes[i].n, sizes[i].k, (order_t)order, 1 + (int)t % 2);
            }
        }
    }
}

/* ---- parts of bytes -------------------------------------------------------------------------- */

static void check_refused(const char *spec, const char *text)
{
    part_t p;
    const sinter_status_t status = compile(&p, spec);
    CHECK(status == sinter_unimplemented && strstr(sinter_last_error_message(), text) != NULL,
          "%s: status %s, message \"%s\" lacks \"%s\"", spec, sinter_status_name(status),
          sinter_last_error_message(), text);
    close_part(&p);
}

static void test_parts_of_bytes(void)
{
    unsigned char a[4] = {0}, b[4] = {0}, out[8];
    check_refused("Concat axis=1 1:s4:2x3 2:s4:2x3 -> 3:s4:2x6",
                  "op 100 (Concat): tensor 2, its input 1, would not begin with a whole byte");
    check_refused("Slice starts=1 ends=4 1:u4:8 -> 2:u4:3",
                  "op 100 (Slice): what it takes of tensor 1 does not begin with a whole byte");
    /* With unknown dims only execute can know. */
    const char *spec = "Concat axis=0 1:s4:? 2:s4:? -> 3:s4:?";
    const buffer_t odd[] = {{"1:s4:3", a}, {"2:s4:3", b}, {"3:s4:6", out}, {0}},
                   even[] = {{"1:s4:4", a}, {"2:s4:3", b}, {"3:s4:7", out}, {0}};
    memset(out, 0x5A, sizeof out);
    CHECK_THAT(run(spec, odd, 1) == sinter_unimplemented);
    CHECK_THAT(strstr(sinter_last_error_message(), "op 100 (Concat): tensor 2") != NULL);
    CHECK_THAT(all_bytes(out, sizeof out, 0x5A));
    CHECK(run(spec, even, 1) == sinter_success, "%s", sinter_last_error_message());
    CHECK_THAT(out[0] == 0 && out[1] == 0 && out[2] == 0 && (out[3] & 15) == 0 && out[4] == 0x5A);
}

/* ---- backwards ------------------------------------------------------------------------------- */

/* Steps may be negative, with known and with unknown dims. */
static void test_backwards(void)
{
    float in[4][5], out[4][3];
    const float want[4][3] = {{34, 32, 30}, {24, 22, 20}, {14, 12, 10}, {4, 2, 0}};
    uint16_t turned[3];
    const uint16_t codes[3] = {0x7C01, 0x8000, 0x3C00}; /* a NaN stays one */
    for (int i = 0; i < 20; i++) {
        in[i / 5][i % 5] = (float)(i / 5 * 10 + i % 5);
    }
    for (int k = 0; k < 2; k++) {
        const buffer_t buffers[] = {{"1:f32:4x5", in}, {"2:f32:4x3", out}, {0}};
        memset(out, 0x5A, sizeof out);
        CHECK(run(k == 0 ? "Slice starts=-1,4 ends=-9,-9 steps=-1,-2 1:f32:4x5 -> 2:f32:4x3"
                         : "Slice starts=-1,4 ends=-9,-9 steps=-1,-2 1:f32:?x? -> 2:f32:?x?",
                  buffers, THREADS) == sinter_success,
              "%s", sinter_last_error_message());
        CHECK_THAT(memcmp(out, want, sizeof want) == 0);
    }
    const buffer_t halves[] = {{"1:f16:3", (void *)codes}, {"2:f16:3", turned}, {0}};
    CHECK_THAT(run("Slice starts=2 ends=-4 steps=-1 1:f16:3 -> 2:f16:3", halves, 1) ==
               sinter_success);
    CHECK_THAT(turned[0] == 0x3C00 && turned[1] == 0x8000);
    CHECK((turned[2] & 0x7C00) == 0x7C00 && (turned[2] & 0x3FF) != 0, "%x", (unsigned)turned[2]);
    part_t p;
    CHECK_THAT(compile(&p, "Slice starts=-1 ends=-9 steps=-1 1:u4:8 -> 2:u4:8") ==
               sinter_unimplemented);
    CHECK(strstr(sinter_last_error_message(), "a step is negative, and elements share bytes") !=
              NULL,
          "%s", sinter_last_error_message());
    close_part(&p);
}

/* ---- nothing --------------------------------------------------------------------------------- */

static void test_empty(void)
{
    static const struct {
        const char *spec;
        buffer_t in[4];
        const char *out[3];
    } cases[] = {
        {"Gather 1:f32:9x4 2:s32:? -> 3:f32:?x4",
         {{"1:f32:9x4", 0}, {"2:s32:0", 0}},
         {"3:f32:0x4"}},
        {"Gather 1:f32:?x4 2:s32:? -> 3:f32:?x4",
         {{"1:f32:0x4", 0}, {"2:s32:0", 0}},
         {"3:f32:0x4"}},
        {"RMSNorm 1:f32:?x4 2:f32:4 -> 3:f32:?x4",
         {{"1:f32:0x4", 0}, {"2:f32:4", 0}},
         {"3:f32:0x4"}},
        {"LayerNorm use_affine=0 1:f32:?x? -> 2:f32:?x? 3:f32:? 4:f32:?",
         {{"1:f32:0x0", 0}},
         {"2:f32:0x0", "3:f32:0", "4:f32:0"}},
        {"RotaryEmbedding 1:f32:1x2x?x4 2:f32:2 3:s32:1x? -> 4:f32:1x2x?x4",
         {{"1:f32:1x2x0x4", 0}, {"2:f32:2", 0}, {"3:s32:1x0", 0}},
         {"4:f32:1x2x0x4"}},
        {"TopK k=0 1:f32:?x4 -> 2:f32:?x0 3:s32:?x0",
         {{"1:f32:3x4", 0}},
         {"2:f32:3x0", "3:s32:3x0"}},
        {"Concat axis=0 1:f32:? 2:f32:? -> 3:f32:?", {{"1:f32:0", 0}, {"2:f32:0", 0}}, {"3:f32:0"}},
        {"Slice starts=2 ends=2 1:f32:4x4 -> 3:f32:0x4", {{"1:f32:4x4", 0}}, {"3:f32:0x4"}},
        {"ReduceSum axes=0 1:f32:4x? -> 2:f32:?", {{"1:f32:4x0", 0}}, {"2:f32:0"}},
    };
    static float zeros[64], out[3][64];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        buffer_t buffers[MOST_PORTS] = {{0}};
        int n = 0;
        for (int k = 0; k < 4 && cases[i].in[k].spec != NULL; k++) {
            buffers[n++] = (buffer_t){cases[i].in[k].spec, zeros};
        }
        for (int k = 0; k < 3 && cases[i].out[k] != NULL; k++) {
            buffers[n++] = (buffer_t){cases[i].out[k], out[k]};
        }
        memset(out, 0x5A, sizeof out);
        CHECK(run(cases[i].spec, buffers, THREADS) == sinter_success, "%s: %s", cases[i].spec,
              sinter_last_error_message());
        CHECK_THAT(all_bytes(out, sizeof out, 0x5A));
    }
}

/* A Concat may have many inputs, in partitions with known and with unknown dims. */
static void test_many_parts(void)
{
    float in[6][2], out[12];
    buffer_t buffers[] = {
        {"1:f32:2", in[0]}, {"2:f32:2", in[1]}, {"3:f32:2", in[2]}, {"4:f32:2", in[3]},
        {"5:f32:2", in[4]}, {"6:f32:2", in[5]}, {"7:f32:12", out},  {0}};
    for (int i = 0; i < 12; i++) {
        in[i / 2][i % 2] = (float)i;
    }
    static const char *const specs[] = {
        "Concat axis=0 1:f32:2 2:f32:2 3:f32:2 4:f32:2 5:f32:2 6:f32:2 -> 7:f32:12",
        "Concat axis=0 1:f32:? 2:f32:? 3:f32:? 4:f32:? 5:f32:? 6:f32:? -> 7:f32:?"};
    for (int k = 0; k < 2; k++) {
        memset(out, 0, sizeof out);
        CHECK(run(specs[k], buffers, THREADS) == sinter_success, "%s", sinter_last_error_message());
        for (int i = 0; i < 12; i++) {
            CHECK_THAT(out[i] == (float)i);
        }
    }
}

/* A whole row of a norm is quantised in the norm's own step: one pass, whatever its length; and two
 * groups of 600 in a row. Codes are those that the scales give, of a row without gamma. */
static void test_long_groups(void)
{
    enum { ROWS = 3, WIDTH = 1200 };
    static float x[ROWS * WIDTH], scales[ROWS * 2];
    static int8_t codes[ROWS * WIDTH];
    for (int i = 0; i < ROWS * WIDTH; i++) {
        x[i] = (float)((i * 37 % 101) - 50);
    }
    for (int groups = 1; groups <= 2; groups++) {
        const char *spec =
            groups == 1 ? "RMSNorm use_affine=0 1:f32:3x1200 -> 2:f32:3x1200; DynamicQuantize "
                          "quantization_kind=dynamic_symmetric qtype=per_group group_shape=1,1200 "
                          "2:f32:3x1200 -> 3:s8:3x1200 4:f32:3x1"
                        : "RMSNorm use_affine=0 1:f32:3x1200 -> 2:f32:3x1200; DynamicQuantize "
                          "quantization_kind=dynamic_symmetric qtype=per_group group_shape=1,600 "
                          "2:f32:3x1200 -> 3:s8:3x1200 4:f32:3x2";
        const buffer_t buffers[] = {{"1:f32:3x1200", x},
                                    {"3:s8:3x1200", codes},
                                    {groups == 1 ? "4:f32:3x1" : "4:f32:3x2", scales},
                                    {0}};
        const char *text = "";
        part_t p;
        CHECK(compile(&p, spec) == sinter_success, "%s", sinter_last_error_message());
        CHECK_THAT(sinter_compiled_partition_report(p.compiled, &text) == sinter_success);
        CHECK(strstr(text, "1 step") != NULL && strstr(text, "norm_rows") != NULL, "%s", text);
        close_part(&p);
        CHECK(run(spec, buffers, THREADS) == sinter_success, "%s", sinter_last_error_message());
        for (int r = 0; r < ROWS; r++) {
            double squares = 0;
            for (int i = 0; i < WIDTH; i++) {
                squares += x[r * WIDTH + i] * x[r * WIDTH + i];
            }
            for (int i = 0; i < WIDTH; i++) {
                const double scale = scales[r * groups + i * groups / WIDTH],
                             y = x[r * WIDTH + i] / sqrt(squares / WIDTH + 1e-5);
                CHECK(fabs(codes[r * WIDTH + i] - y / scale) < 0.501, "row %d, element %d", r, i);
            }
            CHECK_THAT(fabs(scales[r * groups] * 127 - 50 / sqrt(squares / WIDTH + 1e-5)) < 1e-5);
        }
    }
}

/* Sums over nothing are 0, and no slots leave a copy of the data. */
static void test_results_of_nothing(void)
{
    float x[4] = {1, 2, 3, 4}, out[4];
    const buffer_t sums[] = {{"1:f32:0x4", x}, {"2:f32:4", out}, {0}},
                   copies[] = {
                       {"1:f32:4", x}, {"2:s32:0", x}, {"3:f32:0", x}, {"4:f32:4", out}, {0}};
    CHECK_THAT(run("ReduceSum axes=0 1:f32:?x4 -> 2:f32:4", sums, THREADS) == sinter_success);
    CHECK_THAT(out[0] == 0 && out[1] == 0 && out[2] == 0 && out[3] == 0);
    CHECK_THAT(run("ScatterRows 1:f32:4 2:s32:? 3:f32:? -> 4:f32:4", copies, THREADS) ==
               sinter_success);
    CHECK_THAT(memcmp(out, x, sizeof x) == 0);
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    test_bad_index();
    test_bad_slot();
    test_bad_append();
    test_computed_index();
    test_whole_bytes();
    test_equal_slots();
    test_shared_bytes();
    test_short_rows();
    test_best();
    test_parts_of_bytes();
    test_backwards();
    test_empty();
    test_results_of_nothing();
    test_many_parts();
    test_long_groups();
    return check_finish();
}
