#define ELTWISE_TABLE eltwise_table_generic
#include "eltwise.inc"
