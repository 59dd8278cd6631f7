/* Caches of attention that lie in tiles (docs/layouts.md): what its two MatMuls read of them. */
#ifndef SINTER_SRC_GRAPH_CACHE_H
#define SINTER_SRC_GRAPH_CACHE_H

#include "graph/graph.h"

/* A MatMul of attention: of Q and K, or of probabilities and V. */
bool graph_attends(const node_t *n);
/* The second operand of such a MatMul is unpacked from tiles that attention can read: all of its
 * tensors are, for it alone, and a token has coefficients of its own. Between, StaticReshape and
 * StaticTranspose may take heads that lie side by side in a token apart. */
bool graph_reads_cache(const graph_t *g, const node_t *n);
/* A Reorder that unpacks for such a MatMul, which then reads its input. */
bool graph_unpacks_cache(const graph_t *g, const node_t *n);
/* The layouts in which attention reads the codes, or with codes false the coefficients, of the
 * second operand. */
uint64_t graph_cache_layout(const node_t *n, bool codes);

#endif
