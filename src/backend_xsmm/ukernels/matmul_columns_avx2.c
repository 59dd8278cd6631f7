/* Matmul with few rows and weights along N with AVX2, FMA and F16C. */
#include "backend_xsmm/ukernels/matmul_columns.h"

#if defined(__x86_64__)

#include "numeric/simd_avx2.h"

#include "backend_xsmm/ukernels/decoded.inc"

#define COLUMNS_TABLE columns_avx2
#include "backend_xsmm/ukernels/matmul_columns.inc"

#endif
