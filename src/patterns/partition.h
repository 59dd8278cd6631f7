/* The hand-over from patterns to passes and backend: a subgraph with a role for each node. */
#ifndef SINTER_SRC_PARTITION_H
#define SINTER_SRC_PARTITION_H

#include "../graph/graph.h"

/* What the backend makes of a pattern. FAMILY_GENERAL covers everything that runs as a list of steps with elementwise work attached to them. */
typedef enum family { FAMILY_SINGLE, FAMILY_GENERAL, FAMILY_ATTENTION } family_t;

struct sinter_partition {
    atomic_int refs;         /* compiled partitions hold it */
    sinter_engine_t *engine; /* held */
    size_t id;
    const char *pattern; /* name of the pattern row; "single" */
    family_t family;
    graph_t sub;         /* own copy, sorted, shapes inferred, node->role set */
    int n_inputs, n_outputs;
    int *inputs, *outputs; /* value indices in sub, in a stable order */
    bool supported;
    const char *reason; /* why not supported; NULL */
    const char *explain;
    sinter_fpmath_mode_t mode;
    bool apply_to_int;
};

typedef struct partition_list {
    arena_t arena;
    sinter_partition_t **items; /* in execution order */
    int n;
} partition_list_t;

/* Partitions a sorted, shape-inferred graph. Near-linear in the number of nodes. */
sinter_status_t partition_graph(const graph_t *g, sinter_partition_policy_t policy, partition_list_t *out);
void partition_list_free(partition_list_t *list);

sinter_partition_t *partition_ref(sinter_partition_t *p);
void partition_unref(sinter_partition_t *p);

#endif
