/* The pattern rows, defined in table_*.c, and the list of them in the order of patterns.def. */
#ifndef SINTER_SRC_PATTERN_TABLES_H
#define SINTER_SRC_PATTERN_TABLES_H

#include "patterns/pattern.h"

#define SINTER_PATTERN(row) extern const pattern_t pattern_##row;
#include "patterns/patterns.def"
#undef SINTER_PATTERN

extern const pattern_t *const sinter_patterns[];
extern const int sinter_n_patterns;

/* clang-format off */
/* A DynamicQuantize that computes its scales, over the end of node `of_node`: its groups see the
 * numbers before any rounding. */
#define PAT_QUANTISE_BELOW(of_node)                                                          \
    {.role = "quantise", .ops = PAT_DYNQUANT, .edge = PAT_BELOW, .of = (of_node), .port = 0, \
     .max = 1, .keep = true}

/* Ops that a region takes in because they compute the other operand of one of its ops. */
#define PAT_SIDE (PAT_ELTWISE | PAT_CAST | PAT_VIEW | PAT_DEQUANT)

/* The region of elementwise ops behind node `of_node`; it has at least `least` of them. */
#define PAT_POST_AS(name, of_node, least)                                                         \
    {.role = (name), .ops = PAT_ELTWISE | PAT_CAST | PAT_QUANT, .edge = PAT_REGION,               \
     .of = (of_node), .min = (least), .max = PAT_MANY, .side = PAT_SIDE, .keep = true}
#define PAT_POST(of_node, least) PAT_POST_AS("post", of_node, least)

/* Views behind node `of_node`, and the elementwise ops that follow them. */
#define PAT_TAIL(of_node)                                                                         \
    {.role = "tail", .ops = PAT_VIEW | PAT_CAST | PAT_QUANT | PAT_ELTWISE, .edge = PAT_BELOW,     \
     .of = (of_node), .port = -1, .max = PAT_MANY, .side = PAT_SIDE}

/* Ops above an input of node `of_node`. */
#define PAT_PRE(name, classes, of_node, at_port)                                                  \
    {.role = (name), .ops = (classes), .edge = PAT_ABOVE, .of = (of_node), .port = (at_port),     \
     .max = PAT_MANY}

#define PAT_ROW(title, fam, table, check_list)           \
    {.name = (title), .family = (fam), .nodes = (table), \
     .n_nodes = sizeof(table) / sizeof((table)[0]), .checks = (check_list)}
/* clang-format on */

#endif
