/* Elementwise ops by themselves, and copies. */
#include "backend_xsmm/drivers/common/quant_tail.h"
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

int lower_new_chain(lowering_t *lo, int dims_value, int pos)
{
    return lower_new_cluster(lo, STEP_CHAIN, -1, dims_value, pos);
}

static bool takes(const lowering_t *lo, int node)
{
    return lower_is_eltwise(lo->g->nodes[node].kind);
}

static sinter_status_t gather(lowering_t *lo, int node)
{
    return lower_place(lo, node, false);
}

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    (void)step;
    e->b.values = e->lo->plan->values;
    if (!cl->copy) {
        return sinter_success;
    }
    emit_note_type(e, cl->copy_from);
    const int r = chain_load(&e->b, cl->copy_from, e->lo->probe[cl->dims_value].ndims);
    return r < 0 ? sinter_out_of_memory : chain_store(&e->b, r, cl->copy_to, NULL);
}

/* Copies because strides do not show a tensor in other dims. */
static void report(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    if (step->copy >= 0) {
        text_add(text,
                 "  copies tensor %llu, because its strides cannot be seen in the dims that the "
                 "next step wants: %s\n",
                 (unsigned long long)plan->values[step->copied].lt.id, step_when_copied(step));
    }
}

static double work(estimate_t *e, const problem_t *p)
{
    (void)e;
    return estimate_elements(p, p->step->post->dims_value);
}

static const char *refuse_tail(const tail_groups_t *t)
{
    return t->rows > TAIL_CHAIN_ROWS         ? "groups of more than 64 rows"
           : t->columns > TAIL_CHAIN_COLUMNS ? "groups longer than a run of 256 elements"
                                             : NULL;
}

const step_ops_t step_chain = {.takes = takes,
                               .gather = gather,
                               .chains_once = true,
                               .emit = emit,
                               .work = work,
                               .refuse_tail = refuse_tail,
                               .report = report};
