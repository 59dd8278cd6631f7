/* Mode P: times every partition and says what that is of the machine's limits. */
#ifndef GR_BENCH_H
#define GR_BENCH_H

#include "exec.h"

/* After gr_exec_run. Prints a line per partition, and their sum if there are several. */
int gr_bench(gr_exec_t *x, gr_error_t *err);
/* --limits in other modes than P: prints and records what each partition reads, writes and
 * multiplies, and the roofline of that. Lengths and windows that masks depend on count once the
 * graph's inputs are filled. */
int gr_bench_bounds(gr_exec_t *x, gr_error_t *err);
/* Prints "ready", then for each line of standard input the median microseconds of runs of
 * --min-time seconds, all partitions together. Ends with the input. The machine's limits are not
 * measured. */
int gr_bench_on_demand(gr_exec_t *x, gr_error_t *err);

#endif
