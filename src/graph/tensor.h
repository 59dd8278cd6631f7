/* Logical tensors: sizes, strides, views. */
#ifndef SINTER_SRC_TENSOR_H
#define SINTER_SRC_TENSOR_H

#include <stdbool.h>

#include <sinter/sinter_types.h>

typedef sinter_logical_tensor_t lt_t;

bool lt_dims_known(const lt_t *lt);    /* rank and all dims */
bool lt_strides_known(const lt_t *lt); /* layout strided and no unknown stride */
int64_t
lt_elems(const lt_t *lt); /* product of known dims, checked by lt_verify before; -1 if unknown */
void lt_set_dense(
    lt_t
        *lt); /* layout strided, dense row-major; unknown dims give unknown strides to their left */
bool lt_is_dense(const lt_t *lt);
/* Every rule about one tensor: rank, dims >= 0 or unknown, strides >= 0, sums and products
 * without overflow, known data type, packed types have a dimension of stride 1 (or one element)
 * and no two elements share storage (checked where an output: aliasing strides). `where` starts
 * the message. */
sinter_status_t lt_verify(const lt_t *lt, bool is_output, const char *where);
/* Bytes from the first to behind the last element; sinter_invalid_shape with a message on
 * unknown dims or overflow. */
sinter_status_t lt_bytes(const lt_t *lt, size_t *bytes);
/* Two descriptions of one id: fills unknown parts of `into` from `from`; false with *what naming
 * the part they disagree in. */
bool lt_merge(lt_t *into, const lt_t *from, const char **what);

/* Strides for looking at a tensor of dims/strides as to_dims (same number of elements, row-major
 * order kept). False: no strides can say it. Unknown dims: false. */
bool view_reshape(int ndims, const int64_t *dims, const int64_t *strides, int to_ndims,
                  const int64_t *to_dims, int64_t *to_strides);

/* JSON has no spelling for an unknown number of dims but one unknown dim: [INT64_MIN]. */
static inline bool lt_is_any_rank(const lt_t *lt)
{
    return lt->ndims == 1 && lt->dims[0] == SINTER_UNKNOWN_DIM;
}

#endif
