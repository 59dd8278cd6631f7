#include "pool.h"

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdlib.h>
#include <time.h>
#if defined(__x86_64__) || defined(__i386__)
#include <immintrin.h>
#endif

/* Threads wait for a loop with a spin, and then asleep. */
static const long spin_nanoseconds = 20000;

struct pool {
    pthread_mutex_t busy; /* of the loop that runs */
    pthread_mutex_t lock;
    pthread_cond_t woken;
    atomic_uint loop; /* its number */
    atomic_int running;
    atomic_bool ends;
    atomic_ulong loops;
    int workers;
    void (*run)(void *task, int worker);
    void *task;
    int n_threads;
    struct seat {
        pool_t *pool;
        int worker;
        pthread_t thread;
    } seats[];
};

static void pause_briefly(void)
{
#if defined(__x86_64__) || defined(__i386__)
    _mm_pause();
#endif
}

static long now(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec * 1000000000L + t.tv_nsec;
}

/* The number of the loop after `last`. */
static unsigned await(pool_t *p, unsigned last)
{
    const long end = now() + spin_nanoseconds;
    unsigned loop;
    while ((loop = atomic_load(&p->loop)) == last && now() < end) {
        pause_briefly();
    }
    if (loop == last) {
        pthread_mutex_lock(&p->lock);
        while ((loop = atomic_load(&p->loop)) == last) {
            pthread_cond_wait(&p->woken, &p->lock);
        }
        pthread_mutex_unlock(&p->lock);
    }
    return loop;
}

static void *serve(void *at)
{
    const struct seat *seat = at;
    pool_t *p = seat->pool;
    for (unsigned loop = 0;;) {
        loop = await(p, loop);
        if (atomic_load(&p->ends)) {
            return NULL;
        }
        if (seat->worker < p->workers) {
            p->run(p->task, seat->worker);
        }
        atomic_fetch_sub(&p->running, 1);
    }
}

static void begin_loop(pool_t *p)
{
    pthread_mutex_lock(&p->lock);
    atomic_fetch_add(&p->loop, 1);
    pthread_cond_broadcast(&p->woken);
    pthread_mutex_unlock(&p->lock);
}

pool_t *pool_create(int threads)
{
    pool_t *p = calloc(1, sizeof *p + (size_t)threads * sizeof p->seats[0]);
    if (p == NULL) {
        return NULL;
    }
    pthread_mutex_init(&p->busy, NULL);
    pthread_mutex_init(&p->lock, NULL);
    pthread_cond_init(&p->woken, NULL);
    for (int i = 0; i < threads - 1; i++) {
        struct seat *seat = &p->seats[i];
        *seat = (struct seat){.pool = p, .worker = i + 1};
        if (pthread_create(&seat->thread, NULL, serve, seat) != 0) {
            pool_destroy(p);
            return NULL;
        }
        p->n_threads++;
    }
    return p;
}

void pool_destroy(pool_t *p)
{
    if (p == NULL) {
        return;
    }
    atomic_store(&p->ends, true);
    begin_loop(p);
    for (int i = 0; i < p->n_threads; i++) {
        pthread_join(p->seats[i].thread, NULL);
    }
    pthread_cond_destroy(&p->woken);
    pthread_mutex_destroy(&p->lock);
    pthread_mutex_destroy(&p->busy);
    free(p);
}

void pool_for(void *pool, int workers, void (*run)(void *task, int worker), void *task)
{
    pool_t *p = pool;
    int ran = 1;
    const bool ours = pthread_mutex_trylock(&p->busy) == 0;
    atomic_fetch_add(&p->loops, 1);
    if (ours) {
        p->workers = workers;
        p->run = run;
        p->task = task;
        atomic_store(&p->running, p->n_threads);
        begin_loop(p);
        ran += p->n_threads;
    }
    run(task, 0);
    for (int worker = ran; worker < workers; worker++) {
        run(task, worker);
    }
    while (ours && atomic_load(&p->running) > 0) {
        pause_briefly();
    }
    if (ours) {
        pthread_mutex_unlock(&p->busy);
    }
}

unsigned long pool_loops(pool_t *pool)
{
    return atomic_load(&pool->loops);
}
