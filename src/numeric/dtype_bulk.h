/* The vector forms of dtype_bulk by data type; a row of NULL: no faster than the portable form.
 * Only dtype_bulk*.c and dtype_split.c include this. */
#ifndef SINTER_SRC_DTYPE_BULK_H
#define SINTER_SRC_DTYPE_BULK_H

#include <stddef.h>

#include "numeric/dtype.h"

/* One more than the highest value in dtypes.def: a union is as large as its largest array. */
union dtype_values {
#define SINTER_DTYPE(value, name, ...) char up_to_##name[(value) + 1];
#include <sinter/dtypes.def>
#undef SINTER_DTYPE
};
enum { DTYPE_BULK_ROWS = sizeof(union dtype_values) };

/* The functions of an instruction set for codes of six bits in two planes: for runs of whole
 * vectors, or of bytes in the portable form. Each returns how many elements it did. */
typedef struct split_vectors {
    int64_t (*load)(const float *magnitudes, const unsigned char *low, const unsigned char *high,
                    int64_t n, float *dst);
    int64_t (*join)(const float *magnitudes, const float *low, const float *high, int64_t n,
                    float *dst);
} split_vectors_t;

extern const split_vectors_t split_avx2, split_avx512;
extern const dtype_bulk_t dtype_bulk_avx2[DTYPE_BULK_ROWS], dtype_bulk_avx512[DTYPE_BULK_ROWS];

#endif
