/* Rows of activations times tiles of weights with AVX-VNNI. */
#if defined(__x86_64__)

#define TARGET __attribute__((target("avx2,fma,f16c,avxvnni")))
#define HAS_AVX_VNNI
#include "numeric/ints_avx2.h"

#define TABLE tiles_table_avx2_vnni
#define HAS_INTEGERS 1
#define HAS_FLOATS 0
#include "backend_xsmm/ukernels/tiles.inc"

#endif
