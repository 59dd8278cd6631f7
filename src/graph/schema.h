/* The schema check: an op or a node against the card of its kind. */
#ifndef SINTER_SRC_SCHEMA_H
#define SINTER_SRC_SCHEMA_H

#include "graph/node.h"
#include "graph/op_schema.h"

/* The schema check behind add_op: arity, data types, attributes (known to the op, of the right
 * kind, required ones given, values allowed), constraints. The message names the op id, the
 * tensor id and the rule. quant: filled for ops that quantise or dequantise; its lists stay in the
 * op. */
sinter_status_t op_verify(const struct sinter_op *op, struct quant *quant);
/* The same for a node over given tensors, without the rules about each single tensor
 * (lt_verify). Used by finalize and by the verifier after each pass; inputs with in_dequant set
 * are not held to the op's data types. */
sinter_status_t op_check(const node_t *node, const lt_t *in, const lt_t *out);

/* Applies the shape rule of a node to copies of its tensors: fills unknown dims of the outputs, and
 * of the inputs as far as the rule tells (see shape.h); unknown dims may stay unknown. Allocates
 * nothing: it is also used at execute for dynamic dims. */
sinter_status_t op_infer_shapes(const node_t *node, lt_t *in, lt_t *out);

/* The input of a node that says which rows it takes (op_card_t); -1: none. */
int op_index_port(const node_t *node);
/* Why the library cannot execute a node although it executes its op kind; NULL: it can. A static
 * text. */
const char *op_limit(const struct graph *g, const node_t *node);

#endif
