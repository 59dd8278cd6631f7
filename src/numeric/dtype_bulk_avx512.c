/* Bulk conversions with AVX-512 F, BW, DQ and VL. */
#include "numeric/dtype_bulk.h"

#if defined(__x86_64__)

#include "numeric/simd_avx512.h"

#include "numeric/bulk_codes_avx512.h"
#include "numeric/bulk_pairs_avx512.h"

#include "numeric/bulk_quantise.h"

#define BULK_TABLE dtype_bulk_avx512
#include "numeric/bulk_table.h"

#include "numeric/bulk_split.h"

const split_vectors_t split_avx512 = {split_load, split_join};

#endif
