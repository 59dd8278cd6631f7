/* The passes, and what they share for rewriting. Indices stay valid over every call here;
 * pointers into nodes[] and values[] do not. */
#ifndef SINTER_SRC_PASSES_H
#define SINTER_SRC_PASSES_H

#include "passes/pass.h"

sinter_status_t pass_infer_shapes(graph_t *sub);
sinter_status_t pass_matmul_2d(graph_t *sub);
sinter_status_t pass_drop_dropout(graph_t *sub);
sinter_status_t pass_plain_attention(graph_t *sub);
sinter_status_t pass_raise_slices(graph_t *sub);
sinter_status_t pass_drop_casts(graph_t *sub);
sinter_status_t pass_widen(graph_t *sub);
sinter_status_t pass_conv_weights(graph_t *sub);
sinter_status_t pass_choose_layouts(graph_t *sub);
sinter_status_t pass_sink_dequant(graph_t *sub);
sinter_status_t pass_sink_views(graph_t *sub);
sinter_status_t pass_sink_quantise(graph_t *sub);
sinter_status_t pass_unpack(graph_t *sub);

/* The input that a node reads in tiles, with all that dequantises it; -1: none. */
int pass_tiled_port(const graph_t *g, const node_t *n);

/* Appends a node of one input and one output over existing values; attrs stays where it is (the
 * graph's arena). It is the last node of the graph. */
sinter_status_t pass_add_unary(graph_t *g, sinter_op_kind_t kind, int in, int out, attr_t *attrs,
                               int n_attrs);
/* A StaticReshape to the dims of out, of which one may be unknown. */
sinter_status_t pass_add_reshape(graph_t *g, int in, int out);
/* The same with this shape attribute, which stays where it is. special_zero: its zeros stand for
 * dims of `in`. */
sinter_status_t pass_add_reshape_by(graph_t *g, int in, int out, const int64_t *shape,
                                    bool special_zero);
/* Set an attribute, in a new copy of the node's attributes. */
sinter_status_t pass_set_bool(graph_t *g, int node, sinter_op_attr_t id, bool value);
sinter_status_t pass_set_s64(graph_t *g, int node, sinter_op_attr_t id, int64_t value);
/* A new value `like` another, with other dims and no layout of its own. -1: out of memory. */
int pass_value_like(graph_t *g, int like, int ndims, const int64_t *dims);

/* By value: its type may change, because the views over it may change theirs with it and none of
 * them is an output. In the graph's arena; NULL: out of memory. */
bool *pass_find_loose(graph_t *sub);
/* Types whose roundings a fused partition leaves out, computed in f32. */
bool pass_is_f32_like(sinter_data_type_t type);

#endif
