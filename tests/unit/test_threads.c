/* How executes use threads. Steps are divided by their work, which depends on dims alone; any
 * thread may run any share, so results are the same whoever runs them; the crew of a region runs
 * each share of each job once, also where threads come late or not at all. */
#define _GNU_SOURCE
#include <pthread.h>
#include <stdatomic.h>
#include <string.h>
#include <time.h>

#include "backend_xsmm/exec/crew.h"
#include "backend_xsmm/exec/work.h"
#include "capture.h"
#include "e2e.h"
#include "passive.h"

/* ---- the crew -------------------------------------------------------------------------------- */

enum { JOBS = 3000, MOST_SHARES = 7, MEMBERS = 3 };

static struct {
    _Alignas(64) unsigned char memory[4096];
    crew_t *crew;
    atomic_int taken[JOBS][MOST_SHARES];
    atomic_int finished[JOBS];
    atomic_int errors;
} jobs;

static int shares_of(unsigned job)
{
    return 1 + (int)(job * 5 % MOST_SHARES);
}

static void nap(long nanoseconds)
{
    const struct timespec t = {.tv_nsec = nanoseconds};
    nanosleep(&t, NULL);
}

/* late: this member sleeps before it begins, and now and then. */
static void work_jobs(bool late)
{
    unsigned job = 0;
    nap(late ? 2000000 : 0);
    while (job < JOBS) {
        const int all = shares_of(job);
        int ran = 0;
        for (int i = 0; i < all; i++) {
            if (crew_take(jobs.crew, job, i)) {
                jobs.errors += job > 0 && jobs.finished[job - 1] != shares_of(job - 1);
                jobs.taken[job][i]++;
                nap(job % 300 == 0 ? 100000 : 0); /* the others sleep meanwhile */
                jobs.finished[job]++;
                ran++;
            }
        }
        if (ran > 0) {
            crew_finish(jobs.crew, job, ran, all, job + 1 == JOBS || shares_of(job + 1) > 1);
        }
        crew_wait(jobs.crew, job);
        job = crew_job(jobs.crew);
        nap(late && job % 500 == 0 ? 300000 : 0);
    }
}

static void *late_member(void *late)
{
    work_jobs(late != NULL);
    return NULL;
}

static void test_crew(int members, bool late)
{
    pthread_t threads[MEMBERS];
    int wrong = 0;
    memset(&jobs, 0, sizeof jobs);
    CHECK_THAT(crew_bytes(MOST_SHARES) <= sizeof jobs.memory);
    jobs.crew = (crew_t *)(void *)jobs.memory;
    crew_init(jobs.crew, MOST_SHARES);
    for (int i = 1; i < members; i++) {
        CHECK_THAT(pthread_create(&threads[i], NULL, late_member, late ? &jobs : NULL) == 0);
    }
    work_jobs(false);
    for (int i = 1; i < members; i++) {
        CHECK_THAT(pthread_join(threads[i], NULL) == 0);
    }
    for (unsigned job = 0; job < JOBS; job++) {
        for (int i = 0; i < MOST_SHARES; i++) {
            wrong += jobs.taken[job][i] != (i < shares_of(job));
        }
    }
    CHECK_THAT(wrong == 0 && jobs.errors == 0);
}

/* ---- work ------------------------------------------------------------------------------------ */

static void test_shares(void)
{
    CHECK_THAT(work_shares(0, 8) == 1 && work_shares(-1, 8) == 1 && work_shares(4.9, 8) == 1);
    CHECK_THAT(work_shares(5, 8) == 2 && work_shares(8, 1) == 1 && work_shares(1e30, 8) == 8);
    CHECK_THAT(!work_pays_region(0) && !work_pays_region(39) && work_pays_region(41));
}

/* ---- executes -------------------------------------------------------------------------------- */

typedef struct subject {
    sinter_partition_t *partition;
    sinter_compiled_partition_t *compiled;
    e2e_ports_t ports;
} subject_t;

/* Decoding attention over so many tokens, whose number compile knows or not. */
static void open_subject(subject_t *s, int64_t tokens, bool known)
{
    model_t m;
    e2e_load(&m, "attention-decode-float.json");
    e2e_replace_dim(&m, 4096, known ? tokens : SINTER_UNKNOWN_DIM);
    s->partition = e2e_partition(&m, NULL);
    CHECK_THAT(sinter_partition_compile(s->partition, NULL, 0, NULL, 0, NULL, &s->compiled) ==
               sinter_success);
    model_free(&m);
    e2e_load(&m, "attention-decode-float.json");
    e2e_replace_dim(&m, 4096, tokens);
    e2e_ports_make(&s->ports, &m, NULL, 3, 0);
    model_free(&m);
}

static void close_subject(subject_t *s)
{
    e2e_ports_free(&s->ports);
    sinter_compiled_partition_destroy(&s->compiled);
    sinter_partition_destroy(&s->partition);
}

static sinter_stream_t *stream_of(int threads, bool all)
{
    const sinter_stream_desc_t desc = {.size = sizeof desc, .threads = threads, .all_threads = all};
    sinter_stream_t *stream = NULL;
    CHECK_THAT(sinter_stream_create(&stream, NULL, &desc) == sinter_success);
    return stream;
}

/* What SINTER_VERBOSE=exec says about threads: "2 threads", "1 thread of 2 (...)". */
static void check_threads(int64_t tokens, int threads, bool all, const char *want,
                          const char *shares)
{
    subject_t s;
    capture_t c;
    char text[8192];
    open_subject(&s, tokens, false);
    sinter_stream_t *stream = stream_of(threads, all);
    CHECK_THAT(sinter_set_verbose("exec") == sinter_success);
    capture_begin(&c);
    const sinter_status_t status = e2e_execute(s.compiled, stream, &s.ports);
    capture_end(&c, text, sizeof text);
    CHECK_THAT(sinter_set_verbose("none") == sinter_success && status == sinter_success);
    CHECK(strstr(text, want) != NULL, "\"%s\" is missing in: %s", want, text);
    CHECK(shares == NULL ? strstr(text, "of work in") == NULL : strstr(text, shares) != NULL,
          "\"%s\" in: %s", shares, text);
    sinter_stream_destroy(&stream);
    close_subject(&s);
}

/* The report of a compile that knows the dims. */
static void test_report(void)
{
    subject_t s;
    const char *text = "";
    open_subject(&s, 64, true);
    CHECK_THAT(sinter_compiled_partition_report(s.compiled, &text) == sinter_success);
    CHECK(strstr(text, " us of work by estimate: one thread for each ") != NULL, "%s", text);
    close_subject(&s);
    open_subject(&s, 64, false);
    CHECK_THAT(sinter_compiled_partition_report(s.compiled, &text) == sinter_success);
    CHECK(strstr(text, " us of work by estimate") == NULL, "%s", text);
    close_subject(&s);
}

static atomic_bool enough;

static void *spin(void *unused)
{
    while (!enough) {
    }
    return unused;
}

/* Beside threads that take the cores, regions come and go: the bits stay. */
static void test_same_bits(int threads)
{
    enum { BUSY = 4, ROUNDS = 60 };
    pthread_t busy[BUSY];
    subject_t s;
    size_t bytes;
    int wrong = 0;
    open_subject(&s, 300, false);
    sinter_stream_t *stream = stream_of(threads, false);
    CHECK_THAT(sinter_logical_tensor_get_bytes(&s.ports.out_lt[0], &bytes) == sinter_success);
    unsigned char *want = malloc(bytes);
    CHECK_THAT(e2e_execute(s.compiled, stream, &s.ports) == sinter_success);
    memcpy(want, s.ports.out_data[0], bytes);
    enough = false;
    for (int i = 0; i < BUSY; i++) {
        CHECK_THAT(pthread_create(&busy[i], NULL, spin, NULL) == 0);
    }
    for (int i = 0; i < ROUNDS; i++) {
        memset(s.ports.out_data[0], 0xFF, bytes);
        wrong += e2e_execute(s.compiled, stream, &s.ports) != sinter_success ||
                 memcmp(want, s.ports.out_data[0], bytes) != 0;
    }
    enough = true;
    for (int i = 0; i < BUSY; i++) {
        CHECK_THAT(pthread_join(busy[i], NULL) == 0);
    }
    CHECK_THAT(wrong == 0);
    free(want);
    sinter_stream_destroy(&stream);
    close_subject(&s);
}

int main(int argc, char **argv)
{
    (void)argc;
    wait_passively(argv);
    for (int members = 1; members <= MEMBERS; members++) {
        test_crew(members, false);
        test_crew(members, true);
    }
    test_shares();
    check_threads(1, 2, false, "(sdpa), 1 thread of 2 (too little work for more), ",
                  " us of work in ");
    check_threads(4096, 2, false, "(sdpa), 2 threads, ", "in 2 shares\n");
    check_threads(1, 2, true, "(sdpa), 2 threads, ", NULL);
    check_threads(4096, 1, false, "(sdpa), 1 thread, ", NULL);
    test_report();
    test_same_bits(2);
    test_same_bits(3);
    return check_finish();
}
