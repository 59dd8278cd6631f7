/* Matmul of many rows in integers with AVX-512 VNNI. */
#if defined(__x86_64__)

#include "numeric/ints_avx512.h"

#define TABLE blocks_table_avx512_vnni
#include "backend_xsmm/ukernels/matmul_blocks.inc"

#endif
