/* What the shape rules share. A rule is a pure function of the node and the dims of its inputs;
 * it allocates nothing. Unknown dims and unknown numbers of dims are allowed everywhere and lead
 * to unknown ones. */
#ifndef SINTER_SRC_SHAPE_H
#define SINTER_SRC_SHAPE_H

#include <inttypes.h>

#include "base/status.h"
#include "graph/node.h"
#include "graph/op_rules.h"

#define UNKNOWN SINTER_UNKNOWN_DIM
#define FAIL_SHAPE(node, format, ...) \
    sg_fail(sinter_invalid_shape, "%s: " format, node_label(node), __VA_ARGS__)

static inline bool dim_known(int64_t dim)
{
    return dim != UNKNOWN;
}

static inline bool dims_may_equal(int64_t a, int64_t b)
{
    return a == b || !dim_known(a) || !dim_known(b);
}

/* Merges inferred dims into an output, whose declared dims may not contradict them. ndims < 0:
 * nothing is known. */
sinter_status_t shape_put(const node_t *node, lt_t *out, int ndims, const int64_t *dims);

/* a: an axis given as -ndims..ndims-1. */
sinter_status_t shape_axis(const node_t *node, int64_t axis, const lt_t *lt, int *normal);

/* The dim of channels by data_format; lt has at least one dim. */
int shape_channel_dim(const node_t *node, const lt_t *lt);

/* A vector of C values, C being the channels of lt. */
sinter_status_t shape_put_channels(const node_t *node, const lt_t *lt, lt_t *out);

/* True if every dim of lt, aligned right, is 1 or the dim of `to`. */
bool shape_broadcasts_to(const lt_t *lt, const lt_t *to);

/* numpy broadcast of dims; unknown dims allowed. False: they do not broadcast. */
bool broadcast_dims(const lt_t *a, const lt_t *b, lt_t *out);

#endif
