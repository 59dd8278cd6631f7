/* LinearAttention with AVX2 and FMA. */
#include "backend_xsmm/ukernels/linear_attention.h"

#if defined(__x86_64__)

#include "numeric/simd_avx2.h"

enum { COLUMN_VECTORS = 1 }; /* 8 sums of 4 tokens leave room for no more */

#define LINEAR_TABLE linear_table_avx2
#include "backend_xsmm/ukernels/linear_attention_x86.inc"

void linear_rows_avx2(const linear_chunk_t *c, const linear_block_t *b)
{
    rows(c, b);
}

#endif
