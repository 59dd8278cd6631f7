/* Products of codes in integers with AVX-512 VNNI. */
#if defined(__x86_64__)

#include "numeric/ints_avx512.h"

#define TABLE codes_table_avx512_vnni
#include "backend_xsmm/ukernels/codes.inc"

#endif
