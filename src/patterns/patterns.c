#include "patterns/tables.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "graph/schema.h"
#include "patterns/matcher.h"

const pattern_t *const sinter_patterns[] = {
#define SINTER_PATTERN(row) &pattern_##row,
#include "patterns/patterns.def"
#undef SINTER_PATTERN
};
const int sinter_n_patterns = (int)(sizeof(sinter_patterns) / sizeof(sinter_patterns[0]));

unsigned pat_classes(const node_t *node)
{
    const unsigned flags = op_flags(node->kind);
    if (node->kind == sinter_op_type_cast) {
        return PAT_CAST;
    }
    if ((flags & OP_VIEW) != 0) {
        return PAT_VIEW;
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
    return node->kind == sinter_op_matmul        ? PAT_MATMUL
           : node->kind == sinter_op_softmax     ? PAT_SOFTMAX
           : node->kind == sinter_op_log_softmax ? PAT_LOG_SOFTMAX
                                                 : 0;
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
