/* Matmul with few rows in floats with AVX2, FMA and F16C. */
#include "backend_xsmm/ukernels/matmul_rows.h"

#if defined(__x86_64__)

#include "numeric/simd_avx2.h"

#include "backend_xsmm/ukernels/decoded.inc"

#define ROWS_TABLE rows_floats_avx2
#include "backend_xsmm/ukernels/matmul_rows.inc"

#endif
