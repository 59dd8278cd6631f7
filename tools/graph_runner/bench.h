/* Mode P: times every partition and says what that is of the machine's limits. */
#ifndef GR_BENCH_H
#define GR_BENCH_H

#include "exec.h"

/* After gr_exec_run. Prints a line per partition, and their sum if there are several. */
int gr_bench(gr_exec_t *x, gr_error_t *err);

#endif
