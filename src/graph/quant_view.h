/* How a view (StaticReshape, StaticTranspose, Reorder) moves the geometry of a quantised tensor.
 * The matcher asks it whether a dequantisation can be moved over a view, the pass sink_dequant
 * moves it. */
#ifndef SINTER_SRC_QUANT_VIEW_H
#define SINTER_SRC_QUANT_VIEW_H

#include "graph/graph.h"

/* The most views between a dequantisation and the product that reads it: the matcher refuses more,
 * and the pass moves no more. */
enum { QUANT_MAX_VIEWS = 32 };

/* The dims of a quantising node's scales or zero points, written with one dim for each dim of the
 * data: 1 where one value covers the whole dim. dims has room for SINTER_MAX_NDIMS. False: the node
 * has none, or its groups are invalid or not known yet. */
bool quant_full_dims(const graph_t *g, const node_t *node, bool zero_points, int64_t *dims);

/* Rewrites dims, the full dims of scales for view->in, into those for view->out. NULL, or the
 * reason why no such dims exist: a dim that is split or merged must have no groups, or groups that
 * are runs of neighbours in the new dims too. */
const char *quant_dims_through_view(const node_t *view, const lt_t *in, const lt_t *out,
                                    int64_t *dims);

#endif
