/* Decoding with a length that changes from execute to execute, matmul and gated MLPs with a
 * number of rows that does, compiled once: after an execute of the largest size, none allocates,
 * whether through the library's allocator or otherwise, and none generates code; results are
 * right at every size. Nor does the line that SINTER_VERBOSE=exec prints allocate. Asserts no
 * times; --time prints what an execute of attention costs besides its kernel. */
#define _GNU_SOURCE
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "capture.h"
#include "e2e.h"
#include "passive.h"

/* ---- counting -------------------------------------------------------------------------------- */

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

/* Whatever the process allocates by malloc and calloc: the library's own use of them, and
 * libxsmm's. */
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

    while (f && fgets(line, sizeof line, f)) {
        n += sscanf(line, "%*s %7s", flags) == 1 && flags[2] == 'x';
    }
    if (f) {
        fclose(f);
    }
    return n;
}

/* ---- a compiled graph and its tensors -------------------------------------------------------- */

enum { N_SIZES = 9 };

/* A model made smaller: wherever a dim is the first number, it becomes the second; then
 * `varying` becomes unknown, or one of the sizes. */
typedef struct subject {
    const char *name;
    int64_t dims[4][2], varying;
    const int64_t *sizes;
} subject_t;

enum { LONGEST = 700 };
static const int64_t lengths[N_SIZES] = {LONGEST, 1, 33, 0, 257, 512, 31, LONGEST - 1, 64};
static const int64_t rows[N_SIZES] = {512, 1, 257, 2, 33, 128, 16, 15, 4};

static const subject_t subjects[] = {
    {"attention-decode-zp.json", {{32, 4}}, 4096, lengths},
    {"attention-decode-scaled.json", {{32, 4}}, 4096, lengths},
    {"attention-decode-float.json", {{32, 4}}, 4096, lengths},
    {"matmul-int4-4096x14336-g128-m128.json", {{14336, 321}, {4096, 512}}, 128, rows},
    {"gated-mlp-int4.json", {{14336, 224}, {4096, 512}}, 1, rows},
    {"patterns/matmul-quantized-activation.json", {{19, 65}}, 5, rows},
    {"patterns/matmul-sums.json", {{19, 65}}, 5, rows},
    {"patterns/gated-mlp-quantized.json", {{0}}, 5, rows},
    {"patterns/matmul-weight-int4-kn.json", {{0}}, 3, rows},
};
enum { N_SUBJECTS = sizeof subjects / sizeof *subjects };

/* One head of one group, the smallest there is. */
static const subject_t one_head[] = {
    {"attention-decode-zp.json", {{32, 1}, {128, 32}, {4, 1}}, 4096, lengths},
    {"attention-decode-scaled.json", {{32, 1}, {128, 32}, {4, 1}}, 4096, lengths},
    {"attention-decode-float.json", {{32, 1}, {128, 32}, {4, 1}}, 4096, lengths},
};

typedef struct program {
    sinter_partition_t *partition;
    sinter_compiled_partition_t *compiled;
    sinter_stream_t *stream;
} program_t;

static void resize(model_t *m, const subject_t *s, int64_t size)
{
    e2e_load(m, s->name);
    for (int i = 0; i < 4 && s->dims[i][0]; i++) {
        e2e_replace_dim(m, s->dims[i][0], s->dims[i][1]);
    }
    e2e_replace_dim(m, s->varying, size);
}

static void open_program(program_t *p, sinter_engine_t *engine, const subject_t *s, int64_t size,
                         sinter_fpmath_mode_t mode, int threads)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = 1};
    model_t m;

    *p = (program_t){0};
    resize(&m, s, size);
    p->partition = e2e_partition(&m, engine);
    model_free(&m);
    CHECK_THAT(sinter_partition_set_fpmath_mode(p->partition, mode, 1) == sinter_success);
    CHECK_THAT(sinter_partition_compile(p->partition, engine, 0, NULL, 0, NULL, &p->compiled) ==
               sinter_success);
    CHECK_THAT(sinter_stream_create(&p->stream, engine, &desc) == sinter_success);
}

static void close_program(program_t *p)
{
    sinter_compiled_partition_destroy(&p->compiled);
    sinter_partition_destroy(&p->partition);
    sinter_stream_destroy(&p->stream);
}

static void make_ports(e2e_ports_t *ports, sinter_engine_t *engine, const subject_t *s,
                       int64_t size)
{
    model_t m;

    resize(&m, s, size);
    e2e_ports_make(ports, &m, engine, 7, 0);
    model_free(&m);
}

/* The same weights at every size, so that there is one copy of them where kernels want one. */
static void share_constants(e2e_ports_t *ports, const e2e_ports_t *first)
{
    for (size_t i = 0; i < ports->n_in; i++) {
        size_t bytes = 0;
        if (ports->in_lt[i].property != sinter_tensor_property_constant) {
            continue;
        }
        CHECK_THAT(sinter_logical_tensor_get_bytes(&ports->in_lt[i], &bytes) == sinter_success);
        CHECK_THAT(memcmp(ports->in_data[i], first->in_data[i], bytes) == 0);
        CHECK_THAT(sinter_tensor_set_data(ports->in[i], first->in_data[i], bytes) ==
                   sinter_success);
    }
}

static int is_right(const e2e_ports_t *ports, const subject_t *s, int64_t size,
                    sinter_fpmath_mode_t mode)
{
    model_t m;
    int bad;

    resize(&m, s, size);
    bad = e2e_compare(&m, ports, mode, 1);
    model_free(&m);
    return !bad;
}

static void test_steady(const subject_t *s, sinter_fpmath_mode_t mode, int threads)
{
    const sinter_engine_desc_t desc = {.size = sizeof desc,
                                       .allocator = {counted_alloc, counted_free, NULL}};
    sinter_engine_t *engine = NULL;
    static e2e_ports_t ports[N_SIZES];
    long library, process;
    int code, failed = 0;
    char text[256];
    capture_t lines;
    program_t p;

    CHECK_THAT(sinter_engine_create(&engine, &desc) == sinter_success);
    open_program(&p, engine, s, SINTER_UNKNOWN_DIM, mode, threads);
    for (int i = 0; i < N_SIZES; i++) {
        make_ports(&ports[i], engine, s, s->sizes[i]);
        share_constants(&ports[i], &ports[0]);
    }
    CHECK_THAT(library_calls > 0);
    CHECK_THAT(e2e_execute(p.compiled, p.stream, &ports[0]) == sinter_success);
    code = code_mappings();
    library = library_calls;
    process = process_calls;
    for (int k = 0; k < 3 * N_SIZES; k++) {
        failed += e2e_execute(p.compiled, p.stream, &ports[k * 5 % N_SIZES]) != sinter_success;
    }
    library = library_calls - library;
    process = process_calls - process;
    capture_begin(&lines);
    library -= library_calls;
    process -= process_calls;
    CHECK_THAT(sinter_set_verbose("exec") == sinter_success);
    for (int k = 0; k < N_SIZES; k++) {
        failed += e2e_execute(p.compiled, p.stream, &ports[k]) != sinter_success;
    }
    CHECK_THAT(sinter_set_verbose("none") == sinter_success);
    library += library_calls;
    process += process_calls;
    capture_end(&lines, text, sizeof text);
    CHECK_THAT(strstr(text, "exec partition 0 (") != NULL);
    CHECK_THAT(failed == 0);
    CHECK_THAT(library == 0);
    CHECK_THAT(process == 0);
    CHECK_THAT(code_mappings() == code);
    if (library || process) {
        printf("%s, %d threads: %ld allocations by the library, %ld by the process\n", s->name,
               threads, library, process);
    }
    for (int i = 0; i < N_SIZES; i++) {
        CHECK_THAT(threads == 1 || i % 3 == 2 ||
                   is_right(&ports[i], s, s->sizes[i], mode)); /* the oracle takes its time */
    }
    for (int i = 0; i < N_SIZES; i++) {
        e2e_ports_free(&ports[i]);
    }
    close_program(&p);
    sinter_engine_destroy(&engine);
}

/* ---- what an execute costs ------------------------------------------------------------------- */

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
static double seconds_per_execute(const program_t *p, size_t n, e2e_ports_t *ports)
{
    static double times[ROUNDS];

    for (int r = 0; r < ROUNDS; r++) {
        const double start = now();
        for (int t = SHORTEST_T; t <= LONGEST_T; t++) {
            CHECK_THAT(e2e_execute(p[n > 1 ? t - 1 : 0].compiled, p->stream, &ports[t - 1]) ==
                       sinter_success);
        }
        times[r] = (now() - start) / (LONGEST_T - SHORTEST_T + 1);
    }
    qsort(times, ROUNDS, sizeof *times, by_value);
    return times[ROUNDS / 2];
}

static void print_times(const subject_t *s, int threads)
{
    static e2e_ports_t ports[LONGEST_T];
    static program_t fixed[LONGEST_T];
    program_t dynamic;
    double seconds[2];

    open_program(&dynamic, NULL, s, SINTER_UNKNOWN_DIM, sinter_fpmath_mode_strict, threads);
    for (int t = SHORTEST_T; t <= LONGEST_T; t++) {
        open_program(&fixed[t - 1], NULL, s, t, sinter_fpmath_mode_strict, threads);
        make_ports(&ports[t - 1], NULL, s, t);
    }
    seconds[0] = seconds_per_execute(&dynamic, 1, ports);
    seconds[1] = seconds_per_execute(fixed, LONGEST_T, ports);
    printf("%s, one head of 32, T = 1 ... 32, %d thread%s: %.2f us for each execute with dynamic "
           "T, %.2f us with fixed T\n",
           s->name, threads, threads > 1 ? "s" : "", 1e6 * seconds[0], 1e6 * seconds[1]);
    for (int t = SHORTEST_T; t <= LONGEST_T; t++) {
        close_program(&fixed[t - 1]);
        e2e_ports_free(&ports[t - 1]);
    }
    close_program(&dynamic);
}

int main(int argc, char **argv)
{
    static const sinter_fpmath_mode_t modes[] = {sinter_fpmath_mode_strict, sinter_fpmath_mode_f16,
                                                 sinter_fpmath_mode_int8};

    if (argc > 1 && strcmp(argv[1], "--time") == 0) {
        for (int i = 0; i < 6; i++) {
            print_times(&one_head[i / 2], 1 + i % 2);
        }
        return 0;
    }
    wait_passively(argv);
    for (int i = 0; i < N_SUBJECTS; i++) {
        for (int k = 0; k < 6; k++) {
            test_steady(&subjects[i], modes[k / 2], 1 + k % 2);
        }
    }
    return check_finish();
}
