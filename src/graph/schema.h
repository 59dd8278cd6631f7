/* What each op kind may look like, and its shape rule: projections of ops.def. */
#ifndef SINTER_SRC_SCHEMA_H
#define SINTER_SRC_SCHEMA_H

#include "graph/graph.h"

typedef enum op_flags {
    OP_ELTWISE = 1, /* one output, each element from the same element of the (broadcast) inputs */
    OP_UNARY = 2,   /* eltwise with one input and no side tensors */
    OP_BINARY = 4,  /* two inputs broadcast against each other */
    OP_COMMUTATIVE = 8,
    OP_VIEW =
        16, /* moves elements without changing them: StaticReshape, StaticTranspose, Reorder */
    OP_QUANT = 32,  /* Quantize, DynamicQuantize */
    OP_DEQUANT = 64 /* Dequantize, DynamicDequantize */
} op_flags_t;

const char *op_name(sinter_op_kind_t kind); /* the spelling; NULL: no such kind */
bool op_runs(sinter_op_kind_t kind);
unsigned op_flags(sinter_op_kind_t kind);

/* One attribute of an op: required or with a default, and which values are allowed. */
typedef struct attr_rule {
    sinter_op_attr_t id;
    bool required, has_default;
    double number;     /* default of bool, s64 and f32 attributes */
    const char *text;  /* STR: default; NULL: none */
    const char *words; /* STR: the allowed values with '|' between them */
    bool many;         /* S64_OR_S64S: a vector is allowed, else one value */
    bool bounded;      /* S64, S64S: no value is below least */
    int64_t least;
} attr_rule_t;

/* NULL: the op does not have this attribute (Wildcard has none of its own and takes all). */
const attr_rule_t *op_attr_rule(sinter_op_kind_t kind, sinter_op_attr_t id);

/* No op has more inputs or more outputs. */
enum { OP_MAX_PORTS = 64 };

/* The schema check behind add_op: arity, data types, attributes (known to the op, of the right
 * kind, required ones given, values allowed), constraints. The message names the op id, the
 * tensor id and the rule. */
sinter_status_t op_verify(const struct sinter_op *op);
/* The same for a node over given tensors, without the rules about each single tensor
 * (lt_verify). Used by finalize and by the verifier after each pass; inputs with in_dequant set
 * are not held to the op's data types. */
sinter_status_t op_check(const node_t *node, const lt_t *in, const lt_t *out);

/* Infers the dims of a node's outputs from its inputs; pure: in/out are copies, unknown dims may
 * stay unknown. No allocation: also used at execute for dynamic dims. */
sinter_status_t op_infer_shapes(const node_t *node, const lt_t *in, lt_t *out);

/* numpy broadcast of dims; unknown dims allowed. False: they do not broadcast. */
bool broadcast_dims(const lt_t *a, const lt_t *b, lt_t *out);

/* JSON has no spelling for an unknown number of dims but one unknown dim: [INT64_MIN]. */
static inline bool lt_is_any_rank(const lt_t *lt)
{
    return lt->ndims == 1 && lt->dims[0] == SINTER_UNKNOWN_DIM;
}

#endif
