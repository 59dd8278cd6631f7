/* The graph IR: nodes over values. The user's graph, a partition's subgraph and what the passes
 * rewrite are all this one struct. */
#ifndef SINTER_SRC_GRAPH_H
#define SINTER_SRC_GRAPH_H

#include "base/alloc.h"
#include "graph/node.h"

typedef struct value {
    lt_t lt;
    int producer, producer_port; /* node index or -1 */
    int n_uses;                  /* uses by live nodes, one for each read (node_read) */
    bool is_output;              /* must be written for the outside */
    bool made_before;            /* in a partition: an input that an op of the graph makes */
    bool chosen;           /* an input of layout any, whose opaque layout compile has chosen */
    const char *why_dense; /* why such an input stays strided; NULL: nobody has asked */
    /* Made by a pass: the value whose tensor id messages name instead, plus one; 0: its own. */
    int stands_for;
} value_t;

typedef struct graph {
    arena_t arena;
    sinter_engine_t *engine; /* borrowed from the owner */
    node_t *nodes;
    value_t *values;
    int n_nodes, n_values, cap_nodes, cap_values;
    int *topo; /* n_topo indices of live nodes in execution order, by graph_sort */
    int n_topo, cap_topo, cap_uses, cap_begin; /* cap_*: room in the arrays of graph_sort */
    int *uses,
        /* by graph_sort: uses of value v are nodes uses[uses_begin[v]..uses_begin[v+1]) */
        *uses_begin;
    struct idmap *ids;    /* tensor id -> value index */
    struct idmap *op_ids; /* op id -> node index */
    int *dropouts; /* dead ops that a pass has left out: execute checks their probabilities */
    int n_dropouts, cap_dropouts;
    sinter_fpmath_mode_t mode;
    bool apply_to_int;
} graph_t;

void graph_init(graph_t *g, sinter_engine_t *engine);
void graph_free(graph_t *g);

/* Appends; ids of tensors are resolved to values, which are merged. On failure the graph is as
 * before. */
sinter_status_t graph_add_node(graph_t *g, const struct sinter_op *op);
/* For passes: a new value with an internal id, from 2^63 up; messages name the tensor lt->id in its
 * place. -1: out of memory. */
int graph_add_value(graph_t *g, const lt_t *lt);
uint64_t graph_message_id(const graph_t *g, int value); /* the public id to name in messages */
int graph_find_value(const graph_t *g, uint64_t id);    /* -1: none */
/* A Reorder that packs or unpacks: one of its tensors has an opaque layout. */
bool graph_repacks(const graph_t *g, const node_t *node);

/* Topological order (stable: keeps insertion order where it can), uses and use counts.
 * invalid_graph on a cycle. Dead nodes are left out of topo (n_topo live ones). */
sinter_status_t graph_sort(graph_t *g);
/* Makes the ops on which no output of the sorted graph depends dead. The caller sorts the graph
 * again. */
sinter_status_t graph_prune(graph_t *g);
static inline int graph_n_live(const graph_t *g) /* length of topo */
{
    return g->n_topo;
}
/* Everything finalize promises and every pass must keep: indices in range, one producer each, no
 * cycle, arity and types by schema, known op kinds. */
sinter_status_t graph_verify(const graph_t *g, const char *where);
/* Runs the shape rules in topological order, fills unknown dims of outputs, reports
 * contradictions with op id and tensor id. */
sinter_status_t graph_infer_shapes(graph_t *g);
/* The same over lts (by value), in which the dims of the graph's inputs are known; fails if some
 * dim does not follow from them. */
sinter_status_t graph_infer_dims(const graph_t *g, lt_t *lts);
/* lts (by value) become the graph's tensors without unknown dims, for decisions that need numbers.
 * An unknown dim becomes what the shape rules say it must be, or most likely is, else a number that
 * stands for any. */
sinter_status_t graph_representative_dims(const graph_t *g, lt_t *lts);
/* Finds the groups of a quantising node over the graph's tensors anew, where a pass or finalize has
 * changed what they follow from; else graph_infer_shapes and graph_verify have left them there. */
sinter_status_t graph_find_groups(const graph_t *g, const node_t *node);
/* Checks the groups of quantising ops for the dims in lts (by value). dead: those of
 * dequantisations that a pass has moved onto matmul operands, over the tensors of the caller,
 * because views of their scales would name others. */
sinter_status_t graph_check_groups(const graph_t *g, const lt_t *lts, bool dead);
/* Tells Quantize and Dequantize which ConvTransposes read their numbers as weights, directly or
 * behind casts, reorders and other such ops, and checks scales that are as many as those need. */
sinter_status_t graph_find_weights_readers(graph_t *g);
/* Copies the nodes (indices, in this order) and their values into an initialised, empty graph;
 * ports keep their ids, values used outside the set become is_output. Roles are copied. Ends
 * sorted. */
sinter_status_t graph_extract(const graph_t *g, const int *nodes, int n_nodes, graph_t *out);
/* Writes this mode and apply_to_int: those of a partition may differ from those of its graph. */
sinter_status_t graph_write_json(const graph_t *g, sinter_fpmath_mode_t mode, bool apply_to_int,
                                 const char *path);
void graph_print(const graph_t *g, const char *title); /* text on stderr, for SINTER_DUMP_AFTER */

#endif
