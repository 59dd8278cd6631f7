#include "backend_xsmm/exec/exec.h"

#include <omp.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <threads.h>
#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

#include "base/status.h"

/* ---- threads --------------------------------------------------------------------------------- */

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
    pthread_t others[EXEC_MOST_THREADS];
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

int exec_take_threads(int wanted)
{
    static once_flag once = ONCE_FLAG_INIT;
    call_once(&once, watch_forks);
    const int all = wanted > 0 ? wanted : omp_get_max_threads();
    const int most = all < EXEC_MOST_THREADS ? all : EXEC_MOST_THREADS;
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

int exec_usable_threads(int threads)
{
    return team_lost ? 1 : threads;
}

/* ---- running a plan -------------------------------------------------------------------------- */

/* Kernels count on gradual underflow and round-to-nearest, whatever the caller has set. */
static unsigned fp_default(void)
{
#if defined(__SSE__)
    const unsigned old = _mm_getcsr();
    _mm_setcsr(0x1F80);
    return old;
#else
    return 0;
#endif
}

static void fp_restore(unsigned old)
{
#if defined(__SSE__)
    _mm_setcsr(old);
#else
    (void)old;
#endif
}

sinter_status_t exec_choose(const plan_t *plan, frame_mem_t *fm, const void *owner, int threads,
                            size_t *total)
{
    const unsigned old = fp_default();
    sinter_status_t status = frame_pack(plan, fm, owner);
    status = status == sinter_success ? frame_choose(plan, fm, threads, total) : status;
    fp_restore(old);
    return status;
}

sinter_status_t exec_start(const plan_t *plan, frame_mem_t *fm)
{
    const unsigned old = fp_default();
    sinter_status_t status = sinter_success;
    for (int s = 0; s < plan->n_steps && status == sinter_success; s++) {
        const step_t *step = &plan->steps[s];
        const candidate_t *taken = fm->taken[s].candidate;
        const problem_t problem = {.plan = plan, .step = step, .frame = &fm->frame};
        if (taken->kernel->driver->start != NULL) {
            status = taken->kernel->driver->start(taken->kernel, &problem, taken->config,
                                                  fm->state + step->state_offset);
        }
    }
    fp_restore(old);
    return status;
}

static void run_thread(const plan_t *plan, const frame_mem_t *fm, unsigned char *shared,
                       unsigned char *threads_scratch, int tid, int nth)
{
    const unsigned old = fp_default();
    worker_t w = {.tid = tid,
                  .nth = nth,
                  .scratch = threads_scratch + (size_t)tid * plan->thread_bytes,
                  .shared = shared};
    for (int s = 0; s < plan->n_steps; s++) {
        const step_t *step = &plan->steps[s];
        const candidate_t *taken = fm->taken[s].candidate;
        const kernel_t *k = taken->kernel;
        const problem_t problem = {.plan = plan, .step = step, .frame = &fm->frame};
        for (w.phase = 0; w.phase < k->driver->phases; w.phase++) {
            k->driver->work(k, &problem, taken->config, fm->state + step->state_offset, &w);
            if (nth > 1) {
#pragma omp barrier
            }
        }
    }
    fp_restore(old);
}

void exec_run(const plan_t *plan, const frame_mem_t *fm, unsigned char *shared,
              unsigned char *threads_scratch)
{
    /* without a team, which would cost as much as a small graph: a microsecond or two */
    if (fm->frame.threads == 1) {
        run_thread(plan, fm, shared, threads_scratch, 0, 1);
        return;
    }
    team = fm->frame.threads;
#pragma omp parallel num_threads(fm->frame.threads)
    run_thread(plan, fm, shared, threads_scratch, omp_get_thread_num(), omp_get_num_threads());
}
