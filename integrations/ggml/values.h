/* What tensors of ggml are in the graph that is being built: inputs, results of its ops, and views
 * of either. */
#ifndef SINTER_GGML_VALUES_H
#define SINTER_GGML_VALUES_H

#include "graph.h"

/* Dims of a tensor without those of size 1 at the end, which is the begin in Sinter's order. */
int gs_rank(const tensor_t *t);
/* ggml's dims in Sinter's order: the last one first. */
const int *gs_plain_order(int rank);
/* [batch, heads, rows, elements] where dim 1 of ggml is the heads and dim 2 the rows. */
extern const int gs_heads_first[GGML_MAX_DIMS];

/* true: a node of this graph makes the tensor. */
bool gs_in_graph(const gs_builder_t *b, const tensor_t *t);
/* The memory of a tensor that an earlier node of this graph has written, or NULL. */
gs_value_t *gs_version_of(const gs_builder_t *b, const tensor_t *t);

/* The tensor t for an op that wants its dims in this order. */
bool gs_use(gs_builder_t *b, const tensor_t *t, int rank, const int *order, lt_t *lt);
bool gs_use_plain(gs_builder_t *b, const tensor_t *t, int rank, lt_t *lt);
/* The same in f32. */
bool gs_use_floats(gs_builder_t *b, const tensor_t *t, int rank, lt_t *lt);
/* Parts of a tensor along its last dim in ggml, as floats: rows of a matrix, or matrices. The
 * result has the dims of ids in place of that dim. */
bool gs_use_gathered(gs_builder_t *b, const tensor_t *t, int rank, const lt_t *ids, int ids_rank,
                     lt_t *y);
/* The floats of these planes, which have the dims of t in this order. */
bool gs_dequantise_planes(gs_builder_t *b, const tensor_t *t, int rank, const int *order,
                          const lt_t *planes, lt_t *y);
/* y = x with the dims `to` instead of `from`. */
bool gs_reshape(gs_builder_t *b, const lt_t *x, const sinter_dim_t *from, int from_rank,
                const sinter_dim_t *to, int rank, lt_t *y);
/* y = the parts start to start + count - 1 of x along an axis. */
bool gs_slice(gs_builder_t *b, const lt_t *x, int axis, int64_t start, int64_t count, lt_t *y);

/* The tensor for the result of the present node, with its dims in this order. Where it is an output
 * it has the strides of the node's memory. */
lt_t gs_result(gs_builder_t *b, int rank, const int *order);
/* lt is the value of the present node. Returns true. */
bool gs_done(gs_builder_t *b, const lt_t *lt, int rank, const int *order);
/* After an op that could not write its result in place of the node's memory: one more copy. */
bool gs_copy_to_output(gs_builder_t *b);
/* y = x, converted where its type is another one. */
bool gs_convert(gs_builder_t *b, const lt_t *x, const lt_t *y);

/* A view that has the dims of its source in another order. */
bool gs_turns(const tensor_t *t);
/* How a view sees the rows of its root, in which heads lie side by side: dim i of the view is
 * number perm[i] of elements, heads, rows and streams: where sequences have a cache for each, the
 * root has such a dim. With one head, its elements may be a part of the row, from `start` on:
 * latent attention has its values there. */
typedef struct gs_rows {
    int perm[GGML_MAX_DIMS];
    int64_t heads, start;
} gs_rows_t;
/* NULL, or why the view is none of rows. */
const char *gs_view_of_rows(const tensor_t *t, gs_rows_t *rows);
/* Whether a view sees a cache as columns: memory of rows in which the cells of each element lie
 * side by side. Dim i of the view is number perm[i] of cells, elements, heads and streams. */
bool gs_view_of_columns(const tensor_t *t, int *perm);
/* What a view takes of its source: all elements, in other dims, or parts start to start + count - 1
 * along one dim of the source, or elements that are neither. */
typedef enum gs_part { GS_PART_ALL, GS_PART_OF_DIM, GS_PART_OTHER } gs_part_t;
gs_part_t gs_part_of(const tensor_t *view, int *dim, int64_t *start, int64_t *count);
/* What the translation of a view makes of its strides and offset, as a number. */
uint64_t gs_kind_of_view(const tensor_t *view);

#endif
