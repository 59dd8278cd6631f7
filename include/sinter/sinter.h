/* Sinter: graph-level fusion for CPU inference over compressed tensors.
 *
 * How to use it: describe tensors (sinter_logical_tensor_t), create ops over them, add the ops to a
 * graph, and finalize it. Then either compile the graph as a whole, bind its inputs and outputs to
 * memory, and execute; or ask for partitions, compile each, and execute the compiled partitions
 * with tensors. The README has a short example, examples/ longer ones.
 *
 * What holds for all functions; their own comments do not repeat it:
 *
 * Ownership     *_create hands you an object. Destroy it with *_destroy(&object), which also sets
 *               your pointer to NULL, so that destroying twice does nothing. What *_get and other
 *               queries hand you belongs to its object, unless the comment says otherwise.
 *               Everything passed in is copied before the call returns, except the memory behind
 *               a tensor's data pointer, which stays yours. Objects may be destroyed in any
 *               order: each keeps alive what it needs.
 *
 * Engines       An engine carries the allocator, the instruction-set cap and the constant cache.
 *               Where a function takes an engine, NULL means the default engine: malloc, and all
 *               that the machine has, capped by SINTER_MAX_CPU_ISA.
 *
 * Errors        Most calls return a sinter_status_t. Nothing aborts. On failure the output
 *               arguments are untouched, and sinter_last_error_message() names the op id, the
 *               tensor id and the rule that was broken. Every call can be sinter_out_of_memory,
 *               and sinter_invalid_arguments where a pointer that it needs is NULL.
 *
 * Threads       Engines, partitions and compiled partitions may be used by many threads at once,
 *               from their creation until they are destroyed. Ops, graphs that are being built,
 *               streams, sequences, compiled graphs and tensors belong to one thread at a time.
 *               "Thread-safe" in the comment of a function means: threads may call it at once,
 *               also for the same object.
 *
 * Process       The first sinter_engine_create, or the first compile for the default engine,
 *               starts libxsmm (some 10 ms). That changes the environment for a moment and
 *               restores it: no other thread may use the environment meanwhile. Where the system
 *               refuses executable memory, no code is generated, and the kernel reports say so.
 *
 *               Executes use threads of OpenMP, which ends the process where the system refuses
 *               it a thread. So sinter_stream_create tries how many threads there can be, and
 *               takes no more. It cannot foresee later changes, nor executes from other threads.
 *
 *               After a fork, the thread of the child that called fork executes alone if it
 *               executed with more threads before. Other threads of the child have all threads of
 *               a stream. Call fork while no other thread is inside a call of this library;
 *               otherwise the child may wait for a lock for ever.
 *
 *               The shared library stays in memory after dlclose, because its threads do. A
 *               plugin that links the static library must itself be linked with -Wl,-z,nodelete,
 *               or never be unloaded.
 *
 * Units         dims and strides are in elements, sizes in bytes.
 *
 * Versions      Structs that begin with a field `size` may grow: set it with sizeof. Zero the
 *               rest of a *_desc_t; a zero field means the default. The library may be older or
 *               newer than your headers: fields that one of them lacks are ignored. Numbers of
 *               enumerations never change. */
#ifndef SINTER_SINTER_H
#define SINTER_SINTER_H

#include "sinter_build.h"
#include "sinter_compiled_graph.h"
#include "sinter_graph.h"
#include "sinter_partition.h"
#include "sinter_sequence.h"
#include "sinter_types.h"
#include "sinter_version.h"

#endif
