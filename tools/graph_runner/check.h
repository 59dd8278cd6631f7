/* Mode C: what the library computed against the oracle. */
#ifndef GR_CHECK_H
#define GR_CHECK_H

#include "exec.h"

/* After gr_exec_run. Prints a line per graph output; -1 with a message if one is wrong. The last
 * oracle result is kept and used again for the same graph, inputs and mode. */
int gr_check(gr_exec_t *x, gr_error_t *err);
void gr_check_forget(void);

/* --dump-tensors: the graph's inputs and outputs, or the tensors of --dump-tensor-ids, and what the
 * oracle expected of the outputs. */
int gr_dump_tensors(const gr_exec_t *x, gr_error_t *err);

#endif
