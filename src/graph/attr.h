/* Op attributes: their values, and their names and kinds (projections of attrs.def). */
#ifndef SINTER_SRC_ATTR_H
#define SINTER_SRC_ATTR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <sinter/sinter_types.h>

#include "base/alloc.h"

typedef struct attr {
    sinter_op_attr_t id;
    size_t n;
    const int64_t *s64; /* S64, S64S */
    const float *f32;   /* F32, F32S */
    const char *str;    /* STR */
    bool b;             /* BOOL */
} attr_t;

typedef enum attr_kind {
    ATTR_NONE,
    ATTR_F32,
    ATTR_F32S,
    ATTR_S64,
    ATTR_S64S,
    ATTR_S64_OR_S64S,
    ATTR_BOOL,
    ATTR_STR
} attr_kind_t;

const char *attr_name(sinter_op_attr_t id);   /* NULL: no such attribute */
attr_kind_t attr_kind(sinter_op_attr_t id);   /* ATTR_NONE: no such attribute */
const char *attr_kind_name(attr_kind_t kind); /* for messages: "f32", "s64[]" */
static inline bool attr_kind_is_f32(attr_kind_t k)
{
    return k == ATTR_F32 || k == ATTR_F32S;
}
static inline bool attr_kind_is_s64(attr_kind_t k)
{
    return k == ATTR_S64 || k == ATTR_S64S || k == ATTR_S64_OR_S64S;
}

bool attr_copy(arena_t *arena, const attr_t *from, attr_t *to); /* deep; false: out of memory */
const attr_t *attr_find(const attr_t *attrs, int n_attrs,
                        sinter_op_attr_t id); /* NULL: not given */

#endif
