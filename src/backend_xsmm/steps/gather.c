/* Gather. */
#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/steps/indexed.h"

static void visit(const step_t *step, step_see_t see, void *to)
{
    see(to, step->p.index.data, STEP_READS);
    see(to, step->p.index.indices, STEP_READS);
    see(to, step->p.index.out, STEP_WRITES);
}

/* Each row is read and written. */
static double work(estimate_t *e, const problem_t *p)
{
    estimate_bytes(e, p, p->step->p.index.out);
    estimate_bytes(e, p, p->step->p.index.out);
    return 0;
}

static void report(const plan_t *plan, const step_t *step, textbuf_t *text)
{
    const plan_value_t *data = &plan->values[step->p.index.data];
    if (data->tiled != NOT_TILED) {
        text_add(text, "  takes rows of tensor %llu from its tiles\n",
                 (unsigned long long)data->lt.id);
    }
}

const step_ops_t step_gather = {.classes = OP_GATHER,
                                .to_memory = true,
                                .emit = indexed_emit,
                                .visit = visit,
                                .work = work,
                                .report = report};
