/* Rows of activations times tiles of weights with AVX-512 VNNI. */
#if defined(__x86_64__)

#include "numeric/ints_avx512.h"

#define TABLE tiles_table_avx512_vnni
#define HAS_INTEGERS 1
#define HAS_FLOATS 0
#include "backend_xsmm/ukernels/tiles.inc"

#endif
