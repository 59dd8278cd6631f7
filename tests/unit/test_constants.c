/* The constant cache: weights that are packed once, while threads that want other ones go on,
 * shared by compiled partitions of any M, kept within the budget, and forgotten when their buffer
 * is; results are the oracle's whether it has room or not, and with many threads. */
#include <errno.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/alloc.h"
#include "e2e.h"

enum { WEIGHTS, SCALES, ZPS, PARTS, K = 160, N = 38, GROUPS = 5 }; /* the first inputs */
static const char name[] = "patterns/matmul-weight-int4-kn.json";

/* ---- an engine that counts, and fails, allocations ------------------------------------------- */

#define NO_LIMIT (1L << 40)
static atomic_long calls, blocks, left = NO_LIMIT;

static void *counted_alloc(size_t bytes, size_t alignment, void *user)
{
    void *p = NULL;

    (void)user;
    calls++;
    if (left-- <= 0 || posix_memalign(&p, alignment < sizeof p ? sizeof p : alignment, bytes)) {
        return NULL;
    }
    blocks++;
    return p;
}

static void counted_free(void *p, void *user)
{
    (void)user;
    blocks -= p != NULL;
    free(p);
}

static sinter_engine_t *engine;
static sinter_stream_t *stream;
/* Copies that this engine's kernels want: tiles, for any number of rows. */
static uint64_t copies;

static void open_engine(void)
{
    const sinter_engine_desc_t desc = {.size = sizeof desc,
                                       .allocator = {counted_alloc, counted_free, NULL}};
    const sinter_stream_desc_t one = {.size = sizeof one, .threads = 1, .all_threads = 1};

    CHECK_THAT(sinter_engine_create(&engine, &desc) == sinter_success);
    CHECK_THAT(sinter_stream_create(&stream, engine, &one) == sinter_success);
    copies = sinter_engine_get_isa(engine) == sinter_isa_generic ? 0 : PARTS;
}

static void close_engine(void)
{
    sinter_stream_destroy(&stream);
    sinter_engine_destroy(&engine);
    CHECK_THAT(blocks == 0);
}

static sinter_constant_cache_stats_t stats(void)
{
    sinter_constant_cache_stats_t s = {.size = sizeof s};

    CHECK_THAT(sinter_engine_get_constant_cache_stats(engine, &s) == sinter_success);
    return s;
}

/* ---- one matmul ------------------------------------------------------------------------------ */

typedef struct matmul {
    model_t model;
    sinter_compiled_partition_t *compiled;
    e2e_ports_t ports;
} matmul_t;

static void set_property(model_t *m, sinter_tensor_property_t property)
{
    for (size_t o = 0; o < m->n_ops; o++) {
        for (size_t i = 0; i < m->ops[o].n_inputs; i++) {
            if (m->ops[o].inputs[i].property == sinter_tensor_property_constant) {
                m->ops[o].inputs[i].property = property;
            }
        }
    }
}

static int64_t columns = N; /* of the weights that open_matmul makes */

/* rows of A, at execute; where they are `known`, at compile too. */
static void open_matmul(matmul_t *x, int64_t rows, int known, sinter_tensor_property_t property,
                        uint64_t seed)
{
    sinter_partition_t *partition;
    model_t m;

    e2e_load(&m, name);
    set_property(&m, property);
    e2e_replace_dim(&m, N, columns);
    e2e_replace_dim(&m, 3, known ? rows : SINTER_UNKNOWN_DIM);
    partition = e2e_partition(&m, engine);
    CHECK_THAT(sinter_partition_compile(partition, engine, 0, NULL, 0, NULL, &x->compiled) ==
               sinter_success);
    sinter_partition_destroy(&partition);
    model_free(&m);
    e2e_load(&x->model, name);
    set_property(&x->model, property);
    e2e_replace_dim(&x->model, N, columns);
    e2e_replace_dim(&x->model, 3, rows);
    e2e_ports_make(&x->ports, &x->model, engine, seed, 0);
}

static void close_matmul(matmul_t *x)
{
    sinter_compiled_partition_destroy(&x->compiled);
    e2e_ports_free(&x->ports);
    model_free(&x->model);
}

static sinter_status_t execute(matmul_t *x)
{
    return e2e_execute(x->compiled, stream, &x->ports);
}

static int runs_right(matmul_t *x)
{
    return execute(x) == sinter_success &&
           !e2e_compare(&x->model, &x->ports, sinter_fpmath_mode_int8, 1);
}

static void *weights_of(const matmul_t *x)
{
    CHECK_THAT(x->ports.in_lt[WEIGHTS].data_type == sinter_u4 &&
               x->ports.in_lt[WEIGHTS].dims[0] == K && x->ports.in_lt[WEIGHTS].dims[1] == N);
    return x->ports.in_data[WEIGHTS];
}

/* x reads y's weights, scales and zero points. */
static void share_weights(matmul_t *x, const matmul_t *y)
{
    static const size_t bytes[PARTS] = {K * N / 2, 2 * GROUPS * N, GROUPS * N / 2};

    weights_of(x);
    for (int i = 0; i < PARTS; i++) {
        memcpy(x->ports.in_data[i], y->ports.in_data[i], bytes[i]); /* what the oracle reads */
        CHECK_THAT(sinter_tensor_set_data(x->ports.in[i], y->ports.in_data[i], bytes[i]) ==
                   sinter_success);
    }
}

/* ---- tests ----------------------------------------------------------------------------------- */

static void test_once_for_all(void)
{
    matmul_t any, many;

    open_matmul(&any, 1, 0, sinter_tensor_property_constant, 5);
    open_matmul(&many, 77, 1, sinter_tensor_property_constant, 6);
    share_weights(&many, &any);
    CHECK_THAT(stats().packed == 0 && stats().bytes == 0);
    CHECK_THAT(runs_right(&any));
    CHECK_THAT(stats().packed == copies && stats().entries == copies && stats().hits == 0);
    CHECK_THAT((stats().bytes >= K * N / 2) == (copies > 0));
    CHECK_THAT(runs_right(&any));
    CHECK_THAT(runs_right(&many)); /* its scratch memory comes with its first execute */
    CHECK_THAT(runs_right(&many));
    CHECK_THAT(stats().packed == copies && stats().hits == 3 * copies);
    const long before = calls;
    for (int i = 0; i < 10; i++) {
        CHECK_THAT(execute(i % 2 ? &any : &many) == sinter_success);
    }
    CHECK_THAT(calls == before);
    CHECK_THAT(stats().packed == copies && stats().refused == 0 && stats().evicted == 0);
    sinter_compiled_partition_destroy(&any.compiled);
    CHECK_THAT(stats().entries == copies); /* the other one has it yet */
    sinter_compiled_partition_destroy(&many.compiled);
    CHECK_THAT(stats().entries == 0 && stats().bytes == 0);
    close_matmul(&any);
    close_matmul(&many);
}

static void test_invalidate(void)
{
    matmul_t x;

    open_matmul(&x, 3, 1, sinter_tensor_property_constant, 5);
    unsigned char *w = weights_of(&x);
    CHECK_THAT(runs_right(&x));
    CHECK_THAT(sinter_engine_invalidate_constants(engine, w + K * N / 2, 8) ==
               sinter_success); /* what is behind it */
    CHECK_THAT(sinter_engine_invalidate_constants(engine, w - 8, 8) == sinter_success);
    CHECK_THAT(sinter_engine_invalidate_constants(engine, w + 10, 0) == sinter_success);
    CHECK_THAT(stats().entries == copies);
    for (int i = 0; i < K * N / 2; i++) {
        w[i] = (unsigned char)(w[i] * 3 + 1);
    }
    CHECK_THAT(sinter_engine_invalidate_constants(engine, w + K * N / 2 - 1, 1) == sinter_success);
    CHECK_THAT(stats().entries == copies - (copies > 0));
    CHECK_THAT(runs_right(&x));
    CHECK_THAT(stats().packed == copies + (copies > 0));
    close_matmul(&x);
}

static void test_budget(void)
{
    matmul_t x, y;

    open_matmul(&x, 3, 1, sinter_tensor_property_constant, 5);
    open_matmul(&y, 5, 1, sinter_tensor_property_constant, 6);
    CHECK_THAT(runs_right(&x));
    const size_t one = stats().bytes;
    CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, one) == sinter_success);
    CHECK_THAT(runs_right(&y));
    CHECK_THAT(stats().entries == copies && stats().evicted == copies && stats().bytes == one);
    CHECK_THAT(runs_right(&x));
    CHECK_THAT(stats().packed == 3 * copies && stats().evicted == 2 * copies &&
               stats().refused == 0);
    /* Without room for the last part, the others are not used either. */
    CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, one - (one > 0)) == sinter_success);
    CHECK_THAT(runs_right(&y));
    CHECK_THAT(stats().refused > 0 || copies == 0);
    CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, 0) == sinter_success);
    CHECK_THAT(stats().entries == 0 && stats().bytes == 0 && stats().budget == 0);
    CHECK_THAT(runs_right(&x));
    CHECK_THAT(runs_right(&y));
    CHECK_THAT(stats().refused >= 2 * copies &&
               stats().entries == 0); /* a larger frame asks again */
    CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, SIZE_MAX) == sinter_success);
    close_matmul(&x);
    close_matmul(&y);
}

/* Blocks of scales and codes, which no strides show as a matrix: the step that copies them does not
 * run where the cache has room, and the results are right without room, too. Where they are not
 * constant they are read in place. */
static void test_blocks(void)
{
    const sinter_tensor_property_t properties[] = {sinter_tensor_property_constant,
                                                   sinter_tensor_property_variable};

    for (int i = 0; i < 2; i++) {
        sinter_partition_t *partition;
        const uint64_t packed = i == 0 ? 1 : 0;
        matmul_t x;
        e2e_load(&x.model, "matmul-q8-blocks-576x1536.json");
        set_property(&x.model, properties[i]);
        partition = e2e_partition(&x.model, engine);
        CHECK_THAT(sinter_partition_compile(partition, engine, 0, NULL, 0, NULL, &x.compiled) ==
                   sinter_success);
        sinter_partition_destroy(&partition);
        e2e_ports_make(&x.ports, &x.model, engine, 7, 0);
        for (size_t budget = 0; budget < 2; budget++) {
            CHECK_THAT(sinter_engine_set_constant_cache_budget(
                           engine, budget == 0 ? 1000 : SIZE_MAX) == sinter_success);
            CHECK_THAT(execute(&x) == sinter_success);
            CHECK_THAT(!e2e_compare(&x.model, &x.ports, sinter_fpmath_mode_strict, 0));
            CHECK_THAT(stats().entries == (budget == 0 ? 0 : packed));
        }
        const char *report = "";
        CHECK_THAT(sinter_compiled_partition_report(x.compiled, &report) == sinter_success);
        CHECK(strstr(report, i == 0 ? "it is constant, so once, into the constant cache"
                                    : "reads tensor 0 in place, in the blocks") != NULL,
              "%s", report);
        CHECK_THAT(execute(&x) == sinter_success && stats().packed == 1);
        close_matmul(&x);
    }
}

static void test_variable(void)
{
    matmul_t x;

    open_matmul(&x, 3, 1, sinter_tensor_property_variable, 5);
    CHECK_THAT(runs_right(&x));
    CHECK_THAT(stats().packed == 0 && stats().entries == 0);
    close_matmul(&x);
}

/* The n-th allocation of a first execute fails, for every n. */
static void test_out_of_memory(void)
{
    sinter_status_t status = sinter_out_of_memory;
    long n = 0;

    for (; n < 100 && status == sinter_out_of_memory; n++) {
        matmul_t x;
        open_matmul(&x, 3, 1, sinter_tensor_property_constant, 5);
        left = n;
        status = execute(&x);
        left = NO_LIMIT;
        CHECK_THAT(status == sinter_success || status == sinter_out_of_memory);
        CHECK_THAT(runs_right(&x));
        close_matmul(&x);
    }
    CHECK_THAT(status == sinter_success && n > 2);
}

/* ---- threads --------------------------------------------------------------------------------- */

enum { THREADS = 4, ROUNDS = 200, OUT_BYTES = 3 * N * 2 };
static matmul_t shared[THREADS];
static unsigned char with[THREADS][OUT_BYTES],
    without[THREADS][OUT_BYTES]; /* results with a copy and without */
static atomic_int wrong;

static void *worker(void *user)
{
    matmul_t *x = user;
    const sinter_stream_desc_t one = {.size = sizeof one, .threads = 1, .all_threads = 1};
    const long t = x - shared;
    sinter_stream_t *own = NULL;

    sinter_stream_create(&own, engine, &one);
    for (int i = 0; i < ROUNDS; i++) {
        const unsigned char *out = x->ports.out_data[0];
        memset(x->ports.out_data[0], 0, OUT_BYTES);
        wrong += e2e_execute(shared[0].compiled, own, &x->ports) != sinter_success;
        wrong += memcmp(out, with[t], OUT_BYTES) != 0 && memcmp(out, without[t], OUT_BYTES) != 0;
        if (t == 0 && i % 2) {
            sinter_engine_invalidate_constants(engine, weights_of(x), 1);
        }
        if (t == 1 && i % 8 == 0) {
            sinter_engine_set_constant_cache_budget(engine, i % 16 ? SIZE_MAX : K * N);
        }
    }
    sinter_stream_destroy(&own);
    return NULL;
}

/* All read the weights of the first, which are invalidated again and again while the budget
 * changes. */
static void test_threads(void)
{
    pthread_t id[THREADS];

    for (int i = 0; i < THREADS; i++) {
        open_matmul(&shared[i], 3, 1, sinter_tensor_property_constant, 5);
        share_weights(&shared[i], &shared[0]);
        CHECK_THAT(e2e_execute(shared[0].compiled, stream, &shared[i].ports) == sinter_success);
        memcpy(with[i], shared[i].ports.out_data[0], OUT_BYTES);
        CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, 0) == sinter_success);
        CHECK_THAT(e2e_execute(shared[0].compiled, stream, &shared[i].ports) == sinter_success);
        memcpy(without[i], shared[i].ports.out_data[0], OUT_BYTES);
        CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, SIZE_MAX) == sinter_success);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_THAT(pthread_create(&id[i], NULL, worker, &shared[i]) == 0);
    }
    for (int i = 0; i < THREADS; i++) {
        CHECK_THAT(pthread_join(id[i], NULL) == 0);
    }
    CHECK_THAT(wrong == 0);
    for (int i = 0; i < THREADS; i++) {
        close_matmul(&shared[i]);
    }
    CHECK_THAT(stats().entries == 0 && stats().bytes == 0);
}

/* Copies of a megabyte and more are made by all threads of the stream. */
static void test_made_by_threads(void)
{
    const sinter_stream_desc_t some = {.size = sizeof some, .threads = 3, .all_threads = 1};
    sinter_stream_t *one = stream;
    matmul_t x;

    CHECK_THAT(sinter_stream_create(&stream, engine, &some) == sinter_success);
    columns = 13201; /* the last strip has one */
    open_matmul(&x, 3, 1, sinter_tensor_property_constant, 9);
    columns = N;
    CHECK_THAT(runs_right(&x));
    CHECK_THAT(stats().entries == copies && (copies == 0 || stats().bytes > 1 << 20));
    close_matmul(&x);
    sinter_stream_destroy(&stream);
    stream = one;
}

/* ---- packing without the lock ---------------------------------------------------------------- */

enum { COPY = 4096 };

/* A thread that takes one constant, tells when it has it, and gives it back when it may. */
typedef struct taker {
    pthread_t id;
    constant_key_t key;
    sem_t filling, fill, taken, give; /* fill: filling may go on; give: it may give the copy back */
    atomic_int fills;
    sinter_status_t status;
    constant_t *got;
    int byte; /* what a filled copy has in each byte */
} taker_t;

static void slow_fill(const constant_key_t *key, void *memory, const void *user)
{
    taker_t *t = (taker_t *)(uintptr_t)user; /* its own thread's */
    CHECK_THAT(key->data == t->key.data);
    t->fills++;
    sem_post(&t->filling);
    while (sem_wait(&t->fill) != 0) {
    }
    memset(memory, t->byte, COPY);
}

static void *take(void *user)
{
    taker_t *t = user;
    t->status = constants_take(&engine->constants, &t->key, COPY, false, t, slow_fill, t, &t->got);
    sem_post(&t->taken);
    while (sem_wait(&t->give) != 0) {
    }
    constants_give(&engine->constants, t->got);
    return NULL;
}

/* Takes the constant of these bytes. */
static void start(taker_t *t, const void *data, int byte)
{
    memset(t, 0, sizeof *t);
    t->key = (constant_key_t){.data = data, .extent = 1};
    t->byte = byte;
    sem_init(&t->filling, 0, 0);
    sem_init(&t->fill, 0, 0);
    sem_init(&t->taken, 0, 0);
    sem_init(&t->give, 0, 0);
    CHECK_THAT(pthread_create(&t->id, NULL, take, t) == 0);
}

/* Within ten seconds, for the failure to be told instead of hanging. */
static int happens(sem_t *event)
{
    struct timespec until;
    int status;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_sec += 10;
    while ((status = sem_timedwait(event, &until)) != 0 && errno == EINTR) {
    }
    return status == 0;
}

static void end(taker_t *t)
{
    sem_post(&t->give);
    CHECK_THAT(pthread_join(t->id, NULL) == 0);
    constants_disown(&engine->constants, t);
}

static int holds(const taker_t *t, int byte)
{
    const unsigned char *p = t->got != NULL ? constant_memory(t->got) : NULL;
    return t->status == sinter_success && p != NULL && p[0] == byte && p[COPY - 1] == byte;
}

/* While one thread packs, others get other constants; those that want the same one wait for it. */
static void test_packs_without_lock(void)
{
    static const unsigned char data[2];
    taker_t maker, waiter, other;

    start(&maker, &data[0], 1);
    CHECK_THAT(happens(&maker.filling));
    start(&other, &data[1], 3);
    sem_post(&other.fill);
    CHECK_THAT(happens(&other.taken)); /* though maker still packs */
    start(&waiter, &data[0], 2);
    sem_post(&maker.fill);
    CHECK_THAT(happens(&maker.taken) && happens(&waiter.taken));
    CHECK_THAT(waiter.fills == 0 && waiter.got == maker.got && holds(&maker, 1) &&
               holds(&waiter, 1) && holds(&other, 3));
    CHECK_THAT(stats().packed == 2 && stats().hits == 1 && stats().entries == 2 &&
               stats().bytes == 2 * COPY);
    end(&maker);
    CHECK_THAT(stats().entries == 2); /* the waiter has used it too */
    end(&waiter);
    end(&other);
    CHECK_THAT(stats().entries == 0 && stats().bytes == 0);
}

/* A constant that is invalidated while it is packed serves only those who wanted it before. */
static void test_invalidated_while_packed(void)
{
    static const unsigned char data[1];
    taker_t before, after;

    start(&before, &data[0], 1);
    CHECK_THAT(happens(&before.filling));
    CHECK_THAT(sinter_engine_invalidate_constants(engine, data, 1) == sinter_success);
    CHECK_THAT(stats().entries == 0 && stats().bytes == COPY);
    start(&after, &data[0], 2);
    sem_post(&after.fill);
    CHECK_THAT(happens(&after.taken));
    CHECK_THAT(holds(&after, 2) && after.fills == 1 && stats().entries == 1 &&
               stats().bytes == 2 * COPY);
    sem_post(&before.fill);
    CHECK_THAT(happens(&before.taken));
    CHECK_THAT(holds(&before, 1) && holds(&after, 2) && stats().packed == 2 && stats().hits == 0);
    end(&before);
    CHECK_THAT(stats().entries == 1 && stats().bytes == COPY);
    end(&after);
    CHECK_THAT(stats().entries == 0 && stats().bytes == 0);
}

/* What is being packed counts, and does not go to make room. */
static void test_budget_while_packed(void)
{
    static const unsigned char data[2];
    taker_t maker, refused;

    CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, COPY) == sinter_success);
    start(&maker, &data[0], 1);
    CHECK_THAT(happens(&maker.filling));
    start(&refused, &data[1], 2);
    sem_post(&refused.fill);
    CHECK_THAT(happens(&refused.taken));
    CHECK_THAT(refused.status == sinter_success && refused.got == NULL && refused.fills == 0);
    CHECK_THAT(stats().refused == 1 && stats().evicted == 0 && stats().entries == 1);
    CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, 0) == sinter_success);
    CHECK_THAT(stats().entries == 1 && stats().bytes == COPY);
    sem_post(&maker.fill);
    CHECK_THAT(happens(&maker.taken));
    CHECK_THAT(holds(&maker, 1));
    end(&refused);
    end(&maker);
    CHECK_THAT(stats().entries == 0 && stats().bytes == 0);
}

int main(void)
{
    static void (*const tests[])(void) = {test_once_for_all,
                                          test_invalidate,
                                          test_budget,
                                          test_variable,
                                          test_blocks,
                                          test_out_of_memory,
                                          test_threads,
                                          test_made_by_threads,
                                          test_packs_without_lock,
                                          test_invalidated_while_packed,
                                          test_budget_while_packed};

    for (size_t i = 0; i < sizeof tests / sizeof *tests; i++) {
        open_engine();
        tests[i]();
        if (check_failed > 0) {
            return check_finish(); /* its threads may still hold the lock */
        }
        close_engine();
    }
    CHECK_THAT(sinter_engine_get_constant_cache_stats(NULL, NULL) == sinter_invalid_arguments);
    return check_finish();
}
