#define ELTWISE_TABLE eltwise_table_generic
#define ELTWISE_ISA sinter_isa_generic
#include "backend_xsmm/ukernels/eltwise.inc"
