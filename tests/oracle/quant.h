/* What the quantisation ops share. */
#ifndef SINTER_TESTS_ORACLE_QUANT_H
#define SINTER_TESTS_ORACLE_QUANT_H

#include "internal.h"

/* x / s and how far f32 code may be from it; x and s are off by up to xb and sb. */
double orc_quotient(double x, double xb, double s, double sb, double *bound);
/* Elements of a group along dim d of data of ndims dims: n elements that have `groups` scales.
 * -1: a failure, the scales do not fit. */
int64_t orc_group_size(orc_ctx_t *c, int ndims, int d, int64_t n, int64_t groups);
/* DynamicQuantize that computes its scales (and zero points): quantization_kind dynamic_*. */
int orc_quantize_dynamic(orc_ctx_t *c, const char *kind);

#endif
