/* Streams on the caller's threads: whatever order a parallel loop runs its workers in, and
 * whichever it leaves out, the results are within the oracle's bounds, and their bits are those of
 * OpenMP's threads. */
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "e2e.h"
#include "passive.h"
#include "pool.h"

enum { THREADS = 3, TOKENS = 300 };

typedef struct loop {
    int calls, workers;
} loop_t;

static void in_order(void *at, int workers, void (*run)(void *task, int worker), void *task)
{
    loop_t *loop = at;
    loop->calls++;
    loop->workers = workers;
    for (int worker = 0; worker < workers; worker++) {
        run(task, worker);
    }
}

static void backwards(void *at, int workers, void (*run)(void *task, int worker), void *task)
{
    ((loop_t *)at)->calls++;
    ((loop_t *)at)->workers = workers;
    for (int worker = workers - 1; worker >= 0; worker--) {
        run(task, worker);
    }
}

static void only_the_last(void *at, int workers, void (*run)(void *task, int worker), void *task)
{
    ((loop_t *)at)->calls++;
    ((loop_t *)at)->workers = workers;
    run(task, workers - 1);
}

static void none(void *at, int workers, void (*run)(void *task, int worker), void *task)
{
    ((loop_t *)at)->calls++;
    ((loop_t *)at)->workers = workers;
    (void)run, (void)task;
}

/* Numbers of workers that do not exist do no work, and no harm. */
static void unknown_workers(void *at, int workers, void (*run)(void *task, int worker), void *task)
{
    static const int wrong[] = {-1, INT32_MIN, INT32_MAX, 1 << 20};
    ((loop_t *)at)->calls++;
    ((loop_t *)at)->workers = workers;
    run(task, workers);
    for (int i = 0; i < 4; i++) {
        run(task, wrong[i]);
    }
    for (int worker = 1; worker < workers; worker++) {
        run(task, worker);
    }
}

static void only_unknown_workers(void *at, int workers, void (*run)(void *task, int worker),
                                 void *task)
{
    ((loop_t *)at)->calls++;
    ((loop_t *)at)->workers = workers;
    run(task, -1);
    run(task, workers);
}

typedef struct call {
    void (*run)(void *task, int worker);
    void *task;
    int worker;
} call_t;

static void *run_call(void *at)
{
    const call_t *call = at;
    call->run(call->task, call->worker);
    return NULL;
}

/* A new thread for each worker, none of which is the caller. */
static void new_threads(void *at, int workers, void (*run)(void *task, int worker), void *task)
{
    pthread_t threads[8];
    call_t calls[8];
    ((loop_t *)at)->calls++;
    ((loop_t *)at)->workers = workers;
    for (int i = 0; i < workers; i++) {
        calls[i] = (call_t){run, task, i};
        CHECK_THAT(pthread_create(&threads[i], NULL, run_call, &calls[i]) == 0);
    }
    for (int i = 0; i < workers; i++) {
        pthread_join(threads[i], NULL);
    }
}

typedef struct subject {
    model_t model;
    sinter_partition_t *partition;
    sinter_compiled_partition_t *compiled;
    e2e_ports_t ports;
    size_t bytes; /* of the output */
    unsigned char *want;
} subject_t;

static sinter_stream_t *stream_of(const sinter_stream_desc_t *desc)
{
    sinter_stream_t *stream = NULL;
    int threads = 0;
    CHECK_THAT(sinter_stream_create(&stream, NULL, desc) == sinter_success);
    CHECK_THAT(sinter_stream_get_threads(stream, &threads) == sinter_success);
    CHECK(threads == desc->threads, "%d threads", threads);
    return stream;
}

static sinter_stream_t *stream_over(sinter_parallel_for_t parallel_for, void *pool)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc,
                                       .threads = THREADS,
                                       .all_threads = true,
                                       .parallel_for = parallel_for,
                                       .pool = pool};
    return stream_of(&desc);
}

/* Decoding attention, with the output that the workers give one after the other. */
static void open_subject(subject_t *s)
{
    e2e_load(&s->model, "attention-decode-float.json");
    e2e_replace_dim(&s->model, 4096, TOKENS);
    s->partition = e2e_partition(&s->model, NULL);
    CHECK_THAT(sinter_partition_compile(s->partition, NULL, 0, NULL, 0, NULL, &s->compiled) ==
               sinter_success);
    e2e_ports_make(&s->ports, &s->model, NULL, 3, 0);
    CHECK_THAT(sinter_logical_tensor_get_bytes(&s->ports.out_lt[0], &s->bytes) == sinter_success);
    s->want = malloc(s->bytes);
    sinter_stream_t *stream = stream_over(in_order, &(loop_t){0, 0});
    CHECK_THAT(e2e_execute(s->compiled, stream, &s->ports) == sinter_success);
    CHECK_THAT(e2e_compare(&s->model, &s->ports, sinter_fpmath_mode_strict, 0) == 0);
    memcpy(s->want, s->ports.out_data[0], s->bytes);
    sinter_stream_destroy(&stream);
}

static void close_subject(subject_t *s)
{
    free(s->want);
    e2e_ports_free(&s->ports);
    sinter_compiled_partition_destroy(&s->compiled);
    sinter_partition_destroy(&s->partition);
    model_free(&s->model);
}

static bool execute(subject_t *s, sinter_stream_t *stream)
{
    memset(s->ports.out_data[0], 0xFF, s->bytes);
    return e2e_execute(s->compiled, stream, &s->ports) == sinter_success &&
           memcmp(s->want, s->ports.out_data[0], s->bytes) == 0;
}

static void test_loop(subject_t *s, const char *what, sinter_parallel_for_t parallel_for)
{
    loop_t loop = {0, 0};
    sinter_stream_t *stream = stream_over(parallel_for, &loop);
    for (int i = 1; i <= 3; i++) {
        CHECK(execute(s, stream), "%s: other bits", what);
        CHECK(loop.calls == i && loop.workers == THREADS, "%s: %d calls, %d workers", what,
              loop.calls, loop.workers);
    }
    sinter_stream_destroy(&stream);
}

static void test_openmp(subject_t *s)
{
    const sinter_stream_desc_t desc = {
        .size = sizeof desc, .threads = THREADS, .all_threads = true};
    sinter_stream_t *stream = NULL;
    int threads = 0;
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    CHECK_THAT(sinter_stream_get_threads(stream, &threads) == sinter_success);
#if defined(_OPENMP)
    CHECK(threads == THREADS && execute(s, stream), "%d threads of OpenMP", threads);
#else
    (void)s;
    CHECK(threads == 1, "%d threads without OpenMP", threads);
#endif
    sinter_stream_destroy(&stream);
}

static void test_pool(subject_t *s)
{
    enum { ROUNDS = 200 };
    pool_t *pool = pool_create(THREADS);
    CHECK_THAT(pool != NULL);
    sinter_stream_t *stream = stream_over(pool_for, pool);
    int wrong = 0;
    for (int i = 0; i < ROUNDS; i++) {
        wrong += !execute(s, stream);
    }
    CHECK(wrong == 0, "%d of %d executes", wrong, ROUNDS);
    CHECK(pool_loops(pool) == ROUNDS, "%lu loops", pool_loops(pool));
    sinter_stream_destroy(&stream);
    pool_destroy(pool);
}

/* OpenMP's threads do not outlive a fork, a caller's loop does. */
static void test_fork(subject_t *s)
{
    loop_t loop = {0, 0};
    int status = 1;
    sinter_stream_t *stream = stream_over(new_threads, &loop);
    const pid_t child = fork();
    if (child == 0) {
        int threads = 0;
        const bool right = execute(s, stream) && loop.calls == 1 &&
                           sinter_stream_get_threads(stream, &threads) == sinter_success &&
                           threads == THREADS;
        _exit(right ? 0 : 1);
    }
    CHECK_THAT(child > 0 && waitpid(child, &status, 0) == child);
    CHECK_THAT(status == 0);
    sinter_stream_destroy(&stream);
}

/* One worker, and too little work for more than one: the loop is not called. */
static void test_not_called(subject_t *s)
{
    loop_t loop = {0, 0};
    sinter_stream_desc_t desc = {.size = sizeof desc,
                                 .threads = 1,
                                 .all_threads = true,
                                 .parallel_for = in_order,
                                 .pool = &loop};
    sinter_stream_t *stream = stream_of(&desc);
    CHECK_THAT(execute(s, stream) && loop.calls == 0);
    sinter_stream_destroy(&stream);
}

enum { MOST_SHARES = 256 };

/* What a watch has seen. The loop of its stream runs all in one thread. */
typedef struct seen {
    int begun[MOST_SHARES], ended[MOST_SHARES]; /* by phase and share */
    int wrong;
    uint64_t products;
} seen_t;

static void see(void *user, const sinter_share_t *share)
{
    seen_t *seen = user;
    const int at = share->phase * THREADS + share->number;
    if (share->size != sizeof *share || share->element != 0 || share->step != 0 || at < 0 ||
        at >= MOST_SHARES || share->number >= share->shares || share->shares > THREADS ||
        share->kernel == NULL || strncmp(share->kernel, "attention_", 10) != 0) {
        seen->wrong++;
        return;
    }
    seen->wrong += share->done ? seen->begun[at] != seen->ended[at] + 1
                               : seen->begun[at] != seen->ended[at] || share->products != 0;
    (share->done ? seen->ended : seen->begun)[at]++;
    seen->products += share->done ? share->products : 0;
}

/* A watch sees each share of each phase once, and their products are those of the whole. */
static void test_watch(subject_t *s)
{
    uint64_t products[2];
    for (int i = 0; i < 2; i++) {
        loop_t loop = {0, 0};
        seen_t seen = {.wrong = 0};
        const sinter_stream_desc_t desc = {.size = sizeof desc,
                                           .threads = i == 0 ? 1 : THREADS,
                                           .all_threads = true,
                                           .parallel_for = backwards,
                                           .pool = &loop,
                                           .watch = see,
                                           .watch_user = &seen};
        sinter_stream_t *stream = stream_of(&desc);
        CHECK_THAT(execute(s, stream));
        CHECK_THAT(seen.wrong == 0 && seen.begun[0] == 1);
        for (int at = 0; at < MOST_SHARES; at++) {
            CHECK_THAT(seen.begun[at] == seen.ended[at] && seen.begun[at] <= 1);
            CHECK_THAT(at % THREADS >= desc.threads ||
                       seen.begun[at] == seen.begun[at - at % THREADS]);
        }
        products[i] = seen.products;
        sinter_stream_destroy(&stream);
    }
    CHECK_THAT(products[0] > 0 && products[0] == products[1]);
}

static void test_errors(void)
{
    sinter_stream_t *stream = NULL;
    int pool;
    sinter_stream_desc_t desc = {.size = sizeof desc, .parallel_for = in_order};
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_invalid_arguments);
    CHECK(strstr(sinter_last_error_message(), "parallel_for without a number of threads") != NULL,
          "%s", sinter_last_error_message());
    desc = (sinter_stream_desc_t){.size = sizeof desc, .threads = 2, .pool = &pool};
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_invalid_arguments);
    CHECK(strstr(sinter_last_error_message(), "a pool without parallel_for") != NULL, "%s",
          sinter_last_error_message());
    CHECK_THAT(stream == NULL);
}

int main(int argc, char **argv)
{
    subject_t s;
    (void)argc;
    wait_passively(argv);
    open_subject(&s);
    test_openmp(&s);
    test_loop(&s, "in order", in_order);
    test_loop(&s, "backwards", backwards);
    test_loop(&s, "only the last worker", only_the_last);
    test_loop(&s, "no worker", none);
    test_loop(&s, "new threads", new_threads);
    test_loop(&s, "workers that do not exist", unknown_workers);
    test_loop(&s, "those alone", only_unknown_workers);
    test_pool(&s);
    test_fork(&s);
    test_not_called(&s);
    test_watch(&s);
    close_subject(&s);
    test_errors();
    return check_finish();
}
