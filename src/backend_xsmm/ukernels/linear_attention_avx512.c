/* LinearAttention with AVX-512. */
#include "backend_xsmm/ukernels/linear_attention.h"

#if defined(__x86_64__)

#include "numeric/simd_avx512.h"

enum { COLUMN_VECTORS = 2 };

/* Memory bounds it, and blocks of four columns of 256-bit vectors are read faster than those of
 * eight. */
#define LINEAR_ROWS linear_rows_avx2

#define LINEAR_TABLE linear_table_avx512
#include "backend_xsmm/ukernels/linear_attention_x86.inc"

#endif
