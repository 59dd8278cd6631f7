/* The table of the kinds of step. */
#include "backend_xsmm/step.h"

#include "backend_xsmm/drivers/common/quant_tail.h"

#define SINTER_STEP(kind, name, driver) extern const step_ops_t step_##name;
#include "backend_xsmm/steps.def"

const step_ops_t *const sinter_steps[STEP_KINDS] = {
#define SINTER_STEP(kind, name, driver) [STEP_##kind] = &step_##name,
#include "backend_xsmm/steps.def"
};

void step_visit(const step_t *step, step_see_t see, void *to)
{
    if (step_ops(step)->visit != NULL) {
        step_ops(step)->visit(step, see, to);
    }
    if (step->tail != NULL) {
        see_dynquant(step->tail, see, to);
    }
}

const char *refuse_tail_of_rows(const tail_groups_t *t)
{
    return t->rows > 1                     ? "steps of its kind take rows one by one"
           : t->columns > TAIL_ROW_COLUMNS ? "groups longer than a million elements"
                                           : NULL;
}
