#include "patterns/pattern.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/schema.h"

unsigned pat_classes(const node_t *node)
{
    const unsigned flags = op_flags(node->kind);
    if (node->kind == sinter_op_type_cast) {
        return PAT_CAST;
    }
    if ((flags & OP_VIEW) != 0) {
        return PAT_VIEW;
    }
    if (node->kind == sinter_op_slice) {
        return PAT_SLICE;
    }
    if ((flags & OP_QUANT) != 0) {
        return node->n_out == 1 ? PAT_QUANT : PAT_DYNQUANT;
    }
    if ((flags & OP_DEQUANT) != 0) {
        return PAT_DEQUANT;
    }
    if (node->kind == sinter_op_multiply || node->kind == sinter_op_divide) {
        return PAT_ELTWISE | PAT_SCALE;
    }
    if ((flags & OP_ELTWISE) != 0) {
        return PAT_ELTWISE;
    }
    return op_class(node->kind);
}

const node_t *match_role(const match_t *m, const char *role, int i)
{
    for (int k = 0; k < m->n; k++) {
        if (strcmp(m->pattern->nodes[m->of[k]].role, role) == 0 && i-- == 0) {
            return &m->g->nodes[m->node[k]];
        }
    }
    return NULL;
}

const char *match_reason(const match_t *m, const char *format, ...)
{
    va_list args;
    va_start(args, format);
    vsnprintf(m->text, MATCH_TEXT, format, args);
    va_end(args);
    return m->text;
}
