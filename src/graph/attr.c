#include "graph/attr.h"

#include <string.h>

#include "graph/schema.h"

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

const attr_t *node_attr(const node_t *node, sinter_op_attr_t id)
{
    return attr_find(node->attrs, node->n_attrs, id);
}

/* Not given: the schema's default; where the schema has none, what the caller says. */

int64_t node_s64(const node_t *node, sinter_op_attr_t id, int64_t otherwise)
{
    const attr_t *a = node_attr(node, id);
    if (a != NULL && a->s64 != NULL && a->n > 0) {
        return a->s64[0];
    }
    const attr_rule_t *rule = op_attr_rule(node->kind, id);
    return rule != NULL && rule->has_default ? (int64_t)rule->number : otherwise;
}

float node_f32(const node_t *node, sinter_op_attr_t id, float otherwise)
{
    const attr_t *a = node_attr(node, id);
    if (a != NULL && a->f32 != NULL && a->n > 0) {
        return a->f32[0];
    }
    const attr_rule_t *rule = op_attr_rule(node->kind, id);
    return rule != NULL && rule->has_default ? (float)rule->number : otherwise;
}

bool node_bool(const node_t *node, sinter_op_attr_t id, bool otherwise)
{
    const attr_t *a = node_attr(node, id);
    if (a != NULL) {
        return a->b;
    }
    const attr_rule_t *rule = op_attr_rule(node->kind, id);
    return rule != NULL && rule->has_default ? rule->number != 0 : otherwise;
}

const char *node_str(const node_t *node, sinter_op_attr_t id, const char *otherwise)
{
    const attr_t *a = node_attr(node, id);
    if (a != NULL && a->str != NULL) {
        return a->str;
    }
    const attr_rule_t *rule = op_attr_rule(node->kind, id);
    return rule != NULL && rule->text != NULL ? rule->text : otherwise;
}

int node_swaps_matrix(const node_t *node, int ndims)
{
    const attr_t *order = node_attr(node, sinter_op_attr_order);
    int n_swapped = 0;
    if (order == NULL || ndims < 0 || order->n != (size_t)ndims) {
        return -1;
    }
    for (int d = 0; d < ndims; d++) {
        const int64_t from = order->s64[d] < 0 ? order->s64[d] + ndims : order->s64[d];
        if (from != d && d < ndims - 2) {
            return -1;
        }
        n_swapped += from != d;
    }
    return n_swapped > 0;
}
