/* LinearAttention in portable C. */
#include "backend_xsmm/ukernels/linear_attention.h"

#include "numeric/simd_generic.h"

enum { COLUMN_VECTORS = 1 };

OP vf plus(vf sum, vf a, vf b)
{
    return sum + a * b;
}
OP float sum_of(vf x)
{
    return (x[0] + x[1]) + (x[2] + x[3]);
}
OP void sums_of(const vf *x, float *s)
{
    for (int i = 0; i < LANES; i++) {
        s[i] = sum_of(x[i]);
    }
}
OP void ahead(const float *p)
{
    (void)p;
}

#define LINEAR_TABLE linear_table_generic
#include "backend_xsmm/ukernels/linear_attention.inc"
