#define ELTWISE_F64_TABLE eltwise_f64_avx2
#include "backend_xsmm/ukernels/eltwise_f64.inc"
