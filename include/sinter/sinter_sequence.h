/* Sequences: many executes in one call. Read the manners in sinter.h first. */
#ifndef SINTER_SEQUENCE_H
#define SINTER_SEQUENCE_H

#include "sinter_types.h"

#ifdef __cplusplus
extern "C" {
#endif

/* A sequence is a list of compiled partitions with their tensors, for example all executes of a
 * model for one token. It runs them in order, with the results that separate executes on the same
 * stream give, bit by bit. It is faster where executes are small:
 *
 *   - What an execute finds out about its tensors is kept. As long as the dims, strides and data
 *     pointers of an element's tensors stay, the element is not checked and bound again.
 *   - All elements run in one parallel region, or in none where all of them together have too
 *     little work. Elements of little work run in one thread each, without a barrier between them.
 *
 * An element may read what an earlier one has written: give both the same buffer. */

/* Creates an empty sequence. engine: whose memory it uses; the elements may be of other engines.
 * Destroy it with sinter_sequence_destroy. Thread-safe. */
SINTER_API sinter_status_t sinter_sequence_create(sinter_sequence_t **sequence,
                                                  sinter_engine_t *engine);

/* Destroys the sequence and sets *sequence to NULL; a *sequence of NULL is fine. The tensors stay
 * the caller's. */
SINTER_API sinter_status_t sinter_sequence_destroy(sinter_sequence_t **sequence);

/* Appends an element: a compiled partition, which the sequence keeps alive, with tensors for its
 * ports, as for sinter_compiled_partition_execute. The two lists are copied, the tensors are not:
 * they stay the caller's and must live until the last execute of the sequence. Between executes
 * the caller may give them other data and other dims (sinter_tensor_set_data,
 * sinter_tensor_set_dims), and they need none before the first one.
 * A port without a tensor, or a NULL tensor, is sinter_invalid_arguments, and the sequence stays
 * as it was. All else is checked by sinter_sequence_execute. */
SINTER_API sinter_status_t sinter_sequence_append(
    sinter_sequence_t *sequence, const sinter_compiled_partition_t *compiled, size_t n_inputs,
    const sinter_tensor_t *const *inputs, size_t n_outputs, sinter_tensor_t *const *outputs);

/* Runs all elements in order, on up to as many threads as the stream has, and returns when all
 * outputs are written. An empty sequence does nothing.
 * What would be an error of sinter_compiled_partition_execute for an element is one here, with
 * the same status. The message begins with the number of the element, counted from 0, and its
 * partition. Nothing is written then, except where the error lies in values that an earlier element
 * computes: the elements before it have run, those from it on have not.
 * Allocates only where the elements need more scratch memory than in all executes before. The
 * sequence and the stream belong to one thread at a time; the compiled partitions may be in use
 * elsewhere. */
SINTER_API sinter_status_t sinter_sequence_execute(sinter_sequence_t *sequence,
                                                   sinter_stream_t *stream);

#ifdef __cplusplus
}
#endif
#endif
