/* Opaque layouts: how a tensor lies that MatMul reads as weights (docs/layouts.md). */
#ifndef SINTER_SRC_LAYOUT_H
#define SINTER_SRC_LAYOUT_H

#include "base/status.h"
#include "numeric/tiles.h"

typedef struct layout {
    tiled_t what;
    int across, along; /* dims of the columns and of K; -1: one value for all of K */
    int64_t K, N;
    int64_t matrices; /* of [matrices.., N, K]: several have a multiple of 16 columns each */
    int64_t blocks;   /* of K, of each matrix of the tensor: `matrices` counts them one by one */
    int64_t heads;    /* of [tokens, heads, head]: matrices of a block of tokens; 0: no such dims */
} layout_t;

static inline bool lt_is_opaque(const sinter_logical_tensor_t *lt)
{
    return lt->layout_type == sinter_layout_type_opaque;
}

/* Both have strides, or the same opaque layout. */
static inline bool lt_same_layout(const sinter_logical_tensor_t *a,
                                  const sinter_logical_tensor_t *b)
{
    return lt_is_opaque(a) == lt_is_opaque(b) && (!lt_is_opaque(a) || a->layout_id == b->layout_id);
}

/* The layout of such a part of weights. transposed: columns are the dim before the last one. */
uint64_t layout_id(tiled_t what, bool transposed);
/* The layout of a cache [tokens, heads, head]: codes of K or V (TILED_CODES, TILED_BLOCKS), or
 * values. */
uint64_t layout_id_of_heads(tiled_t what);

/* Of an opaque tensor that lt_verify has checked. Matrices follow one another. */
layout_t layout_of(const sinter_logical_tensor_t *lt);
/* The element of a strided tensor of such dims that matrix m begins at. */
int64_t layout_matrix(const sinter_logical_tensor_t *lt, const layout_t *l, int64_t m);
bool layout_bytes(const sinter_logical_tensor_t *lt, int64_t *bytes); /* false: too many */
/* Codes of its type may have more bits than it keeps. */
bool layout_may_not_fit(const sinter_logical_tensor_t *lt);
sinter_status_t layout_verify(const sinter_logical_tensor_t *lt, const char *where);

/* The dim of tokens, where the tensor is a cache: that of the columns, or of K in blocks. */
int layout_tokens(const layout_t *l);

/* Copies between an opaque tensor and a strided one of the same type and dims. The strided one may
 * have fewer tokens, which are the first ones, if all bits are kept; the others stay as they are.
 * False: an integer does not fit the layout. */
bool layout_pack(features_t features, const sinter_logical_tensor_t *from, const void *data,
                 const sinter_logical_tensor_t *to, void *to_data);
void layout_unpack(features_t features, const sinter_logical_tensor_t *from, const void *data,
                   const sinter_logical_tensor_t *to, void *to_data);

#endif
