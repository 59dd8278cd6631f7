/* Matmul with few rows and weights along N with AVX-512 F, BW, DQ and VL. */
#include "backend_xsmm/ukernels/matmul_columns.h"

#if defined(__x86_64__)

#include "numeric/simd_avx512.h"

#include "backend_xsmm/ukernels/decoded.inc"

#define COLUMNS_TABLE columns_avx512
#include "backend_xsmm/ukernels/matmul_columns.inc"

#endif
