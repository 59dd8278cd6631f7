/* Decoding attention with AVX2, FMA and F16C. */
#include "backend_xsmm/ukernels/attention_decode.h"

#if defined(__x86_64__)

#include "numeric/simd_avx2.h"

#include "backend_xsmm/ukernels/decoded.inc"

#define DECODE_TABLE decode_ops_avx2
#include "backend_xsmm/ukernels/attention_decode.inc"

#endif
