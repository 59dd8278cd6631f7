/* The pass pipeline: rewrites of a partition's subgraph between compile and lowering. One const
 * list; a pass that finds no work returns. */
#ifndef SINTER_SRC_PASS_H
#define SINTER_SRC_PASS_H

#include "patterns/partition.h"

typedef struct pass {
    const char *name;
    sinter_status_t (*run)(
        graph_t *sub);   /* sub comes sorted; the pipeline sorts and verifies it again afterwards */
    const char *algebra; /* the one line of algebra that also heads the function and its test */
} pass_t;

extern const pass_t sinter_passes[];
extern const int sinter_n_passes;

/* Runs all passes over a private copy of a partition's subgraph whose ports carry the dims given
 * to compile. Verifies after each pass (always), prints the graph after the pass named by
 * SINTER_DUMP_AFTER ("all" for each). */
sinter_status_t passes_run(graph_t *sub);

#endif
