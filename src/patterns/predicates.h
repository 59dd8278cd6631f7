/* Named conditions of patterns: NULL, or the reason why a match is refused. */
#ifndef SINTER_SRC_PREDICATES_H
#define SINTER_SRC_PREDICATES_H

#include "patterns/pattern.h"

/* The library executes every op of the match. Else one op that it does not execute would make the
 * whole partition unsupported. */
const char *pat_within_limits(const match_t *m);

/* Attention: roles qk, softmax, pv; turned_pv is a second matmul that may have the probabilities on
 * either side. */
const char *pat_plain_matmuls(const match_t *m); /* no bias, at least two dims */
/* The second matmul does not transpose the probabilities. */
const char *pat_plain_probabilities(const match_t *m);
/* The softmax runs over the last axis, which the second matmul reduces. */
const char *pat_softmax_over_keys(const match_t *m);
/* The batch dims of V broadcast to those of the scores. */
const char *pat_values_batch(const match_t *m);
/* The groups of Q, K and V are still groups of neighbours after the views above the matmuls. */
const char *pat_key_geometry(const match_t *m);
/* Both K and V, with their scales and zero points, are taken from blocks by one table
 * (graph/pages.h). */
const char *pat_reads_pages(const match_t *m);
/* Transposes and swapped operands cancel so that the softmax runs over the keys, and every op
 * between the matmuls may be moved over a transpose. */
const char *pat_turns_to_plain(const match_t *m);

/* Gated MLP: roles gate, act, up. */
const char *pat_same_input(const match_t *m);         /* both matmuls project one tensor */
const char *pat_joined_by_multiply(const match_t *m); /* up meets gate in a Multiply */

/* Zero points apart: roles matmul, sums. */
/* sums reduces fewer elements than matmul, each of which stands for a group, and its second operand
 * is dequantised. */
const char *pat_sums_of_groups(const match_t *m);
const char *pat_subtracts_sums(const match_t *m); /* sums is subtracted from matmul */

const char *pat_moves_elements(const match_t *m); /* the chain has a view */

#endif
