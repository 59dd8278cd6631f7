/* Caches in pages: K or V of attention, or scales or zero points of these, that a Gather takes
 * block by block.
 *
 *   Gather(blocks [nb, H, bs, D], table [b, n]) -> [b, n, H, bs, D] -> StaticTranspose ->
 *   [b, H, n, bs, D] -> StaticReshape -> [b, H, n * bs, D]
 *
 * Token t of sequence i lies in block table[i, t / bs], where it is number t % bs. A block may be a
 * single token, without a dim of its own, and a Slice may take a part of each token. Attention
 * reads the blocks where they lie. */
#ifndef SINTER_SRC_PAGES_H
#define SINTER_SRC_PAGES_H

#include "graph/graph.h"

typedef struct pages_of {
    int gather;        /* the node */
    int blocks, table; /* the values that it reads */
    /* Where rows of the table are named by a value, one for each index of a batch dim, as tokens
     * name their sequences: Gather(table, rows) makes what the Gather reads. -1: there is none, and
     * a row is an index. */
    int rows;
    int axis;   /* the dim of blocks that counts them */
    int within; /* the dim of blocks that has the tokens of one; -1: one token is a block */
    int tokens; /* the dim of the value */
    /* By dim of the value: the dim of blocks, or of the table, that it is; -1: of none. The dim of
     * tokens is the last dim of the table, and `within`. */
    int8_t of_blocks[SINTER_MAX_NDIMS], of_table[SINTER_MAX_NDIMS];
    int64_t start[SINTER_MAX_NDIMS]; /* by dim of blocks: the first index that the value has */
} pages_of_t;

/* How `value`, whose dim `tokens` is that of tokens, comes from blocks. False: it does not, and
 * *why says why if there is a Gather, else it is NULL. Others may read what lies between. */
bool graph_pages(const graph_t *g, int value, int tokens, pages_of_t *out, const char **why);
/* Both come from the same table, and from blocks of as many tokens. */
bool graph_pages_alike(const graph_t *g, const pages_of_t *a, const pages_of_t *b);
/* The Gather that takes rows of a table, [b, n], from outside, by names from outside, for something
 * that other Gathers alone read, as indices; NULL: there is none. */
const node_t *graph_gather_of_rows(const graph_t *g, int table);
/* The Gather whose result only views and Slices show as `value`; NULL: there is none. */
const node_t *graph_gather_shown(const graph_t *g, int value);
/* The dim of the input of a view that is dim `dim` of its output; -1: none, or several are. */
int graph_dim_above(const graph_t *g, const node_t *view, int dim);

#endif
