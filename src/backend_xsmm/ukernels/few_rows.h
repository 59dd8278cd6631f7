/* What the kernels that read codes straight from memory, for few rows of the other operand,
 * share. */
#ifndef SINTER_SRC_KERNELS_FEW_ROWS_H
#define SINTER_SRC_KERNELS_FEW_ROWS_H

#include <stdbool.h>
#include <stdint.h>

/* Bits of 2^-100 and of 2^100: between them, products with codes and their sums stay floats,
 * whatever they are scaled with later. */
enum { TAME_LEAST = 0x0d800000, TAME_BEYOND = 0x71800000 };

/* Of the bits of a magnitude. Where it is the largest one of a row, the other elements of the row
 * may be anything below it. */
static inline bool is_tame_bits(int32_t bits)
{
    return (bits == 0) | ((uint32_t)bits - TAME_LEAST < TAME_BEYOND - TAME_LEAST);
}

/* Prefetch distance in bytes for rows of codes: far enough ahead to hide the latency of memory, and
 * across the end of a page, where the hardware prefetcher stops. */
enum { READ_AHEAD = 6144 };

enum { WIDEST_CHUNK = 128 }; /* elements of a vector register of codes, at most */

/* Rows that are worked off together of n that are left. */
static inline int rows_batch(int n)
{
    return n >= 4 ? 4 : n >= 2 ? 2 : 1;
}

/* Each of n values becomes `times` of them. */
static inline void repeat_each(float *x, int64_t n, int64_t times)
{
    for (int64_t i = times > 1 ? n - 1 : -1; i >= 0; i--) {
        const float value = x[i];
        for (int64_t k = 0; k < times; k++) {
            x[i * times + k] = value;
        }
    }
}

#endif
