#define ELTWISE_F64_TABLE eltwise_f64_generic
#include "backend_xsmm/ukernels/eltwise_f64.inc"
