/* Matmul with few rows in floats with AVX-512 F, BW, DQ and VL. */
#include "backend_xsmm/ukernels/matmul_rows.h"

#if defined(__x86_64__)

#include "numeric/simd_avx512.h"

#include "backend_xsmm/ukernels/decoded.inc"

#define ROWS_TABLE rows_floats_avx512
#include "backend_xsmm/ukernels/matmul_rows.inc"

#endif
