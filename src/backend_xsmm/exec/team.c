#include "backend_xsmm/exec/team.h"

#if defined(_OPENMP)

#include <omp.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

/* OpenMP keeps the threads of a team for the next team of the thread that leads it. */
static _Thread_local int team;       /* threads of this thread's last team, 0 before the first */
static _Thread_local bool team_lost; /* a fork has left this thread without the others */

/* Runs in the child, in the thread that called fork. OpenMP would wait for the others for ever. */
static void lose_team(void)
{
    team_lost = team_lost || team > 0;
}

static void watch_forks(void)
{
    /* if this fails for lack of memory, a forked child may hang */
    pthread_atfork(NULL, NULL, lose_team);
}

/* The size of the stacks of OpenMP's threads. OMP_STACKSIZE is a number and a unit, KiB if there is
 * none. 0: the default of the system. */
static size_t stack_bytes(void)
{
    static const char units[] = "bBkKmMgG";
    const char *text = getenv("OMP_STACKSIZE");
    char *end = NULL;
    const unsigned long long n = text != NULL ? strtoull(text, &end, 10) : 0;
    if (n == 0) {
        return 0;
    }
    end += strspn(end, " \t");
    const char *unit = *end != '\0' ? strchr(units, *end) : &units[2];
    if (unit == NULL) {
        return 0;
    }
    const int shift = (int)(unit - units) / 2 * 10;
    return n <= SIZE_MAX >> shift ? (size_t)n << shift : SIZE_MAX;
}

static void *wait_for(void *gate)
{
    pthread_mutex_lock(gate);
    pthread_mutex_unlock(gate);
    return NULL;
}

/* How many threads can live at once, the calling thread included, up to `most`. Several limits
 * of the system bear on it (users, control groups, address space), so this starts the threads
 * and ends them again. */
static int count_possible_threads(int most)
{
    pthread_t others[TEAM_MOST_THREADS];
    pthread_mutex_t gate = PTHREAD_MUTEX_INITIALIZER;
    pthread_attr_t attributes;
    const size_t stack = stack_bytes();
    int n = 0;
    if (pthread_attr_init(&attributes) != 0) {
        return 1;
    }
    if (stack > 0) {
        pthread_attr_setstacksize(&attributes, stack);
    }
    pthread_mutex_lock(&gate);
    while (n < most - 1 && pthread_create(&others[n], &attributes, wait_for, &gate) == 0) {
        n++;
    }
    pthread_mutex_unlock(&gate);
    for (int i = 0; i < n; i++) {
        pthread_join(others[i], NULL);
    }
    pthread_attr_destroy(&attributes);
    return n + 1;
}

int team_take(int wanted)
{
    static pthread_once_t once = PTHREAD_ONCE_INIT;
    pthread_once(&once, watch_forks);
    const int all = wanted > 0 ? wanted : omp_get_max_threads();
    const int most = all < TEAM_MOST_THREADS ? all : TEAM_MOST_THREADS;
    if (most <= team && !team_lost) {
        return most; /* OpenMP has them already */
    }
    /* libgomp ends the process where the system refuses a thread. */
    const int possible = count_possible_threads(most);
    if (possible < most) {
        sg_log(SG_VERBOSE_DISPATCH | SG_VERBOSE_EXEC,
               "stream: %d threads instead of %d: the system refuses more", possible, most);
    }
    return possible;
}

static void run_openmp(int workers, void (*run)(void *task, int worker), void *task)
{
    team = workers;
#pragma omp parallel num_threads(workers)
    run(task, omp_get_thread_num());
}

#else

static const bool team_lost = false;

int team_take(int wanted)
{
    (void)wanted;
    return 1;
}

static void run_openmp(int workers, void (*run)(void *task, int worker), void *task)
{
    for (int worker = 0; worker < workers; worker++) {
        run(task, worker);
    }
}

#endif

int team_usable(const threads_t *threads)
{
    return threads->parallel_for == NULL && team_lost ? 1 : threads->most;
}

void team_run(const threads_t *threads, void (*run)(void *task, int worker), void *task)
{
    if (threads->parallel_for != NULL) {
        threads->parallel_for(threads->pool, threads->most, run, task);
        return;
    }
    run_openmp(threads->most, run, task);
}
