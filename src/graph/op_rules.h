/* The rules that the table of op kinds names. Each is a function of one node and of copies of the
 * tensors at its ports; none allocates memory. */
#ifndef SINTER_SRC_OP_RULES_H
#define SINTER_SRC_OP_RULES_H

#include "graph/tensor.h"

struct graph;
struct node;

/* What arity, types and attributes must fulfil together. */
sinter_status_t check_same_type(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_binary_types(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_select_types(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_clamp(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_order(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_reshape(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_quant(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_reduce(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_interpolate(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_norm(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_norm_bwd(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_rms_norm(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_rotary_embedding(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_hadamard_transform(const struct node *node, const lt_t *in, const lt_t *out);
/* Input 0 and output 0 have one data type. */
sinter_status_t check_same_first(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_scatter_rows(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_linear_attention(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_slice(const struct node *node, const lt_t *in, const lt_t *out);
sinter_status_t check_weights_format(const struct node *node, const lt_t *in, const lt_t *out);

/* What is known of the dims of a node's ports. Unknown dims and unknown numbers of dims are allowed
 * everywhere. */
sinter_status_t dims_axis(const struct node *node, lt_t *in, lt_t *out);
sinter_status_t dims_bias_add(const struct node *node, lt_t *in, lt_t *out);
sinter_status_t dims_prelu(const struct node *node, lt_t *in, lt_t *out);
sinter_status_t dims_row_params(const struct node *node, lt_t *in, lt_t *out);
sinter_status_t dims_channel_params(const struct node *node, lt_t *in, lt_t *out);
sinter_status_t dims_planes(const struct node *node, lt_t *in, lt_t *out);
sinter_status_t dims_grad(const struct node *node, lt_t *in, lt_t *out);
/* Why a node cannot be executed though its op kind is. */
const char *limit_tensor_attrs(const struct graph *g, const struct node *node);
const char *limit_products(const struct graph *g, const struct node *node);
const char *limit_convolution(const struct graph *g, const struct node *node);
const char *limit_slice(const struct graph *g, const struct node *node);
const char *limit_dropout(const struct graph *g, const struct node *node);

/* Every rule of the shape column of ops.def: shape_<rule>. */
#define SINTER_OP(value, name, spelling, schema, shape, run) \
    sinter_status_t shape_##shape(const struct node *node, lt_t *in, lt_t *out);
#include <sinter/ops.def>
#undef SINTER_OP

#endif
