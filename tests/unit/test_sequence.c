/* Sequences: they give what separate executes give, bit by bit, with any number of threads, also
 * where elements read what others write, and where data, dims and values change between runs.
 * Errors name the element. In steady state nothing is allocated, and where an allocation fails,
 * nothing leaks. */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "capture.h"
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
    CHECK_THAT(live == 0);
}

/* ---- elements -------------------------------------------------------------------------------- */

enum { MOST_PORTS = 4, MOST_BYTES = 1 << 21 };

/* A compiled partition with tensors over buffers of its own, or over those of others. */
typedef struct cell {
    sinter_compiled_partition_t *compiled;
    int n_in, n_out;
    sinter_tensor_t *tensors[MOST_PORTS]; /* inputs, then outputs */
    unsigned char *data[MOST_PORTS];
    size_t bytes[MOST_PORTS];
} cell_t;

static sinter_compiled_partition_t *compile(const char *text)
{
    sinter_graph_t *graph = NULL;
    sinter_partition_t *partition = NULL;
    sinter_compiled_partition_t *compiled = NULL;
    CHECK_THAT(spec_graph(&graph, engine, text) == sinter_success);
    CHECK_THAT(sinter_graph_filter(graph, sinter_partition_policy_fusion) == sinter_success);
    CHECK_THAT(sinter_graph_get_partitions(graph, 1, &partition) == sinter_success);
    CHECK(sinter_partition_compile(partition, engine, 0, NULL, 0, NULL, &compiled) ==
              sinter_success,
          "%s: %s", text, sinter_last_error_message());
    sinter_partition_destroy(&partition);
    sinter_graph_destroy(&graph);
    return compiled;
}

/* ports: as in a spec, with known dims; inputs first. */
static void open_cell(cell_t *c, const char *graph, int n_in, int n_out, const char *const *ports)
{
    *c = (cell_t){.compiled = compile(graph), .n_in = n_in, .n_out = n_out};
    for (int i = 0; i < n_in + n_out; i++) {
        const sinter_logical_tensor_t lt = spec_tensor(ports[i]);
        CHECK_THAT(sinter_logical_tensor_get_bytes(&lt, &c->bytes[i]) == sinter_success &&
                   c->bytes[i] <= MOST_BYTES);
        c->data[i] = malloc(c->bytes[i] + 64);
        for (size_t k = 0; k < c->bytes[i]; k++) {
            /* small positive floats of any width, any codes */
            c->data[i][k] = lt.data_type == sinter_f32   ? (unsigned char)(k % 4 == 3   ? 0x3C
                                                                           : k % 4 == 2 ? k % 97
                                                                                        : 0)
                            : lt.data_type == sinter_f16 ? (unsigned char)(k % 2 == 1 ? 0x20 : k)
                                                         : (unsigned char)(k * 41);
        }
        CHECK_THAT(sinter_tensor_create(&c->tensors[i], engine, &lt, c->data[i], c->bytes[i]) ==
                   sinter_success);
    }
}

static void close_cell(cell_t *c)
{
    for (int i = 0; i < c->n_in + c->n_out; i++) {
        sinter_tensor_destroy(&c->tensors[i]);
        free(c->data[i]);
    }
    sinter_compiled_partition_destroy(&c->compiled);
}

static sinter_status_t execute(const cell_t *c, sinter_stream_t *stream)
{
    return sinter_compiled_partition_execute(c->compiled, stream, (size_t)c->n_in,
                                             (const sinter_tensor_t *const *)c->tensors,
                                             (size_t)c->n_out, &c->tensors[c->n_in], NULL, 0);
}

static sinter_status_t append(sinter_sequence_t *s, const cell_t *c)
{
    return sinter_sequence_append(s, c->compiled, (size_t)c->n_in,
                                  (const sinter_tensor_t *const *)c->tensors, (size_t)c->n_out,
                                  &c->tensors[c->n_in]);
}

static sinter_stream_t *stream_of(int threads, bool all)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = all};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(sinter_stream_create(&stream, engine, &desc) == sinter_success);
    return stream;
}

/* ---- a chain of elements --------------------------------------------------------------------- */

/* Some elements are worth several threads, some are not. Each reads what the one before it
 * writes; the scale of the fourth is read before its work begins. */
enum { CELLS = 5 };

static void open_cells(cell_t *cells)
{
    static const char add[] = "Add 0:f32:1x? 1:f32:1x? -> 2:f32:1x?",
                      by_n[] = "DynamicDequantize qtype=per_group 1:s4:2048x1024 2:f16:2048x32 -> "
                               "4:f32:2048x1024; MatMul transpose_b=1 0:f32:1x1024 "
                               "4:f32:2048x1024 -> 3:f32:1x2048",
                      by_k[] = "DynamicDequantize qtype=per_group 1:s4:2048x1024 2:f16:64x1024 -> "
                               "4:f32:2048x1024; MatMul 0:f32:1x2048 4:f32:2048x1024 -> "
                               "3:f32:1x1024",
                      quantise[] = "DynamicQuantize quantization_kind=dynamic_nv qtype=per_group "
                                   "group_shape=1,16 0:f32:1x1024 5:f32:- -> 1:f4_e2m1:1x1024 "
                                   "2:f8_e4m3:1x64";
    open_cell(&cells[0], add, 2, 1,
              (const char *const[]){"0:f32:1x1024", "1:f32:1x1024", "2:f32:1x1024"});
    open_cell(
        &cells[1], by_n, 3, 1,
        (const char *const[]){"0:f32:1x1024", "1:s4:2048x1024", "2:f16:2048x32", "3:f32:1x2048"});
    open_cell(
        &cells[2], by_k, 3, 1,
        (const char *const[]){"0:f32:1x2048", "1:s4:2048x1024", "2:f16:64x1024", "3:f32:1x1024"});
    open_cell(&cells[3], "Add 0:f32:- 1:f32:- -> 2:f32:-", 2, 1,
              (const char *const[]){"0:f32:-", "1:f32:-", "2:f32:-"});
    open_cell(
        &cells[4], quantise, 2, 2,
        (const char *const[]){"0:f32:1x1024", "5:f32:-", "1:f4_e2m1:1x1024", "2:f8_e4m3:1x64"});
    const int links[][4] = {{0, 2, 1, 0}, {1, 3, 2, 0}, {2, 3, 3, 0}, {2, 3, 4, 0}, {3, 2, 4, 1}};
    for (int i = 0; i < 5; i++) {
        CHECK_THAT(sinter_tensor_set_data(cells[links[i][2]].tensors[links[i][3]],
                                          cells[links[i][0]].data[links[i][1]],
                                          SINTER_BYTES_TRUSTED) == sinter_success);
    }
}

/* Poisons what the elements write. */
static void poison(const cell_t *cells)
{
    for (int i = 0; i < CELLS; i++) {
        for (int k = cells[i].n_in; k < cells[i].n_in + cells[i].n_out; k++) {
            memset(cells[i].data[k], 0xFF, cells[i].bytes[k]);
        }
    }
}

/* All outputs, one after the other. */
static void collect(const cell_t *cells, unsigned char *to)
{
    for (int i = 0; i < CELLS; i++) {
        for (int k = cells[i].n_in; k < cells[i].n_in + cells[i].n_out; k++) {
            memcpy(to, cells[i].data[k], cells[i].bytes[k]);
            to += cells[i].bytes[k];
        }
    }
}

static void compare(const cell_t *cells, sinter_sequence_t *sequence, sinter_stream_t *stream,
                    const char *what)
{
    enum { BYTES = 4 * (1024 + 2048 + 1024 + 1) + 512 + 64 };
    static unsigned char want[BYTES], got[BYTES];
    poison(cells);
    for (int i = 0; i < CELLS; i++) {
        CHECK(execute(&cells[i], stream) == sinter_success, "%s", sinter_last_error_message());
    }
    collect(cells, want);
    poison(cells);
    CHECK(sinter_sequence_execute(sequence, stream) == sinter_success, "%s: %s", what,
          sinter_last_error_message());
    collect(cells, got);
    CHECK(memcmp(want, got, BYTES) == 0, "%s: other results than separate executes", what);
}

static void test_chain(int threads, bool all)
{
    cell_t cells[CELLS];
    sinter_sequence_t *sequence = NULL;
    open_engine();
    open_cells(cells);
    sinter_stream_t *stream = stream_of(threads, all), *other = stream_of(3 - threads % 2, true);
    CHECK_THAT(sinter_sequence_create(&sequence, engine) == sinter_success);
    CHECK_THAT(sinter_sequence_execute(sequence, stream) == sinter_success); /* empty */
    for (int i = 0; i < CELLS; i++) {
        CHECK_THAT(append(sequence, &cells[i]) == sinter_success);
    }
    compare(cells, sequence, stream, "first");
    compare(cells, sequence, stream, "again");
    ((float *)(void *)cells[0].data[0])[5] = 3;
    compare(cells, sequence, stream, "another value");
    unsigned char *moved = malloc(cells[0].bytes[0]);
    memset(moved, 0, cells[0].bytes[0]);
    CHECK_THAT(sinter_tensor_set_data(cells[0].tensors[0], moved, cells[0].bytes[0]) ==
               sinter_success);
    compare(cells, sequence, stream, "other data");
    compare(cells, sequence, other, "another stream");
    const long before = calls;
    for (int i = 0; i < 5; i++) {
        CHECK_THAT(sinter_sequence_execute(sequence, stream) == sinter_success);
    }
    CHECK_THAT(calls == before);
    for (int i = 0; i < CELLS; i++) {
        sinter_compiled_partition_destroy(&cells[i].compiled); /* the sequence keeps them */
    }
    CHECK_THAT(sinter_sequence_execute(sequence, stream) == sinter_success);
    sinter_sequence_destroy(&sequence);
    sinter_sequence_destroy(&sequence);
    for (int i = 0; i < CELLS; i++) {
        close_cell(&cells[i]);
    }
    free(moved);
    sinter_stream_destroy(&stream);
    sinter_stream_destroy(&other);
    close_engine();
}

/* ---- dims ------------------------------------------------------------------------------------ */

static const char any_add[] = "Add 0:f32:?x64 1:f32:?x64 -> 2:f32:?x64";
static const char *const add_ports[] = {"0:f32:2000x64", "1:f32:2000x64", "2:f32:2000x64"};

/* Both elements change their dims, or one of them. */
static void test_dims(int threads)
{
    static const int64_t rows[][2] = {{2000, 2000}, {1, 7}, {1, 2000}, {0, 3}, {900, 3}, {1, 7}};
    cell_t cells[2];
    sinter_sequence_t *sequence = NULL;
    open_engine();
    sinter_stream_t *stream = stream_of(threads, false);
    CHECK_THAT(sinter_sequence_create(&sequence, engine) == sinter_success);
    for (int i = 0; i < 2; i++) {
        open_cell(&cells[i], any_add, 2, 1, add_ports);
        CHECK_THAT(append(sequence, &cells[i]) == sinter_success);
    }
    long before = 0;
    for (int r = 0; r < 6; r++) {
        for (int i = 0; i < 2; i++) {
            for (int k = 0; k < 3; k++) {
                CHECK_THAT(sinter_tensor_set_dims(cells[i].tensors[k], 2,
                                                  (const sinter_dim_t[]){rows[r][i], 64},
                                                  NULL) == sinter_success);
            }
            memset(cells[i].data[2], 0xFF, cells[i].bytes[2]);
        }
        CHECK_THAT(sinter_sequence_execute(sequence, stream) == sinter_success);
        CHECK_THAT(r == 0 || calls == before); /* the first one was the largest */
        before = calls;
        for (int i = 0; i < 2; i++) {
            const float *a = (const float *)(const void *)cells[i].data[0],
                        *b = (const float *)(const void *)cells[i].data[1],
                        *y = (const float *)(const void *)cells[i].data[2];
            int wrong = 0;
            for (int64_t k = 0; k < rows[r][i] * 64; k++) {
                wrong += y[k] != a[k] + b[k];
            }
            CHECK_THAT(wrong == 0);
            CHECK_THAT(rows[r][i] == 2000 || cells[i].data[2][rows[r][i] * 256] == 0xFF);
        }
    }
    sinter_sequence_destroy(&sequence);
    close_cell(&cells[0]);
    close_cell(&cells[1]);
    sinter_stream_destroy(&stream);
    close_engine();
}

/* ---- errors ---------------------------------------------------------------------------------- */

static void check_message(sinter_status_t got, sinter_status_t want, const char *text)
{
    CHECK(got == want && strstr(sinter_last_error_message(), text) != NULL,
          "%s: \"%s\", expected \"%s\"", sinter_status_name(got), sinter_last_error_message(),
          text);
}

static void test_errors(void)
{
    const sinter_status_t bad = sinter_invalid_arguments;
    cell_t cells[2];
    sinter_sequence_t *s = NULL;
    open_engine();
    sinter_stream_t *stream = stream_of(2, false);
    open_cell(&cells[0], any_add, 2, 1, add_ports);
    open_cell(&cells[1], any_add, 2, 1, add_ports);
    check_message(sinter_sequence_create(NULL, engine), bad, "sequence != NULL");
    check_message(sinter_sequence_destroy(NULL), bad, "sequence != NULL");
    CHECK_THAT(sinter_sequence_create(&s, engine) == sinter_success);
    check_message(sinter_sequence_execute(NULL, stream), bad, "sequence != NULL");
    check_message(sinter_sequence_execute(s, NULL), bad, "stream != NULL");
    const sinter_tensor_t *const in[] = {cells[0].tensors[0], cells[0].tensors[1], NULL};
    sinter_tensor_t *const out[] = {cells[0].tensors[2], NULL};
    sinter_compiled_partition_t *cp = cells[0].compiled;
    check_message(sinter_sequence_append(NULL, cp, 2, in, 1, out), bad, "sequence != NULL");
    check_message(sinter_sequence_append(s, NULL, 2, in, 1, out), bad, "compiled != NULL");
    check_message(sinter_sequence_append(s, cp, 2, NULL, 1, out), bad, "inputs != NULL");
    check_message(sinter_sequence_append(s, cp, 2, in, 1, NULL), bad, "outputs != NULL");
    check_message(sinter_sequence_append(s, cp, 1, in, 1, out), bad, "no input with tensor id 1");
    check_message(sinter_sequence_append(s, cp, 2, in, 0, out), bad, "no output with tensor id 2");
    check_message(sinter_sequence_append(s, cp, 3, in, 1, out), bad, "is NULL");
    CHECK_THAT(append(s, &cells[0]) == sinter_success && append(s, &cells[1]) == sinter_success);
    memset(cells[0].data[2], 0xFF, cells[0].bytes[2]);
    CHECK_THAT(sinter_tensor_set_data(cells[1].tensors[1], NULL, 0) == sinter_success);
    check_message(sinter_sequence_execute(s, stream), bad,
                  "element 1, partition 0 (single): tensor 1 has no data");
    /* From the same address on they would be an in-place pair. */
    CHECK_THAT(sinter_tensor_set_data(cells[1].tensors[1], cells[1].data[2] + 4,
                                      SINTER_BYTES_TRUSTED) == sinter_success);
    check_message(sinter_sequence_execute(s, stream), bad,
                  "element 1, partition 0 (single): output tensor 2 overlaps");
    CHECK_THAT(sinter_tensor_set_data(cells[1].tensors[1], cells[1].data[1], cells[1].bytes[1]) ==
               sinter_success);
    CHECK_THAT(sinter_tensor_set_dims(cells[0].tensors[2], 2, (const sinter_dim_t[]){5, 64},
                                      NULL) == sinter_success);
    check_message(sinter_sequence_execute(s, stream), sinter_invalid_shape,
                  "dimension 0 is 5, its inputs lead to 2000");
    CHECK_THAT(strncmp(sinter_last_error_message(), "element 0, partition 0 (single): ", 31) == 0);
    CHECK_THAT(cells[0].data[2][0] == 0xFF); /* nothing is written */
    CHECK_THAT(sinter_tensor_set_dims(cells[0].tensors[2], 2, (const sinter_dim_t[]){2000, 64},
                                      NULL) == sinter_success);
    CHECK_THAT(sinter_sequence_execute(s, stream) == sinter_success);
    CHECK_THAT(cells[0].data[2][0] != 0xFF);
    sinter_sequence_destroy(&s);
    close_cell(&cells[0]);
    close_cell(&cells[1]);
    sinter_stream_destroy(&stream);
    close_engine();
}

static sinter_status_t build_and_run(const cell_t *cells, sinter_stream_t *stream,
                                     sinter_sequence_t **s)
{
    sinter_status_t status = sinter_sequence_create(s, engine);
    for (int i = 0; i < 4 * CELLS && status == sinter_success; i++) {
        status = append(*s, &cells[i % CELLS]);
    }
    return status == sinter_success ? sinter_sequence_execute(*s, stream) : status;
}

static void test_no_memory(void)
{
    cell_t cells[CELLS];
    long n = 0;
    open_engine();
    open_cells(cells);
    sinter_stream_t *stream = stream_of(2, true);
    for (sinter_status_t status = sinter_out_of_memory; status != sinter_success; n++) {
        sinter_sequence_t *s = NULL;
        const long before = live;
        budget = n;
        status = build_and_run(cells, stream, &s);
        budget = -1;
        CHECK_THAT(status == sinter_success || status == sinter_out_of_memory);
        /* after a failure it works with enough memory */
        CHECK_THAT(s == NULL || sinter_sequence_execute(s, stream) == sinter_success);
        sinter_sequence_destroy(&s);
        sinter_engine_invalidate_constants(engine, NULL, 0);
        CHECK_THAT(live >= before && n < 1000);
    }
    CHECK_THAT(n > 4 * CELLS);
    for (int i = 0; i < CELLS; i++) {
        close_cell(&cells[i]);
    }
    sinter_stream_destroy(&stream);
    close_engine();
}

static void test_line(void)
{
    cell_t cells[CELLS];
    sinter_sequence_t *s = NULL;
    capture_t c;
    char text[1024];
    open_engine();
    open_cells(cells);
    sinter_stream_t *stream = stream_of(2, false);
    CHECK_THAT(build_and_run(cells, stream, &s) == sinter_success);
    CHECK_THAT(sinter_set_verbose("exec") == sinter_success);
    capture_begin(&c);
    CHECK_THAT(sinter_sequence_execute(s, stream) == sinter_success);
    capture_end(&c, text, sizeof text);
    CHECK_THAT(sinter_set_verbose("none") == sinter_success);
    CHECK(strncmp(text, "sinter: exec sequence of 20 partitions, ", 40) == 0, "%s", text);
    sinter_sequence_destroy(&s);
    for (int i = 0; i < CELLS; i++) {
        close_cell(&cells[i]);
    }
    sinter_stream_destroy(&stream);
    close_engine();
}

/* A sequence keeps what it has bound while the copies of its constants are there. Behind an
 * invalidation, and where the budget has no room or room again, results are those of the present
 * weights. */
static void test_constants(void)
{
    static const char *const ports[] = {"0:f32:1x64", "1:f32!:48x64", "2:f32:1x48"};
    sinter_constant_cache_stats_t stats = {.size = sizeof stats};
    sinter_sequence_t *sequence = NULL;
    cell_t c;
    open_engine();
    open_cell(&c, "MatMul transpose_b=1 0:f32:1x64 1:f32!:48x64 -> 2:f32:1x48", 2, 1, ports);
    sinter_stream_t *stream = stream_of(2, false);
    CHECK_THAT(sinter_sequence_create(&sequence, engine) == sinter_success &&
               append(sequence, &c) == sinter_success);
    float *weights = (float *)(void *)c.data[1], *y = (float *)(void *)c.data[2], want[48];
    for (int round = 0; round < 12; round++) {
        const size_t room = round % 4 == 2 ? 0 : SIZE_MAX;
        for (int i = 0; i < 48 * 64; i++) {
            weights[i] = (float)((i * 7 + round) % 11);
        }
        CHECK_THAT(sinter_engine_invalidate_constants(engine, weights, c.bytes[1]) ==
                   sinter_success);
        CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, room) == sinter_success);
        CHECK_THAT(execute(&c, stream) == sinter_success);
        memcpy(want, y, sizeof want);
        for (int again = 0; again < 3; again++) {
            memset(y, 0xff, sizeof want);
            CHECK_THAT(sinter_sequence_execute(sequence, stream) == sinter_success);
            int wrong = 0;
            for (int n = 0; n < 48; n++) {
                const float off = y[n] - want[n];
                wrong += !((off < 0 ? -off : off) <= 1e-5f * want[n]);
            }
            CHECK(wrong == 0, "round %d, execute %d: %d results are wrong", round, again, wrong);
        }
        CHECK_THAT(sinter_engine_get_constant_cache_stats(engine, &stats) == sinter_success);
        CHECK(room > 0 || stats.entries == 0, "copies in spite of the budget");
    }
    CHECK(stats.packed == 0 || stats.hits >= 3 * 9, "%d hits", (int)stats.hits);
    sinter_sequence_destroy(&sequence);
    sinter_stream_destroy(&stream);
    close_cell(&c);
    close_engine();
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    for (int threads = 1; threads <= 3; threads++) {
        test_chain(threads, false);
        test_chain(threads, true);
        test_dims(threads);
    }
    test_errors();
    test_no_memory();
    test_line();
    test_constants();
    return check_finish();
}
