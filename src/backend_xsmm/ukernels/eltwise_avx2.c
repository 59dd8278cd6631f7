#define ELTWISE_TABLE eltwise_table_avx2
#define ELTWISE_NEEDS NEEDS_AVX2
#include "backend_xsmm/ukernels/eltwise.inc"
