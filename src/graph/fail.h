/* A broken rule of a node, by what it is about. */
#ifndef SINTER_SRC_FAIL_H
#define SINTER_SRC_FAIL_H

#include <inttypes.h>

#include "base/status.h"
#include "graph/node.h"

#define FAIL_NODE(node, status, format, ...) \
    sg_fail(status, "%s: " format, node_label(node), __VA_ARGS__)
#define FAIL_OP(node, ...) FAIL_NODE(node, sinter_invalid_graph_op, __VA_ARGS__)
#define FAIL_SHAPE(node, ...) FAIL_NODE(node, sinter_invalid_shape, __VA_ARGS__)
#define FAIL_TYPE(node, ...) FAIL_NODE(node, sinter_invalid_data_type, __VA_ARGS__)

#endif
