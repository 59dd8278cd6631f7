/* Running plans: the only OpenMP in the library. */
#ifndef SINTER_SRC_EXEC_H
#define SINTER_SRC_EXEC_H

#include "backend_xsmm/exec/compiled.h"

enum { EXEC_MOST_THREADS = 4096 };

/* The threads that a stream takes: `wanted` (0: as many as OpenMP would use by default), or as
 * many as the system lets the process have now if those are fewer. At most EXEC_MOST_THREADS. */
int exec_take_threads(int wanted);
/* How many of a stream's threads the calling thread can execute with: all, or 1 if a fork has
 * taken its team away. */
int exec_usable_threads(int threads);
/* Takes packed values and calls every step's choose, in the calling thread. Shapes must have
 * been resolved and data pointers set. owner: as in frame_pack; frame_unpack must follow, as
 * there. *total: as in frame_choose. */
sinter_status_t exec_choose(const plan_t *plan, frame_mem_t *fm, const void *owner, int threads,
                            size_t *total);
/* Calls every step's start, in the calling thread. */
sinter_status_t exec_start(const plan_t *plan, frame_mem_t *fm);
/* Runs all steps on fm->frame.threads threads. shared and the scratch of each thread are aligned
 * to 64 bytes and have the sizes that fm says. */
void exec_run(const plan_t *plan, const frame_mem_t *fm, unsigned char *shared,
              unsigned char *threads_scratch);

/* For SINTER_VERBOSE=exec: a line on stderr for an execute that ran from `begin` (of exec_clock)
 * until now. Allocates nothing; a line that is too long ends in "...". */
void exec_log(const sinter_compiled_partition_t *cp, const frame_mem_t *fm, int64_t begin);
/* Nanoseconds since some moment. */
int64_t exec_clock(void);

#endif
