/* What is behind a sinter_graph_t. */
#ifndef SINTER_SRC_GRAPH_OBJECT_H
#define SINTER_SRC_GRAPH_OBJECT_H

#include "patterns/partition.h"

struct sinter_graph {
    sinter_engine_t *engine; /* held */
    graph_t g;
    bool finalized, filtered;
    size_t n_inputs, n_outputs;
    uint64_t *inputs, *outputs; /* in g's arena, as given */
    partition_list_t partitions;
    int serial; /* counts dumped graphs */
};

#endif
