/* The threads of a stream, and what runs a task in all of them: OpenMP, or the caller's own pool.
 * The only OpenMP in the library. */
#ifndef SINTER_SRC_TEAM_H
#define SINTER_SRC_TEAM_H

#include <stdbool.h>

#include <sinter/sinter_graph.h>

enum { TEAM_MOST_THREADS = 4096 };

typedef struct threads {
    int most;
    bool all;                           /* each step is divided among all, however small it is */
    sinter_parallel_for_t parallel_for; /* the caller's; NULL: OpenMP */
    void *pool;                         /* its first argument */
    sinter_watch_t watch;               /* sees each share before and after it; NULL: none does */
    void *watch_user;                   /* its first argument */
} threads_t;

/* The threads that a stream takes from OpenMP: `wanted` (0: as many as OpenMP would use by
 * default), or as many as the system lets the process have now if those are fewer. At most
 * TEAM_MOST_THREADS. 1 in a build without OpenMP. */
int team_take(int wanted);
/* How many of a stream's threads the calling thread can execute with: all, or 1 if a fork has
 * taken its team away. */
int team_usable(const threads_t *threads);
/* Calls run(task, worker) for each worker in [0, threads->most), and returns when all have
 * returned. OpenMP may leave some out. */
void team_run(const threads_t *threads, void (*run)(void *task, int worker), void *task);

#endif
