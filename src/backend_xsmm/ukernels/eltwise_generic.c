#define ELTWISE_TABLE eltwise_table_generic
#define ELTWISE_NEEDS NEEDS_NOTHING
#include "backend_xsmm/ukernels/eltwise_f32.inc"
