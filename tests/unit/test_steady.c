/* Decoding with a length that changes from execute to execute, compiled once: after an execute of the largest length, none allocates, whether through
 * the library's allocator or otherwise, and none generates code. Asserts no times; --time prints what an execute costs besides its kernel. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "e2e.h"
#include "passive.h"

/* ---- counting ----------------------------------------------------------------------------------------------------------------------- */

static atomic_long library_calls, process_calls;

static void *counted_alloc(size_t bytes, size_t alignment, void *user)
{
    void *p = NULL;

    (void)user;
    library_calls++;
    return posix_memalign(&p, alignment < sizeof p ? sizeof p : alignment, bytes) ? NULL : p;
}

static void counted_free(void *p, void *user)
{
    (void)user;
    free(p);
}

/* Whatever the process allocates by malloc and calloc: the library's own use of them, and libxsmm's. */
#if defined(__GLIBC__) && !defined(__SANITIZE_ADDRESS__)
extern void *__libc_malloc(size_t bytes);
extern void *__libc_calloc(size_t n, size_t bytes);

void *malloc(size_t bytes)
{
    process_calls++;
    return __libc_malloc(bytes);
}

void *calloc(size_t n, size_t bytes)
{
    process_calls++;
    return __libc_calloc(n, bytes);
}
#endif

/* Mappings of this process that hold code: generated code is in one of its own. */
static int code_mappings(void)
{
    char line[512], flags[8];
    FILE *f = fopen("/proc/self/maps", "r");
    int n = 0;

    while (f && fgets(line, sizeof line, f))
        n += sscanf(line, "%*s %7s", flags) == 1 && flags[2] == 'x';
    if (f)
        fclose(f);
    return n;
}

/* ---- a compiled decode and its tensors ------------------------------------------------------------------------------------------------ */

enum { LONGEST = 700, N_LENGTHS = 9 };
static const int64_t lengths[N_LENGTHS] = {LONGEST, 1, 33, 0, 257, 512, 31, LONGEST - 1, 64};

typedef struct decode {
    sinter_partition_t *partition;
    sinter_compiled_partition_t *compiled;
    sinter_stream_t *stream;
} decode_t;

/* So many heads; a single one is of one group, the smallest there is. */
static void resize(model_t *m, const char *name, int64_t heads, int64_t t)
{
    e2e_load(m, name);
    e2e_replace_dim(m, 32, heads);
    if (heads == 1) {
        e2e_replace_dim(m, 128, 32);
        e2e_replace_dim(m, 4, 1);
    }
    e2e_replace_dim(m, 4096, t);
}

static void open_decode(decode_t *d, sinter_engine_t *engine, const char *name, int64_t heads, int64_t t, sinter_fpmath_mode_t mode, int threads)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads};
    model_t m;

    *d = (decode_t){0};
    resize(&m, name, heads, t);
    d->partition = e2e_partition(&m, engine);
    model_free(&m);
    CHECK(sinter_partition_set_fpmath_mode(d->partition, mode, 1) == sinter_success);
    CHECK(sinter_partition_compile(d->partition, engine, 0, NULL, 0, NULL, &d->compiled) == sinter_success);
    CHECK(sinter_stream_create(&d->stream, engine, &desc) == sinter_success);
}

static void close_decode(decode_t *d)
{
    sinter_compiled_partition_destroy(&d->compiled);
    sinter_partition_destroy(&d->partition);
    sinter_stream_destroy(&d->stream);
}

static void make_ports(e2e_ports_t *p, sinter_engine_t *engine, const char *name, int64_t heads, int64_t t)
{
    model_t m;

    resize(&m, name, heads, t);
    e2e_ports_make(p, &m, engine, 7, 0);
    model_free(&m);
}

static void test_steady(const char *name, sinter_fpmath_mode_t mode, int threads)
{
    const sinter_engine_desc_t desc = {.size = sizeof desc, .allocator = {counted_alloc, counted_free, NULL}};
    sinter_engine_t *engine = NULL;
    static e2e_ports_t ports[N_LENGTHS];
    long library, process;
    int code, failed = 0;
    decode_t d;

    CHECK(sinter_engine_create(&engine, &desc) == sinter_success);
    open_decode(&d, engine, name, 4, SINTER_UNKNOWN_DIM, mode, threads);
    for (int i = 0; i < N_LENGTHS; i++)
        make_ports(&ports[i], engine, name, 4, lengths[i]);
    CHECK(library_calls > 0);
    CHECK(e2e_execute(d.compiled, d.stream, &ports[0]) == sinter_success);
    code = code_mappings();
    library = library_calls;
    process = process_calls;
    for (int k = 0; k < 3 * N_LENGTHS; k++)
        failed += e2e_execute(d.compiled, d.stream, &ports[k * 5 % N_LENGTHS]) != sinter_success;
    library = library_calls - library;
    process = process_calls - process;
    CHECK(failed == 0);
    CHECK(library == 0);
    CHECK(process == 0);
    CHECK(code_mappings() == code);
    if (library || process)
        printf("%s, %d threads: %ld allocations by the library, %ld by the process\n", name, threads, library, process);
    for (int i = 0; i < N_LENGTHS; i++)
        e2e_ports_free(&ports[i]);
    close_decode(&d);
    sinter_engine_destroy(&engine);
}

/* ---- what an execute costs ------------------------------------------------------------------------------------------------------------- */

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

enum { SHORTEST_T = 1, LONGEST_T = 32, ROUNDS = 400 };

/* The median over rounds of an execute's time, averaged over T = 1 ... 32 in turn. */
static double seconds_per_execute(const decode_t *d, size_t n, e2e_ports_t *ports)
{
    static double times[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        const double start = now();
        for (int t = SHORTEST_T; t <= LONGEST_T; t++)
            CHECK(e2e_execute(d[n > 1 ? t - 1 : 0].compiled, d->stream, &ports[t - 1]) == sinter_success);
        times[r] = (now() - start) / (LONGEST_T - SHORTEST_T + 1);
    }
    qsort(times, ROUNDS, sizeof *times, by_value);
    return times[ROUNDS / 2];
}

static void print_times(const char *name, int threads)
{
    static e2e_ports_t ports[LONGEST_T];
    static decode_t fixed[LONGEST_T];
    decode_t dynamic;
    double seconds[2];

    open_decode(&dynamic, NULL, name, 1, SINTER_UNKNOWN_DIM, sinter_fpmath_mode_strict, threads);
    for (int t = SHORTEST_T; t <= LONGEST_T; t++) {
        open_decode(&fixed[t - 1], NULL, name, 1, t, sinter_fpmath_mode_strict, threads);
        make_ports(&ports[t - 1], NULL, name, 1, t);
    }
    seconds[0] = seconds_per_execute(&dynamic, 1, ports);
    seconds[1] = seconds_per_execute(fixed, LONGEST_T, ports);
    printf("%s, one head of 32, T = 1 ... 32, %d thread%s: %.2f us for each execute with dynamic T, %.2f us with fixed T\n", name, threads,
           threads > 1 ? "s" : "", 1e6 * seconds[0], 1e6 * seconds[1]);
    for (int t = SHORTEST_T; t <= LONGEST_T; t++) {
        close_decode(&fixed[t - 1]);
        e2e_ports_free(&ports[t - 1]);
    }
    close_decode(&dynamic);
}

int main(int argc, char **argv)
{
    static const char *const models[] = {"attention-decode-zp.json", "attention-decode-scaled.json", "attention-decode-float.json"};

    if (argc > 1 && strcmp(argv[1], "--time") == 0) {
        for (int i = 0; i < 6; i++)
            print_times(models[i / 2], 1 + i % 2);
        return 0;
    }
    wait_passively(argv);
    for (int i = 0; i < 12; i++)
        test_steady(models[i / 4], i & 1 ? sinter_fpmath_mode_f16 : sinter_fpmath_mode_strict, i & 2 ? 2 : 1);
    return e2e_finish();
}
