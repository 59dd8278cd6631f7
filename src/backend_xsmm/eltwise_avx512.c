#define ELTWISE_TABLE eltwise_table_avx512
#define ELTWISE_ISA sinter_isa_avx512
#include "eltwise.inc"
