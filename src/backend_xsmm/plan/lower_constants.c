/* Constant weights: operands of steps whose kernels want them in a layout of their own become
 * packed values, and steps that only copy them get places in the constant cache. */
#include "backend_xsmm/plan/lower.h"
#include "backend_xsmm/step.h"

bool lower_is_constant(const plan_t *plan, int value)
{
    const plan_value_t *tensor = &plan->values[plan_memory_of(plan, value)];
    return tensor->kind == PV_INPUT && tensor->lt.property == sinter_tensor_property_constant;
}

/* True if the value is known to be contiguous along dim already. */
static bool is_along(const plan_t *plan, int value, int dim)
{
    const plan_value_t *v = &plan->values[value];
    return v->kind == PV_INPUT && lt_strides_known(&v->lt) && v->lt.strides[dim] == 1;
}

static plan_value_t *add_packed(plan_t *plan, int value, int dim)
{
    plan_value_t *packed = &plan->values[plan->n_values];
    *packed = (plan_value_t){
        .kind = PV_PACKED, .lt = plan->values[value].lt, .port = -1, .base = value, .along = dim};
    packed->lt.layout_type = sinter_layout_type_any;
    plan->n_values++;
    return packed;
}

int lower_pack(plan_t *plan, int value, int dim, int line)
{
    const int ndims = value < 0 ? 0 : plan->values[value].lt.ndims;
    if (ndims < 2 || dim < ndims - 2 || !lower_is_constant(plan, value) ||
        is_along(plan, value, dim) || plan->values[value].lt.dims[dim] == 1) {
        return value;
    }
    add_packed(plan, value, dim)->line = line;
    return plan->n_values - 1;
}

int lower_pack_tiles(plan_t *plan, int value, tiled_t what, int across, int along, int set)
{
    plan_value_t *packed = add_packed(plan, value, along);
    packed->tiled = what;
    packed->across = across;
    packed->set = set;
    return plan->n_values - 1;
}

void lower_constants(plan_t *plan)
{
    const int before = plan->n_values;
    plan->n_copies = 0;
    for (int s = 0; s < plan->n_steps; s++) {
        step_t *step = &plan->steps[s];
        const lt_t *copied = step->copy >= 0 ? &plan->values[step->copied].lt : NULL;
        /* The cache makes copies by way of floats, but for tiles. */
        if (copied != NULL && lower_is_constant(plan, step->copied) &&
            (plan->values[step->copied].tiled != NOT_TILED ||
             (copied->ndims >= 2 && dtype_traits(copied->data_type)->digits <= 24))) {
            step->copy_at = plan->n_copies++;
        }
        if (step_ops(step)->layouts != NULL) {
            step_ops(step)->layouts(plan, step);
        }
    }
    plan->n_packed = plan->n_values - before;
}
