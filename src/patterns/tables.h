/* The pattern rows, defined in table_*.c. */
#ifndef SINTER_SRC_PATTERN_TABLES_H
#define SINTER_SRC_PATTERN_TABLES_H

#include "pattern.h"

#define SINTER_PATTERN(row) extern const pattern_t pattern_##row;
#include "patterns.def"
#undef SINTER_PATTERN

#define PAT_ROW(title, fam, table, check_list) \
    {.name = (title), .family = (fam), .nodes = (table), .n_nodes = sizeof(table) / sizeof((table)[0]), .checks = (check_list)}

#endif
