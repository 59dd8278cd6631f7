/* Quantised caches in buffers of the host, as layers on the CPU have them. The host has blocks
 * there, so a graph reads a copy of them as planes. Whoever else writes the cache does not say so:
 * before each run the blocks are compared with those that the planes were made of. */
#ifndef SINTER_GGML_RELAID_H
#define SINTER_GGML_RELAID_H

#include "tensors.h"

/* The copy of a cache that t is a view of: of its rows in dim 1 all that there is room for in the
 * cache, of which `known` have been copied. */
typedef struct gs_relaid {
    const void *data; /* of the view, with its type and its other dims */
    enum ggml_type type;
    int64_t ne[GGML_MAX_DIMS]; /* dim 1: rows that there is room for */
    int64_t known;
    uint8_t *planes, *blocks;
} gs_relaid_t;

/* The copies of all caches, which plans share. */
typedef struct gs_caches {
    gs_relaid_t **list;
    int count, capacity;
} gs_caches_t;

/* The copy of t, as large as it will ever be; NULL: out of memory. */
gs_relaid_t *gs_relaid_of(gs_caches_t *caches, const tensor_t *t);
/* Where a plane begins, and its strides in numbers. */
void *gs_relaid_plane(const gs_relaid_t *r, int plane);
int64_t gs_relaid_stride(const tensor_t *t, int plane, int dim);
/* Copies the blocks of t that have changed. */
void gs_relaid_refresh(gs_relaid_t *r, const tensor_t *t);
void gs_caches_free(gs_caches_t *caches);

#endif
