/* Walking a space of n dims in row-major order. */
#ifndef SINTER_SRC_KERNELS_CHAIN_WALK_H
#define SINTER_SRC_KERNELS_CHAIN_WALK_H

#include <stdint.h>

/* at[] of an item; extents are at least 1. */
static inline void walk_seek(int n, const int64_t *extent, int64_t item, int64_t *at)
{
    for (int k = n - 1; k >= 0; k--) {
        at[k] = item % extent[k];
        item /= extent[k];
    }
}

static inline void walk_next(int n, const int64_t *extent, int64_t *at)
{
    for (int k = n - 1; k >= 0 && ++at[k] == extent[k]; k--) {
        at[k] = 0;
    }
}

/* Where at[] lies in memory with these strides. */
static inline int64_t walk_place(int n, const int64_t *at, const int64_t *stride)
{
    int64_t place = 0;
    for (int k = 0; k < n; k++) {
        place += at[k] * stride[k];
    }
    return place;
}

#endif
