/* thread_costs [SECONDS]: what small executes cost with 1, 2 and 4 threads, under each wait policy
 * of OpenMP and in a pool of the caller's, on idle cores and beside a busy process. SECONDS is the
 * time for each figure (0.5).
 *
 *   tiny   an execute that adds two tensors of 8 elements
 *   region  the same in all threads, however little work it is: what it costs to call them
 *   token  151 executes, as a language model of 135 million parameters makes them for a token: in
 *          each of 30 layers four products with 4-bit weights and one conversion of 384 numbers,
 *          then the product that gives the logits
 *   sequence  the token as one sequence
 *   step   one of 151 tiny executes that are one sequence
 *   graph  a compiled graph of six partitions: products of 32 numbers with 8-bit weights, each
 *          added to its input
 *
 * The runtime of OpenMP reads its environment before main, so each policy has a process of its
 * own, which gets the numbers of a row as its arguments. Figures are medians. */
#define _GNU_SOURCE
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <sinter/sinter.h>

#include "pool.h"

enum { PRODUCTS = 6, NUMBERS = 32 };
enum { LAYERS = 30, KINDS = 5, STEPS = LAYERS * KINDS + 1, GROUP = 32, MOST_SAMPLES = 100000 };

static void check(sinter_status_t status, int line)
{
    if (status != sinter_success) {
        fprintf(stderr, "thread_costs.c:%d: %s\n", line, sinter_last_error_message());
        exit(1);
    }
}
#define CHECK(call) check(call, __LINE__)

static double now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

/* ---- graphs ---------------------------------------------------------------------------------- */

static sinter_logical_tensor_t tensor(uint64_t id, sinter_data_type_t type, int64_t rows,
                                      int64_t columns, sinter_tensor_property_t property)
{
    sinter_logical_tensor_t lt;
    const sinter_dim_t dims[2] = {rows, columns};
    CHECK(sinter_logical_tensor_init(&lt, id, type, 2, dims, property));
    return lt;
}

static sinter_op_t *new_op(sinter_op_kind_t kind, uint64_t id, int n_in,
                           const sinter_logical_tensor_t *in, const sinter_logical_tensor_t *out)
{
    sinter_op_t *op = NULL;
    CHECK(sinter_op_create(&op, NULL, id, kind, NULL));
    for (int i = 0; i < n_in; i++) {
        CHECK(sinter_op_add_input(op, &in[i]));
    }
    CHECK(sinter_op_add_output(op, out));
    return op;
}

static void add_op(sinter_graph_t *graph, sinter_op_t *op)
{
    CHECK(sinter_graph_add_op(graph, op));
    CHECK(sinter_op_destroy(&op));
}

/* A compiled partition with its ports; the last one is the output. */
typedef struct part {
    sinter_compiled_partition_t *compiled;
    int n_ports;
    sinter_logical_tensor_t ports[4];
} part_t;

static void compile(part_t *part, sinter_graph_t *graph)
{
    sinter_partition_t *partition = NULL;
    CHECK(sinter_graph_finalize(graph));
    CHECK(sinter_graph_filter(graph, sinter_partition_policy_fusion));
    CHECK(sinter_graph_get_partitions(graph, 1, &partition));
    CHECK(sinter_partition_compile(partition, NULL, 0, NULL, 0, NULL, &part->compiled));
    CHECK(sinter_partition_destroy(&partition));
    CHECK(sinter_graph_destroy(&graph));
}

static sinter_graph_t *new_graph(void)
{
    sinter_graph_t *graph = NULL;
    CHECK(sinter_graph_create(&graph, NULL, sinter_cpu));
    return graph;
}

/* y = a + b */
static part_t addition(int64_t n)
{
    part_t part = {.n_ports = 3};
    sinter_graph_t *graph = new_graph();
    for (uint64_t i = 0; i < 3; i++) {
        part.ports[i] = tensor(i, sinter_f32, 1, n, sinter_tensor_property_variable);
    }
    add_op(graph, new_op(sinter_op_add, 1, 2, part.ports, &part.ports[2]));
    compile(&part, graph);
    return part;
}

/* y = x as f16 */
static part_t conversion(int64_t n)
{
    part_t part = {.n_ports = 2};
    sinter_graph_t *graph = new_graph();
    part.ports[0] = tensor(0, sinter_f32, 1, n, sinter_tensor_property_variable);
    part.ports[1] = tensor(1, sinter_f16, 1, n, sinter_tensor_property_variable);
    add_op(graph, new_op(sinter_op_type_cast, 1, 1, part.ports, &part.ports[1]));
    compile(&part, graph);
    return part;
}

/* y[1, n] = x[1, k] * w[n, k] transposed, with codes of 4 bits */
static part_t product(int64_t n, int64_t k)
{
    part_t part = {.n_ports = 4};
    sinter_graph_t *graph = new_graph();
    sinter_logical_tensor_t *p = part.ports;
    p[0] = tensor(0, sinter_f32, 1, k, sinter_tensor_property_variable);
    p[1] = tensor(1, sinter_s4, n, k, sinter_tensor_property_constant);
    p[2] = tensor(2, sinter_f16, n, k / GROUP, sinter_tensor_property_constant);
    p[3] = tensor(3, sinter_f32, 1, n, sinter_tensor_property_variable);
    const sinter_logical_tensor_t w = tensor(4, sinter_f32, n, k, sinter_tensor_property_variable);
    sinter_op_t *op = new_op(sinter_op_dynamic_dequantize, 1, 2, &p[1], &w);
    CHECK(sinter_op_set_attr_str(op, sinter_op_attr_qtype, "per_group"));
    add_op(graph, op);
    op = new_op(sinter_op_matmul, 2, 2, (const sinter_logical_tensor_t[]){p[0], w}, &p[3]);
    CHECK(sinter_op_set_attr_bool(op, sinter_op_attr_transpose_b, 1));
    add_op(graph, op);
    compile(&part, graph);
    return part;
}

/* ---- executes -------------------------------------------------------------------------------- */

/* A part with tensors over buffers of its own. */
typedef struct call {
    const part_t *part;
    sinter_tensor_t *tensors[4];
} call_t;

static void open_call(call_t *call, const part_t *part)
{
    call->part = part;
    for (int i = 0; i < part->n_ports; i++) {
        size_t bytes = 0;
        CHECK(sinter_logical_tensor_get_bytes(&part->ports[i], &bytes));
        unsigned char *data = aligned_alloc(64, (bytes + 63) / 64 * 64);
        if (data == NULL) {
            exit(1);
        }
        for (size_t k = 0; k < bytes; k++) {
            data[k] = (unsigned char)(part->ports[i].data_type == sinter_s4 ? k * 37 : 0x2C);
        }
        CHECK(sinter_tensor_create(&call->tensors[i], NULL, &part->ports[i], data, bytes));
    }
}

static void run(const call_t *calls, int n, sinter_stream_t *stream)
{
    for (int i = 0; i < n; i++) {
        const int n_in = calls[i].part->n_ports - 1;
        CHECK(sinter_compiled_partition_execute(calls[i].part->compiled, stream, (size_t)n_in,
                                                (const sinter_tensor_t *const *)calls[i].tensors, 1,
                                                &calls[i].tensors[n_in], NULL, 0));
    }
}

static sinter_sequence_t *sequence_of(const call_t *calls, int n, int stride)
{
    sinter_sequence_t *sequence = NULL;
    CHECK(sinter_sequence_create(&sequence, NULL));
    for (int i = 0; i < n; i++) {
        const call_t *c = &calls[i * stride];
        const int n_in = c->part->n_ports - 1;
        CHECK(sinter_sequence_append(sequence, c->part->compiled, (size_t)n_in,
                                     (const sinter_tensor_t *const *)c->tensors, 1,
                                     &c->tensors[n_in]));
    }
    return sequence;
}

static int by_value(const void *a, const void *b)
{
    const double x = *(const double *)a, y = *(const double *)b;
    return (x > y) - (x < y);
}

/* Six times x = x + w x, each of which is a partition, bound to buffers of zeros. */
static sinter_compiled_graph_t *six_products(void)
{
    enum { WEIGHTS = 100, SCALES = 200, PLAIN = 300, PRODUCT = 400 };
    static float zeros[NUMBERS * NUMBERS], y[NUMBERS];
    const sinter_tensor_property_t none = sinter_tensor_property_undef;
    sinter_graph_t *graph = new_graph();
    sinter_compiled_graph_t *whole = NULL;
    sinter_logical_tensor_t x = tensor(0, sinter_f32, 1, NUMBERS, none);
    for (uint64_t i = 0; i < PRODUCTS; i++) {
        const sinter_logical_tensor_t w = tensor(WEIGHTS + i, sinter_s8, NUMBERS, NUMBERS,
                                                 sinter_tensor_property_constant),
                                      s = tensor(SCALES + i, sinter_f32, NUMBERS, 1,
                                                 sinter_tensor_property_constant),
                                      plain = tensor(PLAIN + i, sinter_f32, NUMBERS, NUMBERS, none),
                                      product = tensor(PRODUCT + i, sinter_f32, 1, NUMBERS, none),
                                      sum = tensor(i + 1, sinter_f32, 1, NUMBERS, none);
        CHECK(sinter_graph_add(graph, PLAIN + i, sinter_op_dynamic_dequantize, sinter_in(&w),
                               sinter_in(&s), sinter_out(&plain),
                               sinter_attr_str(sinter_op_attr_qtype, "per_group")));
        CHECK(sinter_graph_add(graph, PRODUCT + i, sinter_op_matmul, sinter_in(&x),
                               sinter_in(&plain), sinter_out(&product),
                               sinter_attr_bool(sinter_op_attr_transpose_b, 1)));
        CHECK(sinter_graph_add(graph, i + 1, sinter_op_add, sinter_in(&product), sinter_in(&x),
                               sinter_out(&sum)));
        x = sum;
    }
    CHECK(sinter_graph_finalize(graph));
    CHECK(sinter_graph_compile(graph, NULL, 0, NULL, &whole));
    CHECK(sinter_graph_destroy(&graph));
    for (uint64_t i = 0; i < PRODUCTS; i++) {
        CHECK(sinter_compiled_graph_bind(whole, WEIGHTS + i, 0, NULL, NULL, zeros, sizeof zeros));
        CHECK(sinter_compiled_graph_bind(whole, SCALES + i, 0, NULL, NULL, zeros, sizeof zeros));
    }
    CHECK(sinter_compiled_graph_bind(whole, 0, 0, NULL, NULL, zeros, sizeof zeros));
    CHECK(sinter_compiled_graph_bind(whole, PRODUCTS, 0, NULL, NULL, y, sizeof y));
    return whole;
}

/* The median of the seconds that an execute takes. */
static double measure_graph(sinter_compiled_graph_t *whole, sinter_stream_t *stream, double seconds)
{
    static double samples[MOST_SAMPLES];
    int count = 0;
    CHECK(sinter_compiled_graph_execute(whole, stream));
    for (const double end = now() + seconds; count < MOST_SAMPLES && (count < 5 || now() < end);) {
        const double begin = now();
        CHECK(sinter_compiled_graph_execute(whole, stream));
        samples[count++] = now() - begin;
    }
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    return samples[count / 2];
}

/* The median of the seconds that the calls take; as a sequence if there is one. */
static double measure(const call_t *calls, int n, sinter_sequence_t *sequence,
                      sinter_stream_t *stream, double seconds)
{
    static double samples[MOST_SAMPLES];
    int count = 0;
    run(calls, n, stream);
    for (const double end = now() + seconds; count < MOST_SAMPLES && (count < 5 || now() < end);) {
        const double begin = now();
        if (sequence != NULL) {
            CHECK(sinter_sequence_execute(sequence, stream));
        } else {
            run(calls, n, stream);
        }
        samples[count++] = now() - begin;
    }
    qsort(samples, (size_t)count, sizeof *samples, by_value);
    return samples[count / 2];
}

/* Rows of the table: all figures for one policy, or for a pool. */
static void print_rows(const char *cores, bool in_pool, double seconds)
{
    static call_t token[STEPS], tiny;
    const char *policy = getenv("OMP_WAIT_POLICY");
    const part_t kinds[KINDS] = {product(960, 576), conversion(384), product(576, 576),
                                 product(3072, 576), product(576, 1536)},
                 head = product(49152, 576), add = addition(8);
    open_call(&tiny, &add);
    for (int i = 0; i < STEPS; i++) {
        open_call(&token[i], i < STEPS - 1 ? &kinds[i % KINDS] : &head);
    }
    sinter_sequence_t *all = sequence_of(token, STEPS, 1), *steps = sequence_of(&tiny, STEPS, 0);
    sinter_compiled_graph_t *whole = six_products();
    for (int threads = 1; threads <= 4; threads *= 2) {
        sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads};
        sinter_stream_t *stream = NULL;
        pool_t *pool = in_pool ? pool_create(threads) : NULL;
        if (pool != NULL) {
            desc.parallel_for = pool_for;
            desc.pool = pool;
        }
        sinter_stream_t *all_come = NULL;
        CHECK(sinter_stream_create(&stream, NULL, &desc));
        desc.all_threads = 1;
        CHECK(sinter_stream_create(&all_come, NULL, &desc));
        printf("| %s | %s | %d | %.2f | %.2f | %.2f | %.2f | %.2f | %.2f |\n",
               in_pool          ? "pool"
               : policy != NULL ? policy
                                : "default",
               cores, threads, 1e6 * measure(&tiny, 1, NULL, stream, seconds),
               1e6 * measure(&tiny, 1, NULL, all_come, seconds),
               1e3 * measure(token, STEPS, NULL, stream, seconds),
               1e3 * measure(token, STEPS, all, stream, seconds),
               1e6 / STEPS * measure(&tiny, 1, steps, stream, seconds),
               1e6 * measure_graph(whole, stream, seconds));
        fflush(stdout);
        CHECK(sinter_stream_destroy(&stream));
        CHECK(sinter_stream_destroy(&all_come));
        pool_destroy(pool);
    }
    CHECK(sinter_sequence_destroy(&all));
    CHECK(sinter_sequence_destroy(&steps));
    CHECK(sinter_compiled_graph_destroy(&whole));
}

/* ---- processes ------------------------------------------------------------------------------- */

static pid_t start_busy(void)
{
    const pid_t child = fork();
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (volatile unsigned n = 0;; n++) {
        }
    }
    return child;
}

/* policy: of OpenMP, NULL for none; or "pool". */
static void run_rows(const char *program, const char *policy, bool busy, const char *seconds)
{
    const pid_t other = busy ? start_busy() : -1, child = fork();
    if (child == 0) {
        const bool in_pool = policy != NULL && strcmp(policy, "pool") == 0;
        if (policy != NULL && !in_pool) {
            setenv("OMP_WAIT_POLICY", policy, 1);
        } else {
            unsetenv("OMP_WAIT_POLICY");
        }
        execl("/proc/self/exe", program, seconds, busy ? "one busy" : "idle",
              in_pool ? "pool" : (char *)NULL, (char *)NULL);
        _exit(1);
    }
    if (child > 0) {
        waitpid(child, NULL, 0);
    }
    if (other > 0) {
        kill(other, SIGKILL);
        waitpid(other, NULL, 0);
    }
}

int main(int argc, char **argv)
{
    enum { POLICIES = 4 };
    static const char *const policies[POLICIES] = {NULL, "active", "passive", "pool"};
    const char *seconds = argc > 1 ? argv[1] : "0.5";
    if (argc > 2) {
        print_rows(argv[2], argc > 3, strtod(seconds, NULL));
        return 0;
    }
    printf(
        "%ld cores; tiny, region, step and graph in us, token in ms, with 1, 2 and 4 threads\n\n",
        sysconf(_SC_NPROCESSORS_ONLN));
    printf("| policy | cores | threads | tiny | region | token | sequence | step | graph |\n"
           "|---|---|---|---|---|---|---|---|---|\n");
    fflush(stdout);
    for (int i = 0; i < 2 * POLICIES; i++) {
        run_rows(argv[0], policies[i % POLICIES], i >= POLICIES, seconds);
    }
    return 0;
}
