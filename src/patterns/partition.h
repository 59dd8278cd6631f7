/* The hand-over from patterns to passes and backend: a subgraph with a role for each node. */
#ifndef SINTER_SRC_PARTITION_H
#define SINTER_SRC_PARTITION_H

#include "graph/graph.h"
#include "patterns/family.h"

struct sinter_partition {
    atomic_int refs;         /* compiled partitions hold it */
    sinter_engine_t *engine; /* held */
    size_t id;
    const char *pattern; /* name of the pattern row; "single" */
    family_t family;
    graph_t sub; /* own copy, sorted, shapes inferred, node->role set */
    int n_inputs, n_outputs;
    int *inputs, *outputs; /* value indices in sub, in a stable order */
    bool supported;
    const char *reason; /* why not supported; NULL */
    const char *explain;
    /* The mode, and whether it extends to integers, in one word: one thread may set them while
     * another one compiles, which must not see one of them new and the other one old. */
    atomic_int fpmath;
};

typedef struct partition_list {
    arena_t arena;
    sinter_partition_t **items; /* in execution order */
    int n;
} partition_list_t;

/* Partitions a sorted, shape-inferred graph. Near-linear in the number of nodes. */
sinter_status_t partition_graph(const graph_t *g, sinter_partition_policy_t policy,
                                partition_list_t *out);
void partition_list_free(partition_list_t *list);

/* May be called by any thread at any time. */
void partition_set_fpmath(sinter_partition_t *p, sinter_fpmath_mode_t mode, bool apply_to_int);
void partition_get_fpmath(const sinter_partition_t *p, sinter_fpmath_mode_t *mode, bool *to_int);
/* Writes the partition as a JSON graph with the partition's fpmath mode. */
sinter_status_t partition_write_json(const sinter_partition_t *p, const char *path);

sinter_partition_t *partition_ref(sinter_partition_t *p);
void partition_unref(sinter_partition_t *p);

#endif
