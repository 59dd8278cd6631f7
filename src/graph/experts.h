/* Products with experts: a MatMul whose second operand a Gather takes from a table of matrices.
 *
 *   MatMul(x [.., 1, K], dequantise(Gather(codes [E, N, K], i), Gather(scales [E, N, G], i)))
 *
 * with one row of x for each index, or one for several. Each index names an expert, one of E
 * matrices. Steps read these where they lie, by the rows that an expert has. Scales in tiles may be
 * dequantised themselves, from two more tables. */
#ifndef SINTER_SRC_EXPERTS_H
#define SINTER_SRC_EXPERTS_H

#include "graph/graph.h"

/* The value of the indices; -1: it is no such product. It does not matter yet whether the
 * dequantisation stands before the MatMul or rides on it. */
int graph_experts(const graph_t *g, const node_t *matmul);
/* The value of the table that a Gather takes `value` from, an input of such a product or of its
 * dequantisations. */
int graph_table_of_experts(const graph_t *g, int value);
/* The product that alone reads what a Gather takes, as its experts or their scales; NULL: there is
 * none. */
const node_t *graph_product_of_experts(const graph_t *g, const node_t *gather);

/* A TopK finds the indices by which a node takes rows, and the dim that they are of is as large as
 * the one that it searches: so they name rows that exist, whatever the elements are. */
bool graph_indices_fit(const graph_t *g, const node_t *node);

#endif
