/* Boxes of elements that are moved as they are, and tensors of indices. */
#ifndef SINTER_SRC_KERNELS_BOX_H
#define SINTER_SRC_KERNELS_BOX_H

#include <string.h>

#include "backend_xsmm/drivers/common/chain_walk.h"
#include "backend_xsmm/plan.h"

/* An index of 32 bits, or of 64 if it is wide, at element `at` of memory of any alignment. */
static inline __attribute__((always_inline)) int64_t load_index(const unsigned char *p, int64_t at,
                                                                bool wide)
{
    int64_t index;
    int32_t narrow;
    if (wide) {
        memcpy(&index, p + at * 8, sizeof index);
        return index;
    }
    memcpy(&narrow, p + at * 4, sizeof narrow);
    return narrow;
}

/* An element of an s32 or s64 tensor. */
static inline int64_t index_at(const bound_t *t, int64_t at)
{
    return load_index(t->data, at, t->dtype == sinter_s64);
}

/* f(..., bytes), where bytes is a constant: an instance of f for each size of an element. */
#define BY_SIZE(f, bytes, ...)          \
    ((bytes) == 1   ? f(__VA_ARGS__, 1) \
     : (bytes) == 2 ? f(__VA_ARGS__, 2) \
     : (bytes) == 4 ? f(__VA_ARGS__, 4) \
     : (bytes) == 8 ? f(__VA_ARGS__, 8) \
                    : f(__VA_ARGS__, 16))

/* The same number of elements along each dim in two tensors of one type. */
typedef struct box {
    const dtype_traits_t *type;
    int ndims;
    int64_t dims[SINTER_MAX_NDIMS], from[SINTER_MAX_NDIMS], to[SINTER_MAX_NDIMS]; /* strides */
    int64_t n;                                                                    /* elements */
    bool shares_byte; /* rows of the target share bytes: one thread must write them all */
    /* NULL, or whose `stream` puts runs past the caches. The kernel sets it, and ends with
     * stream_end. */
    const struct quant_rows *past_caches;
} box_t;

/* Takes the dims whose strides the caller has set, and merges those that go on in both tensors. */
void box_prepare(sinter_data_type_t type, int ndims, box_t *box);
/* from, to: the first elements, counted from the tensors' data. */
void box_move(const box_t *box, const unsigned char *data, int64_t from, unsigned char *out,
              int64_t to);

#endif
