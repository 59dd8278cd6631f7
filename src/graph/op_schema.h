/* The table of op kinds: names, flags, attributes and cards. A card says what an op kind may look
 * like; one card serves every kind whose row in ops.def names it. */
#ifndef SINTER_SRC_OP_SCHEMA_H
#define SINTER_SRC_OP_SCHEMA_H

#include "graph/attr.h"
#include "graph/tensor.h"

struct graph;
struct node;

typedef enum op_flags {
    OP_ELTWISE = 1, /* one output, each element from the same element of the (broadcast) inputs */
    OP_UNARY = 2,   /* eltwise with one input and no side tensors */
    OP_BINARY = 4,  /* two inputs broadcast against each other */
    OP_VIEW = 8, /* moves elements without changing them: StaticReshape, StaticTranspose, Reorder */
    OP_QUANT = 16,   /* Quantize, DynamicQuantize */
    OP_DEQUANT = 32, /* Dequantize, DynamicDequantize */
    OP_MOVE =
        64, /* elements of the inputs become those of the outputs as they are: Concat, Gather */
    /* What runs as a step of its own kind. Patterns and steps know these ops by class alone. */
    OP_MATMUL = 1 << 8,
    OP_CONVOLUTION = 1 << 9, /* Convolution, ConvTranspose */
    OP_SOFTMAX = 1 << 10,
    OP_LOG_SOFTMAX = 1 << 11,
    OP_NORM = 1 << 12,   /* LayerNorm, RMSNorm, GroupNorm */
    OP_ROTARY = 1 << 13, /* RotaryEmbedding, HadamardTransform */
    OP_REDUCE = 1 << 14, /* ReduceSum and the like */
    OP_WINDOW = 1 << 15, /* MaxPool, AvgPool, Interpolate */
    OP_GATHER = 1 << 16,
    OP_SCATTER = 1 << 17,
    OP_TOP_K = 1 << 18,
    OP_LINEAR_ATTENTION = 1 << 19,
    OP_CUMSUM = 1 << 20,
    OP_CLASSES = (1 << 21) - (1 << 8) /* all of them */
} op_flags_t;

const char *op_name(sinter_op_kind_t kind); /* the spelling; NULL: no such kind */
bool op_runs(sinter_op_kind_t kind);
unsigned op_flags(sinter_op_kind_t kind);
/* The class of an op that runs as a step of its own kind; 0: another op. */
unsigned op_class(sinter_op_kind_t kind);
/* An elementwise op with side inputs that have one value for each channel. */
bool op_by_channels(sinter_op_kind_t kind);

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

/* A set of data types, one bit each. */
typedef uint32_t dtype_set_t;
bool dtype_in_set(sinter_data_type_t type, dtype_set_t set);

enum { CARD_PORTS = 8, CARD_PARAMS = 2 };

typedef sinter_status_t (*check_rule_t)(const struct node *node, const lt_t *in, const lt_t *out);
typedef sinter_status_t (*shape_rule_t)(const struct node *node, lt_t *in, lt_t *out);
/* Why a node whose op kind is executed cannot be executed; NULL: it can. */
typedef const char *(*limit_rule_t)(const struct graph *g, const struct node *node);

typedef struct op_card {
    int min_in, max_in, min_out, max_out;
    dtype_set_t in[CARD_PORTS], out[CARD_PORTS]; /* 0: like the port before */
    const attr_rule_t *attrs;                    /* ended by id 0 */
    check_rule_t check; /* NULL, or what arity, types and attributes must fulfil together */
    shape_rule_t dims;  /* NULL, or relations between dims beside the shape rule */
    limit_rule_t limit; /* NULL: every node that the other rules allow can be executed */
    /* The input whose elements say which rows the op takes: it is checked before a partition
     * begins, so it must be there then. 0: none. */
    int index_port;
    unsigned flags; /* op_flags_t */
    /* Elementwise ops: the attributes that their functions take as parameters (node_param). */
    sinter_op_attr_t params[CARD_PARAMS];
    bool any_attr; /* Wildcard: attributes are not looked at */
} op_card_t;

const op_card_t *op_card(sinter_op_kind_t kind); /* NULL: no such kind */
shape_rule_t op_shape_rule(sinter_op_kind_t kind);

#endif
