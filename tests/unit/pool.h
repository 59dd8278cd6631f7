/* A small pool of threads, as an engine has one: for streams that run on the caller's threads. */
#ifndef SINTER_TESTS_POOL_H
#define SINTER_TESTS_POOL_H

typedef struct pool pool_t;

/* Starts `threads` - 1 threads: the thread that calls pool_for is one too. NULL: the system refuses
 * memory or threads. */
pool_t *pool_create(int threads);
/* Ends the threads. */
void pool_destroy(pool_t *pool);
/* A sinter_parallel_for_t; the first argument is a pool. Where the pool is busy, or has fewer
 * threads than there are workers, the caller runs what is left. */
void pool_for(void *pool, int workers, void (*run)(void *task, int worker), void *task);
/* How often pool_for has run. */
unsigned long pool_loops(pool_t *pool);

#endif
