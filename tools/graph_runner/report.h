/* What the graph became, as text and for Graphviz. */
#ifndef GR_REPORT_H
#define GR_REPORT_H

#include "exec.h"

/* Mode L: partitions with pattern, ops, ports and, where compiled, kernels. explain: the
 * library's reasons as well. */
void gr_report_partitions(const gr_exec_t *x, int explain);
void gr_report_memory(const gr_exec_t *x);
void gr_report_constants(const gr_exec_t *x);
int gr_write_dot(const gr_exec_t *x, const char *path, gr_error_t *err);
void gr_list_ops(void);

#endif
