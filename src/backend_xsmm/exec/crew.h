/* How the threads of a parallel region share out work and wait for one another.
 *
 * The work is a list of jobs, each divided into shares. A thread takes the shares of the current
 * job that nobody has taken; whoever finishes the last one opens the next job. So a thread that
 * comes late, or not at all, costs nothing: the others run its shares.
 *
 * A thread that finds no share waits: it spins for some 100 microseconds, then it sleeps. */
#ifndef SINTER_SRC_CREW_H
#define SINTER_SRC_CREW_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct crew {
    atomic_uint job; /* the number of the current one */
    atomic_uint sleepers;
    _Alignas(64) atomic_uint done;   /* finished shares of the current job */
    _Alignas(64) atomic_uint next[]; /* by share: the first job in which nobody has taken it */
} crew_t;

/* Bytes of a crew for jobs of up to so many shares. It is aligned to 64 bytes. */
size_t crew_bytes(int shares);
/* The current job is number 0. */
void crew_init(crew_t *crew, int shares);
/* The number of the current job. */
unsigned crew_job(crew_t *crew);
/* Takes a share of a job; false: somebody has it already, or the job is over. */
bool crew_take(crew_t *crew, unsigned job, int share);
/* Reports n finished shares of the current job, which has `all`. wake: sleepers are needed for the
 * next job, or it is the end. */
void crew_finish(crew_t *crew, unsigned job, int n, int all, bool wake);
/* Waits until this job is over. */
void crew_wait(crew_t *crew, unsigned job);

/* Nanoseconds since some moment. */
int64_t crew_clock(void);

#endif
