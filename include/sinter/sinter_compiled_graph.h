/* Compiled graphs: a graph that runs as a whole. Read the manners in sinter.h first. */
#ifndef SINTER_COMPILED_GRAPH_H
#define SINTER_COMPILED_GRAPH_H

#include "sinter_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A compiled graph is all partitions of a graph, compiled, in order of execution, with the memory
 * of the tensors between them. The caller binds the inputs and outputs of the graph to buffers and
 * executes:
 *
 *     sinter_graph_compile(graph, engine, 0, NULL, &whole);
 *     sinter_compiled_graph_bind(whole, 1, 2, dims, NULL, x, SINTER_BYTES_TRUSTED);
 *     sinter_compiled_graph_bind(whole, 9, 0, NULL, NULL, y, SINTER_BYTES_TRUSTED);
 *     sinter_compiled_graph_execute(whole, stream);
 *
 * Beneath it lie a compiled partition for each partition and a sequence (sinter_sequence.h), with
 * the results that separate executes of the partitions give, bit by bit.
 *
 *   - Tensors between partitions, whose dims follow from the inputs, lie in one block of memory.
 *     Tensors that are not needed at the same time share its bytes. The block grows where larger
 *     dims need it, so that steady state allocates nothing, also where dims change.
 *   - What is bound stays bound until it is bound again. What an execute finds out about its
 *     tensors is kept until data pointers or dims change.
 *
 * A compiled graph belongs to one thread at a time. Its compiled partitions may be in use
 * elsewhere. */

/* Compiles all partitions of a finalized graph and ties them together. The caller passes the
 * partitions that it holds, which one sinter_graph_filter has made, in any order. With NULL and a
 * count of 0, the library takes the partitions of the graph's last filter; if there was none, it
 * filters the graph with policy fusion. In both cases each partition is compiled in its own fpmath
 * mode (sinter_partition_set_fpmath_mode). Dims that the graph does not know stay dynamic.
 * If the library does not run some ops, the status is sinter_unimplemented, and the message lists
 * them all with id, kind and reason. Other errors are those of sinter_partition_compile; their
 * message begins with the partition. Destroy the result with sinter_compiled_graph_destroy. The
 * graph and its partitions may be destroyed before. */
SINTER_API sinter_status_t sinter_graph_compile(sinter_graph_t *graph, sinter_engine_t *engine,
                                                size_t n_partitions,
                                                sinter_partition_t *const *partitions,
                                                sinter_compiled_graph_t **compiled);

/* Ties compiled partitions together that the caller has: all that belong to one filter of the
 * graph, in any order, each once. It keeps them alive. In this way the layers of a model that have
 * the same shapes share compiled partitions, each layer with what is bound to it. A partition that
 * is missing, or that is not of this graph, is sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_compiled_graph_create(
    sinter_compiled_graph_t **compiled, sinter_engine_t *engine, const sinter_graph_t *graph,
    size_t n_partitions, sinter_compiled_partition_t *const *partitions);

/* Destroys the compiled graph and sets *compiled to NULL; a *compiled of NULL is fine. What is
 * bound stays the caller's. */
SINTER_API sinter_status_t sinter_compiled_graph_destroy(sinter_compiled_graph_t **compiled);

/* ---- what it consists of --------------------------------------------------------------------- */

/* Writes the number of partitions. */
SINTER_API sinter_status_t
sinter_compiled_graph_get_partition_num(const sinter_compiled_graph_t *compiled, size_t *count);

/* Writes the compiled partitions in order of execution, and their numbers, as
 * sinter_partition_get_id gives them. Each list has room for count entries, and count must be the
 * number of partitions, else sinter_invalid_arguments; a list may be NULL. The compiled partitions
 * belong to the compiled graph: for queries, and for sinter_compiled_graph_create. */
SINTER_API sinter_status_t
sinter_compiled_graph_get_partitions(const sinter_compiled_graph_t *compiled, size_t count,
                                     size_t *ids, sinter_compiled_partition_t **partitions);

/* Writes the number of inputs: the tensors that some partition reads and none writes. */
SINTER_API sinter_status_t
sinter_compiled_graph_get_input_num(const sinter_compiled_graph_t *compiled, size_t *count);

/* Writes the inputs as they were compiled; dynamic dims are SINTER_UNKNOWN_DIM. ports has room for
 * count entries, and count must be the number of inputs, else sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_compiled_graph_get_inputs(const sinter_compiled_graph_t *compiled,
                                                            size_t count,
                                                            sinter_logical_tensor_t *ports);

/* Writes the number of outputs: those listed by sinter_graph_set_ports, or without a list the
 * tensors that no op reads. */
SINTER_API sinter_status_t
sinter_compiled_graph_get_output_num(const sinter_compiled_graph_t *compiled, size_t *count);

/* The same for the outputs. */
SINTER_API sinter_status_t sinter_compiled_graph_get_outputs(
    const sinter_compiled_graph_t *compiled, size_t count, sinter_logical_tensor_t *ports);

/* Writes the pairs of an input and an output of the graph that may share one buffer because the
 * partition that writes the output reads each element before it writes it: a cache and what
 * ScatterRows makes of it, x and y = x + f(x). Pairs with dynamic dims hold where dims and strides
 * of both are the same. An input that a later partition reads is in no pair. *pairs belongs to the
 * compiled graph. */
SINTER_API sinter_status_t sinter_compiled_graph_get_inplace_ports(
    const sinter_compiled_graph_t *compiled, size_t *count, const sinter_inplace_pair_t **pairs);

/* Writes the tensor with this id, a port of some partition: its dims and strides at the next
 * execute, as far as they follow from the inputs that are bound. An output that is still bound with
 * other dims, from before an input got new ones, has those that the inputs lead to. An id that
 * belongs to no port gives sinter_invalid_arguments. */
SINTER_API sinter_status_t sinter_compiled_graph_query_logical_tensor(
    sinter_compiled_graph_t *compiled, uint64_t id, sinter_logical_tensor_t *lt);

/* ---- binding --------------------------------------------------------------------------------- */

/* Binds a tensor of the graph to memory, which stays the caller's and must live as long as it is
 * bound; any alignment. bytes is how much of it is readable, and writable if it is an output
 * (SINTER_BYTES_TRUSTED: the caller vouches).
 * dims has ndims entries, in elements, strides too; strides NULL: those that were compiled, or
 * dense where they are not known. dims NULL with an ndims of 0: for an input the dims that it had,
 * or that were compiled; for an output those that follow from the inputs.
 * data NULL: an input gets dims alone, an output is not bound any more.
 * Every output must be bound, except that of a pair (sinter_compiled_graph_get_inplace_ports): if
 * it is not, it is written into the buffer of its input. An output may be bound to memory of any
 * input that is not read later: by the partition that writes the output only in a pair, by none
 * after it. Tensors between partitions may be bound too, to see what is in them.
 * It is an error if no port has this id, if dims do not fit what was compiled, or if there are too
 * few bytes; what was bound before then stays bound. Whether tensors fit together is checked by
 * sinter_compiled_graph_execute. Allocates nothing. */
SINTER_API sinter_status_t sinter_compiled_graph_bind(sinter_compiled_graph_t *compiled,
                                                      uint64_t id, int ndims,
                                                      const sinter_dim_t *dims,
                                                      const sinter_dim_t *strides, void *data,
                                                      size_t bytes);

/* Binds an input of one element (another is sinter_invalid_arguments) to a copy of the value, which
 * is one element of its data type. The copy is the compiled graph's. Allocates nothing. */
SINTER_API sinter_status_t sinter_compiled_graph_bind_scalar(sinter_compiled_graph_t *compiled,
                                                             uint64_t id, const void *value);

/* ---- execute --------------------------------------------------------------------------------- */

/* Runs all partitions in order, in one parallel region or none, and returns when all outputs are
 * written.
 * Errors are those of sinter_sequence_execute, and the message names element, partition and tensor.
 * A tensor that is not bound, and memory that one partition overwrites before a later one reads it,
 * are sinter_invalid_arguments. Nothing is written then, except as for sinter_sequence_execute.
 * Allocates only where dims need more memory than in all executes before. */
SINTER_API sinter_status_t sinter_compiled_graph_execute(sinter_compiled_graph_t *compiled,
                                                         sinter_stream_t *stream);

/* ---- memory ---------------------------------------------------------------------------------- */

/* A tensor between partitions. first and last count partitions in order of execution, from 0. */
typedef struct sinter_arena_tensor {
    uint64_t id;
    size_t bytes, offset; /* of its elements; from the begin of the block */
    size_t first, last;   /* the partition that writes it, and the last one that reads it */
} sinter_arena_tensor_t;

/* Writes the bytes of the block, and the tensors in it in order of their first partition, for the
 * dims that are bound now. Tensors that are bound to memory of the caller are not in it. *tensors
 * belongs to the compiled graph, until the next call for it. Each of the three may be NULL. An
 * input whose dims are not known yet is sinter_invalid_arguments. Allocates nothing. */
SINTER_API sinter_status_t sinter_compiled_graph_get_arena(sinter_compiled_graph_t *compiled,
                                                           size_t *bytes, size_t *count,
                                                           const sinter_arena_tensor_t **tensors);

#ifdef __cplusplus
}
#endif
#endif
