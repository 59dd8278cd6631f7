/* Lowering. Where the pattern is one of attention, or the MLP of experts, it first tries to make
 * one step of it; if that is refused, the report says why and the partition becomes a list of
 * steps. A chain that exceeds the limits of chain.h is tried again with shorter chains. */
#include "backend_xsmm/plan/lower.h"

#include <sinter/sinter_graph.h>

#include "base/status.h"

/* *pages: attention may read K and V in pages; becomes false where these come from none. */
static sinter_status_t attempt(plan_t *plan, family_t family, bool *pages, bool assumes,
                               int max_cost, const char **why_not)
{
    graph_t *g = &plan->sub;
    lowering_t lo = {.plan = plan,
                     .g = g,
                     .assumes = assumes,
                     .family = family,
                     .max_cost = max_cost,
                     .table = -1,
                     .rows = -1,
                     .att = {.qk = -1, .softmax = -1, .pv = -1},
                     .mlp = {.indices = -1,
                             .down = -1,
                             .sum = -1,
                             .half = {-1, -1},
                             .mid_space = -1,
                             .weigh_space = -1}};
    lo.probe = ARENA_NEW(&plan->arena, lt_t, g->n_values + 1);
    lo.alike = ARENA_NEW(&plan->arena, int, g->n_values + 1);
    lo.home = ARENA_NEW(&plan->arena, int, g->n_values + 1);
    lo.ready = ARENA_NEW(&plan->arena, int, g->n_values + 1);
    lo.stored = ARENA_NEW(&plan->arena, bool, g->n_values + 1);
    lo.spine = ARENA_NEW(&plan->arena, char, g->n_values + 1);
    lo.floating = ARENA_NEW(&plan->arena, bool, g->n_nodes + 1);
    lo.passed = ARENA_NEW(&plan->arena, bool, g->n_nodes + 1);
    lo.pages = ARENA_NEW(&plan->arena, const pages_of_t *, g->n_values + 1);
    if (!lo.probe || !lo.alike || !lo.home || !lo.ready || !lo.stored || !lo.spine ||
        !lo.floating || !lo.passed || !lo.pages) {
        return sinter_out_of_memory;
    }
    for (int v = 0; v < g->n_values; v++) {
        lo.home[v] = lo.ready[v] = -1;
    }
    plan->n_assumed = 0;
    lower_alike(&lo);
    sinter_status_t status = graph_representative_dims(g, lo.probe);
    if (status == sinter_success && *pages && family == FAMILY_ATTENTION) {
        status = lower_pages(&lo);
    }
    *pages = lo.table >= 0;
    status = status == sinter_success ? lower_cluster(&lo) : status;
    status = status == sinter_success ? lower_memory(&lo) : status;
    status = status == sinter_success && lo.table >= 0 ? lower_pages_alike(&lo) : status;
    status = status == sinter_success ? lower_emit(&lo) : status;
    *why_not = lo.why_not;
    if (status == sinter_success) {
        lower_constants(plan);
    }
    return status;
}

sinter_status_t lower_plan(plan_t *plan, family_t family, bool pages, bool assumes, textbuf_t *why)
{
    enum { MAX_COST = 120 };
    const char *why_not = NULL;
    bool none = false;
    sinter_status_t status = sinter_unimplemented;
    if (family == FAMILY_ATTENTION) {
        status = attempt(plan, family, &pages, assumes, MAX_COST, &why_not);
        if (status == sinter_unimplemented && pages) {
            text_add(why, "K and V are not read in pages, but copied: %s\n",
                     why_not ? why_not : sinter_last_error_message());
            status = attempt(plan, family, &none, assumes, MAX_COST, &why_not);
        }
    } else if (family == FAMILY_EXPERTS) {
        status = attempt(plan, family, &none, assumes, MAX_COST, &why_not);
    }
    if (status != sinter_unimplemented) {
        return status;
    }
    if (family == FAMILY_ATTENTION || family == FAMILY_EXPERTS) {
        text_add(why, "%s kernel refused: %s\n",
                 family == FAMILY_ATTENTION ? "attention" : "experts",
                 why_not ? why_not : sinter_last_error_message());
    }
    for (int max_cost = MAX_COST; max_cost > 0 && status == sinter_unimplemented; max_cost /= 2) {
        status = attempt(plan, FAMILY_GENERAL, &none, assumes, max_cost, &why_not);
    }
    return status;
}
