/* What a step must know of a product, for the kinds of step that are one or hold some: a product in
 * another step is a step of kind MATMUL that the plan does not list. */
#ifndef SINTER_SRC_PRODUCT_H
#define SINTER_SRC_PRODUCT_H

#include "backend_xsmm/exec/work.h"
#include "backend_xsmm/plan/lower.h"
#include "backend_xsmm/step.h"

enum { PRODUCT_PACKED_VALUES = 4 }; /* that product_layouts makes */

/* The operands of a MatMul or a convolution, and the dims of its result. */
sinter_status_t product_describe(lowering_t *lo, const node_t *n, matmul_params_t *p);
/* As step_ops_t has them. */
void product_visit(const step_t *step, step_see_t see, void *to);
double product_work(estimate_t *e, const problem_t *p);
void product_layouts(plan_t *plan, step_t *step);
void product_refuse_tiles(const plan_t *plan, const step_t *step, int value, textbuf_t *why);
void product_report(const plan_t *plan, const step_t *step, textbuf_t *text);

#endif
