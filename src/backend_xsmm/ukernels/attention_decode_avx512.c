/* Decoding attention with AVX-512 F, BW, DQ and VL. */
#include "backend_xsmm/ukernels/attention_decode.h"

#if defined(__x86_64__)

#include "numeric/simd_avx512.h"

#include "backend_xsmm/ukernels/decoded.inc"

#define DECODE_TABLE decode_ops_avx512
#include "backend_xsmm/ukernels/attention_decode.inc"

#endif
