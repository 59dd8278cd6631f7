/* What a partition has to do, for fractions of a machine's limits: products and bytes that no
 * implementation can leave out. */
#ifndef GR_WORK_H
#define GR_WORK_H

#include "exec.h"

typedef struct gr_work {
    /* Two for each product of a MatMul. Attention counts only scores that no mask by index sets to
     * -inf. */
    double flops;
    /* Of all ports. Attention counts K and V alone (codes, scales, zero points), and only tokens
     * that some query sees. */
    double bytes;
    int attention;
} gr_work_t;

/* All products of a MatMul; 0 for other ops and unknown shapes. */
double gr_matmul_flops(const gr_exec_t *x, const model_op_t *op);
/* Needs the graph's inputs, which hold lengths and windows. 0, or -1 without memory. */
int gr_part_work(const gr_exec_t *x, const gr_part_t *part, gr_work_t *work, gr_error_t *err);

#endif
