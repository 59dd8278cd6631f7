/* Cuts of the host's graphs, counted and told where SINTER_VERBOSE lists dispatch. */
#include "cuts.h"

#include <stdio.h>

#include "engine.h"
#include "ops.h"

static void add_cause(gs_run_t *run, const char *op)
{
    int i = 0;
    while (i < run->n_causes && strcmp(run->causes[i].op, op) != 0) {
        i++;
    }
    if (i == GS_MOST_CAUSES) {
        return;
    }
    if (i == run->n_causes) {
        run->causes[run->n_causes].op = op;
        run->causes[run->n_causes++].cuts = 0;
    }
    run->causes[i].cuts++;
}

/* One more cut, with the nodes between two pieces. Each op that is refused counts once; if none is,
 * the first node tells what the host has kept. */
static void add_cut(gs_run_t *run, const tensor_t *const *begin, const tensor_t *const *end)
{
    const tensor_t *kept = NULL;
    bool refused = false;
    run->cuts++;
    for (const tensor_t *const *node = begin; node < end; node++) {
        const bool here = gs_refuses(*node) != NULL;
        bool again = false;
        for (const tensor_t *const *earlier = begin; earlier < node && here && !again; earlier++) {
            again = !strcmp(ggml_op_desc(*earlier), ggml_op_desc(*node)) && gs_refuses(*earlier);
        }
        if (here && !again) {
            add_cause(run, ggml_op_desc(*node));
        }
        refused |= here;
        kept = kept || gs_is_noop(*node) ? kept : *node;
    }
    if (!refused) {
        add_cause(run, kept ? ggml_op_desc(kept) : "views");
    }
}

void gs_cuts_note(gs_cuts_t *cuts, const struct ggml_cgraph *piece)
{
    if (!gs_is_verbose() || piece->n_nodes == 0) {
        return;
    }
    /* The pieces of a run are views of one graph: they share its table of uses, and their nodes
     * follow one another in its list. */
    const tensor_t *const *begin = (const tensor_t *const *)piece->nodes;
    if (!piece->use_counts || piece->use_counts != cuts->graph || begin < cuts->end) {
        cuts->run = (gs_run_t){0};
    } else if (begin > cuts->end) {
        add_cut(&cuts->run, cuts->end, begin);
    }
    cuts->graph = piece->use_counts;
    cuts->end = begin + piece->n_nodes;
    if (cuts->run.cuts > cuts->worst.cuts) {
        cuts->worst = cuts->run;
    }
}

void gs_cuts_say(const gs_cuts_t *cuts)
{
    const gs_run_t *worst = &cuts->worst;
    if (!gs_is_verbose() || worst->cuts == 0) {
        return;
    }
    char text[1024] = "";
    for (int i = 0; i < worst->n_causes; i++) {
        const size_t used = strlen(text);
        snprintf(text + used, sizeof(text) - used, "%s%s (%d)", i ? ", " : "", worst->causes[i].op,
                 worst->causes[i].cuts);
    }
    fprintf(stderr, "sinter: ggml: %d cuts of the graph by what is left to the host: %s\n",
            worst->cuts, text);
}
