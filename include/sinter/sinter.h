/* Sinter: graph-level fusion for CPU inference over compressed tensors.
 *
 * How to use it: describe tensors (sinter_logical_tensor_t), create ops over them, add the ops to a graph, finalize it, ask for partitions,
 * compile a partition, execute the compiled partition with tensors. examples/ has the whole of it in one file.
 *
 * Manners, once for all functions:
 *
 * Ownership     *_create hands you an object that you destroy with *_destroy(&object), which also sets your pointer to NULL, so that
 *               destroying twice does nothing. *_get hands you something that its object keeps and frees. Everything passed in is copied
 *               before the call returns, except the memory behind a tensor's data pointer, which stays yours. Objects may be destroyed in
 *               any order: each keeps what it needs alive.
 * Engines       An engine carries the allocator and the ISA cap. Where an engine is asked for, NULL means the default engine (malloc, all
 *               that the machine has, capped by SINTER_MAX_CPU_ISA).
 * Errors        Every call returns a sinter_status_t. Nothing aborts. On failure the output arguments are untouched and
 *               sinter_last_error_message() names the op id, the tensor id and the rule that was broken.
 * Threads       Engines, partitions and compiled partitions may be used by many threads at once once created; a compiled partition can be
 *               executed concurrently. A partition's fpmath mode may be set while other threads
 *               compile it: each compile uses the old one or the new one. Ops, graphs being built,
 *               streams and tensors belong to one thread at a time.
 * Units         dims and strides in elements, sizes in bytes.
 * Versions      Structs named *_desc_t or *_stats_t start with their size: set it with sizeof. Zero
 *               the rest of a *_desc_t; a zero field means the default. The library may be older or
 *               newer than its user's headers: fields that one of them lacks are ignored. */
#ifndef SINTER_SINTER_H
#define SINTER_SINTER_H

#include "sinter_graph.h"
#include "sinter_partition.h"
#include "sinter_types.h"
#include "sinter_version.h"

#endif
