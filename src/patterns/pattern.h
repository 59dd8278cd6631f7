/* Fusion patterns as data. A pattern is a spine of nodes around an anchor. Each further node hangs
 * on one before it: above it if it produces an input, below it if it consumes the output. The order
 * of patterns.def is the priority: the first row that matches an anchor wins. Only the matcher
 * walks graphs.
 *
 *      K codes -> Dequantize       k_pre   PAT_ABOVE of qk, port 1
 *                     |
 *      Q ---------> MatMul         qk      PAT_ANCHOR
 *                     |
 *               Divide, Add ...    score   PAT_REGION of qk, with side producers (a mask's
 *               TypeCast)
 *                     |
 *                  SoftMax         softmax PAT_BELOW of score
 *                     | */
#ifndef SINTER_SRC_PATTERN_H
#define SINTER_SRC_PATTERN_H

#include "graph/graph.h"
#include "graph/op_schema.h"
#include "patterns/family.h"

/* Classes of nodes. Op sets are sets of classes, so a new elementwise op extends every pattern at
 * once. The classes of ops that run as steps of their own kind (OP_MATMUL and so on) are those of
 * graph/op_schema.h; the other ones are these. */
enum {
    PAT_ELTWISE = 1,     /* elementwise ops that are in no class below PAT_SCALE */
    PAT_SCALE = 2,       /* Multiply and Divide, which are in PAT_ELTWISE too */
    PAT_CAST = 4,        /* TypeCast */
    PAT_VIEW = 8,        /* StaticReshape, StaticTranspose, Reorder */
    PAT_QUANT = 16,      /* Quantize, and DynamicQuantize with given scales */
    PAT_DEQUANT = 32,    /* Dequantize, DynamicDequantize */
    PAT_DYNQUANT = 64,   /* DynamicQuantize that computes its scales, which are further outputs */
    PAT_ATTENTION = 128, /* of a partition: it runs as attention */
    PAT_SLICE = OP_CLASSES + (1 << 8) /* Slice: the first bit behind the classes of ops */
};
unsigned pat_classes(const node_t *node);

typedef enum pat_edge {
    PAT_ANCHOR, /* the first node */
    /* A chain of min to max ops from the end value of node `of` down. Each is the only consumer of
     * the one before, at input `port` (-1: any). */
    PAT_BELOW,
    /* The elementwise ops over the end value of node `of`, a DAG. Dims stay the same, and all
     * consumers of a value are inside or all are outside. */
    PAT_REGION,
    /* The tree of producers over input `port` (-1: every input) of the ops of node `of`. Only the
     * match uses them. Above a Gather, only views and Slices are taken. Where OP_GATHER is one of
     * the classes, Gathers of scales and zero points are taken, too. */
    PAT_ABOVE
} pat_edge_t;

enum { PAT_MANY = 1 << 30, PAT_MAX_NODES = 16 };

typedef struct pat_node {
    const char *role;
    unsigned ops; /* classes */
    pat_edge_t edge;
    int of; /* the node it hangs on; where that one is absent, the node that one hangs on */
    int port;
    int min, max; /* number of ops; min 0: optional */
    /* BELOW, REGION, ANCHOR: the classes of producers that are pulled in above the other inputs.
     * Only the match may use them, and they must broadcast to its dims. */
    unsigned side;
    bool keep; /* REGION, BELOW: values that are graph outputs may be consumed inside too */
    /* ABOVE: a quantisation of the result of a product or a softmax is left to the step that
     * makes that result. */
    bool leave;
} pat_node_t;

typedef struct match match_t;
/* NULL if it holds, else the reason why not: static text, or match_reason(). A reason without words
 * is none to tell: the graph is not of this kind. */
typedef const char *(*pat_check_t)(const match_t *m);

typedef struct pattern {
    const char *name;
    family_t family;
    const pat_node_t *nodes;
    int n_nodes;
    /* Run on the finished match, the first reason wins. Ended by NULL; NULL: no checks. */
    const pat_check_t *checks;
} pattern_t;

enum { MATCH_TEXT = 240 };

/* A finished match. */
struct match {
    const graph_t *g;
    const pattern_t *pattern;
    int n;           /* matched graph nodes, in no order */
    const int *node; /* graph node index */
    const int *of;   /* its pattern node's index */
    const int *at;   /* by graph node: its place in node[], -1 if it is not matched */
    char *text;      /* MATCH_TEXT bytes for match_reason */
};

/* The graph node matched by the i-th op of a role, NULL if absent. */
const node_t *match_role(const match_t *m, const char *role, int i);
/* Formats a reason into the match. */
const char *match_reason(const match_t *m, const char *format, ...)
    __attribute__((format(printf, 2, 3)));

#endif
