/* Matmul of many rows in integers with AVX-VNNI: vectors of 256 bits. */
#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2,fma,f16c,avxvnni")))
#define HAS_AVX_VNNI
#include "numeric/ints_avx2.h"

#define TABLE blocks_table_avx2_vnni
#include "backend_xsmm/ukernels/matmul_blocks.inc"

#endif
