/* How a view (StaticReshape, StaticTranspose, Reorder) moves the geometry of a quantised tensor.
 * The matcher asks it whether a dequantisation can be moved over a view, the pass sink_dequant
 * moves it. */
#ifndef SINTER_SRC_QUANT_VIEW_H
#define SINTER_SRC_QUANT_VIEW_H

#include "graph/graph.h"

/* The dims that the scales (or zero points) of a quantising node have when written with one dim
 * for each dim of the data: 1 where one value covers the whole dim. data_dims and dims have room
 * for SINTER_MAX_NDIMS. False: the node has none, or its geometry is broken or not known yet. */
bool quant_full_dims(const graph_t *g, const node_t *node, bool zero_points, int64_t *dims);

/* Rewrites dims, the full dims of scales belonging to view->in, into those belonging to
 * view->out. NULL, or the reason why no such dims exist: a dim that is split or merged must be
 * ungrouped, or its groups must be runs of neighbours that the new dims can say. */
const char *quant_dims_through_view(const node_t *view, const lt_t *in, const lt_t *out,
                                    int64_t *dims);

#endif
