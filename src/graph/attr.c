#include "graph/attr.h"

#include <string.h>

static const struct {
    const char *name;
    attr_kind_t kind;
} attr_rows[sinter_op_attr_end] = {
#define SINTER_ATTR(value, name, kind) [value] = {#name, ATTR_##kind},
#include <sinter/attrs.def>
#undef SINTER_ATTR
};

static const char *const kind_names[] = {
    [ATTR_NONE] = "none", [ATTR_F32] = "f32",    [ATTR_F32S] = "f32[]",
    [ATTR_S64] = "s64",   [ATTR_S64S] = "s64[]", [ATTR_S64_OR_S64S] = "s64 or s64[]",
    [ATTR_BOOL] = "bool", [ATTR_STR] = "string",
};

const char *attr_name(sinter_op_attr_t id)
{
    return (unsigned)id < sinter_op_attr_end ? attr_rows[id].name : NULL;
}

attr_kind_t attr_kind(sinter_op_attr_t id)
{
    return (unsigned)id < sinter_op_attr_end ? attr_rows[id].kind : ATTR_NONE;
}

const char *attr_kind_name(attr_kind_t kind)
{
    return kind_names[kind];
}

static const void *copy_bytes(arena_t *arena, const void *from, size_t n, size_t size)
{
    void *to = arena_alloc(arena, n, size);
    if (to != NULL && n > 0) {
        memcpy(to, from, n * size);
    }
    return to;
}

bool attr_copy(arena_t *arena, const attr_t *from, attr_t *to)
{
    attr_t copy = *from;
    bool ok = true;
    if (from->s64 != NULL) {
        ok = (copy.s64 = copy_bytes(arena, from->s64, from->n, sizeof *from->s64)) != NULL;
    }
    if (from->f32 != NULL) {
        ok = ok && (copy.f32 = copy_bytes(arena, from->f32, from->n, sizeof *from->f32)) != NULL;
    }
    if (from->str != NULL) {
        ok = ok && (copy.str = arena_strdup(arena, from->str)) != NULL;
    }
    if (ok) {
        *to = copy;
    }
    return ok;
}

const attr_t *attr_find(const attr_t *attrs, int n_attrs, sinter_op_attr_t id)
{
    for (int i = 0; i < n_attrs; i++) {
        if (attrs[i].id == id) {
            return &attrs[i];
        }
    }
    return NULL;
}
