#define ELTWISE_TABLE eltwise_table_avx2
#include "eltwise.inc"
