/* LinearAttention with AVX-512. */
#include "backend_xsmm/ukernels/linear_attention.h"

#if defined(__x86_64__)

#include "numeric/simd_avx512.h"

enum { COLUMN_VECTORS = 2 };

#define LINEAR_TABLE linear_table_avx512
#include "backend_xsmm/ukernels/linear_attention_x86.inc"

#endif
