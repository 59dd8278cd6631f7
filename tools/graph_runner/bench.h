/* Mode P: times every partition and says what that is of the machine's limits. */
#ifndef GR_BENCH_H
#define GR_BENCH_H

#include "exec.h"

/* After gr_exec_run. Prints a line per partition, and their sum if there are several. */
int gr_bench(gr_exec_t *x, gr_error_t *err);
/* Prints "ready", then for each line of standard input the median microseconds of runs of
 * --min-time seconds, all partitions together. Ends with the input. The machine's limits are not
 * measured. */
int gr_bench_on_demand(gr_exec_t *x, gr_error_t *err);

#endif
