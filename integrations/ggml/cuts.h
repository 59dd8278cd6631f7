/* What the parts of a graph that are left to the host cost: the scheduler cuts the graph there. */
#ifndef SINTER_GGML_CUTS_H
#define SINTER_GGML_CUTS_H

#include "tensors.h"

enum { GS_MOST_CAUSES = 16 };

/* One run of a graph of the host, of which the backend gets the pieces one after the other. */
typedef struct gs_run {
    int cuts, n_causes;
    struct {
        const char *op; /* a string of the host's */
        int cuts;       /* that it is a cause of */
    } causes[GS_MOST_CAUSES];
} gs_run_t;

typedef struct gs_cuts {
    const void *graph;          /* use counts of nodes, which all pieces of the present run share */
    const tensor_t *const *end; /* where the nodes of the last piece end */
    gs_run_t run, worst;        /* the present run, and the one with the most cuts */
} gs_cuts_t;

/* Takes note of the next piece that is to be computed. */
void gs_cuts_note(gs_cuts_t *cuts, const struct ggml_cgraph *piece);
/* Says what the worst run was, if it was cut. */
void gs_cuts_say(const gs_cuts_t *cuts);

#endif
