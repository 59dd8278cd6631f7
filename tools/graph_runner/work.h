/* What a partition has to do, for fractions of a machine's limits: products and bytes that no
 * implementation can leave out. */
#ifndef GR_WORK_H
#define GR_WORK_H

#include "exec.h"
#include "limits.h"

/* What a product of codes and floats may be computed as: in floats only, or with so many bytes of
 * integers for each float. */
enum { GR_IN_FLOATS, GR_ONE_LIMB, GR_TWO_LIMBS, GR_LIMBS };

typedef struct gr_work {
    /* Two for each product of a MatMul. Attention counts only scores that no mask by index sets to
     * -inf. */
    double flops;
    /* Of all ports. Attention counts K and V alone (codes, scales, zero points), and only tokens
     * that some query sees. */
    double bytes;
    double read, written; /* of all ports, without tokens that no query sees, of caches new rows */
    /* The flops by the best arithmetic that the partition's fpmath mode allows for their operands
     * (docs/numerics.md). */
    double by_limbs[GR_LIMBS];
    bool bf16; /* the mode allows products of bf16 */
    bool attention;
} gr_work_t;

/* The least time that a machine could need: bytes that are read and written once, and products by
 * nothing but the fastest instructions. */
typedef struct gr_roofline {
    double memory, products; /* seconds */
} gr_roofline_t;

/* The input port of a partition that holds the cache which output port `out` (counted from 0) is
 * after ScatterRows, where both may be one buffer; n_in: none. */
size_t gr_cache_port(const gr_exec_t *x, const gr_part_t *part, size_t out);
/* Bytes of port i, inputs before outputs, that an execute reads or writes. Of a cache that rows go
 * into in place, these rows; of a table, as many rows as there are indices. */
double gr_port_bytes(const gr_exec_t *x, const gr_part_t *part, size_t i);
/* All products of a MatMul or a convolution, two for each; 0 for other ops and unknown shapes. */
double gr_product_flops(const gr_exec_t *x, const model_op_t *op);
/* Needs the graph's inputs, which hold lengths and windows. 0, or -1 without memory. */
int gr_part_work(const gr_exec_t *x, const gr_part_t *part, gr_work_t *work, gr_error_t *err);
/* rate: bytes per second of reading, or without products of copying. What was not measured takes no
 * time. */
gr_roofline_t gr_roofline(const gr_work_t *work, const gr_limits_t *limits, double rate);

#endif
