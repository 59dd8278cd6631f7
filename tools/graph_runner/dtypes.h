/* Data types as the library converts them. */
#ifndef GR_DTYPES_H
#define GR_DTYPES_H

#include "base.h"

/* n elements of one type as another, by a TypeCast that the library executes. */
int gr_cast(sinter_data_type_t from, const void *src, sinter_data_type_t to, void *dst, int64_t n,
            gr_error_t *err);
/* The text of --describe-dtype=NAME; NULL with a message that lists the names. Free it with
 * gr_free. */
char *gr_describe_dtype(const char *name, gr_error_t *err);

#endif
