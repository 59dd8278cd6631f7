/* The only algorithm that matches patterns, and the state it shares with the partitioner. All
 * memory is taken by matcher_init; matching allocates nothing.
 *
 * Partitions must not depend on each other in a circle. With every partition made so far drawn
 * together into one point, no path may lead from a match through the outside back into it. Both
 * the growing of a region and the final check look only at points from which a path may lead back,
 * and give up (no match) after a bounded number of steps. */
#ifndef SINTER_SRC_MATCHER_H
#define SINTER_SRC_MATCHER_H

#include "base/heap.h"
#include "patterns/pattern.h"

enum { MATCH_STOPS = 4 };

/* A partition in the making. */
typedef struct part {
    int *nodes, n; /* in topological order */
    int min_pos;
    unsigned seen; /* the search that met it last */
} part_t;

typedef struct matcher {
    const graph_t *g;
    /* By value, like uses and uses_begin of the graph; idle ops are left out. */
    int *readers, *readers_begin;
    int *pos;   /* by node: place in topological order */
    int *owner; /* by node: its partition, -1 */
    part_t *parts;
    int *members;
    int n_parts, n_members;
    int *ends; /* Fenwick tree by position: the last position of any partition that begins before */

    match_t match;
    int *node, *of, *at; /* behind match's const pointers */
    /* For each pattern node the value that the nodes below it hang on; -1: there is none, or more
     * than one. */
    int end[PAT_MAX_NODES];
    int required; /* non-optional pattern nodes met so far */
    bool near; /* the match got past its second node, or met the right op under wrong conditions */
    const char *reason; /* why the match failed: static text, or this one */
    char text[MATCH_TEXT];
    int n_stops;
    char stops[MATCH_STOPS][MATCH_TEXT]; /* why a chain or region went no further */

    /* Searches. */
    unsigned now; /* number of the search */
    unsigned *node_search, *value_search;
    unsigned char *node_state, *value_state;
    int *list, *stack, *work_values;
    heap_t heap;          /* by position; a node, or ~partition */
    int64_t work, wasted; /* steps of this match; steps of this row's failed matches */
    int limit;            /* of chains and regions: PAT_MANY until too much was wasted */
} matcher_t;

sinter_status_t matcher_init(matcher_t *m, const graph_t *g, arena_t *arena);
/* Tries the pattern at a free node. On success m->match holds the match; else m->reason says why
 * not. */
bool matcher_try(matcher_t *m, const pattern_t *pattern, int anchor);
/* Makes the match, or a node alone, a partition. The match gets the idle ops that read its values,
 * which belong to no pattern node (of[] is -1). */
void matcher_take(matcher_t *m);
void matcher_take_single(matcher_t *m, int node);
/* Makes `lower` both partitions and leaves `upper` empty. nodes: room for all their ops, which must
 * live as long as the matcher. */
void matcher_merge(matcher_t *m, int upper, int lower, int *nodes);
/* Before each row: failures of one row do not limit the next. */
void matcher_new_row(matcher_t *m);

/* ---- between matcher.c and region.c ---------------------------------------------------------- */

void match_add(matcher_t *m, int node, int pattern_node);
void match_stop(matcher_t *m, const char *format, ...) __attribute__((format(printf, 2, 3)));
/* Grows a region over a value, adds it to the match, and returns its end value: -1 if it has
 * several. */
int region_grow(matcher_t *m, int pattern_node, int source);
/* No path leads from a point that begins at the returned position or later to one that begins
 * before pos: each partition that begins before it also ends before it. */
int matcher_horizon(const matcher_t *m, int pos);
/* NULL, or why fusing the match would close a cycle. */
const char *match_cycle(matcher_t *m);

/* The ops that read a value, one entry for each read; idle ops are left out. */
static inline int value_n_users(const matcher_t *m, int v)
{
    return m->readers_begin[v + 1] - m->readers_begin[v];
}
static inline const int *value_users(const matcher_t *m, int v)
{
    return m->readers + m->readers_begin[v];
}

#endif
