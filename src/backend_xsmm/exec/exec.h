/* Running plans. */
#ifndef SINTER_SRC_EXEC_H
#define SINTER_SRC_EXEC_H

#include "backend_xsmm/exec/compiled.h"

/* Takes packed values and calls every step's choose, in the calling thread. Shapes must have
 * been resolved and data pointers set. owner: as in frame_pack; frame_unpack must follow, as
 * there. *total: as in frame_choose. */
sinter_status_t exec_choose(const plan_t *plan, frame_mem_t *fm, const void *owner,
                            threads_t threads, size_t *total);
/* Calls every step's check, and checks that Dropouts were left out rightly. An error names the
 * tensor; nothing has been written. */
sinter_status_t exec_check(const plan_t *plan, const frame_mem_t *fm);
/* Calls every step's start, in the calling thread. */
sinter_status_t exec_start(const plan_t *plan, frame_mem_t *fm);

/* A plan with its frame. */
typedef struct exec_part {
    const plan_t *plan;
    frame_mem_t *fm;
    unsigned char *shared, *scratch; /* of the sizes that fm says, aligned to 64 bytes */
    bool started;                    /* exec_check and exec_start have been called */
    bool checked;                    /* exec_check has been called */
} exec_part_t;

/* Plans that run one after the other, in one region. */
typedef struct exec_run {
    const exec_part_t *parts;
    int n_parts;
    threads_t threads; /* that the parts have been chosen for */
    /* Results: */
    int failed;      /* the part whose start failed; those behind it did not run. -1: none */
    int used;        /* threads */
    const char *why; /* why not all that the stream has, static text; NULL: all */
} exec_run_t;

/* What exec_check reads for the last of these parts is written by none of those before it. All are
 * bound. */
bool exec_may_check_first(const exec_part_t *parts, int n_parts);
/* Bytes of memory that exec_run needs for parts of up to so many shares. */
size_t exec_run_bytes(int shares);
/* Runs all steps of all parts, in this thread alone or in a region. memory: of exec_run_bytes,
 * aligned to 64 bytes. */
void exec_run(exec_run_t *run, void *memory);

/* For SINTER_VERBOSE=exec: a line on stderr for an execute of one part that ran from `begin` (of
 * crew_clock) until now. Allocates nothing; a line that is too long ends in "...". */
void exec_log(const sinter_compiled_partition_t *cp, const exec_run_t *run, int64_t begin);
/* The same for a sequence: a line without ports and steps for all of it, and one without threads
 * and time for each part. */
void exec_log_sequence(const exec_run_t *run, int64_t begin);
void exec_log_element(const sinter_compiled_partition_t *cp, const exec_run_t *run, int element);

#endif
