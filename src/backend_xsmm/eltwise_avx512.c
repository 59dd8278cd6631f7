#define ELTWISE_TABLE eltwise_table_avx512
#include "eltwise.inc"
