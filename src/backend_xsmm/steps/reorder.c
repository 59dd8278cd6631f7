/* Reorder between tiles and strides. Any other Reorder is elementwise. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"
#include "graph/layout.h"

static bool takes(const lowering_t *lo, int node)
{
    return graph_repacks(lo->g, &lo->g->nodes[node]);
}

/* The first op that reads a value, behind views that passes have made. */
static const node_t *reader_of(const graph_t *g, int value)
{
    const node_t *n = &g->nodes[g->uses[g->uses_begin[value]]];
    while (g->values[n->out[0]].stands_for > 0 && g->values[n->out[0]].n_uses > 0) {
        n = &g->nodes[g->uses[g->uses_begin[n->out[0]]]];
    }
    return n;
}

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    const graph_t *g = e->lo->g;
    const node_t *n = emit_heavy(e, cl);
    const int in = n->in[0], out = n->out[0];
    const plan_value_t *from = &e->lo->plan->values[in], *to = &e->lo->plan->values[out];
    step->p.reorder =
        (reorder_params_t){.in = in,
                           .out = out,
                           .reader = g->values[out].stands_for > 0 ? reader_of(g, out) : NULL,
                           .may_not_fit = to->tiled != NOT_TILED && layout_may_not_fit(&to->lt)};
    if (from->tiled != NOT_TILED && to->kind == PV_TEMP) {
        step->copied = in;
        step->copy = out;
    }
    /* Driver.check reads the codes before any step runs. */
    return step->p.reorder.may_not_fit && from->kind != PV_INPUT
               ? sg_fail(sinter_unimplemented,
                         "%s: tensor %llu, whose codes must fit fewer bits, is computed in the "
                         "same partition",
                         node_label(n), (unsigned long long)graph_message_id(g, in))
               : sinter_success;
}

static void visit(const step_t *step, step_see_t see, void *to)
{
    see(to, step->p.reorder.in, STEP_READS);
    see(to, step->p.reorder.out, STEP_WRITES);
}

/* Vectors move most elements. Those of 4 bits whose rows do not begin at a byte move one by one. */
static double work(estimate_t *e, const problem_t *p)
{
    const reorder_params_t *r = &p->step->p.reorder;
    estimate_bytes(e, p, r->in);
    estimate_bytes(e, p, r->out);
    estimate_ops(e, estimate_elements(p, r->in), 8);
    return 0;
}

static void refuse_tiles(const plan_t *plan, const step_t *step, int value, textbuf_t *why)
{
    const reorder_params_t *r = &step->p.reorder;
    (void)plan;
    if (r->in == value) {
        text_add(why, "%s does not read it in tiles",
                 r->reader != NULL ? node_label(r->reader) : "a Reorder");
    }
}

static void report(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    const reorder_params_t *r = &step->p.reorder;
    const unsigned long long id = (unsigned long long)graph_message_id(&plan->sub, r->in);
    const lt_t *lt = &plan->values[r->in].lt;
    size_t bytes = 0;
    if (plan->values[r->out].tiled != NOT_TILED) {
        text_add(text, "  packs tensor %llu into tiles\n", id);
        return;
    }
    text_add(text, "  unpacks tensor %llu from tiles", id);
    if (r->reader != NULL && lt_bytes(lt, &bytes) == sinter_success) {
        text_add(text, " of %zu bytes, which %s does not read", bytes, node_label(r->reader));
    }
    if (step->copy >= 0) {
        text_add(text, ": %s", step_when_copied(step));
    }
    text_add(text, "\n");
}

const step_ops_t step_reorder = {.takes = takes,
                                 .to_memory = true,
                                 .emit = emit,
                                 .visit = visit,
                                 .work = work,
                                 .refuse_tiles = refuse_tiles,
                                 .report = report};
