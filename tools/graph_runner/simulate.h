/* --simulate-threads, --simulate-nodes: how the division of a plan would load more threads than the
 * machine has, on several memory nodes. Nothing is timed.
 *
 * The plan runs divided for that many threads, in the calling thread: one share after the other.
 * Before each share the memory of tensors, constant copies and scratch is locked, so that the
 * first access to each page is seen. So bytes are what a kernel really reads, not what a model of
 * it says.
 * Memory that several shares of a phase read counts once, an equal part for each of them: the parts
 * of all shares are what the phase reads. Products are counted by the kernels.
 *
 * Threads lie on nodes in equal blocks. A page belongs to the node of the thread that touches it
 * first. */
#ifndef GR_SIMULATE_H
#define GR_SIMULATE_H

#include "exec.h"

/* The allocator of the engine, whose memory is watched. Its blocks are freed after the run, by
 * whoever closes the engine. */
sinter_allocator_t gr_simulate_allocator(void);
/* Makes the stream one of --simulate-threads, all run by the calling thread. */
void gr_simulate_stream(const gr_options_t *opt, sinter_stream_desc_t *stream);
/* Runs the graph once more and prints a line for each phase, and one for all. Tensors between
 * partitions and caches lie as in mode P. */
int gr_simulate(gr_exec_t *x, gr_error_t *err);

#endif
