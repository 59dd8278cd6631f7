/* Which values of a plan may share memory because a chain reads each element of one before it
 * writes the same element of the other. */
#ifndef SINTER_SRC_INPLACE_H
#define SINTER_SRC_INPLACE_H

#include "backend_xsmm/exec/compiled.h"

/* Step s accesses the memory of value v by its chain alone, once for each element, at the index of
 * the iteration space. Lifetimes must be known. */
bool inplace_in_chain(const plan_t *plan, int v, int s);
/* In the chain of step s the memory of `from` is read before that of `to` is written; the chain
 * accesses both once. */
bool inplace_reads_first(const plan_t *plan, int s, int from, int to);
/* Finds the pairs of an input and an output that may share a buffer. Where dims are dynamic, a pair
 * holds for the executes in which both have the same dims and strides. */
sinter_status_t inplace_find_pairs(sinter_compiled_partition_t *cp);

#endif
