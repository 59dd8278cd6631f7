/* Fusion patterns as data. A pattern is a spine of nodes around an anchor; each further node hangs on one before it, either above (it produces an input) or
 * below (it consumes the output). Table order is priority: the first row that matches an anchor wins. Only the matcher walks graphs. */
#ifndef SINTER_SRC_PATTERN_H
#define SINTER_SRC_PATTERN_H

#include "partition.h"

typedef enum pat_edge {
    PAT_ANCHOR, /* the first node */
    PAT_ABOVE,  /* produces input `port` of node `of`, and nothing else uses that value */
    PAT_BELOW   /* consumes the only output of node `of` at input `port` (-1: any), or of `of`'s own source if `of` is absent */
} pat_edge_t;

/* Op sets: bit sets over op kinds, written as small const arrays ended by PAT_END, or classes. */
#define PAT_END (-1)

typedef struct match match_t;
/* NULL if it holds, else the reason why not. */
typedef const char *(*pat_check_t)(const match_t *m);

typedef struct pat_node {
    const char *role;
    const int *ops;        /* op kinds, PAT_END-terminated */
    pat_edge_t edge;
    int of;                /* index of the node it hangs on */
    int port;
    int min, max;          /* repetitions in a row: min 0 is optional. max > 1: a chain (ABOVE) or a region (BELOW: see side) */
    /* For BELOW: further producers that the region may pull in above its other inputs, used by nothing outside the region (Dequantize of a residual,
     * GenIndex and GreaterEqual of an implicit mask). NULL: none. */
    const int *side;
} pat_node_t;

typedef struct pattern {
    const char *name;
    family_t family;
    const pat_node_t *nodes;
    int n_nodes;
    const pat_check_t *checks; /* NULL-terminated; run on the finished match, first reason wins */
} pattern_t;

/* A finished match: node indices of the graph by pattern node. */
struct match {
    const graph_t *g;
    const pattern_t *pattern;
    int n;              /* matched graph nodes, in no order */
    const int *node;    /* graph node index */
    const int *of;      /* its pattern node's index */
};

/* The graph node matched by the i-th repetition of a role, NULL if absent. */
const node_t *match_role(const match_t *m, const char *role, int i);

/* All patterns in order of priority. */
extern const pattern_t *const sinter_patterns[];
extern const int sinter_n_patterns;

#endif
