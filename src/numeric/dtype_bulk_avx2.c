/* Bulk conversions with AVX2 and F16C. */
#include "numeric/dtype_bulk.h"

#if defined(__x86_64__)

#include "numeric/simd_avx2.h"

#define BULK_TABLE dtype_bulk_avx2
#include "numeric/dtype_bulk_simd.inc"

#endif
