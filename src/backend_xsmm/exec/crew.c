#define _GNU_SOURCE /* syscall */
#include "backend_xsmm/exec/crew.h"

#include <limits.h>
#include <time.h>
#if defined(__linux__)
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>
#else
#include <threads.h>
#endif
#if defined(__x86_64__) || defined(__i386__)
#include <xmmintrin.h>
#endif

/* Waking a thread takes about as long where a virtual machine has halted its processor. With 20
 * microseconds, the threads of a token of 183 partitions slept 37 times. */
static const int64_t spin_nanoseconds = 100000;

size_t crew_bytes(int shares)
{
    return (sizeof(crew_t) + (size_t)shares * sizeof(atomic_uint) + 63) & ~(size_t)63;
}

void crew_init(crew_t *crew, int shares)
{
    atomic_init(&crew->job, 0);
    atomic_init(&crew->sleepers, 0);
    atomic_init(&crew->done, 0);
    for (int i = 0; i < shares; i++) {
        atomic_init(&crew->next[i], 0);
    }
}

unsigned crew_job(crew_t *crew)
{
    return atomic_load_explicit(&crew->job, memory_order_acquire);
}

bool crew_take(crew_t *crew, unsigned job, int share)
{
    unsigned next = atomic_load_explicit(&crew->next[share], memory_order_relaxed);
    return next <= job &&
           atomic_compare_exchange_strong_explicit(&crew->next[share], &next, job + 1,
                                                   memory_order_relaxed, memory_order_relaxed);
}

/* ---- waiting --------------------------------------------------------------------------------- */

int64_t crew_clock(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#endif
}

/* Sleeps while the job is the current one; may return early. */
static void sleep_in(crew_t *crew, unsigned job)
{
#if defined(__linux__)
    syscall(SYS_futex, &crew->job, FUTEX_WAIT_PRIVATE, job, NULL, NULL, 0);
#else
    (void)crew, (void)job;
    thrd_yield();
#endif
}

static void wake_all(crew_t *crew)
{
#if defined(__linux__)
    syscall(SYS_futex, &crew->job, FUTEX_WAKE_PRIVATE, INT_MAX, NULL, NULL, 0);
#else
    (void)crew;
#endif
}

void crew_finish(crew_t *crew, unsigned job, int n, int all, bool wake)
{
    const unsigned before =
        atomic_fetch_add_explicit(&crew->done, (unsigned)n, memory_order_acq_rel);
    if (before + (unsigned)n < (unsigned)all) {
        return;
    }
    atomic_store_explicit(&crew->done, 0, memory_order_relaxed);
    /* Either the sleeper sees the new job, or this sees the sleeper: both orders are total. */
    atomic_store(&crew->job, job + 1);
    if (wake && atomic_load(&crew->sleepers) > 0) {
        wake_all(crew);
    }
}

void crew_wait(crew_t *crew, unsigned job)
{
    enum { PAUSES = 32 };
    const int64_t end = crew_clock() + spin_nanoseconds;
    do {
        for (int i = 0; i < PAUSES; i++) {
            if (crew_job(crew) != job) {
                return;
            }
            pause_briefly();
        }
    } while (crew_clock() < end);
    atomic_fetch_add(&crew->sleepers, 1);
    while (atomic_load(&crew->job) == job) {
        sleep_in(crew, job);
    }
    atomic_fetch_sub(&crew->sleepers, 1);
}
