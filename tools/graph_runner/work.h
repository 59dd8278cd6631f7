/* What a partition has to do, for fractions of a machine's limits: products and bytes that no
 * implementation can leave out. */
#ifndef GR_WORK_H
#define GR_WORK_H

#include "exec.h"

typedef struct gr_work {
    double
        /* two for each product of a MatMul; in attention of scores that are not masked by
         * indices and -inf */
        flops;
    double
        /* of all ports; in attention of K and V only (codes, scales, zero points), and of tokens
         * that some query sees */
        bytes;
    int attention;
} gr_work_t;

/* All products of a MatMul; 0 for other ops and unknown shapes. */
double gr_matmul_flops(const gr_exec_t *x, const model_op_t *op);
/* Needs the graph's inputs, which hold lengths and windows. 0, or -1 without memory. */
int gr_part_work(const gr_exec_t *x, const gr_part_t *part, gr_work_t *work, gr_error_t *err);

#endif
