/* Rows of activations times tiles of weights with AVX2 alone. */
#if defined(__x86_64__)

#include "numeric/ints_avx2.h"

#define TABLE tiles_table_avx2
#define HAS_INTEGERS 1
#define HAS_FLOATS 1
#include "backend_xsmm/ukernels/tiles.inc"

#endif
