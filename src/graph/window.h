/* Sliding windows: what the attributes of pooling and convolution say about one spatial dim. The
 * shape rules and the back end read them here. */
#ifndef SINTER_SRC_WINDOW_H
#define SINTER_SRC_WINDOW_H

#include "base/status.h"
#include "graph/node.h"

/* The window along one spatial dim. Element i of position p of the window is element
 * p * stride - pad_begin + i * dilation of the tensor. */
typedef struct window {
    int64_t kernel, stride, dilation, pad_begin, pad_end, extra;
    bool same, lower, valid, ceil; /* lower: SAME_LOWER, the odd element of padding comes first */
} window_t;

/* The window along spatial dim `at` of n. kernel: its elements. */
sinter_status_t window_read(const node_t *node, int n, int at, int64_t kernel, window_t *w);

/* The padding before the first element: pad_begin, or what auto_pad makes of dims. size: elements
 * of the dim that the window slides over; positions: of the window. */
int64_t window_begin(const window_t *w, int64_t size, int64_t positions);

#endif
