/* DynamicQuantize that computes its scales: the tail of the step that makes its data, or a step of
 * its own. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

/* Why the kernels of a cluster cannot quantise groups of a value that it has in registers; NULL:
 * they can for all dims that execute may bring. */
static const char *refuse_tail(const lowering_t *lo, const cluster_t *cl, const lt_t *data,
                               const quant_geom_t *geom)
{
    const int last = data->ndims - 1;
    tail_groups_t t = {.g = lo->g,
                       .heavy = cl->heavy >= 0 ? &lo->g->nodes[cl->heavy] : NULL,
                       .data = data,
                       .geom = geom,
                       .rows = 1,
                       .columns = 1};
    if (last < 0) {
        return "the data is a scalar";
    }
    for (int d = 0; d <= last; d++) {
        const int64_t group = data->dims[d] == 1 ? 1 : geom->scale_group[d];
        if (data->dims[d] == 0) {
            return "groups of no elements have scales, too";
        }
        if (group == SINTER_UNKNOWN_DIM || group < 1) {
            return "the size of the groups is not known at compile";
        }
        if (d < last - 1 && group > 1) {
            return "groups lie across other dims than the last two";
        }
        t.rows = d == last - 1 ? group : t.rows;
        t.columns = d == last ? group : t.columns;
    }
    return sinter_steps[cl->kind]->refuse_tail != NULL
               ? sinter_steps[cl->kind]->refuse_tail(&t)
               : "steps of its kind have no quantising tail";
}

/* The cluster that has the data of a DynamicQuantize in registers and can quantise it there. -1:
 * none can, for the reason *why; NULL: no cluster has the data. */
static sinter_status_t tail_cluster(lowering_t *lo, const node_t *n, int *cluster, const char **why)
{
    const int p = lo->g->values[n->in[0]].producer;
    *cluster = -1;
    *why = NULL;
    /* the tensor scale, which must be in memory before the step begins */
    for (int i = 1; i < n->n_in; i++) {
        if (lo->g->values[n->in[i]].producer >= 0) {
            return sg_fail(sinter_unimplemented,
                           "%s: its tensor scale is computed in the same partition", node_label(n));
        }
        SG_TRY(lower_need_memory(lo, n->in[i]));
    }
    if (p >= 0 && lo->floating[p]) {
        SG_TRY(lower_place(lo, p, true));
    }
    const int ci = lo->home[n->in[0]];
    if (p < 0 || ci < 0) {
        *why = p >= 0 && lower_is_view(&lo->g->nodes[p]) ? "its data is a view" : NULL;
        return sinter_success;
    }
    *why = refuse_tail(lo, &lo->clusters[ci], &lo->g->values[n->in[0]].lt, &n->quant->geom);
    if (*why == NULL && lo->clusters[ci].tail >= 0) {
        *why = "its data is quantised once already";
    }
    *cluster = *why == NULL ? ci : -1;
    return sinter_success;
}

static bool takes(const lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    return n->quant != NULL && n->quant->kind != QUANT_STATIC;
}

static sinter_status_t gather(lowering_t *lo, int node)
{
    const node_t *n = &lo->g->nodes[node];
    const char *why;
    int ci;
    SG_TRY(tail_cluster(lo, n, &ci, &why));
    if (ci < 0) {
        SG_TRY(lower_heavy(lo, node, STEP_DYNQUANT));
        lo->clusters[lo->n_clusters - 1].why_separate = why;
        return sinter_success;
    }
    lo->clusters[ci].tail = node;
    for (int o = 0; o < n->n_out; o++) {
        lo->ready[n->out[o]] = ci;
        lo->stored[n->out[o]] = true;
    }
    return sinter_success;
}

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    emit_dynquant(e->lo, cl->heavy, &step->p.dynquant);
    return sinter_success;
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    see_dynquant(&step->p.dynquant, see, to);
}

static double work(estimate_t *e, const problem_t *p)
{
    const dynquant_params_t *q = &p->step->p.dynquant;
    const double n = estimate_elements(p, q->in);
    estimate_dynquant(e, p, q, n);
    estimate_bytes(e, p, q->in);
    return n;
}

const step_ops_t step_dynquant = {.takes = takes,
                                  .gather = gather,
                                  .to_memory = true,
                                  .emit = emit,
                                  .visit = visit,
                                  .work = work};
