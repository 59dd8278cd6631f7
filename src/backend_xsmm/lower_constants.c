/* Constant weights: operands of steps whose kernels want them in a layout of their own become packed values. */
#include "kernel.h"
#include "lower.h"

/* The tensor that a value is a view of. */
static const plan_value_t *tensor_of(const plan_t *plan, int value)
{
    while (plan->values[value].kind == PV_VIEW) {
        value = plan->values[value].base;
    }
    return &plan->values[value];
}

static bool is_constant(const plan_t *plan, int value)
{
    const plan_value_t *tensor = tensor_of(plan, value);
    return tensor->kind == PV_INPUT && tensor->lt.property == sinter_tensor_property_constant;
}

/* Contiguous already, as far as is known. */
static bool is_along(const plan_t *plan, int value, int dim)
{
    const plan_value_t *v = &plan->values[value];
    return v->kind == PV_INPUT && lt_strides_known(&v->lt) && v->lt.strides[dim] == 1;
}

void lower_constants(plan_t *plan)
{
    for (int s = 0; s < plan->n_steps; s++) {
        step_t *step = &plan->steps[s];
        const int dim = step->kind == STEP_MATMUL ? matmul_packs_along(plan, step) : -1;
        if (dim < 0 || !is_constant(plan, step->p.matmul.b.data) || is_along(plan, step->p.matmul.b.data, dim)) {
            continue;
        }
        plan_value_t *packed = &plan->values[plan->n_values]; /* lower_memory has left room for one of each MatMul */
        *packed = (plan_value_t){
            .kind = PV_PACKED, .lt = plan->values[step->p.matmul.b.data].lt, .port = -1, .base = step->p.matmul.b.data, .along = dim};
        packed->lt.layout_type = sinter_layout_type_any;
        step->p.matmul.b.data = plan->n_values++;
    }
}
