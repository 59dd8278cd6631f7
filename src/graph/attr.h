/* Op attributes: names and kinds (projections of attrs.def), copying, and reading of what a node
 * was given. */
#ifndef SINTER_SRC_ATTR_H
#define SINTER_SRC_ATTR_H

#include "graph/graph.h"

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
