/* Matmul of many rows in integers with AVX2 alone: pairs of products in 16 bits. */
#if defined(__x86_64__)

#include "numeric/ints_avx2.h"

#define TABLE blocks_table_avx2
#include "backend_xsmm/ukernels/matmul_blocks.inc"

#endif
