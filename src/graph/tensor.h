/* Logical tensors: sizes, strides, views. */
#ifndef SINTER_SRC_TENSOR_H
#define SINTER_SRC_TENSOR_H

#include <stdbool.h>

#include <sinter/sinter_types.h>

typedef sinter_logical_tensor_t lt_t;

static inline bool dim_known(int64_t dim)
{
    return dim != SINTER_UNKNOWN_DIM;
}

static inline bool dims_may_equal(int64_t a, int64_t b)
{
    return a == b || !dim_known(a) || !dim_known(b);
}

/* The same dim in two places: one that is unknown becomes the other. False: they differ. */
static inline bool dims_unify(int64_t *a, int64_t *b)
{
    *a = dim_known(*a) ? *a : *b;
    *b = dim_known(*b) ? *b : *a;
    return *a == *b;
}

bool lt_dims_known(const lt_t *lt);    /* rank and all dims */
bool lt_strides_known(const lt_t *lt); /* layout strided and no unknown stride */
/* The product of the dims, which lt_verify has checked; -1: some dim is unknown. */
int64_t lt_elems(const lt_t *lt);
/* Layout strided, dense and row-major; an unknown dim gives unknown strides to its left. */
void lt_set_dense(lt_t *lt);
/* Layout strided, with the rank that lt has. strides NULL: dense. */
void lt_set_dims(lt_t *lt, const int64_t *dims, const int64_t *strides);
/* The same tensor with layout strided: other layouts are dense. */
lt_t lt_strided(const lt_t *lt);
/* The data types are the same, and so are dims and strides wherever both are known. A stride counts
 * only along a dim that is not 1. */
bool lt_may_coincide(const lt_t *a, const lt_t *b);
/* The ranks, and the dims, are the same wherever both are known. */
bool lt_dims_may_equal(const lt_t *a, const lt_t *b);
/* The ranks and dims are the same. */
bool lt_same_dims(const lt_t *a, const lt_t *b);
/* The data types, dims and strides are the same. The ranks are known. */
bool lt_same_shape(const lt_t *a, const lt_t *b);
/* Checks every rule about one tensor: its rank; dims >= 0 or unknown; strides >= 0; no sum or
 * product overflows; the data type is known; a packed type has a dim of stride 1, or one element;
 * no two elements of an output share storage. `where` begins the message. */
sinter_status_t lt_verify(const lt_t *lt, bool is_output, const char *where);
/* Bytes from the first to behind the last element; sinter_invalid_shape with a message on
 * unknown dims or overflow. */
sinter_status_t lt_bytes(const lt_t *lt, size_t *bytes);
/* Some byte holds elements of both tensors, whose dims are known; elements that lie between one
 * another do not count. Rows of elements of less than a byte that begin within a byte, and layouts
 * too intricate to tell, count as one piece of memory. graph/overlap.c. */
bool lt_overlap(const lt_t *a, const void *a_data, const lt_t *b, const void *b_data);
/* Merges two descriptions of one tensor: fills unknown parts of `into` from `from`. False: they
 * disagree, and *what names the part. */
bool lt_merge(lt_t *into, const lt_t *from, const char **what);

/* The strides by which a tensor of dims and strides can be read as one of to_dims, which has as
 * many elements in the same row-major order. False: no strides do that, or a dim is unknown. */
bool view_reshape(int ndims, const int64_t *dims, const int64_t *strides, int to_ndims,
                  const int64_t *to_dims, int64_t *to_strides);

/* JSON has no spelling for an unknown number of dims but one unknown dim: [INT64_MIN]. */
static inline bool lt_is_any_rank(const lt_t *lt)
{
    return lt->ndims == 1 && lt->dims[0] == SINTER_UNKNOWN_DIM;
}

#endif
