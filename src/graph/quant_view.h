/* How a view (StaticReshape, StaticTranspose, Reorder) moves the geometry of a quantised tensor.
 * The matcher asks it whether a dequantisation can be moved over a view, the pass sink_dequant
 * moves it. */
#ifndef SINTER_SRC_QUANT_VIEW_H
#define SINTER_SRC_QUANT_VIEW_H

#include "graph/graph.h"

/* The most views between a dequantisation and the product that reads it: the matcher refuses more,
 * and the pass moves no more. */
enum { QUANT_MAX_VIEWS = 32 };

/* The groups of scales or zero points, by dim of the data. */
typedef struct quant_dims {
    int64_t n[SINTER_MAX_NDIMS]; /* how many groups: 1 where one value covers the whole dim */
    /* Elements of a group, where the node has a group_shape; 0: it has none, and groups divide the
     * dims. INT64_MAX: all elements, however many. */
    int64_t size[SINTER_MAX_NDIMS];
} quant_dims_t;

/* The groups of a quantising node's scales or zero points. False: the node has none, or its groups
 * are not known yet. */
bool quant_full_dims(const graph_t *g, const node_t *node, bool zero_points, quant_dims_t *dims);

/* Rewrites the groups over view->in into those over view->out. NULL, or the reason why there are no
 * such groups: a dim that is split or merged must have no groups, or groups that are runs of
 * neighbours in the new dims too, none of which is shorter than the others. */
const char *quant_dims_through_view(const node_t *view, const lt_t *in, const lt_t *out,
                                    quant_dims_t *dims);

/* Some dim may have a last group that is shorter than the others: only group_shape can say its
 * groups. */
bool quant_dims_ragged(const lt_t *data, const quant_dims_t *dims);

#endif
