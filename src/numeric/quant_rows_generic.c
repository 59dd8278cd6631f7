/* Computed quantisation in portable C, and the choice of the table. */
#include "numeric/simd_generic.h"

#define QUANT_ROWS quant_rows_generic
#include "numeric/quant_loops.h"

const quant_rows_t *quant_rows(features_t features)
{
#if defined(__x86_64__)
    if (has_features(features, NEEDS_AVX512)) {
        return &quant_rows_avx512;
    }
    if (has_features(features, NEEDS_AVX2)) {
        return &quant_rows_avx2;
    }
#endif
    (void)features;
    return &quant_rows_generic;
}
