/* Sinter: graph-level fusion for CPU inference over compressed tensors.
 *
 * How to use it: describe tensors (sinter_logical_tensor_t), create ops over them, add the ops to a
 * graph, finalize it, ask for partitions, compile a partition, execute the compiled partition with
 * tensors. examples/ has the whole of it in one file.
 *
 * Manners, once for all functions:
 *
 * Ownership     *_create hands you an object that you destroy with *_destroy(&object), which
 *               also sets your pointer to NULL, so that
 *               destroying twice does nothing. *_get hands you something that its object keeps
 *               and frees. Everything passed in is copied
 *               before the call returns, except the memory behind a tensor's data pointer, which
 *               stays yours. Objects may be destroyed in
 *               any order: each keeps what it needs alive.
 * Engines       An engine carries the allocator and the ISA cap. Where an engine is asked for,
 *               NULL means the default engine (malloc, all
 *               that the machine has, capped by SINTER_MAX_CPU_ISA).
 * Errors        Every call returns a sinter_status_t. Nothing aborts. On failure the output
 *               arguments are untouched and
 *               sinter_last_error_message() names the op id, the tensor id and the rule that was
 *               broken.
 * Threads       Engines, partitions and compiled partitions may be used by many threads at once
 *               once created; a compiled partition can be
 *               executed concurrently. A partition's fpmath mode may be set while other threads
 *               compile it: each compile uses the old one or the new one. Ops, graphs being
 *               built,
 *               streams and tensors belong to one thread at a time.
 * Process       The first sinter_engine_create, or the first compile for the default engine,
 *               starts
 *               libxsmm (some 10 ms). That changes the environment for a moment and restores it:
 *               no
 *               other thread may use the environment meanwhile. Where the system refuses
 *               executable
 *               memory, no code is generated; the kernel reports say so.
 *               Executes use threads of OpenMP, which ends the process where the system refuses
 *               it a thread. So sinter_stream_create tries how many threads there can be, and
 *               takes
 *               no more. It cannot foresee later changes, nor executes from other threads.
 *               In the child of a fork, the thread that called fork executes alone if it
 *               executed
 *               with more threads before. Other threads of the child have all threads of a
 *               stream.
 *               Call fork while no other thread is inside a call of this library; otherwise the
 *               child may wait for a lock for ever.
 *               The shared library stays in memory after dlclose, because its threads do. A
 *               plugin
 *               that links the static library must itself be linked with -Wl,-z,nodelete, or
 *               never
 *               be unloaded.
 * Units         dims and strides in elements, sizes in bytes.
 * Versions      Structs named *_desc_t or *_stats_t start with their size: set it with sizeof.
 *               Zero
 *               the rest of a *_desc_t; a zero field means the default. The library may be older
 *               or
 *               newer than its user's headers: fields that one of them lacks are ignored. */
#ifndef SINTER_SINTER_H
#define SINTER_SINTER_H

#include "sinter_graph.h"
#include "sinter_partition.h"
#include "sinter_types.h"
#include "sinter_version.h"

#endif
