/* The vector forms of dtype_bulk by data type; a row of NULL: no faster than the portable form.
 * Only dtype_bulk*.c include this. */
#ifndef SINTER_SRC_DTYPE_BULK_H
#define SINTER_SRC_DTYPE_BULK_H

#include <stddef.h>

#include "numeric/dtype.h"

enum {
    DTYPE_BULK_ROWS = sinter_u2 + 1
}; /* the highest value of dtypes.def; a row beyond it does not compile */

extern const dtype_bulk_t dtype_bulk_avx2[DTYPE_BULK_ROWS], dtype_bulk_avx512[DTYPE_BULK_ROWS];

#endif
