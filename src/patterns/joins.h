/* Joins: partitions that are better run as one. They follow the matching of patterns, whose rows
 * describe what grows around one anchor; a join brings anchors together. */
#ifndef SINTER_SRC_JOINS_H
#define SINTER_SRC_JOINS_H

#include "patterns/matcher.h"

/* What is known of a partition in the making apart from its ops. */
typedef struct joinable {
    const char *name; /* of the pattern or of the last join; NULL: one op that is in no pattern */
    family_t family;
    unsigned classes; /* of the anchor; after a join those of the lower partition */
    const char *note; /* why it was not joined with others, a line of the report; NULL */
} joinable_t;

/* The names of the rows, some of them several times. */
extern const char *const sinter_joins[];
extern const int sinter_n_joins;

/* Joins partitions, which cover all nodes, by the rows of joins.def. parts is by partition; order
 * lists all partitions in an order in which they can run. A partition that went into another one
 * has no ops left. */
sinter_status_t join_partitions(matcher_t *m, joinable_t *parts, int *order, arena_t *arena);

#endif
