/* Bulk conversions with AVX2 and F16C. */
#include "numeric/dtype_bulk.h"

#if defined(__x86_64__)

#include "numeric/simd_avx2.h"

#include "numeric/bulk_codes_avx2.h"
#include "numeric/bulk_pairs_avx2.h"

#include "numeric/bulk_quantise.h"

#define BULK_TABLE dtype_bulk_avx2
#include "numeric/bulk_table.h"

#include "numeric/bulk_split.h"

const split_vectors_t split_avx2 = {split_load, split_join};

#endif
