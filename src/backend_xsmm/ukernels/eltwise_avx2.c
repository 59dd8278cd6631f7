#define ELTWISE_TABLE eltwise_table_avx2
#define ELTWISE_ISA sinter_isa_avx2
#include "backend_xsmm/ukernels/eltwise.inc"
