#include "graph/node.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "graph/op_schema.h"

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

bool node_has_role(const node_t *node, const char *role)
{
    return node->role != NULL && strcmp(node->role, role) == 0;
}

float node_param(const node_t *node, int slot)
{
    const op_card_t *card = op_card(node->kind);
    const sinter_op_attr_t id = card != NULL ? card->params[slot] : sinter_op_attr_undef;
    if (id == sinter_op_attr_undef || attr_kind(id) != ATTR_STR) {
        return id == sinter_op_attr_undef ? 0 : node_f32(node, id, 0);
    }
    int place = 0;
    const char *words = op_attr_rule(node->kind, id)->words;
    const char *found = strstr(words, node_str(node, id, ""));
    for (const char *c = words; found != NULL && c < found; c++) {
        place += *c == '|';
    }
    return (float)place;
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

const char *node_label(const node_t *node)
{
    static _Thread_local char ring[4][64];
    static _Thread_local unsigned next;
    char *label = ring[next++ % 4];
    const char *kind = op_name(node->kind);
    snprintf(label, sizeof ring[0], "op %" PRIu64 " (%s)", node->id, kind != NULL ? kind : "?");
    return label;
}

/* The k-th value behind the data of a dequantisation that has moved; *k becomes how many remain. */
static int read_behind(const node_t *dq, int *k)
{
    for (int p = 1; p < dq->n_in; p++) {
        const node_t *inner = dq->in_dequant != NULL ? dq->in_dequant[p] : NULL;
        const int n = inner != NULL ? inner->n_in : 1;
        if (*k < n) {
            return inner != NULL ? inner->in[*k] : dq->in[p];
        }
        *k -= n;
    }
    return -1;
}

int node_read(const node_t *node, int k)
{
    int v = k < node->n_in ? node->in[k] : -1;
    k -= node->n_in;
    for (int p = 0; v < 0 && node->in_dequant != NULL && p < node->n_in; p++) {
        v = node->in_dequant[p] != NULL ? read_behind(node->in_dequant[p], &k) : -1;
    }
    return v;
}
