/* Rows of activations times tiles of weights with AVX-512. */
#if defined(__x86_64__)

#include "numeric/ints_avx512.h"

#define TABLE tiles_table_avx512
#define HAS_INTEGERS 0
#define HAS_FLOATS 1
#include "backend_xsmm/ukernels/tiles.inc"

#endif
