/* Which values of a plan may share memory because a chain reads each element of one before it
 * writes the same element of the other. */
#ifndef SINTER_SRC_INPLACE_H
#define SINTER_SRC_INPLACE_H

#include "backend_xsmm/exec/compiled.h"

/* Step s, whose chains access the memory of `from` and of `to` once for each element, reads each
 * element of `from` before it writes that of `to`, and accesses both in no other way. Lifetimes
 * must be known. */
bool inplace_overwrites(const plan_t *plan, int s, int from, int to);
/* Finds the pairs of an input and an output that may share a buffer. Where dims are dynamic, a pair
 * holds for the executes in which both have the same dims and strides. */
sinter_status_t inplace_find_pairs(sinter_compiled_partition_t *cp);

#endif
