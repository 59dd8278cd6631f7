/* A node of the graph IR: an op of one kind with its attributes and its ports. */
#ifndef SINTER_SRC_NODE_H
#define SINTER_SRC_NODE_H

#include "base/alloc.h"
#include "graph/attr.h"
#include "graph/tensor.h"

typedef struct node {
    uint64_t id;
    const char *name; /* "" if none */
    sinter_op_kind_t kind;
    int n_in, n_out, n_attrs;
    int *in, *out; /* value indices */
    attr_t *attrs;
    const char *role; /* in a partition: the pattern node it matched */
    /* Set by the pass sink_dequant on MatMul nodes, else NULL: in_dequant[port] is the (removed)
     * [Dynamic]Dequantize node that the operand's codes go through; its in[] still name the
     * values of data, scales and zero points. Where these are dequantised themselves and lie in
     * tiles, its own in_dequant[port] is that node, which is read in place of in[port]. */
    struct node **in_dequant;
    struct quant *quant; /* of a quantising or dequantising op: how its codes map to numbers */
    /* Set by the pass conv_weights: the weights of a convolution are [groups, window, I, O]. */
    bool grouped_weights;
    bool dead; /* left out: by a pass, or because no listed output depends on it */
} node_t;

/* Reads of one attribute with the schema's default applied. */
const attr_t *node_attr(const node_t *node, sinter_op_attr_t id); /* NULL: not given */
int64_t node_s64(const node_t *node, sinter_op_attr_t id, int64_t otherwise);
float node_f32(const node_t *node, sinter_op_attr_t id, float otherwise);
bool node_bool(const node_t *node, sinter_op_attr_t id, bool otherwise);
const char *node_str(const node_t *node, sinter_op_attr_t id, const char *otherwise);

bool node_has_role(const node_t *node, const char *role);

/* Parameter `slot` of an elementwise op: the attribute that its card lists there, as a number. If
 * that attribute is a word, its place among the allowed words; 0 if the card lists none. */
float node_param(const node_t *node, int slot);

/* What a StaticTranspose over a tensor of ndims dims does to the last two of them, if it moves no
 * other: 0 nothing, 1 it swaps them; -1: it moves others too. */
int node_swaps_matrix(const node_t *node, int ndims);

/* The k-th value that a node reads: its inputs, then what stands behind in_dequant; -1 behind the
 * last. */
int node_read(const node_t *node, int k);

/* For messages: "op 12 (MatMul)". Thread-local ring of buffers, good for four uses in one call. */
const char *node_label(const node_t *node);

/* The public op object: a node in the making. */
struct sinter_op {
    sinter_engine_t *engine;
    arena_t arena;
    uint64_t id;
    sinter_op_kind_t kind;
    const char *name;
    int n_in, n_out, n_attrs, cap_in, cap_out, cap_attrs;
    lt_t *in, *out;
    attr_t *attrs;
};

#endif
