/* The cards of the op schema: what an op kind may look like. One card serves every kind whose
 * row in ops.def names it. */
#ifndef SINTER_SRC_OP_SCHEMA_H
#define SINTER_SRC_OP_SCHEMA_H

#include "graph/schema.h"

/* A set of data types, one bit each. */
typedef uint32_t dtype_set_t;
bool dtype_in_set(sinter_data_type_t type, dtype_set_t set);

enum { CARD_PORTS = 6 };

typedef sinter_status_t (*node_rule_t)(const node_t *node, const lt_t *in, const lt_t *out);
typedef sinter_status_t (*shape_rule_t)(const node_t *node, const lt_t *in, lt_t *out);

typedef struct op_card {
    int min_in, max_in, min_out, max_out;
    dtype_set_t in[CARD_PORTS], out[CARD_PORTS]; /* 0: like the port before */
    const attr_rule_t *attrs;                    /* ended by id 0 */
    node_rule_t check; /* NULL, or what arity, types and attributes must fulfil together */
    node_rule_t dims;  /* NULL, or what the shape rule does not say about dims, known ones only */
    unsigned flags;    /* op_flags_t */
    bool any_attr;     /* Wildcard: attributes are not looked at */
} op_card_t;

const op_card_t *op_card(sinter_op_kind_t kind); /* NULL: no such kind */
shape_rule_t op_shape_rule(sinter_op_kind_t kind);

/* The rules that cards name (schema.c, shape_eltwise.c). */
sinter_status_t check_same_type(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_binary_types(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_select_types(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_clamp(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_order(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_reshape(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_quant(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_reduce(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_interpolate(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_norm(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_norm_bwd(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_rms_norm(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t check_weights_format(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t dims_axis(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t dims_bias_add(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t dims_prelu(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t dims_channel_params(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t dims_planes(const node_t *node, const lt_t *in, const lt_t *out);
sinter_status_t dims_grad(const node_t *node, const lt_t *in, const lt_t *out);

#endif
