/* Computed quantisation with AVX2. */
#include "numeric/quant_rows.h"

#if defined(__x86_64__)

#include "numeric/simd_avx2.h"

#define LOADS_16
#define QUANT_ROWS quant_rows_avx2
#include "numeric/quant_loops.h"

#endif
