/* Computed quantisation with AVX-512 F, BW, DQ and VL. */
#include "numeric/quant_rows.h"

#if defined(__x86_64__)

#include "numeric/simd_avx512.h"

#define LOADS_16
#define QUANT_ROWS quant_rows_avx512
#include "numeric/quant_loops.h"

#endif
