/* Elementwise ops by themselves, and copies. */
#include "backend_xsmm/drivers/common/quant_tail.h"
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/emit.h"

static sinter_status_t emit(emitter_t *e, const cluster_t *cl, step_t *step)
{
    (void)step;
    if (!cl->copy) {
        return sinter_success;
    }
    emit_note_type(e, cl->copy_from);
    const int r = chain_load(&e->b, cl->copy_from, e->lo->probe[cl->dims_value].ndims);
    return r < 0 ? sinter_out_of_memory : chain_store(&e->b, r, cl->copy_to, NULL);
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

const step_ops_t step_chain = {
    .chains_once = true, .emit = emit, .work = work, .refuse_tail = refuse_tail};
