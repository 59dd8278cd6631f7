/* Everything that the API lets many threads do at once, done at once: building graphs, setting the
 * mode of a partition that others compile, compiling, executing what others execute too,
 * invalidating constants, changing the budget, destroying. Results must be those of one thread
 * alone, bit for bit. tests/tsan.sh runs it under ThreadSanitizer. */
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "e2e.h"
#include "passive.h"

enum { THREADS = 4, ROUNDS = 12, TEAM = 2, MODES = 2, CACHES = 2, SEED = 5 };

/* Attention; a matmul whose constant weights are packed; an MLP with temporaries. */
static const struct {
    const char *file;
    int64_t from, to; /* a dim that is made smaller */
} models[] = {{"llama3-8b-decode-int4.json", 4096, 70},
              {"patterns/matmul-weight-int4-kn.json", 0, 0},
              {"patterns/gated-mlp-int4.json", 0, 0}};
enum { MODELS = sizeof models / sizeof *models };

/* No mode goes with both values of apply_to_int: a pair made of halves of two pairs would show. */
static const struct {
    sinter_fpmath_mode_t mode;
    int apply_to_int;
} modes[MODES] = {{sinter_fpmath_mode_strict, 0}, {sinter_fpmath_mode_int8, 1}};

typedef struct subject {
    model_t model;
    e2e_ports_t ports;                     /* inputs that all threads read */
    sinter_partition_t *partition;         /* whose mode all threads set */
    sinter_compiled_partition_t *compiled; /* in the first mode; all threads execute it */
    unsigned char *want[MODES][CACHES];    /* first output, without and with packed constants */
    size_t bytes;                          /* of the first output */
} subject_t;

static sinter_engine_t *engine;
static subject_t subjects[MODELS];

static sinter_stream_t *open_stream(void)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = TEAM, .all_threads = 1};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(sinter_stream_create(&stream, engine, &desc) == sinter_success);
    return stream;
}

static int set_mode(sinter_partition_t *partition, int m)
{
    return sinter_partition_set_fpmath_mode(partition, modes[m].mode, modes[m].apply_to_int) ==
           sinter_success;
}

/* The partition in whatever mode it has at this moment, which becomes *m. */
static sinter_compiled_partition_t *compile(sinter_partition_t *partition, int *m)
{
    sinter_compiled_partition_t *compiled = NULL;
    sinter_fpmath_mode_t mode = sinter_fpmath_mode_any;
    int apply_to_int = -1;
    CHECK_THAT(sinter_partition_compile(partition, engine, 0, NULL, 0, NULL, &compiled) ==
               sinter_success);
    CHECK_THAT(sinter_compiled_partition_get_fpmath_mode(compiled, &mode, &apply_to_int) ==
               sinter_success);
    *m = mode == modes[1].mode;
    CHECK_THAT(mode == modes[*m].mode && apply_to_int == modes[*m].apply_to_int);
    return compiled;
}

static void open_subject(subject_t *s, size_t i, sinter_stream_t *stream)
{
    int m;
    e2e_load(&s->model, models[i].file);
    e2e_replace_dim(&s->model, models[i].from, models[i].to);
    s->partition = e2e_partition(&s->model, engine);
    e2e_ports_make(&s->ports, &s->model, engine, SEED, 0);
    CHECK_THAT(sinter_logical_tensor_get_bytes(&s->ports.out_lt[0], &s->bytes) == sinter_success);
    for (int k = 0; k < MODES; k++) {
        CHECK_THAT(set_mode(s->partition, k));
        sinter_compiled_partition_t *compiled = compile(s->partition, &m);
        CHECK_THAT(m == k);
        for (int cache = 0; cache < CACHES; cache++) {
            s->want[k][cache] = malloc(s->bytes);
            CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, cache ? SIZE_MAX : 0) ==
                       sinter_success);
            CHECK_THAT(e2e_execute(compiled, stream, &s->ports) == sinter_success);
            CHECK_THAT(e2e_compare(&s->model, &s->ports, modes[k].mode, modes[k].apply_to_int) ==
                       0);
            memcpy(s->want[k][cache], s->ports.out_data[0], s->bytes);
        }
        if (k == 0) {
            s->compiled = compiled;
        } else {
            sinter_compiled_partition_destroy(&compiled);
        }
    }
}

static void close_subject(subject_t *s)
{
    sinter_compiled_partition_destroy(&s->compiled);
    sinter_partition_destroy(&s->partition);
    e2e_ports_free(&s->ports);
    for (int k = 0; k < MODES * CACHES; k++) {
        free(s->want[k / CACHES][k % CACHES]);
    }
    model_free(&s->model);
}

/* Outputs of the thread's own; inputs that all share. */
static void execute(const subject_t *s, const sinter_compiled_partition_t *compiled, int m,
                    sinter_stream_t *stream, e2e_ports_t *ports)
{
    memset(ports->out_data[0], 0xFF, s->bytes);
    CHECK_THAT(e2e_execute(compiled, stream, ports) == sinter_success);
    CHECK_THAT(memcmp(ports->out_data[0], s->want[m][0], s->bytes) == 0 ||
               memcmp(ports->out_data[0], s->want[m][1], s->bytes) == 0);
}

static void disturb(const subject_t *s, int round)
{
    sinter_constant_cache_stats_t stats = {.size = sizeof stats};
    CHECK_THAT(sinter_engine_invalidate_constants(
                   engine, s->ports.in_data[round % (int)s->ports.n_in], 1) == sinter_success);
    CHECK_THAT(sinter_engine_get_constant_cache_stats(engine, &stats) == sinter_success);
    if (round % 4 == 0) {
        CHECK_THAT(sinter_engine_set_constant_cache_budget(engine, round % 8 ? 0 : SIZE_MAX) ==
                   sinter_success);
    }
}

static void one_round(const subject_t *s, int round, sinter_stream_t *stream, e2e_ports_t *ports)
{
    const char *text = NULL;
    int m;
    sinter_partition_t *own = e2e_partition(&s->model, engine);
    CHECK_THAT(set_mode(own, round % MODES));
    CHECK_THAT(set_mode(s->partition, round % MODES));
    sinter_compiled_partition_t *mine = compile(own, &m);
    CHECK_THAT(m == round % MODES);
    execute(s, mine, m, stream, ports);
    sinter_compiled_partition_t *ours = compile(s->partition, &m);
    disturb(s, round);
    execute(s, ours, m, stream, ports);
    execute(s, s->compiled, 0, stream, ports);
    CHECK_THAT(sinter_partition_explain(s->partition, &text) == sinter_success);
    CHECK_THAT(sinter_compiled_partition_report(s->compiled, &text) == sinter_success);
    sinter_compiled_partition_destroy(&mine);
    sinter_partition_destroy(&own);
    sinter_compiled_partition_destroy(&ours);
}

static void *worker(void *user)
{
    const int t = (int)(intptr_t)user;
    sinter_stream_t *stream = open_stream();
    e2e_ports_t ports[MODELS];
    for (size_t i = 0; i < MODELS; i++) {
        const subject_t *s = &subjects[i];
        e2e_ports_make(&ports[i], &s->model, engine, SEED, 0);
        for (size_t p = 0; p < ports[i].n_in; p++) {
            CHECK_THAT(sinter_tensor_set_data(ports[i].in[p], s->ports.in_data[p],
                                              SINTER_BYTES_TRUSTED) == sinter_success);
        }
    }
    for (int round = 0; round < ROUNDS; round++) {
        const int i = (t + round) % MODELS;
        one_round(&subjects[i], t + round, stream, &ports[i]);
    }
    for (size_t i = 0; i < MODELS; i++) {
        e2e_ports_free(&ports[i]);
    }
    sinter_stream_destroy(&stream);
    return NULL;
}

/* ---- the mode alone -------------------------------------------------------------------------- */

enum { SETS = 1 << 24 };
static atomic_bool all_set;

static void *set_modes(void *partition)
{
    for (int i = 0; i < SETS; i++) {
        CHECK_THAT(set_mode(partition, i % MODES));
    }
    all_set = true;
    return NULL;
}

/* Whoever reads the mode while another thread sets it sees one pair or the other. */
static void test_pairs(sinter_partition_t *partition)
{
    pthread_t setter;
    long torn = 0;
    CHECK_THAT(set_mode(partition, 0));
    CHECK_THAT(pthread_create(&setter, NULL, set_modes, partition) == 0);
    while (!all_set) {
        sinter_fpmath_mode_t mode;
        int apply_to_int;
        CHECK_THAT(sinter_partition_get_fpmath_mode(partition, &mode, &apply_to_int) ==
                   sinter_success);
        torn += apply_to_int != modes[mode == modes[1].mode].apply_to_int;
    }
    CHECK_THAT(pthread_join(setter, NULL) == 0);
    CHECK_THAT(torn == 0);
    if (torn > 0) {
        fprintf(stderr, "test_races: %ld pairs of mode and apply_to_int that nobody set\n", torn);
    }
}

/* ---- all ------------------------------------------------------------------------------------- */

int main(int argc, char **argv)
{
    pthread_t threads[THREADS];
    (void)argc;
    wait_passively(argv);
    CHECK_THAT(sinter_engine_create(&engine, NULL) == sinter_success);
    sinter_stream_t *stream = open_stream();
    for (size_t i = 0; i < MODELS; i++) {
        open_subject(&subjects[i], i, stream);
    }
    test_pairs(subjects[0].partition);
    for (int t = 0; t < THREADS; t++) {
        CHECK_THAT(pthread_create(&threads[t], NULL, worker, (void *)(intptr_t)t) == 0);
    }
    for (int t = 0; t < THREADS; t++) {
        CHECK_THAT(pthread_join(threads[t], NULL) == 0);
    }
    for (size_t i = 0; i < MODELS; i++) {
        close_subject(&subjects[i]);
    }
    sinter_constant_cache_stats_t stats = {.size = sizeof stats};
    CHECK_THAT(sinter_engine_get_constant_cache_stats(engine, &stats) == sinter_success);
    CHECK_THAT(stats.entries == 0 && stats.bytes == 0);
    sinter_stream_destroy(&stream);
    sinter_engine_destroy(&engine);
    return check_finish();
}
