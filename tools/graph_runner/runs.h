/* --runs and --same-bits: the same graph several times in one process. */
#ifndef GR_RUNS_H
#define GR_RUNS_H

#include "exec.h"

/* Copies of what the partitions have written, by index of the model's tensor; NULL where nothing
 * was. */
typedef struct gr_kept {
    unsigned char **data;
    size_t n, tensors, bytes;
} gr_kept_t;

/* Runs the graph --runs times; with --same-bits every tensor that a partition writes must have the
 * same bits each time. */
int gr_run_all(gr_exec_t *x, gr_error_t *err);

/* Copies after a run, to compare with later ones. Free also after a failure. */
int gr_keep(const gr_exec_t *x, gr_kept_t *kept, gr_error_t *err);
/* -1 with a message that names run, tensor and the first element that differs. */
int gr_compare_kept(const gr_exec_t *x, const gr_kept_t *kept, int64_t run, gr_error_t *err);
void gr_kept_free(gr_kept_t *kept);

#endif
